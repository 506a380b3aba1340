"""providers/vercel/api.h against the simulated service, which misbehaves (R-501, R-503 to R-505).

Environment (set by CTest): AD_API_DRIVER, the program of api_driver.c; AD_SOURCE.
"""

import concurrent.futures
import email.utils
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

sys.path.insert(0, os.path.join(os.environ["AD_SOURCE"], "tests"))

from doubles.cloud import Cloud, FOREVER, wait_until  # noqa: E402

DRIVER = os.environ["AD_API_DRIVER"]
DEADLINE_MS = 60000  # only ends a test that has failed
SLACK_MS = 5000  # beyond a deadline that is to be met, on a machine that is busy
OURS = {"made-by": "agent-desktop", "agent-desktop": "0123456789abcdef"}
SETTINGS = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "VERCEL_OIDC_TOKEN")


class DateIn:
    """A date for Retry-After, SECONDS from when it is sent."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __str__(self):
        return email.utils.formatdate(time.time() + self.seconds, usegmt=True)


class Service:
    """A simulated service with the sandbox `demo`, which runs, and a client for it."""

    def __init__(self, **settings):
        self.cloud = Cloud(**settings)
        self.cloud.make_sandbox("demo", image="ad-desktop", tags=OURS)
        self.session = self.cloud.sandboxes["demo"]["session"]["id"]
        self.directory = tempfile.TemporaryDirectory(prefix="ad-api-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cloud.close()
        self.directory.cleanup()

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        return {**kept, "VERCEL_API_URL": self.cloud.url, "VERCEL_TOKEN": self.cloud.token,
                "VERCEL_TEAM_ID": self.cloud.team, "VERCEL_PROJECT_ID": self.cloud.project, **more}

    def start(self, *words, stdin=subprocess.DEVNULL, **environment):
        return subprocess.Popen([DRIVER, *map(str, words)], stdin=stdin, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(**environment), cwd=self.directory.name)

    def finish(self, program):
        """What was told of each call. Whatever it was: the token is not in it."""
        with program:
            told, said = program.communicate(timeout=180)
        if program.returncode != 0 or self.cloud.token.lower().encode() in (told + said).lower():
            raise AssertionError(f"the driver ended with {program.returncode}: {told!r} {said!r}")
        return [json.loads(line) for line in told.splitlines()]

    def all(self, *words, **environment):
        return self.finish(self.start(*words, **environment))

    def one(self, call, *words, deadline=DEADLINE_MS, **environment):
        return self.all(call, deadline, *words, **environment)[0]

    def run(self, script, *, call="run", deadline=DEADLINE_MS, **environment):
        return self.one(call, self.session, DEADLINE_MS, "sh", "-c", script, deadline=deadline, **environment)

    def start_command(self, script="sleep 1000"):
        """The id of a command that runs."""
        program = self.start("run", DEADLINE_MS, self.session, DEADLINE_MS, "sh", "-c", script)
        wait_until(lambda: self.cloud.commands, 60)
        program.kill()
        program.communicate()
        return self.cloud.commands[-1]["id"]


class Call:
    """One of the calls of api.h. KIND: `look` changes nothing; `act` may be repeated; `once` must not."""

    def __init__(self, name, op, kind, words):
        self.name, self.op, self.kind, self.words = name, op, kind, words

    def ask(self, service, deadline=DEADLINE_MS):
        return service.one(self.name, *self.words(service), deadline=deadline)

    def requests(self, service):
        return service.cloud.requests_of(self.op)


BODY = json.dumps({"name": "new", "image": "ad-desktop", "persistent": True, "tags": OURS})
LEGACY = json.dumps({"name": "new", "runtime": "node24", "tags": OURS})
FORK = json.dumps({"name": "new", "tags": OURS})


def in_session(service):
    return [service.session]


def on_command(service):
    return [service.session, service.start_command()]


CALLS = [
    Call("get", "get", "look", lambda _: ["demo"]),
    Call("resume", "resume", "act", lambda _: ["demo"]),
    Call("create", "create", "once", lambda _: [BODY]),
    Call("legacy", "create", "once", lambda _: [LEGACY]),
    Call("fork", "fork", "once", lambda _: ["demo", FORK]),
    Call("stop", "stop", "act", in_session),
    Call("delete", "delete", "act", lambda _: ["demo"]),
    Call("list", "list", "look", lambda _: []),
    Call("check", "list", "look", lambda _: []),
    Call("run", "run", "once", lambda service: [service.session, DEADLINE_MS, "true"]),
    Call("logs", "logs", "look", lambda service: [service.session, service.start_command("echo a")]),
    Call("status", "get command", "look", on_command),
    Call("wait", "get command", "look", lambda service: [service.session, service.start_command("true")]),
    Call("kill", "kill", "act", lambda service: [*on_command(service), 9]),
]


class ApiTest(unittest.TestCase):
    maxDiff = None

    def check_each(self, cases, check, threads=12):
        """CHECK(service, *CASE) for all cases, some at a time, each with a service of its own."""
        def run(case):
            try:
                with Service() as service:
                    check(service, *case)
            except Exception:  # also what a test asserts
                return f"{[getattr(one, 'name', one) for one in case]}:\n{traceback.format_exc()}"
            return None

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            failures = [failure for failure in pool.map(run, cases) if failure]
        if failures:
            self.fail(f"{len(failures)} of {len(cases)}\n" + "\n".join(failures[:5]))

    def check_error(self, told, code, delivery, retry=None):
        self.assertEqual((told["ok"], told.get("code"), told.get("delivery")), (False, code, delivery), told)
        self.assertEqual(told["retry"], retry or ("safe" if delivery == "not_delivered" else "unsafe"), told)

    @staticmethod
    def is_cut_off(told, deadline):
        """An attempt was under way when the time was over: on a slow machine it may be the first."""
        return told["elapsed_ms"] >= deadline and told["code"] == "TIMEOUT"

    def check_ended(self, told, deadline, code, acts=True):
        """Refused until the time was over. An attempt that was cut off may have acted, unless it never does."""
        self.assertLess(told["elapsed_ms"], deadline + SLACK_MS)
        if not self.is_cut_off(told, deadline):
            self.check_error(told, code, "not_delivered")
        elif told["delivery"] != "not_delivered":
            self.assertEqual((acts, told["delivery"]), (True, "unknown"), told)

    def check_failed(self, call, told, code="ACTION_FAILED"):
        """What may have had its effect is told apart from what had none."""
        self.check_error(told, code, "not_delivered" if call.kind == "look" else "unknown",
                         "unsafe" if call.kind == "once" else "safe")

    def check_sent(self, call, service, least=1, most=1):
        count = len(call.requests(service))
        self.assertTrue(least <= count <= most, f"{call.name} was sent {count} times")


class RefusalTest(ApiTest):
    def test_r501_credentials_that_are_not_accepted_are_auth_failed_and_never_tried_again(self):
        def check(service, call, status):
            service.cloud.fault(call.op, always=True, status=status)
            told = call.ask(service)
            self.check_error(told, "AUTH_FAILED", "not_delivered")
            self.assertIn("VERCEL_TOKEN", told["message"])
            self.assertIn(str(status), told["message"])
            self.check_sent(call, service)

        self.check_each([(call, status) for call in CALLS for status in (401, 403)], check)

    def test_r501_a_plan_that_does_not_do_is_passed_on_with_the_words(self):
        def check(service, call):
            service.cloud.fault(call.op, always=True, status=402, message="the plan does not do")
            told = call.ask(service)
            self.check_error(told, "PROVIDER_UNAVAILABLE", "not_delivered")
            self.assertIn("the plan does not do", told["message"])
            self.assertIn("plan", told["suggestion"])
            self.check_sent(call, service)

        self.check_each([(call,) for call in CALLS], check)

    def check_noes(self, status, code, expected):
        """EXPECTED: by call, what is found (`start` of a run), `refused`; None or no entry: an error."""
        def check(service, call):
            service.cloud.fault(call.op, always=True, status=status, code=code, message="no and no")
            told = call.ask(service)
            if expected.get(call.name) is None:
                self.check_error(told, "ACTION_FAILED", "not_delivered")
                for part in (str(status), code, "no and no"):
                    self.assertIn(part, told["message"])
            else:
                self.assertTrue(told["ok"], told)
                self.assertEqual(told.get("found", told.get("start")), expected[call.name])
            if expected.get(call.name) == "refused":
                self.assertIn("no and no", told["why"]["message"])
            self.check_sent(call, service)

        self.check_each([(call,) for call in CALLS if expected.get(call.name) != "skip"], check)

    def test_r503_404_is_an_answer_where_something_is_named(self):
        found = {name: "gone" for name in ("get", "resume", "fork", "stop", "delete", "check", "logs", "status", "wait")}
        self.check_noes(404, "not_found", {**found, "run": "session_gone", "create": "refused", "legacy": "refused"})

    def test_r503_400_and_409_refuse_what_is_to_be_made(self):
        made = {name: "refused" for name in ("create", "legacy", "fork")}
        self.check_noes(400, "bad_request", made)
        self.check_noes(409, "conflict", made)

    def test_r506_410_is_the_end_of_a_session(self):
        ended = {name: "ended" for name in ("get", "stop", "logs", "status", "wait", "kill")}
        self.check_noes(410, "sandbox_stopped", {**ended, "delete": "gone", "run": "session_gone"})

    def test_r506_410_at_a_resume_says_that_there_is_nothing_to_resume_from(self):
        with Service() as service:
            service.cloud.fault("resume", status=410, code="snapshot_not_found")
            self.assertEqual(service.one("resume", "demo")["found"], "ended")
            service.cloud.fault("resume", status=410, body=b"<html>")
            self.check_error(service.one("resume", "demo"), "ACTION_FAILED", "not_delivered")

    def test_r506_only_the_services_own_word_counts(self):
        """What a proxy says of itself must not make of a sandbox one that is gone."""
        def check(service, call, status):
            service.cloud.fault(call, status=status, body=b"<html>")
            self.check_error(service.one(call, "demo"), "ACTION_FAILED", "not_delivered")

        self.check_each([(call, status) for call in ("get", "resume") for status in (404, 410)], check)

    def test_r506_codes_of_an_ending_session_count_whatever_their_status(self):
        ended = {"sandbox_stopped": "ended", "sandbox_stopping": "ended", "sandbox_snapshotting": "ended"}

        def check(service, call, status, code):
            service.cloud.fault(call.op, status=status, code=code)
            expected = "found" if call.name == "stop" and code != "sandbox_stopped" else ended[code]
            self.assertEqual(call.ask(service).get("found"), expected)

        in_a_session = [call for call in CALLS if call.name in ("stop", "logs", "status", "wait", "kill")]
        self.check_each([(call, status, code) for call in in_a_session for status in (409, 422) for code in ended],
                        check)

    def test_r503_other_refusals_are_errors_with_the_words_of_the_service(self):
        self.check_noes(422, "unprocessable_entity", {"run": "skip", "stop": "refused"})
        self.check_noes(418, "teapot", {})

    def test_r501_the_status_counts_when_the_body_says_nothing(self):
        bodies = [b"", b"<html><h1>Gateway</h1></html>", b"{", b"[]", b"null", b'{"error":7}', b'{"error":{"code":[]}}',
                  b'{"error":{"code":"\\u0000","message":"\\u0000"}}', b"\xff", {"error": "only text"},
                  {"error": {"code": "c", "message": "m", "more": {"x": [1]}}, "more": 1}]

        def check(service, body, status, code):
            service.cloud.fault("get", status=status, body=body, type="text/html")
            told = service.one("get", "demo")
            self.check_error(told, code, "not_delivered")
            self.assertIn(f"HTTP status {status}", told["message"])

        self.check_each([(body, status, code) for body in bodies
                         for status, code in ((403, "AUTH_FAILED"), (418, "ACTION_FAILED"))], check)

    def test_r501_a_token_that_is_sent_back_does_not_get_into_a_message(self):
        def check(service, call, status):
            token = service.cloud.token
            service.cloud.fault(call.op, status=status, code=token, message=f"{token} is bad: Bearer {token}")
            told = call.ask(service)  # which looks for it
            self.assertIn("... is bad: Bearer ...", json.dumps(told))

        self.check_each([(call, 403) for call in CALLS] + [(call, 418) for call in CALLS], check)

    def test_r501_a_token_in_a_header_field_does_not_get_into_a_message_either(self):
        with Service() as service:
            token = service.cloud.token
            service.cloud.fault("get", always=True, status=429, retry_after=token)
            codes = (service.one("get", "demo", deadline=deadline)["code"] for deadline in (200, 1000, 5000, 25000))
            self.assertIn("LIMIT_REACHED", codes)  # of the first deadline that is not too short for this machine
            service.cloud.clear_faults()
            service.cloud.fault("get", type=token)
            service.cloud.fault("get", nth=2, type="text/" + "x" * 30 + token)
            service.cloud.fault("get", nth=3, status=418, headers={"Content-Type": token})
            for _ in range(3):
                self.assertEqual(service.one("get", "demo")["code"], "ACTION_FAILED")

    def test_r501_redirects_are_not_followed(self):
        def check(service, call):
            with Cloud() as other:
                service.cloud.fault(call.op, always=True, redirect=other.url + "/v2/sandboxes")
                self.check_failed(call, call.ask(service))
                self.assertEqual(other.requests, [])

        self.check_each([(call,) for call in CALLS], check)


class RetryTest(ApiTest):
    """R-505."""

    def test_r505_429_once_is_waited_out_as_long_as_it_says(self):
        def check(service, call, after):
            service.cloud.fault(call.op, status=429, retry_after=after)
            told = call.ask(service)
            self.assertTrue(told["ok"], told)
            first, second = call.requests(service)[:2]
            self.assertGreaterEqual(second.at - first.at, 0.2 if after is None else 0.9)
            self.check_sent(call, service, 2, 2)

        self.check_each([(call, after) for call in CALLS for after in (None, 1, DateIn(3))], check, threads=24)

    def test_r505_429_that_is_too_long_or_does_not_end_is_limit_reached(self):
        def check(service, call, after):
            service.cloud.fault(call.op, always=True, status=429, retry_after=after)
            deadline = 1000 if after is None else DEADLINE_MS
            told = call.ask(service, deadline=deadline)
            if after is None:
                self.check_ended(told, deadline, "LIMIT_REACHED", call.kind != "look")
            else:  # nobody waits for what would come too late
                self.check_error(told, "LIMIT_REACHED", "not_delivered")
                self.assertLess(told["elapsed_ms"], deadline / 2)
            self.check_sent(call, service, 1, 4 if after is None else 1)

        self.check_each([(call, after) for call in CALLS for after in (None, 3600, DateIn(3600))], check)

    def check_once(self, faults):
        """A fault at the first request: another follows, but never for what must not be done twice."""
        def check(service, call, members):
            service.cloud.fault(call.op, **members)
            told = call.ask(service)
            if call.kind == "once":
                self.check_failed(call, told)
                self.check_sent(call, service)
            else:
                self.assertTrue(told["ok"], told)
                self.check_sent(call, service, 2, 2)
            self.assertLessEqual(service.cloud.count_runs("true"), 1)
            self.assertLessEqual(len(service.cloud.sandboxes), 2)

        self.check_each([(call, members) for call in CALLS for members in faults], check)

    def test_r505_5xx_once(self):
        self.check_once([{"status": status, "effect": effect} for status in (500, 501, 502, 503)
                         for effect in (False, True)])

    def test_r505_a_connection_that_breaks_once(self):
        self.check_once([{"reset": "before"}, {"reset": "after"}, {"close": "before"}, {"close": "after"}])

    def check_always(self, faults, code="ACTION_FAILED"):
        def check(service, call, members):
            service.cloud.fault(call.op, always=True, **members)
            deadline = DEADLINE_MS if call.kind == "once" and code != "TIMEOUT" else 2000
            told = call.ask(service, deadline=deadline)
            is_late = self.is_cut_off(told, deadline)
            self.assertLess(told["elapsed_ms"], deadline + SLACK_MS)
            self.check_failed(call, told, "TIMEOUT" if is_late else code)
            if call.kind == "once":
                self.assertFalse(is_late and code != "TIMEOUT", told)
                self.check_sent(call, service)
            elif code != "TIMEOUT":
                is_first = is_late and "(tried " not in told["message"]
                self.check_sent(call, service, 1 if is_first else 2, 4)

        self.check_each([(call, members) for call in CALLS for members in faults], check, threads=24)

    def test_r505_5xx_to_the_end(self):
        self.check_always([{"status": status} for status in (500, 501, 502, 503)])

    def test_r505_connections_that_break_to_the_end(self):
        self.check_always([{"reset": "before"}, {"reset": "after"}, {"close": "before"}])

    def test_r505_no_answer_at_all_ends_with_the_deadline(self):
        self.check_always([{"stuck": "before"}, {"stuck": "after"}], "TIMEOUT")

    def test_r505_a_slow_drip_ends_with_the_deadline(self):
        self.check_always([{"bytes_per_second": 10}], "TIMEOUT")

    def test_r505_what_was_never_sent_is_not_delivered(self):
        def check(service, call):
            words = call.words(service)
            service.cloud.close()
            told = service.one(call.name, *words, deadline=1000)
            self.check_error(told, "TIMEOUT" if self.is_cut_off(told, 1000) else "ACTION_FAILED", "not_delivered")
            self.assertIn("127.0.0.1", told["message"])

        self.check_each([(call,) for call in CALLS], check)

    def test_r505_an_earlier_attempt_that_may_have_acted_is_not_forgotten(self):
        def check(service, call):
            service.cloud.fault(call.op, status=502, effect=True)
            service.cloud.fault(call.op, nth=2, status=403)
            self.check_failed(call, call.ask(service), "AUTH_FAILED")

        self.check_each([(call,) for call in CALLS if call.kind == "act"], check)

    def test_r505_nothing_is_sent_twice_over_a_connection_that_was_kept(self):
        def check(service, call, when):
            service.cloud.fault(call.op, reset=when)
            words = call.words(service)
            told = service.all("get", DEADLINE_MS, "demo", "--", call.name, DEADLINE_MS, *words)[1]
            self.check_failed(call, told)
            self.check_sent(call, service)
            looks = service.cloud.requests_of("get")
            self.assertNotEqual(looks[-1].connection, call.requests(service)[0].connection)

        self.check_each([(call, when) for call in CALLS if call.kind == "once" for when in ("before", "after")], check)

    def test_r503_a_delete_whose_reply_was_lost_finds_nothing_the_second_time(self):
        with Service() as service:
            service.cloud.fault("delete", reset="after")
            self.assertEqual(service.one("delete", "demo")["found"], "gone")
            self.assertEqual(service.cloud.sandboxes, {})


class ReplyTest(ApiTest):
    def check_wrong(self, faults):
        """A yes that is none: what may have had its effect is not known."""
        def check(service, call, members):
            service.cloud.fault(call.op, always=True, **members)
            told = call.ask(service)
            self.check_failed(call, told)
            self.assertNotIn("secret", told["message"])
            self.check_sent(call, service)

        self.check_each([(call, members) for call in CALLS for members in faults], check)

    def test_r501_wrong_content_types_are_errors(self):
        self.check_wrong([{"type": "text/html"}, {"type": "text/plain; charset=utf-8"}, {"type": ""}])

    def test_r501_bodies_that_are_not_json_are_errors(self):
        self.check_wrong([{"body": body, "effect": True} for body in (b"", b'{"secret":', b"secret", b"\xff\xfe")])

    def test_r501_an_error_under_200_is_an_error_with_its_words(self):
        def check(service, call, body):
            service.cloud.fault(call.op, always=True, body=body, effect=True)
            told = call.ask(service)
            self.check_failed(call, told)
            self.assertIn("there is no such", told["message"])

        self.check_each([(call, body) for call in CALLS
                         for body in ({"error": {"code": "x", "message": "there is no such"}},
                                      {"error": "there is no such"})], check)

    def test_r501_a_reply_that_is_cut_short_is_asked_for_again_where_that_does_no_harm(self):
        def check(service, call):
            service.cloud.fault(call.op, cut=10)
            told = call.ask(service)
            if call.kind == "once":
                self.check_failed(call, told)
            else:
                self.assertTrue(told["ok"], told)
            self.check_sent(call, service, 1, 1 if call.kind == "once" else 2)

        self.check_each([(call,) for call in CALLS if call.name not in ("run", "logs")], check)

    def test_r501_content_types_may_have_parameters(self):
        with Service() as service:
            service.cloud.fault("run", type="Application/X-NDJSON; charset=utf-8")
            self.assertEqual(service.run("exit 3")["start"], "ended")
            service.cloud.fault("get", type="APPLICATION/JSON;charset=UTF-8")
            self.assertEqual(service.one("get", "demo")["found"], "found")

    def test_r501_needed_members_that_are_missing_or_of_another_type_are_errors(self):
        good = {"sandbox": {"name": "demo", "status": "running", "persistent": True, "tags": {"agent-desktop": "x"}},
                "session": {"id": "sbx_1", "status": "running"}}
        bad = [[], {}, {"sandbox": good["sandbox"]}, {"session": good["session"]}, {**good, "session": None},
               {**good, "sandbox": []}]
        for part, member, values in (("sandbox", "name", (None, 7, "", "x" * 200, "a\0b", "..")),
                                     ("sandbox", "persistent", (None, 1, "true")),
                                     ("sandbox", "tags", ([], "x", {"agent-desktop": 7})),
                                     ("session", "id", (None, 7, "", "x" * 100, "a\nb", "..")),
                                     ("session", "status", (None, 7, {}))):
            bad += [{**good, part: {**good[part], member: value}} for value in values]
            if member != "tags":
                bad.append({**good, part: {key: value for key, value in good[part].items() if key != member}})
        with Service() as service:
            for reply in [good, *bad]:
                for op, call in (("get", ["get", "demo"]), ("create", ["create", BODY])):
                    service.cloud.fault(op, body=reply)
                    told = service.one(*call)
                    with self.subTest(reply=reply, op=op):
                        self.assertEqual(told["ok"], reply is good, told)
                        if reply is not good:
                            self.check_error(told, "ACTION_FAILED", "not_delivered" if op == "get" else "unknown")

    def test_r501_unknown_members_are_ignored_at_every_level(self):
        more = {"x": {"y": [None, 1.5, "\0"]}, "sourceSandboxName": None, "projectId": 7}
        reply = {"sandbox": {"status": "stopped", "persistent": False, "name": "demo", "currentSnapshotId": None,
                             "expiresAt": None, **more},
                 "routes": [{"system": True}], **more, "session": {"status": "pending", "id": "s", **more}}
        with Service() as service:
            service.cloud.fault("get", body=reply)
            told = service.one("get", "demo")
            self.assertEqual(told["hosted"], {"name": "demo", "session": "s", "tag": "", "word": "pending", "status": 1,
                                              "persistent": False, "has_snapshot": False, "expires_ms": 0})
            self.assertEqual(told["tags"], {})

    def test_r506_a_status_that_is_not_known_is_never_running(self):
        with Service() as service:
            for word, number in (("pending", 1), ("running", 2), ("stopping", 3), ("snapshotting", 4), ("stopped", 5),
                                 ("failed", 6), ("aborted", 7), ("Running", 0), ("runningish", 0), ("", 0)):
                service.cloud.fault("get", body={"sandbox": {"name": "demo", "status": "running", "persistent": True},
                                                 "session": {"id": "s", "status": word}})
                told = service.one("get", "demo")
                self.assertEqual((told["hosted"]["status"], told["hosted"]["word"]), (number, word))


class RequestTest(ApiTest):
    def test_r501_each_request_has_token_team_and_the_project_where_it_belongs(self):
        project_in = {"get": "projectId", "resume": "projectId", "fork": "projectId", "delete": "projectId",
                      "list": "project", "check": "project"}

        def check(service, call):
            self.assertTrue(call.ask(service)["ok"])
            request, cloud = call.requests(service)[0], service.cloud
            self.assertEqual(request.headers["authorization"], f"Bearer {cloud.token}")
            self.assertEqual(request.query["teamId"], cloud.team)
            self.assertTrue(request.headers["user-agent"].startswith("agent-desktop/"))
            told = {name: request.query[name] for name in ("project", "projectId") if name in request.query}
            self.assertEqual(told, {project_in[call.name]: cloud.project} if call.name in project_in else {})
            if call.op == "create":
                self.assertEqual(request.json["projectId"], cloud.project)
                self.assertIn("/v2/" if call.name == "legacy" else "/v3/", request.path)
            if call.op == "fork":
                self.assertNotIn("projectId", request.json)
            if request.body:
                self.assertEqual(request.type, "application/json")
            self.assertEqual(request.query.get("resume"), "true" if call.name == "resume" else None)
            self.assertNotIn(cloud.token, request.path + json.dumps(request.query))

        self.check_each([(call,) for call in CALLS], check)

    def test_r501_names_are_percent_encoded(self):
        with Service() as service:
            for name in ("a b", "a/b", "ä", "a?b=c&d#e", "%41", "a+b"):
                self.assertEqual(service.one("get", name)["found"], "gone")
                self.assertEqual(service.cloud.requests[-1].words["name"], name)

    def test_r503_a_delete_takes_the_snapshots_with_it(self):
        with Service() as service:
            service.one("stop", service.session)
            self.assertEqual(len(service.cloud.snapshots), 1)
            service.one("delete", "demo")
            self.assertEqual(len(service.cloud.snapshots), 0)

    def test_r501_the_base_url_may_end_with_slashes_and_must_be_safe(self):
        with Service() as service:
            self.assertTrue(service.one("get", "demo", VERCEL_API_URL=service.cloud.url + "//")["ok"])
            asked = len(service.cloud.requests)
            for url in ("http://192.0.2.1/api", "ftp://127.0.0.1/", "nothing", service.cloud.url + "?x=y", "https://",
                        service.cloud.url + "#x", service.cloud.url.replace("http://", "http://user:pass@")):
                told = service.one("get", "demo", VERCEL_API_URL=url)
                self.check_error(told, "INVALID_ARGS", "not_delivered")
                self.assertIn("VERCEL_API_URL", told["message"])
            self.assertEqual(len(service.cloud.requests), asked)

    def test_r501_a_token_cannot_add_header_fields(self):
        with Service() as service:
            for token in ("abc\r\nX-More: 1", "abc def", "abc\x7f", "äbc"):
                told = service.one("get", "demo", VERCEL_TOKEN=token)
                self.assertEqual(told["code"], "PROVIDER_UNAVAILABLE", told)
                self.assertNotIn(token, told["message"])
            self.assertEqual(service.cloud.requests, [])


class ListTest(ApiTest):
    def make(self, service, count):
        for number in range(count):
            service.cloud.make_sandbox(f"ours-{number:03}", tags=OURS)
            service.cloud.make_sandbox(f"theirs-{number:03}", tags={"made-by": "somebody"})

    def test_r503_all_of_ours_are_listed_page_by_page_and_nobody_elses(self):
        with Service() as service:
            self.make(service, 120)
            told = service.one("list")
            self.assertEqual(sorted(one["name"] for one in told["sandboxes"]),
                             sorted(["demo", *(f"ours-{number:03}" for number in range(120))]))
            self.assertEqual({one["tag"] for one in told["sandboxes"]}, {OURS["agent-desktop"]})
            self.assertTrue(all(one["session"] for one in told["sandboxes"]))
            self.assertEqual(len(service.cloud.requests_of("list")), 3)

    def test_r503_the_list_is_in_the_order_of_creation_from_either_end(self):
        with Service() as service:
            self.make(service, 60)
            newest, oldest = ([one["name"] for one in service.one("list", *order)["sandboxes"]]
                              for order in ((), ("oldest",)))
            self.assertEqual(len(newest), 61)
            self.assertEqual((newest[0], newest[-1]), ("ours-059", "demo"))
            self.assertEqual((oldest[0], oldest[-1]), ("demo", "ours-059"))
            self.assertEqual({(request.query["sortBy"], request.query["sortOrder"])
                              for request in service.cloud.requests_of("list")},
                             {("createdAt", "desc"), ("createdAt", "asc")})

    def test_r503_a_list_that_does_not_end_is_an_error(self):
        with Service() as service:
            self.make(service, 60)
            service.cloud.fault("list", always=True, same_cursor=True)
            told = service.one("list")
            self.check_error(told, "ACTION_FAILED", "not_delivered")
            self.assertLess(len(service.cloud.requests_of("list")), 5)

    def test_r503_a_page_may_be_empty_and_not_the_last(self):
        one = {"name": "a", "status": "running", "persistent": True}
        with Service() as service:
            for number, (page, following) in enumerate((([], "x+/ &=?"), ([one], "y"), ([], None))):
                service.cloud.fault("list", nth=number + 1, body={"sandboxes": page, "pagination": {"count": 0, "next": following}})
            self.assertEqual([one["name"] for one in service.one("list")["sandboxes"]], ["a"])
            cursors = [request.query.get("cursor") for request in service.cloud.requests_of("list")]
            self.assertEqual(cursors, [None, "x+/ &=?", "y"])

    def test_r503_pages_that_are_not_as_they_should_be_are_errors(self):
        good = {"name": "a", "status": "running", "persistent": True}
        end = {"count": 1, "next": None}
        bad = [{"sandboxes": [good]}, {"sandboxes": [good], "pagination": {}}, {"sandboxes": {}, "pagination": end},
               {"sandboxes": [good], "pagination": {"next": 7}}, {"pagination": end},
               {"sandboxes": [good, {}], "pagination": end}, {"sandboxes": [None], "pagination": end}]
        with Service() as service:
            for page in bad:
                service.cloud.fault("list", body=page)
                with self.subTest(page=page):
                    self.check_error(service.one("list"), "ACTION_FAILED", "not_delivered")

    def test_r503_the_deadline_is_for_all_pages_together(self):
        with Service() as service:
            for number in range(60):
                service.cloud.fault("list", nth=number + 1, delay_ms=300,
                                    body={"sandboxes": [], "pagination": {"next": str(number)}})
            told = service.one("list", deadline=1000)
            self.check_error(told, "TIMEOUT", "not_delivered")
            self.assertLess(told["elapsed_ms"], 1000 + SLACK_MS)


class CommandTest(ApiTest):
    """R-504."""

    def lines(self, told):
        return [json.loads(line) for line in told["stream"].splitlines()]

    def test_r504_a_command_gets_its_words_as_they_are(self):
        words = ["a b", "", "'\"\\", "$HOME", "ä\n\t", "--", "*"]
        with Service() as service:
            told = service.one("run", service.session, 4000, "printf", "<%s>", *words[:5])
            self.assertEqual("".join(line.get("data", "") for line in self.lines(told)),
                             "".join(f"<{word}>" for word in words[:5]))
            request = service.cloud.requests_of("run")[0].json
            self.assertEqual(request, {"command": "printf", "args": ["<%s>", *words[:5]], "env": {}, "sudo": False,
                                       "wait": True, "logs": True, "timeout": 4000})

    def test_r504_a_program_that_is_not_there_is_told_apart(self):
        with Service() as service:
            told = service.one("run", service.session, 4000, "no-such-program")
            self.assertEqual((told["ok"], told["start"]), (True, "no_program"))

    def test_r504_a_session_that_is_pending_is_waited_for(self):
        with Service(pending_ms=1500) as service:
            told = service.run("exit 3")
            self.assertEqual(told["start"], "ended", told)
            self.assertEqual(self.lines(told)[-1]["command"]["exitCode"], 3)
            self.assertEqual(service.cloud.count_runs(), 1)

    def test_r504_a_session_that_stays_pending_ends_with_the_deadline(self):
        with Service(pending_ms=FOREVER) as service:
            told = service.run("true", deadline=2000)
            self.check_ended(told, 2000, "ACTION_FAILED")
            self.assertIn("not answered" if self.is_cut_off(told, 2000) else "sandbox_not_ready", told["message"])
            self.assertEqual(service.cloud.count_runs(), 0)

    def test_r504_a_422_of_a_session_that_runs_is_not_tried_for_ever(self):
        with Service() as service:
            service.cloud.fault("run", always=True, status=422, code="unprocessable_entity")
            told = service.run("true")
            self.check_error(told, "ACTION_FAILED", "not_delivered")
            self.assertEqual(len(service.cloud.requests_of("run")), 2)

    def test_r504_a_resume_waits_for_the_end_of_the_session_before(self):
        with Service() as service:
            service.cloud.fault("resume", first=2, status=422, code="sandbox_stopping")
            self.assertEqual(service.one("resume", "demo")["found"], "found")
            service.cloud.fault("resume", always=True, status=409, code="sandbox_snapshotting")
            self.check_ended(service.one("resume", "demo", deadline=1200), 1200, "ACTION_FAILED")

    def test_r504_a_stream_that_breaks_off_ends_without_a_last_line(self):
        faults = [{"cut": 300, "cut_by": "close"}, {"cut": 300, "cut_by": "reset"}, {"cut": 300, "cut_by": "end"},
                  {"cut": 0, "cut_by": "reset"}, {"drop_last": True}, {"null_exit": True}, {"error_line": "x"}]

        def check(service, members):
            fault = service.cloud.fault("run", **members)
            told = service.run("echo a; echo b")
            self.assertTrue(fault.did_bite)
            self.assertEqual((told["ok"], told["start"]), (True, "ended"), told)
            self.assertNotRegex(told["stream"], '"exitCode": [0-9]')
            self.assertEqual(service.cloud.count_runs(), 1)

        self.check_each([(members,) for members in faults], check)

    def test_r504_a_deadline_in_the_middle_leaves_the_outcome_unknown(self):
        with Service() as service:
            told = service.run("echo a; sleep 1000", deadline=4000)
            self.check_error(told, "TIMEOUT", "unknown")
            self.assertLess(told["elapsed_ms"], 4000 + SLACK_MS)
            self.assertIn('"data": "a\\n"', told["stream"])

    def test_r504_the_error_of_who_reads_the_stream_stands(self):
        with Service() as service:
            told = service.run("echo a", call="run-unread")
            self.assertEqual((told["code"], told["message"]), ("STORE_FULL", "the reader has no room"))

    def test_r504_a_caller_who_has_enough_ends_it(self):
        with Service() as service:
            for script, fault in (("echo a; sleep 1000", None), ("true", {"hold": "before"}),
                                  ("true", {"times": None, "status": 422}), ("true", {"status": 429, "retry_after": 50})):
                if fault:
                    held = service.cloud.fault("run", **fault)
                before = len(service.cloud.requests_of("run"))
                program = service.start("run-until-stdin", DEADLINE_MS, service.session, DEADLINE_MS, "sh", "-c", script,
                                        stdin=subprocess.PIPE)
                wait_until(lambda: len(service.cloud.requests_of("run")) > before, 60)
                program.stdin.write(b"x")
                program.stdin.flush()
                told = service.finish(program)[0]
                self.assertEqual((told["ok"], told["start"]), (True, "ended"))
                self.assertLess(told["elapsed_ms"], DEADLINE_MS / 2)
                if fault:
                    held.release()
                service.cloud.clear_faults()

    def test_r504_lines_of_many_megabytes_come_through(self):
        with Service() as service:
            service.cloud.fault("run", big_line=20 << 20)
            told = service.run("true")
            self.assertEqual(told["start"], "ended")
            self.assertGreater(told["size"], 20 << 20)

    def test_r504_logs_begin_at_the_beginning_and_end_with_the_command(self):
        with Service() as service:
            command = service.start_command("echo a; sleep 1; echo b")
            told = service.one("logs", service.session, command)
            self.assertEqual("".join(line["data"] for line in self.lines(told)), "a\nb\n")
            self.assertEqual(service.one("status", service.session, command)["status"], 0)

    def test_r504_logs_that_break_off_are_an_error(self):
        with Service() as service:
            command = service.start_command("echo a; echo b")
            service.cloud.fault("logs", cut=20, cut_by="reset")
            self.check_error(service.one("logs", service.session, command), "ACTION_FAILED", "not_delivered")

    def test_r504_a_status_is_told_only_when_the_command_has_ended(self):
        with Service() as service:
            command = service.start_command("until test -e go; do sleep 0.05; done; exit 7")
            self.assertEqual(service.one("status", service.session, command)["status"], -1)
            with open(os.path.join(service.cloud.disk("demo"), "go"), "xb"):
                pass
            self.assertEqual(service.one("wait", service.session, command)["status"], 7)
            for code in ("7", 7.5, -1, 256, 2**40, True, [], {}):
                service.cloud.fault("get command", body={"command": {"id": command, "exitCode": code}})
                told = service.one("status", service.session, command)
                with self.subTest(code=code):
                    self.check_error(told, "ACTION_FAILED", "not_delivered")
            service.cloud.fault("get command", body={"command": {"id": command}})
            self.assertFalse(service.one("status", service.session, command)["ok"])

    def test_r504_a_wait_ends_with_the_deadline(self):
        with Service() as service:
            told = service.one("wait", service.session, service.start_command(), deadline=800)
            self.check_error(told, "TIMEOUT", "not_delivered")

    def test_r504_a_signal_goes_by_its_number_and_an_ended_command_needs_none(self):
        with Service() as service:
            command = service.start_command()
            self.assertEqual(service.one("kill", service.session, command, 15)["found"], "found")
            self.assertEqual(service.one("wait", service.session, command)["status"], 128 + 15)
            for status in (200, 400, 404, 409, 410, 422):
                service.cloud.set(kill_ended_status=status)
                with self.subTest(status=status):
                    self.assertEqual(service.one("kill", service.session, command, 9)["found"], "found")
            self.assertEqual(service.one("kill", service.session, "cmd_none", 9)["found"], "gone")

    def test_r504_what_is_asked_in_an_ended_session_says_so(self):
        with Service() as service:
            command = service.start_command("true")
            service.cloud.stop_session("demo")
            for call in ("logs", "status", "wait", "kill"):
                words = [service.session, command, *([9] if call == "kill" else [])]
                self.assertEqual(service.one(call, *words)["found"], "ended")
            self.assertEqual(service.run("true")["start"], "session_gone")
            self.assertIn(service.one("stop", service.session)["found"], ("found", "ended"))


if __name__ == "__main__":
    unittest.main()
