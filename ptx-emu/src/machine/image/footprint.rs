//! Converts coordinates to texels and their weights (CUDA C++ Programming Guide, "Texture
//! Fetching"), with the bits of an H100.
//!
//! - **Scale**: a coordinate that counts texels is `u = x`. A normalized one is `u = x N`, with `x`
//!   rounded down to a multiple of 2^-21, or `u = frac(x) N` if the texels repeat.
//! - **Point filter**: takes texel `floor(u)`.
//! - **Linear filter**: takes `i = floor(u - 0.5)` with the weight `1 - a` and `i + 1` with the
//!   weight `a`. Here `a` is `frac(u - 0.5)`, rounded to the nearest multiple of 1/256.
//! - **Outside**: the address mode replaces each texel outside of the texture separately. A linear
//!   filter that clamps therefore blends into the texel at the edge, as the figure in the guide
//!   shows. The formula in the guide would clamp the coordinate to `1 - 1/N` instead.
//!
//! NaN counts as 0, and so does infinity if texels repeat. Integer coordinates outside of the
//! texture read zero in every mode.

use crate::machine::device::images::descriptor::{AddressMode, Coordinates, Filter};

/// The index of a texel in one direction, or `None` outside.
pub(crate) type Texel = Option<u32>;

/// Two neighbors in one direction, and the weight of the second one in 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TexelPair {
    pub(crate) texels: [Texel; 2],
    pub(crate) second: u32,
}

impl TexelPair {
    /// A direction with one texel, or one that is selected otherwise.
    pub(crate) const ONE: TexelPair = TexelPair {
        texels: [Some(0); 2],
        second: 0,
    };
}

/// A coordinate of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Coordinate {
    Float(f64),
    /// The index of a texel.
    Integer(i32),
}

/// The properties of one direction of a texture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextureDirection {
    pub(crate) texels: u32,
    pub(crate) mode: AddressMode,
    pub(crate) coordinates: Coordinates,
}

/// The largest distance of a coordinate from the texels.
const FAR: f64 = 1e12;

/// The number of steps of a normalized coordinate from 0 to 1.
const STEPS: f64 = (1 << 21) as f64;

impl TextureDirection {
    /// Returns the texels for a coordinate and an offset in texels.
    pub(crate) fn pair(&self, at: Coordinate, offset: i32, filter: Filter) -> TexelPair {
        let (first, second) = match (at, filter) {
            (Coordinate::Integer(i), _) => (i.into(), 0),
            (Coordinate::Float(x), Filter::Point) => (self.position(x).floor() as i64, 0),
            (Coordinate::Float(x), Filter::Linear) => {
                let fixed = ((self.position(x) - 0.5) * 256.0 + 0.5).floor() as i64;
                (fixed >> 8, (fixed & 255) as u32)
            }
        };
        let first = first + i64::from(offset);
        let second = if self.clamps() && !(0..i64::from(self.texels) - 1).contains(&first) {
            0
        } else {
            second
        };
        TexelPair {
            texels: [self.texel(first), self.texel(first + 1)],
            second,
        }
    }

    /// Returns true if a coordinate outside selects only the texel at the edge.
    fn clamps(&self) -> bool {
        let repeats = matches!(self.mode, AddressMode::Wrap | AddressMode::Mirror);
        self.mode == AddressMode::Clamp || repeats && self.coordinates == Coordinates::Texels
    }

    /// Returns the position of a coordinate in texels from the edge.
    fn position(&self, x: f64) -> f64 {
        let n = f64::from(self.texels);
        let stepped = (x * STEPS).floor() / STEPS;
        let u = match (self.coordinates, self.mode) {
            (Coordinates::Texels, _) => x,
            (Coordinates::Normalized, AddressMode::Wrap) => (stepped - stepped.floor()) * n,
            (Coordinates::Normalized, AddressMode::Mirror) => {
                (stepped - 2.0 * (stepped / 2.0).floor()) * n
            }
            (Coordinates::Normalized, _) => stepped * n,
        };
        if u.is_nan() { 0.0 } else { u.clamp(-FAR, FAR) }
    }

    /// Returns the texel for an index that may be outside.
    fn texel(&self, i: i64) -> Texel {
        let n = i64::from(self.texels);
        let inside = match (self.mode, self.coordinates) {
            (AddressMode::Border, _) if !(0..n).contains(&i) => return None,
            (AddressMode::Wrap, Coordinates::Normalized) => i.rem_euclid(n),
            (AddressMode::Mirror, Coordinates::Normalized) => {
                let within = i.rem_euclid(2 * n);
                within.min(2 * n - 1 - within)
            }
            _ => i.clamp(0, n - 1),
        };
        Some(inside as u32)
    }
}

/// Returns the face of a cube that a direction selects, and the coordinates on it from 0 to 1 (CUDA
/// C++ Programming Guide, "Cubemap Textures").
///
/// The quotient has more bits than an `f32`, because a quotient of 24 bits selected other texels
/// than an H100.
pub(crate) fn face(direction: [f32; 3]) -> (u32, [f64; 2]) {
    let [x, y, z] = direction.map(f64::from);
    let ax = x.abs();
    let ay = y.abs();
    let az = z.abs();
    let (face, m, s, t) = if ax >= ay && ax >= az {
        if x >= 0.0 {
            (0, x, -z, -y)
        } else {
            (1, -x, z, -y)
        }
    } else if ay >= az {
        if y >= 0.0 {
            (2, y, x, z)
        } else {
            (3, -y, x, -z)
        }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    (face, [(s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0])
}

/// Returns the combinations of texels in x, y and z with a weight other than 0: the texels, the
/// weight in 1/256, and the layer.
///
/// The weights add up to 256. They are split between the layers by z, then between the columns by
/// x, and then between the texels by y. In each split, one weight is rounded to nearest and the
/// other one is the rest.
pub(crate) fn weighted(pairs: &[TexelPair; 3]) -> impl Iterator<Item = ([Texel; 3], u32, usize)> {
    let part = |whole: u32, of: u32| (whole * of + 128) >> 8;
    let [x, y, z] = pairs.map(|pair| pair.second);
    (0..8).filter_map(move |corner| {
        let second = [corner & 1, corner >> 1 & 1, corner >> 2];
        let layer = if second[2] == 1 { z } else { 256 - z };
        let columns = [layer - part(layer, x), part(layer, x)];
        let column = columns[second[0]];

        // Of the first column the first texel's weight is rounded, of the second one the second
        // texel's.
        let rounded = part(column, if second[0] == 0 { 256 - y } else { y });
        let weight = if second[0] == second[1] {
            rounded
        } else {
            column - rounded
        };
        let at = std::array::from_fn(|i| pairs[i].texels[second[i]]);
        (weight > 0).then_some((at, weight, second[2]))
    })
}
