"""Sections 6 and 7 of the requirements: the linux provider, and the walk-throughs that must run as written."""

import os
import re
import subprocess

from harness import AD, USER, DeskTest, RunningTest, envelope, main, wait_until

CALCULATOR = "gnome-calculator"


def nodes(tree):
    """Every node of a snapshot's tree."""
    stack = list(tree if isinstance(tree, list) else [tree])
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.get("children", []))


class DesktopTest(RunningTest):
    """R-701, R-702, R-705 with a real GTK program."""

    def inside(self, *args, through="exec"):
        """One agent-desktop command inside: through `sandbox exec`, or as a program there runs it (R-702)."""
        if through == "exec":
            reply = self.desk.raw("sandbox", "exec", "demo", "--", *args)
        else:
            reply = self.desk.raw("sandbox", "run", "demo", "--", "agent-desktop", *args)
        return envelope(reply.out.strip(), reply)

    def data(self, *args, **options):
        value = self.inside(*args, **options)
        self.assertTrue(value["ok"], value)
        return value["data"]

    def snapshot(self, app, *options):
        return self.data("snapshot", "--app", app, *options)

    def find(self, app, role, name):
        for node in nodes(self.snapshot(app, "-i")["tree"]):
            if node["role"] == role and node.get("name") == name:
                return node["ref"]
        raise AssertionError(f"no {role} '{name}' in {app}")

    def test_r701_r705_launch_snapshot_click_type(self):
        data = self.data("launch", CALCULATOR, "--activate", "--timeout-ms", "20000")
        self.assertEqual(data["app"], CALCULATOR)
        self.assertGreater(data["pid"], 0)
        self.assertIn("alculator", data["window"]["title"])
        snapshot = self.snapshot(CALCULATOR, "-i")
        names = {n.get("name") for n in nodes(snapshot["tree"])}
        self.assertLessEqual({"7 7", "8 8", "9 9"}, names)  # GTK 4 says label and text
        for node in nodes(snapshot["tree"]):
            if "ref" in node:
                self.assertRegex(node["ref"], "^@" + re.escape(snapshot["snapshot_id"]) + ":e[0-9]+$")
        # Refs live in the guest: nothing of a snapshot is on the host.
        self.assertFalse(os.path.exists(self.desk.path("snapshots")))
        for key in ("7 7", "× ×", "6 6", "= ="):
            self.data("click", self.find(CALCULATOR, "push button", key))

        def shows_42():
            return any(n.get("text", n.get("name", "")) in ("42", "= 42") or "42" == (n.get("value") or "").strip()
                       for n in nodes(self.snapshot(CALCULATOR)["tree"]))

        wait_until(shows_42, 5, "the result 42")
        # Launching it again focuses the one that is there.
        self.assertEqual(self.data("launch", CALCULATOR, "--activate")["pid"], data["pid"])

    def test_r702_the_same_inside_without_exec(self):
        data = self.data("launch", "zenity", "--activate", "--arg", "--entry", "--arg", "--title=inside", through="run")
        self.assertEqual(data["window"]["title"], "inside")
        snapshot = self.data("snapshot", "--app", "zenity", "-i", through="run")
        entry = next(n["ref"] for n in nodes(snapshot["tree"]) if n["role"] in ("text", "entry"))
        self.assertEqual(self.data("click", entry)["method"], "focus")
        self.data("type", entry, "typed text")  # a ref of one way serves the other
        wait_until(lambda: "typed text" in str(self.snapshot("zenity")["tree"]), 5, "the text")
        self.desk.raw("sandbox", "run", "demo", "--", "pkill", "zenity")
        wait_until(lambda: self.inside("type", entry, "x").get("error", {}).get("code") == "STALE_REF", 5, "staleness")

    def test_launch_and_snapshot_name_what_is_not_there(self):
        self.assertEqual(self.inside("launch", "no-such-app")["error"]["code"], "APP_NOT_FOUND")
        self.assertEqual(self.inside("snapshot", "--app", "no-such-app")["error"]["code"], "APP_NOT_FOUND")
        self.assertEqual(self.inside("click", "@00000000:e1")["error"]["code"], "STALE_REF")
        self.assertEqual(self.inside("click", "nonsense")["error"]["code"], "INVALID_ARGS")

    def test_launch_activate_times_out_on_what_shows_no_window(self):
        value = self.inside("launch", "sleep", "--activate", "--timeout-ms", "500", "--arg", "60")
        self.assertEqual(value["error"]["code"], "TIMEOUT")

    def test_screenshot_is_a_picture_of_this_desktop(self):
        data = self.data("screenshot", "--out", "/tmp/shot.png")
        self.assertEqual((data["width"], data["height"]), (1280, 800))
        picture = self.desk.raw("sandbox", "run", "demo", "--", "cat", "/tmp/shot.png").out
        self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(int.from_bytes(picture[16:20], "big"), 1280)

    def test_the_typed_text_is_in_no_file_of_the_host(self):
        self.inside("type", "@00000000:e1", "hunter2-secret")
        for folder, _, files in os.walk(self.desk.root):
            for path in (os.path.join(folder, name) for name in files):
                if os.path.isfile(path):
                    with open(path, "rb") as f:
                        self.assertNotIn(b"hunter2-secret", f.read(), path)


