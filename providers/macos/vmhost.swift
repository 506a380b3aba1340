// vmhost.swift - one macOS guest, one process: installs it, renews its identity, runs it.
//
//   vmhost check                                              can this Mac run macOS guests?
//   vmhost install --vm DIR --image FILE.ipsw --disk-bytes N  makes a guest in an empty DIR
//   vmhost renew   --vm DIR                                   a new identity, for a copy of a guest
//   vmhost run     --vm DIR --share DIR [--window TITLE]      runs it, until it stops
//
// DIR holds disk.img, aux.img and vm.json. What happens is told on stdout, one JSON object a line (`Event`); stderr
// is for what no program reads. Exit status: 0 done, 1 failed (the last event, `error`, says why), 2 wrong arguments.
//
//   install   ends early on SIGTERM, SIGINT, and when its stdin ends: then whoever wanted the guest is gone.
//   run       SIGTERM and SIGINT ask the guest to shut down, as its power button would; SIGUSR1 cuts its power. What
//             asking leaves open (macOS shows a dialog that nobody may answer) is the caller's to end.
//
// The guest lives and dies with this process. Nothing is ever remade here that an installed guest needs: its
// auxiliary storage, hardware model and machine identifier are kept as they were at its installation.
//
// For macOS 13 and the Swift of its first developer tools (5.7) on; language modes 5 and 6. All work is done on the
// main queue, which Virtualization demands of a machine that was made without a queue of its own.

import AppKit
import Darwin
import Foundation
import Virtualization

// MARK: - Bounds

enum Bounds {
    // Guests with fewer processors than four are known to freeze often.
    static let processors = 4
    static let memory: UInt64 = 8 << 30

    static let display = (width: 1920, height: 1200, pixelsPerInch: 80)
    static let window = NSSize(width: 1280, height: 800)

    // Seconds.
    static let lockedStart = 5.0  // a machine that has just ended holds its locks a moment longer
    static let lockedPause = 0.25
    static let windowShutdown = 30.0
    static let installedShutdown = 10.0
    static let powerOff = 10.0
    static let cancellation = 3.0  // less than the 5 s after which whoever cancels ends everything
}

// MARK: - Events

enum Problem: String, Encodable {
    case limit, keychain, locked, entitlement, image
    case hostTooOld = "host-too-old"
    case noSpace = "no-space"
    case unsupported, cancelled, configuration, install, start, crash, other
}

/// What made, or is to make, the guest stop.
enum How: String, Encodable {
    case guest, request, force, window
}

/// A line of stdout. The names of its members are the ones that the reader knows; absent ones are left out.
struct Event: Encodable {
    enum Name: String, Encodable {
        case check, image, progress, installed, renewed, started, window, stopping, stopped, network, error
    }
    struct Cause: Encodable {
        let domain: String
        let code: Int
        let message: String
    }

    var time = Int64(Date().timeIntervalSince1970 * 1000)  // milliseconds since 1970
    let event: Name
    var supported: Bool?  // check
    var version: String?  // image
    var build: String?
    var fraction: Double?  // progress: 0 to 1
    var mac: String?  // renewed
    var pid: Int32?  // started
    var title: String?  // window
    var how: How?  // stopping, stopped
    var problem: Problem?  // error; check when it is not supported
    var domain: String?  // error: the framework's own words, and its reasons from the outside in
    var code: Int?
    var description: String?
    var underlying: [Cause]?
    var message: String?  // error, network, check, stopping: a sentence for a person
}

/// At once and with one write, so that a reader of the file never sees part of a line as a whole one.
func emit(_ event: Event) {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    guard var line = try? encoder.encode(event) else { return }
    line.append(UInt8(ascii: "\n"))
    _ = writeAll(line, to: STDOUT_FILENO)  // a reader that is gone shows as the end of stdin
}

func writeAll(_ data: Data, to descriptor: Int32) -> Bool {
    data.withUnsafeBytes { bytes in
        var done = 0
        while done < bytes.count {
            let count = write(descriptor, bytes.baseAddress! + done, bytes.count - done)
            if count < 0 && errno != EINTR { return false }
            done += max(count, 0)
        }
        return true
    }
}

// MARK: - What went wrong

/// An error with a name for programs and a sentence for people.
struct Failure: Error {
    let problem: Problem
    let message: String
    var cause: (any Error)?

    init(_ problem: Problem, _ message: String, cause: (any Error)? = nil) {
        self.problem = problem
        self.message = message
        self.cause = cause
    }

    /// Of a system call that has just failed on a file.
    init(cannot act: String, _ path: String) {
        let cause = NSError(domain: NSPOSIXErrorDomain, code: Int(errno))
        let full = errno == ENOSPC || errno == EDQUOT
        self.init(full ? .noSpace : .configuration, "cannot \(act) \(path): \(String(cString: strerror(errno)))",
            cause: cause)
    }
}

