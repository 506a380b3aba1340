"""Runs the vendor's SDK and CLI, from npm, against the simulated service. 77: they cannot be had here, and why.

VENDOR_CLIENTS: a directory with the packages of package-lock.json, installed already; nothing is fetched then.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

from cloud import Cloud  # noqa: E402

SKIPPED, FAILED = 77, 1
OLDEST_NODE = 20  # what the packages ask for
FILES = ("package.json", "package-lock.json", ".npmrc", "redirect.mjs", "certify.mjs")


def why_no_node():
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        return f"node is {version}, the packages ask for {OLDEST_NODE}"
    return None


def install(directory):
    """Why the packages cannot be had; None when they are there."""
    for name in FILES:
        shutil.copy(os.path.join(HERE, name), directory)
    ready = os.environ.get("VENDOR_CLIENTS")
    if ready:
        os.symlink(os.path.join(os.path.realpath(ready), "node_modules"), os.path.join(directory, "node_modules"))
        return None
    try:
        done = subprocess.run(["npm", "ci"], cwd=directory, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        return "npm ci took more than 240 s"
    if "EINTEGRITY" in done.stderr:  # what came is not what was locked: nothing to pass over
        sys.exit(done.stderr)
    return None if done.returncode == 0 else "npm ci failed: " + " ".join(done.stderr.split()[:60])


def node(cloud, directory, *words, **more):
    """Runs one of their programs there, which knows nobody's credentials but the service's."""
    env = {"PATH": os.environ["PATH"], "HOME": directory, "CLOUD_URL": cloud.url, "CLOUD_TOKEN": cloud.token,
           "CLOUD_TEAM": cloud.team, "CLOUD_PROJECT": cloud.project, "VERCEL_OIDC_TOKEN": cloud.make_oidc_token(),
           "VERCEL_TELEMETRY_DISABLED": "1", "SANDBOX_SKIP_VERSION_CHECK": "1", "NO_COLOR": "1"}
    return subprocess.run(["node", "--import", "./redirect.mjs", *words], cwd=directory, env=env, timeout=120,
                          stdin=subprocess.DEVNULL, **more)


def certify_sdk(cloud, directory):
    return node(cloud, directory, "certify.mjs").returncode


def certify_cli(cloud, directory):
    """The CLI lists, runs and removes."""
    cli = [os.path.join("node_modules", "sandbox", "bin", "sandbox.mjs")]
    scope = ["--token", cloud.token, "--scope", cloud.team, "--project", cloud.project]
    for name in ("one", "two"):
        cloud.make_sandbox(name)
    listed = node(cloud, directory, *cli, "ls", *scope, capture_output=True, text=True)
    ran = node(cloud, directory, *cli, "exec", *scope, "one", "sh", "-c", "echo hello; exit 7", capture_output=True,
               text=True)
    removed = node(cloud, directory, *cli, "rm", *scope, "one", "two", capture_output=True, text=True)
    for what, holds in {"ls": listed.returncode == 0 and "one" in listed.stdout and "two" in listed.stdout,
                        "exec": ran.returncode == 7 and ran.stdout == "hello\n",
                        "rm": removed.returncode == 0 and not cloud.sandboxes}.items():
        print(("ok: sandbox " if holds else "FAILED: sandbox ") + what)
        if not holds:
            print(listed, ran, removed, sep="\n")
            return FAILED
    return 0


def main():
    reason = why_no_node()
    with tempfile.TemporaryDirectory(prefix="vendor-clients-") as directory:
        reason = reason or install(directory)
        if reason:
            print(f"skipped: {reason}")
            return SKIPPED
        for part in (certify_sdk, certify_cli):
            with Cloud() as cloud:
                status = part(cloud, directory)
                if status:
                    last = [[one.op, one.method, one.path, one.query, one.status] for one in cloud.requests[-5:]]
                    print(json.dumps(last, indent=1))
                    return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
