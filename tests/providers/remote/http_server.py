"""An HTTP/1.1 server that misbehaves as told, for test_http.py. It knows nothing of the client under test.

What it does is a list of plays, one for each request in the order in which they arrive; the last one is repeated. A play
is a function of (connection, request) that writes what it likes to the connection. Everything that was asked for is in
`requests`, and `body_bytes` counts what was sent of bodies.
"""

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
import time

REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 301: "Moved Permanently", 302: "Found",
           307: "Temporary Redirect", 404: "Not Found", 412: "Precondition Failed", 413: "Too Large",
           416: "Range Not Satisfiable", 429: "Too Many Requests", 500: "Internal Server Error",
           503: "Service Unavailable"}


class Request:
    def __init__(self, method, target, headers, connection_number):
        self.method, self.target, self.headers, self.body = method, target, headers, b""
        self.connection_number = connection_number

    def __repr__(self):
        return f"<{self.method} {self.target} {self.headers}>"


class Gone(Exception):
    """The peer closed the connection."""


class Connection:
    def __init__(self, server, plain, number):
        self.server, self.socket, self.number = server, plain, number
        self.unread, self.open = bytearray(), True

    # ---- reading ----

    def _more(self):
        piece = self.socket.recv(262144)
        if not piece:
            raise Gone
        self.unread += piece

    def _take_line(self):
        while (end := self.unread.find(b"\r\n")) < 0:
            self._more()
        return self._take(end + 2)[:-2].decode("latin-1")

    def _take(self, size):
        while len(self.unread) < size:
            self._more()
        piece = bytes(self.unread[:size])
        del self.unread[:size]
        return piece

    def read_head(self):
        method, target, _ = self._take_line().split(" ", 2)
        headers = {}
        while True:
            line = self._take_line()
            if not line:
                return Request(method, target, headers, self.number)
            name, value = line.split(":", 1)
            headers[name.strip().lower()] = value.strip()

    def read_body(self, request):
        pieces = []
        if request.headers.get("transfer-encoding") == "chunked":
            while True:
                size = int(self._take_line(), 16)
                pieces.append(self._take(size))
                self._take_line()
                if size == 0:
                    request.body = b"".join(pieces)
                    return
        request.body = self._take(int(request.headers.get("content-length", 0)))

    # ---- writing ----

    def send(self, data):
        self.socket.sendall(data)

    def send_body(self, data):
        with self.server.lock:
            self.server.body_bytes += len(data)
        self.send(data)

    def send_head(self, status, *headers):
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Whatever')}", *headers]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def reply(self, status, body=b"", *headers):
        self.send_head(status, f"Content-Length: {len(body)}", *headers)
        self.send_body(body)

    def close(self):
        """A clean end: what was sent arrives."""
        self.open = False
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(2)
            while self.socket.recv(65536):
                pass

    def reset(self):
        self.open = False
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def hang(self):
        """Says nothing more, until the peer goes or the server ends."""
        self.open = False
        with contextlib.suppress(OSError, Gone):
            while not self.server.ending.is_set():
                self.socket.settimeout(0.1)
                with contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                    self._more()


class Server:
    """Plays to everybody on a port of 127.0.0.1; a context manager. One that is deaf closes each connection at once."""

    def __init__(self, *plays, tls=None, family=socket.AF_INET, port=0, deaf=False):
        self.plays, self.tls, self.deaf = list(plays), tls, deaf
        self.requests, self.connections, self.body_bytes = [], 0, 0
        self.lock, self.asked, self.ending, self.threads = threading.Lock(), threading.Event(), threading.Event(), []
        self.listener = socket.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        self.listener.listen(64)
        self.listener.settimeout(0.05)
        self.port = self.listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{self.port}"

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join(5)
        self.listener.close()

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while not self.ending.is_set():
            try:
                plain, _ = self.listener.accept()
            except TimeoutError:
                continue
            plain.settimeout(20)
            self.connections += 1
            if self.deaf:
                plain.close()
                continue
            self._start(self._serve, plain, self.connections)

    def _serve(self, plain, number):
        wrapped = plain
        with contextlib.suppress(OSError, Gone, ssl.SSLError, ValueError):
            if self.tls:
                wrapped = self.tls.wrap_socket(plain, server_side=True)
            connection = Connection(self, wrapped, number)
            while connection.open and not self.ending.is_set():
                self._answer(connection)
        wrapped.close()
        plain.close()

    def _answer(self, connection):
        request = connection.read_head()
        with self.lock:
            self.requests.append(request)
            play = self.plays[min(len(self.requests), len(self.plays)) - 1]
        if not getattr(play, "early", False):
            connection.read_body(request)
        self.asked.set()
        play(connection, request)


