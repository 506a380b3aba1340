"""R-407 to R-411 on a simulated Mac: the person's part, windows, and how a guest's life begins and ends."""

import os
import signal
import stat
import time

from harness import mode_of, wait_until
from mac import ACCOUNT, AD, MacTest, image, main


class SetupTest(MacTest):
    """R-407, R-408, R-409: the first time."""

    stage = "fresh"

    def test_r407_a_start_before_the_setup_opens_a_window_for_a_person(self):
        data = self.desk.ok("start", "base")
        self.assertEqual((data["state"], data["needs_person"]), ("needs_setup", True))
        self.assertEqual(data["next"], "agent-desktop sandbox status base")
        for word in ("guest-setup.sh", "/Volumes/My Shared Files", f"'{ACCOUNT}'", "Remote Login", "Accessibility",
                     "sshd-keygen-wrapper"):
            self.assertIn(word, data["message"])
        self.assertEqual([event["title"] for event in self.mac.events("window.open")], ["base"])
        self.assertEqual(self.desk.ok("start", "base")["state"], "needs_setup")  # the same again
        self.assertEqual(len(self.mac.events("window.open")), 1)

    def test_r407_closing_the_window_shuts_the_guest_down_and_start_reopens_it(self):
        for end in ("close_window", "quit", "shut_down"):
            with self.subTest(end=end):
                guest = self.desk.open_window("base")
                getattr(guest.person, end)()
                data = self.desk.until("base", "stopped")
                self.assertEqual(data["next"], "agent-desktop sandbox start base")
                reason = self.desk.last_reason("base", "stopped")
                self.assertIn("inside" if end == "shut_down" else "window", reason)
                self.assertFalse(guest.runs)
        self.assertEqual(self.desk.ok("start", "base")["state"], "needs_setup")
        self.assertEqual(len(self.mac.events("window.open")), 4)

    def test_r407_a_title_of_one_s_own(self):
        self.desk.ok("start", "base", "--set", "title=Für Ada & Co. \"1\"")
        self.assertEqual([event["title"] for event in self.mac.events("window.open")], ['Für Ada & Co. "1"'])

    def test_r410_a_title_is_one_line_of_text(self):
        for title in ("two\nlines", "\x1b[31m", "x" * 3000):
            error = self.desk.fails("INVALID_ARGS", "start", "base", "--set", "title=" + title)
            self.assertIn("title", error["message"])
        self.assertEqual(self.desk.state("base"), "stopped")

    def test_r408_what_the_shared_folder_holds(self):
        guest = self.desk.open_window("base")
        share = self.desk.sandbox_path("base", "vm", "share")
        modes = {name: mode_of(os.path.join(share, name)) for name in os.listdir(share)}
        self.assertEqual(modes, {"guest-setup.sh": 0o700, "agent-desktop": 0o700, "agent-desktop-macos-helper": 0o700,
                                 "authorized_key": 0o600})
        self.assertEqual(mode_of(share), 0o700)
        with open(os.path.join(share, "agent-desktop"), "rb") as copy, open(AD, "rb") as program:
            self.assertEqual(copy.read(), program.read())
        self.assertEqual(self.desk.text("sandboxes", "base", "vm", "share", "authorized_key"),
                         self.desk.text("sandboxes", "base", "id_ed25519.pub"))
        guest.person.create_account(ACCOUNT)
        shares = guest.facts["shares"]
        self.assertEqual([(one["path"], one["readOnly"]) for one in shares], [(os.path.realpath(share), True)])
        done = guest.person.type_in_terminal('touch "/Volumes/My Shared Files/x"')
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(sorted(os.listdir(share)), sorted(modes))

    def test_r408_a_share_that_was_damaged_is_put_right_at_the_next_start(self):
        self.desk.open_window("base")
        self.desk.ok("stop", "base")
        share = self.desk.sandbox_path("base", "vm", "share")
        before = {name: os.path.getsize(os.path.join(share, name)) for name in os.listdir(share)}
        os.unlink(os.path.join(share, "agent-desktop"))
        os.symlink("/etc/passwd", os.path.join(share, "agent-desktop"))
        os.chmod(os.path.join(share, "guest-setup.sh"), 0o644)
        with open(os.path.join(share, "authorized_key"), "w", encoding="ascii") as file:
            file.write("ssh-ed25519 AAAA somebody else's\n")
        self.desk.open_window("base")
        self.assertEqual({name: os.lstat(os.path.join(share, name)).st_size for name in os.listdir(share)}, before)
        self.assertEqual(mode_of(os.path.join(share, "guest-setup.sh")), 0o700)

    def test_r408_the_setup_script_may_run_again(self):
        guest = self.desk.open_window("base")
        guest.person.create_account(ACCOUNT)
        for _ in range(2):
            self.desk.run_setup(guest)
        home = f"Users/{ACCOUNT}/"
        self.desk.ok("stop", "base")
        tree = self.desk.stopped_tree("base")
        keys = tree[home + ".ssh/authorized_keys"]
        self.assertEqual(keys["data"].decode(), self.desk.text("sandboxes", "base", "id_ed25519.pub"))
        self.assertEqual((keys["mode"], tree[home + ".ssh"]["mode"]), (0o600, 0o700))
        for name in ("agent-desktop", "agent-desktop-macos-helper"):
            self.assertEqual(tree[home + ".local/bin/" + name]["mode"], 0o755)
        self.assertEqual([path for path in tree if path.endswith(".new")], [])

    def test_r409_status_records_the_setup(self):
        self.desk.set_up("base")
        facts = self.desk.facts("base")
        self.assertEqual((facts["setup"], facts["user"]), ("done", ACCOUNT))
        self.assertIn("hostkey", facts)  # trusted on first use, and from now on no other
        self.assertEqual(self.desk.moves("base")[-2:], ["needs_setup", "running"])
        self.desk.ok("stop", "base")
        self.desk.start("base")
        self.assertEqual(len(self.mac.events("window.open")), 1)  # headless now

    def test_r409_the_order_of_the_steps_does_not_matter(self):
        guest = self.desk.open_window("base")
        guest.person.create_account(ACCOUNT)
        guest.person.allow()
        guest.person.remote_login()
        data = self.desk.ok("status", "base")
        self.assertEqual(data["state"], "needs_setup")
        self.assertIn("guest-setup.sh", data["message"])
        self.assertNotIn("turn on Remote Login", data["message"])
        self.desk.run_setup(guest)
        self.desk.until("base", "running")

    def test_r409_another_account_than_the_recorded_one(self):
        guest = self.desk.open_window("base")
        guest.person.create_account("mallory")
        self.desk.run_setup(guest)
        guest.person.remote_login()
        guest.person.allow()
        data = self.desk.ok("status", "base")
        self.assertEqual(data["state"], "needs_setup")
        self.assertIn(f"'{ACCOUNT}'", data["message"])

    def test_r409_a_grant_to_terminal_is_none_to_ssh(self):
        guest = self.desk.open_window("base")
        guest.person.create_account(ACCOUNT)
        self.desk.run_setup(guest)
        guest.person.remote_login()
        guest.person.allow("Terminal")
        self.assertEqual(self.desk.state("base"), "needs_setup")

    def test_r409_a_setup_in_two_sittings(self):
        guest = self.desk.open_window("base")
        guest.person.create_account(ACCOUNT)
        self.desk.run_setup(guest)
        self.desk.ok("stop", "base")
        guest = self.desk.open_window("base")
        guest.person.remote_login()
        self.assertIn("allow sshd-keygen-wrapper", self.desk.ok("status", "base")["message"])
        guest.person.close_window()
        self.desk.until("base", "stopped")
        guest = self.desk.open_window("base")
        guest.person.allow()
        self.desk.until("base", "running")

    def test_r409_a_guest_that_is_not_set_up_takes_no_command(self):
        self.desk.open_window("base")
        error = self.desk.fails("INVALID_STATE", "exec", "base", "--", "snapshot")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox status base")
        self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})

    def test_r209_needs_setup_is_not_removed_under_the_person_s_hands(self):
        self.desk.open_window("base")
        error = self.desk.fails("INVALID_STATE", "rm", "base")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop base")

    def test_r413_the_first_key_is_pinned_with_the_setup(self):
        guest = self.desk.open_window("base")
        guest.person.create_account(ACCOUNT)
        self.desk.run_setup(guest)
        guest.person.remote_login()
        self.assertNotIn("hostkey", self.desk.facts("base"))
        guest.person.allow()
        self.desk.until("base", "running")
        self.desk.ok("stop", "base")
        public = self.desk.stopped_tree("base")["private/etc/ssh/ssh_host_ed25519_key.pub"]["data"].split()[1]
        self.assertEqual(self.desk.facts("base")["hostkey"], public.decode())


