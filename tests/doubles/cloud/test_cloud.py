"""The simulated hosted service itself: what it does, what it refuses, and each way in which it misbehaves."""

import gzip
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from cloud import FOREVER, Cloud, wait_until  # noqa: E402

NDJSON = "application/x-ndjson"


class Answer:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines() if line.strip()]

    @property
    def code(self):
        return self.json["error"]["code"]


class Client:
    """What a client sends; each request on a connection of its own."""

    def __init__(self, cloud, token=None, team=None, project=None):
        self._address = urllib.parse.urlsplit(cloud.url)
        self.token, self.team, self.project = token or cloud.token, team or cloud.team, project or cloud.project

    def open(self, method, path, body=None, query=(), headers=(), timeout=10):
        connection = http.client.HTTPConnection(self._address.hostname, self._address.port, timeout=timeout)
        words = urllib.parse.urlencode({"teamId": self.team, **dict(query)})
        head = {"Authorization": "Bearer " + self.token, **dict(headers)}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if isinstance(body, bytes):
            head.setdefault("Content-Type", "application/json")
        connection.request(method, f"{self._address.path}{path}?{words}", body, head)
        return connection

    def call(self, *words, **more):
        connection = self.open(*words, **more)
        try:
            response = connection.getresponse()
            return Answer(response, response.read())
        finally:
            connection.close()

    def create(self, name="demo", version=3, **config):
        return self.call("POST", f"/v{version}/sandboxes", {"projectId": self.project, "name": name, **config})

    def get(self, name="demo", resume=None):
        return self.call("GET", "/v2/sandboxes/" + urllib.parse.quote(name, safe=""),
                         query={"projectId": self.project, **({"resume": resume} if resume else {})})

    def delete(self, name="demo", **query):
        return self.call("DELETE", "/v2/sandboxes/" + name, query={"projectId": self.project, **query})

    def fork(self, source="demo", **config):
        return self.call("POST", f"/v2/sandboxes/{source}/fork", config, query={"projectId": self.project})

    def list(self, **query):
        return self.call("GET", "/v2/sandboxes", query={"project": self.project, **query})

    def of(self, session, path, body=None, method="POST", **more):
        return self.call(method, f"/v2/sandboxes/sessions/{session}{path}", body, **more)

    def stop(self, session):
        return self.of(session, "/stop")

    def run(self, session, *words, **more):
        """Waits for a command; its stream."""
        return self.of(session, "/cmd", {"command": words[0], "args": list(words[1:]), "wait": True, "logs": True,
                                         **more})

    def sh(self, session, script, **more):
        return self.run(session, "sh", "-c", script, **more)

    def start(self, session, *words, **more):
        """A detached command; its id."""
        answer = self.of(session, "/cmd", {"command": words[0], "args": list(words[1:]), **more})
        return answer.json["command"]["id"]

    def wait(self, session, command):
        return self.of(session, f"/cmd/{command}", method="GET", query={"wait": "true"})


def output(answer, stream="stdout"):
    return "".join(line["data"] for line in answer.lines if line.get("stream") == stream)


class CloudTest(unittest.TestCase):
    settings = {}

    def setUp(self):
        self.cloud = Cloud(**self.settings)
        self.addCleanup(self.cloud.close)
        self.client = Client(self.cloud)

    def create(self, name="demo", **config):
        """The id of its session."""
        answer = self.client.create(name, **config)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json["session"]["id"]

    def refused(self, answer, status, code):
        self.assertEqual((answer.status, answer.code), (status, code), answer.body)


