"""What the end-to-end tests of the vercel provider share: a state root beside a simulated service of its own.

    class MyTest(CloudTest):
        settings = {"pending_ms": 300}        # of the service (tests/doubles/cloud/README.md); self.cloud.set() changes them

        def test_something(self):
            self.desk.create("demo")
            self.cloud.stop_session(self.desk.hosted("demo"))

CloudTest.tearDown() asks of each test what must hold after all of them: CloudDesk.check().
Environment: as harness.py.
"""

import os
import signal
import stat
import sys
import unittest

import harness
from harness import AD, Desk, wait_until

sys.path.append(os.path.join(harness.SOURCE, "tests"))

from doubles.cloud import FOREVER, Cloud  # noqa: E402, F401  (FOREVER is for the tests)

OURS = ("made-by", "agent-desktop")  # the tag by which sandboxes of this program are listed

# Stands for the image's wrapper: tells what it was given, and does as the first word says.
WRAPPER = """#!/bin/sh
case "$1" in
version) echo '{"version":"2.5"}' ;;
exit) exit "$2" ;;
*) printf '%s\\n' "$@" ;;
esac
"""


class CloudDesk(Desk):
    """A state root, and a service that it may use. SETTINGS: the service's."""

    def __init__(self, name="cloud", **settings):
        super().__init__(name)
        self.programs = self.make_programs("image", **{"agent-desktop-run": WRAPPER})
        settings.setdefault("images", {"ad-desktop": self.programs, "bare": None})
        self.cloud = Cloud(**settings)
        self.secrets = [self.cloud.token]  # must be nowhere; a test adds its own
        self.seen = []  # what commands have printed, and the command lines that they had
        self.env.update(VERCEL_API_URL=self.cloud.url, VERCEL_TOKEN=self.cloud.token, VERCEL_TEAM_ID=self.cloud.team,
                        VERCEL_PROJECT_ID=self.cloud.project)

    def make_programs(self, folder, **programs):
        """A directory of programs, for an image: name to content."""
        path = os.path.join(self.base, folder)
        os.makedirs(path, exist_ok=True)
        for name, content in programs.items():
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(file.name, 0o755)
        return path

    def raw(self, *args, **options):
        reply = super().raw(*args, **options)
        self.seen += [reply.out, reply.err, *(argv for _, argv in self.processes())]
        return reply

    def close(self):
        """Ends what still works, and the service with all that is on it."""
        for pid, _ in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.cloud.close()

    # Sandboxes.

    def install(self):
        data = self.ok("install", "vercel")
        assert data["state"] == "ready", data
        return data

    def create(self, name, *options, state="running", **more):
        """Created and, unless told otherwise, running."""
        data = self.ok("create", name, "--provider", "vercel", "--wait=60", *options, **more)
        assert data["state"] == state, data
        return data

    def begin(self, name, *options, **more):
        """A create that goes on by itself."""
        data = self.ok("create", name, "--provider", "vercel", *options, **more)
        assert data["state"] == "working", data
        return data

    def create_stopped(self, name, *options):
        self.create(name, *options)
        self.stop(name)

    def start(self, name, *options):
        data = self.ok("start", name, "--wait=60", *options)
        assert data["state"] == "running", data
        return data

    def stop(self, name):
        data = self.ok("stop", name, "--wait=60")
        assert data["state"] == "stopped", data
        return data

    def await_state(self, name, state, seconds=20):
        """What `status` says once it is STATE; until then it is at work."""
        def reached():
            data = self.ok("status", name)
            assert data["state"] in (state, "working"), data
            return data if data["state"] == state else None

        return wait_until(reached, seconds, f"the state '{state}' of {name}")

    def wait_for_request(self, op, seconds=10):
        return wait_until(lambda: self.cloud.requests_of(op), seconds, f"a request: {op}")

    # What is recorded.

    def facts(self, name):
        """What the journal says is recorded of NAME now, removed or not."""
        facts = {}
        for event in self.events(name):
            if event["kind"] == "move" and event["event"] in ("create", "clone"):  # not one that was refused
                facts = {}
            facts.update(event.get("facts", {}))
        return {key: value for key, value in facts.items() if value}

    def hosted(self, name):
        return self.facts(name)["hosted"]

    def last_move(self, name):
        return [event for event in self.events(name) if event["kind"] == "move"][-1]

    def last_end(self, name):
        return [event for event in self.events(name) if event["kind"] == "end"][-1]

    # Processes.

    def processes(self):
        """(pid, command line) of this root's commands and workers that live."""
        found = []
        wanted = f"AGENT_DESKTOP_HOME={self.root}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    argv = file.read()
                if not argv.startswith(AD.encode() + b"\0"):
                    continue
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append((int(pid), argv))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def kill_worker(self):
        """As a crash would: the one process that works for this root is gone at once."""
        (pid, _), = wait_until(self.processes, what="a worker")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="the end of the worker")

    def kill_all(self):
        """The worker, and who waits for it."""
        for pid, _ in self.processes():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="the end of all")

    # Afterwards.

    def ours(self):
        """Names of the sandboxes on the service that this program has made."""
        return {name for name, one in self.cloud.sandboxes.items()
                if one.get("tags", {}).get(OURS[0]) == OURS[1]}

    def check(self):
        """What must hold after every test."""
        self.check_secrets()
        if os.path.exists(self.path("journal")):
            self.verify()
            self.check_service()

    def check_service(self):
        """R-505: what is on the service is what the journal knows."""
        listed = {one["name"]: one["state"] for one in self.ok("list")["sandboxes"]}
        known = {self.facts(name).get("hosted"): state for name, state in listed.items()}
        lost = self.ours() - set(known)
        assert not lost, f"on the service, but in no record: {lost}"
        whole = {hosted for hosted, state in known.items() if state in ("running", "stopped", "needs_setup")}
        assert whole <= self.ours(), f"on record, but not on the service: {whole - self.ours()}"

    def check_secrets(self):
        """R-501: the token is in no file, no output and no command line."""
        secrets = [secret.encode() for secret in self.secrets]
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                    assert not any(secret in content for secret in secrets), f"a secret stands in {path}"
        for text in self.seen:
            assert not any(secret in text for secret in secrets), f"a secret was shown: {text!r}"


class CloudTest(unittest.TestCase):
    """Each test has a service and a state root of its own, with the provider installed unless told otherwise."""

    settings = {}
    installed = True

    def setUp(self):
        self.desk = CloudDesk(self.id().split(".")[-1][:40], **self.settings)
        self.addCleanup(self.desk.close)
        self.cloud = self.desk.cloud
        if self.installed:
            self.desk.install()
            self.cloud.forget_requests()

    def tearDown(self):
        self.desk.check()
