"""What the end-to-end tests share: a state root of one's own, commands run in it, and their replies.

Every reply that any test sees goes through Desk.ad(), which checks what R-101 and R-102 promise of all of them: one
line, one JSON envelope, valid by specs/envelope.schema.json, exit status as the envelope says.

Environment (set by CTest): AD_BINARY, AD_SOURCE; optionally AD_TEST_USER, the name of an ordinary user to run as when
the tests themselves run as root.
"""

import atexit
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import jsonschema

SOURCE = os.environ.get("AD_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BINARY = os.environ.get("AD_BINARY", os.path.join(SOURCE, "build", "dev", "agent-desktop"))

with open(os.path.join(SOURCE, "specs", "envelope.schema.json"), encoding="utf-8") as schema_file:
    SCHEMA = json.load(schema_file)
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)


class User:
    """Who the commands run as: the caller, or an ordinary user when root asks for one."""

    def __init__(self, name=None):
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
        self.name, self.uid, self.gid, self.home = entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir
        self.switch = {} if self.uid == os.getuid() else {"user": self.uid, "group": self.gid, "extra_groups": []}
        self.is_root = self.uid == 0

    def own(self, path):
        os.chown(path, self.uid, self.gid)
        return path


USER = User(os.environ.get("AD_TEST_USER") or None)


def _base_directory():
    """Where the state roots lie: not below /tmp, which a sandbox replaces, but on a disk that carries overlays."""
    base = tempfile.mkdtemp(prefix="ad-e2e-", dir=os.environ.get("AD_TEST_BASE", "/var/tmp"))
    os.chmod(base, 0o755)
    USER.own(base)
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    return base


BASE = _base_directory()


def _reachable_binary():
    """The binary, copied to where an ordinary user can run it when its own folder is closed to that user."""
    if not USER.switch:
        return BINARY
    copy = os.path.join(BASE, "agent-desktop")
    shutil.copy(BINARY, copy)
    os.chmod(copy, 0o755)
    return copy


AD = _reachable_binary()


class Reply:
    def __init__(self, argv, done):
        self.argv, self.status, self.out, self.err = argv, done.returncode, done.stdout, done.stderr
        self.json = None

    @property
    def data(self):
        return self.json["data"]

    @property
    def error(self):
        return self.json["error"]

    @property
    def code(self):
        return self.json.get("error", {}).get("code")

    def __repr__(self):
        return f"{self.argv!r} -> {self.status}\nstdout: {self.out[-2000:]!r}\nstderr: {self.err[-2000:]!r}"


def envelope(line, where):
    """Parses and checks one envelope; WHERE is for the message."""

    def refuse_twice(pairs):
        keys = [key for key, _ in pairs]
        if len(keys) != len(set(keys)):
            raise AssertionError(f"a member twice in {where}")
        return dict(pairs)

    value = json.loads(line.decode("utf-8"), object_pairs_hook=refuse_twice)
    errors = sorted(VALIDATOR.iter_errors(value), key=str)
    if errors:
        raise AssertionError(f"not valid by the schema: {errors[0].message} at {list(errors[0].absolute_path)}\n{where}")
    return value


