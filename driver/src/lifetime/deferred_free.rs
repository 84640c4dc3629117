//! Deferred free: objects of destructors that wait until the device no longer uses them.
//!
//! Queued work uses memory, kernels and graphs by address. A caller that queues work has a share of
//! each object at that time. When the last share of an object is dropped, all work that uses it is
//! therefore already queued. The object can be released once every stream of the context has
//! completed what was queued in it by then. Until that time it waits here as a raw handle that
//! keeps nothing else alive.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

use driver_sys::{
    CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUmemGenericAllocationHandle, CUmemoryPool,
    CUmodule,
};

use crate::error::DriverError;
use crate::lifetime::driver::Driver;
use crate::lifetime::host_functions::ProgramObject;
use crate::lifetime::reserved_range::ReservedRange;
use crate::lifetime::stream_progress::{ProgressMark, StreamProgress};
use crate::lifetime::unpoisoned_lock::lock;

/// A resource that a destructor returns to the driver.
pub(crate) enum DeferredFree {
    Memory(CUdeviceptr),
    Pinned(HostPointer),
    Module(CUmodule),
    Event(CUevent),
    /// An event that a graph uses. The driver keeps events alive for waiting streams but not for
    /// graphs.
    GraphEvent(CUevent),
    Graph(CUgraph),
    Exec(CUgraphExec),
    Pool(CUmemoryPool),
    /// Memory that was allocated in the order of a stream, and is freed in the order of that
    /// stream.
    StreamMemory(CUdeviceptr, Arc<StreamProgress>),
    /// Memory that another process exported.
    Opened(CUdeviceptr),
    /// Physical memory, which has no address.
    Physical(CUmemGenericAllocationHandle),
    /// A reserved address range and the memory mapped into it.
    Reserved(CUdeviceptr, Arc<ReservedRange>),
    /// Registered memory of the program, and the object that owns it.
    Registered(HostPointer, ProgramObject),
    /// An object of the program, for example the function of a host node.
    Object(ProgramObject),
}

/// An address of host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) *mut c_void);

// SAFETY: the value is only an address. Code that dereferences it justifies that in its own
// comment.
unsafe impl Send for HostPointer {}
// SAFETY: the value is only an address, and it is immutable.
unsafe impl Sync for HostPointer {}

/// The resources that wait, each with the points that streams must reach first.
#[derive(Default)]
pub(crate) struct PendingFrees(Mutex<Vec<PendingFree>>);

/// A resource and the points that streams must reach before it is released.
struct PendingFree {
    marks: Vec<ProgressMark>,
    resource: DeferredFree,
}

impl PendingFrees {
    pub(crate) fn push(&self, marks: Vec<ProgressMark>, resource: DeferredFree) {
        lock(&self.0).push(PendingFree { marks, resource });
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Removes and returns the resources that no stream can use any more.
    pub(crate) fn take_done(&self) -> Vec<DeferredFree> {
        let mut pending = lock(&self.0);
        let is_unused = |entry: &mut PendingFree| entry.marks.iter().all(ProgressMark::is_reached);
        pending
            .extract_if(.., is_unused)
            .map(|entry| entry.resource)
            .collect()
    }

    /// Removes and returns all resources.
    pub(crate) fn take_all(&self) -> Vec<DeferredFree> {
        std::mem::take(&mut *lock(&self.0))
            .into_iter()
            .map(|entry| entry.resource)
            .collect()
    }
}

impl DeferredFree {
    /// Releases the resource and returns the object that must be dropped outside all locks.
    ///
    /// Errors are logged only, because a destructor cannot return them. After a device fault every
    /// call here fails.
    pub(crate) fn now(self, driver: Driver) -> Option<ProgramObject> {
        match self.call(driver) {
            Ok(left) => left,
            Err(error) => {
                log_event!(warn, %error, "not released");
                None
            }
        }
    }

    fn call(self, driver: Driver) -> Result<Option<ProgramObject>, DriverError> {
        // SAFETY: the destructor that made this value owned the resource and had its last share.
        // The context calls this only after the streams have reached the points recorded then, so
        // no work uses the resource. The caller made the context current.
        unsafe {
            match self {
                Self::Memory(address) => cu!(driver, cuMemFree_v2(address))?,
                Self::Pinned(pointer) => cu_optional!(driver, cuMemFreeHost(pointer.0))?,
                Self::Module(module) => cu!(driver, cuModuleUnload(module))?,
                Self::Event(event) | Self::GraphEvent(event) => {
                    cu!(driver, cuEventDestroy_v2(event))?
                }
                Self::Graph(graph) => cu_optional!(driver, cuGraphDestroy(graph))?,
                Self::Exec(exec) => cu_optional!(driver, cuGraphExecDestroy(exec))?,
                Self::Pool(pool) => cu_optional!(driver, cuMemPoolDestroy(pool))?,
                Self::StreamMemory(address, progress) => {
                    cu_optional!(driver, cuMemFreeAsync(address, progress.raw))?;
                }
                Self::Opened(address) => cu_optional!(driver, cuIpcCloseMemHandle(address))?,
                Self::Physical(handle) => cu_optional!(driver, cuMemRelease(handle))?,
                Self::Reserved(address, reserved) => reserved.release(driver, address)?,
                Self::Registered(pointer, owner) => {
                    let unregistered = cu_optional!(driver, cuMemHostUnregister(pointer.0));
                    // If the driver cannot unregister the memory, for example after a fault, the
                    // device may still access it. The owner is leaked then.
                    let owner = ManuallyDrop::new(owner);
                    unregistered?;
                    return Ok(Some(ManuallyDrop::into_inner(owner)));
                }
                Self::Object(object) => return Ok(Some(object)),
            }
        }
        Ok(None)
    }
}
