"""What the end-to-end tests of the macos provider share: a state root inside a simulated Mac of its own.

    class MyTest(MacTest):
        stage = "set up"                      # `base` is installed, set up and stopped
        settings = {"attach_busy": 2}         # of the Mac (tests/doubles/mac/README.md); self.mac.set() changes them

        def test_something(self):
            self.desk.ok("start", "base")
            self.desk.guest("base").run("sw_vers")

Everything runs inside the Mac: its tools are on PATH, its lease file and its catalog are the ones that are asked.
MacTest.tearDown() asks of each test what must hold after all of them: MacDesk.check().

Environment: as harness.py; and for Swift, that of tools/swift-toolchain.
"""

import functools
import os
import shutil
import subprocess
import sys
import unittest

import harness
from harness import AD, BASE, USER, Desk, wait_until

sys.path.append(os.path.join(harness.SOURCE, "tests"))

from doubles import mac as double  # noqa: E402  (this module has the same name)
from doubles.mac import Mac, image, make_ipsw  # noqa: E402

VERSION, BUILD = "15.6.1", "24G90"  # of the simulated host, and of what Apple publishes for it
ACCOUNT = "alice"  # of guests; tests that run as root cannot have the default
SETUP = 'sh "/Volumes/My Shared Files/guest-setup.sh"'
DESKTOP_FILE = "Users/Shared/desktop.json"
AXSIM = {"APPS": "/" + DESKTOP_FILE}
HOST_KEY = "private/etc/ssh/ssh_host_ed25519_key"
SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt

# Finder, which opens a window when it is activated, as it does on a Mac.
DESKTOP = """{"apps": [{"name": "Finder", "bundle": "com.apple.finder", "active": true, "window_ms": 20,
  "window_needs_activation": true, "children": [
    {"role": "AXMenuBar"},
    {"role": "AXWindow", "title": "Recents", "frame": [100, 100, 800, 500], "children": [
      {"role": "AXButton", "title": "New Folder", "frame": [120, 120, 80, 20]}]}]}]}"""


@functools.cache
def why_not():
    """Why no guest can be simulated here, as a reason to skip; None when one can."""
    return double.missing() or double.swift_missing(USER.name if USER.switch else None)


