//! Copies and fills of two and three dimensions.

use crate::element::{Element, ElementType};
use crate::queue::{CopyShape, FillShape, MemoryCopy, MemoryFill, Work, word_of};
use crate::{Error, Region, View};

/// Elements of a view that lie in rows and slices, from one of them on.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // The middle two columns of a matrix of three rows of four, as a matrix of their own.
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
    /// All elements.
    pub view: &'v View<T>,
    /// Elements from the start of a row to the start of the next.
    pub pitch: usize,
    /// Rows from the start of a slice to the start of the next.
    pub height: usize,
    /// The first element: column, row and slice.
    pub origin: [usize; 3],
}

impl<T> Clone for Boxed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Boxed<'_, T> {}

/// A box within memory, in bytes and rows.
struct Place {
    region: Region,
    pitch: usize,
    height: usize,
}

impl<'v, T: Element> Boxed<'v, T> {
    /// A view as rows of so many elements, from its beginning on. There is one slice.
    pub fn rows(view: &'v View<T>, pitch: usize) -> Self {
        let height = view.len().checked_div(pitch).unwrap_or(0);
        Self {
            view,
            pitch,
            height,
            origin: [0; 3],
        }
    }

    /// The same with slices of so many rows.
    #[must_use]
    pub fn slices(self, height: usize) -> Self {
        Self { height, ..self }
    }

    /// The same from another element on: column, row and slice.
    #[must_use]
    pub fn at(self, origin: [usize; 3]) -> Self {
        Self { origin, ..self }
    }

    /// The bytes from the first to the last of a box of that many columns, rows and slices.
    fn place(&self, what: &'static str, extent: [usize; 3]) -> Result<Place, Error> {
        let ([x, y, z], [width, height, depth]) = (self.origin, extent);
        let fits = x.checked_add(width).is_some_and(|end| end <= self.pitch)
            && (depth <= 1 && z == 0
                || y.checked_add(height).is_some_and(|end| end <= self.height));
        let at = |x: usize, y: usize, z: usize| {
            z.checked_mul(self.height)?
                .checked_add(y)?
                .checked_mul(self.pitch)?
                .checked_add(x)
        };
        let bounds = || {
            let first = at(x, y, z)?;
            let last = at(
                x + width - 1,
                y.checked_add(height - 1)?,
                z.checked_add(depth - 1)?,
            )?;
            Some(first..last.checked_add(1)?)
        };
        let bounds = match (extent, fits) {
            (NOTHING, _) => Some(0..0),
            (_, true) => bounds(),
            (_, false) => None,
        };
        let pitch = self.pitch.checked_mul(T::TYPE.size());
        // Rows and slices are no longer than addresses reach, so that nothing overflows below or in the driver.
        let pitch = pitch.filter(|pitch| pitch.checked_mul(self.height).is_some());
        let Some((view, pitch)) = bounds.and_then(|bounds| self.view.get(bounds)).zip(pitch) else {
            let problem = format!(
                "a box of {extent:?} at {:?} in {}, which has {} elements in rows of {} and slices of {} rows",
                self.origin,
                self.view.region(),
                self.view.len(),
                self.pitch,
                self.height
            );
            return Err(Error::Transfer { what, problem });
        };
        Ok(Place {
            region: view.region().clone(),
            pitch,
            height: self.height,
        })
    }
}

impl Work {
    /// A copy of a box of elements: so many columns, rows and slices.
    ///
    /// Hazards are found by the bytes from its first element to its last, so that a recorder may put more in order than
    /// it would have to.
    ///
    /// # Errors
    /// A box that reaches beyond its view, its rows or its slices, or boxes that overlap.
    pub fn copy_box<T: Element>(
        from: Boxed<'_, T>,
        to: Boxed<'_, T>,
        extent: [usize; 3],
    ) -> Result<Self, Error> {
        box_copy(from, to, extent).map(Self::Copy)
    }

