"""R-207, R-213, R-504 and bug cases 8, 9, 10, 12, 15, 16 for hosted sandboxes: what runs there runs as if it ran here, as
far as an interface can do that which carries text, one stream and no stdin."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import time
import unittest

from cloud import CloudDesk
from harness import AD, USER, alive, envelope, main, peak_kib, wait_until

SANITIZED = os.environ.get("AD_SANITIZED") == "ON"
MIB = 1 << 20
PYTHON = "/usr/bin/python3"
PRINT_ARGV = "import json,os,sys; print(json.dumps([os.fsencode(a).hex() for a in sys.argv[1:]]))"
ODD = ["", "a b", '"', "'", "\\", "$HOME", "`id`", ";", "&&", "*", "\n", "\t", "--", "-n", "A=b", "%s", "é😀\u2028", "\x01",
       "--timeout=1"]
# Numbered lines on stdout, and every tenth on stderr too: what is lost, doubled or out of order shows.
COUNT = "import sys\nfor i in range({0}):\n print(i, '😀é')\n if i % 10 == 0: print(-i, file=sys.stderr)"


def counted(lines):
    out = "".join(f"{i} 😀é\n" for i in range(lines)).encode()
    err = "".join(f"{-i}\n" for i in range(0, lines, 10)).encode()
    return out, err


def allow_long_arguments():
    """For the next exec: Linux lets the arguments be a quarter of the stack, up to 6 MiB."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (64 * MIB if hard == resource.RLIM_INFINITY else hard, hard))


class RunningCloudTest(unittest.TestCase):
    """The tests of a class share one running sandbox, `demo`."""

    @classmethod
    def setUpClass(cls):
        cls.desk = CloudDesk(cls.__name__)
        cls.cloud = cls.desk.cloud
        cls.addClassCleanup(cls.desk.close)
        cls.desk.install()
        cls.desk.create("demo")

    def tearDown(self):
        self.cloud.clear_faults()
        self.desk.check()