/// How an error of the frameworks is recognised, and what it means. Texts stand only where no code tells, since they
/// may come in the Mac's language.
struct Diagnosis {
    let problem: Problem
    var codes: ClosedRange<Int>?  // of VZErrorDomain (VZError.h)
    var posix: [Int32] = []
    var texts: [String] = []
    var sentence: String?  // absent: the framework's description says it best

    /// The first that fits counts: causes before the general codes that they come wrapped in.
    static let all = [
        Diagnosis(problem: .limit, codes: 6...6, sentence: """
            two macOS VMs run already: Apple's limit for this whole Mac, whatever started them. Stop one. \
            If none runs, macOS kept a stale count: restart the Mac
            """),
        Diagnosis(problem: .keychain,
            texts: [
                "SecKeyCreateRandomKey", "Failed to generate keypair",
                "Interaction is not allowed with the Security Server",
            ],
            sentence: """
                macOS needs your login keychain, unlocked, to run a VM: log in at this Mac's screen, or run \
                'security unlock-keychain', and start again
                """),
        Diagnosis(problem: .entitlement, texts: ["com.apple.security.virtualization"], sentence: """
            the VM host is not signed with the virtualization entitlement: build it again
            """),
        Diagnosis(problem: .locked, posix: [EAGAIN], texts: ["lock auxiliary storage"], sentence: """
            the VM's files are in use by another process
            """),
        Diagnosis(problem: .noSpace, codes: 8...8, posix: [ENOSPC, EDQUOT], sentence: """
            no space left on this Mac's disk
            """),
        Diagnosis(problem: .cancelled, codes: 9...9, sentence: "cancelled"),
        Diagnosis(problem: .unsupported, codes: 10...10, sentence: "this Mac cannot run macOS VMs"),
        Diagnosis(problem: .image, codes: 10001...10005),
        Diagnosis(problem: .hostTooOld, codes: 10006...10006, sentence: """
            this Mac's macOS is too old to install that image: update the Mac, or pass an older image
            """),
        Diagnosis(problem: .install, codes: 10007...10007),
        Diagnosis(problem: .configuration, codes: 2...2),
        Diagnosis(problem: .configuration, codes: 5...5),
    ]

    func fits(_ error: NSError) -> Bool {
        if error.domain == VZErrorDomain, let codes, codes.contains(error.code) { return true }
        if error.domain == NSPOSIXErrorDomain, posix.contains(where: { Int($0) == error.code }) { return true }
        return texts.contains { error.localizedDescription.contains($0) }
    }

    static func of(_ error: any Error) -> Diagnosis? {
        let chain = causes(of: error)
        return all.first { diagnosis in chain.contains(where: diagnosis.fits) }
    }

    /// The error and what it was caused by, from the outside in.
    static func causes(of error: any Error) -> [NSError] {
        var chain: [NSError] = []
        var next: (any Error)? = error
        while let error = next, chain.count < 8 {
            let known = error as NSError
            chain.append(known)
            next = known.userInfo[NSUnderlyingErrorKey] as? any Error
        }
        return chain
    }
}

/// Any error as a failure; one that nothing is known about is a PROBLEM.
func failure(_ error: any Error, otherwise problem: Problem) -> Failure {
    if let known = error as? Failure { return known }
    let diagnosis = Diagnosis.of(error)
    let own = Diagnosis.causes(of: error).map(\.localizedDescription).joined(separator: ": ")
    return Failure(diagnosis?.problem ?? problem, diagnosis?.sentence ?? own, cause: error)
}

func report(_ failure: Failure) {
    let chain = failure.cause.map(Diagnosis.causes) ?? []
    emit(
        Event(
            event: .error, problem: failure.problem, domain: chain.first?.domain, code: chain.first?.code,
            description: chain.first?.localizedDescription,
            underlying: chain.dropFirst().map {
                Event.Cause(domain: $0.domain, code: $0.code, message: $0.localizedDescription)
            },
            message: failure.message))
}

func end(_ failure: Failure) -> Never {
    report(failure)
    exit(1)
}

// MARK: - The main queue

/// The frameworks call back where they like; the work is done here.
func onMain(_ work: @escaping @MainActor @Sendable () -> Void) {
    DispatchQueue.main.async { work() }
}

func onMain(after seconds: Double, _ work: @escaping @MainActor @Sendable () -> Void) {
    DispatchQueue.main.asyncAfter(deadline: .now() + seconds) { onMain(work) }
}

/// Serves the main queue for the rest of this process's life, and keeps OBJECTS as long. A window needs AppKit's loop
/// for that; without one AppKit is not even started.
@MainActor
func serve(keeping objects: [Any], withWindow: Bool = false) -> Never {
    while true {
        withExtendedLifetime(objects) {
            if withWindow {
                NSApplication.shared.run()
            } else {
                RunLoop.main.run()
            }
        }
    }
}

/// The handler is called for every one of SIGNALS instead of what they do by themselves, as long as the answer is kept.
func watch(_ signals: [Int32], _ handler: @escaping @MainActor @Sendable () -> Void) -> [any DispatchSourceProtocol] {
    signals.map { number in
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number, queue: .main)
        source.setEventHandler { @Sendable in onMain(handler) }
        source.resume()
        return source
    }
}

