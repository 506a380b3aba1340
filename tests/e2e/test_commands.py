"""Section 2 of the requirements: the commands, what they answer and what they refuse."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import termios

from harness import AD, USER, DeskTest, envelope, main, wait_until


class InstallTest(DeskTest):
    def test_r201_r301_every_provider_is_reported(self):
        providers = self.desk.ok("install")["providers"]
        linux = next(p for p in providers if p["provider"] == "linux")
        self.assertEqual(linux["state"], "ready")
        self.assertEqual(linux["next_argv"], ["agent-desktop", "sandbox", "create", "desktop", "--provider", "linux"])
        self.assertTrue(linux["message"])

    def test_r202_installing_what_is_ready_changes_nothing(self):
        for _ in range(2):
            self.assertEqual(self.desk.ok("install", "linux")["state"], "ready")
        self.assertFalse(os.path.exists(self.desk.root))

    def test_r202_unknown_provider(self):
        error = self.desk.fails("PROVIDER_NOT_FOUND", "install", "linus")
        self.assertIn("linux", error["message"] + error.get("suggestion", ""))

    def test_r301_r601_a_missing_package_is_named_with_the_command_that_installs_it(self):
        if not USER.is_root:
            self.skipTest("hiding a program of the host needs root")
        hide = 'mount --bind /dev/null /usr/bin/Xvfb && exec "$@"'

        def without_xvfb(*args):
            done = subprocess.run(["unshare", "-m", "sh", "-c", hide, "sh", AD, "sandbox", *args], env=self.desk.env,
                                  stdout=subprocess.PIPE)
            return envelope(done.stdout.strip(), args)

        data = without_xvfb("install", "linux")["data"]
        self.assertEqual((data["state"], data["needs_person"]), ("unavailable", True))
        self.assertIn("apt-get install", data["next"])
        self.assertIn("xvfb", data["next"])
        error = without_xvfb("create", "demo")["error"]
        self.assertEqual((error["code"], error["recovery"]["next"]),
                         ("PROVIDER_UNAVAILABLE", "agent-desktop sandbox install linux"))
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")


class CreateTest(DeskTest):
    def test_r203_bad_options_do_nothing_and_name_what_is_accepted(self):
        cases = [
            (["--set", "colour=blue"], "colour"),
            (["--set", "screen"], "screen"),
            (["--set", "=x"], "="),
            (["--set", "screen=1280x800", "--set", "screen=640x480"], "screen"),
            (["--set", "screen=big"], "screen"),
            (["--set", "screen=0x0"], "screen"),
            (["--set", "net=maybe"], "net"),
            (["--provider", "linus"], "linus"),
        ]
        for options, word in cases:
            with self.subTest(options=options):
                reply = self.desk.sandbox("create", "demo", *options)
                self.assertIn(reply.code, ("INVALID_ARGS", "PROVIDER_NOT_FOUND"))
                self.assertIn(word, reply.error["message"])
        message = self.desk.fails("INVALID_ARGS", "create", "demo", "--set", "colour=blue")
        for key in ("screen", "net", "from"):
            self.assertIn(key, message["message"] + message.get("suggestion", ""))
        self.assertFalse(os.path.exists(self.desk.path("sandboxes", "demo")))
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")

    def test_r214_options_stand_anywhere_in_both_forms(self):
        for i, args in enumerate((
            ["--provider", "linux", "NAME", "--set", "screen=800x600"],
            ["NAME", "--provider=linux", "--set=screen=800x600"],
            ["--set", "screen=800x600", "--", "NAME"],
        )):
            name = f"n{i}"
            self.assertEqual(self.desk.ok("create", *[name if a == "NAME" else a for a in args])["name"], name)

    def test_r214_the_nearest_word_is_named(self):
        for args, word in ((["sandbox", "statsu", "x"], "status"), (["sandbox", "create", "x", "--provder=linux"], "--provider"),
                           (["snadbox"], "sandbox")):
            error = self.desk.ad(*args).error
            self.assertIn(word, error["message"] + error.get("suggestion", ""))

    def test_r203_screen_is_what_was_asked_for(self):
        self.desk.ok("create", "demo", "--set", "screen=1024x600")
        self.desk.ok("start", "demo", "--wait=60")
        reply = self.desk.raw("sandbox", "exec", "demo", "--", "screenshot", "--out", "/tmp/x.png")
        data = envelope(reply.out.strip(), reply)["data"]
        self.assertEqual((data["width"], data["height"]), (1024, 600))

    def test_r203_net_none_has_no_network_but_itself(self):
        self.desk.ok("create", "demo", "--set", "net=none")
        self.desk.ok("start", "demo", "--wait=60")
        out = self.desk.raw("sandbox", "run", "demo", "--", "cat", "/proc/net/dev").out.decode()
        names = [line.split(":")[0].strip() for line in out.splitlines() if ":" in line]
        self.assertEqual(names, ["lo"])

    def test_r412_style_clone_of_what_cannot_be_cloned(self):
        self.desk.ok("create", "base")
        self.desk.ok("start", "base", "--wait=60")
        error = self.desk.fails("INVALID_STATE", "create", "work", "--set", "from=base")
        self.assertEqual((error["details"]["name"], error["details"]["state"]), ("base", "running"))
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop base")
        self.desk.fails("SANDBOX_NOT_FOUND", "create", "work", "--set", "from=nosuch")
        self.desk.fails("SANDBOX_EXISTS", "create", "base", "--set", "from=base")
        self.assertEqual([s["name"] for s in self.desk.ok("list")["sandboxes"]], ["base"])


class LifeTest(DeskTest):
    def test_r204_starting_what_runs_changes_nothing(self):
        self.desk.ok("create", "demo")
        self.assertEqual(self.desk.ok("start", "demo", "--wait=60")["state"], "running")
        events = len(self.desk.events("demo"))
        self.assertEqual(self.desk.ok("start", "demo")["state"], "running")
        self.assertEqual(len(self.desk.events("demo")), events)

    def test_r204_a_window_is_refused_where_there_is_none(self):
        self.desk.ok("create", "demo")
        self.assertIn(self.desk.sandbox("start", "demo", "--window").code, ("INVALID_ARGS", "PLATFORM_NOT_SUPPORTED"))
        self.assertEqual(self.desk.state("demo"), "stopped")

    def test_r206_list_filters(self):
        for name in ("a", "b", "c"):
            self.desk.ok("create", name)
        self.desk.ok("start", "b", "--wait=60")

        def names(*filters):
            return [s["name"] for s in self.desk.ok("list", *filters)["sandboxes"]]

        self.assertEqual(names(), ["a", "b", "c"])
        self.assertEqual(names("--state", "running"), ["b"])
        self.assertEqual(names("--state=stopped"), ["a", "c"])
        self.assertEqual(names("--provider", "linux"), ["a", "b", "c"])
        self.assertEqual(names("--state", "stopped", "--provider", "linux"), ["a", "c"])
        self.assertIn(self.desk.sandbox("list", "--provider", "linus").code, ("PROVIDER_NOT_FOUND", "INVALID_ARGS"))

    def test_r208_r209_stop_and_rm(self):
        self.desk.ok("create", "demo")
        self.assertEqual(self.desk.ok("stop", "demo")["state"], "stopped")
        self.desk.ok("start", "demo", "--wait=60")
        error = self.desk.fails("INVALID_STATE", "rm", "demo")
        self.assertEqual(error["details"]["state"], "running")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop demo")
        self.assertEqual(self.desk.ok("stop", "demo")["state"], "stopped")
        data = self.desk.ok("rm", "demo")
        self.assertEqual((data["name"], data["state"]), ("demo", "missing"))
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])
        self.desk.fails("SANDBOX_NOT_FOUND", "rm", "demo")

    def test_r211_wait_shows_progress_on_stderr_only(self):
        self.desk.ok("create", "demo", "--wait")
        reply = self.desk.sandbox("start", "demo", "--wait")
        self.assertEqual(reply.data["state"], "running")

    def test_r211_wait_ends_with_timeout_and_the_work_goes_on(self):
        self.desk.ok("create", "demo")
        reply = self.desk.sandbox("start", "demo", "--wait=0.001")
        if reply.json["ok"]:
            self.assertEqual(reply.data["state"], "running")
        else:
            self.assertEqual(reply.code, "TIMEOUT")
        wait_until(lambda: self.desk.state("demo") == "running", 20, "the start")

    def test_r211_wait_ends_with_action_failed_when_the_work_failed(self):
        self.desk.ok("create", "demo")
        os.rmdir(self.desk.path("sandboxes", "demo", "root"))
        with open(self.desk.path("sandboxes", "demo", "root"), "w", encoding="utf-8"):
            pass
        reply = self.desk.sandbox("start", "demo", "--wait")
        if not reply.json["ok"]:
            self.assertEqual(reply.code, "ACTION_FAILED")
            self.assertEqual(self.desk.state("demo"), "stopped")


class HostileCallerTest(DeskTest):
    def test_r101_a_file_size_limit_is_an_error_and_no_signal_death(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        reply = self.desk.sandbox("create", "demo", preexec_fn=limit)
        self.assertEqual(reply.code, "STORE_FULL")

    def test_r208_a_stop_needs_no_log(self):
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        logs = self.desk.path("logs")
        if os.path.isdir(logs):
            os.rename(logs, logs + "-away")
        os.symlink("/", logs)
        self.assertEqual(self.desk.ok("stop", "demo", "--wait=60")["state"], "stopped")
        os.unlink(logs)


class LogTest(DeskTest):
    def test_r210_the_whole_story_also_of_removed_ones(self):
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        self.desk.raw("sandbox", "run", "demo", "--", "true")
        self.desk.ok("stop", "demo")
        self.desk.ok("rm", "demo")
        events = self.desk.events("demo")
        moves = [(e["event"], e["from"], e["to"]) for e in events if e["kind"] == "move"]
        self.assertEqual(moves, [
            ("create", "missing", "working"), ("done", "working", "stopped"), ("start", "stopped", "working"),
            ("guest_ready", "working", "running"), ("stop", "running", "working"), ("done", "working", "stopped"),
            ("remove", "stopped", "working"), ("done", "working", "missing"),
        ])
        self.assertEqual({e["kind"] for e in events}, {"op", "move", "step", "end", "exec"})
        self.assertEqual([e["seq"] for e in events], sorted(e["seq"] for e in events))
        for event in events:
            self.assertIn("time", event)

    def test_design_commits_of_each_command(self):
        """create 2, start 3, stop 2, rm 3, exec 2 commits: entries that become true together share a transaction."""
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        self.desk.raw("sandbox", "run", "demo", "--", "true")
        self.desk.ok("stop", "demo")
        self.desk.ok("rm", "demo")
        steps = [(e["step"], e["phase"]) for e in self.desk.events("demo") if e["kind"] == "step"]
        begins = [step for step, phase in steps if phase == "begin"]
        self.assertEqual(len(begins), 1 + 2 + 1 + 2)

    def test_r210_limit_and_since(self):
        for _ in range(3):
            self.desk.ok("create", "demo")
            self.desk.ok("rm", "demo")
        everything = self.desk.events("demo")
        self.assertEqual(self.desk.ok("log", "demo", "--limit", "2")["events"], everything[-2:])
        self.assertEqual(self.desk.ok("log", "demo", "--since", "1h", "--limit", "1000")["events"], everything)
        self.assertEqual(self.desk.ok("log", "demo", "--since", "2999-01-01T00:00:00Z")["events"], [])
        self.assertEqual(self.desk.ok("log", "nosuch")["events"], [])

    def test_r210_verify_says_where_the_chain_breaks(self):
        self.desk.ok("create", "demo")
        data = self.desk.ok("log", "--verify")
        self.assertTrue(data["verified"])
        self.assertNotIn("broken_at", data)
        path = self.desk.path("journal", "data.mdb")
        with open(path, "rb") as f:
            content = bytearray(f.read())
        places = []
        at = content.find(b"directories") if b"directories" in content else content.find(b"create")
        while at >= 0:
            places.append(at)
            at = content.find(b"create", at + 1)
        for at in places:
            content[at] ^= 0x20
        with open(path, "wb") as f:
            f.write(content)
        reply = self.desk.sandbox("log", "--verify")
        if reply.json["ok"]:
            self.assertFalse(reply.data["verified"])
            self.assertGreater(reply.data["broken_at"], 0)
        else:
            self.assertEqual(reply.code, "STORE_CORRUPT")

    def test_r210_follow_prints_events_as_they_come(self):
        self.desk.ok("create", "demo")
        process = self.desk.popen("sandbox", "log", "demo", "--follow", "--limit", "1")
        first = json.loads(process.stdout.readline())
        self.assertEqual(first["kind"], "end")
        self.desk.ok("rm", "demo")
        kinds = []
        while kinds[-1:] != ["end"]:
            kinds.append(json.loads(process.stdout.readline())["kind"])
        self.assertIn("move", kinds)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=5)
        self.assertEqual((out, process.returncode), (b"", 0))


    def test_r210_follow_ends_when_nobody_reads_on(self):
        self.desk.ok("create", "demo")
        process = self.desk.popen("sandbox", "log", "demo", "--follow", "--limit", "1")
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=5), 0)  # though no further event comes
        process.stderr.close()

    def test_r210_a_signal_ends_follow_while_its_reader_pauses(self):
        for command in ("create", "rm", "create"):
            self.desk.ok(command, "demo")
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # far less than there is to print
        process = self.desk.popen("sandbox", "log", "demo", "--follow", stdout=writer)
        os.close(writer)
        wait_until(lambda: int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder), what="a line")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=5), 0)
        os.close(reader)
        process.stderr.close()

    def test_r210_follow_waits_for_a_busy_journal(self):
        self.desk.ok("create", "demo")
        process = self.desk.popen("sandbox", "log", "demo", "--follow", "--limit", "1")
        process.stdout.readline()
        with open(self.desk.path("journal", "lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for _ in range(2):  # each waits as long as the follower does: that has met its limit then
                self.desk.fails("STORE_BUSY", "status", "demo")
            self.assertIsNone(process.poll())
        self.desk.ok("rm", "demo")
        kinds = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        self.assertEqual(kinds, ["op", "move"])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=5)
        self.assertEqual(process.returncode, 0)


class RecoverTest(DeskTest):
    def test_r212_a_stopped_one_is_left_alone_or_started_and_said_so(self):
        self.desk.ok("create", "demo")
        data = self.desk.ok("recover", "demo")
        self.assertIn(data["state"], ("stopped", "running"))
        self.assertIsInstance(data["ran"], list)

    def test_r212_never_removes_unless_told_to(self):
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        self.assertEqual(self.desk.ok("recover", "demo")["state"], "running")
        self.desk.fails("SANDBOX_NOT_FOUND", "recover", "nosuch")


class LightTest(DeskTest):
    def test_status_list_and_log_map_no_heavy_library(self):
        """Issue acceptance: no libcurl, libssh2 or libcrypto in what only looks."""
        self.desk.ok("create", "demo")
        for args in (["status", "demo"], ["list"], ["log", "demo"]):
            done = subprocess.run([AD, "sandbox", *args], env={**self.desk.env, "LD_DEBUG": "libs"}, cwd=self.desk.base,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, **USER.switch)
            self.assertEqual(done.returncode, 0)
            self.assertIn(b"libc.so", done.stderr)
            for library in (b"libcurl", b"libssh2", b"libcrypto", b"libatspi", b"libglib", b"libxcb"):
                self.assertNotIn(library, done.stderr)


if __name__ == "__main__":
    main()