class IsolationTest(RunningTest):
    """R-602: what is and what is not of the host."""

    def sh(self, script):
        return self.run_inside("sh", "-c", script)

    def test_r602_processes_of_the_host_are_not_visible(self):
        out = self.sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/comm").out.decode().split()
        self.assertLess(int(out[0]), 20)

    def test_r602_writes_stay_in_the_sandbox(self):
        marker = f"/etc/ad-marker-{os.getpid()}"
        self.assertEqual(self.sh(f"echo x > {marker} && cat {marker}").out, b"x\n")
        self.assertFalse(os.path.exists(marker))
        self.assertNotEqual(self.sh("touch /new").status, 0)

    def test_r602_a_home_of_its_own(self):
        self.assertEqual(self.sh("ls -A $HOME | grep -v '^\\.' ").out, b"")
        self.assertEqual(self.sh("echo $HOME").out.decode().strip(), USER.home)
        self.sh("echo kept > $HOME/kept")
        self.assertFalse(os.path.exists(os.path.join(USER.home, "kept")))

    def test_r602_the_state_root_is_out_of_reach(self):
        self.assertEqual(self.sh(f"ls -A '{self.desk.root}' 2>/dev/null").out, b"")
        self.assertEqual(self.sh("find / -name ctl -type s -not -path '/proc/*' 2>/dev/null").out, b"")

    def test_r602_sockets_of_the_host_are_not_there(self):
        self.assertEqual(self.sh("ls /run/docker.sock /run/dbus /run/systemd 2>/dev/null").out, b"")
        self.assertEqual(self.sh("ls /tmp/.X11-unix | wc -l").out.strip(), b"1")

    def test_r604_nothing_is_privileged(self):
        caps = self.sh("grep CapEff /proc/self/status").out.split()[-1]
        if not USER.is_root:
            self.assertEqual(int(caps, 16), 0)
        self.assertNotEqual(self.sh("echo 1 > /proc/sys/vm/drop_caches").status, 0)
        self.assertNotEqual(self.sh("mount -t tmpfs none /mnt 2>/dev/null && [ -w /proc/sysrq-trigger ]").status, 0)

    def test_r602_pid_1_gives_nothing_away(self):
        self.assertEqual(self.sh("tr '\\0' '\\n' </proc/1/environ 2>/dev/null | grep -c AGENT_DESKTOP_HOME").out.strip() or b"0", b"0")

    def test_r602_hostname_and_machine_id_are_its_own(self):
        out = self.sh("hostname 2>/dev/null || cat /proc/sys/kernel/hostname; cat /etc/machine-id").out.decode().split()
        self.assertEqual(out[0], "demo")
        host_id = open("/etc/machine-id", encoding="ascii").read().strip() if os.path.exists("/etc/machine-id") else ""
        self.assertNotEqual(out[1], host_id)
        self.assertRegex(out[1], "^[0-9a-f]{32}$")