class Sandboxes(CloudTest):
    def test_a_life(self):
        first = self.create(tags={"mine": "1"}, timeout=600000)
        self.client.sh(first, "echo kept >file; ln -s file link; chmod 700 file")
        stopped = self.client.stop(first).json
        self.assertEqual(stopped["session"]["status"], "stopped")
        self.assertEqual(stopped["sandbox"]["currentSnapshotId"], stopped["snapshot"]["id"])
        self.refused(self.client.run(first, "true"), 410, "sandbox_stopped")
        looked = self.client.get().json
        self.assertEqual((looked["sandbox"]["status"], looked["session"]["id"]), ("stopped", first))
        self.assertNotIn("expiresAt", looked["sandbox"])
        resumed = self.client.get(resume="true").json
        second = resumed["session"]["id"]
        self.assertTrue(resumed["resumed"])
        self.assertNotEqual(second, first)
        self.assertEqual(resumed["session"]["sourceSnapshotId"], stopped["snapshot"]["id"])
        self.assertEqual(output(self.client.sh(second, "cat link; stat -c %a file")), "kept\n700\n")
        again = self.client.get(resume="true").json
        self.assertEqual((again["resumed"], again["session"]["id"]), (False, second))
        self.assertEqual(again["sandbox"]["expiresAt"], again["session"]["startedAt"] + 600000)
        self.assertEqual(self.client.delete().status, 200)
        self.refused(self.client.get(), 404, "not_found")
        self.refused(self.client.delete(), 404, "not_found")
        looks = [one.op for one in self.cloud.requests_of("get", "resume")]
        self.assertEqual(looks, ["get", "resume", "resume", "get"])

    def test_what_is_not_persistent_loses_its_disk(self):
        session = self.create(persistent=False)
        self.client.sh(session, "touch file")
        self.assertEqual(set(self.client.stop(session).json), {"session"})
        session = self.client.get(resume="true").json["session"]["id"]
        self.assertEqual(output(self.client.run(session, "ls")), "")

    def test_a_name_is_taken_in_its_project_alone(self):
        self.create()
        self.refused(self.client.create(), 400, "bad_request")
        self.cloud.set(name_taken_status=409)
        self.refused(self.client.create(), 409, "conflict")
        self.cloud.add_account("other", self.cloud.team, "prj_other")
        self.assertEqual(Client(self.cloud, "other", project="prj_other").create().status, 200)
        self.assertEqual(list(self.cloud.sandboxes), ["demo"])

    def test_what_a_create_may_not_say(self):
        for wrong in ({"name": "a b"}, {"name": "x" * 129}, {"timeout": None}, {"timeout": "1"}, {"unheard": 1},
                      {"resources": {"vcpus": 3}}, {"ports": list(range(16))}, {"env": {"A": 1}}, {"persistent": 1},
                      {"tags": dict.fromkeys("abcdef", "x")}, {"keepLastSnapshots": {"count": 11}},
                      {"runtime": "node24"}, {"region": "iad1", "failoverRegions": ["iad1"]},
                      {"source": {"type": "snapshot"}}, {"networkPolicy": {"mode": "some"}}):
            with self.subTest(wrong):
                self.refused(self.client.create(**wrong), 400, "bad_request")
        self.refused(self.client.create(version=2, runtime="node24", image="ad-desktop"), 400, "bad_request")
        self.refused(self.client.create(timeout=25 * 3600 * 1000), 400, "sandbox_timeout_invalid")
        self.refused(self.client.create(image="unheard"), 404, "not_found")
        self.assertEqual(self.client.create("legacy", version=2, runtime="node24").status, 200)
        self.assertEqual(list(self.cloud.sandboxes), ["legacy"])
        self.cloud.set(strict=False)
        self.assertEqual(self.client.create(unheard=1, timeout=None).status, 200)

    def test_images_by_any_way_to_write_them(self):
        for number, image in enumerate(("ad-desktop", "ad-desktop:1.0", "team/project/ad-desktop:latest",
                                        "vcr.vercel.com/team/project/ad-desktop", "ad-desktop@sha256:" + "0" * 64)):
            shown = self.client.create(f"demo{number}", image=image).json["sandbox"]["image"]
            self.assertRegex(shown, r"ad-desktop@sha256:[0-9a-f]{64}$")

    def test_fork_takes_the_last_snapshot_not_the_disk(self):
        session = self.create(env={"WHO": "source"}, tags={"a": "1"}, timeout=700000)
        bare = self.client.fork(name="bare").json
        self.assertEqual(output(self.client.run(bare["session"]["id"], "ls")), "")
        self.client.sh(session, "echo saved >file")
        self.client.stop(session)
        session = self.client.get(resume="true").json["session"]["id"]
        self.client.sh(session, "echo later >file")
        fork = self.client.fork(name="fork", tags={"b": "2"}).json
        self.assertEqual((fork["sandbox"]["tags"], fork["sandbox"]["timeout"]), ({"b": "2"}, 700000))
        self.assertEqual(fork["sandbox"]["currentSnapshotId"], fork["session"]["sourceSnapshotId"])
        self.assertEqual(output(self.client.sh(fork["session"]["id"], "cat file; echo $WHO")), "saved\nsource\n")
        self.refused(self.client.fork("nobody", name="x"), 404, "not_found")
        self.refused(self.client.fork(name="fork"), 400, "bad_request")

    def test_delete_leaves_snapshots_or_takes_those_that_nobody_needs(self):
        session = self.create()
        self.client.stop(session)
        self.client.delete()
        self.assertEqual(len(self.cloud.snapshots), 1)
        session = self.create("source")
        self.client.stop(session)
        self.client.fork("source", name="fork")
        self.client.delete("source", deleteOrphanSnapshots="true")
        self.assertEqual(len(self.cloud.snapshots), 2)
        session = self.create("alone")
        self.client.stop(session)
        self.client.delete("alone", deleteOrphanSnapshots="true")
        self.assertEqual(len(self.cloud.snapshots), 2)

    def test_a_running_one_is_deleted_without_complaint(self):
        session = self.create()
        self.client.start(session, "sleep", "1000")
        pid = wait_until(lambda: self.cloud.commands[0]["pid"])
        self.assertEqual(self.client.delete().status, 200)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.refused(self.client.of(session, "", method="GET"), 404, "not_found")
        self.refused(self.client.run(session, "true"), 404, "not_found")
        self.cloud.set(gone_session_status=410)
        self.refused(self.client.run(session, "true"), 410, "sandbox_stopped")

    def test_update(self):
        self.create(tags={"a": "1"}, keepLastSnapshots={"count": 2})
        changed = self.client.call("PATCH", "/v2/sandboxes/demo", {"tags": {"b": "2"}, "keepLastSnapshots": None},
                                   {"projectId": self.cloud.project}).json["sandbox"]
        self.assertEqual(changed["tags"], {"b": "2"})
        self.assertNotIn("keepLastSnapshots", changed)

    def test_nothing_to_resume_from(self):
        session = self.create()
        self.client.stop(session)
        self.cloud.lose_snapshot("demo")
        self.refused(self.client.get(resume="true"), 410, "snapshot_not_found")
        self.assertEqual(self.client.get().status, 200)

    def test_snapshots(self):
        session = self.create()
        self.client.sh(session, "echo x >file")
        made = self.client.of(session, "/snapshot", {"expiration": 0}).json
        self.assertEqual((made["snapshot"]["creationMethod"], made["session"]["status"]), ("manual", "stopped"))
        self.assertNotIn("expiresAt", made["snapshot"])
        path = "/v2/sandboxes/snapshots"
        listed = self.client.call("GET", path, query={"project": self.cloud.project}).json
        self.assertEqual([one["id"] for one in listed["snapshots"]], [made["snapshot"]["id"]])
        one = f"{path}/{made['snapshot']['id']}"
        self.assertEqual(self.client.call("DELETE", one).json["snapshot"]["status"], "deleted")
        self.assertEqual(self.client.call("GET", one).json["snapshot"]["status"], "deleted")
        self.refused(self.client.get(resume="true"), 410, "snapshot_not_found")


