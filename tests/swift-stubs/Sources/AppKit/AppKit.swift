// Stand-in for the small part of AppKit that shows one VM window: NSApplication,
// NSWindow, NSView, NSScreen, NSMenu, NSAlert, NSEvent. Names, argument labels,
// optionality and main-actor isolation follow the public SDK; behaviour is a
// simulation driven by VZSIM_* variables (see the README).

@_exported import Darwin
@_exported import StubSupport

// MARK: - Responders, views, screens

@preconcurrency @MainActor
open class NSResponder: NSObject {
    public override init() { super.init() }
    public required init?(coder: NSCoder) { nil }
    open var nextResponder: NSResponder?
    open var acceptsFirstResponder: Bool { false }
    open func becomeFirstResponder() -> Bool { true }
    open func resignFirstResponder() -> Bool { true }
    open func keyDown(with event: NSEvent) {}
    open func keyUp(with event: NSEvent) {}
    open func mouseDown(with event: NSEvent) {}
    open func flagsChanged(with event: NSEvent) {}
}

@preconcurrency @MainActor
open class NSView: NSResponder {
    public struct AutoresizingMask: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        public static let none: AutoresizingMask = []
        public static let minXMargin = AutoresizingMask(rawValue: 1)
        public static let width = AutoresizingMask(rawValue: 2)
        public static let maxXMargin = AutoresizingMask(rawValue: 4)
        public static let minYMargin = AutoresizingMask(rawValue: 8)
        public static let height = AutoresizingMask(rawValue: 16)
        public static let maxYMargin = AutoresizingMask(rawValue: 32)
    }

    open var frame: NSRect
    open var bounds: NSRect
    open var autoresizingMask: AutoresizingMask = .none
    open var translatesAutoresizingMaskIntoConstraints = true
    open var isHidden = false
    open var wantsLayer = false
    open private(set) var subviews: [NSView] = []
    open private(set) weak var superview: NSView?
    open internal(set) weak var window: NSWindow?
    open var needsDisplay = false

    public init(frame frameRect: NSRect) {
        frame = frameRect
        bounds = NSRect(origin: .zero, size: frameRect.size)
        super.init()
    }
    public override convenience init() { self.init(frame: .zero) }
    public required init?(coder: NSCoder) { nil }

    open func addSubview(_ view: NSView) {
        subviews.append(view)
        view.superview = self
        view.window = window
    }
    open func removeFromSuperview() {
        superview?.subviews.removeAll { $0 === self }
        superview = nil
    }
    open func setFrameSize(_ newSize: NSSize) { frame.size = newSize }
    open func viewDidMoveToWindow() {}
}

@preconcurrency @MainActor
open class NSScreen: NSObject {
    private static let only = NSScreen()
    /// nil when VZSIM_NO_SCREEN=1, as in a session without a display.
    open class var main: NSScreen? { Sim.flag("NO_SCREEN") ? nil : only }
    open class var screens: [NSScreen] { main.map { [$0] } ?? [] }
    open var frame: NSRect { NSRect(x: 0, y: 0, width: 1728, height: 1117) }
    open var visibleFrame: NSRect { NSRect(x: 0, y: 0, width: 1728, height: 1079) }
    open var backingScaleFactor: CGFloat { 2 }
}

// MARK: - Events

open class NSEvent: NSObject {
    public enum EventType: UInt, Sendable {
        case leftMouseDown = 1
        case keyDown = 10
        case keyUp = 11
        case flagsChanged = 12
        case applicationDefined = 15
    }
    public struct ModifierFlags: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        public static let shift = ModifierFlags(rawValue: 1 << 17)
        public static let control = ModifierFlags(rawValue: 1 << 18)
        public static let option = ModifierFlags(rawValue: 1 << 19)
        public static let command = ModifierFlags(rawValue: 1 << 20)
        public static let deviceIndependentFlagsMask = ModifierFlags(rawValue: 0xffff_0000)
    }
    open internal(set) var type: EventType = .applicationDefined
    open internal(set) var modifierFlags: ModifierFlags = []
    open var keyCode: UInt16 { 0 }
    open var isARepeat: Bool { false }

    open class func otherEvent(
        with type: NSEvent.EventType, location: NSPoint, modifierFlags flags: NSEvent.ModifierFlags,
        timestamp time: TimeInterval, windowNumber wNum: Int, context unusedPassNil: NSGraphicsContext?,
        subtype: Int16, data1 d1: Int, data2 d2: Int
    ) -> NSEvent? {
        let event = NSEvent()
        event.type = type
        event.modifierFlags = flags
        return event
    }
}

open class NSGraphicsContext: NSObject {}

// MARK: - Windows

