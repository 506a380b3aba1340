"""hdiutil, diskutil, mount and umount: disk images of guests on the simulated host."""

import dataclasses
import errno
import fcntl
import os
import shutil

from . import image, kernel
from .tools import Answer, fail, plist

_HOST_CONTAINER = {
    "APFSContainerUUID": "00000000-0000-4000-8000-000000000003",
    "ContainerReference": "disk3",
    "DesignatedPhysicalStore": "disk0s2",
    "PhysicalStores": [{"DeviceIdentifier": "disk0s2", "DiskUUID": "00000000-0000-4000-8000-000000000002"}],
    "Volumes": [
        {"APFSVolumeUUID": "00000000-0000-4000-8000-000000000301", "DeviceIdentifier": "disk3s1", "Encryption": True,
         "FileVault": True, "Locked": False, "Name": "Macintosh HD", "Roles": ["System"]},
        {"APFSVolumeUUID": "00000000-0000-4000-8000-000000000305", "DeviceIdentifier": "disk3s5", "Encryption": True,
         "FileVault": True, "Locked": False, "Name": "Data", "Roles": ["Data"]},
    ],
}
_FIRST_FREE_DISK = 4


@dataclasses.dataclass
class Volume:
    device: str
    name: str
    roles: list
    locked: bool = False
    data: bool = False
    mounted: str = ""


class Attached:
    """An image that hdiutil holds: its lock, its device numbers, and its Data volume as a folder."""

    def __init__(self, path, disk, number, directory, mac):
        settings = mac.settings
        self.path, self.disk, self.number = path, disk, number
        self.directory = directory
        self.folder = None
        self.containers = []  # (number, slice, content hint, volumes)
        if not disk.installed:
            return
        main = settings["main_slice"]
        slices = [(1, "Apple_APFS_ISC"), (main, "Apple_APFS"), (main + 1, "Apple_APFS_Recovery")]
        try:
            if mac.is_torn(disk):
                raise image.Damaged
            self.folder = image.Folder(disk, directory, mac.identity.owner)
            record = image.read_record(self.folder)
        except image.Damaged:
            self.containers = [(0, part, hint, []) for part, hint in slices]
            return
        self.uuid = record["uuid"]
        locked = settings["locked"] or record["filevault"]
        names = {
            "Apple_APFS": [("Macintosh HD", "System"), ("Preboot", "Preboot"), ("Recovery", "Recovery"),
                           ("Data", "Data"), ("VM", "VM")],
            "Apple_APFS_ISC": [("iSCPreboot", "Preboot"), ("xART", "xART"), ("Hardware", "Hardware")],
            "Apple_APFS_Recovery": [("Recovery", "Recovery")],
        }
        order = {"Apple_APFS": 1, "Apple_APFS_ISC": 2, "Apple_APFS_Recovery": 3}
        for part, hint in slices:
            container = number + order[hint]
            volumes = []
            for position, (name, role) in enumerate(names[hint], 1):
                is_data = hint == "Apple_APFS" and role == "Data"
                if is_data and not settings["data_volume"]:
                    continue
                volumes.append(Volume(f"disk{container}s{position}", name, [role], locked and is_data, is_data))
            self.containers.append((container, part, hint, volumes))

    @property
    def devices(self):
        """The names of all its devices but the volumes."""
        whole = f"disk{self.number}"
        return [whole, *(f"{whole}s{part}" for _, part, *_ in self.containers),
                *(f"disk{container}" for container, *_ in self.containers if container)]

    @property
    def volumes(self):
        return [volume for *_, volumes in self.containers for volume in volumes]

    def entities(self, synthesized):
        rows = []

        def row(device, hint):
            rows.append({"content-hint": hint, "dev-entry": "/dev/" + device, "potentially-mountable": False,
                         "unmapped-content-hint": hint})

        row(f"disk{self.number}", "GUID_partition_scheme" if self.containers else "")
        for _, part, hint, _ in self.containers:
            row(f"disk{self.number}s{part}", hint)
        for container, _, _, volumes in self.containers if synthesized else []:
            row(f"disk{container}", "EF57347C-0000-11AA-AA11-00306543ECAC")
            for volume in volumes:
                row(volume.device, "41504653-0000-11AA-AA11-00306543ECAC")
                rows[-1]["potentially-mountable"] = True
                rows[-1]["volume-kind"] = "apfs"
        return rows

    def apfs(self):
        """Its containers as `diskutil apfs list -plist` shows them."""
        for container, part, _, volumes in self.containers:
            if not container:
                continue
            store = f"disk{self.number}s{part}"
            yield {
                "APFSContainerUUID": self.uuid[:-1] + str(part % 10),
                "ContainerReference": f"disk{container}",
                "DesignatedPhysicalStore": store,
                "PhysicalStores": [{"DeviceIdentifier": store}],
                "Volumes": [{"APFSVolumeUUID": f"{self.uuid[:-3]}{part % 10}{position:02}",
                             "DeviceIdentifier": volume.device, "Encryption": volume.locked,
                             "FileVault": volume.locked, "Locked": volume.locked, "Name": volume.name,
                             "Roles": volume.roles} for position, volume in enumerate(volumes, 1)],
            }

    def save(self):
        if self.folder:
            self.folder.save(lambda path: image.ATTACHER, self.disk.in_use())


