//! The result code of every driver call.

use std::ffi::c_uint;
use std::fmt;

/// The result code of a driver call. Codes of newer drivers are kept and print as their number.
#[must_use]
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUresult(pub c_uint);

macro_rules! results {
    ($($name:ident = $code:literal, $c_name:literal, $meaning:literal;)*) => {
        impl CUresult {
            $(#[doc = concat!("`", $c_name, "`: ", $meaning, ".")] pub const $name: Self = Self($code);)*

            /// All listed codes in ascending order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name in `cuda.h` and a short description, or `None` for a code that is
            /// not listed.
            fn row(self) -> Option<(&'static str, &'static str)> {
                match self.0 {
                    $($code => Some(($c_name, $meaning)),)*
                    _ => None,
                }
            }
        }
    };
}

impl CUresult {
    /// Returns the name in `cuda.h`, or `None` for a code that is not listed.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.0)
    }

    /// Returns a short description, or `None` for a code that is not listed.
    pub fn description(self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// Converts the code to a `Result`, which is `Ok` only for `SUCCESS`.
    ///
    /// # Errors
    /// Returns every other code as an error, including `NOT_READY`.
    pub fn ok(self) -> Result<(), Self> {
        if self == Self::SUCCESS {
            Ok(())
        } else {
            Err(self)
        }
    }

    /// Returns true if a kernel has failed on the device. Every later call in the context fails
    /// with the same code.
    pub fn is_device_fault(self) -> bool {
        matches!(self.0, 226 | 700 | 702 | 710 | 714..=719 | 721)
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((name, meaning)) => write!(f, "{name} ({}): {meaning}", self.0),
            None => write!(f, "CUDA error {}", self.0),
        }
    }
}

impl std::error::Error for CUresult {}

