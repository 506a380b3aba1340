"""Faults that people met in tools of this kind, each a kind of fault that must be impossible here.

Cases 8, 9, 10 and 12 are in test_exec.py, 4 and 17 also in test_storm.py and in the fault driver.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import time

from harness import AD, USER, Desk, DeskTest, alive, envelope, main, wait_until
from test_states import supervisor_of


class DiskFullTest(DeskTest):
    """Case 3: a state root too small for what is asked of it."""

    def small_disk(self, size):
        """A desk whose state root is a tmpfs of SIZE, and that root's path."""
        if not USER.is_root:
            self.skipTest("mounting a small disk needs root")
        small = os.path.join(self.desk.base, "small")
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=True)
        desk = Desk("small", home=small)
        self.addCleanup(desk.close)
        return desk, small

    def test_case_3_full_disk(self):
        desk, small = self.small_disk("24m")
        desk.ok("create", "base")
        with open(os.path.join(small, "sandboxes", "base", "home", "big"), "wb") as f:
            f.write(os.urandom(14 << 20))
        error = desk.fails("STORE_FULL", "create", "work", "--set", "from=base")
        self.assertRegex(error["message"], "[0-9]")  # how much is needed
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox rm work")
        states = {s["name"]: s["state"] for s in desk.ok("list")["sandboxes"]}
        self.assertEqual(states, {"base": "stopped", "work": "broken"})
        # Not one byte is free: the journal's reserve still takes the removal.
        with open(os.path.join(small, "filler"), "wb") as f:
            try:
                while True:
                    f.write(b"\0" * 65536)
                    f.flush()
            except OSError:
                pass
        self.assertEqual(desk.ok("rm", "work")["state"], "missing")
        os.unlink(os.path.join(small, "filler"))
        subprocess.run(["mount", "-o", "remount,size=200m", small], check=True)
        self.assertEqual(desk.ok("create", "work", "--set", "from=base")["state"], "stopped")
        desk.verify()

    def test_case_3_nothing_that_is_run_uses_up_the_room_to_stop_and_remove(self):
        desk, small = self.small_disk("8m")
        for name in ("demo", "other"):
            desk.ok("create", name)
        desk.ok("start", "demo", "--wait=60")
        with open(os.path.join(small, "filler"), "wb", buffering=0) as f:
            try:
                while f.write(b"\0" * 4096) > 0:
                    pass
            except OSError:
                pass
        for _ in range(1000):
            reply = desk.raw("sandbox", "run", "demo", "--", "/bin/true")
            if reply.status != 0:
                break
        self.assertEqual(envelope(reply.out, reply)["error"]["code"], "STORE_FULL")
        for _ in range(20):
            desk.fails("STORE_FULL", "create", "new")
            desk.fails("INVALID_STATE", "rm", "demo")
        self.assertEqual(desk.ok("stop", "demo")["state"], "stopped")
        for name in ("demo", "other"):
            self.assertEqual(desk.ok("rm", name)["state"], "missing")
        desk.verify()

    def test_case_17_a_full_disk_is_an_error_and_no_signal_death(self):
        desk, small = self.small_disk("64k")
        self.assertEqual(desk.sandbox("create", "demo").code, "STORE_FULL")
        self.assertTrue(desk.sandbox("list").json["ok"])


class LimitTest(DeskTest):
    """Case 17: what the shell allows the process is an answer, too."""

    def limited(self, which, value):
        return {"preexec_fn": lambda: resource.setrlimit(which, (value, value))}

    def test_case_17_few_open_files_are_a_limit(self):
        self.desk.ok("create", "demo")
        for files in range(6, 10):
            reply = self.desk.sandbox("list", **self.limited(resource.RLIMIT_NOFILE, files))
            self.assertEqual(reply.code, "LIMIT_REACHED", reply)
            self.assertIn("ulimit -n", reply.json["error"]["suggestion"])

    def test_case_17_little_address_space_is_enough(self):
        with open(AD, "rb") as f:
            if b"__asan_init" in f.read():
                self.skipTest("the address sanitizer needs terabytes of it")
        few = self.limited(resource.RLIMIT_AS, 3000000 << 10)
        self.assertEqual(self.desk.ok("create", "demo", **few)["state"], "stopped")
        self.assertEqual(self.desk.ok("start", "demo", "--wait=60", **few)["state"], "running")
        self.assertEqual(self.desk.ok("stop", "demo", **few)["state"], "stopped")
        self.desk.verify()