class Sessions(CloudTest):
    def test_pending_for_a_while(self):
        self.cloud.set(pending_ms=100)
        session = self.create()
        shown = self.client.get().json["session"]
        self.assertEqual(shown["status"], "pending")
        self.assertNotIn("startedAt", shown)
        self.refused(self.client.run(session, "true"), 422, "sandbox_not_ready")
        self.cloud.wait_for("demo", "running")

    def test_pending_for_ever_or_a_failure_in_the_end(self):
        self.cloud.set(pending_ms=FOREVER)
        self.create("stuck")
        self.cloud.set(pending_ms=20, session_becomes="failed")
        self.create("bad")
        self.cloud.wait_for("bad", "failed")
        self.assertEqual(self.cloud.sandboxes["stuck"]["status"], "pending")

    def test_its_time_is_up(self):
        session = self.create(timeout=800)
        extended = self.client.of(session, "/extend-timeout", {"duration": 1000}).json["session"]
        self.assertEqual(extended["timeout"], 1800)
        self.create("short", timeout=50)
        self.cloud.wait_for("short", "stopped")
        self.assertEqual(len(self.cloud.snapshots), 1)
        self.cloud.wait_for("demo", "stopped")
        ended = self.cloud.sessions[session]
        self.assertGreaterEqual(ended["stoppedAt"] - ended["startedAt"], 1800)
        self.refused(self.client.of(session, "/extend-timeout", {"duration": 1000}), 410, "sandbox_stopped")

    def test_stopping_and_snapshotting(self):
        self.cloud.set(stopping_ms=FOREVER)
        session = self.create()
        self.assertEqual(self.client.stop(session).json["session"]["status"], "stopping")
        self.refused(self.client.run(session, "true"), 422, "sandbox_stopping")
        self.assertEqual(self.client.stop(session).status, 200)
        self.cloud.set(stop_while_stopping=422)
        self.refused(self.client.stop(session), 422, "sandbox_stopping")
        self.cloud.set(resume_while_stopping="refuse")
        self.refused(self.client.get(resume="true"), 422, "sandbox_stopping")
        self.cloud.set(resume_while_stopping="ignore")
        self.assertEqual(self.client.get(resume="true").json["session"]["status"], "stopping")
        self.cloud.set(stopping_ms=50, snapshotting_ms=150, stop_blocks=True, resume_while_stopping="wait")
        second = self.create("second")
        waiting = threading.Thread(target=self.client.stop, args=(second,))
        waiting.start()
        self.cloud.wait_for("second", "snapshotting")
        self.refused(self.client.run(second, "true"), 422, "sandbox_snapshotting")
        self.assertTrue(self.client.get("second", resume="true").json["resumed"])
        waiting.join()
        self.assertEqual(self.client.stop(second).json["session"]["status"], "stopped")
        self.cloud.set(stop_again=410)
        self.refused(self.client.stop(second), 410, "sandbox_stopped")

    def test_what_it_looks_like_coarsely(self):
        self.cloud.set(sandbox_status="coarse")
        self.create()
        self.cloud.break_session("demo", "aborted")
        shown = self.client.get().json
        self.assertEqual((shown["sandbox"]["status"], shown["session"]["status"]), ("stopped", "aborted"))

    def test_sessions_of_a_sandbox(self):
        self.client.stop(self.create())
        self.client.get(resume="true")
        self.create("other")
        listed = self.client.call("GET", "/v2/sandboxes/sessions",
                                  query={"project": self.cloud.project, "name": "demo"}).json["sessions"]
        self.assertEqual([one["status"] for one in listed], ["running", "stopped"])

    def test_network_policy(self):
        session = self.create()
        shown = self.client.of(session, "/network-policy", {"allow": ["*.example.com"]}).json["session"]
        self.assertEqual(shown["networkPolicy"], {"mode": "custom", "allowedDomains": ["*.example.com"]})


