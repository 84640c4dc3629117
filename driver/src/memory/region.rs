//! Regions: ranges of bytes that keep their allocation alive.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use driver_sys::CUdeviceptr;

use crate::device::Context;
use crate::device::context::expect_same;
use crate::error::Error;
use crate::lifetime::stream_order::{AccessHistory, ByteRange};
use crate::lifetime::unpoisoned_lock::lock;
use crate::memory::ElementType;
use crate::memory::allocation::{Allocation, Origin};

/// A range of bytes of an allocation, with the element type of its view.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let region = x.view_range(1..3).region().clone();
/// assert_eq!((region.range(), region.elem().name()), (4..12, "f32"));
/// assert_eq!(region.to_string(), "x[4..12 of 16 bytes]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Region {
    pub(super) allocation: Arc<Allocation>,
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) elem: &'static ElementType,
}

impl Region {
    /// Returns the device address.
    pub fn address(&self) -> CUdeviceptr {
        self.allocation.address + self.start as u64
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the element type of the view.
    pub fn elem(&self) -> ElementType {
        *self.elem
    }

    /// Returns the label of the allocation, if it has one.
    pub fn label(&self) -> Option<String> {
        lock(&self.allocation.label).clone()
    }

    /// Returns the label of the allocation, or its address.
    pub fn name(&self) -> String {
        self.label()
            .unwrap_or_else(|| format!("{:#x}", self.allocation.address))
    }

    /// Returns the byte range within the allocation.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// Returns the host address, if the memory is host memory that the device can access.
    pub(crate) fn host(&self) -> Option<*mut c_void> {
        self.allocation
            .host
            .map(|pointer| pointer.0.wrapping_byte_add(self.start))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.allocation.context
    }

    /// Returns the ids of the graph and the node that allocate the memory, if they do.
    pub(crate) fn graph(&self) -> Option<(u64, usize)> {
        match self.allocation.origin {
            Origin::Graph(graph, node) => Some((graph, node)),
            _ => None,
        }
    }

    /// Returns a number that identifies the allocation while it lives.
    pub(crate) fn memory(&self) -> usize {
        Arc::as_ptr(&self.allocation) as usize
    }

    pub(crate) fn same_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
    }

    /// Returns true if both are the same bytes.
    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.same_memory(other) && self.start == other.start && self.bytes == other.bytes
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let a = self.range();
        let b = other.range();
        self.same_memory(other) && a.start.max(b.start) < a.end.min(b.end)
    }

    /// Returns true if this region contains every byte of `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let a = self.range();
        let b = other.range();
        self.same_memory(other) && a.start <= b.start && b.end <= a.end
    }

    pub(crate) fn expect_in(&self, context: &Context, user: &str) -> Result<(), Error> {
        if self.context().same(context) {
            return Ok(());
        }
        expect_same(
            &format!("buffer {}", self.name()),
            self.context(),
            user,
            context,
        )
    }
}

impl ByteRange for Region {
    fn memory(&self) -> usize {
        Self::memory(self)
    }

    fn range(&self) -> Range<usize> {
        Self::range(self)
    }

    fn touched(&self) -> &AccessHistory {
        &self.allocation.touched
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        if self.bytes != self.allocation.bytes {
            write!(
                f,
                "[{}..{} of {} bytes]",
                self.range().start,
                self.range().end,
                self.allocation.bytes
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Checks that the memory does not belong to a graph, for work of a stream.
pub(crate) fn refuse_graph_memory(region: &Region, user: &str) -> Result<(), Error> {
    if region.graph().is_none() {
        return Ok(());
    }

    let buffer = region.name();
    let user = user.to_string();
    Err(Error::GraphMemory {
        buffer,
        user,
        problem: "a graph allocates it, for its own nodes",
    })
}
