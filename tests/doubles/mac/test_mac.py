"""The simulated Mac itself: each tool's answers and failures, machines, guests, disks, the network, the person.

Environment: SIMULATED_MAC_USER, an ordinary user for whom root makes the Macs; SIMULATED_MAC_BECOME, one to become
before anything else.
"""

import gzip
import hashlib
import http.client
import os
import plistlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse


def become(name):
    entry = pwd.getpwnam(name)
    os.initgroups(name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=name)
    os.chdir("/")


if os.environ.get("SIMULATED_MAC_BECOME"):
    become(os.environ["SIMULATED_MAC_BECOME"])

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import mac  # noqa: E402  (only now: it keeps files of its own per user)
from mac import DEVNULL, PIPE, Mac, image, make_ipsw, wait_until  # noqa: E402

USER = os.environ.get("SIMULATED_MAC_USER") or None
STAND_IN = os.path.join(HERE, "stand_in.py")
ENTITLEMENTS = os.path.join(HERE, "virtualization.entitlements")
MAC_ADDRESS = "6e:05:00:a1:b2:c3"
KEY_FILES = [f"private/etc/ssh/ssh_host_{kind}_key" for kind in ("ecdsa", "ed25519", "rsa")]


class MacTest(unittest.TestCase):
    """Each test has a Mac of its own, and a folder `files` that its programs may write to."""

    settings = {}

    def setUp(self):
        self.mac = Mac(user=USER, **self.settings).start()
        self.addCleanup(self.mac.close)
        self.files = self.mac.path("var")

    def path(self, *parts):
        return os.path.join(self.files, *parts)

    def write(self, name, data, mode=0o644):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return self.own(path, mode)

    def own(self, path, mode=None):
        """Gives what the test made to whoever the programs are."""
        if USER:
            entry = pwd.getpwnam(USER)
            os.chown(path, entry.pw_uid, entry.pw_gid)
        if mode is not None:
            os.chmod(path, mode)
        return path

    def out(self, *argv, **options):
        """What a program prints that must succeed without a word on stderr."""
        done = self.mac.run(list(argv), **options)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        return done.stdout.decode()

    def fails(self, *argv, status=None, text="", **options):
        done = self.mac.run(list(argv), **options)
        self.assertNotEqual(done.returncode, 0, done)
        if status is not None:
            self.assertEqual(done.returncode, status, done)
        self.assertIn(text, done.stderr.decode())
        return done

    def start(self, argv, **options):
        """A program that ends with the test at the latest."""
        def end():
            process.kill()
            with process:
                pass

        options.setdefault("stdin", DEVNULL)
        options.setdefault("stdout", DEVNULL)
        process = self.mac.popen(argv, **options)
        self.addCleanup(end)
        return process

    # Disks and machines.

    def disk(self, name="disk.img", account=None, remote_login=True, grants=(), shell="/bin/zsh", **more):
        """The image of an installed guest; with an ACCOUNT its setup is done and the key of the test is known."""
        path = self.path(name)
        image.install(path, **more)
        self.own(path)
        if account:
            with self.mac.edit(path) as folder:
                image.add_account(folder, account, shell=shell)
                image.set_remote_login(folder, remote_login)
                image.change_record(folder, grants=list(grants))
                ssh = folder.inside(f"Users/{account}/.ssh")
                os.mkdir(ssh, 0o700)
                shutil.copy(self.key + ".pub", os.path.join(ssh, "authorized_keys"))
        return path

    @property
    def key(self):
        path = self.path("key")
        if not os.path.exists(path):
            self.out("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
        return path

    def machine(self, disk, *options, address=MAC_ADDRESS, status=None, env=None):
        """Starts a machine; waits for it to run, or with STATUS for its end."""
        argv = ["/usr/bin/python3", STAND_IN, "run", "--disk", disk, "--aux", disk + ".aux", "--mac", address, *options]
        process = self.start(argv, stdout=PIPE, env=env)
        line = process.stdout.readline()
        if status is None:
            self.assertEqual(line, b"running\n")
        else:
            self.assertEqual(process.wait(10), status)
        return process

    def guest(self, disk, *options, **more):
        """Starts a machine and waits for its guest."""
        process = self.machine(disk, *options, **more)
        guest = self.mac.guest(disk)
        guest.wait("up")
        return process, guest

    def ssh(self, guest, *words, account="bob", options=(), **more):
        argv = ["ssh", "-F", "/dev/null", *options, "-i", self.key, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                "-o", "ConnectTimeout=5", "-o", "KexAlgorithms=curve25519-sha256"]
        return self.mac.run([*argv, f"{account}@{guest.address}", *words], **more)

    def ssh_out(self, guest, *words, **more):
        done = self.ssh(guest, *words, **more)
        self.assertEqual((done.returncode, done.stderr), (0, b""), f"{done}\n{guest.sshd_log()}")
        return done.stdout.decode()

    def can_connect(self, address, port=22):
        try:
            self.mac.connect(address, port, timeout=2).close()
            return True
        except ConnectionRefusedError:
            return False


class TestHost(MacTest):
    def test_is_an_apple_silicon_mac(self):
        self.assertEqual(self.out("uname"), "Darwin\n")
        self.assertEqual(self.out("uname", "-s"), "Darwin\n")
        self.assertEqual(self.out("uname", "-sm"), "Darwin arm64\n")
        self.assertEqual(self.out("sysctl", "-n", "hw.optional.arm64"), "1\n")
        self.assertEqual(self.out("sysctl", "kern.hv_vmm_present"), "kern.hv_vmm_present: 0\n")
        self.assertEqual(self.out("sw_vers", "-productVersion"), "15.6.1\n")
        self.assertEqual(self.out("sw_vers", "--buildVersion"), "24G90\n")
        self.assertEqual(self.out("launchctl", "managername"), "Aqua\n")

    def test_an_intel_mac_does_not_know_the_arm64_oid(self):
        self.mac.set(arm64=False)
        self.fails("sysctl", "-n", "hw.optional.arm64", text="unknown oid 'hw.optional.arm64'")
        self.assertEqual(self.out("sysctl", "-in", "hw.optional.arm64"), "")
        self.assertEqual(self.out("uname", "-m"), "x86_64\n")
        self.assertEqual(self.mac.env()["VZSIM_INTEL"], "1")

    def test_settings_change_by_the_file_too(self):
        with open(self.mac.settings_file, "w", encoding="utf-8") as file:
            file.write('{"version": "13.0", "in_vm": true}')
        self.assertEqual(self.out("sw_vers", "-productVersion"), "13.0\n")
        self.assertEqual(self.out("sysctl", "-n", "kern.hv_vmm_present"), "1\n")
        with self.assertRaises(KeyError):
            self.mac.set(no_such_setting=1)

    def test_every_call_is_logged(self):
        self.out("sw_vers", "-productVersion")
        self.mac.run(["hdiutil", "attach", "a b"], cwd=self.files)
        calls = self.mac.calls()
        self.assertEqual([(call["tool"], call["argv"], call["status"]) for call in calls],
                         [("sw_vers", ["-productVersion"], 0), ("hdiutil", ["attach", "a b"], 1)])
        self.assertEqual(calls[1]["cwd"], self.files)

    def test_a_tool_works_without_environment_and_standard_descriptors(self):
        tool = self.mac.path("bin", "sw_vers")
        self.assertEqual(self.out("env", "-i", tool, "-productVersion"), "15.6.1\n")
        self.out("/bin/sh", "-c", f"{tool} <&- >&- 2>&-")

    def test_shasum_prints_as_on_a_mac(self):
        path = self.write("a file", "abc")
        self.assertEqual(self.out("shasum", "-a", "1", path), f"a9993e364706816aba3e25717850c26c9cd0d89d  {path}\n")
        self.assertEqual(self.out("shasum", "-a", "256", input=b"")[:8], "e3b0c442")
        self.fails("shasum", self.path("none"), status=1)

    def test_arp_can_hang_until_it_is_killed(self):
        self.mac.set(arp="hang")
        self.assertEqual(self.mac.run(["timeout", "1", "arp", "-an"]).returncode, 124)
        wait_until(lambda: self.mac.calls("arp"), what="the log of the killed call")
        self.assertIsNone(self.mac.calls("arp")[0]["status"])


class TestDeveloperTools(MacTest):
    def test_ready(self):
        self.assertEqual(self.out("xcode-select", "-p"), "/Library/Developer/CommandLineTools\n")
        self.assertEqual(self.out("xcrun", "--find", "swiftc"), "/Library/Developer/CommandLineTools/usr/bin/swiftc\n")
        self.fails("xcrun", "--find", "no-such-tool", status=72)
        self.fails("xcode-select", "--install", text="already installed")
        self.assertEqual(self.mac.dialogs(), [])

    def test_absent_tools_are_told_by_xcode_select_and_open_a_dialog_otherwise(self):
        self.mac.set(tools="absent")
        done = self.fails("xcode-select", "-p", status=2, text="xcode-select: error: unable to get active developer")
        self.assertEqual(done.stdout, b"")
        self.assertEqual(self.mac.dialogs(), [])
        for argv in (["swiftc", "--version"], ["xcrun", "--find", "swiftc"]):
            self.fails(*argv, text="no developer tools were found")
        self.mac.run(["xcode-select", "--install"])
        self.assertEqual([call["tool"] for call in self.mac.dialogs()], ["swiftc", "xcrun", "xcode-select"])

    def test_a_stale_folder_is_printed_and_does_not_work(self):
        self.mac.set(tools="stale")
        self.assertEqual(self.out("xcode-select", "-p"), "/Library/Developer/CommandLineTools\n")
        for argv in (["swiftc", "a.swift"], ["xcrun", "--find", "swiftc"]):
            self.fails(*argv, text="xcrun: error: invalid active developer path")

    def test_a_licence_that_was_not_accepted(self):
        self.mac.set(tools="licence")
        self.assertEqual(self.out("xcode-select", "-p"), "/Applications/Xcode.app/Contents/Developer\n")
        self.fails("xcrun", "--find", "swiftc", status=69, text="license")
        self.fails("swiftc", "a.swift", status=69, text="license")

    def test_developer_dir_overrides(self):
        env = self.mac.env(DEVELOPER_DIR="/nowhere")
        self.assertEqual(self.out("xcode-select", "-p", env=env), "/nowhere\n")
        self.fails("xcrun", "--find", "swiftc", env=env, text="missing DEVELOPER_DIR path: /nowhere")

    def test_a_compiler_that_fails(self):
        self.mac.set(swiftc_error="a.swift:1:1: error: simulated")
        self.fails("swiftc", "-o", "x", self.write("a.swift", "print(1)"), status=1, text="error: simulated")

    def test_no_target_but_a_mac_s(self):
        self.fails("swiftc", "-target", "x86_64-unknown-linux", self.write("a.swift", ""), text="unable to load")


class TestSignature(MacTest):
    def sign(self, path, *more):
        return self.mac.run(["codesign", "--force", "--sign", "-", *more, path])

    def test_a_signature_is_that_of_the_bytes(self):
        path = self.write("program", b"some bytes", 0o755)
        self.fails("codesign", "--verify", path, text="code object is not signed at all")
        self.assertEqual(self.sign(path, "--entitlements", ENTITLEMENTS).returncode, 0)
        self.out("codesign", "--verify", path)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o755)
        shown = self.mac.run(["codesign", "--display", "--entitlements", "-", "--xml", path])
        self.assertEqual(plistlib.loads(shown.stdout), {"com.apple.security.virtualization": True})
        copy = self.path("copy")
        self.out("cp", path, copy)
        self.out("codesign", "--verify", copy)
        with open(path, "r+b") as file:
            file.write(b"S")
        self.fails("codesign", "--verify", path, text="invalid signature")

    def test_signing_again_needs_force(self):
        path = self.write("program", b"some bytes")
        self.sign(path)
        self.fails("codesign", "--sign", "-", path, text="is already signed")
        self.assertEqual(self.sign(path).returncode, 0)

    def test_signing_makes_a_new_file(self):
        path = self.write("program", b"some bytes")
        before = os.stat(path).st_ino
        self.sign(path)
        self.assertNotEqual(os.stat(path).st_ino, before)

    def test_refusals(self):
        path = self.write("program", b"some bytes")
        self.assertIn(b"Failed to parse entitlements",
                      self.sign(path, "--entitlements", self.write("bad", "no plist")).stderr)
        self.fails("codesign", "--verify", "123", text="No such process", cwd=self.files)
        self.fails("codesign", "--sign", "Somebody", path, text="no identity found")
        self.mac.set(codesign_error="program: errSecInternalComponent")
        self.fails("codesign", "--force", "--sign", "-", path, text="errSecInternalComponent")


