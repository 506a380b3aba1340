"""The disk image of a guest: a sparse file that carries the guest's file tree.

Behind the simulator's mark (VZSIM-INSTALLED at 0) stand a header at 1 MiB and two places for the tree; the header says
which one holds. A tree is written to the other place, then the header is turned to it in one write: whoever copies the
image meanwhile gets the tree of before, as a real disk after a power cut gives. Nothing outside the file belongs to it.

A tree in a folder has the modes and times that the image says, but one owner. The owner that the image records is kept
apart: a file that was rewritten in place keeps its own, one that replaced it gets that of who wrote it.
"""

import contextlib
import errno
import hashlib
import json
import os
import plistlib
import shutil
import stat
import uuid
import zlib

from .kernel import birth_ns

STAMP = b"VZSIM-INSTALLED\n"
_HEADER_AT, _HEADER_SIZE = 1 << 20, 4096
_FIRST_PLACE = 2 << 20
_INDEX_ROOM = 1 << 20
_SMALLEST = 16 << 20
_MAGIC = b"simulated Mac disk 1\n"

ROOT, WHEEL, ATTACHER = 0, 0, 99
STAFF = 20

SYSTEM_VERSION = "System/Library/CoreServices/SystemVersion.plist"
SETUP_DONE = "private/var/db/.AppleSetupDone"
USERS = "private/var/db/dslocal/nodes/Default/users"
LAUNCHD_DISABLED = "private/var/db/com.apple.xpc.launchd/disabled.plist"
GUEST_RECORD = "private/var/db/simulated.json"
HOST_KEYS = "private/etc/ssh"

# What a boot makes anew, and what a Mac empties at a boot.
_NOT_KEPT = ("private/etc/passwd", "private/etc/group", "private/etc/nsswitch.conf", "private/etc/alternatives",
             "private/etc/ld.so.cache")
_EMPTIED = ("private/tmp", "private/var/run", "private/var/tmp")


class Damaged(Exception):
    """The image holds no whole tree."""


