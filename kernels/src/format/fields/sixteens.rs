//! Multiplication of tiles whose groups are 16 columns: four sets of four groups per tile.

use crate::format::lanes::multiply::{OfToken, TileMultiplier, both, one, whole};
use ptx_gen::*;

/// The codes of four sets, as the A fragments of two matrix instructions each.
pub(crate) type SixteenCodes<'k> = [[[U32<'k>; 4]; 2]; 4];

/// The activations of a token for a tile.
pub(crate) struct Sixteens<'p, 'k> {
    multiplier: &'p TileMultiplier<'k>,
    token: OfToken<'k>,
}

/// A lane's results for a group of 16 of one token.
pub(crate) struct Sixteen<'k> {
    sums: [Sums<'k, i32>; 1],
    thirds: Option<[Sums<'k, i32>; 1]>,
    /// The scale of the activations.
    pub(crate) scale: F32<'k>,
    /// The sum of the activations.
    pub(crate) sum: F32<'k>,
}

impl<'k> TileMultiplier<'k> {
    /// Returns the activations of a token for tile `kt`.
    pub(crate) fn sixteens(&self, kt: U32<'k>, item: u32) -> Sixteens<'_, 'k> {
        Sixteens {
            multiplier: self,
            token: self.of_token(kt, item),
        }
    }
}

impl<'k> Sixteens<'_, 'k> {
    /// Multiplies set `s`.
    pub(crate) fn set(&self, s: usize, codes: &[[U32<'k>; 4]; 2]) -> Sixteen<'k> {
        let token = &self.token;
        let sums = self.sums(token.x.at(128 * s as u32), codes);
        let thirds = token
            .thirds
            .map(|thirds| self.sums(thirds.at(64 * s as u32), codes));
        let [scale, sum] = token.side.at(32 * s as u32).cast::<f32>().ld2();
        Sixteen {
            sums,
            thirds,
            scale,
            sum,
        }
    }

    /// Multiplies a set by the bytes at `x`.
    fn sums(&self, x: Ptr<'k, u8, Shared>, codes: &[[U32<'k>; 4]; 2]) -> [Sums<'k, i32>; 1] {
        let x = self.multiplier.quad(x);
        let mut sums = [Sums::zero(self.multiplier.k)];
        for (i, codes) in codes.iter().enumerate() {
            sums[0].add_u8(
                LeftFragment(*codes),
                RightFragment([&x[2 * i], &x[2 * i + 1]]),
            );
        }
        sums
    }
}

impl<'k> Sixteen<'k> {
    /// Returns the sums of codes times activations in units of their scale, for the rows `g` and `g
    /// + 8`.
    pub(crate) fn rows(&self) -> [F32<'k>; 2] {
        [0, 2].map(|r| {
            whole(
                both(&self.sums, r),
                self.thirds.as_ref().map(|thirds| one(thirds, r)),
            )
        })
    }
}
