"""A real sshd with an account of its own making, for tests of providers/remote.

It listens on a loopback port, has its own host key, and sees an /etc/passwd in which the account has the wanted login
shell and a home directory below a scratch one. As root it gets a mount namespace for that; as an ordinary user a user
namespace as well, and lets in that user only. Also here: a proxy that cuts connections, and what runs the driver.

Environment (set by CTest): AD_REMOTE_DRIVER, the program of remote_driver.c, and what tests/e2e/harness.py reads.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "e2e"))

from harness import AD, BASE, USER, wait_until  # noqa: E402

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
PR_SET_DUMPABLE = 4
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))
OBSTACLES = ["none", "silent", "no_route", "refused", "not_ssh", "host_key", "login", "local"]
DELIVERIES = ["not_sent", "sent", "finished"]


def _reachable(path):
    """A program, copied to where an ordinary user can run it when the tests go on as one."""
    if not USER.switch:
        return path
    copy = os.path.join(BASE, os.path.basename(path))
    shutil.copy(path, copy)
    os.chmod(copy, 0o755)
    return copy


DRIVER = _reachable(os.environ["AD_REMOTE_DRIVER"])
libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def _write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def _see_accounts(passwd):
    """In the child that becomes sshd: its own /etc/passwd, and as an ordinary user the right to have one."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        _check(libc.unshare(CLONE_NEWNS), "unshare")
    else:
        _check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")  # lost with root's identity, and /proc/self with it
        _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    _check(libc.mount(passwd.encode(), b"/etc/passwd", None, MS_BIND, None), "mount")


