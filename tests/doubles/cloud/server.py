"""HTTP/1.1 for the service: connections, who may ask, faults, and the log of all requests."""

import dataclasses
import fcntl
import http.server
import json
import socket
import struct
import sys
import termios
import threading
import time
import urllib.parse

from . import faults
from .calls import Reply, find_op
from .service import Refusal

PREFIX = "/api"
_WEB_PAGE = b"<!doctype html><title>404</title><h1>404: This page could not be found.</h1>"


@dataclasses.dataclass(eq=False)
class Request:
    """One request, and what became of it."""

    number: int
    op: str
    method: str
    path: str  # without the query
    query: dict
    headers: dict  # names in lower case
    at: float  # seconds since the epoch
    connection: int
    words: dict = dataclasses.field(default_factory=dict, repr=False)  # of the path
    body: bytes = b""
    status: int | None = None  # of the reply; None: none was sent
    effect: bool = False  # it was carried out, whatever the client saw
    is_done: bool = False  # nothing more is sent
    client_left: bool = False  # before all was sent
    account: object = dataclasses.field(default=None, repr=False)
    projects: list = dataclasses.field(default_factory=list, repr=False)
    fault: object = dataclasses.field(default=None, repr=False)
    is_gone: object = dataclasses.field(default=None, repr=False)  # has the client left?

    @property
    def type(self):
        return self.headers.get("content-type", "")

    @property
    def json(self):
        return json.loads(self.body or b"null")