class Commands(CloudTest):
    def setUp(self):
        super().setUp()
        self.session = self.create(env={"FROM": "sandbox", "BOTH": "sandbox"})

    def test_words_arrive_as_they_are(self):
        words = ["", "a b", '"', "'", "\\", "$HOME", "`id`", ";", "*", "\n", "\t", "--", "A=b", "%s", "ü",
                 "x" * 100000]
        stream = self.client.run(self.session, "printf", r"%s\0", *words)
        self.assertEqual(output(stream).split("\0")[:-1], words)

    def test_surroundings(self):
        stream = self.client.sh(self.session, "echo $FROM $BOTH $HOME; pwd; cat; ls /dev/fd/0", env={"BOTH": "command"})
        disk = self.cloud.disk("demo")
        self.assertEqual(output(stream), f"sandbox command {disk}\n{disk}\n/dev/fd/0\n")
        self.client.of(self.session, "/fs/mkdir", {"path": "below", "recursive": False})
        self.assertEqual(output(self.client.run(self.session, "pwd", cwd="below")), f"{disk}/below\n")

    def test_first_and_last_line(self):
        lines = self.client.sh(self.session, "echo out; sleep 0.05; echo err >&2; exit 7").lines
        self.assertEqual(lines[0]["command"]["exitCode"], None)
        self.assertEqual(lines[1:-1], [{"stream": "stdout", "data": "out\n"}, {"stream": "stderr", "data": "err\n"}])
        self.assertEqual(lines[-1]["command"]["exitCode"], 7)
        self.assertEqual(len(self.client.of(self.session, "/cmd", {"command": "echo", "wait": True}).lines), 2)

    def test_programs_of_the_image(self):
        programs = self.cloud.disk("demo") + "/programs"
        os.mkdir(programs)
        with open(programs + "/agent-desktop-run", "w", encoding="ascii") as file:
            file.write('#!/bin/sh\necho "ran $*"\n')
        self.cloud.set(images={"ad-desktop": programs})
        session = self.create("desktop", image="ad-desktop")
        self.refused(self.client.run(session, "agent-desktop-run"), 400, "executable_not_found")
        os.chmod(programs + "/agent-desktop-run", 0o755)
        self.assertEqual(output(self.client.run(session, "agent-desktop-run", "a", "b")), "ran a b\n")
        self.refused(self.client.run(self.session, "agent-desktop-run"), 400, "executable_not_found")
        self.refused(self.client.run(self.session, "echo hello"), 400, "executable_not_found")
        self.assertEqual(self.cloud.count_runs("agent-desktop-run"), 1)

    def test_ends(self):
        for script, status in {"exit 0": 0, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137}.items():
            self.assertEqual(self.client.sh(self.session, script).lines[-1]["command"]["exitCode"], status, script)
        begin = time.monotonic()
        late = self.client.sh(self.session, "trap '' TERM; sleep 30", timeout=100)
        self.assertEqual(late.lines[-1]["command"]["exitCode"], 137)
        self.assertLess(time.monotonic() - begin, 5)

    def test_kill_by_number(self):
        command = self.client.start(self.session, "sh", "-c", "trap 'echo caught; exit 5' USR1; echo ready; "
                                    "while :; do sleep 0.01; done")
        logs = self.client.open("GET", f"/v2/sandboxes/sessions/{self.session}/cmd/{command}/logs")
        stream = logs.getresponse()
        self.assertEqual(json.loads(stream.readline())["data"], "ready\n")
        path = f"/cmd/{command}/kill"
        self.refused(self.client.of(self.session, path, {"signal": "USR1"}), 400, "bad_request")
        self.assertEqual(self.client.of(self.session, path, {"signal": signal.SIGUSR1}).status, 200)
        self.assertEqual(self.client.wait(self.session, command).json["command"]["exitCode"], 5)
        self.assertIn(b"caught", stream.read())
        logs.close()
        self.assertEqual(self.client.of(self.session, path, {"signal": 9}).status, 422)
        self.cloud.set(kill_ended_status=200)
        self.assertEqual(self.client.of(self.session, path, {"signal": 9}).status, 200)

    def test_kill_at_once(self):
        for _ in range(20):
            command = self.client.start(self.session, "sleep", "1000")
            self.assertEqual(self.client.of(self.session, f"/cmd/{command}/kill", {"signal": 15}).status, 200)
            self.assertEqual(self.client.wait(self.session, command).json["command"]["exitCode"], 143)

    def test_kill_reaches_the_group_or_the_process(self):
        for reaches, what in {"group": "", "process": "survived\n"}.items():
            self.cloud.set(kill_reaches=reaches)
            command = self.client.start(self.session, "sh", "-c", f"(until test -e {reaches}; do sleep 0.01; done; "
                                        "echo survived) & echo up; wait")
            self.until_output(command)
            self.client.of(self.session, f"/cmd/{command}/kill", {"signal": 9})
            self.client.run(self.session, "touch", reaches)
            self.client.wait(self.session, command)
            logs = self.client.of(self.session, f"/cmd/{command}/logs", method="GET")
            self.assertEqual(output(logs), "up\n" + what)

    def until_output(self, command):
        connection = self.client.open("GET", f"/v2/sandboxes/sessions/{self.session}/cmd/{command}/logs")
        connection.getresponse().readline()
        connection.close()

    def test_detached(self):
        command = self.client.start(self.session, "sh", "-c", "until test -e go; do sleep 0.01; done; echo gone")
        path = f"/cmd/{command}"
        self.assertIsNone(self.client.of(self.session, path, method="GET").json["command"]["exitCode"])
        self.client.run(self.session, "touch", "go")
        self.assertEqual(self.client.wait(self.session, command).json["command"]["exitCode"], 0)
        for _ in range(2):
            logs = self.client.of(self.session, path + "/logs", method="GET")
            self.assertEqual(logs.headers["Content-Type"], NDJSON)
            self.assertEqual(logs.lines, [{"stream": "stdout", "data": "gone\n"}])
        listed = self.client.of(self.session, "/cmd", method="GET").json["commands"]
        self.assertEqual([one["name"] for one in listed], ["sh", "touch"])
        self.refused(self.client.of(self.session, "/cmd/cmd_none", method="GET"), 404, "not_found")

    def test_output_that_is_no_text(self):
        stream = self.client.run(self.session, "printf", r"\0\377\303\274\360\237\230\200\303")
        self.assertEqual(output(stream), "\0\ufffdü😀\ufffd")
        self.cloud.set(ascii_json=True)
        stream = self.client.run(self.session, "printf", r"\360\237\230\200")
        self.assertIn(rb"\ud83d\ude00", stream.body)
        self.refused(self.client.run(self.session, "echo", "\ud800"), 400, "bad_request")

    def test_much_output_to_one_who_reads_late(self):
        self.cloud.set(backlog_bytes=1 << 20)
        size = 24 << 20
        connection = self.client.open("POST", f"/v2/sandboxes/sessions/{self.session}/cmd", {
            "command": "sh", "args": ["-c", f"head -c {size} /dev/zero | tr '\\0' x; echo done >&2"], "wait": True,
            "logs": True})
        response = connection.getresponse()
        response.readline()
        folder = os.path.join(os.path.dirname(os.path.dirname(self.cloud.disk("demo"))), "output")
        time.sleep(0.2)  # what must not happen: that all of it is read ahead
        self.assertLess(sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)), 20 << 20)
        body = response.read()
        connection.close()
        lines = [json.loads(line) for line in body.splitlines()]
        self.assertEqual(sum(len(line["data"]) for line in lines if line.get("stream") == "stdout"), size)
        self.assertEqual(lines[-1]["command"]["exitCode"], 0)

    def test_what_stays_behind_ends_with_the_session(self):
        self.client.sh(self.session, "setsid sh -c 'echo $$ >one; exec sleep 1000' >/dev/null 2>&1 & "
                       "(setsid sleep 1000 >/dev/null 2>&1 & echo $! >two); until test -s one; do sleep 0.01; done")
        pids = [int(output(self.client.run(self.session, "cat", name))) for name in ("one", "two")]
        for pid in pids:
            os.kill(pid, 0)
        waiting = self.client.open("POST", f"/v2/sandboxes/sessions/{self.session}/cmd",
                                   {"command": "sleep", "args": ["1000"], "wait": True, "logs": True})
        stream = waiting.getresponse()
        stream.readline()
        self.client.stop(self.session)
        self.assertEqual(json.loads(stream.read())["data"]["code"], "sandbox_stopped")
        waiting.close()
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.refused(self.client.of(self.session, f"/cmd/{self.cloud.commands[0]['id']}/logs", method="GET"),
                     410, "sandbox_stopped")

    def test_ends_with_its_pipes_or_its_process(self):
        begin = time.monotonic()
        self.client.sh(self.session, "sleep 0.4 & echo out")
        self.assertGreater(time.monotonic() - begin, 0.35)
        self.cloud.set(command_ends_with="process")
        self.assertEqual(output(self.client.sh(self.session, "sleep 1000 & echo out")), "out\n")

    def test_a_client_that_leaves(self):
        for kills in (False, True):
            self.cloud.set(leaving_kills=kills)
            connection = self.client.open("POST", f"/v2/sandboxes/sessions/{self.session}/cmd",
                                          {"command": "sleep", "args": ["0.7"], "wait": True, "logs": True})
            command = json.loads(connection.getresponse().readline())["command"]["id"]
            connection.close()
            status = self.client.wait(self.session, command).json["command"]["exitCode"]
            self.assertEqual(status, 137 if kills else 0)