class TwoDesktopsTest(DeskTest):
    def test_r602_neither_tree_shows_the_other(self):
        for name in ("one", "two"):
            self.desk.ok("create", name)
            self.desk.ok("start", name, "--wait=60")
        for name, app in (("one", CALCULATOR), ("two", "zenity")):
            args = ["launch", app, "--activate", "--timeout-ms", "20000"]
            if app == "zenity":
                args += ["--arg", "--info", "--arg", "--text=hello"]
            reply = self.desk.raw("sandbox", "exec", name, "--", *args)
            self.assertTrue(envelope(reply.out.strip(), reply)["ok"], reply)
        for name, app, other in (("one", CALCULATOR, "zenity"), ("two", "zenity", CALCULATOR)):
            reply = self.desk.raw("sandbox", "exec", name, "--", "snapshot", "--app", app)
            self.assertTrue(envelope(reply.out.strip(), reply)["ok"], reply)
            reply = self.desk.raw("sandbox", "exec", name, "--", "snapshot", "--app", other)
            self.assertEqual(envelope(reply.out.strip(), reply)["error"]["code"], "APP_NOT_FOUND")

    def test_r603_a_clone_has_the_files_and_is_another_machine(self):
        self.desk.ok("create", "base", "--set", "screen=1024x768")
        self.desk.ok("start", "base", "--wait=60")
        script = "echo kept > $HOME/kept; echo layer > /etc/layer; rm -f /etc/motd; mkdir -m 500 $HOME/closed; cat /etc/machine-id"
        first = self.desk.raw("sandbox", "run", "base", "--", "sh", "-c", script).out
        self.desk.ok("stop", "base")
        self.assertEqual(self.desk.ok("create", "work", "--set", "from=base", "--wait=60")["state"], "stopped")
        self.desk.ok("start", "work", "--wait=60")
        script = "cat $HOME/kept /etc/layer; ls /etc/motd 2>/dev/null; cat /proc/sys/kernel/hostname /etc/machine-id"
        out = self.desk.raw("sandbox", "run", "work", "--", "sh", "-c", script).out.split()
        self.assertEqual(out[:3], [b"kept", b"layer", b"work"])
        self.assertNotEqual(out[3], first.strip())
        reply = self.desk.raw("sandbox", "exec", "work", "--", "screenshot", "--out", "/tmp/x.png")
        self.assertEqual(envelope(reply.out.strip(), reply)["data"]["width"], 1024)

    def test_r603_files_survive_stop_and_start(self):
        self.desk.ok("create", "demo")
        for i in range(2):
            self.desk.ok("start", "demo", "--wait=60")
            self.desk.raw("sandbox", "run", "demo", "--", "sh", "-c", f"echo {i} >> $HOME/file; echo {i} >> /etc/file")
            self.desk.ok("stop", "demo")
        self.desk.ok("start", "demo", "--wait=60")
        out = self.desk.raw("sandbox", "run", "demo", "--", "sh", "-c", "cat $HOME/file /etc/file").out
        self.assertEqual(out.split(), [b"0", b"1", b"0", b"1"])


class WalkThroughTest(DeskTest):
    def test_r704_a_script_that_follows_next(self):
        """In a shell, with nothing but `next` as it is printed."""
        script = r"""
        set -e
        next='agent-desktop sandbox install linux'
        agent-desktop() { "$AD" "$@"; }
        for i in $(seq 30); do
            reply=$(eval "$next")
            printf '%s\n' "$reply" >&2
            next=$(printf '%s' "$reply" | sed -n 's/.*"next":"\([^"]*\)".*/\1/p')
            [ -n "$next" ] || break
        done
        printf '%s' "$reply" | grep -q '"state":"running"'
        agent-desktop sandbox stop desktop >/dev/null
        agent-desktop sandbox rm desktop >/dev/null
        agent-desktop sandbox list
        """
        done = subprocess.run(["bash", "-c", script], env={**self.desk.env, "AD": AD}, cwd=self.desk.base,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **USER.switch)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b'"sandboxes":[]', done.stdout)
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])


if __name__ == "__main__":
    main()
