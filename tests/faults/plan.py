"""The plan file of the fault library (shim.c): what shall go wrong, and what was hit."""

import mmap
import os
import struct

COUNT, KILL_BEFORE, KILL_AFTER, ERRNO_ONCE, ERRNO_STICKY, TORN, STOP = range(7)
LAYOUT = struct.Struct("<IIIiIIi32s16s")


class Plan:
    def __init__(self, path, owner):
        self.path = path
        with open(path, "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        os.chmod(path, 0o666)
        owner.own(path)

    def write(self, mode, at=0, error=0, times=1):
        with open(self.path, "r+b") as f:
            f.write(LAYOUT.pack(0, at, mode, error, times, 0, 0, b"", b""))

    def read(self):
        """(calls counted, times hit, which call was hit first)"""
        calls, _, _, _, _, hits, _, name, program = self._unpack()
        where = [word.rstrip(b"\0").decode() for word in (name, program)]
        return calls, hits, " in ".join(where) if where[0] else ""

    def pid(self):
        """Who was hit first, in its own pid namespace."""
        return self._unpack()[6]

    def _unpack(self):
        with open(self.path, "rb") as f:
            return LAYOUT.unpack(f.read(LAYOUT.size))
