"""What Apple's command line tools answer, as far as it is known, and how they fail.

A handler gets the daemon and a Call and returns an Answer, or None to never answer. Those in JOBS run in a process of
their own as the user who called, with the call's directory and descriptors, and return an exit status.
"""

import dataclasses
import hashlib
import os
import plistlib
import subprocess
import sys
import time

from . import compiler, network, signature

COMMAND_LINE_TOOLS = "/Library/Developer/CommandLineTools"
XCODE = "/Applications/Xcode.app/Contents/Developer"


@dataclasses.dataclass
class Call:
    """One run of a tool."""

    tool: str
    argv: list  # without the tool's name
    cwd: str
    developer_dir: str
    fds: list  # the three standard ones
    opened_dialog: bool = False

    def path(self, name):
        return os.path.join(self.cwd, name)


@dataclasses.dataclass
class Answer:
    status: int = 0
    out: str = ""
    err: str = ""


def plist(value):
    return plistlib.dumps(value, sort_keys=False).decode()


def fail(call, text, status=1):
    return Answer(status, "", f"{call.tool}: {text}\n")


# The host.

def uname(mac, call):
    arm = mac.settings["arm64"]
    machine = "arm64" if arm else "x86_64"
    version = f"Darwin Kernel Version 24.6.0: RELEASE_{machine.upper()}"
    fields = {"s": "Darwin", "n": "Simulated-Mac.local", "r": "24.6.0", "v": version, "m": machine,
              "p": "arm" if arm else "i386"}
    wanted = "".join(word[1:] for word in call.argv) or "s"
    if "a" in wanted:
        wanted = "snrvm"
    if set(wanted) - set(fields):
        return Answer(1, "", f"uname: illegal option -- {min(set(wanted) - set(fields))}\n")
    return Answer(0, " ".join(value for name, value in fields.items() if name in wanted) + "\n")


def sysctl(mac, call):
    values = {"kern.hv_vmm_present": int(mac.settings["in_vm"]), "hw.ncpu": 8, "hw.logicalcpu": 8,
              "hw.memsize": 16 << 30, "kern.ostype": "Darwin", "kern.osproductversion": mac.settings["version"]}
    if mac.settings["arm64"]:
        values.update({"hw.optional.arm64": 1, "sysctl.proc_translated": 0, "machdep.cpu.brand_string": "Apple M2"})
    else:
        values["machdep.cpu.brand_string"] = "Intel(R) Core(TM) i7"
    options = "".join(word[1:] for word in call.argv if word.startswith("-"))
    answer = Answer()
    for name in (word for word in call.argv if not word.startswith("-")):
        if name in values:
            answer.out += f"{values[name]}\n" if "n" in options else f"{name}: {values[name]}\n"
        elif "i" not in options:
            answer.err += f"sysctl: unknown oid '{name}'\n"
            answer.status = 1
    return answer


def sw_vers(mac, call):
    fields = {"productName": "macOS", "productVersion": mac.settings["version"], "buildVersion": mac.settings["build"]}
    if not call.argv:
        return Answer(0, "".join(f"{name[0].upper() + name[1:]}:\t\t{value}\n" for name, value in fields.items()))
    name = call.argv[0].lstrip("-")
    if name not in fields:
        return Answer(1, "", f"sw_vers: unknown option {call.argv[0]}\n")
    return Answer(0, fields[name] + "\n")


def launchctl(mac, call):
    """`managername` and `print gui/UID`, which tell whether somebody sits at this desktop."""
    gui = mac.settings["gui_session"]
    if call.argv == ["managername"]:
        return Answer(0, "Aqua\n" if gui else "Background\n")
    if len(call.argv) == 2 and call.argv[0] == "print" and call.argv[1].startswith("gui/"):
        if gui:
            return Answer(0, f"{call.argv[1]} = {{\n\ttype = gui\n}}\n")
        return Answer(113, "", f"Bad request.\nCould not find domain for user gui: {call.argv[1][4:]}\n")
    return Answer(64, "", "Unrecognized subcommand of the simulated launchctl.\n")


