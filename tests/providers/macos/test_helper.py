"""agent-desktop-macos-helper: the real source, on a desktop made of stand-ins (tests/swift-stubs/README.md).

What it answers has to be what the Linux commands answer: every envelope is checked by the schema, bad command lines
and bad state roots by comparison with agent-desktop itself, the members by what the C sources put.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "e2e")]

import swift  # noqa: E402
from harness import AD, BASE, SOURCE, envelope, main, mode_of  # noqa: E402

HELPER_SOURCE = os.path.join(SOURCE, "providers", "macos", "agent-desktop-macos-helper.swift")
SAFE = {"delivery": "not_delivered", "retry": "safe"}
UNVERIFIED = {"delivery": "delivered_unverified", "retry": "unsafe"}
SECRET = "correct horse battery"

# What the helper waits at most: for an answer, and for a whole tree. Far less than the six seconds that a question
# takes when nobody sets a limit.
CALL_SECONDS, TREE_SECONDS, PROBE_SECONDS = 1.5, 10, 2

HELPER = None  # the built program


def setUpModule():
    global HELPER
    HELPER = swift.build(HELPER_SOURCE)


class Reply:
    def __init__(self, argv, done, seconds):
        self.argv, self.status, self.seconds = argv, done.returncode, seconds
        self.out, self.err = done.stdout, done.stderr
        lines = done.stdout.split(b"\n")
        assert len(lines) == 2 and lines[1] == b"", f"not exactly one line on stdout: {self}"
        self.line = lines[0].decode("utf-8")

    @property
    def json(self):
        value = envelope(self.line.encode(), self)
        wanted = 0 if value["ok"] else 2 if value["error"]["code"] == "INVALID_ARGS" else 1
        assert self.status == wanted, f"exit status {self.status}, expected {wanted}: {self}"
        return value

    def __repr__(self):
        return f"{self.argv!r} -> {self.status}\nstdout: {self.out[-2000:]!r}\nstderr: {self.err[-2000:]!r}"


def element(role, *children, **fields):
    return {"role": role, **fields, **({"children": list(children)} if children else {})}


def window(title="Document", *children, frame=(100, 100, 640, 480), **fields):
    return element("AXWindow", *children, title=title, frame=list(frame), main=True, **fields)


def nodes(tree):
    yield tree
    for child in tree.get("children", []):
        yield from nodes(child)


class HelperTest(unittest.TestCase):
    """Each test has a desktop, a folder of applications and a state root of its own."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="helper-", dir=BASE)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = os.path.join(self.folder, "root")
        self.applications = os.path.join(self.folder, "Applications")
        self.log = os.path.join(self.folder, "log")
        self.console = os.path.join(self.folder, "console")
        os.mkdir(self.applications)
        with open(self.console, "w", encoding="utf-8"):
            pass
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self.folder, "LANG": "C.UTF-8",
            "AGENT_DESKTOP_HOME": self.root, "AGENT_DESKTOP_APPLICATIONS": self.applications,
            "AGENT_DESKTOP_CONSOLE": self.console, "AXSIM_LOG": self.log,
        }

    # The desktop

    def app(self, name, *children, subfolder="", **fields):
        """An application of the desktop, with a bundle in the folder of applications."""
        path = os.path.join(self.applications, subfolder, name + ".app")
        os.makedirs(path, exist_ok=True)
        return {"name": name, "bundle": "com.example." + name.replace(" ", "-").lower(), "path": path,
                "children": list(children), **fields}

    def show(self, *apps):
        """These are all the applications there are; Finder is always one."""
        finder = {"name": "Finder", "bundle": "com.apple.finder", "active": True, "children": [element("AXMenuBar")],
                  "path": "/System/Library/CoreServices/Finder.app"}
        self.env["AXSIM_APPS"] = os.path.join(self.folder, "apps.json")
        with open(self.env["AXSIM_APPS"], "w", encoding="utf-8") as f:
            json.dump({"apps": [*([] if any(a["name"] == "Finder" for a in apps) else [finder]), *apps]}, f)

    def events(self, *names):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as f:
            events = [json.loads(line) for line in f]
        return [e for e in events if not names or e["event"] in names]

    # Calls

    def run_helper(self, *args, program=None, **axsim):
        env = {**self.env, **{"AXSIM_" + key: str(value) for key, value in axsim.items()}}
        started = time.monotonic()
        done = subprocess.run([program or HELPER, *args], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd=self.folder, timeout=120, check=False)
        return Reply(args, done, time.monotonic() - started)

    def data(self, *args, **axsim):
        reply = self.run_helper(*args, **axsim)
        self.assertTrue(reply.json["ok"], repr(reply))
        self.assertEqual(reply.json["command"], args[0])
        return reply.json["data"]

    def fails(self, code, *args, disposition=SAFE, within=None, **axsim):
        reply = self.run_helper(*args, **axsim)
        self.assertFalse(reply.json["ok"], repr(reply))
        error = reply.json["error"]
        self.assertEqual(error["code"], code, repr(reply))
        self.assertEqual(error["disposition"], disposition, repr(reply))
        if within is not None:
            self.assertLess(reply.seconds, within)
        return error

    def permissions(self, command="permissions", **axsim):
        reply = self.run_helper(command, **axsim)
        self.assertEqual(reply.status, 0)
        value = json.loads(reply.line)
        self.assertEqual(list(value), ["trusted", "working", "state", "message"])
        self.assertTrue(value["message"])
        return value

    def snapshot(self, app, *options, **axsim):
        return self.data("snapshot", "--app", app, *options, **axsim)

    def find(self, data, name):
        found = [n for n in nodes(data["tree"]) if n.get("name") == name]
        self.assertEqual(len(found), 1, f"{name}: {found} in {data}")
        return found[0]

    def names(self, data):
        return [n["name"] for n in nodes(data["tree"]) if "name" in n]


class SourceTest(unittest.TestCase):
    def test_it_compiles_in_both_language_modes_without_a_warning(self):
        for mode in (5, 6):
            with self.subTest(mode=mode):
                self.assertIsNone(swift.check(HELPER_SOURCE, mode))


