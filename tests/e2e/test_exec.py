"""R-207, R-213 and bug cases 8, 9, 10, 12: what runs inside runs as if it ran here."""

import fcntl
import glob
import hashlib
import json
import os
import pty
import select
import signal
import subprocess
import termios
import time

from harness import AD, USER, RunningTest, alive, envelope, main, peak_kib, wait_until

MIB = 1 << 20
PRINT_ARGV = "import json,os,sys; print(json.dumps([os.fsencode(a).hex() for a in sys.argv[1:]]))"
ODD = ["", "a b", '"', "'", "\\", "$HOME", "`id`", ";", "&&", "*", "\n", "\t", "--", "-n", "A=b", "%s", b"\xff", "--timeout=1"]


class RunTest(RunningTest):
    def processes_inside(self, pattern):
        """Lines of /proc/*/cmdline inside that contain PATTERN, but for the look itself."""
        script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null; echo; done"
        out = self.run_inside("sh", "-c", script).out
        return [line for line in out.split(b"\n") if pattern in line and b"tr " not in line]

    # --- argv, streams, status ---------------------------------------------------------------------------

    def test_r213_argv_arrives_byte_for_byte(self):
        reply = self.run_inside("/usr/bin/python3", "-c", PRINT_ARGV, *ODD)
        self.assertEqual(reply.status, 0, reply)
        want = [a if isinstance(a, bytes) else a.encode() for a in ODD]
        self.assertEqual([bytes.fromhex(a) for a in json.loads(reply.out)], want)

    def test_case_8_a_thousand_arguments_and_one_of_100_kib(self):
        many = [f"argument {i}" for i in range(1000)] + ["x" * 102400]
        reply = self.run_inside("/usr/bin/python3", "-c", PRINT_ARGV, *many)
        self.assertEqual([bytes.fromhex(a).decode() for a in json.loads(reply.out)], many)

    def test_r213_exit_status_passes(self):
        for status in (0, 1, 2, 42, 126, 127, 255):
            reply = self.run_inside("sh", "-c", f"exit {status}")
            self.assertEqual((reply.status, reply.out, reply.err), (status, b"", b""))

    def test_r213_death_by_signal_is_128_and_the_number(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE):
            reply = self.run_inside("sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual((reply.status, reply.out), (128 + number, b""))

    def test_case_9_bytes_pass_unchanged_in_both_directions(self):
        for content in (os.urandom(5 * MIB), "😀".encode() * 100000, b"\xff", b"\0\0\0", b"", b"no newline"):
            reply = self.run_inside("cat", input=content)
            self.assertEqual(hashlib.sha256(reply.out).digest(), hashlib.sha256(content).digest())
            self.assertEqual((reply.status, reply.err), (0, b""))

    def test_r213_stdout_and_stderr_stay_apart(self):
        reply = self.run_inside("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((reply.out, reply.err), (b"out\n", b"err\n"))

    def test_case_9_stdout_to_a_file(self):
        content = os.urandom(MIB)
        path = os.path.join(self.desk.base, "out")
        with open(path, "wb") as out:
            process = self.desk.popen("sandbox", "run", "demo", "--", "cat", stdin=subprocess.PIPE, stdout=out)
            process.communicate(content)
        with open(path, "rb") as out:
            self.assertEqual(out.read(), content)

    def test_r213_closed_streams_are_no_trouble(self):
        argv = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
        done = subprocess.run([*argv, AD, "sandbox", "run", "demo", "--", "sh", "-c", "cat; echo x; exit 7"],
                              env=self.desk.env, cwd=self.desk.base, **USER.switch)
        self.assertIn(done.returncode, (7, 2))  # echo may fail; cat must not wait for anybody

    def test_r213_environment_and_place(self):
        out = self.run_inside("sh", "-c", "pwd; echo $HOME; id -u; echo ${SECRET:-none}", env={"SECRET": "x"}).out.decode()
        self.assertEqual(out.split(), [USER.home, USER.home, str(USER.uid), "none"])

    def test_r207_exec_runs_this_agent_desktop(self):
        reply = self.desk.raw("sandbox", "exec", "demo", "--", "--version")
        self.assertEqual((reply.status, reply.out), (0, self.desk.raw("--version").out))
        reply = self.desk.raw("sandbox", "exec", "demo", "--", "sandbox", "list", "two words")
        self.assertEqual((reply.status, envelope(reply.out.strip(), reply)["error"]["code"]), (2, "INVALID_ARGS"))

    def test_case_10_two_gigabytes_on_one_line_to_a_slow_reader(self):
        size = int(os.environ.get("AD_BIG_BYTES", 256 * MIB))
        process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x")
        time.sleep(0.3)  # the reader sleeps: the point of the case
        count = 0
        while chunk := process.stdout.read(MIB):
            count += len(chunk)
            if count == len(chunk):
                self.assertLess(peak_kib(process), 16 * 1024)
        self.assertEqual((count, process.wait()), (size, 0))
        process.stderr.close()

    def test_case_10_both_streams_full_and_one_read_late(self):
        script = "head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait"
        process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", script)
        out = process.stdout.read(3000000)  # all of it; its end comes with the command's
        self.assertEqual((len(out), len(process.stderr.read()), process.wait()), (3000000, 3000000, 0))
        process.stdout.close(), process.stderr.close()

    def test_case_10_a_reader_that_leaves_ends_the_command(self):
        process = self.desk.popen("sandbox", "run", "demo", "--", "yes", "leaving reader")
        self.assertEqual(process.stdout.read(10), b"leaving re")
        process.stdout.close()
        begun = time.monotonic()
        self.assertEqual(process.wait(timeout=10), 128 + signal.SIGPIPE)
        self.assertLess(time.monotonic() - begun, 2)
        process.stderr.close()
        self.assertEqual(self.processes_inside(b"leaving reader"), [])

    def test_r207_the_last_bytes_are_never_lost(self):
        for _ in range(50):
            self.assertEqual(self.run_inside("sh", "-c", "printf last").out, b"last")

    # --- limits, signals, death --------------------------------------------------------------------------

    def test_r207_time_limit_before_any_output(self):
        begun = time.monotonic()
        reply = self.run_inside("sleep", "217", options=("--timeout", "0.3"))
        self.assertLess(time.monotonic() - begun, 4)
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual((reply.status, error["code"]), (1, "TIMEOUT"))
        self.assertEqual(error["disposition"]["retry"], "unsafe")
        self.assertEqual(self.processes_inside(b"sleep 217"), [])

    def test_r207_after_a_guest_byte_the_envelope_goes_to_stderr(self):
        reply = self.run_inside("sh", "-c", "echo hi; sleep 218", options=("--timeout=0.5",))
        self.assertEqual((reply.status, reply.out), (1, b"hi\n"))
        self.assertEqual(envelope(reply.err.strip().split(b"\n")[-1], reply)["error"]["code"], "TIMEOUT")

    def test_r207_time_limit_ends_the_whole_tree(self):
        script = "setsid sleep 219 & trap '' TERM; sleep 219 & while :; do sleep 219; done"
        self.run_inside("sh", "-c", script, options=("--timeout=0.3",))
        self.assertEqual(self.processes_inside(b"sleep 219"), [])

    def test_case_12_signals_to_the_host_command_reach_the_guest(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                script = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
                process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", script)
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(number)
                out, err = process.communicate(timeout=5)
                self.assertEqual((out, process.returncode), (b"got\n", 128 + number), err)

    def test_case_12_a_caller_that_blocks_or_ignores_signals_has_not_spoken_for_us(self):
        """Signal masks and ignored signals outlive an exec: SIGTERM must reach the guest, ends of children must be seen."""
        script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"

        def hostile():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

        process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", script, preexec_fn=hostile)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        process.communicate(timeout=5)
        self.assertEqual(process.returncode, 143)
        self.desk.ok("log", "--verify", preexec_fn=hostile)

    def test_case_12_a_guest_that_ignores_the_signal_is_ended(self):
        script = "trap '' TERM; echo ready; while :; do sleep 0.2207; done"
        process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        process.communicate(timeout=6)
        self.assertEqual(process.returncode, 143)
        self.assertEqual(self.processes_inside(b"0.2207"), [])

    def test_case_12_death_of_the_host_command_ends_the_guest_and_is_journaled(self):
        process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", "echo ready; sleep 221; true")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.kill()
        process.communicate()
        wait_until(lambda: self.processes_inside(b"sleep 221") == [], 2, "the guest's end")
        attempts = [e for e in self.desk.events("demo") if e["kind"] == "exec"]
        open_attempts = {e["attempt"] for e in attempts} - {e["attempt"] for e in attempts if e["phase"] != "begin"}
        self.assertTrue(open_attempts)

    def test_r207_background_children_live_on_after_a_normal_end(self):
        self.run_inside("sh", "-c", "sleep 222 >/dev/null 2>&1 & exit 0")
        self.assertEqual(len(self.processes_inside(b"sleep 222")), 1)
        self.run_inside("pkill", "-f", "sleep 222")

    # --- at a terminal -----------------------------------------------------------------------------------

    def at_terminal(self, script, **more):
        """A shell with job control on a terminal of its own; the other end of the terminal, and the shell."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        os.fchown(slave, USER.uid, USER.gid)
        shell = subprocess.Popen(["sh", "-c", "set -m; " + script], stdin=slave, stdout=slave, stderr=slave,
                                 env={**self.desk.env, "AD": AD}, cwd=self.desk.base, start_new_session=True,
                                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), **USER.switch, **more)
        os.close(slave)
        self.addCleanup(shell.wait)
        self.addCleanup(shell.kill)
        return master, shell

    @staticmethod
    def read_until(master, text):
        """What the terminal shows, up to and with TEXT."""
        shown = b""
        end = time.monotonic() + 10
        while text not in shown:
            if not select.select([master], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} did not come, but {shown!r}")
            shown += os.read(master, 4096)
        return shown

    @staticmethod
    def states(beginning):
        """The states of the host's processes whose command line begins so: one letter each."""
        found = ""
        for folder in glob.glob("/proc/[0-9]*"):
            try:
                with open(folder + "/cmdline", "rb") as cmdline, open(folder + "/stat", "rb") as stat:
                    if cmdline.read().startswith(beginning):
                        found += stat.read().rsplit(b")", 1)[1].split()[0].decode()
            except OSError:
                continue
        return found

    def test_r213_ctrl_z_stops_the_guest_and_what_is_typed_is_the_shells(self):
        master, shell = self.at_terminal(
            '$AD sandbox run demo -- sh -c "echo ready; cat" suspended-guest; echo "back $?"; read line; echo "got <$line>"; '
            'bg; read line; echo "got <$line>"; fg; echo "end $?"')
        guest = b"sh\0-c\0echo ready; cat\0suspended-guest"
        client = AD.encode() + b"\0sandbox\0run"
        self.read_until(master, b"ready\r\n")
        os.write(master, b"one\n")
        self.read_until(master, b"one\r\none\r\n")  # the terminal's echo, and cat's
        os.write(master, b"\x1a")
        self.read_until(master, b"back ")
        wait_until(lambda: self.states(guest) == "T", 5, "the guest's stop")
        os.write(master, b"two\n")
        self.read_until(master, b"got <two>")
        # In the background a program that reads is stopped by the kernel; this one has the guest read for it.
        wait_until(lambda: self.states(client) == "T", 5, "the client's second stop")
        self.assertEqual(self.states(guest), "T")
        os.write(master, b"three\n")
        self.read_until(master, b"got <three>")
        wait_until(lambda: self.states(guest) == "S", 5, "the guest's waking")
        os.write(master, b"four\n")
        self.read_until(master, b"four\r\nfour\r\n")
        os.write(master, b"\x04")
        self.read_until(master, b"end 0")
        self.assertEqual(shell.wait(timeout=5), 0)

    def test_r213_in_the_background_the_guest_has_no_terminal_to_read(self):
        master, shell = self.at_terminal(
            '$AD sandbox run demo -- sh -c "cat; echo guest done" & wait $!; echo "end $?"; read line; echo "got <$line>"')
        self.read_until(master, b"guest done")
        self.read_until(master, b"end 0")
        os.write(master, b"typed\n")
        self.read_until(master, b"got <typed>")
        self.assertEqual(shell.wait(timeout=5), 0)

    # --- refusals, the journal, the report ---------------------------------------------------------------

    def test_r213_a_program_that_is_not_there(self):
        reply = self.run_inside("no-such-program")
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual((reply.status, error["code"]), (1, "ACTION_FAILED"))
        self.assertIn("no-such-program", error["message"])
        self.assertEqual(error["disposition"]["delivery"], "not_delivered")

    def test_case_8_too_much_is_refused_before_anything_runs(self):
        path = os.path.join(self.desk.base, "big")
        big = ["x" * 120000] * 16  # 1.9 MB: the host can pass it on, the guest's limit is the same
        reply = self.run_inside("sh", "-c", "echo ran", *big)
        if reply.out != b"ran\n":
            error = envelope(reply.out.strip(), reply)["error"]
            self.assertEqual(error["disposition"]["delivery"], "not_delivered")
        self.assertFalse(os.path.exists(path))

    def test_r213_a_directory_as_a_stream_is_refused(self):
        directory = os.open(self.desk.base, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        process = self.desk.popen("sandbox", "run", "demo", "--", "ls", "/proc/self/fd/0/..", stdin=directory)
        out, err = process.communicate(timeout=10)
        error = envelope(out.strip(), err)["error"]
        self.assertEqual((process.returncode, error["code"]), (2, "INVALID_ARGS"))
        self.assertIn("stdin is a directory", error["message"])
        self.assertEqual(error["disposition"]["delivery"], "not_delivered")

    def test_r213_unknown_and_stopped_sandboxes(self):
        reply = self.desk.raw("sandbox", "run", "nosuch", "--", "true")
        self.assertEqual((reply.status, envelope(reply.out.strip(), reply)["error"]["code"]), (1, "SANDBOX_NOT_FOUND"))
        self.desk.ok("create", "idle")
        reply = self.desk.raw("sandbox", "run", "idle", "--", "true")
        error = envelope(reply.out.strip(), reply)["error"]
        self.assertEqual((reply.status, error["code"]), (1, "INVALID_STATE"))
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox start idle")
        self.desk.ok("rm", "idle")

    def test_r210_an_exec_is_two_entries_without_its_arguments(self):
        before = len(self.desk.events("demo"))
        self.run_inside("sh", "-c", "exit 3", "the-secret-word")
        begin, end = self.desk.events("demo")[before:]
        self.assertEqual((begin["kind"], begin["phase"], begin["word"], begin["argc"]), ("exec", "begin", "sh", 4))
        self.assertEqual((end["kind"], end["attempt"], end["status"]), ("exec", begin["attempt"], 3))
        self.assertIn("duration_ms", end)
        for folder, _, files in os.walk(self.desk.root):
            for path in (os.path.join(folder, name) for name in files):
                if os.path.isfile(path):
                    with open(path, "rb") as f:
                        self.assertNotIn(b"the-secret-word", f.read(), path)

    def test_r213_report_says_how_far_it_came(self):
        path = os.path.join(self.desk.base, "report")

        def report(*args, **options):
            reply = self.desk.raw("sandbox", "run", "--report", path, *args, **options)
            with open(path, "rb") as f:
                value = envelope(f.read().strip(), reply)
            os.unlink(path)
            return value

        value = report("demo", "--", "sh", "-c", "exit 5")
        self.assertTrue(value["ok"])
        self.assertEqual((value["data"]["delivery"], value["data"]["status"]), ("finished", 5))
        value = report("demo", "--timeout=0.2", "--", "sleep", "5")
        self.assertEqual((value["error"]["code"], value["error"]["details"]["delivery"]), ("TIMEOUT", "sent"))
        value = report("demo", "--timeout=never", "--", "true")
        self.assertEqual(value["error"]["code"], "INVALID_ARGS")  # and not what stood there before
        value = report("nosuch", "--", "true")
        self.assertEqual(value["error"]["disposition"]["delivery"], "not_delivered")

    def test_r213_a_report_that_cannot_be_written_stops_it_before_anything_is_sent(self):
        marker = os.path.join(USER.home, "marker")
        reply = self.desk.raw("sandbox", "run", "--report", "/proc/nowhere/x", "demo", "--", "touch", marker)
        self.assertFalse(envelope(reply.out.strip(), reply)["ok"])
        self.assertEqual(self.run_inside("ls", marker).status, 2)

    def test_r207_200_at_once(self):
        count = int(os.environ.get("AD_CROWD", "200"))
        processes = [self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", f"echo {i}; exit {i}") for i in range(count)]
        for i, process in enumerate(processes):
            out, err = process.communicate(timeout=60)
            self.assertEqual((out, process.returncode), (f"{i}\n".encode(), i), err)

    def test_r208_a_stop_ends_running_execs_which_report_the_signal(self):
        self.desk.ok("create", "brief")
        self.desk.ok("start", "brief", "--wait=60")
        process = self.desk.popen("sandbox", "run", "brief", "--", "sh", "-c", "echo ready; exec sleep 223")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.assertEqual(self.desk.ok("stop", "brief")["state"], "stopped")
        process.communicate(timeout=5)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.desk.ok("rm", "brief")

    def test_case_15_a_stopped_client_does_not_hold_up_the_stop(self):
        self.desk.ok("create", "frozen")
        self.desk.ok("start", "frozen", "--wait=60")
        process = self.desk.popen("sandbox", "run", "frozen", "--", "sh", "-c", "echo ready; exec sleep 224")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        self.assertEqual(self.desk.ok("stop", "frozen")["state"], "stopped")
        self.assertLess(time.monotonic() - begun, 5)
        process.kill()
        process.communicate()
        self.assertFalse(alive(process.pid))
        self.desk.ok("rm", "frozen")


if __name__ == "__main__":
    main()
