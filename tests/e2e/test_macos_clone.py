"""R-412, R-413, R-415 on a simulated Mac: copies of a set-up guest, their host keys, and Apple's limit of two."""

import json
import os

from harness import mode_of, wait_until
from mac import ACCOUNT, HOST_KEY, MacTest, identity, image, main

OTHER_KEYS = [f"private/etc/ssh/ssh_host_{kind}_key" + end for kind in ("ecdsa", "rsa") for end in ("", ".pub")]


class CloneTest(MacTest):
    """R-412."""

    stage = "set up"

    def machine(self, name):
        """(machine identifier, MAC address, the rest) of vm.json."""
        machine = json.loads(self.desk.text("sandboxes", name, "vm", "vm.json"))
        return machine.pop("machine_identifier"), machine.pop("mac"), machine

    def host_key(self, name):
        return image.look(self.desk.disk(name))[HOST_KEY + ".pub"]["data"].split()[1].decode()

    def test_r412_what_a_clone_takes_over_and_what_is_its_own(self):
        before = identity(self.desk.disk("base")), self.desk.facts("base")
        data = self.desk.create("work", "--set", "from=base")
        self.assertEqual((data["state"], data["next"]), ("stopped", "agent-desktop sandbox start work"))
        self.assertEqual((identity(self.desk.disk("base")), self.desk.facts("base")), before)  # the source is as it was
        base, work = self.desk.facts("base"), self.desk.facts("work")
        for key in ("user", "setup", "image"):
            self.assertEqual(work[key], base[key])
        self.assertEqual(self.desk.text("sandboxes", "work", "id_ed25519"),
                         self.desk.text("sandboxes", "base", "id_ed25519"))
        of_base, of_work = self.machine("base"), self.machine("work")
        self.assertNotEqual(of_base[0], of_work[0])
        self.assertNotEqual(of_base[1], of_work[1])
        self.assertEqual(of_base[2], of_work[2])  # hardware model, CPUs, memory
        self.assertEqual(work["mac"], of_work[1])
        self.assertNotEqual(self.host_key("base"), self.host_key("work"))
        self.assertEqual(work["hostkey"], self.host_key("work"))
        self.assertEqual([mode_of(self.desk.sandbox_path("work", name)) for name in ("id_ed25519", "vm/disk.img")],
                         [0o600, 0o600])
        self.assertLess(os.stat(self.desk.disk("work")).st_blocks * 512, 1 << 30)  # of 100 GiB

    def test_r412_a_clone_starts_headless_and_set_up(self):
        self.desk.clone("work")
        self.assertEqual(self.desk.ok("start", "work", "--wait=60")["state"], "running")
        self.assertEqual(self.mac.events("window.open"), [])

    def test_r412_clones_are_independent(self):
        base = self.desk.start("base")
        base.run("echo of base >~/marker")
        self.desk.ok("stop", "base")
        self.desk.clone("work")
        base, work = self.desk.start("base"), self.desk.start("work")
        self.assertNotEqual(base.address, work.address)
        self.desk.raw("sandbox", "run", "work", "--", "sh", "-c", "echo of work >~/marker")
        for name in ("base", "work"):
            self.assertEqual(self.desk.raw("sandbox", "run", name, "--", "cat", "marker").out, f"of {name}\n".encode())
        self.desk.ok("stop", "base")
        self.desk.ok("rm", "base")  # the clone needs it no more
        self.assertEqual(self.desk.raw("sandbox", "run", "work", "--", "cat", "marker").out, b"of work\n")

    def test_r412_a_clone_of_a_clone(self):
        self.desk.clone("work")
        self.desk.clone("other", "work")
        self.assertEqual(len({self.machine(name)[:2] for name in ("base", "work", "other")}), 3)
        self.desk.start("other")

    def test_r412_a_source_that_is_not_stopped_is_named_with_its_state(self):
        guest = self.desk.start("base", "--window")
        error = self.refused("running")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop base")
        guest.person.forbid()
        self.desk.until("base", "needs_setup")
        self.refused("needs_setup")

    def test_r412_a_source_that_was_never_set_up(self):
        self.desk.publish()
        self.desk.create("fresh", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT, "--wait=60")
        error = self.refused("never set up", source="fresh")
        self.assertEqual((error["details"]["name"], error["details"]["state"]), ("fresh", "stopped"))
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox start fresh")

    def test_r412_a_source_that_is_being_installed(self):
        self.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})
        self.desk.publish()
        self.desk.create("fresh", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        self.refused("installing", source="fresh")

    def refused(self, word, source="base"):
        error = self.desk.fails("INVALID_STATE", "create", "work", "--provider", "macos", "--set", "from=" + source)
        self.assertIn(word, error["message"])
        self.assertIn(source, error["message"])
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "work")
        self.assertFalse(os.path.exists(self.desk.sandbox_path("work")))
        return error

    def test_r412_no_source_or_itself(self):
        self.desk.fails("SANDBOX_NOT_FOUND", "create", "work", "--provider", "macos", "--set", "from=nobody")
        self.desk.fails("SANDBOX_EXISTS", "create", "base", "--provider", "macos", "--set", "from=base")
        self.desk.fails("INVALID_ARGS", "create", "work", "--provider", "macos", "--set", "from=../base")

    def test_case_6_cloning_onto_a_name_in_use_changes_neither(self):
        self.desk.clone("work")
        before = [identity(self.desk.disk(name)) for name in ("base", "work")]
        self.desk.fails("SANDBOX_EXISTS", "create", "work", "--provider", "macos", "--set", "from=base")
        self.assertEqual([identity(self.desk.disk(name)) for name in ("base", "work")], before)

    def test_r305_a_killed_clone_is_broken_and_can_be_made_again(self):
        self.mac.set(attach_busy=1000)  # it waits for the disk
        process = self.desk.popen("sandbox", "create", "work", "--provider", "macos", "--set", "from=base")
        wait_until(lambda: os.path.exists(self.desk.disk("work")), 10, "the copy")
        self.assertEqual(self.desk.ok("status", "work")["activity"], "cloning")
        for pid in self.desk.processes("agent-desktop", "from=base"):
            self.mac.kill(pid)
        process.communicate()
        data = self.desk.await_state("work", "broken")
        self.assertEqual(data["next"], "agent-desktop sandbox rm work")
        self.mac.set(attach_busy=0)
        self.desk.ok("rm", "work")
        self.desk.clone("work")

    def test_r208_stop_cancels_a_clone(self):
        self.mac.set(attach_busy=1000)
        process = self.desk.popen("sandbox", "create", "work", "--provider", "macos", "--set", "from=base")
        wait_until(lambda: os.path.exists(self.desk.disk("work")), 10, "the copy")
        self.assertEqual(self.desk.ok("stop", "work")["state"], "broken")
        process.communicate()
        self.assertEqual(self.desk.ok("rm", "work")["state"], "missing")
        self.assertEqual(self.desk.state("base"), "stopped")


