"""Who the programs of the simulated Mac are.

The host's programs are one user of this machine. Everybody in a guest is that same user, under the uid of the guest's
account: a user namespace with a single line in its map. So files need no change of owner on their way, the guest's sshd
needs no root, and root and an ordinary user run the same double.

host_user() and guest_user() return what a child has to call between fork and exec.
"""

import errno
import fcntl
import os
import pwd
import signal
import sys
import traceback

from . import kernel


class Identity:
    def __init__(self, uid, gid, nested):
        """NESTED: we are root of a user namespace in which that user is 0; otherwise root, or the user itself."""
        self.uid, self.gid, self.nested = uid, gid, nested
        self._inner = (0, 0) if nested else (uid, gid)
        self._namespaces = {}

    def again(self):
        """The same, for a process that has closed its descriptors."""
        return Identity(self.uid, self.gid, self.nested)

    @property
    def owner(self):
        """The (uid, gid) to give to files, None when those that we make have it already."""
        return None if self.nested or (self.uid, self.gid) == (os.getuid(), os.getgid()) else self._inner

    def host_user(self):
        return self._member_of(self.uid, self.gid) if self.nested else self._leave_root

    def guest_user(self, uid, gid):
        return self._member_of(uid, gid)

    def _leave_root(self):
        if self.owner:
            try:
                groups = os.getgrouplist(pwd.getpwuid(self.uid).pw_name, self.gid)
            except KeyError:
                groups = []
            os.setgroups(groups)
            os.setgid(self.gid)
            os.setuid(self.uid)

    def _member_of(self, uid, gid):
        """One namespace for all programs of a user: those of two could not look at each other in /proc."""
        if (uid, gid) not in self._namespaces:
            self._namespaces[uid, gid] = self._make_namespace(uid, gid)
        namespace = self._namespaces[uid, gid]

        def become():
            self._leave_root()
            kernel.enter(namespace, kernel.CLONE_NEWUSER)

        return become

    def _make_namespace(self, uid, gid):
        """A descriptor of a user namespace in which our one user is called UID and GID."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self._leave_root()
                kernel.unshare(kernel.CLONE_NEWUSER)
                kernel.map_one_user((uid, gid), self._inner)
                os.write(writer, b"+")
                signal.pause()
            finally:
                os._exit(1)
        os.close(writer)
        try:
            if not os.read(reader, 1):
                raise OSError(errno.EPERM, "no user namespace for the programs of the simulated Mac")
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(reader)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _reset_signals():
    """What a program expects to inherit: Python ignores some signals for itself."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def place_descriptors(wanted):
    """Makes descriptor TARGET a copy of SOURCE for each pair of WANTED, whatever overlaps; they survive exec."""
    high = max(wanted, default=2) + 1
    moved = {target: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, high) for target, source in wanted.items()}
    for target, source in moved.items():
        os.dup2(source, target, inheritable=True)
        os.close(source)


def start_program(argv, environment, descriptors, folder, become, new_session=False, umask=None):
    """Forks and executes. DESCRIPTORS: number there → number here. BECOME() makes the child the right user.

    Returns (pid, 0), or (pid of a child that is about to end, errno) when the program could not be executed.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            writer = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, max(descriptors, default=2) + 1)
            if new_session:
                os.setsid()
            if umask is not None:
                os.umask(umask)
            become()
            os.chdir(folder)
            place_descriptors(descriptors)
            _reset_signals()
            os.execvpe(argv[0], argv, environment)
        except OSError as error:
            os.write(writer, str(error.errno or errno.EIO).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(127)
    os.close(writer)
    with open(reader, "rb") as pipe:
        return pid, int(pipe.read() or 0)


def start_job(job, descriptors, folder, become):
    """Forks and runs JOB(), whose result is the exit status; the pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        place_descriptors(descriptors)
        become()
        kernel.close_all_but(descriptors)
        _reset_signals()
        os.chdir(folder)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        status = job()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
