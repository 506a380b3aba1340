#!/usr/bin/python3
"""providers/macos/vmhost.swift: type-checked in both language modes, and its control logic driven from outside.

The real source, compiled for Linux against the stand-ins of tests/swift-stubs, whose machines are simulated (VZSIM_*
variables, described there). What only a Mac can show is not shown here.
"""

import base64
import fcntl
import json
import os
import plistlib
import re
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import swift

VMHOST_SWIFT = os.path.join(swift.SOURCE, "providers", "macos", "vmhost.swift")
DISK_BYTES = 64 << 20
MESSAGE_MAX = 255  # vmhost.h: more would be cut
EVENTS = {"check", "image", "progress", "installed", "renewed", "started", "window", "stopping", "stopped", "network",
          "error"}

vmhost = None  # the binary
base = None  # where this run's files lie


def setUpModule():
    global vmhost, base
    base = tempfile.mkdtemp(prefix="ad-vmhost-")
    unittest.addModuleCleanup(shutil.rmtree, base)
    vmhost = swift.build(VMHOST_SWIFT)
    LongWaits.begin()


class Host:
    """A running vmhost; its events as they come."""

    def __init__(self, *arguments, sim=None, keep=(), stdin=subprocess.PIPE):
        self.sim_log = tempfile.mktemp(prefix="sim-", dir=base)
        settings = {f"VZSIM_{name}": str(value) for name, value in (sim or {}).items()}
        self.errors = tempfile.TemporaryFile(dir=base)
        self.process = subprocess.Popen([vmhost, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=self.errors,
                                        env={"PATH": "/usr/bin:/bin", "VZSIM_LOG": self.sim_log, **settings},
                                        pass_fds=keep)
        self.events, self.rest = [], b""

    def read(self, deadline):
        """Waits for more output; false at its end."""
        ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing more came in time after {self}")
        chunk = os.read(self.process.stdout.fileno(), 65536)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        self.events += [self.event(line) for line in lines]
        return chunk != b""

    @staticmethod
    def event(line):
        event = json.loads(line)
        assert event["event"] in EVENTS, line
        assert abs(event["time"] - time.time() * 1000) < 600_000, line
        assert len(event.get("message", "").encode()) <= MESSAGE_MAX, line
        return event

    def wait_for(self, name, seconds=20):
        deadline = time.monotonic() + seconds
        while not self.all(name):
            assert self.read(deadline), f"no event '{name}': {self}"
        return self.all(name)[0]

    def wait_for_sim(self, name, seconds=20, times=1):
        """Waits for an event of the simulator's."""
        deadline = time.monotonic() + seconds
        while len(self.sim(name)) < times:
            assert self.process.poll() is None, f"ended without '{name}': {self}"
            assert time.monotonic() < deadline, f"no '{name}' in time: {self}"
            time.sleep(0.01)
        return self.sim(name)[0]

    def end(self, seconds=20):
        """Waits for the end; the exit status."""
        deadline = time.monotonic() + seconds
        while self.read(deadline):
            pass
        assert self.rest == b"", f"part of a line at the end: {self.rest!r}"
        status = self.process.wait(seconds)
        self.process.stdout.close()
        if self.process.stdin:
            self.process.stdin.close()
        return status

    def signal(self, number):
        self.process.send_signal(number)

    def all(self, name):
        return [event for event in self.events if event["event"] == name]

    def one(self, name):
        found = self.all(name)
        assert len(found) == 1, f"not exactly one '{name}': {self}"
        return found[0]

    def names(self):
        return [event["event"] for event in self.events]

    def hows(self):
        """How the guest's end went: [("stopping", "request"), ("stopped", "request")]."""
        return [(event["event"], event["how"]) for event in self.events if "how" in event]

    def sim(self, name):
        try:
            with open(self.sim_log, encoding="utf-8") as f:
                return [event for event in map(json.loads, f.read().splitlines()) if event["event"] == name]
        except FileNotFoundError:
            return []

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream:
                stream.close()

    def __str__(self):
        return f"{self.process.args[1:]} -> {self.process.poll()}\nevents {self.events}\nstderr {self.said()}"


def write(path, content):
    with open(path, "wb") as f:
        f.write(content)
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Folder:
    """A sandbox's vm folder, and an image beside it."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="vm-", dir=base)
        self.path, self.share = os.path.join(self.top, "vm"), os.path.join(self.top, "share")
        os.mkdir(self.path)
        os.mkdir(self.share)
        self.disk, self.aux, self.json = (os.path.join(self.path, n) for n in ("disk.img", "aux.img", "vm.json"))

    def image(self, facts="version=5.1 build=21A1"):
        """Older than any Linux kernel that this runs on, which stands for the Mac's version."""
        return write(os.path.join(self.top, "restore.ipsw"), f"VZSIM {facts}\n".encode())

    def record(self):
        return json.loads(read(self.json))

    def files(self):
        """Names and contents; of the sparse disk its beginning."""
        contents = {}
        for name in os.listdir(self.path):
            with open(os.path.join(self.path, name), "rb") as f:
                contents[name] = f.read(65536)
        return contents

    def install_words(self, image=None, disk_bytes=DISK_BYTES):
        return ("install", "--vm", self.path, "--image", image or self.image(), "--disk-bytes", str(disk_bytes))

    def run_words(self, *more):
        return ("run", "--vm", self.path, "--share", self.share, *more)


def installed():
    """A folder with an installed guest."""
    folder = Folder()
    host = Host(*folder.install_words(), sim={"INSTALL_STEP_MS": 0})
    assert host.end() == 0, host
    host.kill()
    return folder


class Case(unittest.TestCase):
    maxDiff = None

    def host(self, *arguments, **options):
        host = Host(*arguments, **options)
        self.addCleanup(host.kill)
        return host

    def install(self, folder, sim=None, **options):
        return self.host(*folder.install_words(**options), sim=sim)

    def run_guest(self, folder, *more, sim=None, **options):
        return self.host(*folder.run_words(*more), sim=sim, **options)

    def started(self, folder, *more, **options):
        host = self.run_guest(folder, *more, **options)
        host.wait_for("started")
        return host

    def ends(self, host, status, seconds=20):
        self.assertEqual(host.end(seconds), status, host)

    def fails(self, host, problem, *texts, seconds=20):
        """It ends with status 1, and its last event is its only error; that error."""
        self.ends(host, 1, seconds)
        error = host.one("error")
        self.assertEqual(host.events[-1], error)
        self.assertEqual(error["problem"], problem, host)
        for text in texts:
            self.assertIn(text, error["message"])
        return error


class LongWaits(Case):
    """What takes its bound, in seconds of waiting; begun before all others so that they need not wait for it."""

    hosts = {}

    @classmethod
    def begin(cls):
        """The machine is left alone while this is set up, so that each gets as far as it should."""
        for name in ("end of stdin", "SIGTERM"):
            folder = Folder()
            host = Host(*folder.install_words(), sim={"INSTALL_STALL_AT": 0.4})
            host.wait_for_sim("install.stalled")
            cls.hosts[name] = host
        cls.hosts["end of stdin"].process.stdin.close()
        cls.hosts["end of stdin"].process.stdin = None
        cls.hosts["SIGTERM"].signal(signal.SIGTERM)

        cls.hosts["installed"] = Host(*Folder().install_words(), sim={"REQUEST_STOP": "ignore"})
        cls.hosts["installed"].wait_for("installed")

        folder = installed()
        with open(folder.aux, "rb") as aux:  # stays locked as long as this process lives
            cls.lock = os.dup(aux.fileno())
        fcntl.flock(cls.lock, fcntl.LOCK_EX)
        cls.hosts["locked"] = Host(*folder.run_words())

        cls.hosts["window"] = Host(*installed().run_words("--window", "w"),
                                   sim={"CLOSE_WINDOW_AFTER_MS": 10, "REQUEST_STOP": "ignore"})
        cls.hosts["window"].wait_for("window")

    @classmethod
    def tearDownClass(cls):
        os.close(cls.lock)
        for host in cls.hosts.values():
            host.kill()

    def cancelled(self, host):
        self.fails(host, "cancelled")
        self.assertNotIn("installed", host.names())

    def test_an_installer_that_hangs_is_given_up_when_stdin_ends(self):
        self.cancelled(self.hosts["end of stdin"])

    def test_an_installer_that_hangs_is_given_up_on_sigterm(self):
        self.cancelled(self.hosts["SIGTERM"])

    def test_an_installed_guest_that_ignores_the_request_is_powered_off(self):
        host = self.hosts["installed"]
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopping", "request"), ("stopping", "force"), ("stopped", "force")])

    def test_a_lock_that_stays_is_an_error_after_five_seconds(self):
        host = self.hosts["locked"]
        error = self.fails(host, "locked", "in use")
        self.assertEqual(error["underlying"][0]["domain"], "NSPOSIXErrorDomain")
        self.assertGreater(len(host.sim("vm.start-failed")), 5)

    def test_a_closed_window_powers_off_after_thirty_seconds_a_guest_that_ignores_it(self):
        host = self.hosts["window"]
        self.ends(host, 0, seconds=60)
        self.assertEqual(host.hows(), [("stopping", "window"), ("stopping", "force"), ("stopped", "force")])
        asked, forced = (event["time"] for event in host.all("stopping"))
        self.assertGreaterEqual(forced - asked, 29_900)
        self.assertLess(forced - asked, 45_000)


class Source(Case):
    def test_type_checks_without_a_warning_in_language_modes_5_and_6(self):
        for mode in (5, 6):
            with self.subTest(mode=mode):
                self.assertIsNone(swift.check(VMHOST_SWIFT, mode))

    def test_uses_the_words_that_its_reader_knows(self):
        def text(name):
            with open(os.path.join(swift.SOURCE, "providers", "macos", name), encoding="utf-8") as f:
                return f.read()

        source, header, reader = text("vmhost.swift"), text("vmhost.h"), text("vmhost.c")
        members = set(re.findall(r"^    var (\w+): \[?\w+\]?\?", source, re.M))
        cases = re.findall(r"^ +case ((?:\w+, )*\w+)(?: = \"([\w-]+)\")?$", source, re.M)
        words = {word for names, raw in cases for word in [raw, *names.split(", ")]}

        event, = re.findall(r"^struct vmhost_event \{(.*?)^\}", header, re.M | re.S)
        fields = set(re.findall(r"(\w+)(?:\[\d+\])?;", event)) - {"kind"}
        events = set(re.findall(r'\{ "(\w+)", VMHOST_', reader))
        problems = set(re.findall(r'^    \{ "([\w-]+)", ERROR_', reader, re.M))
        self.assertTrue(fields and events and problems)
        self.assertEqual((fields - members, events - words, problems - words), (set(), set(), set()))

    def test_asks_for_the_virtualization_entitlement_and_no_other(self):
        with open(os.path.join(swift.SOURCE, "providers", "macos", "vmhost.entitlements"), "rb") as f:
            self.assertEqual(plistlib.load(f), {"com.apple.security.virtualization": True})


class Arguments(Case):
    def test_wrong_ones_are_explained_on_stderr_and_end_with_status_2(self):
        folder = Folder()
        cases = [
            ((), "usage: vmhost run --vm DIR --share DIR [--window TITLE]"),
            (("dance",), "usage: vmhost check"),
            (("check", "x"), "'x' is no option of check"),
            (("run", "--vm", folder.path), "--share is missing"),
            (("run", "--vm"), "--vm needs a value"),
            (("renew", "--vm", "a", "--vm", "b"), "--vm is there twice"),
            (("renew", "--vm", folder.path, "--share", "x"), "'--share' is no option of renew"),
            (folder.install_words(disk_bytes="many"), "--disk-bytes"),
            (folder.install_words(disk_bytes=0), "--disk-bytes"),
            (folder.install_words(disk_bytes=-512), "--disk-bytes"),
            (folder.install_words(disk_bytes=513), "--disk-bytes"),
        ]
        for words, text in cases:
            with self.subTest(words=words):
                host = self.host(*words)
                self.ends(host, 2)
                self.assertEqual(host.events, [])
                self.assertIn(text, host.said())
        self.assertEqual(folder.files(), {})


class Check(Case):
    def check(self, status, **sim):
        host = self.host("check", sim=sim)
        self.ends(host, status)
        return host.one("check")

    def test_a_mac_that_can(self):
        self.assertIs(self.check(0)["supported"], True)

    def test_a_mac_that_cannot(self):
        answer = self.check(1, UNSUPPORTED=1)
        self.assertEqual((answer["supported"], answer["problem"]), (False, "unsupported"))

    def test_a_binary_without_the_entitlement(self):
        answer = self.check(1, NO_ENTITLEMENT=1)
        self.assertEqual((answer["supported"], answer["problem"]), (False, "entitlement"))
        self.assertIn("entitlement", answer["message"])


class Install(Case):
    def test_makes_a_disk_auxiliary_storage_and_a_record_and_installs_into_them(self):
        folder = Folder()
        host = self.install(folder)
        self.ends(host, 0)

        about = os.stat(folder.disk)
        self.assertEqual(about.st_size, DISK_BYTES)
        self.assertLess(about.st_blocks * 512, 1 << 20)  # sparse
        self.assertTrue(read(folder.disk).startswith(b"VZSIM-INSTALLED"))
        self.assertEqual(sorted(os.listdir(folder.path)), ["aux.img", "disk.img", "vm.json"])
        for file in (folder.disk, folder.aux, folder.json):
            self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600, file)

        record = folder.record()
        self.assertEqual(sorted(record), ["cpus", "hardware_model", "mac", "machine_identifier", "memory_mib"])
        self.assertEqual((record["cpus"], record["memory_mib"]), (4, 8192))
        model = base64.b64decode(record["hardware_model"], validate=True)
        self.assertIn(model, read(folder.aux))  # the one that the auxiliary storage was made for
        base64.b64decode(record["machine_identifier"], validate=True)
        self.assertRegex(record["mac"], r"\A[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
        self.assertEqual(int(record["mac"][:2], 16) & 3, 2)  # locally administered, of one card

    def test_tells_the_image_the_progress_and_the_end(self):
        host = self.install(Folder())
        self.ends(host, 0)
        image = host.one("image")
        self.assertEqual((image["version"], image["build"]), ("5.1", "21A1"))
        fractions = [event["fraction"] for event in host.all("progress")]
        self.assertEqual((fractions[0], fractions[-1]), (0, 1))
        self.assertEqual(fractions, sorted(set(fractions)))
        order = [name for name in dict.fromkeys(host.names())]
        self.assertEqual(order, ["image", "progress", "installed", "stopping", "stopped"])

    def test_a_version_has_its_patch_number_only_when_there_is_one(self):
        folder = Folder()
        host = self.install(folder, image=folder.image("version=5.1.2 build=21A1"))
        self.assertEqual(host.wait_for("image")["version"], "5.1.2")

    def test_shows_at_most_a_thousand_steps(self):
        host = self.install(Folder(), sim={"INSTALL_STEPS": 5000, "INSTALL_STEP_MS": 0})
        self.ends(host, 0)
        self.assertLessEqual(len(host.all("progress")), 1001)

    def test_gives_the_machine_the_main_disk_nat_one_display_and_both_kinds_of_input(self):
        folder = Folder()
        host = self.install(folder)
        self.ends(host, 0)
        machine, = host.sim("vm.init")
        self.assertEqual(machine["disks"], [{"path": folder.disk, "readOnly": False, "caching": "automatic",
                                             "sync": "full"}])
        self.assertEqual((machine["aux"], machine["macs"]), (folder.aux, [folder.record()["mac"]]))
        self.assertEqual((len(machine["displays"]), machine["shares"]), (1, []))
        self.assertEqual(machine["keyboards"], ["VZUSBKeyboardConfiguration", "VZMacKeyboardConfiguration"])
        self.assertEqual(machine["pointers"], ["VZUSBScreenCoordinatePointingDeviceConfiguration",
                                               "VZMacTrackpadConfiguration"])
        self.assertEqual((machine["cpus"], machine["memory"]), (4, str(8 << 30)))

    def test_takes_what_the_image_needs_within_what_the_mac_allows(self):
        cases = [  # image needs CPUs, MiB; Mac allows CPUs, MiB; taken
            ((6, 12288), (16, 65536), (6, 12288)),
            ((2, 4096), (2, 4096), (2, 4096)),
            ((2, 4096), (3, 6000), (3, 6000)),
        ]
        for (cpus, memory), (most_cpus, most_memory), taken in cases:
            with self.subTest(image=(cpus, memory)):
                folder = Folder()
                image = folder.image(f"version=5.1 build=1A mincpus={cpus} minmemory={memory << 20}")
                host = self.install(folder, image=image, sim={
                    "MAX_CPUS": most_cpus, "MAX_MEMORY_MIB": most_memory, "INSTALL_STEP_MS": 0})
                self.ends(host, 0)
                self.assertEqual((folder.record()["cpus"], folder.record()["memory_mib"]), taken)

    def test_an_image_that_needs_more_than_the_mac_allows_is_refused_before_anything_is_made(self):
        for facts in ("mincpus=8", f"minmemory={32 << 30}"):
            with self.subTest(facts=facts):
                folder = Folder()
                host = self.install(folder, image=folder.image("version=5.1 build=1A " + facts),
                                    sim={"MAX_CPUS": 4, "MAX_MEMORY_MIB": 8192})
                self.fails(host, "unsupported", "macOS 5.1 needs", "at most 4 and 8192 MiB")
                self.assertEqual(folder.files(), {})

    def test_a_failure_on_the_way_is_told_with_the_frameworks_own_words(self):
        host = self.install(Folder(), sim={"INSTALL_FAIL_AT": 0.4})
        error = self.fails(host, "install", "10007")
        self.assertEqual((error["domain"], error["code"], error["underlying"]), ("VZErrorDomain", 10007, []))
        self.assertIn("10007", error["description"])
        self.assertLess(host.all("progress")[-1]["fraction"], 0.4)
        self.assertNotIn("installed", host.names())

    def test_an_image_newer_than_the_mac_is_named_as_the_cause_with_both_versions(self):
        for code in (10006, 10007):
            with self.subTest(code=code):
                folder = Folder()
                host = self.install(folder, image=folder.image("version=126.2 build=99A1"),
                                    sim={"INSTALL_FAIL_AT": 0.78, "INSTALL_ERROR": code})
                mac = ".".join(os.uname().release.split(".")[:2])
                error = self.fails(host, "host-too-old", "macOS 126.2", f"macOS {mac}", "Update the Mac")
                self.assertEqual(error["code"], code)

    def test_each_code_of_the_framework_is_the_problem_that_it_means(self):
        cases = [(10006, "host-too-old", "too old"), (8, "no-space", "no space"), (9, "cancelled", "cancelled"),
                 ("limit", "limit", "two macOS VMs"), (1, "install", "code 1"), (5, "configuration", "code 5")]
        for code, problem, text in cases:
            with self.subTest(code=code):
                host = self.install(Folder(), sim={"INSTALL_FAIL_AT": 0.1, "INSTALL_ERROR": code})
                self.fails(host, problem, text)

    def test_an_image_that_does_not_load_is_a_problem_of_the_image(self):
        for code in (10004, 10005):
            with self.subTest(code=code):
                folder = Folder()
                self.fails(self.install(folder, sim={"LOAD_ERROR": code}), "image", str(code))
                self.assertEqual(folder.files(), {})

    def test_an_image_that_this_mac_cannot_run_is_refused(self):
        for image, sim in (("version=5.1 build=1A supported=0", {}), ("version=5.1 build=1A",
                                                                      {"HARDWARE_UNSUPPORTED": 1})):
            with self.subTest(image=image):
                folder = Folder()
                host = self.install(folder, image=folder.image(image), sim=sim)
                self.fails(host, "image", "cannot run macOS 5.1")
                self.assertEqual(folder.files(), {})

    def test_an_image_that_is_not_there_or_not_named_ipsw_is_refused_by_name(self):
        folder = Folder()
        plain = write(os.path.join(folder.top, "image.bin"), b"VZSIM version=5.1\n")
        link = os.path.join(folder.top, "looks-like.ipsw")
        os.symlink(plain, link)
        missing = os.path.join(folder.top, "none.ipsw")
        for image, texts in ((plain, (".ipsw", plain)), (link, (".ipsw", plain)), (missing, ("no image", missing))):
            with self.subTest(image=image):
                self.fails(self.install(folder, image=image), "image", *texts)
        self.assertEqual(folder.files(), {})

    def test_links_on_the_way_to_the_image_are_followed_first(self):
        folder = Folder()
        os.symlink(folder.image(), os.path.join(folder.top, "link.ipsw"))
        os.symlink(folder.top, os.path.join(folder.top, "here"))
        host = self.install(folder, image=os.path.join(folder.top, "here", "link.ipsw"))
        self.ends(host, 0)
        real = os.path.join(folder.top, "restore.ipsw")
        self.assertEqual(host.sim("image.load")[0]["path"], real)
        self.assertEqual(host.sim("install.start")[0]["image"], real)

    def test_nothing_of_an_existing_vm_is_overwritten(self):
        for name in ("disk.img", "aux.img", "vm.json"):
            with self.subTest(name=name):
                folder = Folder()
                write(os.path.join(folder.path, name), b"precious")
                self.fails(self.install(folder), "configuration", name, "never overwritten")
                self.assertEqual(folder.files(), {name: b"precious"})

    def test_a_link_to_nowhere_counts_as_existing(self):
        folder = Folder()
        os.symlink(os.path.join(folder.top, "elsewhere"), folder.disk)
        self.fails(self.install(folder), "configuration", "disk.img")
        self.assertFalse(os.path.exists(os.path.join(folder.top, "elsewhere")))

    def test_a_missing_folder_is_told_by_name(self):
        folder = Folder()
        os.rmdir(folder.path)
        self.fails(self.install(folder), "configuration", folder.path, "No such file")

    def test_a_mac_that_cannot_and_a_binary_that_may_not_say_so(self):
        self.fails(self.install(Folder(), sim={"UNSUPPORTED": 1}), "unsupported")
        self.fails(self.install(Folder(), sim={"NO_ENTITLEMENT": 1}), "entitlement")

    def cancel(self, how, sim, reached):
        host = self.install(Folder(), sim=sim)
        reached(host)
        if how == "end of stdin":
            host.process.stdin.close()
            host.process.stdin = None
        else:
            host.signal(how)
        self.fails(host, "cancelled")
        self.assertNotIn("installed", host.names())
        return host

    def test_is_cancelled_through_the_installer_when_stdin_ends_or_a_signal_comes(self):
        for how in ("end of stdin", signal.SIGTERM, signal.SIGINT):
            with self.subTest(how=how):
                host = self.cancel(how, {"INSTALL_STEPS": 10000, "INSTALL_STEP_MS": 20},
                                   lambda host: host.wait_for_sim("install.start") and host.wait_for("progress"))
                self.assertEqual(host.sim("install.end")[0]["code"], 9)

    def test_is_cancelled_while_the_image_is_still_being_read(self):
        for how in ("end of stdin", signal.SIGTERM):
            with self.subTest(how=how):
                host = self.cancel(how, {"LOAD_DELAY_MS": 600000}, lambda host: host.wait_for_sim("image.load"))
                self.assertEqual(host.sim("install.start"), [])

    def test_input_on_stdin_cancels_nothing(self):
        host = self.install(Folder(), sim={"INSTALL_STEPS": 5})
        host.process.stdin.write(b"x" * 5000)
        host.process.stdin.flush()
        self.ends(host, 0)

    def test_a_guest_that_cannot_be_asked_after_the_installation_is_powered_off(self):
        host = self.install(Folder(), sim={"REQUEST_STOP": "throw", "INSTALL_STEP_MS": 0})
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopping", "request"), ("stopping", "force"), ("stopped", "force")])

    def test_a_guest_that_is_off_after_the_installation_is_left_alone(self):
        host = self.install(Folder(), sim={"INSTALL_STATE_AFTER": "stopped", "INSTALL_STEP_MS": 0})
        self.ends(host, 0)
        self.assertEqual(host.names()[-1], "installed")

    def test_killing_it_ends_the_guest_and_leaves_what_a_second_install_refuses(self):
        folder = Folder()
        host = self.install(folder, sim={"INSTALL_STALL_AT": 0.4})
        host.wait_for_sim("install.stalled")
        host.kill()
        with open(folder.aux, "rb") as aux:
            fcntl.flock(aux, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it any more
        self.fails(self.install(folder), "configuration", "disk.img")


class Run(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = installed()

    def test_starts_the_recorded_machine_with_the_share_mounted_read_only(self):
        host = self.started(self.folder)
        self.assertEqual(host.one("started")["pid"], host.process.pid)
        machine, = host.sim("vm.init")
        record = self.folder.record()
        self.assertEqual(machine["macs"], [record["mac"]])
        self.assertIn(machine["ecid"].encode(), base64.b64decode(record["machine_identifier"]))
        self.assertEqual(machine["aux"], self.folder.aux)
        self.assertEqual(machine["shares"], [{"tag": "com.apple.virtio-fs.automount", "path": self.folder.share,
                                              "readOnly": True}])
        self.assertEqual(host.sim("aux.create"), [])

    def test_is_headless_without_a_title(self):
        host = self.started(self.folder)
        host.signal(signal.SIGTERM)
        self.ends(host, 0)
        self.assertEqual((host.sim("app.run"), host.sim("window.open")), ([], []))

    def test_keeps_app_nap_and_sudden_termination_away(self):
        host = self.started(self.folder)
        self.assertEqual(len(host.sim("activity.begin")), 1)
        self.assertEqual(host.sim("activity.end"), [])

    def test_asks_the_guest_on_sigterm_and_ends_when_it_has_stopped(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                host = self.started(self.folder)
                host.signal(number)
                self.ends(host, 0)
                self.assertEqual(host.hows(), [("stopping", "request"), ("stopped", "request")])
                self.assertEqual(host.sim("vm.stop"), [])

    def test_a_guest_that_ignores_the_request_runs_on_until_it_is_stopped_by_force(self):
        host = self.started(self.folder, sim={"REQUEST_STOP": "ignore"})
        host.signal(signal.SIGTERM)
        host.wait_for_sim("vm.request-stop")
        host.signal(signal.SIGTERM)  # asking again changes nothing
        host.wait_for_sim("vm.request-stop", times=2)
        self.assertEqual(host.sim("vm.stop"), [])
        host.signal(signal.SIGUSR1)
        self.ends(host, 0)
        self.assertEqual(host.hows()[-2:], [("stopping", "force"), ("stopped", "force")])

    def test_force_twice_is_force_once(self):
        host = self.started(self.folder, sim={"STOP_DELAY_MS": 300})
        host.signal(signal.SIGUSR1)
        host.wait_for_sim("vm.stop")
        host.signal(signal.SIGUSR1)
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopping", "force"), ("stopped", "force")])

    def test_a_guest_that_cannot_be_asked_is_reported_and_runs_on(self):
        host = self.started(self.folder, sim={"REQUEST_STOP": "throw"})
        host.signal(signal.SIGTERM)
        self.assertIn("cannot be asked", host.wait_for("stopping")["message"])
        host.signal(signal.SIGUSR1)
        self.ends(host, 0)
        self.assertEqual(host.all("error"), [])

    def test_a_failing_power_off_is_an_error(self):
        host = self.started(self.folder, sim={"STOP_ERROR": 1})
        host.signal(signal.SIGUSR1)
        self.fails(host, "other", "code 1")

    def test_a_stop_before_the_guest_has_started_ends_it_at_once(self):
        for number, how in ((signal.SIGTERM, "request"), (signal.SIGUSR1, "force")):
            with self.subTest(signal=number):
                host = self.run_guest(self.folder, sim={"START_DELAY_MS": 600000})
                host.wait_for_sim("vm.start")
                while host.process.poll() is None:  # on Linux a very early signal can be lost (swift-stubs/README.md)
                    host.signal(number)
                    try:
                        host.process.wait(0.05)
                    except subprocess.TimeoutExpired:
                        pass
                self.ends(host, 0)
                self.assertEqual(host.hows(), [("stopped", how)])

    def test_a_guest_that_powers_itself_off_is_a_stop(self):
        host = self.run_guest(self.folder, sim={"GUEST_STOP_AFTER_MS": 20})
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopped", "guest")])

    def test_a_crash_is_an_error(self):
        host = self.run_guest(self.folder, sim={"CRASH_AFTER_MS": 20})
        error = self.fails(host, "crash", "stopped by itself")
        self.assertEqual((error["domain"], error["code"]), ("VZErrorDomain", 1))
        self.assertIn("started", host.names())

    def test_a_lost_network_is_told_and_is_no_end(self):
        host = self.run_guest(self.folder, sim={"NETWORK_LOST_AFTER_MS": 20})
        self.assertTrue(host.wait_for("network")["message"])
        self.assertIsNone(host.process.poll())
        host.signal(signal.SIGTERM)
        self.ends(host, 0)
        self.assertEqual(host.all("error"), [])

    def test_another_failure_to_start_is_told_with_the_frameworks_own_words(self):
        error = self.fails(self.run_guest(self.folder, sim={"START_ERROR": 1}), "start", "code 1")
        self.assertEqual((error["domain"], error["code"]), ("VZErrorDomain", 1))

    def test_a_locked_keychain_is_recognised_below_the_error_and_its_cure_named(self):
        error = self.fails(self.run_guest(self.folder, sim={"START_ERROR": "keychain"}), "keychain",
                           "login keychain", "security unlock-keychain")
        self.assertEqual([cause["message"] for cause in error["underlying"]],
                         ["Failed to generate keypair.", "Interaction is not allowed with the Security Server."])

    def test_a_mac_that_cannot_and_a_binary_that_may_not_say_so(self):
        self.fails(self.run_guest(self.folder, sim={"UNSUPPORTED": 1}), "unsupported")
        self.fails(self.run_guest(self.folder, sim={"NO_ENTITLEMENT": 1}), "entitlement")
        self.fails(self.run_guest(self.folder, sim={"HARDWARE_UNSUPPORTED": 1}), "unsupported", "hardware model")

    def test_less_than_recorded_is_taken_on_a_smaller_mac(self):
        host = self.started(self.folder, sim={"MAX_CPUS": 2, "MAX_MEMORY_MIB": 4096})
        machine, = host.sim("vm.init")
        self.assertEqual((machine["cpus"], machine["memory"]), (2, str(4 << 30)))

    def test_a_share_that_is_no_folder_is_refused(self):
        for share in (os.path.join(self.folder.top, "none"), self.folder.json):
            host = self.host("run", "--vm", self.folder.path, "--share", share)
            self.fails(host, "configuration", share)

    def test_a_killed_host_takes_its_guest_along_and_can_be_started_again(self):
        host = self.started(self.folder)
        host.kill()
        self.started(self.folder)

    def test_a_lock_that_lingers_after_a_stop_is_waited_for(self):
        with open(self.folder.aux, "rb") as aux:
            fcntl.flock(aux, fcntl.LOCK_EX)
            host = self.run_guest(self.folder)
            host.wait_for_sim("vm.start-failed", times=2)
        host.wait_for("started")
        self.assertEqual(host.all("error"), [])

    def test_an_inherited_descriptor_is_held_until_the_end(self):
        path = os.path.join(self.folder.top, "run.lock")
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        host = self.started(self.folder, keep=(held,))
        os.close(held)
        with open(path, "rb") as again:
            with self.assertRaises(BlockingIOError):
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            host.signal(signal.SIGTERM)
            self.ends(host, 0)
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_nothing_is_made_for_a_guest_that_lacks_a_file(self):
        for name in ("disk.img", "aux.img", "vm.json"):
            with self.subTest(name=name):
                folder = installed()
                os.remove(os.path.join(folder.path, name))
                self.fails(self.run_guest(folder), "configuration", name, "missing")
                self.assertNotIn(name, folder.files())


class Limit(Case):
    """R-415 and bug case 2: two macOS guests on one Mac, whoever runs them."""

    def setUp(self):
        self.folders = [installed() for _ in range(3)]
        self.sim = {"SLOTS_DIR": tempfile.mkdtemp(prefix="slots-", dir=base)}

    def test_a_third_guest_is_refused_with_the_reason_and_the_way_out(self):
        running = [self.started(folder, sim=self.sim) for folder in self.folders[:2]]
        error = self.fails(self.run_guest(self.folders[2], sim=self.sim), "limit", "two macOS VMs", "Apple's limit",
                           "whole Mac", "stale count", "restart the Mac")
        self.assertEqual((error["domain"], error["code"]), ("VZErrorDomain", 6))
        self.assertIn("maximum supported number", error["description"])
        for host in running:
            self.assertIsNone(host.process.poll())

    def test_a_guest_that_ended_makes_room_however_it_ended(self):
        second = self.started(self.folders[1], sim=self.sim)
        for how in ("guest", "request", "kill"):
            with self.subTest(how=how):
                more = {"GUEST_STOP_AFTER_MS": 50} if how == "guest" else {}
                first = self.started(self.folders[0], sim={**self.sim, **more})
                if how == "request":
                    first.signal(signal.SIGTERM)
                if how == "kill":
                    first.kill()
                else:
                    self.ends(first, 0)
                third = self.started(self.folders[2], sim=self.sim)
                third.signal(signal.SIGUSR1)
                self.ends(third, 0)
        self.assertIsNone(second.process.poll())

    def test_an_installing_guest_counts_too(self):
        for folder in self.folders[:2]:
            self.started(folder, sim=self.sim)
        self.fails(self.install(Folder(), sim=self.sim), "limit", "two macOS VMs")


class Window(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = installed()

    def test_opens_with_its_title_once_the_guest_runs(self):
        host = self.run_guest(self.folder, "--window", "Review “build” 7")
        self.assertEqual(host.wait_for("window")["title"], "Review “build” 7")
        self.assertEqual(host.names(), ["started", "window"])
        self.assertEqual(host.sim("window.open")[0]["title"], "Review “build” 7")
        self.assertEqual(host.sim("app.policy")[-1]["policy"], "regular")
        self.assertEqual(host.sim("view.machine")[-1]["attached"], True)

    def test_is_not_opened_for_a_guest_that_does_not_start(self):
        host = self.run_guest(self.folder, "--window", "w", sim={"START_ERROR": "limit"})
        self.fails(host, "limit")
        self.assertEqual(host.sim("window.open"), [])

    def ended_by(self, **sim):
        host = self.run_guest(self.folder, "--window", "w", sim=sim)
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopping", "window"), ("stopped", "window")])
        self.assertEqual(host.sim("vm.stop"), [])
        return host

    def test_closing_it_shuts_the_guest_down(self):
        self.ended_by(CLOSE_WINDOW_AFTER_MS=20)

    def test_quitting_shuts_the_guest_down(self):
        self.ended_by(QUIT_APP_AFTER_MS=200)

    def test_it_stays_open_while_the_guest_shuts_down(self):
        host = self.ended_by(CLOSE_WINDOW_AFTER_MS=20, REQUEST_STOP_DELAY_MS=200)
        self.assertEqual(host.sim("window.close"), [])

    def test_quitting_before_the_guest_has_started_ends_it_at_once(self):
        host = self.run_guest(self.folder, "--window", "w", sim={"QUIT_APP_AFTER_MS": 50, "START_DELAY_MS": 600000})
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopped", "window")])

    def test_signals_work_as_without_one(self):
        host = self.started(self.folder, "--window", "w", sim={"REQUEST_STOP": "ignore"})
        host.signal(signal.SIGTERM)
        host.wait_for_sim("vm.request-stop")
        host.signal(signal.SIGUSR1)
        self.ends(host, 0)
        self.assertEqual(host.hows(), [("stopping", "request"), ("stopping", "force"), ("stopped", "force")])

    def test_needs_a_screen_before_it_starts_anything(self):
        host = self.run_guest(self.folder, "--window", "w", sim={"NO_SCREEN": 1})
        self.fails(host, "other", "logged in at this Mac's screen")
        self.assertEqual(host.sim("vm.start"), [])

    def test_no_screen_is_needed_without_one(self):
        self.started(self.folder, sim={"NO_SCREEN": 1})


class Renew(Case):
    def test_changes_the_identifier_and_the_address_and_nothing_else(self):
        folder = installed()
        before, files = folder.record(), folder.files()
        host = self.host("renew", "--vm", folder.path)
        self.ends(host, 0)
        after = folder.record()
        self.assertEqual(host.one("renewed")["mac"], after["mac"])
        for field in ("machine_identifier", "mac"):
            self.assertNotEqual(before.pop(field), after.pop(field))
        self.assertEqual(before, after)
        self.assertEqual(files.keys(), folder.files().keys())
        for name in ("disk.img", "aux.img"):
            self.assertEqual(files[name], folder.files()[name])

    def test_the_renewed_machine_runs_beside_the_one_it_was_copied_from(self):
        source = installed()
        copy = Folder()
        for name in ("disk.img", "aux.img", "vm.json"):
            shutil.copy(os.path.join(source.path, name), copy.path)
        self.ends(self.host("renew", "--vm", copy.path), 0)
        hosts = [self.started(folder) for folder in (source, copy)]
        ecids, macs = ({str(host.sim("vm.init")[0][field]) for host in hosts} for field in ("ecid", "macs"))
        self.assertEqual((len(ecids), len(macs)), (2, 2))

    def test_a_record_that_a_killed_renewal_left_half_written_is_no_obstacle(self):
        folder = installed()
        write(folder.json + ".new", b'{"cpus":')
        self.ends(self.host("renew", "--vm", folder.path), 0)
        self.assertNotIn("vm.json.new", folder.files())
        self.ends(self.run_guest(folder, sim={"GUEST_STOP_AFTER_MS": 1}), 0)


class DamagedRecord(Case):
    def test_is_told_clearly_and_never_overwritten(self):
        folder = installed()
        good = folder.record()
        without = {key: value for key, value in good.items() if key != "mac"}
        cases = [
            ("empty", b"", "not the record of a VM"),
            ("half", read(folder.json)[:40], "not the record of a VM"),
            ("zeros", bytes(100), "not the record of a VM"),
            ("a list", b"[]", "not the record of a VM"),
            ("no address", without, "mac is missing"),
            ("null", {**good, "hardware_model": None}, "hardware_model"),
            ("not base64", {**good, "machine_identifier": "%%%"}, "machine_identifier is wrong"),
            ("another's model", {**good, "hardware_model": "AAAA"}, "hardware_model"),
            ("another's identifier", {**good, "machine_identifier": "AAAA"}, "machine_identifier"),
            ("no MAC", {**good, "mac": "02:00:00:00:00"}, "mac"),
            ("a group's MAC", {**good, "mac": "03:00:00:00:00:01"}, "mac"),
            ("text for a number", {**good, "cpus": "4"}, "cpus is wrong"),
            ("no CPU", {**good, "cpus": 0}, "out of range"),
            ("negative memory", {**good, "memory_mib": -1}, "out of range"),
            ("all memory", {**good, "memory_mib": 1 << 60}, "out of range"),
        ]
        for name, content, text in cases:
            if isinstance(content, dict):
                content = json.dumps(content).encode()
            write(folder.json, content)
            files = folder.files()
            for words in (folder.run_words(), ("renew", "--vm", folder.path)):
                with self.subTest(damage=name, verb=words[0]):
                    self.fails(self.host(*words), "configuration", "vm.json", text)
                    self.assertEqual(folder.files(), files)


if __name__ == "__main__":
    swift.need_swift()
    unittest.main(verbosity=2)