class Server:
    def __init__(self, cloud, port=0):
        self.requests = []
        self.closed = threading.Event()
        self.cloud = cloud
        self._lock = threading.Lock()
        self._connections = set()
        server = self

        class Handler(_Handler):
            server_of = server

        self._server = _Listener(("127.0.0.1", port), Handler)
        self.address = "http://127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self):
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def admit(self, connection):
        with self._lock:
            self._connections.add(connection)

    def dismiss(self, connection):
        with self._lock:
            self._connections.discard(connection)

    def note(self, **members):
        with self._lock:
            request = Request(number=len(self.requests), at=time.time(), **members)
            self.requests.append(request)
            return request


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512
    numbers = 0

    def get_request(self):
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):  # clients come and go
            super().handle_error(request, client_address)

    def shutdown_request(self, request):
        if request.fileno() >= 0 and request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)[:4] != b"\1\0\0\0":
            super().shutdown_request(request)
        else:
            request.close()  # without a FIN before it, so that it is a reset


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of = None
    _numbers = iter(range(1 << 62))

    def setup(self):
        super().setup()
        self._number = next(_Handler._numbers)
        self._settings = self.server_of.cloud.settings
        self.server_of.admit(self.connection)

    def finish(self):
        self.server_of.dismiss(self.connection)
        super().finish()

    def log_message(self, *_):
        pass

    def handle_expect_100(self):
        return super().handle_expect_100() if self._settings.answers_expect else True

    def _serve(self):
        request = self._take()
        try:
            if self._settings.latency_ms:
                time.sleep(self._settings.latency_ms / 1000)
            self._answer(request)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            request.client_left = True
            self.close_connection = True
        finally:
            request.is_done = True

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do_HEAD = _serve

    # The request.

    def _take(self):
        target = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
        path = target.path
        op, words = "unknown", {}
        if path.startswith(PREFIX + "/"):
            op, words = find_op(self.command, path[len(PREFIX):], query)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._take_body()
        return self.server_of.note(op=op, method=self.command, path=path, query=query, headers=headers, words=words,
                                   body=body, connection=self._number, is_gone=self._is_gone)

    def _take_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return body
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if len(body) < size:  # the client has died over it: there was no request
            raise ConnectionResetError
        return body

    def _is_gone(self):
        """Has the client closed the connection, or does the service end?"""
        if self.server_of.closed.is_set():
            return True
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _authorize(self, request):
        cloud = self.server_of.cloud
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        account = cloud.find_account(token) if scheme == "Bearer" else None
        if account is None or request.query.get("teamId") != account.team:
            status = self._settings.bad_token_status
            raise Refusal(status, faults.default_code(status), "not authorized")
        request.account, request.projects = account, cloud.projects_of(account)

    # The reply.

    def _answer(self, request):
        fault = request.fault = self.server_of.cloud.faults.take(request.op)
        if fault is None:
            self._send(request, self._carry_out(request))
            return
        if fault.delay_ms:
            time.sleep(fault.delay_ms / 1000)
        if self._misbehave(fault, "before"):
            return
        error = fault.error()
        if error is None or fault.effect:
            reply = self._carry_out(request)
        if self._misbehave(fault, "after"):
            return
        if error is not None:
            reply = Reply(error[1], error[0], "application/json; charset=utf-8", error[2])
        if fault.type is not None:
            reply.type = fault.type
        if fault.cut is not None and fault.cut_by == "end" and isinstance(reply.body, bytes):
            fault.did_bite = fault.did_bite or len(reply.body) > fault.cut
            reply.body = reply.body[:fault.cut]
        self._send(request, reply, fault)

    def _carry_out(self, request):
        try:
            if request.op == "unknown" and not request.path.startswith(PREFIX + "/v"):
                return Reply(_WEB_PAGE, 404, "text/html; charset=utf-8")
            self._authorize(request)
            reply = self.server_of.cloud.calls.answer(request)
            request.effect = True
            return reply
        except Refusal as refusal:
            body = faults.Fault("*", status=refusal.status, code=refusal.code, message=refusal.message).error()[1]
            return Reply(body, refusal.status)

    def _misbehave(self, fault, when):
        """Whether the connection is done with."""
        if fault.hold == when:
            fault.hold_here(self.server_of.closed.is_set)
        if fault.stuck == when:
            self._hang()
        elif fault.reset == when:
            self._reset()
        elif fault.close != when:
            return False
        self.close_connection = True
        return True

    def _hang(self):
        while not self._is_gone():
            time.sleep(0.02)

    def _reset(self):
        """Ends the connection with a reset, once all that was sent has arrived."""
        end = time.monotonic() + 1
        while time.monotonic() < end and any(fcntl.ioctl(self.connection, termios.TIOCOUTQ, b"\0" * 4)):
            time.sleep(0.001)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def _send(self, request, reply, fault=None):
        is_stream = not isinstance(reply.body, bytes)
        head = [f"HTTP/1.1 {reply.status} {self.responses.get(reply.status, ('',))[0]}", f"Content-Type: {reply.type}",
                f"Date: {self.date_time_string()}", *(f"{name}: {value}" for name, value in reply.headers.items()),
                "Transfer-Encoding: chunked" if is_stream else f"Content-Length: {len(reply.body)}"]
        head = "\r\n".join([*head, "", ""]).encode("latin-1", "replace")
        if fault is None and not is_stream:
            request.status = reply.status  # first: who has read the reply must find it noted
            self.connection.sendall(head + reply.body)
            return
        request.status = reply.status
        self.connection.sendall(head)
        blocks = reply.body if is_stream else [reply.body]
        if fault is None:
            ended = self._send_stream(blocks, reply)
        else:
            ended = self._send_badly(blocks, fault, is_stream, reply)
        if ended and is_stream and not reply.ends_with_reset:
            self.connection.sendall(b"0\r\n\r\n")
        elif reply.ends_with_reset:
            self._reset()

    def _send_stream(self, blocks, reply):
        try:
            for block in blocks:
                self.connection.sendall(b"%x\r\n%b\r\n" % (len(block), block))
        except OSError:
            self._leave(reply)
            raise
        if self._is_gone():
            self._leave(reply)
        return True

    @staticmethod
    def _leave(reply):
        if reply.on_leave:
            reply.on_leave()

    def _send_badly(self, blocks, fault, is_stream, reply):
        """Whether the body ends as it should."""
        if is_stream:
            blocks = fault.change_lines(blocks)
        left = fault.cut
        try:
            for block in blocks:
                if left is not None and len(block) > left:
                    fault.did_bite = True
                    self._send_pieces(block[:left], fault, is_stream)
                    return self._cut(fault)
                left = left if left is None else left - len(block)
                self._send_pieces(block, fault, is_stream)
        except OSError:
            self._leave(reply)
            raise
        if is_stream and self._is_gone():
            self._leave(reply)
        return True

    def _cut(self, fault):
        if fault.stuck == "body":
            self._hang()
        elif fault.cut_by == "reset":
            self._reset()
        elif fault.cut_by == "end":
            return True
        self.close_connection = True
        return False

    def _send_pieces(self, block, fault, is_stream):
        size = fault.pieces or len(block)
        if fault.bytes_per_second:
            size = min(size, max(1, int(fault.bytes_per_second / 20)))
        for start in range(0, len(block), size or 1):
            piece = block[start:start + size]
            if fault.bytes_per_second:
                time.sleep(len(piece) / fault.bytes_per_second)
            self.connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if is_stream else piece)