class VercelExecTest(RunningCloudTest):

    def run_inside(self, *argv, options=(), input=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        process = self.desk.popen("sandbox", "run", *options, "demo", "--", *argv, **more)
        return self.finish(process)

    def finish(self, process, seconds=60):
        try:
            process.out, process.err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"it did not end within {seconds} s; stdout {out[-300:]!r} stderr {err[-300:]!r}")
        process.status = process.returncode
        self.desk.seen += [process.out or b"", process.err or b""]
        return process

    def start_inside(self, *argv, options=(), **more):
        process = self.desk.popen("sandbox", "run", *options, "demo", "--", *argv, **more)

        def end():
            process.kill()
            with contextlib.suppress(ValueError):
                process.communicate()

        self.addCleanup(end)
        return process

    def error_of(self, process, stream="out"):
        """The envelope's error, which is alone on stdout, or the last line on stderr."""
        said = getattr(process, stream)
        line = said.strip() if stream == "out" else said.strip().split(b"\n")[-1]
        return envelope(line, said)["error"]

    def assert_not_sent(self, process, code, word):
        error = self.error_of(process)
        self.assertEqual(error["code"], code)
        self.assertIn(word, error["message"])
        self.assertEqual(error["disposition"]["delivery"], "not_delivered")
        return error

    def runs(self):
        return self.cloud.count_runs()

    def last_command(self):
        return self.cloud.commands[-1]

    def wait_command_end(self, seconds=10):
        wait_until(lambda: not alive(self.last_command()["pid"]), seconds, "the end of the command there")

    # --- argv, bytes, status ---------------------------------------------------------------------------------

    def test_case_8_argv_arrives_byte_for_byte(self):
        reply = self.run_inside(PYTHON, "-c", PRINT_ARGV, *ODD)
        self.assertEqual((reply.status, reply.err), (0, b""))
        self.assertEqual([bytes.fromhex(a) for a in json.loads(reply.out)], [a.encode() for a in ODD])

    def test_case_8_a_thousand_arguments_and_one_of_100_kib(self):
        many = [f"argument {i}" for i in range(1000)] + ["é" * 51200]
        reply = self.run_inside(PYTHON, "-c", PRINT_ARGV, *many)
        self.assertEqual([bytes.fromhex(a).decode() for a in json.loads(reply.out)], many)

    def test_case_8_what_cannot_be_passed_on_is_refused_before_anything_is_sent(self):
        before = self.cloud.count_runs()
        for argv, word in (([b"\xff"], "UTF-8"), ([b"a\xc3"], "UTF-8"), ([b"\xed\xa0\x80"], "UTF-8"),
                           (["x" * 120000] * 18, "longer than")):
            with self.subTest(word=word):
                reply = self.run_inside("echo", *argv, preexec_fn=allow_long_arguments)
                self.assertEqual(reply.status, 2)
                self.assert_not_sent(reply, "INVALID_ARGS", word)
        self.assertEqual(self.cloud.count_runs(), before)

    def test_r504_exec_is_the_wrapper_with_the_arguments(self):
        reply = self.finish(self.desk.popen("sandbox", "exec", "demo", "--", *ODD))
        self.assertEqual(reply.status, 0, reply.err)
        command = self.last_command()
        self.assertEqual((command["name"], command["args"]), ("agent-desktop-run", ODD))

    def test_r213_exit_status_passes(self):
        for status in (0, 1, 2, 42, 125, 126, 127, 128, 130, 137, 143, 254, 255):
            reply = self.run_inside("sh", "-c", f"exit {status}")
            self.assertEqual((reply.status, reply.out, reply.err), (status, b"", b""))

    def test_r213_death_by_signal_is_128_and_the_number(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE):
            reply = self.run_inside("sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual((reply.status, reply.out), (128 + number, b""))

    def test_case_9_text_passes_unchanged(self):
        for text in ("😀" * 100000, "é\u2028\u0000\u0001\x7f\\\"/", "no newline", "\r\n\r\n", ""):
            path = os.path.join(self.desk.base, "text")
            with open(path, "w", encoding="utf-8", newline="") as f:
                f.write(text)
            os.chmod(path, 0o644)
            reply = self.run_inside("cat", path)
            self.assertEqual((reply.out, reply.err, reply.status), (text.encode(), b"", 0))

    def test_case_9_a_stream_in_pieces_of_any_size_with_escapes_and_without(self):
        for ascii_json in (True, False):
            self.cloud.set(ascii_json=ascii_json)
            self.addCleanup(self.cloud.set, ascii_json=False)
            for pieces in (1, 2, 3, 7, 100):
                with self.subTest(pieces=pieces, ascii_json=ascii_json):
                    self.cloud.fault("run", pieces=pieces, crlf=pieces == 7, no_last_newline=pieces == 3)
                    reply = self.run_inside("printf", "ä😀\\0\\n€")
                    self.assertEqual((reply.out, reply.status), ("ä😀\0\n€".encode(), 0))

    def test_case_9_bytes_that_are_no_text_come_as_replacement_characters(self):
        """The service carries text: docs/vercel.md says so."""
        reply = self.run_inside("printf", "a\\377b")
        self.assertEqual((reply.out, reply.status), ("a\ufffdb".encode(), 0))

    def test_r213_stdout_and_stderr_stay_apart(self):
        reply = self.run_inside("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((reply.out, reply.err), (b"out\n", b"err\n"))

    def test_r213_stdout_and_stderr_may_be_one(self):
        """In which order the service reads them is its affair; that what it tells stays in order is test_relay.c's."""
        script = "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done"
        path = os.path.join(self.desk.base, "both")
        with open(path, "wb") as file:
            for stdout in (subprocess.PIPE, file):
                with self.subTest(stdout=stdout):
                    reply = self.finish(self.start_inside("sh", "-c", script, stdout=stdout, stderr=subprocess.STDOUT))
                    if stdout is file:
                        with open(path, "rb") as f:
                            reply.out = f.read()
                    lines = reply.out.split()
                    for word in (b"out", b"err"):
                        self.assertEqual([line for line in lines if line.startswith(word)],
                                         [word + b"%d" % i for i in range(1, 10)])
                    self.assertEqual(len(lines), 18)

    def test_r504_output_comes_while_the_command_runs(self):
        gate = os.path.join(self.desk.base, "gate")
        os.mkfifo(gate)
        os.chmod(gate, 0o666)
        process = self.start_inside("sh", "-c", f"printf first; cat {gate}; printf last")
        self.assertEqual(process.stdout.read(5), b"first")
        self.assertIsNone(process.poll())
        with open(gate, "w", encoding="ascii") as f:
            f.write("middle ")
        self.assertEqual(process.stdout.read(), b"middle last")
        self.assertEqual(process.wait(10), 0)

    def test_r213_closed_streams_are_no_trouble(self):
        for redirections in ("<&- >&- 2>&-", ">&-", "2>&-", "<&-", ">/dev/full", "0>/dev/null 1</dev/null"):
            argv = ["sh", "-c", f'exec "$@" {redirections}', "sh", AD, "sandbox", "run", "demo", "--", "sh", "-c", "echo x; exit 7"]
            done = subprocess.run(argv, env=self.desk.env, cwd=self.desk.base, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=30, **USER.switch)
            self.assertEqual(done.returncode, 1 if "full" in redirections else 7, (redirections, done))

    def test_r207_the_last_bytes_are_never_lost(self):
        for _ in range(20):
            self.assertEqual(self.run_inside("sh", "-c", "printf last").out, b"last")

    # --- the stream breaks off -------------------------------------------------------------------------------

    def test_r504_a_cut_stream_is_found_again_without_gap_or_repeat(self):
        lines = 300
        out, err = counted(lines)
        script = os.path.join(self.desk.base, "count.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(COUNT.format(lines))
        os.chmod(script, 0o644)
        before = self.runs()
        first = 600  # more than the line that tells the command's id
        size = first + 2 * len(out)  # about as much as the whole stream has
        cuts = [(cut, by) for cut in (first, first + 1, 1000, size // 2, size, 3 * size) for by in ("close", "reset", "end")]
        for cut, by in cuts:
            with self.subTest(cut=cut, by=by):
                fault = self.cloud.fault("run", cut=cut, cut_by=by, pieces=97)
                reply = self.run_inside(PYTHON, "-u", script)
                self.assertEqual((reply.status, reply.out, reply.err), (0, out, err))
                self.cloud.clear_faults()
                self.assertEqual(fault.hits, 1)
        self.assertEqual(self.runs(), before + len(cuts))

    def test_r504_logs_that_are_cut_too_and_slow_commands(self):
        script = "import sys,time\nfor i in range(40): print(i, 'x' * 20, flush=True); time.sleep(0.02)\nsys.exit(7)"
        out = "".join(f"{i} {'x' * 20}\n" for i in range(40)).encode()
        for by in ("close", "reset", "end"):
            with self.subTest(by=by):
                self.cloud.fault("run", cut=500, cut_by=by)
                for cut in (10, 300, 700, 1000):
                    self.cloud.fault("logs", cut=cut, cut_by=by)
                reply = self.run_inside(PYTHON, "-c", script)
                self.assertEqual((reply.status, reply.out, reply.err), (7, out, b""))
                self.cloud.clear_faults()

    def test_r504_an_end_that_is_missing_is_asked_for(self):
        for fault in ({"drop_last": True}, {"null_exit": True}, {"error_line": "sandbox_stream_closed"}):
            with self.subTest(**fault):
                before = self.runs()
                self.cloud.fault("run", **fault)
                reply = self.run_inside("sh", "-c", "printf hello; exit 9")
                self.assertEqual((reply.status, reply.out), (9, b"hello"))
                self.assertEqual(self.runs(), before + 1)

    def test_r504_a_service_that_fails_for_a_while_is_asked_again(self):
        self.cloud.fault("run", cut=400, cut_by="reset")
        self.cloud.fault("logs", first=2, status=503)
        self.cloud.fault("get command", status=500)
        reply = self.run_inside("sh", "-c", "printf hello; sleep 0.2; printf ' world'; exit 9")
        self.assertEqual((reply.status, reply.out), (9, b"hello world"))

    def test_r504_lines_that_are_none_are_read_once_more_and_then_an_error(self):
        self.cloud.fault("run", insert=b'{"stream":"stdout","data":\n')
        reply = self.run_inside("printf", "hello")
        self.assertEqual((reply.status, reply.out), (0, b"hello"))
        for op in ("run", "logs"):
            self.cloud.fault(op, always=True, insert=b"nonsense\n", after_lines=0 if op == "logs" else 1)
        begun = time.monotonic()
        reply = self.run_inside("printf", "hello")
        error = self.error_of(reply)
        self.assertEqual((reply.status, error["code"], error["disposition"]["retry"]), (1, "ACTION_FAILED", "unsafe"))
        self.assertLess(time.monotonic() - begun, 5)

    def test_r505_a_command_whose_reply_is_lost_is_not_run_twice(self):
        for fault in ({"reset": "after"}, {"close": "after"}, {"status": 502, "effect": True}, {"cut": 0}, {"type": "text/html"},
                      {"cut": 40, "cut_by": "end"}):
            with self.subTest(**fault):
                before = self.runs()
                self.cloud.fault("run", **fault)
                reply = self.run_inside("true")
                error = self.error_of(reply)
                self.assertEqual((reply.status, error["code"]), (1, "ACTION_FAILED"))
                self.assertEqual((error["disposition"]["delivery"], error["disposition"]["retry"]), ("unknown", "unsafe"))
                self.assertEqual(self.runs(), before + 1)
                self.cloud.clear_faults()

    def test_r504_an_id_that_cannot_be_used_is_an_error(self):
        for told in ('{"command":{"exitCode":null}}', '{"command":{"id":"%s","exitCode":null}}' % ("x" * 1000)):
            self.cloud.fault("run", insert=told + "\n", after_lines=0)
            error = self.error_of(self.run_inside("true"))
            self.assertEqual((error["code"], error["disposition"]["delivery"]), ("ACTION_FAILED", "unknown"))

    def test_r505_a_command_that_was_certainly_refused_is_sent_again(self):
        for fault in ({"status": 429}, {"status": 429, "retry_after": 1}, {"status": 422, "code": "sandbox_not_ready"}):
            with self.subTest(**fault):
                before = self.runs()
                self.cloud.fault("run", **fault)
                self.assertEqual(self.run_inside("sh", "-c", "exit 3").status, 3)
                self.assertEqual(self.runs(), before + 1)

    def test_r504_output_that_cannot_be_read_is_no_reason_to_let_the_command_run(self):
        for trap in ("exit 3", ""):
            with self.subTest(trap=trap):
                for op in ("run", "logs"):
                    self.cloud.fault(op, always=True, insert=b"nonsense\n", after_lines=0 if op == "logs" else 1)
                begun = time.monotonic()
                reply = self.run_inside("sh", "-c", f"trap '{trap}' TERM; while :; do sleep 0.1; done")
                error = self.error_of(reply)
                self.assertEqual((reply.status, error["code"], error["disposition"]["delivery"]),
                                 (1, "ACTION_FAILED", "delivered_unverified"))
                self.assertIn("ended", error["suggestion"])
                self.assertLess(time.monotonic() - begun, 6)
                self.wait_command_end(1)
                self.assertEqual(self.last_command()["exitCode"], 3 if trap else 137)
                self.cloud.clear_faults()

    @unittest.skipIf(USER.is_root, "the limit does not hold for root")
    def test_r504_where_no_thread_can_write_the_output_it_is_not_read_again(self):
        held = self.cloud.fault("run", hold="before")
        self.cloud.forget_requests()
        process = self.start_inside("sh", "-c", "echo hello; sleep 327")
        held.wait()
        subprocess.run(["prlimit", f"--pid={process.pid}", "--nproc=1"], check=True, **USER.switch)
        held.release()
        self.finish(process, 10)
        error = self.error_of(process)
        self.assertEqual((process.status, error["code"], error["disposition"]["retry"]), (1, "LIMIT_REACHED", "unsafe"))
        self.assertEqual(self.cloud.requests_of("logs"), [])
        self.wait_command_end(2)

    def test_r504_an_end_that_is_known_is_told_although_less_output_is_told_than_before(self):
        self.cloud.fault("run", drop_last=True)
        self.cloud.fault("logs", always=True, body=b'{"stream":"stdout","data":"hel"}\n', type="application/x-ndjson")
        begun = time.monotonic()
        reply = self.run_inside("sh", "-c", "printf hello; exit 9")
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual((reply.status, reply.out), (1, b"hello"))
        error = self.error_of(reply, "err")
        self.assertEqual((error["code"], error["disposition"]["delivery"], error["disposition"]["retry"]),
                         ("ACTION_FAILED", "delivered_unverified", "unsafe"))
        self.assertIn("has ended with status 9", error["message"])

    def test_r504_output_that_is_told_in_full_a_moment_later_is_complete(self):
        self.cloud.fault("run", drop_last=True)
        self.cloud.fault("logs", first=3, body=b'{"stream":"stdout","data":"hel"}\n', type="application/x-ndjson")
        reply = self.run_inside("sh", "-c", "printf hello; exit 9")
        self.assertEqual((reply.status, reply.out, reply.err), (9, b"hello", b""))

    def test_r501_a_token_in_the_stream_does_not_get_into_a_message(self):
        token = self.cloud.token
        said = f"Bearer {token} is bad " + "x" * (256 - len(f"Bearer {token} is bad ") - 5) + token  # cut in its middle
        for after_lines, place in ((0, "before"), (1, "after")):
            with self.subTest(place=place):
                self.cloud.fault("run", error_line=token, message=said, after_lines=after_lines)
                self.cloud.fault("logs", always=True, status=410)
                reply = self.run_inside("true")
                error = self.error_of(reply)
                self.assertEqual(reply.status, 1)
                self.assertIn("...: Bearer ... is bad", error["message"])
                self.assertNotIn(token[:5], error["message"])
                self.cloud.clear_faults()

    def test_case_9_one_line_of_many_megabytes(self):
        self.cloud.fault("run", big_line=8 * MIB)
        reply = self.run_inside("true")
        self.assertEqual((reply.status, len(reply.out), reply.out.strip(b"x")), (0, 8 * MIB, b""))

    def test_r504_a_slow_drip(self):
        self.cloud.fault("run", bytes_per_second=400, pieces=5)
        reply = self.run_inside("printf", "drop by drop")
        self.assertEqual((reply.status, reply.out), (0, b"drop by drop"))

    # --- a lot of it -----------------------------------------------------------------------------------------

    def test_case_10_64_mib_to_a_slow_reader(self):
        size = 64 * MIB
        process = self.start_inside("sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x")
        time.sleep(0.5)  # the reader sleeps: the point of the case
        count = peak = 0
        while chunk := process.stdout.read(MIB):
            count += len(chunk)
            if count < size - 4 * MIB:  # it has not ended yet
                peak = max(peak, peak_kib(process))
        self.assertEqual((count, process.wait(10)), (size, 0))
        if not SANITIZED:
            self.assertLess(peak, 24 * 1024)

    def test_case_10_both_streams_full_and_one_read_late(self):
        for size in (3000000, 20 * MIB):
            script = f"head -c {size} /dev/zero | tr '\\0' x >&2 & head -c {size} /dev/zero | tr '\\0' x; wait"
            for first, second in (("stdout", "stderr"), ("stderr", "stdout")):
                with self.subTest(first=first, size=size):
                    process = self.start_inside("sh", "-c", script)
                    early = getattr(process, first).read(size)  # all of it; its end comes with the command's
                    if not SANITIZED:
                        self.assertLess(peak_kib(process), 24 * 1024)
                    late = getattr(process, second).read()
                    self.assertEqual((len(early), len(late), process.wait(10)), (size, size, 0))

    def test_case_10_a_reader_that_leaves_ends_the_command(self):
        process = self.start_inside("yes", "leaving reader")
        self.assertEqual(process.stdout.read(10), b"leaving re")
        process.stdout.close()
        begun = time.monotonic()
        self.assertEqual(process.wait(timeout=10), 128 + signal.SIGPIPE)
        self.assertLess(time.monotonic() - begun, 3)  # a second and a half, of a machine with much else to do
        self.wait_command_end(2)

    def test_case_10_a_disk_that_is_full_is_an_error(self):
        report = os.path.join(self.desk.base, "report")
        with open("/dev/full", "wb") as full:
            reply = self.finish(self.start_inside("yes", stdout=full, options=("--report", report)))
        with open(report, "rb") as f:
            error = envelope(f.read().strip(), reply)["error"]
        self.assertEqual((reply.status, error["code"]), (1, "STORE_FULL"))
        self.assertIn("stdout cannot be written", error["message"])
        self.wait_command_end(2)

    # --- signals and the time limit --------------------------------------------------------------------------

    def test_r207_time_limit_before_any_output(self):
        begun = time.monotonic()
        reply = self.run_inside("sleep", "317", options=("--timeout", "0.3"))
        self.assertLess(time.monotonic() - begun, 2)
        error = self.error_of(reply)
        self.assertEqual((reply.status, error["code"], error["disposition"]["retry"]), (1, "TIMEOUT", "unsafe"))
        self.wait_command_end(2)

    def test_r207_after_a_guest_byte_the_envelope_goes_to_stderr(self):
        reply = self.run_inside("sh", "-c", "echo hi; sleep 318", options=("--timeout=0.5",))
        self.assertEqual((reply.status, reply.out), (1, b"hi\n"))
        self.assertEqual(self.error_of(reply, "err")["code"], "TIMEOUT")

    def test_r207_the_time_limit_while_the_reader_does_not_read(self):
        process = self.start_inside("yes", options=("--timeout=0.5",))
        self.assertEqual(process.wait(timeout=8), 1)
        self.wait_command_end(2)

    def test_r207_a_guest_that_ignores_the_time_limit_is_killed(self):
        begun = time.monotonic()
        reply = self.run_inside("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", options=("--timeout=0.5",))
        self.assertEqual(self.error_of(reply)["code"], "TIMEOUT")
        self.assertLess(time.monotonic() - begun, 6)
        self.assertEqual(self.last_command()["exitCode"], 137)

    def test_r504_the_guest_has_a_time_limit_of_its_own_a_little_above(self):
        self.run_inside("true", options=("--timeout=20",))
        request = self.cloud.requests_of("run")[-1]
        self.assertTrue(20000 < json.loads(request.body)["timeout"] <= 25000)

    def test_case_12_signals_to_the_host_command_reach_the_guest(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                script = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
                process = self.start_inside("sh", "-c", script)
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(number)
                self.finish(process, 5)
                self.assertEqual((process.out, process.status), (b"got\n", 128 + number), process.err)
                self.assertEqual(self.last_command()["exitCode"], 9)

    def test_case_12_a_guest_that_ignores_the_signal_is_killed(self):
        process = self.start_inside("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        begun = time.monotonic()
        process.terminate()
        self.finish(process, 8)
        self.assertEqual((process.status, process.err), (143, b""))
        self.assertTrue(1.9 < time.monotonic() - begun < 4)
        self.assertEqual(self.last_command()["exitCode"], 137)

    def test_case_12_a_signal_whatever_the_service_makes_of_it(self):
        """Whom a kill reaches, and when a command counts as ended, nobody has told."""
        for reaches in ("group", "process"):
            for end in ("pipes", "process"):
                with self.subTest(kill_reaches=reaches, command_ends_with=end):
                    self.cloud.set(kill_reaches=reaches, command_ends_with=end)
                    process = self.start_inside("sh", "-c", "echo ready; sleep 3; true")
                    self.assertEqual(process.stdout.readline(), b"ready\n")
                    begun = time.monotonic()
                    process.terminate()
                    self.finish(process, 10)
                    self.assertEqual(process.status, 143)
                    self.assertLess(time.monotonic() - begun, 6)
        self.cloud.set(kill_reaches="group", command_ends_with="pipes")

    def test_case_12_a_signal_while_the_reader_does_not_read(self):
        process = self.start_inside("yes")
        self.assertEqual(process.stdout.read(2), b"y\n")
        time.sleep(0.5)  # until everything is full
        process.terminate()
        self.assertEqual(process.wait(timeout=8), 143)
        self.wait_command_end(2)

    def test_case_12_a_signal_when_the_service_does_not_answer_any_more(self):
        """It is sent at once, and SIGKILL two seconds later, which are waited for as long."""
        self.cloud.forget_requests()
        for op in ("kill", "logs"):
            self.cloud.fault(op, always=True, stuck="before")
        self.cloud.fault("run", stuck="body", cut=400)
        process = self.start_inside("sh", "-c", "echo ready; sleep 30")
        wait_until(lambda: self.cloud.requests_of("run"), what="the run")
        time.sleep(0.5)
        begun = time.monotonic()
        process.terminate()
        wait_until(lambda: self.cloud.requests_of("kill"), 1, "the signal")
        self.finish(process, 15)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(process.status, 143)
        self.assertEqual([request.json["signal"] for request in self.cloud.requests_of("kill")], [15, 9])

    def test_case_12_a_signal_while_the_session_is_not_ready(self):
        for op in ("run", "session"):
            with self.subTest(silent=op):
                self.cloud.forget_requests()
                self.cloud.fault("session", always=True, stuck="before" if op == "session" else None,
                                 body={"session": {"status": "pending"}})
                self.cloud.fault("run", always=True, status=422, code="sandbox_not_ready")
                before = self.runs()
                process = self.start_inside("true")
                wait_until(lambda: self.cloud.requests_of("session"), what="the question whether it is pending")
                begun = time.monotonic()
                process.terminate()
                self.finish(process, 15)
                self.assertLess(time.monotonic() - begun, 2)
                self.assertEqual((process.status, process.err, self.runs()), (143, b"", before))
                self.cloud.clear_faults()

    def test_r207_the_time_limit_while_the_session_is_not_ready(self):
        self.cloud.forget_requests()
        self.cloud.fault("session", always=True, stuck="before")
        self.cloud.fault("run", always=True, status=422, code="sandbox_not_ready")
        begun = time.monotonic()
        reply = self.run_inside("true", options=("--timeout=1.5",))
        self.assertLess(time.monotonic() - begun, 3.5)
        self.assert_not_sent(reply, "TIMEOUT", "the time was over")

    def test_case_12_a_signal_before_the_command_was_taken(self):
        before = self.runs()
        self.cloud.fault("get", stuck="before")
        process = self.start_inside("true")
        time.sleep(0.5)
        begun = time.monotonic()
        process.terminate()
        self.finish(process, 15)
        self.assertLess(time.monotonic() - begun, 2)
        self.assertEqual((process.status, self.runs()), (143, before))

    def test_case_12_death_of_the_host_command_is_bounded_by_the_guests_own_limit(self):
        process = self.start_inside("sh", "-c", "echo ready; sleep 321", options=("--timeout=1",))
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.kill()
        process.communicate()
        self.wait_command_end(8)
        attempts = [e for e in self.desk.events("demo") if e["kind"] == "exec"]
        open_attempts = {e["attempt"] for e in attempts} - {e["attempt"] for e in attempts if e["phase"] != "begin"}
        self.assertTrue(open_attempts)

    def test_r213_ctrl_z_stops_the_command_and_fg_continues_it(self):
        script = "import time\nprint('ready', flush=True)\nfor i in range(10): time.sleep(0.05); print(i, flush=True)"
        process = self.start_inside(PYTHON, "-c", script, process_group=0)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: self.state_of(process.pid) == "T", 5, "the client's stop")
        pid = self.last_command()["pid"]
        self.assertEqual(self.state_of(pid), "T")
        process.send_signal(signal.SIGCONT)
        self.finish(process, 10)
        self.assertEqual((process.status, process.out), (0, "".join(f"{i}\n" for i in range(10)).encode()))

    @staticmethod
    def state_of(pid):
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rsplit(b")", 1)[1].split()[0].decode()

    # --- stdin ---------------------------------------------------------------------------------------------------

    def test_r504_stdin_that_has_nothing_is_no_trouble(self):
        empty = os.path.join(self.desk.base, "empty")
        with open(empty, "wb"):
            pass
        os.chmod(empty, 0o644)
        reader, writer = os.pipe()  # open, and nothing ever comes
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        closed, other = os.pipe()
        os.close(other)
        self.addCleanup(os.close, closed)
        with open(empty, "rb") as file:
            for stdin in (subprocess.DEVNULL, file, reader, closed):
                reply = self.run_inside("sh", "-c", "cat; exit 5", stdin=stdin)
                self.assertEqual((reply.status, reply.out, reply.err), (5, b"", b""), stdin)

    def test_r504_stdin_that_has_something_is_refused_and_kept(self):
        before = self.runs()
        content = os.path.join(self.desk.base, "content")
        with open(content, "wb") as f:
            f.write(b"content")
        os.chmod(content, 0o644)
        reader, writer = os.pipe()
        os.write(writer, b"piped")
        ours, theirs = socket.socketpair()
        ours.send(b"sent")
        with open(content, "rb", buffering=0) as file, ours, theirs:
            for stdin, read in ((file, lambda: file.read()), (reader, lambda: os.read(reader, 9)), (theirs, lambda: theirs.recv(9))):
                reply = self.run_inside("cat", stdin=stdin)
                self.assertEqual(reply.status, 2)
                error = self.assert_not_sent(reply, "INVALID_ARGS", "</dev/null")
                self.assertIn("</dev/null", error["suggestion"])
                self.assertIn(read(), (b"content", b"piped", b"sent"))
            with open("/dev/zero", "rb") as zero:
                self.assert_not_sent(self.run_inside("cat", stdin=zero), "INVALID_ARGS", "</dev/null")
        os.close(reader)
        os.close(writer)
        self.assertEqual(self.runs(), before)

    def test_r504_stdin_that_gets_something_later_ends_the_command(self):
        reader, writer = os.pipe()
        process = self.start_inside("sh", "-c", "echo ready; exec sleep 320", stdin=reader)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        os.write(writer, b"late")
        self.finish(process, 5)
        error = self.error_of(process, "err")
        self.assertEqual((process.status, error["code"], error["disposition"]["retry"]), (1, "ACTION_FAILED", "unsafe"))
        self.assertIn("stdin", error["message"])
        self.assertEqual(os.read(reader, 9), b"late")
        os.close(reader)
        os.close(writer)
        self.wait_command_end(2)

    def test_r213_a_directory_as_a_stream_is_refused(self):
        directory = os.open(self.desk.base, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        self.assert_not_sent(self.run_inside("ls", stdin=directory), "INVALID_ARGS", "stdin is a directory")

    # --- what is not there -----------------------------------------------------------------------------------

    def test_r213_a_program_that_is_not_there(self):
        reply = self.run_inside("no-such-program")
        self.assertEqual(reply.status, 1)
        error = self.assert_not_sent(reply, "ACTION_FAILED", "no-such-program")
        self.assertEqual(error["disposition"]["retry"], "safe")
        self.assertIn("Nothing ran.", error["suggestion"])

    def test_r504_without_the_wrapper_exec_says_that_run_works(self):
        self.desk.create("bare", "--set", "runtime=node24")
        reply = self.finish(self.desk.popen("sandbox", "exec", "bare", "--", "version"))
        self.assertEqual(reply.status, 1)
        error = self.assert_not_sent(reply, "ACTION_FAILED", "run works")
        self.assertIn("without a desktop image", error["message"])
        reply = self.finish(self.desk.popen("sandbox", "run", "bare", "--", "echo", "ok"))
        self.assertEqual((reply.status, reply.out), (0, b"ok\n"))
        self.desk.stop("bare")
        self.desk.ok("rm", "bare")

    def test_case_16_credentials_that_are_refused_are_told_and_keep_the_record(self):
        before = self.runs()
        for op in ("get", "run"):
            for status in (401, 403):
                with self.subTest(op=op, status=status):
                    self.cloud.fault(op, status=status)
                    reply = self.run_inside("true")
                    error = self.assert_not_sent(reply, "AUTH_FAILED", "VERCEL_TOKEN")
                    self.assertNotIn(self.cloud.token, json.dumps(error))
        self.assertEqual((self.runs(), self.desk.state("demo")), (before, "running"))

    def test_case_16_a_token_that_expires_while_the_command_runs(self):
        self.cloud.fault("run", cut=400, cut_by="reset")
        for op in ("logs", "get command"):
            self.cloud.fault(op, always=True, status=403)
        reply = self.run_inside("sh", "-c", "printf hello; sleep 0.3")
        error = self.error_of(reply, "err" if reply.out.startswith(b"hello") else "out")
        self.assertEqual((error["code"], error["disposition"]["retry"]), ("AUTH_FAILED", "unsafe"))

    def test_case_15_a_service_that_does_not_answer_is_bounded_by_the_time_limit(self):
        self.cloud.fault("get", always=True, stuck="before")
        begun = time.monotonic()
        reply = self.run_inside("true", options=("--timeout=1",))
        self.assertLess(time.monotonic() - begun, 3)
        self.assertEqual(reply.status, 1)
        self.assertEqual(self.error_of(reply)["code"], "TIMEOUT")
        self.cloud.clear_faults()
        self.cloud.fault("run", stuck="before")
        begun = time.monotonic()
        reply = self.run_inside("true", options=("--timeout=1",))
        self.assertLess(time.monotonic() - begun, 5)
        error = self.error_of(reply)
        self.assertEqual((error["code"], error["disposition"]["delivery"]), ("TIMEOUT", "unknown"))


class VercelSessionEndTest(RunningCloudTest):
    """The session ends under the command: each needs one of its own."""

    def setUp(self):
        if self.desk.state("demo") == "stopped":
            self.desk.start("demo")

    def stop_it(self):
        self.cloud.stop_session(self.desk.hosted("demo"))

    def test_r506_a_session_that_is_stopped_meanwhile_is_no_status(self):
        for how in ("error", "early", "reset"):
            with self.subTest(how=how):
                self.setUp()
                self.cloud.set(stop_ends_streams=how)
                process = self.desk.popen("sandbox", "run", "demo", "--", "sh", "-c", "echo ready; sleep 30")
                self.assertEqual(process.stdout.readline(), b"ready\n")
                self.stop_it()
                out, err = process.communicate(timeout=15)
                self.assertEqual((process.returncode, out), (1, b""))
                error = envelope(err.strip().split(b"\n")[-1], err)["error"]
                self.assertEqual((error["code"], error["disposition"]["retry"]), ("INVALID_STATE", "unsafe"))
                self.assertEqual(error["details"]["delivery"], "sent")
                self.assertEqual(self.desk.state("demo"), "stopped")

    def test_r506_a_session_that_has_ended_is_no_sandbox_that_is_gone(self):
        for status, code, times, words in ((410, "sandbox_stopped", 1, "session of 'demo' has ended"),
                                           (404, "not_found", 2, "has no 'demo' any more")):  # asked for twice
            with self.subTest(status=status):
                self.cloud.fault("get", first=times, status=status, code=code)
                process = self.desk.popen("sandbox", "run", "demo", "--", "true")
                out, _ = process.communicate(timeout=15)
                error = envelope(out.strip(), out)["error"]
                self.assertEqual((process.returncode, error["code"]), (1, "INVALID_STATE"))
                self.assertIn(words, error["message"])

    def test_r506_a_stopped_one_is_not_woken(self):
        self.stop_it()
        resumes = len(self.cloud.sessions)
        process = self.desk.popen("sandbox", "run", "demo", "--", "true")
        out, _ = process.communicate(timeout=15)
        error = envelope(out.strip(), out)["error"]
        self.assertEqual((process.returncode, error["code"], error["recovery"]["next"]),
                         (1, "INVALID_STATE", "agent-desktop sandbox start demo"))
        self.assertEqual(len(self.cloud.sessions), resumes)


if __name__ == "__main__":
    main()
