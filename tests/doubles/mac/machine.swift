// The smallest program that installs and runs a macOS guest, for the double's own test.
//   machine install DISK AUX IMAGE        machine run DISK AUX MAC SHARE [TITLE]
// Ends with 0 when the machine stopped, with the error's code when it could not be installed or started.

import AppKit
import Virtualization

func fail(_ error: any Error) -> Never {
    FileHandle.standardError.write(Data("\(error.localizedDescription)\n".utf8))
    exit(Int32(truncatingIfNeeded: (error as NSError).code % 256))
}

func configuration(disk: URL, platform: VZMacPlatformConfiguration) throws -> VZVirtualMachineConfiguration {
    let whole = VZVirtualMachineConfiguration()
    whole.bootLoader = VZMacOSBootLoader()
    whole.platform = platform
    whole.cpuCount = 4
    whole.memorySize = 8 << 30
    whole.storageDevices = [
        VZVirtioBlockDeviceConfiguration(
            attachment: try VZDiskImageStorageDeviceAttachment(url: disk, readOnly: false))
    ]
    let graphics = VZMacGraphicsDeviceConfiguration()
    graphics.displays = [
        VZMacGraphicsDisplayConfiguration(widthInPixels: 1920, heightInPixels: 1200, pixelsPerInch: 80)
    ]
    whole.graphicsDevices = [graphics]
    return whole
}

final class Host: NSObject, NSApplicationDelegate, NSWindowDelegate, VZVirtualMachineDelegate {
    var machine: VZVirtualMachine!
    var window: NSWindow?

    func guestDidStop(_ virtualMachine: VZVirtualMachine) { exit(0) }
    func virtualMachine(_ virtualMachine: VZVirtualMachine, didStopWithError error: any Error) { fail(error) }
    func windowShouldClose(_ sender: NSWindow) -> Bool {
        try? machine.requestStop()
        return true
    }

    @MainActor
    func open(title: String) {
        let window = NSWindow(
            contentRect: NSRect(x: 0, y: 0, width: 960, height: 600), styleMask: [.titled, .closable],
            backing: .buffered, defer: false)
        window.isReleasedWhenClosed = false
        window.title = title
        window.delegate = self
        let view = VZVirtualMachineView()
        view.virtualMachine = machine
        window.contentView = view
        window.makeKeyAndOrderFront(nil)
        self.window = window
    }
}

let words = CommandLine.arguments
let disk = URL(fileURLWithPath: words[2]), aux = URL(fileURLWithPath: words[3])
let host = Host()
let platform = VZMacPlatformConfiguration()

if words[1] == "install" {
    let image = URL(fileURLWithPath: words[4])
    VZMacOSRestoreImage.load(from: image) { result in
        DispatchQueue.main.async {
            do {
                let needs = try result.get().mostFeaturefulSupportedConfiguration!
                platform.hardwareModel = needs.hardwareModel
                platform.auxiliaryStorage = try VZMacAuxiliaryStorage(
                    creatingStorageAt: aux, hardwareModel: needs.hardwareModel, options: [])
                let whole = try configuration(disk: disk, platform: platform)
                try whole.validate()
                host.machine = VZVirtualMachine(configuration: whole)
                let installer = VZMacOSInstaller(virtualMachine: host.machine, restoringFromImageAt: image)
                installer.install { result in
                    _ = installer
                    if case .failure(let error) = result { fail(error) }
                    host.machine.stop { _ in exit(0) }
                }
            } catch { fail(error) }
        }
    }
    RunLoop.main.run()
}

do {
    platform.hardwareModel = VZMacHardwareModel(dataRepresentation: Data("VZSIM-MODEL:2".utf8))!
    platform.auxiliaryStorage = VZMacAuxiliaryStorage(url: aux)
    let whole = try configuration(disk: disk, platform: platform)
    let network = VZVirtioNetworkDeviceConfiguration()
    network.attachment = VZNATNetworkDeviceAttachment()
    network.macAddress = VZMACAddress(string: words[4])!
    whole.networkDevices = [network]
    let share = VZVirtioFileSystemDeviceConfiguration(
        tag: VZVirtioFileSystemDeviceConfiguration.macOSGuestAutomountTag)
    share.share = VZSingleDirectoryShare(
        directory: VZSharedDirectory(url: URL(fileURLWithPath: words[5]), readOnly: true))
    whole.directorySharingDevices = [share]
    try whole.validate()
    host.machine = VZVirtualMachine(configuration: whole)
    host.machine.delegate = host
    host.machine.start { result in
        if case .failure(let error) = result { fail(error) }
        MainActor.assumeIsolated { if words.count > 6 { host.open(title: words[6]) } }
        print("running")
        fflush(stdout)
    }
    NSApplication.shared.setActivationPolicy(words.count > 6 ? .regular : .prohibited)
    NSApplication.shared.run()
} catch { fail(error) }
