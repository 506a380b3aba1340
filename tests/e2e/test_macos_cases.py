"""Faults that people met in tools of this kind, on the macos provider: what is on disk, and who works on it.

Each is a kind of fault that must be impossible here. Cases 8 to 15 are in test_macos_cases_inside.py. The numbers are
those of test_bug_cases.py, which shows the same on the linux provider.
"""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest.mock

import harness
from harness import mode_of, wait_until
from mac import ACCOUNT, AD, USER, MacDesk, MacTest, identity, main

MIB = 1 << 20
STATUS_SECONDS = 2
SLACK_SECONDS = 0.5  # for starting a process on a machine that has other things to do


@contextlib.contextmanager
def within(test, seconds):
    """What is done inside takes no longer."""
    begun = time.monotonic()
    yield
    test.assertLess(time.monotonic() - begun, seconds + SLACK_SECONDS)


def snapshot(path):
    """All that a tree holds, by name: the same as long as nobody has touched it."""
    found = {}
    for folder, names, files in os.walk(path):
        for one in (os.path.join(folder, name) for name in [*names, *files]):
            facts = os.lstat(one)
            found[one] = (facts.st_mode, facts.st_uid, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return found


def overwrite(path, content):
    """In place: owner and mode stay."""
    with open(path, "r+b") as file:
        file.truncate()
        file.write(content)


def read(path):
    with open(path, "rb") as file:
        return file.read()


# --- 1: an interrupted download --------------------------------------------------------------------------------------

class DownloadTest(MacTest):
    stage = "ready"

    def create(self):
        return self.desk.create("base", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)

    def kill_worker(self):
        workers = self.desk.processes(AD, "create")
        self.assertEqual(len(workers), 1)
        self.mac.kill(workers[0])

    def assert_nothing_is_left(self):
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])
        self.assertEqual(self.desk.processes(self.desk.root), [])
        self.assertNotIn(self.desk.root.encode(), self.mac.run(["hdiutil", "info", "-plist"]).stdout)

    def test_case_1_a_dropped_connection_costs_nothing_twice(self):
        image = self.desk.publish(size=24 * MIB, bytes_per_second=16 * MIB, drop_at=[0.4, 0.7])
        self.create()
        seen = []

        def done():
            data = self.desk.ok("status", "base")
            self.assertIn(data["state"], ("working", "stopped"), self.desk.why("base"))
            if "done_bytes" in data.get("progress", {}):
                seen.append(data["progress"]["done_bytes"])
            return data["state"] == "stopped"

        wait_until(done, 60, "the end of the install")
        self.assertEqual(image.drop_at, [])
        self.assertLess(self.desk.cdn.served, 1.1 * image.size)
        self.assertEqual(seen, sorted(seen))
        self.assertGreater(len(set(seen)), 3, seen)
        self.assertGreater(max(seen), 0.7 * image.size)  # the numbers went on over both breaks
        self.assertIn("SHA-1", self.desk.install_log("base"))

    def test_case_1_a_resumed_download_is_checked_as_a_whole(self):
        """What comes after the break is not what was published; sizes, ranges and validators are right."""
        image = self.desk.publish(size=4 * MIB, drop_at=[0.5])
        with open(image.path, "r+b") as file:
            file.seek(3 * MIB)
            file.write(b"something else")
        self.create()
        data = self.desk.await_state("base", "broken")
        self.assertIn("SHA-1", data["message"])
        self.assertEqual([request["status"] for request in self.desk.cdn.requests if request["range"]], [206])
        self.assertFalse(os.path.exists(self.desk.disk("base")))

    def test_case_1_a_killed_worker_is_seen_at_once_and_leaves_nothing(self):
        image = self.desk.publish(size=8 * MIB, hang_at=0.5)
        self.create()
        wait_until(lambda: self.desk.ok("status", "base").get("progress", {}).get("done_bytes"), 20, "half of it")
        self.kill_worker()
        with within(self, STATUS_SECONDS):
            data = self.desk.ok("status", "base")
        self.assertEqual(data["state"], "broken")
        self.assertRegex(data["message"], r"interrupted after [0-9.]+ [kMG]B of 8\.4 MB were downloaded")
        image.hang_at = 2.0
        reply = self.desk.follow(data["next_argv"])
        self.assertEqual((data["next"], reply.data["state"]), ("agent-desktop sandbox rm base", "missing"))
        self.assert_nothing_is_left()
        self.create()
        self.desk.await_state("base", "stopped")

    def test_case_1_a_worker_killed_while_it_installs(self):
        self.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})
        self.desk.publish()
        self.create()
        wait_until(lambda: self.desk.ok("status", "base").get("progress", {}).get("percent", 0) >= 35, 20, "the stall")
        self.kill_worker()
        # The installer holds the operation's lock until it has let go: until then nobody can call it over.
        data = self.desk.await_state("base", "broken")
        self.assertRegex(data["message"], r"interrupted when [34][0-9] % of macOS were installed")
        self.mac.set(vzsim={})
        self.assertEqual(self.desk.follow(data["next_argv"]).data["state"], "missing")
        self.assert_nothing_is_left()
        self.create()
        self.desk.await_state("base", "stopped")


