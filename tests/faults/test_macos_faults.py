"""The fault driver on the macos provider, in a simulated Mac: driver.py says how.

Faults meet the command, its worker, provider.sh and the tools that it calls for files; never the simulated Mac itself.
The VM host, a Swift program, is killed at each of its own calls; and at any moment the command, its worker, all that
the worker has started, or the VM host. Each case has a Mac of its own, so that nothing may be left in it.
"""

import dataclasses
import os
import plistlib
import signal
import subprocess
import time
import unittest

import driver
import plan as fault
from driver import COMMAND_SECONDS, COUNTING, DEATHS, KINDS, Case, Killed, Kind, Scenario
from harness import mode_of, wait_until
from mac import ACCOUNT, HOST_KEY, MacDesk, identity, main, why_not

SAMPLE = float(os.environ.get("AD_FAULTS_SAMPLE", "0.12"))  # numbers for each scenario and kind of fault
WORKERS = int(os.environ.get("AD_FAULTS_WORKERS", str(min(2, os.cpu_count()))))
LEAVE_SECONDS = 10  # for what ends by itself once its parent is gone
ANSWER_SECONDS = 15  # for a command beside one that is suspended


def cut_power(case):
    case.desk.mac.reboot()
    case.guest_died = True


def watch_suspended(case):
    """Whoever is asked while a process is suspended gets an answer, and it is true: something is at work."""
    desk, pid = case.desk, case.plan.pid()
    reply = desk.sandbox("status", case.name, timeout=ANSWER_SECONDS)
    assert reply.json["ok"] or reply.code in ("SANDBOX_NOT_FOUND", "STORE_BUSY"), reply
    desk.sandbox("list", timeout=ANSWER_SECONDS)
    desk.mac.kill(pid, signal.SIGKILL)


def overtake_suspended(case):
    """The same command beside it does it, or is refused, and soon. What then goes on must not undo that."""
    again = [word for word in case.command if not word.startswith("--wait")]
    case.desk.raw("sandbox", *again, timeout=ANSWER_SECONDS)
    case.desk.mac.kill(case.plan.pid(), signal.SIGCONT)


MAC_KINDS = [
    *KINDS,
    Kind("power cut", fault.STOP, then=cut_power),
    Kind("suspended, then killed", fault.STOP, then=watch_suspended),
    Kind("suspended and overtaken", fault.STOP, then=overtake_suspended),
]


# Before the fault.

def make_image(case):
    """For the creations that are to succeed afterwards, and for some that meet the fault."""
    case.desk.image()


def publish_image(case):
    case.desk.publish(size=4 << 20)


def lose_helper(case):
    """So that `exec` copies it into the guest."""
    done = case.desk.guest(case.name).run("rm .local/bin/agent-desktop-macos-helper")
    assert done.returncode == 0, done


def start_under_watch(case):
    """So that the VM host meets the faults of what comes afterwards."""
    case.plan.write(fault.COUNT)
    case.desk.ok(*START, env=case.environment())


def kill_vmhost(case):
    [pid] = case.desk.vmhosts(case.name)
    case.desk.mac.kill(pid)
    wait_until(lambda: not case.desk.mac.alive(pid), 5, "the VM host's death")


# Afterwards, in the state that `status` has come to say: what was promised of the interrupted command.

def after_install(case, state):
    assert state == "missing", state


def after_creation(case, state):
    """R-305: it is whole, or broken with a reason and nothing but rm; or it never was."""
    desk, name = case.desk, case.name
    assert state in ("missing", "broken", "stopped"), state
    if state == "broken":
        data = desk.ok("status", name)
        assert data["next"] == f"agent-desktop sandbox rm {name}", data
        reason = [event["reason"] for event in desk.events(name) if event.get("to") == "broken"][-1]
        assert reason and reason in data["message"], (reason, data)
        error = desk.fails("INVALID_STATE", "start", name)
        assert error["recovery"]["next"] == f"agent-desktop sandbox rm {name}", error
    elif state == "stopped":
        files = set(os.listdir(desk.sandbox_path(name, "vm")))
        assert {"disk.img", "aux.img", "vm.json"} <= files, files
        assert not os.path.exists(desk.sandbox_path(name, "restore.ipsw"))
        assert mode_of(desk.sandbox_path(name, "id_ed25519")) == 0o600


