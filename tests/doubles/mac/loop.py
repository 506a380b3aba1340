"""An event loop that is also an init: descriptors, timers, and every child that ends."""

import heapq
import itertools
import os
import selectors
import signal
import time


class Loop:
    def __init__(self):
        self._selector = selectors.DefaultSelector()
        self._timers = []
        self._serial = itertools.count()
        self._children = {}
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.watch(reader, lambda: self._reap(reader))
        self._own = (reader, writer)

    def watch(self, file, callback):
        self._selector.register(file, selectors.EVENT_READ, callback)

    def unwatch(self, file):
        try:
            self._selector.unregister(file)
        except (KeyError, ValueError):
            pass

    def after(self, seconds, callback):
        """Calls back once; the result's cancel() prevents it."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._serial), timer))
        return timer

    def on_exit(self, pid, callback):
        """CALLBACK gets the exit status, negative for a signal. To be called before control returns to the loop."""
        self._children[pid] = callback

    def wait_now(self, pid):
        """Waits for a child here and now, in place of its callback."""
        self._children.pop(pid, None)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _reap(self, reader):
        try:
            os.read(reader, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self._children.pop(pid, None)
            if callback:
                callback(os.waitstatus_to_exitcode(status))

    def turn(self):
        """Waits for something to happen and handles it."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        timeout = max(0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(timeout):
            if key.fd in self._selector.get_map() and self._selector.get_map()[key.fd] is key:
                key.data()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2].fire()


class _Timer:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None

    def fire(self):
        callback, self.callback = self.callback, None
        if callback:
            callback()
