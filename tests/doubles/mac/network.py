"""The network of the guests: 192.168.64.0/24 on a bridge, the host's bootpd and its lease file."""

import os
import re
import subprocess
import time

BRIDGE = "bridge100"
HOST = "192.168.64.1"
_NET = "192.168.64."


def ip(*commands):
    """Runs commands of ip(8) in one go."""
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(commands).encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {commands}: {done.stderr.decode()}")


def make_bridge():
    ip("link set lo up", f"link add {BRIDGE} type bridge", f"addr add {HOST}/24 dev {BRIDGE}",
       f"link set {BRIDGE} up")


def ip_if_there(command):
    """A command that may fail because what it removes is not there."""
    subprocess.run(["ip", *command.split()], stderr=subprocess.DEVNULL, check=False)


def silence(address, on):
    """Lets packets to ADDRESS vanish: nobody has the hardware address that is said to be its own."""
    if on:
        ip(f"neigh replace {address} lladdr 02:ff:ff:ff:ff:fe dev {BRIDGE} nud permanent")
    else:
        ip_if_there(f"neigh del {address} dev {BRIDGE}")


def short_mac(mac):
    """As bootpd and arp write it: 6e:05:00:a1:b2:c3 → 6e:5:0:a1:b2:c3."""
    return ":".join(f"{int(part, 16):x}" for part in mac.split(":"))


class Leases:
    """Hands out addresses and keeps the file as bootpd does: entries of before stay, one rename at a time."""

    def __init__(self, path, settings):
        self.path = path
        self._settings = settings
        self._of_mac = {}
        self._next = 2

    def _blocks(self):
        try:
            with open(self.path, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except FileNotFoundError:
            return []
        return re.findall(r"^\{\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)

    def _new_address(self):
        taken = set(re.findall(r"ip_address=(\S+)", "".join(self._blocks())))
        for _ in range(253):
            address = _NET + str(self._next)
            self._next = self._next + 1 if self._next < 254 else 2
            if address not in taken:
                return address
        raise OSError("no address is left: a lease lives for a day")

    def address(self, mac):
        """The address that the guest with MAC gets at this boot."""
        if mac not in self._of_mac or self._settings["new_address"]:
            self._of_mac[mac] = self._new_address()
        return self._of_mac[mac]

    def write(self, mac, name):
        """The guest called NAME took its address."""
        address, short = self._of_mac[mac], short_mac(mac)
        expiry = int(time.time()) + self._settings["lease_seconds"]
        own = f"\tip_address={address}\n\thw_address=1,{short}\n"
        block = f"{{\n\tname={name}\n{own}\tidentifier=1,{short}\n\tlease={expiry:#x}\n}}\n"
        blocks = [old for old in self._blocks() if own not in old]
        temporary = self.path + "-"
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join([block, *blocks]))
        os.chmod(temporary, 0o644)
        os.rename(temporary, self.path)

