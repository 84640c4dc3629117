//! Multiplies a tile by the activations of a batch, with one warp.
//!
//! A matrix instruction has eight columns, and one token needs only one of them. Quantized weights
//! have a scale per group of columns, so the sums of several groups must stay separate. Lane `4 g +
//! t` holds, along the inner dimension, the columns of the tile that belong to group `t` of four.
//! The activations of group `t` occupy only the columns `2 t` (high bytes) and `2 t + 1` (low
//! bytes) of the right matrix, and the rest is zero. In NVIDIA's terms, this is an m16n8k32 with a
//! block-diagonal B. After a few instructions, lane `4 g + t` holds the sums of group `t` for the
//! rows `g` and `g + 8`, and applies the scales.
//!
//! Each token of a batch takes the same number of instructions. The weights of a tile are unpacked
//! once, stay in registers, and are multiplied by one token after another. The sums of a token are
//! therefore bit-identical to the sums in a batch of one.
//!
//! `format/tile.rs` defines where a lane's weights are in a tile.

use super::name::FormatName;
use crate::format::activations::{Activations, Encoding, THIRD_BYTES_A_UNIT};
use crate::format::fields::unpack::halves;
use ptx_gen::*;
use std::array::from_fn;
use std::ops::Deref;

/// The bytes of a tile in shared memory.
pub(crate) type TilePtr<'k> = Ptr<'k, u8, Shared>;

/// A lane's view of tiles of one format.
#[derive(Clone, Copy)]
pub(crate) struct TileLane<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) format: FormatName,
    pub(crate) lane: U32<'k>,
    pub(crate) g: U32<'k>,
    pub(crate) t: U32<'k>,
}

impl<'k> TileLane<'k> {
    /// Creates the view of this lane.
    pub(crate) fn new(k: Builder<'k>, format: FormatName) -> Self {
        let lane = k.lane();
        TileLane {
            k,
            format,
            lane,
            g: lane >> 2,
            t: lane & 3,
        }
    }

    /// Loads the lane's `c`-th group of four words.
    pub(crate) fn words(&self, tile: TilePtr<'k>, c: u32) -> [U32<'k>; 4] {
        tile.at(self.lane * 16).at(512 * c).cast::<u32>().ld4()
    }

    /// Loads the lane's two words among the words of all lanes that start at byte `at`.
    ///
    /// Formats with groups of 32 have an `f16` value of each group there: a word per set, with both
    /// rows.
    pub(crate) fn two_words(&self, tile: TilePtr<'k>, at: u32) -> [U32<'k>; 2] {
        tile.at(self.lane * 8).at(at).cast::<u32>().ld2()
    }

    /// Loads the lane's four words among the words of all lanes that start at byte `at`.
    pub(crate) fn four_words(&self, tile: TilePtr<'k>, at: u32) -> [U32<'k>; 4] {
        tile.at(self.lane * 16).at(at).cast::<u32>().ld4()
    }

    /// Loads the `f16` value of each of the lane's rows, among the values of all rows that start at
    /// byte `at`.
    pub(crate) fn row_halves(&self, tile: TilePtr<'k>, at: u32) -> [F32<'k>; 2] {
        halves(tile.at(self.g * 4).at(at).cast::<u32>().ld())
    }

    /// Loads the two `f16` values of each of the lane's rows, among the pairs of all rows that
    /// start at byte `at`. Returns the first values of both rows, then their second values.
    pub(crate) fn row_pairs(&self, tile: TilePtr<'k>, at: u32) -> [[F32<'k>; 2]; 2] {
        let words = tile.at(self.g * 8).at(at).cast::<u32>().ld2();
        let [first_row, second_row] = words.map(halves);
        [0, 1].map(|i| [first_row[i], second_row[i]])
    }
}

/// A lane's view of the matmul in one format.
pub(crate) struct TileMultiplier<'k> {
    tile: TileLane<'k>,
    /// Whether the lane holds activations. The other lanes hold zeros.
    pub(crate) active: Pred<'k>,
    /// The lane's activations for the first tile.
    pub(crate) x: Ptr<'k, u8, Shared>,
    /// The third bytes of these activations, if they have any, and their number per token.
    thirds: Option<(Ptr<'k, u8, Shared>, U32<'k>)>,
    /// The scales of the lane's groups.
    pub(crate) side: Ptr<'k, u8, Shared>,
    /// The bytes of values and of scales per token, or `None` for a batch of one.
    pub(crate) next: Option<[U32<'k>; 2]>,
    encoding: Encoding,
}

impl<'k> Deref for TileMultiplier<'k> {
    type Target = TileLane<'k>;

    fn deref(&self) -> &TileLane<'k> {
        &self.tile
    }
}

/// A lane's activations of a token for a tile, as integers.
#[derive(Clone, Copy)]
pub(crate) struct OfToken<'k> {
    pub(crate) x: Ptr<'k, u8, Shared>,
    pub(crate) thirds: Option<Ptr<'k, u8, Shared>>,
    pub(crate) side: Ptr<'k, u8, Shared>,
}

