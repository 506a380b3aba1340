"""The calls: what a request must look like, and what the reply does."""

import base64
import dataclasses
import gzip
import io
import json
import os
import re
import stat
import tarfile
import urllib.parse

from . import service as model
from .service import Refusal, bad_request, not_found, present

NDJSON = "application/x-ndjson"
JSON = "application/json; charset=utf-8"

_S = "/v2/sandboxes"
_SESSION = _S + "/sessions/(?P<session>[^/]+)"
_COMMAND = _SESSION + "/cmd/(?P<command>[^/]+)"
_NAME = _S + "/(?P<name>[^/]+)"
_SNAPSHOT = _S + "/snapshots/(?P<snapshot>[^/]+)"

# op, method, path. The first that fits; `resume` is a get with resume=true.
ROUTES = [(op, method, re.compile(path)) for op, method, path in [
    ("create", "POST", "/v(?P<version>[23])/sandboxes"),
    ("list", "GET", _S),
    ("list sessions", "GET", _S + "/sessions"),
    ("list snapshots", "GET", _S + "/snapshots"),
    ("session", "GET", _SESSION),
    ("stop", "POST", _SESSION + "/stop"),
    ("extend", "POST", _SESSION + "/extend-timeout"),
    ("policy", "POST", _SESSION + "/network-policy"),
    ("run", "POST", _SESSION + "/cmd"),
    ("list commands", "GET", _SESSION + "/cmd"),
    ("get command", "GET", _COMMAND),
    ("logs", "GET", _COMMAND + "/logs"),
    ("kill", "POST", _COMMAND + "/kill"),
    ("write", "POST", _SESSION + "/fs/write"),
    ("read", "POST", _SESSION + "/fs/read"),
    ("mkdir", "POST", _SESSION + "/fs/mkdir"),
    ("snapshot", "POST", "/v[23]/sandboxes/sessions/(?P<session>[^/]+)/snapshot"),
    ("get snapshot", "GET", _SNAPSHOT),
    ("delete snapshot", "DELETE", _SNAPSHOT),
    ("fork", "POST", _NAME + "/fork"),
    ("get", "GET", _NAME),
    ("update", "PATCH", _NAME),
    ("delete", "DELETE", _NAME),
]]
OPS = {op for op, _, _ in ROUTES} | {"resume", "unknown"}


def find_op(method, path, query):
    """(op, words of the path); `unknown` for what the service does not have."""
    for op, wanted, pattern in ROUTES:
        match = pattern.fullmatch(path)
        if match and wanted == method:
            words = {name: urllib.parse.unquote(word) for name, word in match.groupdict().items()}
            return "resume" if op == "get" and query.get("resume") == "true" else op, words
    return "unknown", {}


@dataclasses.dataclass
class Reply:
    body: object  # bytes; for a stream, an iterator of bytes
    status: int = 200
    type: str = JSON
    headers: dict = dataclasses.field(default_factory=dict)
    on_leave: object = None  # called when the client leaves a stream before its end
    ends_with_reset: bool = False


# What a request's members must be: a type, or a function that says what is wrong.

def _integer(low, high=2**53):
    def check(value):
        if type(value) is not int or not low <= value <= high:
            return f"must be an integer from {low} to {high}"
        return None
    return check


def _words(most=None):
    def check(value):
        if not isinstance(value, dict) or not all(isinstance(word, str) for word in value.values()):
            return "must be an object of strings"
        if most is not None and len(value) > most:
            return f"must have at most {most} members"
        return None
    return check


def _list_of(kind, most=None):
    def check(value):
        if not isinstance(value, list) or not all(type(one) is kind for one in value):
            return f"must be a list of {kind.__name__}"
        return f"must have at most {most} members" if most is not None and len(value) > most else None
    return check


