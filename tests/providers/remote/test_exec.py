"""providers/remote against a real sshd: R-207, R-213, R-414, bug cases 8 to 13 and 15.

AD_BIG_BYTES is how much goes through the tests of case 10 (2 GiB in the case itself).
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from sshd import AD, BASE, SSHD, USER, Client, Proxy, Sshd, make_key, wait_until

from harness import alive, main, peak_kib

MIB = 1 << 20
BIG = int(os.environ.get("AD_BIG_BYTES", 64 * MIB))
SANITIZED = os.environ.get("AD_SANITIZED") == "ON"
PRINT_ARGV = "import json,os,sys; print(json.dumps([os.fsencode(a).hex() for a in sys.argv[1:]]))"
ODD = ["", "a b", '"', "'", "\\", "$HOME", "`id`", ";", "&&", "*", "\n", "\t", "--", "-n", "A=b", "%s", b"\xff", "!x", "~",
       "\\'", "{a,b}", "#", "\r", "é"]
SHELLS = ["/bin/sh", "/bin/bash", "/bin/zsh", "/usr/bin/fish", "/bin/tcsh", "/bin/csh", "/bin/ksh", "/bin/dash"]
NOISE = "echo noise on stdout; echo noise on stderr >&2\n"


def processes(sshd, pattern):
    """Who runs in the guest with PATTERN in the command line: its home is nobody else's."""
    found = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as cmdline, open(f"/proc/{pid}/environ", "rb") as environ:
                line, home = cmdline.read(), environ.read()
        except OSError:
            continue
        if pattern in line and f"HOME={sshd.home}\0".encode() in home and alive(int(pid)):
            found.append((int(pid), line))
    return found


@unittest.skipUnless(SSHD, "needs openssh-server")
class ServerTest(unittest.TestCase):
    """The tests of a class share one sshd."""

    shell, options = "/bin/sh", ()

    @classmethod
    def setUpClass(cls):
        cls.sshd = Sshd(cls.shell, cls.options, cls.__name__)
        cls.addClassCleanup(cls.sshd.stop)
        cls.client = Client(cls.sshd)

    def run_inside(self, *argv, **options):
        return self.client.run(*argv, **options)

    def processes(self, pattern):
        return processes(self.sshd, pattern)


@unittest.skipUnless(SSHD, "needs openssh-server")
class ArgvTest(unittest.TestCase):
    """Case 8: identical bytes arrive, whatever the login shell."""

    def test_case_8_argv_arrives_byte_for_byte_through_every_login_shell(self):
        many = [f"argument {i}" for i in range(1000)] + ["x" * 102400]
        for shell in SHELLS:
            with self.subTest(shell=shell):
                if not os.path.exists(shell):
                    self.skipTest(f"{shell} is not installed")
                sshd = Sshd(shell)
                self.addCleanup(sshd.stop)
                for words in (ODD, many):
                    reply = Client(sshd).run("/usr/bin/python3", "-c", PRINT_ARGV, *words)
                    self.assertEqual((reply.status, reply.err), (0, b""), reply)
                    want = [a if isinstance(a, bytes) else a.encode() for a in words]
                    self.assertEqual([bytes.fromhex(a) for a in json.loads(reply.out)], want)

    def test_case_11_start_up_files_that_print_do_not_get_into_the_streams(self):
        for shell, names in (("/bin/bash", [".bashrc", ".bash_profile", ".profile"]), ("/bin/zsh", [".zshenv", ".zshrc"]),
                             ("/usr/bin/fish", [".config/fish/config.fish"]), ("/bin/tcsh", [".tcshrc", ".cshrc"])):
            with self.subTest(shell=shell):
                if not os.path.exists(shell):
                    self.skipTest(f"{shell} is not installed")
                sshd = Sshd(shell, ["Banner " + os.path.join(BASE, "banner"), "PrintMotd yes"])
                self.addCleanup(sshd.stop)
                with open(os.path.join(BASE, "banner"), "w", encoding="ascii") as f:
                    f.write("Authorized use only.\n" * 50)
                for name in names:
                    sshd.in_home(name, NOISE)
                client = Client(sshd)
                reply = client.run("printf", "ok")  # which also uploads
                self.assertEqual((reply.status, reply.out, reply.err), (0, b"ok", b""), reply)
                sshd.in_home(".local/bin/new", "#!/bin/sh\necho old\n", 0o755)
                os.rename(sshd.runner()[:-len("agent-desktop")] + "new", sshd.runner())
                reply = client.run("sh", "-c", "printf ok; printf err >&2")
                self.assertEqual((reply.status, reply.out, reply.err), (0, b"ok", b"err"), reply)

    def test_case_11_start_up_files_that_print_a_lot_or_end_in_the_middle_of_a_line(self):
        sshd = Sshd("/bin/bash")
        self.addCleanup(sshd.stop)
        sshd.in_home(".bashrc", "head -c 300000 /dev/urandom; head -c 300000 /dev/urandom >&2; printf ad-run\n")
        reply = Client(sshd).run("printf", "ok")
        self.assertEqual((reply.status, reply.out, reply.err), (0, b"ok", b""), reply)

    def test_case_11_what_a_shell_prints_at_its_end_does_not_get_into_the_streams(self):
        if not os.path.exists("/usr/bin/fish"):
            self.skipTest("/usr/bin/fish is not installed")
        sshd = Sshd("/usr/bin/fish")
        self.addCleanup(sshd.stop)
        sshd.in_home(".config/fish/config.fish", "function bye --on-event fish_exit; echo bye; echo bye >&2; end\n")
        reply = Client(sshd).run("printf", "ok")
        self.assertEqual((reply.status, reply.out, reply.err), (0, b"ok", b""), reply)