# --- 2: Apple's limit ------------------------------------------------------------------------------------------------

class LimitTest(MacTest):
    stage = "set up"

    def setUp(self):
        super().setUp()
        for name in ("a", "b", "c"):
            self.desk.clone(name)

    def refused(self):
        """The start of `c` meets the limit and leaves nothing; its error."""
        before = len(self.mac.guests())
        error = self.desk.fails("LIMIT_REACHED", "start", "c")
        self.assertEqual(error["disposition"]["retry"], "safe")
        self.assertIn('"problem":"limit"', self.desk.vmhost_log("c"))
        self.assertEqual(self.desk.state("c"), "stopped")
        self.assertEqual((self.desk.vmhosts("c"), len(self.mac.guests())), ([], before))
        return error

    def names(self, error):
        """The sandboxes that the message names as those that run."""
        self.assertIn("; running here: ", error["message"])
        return sorted(error["message"].rsplit("running here: ", 1)[1].split(", "))

    def test_case_2_a_third_start_names_who_runs_and_the_way_out_works(self):
        self.desk.start("a")
        self.desk.start("b")
        error = self.refused()
        self.assertEqual(self.names(error), ["a", "b"])
        self.assertRegex(error["message"], r"^two macOS VMs run already: [^.]*; running here: [ab], [ab]$")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop a")
        self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "stopped")
        self.desk.start("c")

    def test_case_2_a_guest_that_shut_itself_down_makes_room(self):
        guest = self.desk.start("a")
        self.desk.start("b")
        self.refused()
        guest.run("shutdown -h now")
        wait_until(lambda: not self.desk.vmhosts("a"), 10, "its end")
        self.desk.start("c")
        self.assertEqual({one["name"]: one["state"] for one in self.desk.ok("list")["sandboxes"]},
                         {"a": "stopped", "b": "running", "base": "stopped", "c": "running"})

    def test_case_2_a_killed_vm_host_makes_room(self):
        self.desk.start("a")
        self.desk.start("b")
        self.refused()
        self.mac.kill(self.desk.vmhosts("b")[0])
        self.desk.start("c")
        self.assertEqual(self.desk.state("b"), "stopped")

    def test_case_2_a_guest_of_another_application_is_not_ours_to_stop(self):
        self.desk.start("a")
        with open(self.mac.path("slots", "vm-slot-1"), "w", encoding="ascii") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assertEqual(self.names(self.refused()), ["a"])
            self.desk.ok("stop", "a")
            with open(self.mac.path("slots", "vm-slot-0"), "w", encoding="ascii") as another:
                fcntl.flock(another, fcntl.LOCK_EX)
                error = self.refused()
                self.assertIn("another application", error["message"])
                self.assertIs(error["recovery"]["needs_person"], True)
        self.desk.start("c")

    def test_case_2_a_guest_that_is_being_installed_counts(self):
        self.desk.start("a")
        self.desk.publish()
        self.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})
        self.desk.create("d", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        wait_until(lambda: self.desk.ok("status", "d").get("progress", {}).get("percent", 0) >= 35, 20, "the stall")
        self.assertEqual(self.names(self.refused()), ["a", "d"])
        self.assertEqual(self.desk.ok("stop", "d")["state"], "broken")
        self.desk.start("c")


# --- 3: a full disk --------------------------------------------------------------------------------------------------

class FullDiskTest(MacTest):
    def setUp(self):
        if os.getuid() != 0:
            self.skipTest("mounting a small disk needs root")
        self.small = USER.own(tempfile.mkdtemp(prefix="small-", dir=harness.BASE))
        options = f"size=60m,mode=755,uid={USER.uid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", self.small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.small], check=True)
        MacDesk("warm", stage="set up").close()  # what a stage is copied from is on a larger disk
        with unittest.mock.patch.object(harness, "BASE", self.small):
            self.desk = MacDesk("small", stage="set up")
        self.addCleanup(self.desk.close)
        self.mac = self.desk.mac

    def fill(self, left):
        """Until no more than LEFT bytes are free."""
        with open(os.path.join(self.small, "filler"), "ab", buffering=0) as file:
            with contextlib.suppress(OSError):
                while (found := os.statvfs(self.small)).f_bavail * found.f_frsize > left:
                    file.write(b"\0" * 4096)

    def test_case_3_a_clone_without_room_says_how_much_it_takes_and_can_be_removed(self):
        self.fill(1000000)
        error = self.desk.fails("STORE_FULL", "create", "work", "--provider", "macos", "--set", "from=base")
        self.assertRegex(error["message"], r"'base': its disk takes [0-9.]+ MB, [0-9.]+ [kM]B are free")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox rm work")
        self.assertEqual({one["name"]: one["state"] for one in self.desk.ok("list")["sandboxes"]},
                         {"base": "stopped", "work": "broken"})
        self.fill(0)
        self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "missing")
        os.unlink(os.path.join(self.small, "filler"))
        self.desk.clone("work")

    def test_case_3_what_runs_can_be_stopped_with_nothing_free(self):
        self.desk.start("base")
        self.fill(0)
        self.assertEqual(self.desk.state("base"), "running")
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")
        self.assertEqual(self.desk.state("base"), "stopped")
        os.unlink(os.path.join(self.small, "filler"))
        self.desk.start("base")


