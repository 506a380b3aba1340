"""providers/remote/http.h against a server that misbehaves (R-404, bug cases 1 and 3, P-14).

Environment (set by CTest): AD_HTTP_DRIVER, the program of http_driver.c.
"""

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from http_server import Authority, File, Proxy, Server, answer, drip, hang, http_date, raw, reset  # noqa: E402

DRIVER = os.environ["AD_HTTP_DRIVER"]
SANITIZED = os.environ.get("AD_SANITIZED") == "ON"
MIB = 1024 * 1024
PROXY_SETTINGS = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")
TRUST_SETTINGS = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


def make_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


def sha1(content):
    return hashlib.sha1(content).hexdigest()


def environment(**settings):
    clean = {k: v for k, v in os.environ.items() if k not in PROXY_SETTINGS + TRUST_SETTINGS}
    return {**clean, **settings}


def run(*words, **settings):
    """The lines that the driver prints."""
    done = subprocess.run([DRIVER, *map(str, words)], capture_output=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL, env=environment(**settings))
    if done.returncode != 0:
        raise AssertionError(f"the driver ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def get(url, size=65536, deadline=5000, **settings):
    return run("get", url, size, deadline, **settings)[0]


def request(*words, **settings):
    return run("request", *words, **settings)[-1]


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="ad-http-")
        self.addCleanup(shutil.rmtree, self.directory)

    def assert_refused(self, reply, code, *words):
        self.assertFalse(reply["ok"], reply)
        self.assertEqual(reply["code"], code, reply)
        for word in words:
            self.assertIn(word, reply["message"])

    def assert_within(self, seconds, function, *words, **settings):
        begun = time.monotonic()
        result = function(*words, **settings)
        self.assertLess(time.monotonic() - begun, seconds)
        return result


