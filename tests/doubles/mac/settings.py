"""What a test says of the simulated Mac: a JSON file that may change at any time.

README.md explains each name. A file that lacks a name means the default below.
"""

import json
import os

DEFAULTS = {
    # The host.
    "arm64": True,
    "in_vm": False,
    "version": "15.6.1",
    "build": "24G90",
    "gui_session": True,
    # Command Line Tools: ready, absent, stale, licence.
    "tools": "ready",
    "swiftc_error": None,
    "swiftc_ms": 0,
    "codesign_error": None,
    # Disk images.
    "attach_busy": 0,
    "attach_error": None,
    "detach_busy": 0,
    "umount_busy": 0,
    "mount_error": None,
    "data_volume": True,
    "locked": False,
    "main_slice": 2,
    "synthesized_rows": False,
    "linger_ms": 0,
    # The network.
    "arp": "table",
    "new_address": False,
    "lease_seconds": 86400,
    # Guests.
    "boot_ms": 50,
    "sshd_ms": 0,
    "ssh": "ok",
    "banner": "",
    "max_auth_tries": 6,
    "ssh_access": True,
    "auto_login": True,
    "clones_keep_grants": True,
    # More variables for the simulators of machines and of accessibility.
    "vzsim": {},
    "axsim": {},
}

# Those that a guest may have of its own.
OF_A_GUEST = ("boot_ms", "sshd_ms", "ssh", "banner", "max_auth_tries", "ssh_access", "axsim")


class Settings:
    """The daemon's view of the file."""

    def __init__(self, path):
        self._path = path
        self._seen = self._taken = None
        self._values = {}
        self._used = {}

    def _load(self):
        try:
            stat = os.stat(self._path)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return
            with open(self._path, encoding="utf-8") as file:
                self._values = json.load(file)
            self._seen = seen
        except (OSError, ValueError):
            pass  # half written by hand: the next look will see it whole

    def take_change(self):
        """Has the file changed since the last time that this was asked?"""
        self._load()
        before, self._taken = self._taken, self._seen
        return self._seen != before

    def __getitem__(self, name):
        self._load()
        return self._values.get(name, DEFAULTS[name])

    def use_up(self, name):
        """For a setting that says how many times: one of them, if any is left since the test last set it."""
        left = self[name]
        mark = (left, self._values.get("_set", {}).get(name))
        if self._used.get(name, (None, 0))[0] != mark:
            self._used[name] = (mark, 0)
        done = self._used[name][1]
        self._used[name] = (mark, done + 1)
        return done < left


def write(path, values):
    for name in values:
        if name not in DEFAULTS and name != "_set":
            raise KeyError(f"no setting '{name}' of the simulated Mac")
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=1)
    os.chmod(temporary, 0o644)
    os.rename(temporary, path)