# --- 4: killed at random ---------------------------------------------------------------------------------------------

class RandomKillTest(MacTest):
    def agreed(self, name):
        """What status, list, create and rm say of NAME fits together; its state."""
        status = self.desk.sandbox("status", name)
        listed = {one["name"]: one["state"] for one in self.desk.ok("list")["sandboxes"]}
        if not status.json["ok"]:
            self.assertEqual((status.code, listed.get(name)), ("SANDBOX_NOT_FOUND", None))
            self.desk.fails("SANDBOX_NOT_FOUND", "rm", name)
            return "missing"
        state = status.data["state"]
        if state == "working":
            self.assert_worked_on(name)
        else:
            self.assertEqual(listed.get(name), state)
            self.assertIn(state, ("broken", "stopped"))
            self.desk.fails("SANDBOX_EXISTS", "create", name, "--provider", "macos", "--set", "from=base")
        return state

    def assert_worked_on(self, name):
        """`working` is the word of a live owner: the worker, or a program of its that has not ended yet."""
        if not self.desk.processes(AD, "create") and not self.desk.processes(self.desk.root):
            reply = self.desk.sandbox("status", name)  # it may have ended in between
            self.assertNotEqual(reply.json.get("data", {}).get("state"), "working", reply)

    def kill_some(self, chance, *options, seconds):
        """Starts a create of `work` and ends the command, its worker or both somewhere on their way."""
        process = self.desk.popen("sandbox", "create", "work", "--provider", "macos", *options)
        victims = chance.choice(("command", "worker", "both"))
        time.sleep(chance.uniform(0, seconds))  # at random is what the case is about
        for pid in self.desk.processes(AD, "create"):
            if victims == "both" or (victims == "command") == (pid == process.inner_pid):
                self.mac.kill(pid)
        process.communicate(timeout=60)

    def one_round(self, chance, *options, seconds):
        self.kill_some(chance, *options, seconds=seconds)
        end = time.monotonic() + 60
        while (state := self.agreed("work")) == "working":
            self.assertLess(time.monotonic(), end)
        if state != "missing":
            self.assertEqual(self.desk.ok("rm", "work")["state"], "missing")
        self.desk.create("work", *options, "--wait=60")
        self.assertEqual(self.agreed("work"), "stopped")
        self.desk.ok("rm", "work")
        self.assertEqual([name for name in os.listdir(self.desk.path("sandboxes")) if name != "base"], [])


