"""The rows of bench.py that need somebody at the other end: an sshd for P-10 and P-11, a web server for P-12.

`sandbox run` wants a macos sandbox that is running. It gets one in the tests' simulated Mac (tests/doubles/mac), whose
guests have a real sshd; ssh, which it is compared with, logs in to the same guest. Where there is no Swift, the tests'
driver of providers/remote stands in for the program, against an sshd on this machine: the same connection and the same
command, without the journal. The row says so.
"""

import contextlib
import hashlib
import importlib
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GIB = 1 << 30
SECONDS = 3600  # nothing takes longer; the bound only ends what hangs
NEGOTIATED = {  # option of ssh → where sshd's log tells what a client and it have agreed on
    "KexAlgorithms": r"kex: algorithm: (\S+)",
    "HostKeyAlgorithms": r"kex: host key algorithm: (\S+)",
    "Ciphers": r"kex: server->client cipher: (\S+)",
    "MACs": r"kex: server->client cipher: \S+ MAC: ([^<\s]+)",  # <implicit> with some ciphers
}
PIPED = ["bash", "-c", 'set -o pipefail; "$@" | cat >/dev/null', "piped"]


class Missing(Exception):
    """Why something cannot be measured here."""


def find(program):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if path is None:
        raise Missing(f"{program} is not installed")
    return path


def import_from_tests(bench, folder, module):
    """A module of the tests, which are told by the environment what to run and where to write."""
    driver = os.path.join(bench.build, "tests", "providers", "remote", "remote_driver")
    if not os.path.exists(driver):
        raise Missing("remote_driver is not built (it needs AD_TESTS)")
    os.environ.update(AD_BINARY=bench.ad, AD_SOURCE=SOURCE, AD_REMOTE_DRIVER=driver, AD_TEST_BASE=bench.base)
    os.environ.pop("AD_TEST_USER", None)  # whoever runs this is who is measured
    path = os.path.join(SOURCE, "tests", folder)
    if path not in sys.path:
        sys.path.append(path)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Missing(str(error)) from error


class LocalSshd:
    """An sshd on this machine, and the tests' driver in place of the program."""

    what = "driver"

    def __init__(self, bench, **options):
        for program in ("sshd", "ssh", "ssh-keygen"):
            find(program)
        self._tests = import_from_tests(bench, "providers/remote", "sshd")
        try:
            self._sshd = self._tests.Sshd(**options)
        except (OSError, AssertionError, subprocess.SubprocessError) as error:
            raise Missing(f"no sshd: {error}") from error
        bench.cleanup.callback(self._sshd.stop)

    def ours(self, *argv):
        return [self._tests.DRIVER, "127.0.0.1", str(self._sshd.port), self._tests.USER.name, self._sshd.keys,
                "--pin", self._sshd.blob, "--file", f"agent-desktop={self._tests.AD}",
                "--timeout-ms", str(SECONDS * 1000), "--", *argv]

    def target(self):
        """Words for ssh: where to, and as whom."""
        known = os.path.join(self._sshd.base, "known_hosts")
        with open(known, "w", encoding="ascii") as f:
            f.write(f"sshd ssh-ed25519 {self._sshd.blob}\n")
        return [*login(os.path.join(self._sshd.keys, "id"), known, "sshd"), "-p", str(self._sshd.port),
                f"{self._tests.USER.name}@127.0.0.1"]

    def run(self, argv):
        """What ARGV prints. It inherits nothing."""
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout.decode()

    @staticmethod
    def popen(argv):
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL)

    def log(self):
        return self._sshd.read_log()


