// agent-desktop-macos-helper - a Mac's desktop through Accessibility: what `launch` and `snapshot` of agent-desktop
// are on macOS, and whether this process may use Accessibility at all.
//
//   permissions                    {"trusted":BOOL,"working":BOOL,"state":STATE,"message":TEXT} on one line, exit 0.
//                                  STATE: granted, missing (never allowed), stale (allowed and yet refused, as after
//                                  a new signature), unknown (allowed, but nobody was there to try it on)
//   request                        asks macOS to ask for it, then answers as `permissions`
//   launch APP [OPTIONS]           one envelope each, as specs/cli.md and specs/envelope.schema.json say, with the
//   snapshot --app APP [OPTIONS]   roles and states called as on Linux
//
// agent-desktop executes it in its own place when it lies beside it. macOS 13 and later, language modes 5 and 6. It
// acts on nothing but what it is asked to start or focus, and the value of a password field is never printed nor
// kept.
//
// Accessibility is asked through AXUIElement.h: each question is a message that the main thread of the other
// application answers. Hence a time limit for each and one for all, as few of them as can be, and bounds on how much
// is read. What NSRunningApplication tells changes only while the main run loop turns, and whether a request to
// come to the front was honoured is not told at all: what Accessibility tells is what counts.
//
// Environment: AGENT_DESKTOP_HOME as for agent-desktop. For tests: AGENT_DESKTOP_CONSOLE, the file whose owner is
// logged in at the screen (/dev/console), and AGENT_DESKTOP_APPLICATIONS, the folders that applications are looked for
// in, separated by colons.

import AppKit
import ApplicationServices
import Darwin

let callSeconds: Float = 1.5  // for one question; an application that is slower hangs
let treeMs = 10_000  // for a whole tree
let startingMs = 2_000  // until an application that was just started answers at all
let webMs = 1_000  // until the web contents of an application appear once they were asked for
let launchMs = 10_000  // of launch --activate, unless told otherwise
let launchMsMax = 300_000  // no guest command lasts longer
let focusMs = 3_000  // for an application to come to the front; it may refuse for good
let probeMs = 1_000  // for all that `permissions` asks: with the last answer below the 2 s that `status` has
let probeSeconds: Float = 0.5
let pollSeconds = 0.02

let nodesMax = 2_000
let depthMax = 25
let childrenMax = 200  // of one element: a list of thousands must not leave the rest unread
let silentMax = 3  // unanswered questions in a row: the application does not answer any more
let nameBytes = 1_000
let textCharacters = 4_000
let snapshotsMax = 32
let windowDepth = 1  // below the application

// MARK: - Text and time

/// At most so many bytes of UTF-8, cut between characters.
func cut(_ text: String, bytes: Int) -> String {
    if text.utf8.count <= bytes { return text }
    var end = text.utf8.index(text.startIndex, offsetBy: bytes)
    while end.samePosition(in: text.unicodeScalars) == nil { end = text.utf8.index(before: end) }
    return String(text.unicodeScalars[..<end])
}

/// One line for a person: what a terminal may obey is replaced.
func clean(_ text: String) -> String {
    var out = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
        let control = scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value)
        out.append(control ? "\u{FFFD}" : scalar)
    }
    return cut(String(out), bytes: 511)
}

func isBlank(_ text: String) -> Bool {
    text.trimmingCharacters(in: .whitespacesAndNewlines).isEmpty
}

func isSame(_ one: String?, _ other: String) -> Bool {
    one?.caseInsensitiveCompare(other) == .orderedSame
}

/// The word with the fewest letters to change, add, drop or swap; nil when more than a third of them differ.
func nearest(_ word: String, _ words: [String]) -> String? {
    var best: (word: String, distance: Int)?
    for candidate in words where word.utf8.count <= 64 && candidate.utf8.count <= 64 {
        let distance = editDistance(Array(word.utf8), Array(candidate.utf8))
        if distance * 3 <= max(word.utf8.count, candidate.utf8.count), distance < best?.distance ?? Int.max {
            best = (candidate, distance)
        }
    }
    return best?.word
}

func editDistance(_ a: [UInt8], _ b: [UInt8]) -> Int {
    var before = [Int](), last = Array(0...b.count)
    for i in a.indices {
        var row = [i + 1]
        for j in b.indices {
            var least = min(last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1)
            if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { least = min(least, before[j - 1] + 1) }
            row.append(least)
        }
        before = last
        last = row
    }
    return last[b.count]
}

struct Deadline {
    private let end: UInt64

    init(ms: Int) { end = DispatchTime.now().uptimeNanoseconds + UInt64(ms) * 1_000_000 }
    var isOver: Bool { DispatchTime.now().uptimeNanoseconds >= end }
}

/// Lets the main run loop turn for so long. It returns at once when it has nothing to wait for.
@MainActor func turn(_ seconds: Double) {
    let end = Date(timeIntervalSinceNow: seconds)
    _ = RunLoop.main.run(mode: .default, before: end)
    let left = end.timeIntervalSinceNow
    if left > 0 { Thread.sleep(forTimeInterval: left) }
}

func setting(_ name: String) -> String? { ProcessInfo.processInfo.environment[name] }

func debug(_ message: @autoclosure () -> String) {
    if setting("AGENT_DESKTOP_DEBUG") != nil {
        FileHandle.standardError.write(Data((clean("macos-helper: " + message()) + "\n").utf8))
    }
}

// MARK: - JSON

/// Members stay in their order, which JSONSerialization does not promise; one that is nil is left out.
enum JSON {
    case string(String)
    case int(Int)
    case bool(Bool)
    case list([JSON])
    case object([(String, JSON?)])

    var line: String {
        var out = ""
        write(to: &out)
        return out
    }

    private func write(to out: inout String) {
        switch self {
        case .string(let text): JSON.quote(text, to: &out)
        case .int(let number): out += String(number)
        case .bool(let flag): out += flag ? "true" : "false"
        case .list(let items):
            out += "["
            for (index, item) in items.enumerated() {
                if index > 0 { out += "," }
                item.write(to: &out)
            }
            out += "]"
        case .object(let members):
            var separator = "{"
            for case (let key, let value?) in members {
                out += separator
                JSON.quote(key, to: &out)
                out += ":"
                value.write(to: &out)
                separator = ","
            }
            out += separator == "{" ? "{}" : "}"
        }
    }

    private static func quote(_ text: String, to out: inout String) {
        out += "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": out += "\\\""
            case "\\": out += "\\\\"
            case "\u{08}": out += "\\b"
            case "\u{0C}": out += "\\f"
            case "\n": out += "\\n"
            case "\r": out += "\\r"
            case "\t": out += "\\t"
            case "\0": out += "\u{FFFD}"
            case "\u{01}"..<"\u{20}": out += String(format: "\\u%04X", scalar.value)
            default: out.unicodeScalars.append(scalar)
            }
        }
        out += "\""
    }
}

// MARK: - Errors

/// Those of specs/cli.md that this program has a use for, with the same meaning and advice.
enum Code: String {
    case invalidArgs = "INVALID_ARGS"
    case limitReached = "LIMIT_REACHED"
    case appNotFound = "APP_NOT_FOUND"
    case actionFailed = "ACTION_FAILED"
    case timeout = "TIMEOUT"
    case permDenied = "PERM_DENIED"
    case platformNotSupported = "PLATFORM_NOT_SUPPORTED"
    case storeFull = "STORE_FULL"
    case `internal` = "INTERNAL"

    var suggestion: String? {
        switch self {
        case .invalidArgs: return "Correct the argument that the message names; --help lists what is accepted."
        case .limitReached: return "Raise the limit of open files (ulimit -n), then repeat the command."
        case .appNotFound: return "Check the application's name."
        case .actionFailed, .timeout, .internal: return "Look at the state before repeating anything."
        case .permDenied: return "Check owner and permissions of what the message names."
        case .platformNotSupported: return nil
        case .storeFull: return "Free disk space or raise the quota, then repeat the command."
        }
    }

    var disposition: (delivery: String, retry: String) {
        switch self {
        case .actionFailed, .timeout: return ("delivered_unverified", "unsafe")
        case .internal: return ("unknown", "unsafe")
        default: return Failure.nothingWasDone
        }
    }
}

struct Failure: Error {
    static let nothingWasDone = (delivery: "not_delivered", retry: "safe")

