//! What destructors give back, once nothing on the device can use it.
//!
//! Work names memory, kernels and graphs by address, and whoever gives a stream work holds what the work names. So when
//! the last holder drops a thing, all work that uses it was given before. It is released when every stream of the
//! context has come as far as it was given then. Until then it waits here, as a bare handle that keeps nothing alive.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

use driver_sys::{
    CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUmemGenericAllocationHandle, CUmemoryPool,
    CUmodule,
};

use crate::callback::ProgramObject;
use crate::lock::lock;
use crate::reserved::Reserved;
use crate::timeline::{Mark, Timeline};
use crate::{Driver, DriverError};

/// What a destructor gives back.
pub(crate) enum Release {
    Memory(CUdeviceptr),
    Pinned(HostPointer),
    Module(CUmodule),
    Event(CUevent),
    /// One that a graph names.
    GraphEvent(CUevent),
    Graph(CUgraph),
    Exec(CUgraphExec),
    Pool(CUmemoryPool),
    /// Memory taken in the order of a stream, which takes it back.
    StreamMemory(CUdeviceptr, Arc<Timeline>),
    /// Memory of another process.
    Opened(CUdeviceptr),
    /// Memory without an address.
    Physical(CUmemGenericAllocationHandle),
    /// Addresses, and what is mapped there.
    Reserved(CUdeviceptr, Arc<Reserved>),
    /// Registered memory of the program, and the object that keeps it.
    Registered(HostPointer, ProgramObject),
    /// An object of the program, for example the function of a host node.
    Object(ProgramObject),
}

/// An address of host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) *mut c_void);

// SAFETY: it is an address; whoever goes through it says why the memory is there and who else uses it.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

/// What waits to be released, with the places that streams must reach before.
#[derive(Default)]
pub(crate) struct Pending(Mutex<Vec<(Vec<Mark>, Release)>>);

impl Pending {
    pub(crate) fn push(&self, marks: Vec<Mark>, what: Release) {
        lock(&self.0).push((marks, what));
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Takes out what nothing can use any more.
    pub(crate) fn take_done(&self) -> Vec<Release> {
        let mut pending = lock(&self.0);
        let done = pending.extract_if(.., |(marks, _)| marks.iter().all(Mark::is_reached));
        done.map(|(_, what)| what).collect()
    }

    /// Takes out everything.
    pub(crate) fn take_all(&self) -> Vec<Release> {
        std::mem::take(&mut *lock(&self.0))
            .into_iter()
            .map(|(_, what)| what)
            .collect()
    }
}

impl Release {
    /// Gives it back, and returns what is to be dropped outside of all locks. A destructor cannot report a failure;
    /// after a fault of the device all of these calls fail.
    pub(crate) fn now(self, driver: Driver) -> Option<ProgramObject> {
        match self.call(driver) {
            Ok(left) => left,
            Err(error) => {
                tell!(warn, %error, "not released");
                None
            }
        }
    }

    fn call(self, driver: Driver) -> Result<Option<ProgramObject>, DriverError> {
        // SAFETY: the destructor that made the value owned the object and was the last to name it, and no work that
        // uses it is left. The caller made its context current.
        unsafe {
            match self {
                Self::Memory(address) => cu!(driver, cuMemFree_v2(address))?,
                Self::Pinned(pointer) => cu_if_there!(driver, cuMemFreeHost(pointer.0))?,
                Self::Module(module) => cu!(driver, cuModuleUnload(module))?,
                Self::Event(event) | Self::GraphEvent(event) => {
                    cu!(driver, cuEventDestroy_v2(event))?
                }
                Self::Graph(graph) => cu_if_there!(driver, cuGraphDestroy(graph))?,
                Self::Exec(exec) => cu_if_there!(driver, cuGraphExecDestroy(exec))?,
                Self::Pool(pool) => cu_if_there!(driver, cuMemPoolDestroy(pool))?,
                Self::StreamMemory(address, timeline) => {
                    cu_if_there!(driver, cuMemFreeAsync(address, timeline.raw))?;
                }
                Self::Opened(address) => cu_if_there!(driver, cuIpcCloseMemHandle(address))?,
                Self::Physical(handle) => cu_if_there!(driver, cuMemRelease(handle))?,
                Self::Reserved(address, reserved) => reserved.release(driver, address)?,
                Self::Registered(pointer, owner) => {
                    let unregistered = cu_if_there!(driver, cuMemHostUnregister(pointer.0));
                    // Memory that the device may still reach, for example after a fault, is never given back.
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
