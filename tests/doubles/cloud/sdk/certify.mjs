// The vendor's SDK makes its own calls to the simulated service. It checks every reply itself and throws at what does
// not have the form that it knows; what the calls are to do is asserted here.
//
// Environment: CLOUD_URL, CLOUD_TOKEN, CLOUD_TEAM, CLOUD_PROJECT; VERCEL_OIDC_TOKEN, a token of the same project.

import assert from "node:assert/strict";
import { APIError, Sandbox, Snapshot } from "@vercel/sandbox";

const credentials = {
  token: process.env.CLOUD_TOKEN,
  teamId: process.env.CLOUD_TEAM,
  projectId: process.env.CLOUD_PROJECT,
};

const isRefused = (status, code) => (error) =>
  error instanceof APIError && error.response.status === status && error.json?.error?.code === code;

async function collect(pages) {
  const all = [];
  for await (const one of pages) all.push(one);
  return all;
}

// Takes what SDK writes of a command's output while it runs.
function sink() {
  const taken = [];
  return { taken, write: (data) => taken.push(data) };
}

const steps = {
  async "create, with everything that goes into one"(state) {
    state.sandbox = await Sandbox.create({
      ...credentials,
      name: "certified",
      image: "ad-desktop:latest",
      timeout: 600_000,
      persistent: true,
      ports: [3000, 8080],
      resources: { vcpus: 4 },
      env: { FROM_SANDBOX: "yes" },
      tags: { purpose: "certify" },
      networkPolicy: { allow: ["*.example.com"], subnets: { deny: ["10.0.0.0/8"] } },
      snapshotExpiration: 0,
      keepLastSnapshots: { count: 3 },
    });
    const { sandbox } = state;
    assert.equal(sandbox.name, "certified");
    assert.equal(sandbox.status, "running");
    assert.equal(sandbox.vcpus, 4);
    assert.equal(sandbox.memory, 8192);
    assert.equal(sandbox.timeout, 600_000);
    assert.match(sandbox.image, /^ad-desktop@sha256:[0-9a-f]{64}$/);
    assert.deepEqual(sandbox.tags, { purpose: "certify" });
    assert.deepEqual(sandbox.networkPolicy, { allow: ["*.example.com"], subnets: { deny: ["10.0.0.0/8"] } });
    assert.match(sandbox.domain(3000), /^https:\/\/.+\.vercel\.run$/);
    assert.ok(sandbox.expiresAt > new Date());
  },

  async "create: a name that is taken"() {
    await assert.rejects(Sandbox.create({ ...credentials, name: "certified" }), isRefused(400, "bad_request"));
  },

  async "create: a runtime, no name"() {
    const sandbox = await Sandbox.create({ ...credentials, runtime: "node24", persistent: false });
    assert.equal(sandbox.runtime, "node24");
    assert.equal(sandbox.persistent, false);
    await sandbox.delete();
  },

  async "get"(state) {
    const found = await Sandbox.get({ ...credentials, name: "certified", resume: false });
    assert.equal(found.currentSession().sessionId, state.sandbox.currentSession().sessionId);
    await assert.rejects(Sandbox.get({ ...credentials, name: "nobody" }), isRefused(404, "not_found"));
  },

  async "get or create"() {
    let created = 0;
    const known = await Sandbox.getOrCreate({ ...credentials, name: "certified", onCreate: () => created++ });
    assert.equal(known.name, "certified");
    const made = await Sandbox.getOrCreate({ ...credentials, name: "made", onCreate: () => created++ });
    assert.equal(created, 1);
    await made.delete();
  },

  async "list, page by page, with a filter"() {
    const names = [..."abcdefg"].map((letter) => `listed-${letter}`);
    const made = await Promise.all(names.map((name) => Sandbox.create({ ...credentials, name, tags: { of: "list" } })));
    const listed = await collect(await Sandbox.list({ ...credentials, limit: 3, sortBy: "name", sortOrder: "asc",
      namePrefix: "listed-" }));
    assert.deepEqual(listed.map((one) => one.name), names);
    const tagged = await collect(await Sandbox.list({ ...credentials, limit: 2, tags: { of: "list" } }));
    assert.equal(tagged.length, names.length);
    await Promise.all(made.map((one) => one.delete()));
    assert.deepEqual((await collect(await Sandbox.list(credentials))).map((one) => one.name), ["certified"]);
  },

  async "a command, waited for"({ sandbox }) {
    const stdout = sink(), stderr = sink();
    const done = await sandbox.runCommand({
      cmd: "sh",
      args: ["-c", "echo \"$FROM_SANDBOX $FROM_COMMAND\"; echo oops >&2; exit 3"],
      env: { FROM_COMMAND: "too" }, stdout, stderr,
    });
    assert.equal(done.exitCode, 3);
    assert.equal(await done.stdout(), "yes too\n");
    assert.equal(await done.stderr(), "oops\n");
    assert.equal(stdout.taken.join(""), "yes too\n");
    assert.equal(stderr.taken.join(""), "oops\n");
  },

  async "a command's output comes while it runs"({ sandbox }) {
    let told;
    const first = new Promise((resolve) => { told = resolve; });
    const running = sandbox.runCommand({ cmd: "sh", args: ["-c", "echo first; until test -e go; do sleep 0.01; done"],
      stdout: { write: told } });
    assert.equal(await first, "first\n");
    await sandbox.runCommand("touch", ["go"]);
    assert.equal((await running).exitCode, 0);
  },

  async "arguments are no command line"({ sandbox }) {
    const args = ["", "a b", "\"", "'", "\\", "$HOME", "`id`", ";", "*", "\n", "--", "ünï"];
    const done = await sandbox.runCommand("printf", ["[%s]", ...args]);
    assert.equal(await done.stdout(), args.map((word) => `[${word}]`).join(""));
    await assert.rejects(sandbox.runCommand("echo hello"), isRefused(400, "executable_not_found"));
    await assert.rejects(sandbox.runCommand("no-such-program"), isRefused(400, "executable_not_found"));
  },

  async "output that is no text"({ sandbox }) {
    const done = await sandbox.runCommand("printf", ["a\\377b\\0c"]);
    assert.equal(await done.stdout(), "a\ufffdb\0c");
  },

  async "a command's time is up"({ sandbox }) {
    const done = await sandbox.runCommand({ cmd: "sleep", args: ["60"], timeoutMs: 100 });
    assert.equal(done.exitCode, 137);
  },

  async "a detached command: state, logs, wait"({ sandbox }) {
    const command = await sandbox.runCommand({ cmd: "sh", detached: true,
      args: ["-c", "echo before; until test -e on; do sleep 0.01; done; echo after"] });
    assert.equal(command.exitCode, null);
    assert.equal((await sandbox.getCommand(command.cmdId)).exitCode, null);
    const lines = command.logs();
    assert.deepEqual((await lines.next()).value, { stream: "stdout", data: "before\n" });
    await sandbox.runCommand("touch", ["on"]);
    assert.deepEqual((await lines.next()).value, { stream: "stdout", data: "after\n" });
    assert.ok((await lines.next()).done);
    assert.equal((await command.wait()).exitCode, 0);
    assert.equal(await (await sandbox.getCommand(command.cmdId)).stdout(), "before\nafter\n");
  },

  async "kill"({ sandbox }) {
    const command = await sandbox.runCommand({ cmd: "sleep", args: ["60"], detached: true });
    await command.kill("SIGTERM");
    assert.equal((await command.wait()).exitCode, 143);
  },

  async "files"({ sandbox }) {
    const long = `${"deep/".repeat(30)}${"n".repeat(120)}`;
    await sandbox.mkDir("made");
    await sandbox.writeFiles([
      { path: "made/text", content: "hello\n" },
      { path: "run-me", content: "#!/bin/sh\necho ran\n", mode: 0o755 },
      { path: long, content: Buffer.from([0, 255, 10]) },
      { path: "naïve", content: "ü" },
    ]);
    assert.equal((await sandbox.readFileToBuffer({ path: "made/text" })).toString(), "hello\n");
    assert.deepEqual(await sandbox.readFileToBuffer({ path: long }), Buffer.from([0, 255, 10]));
    assert.equal((await sandbox.readFileToBuffer({ path: "naïve" })).toString(), "ü");
    assert.equal(await sandbox.readFile({ path: "nothing" }), null);
    assert.equal(await (await sandbox.runCommand("./run-me")).stdout(), "ran\n");
    assert.equal(await sandbox.fs.readFile(`${sandbox.cwd}/made/text`, "utf8"), "hello\n");
    assert.ok((await sandbox.fs.stat("run-me")).isFile());
  },

  async "update, extend, network policy"({ sandbox }) {
    await sandbox.update({ tags: { purpose: "certify", more: "yes" }, timeout: 900_000 });
    assert.deepEqual(sandbox.tags, { purpose: "certify", more: "yes" });
    assert.equal(sandbox.currentSession().timeout, 900_000);
    await sandbox.extendTimeout(60_000);
    assert.equal(sandbox.currentSession().timeout, 960_000);
    await assert.rejects(sandbox.extendTimeout(100 * 3_600_000), isRefused(400, "sandbox_timeout_invalid"));
    await sandbox.update({ networkPolicy: "deny-all" });
    assert.equal(sandbox.currentSession().networkPolicy, "deny-all");
  },

  async "stop, and resume behind the next command"(state) {
    const { sandbox } = state;
    const before = sandbox.currentSession().sessionId;
    const stopped = await sandbox.stop();
    assert.equal(stopped.status, "stopped");
    assert.equal(stopped.snapshot.creationMethod, "automatic");
    assert.equal(sandbox.currentSnapshotId, stopped.snapshot.id);
    let resumed = 0;
    const found = await Sandbox.get({ ...credentials, name: "certified", resume: false, onResume: () => resumed++ });
    assert.equal(found.status, "stopped");
    const read = await found.runCommand("cat", ["made/text"]);
    assert.equal(await read.stdout(), "hello\n");
    assert.equal(resumed, 1);
    assert.notEqual(found.currentSession().sessionId, before);
    assert.equal(found.sourceSnapshotId, stopped.snapshot.id);
    state.sandbox = found;
  },

  async "a stop ends what runs"({ sandbox }) {
    const command = await sandbox.runCommand({ cmd: "sleep", args: ["60"], detached: true });
    const waiting = assert.rejects(command.wait(), isRefused(410, "sandbox_stopped"));
    await sandbox.stop();
    await waiting;
  },

  async "snapshot"(state) {
    const snapshot = await state.sandbox.snapshot({ expiration: 0 });
    assert.equal(snapshot.status, "created");
    assert.ok(snapshot.sizeBytes > 2 ** 31);
    assert.equal(state.sandbox.status, "stopped");
    state.snapshot = snapshot;
    assert.equal((await Snapshot.get({ ...credentials, snapshotId: snapshot.snapshotId })).status, "created");
    assert.ok((await collect(await Snapshot.list({ ...credentials, limit: 1 }))).length >= 2);
    assert.ok((await collect(await state.sandbox.listSnapshots())).some((one) => one.id === snapshot.snapshotId));
    assert.ok((await collect(await state.sandbox.listSessions({ limit: 1 }))).length >= 3);
  },

  async "create from a snapshot"({ snapshot }) {
    const made = await Sandbox.create({ ...credentials, name: "from-snapshot",
      source: { type: "snapshot", snapshotId: snapshot.snapshotId } });
    assert.equal(made.sourceSnapshotId, snapshot.snapshotId);
    assert.equal(await (await made.runCommand("cat", ["made/text"])).stdout(), "hello\n");
    await made.delete({ deleteOrphanSnapshots: true });
    assert.equal((await Snapshot.get({ ...credentials, snapshotId: snapshot.snapshotId })).status, "created");
  },

  async "fork"() {
    const fork = await Sandbox.fork({ ...credentials, sourceSandbox: "certified", name: "forked",
      tags: { forked: "yes" } });
    assert.deepEqual(fork.tags, { forked: "yes" });
    assert.equal(fork.timeout, 900_000);
    assert.equal(await (await fork.runCommand("sh", ["-c", "cat made/text; echo $FROM_SANDBOX"])).stdout(),
      "hello\nyes\n");
    await fork.delete();
  },

  async "credentials from an OIDC token"() {
    const found = await Sandbox.get({ name: "certified", resume: false });
    assert.equal(found.name, "certified");
    await assert.rejects(Sandbox.list({ ...credentials, token: "of nobody" }),
      (error) => error instanceof APIError && error.response.status === 403);
  },

  async "delete, with the snapshots that nobody needs"({ snapshot }) {
    const sandbox = await Sandbox.get({ ...credentials, name: "certified", resume: false });
    await sandbox.delete({ deleteOrphanSnapshots: true });
    await assert.rejects(Sandbox.get({ ...credentials, name: "certified" }), isRefused(404, "not_found"));
    assert.equal((await Snapshot.get({ ...credentials, snapshotId: snapshot.snapshotId })).status, "deleted");
    assert.deepEqual(await collect(await Snapshot.list(credentials)), []);
  },
};

const state = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    await step(state);
  } catch (error) {
    console.error(`FAILED: ${name}\n${error.stack}\n${error.json ? JSON.stringify(error.json) : ""}`);
    process.exit(1);
  }
  console.log(`ok: ${name}`);
}
