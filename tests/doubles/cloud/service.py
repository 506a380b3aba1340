"""The service without HTTP: projects, sandboxes, sessions, snapshots, and what happens to them.

One lock (`lock`, with `changed`) guards all of it. What takes long (processes that are ended, disks that are copied)
is done outside of it, while the session's status keeps everybody else away.
"""

import dataclasses
import hashlib
import os
import re
import secrets
import shutil
import string
import subprocess
import threading

from .clock import Clock
from .commands import Command, Guest, Keeper, now_ms

_ALPHABET = string.ascii_letters + string.digits
REGION = "iad1"
MEMORY_PER_VCPU = 2048
ENDING = ("stopping", "snapshotting")
ENDED = ("stopped", "failed", "aborted")


class Refusal(Exception):
    """A request that the service does not carry out."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def bad_request(message):
    return Refusal(400, "bad_request", message)


def not_found(what):
    return Refusal(404, "not_found", f"{what} not found")


def make_id(kind):
    return f"{kind}_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


def present(**values):
    """A reply's object: members that are None are left out."""
    return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(eq=False)
class Snapshot:
    id: str
    project: tuple  # team, project
    sandbox: str  # the name of the one that it was made of
    session: str
    directory: str
    method: str
    created_at: int
    expires_at: int | None
    size: int
    parent: str | None
    status: str = "created"
    updated_at: int = 0
    last_used_at: int | None = None

    def is_usable(self):
        return self.status == "created" and (self.expires_at is None or self.expires_at > now_ms())

    def show(self):
        return present(id=self.id, sourceSessionId=self.session, region=REGION, regions=[REGION], status=self.status,
                       sizeBytes=self.size, createdAt=self.created_at, updatedAt=self.updated_at or self.created_at,
                       expiresAt=self.expires_at, lastUsedAt=self.last_used_at, creationMethod=self.method,
                       parentId=self.parent)


@dataclasses.dataclass(eq=False)
class Session:
    id: str
    sandbox: "Sandbox"
    status: str
    timeout: int
    vcpus: int
    region: str
    created_at: int
    source_snapshot: str | None
    updated_at: int = 0
    started_at: int | None = None
    requested_stop_at: int | None = None
    stopped_at: int | None = None
    aborted_at: int | None = None
    snapshotted_at: int | None = None
    policy: dict | None = None
    guest: Guest | None = None
    commands: dict = dataclasses.field(default_factory=dict)
    snapshot: Snapshot | None = None  # that its end has made
    is_deleted: bool = False

    @property
    def ends_at(self):
        return (self.started_at or self.created_at) + self.timeout

    def move(self, status):
        self.status, self.updated_at = status, now_ms()
        self.sandbox.status_updated_at = self.updated_at

    def show(self):
        ended = self.stopped_at or self.aborted_at
        return present(
            id=self.id, status=self.status, memory=self.vcpus * MEMORY_PER_VCPU, vcpus=self.vcpus, region=self.region,
            timeout=self.timeout, cwd=self.sandbox.directory, requestedAt=self.created_at, createdAt=self.created_at,
            updatedAt=self.updated_at or self.created_at, startedAt=self.started_at,
            requestedStopAt=self.requested_stop_at, stoppedAt=self.stopped_at, abortedAt=self.aborted_at,
            snapshottedAt=self.snapshotted_at, runtime=self.sandbox.config.get("runtime"),
            duration=ended - self.started_at if ended and self.started_at else None,
            sourceSnapshotId=self.source_snapshot, networkPolicy=self.policy,
            projectId=self.sandbox.project[1], sourceSandboxName=self.sandbox.name)


