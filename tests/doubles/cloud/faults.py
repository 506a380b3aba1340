"""How the service misbehaves, call by call."""

import dataclasses
import itertools
import json
import threading

from .calls import OPS


@dataclasses.dataclass(eq=False)
class Fault:
    """What is wrong with some calls of one op (`*`: of any). Members may be combined as far as that makes sense."""

    op: str
    skip: int = 0  # so many calls are as always before the first bad one
    times: int | None = 1  # so many are bad; None: all from then on

    # Instead of carrying the call out; with effect=True it is carried out, and its reply is lost.
    status: int | None = None
    code: str | None = None
    message: str = "as the test wants it"
    body: object = None  # instead of the error: bytes or text as they are, else JSON
    headers: dict = dataclasses.field(default_factory=dict)
    retry_after: object = None  # seconds, or a date as text
    redirect: str | None = None  # to this address, with 307 unless there is a status
    effect: bool = False

    # The connection. `before` the effect or `after` it, in place of a reply.
    reset: str | None = None
    close: str | None = None  # without a word, and cleanly
    stuck: str | None = None  # no answer, ever; also `body`: behind the head and CUT bytes of it
    hold: str | None = None  # until release()
    delay_ms: float = 0

    # The reply's body; for a stream, without its chunks' framing.
    cut: int | None = None  # it ends behind so many bytes, cleanly where nobody said how long it would be
    cut_by: str = "close"  # of the connection; `reset`; `end`: a stream that ends as if all were well
    type: str | None = None  # content type
    pieces: int | None = None  # so many bytes at a time, each sent for itself
    bytes_per_second: float | None = None

    # The lines of a stream: behind the first so many (1: the one that tells the command's id) comes something else.
    after_lines: int = 1
    insert: bytes | None = None  # as it is, without a newline of its own
    big_line: int | None = None  # a line of stdout with so many bytes of data
    error_line: str | None = None  # an error with this code, and nothing behind it
    drop_last: bool = False  # no line that tells the end
    null_exit: bool = False  # the last line tells no exit code
    crlf: bool = False
    no_last_newline: bool = False

    # Lists.
    empty_page: bool = False
    same_cursor: bool = False

    # What became of it.
    hits: int = 0  # calls that it was applied to
    did_bite: bool = False  # a cut that came before the end, a line that was dropped: it made a difference

    def __post_init__(self):
        self.op = self.op.replace("_", " ")
        if self.op != "*" and self.op not in OPS:
            raise ValueError(f"no such op: {self.op}")
        for name in ("reset", "close", "hold"):
            if getattr(self, name) not in (None, "before", "after"):
                raise ValueError(f"{name}: before or after")
        if self.stuck not in (None, "before", "after", "body") or self.cut_by not in ("close", "reset", "end"):
            raise ValueError("stuck: before, after or body; cut_by: close, reset or end")
        if isinstance(self.insert, str):
            self.insert = self.insert.encode()
        self._seen = 0
        self._reached, self._released = threading.Event(), threading.Event()

    def applies(self, op):
        """Counts a call; whether it is a bad one."""
        if self.op not in ("*", op):
            return False
        self._seen += 1
        return self._seen > self.skip and (self.times is None or self._seen <= self.skip + self.times)

    def wait(self, seconds=10):
        """Until a call is held."""
        if not self._reached.wait(seconds):
            raise AssertionError(f"no {self.op} was held within {seconds} s")

    def release(self):
        self._released.set()

    def hold_here(self, is_gone, seconds=0.05):
        """For a while, even when the client has gone: that is what it is good for."""
        self._reached.set()
        while not self._released.wait(seconds) and not is_gone():
            pass

    def error(self):
        """(status, body, headers) of the reply that is sent instead; None."""
        headers = dict(self.headers)
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        if self.redirect is not None:
            headers["Location"] = self.redirect
            return self.status or 307, b"", headers
        if self.status is None and self.body is None:
            return None
        body = self.body
        if body is None:
            body = {"error": {"code": self.code or default_code(self.status), "message": self.message}}
        if isinstance(body, str):
            body = body.encode()
        return self.status or 200, body if isinstance(body, bytes) else json.dumps(body).encode(), headers

    def change_lines(self, blocks):
        """The stream with what is wrong with its lines."""
        if not (self.insert or self.big_line or self.error_line or self.drop_last or self.null_exit or self.crlf
                or self.no_last_newline):
            yield from blocks
            return
        is_added = False
        for number, line in enumerate(itertools.chain([None], _lines(blocks))):
            if line is not None:
                yield from self._change_line(line, number)
            if number == self.after_lines and self._adds():
                is_added = True
                yield from self._added()
                if self.error_line:
                    return
        if self._adds() and not is_added:
            yield from self._added()

    def _change_line(self, line, number):
        if number > 1 and line.startswith(b'{"command"'):
            self.did_bite = self.did_bite or self.drop_last or self.null_exit
            if self.drop_last:
                return
            if self.null_exit:
                told = json.loads(line)
                told["command"]["exitCode"] = None
                line = json.dumps(told).encode() + b"\n"
        if self.no_last_newline:
            yield (b"\n" if number > 1 else b"") + line[:-1]
        else:
            yield line[:-1] + b"\r\n" if self.crlf else line

    def _adds(self):
        return self.insert or self.big_line or self.error_line

    def _added(self):
        self.did_bite = True
        if self.insert:
            yield self.insert
        if self.big_line:
            yield b'{"stream":"stdout","data":"'
            for start in range(0, self.big_line, 1 << 20):
                yield b"x" * min(1 << 20, self.big_line - start)
            yield b'"}\n'
        if self.error_line:
            data = {"code": self.error_line, "message": self.message}
            yield json.dumps({"stream": "error", "data": data}).encode() + b"\n"


def _lines(blocks):
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


_CODES = {400: "bad_request", 401: "unauthorized", 402: "payment_required", 403: "forbidden", 404: "not_found",
          409: "conflict", 410: "sandbox_stopped", 422: "unprocessable_entity", 429: "rate_limited",
          500: "internal_server_error", 502: "bad_gateway", 503: "service_unavailable", 504: "gateway_timeout"}


def default_code(status):
    return _CODES.get(status, "error")


class Faults:
    def __init__(self):
        self._faults = []
        self._lock = threading.Lock()

    def add(self, fault):
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(self, op):
        """The fault of this call; the first that applies. The others count it too."""
        with self._lock:
            found = None
            for fault in self._faults:
                if fault.applies(op) and found is None:
                    found = fault
                    fault.hits += 1
            return found

    def clear(self):
        """Nothing is wrong any more; held calls go on."""
        with self._lock:
            for fault in self._faults:
                fault.release()
            self._faults.clear()