def after_clone(case, state):
    """What is whole can be used: its guest has the key that is recorded. The source is what it was."""
    after_creation(case, state)
    assert identity(case.desk.disk("base")) == case.source
    if state == "stopped":
        check_pinned(case)
        assert recorded(case, "work")["mac"] != recorded(case, "base")["mac"]
        check_start(case)


def after_start(case, state):
    """R-306: the same command ends what was begun, and nobody is needed for it."""
    assert state in ("stopped", "running"), state
    check_start(case)


def after_first_start(case, state):
    assert state in ("stopped", "needs_setup"), state
    assert case.desk.ok("start", case.name, "--wait=60")["state"] == "needs_setup"


def after_stop(case, state):
    assert state in ("stopped", "running"), state
    assert case.desk.ok("stop", case.name, "--wait=60")["state"] == "stopped"
    check_start(case)


def after_removal(case, state):
    assert state in ("missing", "stopped", "broken"), state


def after_exec(case, state):
    """The guest goes on, unless it is what died, and no half of a copied program stays behind in it."""
    assert state == ("stopped" if case.guest_died else "running"), state
    if case.guest_died:
        check_start(case)
        return
    check_exec(case)
    guest = case.desk.guest(case.name)
    wait_until(lambda: b".new-" not in guest.run("ls -a .local/bin").stdout, LEAVE_SECONDS, "the end of all copies")


def after_death(case, state):
    assert state == "stopped", state
    check_start(case)


def check_start(case):
    data = case.desk.ok("start", case.name, "--wait=60")
    assert data["state"] == "running", (data, case.desk.why(case.name))
    check_exec(case)


def check_exec(case):
    reply = case.desk.raw("sandbox", "exec", case.name, "--", "snapshot", "--app", "Finder")
    assert reply.status == 0 and case.desk.envelope(reply)["ok"], reply


def recorded(case, name):
    """The facts on record: those of its creation, and what was added since."""
    facts = {}
    for event in case.desk.events(name):
        facts.update(event.get("facts", {}))
    return {key: value for key, value in facts.items() if value}


def check_pinned(case):
    public = case.desk.stopped_tree(case.name)[HOST_KEY + ".pub"]["data"].decode().split()[1]
    assert public == recorded(case, case.name)["hostkey"], "the guest's host key is not the one on record"


@dataclasses.dataclass(frozen=True)
class MacScenario(Scenario):
    stage: str = None
    then: callable = None  # one of the above
    name: str = "base"
    kinds: list = dataclasses.field(default_factory=lambda: MAC_KINDS)


INSTALL = ["install", "macos"]
CREATE = ["create", "base", "--provider", "macos", "--set", "user=" + ACCOUNT, "--wait=60"]
CREATE_LOCAL, CREATE_LATEST = [*CREATE, "--set", "ipsw=UniversalMac.ipsw"], [*CREATE, "--set", "ipsw=latest"]
CLONE = ["create", "work", "--provider", "macos", "--set", "from=base", "--wait=60"]
START, STOP, REMOVE = ["start", "base", "--wait=60"], ["stop", "base", "--wait=60"], ["rm", "base"]
EXEC = ["exec", "base", "--", "snapshot", "--app", "Finder"]


def install(before=(), command=INSTALL, **more):
    return MacScenario(list(before), command, then=after_install, **more)


def create(before=(), command=CREATE_LOCAL, then=after_creation, **more):
    return MacScenario([publish_image, *before], command, stage="ready", then=then, **more)


def clone(before=(), command=CLONE, then=after_clone, **more):
    return MacScenario(list(before), command, stage="set up", then=then, name="work", **more)


def first_start(**more):
    return MacScenario([], START, stage="fresh", then=after_first_start, **more)


def of_base(before, command, then, **more):
    return MacScenario(list(before), command, stage="set up", then=then, **more)


SCENARIOS = {
    "install": install(),
    "create": create(),
    "create with download": create(command=CREATE_LATEST),
    "clone": clone(),
    "first start": first_start(),
    "start": of_base([], START, after_start),
    "exec": of_base([START, lose_helper], EXEC, after_exec),
    "stop": of_base([START], STOP, after_stop),
    "rm": of_base([], REMOVE, after_removal),
    "look after death": of_base([START, kill_vmhost], ["status", "base"], after_death),
    "recovery of install": install([Killed(*INSTALL, calls=243)]),
    "recovery of create": create([Killed(*CREATE_LATEST, calls=268)], REMOVE, after_removal),
    "recovery of clone": clone([Killed(*CLONE, calls=200)], ["rm", "work"], after_removal),
    "recovery of start": of_base([Killed(*START, calls=186)], START, after_start),
    "recovery of stop": of_base([START, Killed(*STOP, calls=38)], STOP, after_stop),
    "recovery of rm": of_base([Killed(*REMOVE, calls=50)], REMOVE, after_removal),
}