@dataclasses.dataclass(eq=False)
class Sandbox:
    name: str
    project: tuple
    config: dict  # the members of create that it was made with
    directory: str  # its disk, while it runs
    created_at: int
    updated_at: int = 0
    status_updated_at: int | None = None
    snapshot: Snapshot | None = None
    session: Session | None = None
    sessions: list = dataclasses.field(default_factory=list)

    @property
    def persistent(self):
        return self.config.get("persistent", True)

    @property
    def vcpus(self):
        return self.config.get("resources", {}).get("vcpus", 2)

    @property
    def timeout(self):
        return self.config.get("timeout", 300000)

    def show(self, coarse=False):
        status = self.session.status
        if coarse:
            status = {"pending": "running", "snapshotting": "stopping", "failed": "stopped",
                      "aborted": "stopped"}.get(status, status)
        image = self.config.get("image")
        return present(
            name=self.name, persistent=self.persistent, status=status, currentSessionId=self.session.id,
            createdAt=self.created_at, updatedAt=self.updated_at or self.created_at,
            statusUpdatedAt=self.status_updated_at,
            expiresAt=self.session.ends_at if self.session.status == "running" else None,
            currentSnapshotId=self.snapshot and self.snapshot.id, image=image and pin(image),
            runtime=self.config.get("runtime"), region=self.config.get("region"),
            failoverRegions=self.config.get("failoverRegions"), vcpus=self.vcpus,
            memory=self.vcpus * MEMORY_PER_VCPU, timeout=self.timeout, cwd=self.directory, tags=self.config.get("tags"),
            networkPolicy=self.session.policy, networkId=self.config.get("networkId"),
            snapshotExpiration=self.config.get("snapshotExpiration"),
            keepLastSnapshots=self.config.get("keepLastSnapshots"), projectId=self.project[1])

    def routes(self):
        routes = []
        for port in self.config.get("ports", []):
            subdomain = "sb-" + hashlib.sha256(f"{self.project}{self.name}{port}".encode()).hexdigest()[:12]
            routes.append({"url": f"https://{subdomain}.vercel.run", "subdomain": subdomain, "port": port,
                           "system": True})
        return routes


def image_name(image):
    """`ad-desktop` of any way to write it."""
    return re.sub(r"(@sha256:.*|:[^:/]*)$", "", image).rpartition("/")[2]


def pin(image):
    if "@sha256:" in image:
        return image
    return f"{re.sub(r':[^:/]*$', '', image)}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


def shown_policy(policy):
    """A network policy as replies have it, which is not how requests do."""
    if policy is None or "mode" in policy:
        return policy
    allow = policy.get("allow", [])
    subnets = policy.get("subnets", {})
    return present(mode="custom", allowedDomains=list(allow), allowedCIDRs=subnets.get("allow"),
                   deniedCIDRs=subnets.get("deny"))


