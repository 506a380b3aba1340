"""A guest as the daemon sees it: one boot of one disk. What runs inside is in guest_init.py."""

import json
import os
import shlex
import shutil
import signal
import socket

from . import guest_init, image, network

SSH_CLIENT = "sshd-keygen-wrapper"  # whom macOS asks about an ssh session
TERMINAL = "Terminal"
_SHUTDOWN_MS = 60
_SAVE_AFTER_MS = 50


class Guest:
    """One boot of one disk."""

    def __init__(self, mac, number, disk, config, run):
        self._mac, self._number, self._disk, self._config = mac, number, disk, config
        self.run = run
        self.overrides = {}
        self.directory = os.path.join(mac.private, f"guest-{number}")
        self.folder = None
        self.mac_address = (config["macs"] or ["02:00:00:00:00:01"])[0]
        self.address = None
        self.state = "booting"  # then dead; locked; or network (an address), up (port 22 is as it shall be), ended
        self._pid = None
        self._control = None
        self._runs = {}
        self._acknowledged = []
        self._timers = []
        self._save_waits = False
        self._silent = False
        self._next_run = 0

    @property
    def shares(self):
        """The host's folders that it shows."""
        return [share["path"] for share in self._config["shares"]]

    # A life.

    def boot(self):
        os.makedirs(self.directory)
        try:
            if self._mac.is_torn(self._disk):
                raise image.Damaged("this disk was copied while it was in use")
            if self._disk.header() is None:
                self._disk.write(self._disk.entries())
            self.folder = image.Folder(self._disk, os.path.join(self.directory, "tree"), self._mac.identity.owner)
            record = image.read_record(self.folder)
        except image.Damaged as damage:
            self._mac.warn(f"{self._disk.path} does not boot: {damage}")
            self.state = "dead"
            return
        self._disk.mark_in_use(self.run)
        if record["filevault"] or self._mac.settings["locked"]:
            self.state = "locked"  # the login window waits for the password of the disk
            return
        if record["ecid"] not in (None, self._config.get("ecid")) and not self._mac.settings["clones_keep_grants"]:
            image.change_record(self.folder, grants=[])
        image.change_record(self.folder, ecid=self._config.get("ecid"))
        delay = self.setting("boot_ms")
        if delay is not None:
            self._later(delay, self._start)

    def setting(self, name):
        return self.overrides.get(name, self._mac.settings[name])

    def _later(self, milliseconds, callback):
        self._timers = [timer for timer in self._timers if timer.callback]
        self._timers.append(self._mac.loop.after(milliseconds / 1000, callback))

    def _start(self):
        self._prepare()
        self._control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = guest_init.start(self._mac, self, inside)
        inside.close()
        self._mac.loop.watch(self._control, self._heard)
        self._mac.loop.on_exit(self._pid, lambda _: self._init_died())
        self.address = self._mac.leases.address(self.mac_address)
        veth = f"veth{self._number}"
        network.ip(f"link add {veth} type veth peer name en0 netns {self._pid} address {self.mac_address}",
                   f"link set {veth} master {network.BRIDGE} up")
        self._tell({"do": "boot", "address": self.address})

    def _prepare(self):
        """Files that the init shows inside as /run/simulated, and those of /etc that Linux programs want."""
        run = os.path.join(self.directory, "run")
        for path in ("root", "run", "run/log", "run/real"):
            os.mkdir(os.path.join(self.directory, path))
            os.chmod(os.path.join(self.directory, path), 0o755)
        self.folder.own(os.path.join(run, "log"))
        os.mkfifo(os.path.join(run, "power"))
        os.chmod(os.path.join(run, "power"), 0o666)
        self.folder.own(os.path.join(run, "power"))
        with open(self.folder.inside(image.SYSTEM_VERSION), "rb") as file:
            system = image.read_plist(file.read())
        console = "yes" if self._mac.settings["auto_login"] else ""
        self._write("run/system", f"version={system.get('ProductVersion')} build={system.get('ProductBuildVersion')} "
                                  f"console={console}\n")
        self.refresh()

    def _write(self, path, text):
        path = os.path.join(self.directory, path)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path + ".new", 0o644)
        os.rename(path + ".new", path)

    def refresh(self):
        """After anything about accounts, grants or sshd's settings changed."""
        if not os.path.isdir(os.path.join(self.directory, "run")):
            return
        accounts = image.accounts(self.folder)
        lines = ["root:*:0:0:System Administrator:/var/root:/bin/sh", "sshd:*:75:75:sshd:/var/empty:/usr/bin/false"]
        lines += [f"{one['name']}:*:{one['uid']}:{image.STAFF}:{one['full_name']}:{one['home']}:{one['shell']}"
                  for one in accounts]
        etc = {"passwd": "\n".join(lines) + "\n", "group": f"wheel:*:0:\nstaff:*:{image.STAFF}:\n",
               "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n"}
        for name, text in etc.items():
            self._write("tree/private/etc/" + name, text)
            self.folder.own(self.folder.inside("private/etc/" + name))
        grants = image.read_record(self.folder)["grants"]
        self._write("run/ssh.env", self._environment(SSH_CLIENT in grants, over_ssh=True))
        self._write("run/gui.env", self._environment(TERMINAL in grants, over_ssh=False))
        self._write("run/sshd_config", self._sshd_config())
        self._write("run/banner", self.setting("banner"))

    def _environment(self, trusted, over_ssh):
        values = {"AXSIM_TRUSTED": "1" if trusted else "0", "AXSIM_LOG": "/run/simulated/log/accessibility",
                  "AXSIM_STATE": "/run/simulated/log/desktop.json"}
        if over_ssh:
            values["AXSIM_SSH"] = "1"
        if not self._mac.settings["auto_login"]:
            values["AXSIM_NO_SESSION"] = "1"
        values.update({"AXSIM_" + name: str(value) for name, value in self.setting("axsim").items()})
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())

    def _sshd_config(self):
        lines = ["AuthorizedKeysFile .ssh/authorized_keys", "PasswordAuthentication no", "UsePAM no", "UseDNS no",
                 "KbdInteractiveAuthentication no", "PidFile none", "PrintMotd no", "PrintLastLog no",
                 "Subsystem sftp internal-sftp", "AcceptEnv LANG LC_*", f"SetEnv PATH={guest_init.PATH}",
                 f"MaxAuthTries {self.setting('max_auth_tries')}"]
        lines += [f"HostKey /private/etc/ssh/ssh_host_{kind}_key" for kind in guest_init.KEYS]
        if self.setting("banner"):
            lines.append("Banner /run/simulated/banner")
        if not self.setting("ssh_access"):
            lines.append("DenyUsers *")
        return "\n".join(lines) + "\n"

    def _finish_boot(self):
        def done():
            self.state = "up"

        self._set_listener(done)

    def listen(self, then=lambda: None):
        """Makes port 22 behave as it should now; THEN() is called when it does."""
        if self.state != "up":
            then()  # the end of the boot will look
        else:
            self._set_listener(then)

    def _set_listener(self, then):
        mode = self.setting("ssh") if image.remote_login(self.folder) else "refuse"
        if (mode == "mute") != self._silent:
            self._silent = mode == "mute"
            network.silence(self.address, self._silent)
        self._acknowledged.append(then)
        self._tell({"do": "listen", "mode": mode, "uid": self._user()})

    def _tell(self, message, fds=()):
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError:
            pass  # it ended: _init_died() is on its way

    def _heard(self):
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 65536, 1)
        except OSError:
            data, fds = b"", []
        if not data:
            self._mac.loop.unwatch(self._control)
            return
        message = json.loads(data)
        what = message["event"]
        if what == "booted":
            self.state = "network"
            self._mac.leases.write(self.mac_address, self.host_name())
            self._later(self.setting("sshd_ms"), self._finish_boot)
        elif what == "listens":
            self._acknowledged.pop(0)()
        elif what == "session-ended":
            self._save_soon()
        elif what == "power-off":
            self._mac.guest_powers_off(self)
        elif what in ("started", "failed", "exited"):
            self._run_event(message, fds)

    def host_name(self):
        accounts = image.accounts(self.folder)
        return f"{accounts[0]['full_name']}s-Virtual-Machine" if accounts else "Macs-Virtual-Machine"

    # Programs in the person's session.

    def start_program(self, request, fds, report):
        """REPORT(message, fds) hears of the start and the end."""
        accounts = {one["name"]: one for one in image.accounts(self.folder)}
        account = accounts.get(request.get("user")) or next(iter(accounts.values()), None)
        if self.state != "up" or account is None:
            report({"error": "nobody can log in to this guest"}, [])
            return
        self._next_run += 1
        self._runs[self._next_run] = report
        self._tell({"do": "run", "id": self._next_run, "account": account, **request}, fds)

    def _run_event(self, message, fds):
        report = self._runs[message["id"]]
        if message["event"] == "started":
            report({"started": message["pid"]}, fds)
        else:
            del self._runs[message["id"]]
            if message["event"] == "failed":
                report({"error": os.strerror(message["errno"]), "errno": message["errno"]}, [])
            else:
                report({"exit": message["status"]}, [])
                self._save_soon()
        for fd in fds:
            os.close(fd)

    # An end.

    def shut_down(self):
        """Every process gets SIGTERM and a moment; then end()."""
        if self.state == "up":
            self._tell({"do": "shutdown"})
            self._later(_SHUTDOWN_MS, self.end)

    def _init_died(self):
        self._pid = None
        self._mac.warn("process 1 of a guest died: see guests.log")
        self._mac.guest_powers_off(self)

    def _save_soon(self):
        if not self._save_waits:
            self._save_waits = True
            self._later(_SAVE_AFTER_MS, self.save)

    def save(self, run_after=True):
        """Puts what changed into the image."""
        self._save_waits = False
        if self.folder:
            uid = self._user()
            self.folder.save(lambda path: image.owner_in_guest(path, uid), self.run if run_after else None)

    def _user(self):
        return next((one["uid"] for one in image.accounts(self.folder)), 501)

    def end(self):
        """At once, as a machine ends: nothing runs afterwards, and the image has the tree."""
        if self.state == "ended":
            return
        for timer in self._timers:
            timer.cancel()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._mac.loop.wait_now(self._pid)
            self._pid = None
        if self.address:
            network.ip_if_there(f"link del veth{self._number}")
            if self._silent:
                network.silence(self.address, False)
        self.save(run_after=False)
        self.state = "ended"
        if self._control:
            self._mac.loop.unwatch(self._control)
            self._control.close()
        for report in self._runs.values():
            report({"exit": -signal.SIGKILL}, [])
        for then in self._acknowledged:
            then()
        self.state = "ended"
        self._runs, self._acknowledged = {}, []
        shutil.rmtree(self.directory, ignore_errors=True)