@preconcurrency @MainActor
public protocol NSWindowDelegate: NSObjectProtocol {
    func windowShouldClose(_ sender: NSWindow) -> Bool
    func windowWillClose(_ notification: Notification)
    func windowDidBecomeKey(_ notification: Notification)
    func windowDidResize(_ notification: Notification)
    func windowDidMiniaturize(_ notification: Notification)
}

// Optional requirements do not exist on Linux; these defaults take their place.
extension NSWindowDelegate {
    public func windowShouldClose(_ sender: NSWindow) -> Bool { true }
    public func windowWillClose(_ notification: Notification) {}
    public func windowDidBecomeKey(_ notification: Notification) {}
    public func windowDidResize(_ notification: Notification) {}
    public func windowDidMiniaturize(_ notification: Notification) {}
}

@preconcurrency @MainActor
open class NSWindow: NSResponder {
    public struct StyleMask: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        public static let borderless: StyleMask = []
        public static let titled = StyleMask(rawValue: 1)
        public static let closable = StyleMask(rawValue: 2)
        public static let miniaturizable = StyleMask(rawValue: 4)
        public static let resizable = StyleMask(rawValue: 8)
        public static let fullScreen = StyleMask(rawValue: 1 << 14)
        public static let fullSizeContentView = StyleMask(rawValue: 1 << 15)
    }
    public enum BackingStoreType: UInt, Sendable {
        case retained = 0
        case nonretained = 1
        case buffered = 2
    }
    public struct CollectionBehavior: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        public static let fullScreenPrimary = CollectionBehavior(rawValue: 1 << 7)
        public static let fullScreenNone = CollectionBehavior(rawValue: 1 << 9)
    }
    public enum TabbingMode: Int, Sendable { case automatic, preferred, disallowed }
    public typealias FrameAutosaveName = String

    nonisolated public static let willCloseNotification = Notification.Name("NSWindowWillCloseNotification")
    nonisolated public static let didBecomeKeyNotification = Notification.Name("NSWindowDidBecomeKeyNotification")
    nonisolated(unsafe) open class var allowsAutomaticWindowTabbing: Bool {
        get { true }
        set { _ = newValue }
    }

    open var title: String = "" {
        didSet { if isVisible { Sim.log("window.title", ["title": title]) } }
    }
    open var subtitle: String = ""
    open weak var delegate: (any NSWindowDelegate)?
    open var contentView: NSView? {
        didSet { contentView?.window = self }
    }
    open var styleMask: StyleMask
    open var frame: NSRect
    open var minSize = NSSize(width: 0, height: 0)
    open var contentMinSize = NSSize(width: 0, height: 0)
    open var contentAspectRatio = NSSize(width: 0, height: 0)
    open var collectionBehavior: CollectionBehavior = []
    open var tabbingMode: TabbingMode = .automatic
    /// Defaults to true for a window made in code, as on macOS: unless set to
    /// false, close() releases the window and a later use of it crashes.
    open var isReleasedWhenClosed = true
    open private(set) var isVisible = false
    open private(set) var isKeyWindow = false
    open private(set) var firstResponder: NSResponder?
    open private(set) var frameAutosaveName: FrameAutosaveName = ""

    public init(
        contentRect: NSRect, styleMask style: NSWindow.StyleMask,
        backing backingStoreType: NSWindow.BackingStoreType, defer flag: Bool
    ) {
        frame = contentRect
        styleMask = style
        super.init()
        contentView = NSView(frame: NSRect(origin: .zero, size: contentRect.size))
    }
    public convenience init(
        contentRect: NSRect, styleMask style: NSWindow.StyleMask,
        backing backingStoreType: NSWindow.BackingStoreType, defer flag: Bool, screen: NSScreen?
    ) {
        self.init(contentRect: contentRect, styleMask: style, backing: backingStoreType, defer: flag)
    }
    public required init?(coder: NSCoder) { nil }

    open func center() {}
    open func setContentSize(_ size: NSSize) { frame.size = size }
    open func setFrame(_ frameRect: NSRect, display flag: Bool) { frame = frameRect }
    @discardableResult
    open func setFrameAutosaveName(_ name: FrameAutosaveName) -> Bool {
        frameAutosaveName = name
        return true
    }
    @discardableResult
    open func makeFirstResponder(_ responder: NSResponder?) -> Bool {
        firstResponder = responder
        return true
    }
    open func makeKey() { isKeyWindow = true }

    open func makeKeyAndOrderFront(_ sender: Any?) {
        show()
        isKeyWindow = true
        delegate?.windowDidBecomeKey(Notification(name: NSWindow.didBecomeKeyNotification, object: self))
    }
    open func orderFront(_ sender: Any?) { show() }
    open func orderFrontRegardless() { show() }
    open func orderOut(_ sender: Any?) {
        isVisible = false
        NSApplication.shared.forget(self)
        Sim.log("window.hidden", ["title": title])
    }

    private func show() {
        guard !isVisible else { return }
        isVisible = true
        NSApplication.shared.remember(self)
        Sim.log(
            "window.open",
            ["title": title, "width": Double(frame.width), "height": Double(frame.height)])
        if let after = Sim.integer("CLOSE_WINDOW_AFTER_MS") {
            DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(after)) { [weak self] in
                MainActor.assumeIsolated { self?.userCloses() }
            }
        }
    }

    func userCloses() {
        guard isVisible else { return }
        Sim.log("window.user-close", ["title": title])
        performClose(nil)
    }

    /// What a click on the close button does: asks the delegate first.
    open func performClose(_ sender: Any?) {
        if delegate?.windowShouldClose(self) ?? true { close() }
    }

    /// Closes without asking.
    open func close() {
        guard isVisible else { return }
        let note = Notification(name: NSWindow.willCloseNotification, object: self)
        delegate?.windowWillClose(note)
        NotificationCenter.default.post(note)
        isVisible = false
        isKeyWindow = false
        Sim.log("window.close", ["title": title, "releasedWhenClosed": isReleasedWhenClosed])
        NSApplication.shared.forget(self, closed: true)
    }
}