class PermissionsTest(HelperTest):
    """R-409: what `status` of a sandbox asks."""

    def test_granted_when_a_call_to_another_process_succeeds(self):
        value = self.permissions(LOG_CALLS=1)
        self.assertEqual((value["trusted"], value["working"], value["state"]), (True, True, "granted"))
        calls = self.events("ax.call")
        self.assertEqual([c["attribute"] for c in calls], ["AXRole"])
        self.assertIn("pid=401", calls[0]["element"])  # Finder's, not its own

    def test_missing_when_the_process_is_not_trusted(self):
        for error in (-25211, -25204, -25200):
            with self.subTest(error=error):
                value = self.permissions(TRUSTED=0, UNTRUSTED_ERROR=error)
                self.assertEqual((value["trusted"], value["working"], value["state"]), (False, False, "missing"))
        self.assertEqual(self.events("ax.prompt"), [])  # it looks, it does not ask

    def test_stale_when_it_is_trusted_and_yet_refused(self):
        value = self.permissions(STALE=1)
        self.assertEqual((value["trusted"], value["working"], value["state"]), (True, False, "stale"))
        self.assertIn("remove", value["message"])

    def test_the_message_names_whom_the_list_has(self):
        self.assertNotIn("sshd-keygen-wrapper", self.permissions(TRUSTED=0)["message"])
        self.env["SSH_CONNECTION"] = "192.168.64.1 50000 192.168.64.2 22"
        self.assertIn("sshd-keygen-wrapper", self.permissions(TRUSTED=0)["message"])
        self.assertIn("sshd-keygen-wrapper", self.permissions(STALE=1)["message"])

    def test_an_answer_that_proves_nothing_is_tried_on_another_application(self):
        self.assertEqual(self.permissions(ERROR="-25204:Finder")["state"], "granted")
        self.assertEqual(self.permissions(ERROR="-25200:Finder")["state"], "granted")

    def test_unknown_when_nobody_answers(self):
        value = self.permissions(ERROR=-25204)
        self.assertEqual((value["trusted"], value["working"], value["state"]), (True, False, "unknown"))

    def test_unknown_when_nobody_is_logged_in(self):
        value = self.permissions(NO_SESSION=1)
        self.assertEqual((value["trusted"], value["working"], value["state"]), (True, False, "unknown"))
        self.assertIn("logged in", value["message"])

    def test_an_ssh_session_is_enough(self):
        self.assertEqual(self.permissions(SSH=1)["state"], "granted")

    def test_r205_it_answers_soon_when_every_application_hangs(self):
        self.show(*[self.app(f"Hung {i}") for i in range(20)])
        reply = self.run_helper("permissions", SLOW_MS=60000)
        self.assertEqual(json.loads(reply.line)["state"], "unknown")
        self.assertLess(reply.seconds, PROBE_SECONDS + 1)  # and a second for a busy machine

    def test_r408_request_asks_and_answers_what_held_before(self):
        value = self.permissions("request", TRUSTED=0, GRANT_AFTER_MS=60000)
        self.assertEqual(value["state"], "missing")
        self.assertEqual([e["shown"] for e in self.events("ax.prompt")], [True])

    def test_a_later_call_sees_what_the_person_granted(self):
        self.assertEqual(self.permissions("request", TRUSTED=0)["state"], "missing")
        self.assertEqual(self.permissions()["state"], "granted")

    def test_request_sees_a_grant_that_comes_at_once(self):
        self.assertEqual(self.permissions("request", TRUSTED=0, GRANT_AFTER_MS=0)["state"], "granted")

    def test_request_of_what_is_granted_shows_nothing(self):
        self.assertEqual(self.permissions("request")["state"], "granted")
        self.assertEqual([e["shown"] for e in self.events("ax.prompt")], [False])
        self.assertEqual(self.permissions("request", STALE=1)["state"], "stale")


