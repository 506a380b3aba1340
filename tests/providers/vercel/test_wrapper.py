"""R-504: agent-desktop-run as it runs in a hosted machine, with the desktop's packages of this one.

The tests run in namespaces of their own (processes, mounts, network), with an empty /tmp: what they kill and what they
leave is nobody else's. As root and as an ordinary user alike. Skipped, with the reason, where that or a package is not
there. Environment: AD_BINARY, AD_SOURCE; AD_TEST_USER, the ordinary user to go on as.
"""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = ("Xvfb", "dbus-daemon", "openbox", "gdbus", "flock", "setpriv", "setsid", "unshare",
            "gnome-calculator", "zenity")
LAUNCHER = "/usr/share/dbus-1/services/org.a11y.Bus.service"
SKIPPED = 77
RUNTIME = "/tmp/agent-desktop"
HOME = "/tmp/home"
TOOLS = os.environ.get("AD_WRAPPER_TOOLS", "")  # inside: where the wrapper, agent-desktop and the Dockerfile lie

# What is there once the desktop is made, by what its command line begins with.
SERVICES = {
    "display": "Xvfb :99",
    "bus": "dbus-daemon --session",
    "accessibility": "/usr/libexec/at-spi-bus-launcher",
    "window-manager": "openbox",
}


# --- processes ----------------------------------------------------------------------------------------------------


def stat_of(pid):
    """State and parent of a process; None when it has ended and let go of all its files."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else (state, int(parent))


def command_lines():
    """All that run, except who looks and its parent: number to command line."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid in (1, os.getpid()) or stat_of(pid) is None:
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found[pid] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            pass
    return found


def pids_of(begin):
    """Those of a command; not what it has forked and has not yet become another program."""
    found = {pid: stat_of(pid) for pid, line in command_lines().items() if line.startswith(begin)}
    return sorted(pid for pid, stat in found.items() if stat is not None and stat[1] not in found)


def services():
    return {name: pids_of(begin) for name, begin in SERVICES.items()}


def wait_until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {seconds} s: {command_lines()}")
        time.sleep(0.002)


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_until(lambda: not set(pids) & set(command_lines()), "the end of what was killed")


def kill_all():
    """As a machine that stops: all at once, and nobody can tidy up."""
    while pids := list(command_lines()):
        kill(pids)


# --- the tests ------------------------------------------------------------------------------------------------------


def environment_of_image():
    with open(os.path.join(TOOLS, "Dockerfile"), encoding="utf-8") as file:
        text = re.search(r"^ENV (.*?[^\\])$", file.read(), re.MULTILINE | re.DOTALL).group(1)
    return dict(word.split("=", 1) for word in text.replace("\\\n", " ").split())


