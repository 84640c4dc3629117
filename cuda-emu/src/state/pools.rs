//! Memory pools, from which streams allocate.

use warpwright_driver_sys::{CUmemPool_attribute, CUresult};

use crate::error::{Result, refuse};

/// The kind of memory that a pool provides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PoolPlace {
    Device(u32),
    /// Pinned memory of the host.
    #[default]
    Host,
    /// Memory that the host and the devices share.
    Managed,
}

/// A memory pool.
///
/// A pool keeps freed memory up to its threshold until the program waits for a stream.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) place: PoolPlace,
    /// The maximum size in bytes, or 0 for no limit.
    pub(crate) most: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// The number of bytes that it keeps when the program waits.
    pub(crate) threshold: u64,
    /// The reuse policies, which have no effect because addresses are never reused.
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

    /// Counts an allocation.
    ///
    /// # Errors
    /// Returns an error if the pool would exceed its maximum size.
    pub(crate) fn take(&mut self, bytes: u64) -> Result {
        if self.most > 0 && self.used + bytes > self.most {
            return refuse(
                CUresult::OUT_OF_MEMORY,
                format!(
                    "cannot allocate {bytes} bytes: {} of the {} bytes of the pool are in use",
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

    /// Releases unused memory beyond `keep` bytes.
    pub(crate) fn trim(&mut self, keep: u64) {
        self.reserved = self.reserved.min(keep.max(self.used));
    }

    /// Returns the value of an attribute. The first three are 32-bit integers, and the others are
    /// 64-bit integers.
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

    /// Sets an attribute. The high-water marks can only be reset to zero.
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