class Desk:
    """One state root; ends what it started."""

    def __init__(self, name="root", home=None):
        self.base = USER.own(tempfile.mkdtemp(prefix=name + "-", dir=BASE))
        self.root = home or os.path.join(self.base, "state")
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": USER.home,
            "AGENT_DESKTOP_HOME": self.root,
            "LANG": "C.UTF-8",
        }
        for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if key in os.environ:
                self.env[key] = os.environ[key]

    def popen(self, *args, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("cwd", self.base)
        merged = {k: v for k, v in {**self.env, **(env or {})}.items() if v is not None}
        pipes = {name: self.own_pipe(options, name) for name in ("stdout", "stderr") if USER.switch}
        process = subprocess.Popen([AD, *args], env=merged, **USER.switch, **options)
        for name, reader in pipes.items():
            if reader is not None:
                os.close(options[name])
                setattr(process, name, reader)
        return process

    @staticmethod
    def own_pipe(options, name):
        """A pipe that belongs to the user the command runs as, as it would when that user had made it."""
        if options.get(name) != subprocess.PIPE:
            return None
        reader, options[name] = os.pipe()
        os.fchown(reader, USER.uid, USER.gid)
        return os.fdopen(reader, "rb")

    def raw(self, *args, input=b"", timeout=60, env=None, **options):
        """Runs to the end; for exec and run, whose stdout is the guest's."""
        process = self.popen(*args, env=env, stdin=subprocess.PIPE, **options)
        try:
            out, err = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{args!r} did not end within {timeout} s; stdout {out[-500:]!r} stderr {err[-500:]!r}")
        return Reply(args, subprocess.CompletedProcess(args, process.returncode, out, err))

    def ad(self, *args, **options):
        """Runs a command that answers with an envelope, and checks that it is one."""
        reply = self.raw(*args, **options)
        lines = reply.out.split(b"\n")
        assert len(lines) == 2 and lines[1] == b"", f"not exactly one line on stdout: {reply}"
        reply.json = envelope(lines[0], reply)
        wanted = 0 if reply.json["ok"] else 2 if reply.code == "INVALID_ARGS" else 1
        assert reply.status == wanted, f"exit status {reply.status}, expected {wanted}: {reply}"
        return reply

    def sandbox(self, *args, **options):
        return self.ad("sandbox", *args, **options)

    def ok(self, *args, **options):
        """A sandbox command that must succeed; its data."""
        reply = self.sandbox(*args, **options)
        assert reply.json["ok"], repr(reply)
        return reply.data

    def fails(self, code, *args, **options):
        """A sandbox command that must fail with CODE; its error."""
        reply = self.sandbox(*args, **options)
        assert reply.code == code, f"expected {code}: {reply}"
        return reply.error

    def state(self, name):
        return self.ok("status", name)["state"]

    def follow(self, next_argv, **options):
        """Runs what `next_argv` names, as a script would."""
        assert next_argv[0] == "agent-desktop", next_argv
        return self.ad(*next_argv[1:], **options)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def events(self, name=None):
        return self.ok("log", *([name] if name else []), "--limit", "100000")["events"]

    def verify(self):
        data = self.ok("log", "--verify", "--limit", "1")
        assert data["verified"], data

    def close(self):
        """Ends every sandbox; the root itself goes with the base directory."""
        if not os.path.isdir(self.root):
            return
        for entry in self.sandbox("list").json.get("data", {}).get("sandboxes", []):
            if entry["state"] in ("running", "working", "needs_setup"):
                self.sandbox("stop", entry["name"])
            self.sandbox("rm", entry["name"])


class DeskTest(unittest.TestCase):
    """Each test has a state root of its own."""

    def setUp(self):
        self.desk = Desk(self.id().split(".")[-1][:40])
        self.addCleanup(self.desk.close)


class RunningTest(unittest.TestCase):
    """The tests of a class share one running sandbox, `demo`."""

    @classmethod
    def setUpClass(cls):
        cls.desk = Desk(cls.__name__)
        cls.desk.ok("create", "demo")
        data = cls.desk.ok("start", "demo", "--wait=60")
        assert data["state"] == "running", data

    @classmethod
    def tearDownClass(cls):
        cls.desk.close()

    def run_inside(self, *argv, options=(), **more):
        return self.desk.raw("sandbox", "run", *options, "demo", "--", *argv, **more)


def wait_until(condition, seconds=10, what="the condition"):
    """Waits for an event; the bound only ends a test that has failed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true within {seconds} s")


def peak_kib(process):
    """Peak memory of a process; 0 when it has just ended, and has none any more."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("VmHWM:")), 0)


def alive(pid):
    """Is there such a process, and is it not a zombie?"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