class Service:
    def __init__(self, settings, directory):
        self.settings = settings
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.sandboxes = {}  # (team, project, name)
        self.sessions = {}
        self.snapshots = {}
        self.clock = Clock()
        self.closed = False
        self._directory = directory
        self._keeper = None
        for name in ("disks", "snapshots", "output"):
            os.mkdir(os.path.join(directory, name))

    def close(self):
        """What still runs ends with the keeper's sockets, and the directory goes with it."""
        with self.changed:
            self.closed = True
            guests = [session.guest for session in self.sessions.values() if session.guest]
            for session in self.sessions.values():
                for command in session.commands.values():
                    command.lose()
            self.changed.notify_all()
        self.clock.close()
        for guest in guests:
            guest.end()
        if self._keeper:
            self._keeper.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def wait(self, condition, gone=lambda: False):
        """Until CONDITION() holds; false when GONE() came first."""
        with self.changed:
            while not condition():
                if self.closed or gone():
                    return False
                self.changed.wait(0.2)
            return True

    # Sandboxes.

    def find(self, project, name):
        sandbox = self.sandboxes.get((*project, name))
        if sandbox is None:
            raise not_found("sandbox")
        return sandbox

    def create(self, project, config, snapshot=None):
        """CONFIG: as checked. SNAPSHOT: what its disk begins as."""
        name = config.get("name") or "sandbox-" + secrets.token_hex(6)
        with self.lock:
            if (*project, name) in self.sandboxes:
                status = self.settings.name_taken_status
                raise Refusal(status, "bad_request" if status == 400 else "conflict",
                              f"a sandbox named '{name}' exists in this project")
            image = config.get("image")
            if image is not None and image_name(image) not in self.settings.images:
                status = self.settings.unknown_image_status
                raise Refusal(status, "not_found" if status == 404 else "bad_request", f"image '{image}' not found")
            disk = os.path.join(self._directory, "disks", make_id("disk"))
            sandbox = Sandbox(name, project, dict(config, name=name), disk, now_ms())
            sandbox.snapshot = snapshot
            self.sandboxes[(*project, name)] = sandbox
            self._start(sandbox)
            return sandbox

    def _start(self, sandbox):
        """A new session, with the disk of its snapshot."""
        source = sandbox.snapshot
        session = Session(make_id("sbx"), sandbox, "pending", sandbox.timeout, sandbox.vcpus,
                          sandbox.config.get("region", REGION), now_ms(), source.id if source else None)
        session.policy = shown_policy(sandbox.config.get("networkPolicy"))
        sandbox.session = session
        sandbox.sessions.append(session)
        self.sessions[session.id] = session
        session.move("pending")
        shutil.rmtree(sandbox.directory, ignore_errors=True)
        if source:
            source.last_used_at = now_ms()
            _copy(source.directory, sandbox.directory)
        else:
            os.mkdir(sandbox.directory)
        becomes = self.settings.session_becomes
        if self.settings.pending_ms == 0:
            self._begin(session, becomes)
        else:
            self.clock.after(self.settings.pending_ms, self._begin, session, becomes)

    def _begin(self, session, becomes):
        with self.changed:
            if session.status != "pending":
                return
            if becomes != "running":
                session.aborted_at = now_ms() if becomes == "aborted" else None
                session.move(becomes)
            else:
                session.started_at = now_ms()
                session.move("running")
                self._watch_timeout(session)
            self.changed.notify_all()

    def _watch_timeout(self, session):
        self.clock.after(max(session.ends_at - now_ms(), 0), self._time_out, session)

    def _time_out(self, session):
        with self.lock:
            if session.status != "running" or session.ends_at > now_ms():
                if session.status == "running":
                    self._watch_timeout(session)
                return
        self.stop(session)

    def resume(self, sandbox, gone=lambda: False):
        """Whether it made a new session."""
        with self.lock:
            if sandbox.session.status in ENDING and self.settings.resume_while_stopping != "wait":
                if self.settings.resume_while_stopping == "refuse":
                    self.check_usable(sandbox.session)
                return False
            self.wait(lambda: sandbox.session.status not in ENDING, gone)
            if sandbox.session.status not in ENDED:
                return False
            if sandbox.persistent and (sandbox.snapshot is None or not sandbox.snapshot.is_usable()):
                raise Refusal(410, "snapshot_not_found", "the sandbox has no snapshot to resume from")
            self._start(sandbox)
            return True

    def delete(self, sandbox, with_snapshots):
        with self.changed:
            del self.sandboxes[(*sandbox.project, sandbox.name)]
            guests = [session.guest for session in sandbox.sessions if session.guest]
            if sandbox.session.status not in ENDED:
                sandbox.session.stopped_at = now_ms()
                sandbox.session.move("stopped")
            for session in sandbox.sessions:
                session.is_deleted = True
                self._lose_commands(session)
                session.guest = None
            if with_snapshots:
                for snapshot in list(self.snapshots.values()):
                    if snapshot.project == sandbox.project and snapshot.sandbox == sandbox.name \
                            and not self._is_used(snapshot):
                        self.delete_snapshot(snapshot)
            self.changed.notify_all()
        for guest in guests:
            guest.end()
        shutil.rmtree(sandbox.directory, ignore_errors=True)

    def _is_used(self, snapshot):
        return any(other.snapshot is snapshot or other.session.source_snapshot == snapshot.id
                   for other in self.sandboxes.values())

    # Sessions.

    def find_session(self, projects, session_id):
        session = self.sessions.get(session_id)
        if session is None or session.is_deleted or session.sandbox.project not in projects:
            raise not_found("session")
        return session

    def check_usable(self, session):
        """Refuses a session that takes no commands."""
        if session.status == "pending":
            raise Refusal(self.settings.pending_status, self.settings.pending_code, "the sandbox is not ready yet")
        if session.status in ENDING:
            raise Refusal(422, f"sandbox_{session.status}", f"the sandbox is {session.status}")
        if session.status in ENDED:
            raise Refusal(410, "sandbox_stopped", "the sandbox has stopped")

    def stop(self, session, keep=None, method="automatic"):
        """Begins its end, unless it has. KEEP: its disk becomes a snapshot; as the sandbox is made, by default."""
        with self.changed:
            if session.status not in ("pending", "running"):
                return
            session.requested_stop_at = now_ms()
            session.move("stopping")
            self._lose_commands(session)
            self.changed.notify_all()
        keep = session.sandbox.persistent if keep is None else keep
        if self.settings.stopping_ms == 0:
            self._end_guest(session, keep, method)
        else:
            self.clock.after(self.settings.stopping_ms, self._end_guest, session, keep, method)

    def _lose_commands(self, session):
        for command in session.commands.values():
            command.lose()

    def _end_guest(self, session, keep, method):
        with self.lock:
            guest, session.guest = session.guest, None
        if guest:
            guest.end()
        with self.changed:
            if session.is_deleted or self.closed:
                return
            if keep:
                session.snapshotted_at = now_ms()
                session.move("snapshotting")
                self.changed.notify_all()
        if keep and self.settings.snapshotting_ms:
            self.clock.after(self.settings.snapshotting_ms, self._finish, session, keep, method)
        else:
            self._finish(session, keep, method)

    def _finish(self, session, keep, method):
        try:
            snapshot = self._save(session, method) if keep else None
        except (OSError, subprocess.CalledProcessError):
            if session.is_deleted or self.closed:  # the disk went away in the middle
                return
            raise
        with self.changed:
            if session.is_deleted or self.closed:
                return
            if keep:
                self.snapshots[snapshot.id] = session.snapshot = session.sandbox.snapshot = snapshot
            session.stopped_at = now_ms()
            session.move("stopped")
            self.changed.notify_all()
        shutil.rmtree(session.sandbox.directory, ignore_errors=True)

    def _save(self, session, method):
        sandbox = session.sandbox
        snapshot_id = make_id("snap")
        directory = os.path.join(self._directory, "snapshots", snapshot_id)
        if os.path.isdir(sandbox.directory):
            _copy(sandbox.directory, directory)
        life = sandbox.config.get("snapshotExpiration", self.settings.snapshot_expiration_ms)
        return Snapshot(snapshot_id, sandbox.project, sandbox.name, session.id, directory, method, now_ms(),
                        now_ms() + life if life else None, _size(directory), session.source_snapshot)

    def abort(self, session, status="aborted"):
        """It ends without anything being kept: a failure of the service's own."""
        with self.changed:
            guest, session.guest = session.guest, None
            session.aborted_at = now_ms() if status == "aborted" else None
            session.move(status)
            self._lose_commands(session)
            self.changed.notify_all()
        if guest:
            guest.end()

    # Snapshots.

    def find_snapshot(self, projects, snapshot_id):
        snapshot = self.snapshots.get(snapshot_id)
        if snapshot is None or snapshot.project not in projects:
            raise not_found("snapshot")
        return snapshot

    def delete_snapshot(self, snapshot):
        snapshot.status, snapshot.updated_at = "deleted", now_ms()
        shutil.rmtree(snapshot.directory, ignore_errors=True)

    # Commands.

    def run(self, session, name, args, cwd, env, timeout):
        with self.lock:
            self.check_usable(session)
            sandbox = session.sandbox
            cwd = self.locate(session, cwd or ".")
            if not os.path.isdir(cwd):
                raise bad_request(f"no such directory: {cwd}")
            env = {**self._guest_env(sandbox), **sandbox.config.get("env", {}), **env}
            program = _find_program(name, env["PATH"], cwd)
            if program is None:
                raise Refusal(400, "executable_not_found", f"executable '{name}' not found")
            if self._keeper is None:
                self._keeper = Keeper(self._directory)
            if session.guest is None:
                session.guest = Guest(self._keeper)
            command_id = make_id("cmd")
            command = Command(self.settings, command_id, session.id, name, args, cwd,
                              os.path.join(self._directory, "output", command_id))
            command.prepare()
            session.commands[command.id] = command
            session.guest.start(command, program, env)
        if timeout is not None:
            self.clock.after(timeout, self.kill, session, command)
        return command

    def _guest_env(self, sandbox):
        programs = self.settings.images.get(image_name(sandbox.config["image"])) if "image" in sandbox.config else None
        path = self.settings.base_path
        return {"PATH": f"{programs}:{path}" if programs else path, "HOME": sandbox.directory, "USER": "ubuntu",
                "LANG": "C.UTF-8"}

    def kill(self, session, command, number=9, group=True):
        guest = session.guest
        if guest is not None and command.exit_code is None:
            guest.kill(command, number, group)

    def find_command(self, session, command_id):
        self.check_usable(session)
        command = session.commands.get(command_id)
        if command is None:
            raise not_found("command")
        return command

    def locate(self, session, *parts):
        """Where a path of the guest lies: below its disk, whatever it says. Its home is its disk's directory."""
        home = session.sandbox.directory
        path = os.path.normpath(os.path.join(home, *parts))
        if path == home or path.startswith(home + "/"):
            return path
        return os.path.normpath(home + "/" + path)


def _find_program(name, path, cwd):
    places = [cwd] if "/" in name else path.split(":")
    for place in places:
        candidate = os.path.join(place, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _copy(source, target):
    """A disk: with its links, modes, sockets."""
    if os.path.isdir(source) and os.listdir(source):
        subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True, stdin=subprocess.DEVNULL)
    else:
        os.mkdir(target)


def _size(directory):
    """Of a snapshot, with the gigabytes of the image that a real one has."""
    total = 3 << 30
    for place, _, names in os.walk(directory):
        total += sum(os.lstat(os.path.join(place, name)).st_size for name in names)
    return total