class TestSwift(MacTest):
    """Real Swift against the stand-ins of Apple's modules."""

    @classmethod
    def setUpClass(cls):
        reason = mac.swift_missing(USER)
        if reason:
            raise unittest.SkipTest(reason)

    def compile(self, sign=True):
        program = self.path("machine")
        self.out("swiftc", "-O", "-target", "arm64-apple-macos13.0", "-framework", "Virtualization", "-o", program,
                 os.path.join(HERE, "machine.swift"), timeout=120)
        if sign:
            self.out("codesign", "--force", "--sign", "-", "--entitlements", ENTITLEMENTS, program)
        return program

    def run_machine(self, program, *title):
        disk, share = self.path("disk.img"), self.path("share")
        if not os.path.exists(disk):
            image.install(self.own(disk) if os.path.exists(disk) else disk)
            self.own(disk)
            os.mkdir(share)
            self.write("disk.img.aux", b"VZSIM-AUX\nVZSIM-MODEL:2")
        process = self.start([program, "run", disk, disk + ".aux", MAC_ADDRESS, share, *title],
                             stderr=DEVNULL)
        guest = self.mac.guest(disk)
        guest.wait("up")
        return process, guest

    def test_a_program_installs_a_guest_only_with_the_entitlement(self):
        program, disk = self.compile(sign=False), self.path("disk.img")
        self.out("truncate", "-s", "100G", disk)
        ipsw = self.own(make_ipsw(self.path("image.ipsw"), "26.1", "25B78"))
        install = [program, "install", disk, self.path("aux"), ipsw]
        self.fails(*install, text="com.apple.security.virtualization")
        self.out("codesign", "--force", "--sign", "-", "--entitlements", ENTITLEMENTS, program)
        os.unlink(self.path("aux"))
        self.out(*install)
        tree = image.look(disk)
        self.assertIn(b"25B78", tree[image.SYSTEM_VERSION]["data"])
        self.assertNotIn(image.SETUP_DONE, tree)
        self.assertLess(os.stat(disk).st_blocks * 512, 1 << 20)

    def test_a_compiler_error_names_the_caller_s_file(self):
        path = self.write("bad.swift", 'let x: Int = "text"\n')
        self.fails("swiftc", "-o", self.path("bad"), "bad.swift", cwd=self.files, text="bad.swift:1:14: error: cannot")
        self.fails("swiftc", "-typecheck", path, text=f"{path}:1:14: error")
        self.assertFalse(os.path.exists(self.path("bad")))

    def test_what_a_mac_does_not_compile_is_refused(self):
        self.write("cast.swift", "import ApplicationServices\n"
                                 "let x: CFTypeRef = 1 as CFTypeRef\nprint(x as? AXUIElement)\n")
        self.fails("swiftc", "cast.swift", cwd=self.files, text="an error on a Mac")

    def test_a_changed_program_is_killed(self):
        program = self.compile()
        self.assertNotEqual(self.mac.run([program, "none", "a", "b"]).returncode, -signal.SIGKILL)
        with open(program, "rb") as file:
            data = bytearray(file.read())
        data[data.index(b"running")] ^= 1
        os.unlink(program)
        self.assertEqual(self.mac.run([self.write("machine", bytes(data), 0o755)]).returncode, -signal.SIGKILL)

    def test_a_program_overwritten_in_place_after_it_ran_is_killed(self):
        program, other = self.compile(), self.path("other")
        self.mac.run([program, "none", "a", "b"])
        self.out("cp", program, other)
        self.out("codesign", "--force", "--sign", "-", other)  # whole, and other bytes
        self.out("sh", "-c", f"cat {other} >{program}")
        self.assertEqual(self.mac.run([program, "none", "a", "b"]).returncode, -signal.SIGKILL)
        self.out("mv", other, program)
        self.assertNotEqual(self.mac.run([program, "none", "a", "b"]).returncode, -signal.SIGKILL)

    def test_an_entitlement_of_apple_s_kills(self):
        program = self.compile()
        text = plistlib.dumps({"com.apple.security.virtualization": True, "com.apple.vm.networking": True})
        self.out("codesign", "--force", "--sign", "-", "--entitlements", self.write("more", text), program)
        self.assertEqual(self.mac.run([program, "none", "a", "b"]).returncode, -signal.SIGKILL)

    def test_what_happens_in_the_guest_or_at_its_window_reaches_the_program(self):
        program = self.compile()
        process, guest = self.run_machine(program, "Title")
        guest.person.shut_down()
        self.assertEqual(process.wait(10), 0)
        process, guest = self.run_machine(program, "Title")
        guest.person.close_window()
        self.assertEqual(process.wait(10), 0)
        self.assertTrue(self.mac.events("window.user-close"))
        process, guest = self.run_machine(program)
        guest.tell_simulator("crash")
        self.assertEqual(process.wait(10), 1)
        wait_until(lambda: not guest.runs, what="the end of the guest of a machine that crashed")


