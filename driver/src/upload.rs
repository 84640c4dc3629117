//! Much memory of the host on its way to the device, at the speed of the bus.
//!
//! The bus is only fast from pinned memory, and pinning takes longer than copying. So [`Staging`] goes through a few
//! pinned pieces: while the device copies one, the host fills the next.

use std::ops::Range;

use crate::element::Element;
use crate::queue::{Queue, Work};
use crate::{Context, Error, Event, Pinned, Stream, View};

/// Pinned pieces that are filled and copied in turn.
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
    /// Its memory as whole elements of the view, as many as there is room for.
    fn elements<T: Element>(&self, of: &View<T>) -> Result<View<T>, Error> {
        let (size, bytes) = (T::TYPE.size(), self.memory.region().bytes());
        if size > bytes {
            let problem =
                format!("a piece of {bytes} bytes holds no element of {}, which has {size}", of.region());
            return Err(Error::Transfer { what: "staging", problem });
        }
        self.memory.cast::<u8>()?.view_range(0..bytes / size * size).cast()
    }
}

impl Staging {
    /// So many pieces of so many bytes. Two keep a bus busy if they take longer to copy than to queue: some MiB.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    ///
    /// # Panics
    /// If there are no pieces, or less than 8 bytes to one.
    pub fn new(context: &Context, pieces: usize, bytes: usize) -> Result<Self, Error> {
        assert!(pieces > 0 && bytes >= 8, "{pieces} pieces of {bytes} bytes stage nothing");
        let piece = |_| {
            let (memory, copied) = (Pinned::zeroed(context, bytes / 8)?, Event::untimed(context)?);
            Ok(Piece { memory, copied })
        };
        Ok(Self { pieces: (0..pieces).map(piece).collect::<Result<_, Error>>()?, next: 0 })
    }

    /// Writes a view in the order of the stream, a piece at a time: `fill` gets the range of elements and fills them.
    /// They hold anything when it begins. On return `fill` is done with all of them, and the last copies may not be.
    ///
    /// # Errors
    /// A view or stream of another context, a stream that captures, an element larger than a piece, or what the driver
    /// reports.
    pub fn write_with<T: Element>(
        &mut self,
        mut stream: &Stream,
        to: &View<T>,
        mut fill: impl FnMut(Range<usize>, &mut [T]),
    ) -> Result<(), Error> {
        let mut start = 0;
        while start < to.len() {
            let piece = &self.pieces[self.next];
            let from = piece.elements::<T>(to)?;
            let range = start..to.len().min(start + from.len());
            piece.copied.synchronize()?;
            // SAFETY: nobody else has this memory, the device has read it, it is aligned to 8 bytes and has that
            // many elements, of which every bit pattern is a value.
            fill(range.clone(), unsafe {
                std::slice::from_raw_parts_mut(piece.memory.host().cast(), range.len())
            });
            stream.push(Work::copy(&from.view_range(0..range.len()), &to.view_range(range.clone()))?)?;
            // Without the event nobody would wait for the copy before the piece is filled again.
            if let Err(error) = piece.copied.record(stream) {
                stream.synchronize()?;
                return Err(error);
            }
            self.next = (self.next + 1) % self.pieces.len();
            start = range.end;
        }
        Ok(())
    }

    /// Writes elements in the order of the stream. On return they have been read, and the last copies may not be done.
    ///
    /// # Errors
    /// A length that is not the view's; else as [`write_with`](Self::write_with).
    pub fn write<T: Element>(&mut self, stream: &Stream, to: &View<T>, from: &[T]) -> Result<(), Error> {
        to.expect_len("write", from.len())?;
        self.write_with(stream, to, |range, piece| piece.copy_from_slice(&from[range]))
    }
}