class LossTest(MacTest):
    """R-409: a set-up guest that loses what it had."""

    stage = "set up"

    def lost(self, *words):
        data = self.desk.until("base", "needs_setup")
        self.assertIs(data["needs_person"], True)
        for word in (*words, "stop it and start it"):
            self.assertIn(word, data["message"])
        self.assertEqual(self.desk.facts("base")["setup"], "lost")
        self.desk.fails("INVALID_STATE", "exec", "base", "--", "snapshot")
        return data

    def repaired(self, repair, *words):
        """Stopped and started, there is a window, and the person repairs it in there."""
        windows = len(self.mac.events("window.open"))
        self.desk.ok("stop", "base")
        guest = self.desk.open_window("base")
        self.assertEqual(len(self.mac.events("window.open")), windows + 1)
        data = self.desk.ok("status", "base")
        self.assertEqual(data["state"], "needs_setup", data)
        for word in words:
            self.assertIn(word, data["message"])
        repair(guest)
        self.desk.until("base", "running")
        self.desk.ok("stop", "base")
        self.desk.start("base")
        self.assertEqual(len(self.mac.events("window.open")), windows + 1)
        self.assertEqual(self.desk.facts("base")["setup"], "done")

    def test_r409_remote_login_turned_off(self):
        self.desk.start("base").change(remote_login=False)
        self.lost("Remote Login")
        self.repaired(lambda guest: guest.person.remote_login(), "turn on Remote Login")

    def test_r409_accessibility_withdrawn(self):
        self.desk.start("base").change(withdraw="sshd-keygen-wrapper")
        self.lost("Accessibility", "sshd-keygen-wrapper")
        self.repaired(lambda guest: guest.person.allow(), "allow sshd-keygen-wrapper")

    def test_r409_the_key_removed(self):
        self.desk.start("base").run("rm ~/.ssh/authorized_keys")
        self.lost("key")
        self.repaired(self.desk.run_setup, "guest-setup.sh")

    def test_r409_a_stale_grant(self):
        guest = self.desk.start("base")
        guest.change(axsim={"STALE": "1"})
        self.lost("Accessibility")
        guest.change(axsim={})
        self.desk.until("base", "running")

    def test_r409_what_was_lost_and_came_back_needs_no_restart(self):
        guest = self.desk.start("base")
        guest.change(withdraw="sshd-keygen-wrapper")
        self.lost("Accessibility")
        guest.change(grant="sshd-keygen-wrapper")
        self.desk.until("base", "running")
        self.assertEqual(self.desk.facts("base")["setup"], "done")

    def test_r412_a_lost_setup_is_not_cloned(self):
        self.desk.start("base").change(withdraw="sshd-keygen-wrapper")
        self.lost("Accessibility")
        self.desk.ok("stop", "base")
        error = self.desk.fails("INVALID_STATE", "create", "work", "--provider", "macos", "--set", "from=base")
        self.assertIn("lost", error["message"])
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox start base")


