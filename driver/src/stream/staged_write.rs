//! Writes through [`Staging`], in the order of a stream.

use std::ops::Range;

use crate::error::Error;
use crate::memory::{Element, Staging, View};
use crate::stream::{Queue, Stream, Work};

impl Staging {
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
