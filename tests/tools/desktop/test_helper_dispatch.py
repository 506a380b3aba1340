"""The helper for macOS beside the program: `launch` and `snapshot` are then the helper's, on every system.

The helper here is a script that tells how it was called; the real one has tests of its own (tests/providers/macos).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "e2e"))

from harness import AD, BASE, USER, envelope, main  # noqa: E402

NAME = "agent-desktop-macos-helper"
SCRIPT = """#!/bin/sh
printf '%s\\0' "$$" "$@" >"$CALLED"
cat
echo 'and this on stderr' >&2
exit 7
"""


class HelperDispatchTest(unittest.TestCase):
    def setUp(self):
        self.folder = USER.own(tempfile.mkdtemp(prefix="helper-", dir=BASE))
        self.program = shutil.copy(AD, os.path.join(self.folder, "agent-desktop"))
        self.helper = os.path.join(self.folder, NAME)
        self.called = os.path.join(self.folder, "called")
        self.env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self.folder, "LANG": "C.UTF-8",
                    "AGENT_DESKTOP_HOME": os.path.join(self.folder, "root"), "CALLED": self.called}

    def write_helper(self, content=SCRIPT, mode=0o755):
        with open(self.helper, "w", encoding="utf-8") as f:
            f.write(content)
        os.chmod(self.helper, mode)

    def run_program(self, *args, program=None, stdin=b""):
        process = subprocess.Popen([program or self.program, *args], env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder, **USER.switch)
        out, err = process.communicate(stdin, timeout=60)
        return process, out, err

    def call(self):
        """How the helper was called: its process and its arguments."""
        with open(self.called, "rb") as f:
            pid, *arguments = f.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
        os.unlink(self.called)
        return int(pid), arguments

    def error(self, *args):
        process, out, _ = self.run_program(*args)
        self.assertFalse(os.path.exists(self.called), "the helper was run")
        value = envelope(out.rstrip(b"\n"), args)
        self.assertEqual(process.returncode, 2 if value["error"]["code"] == "INVALID_ARGS" else 1)
        return value["error"]

    def test_the_helper_becomes_the_command(self):
        self.write_helper()
        process, out, err = self.run_program("launch", "Finder", stdin=b"\0any bytes\xff\n")
        self.assertEqual(self.call(), (process.pid, ["launch", "--", "Finder"]))
        self.assertEqual((process.returncode, out, err), (7, b"\0any bytes\xff\n", b"and this on stderr\n"))

    def test_r207_arguments_arrive_unchanged(self):
        odd = ["", " ", "a b", "*", "$HOME", "'", '"', "line\nbreak", "--activate", "-i", "--", "\udcff"]
        self.write_helper()
        for word in odd:
            with self.subTest(word=word):
                self.run_program("launch", "--arg", word, f"--arg={word}", "--", word)
                self.assertEqual(self.call()[1], ["launch", "--arg", word, "--arg", word, "--", word])
                self.run_program("snapshot", "--app", word)
                self.assertEqual(self.call()[1], ["snapshot", "--app", word])

    def test_options_of_launch_and_snapshot_are_passed_on(self):
        self.write_helper()
        self.run_program("launch", "--timeout-ms=2500", "Finder", "--activate")
        self.assertEqual(self.call()[1], ["launch", "--activate", "--timeout-ms", "2500", "--", "Finder"])
        self.run_program("snapshot", "-i", "--app=Finder")
        self.assertEqual(self.call()[1], ["snapshot", "--app", "Finder", "--interactive"])

    def test_the_file_of_the_program_counts_not_the_link_to_it(self):
        elsewhere = USER.own(tempfile.mkdtemp(prefix="link-", dir=BASE))
        link = os.path.join(elsewhere, "agent-desktop")
        os.symlink(self.program, link)
        self.write_helper()
        self.run_program("launch", "Finder", program=link)
        self.assertEqual(self.call()[1], ["launch", "--", "Finder"])
        os.rename(self.helper, os.path.join(elsewhere, NAME))
        process, _, _ = self.run_program("launch", "Finder", program=link)
        self.assertEqual(process.returncode, 1)
        self.assertFalse(os.path.exists(self.called))

    def test_a_bad_command_line_never_reaches_the_helper(self):
        self.write_helper()
        for args in (["launch"], ["launch", "a", "b"], ["launch", "a", "--timeout-ms=0"], ["snapshot"],
                     ["snapshot", "--app", "a", "--nonsense"]):
            with self.subTest(args=args):
                self.assertEqual(self.error(*args)["code"], "INVALID_ARGS")

    def test_help_is_the_programs_own(self):
        self.write_helper()
        process, out, _ = self.run_program("launch", "--help")
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"Usage: agent-desktop launch APP", out)
        self.assertFalse(os.path.exists(self.called))

    def test_other_commands_are_not_the_helpers(self):
        self.write_helper()
        for args in (["click", "@01234567:e1"], ["type", "@01234567:e1", "x"], ["screenshot", "--out", "x.png"],
                     ["sandbox", "list"]):
            with self.subTest(args=args):
                self.run_program(*args)
                self.assertFalse(os.path.exists(self.called))

    def test_a_helper_that_cannot_be_executed_is_an_error_and_nothing_was_done(self):
        def directory():
            os.mkdir(self.helper)

        cases = {
            "without permission": (lambda: self.write_helper(mode=0o644), "PERM_DENIED"),
            "of no known format": (lambda: self.write_helper(content="\0\0\0\0"), "ACTION_FAILED"),
            "a directory": (directory, "PERM_DENIED"),
        }
        for name, (make, code) in cases.items():
            with self.subTest(name):
                if os.path.exists(self.helper):
                    os.unlink(self.helper)
                make()
                for args in (["launch", "Finder", "--activate"], ["snapshot", "--app", "Finder"]):
                    error = self.error(*args)
                    self.assertEqual(error["code"], code)
                    self.assertIn(NAME, error["message"])
                    self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})

    @unittest.skipUnless(sys.platform.startswith("linux"), "elsewhere the helper is all there is")
    def test_without_a_helper_linux_has_its_own_way(self):
        self.assertIn("DISPLAY", self.error("launch", "true")["message"])
        self.assertIn("AT_SPI_BUS_ADDRESS", self.error("snapshot", "--app", "x")["message"])


if __name__ == "__main__":
    main()
