"""R-401 to R-406 on a simulated Mac: the host, the VM host, and a first sandbox from an image of macOS."""

import hashlib
import os
import shutil

from harness import Desk, mode_of, wait_until
from mac import ACCOUNT, AD, USER, VERSION, MacTest, identity, main

MIB = 1 << 20


class HostTest(MacTest):
    """R-401: what the host must be."""

    def unavailable(self, *words):
        """`install macos` says so, in these words, and makes nothing; its data."""
        data = self.desk.ok("install", "macos")
        self.assertEqual(data["state"], "unavailable", data)
        for word in words:
            self.assertIn(word, data["message"])
        self.assertEqual([one for one in self.desk.ok("install")["providers"] if one["provider"] == "macos"], [data])
        self.assertFalse(os.path.exists(self.desk.root))
        self.assertEqual(self.mac.calls("swiftc"), [])
        return data

    def test_r401_an_intel_mac_is_unavailable(self):
        self.mac.set(arm64=False)
        self.assertNotIn("next", self.unavailable("Intel", "Apple silicon"))

    def test_r401_macos_before_13_is_unavailable(self):
        self.mac.set(version="12.7.6")
        self.assertNotIn("next", self.unavailable("12.7.6", "13"))
        self.mac.set(version="13.0")
        self.assertEqual(self.desk.ok("install", "macos")["state"], "ready")

    def test_r401_a_version_is_compared_by_its_numbers(self):
        self.mac.set(version="9.9")
        self.unavailable("9.9")
        self.mac.set(version="26.0")
        self.assertEqual(self.desk.look_at_provider()["state"], "missing")

    def test_r401_a_mac_that_is_a_virtual_machine_is_unavailable(self):
        self.mac.set(in_vm=True)
        self.unavailable("virtual machine")

    def test_r401_another_system_is_unavailable(self):
        """Outside of the Mac, on the system that these tests run on."""
        desk = Desk()
        data = desk.ok("install", "macos")
        self.assertEqual(data["state"], "unavailable")
        self.assertIn("Linux", data["message"])
        self.assertNotIn("next", data)
        self.assertFalse(os.path.exists(desk.root))

    def test_r401_all_reasons_are_told_at_once(self):
        self.mac.set(arm64=False, version="11.0")
        self.unavailable("Intel", "11.0")

    def test_r401_without_tools_next_installs_them(self):
        self.mac.set(tools="absent")
        data = self.unavailable("Command Line Tools")
        self.assertEqual(data["next_argv"], ["xcode-select", "--install"])
        self.assertEqual(self.mac.dialogs(), [])  # not before the person asks for it
        self.assertEqual(self.mac.run(data["next_argv"]).returncode, 0)
        self.desk.dialogs = 1
        self.mac.set(tools="ready")
        self.assertEqual(self.desk.ok("install", "macos")["state"], "ready")

    def test_r401_tools_that_an_upgrade_has_emptied(self):
        self.mac.set(tools="stale")
        self.assertEqual(self.unavailable("stale")["next"], "xcode-select --install")

    def test_r401_a_licence_that_is_not_accepted(self):
        self.mac.set(tools="licence")
        self.assertEqual(self.unavailable("licence")["next"], "sudo xcodebuild -license accept")

    def test_r203_create_on_an_unfit_host_is_refused(self):
        for settings, following in (({"arm64": False}, None), ({"arm64": True}, "missing")):
            self.mac.set(**settings)
            error = self.desk.fails("PROVIDER_UNAVAILABLE", "create", "base", "--provider", "macos",
                                    "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
            self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox install macos")
            self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
            self.assertIn(following or "Intel", error["message"])
            self.assertFalse(os.path.exists(self.desk.root))


class BuildTest(MacTest):
    """R-402: compiled, signed, kept."""

    def failed(self, *words):
        """`install macos` fails and names the log; the log's text."""
        error = self.desk.fails("ACTION_FAILED", "install", "macos")
        self.assertEqual(error["details"], {"provider": "macos", "state": "broken"})
        self.assertIs(error["recovery"]["needs_person"], True)
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox install macos")
        log = os.path.join(self.desk.built(), "build.log")
        self.assertIn(log, error["message"])
        for word in words:
            self.assertIn(word, error["message"])
        data = self.desk.look_at_provider()
        self.assertEqual((data["provider"], data["state"]), ("macos", "broken"))
        self.assertIn(log, data["message"])
        self.assertEqual(mode_of(log), 0o600)
        self.assertFalse(os.path.exists(os.path.join(self.desk.built(), "vmhost")))
        with open(log, encoding="utf-8") as file:
            return file.read()

    def test_r402_install_compiles_signs_and_answers_ready(self):
        data = self.desk.ok("install", "macos")
        self.assertEqual(data["state"], "ready")
        self.assertEqual(data["next"], "agent-desktop sandbox create desktop --provider macos --set ipsw=latest")
        vmhost = os.path.join(self.desk.built(), "vmhost")
        self.assertEqual(mode_of(vmhost), 0o700)
        self.assertEqual(self.mac.run(["codesign", "--verify", vmhost]).returncode, 0)
        shown = self.mac.run(["codesign", "--display", "--entitlements", "-", "--xml", vmhost]).stdout
        self.assertEqual(shown.count(b"<key>"), 1)  # com.apple.vm.networking would get it killed
        self.assertIn(b"com.apple.security.virtualization", shown)
        targets = [call["argv"] for call in self.mac.calls("swiftc")]
        self.assertTrue(all("arm64-apple-macos13.0" in argv for argv in targets), targets)
        self.assertEqual(len(self.mac.calls("swiftc")), 2)

    def test_r402_again_when_ready_does_nothing(self):
        self.desk.install()
        calls, events = len(self.mac.calls("swiftc")), self.desk.events()
        before = identity(os.path.join(self.desk.built(), "vmhost"))
        self.desk.install()
        self.assertEqual(len(self.mac.calls("swiftc")), calls)
        self.assertEqual(self.desk.events(), events)
        self.assertEqual(identity(os.path.join(self.desk.built(), "vmhost")), before)

    def test_r402_a_failed_build_names_the_log_with_the_compiler_s_words(self):
        self.mac.set(swiftc_error="vmhost.swift:7:1: error: the words of the compiler")
        self.assertIn("vmhost.swift:7:1: error: the words of the compiler", self.failed("swiftc"))
        error = self.desk.fails("PROVIDER_UNAVAILABLE", "create", "base", "--provider", "macos", "--set", "ipsw=latest",
                                "--set", "user=" + ACCOUNT)
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox install macos")
        self.mac.set(swiftc_error=None)
        self.desk.install()

    def test_r402_a_failed_signature_names_the_log(self):
        self.mac.set(codesign_error="errSecInternalComponent")
        self.assertIn("errSecInternalComponent", self.failed("codesign"))
        self.mac.set(codesign_error=None)
        self.desk.install()

    def test_r402_what_is_built_needs_no_compiler(self):
        self.desk.install()
        self.mac.set(tools="absent")
        self.assertEqual(self.desk.ok("install", "macos")["state"], "ready")
        self.desk.create_fresh()

    def test_r402_a_changed_source_makes_it_missing_and_an_old_build_is_no_reason_not_to_build(self):
        """As after an upgrade: what is there was built from another source."""
        self.desk.install()
        old = self.desk.built()
        os.rename(old, os.path.join(os.path.dirname(old), "vmhost-" + "0" * 32))
        data = self.desk.look_at_provider()
        self.assertEqual((data["state"], data["next"]), ("missing", "agent-desktop sandbox install macos"))
        self.desk.install()
        self.assertTrue(os.path.exists(os.path.join(old, "vmhost")))

    def test_r402_built_anew_when_it_is_gone_or_its_signature_is_broken(self):
        self.desk.install()
        for what, program in (("vmhost", "vmhost"), ("helper", "agent-desktop-macos-helper")):
            path = os.path.join(self.desk.built(what), program)
            for damage in (self.spoil, os.unlink, lambda path: os.chmod(path, 0o600)):
                with self.subTest(what=what, damage=damage):
                    damage(path)
                    data = self.desk.look_at_provider()
                    self.assertEqual((data["state"], data["next"]), ("missing", "agent-desktop sandbox install macos"))
                    calls = len(self.mac.calls("swiftc"))
                    self.desk.install()
                    self.assertEqual(len(self.mac.calls("swiftc")), calls + 1)  # only what had to be

    @staticmethod
    def spoil(path):
        with open(path, "r+b") as file:
            file.seek(1000)
            file.write(b"spoilt")

    def test_r110_the_provider_s_files_are_private_and_put_right(self):
        self.desk.install()
        home = self.desk.path("providers", "macos")
        folder = next(os.path.join(home, name) for name in os.listdir(home)
                      if os.path.exists(os.path.join(home, name, "provider.sh")))
        names = {"provider.sh": 0o700, "guest-setup.sh": 0o700, "vmhost.swift": 0o600, "vmhost.entitlements": 0o600,
                 "agent-desktop-macos-helper.swift": 0o600}
        before = {}
        for name, mode in names.items():
            with open(os.path.join(folder, name), "rb") as file:
                before[name] = (mode, file.read())
        self.assertEqual(sorted(os.listdir(folder)), sorted(names))
        for name in names:
            with open(os.path.join(folder, name), "r+b") as file:
                file.write(b"#damaged")
            os.chmod(os.path.join(folder, name), 0o644)
        shutil.rmtree(self.desk.built())
        self.desk.install()
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                self.assertEqual((mode_of(os.path.join(folder, name)), file.read()), before[name])

    def test_r106_modes_whatever_the_umask(self):
        process = self.desk.popen("sandbox", "install", "macos", umask=0)
        process.communicate()
        for folder, _, names in os.walk(self.desk.root):
            self.assertEqual(mode_of(folder), 0o700, folder)
            for name in names:
                self.assertEqual(mode_of(os.path.join(folder, name)) & 0o077, 0, name)

    def test_r304_two_installs_at_once_build_once(self):
        self.mac.set(swiftc_ms=300)
        installs = [self.desk.popen("sandbox", "install", "macos") for _ in range(2)]
        replies = [process.communicate()[0] for process in installs]
        self.assertEqual([process.returncode for process in installs], [0, 0], replies)
        wait_until(lambda: self.desk.ok("install", "macos")["state"] == "ready", 20, "ready")
        self.assertEqual(len(self.mac.calls("swiftc")), 2)  # one for each program

    def test_r306_a_killed_install_is_resumed(self):
        self.mac.set(swiftc_ms=60000)
        process = self.desk.popen("sandbox", "install", "macos")
        wait_until(lambda: self.desk.tools("swiftc"), 10, "the compiler")
        self.assertEqual(self.desk.look_at_provider()["state"], "working")
        process.kill()
        process.communicate()
        self.mac.set(swiftc_ms=0)
        for pid in self.desk.tools("swiftc"):  # its parent, the script, still holds the lock
            self.mac.kill(pid)
        wait_until(lambda: self.desk.look_at_provider()["state"] != "working", 10, "its end")
        self.desk.install()
        home = self.desk.path("providers", "macos")
        self.assertEqual([name for name in os.listdir(home) if name.startswith(".")], [])


class ArgumentsTest(MacTest):
    """R-403, R-405: what create takes."""

    stage = "ready"

    def refused(self, *options, word, **more):
        error = self.desk.fails("INVALID_ARGS", "create", "base", "--provider", "macos", *options, **more)
        self.assertIn(word, error["message"])
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "base")
        self.assertFalse(os.path.exists(self.desk.sandbox_path("base")))

    def test_r403_exactly_one_source(self):
        self.refused(word="ipsw")
        self.refused("--set", "user=bob", word="ipsw")
        self.refused("--set", "ipsw=latest", "--set", "from=other", word="from")
        self.assertEqual([event for event in self.desk.events() if event["name"] == "base"], [])

    def test_r403_user_only_with_ipsw(self):
        self.refused("--set", "from=other", "--set", "user=bob", word="user")

    def test_r203_unknown_twice_or_without_a_value(self):
        self.refused("--set", "ipws=latest", word="ipsw")
        self.refused("--set", "ipsw=latest", "--set", "ipsw=latest", word="ipsw")
        self.refused("--set", "ipsw", word="ipsw")
        self.refused("--set", "ipsw=", word="ipsw")

    def test_r403_names_that_no_account_has(self):
        for name in ("", "-x", ".x", "a b", "a/b", "a;b", "é", "x" * 65, "a\nb"):
            with self.subTest(name=name):
                self.refused("--set", "ipsw=latest", "--set", "user=" + name, word="user")

    def test_r405_a_path_must_be_an_image_that_can_be_read(self):
        self.desk.file("image.img", b"x")
        os.mkdir(os.path.join(self.desk.base, "folder.ipsw"))
        self.refused("--set", "ipsw=nowhere.ipsw", word="nowhere.ipsw")
        self.refused("--set", "ipsw=image.img", word=".ipsw")
        self.refused("--set", "ipsw=folder.ipsw", word="regular")
        if not USER.is_root:
            self.desk.file("closed.ipsw", b"x", 0o000)
            self.refused("--set", "ipsw=closed.ipsw", word="read")

    def test_r403_the_default_account_is_the_host_user_s_name(self):
        self.desk.image()
        self.desk.create("base", "--set", "ipsw=UniversalMac.ipsw", "--wait=60")
        self.assertEqual(self.desk.facts("base")["user"], USER.name)

    def test_r403_another_account(self):
        self.desk.image()
        self.desk.create("base", "--set", "ipsw=UniversalMac.ipsw", "--set", "user=Some.One_2", "--wait=60")
        self.assertEqual(self.desk.facts("base")["user"], "Some.One_2")

    def test_r107_a_bad_name_touches_nothing(self):
        for name in ("..", "A", "a_b", "x" * 33):
            self.desk.fails("INVALID_ARGS", "create", name, "--provider", "macos", "--set", "ipsw=latest")
        self.assertEqual(os.listdir(self.desk.path("sandboxes")) if os.path.exists(self.desk.path("sandboxes")) else [],
                         [])

    def test_r405_an_image_of_one_s_own_is_used_in_place_and_kept(self):
        path = self.desk.image("own.ipsw")
        before = identity(path)
        self.desk.create("base", "--set", "ipsw=./own.ipsw", "--set", "user=" + ACCOUNT)
        self.desk.await_state("base", "stopped")
        self.assertEqual(identity(path), before)
        self.assertIn(os.path.realpath(path), self.desk.install_log("base"))
        self.assertEqual(self.desk.cdn.requests, [])
        self.assertEqual(sorted(os.listdir(self.desk.sandbox_path("base"))),
                         ["id_ed25519", "id_ed25519.pub", "sandbox.json", "vm"])
        self.desk.ok("rm", "base")
        self.assertTrue(os.path.exists(path))

    def test_r405_a_path_with_links_in_it_is_resolved(self):
        path = self.desk.image("own.ipsw")
        os.symlink(path, os.path.join(self.desk.base, "link.ipsw"))
        self.desk.create("base", "--set", "ipsw=link.ipsw", "--set", "user=" + ACCOUNT, "--wait=60")
        self.assertIn("installing " + os.path.realpath(path), self.desk.install_log("base"))

    def test_r405_an_image_that_is_newer_than_the_host_is_not_refused_for_that(self):
        """A device-support package can make it install."""
        self.desk.image("own.ipsw", version="27.0", build="26A1")
        self.desk.create("base", "--set", "ipsw=own.ipsw", "--set", "user=" + ACCOUNT, "--wait=60")
        self.assertEqual(self.desk.facts("base")["image"], "27.0 (26A1)")