# The VM host dies at its own calls, each of its events among them: it writes one with one call.
VMHOST = {"programs": "vmhost", "kinds": DEATHS}
VMHOST_SCENARIOS = {
    "the VM host of create": create(**VMHOST),
    "the VM host of clone": clone(**VMHOST),
    "the VM host of the first start": first_start(**VMHOST),
    "the VM host of start": of_base([], START, after_start, **VMHOST),
    "the VM host of stop": of_base([start_under_watch], STOP, after_stop, **VMHOST),
    "the VM host of install": install(**VMHOST),
}


class MacCase(Case):
    programs = "agent-desktop:sh:mv:rm:chmod"
    guest_died = False

    def make_desk(self):
        return MacDesk("fault", stage=self.scenario.stage)

    def environment(self):
        return {**super().environment(), "AD_FAULT_SPARED": self.desk.mac.directory + "/"}

    def close(self):
        self.desk.close()

    def why(self):
        return self.desk.why(self.name)

    @property
    def name(self):
        return self.scenario.name

    def creation(self):
        return ["create", self.name, *CREATE_LOCAL[2:]]

    def prepare(self):
        make_image(self)
        super().prepare()
        if self.name == "work":
            self.source = identity(self.desk.disk("base"))

    def check(self, reply):
        desk, state = self.desk, self.settle()
        self.check_sessions(state)
        self.check_commands_agree(state)
        self.check_acknowledged(reply, state)
        self.check_provider(reply)
        self.check_history()
        self.scenario.then(self, state)
        desk.check_secrets()
        self.remove(self.settle())
        assert desk.ok(*self.creation())["state"] == "stopped", desk.why(self.name)
        desk.ok("rm", self.name)
        if self.name != "base" and self.scenario.stage == "set up":
            assert desk.state("base") == "stopped"
            desk.ok("rm", "base")
        self.check_nothing_left()
        self.check_history()
        desk.check()

    def check_sessions(self, state):
        """A VM host lives exactly where one should."""
        if state in ("running", "needs_setup"):
            assert len(self.desk.vmhosts(self.name)) == 1, self.desk.mac.processes()
        elif state in ("stopped", "missing"):
            assert self.desk.vmhosts(self.name) == [], self.desk.mac.processes()
        else:  # the installer of a creation that has ended: it sees the end of its stdin
            wait_until(lambda: self.desk.vmhosts(self.name) == [], LEAVE_SECONDS, "the installer's end")

    def check_provider(self, reply):
        """R-301, R-306: its state is told, never `working` without an owner, and the next install finishes."""
        state = self.await_rest(self.desk.look_at_provider, "@macos.op")
        if self.command != INSTALL:
            assert state == "ready", state
            return
        assert state in ("missing", "broken", "ready"), state
        if state != "ready":
            data = self.desk.look_at_provider()
            assert data["message"] and data["next"] == "agent-desktop sandbox install macos", data
            assert reply.json is None or not reply.json["ok"] or reply.data["state"] == "unavailable", reply
        self.desk.install()

    def check_nothing_left(self):
        desk = self.desk
        assert os.listdir(desk.path("sandboxes")) == []
        wait_until(lambda: desk.mac.processes() == [] or None, LEAVE_SECONDS,
                   f"the end of {desk.mac.processes()}")
        attached = desk.mac.run(["hdiutil", "info", "-plist"], check=True).stdout
        assert plistlib.loads(attached)["images"] == [], attached
        left = [os.path.join(folder, name) for folder, folders, names in os.walk(desk.root) for name in folders + names
                if name.startswith((".tmp-", ".gone-", ".build-")) or ".new" in name or name == "mount"]
        assert left == [], f"files of nobody: {left}"


