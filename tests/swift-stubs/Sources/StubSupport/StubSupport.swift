// Shared plumbing of the stub modules: settings from the environment, the
// event log, and the few Foundation-on-Apple facilities that Foundation on
// Linux lacks (key-value observing, autoreleasepool, process activities).
// None of this exists under these names on macOS; vmhost.swift never imports it.

@_exported import Foundation
@_exported import ObjectiveC

#if canImport(Glibc)
@_exported import Glibc
#endif

// MARK: - Settings and event log

public enum Sim {
    /// The value of the environment variable VZSIM_<name>, nil when unset or empty.
    public static func setting(_ name: String) -> String? {
        guard let raw = getenv("VZSIM_" + name) else { return nil }
        let text = String(cString: raw)
        return text.isEmpty ? nil : text
    }

    public static func integer(_ name: String) -> Int? { setting(name).flatMap { Int($0) } }
    public static func number(_ name: String) -> Double? { setting(name).flatMap { Double($0) } }
    public static func flag(_ name: String) -> Bool { setting(name) == "1" }

    /// Delay in milliseconds from VZSIM_<name>, as a dispatch interval.
    public static func delay(_ name: String, default fallback: Int) -> DispatchTimeInterval {
        .milliseconds(max(0, integer(name) ?? fallback))
    }

    private static let logLock = NSLock()

    /// Appends one line of JSON to the file that VZSIM_LOG names; nothing when unset.
    public static func log(_ event: String, _ fields: [String: Any] = [:]) {
        guard let path = setting("LOG") else { return }
        var object = fields
        object["event"] = event
        object["pid"] = Int(getpid())
        guard
            let line = try? JSONSerialization.data(
                withJSONObject: object, options: [.sortedKeys, .withoutEscapingSlashes])
        else { return }
        logLock.lock()
        defer { logLock.unlock() }
        let fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
        guard fd >= 0 else { return }
        let bytes = [UInt8](line) + [0x0a]
        _ = bytes.withUnsafeBytes { write(fd, $0.baseAddress, $0.count) }
        close(fd)
    }

    /// What the real framework reports by raising an Objective-C exception, which
    /// Swift code cannot catch: the process dies.
    public static func raise(_ what: String) -> Never {
        log("exception", ["what": what])
        FileHandle.standardError.write(Data("*** Terminating due to uncaught exception: \(what)\n".utf8))
        abort()
    }
}

// MARK: - Commands from outside

/// What happens to a machine or its window while the process runs: lines written to the FIFO that
/// is named after the process in the folder VZSIM_CONTROL.
public final class SimCommands: @unchecked Sendable {
    public static let shared = SimCommands()
    private let lock = NSLock()
    private var handlers: [String: () -> Void] = [:]
    private var listening = false

    /// The handler is called on a thread of its own; the last one given for a command wins.
    public func on(_ command: String, _ handler: @escaping () -> Void) {
        guard let folder = Sim.setting("CONTROL") else { return }
        lock.lock()
        defer { lock.unlock() }
        handlers[command] = handler
        if !listening { listen("\(folder)/\(getpid())") }
    }

    private func listen(_ path: String) {
        unlink(path)
        guard mkfifo(path, 0o600) == 0 else { return }
        let fd = open(path, O_RDWR | O_CLOEXEC)  // for both: so it never ends
        guard fd >= 0 else { return }
        listening = true
        Thread.detachNewThread { [self] in
            var rest = ""
            var buffer = [UInt8](repeating: 0, count: 4096)
            while true {
                let count = read(fd, &buffer, buffer.count)
                if count <= 0 { return }
                var lines = (rest + String(decoding: buffer[..<count], as: UTF8.self))
                    .components(separatedBy: "\n")
                rest = lines.removeLast()
                for line in lines { obey(line) }
            }
        }
    }

    private func obey(_ command: String) {
        lock.lock()
        let handler = handlers[command]
        lock.unlock()
        Sim.log("command", ["command": command, "known": handler != nil])
        handler?()
    }
}

// MARK: - Key-value observing, for the handful of observable stub classes

public struct NSKeyValueObservingOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let new = NSKeyValueObservingOptions(rawValue: 1)
    public static let old = NSKeyValueObservingOptions(rawValue: 2)
    public static let initial = NSKeyValueObservingOptions(rawValue: 4)
    public static let prior = NSKeyValueObservingOptions(rawValue: 8)
}

public enum NSKeyValueChange: UInt, Sendable {
    case setting = 1
    case insertion = 2
    case removal = 3
    case replacement = 4
}

