#!/usr/bin/python3
"""A virtual machine's process without Swift, for the double's own test: the log, locks and commands of the simulator.

    stand_in.py install --disk FILE --aux FILE --image FILE.ipsw
    stand_in.py run --disk FILE --aux FILE --mac MAC [--ecid ID] [--share FOLDER]... [--window TITLE]

SIGTERM asks the guest to stop, SIGINT stops by force. Exit: 0 stopped, 6 too many machines, 2 files in use.
"""

import argparse
import fcntl
import json
import os
import select
import signal
import sys
import time

STAMP = b"VZSIM-INSTALLED\n"


def log(event, **fields):
    line = json.dumps({**fields, "event": event, "pid": os.getpid()}).encode() + b"\n"
    fd = os.open(os.environ["VZSIM_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, line)
    os.close(fd)


def delay(name, default):
    time.sleep(int(os.environ.get("VZSIM_" + name + "_MS", default)) / 1000)


def lock(path, create=False):
    fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd


def take_locks(options):
    folder = os.environ["VZSIM_SLOTS_DIR"]
    slots = [lock(f"{folder}/vm-slot-{number}", True) for number in range(int(os.environ.get("VZSIM_VM_LIMIT", 2)))]
    taken = [fd for fd in slots if fd >= 0]
    for fd in taken[1:]:
        os.close(fd)
    if not taken:
        sys.exit(6)
    if lock(options.aux, True) < 0 or lock(options.disk) < 0:
        sys.exit(2)


def describe(options):
    log("vm.init", disks=[{"path": options.disk, "readOnly": False}], macs=[options.mac], ecid=options.ecid,
        aux=options.aux, shares=[{"tag": "automount", "path": path, "readOnly": True} for path in options.share])


def install(options):
    describe(options)
    log("install.start", image=options.image)
    take_locks(options)
    log("vm.state", state="running")
    with open(options.disk, "r+b") as disk:
        disk.write(STAMP)
    log("install.end", fraction=1)
    log("vm.state", state="stopped")


def run(options):
    path = os.path.join(os.environ["VZSIM_CONTROL"], str(os.getpid()))
    os.mkfifo(path)
    commands = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    describe(options)
    log("vm.state", state="starting")
    take_locks(options)
    log("vm.state", state="running")
    if options.window:
        log("window.open", title=options.window)
    print("running", flush=True)
    while True:
        ready, _, _ = select.select([commands, reader], [], [])
        if commands in ready and obey(os.read(commands, 4096).decode().split()):
            break
        if reader in ready and stop(os.read(reader, 1)[0]):
            break
    log("vm.state", state="stopped")
    os.unlink(path)


def obey(words):
    if "close-window" in words:
        log("window.close")
        return stop(signal.SIGTERM)
    return "guest-stop" in words


def stop(number):
    if number == signal.SIGINT:
        log("vm.stop")
        delay("STOP_DELAY", 10)
        return True
    log("vm.request-stop")
    if os.environ.get("VZSIM_REQUEST_STOP") == "ignore":
        return False
    delay("REQUEST_STOP_DELAY", 20)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["install", "run"])
    parser.add_argument("--disk", required=True)
    parser.add_argument("--aux", required=True)
    parser.add_argument("--image")
    parser.add_argument("--mac", default="6e:05:00:a1:b2:c3")
    parser.add_argument("--ecid", default="1")
    parser.add_argument("--share", action="append", default=[])
    parser.add_argument("--window")
    options = parser.parse_args()
    {"install": install, "run": run}[options.verb](options)


if __name__ == "__main__":
    main()