class MomentCase(MacCase):
    """Somebody is killed at a moment, in milliseconds from the command's start; who, is the kind."""

    struck = False
    unit = "ms"

    def interfere(self, process):
        began = time.monotonic()
        try:
            process.wait(COMMAND_SECONDS if self.kind is COUNTING else self.at / 1000)
        except subprocess.TimeoutExpired:
            self.struck = self.kind.then(self, process)
        self.took_ms = int((time.monotonic() - began) * 1000) + 1

    def met(self):
        return self.took_ms, self.struck, self.kind.name if self.struck else None


def kill_all(case, pids):
    """SIGKILL; false when they had ended before."""
    try:
        for pid in pids:
            case.desk.mac.kill(pid)
    except ProcessLookupError:
        return False
    return bool(pids)


def workers(case, process):
    """The command's forks: its worker, and for a moment the process between."""
    return [one["pid"] for one in case.desk.mac.processes()
            if one["argv"] == process.args and one["pid"] != process.inner_pid and one["state"] not in "ZX"]


def kill_session(case):
    case.guest_died = kill_all(case, case.desk.vmhosts(case.name))
    return case.guest_died


COMMAND = Kind("the command killed", fault.COUNT, then=lambda case, process: kill_all(case, [process.inner_pid]))
WORKER = Kind("its worker killed", fault.COUNT, then=lambda case, process: kill_all(case, workers(case, process)))
GROUP = Kind("its worker's group killed", fault.COUNT,
             then=lambda case, process: kill_all(case, [-pid for pid in workers(case, process)]))
SESSION = Kind("the VM host killed", fault.COUNT, then=lambda case, _: kill_session(case))
POWER = Kind("a power cut", fault.COUNT, then=lambda case, process: cut_power(case) or True)

MOMENTS = {
    **{title: [COMMAND, WORKER, GROUP, SESSION, POWER]
       for title in ("create", "create with download", "clone", "first start", "start", "stop")},
    "exec": [COMMAND, SESSION, POWER],  # these have no worker
    "install": [COMMAND, POWER],
    "rm": [COMMAND, POWER],
}
MOMENTS_OF_EACH = 40  # with AD_FAULTS=all


class MacTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why_not():
            raise unittest.SkipTest(why_not())


class FaultTest(MacTest):
    def drive(self, title, scenario):
        driver.drive(MacCase, title, scenario, SAMPLE, WORKERS)


driver.add_tests(FaultTest, {**SCENARIOS, **VMHOST_SCENARIOS})


class MomentTest(MacTest):
    def drive(self, title, scenario):
        scenario = dataclasses.replace(scenario, kinds=MOMENTS[title], each=MOMENTS_OF_EACH)
        driver.drive(MomentCase, title, scenario, SAMPLE, WORKERS)


driver.add_tests(MomentTest, {title: SCENARIOS[title] for title in MOMENTS}, "death_at_any_moment_of_")


class HangingCase(MomentCase):
    """Somebody is killed while the installer makes no progress: it would not end by itself."""

    def interfere(self, process):
        mac = self.desk.mac
        wait_until(lambda: mac.events("install.stalled"), COMMAND_SECONDS, "the stall")
        self.struck = self.kind.then(self, process)
        mac.set(vzsim={})
        self.took_ms = 0


class HangTest(MacTest):
    def test_r305_an_installer_ends_with_the_worker_that_it_works_for(self):
        scenario = create([lambda case: case.desk.mac.set(vzsim={"INSTALL_STALL_AT": "0.4"})])
        for kind in (WORKER, GROUP, SESSION, POWER):
            with self.subTest(kind.name):
                _, met = HangingCase("a create that hangs", scenario, kind, 1).run()
                self.assertTrue(met)


class GoingDownTest(MacTest):
    def test_r409_a_guest_that_goes_down_has_not_lost_its_setup(self):
        """Its port is closed for a while before it is gone, and whoever looks then sees what a loss looks like."""
        desk = MacDesk("down", stage="set up")
        self.addCleanup(desk.close)
        guest = desk.start("base")
        guest.change(ssh="refuse")
        self.assertEqual(desk.state("base"), "needs_setup")
        guest.run("shutdown -h now")
        wait_until(lambda: desk.state("base") == "stopped", LEAVE_SECONDS, "the guest's end")
        desk.start("base")  # nobody is needed
        self.assertEqual(desk.mac.events("window.open"), [])
        desk.check()


if __name__ == "__main__":
    driver.announce()
    main()