class Files(CloudTest):
    def setUp(self):
        super().setUp()
        self.session = self.create()

    def write(self, cwd, **files):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            for name, (content, mode) in files.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), mode
                archive.addfile(member, io.BytesIO(content))
        return self.client.of(self.session, "/fs/write", packed.getvalue(),
                              headers={"Content-Type": "application/gzip", "x-cwd": cwd})

    def read(self, **body):
        return self.client.of(self.session, "/fs/read", body)

    def test_write_and_read(self):
        home = self.cloud.disk("demo")
        long = "d/" * 60 + "ü" * 100
        self.assertEqual(self.write("/", **{home[1:] + "/bin/run": (b"#!/bin/sh\necho ran\n", 0o755),
                                            f"{home[1:]}/{long}": (b"\0\xff", 0o600)}).json, {})
        self.assertEqual(output(self.client.run(self.session, "bin/run")), "ran\n")
        answer = self.read(path=long)
        self.assertEqual((answer.body, answer.headers["Content-Type"]), (b"\0\xff", "application/octet-stream"))
        self.assertEqual(self.read(path="run", cwd=home + "/bin").status, 200)
        self.refused(self.read(path="nothing"), 404, "not_found")

    def test_nothing_is_written_outside_of_the_disk(self):
        self.write("/tmp", **{"../../outside": (b"x", 0o644)})
        self.assertFalse(os.path.exists("/outside"))
        self.assertEqual(self.read(path="/outside").body, b"x")

    def test_what_is_no_archive(self):
        for body, kind in ((b"not gzip", "application/gzip"), (gzip.compress(b"no tar"), "application/gzip"),
                           (b"{}", "application/json")):
            self.refused(self.client.of(self.session, "/fs/write", body, headers={"Content-Type": kind}),
                         400, "bad_request")

    def test_mkdir(self):
        self.refused(self.client.of(self.session, "/fs/mkdir", {"path": "a/b", "recursive": False}), 400, "bad_request")
        self.assertEqual(self.client.of(self.session, "/fs/mkdir", {"path": "a/b"}).status, 200)
        self.cloud.set(mkdir_is_recursive=False)
        self.refused(self.client.of(self.session, "/fs/mkdir", {"path": "c/d"}), 400, "bad_request")


