//! Uploads of large host memory at the speed of the bus.
//!
//! The bus is fast only from pinned memory, and pinning takes longer than copying. [`Staging`]
//! therefore copies through a few pinned chunks: while the device copies one chunk, the host fills
//! the next.

use std::ops::Range;

use crate::device::Context;
use crate::device::event::Event;
use crate::error::Error;
use crate::memory::{Element, Pinned, View};
use crate::stream::{Queue, Stream, Work};

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
    pieces: Vec<StagingChunk>,
    next: usize,
}

#[derive(Debug)]
struct StagingChunk {
    memory: Pinned<u64>,
    /// The event after the copy that reads the memory.
    copied: Event,
}

impl StagingChunk {
    /// Returns the memory as elements of the type of `of`, as many as fit.
    fn elements<T: Element>(&self, of: &View<T>) -> Result<View<T>, Error> {
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

    /// Writes a view in the order of the stream, chunk by chunk.
    ///
    /// `fill` receives a range of elements and the memory for them, which it must fill. The memory
    /// may contain any bits. On return, `fill` has been called for all elements, and the last
    /// copies may still run. Elements of size 0 are not copied, and `fill` is not called for them.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the view or the stream belongs to another context.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Transfer`] if an element is larger than a chunk, or needs another alignment.
    /// - [`Error::Driver`] if a driver call fails or reports a fault of earlier work.
    pub fn write_with<T: Element>(
        &mut self,
        mut stream: &Stream,
        to: &View<T>,
        mut fill: impl FnMut(Range<usize>, &mut [T]),
    ) -> Result<(), Error> {
        to.region().expect_in(stream.context(), "a stream")?;
        if size_of::<T>() == 0 {
            return Ok(());
        }
        let mut start = 0;
        while start < to.len() {
            let piece = &self.pieces[self.next];
            let from = piece.elements::<T>(to)?;
            let range = start..to.len().min(start + from.len());
            piece.copied.synchronize()?;
            // SAFETY: the staging owns the memory, and the wait above shows that the device has
            // read it. `elements` has checked size and alignment, and every bit pattern is a valid
            // element.
            fill(range.clone(), unsafe {
                std::slice::from_raw_parts_mut(piece.memory.host().cast(), range.len())
            });
            stream.push(Work::copy(
                &from.view_range(0..range.len()),
                &to.view_range(range.clone()),
            )?)?;
            // Without the event the chunk could be filled again while the device still reads it.
            if let Err(error) = piece.copied.record(stream) {
                stream.synchronize()?;
                return Err(error);
            }
            self.next = (self.next + 1) % self.pieces.len();
            start = range.end;
        }
        Ok(())
    }

    /// Writes a slice to a view in the order of the stream. On return `from` has been read, and the
    /// last copies may still run.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the lengths differ, and the errors of
    /// [`write_with`](Self::write_with).
    pub fn write<T: Element>(
        &mut self,
        stream: &Stream,
        to: &View<T>,
        from: &[T],
    ) -> Result<(), Error> {
        to.expect_len("write", from.len())?;
        self.write_with(stream, to, |range, piece| {
            piece.copy_from_slice(&from[range])
        })
    }
}
