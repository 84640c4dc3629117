//! Stream memory operations: waits for a value in memory, and writes.

use std::sync::Arc;
use std::time::Duration;

use warpwright_driver_sys::{
    CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, CUstreamWaitValue_flags,
};

use crate::device::EmulatedDevice;
use crate::error::{Result, refuse, require};
use crate::work::copy::Ranges;

/// The time between two polls of a value.
const POLL: Duration = Duration::from_micros(20);

/// The condition of a wait, from the two low bits of its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    AtLeast,
    Equal,
    AnyBit,
    Nor,
}

/// An operation on a value of 4 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordOperation {
    Wait {
        address: u64,
        bytes: usize,
        value: u64,
        until: Until,
    },
    Write {
        address: u64,
        bytes: usize,
        value: u64,
    },
    /// A barrier, which has no effect because operations run in order.
    Barrier,
}

/// Operations in order, with the original structures for a program that asks for them.
#[derive(Clone, Debug)]
pub(crate) struct WordWork {
    pub(crate) operations: Arc<[WordOperation]>,
    pub(crate) asked: Arc<[CUstreamBatchMemOpParams]>,
}

impl PartialEq for WordWork {
    fn eq(&self, other: &Self) -> bool {
        self.operations == other.operations
    }
}

impl WordWork {
    /// Returns the checked operations of a batch.
    pub(crate) fn of(device: &EmulatedDevice, asked: &[CUstreamBatchMemOpParams]) -> Result<Self> {
        let operations = asked
            .iter()
            .map(|p| operation(device, p))
            .collect::<Result<_>>()?;
        Ok(Self {
            operations,
            asked: asked.into(),
        })
    }

    /// Returns the ranges that it reads and writes.
    pub(crate) fn ranges(&self) -> (Ranges, Ranges) {
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        for operation in &*self.operations {
            match *operation {
                WordOperation::Wait { address, bytes, .. } => reads.push((address, bytes as u64)),
                WordOperation::Write { address, bytes, .. } => writes.push((address, bytes as u64)),
                WordOperation::Barrier => {}
            }
        }

        (reads, writes)
    }

    /// Returns true if it waits for a value.
    pub(crate) fn waits(&self) -> bool {
        self.operations
            .iter()
            .any(|operation| matches!(operation, WordOperation::Wait { .. }))
    }

    pub(crate) fn run(&self, device: &EmulatedDevice) -> Result {
        for operation in &*self.operations {
            match *operation {
                WordOperation::Wait {
                    address,
                    bytes,
                    value,
                    until,
                } => {
                    while !until.holds(word(device, address, bytes)?, value, bytes) {
                        std::thread::sleep(POLL);
                    }
                }
                WordOperation::Write {
                    address,
                    bytes,
                    value,
                } => device
                    .memory
                    .write(address, &value.to_le_bytes()[..bytes])?,
                WordOperation::Barrier => {}
            }
        }
        Ok(())
    }
}

impl Until {
    fn of(flags: u32) -> Result<Self> {
        Ok(match flags & !CUstreamWaitValue_flags::FLUSH.0 {
            0 => Self::AtLeast,
            1 => Self::Equal,
            2 => Self::AnyBit,
            3 => Self::Nor,
            other => {
                return refuse(
                    CUresult::INVALID_VALUE,
                    format!("the flags {other:#x} of a wait are unknown"),
                );
            }
        })
    }

    /// Returns true if the value satisfies the condition. "At least" is cyclic, as the API
    /// specifies.
    fn holds(self, word: u64, value: u64, bytes: usize) -> bool {
        let shift = 64 - 8 * bytes as u32;
        match self {
            Self::AtLeast => (word.wrapping_sub(value) << shift) as i64 >= 0,
            Self::Equal => word == value,
            Self::AnyBit => word & value != 0,
            Self::Nor => !(word | value) << shift != 0,
        }
    }
}

fn word(device: &EmulatedDevice, address: u64, bytes: usize) -> Result<u64> {
    let mut word = [0; 8];
    device.memory.read(address, &mut word[..bytes])?;
    Ok(u64::from_le_bytes(word))
}

fn operation(device: &EmulatedDevice, p: &CUstreamBatchMemOpParams) -> Result<WordOperation> {
    use CUstreamBatchMemOpType as T;
    let bytes = if matches!(p.operation, T::WAIT_VALUE_64 | T::WRITE_VALUE_64) {
        8
    } else {
        4
    };

    // The structure has a union of both widths, so the upper half of a 32-bit value is undefined.
    let value = if bytes == 4 {
        p.value & u64::from(u32::MAX)
    } else {
        p.value
    };
    let checked = || {
        let inside = device
            .range(p.address)
            .is_some_and(|(base, of)| p.address - base + bytes as u64 <= of);
        require(inside && p.address.is_multiple_of(bytes as u64), || {
            format!(
                "0x{:x} is not an aligned word of {bytes} bytes of device memory",
                p.address
            )
        })
    };
    match p.operation {
        T::WAIT_VALUE_32 | T::WAIT_VALUE_64 => {
            checked()?;
            Ok(WordOperation::Wait {
                address: p.address,
                bytes,
                value,
                until: Until::of(p.flags)?,
            })
        }
        T::WRITE_VALUE_32 | T::WRITE_VALUE_64 => {
            checked()?;
            require(p.flags <= 1, || {
                format!("the flags {:#x} of a write are unknown", p.flags)
            })?;
            Ok(WordOperation::Write {
                address: p.address,
                bytes,
                value,
            })
        }
        T::BARRIER | T::FLUSH_REMOTE_WRITES => Ok(WordOperation::Barrier),
        other => refuse(
            CUresult::NOT_SUPPORTED,
            format!("the memory operation {other:?} is not emulated"),
        ),
    }
}