class GetTest(Case):
    """http_get(): the catalog."""

    def test_gives_the_document(self):
        with Server(answer(200, b"<plist/>")) as server:
            reply = get(server.url + "/catalog")
        self.assertEqual((reply["ok"], reply["text"]), (True, "<plist/>"))
        self.assertTrue(server.requests[0].headers["user-agent"].startswith("agent-desktop/"))
        self.assertNotIn("expect", server.requests[0].headers)
        self.assertNotIn("authorization", server.requests[0].headers)

    def test_gives_an_empty_document(self):
        with Server(answer(200)) as server:
            self.assertEqual(get(server.url)["size"], 0)

    def test_undoes_compression_whether_it_was_asked_for_or_not(self):
        text = b"catalog " * 1000
        with Server(answer(200, gzip.compress(text), "Content-Encoding: gzip")) as server:
            self.assertEqual(get(server.url)["size"], len(text))
            self.assertIn("gzip", server.requests[0].headers["accept-encoding"])

    def test_refuses_more_than_it_was_to_take(self):
        with Server(answer(200, b"x" * 1001)) as server:
            self.assert_refused(get(server.url, size=1000), "ACTION_FAILED", "127.0.0.1", "more than 1000 bytes")
        with Server(answer(200, b"x" * 1000)) as server:
            self.assertTrue(get(server.url, size=1000)["ok"])

    def test_counts_what_it_takes_after_the_compression_is_undone(self):
        bomb = gzip.compress(bytes(100 * MIB))
        with Server(answer(200, bomb, "Content-Encoding: gzip")) as server:
            self.assert_refused(get(server.url, size=MIB), "ACTION_FAILED", "more than")

    def test_tries_again_what_may_pass(self):
        text = b"the catalog"
        for what, play in {"busy": answer(503), "too many": answer(429), "time-out": answer(408),
                           "reset": reset, "closed": raw(b""), "half a head": raw(b"HTTP/1.1 20"),
                           "cut": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nthe cat"),
                           "cut by a reset": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nthe cat", "reset"),
                           "no length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
                           "cut in a chunk": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nthe")
                           }.items():
            with self.subTest(what), Server(play, answer(200, text)) as server:
                reply = get(server.url)
                self.assertEqual((reply["ok"], reply.get("text")), (True, "the catalog"), reply)
                self.assertEqual(len(server.requests), 2)

    def test_does_not_take_something_else_for_http(self):
        with Server(raw(b"SSH-2.0-OpenSSH_9.2\r\n")) as server:
            self.assert_refused(get(server.url), "ACTION_FAILED", "127.0.0.1")

    def test_does_not_try_again_what_is_a_no(self):
        for status in 400, 401, 403, 404, 410, 416:
            with self.subTest(status), Server(answer(status, b"no")) as server:
                self.assert_refused(get(server.url), "ACTION_FAILED", "127.0.0.1", str(status))
                self.assertEqual(len(server.requests), 1)

    def test_a_refusal_whose_body_is_cut_is_a_refusal(self):
        with Server(raw(b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nno")) as server:
            self.assert_refused(get(server.url), "ACTION_FAILED", "404")

    def test_ends_at_the_deadline(self):
        slow = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
        for what, play in {"silent": hang, "half an answer": raw(slow[:80], "hang"), "drip": drip(slow, 0.05)}.items():
            with self.subTest(what), Server(play) as server:
                reply = self.assert_within(2.5, get, server.url, deadline=1000)
                self.assert_refused(reply, "TIMEOUT", "127.0.0.1", "1000 ms")

    def test_what_is_down_for_good_is_told_before_the_deadline(self):
        with Server(answer(503)) as server:
            reply = self.assert_within(2.5, get, server.url, deadline=1500)
            self.assert_refused(reply, "ACTION_FAILED", "503")
            self.assertGreater(len(server.requests), 1)
        reply = get(f"http://127.0.0.1:{closed_port()}", deadline=1000)
        self.assert_refused(reply, "ACTION_FAILED", "127.0.0.1", "tried")
        self.assertEqual((reply["delivery"], reply["retry"]), ("not_delivered", "safe"))

    def test_waits_as_long_as_the_server_says(self):
        def dates(after):
            """The server's clock is an hour behind."""
            there = time.time() - 3600
            return f"Date: {http_date(there)}", f"Retry-After: {http_date(there + after)}"

        for what, headers in {"seconds": ["Retry-After: 2"], "date": dates(2)}.items():
            with self.subTest(what), Server(answer(503, b"", *headers), answer(200, b"now")) as server:
                begun = time.monotonic()
                self.assertTrue(get(server.url)["ok"])
                self.assertTrue(1.9 < time.monotonic() - begun < 4)

    def test_does_not_wait_longer_than_the_deadline_allows(self):
        for value in "3600", "99999999999999999999", http_date(time.time() + 3600):
            with self.subTest(value), Server(answer(503, b"", f"Retry-After: {value}")) as server:
                self.assert_refused(self.assert_within(1, get, server.url), "ACTION_FAILED", "503")

    def test_ignores_a_retry_after_that_means_nothing(self):
        for value in "", "soon", "-5", "1.5", http_date(time.time() - 3600):
            with self.subTest(value), Server(answer(503, b"", f"Retry-After: {value}"), answer(200, b"x")) as server:
                self.assertTrue(self.assert_within(2, get, server.url)["ok"])


class AddressTest(Case):
    def test_goes_only_to_https_or_to_this_machine(self):
        for url in ("http://example.com/", "http://127.0.0.1.example.com/", "http://127.0.0.1@example.com/",
                    "http://localhost.example.com/", "http://user:secret@127.0.0.1/", "https://user:secret@localhost/",
                    "ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://10.0.0.1/",
                    "http://0.0.0.0/", "http://127.1.2.3.4/", "http://[::2]/", "http://[::ffff:10.0.0.1]/", "/etc/passwd", "", "https://",
                    "http://127.0.0.1:99999/"):
            with self.subTest(url):
                reply = get(url)
                self.assert_refused(reply, "INVALID_ARGS", "https")
                self.assertNotIn("secret", reply["message"])

    def test_knows_this_machine_by_its_addresses(self):
        with Server(answer(200, b"x")) as server:
            for host in "127.0.0.1", "localhost", "LOCALHOST", "127.1", "0x7f000001":
                with self.subTest(host):
                    self.assertTrue(get(f"http://{host}:{server.port}/")["ok"])
        if socket.has_ipv6:
            try:
                server = Server(answer(200, b"x"), family=socket.AF_INET6)
            except OSError:
                self.skipTest("no IPv6 here")
            with server:
                self.assertTrue(get(f"http://[::1]:{server.port}/")["ok"])


class RedirectTest(Case):
    def test_is_followed_to_an_absolute_or_a_relative_address(self):
        for status in 301, 302, 303, 307, 308:
            for location in "{0}/there", "/there", "there":
                with self.subTest(f"{status} {location}"), Server() as server:
                    server.plays = [answer(status, b"elsewhere", f"Location: {location.format(server.url)}"),
                                    answer(200, b"here")]
                    self.assertEqual(get(server.url + "/first")["text"], "here")
                    self.assertEqual(server.requests[1].target, "/there")

    def test_ends_after_ten(self):
        with Server(answer(302, b"", "Location: /again")) as server:
            self.assert_refused(get(server.url), "ACTION_FAILED", "redirects more than 10 times")
            self.assertEqual(len(server.requests), 11)

    def test_does_not_leave_https_or_this_machine(self):
        for target in "http://example.com/", "ftp://127.0.0.1/", "file:///etc/passwd", "http://user:pw@127.0.0.1/":
            with self.subTest(target), Server(answer(302, b"", f"Location: {target}")) as server:
                reply = get(server.url)
                self.assert_refused(reply, "ACTION_FAILED", "redirects")
                self.assertNotIn("pw", reply["message"])

    def test_that_leads_nowhere_is_an_answer(self):
        with Server(answer(302, b"")) as server:
            self.assert_refused(get(server.url), "ACTION_FAILED", "302")

    def test_is_not_followed_with_a_secret_nor_by_what_changes_something(self):
        for words in ["secret", "header=Authorization: Bearer t0ken"], ["method=POST", "body=x"], ["method=DELETE"]:
            with self.subTest(words), Server(answer(307, b"", "Location: /there"), answer(200)) as server:
                reply = request("url=" + server.url, *words)
                self.assertEqual((reply["ok"], reply["status"]), (True, 307))
                self.assertEqual(len(server.requests), 1)


class TlsTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.mkdtemp(prefix="ad-http-ca-")
        cls.addClassCleanup(shutil.rmtree, cls.place)
        cls.authority = Authority(cls.place, ["localhost", "catalog.test"])

    def serve(self, *plays):
        return Server(*plays, tls=self.authority.tls)

    def test_refuses_a_certificate_that_nobody_vouches_for_at_once(self):
        with self.serve(answer(200, b"x")) as server:
            reply = self.assert_within(3, get, server.url)
            self.assert_refused(reply, "ACTION_FAILED", "localhost", "certificate")
            self.assertEqual(reply["delivery"], "not_delivered")
            self.assertEqual((server.requests, server.connections), ([], 1))

    def test_trusts_what_curls_users_tell_it_to_trust(self):
        hashed = self.authority.hashed_directory()
        for settings in ({"SSL_CERT_FILE": self.authority.file}, {"CURL_CA_BUNDLE": self.authority.file},
                         {"SSL_CERT_DIR": hashed},
                         {"CURL_CA_BUNDLE": self.authority.file, "SSL_CERT_FILE": "/nowhere"},
                         {"CURL_CA_BUNDLE": "", "SSL_CERT_FILE": self.authority.file}):
            with self.subTest(settings), self.serve(answer(200, b"sealed")) as server:
                self.assertEqual(get(server.url, **settings).get("text"), "sealed")

    def test_says_so_when_the_file_to_trust_is_not_there(self):
        with self.serve(answer(200)) as server:
            reply = self.assert_within(3, get, server.url, CURL_CA_BUNDLE="/nowhere")
            self.assert_refused(reply, "ACTION_FAILED", "/nowhere")

    def test_refuses_a_certificate_of_another_name(self):
        with self.serve(answer(200)) as server:
            reply = get(f"https://127.0.0.1:{server.port}/", SSL_CERT_FILE=self.authority.file)
            self.assert_refused(reply, "ACTION_FAILED", "127.0.0.1")
            self.assertEqual(server.requests, [])

    def test_redirects_lead_to_https_but_not_away_from_it(self):
        with Server(answer(200, b"open")) as plain, self.serve() as sealed:
            sealed.plays = [answer(302, b"", f"Location: {plain.url}/")]
            self.assert_refused(get(sealed.url, SSL_CERT_FILE=self.authority.file), "ACTION_FAILED",
                                "from https to http")
            plain.plays = [answer(302, b"", f"Location: {sealed.url}/")]
            sealed.plays = [answer(200, b"sealed")]
            self.assertEqual(get(plain.url, SSL_CERT_FILE=self.authority.file)["text"], "sealed")

    def test_goes_through_the_proxy_that_the_environment_names(self):
        with self.serve(answer(200, b"far")) as server, Proxy({"catalog.test:443": server.port}) as proxy:
            for name in "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY":
                with self.subTest(name):
                    reply = get("https://catalog.test/", SSL_CERT_FILE=self.authority.file, **{name: proxy.url})
                    self.assertEqual(reply.get("text"), "far", reply)
        self.assertEqual(proxy.requests[0].target, "catalog.test:443")

    def test_goes_around_the_proxy_where_the_environment_says_so(self):
        with self.serve(answer(200, b"far")) as server, Proxy({"catalog.test:443": server.port}) as proxy:
            reply = get("https://catalog.test/", deadline=1000, SSL_CERT_FILE=self.authority.file,
                        https_proxy=proxy.url, no_proxy="catalog.test")
            self.assertFalse(reply["ok"])  # nobody but the proxy knows that name
            self.assertEqual(proxy.requests, [])

    def test_asks_this_machine_directly_whatever_the_environment_says(self):
        with Server(answer(200, b"near")) as server, Proxy({}) as proxy:
            reply = get(server.url, http_proxy=proxy.url, all_proxy=proxy.url)
            self.assertEqual(reply.get("text"), "near")
            self.assertEqual(proxy.requests, [])

    def test_a_proxy_that_refuses_has_sent_nothing_on(self):
        with Proxy({}, refusal=407) as proxy:
            reply = request("url=https://catalog.test/", "method=POST", "body=x", "tries=1", https_proxy=proxy.url)
            self.assertEqual((reply["fate"], reply["delivery"], reply["status"]), ("not_sent", "not_delivered", 0))

    def test_a_dead_handshake_has_sent_nothing(self):
        with Server(deaf=True) as server:
            url = server.url.replace("http:", "https:")
            reply = request("url=" + url, "method=POST", "body=x", "tries=1")
            self.assertEqual((reply["ok"], reply["fate"]), (False, "not_sent"))

    def test_a_download_is_resumed_over_tls_within_its_memory(self):
        """Bug case 1; P-14."""
        content = make_bytes(40 * MIB)
        path = os.path.join(self.directory, "image")
        with self.serve(File(content, stop_at=16 * MIB), File(content, stop_at=28 * MIB, end="reset"),
                        File(content)) as server:
            reply = run("download", server.url, path, "sha1=" + sha1(content), SSL_CERT_FILE=self.authority.file)[0]
        self.assertTrue(reply["ok"], reply)
        self.assertEqual(reply["sum"], sha1(content))
        if not SANITIZED:
            self.assertLess(reply["peak_kib"], 24 * 1024)


class RequestTest(Case):
    """http_request(): what the hosted provider needs."""

    def test_gives_the_answer_whatever_its_status(self):
        for status in 200, 201, 204, 400, 401, 402, 404, 409, 410, 422, 500, 503:
            body = b"" if status == 204 else b'{"error":{"code":"c"}}'
            with self.subTest(status), Server(answer(status, body, "Content-Type: Application/JSON; charset=utf-8",
                                                     "X-Case: seen")) as server:
                reply = request("url=" + server.url, "tries=1")
                self.assertEqual((reply["ok"], reply["status"], reply["fate"], reply["type"], reply["text"],
                                  reply["x-case"]),
                                 (True, status, "answered", "application/json", body.decode(), "seen"))

    def test_sends_method_headers_and_body(self):
        with Server(answer(200)) as server:
            for method in "POST", "PUT", "PATCH", "DELETE":
                request("url=" + server.url + "/v2/x?teamId=t%20t", "method=" + method, 'body={"a":1}',
                        "header=Content-Type: application/json", "header=Authorization: Bearer t0ken", "secret")
                seen = server.requests[-1]
                self.assertEqual((seen.method, seen.target, seen.body), (method, "/v2/x?teamId=t%20t", b'{"a":1}'))
                self.assertEqual(seen.headers["authorization"], "Bearer t0ken")
                self.assertEqual(seen.headers["content-type"], "application/json")
                self.assertNotIn("accept-encoding", seen.headers)

    def test_a_post_without_a_body_says_so(self):
        with Server(answer(200)) as server:
            request("url=" + server.url, "method=POST")
        self.assertEqual(server.requests[0].headers["content-length"], "0")
        self.assertNotIn("content-type", server.requests[0].headers)

    def test_a_head_has_no_body_to_wait_for(self):
        with Server(lambda c, r: c.send_head(200, "Content-Length: 12345")) as server:
            reply = request("url=" + server.url, "method=HEAD")
        self.assertEqual((reply["ok"], reply["status"], reply["size"]), (True, 200, 12345))

    def test_keeps_as_much_of_a_refusal_as_it_may(self):
        with Server(answer(400, b"x" * 100000)) as server:
            reply = request("url=" + server.url, "max=1000")
        self.assertEqual((reply["status"], len(reply["text"])), (400, 1000))

    def test_keeps_connections(self):
        with Server(answer(200)) as server:
            run("request", "url=" + server.url, "repeatable", "--", "url=" + server.url, "repeatable", "--",
                "url=" + server.url, "once")
        self.assertEqual([r.connection_number for r in server.requests], [1, 1, 2])

    def test_what_must_not_be_sent_twice_is_sent_once(self):
        """Whatever happens behind it: reset or closed before the answer, and half an answer."""
        for what, play in {"reset": reset, "closed": raw(b""), "half a head": raw(b"HTTP/1.1 2", "reset"),
                           "1xx": raw(b"HTTP/1.1 102 Processing\r\n\r\n", "reset")}.items():
            with self.subTest(what), Server(play, answer(200)) as server:
                reply = request("url=" + server.url, "method=POST", "body=create")
                self.assertEqual((reply["ok"], reply["fate"], reply["delivery"], reply["retry"]),
                                 (False, "unknown", "unknown", "unsafe"))
                self.assertEqual(len(server.requests), 1)

    def test_a_dying_connection_does_not_send_it_twice_either(self):
        """libcurl itself sends a request again when a connection that was used before dies without an answer."""
        for word, sent in ("once", 1), ("repeatable", 2):
            with self.subTest(word), Server(answer(200), answer(200), reset, answer(200)) as server:
                lines = run("request", "url=" + server.url, "repeatable", "--", "url=" + server.url, "repeatable", "--",
                            "url=" + server.url, "method=POST", "body=x", word)
                self.assertEqual(lines[2]["ok"], word == "repeatable")
                self.assertEqual(sum(r.method == "POST" for r in server.requests), sent)

    def test_what_certainly_had_no_effect_is_sent_again(self):
        port = closed_port()
        late = []

        def open_late():
            late.append(Server(answer(429), answer(200, b"done"), port=port).__enter__())

        timer = threading.Timer(0.6, open_late)
        timer.start()
        reply = request(f"url=http://127.0.0.1:{port}", "method=POST", "body=create")
        timer.join()
        with late[0]:
            self.assertEqual((reply["status"], reply["text"]), (200, "done"))
            self.assertEqual([r.body for r in late[0].requests], [b"create"] * 2)

    def test_5xx_may_come_from_something_on_the_way(self):
        for status in 500, 502, 503, 504:
            with self.subTest(status), Server(answer(status), answer(200)) as server:
                self.assertEqual(request("url=" + server.url, "method=POST", "body=x")["status"], status)
                self.assertEqual(len(server.requests), 1)
            with self.subTest(status), Server(answer(status), answer(200)) as server:
                self.assertEqual(request("url=" + server.url, "repeatable")["status"], 200)

    def test_nothing_was_sent_where_there_is_nobody(self):
        for what, url in ("port", f"http://127.0.0.1:{closed_port()}"), ("name", "https://nobody.invalid"):
            with self.subTest(what):
                reply = request("url=" + url, "method=POST", "body=x", "tries=2")
                self.assertEqual((reply["fate"], reply["delivery"], reply["retry"]),
                                 ("not_sent", "not_delivered", "safe"))

    def test_tries_no_more_than_it_may(self):
        with Server(answer(503)) as server:
            self.assertEqual(request("url=" + server.url, "repeatable", "tries=3")["status"], 503)
            self.assertEqual(len(server.requests), 3)

    def test_a_stream_is_given_on_as_it_comes(self):
        proceed = threading.Event()

        def play(connection, _):
            connection.send_head(200, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked", "X-Case: a")
            connection.send(b'8\r\n{"a":1}\n\r\n')
            proceed.wait(10)
            connection.send(b'8\r\n{"b":2}\n\r\n0\r\n\r\n')

        with Server(play) as server, subprocess.Popen([DRIVER, "request", "url=" + server.url, "stream"],
                                                      stdout=subprocess.PIPE, env=environment()) as driver:
            head, first = json.loads(driver.stdout.readline()), json.loads(driver.stdout.readline())
            self.assertEqual((head["head"], head["type"], head["x-case"]), (200, "application/x-ndjson", "a"))
            self.assertIn('{"a":1}', first["piece"])
            proceed.set()
            self.assertIn('{"b":2}', json.loads(driver.stdout.readline())["piece"])
            self.assertTrue(json.loads(driver.stdout.readline())["ok"])

    def test_a_stream_that_has_begun_is_not_begun_again(self):
        cut = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonce", "close")
        with Server(cut, answer(200, b"twice")) as server:
            lines = run("request", "url=" + server.url, "stream", "repeatable")
            self.assertEqual([line.get("piece") for line in lines], [None, "once", None])
            self.assertEqual((lines[-1]["ok"], lines[-1]["fate"], lines[-1]["status"]), (False, "answered", 200))
            self.assertEqual(len(server.requests), 1)

    def test_a_stream_shows_no_refusal_as_its_data(self):
        with Server(answer(404, b'{"error":"x"}')) as server:
            lines = run("request", "url=" + server.url, "stream")
        self.assertEqual([(line["status"], line["text"]) for line in lines], [(404, '{"error":"x"}')])

    def test_ends_early_when_the_caller_has_enough(self):
        with Server(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nabcdef", "hang")) as server:
            reply = request("url=" + server.url, "stream", "enough=6")
        self.assertEqual((reply["ok"], reply["status"]), (True, 200))

    def test_a_descriptor_of_the_callers_ends_it_at_any_time(self):
        for what, play in {"no answer": hang, "pause": answer(503, b"", "Retry-After: 8")}.items():
            with self.subTest(what), Server(play) as server:
                with subprocess.Popen([DRIVER, "request", "url=" + server.url, "wake", "repeatable"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as driver:
                    self.assertTrue(server.asked.wait(10))
                    begun = time.monotonic()
                    out, _ = driver.communicate(b"x", timeout=10)
                    self.assertLess(time.monotonic() - begun, 2)
                    self.assertTrue(json.loads(out)["ok"])

    def test_silence_breaks_a_connection_only_where_that_was_asked_for(self):
        def play(connection, _):
            connection.server.ending.wait(1)
            connection.reply(200, b"late")

        with Server(play) as server:
            self.assertEqual(request("url=" + server.url)["text"], "late")
            reply = request("url=" + server.url, "stall=300", "tries=1")
            self.assert_refused(reply, "ACTION_FAILED", "no more data came")
            self.assertLess(reply["elapsed_ms"], 900)
            self.assertEqual(reply["fate"], "unknown")

    def test_a_drip_is_as_good_as_silence_where_that_was_asked_for(self):
        with Server(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000, 0.01)) as server:
            reply = request("url=" + server.url, "stall=500", "stall_bytes=1000", "tries=1")
            self.assert_refused(reply, "ACTION_FAILED", "no more data came")

    def test_sends_a_long_body_in_bounded_memory(self):
        size = 64 * MIB
        expected = sha1((bytes(range(251)) * (size // 251 + 1))[:size])
        for word in "known", "untold":
            with self.subTest(word), Server(answer(200)) as server:
                reply = request("url=" + server.url, "method=POST", f"produce={size}", "deadline=30000", word)
                self.assertEqual(reply["status"], 200)
                self.assertEqual(sha1(server.requests[0].body), expected)
                self.assertEqual("content-length" in server.requests[0].headers, word == "known")
                self.assertNotIn("expect", server.requests[0].headers)
                if not SANITIZED:
                    self.assertLess(reply["peak_kib"], 16 * 1024)

    def test_sends_a_body_again_from_its_start(self):
        with Server(answer(503), answer(200)) as server:
            self.assertEqual(request("url=" + server.url, "method=POST", "produce=1000000", "repeatable")["status"], 200)
        self.assertEqual(sha1(server.requests[0].body), sha1(server.requests[1].body))
        self.assertEqual(len(server.requests[1].body), 1000000)

    def test_hears_a_refusal_before_all_is_sent(self):
        def play(connection, _):
            connection.reply(413, b"too large", "Connection: close")
            connection.close()

        play.early = True
        with Server(play) as server:
            reply = request("url=" + server.url, "method=POST", f"produce={8 * MIB}", "tries=1")
        self.assertEqual((reply["status"], reply["text"]), (413, "too large"))


class DownloadTest(Case):
    """http_download(): the image."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.directory, "image")

    def content_here(self):
        with open(self.path, "rb") as f:
            return f.read()

    def put(self, content):
        with open(self.path, "wb") as f:
            f.write(content)

    def download(self, server, *words, **settings):
        return run("download", server.url + "/image.ipsw", self.path, *words, **settings)[0]

    def assert_downloads(self, content, *plays, words=(), requests=None):
        """CONTENT is there in the end, hashed."""
        with Server(*plays) as server:
            reply = self.download(server, "sha1=" + sha1(content).upper(), *words)
        self.assertTrue(reply["ok"], reply)
        self.assertEqual(reply["sum"], sha1(content))
        self.assertEqual(self.content_here(), content)
        if requests is not None:
            self.assertEqual(len(server.requests), requests, server.requests)
        return server, reply

    def test_brings_the_file_with_its_sum(self):
        content = make_bytes(3 * MIB + 17)
        server, reply = self.assert_downloads(content, File(content), requests=1)
        self.assertEqual(reply["progress"][-1], {"done": len(content), "total": len(content)})
        self.assertEqual(server.requests[0].headers["accept-encoding"], "identity")
        self.assertNotIn("range", server.requests[0].headers)

    def test_brings_files_of_every_size_around_its_blocks(self):
        for size in 0, 1, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, 2 * MIB, 2 * MIB + 1:
            with self.subTest(size):
                content = make_bytes(size)
                self.put(b"")
                self.assert_downloads(content, File(content))

    def test_tells_a_sum_where_none_is_published(self):
        content = make_bytes(1000)
        with Server(File(content)) as server:
            reply = self.download(server)
        self.assertEqual((reply["ok"], reply["sum"]), (True, sha1(content)))

    # ---- connections that break ----

    def test_goes_on_where_a_connection_broke(self):
        """Bug case 1: dropped at 40 % and at 70 %, less than 1.1 times the size is served."""
        content = make_bytes(20 * MIB)
        server, reply = self.assert_downloads(
            content, File(content, stop_at=8 * MIB), File(content, stop_at=14 * MIB), File(content), requests=3)
        self.assertEqual(server.body_bytes, len(content))
        self.assertEqual([r.headers.get("range") for r in server.requests],
                         [None, f"bytes={8 * MIB}-", f"bytes={14 * MIB}-"])
        self.assertEqual([r.headers.get("if-range") for r in server.requests], [None, '"v1"', '"v1"'])
        done = [p["done"] for p in reply["progress"]]
        self.assertEqual(done, sorted(done))
        self.assertGreater(len(set(done)), 2)

    def test_goes_on_after_a_break_at_any_byte(self):
        content = make_bytes(48)
        for end in "close", "reset":
            for at in range(len(content)):
                with self.subTest(f"{end} at {at}"):
                    self.put(b"")
                    self.assert_downloads(content, File(content, stop_at=at, end=end), File(content))

    def test_goes_on_after_a_break_at_any_byte_of_the_head(self):
        content = make_bytes(50000)
        head = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 40000-49999/50000\r\nContent-Length: 10000\r\n\r\n"
        for at in range(len(head)):
            with self.subTest(at):
                self.put(b"")
                self.assert_downloads(content, File(content, stop_at=40000), raw(head[:at]), File(content), requests=3)

    def test_goes_on_through_refusals_that_pass(self):
        content = make_bytes(100000)
        server, _ = self.assert_downloads(content, answer(503), File(content, stop_at=50000), answer(429, b"slow down"),
                                          reset, answer(503, b"", "Retry-After: 1"), File(content), requests=6)
        self.assertEqual(server.requests[5].headers["range"], "bytes=50000-")

    def test_goes_on_behind_a_redirect(self):
        content = make_bytes(100000)
        with Server(File(content, stop_at=40000), File(content)) as there:
            self.assert_downloads(content, answer(302, b"", f"Location: {there.url}/cdn"))
        self.assertEqual([r.headers.get("range") for r in there.requests], [None, "bytes=40000-"])

    def test_takes_a_file_in_as_many_pieces_as_the_server_likes(self):
        """Without a pause between them."""
        content = make_bytes(4 * MIB)

        def piece(connection, request):
            start = int(request.headers.get("range", "bytes=0-")[6:-1])
            end = min(start + 100000, len(content))
            connection.send_head(206 if start else 200, 'ETag: "v1"', f"Content-Length: {end - start}",
                                 *([f"Content-Range: bytes {start}-{end - 1}/{len(content)}"] if start else []))
            connection.send_body(content[start:end])

        def first(connection, request):
            connection.send_head(200, 'ETag: "v1"', f"Content-Length: {len(content)}")
            connection.send_body(content[:100000])
            connection.close()

        self.assert_within(10, self.assert_downloads, content, first, piece)

    # ---- what is there before ----

    def test_begins_with_what_the_file_holds(self):
        content = make_bytes(3 * MIB)
        for held in 1, 512 * 1024, 2 * MIB + 5, len(content) - 1:
            with self.subTest(held):
                self.put(content[:held])
                server, _ = self.assert_downloads(content, File(content), requests=1)
                self.assertEqual(server.body_bytes, len(content) - held)

    def test_has_nothing_to_do_when_it_is_all_there(self):
        content = make_bytes(1000)
        self.put(content)
        server, _ = self.assert_downloads(content, File(content), requests=1)
        self.assertLess(server.body_bytes, 10)

    def test_sees_in_a_416_that_it_is_all_there_or_not(self):
        content = make_bytes(1000)
        for what, play in {"with the size": answer(416, b"", "Content-Range: bytes */1000"),
                           "without": answer(416), "odd": answer(416, b"", "Content-Range: bytes */*")}.items():
            with self.subTest(what):
                self.put(content)
                self.assert_downloads(content, play, requests=1)
                self.put(content[:500])
                self.assert_downloads(content, play, File(content), requests=2)
                self.put(content + b"more")
                self.assert_downloads(content, play, File(content), requests=2)

    def test_begins_anew_when_what_the_file_holds_is_of_another_one(self):
        content, other = make_bytes(100000), make_bytes(50000, seed=2)
        self.put(other)
        self.assert_downloads(content, File(content), requests=2)

    def test_does_not_trust_what_the_file_holds_without_a_published_sum(self):
        content = make_bytes(1000)
        self.put(b"junk")
        with Server(File(content)) as server:
            self.assertTrue(self.download(server)["ok"])
        self.assertEqual(self.content_here(), content)

    # ---- answers that are not what was asked for ----

    def test_takes_the_whole_file_instead_of_the_rest(self):
        content = make_bytes(100000)
        server, _ = self.assert_downloads(content, File(content, stop_at=40000), File(content, ranges=False),
                                          requests=2)
        self.assertEqual(server.requests[1].headers["range"], "bytes=40000-")

    def test_does_not_take_a_range_that_is_not_the_one(self):
        content = make_bytes(100000)
        tail = content[40000:]

        def odd(*headers, body=tail):
            def play(connection, _):
                connection.send_head(206, f"Content-Length: {len(body)}", 'ETag: "v1"', *headers)
                connection.send_body(body)
            return play

        for what, play in {
                "before": odd("Content-Range: bytes 0-99999/100000", body=content),
                "behind": odd("Content-Range: bytes 40001-99999/100000", body=tail[1:]),
                "none": odd(), "empty": odd("Content-Range:"), "words": odd("Content-Range: bytes all/100000"),
                "several": odd("Content-Type: multipart/byteranges; boundary=b", body=b"--b\r\n\r\nx\r\n--b--"),
                "backwards": odd("Content-Range: bytes 40000-39999/100000"),
                "past the end": odd("Content-Range: bytes 40000-100000/100000", body=tail + b"x"),
                "huge": odd("Content-Range: bytes 40000-99999999999999999999/*"),
                "longer than its body": odd("Content-Range: bytes 40000-99999/100000", body=tail[:-1]),
                "shorter than its body": odd("Content-Range: bytes 40000-99998/100000"),
                "other unit": odd("Content-Range: lines 40000-99999/100000"),
                "trailing text": odd("Content-Range: bytes 40000-99999/100000x")}.items():
            with self.subTest(what):
                self.put(b"")
                server, _ = self.assert_downloads(content, File(content, stop_at=40000), play, File(content),
                                                  requests=3)
                self.assertNotIn("range", server.requests[2].headers)

    def test_takes_a_range_of_a_file_of_untold_size(self):
        content = make_bytes(100000)

        def play(connection, _):
            connection.send_head(206, "Content-Length: 60000", "Content-Range: BYTES 40000-99999/*")
            connection.send_body(content[40000:])

        self.assert_downloads(content, File(content, stop_at=40000), play, requests=2)

    def test_asks_for_what_is_missing_of_a_body_that_was_too_short(self):
        content = make_bytes(100000)
        head = b'HTTP/1.1 200 OK\r\nETag: "v1"\r\nContent-Length: 100000\r\n\r\n'
        server, _ = self.assert_downloads(content, raw(head + content[:30000]), File(content), requests=2)
        self.assertEqual(server.body_bytes - len(head), len(content))

    def test_notices_a_body_without_a_length_that_was_too_short(self):
        content = make_bytes(100000)
        self.assert_downloads(content, raw(b"HTTP/1.1 200 OK\r\n\r\n" + content[:30000]), File(content), requests=2)

    def test_takes_a_body_without_a_length(self):
        content = make_bytes(100000)
        _, reply = self.assert_downloads(content, raw(b"HTTP/1.1 200 OK\r\n\r\n" + content), requests=1)
        self.assertEqual(reply["progress"][-1], {"done": 100000, "total": -1})

    def test_leaves_what_comes_behind_the_end_of_a_range(self):
        content = make_bytes(100000)
        rest = content[40000:] + b"more than was said"
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest)
        self.assert_downloads(content, File(content, stop_at=40000),
                              raw(b"HTTP/1.1 206 Partial\r\nTransfer-Encoding: chunked\r\n"
                                  b"Content-Range: bytes 40000-99999/100000\r\n\r\n" + chunked), requests=2)

    def test_needs_no_end_of_the_message_behind_the_end_of_the_file(self):
        content = make_bytes(100000)
        rest = b"%x\r\n%s\r\n" % (60000, content[40000:])
        for end in "hang", "reset", "close":
            with self.subTest(end):
                self.put(b"")
                self.assert_downloads(content, File(content, stop_at=40000),
                                      raw(b"HTTP/1.1 206 Partial\r\nTransfer-Encoding: chunked\r\n"
                                          b"Content-Range: bytes 40000-99999/100000\r\n\r\n" + rest, end),
                                      words=["stall=300"], requests=2)

    def test_a_206_that_nobody_asked_for_is_not_taken(self):
        content = make_bytes(1000)
        self.assert_downloads(content, answer(206, content[:10], "Content-Range: bytes 0-9/1000"), answer(204),
                              File(content), requests=3)

    def test_takes_the_bytes_as_they_are_whatever_their_encoding_is_called(self):
        content = gzip.compress(make_bytes(10000))
        self.assert_downloads(content, File(content, headers=["Content-Encoding: gzip"]), requests=1)

    # ---- another file under the same address ----

    def test_begins_anew_when_the_file_changes(self):
        old, new = make_bytes(100000), make_bytes(90000, seed=2)
        for what, second, third in (
                ("the server heeds If-Range", File(new, etag='"v2"'), None),
                ("by its ETag", File(new, etag='"v2"', heed_if_range=False), File(new, etag='"v2"')),
                ("412", answer(412), File(new, etag='"v2"')),
                ("by its size", File(new, etag=None, heed_if_range=False), File(new, etag='"v2"'))):
            with self.subTest(what):
                self.put(b"")
                self.assert_downloads(new, File(old, stop_at=40000), second, *([third] if third else []),
                                      requests=3 if third else 2)

    def test_tells_versions_by_their_date_where_there_is_no_tag(self):
        old, new = make_bytes(100000), make_bytes(100000, seed=2)
        then, now = http_date(1_700_000_000), http_date(1_700_000_999)
        server, _ = self.assert_downloads(new, File(old, etag=None, modified=then, stop_at=40000),
                                          File(new, etag=None, modified=now, heed_if_range=False),
                                          File(new, etag=None, modified=now), requests=3)
        self.assertEqual(server.requests[1].headers["if-range"], then)

    def test_does_not_make_a_condition_of_a_weak_tag(self):
        content = make_bytes(100000)
        then = http_date(1_700_000_000)
        server, _ = self.assert_downloads(content, File(content, etag='W/"1"', stop_at=40000),
                                          File(content, etag='W/"1"'), requests=2)
        self.assertNotIn("if-range", server.requests[1].headers)
        self.put(b"")
        server, _ = self.assert_downloads(content, File(content, etag='W/"1"', modified=then, stop_at=40000),
                                          File(content, etag='W/"1"', modified=then), requests=2)
        self.assertEqual(server.requests[1].headers["if-range"], then)

    def test_notices_by_the_sum_that_two_versions_were_mixed(self):
        old, new = make_bytes(100000), make_bytes(100000, seed=2)
        self.assert_downloads(new, File(old, etag=None, stop_at=40000), File(new, etag=None), requests=3)

    def test_does_not_run_after_a_file_that_never_stays_the_same(self):
        versions = [File(make_bytes(100000, seed=n), etag=f'"v{n}"', stop_at=50000 if n % 2 == 0 else None,
                         heed_if_range=False) for n in range(30)]
        with Server(*versions) as server:
            reply = self.assert_within(20, self.download, server)
        self.assert_refused(reply, "ACTION_FAILED", "changed")

    def test_says_so_when_the_sum_is_wrong(self):
        content = make_bytes(1000)
        with Server(File(content)) as server:
            reply = self.download(server, "sha1=" + "ab" * 20)
        self.assert_refused(reply, "ACTION_FAILED", "127.0.0.1", sha1(content), "ab" * 20)
        self.assertEqual(len(server.requests), 1)

    # ---- servers that give nothing ----

    def test_gives_up_with_the_number_of_bytes_that_are_there(self):
        content = make_bytes(100000)
        for what, plays in {"reset": [File(content, stop_at=40000), reset],
                            "silent": [File(content, stop_at=40000), hang],
                            "busy": [File(content, stop_at=40000), answer(503)],
                            "stops there every time": [File(content, stop_at=40000)],
                            "never the right range": [File(content, stop_at=40000),
                                                      answer(206, b"x", "Content-Range: bytes 1-1/2")]}.items():
            with self.subTest(what), Server(*plays) as server:
                self.put(b"")
                reply = self.assert_within(9, self.download, server, "stall=300", "give_up=1000")
                self.assert_refused(reply, "ACTION_FAILED", "127.0.0.1", " bytes: ")
                self.assertIn("40000 of 100000", reply["message"])
                self.assertGreater(len(server.requests), 3)

    def test_gives_up_on_a_server_without_ranges_that_always_breaks(self):
        content = make_bytes(100000)
        with Server(File(content, ranges=False, stop_at=40000)) as server:
            reply = self.assert_within(9, self.download, server, "give_up=1500")
        self.assert_refused(reply, "ACTION_FAILED", "40000 of 100000")

    def test_gives_up_on_a_drip(self):
        data = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100000
        with Server(drip(data, 0.01, at_once=1000)) as server:
            reply = self.assert_within(9, self.download, server, "stall=300", "give_up=1500")
        self.assert_refused(reply, "ACTION_FAILED", "of 1000000")

    def test_gives_up_on_a_drip_that_goes_on_in_every_connection(self):
        with Server(File(make_bytes(100000), chunk=1, pause=0.005)) as server:
            reply = self.assert_within(9, self.download, server, "stall=300", "give_up=1500")
        self.assert_refused(reply, "ACTION_FAILED", "of 100000")
        self.assertGreater(len(server.requests), 3)

    def test_does_not_compare_the_progress_of_two_versions(self):
        old, new = make_bytes(100000 * 9), make_bytes(100000 * 9, seed=2)
        again = [File(new, etag='"v2"', stop_at=100000 * n) for n in range(1, 8)]
        self.assert_downloads(new, File(old, stop_at=800000), answer(412), *again, File(new, etag='"v2"'),
                              words=["stall=1000", "give_up=1"], requests=10)

    def test_does_not_give_up_on_what_is_slow_but_steady(self):
        content = make_bytes(20 * 16384)
        slow = File(content, chunk=16384, pause=0.1)
        self.assert_downloads(content, slow, words=["stall=500", "give_up=600"], requests=1)

    def test_a_refusal_ends_it(self):
        content = make_bytes(1000)
        for status in 401, 403, 404, 410:
            with self.subTest(status), Server(File(content, stop_at=500), answer(status)) as server:
                self.put(b"")
                reply = self.download(server)
                self.assert_refused(reply, "ACTION_FAILED", "127.0.0.1", str(status), "500 of 1000")
                self.assertEqual(len(server.requests), 2)

    # ---- our own side ----

    def test_says_so_when_there_is_no_space(self):
        """Bug case 3."""
        content = make_bytes(4 * MIB)
        size = "4194304"
        command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "sh", "-c",
                   'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" download "$3" "$1/image"', "sh",
                   self.directory, DRIVER]
        if subprocess.run([*command[:-6], "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mount namespace to be had")
        with Server(File(content)) as server:
            done = subprocess.run([*command, server.url], capture_output=True, timeout=30, check=True, env=environment())
        self.assert_refused(json.loads(done.stdout), "STORE_FULL", "No space left", size)
        self.assertEqual(len(server.requests), 1)

    def test_says_so_when_the_file_may_not_grow(self):
        content = make_bytes(4 * MIB)
        with Server(File(content)) as server:
            done = subprocess.run(
                ["sh", "-c", 'trap "" XFSZ; ulimit -f 2048; exec "$@"', "sh", DRIVER, "download", server.url, self.path],
                capture_output=True, timeout=30, check=True, env=environment())
        self.assert_refused(json.loads(done.stdout), "STORE_FULL", "of 4194304 bytes")

    def test_what_a_killed_download_leaves_is_a_beginning(self):
        content = make_bytes(8 * MIB)
        for number in signal.SIGTERM, signal.SIGKILL:
            with self.subTest(number), Server(File(content, stop_at=5 * MIB, end="hang"), File(content)) as server:
                self.put(b"")
                with subprocess.Popen([DRIVER, "download", server.url, self.path], stdout=subprocess.DEVNULL,
                                      env=environment()) as driver:
                    while os.path.getsize(self.path) < 4 * MIB:
                        time.sleep(0.01)
                    driver.send_signal(number)
                self.assertEqual(driver.returncode, -number)
                self.assertTrue(content.startswith(self.content_here()))
                held = os.path.getsize(self.path)
                reply = self.download(server, "sha1=" + sha1(content))
                self.assertTrue(reply["ok"], reply)
                self.assertEqual(server.requests[1].headers["range"], f"bytes={held}-")

    def test_stays_within_its_memory(self):
        """P-14."""
        block = make_bytes(MIB)
        total = 256

        def play(connection, _):
            connection.send_head(200, f"Content-Length: {total * MIB}")
            for _ in range(total):
                connection.send_body(block)

        with Server(play) as server:
            reply = self.download(server)
        self.assertTrue(reply["ok"], reply)
        if not SANITIZED:
            self.assertLess(reply["peak_kib"], 24 * 1024)


if __name__ == "__main__":
    unittest.main()
