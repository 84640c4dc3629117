//! Reserved address ranges and the memory mapped into them.

use std::sync::Mutex;

use driver_sys::{CUdeviceptr, CUmemGenericAllocationHandle};

use crate::error::DriverError;
use crate::lifetime::driver::Driver;
use crate::lifetime::unpoisoned_lock::lock;

/// Physical memory and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedChunk {
    pub(crate) handle: CUmemGenericAllocationHandle,
    pub(crate) bytes: usize,
}

/// A reserved address range and the memory mapped into it.
#[derive(Debug)]
pub(crate) struct ReservedRange {
    pub(crate) bytes: usize,
    /// The mapped chunks in order, each with its offset.
    pub(crate) pieces: Mutex<Vec<(usize, MappedChunk)>>,
}

impl ReservedRange {
    /// Returns an empty range of `bytes` addresses.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            pieces: Mutex::default(),
        }
    }

    /// Returns the end of the contiguous mapping that contains `start`. The result is at most
    /// `start` if that byte is not mapped.
    pub(crate) fn mapped_from(&self, start: usize) -> usize {
        let pieces = lock(&self.pieces);
        let first = pieces
            .partition_point(|(at, _)| *at <= start)
            .saturating_sub(1);
        let mut end = pieces.get(first).map_or(start, |(at, _)| start.min(*at));
        for (at, piece) in &pieces[first..] {
            if *at == end {
                end += piece.bytes;
            }
        }

        end
    }

    /// Returns the offset of the last chunk.
    pub(crate) fn last(&self) -> Option<usize> {
        lock(&self.pieces).last().map(|(at, _)| *at)
    }

    /// Unmaps and releases all memory, then frees the addresses.
    ///
    /// Continues after a failure, because each remaining call returns a separate resource.
    ///
    /// # Errors
    /// Returns the first failure.
    ///
    /// # Safety
    /// - The range must begin at `address`.
    /// - No work may use the memory any more.
    /// - The context of the memory must be current.
    pub(crate) unsafe fn release(
        &self,
        driver: Driver,
        address: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let mut result = Ok(());
        for (at, piece) in std::mem::take(&mut *lock(&self.pieces)) {
            let at = address + at as u64;
            // SAFETY: the caller guarantees that no work uses the memory any more.
            let unmapped = unsafe { cu_optional!(driver, cuMemUnmap(at, piece.bytes)) };
            // SAFETY: the chunk owned the handle, and the mapping is gone.
            let released = unsafe { cu_optional!(driver, cuMemRelease(piece.handle)) };
            result = result.and(unmapped).and(released);
        }
        // SAFETY: the caller guarantees that the range begins at `address` and is unused.
        result.and(unsafe { cu_optional!(driver, cuMemAddressFree(address, self.bytes)) })
    }
}