    let code: Code
    let message: String
    var suggestion: String?  // nil: the code's
    var nothingWasDone = false  // where the code's usual disposition would be untrue

    init(_ code: Code, _ message: String, suggestion: String? = nil, nothingWasDone: Bool = false) {
        self.code = code
        self.message = clean(message)
        self.suggestion = suggestion
        self.nothingWasDone = nothingWasDone
    }

    /// For a call that set errno.
    init(_ otherwise: Code, errno number: Int32, _ what: String) {
        let codes: [Int32: Code] = [
            ENOSPC: .storeFull, EDQUOT: .storeFull, EFBIG: .storeFull, EACCES: .permDenied, EPERM: .permDenied,
            EROFS: .permDenied, EMFILE: .limitReached, ENFILE: .limitReached,
        ]
        self.init(codes[number] ?? otherwise, what + ": " + String(cString: strerror(number)))
    }

    var json: JSON {
        let disposition = nothingWasDone ? Failure.nothingWasDone : code.disposition
        return .object([
            ("code", .string(code.rawValue)),
            ("message", .string(message)),
            ("suggestion", (suggestion ?? code.suggestion).map { .string($0) }),
            ("disposition", .object([
                ("delivery", .string(disposition.delivery)), ("retry", .string(disposition.retry)),
            ])),
        ])
    }
}

func envelope(_ command: String, _ last: (String, JSON)) -> JSON {
    .object([("version", .string("2.5")), ("ok", .bool(last.0 == "data")), ("command", .string(command)), last])
}

// MARK: - The command line

struct Option {
    let name: String
    var letter: Character?
    var value: String?  // what it is called in usage; nil: it takes none
    var many = false
}

/// A command's part of the command line, read by the same rules and refused in the same words as agent-desktop's.
struct Arguments {
    let command: String
    let usage: String  // of what is not an option
    let count: Int
    let options: [Option]
    private(set) var positional: [String] = []
    private(set) var given: [(name: String, value: String?)] = []
    private(set) var help = false

    init(_ command: String, usage: String, count: Int, options: [Option]) {
        self.command = command
        self.usage = usage
        self.count = count
        self.options = options
    }

    func has(_ name: String) -> Bool { given.contains { $0.name == name } }
    func values(_ name: String) -> [String] { given.filter { $0.name == name }.compactMap(\.value) }

    mutating func parse(_ words: [String]) throws {
        var words = words[...]
        while let word = words.popFirst(), word != "--" {
            if word.hasPrefix("--") {
                try parseLong(String(word.dropFirst(2)), &words)
            } else if word.hasPrefix("-"), word != "-" {
                try parseLetters(word)
            } else {
                try add(word)
            }
            if help { return }
        }
        for word in words { try add(word) }
        if positional.count < count { throw misused("an argument is missing") }
    }

    private mutating func parseLong(_ word: String, _ words: inout ArraySlice<String>) throws {
        let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        var value = parts.count > 1 ? parts[1] : nil
        if parts[0] == "help" { return try add(Option(name: "help"), nil) }
        guard let option = options.first(where: { $0.name == parts[0] }) else { throw unknown(parts[0]) }
        if let placeholder = option.value {
            value = value ?? words.popFirst()
            if value == nil {
                throw Failure(.invalidArgs, "--\(option.name) needs a value: --\(option.name)=\(placeholder)")
            }
        } else if value != nil {
            throw Failure(.invalidArgs, "--\(option.name) takes no value")
        }
        try add(option, value)
    }

    private mutating func parseLetters(_ word: String) throws {
        for letter in word.dropFirst() {
            let option = letter == "h" ? Option(name: "help") : options.first { $0.letter == letter }
            guard let option else {
                throw Failure(.invalidArgs, "\(command) has no option '\(word)'; see agent-desktop \(command) "
                    + "--help (\"--\" ends options)")
            }
            try add(option, nil)
        }
    }

    private mutating func add(_ option: Option, _ value: String?) throws {
        if option.name == "help" {
            help = true
            return
        }
        if !option.many, has(option.name) { throw Failure(.invalidArgs, "--\(option.name) is given twice") }
        given.append((option.name, value))
    }

    private mutating func add(_ word: String) throws {
        if positional.count == count { throw misused("surplus argument \(word)") }
        positional.append(word)
    }

    private func unknown(_ name: String) -> Failure {
        let word = cut(name, bytes: 63)
        if let near = nearest(word, ["help"] + options.map(\.name)) {
            return Failure(.invalidArgs, "\(command) has no option '--\(word)'; did you mean '--\(near)'?")
        }
        return Failure(.invalidArgs, "\(command) has no option '--\(word)'; see agent-desktop \(command) --help")
    }

    private func misused(_ problem: String) -> Failure {
        let options = self.options.isEmpty ? "" : " [OPTIONS]"
        return Failure(.invalidArgs, "\(problem); usage: agent-desktop \(command) \(usage)\(options)")
    }
}