class WindowTest(MacTest):
    """R-410."""

    stage = "set up"

    def windows(self):
        return [event["title"] for event in self.mac.events("window.open")]

    def test_r410_a_set_up_sandbox_starts_headless(self):
        self.desk.start("base")
        self.assertEqual(self.windows(), [])

    def test_r410_window_shows_it_with_its_name_or_a_title(self):
        for options, title in ((["--window"], "base"), (["--window", "--set", "title=Review build"], "Review build")):
            self.desk.start("base", *options)
            self.assertEqual(self.windows()[-1], title)
            self.assertEqual(self.desk.ok("start", "base", "--window")["state"], "running")
            self.desk.ok("stop", "base")
        self.desk.start("base")  # what was asked for once is not asked for ever
        self.assertEqual(len(self.windows()), 2)

    def test_r410_a_headless_one_must_be_stopped_first(self):
        self.desk.start("base")
        error = self.desk.fails("INVALID_STATE", "start", "base", "--window")
        self.assertIn("without a window", error["message"])
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop base")
        self.assertEqual((self.desk.state("base"), self.windows()), ("running", []))
        self.desk.follow(error["recovery"]["next_argv"])
        self.desk.start("base", "--window")

    def test_r410_a_window_can_be_shown_to_who_forgot_it(self):
        self.desk.start("base", "--window")
        self.assertEqual(self.desk.ok("start", "base")["state"], "running")

    def test_r407_closing_the_window_of_a_set_up_one(self):
        guest = self.desk.start("base", "--window")
        guest.person.close_window()
        self.desk.until("base", "stopped")
        self.assertIn("window", self.desk.last_reason("base", "stopped"))
        self.assertEqual(self.desk.vmhosts("base"), [])
        self.desk.start("base")


