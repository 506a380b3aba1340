"""R-505 on the level of commands: whatever one call of the service does wrong, the command says what is true.

One table: a command, the call that goes wrong, how, and what is to come of it. All rows have a service and a state
root of their own and run side by side, for most of their time is spent waiting. What holds after each of them, whatever
the row says, is in Case.check(): the disposition against what the service has really done, the commands agree with each
other, `next` leads on, at most one sandbox was made, nothing is left, no token anywhere.

AD_ROWS=WORDS runs those rows alone whose title contains all of them.
"""

import concurrent.futures
import contextlib
import dataclasses
import email.utils
import functools
import json
import os
import subprocess
import threading
import time
import traceback
import unittest

import harness
from cloud import FOREVER, CloudDesk, CloudTest
from harness import USER, Desk, envelope, wait_until

WORDS = os.environ.get("AD_ROWS", "").split()
SLACK_SECONDS = 5  # beyond a command's own limit, on a machine that has other things to do
MIB = 1 << 20
THREADS = 150
_working = threading.Semaphore(5)  # those that do not wait
ACTING = ("create", "fork", "resume", "stop", "delete", "run", "kill")


def in_seconds(seconds):
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


# How a call goes wrong. Once, and again with each repetition.
ONCE = {
    "429 seconds": lambda: {"status": 429, "retry_after": 1},
    "429 date": lambda: {"status": 429, "retry_after": in_seconds(2)},
    "500": lambda: {"status": 500},
    "501": lambda: {"status": 501},
    "502": lambda: {"status": 502},
    "502 done": lambda: {"status": 502, "effect": True},
    "503": lambda: {"status": 503},
    "reset before": lambda: {"reset": "before"},
    "reset after": lambda: {"reset": "after"},
    "closed": lambda: {"close": "after"},
    "cut": lambda: {"cut": 30},
    "torn": lambda: {"cut": 30, "cut_by": "end"},  # half a document, and nothing says so
    "html": lambda: {"type": "text/html"},
    "drip": lambda: {"bytes_per_second": 4000},
    "silent": lambda: {"stuck": "before"},
    "silent after": lambda: {"stuck": "after"},
    "late": lambda: {"delay_ms": 700},
}
ALWAYS = {
    "400": {"status": 400},
    "401": {"status": 401},
    "403": {"status": 403},
    "404": {"status": 404},
    "409": {"status": 409},
    "410": {"status": 410},
    "410 lost": {"status": 410, "code": "snapshot_not_found"},
    "429 for ever": {"status": 429},
    "429 long": {"status": 429, "retry_after": 3600},
    "429 far date": {"status": 429, "retry_after": in_seconds(3600)},
    "500 for ever": {"status": 500},
    "503 for ever": {"status": 503},
    "503 done for ever": {"status": 503, "effect": True},
    "reset for ever": {"reset": "before"},
    "reset after for ever": {"reset": "after"},
    "cut for ever": {"cut": 30},
    "torn for ever": {"cut": 30, "cut_by": "end"},
    "html for ever": {"type": "text/html"},
    "silent for ever": {"stuck": "before"},
    "silent in the body": {"stuck": "body", "cut": 30},
    "drip for ever": {"bytes_per_second": 20},
}


@dataclasses.dataclass(frozen=True)
class Command:
    argv: list
    seconds: float  # it has no longer
    before: tuple = ("running",)  # demo is so first; also: stopped, base (stopped), none
    settings: dict = dataclasses.field(default_factory=dict)  # of the service, from now on
    goal: str = "running"  # the state when all is well


