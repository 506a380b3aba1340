"""The kernel calls that Python 3.11 has no names for: namespaces, mounts, inotify, birth times."""

import ctypes
import os
import platform
import struct

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _text(value):
    return None if value is None else os.fsencode(value)


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def enter(namespace, kind):
    _check(_libc.setns(namespace, kind), "setns")


def mount(source, target, kind=None, flags=0, data=None):
    _check(_libc.mount(_text(source), _text(target), _text(kind), ctypes.c_ulong(flags), _text(data)),
           f"mount {target}")


def bind(source, target, read_only=False):
    """Shows SOURCE and what is mounted below it at TARGET. Only the top mount can be made read-only."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        mount_flags = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)  # cannot be taken away
        mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | mount_flags)


def umount(target, flags=0):
    _check(_libc.umount2(_text(target), flags), f"umount {target}")


def enter_root(new_root):
    """Makes NEW_ROOT, a mount point, the root directory and lets go of everything else."""
    os.chdir(new_root)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    umount(".", MNT_DETACH)
    os.chdir("/")


def die_with_parent(signal_number):
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def map_one_user(inner, outer):
    """After unshare(CLONE_NEWUSER): INNER (uid, gid) are the new names of OUTER, the process's own."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # after a setuid the files below belong to root otherwise
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inner[0]} {outer[0]} 1"),
                       ("gid_map", f"{inner[1]} {outer[1]} 1")):
        with open("/proc/self/" + name, "w", encoding="ascii") as file:
            file.write(text)


IN_MODIFY, IN_CLOSE_WRITE, IN_MOVED_TO = 2, 8, 128


def inotify(path, mask):
    """A descriptor that becomes readable when MASK happens to PATH."""
    fd = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")
    _check(_libc.inotify_add_watch(fd, _text(path), mask), "inotify_add_watch")
    return fd


def birth_ns(path):
    """When the inode was made, in nanoseconds since 1970; 0 where the file system does not tell. Follows no link."""
    buffer = ctypes.create_string_buffer(256)
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME = -100, 0x100, 0x800
    if _libc.statx(AT_FDCWD, _text(path), AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer) < 0:
        return 0
    if not struct.unpack_from("I", buffer, 0)[0] & STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 80)  # struct statx, stx_btime
    return seconds * 10**9 + nanoseconds


def close_all_but(keep):
    """Closes every descriptor above stderr that is not in KEEP."""
    low = 3
    for fd in sorted(set(keep)):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, 65536)
