//! Opaque handles of driver objects, each with its own type.

use std::ffi::{c_int, c_void};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(std::ptr::null_mut());

            /// Returns true if this is the null handle.
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        // SAFETY: a handle only identifies an object of the driver, which accepts calls from every
        // thread.
        unsafe impl Send for $name {}
        // SAFETY: the handle is immutable and is not dereferenced in this process.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A context: the state of one process on one device.
    CUcontext;
    /// A loaded module: the machine code of kernels.
    CUmodule;
    /// A kernel of a module.
    CUfunction;
    /// A kernel of a library, which does not depend on a context.
    CUkernel;
    /// A stream: a queue of work.
    CUstream;
    /// An event: a point in a stream.
    CUevent;
    /// A graph that can be changed.
    CUgraph;
    /// A node of a graph.
    CUgraphNode;
    /// An executable graph.
    CUgraphExec;
    /// Texels in an opaque layout, for textures and surfaces.
    CUarray;
    /// A loaded library: the machine code of kernels, which does not depend on a context.
    CUlibrary;
    /// A link in progress.
    CUlinkState;
    /// A memory pool from which streams allocate.
    CUmemoryPool;
    /// An object of the program that graphs keep alive.
    CUuserObject;
    /// A callback that was registered with the driver's log.
    CUlogsCallbackHandle;
}

/// A device number, counted from 0.
pub type CUdevice = c_int;

/// An address in device memory.
pub type CUdeviceptr = u64;

/// The condition of a conditional node.
pub type CUgraphConditionalHandle = u64;

/// Physical memory without an address.
pub type CUmemGenericAllocationHandle = u64;
