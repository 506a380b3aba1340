"""Faults that people met in tools of this kind, on the macos provider: what runs inside, and the way there.

Each is a kind of fault that must be impossible here. The guests' sshd is real. The numbers are those of
test_bug_cases.py and test_exec.py, which show the same on the linux provider.
"""

import collections
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import time

from harness import envelope, peak_kib, wait_until
from mac import ACCOUNT, AD, HOST_KEY, USER, MacTest, RunningMacTest, main
from test_macos_cases import STATUS_SECONDS, snapshot, within

MIB = 1 << 20
BIG_BYTES = int(os.environ.get("AD_BIG_BYTES", 256 * MIB))
HOST_PEAK_KIB = 16 * 1024
LIST_SECONDS = 3
ACCOUNT_RECORD = f"/private/var/db/dslocal/nodes/Default/users/{ACCOUNT}.plist"
PRINT_ARGV = "import json,os,sys; print(json.dumps([os.fsencode(a).hex() for a in sys.argv[1:]]))"
ODD = ["", "a b", '"', "'", "\\", "$HOME", "`id`", ";", "&&", "*", "\n", "\t", "--", "-n", "A=b", "%s", b"\xff", "!!",
       "~", "{a,b}", "a\\'b", "--timeout=1", "-c", "\r\n", "\x01"]
SHELLS = {"sh": "/bin/sh", "bash": "/bin/bash", "zsh": "/bin/zsh", "fish": "/usr/bin/fish"}
START_UP = {"bash": ".bashrc", "zsh": ".zshenv", "fish": ".config/fish/config.fish"}  # read for any command

Ended = collections.namedtuple("Ended", "status out err")


def is_sanitized():
    with open(AD, "rb") as file:
        return b"__asan_init" in file.read()


# --- 8, 9, 10, 11, 12: what runs inside ------------------------------------------------------------------------------

class InsideTest(RunningMacTest):
    """What the tests about commands inside share."""

    def inside(self, *argv, **options):
        return self.desk.raw("sandbox", "run", "work", "--", *argv, **options)

    def popen(self, *argv, options=(), **more):
        return self.desk.popen("sandbox", "run", *options, "work", "--", *argv, **more)

    def log_in_with(self, shell):
        """As the person does with chsh: from now on who logs in gets it."""
        if not os.path.exists(SHELLS[shell]):
            self.skipTest(f"{SHELLS[shell]} is not installed")
        script = ("import plistlib, sys\nwith open(sys.argv[1], 'r+b') as file:\n record = plistlib.load(file)\n"
                  " file.seek(0)\n file.truncate()\n plistlib.dump({**record, 'shell': [sys.argv[2]]}, file)")
        self.guest.run(argv=["python3", "-c", script, ACCOUNT_RECORD, SHELLS[shell]], check=True)
        self.guest.change()  # its passwd is made anew

    def by_ssh(self, command, env=None):
        """OpenSSH's client, which is given all that the user has, beside the sandbox's key."""
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
        return self.mac.run(["ssh", "-F", "/dev/null", "-i", self.desk.sandbox_path("work", "id_ed25519"),
                             *(word for option in options for word in ("-o", option)),
                             f"{ACCOUNT}@{self.guest.address}", command],
                            env=self.mac.env(**{"HOME": self.desk.base, **(env or {})}))

    def refused(self, reply):
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual(error["code"], "INVALID_ARGS")
        self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
        return error

    def runs_inside(self, *argv):
        """Does exactly this run, and is it no zombie?"""
        return any(one["argv"] == list(argv) and one["state"] not in "ZX" for one in self.mac.processes())

    def await_start(self, *argv):
        wait_until(lambda: self.runs_inside(*argv), 10, f"{argv} in the guest")

    def await_end(self, *argv, seconds=2):
        wait_until(lambda: not self.runs_inside(*argv), seconds, f"the end of {argv} in the guest")