/// The handler is called when stdin has ended, whatever that is. What arrives there is thrown away.
func watchEndOfInput(_ handler: @escaping @MainActor @Sendable () -> Void) {
    Thread.detachNewThread {
        var bytes = [UInt8](repeating: 0, count: 512)
        while true {
            let count = read(STDIN_FILENO, &bytes, bytes.count)
            if count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN) { break }
        }
        onMain(handler)
    }
}

// MARK: - A guest's files

/// PATH, absolute and free of symbolic links: the frameworks follow none.
func resolved(_ path: String) throws -> String {
    guard let real = realpath(path, nil) else { throw Failure(cannot: "open", path) }
    defer { free(real) }
    return String(cString: real)
}

func exists(_ path: String) -> Bool {
    var about = stat()
    return lstat(path, &about) == 0 || errno != ENOENT
}

func needDirectory(_ path: String) throws -> String {
    let path = try resolved(path)
    var about = stat()
    guard stat(path, &about) == 0 else { throw Failure(cannot: "open", path) }
    guard about.st_mode & S_IFMT == S_IFDIR else { throw Failure(.configuration, "\(path) is not a directory") }
    return path
}

struct Folder: Sendable {
    let path: String
    var disk: String { path + "/disk.img" }
    var auxiliary: String { path + "/aux.img" }
    var record: String { path + "/vm.json" }

    init(_ path: String) throws { self.path = try needDirectory(path) }

    /// Sparse, and never one that was there before.
    func makeDisk(bytes: Int64) throws {
        let descriptor = open(disk, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Failure(cannot: "make", disk) }
        defer { close(descriptor) }
        guard ftruncate(descriptor, off_t(bytes)) == 0 else { throw Failure(cannot: "size", disk) }
    }
}

/// vm.json: what makes a guest the machine that it is.
struct Record: Codable, Sendable {
    var hardwareModel: Data  // base64 in the file
    var machineIdentifier: Data
    var mac: String
    var cpus: Int
    var memoryMiB: Int

    enum CodingKeys: String, CodingKey {
        case hardwareModel = "hardware_model"
        case machineIdentifier = "machine_identifier"
        case mac, cpus
        case memoryMiB = "memory_mib"
    }

    init(hardwareModel: Data, cpus: Int, memoryMiB: Int) {
        self.hardwareModel = hardwareModel
        machineIdentifier = VZMacMachineIdentifier().dataRepresentation
        mac = VZMACAddress.randomLocallyAdministered().string
        self.cpus = cpus
        self.memoryMiB = memoryMiB
    }

    init(in folder: Folder) throws {
        guard exists(folder.record) else { throw Failure(.configuration, "\(folder.record) is missing") }
        do {
            let bytes = try Data(contentsOf: URL(fileURLWithPath: folder.record))
            self = try JSONDecoder().decode(Record.self, from: bytes)
        } catch let error as DecodingError {
            throw Failure(.configuration, "\(folder.record) is damaged: \(error.reason)", cause: error)
        } catch {
            throw Failure(.configuration, "cannot read \(folder.record): \(error.localizedDescription)", cause: error)
        }
        _ = try parts(of: folder)  // damage that is not JSON's is found here, whatever the record is read for
    }

    /// The guest is another machine from now on: its copy may run beside it.
    mutating func renew() {
        self = Record(hardwareModel: hardwareModel, cpus: cpus, memoryMiB: memoryMiB)
    }

    func parts(of folder: Folder) throws -> (VZMacHardwareModel, VZMacMachineIdentifier, VZMACAddress) {
        func damaged(_ what: String) -> Failure {
            Failure(.configuration, "\(folder.record) is damaged: \(what)")
        }
        guard let model = VZMacHardwareModel(dataRepresentation: hardwareModel) else {
            throw damaged("hardware_model is none")
        }
        guard let identifier = VZMacMachineIdentifier(dataRepresentation: machineIdentifier) else {
            throw damaged("machine_identifier is none")
        }
        guard let address = VZMACAddress(string: mac), address.isUnicastAddress else {
            throw damaged("mac '\(mac)' is no address of a network card")
        }
        guard cpus > 0, memoryMiB > 0, memoryMiB < 1 << 40 else { throw damaged("cpus or memory_mib is out of range") }
        return (model, identifier, address)
    }

    /// Whole or not at all, and on the medium when this returns.
    func save(in folder: Folder) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        var bytes = try encoder.encode(self)
        bytes.append(UInt8(ascii: "\n"))
        let new = folder.record + ".new"
        let descriptor = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Failure(cannot: "make", new) }
        defer { close(descriptor) }
        guard writeAll(bytes, to: descriptor), flush(descriptor) else { throw Failure(cannot: "write", new) }
        guard rename(new, folder.record) == 0 else { throw Failure(cannot: "replace", folder.record) }
        let directory = open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { throw Failure(cannot: "open", folder.path) }
        defer { close(directory) }
        guard fsync(directory) == 0 else { throw Failure(cannot: "write", folder.path) }
    }

    /// fsync() reaches the drive, F_FULLFSYNC the medium; not every file system knows it.
    private func flush(_ descriptor: Int32) -> Bool {
        fcntl(descriptor, F_FULLFSYNC) == 0 || fsync(descriptor) == 0
    }
}

