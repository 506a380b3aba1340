"""R-703: the documentation's own sequence, from nothing to nothing; and its table of states, reached one by one."""

import os
import shlex
import time

from harness import USER, wait_until
from mac import ACCOUNT, MacTest, add_desktop, main


class WalkTest(MacTest):
    def line(self, text):
        """Runs a line of the documentation that must succeed; its data."""
        words = shlex.split(text, comments=True)
        self.assertEqual(words[:2], ["agent-desktop", "sandbox"])
        return self.desk.ok(*words[2:])

    def inside(self, text):
        """The same for exec: what the command inside answers."""
        words = shlex.split(text, comments=True)
        reply = self.desk.raw(*words[1:])
        self.assertEqual((reply.status, reply.err), (0, b""), reply)
        return self.desk.envelope(reply)

    @property
    def account(self):
        return ACCOUNT if USER.is_root else USER.name

    def until_it_changes(self, text):
        first = self.line(text)
        end = time.monotonic() + 30
        while (data := self.line(text))["state"] == first["state"]:
            self.assertLess(time.monotonic(), end, data)
        return data

    def test_r703_the_macos_page_as_it_is_written(self):
        self.desk.publish()
        default_account = " --set user=" + ACCOUNT if USER.is_root else ""  # no guest has an account named root

        data = self.line("agent-desktop sandbox install macos                    # compile and sign vmhost")
        self.assertEqual(data["state"], "ready")

        data = self.line("agent-desktop sandbox create base --provider macos --set ipsw=latest" + default_account)
        self.assertEqual((data["state"], data["activity"]), ("working", "installing"))
        data = self.until_it_changes("agent-desktop sandbox status base")
        self.assertEqual((data["state"], data["next"]), ("stopped", "agent-desktop sandbox start base"))
        add_desktop(self.desk)

        data = self.line("agent-desktop sandbox start base")
        self.assertEqual((data["state"], data["needs_person"]), ("needs_setup", True))
        self.assertEqual(data["next"], "agent-desktop sandbox status base")
        self.assertEqual([event["title"] for event in self.mac.events("window.open")], ["base"])
        self.a_person_sets_it_up()

        data = self.line("agent-desktop sandbox stop base                        # a clone needs a stopped source")
        self.assertEqual((data["state"], data["next"]), ("stopped", "agent-desktop sandbox start base"))
        data = self.line("agent-desktop sandbox create work --provider macos --set from=base # copy the set-up VM")
        self.assertEqual(data["state"], "stopped")
        data = self.line("agent-desktop sandbox start work                                   # start it headless")
        self.assertEqual(data["state"], "running")
        self.assertEqual(len(self.mac.events("window.open")), 1)

        launched = self.inside("agent-desktop sandbox exec work -- launch Finder --activate")
        self.assertEqual((launched["ok"], launched["data"]["app"]), (True, "Finder"))
        self.assertEqual(launched["data"]["window"]["title"], "Recents")
        seen = self.inside("agent-desktop sandbox exec work -- snapshot --app Finder -i")
        self.assertEqual((seen["ok"], seen["data"]["app"]), (True, "Finder"))
        self.assertIn("New Folder", repr(seen["data"]["tree"]))
        self.assertFalse(os.path.exists(self.desk.path("snapshots")))  # they stay in the guest
        # And inside the guest the same two commands, without the host.
        guest = self.desk.guest("work")
        done = guest.run("~/.local/bin/agent-desktop snapshot --app Finder -i")
        self.assertEqual(done.returncode, 1, done)  # its Terminal has no grant: the one of ssh does not count there
        self.assertIn(b"PERM_DENIED", done.stdout)

        error = self.desk.fails("INVALID_STATE", "start", "work", "--window")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop work")
        self.line("agent-desktop sandbox stop work")
        data = self.line("agent-desktop sandbox start work --window              # show the guest desktop on the host")
        self.assertEqual(data["state"], "running")
        self.line("agent-desktop sandbox stop work")
        data = self.line('agent-desktop sandbox start work --window --set title="Review build"')
        self.assertEqual(data["state"], "running")
        self.assertEqual([event["title"] for event in self.mac.events("window.open")], ["base", "work", "Review build"])

        error = self.desk.fails("INVALID_STATE", "rm", "work")
        self.assertEqual(error["recovery"]["next"], "agent-desktop sandbox stop work")
        for name in ("work", "base"):
            self.line(f"agent-desktop sandbox stop {name}")
            self.assertEqual(self.line(f"agent-desktop sandbox rm {name}")["state"], "missing")
        self.assertEqual(self.line("agent-desktop sandbox list")["sandboxes"], [])
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])
        self.assertEqual(self.desk.processes(self.desk.root), [])
        self.the_journal_tells_it()

    def a_person_sets_it_up(self):
        """One step after the other; after each, `status` says what is left."""
        guest = self.desk.guest("base")
        person = guest.person
        script, login, allow = "guest-setup.sh", "Remote Login", "sshd-keygen-wrapper"

        def left(*steps):
            data = self.line("agent-desktop sandbox status base")
            self.assertEqual((data["state"], data["needs_person"]), ("needs_setup", True))
            self.assertEqual([step for step in (script, login, allow) if step in data["message"]], list(steps), data)
            return data["message"]

        self.assertIn(f"as '{self.account}'", left(script, login, allow))
        person.create_account(self.account)
        left(script, login, allow)
        said = self.desk.run_setup(guest)
        self.assertIn("turn on Remote Login", said)
        self.assertIn("allow sshd-keygen-wrapper", said)
        left(script, login, allow)  # nobody can know better: the guest cannot be asked yet
        person.remote_login()
        left(allow)
        person.allow()
        data = self.line("agent-desktop sandbox status base")
        self.assertEqual(data["state"], "running")
        self.assertNotIn("next", data)
        facts = self.desk.facts("base")
        self.assertEqual((facts["setup"], facts["user"]), ("done", self.account))
        self.assertEqual(self.line("agent-desktop sandbox status base")["state"], "running")

    def the_journal_tells_it(self):
        """R-210: all of it is there, those that are removed too."""
        self.assertEqual(self.desk.moves("base"), [
            "working installing", "stopped",
            "working starting", "needs_setup", "running", "working stopping", "stopped",
            "working removing", "missing"])
        self.assertEqual(self.desk.moves("work"), [
            "working cloning", "stopped",
            "working starting", "running", "working stopping", "stopped",
            "working starting", "running", "working stopping", "stopped",
            "working starting", "running", "working stopping", "stopped",
            "working removing", "missing"])
        events = self.desk.events("work")
        self.assertEqual([event["word"] for event in events if event["kind"] == "exec" and event["phase"] == "begin"],
                         ["launch", "snapshot"])
        self.assertEqual([(event["event"], event["state"]) for event in events if event["kind"] == "refused"],
                         [("remove", "running")])
        self.assertEqual([event["step"] for event in self.desk.events()
                          if event["name"] == "@macos" and event.get("phase") == "done"],
                         ["write-files", "build-vmhost", "build-helper"])
        self.desk.verify()

    def test_r704_following_next_leads_to_a_running_sandbox(self):
        """From nothing, by `next` alone: but for the account, which only the caller can choose, and the person."""
        self.desk.publish()
        self.mac.set(tools="absent")
        data = self.desk.ok("install", "macos")
        self.assertEqual(data["next_argv"], ["xcode-select", "--install"])
        self.mac.set(tools="ready")
        data = self.desk.follow(["agent-desktop", "sandbox", "install", "macos"]).data
        name = data["next_argv"][3]
        data = self.desk.follow([*data["next_argv"], "--set", "user=" + ACCOUNT]).data
        guest, states = None, []
        for _ in range(2000):
            states.append(data["state"])
            if "next_argv" not in data:
                break
            if data["state"] == "needs_setup":
                guest = guest or self.desk.guest(name)
                self.do_one_step(guest)
            data = self.desk.follow(data["next_argv"]).data
        self.assertEqual(states[-1], "running")
        reached = [state for state, before in zip(states, [None, *states]) if state != before]
        self.assertIn(reached, (["working", "stopped", "needs_setup", "running"],
                                ["working", "stopped", "working", "needs_setup", "running"]))

    def do_one_step(self, guest):
        """What is left of a person's steps, one at a time."""
        facts = guest.facts
        if not facts["accounts"]:
            guest.person.create_account(ACCOUNT)
            self.desk.run_setup(guest)
        elif not facts["remote_login"]:
            guest.person.remote_login()
        else:
            guest.person.allow()

    def test_the_table_of_states_in_the_documentation(self):
        """Each row, reached and with the way out that it names."""
        self.desk.publish()
        reached = {}

        def provider(state, following):
            data = next(one for one in self.desk.ok("install")["providers"] if one["provider"] == "macos")
            self.assertEqual((data["state"], data.get("next")), (state, following), data)
            reached.setdefault(state, data)

        def sandbox(state, following):
            data = self.desk.ok("status", "base")
            self.assertEqual((data["state"], data.get("next")), (state, following), data)
            self.assertEqual([one["state"] for one in self.desk.ok("list")["sandboxes"]], [state])
            reached.setdefault(state, data)
            return data

        install, status = "agent-desktop sandbox install macos", "agent-desktop sandbox status base"
        self.mac.set(tools="absent")
        provider("unavailable", "xcode-select --install")
        self.mac.set(tools="ready", swiftc_error="vmhost.swift:1:1: error: no")
        provider("missing", install)
        self.desk.fails("ACTION_FAILED", "install", "macos")
        provider("broken", install)
        self.mac.set(swiftc_error=None, swiftc_ms=400)
        building = self.desk.popen("sandbox", "install", "macos")
        wait_until(lambda: self.desk.tools("swiftc"), 10, "the compiler")
        provider("working", install)
        building.communicate()
        provider("ready", "agent-desktop sandbox create desktop --provider macos --set ipsw=latest")

        self.desk.fails("SANDBOX_NOT_FOUND", "status", "base")
        self.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})
        self.desk.create("base", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        sandbox("working", status)
        self.assertEqual(self.desk.ok("stop", "base")["state"], "broken")
        sandbox("broken", "agent-desktop sandbox rm base")
        self.desk.ok("rm", "base")
        self.mac.set(vzsim={})
        self.desk.create("base", "--set", "ipsw=latest", "--set", "user=" + ACCOUNT)
        self.desk.await_state("base", "stopped")
        sandbox("stopped", "agent-desktop sandbox start base")
        guest = self.desk.open_window("base")
        self.assertIs(sandbox("needs_setup", status)["needs_person"], True)
        guest.person.create_account(ACCOUNT)
        self.desk.run_setup(guest)
        guest.person.remote_login()
        guest.person.allow()
        sandbox("running", None)
        self.assertEqual(set(reached), {"unavailable", "missing", "ready", "working", "needs_setup", "running",
                                        "stopped", "broken"})


if __name__ == "__main__":
    main()
