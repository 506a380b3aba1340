// VZVirtualMachine, its delegate, its start options and its view.

@preconcurrency
public protocol VZVirtualMachineDelegate: NSObjectProtocol {
    func guestDidStop(_ virtualMachine: VZVirtualMachine)
    func virtualMachine(_ virtualMachine: VZVirtualMachine, didStopWithError error: any Error)
    func virtualMachine(
        _ virtualMachine: VZVirtualMachine, networkDevice: VZNetworkDevice,
        attachmentWasDisconnectedWithError error: any Error)
}

// Optional requirements do not exist on Linux; these defaults take their place.
extension VZVirtualMachineDelegate {
    public func guestDidStop(_ virtualMachine: VZVirtualMachine) {}
    public func virtualMachine(_ virtualMachine: VZVirtualMachine, didStopWithError error: any Error) {}
    public func virtualMachine(
        _ virtualMachine: VZVirtualMachine, networkDevice: VZNetworkDevice,
        attachmentWasDisconnectedWithError error: any Error
    ) {}
}

open class VZVirtualMachineStartOptions: NSObject { public override init() { super.init() } }

open class VZMacOSVirtualMachineStartOptions: VZVirtualMachineStartOptions {
    open var startUpFromMacOSRecovery = false
    public override init() { super.init() }
}

open class VZVirtualMachine: NSObject, _KeyValueCodingAndObserving {
    public enum State: Int, Sendable {
        case stopped = 0
        case running = 1
        case paused = 2
        case error = 3
        case starting = 4
        case pausing = 5
        case resuming = 6
        case stopping = 7
        case saving = 8
        case restoring = 9
    }

    let configuration: VZVirtualMachineConfiguration
    public let queue: DispatchQueue
    private let onMain: Bool
    private var current: State = .stopped
    private var locks: [Int32] = []
    private var run = 0

    open weak var delegate: (any VZVirtualMachineDelegate)?
    open private(set) var networkDevices: [VZNetworkDevice]
    open private(set) var directorySharingDevices: [VZDirectorySharingDevice]

    public convenience init(configuration: VZVirtualMachineConfiguration) {
        self.init(configuration: configuration, on: .main, main: true)
    }
    public convenience init(configuration: VZVirtualMachineConfiguration, queue: DispatchQueue) {
        self.init(configuration: configuration, on: queue, main: queue === DispatchQueue.main)
    }

    private init(configuration: VZVirtualMachineConfiguration, on queue: DispatchQueue, main: Bool) {
        self.configuration = configuration
        self.queue = queue
        onMain = main
        networkDevices = configuration.networkDevices.map { VZNetworkDevice(attachment: $0.attachment) }
        directorySharingDevices = configuration.directorySharingDevices.compactMap {
            guard let device = $0 as? VZVirtioFileSystemDeviceConfiguration else { return nil }
            return VZVirtioFileSystemDevice(tag: device.tag, share: device.share)
        }
        super.init()
        do { try configuration.validate() } catch {
            Sim.raise("the virtual machine configuration is not valid: \((error as NSError).localizedDescription)")
        }
        Sim.log("vm.init", configuration.summary)
    }

    deinit {
        if current != .stopped { Sim.log("vm.dropped", ["state": "\(current)"]) }
        for fd in locks { close(fd) }
    }

    /// False when VZSIM_UNSUPPORTED=1.
    open class var isSupported: Bool { !Sim.flag("UNSUPPORTED") }

    // MARK: State

    open internal(set) var state: State {
        get {
            checkQueue("state")
            return current
        }
        set {
            current = newValue
            Sim.log("vm.state", ["state": "\(newValue)"])
            SimObservers.shared.changed(self)
        }
    }
    open var canStart: Bool { state == .stopped || state == .error }
    open var canStop: Bool { state == .running || state == .paused }
    open var canPause: Bool { state == .running }
    open var canResume: Bool { state == .paused }
    open var canRequestStop: Bool { state == .running }

    /// The framework traps calls made off the machine's queue; so does this, unless
    /// VZSIM_QUEUE_CHECK=0.
    func checkQueue(_ what: String) {
        if Sim.setting("QUEUE_CHECK") == "0" { return }
        if onMain {
            if !Thread.isMainThread { Sim.raise("VZVirtualMachine.\(what) used off the main queue") }
        } else {
            dispatchPrecondition(condition: .onQueue(queue))
        }
    }