extension DecodingError {
    /// A few words; the text that Foundation makes of it names none of the file's fields.
    var reason: String {
        switch self {
        case .keyNotFound(let key, _): return "\(key.stringValue) is missing"
        case .typeMismatch(_, let context), .valueNotFound(_, let context), .dataCorrupted(let context):
            return context.codingPath.last.map { "\($0.stringValue) is wrong" } ?? "it is not the record of a VM"
        @unknown default: return "it cannot be read"
        }
    }
}

// MARK: - A guest's machine

/// VALUE, or the nearest that is allowed.
func clamp<Value: Comparable>(_ value: Value, _ least: Value, _ most: Value) -> Value {
    max(least, min(value, most))
}

func clampedProcessors(_ count: Int) -> Int {
    clamp(count, VZVirtualMachineConfiguration.minimumAllowedCPUCount,
        VZVirtualMachineConfiguration.maximumAllowedCPUCount)
}

/// Bytes, a multiple of 1 MiB.
func clampedMemory(_ bytes: UInt64) -> UInt64 {
    let allowed = clamp(bytes, VZVirtualMachineConfiguration.minimumAllowedMemorySize,
        VZVirtualMachineConfiguration.maximumAllowedMemorySize)
    return allowed - allowed % (1 << 20)
}

func makePlatform(of record: Record, in folder: Folder) throws -> (VZMacPlatformConfiguration, VZMACAddress) {
    let (model, identifier, address) = try record.parts(of: folder)
    guard model.isSupported else {
        throw Failure(.unsupported, "this Mac does not support the hardware model that the VM was made with")
    }
    let platform = VZMacPlatformConfiguration()
    platform.hardwareModel = model
    platform.machineIdentifier = identifier
    platform.auxiliaryStorage = VZMacAuxiliaryStorage(url: URL(fileURLWithPath: folder.auxiliary))
    return (platform, address)
}

/// Guests of macOS 13 and later take the Mac kind of keyboard and pointer when both are there.
func addInput(to configuration: VZVirtualMachineConfiguration) {
    configuration.keyboards = [VZUSBKeyboardConfiguration()]
    configuration.pointingDevices = [VZUSBScreenCoordinatePointingDeviceConfiguration(), VZMacTrackpadConfiguration()]
    #if compiler(>=5.9)  // came with the SDK of macOS 14
        if #available(macOS 14.0, *) { configuration.keyboards.append(VZMacKeyboardConfiguration()) }
    #endif
}

/// What a guest of macOS 13 or later mounts by itself, at «/Volumes/My Shared Files».
func sharing(_ directory: String) -> VZDirectorySharingDeviceConfiguration {
    let tag = VZVirtioFileSystemDeviceConfiguration.macOSGuestAutomountTag
    let device = VZVirtioFileSystemDeviceConfiguration(tag: tag)
    let shared = VZSharedDirectory(url: URL(fileURLWithPath: directory, isDirectory: true), readOnly: true)
    device.share = VZSingleDirectoryShare(directory: shared)
    return device
}

/// A valid configuration: one that is not would raise an exception when a machine is made of it.
func makeConfiguration(of record: Record, in folder: Folder, share: String?) throws -> VZVirtualMachineConfiguration {
    for file in [folder.disk, folder.auxiliary] where !exists(file) {
        throw Failure(.configuration, "\(file) is missing")
    }
    let (platform, address) = try makePlatform(of: record, in: folder)
    let configuration = VZVirtualMachineConfiguration()
    configuration.platform = platform
    configuration.bootLoader = VZMacOSBootLoader()
    configuration.cpuCount = clampedProcessors(record.cpus)
    configuration.memorySize = clampedMemory(UInt64(record.memoryMiB) << 20)

    let disk = try VZDiskImageStorageDeviceAttachment(
        url: URL(fileURLWithPath: folder.disk), readOnly: false, cachingMode: .automatic, synchronizationMode: .full)
    configuration.storageDevices = [VZVirtioBlockDeviceConfiguration(attachment: disk)]  // the first one boots

    let network = VZVirtioNetworkDeviceConfiguration()
    network.attachment = VZNATNetworkDeviceAttachment()
    network.macAddress = address  // its lease is found by it
    configuration.networkDevices = [network]

    let graphics = VZMacGraphicsDeviceConfiguration()
    graphics.displays = [
        VZMacGraphicsDisplayConfiguration(
            widthInPixels: Bounds.display.width, heightInPixels: Bounds.display.height,
            pixelsPerInch: Bounds.display.pixelsPerInch)
    ]
    configuration.graphicsDevices = [graphics]
    addInput(to: configuration)
    if let share { configuration.directorySharingDevices = [sharing(share)] }
    configuration.entropyDevices = [VZVirtioEntropyDeviceConfiguration()]
    configuration.memoryBalloonDevices = [VZVirtioTraditionalMemoryBalloonDeviceConfiguration()]
    try configuration.validate()
    return configuration
}

