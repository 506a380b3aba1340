"""Commands that really run, and what they have put out."""

import codecs
import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time

from . import guest_init

_HERE = os.path.dirname(os.path.abspath(__file__))
_BLOCK = 64 << 10


def now_ms():
    return time.time_ns() // 1_000_000


class Keeper:
    """The process that all processes of the sandboxes come from; started when the first one is needed."""

    def __init__(self, directory):
        self._directory = directory
        self._lock = threading.Lock()
        ours, its = socket.socketpair()
        self._sock = ours
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.join(_HERE, "guest_init.py"), str(its.fileno()), directory],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[its.fileno()],
                start_new_session=True, cwd="/")

    def make_init(self):
        """The socket to the init of a new session."""
        ours, its = socket.socketpair()
        with its, self._lock:
            guest_init.send(self._sock, {"do": "init"}, [its.fileno()])
        return ours

    def close(self):
        self._sock.close()
        self._process.wait()


class Guest:
    """The processes of one session."""

    def __init__(self, keeper):
        self._sock = keeper.make_init()
        self._lock = threading.Lock()
        self._commands = {}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self):
        while True:
            message, _ = guest_init.receive(self._sock)
            if message is None:
                break
            command = self._commands[message["id"]]
            if "pid" in message:
                command.pid = message["pid"]
            else:
                command.note_exit(message["status"])
        for command in list(self._commands.values()):  # its init is gone, and all it started
            command.note_exit(137)

    def start(self, command, program, env):
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        try:
            with self._lock:
                self._commands[command.id] = command
                guest_init.send(self._sock, {"do": "run", "id": command.id, "program": program, "name": command.name,
                                             "args": command.args, "env": env, "cwd": command.cwd}, [out_end, err_end])
        finally:
            os.close(out_end)
            os.close(err_end)
        command.collect(out, err)

    def kill(self, command, number, group):
        try:
            with self._lock:
                guest_init.send(self._sock, {"do": "kill", "id": command.id, "signal": number, "group": group})
        except OSError:
            pass  # the session has ended meanwhile

    def end(self):
        """Ends all its processes, and returns when none is left."""
        try:
            with self._lock:
                guest_init.send(self._sock, {"do": "end"})
        except OSError:
            pass
        self._thread.join()
        self._sock.close()


class Command:
    """One command. Its output lies in a file, as the lines of the stream that the service sends."""

    def __init__(self, settings, command_id, session_id, name, args, cwd, spool):
        self.id, self.session_id, self.name, self.args, self.cwd = command_id, session_id, name, args, cwd
        self.started_at = now_ms()
        self.exit_code = None
        self.duration = None
        self.pid = None
        self.lost = False  # its session has ended: nothing more is told of it
        self.changed = threading.Condition()
        self._settings = settings
        self._spool = spool
        self._size = 0
        self._readers = {}
        self._status = None
        self._wake = None
        open(spool, "wb").close()

    def show(self):
        shown = {"id": self.id, "name": self.name, "args": self.args, "cwd": self.cwd, "sessionId": self.session_id,
                 "exitCode": self.exit_code, "startedAt": self.started_at}
        if self.duration is not None:
            shown["durationMs"] = self.duration
        return shown

    def line(self, **more):
        line = json.dumps({"command": {**self.show(), **more}}, ensure_ascii=self._settings.ascii_json)
        return line.encode() + b"\n"

    # Its end.

    def note_exit(self, status):
        if self._status is None:
            self._status = status
            os.write(self._wake[1], b"x")

    def lose(self):
        with self.changed:
            self.lost = True
            self.changed.notify_all()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._spool)

    def wait(self, gone):
        """Until it has ended, its session has, or GONE(); whether it has ended."""
        with self.changed:
            while self.exit_code is None and not self.lost and not gone():
                self.changed.wait(0.2)
            return self.exit_code is not None

    # Its output.

    def collect(self, out, err):
        threading.Thread(target=self._collect, args=({out: "stdout", err: "stderr"},), daemon=True).start()

    def prepare(self):
        """Before it starts: how its end is told to the thread that collects."""
        self._wake = os.pipe()

    def _collect(self, streams):
        decoders = {fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in streams}
        exited = False
        with selectors.DefaultSelector() as selector, open(self._spool, "ab", buffering=0) as spool:
            for descriptor in (*streams, self._wake[0]):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            while len(selector.get_map()) > 1 or not exited:
                for key, _ in selector.select():
                    if key.fd == self._wake[0]:
                        os.read(key.fd, 1)
                        exited = True
                    elif not self._take(key.fd, streams[key.fd], decoders[key.fd], spool):
                        selector.unregister(key.fd)
                if exited and self._settings.command_ends_with == "process":
                    for descriptor in list(streams):
                        while descriptor in selector.get_map() and self._take(
                                descriptor, streams[descriptor], decoders[descriptor], spool, only_what_is_there=True):
                            pass
                    break
        for descriptor in (*streams, *self._wake):
            os.close(descriptor)
        with self.changed:
            self.duration = now_ms() - self.started_at
            self.exit_code = self._status
            self.changed.notify_all()

    def _take(self, descriptor, stream, decoder, spool, only_what_is_there=False):
        """Takes what the command has written; False at its end."""
        try:
            data = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            return not only_what_is_there
        text = decoder.decode(data, final=not data)
        if text:
            line = json.dumps({"stream": stream, "data": text}, ensure_ascii=self._settings.ascii_json) + "\n"
            self._write(spool, line.encode())
        return bool(data)

    def _write(self, spool, line):
        with self.changed:
            while not self.lost and (self._size - min(self._readers.values(), default=self._size)
                                     > self._settings.backlog_bytes or self._size > self._settings.output_bytes):
                self.changed.wait()
        if self.lost:
            return
        spool.write(line)
        with self.changed:
            self._size += len(line)
            self.changed.notify_all()

    def output(self, gone):
        """Its output from the beginning, in blocks, until it has ended, its session has, or GONE()."""
        reader, offset = object(), 0
        try:
            file = open(self._spool, "rb")
        except FileNotFoundError:  # lost
            return
        try:
            with file:
                while True:
                    with self.changed:
                        self._readers[reader] = offset
                        self.changed.notify_all()
                        while self._size == offset and self.exit_code is None and not self.lost:
                            if gone():
                                return
                            self.changed.wait(0.2)
                        left = self._size - offset
                    if self.lost or not left:
                        return
                    block = file.read(min(left, 4 * _BLOCK))
                    offset += len(block)
                    yield block
        finally:
            with self.changed:
                self._readers.pop(reader, None)
                self.changed.notify_all()