# ---- plays ----


def answer(status, body=b"", *headers):
    return lambda connection, request: connection.reply(status, body, *headers)


def raw(data, end="close"):
    """These bytes, and then the end: "close", "reset", "hang"."""
    def play(connection, request):
        connection.send_body(data)
        getattr(connection, end)()
    return play


def reset(connection, request):
    connection.reset()


def hang(connection, request):
    connection.hang()


def drip(data, pause, at_once=0):
    """A byte at a time, behind the first ones."""
    def play(connection, request):
        connection.send_body(data[:at_once])
        for i in range(at_once, len(data)):
            if connection.server.ending.wait(pause):
                return
            connection.send_body(data[i:i + 1])
        connection.close()
    return play


class File:
    """A play: a file with ranges, as a good server has it. What differs is told.

    stop_at: offset in the file at which the connection ends (by `end`), in whatever range was asked for.
    """

    def __init__(self, content, etag='"v1"', modified=None, ranges=True, stop_at=None, end="close", heed_if_range=True,
                 headers=(), chunk=65536, pause=0):
        self.content, self.etag, self.modified, self.ranges = content, etag, modified, ranges
        self.stop_at, self.end, self.heed_if_range, self.headers = stop_at, end, heed_if_range, headers
        self.chunk, self.pause = chunk, pause

    def find_start(self, request):
        wanted = request.headers.get("range")
        condition = request.headers.get("if-range")
        if not wanted or not self.ranges:
            return None
        if self.heed_if_range and condition and condition not in (self.etag, self.modified):
            return None
        return int(wanted.removeprefix("bytes=").removesuffix("-"))

    def describe(self, start):
        lines = [f"ETag: {self.etag}"] if self.etag else []
        lines += [f"Last-Modified: {self.modified}"] if self.modified else []
        lines += [f"Content-Length: {len(self.content) - (start or 0)}", *self.headers]
        if start is not None:
            lines.append(f"Content-Range: bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        return lines

    def __call__(self, connection, request):
        start = self.find_start(request)
        if start is not None and start >= len(self.content):
            connection.reply(416, b"no", f"Content-Range: bytes */{len(self.content)}")
            return
        connection.send_head(200 if start is None else 206, *self.describe(start))
        self.send_from(connection, start or 0)

    def send_from(self, connection, at):
        stop = len(self.content) if self.stop_at is None else max(self.stop_at, at)
        while at < stop:
            connection.send_body(self.content[at:min(at + self.chunk, stop)])
            at += self.chunk
            if self.pause and connection.server.ending.wait(self.pause):
                return
        if self.stop_at is not None:
            getattr(connection, self.end)()


# ---- a proxy ----


class Proxy(Server):
    """Forwards CONNECT to where `routes` sends a "host:port", or answers with `refusal`."""

    def __init__(self, routes, refusal=None):
        super().__init__(self._play)
        self.routes, self.refusal = routes, refusal
        self.url = f"http://127.0.0.1:{self.port}"

    def _play(self, connection, request):
        if self.refusal or request.method != "CONNECT" or request.target not in self.routes:
            connection.reply(self.refusal or 502)
            return
        connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        connection.open = False
        with socket.create_connection(("127.0.0.1", self.routes[request.target])) as there:
            back = threading.Thread(target=self._pump, args=(there, connection.socket), daemon=True)
            back.start()
            there.sendall(connection.unread)
            self._pump(connection.socket, there)
            back.join(5)

    @staticmethod
    def _pump(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


# ---- certificates ----


class Authority:
    """A certification authority of our own in DIRECTORY, and a server's certificate from it."""

    def __init__(self, directory, names=("localhost",)):
        self.directory = directory
        self.file = os.path.join(directory, "ca.pem")
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
                      "-days", "2", "-subj", "/CN=authority of the tests")
        self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr",
                      "-subj", "/CN=server of the tests")
        with open(os.path.join(directory, "names"), "w", encoding="ascii") as f:
            f.write("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + "\n")
        self._openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                      "-out", "server.pem", "-days", "2", "-extfile", "names")
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(os.path.join(directory, "server.pem"), os.path.join(directory, "server.key"))

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def hashed_directory(self):
        """As SSL_CERT_DIR wants it."""
        path = os.path.join(self.directory, "hashed")
        os.mkdir(path)
        done = subprocess.run(["openssl", "x509", "-in", self.file, "-noout", "-hash"], check=True, capture_output=True)
        os.symlink(self.file, os.path.join(path, done.stdout.decode().strip() + ".0"))
        return path


def http_date(seconds):
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds))