class MacDesk(Desk):
    """A state root inside a Mac. STAGE: what is there already, see STAGES. SETTINGS: the Mac's."""

    def __init__(self, name="mac", stage=None, **settings):
        super().__init__(name)
        if stage:
            _copy(_stage(stage), self.root)
        if stage in ("fresh", "set up"):
            settings.setdefault("axsim", AXSIM)
        self.mac = Mac(user=USER.name if USER.switch else None, **settings).start()
        self.cdn = self.mac.cdn()
        self.dialogs = 0  # how many a test has opened on the Mac's screen, where nobody may be
        del self.env["PATH"]
        self.env.update(AGENT_DESKTOP_DHCPD_LEASES=self.mac.lease_file, AGENT_DESKTOP_IPSW_CATALOG=self.cdn.catalog_url)

    def popen(self, *args, env=None, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("cwd", self.base)
        return self.mac.popen([AD, *args], env=self.mac.env(**{**self.env, **(env or {})}), **options)

    def close(self):
        """Ends the Mac and all in it, and removes what the disks take."""
        self.mac.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # Files.

    def file(self, name, content=b"", mode=0o644):
        """A file of the user's, in the directory where commands run."""
        path = os.path.join(self.base, name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return USER.own(path)

    def image(self, name="UniversalMac.ipsw", version=VERSION, build=BUILD, size=1 << 20, **facts):
        """A restore image in the directory where commands run, in the place of one of that name; its path."""
        if os.path.exists(os.path.join(self.base, name)):
            os.unlink(os.path.join(self.base, name))
        return USER.own(make_ipsw(os.path.join(self.base, name), version, build, size, **facts))

    def publish(self, version=VERSION, build=BUILD, size=1 << 20, sha1=None, **faults):
        """An image in Apple's catalog; what mac.cdn().publish() gives, whose faults may be changed at any time."""
        path = self.image(f"UniversalMac_{version}_{build}_Restore.ipsw", version, build, size)
        return self.cdn.publish(path, version, build, sha1=sha1, **faults)

    def sandbox_path(self, name, *parts):
        return self.path("sandboxes", name, *parts)

    def disk(self, name):
        return self.sandbox_path(name, "vm", "disk.img")

    def text(self, *parts):
        """A file below the root, as text; "" when it is not there."""
        try:
            with open(self.path(*parts), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def install_log(self, name):
        return self.text("sandboxes", name, "vm", "install.log")

    def vmhost_log(self, name):
        return self.text("sandboxes", name, "vm", "vmhost.log")

    def built(self, what="vmhost"):
        """The directory of what `install` has built: vmhost, or helper."""
        home = self.path("providers", "macos")
        found = [name for name in os.listdir(home) if name.startswith(what + "-")]
        assert len(found) == 1, found
        return os.path.join(home, found[0])

    def stopped_tree(self, name):
        """The files of a stopped guest: path → entry (doubles/mac/image.py)."""
        return image.look(self.disk(name))

    # Sandboxes.

    def install(self):
        data = self.ok("install", "macos")
        assert data["state"] == "ready", data
        return data

    def look_at_provider(self):
        return next(one for one in self.ok("install")["providers"] if one["provider"] == "macos")

    def create(self, name, *options, **more):
        return self.ok("create", name, "--provider", "macos", *options, **more)

    def create_fresh(self, name="base"):
        """Installed and stopped; nobody has set it up."""
        self.publish()
        self.create(name, "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        self.await_state(name, "stopped")

    def clone(self, name, source="base"):
        data = self.create(name, "--set", "from=" + source, "--wait=60")
        assert data["state"] == "stopped", data
        return data

    def await_state(self, name, state, seconds=30):
        """What `status` says once it is STATE; until then it is at work."""
        def reached():
            data = self.ok("status", name)
            assert data["state"] in (state, "working"), (data, self.why(name))
            return data if data["state"] == state else None

        return wait_until(reached, seconds, f"the state '{state}' of {name}")

    def until(self, name, state, seconds=20):
        """What `status` says once it is STATE, whatever it says before: a look without an answer proves nothing."""
        def reached():
            data = self.ok("status", name)
            return data if data["state"] == state else None

        return wait_until(reached, seconds, f"the state '{state}' of {name}")

    def start(self, name, *options):
        """Started and running; its guest."""
        data = self.ok("start", name, "--wait=60", *options)
        assert data["state"] == "running", (data, self.why(name))
        return self.guest(name)

    def open_window(self, name="base"):
        """Started in a window for a person, who has something to do; its guest."""
        data = self.ok("start", name, "--wait=60")
        assert data["state"] == "needs_setup", (data, self.why(name))
        return self.guest(name)

    def guest(self, name):
        """The guest that runs, as soon as it is up."""
        guest = self.mac.guest(self.disk(name))
        guest.wait("up")
        return guest

    @staticmethod
    def run_setup(guest):
        """The person runs guest-setup.sh; what it prints."""
        done = guest.person.type_in_terminal(SETUP)
        assert done.returncode == 0 and done.stderr == b"", done
        return done.stdout.decode()

    def set_up(self, name="base", account=ACCOUNT):
        """A person does all of it in the window. The sandbox runs afterwards, and that is on record."""
        guest = self.open_window(name)
        guest.person.create_account(account)
        self.run_setup(guest)
        guest.person.remote_login()
        guest.person.allow()
        self.until(name, "running")
        return guest

    @staticmethod
    def envelope(reply):
        """What a command that ran inside has answered: one envelope on stdout."""
        assert reply.out.endswith(b"\n"), reply
        return harness.envelope(reply.out[:-1], reply)

    def facts(self, name):
        """What the journal says is recorded of NAME now."""
        facts = {}
        for event in self.events(name):
            if event.get("event") in ("create", "clone"):
                facts = {}
            facts.update(event.get("facts", {}))
        return {key: value for key, value in facts.items() if value}

    def moves(self, name):
        """The states that NAME went through: "working starting", "running" …"""
        return [" ".join(filter(None, (event["to"], event.get("activity"))))
                for event in self.events(name) if event["kind"] == "move"]

    def last_reason(self, name, state):
        """Why NAME got into STATE the last time; "" when that needed none."""
        return [event.get("reason", "") for event in self.events(name) if event.get("to") == state][-1]

    # Processes inside.

    def processes(self, *words):
        """The numbers, inside, of living processes whose command line has all WORDS."""
        return [one["pid"] for one in self.mac.processes()
                if one["state"] not in "ZX" and all(any(word in arg for arg in one["argv"]) for word in words)]

    def tools(self, name):
        """The numbers, inside, of the calls of an Apple tool that have not ended."""
        return [one["pid"] for one in self.mac.processes()
                if one["state"] not in "ZX" and one["argv"] and os.path.basename(one["argv"][0]) == name]

    def vmhosts(self, name):
        """Those that run NAME's guest, or install it."""
        return self.processes("vmhost", "--vm", self.sandbox_path(name, "vm"))

    # Afterwards.

    def why(self, name):
        """For a message: what the logs have to say."""
        return "\n".join([self.install_log(name)[-1000:], self.vmhost_log(name)[-2000:],
                          self.text("logs", name + ".log"), self.mac.why_not()[-2000:]])

    def check(self):
        """What must hold after every test."""
        assert self.mac.warnings() == [], self.mac.warnings()
        assert len(self.mac.dialogs()) == self.dialogs, self.mac.dialogs()
        if os.path.exists(self.path("journal")):
            self.verify()
        self.check_secrets()

    def check_secrets(self):
        """The private keys stand where they belong and nowhere else: no log, journal, projection or command line."""
        secrets = [line for path in self._files("id_ed25519") for line in _secret_lines(path)]
        for path in self._files():
            if os.path.basename(path) not in ("id_ed25519", "disk.img"):
                with open(path, "rb") as file:
                    content = file.read()
                assert not any(secret in content for secret in secrets), f"a private key stands in {path}"
        words = repr(self.mac.calls()) + repr(self.mac.processes())
        assert not any(secret.decode() in words for secret in secrets), "a private key stands in a command line"

    def _files(self, name=None):
        for folder, _, names in os.walk(self.root):
            for one in names:
                if name in (None, one):
                    yield os.path.join(folder, one)


def identity(path):
    """Which file it is, and which bytes: the same as long as nobody has written or replaced it."""
    found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _secret_lines(path):
    """Those lines of a private key's file that tell something: the first tells its kind only."""
    with open(path, "rb") as file:
        return [line for line in file.read().splitlines()[2:-1] if len(line) > 16]


# What tests begin with is made once in a process, by commands; then each test gets a copy of the whole state root.

def add_desktop(desk):
    """From now on guests have the applications of DESKTOP: that of `base`, which is stopped, and its clones."""
    with desk.mac.edit(desk.disk("base")) as folder:
        with open(folder.inside(DESKTOP_FILE), "w", encoding="utf-8") as file:
            file.write(DESKTOP)
    desk.mac.set(axsim=AXSIM)


def _make_fresh(desk):
    desk.create_fresh("base")
    add_desktop(desk)


def _make_set_up(desk):
    desk.set_up("base")
    desk.ok("stop", "base")


STAGES = {  # name → (what it is made of, how)
    "ready": (None, MacDesk.install),  # the provider is installed
    "fresh": ("ready", _make_fresh),  # `base` is installed and stopped, nobody has set it up
    "set up": ("fresh", _make_set_up),  # and somebody has
}


def _copy(source, target):
    subprocess.run(["cp", "--archive", "--sparse=always", source, target], check=True)


@functools.cache
def _stage(name):
    """The state root of that stage; to be copied."""
    before, make = STAGES[name]
    path = os.path.join(BASE, "stage-" + name.replace(" ", "-"))
    desk = MacDesk("stage", stage=before)
    try:
        make(desk)
        desk.check()
        desk.mac.close()
        os.rename(desk.root, path)
    finally:
        desk.close()
    return path


class MacTest(unittest.TestCase):
    """Each test has a Mac and a state root of its own. Skipped, with the reason, where there can be no Mac."""

    stage = None
    settings = {}

    @classmethod
    def setUpClass(cls):
        if why_not():
            raise unittest.SkipTest(why_not())

    def setUp(self):
        self.desk = MacDesk(self.id().split(".")[-1][:40], stage=self.stage, **self.settings)
        self.addCleanup(self.desk.close)
        self.mac = self.desk.mac

    def tearDown(self):
        self.desk.check()


class RunningMacTest(unittest.TestCase):
    """The tests of a class share a Mac with a running sandbox, `work`, a clone of the set-up `base`."""

    @classmethod
    def setUpClass(cls):
        if why_not():
            raise unittest.SkipTest(why_not())
        cls.desk = MacDesk(cls.__name__, stage="set up")
        cls.addClassCleanup(cls.desk.close)
        cls.mac = cls.desk.mac
        cls.desk.clone("work")
        cls.guest = cls.desk.start("work")

    @classmethod
    def tearDownClass(cls):
        cls.desk.check()


def main():
    if why_not():
        print("skipped:", why_not())
        sys.exit(SKIPPED)
    harness.main()