func number(_ text: String, _ what: String, _ range: ClosedRange<Int>) throws -> Int {
    let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
    guard !digits.isEmpty, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let value = Int(text),
        range.contains(value)
    else {
        throw Failure(.invalidArgs,
            "\(what) '\(text)' is not a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return value
}

// MARK: - The state root

/// Where snapshots are kept: a directory of ours that nobody else can write to, made when it is missing. The rules
/// are agent-desktop's, less the one about network file systems, since no locks are taken here.
struct StateRoot {
    let path: String
    let directory: Int32  // open for the rest of this short life

    init() throws {
        path = try StateRoot.findPath()
        var found = stat()
        if lstat(path, &found) == 0 {
            try StateRoot.check(path, found)
            directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        } else if errno == ENOENT {
            directory = try StateRoot.make(path)
        } else {
            throw Failure(.invalidArgs, errno: errno, "cannot look at the state root '\(path)'")
        }
        // What was opened is what counts; the look at the path only found the better words.
        if directory < 0 || fstat(directory, &found) < 0 {
            throw Failure(.invalidArgs, errno: errno, "cannot open the state root '\(path)'")
        }
        try StateRoot.check(path, found)
    }

    /// Only the last component: a mistyped path must not grow a tree of directories.
    private static func make(_ path: String) throws -> Int32 {
        let slash = path.lastIndex(of: "/") ?? path.startIndex
        let above = open(String(path[...slash]), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if above < 0 {
            throw Failure(.invalidArgs, errno: errno,
                "cannot make the state root '\(path)': cannot open the directory above it")
        }
        defer { close(above) }
        return try makeDirectory(above, String(path[path.index(after: slash)...]))
    }

    private static func findPath() throws -> String {
        let variable = "AGENT_DESKTOP_HOME"
        let set = setting(variable)
        if set?.isEmpty == true { throw Failure(.invalidArgs, "\(variable) is set but empty") }
        guard let base = set ?? findHome() else {
            throw Failure(.invalidArgs, "there is no home directory; set \(variable)")
        }
        if !base.hasPrefix("/") {
            let name = set == nil ? "HOME" : variable
            throw Failure(.invalidArgs, "\(name) is '\(base)', which is not an absolute path")
        }
        var path = set ?? base + "/.agent-desktop"
        while path.utf8.count > 1, path.hasSuffix("/") { path.removeLast() }
        let last = path.split(separator: "/", omittingEmptySubsequences: false).last ?? ""
        if last.isEmpty || last == "." || last == ".." {
            throw Failure(.invalidArgs, "the state root '\(path)' does not end with a directory's name")
        }
        return path
    }

    private static func findHome() -> String? {
        if let home = setting("HOME"), !home.isEmpty { return home }
        guard let entry = getpwuid(geteuid()), let home = entry.pointee.pw_dir else { return nil }
        return String(cString: home)
    }

    private static func check(_ path: String, _ found: stat) throws {
        let kind = found.st_mode & S_IFMT
        if kind == S_IFLNK { throw Failure(.invalidArgs, "the state root '\(path)' is a symbolic link") }
        if kind != S_IFDIR { throw Failure(.invalidArgs, "the state root '\(path)' is not a directory") }
        if found.st_uid != geteuid() {
            throw Failure(.invalidArgs, "the state root '\(path)' belongs to another user (uid \(found.st_uid))")
        }
        if found.st_mode & (S_IWGRP | S_IWOTH) != 0 {
            let mode = String(format: "%04o", UInt32(found.st_mode & 0o7777))
            throw Failure(.invalidArgs, "the state root '\(path)' is writable by others (mode \(mode))")
        }
    }

    /// Makes it if missing and opens it, never through a link.
    static func makeDirectory(_ above: Int32, _ name: String) throws -> Int32 {
        let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
        var directory = openat(above, name, flags)
        if directory < 0, errno == ENOENT {
            let made = mkdirat(above, name, 0o700) == 0
            if !made, errno != EEXIST { throw Failure(.internal, errno: errno, "cannot make the directory '\(name)'") }
            directory = openat(above, name, flags)
            if made, fsync(above) < 0 { throw Failure(.internal, errno: errno, "cannot sync a directory") }
        }
        if directory < 0 { throw Failure(.internal, errno: errno, "cannot open the directory '\(name)'") }
        return directory
    }
}

/// What the refs of the last snapshots mean: snapshots/<id>.json, written whole or not at all, and never changed.
struct Snapshots {
    private let path: String
    private let directory: Int32

    init(_ root: StateRoot) throws {
        path = root.path + "/snapshots"
        directory = try StateRoot.makeDirectory(root.directory, "snapshots")
    }

    static func newId() -> String { String(format: "%08x", UInt32.random(in: 0...UInt32.max)) }

    /// Keeps it, and forgets all but the newest.
    func save(_ id: String, _ record: JSON) throws {
        let name = id + ".json"
        let temporary = ".tmp-" + Snapshots.newId() + Snapshots.newId()
        let done = write(temporary, [UInt8](record.line.utf8)) && renameat(directory, temporary, directory, name) == 0
            && fsync(directory) == 0
        if !done {
            let failure = Failure(.internal, errno: errno, "cannot write '\(name)'")
            unlinkat(directory, temporary, 0)
            throw failure
        }
        prune()
    }

    private func write(_ name: String, _ bytes: [UInt8]) -> Bool {
        let file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        if file < 0 { return false }
        let written = writeAll(file, bytes) && fsync(file) == 0
        let failed = errno
        close(file)
        errno = failed
        return written
    }

    /// Everything in the directory: temporary files that a crash left behind grow old like the others.
    private func prune() {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
        let dated = names.map { name -> (name: String, date: Date) in
            let attributes = try? FileManager.default.attributesOfItem(atPath: path + "/" + name)
            return (name, attributes?[.modificationDate] as? Date ?? .distantPast)
        }
        for old in dated.sorted(by: { $0.date > $1.date }).dropFirst(snapshotsMax) {
            unlinkat(directory, old.name, 0)
        }
    }
}

func writeAll(_ file: Int32, _ bytes: [UInt8]) -> Bool {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { Darwin.write(file, $0.baseAddress, $0.count) }
        if count < 0, errno == EINTR { continue }
        if count <= 0 { return false }
        rest = rest.dropFirst(count)
    }
    return true
}

// MARK: - Accessibility

struct Rect: Equatable {
    var x, y, width, height: Int

    init?(_ origin: CGPoint?, _ size: CGSize?) {
        guard let origin, let size else { return nil }
        let values = [origin.x, origin.y, size.width, size.height].map { Double($0).rounded() }
        // Elements that were never laid out tell anything, infinity among it.
        guard values.allSatisfy({ abs($0) < 1e7 }), values[2] >= 0, values[3] >= 0 else { return nil }
        (x, y, width, height) = (Int(values[0]), Int(values[1]), Int(values[2]), Int(values[3]))
    }

    var isEmpty: Bool { width == 0 || height == 0 }

    func intersection(_ other: Rect) -> Rect {
        var both = self
        both.x = max(x, other.x)
        both.y = max(y, other.y)
        both.width = max(0, min(x + width, other.x + other.width) - both.x)
        both.height = max(0, min(y + height, other.y + other.height) - both.y)
        return both
    }

    var json: JSON {
        .object([("x", .int(x)), ("y", .int(y)), ("width", .int(width)), ("height", .int(height))])
    }
}

/// Equal when two stand for the same thing on the screen, however they were come by.
struct Identity: Hashable {
    let element: AXUIElement

    static func == (one: Identity, other: Identity) -> Bool { CFEqual(one.element, other.element) }
    func hash(into hasher: inout Hasher) { hasher.combine(CFHash(element)) }
}

/// What one question told about one element. Any attribute may be missing or of any type.
struct Attributes {
    private let values: [String: AnyObject]

    /// All of them in one message, or the reason why there are none.
    static func read(_ element: AXUIElement, _ names: [String]) -> (attributes: Attributes, error: AXError) {
        var list: CFArray?
        let error = AXUIElementCopyMultipleAttributeValues(element, names as CFArray, [], &list)
        let answers = error == .success ? list as? [AnyObject] ?? [] : []
        return (Attributes(values: Dictionary(uniqueKeysWithValues: zip(names, answers))), error)
    }

    func string(_ name: String) -> String? {
        let value = values[name]
        return value as? String ?? (value as? NSAttributedString)?.string
    }

    func number(_ name: String) -> Double? { (values[name] as? NSNumber)?.doubleValue }
    func flag(_ name: String) -> Bool? { (values[name] as? NSNumber)?.boolValue }

    func element(_ name: String) -> AXUIElement? {
        guard let value = values[name], CFGetTypeID(value) == AXUIElementGetTypeID() else { return nil }
        return (value as! AXUIElement)
    }

    func elements(_ name: String) -> [AXUIElement] {
        let items = values[name] as? [AnyObject] ?? []
        return items.filter { CFGetTypeID($0) == AXUIElementGetTypeID() }.map { $0 as! AXUIElement }
    }

    var bounds: Rect? {
        var origin = CGPoint.zero, size = CGSize.zero
        return copy(kAXPositionAttribute, .cgPoint, &origin) && copy(kAXSizeAttribute, .cgSize, &size)
            ? Rect(origin, size) : nil
    }

    private func copy(_ name: String, _ type: AXValueType, _ out: UnsafeMutableRawPointer) -> Bool {
        guard let value = values[name], CFGetTypeID(value) == AXValueGetTypeID() else { return false }
        return AXValueGetValue(value as! AXValue, type, out)
    }
}

func setFlag(_ element: AXUIElement, _ name: String, _ value: Bool) -> AXError {
    AXUIElementSetAttributeValue(element, name as CFString, value as CFTypeRef)
}

func setMessagingTimeout(_ seconds: Float) {
    AXUIElementSetMessagingTimeout(AXUIElementCreateSystemWide(), seconds)
}

// MARK: - Permission

/// May this process use Accessibility? That it is allowed to is not enough: after a new signature the system goes on
/// saying so and refuses every call. The proof is a question to another process, since one may always ask oneself.
struct Permission {
    enum State: String {
        case granted, missing, stale, unknown
    }

    let state: State
    let trusted: Bool
    var reason = ""  // of `unknown`

    @MainActor static func probe() -> Permission {
        guard AXIsProcessTrusted() else { return Permission(state: .missing, trusted: false) }
        setMessagingTimeout(probeSeconds)
        defer { setMessagingTimeout(callSeconds) }
        let deadline = Deadline(ms: probeMs)
        var reason = "no application is there to try it on: nobody is logged in at the screen"
        for application in candidates() where !deadline.isOver {
            var role: CFTypeRef?
            let element = AXUIElementCreateApplication(application.processIdentifier)
            let error = AXUIElementCopyAttributeValue(element, kAXRoleAttribute as CFString, &role)
            debug("AXRole of \(application.localizedName ?? "?"): \(error.rawValue)")
            if error == .success { return Permission(state: .granted, trusted: true) }
            if error == .apiDisabled { return Permission(state: .stale, trusted: true) }
            reason = "no application answered (the last one: error \(error.rawValue))"
        }
        return Permission(state: .unknown, trusted: true, reason: reason)
    }

    /// Finder is always there in a session.
    @MainActor private static func candidates() -> [NSRunningApplication] {
        let all = NSWorkspace.shared.runningApplications.filter {
            $0.processIdentifier > 0 && $0.processIdentifier != getpid()
        }
        let finder = all.filter { $0.bundleIdentifier == "com.apple.finder" }
        return finder + all.filter { $0.bundleIdentifier != "com.apple.finder" && $0.activationPolicy == .regular }
    }

    /// Who the system's list names for this process: over ssh launchd's program for sshd.
    static var subject: String {
        setting("SSH_CONNECTION") != nil ? "sshd-keygen-wrapper" : "the application that this command was started from"
    }
    static let place = "System Settings > Privacy & Security > Accessibility"

    var message: String {
        switch state {
        case .granted: return "Accessibility is granted and works."
        case .missing: return "Accessibility is not granted: allow \(Permission.subject) in \(Permission.place)."
        case .stale:
            return "Accessibility is granted, but every call is refused: remove \(Permission.subject) from "
                + "\(Permission.place) and add it again."
        case .unknown: return "Accessibility is granted, but whether it works is unknown: \(reason)."
        }
    }

    var json: JSON {
        .object([
            ("trusted", .bool(trusted)), ("working", .bool(state == .granted)), ("state", .string(state.rawValue)),
            ("message", .string(message)),
        ])
    }

    var failure: Failure {
        switch state {
        case .missing:
            return Failure(.permDenied, "macOS does not let this process use Accessibility",
                suggestion: "Allow \(Permission.subject) in \(Permission.place), then repeat the command.")
        default:
            return Failure(.permDenied, "macOS refuses this process the use of Accessibility although it is granted",
                suggestion: "Remove \(Permission.subject) from \(Permission.place), add it again, then repeat the "
                    + "command.")
        }
    }

    static func require() throws {
        if !AXIsProcessTrusted() { throw Permission(state: .missing, trusted: false).failure }
    }
    static var refused: Failure { Permission(state: .stale, trusted: true).failure }

    /// The system asks in its own time, or, over ssh, perhaps not at all; but it also enters the subject into its list.
    static func request() {
        // The constant kAXTrustedCheckOptionPrompt is a variable, which the language mode 6 refuses.
        _ = AXIsProcessTrustedWithOptions(["AXTrustedCheckOptionPrompt": true] as CFDictionary)
    }
}

// MARK: - Applications

/// Is this user logged in at the screen? Elsewhere the system starts nothing, or waits for ever.
/// CGSessionCopyCurrentDictionary() is of no use: it tells of the caller's session, and ssh has one of its own.
func checkScreen() throws {
    let console = setting("AGENT_DESKTOP_CONSOLE") ?? "/dev/console"
    var found = stat()
    if stat(console, &found) < 0 {
        throw Failure(.platformNotSupported, errno: errno, "cannot see who is logged in at the screen: \(console)")
    }
    if found.st_uid == geteuid() { return }
    let owner = getpwuid(found.st_uid).map { String(cString: $0.pointee.pw_name) } ?? "uid \(found.st_uid)"
    throw Failure(.platformNotSupported, "this user is not logged in at the screen: \(console) belongs to \(owner)",
        suggestion: Applications.logIn)
}

/// What an application's name stands for: one that runs, one that can be started.
@MainActor enum Applications {
    nonisolated static let logIn = "Log in at the desktop as this user, then repeat the command."

    /// The last one of those that match best; one with a menu bar of its own before its helpers.
    static func findRunning(_ app: String) -> NSRunningApplication? {
        if app.isEmpty { return nil }
        let running = NSWorkspace.shared.runningApplications.filter { !$0.isTerminated && $0.processIdentifier > 0 }
        let tests: [(NSRunningApplication) -> Bool] = [
            { isSame($0.bundleIdentifier, app) },
            { isSame($0.localizedName, app) },
            { isSame($0.bundleURL?.lastPathComponent, app) || isSame(name($0.bundleURL), app) },
            { isSame($0.executableURL?.lastPathComponent, app) },
            { app.contains("/") && $0.bundleURL.map(resolve) == resolve(URL(fileURLWithPath: app)) },
        ]
        for test in tests {
            let found = running.filter(test)
            for policy in [NSApplication.ActivationPolicy.regular, .accessory, .prohibited] {
                if let last = found.last(where: { $0.activationPolicy == policy }) { return last }
            }
        }
        return nil
    }

    static func findRunning(_ bundle: URL) -> NSRunningApplication? {
        if let running = findRunning(bundle.path) { return running }
        // The same one under another path: Safari's bundle is in a volume of its own.
        return Bundle(url: bundle)?.bundleIdentifier.flatMap { findRunning($0) }
    }

    /// The bundle that APP names: by its path, its identifier, or its name in one of the folders.
    static func findInstalled(_ app: String) -> URL? {
        if app.isEmpty { return nil }
        if app.contains("/") {
            let url = URL(fileURLWithPath: app, isDirectory: true)
            return url.pathExtension == "app" && isDirectory(url) ? url : nil
        }
        if app.contains("."), let url = NSWorkspace.shared.urlForApplication(withBundleIdentifier: app) { return url }
        let bundles = installed()
        if let bundle = bundles.first(where: { isSame($0.lastPathComponent, app) || isSame(name($0), app) }) {
            return bundle
        }
        return bundles.first {  // in the language of the user
            let shown = FileManager.default.displayName(atPath: $0.path)
            return isSame(shown, app) || isSame(shown, app + ".app")
        }
    }

    static func notInstalled(_ app: String) -> Failure {
        let problem = "no application '\(cut(app, bytes: 64))' is installed"
        if let near = nearest(app, installed().compactMap { name($0) }) {
            return Failure(.appNotFound, "\(problem); did you mean '\(near)'?")
        }
        return Failure(.appNotFound, "\(problem): neither a bundle identifier nor the name of a bundle in the "
            + "application folders")
    }

    static func notRunning(_ app: String) -> Failure {
        let names = NSWorkspace.shared.runningApplications.filter { $0.activationPolicy == .regular }
            .compactMap(\.localizedName)
        let problem = "no application '\(cut(app, bytes: 64))' is running"
        let suggestion = "Start it with `agent-desktop launch APP --activate`, or use the name of a running one."
        if let near = nearest(app, names) {
            return Failure(.appNotFound, "\(problem); did you mean '\(near)'?", suggestion: suggestion)
        }
        let list = names.isEmpty ? "none" : names.map { "'\($0)'" }.joined(separator: ", ")
        return Failure(.appNotFound, "\(problem); running: \(list)", suggestion: suggestion)
    }

    /// As a person knows it.
    static func name(_ running: NSRunningApplication) -> String? { running.localizedName ?? name(running.bundleURL) }

    nonisolated static func name(_ bundle: URL?) -> String? { bundle?.deletingPathExtension().lastPathComponent }

    /// Every bundle in the folders, and in the folders in them (Utilities).
    private static func installed() -> [URL] {
        let usual = "/Applications:/System/Applications:\(NSHomeDirectory())/Applications:/System/Library/CoreServices"
        let folders = (setting("AGENT_DESKTOP_APPLICATIONS") ?? usual).split(separator: ":").map(String.init)
        var bundles: [URL] = []
        for folder in folders {
            let entries = list(URL(fileURLWithPath: folder, isDirectory: true))
            bundles += entries.filter { $0.pathExtension == "app" }
            for entry in entries where entry.pathExtension.isEmpty {
                bundles += list(entry).filter { $0.pathExtension == "app" }
            }
        }
        return bundles
    }

    private static func list(_ folder: URL) -> [URL] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        return names.sorted().map { folder.appendingPathComponent($0, isDirectory: true) }
    }

    private static func isDirectory(_ url: URL) -> Bool {
        var directory: ObjCBool = false
        return FileManager.default.fileExists(atPath: url.path, isDirectory: &directory) && directory.boolValue
    }

    nonisolated private static func resolve(_ url: URL) -> String {
        url.resolvingSymlinksInPath().standardizedFileURL.path
    }
}

// MARK: - launch

struct Window {
    let element: AXUIElement
    let title: String
    let bounds: Rect?
    let minimized: Bool
}

@MainActor final class Launch {
    enum Look {
        case window(Window)
        case nothing(AXError)
    }

    private let app: String
    private let arguments: [String]
    private let activates: Bool
    private let limit: Int
    private var pid: pid_t = 0
    private var name: String?
    private var started = false

    init(app: String, arguments: [String], activates: Bool, timeoutMs: Int?) {
        self.app = app
        self.arguments = arguments
        self.activates = activates
        limit = timeoutMs ?? launchMs
    }

    func run() throws -> JSON {
        try checkScreen()
        if activates { try checkPermission() }
        let deadline = Deadline(ms: limit)
        let bundle = Applications.findInstalled(app)
        var running = bundle.flatMap { Applications.findRunning($0) } ?? Applications.findRunning(app)
        if !arguments.isEmpty || running == nil {  // arguments could not reach one that runs
            guard let url = bundle ?? running?.bundleURL else { throw Applications.notInstalled(app) }
            name = Applications.name(url)
            try start(url, deadline)
            running = NSRunningApplication(processIdentifier: pid)
        }
        if let running {
            pid = running.processIdentifier
            name = Applications.name(running) ?? name
        }
        return describe(try focus(running, deadline))
    }

    /// Before anything is done: a window that cannot be waited for need not be opened.
    private func checkPermission() throws {
        let permission = Permission.probe()
        if permission.state == .missing || permission.state == .stale { throw permission.failure }
    }

    // Starting

    /// Written by the system's handler, read behind the semaphore.
    private final class Answer: @unchecked Sendable {
        let arrived = DispatchSemaphore(value: 0)
        var pid: pid_t = 0
        var error: NSError?
    }

    /// Asks the system to open the bundle. The handler is called on a queue of the system's own, or never.
    private func open(_ url: URL, activate: Bool, _ deadline: Deadline) -> Answer? {
        let configuration = NSWorkspace.OpenConfiguration()
        let answer = Answer()
        configuration.activates = activate
        configuration.promptsUserIfNeeded = false
        configuration.addsToRecentItems = false
        configuration.arguments = arguments
        configuration.createsNewApplicationInstance = !arguments.isEmpty
        NSWorkspace.shared.openApplication(at: url, configuration: configuration) { @Sendable opened, error in
            answer.pid = opened?.processIdentifier ?? 0
            answer.error = error.map { $0 as NSError }
            answer.arrived.signal()
        }
        while answer.arrived.wait(timeout: .now()) != .success {
            if deadline.isOver { return nil }
            turn(pollSeconds)
        }
        return answer
    }

    private func start(_ url: URL, _ deadline: Deadline) throws {
        let what = "'\(cut(app, bytes: 64))'"
        guard let answer = open(url, activate: activates, deadline) else {
            throw Failure(.timeout, "the system has not started \(what) after \(limit) ms")
        }
        if let error = answer.error { throw refusal(what, error) }
        if answer.pid <= 0 { throw Failure(.actionFailed, "the system started \(what) and does not say as what") }
        pid = answer.pid
        started = true
    }

    private func refusal(_ what: String, _ error: NSError) -> Failure {
        // LSInfo.h and MacErrors.h: codes that say that nothing was started.
        let known: [Int: (code: Code, reason: String)] = [
            -600: (.platformNotSupported, "this user's desktop is not the one on the screen"),
            -10661: (.actionFailed, "its executable is for another kind of machine"),
            -10811: (.appNotFound, "it is not an application"),
            -10814: (.appNotFound, "it is not installed"),
            -10825: (.actionFailed, "it is not for this version of macOS"),
            -10826: (.permDenied, "this user may not start it"),
            -10827: (.actionFailed, "it has no executable"),
            -10829: (.actionFailed, "it runs for another user already"),
        ]
        let number = "\(error.domain) \(error.code)"
        if error.domain == "RBSRequestErrorDomain", error.code == 5 {
            return Failure(.platformNotSupported,
                "cannot start \(what): nobody is logged in at the screen (\(number))", suggestion: Applications.logIn)
        }
        if error.domain == NSCocoaErrorDomain, error.code == CocoaError.Code.fileNoSuchFile.rawValue
            || error.code == CocoaError.Code.fileReadNoSuchFile.rawValue {
            return Failure(.appNotFound, "cannot start \(what): it is not there any more (\(number))")
        }
        if error.domain == NSOSStatusErrorDomain, let row = known[error.code] {
            return Failure(row.code, "cannot start \(what): \(row.reason) (\(number))", nothingWasDone: true)
        }
        return Failure(.actionFailed, "cannot start \(what): \(error.localizedDescription) (\(number))")
    }

    // Its window

    private var element: AXUIElement { AXUIElementCreateApplication(pid) }

    /// The focused window, else the main one, else the first; one in the Dock only when there is no other.
    private func lookForWindow() -> Look {
        let names = [kAXFocusedWindowAttribute, kAXMainWindowAttribute, kAXWindowsAttribute]
        let (told, error) = Attributes.read(element, names)
        let candidates = [told.element(names[0]), told.element(names[1])].compactMap { $0 } + told.elements(names[2])
        var minimized: Window?
        for candidate in candidates {
            guard let window = examine(candidate) else { continue }
            if !window.minimized { return .window(window) }
            minimized = minimized ?? window
        }
        return minimized.map { .window($0) } ?? .nothing(error)
    }

    /// nil when it is none: what Finder focuses may be the desktop.
    private func examine(_ candidate: AXUIElement) -> Window? {
        let (told, error) = Attributes.read(candidate, [
            kAXRoleAttribute, kAXTitleAttribute, kAXPositionAttribute, kAXSizeAttribute, kAXMinimizedAttribute,
        ])
        guard error == .success, told.string(kAXRoleAttribute) == kAXWindowRole else { return nil }
        return Window(element: candidate, title: cut(told.string(kAXTitleAttribute) ?? "", bytes: nameBytes),
            bounds: told.bounds, minimized: told.flag(kAXMinimizedAttribute) ?? false)
    }

    private func waitForWindow(_ deadline: Deadline) throws -> Window {
        while true {
            switch lookForWindow() {
            case .window(let window): return window
            case .nothing(let error): try checkHope(error, deadline)
            }
            turn(pollSeconds)
        }
    }

    /// Can there still be a window?
    private func checkHope(_ error: AXError, _ deadline: Deadline) throws {
        let what = "'\(cut(app, bytes: 64))' (pid \(pid))"
        if error == .apiDisabled {
            let refused = Permission.refused
            if !started { throw refused }
            throw Failure(.actionFailed, "\(what) was started; \(refused.message)", suggestion: refused.suggestion)
        }
        if error != .success, NSRunningApplication(processIdentifier: pid)?.isTerminated ?? true {
            throw Failure(.actionFailed, "\(what) ended without showing a window")
        }
        if deadline.isOver {
            let missing = error == .cannotComplete ? "no answer" : "no window"
            throw Failure(.timeout, "\(what): \(missing) after \(limit) ms", nothingWasDone: !started)
        }
    }

    /// Gives the window the focus, when there is one: (the window, whether it has it).
    private func focus(_ running: NSRunningApplication?, _ deadline: Deadline) throws -> (Window, Bool)? {
        var window: Window?
        if case .window(let found) = lookForWindow() { window = found }
        if activates {
            // To start one that runs is how it is asked to open a window again.
            if window == nil || window?.minimized == true, !started, let bundle = running?.bundleURL {
                _ = open(bundle, activate: true, deadline)
            }
            window = try waitForWindow(deadline)
        } else if started {
            return window.map { ($0, isInFront()) }
        }
        guard let window else {
            running?.activate(options: [])
            return nil
        }
        let active = bringToFront(running, window)
        return (examine(window.element) ?? window, active)
    }

    private func isInFront() -> Bool {
        Attributes.read(element, [kAXFrontmostAttribute]).attributes.flag(kAXFrontmostAttribute) ?? false
    }

    /// Since macOS 14 the system may leave a request to come to the front unheard; Accessibility has another way.
    private func bringToFront(_ running: NSRunningApplication?, _ window: Window) -> Bool {
        let deadline = Deadline(ms: focusMs)
        if window.minimized { _ = setFlag(window.element, kAXMinimizedAttribute, false) }
        AXUIElementPerformAction(window.element, kAXRaiseAction as CFString)
        running?.activate(options: [])
        while !isInFront() {
            if deadline.isOver { return false }
            _ = setFlag(element, kAXFrontmostAttribute, true)
            turn(pollSeconds)
        }
        return true
    }

    private func describe(_ focused: (window: Window, active: Bool)?) -> JSON {
        .object([
            ("app", .string(name ?? app)), ("pid", .int(Int(pid))), ("started", .bool(started)),
            ("window", focused.map { .object([
                ("title", .string($0.window.title)), ("active", .bool($0.active)),
                ("bounds", $0.window.bounds?.json),
            ]) }),
        ])
    }
}

// MARK: - The tree

/// What an element of this role is called, as AT-SPI calls it, and whether it is there to be acted on: nil means that
/// its actions have to be asked for. Texts are, when they can be written to.
struct Role {
    let word: String
    var acts: Bool?
    var name: String?  // of one that has none of its own

    static let rows: [String: Role] = [
        "AXApplication": Role(word: "application", acts: false),
        "AXBusyIndicator": Role(word: "progress bar", acts: false),
        "AXButton": Role(word: "push button", acts: true),
        "AXCell": Role(word: "table cell"),
        "AXCheckBox": Role(word: "check box", acts: true),
        "AXColorWell": Role(word: "color chooser", acts: true),
        "AXColumn": Role(word: "column", acts: false),
        "AXComboBox": Role(word: "combo box", acts: true),
        "AXDateField": Role(word: "date editor", acts: true),
        "AXDisclosureTriangle": Role(word: "toggle button", acts: true),
        "AXDockItem": Role(word: "push button", acts: true),
        "AXGroup": Role(word: "panel"),
        "AXHeading": Role(word: "heading"),
        "AXImage": Role(word: "image"),
        "AXIncrementor": Role(word: "spin button", acts: true),
        "AXLevelIndicator": Role(word: "level bar"),
        "AXLink": Role(word: "link", acts: true),
        "AXList": Role(word: "list", acts: false),
        "AXMenu": Role(word: "menu", acts: false),
        "AXMenuBar": Role(word: "menu bar", acts: false),
        "AXMenuBarItem": Role(word: "menu", acts: true),
        "AXMenuButton": Role(word: "push button", acts: true),
        "AXMenuItem": Role(word: "menu item", acts: true),
        "AXOutline": Role(word: "tree table", acts: false),
        "AXPopUpButton": Role(word: "combo box", acts: true),
        "AXProgressIndicator": Role(word: "progress bar", acts: false),
        "AXRadioButton": Role(word: "radio button", acts: true),
        "AXRadioGroup": Role(word: "panel", acts: false),
        "AXRow": Role(word: "table row", acts: true),
        "AXScrollArea": Role(word: "scroll pane", acts: false),
        "AXScrollBar": Role(word: "scroll bar", acts: false),
        "AXSheet": Role(word: "dialog", acts: false),
        "AXSlider": Role(word: "slider", acts: true),
        "AXSplitGroup": Role(word: "split pane", acts: false),
        "AXSplitter": Role(word: "separator", acts: false),
        "AXStaticText": Role(word: "label"),
        "AXTabGroup": Role(word: "page tab list", acts: false),
        "AXTable": Role(word: "table", acts: false),
        "AXTextArea": Role(word: "text", acts: false),
        "AXTextField": Role(word: "text", acts: false),
        "AXTimeField": Role(word: "date editor", acts: true),
        "AXToolbar": Role(word: "tool bar", acts: false),
        "AXValueIndicator": Role(word: "separator", acts: false),
        "AXWebArea": Role(word: "document web", acts: false),
        "AXWindow": Role(word: "frame", acts: false),
    ]

    static let subroles: [String: Role] = [
        "AXCloseButton": Role(word: "push button", acts: true, name: "close"),
        "AXDialog": Role(word: "dialog", acts: false),
        "AXFullScreenButton": Role(word: "push button", acts: true, name: "full screen"),
        "AXMinimizeButton": Role(word: "push button", acts: true, name: "minimize"),
        "AXSecureTextField": Role(word: "password text", acts: false),
        "AXSwitch": Role(word: "toggle button", acts: true),
        "AXSystemDialog": Role(word: "dialog", acts: false),
        "AXTabButton": Role(word: "page tab", acts: true),
        "AXToggle": Role(word: "toggle button", acts: true),
        "AXZoomButton": Role(word: "push button", acts: true, name: "zoom"),
    ]

    static func of(_ role: String, _ subrole: String?) -> Role {
        subrole.flatMap { subroles[$0] } ?? rows[role] ?? Role(word: spell(role))
    }

    /// "AXColorPicker" is "color picker".
    private static func spell(_ role: String) -> String {
        var words = ""
        for letter in role.hasPrefix("AX") ? role.dropFirst(2) : role[...] {
            if letter.isUppercase, !words.isEmpty { words += " " }
            words += letter.lowercased()
        }
        return words.isEmpty ? "unknown" : words
    }
}

/// As AT-SPI calls them, in its order.
enum State: String, CaseIterable {
    case active, busy, checked, collapsed, editable, enabled, expandable, expanded, focusable, focused, iconified, modal
    case multiLine = "multi_line"
    case selectable, selected, sensitive, showing
    case singleLine = "single_line"
    case visible, indeterminate, checkable
    case hasPopup = "has_popup"
    case readOnly = "read_only"
}

final class Node {
    let element: AXUIElement
    let parent: Node?  // parents go together with their children, at the end of the process
    let depth: Int
    let path: String  // the place among the children, from the application on: "/0/3"
    let told: Attributes
    let role: String
    let row: Role
    let title: String?  // of the element that serves as its title
    var children: [Node] = []
    var states: Set<State> = []
    var acts = false  // it can be acted on now; known of all when the reader asked for actions
    var clip: Rect?  // what of the screen its children can be seen on; nil: not known
    private(set) var name: String?
    private(set) var text: String?

    init(_ element: AXUIElement, _ told: Attributes, parent: Node?, path: String, title: String?) {
        self.element = element
        self.told = told
        self.parent = parent
        self.path = path
        self.title = title
        depth = parent.map { $0.depth + 1 } ?? 0
        role = told.string(kAXRoleAttribute) ?? kAXUnknownRole
        row = Role.of(role, told.string(kAXSubroleAttribute))
    }

    var isSecret: Bool { told.string(kAXSubroleAttribute) == kAXSecureTextFieldSubrole }
    var isText: Bool { [kAXTextFieldRole, kAXTextAreaRole, kAXComboBoxRole].contains(role) }
    var isTwoOrThreeState: Bool { [kAXCheckBoxRole, kAXRadioButtonRole].contains(role) }

    /// Its text, never a password.
    var content: String? { isSecret ? nil : told.string(kAXValueAttribute) }

    /// Of what is measured: sliders, progress bars, scroll bars.
    var value: String? {
        guard !isSecret, !isTwoOrThreeState, role != kAXDisclosureTriangleRole,
            told.string(kAXValueAttribute) == nil, let number = told.number(kAXValueAttribute)
        else { return nil }
        return String(format: "%.15g", number)
    }

    /// Once its children are known: an icon or a row is called by the label in it.
    func findTexts() {
        var candidates = [told.string(kAXTitleAttribute), told.string(kAXLabelValueAttribute), title]
        if role == kAXStaticTextRole { candidates.append(content) }
        candidates.append(told.string(kAXDescriptionAttribute))
        if row.acts != false, !isText { candidates.append(label(depth: 3)) }
        candidates += [told.string(kAXPlaceholderValueAttribute), row.name]
        name = candidates.lazy.compactMap { $0 }.first { !isBlank($0) }.map { cut($0, bytes: nameBytes) }
        text = content.map { String($0.prefix(textCharacters)) }.flatMap { $0.isEmpty || $0 == name ? nil : $0 }
    }

    private func label(depth: Int) -> String? {
        if depth == 0 { return nil }
        for child in children {
            if child.role == kAXStaticTextRole, let text = child.content, !isBlank(text) { return text }
            if let text = child.label(depth: depth - 1) { return text }
        }
        return nil
    }
}

/// Reads an application's tree level by level, so that what is cut away is what lies deepest.
@MainActor final class Reader {
    private static let names = [
        kAXRoleAttribute, kAXSubroleAttribute, kAXTitleAttribute, kAXLabelValueAttribute, kAXTitleUIElementAttribute,
        kAXValueAttribute, kAXDescriptionAttribute, kAXPlaceholderValueAttribute, kAXEnabledAttribute,
        kAXFocusedAttribute, kAXSelectedAttribute, kAXExpandedAttribute, kAXDisclosingAttribute,
        kAXMinimizedAttribute, kAXMainAttribute, kAXModalAttribute, kAXElementBusyAttribute, kAXPositionAttribute,
        kAXSizeAttribute, kAXChildrenAttribute, kAXVisibleRowsAttribute,
    ]
    private static let rootNames = [
        kAXRoleAttribute, kAXTitleAttribute, kAXFrontmostAttribute, kAXHiddenAttribute, kAXWindowsAttribute,
        kAXFocusedWindowAttribute, kAXMainWindowAttribute, kAXChildrenAttribute, kAXExtrasMenuBarAttribute,
    ]

    private static let surfaces = [
        kAXWindowRole, kAXSheetRole, kAXDrawerRole, kAXPopoverRole, kAXMenuRole, kAXMenuBarRole,
    ]

    private struct Waiting {
        let element: AXUIElement
        let parent: Node
        let path: String
    }

    private let deadline: Deadline
    private let actions: Bool  // to be asked for, at the price of more questions
    private var waiting: [Waiting] = []
    private var visited: Set<Identity> = []
    private var silent = 0
    private var inFront = false
    private(set) var all: [Node] = []  // parents before their children
    private(set) var truncated = false  // a limit was met, or something did not answer in time

    init(_ deadline: Deadline, actions: Bool) {
        self.deadline = deadline
        self.actions = actions
    }

    func read(_ application: AXUIElement, _ what: String) throws -> Node {
        let told = try readRoot(application, what)
        let root = Node(application, told, parent: nil, path: "", title: nil)
        let focused = [kAXFocusedWindowAttribute, kAXMainWindowAttribute].compactMap { told.element($0) }
        // The list of windows is the surest; the children have the menu bar, and panels that are in no list.
        let children = told.elements(kAXWindowsAttribute) + focused + told.elements(kAXChildrenAttribute)
            + [told.element(kAXExtrasMenuBarAttribute)].compactMap { $0 }
        inFront = told.flag(kAXFrontmostAttribute) ?? false
        visited.insert(Identity(element: application))
        keep(root)
        enqueue(children, root)
        var next = 0
        while next < waiting.count {
            if deadline.isOver || silent >= silentMax {
                truncated = true
                break
            }
            try readNext(waiting[next])
            next += 1
        }
        for node in all { node.findTexts() }
        return root
    }

    /// One that was just started does not answer yet.
    private func readRoot(_ application: AXUIElement, _ what: String) throws -> Attributes {
        let starting = Deadline(ms: startingMs)
        while true {
            let (told, error) = Attributes.read(application, Reader.rootNames)
            if error == .success { return told }
            if error == .apiDisabled { throw Permission.refused }
            if error == .invalidUIElement { throw Failure(.appNotFound, "\(what) has ended") }
            if error != .cannotComplete {
                throw Failure(.actionFailed, "\(what) cannot be read through Accessibility (error \(error.rawValue))")
            }
            if starting.isOver { throw Failure(.timeout, "\(what) does not answer through Accessibility") }
            turn(pollSeconds)
        }
    }

    private func readNext(_ next: Waiting) throws {
        var (told, error) = Attributes.read(next.element, Reader.names)
        if error == .cannotComplete { (told, error) = Attributes.read(next.element, Reader.names) }
        if error == .apiDisabled { throw Permission.refused }
        silent = error == .cannotComplete ? silent + 1 : 0
        if error == .cannotComplete { truncated = true }
        if error != .success {  // gone meanwhile, or it says nothing about itself
            return debug("\(next.path): error \(error.rawValue)")
        }
        let node = Node(next.element, told, parent: next.parent, path: next.path, title: readTitle(told))
        next.parent.children.append(node)
        keep(node)
        enqueue(listChildren(node), node)
    }

    private func readTitle(_ told: Attributes) -> String? {
        let named = [kAXTitleAttribute, kAXLabelValueAttribute].contains { !isBlank(told.string($0) ?? "") }
        guard !named, let element = told.element(kAXTitleUIElementAttribute) else { return nil }
        let title = Attributes.read(element, [kAXValueAttribute, kAXTitleAttribute]).attributes
        return title.string(kAXValueAttribute) ?? title.string(kAXTitleAttribute)
    }

    private func listChildren(_ node: Node) -> [AXUIElement] {
        if node.isSecret { return [] }  // their texts would be the password's
        // Menus list their items while they are closed too.
        if [kAXMenuBarItemRole, kAXMenuItemRole].contains(node.role), node.told.flag(kAXSelectedAttribute) != true {
            return []
        }
        let children = node.told.elements(kAXChildrenAttribute)
        if children.count <= childrenMax { return children }
        let rows = node.told.elements(kAXVisibleRowsAttribute)
        truncated = true
        return Array((rows.isEmpty ? children : rows).prefix(childrenMax))
    }

    private func enqueue(_ children: [AXUIElement], _ parent: Node) {
        for (index, child) in children.enumerated() where visited.insert(Identity(element: child)).inserted {
            if visited.count > nodesMax || parent.depth == depthMax {
                truncated = true
                return
            }
            waiting.append(Waiting(element: child, parent: parent, path: "\(parent.path)/\(index)"))
        }
    }

    // States

    private func keep(_ node: Node) {
        all.append(node)
        node.states = readStates(node)
        node.clip = findClip(node)
        if isVisible(node) {
            node.states.insert(.visible)
            if isShowing(node) { node.states.insert(.showing) }
        }
        if node.states.isSuperset(of: [.showing, .enabled]) {
            node.acts = node.states.contains(.focusable) || (node.row.acts ?? (actions && hasClick(node)))
        }
    }

    private func readStates(_ node: Node) -> Set<State> {
        let told = node.told
        var states: Set<State> = []
        if told.flag(kAXEnabledAttribute) ?? true { states.formUnion([.enabled, .sensitive]) }
        if told.flag(kAXFocusedAttribute) == true { states.formUnion([.focused, .focusable]) }
        if told.flag(kAXElementBusyAttribute) == true { states.insert(.busy) }
        if told.flag(kAXMinimizedAttribute) == true { states.insert(.iconified) }
        if told.flag(kAXModalAttribute) == true { states.insert(.modal) }
        if inFront, node.depth == 0 || told.flag(kAXMainAttribute) == true { states.insert(.active) }
        if [kAXPopUpButtonRole, kAXMenuButtonRole].contains(node.role) { states.insert(.hasPopup) }
        if let selected = told.flag(kAXSelectedAttribute) {
            states.formUnion(selected ? [.selectable, .selected] : [.selectable])
        }
        if let expanded = readExpanded(node) { states.formUnion([.expandable, expanded ? .expanded : .collapsed]) }
        if node.isTwoOrThreeState { states.formUnion(readChecked(node)) }
        if node.isText { states.formUnion(readEditable(node)) }
        return states
    }

    private func readExpanded(_ node: Node) -> Bool? {
        if node.role == kAXDisclosureTriangleRole { return node.told.number(kAXValueAttribute).map { $0 != 0 } }
        return node.told.flag(kAXExpandedAttribute) ?? node.told.flag(kAXDisclosingAttribute)
    }

    private func readChecked(_ node: Node) -> Set<State> {
        let value = node.told.number(kAXValueAttribute)
        if node.row.word == "page tab" { return value == 1 ? [.selectable, .selected] : [.selectable] }
        return value == 1 ? [.checkable, .checked] : value == 2 ? [.checkable, .indeterminate] : [.checkable]
    }

    private func readEditable(_ node: Node) -> Set<State> {
        var settable: DarwinBoolean = false
        let error = AXUIElementIsAttributeSettable(node.element, kAXValueAttribute as CFString, &settable)
        let lines: State = node.role == kAXTextAreaRole ? .multiLine : .singleLine
        return error == .success && settable.boolValue ? [lines, .editable, .focusable] : [lines, .readOnly]
    }

    private func hasClick(_ node: Node) -> Bool {
        var list: CFArray?
        guard AXUIElementCopyActionNames(node.element, &list) == .success else { return false }
        let names = list as? [String] ?? []
        return names.contains { [kAXPressAction, kAXConfirmAction, kAXPickAction, "AXOpen"].contains($0) }
    }

    /// Not hidden with its application, not in the Dock.
    private func isVisible(_ node: Node) -> Bool {
        if node.told.flag(kAXMinimizedAttribute) == true { return false }
        guard let parent = node.parent else { return node.told.flag(kAXHiddenAttribute) != true }
        return parent.states.contains(.visible)
    }

    /// Not scrolled away either. What has a surface of its own may hang over the edge of its window.
    private func isShowing(_ node: Node) -> Bool {
        guard let parent = node.parent else { return true }
        guard let bounds = node.told.bounds else { return parent.states.contains(.showing) }
        if bounds.isEmpty || Reader.surfaces.contains(node.role) { return !bounds.isEmpty }
        return parent.clip.map { !$0.intersection(bounds).isEmpty } ?? true
    }

    private func findClip(_ node: Node) -> Rect? {
        let above = node.parent?.clip
        guard let bounds = node.told.bounds else { return above }
        if Reader.surfaces.contains(node.role) { return bounds }
        return node.role == kAXScrollAreaRole ? above?.intersection(bounds) ?? bounds : above
    }
}

// MARK: - snapshot

@MainActor final class Snapshot {
    private let app: String
    private let interactive: Bool
    private let id = Snapshots.newId()
    private var count = 0
    private var record: [JSON] = []
    private var owner = ""  // of the elements, for as long as this copy of the application runs

    init(app: String, interactive: Bool) {
        self.app = app
        self.interactive = interactive
    }

    func run() throws -> JSON {
        try Permission.require()
        guard let running = Applications.findRunning(app)
            ?? Applications.findInstalled(app).flatMap({ Applications.findRunning($0) })
        else {
            try checkScreen()
            throw Applications.notRunning(app)
        }
        let pid = running.processIdentifier
        let name = Applications.name(running) ?? app
        let (root, truncated) = try readTree(running, name)
        owner = "\(pid):\(Int((running.launchDate?.timeIntervalSince1970 ?? 0) * 1000))"
        let tree = describe(root)
        try save()
        return .object([
            ("app", .string(name)), ("pid", .int(Int(pid))), ("snapshot_id", .string(id)), ("count", .int(count)),
            ("truncated", truncated ? .bool(true) : nil), ("tree", tree),
        ])
    }

    // Reading

    private func readTree(_ running: NSRunningApplication, _ name: String) throws -> (Node, Bool) {
        let element = AXUIElementCreateApplication(running.processIdentifier)
        let deadline = Deadline(ms: treeMs)
        let asked = askForWebContents(running, element)
        let appearing = Deadline(ms: webMs)
        while true {
            let reader = Reader(deadline, actions: interactive)
            let root = try reader.read(element, cut(name, bytes: 64))
            if !asked || appearing.isOver || deadline.isOver || !awaitsWebContents(root, reader.all) {
                return (root, reader.truncated)
            }
            turn(0.1)
        }
    }

    /// Chromium makes a tree of its web contents only for who asks. Electron's way to ask is in no list of attributes;
    /// where it is refused, and only there, the one that is VoiceOver's. It stays on while the application runs.
    private func askForWebContents(_ running: NSRunningApplication, _ element: AXUIElement) -> Bool {
        let error = setFlag(element, "AXManualAccessibility", true)
        if error == .success { return true }
        guard error == .attributeUnsupported, let bundle = running.bundleURL else { return false }
        let frameworks = bundle.appendingPathComponent("Contents/Frameworks")
        let isChromium = ["Electron Framework.framework", "Chromium Embedded Framework.framework"].contains {
            FileManager.default.fileExists(atPath: frameworks.appendingPathComponent($0).path)
        }
        return isChromium && setFlag(element, "AXEnhancedUserInterface", true) == .success
    }

    private func awaitsWebContents(_ root: Node, _ all: [Node]) -> Bool {
        root.children.contains { $0.role == kAXWindowRole }
            && !all.contains { $0.role == "AXWebArea" && !$0.children.isEmpty }
    }

    // Describing

    private func describe(_ root: Node) -> JSON {
        let members = describeAlone(root)
        return .object(members + [("children", .list(describeChildren(root)))])
    }

    /// What is below an element that is left out goes to the nearest one above that is not.
    private func describeChildren(_ node: Node) -> [JSON] {
        var list: [JSON] = []
        for child in node.children {
            if interactive, child.depth > windowDepth, !child.acts {
                list += describeChildren(child)
                continue
            }
            let members = describeAlone(child)
            let below = describeChildren(child)
            list.append(.object(members + [("children", below.isEmpty ? nil : .list(below))]))
        }
        return list
    }

    private func describeAlone(_ node: Node) -> [(String, JSON?)] {
        count += 1
        record.append(.object([
            ("bus", .string(owner)), ("path", .string(node.path.isEmpty ? "/" : node.path)),
            ("role", .string(node.row.word)), ("name", node.name.map { .string($0) }),
        ]))
        return [
            ("ref", .string("@\(id):e\(count)")),
            ("role", .string(node.row.word)),
            ("name", node.name.map { .string($0) }),
            ("states", .list(State.allCases.filter { node.states.contains($0) }.map { .string($0.rawValue) })),
            ("bounds", node.told.bounds?.json),
            ("text", node.text.map { .string($0) }),
            ("value", node.value.map { .string($0) }),
        ]
    }

    /// The members are those of a snapshot on Linux, so that a ref of either kind is stale for the other.
    private func save() throws {
        try Snapshots(StateRoot()).save(id, .object([
            ("v", .int(1)), ("bus_id", .string(Snapshot.bootId())), ("app", .string(owner)),
            ("elements", .list(record)),
        ]))
    }

    private static func bootId() -> String {
        var bytes = [CChar](repeating: 0, count: 64)
        var size = bytes.count - 1
        return sysctlbyname("kern.bootsessionuuid", &bytes, &size, nil, 0) == 0
            ? bytes.withUnsafeBufferPointer { String(cString: $0.baseAddress!) } : "macos"
    }
}

// MARK: - Commands

@MainActor func runLaunch(_ words: [String]) throws -> JSON? {
    var arguments = Arguments("launch", usage: "APP", count: 1, options: [
        Option(name: "activate"), Option(name: "timeout-ms", value: "MS"),
        Option(name: "arg", value: "X", many: true),
    ])
    try arguments.parse(words)
    if arguments.help { return nil }
    let timeout = try arguments.values("timeout-ms").first.map { try number($0, "--timeout-ms", 1...launchMsMax) }
    setMessagingTimeout(callSeconds)
    return try Launch(app: arguments.positional[0], arguments: arguments.values("arg"),
        activates: arguments.has("activate"), timeoutMs: timeout).run()
}

@MainActor func runSnapshot(_ words: [String]) throws -> JSON? {
    var arguments = Arguments("snapshot", usage: "--app APP", count: 0, options: [
        Option(name: "app", value: "APP"), Option(name: "interactive", letter: "i"),
    ])
    try arguments.parse(words)
    if arguments.help { return nil }
    guard let app = arguments.values("app").first else {
        throw Failure(.invalidArgs, "--app is missing: which application?")
    }
    setMessagingTimeout(callSeconds)
    do {
        return try Snapshot(app: app, interactive: arguments.has("interactive")).run()
    } catch var failure as Failure {
        failure.nothingWasDone = true  // looking changes nothing, whatever the code
        throw failure
    }
}

let usageText = """
    Usage: agent-desktop-macos-helper permissions
           agent-desktop-macos-helper request
           agent-desktop-macos-helper launch APP [--activate] [--timeout-ms MS] [--arg X]...
           agent-desktop-macos-helper snapshot --app APP [-i]

    """

/// Prints the reply; the exit status.
func answer(_ text: String, _ status: Int32) -> Int32 {
    if writeAll(STDOUT_FILENO, [UInt8](text.utf8)) { return status }
    let reason = String(cString: strerror(errno))
    FileHandle.standardError.write(Data("agent-desktop: cannot write the reply to stdout: \(reason)\n".utf8))
    return 1
}

@MainActor func run(_ words: [String]) -> Int32 {
    let commands: [String: @MainActor ([String]) throws -> JSON?] = ["launch": runLaunch, "snapshot": runSnapshot]
    let word = words.first ?? "--help"
    let command = commands[word] == nil ? "unknown" : word
    do {
        switch word {
        case "--help", "-h", "help": return answer(usageText, 0)
        case "permissions", "request":
            if words.count > 1 { throw Failure(.invalidArgs, "\(word) takes no arguments") }
            if word == "request" { Permission.request() }
            return answer(Permission.probe().json.line + "\n", 0)
        default:
            guard let run = commands[word] else {
                throw Failure(.invalidArgs, "there is no command '\(word)'; see agent-desktop-macos-helper --help")
            }
            guard let data = try run(Array(words.dropFirst())) else { return answer(usageText, 0) }
            return answer(envelope(command, ("data", data)).line + "\n", 0)
        }
    } catch {
        let failure = error as? Failure ?? Failure(.internal, "\(error)")
        return answer(envelope(command, ("error", failure.json)).line + "\n", failure.code == .invalidArgs ? 2 : 1)
    }
}

umask(0o077)  // no mode depends on the caller's
signal(SIGPIPE, SIG_IGN)  // a reader that left is an error of write(2)
exit(MainActor.assumeIsolated { run(Array(ProcessInfo.processInfo.arguments.dropFirst())) })