class HostKeyTest(MacTest):
    """R-413."""

    stage = "set up"

    def entry(self, name, path=HOST_KEY):
        return image.look(self.desk.disk(name)).get(path)

    def test_r413_a_fresh_key_at_each_start_pinned(self):
        keys = set()
        for _ in range(3):
            keys.add(self.entry("base")["data"])
            self.desk.start("base")
            self.assertEqual(self.desk.raw("sandbox", "run", "base", "--", "true").status, 0)
            self.desk.ok("stop", "base")
            public = self.entry("base", HOST_KEY + ".pub")["data"].split()[1].decode()
            self.assertEqual(self.desk.facts("base")["hostkey"], public)
            self.assertIn(public, self.desk.text("sandboxes", "base", "known_hosts"))
        self.assertEqual(len(keys), 3)

    def test_r413_the_key_is_written_as_root_s_and_the_others_are_gone(self):
        """Before the guest boots: it makes those again by itself."""
        self.mac.set(boot_ms=None)
        process = self.desk.popen("sandbox", "start", "base")
        wait_until(lambda: self.desk.vmhosts("base"), 10, "the VM host")
        tree = image.look(self.desk.disk("base"))
        self.assertEqual([(tree[path]["uid"], tree[path]["mode"]) for path in (HOST_KEY, HOST_KEY + ".pub")],
                         [(0, 0o600), (0, 0o644)])
        self.assertEqual([path for path in OTHER_KEYS if path in tree], [])
        self.desk.ok("stop", "base")
        process.communicate()

    def test_r413_a_guest_with_another_key_is_refused(self):
        guest = self.desk.start("base")
        forged = guest.run("rm -f /tmp/k; ssh-keygen -q -t ed25519 -N '' -f /tmp/k && cat /tmp/k >/private/etc/ssh/"
                           "ssh_host_ed25519_key && cat /tmp/k.pub >/private/etc/ssh/ssh_host_ed25519_key.pub")
        self.assertEqual(forged.returncode, 0, forged)
        error = self.desk.fails("HOST_KEY_CHANGED", "exec", "base", "--", "snapshot")
        self.assertEqual(error["disposition"]["delivery"], "not_delivered")
        data = self.desk.ok("status", "base")
        self.assertIn("host key", data["message"])
        self.desk.ok("stop", "base")
        self.desk.start("base")  # with a key of ours again
        self.assertEqual(self.desk.raw("sandbox", "run", "base", "--", "true").status, 0)

    def test_r413_another_machine_at_the_guest_s_address_is_refused(self):
        """A clone has its address now: the same account, the same client key, another host key."""
        self.desk.clone("work")
        address, work = self.desk.start("base").address, self.desk.start("work")
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")
        self.mac.set(boot_ms=None)  # its lease stays, and somebody else answers there
        with open(self.mac.lease_file, encoding="utf-8") as file:
            leases = file.read()
        with open(self.mac.lease_file, "w", encoding="utf-8") as file:
            file.write(leases.replace(f"ip_address={address}\n", f"ip_address={work.address}\n"))
        accepted = work.sshd_log().count("Accepted")
        process = self.desk.popen("sandbox", "start", "base")
        wait_until(lambda: work.sshd_log().count("[preauth]") > 1, 10, "two attempts that ended at the host key")
        self.assertEqual(self.desk.ok("status", "base")["activity"], "starting")
        self.assertEqual(work.sshd_log().count("Accepted"), accepted)
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")
        process.communicate()

    def failing(self, *words):
        """Neither a start nor a clone; both say why, nothing is left, and later both succeed."""
        key = self.entry("base")["data"]
        error = self.desk.sandbox("start", "base", "--wait=60").error
        self.assertEqual(self.desk.ok("status", "base")["state"], "stopped")
        of_clone = self.desk.sandbox("create", "work", "--provider", "macos", "--set", "from=base", "--wait=60").error
        for message in (error["message"], of_clone["message"], self.desk.ok("status", "work")["message"]):
            for word in words:
                self.assertIn(word, message)
        self.assertEqual(self.desk.state("work"), "broken")
        self.desk.ok("rm", "work")
        self.assertEqual(self.entry("base")["data"], key)
        self.assertEqual((self.mac.events("vm.start"), self.desk.vmhosts("base")), ([], []))
        self.assertNotIn(b"disk.img", self.mac.run(["hdiutil", "info", "-plist"]).stdout)

    def succeeding(self):
        self.desk.clone("work")
        self.desk.start("work")

    def test_r413_filevault_fails_start_and_clone(self):
        guest = self.desk.start("base", "--window")
        guest.person.turn_on_filevault()
        self.desk.ok("stop", "base")
        started = len(self.mac.events("vm.start"))
        for argv in (["start", "base", "--wait=60"],
                     ["create", "work", "--provider", "macos", "--set", "from=base", "--wait=60"]):
            error = self.desk.fails("ACTION_FAILED", *argv)
            self.assertIn("FileVault", error["message"])
        self.assertEqual(len(self.mac.events("vm.start")), started)
        self.assertEqual((self.desk.state("base"), self.desk.state("work")), ("stopped", "broken"))

    def test_r413_a_locked_disk_fails_start_and_clone(self):
        self.mac.set(locked=True)
        self.failing("FileVault")
        self.mac.set(locked=False)
        self.succeeding()

    def test_r413_a_busy_disk_fails_start_and_clone(self):
        self.mac.set(attach_busy=1000)
        self.failing("attach", "temporarily unavailable")
        self.mac.set(attach_busy=0)
        self.succeeding()

    def test_r413_a_disk_that_does_not_open_fails_start_and_clone(self):
        for settings, word in (({"attach_error": "image not recognized"}, "image not recognized"),
                               ({"mount_error": "mount_apfs: volume could not be mounted: Permission denied"}, "mount"),
                               ({"data_volume": False}, "Data")):
            with self.subTest(settings=settings):
                self.mac.set(**settings)
                self.failing(word)
                self.mac.set(attach_error=None, mount_error=None, data_volume=True)
        self.succeeding()

    def test_r413_a_disk_that_is_busy_for_a_moment_is_waited_for(self):
        self.mac.set(attach_busy=3, umount_busy=1, detach_busy=1)
        self.desk.start("base")

    def test_r413_stop_and_start_at_once(self):
        """The image stays busy for a moment after its machine's end."""
        self.mac.set(linger_ms=1500)
        self.desk.start("base")
        self.desk.ok("stop", "base")
        self.desk.start("base")

    def test_r413_other_layouts_of_the_disk(self):
        self.mac.set(main_slice=3, synthesized_rows=True)
        self.desk.start("base")

    def test_r413_a_guest_that_lost_its_key_needs_a_person_again(self):
        with self.mac.edit(self.desk.disk("base")) as folder:
            os.unlink(folder.inside(HOST_KEY))
        error = self.desk.fails("ACTION_FAILED", "create", "work", "--provider", "macos", "--set", "from=base",
                                "--wait=60")
        self.assertIn("host key", error["message"])
        self.assertEqual(self.desk.state("work"), "broken")
        data = self.desk.ok("start", "base", "--wait=60")
        self.assertEqual((data["state"], len(self.mac.events("window.open"))), ("needs_setup", 1))
        self.desk.until("base", "running")  # all else is there, and the window shows whom the person trusts

    def test_r413_two_at_once_wait_for_each_other(self):
        """Clones have the same identifiers: one disk is open at a time."""
        self.desk.clone("work")
        starts = [self.desk.popen("sandbox", "start", name, "--wait=60") for name in ("base", "work")]
        for process in starts:
            out, _ = process.communicate()
            self.assertIn(b'"state":"running"', out)
        attached = [call for call in self.mac.calls("hdiutil") if call["argv"][0] in ("attach", "detach")]
        attached.sort(key=lambda call: call["ended"])
        self.assertEqual([call["argv"][0] for call in attached if call["status"] == 0][-4:],
                         ["attach", "detach", "attach", "detach"])