// MARK: - Menus

@preconcurrency @MainActor
open class NSMenuItem: NSObject {
    open var title: String
    open var action: Selector?
    open var keyEquivalent: String
    open var submenu: NSMenu?
    open weak var target: AnyObject?
    open var isEnabled = true
    open var tag = 0
    public override convenience init() { self.init(title: "", action: nil, keyEquivalent: "") }
    public init(title string: String, action selector: Selector?, keyEquivalent charCode: String) {
        title = string
        action = selector
        keyEquivalent = charCode
        super.init()
    }
    open class func separator() -> NSMenuItem { NSMenuItem() }
}

@preconcurrency @MainActor
open class NSMenu: NSObject {
    open var title: String
    open private(set) var items: [NSMenuItem] = []
    public override convenience init() { self.init(title: "") }
    public init(title: String) {
        self.title = title
        super.init()
    }
    open func addItem(_ newItem: NSMenuItem) { items.append(newItem) }
    @discardableResult
    open func addItem(
        withTitle string: String, action selector: Selector?, keyEquivalent charCode: String
    ) -> NSMenuItem {
        let item = NSMenuItem(title: string, action: selector, keyEquivalent: charCode)
        items.append(item)
        return item
    }
    open func setSubmenu(_ menu: NSMenu?, for item: NSMenuItem) { item.submenu = menu }
}

// MARK: - Alerts

@preconcurrency @MainActor
open class NSAlert: NSObject {
    public enum Style: UInt, Sendable { case warning, informational, critical }
    open var messageText = ""
    open var informativeText = ""
    open var alertStyle: Style = .warning
    @discardableResult
    open func addButton(withTitle title: String) -> NSObject { NSObject() }
    @discardableResult
    open func runModal() -> NSApplication.ModalResponse {
        Sim.log("alert", ["message": messageText, "informative": informativeText])
        return .alertFirstButtonReturn
    }
}

// MARK: - Application

@preconcurrency @MainActor
public protocol NSApplicationDelegate: NSObjectProtocol {
    func applicationWillFinishLaunching(_ notification: Notification)
    func applicationDidFinishLaunching(_ notification: Notification)
    func applicationShouldTerminate(_ sender: NSApplication) -> NSApplication.TerminateReply
    func applicationWillTerminate(_ notification: Notification)
    func applicationShouldTerminateAfterLastWindowClosed(_ sender: NSApplication) -> Bool
    func applicationShouldHandleReopen(_ sender: NSApplication, hasVisibleWindows flag: Bool) -> Bool
    func applicationSupportsSecureRestorableState(_ app: NSApplication) -> Bool
}

extension NSApplicationDelegate {
    public func applicationWillFinishLaunching(_ notification: Notification) {}
    public func applicationDidFinishLaunching(_ notification: Notification) {}
    public func applicationShouldTerminate(_ sender: NSApplication) -> NSApplication.TerminateReply {
        .terminateNow
    }
    public func applicationWillTerminate(_ notification: Notification) {}
    public func applicationShouldTerminateAfterLastWindowClosed(_ sender: NSApplication) -> Bool { false }
    public func applicationShouldHandleReopen(
        _ sender: NSApplication, hasVisibleWindows flag: Bool
    ) -> Bool { true }
    public func applicationSupportsSecureRestorableState(_ app: NSApplication) -> Bool { false }
}

@preconcurrency @MainActor public var NSApp: NSApplication! { NSApplication.shared }

