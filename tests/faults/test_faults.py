"""Something goes wrong at each state-changing call of each command: what the next commands say must be true.

R-304 to R-307, bug case 4. The fault library counts calls in the command, its worker and the supervisor together; the
plan says at which number the process dies, or which error the call gives. A push runs a sample that is spread over all
numbers and all kinds of fault; AD_FAULTS=all runs every one.
"""

import ctypes
import errno
import os
import random
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import AD, BASE, USER, Desk, alive, envelope, main, wait_until  # noqa: E402

import shutil  # noqa: E402

import plan as fault  # noqa: E402

ALL = os.environ.get("AD_FAULTS") == "all"
SEED = int(os.environ.get("AD_FAULTS_SEED", "1"))
SAMPLE = int(os.environ.get("AD_FAULTS_SAMPLE", "2"))  # numbers for each scenario and kind of fault
PR_SET_CHILD_SUBREAPER = 36

KINDS = [
    ("killed before", fault.KILL_BEFORE, 0, 1),
    ("killed after", fault.KILL_AFTER, 0, 1),
    ("torn", fault.TORN, 0, 1),
    ("ENOSPC", fault.ERRNO_ONCE, errno.ENOSPC, 1),
    ("ENOSPC from here on", fault.ERRNO_STICKY, errno.ENOSPC, 1),
    ("EIO", fault.ERRNO_ONCE, errno.EIO, 1),
    ("EINTR", fault.ERRNO_ONCE, errno.EINTR, 1),
    ("EINTR three times", fault.ERRNO_ONCE, errno.EINTR, 3),
]



class Killed:
    """A command of the preparation that dies at some call: what then meets the fault is the recovery."""

    def __init__(self, *command, calls):
        self.command, self.calls = command, calls  # CALLS: about how many it has


STOPPED = [["create", "demo"]]
RUNNING = [["create", "demo"], ["start", "demo", "--wait=30"]]

# What is to be there before, and the command that meets the fault.
SCENARIOS = {
    "create": ([], ["create", "demo"]),
    "start": (STOPPED, ["start", "demo", "--wait=30"]),
    "exec": (RUNNING, ["run", "demo", "--", "true"]),
    "stop": (RUNNING, ["stop", "demo", "--wait=30"]),
    "rm": (STOPPED, ["rm", "demo"]),
    "clone": ([["create", "base"]], ["create", "demo", "--set", "from=base"]),
    "look after death": ([*RUNNING, "kill supervisor"], ["status", "demo"]),
    "recovery of create": ([Killed("create", "demo", calls=114)], ["rm", "demo"]),
    "recovery of start": ([*STOPPED, Killed("start", "demo", "--wait=30", calls=125)], ["start", "demo", "--wait=30"]),
    "recovery of stop": ([*RUNNING, Killed("stop", "demo", "--wait=30", calls=28)], ["stop", "demo", "--wait=30"]),
    "recovery of rm": ([*STOPPED, Killed("rm", "demo", calls=46)], ["rm", "demo"]),
    "recovery of clone": ([["create", "base"], Killed("create", "demo", "--set", "from=base", calls=173)], ["rm", "demo"]),
}


def shim():
    path = os.path.join(BASE, "shim.so")
    if not os.path.exists(path):
        shutil.copy(os.environ["AD_FAULT_SHIM"], path)
        os.chmod(path, 0o755)
    return path