results! {
    SUCCESS = 0, "CUDA_SUCCESS", "no error";
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE", "a parameter is outside its range";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY", "not enough memory or other resources";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called or failed";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down";
    PROFILER_DISABLED = 5, "CUDA_ERROR_PROFILER_DISABLED", "an outside profiler is attached";
    PROFILER_NOT_INITIALIZED = 6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "no longer returned";
    PROFILER_ALREADY_STARTED = 7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "no longer returned";
    PROFILER_ALREADY_STOPPED = 8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "no longer returned";
    STUB_LIBRARY = 34, "CUDA_ERROR_STUB_LIBRARY", "the library is the toolkit's stub, not a driver";
    CALL_REQUIRES_NEWER_DRIVER = 36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the call needs a newer driver";
    DEVICE_UNAVAILABLE = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is in exclusive use or otherwise unavailable";
    MULTICAST_RESOURCE_FULL = 47, "CUDA_ERROR_MULTICAST_RESOURCE_FULL", "no room to bind memory to a multicast object";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE", "the driver found no CUDA device";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE", "no device of that number, or an action it does not allow";
    DEVICE_NOT_LICENSED = 102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "the grid licence is not applied";
    INVALID_IMAGE = 200, "CUDA_ERROR_INVALID_IMAGE", "the module is not an image the driver knows";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT", "no context is current, or the one passed is not valid";
    CONTEXT_ALREADY_CURRENT = 202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "no longer returned";
    MAP_FAILED = 205, "CUDA_ERROR_MAP_FAILED", "mapping or registering failed";
    UNMAP_FAILED = 206, "CUDA_ERROR_UNMAP_FAILED", "unmapping or unregistering failed";
    ARRAY_IS_MAPPED = 207, "CUDA_ERROR_ARRAY_IS_MAPPED", "a mapped array cannot be destroyed";
    ALREADY_MAPPED = 208, "CUDA_ERROR_ALREADY_MAPPED", "the resource is already mapped";
    NO_BINARY_FOR_GPU = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this device";
    ALREADY_ACQUIRED = 210, "CUDA_ERROR_ALREADY_ACQUIRED", "the resource is already acquired";
    NOT_MAPPED = 211, "CUDA_ERROR_NOT_MAPPED", "the resource is not mapped";
    NOT_MAPPED_AS_ARRAY = 212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array";
    NOT_MAPPED_AS_POINTER = 213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer";
    ECC_UNCORRECTABLE = 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "an ECC error that could not be corrected";
    UNSUPPORTED_LIMIT = 215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the device does not have this limit";
    CONTEXT_ALREADY_IN_USE = 216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is bound to another thread";
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the devices cannot reach each other";
    INVALID_PTX = 218, "CUDA_ERROR_INVALID_PTX", "compiling the PTX failed";
    INVALID_GRAPHICS_CONTEXT = 219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "an error with a graphics context";
    NVLINK_UNCORRECTABLE = 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "an NVLink error that could not be corrected";
    JIT_COMPILER_NOT_FOUND = 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the driver's PTX compiler library is missing";
    UNSUPPORTED_PTX_VERSION = 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX version is newer than the driver";
    JIT_COMPILATION_DISABLED = 223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling PTX is disabled";
    UNSUPPORTED_EXEC_AFFINITY = 224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "the device has no such execution affinity";
    UNSUPPORTED_DEVSIDE_SYNC = 225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the PTX synchronises the device from a kernel";
    CONTAINED = 226, "CUDA_ERROR_CONTAINED", "an exception on the device, contained by the GPU";
    INSUFFICIENT_LOADER_VERSION = 227, "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION", "the loader is too old for the module";
    INVALID_SOURCE = 300, "CUDA_ERROR_INVALID_SOURCE", "the kernel source is not valid";
    FILE_NOT_FOUND = 301, "CUDA_ERROR_FILE_NOT_FOUND", "the file was not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared object lacks a symbol";
    SHARED_OBJECT_INIT_FAILED = 303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared object failed to start";
    OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM", "a call to the operating system failed";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE", "the handle is not valid";
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE", "the resource is not in a state for this operation";
    LOSSY_QUERY = 402, "CUDA_ERROR_LOSSY_QUERY", "the query would lose information, such as edge data";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND", "no symbol of that name";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY", "earlier work has not finished";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel used an address that is not valid";
    LAUNCH_OUT_OF_RESOURCES = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch needs more registers or threads than there are";
    LAUNCH_TIMEOUT = 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran too long";
    LAUNCH_INCOMPATIBLE_TEXTURING = 703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "incompatible texturing mode";
    PEER_ACCESS_ALREADY_ENABLED = 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is already in use";
    CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the current context was destroyed";
    ASSERT = 710, "CUDA_ERROR_ASSERT", "an assertion failed in a kernel";
    TOO_MANY_PEERS = 711, "CUDA_ERROR_TOO_MANY_PEERS", "no room for more peers";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is already registered";
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered";
    HARDWARE_STACK_ERROR = 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel broke its stack";
    ILLEGAL_INSTRUCTION = 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel met an illegal instruction";
    MISALIGNED_ADDRESS = 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used an address that is not aligned";
    INVALID_ADDRESS_SPACE = 717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address of the wrong state space";
    INVALID_PC = 718, "CUDA_ERROR_INVALID_PC", "a kernel's program counter left its code";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed on the device";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "more blocks than a cooperative launch can hold";
    TENSOR_MEMORY_LEAK = 721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "a kernel ended with tensor memory allocated";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED", "the system or device does not support the operation";
    SYSTEM_NOT_READY = 802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready for CUDA work";
    SYSTEM_DRIVER_MISMATCH = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the kernel driver and the CUDA driver differ in version";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "the device does not support forward compatibility";
    MPS_CONNECTION_FAILED = 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS control daemon";
    MPS_RPC_FAILURE = 806, "CUDA_ERROR_MPS_RPC_FAILURE", "the connection to the MPS server failed";
    MPS_SERVER_NOT_READY = 807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server takes no clients now";
    MPS_MAX_CLIENTS_REACHED = 808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "no room for more MPS clients";
    MPS_MAX_CONNECTIONS_REACHED = 809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "no room for more MPS connections";
    MPS_CLIENT_TERMINATED = 810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client";
    CDP_NOT_SUPPORTED = 811, "CUDA_ERROR_CDP_NOT_SUPPORTED", "launches from kernels are not supported here";
    CDP_VERSION_MISMATCH = 812, "CUDA_ERROR_CDP_VERSION_MISMATCH", "two versions of launches from kernels meet";
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation is not permitted while the stream captures";
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error ended the capture";
    STREAM_CAPTURE_MERGE = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "two independent captures would merge";
    STREAM_CAPTURE_UNMATCHED = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun in this stream";
    STREAM_CAPTURE_UNJOINED = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a fork was not joined to the stream that captures";
    STREAM_CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a dependency would leave the capture";
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the legacy stream would depend on the capture";
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a stream that captures";
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun on another thread";
    TIMEOUT = 909, "CUDA_ERROR_TIMEOUT", "the wait took too long";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the change is more than a graph update allows";
    EXTERNAL_DEVICE = 911, "CUDA_ERROR_EXTERNAL_DEVICE", "a device outside the GPU failed";
    INVALID_CLUSTER_SIZE = 912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster's size is not valid";
    FUNCTION_NOT_LOADED = 913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded yet";
    INVALID_RESOURCE_TYPE = 914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "a resource of the wrong type";
    INVALID_RESOURCE_CONFIGURATION = 915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "resources insufficient or not applicable";
    KEY_ROTATION = 916, "CUDA_ERROR_KEY_ROTATION", "rotating a key failed";
    STREAM_DETACHED = 917, "CUDA_ERROR_STREAM_DETACHED", "the stream's context is gone";
    GRAPH_RECAPTURE_FAILURE = 918, "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", "recapturing a graph failed";
    FABRIC_NOT_READY = 919, "CUDA_ERROR_FABRIC_NOT_READY", "the GPU fabric is not ready";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN", "an unknown internal error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_are_named_in_full() {
        assert!(CUresult::ALL.is_sorted_by(|a, b| a < b));
        for code in &CUresult::ALL[1..] {
            assert!(code.name().unwrap().starts_with("CUDA_ERROR_"), "{code}");
        }
    }

    #[test]
    fn unlisted_codes_print_as_their_number() {
        assert_eq!(CUresult(4242).to_string(), "CUDA error 4242");
        assert_eq!(
            CUresult::OUT_OF_MEMORY.to_string(),
            "CUDA_ERROR_OUT_OF_MEMORY (2): not enough memory or other resources"
        );
    }
}
