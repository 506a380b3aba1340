"""What happens by itself after a while: sessions that start, stop and time out."""

import heapq
import itertools
import threading
import time


class Clock:
    def __init__(self):
        self._heap = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def after(self, milliseconds, function, *arguments):
        """Calls it in a thread of its own; never, after FOREVER."""
        if milliseconds == float("inf"):
            return
        when = time.monotonic() + milliseconds / 1000
        with self._changed:
            heapq.heappush(self._heap, (when, next(self._numbers), function, arguments))
            self._changed.notify()

    def _run(self):
        with self._changed:
            while not self._closed:
                left = self._heap[0][0] - time.monotonic() if self._heap else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                _, _, function, arguments = heapq.heappop(self._heap)
                threading.Thread(target=function, args=arguments, daemon=True).start()

    def close(self):
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
