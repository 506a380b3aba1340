"""The fault driver on the vercel provider, beside a simulated service: driver.py says how.

Two kinds. Faults of this machine meet the command and its worker at any of their calls, as with the other providers.
And whoever makes a request is killed around it: before it is sent, while the service has it, with its effect there and
no answer, with the answer just arrived; also with an effect that comes late, when others have looked already. A push runs
each of these boundaries with one victim or two, AD_FAULTS=all with all of them.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import time
import unittest

import driver
from driver import ALL, Case, Killed, Scenario, is_held
from harness import main, wait_until

from cloud import CloudDesk

SAMPLE = float(os.environ.get("AD_FAULTS_SAMPLE", "0.35"))  # numbers for each scenario and kind of fault
WORKERS = int(os.environ.get("AD_FAULTS_WORKERS", "8"))  # most of a case's time is spent waiting
LEAVE_SECONDS = 10  # for what ends by itself

CREATE = ["create", "demo", "--provider", "vercel", "--wait=60"]
CLONE = [*CREATE, "--set", "from=base"]
START, STOP, REMOVE = ["start", "demo", "--wait=60"], ["stop", "demo", "--wait=60"], ["rm", "demo"]
SOURCE = [["create", "base", "--provider", "vercel", "--wait=60"], ["stop", "base", "--wait=60"]]
RUNNING, STOPPED = [CREATE], [CREATE, STOP]


class VercelCase(Case):
    """A case with a service of its own."""

    programs = "agent-desktop"

    def make_desk(self):
        desk = CloudDesk("fault")
        desk.install()
        return desk

    def close(self):
        self.desk.close()

    def why(self):
        return f"{[(one.op, one.status, one.effect) for one in self.desk.cloud.requests]}"

    def creation(self):
        return CREATE

    @property
    def has_source(self):
        return SOURCE[0] in self.scenario.before

    def settle(self):
        """The state that `status` comes to say. `working` is true while somebody is at it, here or there."""
        end = time.monotonic() + driver.SETTLE_SECONDS
        while True:
            locks = [self.desk.path("locks", "demo." + lock) for lock in ("op", "run")]
            is_busy = self.is_changing() or any(is_held(lock) for lock in locks)
            data = self.look()
            if data["state"] != "working":
                return data["state"]
            assert is_busy, f"working, and nobody is at it: {data}"
            assert time.monotonic() < end, f"still working: {data}"
            time.sleep(0.02)

    def is_changing(self):
        """Is something under way on the service?"""
        return any(one["session"]["status"] not in ("running", "stopped") for one in self.desk.cloud.sandboxes.values())

    def check(self, reply):
        state = self.settle()
        self.check_commands_agree(state)
        self.check_acknowledged(reply, state)
        self.check_service(state)
        self.scenario.then(self, state)
        self.finish()

    def check_service(self, state):
        """R-505: one sandbox at most, which the journal knows; and what is said of it is so."""
        ours = self.desk.ours()
        if self.has_source:
            assert self.desk.hosted("base") in ours, ours
            ours -= {self.desk.hosted("base")}
        if ours:
            assert ours == {self.desk.hosted("demo")}, f"{ours}, of which {self.desk.facts('demo')} is recorded"
        if state in ("running", "stopped"):
            assert ours and self.truth() == state, f"it is said to be {state}, and there: {self.desk.cloud.sandboxes}"

    def truth(self):
        """What the service says of demo's session."""
        return self.desk.cloud.sandboxes[self.desk.hosted("demo")]["session"]["status"]

    def finish(self):
        """Everything goes, and comes once more: nobody is in the way."""
        desk = self.desk
        desk.check_secrets()
        self.remove(self.settle())
        if isinstance(self, AnyCallCase):
            assert desk.ok(*CREATE)["state"] == "running"
            self.remove("running")
        if self.has_source:
            assert desk.state("base") == "stopped"
            desk.ok("rm", "base")
        assert not desk.ours(), f"left on the service: {desk.cloud.sandboxes}"
        assert os.listdir(desk.path("sandboxes")) == []
        wait_until(lambda: not desk.processes(), LEAVE_SECONDS, "the end of all workers")
        self.check_history()


# --- any call of ours ---


def after_creation(case, state):
    assert state in ("missing", "broken", "running"), state
    if state == "broken":
        check_broken(case)
    elif state == "running":
        check_exec(case)


def after_start(case, state):
    assert state in ("stopped", "running"), state
    assert case.desk.ok(*START)["state"] == "running"
    check_exec(case)


def after_stop(case, state):
    assert state in ("stopped", "running"), state
    assert case.desk.ok(*STOP)["state"] == "stopped"
    assert case.truth() == "stopped"