// MARK: - A guest

/// A machine, and how it ends: ENDED is called once.
@MainActor
final class Guest: NSObject, VZVirtualMachineDelegate {
    let machine: VZVirtualMachine
    private let ended: @MainActor (Result<How, Failure>) -> Void
    private var how = How.guest
    private var isOver = false

    init(_ configuration: VZVirtualMachineConfiguration, ended: @escaping @MainActor (Result<How, Failure>) -> Void) {
        machine = VZVirtualMachine(configuration: configuration)
        self.ended = ended
        super.init()
    }

    /// From here on its end counts.
    func watch() {
        machine.delegate = self
    }

    func start(_ started: @escaping @MainActor @Sendable (Result<Void, any Error>) -> Void) {
        machine.start { @Sendable result in onMain { started(result) } }
    }

    /// True when the guest was asked; it may ignore that for ever. That it cannot be asked is no end of it.
    @discardableResult
    func request(_ how: How) -> Bool {
        guard !isOver, self.how != .force else { return true }
        self.how = how
        do {
            try machine.requestStop()
            emit(Event(event: .stopping, how: how))
            return true
        } catch {
            let reason = failure(error, otherwise: .other).message
            emit(Event(event: .stopping, how: how, message: "the guest cannot be asked to shut down: \(reason)"))
            return false
        }
    }

    /// Asks, and after SECONDS does without an answer.
    func shutDown(_ how: How, within seconds: Double) {
        guard request(how) else { return force() }
        onMain(after: seconds) { self.force() }
    }

    /// Cuts the power. The delegate is not told of an end that was ordered here; the completion handler is.
    func force() {
        guard !isOver, how != .force else { return }
        how = .force
        emit(Event(event: .stopping, how: how))
        onMain(after: Bounds.powerOff) {
            self.finish(.failure(Failure(.other, "the VM did not stop when told to; it ends with the VM host")))
        }
        guard machine.canStop else { return }  // it is about to end by itself
        machine.stop { @Sendable error in
            onMain { self.finish(error.map { .failure(failure($0, otherwise: .other)) } ?? .success(.force)) }
        }
    }

    private func finish(_ result: Result<How, Failure>) {
        guard !isOver else { return }
        isOver = true
        ended(result)
    }

    nonisolated func guestDidStop(_ virtualMachine: VZVirtualMachine) {
        onMain { self.finish(.success(self.how)) }
    }

    nonisolated func virtualMachine(_ virtualMachine: VZVirtualMachine, didStopWithError error: any Error) {
        let known = failure(error, otherwise: .crash)
        // What is a general failure elsewhere is, in a running machine, its end.
        let crash = Failure(.crash, "the VM stopped by itself: \(known.message)", cause: error)
        onMain { self.finish(.failure(crash)) }
    }

    /// No end: it may come again, and the guest goes on.
    nonisolated func virtualMachine(
        _ virtualMachine: VZVirtualMachine, networkDevice: VZNetworkDevice,
        attachmentWasDisconnectedWithError error: any Error
    ) {
        emit(Event(event: .network, message: failure(error, otherwise: .other).message))
    }
}

/// Ends the process as its guest ended.
@MainActor
func endProcess(with result: Result<How, Failure>) -> Never {
    switch result {
    case .success(let how):
        emit(Event(event: .stopped, how: how))
        exit(0)
    case .failure(let failure): end(failure)
    }
}

/// No App Nap, no sudden end by the system, as long as the answer is kept.
func stayAwake(_ options: ProcessInfo.ActivityOptions, _ reason: String) -> NSObjectProtocol {
    ProcessInfo.processInfo.beginActivity(
        options: [options, .suddenTerminationDisabled, .automaticTerminationDisabled], reason: reason)
}

// MARK: - Install

/// What is known of a restore image, for any thread.
struct Image: Sendable {
    let path: String
    let version: OperatingSystemVersion
    let build: String
    let needs: Needs?

    struct Needs: Sendable {
        let hardwareModel: Data
        let isSupported: Bool
        let cpus: Int
        let memory: UInt64
    }

    init(_ image: VZMacOSRestoreImage, path: String) {
        self.path = path
        version = image.operatingSystemVersion
        build = image.buildVersion
        needs = image.mostFeaturefulSupportedConfiguration.map {
            Needs(
                hardwareModel: $0.hardwareModel.dataRepresentation, isSupported: $0.hardwareModel.isSupported,
                cpus: $0.minimumSupportedCPUCount, memory: $0.minimumSupportedMemorySize)
        }
    }

    static func text(_ version: OperatingSystemVersion) -> String {
        let short = "\(version.majorVersion).\(version.minorVersion)"
        return version.patchVersion == 0 ? short : short + ".\(version.patchVersion)"
    }