def arp(mac, call):
    if mac.settings["arp"] == "hang":
        return None
    if call.argv != ["-an"] and call.argv != ["-a", "-n"]:
        return Answer(64, "", "usage: arp -an (all that the simulated one does)\n")
    lines = []
    with open("/proc/net/arp", encoding="ascii") as table:
        for row in table.readlines()[1:] if mac.settings["arp"] == "table" else []:
            address, _, flags, mac_address, _, _ = row.split()
            shown = network.short_mac(mac_address) if int(flags, 16) & 2 else "(incomplete)"
            lines.append(f"? ({address}) at {shown} on {network.BRIDGE} ifscope [bridge]\n")
    return Answer(0, "".join(lines))


# Command Line Tools. Each of these but xcode-select is a shim that looks for the real tool.

def xcode_select(mac, call):
    state = mac.settings["tools"]
    if call.argv == ["--install"]:
        if state == "ready":
            return Answer(1, "", "xcode-select: note: Command line tools are already installed. "
                                 "Use \"Software Update\" in System Settings to install updates\n")
        call.opened_dialog = True
        return Answer(0, "", "xcode-select: note: install requested for command line developer tools\n")
    if call.argv not in (["-p"], ["--print-path"]):
        return Answer(64, "", "Usage: xcode-select -p | --install (all that the simulated one does)\n")
    if call.developer_dir:
        return Answer(0, call.developer_dir + "\n")
    if state == "absent":
        return Answer(2, "", "xcode-select: error: unable to get active developer directory, use `sudo xcode-select "
                             "--switch path/to/Xcode.app` to set one (or see `man xcode-select`)\n")
    return Answer(0, (XCODE if state == "licence" else COMMAND_LINE_TOOLS) + "\n")


def shim_refusal(mac, call):
    """Why a developer tool does not start; None when it does."""
    state = mac.settings["tools"]
    if call.developer_dir and call.developer_dir not in (COMMAND_LINE_TOOLS, XCODE):
        return Answer(1, "", f"xcrun: error: missing DEVELOPER_DIR path: {call.developer_dir}\n")
    if state == "absent":
        call.opened_dialog = True
        return Answer(1, "", "xcode-select: note: no developer tools were found at '/Applications/Xcode.app', "
                             "requesting install. Choose an option in the dialog to download the command line "
                             "developer tools.\n")
    if state == "stale":
        return Answer(1, "", f"xcrun: error: invalid active developer path ({COMMAND_LINE_TOOLS}), missing xcrun at: "
                             f"{COMMAND_LINE_TOOLS}/usr/bin/xcrun\n")
    if state == "licence":
        return Answer(69, "", "You have not agreed to the Xcode license agreements. Please run "
                              "'sudo xcodebuild -license' from within a Terminal window to review and agree to the "
                              "Xcode and Apple SDKs license.\n")
    return None


def xcrun(mac, call):
    refusal = shim_refusal(mac, call)
    if refusal:
        return refusal
    if len(call.argv) == 2 and call.argv[0] in ("--find", "-f", "-find"):
        if call.argv[1] in ("swiftc", "codesign"):
            return Answer(0, f"{COMMAND_LINE_TOOLS}/usr/bin/{call.argv[1]}\n")
        return Answer(72, "", f"xcrun: error: unable to find utility \"{call.argv[1]}\", not a developer tool "
                              "or in PATH\n")
    if call.argv == ["--show-sdk-path"]:
        return Answer(0, f"{COMMAND_LINE_TOOLS}/SDKs/MacOSX.sdk\n")
    return Answer(64, "", "Usage: xcrun --find TOOL (all that the simulated one does)\n")


# Jobs: these read and write the caller's files.

def swiftc(mac, call):
    time.sleep(mac.settings["swiftc_ms"] / 1000)
    if mac.settings["swiftc_error"]:
        print(mac.settings["swiftc_error"], file=sys.stderr)
        return 1
    return compiler.swiftc(mac.directory, mac.cache, call.argv)


def codesign(mac, call):
    if mac.settings["codesign_error"]:
        print(mac.settings["codesign_error"], file=sys.stderr)
        return 1
    return signature.codesign(call.argv)


def shasum(_mac, call):
    argv, algorithm = list(call.argv), "1"
    if argv[:1] in (["-a"], ["--algorithm"]):
        algorithm = argv[1]
        del argv[:2]
    if f"sha{algorithm}" not in hashlib.algorithms_guaranteed:
        print("shasum: Unrecognized algorithm", file=sys.stderr)
        return 1
    status = 0
    for name in argv or ["-"]:
        try:
            with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
                print(f"{hashlib.file_digest(file, 'sha' + algorithm).hexdigest()}  {name}")
        except OSError as error:
            print(f"shasum: {name}: {error.strerror}", file=sys.stderr)
            status = 1
    return status