class LostJournalTest(DeskTest):
    def test_a_lost_journal_is_not_an_empty_one(self):
        self.desk.ok("create", "demo")
        saved = os.path.join(self.desk.base, "saved")
        os.rename(self.desk.path("journal"), saved)
        for command in (["list"], ["status", "demo"], ["create", "other"], ["log"], ["rm", "demo"]):
            error = self.desk.fails("STORE_CORRUPT", *command)
            self.assertIn("backup", error["suggestion"])
        self.assertFalse(os.path.exists(self.desk.path("journal")))
        os.rename(saved, self.desk.path("journal"))
        self.assertEqual(self.desk.ok("rm", "demo")["state"], "missing")


class IdentityTest(DeskTest):
    def test_case_5_a_recorded_pid_that_belongs_to_a_stranger(self):
        """The journal names a process that is not ours any more: it is never signalled."""
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        pid = supervisor_of(self.desk, "demo")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), 5, "the supervisor's death")
        stranger = self.reuse(pid)
        begun = time.monotonic()
        self.assertEqual(self.desk.state("demo"), "stopped")
        self.assertLess(time.monotonic() - begun, 2)
        self.assertEqual(self.desk.ok("start", "demo", "--wait=60")["state"], "running")
        self.assertEqual(self.desk.ok("stop", "demo")["state"], "stopped")
        self.assertEqual(self.desk.ok("rm", "demo")["state"], "missing")
        if stranger:
            self.assertIsNone(stranger.poll())
            stranger.kill()
            stranger.wait()

    def reuse(self, pid):
        """A process with exactly this pid, where the kernel lets us choose it."""
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as f:
                f.write(str(pid - 1))
        except OSError:
            return None
        process = subprocess.Popen(["sleep", "300"])
        if process.pid != pid:
            process.kill()
            process.wait()
            return None
        return process


class ForeignFilesTest(DeskTest):
    def test_case_6_a_clone_onto_an_existing_name_touches_neither(self):
        for name in ("base", "work"):
            self.desk.ok("create", name)
        marker = self.desk.path("sandboxes", "work", "home", "marker")
        with open(marker, "w", encoding="utf-8") as f:
            f.write("mine")
        self.desk.fails("SANDBOX_EXISTS", "create", "work", "--set", "from=base")
        self.desk.fails("SANDBOX_EXISTS", "create", "work", "--set", "from=work")
        with open(marker, encoding="utf-8") as f:
            self.assertEqual(f.read(), "mine")

    def test_case_6_something_put_there_by_hand(self):
        """What lies in the way and is no sandbox is neither taken over nor removed, and nothing is recorded."""
        self.desk.ok("create", "base")
        victim = os.path.join(self.desk.base, "victim")
        os.mkdir(victim)
        path = self.desk.path("sandboxes", "work")
        for make, remove in ((lambda p: open(p, "w").close(), os.unlink), (lambda p: os.symlink(victim, p), os.unlink),
                             (lambda p: os.makedirs(os.path.join(p, "precious")), shutil.rmtree)):
            make(path)
            before = os.lstat(path)
            for options in ([], ["--set", "from=base"]):
                error = self.desk.fails("SANDBOX_EXISTS", "create", "work", *options)
                self.assertEqual((error["details"]["name"], error["details"]["state"]), ("work", "missing"))
                self.assertTrue(error["recovery"]["needs_person"])  # a script must not repeat it for ever
                self.desk.fails("SANDBOX_NOT_FOUND", "rm", "work")
                self.assertEqual(os.lstat(path), before)
            remove(path)
        self.assertEqual(os.listdir(victim), [])
        self.assertEqual([s["name"] for s in self.desk.ok("list")["sandboxes"]], ["base"])

    def test_case_7_strange_things_in_the_folder_are_no_trouble(self):
        for name in ("a", "b", "c"):
            self.desk.ok("create", name)
        os.mkdir(self.desk.path("sandboxes", "Strange Folder"))
        with open(self.desk.path("sandboxes", "file"), "w", encoding="utf-8"):
            pass
        os.truncate(self.desk.path("sandboxes", "b", "sandbox.json"), 0)
        self.assertEqual([s["name"] for s in self.desk.ok("list")["sandboxes"]], ["a", "b", "c"])
        self.assertEqual(self.desk.state("b"), "stopped")
        os.rmdir(self.desk.path("sandboxes", "Strange Folder"))

    def test_case_7_a_damaged_journal_record_breaks_one_sandbox_alone(self):
        for name in ("aaaa", "bbbb", "cccc"):
            self.desk.ok("create", name)
        path = self.desk.path("journal", "data.mdb")
        with open(path, "rb") as f:
            good = f.read()
        # Every place where the current record of bbbb may stand; the journal's entries have the name as well.
        told = set()
        at = good.find(b"bbbb")
        while at >= 0:
            damaged = bytearray(good)
            damaged[at + 5] ^= 0x15
            with open(path, "wb") as f:
                f.write(damaged)
            reply = self.desk.sandbox("list")
            if reply.json["ok"]:
                states = {s["name"]: s["state"] for s in reply.data["sandboxes"]}
                self.assertEqual((states.get("aaaa"), states.get("cccc")), ("stopped", "stopped"), states)
                self.assertIn(states.get("bbbb"), ("stopped", "broken"))
                told.add(states["bbbb"])
            else:
                self.assertEqual(reply.code, "STORE_CORRUPT")
            at = good.find(b"bbbb", at + 1)
        self.assertIn("broken", told)
        with open(path, "wb") as f:
            f.write(good)
        self.desk.verify()

    def test_damaged_journals_never_crash_and_never_lie(self):
        """Bits turned at random places: the right answer, or STORE_CORRUPT with what to do."""
        self.desk.ok("create", "demo")
        self.desk.ok("create", "other")
        self.desk.ok("rm", "other")
        path = self.desk.path("journal", "data.mdb")
        with open(path, "rb") as f:
            good = f.read()
        chance = random.Random(3)
        for i in range(150):
            damaged = bytearray(good)
            for _ in range(chance.choice((1, 1, 8, 64))):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            if i % 10 == 0:
                damaged = damaged[: chance.randrange(len(damaged))]
            with open(path, "wb") as f:
                f.write(damaged)
            reply = self.desk.sandbox("status", "demo")
            if reply.json["ok"]:
                self.assertIn(reply.data["state"], ("stopped", "broken"))
                if reply.data["state"] == "broken":
                    self.assertIn("damaged", reply.data["message"])
            else:
                self.assertEqual(reply.code, "STORE_CORRUPT", reply)
                self.assertIn("suggestion", reply.error)
            for args in (["log"], ["list"], ["log", "--verify"]):
                reply = self.desk.sandbox(*args)
                self.assertTrue(reply.json["ok"] or reply.code == "STORE_CORRUPT", reply)
        with open(path, "wb") as f:
            f.write(good)
        self.assertEqual(self.desk.state("demo"), "stopped")


