"""The fault driver: a command meets a fault at its n-th state-changing call, and then the next commands must be right.

R-304 to R-308, bug case 4. The fault library (shim.c) counts calls in the command, its worker and what they start; the
plan says at which number a process dies, or which error the call gives. A push runs a sample that is spread over all
numbers and all kinds of fault; AD_FAULTS=all runs every one, and AD_FAULTS_CASE=KIND:NUMBER that one alone.
"""

import concurrent.futures
import dataclasses
import errno
import fcntl
import os
import random
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import AD, BASE, USER, Reply, envelope, wait_until  # noqa: E402

import plan as fault  # noqa: E402

ALL = os.environ.get("AD_FAULTS") == "all"
ONE = os.environ.get("AD_FAULTS_CASE")
SEED = int(os.environ.get("AD_FAULTS_SEED", "1"))
COMMAND_SECONDS = 90
SETTLE_SECONDS = 40
ENOUGH = 20  # failures of one scenario
DRAWS = 8  # of cases, until one is met: who is to be killed at a moment may not live yet, or no more


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    mode: int
    error: int = 0
    times: int = 1
    then: callable = None  # done to the case once the process has stopped (fault.STOP)


COUNTING = Kind("counted", fault.COUNT)
KINDS = [
    Kind("killed before", fault.KILL_BEFORE),
    Kind("killed after", fault.KILL_AFTER),
    Kind("torn", fault.TORN),
    Kind("ENOSPC", fault.ERRNO_ONCE, errno.ENOSPC),
    Kind("ENOSPC from here on", fault.ERRNO_STICKY, errno.ENOSPC),
    Kind("EIO", fault.ERRNO_ONCE, errno.EIO),
    Kind("EIO from here on", fault.ERRNO_STICKY, errno.EIO),
    Kind("EINTR", fault.ERRNO_ONCE, errno.EINTR),
    Kind("EINTR three times", fault.ERRNO_ONCE, errno.EINTR, 3),
]
DEATHS = [kind for kind in KINDS if kind.mode in (fault.KILL_BEFORE, fault.KILL_AFTER, fault.TORN)]


class Killed:
    """A command of the preparation that dies at some call: what then meets the fault is the recovery."""

    def __init__(self, *command, calls):
        self.command, self.calls = command, calls  # CALLS: about how many it has


@dataclasses.dataclass(frozen=True)
class Scenario:
    before: list  # commands; Killed(); and functions of the case
    command: list  # which meets the fault
    kinds: list = dataclasses.field(default_factory=lambda: KINDS)
    programs: str = None  # the fault library's AD_FAULT_PROGRAMS
    each: int = None  # numbers for each kind with AD_FAULTS=all; None: all of them


def shim():
    """The fault library, where an ordinary user can read it."""
    path = os.path.join(BASE, "shim.so")
    with _making_shim:
        if not os.path.exists(path):
            shutil.copy(os.environ["AD_FAULT_SHIM"], path)
            os.chmod(path, 0o755)
    return path


_making_shim = threading.Lock()


