#!/usr/bin/python3
"""A VM host without virtual machines, for tests of one module at a time: takes vmhost's words, tells vmhost's events.

What it does besides, the words in $VMHOST say: "install-refuses", "install-dies", "install-stays", "install-limit",
"run-limit", "run-dies", "run-deaf" (the guest never shuts down), "run-mute" (nothing is told), "run-noise", "run-ends"
(from inside, at once). What it was called with goes to $MAC/vmhost.NAME.argv, NAME being the sandbox's.
"""
import json
import os
import signal
import sys
import time

MODES = os.environ.get("VMHOST", "").split()
LIMIT = {"problem": "limit", "domain": "VZErrorDomain", "code": 6,
         "message": "This Mac runs two macOS guests already, which is Apple's limit."}


def tell(event, **members):
    line = json.dumps({"time": int(time.time() * 1000), "event": event, **members}) + "\n"
    os.write(1, line.encode())


def option(name):
    words = sys.argv[2:]
    return words[words.index(name) + 1] if name in words else None


def write_machine(directory, old):
    machine = dict(old, machine_identifier=os.urandom(8).hex(), mac="6e:05:" + ":".join(
        f"{b:02x}" for b in os.urandom(4)))
    with open(f"{directory}/vm.json", "w") as f:
        json.dump(machine, f)
    return machine


def install():
    vm = option("--vm")
    image = open(option("--image"), "rb").read()
    if "install-refuses" in MODES:
        tell("error", problem="host-too-old", code=10006,
             message="The image holds macOS 26.6, which is newer than this Mac's 26.5.")
        return 1
    if "install-limit" in MODES:
        tell("error", **LIMIT)
        return 1
    with open(f"{vm}/disk.img", "xb") as disk:
        disk.truncate(int(option("--disk-bytes")))
        disk.write(image)
    with open(f"{vm}/aux.img", "xb") as aux:
        aux.write(b"auxiliary")
    tell("image", version="26.1", build="25B78")
    os.write(2, b"a line that is no event\n")
    tell("progress", fraction=0.25)
    if "install-dies" in MODES:
        os.kill(os.getpid(), signal.SIGKILL)
    if "install-stays" in MODES:
        open(os.environ["MAC"] + "/installing", "w").close()
        sys.stdin.read()  # ends with whoever wanted it
        time.sleep(0.3)  # letting go takes its time
        open(os.environ["MAC"] + "/cancelled", "w").close()
        return 1
    tell("progress", fraction=1)
    write_machine(vm, {"hardware_model": "AAAA", "cpus": 4, "memory_mib": 8192})
    tell("installed")
    return 0


def renew():
    vm = option("--vm")
    with open(f"{vm}/vm.json") as f:
        old = json.load(f)
    tell("renewed", mac=write_machine(vm, old)["mac"])
    return 0


class Stop(Exception):
    pass


def on_term(_number, _frame):
    tell("stopping", how="request")
    if "run-deaf" not in MODES:
        raise Stop("request")


def on_force(_number, _frame):
    tell("stopping", how="force")
    raise Stop("force")


def run():
    if "run-limit" in MODES:
        tell("error", **LIMIT)
        return 1
    if "run-dies" in MODES:
        return 1
    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGUSR1, on_force)
    try:
        if "run-noise" in MODES:
            os.write(1, b"\xff\x00{not an event}\n{\"event\":\"started\"\n" + b"x" * 200000 + b"\n")
        if "run-mute" not in MODES:
            tell("started", pid=os.getpid())
        if "run-ends" in MODES:
            raise Stop("guest")
        while True:
            signal.pause()
    except Stop as how:
        tell("stopped", how=str(how))
    return 0


def main():
    sandbox = os.path.basename(os.path.dirname(option("--vm")))
    with open(f"{os.environ['MAC']}/vmhost.{sandbox}.argv", "w") as f:
        json.dump(sys.argv[1:], f)
    return {"install": install, "renew": renew, "run": run}[sys.argv[1]]()


sys.exit(main())