def descendants():
    """Processes below this one; orphans are among them, since this process adopts them."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rsplit(b")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in (b"Z", b"X"):
            parents[int(pid)] = int(fields[1])
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def mounts_below(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return [line for line in f if path in line]


class Case:
    """One fault in one scenario, in a state root of its own."""

    def __init__(self, scenario, kind, at):
        self.scenario, self.kind, self.at = scenario, kind, at
        self.before, self.command = SCENARIOS[scenario]
        self.desk = Desk("fault")
        self.plan = fault.Plan(os.path.join(self.desk.base, "plan"), USER)

    def prepare(self):
        for command in self.before:
            if command == "kill supervisor":
                self.kill_supervisor()
            elif isinstance(command, Killed):
                self.kill_somewhere(command)
            else:
                self.desk.ok(*command)

    def kill_somewhere(self, first):
        """Kills the first command at a call that depends on nothing but this case."""
        at = random.Random(f"{SEED} {self.scenario} {self.kind} {self.at}").randrange(1, first.calls)
        self.plan.write(fault.KILL_AFTER, at)
        self.desk.raw("sandbox", *first.command, env=self.environment(), timeout=90)

    def environment(self):
        return {"LD_PRELOAD": shim(), "AD_FAULT_PLAN": self.plan.path}

    def kill_supervisor(self):
        for event in reversed(self.desk.events("demo")):
            pid = event.get("facts", {}).get("pid")
            if pid:
                os.kill(int(pid), signal.SIGKILL)
                wait_until(lambda: not alive(pid), 5, "the supervisor's death")
                return
        raise AssertionError("no supervisor in the journal")

    def strike(self):
        """Runs the command under the plan. Its reply, or None when it died before one was complete."""
        _, mode, error, times = self.kind
        self.plan.write(mode, self.at, error, times)
        reply = self.desk.raw("sandbox", *self.command, env=self.environment(), timeout=90)
        calls, hits, call = self.plan.read()
        if reply.out.endswith(b"\n"):
            reply.json = envelope(reply.out.rstrip(b"\n"), reply)
        return reply, calls, hits, call

    def settle(self):
        """The state that `status` comes to say, `missing` when there is no such sandbox."""
        end = time.monotonic() + 40
        while True:
            reply = self.desk.sandbox("status", "demo")
            if reply.code == "SANDBOX_NOT_FOUND":
                return "missing"
            assert reply.json["ok"], reply
            if reply.data["state"] != "working":
                return reply.data["state"]
            assert time.monotonic() < end, f"still working: {reply}"
            time.sleep(0.02)

    def check(self, reply):
        desk, state = self.desk, self.settle()
        listed = {s["name"]: s["state"] for s in desk.ok("list")["sandboxes"]}
        assert listed.get("demo", "missing") == state, (listed, state)
        self.check_acknowledged(reply, state)
        desk.verify()
        self.check_creation_agrees(state)
        self.remove(state)
        assert desk.ok("create", "demo")["state"] == "stopped"
        desk.ok("rm", "demo")
        if desk.sandbox("status", "base").json["ok"]:
            assert desk.state("base") == "stopped"
            desk.ok("rm", "base")
        self.check_nothing_left()
        desk.verify()

    def check_acknowledged(self, reply, state):
        """What was said to be done is done (R-304)."""
        if reply.json is None or not reply.json["ok"] or self.command[0] == "run" or reply.data["state"] == "working":
            return
        if self.command[0] == "rm":
            assert state == "missing", (reply, state)
        elif reply.data["state"] != "running":  # a supervisor may still die of its fault after the reply
            assert state == reply.data["state"], (reply, state)
        else:
            assert state in ("running", "stopped"), (reply, state)

    def check_creation_agrees(self, state):
        """Bug case 4: create and status never disagree about the existence."""
        if state != "missing":
            self.desk.fails("SANDBOX_EXISTS", "create", "demo")
            assert os.path.isdir(self.desk.path("sandboxes")), "recorded but nowhere"

    def remove(self, state):
        if state == "running":
            assert self.desk.ok("stop", "demo", "--wait=30")["state"] == "stopped"
        if state != "missing":
            self.desk.ok("rm", "demo")
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")

    def check_nothing_left(self):
        left = [name for name in os.listdir(self.desk.path("sandboxes"))]
        assert left == [], f"files of no sandbox: {left}"
        end = time.monotonic() + 10
        while descendants():
            reap()
            assert time.monotonic() < end, f"orphans: {[open(f'/proc/{p}/cmdline').read() for p in descendants()]}"
            time.sleep(0.02)
        assert mounts_below(self.desk.base) == []

    def run(self):
        """True when the fault was met."""
        self.prepare()
        reply, _, hits, call = self.strike()
        try:
            self.check(reply)
        except Exception as problem:
            name = self.kind[0]
            raise AssertionError(
                f"{self.scenario}: call {self.at} ({call or 'not met'}) {name}: {problem}\n{reply}"
            ) from problem
        shutil.rmtree(self.desk.base, ignore_errors=True)
        return hits > 0


def count_calls(scenario):
    """How many calls there are to go wrong; a recovery has more or fewer, as the first command died late or early."""
    counts = []
    for seed in range(4 if scenario.startswith("recovery") else 1):
        case = Case(scenario, ("count", fault.COUNT, 0, 1), seed)
        case.prepare()
        reply, calls, _, _ = case.strike()
        case.check(reply)
        counts.append(calls)
    return max(counts)


class FaultTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def drive(self, scenario):
        calls = count_calls(scenario)
        self.assertGreater(calls, 1)
        chance = random.Random(f"{SEED} {scenario}")
        met = cases = 0
        for kind in KINDS:
            if ALL:
                numbers = range(1, calls + 1)
            else:  # one number out of each of SAMPLE equal parts
                edges = [1 + calls * i // SAMPLE for i in range(SAMPLE + 1)]
                numbers = [chance.randrange(a, max(a + 1, b)) for a, b in zip(edges, edges[1:])]
            for at in numbers:
                met += Case(scenario, kind, at).run()
                cases += 1
        print(f"{scenario}: {calls} calls, {cases} cases, fault met in {met}", file=sys.stderr)
        self.assertGreater(met, 0)


def add_tests():
    for scenario in SCENARIOS:

        def test(self, scenario=scenario):
            self.drive(scenario)

        setattr(FaultTest, "test_r304_r307_fault_at_each_call_of_" + scenario.replace(" ", "_"), test)


add_tests()

if __name__ == "__main__":
    if USER.switch:
        print(f"as {USER.name}, with {AD}", file=sys.stderr)
    main()