HANDLERS = {"uname": uname, "sysctl": sysctl, "sw_vers": sw_vers, "launchctl": launchctl, "arp": arp,
            "xcode-select": xcode_select, "xcrun": xcrun}
SHIMS = ("swiftc",)
JOBS = {"swiftc": swiftc, "codesign": codesign, "shasum": shasum}


# A guest's own tools: shell scripts, since nothing about it changes while it runs.

def write_guest_tools(directory):
    """The tools that every guest has in /usr/bin, in front of this machine's own."""
    scripts = {
        "uname": """
for word in "${@:--s}"; do
  case $word in
    -a) echo "Darwin $(/run/simulated/real/uname -n) 24.6.0 Darwin Kernel Version 24.6.0 arm64" ;;
    -m) echo arm64 ;;
    -n) exec /run/simulated/real/uname -n ;;
    -p) echo arm ;;
    -r) echo 24.6.0 ;;
    -s) echo Darwin ;;
    *) echo "uname: illegal option $word" >&2; exit 1 ;;
  esac
done""",
        "sw_vers": """
. /run/simulated/system
case ${1:-} in
  -productName | --productName) echo macOS ;;
  -productVersion | --productVersion) echo "$version" ;;
  -buildVersion | --buildVersion) echo "$build" ;;
  '') printf 'ProductName:\\t\\tmacOS\\nProductVersion:\\t\\t%s\\nBuildVersion:\\t\\t%s\\n' "$version" "$build" ;;
  *) echo "sw_vers: unknown option $1" >&2; exit 1 ;;
esac""",
        "shasum": """
algorithm=1
case ${1:-} in
  -a | --algorithm) algorithm=$2; shift 2 ;;
  -a?*) algorithm=${1#-a}; shift ;;
esac
exec "/run/simulated/real/sha${algorithm}sum" "$@\"""",
        "launchctl": """
. /run/simulated/system
case ${1:-} in
  managername) [ "${SIMULATED_SESSION:-}" = gui ] && echo Aqua || echo Background ;;
  print) [ -n "$console" ] || { echo "Could not find domain for user" >&2; exit 113; } ;;
  *) echo "Unrecognized subcommand of the simulated launchctl." >&2; exit 64 ;;
esac""",
        "sysctl": """
. /run/simulated/system
for word; do
  case $word in
    -*) ;;
    hw.optional.arm64 | kern.hv_vmm_present) echo 1 ;;
    kern.osproductversion) echo "$version" ;;
    *) echo "sysctl: unknown oid '$word'" >&2; exit 1 ;;
  esac
done""",
        "shutdown": """
echo >/run/simulated/power""",
    }
    shell = "/run/simulated/real/sh"
    for name, text in scripts.items():
        _write_script(os.path.join(directory, name), f"#!{shell}{text}\n".replace('"${@:--s}"', '"${@:-"-s"}"'))
    # A login shell gets what the accessibility simulator must know at the moment it starts. sshd starts one without
    # a command as `-zsh`, which a script cannot see: no words at all means the same.
    for name in ("sh", "dash", "bash", "zsh", "ksh", "csh", "tcsh", "fish"):
        if os.path.exists("/usr/bin/" + name):
            _write_script(os.path.join(directory, name), f"""#!{shell}
. "/run/simulated/${{SIMULATED_SESSION:-ssh}}.env"
[ $# -gt 0 ] || set -- -l
exec /run/simulated/real/{name} "$@"
""")


def _write_script(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def missing_programs():
    """Which programs of this machine the double needs and does not find."""
    needed = {"sshd": "openssh-server", "ssh-keygen": "openssh-client", "ip": "iproute2", "cc": "gcc"}
    folders = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [f"{program} (Debian: {package})" for program, package in needed.items()
            if not any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders.split(os.pathsep))]


def build_c(cache, source, *options, suffix=""):
    """Compiles a C file of this folder once; the result's path."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), source)
    with open(path, "rb") as file:
        name = hashlib.sha256(file.read() + repr(options).encode()).hexdigest()[:16]
    result = os.path.join(cache, f"{source.removesuffix('.c')}-{name}{suffix}")
    if not os.path.exists(result):
        temporary = f"{result}.{os.getpid()}"
        subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", *options, "-o", temporary, path], check=True)
        os.rename(temporary, result)
    return result