class LimitTest(MacTest):
    """R-415, bug case 2."""

    stage = "set up"

    def setUp(self):
        super().setUp()
        for name in ("a", "b", "c"):
            self.desk.clone(name)
        for name in ("a", "b"):
            self.desk.start(name)

    def refused(self, *names):
        error = self.desk.fails("LIMIT_REACHED", "start", "c")
        for name in names:
            self.assertRegex(error["message"], rf"\b{name}\b")
        self.assertEqual(self.desk.state("c"), "stopped")
        self.assertEqual(self.desk.vmhosts("c"), [])
        self.assertIn("maximum supported number", self.desk.vmhost_log("c"))
        return error

    def test_r415_a_third_start_fails_and_names_the_two(self):
        error = self.refused("a", "b")
        self.assertIn(error["recovery"]["next"], ("agent-desktop sandbox stop a", "agent-desktop sandbox stop b"))
        self.assertIs(error["recovery"]["needs_person"], True)  # which of them may go, nobody else knows
        self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "stopped")
        self.desk.start("c")

    def test_r415_one_that_was_shut_down_inside_counts_no_more(self):
        guest = self.desk.guest("a")
        self.refused("a", "b")
        guest.power_off()
        wait_until(lambda: not self.desk.vmhosts("a"), 10, "its end")
        self.desk.start("c")
        self.assertEqual(self.desk.state("a"), "stopped")

    def test_r415_one_that_is_being_installed_counts_too(self):
        self.desk.ok("stop", "b")
        self.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})
        self.desk.publish()
        self.desk.create("fresh", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        wait_until(lambda: self.desk.ok("status", "fresh").get("progress", {}).get("percent"), 10, "the installation")
        self.refused("a", "fresh")

    def test_r415_an_installation_meets_the_limit(self):
        self.desk.publish()
        error = self.desk.fails("ACTION_FAILED", "create", "fresh", "--provider", "macos", "--set", "ipsw=latest",
                                "--set", "user=" + ACCOUNT, "--wait=60")
        self.assertRegex(error["message"], r"\b(a, b|b, a)\b")
        self.assertIn("maximum supported number", self.desk.install_log("fresh"))

    def test_r415_guests_of_somebody_else(self):
        """None of ours runs, and yet the limit is reached: the message must not name one."""
        self.desk.ok("stop", "a")
        self.desk.ok("stop", "b")
        self.mac.set(vzsim={"START_ERROR": "limit"})
        error = self.desk.fails("LIMIT_REACHED", "start", "c")
        self.assertIn("none of them is a sandbox", error["message"])
        self.assertIs(error["recovery"]["needs_person"], True)
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox start c")


if __name__ == "__main__":
    main()
