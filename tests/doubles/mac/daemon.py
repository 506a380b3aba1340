"""What keeps the simulated Mac alive: process 1 of its namespaces, and outside of them the compiler's server.

Outside: answers the compiler's socket and waits. When whoever started it is gone (the lifeline breaks), everything
inside ends and the directory goes. Inside: the tools' answers, the machines' guests, and programs that tests start.
The death of process 1 ends every process inside, whatever it is doing; mounts and network go with the last.
"""

import dataclasses
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import time
import traceback

from . import guest, image, kernel, network, tools
from .compiler import Compiler
from .disks import Disks
from .identity import Identity, start_job, start_program
from .loop import Loop
from .settings import OF_A_GUEST, Settings


def main(options):
    """OPTIONS: directory, cache, uid, gid, lifeline, toolchain, stubs, leases."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    server = _CompilerServer(options)
    keeper, inner = _start_inside(options)
    handle = os.pidfd_open(keeper)
    lifeline = options["lifeline"]
    while True:
        ready, _, _ = select.select([lifeline, server.socket, handle], [], [])
        if server.socket in ready:
            server.serve()
        if lifeline in ready or handle in ready:
            break
    server.end()
    if handle not in ready:
        os.kill(inner, signal.SIGKILL)
    os.waitpid(keeper, 0)  # which waits for process 1, and that is gone only when everything inside is
    if lifeline in ready:
        shutil.rmtree(options["directory"], ignore_errors=True)


class _CompilerServer:
    """Each compilation is a process of its own, so that none waits for another."""

    def __init__(self, options):
        self.socket = _listen(os.path.join(options["directory"], "run", "compiler.sock"))
        self._compiler = Compiler(options["cache"], options["toolchain"], options["stubs"])
        self._children = set()

    def serve(self):
        connection, _ = self.socket.accept()
        self._children = {pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] == 0}
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                self._compiler.serve(connection)
            finally:
                os._exit(0)
        self._children.add(pid)
        connection.close()

    def end(self):
        for pid in self._children:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _start_inside(options):
    """(pid of a process that lives exactly as long as everything inside, pid of process 1 inside as seen here)."""
    reader, writer = os.pipe()
    keeper = os.fork()
    if keeper:
        os.close(writer)
        with open(reader, "rb") as pipe:
            return keeper, int(pipe.read() or 0)
    status = 1
    try:
        nested = os.getuid() != 0
        if nested:
            owner = (os.getuid(), os.getgid())
            kernel.unshare(kernel.CLONE_NEWUSER)
            kernel.map_one_user((0, 0), owner)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC |
                       kernel.CLONE_NEWPID)
        kernel.die_with_parent(signal.SIGKILL)
        first = os.fork()
        if first == 0:
            os.close(writer)
            _live_inside(options, nested)
        os.write(writer, str(first).encode())
        kernel.close_all_but([])
        status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    except OSError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    finally:
        os._exit(status & 0xff)


def _live_inside(options, nested):
    try:
        kernel.die_with_parent(signal.SIGKILL)
        Daemon(options, nested).live()
    except OSError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        traceback.print_exc()
    finally:
        os._exit(1)


def _listen(path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(64)
    return listener


_CLOCK_TICK_NS = 10**7  # what file systems' times may be behind


@dataclasses.dataclass
class Machine:
    """A process in which the simulator runs a virtual machine."""

    pid: int
    config: dict
    handle: int = -1
    disk: object = None
    guest: object = None
    installing: bool = False
    window: bool = False
    environment: dict = dataclasses.field(default_factory=dict)


class Daemon:
    def __init__(self, options, nested):
        self.directory, self.cache = options["directory"], options["cache"]
        self.private = os.path.join(self.directory, "private")
        self.settings = Settings(os.path.join(self.directory, "settings.json"))
        self.identity = Identity(options["uid"], options["gid"], nested)
        self.leases = network.Leases(options["leases"], self.settings)
        self.loop = Loop()
        self.disks = Disks(self)
        self._machines = {}
        self._runs = {}  # number of a guest's run → when it ended, None while it goes on
        self._configs = {}
        self._lingering = {}
        self._event_rest = b""
        self._events = None
        self._guests = 0
        self._boot = os.urandom(4).hex()  # tells our runs from those before a reboot
        self._watched = None

    def live(self):
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc")
        socket.sethostname("Simulated-Mac.local")
        network.make_bridge()
        self._make_guest_programs()
        log = os.path.join(self.directory, "events.jsonl")
        self._events = open(log, "rb")
        self._events.seek(0, os.SEEK_END)  # after a reboot the processes that it tells of are gone, their numbers free
        self._watched = kernel.inotify(log, kernel.IN_MODIFY)
        self.loop.watch(self._watched, self._logged)
        folder = kernel.inotify(self.directory, kernel.IN_CLOSE_WRITE | kernel.IN_MOVED_TO)
        self.loop.watch(folder, lambda: (os.read(folder, 65536), self.apply_settings()))
        for name, callback in (("tools", _ToolRun), ("control", _Request)):
            listener = _listen(os.path.join(self.directory, "run", name + ".sock"))
            self.loop.watch(listener, lambda listener=listener, callback=callback: callback(self, listener.accept()[0]))
        print(json.dumps({"ready": True}), flush=True)
        os.dup2(os.open(os.path.join(self.directory, "daemon.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        os.dup2(2, 1)
        while True:
            try:
                self.loop.turn()
            except Exception:
                traceback.print_exc()
                self.warn("the double itself failed: see daemon.log")

    @property
    def guest_programs(self):
        """What a guest shows as /usr/bin: its own tools in front of this machine's programs."""
        return os.path.join(self.private, "guest-bin")

    def _make_guest_programs(self):
        own = os.path.join(self.private, "guest-tools")
        os.mkdir(own)
        tools.write_guest_tools(own)
        os.mkdir(self.guest_programs)
        kernel.mount("tools", self.guest_programs, "overlay", kernel.MS_RDONLY, f"lowerdir={own}:/usr/bin")

    def apply_settings(self, then=lambda: None):
        """Lets running guests have what changed; THEN() is called when they do."""
        guests = [machine.guest for machine in self.running()] if self.settings.take_change() else []
        left = len(guests)

        def done():
            nonlocal left
            left -= 1
            if left == 0:
                then()

        for one in guests:
            one.refresh()
            one.listen(done)
        if not guests:
            then()

    def warn(self, text):
        self._append("warnings", {"warning": text})

    def note_call(self, record):
        self._append("calls", record)

    def _append(self, name, record):
        with open(os.path.join(self.directory, name + ".jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def compiler_folders(self):
        """What programs of the compiler need to run: a guest must have it too."""
        try:
            with open(os.path.join(self.cache, "swift-folder"), encoding="utf-8") as file:
                return [file.read()]
        except OSError:
            return []

    # Machines, as the simulator's log tells of them.

    def _logged(self):
        os.read(self._watched, 65536)
        self.read_events()

    def read_events(self):
        data = self._event_rest + self._events.read()
        *lines, self._event_rest = data.split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            handler = getattr(self, "_on_" + event.get("event", "").replace(".", "_").replace("-", "_"), None)
            if handler:
                handler(event)

    def _machine(self, pid):
        machine = self._machines.get(pid)
        if machine is None and pid in self._configs:
            machine = Machine(pid, self._configs[pid])
            try:
                machine.handle = os.pidfd_open(pid)
                with open(f"/proc/{pid}/environ", "rb") as file:
                    pairs = [part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part]
                    machine.environment = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
            except OSError:
                return None  # gone already
            self._machines[pid] = machine
            self.loop.watch(machine.handle, lambda: self._machine_gone(machine))
        return machine

    def _on_vm_init(self, event):
        self._configs[event["pid"]] = event

    def _on_install_start(self, event):
        self._configs[event["pid"]]["image"] = event["image"]
        machine = self._machine(event["pid"])
        if machine:
            machine.installing = True

    def _on_install_end(self, event):
        if "code" not in event:
            config = self._configs[event["pid"]]
            image.format_disk(config["disks"][0]["path"], *_read_ipsw(config["image"]))

    def _on_vm_state(self, event):
        machine = self._machine(event["pid"])
        if machine is None:
            return
        if event["state"] == "running" and not machine.installing and machine.guest is None:
            self._start_guest(machine)
        elif event["state"] in ("stopped", "error"):
            self._end_guest(machine)
            machine.installing = False

    def _on_vm_request_stop(self, event):
        machine = self._machines.get(event["pid"])
        if machine and machine.guest and machine.environment.get("VZSIM_REQUEST_STOP", "ok") in ("", "ok"):
            machine.guest.shut_down()

    def _on_vm_stop(self, event):
        machine = self._machines.get(event["pid"])
        if machine and not machine.environment.get("VZSIM_STOP_ERROR"):
            self._end_guest(machine)

    def _on_window_open(self, event):
        self._show(event["pid"], True)

    def _on_window_close(self, event):
        self._show(event["pid"], False)

    _on_window_hidden = _on_window_close

    def _show(self, pid, window):
        machine = self._machine(pid)
        if machine:
            machine.window = window

    def _start_guest(self, machine):
        try:
            disk = image.Disk(machine.config["disks"][0]["path"])
        except (OSError, LookupError):
            return
        if not disk.installed:
            disk.close()
            return
        self._check_twins(machine)
        self._guests += 1
        run = f"{self._boot}/{self._guests}"
        self._runs[run] = None
        machine.disk = disk
        machine.guest = guest.Guest(self, self._guests, disk, machine.config, run)
        machine.guest.boot()

    def _check_twins(self, machine):
        """Two machines that run with one address or identifier: undefined on a Mac, and nobody would notice."""
        for other in self._machines.values():
            if other is not machine and other.guest:
                if set(other.config["macs"]) & set(machine.config["macs"]):
                    self.warn(f"two running machines have the MAC address {machine.config['macs']}")
                if other.config.get("ecid") == machine.config.get("ecid"):
                    self.warn(f"two running machines have the identifier {machine.config.get('ecid')}")

    def _end_guest(self, machine):
        if machine.guest:
            self._runs[machine.guest.run] = time.time_ns()
            machine.guest.end()
            self._lingering[machine.disk.key] = time.monotonic() + self.settings["linger_ms"] / 1000
            machine.disk.close()
            machine.guest = machine.disk = None

    def settle(self):
        """Takes notice of all that has happened up to now."""
        self.read_events()
        for machine in list(self._machines.values()):
            if select.select([machine.handle], [], [], 0)[0]:
                self._machine_gone(machine)

    def _machine_gone(self, machine):
        if machine.pid not in self._machines:
            return
        self.read_events()  # those of the process's last moments first
        self.loop.unwatch(machine.handle)
        os.close(machine.handle)
        self._end_guest(machine)
        self._machines.pop(machine.pid, None)
        self._configs.pop(machine.pid, None)

    def guest_powers_off(self, which):
        for machine in self._machines.values():
            if machine.guest is which:
                self._end_guest(machine)
                self.command_simulator(machine, "guest-stop")

    def command_simulator(self, machine, command):
        """Tells the simulator of what happened inside its machine, or what the person did to its window."""
        path = os.path.join(self.directory, "run", "machines", str(machine.pid))
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(error.errno, f"the simulator of process {machine.pid} takes no commands") from error
        with open(fd, "wb") as fifo:
            fifo.write(command.encode() + b"\n")

    def is_busy(self, key):
        """Does a machine use the image with this key, or did one a moment ago?"""
        self.settle()
        for machine in self._machines.values():
            if machine.disk and machine.disk.key == key:
                return True
        return self._lingering.get(key, 0) > time.monotonic()

    def is_torn(self, disk):
        """Was the image copied while a machine used the original?"""
        run = disk.in_use()
        if run is None or run not in self._runs:
            return False
        ended, born = self._runs[run], kernel.birth_ns(disk.path)
        return ended is None or 0 < born < ended - _CLOCK_TICK_NS

    def running(self):
        """The machines whose guests have not ended."""
        self.settle()
        return [one for one in self._machines.values() if one.guest and one.guest.state != "ended"]

    def find_machine(self, path):
        """The one whose disk is PATH; the only one when PATH is None."""
        running = self.running()
        if path is None:
            return running[0] if len(running) == 1 else None
        key = _key_of(path)
        return next((machine for machine in running if machine.disk.key == key), None)


def _key_of(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _read_ipsw(path):
    """(version, build) that the first line of a simulated restore image names."""
    try:
        with open(path, "rb") as file:
            words = file.readline(512).decode(errors="replace").split()
    except OSError:
        words = []
    facts = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    return facts.get("version", "15.6.1"), facts.get("build", "24G90")


class _ToolRun:
    """One run of one of the tools: from its words to its exit status."""

    def __init__(self, mac, connection):
        self._mac, self._connection = mac, connection
        self._data, self._fds, self._pid, self._call, self._poll = b"", [], None, None, None
        self._began = time.time()
        mac.loop.watch(connection, self._read)

    def _read(self):
        try:
            data, fds, _, _ = socket.recv_fds(self._connection, 65536, 3)
        except OSError:
            data, fds = b"", []
        self._fds += fds
        self._data += data
        if not data:
            self._mac.loop.unwatch(self._connection)
            self._run()

    def _run(self):
        fields = [os.fsdecode(field) for field in self._data.removeprefix(b"+").split(b"\0")[:-1]]
        if len(fields) < 3 or len(self._fds) != 3:
            self._close()
            return
        call = self._call = tools.Call(fields[0], fields[3:], fields[1], fields[2], self._fds)
        refusal = tools.shim_refusal(self._mac, call) if call.tool in tools.SHIMS else None
        if refusal:
            self._answer(refusal)
        elif call.tool in tools.JOBS:
            job = tools.JOBS[call.tool]
            self._pid = start_job(lambda: job(self._mac, call), dict(enumerate(self._fds)), call.cwd,
                                  self._mac.identity.host_user())
            self._mac.loop.on_exit(self._pid, self._ended)
            self._watch_caller()
        else:
            answer = self._handler(call.tool)(call)
            if answer is None:
                self._watch_caller()
            else:
                self._answer(answer)

    def _handler(self, tool):
        disks = self._mac.disks
        of_disks = {"hdiutil": disks.hdiutil, "diskutil": disks.diskutil, "mount": disks.mount_tool,
                    "umount": disks.umount_tool}
        return of_disks.get(tool) or (lambda call: tools.HANDLERS[tool](self._mac, call))

    def _watch_caller(self):
        """The tool dies with the process that stands for it. Its sending half is closed: that is no sign of death."""
        poll = select.epoll()
        poll.register(self._connection, select.EPOLLHUP)
        self._poll = poll
        self._mac.loop.watch(poll, self._abandoned)

    def _abandoned(self):
        self._mac.loop.unwatch(self._poll)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # _ended() comes
        else:
            self._finish(None)

    def _answer(self, answer):
        for fd, text in ((1, answer.out), (2, answer.err)):
            try:
                os.write(self._fds[fd], os.fsencode(text))
            except OSError:
                pass  # as a tool whose reader is gone
        self._finish(answer.status)

    def _ended(self, status):
        self._mac.loop.unwatch(self._poll)
        self._poll.close()
        self._finish(status if status >= 0 else None)

    def _finish(self, status):
        call = self._call
        self._mac.note_call({"tool": call.tool, "argv": call.argv, "status": status, "cwd": call.cwd,
                             "dialog": call.opened_dialog, "began": self._began, "ended": time.time()})
        if status is not None:
            try:
                self._connection.send(f"{status}\n".encode())
            except OSError:
                pass
        self._close()

    def _close(self):
        for fd in self._fds:
            os.close(fd)
        self._connection.close()


class _Request:
    """One request of a test: a line of JSON, perhaps with descriptors; one answer, or several for a program."""

    def __init__(self, mac, connection):
        self._mac, self._connection = mac, connection
        self._data, self._fds = b"", []
        mac.loop.watch(connection, self._read)

    def _read(self):
        try:
            data, fds, _, _ = socket.recv_fds(self._connection, 1 << 20, 64)
        except OSError:
            data, fds = b"", []
        self._data += data
        self._fds += fds
        if data and not self._data.endswith(b"\n"):
            return
        self._mac.loop.unwatch(self._connection)
        if not data:
            self._done()
            return
        request = json.loads(self._data)
        try:
            getattr(self, "_do_" + request.pop("do"))(**request)
        except (OSError, LookupError, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._reply({"error": text, "errno": getattr(error, "errno", None)}, last=True)

    def _reply(self, message, fds=(), last=False):
        try:
            socket.send_fds(self._connection, [json.dumps(message).encode() + b"\n"], list(fds))
        except OSError:
            pass  # the test does not want to know any more
        if last:
            self._done()

    def _close_descriptors(self):
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _done(self):
        self._close_descriptors()
        self._connection.close()

    # Programs.

    def _own_pipes(self):
        """A program may open /dev/stderr again: its pipes belong to who it runs as."""
        owner = self._mac.identity.owner
        for fd in self._fds if owner else []:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.fchown(fd, *owner)

    def _do_spawn(self, argv, env, cwd, targets, new_session, umask):
        descriptors = dict(zip(targets, self._fds))
        self._own_pipes()
        pid, number = start_program(argv, env, descriptors, cwd, self._mac.identity.host_user(), new_session, umask)
        if number:
            self._mac.loop.wait_now(pid)
            raise OSError(number, os.strerror(number))
        self._close_descriptors()
        self._mac.loop.on_exit(pid, self._ended)
        handle = os.pidfd_open(pid)
        self._reply({"started": pid}, [handle])
        os.close(handle)

    def _ended(self, status):
        self._mac.settle()  # so that whoever waits for a machine's process finds its guest ended
        self._reply({"exit": status}, last=True)

    def _do_settings(self):
        self._mac.apply_settings(lambda: self._reply({}, last=True))

    def _do_kill(self, pid, number):
        os.kill(pid, number)
        self._reply({}, last=True)

    def _do_die(self):
        os._exit(0)

    def _do_processes(self):
        self._reply({"processes": list(_processes())}, last=True)

    def _do_listen(self, port):
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._reply({"port": listener.getsockname()[1]}, [listener.fileno()], last=True)
        listener.close()

    def _do_socket(self):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as new:
            self._reply({}, [new.fileno()], last=True)

    # Guests.

    def _do_guests(self):
        self._reply({"guests": [self._facts(machine) for machine in self._mac.running()]}, last=True)

    def _do_guest(self, disk):
        machine = self._mac.find_machine(disk)
        self._reply({"guest": self._facts(machine) if machine else None}, last=True)

    @staticmethod
    def _facts(machine):
        one = machine.guest
        facts = {"disk": machine.config["disks"][0]["path"], "pid": machine.pid, "state": one.state,
                 "address": one.address, "mac": one.mac_address, "window": machine.window,
                 "directory": one.directory, "ecid": machine.config.get("ecid"), "shares": machine.config["shares"]}
        if one.folder:
            facts.update(accounts=image.accounts(one.folder), remote_login=image.remote_login(one.folder),
                         grants=image.read_record(one.folder)["grants"])
        return facts

    def _find(self, disk):
        machine = self._mac.find_machine(disk)
        if machine is None:
            raise LookupError(f"no guest runs on {disk}")
        return machine

    def _do_change(self, disk, **changes):
        """Changes a running guest, as a person or a fault does."""
        one = self._find(disk).guest
        folder = one.folder
        for name, value in changes.items():
            if name == "account":
                image.add_account(folder, **value)
            elif name == "remote_login":
                image.set_remote_login(folder, value)
            elif name == "grant":
                image.change_record(folder, grants=sorted({*image.read_record(folder)["grants"], value}))
            elif name == "withdraw":
                image.change_record(folder, grants=sorted({*image.read_record(folder)["grants"]} - {value}))
            elif name == "filevault":
                image.change_record(folder, filevault=value)
            elif name in OF_A_GUEST:
                one.overrides[name] = value
            else:
                raise LookupError(f"a guest has no '{name}'")
        one.refresh()
        one.save()
        one.listen(lambda: self._reply({}, last=True))

    def _do_guest_run(self, disk, **request):
        one = self._find(disk).guest

        def report(message, fds):
            self._reply(message, fds, last="started" not in message)

        self._own_pipes()
        one.start_program(request, self._fds, report)
        self._close_descriptors()

    def _do_power_off(self, disk):
        self._mac.guest_powers_off(self._find(disk).guest)
        self._reply({}, last=True)

    def _do_simulator(self, disk, command):
        self._mac.command_simulator(self._find(disk), command)
        self._reply({}, last=True)


def _processes():
    """Every process inside but this one, guests' ones too."""
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    argv = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
                with open(f"/proc/{name}/stat", "rb") as file:
                    state = file.read().rsplit(b")", 1)[1].split()[0].decode()
            except OSError:
                continue
            yield {"pid": int(name), "argv": argv, "state": state}


if __name__ == "__main__":
    sys.exit("started by mac.Mac")
