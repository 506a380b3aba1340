"""The life of hosted sandboxes, on a simulated service: R-503, R-505, R-506, R-704."""

import json
import os
import time

import harness
from cloud import FOREVER, CloudTest
from harness import USER, wait_until

TAG = "agent-desktop"  # its value proves that a sandbox is ours


class WalkTest(CloudTest):
    installed = False

    def test_r704_following_next_leads_from_nothing_to_running(self):
        desk = self.desk
        argv = desk.fails("PROVIDER_UNAVAILABLE", "create", "demo", "--provider", "vercel")["recovery"]["next_argv"]
        for _ in range(60):
            data = desk.follow(argv).data
            if data["state"] == "running":
                break
            argv = data["next_argv"]
        self.assertEqual(data["state"], "running", data)
        self.assertNotIn("next", data)
        name = data["name"]
        self.assertEqual(desk.stop(name)["next_argv"], ["agent-desktop", "sandbox", "start", name])
        self.assertEqual(desk.follow(desk.ok("status", name)["next_argv"] + ["--wait=60"]).data["state"], "running")
        error = desk.fails("INVALID_STATE", "rm", name)
        self.assertEqual(desk.follow(error["recovery"]["next_argv"]).data["state"], "stopped")
        self.assertEqual(desk.ok("rm", name)["state"], "missing")
        self.assertEqual(self.cloud.sandboxes, {})
        self.assertEqual(os.listdir(desk.path("sandboxes")), [])


