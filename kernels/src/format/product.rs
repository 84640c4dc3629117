//! A warp multiplies a tile with the activations of a batch.
//!
//! A matrix instruction has eight columns and one token needs one of them. Quantized weights have a scale per group
//! of columns, so the sums of several groups must stay apart. Lane `4 g + t` holds, along the inner dimension, the
//! columns of the tile that belong to group `t` of four. The activations of group `t` occupy only columns `2 t` (high
//! bytes) and `2 t + 1` (low bytes) of the right matrix; the rest is zero. In NVIDIA's terms this is an m16n8k32 with
//! a block-diagonal B. After a few instructions lane `4 g + t` holds the sums of group `t` for rows `g` and `g + 8`
//! and applies the scales.
//!
//! Each token of a batch takes the same number of instructions: a tile's weights are unpacked once, stay in
//! registers, and are multiplied with one token after the other. A token's sums are therefore bit for bit those of a
//! batch of one.
//!
//! `tile.rs` defines where a lane's weights are in a tile.

use super::Format;
use super::activations::{Activations, Encoding, THIRD_BYTES_A_UNIT};
use ptx_gen::*;
use std::array::from_fn;
use std::ops::Deref;

/// The bytes of a tile in shared memory.
pub(crate) type TilePtr<'k> = Ptr<'k, u8, Shared>;

/// A lane's view of tiles of one format.
#[derive(Clone, Copy)]
pub(crate) struct TileLane<'k> {
    pub(crate) k: Builder<'k>,
    pub(super) format: Format,
    pub(super) lane: U32<'k>,
    pub(super) g: U32<'k>,
    pub(super) t: U32<'k>,
}

impl<'k> TileLane<'k> {
    pub(crate) fn new(k: Builder<'k>, format: Format) -> Self {
        let lane = k.lane();
        TileLane {
            k,
            format,
            lane,
            g: lane >> 2,
            t: lane & 3,
        }
    }

    /// The lane's `c`-th group of four words.
    pub(super) fn words(&self, tile: TilePtr<'k>, c: u32) -> [U32<'k>; 4] {
        tile.at(self.lane * 16).at(512 * c).cast::<u32>().ld4()
    }

    /// The binary16 numbers of the lane's groups of 32, from byte `at` on: a word a set, of both rows.
    pub(super) fn group_halves(&self, tile: TilePtr<'k>, at: u32) -> [U32<'k>; 2] {
        tile.at(self.lane * 8).at(at).cast::<u32>().ld2()
    }
}

/// A lane's view of the products in one format.
pub(crate) struct TileProduct<'k> {
    tile: TileLane<'k>,
    /// Whether the lane holds activations: the others hold zeros.
    pub(super) active: Pred<'k>,
    /// The lane's activations for the first tile.
    pub(super) x: Ptr<'k, u8, Shared>,
    /// Their third bytes, if they have any, and how many of them a token has.
    thirds: Option<(Ptr<'k, u8, Shared>, U32<'k>)>,
    /// The scales of the lane's groups.
    pub(super) side: Ptr<'k, u8, Shared>,
    /// Bytes of both per token; `None` for a batch of one.
    pub(super) next: Option<[U32<'k>; 2]>,
}

impl<'k> Deref for TileProduct<'k> {
    type Target = TileLane<'k>;

    fn deref(&self) -> &TileLane<'k> {
        &self.tile
    }
}

/// A lane's activations of a token for a tile: integers.
#[derive(Clone, Copy)]
pub(super) struct OfToken<'k> {
    pub(super) x: Ptr<'k, u8, Shared>,
    pub(super) thirds: Option<Ptr<'k, u8, Shared>>,
    pub(super) side: Ptr<'k, u8, Shared>,
}

/// A lane's contribution to the sums of rows `g` and `g + 8`.
pub(crate) type RowSums<'k> = [Var<'k, f32>; 2];

pub(super) type Quad<'k> = [Var<'k, u32>; 4];

/// The weights of two sets of four groups of 32, as the A fragments of four matrix instructions each.
pub(super) type Codes<'k> = [[[U32<'k>; 4]; 4]; 2];