class Access(CloudTest):
    def test_who_may_ask(self):
        self.create()
        for client in (Client(self.cloud, token="other"), Client(self.cloud, team="team_other")):
            self.refused(client.get(), 403, "forbidden")
        self.refused(Client(self.cloud, project="prj_other").get(), 404, "not_found")
        self.refused(self.client.call("GET", "/v2/sandboxes/demo"), 400, "bad_request")
        self.cloud.set(bad_token_status=401)
        self.assertEqual(Client(self.cloud, token="other").list().status, 401)
        self.cloud.add_account("stranger", "team_other", "prj_other")
        stranger = Client(self.cloud, "stranger", "team_other", "prj_other")
        session = self.cloud.sandboxes["demo"]["currentSessionId"]
        self.refused(stranger.of(session, "", method="GET"), 404, "not_found")
        self.cloud.revoke()
        self.assertEqual(self.client.get().status, 401)

    def test_oidc_tokens_expire(self):
        client = Client(self.cloud, self.cloud.make_oidc_token())
        self.assertEqual(client.create().status, 200)
        self.assertEqual(client.call("GET", "/v2/sandboxes/demo").status, 200)
        self.refused(Client(self.cloud, self.cloud.make_oidc_token(seconds=-1)).get(), 403, "forbidden")
        early = Client(self.cloud, self.cloud.make_oidc_token(seconds=3600, good_for=0.05))
        wait_until(lambda: early.get().status == 403, what="the end of the token")

    def test_what_is_not_there(self):
        self.assertEqual(self.client.call("GET", "/v4/sandboxes").status, 404)
        self.assertIn("html", self.client.call("GET", "/../elsewhere").headers["Content-Type"])


class Lists(CloudTest):
    def setUp(self):
        super().setUp()
        for name in ("b1", "a1", "b2", "a2", "c1"):
            self.cloud.make_sandbox(name, tags={"kind": name[0]})

    def names(self, **query):
        found = []
        while True:
            page = self.client.list(**query).json
            found.append([one["name"] for one in page["sandboxes"]])
            self.assertEqual(page["pagination"]["count"], len(found[-1]))
            if page["pagination"]["next"] is None:
                return found
            query["cursor"] = page["pagination"]["next"]

    def test_pages(self):
        self.assertEqual(self.names(limit=2, sortBy="name", sortOrder="asc"), [["a1", "a2"], ["b1", "b2"], ["c1"]])
        self.assertEqual(self.names(limit=5, sortBy="name"), [["c1", "b2", "b1", "a2", "a1"]])
        self.assertEqual(self.names(sortBy="name", namePrefix="b"), [["b2", "b1"]])
        self.assertEqual(sorted(self.names(tags="kind:a")[0]), ["a1", "a2"])
        for wrong in ({"limit": 0}, {"limit": 101}, {"namePrefix": "b"}, {"cursor": "x"}, {"sortBy": "age"},
                      {"tags": "kind"}):
            self.refused(self.client.list(**wrong), 400, "bad_request")

    def test_pages_without_end(self):
        self.cloud.fault("list", nth=2, empty_page=True)
        self.assertEqual(self.names(limit=3, sortBy="name"), [["c1", "b2", "b1"], [], ["a2", "a1"]])
        fault = self.cloud.fault("list", always=True, same_cursor=True)
        first = self.client.list(limit=2).json["pagination"]["next"]
        self.assertEqual(self.client.list(limit=2, cursor=first).json["pagination"]["next"], first)
        self.assertTrue(fault.did_bite)

    def test_a_thousand(self):
        begin = time.monotonic()
        for number in range(1000):
            self.cloud.make_sandbox(f"many-{number:04}")
        self.cloud.set(latency_ms=20)
        pages = self.names(limit=100, sortBy="name", namePrefix="many-")
        self.assertEqual([len(page) for page in pages], [100] * 10)
        self.assertLess(time.monotonic() - begin, 20)


