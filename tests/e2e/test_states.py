"""Section 3 of the requirements: what a state means, whoever was killed."""

import os
import shutil
import signal
import subprocess
import time

from harness import USER, DeskTest, alive, main, wait_until


def supervisor_of(desk, name):
    """The pid that the journal has for the sandbox's PID 1."""
    for event in reversed(desk.events(name)):
        pid = event.get("facts", {}).get("pid")
        if pid:
            return int(pid)
    raise AssertionError("no supervisor in the journal")


class StateTest(DeskTest):
    def start(self, name="demo"):
        self.desk.ok("create", name)
        self.assertEqual(self.desk.ok("start", name, "--wait=60")["state"], "running")
        return supervisor_of(self.desk, name)

    def test_r302_states_of_a_life(self):
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")
        self.assertEqual(self.desk.ok("create", "demo")["state"], "stopped")
        self.assertEqual(self.desk.ok("start", "demo", "--wait=60")["state"], "running")
        self.assertNotIn("next", self.desk.ok("status", "demo"))
        self.assertEqual(self.desk.ok("stop", "demo")["state"], "stopped")

    def test_r303_refusals_change_nothing_and_are_recorded_once(self):
        self.start()
        before = [e for e in self.desk.events("demo") if e["kind"] != "refused"]
        for _ in range(3):
            self.desk.fails("INVALID_STATE", "rm", "demo")
        after = self.desk.events("demo")
        self.assertEqual([e for e in after if e["kind"] != "refused"], before)
        self.assertEqual([(e["event"], e["state"]) for e in after if e["kind"] == "refused"], [("remove", "running")])

    def test_r304_two_starts_at_once_make_one_session(self):
        self.desk.ok("create", "demo")
        starts = [self.desk.popen("sandbox", "start", "demo", "--wait=60") for _ in range(8)]
        for process in starts:
            process.communicate()
        self.assertEqual(self.desk.state("demo"), "running")
        moves = [e["event"] for e in self.desk.events("demo") if e["kind"] == "move"]
        self.assertEqual(moves, ["create", "done", "start", "guest_ready"])

    def test_r304_two_creates_at_once_make_one(self):
        creates = [self.desk.popen("sandbox", "create", "demo") for _ in range(8)]
        codes = [p.wait() for p in creates if p.communicate()]
        self.assertEqual(sorted(codes), [0] + [1] * 7)

    def test_r307_a_supervisor_that_died_is_seen_at_the_next_look(self):
        for look in (["status", "demo"], ["list"], ["log", "demo"]):
            with self.subTest(look=look[0]):
                pid = self.start()
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not alive(pid), 5, "the supervisor's death")
                if look[0] == "list":
                    self.assertEqual(self.desk.ok("list")["sandboxes"][0]["state"], "stopped")
                self.assertEqual(self.desk.state("demo"), "stopped")
                self.assertIn("guest_gone", [e["event"] for e in self.desk.events("demo") if e["kind"] == "move"])
                self.desk.ok("rm", "demo")

    def test_r307_every_program_inside_ends_with_the_supervisor(self):
        pid = self.start()
        self.desk.raw("sandbox", "run", "demo", "--", "sh", "-c", "setsid sleep 331 >/dev/null 2>&1 &")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: subprocess.run(["pgrep", "-f", "sleep 331"], stdout=subprocess.DEVNULL).returncode, 5, "the end")

    def test_r307_a_session_ends_with_its_lock_or_the_whole_root(self):
        """Deleted by hand, no command would find it any more: it must not live on for ever."""
        pid = self.start()
        os.unlink(self.desk.path("locks", "demo.run"))
        wait_until(lambda: not alive(pid), 5, "the end of the session")
        data = self.desk.ok("status", "demo")
        self.assertEqual(data["state"], "stopped")
        self.assertIn("its run lock was removed", data["message"])
        self.assertEqual(self.desk.ok("start", "demo", "--wait=60")["state"], "running")
        pid = supervisor_of(self.desk, "demo")
        shutil.rmtree(self.desk.root, ignore_errors=True)
        wait_until(lambda: not alive(pid), 5, "the end of the session")

    def test_r306_a_killed_start_leads_to_stopped_or_running(self):
        self.desk.ok("create", "demo")
        for delay in (0.0, 0.01, 0.02, 0.04, 0.08):
            process = self.desk.popen("sandbox", "start", "demo")
            time.sleep(delay)
            process.kill()
            process.communicate()
            state = wait_until(lambda: (s := self.desk.state("demo")) != "working" and s, 20, "an end of the start")
            self.assertIn(state, ("running", "stopped"))
            self.assertEqual(self.desk.ok("start", "demo", "--wait=60")["state"], "running")
            self.assertEqual(self.desk.ok("stop", "demo")["state"], "stopped")

    def test_r305_a_killed_create_is_broken_or_was_not_begun(self):
        seen = set()
        for i in range(40):
            process = self.desk.popen("sandbox", "create", "demo")
            time.sleep(0.0004 * i)
            process.kill()
            process.communicate()
            reply = self.desk.sandbox("status", "demo")
            seen.add(reply.code or reply.data["state"])
            if reply.code == "SANDBOX_NOT_FOUND":
                continue
            self.assertIn(reply.data["state"], ("broken", "stopped"))
            if reply.data["state"] == "broken":
                self.assertEqual(reply.data["next"], "agent-desktop sandbox rm demo")
                self.assertIn("interrupted", reply.data["message"])
                self.desk.fails("INVALID_STATE", "start", "demo")
            self.desk.ok("rm", "demo")
        self.assertIn("SANDBOX_NOT_FOUND", seen)

    def test_r308_following_next_from_each_resting_state(self):
        """R-704: from nothing to a running sandbox by `next` alone, and back."""
        reply = self.desk.sandbox("install", "linux")
        states = []
        for _ in range(20):
            if "next_argv" not in reply.data:
                break
            reply = self.desk.follow(reply.data["next_argv"])
            self.assertTrue(reply.json["ok"], reply)
            states.append(reply.data["state"])
        self.assertEqual(states[-1], "running")
        name = reply.data["name"]
        self.desk.ok("stop", name)
        reply = self.desk.sandbox("rm", name)
        self.assertEqual(reply.data["state"], "missing")
        self.assertEqual(self.desk.ok("list")["sandboxes"], [])
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])

    def test_r308_a_refusal_names_the_way_out(self):
        self.start()
        error = self.desk.fails("INVALID_STATE", "rm", "demo")
        self.assertTrue(self.desk.follow(error["recovery"]["next_argv"]).json["ok"])
        self.assertEqual(self.desk.ok("rm", "demo")["state"], "missing")

    def test_r308_a_stopped_one_without_its_directory_is_broken(self):
        """Its start can never succeed, so that must not be the next command for ever."""
        kept = os.path.join(self.desk.base, "kept")
        os.mkdir(kept)
        replacements = {
            "nothing": lambda path: None,
            "a file": lambda path: open(path, "w", encoding="ascii").close(),
            "a link": lambda path: os.symlink(kept, path),
        }
        for name, replace in replacements.items():
            with self.subTest(instead=name):
                self.desk.ok("create", "demo")
                shutil.rmtree(self.desk.path("sandboxes", "demo"))
                replace(self.desk.path("sandboxes", "demo"))
                error = self.desk.fails("ACTION_FAILED", "start", "demo", "--wait=60")
                self.assertEqual(error["details"]["state"], "broken")
                self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox rm demo")
                self.assertEqual(self.desk.state("demo"), "broken")
                self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "missing")
                self.assertFalse(os.path.lexists(self.desk.path("sandboxes", "demo")))
        self.assertTrue(os.path.isdir(kept))

    def test_r103_r308_a_failure_of_the_work_is_none_of_a_refusal(self):
        """PERM_DENIED of a step: something was done and is recorded, and a script must not go round in circles."""
        if USER.is_root:
            self.skipTest("nothing is forbidden to root")
        self.desk.ok("create", "whole")
        sandboxes = self.desk.path("sandboxes")
        os.chmod(sandboxes, 0o500)
        try:
            for code, *args in (("PERM_DENIED", "create", "demo"), ("PERM_DENIED", "rm", "whole"),
                                ("ACTION_FAILED", "create", "other", "--wait")):
                error = self.desk.fails(code, *args)
                self.assertIn("permissions", error["suggestion"])
                self.assertEqual(error["details"]["state"], "broken")
                self.assertEqual(error["disposition"]["delivery"], "delivered_unverified")
                self.assertTrue(error["recovery"]["needs_person"])
        finally:
            os.chmod(sandboxes, 0o700)
        for name in ("demo", "other", "whole"):
            self.assertEqual(self.desk.ok("recover", name)["ran"], [])
            data = self.desk.ok("recover", name, "--rm")
            self.assertEqual((data["state"], [r["command"] for r in data["ran"]]),
                             ("missing", [f"agent-desktop sandbox rm {name}"]))

    def test_r212_recover_follows_next_to_a_rest(self):
        self.desk.ok("create", "demo")
        for args in ([], ["--rm"]):
            process = self.desk.popen("sandbox", "rm", "demo")
            process.kill()
            process.communicate()
            data = self.desk.sandbox("recover", "demo", *args)
            if data.json["ok"]:
                self.assertIn(data.data["state"], ("running", "stopped", "missing", "broken"))

    def test_r208_stop_cancels_a_start_in_progress(self):
        self.desk.ok("create", "demo")
        start = self.desk.popen("sandbox", "start", "demo", "--wait=60")
        wait_until(lambda: self.desk.state("demo") != "stopped", 5, "the start's begin")
        self.assertEqual(self.desk.ok("stop", "demo", "--wait=60")["state"], "stopped")
        start.communicate(timeout=20)
        self.assertEqual(self.desk.state("demo"), "stopped")
        self.assertEqual(self.desk.ok("start", "demo", "--wait=60")["state"], "running")


if __name__ == "__main__":
    main()
