"""A simulated Mac on Linux, for tests: see README.md.

    with Mac(version="15.6.1") as mac:
        done = mac.run(["sw_vers", "-productVersion"])
"""

import atexit
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from . import image, settings, tools
from .cdn import Cdn, make_ipsw
from .compiler import Compiler
from .guest import SSH_CLIENT, TERMINAL
from .process import DEVNULL, PIPE, STDOUT, CompletedProcess, Process, TimeoutExpired, ask, finish

__all__ = ["Mac", "Guest", "Person", "Process", "Cdn", "image", "make_ipsw", "missing", "swift_missing", "wait_until",
           "DEVNULL", "PIPE", "STDOUT", "CompletedProcess", "TimeoutExpired", "SSH_CLIENT", "TERMINAL"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_TOOLCHAIN = os.path.join(_HERE, "..", "..", "..", "tools", "swift-toolchain")
_STUBS = os.path.join(_HERE, "..", "..", "swift-stubs")
_PYTHON = "/usr/bin/python3" if sys.version_info >= (3, 11) and os.path.exists("/usr/bin/python3") else sys.executable
_START_SECONDS = 30


def cache_folder():
    """What is built once and kept: $SIMULATED_MAC_CACHE, or a folder of ours in /var/tmp."""
    path = os.environ.get("SIMULATED_MAC_CACHE") or f"/var/tmp/simulated-mac-cache-{os.getuid()}"
    os.makedirs(path, mode=0o755, exist_ok=True)
    if os.stat(path).st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else: set SIMULATED_MAC_CACHE")
    return path


def missing():
    """Why the simulated Mac cannot be had here, as a reason to skip a test; None when it can."""
    programs = tools.missing_programs()
    if programs:
        return "not installed: " + ", ".join(programs)
    try:
        with Mac():
            return None
    except OSError as error:
        return str(error)


def swift_missing(user=None):
    """Why nothing can be compiled on the simulated Mac of USER, None when it can.

    Builds what is built once, so that a first compilation does not take half a minute.
    """
    return Compiler(cache_folder(), os.path.realpath(_TOOLCHAIN), os.path.realpath(_STUBS)).why_not(user)


def wait_until(condition, seconds=10, what="the condition"):
    """The first true value of CONDITION(); the bound only ends a test that has failed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true within {seconds} s")


class Mac:
    """A Mac of its own: nothing of it is left after close(), whatever happened meanwhile."""

    def __init__(self, user=None, base=None, leases=None, **values):
        """USER: the name of the ordinary user that everything runs as, when root makes the Mac. BASE: where its folder
        lies. LEASES: the path of bootpd's file, which is in the Mac's folder otherwise. VALUES: settings.
        """
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
        self._uid, self._gid, self._name, self._home = entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir
        self._base, self._leases = base, leases
        self._values = values
        self._sets = 0
        self._daemon = None
        self._lifeline = -1
        self._cdn = None
        self.directory = None

    # A life.

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def start(self):
        cache = cache_folder()
        tool = tools.build_c(cache, "tool.c")
        self.directory = tempfile.mkdtemp(prefix="simulated-mac-", dir=self._base)
        atexit.register(self.close)
        try:
            self._lay_out(tool)
            self._start_daemon(cache)
        except BaseException:
            self.close()
            raise
        return self

    def _lay_out(self, tool):
        os.chmod(self.directory, 0o755)
        for name in ("bin", "ran", "slots", "var"):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), 0o755 if name == "bin" else 0o777)
        self._make_run_folders()
        for name in ("events.jsonl", "calls.jsonl", "warnings.jsonl", "daemon.log"):
            with open(self.path(name), "wb"):
                pass
        os.chmod(self.path("events.jsonl"), 0o666)
        names = [*tools.HANDLERS, *tools.JOBS, "hdiutil", "diskutil", "mount", "umount"]
        shutil.copy(tool, self.path("bin", names[0]))
        for name in names[1:]:
            os.link(self.path("bin", names[0]), self.path("bin", name))
        self.set(**self._values)

    def _make_run_folders(self):
        for name in ("private", "run", "run/machines"):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), 0o777 if name == "run/machines" else 0o755)

    def _start_daemon(self, cache):
        reader, self._lifeline = os.pipe()
        options = {"directory": self.directory, "cache": cache, "uid": self._uid, "gid": self._gid, "lifeline": reader,
                   "toolchain": os.path.realpath(_TOOLCHAIN), "stubs": os.path.realpath(_STUBS),
                   "leases": self.lease_file}
        code = (f"import sys; sys.path.insert(0, {os.path.dirname(_HERE)!r}); "
                f"from {os.path.basename(_HERE)}.daemon import main; main({options!r})")
        argv = [_PYTHON, "-S", "-E", "-X", "pycache_prefix=" + os.path.join(cache, "pycache"), "-c", code]
        with open(self.path("daemon.log"), "ab") as log:
            self._daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            pass_fds=[reader], start_new_session=True)
        os.close(reader)
        line = b""
        if select.select([self._daemon.stdout], [], [], _START_SECONDS)[0]:
            line = self._daemon.stdout.readline()
        if not line.startswith(b'{"ready"'):
            with open(self.path("daemon.log"), encoding="utf-8") as log:
                raise OSError(f"the simulated Mac does not start: {line.decode().strip()} {log.read()[-2000:]}")

    def close(self):
        """Ends everything inside and removes what it left. May be called at any time, and again."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._daemon:
            try:
                self._daemon.wait(30)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
            self._daemon.stdout.close()
            self._daemon = None
        if self._cdn:
            self._cdn.close()
            self._cdn = None
        if self.directory:
            sys.stderr.write(self.why_not())  # nothing, unless the double itself failed
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
        atexit.unregister(self.close)

    def reboot(self):
        """A power cut and a start: no program, guest or mount survives, and what guests had not saved is lost."""
        try:
            self._ask("die")
        except ConnectionError:
            pass  # the answer
        self._daemon.wait(30)
        self._daemon.stdout.close()
        os.close(self._lifeline)
        shutil.rmtree(self.path("private"))
        shutil.rmtree(self.path("run"))
        self._make_run_folders()
        self._start_daemon(cache_folder())

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    # Settings.

    @property
    def lease_file(self):
        return self._leases or self.path("var", "dhcpd_leases")

    @property
    def settings_file(self):
        return self.path("settings.json")

    def set(self, **values):
        """Changes settings, from now on; a number of times begins anew. The names are those of settings.DEFAULTS."""
        current = {}
        if os.path.exists(self.settings_file):
            with open(self.settings_file, encoding="utf-8") as file:
                current = json.load(file)
        self._sets += 1
        marks = {**current.get("_set", {}), **{name: self._sets for name in values}}
        settings.write(self.settings_file, {**current, **values, "_set": marks})
        if self._daemon:
            self._ask("settings")

    def setting(self, name):
        with open(self.settings_file, encoding="utf-8") as file:
            return json.load(file).get(name, settings.DEFAULTS[name])

    # Programs.

    def env(self, **more):
        """The environment of programs inside; None takes a variable out."""
        values = {
            "PATH": self.path("bin") + ":/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": self._home,
            "USER": self._name,
            "LOGNAME": self._name,
            "LANG": "C.UTF-8",
            "VZSIM_LOG": self.path("events.jsonl"),
            "VZSIM_SLOTS_DIR": self.path("slots"),
            "VZSIM_CONTROL": self.path("run", "machines"),
            "VZSIM_REQUEST_STOP_DELAY_MS": "150",
            "VZSIM_STOP_DELAY_MS": "80",
            "SIMULATED_MAC_RAN": self.path("ran"),
        }
        if not self.setting("arm64"):
            values["VZSIM_INTEL"] = "1"
        if self.setting("in_vm"):
            values.update(VZSIM_IN_VM="1", VZSIM_UNSUPPORTED="1")
        values.update({"VZSIM_" + name: str(value) for name, value in self.setting("vzsim").items()})
        values.update({"AXSIM_" + name: str(value) for name, value in self.setting("axsim").items()})
        values.update(more)
        return {name: value for name, value in values.items() if value is not None}

    def popen(self, argv, stdin=None, stdout=None, stderr=None, env=None, cwd=None, pass_fds=(), new_session=False,
              umask=None):
        """Starts a program inside, as subprocess.Popen() does outside. ENV: its whole environment, else env()."""
        request = {"do": "spawn", "argv": [os.fsdecode(word) for word in argv], "env": env or self.env(),
                   "cwd": os.fspath(cwd or self.path("var")), "targets": True, "new_session": new_session,
                   "umask": umask}
        return Process(self._control, request, argv, stdin, stdout, stderr, pass_fds)

    def run(self, argv, input=None, timeout=60, check=False, **options):
        """Runs a program inside to its end; its output is taken unless the options say otherwise."""
        options.setdefault("stdin", DEVNULL if input is None else PIPE)
        options.setdefault("stdout", PIPE)
        options.setdefault("stderr", PIPE)
        return finish(self.popen(argv, **options), input, timeout, check)

    @property
    def _control(self):
        return self.path("run", "control.sock")

    def _ask(self, do, **request):
        connection, answer, fds = ask(self._control, {"do": do, **request})
        connection.close()
        return answer, fds

    def processes(self):
        """All processes inside (dicts with pid as seen there, argv, state), guests' ones too."""
        return self._ask("processes")[0]["processes"]

    def alive(self, pid):
        """Is there such a process inside, and is it not a zombie?"""
        return any(one["pid"] == pid and one["state"] not in "ZX" for one in self.processes())

    def kill(self, pid, number=signal.SIGKILL):
        """Signals a process by the number it has inside."""
        self._ask("kill", pid=pid, number=int(number))

    def listen(self, port=0):
        """A listening socket on the loopback address inside."""
        answer, fds = self._ask("listen", port=port)
        return socket.socket(fileno=fds[0]), answer["port"]

    def connect(self, address, port=22, timeout=10):
        """A connection from inside, for the test itself."""
        _, fds = self._ask("socket")
        new = socket.socket(fileno=fds[0])
        new.settimeout(timeout)
        try:
            new.connect((address, port))
        except BaseException:
            new.close()
            raise
        return new

    def cdn(self):
        """Apple's catalog and download servers, on the loopback address inside."""
        if self._cdn is None:
            self._cdn = Cdn(*self.listen())
        return self._cdn

    # What happened.

    def _records(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def calls(self, tool=None):
        """The ended calls of Apple's tools: dicts with tool, argv, status (None: killed), cwd, dialog, began, ended."""
        return [call for call in self._records("calls.jsonl") if tool in (None, call["tool"])]

    def dialogs(self):
        """The calls that opened a dialog on the screen, where nobody may be to answer it."""
        return [call for call in self.calls() if call["dialog"]]

    def events(self, name=None):
        """What the simulator of machines logged."""
        return [event for event in self._records("events.jsonl") if name in (None, event["event"])]

    def warnings(self):
        """What a real Mac would not have liked, and nobody would have seen."""
        return [record["warning"] for record in self._records("warnings.jsonl")]

    # Guests.

    def guests(self):
        """Those that run now."""
        return [Guest(self, facts["disk"]) for facts in self._ask("guests")[0]["guests"]]

    def guest(self, disk=None, seconds=10):
        """The guest that runs on the image DISK (None: the only one), as soon as it does."""
        found = wait_until(lambda: self._ask("guest", disk=disk)[0]["guest"], seconds, f"a guest on {disk}")
        return Guest(self, found["disk"])

    def edit(self, disk):
        """The file tree of a stopped guest's image, as a context manager: its .inside(PATH) is a path to work on."""
        return image.opened(disk, self.path("var"))

    def why_not(self):
        """What the double itself has to say when a test fails: its log."""
        text = ""
        for name in ("daemon.log", "guests.log"):
            if os.path.exists(self.path(name)):
                with open(self.path(name), encoding="utf-8", errors="replace") as file:
                    text += file.read()
        return text


class Guest:
    """A guest that runs, or ran: found by its disk."""

    def __init__(self, mac, disk):
        self._mac, self.disk = mac, disk
        self.person = Person(self)

    @property
    def facts(self):
        """What it is like now: state, address, mac, window, accounts, remote_login, grants, pid of its process …"""
        found = self._mac._ask("guest", disk=self.disk)[0]["guest"]
        if found is None:
            raise LookupError(f"no guest runs on {self.disk} {self._mac.warnings() or ''}")
        return found

    @property
    def address(self):
        return self.wait("up")["address"]

    @property
    def runs(self):
        return self._mac._ask("guest", disk=self.disk)[0]["guest"] is not None

    def wait(self, state="up", seconds=10):
        """Waits until its state is booting, up, locked or dead; the facts."""
        def reached():
            facts = self.facts
            return facts if facts["state"] == state else None

        return wait_until(reached, seconds, f"state '{state}' of the guest")

    def change(self, **changes):
        """Changes it without a person: remote_login, grant, withdraw, filevault, account (a dict), or a setting."""
        self._mac._ask("change", disk=self.disk, **changes)

    def popen(self, command=None, argv=None, user=None, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=None):
        """Starts a command line, as typed into Terminal, or a program, in the graphical session of its account."""
        request = {"do": "guest_run", "disk": self.disk, "command": command, "argv": argv, "user": user,
                   "env": env or {}}
        return Process(self._mac._control, request, command or argv, stdin, stdout, stderr)

    def run(self, command=None, argv=None, input=None, timeout=60, check=False, **options):
        options.setdefault("stdin", DEVNULL if input is None else PIPE)
        return finish(self.popen(command, argv, **options), input, timeout, check)

    def power_off(self):
        """It shuts itself down."""
        self._mac._ask("power_off", disk=self.disk)

    def tell_simulator(self, command):
        """What happens to its machine: crash, network-lost, close-window, quit."""
        self._mac._ask("simulator", disk=self.disk, command=command)

    def accessibility(self):
        """What programs in its sessions logged of the accessibility simulator."""
        path = os.path.join(self.facts["directory"], "run", "log", "accessibility")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def sshd_log(self):
        path = os.path.join(self.facts["directory"], "run", "log", "sshd")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()


class NoWindow(Exception):
    """The person cannot reach the guest: its machine shows no window."""


class Person:
    """Who sits at the host and uses the guest's window. Without a window nothing can be done."""

    def __init__(self, guest):
        self._guest = guest

    def _at_window(self):
        facts = self._guest.wait("up")
        if not facts["window"]:
            raise NoWindow(f"the guest on {self._guest.disk} has no window")
        return self._guest

    def create_account(self, name, **more):
        """Goes through Setup Assistant. MORE: uid, shell, full_name."""
        self._at_window().change(account={"name": name, **more})

    def type_in_terminal(self, command, **options):
        """Types a command line into Terminal and waits for its end."""
        return self._at_window().run(command, **options)

    def remote_login(self, on=True):
        self._at_window().change(remote_login=on)

    def allow(self, client=SSH_CLIENT):
        """Allows CLIENT in Accessibility."""
        self._at_window().change(grant=client)

    def forbid(self, client=SSH_CLIENT):
        self._at_window().change(withdraw=client)

    def turn_on_filevault(self):
        self._at_window().change(filevault=True)

    def shut_down(self):
        self._at_window().power_off()

    def close_window(self):
        self._at_window().tell_simulator("close-window")

    def quit(self):
        self._at_window().tell_simulator("quit")
