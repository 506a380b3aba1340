"""Swift for the tests: a program of ours, built against the stand-ins for Apple's modules (tests/swift-stubs).

What is built is kept below AD_SWIFT_CACHE by the hash of all that goes into it. Where no Swift can be had,
need_swift() ends the process with 77, which CTest counts as skipped.
"""

import hashlib
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("AD_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))))
CACHE = os.environ.get("AD_SWIFT_CACHE", os.path.join(SOURCE, "build", "swift"))
TOOLCHAIN = os.path.join(SOURCE, "tools", "swift-toolchain")
BUILD = os.path.join(SOURCE, "tests", "swift-stubs", "build.sh")
SKIPPED = 77


def run(*argv, **environment):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
                          env={**os.environ, **environment})


def need_swift():
    found = run(TOOLCHAIN, "path")
    if found.returncode != 0:
        print(f"skipped: {found.stdout.strip()}", file=sys.stderr)
        sys.exit(SKIPPED)


def stubs():
    """The folder of the built stand-ins."""
    folder = os.path.join(CACHE, "stubs")
    done = run(TOOLCHAIN, "stubs", folder)
    if done.returncode != 0:
        raise AssertionError(f"the stand-ins cannot be built:\n{done.stdout}")
    return folder


def check(source, mode):
    """Type-checks in a language mode, warnings as errors; what the compiler said when it is not content."""
    done = run(BUILD, "check", stubs(), source, SWIFTC=f"{TOOLCHAIN} swiftc",
               SWIFTFLAGS=f"-swift-version {mode} -warnings-as-errors")
    return None if done.returncode == 0 else done.stdout


def build(source):
    """The path of the program that SOURCE is, for this machine."""
    folder = stubs()
    digest = hashlib.sha256()
    for name in (source, BUILD, TOOLCHAIN, os.path.join(folder, ".stamp")):
        with open(name, "rb") as f:
            digest.update(f.read() + b"\0")
    program = os.path.join(CACHE, f"{os.path.splitext(os.path.basename(source))[0]}-{digest.hexdigest()[:16]}")
    if os.path.exists(program):
        return program
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        made = os.path.join(scratch, "program")
        done = run(BUILD, "link", folder, made, source, SWIFTC=f"{TOOLCHAIN} swiftc")
        if done.returncode != 0:
            raise AssertionError(f"{source} cannot be built:\n{done.stdout}")
        os.rename(made, program)
    return program