    var isNewerThanHost: Bool { !ProcessInfo.processInfo.isOperatingSystemAtLeast(version) }
    var whyNewerFails: String {
        """
        macOS \(Image.text(ProcessInfo.processInfo.operatingSystemVersion)) cannot install macOS \
        \(Image.text(version)): an image may not be newer than the Mac. Update the Mac, or pass an older image
        """
    }

    /// Where the image is, with no links in between. The framework judges it by its name.
    static func find(_ path: String) throws -> String {
        guard exists(path) else { throw Failure(.image, "there is no image \(path)") }
        let real = try resolved(path)
        guard real.lowercased().hasSuffix(".ipsw") else {
            throw Failure(.image, "the name of an image must end in .ipsw; this one is \(real)")
        }
        return real
    }
}

@MainActor
final class Installation {
    private enum Phase { case loading, installing, cancelling, stopping }

    private let folder: Folder
    private let imagePath: String
    private let diskBytes: Int64
    private var phase = Phase.loading
    private var image: Image?
    private var guest: Guest?
    private var installer: VZMacOSInstaller?
    private var observation: NSKeyValueObservation?
    private var sources: [any DispatchSourceProtocol] = []
    private var lastFraction = -1.0

    init(_ arguments: Arguments) throws {
        folder = try Folder(arguments["vm"])
        guard let bytes = Int64(arguments["disk-bytes"]), bytes > 0, bytes % 512 == 0 else {
            throw Usage("--disk-bytes is a number of bytes that 512 divides")
        }
        diskBytes = bytes
        for file in [folder.disk, folder.auxiliary, folder.record] where exists(file) {
            throw Failure(.configuration, "\(file) is there already: an existing VM is never overwritten")
        }
        imagePath = try Image.find(arguments["image"])
    }

    func begin() {
        sources = watch([SIGTERM, SIGINT]) { self.cancel() }
        watchEndOfInput { self.cancel() }
        let path = imagePath
        VZMacOSRestoreImage.load(from: URL(fileURLWithPath: path)) { @Sendable result in
            let image = result.map { Image($0, path: path) }
            onMain { self.loaded(image) }
        }
    }

    private func loaded(_ result: Result<Image, any Error>) {
        do {
            let image = try result.get()
            self.image = image
            emit(Event(event: .image, version: Image.text(image.version), build: image.build))
            guest = try makeGuest(for: image)
            install()
        } catch {
            end(explain(error, otherwise: .image))
        }
    }

    private func makeGuest(for image: Image) throws -> Guest {
        guard let needs = image.needs, needs.isSupported,
            let model = VZMacHardwareModel(dataRepresentation: needs.hardwareModel)
        else { throw Failure(.image, "this Mac cannot run macOS \(Image.text(image.version)) as a guest") }
        let cpus = clampedProcessors(max(Bounds.processors, needs.cpus))
        let memory = clampedMemory(max(Bounds.memory, needs.memory))
        guard cpus >= needs.cpus, memory >= needs.memory else {
            throw Failure(.unsupported, """
                macOS \(Image.text(image.version)) needs \(needs.cpus) processors and \(needs.memory >> 20) MiB; \
                this Mac gives a guest at most \(cpus) and \(memory >> 20) MiB
                """)
        }
        let record = Record(hardwareModel: needs.hardwareModel, cpus: cpus, memoryMiB: Int(memory >> 20))
        try folder.makeDisk(bytes: diskBytes)
        _ = try VZMacAuxiliaryStorage(
            creatingStorageAt: URL(fileURLWithPath: folder.auxiliary), hardwareModel: model, options: [])
        try record.save(in: folder)
        return Guest(try makeConfiguration(of: record, in: folder, share: nil), ended: { endProcess(with: $0) })
    }

    private func install() {
        guard let guest, let image else { return }
        let installer = VZMacOSInstaller(
            virtualMachine: guest.machine, restoringFromImageAt: URL(fileURLWithPath: image.path))
        self.installer = installer
        phase = .installing
        installer.install { @Sendable result in onMain { self.installed(result) } }
        observation = installer.progress.observe(\.fractionCompleted, options: [.initial]) { @Sendable progress, _ in
            let fraction = progress.fractionCompleted
            onMain { self.progressed(to: fraction) }
        }
    }

    /// At most a thousand lines.
    private func progressed(to fraction: Double) {
        let shown = (clamp(fraction, 0, 1) * 1000).rounded(.down) / 1000
        guard phase == .installing, shown > lastFraction else { return }
        lastFraction = shown
        emit(Event(event: .progress, fraction: shown))
    }

    private func installed(_ result: Result<Void, any Error>) {
        observation = nil
        if phase == .cancelling { end(Failure(.cancelled, "cancelled")) }
        if case .failure(let error) = result { end(explain(error, otherwise: .install)) }
        phase = .stopping
        emit(Event(event: .installed))
        stopMachine()
    }

    /// After an installation the guest is usually running; nothing was put into it yet that could be lost.
    private func stopMachine() {
        guard let guest else { return }
        if guest.machine.state == .stopped { exit(0) }
        guest.watch()
        guest.shutDown(.request, within: Bounds.installedShutdown)
    }

