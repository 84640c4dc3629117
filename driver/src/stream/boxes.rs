//! Copies and fills of two- and three-dimensional boxes.

use crate::error::Error;
use crate::memory::{Boxed, Element, ElementType, Region};
use crate::stream::queue::{CopyShape, FillShape, word_of};
use crate::stream::{MemoryCopy, MemoryFill, Work};

/// The memory of a box: its bytes from the first to the last, and its layout in bytes and rows.
struct BoxBounds {
    region: Region,
    pitch: usize,
    height: usize,
}

impl<T: Element> Boxed<'_, T> {
    /// Returns the memory of a box of `extent` columns, rows and slices at this position.
    fn place(&self, what: &'static str, extent: [usize; 3]) -> Result<BoxBounds, Error> {
        let [x, y, z] = self.origin;
        let [width, height, depth] = extent;

        // A box must not wrap around the end of a row, nor around the end of a slice. A box within
        // the first slice may extend past its height, because no other slice follows in that
        // layout.
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

        // A slice must have fewer bytes than the address space, so that no product overflows here
        // or in the driver.
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

        Ok(BoxBounds {
            region: view.region().clone(),
            pitch,
            height: self.height,
        })
    }
}

impl Work {
    /// Creates a copy of a box of `extent` columns, rows and slices.
    ///
    /// Conflicts are checked for all bytes from the first element of the box to the last. A
    /// recorder may therefore order more operations than necessary.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if a box exceeds its view, its rows or its slices, or if the
    /// boxes overlap.
    pub fn copy_box<T: Element>(
        from: Boxed<'_, T>,
        to: Boxed<'_, T>,
        extent: [usize; 3],
    ) -> Result<Self, Error> {
        box_copy(from, to, extent).map(Self::Copy)
    }

    /// Creates a fill of a box of `extent` columns, rows and slices.
    ///
    /// The driver fills rows at one constant distance. A box of several slices must therefore
    /// contain either all rows of each slice or one row of each slice.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] in these cases:
    ///
    /// - The box exceeds its view, its rows or its slices.
    /// - Its rows do not have a constant distance.
    /// - The elements have 8 bytes, which the driver cannot fill in rows.
    pub fn fill_box<T: Element>(
        to: Boxed<'_, T>,
        extent: [usize; 3],
        value: T,
    ) -> Result<Self, Error> {
        const WHAT: &str = "fill of a box";
        let extent = or_nothing(extent);
        let place = to.place(WHAT, extent)?;
        let [columns, height, depth] = extent;

        // The driver knows a pitch but no slices. Three kinds of boxes have rows at one distance: a
        // single slice, one row of each slice, and all rows of each slice.
        let (pitch, rows) = match (height, depth) {
            (_, 0 | 1) => (place.pitch, height * depth),
            (1, _) => (place.pitch * place.height, depth),
            _ if height == place.height => (place.pitch, height * depth),
            _ => {
                let problem = format!(
                    "the box has {height} of {} rows of each slice; fill it slice by slice",
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
                    "{} has 8-byte elements, which can be filled only as a contiguous range",
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

/// Returns the extent, or an extent of zeros if one of its dimensions is 0.
fn or_nothing(extent: [usize; 3]) -> [usize; 3] {
    if extent.contains(&0) { NOTHING } else { extent }
}

/// Creates a copy of a box. The views may belong to two contexts.
pub(crate) fn box_copy<T: Element>(
    from: Boxed<'_, T>,
    to: Boxed<'_, T>,
    extent: [usize; 3],
) -> Result<MemoryCopy, Error> {
    const WHAT: &str = "copy of a box";
    let extent = or_nothing(extent);
    let from = from.place(WHAT, extent)?;
    let to = to.place(WHAT, extent)?;

    // Boxes such as columns of one matrix overlap as ranges and share no element. The exact test
    // runs only if the ranges overlap.
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

/// Returns true if two boxes of the same memory share an element.
///
/// The test is exact if both have the same pitch and height. Otherwise it compares only their
/// bounds.
fn overlap(
    a: &BoxBounds,
    b: &BoxBounds,
    [width, height, depth]: [usize; 3],
    elem: ElementType,
) -> bool {
    if (a.pitch, a.height) != (b.pitch, b.height) || a.pitch == 0 {
        return true;
    }

    let signed = |n: usize| i128::try_from(n).unwrap_or(i128::MAX);
    let apart = i128::from(b.region.address()) - i128::from(a.region.address());
    let row = signed(a.pitch);
    let slice = signed(a.pitch) * signed(a.height.max(1));

    // The distance of the corners is a combination of slices, rows and bytes. With the quotient
    // rounded down or up, the remainder is less than one slice or row in size. Other combinations
    // leave a larger remainder, so they cannot be within the extent.
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