class WrapperTest(unittest.TestCase):
    def setUp(self):
        kill_all()
        for name in os.listdir("/tmp"):
            path = os.path.join("/tmp", name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        os.mkdir(HOME)
        self.env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": HOME}

    def start(self, *arguments, **options):
        for stream in ("stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("env", self.env)
        process = subprocess.Popen([os.path.join(TOOLS, "agent-desktop-run"), *arguments], **options)
        self.addCleanup(process.kill)
        return process

    def run_wrapper(self, *arguments, data=None, **options):
        if data is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, **options)
        with process:
            out, err = process.communicate(data, timeout=60)
        return process.returncode, out, err

    def succeed(self, *arguments, **options):
        status, out, err = self.run_wrapper(*arguments, **options)
        self.assertEqual(status, 0, (out, err))
        return out

    def ask(self, *arguments, **options):
        """A command of agent-desktop that replies with an envelope."""
        value = json.loads(self.succeed(*arguments, **options))
        self.assertTrue(value["ok"], value)
        return value["data"]

    def put_program(self, name, script):
        """A program of that name before all others."""
        folder = os.path.join(HOME, "bin")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)
        self.env = dict(self.env, PATH=f"{folder}:{TOOLS}:/usr/bin:/bin")

    def assert_whole(self):
        for name, pids in services().items():
            self.assertEqual(len(pids), 1, (name, command_lines()))

    # --- agent-desktop is run as it is asked for

    def test_r504_arguments_streams_and_status_are_agent_desktops(self):
        self.put_program("agent-desktop", """printf '%s\\0' "$@"; cat; echo problem >&2; exit 7""")
        arguments = ["a b", "", "*", "$HOME", "`id`", "'\"\\", "two\nlines", "--", "-x", "gr\u00fc\u00dfe"]
        status, out, err = self.run_wrapper(*arguments, data=b"\0\xff typed\n")
        self.assertEqual(out, "\0".join(arguments + [""]).encode() + b"\0\xff typed\n", err)
        self.assertEqual((status, err), (7, b"problem\n"))
        self.put_program("agent-desktop", "kill -TERM $$")
        self.assertEqual(self.run_wrapper()[0], -signal.SIGTERM)

    def test_r504_the_caller_sees_the_end_of_its_streams_though_services_run(self):
        self.put_program("agent-desktop", "echo out; echo err >&2")
        status, out, err = self.run_wrapper(data=b"")  # communicate() returns at the end of both
        self.assertEqual((status, out, err), (0, b"out\n", b"err\n"))
        self.assert_whole()
        for pids in services().values():
            for number in os.listdir(f"/proc/{pids[0]}/fd"):
                self.assertNotEqual(os.readlink(f"/proc/{pids[0]}/fd/{number}"), RUNTIME + "/lock")

    # --- a desktop, as in the walk-throughs

    def test_r504_a_gtk_program_is_launched_and_seen(self):
        launched = self.ask("launch", "gnome-calculator", "--activate", "--timeout-ms", "20000")
        self.assertIn("alculator", launched["window"]["title"])
        names = json.dumps(self.ask("snapshot", "--app", "gnome-calculator", "-i"))
        self.assertIn('"push button"', names)
        self.assertEqual(self.ask("launch", "gnome-calculator", "--activate")["pid"], launched["pid"])
        shot = self.ask("screenshot", "--out", "/tmp/shot.png")
        self.assertEqual((shot["width"], shot["height"]), (1280, 800))

    def test_the_desktop_has_the_size_that_is_asked_for(self):
        self.env["AGENT_DESKTOP_SCREEN"] = "800x600"
        shot = self.ask("screenshot", "--out", "/tmp/shot.png")
        self.assertEqual((shot["width"], shot["height"]), (800, 600))

    def test_r504_other_programs_see_the_same_desktop_by_the_environment_of_the_image(self):
        self.succeed("--version")
        image = dict(environment_of_image(), PATH=self.env["PATH"], HOME=HOME)
        with subprocess.Popen(["zenity", "--entry", "--title=by itself"], env=image, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
            self.addCleanup(program.kill)
            snapshot = [os.path.join(TOOLS, "agent-desktop"), "snapshot", "--app", "zenity"]

            def is_seen(command):
                return b"by itself" in subprocess.run(command, env=image, capture_output=True, timeout=20).stdout

            wait_until(lambda: is_seen(snapshot), "the window")
            self.assertTrue(is_seen([os.path.join(TOOLS, "agent-desktop-run"), *snapshot[1:]]))
            program.kill()

    def test_the_wrapper_and_the_image_say_the_same_environment(self):
        self.put_program("agent-desktop", "env")
        self.env.update(GTK_A11Y="none", NO_AT_BRIDGE="1", AT_SPI_BUS_ADDRESS="unix:path=/old", WAYLAND_DISPLAY="x")
        seen = dict(line.split("=", 1) for line in self.succeed().decode().splitlines())
        for name, value in environment_of_image().items():
            self.assertEqual(seen[name], HOME if name == "HOME" else value)
        for name in ("GTK_A11Y", "NO_AT_BRIDGE", "AT_SPI_BUS_ADDRESS", "WAYLAND_DISPLAY"):
            self.assertNotIn(name, seen)
        self.env = {"PATH": self.env["PATH"]}  # the service need not tell where home is
        self.assertIn(f"HOME={pwd.getpwuid(os.getuid()).pw_dir}\n", self.succeed().decode())

    # --- several at once, and again

    def test_r504_calls_at_once_make_one_desktop(self):
        calls = [self.start("--version") for _ in range(6)]
        for call in calls:
            with call:
                out, err = call.communicate(timeout=60)
            self.assertEqual((call.returncode, err), (0, b""))
            self.assertIn(b"agent-desktop", out)
        self.assert_whole()
        before = services()
        self.succeed("--version")
        self.assertEqual(services(), before)

    def test_r504_after_a_resume_the_files_are_there_but_no_process(self):
        self.ask("launch", "gnome-calculator", "--activate", "--timeout-ms", "20000")
        for _ in range(2):
            kill_all()
            for path in ("/tmp/.X99-lock", "/tmp/.X11-unix/X99", RUNTIME + "/bus", RUNTIME + "/ready"):
                self.assertTrue(os.path.exists(path), path)
            self.ask("launch", "gnome-calculator", "--activate", "--timeout-ms", "20000")
            self.assertIn("push button", json.dumps(self.ask("snapshot", "--app", "gnome-calculator", "-i")))
            self.assert_whole()

    def test_r504_an_old_lock_may_have_the_number_of_a_living_process(self):
        self.succeed("--version")
        kill_all()
        os.chmod("/tmp/.X99-lock", 0o644)
        with open("/tmp/.X99-lock", "w", encoding="ascii") as file:
            file.write(f"{os.getpid():>10}\n")
        self.succeed("--version")
        self.assert_whole()

    def test_a_service_that_died_is_started_again(self):
        self.succeed("--version")
        for begin in (*SERVICES.values(), "sh -c setpriv"):
            before = pids_of(begin)
            self.assertEqual(len(before), 1, (begin, command_lines()))
            kill(before)
            self.ask("launch", "zenity", "--activate", "--timeout-ms", "20000", "--arg", "--entry")
            self.assertIn("zenity", json.dumps(self.ask("snapshot", "--app", "zenity", "-i")), begin)
            self.assert_whole()
            self.assertNotEqual(pids_of(begin), before)
            kill(pids_of("zenity") + pids_of("/usr/bin/zenity"))

    def test_whoever_dies_in_the_midst_is_no_obstacle(self):
        for name, begin in SERVICES.items():
            kill_all()
            call = self.start("--version")
            wait_until(lambda: pids_of(begin), name)
            call.kill()
            with call:
                call.communicate(timeout=30)
            self.succeed("--version")
            self.assert_whole()

    # --- what may be in the way: 125, which is no status of agent-desktop

    def assert_fails(self, *says):
        status, out, err = self.run_wrapper("--version")
        self.assertEqual((status, out), (125, b""), err)
        for words in says:
            self.assertIn(words, err.decode())

    def test_somebody_elses_directory_is_not_used(self):
        for make in (lambda: os.mkdir(RUNTIME, 0o755), lambda: os.symlink(HOME, RUNTIME),
                     lambda: open(RUNTIME, "w", encoding="ascii").close()):
            make()
            self.assert_fails(RUNTIME, "mode 700")
            self.assertEqual(services()["display"], [])
            if os.path.isdir(RUNTIME) and not os.path.islink(RUNTIME):
                os.rmdir(RUNTIME)
            else:
                os.unlink(RUNTIME)

    def test_another_x_server_is_left_alone(self):
        with subprocess.Popen(["Xvfb", ":99"], stderr=subprocess.DEVNULL) as other:
            self.addCleanup(other.kill)
            wait_until(lambda: os.path.exists("/tmp/.X11-unix/X99"), "the other server")
            self.assert_fails(f"another X server has display :99 (process {other.pid})")
            self.assertIsNone(other.poll())
            other.kill()

    def test_a_missing_package_is_named(self):
        folder = os.path.join(HOME, "few")
        os.mkdir(folder)
        for name in os.listdir("/usr/bin"):
            if name != "openbox":
                os.symlink(os.path.join("/usr/bin", name), os.path.join(folder, name))
        self.env["PATH"] = f"{TOOLS}:{folder}"
        self.assert_fails("openbox is not installed in this image")


# --- into the namespaces ----------------------------------------------------------------------------------------------


def missing():
    lacks = [name for name in PROGRAMS if shutil.which(name) is None]
    if not os.path.exists(LAUNCHER):
        lacks.append("at-spi2-core")
    return lacks


NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--kill-child",
              "--mount-proc"]