class RandomCreateTest(RandomKillTest):
    stage = "ready"

    def test_case_4_a_create_that_is_killed_anywhere(self):
        self.desk.publish()
        chance = random.Random(4)
        for i in range(6):
            with self.subTest(round=i):
                self.one_round(chance, "--set", "ipsw=latest", "--set", "user=" + ACCOUNT, seconds=0.8)


class RandomCloneTest(RandomKillTest):
    stage = "set up"

    def test_case_4_a_clone_that_is_killed_anywhere(self):
        before = identity(self.desk.disk("base"))
        chance = random.Random(4)
        for i in range(10):
            with self.subTest(round=i):
                self.one_round(chance, "--set", "from=base", seconds=0.3)
        self.assertEqual(identity(self.desk.disk("base")), before)
        self.desk.start("base")


# --- 5: a process number that is somebody else's by now --------------------------------------------------------------

class IdentityTest(MacTest):
    stage = "set up"

    def assert_left_alone(self, pid):
        """`base` had a VM host whose number PID belongs to a stranger now."""
        with within(self, STATUS_SECONDS):
            self.assertEqual(self.desk.state("base"), "stopped")
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")
        self.desk.start("base")
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")
        self.assertEqual(self.desk.ok("rm", "base")["state"], "missing")
        self.assertTrue(self.mac.alive(pid))

    def test_case_5_after_a_restart_the_number_belongs_to_another_program(self):
        self.desk.start("base")
        pid = self.desk.vmhosts("base")[0]
        self.mac.reboot()
        script = f"while :; do sleep 300 & [ $! -ge {pid} ] && break; done; echo $!; wait"
        with self.mac.popen(["sh", "-c", script], stdout=subprocess.PIPE) as shell:
            self.assertEqual(int(shell.stdout.readline()), pid)
            self.assert_left_alone(pid)
            shell.kill()

    def test_case_5_the_same_boot_and_another_process(self):
        """Where root runs these tests as an ordinary user, it is another user's: that it may not be signalled must not
        be taken for a VM host that lives.
        """
        if os.getuid() != 0:
            self.skipTest("only root can choose the number of a process")
        self.desk.start("base")
        pid = self.desk.vmhosts("base")[0]
        self.mac.kill(pid)
        wait_until(lambda: not self.mac.alive(pid), 10, "its end")
        # Others may begin a process in between.
        script = (f"while :; do echo {pid - 1} > /proc/sys/kernel/ns_last_pid; sleep 300 >/dev/null 2>&1 & "
                  f"[ $! -eq {pid} ] && break; kill $!; done")
        with self.mac.popen(["cat"], stdin=subprocess.PIPE) as anchor:
            enter = ["nsenter", "--target", str(anchor.pid), "--pid", "--mount"]
            subprocess.run([*enter, "sh", "-c", script], check=True, timeout=20)
        # It begins as a copy of the shell.
        wait_until(lambda: [one["argv"] for one in self.mac.processes() if one["pid"] == pid] == [["sleep", "300"]],
                   10, "the other process")
        self.assert_left_alone(pid)


