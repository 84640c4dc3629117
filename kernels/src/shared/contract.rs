//! Checks that most launch contracts share.

use crate::format::Format;
use ptx_gen::{KernelDef, ShapeError};

/// The maximum number of elements of an indexed buffer. Indices have 32 bits, and a loop counter
/// may step past the end.
const MAX_ELEMENTS: usize = 1 << 31;

/// The maximum number of weights of a row, because the bytes of a row are counted in 32 bits.
const MAX_ROW_LEN: u32 = 1 << 29;

/// Checks the lengths of buffers, each against a product of factors.
///
/// The factors are names of variables or numbers. They are both the product and its formula in the
/// error message. `==` demands the exact length, `>=` allows a longer buffer.
///
/// ```text
/// check_lengths! { self, a:
///     x == rows * depth,
///     partials >= rows * 8,
/// }
/// ```
macro_rules! check_lengths {
    ($kernel:ident, $args:ident: $($name:ident $op:tt $first:tt $(* $factor:tt)*,)*) => {
        $($crate::shared::check_lengths!(
            @check $kernel, stringify!($name), $args.$name, $op,
            concat!(stringify!($first) $(, " * ", stringify!($factor))*),
            &[$first $(, $factor)*]
        );)*
    };
    (@check $kernel:ident, $name:expr, $found:expr, ==, $formula:expr, $factors:expr) => {
        $kernel.length($name, $found, $formula, $factors)?
    };
    (@check $kernel:ident, $name:expr, $found:expr, >=, $formula:expr, $factors:expr) => {
        $kernel.at_least($name, $found, $formula, $factors)?
    };
}
pub(crate) use check_lengths;

/// Launch-contract checks, available on every kernel.
pub(crate) trait Contract: KernelDef {
    /// Checks that `name` has as many elements as the product of `factors`. `formula` spells that
    /// product for the error message.
    fn length(
        &self,
        name: &str,
        found: usize,
        formula: &str,
        factors: &[u32],
    ) -> Result<(), ShapeError> {
        let wanted = factors
            .iter()
            .fold(1usize, |n, &f| n.saturating_mul(f as usize));
        self.require(wanted <= MAX_ELEMENTS, || {
            format!("{formula} is {wanted}, must be at most {MAX_ELEMENTS}")
        })?;
        self.require(found == wanted, || {
            format!("{name} has {found} elements, must have {formula} = {wanted}")
        })
    }

    /// Checks that `name` has at least as many elements as the product of `factors`. `formula`
    /// spells that product for the error message.
    fn at_least(
        &self,
        name: &str,
        found: usize,
        formula: &str,
        factors: &[u32],
    ) -> Result<(), ShapeError> {
        let wanted = factors
            .iter()
            .fold(1usize, |n, &f| n.saturating_mul(f as usize));
        self.require(found <= MAX_ELEMENTS, || {
            format!("{name} has {found} elements, must have at most {MAX_ELEMENTS}")
        })?;
        self.require(found >= wanted, || {
            format!("{name} has {found} elements, must have at least {formula} = {wanted}")
        })
    }

    /// Checks that `name` has exactly `wanted` elements.
    fn exactly(&self, name: &str, found: usize, wanted: usize) -> Result<(), ShapeError> {
        self.require(found == wanted, || {
            format!("{name} has {found} elements, must have {wanted}")
        })
    }

    /// Checks that `name` has at least `wanted` elements, and not too many to index.
    fn room(&self, name: &str, found: usize, wanted: usize) -> Result<(), ShapeError> {
        self.require(found >= wanted && found <= MAX_ELEMENTS, || {
            format!("{name} has {found} elements, must have {wanted} to {MAX_ELEMENTS}")
        })
    }

    /// Checks that `name` is a positive multiple of `unit`.
    fn multiple(&self, name: &str, found: u32, unit: u32) -> Result<(), ShapeError> {
        self.require(found > 0 && found.is_multiple_of(unit), || {
            format!("{name} is {found}, must be a positive multiple of {unit}")
        })
    }

    /// Checks that `name` has the bytes of a matrix of `rows` rows of `n` weights, and that `n` can
    /// be divided among lanes.
    fn matrix(
        &self,
        name: &str,
        found: usize,
        format: Format,
        rows: u32,
        n: u32,
    ) -> Result<(), ShapeError> {
        self.multiple("n", n, format.split().len)?;
        self.range("n", n, 1, MAX_ROW_LEN)?;
        let row = format.row_bytes(n as usize);
        self.require(found == rows as usize * row, || {
            let weights = format!("{n} {} weights", format.name());
            format!(
                "{name} has {found} bytes, must have {rows} rows of {weights}, {row} bytes each"
            )
        })
    }

    /// Checks that `name` is between `least` and `most`, inclusive.
    fn range(&self, name: &str, found: u32, least: u32, most: u32) -> Result<(), ShapeError> {
        self.require((least..=most).contains(&found), || {
            format!("{name} is {found}, must be {least} to {most}")
        })
    }
}

impl<K: KernelDef> Contract for K {}