class CommandLineTest(HelperTest):
    BAD = [
        ["launch"], ["launch", "a", "b"], ["launch", "a", "--", "b"], ["launch", "--activate", "--activate", "a"],
        ["launch", "--activate=1", "a"], ["launch", "a", "--timeout-ms"], ["launch", "a", "--timeout-ms="],
        ["launch", "a", "--timeout-ms=0"], ["launch", "a", "--timeout-ms", "-5"], ["launch", "a", "--timeout-ms=1e3"],
        ["launch", "a", "--timeout-ms=+5"], ["launch", "a", "--timeout-ms= 5"], ["launch", "a", "--timeout-ms=300001"],
        ["launch", "a", "--timeout-ms=99999999999999999999"], ["launch", "a", "--timeout-ms=1", "--timeout-ms=2"],
        ["launch", "a", "--arg"], ["launch", "-z", "a"], ["launch", "-i", "a"], ["launch", "--activat", "a"],
        ["launch", "--actviate", "a"], ["launch", "--timeout", "a"], ["launch", "--nonsense", "a"],
        ["launch", "--=x", "a"], ["launch", "--" + "x" * 100, "a"], ["launch", "--" + "ä" * 20, "a"],
        ["launch", "a", "two\nlines\x1b[31m"], ["launch", "a", "ü" * 600], ["snapshot"], ["snapshot", "a"],
        ["snapshot", "--app"], ["snapshot", "--app", "a", "--app", "b"], ["snapshot", "--app=a", "-iq"],
        ["snapshot", "--app=a", "-ii"], ["snapshot", "--app=a", "-i", "--interactive"], ["snapshot", "--ap=a"],
        ["snapshot", "--app=a", "--interactive=no"], ["snapshot", "--app=a", "b"], ["snapshot", "-", "--app=a"],
    ]

    def test_a_bad_command_line_is_refused_in_the_words_of_agent_desktop(self):
        for args in self.BAD:
            with self.subTest(args=args):
                done = subprocess.run([AD, *args], env=self.env, stdout=subprocess.PIPE, check=False)
                reply = self.run_helper(*args)
                self.assertEqual((reply.status, reply.out), (done.returncode, done.stdout))
                self.assertEqual(reply.json["error"]["code"], "INVALID_ARGS")

    def test_options_may_stand_anywhere_and_dashes_end_them(self):
        self.show(self.app("-i", window()))
        for args in (["launch", "--", "-i"], ["launch", "--timeout-ms", "5000", "--activate", "--", "-i"]):
            self.assertEqual(self.data(*args)["app"], "-i")
        for args in (["-i", "--app", "-i"], ["--app=-i", "--interactive"]):
            self.assertEqual(self.data("snapshot", *args)["app"], "-i")

    def test_help_is_text(self):
        for args in ([], ["--help"], ["-h"], ["help"], ["launch", "--help"], ["snapshot", "-h"]):
            with self.subTest(args=args):
                done = subprocess.run([HELPER, *args], env=self.env, stdout=subprocess.PIPE, check=False)
                self.assertEqual(done.returncode, 0)
                self.assertTrue(done.stdout.startswith(b"Usage: agent-desktop-macos-helper"))

    def test_an_unknown_command_is_invalid(self):
        for args in (["click", "@01234567:e1"], ["permissions", "now"], ["request", "--help"]):
            with self.subTest(args=args):
                reply = self.run_helper(*args)
                self.assertEqual(reply.json["command"], "unknown")
                self.assertEqual(reply.json["error"]["code"], "INVALID_ARGS")

    def test_a_reply_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([HELPER, "permissions"], env=self.env, stdout=full, stderr=subprocess.PIPE,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write the reply to stdout", done.stderr)

    def test_usual_dispositions_are_those_of_the_documentation(self):
        """specs/cli.md, against the table in the source: a code has no meaning of its own here."""
        with open(os.path.join(SOURCE, "specs", "cli.md"), encoding="utf-8") as f:
            rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| `(\w+)` \| `(\w+)` \|$", f.read(), re.M)
        usual = {code: {"delivery": delivery, "retry": retry} for code, delivery, retry in rows}
        self.show(self.app("Stuck", running=False))
        self.assertEqual(self.fails("TIMEOUT", "launch", "Stuck", "--timeout-ms=50", disposition=usual["TIMEOUT"],
                                    LAUNCH_HANG=1)["code"], "TIMEOUT")
        for code, args, axsim in (
            ("ACTION_FAILED", ["launch", "Stuck"], {"LAUNCH_ERROR": -10810}),
            ("APP_NOT_FOUND", ["launch", "Nothing"], {}),
            ("PERM_DENIED", ["launch", "Stuck", "--activate"], {"TRUSTED": 0}),
            ("PLATFORM_NOT_SUPPORTED", ["launch", "Stuck"], {"NO_SESSION": 1}),
        ):
            with self.subTest(code):
                self.fails(code, *args, disposition=usual[code], **axsim)


def members_put_by_c(path, function):
    """The members that a C function puts into JSON objects, in its order."""
    with open(os.path.join(SOURCE, "tools", "desktop", path), encoding="utf-8") as f:
        text = f.read()
    body = re.search(r"\n(?:[^\n]*[ *])?" + function + r"\([^;{]*\)\n\{\n(.*?)\n\}\n", text, re.S).group(1)
    return re.findall(r'(?:json_put\w*|rect_put)\(\s*\*?\w+,\s*"(\w+)"', body)


class ShapeTest(HelperTest):
    """The members, and their order, are those of the Linux commands."""

    def assert_in_order(self, got, known, where):
        self.assertEqual([k for k in known if k in got], list(got), f"{where}: other members, or in another order")

    def test_r701_launch(self):
        known = members_put_by_c("launch.c", "new_data")
        self.assertEqual(known, ["app", "pid", "started", "id", "title", "active", "bounds", "window"])
        self.show(self.app("Editor", window(), running=False))
        data = self.data("launch", "Editor", "--activate")
        self.assert_in_order(data, ["app", "pid", "started", "window"], "launch")
        self.assert_in_order(data["window"], known[3:7], "window")
        self.assertEqual(list(data["window"]["bounds"]), members_put_by_c("rect.c", "rect_put"))

    def test_r701_snapshot(self):
        known = members_put_by_c("snapshot.c", "take_snapshot")
        self.assertEqual(known, ["app", "pid", "snapshot_id", "count", "truncated", "tree"])
        of_element = [*members_put_by_c("element.c", "element_put"), "states",
                      *members_put_by_c("snapshot.c", "new_object")]
        self.assertEqual(of_element, ["ref", "role", "name", "states", "bounds", "text", "value"])
        self.show(self.app("Editor", window("A", element("AXSlider", title="Size", value=0.5), element(
            "AXTextArea", title="Text", value="Hello", frame=[110, 110, 50, 50]))))
        data = self.snapshot("Editor")
        self.assert_in_order(data, known, "snapshot")
        for node in nodes(data["tree"]):
            self.assert_in_order(node, [*of_element, "children"], "element")

    def test_r705_what_is_kept(self):
        self.show(self.app("Editor", window("A", element("AXButton"))))
        data = self.snapshot("Editor")
        with open(os.path.join(self.root, "snapshots", data["snapshot_id"] + ".json"), encoding="utf-8") as f:
            record = json.load(f)
        self.assertEqual(list(record), members_put_by_c("element.c", "element_new_record"))
        self.assertEqual(record["v"], 1)
        self.assertEqual(len(record["elements"]), data["count"])
        for kept, node in zip(record["elements"], nodes(data["tree"])):
            self.assert_in_order(kept, members_put_by_c("element.c", "element_add"), "record")
            self.assertEqual((kept["role"], kept.get("name")), (node["role"], node.get("name")))


class LaunchTest(HelperTest):
    def setUp(self):
        super().setUp()
        self.env["AXSIM_STATE"] = os.path.join(self.folder, "state.json")

    def opened(self):
        return self.events("workspace.open")

    def test_r701_starts_and_waits_for_the_window(self):
        self.show(self.app("Editor", window("Untitled"), running=False, window_ms=700, pid=777))
        data = self.data("launch", "Editor", "--activate")
        self.assertEqual(data, {"app": "Editor", "pid": 777, "started": True, "window": {
            "title": "Untitled", "active": True, "bounds": {"x": 100, "y": 100, "width": 640, "height": 480}}})
        self.assertEqual([e["activates"] for e in self.opened()], [True])

    def test_an_application_is_named_in_many_ways(self):
        app = self.app("Text Editor", window(), running=False, bundle="com.example.TextEditor")
        for name in ("Text Editor", "text editor", "Text Editor.app", "com.example.TextEditor",
                     "COM.example.texteditor", app["path"], app["path"] + "/", "Applications/Text Editor.app"):
            for running in (False, True):
                with self.subTest(name=name, running=running):
                    self.show({**app, "running": running})
                    if os.path.exists(self.env["AXSIM_STATE"]):
                        os.unlink(self.env["AXSIM_STATE"])
                    data = self.data("launch", name, "--activate")
                    self.assertEqual((data["app"], data["started"]), ("Text Editor", not running))

    def test_a_folder_in_the_folder_of_applications_is_looked_into(self):
        self.show(self.app("Terminal", window(), running=False, subfolder="Utilities"))
        self.assertTrue(self.data("launch", "terminal", "--activate")["started"])

    def test_one_that_runs_is_focused_not_started_again(self):
        self.show(self.app("Editor", window("Mine"), pid=777))
        for options in ([], ["--activate"]):
            with self.subTest(options):
                data = self.data("launch", "Editor", *options)
                self.assertEqual((data["pid"], data["started"]), (777, False))
                self.assertEqual((data["window"]["title"], data["window"]["active"]), ("Mine", True))
        self.assertEqual(self.opened(), [])
        self.assertNotEqual(self.events("app.activate"), [])

    def test_r702_the_next_call_sees_what_was_started(self):
        self.show(self.app("Editor", window("Mine"), running=False))
        first = self.data("launch", "Editor", "--activate")
        second = self.data("launch", "Editor", "--activate")
        self.assertEqual((first["started"], second["started"], second["pid"]), (True, False, first["pid"]))
        self.assertEqual(self.snapshot("Editor")["pid"], first["pid"])

    def test_r701_one_that_runs_without_a_window_is_asked_for_one(self):
        finder = self.app("Finder", window("Desktop"), window_needs_activation=True, bundle="com.apple.finder")
        self.show(finder)
        data = self.data("launch", "Finder", "--activate")
        self.assertEqual((data["started"], data["window"]["title"]), (False, "Desktop"))
        self.assertEqual([e["activates"] for e in self.opened()], [True])

    def test_without_activate_nothing_is_waited_for(self):
        self.show(self.app("Editor", window(), running=False, window_needs_activation=True))
        data = self.data("launch", "Editor")
        self.assertEqual((data["started"], "window" in data), (True, False))
        self.assertEqual([e["activates"] for e in self.opened()], [False])  # it opens behind

    def test_arguments_start_it_anew(self):
        self.show(self.app("Editor", window()))
        data = self.data("launch", "Editor", "--arg", "a b", "--arg=--flag", "--arg", "", "--activate")
        self.assertTrue(data["started"])
        self.assertEqual([(e["arguments"], e["new"]) for e in self.opened()], [(["a b", "--flag", ""], True)])

    def test_no_window_within_the_time(self):
        self.show(self.app("Started", running=False), self.app("Running"))
        error = self.fails("TIMEOUT", "launch", "Started", "--activate", "--timeout-ms=300", disposition=UNVERIFIED)
        self.assertIn("no window after 300 ms", error["message"])
        error = self.fails("TIMEOUT", "launch", "Running", "--activate", "--timeout-ms=300")  # nothing was started
        self.assertRegex(error["message"], r"'Running' \(pid \d+\): no window after 300 ms")

    def test_one_that_does_not_answer(self):
        self.show(self.app("Hung", window(), pid=777))
        error = self.fails("TIMEOUT", "launch", "Hung", "--activate", "--timeout-ms=500", ERROR="-25204:Hung")
        self.assertIn("no answer after 500 ms", error["message"])

    def test_the_system_never_answers(self):
        self.show(self.app("Editor", window(), running=False))
        error = self.fails("TIMEOUT", "launch", "Editor", "--timeout-ms=400", disposition=UNVERIFIED, within=10,
                           LAUNCH_HANG=1)
        self.assertIn("400 ms", error["message"])

    def test_the_system_refuses(self):
        self.show(self.app("Editor", window(), running=False))
        for number, code, disposition in (
            (-10827, "ACTION_FAILED", SAFE), (-10826, "PERM_DENIED", SAFE), (-10814, "APP_NOT_FOUND", SAFE),
            (-600, "PLATFORM_NOT_SUPPORTED", SAFE), (-10810, "ACTION_FAILED", UNVERIFIED),
        ):
            with self.subTest(number):
                error = self.fails(code, "launch", "Editor", "--activate", disposition=disposition,
                                   LAUNCH_ERROR=number)
                self.assertIn(str(number), error["message"])

    def test_a_refused_activation_is_told(self):
        self.show(self.app("Editor", window("Mine")))
        data = self.data("launch", "Editor", "--activate", REFUSE_ACTIVATION=1)
        self.assertEqual((data["window"]["title"], data["window"]["active"]), ("Mine", False))
        self.assertIn("AXFrontmost", [e["attribute"] for e in self.events("ax.set")])  # the other way was tried too

    def test_a_hidden_application_and_a_window_in_the_dock_come_back(self):
        self.show(self.app("Editor", window("Mine", minimized=True), hidden=True))
        data = self.data("launch", "Editor", "--activate")
        self.assertTrue(data["window"]["active"])
        restored = [e for e in self.events("ax.set") if e["attribute"] == "AXMinimized"]
        self.assertEqual([e["value"] for e in restored], [False])
        self.assertIn("visible", self.snapshot("Editor")["tree"]["states"])

    def test_a_window_that_shows_is_preferred_to_one_in_the_dock(self):
        self.show(self.app("Editor", {**window("Docked", minimized=True), "main": False},
                           {**window("Open"), "main": False}))
        self.assertEqual(self.data("launch", "Editor", "--activate")["window"]["title"], "Open")
        self.assertEqual(self.opened(), [])

    def test_nobody_is_logged_in_at_the_screen(self):
        self.show(self.app("Editor", window(), running=False))
        if os.geteuid() == 0:
            os.chown(self.console, 65534, 65534)
        else:
            self.env["AGENT_DESKTOP_CONSOLE"] = "/dev/null"  # root's, as /dev/console before the login
        error = self.fails("PLATFORM_NOT_SUPPORTED", "launch", "Editor", "--activate")
        self.assertIn(self.env["AGENT_DESKTOP_CONSOLE"], error["message"])
        self.assertIn("Log in", error["suggestion"])
        self.assertEqual(self.opened(), [])
        self.env["AGENT_DESKTOP_CONSOLE"] = os.path.join(self.folder, "none")
        self.fails("PLATFORM_NOT_SUPPORTED", "launch", "Editor")

    def test_the_session_has_ended_meanwhile(self):
        self.show(self.app("Editor", window(), running=False))
        error = self.fails("PLATFORM_NOT_SUPPORTED", "launch", "Editor", NO_SESSION=1)
        self.assertIn("RBSRequestErrorDomain 5", error["message"])

    def test_an_ssh_session_is_enough(self):
        self.show(self.app("Editor", window("Mine"), running=False))
        self.assertTrue(self.data("launch", "Editor", "--activate", SSH=1)["window"]["active"])

    def test_what_runs_is_seen_whether_its_list_is_kept_or_live(self):
        for live in (0, 1):
            with self.subTest(live=live):
                self.show(self.app(f"Editor {live}", window("Mine"), running=False, launch_ms=200, finish_ms=400))
                data = self.data("launch", f"Editor {live}", "--activate", LIVE=live)
                self.assertEqual(data["window"]["title"], "Mine")

    def test_without_permission_nothing_is_started_that_could_not_be_waited_for(self):
        self.show(self.app("Editor", window(), running=False))
        for axsim, word in (({"TRUSTED": 0}, "Allow"), ({"STALE": 1}, "Remove")):
            with self.subTest(axsim):
                error = self.fails("PERM_DENIED", "launch", "Editor", "--activate", **axsim)
                self.assertTrue(error["suggestion"].startswith(word))
        self.assertEqual(self.opened(), [])
        self.assertTrue(self.data("launch", "Editor", TRUSTED=0)["started"])  # no permission is needed for that

    def test_an_unknown_application(self):
        self.show(self.app("Editor", running=False))
        os.mkdir(os.path.join(self.folder, "Folder"))
        error = self.fails("APP_NOT_FOUND", "launch", "Editr", "--activate")
        self.assertIn("did you mean 'Editor'?", error["message"])
        for name in ("Nothing at all", "com.example.none", "", os.path.join(self.folder, "None.app"),
                     os.path.join(self.folder, "Folder"), "/bin/sh", "two\nlines"):
            with self.subTest(name):
                self.assertIn("is installed", self.fails("APP_NOT_FOUND", "launch", name)["message"])
        self.assertEqual(self.opened(), [])


class SnapshotTest(HelperTest):
    def test_r701_refs_are_qualified_and_counted(self):
        self.show(self.app("Editor", window("A", element("AXButton", title="OK"),
                                            element("AXGroup", element("AXLink", title="More")))))
        data = self.snapshot("Editor")
        refs = [n["ref"] for n in nodes(data["tree"])]
        self.assertRegex(data["snapshot_id"], "^[0-9a-f]{8}$")
        self.assertEqual(refs, [f"@{data['snapshot_id']}:e{i}" for i in range(1, len(refs) + 1)])
        self.assertEqual(data["count"], len(refs))
        self.assertNotIn("truncated", data)
        roles = [n["role"] for n in nodes(data["tree"])]
        self.assertEqual(roles, ["application", "frame", "push button", "panel", "link"])

    def test_r701_interactive_keeps_what_can_be_acted_on_and_the_windows(self):
        self.show(self.app(
            "Editor", element("AXMenuBar", element("AXMenuBarItem", title="File")),
            window("A", element("AXStaticText", value="Label"), element("AXButton", title="Off", enabled=False),
                   element("AXGroup", element("AXSplitGroup", element("AXButton", title="Deep"))),
                   element("AXGroup", title="Card", actions=["AXPress"]),
                   element("AXGroup", title="Frame", actions=["AXShowMenu"]),
                   element("AXTextField", title="Fixed", value="x", settable=[]),
                   element("AXTextField", title="Field", value="x"), element("AXRow", title="Row"))))
        some, every = self.snapshot("Editor", "-i"), self.snapshot("Editor")
        self.assertEqual(self.names(some), ["Editor", "A", "Deep", "Card", "Field", "Row", "File"])
        self.assertGreater(every["count"], some["count"])
        self.assertEqual([n["name"] for n in some["tree"]["children"][0]["children"]], ["Deep", "Card", "Field", "Row"])
        self.assertIn("Label", self.names(every))

    def test_an_application_is_named_in_many_ways(self):
        app = self.app("Text Editor", window())
        self.show(app)
        for name in ("Text Editor", "TEXT EDITOR", "Text Editor.app", "com.example.text-editor", app["path"]):
            with self.subTest(name):
                self.assertEqual(self.snapshot(name)["app"], "Text Editor")

    def test_the_application_not_its_helper_is_meant(self):
        self.show(self.app("Browser", window("Page"), pid=777),
                  {**self.app("Browser", policy="prohibited", pid=778), "bundle": "com.example.browser.helper"})
        self.assertEqual(self.snapshot("Browser")["pid"], 777)

    def test_an_unknown_application_names_those_that_run(self):
        self.show(self.app("Editor"), self.app("Agent", policy="accessory"), self.app("Off", running=False))
        error = self.fails("APP_NOT_FOUND", "snapshot", "--app", "Nothing")
        self.assertIn("running: 'Finder', 'Editor'", error["message"])
        self.assertNotIn("Agent", error["message"])
        self.assertIn("did you mean 'Editor'", self.fails("APP_NOT_FOUND", "snapshot", "--app", "Editer")["message"])
        self.fails("APP_NOT_FOUND", "snapshot", "--app", "Off")
        self.fails("APP_NOT_FOUND", "snapshot", "--app", "")

    def test_nobody_is_logged_in_at_the_screen(self):
        self.env["AGENT_DESKTOP_CONSOLE"] = os.path.join(self.folder, "none")
        error = self.fails("PLATFORM_NOT_SUPPORTED", "snapshot", "--app", "Finder", NO_SESSION=1)
        self.assertIn(self.env["AGENT_DESKTOP_CONSOLE"], error["message"])

    def test_without_permission(self):
        self.env["SSH_CONNECTION"] = "192.168.64.1 50000 192.168.64.2 22"
        for axsim in ({"TRUSTED": 0}, {"STALE": 1}):
            with self.subTest(axsim):
                error = self.fails("PERM_DENIED", "snapshot", "--app", "TextEdit", **axsim)
                self.assertIn("sshd-keygen-wrapper", error["suggestion"])
        self.assertFalse(os.path.exists(self.root))

    def test_a_password_is_never_printed_nor_kept(self):
        self.show(self.app("Login", window(
            "Sign in",
            element("AXTextField", subrole="AXSecureTextField", value=SECRET, placeholder="Password", identifier="1"),
            element("AXGroup", element("AXTextField", element("AXStaticText", value=SECRET),
                                       subrole="AXSecureTextField", value=SECRET, title="", frame=[100, 120, 50, 20])),
            element("AXRow", element("AXCell", element("AXTextField", element("AXStaticText", value=SECRET),
                                                       subrole="AXSecureTextField", value=SECRET))))))
        self.env["AGENT_DESKTOP_DEBUG"] = "1"
        for options in ([], ["-i"]):
            reply = self.run_helper("snapshot", "--app", "Login", *options)
            self.assertNotIn(SECRET.encode(), reply.out + reply.err)
            roles = [n["role"] for n in nodes(reply.json["data"]["tree"])]
            self.assertEqual(roles.count("password text"), 3)
            self.assertIn("Password", self.names(reply.json["data"]))
        for folder, _, files in os.walk(self.root):
            for name in files:
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    self.assertNotIn(SECRET, f.read())

    def test_names_come_from_the_first_place_that_has_one(self):
        cases = [
            ("Title", element("AXButton", title="Title", description="no")),
            ("Label", element("AXButton", title=" ", attributes={"AXLabelValue": "Label"}, description="no")),
            ("Content", element("AXStaticText", value="Content", description="no")),
            ("Description", element("AXButton", description="Description", placeholder="no")),
            ("Child", element("AXRow", element("AXCell", element("AXStaticText", value="Child")), placeholder="no")),
            ("Placeholder", element("AXTextField", placeholder="Placeholder", value="")),
            ("close", element("AXButton", subrole="AXCloseButton", title="")),
        ]
        self.show(self.app("Editor", window("A", *[case for _, case in cases])))
        children = self.snapshot("Editor")["tree"]["children"][0]["children"]
        self.assertEqual([c["name"] for c in children], [name for name, _ in cases])

    def test_texts_and_values(self):
        self.show(self.app("Editor", window(
            "A", element("AXTextArea", title="Area", value="Two\nlines"),
            element("AXTextField", title="Empty", value=""),
            element("AXPopUpButton", title="Font", value="Courier"), element("AXStaticText", value="Label"),
            element("AXSlider", title="Slider", value=0.25), element("AXProgressIndicator", title="Progress", value=7),
            element("AXCheckBox", title="Check", value=1), element("AXStaticText", title="Named", value="Other"))))
        data = self.snapshot("Editor")
        texts = {n["name"]: n.get("text", n.get("value")) for n in nodes(data["tree"]) if n["role"] != "application"}
        self.assertEqual(texts, {"A": None, "Area": "Two\nlines", "Empty": None, "Font": "Courier", "Label": None,
                                 "Slider": "0.25", "Progress": "7", "Check": None, "Named": "Other"})

    def test_states(self):
        cases = {
            "on": (element("AXCheckBox", value=1), {"checkable", "checked"}),
            "off": (element("AXCheckBox", value=0), {"checkable"}),
            "mixed": (element("AXCheckBox", value=2), {"checkable", "indeterminate"}),
            "radio": (element("AXRadioButton", value=1), {"checkable", "checked"}),
            "tab": (element("AXRadioButton", subrole="AXTabButton", value=1), {"selectable", "selected"}),
            "selected": (element("AXRow", selected=True), {"selectable", "selected"}),
            "open": (element("AXGroup", expanded=True), {"expandable", "expanded"}),
            "shut": (element("AXRow", attributes={"AXDisclosing": False}), {"expandable", "collapsed"}),
            "triangle": (element("AXDisclosureTriangle", value=1), {"expandable", "expanded"}),
            "busy": (element("AXGroup", busy=True), {"busy"}),
            "focused": (element("AXGroup", focused=True), {"focusable", "focused"}),
            "line": (element("AXTextField", value=""), {"single_line", "editable", "focusable"}),
            "lines": (element("AXTextArea", value="", settable=[]), {"multi_line", "read_only"}),
            "choice": (element("AXPopUpButton"), {"has_popup"}),
        }
        for name, (field, _) in cases.items():
            field["title"] = name
        self.show(self.app("Editor", window("A", *[field for field, _ in cases.values()],
                                            element("AXButton", title="disabled", enabled=False), modal=True)))
        data = self.snapshot("Editor")
        usual = {"enabled", "sensitive", "showing", "visible"}
        for name, (_, states) in cases.items():
            with self.subTest(name):
                self.assertEqual(set(self.find(data, name)["states"]), usual | states)
        self.assertEqual(self.find(data, "disabled")["states"], ["showing", "visible"])
        self.assertIn("modal", self.find(data, "A")["states"])

    def test_the_window_in_front_is_active(self):
        apps = [self.app("Front", window("A"), {**window("B"), "main": False}, active=True),
                self.app("Behind", window("C"))]
        self.show({**self.app("Finder", bundle="com.apple.finder")}, *apps)
        front, behind = self.snapshot("Front"), self.snapshot("Behind")
        self.assertIn("active", self.find(front, "A")["states"])
        self.assertNotIn("active", self.find(front, "B")["states"])
        self.assertNotIn("active", self.find(behind, "C")["states"])

    def test_what_cannot_be_seen_is_not_showing(self):
        scrolled = element("AXScrollArea", element("AXButton", title="in", frame=[110, 110, 20, 20]),
                           element("AXButton", title="out", frame=[110, 400, 20, 20]), frame=[100, 100, 200, 100])
        self.show(
            self.app("Hidden", window("H", element("AXButton", title="h")), hidden=True),
            self.app("Docked", window("D", element("AXButton", title="d"), minimized=True)),
            self.app("Scrolled", window("S", scrolled, element("AXButton", title="beyond", frame=[900, 900, 20, 20]),
                                        element("AXButton", title="flat", frame=[110, 110, 0, 20]),
                                        element("AXPopover",
                                                element("AXButton", title="over", frame=[760, 120, 20, 20]),
                                                frame=[750, 100, 100, 100]))))
        hidden = self.snapshot("Hidden")
        self.assertEqual([n["states"] for n in nodes(hidden["tree"])], [["enabled", "sensitive"]] * 3)
        docked = self.snapshot("Docked")
        self.assertEqual(self.find(docked, "D")["states"], ["enabled", "iconified", "sensitive"])
        self.assertNotIn("visible", self.find(docked, "d")["states"])
        for app in ("Hidden", "Docked"):
            self.assertEqual(self.snapshot(app, "-i")["count"], 2)  # the application and its window
        shown = self.names(self.snapshot("Scrolled", "-i"))
        self.assertEqual(shown, ["Scrolled", "S", "in", "over"])
        self.assertEqual(self.find(self.snapshot("Scrolled"), "out")["states"], ["enabled", "sensitive", "visible"])

    def test_impossible_places_are_left_out(self):
        self.show(self.app("Editor", window("A", element("AXButton", title="huge", frame=[1e300, 0, 1, 1]),
                                            element("AXButton", title="negative", frame=[110, 110, -5, 1]),
                                            element("AXButton", title="between", frame=[110.5, 110.4, 9.6, 10]))))
        data = self.snapshot("Editor")
        self.assertNotIn("bounds", self.find(data, "huge"))
        self.assertNotIn("bounds", self.find(data, "negative"))
        self.assertEqual(self.find(data, "between")["bounds"], {"x": 111, "y": 110, "width": 10, "height": 10})

    def test_an_element_that_is_gone_is_left_out(self):
        self.show(self.app("Editor", window("A", element("AXButton", title="gone", error=-25202),
                                            element("AXButton", title="failing", error=-25200),
                                            element("AXButton", title="there"))))
        data = self.snapshot("Editor")
        self.assertEqual(self.names(data), ["Editor", "A", "there"])
        self.assertNotIn("truncated", data)

    def test_an_attribute_that_fails_is_missing(self):
        self.show(self.app("Editor", window("A", element("AXButton", title=None, value=None, description="there"))))
        self.assertEqual(self.names(self.snapshot("Editor")), ["Editor", "A", "there"])

    def test_a_slow_element_cuts_the_tree_short_of_itself_only(self):
        self.show(self.app("Editor", window("A", element("AXButton", title="slow", slow_ms=60000),
                                            element("AXButton", title="quick"))))
        reply = self.run_helper("snapshot", "--app", "Editor")
        self.assertEqual(self.names(reply.json["data"]), ["Editor", "A", "quick"])
        self.assertTrue(reply.json["data"]["truncated"])
        self.assertLess(reply.seconds, 4 * CALL_SECONDS + 2)

    def test_an_answer_within_the_limit_is_waited_for(self):
        self.show(self.app("Editor", window("A", element("AXButton", title="late", slow_ms=1000))))
        data = self.snapshot("Editor")
        self.assertIn("late", self.names(data))
        self.assertNotIn("truncated", data)

    def test_an_application_that_stops_answering_ends_the_reading(self):
        slow = [element("AXButton", title=f"b{i}", slow_ms=60000) for i in range(50)]
        self.show(self.app("Editor", window("A", *slow)))
        self.assertTrue(self.snapshot("Editor", "-i", LOG_CALLS=1)["truncated"])
        calls = [e["verb"] for e in self.events("ax.call")]
        self.assertEqual(calls.count("values"), 2 + 3 * 2)  # the application, its window, three buttons twice

    def test_the_whole_tree_has_a_time_limit(self):
        slow = [element("AXButton", title=f"b{i}", slow_ms=900) for i in range(50)]
        self.show(self.app("Editor", window("A", *slow)))
        reply = self.run_helper("snapshot", "--app", "Editor")
        data = reply.json["data"]
        self.assertTrue(data["truncated"])
        self.assertGreater(data["count"], 5)
        self.assertLess(reply.seconds, TREE_SECONDS + 4 * CALL_SECONDS)

    def test_an_application_that_does_not_answer(self):
        self.show(self.app("Hung", window()))
        error = self.fails("TIMEOUT", "snapshot", "--app", "Hung", within=8 * CALL_SECONDS, SLOW_MS="60000:Hung")
        self.assertIn("does not answer", error["message"])
        self.assertFalse(os.path.exists(self.root))

    def test_an_application_that_cannot_be_read(self):
        self.show(self.app("Odd", window()))
        error = self.fails("ACTION_FAILED", "snapshot", "--app", "Odd", ERROR="-25208:Odd")
        self.assertIn("-25208", error["message"])
        self.fails("APP_NOT_FOUND", "snapshot", "--app", "Odd", ERROR="-25202:Odd")

    def test_a_question_has_a_time_limit_and_an_element_takes_one(self):
        self.show(self.app("Editor", window("A", *[element("AXButton", title=f"b{i}", value=i) for i in range(30)])))
        data = self.snapshot("Editor", LOG_CALLS=1)
        self.assertIn(CALL_SECONDS, [e["seconds"] for e in self.events("ax.timeout") if "system" in e["element"]])
        calls = [e["verb"] for e in self.events("ax.call")]
        self.assertEqual(calls.count("values"), data["count"])
        self.assertEqual(set(calls), {"values", "set"})  # set: web contents are asked for

    def test_large_trees_are_cut_and_say_so(self):
        groups = [element("AXGroup", *[element("AXButton", title=f"{i}.{j}") for j in range(150)]) for i in range(20)]
        deep = element("AXButton", title="deepest")
        for i in range(40):
            deep = element("AXGroup", deep, description=f"level {40 - i}")
        for name, children in (("Many", groups), ("Wide", [element("AXButton", title=f"b{i}") for i in range(500)]),
                               ("Deep", [deep])):
            self.show(self.app(name, window("A", *children)))
            data = self.snapshot(name)
            with self.subTest(name):
                self.assertTrue(data["truncated"])
                self.assertLessEqual(data["count"], 2000)
        self.assertEqual(max(int(n.split()[1]) for n in self.names(data) if n.startswith("level")), 24)

    def test_nothing_is_cut_without_saying_so(self):
        groups = [element("AXGroup", *[element("AXButton", title=f"{i}.{j}") for j in range(150)]) for i in range(10)]
        self.show(self.app("Many", window("A", *groups)))
        data = self.snapshot("Many")
        self.assertEqual((data["count"], "truncated" in data), (2 + 10 * 151, False))

    def test_each_element_is_told_once(self):
        self.show(self.app("Editor", window("A"), {**window("B"), "main": False}))  # also as main and focused window
        self.assertEqual(self.names(self.snapshot("Editor")), ["Editor", "A", "B"])

    def test_closed_menus_are_left_out(self):
        def menu(title, **fields):
            return element("AXMenuBarItem", element("AXMenu", element("AXMenuItem", element("AXMenu", element(
                "AXMenuItem", title=f"{title} below")), title=f"{title} item")), title=title, **fields)

        context = element("AXGroup", element("AXMenu", element("AXMenuItem", title="context")))
        self.show(self.app("Editor", window("A", context),
                           element("AXMenuBar", menu("Shut"), menu("Open", selected=True))))
        names = self.names(self.snapshot("Editor"))
        self.assertEqual(names, ["Editor", "A", "context", "Shut", "Open", "Open item"])

    def test_long_and_odd_texts(self):
        odd = "q\"b\\s\x01t\tu\u2028ü\U0001F600"
        self.show(self.app("Editor", window("A", element("AXButton", title="ä" * 2000), element("AXButton", title=odd),
                                            element("AXTextArea", description="area", value="é" * 9000),
                                            element("AXButton", title="nul\0nul"))))
        names = self.names(self.snapshot("Editor"))
        self.assertIn("ä" * 500, names)  # 1000 bytes
        self.assertIn(odd, names)
        self.assertIn("nul\ufffdnul", names)
        self.assertEqual(self.find(self.snapshot("Editor"), "area")["text"], "é" * 4000)

    # Web contents

    def test_electron_is_asked_for_its_web_contents(self):
        page = element("AXGroup", element("AXWebArea", element("AXLink", title="Inside"), title="Page"))
        self.show(self.app("Chat", window("A", page), electron=True))
        self.assertIn("Inside", self.names(self.snapshot("Chat", "-i")))
        asked = [(e["attribute"], e["value"]) for e in self.events("ax.set")]
        self.assertEqual(asked, [("AXManualAccessibility", True)])

    def test_other_chromium_is_asked_in_the_way_of_voiceover_and_nobody_else(self):
        page = element("AXWebArea", element("AXLink", title="Inside"))
        native, chromium = self.app("Native", window("A", page)), self.app("Player", window("A", page))
        os.makedirs(os.path.join(chromium["path"], "Contents/Frameworks/Chromium Embedded Framework.framework"))
        self.show(native, chromium)
        self.assertIn("Inside", self.names(self.snapshot("Native")))
        self.assertEqual(self.events("ax.set"), [])
        self.snapshot("Player")
        asked = [(e["app"], e["attribute"]) for e in self.events("ax.set")]
        self.assertEqual(asked, [("Player", "AXEnhancedUserInterface")])

    def test_web_contents_are_waited_for_but_not_for_long(self):
        self.show(self.app("Chat", window("A", element("AXWebArea", title="Empty")), electron=True))
        reply = self.run_helper("snapshot", "--app", "Chat", LOG_CALLS=1)
        self.assertIn("Empty", self.names(reply.json["data"]))
        self.assertGreater([e["verb"] for e in self.events("ax.call")].count("values"), 2 * 3)
        self.assertLess(reply.seconds, 5)


class StateRootTest(HelperTest):
    """R-705: snapshots are kept where agent-desktop keeps them."""

    def setUp(self):
        super().setUp()
        self.show(self.app("Editor", window("A", element("AXButton", title="OK"))))

    def test_files_are_the_users_alone(self):
        for mask in (0, 0o022, 0o777):
            with self.subTest(mask=oct(mask)):
                self.env["AGENT_DESKTOP_HOME"] = root = f"{self.root}-{mask}"
                old = os.umask(mask)
                try:
                    data = self.snapshot("Editor")
                finally:
                    os.umask(old)
                folder = os.path.join(root, "snapshots")
                self.assertEqual(os.listdir(folder), [data["snapshot_id"] + ".json"])
                self.assertEqual((mode_of(root), mode_of(folder)), (0o700, 0o700))
                self.assertEqual(mode_of(os.path.join(folder, data["snapshot_id"] + ".json")), 0o600)

    def test_the_newest_are_kept(self):
        folder = os.path.join(self.root, "snapshots")
        os.makedirs(folder, 0o700)
        os.chmod(self.root, 0o700)
        for i in range(40):
            path = os.path.join(folder, f"{i:08x}.json")
            with open(path, "w", encoding="utf-8"):
                pass
            os.utime(path, (1000 + i, 1000 + i))
        newest = self.snapshot("Editor")["snapshot_id"] + ".json"
        left = sorted(os.listdir(folder))
        self.assertEqual(len(left), 32)
        self.assertIn(newest, left)
        self.assertIn(f"{39:08x}.json", left)
        self.assertNotIn(f"{8:08x}.json", left)

    def test_without_a_setting_it_is_in_the_home_directory(self):
        del self.env["AGENT_DESKTOP_HOME"]
        data = self.snapshot("Editor")
        kept = os.path.join(self.folder, ".agent-desktop", "snapshots", data["snapshot_id"] + ".json")
        self.assertTrue(os.path.exists(kept))

    def test_a_bad_root_is_refused_in_the_words_of_agent_desktop(self):
        def path(name):
            return os.path.join(self.folder, name)

        os.symlink(self.folder, path("link"))
        with open(path("file"), "w", encoding="utf-8"):
            pass
        os.mkdir(path("shared"))
        os.chmod(path("shared"), 0o777)
        for root in ("", "relative", "/", path("."), path("x/.."), path("link"), path("link/"), path("file"),
                     path("shared"), path("none/below"), path("x" * 300)):
            with self.subTest(root):
                self.env["AGENT_DESKTOP_HOME"] = root
                # `sandbox list` makes no root: what it does not see is told by `sandbox create`.
                for command in (["list"], ["create", "demo"]):
                    done = subprocess.run([AD, "sandbox", *command], env=self.env, stdout=subprocess.PIPE, check=False)
                    told = json.loads(done.stdout)
                    if not told["ok"]:
                        break
                told["error"].pop("details", None)
                self.assertEqual(self.fails(told["error"]["code"], "snapshot", "--app", "Editor"), told["error"])

    def test_agent_desktop_reads_the_record(self):
        """Its `click` cannot act on a Mac, but it knows which refs there are."""
        data = self.snapshot("Editor")

        def click(ref):
            done = subprocess.run([AD, "click", ref], env=self.env, stdout=subprocess.PIPE, check=False)
            return json.loads(done.stdout)["error"]

        self.assertEqual(click(data["tree"]["ref"])["code"], "PLATFORM_NOT_SUPPORTED")  # found; there is no desktop
        error = click(f"@{data['snapshot_id']}:e{data['count'] + 1}")
        self.assertEqual(error["code"], "STALE_REF")
        self.assertIn("has no such element", error["message"])


class BesideTest(HelperTest):
    """R-702: agent-desktop with the helper beside it, as in a guest's ~/.local/bin."""

    def test_agent_desktop_answers_with_the_helper(self):
        folder = os.path.join(self.folder, "bin")
        os.mkdir(folder)
        program = shutil.copy(AD, os.path.join(folder, "agent-desktop"))
        shutil.copy(HELPER, os.path.join(folder, "agent-desktop-macos-helper"))
        self.env["AXSIM_STATE"] = os.path.join(self.folder, "state.json")
        self.show(self.app("Text Editor", window("Untitled", element("AXButton", title="OK")), running=False))
        launched = self.run_helper("launch", "Text Editor", "--activate", "--timeout-ms=5000", program=program)
        self.assertEqual(launched.json["data"]["window"]["title"], "Untitled")
        shown = self.run_helper("snapshot", "--app", "Text Editor", "-i", program=program)
        self.assertEqual(self.names(shown.json["data"]), ["Text Editor", "Untitled", "OK"])
        missing = self.run_helper("snapshot", "--app", "Nothing", program=program)
        self.assertEqual((missing.status, missing.json["error"]["code"]), (1, "APP_NOT_FOUND"))


if __name__ == "__main__":
    swift.need_swift()
    main()