class Disks:
    """All attached images."""

    def __init__(self, mac):
        self._mac = mac
        self._attached = []
        self._serial = 0

    def find(self, device):
        """The attached image that DEVICE (with or without /dev/) is a part of, and the volume if it is one."""
        device = device.removeprefix("/dev/")
        for attached in self._attached:
            for volume in attached.volumes:
                if volume.device == device:
                    return attached, volume
            if device in attached.devices:
                return attached, None
        return None, None

    def mounted_at(self, path):
        for attached in self._attached:
            for volume in attached.volumes:
                if volume.mounted and volume.mounted == path:
                    return attached, volume
        return None, None

    def uses(self, key):
        return any(attached.disk.key == key for attached in self._attached)

    # What the tools do.

    def attach(self, path):
        """Attaches the image, or finds it attached; OSError when it cannot be."""
        settings = self._mac.settings
        disk = image.Disk(path)
        try:
            for attached in self._attached:
                if attached.disk.key == disk.key:
                    disk.close()
                    return attached
            if settings.use_up("attach_busy") or self._mac.is_busy(disk.key):
                raise OSError(errno.EAGAIN, "busy")
            fcntl.flock(disk.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._serial += 1
            directory = os.path.join(self._mac.private, f"attached-{self._serial}")
            taken = {number + part for number in (a.number for a in self._attached) for part in range(4)}
            number = next(n for n in range(_FIRST_FREE_DISK, 1000) if not taken & set(range(n, n + 4)))
            attached = Attached(os.path.realpath(path), disk, number, directory, self._mac)
        except BaseException:
            disk.close()
            raise
        self._attached.append(attached)
        return attached

    def mount(self, attached, volume, directory):
        kernel.bind(attached.directory, directory)
        volume.mounted = os.path.realpath(directory)

    def unmount(self, attached, volume, force=False):
        kernel.umount(volume.mounted, kernel.MNT_DETACH if force else 0)
        volume.mounted = ""
        attached.save()

    def detach(self, attached, force=False):
        for volume in attached.volumes:
            if volume.mounted:
                self.unmount(attached, volume, force)
        attached.save()
        self._attached.remove(attached)
        attached.disk.close()
        shutil.rmtree(attached.directory, ignore_errors=True)

    # hdiutil.

    def hdiutil(self, call):
        verbs = {"attach": self._hdiutil_attach, "info": self._hdiutil_info, "detach": self._hdiutil_detach}
        if not call.argv or call.argv[0] not in verbs:
            return Answer(1, "", "hdiutil: the simulated one knows attach, info and detach\n")
        return verbs[call.argv[0]](call)

    def _rows(self, attached):
        return attached.entities(self._mac.settings["synthesized_rows"])

    def _hdiutil_attach(self, call):
        words, options, path = iter(call.argv[1:]), set(), None
        for word in words:
            if word == "-imagekey":
                options.add(next(words, ""))
            elif word.startswith("-"):
                options.add(word)
            else:
                path = word
        if path is None:
            return fail(call, "attach: missing image\nUsage: hdiutil attach [options] <image>")
        if "-nomount" not in options:
            return fail(call, "attach failed - the simulated one only attaches with -nomount")
        raw = "diskimage-class=CRawDiskImage" in options or path.endswith(".img")
        if self._mac.settings["attach_error"]:
            return fail(call, f"attach failed - {self._mac.settings['attach_error']}")
        if not raw:
            return fail(call, "attach failed - image not recognized")
        try:
            attached = self.attach(call.path(path))
        except OSError as error:
            return fail(call, f"attach failed - {os.strerror(error.errno)}")
        if "-plist" in options:
            return Answer(0, plist({"system-entities": self._rows(attached)}))
        lines = [f"{row['dev-entry']:<20}\t{row['content-hint']:<31}\t\n" for row in self._rows(attached)]
        return Answer(0, "".join(lines))

    def _hdiutil_info(self, call):
        if "-plist" not in call.argv:
            return fail(call, "info: the simulated one needs -plist")
        images = [{"image-path": attached.path, "image-type": "read/write", "writeable": True,
                   "system-entities": self._rows(attached)} for attached in self._attached]
        return Answer(0, plist({"framework": "671.140.2", "images": images, "vendor": "Apple"}))

    def _hdiutil_detach(self, call):
        force = "-force" in call.argv
        names = [word for word in call.argv[1:] if not word.startswith("-")]
        if not names:
            return fail(call, "detach: missing device")
        attached, _ = self.find(names[0])
        if attached is None:
            attached, _ = self.mounted_at(os.path.realpath(call.path(names[0])))
        if attached is None:
            return fail(call, "detach failed - No such file or directory")
        name = f"disk{attached.number}"
        if self._mac.settings.use_up("detach_busy") and not force:
            return fail(call, f"couldn't eject \"{name}\" - Resource busy", errno.EBUSY)
        try:
            self.detach(attached, force)
        except OSError:
            return fail(call, f"couldn't unmount \"{name}\" - Resource busy", errno.EBUSY)
        return Answer(0, f"\"{name}\" ejected.\n")

    # diskutil.

    def diskutil(self, call):
        verbs = {"apfs": self._diskutil_apfs, "info": self._diskutil_info, "image": self._diskutil_image,
                 "mount": self._diskutil_mount, "unmount": self._diskutil_unmount, "eject": self._diskutil_eject}
        if not call.argv or call.argv[0] not in verbs:
            return Answer(1, "", f"diskutil: the simulated one knows {', '.join(verbs)}\n")
        return verbs[call.argv[0]](call)

    def _diskutil_apfs(self, call):
        words = [word for word in call.argv[1:] if word != "-plist"]
        if words[:1] != ["list"] or len(words) == len(call.argv) - 1:
            return Answer(1, "", "diskutil: the simulated one knows `apfs list -plist`\n")
        containers = [_HOST_CONTAINER]
        for attached in self._attached:
            containers += attached.apfs()
        if words[1:]:
            wanted = words[1].removeprefix("/dev/")
            containers = [one for one in containers if one["ContainerReference"] == wanted]
            if not containers:
                return Answer(1, plist({"Containers": []}), f"Could not find APFS Container Reference {wanted}\n")
        return Answer(0, plist({"Containers": containers}))

    def _diskutil_info(self, call):
        names = [word for word in call.argv[1:] if word != "-plist"]
        if len(names) != 1 or len(names) == len(call.argv) - 1:
            return Answer(1, "", "diskutil: the simulated one knows `info -plist DEVICE`\n")
        attached, volume = self.find(names[0])
        if attached is None:
            return Answer(1, plist({"Error": True, "ErrorMessage": f"Could not find disk: {names[0]}"}))
        device = names[0].removeprefix("/dev/")
        facts = {"DeviceIdentifier": device, "DeviceNode": "/dev/" + device,
                 "ParentWholeDisk": f"disk{attached.number}"}
        for container, part, hint, _ in attached.containers:
            if device == f"disk{attached.number}s{part}":
                facts.update({"Content": hint, "APFSContainerReference": f"disk{container}"})
        if volume:
            facts.update({"VolumeName": volume.name, "FilesystemType": "apfs", "MountPoint": volume.mounted,
                          "FileVault": volume.locked, "Locked": volume.locked, "Encryption": volume.locked})
        return Answer(0, plist(facts))

    def _diskutil_image(self, call):
        if int(self._mac.settings["version"].split(".")[0]) < 15:
            return Answer(1, "", "diskutil: did not recognize verb \"image\"; type \"diskutil\" for a list\n")
        words = call.argv[1:]
        if words[:1] != ["attach"] or not {"--noMount", "-nomount"} & set(words):
            return Answer(1, "", "diskutil: the simulated one knows `image attach --noMount`\n")
        try:
            attached = self.attach(call.path(words[-1]))
        except OSError as error:
            return Answer(1, "", f"Error attaching image: {os.strerror(error.errno)}\n")
        rows = [{"dev-entry": row["dev-entry"].removeprefix("/dev/"), "content-hint": row["content-hint"]}
                for row in attached.entities(False)]
        rows += [{"dev-entry": volume.device, "role": volume.roles[0]} for volume in attached.volumes]
        return Answer(0, plist({"system-entities": rows}))

    def _diskutil_mount(self, call):
        words, directory, device = iter(call.argv[1:]), None, None
        for word in words:
            if word == "-mountPoint":
                directory = next(words, None)
            elif word == "-mountOptions":
                next(words, None)
            elif word != "nobrowse":
                device = word
        answer = self._mount(call, device or "", directory or "")
        if answer.status:
            return Answer(1, "", f"Volume on {device} failed to mount\n{answer.err}")
        return Answer(0, f"Volume {self.find(device)[1].name} on {device} mounted\n")

    def _diskutil_unmount(self, call):
        force = "force" in call.argv
        name = call.argv[-1]
        attached, volume = self.find(name)
        if volume is None:
            attached, volume = self.mounted_at(os.path.realpath(call.path(name)))
        if volume is None or not volume.mounted:
            return Answer(1, "", f"{name} was already unmounted\n")
        if not force and self._mac.settings.use_up("umount_busy"):
            return Answer(1, "", f"Volume {volume.name} on {volume.device} failed to unmount\n")
        try:
            self.unmount(attached, volume, force)
        except OSError:
            return Answer(1, "", f"Volume {volume.name} on {volume.device} failed to unmount\n")
        return Answer(0, f"Volume {volume.name} on {volume.device} unmounted\n")

    def _diskutil_eject(self, call):
        attached, _ = self.find(call.argv[-1])
        if attached is None:
            return Answer(1, "", f"Unable to find disk for {call.argv[-1]}\n")
        try:
            self.detach(attached)
        except OSError:
            return Answer(1, "", f"Disk {call.argv[-1]} failed to eject\n")
        return Answer(0, f"Disk {call.argv[-1]} ejected\n")

    # mount and umount.

    def mount_tool(self, call):
        words, options, names = iter(call.argv), [], []
        kind = None
        for word in words:
            if word == "-t":
                kind = next(words, None)
            elif word == "-o":
                options += next(words, "").split(",")
            else:
                names.append(word)
        if kind != "apfs" or len(names) != 2:
            return Answer(64, "", "usage: mount -t apfs [-o options] special node (all that the simulated one does)\n")
        return self._mount(call, names[0], names[1])

    def _mount(self, call, device, directory):
        if self._mac.settings["mount_error"]:
            return Answer(66, "", f"mount_apfs: {self._mac.settings['mount_error']}\n")
        attached, volume = self.find(device)
        target = os.path.realpath(call.path(directory))
        if volume is None:
            return Answer(66, "", f"mount_apfs: volume could not be mounted: No such file or directory: {device}\n")
        if not os.path.isdir(target):
            return Answer(66, "", f"mount_apfs: {directory}: No such file or directory\n")
        if volume.locked:
            return Answer(77, "", "mount_apfs: volume could not be mounted: Authentication error\n")
        if volume.mounted or self.mounted_at(target)[1]:
            return Answer(75, "", "mount_apfs: volume could not be mounted: Resource busy\n")
        if not volume.data:
            return Answer(77, "", "mount_apfs: volume could not be mounted: Permission denied\n")
        self.mount(attached, volume, target)
        return Answer()

    def umount_tool(self, call):
        names = [word for word in call.argv if not word.startswith("-")]
        if len(names) != 1:
            return Answer(64, "", "usage: umount [-f] special | node\n")
        attached, volume = self.mounted_at(os.path.realpath(call.path(names[0])))
        if volume is None:
            attached, volume = self.find(names[0])
        if volume is None or not volume.mounted:
            return Answer(1, "", f"umount: {names[0]}: not currently mounted\n")
        force = "-f" in call.argv
        if not force and self._mac.settings.use_up("umount_busy"):
            return Answer(1, "", f"umount({volume.mounted}): Resource busy -- try 'diskutil unmount'\n")
        try:
            self.unmount(attached, volume, force)
        except OSError:
            return Answer(1, "", f"umount({volume.mounted}): Resource busy -- try 'diskutil unmount'\n")
        return Answer()