class CreateTest(CloudTest):
    def test_r503_create_asks_for_one_sandbox_with_our_name_and_tag(self):
        self.assertNotIn("next", self.desk.create("demo"))
        request, = self.cloud.requests_of("create")
        facts = self.desk.facts("demo")
        self.assertEqual(request.path, "/api/v3/sandboxes")
        self.assertEqual(request.json["name"], facts["hosted"])
        self.assertEqual(request.json["tags"], {TAG: facts["id"], "made-by": "agent-desktop"})
        self.assertEqual(request.json["image"], "ad-desktop")
        self.assertRegex(facts["hosted"], f"^demo-{facts['id'][:8]}$")
        self.assertEqual((facts["team"], facts["project"]), (self.cloud.team, self.cloud.project))
        self.assertIn(facts["session"], self.cloud.sessions)
        self.assertRegex(self.desk.ok("status", "demo")["message"],
                         r"until 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ, then it is stopped")

    def test_r503_what_may_be_left_is_recorded_before_the_first_request(self):
        fault = self.cloud.fault("create", hold="before")
        self.desk.begin("demo")
        fault.wait()
        facts = self.desk.facts("demo")
        self.assertEqual(self.cloud.requests_of("create")[0].json["tags"][TAG], facts["id"])
        self.assertNotIn("session", facts)
        fault.release()
        self.desk.await_state("demo", "running")

    def test_r503_a_session_that_is_pending_is_waited_for(self):
        self.cloud.set(pending_ms=1200)
        self.desk.create("demo")
        self.assertGreaterEqual(len(self.cloud.requests_of("get")), 2)
        self.assertEqual(self.cloud.requests_of("resume"), [])

    def test_r503_a_look_that_is_behind_makes_no_loss_of_a_new_session(self):
        self.cloud.set(pending_ms=1200)
        self.cloud.fault("get", status=404, first=2)
        self.desk.create("demo")
        self.assertEqual(len(self.cloud.requests_of("create")), 1)

    def test_r503_runtime_has_no_desktop_and_is_not_probed(self):
        self.desk.create("demo", "--set", "runtime=node24")
        self.assertEqual(self.cloud.requests_of("create")[0].path, "/api/v2/sandboxes")
        self.assertEqual(self.cloud.requests_of("run"), [])

    def test_r503_env_reaches_the_service_and_nothing_else(self):
        self.desk.secrets += ["hunter2", "blue and green"]
        self.desk.create("demo", "--set", "env.PASSWORD=hunter2", "--set", "tag.colour=blue and green")
        body = self.cloud.requests_of("create")[0].json
        self.assertEqual(body["env"], {"PASSWORD": "hunter2"})
        self.assertEqual(body["tags"]["colour"], "blue and green")

    def test_r503_env_is_not_shown_by_the_processes_that_work_with_it(self):
        secrets = [b"hunter2", b"blue and green"]
        self.desk.secrets += [secret.decode() for secret in secrets]
        self.cloud.set(pending_ms=FOREVER)
        command = self.desk.popen("sandbox", "create", "demo", "--provider", "vercel", "--wait=60", "--set", "vcpus=2",
                                  "--set", "env.PASSWORD=hunter2", "--set=tag.colour=blue and green")
        self.desk.wait_for_request("get")  # it is made, and pending
        processes = wait_until(lambda: len(found := self.desk.processes()) == 2 and found, what="command and worker")
        for pid, argv in processes:
            self.assertTrue(all(shown in argv for shown in (b"vcpus=2", b"env.PASSWORD=", b"tag.colour=")), argv)
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read()
            self.assertFalse([text for text in (argv, environ) if any(secret in text for secret in secrets)])
        self.desk.kill_all()
        self.desk.seen += command.communicate()
        self.desk.ok("rm", "demo")

    def test_r503_what_the_service_refuses_is_told_in_its_words(self):
        for options, words in ((["image=nothing"], "image 'nothing' not found"),
                               (["timeout=24h", "vcpus=32"], "vcpus")):
            with self.subTest(options):
                options = [word for option in options for word in ("--set", option)]
                error = self.desk.fails("ACTION_FAILED", "create", "demo", "--provider", "vercel", "--wait=60", *options)
                self.assertIn(words, error["message"])
                self.assertEqual(self.desk.last_end("demo")["code"], "INVALID_ARGS")
                self.assertEqual(self.desk.state("demo"), "broken")
                self.assertEqual(len(self.cloud.requests_of("create")), 1)
                self.assertEqual(self.desk.ok("rm", "demo")["state"], "missing")
                self.assertEqual(self.cloud.requests_of("delete"), [])
                self.cloud.forget_requests()

    def test_r503_a_project_of_the_directory_is_used_though_the_worker_is_elsewhere(self):
        os.mkdir(os.path.join(self.desk.base, ".vercel"))
        USER.own(os.path.join(self.desk.base, ".vercel"))
        with open(os.path.join(self.desk.base, ".vercel", "project.json"), "w", encoding="utf-8") as file:
            json.dump({"projectId": self.cloud.project, "orgId": self.cloud.team}, file)
        del self.desk.env["VERCEL_TEAM_ID"], self.desk.env["VERCEL_PROJECT_ID"]
        self.desk.create("demo")
        self.desk.stop("demo")
        self.desk.start("demo")

    def test_r503_without_the_wrapper_it_needs_setup_and_can_only_be_removed(self):
        desk = self.desk
        data = desk.create("demo", "--set", "image=bare", state="needs_setup")
        self.assertIn("agent-desktop-run is not in the image 'bare'", data["message"])
        self.assertNotIn("needs_person", data)
        for state in ("stopped", "missing"):
            data = desk.follow(data["next_argv"]).data
            self.assertEqual(data["state"], state)
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r503_a_name_that_a_stranger_has_is_left_alone(self):
        fault = self.cloud.fault("create", hold="before")
        self.desk.begin("demo")
        fault.wait()
        hosted = self.desk.hosted("demo")
        self.cloud.make_sandbox(hosted, tags={TAG: "somebody's"})
        fault.release()
        data = self.desk.await_state("demo", "broken")
        self.assertIn("not ours", data["message"])
        self.assertEqual(self.desk.last_end("demo")["code"], "NAME_TAKEN")
        self.assertEqual(len(self.cloud.requests_of("create")), 1)
        self.desk.ok("rm", "demo")
        self.assertEqual(list(self.cloud.sandboxes), [hosted])
        self.assertEqual(self.cloud.requests_of("stop", "delete", "resume"), [])
        self.assertIn("not ours", self.desk.last_move("demo")["reason"])

    def test_r503_a_session_that_fails_leaves_a_sandbox_that_rm_removes(self):
        self.cloud.set(session_becomes="failed", pending_ms=300)
        error = self.desk.fails("ACTION_FAILED", "create", "demo", "--provider", "vercel", "--wait=60")
        self.assertIn("its session failed on the service", error["message"])
        self.assertEqual(self.desk.state("demo"), "broken")
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})


    def test_r501_a_value_that_the_service_quotes_is_not_told(self):
        self.cloud.fault("create", status=400, message="env.PASSWORD: 'hunter2hunter2' is not allowed")
        error = self.desk.fails("ACTION_FAILED", "create", "demo", "--provider", "vercel", "--wait=60",
                                "--set", "env.PASSWORD=hunter2hunter2")
        self.assertIn("env.PASSWORD: '...' is not allowed", error["message"])
        self.desk.secrets.append("hunter2hunter2")
        self.desk.check_secrets()

    def test_r501_a_create_that_is_not_allowed_leaves_what_rm_removes(self):
        for status, person in ((402, False), (403, True)):
            with self.subTest(status):
                fault = self.cloud.fault("create", status=status, message="not on this plan", always=True)
                error = self.desk.fails("ACTION_FAILED", "create", "demo", "--provider", "vercel", "--wait=60")
                self.assertIn("not on this plan", error["message"])
                self.assertEqual(error["recovery"]["next_argv"][1:], ["sandbox", "rm", "demo"])
                self.assertEqual(error["recovery"].get("needs_person", False), person)
                self.assertEqual(self.desk.ok("status", "demo")["next_argv"], error["recovery"]["next_argv"])
                self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "missing")
                self.assertEqual(fault.hits, 1)
                self.cloud.clear_faults()

    def test_r501_a_project_that_the_token_is_not_for_is_refused_before_anything_is_done(self):
        self.desk.env["VERCEL_OIDC_TOKEN"] = self.cloud.make_oidc_token()
        self.desk.secrets.append(self.desk.env["VERCEL_OIDC_TOKEN"])
        error = self.desk.fails("AUTH_FAILED", "create", "demo", "--provider", "vercel", "--set", "project=prj_other")
        self.assertIn("not for 'prj_other', which --set names", error["message"])
        self.assertEqual(error["recovery"], {"needs_person": True})
        self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")
        self.assertEqual(self.cloud.requests, [])
        self.desk.create("demo", "--set", f"project={self.cloud.project}")


