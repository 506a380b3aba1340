"""The service's strings, pulled from another process: JSON over HTTP on a port of its own.

    GET /truth         what there is: url, token, team, project, settings, sandboxes, sessions, snapshots, commands
    GET /requests      all requests so far
    DELETE /requests   forgets them
    POST /faults       {"op":"create","status":503,"nth":2}: as Cloud.fault(); the reply has its number
    GET /faults        what became of them
    DELETE /faults     nothing is wrong any more
    POST /release      {"fault":0}: lets go of the calls that it holds
    POST /settings     {"pending_ms":500}; "forever" is a duration
    POST /do           {"what":"stop_session","name":"demo"}: stop_session, break_session, delete_sandbox, resume,
                       lose_snapshot, make_sandbox (with members of a create), make_oidc_token, revoke
"""

import base64
import dataclasses
import http.server
import json
import threading

from .settings import FOREVER

_DEEDS = ("stop_session", "break_session", "delete_sandbox", "resume", "lose_snapshot", "make_sandbox",
          "make_oidc_token", "revoke")
_PRIVATE = ("account", "projects", "fault", "is_gone", "words")


class Control:
    def __init__(self, cloud, port=0):
        self._cloud = cloud
        self._faults = []
        control = self

        class Handler(_Handler):
            control_of = control

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.address = "http://127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method, path, body):
        name = method.lower() + path.replace("/", "_")
        if name not in ("get_truth", "get_requests", "delete_requests", "post_faults", "get_faults", "delete_faults",
                        "post_release", "post_settings", "post_do"):
            raise LookupError(f"{method} {path}: no such thing")
        return getattr(self, "_" + name)(**body)

    def _get_truth(self):
        cloud = self._cloud
        return {"url": cloud.url, "control": self.address, "token": cloud.token, "team": cloud.team,
                "project": cloud.project,
                "settings": {name: "forever" if value == FOREVER else value
                             for name, value in dataclasses.asdict(cloud.settings).items()},
                "sandboxes": cloud.sandboxes, "sessions": cloud.sessions, "snapshots": cloud.snapshots,
                "commands": cloud.commands}

    def _get_requests(self):
        shown = []
        for request in self._cloud.requests:
            one = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)
                   if field.name not in _PRIVATE}
            one["body"] = request.body.decode(errors="replace")
            shown.append(one)
        return shown

    def _delete_requests(self):
        self._cloud.forget_requests()

    def _post_faults(self, **members):
        self._faults.append(self._cloud.fault(**members))
        return {"fault": len(self._faults) - 1}

    def _get_faults(self):
        return [{"op": fault.op, "hits": fault.hits, "did_bite": fault.did_bite} for fault in self._faults]

    def _delete_faults(self):
        self._cloud.clear_faults()
        self._faults.clear()

    def _post_release(self, fault):
        self._faults[fault].release()

    def _post_settings(self, **values):
        self._cloud.set(**values)

    def _post_do(self, what, **arguments):
        if what not in _DEEDS:
            raise LookupError(f"{what}: no such deed")
        return getattr(self._cloud, what)(**arguments)


class _Handler(http.server.BaseHTTPRequestHandler):
    control_of = None

    def log_message(self, *_):
        pass

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            reply, status = self.control_of.answer(self.command, self.path, json.loads(body or b"{}")), 200
        except Exception as error:  # whatever it is: the caller shall read it
            reply, status = {"error": f"{type(error).__name__}: {error}"}, 400
        data = json.dumps(reply, default=_show).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve


def _show(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
