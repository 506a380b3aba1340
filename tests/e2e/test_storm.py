"""R-304, bug cases 4 and 17: a hundred clients at once on one state root, some of them killed. The books must balance."""

import os
import random
import signal
import threading
import time

from harness import DeskTest, envelope, main

CLIENTS = min(100, int(os.environ.get("AD_CROWD", "100")))
ROUNDS = int(os.environ.get("AD_STORM_ROUNDS", "2"))
SEED = int(os.environ.get("AD_STORM_SEED", "7"))
NAMES = ["a", "b", "c", "d"]
COMMANDS = [
    lambda name: ["create", name],
    lambda name: ["rm", name],
    lambda name: ["status", name],
    lambda name: ["list"],
    lambda name: ["log", name, "--limit", "5"],
    lambda name: ["stop", name],
]
START = lambda name: ["start", name, "--wait=60"]  # noqa: E731
# What may be said no to in a crowd. Everything else is a fault.
EXPECTED = {"SANDBOX_BUSY", "STORE_BUSY", "SANDBOX_EXISTS", "SANDBOX_NOT_FOUND", "INVALID_STATE"}


class Client(threading.Thread):
    """One command; killed after a moment when `kill_after` is set."""

    def __init__(self, desk, command, kill_after):
        super().__init__()
        self.desk, self.command, self.kill_after = desk, command, kill_after
        self.json = self.problem = None

    def run(self):
        try:
            process = self.desk.popen("sandbox", *self.command)
            if self.kill_after is not None:
                time.sleep(self.kill_after)
                process.send_signal(signal.SIGKILL)
            out, err = process.communicate(timeout=120)
            if out.endswith(b"\n"):
                self.json = envelope(out.rstrip(b"\n"), self.command)
            elif self.kill_after is None:
                self.problem = f"{self.command}: no reply, status {process.returncode}: {err[-500:]!r}"
        except Exception as problem:  # told by the test's own thread
            self.problem = f"{self.command}: {problem}"


class StormTest(DeskTest):
    def storm(self, kill_share, with_start):
        chance = random.Random(SEED)
        clients = []
        for i in range(CLIENTS):
            commands = COMMANDS + ([START] if with_start and i % 10 == 0 else [])
            command = commands[chance.randrange(len(commands))](chance.choice(NAMES))
            kill_after = chance.uniform(0, 0.08) if chance.random() < kill_share else None
            clients.append(Client(self.desk, command, kill_after))
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return clients

    def balance(self):
        """Every name can be told, ended and made again; the chain holds and the fold equals the replay."""
        self.desk.verify()
        for name in NAMES:
            state = self.settled(name)
            if state == "running":
                self.assertEqual(self.desk.ok("stop", name, "--wait=60")["state"], "stopped")
            if state != "missing":
                self.desk.ok("rm", name)
            self.desk.ok("create", name)
            self.desk.ok("rm", name)
        self.assertEqual(self.desk.ok("list")["sandboxes"], [])
        self.assertEqual(os.listdir(self.desk.path("sandboxes")), [])
        self.desk.verify()

    def settled(self, name):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            reply = self.desk.sandbox("status", name)
            if reply.code == "SANDBOX_NOT_FOUND":
                return "missing"
            if reply.data["state"] != "working":
                return reply.data["state"]
            time.sleep(0.02)
        raise AssertionError(f"{name} is still working: {reply}")

    def check(self, clients):
        problems = [c.problem for c in clients if c.problem]
        self.assertEqual(problems, [])
        errors = [c.json["error"] for c in clients if c.json and not c.json["ok"]]
        others = [e for e in errors if e["code"] not in EXPECTED]
        # A stop cancels what another client creates or starts: that one has failed, and says why.
        self.assertEqual([e for e in others if e["code"] != "ACTION_FAILED" or "cancelled" not in e["message"]], [])
        # At most one creation of a name wins between two removals of it: the journal must show them in turn.
        alive = set()
        for event in self.desk.events():
            if event["kind"] == "move" and event["event"] in ("create", "clone"):
                self.assertNotIn(event["name"], alive)
                alive.add(event["name"])
            elif event["kind"] == "move" and event["to"] == "missing":
                alive.discard(event["name"])

    def test_r304_a_hundred_clients_without_kills(self):
        for _ in range(ROUNDS):
            clients = self.storm(0, False)
            self.check(clients)
            self.assertTrue(any(c.json and c.json["ok"] for c in clients))
        self.balance()

    def test_r304_r305_a_hundred_clients_with_kills_at_random(self):
        for _ in range(ROUNDS):
            self.check(self.storm(0.35, True))
        self.balance()

    def test_case_17_killed_readers_fill_no_table_and_no_file(self):
        """500 looks killed at random leave a store that opens, and a file that did not grow."""
        self.desk.ok("create", "x")
        size = os.path.getsize(self.desk.path("journal", "data.mdb"))
        chance = random.Random(SEED)
        for _ in range(10):
            clients = [
                Client(self.desk, ["status", "x"] if i % 5 else ["start", "nosuch"], chance.uniform(0, 0.03))
                for i in range(50)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
        self.assertEqual(self.desk.state("x"), "stopped")
        self.desk.ok("create", "y")
        self.desk.ok("rm", "y")
        self.assertLess(os.path.getsize(self.desk.path("journal", "data.mdb")), size + 512 * 1024)


if __name__ == "__main__":
    main()
