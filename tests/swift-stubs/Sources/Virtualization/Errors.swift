// VZErrorDomain and VZError: the codes and Swift names are the framework's.

@_exported import AppKit
@_exported import StubSupport

public let VZErrorDomain = "VZErrorDomain"

public struct VZError: Error, CustomNSError, Hashable, @unchecked Sendable {
    public enum Code: Int, Equatable, Sendable {
        case internalError = 1
        case invalidVirtualMachineConfiguration = 2
        case invalidVirtualMachineState = 3
        case invalidVirtualMachineStateTransition = 4
        case invalidDiskImage = 5
        case virtualMachineLimitExceeded = 6
        case networkError = 7
        case outOfDiskSpace = 8
        case operationCancelled = 9
        case notSupported = 10
        case save = 11
        case restore = 12
        case restoreImageCatalogLoadFailed = 10001
        case invalidRestoreImageCatalog = 10002
        case noSupportedRestoreImagesInCatalog = 10003
        case restoreImageLoadFailed = 10004
        case invalidRestoreImage = 10005
        case installationRequiresUpdate = 10006
        case installationFailed = 10007
        case networkBlockDeviceNegotiationFailed = 20001
        case networkBlockDeviceDisconnected = 20002
        case usbControllerNotFound = 30001
        case deviceAlreadyAttached = 30002
        case deviceInitializationFailure = 30003
        case deviceNotFound = 30004
    }

    public static var errorDomain: String { VZErrorDomain }
    public let code: Code
    public let userInfo: [String: Any]

    public init(_ code: Code, userInfo: [String: Any] = [:]) {
        self.code = code
        self.userInfo = userInfo
    }

    public var errorCode: Int { code.rawValue }
    public var errorUserInfo: [String: Any] { userInfo }
    public var localizedDescription: String {
        userInfo[NSLocalizedDescriptionKey] as? String ?? "\(VZErrorDomain) error \(code.rawValue)."
    }

    public static func == (a: VZError, b: VZError) -> Bool { a.code == b.code }
    public func hash(into hasher: inout Hasher) { hasher.combine(code) }

    public static var internalError: Code { .internalError }
    public static var invalidVirtualMachineConfiguration: Code { .invalidVirtualMachineConfiguration }
    public static var invalidVirtualMachineState: Code { .invalidVirtualMachineState }
    public static var invalidVirtualMachineStateTransition: Code { .invalidVirtualMachineStateTransition }
    public static var invalidDiskImage: Code { .invalidDiskImage }
    public static var virtualMachineLimitExceeded: Code { .virtualMachineLimitExceeded }
    public static var networkError: Code { .networkError }
    public static var outOfDiskSpace: Code { .outOfDiskSpace }
    public static var operationCancelled: Code { .operationCancelled }
    public static var notSupported: Code { .notSupported }
    public static var save: Code { .save }
    public static var restore: Code { .restore }
    public static var restoreImageCatalogLoadFailed: Code { .restoreImageCatalogLoadFailed }
    public static var invalidRestoreImageCatalog: Code { .invalidRestoreImageCatalog }
    public static var noSupportedRestoreImagesInCatalog: Code { .noSupportedRestoreImagesInCatalog }
    public static var restoreImageLoadFailed: Code { .restoreImageLoadFailed }
    public static var invalidRestoreImage: Code { .invalidRestoreImage }
    public static var installationRequiresUpdate: Code { .installationRequiresUpdate }
    public static var installationFailed: Code { .installationFailed }
}

// Keys that exist in Apple's Foundation but not on Linux.
public let NSLocalizedFailureErrorKey = "NSLocalizedFailure"

extension VZError {
    /// An error whose parts are laid out as the framework lays them out: a failure,
    /// a reason, both joined in the description, and an optional POSIX cause.
    static func make(_ code: Code, _ failure: String, _ reason: String, posix: Int32? = nil) -> VZError {
        var info: [String: Any] = [
            NSLocalizedFailureErrorKey: failure,
            NSLocalizedFailureReasonErrorKey: reason,
            NSLocalizedDescriptionKey: failure + " " + reason,
        ]
        if let posix {
            info[NSUnderlyingErrorKey] = NSError(domain: NSPOSIXErrorDomain, code: Int(posix))
        }
        return VZError(code, userInfo: info)
    }

    static func configuration(_ reason: String, posix: Int32? = nil) -> VZError {
        make(.invalidVirtualMachineConfiguration, "Invalid virtual machine configuration.", reason, posix: posix)
    }
    static func transition(_ reason: String) -> VZError {
        make(.invalidVirtualMachineStateTransition, "Invalid virtual machine state transition.", reason)
    }
    static var limit: VZError {
        make(
            .virtualMachineLimitExceeded, "The number of virtual machines exceeds the limit.",
            "The maximum supported number of active virtual machines has been reached.")
    }

    /// As reported from hosts whose login keychain is locked or missing (macOS 15 and later).
    static var keychain: VZError {
        let reason = NSError(
            domain: NSOSStatusErrorDomain, code: -25308,
            userInfo: [NSLocalizedDescriptionKey: "Interaction is not allowed with the Security Server."])
        let cause = NSError(
            domain: VZErrorDomain, code: 1,
            userInfo: [NSLocalizedDescriptionKey: "Failed to generate keypair.", NSUnderlyingErrorKey: reason])
        return VZError(
            .internalError,
            userInfo: [
                NSLocalizedDescriptionKey: "Internal Virtualization error. The virtual machine failed to start.",
                NSUnderlyingErrorKey: cause,
            ])
    }

    /// The error that a VZSIM_* variable asks for: "limit", "keychain" or a code number.
    static func named(_ name: String, default fallback: Code) -> VZError {
        if name == "limit" { return .limit }
        if name == "keychain" { return .keychain }
        let code = Int(name).flatMap(Code.init(rawValue:)) ?? fallback
        if code == .virtualMachineLimitExceeded { return .limit }
        return make(code, "Simulated failure.", "VZErrorDomain code \(code.rawValue).")
    }
}