class ArgumentsTest(InsideTest):
    def test_case_8_argv_arrives_byte_for_byte_through_every_login_shell(self):
        for shell in SHELLS:
            with self.subTest(shell=shell):
                self.log_in_with(shell)
                for words in (ODD, [f"argument {i}" for i in range(1000)] + ["x" * 102400]):
                    reply = self.inside("python3", "-c", PRINT_ARGV, *words)
                    self.assertEqual((reply.status, reply.err), (0, b""))
                    self.assertEqual([bytes.fromhex(word) for word in json.loads(reply.out)],
                                     [os.fsencode(word) for word in words])

    def test_case_8_too_much_for_the_guest_is_refused_before_anything_runs(self):
        """Its limit is lower here than the host's."""
        for shell, file in START_UP.items():
            with self.subTest(shell=shell):
                self.log_in_with(shell)
                self.guest.run(f"mkdir -p ~/.config/fish; echo 'ulimit -s 512' > ~/{file}", check=True)
                self.assertIn("too long", self.refused(self.inside("touch", "/tmp/ran", *["x" * 50000] * 6))["message"])
                self.assertEqual(self.inside("ls", "/tmp/ran").status, 2)
                self.assertEqual(self.inside("echo", "x" * 50000).status, 0)
                self.guest.run(f"rm ~/{file}", check=True)

    def test_case_8_too_much_for_us_is_refused_before_anything_is_sent(self):
        """More than the host's own limit lets through is possible where somebody has raised that."""
        script = 'ulimit -s 65536; word=$(head -c 100000 /dev/zero | tr "\\0" x); exec "$@" $(yes $word | head -n 30)'
        done = self.mac.run(["bash", "-c", script, "bash", AD, "sandbox", "run", "work", "--", "touch", "/tmp/ran"],
                            env=self.mac.env(**self.desk.env))
        error = envelope(done.stdout.strip(), done)["error"]
        self.assertEqual((done.returncode, error["code"]), (2, "INVALID_ARGS"))
        self.assertEqual(error["disposition"]["delivery"], "not_delivered")
        self.assertEqual(self.inside("ls", "/tmp/ran").status, 2)

    def test_case_8_exec_passes_its_arguments_as_they_are(self):
        """What agent-desktop inside says of an application that nobody has."""
        for name in ('A "quoted" \'name\'', "$(id)", "*", "\\", "--help me"):
            reply = self.desk.raw("sandbox", "exec", "work", "--", "snapshot", "--app", name)
            error = self.desk.envelope(reply)["error"]
            self.assertEqual((reply.status, error["code"]), (1, "APP_NOT_FOUND"))
            self.assertIn(f"'{name}'", error["message"])