def is_held(path):
    """Has anybody locked the file? By a lock that excludes no other question."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


class Case:
    """One fault in one scenario, in a state root of its own. A provider's test adds what to begin with, and check()."""

    name = "demo"  # the sandbox that it is about
    programs = None  # that meet faults, unless the scenario says which
    unit = "calls"  # of the numbers

    def __init__(self, title, scenario, kind, at):
        self.title, self.scenario, self.kind, self.at = title, scenario, kind, at
        self.command = scenario.command
        self.chance = random.Random(f"{SEED} {title} {kind.name} {at}")  # depends on nothing but this case
        self.desk = self.make_desk()
        self.plan = fault.Plan(os.path.join(self.desk.base, "plan"), USER)

    def make_desk(self):
        raise NotImplementedError

    def check(self, reply):
        """Everything that must hold afterwards. Ends with nothing left but what was there before."""
        raise NotImplementedError

    def close(self):
        """Ends what is left, and all that was made."""
        raise NotImplementedError

    def why(self):
        """What else there is to say about a failure."""
        return ""

    # The fault.

    def prepare(self):
        for step in self.scenario.before:
            if isinstance(step, Killed):
                counting = self.kind is COUNTING
                self.plan.write(fault.KILL_AFTER, self.at if counting else self.chance.randrange(1, step.calls))
                self.desk.raw("sandbox", *step.command, env=self.environment(), timeout=COMMAND_SECONDS)
            elif callable(step):
                step(self)
            else:
                self.desk.ok(*step)

    def environment(self):
        programs = self.scenario.programs or self.programs
        return {"LD_PRELOAD": shim(), "AD_FAULT_PLAN": self.plan.path,
                **({"AD_FAULT_PROGRAMS": programs} if programs else {})}

    def strike(self):
        """Runs the command under the plan. Its reply, whose envelope is None when it died before that was complete."""
        self.plan.write(self.kind.mode, self.at, self.kind.error, self.kind.times)
        process = self.desk.popen("sandbox", *self.command, env=self.environment())
        self.interfere(process)
        out, err = process.communicate(timeout=COMMAND_SECONDS)
        reply = Reply(self.command, subprocess.CompletedProcess(self.command, process.returncode, out, err))
        if reply.out.endswith(b"\n"):
            reply.json = envelope(reply.out.rstrip(b"\n"), reply)
        return reply

    def interfere(self, process):
        """Waits for a process that the plan stops, and does to it what the kind says."""
        if self.kind.then:
            wait_until(lambda: self.plan.read()[1] or process.poll() is not None, COMMAND_SECONDS, "the fault")
            if self.plan.read()[1]:
                self.kind.then(self)

    def met(self):
        """(how many calls there were, whether the fault was met, by which call)"""
        calls, hits, call = self.plan.read()
        return calls, hits > 0, call

    def run(self):
        """How many calls there were, and whether the fault was met."""
        reply = call = None
        try:
            self.prepare()
            reply = self.strike()
            calls, met, call = self.met()
            self.check(reply)
        except Exception as problem:
            raise AssertionError(
                f"{self.title}, {self.kind.name}:{self.at} ({call or 'not met'}): {problem!r}\n{reply}\n{self.why()}"
            ) from problem
        finally:
            self.close()
        return calls, met

    # What must hold, whatever the provider.

    def settle(self):
        """The state that `status` comes to say, `missing` when there is no such sandbox."""
        return self.await_rest(self.look, self.name + ".op", self.name + ".run")

    def look(self):
        reply = self.desk.sandbox("status", self.name)
        if reply.code == "SANDBOX_NOT_FOUND":
            return {"state": "missing"}
        assert reply.json["ok"], reply
        return reply.data

    def await_rest(self, look, *locks):
        """The state that LOOK() comes to give. `working` is true only while a live owner or session has a lock."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            owned = any(is_held(self.desk.path("locks", lock)) for lock in locks)
            data = look()
            if data["state"] != "working":
                return data["state"]
            assert owned, f"working, and nobody is at it: {data}"
            assert time.monotonic() < end, f"still working: {data}"
            time.sleep(0.02)

    def check_commands_agree(self, state):
        """Bug case 4: list, create and status never disagree about the existence."""
        listed = {s["name"]: s["state"] for s in self.desk.ok("list")["sandboxes"]}
        assert listed.get(self.name, "missing") == state, (listed, state)
        if state != "missing":
            self.desk.fails("SANDBOX_EXISTS", *self.creation())
            assert os.path.isdir(self.desk.path("sandboxes")), "recorded but nowhere"

    def creation(self):
        """The command that makes the sandbox."""
        return ["create", self.name]

    def check_acknowledged(self, reply, state):
        """What was said to be done is done (R-304), and exit status 0 is an acknowledgement."""
        if reply.status == 0 and self.command[0] not in ("exec", "run"):
            assert reply.json is not None and reply.json["ok"], f"exit status 0 without a reply: {reply}"
        if reply.json is None or not reply.json["ok"] or reply.data.get("name") != self.name:
            return
        said = reply.data["state"]
        if said in ("running", "needs_setup"):  # a session may still die of its fault after the reply
            assert state in (said, "stopped"), (reply, state)
        elif said != "working":
            assert state == said, (reply, state)

    def check_history(self):
        """R-304: each move began where the one before had led; so nobody wrote who had been overtaken."""
        self.desk.verify()
        places = {}
        for event in self.desk.events():
            if event["kind"] == "move":
                before = places.get(event["name"], "missing")
                assert event["from"] == before, f"a move from {event['from']} when it was {before}: {event}"
                places[event["name"]] = event["to"]

    def remove(self, state):
        if state in ("running", "needs_setup"):
            assert self.desk.ok("stop", self.name, "--wait=60")["state"] == "stopped"
        if state != "missing":
            self.desk.ok("rm", self.name)
        self.desk.fails("SANDBOX_NOT_FOUND", "status", self.name)


# Which cases.

def count_calls(make_case, title, scenario):
    """How many calls there are to go wrong; a recovery has more or fewer, as the first command died late or early."""
    deaths = [step.calls * part // 5 for step in scenario.before if isinstance(step, Killed) for part in (1, 3, 2, 4)]
    return max(make_case(title, scenario, COUNTING, at).run()[0] for at in deaths[: 4 if ALL else 2] or [0])


def choose(title, scenario, calls, each, draw=1):
    """(kind, number) of the cases to run: all of them, or EACH numbers for every kind, spread over all numbers."""
    kinds = scenario.kinds
    if ALL and not scenario.each:
        return [(kind, at) for kind in kinds for at in range(1, calls + 1)]
    each = scenario.each if ALL else each
    chance = random.Random(f"{SEED} {title} {draw}")
    count = max(1, round(each * len(kinds)))
    edges = [1 + calls * i // count for i in range(count + 1)]
    numbers = [chance.randrange(a, max(a + 1, b)) for a, b in zip(edges, edges[1:])]
    turns = [kinds[i % len(kinds)] for i in range(chance.randrange(len(kinds)), count + len(kinds))]
    chance.shuffle(numbers)
    return list(zip(turns, numbers))


def only(scenario):
    kind, at = ONE.split(":")
    return [(one, int(at)) for one in scenario.kinds if one.name == kind]


def drive(make_case, title, scenario, each, workers=1):
    """Runs the scenario's cases, WORKERS at a time. Fails with what failed in them, all of it."""
    calls = None if ONE else count_calls(make_case, title, scenario)
    failures, met = [], 0

    def run(case):
        return len(failures) < ENOUGH and make_case(title, scenario, *case).run()[1]

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for draw in range(1, (1 if ONE or ALL else DRAWS) + 1):
            if met or failures:
                break
            cases = only(scenario) if ONE else choose(title, scenario, calls, each, draw)
            for future in [pool.submit(run, case) for case in cases]:
                try:
                    met += future.result()
                except AssertionError as problem:
                    failures.append(str(problem))
                    print(problem, file=sys.stderr)  # at once: all cases may take hours
            print(f"{title}: {calls} {make_case.unit}, {len(cases)} cases, fault met in {met}", file=sys.stderr)
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures)
    assert met > 0, f"{title}: no fault was met"


def add_tests(test_class, scenarios, what="fault_at_each_call_of_"):
    """A test for each scenario, which calls the class's drive(TITLE, SCENARIO)."""
    for title, scenario in scenarios.items():

        def test(self, title=title, scenario=scenario):
            self.drive(title, scenario)

        setattr(test_class, "test_r304_r307_" + what + title.replace(" ", "_"), test)


def announce():
    if USER.switch:
        print(f"as {USER.name}, with {AD}", file=sys.stderr)