def after_removal(case, state):
    assert state in ("missing", "stopped", "broken"), state


def after_removal_of_unfinished(case, state):
    """Killed too late, the creation was whole, and its removal was refused."""
    assert state in ("missing", "broken", "running"), state


def check_broken(case):
    """R-305: it says why, and only a removal helps."""
    data = case.desk.ok("status", case.name)
    assert "next_argv" in data and data["next_argv"][1:] == ["sandbox", "rm", case.name], data
    assert data["message"].startswith("demo is broken: "), data
    error = case.desk.fails("INVALID_STATE", "start", case.name)
    assert error["recovery"]["next_argv"] == data["next_argv"], error


def check_exec(case):
    reply = case.desk.raw("sandbox", "exec", case.name, "--", "exit", "7")
    assert reply.status == 7, reply


@dataclasses.dataclass(frozen=True)
class VercelScenario(Scenario):
    then: callable = None  # one of the above


SCENARIOS = {
    "create": VercelScenario([], CREATE, then=after_creation),
    "clone": VercelScenario(SOURCE, CLONE, then=after_creation),
    "start": VercelScenario(STOPPED, START, then=after_start),
    "stop": VercelScenario(RUNNING, STOP, then=after_stop),
    "rm": VercelScenario(STOPPED, REMOVE, then=after_removal),
    "recovery of create": VercelScenario([Killed(*CREATE, calls=54)], REMOVE, then=after_removal_of_unfinished),
    "recovery of start": VercelScenario([*STOPPED, Killed(*START, calls=48)], START, then=after_start),
    "recovery of stop": VercelScenario([*RUNNING, Killed(*STOP, calls=29)], STOP, then=after_stop),
    "recovery of rm": VercelScenario([*STOPPED, Killed(*REMOVE, calls=35)], REMOVE, then=after_removal),
}


class AnyCallCase(VercelCase):
    pass


class FaultTest(unittest.TestCase):
    def drive(self, title, scenario):
        driver.drive(AnyCallCase, title, scenario, SAMPLE, WORKERS)


driver.add_tests(FaultTest, SCENARIOS)


# --- around any request ---

NEVER_SENT = {"hold": "before", "reset": "before"}  # held, then lost: as if who died had not come to send it
LATE = {"hold": "before"}  # on its way when its sender dies; it is carried out when it is released
DONE = {"hold": "after"}  # carried out, and nobody is there for the answer
MOMENTS = {"before it is sent": NEVER_SENT, "under way": LATE, "with its effect": DONE, "with its answer": DONE}
OF_LOOKS = ("before it is sent", "with its answer")  # the others are the same for what changes nothing
ACTING = ("create", "fork", "resume", "stop", "delete", "run")

SETTINGS = {"create": {"pending_ms": 300}, "clone": {"pending_ms": 300}, "start": {"pending_ms": 300},
            "stop": {"stopping_ms": 300}, "rm": {}}


@dataclasses.dataclass(frozen=True)
class Boundary:
    number: int  # of the request, among those of its op
    op: str
    moment: str
    victim: str  # the command; its worker; the worker's group; both

    def __str__(self):
        return f"{self.victim} killed at {self.op} {self.number}, {self.moment}"