class TestDisk(MacTest):
    def hdiutil_attach(self, disk, *more):
        return self.mac.run(["hdiutil", "attach", "-nomount", "-noverify", "-noautofsck", "-imagekey",
                             "diskimage-class=CRawDiskImage", "-plist", *more, disk])

    def attach(self, disk):
        done = self.hdiutil_attach(disk)
        self.assertEqual(done.returncode, 0, done)
        return [row["dev-entry"] for row in plistlib.loads(done.stdout)["system-entities"]]

    def containers(self):
        return plistlib.loads(self.out("diskutil", "apfs", "list", "-plist").encode())["Containers"]

    def data_volume(self, whole):
        """The volume that carries the guest's files, found as its documentation says."""
        for container in self.containers():
            if re.fullmatch(re.escape(whole.removeprefix("/dev/")) + r"s\d+", container["DesignatedPhysicalStore"]):
                for volume in container["Volumes"]:
                    if "Data" in volume["Roles"]:
                        return volume
        return None

    def mount(self, volume, directory):
        if not os.path.exists(directory):
            self.out("mkdir", "-m", "700", directory)
        return self.mac.run(["mount", "-t", "apfs", "-o", "noowners,nobrowse", "/dev/" + volume["DeviceIdentifier"],
                             directory])

    def mounted(self, disk):
        """Attaches and mounts; (whole device, mount point)."""
        whole = self.attach(disk)[0]
        done = self.mount(self.data_volume(whole), self.path("mnt"))
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return whole, self.path("mnt")

    def test_an_attached_image_has_slices_and_containers_beside_the_host_s_own(self):
        self.assertEqual([one["ContainerReference"] for one in self.containers()], ["disk3"])
        rows = self.attach(self.disk())
        self.assertEqual(rows, ["/dev/disk4", "/dev/disk4s1", "/dev/disk4s2", "/dev/disk4s3"])
        containers = self.containers()
        self.assertEqual(containers[0]["ContainerReference"], "disk3")
        self.assertIn(["Data"], [volume["Roles"] for volume in containers[0]["Volumes"]])
        self.assertEqual({one["DesignatedPhysicalStore"] for one in containers[1:]}, {"disk4s1", "disk4s2", "disk4s3"})
        volume = self.data_volume(rows[0])
        self.assertEqual((volume["Name"], volume["Locked"], volume["FileVault"]), ("Data", False, False))
        facts = plistlib.loads(self.out("diskutil", "info", "-plist", "disk4s2").encode())
        self.assertEqual(facts["APFSContainerReference"], "disk5")

    def test_an_attached_image_is_listed_and_attached_again_under_the_same_devices(self):
        disk = self.disk()
        rows = self.attach(disk)
        self.assertEqual(self.attach(disk), rows)
        images = plistlib.loads(self.out("hdiutil", "info", "-plist").encode())["images"]
        self.assertEqual([(one["image-path"], one["system-entities"][0]["dev-entry"]) for one in images],
                         [(disk, "/dev/disk4")])
        self.out("hdiutil", "detach", "/dev/disk4")
        self.assertEqual(plistlib.loads(self.out("hdiutil", "info", "-plist").encode())["images"], [])
        self.fails("hdiutil", "detach", "/dev/disk4")

    def test_two_attached_images_have_devices_of_their_own(self):
        rows = [self.attach(self.disk(name)) for name in ("a.img", "b.img")]
        self.assertFalse(set(rows[0]) & set(rows[1]))
        self.assertEqual(len({self.data_volume(one[0])["DeviceIdentifier"] for one in rows}), 2)

    def test_a_copy_has_the_same_identifiers(self):
        disk, copy = self.disk(), self.path("copy.img")
        self.out("cp", "--sparse=always", disk, copy)
        volumes = [self.data_volume(self.attach(one)[0]) for one in (disk, copy)]
        self.assertEqual(volumes[0]["APFSVolumeUUID"], volumes[1]["APFSVolumeUUID"])

    def test_the_main_container_need_not_be_the_second_slice(self):
        self.mac.set(main_slice=3)
        whole = self.attach(self.disk())[0]
        self.assertIsNotNone(self.data_volume(whole))
        self.assertNotIn("disk4s2", [one["DesignatedPhysicalStore"] for one in self.containers()])

    def test_what_is_written_to_the_mounted_volume_is_in_the_image(self):
        disk = self.disk(account="bob")
        whole, mount = self.mounted(disk)
        self.out("sh", "-c", f"echo hello >{mount}/Users/bob/note && mkdir {mount}/private/etc/more")
        self.out("umount", mount)
        self.out("hdiutil", "detach", whole)
        tree = image.look(disk)
        self.assertEqual(tree["Users/bob/note"]["data"], b"hello\n")
        self.assertEqual(tree["private/etc/more"]["kind"], "d")
        self.assertEqual(os.listdir(mount), [])

    def test_a_file_rewritten_in_place_keeps_its_owner_and_one_replaced_does_not(self):
        disk = self.disk()
        with self.mac.edit(disk) as folder:
            for name in ("a", "b"):
                self.own_file(folder.inside("private/etc/" + name))
        whole, mount = self.mounted(disk)
        self.out("sh", "-c", f"cd {mount}/private/etc && echo 1 >a && echo 1 >b.new && mv b.new b")
        self.out("umount", mount)
        self.out("hdiutil", "detach", whole)
        tree = image.look(disk)
        self.assertEqual([tree["private/etc/" + name]["uid"] for name in ("a", "b")], [0, 99])
        self.assertEqual(tree["private/etc/a"]["mode"], 0o600)

    def own_file(self, path):
        with open(path, "w", encoding="ascii"):
            pass
        os.chmod(path, 0o600)

    def test_a_volume_in_use_is_busy(self):
        whole, mount = self.mounted(self.disk())
        process = self.start(["sleep", "60"], cwd=mount)
        self.fails("umount", mount, text="Resource busy")
        self.fails("hdiutil", "detach", whole, status=16, text="couldn't unmount \"disk4\" - Resource busy")
        process.kill()
        process.wait()
        self.out("umount", mount)
        self.out("hdiutil", "detach", whole)

    def test_force_detaches_what_is_busy_and_writes_it_back(self):
        disk = self.disk()
        whole, mount = self.mounted(disk)
        self.out("sh", "-c", f"echo 1 >{mount}/private/etc/note")
        process = self.start(["sleep", "60"], cwd=mount)
        self.out("hdiutil", "detach", whole, "-force")
        process.kill()
        self.assertEqual(image.look(disk)["private/etc/note"]["data"], b"1\n")

    def test_attach_detach_and_unmount_can_be_busy_a_number_of_times(self):
        self.mac.set(attach_busy=2, detach_busy=1, umount_busy=1)
        disk = self.disk()
        for _ in range(2):
            done = self.hdiutil_attach(disk)
            self.assertEqual((done.returncode, done.stderr),
                             (1, b"hdiutil: attach failed - Resource temporarily unavailable\n"))
        whole, mount = self.mounted(disk)
        self.fails("umount", mount, text="Resource busy")
        self.out("umount", mount)
        self.fails("hdiutil", "detach", whole, status=16)
        self.out("hdiutil", "detach", whole)
        self.mac.set(attach_busy=1)
        self.assertEqual(self.hdiutil_attach(disk).returncode, 1)

    def test_the_image_of_a_running_machine_is_busy(self):
        disk = self.disk()
        process, _ = self.guest(disk)
        self.assertIn(b"Resource temporarily unavailable", self.hdiutil_attach(disk).stderr)
        process.kill()
        process.wait()
        wait_until(lambda: self.hdiutil_attach(disk).returncode == 0, what="the attach after the machine's end")

    def test_an_image_may_stay_busy_for_a_moment_after_the_machine_s_end(self):
        self.mac.set(linger_ms=300)
        disk = self.disk()
        process, _ = self.guest(disk)
        process.terminate()
        process.wait(10)
        self.assertIn(b"Resource temporarily unavailable", self.hdiutil_attach(disk).stderr)
        wait_until(lambda: self.hdiutil_attach(disk).returncode == 0, what="the attach")

    def test_an_attached_image_cannot_be_started(self):
        disk = self.disk()
        self.attach(disk)
        self.machine(disk, status=2)

    def test_a_locked_volume_does_not_mount(self):
        self.mac.set(locked=True)
        volume = self.data_volume(self.attach(self.disk())[0])
        self.assertEqual((volume["Locked"], volume["FileVault"], volume["Encryption"]), (True, True, True))
        self.assertNotEqual(self.mount(volume, self.path("mnt")).returncode, 0)

    def test_a_disk_without_a_data_volume_or_without_anything(self):
        self.mac.set(data_volume=False)
        self.assertIsNone(self.data_volume(self.attach(self.disk())[0]))
        blank = self.path("blank.img")
        self.out("truncate", "-s", "64M", blank)
        self.assertEqual(len(self.attach(blank)), 1)

    def test_refusals(self):
        disk = self.disk()
        self.fails("hdiutil", "attach", "-nomount", "-plist", self.path("none.img"), text="No such file or directory")
        self.out("cp", "--sparse=always", disk, self.path("disk"))
        self.fails("hdiutil", "attach", "-nomount", "-plist", self.path("disk"), text="image not recognized")
        self.mac.set(attach_error="corrupt image")
        self.fails("hdiutil", "attach", "-nomount", "-plist", disk, text="attach failed - corrupt image")
        self.mac.set(attach_error=None, mount_error="volume could not be mounted: simulated")
        volume = self.data_volume(self.attach(disk)[0])
        self.assertIn(b"simulated", self.mount(volume, self.path("mnt")).stderr)
        self.mac.set(mount_error=None)
        self.assertNotEqual(self.mount({"DeviceIdentifier": "disk3s5"}, self.path("mnt")).returncode, 0)
        self.assertNotEqual(self.mount({"DeviceIdentifier": "disk5s1"}, self.path("mnt")).returncode, 0)
        self.fails("mount", "-t", "apfs", "/dev/" + volume["DeviceIdentifier"], self.path("none"))
        self.fails("umount", self.path("mnt"), text="not currently mounted")

    def test_diskutil_can_do_the_same_on_newer_systems(self):
        disk, mount = self.disk(), self.path("mnt")
        rows = plistlib.loads(self.out("diskutil", "image", "attach", "-plist", "--noMount", disk).encode())
        device = next(row["dev-entry"] for row in rows["system-entities"] if row.get("role") == "Data")
        self.out("mkdir", mount)
        self.out("diskutil", "mount", "nobrowse", "-mountOptions", "noowners", "-mountPoint", mount, device)
        self.assertIn("private", self.out("ls", mount))
        self.out("diskutil", "unmount", mount)
        self.out("diskutil", "eject", "disk4")
        self.mac.set(version="13.0")
        self.fails("diskutil", "image", "attach", "-plist", "--noMount", disk, text="did not recognize verb")