class DeadGuestTest(DeskTest):
    def test_r205_case_15_stopped_supervisors(self):
        names = [f"s{i}" for i in range(6)]
        for name in names:
            self.desk.ok("create", name)
            self.desk.ok("start", name, "--wait=60")
        frozen = names[:3]
        pids = [supervisor_of(self.desk, name) for name in frozen]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        data = self.desk.ok("status", frozen[0])
        self.assertLess(time.monotonic() - begun, 2.5)
        self.assertEqual(data["state"], "running")  # it lives: nothing proves otherwise
        self.assertIn("does not answer", data["message"])
        begun = time.monotonic()
        listed = self.desk.ok("list")["sandboxes"]
        self.assertLess(time.monotonic() - begun, 3)
        self.assertEqual({s["state"] for s in listed}, {"running"})
        begun = time.monotonic()
        data = self.desk.ok("stop", frozen[0], "--wait=30")
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(data["state"], "stopped")
        self.assertIn("killed", data["message"])
        for pid in pids[1:]:
            os.kill(pid, signal.SIGCONT)
        for name in frozen[1:]:
            self.assertEqual(self.desk.state(name), "running")

    def test_case_15_exec_on_a_frozen_sandbox_keeps_its_limit(self):
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        pid = supervisor_of(self.desk, "demo")
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        reply = self.desk.raw("sandbox", "run", "demo", "--timeout=1", "--", "true")
        self.assertLess(time.monotonic() - begun, 6)
        self.assertEqual(envelope(reply.out.strip(), reply)["error"]["code"], "TIMEOUT")
        os.kill(pid, signal.SIGCONT)

    def test_a_dead_x_server_ends_the_session_and_is_told(self):
        self.desk.ok("create", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        self.desk.raw("sandbox", "run", "demo", "--", "pkill", "-KILL", "Xvfb")
        data = wait_until(lambda: (d := self.desk.ok("status", "demo"))["state"] == "stopped" and d, 10, "the end")
        self.assertIn("log", data["message"])


class NamesTest(DeskTest):
    def test_case_18_rm_never_follows_a_link_out_of_the_root(self):
        victim = os.path.join(self.desk.base, "victim")
        os.mkdir(victim)
        with open(os.path.join(victim, "precious"), "w", encoding="utf-8"):
            pass
        USER.own(victim)
        self.desk.ok("create", "demo")
        os.symlink(victim, self.desk.path("sandboxes", "demo", "home", "link"))
        os.symlink("/", self.desk.path("sandboxes", "demo", "upper", "link"))
        self.desk.ok("rm", "demo")
        self.assertEqual(os.listdir(victim), ["precious"])
        self.desk.ok("create", "demo")
        os.rename(self.desk.path("sandboxes", "demo"), os.path.join(self.desk.base, "moved"))
        os.symlink(victim, self.desk.path("sandboxes", "demo"))
        self.desk.ok("rm", "demo")
        self.assertEqual(os.listdir(victim), ["precious"])
        self.assertFalse(os.path.lexists(self.desk.path("sandboxes", "demo")))

    def test_case_18_a_folder_swapped_for_a_link_while_it_is_removed(self):
        victim = os.path.join(self.desk.base, "victim")
        os.mkdir(victim)
        for i in range(50):
            with open(os.path.join(victim, str(i)), "w", encoding="utf-8"):
                pass
        for i in range(15):
            self.desk.ok("create", "demo")
            folder = self.desk.path("sandboxes", "demo", "home", "folder")
            os.mkdir(folder)
            process = self.desk.popen("sandbox", "rm", "demo")
            for _ in range(200):
                try:
                    os.rename(folder, folder + "2")
                    os.symlink(victim, folder)
                    os.unlink(folder)
                    os.rename(folder + "2", folder)
                except OSError:
                    break
            process.communicate()
            if self.desk.sandbox("status", "demo").json["ok"]:
                self.desk.ok("rm", "demo")
            self.assertEqual(len(os.listdir(victim)), 50, i)

    def test_case_18_the_state_root_itself_swapped_for_a_link_is_refused(self):
        self.desk.ok("create", "demo")
        moved = self.desk.root + "-moved"
        os.rename(self.desk.root, moved)
        os.symlink(moved, self.desk.root)
        self.desk.fails("INVALID_ARGS", "rm", "demo")
        os.unlink(self.desk.root)
        os.rename(moved, self.desk.root)


class NetworkRootTest(DeskTest):
    def test_case_17_a_root_on_a_network_file_system_is_refused(self):
        """NFS, SMB and 9p servers are not at hand; FUSE stands for them: refused for the same reason."""
        if not USER.is_root or not shutil.which("bindfs") or not os.path.exists("/dev/fuse"):
            self.skipTest("needs root, bindfs and /dev/fuse to have such a file system here")
        mount = os.path.join(self.desk.base, "fuse")
        os.mkdir(mount)
        subprocess.run(["bindfs", self.desk.base, mount], check=True)
        self.addCleanup(subprocess.run, ["umount", mount], check=True)
        root = os.path.join(mount, "state")
        self.assertEqual(self.desk.sandbox("create", "demo", env={"AGENT_DESKTOP_HOME": root}).code, "INVALID_ARGS")
        os.makedirs(root, mode=0o700, exist_ok=True)
        self.assertEqual(self.desk.sandbox("list", env={"AGENT_DESKTOP_HOME": root}).code, "INVALID_ARGS")
        self.assertEqual(os.listdir(root), [])


class BusyStoreTest(DeskTest):
    def test_r304_a_frozen_writer_is_store_busy_and_not_a_hang(self):
        """A holder of the journal's lock that is stopped: everybody else answers within its bound."""
        self.desk.ok("create", "demo")
        lock = self.desk.path("journal", "lock")
        holder = subprocess.Popen(["flock", lock, "sleep", "60"])
        wait_until(lambda: subprocess.run(["flock", "-n", lock, "true"]).returncode != 0, 5, "the lock")
        begun = time.monotonic()
        self.desk.fails("STORE_BUSY", "status", "demo")
        self.desk.fails("STORE_BUSY", "create", "other")
        self.assertLess(time.monotonic() - begun, 8)
        subprocess.run(["pkill", "-P", str(holder.pid)])
        holder.kill()
        holder.wait()
        wait_until(lambda: self.desk.sandbox("status", "demo").json["ok"], 5, "the freed lock")


if __name__ == "__main__":
    main()