/// A lane's contribution to the sums of the rows `g` and `g + 8`.
pub(crate) type RowSums<'k> = [Var<'k, f32>; 2];

/// Four words of activations.
pub(crate) type Quad<'k> = [Var<'k, u32>; 4];

/// The weights of two sets of four groups of 32, as the A fragments of four matrix instructions
/// each.
pub(crate) type Codes<'k> = [[[U32<'k>; 4]; 4]; 2];

/// A lane's results for a group of 32 of one token.
pub(crate) struct Set<'k> {
    /// The sums of codes times bytes, for the rows `g` and `g + 8`.
    pub(crate) sums: [I32<'k>; 2],
    /// The sums of codes times third bytes.
    thirds: Option<[I32<'k>; 2]>,
    /// The scale of the activations.
    pub(crate) scale: F32<'k>,
    /// The sum of the activations.
    pub(crate) sum: F32<'k>,
}

impl<'k> Set<'k> {
    /// Returns the sums in units of the codes.
    pub(crate) fn scaled(&self) -> [F32<'k>; 2] {
        from_fn(|r| whole(self.sums[r], self.thirds.map(|thirds| thirds[r])) * self.scale)
    }

    /// Separates the rows if the codes of row `g + 8` are 16 times its own plus the codes of row
    /// `g`. The result of row `g + 8` counts 16 per unit of its codes.
    pub(crate) fn separated(self) -> Set<'k> {
        let second = |[first, both]: [I32<'k>; 2]| [first, both - first];
        Set {
            sums: second(self.sums),
            thirds: self.thirds.map(second),
            ..self
        }
    }
}

impl<'k> TileMultiplier<'k> {
    /// Creates the view of this lane for activations `x`.
    ///
    /// `group` is the number of adjacent columns of a lane in the format's tiles.
    pub(crate) fn new(k: Builder<'k>, format: FormatName, group: u32, x: Activations<'k>) -> Self {
        let tile = TileLane::new(k, format);
        let g = tile.g;
        let t = tile.t;
        let sixteen = group == 16;

        // With integers, the columns `2 t` and `2 t + 1` hold the activations of group `t` and
        // zeros for the other groups. One instruction thus gives the sums of four groups.
        let (active, offset) = match x.encoding {
            Encoding::SplitInt8(_) if sixteen => {
                ((g >> 1).eq(t), (t >> 1) * 64 + (t & 1) * 16 + (g & 1) * 32)
            }
            Encoding::SplitInt8(_) => ((g >> 1).eq(t), t * 64 + (g & 1) * 32),
            _ => (g.lt(2), g * 64 + t * 16),
        };
        let side = match x.encoding {
            Encoding::SplitInt8(_) if sixteen => x.side().at(t * 8),
            Encoding::SplitInt8(_) => x.side().at(t * 16),
            _ => x.side(),
        };
        let next = (x.batch > 1).then(|| x.token_bytes());
        let thirds = x.thirds().map(|all| (all.at(t * group), x.n));
        TileMultiplier {
            tile,
            active,
            x: x.memory.at(offset),
            thirds,
            side,
            next,
            encoding: x.encoding,
        }
    }

    /// Returns the sum over the lanes of a row, in every lane or in the lanes with `t` = 0. The
    /// whole warp must call it.
    pub(crate) fn total(&self, v: F32<'k>) -> F32<'k> {
        match self.encoding {
            Encoding::SplitInt8(_) => {
                let v = v + v.shfl_bfly(1);
                v + v.shfl_bfly(2)
            }
            _ => v,
        }
    }

    /// Returns row `g` of the lane, and whether this lane holds the total.
    pub(crate) fn owner(&self) -> (U32<'k>, Pred<'k>) {
        (self.g, self.t.eq(0))
    }

    /// Begins the section of the multiplication by a token's activations.
    pub(crate) fn token(&self) {
        self.k.section(
            self.format.section("tile_multiply"),
            format!(
                "{}: multiply by the activations of a token",
                self.format.name()
            ),
        );
    }

    /// Loads the lane's activations, or zeros in a lane without activations.
    pub(crate) fn quad(&self, at: Ptr<'k, u8, Shared>) -> Quad<'k> {
        let mut quad = from_fn(|_| self.k.var(0));
        at.cast::<u32>().ld4_if(self.active, &mut quad);
        quad
    }

    /// Returns the address of the lane's activations of a token for tile `kt` of the row.
    pub(crate) fn x(&self, kt: U32<'k>, item: u32) -> Ptr<'k, u8, Shared> {
        self.of_item(self.x.row(kt, 512), 0, item)
    }

    /// Returns the addresses of the lane's activations and their scales, for groups of 16 or 32
    /// columns.
    pub(crate) fn of_token(&self, kt: U32<'k>, item: u32) -> OfToken<'k> {
        OfToken {
            x: self.x(kt, item),
            side: self.side(kt, 128, item),
            thirds: self.thirds(kt, item),
        }
    }

    /// Returns the address of the third bytes, if there are any. Both lanes of a group hold all of
    /// them, so their sums are in both columns.
    fn thirds(&self, kt: U32<'k>, item: u32) -> Option<Ptr<'k, u8, Shared>> {
        let (first, token) = self.thirds?;
        let first = first.row(kt, 256);
        Some(if item == 0 {
            first
        } else {
            first.row(token, item)
        })
    }

    /// Returns the address of the scales, with `bytes` bytes per tile.
    pub(crate) fn side(&self, kt: U32<'k>, bytes: u32, item: u32) -> Ptr<'k, u8, Shared> {
        self.of_item(self.side.row(kt, bytes), 1, item)
    }

    /// Returns the address for a token of the batch, given the address for the first one.
    pub(crate) fn of_item(
        &self,
        first: Ptr<'k, u8, Shared>,
        which: usize,
        item: u32,
    ) -> Ptr<'k, u8, Shared> {
        self.next.map_or(first, |next| {
            if item == 0 {
                first
            } else {
                first.row(next[which], item)
            }
        })
    }

    /// Multiplies two sets of four groups of 32 by one token.
    pub(crate) fn sets(
        &self,
        kt: U32<'k>,
        item: u32,
        codes: &Codes<'k>,
        multiply: impl Fn(&mut Sums<'k, i32>, LeftFragment<'k>, RightFragment<&Var<'k, u32>>),
    ) -> [Set<'k>; 2] {
        let token = self.of_token(kt, item);
        from_fn(|s| self.set(token, s as u32, &codes[s], &multiply))
    }

    /// Multiplies set `s` of four groups of 32 by one token.
    pub(crate) fn set(
        &self,
        token: OfToken<'k>,
        s: u32,
        codes: &[[U32<'k>; 4]; 4],
        multiply: impl Fn(&mut Sums<'k, i32>, LeftFragment<'k>, RightFragment<&Var<'k, u32>>),
    ) -> Set<'k> {
        let sums = self.sums(token.x.at(256 * s), codes, &multiply);
        let thirds = token
            .thirds
            .map(|thirds| self.sums(thirds.at(128 * s), codes, &multiply));
        let [scale, low, _, high] = token.side.at(64 * s).cast::<f32>().ld4();
        let thirds = thirds.map(|sums| [0, 2].map(|r| one(&sums, r)));
        Set {
            sums: [0, 2].map(|r| both(&sums, r)),
            thirds,
            scale,
            sum: low + high,
        }
    }

    /// Multiplies a set by the bytes at `x`.
    fn sums(
        &self,
        x: Ptr<'k, u8, Shared>,
        codes: &[[U32<'k>; 4]; 4],
        multiply: impl Fn(&mut Sums<'k, i32>, LeftFragment<'k>, RightFragment<&Var<'k, u32>>),
    ) -> [Sums<'k, i32>; 2] {
        let x = [0, 16].map(|i| self.quad(x.at(i)));

        // Two chains of two dependent instructions are faster than one chain of four, because each
        // instruction waits for the sums of its predecessor.
        let mut sums: [Sums<i32>; 2] = from_fn(|_| Sums::zero(self.k));
        for i in 0..4 {
            let quad = &x[i / 2];
            let b = RightFragment([&quad[2 * (i % 2)], &quad[2 * (i % 2) + 1]]);
            multiply(&mut sums[i % 2], LeftFragment(codes[i]), b);
        }

        sums
    }
}

/// Converts a byte of a word to a float. In the low bits of 2^23, the byte adds its value.
pub(crate) fn number<'k>(word: U32<'k>, byte: u32) -> F32<'k> {
    const TWO_23: f32 = 8_388_608.0;
    word.prmt(TWO_23.to_bits(), 0x7650 | byte).bits::<f32>() - TWO_23
}

/// The truth table of `(a & b) | c` for `lop3`.
pub(crate) const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;

/// Combines the sums of a row's high and low bytes, which are the sums `r` and `r + 1` of a lane.
pub(crate) fn both<'k>(sums: &[Sums<'k, i32>], r: usize) -> I32<'k> {
    one(sums, r).mad(256, one(sums, r + 1))
}

/// Returns sum `r` of a lane.
pub(crate) fn one<'k>(sums: &[Sums<'k, i32>], r: usize) -> I32<'k> {
    sums[1..]
        .iter()
        .fold(sums[0].0[r].get(), |sum, s| sum + &s.0[r])
}

/// Returns a sum in units of the integers, including the sum of the third bytes if there is one.
pub(crate) fn whole<'k>(sum: I32<'k>, third: Option<I32<'k>>) -> F32<'k> {
    let sum = sum.cvt::<f32>();
    third.map_or(sum, |third| {
        third.cvt::<f32>().fma(1.0 / THIRD_BYTES_A_UNIT, sum)
    })
}
