//! Uploads of much host memory at the speed of the bus.
//!
//! The bus is only fast from pinned memory, and pinning takes longer than copying. Therefore [`Staging`] copies through a
//! few pinned pieces: while the device copies one piece, the host fills the next.

use std::ops::Range;

use crate::element::Element;
use crate::queue::{Queue, Work};
use crate::{Context, Error, Event, Pinned, Stream, View};

/// Pinned pieces of memory that are filled and copied in turn.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    pieces: Vec<Piece>,
    next: usize,
}

#[derive(Debug)]
struct Piece {
    memory: Pinned<u64>,
    /// Recorded after the copy that still reads the memory.
    copied: Event,
}

impl Piece {
    /// Returns its memory as elements of the type of `of`, as many as fit.
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

/// The operation in errors.
const WHAT: &str = "staging";

/// The maximum number of pieces. A few keep a bus busy.
const MOST_PIECES: usize = 1024;

/// The number of bytes that is always allowed, also on a device with less memory.
const ALWAYS_ALLOWED: usize = 256 << 20;

impl Staging {
    /// Allocates `pieces` pieces of `bytes` bytes each.
    ///
    /// Two pieces keep a bus busy if copying a piece takes longer than queuing the copy, which holds from a few MiB on.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if there are no pieces or more than 1024, if a piece has less than 8 bytes, or if all of
    ///   them have more bytes than the device and more than 256 MiB.
    /// - [`Error::OutOfMemory`] if the driver cannot pin as much.
    /// - [`Error::Driver`] if the driver refuses a call otherwise.
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
            Ok(Piece {
                memory: Pinned::zeroed(context, bytes / 8)?,
                copied: Event::untimed(context)?,
            })
        };
        Ok(Self {
            pieces: (0..pieces).map(piece).collect::<Result<_, Error>>()?,
            next: 0,
        })
    }

    /// Writes a view in the order of the stream, piece by piece. `fill` receives a range of elements and the memory for
    /// them, which may hold any bits, and fills it.
    ///
    /// On return `fill` has been called for all elements, and the last copies may still run. Elements without a size are
    /// not copied, and `fill` is not called for them.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the view or the stream is of another context.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Transfer`] if an element is larger than a piece, or needs another alignment.
    /// - [`Error::Driver`] if the driver refuses a call, or reports a fault of earlier work.
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
            // SAFETY: nothing else uses this memory, and the device has read it. It is aligned and has that many
            // elements, of which every bit pattern is a value.
            fill(range.clone(), unsafe {
                std::slice::from_raw_parts_mut(piece.memory.host().cast(), range.len())
            });
            stream.push(Work::copy(
                &from.view_range(0..range.len()),
                &to.view_range(range.clone()),
            )?)?;
            // Without the event the piece could be filled again while the device still reads it.
            if let Err(error) = piece.copied.record(stream) {
                stream.synchronize()?;
                return Err(error);
            }
            self.next = (self.next + 1) % self.pieces.len();
            start = range.end;
        }
        Ok(())
    }

    /// Writes elements in the order of the stream. On return `from` has been read, and the last copies may still run.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if `from` does not have the length of the view, or an error in the cases of
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