class Disk:
    """An image file, open. Changes nothing by itself."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def key(self):
        """Tells one image from another, whatever their names."""
        found = os.fstat(self.fd)
        return (found.st_dev, found.st_ino)

    @property
    def installed(self):
        return os.pread(self.fd, len(STAMP), 0) == STAMP

    def header(self):
        """None when nothing was ever written behind the mark."""
        block = os.pread(self.fd, _HEADER_SIZE, _HEADER_AT)
        if not block.startswith(_MAGIC):
            return None
        return json.loads(block[len(_MAGIC):].rstrip(b"\0"))

    def _write_header(self, header):
        block = _MAGIC + json.dumps(header).encode()
        os.pwrite(self.fd, block.ljust(_HEADER_SIZE, b"\0"), _HEADER_AT)

    def _place(self, number):
        """Where place NUMBER begins, and how much fits."""
        if self.size < _SMALLEST:
            raise Damaged(f"{self.path} is too small for a guest: at least {_SMALLEST} bytes")
        length = (self.size - _FIRST_PLACE) // 2 // 4096 * 4096
        return _FIRST_PLACE + number * length, length

    def mark_in_use(self, run):
        """While RUN (None: nobody) uses the disk, a copy of it is worth nothing."""
        header = self.header()
        header["in_use"] = run
        self._write_header(header)

    def in_use(self):
        header = self.header()
        return header and header.get("in_use")

    def write(self, entries, in_use=None):
        """ENTRIES: dicts with path, kind (d, f, l), mode, uid, and data, file (a path to read) or link. Files that are
        gone by now are left out: in a guest that runs they come and go.
        """
        header = self.header() or {"place": 1}
        place = 1 - header["place"]
        start, room = self._place(place)
        index, files, at = [], [], start + _INDEX_ROOM
        for entry in entries:
            row = {k: entry[k] for k in ("path", "kind", "mode", "uid", "link", "mtime_ns") if k in entry}
            if entry["kind"] == "f":
                try:
                    size = len(entry["data"]) if "data" in entry else os.stat(entry["file"]).st_size
                except FileNotFoundError:
                    continue
                row.update(at=at, size=size)
                at += size
                files.append((row, entry))
            index.append(row)
        if len(json.dumps(index)) > _INDEX_ROOM or at > start + room:
            raise OSError(errno.ENOSPC, "the disk of the simulated guest is full")
        for row, entry in files:
            if "data" in entry:
                os.pwrite(self.fd, entry["data"], row["at"])
            elif not self._copy_in(entry["file"], row["at"], row["size"]):
                index.remove(row)
        rows = json.dumps(index).encode()
        os.pwrite(self.fd, rows, start)
        self._write_header({"place": place, "rows": len(rows), "crc": zlib.crc32(rows), "in_use": in_use})

    def _copy_in(self, path, at, size):
        """False when there is no such file any more."""
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            while size > 0:
                chunk = os.read(source, min(size, 1 << 20))
                if not chunk:
                    break  # shrunk meanwhile: what is missing reads as zeros
                os.pwrite(self.fd, chunk, at)
                at += len(chunk)
                size -= len(chunk)
        finally:
            os.close(source)
        return True

    def entries(self):
        """The tree: dicts as write() takes them, with `data` for files."""
        header = self.header()
        if header is None:
            if not self.installed:
                raise Damaged(f"nothing is installed on {self.path}")
            return list(fresh_tree())
        start, _ = self._place(header["place"])
        rows = os.pread(self.fd, header["rows"], start)
        if zlib.crc32(rows) != header["crc"]:
            raise Damaged(f"the tree on {self.path} is torn")
        entries = json.loads(rows)
        for entry in entries:
            if entry["kind"] == "f":
                entry["data"] = os.pread(self.fd, entry["size"], entry["at"])
        return entries


class Folder:
    """A tree taken out of an image, in a folder of its own."""

    def __init__(self, disk, path, owner=None):
        """OWNER: (uid, gid) that everything in the folder shall have; None for the caller's."""
        self.disk, self.path, self._owner = disk, path, owner
        self._recorded = {}
        self._extract()
        self._seen = self._signature()

    def _extract(self):
        os.makedirs(self.path)
        self.own(self.path)
        directories = []
        for entry in self.disk.entries():
            path = self.inside(entry["path"])
            if entry["kind"] == "d":
                os.mkdir(path)
                directories.append((path, entry))
            elif entry["kind"] == "l":
                os.symlink(entry["link"], path)
            else:
                with open(path, "wb") as file:
                    file.write(entry["data"])
                    os.fchmod(file.fileno(), entry["mode"])
                if "mtime_ns" in entry:
                    os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]))
            self.own(path)
            self._recorded[entry["path"]] = (self._identity(path), entry["uid"])
        for path, entry in reversed(directories):
            os.chmod(path, entry["mode"])

    def inside(self, path):
        return os.path.join(self.path, path)

    def own(self, path):
        if self._owner:
            os.lchown(path, *self._owner)

    @staticmethod
    def _identity(path):
        return (os.lstat(path).st_ino, birth_ns(path))

    def _walk(self):
        """(path in the tree, path, lstat) of all that is kept, parents first."""
        pending = [""]
        while pending:
            folder = pending.pop()
            if folder in _EMPTIED:
                continue
            try:
                names = sorted(os.listdir(self.inside(folder)))
            except OSError:
                continue
            for name in names:
                relative = os.path.join(folder, name)
                if relative in _NOT_KEPT:
                    continue
                path = self.inside(relative)
                try:
                    found = os.lstat(path)
                except FileNotFoundError:
                    continue
                yield relative, path, found
                if stat.S_ISDIR(found.st_mode):
                    pending.append(relative)

    def _signature(self):
        return {relative: (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino)
                for relative, _, found in self._walk()}

    def save(self, newcomer, in_use=None):
        """Writes the tree back if it changed. NEWCOMER(path) is the recorded owner of a file that is new."""
        seen = self._signature()
        if seen == self._seen:
            self.disk.mark_in_use(in_use)
            return False
        entries, recorded = [], {}
        for relative, path, found in self._walk():
            kind = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}.get(stat.S_IFMT(found.st_mode))
            if kind is None:
                continue
            identity, uid = self._recorded.get(relative, (None, 0))
            entry = {"path": relative, "kind": kind, "mode": stat.S_IMODE(found.st_mode)}
            try:
                if identity is None or identity[0] != found.st_ino or identity != self._identity(path):
                    identity, uid = self._identity(path), newcomer(relative)
                if kind == "l":
                    entry["link"] = os.readlink(path)
            except FileNotFoundError:
                continue
            if kind == "f":
                entry.update(file=path, mtime_ns=found.st_mtime_ns)
            recorded[relative] = (identity, uid)
            entries.append({**entry, "uid": uid})
        self.disk.write(entries, in_use)
        self._seen, self._recorded = seen, recorded
        return True


# What the tree says of its guest.

def read_plist(data):
    try:
        return plistlib.loads(data)
    except (plistlib.InvalidFileException, ValueError, OSError):
        return {}


def read_record(folder):
    with open(folder.inside(GUEST_RECORD), "rb") as file:
        return json.load(file)


