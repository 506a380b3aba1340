"""Section 1 of the requirements: the program, its replies, the state root."""

import calendar
import json
import os
import stat
import subprocess
import time

from harness import AD, USER, Desk, DeskTest, envelope, main, mode_of


def tree(path):
    """Every name below PATH with what a change would show, for "nothing was touched"."""
    found = {}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            info = os.lstat(os.path.join(folder, name))
            found[os.path.relpath(os.path.join(folder, name), path)] = (info.st_mode, info.st_size, info.st_mtime_ns)
    return found


class ProgramTest(DeskTest):
    def test_r101_help_and_version_are_text(self):
        for args in ([], ["--help"], ["--version"], ["sandbox", "--help"], ["sandbox", "start", "--help"], ["help"]):
            reply = self.desk.raw(*args)
            self.assertEqual(reply.status, 0, reply)
            self.assertNotEqual(reply.out[:1], b"{", reply)
            self.assertGreater(len(reply.out), 10)
        self.assertIn(b"create", self.desk.raw("sandbox", "--help").out)
        self.assertFalse(os.path.exists(self.desk.root))

    def test_r101_every_command_has_a_help_text(self):
        for name in "install create start status list exec run stop rm log recover".split():
            reply = self.desk.raw("sandbox", name, "--help")
            self.assertEqual(reply.status, 0, reply)
            self.assertIn(f"sandbox {name}".encode(), reply.out)

    def test_r102_success_and_failure_have_their_shapes(self):
        reply = self.desk.sandbox("list")
        self.assertEqual(reply.json, {"version": "2.5", "ok": True, "command": "sandbox list", "data": {"sandboxes": []}})
        reply = self.desk.sandbox("status", "demo")
        self.assertEqual((reply.json["version"], reply.json["ok"], reply.json["command"]), ("2.5", False, "sandbox status"))
        self.assertEqual(reply.code, "SANDBOX_NOT_FOUND")
        self.assertEqual(reply.error["disposition"], {"delivery": "not_delivered", "retry": "safe"})

    def test_r102_unparsable_lines_are_invalid_args_with_the_command_as_far_as_understood(self):
        cases = [
            (["sandbox", "statsu"], "sandbox"),
            (["nonsense"], "unknown"),
            (["--nonsense"], "unknown"),
            (["sandbox"], None),
            (["sandbox", "status"], "sandbox status"),
            (["sandbox", "status", "a", "b"], "sandbox status"),
            (["sandbox", "status", "a", "--nonsense"], "sandbox status"),
            (["sandbox", "create", "a", "--set"], "sandbox create"),
            (["sandbox", "start", "a", "--wait=never"], "sandbox start"),
            (["sandbox", "log", "a", "--limit", "-1"], "sandbox log"),
            (["sandbox", "log", "a", "--since", "yesterdayish"], "sandbox log"),
            (["sandbox", "list", "--state", "asleep"], "sandbox list"),
            (["sandbox", "exec", "a", "--timeout", "0", "--", "x"], "sandbox exec"),
            (["sandbox", "run", "a", "--timeout", "301", "--", "x"], "sandbox run"),
            (["sandbox", "run", "a", "--"], "sandbox run"),
        ]
        for args, command in cases:
            with self.subTest(args=args):
                if command is None:
                    self.assertIn(self.desk.raw(*args).status, (0, 2))
                    continue
                reply = self.desk.ad(*args)
                self.assertEqual(reply.code, "INVALID_ARGS", reply)
                self.assertEqual(reply.json["command"], command)
        self.assertFalse(os.path.exists(self.desk.root))

    def test_r102_output_is_utf8_whatever_came_in(self):
        for args in (["sandbox", "status", b"\xff\xfe"], [b"\xc3("], ["sandbox", "create", "a", "--set", b"k\xff=\xfe"]):
            reply = self.desk.ad(*args)  # ad() decodes strictly
            self.assertEqual(reply.code, "INVALID_ARGS")

    def test_r102_a_thousand_arguments_are_refused_or_taken_whole(self):
        self.assertEqual(self.desk.ad("sandbox", "status", *["x"] * 1000).code, "INVALID_ARGS")

    def test_r103_a_reply_that_could_not_be_told_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            process = self.desk.popen("sandbox", "list", stdout=full)
            _, err = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"cannot write the reply", err)
        argv = [AD, "sandbox", "create", "told"]
        closed = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&-', "sh", *argv], env=self.desk.env, cwd=self.desk.base,
                                stderr=subprocess.PIPE, **USER.switch)
        self.assertEqual(closed.returncode, 1)
        self.assertNotEqual(closed.stderr, b"")
        self.assertEqual(self.desk.state("told"), "stopped")  # the state stands, only the telling failed

    def test_r103_a_reader_that_went_away_is_no_signal_death(self):
        process = self.desk.popen("sandbox", "list")
        process.stdout.close()
        self.assertIn(process.wait(), (0, 1))
        process.stderr.close()

    def test_r104_next_is_a_line_that_can_be_run_as_it_is(self):
        data = self.desk.ok("create", "demo")
        self.assertEqual({data["name"], data["provider"], data["state"]}, {"demo", "linux", "stopped"})
        self.assertTrue(data["message"].endswith("."), data["message"])
        self.assertEqual(data["next"], "agent-desktop sandbox start demo")
        self.assertEqual(data["next_argv"], ["agent-desktop", "sandbox", "start", "demo"])
        split = subprocess.run(["sh", "-c", f"printf '%s\\n' {data['next']}"], stdout=subprocess.PIPE, check=True)
        self.assertEqual(split.stdout.decode().split("\n")[:-1], data["next_argv"])

    def test_r107_r203_names(self):
        self.desk.ok("create", "keeper")
        before = tree(self.desk.path("sandboxes"))
        bad = ["", ".", "..", "a/b", "../x", "/tmp/x", "-a", "A", "a_b", "é", "a\n", "a" * 33, "a b", "a.b"]
        for name in bad:
            for command in ("create", "status", "start", "stop", "rm", "recover", "log"):
                with self.subTest(name=name, command=command):
                    args = [command, "--", name] if name.startswith("-") else [command, name]
                    self.desk.fails("INVALID_ARGS", *args)
            with self.subTest(name=name, source=True):
                self.assertIn(self.desk.sandbox("create", "x", "--set", "from=" + name).code, ("INVALID_ARGS",))
        self.assertEqual(tree(self.desk.path("sandboxes")), before)
        for name in ("a", "0", "a-", "a" * 32, "0-9"):
            self.assertEqual(self.desk.ok("create", name)["name"], name)

    def test_r108_creating_what_exists_leaves_it_untouched(self):
        self.desk.ok("create", "demo")
        marker = self.desk.path("sandboxes", "demo", "home", "marker")
        with open(marker, "w", encoding="utf-8") as f:
            f.write("mine")
        before = tree(self.desk.path("sandboxes"))
        error = self.desk.fails("SANDBOX_EXISTS", "create", "demo")
        self.assertEqual(error["details"], {"name": "demo", "provider": "linux", "state": "stopped"})
        self.assertEqual(tree(self.desk.path("sandboxes")), before)