def _name(value):
    if not isinstance(value, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", value):
        return "must be 1 to 128 of a-z, A-Z, 0-9, _ and -"
    return None


def _resources(value):
    vcpus = value.get("vcpus") if isinstance(value, dict) else None
    if type(vcpus) is not int or not (vcpus == 1 or vcpus > 0 and vcpus % 2 == 0):
        return "must have vcpus, 1 or an even number"
    return "memory must be 2048 for each vcpu" if value.get("memory", vcpus * 2048) != vcpus * 2048 else None


def _policy(value):
    if not isinstance(value, dict):
        return "must be an object"
    if "mode" in value:
        return None if value in ({"mode": "allow-all"}, {"mode": "deny-all"}) else "is of no known mode"
    if not value or set(value) - {"allow", "subnets"} or not isinstance(value.get("allow", []), (list, dict)) \
            or not isinstance(value.get("subnets", {}), dict):
        return "must have allow, subnets or mode"
    return None


def _keep_last(value):
    count = value.get("count") if isinstance(value, dict) else None
    return None if type(count) is int and 1 <= count <= 10 else "must have a count from 1 to 10"


CONFIG = {
    "image": str, "timeout": _integer(1), "persistent": bool, "ports": _list_of(int, 15), "resources": _resources,
    "env": _words(), "tags": _words(5), "region": str, "failoverRegions": _list_of(str), "networkPolicy": _policy,
    "networkId": str, "snapshotExpiration": _integer(0), "keepLastSnapshots": _keep_last,
}
CREATE = {**CONFIG, "projectId": str, "name": _name, "runtime": str, "source": dict}
FORK = {**CONFIG, "name": _name}
UPDATE = {**{name: check for name, check in CONFIG.items() if name not in ("image", "env")},
          "currentSnapshotId": str}
RUN = {"command": str, "args": _list_of(str), "cwd": str, "env": _words(), "sudo": bool, "wait": bool, "logs": bool,
       "timeout": _integer(1)}
REMOVABLE = ("keepLastSnapshots", "networkId")  # by a null, in an update


class Calls:
    def __init__(self, service):
        self._service = service
        self._settings = service.settings

    def answer(self, request):
        """The reply to a request that may be made; raises Refusal."""
        if request.op == "unknown":
            raise not_found("page")
        method = getattr(self, "_" + request.op.replace(" ", "_"))
        return method(request, **request.words)

    # Reading requests.

    def _members(self, request, rules, required=(), nullable=()):
        if request.type.partition(";")[0].strip() != "application/json" and request.body:
            raise bad_request("content type must be application/json")
        try:
            body = json.loads(request.body or b"{}")
        except ValueError as error:
            raise bad_request("body is not valid JSON") from error
        if not isinstance(body, dict):
            raise bad_request("body must be an object")
        for name, value in list(body.items()):
            if value is None and name in nullable:
                continue
            if name not in rules or value is None:
                if self._settings.strict:
                    raise bad_request(f"'{name}' " + ("must not be null" if name in rules else "is not known"))
                del body[name]
                continue
            rule = rules[name]
            wrong = (None if type(value) is rule else f"must be of type {rule.__name__}") if isinstance(rule, type) \
                else rule(value)
            if wrong:
                raise bad_request(f"'{name}' {wrong}")
        for name in required:
            if name not in body:
                raise bad_request(f"'{name}' is required")
        return body

    def _check_config(self, config):
        if config.get("timeout", 0) > self._settings.longest_timeout_ms:
            raise Refusal(400, "sandbox_timeout_invalid",
                          f"timeout must be at most {self._settings.longest_timeout_ms} ms")
        if config.get("resources", {}).get("vcpus", 0) > self._settings.most_vcpus:
            raise bad_request(f"vcpus must be at most {self._settings.most_vcpus}")
        if config.get("region", model.REGION) in config.get("failoverRegions", []):
            raise bad_request("'failoverRegions' must not contain the region")

    @staticmethod
    def _project(request, project_id):
        """(team, project) of a request that names its project; with an OIDC token it need not."""
        if project_id is None:
            if request.account.is_oidc:
                return request.account.team, request.account.project
            raise bad_request("the project is required")
        for team, project in request.projects:
            if project == project_id:
                return team, project
        if request.account.is_oidc:
            raise Refusal(403, "forbidden", "the token is for another project")
        raise not_found("project")

    def _sandbox(self, request, name):
        return self._service.find(self._project(request, request.query.get("projectId")), name)

    def _session_of(self, request, session):
        try:
            return self._service.find_session(request.projects, session)
        except Refusal as refusal:
            if request.op in ("run", "logs") and self._settings.gone_session_status == 410:
                raise Refusal(410, "sandbox_stopped", "the sandbox has stopped") from refusal
            raise

    def _usable(self, request, session):
        found = self._session_of(request, session)
        self._service.check_usable(found)
        return found

    # Writing replies.

    def _json(self, value, **more):
        return Reply(json.dumps(value, ensure_ascii=self._settings.ascii_json).encode(), **more)

    def _show(self, sandbox):
        return sandbox.show(coarse=self._settings.sandbox_status == "coarse")

    def _whole(self, sandbox, **more):
        with self._service.lock:
            return self._json({"sandbox": self._show(sandbox), "session": sandbox.session.show(),
                               "routes": sandbox.routes(), **more})

    def _page(self, request, name, items, key, show):
        """A page of ITEMS, which are in order; the cursor is what the last one of the page before has as KEY."""
        limit = request.query.get("limit", "20")
        if not limit.isdigit() or not 1 <= int(limit) <= self._settings.highest_limit:
            raise bad_request(f"'limit' must be from 1 to {self._settings.highest_limit}")
        start = 0
        if "cursor" in request.query:
            keys = [key(item) for item in items]
            try:
                start = keys.index(_open_cursor(request.query["cursor"])) + 1
            except ValueError as error:
                raise bad_request("'cursor' is not valid") from error
        page = items[start:start + int(limit)]
        more = start + len(page) < len(items)
        following = _make_cursor(key(page[-1])) if more and page else None
        if request.fault and request.fault.empty_page:
            page, following = [], request.query.get("cursor") or _make_cursor("")
            request.fault.did_bite = True
        if request.fault and request.fault.same_cursor and (following or request.query.get("cursor")):
            following = request.query.get("cursor") or following
            request.fault.did_bite = True
        return self._json({name: [show(item) for item in page],
                           "pagination": {"count": len(page), "next": following}})

    # Sandboxes.

    def _create(self, request, version):
        body = self._members(request, CREATE)
        project = self._project(request, body.pop("projectId", None))
        self._check_config(body)
        if "runtime" in body and ("image" in body or version != "2"):
            raise bad_request("'runtime' goes with v2 and with no image")
        if "image" in body and version != "3":
            raise bad_request("'image' goes with v3")
        source = body.pop("source", None)
        snapshot = None
        if source is not None:
            if source.get("type") != "snapshot" or not isinstance(source.get("snapshotId"), str):
                raise bad_request("the simulated service knows sources of type 'snapshot' only")
            snapshot = self._service.find_snapshot([project], source["snapshotId"])
            if not snapshot.is_usable():
                raise Refusal(410, "snapshot_not_found", "the snapshot does not exist any more")
        return self._whole(self._service.create(project, body, snapshot))

    def _fork(self, request, name):
        source = self._sandbox(request, name)
        body = self._members(request, FORK)
        self._check_config(body)
        config = {**source.config, **body}
        if "name" not in body:
            config.pop("name")
        if "image" in body:
            config.pop("runtime", None)
        snapshot = source.snapshot
        if snapshot is not None and not snapshot.is_usable():
            raise Refusal(410, "snapshot_not_found", "the snapshot does not exist any more")
        return self._whole(self._service.create(source.project, config, snapshot))

    def _get(self, request, name):
        return self._whole(self._sandbox(request, name))

    def _resume(self, request, name):
        sandbox = self._sandbox(request, name)
        return self._whole(sandbox, resumed=self._service.resume(sandbox, request.is_gone))

    def _update(self, request, name):
        sandbox = self._sandbox(request, name)
        body = self._members(request, UPDATE, nullable=REMOVABLE)
        self._check_config({key: value for key, value in body.items() if value is not None})
        snapshot_id = body.pop("currentSnapshotId", None)
        snapshot = self._service.find_snapshot([sandbox.project], snapshot_id) if snapshot_id else None
        with self._service.lock:
            sandbox.config.update(body)
            for key in REMOVABLE:
                if key in body and body[key] is None:
                    del sandbox.config[key]
            sandbox.snapshot = snapshot or sandbox.snapshot
            sandbox.updated_at = model.now_ms()
            return self._json({"sandbox": self._show(sandbox), "routes": sandbox.routes()})

    def _delete(self, request, name):
        sandbox = self._sandbox(request, name)
        self._service.delete(sandbox, request.query.get("deleteOrphanSnapshots") == "true")
        return self._json({"sandbox": self._show(sandbox)})

    def _list(self, request):
        query = request.query
        project = self._project(request, query.get("project"))
        sort_by = query.get("sortBy", "createdAt")
        keys = {"createdAt": lambda one: (one.created_at, one.name), "name": lambda one: (one.name,),
                "statusUpdatedAt": lambda one: (one.status_updated_at, one.name)}
        if sort_by not in keys or query.get("sortOrder", "desc") not in ("asc", "desc"):
            raise bad_request("'sortBy' or 'sortOrder' is not known")
        if "namePrefix" in query and sort_by != "name":
            raise bad_request("'namePrefix' goes with sortBy=name")
        tag = query.get("tags")
        if tag is not None and ":" not in tag:
            raise bad_request("'tags' must be KEY:VALUE")
        key, _, value = (tag or "").partition(":")
        with self._service.lock:
            items = [one for one in self._service.sandboxes.values()
                     if one.project == project and one.name.startswith(query.get("namePrefix", ""))
                     and (tag is None or one.config.get("tags", {}).get(key) == value)]
            items.sort(key=keys[sort_by], reverse=query.get("sortOrder", "desc") == "desc")
            return self._page(request, "sandboxes", items, lambda one: one.name, self._show)

    # Sessions.

    def _list_sessions(self, request):
        project = self._project(request, request.query.get("project"))
        with self._service.lock:
            items = [one for one in self._service.sessions.values() if one.sandbox.project == project
                     and not one.is_deleted and one.sandbox.name == request.query.get("name", one.sandbox.name)]
            if request.query.get("sortOrder", "desc") == "desc":
                items.reverse()
            return self._page(request, "sessions", items, lambda one: one.id, model.Session.show)

    def _session(self, request, session):
        with self._service.lock:
            found = self._session_of(request, session)
            return self._json({"session": found.show(), "routes": found.sandbox.routes()})

    def _stop(self, request, session):
        found = self._session_of(request, session)
        with self._service.lock:
            if found.status in model.ENDING and self._settings.stop_while_stopping != 200:
                self._service.check_usable(found)
            if found.status in model.ENDED and self._settings.stop_again != 200:
                self._service.check_usable(found)
        self._service.stop(found)
        if self._settings.stop_blocks:
            self._service.wait(lambda: found.status in model.ENDED, request.is_gone)
        with self._service.lock:
            is_kept = found.status == "stopped" and found.snapshot is not None
            return self._json(present(session=found.show(), snapshot=found.snapshot.show() if is_kept else None,
                                      sandbox=self._show(found.sandbox) if is_kept else None))

    def _extend(self, request, session):
        duration = self._members(request, {"duration": _integer(1000)}, ["duration"])["duration"]
        with self._service.lock:
            found = self._usable(request, session)
            self._check_config({"timeout": found.timeout + duration})
            found.timeout += duration
            found.updated_at = model.now_ms()
            return self._json({"session": found.show()})

    def _policy(self, request, session):
        policy = self._members(request, {"mode": str, "allow": lambda _: None, "subnets": dict})
        wrong = _policy(policy)
        if wrong:
            raise bad_request(f"the network policy {wrong}")
        with self._service.lock:
            found = self._usable(request, session)
            found.policy = model.shown_policy(policy)
            return self._json({"session": found.show()})

    def _snapshot(self, request, session):
        expiration = self._members(request, {"expiration": _integer(0)}).get("expiration")
        found = self._usable(request, session)
        self._service.stop(found, keep=True, method="manual")
        self._service.wait(lambda: found.status in model.ENDED, request.is_gone)
        with self._service.lock:
            if found.snapshot is None:
                raise Refusal(500, "internal_error", "the snapshot could not be made")
            if expiration is not None:
                found.snapshot.expires_at = model.now_ms() + expiration if expiration else None
            return self._json({"snapshot": found.snapshot.show(), "session": found.show()})

    # Commands.

    def _run(self, request, session):
        body = self._members(request, RUN, ["command"])
        for word in (body["command"], *body.get("args", []), *body.get("env", {}), *body.get("env", {}).values()):
            if "\0" in word or not word.isascii() and any("\ud800" <= one <= "\udfff" for one in word):
                raise bad_request("a word has a NUL or half of a surrogate pair in it")
        found = self._session_of(request, session)
        command = self._service.run(found, body["command"], body.get("args", []), body.get("cwd"),
                                    body.get("env", {}), body.get("timeout"))
        if not body.get("wait"):
            return self._json({"command": command.show()})
        reply = Reply(self._follow(request, command, body.get("logs", False)), type=NDJSON)
        reply.on_leave = lambda: self._leave(found, command)
        return self._end_stream(reply, command)

    def _leave(self, session, command):
        if self._settings.leaving_kills:
            self._service.kill(session, command)

    def _follow(self, request, command, with_output):
        yield command.line(exitCode=None)
        if with_output:
            yield from command.output(request.is_gone)
        if command.wait(request.is_gone) and not command.lost:
            yield command.line()

    def _end_stream(self, reply, command):
        """What a stream ends with when its session does."""
        lines = reply.body

        def with_end():
            yield from lines
            if command.lost and self._settings.stop_ends_streams == "error":
                yield b'{"stream":"error","data":{"code":"sandbox_stopped","message":"the sandbox has stopped"}}\n'
            reply.ends_with_reset = command.lost and self._settings.stop_ends_streams == "reset"

        reply.body = with_end()
        return reply

    def _list_commands(self, request, session):
        found = self._usable(request, session)
        with self._service.lock:
            return self._json({"commands": [command.show() for command in found.commands.values()]})

    def _get_command(self, request, session, command):
        found = self._service.find_command(self._session_of(request, session), command)
        if request.query.get("wait") == "true" and not found.wait(request.is_gone):
            raise Refusal(410, "sandbox_stopped", "the sandbox has stopped")
        return self._json({"command": found.show()})

    def _logs(self, request, session, command):
        found = self._service.find_command(self._session_of(request, session), command)
        return self._end_stream(Reply(found.output(request.is_gone), type=NDJSON), found)

    def _kill(self, request, session, command):
        number = self._members(request, {"signal": _integer(1, 64)}, ["signal"])["signal"]
        where = self._session_of(request, session)
        found = self._service.find_command(where, command)
        if found.exit_code is not None:
            if self._settings.kill_ended_status != 200:
                raise Refusal(self._settings.kill_ended_status, "command_not_running", "the command has ended")
        self._service.kill(where, found, number, self._settings.kill_reaches == "group")
        return self._json({"command": found.show()})

    # Files.

    def _write(self, request, session):
        if request.type != "application/gzip":
            raise bad_request("content type must be application/gzip")
        where = request.headers.get("x-cwd") or "."
        found = self._usable(request, session)
        try:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(request.body))) as archive:
                for member in archive:
                    self._unpack(archive, member, self._service.locate(found, where, member.name))
        except (tarfile.TarError, EOFError, OSError) as error:
            raise bad_request(f"the archive cannot be unpacked: {error}") from error
        return self._json({})

    @staticmethod
    def _unpack(archive, member, path):
        if member.isdir():
            os.makedirs(path, exist_ok=True)
        elif member.isfile():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.extractfile(member).read())
            os.chmod(path, stat.S_IMODE(member.mode))
        else:
            raise bad_request(f"'{member.name}' is neither a file nor a directory")

    def _read(self, request, session):
        body = self._members(request, {"path": str, "cwd": str}, ["path"])
        path = self._service.locate(self._usable(request, session), body.get("cwd") or ".", body["path"])
        try:
            with open(path, "rb") as file:
                return Reply(file.read(), type="application/octet-stream")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise not_found("file") from error
        except OSError as error:
            raise bad_request(str(error.strerror)) from error

    def _mkdir(self, request, session):
        body = self._members(request, {"path": str, "cwd": str, "recursive": bool}, ["path"])
        path = self._service.locate(self._usable(request, session), body.get("cwd") or ".", body["path"])
        try:
            if body.get("recursive", self._settings.mkdir_is_recursive):
                os.makedirs(path, exist_ok=True)
            else:
                os.mkdir(path)
        except OSError as error:
            raise bad_request(str(error.strerror)) from error
        return self._json({})

    # Snapshots.

    def _list_snapshots(self, request):
        project = self._project(request, request.query.get("project"))
        with self._service.lock:
            items = [one for one in self._service.snapshots.values() if one.project == project
                     and one.status == "created" and one.sandbox == request.query.get("name", one.sandbox)]
            if request.query.get("sortOrder", "desc") == "desc":
                items.reverse()
            return self._page(request, "snapshots", items, lambda one: one.id, model.Snapshot.show)

    def _get_snapshot(self, request, snapshot):
        return self._json({"snapshot": self._service.find_snapshot(request.projects, snapshot).show()})

    def _delete_snapshot(self, request, snapshot):
        with self._service.lock:
            found = self._service.find_snapshot(request.projects, snapshot)
            self._service.delete_snapshot(found)
            return self._json({"snapshot": found.show()})


def _make_cursor(key):
    """Opaque, and with all that has to be encoded in an address."""
    return "+/&=?%" + base64.b64encode(key.encode()).decode()


def _open_cursor(cursor):
    return base64.b64decode(cursor.removeprefix("+/&=?%")).decode()
