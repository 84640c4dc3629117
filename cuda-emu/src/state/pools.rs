//! Memory pools: what streams allocate from.

use warpwright_driver_sys::{CUmemPool_attribute, CUresult};

use crate::error::{Result, refuse};

/// Whose memory a pool gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PoolPlace {
    Device(u32),
    /// Pinned memory of the host.
    #[default]
    Host,
    /// Memory that host and devices share.
    Managed,
}

/// A memory pool. A pool holds on to what is freed, up to its threshold, until somebody waits for a stream.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) place: PoolPlace,
    /// Bytes that it may hold at most; 0 is no bound.
    pub(crate) most: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Bytes that it keeps when somebody waits.
    pub(crate) threshold: u64,
    /// What may be reused: kept and without effect, as addresses are never reused here.
    pub(crate) reuse: [i32; 3],
}

impl Pool {
    pub(crate) fn at(place: PoolPlace, most: u64) -> Self {
        Self {
            place,
            most,
            reuse: [1; 3],
            ..Self::default()
        }
    }

    /// Counts an allocation, unless the pool may not grow so far.
    pub(crate) fn take(&mut self, bytes: u64) -> Result {
        if self.most > 0 && self.used + bytes > self.most {
            return refuse(
                CUresult::OUT_OF_MEMORY,
                format!(
                    "{bytes} bytes, but {} of the {} bytes of the pool are in use",
                    self.used, self.most
                ),
            );
        }
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        self.reserved = self.reserved.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved);
        Ok(())
    }

    /// Gives back what it holds beyond `keep` bytes and does not use.
    pub(crate) fn trim(&mut self, keep: u64) {
        self.reserved = self.reserved.min(keep.max(self.used));
    }

    /// An attribute; the first three are 32-bit integers, the others 64-bit ones.
    pub(crate) fn attribute(&self, attribute: CUmemPool_attribute) -> Option<u64> {
        use CUmemPool_attribute as A;
        Some(match attribute {
            CUmemPool_attribute(which @ 1..=3) => self.reuse[which as usize - 1] as u64,
            A::RELEASE_THRESHOLD => self.threshold,
            A::RESERVED_MEM_CURRENT => self.reserved,
            A::RESERVED_MEM_HIGH => self.reserved_high,
            A::USED_MEM_CURRENT => self.used,
            A::USED_MEM_HIGH => self.used_high,
            _ => return None,
        })
    }

    /// Sets an attribute; the high marks can only be reset to zero.
    pub(crate) fn set_attribute(&mut self, attribute: CUmemPool_attribute, value: u64) -> Result {
        use CUmemPool_attribute as A;
        match (attribute, value) {
            (CUmemPool_attribute(which @ 1..=3), _) => {
                self.reuse[which as usize - 1] = value as i32
            }
            (A::RELEASE_THRESHOLD, _) => self.threshold = value,
            (A::RESERVED_MEM_HIGH, 0) => self.reserved_high = self.reserved,
            (A::USED_MEM_HIGH, 0) => self.used_high = self.used,
            _ => {
                let text = format!("pool attribute {attribute:?} cannot be set to {value}");
                return refuse(CUresult::INVALID_VALUE, text);
            }
        }
        Ok(())
    }
}