class RootTest(DeskTest):
    COMMANDS = (["list"], ["status", "demo"], ["create", "demo"], ["log"], ["rm", "demo"])

    def refused(self, value, word=None):
        for args in self.COMMANDS:
            reply = self.desk.sandbox(*args, env={"AGENT_DESKTOP_HOME": value})
            self.assertEqual(reply.code, "INVALID_ARGS", reply)
            if word:
                self.assertIn(word, reply.error["message"])

    def test_r105_the_variable_is_the_root_itself(self):
        self.desk.ok("create", "demo")
        self.assertEqual(sorted(os.listdir(self.desk.root)), ["journal", "locks", "sandboxes"])

    def test_r105_without_the_variable_it_is_in_the_home_directory(self):
        home = os.path.join(self.desk.base, "home")
        os.mkdir(home)
        USER.own(home)
        env = {"AGENT_DESKTOP_HOME": None, "HOME": home}
        self.desk.ok("create", "demo", env=env)
        self.assertTrue(os.path.isdir(os.path.join(home, ".agent-desktop", "sandboxes", "demo")))
        self.desk.ok("rm", "demo", env=env)

    def test_r105_bad_roots_are_refused_before_anything_is_done(self):
        base = self.desk.base
        self.refused("")
        self.refused("relative/path")
        target = os.path.join(base, "target")
        os.mkdir(target, 0o700)
        USER.own(target)
        link = os.path.join(base, "link")
        os.symlink(target, link)
        self.refused(link)
        self.refused(link + "/")
        plain = os.path.join(base, "file")
        with open(plain, "w", encoding="utf-8"):
            pass
        self.refused(plain)
        os.chmod(target, 0o770)
        self.refused(target)
        os.chmod(target, 0o707)
        self.refused(target)
        self.assertEqual(os.listdir(target), [])

    def test_r105_a_root_of_somebody_else_is_refused(self):
        foreign = os.path.join(self.desk.base, "foreign")
        if USER.is_root:
            os.mkdir(foreign, 0o700)
            os.chown(foreign, 12345, 12345)
        else:
            foreign = "/usr"
        self.refused(foreign)

    def test_r105_read_only_commands_create_nothing(self):
        for args in (["list"], ["status", "demo"], ["log"], ["install"], ["log", "demo"], ["log", "--verify"]):
            self.desk.sandbox(*args)
        self.assertFalse(os.path.exists(self.desk.root))

    def test_r105_a_read_only_root_can_be_read_and_says_so_when_written(self):
        self.desk.ok("create", "demo")
        if not USER.is_root:
            self.skipTest("a read-only mount needs root")
        script = f'mount --bind "{self.desk.root}" "{self.desk.root}" && mount -o remount,ro,bind "{self.desk.root}" && exec "$@"'

        def read_only(*args):
            argv = ["unshare", "-m", "sh", "-c", script, "sh", AD, *args]
            done = subprocess.run(argv, env=self.desk.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            return done.returncode, envelope(done.stdout.strip(), args)

        status, reply = read_only("sandbox", "status", "demo")
        self.assertEqual((status, reply["data"]["state"]), (0, "stopped"))
        status, reply = read_only("sandbox", "create", "other")
        self.assertEqual((status, reply["error"]["code"]), (1, "PERM_DENIED"))

    def test_r106_modes_are_exact_whatever_the_umask(self):
        for mask in (0o000, 0o777, 0o022):
            desk = Desk("umask")
            self.addCleanup(desk.close)
            os.chmod(desk.base, 0o755)
            process = desk.popen("sandbox", "create", "demo", umask=mask)
            out, _ = process.communicate()
            self.assertTrue(json.loads(out)["ok"], out)
            for folder, folders, files in os.walk(desk.root):
                if folder == desk.path("sandboxes", "demo"):  # what is below upper, home, vartmp is the guest's
                    folders[:] = [name for name in folders if name not in ("upper", "home", "vartmp")]
                for name in folders:
                    self.assertEqual(mode_of(os.path.join(folder, name)) & 0o077, 0, os.path.join(folder, name))
                for name in files:
                    self.assertEqual(mode_of(os.path.join(folder, name)), 0o600, os.path.join(folder, name))
            self.assertEqual(mode_of(desk.root), 0o700)

    def test_r109_the_projection_is_restored_by_the_next_command_that_names_it(self):
        self.desk.ok("create", "demo")
        path = self.desk.path("sandboxes", "demo", "sandbox.json")
        with open(path, "rb") as f:
            good = f.read()
        value = json.loads(good)
        self.assertEqual(sorted(value), ["created", "name", "provider"])
        self.assertEqual((value["name"], value["provider"]), ("demo", "linux"))
        created = calendar.timegm(time.strptime(value["created"], "%Y-%m-%dT%H:%M:%SZ"))
        self.assertLess(abs(created - time.time()), 600)
        damages = [lambda: os.unlink(path), lambda: os.truncate(path, 0), lambda: os.truncate(path, len(good) // 2),
                   lambda: self.write(path, b'{"name":"other"}'), lambda: self.write(path, b"[]"), lambda: os.chmod(path, 0)]
        for damage in damages:
            damage()
            self.assertEqual(len(self.desk.ok("list")["sandboxes"]), 1)
            self.assertEqual(self.desk.state("demo"), "stopped")
            with open(path, "rb") as f:
                self.assertEqual(f.read(), good)
            self.assertTrue(stat.S_ISREG(os.lstat(path).st_mode))

    @staticmethod
    def write(path, content):
        with open(path, "wb") as f:
            f.write(content)

    def test_r110_linux_writes_no_provider_files(self):
        self.desk.ok("install", "linux")
        self.assertFalse(os.path.exists(self.desk.path("providers")))


if __name__ == "__main__":
    main()
