//! Uploads of large host memory at the speed of the bus.
//!
//! The bus is fast only from pinned memory, and pinning takes longer than copying. [`Staging`]
//! therefore copies through a few pinned chunks: while the device copies one chunk, the host fills
//! the next.

use crate::device::Context;
use crate::device::event::Event;
use crate::error::Error;
use crate::memory::{Element, Pinned, View};

/// Pinned chunks of memory that are filled and copied in turn.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let weights: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
/// let there = Buffer::<f32>::uninit(&context, weights.len())?;
/// let mut staging = Staging::new(&context, 2, 64 << 10)?;
/// staging.write(&stream, &there, &weights)?;
/// assert_eq!(stream.read(&there)?, weights);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Staging {
    pub(crate) pieces: Vec<StagingChunk>,
    pub(crate) next: usize,
}

#[derive(Debug)]
pub(crate) struct StagingChunk {
    pub(crate) memory: Pinned<u64>,
    /// The event after the copy that reads the memory.
    pub(crate) copied: Event,
}

impl StagingChunk {
    /// Returns the memory as elements of the type of `of`, as many as fit.
    pub(crate) fn elements<T: Element>(&self, of: &View<T>) -> Result<View<T>, Error> {
        let size = size_of::<T>();
        let bytes = self.memory.region().bytes();
        if size > bytes {
            let problem = format!(
                "a piece of {bytes} bytes holds no element of {}, which has {size}",
                of.region()
            );
            return Err(Error::Transfer {
                what: WHAT,
                problem,
            });
        }

        let align = align_of::<T>();
        if !self.memory.host().addr().is_multiple_of(align) {
            let problem = format!(
                "the pieces are not aligned to {align} bytes, as elements of {} are",
                of.region()
            );
            return Err(Error::Transfer {
                what: WHAT,
                problem,
            });
        }

        self.memory
            .cast::<u8>()?
            .view_range(0..bytes / size * size)
            .cast()
    }
}

/// The name of the operation in errors.
const WHAT: &str = "staging";

/// The largest number of chunks. A few keep a bus busy.
const MOST_PIECES: usize = 1024;

/// The number of bytes that is always allowed, even on a device with less memory.
const ALWAYS_ALLOWED: usize = 256 << 20;

impl Staging {
    /// Allocates `pieces` chunks of `bytes` bytes each.
    ///
    /// Two chunks keep a bus busy if copying a chunk takes longer than queueing the copy. This is
    /// the case from a few MiB on.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if there are no chunks or more than 1024, if a chunk has less than 8
    ///   bytes, or if all of them have more bytes than the device and more than 256 MiB.
    /// - [`Error::OutOfMemory`] if the driver cannot pin as much.
    /// - [`Error::Driver`] if another driver call fails.
    pub fn new(context: &Context, pieces: usize, bytes: usize) -> Result<Self, Error> {
        let (_, total) = context.memory()?;
        let most = total.max(ALWAYS_ALLOWED);
        let fits = pieces.checked_mul(bytes).is_some_and(|all| all <= most);
        if !(1..=MOST_PIECES).contains(&pieces) || bytes < 8 || !fits {
            let problem = format!(
                "{pieces} pieces of {bytes} bytes; use 1 to {MOST_PIECES} pieces of at least 8 bytes, and at most {most} \
                 bytes in all"
            );
            return Err(Error::Transfer {
                what: WHAT,
                problem,
            });
        }

        let piece = |_| {
            Ok(StagingChunk {
                memory: Pinned::zeroed(context, bytes / 8)?,
                copied: Event::untimed(context)?,
            })
        };
        Ok(Self {
            pieces: (0..pieces).map(piece).collect::<Result<_, Error>>()?,
            next: 0,
        })
    }
}
