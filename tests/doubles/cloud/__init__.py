"""The hosted sandbox service, simulated on this machine for tests: see README.md.

    with Cloud(images={"ad-desktop": "/dir/with/agent-desktop-run"}) as cloud:
        ...cloud.url, cloud.token, cloud.team, cloud.project...
"""

import atexit
import base64
import dataclasses
import json
import secrets
import tempfile
import time

from .calls import Calls
from .faults import Fault, Faults
from .server import PREFIX, Request, Server
from .service import Service, make_id
from .settings import FOREVER, Settings

__all__ = ["Cloud", "Account", "Fault", "Request", "FOREVER", "wait_until"]


def wait_until(condition, seconds=10, what="the condition"):
    """The first true value of CONDITION(); the bound only ends a test that has failed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"{what} did not come true within {seconds} s")


@dataclasses.dataclass(eq=False)
class Account:
    """A token, and what it is good for."""

    token: str
    team: str
    project: str
    is_oidc: bool = False
    expires_at: float = FOREVER  # seconds since the epoch


class Cloud:
    """A service of its own: nothing of it is left after close(), or after the end of the test's process."""

    def __init__(self, port=0, control=False, token=None, team=None, project=None, **values):
        """CONTROL: the second server, with which other processes set and see what tests in this one can. VALUES:
        settings (settings.py)."""
        self.settings = Settings()
        self.settings.change(**values)
        self.team = team or make_id("team")
        self.project = project or make_id("prj")
        self.token = token or secrets.token_urlsafe(18)
        self.faults = Faults()
        self._accounts = {}
        self.add_account(self.token, self.team, self.project)
        self._service = Service(self.settings, tempfile.mkdtemp(prefix="simulated-cloud-"))
        self.calls = Calls(self._service)
        self._server = Server(self, port)
        self.url = self._server.address + PREFIX
        self.control_url = None
        self._control = None
        if control is not False:
            from .control import Control
            self._control = Control(self, 0 if control is True else control)
            self.control_url = self._control.address
        atexit.register(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        atexit.unregister(self.close)
        if self._server is None:
            return
        self.faults.clear()
        self._server.close()
        if self._control:
            self._control.close()
        self._service.close()
        self._server = None

    # Who may ask.

    def add_account(self, token, team, project):
        """A token for a project, and the project. An access token is good for all projects of its team."""
        self._accounts[token] = Account(token, team, project)
        return self._accounts[token]

    def make_oidc_token(self, seconds=12 * 3600, team=None, project=None, good_for=None):
        """A JWT that says that it expires in SECONDS; the service takes it for so long too, or for GOOD_FOR."""
        claims = {"owner_id": team or self.team, "project_id": project or self.project,
                  "iat": int(time.time()), "exp": int(time.time() + seconds), "jti": secrets.token_hex(8)}
        parts = [{"alg": "RS256", "typ": "JWT"}, claims]
        token = ".".join([*(_encode(json.dumps(part).encode()) for part in parts), _encode(secrets.token_bytes(32))])
        self._accounts[token] = Account(token, claims["owner_id"], claims["project_id"], True,
                                        time.time() + (seconds if good_for is None else good_for))
        return token

    def revoke(self, token=None):
        """From now on the token is worth nothing."""
        del self._accounts[token or self.token]

    def find_account(self, token):
        account = self._accounts.get(token)
        return account if account and time.time() < account.expires_at else None

    def projects_of(self, account):
        if account.is_oidc:
            return [(account.team, account.project)]
        return list({(one.team, one.project) for one in list(self._accounts.values()) if one.team == account.team})

    # Settings and faults.

    def set(self, **values):
        self.settings.change(**values)

    def fault(self, op, always=False, nth=None, first=None, **members):
        """From now on some calls go wrong (faults.py): the next one, the NTH (from 1), the FIRST so many, or all."""
        if always:
            members["times"] = None
        if nth is not None:
            members["skip"] = nth - 1
        if first is not None:
            members["times"] = first
        return self.faults.add(Fault(op, **members))

    def clear_faults(self):
        self.faults.clear()

    # What was asked.

    @property
    def requests(self):
        return list(self._server.requests)

    def requests_of(self, *ops):
        return [request for request in self.requests if request.op in ops]

    def forget_requests(self):
        self._server.requests.clear()

    # What there is.

    @property
    def sandboxes(self):
        """Those of the project, by name, as the service shows them; with `session`."""
        return self.list_sandboxes(self.team, self.project)

    def list_sandboxes(self, team, project):
        with self._service.lock:
            return {one.name: {**one.show(), "session": one.session.show(), "env": one.config.get("env", {})}
                    for one in self._service.sandboxes.values() if one.project == (team, project)}

    @property
    def sessions(self):
        """All that ever were, by id; those of deleted sandboxes too."""
        with self._service.lock:
            return {one.id: {**one.show(), "sandbox": one.sandbox.name, "deleted": one.is_deleted}
                    for one in self._service.sessions.values()}

    @property
    def snapshots(self):
        """Those that are kept, by id."""
        with self._service.lock:
            return {one.id: {**one.show(), "sandbox": one.sandbox} for one in self._service.snapshots.values()
                    if one.status == "created"}

    @property
    def commands(self):
        """All that ever ran, in order; with `pid` on this machine, and whether their session has ended (`lost`)."""
        with self._service.lock:
            return [{**command.show(), "pid": command.pid, "lost": command.lost}
                    for session in self._service.sessions.values() for command in session.commands.values()]

    def count_runs(self, name=None):
        return sum(1 for command in self.commands if name in (None, command["name"]))

    def disk(self, name):
        """The directory that is the disk of a sandbox that runs."""
        return self._service.find((self.team, self.project), name).directory

    # What happens without a request of the client under test.

    def make_sandbox(self, name, **config):
        """Somebody makes one; CONFIG: members of a create."""
        with self._service.lock:
            return self._service.create((self.team, self.project), {"name": name, **config}).show()

    def _session(self, name):
        return self._service.find((self.team, self.project), name).session

    def stop_session(self, name):
        """It is stopped elsewhere, or times out."""
        self._service.stop(self._session(name))

    def break_session(self, name, status="failed"):
        """The service loses it: failed, aborted."""
        self._service.abort(self._session(name), status)

    def resume(self, name):
        """Somebody else starts it."""
        return self._service.resume(self._service.find((self.team, self.project), name))

    def delete_sandbox(self, name):
        self._service.delete(self._service.find((self.team, self.project), name), with_snapshots=True)

    def lose_snapshot(self, name):
        """The snapshot that it would be resumed from expires."""
        with self._service.lock:
            self._service.find((self.team, self.project), name).snapshot.expires_at = 1

    def wait_for(self, name, status, seconds=10):
        wait_until(lambda: self.sandboxes[name]["session"]["status"] == status, seconds, f"'{name}' {status}")


def _encode(part):
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()
