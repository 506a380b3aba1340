"""What runs inside a guest as process 1, in namespaces of its own.

It builds the guest's root directory from the tree of its disk and this machine's /usr, listens on port 22 as launchd
does, makes host keys at a connection as sshd-keygen-wrapper does, and starts a real sshd for each. Everybody inside is
one user (identity.py); only this process keeps the rights of the daemon that forked it.
"""

import json
import os
import shutil
import signal
import socket
import sys
import traceback

from . import image, kernel, network
from .identity import start_program
from .loop import Loop

PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
KEYS = {"rsa": ["-b", "1024"], "ecdsa": [], "ed25519": []}  # a real RSA key takes a third of a second


def start(mac, guest, control):
    """Starts it as a child of the daemon; its pid. CONTROL: its end of a socket pair."""
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC |
                           kernel.CLONE_NEWPID)
            second = os.fork()
            if second == 0:
                _run(mac, guest, control)
            os.write(writer, str(second).encode())
        finally:
            os._exit(0)
    os.close(writer)
    mac.loop.wait_now(first)  # now the second is the daemon's, which is process 1 where both are
    with open(reader, "rb") as pipe:
        return int(pipe.read())


def _run(mac, guest, control):
    try:
        log = os.open(os.path.join(mac.directory, "guests.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(log, 2)
        kernel.close_all_but([control.fileno()])
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        _Init(mac, guest, control).live()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


class _Init:
    def __init__(self, mac, guest, control):
        signal.set_wakeup_fd(-1)
        self._identity, self._control = mac.identity.again(), control
        self._loop = Loop()
        self._uid = 501
        self._mode = "refuse"
        self._listener = None
        self._held = []
        self._build_root(mac, guest)
        self._sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin:/bin")
        self._keygen = shutil.which("ssh-keygen", path="/usr/bin:/bin")
        self._power = os.open("/run/simulated/power", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def live(self):
        self._loop.watch(self._control, self._heard)
        self._loop.watch(self._power, self._power_off)
        while True:
            self._loop.turn()

    def _say(self, message, fds=()):
        socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))

    # The root directory.

    def _build_root(self, mac, guest):
        root = os.path.join(guest.directory, "root")
        tree = os.path.join(guest.directory, "tree")
        socket.sethostname(guest.host_name() + ".local")
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("guest", root, "tmpfs", 0, "mode=755")
        self._show_system(mac, root)
        for name in os.listdir(tree):
            if os.path.isdir(os.path.join(tree, name)):
                _bind(os.path.join(tree, name), f"{root}/{name}")
        for name in ("etc", "tmp", "var"):
            os.symlink("private/" + name, f"{root}/{name}")
        _bind("/etc/alternatives", root + "/private/etc/alternatives", read_only=True)
        for path in (mac.cache, *mac.compiler_folders()):
            _bind(path, root + path, read_only=True)
        _bind(os.path.join(guest.directory, "run"), root + "/run/simulated")
        _bind("/usr/bin", root + "/run/simulated/real", read_only=True)
        _show_volumes(guest, root)
        self._make_devices(root + "/dev")
        os.mkdir(root + "/proc")
        kernel.mount("proc", root + "/proc", "proc")
        _bind(root + "/proc/sys", root + "/proc/sys", read_only=True)
        kernel.enter_root(root)
        kernel.mount(None, "/", None, kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY)
        os.umask(0o022)

    @staticmethod
    def _show_system(mac, root):
        """This machine's programs, with the guest's own in front of those of /usr/bin."""
        _bind("/usr", root + "/usr", read_only=True)
        _bind(mac.guest_programs, root + "/usr/bin", read_only=True)
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            if os.path.islink("/" + name):
                os.symlink(os.readlink("/" + name), f"{root}/{name}")
            elif os.path.isdir("/" + name):
                _bind("/" + name, f"{root}/{name}", read_only=True)

    def _make_devices(self, dev):
        os.mkdir(dev)
        kernel.mount("dev", dev, "tmpfs", kernel.MS_NOSUID, "mode=755")
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            with open(f"{dev}/{name}", "wb"):
                pass
            kernel.bind("/dev/" + name, f"{dev}/{name}")
        os.mkdir(dev + "/pts")
        kernel.mount("pts", dev + "/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC,
                     "newinstance,ptmxmode=0666,mode=0620")
        links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
                 "stderr": "/proc/self/fd/2"}
        for name, target in links.items():
            os.symlink(target, f"{dev}/{name}")
        with open(dev + "/console", "wb"):
            pass
        if self._identity.owner:
            os.chown(dev + "/console", *self._identity.owner)

    # What the daemon asks for.

    def _heard(self):
        data, fds, _, _ = socket.recv_fds(self._control, 1 << 20, 8)
        if not data:
            os._exit(0)
        message = json.loads(data)
        getattr(self, "_do_" + message["do"])(message, fds)
        for fd in fds:
            os.close(fd)

    def _do_boot(self, message, _fds):
        network.ip("link set lo up", f"addr add {message['address']}/24 dev en0", "link set en0 up",
                   f"route add default via {network.HOST}")
        try:  # host and bridge shall know us, as after a DHCP exchange
            socket.create_connection((network.HOST, 67), 2).close()
        except OSError:
            pass  # refused: that is an exchange too
        self._say({"event": "booted"})

    def _do_listen(self, message, _fds):
        self._uid, self._mode = message["uid"], message["mode"]
        if self._mode in ("refuse", "mute"):
            self._stop_listening()
        elif self._listener is None:  # else who waits in its queue stays there
            self._listener = socket.create_server(("", 22), backlog=64)
            self._listener.setblocking(False)
            self._loop.watch(self._listener, self._accept)
        if self._mode != "hang":
            for held in self._held:
                held.close()
            self._held = []
        self._say({"event": "listens"})

    def _stop_listening(self):
        if self._listener:
            self._loop.unwatch(self._listener)
            self._listener.close()
            self._listener = None

    def _do_shutdown(self, _message, _fds):
        self._stop_listening()
        try:
            os.kill(-1, signal.SIGTERM)
        except ProcessLookupError:
            pass  # nobody is there

    def _do_run(self, message, fds):
        account = message["account"]
        environment = {
            "HOME": account["home"], "USER": account["name"], "LOGNAME": account["name"], "SHELL": account["shell"],
            "PATH": PATH, "TMPDIR": "/tmp/", "LANG": "en_US.UTF-8", "TERM": "xterm-256color",
            "TERM_PROGRAM": "Apple_Terminal", "SIMULATED_SESSION": "gui", **message["env"],
        }
        argv = message["argv"] or [account["shell"], "-l", "-c", message["command"]]
        pid, number = self._start(argv, environment, dict(enumerate(fds)), account["home"], account["uid"])
        if number:
            self._loop.wait_now(pid)
            self._say({"event": "failed", "id": message["id"], "errno": number})
            return
        self._loop.on_exit(pid, lambda status: self._say({"event": "exited", "id": message["id"], "status": status}))
        handle = os.pidfd_open(pid)
        self._say({"event": "started", "id": message["id"], "pid": pid}, [handle])
        os.close(handle)

    def _start(self, argv, environment, descriptors, folder, uid):
        become = self._identity.guest_user(uid, image.STAFF)
        return start_program(argv, environment, descriptors, folder, become, new_session=True)

    def _power_off(self):
        os.read(self._power, 4096)
        self._say({"event": "power-off"})

    # Port 22.

    def _accept(self):
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if self._mode == "hang":
            self._held.append(connection)
        elif self._mode == "drop":
            connection.close()
        else:
            connection.setblocking(True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # 80 ms less for a connection
            self._make_keys()
            self._serve(connection)

    def _make_keys(self):
        """Whichever of the three is missing, and no other."""
        for kind, options in KEYS.items():
            path = f"/private/etc/ssh/ssh_host_{kind}_key"
            if not os.path.exists(path):
                argv = [self._keygen, "-q", "-t", kind, *options, "-N", "", "-C", "", "-f", path]
                pid, _ = self._start(argv, {"PATH": PATH}, {0: 2, 1: 2, 2: 2}, "/", self._uid)
                self._loop.wait_now(pid)

    def _serve(self, connection):
        argv = [self._sshd, "-i", "-f", "/run/simulated/sshd_config", "-E", "/run/simulated/log/sshd"]
        fd = connection.fileno()
        pid, _ = self._start(argv, {"PATH": PATH}, {0: fd, 1: fd, 2: 2}, "/", self._uid)
        self._loop.on_exit(pid, lambda _: self._say({"event": "session-ended"}))
        connection.close()


def _bind(source, target, read_only=False):
    os.makedirs(target, exist_ok=True)
    kernel.bind(source, target, read_only)


def _show_volumes(guest, root):
    os.makedirs(root + "/Volumes")
    os.symlink("/", root + "/Volumes/Macintosh HD")
    shared = root + "/Volumes/My Shared Files"
    if len(guest.shares) == 1:
        _bind(guest.shares[0], shared, read_only=True)
    for path in guest.shares if len(guest.shares) > 1 else []:
        _bind(path, os.path.join(shared, os.path.basename(path)), read_only=True)