    /// A box of elements set to one value: so many columns, rows and slices. The driver fills rows that are all
    /// equally far from each other, so that of several slices either all rows are filled, or one of each.
    ///
    /// # Errors
    /// A box that reaches beyond its view, its rows or its slices; one whose rows are not equally far from each other;
    /// an 8-byte value, which the driver cannot do here.
    pub fn fill_box<T: Element>(
        to: Boxed<'_, T>,
        extent: [usize; 3],
        value: T,
    ) -> Result<Self, Error> {
        const WHAT: &str = "fill of a box";
        let extent = or_nothing(extent);
        let (place, [columns, height, depth]) = (to.place(WHAT, extent)?, extent);
        let (pitch, rows) = match (height, depth) {
            (_, 0 | 1) => (place.pitch, height * depth),
            (1, _) => (place.pitch * place.height, depth),
            _ if height == place.height => (place.pitch, height * depth),
            _ => {
                let problem = format!(
                    "{height} of {} rows of each slice; fill them slice by slice",
                    place.height
                );
                return Err(Error::Transfer {
                    what: WHAT,
                    problem,
                });
            }
        };
        match word_of(&place.region, value) {
            Ok((value, width)) if width as usize == T::TYPE.size() => {
                Ok(Self::Fill(MemoryFill::new(
                    place.region,
                    value,
                    width,
                    Some(FillShape {
                        pitch,
                        columns,
                        rows,
                    }),
                )))
            }
            Ok(_) => {
                let problem = format!(
                    "{} has 8-byte elements, which are filled in one dimension",
                    place.region
                );
                Err(Error::Transfer {
                    what: WHAT,
                    problem,
                })
            }
            Err(error) => Err(error),
        }
    }
}

/// The extent of a box without elements.
const NOTHING: [usize; 3] = [0; 3];

/// The extent, or that of nothing where a dimension is 0, whatever the others are.
fn or_nothing(extent: [usize; 3]) -> [usize; 3] {
    if extent.contains(&0) { NOTHING } else { extent }
}

/// A copy of a box, of views that may be of two contexts.
pub(crate) fn box_copy<T: Element>(
    from: Boxed<'_, T>,
    to: Boxed<'_, T>,
    extent: [usize; 3],
) -> Result<MemoryCopy, Error> {
    const WHAT: &str = "copy of a box";
    let extent = or_nothing(extent);
    let (from, to) = (from.place(WHAT, extent)?, to.place(WHAT, extent)?);
    if from.region.overlaps(&to.region) && overlap(&from, &to, extent, T::TYPE) {
        let problem = format!("{} and {} overlap", from.region, to.region);
        return Err(Error::Transfer {
            what: WHAT,
            problem,
        });
    }
    let [width, height, depth] = extent;
    let shape = CopyShape {
        extent: [width * T::TYPE.size(), height, depth],
        from: [from.pitch, from.height],
        to: [to.pitch, to.height],
    };
    Ok(MemoryCopy::new(from.region, to.region, Some(shape)))
}

/// Whether two boxes of one memory share an element: exact where their rows and slices are alike, and else by their
/// bounds.
fn overlap(a: &Place, b: &Place, [width, height, depth]: [usize; 3], elem: ElementType) -> bool {
    if (a.pitch, a.height) != (b.pitch, b.height) || a.pitch == 0 {
        return true;
    }
    let signed = |n: usize| i128::try_from(n).unwrap_or(i128::MAX);
    let apart = i128::from(b.region.address()) - i128::from(a.region.address());
    let (row, slice) = (signed(a.pitch), signed(a.pitch) * signed(a.height.max(1)));
    let near =
        |size: i128, distance: i128| [distance.div_euclid(size), distance.div_euclid(size) + 1];
    near(slice, apart).into_iter().any(|z| {
        let left = apart - z * slice;
        near(row, left).into_iter().any(|y| {
            let x = left - y * row;
            z.abs() < signed(depth)
                && y.abs() < signed(height)
                && x.abs() < signed(width * elem.size())
        })
    })
}