class CreateTest(MacTest):
    """R-404, R-406: from Apple's catalog."""

    stage = "ready"

    def create(self, *options):
        return self.desk.create("base", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT, *options)

    def broken(self, *words):
        """The create has failed for what WORDS say; then it is removed and made again."""
        data = self.desk.await_state("base", "broken")
        log = self.desk.install_log("base").splitlines()
        for word in words:
            self.assertIn(word, data["message"])
            self.assertTrue(any(word in line for line in log), (word, log))
        self.assertEqual(data["next"], "agent-desktop sandbox rm base")
        self.assertNotIn("progress", data)
        reason = self.desk.last_reason("base", "broken")
        for word in words:
            self.assertIn(word, reason)
        return data

    def assert_can_be_made_again(self):
        self.desk.ok("rm", "base")
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])
        self.create()
        self.desk.await_state("base", "stopped")

    def test_r404_the_newest_that_this_mac_can_install(self):
        self.mac.set(version="15.10")
        for version, build in (("15.9", "24X9"), ("15.10", "24X10"), ("15.10.1", "24X11"), ("26.0", "25A1")):
            self.desk.publish(version, build)
        self.desk.publish("15.9.9", "24X12", sha1="")  # without a checksum it does not count
        self.create()
        self.desk.await_state("base", "stopped")
        self.assertEqual(self.desk.facts("base")["image"], "15.10 (24X10)")

    def test_r404_the_download_is_checked_installed_and_deleted(self):
        image = self.desk.publish(size=3 * MIB)
        self.desk.cdn.compress = True  # as Apple's server sometimes does, unasked
        data = self.create()
        self.assertEqual((data["state"], data["activity"]), ("working", "installing"))
        self.assertEqual(data["next"], "agent-desktop sandbox status base")
        data = self.desk.await_state("base", "stopped")
        self.assertEqual(data["next"], "agent-desktop sandbox start base")
        self.assertEqual(sorted(os.listdir(self.desk.sandbox_path("base"))),
                         ["id_ed25519", "id_ed25519.pub", "sandbox.json", "vm"])
        self.assertEqual(sorted(os.listdir(self.desk.sandbox_path("base", "vm"))),
                         ["aux.img", "disk.img", "install.log", "vm.json"])
        self.assertEqual(self.desk.cdn.served, image.size)
        log = self.desk.install_log("base")
        self.assertIn(image.url, log)
        self.assertIn("SHA-1", log)

    def test_r404_no_candidate_names_both_versions(self):
        self.desk.publish("26.6.2", "25G99")
        self.create()
        self.broken("26.6.2", VERSION)
        self.assertEqual(self.desk.cdn.served, 0)
        self.desk.publish()
        self.assert_can_be_made_again()

    def test_r404_an_image_that_is_not_the_published_one(self):
        image = self.desk.publish(sha1="0" * 40)
        self.create()
        self.broken("SHA-1")
        self.assertEqual([name for name in os.listdir(self.desk.sandbox_path("base", "vm")) if name == "disk.img"], [])
        self.desk.cdn.images.remove(image)
        os.unlink(image.path)
        self.desk.publish()
        self.assert_can_be_made_again()

    def test_r404_a_disk_that_is_too_full_is_told_before_the_download(self):
        image = self.desk.publish(size=8 << 40, sha1="0" * 40)
        self.create()
        self.broken("room", "GB")
        self.assertEqual(self.desk.cdn.served, 0)
        os.unlink(image.path)

    def test_r404_case_1_a_broken_connection_resumes_where_it_ended(self):
        image = self.desk.publish(size=20 * MIB, drop_at=[0.4, 0.7])
        self.create()
        self.desk.await_state("base", "stopped")
        self.assertLess(self.desk.cdn.served, 1.1 * image.size)
        ranges = [request["range"] for request in self.desk.cdn.requests if request["range"]]
        self.assertGreaterEqual(len(ranges), 2)
        self.assertTrue(all(one["status"] == 206 for one in self.desk.cdn.requests if one["range"]))

    def test_r404_an_image_that_changed_meanwhile_is_read_anew(self):
        """Another file under the same address: what is there already is no part of it."""
        image = self.desk.publish(size=4 * MIB, drop_at=[0.5], bytes_per_second=4 * MIB)
        other = self.desk.image("other.ipsw", size=4 * MIB, build="24G91")
        with open(other, "rb") as file:
            image.sha1 = hashlib.sha1(file.read()).hexdigest()
        self.create()
        wait_until(lambda: self.desk.cdn.served > 0, 10, "the first bytes")
        image.change(other)
        self.desk.await_state("base", "stopped")
        again = [one for one in self.desk.cdn.requests if one["range"]]
        self.assertEqual([one["status"] for one in again], [200])
        self.assertEqual(self.desk.facts("base")["image"], f"{VERSION} (24G91)")

    def test_r404_a_catalog_that_cannot_be_had(self):
        self.desk.publish()
        for status, body, word in ((404, None, "404"), (0, b"<html>Sign in to the network</html>", "catalog")):
            with self.subTest(status=status):
                self.desk.cdn.catalog_status, self.desk.cdn.catalog_body = status, body
                self.create()
                self.broken(word)
                self.desk.ok("rm", "base")
        self.desk.cdn.catalog_status, self.desk.cdn.catalog_body = 0, None
        self.create()
        self.desk.await_state("base", "stopped")

    def test_r406_status_tells_the_bytes_of_the_download(self):
        image = self.desk.publish(size=20 * MIB, bytes_per_second=10 * MIB)
        data = self.create()
        self.assertEqual(data["state"], "working")
        seen = []

        def done():
            data = self.desk.ok("status", "base")
            progress = data.get("progress", {})
            if progress.get("done_bytes", 0) > 0:
                self.assertIn("Downloading macOS " + VERSION, data["message"])
                self.assertEqual(progress["total_bytes"], image.size)
                seen.append(progress["done_bytes"])
            return data["state"] == "stopped"

        wait_until(done, 30, "the end of the install")
        self.assertEqual(seen, sorted(seen))
        self.assertGreater(len(set(seen)), 2, seen)

    def test_r406_status_tells_the_percent_of_the_install(self):
        self.mac.set(vzsim={"INSTALL_STEP_MS": 60})
        self.desk.publish()
        self.create()
        seen = []

        def done():
            data = self.desk.ok("status", "base")
            if "percent" in data.get("progress", {}):
                self.assertIn("Installing macOS " + VERSION, data["message"])
                seen.append(data["progress"]["percent"])
            return data["state"] == "stopped"

        wait_until(done, 30, "the end of the install")
        self.assertEqual(seen, sorted(seen))
        self.assertGreater(len(set(seen)), 3, seen)

    def test_r406_an_image_that_is_newer_than_the_host(self):
        """What the installer says of it: 10006 at once, 10007 at 78 %. The versions are compared then."""
        self.desk.image("own.ipsw", version="26.6.2", build="25G99")
        for code in (10006, 10007):
            with self.subTest(code=code):
                self.mac.set(vzsim={"INSTALL_FAIL_AT": "0.78", "INSTALL_ERROR": str(code)})
                self.desk.create("base", "--set", "ipsw=own.ipsw", "--set", "user=" + ACCOUNT)
                self.broken("26.6.2", "newer")
                self.assertIn(f'"code":{code}', self.desk.install_log("base"))
                self.desk.ok("rm", "base")

    def test_r406_a_failure_of_the_installer(self):
        self.desk.publish()
        self.mac.set(vzsim={"INSTALL_FAIL_AT": "0.4", "INSTALL_ERROR": "10007"})
        self.create()
        data = self.desk.await_state("base", "broken")
        said = data["message"].split(": ", 1)[1].rstrip(".")
        self.assertIn(said, self.desk.install_log("base"))
        self.mac.set(vzsim={})
        self.assert_can_be_made_again()

    def test_r406_an_image_that_is_none(self):
        self.desk.file("own.ipsw", b"")
        self.desk.create("base", "--set", "ipsw=own.ipsw", "--set", "user=" + ACCOUNT)
        self.broken("image")

    def test_r208_stop_cancels_the_download(self):
        self.desk.publish(size=4 * MIB, hang_at=0.5)
        self.create()
        wait_until(lambda: self.desk.ok("status", "base").get("progress", {}).get("done_bytes"), 10, "half of it")
        self.cancel()

    def test_r208_stop_cancels_the_install(self):
        self.mac.set(vzsim={"INSTALL_STEP_MS": 300})
        self.desk.publish()
        self.create()
        wait_until(lambda: self.desk.ok("status", "base").get("progress", {}).get("percent", 0) >= 5, 10, "some of it")
        self.assertEqual(len(self.desk.vmhosts("base")), 1)
        self.cancel()

    def test_r208_stop_cancels_an_install_that_hangs(self):
        self.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})
        self.desk.publish()
        self.create()
        wait_until(lambda: self.mac.events("install.stalled"), 10, "the stall")
        self.cancel()

    def cancel(self):
        data = self.desk.ok("stop", "base")
        self.assertEqual((data["state"], data["next"]), ("broken", "agent-desktop sandbox rm base"))
        self.assertIn("cancel", data["message"])
        wait_until(lambda: not self.desk.processes(self.desk.root), 10, "the end of all processes")
        self.mac.set(vzsim={})
        for image in self.desk.cdn.images:
            image.hang_at = 2.0
        self.assert_can_be_made_again()

    def test_r211_create_can_be_waited_for(self):
        self.desk.publish()
        self.assertEqual(self.create("--wait")["state"], "stopped")

    def test_r211_a_failure_that_was_waited_for(self):
        self.desk.publish("26.6.2", "25G99")
        error = self.desk.fails("ACTION_FAILED", "create", "base", "--provider", "macos", "--set", "ipsw=latest",
                                "--set", "user=" + ACCOUNT, "--wait=60")
        self.assertIn("26.6.2", error["message"])
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox rm base")

    def test_r305_a_killed_worker_leaves_a_broken_sandbox_that_can_be_removed(self):
        self.desk.publish(size=4 * MIB, hang_at=0.5)
        self.create()
        wait_until(lambda: self.desk.ok("status", "base").get("progress", {}).get("done_bytes"), 10, "half of it")
        for pid in self.desk.processes(AD, "create"):
            self.mac.kill(pid)
        data = self.desk.await_state("base", "broken")
        self.assertIn("interrupted", data["message"])
        self.assertIn("MB", data["message"])  # bug case 1: how far it came
        self.desk.cdn.images[0].hang_at = 2.0
        self.assert_can_be_made_again()

    def test_r108_a_name_that_exists_is_left_alone(self):
        self.desk.publish()
        self.create("--wait")
        before = identity(self.desk.disk("base"))
        self.desk.fails("SANDBOX_EXISTS", "create", "base", "--provider", "macos", "--set", "ipsw=latest")
        self.desk.fails("SANDBOX_EXISTS", "create", "base", "--provider", "macos", "--set", "from=base")
        self.assertEqual(identity(self.desk.disk("base")), before)

    def test_r416_the_key_of_the_sandbox(self):
        self.desk.publish()
        self.create("--wait")
        key = self.desk.sandbox_path("base", "id_ed25519")
        self.assertEqual(mode_of(key), 0o600)
        with open(key, encoding="ascii") as file:
            self.assertTrue(file.read().startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n"))
        public = self.mac.run(["ssh-keygen", "-y", "-f", key], check=True).stdout.decode().split()
        with open(key + ".pub", encoding="ascii") as file:
            self.assertEqual(file.read().split()[:2], public[:2])
        self.assertEqual(public[0], "ssh-ed25519")

    def test_r406_what_the_guest_gets(self):
        """At least four CPUs and 8 GiB, or what the image asks for, and never more than the host may give."""
        for facts, limits, cpus, memory in (({}, {}, 4, 8 << 30),
                                            ({"mincpus": 6, "minmemory": 12 << 30}, {}, 6, 12 << 30),
                                            ({}, {"MAX_CPUS": 2, "MAX_MEMORY_MIB": 4096}, 2, 4 << 30)):
            with self.subTest(facts=facts, limits=limits):
                self.mac.set(vzsim=limits)
                self.desk.image("own.ipsw", **facts)
                self.desk.create("base", "--set", "ipsw=own.ipsw", "--set", "user=" + ACCOUNT, "--wait=60")
                machine = self.mac.events("vm.init")[-1]
                self.assertEqual((machine["cpus"], int(machine["memory"])), (cpus, memory), machine)
                self.desk.ok("rm", "base")

    def test_r101_progress_goes_to_a_terminal_s_stderr_only(self):
        self.desk.publish()
        reply = self.desk.raw("sandbox", "create", "base", "--provider", "macos", "--set", "ipsw=latest",
                              "--set", "user=" + ACCOUNT, "--wait=60")
        self.assertEqual((reply.status, reply.err, reply.out.count(b"\n")), (0, b"", 1))


if __name__ == "__main__":
    main()
