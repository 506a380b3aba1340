"""Programs that a test starts inside the simulated Mac: the face of subprocess.Popen on another's child."""

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import time

DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
TimeoutExpired, CompletedProcess = subprocess.TimeoutExpired, subprocess.CompletedProcess


def ask(address, request, fds=()):
    """Sends one request; (connection, first answer, descriptors that came with it). Raises what the answer says."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(connection, [data[:1]], list(fds))
        connection.sendall(data[sent:])
        answer, received = read_answer(connection)
    except BaseException:
        connection.close()
        raise
    if "error" in answer:
        connection.close()
        raise OSError(answer.get("errno"), answer["error"]) if answer.get("errno") else LookupError(answer["error"])
    return connection, answer, received


def read_answer(connection):
    data, fds = b"", []
    while not data.endswith(b"\n"):
        more, received, _, _ = socket.recv_fds(connection, 65536, 4)
        if not more:
            raise ConnectionError("the simulated Mac is gone")
        data += more
        fds += received
    return json.loads(data), fds


class Process:
    """As subprocess.Popen: args, pid, returncode, stdin, stdout, stderr, poll(), wait(), communicate(), signals.

    `pid` is the number outside, for os.kill() and /proc of a test; `inner_pid` the one that the program itself sees.
    Streams carry bytes.
    """

    def __init__(self, address, request, args, stdin=None, stdout=None, stderr=None, more_fds=()):
        self.args, self.returncode = args, None
        self.stdin = self.stdout = self.stderr = None
        ours, theirs = [], {}
        try:
            theirs[0] = self._end(stdin, "stdin", "wb", ours)
            theirs[1] = self._end(stdout, "stdout", "rb", ours)
            theirs[2] = theirs[1] if stderr == STDOUT else self._end(stderr, "stderr", "rb", ours)
            theirs.update({fd: fd for fd in more_fds})
            request = {**request, "targets": list(theirs)} if "targets" in request else request
            self._control, answer, handles = ask(address, request, list(theirs.values()))
        except BaseException:
            for stream in (self.stdin, self.stdout, self.stderr):
                if stream:
                    stream.close()
            raise
        finally:
            for fd in ours:
                os.close(fd)
        self.inner_pid = answer["started"]
        self._handle = handles[0]
        self.pid = self._outer_pid()
        self._partial = {}

    def _end(self, wanted, name, mode, ours):
        """The descriptor for the program, whose other end becomes our attribute NAME for a pipe."""
        if wanted is None:
            return ("stdin", "stdout", "stderr").index(name)
        if wanted == DEVNULL:
            fd = os.open(os.devnull, os.O_RDWR)
            ours.append(fd)
            return fd
        if wanted == PIPE:
            reader, writer = os.pipe()
            mine, fd = (writer, reader) if mode == "wb" else (reader, writer)
            setattr(self, name, os.fdopen(mine, mode, buffering=0 if mode == "wb" else -1))
            ours.append(fd)
            return fd
        return wanted if isinstance(wanted, int) else wanted.fileno()

    def _outer_pid(self):
        with open(f"/proc/self/fdinfo/{self._handle}", encoding="ascii") as info:
            return next(int(line.split()[1]) for line in info if line.startswith("Pid:"))

    def _wait(self, timeout):
        """Waits up to TIMEOUT seconds (None: for ever) for the end."""
        if self.returncode is None and select.select([self._control], [], [], timeout)[0]:
            try:
                self.returncode = read_answer(self._control)[0]["exit"]
            except ConnectionError:
                self.returncode = -signal.SIGKILL
            self._control.close()
            os.close(self._handle)
        return self.returncode

    def poll(self):
        return self._wait(0)

    def wait(self, timeout=None):
        if self._wait(timeout) is None:
            raise TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, input=None, timeout=None):
        """(stdout, stderr). After TimeoutExpired it may be called again, and nothing is lost."""
        end = None if timeout is None else time.monotonic() + timeout
        if self.stdin and not self.stdin.closed:
            self._partial.setdefault("stdin", memoryview(input or b""))
        with selectors.DefaultSelector() as selector:
            if self.stdin and not self.stdin.closed:
                os.set_blocking(self.stdin.fileno(), False)
                selector.register(self.stdin, selectors.EVENT_WRITE, "stdin")
            for name in ("stdout", "stderr"):
                stream = getattr(self, name)
                if stream and not stream.closed:
                    self._partial.setdefault(name, bytearray())
                    selector.register(stream, selectors.EVENT_READ, name)
            while selector.get_map():
                left = None if end is None else end - time.monotonic()
                if left is not None and left < 0:
                    raise TimeoutExpired(self.args, timeout, bytes(self._partial.get("stdout", b"")))
                for key, _ in selector.select(left):
                    self._move(key, selector)
        self.wait(None if end is None else max(0, end - time.monotonic()))
        return tuple(bytes(self._partial[name]) if name in self._partial else None for name in ("stdout", "stderr"))

    def _move(self, key, selector):
        if key.data == "stdin":
            left = self._partial["stdin"]
            try:
                left = left[os.write(key.fd, left[:65536]):] if left else left
            except BrokenPipeError:
                left = left[:0]
            self._partial["stdin"] = left
            done = not left
        else:
            data = os.read(key.fd, 65536)
            self._partial[key.data] += data
            done = not data
        if done:
            selector.unregister(key.fileobj)
            key.fileobj.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream and not stream.closed:
                stream.close()
        self.wait()


def finish(process, input=None, timeout=None, check=False):
    """As subprocess.run() after the start."""
    try:
        out, err = process.communicate(input, timeout)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if check and process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, process.args, out, err)
    return CompletedProcess(process.args, process.returncode, out, err)
