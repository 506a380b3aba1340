"""Apple's catalog of restore images and the servers that have them, with every fault a download can meet."""

import dataclasses
import gzip
import hashlib
import http.server
import os
import plistlib
import re
import sys
import threading
import time

CATALOG_PATH = "/assets/macos/com_apple_macOSIPSW/com_apple_macOSIPSW.xml"
GUEST_MODEL = "VirtualMac2,1"
_CHUNK = 64 << 10
_LAST_MODIFIED = "Mon, 01 Sep 2025 10:00:00 GMT"


def make_ipsw(path, version="15.6.1", build="24G90", size=1 << 20, **facts):
    """A restore image for the simulator, sparse behind its first line. FACTS: supported, mincpus, minmemory."""
    words = ["VZSIM", f"version={version}", f"build={build}", *(f"{name}={value}" for name, value in facts.items())]
    with open(path, "xb") as file:
        file.write(" ".join(words).encode() + b"\n")
        file.truncate(max(size, file.tell()))
    return path


@dataclasses.dataclass
class Image:
    """One published image. Its faults may be changed at any time."""

    path: str
    version: str
    build: str
    url: str
    sha1: str
    model: str = GUEST_MODEL
    etag: str = ""
    drop_at: list = dataclasses.field(default_factory=list)  # fractions of the whole; each ends one connection
    hang_at: float = 2.0  # a fraction of the whole, behind which nothing is sent any more
    bytes_per_second: int = 0  # 0: as fast as it goes
    ranges: str = "ok"  # ok, ignore (200 and the whole), wrong (another range), refuse (416)
    short_by: int = 0  # bytes that the length promises and the body lacks
    status: int = 0  # instead of any content

    @property
    def size(self):
        return os.path.getsize(self.path)

    def change(self, path=None):
        """The file on the server becomes another one."""
        self.path = path or self.path
        self.etag = f'"changed-{time.monotonic_ns()}"'


class Cdn:
    """A web server on a socket that listens already."""

    def __init__(self, listener, port):
        self.address = f"http://127.0.0.1:{port}"
        self.images = []
        self.requests = []  # dicts with path, range, if_range, status, sent
        self.catalog_status = 0
        self.catalog_body = None  # bytes instead of the catalog
        self.compress = False  # gzip unasked, as Apple's server sometimes does
        self.closed = False
        self._lock = threading.Lock()
        cdn = self

        class Handler(_Handler):
            server_of = cdn

        self._server = _Server(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._server.server_address = listener.getsockname()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def catalog_url(self):
        return self.address + CATALOG_PATH

    @property
    def served(self):
        """Bytes of images sent so far."""
        with self._lock:
            return sum(request["sent"] for request in self.requests if request["path"] != CATALOG_PATH)

    def publish(self, path, version, build, model=GUEST_MODEL, sha1=None, **faults):
        """Lists an image file in the catalog. SHA1: what the catalog says, the true one by default; "" for none."""
        if sha1 is None:
            with open(path, "rb") as file:
                sha1 = hashlib.file_digest(file, "sha1").hexdigest()
        url = f"{self.address}/fullrestores/{len(self.images):03}/UniversalMac_{version}_{build}_Restore.ipsw"
        image = Image(path, version, build, url, sha1, model, etag=f'"{build}"', **faults)
        self.images.append(image)
        return image

    def catalog(self):
        models = {}
        for image in self.images:
            entry = {"BuildVersion": image.build, "FirmwareURL": image.url, "ProductVersion": image.version}
            if image.sha1:
                entry["FirmwareSHA1"] = image.sha1
            builds = models.setdefault(image.model, {})
            builds[image.build] = {"Restore": entry}
            builds["Unknown"] = {"Universal": {"Restore": entry}}
            builds.setdefault("1A1", {"SameAs": image.build})
        return plistlib.dumps({
            "MobileDeviceProductTypes": {"DFU": {"33282": GUEST_MODEL}},
            "MobileDeviceSoftwareVersionsByVersion": {"1": {"MobileDeviceSoftwareVersions": models}},
        })

    def close(self):
        self.closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note(self, record):
        with self._lock:
            self.requests.append(record)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients come and go
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._serve()

    def do_GET(self):
        self._serve()

    def _serve(self):
        record = {"path": self.path, "range": self.headers.get("Range"), "if_range": self.headers.get("If-Range"),
                  "status": 0, "sent": 0}
        self.server_of.note(record)
        try:
            if self.path == CATALOG_PATH:
                self._serve_catalog(record)
            else:
                self._serve_image(record)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _head(self, record, status, length, **headers):
        record["status"] = status
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _serve_catalog(self, record):
        cdn = self.server_of
        body = cdn.catalog_body if cdn.catalog_body is not None else cdn.catalog()
        headers = {"Content_Type": "application/xml"}
        if cdn.compress:
            body, headers["Content_Encoding"] = gzip.compress(body), "gzip"
        self._head(record, cdn.catalog_status or 200, len(body), **headers)
        if self.command == "GET":
            record["sent"] = len(body)
            self.wfile.write(body)

    def _serve_image(self, record):
        image = next((one for one in self.server_of.images if one.url.endswith(self.path)), None)
        if image is None or image.status:
            self._head(record, image.status if image else 404, 0)
            return
        size = image.size
        first, last = 0, size - 1
        headers = {"ETag": image.etag, "Accept_Ranges": "bytes", "Last_Modified": _LAST_MODIFIED}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", record["range"] or "")
        same = record["if_range"] in (None, image.etag, _LAST_MODIFIED)
        if asked and same and image.ranges != "ignore":
            first = int(asked[1])
            last = min(last, int(asked[2] or last))
            if first > last or image.ranges == "refuse":
                self._head(record, 416, 0, Content_Range=f"bytes */{size}")
                return
            shown = first + 1 if image.ranges == "wrong" else first
            self._head(record, 206, last + 1 - first, Content_Range=f"bytes {shown}-{last}/{size}", **headers)
        else:
            self._head(record, 200, size, **headers)
        if self.command == "GET":
            self._send(record, image, first, last + 1)

    def _send(self, record, image, first, end):
        """The bytes from FIRST to END, or to where a fault stops them."""
        stop = end - image.short_by
        for fraction in sorted(image.drop_at):
            if first <= image.size * fraction < stop:
                stop = int(image.size * fraction)
                image.drop_at.remove(fraction)
                break
        hang = int(image.size * image.hang_at)
        with open(image.path, "rb") as file:
            file.seek(first)
            while first < min(stop, hang):
                data = file.read(min(_CHUNK, min(stop, hang) - first))
                record["sent"] += len(data)  # first: who has read it must find it counted
                self.wfile.write(data)
                first += len(data)
                if image.bytes_per_second:
                    time.sleep(len(data) / image.bytes_per_second)
        if hang < stop:
            self._hang()
        if first < end:
            self.close_connection = True

    def _hang(self):
        """Says nothing more, until the client gives up or the server ends."""
        self.connection.settimeout(0.05)
        while not self.server_of.closed:
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                pass
