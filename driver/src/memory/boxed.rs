//! Positions in two- and three-dimensional arrays.

use crate::memory::{Element, View};

/// A position in a view whose elements are arranged in rows and slices.
///
/// It is the corner of a box for [`Work::copy_box`](crate::stream::Work::copy_box) and
/// [`Work::fill_box`](crate::stream::Work::fill_box).
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // Copy the middle two columns of a 3x4 matrix into a 3x2 matrix.
/// let matrix = Buffer::from_slice(&context, &[0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23])?;
/// let columns = Buffer::<i32>::zeroed(&context, 6)?;
/// let from = Boxed::rows(&matrix, 4).at([1, 0, 0]);
/// stream.run(&Work::copy_box(from, Boxed::rows(&columns, 2), [2, 3, 1])?)?;
/// assert_eq!(stream.read(&columns)?, [1, 2, 11, 12, 21, 22]);
/// stream.run(&Work::fill_box(from, [2, 2, 1], 9)?)?;
/// assert_eq!(stream.read(&matrix)?[..8], [0, 9, 9, 3, 10, 9, 9, 13]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Boxed<'v, T> {
    /// The view with all elements.
    pub view: &'v View<T>,
    /// The number of elements from the start of a row to the start of the next.
    pub pitch: usize,
    /// The number of rows from the start of a slice to the start of the next.
    pub height: usize,
    /// The position of the first element: column, row and slice.
    pub origin: [usize; 3],
}

impl<T> Clone for Boxed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Boxed<'_, T> {}

impl<'v, T: Element> Boxed<'v, T> {
    /// Returns the start of a view that consists of rows of `pitch` elements and a single slice.
    pub fn rows(view: &'v View<T>, pitch: usize) -> Self {
        let height = view.len().checked_div(pitch).unwrap_or(0);
        Self {
            view,
            pitch,
            height,
            origin: [0; 3],
        }
    }

    /// Divides the rows into slices of `height` rows.
    #[must_use]
    pub fn slices(self, height: usize) -> Self {
        Self { height, ..self }
    }

    /// Moves the position to an element: column, row and slice.
    #[must_use]
    pub fn at(self, origin: [usize; 3]) -> Self {
        Self { origin, ..self }
    }
}