COMMANDS = {
    "install": Command(["install", "vercel"], 2, ("fresh",), goal="ready"),
    "create": Command(["create", "demo", "--provider", "vercel", "--wait=90"], 90, ("none",)),
    "slow create": Command(["create", "demo", "--provider", "vercel", "--wait=90"], 90, ("none",), {"pending_ms": 700}),
    "clone": Command(["create", "demo", "--provider", "vercel", "--set", "from=base", "--wait=90"], 90, ("base",)),
    "status": Command(["status", "demo"], 2),
    "list": Command(["list"], 2),
    "start": Command(["start", "demo", "--wait=60"], 60, ("stopped",)),
    "slow start": Command(["start", "demo", "--wait=60"], 60, ("stopped",), {"pending_ms": 700}),
    "stop": Command(["stop", "demo", "--wait=60"], 60, goal="stopped"),
    "slow stop": Command(["stop", "demo", "--wait=60"], 60, ("running",), {"stopping_ms": 700}, goal="stopped"),
    "rm": Command(["rm", "demo"], 40, ("stopped",), goal="missing"),
    "exec": Command(["exec", "demo", "--timeout=12", "--", "exit", "7"], 14),
    "run": Command(["run", "demo", "--timeout=12", "--", "sh", "-c", "printf ran; exit 7"], 14),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    code: str = None  # None: it succeeds
    cause: str = None  # the code that the journal has: a wait for a work that fails has one code of its own
    delivery: str = None
    retry: str = None
    state: str = None  # once the service is well again; None: the command's goal
    shown: str = None  # the state in the reply of what succeeds; None: the same
    words: str = ""  # in the message


SUCCEEDS = Outcome()
NOTHING, DONE, UNKNOWN = ("not_delivered", "safe"), ("delivered_unverified", "safe"), ("unknown", "safe")
DONE_ONCE, UNKNOWN_ONCE = ("delivered_unverified", "unsafe"), ("unknown", "unsafe")


def fails(code, disposition, state=None, words=""):
    return Outcome(code, None, *disposition, state, words=words)


def work_fails(cause, disposition, state, words=""):
    """Of a command that waits for its work."""
    return Outcome("ACTION_FAILED", cause, *disposition, state, words=words)


@dataclasses.dataclass(frozen=True)
class Row:
    command: str
    op: str
    fault: str
    outcome: Outcome
    nth: int = 1  # call of that op
    settings: dict = dataclasses.field(default_factory=dict)  # of the service, besides the command's

    @property
    def title(self):
        settings = "".join(f", {name}={value}" for name, value in self.settings.items())
        return f"{self.command}: {self.op} {self.nth}: {self.fault}{settings}"

    def members(self):
        members = {"nth": self.nth}
        if self.fault in ONCE:
            return {**members, **ONCE[self.fault]()}
        return {**members, "times": None, **ALWAYS[self.fault]}

    @property
    def is_long(self):
        """Does it mostly wait? Then so many of them may be under way at once."""
        patient = ("for ever", "silent", "silent after", "silent in the body")
        return self.command not in ("install", "status", "list") and self.fault.endswith(patient)


class RowDesk(CloudDesk):
    """Leaves out what costs much for some hundred rows, and is looked at by other tests: command lines, the form of all
    events; and the provider is installed once for all."""

    def raw(self, *args, **options):
        reply = Desk.raw(self, *args, **options)
        self.seen += [reply.out, reply.err]
        return reply

    def events(self, name=None):
        reply = Desk.raw(self, "sandbox", "log", *([name] if name else []), "--limit", "1000")
        return json.loads(reply.out)["data"]["events"]

    def install(self):
        os.mkdir(self.root, 0o700)
        USER.own(self.root)
        subprocess.run(["cp", "-a", os.path.join(_installed().root, "providers"), self.root], check=True)


@functools.cache
def _installed():
    desk = CloudDesk("installed")
    CloudDesk.install(desk)
    desk.close()
    return desk


class Case:
    """One row: the command meets the fault, and then everything must be right."""

    def __init__(self, row):
        self.row, self.command = row, COMMANDS[row.command]
        self.source = None  # of a clone, its name on the service

    def run(self):
        with _working:
            self.desk = RowDesk("fault")
            self.cloud = self.desk.cloud
        try:
            with _working:
                self.prepare()
            fault = self.cloud.fault(self.row.op, **self.row.members())
            with contextlib.nullcontext() if self.row.is_long else _working:
                reply = self.strike()
            with _working:
                assert fault.hits, f"the fault was not met: {reply}"
                self.check_outcome(reply)
                self.check(reply)
        finally:
            self.desk.close()

    def prepare(self):
        desk = self.desk
        if "fresh" not in self.command.before:
            desk.install()
        if "base" in self.command.before:
            desk.create_stopped("base")
            self.source = desk.hosted("base")
        if {"running", "stopped"} & set(self.command.before):
            desk.create("demo")
        if "stopped" in self.command.before:
            desk.stop("demo")
        self.cloud.set(**self.command.settings, **self.row.settings)
        self.cloud.forget_requests()
        self.runs = self.cloud.count_runs()

    def strike(self):
        """The reply; with its envelope, if there is one, wherever it is."""
        begun = time.monotonic()
        reply = self.desk.raw("sandbox", *self.command.argv, timeout=self.command.seconds + 60)
        self.took = time.monotonic() - begun
        self.acted = {request.op for request in self.cloud.requests if request.op in ACTING and request.effect}
        for stream in (reply.out, reply.err):
            line = stream.rstrip(b"\n").split(b"\n")[-1]
            if line.startswith(b'{"version":') and b'"command"' in line:
                reply.json = envelope(line, reply)
                break
        return reply

    @property
    def is_attempt(self):
        return self.command.argv[0] in ("exec", "run")

    # What the row says.

    def check_outcome(self, reply):
        outcome = self.row.outcome
        assert self.took < self.command.seconds + SLACK_SECONDS, f"it took {self.took:.1f} s"
        if outcome.code is None:
            self.check_success(reply)
            return
        assert reply.json is not None and reply.code == outcome.code, reply
        assert reply.status == 1, reply
        told = reply.error["disposition"]
        assert (told["delivery"], told["retry"]) == (outcome.delivery, outcome.retry), reply
        assert outcome.words in reply.error["message"], reply
        if outcome.cause is not None:
            assert self.desk.last_end("demo")["code"] == outcome.cause, self.desk.last_end("demo")

    def check_success(self, reply):
        if self.is_attempt:
            assert (reply.status, reply.out) == (7, b"ran" if self.row.command == "run" else b""), reply
            return
        assert reply.status == 0 and reply.json is not None and reply.json["ok"], reply
        data = reply.data["sandboxes"][0] if self.row.command == "list" else reply.data
        assert data["state"] == (self.row.outcome.shown or self.row.outcome.state or self.command.goal), reply

    # What holds whatever the row says.

    def check(self, reply):
        self.check_disposition(reply)
        self.cloud.clear_faults()
        self.cloud.set(pending_ms=0, stopping_ms=0)
        wait_until(self.is_at_rest)
        state = self.look()
        assert state == (self.row.outcome.state or self.command.goal), (state, reply)
        self.check_one()
        if reply.json is not None and not reply.json["ok"]:
            self.repeat_what_is_safe(reply)
            self.follow(reply)
            state = self.look()
        self.clean_up(state)
        self.desk.check_secrets()
        if os.path.exists(self.desk.path("journal")):
            self.desk.verify()

    def is_at_rest(self):
        return all(one["session"]["status"] in ("running", "stopped") for one in self.cloud.sandboxes.values())

    def check_one(self):
        assert len(self.desk.ours() - {self.source}) <= 1, self.cloud.sandboxes.keys()

    def check_disposition(self, reply):
        """Against what the service has really done."""
        if reply.json is None or reply.json["ok"]:
            return
        told = reply.error["disposition"]
        ours = self.acted if self.is_attempt else self.acted - {"run", "kill"}  # a probe changes nothing
        assert told["delivery"] != NOTHING or not ours, f"{ours} have had their effect: {reply}"
        assert not (self.is_attempt and told["retry"] == "safe" and ours), f"it was run: {reply}"

    def look(self):
        """What status and list both say, and the service does not belie."""
        if self.row.command == "install":
            return next(one for one in self.desk.ok("install")["providers"] if one["provider"] == "vercel")["state"]
        reply = self.desk.sandbox("status", "demo")
        while reply.json["ok"] and reply.data["state"] == "working":  # a worker that has failed is about to end
            assert self.desk.processes(), reply
            time.sleep(0.02)
            reply = self.desk.sandbox("status", "demo")
        state = "missing" if reply.code == "SANDBOX_NOT_FOUND" else reply.data["state"]
        listed = {one["name"]: one["state"] for one in self.desk.ok("list")["sandboxes"]}
        assert listed.get("demo", "missing") == state, (listed, state)
        if state in ("running", "stopped"):
            there = self.cloud.sandboxes.get(self.desk.hosted("demo"))
            assert there is not None and there["session"]["status"] == state, (state, there)
        if state == "broken":
            data = reply.data
            assert data["next_argv"] == ["agent-desktop", "sandbox", "rm", "demo"], data
            assert len(data["message"]) > len("demo is broken."), data  # it says why
        return state

    def repeat_what_is_safe(self, reply):
        """The same command once more: it does no harm, and nothing is there or done twice."""
        if reply.error["disposition"]["retry"] != "safe":
            return
        again = self.desk.raw("sandbox", *self.command.argv)
        self.check_one()
        if self.is_attempt and self.look() == "running":
            assert again.status == 7, (reply, again)
            assert self.cloud.count_runs() == self.runs + 1, self.cloud.commands

    def follow(self, reply):
        """The command that the error names does something sensible."""
        argv = reply.error.get("recovery", {}).get("next_argv")
        if argv:
            self.desk.follow(argv)

    def clean_up(self, state):
        """With a stop and a removal of one's own nothing is left."""
        if state in ("running", "stopped", "broken"):
            if state == "running":
                self.desk.stop("demo")
            self.desk.ok("rm", "demo")
        if self.source and (reply := self.desk.sandbox("status", "base")).json["ok"]:
            if reply.data["state"] == "running":  # `next` may have led there
                self.desk.stop("base")
            self.desk.ok("rm", "base")
        assert not self.cloud.sandboxes, f"left on the service: {self.cloud.sandboxes.keys()}"
        if os.path.isdir(self.desk.path("sandboxes")):
            assert os.listdir(self.desk.path("sandboxes")) == []


# The rows.

def rows(command, op, *groups, nth=1, **settings):
    return [Row(command, op, fault, outcome, nth, settings)
            for outcome, faults in groups for fault in faults.split(" | ")]


BRIEFLY = "429 seconds | 500 | 503 | reset before | reset after | cut"  # it passes, and another attempt finds it well
PASSES = "500 | reset after | cut"
MORE_BRIEFLY = BRIEFLY + " | 501 | 502 | 502 done | closed | late | drip"
BROKEN_REPLY = "torn | html | torn for ever | html for ever"  # of a look that is not repeated
REFUSED = "409 | 500 for ever | reset for ever | cut for ever | " + BROKEN_REPLY
TOO_MANY = "429 long | 429 for ever"
SILENCE = "silent for ever | silent in the body | drip for ever"

LOOK = (  # the first one of each command, before anything else is done
    (fails("AUTH_FAILED", NOTHING), "401 | 403"),
    (fails("LIMIT_REACHED", NOTHING), TOO_MANY),
    (fails("ACTION_FAILED", NOTHING), REFUSED),
    (fails("TIMEOUT", NOTHING), SILENCE),
)
SAMPLE = ("403", "429 long", "500 for ever", "torn for ever", "silent for ever")  # status has them all


def first_look(state, some=None):
    """LOOK, or SOME of it, after which the sandbox is in STATE."""
    chosen = []
    for outcome, faults in LOOK:
        faults = [fault for fault in faults.split(" | ") if not some or fault in some]
        chosen.append((dataclasses.replace(outcome, state=state), " | ".join(faults)))
    return chosen


def spoilt_work(state, began, lost):
    """What a work that waits for its end comes to, when the call is refused, or when nothing is known of it."""
    return [
        (work_fails("AUTH_FAILED", began, state, "VERCEL_TOKEN"), "401 | 403"),
        (work_fails("LIMIT_REACHED", began, state), "429 long"),
        (work_fails("ACTION_FAILED", lost, state), "torn for ever | html for ever | reset for ever"),
        (work_fails("TIMEOUT", lost, state), "silent for ever"),
    ]


ROWS = [
    *rows("install", "list",
          (SUCCEEDS, BRIEFLY + " | 501 | 502"),
          (Outcome(state="missing", shown="unavailable"), "401 | 403 | 404"),  # no such project
          *first_look("missing")[1:],
          (fails("ACTION_FAILED", NOTHING, "missing"), "410")),
    *rows("status", "get",
          (SUCCEEDS, MORE_BRIEFLY),
          *first_look("running"),
          (fails("LIMIT_REACHED", NOTHING), "429 far date"),
          (Outcome(state="broken"), "404"),
          (Outcome(state="running", shown="stopped"), "410 | 410 lost")),
    *rows("list", "get",  # which shows what is recorded
          (SUCCEEDS, "500 | 503 for ever | 401 | 403 | 429 long | reset for ever | torn for ever | silent for ever"),
          (Outcome(state="broken"), "404"),
          (Outcome(state="running", shown="stopped"), "410")),

    *rows("create", "create",
          (SUCCEEDS, MORE_BRIEFLY + " | 429 date | torn | html"),
          (SUCCEEDS, "503 done for ever | reset after for ever | cut for ever | torn for ever | html for ever"),
          (SUCCEEDS, "silent | silent after"),
          (work_fails("AUTH_FAILED", NOTHING, "broken", "VERCEL_TOKEN"), "401 | 403"),
          (work_fails("INVALID_ARGS", NOTHING, "broken"), "400 | 404 | 409"),
          (work_fails("ACTION_FAILED", NOTHING, "broken"), "410"),
          (work_fails("LIMIT_REACHED", NOTHING, "broken"), TOO_MANY),
          (work_fails("ACTION_FAILED", UNKNOWN_ONCE, "broken", "which rm removes"),
           "500 for ever | 503 for ever | reset for ever")),
    *rows("create", "run",
          (SUCCEEDS, BRIEFLY + " | torn | html | 502 done | drip | silent | torn for ever"),
          (work_fails("AUTH_FAILED", DONE, "broken"), "401 | 403"),
          (work_fails("ACTION_FAILED", DONE, "broken"),
           "404 | 409 | 410 | 500 for ever | 503 done for ever | reset for ever | html for ever"),
          (work_fails("LIMIT_REACHED", DONE, "broken"), TOO_MANY)),
    *rows("slow create", "get",
          (SUCCEEDS, PASSES + " | drip | silent"),
          *spoilt_work("broken", DONE, DONE),
          (work_fails("ACTION_FAILED", DONE, "broken"), "409 | 500 for ever"),
          (work_fails("ACTION_FAILED", DONE_ONCE, "broken"), "404 | 410")),

    *rows("clone", "get",
          (SUCCEEDS, PASSES),
          *first_look("missing", SAMPLE),
          (fails("INVALID_STATE", NOTHING, "missing"), "404 | 410")),
    *rows("clone", "get", *spoilt_work("broken", NOTHING, NOTHING), nth=3),
    *rows("clone", "fork",
          (SUCCEEDS, MORE_BRIEFLY + " | torn | html | reset after for ever | html for ever"),
          (work_fails("AUTH_FAILED", NOTHING, "broken", "VERCEL_TOKEN"), "401 | 403"),
          (work_fails("INVALID_ARGS", NOTHING, "broken"), "400 | 409"),
          (work_fails("ACTION_FAILED", DONE_ONCE, "broken"), "404"),
          (work_fails("LIMIT_REACHED", NOTHING, "broken"), "429 long"),
          (work_fails("ACTION_FAILED", UNKNOWN_ONCE, "broken", "which rm removes"), "500 for ever | reset for ever")),
    *rows("clone", "run", (work_fails("AUTH_FAILED", DONE, "broken"), "401")),

    *rows("start", "get",
          (SUCCEEDS, PASSES),
          *first_look("stopped", SAMPLE),
          (fails("INVALID_STATE", NOTHING, "broken"), "404"),
          (SUCCEEDS, "410")),
    *rows("start", "get", *spoilt_work("stopped", NOTHING, NOTHING), nth=2),
    *rows("start", "resume",
          (SUCCEEDS, MORE_BRIEFLY + " | 429 date"),
          (work_fails("AUTH_FAILED", NOTHING, "stopped", "VERCEL_TOKEN"), "401 | 403"),
          (work_fails("ACTION_FAILED", NOTHING, "stopped"), "404 | 409 | 410"),
          (work_fails("ACTION_FAILED", DONE_ONCE, "broken"), "410 lost"),
          (work_fails("LIMIT_REACHED", NOTHING, "stopped"), TOO_MANY),
          (work_fails("ACTION_FAILED", UNKNOWN, "stopped"), "500 for ever | reset for ever"),
          (work_fails("ACTION_FAILED", UNKNOWN, "running"),
           "503 done for ever | reset after for ever | cut for ever | torn for ever | html for ever"),
          (work_fails("TIMEOUT", UNKNOWN, "stopped"), "silent for ever"),
          (work_fails("TIMEOUT", UNKNOWN, "running"), "silent in the body | drip for ever")),
    *rows("start", "run",
          (SUCCEEDS, BRIEFLY + " | silent after"),
          (work_fails("AUTH_FAILED", DONE, "running"), "401 | 403"),
          (work_fails("ACTION_FAILED", DONE, "running"), "404 | 409 | 410 | 500 for ever | reset after for ever"),
          (work_fails("LIMIT_REACHED", DONE, "running"), TOO_MANY)),
    *rows("slow start", "get", (SUCCEEDS, PASSES), *spoilt_work("running", DONE, DONE), nth=3),

    *rows("stop", "get",
          (SUCCEEDS, PASSES),
          *first_look("running", SAMPLE),
          (fails("INVALID_STATE", NOTHING, "broken"), "404"),
          (Outcome(state="running", shown="stopped"), "410")),
    *rows("stop", "get", *spoilt_work("running", NOTHING, NOTHING), nth=2),
    *rows("stop", "stop",
          (SUCCEEDS, MORE_BRIEFLY + " | 429 date"),
          (work_fails("AUTH_FAILED", NOTHING, "running", "VERCEL_TOKEN"), "401 | 403"),
          (work_fails("ACTION_FAILED", NOTHING, "running"), "409"),
          (work_fails("LIMIT_REACHED", NOTHING, "running"), TOO_MANY),
          (SUCCEEDS, "503 done for ever | reset after for ever | torn for ever | html for ever | silent in the body"),
          (work_fails("ACTION_FAILED", UNKNOWN, "running"), "500 for ever | reset for ever"),
          (work_fails("TIMEOUT", UNKNOWN, "running"), "silent for ever")),
    *rows("slow stop", "get", (SUCCEEDS, PASSES), *spoilt_work("stopped", DONE, DONE), nth=3),

    *rows("rm", "get",
          (SUCCEEDS, PASSES),
          *first_look("stopped", SAMPLE)),
    *rows("rm", "delete",
          (SUCCEEDS, MORE_BRIEFLY + " | 429 date | cut for ever"),
          (fails("AUTH_FAILED", NOTHING, "broken", "VERCEL_TOKEN"), "401 | 403"),
          (fails("ACTION_FAILED", NOTHING, "broken"), "409"),
          (fails("ACTION_FAILED", DONE_ONCE, "broken", "does not delete it"), "404 | 410 | 410 lost"),
          (fails("LIMIT_REACHED", NOTHING, "broken"), TOO_MANY),
          (fails("ACTION_FAILED", UNKNOWN, "broken"),
           "500 for ever | 503 done for ever | reset for ever | reset after for ever | torn for ever | html for ever"),
          (fails("TIMEOUT", UNKNOWN, "broken"), "silent for ever | silent in the body | drip for ever")),

    *rows("exec", "get",
          (SUCCEEDS, PASSES),
          *first_look("running", SAMPLE),
          (fails("INVALID_STATE", NOTHING, "broken"), "404"),
          (fails("INVALID_STATE", NOTHING, "running"), "410")),
    *rows("exec", "run",
          (SUCCEEDS, "429 seconds | 429 date | drip | late"),
          (fails("AUTH_FAILED", NOTHING, words="VERCEL_TOKEN"), "401 | 403"),
          (fails("INVALID_STATE", NOTHING), "404 | 410"),
          (fails("ACTION_FAILED", NOTHING), "409"),
          (fails("LIMIT_REACHED", NOTHING), "429 long"),
          (fails("ACTION_FAILED", UNKNOWN_ONCE),
           "500 | 502 done | 503 | reset before | reset after | cut | torn | html | 503 for ever"),
          (fails("TIMEOUT", UNKNOWN_ONCE), "silent for ever | silent after | drip for ever")),
    *rows("run", "get", (SUCCEEDS, "500"), (fails("AUTH_FAILED", NOTHING), "401")),
    *rows("run", "run",
          (SUCCEEDS, "429 seconds | drip"),
          (fails("AUTH_FAILED", NOTHING), "401 | 403"),
          (fails("ACTION_FAILED", UNKNOWN_ONCE), "502 done | reset before | reset after | closed")),

    # Where nobody is certain of the service, with what it may do as well.
    *rows("stop", "stop", (SUCCEEDS, "502 done | reset after"), stop_again=410),
    *rows("slow stop", "stop", (SUCCEEDS, "502 done | reset after"), stop_while_stopping=422),
    *rows("slow stop", "stop", (SUCCEEDS, "502 done | reset after"), stop_while_stopping=422, stop_blocks=True),
    *rows("slow stop", "get", (SUCCEEDS, "503"), nth=3, sandbox_status="coarse"),
    *rows("slow start", "resume", (SUCCEEDS, "502 done | reset after"), sandbox_status="coarse"),
    *rows("slow create", "create", (SUCCEEDS, "502 done | reset before | reset after"), name_taken_status=409),
    *rows("run", "run", (fails("ACTION_FAILED", UNKNOWN_ONCE), "reset after | torn"), leaving_kills=True),
    *rows("run", "run", (fails("ACTION_FAILED", UNKNOWN_ONCE), "reset after | torn"), command_ends_with="process"),
]


class Rows:
    """All rows at once; what waits longest begins first."""

    def __init__(self):
        chosen = [row for row in ROWS if all(word in row.title for word in WORDS)]
        self.pool = concurrent.futures.ThreadPoolExecutor(THREADS)
        chosen.sort(key=lambda row: not row.is_long)
        self.futures = [(row, self.pool.submit(self.run, row)) for row in chosen]

    @staticmethod
    def run(row):
        try:
            Case(row).run()
        except Exception as problem:
            where = traceback.extract_tb(problem.__traceback__)[-1]
            return f"{row.title}: {problem!r} (line {where.lineno}: {where.line})"
        return None


class RowsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        _installed()
        cls.rows = Rows()


def add_tests():
    """One for each command and call."""
    for command, op in dict.fromkeys((row.command, row.op) for row in ROWS):

        def test(self, command=command, op=op):
            mine = [future for row, future in self.rows.futures if (row.command, row.op) == (command, op)]
            failures = [problem for problem in (future.result() for future in mine) if problem]
            if failures:
                self.fail(f"{len(failures)} of {len(mine)}:\n" + "\n".join(failures))

        setattr(RowsTest, "test_r505_" + f"{command} when {op} goes wrong".replace(" ", "_"), test)


add_tests()


class MidworkTest(unittest.TestCase):
    """A token that is worth nothing any more when the work has begun: R-501, R-505, bug case 16."""

    def begin(self, status):
        self.desk = CloudDesk("midwork", bad_token_status=status)
        self.addCleanup(self.desk.close)
        self.cloud = self.desk.cloud
        self.desk.install()
        self.desk.create_stopped("base")
        self.change_token()

    def change_token(self):
        self.token = self.cloud.make_oidc_token()
        self.desk.secrets.append(self.token)
        self.desk.env["VERCEL_OIDC_TOKEN"] = self.token
        self.desk.env.pop("VERCEL_TOKEN", None)

    def expire_at(self, op, *command, when="after", **settings):
        """The error of the command, in whose call OP the token expires."""
        self.cloud.set(**settings)
        fault = self.cloud.fault(op, hold=when)
        process = self.desk.popen("sandbox", *command)
        fault.wait()
        self.cloud.revoke(self.token)
        fault.release()
        out, err = process.communicate(timeout=60)
        self.desk.seen += [out, err]
        error = envelope(out.rstrip(b"\n"), err)["error"]
        self.assertIn("VERCEL_OIDC_TOKEN", error["message"])
        return error

    def check_unseen(self, state):
        """What cannot be asked for is no state; and the new token finds it as it is."""
        error = self.desk.fails("AUTH_FAILED", "status", "demo")
        self.assertTrue(error["recovery"]["needs_person"], error)
        self.change_token()
        self.assertEqual(self.desk.state("demo"), state)

    def test_case_16_create_and_clone(self):
        for status in (401, 403):
            self.begin(status)
            for op, options in (("create", ()), ("fork", ("--set", "from=base"))):
                with self.subTest(op=op, status=status):
                    command = ["create", "demo", "--provider", "vercel", "--wait=60", *options]
                    error = self.expire_at(op, *command, pending_ms=200)
                    self.assertEqual((error["code"], error["disposition"]["delivery"]), ("ACTION_FAILED", DONE[0]))
                    self.assertEqual(self.desk.last_end("demo")["code"], "AUTH_FAILED")
                    self.assertEqual(self.desk.state("demo"), "broken")  # which is so whoever asks
                    self.desk.fails("AUTH_FAILED", "rm", "demo")
                    self.assertEqual(len(self.desk.ours()), 2)
                    self.change_token()
                    self.desk.ok("rm", "demo")
                    self.assertEqual(self.desk.ours(), {self.desk.hosted("base")})
            self.desk.check()

    def test_case_16_start_stop_and_rm(self):
        for status in (401, 403):
            with self.subTest(status=status):
                self.begin(status)
                self.desk.create_stopped("demo")
                error = self.expire_at("resume", "start", "demo", "--wait=60")
                self.assertEqual((error["code"], error["disposition"]["delivery"]), ("ACTION_FAILED", DONE[0]))
                self.check_unseen("running")
                error = self.expire_at("stop", "stop", "demo", "--wait=60", stopping_ms=200)
                self.assertEqual((error["code"], error["disposition"]["delivery"]), ("ACTION_FAILED", DONE[0]))
                wait_until(lambda: self.cloud.sandboxes[self.desk.hosted("demo")]["session"]["status"] == "stopped")
                self.check_unseen("stopped")
                error = self.expire_at("delete", "rm", "demo", when="before")
                self.assertEqual((error["code"], error["disposition"]["delivery"]), ("AUTH_FAILED", NOTHING[0]))
                self.assertEqual(self.desk.state("demo"), "broken")
                self.change_token()
                self.desk.ok("rm", "demo")
                self.assertEqual(self.desk.ours(), {self.desk.hosted("base")})
                self.desk.check()


class StuckTest(CloudTest):
    """A session that does not come to run."""

    settings = {"pending_ms": FOREVER}

    def test_r211_a_create_that_stays_pending_is_waited_for_no_longer_than_told(self):
        begun = time.monotonic()
        error = self.desk.fails("TIMEOUT", "create", "demo", "--provider", "vercel", "--wait=1.5")
        self.assertLess(time.monotonic() - begun, 1.5 + SLACK_SECONDS)
        self.assertEqual(error["disposition"]["retry"], "safe")
        self.assertEqual(self.desk.state("demo"), "working")
        self.assertEqual(self.cloud.requests_of("resume", "run"), [])
        self.assertEqual(self.desk.ok("stop", "demo")["state"], "broken")
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r211_a_start_that_stays_pending_can_be_stopped(self):
        self.cloud.set(pending_ms=0)
        self.desk.create_stopped("demo")
        self.cloud.set(pending_ms=FOREVER)
        error = self.desk.fails("TIMEOUT", "start", "demo", "--wait=1.5")
        self.assertEqual(error["disposition"]["retry"], "safe")
        self.assertEqual(self.desk.state("demo"), "working")
        self.assertEqual(self.desk.ok("stop", "demo", "--wait=20")["state"], "stopped")
        self.assertEqual(self.cloud.sandboxes[self.desk.hosted("demo")]["session"]["status"], "stopped")
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})