class Guest:
    """A running macos sandbox, `work`, and the program itself."""

    what = "macos guest"

    def __init__(self, bench):
        self._ad = bench.ad
        tests = import_from_tests(bench, "e2e", "mac")
        if tests.why_not():
            raise Missing(f"no simulated Mac: {tests.why_not()}")
        self._user = tests.ACCOUNT
        try:
            self._desk = tests.MacDesk("bench", stage="set up")
            bench.cleanup.callback(self._desk.close)
            self._desk.clone("work")
            self._address = self._desk.start("work").address
        except AssertionError as error:  # how the tests' helpers say that they had to give up
            raise Missing("no macos guest: " + str(error).splitlines()[0]) from error

    def ours(self, *argv):
        return [self._ad, "sandbox", "run", "work", "--", *argv]

    def status(self):
        return [self._ad, "sandbox", "status", "work"]

    def target(self):
        key, known = (self._desk.sandbox_path("work", name) for name in ("id_ed25519", "known_hosts"))
        return [*login(key, known, "work"), f"{self._user}@{self._address}"]

    def run(self, argv):
        done = self._desk.mac.run(argv, env=self._env(), timeout=SECONDS)
        if done.returncode != 0:
            sys.exit(f"bench: {argv}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def popen(self, argv):
        return self._desk.mac.popen(argv, env=self._env())

    def _env(self):
        return self._desk.mac.env(**self._desk.env)


def login(key, known_hosts, alias):
    """Options of ssh: this key and this host key, nobody's configuration, agent or compression."""
    options = {"BatchMode": "yes", "IdentitiesOnly": "yes", "IdentityAgent": "none", "StrictHostKeyChecking": "yes",
               "GlobalKnownHostsFile": "none", "UserKnownHostsFile": known_hosts, "HostKeyAlias": alias,
               "LogLevel": "ERROR"}
    return ["-F", "none", "-i", key, *as_words(options)]


def as_words(options):
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def negotiate(bench):
    """What our side and OpenSSH's sshd agree on, as options for an ssh that is to do the same."""
    sshd = LocalSshd(bench, options=["LogLevel DEBUG1"], name="methods")
    sshd.run(sshd.ours("true"))
    found = {name: re.search(pattern, sshd.log()) for name, pattern in NEGOTIATED.items()}
    return {name: match.group(1) for name, match in found.items() if match}


class Peers:
    """Our side and ssh, to the same account by the same key, with the same methods: made once for all rows."""

    def __init__(self, bench):
        self.methods = negotiate(bench)
        bench.rows.append({"row": "P-10", "what": "methods", "ssh": self.methods})
        try:
            self.host = Guest(bench)
        except Missing as missing:
            bench.skip("P-10", "the whole command", str(missing))
            self.host = LocalSshd(bench)
        self._target = [*as_words(self.methods), *self.host.target()]
        self._socket = os.path.join(bench.base, "master")
        self.host.run(self.host.ours("true"))  # the first one copies the program to the other side

    def ssh(self, *argv):
        return ["ssh", *self._target, *argv]

    def warm(self, *argv):
        """Over master()'s connection."""
        return ["ssh", "-S", self._socket, *self._target, *argv]

    @contextlib.contextmanager
    def master(self):
        process = self.host.popen(["ssh", "-M", "-N", "-S", self._socket, *self._target])
        end = time.monotonic() + 30
        while not os.path.exists(self._socket):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit("bench: no ssh master")
            time.sleep(0.01)
        try:
            yield
        finally:
            self.host.run(["ssh", "-q", "-S", self._socket, "-O", "exit", *self._target])
            process.wait()


def get_peers(bench, row):
    """None after saying why, where there are none."""
    if bench.peers is None:
        try:
            bench.peers = Peers(bench)
        except Missing as missing:
            bench.skip(row, "over SSH", str(missing))
    return bench.peers


def report_peak(bench, what, result, limit):
    bench.report("P-14", f"{what}: peak memory / {limit} MiB", result["peak_kib"] / 1024, limit, "MiB", 1)


def p10(bench):
    peers = get_peers(bench, "P-10")
    if peers is None:
        return
    with peers.master():
        results = bench.spawn([peers.host.ours("true"), peers.ssh("true"), peers.warm("true")],
                              rounds=max(10, bench.rounds // 4), run=peers.host.run)
    ours, cold, warm = (result["us"] / 1e3 for result in results)
    what = f"run -- true over SSH, cold ({peers.host.what})"
    bench.report("P-10", what + " / ssh, cold", ours, cold, "ms", 0.6)
    bench.report("P-10", what + " / warm master", ours, warm, "ms", 1, allowance=10)
    bench.rows.append({"row": "P-10", "what": "details: ours, cold, warm", "results": results})
    if isinstance(peers.host, Guest):
        (status,) = bench.spawn([peers.host.status()], rounds=1, run=peers.host.run)
        report_peak(bench, "status of a running macos sandbox", status, 4)


def p11(bench):
    peers = get_peers(bench, "P-11")
    if peers is None:
        return
    program = ["head", "-c", str(GIB), "/dev/zero"]
    # Who reads the stream costs both sides the same and so hides a difference; but somebody always does.
    for to, before in (("", []), (" into a pipe", PIPED)):
        results = bench.spawn([[*before, *peers.host.ours(*program)], [*before, *peers.ssh(*program)]],
                              rounds=max(3, bench.rounds // 40), run=peers.host.run)
        ours, theirs = (1e6 / result["us"] for result in results)
        bench.report("P-11", f"1 GiB on stdout over SSH{to} ({peers.host.what}) / ssh", ours, theirs, "GiB/s", 0.9,
                     higher_is_better=True)
        bench.rows.append({"row": "P-11", "what": f"details{to}: ours, ssh", "results": results})
        if not before:
            report_peak(bench, "exec of 1 GiB over SSH", results[0], 16)


class WebServer:
    """nginx, serving a file of 1 GiB from a directory of its own."""

    def __init__(self, bench):
        nginx = find("nginx")
        self._directory = os.path.join(bench.base, "web")
        os.makedirs(os.path.join(self._directory, "files"))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/image"
        self.sha1 = self._make_file()
        self._process = subprocess.Popen([nginx, "-e", "stderr", "-p", self._directory, "-c", self._configure(port)])
        bench.cleanup.callback(self._end)
        end = time.monotonic() + 30
        while not self._listens(port):
            if self._process.poll() is not None or time.monotonic() > end:
                raise Missing("nginx does not start")
            time.sleep(0.01)

    def _make_file(self):
        block, sha1 = os.urandom(1 << 20), hashlib.sha1()
        with open(os.path.join(self._directory, "files", "image"), "wb") as f:
            for _ in range(GIB >> 20):
                f.write(block)
                sha1.update(block)
        return sha1.hexdigest()

    def _configure(self, port):
        path = os.path.join(self._directory, "nginx.conf")
        temporary = "\n".join(f"{kind}_temp_path temporary;"
                              for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(path, "w", encoding="ascii") as f:
            f.write(f"daemon off; master_process off; pid nginx.pid; error_log stderr; events {{ }}\n"
                    f"http {{ access_log off; sendfile on; tcp_nopush on; {temporary}\n"
                    f"server {{ listen 127.0.0.1:{port}; root files; }} }}\n")
        return path

    @staticmethod
    def _listens(port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def _end(self):
        self._process.terminate()
        self._process.wait()


def time_downloads(commands, folder, rounds):
    """Times in seconds by name. Each round is begun by another one; nothing waits for the disk when one begins."""
    times = {name: [] for name in commands}
    names = list(commands)
    for i in range(rounds):
        for name in names[i % len(names):] + names[:i % len(names)]:
            os.sync()
            begun = time.monotonic()
            subprocess.run(commands[name], cwd=folder, stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.monotonic() - begun)
            os.unlink(os.path.join(folder, "image"))
    return times


def p12(bench):
    try:
        find("curl")
        server = WebServer(bench)
    except Missing as missing:
        bench.skip("P-12", "download of 1 GiB with hash", str(missing))
        return
    folder = os.path.join(bench.base, "downloads")
    os.mkdir(folder)
    fetch = [bench.tool("fetch"), server.url, "image", server.sha1]
    peers = {  # what ours is on the disk when it ends, curl's is not
        "curl -O": 'exec curl -q --noproxy "*" -sSO "$1"',
        "curl -O, sync": 'curl -q --noproxy "*" -sSO "$1" && sync image',
        "curl -O, sync, sha1sum": 'curl -q --noproxy "*" -sSO "$1" && sync image && sha1sum image',
    }
    commands = {name: ["sh", "-c", script, "peer", server.url] for name, script in peers.items()}
    times = time_downloads({"ours": fetch, **commands}, folder, max(3, bench.rounds // 40))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for peer, limit in zip(peers, (1.05, 1.05, 1)):
        bench.report("P-12", f"1 GiB downloaded, hashed, on the disk / {peer}", medians["ours"], medians[peer], "s",
                     limit)
    bench.rows.append({"row": "P-12", "what": "all times", "s": times})
    (peak,) = bench.spawn([[*fetch[:2], os.path.join(folder, "image"), server.sha1]], bench.env, 1)
    report_peak(bench, "download of 1 GiB", peak, 24)


ROWS = {"P-10": p10, "P-11": p11, "P-12": p12}
