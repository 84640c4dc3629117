//! Handles: what the driver hands out and takes back, each its own type.

use std::ffi::{c_int, c_void};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The handle of nothing.
            pub const NULL: Self = Self(std::ptr::null_mut());

            /// Whether this is the handle of nothing.
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        // SAFETY: a handle is a name for an object of the driver, which serves calls from every thread.
        unsafe impl Send for $name {}
        // SAFETY: as above; the handle itself is never written through.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A context: one process's state on one device.
    CUcontext;
    /// A loaded module: the machine code of some kernels.
    CUmodule;
    /// One kernel of a module.
    CUfunction;
    /// One kernel of a library, independent of a context.
    CUkernel;
    /// A queue of work.
    CUstream;
    /// A point in a stream.
    CUevent;
    /// A graph under construction.
    CUgraph;
    /// A node of one graph.
    CUgraphNode;
    /// A graph ready to launch.
    CUgraphExec;
    /// Texels in an order of the driver's own, which textures and surfaces are made of.
    CUarray;
    /// A loaded library: the machine code of some kernels, independent of a context.
    CUlibrary;
    /// A link in progress.
    CUlinkState;
    /// A pool of memory that streams allocate from.
    CUmemoryPool;
    /// An object of the program that graphs keep alive.
    CUuserObject;
    /// A callback registered with the driver's log.
    CUlogsCallbackHandle;
}

/// A device by its number, counted from 0.
pub type CUdevice = c_int;

/// An address in device memory.
pub type CUdeviceptr = u64;

/// The condition of a conditional node.
pub type CUgraphConditionalHandle = u64;

/// Memory that is not mapped to an address yet.
pub type CUmemGenericAllocationHandle = u64;