    private struct Unchecked: @unchecked Sendable { let body: () -> Void }

    private func after(_ interval: DispatchTimeInterval, _ body: @escaping () -> Void) {
        let boxed = Unchecked(body: body)
        queue.asyncAfter(deadline: .now() + interval) { boxed.body() }
    }

    // MARK: Start

    open func start(completionHandler: @escaping (Result<Void, any Error>) -> Void) {
        begin(recovery: false, completionHandler)
    }
    open func start(
        options: VZVirtualMachineStartOptions, completionHandler: @escaping ((any Error)?) -> Void
    ) {
        let recovery = (options as? VZMacOSVirtualMachineStartOptions)?.startUpFromMacOSRecovery ?? false
        begin(recovery: recovery) { result in
            switch result {
            case .success: completionHandler(nil)
            case .failure(let error): completionHandler(error)
            }
        }
    }
    open func start() async throws {
        try await withCheckedThrowingContinuation { done in
            hop { self.start { done.resume(with: $0) } }
        }
    }
    open func start(options: VZVirtualMachineStartOptions) async throws {
        try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
            hop { self.start(options: options) { $0.map(done.resume(throwing:)) ?? done.resume() } }
        }
    }

    private func begin(recovery: Bool, _ completion: @escaping (Result<Void, any Error>) -> Void) {
        checkQueue("start")
        Sim.log("vm.start", ["recovery": recovery])
        guard canStart else {
            let error = VZError.transition("The virtual machine cannot be started in its state.")
            return after(.milliseconds(0)) { completion(.failure(error)) }
        }
        state = .starting
        after(Sim.delay("START_DELAY_MS", default: 10)) { [self] in
            if let error = Sim.setting("START_ERROR").map({ VZError.named($0, default: .internalError) })
                ?? takeLocks()
            {
                dropLocks()
                state = .stopped
                Sim.log("vm.start-failed", ["code": error.errorCode])
                return completion(.failure(error))
            }
            enterRunning()
            completion(.success(()))
        }
    }

    func enterRunning() {
        state = .running
        run += 1
        let id = run
        let later = { [weak self] (delay: DispatchTimeInterval, body: @escaping (VZVirtualMachine) -> Void) in
            guard let self else { return }
            self.after(delay) { [weak self] in
                if let self, self.run == id, self.current == .running { body(self) }
            }
        }
        let fates: [(String, String, (VZVirtualMachine) -> Void)] = [
            ("GUEST_STOP_AFTER_MS", "guest-stop", { $0.guestStopped() }),
            ("CRASH_AFTER_MS", "crash", { $0.crashed() }),
            ("NETWORK_LOST_AFTER_MS", "network-lost", { $0.networkLost() }),
        ]
        for (setting, command, body) in fates {
            if let ms = Sim.integer(setting) { later(.milliseconds(ms), body) }
            SimCommands.shared.on(command) { later(.milliseconds(0), body) }
        }
    }

    private func crashed() {
        dropLocks()
        state = .error
        let error = VZError.make(
            .internalError, "Internal Virtualization error.",
            "The virtual machine stopped unexpectedly.")
        delegate?.virtualMachine(self, didStopWithError: error)
    }

    private func networkLost() {
        guard let device = networkDevices.first else { return }
        device.attachment = nil
        let error = VZError.make(.networkError, "Network error.", "The attachment was lost.")
        delegate?.virtualMachine(self, networkDevice: device, attachmentWasDisconnectedWithError: error)
    }

    private func guestStopped() {
        dropLocks()
        state = .stopped
        Sim.log("vm.guest-stopped")
        delegate?.guestDidStop(self)
    }

    // MARK: Stop

    open func requestStop() throws {
        checkQueue("requestStop")
        Sim.log("vm.request-stop")
        guard canRequestStop else {
            throw VZError.transition("The guest cannot be asked to stop in this state.")
        }
        switch Sim.setting("REQUEST_STOP") ?? "ok" {
        case "throw": throw VZError.transition("Simulated refusal.")
        case "ignore": return  // the guest shows a dialog that nobody answers
        default:
            let id = run
            after(Sim.delay("REQUEST_STOP_DELAY_MS", default: 20)) { [weak self] in
                guard let self, self.run == id, self.current == .running else { return }
                self.guestStopped()
            }
        }
    }

    open func stop(completionHandler: @escaping ((any Error)?) -> Void) {
        checkQueue("stop")
        Sim.log("vm.stop")
        guard canStop else {
            let error = VZError.transition("The virtual machine cannot be stopped in its state.")
            return after(.milliseconds(0)) { completionHandler(error) }
        }
        if let name = Sim.setting("STOP_ERROR") {
            let error = VZError.named(name, default: .internalError)
            return after(.milliseconds(0)) { completionHandler(error) }
        }
        state = .stopping
        after(Sim.delay("STOP_DELAY_MS", default: 10)) { [self] in
            dropLocks()
            state = .stopped
            completionHandler(nil)
        }
    }
    open func stop() async throws {
        try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
            hop { self.stop { $0.map(done.resume(throwing:)) ?? done.resume() } }
        }
    }

    // MARK: Pause, resume

    open func pause(completionHandler: @escaping (Result<Void, any Error>) -> Void) {
        checkQueue("pause")
        move(from: .running, to: .paused, by: .pausing, completionHandler)
    }
    open func pause() async throws {
        try await withCheckedThrowingContinuation { done in hop { self.pause { done.resume(with: $0) } } }
    }
    open func resume(completionHandler: @escaping (Result<Void, any Error>) -> Void) {
        checkQueue("resume")
        move(from: .paused, to: .running, by: .resuming, completionHandler)
    }
    open func resume() async throws {
        try await withCheckedThrowingContinuation { done in hop { self.resume { done.resume(with: $0) } } }
    }

    private func move(
        from: State, to: State, by: State, _ completion: @escaping (Result<Void, any Error>) -> Void
    ) {
        guard state == from else {
            let error = VZError.transition("The virtual machine is not \(from).")
            return after(.milliseconds(0)) { completion(.failure(error)) }
        }
        state = by
        after(.milliseconds(5)) { [self] in
            state = to
            completion(.success(()))
        }
    }

    private func hop(_ body: @escaping () -> Void) {
        let boxed = Unchecked(body: body)
        queue.async { boxed.body() }
    }

    // MARK: The host-wide machine limit and the file locks

    /// Takes one of the host's machine slots and locks the auxiliary storage and the
    /// writable disk images, as the framework does; nil when all went well.
    private func takeLocks() -> VZError? {
        if let directory = Sim.setting("SLOTS_DIR") {
            var slot: Int32?
            for number in 0..<(Sim.integer("VM_LIMIT") ?? 2) where slot == nil {
                slot = lock(directory + "/vm-slot-\(number)", create: true)
            }
            guard let slot else { return .limit }
            locks.append(slot)
        }
        if let mac = configuration.platform as? VZMacPlatformConfiguration, let aux = mac.auxiliaryStorage {
            guard let fd = lock(aux.url.path) else {
                return .configuration("Failed to lock auxiliary storage.", posix: EAGAIN)
            }
            locks.append(fd)
        }
        for device in configuration.storageDevices {
            guard let image = device.attachment as? VZDiskImageStorageDeviceAttachment, !image.isReadOnly
            else { continue }
            guard let fd = lock(image.url.path) else {
                return .configuration("The storage device attachment is invalid.", posix: EAGAIN)
            }
            locks.append(fd)
        }
        return nil
    }

    private func lock(_ path: String, create: Bool = false) -> Int32? {
        let fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0o600)
        guard fd >= 0 else { return nil }
        guard flock(fd, LOCK_EX | LOCK_NB) == 0 else {
            close(fd)
            return nil
        }
        return fd
    }

    private func dropLocks() {
        for fd in locks { close(fd) }
        locks = []
    }

    /// For the installer, which runs the machine by itself.
    func lockForInstall() -> VZError? {
        let error = takeLocks()
        if error != nil { dropLocks() }
        return error
    }
    func unlockAfterInstall() { dropLocks() }
}

@preconcurrency @MainActor
open class VZVirtualMachineView: NSView {
    open var virtualMachine: VZVirtualMachine? {
        didSet { Sim.log("view.machine", ["attached": virtualMachine != nil]) }
    }
    open var capturesSystemKeys = false
    open var automaticallyReconfiguresDisplay = false
    public override init(frame frameRect: NSRect) { super.init(frame: frameRect) }
    public required init?(coder: NSCoder) { nil }
    open override var acceptsFirstResponder: Bool { true }
}