class InstallTest(CloudTest):
    def test_r502_a_project_that_is_not_there_makes_it_unavailable(self):
        self.cloud.fault("list", status=404, always=True)
        data = self.desk.ok("install", "vercel")
        self.assertEqual(data["state"], "unavailable")
        self.assertIn(f"'{self.cloud.project}', which VERCEL_PROJECT_ID names", data["message"])
        self.assertTrue(data["needs_person"])

    def test_r502_a_service_that_cannot_be_asked_is_asked_again_by_the_same_command(self):
        for status, code in ((503, "ACTION_FAILED"), (429, "LIMIT_REACHED")):
            with self.subTest(status):
                self.cloud.fault("list", status=status, always=True)
                error = self.desk.fails(code, "install", "vercel")
                self.assertEqual(error["recovery"]["next_argv"], ["agent-desktop", "sandbox", "install", "vercel"])
                self.assertNotIn("needs_person", error["recovery"])
                self.assertNotIn("Look at the state", error["suggestion"])
                self.assertEqual(error["disposition"], {"delivery": "not_delivered", "retry": "safe"})
                self.cloud.clear_faults()
                self.assertEqual(self.desk.follow(error["recovery"]["next_argv"]).data["state"], "ready")


class LostReplyTest(CloudTest):
    """R-505: after an unknown outcome the service is asked before anything is repeated."""

    def check_one(self, creates):
        self.assertEqual(len(self.cloud.requests_of("create")), creates)
        self.assertEqual(list(self.cloud.sandboxes), [self.desk.hosted("demo")])
        self.assertEqual(len(self.cloud.sessions), 1)

    def test_r505_a_reply_lost_after_the_effect_adopts_what_was_made(self):
        for members in ({"reset": "after"}, {"close": "after"}, {"status": 502, "effect": True}, {"cut": 20}):
            with self.subTest(members):
                self.cloud.fault("create", **members)
                self.desk.create("demo")
                self.check_one(1)
                self.desk.stop("demo")
                self.desk.ok("rm", "demo")
                self.cloud.forget_requests()
                self.cloud._service.sessions.clear()

    def test_r505_a_request_lost_before_the_effect_is_sent_again_after_a_look(self):
        self.cloud.fault("create", reset="before")
        self.desk.create("demo")
        self.check_one(2)
        ops = [request.op for request in self.cloud.requests if request.op in ("create", "get")]
        self.assertEqual(ops[0], "create")
        self.assertGreaterEqual(ops[1:].index("create"), 2)  # looked for, several times

    def test_r505_a_service_that_is_overloaded_is_asked_again(self):
        self.cloud.fault("create", status=429, retry_after=1)
        self.desk.create("demo")
        self.check_one(2)

    def test_r505_a_service_that_only_fails_leaves_what_may_be_there_on_record(self):
        self.cloud.fault("create", status=503, always=True)
        error = self.desk.fails("ACTION_FAILED", "create", "demo", "--provider", "vercel", "--wait=100", timeout=120)
        hosted = self.desk.hosted("demo")
        self.assertIn(f"; the service may hold '{hosted}', which rm removes", error["message"])
        self.assertIn("cannot do it now", error["message"])
        self.assertIn(f"the service may hold '{hosted}', which rm removes", self.desk.ok("status", "demo")["message"])
        self.assertEqual(error["disposition"], {"delivery": "unknown", "retry": "unsafe"})
        self.assertEqual(len(self.cloud.requests_of("create")), 3)
        self.desk.ok("rm", "demo")

    def test_r505_a_create_whose_client_is_killed_is_broken_and_removed(self):
        for hold in ("before", "after"):
            with self.subTest(hold):
                fault = self.cloud.fault("create", hold=hold)
                self.desk.begin("demo")
                fault.wait()
                self.desk.kill_worker()
                hosted = self.desk.hosted("demo")
                data = self.desk.ok("status", "demo")
                self.assertEqual(data["state"], "broken")
                self.assertIn(f"the service may hold '{hosted}', which rm removes", data["message"])
                self.assertEqual(data["next_argv"][1:], ["sandbox", "rm", "demo"])
                fault.release()
                wait_until(lambda: self.cloud.requests_of("create")[-1].is_done)
                self.desk.ok("rm", "demo")
                self.assertEqual(self.cloud.sandboxes, {})

    def test_r208_a_create_that_is_cancelled_is_broken_and_removed(self):
        self.cloud.set(pending_ms=FOREVER)
        self.desk.begin("demo")
        self.desk.wait_for_request("get")
        data = self.desk.ok("stop", "demo")
        self.assertEqual(data["state"], "broken")
        self.assertIn("cancelled by sandbox stop; the service holds "
                      f"'{self.desk.hosted('demo')}', which rm removes", data["message"])
        self.cloud.set(pending_ms=0)
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r505_a_stop_and_a_removal_survive_lost_replies(self):
        self.desk.create("demo")
        self.cloud.fault("stop", reset="after")
        self.desk.stop("demo")
        self.cloud.fault("delete", reset="after")
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r505_a_start_whose_reply_is_lost_begins_one_session(self):
        self.desk.create_stopped("demo")
        for members in ({"reset": "before"}, {"reset": "after"}, {"status": 503, "effect": True}):
            self.cloud.fault("resume", **members)
            before = len(self.cloud.sessions)
            self.desk.start("demo")
            self.assertEqual(len(self.cloud.sessions), before + 1)
            self.desk.stop("demo")


