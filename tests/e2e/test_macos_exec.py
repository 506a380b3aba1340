"""R-207, R-213, R-414 on a simulated Mac: what runs inside a guest."""

import hashlib
import json
import os
import time

from harness import wait_until
from mac import AD, RunningMacTest, main


class ExecTest(RunningMacTest):
    def run_inside(self, *argv, options=(), **more):
        return self.desk.raw("sandbox", "run", *options, "work", "--", *argv, **more)

    def programs(self):
        """(SHA-1, inode) of the two programs in the guest, by name."""
        out = self.guest.run("cd ~/.local/bin && shasum -a 1 * && ls -i", check=True).stdout.decode().split()
        half = len(out) // 2
        sums, inodes = dict(zip(out[1:half:2], out[:half:2])), dict(zip(out[half + 1::2], out[half::2]))
        return {name: (sums[name], inodes[name]) for name in sums}

    def test_r207_exact_words_and_bytes(self):
        odd = ["", "a b", '"', "'", "\\", "$HOME", "`id`", ";", "&&", "*", "\n", "\t", "--", "-n", "A=b", "%s", b"\xff"]
        reply = self.run_inside("sh", "-c", 'printf "%s\\0" "$@"', "sh", *odd)
        self.assertEqual(reply.out.split(b"\0")[:-1], [os.fsencode(word) for word in odd])
        self.assertEqual((reply.status, reply.err), (0, b""))

    def test_r207_streams_and_status(self):
        data = os.urandom(3 << 20)
        self.assertEqual(self.run_inside("cat", input=data).out, data)
        reply = self.run_inside("sh", "-c", "echo out; echo err >&2; exit 42")
        self.assertEqual((reply.status, reply.out, reply.err), (42, b"out\n", b"err\n"))
        self.assertEqual(self.run_inside("sh", "-c", "kill -9 $$").status, 128 + 9)

    def test_r207_exec_is_agent_desktop_in_the_guest(self):
        reply = self.desk.raw("sandbox", "exec", "work", "--", "--version")
        self.assertEqual((reply.status, reply.out), (0, self.desk.raw("--version").out))
        reply = self.desk.raw("sandbox", "exec", "work", "--", "launch", "No Such App")
        self.assertEqual((reply.status, self.desk.envelope(reply)["error"]["code"]), (1, "APP_NOT_FOUND"))
        reply = self.desk.raw("sandbox", "exec", "work", "--", "snapshot", "--ap", "Finder")
        self.assertEqual((reply.status, self.desk.envelope(reply)["error"]["code"]), (2, "INVALID_ARGS"))

    def test_r207_a_time_limit_ends_the_command_in_the_guest(self):
        begun = time.monotonic()
        error = self.desk.fails("TIMEOUT", "run", "--timeout", "0.5", "work", "--", "sleep", "300.5")
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(error["disposition"]["delivery"], "delivered_unverified")
        wait_until(lambda: not self.desk.tools("sleep"), 5, "the end of the command in the guest")

    def test_r705_refs_stay_in_the_guest(self):
        self.desk.raw("sandbox", "exec", "work", "--", "launch", "Finder", "--activate")
        seen = self.desk.envelope(self.desk.raw("sandbox", "exec", "work", "--", "snapshot", "--app", "Finder", "-i"))
        self.assertTrue(seen["ok"], seen)
        self.assertFalse(os.path.exists(self.desk.path("snapshots")))

    def test_r414_both_programs_are_brought_up_to_date(self):
        ours = {"agent-desktop": AD,
                "agent-desktop-macos-helper": os.path.join(self.desk.built("helper"), "agent-desktop-macos-helper")}
        for name, path in ours.items():
            with open(path, "rb") as file:
                ours[name] = hashlib.sha1(file.read()).hexdigest()
        other = "printf '#!/bin/sh\\nexit 3\\n' >/tmp/x && chmod 755 /tmp/x && mv /tmp/x"
        both = list(ours)  # when the guest's agent-desktop cannot tell what is there
        for name, damages in {
            "agent-desktop": {"printf x >>agent-desktop": ["agent-desktop"], "rm agent-desktop": both,
                              other + " agent-desktop": both},
            "agent-desktop-macos-helper": {f"{damage} agent-desktop-macos-helper": ["agent-desktop-macos-helper"]
                                           for damage in ("printf x >>", "rm", other)},
        }.items():
            for damage, copied in damages.items():
                with self.subTest(damage=damage):
                    self.guest.run(f"cd ~/.local/bin && {damage}", check=True)
                    before = self.programs()
                    reply = self.desk.raw("sandbox", "exec", "work", "--", "--version")
                    self.assertEqual((reply.status, reply.err), (0, b""), reply)
                    after = self.programs()
                    self.assertEqual({name: sha1 for name, (sha1, _) in after.items()}, ours)
                    self.assertEqual([one for one in after if before.get(one) != after[one]], copied)
                    # a new file in the place of the old: macOS kills what was overwritten in place
                    self.assertNotEqual(before.get(name, (None, None))[1], after[name][1])

    def test_r210_the_journal_has_the_first_word_only(self):
        self.run_inside("sh", "-c", "true # a secret in the arguments")
        execs = [event for event in self.desk.events("work") if event["kind"] == "exec"]
        self.assertEqual((execs[-1]["word"], execs[-1]["status"]), ("sh", 0))
        self.assertNotIn("a secret in the arguments", repr(execs))

    def test_r213_a_report(self):
        path = os.path.join(self.desk.base, "report")
        self.run_inside("sh", "-c", "exit 3", options=["--report", path])
        with open(path, "rb") as file:
            report = json.loads(file.read())
        self.assertEqual((report["data"]["delivery"], report["data"]["status"]), ("finished", 3))


if __name__ == "__main__":
    main()