public struct NSKeyValueObservedChange<Value> {
    public typealias Kind = NSKeyValueChange
    public let kind: Kind
    public let newValue: Value?
    public let oldValue: Value?
    public let indexes: IndexSet?
    public let isPrior: Bool
}

/// Keep it alive for as long as the observation is wanted, exactly as on macOS.
public final class NSKeyValueObservation: NSObject {
    private var cancel: (() -> Void)?
    fileprivate init(cancel: @escaping () -> Void) {
        self.cancel = cancel
        super.init()
    }
    public func invalidate() {
        cancel?()
        cancel = nil
    }
    deinit { cancel?() }
}

/// Fires the change handlers; called by the simulators after they changed a value.
public final class SimObservers: @unchecked Sendable {
    public static let shared = SimObservers()
    private let lock = NSRecursiveLock()
    private var entries: [ObjectIdentifier: [UInt64: () -> Void]] = [:]
    private var next: UInt64 = 0

    func add(_ object: AnyObject, _ body: @escaping () -> Void) -> UInt64 {
        lock.lock()
        defer { lock.unlock() }
        next += 1
        entries[ObjectIdentifier(object), default: [:]][next] = body
        return next
    }
    func remove(_ object: ObjectIdentifier, _ id: UInt64) {
        lock.lock()
        defer { lock.unlock() }
        entries[object]?[id] = nil
        if entries[object]?.isEmpty == true { entries[object] = nil }
    }
    public func changed(_ object: AnyObject) {
        lock.lock()
        let bodies = entries[ObjectIdentifier(object)]?.sorted { $0.key < $1.key }.map(\.value) ?? []
        lock.unlock()
        for body in bodies { body() }
    }
}

/// Carries the protocol's name from Apple's overlay so that diagnostics read alike.
public protocol _KeyValueCodingAndObserving: AnyObject {}

extension _KeyValueCodingAndObserving {
    public func observe<Value>(
        _ keyPath: KeyPath<Self, Value>,
        options: NSKeyValueObservingOptions = [],
        changeHandler: @escaping (Self, NSKeyValueObservedChange<Value>) -> Void
    ) -> NSKeyValueObservation {
        var last = self[keyPath: keyPath]
        let report: (Self, Value?) -> Void = { object, old in
            let new = object[keyPath: keyPath]
            changeHandler(
                object,
                NSKeyValueObservedChange(
                    kind: .setting,
                    newValue: options.contains(.new) ? new : nil,
                    oldValue: options.contains(.old) ? old : nil,
                    indexes: nil, isPrior: false))
        }
        if options.contains(.initial) { report(self, nil) }
        let id = SimObservers.shared.add(self) { [weak self] in
            guard let self else { return }
            let old = last
            last = self[keyPath: keyPath]
            report(self, old)
        }
        let key = ObjectIdentifier(self)
        return NSKeyValueObservation { SimObservers.shared.remove(key, id) }
    }
}

extension Progress: _KeyValueCodingAndObserving {}

// MARK: - Small pieces of Apple's Foundation that Linux lacks

@discardableResult
public func autoreleasepool<Result>(invoking body: () throws -> Result) rethrows -> Result {
    try body()
}

extension ProcessInfo {
    public struct ActivityOptions: OptionSet, Sendable {
        public let rawValue: UInt64
        public init(rawValue: UInt64) { self.rawValue = rawValue }
        public static let idleDisplaySleepDisabled = ActivityOptions(rawValue: 1 << 40)
        public static let idleSystemSleepDisabled = ActivityOptions(rawValue: 1 << 20)
        public static let suddenTerminationDisabled = ActivityOptions(rawValue: 1 << 14)
        public static let automaticTerminationDisabled = ActivityOptions(rawValue: 1 << 15)
        public static let userInitiated = ActivityOptions(rawValue: 0x00ff_ffff | (1 << 20))
        public static let userInitiatedAllowingIdleSystemSleep =
            ActivityOptions(rawValue: 0x00ff_ffff & ~(1 << 20))
        public static let background = ActivityOptions(rawValue: 0x0000_00ff)
        public static let latencyCritical = ActivityOptions(rawValue: 0xff_0000_0000)
    }
    public func beginActivity(options: ActivityOptions = [], reason: String) -> NSObjectProtocol {
        Sim.log("activity.begin", ["reason": reason])
        return NSObject()
    }
    public func endActivity(_ activity: NSObjectProtocol) { Sim.log("activity.end") }
    public func disableSuddenTermination() {}
    public func enableSuddenTermination() {}
    public func disableAutomaticTermination(_ reason: String) {}
    public func enableAutomaticTermination(_ reason: String) {}
}
