"""The processes of all sandboxes, outside of the service's own process: run as a program.

The keeper (one per service) makes a process for each session, the session's init, when its first command runs. An init
starts commands and adopts what they leave behind (PR_SET_CHILD_SUBREAPER), so it can end them all. Each process here
lives as long as the socket to the service: when that closes, however the service ended, nothing of the sandboxes is
left, and the keeper removes their disks.

Messages are JSON behind four bytes of length; descriptors travel with the length.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time

_LENGTH = struct.Struct("!I")
_PR_SET_CHILD_SUBREAPER = 36


def send(sock, message, descriptors=()):
    body = json.dumps(message).encode()
    socket.send_fds(sock, [_LENGTH.pack(len(body))], descriptors)
    sock.sendall(body)


def receive(sock):
    """(message, descriptors); (None, []) when the other side is gone."""
    try:
        head, descriptors, _, _ = socket.recv_fds(sock, _LENGTH.size, 4)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(head) < _LENGTH.size:
            return None, []
        body = bytearray()
        left = _LENGTH.unpack(head)[0]
        while left:
            piece = sock.recv(min(left, 1 << 20))
            if not piece:
                return None, []
            body += piece
            left -= len(piece)
    except OSError:
        return None, []
    return json.loads(body), descriptors


def _adopt_orphans():
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants():
    """Processes below this one, by /proc; zombies are not counted."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state != b"Z":
                parents[int(name)] = int(parent)
    found, last = {os.getpid()}, 0
    while len(found) > last:
        last = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found - {os.getpid()}


def _kill_descendants(on_end=None):
    while True:
        alive = _descendants()
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        _reap(on_end)
        if not alive:
            return
        time.sleep(0.001)


def _reap(on_end=None):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if on_end:
            on_end(pid, status)


class _Init:
    """One session's."""

    def __init__(self, sock):
        self._sock = sock
        self._ids = {}  # pid to command
        self._pids = {}

    def run(self):
        _adopt_orphans()
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(read_end, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if read_end in ready:
                os.read(read_end, 4096)
                _reap(self._tell_end)
            if self._sock.fileno() in ready:
                message, descriptors = receive(self._sock)
                if message is None or message["do"] == "end":
                    break
                getattr(self, "_" + message["do"])(message, descriptors)
        _kill_descendants(self._tell_end)

    def _tell_end(self, pid, status):
        command = self._ids.pop(pid, None)
        if command is not None:
            code = os.waitstatus_to_exitcode(status)
            self._tell({"id": command, "status": code if code >= 0 else 128 - code})

    def _tell(self, message):
        try:
            send(self._sock, message)
        except OSError:
            pass  # the service is gone, and so shall we be

    def _run(self, message, descriptors):
        started, when_started = os.pipe()  # closed by exec: until then the child has no group that could be signalled
        pid = os.fork()
        if pid == 0:
            self._become(message, descriptors)
        for descriptor in (*descriptors, when_started):
            os.close(descriptor)
        os.read(started, 1)
        os.close(started)
        self._ids[pid] = message["id"]
        self._pids[message["id"]] = pid
        self._tell({"id": message["id"], "pid": pid})

    @staticmethod
    def _become(message, descriptors):
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[1], 2)
            os.chdir(message["cwd"])
            words = [word.encode() for word in (message["name"], *message["args"])]
            os.execve(message["program"], words, {k.encode(): v.encode() for k, v in message["env"].items()})
        except BaseException as error:
            os.write(2, f"{message['name']}: {error}\n".encode(errors="replace"))
        os._exit(126)

    def _kill(self, message, _):
        pid = self._pids[message["id"]]
        try:
            if message["group"]:
                os.killpg(pid, message["signal"])
            elif pid in self._ids:
                os.kill(pid, message["signal"])
        except (ProcessLookupError, PermissionError):
            pass


def _keep(sock, directory):
    _adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how an init ended
    while True:
        message, descriptors = receive(sock)
        if message is None:
            break
        if os.fork() == 0:
            sock.close()
            try:
                _Init(socket.socket(fileno=descriptors[0])).run()
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
    try:
        os.wait()  # for all of them, as SIGCHLD is ignored: each ends for itself
    except ChildProcessError:
        pass
    _kill_descendants()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _keep(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