@preconcurrency @MainActor
open class NSApplication: NSResponder {
    public enum ActivationPolicy: Int, Sendable {
        case regular = 0
        case accessory = 1
        case prohibited = 2
    }
    public enum TerminateReply: UInt, Sendable {
        case terminateCancel = 0
        case terminateNow = 1
        case terminateLater = 2
    }
    public struct ModalResponse: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int
        public init(rawValue: Int) { self.rawValue = rawValue }
        public static let alertFirstButtonReturn = ModalResponse(rawValue: 1000)
        public static let alertSecondButtonReturn = ModalResponse(rawValue: 1001)
    }

    nonisolated public static let willFinishLaunchingNotification =
        Notification.Name("NSApplicationWillFinishLaunchingNotification")
    nonisolated public static let didFinishLaunchingNotification =
        Notification.Name("NSApplicationDidFinishLaunchingNotification")
    nonisolated public static let willTerminateNotification =
        Notification.Name("NSApplicationWillTerminateNotification")

    private static let only = NSApplication()
    open class var shared: NSApplication { only }

    open weak var delegate: (any NSApplicationDelegate)?
    open var mainMenu: NSMenu?
    open var windowsMenu: NSMenu?
    open private(set) var windows: [NSWindow] = []
    open private(set) var isRunning = false
    open private(set) var isActive = false
    private var policy: ActivationPolicy = .prohibited
    private var launched = false
    private var stopping = false

    open func activationPolicy() -> ActivationPolicy { policy }
    @discardableResult
    open func setActivationPolicy(_ activationPolicy: ActivationPolicy) -> Bool {
        policy = activationPolicy
        Sim.log("app.policy", ["policy": "\(activationPolicy)"])
        return true
    }
    open func activate(ignoringOtherApps flag: Bool) { isActive = true }
    open func activate() { isActive = true }
    open func hide(_ sender: Any?) {}
    open func postEvent(_ event: NSEvent, atStart flag: Bool) {}
    open func orderFrontStandardAboutPanel(_ sender: Any?) {}

    open func finishLaunching() {
        guard !launched else { return }
        launched = true
        delegate?.applicationWillFinishLaunching(
            Notification(name: NSApplication.willFinishLaunchingNotification, object: self))
        let note = Notification(name: NSApplication.didFinishLaunchingNotification, object: self)
        delegate?.applicationDidFinishLaunching(note)
        NotificationCenter.default.post(note)
    }

    open func run() {
        isRunning = true
        stopping = false
        Sim.log("app.run")
        if let after = Sim.integer("QUIT_APP_AFTER_MS") {
            DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(after)) {
                MainActor.assumeIsolated { NSApplication.shared.userQuits() }
            }
        }
        SimCommands.shared.on("quit") {
            DispatchQueue.main.async { MainActor.assumeIsolated { NSApplication.shared.userQuits() } }
        }
        SimCommands.shared.on("close-window") {
            DispatchQueue.main.async {
                MainActor.assumeIsolated { for window in NSApplication.shared.windows { window.userCloses() } }
            }
        }
        finishLaunching()
        while !stopping {
            _ = RunLoop.main.run(mode: .default, before: Date(timeIntervalSinceNow: 0.02))
        }
        isRunning = false
        Sim.log("app.stopped")
    }

    private func userQuits() {
        Sim.log("app.user-quit")
        terminate(nil)
    }

    /// Makes run() return after the current event.
    open func stop(_ sender: Any?) { stopping = true }

    /// Never returns when the delegate lets the application go: the process exits 0.
    open func terminate(_ sender: Any?) {
        Sim.log("app.terminate")
        switch delegate?.applicationShouldTerminate(self) ?? .terminateNow {
        case .terminateNow: reply(toApplicationShouldTerminate: true)
        case .terminateCancel, .terminateLater: break
        }
    }

    open func reply(toApplicationShouldTerminate shouldTerminate: Bool) {
        guard shouldTerminate else { return }
        let note = Notification(name: NSApplication.willTerminateNotification, object: self)
        delegate?.applicationWillTerminate(note)
        NotificationCenter.default.post(note)
        Sim.log("app.exit")
        exit(0)
    }

    func remember(_ window: NSWindow) {
        if !windows.contains(where: { $0 === window }) { windows.append(window) }
    }
    func forget(_ window: NSWindow, closed: Bool = false) {
        windows.removeAll { $0 === window }
        guard closed, windows.isEmpty, isRunning else { return }
        if delegate?.applicationShouldTerminateAfterLastWindowClosed(self) ?? false {
            DispatchQueue.main.async { MainActor.assumeIsolated { NSApplication.shared.terminate(nil) } }
        }
    }
}