class Misbehaviour(CloudTest):
    def setUp(self):
        super().setUp()
        self.session = self.create()
        self.cloud.forget_requests()

    def raw(self, path="/v2/sandboxes/demo", method="GET", body=b"", timeout=5.0):
        """(all bytes that came, how it ended): closed, reset, silence for TIMEOUT."""
        address = urllib.parse.urlsplit(self.cloud.url)
        with socket.create_connection((address.hostname, address.port), timeout=timeout) as sock:
            sock.sendall(f"{method} /api{path}?teamId={self.cloud.team}&projectId={self.cloud.project} HTTP/1.1\r\n"
                         f"Host: x\r\nAuthorization: Bearer {self.cloud.token}\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            came = b""
            try:
                while piece := sock.recv(65536):
                    came += piece
            except ConnectionResetError:
                return came, "reset"
            except TimeoutError:
                return came, "silence"
            return came, "closed"

    def create_raw(self, name, timeout):
        body = json.dumps({"projectId": self.cloud.project, "name": name}).encode()
        return self.raw("/v3/sandboxes", "POST", body, timeout)

    def test_statuses(self):
        for status in (401, 402, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504):
            self.cloud.fault("get", status=status)
            self.assertEqual(self.client.get().status, status)
            self.assertEqual(self.client.get().status, 200)
        self.cloud.fault("get", status=429, retry_after=7)
        self.assertEqual(self.client.get().headers["Retry-After"], "7")
        self.cloud.fault("get", status=503, retry_after="Mon, 30 Nov 2026 10:00:00 GMT", body="<html>")
        answer = self.client.get()
        self.assertEqual((answer.headers["Retry-After"][:3], answer.body), ("Mon", b"<html>"))
        self.cloud.fault("get", status=410, code="snapshot_not_found")
        self.refused(self.client.get(), 410, "snapshot_not_found")
        self.cloud.fault("get", status=200, code="internal")
        self.refused(self.client.get(), 200, "internal")
        self.cloud.fault("get", redirect="http://127.0.0.1:9/")
        answer = self.client.get()
        self.assertEqual((answer.status, answer.headers["Location"]), (307, "http://127.0.0.1:9/"))

    def test_which_calls(self):
        self.cloud.fault("get", nth=2, status=500)
        self.cloud.fault("resume", first=2, status=501)
        self.cloud.fault("list", always=True, status=502)
        self.cloud.fault("*", nth=9, status=503)
        self.assertEqual([self.client.get().status for _ in range(3)], [200, 500, 200])
        self.assertEqual([self.client.get(resume="true").status for _ in range(3)], [501, 501, 200])
        self.assertEqual([self.client.list().status for _ in range(3)], [502] * 3)  # the first of two faults
        self.assertEqual(self.client.get().status, 200)
        self.cloud.clear_faults()
        self.assertEqual(self.client.list().status, 200)
        with self.assertRaises(ValueError):
            self.cloud.fault("gett", status=500)

    def test_a_lost_reply_with_and_without_its_effect(self):
        for number, (members, ending) in enumerate((
                ({"reset": "before"}, "reset"), ({"reset": "after"}, "reset"), ({"close": "before"}, "closed"),
                ({"close": "after"}, "closed"), ({"stuck": "before"}, "silence"), ({"stuck": "after"}, "silence"))):
            name = f"new-{number}"
            fault = self.cloud.fault("create", **members)
            self.assertEqual(self.create_raw(name, 0.3 if ending == "silence" else 5), (b"", ending), members)
            happened = "after" in members.values()
            self.assertEqual(name in self.cloud.sandboxes, happened, members)
            self.assertEqual((self.cloud.requests[-1].effect, fault.hits), (happened, 1))
            self.assertIsNone(self.cloud.requests[-1].status)
        self.cloud.fault("create", status=502, effect=True)
        self.assertEqual(self.client.create("behind").status, 502)
        self.assertIn("behind", self.cloud.sandboxes)
        self.assertTrue(self.cloud.requests[-1].effect)

    def test_bodies(self):
        whole = self.raw()[0].partition(b"\r\n\r\n")[2]
        for members, ending in (({"cut": 10}, "closed"), ({"cut": 10, "cut_by": "reset"}, "reset"),
                                ({"cut": 10, "stuck": "body"}, "silence"), ({"cut": 10, "cut_by": "end"}, "closed")):
            fault = self.cloud.fault("get", **members)
            came, how = self.raw(timeout=0.3 if ending == "silence" else 5)
            head, _, body = came.partition(b"\r\n\r\n")
            self.assertEqual((body, how, fault.did_bite), (whole[:10], ending, True))
            self.assertIn(b"Content-Length: %d" % (10 if "end" in members.values() else len(whole)), head)
        fault = self.cloud.fault("get", cut=1 << 20)
        self.assertEqual(self.raw()[0].partition(b"\r\n\r\n")[2], whole)
        self.assertFalse(fault.did_bite)
        self.cloud.fault("get", type="text/html")
        self.assertEqual(self.client.get().headers["Content-Type"], "text/html")
        self.cloud.fault("get", pieces=1)
        self.assertEqual(self.client.get().status, 200)
        self.cloud.fault("get", bytes_per_second=len(whole) * 4)
        begin = time.monotonic()
        self.assertEqual(self.client.get().status, 200)
        self.assertGreater(time.monotonic() - begin, 0.2)
        self.cloud.fault("get", delay_ms=100)
        begin = time.monotonic()
        self.client.get()
        self.assertGreater(time.monotonic() - begin, 0.1)

    def test_lines_of_a_stream(self):
        def run(**members):
            fault = self.cloud.fault("run", **members)
            answer = self.client.run(self.session, "echo", "hello")
            self.assertEqual((answer.status, fault.hits), (200, 1))
            return answer.body, fault

        body, fault = run(drop_last=True)
        self.assertEqual((body.count(b"\n"), fault.did_bite), (2, True))
        self.assertEqual(json.loads(run(null_exit=True)[0].splitlines()[-1])["command"]["exitCode"], None)
        lines = run(error_line="sandbox_stream_closed", after_lines=2)[0].splitlines()
        self.assertEqual((len(lines), json.loads(lines[-1])["data"]["code"]), (3, "sandbox_stream_closed"))
        self.assertEqual(run(insert=b"{garbage\n")[0].splitlines()[1], b"{garbage")
        big = run(big_line=3 << 20)[0].splitlines()
        self.assertEqual((len(big), len(json.loads(big[1])["data"])), (4, 3 << 20))
        self.assertEqual(run(crlf=True)[0].count(b"\r\n"), 3)
        self.assertFalse(run(no_last_newline=True)[0].endswith(b"\n"))
        self.assertEqual(len(run(pieces=1)[0].splitlines()), 3)
        self.assertEqual(len(run(cut=30, cut_by="end")[0]), 30)
        self.assertEqual(self.cloud.count_runs(), 9)

    def test_a_stream_cut_at_every_byte(self):
        body = json.dumps({"command": "echo", "args": ["x"], "wait": True, "logs": True}).encode()
        path = f"/v2/sandboxes/sessions/{self.session}/cmd"
        step, cut = 97, 1
        while True:
            fault = self.cloud.fault("run", cut=cut)
            came, how = self.raw(path, "POST", body)
            self.assertEqual(how, "closed")
            if not fault.did_bite:
                break
            self.assertFalse(came.endswith(b"0\r\n\r\n"))
            cut += step
        self.assertTrue(came.endswith(b"0\r\n\r\n"))

    def test_a_call_that_is_held(self):
        for when in ("before", "after"):
            fault = self.cloud.fault("create", hold=when)
            thread = threading.Thread(target=self.client.create, args=(f"held-{when}",))
            thread.start()
            fault.wait()
            self.assertEqual(f"held-{when}" in self.cloud.sandboxes, when == "after")
            fault.release()
            thread.join()
            self.assertIn(f"held-{when}", self.cloud.sandboxes)

    def test_the_client_dies_while_its_call_is_held(self):
        fault = self.cloud.fault("create", hold="before")
        connection = self.client.open("POST", "/v3/sandboxes", {"projectId": self.cloud.project, "name": "orphan"})
        fault.wait()
        connection.close()
        fault.release()
        wait_until(lambda: "orphan" in self.cloud.sandboxes, what="the effect")

    def test_the_client_dies_over_its_request(self):
        address = urllib.parse.urlsplit(self.cloud.url)
        with socket.create_connection((address.hostname, address.port)) as sock:
            sock.sendall(b"POST /api/v3/sandboxes HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        self.client.get()
        self.assertEqual([one.op for one in self.cloud.requests], ["get"])

    def test_the_log(self):
        self.client.create("logged", tags={"a": "b"})
        request = self.cloud.requests[-1]
        self.assertEqual((request.op, request.method, request.path, request.status, request.effect),
                         ("create", "POST", "/api/v3/sandboxes", 200, True))
        self.assertEqual(request.json["tags"], {"a": "b"})
        self.assertEqual(request.query["teamId"], self.cloud.team)
        self.assertLess(abs(request.at - time.time()), 5)
        self.client.create("logged")
        self.assertEqual((self.cloud.requests[-1].status, self.cloud.requests[-1].effect), (400, False))


class Ends(unittest.TestCase):
    """What is left of it: nothing."""

    def program(self, *words):
        process = subprocess.Popen([sys.executable, "-B", "-m", "doubles.cloud", *words], stdout=subprocess.PIPE,
                                   cwd=os.path.dirname(os.path.dirname(HERE)), text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, json.loads(process.stdout.readline())

    def control(self, told, method, path, body=None):
        address = urllib.parse.urlsplit(told["CONTROL_URL"])
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        value = response.status, json.loads(response.read())
        connection.close()
        return value

    def make_client(self, told):
        class There:
            url, token = told["VERCEL_API_URL"], told["VERCEL_TOKEN"]
            team, project = told["VERCEL_TEAM_ID"], told["VERCEL_PROJECT_ID"]
        return Client(There)

    def start_something(self, client):
        """A process that hides, and a directory."""
        answer = client.create().json
        session, disk = answer["session"]["id"], answer["session"]["cwd"]
        client.sh(session, "setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid")
        with open(disk + "/pid", encoding="ascii") as file:
            return int(file.read()), os.path.dirname(os.path.dirname(disk))

    def nothing_left(self, pid, directory):
        wait_until(lambda: not os.path.exists(f"/proc/{pid}") and not os.path.exists(directory), what="the end of all")

    def test_close(self):
        with Cloud() as cloud:
            pid, directory = self.start_something(Client(cloud))
            cloud.fault("get", stuck="before")
            connection = Client(cloud).open("GET", "/v2/sandboxes/demo")
            wait_until(lambda: cloud.requests_of("get"))
        self.nothing_left(pid, directory)
        connection.close()
        cloud.close()

    def test_its_process_is_killed(self):
        process, told = self.program()
        pid, directory = self.start_something(self.make_client(told))
        process.kill()
        self.nothing_left(pid, directory)

    def test_by_itself_and_its_strings(self):
        process, told = self.program("--image", "ad-desktop", "--set", "pending_ms=0", "--sandboxes", "3",
                                     "--tags", '{"a": "b"}', "--token", "known")
        self.assertEqual(told["VERCEL_TOKEN"], "known")
        client = self.make_client(told)
        self.assertEqual(len(client.list(tags="a:b").json["sandboxes"]), 3)
        self.assertEqual(self.control(told, "POST", "/faults", {"op": "get", "status": 503, "nth": 2}),
                         (200, {"fault": 0}))
        self.assertEqual([client.get("sandbox-00001").status for _ in range(3)], [200, 503, 200])
        self.assertEqual(self.control(told, "GET", "/faults")[1], [{"op": "get", "hits": 1, "did_bite": False}])
        self.control(told, "POST", "/settings", {"stopping_ms": "forever"})
        self.control(told, "POST", "/do", {"what": "stop_session", "name": "sandbox-00001"})
        truth = self.control(told, "GET", "/truth")[1]
        self.assertEqual(truth["sandboxes"]["sandbox-00001"]["status"], "stopping")
        self.assertEqual([one["status"] for one in self.control(told, "GET", "/requests")[1]], [200, 200, 503, 200])
        token = self.control(told, "POST", "/do", {"what": "make_oidc_token"})[1]
        self.assertEqual(token.count("."), 2)
        self.assertEqual(self.control(told, "POST", "/do", {"what": "close"})[0], 400)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(10), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1 if "-v" not in sys.argv else 2)