class ExecTest(ServerTest):
    # --- streams and status ------------------------------------------------------------------------------

    def test_r213_exit_status_passes(self):
        for status in (0, 1, 2, 42, 126, 127, 255):
            reply = self.run_inside("sh", "-c", f"exit {status}")
            self.assertEqual((reply.status, reply.out, reply.err), (status, b"", b""), reply)
            self.assertEqual((reply.delivery, reply.report["status_known"]), ("finished", "1"))

    def test_r213_death_by_signal_is_128_and_the_number(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE):
            reply = self.run_inside("sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual((reply.status, reply.out), (128 + number, b""), reply)

    def test_case_9_bytes_pass_unchanged_in_both_directions(self):
        for content in (os.urandom(5 * MIB), "😀".encode() * 100000, b"\xff", b"\0\0\0", b"", b"no newline"):
            reply = self.run_inside("cat", input=content)
            self.assertEqual(hashlib.sha256(reply.out).digest(), hashlib.sha256(content).digest(), reply)
            self.assertEqual((reply.status, reply.err), (0, b""))
            reply = self.run_inside("sh", "-c", "cat >&2", input=content)
            self.assertEqual(hashlib.sha256(reply.err).digest(), hashlib.sha256(content).digest())
            self.assertEqual((reply.status, reply.out), (0, b""))

    def test_case_9_stdout_to_a_file(self):
        content = os.urandom(MIB)
        path = os.path.join(self.sshd.base, "out")
        with open(path, "wb") as out:
            self.client.finish(self.client.popen("cat", stdout=out), content)
        with open(path, "rb") as out:
            self.assertEqual(out.read(), content)

    def test_r213_stdin_of_a_file_and_none(self):
        path = os.path.join(self.sshd.base, "in")
        with open(path, "wb") as f:
            f.write(b"content")
        with open(path, "rb") as stdin:
            reply = self.client.finish(self.client.popen("cat", stdin=stdin))
        self.assertEqual((reply.status, reply.out), (0, b"content"), reply)
        reply = self.client.finish(self.client.popen("cat", stdin=subprocess.DEVNULL))
        self.assertEqual((reply.status, reply.out), (0, b""), reply)

    def test_r213_stdin_that_stays_open_holds_up_nothing(self):
        process = self.client.popen("sh", "-c", "exit 4")
        self.assertEqual(process.wait(timeout=20), 4)
        process.communicate()

    def test_r213_a_command_that_does_not_read_its_stdin(self):
        reply = self.run_inside("true", input=os.urandom(8 * MIB))
        self.assertEqual((reply.status, reply.out), (0, b""), reply)
        reply = self.run_inside("head", "-c", "3", input=b"abc" + os.urandom(8 * MIB))
        self.assertEqual((reply.status, reply.out), (0, b"abc"), reply)

    def test_r213_stdout_and_stderr_stay_apart(self):
        reply = self.run_inside("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((reply.out, reply.err), (b"out\n", b"err\n"))

    def test_r213_closed_streams_are_no_trouble(self):
        words, _ = self.client.command(["sh", "-c", "cat; echo x; exit 7"], {})
        done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], env=self.client.env,
                              cwd=self.sshd.base, timeout=30, **USER.switch)
        self.assertEqual(done.returncode, 7)

    def test_r213_a_directory_as_a_stream_is_refused(self):
        directory = os.open(self.sshd.base, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        reply = self.client.finish(self.client.popen("true", stdin=directory))
        self.assertEqual((reply.code, reply.delivery), ("INVALID_ARGS", "not_sent"), reply)
        self.assertIn("stdin is a directory", reply.message)

    def test_r207_the_last_bytes_are_never_lost(self):
        for _ in range(20):
            reply = self.run_inside("sh", "-c", "printf last; printf end >&2")
            self.assertEqual((reply.out, reply.err, reply.status), (b"last", b"end", 0), reply)

    def test_r213_text_that_looks_like_the_beginning_of_a_mark(self):
        """The runner's marks are random for each command, so that all bytes in all places are only text."""
        reply = self.run_inside("/usr/bin/python3", "-c",
                                "import os\nfor i in range(256): os.write(1, bytes([i]) * 33); os.write(2, bytes([i]) * 37)")
        self.assertEqual(reply.out, b"".join(bytes([i]) * 33 for i in range(256)))
        self.assertEqual(reply.err, b"".join(bytes([i]) * 37 for i in range(256)))

    def test_r213_the_environment_is_the_login_shells(self):
        reply = self.client.run("sh", "-c", "echo $HOME; pwd; id -u; echo ${SECRET:-none}")
        self.assertEqual(reply.out.decode().split(), [self.sshd.home, self.sshd.home, str(USER.uid), "none"])

    def test_r213_the_command_has_a_session_of_its_own_and_no_signal_ignored(self):
        reply = self.run_inside("sh", "-c", "ps -o sid= -p $$ | tr -d ' '; echo $$; grep SigIgn /proc/self/status")
        session, pid, _, ignored = reply.out.decode().split()
        self.assertEqual((session, int(ignored, 16)), (pid, 0), reply)

    def test_r207_exec_runs_the_guests_agent_desktop(self):
        reply = self.run_inside("anything", "--version", own=1)
        self.assertEqual((reply.status, reply.out), (0, subprocess.run([AD, "--version"], capture_output=True).stdout))
        reply = self.run_inside("anything", "sandbox", "list", "two words", own=1)
        self.assertEqual((reply.status, json.loads(reply.out)["error"]["code"]), (2, "INVALID_ARGS"), reply)

    # --- refusals ----------------------------------------------------------------------------------------

    def test_r213_a_program_that_is_not_there(self):
        for word, reason in (("no-such-program", "No such file"), ("/etc/passwd", "Permission denied"), ("", "No such file")):
            reply = self.run_inside(word)
            self.assertEqual((reply.status, reply.code, reply.delivery), (1, "ACTION_FAILED", "not_sent"), reply)
            self.assertEqual((reply.report["disposition"], reply.report["retry"]), ("not_delivered", "safe"))
            self.assertIn(reason, reply.message)
            self.assertEqual((reply.out, reply.stdout_used), (b"", False))

    def test_case_8_too_much_is_refused_before_anything_runs(self):
        path = os.path.join(self.sshd.home, "ran")
        reply = self.run_inside("sh", "-c", f"touch {path}", *["x" * 120000] * 16)  # the guest's limit, like ours
        if reply.status != 0:
            self.assertEqual((reply.code, reply.delivery), ("INVALID_ARGS", "not_sent"), reply)
            self.assertFalse(os.path.exists(path))

    # --- much ----------------------------------------------------------------------------------------------

    def test_case_10_one_long_line_to_a_slow_reader(self):
        process = self.client.popen("sh", "-c", f"head -c {BIG} /dev/zero | tr '\\0' x", stdin=subprocess.DEVNULL)
        time.sleep(0.5)  # the reader sleeps: the point of the case
        count = 0
        while chunk := process.stdout.read(MIB):
            self.assertEqual(chunk.count(b"x"), len(chunk))
            count += len(chunk)
            if count > BIG - 2 * MIB and not SANITIZED and alive(process.pid):
                self.assertLess(peak_kib(process), 16 * 1024)
        self.assertEqual((count, process.wait()), (BIG, 0))
        process.communicate()

    def both_full(self, first, second):
        script = f"head -c {BIG} /dev/zero >&2 & head -c {BIG} /dev/zero; wait"
        process = self.client.popen("sh", "-c", script, stdin=subprocess.DEVNULL)
        counts, peak = [], 0
        for name in (first, second):
            stream, count = getattr(process, name), 0
            while count < BIG and (chunk := stream.read(min(MIB, BIG - count))):
                count += len(chunk)
                peak = max(peak, peak_kib(process))
            counts.append(count)
        out, err = process.communicate(timeout=20)
        self.assertEqual((counts, process.returncode, out, err), ([BIG, BIG], 0, b"", b""))
        if not SANITIZED:
            self.assertLess(peak, 16 * 1024)

    def test_case_10_both_streams_full_and_stderr_read_late(self):
        self.both_full("stdout", "stderr")

    def test_case_10_both_streams_full_and_stdout_read_late(self):
        self.both_full("stderr", "stdout")

    def test_case_10_stderr_to_its_end_before_anything_of_stdout(self):
        """The news of the command's end must not be stuck behind output that nobody takes."""
        for size in (70000, 1100000, 1400000, 3 * MIB):  # around what pipes and windows hold
            with self.subTest(size=size):
                script = f"head -c {size} /dev/zero & echo told >&2; wait; exit 3"
                process = self.client.popen("sh", "-c", script, stdin=subprocess.DEVNULL)
                self.assertEqual(process.stderr.read(5), b"told\n")
                out, err = process.communicate(timeout=20)
                self.assertEqual((len(out), err, process.returncode), (size, b"", 3))

    @unittest.skipIf(SANITIZED, "the sanitizers' memory is not the program's")
    def test_case_10_stdin_through_a_network_slower_than_the_guest(self):
        """TCP holds it up, not the guest: all the time there is something that waits to be sent."""
        proxy = Proxy(self.sshd.port, rate=20 * MIB)
        self.addCleanup(proxy.close)
        with open("/dev/zero", "rb") as zeros:
            process = Client(self.sshd, proxy.port).popen("sh", "-c", "head -c 64M | wc -c; exec sleep 327", stdin=zeros,
                                                          options={"send_buffer": 32768})
            self.assertEqual(process.stdout.readline().strip(), str(64 * MIB).encode())
            self.assertLess(peak_kib(process), 16 * 1024)
            process.kill()
            process.communicate()

    def test_case_10_a_reader_that_leaves_ends_the_command(self):
        process = self.client.popen("yes", "leaving reader")
        self.assertEqual(process.stdout.read(10), b"leaving re")
        process.stdout.close()
        begun = time.monotonic()
        self.assertEqual(process.wait(timeout=10), 128 + signal.SIGPIPE)
        self.assertLess(time.monotonic() - begun, 2)
        self.assertEqual(process.stderr.read(), b"")
        process.communicate()
        self.assertEqual(self.processes(b"leaving reader"), [])

    def test_case_10_a_program_that_survives_its_reader_tells_how_it_ended(self):
        process = self.client.popen("sh", "-c", "yes 2>/dev/null; echo went on >&2; exit 5")
        self.assertEqual(process.stdout.read(2), b"y\n")
        process.stdout.close()
        self.assertEqual((process.wait(timeout=10), process.stderr.read()), (5, b"went on\n"))
        process.communicate()

    def test_case_10_a_reader_of_stderr_that_leaves(self):
        process = self.client.popen("sh", "-c", "yes leaving errors >&2")
        self.assertEqual(process.stderr.read(7), b"leaving")
        process.stderr.close()
        self.assertEqual(process.wait(timeout=10), 128 + signal.SIGPIPE)
        process.communicate()
        self.assertEqual(self.processes(b"leaving errors"), [])

    def test_r213_a_full_disk_under_stdout_is_told(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            reply = self.client.finish(self.client.popen("yes", "full disk", stdout=full))
        self.assertEqual((reply.code, reply.stdout_used), ("STORE_FULL", False), reply)
        wait_until(lambda: self.processes(b"yes\0full disk") == [], 2, "the guest's end")

    # --- limits, signals, death --------------------------------------------------------------------------

    def test_r207_time_limit_before_any_output(self):
        begun = time.monotonic()
        reply = self.run_inside("sleep", "317", timeout_ms=300)
        self.assertLess(time.monotonic() - begun, 4)
        self.assertEqual((reply.code, reply.report["retry"], reply.stdout_used), ("TIMEOUT", "unsafe", False), reply)
        self.assertEqual(self.processes(b"sleep\x00317"), [])

    def test_r207_time_limit_includes_connecting_and_is_told_as_it_was_given(self):
        sshd = Sshd(name="late")
        self.addCleanup(sshd.stop)
        Client(sshd).run("true")  # which uploads
        sshd.signal_all(signal.SIGSTOP)
        begun = time.monotonic()
        process = Client(sshd).popen("sleep", "326", options={"timeout_ms": 2500})
        time.sleep(1)  # of connecting
        sshd.signal_all(signal.SIGCONT)
        reply = self.client.finish(process)
        self.assertLess(time.monotonic() - begun, 3.3)
        self.assertEqual((reply.code, reply.message), ("TIMEOUT", "the command took longer than 2.500 s and was ended"), reply)

    def test_r207_time_limit_after_output(self):
        reply = self.run_inside("sh", "-c", "echo hi; sleep 318", timeout_ms=500)
        self.assertEqual((reply.code, reply.out, reply.stdout_used), ("TIMEOUT", b"hi\n", True), reply)

    def test_r207_time_limit_ends_the_whole_tree(self):
        script = "setsid sleep 319 & setsid sh -c 'sleep 319 & sleep 319' & trap '' TERM; sleep 319 & while :; do sleep 319; done"
        begun = time.monotonic()
        reply = self.run_inside("sh", "-c", script, timeout_ms=300)
        self.assertEqual(reply.code, "TIMEOUT", reply)
        self.assertLess(time.monotonic() - begun, 6)
        self.assertEqual(self.processes(b"sleep\x00319"), [])

    def test_r207_time_limit_although_nobody_reads(self):
        process = self.client.popen("yes", "unread", options={"timeout_ms": 500})
        begun = time.monotonic()
        process.wait(timeout=15)
        self.assertLess(time.monotonic() - begun, 4)  # 0.5 and KILL_MS
        reply = self.client.finish(process)
        self.assertEqual(reply.code, "TIMEOUT", reply)
        self.assertEqual(self.processes(b"yes\x00unread"), [])

    def test_case_12_signals_to_the_host_command_reach_the_guest(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                script = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
                process = self.client.popen("sh", "-c", script)
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(number)
                out, err = process.communicate(timeout=10)
                self.assertEqual((out, process.returncode), (b"got\n", 128 + number), err)

    def test_case_12_a_guest_that_is_slow_to_start_what_takes_the_signal(self):
        """The time that the command gets to end by itself begins when it has the signal."""
        sshd = Sshd("/bin/bash")
        self.addCleanup(sshd.stop)
        client = Client(sshd)
        self.assertEqual(client.run("true").status, 0)  # which also uploads
        sshd.in_home(".bashrc", "sleep 2.5\n")
        process = client.popen("sh", "-c", "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        out, err = process.communicate(timeout=15)
        self.assertEqual((out, process.returncode), (b"got\n", 128 + signal.SIGTERM), err)

    def test_case_12_a_guest_that_ignores_the_signal_is_ended(self):
        process = self.client.popen("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.3207; done")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        reply = self.client.finish(process, timeout=8)
        self.assertEqual((reply.status, reply.report["signal"]), (143, str(int(signal.SIGKILL))), reply)
        self.assertEqual(self.processes(b"0.3207"), [])

    def test_case_12_a_guest_that_floods_and_ignores_the_signal_is_ended(self):
        process = self.client.popen("sh", "-c", "trap '' TERM; echo >&2; while :; do yes flooding | head -c 1G; done",
                                    stdout=subprocess.DEVNULL)
        self.assertEqual(process.stderr.readline(), b"\n")
        begun = time.monotonic()
        process.terminate()
        reply = self.client.finish(process, timeout=10)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual((reply.status, reply.report["signal"]), (143, str(int(signal.SIGKILL))), reply)
        self.assertEqual(self.processes(b"flooding"), [])

    def test_r207_time_limit_of_a_flood(self):
        begun = time.monotonic()
        reply = self.client.finish(self.client.popen("yes", "a flood", stdout=subprocess.DEVNULL,
                                                     options={"timeout_ms": 700}), timeout=10)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(reply.code, "TIMEOUT", reply)
        self.assertEqual(self.processes(b"yes\x00a flood"), [])

    def test_case_12_what_outlives_the_signalled_leader_is_ended_too(self):
        process = self.client.popen("sh", "-c", "(trap '' TERM; setsid sleep 321 & sleep 321) & echo ready; wait")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        self.assertEqual(self.client.finish(process, timeout=8).status, 143)
        self.assertEqual(self.processes(b"sleep\x00321"), [])

    def test_case_12_death_of_the_host_command_ends_the_guest(self):
        process = self.client.popen("sh", "-c", "trap '' TERM HUP PIPE; echo ready; setsid sleep 322 & sleep 322; true")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.kill()
        process.communicate()
        wait_until(lambda: self.processes(b"sleep\x00322") == [], 2, "the guest's end")

    def test_case_12_death_of_the_host_command_after_the_guest_was_joined(self):
        process = self.client.popen("sh", "-c", "head -c 200000 /dev/zero >&2; echo ready; exec sleep 323")
        self.assertEqual(len(process.stderr.read(200000)), 200000)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.kill()
        process.communicate()
        wait_until(lambda: self.processes(b"sleep\x00323") == [], 2, "the guest's end")

    def test_r213_background_children_live_on_after_a_normal_end(self):
        self.run_inside("sh", "-c", "sleep 324 >/dev/null 2>&1 & exit 0")
        found = wait_until(lambda: self.processes(b"sleep\x00324"), 5, "the child")  # which may not be `sleep` at once
        for pid, _ in found:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(len(found), 1)

    def test_r213_background_children_that_keep_the_streams_hold_up_nothing(self):
        begun = time.monotonic()
        reply = self.run_inside("sh", "-c", "sleep 325 & echo done")
        self.assertEqual((reply.status, reply.out), (0, b"done\n"), reply)
        self.assertLess(time.monotonic() - begun, 5)
        for pid, _ in self.processes(b"sleep\x00325"):
            os.kill(pid, signal.SIGKILL)

    @staticmethod
    def state(pid):
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0]

    def test_r213_ctrl_z_stops_the_guest_too(self):
        process = self.client.popen("sh", "-c", "echo $$; cat; exit 6")
        guest = int(process.stdout.readline())
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: self.state(process.pid) == b"T", 5, "the client's stop")
        wait_until(lambda: self.state(guest) == b"T", 5, "the guest's stop")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.state(guest) == b"S", 5, "the guest's waking")
        reply = self.client.finish(process, b"typed\n")
        self.assertEqual((reply.status, reply.out), (6, b"typed\n"), reply)

    def test_r207_many_at_once(self):
        count = 10 if SANITIZED else 30
        running = [self.client.popen("sh", "-c", f"echo {i}; exit {i}") for i in range(count)]
        for i, process in enumerate(running):
            reply = self.client.finish(process)
            self.assertEqual((reply.out, reply.status), (f"{i}\n".encode(), i), reply)

    def test_r207_nothing_of_the_runner_stays_behind(self):
        def sockets():
            return {name for name in os.listdir("/tmp") if name.startswith("agent-desktop-")}

        before = sockets()
        self.run_inside("sh", "-c", "head -c 200000 /dev/zero >&2")  # joined
        self.run_inside("true")
        self.run_inside("no-such-program")
        process = self.client.popen("sleep", "300")
        process.kill()
        process.communicate()
        wait_until(lambda: self.processes(b"--run-for-host") == [], 5, "the runners' end")
        wait_until(lambda: not sockets() - before, 5, "the end of the sockets")  # of others, at the same time, too


class KeysAgainTest(ServerTest):
    options = ("RekeyLimit 16M",)

    def test_case_10_new_session_keys_in_the_middle_of_the_streams(self):
        content = os.urandom(48 * MIB)
        client = Client(self.sshd, LSAN_OPTIONS="detect_leaks=0")  # libssh2 1.10 loses 201 bytes each time
        reply = client.run("cat", input=content)
        self.assertEqual(hashlib.sha256(reply.out).digest(), hashlib.sha256(content).digest(), reply)
        self.assertEqual((reply.status, reply.err), (0, b""), reply)


class SyncTest(ServerTest):
    """R-414: the guest has what the host has, before anything runs."""

    def setUp(self):
        self.helper = USER.own(os.path.join(self.sshd.base, "helper")) if os.path.exists(
            os.path.join(self.sshd.base, "helper")) else self.write_helper("#!/bin/sh\necho one\n")
        self.client = Client(self.sshd, files={"agent-desktop": AD, "agent-desktop-macos-helper": self.helper})
        self.copies = os.path.dirname(self.sshd.runner())

    def write_helper(self, text):
        path = os.path.join(self.sshd.base, "helper")
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return USER.own(path)

    def assert_synced(self):
        reply = self.client.run("printf", "ok")
        self.assertEqual((reply.status, reply.out, reply.err), (0, b"ok", b""), reply)
        for name, path in self.client.files.items():
            copy = os.path.join(self.copies, name)
            with open(path, "rb") as a, open(copy, "rb") as b:
                self.assertEqual(a.read(), b.read())
            self.assertEqual(os.stat(copy).st_mode & 0o777, 0o755)
        self.assertEqual(sorted(os.listdir(self.copies)), sorted(self.client.files))

    def test_r414_missing_files_are_copied(self):
        shutil.rmtree(os.path.join(self.sshd.home, ".local"), ignore_errors=True)
        self.assert_synced()

    def test_r414_a_missing_or_changed_helper_is_copied_alone(self):
        self.assert_synced()
        before = os.stat(self.sshd.runner()).st_ino
        os.unlink(os.path.join(self.copies, "agent-desktop-macos-helper"))
        self.assert_synced()
        self.write_helper("#!/bin/sh\necho two\n")
        self.assert_synced()
        self.assertEqual(os.stat(self.sshd.runner()).st_ino, before)

    def test_r414_damaged_and_foreign_runners_are_replaced(self):
        self.assert_synced()
        with open(AD, "rb") as f:
            content = f.read()
        foreign = {
            "empty": b"",
            "cut short": content[:5000],
            "a byte changed": content[:-1] + bytes([content[-1] ^ 1]),
            "no program": b"\0\1\2\3",
            "one that knows nothing of this": b"#!/bin/sh\necho '{\"ok\":false}'\nexit 2\n",
            "another version": b"#!/bin/sh\nhead -c 10 >/dev/null\nhead -c 64\nhead -c 4 >/dev/null\nprintf '\\002\\377\\377\\377\\377'\n",
        }
        for what, bytes_ in foreign.items():
            with self.subTest(what=what):
                with open(self.copies + "/other", "wb") as f:
                    f.write(bytes_)
                os.chmod(f.name, 0o755)
                os.rename(USER.own(f.name), self.sshd.runner())
                self.assert_synced()
        for mode in (0o644, 0o000):
            with self.subTest(mode=mode):
                os.chmod(self.sshd.runner(), mode)
                self.assert_synced()

    def test_r414_two_at_once(self):
        for _ in range(5):
            shutil.rmtree(os.path.join(self.sshd.home, ".local"), ignore_errors=True)
            running = [self.client.popen("printf", "ok") for _ in range(4)]
            for process in running:
                reply = self.client.finish(process)
                self.assertEqual((reply.status, reply.out), (0, b"ok"), reply)
            self.assert_synced()

    def test_r414_a_copy_over_a_running_one(self):
        self.assert_synced()
        process = self.client.popen("sh", "-c", "echo ready; read line; echo $line")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        with open(self.sshd.runner() + ".x", "wb") as f:
            f.write(b"old")
        os.rename(self.sshd.runner() + ".x", self.sshd.runner())
        self.assert_synced()
        self.assertEqual(self.client.finish(process, b"line\n").out, b"line\n")

    def test_r414_a_guest_without_room_says_so(self):
        shutil.rmtree(os.path.join(self.sshd.home, ".local"), ignore_errors=True)
        with open(os.path.join(self.sshd.home, ".local"), "wb"):
            pass  # a file where the folder should be
        reply = self.client.run("printf", "ok")
        os.unlink(os.path.join(self.sshd.home, ".local"))
        self.assertEqual((reply.code, reply.delivery, reply.out), ("ACTION_FAILED", "not_sent", b""), reply)
        self.assertRegex(reply.message, "cannot copy agent-desktop into the guest.*(Not a directory|File exists)")

    def test_r414_a_signal_ends_a_copy_and_the_command_is_not_sent(self):
        self.assert_synced()
        os.unlink(self.sshd.runner())
        proxy = Proxy(self.sshd.port, rate=65536)
        self.addCleanup(proxy.close)
        process = Client(self.sshd, proxy.port).popen("printf", "ok")
        wait_until(lambda: proxy.passed["client"] > 20000, 5, "the copy")  # connecting takes a tenth of that
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        reply = self.client.finish(process, timeout=10)
        self.assertLess(time.monotonic() - begun, 1)
        self.assertEqual((reply.status, reply.code, reply.delivery, reply.report["retry"]),
                         (128 + signal.SIGTERM, "ACTION_FAILED", "not_sent", "safe"), reply)
        self.assertEqual(reply.message, "interrupted before the guest took the command")
        proxy.freeze()  # what is still on its way would take half a minute
        wait_until(lambda: os.listdir(self.copies) == ["agent-desktop-macos-helper"], 10, "the end of the part")

    def test_r414_leftovers_of_a_cut_copy_are_removed_later(self):
        self.assert_synced()
        old, new = (os.path.join(self.copies, f"agent-desktop.new-{i}") for i in (1, 2))
        for path in (old, new):
            with open(path, "wb") as f:
                f.write(b"part")
        os.utime(old, (1, 1))
        os.unlink(self.sshd.runner())
        self.client.run("true")
        self.assertEqual((os.path.exists(old), os.path.exists(new)), (False, True))
        os.unlink(new)


class NoShellTest(ServerTest):
    shell = "/usr/sbin/nologin"

    def test_r213_an_account_that_may_run_nothing(self):
        reply = self.run_inside("true")
        self.assertEqual((reply.status, reply.code, reply.delivery), (1, "ACTION_FAILED", "not_sent"), reply)
        self.assertIn("cannot copy agent-desktop into the guest", reply.message)


class OneSessionTest(ServerTest):
    """A guest that allows no second session on a connection."""

    options = ("MaxSessions 1",)

    def test_r213_commands_run_and_what_needs_more_is_told_truthfully(self):
        with open(AD, "rb") as f:
            content = f.read()
        with open(self.sshd.in_home(".local/bin/agent-desktop", "", 0o755), "wb") as f:
            f.write(content)
        reply = self.run_inside("sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertEqual((reply.status, reply.out, reply.err), (3, b"out\n", b"err\n"), reply)
        reply = self.run_inside("sh", "-c", "head -c 1000000 /dev/zero >&2; sleep 326")
        self.assertEqual((reply.code, reply.report["disposition"]), ("ACTION_FAILED", "unknown"), reply)
        wait_until(lambda: self.processes(b"sleep\x00326") == [], 2, "the guest's end")
        process = self.client.popen("sh", "-c", "echo ready; sleep 327")
        process.stdout.readline()
        process.terminate()
        self.assertEqual(self.client.finish(process, timeout=8).status, 143)
        wait_until(lambda: self.processes(b"sleep\x00327") == [], 2, "the guest's end")


class LostTest(ServerTest):
    """A connection that breaks is told, and never read as success."""

    def test_r207_cut_after_any_number_of_bytes(self):
        self.client.run("true")
        whole = Proxy(self.sshd.port)
        self.addCleanup(whole.close)
        argv = ["sh", "-c", "echo begin; head -c 20000 /dev/zero; echo err >&2"]
        reply = Client(self.sshd, whole.port).run(*argv, input=b"x" * 5000)
        self.assertEqual(reply.status, 0, reply)
        ends = dict(whole.passed)
        outcomes = set()
        for side in ("server", "client"):
            for cut in [*range(0, ends[side], 300 if SANITIZED else 97), ends[side] - 1]:
                proxy = Proxy(self.sshd.port, **{"cut_" + side: cut})
                reply = Client(self.sshd, proxy.port).run(*argv, input=b"x" * 5000)
                proxy.close()
                if reply.status == 0:  # all that counts had come
                    self.assertEqual((reply.code, len(reply.out), reply.err), ("NONE", 20006, b"err\n"), (side, cut, reply))
                    continue
                self.assertEqual(reply.status, 1, (side, cut, reply))
                self.assertIn(reply.code, ("ACTION_FAILED",), (side, cut, reply))
                if "blob" in reply.report and reply.report["blob"]:
                    outcomes.add((reply.delivery, reply.report["disposition"]))
                if reply.out:
                    self.assertNotEqual(reply.report["disposition"], "not_delivered", (side, cut, reply))
        self.assertIn(("not_sent", "not_delivered"), outcomes)
        self.assertIn(("sent", "unknown"), outcomes)
        self.assertLessEqual(outcomes, {("not_sent", "not_delivered"), ("sent", "unknown"), ("finished", "delivered_unverified")})
        wait_until(lambda: self.processes(b"--run-for-host") == [], 5, "the runners' end")

    def test_r207_a_network_that_is_gone_is_noticed(self):
        proxy = Proxy(self.sshd.port)
        self.addCleanup(proxy.close)
        process = Client(self.sshd, proxy.port).popen("sh", "-c", "echo ready; exec sleep 328")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        proxy.freeze()
        reply = self.client.finish(process, timeout=40)
        self.assertEqual((reply.code, reply.report["disposition"], reply.delivery), ("ACTION_FAILED", "unknown", "sent"), reply)

    def test_r207_a_silent_command_is_not_taken_for_a_lost_one(self):
        reply = self.run_inside("sleep", "17")
        self.assertEqual((reply.status, reply.code), (0, "NONE"), reply)

    def test_r207_death_of_the_guests_runner(self):
        process = self.client.popen("sh", "-c", "echo ready; exec sleep 329")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        for pid, _ in wait_until(lambda: self.processes(b"--run-for-host"), 5, "the runner"):
            os.kill(pid, signal.SIGKILL)
        reply = self.client.finish(process)
        for pid, _ in self.processes(b"sleep\x00329"):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual((reply.status, reply.code, reply.report["disposition"]), (1, "ACTION_FAILED", "unknown"), reply)

    def test_r207_the_guest_goes_down(self):
        sshd = Sshd()
        process = Client(sshd).popen("sh", "-c", "echo ready; exec sleep 330")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        sshd.stop()
        reply = self.client.finish(process)
        self.assertEqual((reply.status, reply.code, reply.report["disposition"]), (1, "ACTION_FAILED", "unknown"), reply)


class OpenTest(ServerTest):
    """Which obstacle stands between."""

    options = ("MaxAuthTries 3",)

    def fails(self, code, obstacle, client=None, **options):
        begun = time.monotonic()
        reply = (client or self.client).open(**options)
        self.assertEqual((reply.status, reply.code, reply.obstacle), (1, code, obstacle), reply)
        self.assertEqual((reply.report["disposition"], reply.report["retry"]), ("not_delivered", "safe"))
        reply.seconds = time.monotonic() - begun
        return reply

    def test_r413_the_pinned_host_key_and_no_other(self):
        self.assertEqual(self.client.open(pin=self.sshd.blob).status, 0)
        self.assertEqual(self.client.open().report["blob"], self.sshd.blob)
        other = make_key(os.path.join(self.sshd.base, "other"))[1]
        self.fails("HOST_KEY_CHANGED", "host_key", pin=other)

    def test_r413_nobody_logs_in_before_the_host_key_is_checked(self):
        other = make_key(os.path.join(self.sshd.base, "another"))[1]
        before = self.sshd.read_log().count("Accepted publickey")
        self.fails("HOST_KEY_CHANGED", "host_key", pin=other)
        self.assertEqual(self.sshd.read_log().count("Accepted publickey"), before)

    def test_r413_a_guest_without_an_ed25519_key(self):
        sshd = Sshd(name="rsa")
        self.addCleanup(sshd.stop)
        sshd.stop()
        for name in ("host", "host.pub"):
            os.unlink(os.path.join(sshd.base, name))
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", os.path.join(sshd.base, "host")], check=True)
        USER.own(os.path.join(sshd.base, "host"))
        sshd.start()
        self.fails("ACTION_FAILED", "not_ssh", Client(sshd))

    def test_case_13_only_the_key_that_is_given_counts(self):
        agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True, **USER.switch,
                               env={"PATH": os.environ.get("PATH", ""), "TMPDIR": self.sshd.base}).stdout
        settings = dict(part.split(";")[0].split("=", 1) for part in agent.split("\n") if "=" in part)
        self.addCleanup(os.kill, int(settings["SSH_AGENT_PID"]), signal.SIGTERM)
        os.chmod(settings["SSH_AUTH_SOCK"], 0o600)
        for i in range(8):
            path = os.path.join(self.sshd.base, f"agent-key-{i}")
            make_key(path)
            subprocess.run(["ssh-add", "-q", path], check=True, env={**os.environ, **settings}, **USER.switch)
        folder = os.path.join(self.sshd.base, ".ssh")
        os.mkdir(folder, 0o700)
        USER.own(folder)
        known = os.path.join(folder, "known_hosts")
        for name, text in (("config", "Host *\nUser somebody\nProxyCommand false\nPort 1\nStrictHostKeyChecking no\n"),
                           ("known_hosts", f"[127.0.0.1]:{self.sshd.port} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAA\n")):
            with open(os.path.join(folder, name), "w", encoding="ascii") as f:
                f.write(text)
            USER.own(os.path.join(folder, name))
        os.utime(known, (1000000000, 1000000000))
        before = os.stat(known)
        client = Client(self.sshd, HOME=self.sshd.base, **settings)
        log = len(self.sshd.read_log())
        self.assertEqual(client.open(pin=self.sshd.blob).status, 0)
        reply = client.run("printf", "ok", pin=self.sshd.blob)
        self.assertEqual((reply.status, reply.out), (0, b"ok"), reply)
        after = os.stat(known)
        self.assertEqual((before.st_mtime, before.st_size), (after.st_mtime, after.st_size))
        self.assertNotIn("Failed", self.sshd.read_log()[log:])

    def test_case_13_login_refused(self):
        client = Client(self.sshd)
        keys = os.path.join(self.sshd.base, "wrong")
        os.mkdir(keys, 0o700)
        USER.own(keys)
        make_key(os.path.join(keys, "id"))
        self.sshd.keys, right = keys, self.sshd.keys
        try:
            reply = self.fails("AUTH_FAILED", "login", client)
        finally:
            self.sshd.keys = right
        self.assertIn(USER.name, reply.message)

    def test_case_13_a_key_that_others_could_read_is_explained(self):
        path = os.path.join(self.sshd.keys, "id")
        for mode in (0o644, 0o640, 0o620, 0o604):
            os.chmod(path, mode)
            reply = self.fails("PERM_DENIED", "local")
            self.assertRegex(reply.message, f"mode {mode:04o}.*0600")
        os.chmod(path, 0o600)
        self.assertEqual(self.client.open().status, 0)

    def test_case_13_a_key_that_is_missing_a_link_damaged_or_somebody_elses(self):
        path = os.path.join(self.sshd.keys, "id")
        os.rename(path, path + ".kept")
        try:
            self.fails("PERM_DENIED", "local")
            os.symlink(path + ".kept", path)
            self.fails("PERM_DENIED", "local")
            os.unlink(path)
            os.mkdir(path, 0o700)
            self.fails("PERM_DENIED", "local")
            os.rmdir(path)
            with open(path, "w", encoding="ascii") as f:
                f.write("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
            os.chmod(path, 0o600)
            USER.own(path)
            self.fails("PERM_DENIED", "local")
            if USER.switch or USER.is_root:
                os.chown(path, 12345, 12345)
                self.fails("PERM_DENIED", "local")
            os.unlink(path)
        finally:
            os.rename(path + ".kept", path)

    def test_case_15_a_stopped_sshd(self):
        sshd = Sshd(name="stopped")
        self.addCleanup(sshd.stop)
        sshd.signal_all(signal.SIGSTOP)
        reply = self.fails("TIMEOUT", "silent", Client(sshd), connect_ms=1500)
        self.assertLess(reply.seconds, 3)
        self.assertGreater(reply.seconds, 1.4)

    def test_case_15_somebody_who_accepts_and_never_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            reply = self.fails("TIMEOUT", "silent", Client(self.sshd, listener.getsockname()[1]), connect_ms=700)
            self.assertLess(reply.seconds, 2)

    def test_case_15_somebody_who_does_not_even_accept(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            waiting = [socket.socket() for _ in range(8)]  # more than it queues
            for s in waiting:
                s.setblocking(False)
                s.connect_ex(listener.getsockname())
            reply = self.fails("TIMEOUT", "silent", Client(self.sshd, listener.getsockname()[1]), connect_ms=700)
            self.assertLess(reply.seconds, 2)
            for s in waiting:
                s.close()

    def silent_peer(self, **options):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        process = Client(self.sshd, listener.getsockname()[1]).popen("true", options=options)
        connection, _ = listener.accept()
        self.addCleanup(connection.close)
        connection.recv(4096)  # it says who it is, and waits
        return process

    def test_case_12_a_signal_while_nobody_answers(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                process = self.silent_peer()
                begun = time.monotonic()
                process.send_signal(number)
                reply = self.client.finish(process, timeout=15)
                self.assertLess(time.monotonic() - begun, 1)
                self.assertEqual((reply.status, reply.code, reply.delivery), (128 + number, "ACTION_FAILED", "not_sent"), reply)
                self.assertEqual((reply.message, reply.report["disposition"], reply.report["retry"]),
                                 ("interrupted before the guest took the command", "not_delivered", "safe"), reply)

    def test_r213_ctrl_z_while_nobody_answers_stops_and_goes_on(self):
        process = self.silent_peer(connect_ms=2500)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: ExecTest.state(process.pid) == b"T", 2, "the stop")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: ExecTest.state(process.pid) == b"S", 2, "the waking")
        reply = self.client.finish(process, timeout=10)
        self.assertEqual((reply.status, reply.code, reply.obstacle), (1, "TIMEOUT", "silent"), reply)

    def test_case_15_a_closed_port(self):
        self.fails("ACTION_FAILED", "refused", Client(self.sshd, Sshd._free_port()))

    def test_case_15_somebody_else_answers(self):
        for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", os.urandom(100000), b"SSH-2.0-x\r\n" + os.urandom(5000),
                       b"SSH-2.0-x\r\n\xff\xff\xff\xff" + bytes(1000), b"SSH-1.5-old\r\n"):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                def serve():
                    connection, _ = listener.accept()
                    with connection:
                        try:
                            connection.sendall(answer)
                            connection.shutdown(socket.SHUT_WR)
                            while connection.recv(4096):
                                continue
                        except OSError:
                            pass

                thread = threading.Thread(target=serve)
                thread.start()
                self.fails("ACTION_FAILED", "not_ssh", Client(self.sshd, listener.getsockname()[1]), connect_ms=3000)
                thread.join()

    def test_case_15_an_sshd_that_stops_while_a_command_runs(self):
        sshd = Sshd(name="freezing")
        self.addCleanup(sshd.stop)
        process = Client(sshd).popen("sh", "-c", "echo ready; exec sleep 331", options={"timeout_ms": 3000})
        self.assertEqual(process.stdout.readline(), b"ready\n")
        sshd.signal_all(signal.SIGSTOP)
        begun = time.monotonic()
        reply = self.client.finish(process, timeout=20)
        self.assertEqual(reply.code, "TIMEOUT", reply)
        self.assertLess(time.monotonic() - begun, 9)

    def test_capture_gives_output_and_status(self):
        reply = self.client.run(capture="exec /bin/sh -c 'cat; echo err >&2; exit 3'", input=b"x" * 300000)
        self.assertEqual((reply.code, len(reply.out), reply.report["status"]), ("NONE", 300000, "3"), reply)
        reply = self.client.run(capture="kill -9 $$")
        self.assertEqual((reply.code, reply.report["status"]), ("NONE", "-1"), reply)
        reply = self.client.run(capture="sleep 332", timeout_ms=500)
        self.assertEqual(reply.code, "TIMEOUT", reply)


if __name__ == "__main__":
    main()