# The shell is process 1, which takes the ended ones away.
INSIDE = 'mount -t tmpfs -o mode=1777 tmpfs /tmp && cd / && "$@"; exit $?'


def skip(reason):
    print(f"skipped: {reason}")
    return SKIPPED


def go_inside(options):
    source, name = os.environ["AD_SOURCE"], os.environ.get("AD_TEST_USER")
    switch = {}
    if name and os.getuid() == 0:
        entry = pwd.getpwnam(name)
        switch = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    if lacks := missing():
        return skip("not here: " + ", ".join(lacks) + " (tools/install-deps run test)")
    probe = subprocess.run([*NAMESPACES, "sh", "-c", INSIDE, "sh", "true"], capture_output=True, text=True, **switch)
    if probe.returncode != 0:
        return skip("no namespaces of one's own here: " + probe.stderr.strip())
    with tempfile.TemporaryDirectory(prefix="ad-wrapper-", dir="/var/tmp") as tools:
        os.chmod(tools, 0o755)
        for path in ("providers/vercel/agent-desktop-run", "providers/vercel/Dockerfile"):
            shutil.copy(os.path.join(source, path), tools)
        shutil.copy(os.environ["AD_BINARY"], os.path.join(tools, "agent-desktop"))
        shutil.copy(__file__, tools)
        for entry in os.scandir(tools):
            os.chmod(entry.path, 0o755)
        script = os.path.join(tools, os.path.basename(__file__))
        return subprocess.run([*NAMESPACES, "sh", "-c", INSIDE, "sh", sys.executable, "-B", script, *options],
                              env=dict(os.environ, AD_WRAPPER_TOOLS=tools), **switch).returncode


if __name__ == "__main__":
    if TOOLS:
        unittest.main(verbosity=2)
    sys.exit(go_inside(sys.argv[1:]))
