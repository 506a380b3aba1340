#!/usr/bin/python3
"""Measures agent-desktop and its peers in turn, in one run, and prints medians and ratios.

    tools/bench/bench.py BUILD_DIRECTORY [--rows P-1,P-5] [--rounds N] [--json FILE]

BUILD_DIRECTORY is a release build with the target bench-tools. Rows are numbered as in the project's performance
targets; a peer that is not installed is left out and said so. Ratios count; milliseconds belong to the machine.
"""

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import hosted
import remote

GIB = 1 << 30


class Bench:
    def __init__(self, build, rounds):
        self.build, self.rounds = os.path.abspath(build), rounds
        self.ad = os.path.join(self.build, "agent-desktop")
        self.base = tempfile.mkdtemp(prefix="ad-bench-", dir=os.environ.get("AD_BENCH_BASE", "/var/tmp"))
        self.rows = []
        self.cleanup = contextlib.ExitStack()
        self.peers = None  # those of remote.py, once a row has needed them
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}

    def tool(self, name):
        path = os.path.join(self.build, "tools", "bench", "ad_bench_" + name)
        if not os.path.exists(path):
            sys.exit(f"bench: first `cmake --build {self.build} --target bench-tools`")
        return path

    def root(self, name):
        path = os.path.join(self.base, name)
        return {**self.env, "AGENT_DESKTOP_HOME": path}

    def sandbox(self, env, *args):
        done = subprocess.run([self.ad, "sandbox", *args], env=env, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            sys.exit(f"bench: {args}: {done.stdout.decode(errors='replace')}")
        return json.loads(done.stdout)["data"]

    def spawn(self, commands, env=None, rounds=None, run=None):
        """Medians in microseconds and peak memory in KiB of COMMANDS, run in turn. RUN runs them elsewhere."""
        argv = [self.tool("spawn"), str(rounds or self.rounds)]
        for command in commands:
            argv += [",", *command]
        out = run(argv) if run else subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=True).stdout.decode()
        results = []
        for command, line in zip(commands, out.splitlines()):
            median, low, high, cpu, peak, failures = line.split()
            if int(failures):
                sys.exit(f"bench: {command} failed {failures} times")
            results.append({"us": float(median), "p10": float(low), "p90": float(high), "cpu_us": float(cpu),
                            "peak_kib": int(peak)})
        return results

    def report(self, row, what, ours, theirs, unit, limit, allowance=0.0, higher_is_better=False):
        """One line: OURS and THEIRS in UNIT, their ratio, and whether it is within LIMIT (+ ALLOWANCE in UNIT)."""
        ratio = ours / theirs if theirs else float("nan")
        good = ratio >= limit if higher_is_better else ours <= limit * theirs + allowance
        sign = "≥" if higher_is_better else "≤"
        extra = f" + {allowance:.3g} {unit}" if allowance else ""
        print(f"{row:5} {what:58} {ours:10.3f} {theirs:10.3f} {unit:5} {ratio:7.2f}x  {sign} {limit:g}{extra}  "
              f"{'ok' if good else 'MISSED'}", flush=True)
        self.rows.append({"row": row, "what": what, "ours": ours, "theirs": theirs, "unit": unit, "ratio": ratio,
                          "limit": limit, "allowance": allowance, "ok": good})

    def skip(self, row, what, why):
        print(f"{row:5} {what:58} left out: {why}", flush=True)
        self.rows.append({"row": row, "what": what, "skipped": why})

    def commit_us(self):
        out = subprocess.run([self.tool("commit"), "200", tempfile.mkdtemp(dir=self.base)], stdout=subprocess.PIPE,
                             env=self.env, check=True).stdout.split()
        return float(out[0]), float(out[1])

    # --- rows ----------------------------------------------------------------------------------------------

    def p1(self):
        env = self.root("p1")
        self.sandbox(env, "create", "demo")
        ours, floor = self.spawn([[self.ad, "sandbox", "status", "demo"], [self.tool("floor")]], env)
        self.report("P-1", "status of a stopped sandbox / empty program", ours["us"] / 1e3, floor["us"] / 1e3, "ms", 2)
        self.report("P-14", "status: peak memory / 4 MiB", ours["peak_kib"] / 1024, 4, "MiB", 1)

    def p2(self):
        roots = {}
        for count in (1, 100, 1000, 10000):
            roots[count] = self.root(f"p2-{count}")
            subprocess.run([self.tool("fill"), str(count), "0"], env=roots[count], check=True)
        times = {}
        for count, env in roots.items():
            rounds = max(10, self.rounds // 4)
            ours, floor = self.spawn([[self.ad, "sandbox", "list"], [self.tool("floor")]], env, rounds)
            times[count] = ours["us"]
            if count == 1000:
                self.report("P-2", "list of 1,000 / empty program + 10 ms", ours["us"] / 1e3, floor["us"] / 1e3, "ms", 1,
                            allowance=10)
        cost = (times[10000] - times[1]) / 9999
        self.report("P-2", "list: cost of one stopped sandbox / 6 µs", cost, 6, "µs", 1)
        self.rows.append({"row": "P-2", "what": "curve", "us": times})
        self.list_peers(times)

    def list_peers(self, times):
        if not shutil.which("podman"):
            self.skip("P-2", "podman ps -a", "not installed")
            return
        (peer,) = self.spawn([["podman", "ps", "-a"]], {**self.env, **os.environ}, 10)
        self.report("P-2", "list of 1,000 / podman ps -a of as many as there are", times[1000] / 1e3, peer["us"] / 1e3,
                    "ms", 1)

    def p3(self):
        envs = {}
        for events in (1000, 1000000):
            envs[events] = self.root(f"p3-{events}")
            subprocess.run([self.tool("fill"), "1", str(events)], env=envs[events], check=True)
        results = {}
        for _ in range(5):  # in turn, since the two roots need two environments
            for events, env in envs.items():
                (result,) = self.spawn([[self.ad, "sandbox", "log", "box-1", "--limit", "50"]], env, self.rounds // 5 or 1)
                results.setdefault(events, []).append(result["us"])
        few, many = (statistics.median(results[n]) / 1e3 for n in (1000, 1000000))
        self.report("P-3", "log --limit 50 of 1,000,000 events / of 1,000", many, few, "ms", 1.5)

    def p4(self):
        ours, bare = self.commit_us()
        self.report("P-4", "a journaled transition / bare LMDB commit", ours / 1e3, bare / 1e3, "ms", 1.3)

    def running(self, name):
        env = self.root(name)
        self.sandbox(env, "create", "demo")
        self.sandbox(env, "start", "demo", "--wait")
        facts = {}
        for event in self.sandbox(env, "log", "demo")["events"]:
            facts.update(event.get("facts", {}))
        return env, facts["pid"]

    def p5(self):
        env, pid = self.running("p5")
        _, bare = self.commit_us()
        namespaces = ["-m", "-p", "-i", "-u", "-U", "--preserve-credentials"]
        ours, peer = self.spawn([[self.ad, "sandbox", "run", "demo", "--", "true"],
                                 ["nsenter", "-t", pid, *namespaces, "--", "true"]], env)
        self.report("P-5", "run demo -- true / nsenter", ours["us"] / 1e3, peer["us"] / 1e3, "ms", 1.5,
                    allowance=2 * bare / 1e3)
        if shutil.which("podman"):
            self.skip("P-5", "podman exec", "needs an image; measure it where there is one")
        self.sandbox(env, "stop", "demo")

    def p6(self):
        env, _ = self.running("p6")
        rates = {"ours": [], "native": []}
        for _ in range(5):
            for who, command in (("ours", [self.ad, "sandbox", "run", "demo", "--"]), ("native", [])):
                begun = time.monotonic()
                process = subprocess.Popen([*command, "head", "-c", str(GIB), "/dev/zero"], env=env, stdout=subprocess.PIPE)
                drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
                process.stdout.close()
                drain.wait()
                process.wait()
                rates[who].append(1 / (time.monotonic() - begun))
        self.report("P-6", "1 GiB on stdout / natively", statistics.median(rates["ours"]),
                    statistics.median(rates["native"]), "GiB/s", 0.9, higher_is_better=True)
        # From a small parent: the peak of a forked Python would be counted as the program's.
        (ours,) = self.spawn([[self.ad, "sandbox", "run", "demo", "--", "head", "-c", str(GIB), "/dev/zero"]], env, 1)
        self.report("P-14", "exec of 1 GiB: peak memory / 16 MiB", ours["peak_kib"] / 1024, 16, "MiB", 1)
        self.sandbox(env, "stop", "demo")

    def p7_p8(self):
        env = self.root("p7")
        _, bare = self.commit_us()
        starts, stops = [], []
        for i in range(max(5, self.rounds // 20)):
            begun = time.monotonic()
            self.sandbox(env, "create", f"d{i}")
            self.sandbox(env, "start", f"d{i}", "--wait")
            starts.append(time.monotonic() - begun)
            begun = time.monotonic()
            self.sandbox(env, "stop", f"d{i}", "--wait")
            stops.append(time.monotonic() - begun)
        peer_start, peer_stop = self.peer_desktop(len(starts))
        if peer_start is None:
            self.skip("P-7", f"create + start ({statistics.median(starts) * 1e3:.0f} ms) / crun", peer_stop)
            self.skip("P-8", f"stop ({statistics.median(stops) * 1e3:.0f} ms) / podman rm -f", peer_stop)
            return
        self.report("P-7", "create + start until AT-SPI answers / crun run", statistics.median(starts) * 1e3,
                    peer_start * 1e3, "ms", 1.2, allowance=5 * bare / 1e3)
        self.skip("P-8", f"stop ({statistics.median(stops) * 1e3:.0f} ms) / podman rm -f",
                  f"podman is not measured; crun delete -f, which asks nobody, takes {peer_stop * 1e3:.0f} ms")

    def peer_desktop(self, rounds):
        """Medians of starting the same services by crun until AT-SPI answers, and of ending them."""
        for program in ("crun", "gdbus"):
            if not shutil.which(program):
                return None, f"{program} is not installed"
        if os.getuid() != 0:
            return None, "the crun bundle is made for root"
        hide_hybrid_cgroups()
        bundle = os.path.join(self.base, "bundle")
        os.makedirs(os.path.join(bundle, "rootfs"))
        with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as f:
            json.dump(crun_config(), f)
        starts, stops = [], []
        for i in range(rounds):
            name = f"ad-bench-{os.getpid()}-{i}"
            begun = time.monotonic()
            process = subprocess.Popen(["timeout", "20", "crun", "--cgroup-manager=disabled", "run", "-b", bundle, name],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            ready = any(line == b"ready\n" for line in process.stdout)  # the services print lines of their own
            if not ready:
                subprocess.run(["crun", "delete", "-f", name], check=False, stderr=subprocess.DEVNULL)
                return None, "crun cannot run the services here"
            starts.append(time.monotonic() - begun)
            begun = time.monotonic()
            subprocess.run(["crun", "delete", "-f", name], check=True, stderr=subprocess.DEVNULL)
            process.wait()
            stops.append(time.monotonic() - begun)
        return statistics.median(starts), statistics.median(stops)

    def p9(self):
        env = self.root("p9")
        self.sandbox(env, "create", "base")
        home = os.path.join(self.base, "p9", "sandboxes", "base", "home")
        block = os.urandom(1 << 20)
        with open(os.path.join(home, "data"), "wb") as f:
            for _ in range(2048):
                f.write(block)
        os.sync()
        ours, theirs = [], []
        for i in range(3):
            begun = time.monotonic()
            self.sandbox(env, "create", f"c{i}", "--set", "from=base", "--wait")
            ours.append(time.monotonic() - begun)
            copy = os.path.join(self.base, f"copy{i}")
            begun = time.monotonic()
            subprocess.run(["cp", "-a", "--reflink=auto", home, copy], check=True)
            subprocess.run(["sync", "-f", copy], check=True)
            theirs.append(time.monotonic() - begun)
            self.sandbox(env, "rm", f"c{i}")
            shutil.rmtree(copy)
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.base], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        self.report("P-9", f"clone of 2 GiB / cp -a --reflink=auto and sync ({kind})", statistics.median(ours),
                    statistics.median(theirs), "s", 1.2)


def hide_hybrid_cgroups():
    """crun refuses a host with both kinds of cgroups: in a mount namespace of our own there is only one."""
    if os.path.isdir("/sys/fs/cgroup/unified"):
        ctypes.CDLL(None).unshare(0x00020000)  # CLONE_NEWNS, sched.h
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["umount", "-l", "/sys/fs/cgroup/unified"], check=True)


def crun_config():
    """The same services in a container: the host's directories read-only, a script that says when AT-SPI answers."""
    script = """
    mkdir -p /tmp/.X11-unix /tmp/run; export XDG_RUNTIME_DIR=/tmp/run HOME=/tmp
    export DBUS_SESSION_BUS_ADDRESS=unix:path=/tmp/run/bus DISPLAY=:77
    dbus-daemon --session --fork --nopidfile --nosyslog --address=$DBUS_SESSION_BUS_ADDRESS
    Xvfb :77 -screen 0 1280x800x24 -displayfd 3 -noreset -nolisten tcp 3>/tmp/display 2>/dev/null &
    $(sed -n 's/^Exec=//p' /usr/share/dbus-1/services/org.a11y.Bus.service) --launch-immediately --a11y=1 2>/dev/null &
    until [ -s /tmp/display ]; do sleep 0.005; done
    openbox --sm-disable 2>/dev/null &
    until a=$(gdbus call --session -d org.a11y.Bus -o /org/a11y/bus -m org.a11y.Bus.GetAddress 2>/dev/null); do sleep 0.005; done
    a=${a#*\\'}; a=${a%%\\'*}
    until gdbus call --address "$a" -d org.a11y.atspi.Registry -o /org/a11y/atspi/accessible/root \
        -m org.freedesktop.DBus.Peer.Ping >/dev/null 2>&1; do sleep 0.005; done
    echo ready; exec sleep 3600
    """
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
              {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
              {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}]
    mounts += [{"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]}
               for path in ("/usr", "/etc", "/var") if os.path.isdir(path)]
    mounts += [{"destination": path, "type": "bind", "source": "/usr" + path, "options": ["rbind", "ro"]}
               for path in ("/bin", "/lib", "/lib64", "/sbin") if os.path.islink(path)]
    return {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "hostname": "peer", "mounts": mounts,
            "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["sh", "-c", script],
                        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
            "linux": {"namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount")]}}


ROWS = {"P-1": Bench.p1, "P-2": Bench.p2, "P-3": Bench.p3, "P-4": Bench.p4, "P-5": Bench.p5, "P-6": Bench.p6,
        "P-7": Bench.p7_p8, "P-9": Bench.p9, **remote.ROWS, **hosted.ROWS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rows", default=",".join(ROWS),
                        help="P-1,P-5,... (P-8 comes with P-7; P-14 with P-1, P-6, P-10, P-11 and P-12, "
                             "by itself for hosted sandboxes)")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", help="write the figures there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))  # what was started is ended below
    bench = Bench(options.build, options.rounds)
    print(f"{'row':5} {'what / compared with':58} {'ours':>10} {'theirs':>10} {'unit':5} {'ratio':>8}  target")
    try:
        for row in options.rows.split(","):
            ROWS[row](bench)
    finally:
        bench.cleanup.close()
        shutil.rmtree(bench.base, ignore_errors=True)
        if options.json:  # also when a row could not be measured to its end
            with open(options.json, "w", encoding="utf-8") as f:
                json.dump({"user": os.getuid(), "rows": bench.rows}, f, indent=1)


if __name__ == "__main__":
    main()