class TestGuest(MacTest):
    def install(self, disk):
        self.out("truncate", "-s", "64M", disk)
        ipsw = self.own(make_ipsw(self.path("image.ipsw"), "26.1", "25B78"))
        self.out("/usr/bin/python3", STAND_IN, "install", "--disk", disk, "--aux", disk + ".aux", "--image", ipsw)

    def test_after_an_installation_setup_assistant_waits(self):
        disk = self.path("disk.img")
        self.install(disk)
        _, guest = self.guest(disk)
        facts = guest.facts
        self.assertEqual((facts["accounts"], facts["remote_login"], facts["grants"]), ([], False, []))
        self.assertFalse(self.can_connect(facts["address"]))
        with open(self.mac.lease_file, encoding="ascii") as file:
            self.assertIn("\thw_address=1,6e:5:0:a1:b2:c3\n", file.read())
        with self.assertRaises(LookupError):
            guest.run("true")

    def test_a_person_sets_it_up(self):
        disk, share = self.path("disk.img"), self.path("share")
        self.install(disk)
        self.out("mkdir", share)
        self.write("share/setup.sh", "#!/bin/sh\nset -eu\nmkdir -m 700 ~/.ssh\n"
                                     "cat '/Volumes/My Shared Files/key.pub' >~/.ssh/authorized_keys\n"
                                     "sw_vers -productVersion; uname; launchctl managername; pwd\n"
                                     "echo $AXSIM_TRUSTED\n", 0o755)
        shutil.copy(self.key + ".pub", share)
        process, guest = self.guest(disk, "--share", share, "--window", "A window")
        person = guest.person
        person.create_account("bob", full_name="Bob")
        done = person.type_in_terminal("'/Volumes/My Shared Files/setup.sh'")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout.decode().split(), ["26.1", "Darwin", "Aqua", "/Users/bob", "0"])
        self.assertFalse(self.can_connect(guest.address))
        person.remote_login()
        self.assertEqual(self.ssh_out(guest, "echo", "$AXSIM_TRUSTED"), "0\n")
        person.allow()
        self.assertEqual(self.ssh_out(guest, "launchctl managername; echo $AXSIM_TRUSTED; id -un; echo $SHELL"),
                         "Background\n1\nbob\n/bin/zsh\n")
        process.terminate()
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(self.ssh_out(self.guest(disk)[1], "echo $AXSIM_TRUSTED"), "1\n")

    def test_a_person_needs_a_window(self):
        _, guest = self.guest(self.disk(account="bob"))
        with self.assertRaises(mac.NoWindow):
            guest.person.remote_login(False)

    def test_a_grant_to_terminal_is_none_to_ssh(self):
        _, guest = self.guest(self.disk(account="bob"), "--window", "w")
        guest.person.allow(mac.TERMINAL)
        self.assertEqual(guest.person.type_in_terminal("echo $AXSIM_TRUSTED").stdout, b"1\n")
        self.assertEqual(self.ssh_out(guest, "echo $AXSIM_TRUSTED"), "0\n")

    def test_grants_and_remote_login_change_at_any_time(self):
        _, guest = self.guest(self.disk(account="bob", grants=[mac.SSH_CLIENT]))
        argv = "while read line; do zsh -c 'echo $AXSIM_TRUSTED'; done"
        session = self.start(["ssh", "-F", "/dev/null", "-i", self.key, "-o", "StrictHostKeyChecking=no", "-o",
                              "UserKnownHostsFile=/dev/null", f"bob@{guest.address}", argv],
                             stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        for change, answer in ((None, b"1\n"), ("withdraw", b"0\n"), ("grant", b"1\n")):
            guest.change(**{change: mac.SSH_CLIENT} if change else {})
            session.stdin.write(b"\n")
            self.assertEqual(session.stdout.readline(), answer)
        guest.change(remote_login=False)
        wait_until(lambda: not self.can_connect(guest.address), what="the refusal")
        guest.change(remote_login=True)
        wait_until(lambda: self.can_connect(guest.address), what="the answer")

    def test_host_keys_are_made_at_the_first_connection_and_only_the_missing_ones(self):
        disk = self.disk(account="bob")
        process, guest = self.guest(disk)
        self.assertFalse(set(KEY_FILES) & set(image.look(disk)))
        self.ssh_out(guest, "true")
        process.terminate()
        process.wait(10)
        before = image.look(disk)
        self.assertEqual([before[path]["mode"] for path in KEY_FILES], [0o600] * 3)
        self.assertEqual([before[path]["uid"] for path in KEY_FILES], [0] * 3)
        with self.mac.edit(disk) as folder:
            for path in KEY_FILES[::2]:
                os.unlink(folder.inside(path))
                os.unlink(folder.inside(path + ".pub"))
        process, guest = self.guest(disk)
        self.ssh_out(guest, "true")
        process.terminate()
        process.wait(10)
        after = image.look(disk)
        self.assertEqual([before[path]["data"] == after[path]["data"] for path in KEY_FILES], [False, True, False])

    def test_a_key_that_others_may_read_is_refused(self):
        disk = self.disk(account="bob")
        process, guest = self.guest(disk)
        self.ssh_out(guest, "true")
        process.terminate()
        process.wait(10)
        with self.mac.edit(disk) as folder:
            os.chmod(folder.inside("private/etc/ssh/ssh_host_ed25519_key"), 0o644)
        _, guest = self.guest(disk)
        self.assertEqual(self.ssh(guest, "true", options=["-o", "HostKeyAlgorithms=ssh-ed25519"]).returncode, 255)

    def test_the_share_is_read_only_and_shows_what_the_host_writes(self):
        share = self.path("share")
        self.out("mkdir", share)
        _, guest = self.guest(self.disk(account="bob"), "--share", share)
        self.write("share/later", "text")
        self.assertEqual(self.ssh_out(guest, "cat '/Volumes/My Shared Files/later'"), "text")
        self.assertIn(b"Read-only", self.ssh(guest, "touch '/Volumes/My Shared Files/x'").stderr)

    def test_inside_it_is_a_mac_too(self):
        _, guest = self.guest(self.disk(account="bob", version="14.2", build="23C64"))
        path = self.ssh_out(guest, "echo $PATH")
        self.assertEqual(path, "/usr/bin:/bin:/usr/sbin:/sbin\n")
        self.assertEqual(self.ssh_out(guest, "uname; uname -m; sw_vers -productVersion; sysctl -n kern.hv_vmm_present"),
                         "Darwin\narm64\n14.2\n1\n")
        self.assertRegex(self.ssh_out(guest, "shasum -a 1 /etc/hosts"), "^[0-9a-f]{40}  /etc/hosts\n$")
        self.ssh_out(guest, "ls -d /Users/bob /private/etc /Volumes /Applications /Library")

    def test_every_login_shell_gets_the_command_as_it_is(self):
        text = "echo 'a  b' \\$x \"\t\" \xff\x81 | od -An -tx1".encode("latin-1")
        for shell in ("/bin/zsh", "/bin/bash", "/bin/sh", "/usr/bin/fish"):
            if not os.path.exists(shell):
                continue
            with self.subTest(shell=shell):
                disk = self.disk(os.path.basename(shell) + ".img", account="bob", shell=shell)
                process, guest = self.guest(disk)
                self.assertEqual(self.ssh_out(guest, text), " 61 20 20 62 20 24 78 20 09 20 ff 81 0a\n")
                self.assertEqual(self.ssh_out(guest, "echo $SHELL $AXSIM_TRUSTED"), f"{shell} 0\n")
                process.kill()
                process.wait()

    def test_start_up_files_and_banners_make_noise(self):
        disk = self.disk(account="bob")
        with self.mac.edit(disk) as folder:
            with open(folder.inside("Users/bob/.zshenv"), "w", encoding="ascii") as file:
                file.write("echo noise\n")
        self.mac.set(banner="A banner\n")
        _, guest = self.guest(disk)
        done = self.ssh(guest, "printf", "ok", options=["-o", "LogLevel=INFO"])
        self.assertEqual(done.stdout, b"noise\nok")
        self.assertIn(b"A banner", done.stderr)

    def test_sshd_may_refuse_hang_hang_up_or_be_mute(self):
        _, guest = self.guest(self.disk(account="bob"))
        address = guest.address
        wait_until(lambda: self.can_connect(address), what="the first answer")
        guest.change(ssh="refuse")
        wait_until(lambda: not self.can_connect(address), what="the refusal")
        guest.change(ssh="hang")
        with self.mac.connect(address) as connection:
            connection.settimeout(0.3)
            with self.assertRaises(TimeoutError):
                connection.recv(1)
        guest.change(ssh="drop")
        with self.mac.connect(address) as connection:
            self.assertEqual(connection.recv(1), b"")
        guest.change(ssh="mute")
        with self.assertRaises(TimeoutError):
            self.mac.connect(address, timeout=0.5)
        guest.change(ssh="ok")
        self.assertEqual(self.ssh_out(guest, "echo back"), "back\n")

    def test_settings_reach_guests_that_run(self):
        _, guest = self.guest(self.disk(account="bob"))
        self.mac.set(ssh="refuse")
        self.assertFalse(self.can_connect(guest.address))
        self.mac.set(ssh="ok", axsim={"STALE": 1})
        self.assertEqual(self.ssh_out(guest, "echo $AXSIM_STALE"), "1\n")

    def test_access_can_be_denied_and_tries_are_counted(self):
        _, guest = self.guest(self.disk(account="bob"))
        self.assertEqual(self.ssh(guest, "true", account="alice").returncode, 255)
        guest.change(ssh_access=False)
        self.assertEqual(self.ssh(guest, "true").returncode, 255)
        guest.change(ssh_access=True, max_auth_tries=2)
        keys = []
        for number in range(3):
            path = self.path(f"other-{number}")
            self.out("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
            keys += ["-i", path]
        self.assertIn(b"Too many authentication failures", self.ssh(guest, "true", options=keys).stderr)

    def test_a_guest_may_never_come_up(self):
        self.mac.set(boot_ms=None)
        disk = self.disk(account="bob")
        self.machine(disk)
        self.assertEqual(self.mac.guest(disk).facts["state"], "booting")
        self.assertFalse(os.path.exists(self.mac.lease_file))

    def test_sshd_may_come_later_than_the_lease(self):
        self.mac.set(sshd_ms=400)
        disk = self.disk(account="bob")
        self.machine(disk)
        address = self.mac.guest(disk).wait("network")["address"]
        self.assertFalse(self.can_connect(address))
        wait_until(lambda: self.can_connect(address), what="sshd")

    def test_with_filevault_a_guest_waits_for_its_password(self):
        disk = self.disk(account="bob")
        process, guest = self.guest(disk, "--window", "w")
        guest.person.turn_on_filevault()
        process.terminate()
        process.wait(10)
        self.machine(disk)
        self.assertEqual(self.mac.guest(disk).facts["state"], "locked")

    def test_a_power_off_from_inside_ends_the_machine(self):
        process, guest = self.guest(self.disk(account="bob"))
        self.ssh(guest, "echo kept >note; shutdown -h now; sleep 10")
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(image.look(self.path("disk.img"))["Users/bob/note"]["data"], b"kept\n")

    def test_a_guest_that_ignores_a_request_goes_on(self):
        env = self.mac.env(VZSIM_REQUEST_STOP="ignore")
        process, guest = self.guest(self.disk(account="bob"), env=env)
        process.terminate()
        wait_until(lambda: self.mac.events("vm.request-stop"), what="the request")
        self.assertEqual(self.ssh_out(guest, "echo here"), "here\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), 0)

    def test_killing_the_machine_ends_the_guest_and_keeps_its_files(self):
        disk = self.disk(account="bob")
        process, guest = self.guest(disk)
        session = self.start(["ssh", "-F", "/dev/null", "-i", self.key, "-o", "StrictHostKeyChecking=no", "-o",
                              "UserKnownHostsFile=/dev/null", f"bob@{guest.address}",
                              "echo kept >note; echo written; exec sleep 1000"], stdout=PIPE, stderr=DEVNULL)
        self.assertEqual(session.stdout.readline(), b"written\n")
        process.kill()
        process.wait(10)
        self.assertFalse(guest.runs)
        self.assertEqual([one for one in self.mac.processes() if one["argv"][:2] == ["sleep", "1000"]], [])
        self.assertEqual(image.look(disk)["Users/bob/note"]["data"], b"kept\n")

    def test_a_copy_of_the_image_is_another_guest(self):
        disk, copy = self.disk(account="bob"), self.path("copy.img")
        self.out("cp", "--sparse=always", disk, copy)
        _, first = self.guest(disk)
        _, second = self.guest(copy, "--ecid", "2", address="02:00:00:00:00:07")
        self.assertNotEqual(first.address, second.address)
        self.ssh_out(first, "echo first >note")
        self.assertEqual(self.ssh_out(second, "cat note 2>/dev/null || echo none"), "none\n")
        self.assertNotEqual(self.ssh_out(first, "cat /etc/ssh/*.pub"), self.ssh_out(second, "cat /etc/ssh/*.pub"))
        self.assertEqual(self.mac.warnings(), [])

    def test_a_copy_made_while_the_machine_runs_does_not_boot(self):
        disk, copy = self.disk(account="bob"), self.path("copy.img")
        process, _ = self.guest(disk)
        self.out("cp", "--sparse=always", disk, copy)
        process.terminate()
        process.wait(10)
        self.machine(copy)
        self.assertEqual(self.mac.guest(copy).facts["state"], "dead")
        self.assertIn("copied while it was in use", self.mac.warnings()[0])
        self.guest(disk)

    def test_an_identity_of_its_own_may_cost_a_clone_its_grants(self):
        self.mac.set(clones_keep_grants=False)
        disk = self.disk(account="bob", grants=[mac.SSH_CLIENT])
        for ecid, answer in (("1", "1\n"), ("1", "1\n"), ("2", "0\n")):
            process, guest = self.guest(disk, "--ecid", ecid)
            self.assertEqual(self.ssh_out(guest, "echo $AXSIM_TRUSTED"), answer)
            process.terminate()
            process.wait(10)

    def test_two_machines_and_no_more(self):
        disks = [self.disk(f"{number}.img") for number in range(3)]
        first, _ = self.guest(disks[0], "--ecid", "1", address="02:00:00:00:00:01")
        self.guest(disks[1], "--ecid", "2", address="02:00:00:00:00:02")
        self.machine(disks[2], status=6)
        first.kill()
        first.wait()
        self.guest(disks[2], "--ecid", "3", address="02:00:00:00:00:03")

    def test_twins_are_noticed(self):
        self.guest(self.disk("a.img"))
        self.guest(self.disk("b.img"))
        self.assertEqual(len(self.mac.warnings()), 2)

    def test_files_survive_a_boot_and_tmp_does_not(self):
        disk = self.disk(account="bob")
        process, guest = self.guest(disk)
        self.ssh_out(guest, "echo a >note; ln -s note link; chmod 400 note; echo b >/tmp/note")
        process.send_signal(signal.SIGINT)
        process.wait(10)
        _, guest = self.guest(disk)
        self.assertEqual(self.ssh_out(guest, "cat link; stat -c %a note; ls /tmp/note 2>/dev/null || echo none"),
                         "a\n400\nnone\n")

    def test_a_program_of_the_session_can_be_driven(self):
        _, guest = self.guest(self.disk(account="bob"))
        done = guest.run(argv=["/bin/cat"], input=b"\x00bytes\xff")
        self.assertEqual((done.returncode, done.stdout), (0, b"\x00bytes\xff"))
        with guest.popen("exec sleep 1000") as process:
            process.terminate()
        self.assertEqual(process.returncode, -signal.SIGTERM)
        with self.assertRaises(FileNotFoundError):
            guest.run(argv=["/no/such/program"])


class TestLeases(MacTest):
    def leases(self):
        with open(self.mac.lease_file, encoding="ascii") as file:
            return file.read()

    def test_entries_of_before_stay_and_the_file_is_replaced(self):
        old = "{\n\tip_address=192.168.64.2\n\thw_address=ff,f1:2\n\tidentifier=ff,f1:2\n\tlease=0x1\n}\n"
        self.write("dhcpd_leases", old)
        before = os.stat(self.mac.lease_file).st_ino
        _, guest = self.guest(self.disk())
        self.assertEqual(guest.address, "192.168.64.3")  # .2 is taken
        self.assertNotEqual(os.stat(self.mac.lease_file).st_ino, before)
        text = self.leases()
        self.assertIn(old, text)
        block = re.search(r"\{\n\tname=(\S+)\n\tip_address=192.168.64.3\n\thw_address=1,6e:5:0:a1:b2:c3\n"
                          r"\tidentifier=1,6e:5:0:a1:b2:c3\n\tlease=0x([0-9a-f]+)\n\}\n", text)
        self.assertGreater(int(block[2], 16), time.time() + 80000)

    def test_a_guest_keeps_its_address_unless_told_otherwise(self):
        disk = self.disk()
        addresses = []
        for new_address in (False, False, True):
            self.mac.set(new_address=new_address)
            process, guest = self.guest(disk)
            addresses.append(guest.address)
            process.kill()
            process.wait()
            wait_until(lambda guest=guest: not guest.runs, what="the end")
        self.assertEqual(addresses, ["192.168.64.2", "192.168.64.2", "192.168.64.3"])
        self.assertEqual(self.leases().count("hw_address=1,6e:5:0:a1:b2:c3"), 2)

    def test_arp_shows_the_guest_unless_told_otherwise(self):
        self.guest(self.disk())
        self.assertIn("(192.168.64.2) at 6e:5:0:a1:b2:c3 on bridge100", self.out("arp", "-an"))
        self.mac.set(arp="empty")
        self.assertEqual(self.out("arp", "-an"), "")


class TestCdn(MacTest):
    SIZE = 1 << 20

    def setUp(self):
        super().setUp()
        self.cdn = self.mac.cdn()
        path = make_ipsw(self.path("image.ipsw"), "26.1", "25B78", self.SIZE)
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(os.urandom(self.SIZE - 4096))
        with open(path, "rb") as file:
            self.data = file.read()
        self.image = self.cdn.publish(path, "26.1", "25B78")

    def get(self, url, method="GET", **headers):
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port)
        connection.sock = self.mac.connect(parts.hostname, parts.port)
        self.addCleanup(connection.close)
        connection.request(method, parts.path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        return connection.getresponse()

    def body(self, response):
        """What arrives, however it ends."""
        data = b""
        try:
            while chunk := response.read(65536):
                data += chunk
        except http.client.IncompleteRead as error:
            data += error.partial
        return data

    def test_the_catalog_lists_what_is_published(self):
        models = plistlib.loads(self.get(self.cdn.catalog_url).read())["MobileDeviceSoftwareVersionsByVersion"]["1"]
        entry = models["MobileDeviceSoftwareVersions"]["VirtualMac2,1"]["25B78"]["Restore"]
        self.assertEqual((entry["ProductVersion"], entry["FirmwareURL"]), ("26.1", self.image.url))
        self.assertEqual(entry["FirmwareSHA1"], hashlib.sha1(self.data).hexdigest())
        self.cdn.compress = True
        self.assertIn(b"25B78", gzip.decompress(self.get(self.cdn.catalog_url).read()))
        self.cdn.catalog_status = 503
        self.assertEqual(self.get(self.cdn.catalog_url).status, 503)

    def test_an_image_comes_whole_or_from_somewhere(self):
        response = self.get(self.image.url)
        self.assertEqual((response.status, response.read()), (200, self.data))
        response = self.get(self.image.url, Range="bytes=1000-")
        self.assertEqual((response.status, response.headers["Content-Range"], response.read()),
                         (206, f"bytes 1000-{self.SIZE - 1}/{self.SIZE}", self.data[1000:]))
        self.assertEqual(self.get(self.image.url, Range=f"bytes={self.SIZE}-").status, 416)
        self.assertEqual(self.get(self.image.url, "HEAD").headers["Content-Length"], str(self.SIZE))
        self.assertEqual(self.get(self.cdn.address + "/none").status, 404)
        self.assertEqual(self.cdn.served, 2 * self.SIZE - 1000)

    def test_a_changed_file_comes_whole(self):
        tag = self.get(self.image.url, "HEAD").headers["ETag"]
        self.assertEqual(self.get(self.image.url, Range="bytes=1000-", If_Range=tag).status, 206)
        self.image.change()
        self.assertEqual(self.get(self.image.url, Range="bytes=1000-", If_Range=tag).status, 200)

    def test_each_drop_ends_one_connection(self):
        self.image.drop_at = [0.4, 0.7]
        got = self.body(self.get(self.image.url))
        self.assertEqual(len(got), int(self.SIZE * 0.4))
        got += self.body(self.get(self.image.url, Range=f"bytes={len(got)}-"))
        self.assertEqual(len(got), int(self.SIZE * 0.7))
        got += self.body(self.get(self.image.url, Range=f"bytes={len(got)}-"))
        self.assertEqual(got, self.data)
        self.assertEqual(self.cdn.served, self.SIZE)

    def test_odd_answers(self):
        self.image.ranges = "ignore"
        self.assertEqual(self.get(self.image.url, Range="bytes=1000-").status, 200)
        self.image.ranges = "wrong"
        self.assertIn("bytes 1001-", self.get(self.image.url, Range="bytes=1000-").headers["Content-Range"])
        self.image.ranges = "refuse"
        self.assertEqual(self.get(self.image.url, Range="bytes=1000-").status, 416)
        self.image.short_by = 10
        self.assertEqual(len(self.body(self.get(self.image.url))), self.SIZE - 10)
        self.image.status = 500
        self.assertEqual(self.get(self.image.url).status, 500)

    def test_a_server_may_be_slow_or_stop_sending(self):
        self.image.bytes_per_second = 4 << 20
        began = time.monotonic()
        self.get(self.image.url).read()
        self.assertGreater(time.monotonic() - began, 0.2)
        self.image.bytes_per_second, self.image.hang_at = 0, 0.5
        response = self.get(self.image.url)
        self.assertEqual(len(response.read(self.SIZE // 2)), self.SIZE // 2)
        response.fp.raw._sock.settimeout(0.2)
        with self.assertRaises(TimeoutError):
            response.read(1)

    def test_programs_inside_reach_it(self):
        code = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1]).read()))"
        self.assertEqual(self.out("/usr/bin/python3", "-c", code, self.image.url), f"{self.SIZE}\n")


class TestProcess(MacTest):
    def test_arguments_and_streams_are_bytes(self):
        argv = [b"printf", b"%s|", b"", b"a b", b"\xff\x81", b"new\nline", b"x" * 100000]
        done = self.mac.run(argv)
        self.assertEqual(done.stdout, b"|a b|\xff\x81|new\nline|" + b"x" * 100000 + b"|")
        data = os.urandom(1 << 20)
        done = self.mac.run(["sh", "-c", "tee /dev/stderr"], input=data)
        self.assertEqual((done.stdout, done.stderr), (data, data))

    def test_ends_are_those_of_a_child(self):
        self.assertEqual(self.mac.run(["sh", "-c", "exit 7"]).returncode, 7)
        process = self.mac.popen(["sleep", "1000"])
        self.assertIsNone(process.poll())
        os.kill(process.pid, signal.SIGTERM)  # the number of outside
        self.assertEqual(process.wait(5), -signal.SIGTERM)
        process = self.mac.popen(["sleep", "1000"])
        self.mac.kill(process.inner_pid)
        self.assertEqual(process.wait(5), -signal.SIGKILL)
        with self.assertRaises(FileNotFoundError):
            self.mac.run(["no-such-program"])
        with self.assertRaises(PermissionError):
            self.mac.run([self.write("file", "text")])

    def test_a_time_out_loses_nothing(self):
        process = self.mac.popen(["sh", "-c", "echo one; read x; echo two"], stdin=PIPE, stdout=PIPE)
        with self.assertRaises(mac.TimeoutExpired):
            process.wait(0.1)
        self.assertEqual(process.communicate(b"\n"), (b"one\ntwo\n", None))
        with self.assertRaises(mac.TimeoutExpired):
            self.mac.run(["sleep", "1000"], timeout=0.1)

    def test_programs_run_as_the_user_in_a_folder_with_descriptors(self):
        uid = pwd.getpwnam(USER).pw_uid if USER else os.getuid()
        self.assertEqual(self.out("id", "-u"), f"{uid}\n")
        self.assertEqual(self.out("pwd", cwd="/usr"), "/usr\n")
        reader, writer = os.pipe()
        process = self.mac.popen(["/bin/bash", "-c", f"echo through >&{writer}"], pass_fds=[writer])
        os.close(writer)
        process.wait()
        self.assertEqual(os.read(reader, 100), b"through\n")
        os.close(reader)

    def test_programs_of_two_calls_know_each_other(self):
        process = self.start(["sleep", "1000"])
        self.assertEqual(self.out("readlink", f"/proc/{process.inner_pid}/exe"), "/usr/bin/sleep\n")
        self.out("kill", str(process.inner_pid))
        self.assertEqual(process.wait(5), -signal.SIGTERM)

    def test_orphans_stay_inside_and_are_reaped(self):
        self.out("sh", "-c", "setsid sleep 0.2 >/dev/null 2>&1 & echo $!")
        wait_until(lambda: not self.mac.processes(), what="the end of the orphan")


class TestEnd(MacTest):
    """Whatever happens, nothing is left."""

    def assert_gone(self, directory):
        name = os.path.basename(directory)
        wait_until(lambda: not os.path.exists(directory) and not self.users_of(name), what="the end of everything")
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            self.assertNotIn(name, file.read())

    @staticmethod
    def users_of(name):
        """Processes of this machine that were started with NAME among their words or in their environment."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                for what in ("cmdline", "environ"):
                    with open(f"/proc/{pid}/{what}", "rb") as file:
                        if name.encode() in file.read() and int(pid) != os.getpid():
                            found.append(pid)
            except OSError:
                pass
        return found

    def busy_mac(self):
        self.guest(self.disk(account="bob"))
        self.start(["sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 1000"])
        self.mac.run(["hdiutil", "attach", "-nomount", "-plist", self.disk("other.img")])
        self.mac.run(["sh", "-c", "mkdir mnt && mount -t apfs /dev/disk5s4 mnt"], cwd=self.files)
        return self.mac.directory

    def test_after_close(self):
        directory = self.busy_mac()
        self.mac.close()
        self.mac.close()
        self.assert_gone(directory)

    def test_after_the_daemon_was_killed(self):
        directory = self.busy_mac()
        self.mac._daemon.kill()
        self.mac._daemon.wait()
        wait_until(lambda: not self.users_of(os.path.basename(directory)), what="the end of all processes")
        self.mac.close()
        self.assert_gone(directory)

    def test_after_the_test_was_killed(self):
        code = (f"import sys; sys.path.insert(0, {os.path.dirname(HERE)!r}); import mac, time\n"
                f"one = mac.Mac(user={USER!r}).start(); one.popen(['sleep', '1000'])\n"
                "print(one.directory, flush=True); time.sleep(1000)")
        process = subprocess.Popen([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE)
        directory = process.stdout.readline().decode().strip()
        self.assertTrue(os.path.isdir(directory))
        process.kill()
        process.communicate()
        self.assert_gone(directory)

    def test_a_reboot_leaves_the_files_and_nothing_that_ran(self):
        self.busy_mac()
        self.mac.reboot()
        self.assertEqual(self.mac.processes(), [])
        self.assertEqual(plistlib.loads(self.out("hdiutil", "info", "-plist").encode())["images"], [])
        self.guest(self.path("disk.img"))

    def test_the_world_outside_sees_nothing(self):
        before = {name for _, name in socket.if_nameindex()}
        self.busy_mac()
        self.assertEqual({name for _, name in socket.if_nameindex()}, before)
        self.assertEqual(os.listdir(self.path("mnt")), [])
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            self.assertNotIn(self.mac.directory, file.read())


def main():
    reason = mac.missing()
    if reason:
        print(f"skipped: the simulated Mac cannot be had here: {reason}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="simulated-mac-test-") as folder:
        tempfile.tempdir = folder
        os.chmod(folder, 0o755)
        result = unittest.main(verbosity=2, exit=False).result
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