def fresh_tree(version="15.6.1", build="24G90"):
    """A disk right after an installation: Setup Assistant waits, nobody has an account, Remote Login is off."""
    folders = ["Applications", "Library", "System", "System/Library", "System/Library/CoreServices", "Users",
               "Users/Shared", "private", "private/etc", "private/etc/ssh", "private/tmp", "private/var",
               "private/var/db", "private/var/db/com.apple.xpc.launchd", "private/var/db/dslocal",
               "private/var/db/dslocal/nodes", "private/var/db/dslocal/nodes/Default", USERS, "private/var/folders",
               "private/var/log", "private/var/root", "private/var/run", "private/var/tmp"]
    private = {"private/tmp": 0o1777, "private/var/tmp": 0o1777, "Users/Shared": 0o1777,
               "private/var/root": 0o700}
    for path in folders:
        yield {"path": path, "kind": "d", "mode": private.get(path, 0o755), "uid": ROOT}
    system = {"ProductName": "macOS", "ProductVersion": version, "ProductUserVisibleVersion": version,
              "ProductBuildVersion": build}
    record = {"uuid": str(uuid.uuid4()).upper(), "filevault": False, "grants": [], "ecid": None}
    files = {
        SYSTEM_VERSION: plistlib.dumps(system),
        GUEST_RECORD: json.dumps(record).encode(),
        "private/etc/hosts": b"127.0.0.1\tlocalhost\n",
        "private/etc/shells": b"/bin/bash\n/bin/csh\n/bin/dash\n/bin/ksh\n/bin/sh\n/bin/tcsh\n/bin/zsh\n",
    }
    for path, data in files.items():
        yield {"path": path, "kind": "f", "mode": 0o644, "uid": ROOT, "data": data}


def add_account(folder, name, uid=501, shell="/bin/zsh", full_name=None):
    """What Setup Assistant leaves behind."""
    record = {"name": [name], "realname": [full_name or name.capitalize()], "uid": [str(uid)], "gid": [str(STAFF)],
              "home": ["/Users/" + name], "shell": [shell]}
    files = {f"{USERS}/{name}.plist": plistlib.dumps(record), SETUP_DONE: b""}
    for path, data in files.items():
        with open(folder.inside(path), "wb") as file:
            file.write(data)
        folder.own(folder.inside(path))
    home = folder.inside("Users/" + name)
    for path in (home, *(os.path.join(home, part) for part in ("Desktop", "Documents", "Library"))):
        os.mkdir(path, 0o750 if path == home else 0o700)
        folder.own(path)


def accounts(folder):
    """The accounts on the disk: dicts with name, uid, home, shell and full_name."""
    found = []
    directory = folder.inside(USERS)
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            record = read_plist(file.read())
        if record:
            found.append({"name": record["name"][0], "uid": int(record["uid"][0]), "home": record["home"][0],
                          "shell": record["shell"][0], "full_name": record["realname"][0]})
    return found


def remote_login(folder):
    try:
        with open(folder.inside(LAUNCHD_DISABLED), "rb") as file:
            return read_plist(file.read()).get("com.openssh.sshd") is False
    except FileNotFoundError:
        return False


def set_remote_login(folder, on):
    path = folder.inside(LAUNCHD_DISABLED)
    with open(path, "wb") as file:
        file.write(plistlib.dumps({"com.openssh.sshd": not on}))
    folder.own(path)


def change_record(folder, **changes):
    record = {**read_record(folder), **changes}
    with open(folder.inside(GUEST_RECORD), "w", encoding="utf-8") as file:
        json.dump(record, file)
    folder.own(folder.inside(GUEST_RECORD))


# For tests: images made and looked at without a Mac.

def owner_in_guest(path, uid=501):
    """The owner of a file that a guest made: its account's in a home, root's elsewhere."""
    return uid if path.startswith("Users/") and path != "Users/Shared" else ROOT


@contextlib.contextmanager
def opened(path, scratch):
    """The tree of a stopped guest's image as a folder below SCRATCH; written back at the end."""
    disk = Disk(path)
    directory = os.path.join(scratch, "tree-" + hashlib.sha1(os.fsencode(path)).hexdigest()[:12])
    try:
        folder = Folder(disk, directory)
        yield folder
        folder.save(owner_in_guest)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        disk.close()


def look(path):
    """The tree of an image: path in it → its entry (kind, mode, uid, data, link)."""
    disk = Disk(path)
    try:
        return {entry["path"]: entry for entry in disk.entries()}
    finally:
        disk.close()


def install(path, size=64 << 20, version="15.6.1", build="24G90"):
    """Makes PATH the disk of a guest just installed."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
        os.pwrite(fd, STAMP, 0)
    finally:
        os.close(fd)
    format_disk(path, version, build)


def format_disk(path, version, build):
    disk = Disk(path)
    try:
        disk.write(list(fresh_tree(version, build)))
    finally:
        disk.close()
