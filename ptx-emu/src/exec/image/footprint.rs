//! From coordinates to texels and their weights (CUDA C++ Programming Guide, "Texture Fetching").
//!
//! A coordinate that counts texels is `u = x`, a normalized one `u = x N`, or `u = frac(x) N` and its mirror image where the
//! texels are repeated. The point filter takes texel `floor(u)`. The linear filter takes `i = floor(u - 0.5)` with the weight
//! `1 - a` and `i + 1` with `a`, where `a = frac(u - 0.5)` is rounded to the nearest multiple of 1/256: the guide says 8 bits
//! of fraction, of which 1.0 is one value. Texels outside are those that the address mode says, each by itself; so a linear
//! filter that clamps goes over into the texel at the edge, as the guide's figure shows, and not as its formula says, by
//! which the coordinate would be clamped to `1 - 1/N`. What the guide leaves open: NaN, and infinity where texels are
//! repeated, count as 0.

use crate::image::{AddressMode, Coordinates, Filter};

/// A texel's place in one direction; none is the border.
pub(super) type Texel = Option<u32>;

/// Two neighbours in one direction, and the weight of the second one in 256ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) texels: [Texel; 2],
    pub(super) second: u32,
}

impl Pair {
    /// A direction that has one texel, or one that is named otherwise.
    pub(super) const ONE: Pair = Pair { texels: [Some(0); 2], second: 0 };
}

/// A coordinate as an instruction gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Coordinate {
    Float(f32),
    /// The number of a texel.
    Integer(i32),
}

/// What one direction of a texture has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Direction {
    pub(super) texels: u32,
    pub(super) mode: AddressMode,
    pub(super) coordinates: Coordinates,
}

/// No coordinate is further away from the texels.
const FAR: f64 = 1e12;

impl Direction {
    /// The texels that a coordinate, and an offset of whole texels, lead to.
    pub(super) fn pair(&self, at: Coordinate, offset: i32, filter: Filter) -> Pair {
        let (first, second) = match (at, filter) {
            (Coordinate::Integer(i), _) => (i.into(), 0),
            (Coordinate::Float(x), Filter::Point) => (self.position(x).floor() as i64, 0),
            (Coordinate::Float(x), Filter::Linear) => {
                let fixed = ((self.position(x) - 0.5) * 256.0 + 0.5).floor() as i64;
                (fixed >> 8, (fixed & 255) as u32)
            }
        };
        let first = first + i64::from(offset);
        Pair { texels: [self.texel(first), self.texel(first + 1)], second }
    }

    /// Where a coordinate lies, in texels from the edge.
    fn position(&self, x: f32) -> f64 {
        let (x, n) = (f64::from(x), f64::from(self.texels));
        let u = match (self.coordinates, self.mode) {
            (Coordinates::Texels, _) => x,
            (Coordinates::Normalized, AddressMode::Wrap) => (x - x.floor()) * n,
            (Coordinates::Normalized, AddressMode::Mirror) => {
                let fraction = x - x.floor();
                let odd = x.floor().rem_euclid(2.0) == 1.0;
                (if odd { 1.0 - fraction } else { fraction }) * n
            }
            (Coordinates::Normalized, _) => x * n,
        };
        if u.is_nan() { 0.0 } else { u.clamp(-FAR, FAR) }
    }

    /// The texel that a number, which may lie outside, stands for.
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

/// The face of a cube that a direction leads to, and where, from 0 to 1 (guide, "Cubemap Textures").
pub(super) fn face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let (face, m, s, t) = if ax >= ay && ax >= az {
        if x >= 0.0 { (0, x, -z, -y) } else { (1, -x, z, -y) }
    } else if ay >= az {
        if y >= 0.0 { (2, y, x, z) } else { (3, -y, x, -z) }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    (face, [(s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0])
}

/// All combinations of texels in x, y and z whose weight is not 0, with their weights, which add up to 1.
pub(super) fn weighted(pairs: &[Pair; 3]) -> impl Iterator<Item = ([Texel; 3], f64)> {
    (0..8).filter_map(|corner| {
        let second = [corner & 1, corner >> 1 & 1, corner >> 2];
        let part = |i: usize| if second[i] == 1 { pairs[i].second } else { 256 - pairs[i].second };
        let weight = part(0) * part(1) * part(2);
        let at = std::array::from_fn(|i| pairs[i].texels[second[i]]);
        (weight > 0).then(|| (at, f64::from(weight) / f64::from(1 << 24)))
    })
}