class BoundaryCase(VercelCase):
    """Whoever makes a request is killed around it."""

    def __init__(self, title, scenario, boundary):
        self.title, self.scenario, self.boundary, self.command = title, scenario, boundary, scenario.command
        self.kind = driver.COUNTING
        self.desk = self.make_desk()

    def run(self):
        reply = None
        try:
            self.prepare()
            self.cloud.set(**SETTINGS[self.title])
            reply = self.strike()
            self.check(reply)
        except Exception as problem:
            raise AssertionError(f"{self.title}, {self.boundary}: {problem!r}\n{self.why()}") from problem
        finally:
            self.close()

    @property
    def cloud(self):
        return self.desk.cloud

    def strike(self):
        """Whether somebody goes on with the work."""
        members = MOMENTS[self.boundary.moment]
        self.fault = self.cloud.fault(self.boundary.op, nth=self.boundary.number, **members)
        before = len(self.cloud.requests_of(self.boundary.op))
        process = self.desk.popen("sandbox", *self.command)
        self.fault.wait()
        self.request = self.cloud.requests_of(self.boundary.op)[before + self.boundary.number - 1]
        goes_on = self.kill(process)
        if goes_on or self.boundary.moment == "with its answer":
            self.release()
        process.communicate(timeout=driver.COMMAND_SECONDS)
        return goes_on

    def kill(self, process):
        workers = [pid for pid, _ in self.desk.processes() if pid != process.pid]
        assert len(workers) <= 1, workers
        if self.boundary.moment == "with its answer":  # which comes to who is stopped, and does not get to read it
            self.signal([process.pid, *workers], signal.SIGSTOP)
            self.release()
        victims = {"the command": [process.pid],
                   "both": [process.pid, *workers],
                   "its worker": workers or [process.pid],
                   "its group": [-pid for pid in workers] or [process.pid]}[self.boundary.victim]
        self.signal(victims, signal.SIGKILL)
        self.signal([process.pid, *workers], signal.SIGCONT)
        gone = [abs(pid) for pid in victims]
        wait_until(lambda: not {pid for pid, _ in self.desk.processes()} & set(gone), what="the death")
        return bool(workers) and self.boundary.victim == "the command"

    @staticmethod
    def signal(pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                if pid < 0:
                    assert os.getpgid(-pid) not in (os.getpgid(0),), "a worker in the group of its caller"
                    os.killpg(os.getpgid(-pid), number)
                else:
                    os.kill(pid, number)

    def release(self):
        self.fault.release()
        wait_until(lambda: self.request.is_done, LEAVE_SECONDS, "the end of the request")

    # What must hold.

    def check(self, goes_on):
        if goes_on:
            self.scenario.then(self, self.at_rest(), True)
        else:
            self.check_look()  # at once, with the request still on its way
            self.release()
            if self.boundary.moment != "with its answer":  # else the command is repeated at once
                self.check_look()
                self.at_rest()
                self.check_look()
            self.repeat()
            self.check_service(self.at_rest())
        self.finish()

    def check_look(self):
        """Whoever looks is told the truth: what the service says before or after the look."""
        before = self.is_changing()
        state = self.look()["state"]
        if state == "working":
            assert before or self.is_changing(), "working, and nobody is at it"
        elif not before and not self.is_changing():
            self.check_commands_agree(state)
            self.scenario.then(self, state, False)

    def at_rest(self):
        """The state once nothing changes any more."""
        self.settle()
        wait_until(lambda: not self.is_changing(), LEAVE_SECONDS, "the end of all changes there")
        return self.settle()

    def repeat(self):
        """R-306: the same command finishes what was begun. A creation is not resumed (R-305)."""
        if self.title in ("create", "clone"):
            if self.began():
                self.desk.fails("SANDBOX_EXISTS", *self.command)
        else:
            data = self.desk.ok(*self.command)
            assert data["state"] == self.scenario.goal, data

    def began(self):
        return any(event["kind"] == "move" for event in self.desk.events("demo"))


def of_creation(case, state, goes_on):
    wanted = "running" if goes_on else "broken" if case.began() else "missing"
    assert state == wanted, (state, wanted)
    if state == "broken":
        check_broken(case)
        moves = [event for event in case.desk.events("demo") if event["kind"] == "move"]
        assert moves[-1]["event"] == "owner_lost" and "interrupted" in moves[-1]["reason"], moves[-1]
        assert case.desk.facts("demo")["hosted"] in case.desk.ok("status", "demo")["message"]


def of_start(case, state, goes_on):
    assert state == ("running" if goes_on else case.truth()), (state, case.truth())


def of_stop(case, state, goes_on):
    assert state == ("stopped" if goes_on else case.truth()), (state, case.truth())


def of_removal(case, state, goes_on):
    """Begun, only another removal is possible; until then it is what it was."""
    moves = [event["event"] for event in case.desk.events("demo") if event["kind"] == "move"]
    assert state == ("broken" if "remove" in moves else "stopped"), (state, moves)
    if state == "broken":
        check_broken(case)


@dataclasses.dataclass(frozen=True)
class BoundaryScenario(Scenario):
    then: callable = None  # asked with the state, and whether the work goes on without who was killed
    goal: str = "running"


BOUNDARIES = {
    "create": BoundaryScenario([], CREATE, then=of_creation),
    "clone": BoundaryScenario(SOURCE, CLONE, then=of_creation),
    "start": BoundaryScenario(STOPPED, START, then=of_start),
    "stop": BoundaryScenario(RUNNING, STOP, then=of_stop, goal="stopped"),
    "rm": BoundaryScenario(STOPPED, REMOVE, then=of_removal, goal="missing"),
}
VICTIMS = ("its worker", "its group", "both", "the command")


def choose_victims(title, moment, turn):
    if title == "rm":  # which has no worker
        return ["the command"]
    if ALL:
        return VICTIMS
    return ["both", "the command"] if moment == "under way" else [VICTIMS[turn % 3]]


def find_boundaries(title, scenario):
    """One run without a fault tells which requests there are."""
    case = BoundaryCase(title, scenario, None)
    try:
        case.prepare()
        case.cloud.set(**SETTINGS[title])
        case.cloud.forget_requests()
        case.desk.ok(*scenario.command)
        ops = [request.op for request in case.cloud.requests]
    finally:
        case.close()
    numbers = {}
    for turn, op in enumerate(ops):
        numbers[op] = numbers.get(op, 0) + 1
        for moment in MOMENTS if op in ACTING else OF_LOOKS:
            for victim in choose_victims(title, moment, turn):
                yield Boundary(numbers[op], op, moment, victim)


class BoundaryTest(unittest.TestCase):
    def drive(self, title, scenario):
        boundaries = list(find_boundaries(title, scenario))
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            runs = [pool.submit(BoundaryCase(title, scenario, boundary).run) for boundary in boundaries]
            failures = [str(run.exception()) for run in runs if run.exception()]
        print(f"{title}: {len(boundaries)} boundaries", file=driver.sys.stderr)
        self.assertGreaterEqual(len(boundaries), 6)
        if failures:
            self.fail(f"{len(failures)} of {len(boundaries)}:\n" + "\n".join(failures))


driver.add_tests(BoundaryTest, BOUNDARIES, "death_around_each_request_of_")


class LateEffectTest(unittest.TestCase):
    """The client is dead, its creation is still on its way, and rm asks before it is there."""

    def begin(self, *options):
        self.desk = CloudDesk("late")
        self.addCleanup(self.desk.close)
        self.cloud = self.desk.cloud
        self.desk.install()
        self.op = "create"
        if options:
            self.desk.create_stopped("base")
            self.op = "fork"
        self.fault = self.cloud.fault(self.op, hold="before")
        self.desk.begin("demo", *options)
        self.fault.wait()
        self.desk.kill_worker()
        self.hosted = self.desk.hosted("demo")
        data = self.desk.ok("status", "demo")
        self.assertEqual(data["state"], "broken")
        self.assertIn(self.hosted, data["message"])
        self.assertNotIn(self.hosted, self.cloud.sandboxes)
        self.cloud.forget_requests()

    def release(self):
        self.fault.release()
        wait_until(lambda: self.hosted in self.cloud.sandboxes, LEAVE_SECONDS, "the late effect")

    def looks_in_vain(self):
        return [one.status for one in self.cloud.requests_of("get")].count(404)

    def test_r505_rm_waits_for_a_creation_that_may_be_on_its_way(self):
        for options in ((), ("--set", "from=base")):
            with self.subTest(options):
                self.begin(*options)
                process = self.desk.popen("sandbox", "rm", "demo")
                wait_until(self.looks_in_vain, what="rm's look")
                self.release()
                out, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, (out, err))
                self.assertEqual(len(self.cloud.requests_of("delete")), 1)
                self.assertNotIn(self.hosted, self.cloud.sandboxes)
                self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")
                self.desk.verify()

    def test_r505_what_comes_after_rm_is_in_the_log_and_in_nobodys_way(self):
        for options in ((), ("--set", "from=base")):
            with self.subTest(options):
                self.begin(*options)
                self.assertEqual(self.desk.ok("rm", "demo")["state"], "missing")
                self.assertGreaterEqual(self.looks_in_vain(), 2)
                reason = self.desk.last_move("demo")["reason"]  # not more than is known
                self.assertIn(f"the service has no '{self.hosted}'", reason)
                self.assertIn("should its creation", reason)
                self.release()
                self.assertEqual(self.desk.facts("demo")["hosted"], self.hosted)
                tags = self.cloud.sandboxes[self.hosted]["tags"]
                self.assertEqual(tags["agent-desktop"], self.desk.facts("demo")["id"])
                self.desk.create("demo")  # another one
                self.assertNotEqual(self.desk.hosted("demo"), self.hosted)
                self.desk.stop("demo")
                self.desk.ok("rm", "demo")
                self.assertIn(self.hosted, self.cloud.sandboxes)  # what is not on record is not touched
                self.desk.verify()

    def test_r505_a_creation_that_was_confirmed_is_removed_without_waiting(self):
        """There is nothing to come any more, and nothing is said of it."""
        self.begin()
        self.release()
        self.desk.ok("rm", "demo")
        self.assertNotIn(self.hosted, self.cloud.sandboxes)
        self.assertNotIn("reason", self.desk.last_move("demo"))
        self.assertEqual(self.looks_in_vain(), 0)


if __name__ == "__main__":
    driver.announce()
    main()
