//! Allocations of memory, and how each kind is released.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use driver_sys::{CUdeviceptr, CUresult};

use crate::device::Context;
use crate::error::{DriverError, Error};
use crate::lifetime::deferred_free::{DeferredFree, HostPointer};
use crate::lifetime::host_functions::ProgramObject;
use crate::lifetime::reserved_range::ReservedRange;
use crate::lifetime::stream_order::AccessHistory;
use crate::lifetime::stream_progress::StreamProgress;
use crate::lifetime::unpoisoned_lock::lock;

/// An allocation of device or host memory.
pub(crate) struct Allocation {
    pub(super) context: Context,
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    pub(super) host: Option<HostPointer>,
    pub(super) origin: Origin,
    pub(super) label: Mutex<Option<String>>,
    /// The accesses of streams to the allocation, recorded if there are several streams.
    pub(super) touched: AccessHistory,
}

/// The origin of an allocation, which determines how it is released.
pub(crate) enum Origin {
    /// Allocated with `cuMemAlloc` or `cuMemAllocManaged`.
    Device,
    /// Allocated with `cuMemHostAlloc`.
    Pinned,
    /// Registered with `cuMemHostRegister`. The object owns the memory.
    Registered(ProgramObject),
    /// Memory of another owner, which the object keeps alive.
    Borrowed(ProgramObject),
    /// Allocated with `cuMemAllocAsync` in this stream.
    Stream(Arc<StreamProgress>),
    /// Memory of another process, opened with `cuIpcOpenMemHandle`.
    Opened,
    /// A reserved address range with mapped memory.
    Reserved(Arc<ReservedRange>),
    /// Allocated by a node of a graph, with the ids of both. The graph frees it.
    Graph(u64, usize),
}

impl Allocation {
    pub(crate) fn new(
        context: &Context,
        address: CUdeviceptr,
        bytes: usize,
        origin: Origin,
    ) -> Self {
        let label = Mutex::default();
        let touched = AccessHistory::default();
        Self {
            context: context.clone(),
            address,
            bytes,
            host: None,
            origin,
            label,
            touched,
        }
    }

    /// Sets the label and passes it to an emulator.
    pub(super) fn set_label(&self, label: &str) {
        *lock(&self.label) = Some(label.to_string());
        self.tell_label(self.address);
    }

    /// Passes the label of the memory at `address` to an emulator, if the driver is one.
    pub(super) fn tell_label(&self, address: CUdeviceptr) {
        let Some(label) = lock(&self.label).clone() else {
            return;
        };

        let (Some(set), Ok(text)) = (
            self.context.driver().api().emuMemSetLabel,
            CString::new(label),
        ) else {
            return;
        };

        // SAFETY: the address is within this allocation, and the text is a C string.
        let code = unsafe { set(address, text.as_ptr()) };
        if code != CUresult::SUCCESS {
            log_event!(debug, ?code, ?text, "the emulator refused a label");
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // The owner is moved out, because it must be dropped after the memory is unused and outside
        // all locks.
        let no_owner = Origin::Borrowed(ProgramObject::new(()));
        let release = match (std::mem::replace(&mut self.origin, no_owner), self.host) {
            (Origin::Device, _) => DeferredFree::Memory(self.address),
            (Origin::Stream(progress), _) => DeferredFree::StreamMemory(self.address, progress),
            (Origin::Opened, _) => DeferredFree::Opened(self.address),
            (Origin::Reserved(reserved), _) => DeferredFree::Reserved(self.address, reserved),
            (Origin::Pinned, Some(pointer)) => DeferredFree::Pinned(pointer),
            (Origin::Registered(owner), Some(pointer)) => DeferredFree::Registered(pointer, owner),
            (Origin::Borrowed(owner) | Origin::Registered(owner), _) => DeferredFree::Object(owner),
            (Origin::Graph(..), _) | (Origin::Pinned, None) => return,
        };
        self.context.release(release);
    }
}

/// Converts an out-of-memory error into one with the numbers of bytes.
pub(crate) fn or_out_of_memory(error: DriverError, context: &Context, bytes: usize) -> Error {
    match (error.code, context.memory()) {
        (CUresult::OUT_OF_MEMORY, Ok((free, total))) => Error::OutOfMemory { bytes, free, total },
        _ => error.into(),
    }
}