class BytesTest(InsideTest):
    CONTENTS = {"random": os.urandom(5 * MIB), "four bytes each": "😀".encode() * 300001, "no UTF-8": b"\xff",
                "NULs": b"\0" * 3, "nothing": b"", "no newline": b"no newline", "CR": b"a\r\nb\r",
                "escapes": b"\x1b[31m\x04~.\n"}

    def test_case_9_bytes_pass_unchanged_in_both_directions(self):
        for name, content in self.CONTENTS.items():
            with self.subTest(name):
                reply = self.inside("cat", input=content)
                self.assertEqual(hashlib.sha256(reply.out).digest(), hashlib.sha256(content).digest())
                self.assertEqual((reply.status, reply.err), (0, b""))

    def test_case_9_stdout_to_a_file_and_stderr_to_another(self):
        content = self.CONTENTS["random"]
        paths = [self.desk.file(name) for name in ("out", "err")]
        with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
            process = self.popen("sh", "-c", "tee /dev/stderr", stdin=subprocess.PIPE, stdout=out, stderr=err)
            process.communicate(content, timeout=60)
        self.assertEqual(process.returncode, 0)
        for path in paths:
            with open(path, "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).digest(), hashlib.sha256(content).digest())

    def test_case_9_the_last_bytes_are_never_lost(self):
        for i in range(20):
            self.assertEqual(self.inside("sh", "-c", f"printf '\\360\\237%s' {i}").out, b"\xf0\x9f%d" % i)

    # --- 10 ---

    def assert_small(self, process):
        if not is_sanitized():
            self.assertLess(peak_kib(process), HOST_PEAK_KIB)

    def test_case_10_one_endless_line_to_a_reader_that_sleeps(self):
        last = MIB  # so much is on its way when the command's memory is looked at: it cannot have ended
        with self.popen("sh", "-c", f"head -c {BIG_BYTES} /dev/zero | tr '\\0' x") as process:
            time.sleep(0.3)  # the reader sleeps: what the case is about
            count = 0
            while count < BIG_BYTES - last:
                chunk = process.stdout.read(min(MIB, BIG_BYTES - last - count))
                self.assertEqual(chunk.count(b"x"), len(chunk))
                count += len(chunk)
            self.assert_small(process)
            self.assertEqual(process.stdout.read(), b"x" * last)
            self.assertEqual((process.stderr.read(), process.wait(10)), (b"", 0))

    def test_case_10_both_streams_at_once_and_one_of_them_read_late(self):
        size = BIG_BYTES // 8
        for first, second in (("stdout", "stderr"), ("stderr", "stdout")):
            with self.subTest(first=first):
                script = f"head -c {size} /dev/zero >&2 & head -c {size} /dev/zero; wait"
                with self.popen("sh", "-c", script) as process:
                    self.assertEqual(len(getattr(process, first).read(size)), size)
                    self.assert_small(process)
                    self.assertEqual(len(getattr(process, second).read()), size)
                    self.assertEqual(process.wait(10), 0)

    def test_case_10_a_reader_that_leaves_ends_the_command(self):
        script = '"$@" -- yes "leaving reader" | head -c 10'
        with within(self, 2):
            done = self.mac.run(["sh", "-c", script, "sh", AD, "sandbox", "run", "work"],
                                env=self.mac.env(**self.desk.env))
            self.assertEqual((done.stdout, done.stderr, done.returncode), (b"leaving re", b"", 0))
            self.await_end("yes", "leaving reader")

    def test_case_10_a_reader_that_leaves_is_told_by_the_status(self):
        with self.popen("yes", "leaving reader") as process:
            self.assertEqual(process.stdout.read(10), b"leaving re")
            process.stdout.close()
            self.assertEqual(process.wait(2), 128 + signal.SIGPIPE)


# --- 11: noise -------------------------------------------------------------------------------------------------------

class NoiseTest(InsideTest):
    """Start-up files that print into both streams, and a banner. sh reads none, so it is not among the shells."""

    FILES = [".zshenv", ".zprofile", ".zshrc", ".zlogin", ".bashrc", ".bash_profile", ".profile",
             ".config/fish/config.fish"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mac.set(banner='*** a banner ***\n{"state":"missing"}\n')
        cls.guest.run("mkdir -p ~/.config/fish")
        for name in cls.FILES:
            lines = (f'echo "noise of {name}"\nprintf "no newline"\nprintf "\\0\\377"\necho noise >&2\n'
                     """echo '{"state":"stale"}'\n""")
            cls.guest.run(f"cat >> ~/{name}", input=lines.encode(), check=True)
        with open(AD, "rb") as program:
            cls.other_build = cls.desk.file("agent-desktop-2", program.read() + b"another build", 0o755)

    def test_case_11_noise_changes_nothing_and_every_program_arrives(self):
        for shell in START_UP:
            with self.subTest(shell=shell):
                self.log_in_with(shell)
                self.assert_noisy()
                self.assert_quiet(self.inside("printf", "ok"))
                self.assertEqual(self.desk.ok("status", "work")["message"], "work is running.")
                for program in (self.other_build, AD):  # each time the guest has the other one
                    self.assertNotEqual(self.sum_in_guest(), self.sum_of(program))
                    self.assert_quiet(self.run_by(program, "run", "work", "--", "printf", "ok"))
                    self.assertEqual(self.sum_in_guest(), self.sum_of(program))
                reply = self.desk.raw("sandbox", "exec", "work", "--", "snapshot", "--app", "Finder")
                self.assertEqual((reply.status, reply.err, self.desk.envelope(reply)["ok"]), (0, b"", True))

    def assert_noisy(self):
        """What OpenSSH's client gets to see."""
        done = self.by_ssh("printf ok")
        self.assertTrue(done.stdout.startswith(b"noise of ") and done.stdout.endswith(b"ok"), done)
        self.assertIn(b"*** a banner ***", done.stderr)

    def assert_quiet(self, reply):
        self.assertEqual((reply.status, reply.out, reply.err), (0, b"ok", b""), reply)

    def run_by(self, program, *words):
        done = self.mac.run([program, "sandbox", *words], env=self.mac.env(**self.desk.env), cwd=self.desk.base)
        return Ended(done.returncode, done.stdout, done.stderr)

    @staticmethod
    def sum_of(path):
        with open(path, "rb") as file:
            return hashlib.sha1(file.read()).hexdigest()

    def sum_in_guest(self):
        return self.guest.run(argv=["sha1sum", f"/Users/{ACCOUNT}/.local/bin/agent-desktop"]).stdout.split()[0].decode()

    def test_case_11_a_start_is_not_fooled_by_noise(self):
        """It says {"state":"stale"} where the helper's answer is waited for."""
        self.desk.ok("stop", "work")
        self.desk.start("work")
        self.guest.change(withdraw="sshd-keygen-wrapper")
        data = self.desk.ok("status", "work")
        self.assertEqual(data["state"], "needs_setup")
        self.assertIn("Accessibility is not allowed", data["message"])
        self.guest.change(grant="sshd-keygen-wrapper")
        self.assertEqual(self.desk.state("work"), "running")


# --- 12: the client ends ---------------------------------------------------------------------------------------------

class ClientEndTest(InsideTest):
    def attempts(self):
        """Of each attempt in the journal its phases, in their order."""
        found = {}
        for event in self.desk.events("work"):
            if event["kind"] == "exec":
                found.setdefault(event["attempt"], []).append(event["phase"])
        return list(found.values())

    def test_case_12_a_signal_to_the_client_reaches_the_guest(self):
        before = len(self.attempts())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            name = number.name[3:]
            script = f"trap 'echo got >/tmp/t-{name}' {name}; sleep 500; :"
            with self.subTest(signal=name), self.popen("sh", "-c", script) as process:
                self.await_start("sleep", "500")
                with within(self, 2):
                    process.send_signal(number)
                    process.communicate(timeout=10)
                self.assertEqual(process.returncode, 128 + number)
                self.await_end("sleep", "500")
                self.assertEqual(self.guest.run(f"cat /tmp/t-{name}").stdout, b"got\n")
        self.assertEqual(self.attempts()[before:], [["begin", "done"]] * 3)

    def test_case_12_nothing_of_the_tree_survives(self):
        """Children in the background and in sessions of their own, and some that ignore the signal."""
        script = ("trap '' TERM; sleep 501 & setsid sleep 502 & (trap '' TERM; exec sleep 503) & "
                  "while :; do sleep 0.504; done")
        with self.popen("sh", "-c", script) as process:
            for seconds in ("501", "502", "503"):
                self.await_start("sleep", seconds)
            process.terminate()
            process.communicate(timeout=10)
            self.assertEqual(process.returncode, 143)
        for seconds in ("501", "502", "503", "0.504"):
            self.await_end("sleep", seconds)

    def test_case_12_a_killed_client_ends_the_guest_s_command_and_the_journal_shows_it(self):
        before = len(self.attempts())
        with self.popen("sh", "-c", "setsid sleep 505 & sleep 506; true") as process:
            for seconds in ("505", "506"):
                self.await_start("sleep", seconds)
            process.kill()
            process.communicate()
        for seconds in ("505", "506"):
            self.await_end("sleep", seconds)
        self.assertEqual(self.attempts()[before:], [["begin"]])

    def test_case_12_when_nobody_can_tell_the_guest_the_time_limit_ends_it(self):
        """The network is gone when the client is killed: not even the end of the connection comes through."""
        with self.popen("sleep", "507", options=("--timeout=2",)) as process:
            self.await_start("sleep", "507")
            self.guest.change(ssh="mute")
            process.kill()
            process.communicate()
        self.assertTrue(self.runs_inside("sleep", "507"))
        self.await_end("sleep", "507", seconds=2 + 2 + 2)  # the limit, and its grace before SIGKILL
        self.guest.change(ssh="ok")
        self.assertEqual(self.inside("echo", "back").out, b"back\n")

    def test_case_12_a_network_that_goes_away_is_a_time_out(self):
        with self.popen("sleep", "508", options=("--timeout=1",)) as process, within(self, 10):
            self.await_start("sleep", "508")
            self.guest.change(ssh="mute")
            out, err = process.communicate(timeout=20)
            error = envelope(out.strip(), err)["error"]
            self.assertEqual((process.returncode, error["code"]), (1, "TIMEOUT"))
            self.assertEqual(error["disposition"]["retry"], "unsafe")
        self.guest.change(ssh="ok")
        self.await_end("sleep", "508", seconds=6)


# --- 13: the user's own keys and settings ----------------------------------------------------------------------------

class OwnSshTest(InsideTest):
    """A home whose agent, settings and known hosts would each keep OpenSSH's client from getting in."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mac.set(max_auth_tries=3)
        cls.home = os.path.join(cls.desk.base, "home")
        os.makedirs(os.path.join(cls.home, ".ssh"), 0o700)
        for path in (cls.home, os.path.join(cls.home, ".ssh")):
            USER.own(path)
        cls.env = {"HOME": cls.home, "SSH_AUTH_SOCK": os.path.join(cls.desk.base, "agent")}
        cls.agent = cls.mac.popen(["ssh-agent", "-D", "-a", cls.env["SSH_AUTH_SOCK"]], stdout=subprocess.DEVNULL)
        cls.addClassCleanup(cls.agent.wait)
        cls.addClassCleanup(cls.agent.kill)
        wait_until(lambda: os.path.exists(cls.env["SSH_AUTH_SOCK"]), 10, "the agent")
        for i in range(8):
            key = os.path.join(cls.home, f"key-{i}")
            cls.mac.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            cls.mac.run(["ssh-add", "-q", key], env=cls.mac.env(**cls.env), check=True)

    def write(self, name, content):
        path = os.path.join(self.home, ".ssh", name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o600)
        return USER.own(path)

    def assert_gets_in(self):
        """By the sandbox's key, at the first try."""
        before = len(self.guest.sshd_log())
        data = self.desk.ok("status", "work", env=self.env)
        self.assertEqual(data["message"], "work is running.")
        reply = self.inside("echo", "in", env=self.env)
        self.assertEqual((reply.status, reply.out, reply.err), (0, b"in\n", b""))
        log = self.guest.sshd_log()[before:]
        self.assertEqual(log.count("Accepted publickey"), 2, log)
        self.assertNotIn("preauth", log)

    def test_case_13_an_agent_with_many_keys(self):
        self.assertIn(b"Too many authentication failures", self.by_ssh("true", self.env).stderr)  # as others get it
        self.assert_gets_in()

    def test_case_13_an_agent_that_does_not_answer(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        path = os.path.join(self.desk.base, "mute-agent")
        listener.bind(path)
        os.chmod(path, 0o777)
        listener.listen()
        listener.setblocking(False)
        reply = self.inside("echo", "in", env={**self.env, "SSH_AUTH_SOCK": path})
        self.assertEqual(reply.out, b"in\n")
        self.assertRaises(BlockingIOError, listener.accept)  # nobody has asked it

    def test_case_13_hostile_settings_and_known_hosts(self):
        config = self.write("config", b"Host *\n User mallory\n Port 2222\n ProxyCommand touch ~/proxied\n"
                                      b" StrictHostKeyChecking no\n IdentityFile ~/key-0\n PubkeyAuthentication no\n")
        known = self.write("known_hosts", f"{self.guest.address} ssh-ed25519 ".encode() + b"AAAA" * 17 + b"\n")
        before = snapshot(self.home)
        self.assert_gets_in()
        self.assertEqual(snapshot(self.home), before)
        for path in (config, known):  # and whoever opened one of these would wait for ever
            os.unlink(path)
            os.mkfifo(path, 0o600)
            USER.own(path)
        self.assert_gets_in()
        for path in (config, known):
            os.unlink(path)

    def test_case_13_a_key_that_others_can_read_is_explained_and_not_used(self):
        key = self.desk.sandbox_path("work", "id_ed25519")
        self.addCleanup(os.chmod, key, 0o600)
        before = len(self.guest.sshd_log())
        for mode in (0o640, 0o604, 0o620):
            os.chmod(key, mode)
            data = self.desk.ok("status", "work")
            self.assertEqual(data["state"], "running")
            for text in (data["message"], self.explained(self.inside("true"))):
                self.assertIn("id_ed25519", text)
                self.assertIn(f"{mode:04o}", text)
                self.assertIn("0600", text)
        self.assertEqual(self.guest.sshd_log()[before:], "")
        os.chmod(key, 0o600)
        self.assertEqual(self.inside("echo", "in").out, b"in\n")

    def explained(self, reply):
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual((reply.status, error["code"]), (1, "PERM_DENIED"))
        self.assertIn("chmod 600", error["suggestion"])
        self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
        return error["message"]


# --- 14: leases ------------------------------------------------------------------------------------------------------

class LeaseTest(InsideTest):
    """Two guests run. `work` is looked for; nobody answers at NOWHERE."""

    NOWHERE = "192.168.64.250"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.desk.clone("other")
        cls.other = cls.desk.start("other")
        cls.own = cls.guest.address
        cls.hardware = cls.desk.facts("work")["mac"]
        with open(cls.mac.lease_file, "rb") as file:
            cls.original = file.read()

    def setUp(self):
        self.addCleanup(self.write, self.original)

    def write(self, content):
        with open(self.mac.lease_file, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def block(self, address, left, hardware=None, kind="1", expiry=None):
        """A lease with LEFT seconds to go, as the server writes it: without leading zeros."""
        short = ":".join(f"{int(part, 16):x}" for part in (hardware or self.hardware).split(":"))
        return (f"{{\n\tname=Guest\n\tip_address={address}\n\thw_address={kind},{short}\n\tidentifier={kind},{short}\n"
                f"\tlease={int(time.time()) + left if expiry is None else expiry:#x}\n}}\n")

    def assert_found(self, content):
        self.write(content)
        self.assertEqual(self.desk.ok("status", "work")["message"], "work is running.")

    def assert_decoy_is_seen(self, content):
        """What shows that the file counts: nobody answers at the address that it gives."""
        self.write(content)
        self.assertIn("does not answer", self.desk.ok("status", "work")["message"])

    def test_case_14_the_newest_live_lease_of_exactly_this_mac(self):
        live, decoy, expired = self.block(self.own, 7200), self.block(self.NOWHERE, 3600), self.block(self.NOWHERE, -10)
        written = live.split("hw_address=1,")[1].split("\n")[0]
        cases = {
            "the newest first": live + decoy,
            "the newest last": decoy + live,
            "one has expired": expired + live,
            "upper case": live.replace(written, written.upper()),
            "leading zeros": live.replace(written, self.hardware),
            "CRLF": (decoy + live).replace("\n", "\r\n"),
            "an expiry that ends in 00": decoy + self.block(self.own, 0, expiry=(int(time.time()) + 9000) & ~0xff),
            "a client id": live + self.block(self.NOWHERE, 9000, self.hardware + ":0:0", kind="ff"),
            "a MAC that begins like it": live + self.block(self.NOWHERE, 9000, self.hardware + ":1"),
            "octets that are none": live + self.block(self.NOWHERE, 9000).replace("hw_address=1,", "hw_address=1,zz:"),
            "a torn end": live + self.block(self.NOWHERE, 9000)[:-2],
            "an end in the middle of a word": live + self.block(self.NOWHERE, 9000)[:40],
            "300 entries": "".join(self.block(f"192.168.64.{i % 250 + 2}", -9000, f"2:0:0:0:{i >> 8:x}:{i & 255:x}")
                                   for i in range(300)) + live,
            "noise": "\0\x7f}}{{\n\n}\n" + live + "ip_address=1.2.3.4\n",
        }
        self.assert_decoy_is_seen(live.replace(self.own, self.NOWHERE))
        for name, content in cases.items():
            with self.subTest(name):
                self.assert_found(content)

    def test_case_14_without_a_live_lease_the_place_where_it_was_is_asked(self):
        for name, content in {"no file": None, "empty": b"", "expired": self.block(self.NOWHERE, -10),
                              "random bytes": random.Random(14).randbytes(100000)}.items():
            with self.subTest(name):
                if content is None:
                    os.unlink(self.mac.lease_file)
                    self.assertEqual(self.desk.ok("status", "work")["message"], "work is running.")
                else:
                    self.assert_found(content)

    def test_case_14_an_address_that_two_have_is_told_and_the_pinned_key_decides(self):
        """The newest lease of `work` has the address of `other`: nobody logs in there."""
        before = self.other.sshd_log().count("Accepted")
        self.write(self.original.decode() + self.block(self.other.address, 200000))
        data = self.desk.ok("status", "work")
        self.assertEqual(data["state"], "running")
        self.assertIn("not the pinned host key", data["message"])
        self.assertIn(f"{self.other.address} is leased to another guest too", data["message"])
        self.assertEqual(self.other.sshd_log().count("Accepted"), before)
        self.guest.run("touch /tmp/this-is-work", check=True)
        self.assertEqual(self.inside("ls", "/tmp/this-is-work").status, 0)  # where it was before is asked too
        self.assertEqual(self.other.sshd_log().count("Accepted"), before)
        data = self.desk.ok("status", "other")  # whose key is the right one
        self.assertEqual(data["state"], "running")
        self.assertIn("is leased to another guest too", data["message"])

    def test_case_14_a_machine_that_took_the_guest_s_address_is_not_trusted(self):
        """Its lease is the only one, and live; whoever is there has another key."""
        public = "/" + HOST_KEY
        self.guest.run(f"cp -p {public} /tmp/key && rm {public} {public}.pub", check=True)
        again = f"cp -p /tmp/key {public} && ssh-keygen -y -f {public} > {public}.pub"
        self.addCleanup(self.guest.run, again, check=True)
        data = self.desk.ok("status", "work")  # sshd has made another at that connection
        self.assertEqual(data["state"], "running")
        self.assertIn("not the pinned host key", data["message"])
        reply = self.inside("true")
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual((error["code"], error["disposition"]["delivery"]), ("HOST_KEY_CHANGED", "not_delivered"))


# --- 15: guests that do not answer -----------------------------------------------------------------------------------

class SilentTest(InsideTest):
    """Ten sandboxes, two of them run."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for i in range(7):
            cls.desk.clone(f"idle-{i}")
        cls.desk.clone("other")
        cls.other = cls.desk.start("other")

    def listed(self):
        """The states of all ten, and that it does not take long."""
        with within(self, LIST_SECONDS):
            found = {one["name"]: one for one in self.desk.ok("list")["sandboxes"]}
        self.assertEqual(len(found), 10)
        self.assertEqual({name for name, one in found.items() if one["state"] == "stopped"},
                         {"base", *(f"idle-{i}" for i in range(7))})
        return found

    def silent(self, behaviour, state, words):
        """One guest, then both, behave so: STATE and WORDS are what is said of them, in time; and then it is over."""
        self.addCleanup(self.change, "ok")
        self.guest.change(ssh=behaviour)
        with within(self, STATUS_SECONDS):
            data = self.desk.ok("status", "work")
        self.assertEqual(data["state"], state)
        self.assertIn(words, data["message"])
        with within(self, STATUS_SECONDS):
            self.assertEqual(self.desk.ok("status", "other")["message"], "other is running.")
        self.change(behaviour)
        found = self.listed()
        for name in ("work", "other"):
            self.assertEqual(found[name]["state"], state)
            self.assertIn(words, found[name]["message"])
        with within(self, 2):
            reply = self.desk.raw("sandbox", "run", "work", "--timeout=1", "--", "true")
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
        self.change("ok")
        self.assertEqual([found["message"] for found in (self.desk.ok("status", name) for name in ("work", "other"))],
                         ["work is running.", "other is running."])

    def change(self, behaviour):
        for guest in (self.guest, self.other):
            guest.change(ssh=behaviour)

    def test_case_15_an_sshd_that_says_nothing(self):
        self.silent("hang", "running", "its guest does not answer over SSH")

    def test_case_15_an_sshd_that_hangs_up(self):
        self.silent("drop", "running", "its guest does not answer over SSH")

    def test_case_15_packets_that_vanish(self):
        self.silent("mute", "running", "its guest does not answer over SSH")

    def test_case_15_a_port_that_is_closed(self):
        """That proves something: Remote Login is off. It may come back all the same."""
        self.silent("refuse", "needs_setup", "Remote Login is off in its guest")

    def test_case_15_a_vm_host_that_is_frozen(self):
        """The guest answers all the same here, which on a Mac it would not. Nobody waits for the VM host."""
        pid = self.desk.vmhosts("work")[0]
        self.mac.kill(pid, signal.SIGSTOP)
        self.addCleanup(self.mac.kill, pid, signal.SIGCONT)
        self.assertEqual(self.listed()["work"]["state"], "running")


class StopTest(MacTest):
    """A stop that needs no guest, and says whether it was forced."""

    stage = "set up"
    settings = {"vzsim": {"REQUEST_STOP": "ignore"}}

    def test_case_15_stops_of_silent_guests_are_bounded_and_tell_that_they_were_forced(self):
        """One guest leaves the request to a dialog that nobody sees; the other's VM host does nothing any more."""
        for name in ("dialog", "frozen"):
            self.desk.clone(name)
            self.desk.start(name).change(ssh="mute")
        self.mac.kill(self.desk.vmhosts("frozen")[0], signal.SIGSTOP)
        stops = {name: self.desk.popen("sandbox", "stop", name) for name in ("dialog", "frozen")}
        for name in stops:
            wait_until(lambda name=name: self.desk.ok("status", name).get("activity") == "stopping", 5, "the stop")
        with within(self, LIST_SECONDS):
            self.desk.ok("list")
        words = {"dialog": "did not shut down within 20 s and was switched off", "frozen": "did not end and was killed"}
        for name, process in stops.items():
            out, err = process.communicate(timeout=45)
            data = envelope(out.strip(), err)["data"]
            self.assertEqual(data["state"], "stopped")
            self.assertIn(words[name], data["message"])
        self.assertEqual(self.desk.processes("vmhost", self.desk.root), [])
        self.mac.set(vzsim={})
        self.desk.start("frozen")


if __name__ == "__main__":
    main()
