#!/usr/bin/python3
"""tools/swift-toolchain, as the caller and (AD_TEST_USER) as an ordinary user: what compiles all other Swift here."""

import os
import pwd
import shutil
import subprocess
import tempfile
import unittest

import swift


def become(name):
    user = pwd.getpwnam(name)
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.chdir("/")  # where we are may be closed to that user
    os.environ["HOME"] = user.pw_dir


class Toolchain(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ad-toolchain-")
        self.addCleanup(shutil.rmtree, self.folder)

    def source(self, text):
        path = os.path.join(self.folder, "one file.swift")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def test_what_it_links_runs_outside_its_folder(self):
        binary = os.path.join(self.folder, "hello")
        source = self.source('import Foundation\nprint("pid", ProcessInfo.processInfo.processIdentifier)\n')
        done = swift.run(swift.TOOLCHAIN, "swiftc", "-o", binary, source)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(os.stat(binary).st_uid, os.getuid())
        self.assertRegex(subprocess.run([binary], capture_output=True, text=True, check=True).stdout, r"\Apid \d+\n\Z")

    def test_says_where_the_source_is_wrong_and_fails(self):
        source = self.source('let x: Int = "text"\n')
        done = swift.run(swift.TOOLCHAIN, "swiftc", "-typecheck", source)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(source + ":1:14: error", done.stdout)

    def test_leaves_the_folder_of_the_compiler_as_it_was(self):
        compiler = swift.run(swift.TOOLCHAIN, "path").stdout.strip()
        self.assertEqual(os.listdir(os.path.join(compiler, "mnt")), [])

    def test_names_the_folder_that_holds_no_compiler(self):
        done = swift.run(swift.TOOLCHAIN, "path", AD_SWIFT_DIR=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no Swift compiler in {self.folder}", done.stdout)

    def test_does_not_install_over_a_folder_of_something_else(self):
        if os.getuid() != 0:
            self.skipTest("only root can install")
        other = os.path.join(self.folder, "other")
        os.mkdir(other)
        done = swift.run(swift.TOOLCHAIN, "install", AD_SWIFT_DIR=other)
        self.assertEqual(done.returncode, 1)
        self.assertIn("remove it", done.stdout)
        self.assertEqual(os.listdir(other), [])

    def test_explains_its_verbs_when_it_is_given_none(self):
        done = swift.run(swift.TOOLCHAIN)
        self.assertEqual(done.returncode, 2)
        for verb in ("install", "path", "stubs", "swiftc"):
            self.assertRegex(done.stdout, rf"(?m)^  {verb} ")


if __name__ == "__main__":
    if os.environ.get("AD_TEST_USER") and os.getuid() == 0:
        become(os.environ["AD_TEST_USER"])
    swift.need_swift()
    unittest.main(verbosity=2)