class SizeTest(CloudTest):
    def test_case_9_a_line_of_megabytes_where_nobody_wants_it(self):
        """The probe's output; and a whole reply, which is bounded."""
        self.cloud.fault("run", big_line=24 * MIB)
        self.desk.create("demo")
        self.cloud.fault("get", body=b'{"sandbox":{"name":"' + b"x" * (9 * MIB) + b'"}}')
        error = self.desk.fails("ACTION_FAILED", "status", "demo")
        self.assertLess(len(error["message"]), 500)
        self.assertEqual(self.desk.state("demo"), "running")

    def test_r503_a_crowd_is_listed_as_recorded_when_the_service_does_not_answer(self):
        options = ["--provider", "vercel", "--set", "runtime=node24", "--wait=60"]
        processes = [self.desk.popen("sandbox", "create", f"demo-{i}", *options) for i in range(34)]
        for process in processes:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, (out, err))
        for name in ("500 for ever", "401", "429 long", "reset for ever", "torn for ever", "silent for ever"):
            with self.subTest(name):
                fault = self.cloud.fault("list", always=True, **ALWAYS[name])
                beside = self.cloud.fault("get", always=True, **ALWAYS[name])
                begun = time.monotonic()
                listed = self.desk.ok("list")["sandboxes"]
                self.assertLess(time.monotonic() - begun, 2 + SLACK_SECONDS)
                self.assertEqual({one["state"] for one in listed}, {"running"})
                self.assertEqual(len(listed), 34)
                self.assertTrue(fault.hits)
                self.assertLessEqual(beside.hits, 34 * 4)
                self.cloud.clear_faults()
        for members in ({"empty_page": True}, {"same_cursor": True}):
            self.cloud.fault("list", always=True, **members)
            self.assertEqual({one["state"] for one in self.desk.ok("list")["sandboxes"]}, {"running"})
            self.cloud.clear_faults()


if __name__ == "__main__":
    harness.main()