class StartTest(MacTest):
    """R-411, R-307, R-208: from the launch to the end."""

    stage = "set up"

    def starting(self):
        """A start under way: nobody waits for it."""
        process = self.desk.popen("sandbox", "start", "base")
        wait_until(lambda: self.desk.ok("status", "base").get("activity") == "starting", 10, "starting")
        self.assertEqual(self.desk.ok("status", "base")["next"], "agent-desktop sandbox status base")
        return process

    def test_r411_starting_until_ssh_answers(self):
        self.mac.set(ssh="refuse", boot_ms=200)
        process = self.starting()
        guest = self.desk.guest("base")
        for behaviour in ("refuse", "hang", "drop"):
            guest.change(ssh=behaviour)
            begun = time.monotonic()
            self.assertEqual(self.desk.ok("status", "base")["activity"], "starting")
            self.assertLess(time.monotonic() - begun, 2.5)
        error = self.desk.fails("INVALID_STATE", "exec", "base", "--", "snapshot")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox status base")
        self.assertEqual(self.desk.fails("INVALID_STATE", "rm", "base")["recovery"]["next"],
                         "agent-desktop sandbox stop base")
        guest.change(ssh="ok")
        out, _ = process.communicate(timeout=20)
        self.assertIn(b'"state":"running"', out)
        self.desk.until("base", "running")

    def test_r411_start_does_not_wait_for_ever(self):
        self.mac.set(ssh="hang")
        begun = time.monotonic()
        data = self.desk.ok("start", "base")
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual((data["state"], data["activity"]), ("working", "starting"))
        self.assertEqual(data["next"], "agent-desktop sandbox status base")
        self.desk.guest("base").change(ssh="ok")
        self.assertEqual(self.desk.await_state("base", "running")["state"], "running")

    def test_r208_stop_cancels_a_start(self):
        self.mac.set(boot_ms=None)
        process = self.starting()
        wait_until(lambda: self.desk.vmhosts("base"), 10, "the VM host")
        self.assertEqual(self.desk.ok("stop", "base", "--wait=60")["state"], "stopped")
        process.communicate()
        self.assertEqual(self.desk.vmhosts("base"), [])
        self.mac.set(boot_ms=50)
        self.desk.start("base")

    def test_r411_a_guest_that_dies_while_it_starts(self):
        self.mac.set(ssh="hang")
        process = self.starting()
        self.desk.guest("base").tell_simulator("crash")
        out, _ = process.communicate(timeout=20)
        self.assertIn(b'"ok":false', out)
        self.assertEqual(self.desk.state("base"), "stopped")
        self.mac.set(ssh="ok")
        self.desk.start("base")

    def test_a_start_that_the_framework_refuses(self):
        for code, word in (("keychain", "keychain"), ("1", "")):
            with self.subTest(code=code):
                self.mac.set(vzsim={"START_ERROR": code})
                error = self.desk.fails("ACTION_FAILED", "start", "base")
                self.assertIn(word, error["message"])
                self.assertEqual(self.desk.state("base"), "stopped")
                self.assertIn('"event":"error"', self.desk.vmhost_log("base"))
        self.mac.set(vzsim={})
        self.desk.start("base")

    def test_r307_the_end_of_a_session_is_seen_at_the_next_look(self):
        ends = {
            "shut down inside": (lambda guest: guest.run("shutdown -h now"), "inside"),
            "the machine crashes": (lambda guest: guest.tell_simulator("crash"), ""),
            "vmhost is killed": (lambda guest: self.mac.kill(self.desk.vmhosts("base")[0], signal.SIGKILL), "killed"),
        }
        for name, (end, word) in ends.items():
            with self.subTest(name):
                guest = self.desk.start("base")
                end(guest)
                wait_until(lambda: not self.desk.vmhosts("base"), 10, "the end of vmhost")
                data = self.desk.ok("status", "base")
                self.assertEqual((data["state"], data["next"]), ("stopped", "agent-desktop sandbox start base"))
                reason = self.desk.last_reason("base", "stopped")
                self.assertIn(word, reason)

    def test_r307_a_power_cut(self):
        self.desk.start("base").run("sync")
        self.mac.reboot()
        self.assertEqual(self.desk.state("base"), "stopped")
        guest = self.desk.start("base")
        self.assertEqual(self.desk.raw("sandbox", "run", "base", "--", "echo", "again").out, b"again\n")
        self.assertTrue(guest.runs)

    def test_r208_stop_needs_no_guest_that_answers(self):
        guest = self.desk.start("base")
        for behaviour in ("hang", "mute"):
            guest.change(ssh=behaviour)
            begun = time.monotonic()
            data = self.desk.ok("status", "base")
            self.assertLess(time.monotonic() - begun, 2.5)
            self.assertEqual(data["state"], "running")  # silence proves nothing
            self.assertIn("SSH", data["message"])
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")
        self.assertEqual(self.desk.ok("stop", "base")["state"], "stopped")

    def test_a_guest_may_get_another_address(self):
        self.mac.set(new_address=True)
        addresses = set()
        for _ in range(2):
            addresses.add(self.desk.start("base").address)
            self.assertEqual(self.desk.raw("sandbox", "run", "base", "--", "echo", "here").out, b"here\n")
            self.desk.ok("stop", "base")
        self.assertEqual(len(addresses), 2)

    def test_the_lease_file_may_be_gone(self):
        """An administrator may delete it; the host's table of neighbours still knows the guest."""
        self.desk.start("base")
        os.unlink(self.mac.lease_file)
        self.desk.until("base", "running")
        self.assertEqual(self.desk.raw("sandbox", "run", "base", "--", "echo", "here").out, b"here\n")

    def test_r204_two_starts_at_once_make_one_guest(self):
        starts = [self.desk.popen("sandbox", "start", "base", "--wait=60") for _ in range(3)]
        replies = [process.communicate()[0] for process in starts]
        self.assertEqual(self.desk.state("base"), "running", replies)
        self.assertEqual(len(self.desk.vmhosts("base")), 1)
        before = 1  # the person's
        self.assertEqual(self.desk.moves("base").count("working starting"), before + 1)

    def test_r207_a_guest_that_is_gone_takes_no_command(self):
        self.desk.start("base").power_off()
        wait_until(lambda: not self.desk.vmhosts("base"), 10, "its end")
        error = self.desk.fails("INVALID_STATE", "exec", "base", "--", "snapshot")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox start base")
        self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
        self.assertEqual(self.desk.state("base"), "stopped")

    def test_r212_recover_goes_as_far_as_it_can_without_a_person(self):
        self.assertEqual(self.desk.ok("recover", "base")["state"], "stopped")
        guest = self.desk.start("base")
        self.assertEqual(self.desk.ok("recover", "base")["state"], "running")
        guest.change(withdraw="sshd-keygen-wrapper")
        self.desk.until("base", "needs_setup")
        data = self.desk.ok("recover", "base")
        self.assertEqual((data["state"], data["needs_person"]), ("needs_setup", True))
        guest.change(grant="sshd-keygen-wrapper")
        self.desk.until("base", "running")

    def test_r105_a_root_whose_path_needs_quotes_and_has_links_in_it(self):
        odd = os.path.join(self.desk.base, "a root's \"path\" $HOME *")
        os.rename(self.desk.root, odd)
        os.symlink(self.desk.base, os.path.join(self.desk.base, "link"))
        self.desk.root = os.path.join(self.desk.base, "link", os.path.basename(odd))
        self.desk.env["AGENT_DESKTOP_HOME"] = self.desk.root
        self.desk.clone("work")
        for name in ("base", "work"):
            self.assertEqual(self.desk.ok("start", name, "--wait=60")["state"], "running")
            self.assertEqual(self.desk.raw("sandbox", "run", name, "--", "echo", "here").out, b"here\n")
            self.desk.ok("stop", name)
        disk = os.path.realpath(self.desk.disk("base"))  # as tools name it
        self.mac.run(["hdiutil", "attach", "-nomount", "-imagekey", "diskimage-class=CRawDiskImage", disk], check=True)
        self.assertEqual(self.desk.ok("start", "base", "--wait=60")["state"], "running")
        self.desk.ok("stop", "base")
        self.desk.ok("rm", "work")
        self.desk.publish()
        self.desk.create("new", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT, "--wait=60")

    def test_r106_modes_of_a_sandbox(self):
        self.desk.start("base")
        for folder, _, names in os.walk(self.desk.sandbox_path("base")):
            self.assertEqual(mode_of(folder), 0o700, folder)
            for name in names:
                mode = os.lstat(os.path.join(folder, name)).st_mode
                self.assertTrue(stat.S_ISREG(mode) and not mode & 0o077, (name, oct(mode)))

    def test_r416_the_key_works_with_ssh(self):
        guest = self.desk.start("base")
        key, known = (self.desk.sandbox_path("base", name) for name in ("id_ed25519", "known_hosts"))
        options = ["IdentitiesOnly=yes", "IdentityAgent=none", "BatchMode=yes", "UserKnownHostsFile=" + known,
                   "HostKeyAlias=base", "StrictHostKeyChecking=yes", "HostKeyAlgorithms=ssh-ed25519"]
        options = [word for option in options for word in ("-o", option)]
        done = self.mac.run(["ssh", "-F", "/dev/null", "-i", key, *options, f"{ACCOUNT}@{guest.address}", "id -un"])
        self.assertEqual((done.returncode, done.stdout), (0, ACCOUNT.encode() + b"\n"), done)

    def test_r417_rm_deletes_everything(self):
        self.desk.start("base")
        error = self.desk.fails("INVALID_STATE", "rm", "base")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop base")
        self.desk.ok("stop", "base")
        self.assertEqual(self.desk.ok("rm", "base")["state"], "missing")
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])
        self.assertFalse(os.path.exists(self.desk.path("logs", "base.log")))
        self.assertEqual(self.desk.processes(self.desk.root), [])
        self.assertNotIn(self.desk.root.encode(), self.mac.run(["hdiutil", "info", "-plist"]).stdout)
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "base")

    def test_r417_rm_of_a_disk_that_is_attached(self):
        """As a command that was killed has left it."""
        disk = self.desk.disk("base")
        self.mac.run(["hdiutil", "attach", "-nomount", "-imagekey", "diskimage-class=CRawDiskImage", disk], check=True)
        self.desk.ok("rm", "base")
        self.assertNotIn(disk.encode(), self.mac.run(["hdiutil", "info", "-plist"]).stdout)
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])

    def test_a_start_finds_the_disk_attached_that_a_killed_command_has_left(self):
        disk = self.desk.disk("base")
        self.mac.run(["hdiutil", "attach", "-nomount", "-imagekey", "diskimage-class=CRawDiskImage", disk], check=True)
        self.desk.start("base")

    def test_secrets_of_the_guest_stay_in_its_disk(self):
        self.desk.start("base")
        self.desk.ok("stop", "base")
        private = image.look(self.desk.disk("base"))["private/etc/ssh/ssh_host_ed25519_key"]["data"].splitlines()[2:-1]
        for folder, _, names in os.walk(self.desk.root):
            for name in names:
                if name != "disk.img":
                    with open(os.path.join(folder, name), "rb") as file:
                        content = file.read()
                    self.assertFalse(any(line in content for line in private), name)
        self.assertNotIn(private[0].decode(), repr(self.mac.calls()))


if __name__ == "__main__":
    main()