/// A lane's results for a group of 32 of one token.
pub(super) struct Set<'k> {
    /// Sums of codes times bytes, of rows `g` and `g + 8`.
    pub(super) sums: [I32<'k>; 2],
    /// The same with the third bytes.
    thirds: Option<[I32<'k>; 2]>,
    /// The scale of the activations.
    pub(super) scale: F32<'k>,
    /// The sum of the activations.
    pub(super) sum: F32<'k>,
}

impl<'k> Set<'k> {
    /// The sums in units of the codes.
    pub(super) fn scaled(&self) -> [F32<'k>; 2] {
        from_fn(|r| whole(self.sums[r], self.thirds.map(|thirds| thirds[r])) * self.scale)
    }

    /// Separates the rows if the codes of row `g + 8` are 16 times its own plus those of row `g`. The result counts
    /// 16 per unit of its own.
    pub(super) fn separated(self) -> Set<'k> {
        let second = |[first, both]: [I32<'k>; 2]| [first, both - first];
        Set {
            sums: second(self.sums),
            thirds: self.thirds.map(second),
            ..self
        }
    }
}

impl<'k> TileProduct<'k> {
    pub(crate) fn new(k: Builder<'k>, format: Format, x: Activations<'k>) -> Self {
        let tile = TileLane::new(k, format);
        let (g, t) = (tile.g, tile.t);
        let sixteen = format.tiles().group() == 16;
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
        let thirds = x
            .thirds()
            .map(|all| (all.at(t * format.tiles().group()), x.n));
        TileProduct {
            tile,
            active,
            x: x.memory.at(offset),
            thirds,
            side,
            next,
        }
    }

    /// Adds the products of a tile, number `kt` of its row, with the activations of each token to the token's sums.
    /// Whole warp.
    pub(crate) fn add(&self, tile: TilePtr<'k>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        self.k.section(
            self.format.section("tile_unpack"),
            format!("{}: unpack a tile", self.format.name()),
        );
        self.format.tiles().multiply(self, tile, kt, batch);
    }

    /// Sums over the lanes of a row: the result is in every lane, or in the lanes with `t` = 0. Whole warp.
    pub(crate) fn total(&self, v: F32<'k>) -> F32<'k> {
        match self.format.tiles().encoding() {
            Encoding::SplitInt8(_) => {
                let v = v + v.shfl_bfly(1);
                v + v.shfl_bfly(2)
            }
            _ => v,
        }
    }

    /// Row `g` of the lane, and whether this lane holds the total.
    pub(crate) fn owner(&self) -> (U32<'k>, Pred<'k>) {
        (self.g, self.t.eq(0))
    }

    /// The heading of the multiplication by a token's activations.
    pub(super) fn token(&self) {
        self.k.section(
            self.format.section("tile_multiply"),
            format!(
                "{}: multiply by the activations of a token",
                self.format.name()
            ),
        );
    }

    /// The lane's activations, or zeros.
    pub(super) fn quad(&self, at: Ptr<'k, u8, Shared>) -> Quad<'k> {
        let mut quad = from_fn(|_| self.k.var(0));
        at.cast::<u32>().ld4_if(self.active, &mut quad);
        quad
    }

    /// The lane's activations of a token for tile `kt` of the row.
    pub(super) fn x(&self, kt: U32<'k>, item: u32) -> Ptr<'k, u8, Shared> {
        self.of_item(self.x.row(kt, 512), 0, item)
    }

    /// All that the lane has of them, with scales of groups of 16 or 32 columns.
    pub(super) fn of_token(&self, kt: U32<'k>, item: u32) -> OfToken<'k> {
        OfToken {
            x: self.x(kt, item),
            side: self.side(kt, 128, item),
            thirds: self.thirds(kt, item),
        }
    }

    /// Their third bytes, if they have any. Both lanes of a group hold all of them, so that their sums are in both
    /// columns.
    fn thirds(&self, kt: U32<'k>, item: u32) -> Option<Ptr<'k, u8, Shared>> {
        let (first, token) = self.thirds?;
        let first = first.row(kt, 256);
        Some(if item == 0 {
            first
        } else {
            first.row(token, item)
        })
    }

    /// Their scales, `bytes` bytes per tile.
    pub(super) fn side(&self, kt: U32<'k>, bytes: u32, item: u32) -> Ptr<'k, u8, Shared> {
        self.of_item(self.side.row(kt, bytes), 1, item)
    }

    pub(super) fn of_item(
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

    /// The products of two sets of four groups of 32 with one token.
    pub(super) fn sets(
        &self,
        kt: U32<'k>,
        item: u32,
        codes: &Codes<'k>,
        multiply: impl Fn(&mut Sums<'k, i32>, LeftFragment<'k>, RightFragment<&Var<'k, u32>>),
    ) -> [Set<'k>; 2] {
        let token = self.of_token(kt, item);
        from_fn(|s| self.set(token, s as u32, &codes[s], &multiply))
    }

    /// The same for set `s`.
    pub(super) fn set(
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

    /// The sums of a set with the bytes that start at `x`.
    fn sums(
        &self,
        x: Ptr<'k, u8, Shared>,
        codes: &[[U32<'k>; 4]; 4],
        multiply: impl Fn(&mut Sums<'k, i32>, LeftFragment<'k>, RightFragment<&Var<'k, u32>>),
    ) -> [Sums<'k, i32>; 2] {
        let x = [0, 16].map(|i| self.quad(x.at(i)));
        // Two dependent pairs instead of one chain of four: each instruction waits for the sums of its predecessor.
        let mut sums: [Sums<i32>; 2] = from_fn(|_| Sums::zero(self.k));
        for i in 0..4 {
            let quad = &x[i / 2];
            let b = RightFragment([&quad[2 * (i % 2)], &quad[2 * (i % 2) + 1]]);
            multiply(&mut sums[i % 2], LeftFragment(codes[i]), b);
        }
        sums
    }
}

/// Converts a byte of a word to a float: in the low bits of 2^23 it adds its value.
pub(crate) fn number<'k>(word: U32<'k>, byte: u32) -> F32<'k> {
    const TWO_23: f32 = 8_388_608.0;
    word.prmt(TWO_23.to_bits(), 0x7650 | byte).bits::<f32>() - TWO_23
}

/// `(a & b) | c`, as `lop3` counts.
pub(super) const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;

/// Combines the sums of a row's high and low bytes, which are sums `r` and `r + 1` of a lane.
pub(super) fn both<'k>(sums: &[Sums<'k, i32>], r: usize) -> I32<'k> {
    one(sums, r).mad(256, one(sums, r + 1))
}

/// Sum `r` of a lane.
pub(super) fn one<'k>(sums: &[Sums<'k, i32>], r: usize) -> I32<'k> {
    sums[1..]
        .iter()
        .fold(sums[0].0[r].get(), |sum, s| sum + &s.0[r])
}

/// A sum in units of the integers, with that of the third bytes if there is one.
pub(super) fn whole<'k>(sum: I32<'k>, third: Option<I32<'k>>) -> F32<'k> {
    let sum = sum.cvt::<f32>();
    third.map_or(sum, |third| {
        third.cvt::<f32>().fma(1.0 / THIRD_BYTES_A_UNIT, sum)
    })
}