    /// Nobody waits for the guest any more. The process ends in any case: the machine does so with it.
    private func cancel() {
        switch phase {
        case .loading: end(Failure(.cancelled, "cancelled"))
        case .installing:
            phase = .cancelling
            installer?.progress.cancel()
            onMain(after: Bounds.cancellation) {
                end(Failure(.cancelled, "cancelled; the installer did not answer"))
            }
        case .cancelling: break
        case .stopping: guest?.force()
        }
    }

    /// 10006 and 10007 are what an image that is newer than the Mac fails with.
    private func explain(_ error: any Error, otherwise problem: Problem) -> Failure {
        let known = failure(error, otherwise: problem)
        guard let image, image.isNewerThanHost, [.hostTooOld, .install].contains(known.problem) else { return known }
        return Failure(.hostTooOld, image.whyNewerFails, cause: error)
    }
}

// MARK: - Run

@MainActor
final class Runner {
    private let configuration: VZVirtualMachineConfiguration
    private let display: Display?
    private var guest: Guest?
    private var isRunning = false
    private var sources: [any DispatchSourceProtocol] = []
    private let giveUp = Date(timeIntervalSinceNow: Bounds.lockedStart)

    init(_ arguments: Arguments) throws {
        let folder = try Folder(arguments["vm"])
        let share = try needDirectory(arguments["share"])
        configuration = try makeConfiguration(of: Record(in: folder), in: folder, share: share)
        display = try arguments.find("window").map { try Display(title: $0) }
    }

    var hasWindow: Bool { display != nil }

    func begin() {
        sources = watch([SIGTERM, SIGINT]) { self.stop(.request) } + watch([SIGUSR1]) { self.stop(.force) }
        display?.shutDown = { self.stop(.window) }
        start()
    }

    /// Each try has a machine of its own, as another process's would.
    private func start() {
        let guest = Guest(configuration, ended: { endProcess(with: $0) })
        self.guest = guest
        guest.start { result in
            switch result {
            case .success: self.started(guest)
            case .failure(let error): self.refused(failure(error, otherwise: .start))
            }
        }
    }

    private func refused(_ failure: Failure) {
        if failure.problem == .locked, Date() < giveUp {
            return onMain(after: Bounds.lockedPause) { self.start() }
        }
        end(failure)
    }

    private func started(_ guest: Guest) {
        isRunning = true
        guest.watch()
        emit(Event(event: .started, pid: getpid()))
        display?.open(showing: guest.machine)
    }

    private func stop(_ how: How) {
        // What has not started has nothing to lose, and ends with this process.
        guard isRunning, let guest else { endProcess(with: .success(how)) }
        switch how {
        case .force: guest.force()
        case .window: guest.shutDown(how, within: Bounds.windowShutdown)
        case .request, .guest: guest.request(how)
        }
    }
}

// MARK: - The window

@MainActor
final class Display: NSObject, NSApplicationDelegate, NSWindowDelegate {
    var shutDown: (@MainActor () -> Void)?
    private let title: String
    private let window: NSWindow
    private let view = VZVirtualMachineView()
    private var isEnding = false

    init(title: String) throws {
        guard let screen = NSScreen.screens.first else {
            throw Failure(.other, """
                a window needs somebody logged in at this Mac's screen: log in there, or start without a window
                """)
        }
        self.title = title
        let room = screen.visibleFrame.size
        let size = NSSize(width: min(Bounds.window.width, room.width), height: min(Bounds.window.height, room.height))
        window = NSWindow(
            contentRect: NSRect(origin: .zero, size: size),
            styleMask: [.titled, .closable, .miniaturizable, .resizable], backing: .buffered, defer: false)
        super.init()
        NSApplication.shared.setActivationPolicy(.regular)
        NSApplication.shared.mainMenu = menu()
        NSApplication.shared.delegate = self
    }

    private func menu() -> NSMenu {
        let application = NSMenu()
        application.addItem(withTitle: "Close", action: Selector(("performClose:")), keyEquivalent: "w")
        application.addItem(withTitle: "Quit", action: Selector(("terminate:")), keyEquivalent: "q")
        let item = NSMenuItem()
        item.submenu = application
        let bar = NSMenu()
        bar.addItem(item)
        return bar
    }

    func open(showing machine: VZVirtualMachine) {
        view.virtualMachine = machine
        #if compiler(>=5.9)  // came with the SDK of macOS 14
            if #available(macOS 14.0, *) { view.automaticallyReconfiguresDisplay = true }
        #endif
        window.title = title
        window.contentView = view
        window.delegate = self
        window.isReleasedWhenClosed = false  // or it would be released once more with this object
        window.center()
        window.makeKeyAndOrderFront(nil)
        window.makeFirstResponder(view)
        NSApplication.shared.activate(ignoringOtherApps: true)
        emit(Event(event: .window, title: title))
    }

    /// The window stays until the guest is down: a person may want to answer its question.
    private func endGuest() {
        guard !isEnding else { return }
        isEnding = true
        window.subtitle = "shutting down"
        shutDown?()
    }

