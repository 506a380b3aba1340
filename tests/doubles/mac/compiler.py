"""swiftc: compiles real Swift for Linux against stand-ins for Apple's modules.

The tool runs inside the simulated Mac, as the user who called it; the compiler needs namespaces of its own, so that a
server outside does the work and keeps each result by the hash of everything that went into it.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys

from . import signature, tools

_DROPPED = {"-target": 1, "-framework": 1, "-sdk": 1}


# The tool's side.

def swiftc(directory, cache, argv):
    """swiftc of the words in ARGV, in the current directory; the exit status."""
    if argv in (["--version"], ["-version"]):
        print("Apple Swift version 6.0.3 (simulated)\nTarget: arm64-apple-macosx15.0")
        return 0
    try:
        options, sources, output, check_only = _parse(argv)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    texts = {}
    for name in sources:
        try:
            with open(name, encoding="utf-8") as file:
                texts[os.path.basename(name)] = file.read()
        except OSError:
            print(f"error: error opening input file '{name}' (No such file or directory)", file=sys.stderr)
            return 1
    request = {"options": options, "sources": texts, "check_only": check_only}
    reply = _ask(os.path.join(directory, "run", "compiler.sock"), request)
    for name in sources:
        reply["output"] = re.sub(r"\S*/" + re.escape(os.path.basename(name)), name, reply["output"])
    sys.stderr.write(reply["output"])
    if reply["status"] == 0 and not check_only:
        _place(os.path.join(cache, "products", reply["product"]), output)
    return reply["status"]


def _parse(argv):
    options, sources, output, check_only = [], [], None, False
    words = iter(argv)
    for word in words:
        if word == "-target":
            target = next(words, "")
            if not re.fullmatch(r"arm64-apple-macosx?\d+(\.\d+)*", target):
                raise ValueError(f"unable to load standard library for target '{target}'")
        elif word in _DROPPED:
            next(words, None)
        elif word == "-o":
            output = next(words, None)
        elif word == "-typecheck":
            check_only = True
        elif word.endswith(".swift"):
            sources.append(word)
        else:
            options.append(word)
    if not sources:
        raise ValueError("no input files")
    return options, sources, output or os.path.splitext(os.path.basename(sources[0]))[0], check_only


def _ask(address, request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as reply:
            return json.loads(reply.read())


def _place(product, output):
    """As a linker does: a new file, never the old one rewritten."""
    if os.path.lexists(output):
        os.unlink(output)
    with open(output, "xb") as file, open(product, "rb") as source:
        shutil.copyfileobj(source, file)
        os.fchmod(file.fileno(), 0o755)


# The server's side.

class Compiler:
    """Where the Swift compiler and the stand-ins are. Nothing is looked for before it is needed."""

    def __init__(self, cache, toolchain, stubs):
        """TOOLCHAIN: the script with the verbs path, stubs and swiftc. STUBS: the folder of the stand-ins."""
        self._cache, self._toolchain, self._stubs = cache, toolchain, stubs
        os.makedirs(os.path.join(cache, "products"), exist_ok=True)

    def why_not(self, user=None):
        """Why nothing can be compiled here, or USER cannot run what was; None when all is well.

        Builds what is built once.
        """
        if not os.access(self._toolchain, os.X_OK):
            return f"no {self._toolchain}"
        try:
            folder = self._folder()
            self._modules()
        except subprocess.CalledProcessError as error:
            return error.stderr.decode().strip() or "no Swift compiler"
        except _Failed as failure:
            return failure.output.strip()
        closed = [path for path in _parents(folder) if not os.stat(path).st_mode & 0o001]
        if user and closed:
            return f"{user} cannot reach {folder}: {closed[0]} is closed"
        return None

    def _folder(self):
        """Where the compiler lies; what it makes needs that folder to run."""
        done = subprocess.run([self._toolchain, "path"], capture_output=True, check=True)
        folder = done.stdout.decode().strip()
        note = os.path.join(self._cache, "swift-folder")
        with open(f"{note}.{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(folder)
        os.rename(file.name, note)  # guests of other Macs read it at any time
        return folder

    def _modules(self):
        """The folder of the built stand-ins, building them first if need be."""
        state = hashlib.sha256(self._folder().encode())
        for directory, folders, names in os.walk(self._stubs):
            folders.sort()
            for name in sorted(names):
                with open(os.path.join(directory, name), "rb") as file:
                    state.update(name.encode() + file.read())
        out = os.path.join(self._cache, "modules-" + state.hexdigest()[:16])
        if not os.path.exists(os.path.join(out, "whole")):
            self._run([self._toolchain, "stubs", out])
            with open(os.path.join(out, "whole"), "wb"):
                pass
        return out

    @staticmethod
    def _run(argv, **options):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, **options)
        if done.returncode != 0:
            raise _Failed(done.returncode, done.stdout.decode(errors="replace"))

    def serve(self, connection):
        """Answers one request."""
        with connection, connection.makefile("rb") as reader:
            try:
                request = json.loads(reader.read())
                reply = {"status": 0, "output": "", "product": self._compile(request)}
            except _Failed as failure:
                reply = {"status": failure.status, "output": failure.output}
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                reply = {"status": 1, "output": f"error: the simulated compiler: {error}\n"}
            try:
                connection.sendall(json.dumps(reply).encode())
            except OSError:
                pass  # whoever asked is gone

    def _compile(self, request):
        modules = self._modules()
        check = tools.build_c(self._cache, "signed.c", "-c", "-fPIC", suffix=".o")
        what = json.dumps([request, os.path.basename(modules), os.path.basename(check)], sort_keys=True)
        key = hashlib.sha256(what.encode()).hexdigest()
        product = os.path.join(self._cache, "products", key)
        if os.path.exists(product):
            return key
        with open(product + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(product):
                self._build(request, modules, check, product)
        return key

    def _build(self, request, modules, check, product):
        work = product + ".work"
        shutil.rmtree(work, ignore_errors=True)
        os.mkdir(work)
        try:
            sources = [os.path.join(work, name) for name in request["sources"]]
            for path, text in zip(sources, request["sources"].values()):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            build = os.path.join(self._stubs, "build.sh")
            flags = {"SWIFTC": f"{self._toolchain} swiftc"}
            if request["check_only"]:
                flags["SWIFTFLAGS"] = " ".join(request["options"])
                self._run([build, "check", modules, *sources], env={**os.environ, **flags})
                data = b""
            else:
                flags["SWIFTFLAGS"] = " ".join([*request["options"], "-Xlinker", check])
                program = os.path.join(work, "program")
                self._run([build, "link", modules, program, *sources], env={**os.environ, **flags})
                with open(program, "rb") as file:
                    data = signature.signed(file.read(), by_linker=True)
            with open(product + ".new", "wb") as file:
                file.write(data)
            os.chmod(product + ".new", 0o755)
            os.rename(product + ".new", product)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _parents(path):
    while path != "/":
        path = os.path.dirname(path)
        yield path


class _Failed(Exception):
    def __init__(self, status, output):
        super().__init__(output)
        self.status, self.output = status, output
