//! Addresses without memory, and the memory that is mapped there.

use std::sync::Mutex;

use driver_sys::{CUdeviceptr, CUmemGenericAllocationHandle};

use crate::lock::lock;
use crate::{Driver, DriverError};

/// A handle of memory, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) handle: CUmemGenericAllocationHandle,
    pub(crate) bytes: usize,
}

/// Reserved addresses, and what is mapped there.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) bytes: usize,
    /// Each with its offset, in order.
    pub(crate) pieces: Mutex<Vec<(usize, Piece)>>,
}

impl Reserved {
    /// So many bytes of addresses, with nothing there.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            pieces: Mutex::default(),
        }
    }

    /// Where the mapped bytes end that begin at or before this one.
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

    /// Where the last piece begins.
    pub(crate) fn last(&self) -> Option<usize> {
        lock(&self.pieces).last().map(|(at, _)| *at)
    }

    /// Gives back what is mapped, then the addresses. Tries all of it, and tells the first failure.
    ///
    /// # Safety
    /// The range begins at the address, and nothing uses it any more. Its context is current.
    pub(crate) unsafe fn release(
        &self,
        driver: Driver,
        address: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let mut result = Ok(());
        for (at, piece) in std::mem::take(&mut *lock(&self.pieces)) {
            let at = address + at as u64;
            // SAFETY: the caller vouches that nothing uses the memory.
            let unmapped = unsafe { cu_if_there!(driver, cuMemUnmap(at, piece.bytes)) };
            // SAFETY: the handle was this range's.
            let released = unsafe { cu_if_there!(driver, cuMemRelease(piece.handle)) };
            result = result.and(unmapped).and(released);
        }
        // SAFETY: the caller vouches for the addresses.
        result.and(unsafe { cu_if_there!(driver, cuMemAddressFree(address, self.bytes)) })
    }
}
