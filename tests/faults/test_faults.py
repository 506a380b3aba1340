"""The fault driver on the linux provider: driver.py says how. All processes of a sandbox count, the supervisor too."""

import ctypes
import os
import shutil
import signal
import time
import unittest

import driver
from driver import Case, Killed, Scenario
from harness import Desk, alive, main, wait_until

SAMPLE = float(os.environ.get("AD_FAULTS_SAMPLE", "1"))  # numbers for each scenario and kind of fault
PR_SET_CHILD_SUBREAPER = 36


def kill_supervisor(case):
    for event in reversed(case.desk.events(case.name)):
        pid = event.get("facts", {}).get("pid")
        if pid:
            os.kill(int(pid), signal.SIGKILL)
            wait_until(lambda: not alive(pid), 5, "the supervisor's death")
            return
    raise AssertionError("no supervisor in the journal")


CREATE, CLONE = ["create", "demo"], ["create", "demo", "--set", "from=base"]
START, STOP, REMOVE = ["start", "demo", "--wait=30"], ["stop", "demo", "--wait=30"], ["rm", "demo"]
SOURCE, STOPPED, RUNNING = [["create", "base"]], [CREATE], [CREATE, START]

# What is to be there before, and the command that meets the fault.
SCENARIOS = {
    "create": Scenario([], CREATE),
    "start": Scenario(STOPPED, START),
    "exec": Scenario(RUNNING, ["run", "demo", "--", "true"]),
    "stop": Scenario(RUNNING, STOP),
    "rm": Scenario(STOPPED, REMOVE),
    "clone": Scenario(SOURCE, CLONE),
    "look after death": Scenario([*RUNNING, kill_supervisor], ["status", "demo"]),
    "recovery of create": Scenario([Killed(*CREATE, calls=114)], REMOVE),
    "recovery of start": Scenario([*STOPPED, Killed(*START, calls=125)], START),
    "recovery of stop": Scenario([*RUNNING, Killed(*STOP, calls=28)], STOP),
    "recovery of rm": Scenario([*STOPPED, Killed(*REMOVE, calls=46)], REMOVE),
    "recovery of clone": Scenario([*SOURCE, Killed(*CLONE, calls=173)], REMOVE),
}


def descendants():
    """Processes below this one; orphans are among them, since this process adopts them."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rsplit(b")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in (b"Z", b"X"):
            parents[int(pid)] = int(fields[1])
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def mounts_below(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return [line for line in f if path in line]


class LinuxCase(Case):
    def make_desk(self):
        return Desk("fault")

    def check(self, reply):
        desk, state = self.desk, self.settle()
        self.check_acknowledged(reply, state)
        self.check_history()
        self.check_commands_agree(state)
        self.remove(state)
        assert desk.ok("create", "demo")["state"] == "stopped"
        desk.ok("rm", "demo")
        if desk.sandbox("status", "base").json["ok"]:
            assert desk.state("base") == "stopped"
            desk.ok("rm", "base")
        self.check_nothing_left()
        self.check_history()

    def check_nothing_left(self):
        left = os.listdir(self.desk.path("sandboxes"))
        assert left == [], f"files of no sandbox: {left}"
        end = time.monotonic() + 10
        while descendants():
            reap()
            assert time.monotonic() < end, f"orphans: {[open(f'/proc/{p}/cmdline').read() for p in descendants()]}"
            time.sleep(0.02)
        assert mounts_below(self.desk.base) == []

    def close(self):
        shutil.rmtree(self.desk.base, ignore_errors=True)


class FaultTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def drive(self, title, scenario):
        driver.drive(LinuxCase, title, scenario, SAMPLE)


driver.add_tests(FaultTest, SCENARIOS)

if __name__ == "__main__":
    driver.announce()
    main()