class ForkTest(CloudTest):
    def test_r503_a_fork_has_the_disk_and_the_tags_of_its_source(self):
        self.desk.create("base", "--set", "tag.colour=blue")
        with open(os.path.join(self.cloud.disk(self.desk.hosted("base")), "note"), "w", encoding="utf-8") as file:
            file.write("from base")
        self.desk.stop("base")
        self.desk.create("demo", "--set", "from=base")
        hosted = self.desk.hosted("demo")
        with open(os.path.join(self.cloud.disk(hosted), "note"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "from base")
        tags = self.cloud.sandboxes[hosted]["tags"]
        self.assertEqual(tags, {"colour": "blue", "made-by": "agent-desktop", TAG: self.desk.facts("demo")["id"]})
        self.assertEqual(self.desk.state("base"), "stopped")

    def test_r503_a_fork_needs_a_stopped_source_with_a_snapshot(self):
        self.desk.create("base")
        error = self.desk.fails("INVALID_STATE", "create", "demo", "--provider", "vercel", "--set", "from=base")
        self.assertIn("needs a stopped source", error["message"])
        self.desk.create("thin", "--set", "persistent=false")
        self.desk.stop("thin")
        error = self.desk.fails("INVALID_ARGS", "create", "demo", "--provider", "vercel", "--set", "from=thin")
        self.assertIn("its disk is not kept", error["message"])
        self.assertNotIn("recovery", error)  # a start would not help
        self.assertEqual(self.cloud.requests_of("fork"), [])
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")

    def test_r505_a_fork_whose_reply_is_lost_is_adopted(self):
        self.desk.create_stopped("base")
        for members, forks in (({"reset": "after"}, 1), ({"reset": "before"}, 2)):
            with self.subTest(members):
                self.cloud.forget_requests()
                self.cloud.fault("fork", **members)
                self.desk.create("demo", "--set", "from=base")
                self.assertEqual(len(self.cloud.requests_of("fork")), forks)
                self.assertEqual(len(self.cloud.sandboxes), 2)
                self.desk.stop("demo")
                self.desk.ok("rm", "demo")


    def test_r505_a_fork_that_was_lost_is_told_whatever_its_source_says(self):
        self.desk.create_stopped("base")
        self.cloud.forget_requests()
        self.cloud.fault("fork", reset="before")
        self.cloud.fault("get", status=403, nth=9)  # three looks at the source, five for the fork
        error = self.desk.fails("ACTION_FAILED", "create", "demo", "--provider", "vercel", "--set", "from=base",
                                "--wait=60")
        self.assertEqual(self.desk.last_end("demo")["code"], "AUTH_FAILED")
        self.assertEqual(len(self.cloud.requests_of("get")), 9)
        self.assertEqual(error["disposition"], {"delivery": "unknown", "retry": "unsafe"})
        self.assertIn(f"the service may hold '{self.desk.hosted('demo')}', which rm removes", error["message"])
        self.desk.ok("rm", "demo")

    def test_r503_the_tags_of_a_source_count(self):
        self.desk.create_stopped("base", *(word for i in range(3) for word in ("--set", f"tag.own-{i}=1")))
        error = self.desk.fails("INVALID_ARGS", "create", "demo", "--provider", "vercel", "--set", "from=base",
                                "--set", "tag.one=more")
        self.assertIn("with the tags of 'base'", error["message"])
        self.desk.fails("SANDBOX_NOT_FOUND", "status", "demo")
        self.assertEqual(self.cloud.requests_of("fork"), [])
        self.desk.create("demo", "--set", "from=base", "--set", "tag.own-1=2")


class LifeTest(CloudTest):
    def test_r503_a_start_is_one_resume_and_a_new_session(self):
        self.desk.create_stopped("demo")
        first = self.desk.facts("demo")["session"]
        self.cloud.forget_requests()
        self.desk.start("demo")
        self.assertEqual(len(self.cloud.requests_of("resume")), 1)
        self.assertNotEqual(self.desk.facts("demo")["session"], first)
        self.assertEqual(self.desk.facts("demo")["session"],
                         self.cloud.sandboxes[self.desk.hosted("demo")]["session"]["id"])

    def test_r503_no_look_wakes_it(self):
        self.desk.create_stopped("demo")
        self.cloud.forget_requests()
        for command in (["status", "demo"], ["list"], ["stop", "demo"], ["log", "demo"]):
            self.desk.ok(*command)
        self.desk.fails("INVALID_STATE", "exec", "demo", "--", "version")
        self.assertEqual(self.cloud.requests_of("resume"), [])
        self.assertEqual({request.op for request in self.cloud.requests}, {"get"})

    def test_r503_a_stop_waits_until_the_service_has_stopped_it(self):
        self.cloud.set(stopping_ms=300, snapshotting_ms=900)
        self.desk.create("demo")
        self.desk.stop("demo")
        self.assertEqual(self.cloud.sandboxes[self.desk.hosted("demo")]["session"]["status"], "stopped")
        self.assertEqual(len(self.cloud.requests_of("stop")), 1)

    def test_r503_a_start_waits_until_the_last_session_has_ended(self):
        self.desk.create_stopped("demo")
        hosted = self.desk.hosted("demo")
        self.cloud.resume(hosted)
        self.cloud.set(snapshotting_ms=1500, resume_while_stopping="ignore")
        self.cloud.stop_session(hosted)
        self.desk.start("demo")
        self.assertEqual(len(self.cloud.requests_of("resume")), 1)

    def test_r503_a_resume_that_has_nothing_to_run_is_told(self):
        self.desk.create_stopped("demo")
        self.cloud.set(session_becomes="failed", pending_ms=700)
        error = self.desk.fails("ACTION_FAILED", "start", "demo", "--wait=60")
        self.assertIn("failed on the service before it ran", error["message"])
        self.assertEqual(self.desk.state("demo"), "broken")
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r209_rm_of_a_running_one_is_refused(self):
        self.desk.create("demo")
        error = self.desk.fails("INVALID_STATE", "rm", "demo")
        self.assertEqual(error["recovery"]["next_argv"][1:], ["sandbox", "stop", "demo"])
        self.assertEqual(self.cloud.requests_of("delete"), [])

    def test_r209_an_interrupted_rm_spares_what_was_resumed_elsewhere(self):
        self.desk.create_stopped("demo")
        hosted = self.desk.hosted("demo")
        self.cloud.forget_requests()
        self.cloud.fault("get", stuck="before", nth=2)  # the removal's own look
        process = self.desk.popen("sandbox", "rm", "demo")
        wait_until(lambda: len(self.cloud.requests_of("get")) == 2, what="the removal")
        process.kill()
        process.communicate()
        self.cloud.resume(hosted)
        for _ in range(2):
            error = self.desk.fails("INVALID_STATE", "rm", "demo")
            self.assertIn("was resumed elsewhere", error["message"])
            self.assertIn("time limit", error["suggestion"])
        self.assertEqual(self.cloud.requests_of("stop", "delete"), [])
        self.cloud.stop_session(hosted)
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r209_rm_tells_that_it_has_stopped_what_it_cannot_delete(self):
        fault = self.cloud.fault("run", hold="before")
        self.desk.begin("demo")
        fault.wait()
        self.desk.kill_worker()
        fault.release()
        self.cloud.fault("delete", status=403)
        error = self.desk.fails("AUTH_FAILED", "rm", "demo")
        self.assertEqual(error["disposition"]["delivery"], "delivered_unverified")
        self.assertEqual(len(self.cloud.requests_of("stop")), 1)
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r503_rm_deletes_the_snapshots_that_nobody_else_needs(self):
        self.desk.create_stopped("base")
        self.desk.create("demo", "--set", "from=base")
        self.desk.stop("demo")
        self.desk.ok("rm", "base")
        self.desk.start("demo")
        self.desk.stop("demo")
        self.desk.ok("rm", "demo")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r503_a_source_that_was_lost_is_broken_at_its_start(self):
        self.desk.create_stopped("demo")
        self.cloud.lose_snapshot(self.desk.hosted("demo"))
        error = self.desk.fails("ACTION_FAILED", "start", "demo", "--wait=60")
        self.assertIn("no snapshot of its disk any more", error["message"])
        data = self.desk.ok("status", "demo")
        self.assertEqual((data["state"], data["next_argv"][2]), ("broken", "rm"))
        self.desk.ok("rm", "demo")

    def test_r501_a_token_that_is_refused_is_an_error_and_no_state(self):
        self.desk.create("demo")
        self.cloud.revoke()
        error = self.desk.fails("AUTH_FAILED", "status", "demo")
        self.assertIn("VERCEL_TOKEN", error["message"])
        self.assertEqual(error["details"]["state"], "running")
        self.cloud.add_account(self.cloud.token, self.cloud.team, self.cloud.project)
        self.assertEqual(self.desk.state("demo"), "running")

    def test_r505_a_service_that_does_not_answer_is_an_error_and_no_state(self):
        self.desk.create("demo")
        for members in ({"status": 500}, {"status": 429, "retry_after": 100}, {"reset": "before"}, {"stuck": "before"}):
            with self.subTest(members):
                self.cloud.fault("get", always=True, **members)
                reply = self.desk.sandbox("status", "demo")
                self.assertIn(reply.code, ("ACTION_FAILED", "LIMIT_REACHED", "TIMEOUT"), reply)
                self.assertEqual(reply.error["disposition"]["retry"], "safe", reply)
                self.cloud.clear_faults()
        self.assertEqual(self.desk.state("demo"), "running")


class ElsewhereTest(CloudTest):
    """R-506: what happens without us is seen at the next look."""

    def setUp(self):
        super().setUp()
        self.desk.create("demo")
        self.hosted = self.desk.hosted("demo")

    def see(self, state, words=""):
        data = self.desk.ok("status", "demo")
        self.assertEqual(data["state"], state, data)
        self.assertIn(words, data["message"])
        return data

    def test_r506_a_session_that_ended_elsewhere(self):
        self.cloud.stop_session(self.hosted)
        self.see("stopped", "without a stop")
        self.desk.start("demo")

    def test_r506_a_session_that_is_just_ending(self):
        self.cloud.set(stopping_ms=FOREVER)
        self.cloud.stop_session(self.hosted)
        self.see("working", "being stopped")
        self.cloud.set(stopping_ms=0)

    def test_r506_a_session_that_was_resumed_elsewhere(self):
        self.desk.stop("demo")
        self.cloud.resume(self.hosted)
        self.see("running", "until")
        self.assertEqual(self.desk.facts("demo")["session"], self.cloud.sandboxes[self.hosted]["session"]["id"])

    def test_r506_a_session_that_failed(self):
        self.cloud.break_session(self.hosted, "failed")
        data = self.see("broken", "failed on the service")
        self.assertEqual(self.desk.follow(data["next_argv"]).data["state"], "missing")
        self.assertEqual(self.cloud.sandboxes, {})

    def test_r506_a_session_that_was_aborted_without_a_snapshot(self):
        self.cloud.break_session(self.hosted, "aborted")
        self.see("broken", "no snapshot of its disk is kept")

    def test_r506_a_session_that_was_aborted_with_a_snapshot(self):
        self.desk.stop("demo")
        self.desk.start("demo")
        self.cloud.break_session(self.hosted, "aborted")
        self.see("stopped", "aborted")
        self.desk.start("demo")

    def test_r506_a_sandbox_that_was_deleted(self):
        for stop_first in (False, True):
            if stop_first:
                self.desk.create_stopped("demo")
            self.cloud.delete_sandbox(self.desk.hosted("demo"))
            self.see("broken", "was deleted there")
            self.desk.ok("rm", "demo")
            self.assertEqual(self.cloud.requests_of("delete"), [])

    def test_r506_a_sandbox_in_whose_place_is_a_strangers(self):
        self.cloud.delete_sandbox(self.hosted)
        self.cloud.make_sandbox(self.hosted)
        self.see("broken", "not ours")
        self.desk.ok("rm", "demo")
        self.assertEqual(list(self.cloud.sandboxes), [self.hosted])

    def test_r506_a_status_that_nobody_knows_proves_nothing(self):
        show = self.cloud.sandboxes[self.hosted]
        show["session"]["status"] = "hibernating"
        self.cloud.fault("get", body={"sandbox": show, "session": show["session"], "routes": []})
        self.see("running", "'hibernating'")


class ListTest(CloudTest):
    def test_r503_one_is_asked_for_by_itself(self):
        self.desk.create("demo")
        self.cloud.forget_requests()
        self.assertEqual(self.states(), {"demo": "running"})
        self.assertEqual([request.op for request in self.cloud.requests], ["get"])

    def fill(self, count):
        """So many are on record, as if made before: one after the other would take its time."""
        processes = []
        for i in range(count):
            processes.append(self.desk.popen("sandbox", "create", f"demo-{i}", "--provider", "vercel", "--set",
                                             "runtime=node24", "--wait=60"))
            if len(processes) == 4 or i == count - 1:
                for process in processes:
                    out, err = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, 0, (out, err))
                processes.clear()
        self.cloud.forget_requests()

    def states(self):
        return {one["name"]: one["state"] for one in self.desk.ok("list")["sandboxes"]}

    def test_r503_a_few_are_asked_for_by_themselves(self):
        self.fill(5)
        self.assertEqual(self.states(), {f"demo-{i}": "running" for i in range(5)})
        self.assertEqual(len(self.cloud.requests_of("get")), 5)
        self.assertEqual(self.cloud.requests_of("list"), [])

    def test_r503_a_hundred_are_listed_once(self):
        self.fill(100)
        self.cloud.stop_session(self.desk.hosted("demo-7"))
        self.cloud.delete_sandbox(self.desk.hosted("demo-8"))
        for i in range(130):
            self.cloud.make_sandbox(f"somebody-{i}")
        states = self.states()
        self.assertEqual([states.pop("demo-7"), states.pop("demo-8")], ["stopped", "broken"])
        self.assertEqual(set(states.values()), {"running"})
        self.assertEqual(len(states), 98)
        self.assertLessEqual(len(self.cloud.requests_of("list")), 4)  # pages of 50 from both ends, strangers left out
        # What is gone, twice; and what the listing was no proof of.
        self.assertEqual(len(self.cloud.requests_of("get")), 3)
        self.assertEqual(self.cloud.requests_of("resume"), [])
        self.cloud.forget_requests()
        self.assertEqual(self.states()["demo-7"], "stopped")
        self.assertEqual(self.cloud.requests_of("get"), [])  # known by now

    # The service's schema has three words for a sandbox, and seven for its session.
    def test_r506_list_and_status_say_the_same_of_a_coarse_status(self):
        self.cloud.set(sandbox_status="coarse")
        self.fill(36)
        hosted = {i: self.desk.hosted(f"demo-{i}") for i in range(1, 6)}
        for i in (1, 2, 3):
            self.desk.stop(f"demo-{i}")
        self.cloud.resume(hosted[2])
        self.cloud.break_session(hosted[2])  # its snapshot is still there
        self.cloud.set(pending_ms=FOREVER)
        self.cloud.resume(hosted[3])
        self.cloud.stop_session(hosted[4])
        self.cloud.break_session(hosted[5], "aborted")
        for looks in (["demo-2", "demo-3", "demo-4", "demo-5"], ["demo-3"]):  # the other ones are known by then
            self.cloud.forget_requests()
            states = self.states()
            self.assertEqual([states[f"demo-{i}"] for i in range(1, 6)],
                             ["stopped", "broken", "stopped", "stopped", "broken"])
            self.assertEqual(sorted(request.path.split("/")[-1].split("?")[0]
                                    for request in self.cloud.requests_of("get")),
                             sorted(self.desk.hosted(name) for name in looks))
        self.assertEqual(states, {name: self.desk.state(name) for name in states})
        self.cloud.set(pending_ms=0)

    def test_r503_a_list_has_one_limit_for_the_listing_and_what_it_lacks(self):
        self.fill(36)
        self.cloud.delete_sandbox(self.desk.hosted("demo-1"))  # one of the first: who waits for the listing
        self.cloud.set(latency_ms=1700)
        began = time.monotonic()
        data = self.desk.ok("list")
        self.assertLess(time.monotonic() - began, 3)
        self.cloud.set(latency_ms=0)
        one, = (one for one in data["sandboxes"] if one["name"] == "demo-1")
        self.assertEqual(one["state"], "running")  # as recorded
        self.assertIn("has not answered", one["message"])
        self.assertEqual(self.states()["demo-1"], "broken")


if __name__ == "__main__":
    harness.main()