def make_key(path, comment=""):
    """A key pair by ssh-keygen; the public half as the two first words of its line."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)
    for name in (path, path + ".pub"):
        USER.own(name)
    with open(path + ".pub", encoding="ascii") as f:
        return f.read().split()[:2]


class Sshd:
    def __init__(self, shell="/bin/sh", options=(), name="sshd"):
        self.base = USER.own(tempfile.mkdtemp(prefix=name + "-", dir=BASE))
        self.home = USER.own(self._make("home"))
        self.keys = USER.own(self._make("keys"))
        self.shell, self.options = shell, options
        self.blob = make_key(os.path.join(self.base, "host"))[1]
        public = make_key(os.path.join(self.keys, "id"))
        self._write("authorized_keys", " ".join(public) + "\n")
        self.log = os.path.join(self.base, "log")
        self.port = self._free_port()
        self.process = None
        self.start()

    def _make(self, name):
        path = os.path.join(self.base, name)
        os.mkdir(path, 0o700)
        return path

    def _write(self, name, text):
        path = os.path.join(self.base, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o600)
        return USER.own(path)

    @staticmethod
    def _free_port():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def start(self):
        passwd = self._write("passwd", f"{USER.name}:x:{USER.uid}:{USER.gid}::{self.home}:{self.shell}\n"
                             "sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
        os.chmod(passwd, 0o644)
        config = self._write("config", "\n".join([
            *self.options,  # the first of a kind counts
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {self.base}/host", "PidFile none", "UsePAM no",
            f"AuthorizedKeysFile {self.base}/authorized_keys", "StrictModes no", "PasswordAuthentication no",
            "PermitRootLogin yes", "LogLevel VERBOSE", "MaxStartups 100", ""]))
        if USER.is_root:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        with open(self.log, "ab") as log:
            USER.own(self.log)
            self.process = self._popen([SSHD, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, preexec_fn=lambda: _see_accounts(passwd), start_new_session=True,
                                            cwd=self.base, env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                                            **USER.switch)
        wait_until(self._listens, 10, "sshd: " + self.read_log()[-500:])

    @staticmethod
    def _popen(argv, **options):
        try:
            return subprocess.Popen(argv, **options)
        except subprocess.SubprocessError as e:  # in preexec_fn
            raise unittest.SkipTest("no mount or user namespaces for this user here") from e

    def _listens(self):
        if self.process.poll() is not None:
            raise AssertionError("sshd: " + self.read_log()[-1000:])
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def in_home(self, name, text, mode=0o600):
        """Writes a file into the account's home."""
        path = os.path.join(self.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        folder = os.path.dirname(path)
        while folder != self.base:
            USER.own(folder)
            folder = os.path.dirname(folder)
        return USER.own(path)

    def runner(self):
        return os.path.join(self.home, ".local", "bin", "agent-desktop")

    def processes(self):
        """sshd and everything below it."""
        found, parents = {self.process.pid}, {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                with open(f"/proc/{pid}/stat", "rb") as f:
                    parents[pid] = int(f.read().rsplit(b")", 1)[1].split()[1])
            except OSError:
                continue
        size = 0
        while size != len(found):
            size = len(found)
            found |= {pid for pid, parent in parents.items() if parent in found}
        return found

    def signal_all(self, number):
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def stop(self):
        if self.process.poll() is None:
            self.signal_all(signal.SIGKILL)
        self.process.wait()


class Reply:
    def __init__(self, status, out, err, report):
        self.status, self.out, self.err = status, out, err
        self.report = {}
        try:
            with open(report, encoding="utf-8", errors="replace") as f:
                self.report = dict(line.rstrip("\n").split("=", 1) for line in f)
            os.unlink(report)
        except FileNotFoundError:
            pass

    @property
    def code(self):
        return self.report["code"]

    @property
    def message(self):
        return self.report["message"]

    @property
    def obstacle(self):
        return OBSTACLES[int(self.report["obstacle"])]

    @property
    def delivery(self):
        return DELIVERIES[int(self.report["delivery"])]

    @property
    def stdout_used(self):
        return self.report["stdout_used"] == "1"

    def __repr__(self):
        return f"status {self.status} report {self.report} stdout {self.out[-200:]!r} stderr {self.err[-200:]!r}"


class Client:
    """Runs the driver against an sshd."""

    def __init__(self, sshd, port=None, files=None, **env):
        self.sshd, self.port = sshd, port or sshd.port
        self.files = files or {"agent-desktop": AD}
        self.count = 0
        self.env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": sshd.base, "LANG": "C.UTF-8", **env}
        for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if key in os.environ:
                self.env.setdefault(key, os.environ[key])

    def command(self, argv, options):
        self.count += 1
        report = os.path.join(self.sshd.base, f"report-{id(self)}-{self.count}")
        words = [DRIVER, "127.0.0.1", str(self.port), USER.name, self.sshd.keys, "--report", report]
        for name, path in self.files.items():
            words += ["--file", f"{name}={path}"]
        for name, value in options.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        return words + (["--", *argv] if argv else []), report

    def popen(self, *argv, options=None, **more):
        words, report = self.command(argv, options or {})
        for name in ("stdin", "stdout", "stderr"):
            more.setdefault(name, subprocess.PIPE)
        process = subprocess.Popen(words, env=self.env, cwd=self.sshd.base, **USER.switch, **more)
        process.report = report
        return process

    def finish(self, process, input=None, timeout=60):
        try:
            out, err = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"not over after {timeout} s: {Reply(None, out, err, process.report)}\n"
                                 f"{self.sshd.read_log()[-600:]}")
        return Reply(process.returncode, out or b"", err or b"", process.report)

    def run(self, *argv, input=b"", timeout=60, **options):
        return self.finish(self.popen(*argv, options=options), input, timeout)

    def open(self, **options):
        return self.run(**options)


class Proxy:
    """Passes connections on to PORT; closes each one after CUT bytes from the server, or from the client. RATE: at most
    so many bytes a second from the client, with next to nothing on their way."""

    def __init__(self, port, cut_server=None, cut_client=None, rate=None):
        self.target, self.cut_server, self.cut_client, self.rate = port, cut_server, cut_client, rate
        self.passed = {"server": 0, "client": 0}
        self.listener = socket.create_server(("127.0.0.1", 0))
        if rate is not None:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # what is accepted has it too
        self.port = self.listener.getsockname()[1]
        self.frozen = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for name, source, sink, cut in (("server", server, client, self.cut_server),
                                            ("client", client, server, self.cut_client)):
                threading.Thread(target=self._pass_on, args=(name, source, sink, cut), daemon=True).start()

    def _pass_on(self, name, source, sink, cut):
        try:
            while chunk := source.recv(65536):
                if self.frozen.is_set():
                    continue
                if cut is not None:
                    chunk = chunk[:max(0, cut - self.passed[name])]
                sink.sendall(chunk)
                self.passed[name] += len(chunk)
                if name == "client" and self.rate is not None:
                    time.sleep(len(chunk) / self.rate)  # a slow network is what this is
                if cut is not None and self.passed[name] >= cut:
                    break
        except OSError:
            pass
        for end in (source, sink):  # which wakes the other direction's thread; the second one closes
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                end.close()

    def freeze(self):
        """From now on everything is swallowed, as by a network that is gone."""
        self.frozen.set()

    def close(self):
        self.listener.close()