# --- 6: onto an existing name ----------------------------------------------------------------------------------------

class OntoTest(MacTest):
    stage = "set up"

    def refused(self, *options):
        """A create of `work` with these options, because it exists; the error."""
        words = [word for option in options for word in ("--set", option)]
        return self.desk.fails("SANDBOX_EXISTS", "create", "work", "--provider", "macos", *words)

    def test_case_6_a_clone_onto_an_existing_name_touches_neither(self):
        self.desk.clone("work")
        with self.mac.edit(self.desk.disk("work")) as folder:
            with open(folder.inside("Users/Shared/marker"), "wb") as file:
                file.write(b"mine")
        before = snapshot(self.desk.path("sandboxes"))
        self.desk.publish()
        for options in (["from=base"], ["from=work"], ["ipsw=latest", "user=" + ACCOUNT]):
            self.assertEqual(self.refused(*options)["details"]["state"], "stopped")
        self.assertEqual(snapshot(self.desk.path("sandboxes")), before)
        self.assertEqual(self.desk.stopped_tree("work")["Users/Shared/marker"]["data"], b"mine")

    def test_case_6_something_put_there_by_hand(self):
        victim = os.path.join(self.desk.base, "victim")
        os.mkdir(victim)
        USER.own(victim)
        path = self.desk.sandbox_path("work")
        for make, remove in ((lambda: open(path, "wb").close(), os.unlink),
                             (lambda: os.symlink(victim, path), os.unlink),
                             (lambda: os.makedirs(os.path.join(path, "precious")), shutil.rmtree)):
            make()
            os.chown(path, USER.uid, USER.gid, follow_symlinks=False)
            before = os.lstat(path)
            for options in (["from=base"], ["ipsw=latest", "user=" + ACCOUNT]):
                self.assertIs(self.refused(*options)["recovery"]["needs_person"], True)
                self.desk.fails("SANDBOX_NOT_FOUND", "rm", "work")
                self.assertEqual(os.lstat(path), before)
            remove(path)
        self.assertEqual(os.listdir(victim), [])
        self.assertEqual([one["name"] for one in self.desk.ok("list")["sandboxes"]], ["base"])

    def test_case_6_a_source_that_runs(self):
        self.desk.start("base")
        error = self.desk.fails("INVALID_STATE", "create", "work", "--provider", "macos", "--set", "from=base")
        self.assertIn("running", error["message"])
        self.assertFalse(os.path.exists(self.desk.sandbox_path("work")))


# --- 7: damaged files ------------------------------------------------------------------------------------------------