    func windowShouldClose(_ sender: NSWindow) -> Bool {
        endGuest()
        return false
    }

    /// Quit does not ask windowShouldClose(). «Later» makes a logout wait for the guest; «cancel» would refuse it.
    func applicationShouldTerminate(_ sender: NSApplication) -> NSApplication.TerminateReply {
        endGuest()
        return .terminateLater
    }
}

// MARK: - Verbs and their options

struct Usage: Error {
    let message: String
    init(_ message: String) { self.message = message }
}

struct Option: Sendable {
    let name: String
    let value: String
    var isRequired = true
}

struct Arguments {
    fileprivate var values: [String: String] = [:]
    func find(_ name: String) -> String? { values[name] }
    subscript(name: String) -> String { values[name]! }  // of a required one
}

@MainActor
struct Verb {
    let name: String
    let options: [Option]
    let run: @MainActor (Arguments) throws -> Never

    private static let vm = Option(name: "vm", value: "DIR")
    static let all = [
        Verb(name: "check", options: [], run: checkHost),
        Verb(
            name: "install",
            options: [vm, Option(name: "image", value: "FILE.ipsw"), Option(name: "disk-bytes", value: "N")],
            run: installGuest),
        Verb(name: "renew", options: [vm], run: renewGuest),
        Verb(
            name: "run",
            options: [
                vm, Option(name: "share", value: "DIR"), Option(name: "window", value: "TITLE", isRequired: false),
            ],
            run: runGuest),
    ]

    var usage: String {
        options.reduce("vmhost " + name) { text, option in
            let word = "--\(option.name) \(option.value)"
            return text + " " + (option.isRequired ? word : "[\(word)]")
        }
    }

    func parse(_ words: ArraySlice<String>) throws -> Arguments {
        var arguments = Arguments()
        var rest = words
        while let word = rest.popFirst() {
            guard let option = options.first(where: { "--" + $0.name == word }) else {
                throw Usage("'\(word)' is no option of \(name)")
            }
            guard let value = rest.popFirst() else { throw Usage("\(word) needs a value") }
            guard arguments.values.updateValue(value, forKey: option.name) == nil else {
                throw Usage("\(word) is there twice")
            }
        }
        for option in options where option.isRequired && arguments.find(option.name) == nil {
            throw Usage("--\(option.name) is missing")
        }
        return arguments
    }
}

func needSupport() throws {
    guard VZVirtualMachine.isSupported else { throw Failure(.unsupported, "this Mac cannot run macOS VMs") }
}

/// Of an empty configuration the framework could say much, but that the entitlement is missing it says first.
@MainActor
func checkHost(_ arguments: Arguments) throws -> Never {
    var answer = Event(event: .check, supported: true)
    do {
        try needSupport()
        try VZVirtualMachineConfiguration().validate()
    } catch {
        let known = failure(error, otherwise: .other)
        if [.unsupported, .entitlement].contains(known.problem) {
            answer = Event(event: .check, supported: false, problem: known.problem, message: known.message)
        }
    }
    emit(answer)
    exit(answer.problem == nil ? 0 : 1)
}

@MainActor
func installGuest(_ arguments: Arguments) throws -> Never {
    try needSupport()
    let installation = try Installation(arguments)
    let activity = stayAwake(.userInitiated, "installs macOS")  // the Mac may not fall asleep over it
    installation.begin()
    serve(keeping: [installation, activity])
}

@MainActor
func renewGuest(_ arguments: Arguments) throws -> Never {
    let folder = try Folder(arguments["vm"])
    var record = try Record(in: folder)
    record.renew()
    try record.save(in: folder)
    emit(Event(event: .renewed, mac: record.mac))
    exit(0)
}

@MainActor
func runGuest(_ arguments: Arguments) throws -> Never {
    try needSupport()
    let runner = try Runner(arguments)
    let activity = stayAwake(.userInitiatedAllowingIdleSystemSleep, "runs a macOS VM")
    runner.begin()
    serve(keeping: [runner, activity], withWindow: runner.hasWindow)
}

// MARK: - Main

@MainActor
func main(_ words: [String]) -> Never {
    signal(SIGPIPE, SIG_IGN)
    umask(0o077)  // of what the framework makes, too
    do {
        guard let verb = Verb.all.first(where: { $0.name == words.dropFirst().first }) else {
            throw Usage("what is it to do?")
        }
        try verb.run(verb.parse(words.dropFirst(2)))
    } catch let wrong as Usage {
        let lines = ["vmhost: " + wrong.message] + Verb.all.map { "usage: " + $0.usage }
        _ = writeAll(Data((lines.joined(separator: "\n") + "\n").utf8), to: STDERR_FILENO)
        exit(2)
    } catch {
        end(failure(error, otherwise: .other))
    }
}

// In language mode 5 the compiler does not know that this is the main thread.
#if compiler(>=5.9)
    MainActor.assumeIsolated { main(CommandLine.arguments) }
#else
    unsafeBitCast(main as @MainActor ([String]) -> Never, to: (([String]) -> Never).self)(CommandLine.arguments)
#endif
