"""The rows of bench.py about hosted sandboxes: P-13, and the peak memory of P-14.

They live in the tests' simulated service (tests/doubles/cloud), which answers each request 20 ms late. The vendor's
CLI, which the list is compared with, comes from npm and is sent to the same service. Memory is compared with curl's,
too: where libcurl brings thirty libraries with it, as Debian's does, no request can be made in 4 MiB.
"""

import importlib
import os
import subprocess
import sys
import tempfile

from remote import SOURCE, Missing, find, report_peak

LATENCY_MS = 20
SANDBOXES = 1000
FIRST_PAGE, LARGEST_PAGE = 50, 100  # of the CLI when nothing is said, and the most that the service gives
MIB = 1 << 20
# The CLI shows one page, and the words that ask for the next one.
ALL_PAGES = """
set -e; set -f
while page=$("$@" ${cursor:+--cursor "$cursor"}) || exit; printf '%s\n' "$page"
do cursor=$(printf '%s\n' "$page" | sed -n 's/^More results: .* --cursor //p'); [ -n "$cursor" ] || break
done
"""


def import_double(module):
    path = os.path.join(SOURCE, "tests")
    if path not in sys.path:
        sys.path.append(path)
    try:
        return importlib.import_module("doubles.cloud" + module)
    except ImportError as error:
        raise Missing(str(error)) from error


def start_service(bench):
    cloud = import_double("").Cloud(latency_ms=LATENCY_MS)
    bench.cleanup.callback(cloud.close)
    return cloud


def environment(bench, cloud, name):
    return {**bench.root(name), "VERCEL_API_URL": cloud.url, "VERCEL_TOKEN": cloud.token,
            "VERCEL_TEAM_ID": cloud.team, "VERCEL_PROJECT_ID": cloud.project}


class Cli:
    """`sandbox` of npm, as the tests certify the service with it."""

    def __init__(self, bench, cloud):
        certify = import_double(".sdk.certify")
        self._directory = tempfile.mkdtemp(dir=bench.base)
        reason = certify.why_no_node() or certify.install(self._directory)
        if reason:
            raise Missing(reason)
        self._scope = ["--token", cloud.token, "--scope", cloud.team, "--project", cloud.project]
        self.env = {"CLOUD_URL": cloud.url, "VERCEL_TELEMETRY_DISABLED": "1", "SANDBOX_SKIP_VERSION_CHECK": "1",
                    "NO_COLOR": "1"}

    def command(self, *words):
        redirect, program = (os.path.join(self._directory, *path)
                             for path in (["redirect.mjs"], ["node_modules", "sandbox", "bin", "sandbox.mjs"]))
        return ["node", "--import", redirect, program, *words, *self._scope]

    def all_pages(self):
        return ["sh", "-c", ALL_PAGES, "pages", *self.command("ls", "--limit", str(LARGEST_PAGE))]


def check_pages(cli, env):
    """What it is compared with is the same work."""
    shown = subprocess.run(cli.all_pages(), env=env, stdout=subprocess.PIPE, check=True).stdout.decode()
    names = {line.split()[0] for line in shown.splitlines() if line.startswith("box-")}
    if len(names) != SANDBOXES:
        sys.exit(f"bench: the pages of the CLI have {len(names)} sandboxes")


def fill(bench, cloud, env):
    """As many sandboxes there as are on record here (fill.c)."""
    subprocess.run([bench.tool("fill"), str(SANDBOXES), "0", cloud.team, cloud.project], env=env, check=True)
    for i in range(1, SANDBOXES + 1):
        cloud.make_sandbox(f"box-{i}-{i:08x}", timeout=24 * 3600 * 1000,
                           tags={"agent-desktop": f"{i:016x}", "made-by": "agent-desktop"})


def check_listed(bench, env):
    """A list that could not be looked at would be a fast one."""
    listed = bench.sandbox(env, "list")["sandboxes"]
    unseen = [one for one in listed if one["state"] != "running" or ": until " not in one["message"]]
    if len(listed) != SANDBOXES or unseen:
        sys.exit(f"bench: {len(listed)} are listed, {len(unseen)} of them unseen: {unseen[:1]}")


def p13(bench):
    try:
        cloud = start_service(bench)
        cli = Cli(bench, cloud)
    except Missing as missing:
        bench.skip("P-13", "list of 1,000 hosted sandboxes / sandbox ls", str(missing))
        return
    env = {**environment(bench, cloud, "p13"), **cli.env}
    fill(bench, cloud, env)
    check_listed(bench, env)
    check_pages(cli, env)
    results = bench.spawn([[bench.ad, "sandbox", "list"], cli.all_pages(), cli.command("ls")], env,
                          max(3, bench.rounds // 40))
    ours, everything, page = (result["us"] / 1e3 for result in results)
    bench.report("P-13", "list of 1,000 hosted / sandbox ls, all pages", ours, everything, "ms", 0.3)
    bench.report("P-13", f"list of 1,000 hosted / sandbox ls, its first {FIRST_PAGE}", ours, page, "ms", 1)
    bench.rows.append({"row": "P-13", "what": "details: ours, all pages, first page", "results": results})


def p14(bench):
    """Memory alone; the times are the service's."""
    try:
        find("curl")
        cloud = start_service(bench)
    except Missing as missing:
        bench.skip("P-14", "hosted sandboxes", str(missing))
        return
    env = environment(bench, cloud, "p14")
    bench.sandbox(env, "install", "vercel")
    bench.sandbox(env, "create", "box", "--provider", "vercel", "--set", "runtime=node24", "--wait")
    box = f"{cloud.url}/v2/sandboxes/{next(iter(cloud.sandboxes))}?teamId={cloud.team}&projectId={cloud.project}"
    status, stream, curl = bench.spawn([
        [bench.ad, "sandbox", "status", "box"],
        [bench.ad, "sandbox", "run", "box", "--", "sh", "-c", f"yes 'a line of output' | head -c {256 * MIB}"],
        ["curl", "-q", "-sSf", "--noproxy", "*", "-H", "Authorization: Bearer " + cloud.token, box]], env, 1)
    report_peak(bench, "status of a running hosted sandbox", status, 4)
    bench.report("P-14", "status of a running hosted sandbox: peak memory / curl", status["peak_kib"] / 1024,
                 curl["peak_kib"] / 1024, "MiB", 1.1)
    report_peak(bench, "exec of 256 MiB on a hosted sandbox", stream, 16)
    bench.sandbox(env, "stop", "box", "--wait")
    bench.sandbox(env, "rm", "box")


ROWS = {"P-13": p13, "P-14": p14}