class DamageTest(MacTest):
    stage = "set up"

    @contextlib.contextmanager
    def damaged(self, content, *parts):
        """A file of `work` holds CONTENT as long as this lasts."""
        path = self.desk.sandbox_path("work", *parts)
        whole = read(path)
        overwrite(path, content)
        try:
            yield
        finally:
            overwrite(path, whole)

    def refused(self, *words, code="ACTION_FAILED"):
        """`work` cannot be started, which is told; the others are as they were. Nothing is left half started."""
        error = self.desk.fails(code, "start", "work")
        for word in words:
            self.assertIn(word, error["message"])
        self.assertEqual({one["name"]: one["state"] for one in self.desk.ok("list")["sandboxes"]},
                         {"base": "stopped", "work": "stopped"})
        wait_until(lambda: not self.desk.vmhosts("work"), 10, "the end of its VM host")
        return error

    def test_case_7_the_projection_is_restored_by_whoever_names_it(self):
        self.desk.clone("work")
        path = self.desk.sandbox_path("work", "sandbox.json")
        whole = read(path)
        commands = (["status", "work"], ["start", "work"], ["run", "work", "--", "true"], ["stop", "work"],
                    ["recover", "work"])
        damages = (b"", whole[: len(whole) // 2], b"[1, 2]", b"\0" * 4096, b'{"name": "base", "provider": "linux"}')
        for command, damage in zip(commands, damages):
            with self.subTest(damage=damage[:20], command=command[0]):
                overwrite(path, damage)
                self.assertEqual(len(self.desk.ok("list")["sandboxes"]), 2)
                self.assertEqual(self.desk.raw("sandbox", *command).status, 0)
                self.assertEqual(read(path), whole)
        if not USER.is_root:  # who may read it whatever its mode
            os.chmod(path, 0)
            self.assertEqual(self.desk.state("work"), "stopped")
            self.assertEqual((read(path), mode_of(path)), (whole, 0o600))

    def test_case_7_the_record_of_the_machine(self):
        self.desk.clone("work")
        whole = read(self.desk.sandbox_path("work", "vm", "vm.json"))
        for damage in (b"", whole[: len(whole) // 2], b"[1, 2]", b"null", b'{"mac": 7}', b"\xff\xfe\0"):
            with self.subTest(damage=damage[:20]), self.damaged(damage, "vm", "vm.json"):
                self.refused("vm.json")
        self.desk.start("work")

    def test_case_7_a_clone_of_a_damaged_record_is_broken_and_goes(self):
        self.desk.clone("work")
        with self.damaged(b"{", "vm", "vm.json"):
            error = self.desk.fails("ACTION_FAILED", "create", "copy", "--provider", "macos", "--set", "from=work",
                                    "--wait=60")
            self.assertIn("vm.json", error["message"])
            self.assertEqual(self.desk.state("copy"), "broken")
            self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "missing")
        self.desk.clone("copy", "work")

    def test_case_7_the_key_of_the_sandbox(self):
        self.desk.clone("work")
        for damage in (b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"\0" * 400):
            with self.subTest(damage=damage[:20]), self.damaged(damage, "id_ed25519"):
                error = self.refused("id_ed25519", code="PERM_DENIED")
                self.assertIs(error["recovery"]["needs_person"], True)
        self.desk.start("work")
        with self.damaged(b"", "id_ed25519"):
            data = self.desk.ok("status", "work")
            self.assertEqual(data["state"], "running")  # the file of ours proves nothing about the guest
            self.assertIn("id_ed25519", data["message"])
        self.assertEqual(self.desk.raw("sandbox", "run", "work", "--", "echo", "again").out, b"again\n")

    def test_case_7_the_public_half_of_the_key(self):
        self.desk.clone("work")
        for damage in (b"", b"ssh-ed25519 AAAA"):
            with self.subTest(damage=damage), self.damaged(damage, "id_ed25519.pub"):
                self.refused("id_ed25519.pub")
        self.desk.start("work")

    def test_case_7_the_pinned_key_counts_and_not_its_copy(self):
        self.desk.clone("work")
        path = self.desk.sandbox_path("work", "known_hosts")
        for damage in (b"", b"work ssh-ed25519 AAAA", b"\0\xff" * 1000):
            with self.subTest(damage=damage[:20]):
                overwrite(path, damage)
                self.desk.start("work")
                self.assertEqual(self.desk.text("sandboxes", "work", "known_hosts").split(),
                                 ["work", "ssh-ed25519", self.desk.facts("work")["hostkey"]])
                overwrite(path, b"")
                self.assertEqual(self.desk.raw("sandbox", "run", "work", "--", "echo", "in").out, b"in\n")
                self.desk.ok("stop", "work")

    def test_case_7_the_log_of_the_vm_host(self):
        self.desk.clone("work")
        log = self.desk.sandbox_path("work", "vm", "vmhost.log")
        for damage in (b"", None, os.urandom(100000), b'{"event":"started","pid":1}\n{"event":"stopped","how":"gue'):
            self.desk.start("work")
            if damage is None:
                os.unlink(log)
            else:
                overwrite(log, damage)
            self.assertEqual(self.desk.state("work"), "running")
            self.assertEqual(self.desk.raw("sandbox", "run", "work", "--", "echo", "in").out, b"in\n")
            self.assertEqual(self.desk.ok("stop", "work")["state"], "stopped")
            self.assertEqual(self.desk.vmhosts("work"), [])

    def test_case_7_what_is_in_the_folder_of_sandboxes(self):
        """Strange names are ignored, and a sandbox whose directory cannot be read does not hide the others."""
        self.desk.clone("work")
        os.mkdir(self.desk.sandbox_path("Strange Folder"))
        with open(self.desk.sandbox_path("file"), "w", encoding="utf-8"):
            pass
        os.chmod(self.desk.sandbox_path("work"), 0)
        self.assertEqual([one["name"] for one in self.desk.ok("list")["sandboxes"]], ["base", "work"])
        os.chmod(self.desk.sandbox_path("work"), 0o700)
        self.desk.start("work")


class ProgressDamageTest(MacTest):
    stage = "ready"

    def test_case_7_how_far_it_is_is_never_the_truth_about_a_state(self):
        image = self.desk.publish(size=8 * MIB, hang_at=0.5)
        self.desk.create("base", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        part, path = (self.desk.sandbox_path("base", name) for name in ("restore.ipsw", "progress.json"))
        wait_until(lambda: os.path.exists(part) and os.path.getsize(part) == 4 * MIB, 20, "half of it")
        for damage in (b"", b'{"done_bytes": 4', b"[1]", b'{"done_bytes": "many", "percent": -7, "what": 3}',
                       b'{"done_bytes": 99999999999999999999999, "percent": 1e400}', b"\0" * 5000, b'{"percent": 900}'):
            with self.subTest(damage=damage[:20]):
                overwrite(path, damage)
                data = self.desk.ok("status", "base")
                self.assertEqual((data["state"], data["activity"]), ("working", "installing"))
                self.assertLessEqual(data.get("progress", {}).get("percent", 0), 100)
        for pid in self.desk.processes(AD, "create"):
            self.mac.kill(pid)
        data = self.desk.ok("status", "base")
        self.assertEqual(data["state"], "broken")
        self.assertRegex(data["message"], "interrupted after 4.2 MB")
        image.hang_at = 2.0
        self.desk.ok("rm", "base")


# --- 18: names and links ---------------------------------------------------------------------------------------------

class LinkTest(MacTest):
    stage = "set up"

    def setUp(self):
        super().setUp()
        self.desk.clone("work")
        self.victim = os.path.join(self.desk.base, "victim")
        os.mkdir(self.victim)
        for name in ("precious", "disk.img", "aux.img", "vm.json", "vmhost.log", "agent-desktop", "authorized_key",
                     "guest-setup.sh", "agent-desktop-macos-helper"):
            with open(os.path.join(self.victim, name), "wb") as file:
                file.write(b"precious")
            USER.own(file.name)
        USER.own(self.victim)
        self.before = snapshot(self.victim)

    def link(self, target, *parts):
        """A link in the place of what stood there, which is beside it now."""
        path = self.desk.sandbox_path("work", *parts)
        if os.path.lexists(path):
            os.rename(path, os.path.join(self.desk.base, "-".join(("was", *parts))))
        os.symlink(target, path)
        os.chown(path, USER.uid, USER.gid, follow_symlinks=False)

    def assert_untouched(self):
        self.assertEqual(snapshot(self.victim), self.before)

    def removed(self):
        self.desk.ok("rm", "work")
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), ["base"])
        self.assert_untouched()

    def test_case_18_a_link_in_the_place_of_vm(self):
        self.link(self.victim, "vm")
        for command in (["status", "work"], ["start", "work"], ["list"],
                        ["create", "copy", "--provider", "macos", "--set", "from=work"]):
            self.desk.sandbox(*command)
            self.assert_untouched()
        self.desk.sandbox("rm", "copy")
        self.removed()

    def test_case_18_a_link_in_the_place_of_the_disk(self):
        self.link(os.path.join(self.victim, "disk.img"), "vm", "disk.img")
        error = self.desk.fails("ACTION_FAILED", "start", "work")
        self.assertIn("disk.img", error["message"])
        reply = self.desk.sandbox("create", "copy", "--provider", "macos", "--set", "from=work", "--wait=60")
        self.assertFalse(reply.json["ok"], reply)
        self.assert_untouched()
        self.desk.ok("rm", "copy")
        self.removed()

    def test_case_18_a_disk_of_another_sandbox_is_not_borrowed_through_a_link(self):
        """Its guest's host key would be replaced."""
        before = identity(self.desk.disk("base"))
        self.link(self.desk.disk("base"), "vm", "disk.img")
        self.desk.fails("ACTION_FAILED", "start", "work")
        self.removed()
        self.assertEqual(identity(self.desk.disk("base")), before)

    def test_case_18_links_in_the_place_of_the_share_and_in_it(self):
        self.desk.start("work")
        self.desk.ok("stop", "work")
        for name in ("agent-desktop", "authorized_key"):
            self.link(os.path.join(self.victim, name), "vm", "share", name)
        self.desk.start("work")  # brought up to date: the links are gone
        self.assert_untouched()
        self.desk.ok("stop", "work")
        self.link(self.victim, "vm", "share")
        self.desk.sandbox("start", "work")
        self.assert_untouched()
        self.desk.sandbox("stop", "work")
        self.removed()

    def test_case_18_links_in_the_place_of_what_is_written(self):
        self.link(os.path.join(self.victim, "vmhost.log"), "vm", "vmhost.log")
        self.desk.sandbox("start", "work")
        self.assert_untouched()
        self.assertEqual(self.desk.state("work"), "stopped")
        os.unlink(self.desk.sandbox_path("work", "vm", "vmhost.log"))
        for name in ("known_hosts", "sandbox.json", "progress.json"):
            self.link(os.path.join(self.victim, "precious"), name)
        self.desk.start("work")
        self.assert_untouched()
        self.desk.ok("stop", "work")
        self.removed()

    def test_case_18_a_link_in_the_place_of_the_sandbox(self):
        os.rename(self.desk.sandbox_path("work"), os.path.join(self.desk.base, "moved"))
        os.symlink(self.victim, self.desk.sandbox_path("work"))
        self.desk.sandbox("status", "work")
        self.desk.sandbox("start", "work")
        self.removed()

    def test_case_18_links_in_what_is_removed(self):
        os.symlink(self.victim, self.desk.sandbox_path("work", "link"))
        os.symlink(self.victim, self.desk.sandbox_path("work", "vm", "link"))
        os.symlink("/", self.desk.sandbox_path("work", "vm", "root"))
        self.removed()

    def test_case_18_names_of_sources_touch_nothing(self):
        before = snapshot(self.desk.path("sandboxes"))
        for name in ("..", ".", "", "a/b", "../base", "/tmp/x", "-a", "BASE", "a_b", "é", "base\n", "x" * 33, "base/",
                     "base/../base"):
            with self.subTest(name=name):
                reply = self.desk.sandbox("create", "copy", "--provider", "macos", "--set", "from=" + name)
                self.assertIn(reply.code, ("INVALID_ARGS", "SANDBOX_NOT_FOUND"), reply)
                self.desk.fails("SANDBOX_NOT_FOUND", "status", "copy")
        self.assertEqual(snapshot(self.desk.path("sandboxes")), before)


if __name__ == "__main__":
    main()
