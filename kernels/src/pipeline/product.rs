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

use super::activation::{Activations, Encoding};
use crate::format::Format;
use crate::format::tile::Tile;
use ptx_gen::*;
use std::array::from_fn;

/// A lane's view of the products in one format.
pub(crate) struct TileProduct<'k> {
    k: Builder<'k>,
    format: Format,
    lane: U32<'k>,
    g: U32<'k>,
    t: U32<'k>,
    /// Whether the lane holds activations: the others hold zeros.
    active: Pred<'k>,
    /// The lane's activations for the first tile.
    x: Ptr<'k, u8, Shared>,
    /// The scales of the lane's groups.
    side: Ptr<'k, u8, Shared>,
    /// Bytes of both per token; `None` for a batch of one.
    next: Option<[U32<'k>; 2]>,
}

/// A lane's contribution to the sums of rows `g` and `g + 8`.
pub(crate) type RowSums<'k> = [Var<'k, f32>; 2];

type Quad<'k> = [Var<'k, u32>; 4];

/// The weights of two sets of four groups of 32, as the A fragments of four matrix instructions each.
type Codes<'k> = [[[U32<'k>; 4]; 4]; 2];

/// A lane's results for a group of 32 of one token.
struct Set<'k> {
    /// Sums of codes times bytes, of rows `g` and `g + 8`.
    sums: [I32<'k>; 2],
    /// The scale of the activations.
    scale: F32<'k>,
    /// The sum of the activations.
    sum: F32<'k>,
}

impl<'k> Set<'k> {
    /// The sums in units of the codes.
    fn scaled(&self) -> [F32<'k>; 2] {
        self.sums.map(|sum| sum.cvt::<f32>() * self.scale)
    }

    /// Separates the rows if the codes of row `g + 8` are 16 times its own plus those of row `g`. The result counts
    /// 16 per unit of its own.
    fn separated(self) -> Set<'k> {
        let [first, both] = self.sums;
        Set { sums: [first, both - first], ..self }
    }
}

/// Scales and minima of Q4_K and Q5_K. By set: scale and minimum of row `g`, then of row `g + 8`, as numbers; and `d`
/// and `dmin` of both rows.
struct Scales<'k> {
    numbers: [[F32<'k>; 4]; 2],
    d: [F32<'k>; 2],
    dmin: [F32<'k>; 2],
}

impl<'k> TileProduct<'k> {
    pub(crate) fn new(k: Builder<'k>, format: Format, x: Activations<'k>) -> Self {
        let lane = k.lane();
        let (g, t) = (lane >> 2, lane & 3);
        let (active, offset) = match (x.encoding, format) {
            (Encoding::SplitInt8, Format::Q6_K) => {
                ((g >> 1).eq(t), (t >> 1) * 64 + (t & 1) * 16 + (g & 1) * 32)
            }
            (Encoding::SplitInt8, _) => ((g >> 1).eq(t), t * 64 + (g & 1) * 32),
            _ => (g.lt(2), g * 64 + t * 16),
        };
        let side = match (x.encoding, format) {
            (Encoding::SplitInt8, Format::Q6_K) => x.side().at(t * 8),
            (Encoding::SplitInt8, _) => x.side().at(t * 16),
            _ => x.side(),
        };
        let next = (x.batch > 1).then(|| x.token_bytes());
        TileProduct { k, format, lane, g, t, active, x: x.memory.at(offset), side, next }
    }

    /// Adds the products of a tile, number `kt` of its row, with the activations of each token to the token's sums.
    /// Whole warp.
    pub(crate) fn add(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        self.k.note(format!("{}: unpack a tile", self.format.name()));
        match self.format {
            Format::Q4_0 => self.q4_0(tile, kt, batch),
            Format::Q8_0 => self.q8_0(tile, kt, batch),
            Format::Q4_K => self.q4_k(tile, kt, batch),
            Format::Q5_K => self.q5_k(tile, kt, batch),
            Format::Q6_K => self.q6_k(tile, kt, batch),
            Format::F16 | Format::BF16 => self.halves(tile, kt, batch),
            other => unreachable!("{} has no tile product", other.name()),
        }
    }

    /// The heading of the multiplication by a token's activations.
    fn token(&self) {
        self.k.note(format!("{}: multiply by the activations of a token", self.format.name()));
    }

    /// Sums over the lanes of a row: the result is in every lane, or in the lanes with `t` = 0. Whole warp.
    pub(crate) fn total(&self, v: F32<'k>) -> F32<'k> {
        match Encoding::of(self.format) {
            Some(Encoding::SplitInt8) => {
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

    /// The lane's `c`-th group of four words.
    fn words(&self, tile: Ptr<'k, u8, Shared>, c: u32) -> [U32<'k>; 4] {
        tile.at(self.lane * 16).at(512 * c).cast::<u32>().ld4()
    }

    /// The lane's activations, or zeros.
    fn quad(&self, at: Ptr<'k, u8, Shared>) -> Quad<'k> {
        let mut quad = from_fn(|_| self.k.var(0));
        at.cast::<u32>().ld4_if(self.active, &mut quad);
        quad
    }

    /// The lane's activations of a token for tile `kt` of the row.
    fn x(&self, kt: U32<'k>, item: u32) -> Ptr<'k, u8, Shared> {
        self.of_item(self.x.row(kt, 512), 0, item)
    }

    /// Their scales, `bytes` bytes per tile.
    fn side(&self, kt: U32<'k>, bytes: u32, item: u32) -> Ptr<'k, u8, Shared> {
        self.of_item(self.side.row(kt, bytes), 1, item)
    }

    fn of_item(&self, first: Ptr<'k, u8, Shared>, which: usize, item: u32) -> Ptr<'k, u8, Shared> {
        self.next.map_or(first, |next| if item == 0 { first } else { first.row(next[which], item) })
    }

    /// The products of two sets of four groups of 32 with one token.
    fn sets(
        &self,
        kt: U32<'k>,
        item: u32,
        codes: &Codes<'k>,
        multiply: impl Fn(&mut Sums<'k, i32>, A<'k>, B<&Var<'k, u32>>),
    ) -> [Set<'k>; 2] {
        let (x, side) = (self.x(kt, item), self.side(kt, 128, item));
        from_fn(|s| self.set([x, side], s as u32, &codes[s], &multiply))
    }

    /// The same for set `s`, whose activations and scales start at `[x, side]`.
    fn set(
        &self,
        [x, side]: [Ptr<'k, u8, Shared>; 2],
        s: u32,
        codes: &[[U32<'k>; 4]; 4],
        multiply: impl Fn(&mut Sums<'k, i32>, A<'k>, B<&Var<'k, u32>>),
    ) -> Set<'k> {
        let x = [0, 16].map(|i| self.quad(x.at(256 * s + i)));
        // Two dependent pairs instead of one chain of four: each instruction waits for the sums of its predecessor.
        let mut sums: [Sums<i32>; 2] = from_fn(|_| Sums::zero(self.k));
        for i in 0..4 {
            let quad = &x[i / 2];
            let b = B([&quad[2 * (i % 2)], &quad[2 * (i % 2) + 1]]);
            multiply(&mut sums[i % 2], A(codes[i]), b);
        }
        let [scale, low, _, high] = side.at(64 * s).cast::<f32>().ld4();
        Set { sums: [0, 2].map(|r| both(&sums, r)), scale, sum: low + high }
    }

    /// One set at a time: both would need too many registers for the whole batch.
    fn q8_0(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        let d = tile.at(self.lane * 8).at(4096).cast::<u32>().ld2().map(halves);
        for (s, d) in (0..).zip(d) {
            let codes = from_fn(|i| self.words(tile, 4 * s + i as u32));
            for (item, rows) in (0..).zip(&mut *batch) {
                self.token();
                let at = [self.x(kt, item), self.side(kt, 128, item)];
                let set = self.set(at, s, &codes, |sums, a, b| sums.add_i8(a, b));
                rows.iter_mut().zip(set.scaled()).zip(d).for_each(|((row, sum), d)| row.fma(sum, d));
            }
        }
    }

    /// Row `g` in the low nibbles, row `g + 8` in the high ones. For row `g + 8` whole bytes are multiplied and row
    /// `g`'s products are subtracted again, which is exact and cheaper than masking: see [`Set::separated`].
    fn nibbles(&self, tile: Ptr<'k, u8, Shared>) -> Codes<'k> {
        let words: [_; 4] = from_fn(|c| self.words(tile, c as u32));
        from_fn(|s| {
            from_fn(|i| {
                let pair = &words[2 * s + i / 2][2 * (i % 2)..];
                [pair[0] & 0x0f0f_0f0f, pair[0], pair[1] & 0x0f0f_0f0f, pair[1]]
            })
        })
    }

    fn q4_0(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        let codes = self.nibbles(tile);
        let d = tile.at(self.lane * 8).at(2048).cast::<u32>().ld2().map(halves);
        for (item, rows) in (0..).zip(batch) {
            self.token();
            let sets = self.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b)).map(Set::separated);
            for (set, d) in sets.into_iter().zip(d) {
                let ([first, second], offset) = (set.scaled(), set.sum * -8.0);
                rows[0].fma(first + offset, d[0]);
                rows[1].fma(second.fma(0.0625, offset), d[1]);
            }
        }
    }

    fn q4_k(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        let (codes, scales) = (self.nibbles(tile), self.scales_k(tile, 2048));
        let scales = Scales { d: [scales.d[0], scales.d[1] * 0.0625], ..scales };
        for (item, rows) in (0..).zip(batch) {
            self.token();
            let sets = self.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b));
            scales.apply(rows, &sets.map(Set::separated));
        }
    }

    /// Nibbles as in Q4_K, and the fifth bits of their word `c` in word `c`: bit `2 j + r` belongs to row `g + 8 r`.
    fn q5_k(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        let words: [_; 4] = from_fn(|c| self.words(tile, c as u32));
        let high = tile.at(self.lane * 16).at(2048).cast::<u32>().ld4();
        let codes = from_fn(|s| {
            from_fn(|i| {
                let c = 2 * s + i / 2;
                let code = |j: usize, r: usize| five_bits(words[c][j], high[c], 2 * j + r, 4 * r as u32);
                let j = 2 * (i % 2);
                [code(j, 0), code(j, 1), code(j + 1, 0), code(j + 1, 1)]
            })
        });
        let scales = self.scales_k(tile, 2560);
        for (item, rows) in (0..).zip(batch) {
            self.token();
            scales.apply(rows, &self.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b)));
        }
    }

    /// The six-bit scales and minima of Q4_K and Q5_K from byte `at` on, `d` and `dmin`.
    fn scales_k(&self, tile: Ptr<'k, u8, Shared>, at: u32) -> Scales<'k> {
        let low = tile.at(self.lane * 4).at(at).cast::<u32>().ld();
        let high = tile.at((self.lane >> 1) * 4).at(at + 128).cast::<u32>().ld() >> ((self.lane & 1) * 4);
        let [first, second] = tile.at(self.g * 8).at(at + 192).cast::<u32>().ld2().map(halves);
        let words = [
            (high << 4).lop3(0x3030_3030, low & 0x0f0f_0f0f, AND_OR),
            (high << 2).lop3(0x3030_3030, (low >> 4) & 0x0f0f_0f0f, AND_OR),
        ];
        let numbers = words.map(|word| from_fn(|byte| number(word, byte as u32)));
        Scales { numbers, d: [first[0], second[0]], dmin: [first[1], second[1]] }
    }

    /// Row `g` counts 4 times less than row `g + 8`; `tile.rs` shows how 24 words hold 32.
    fn q6_k(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        let words: Vec<U32> = (0..6).flat_map(|c| self.words(tile, c)).collect();
        let scales = tile.at(self.lane * 8).at(3072).cast::<u32>().ld2();
        let d = halves(tile.at(self.g * 4).at(3328).cast::<u32>().ld());
        let codes: [[_; 2]; 4] = from_fn(|s| from_fn(|i| six_bits(&words[6 * s + 3 * i..])));
        let factor = |byte: usize| scales[byte / 4].bits::<i32>().bfe(8 * (byte as u32 % 4), 8).cvt::<f32>();
        let factors: [[_; 2]; 4] = from_fn(|s| from_fn(|r| factor(2 * s + r)));
        for (item, rows) in (0..).zip(batch) {
            self.token();
            let (x, side) = (self.x(kt, item), self.side(kt, 128, item));
            let mut scaled: [Var<f32>; 2] = from_fn(|_| self.k.var(0.0));
            for s in 0..4 {
                let x = self.quad(x.at(128 * s as u32));
                let mut sums = [Sums::zero(self.k)];
                for i in 0..2 {
                    sums[0].add_u8(A(codes[s][i]), B([&x[2 * i], &x[2 * i + 1]]));
                }
                let [scale, sum] = side.at(32 * s as u32).cast::<f32>().ld2();
                let offset = sum * -32.0;
                let [first, second] = [0, 2].map(|r| both(&sums, r).cvt::<f32>());
                let products = [first.fma(scale, offset), second.fma(scale * 0.25, offset)];
                for (r, product) in products.into_iter().enumerate() {
                    scaled[r].fma(factors[s][r], product);
                }
            }
            for r in 0..2 {
                rows[r].fma(d[r], &scaled[r]);
            }
        }
    }

    fn halves(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, batch: &mut [RowSums<'k>]) {
        let words: [_; 8] = from_fn(|c| self.words(tile, c as u32));
        for (item, rows) in (0..).zip(batch) {
            self.token();
            let x = self.x(kt, item);
            let mut sums: [Sums<f32>; 2] = from_fn(|_| Sums::zero(self.k));
            for c in 0..4 {
                let quad = self.quad(x.at(128 * c as u32));
                for u in 0..2 {
                    let (a, b) = (A(words[2 * c + u]), B([&quad[2 * u], &quad[2 * u + 1]]));
                    match self.format {
                        Format::F16 => sums[u].add_f16(a, b),
                        _ => sums[u].add_bf16(a, b),
                    }
                }
            }
            let scale = (self.format == Format::F16).then(|| self.side(kt, 4, item).cast::<f32>().ld());
            for (r, row) in rows.iter_mut().enumerate() {
                let parts = sums.each_ref().map(|s| s.0[2 * r].get() + &s.0[2 * r + 1]);
                let sum = parts[0] + parts[1];
                match scale {
                    Some(scale) => row.fma(sum, scale),
                    None => *row += sum,
                }
            }
        }
    }
}

impl<'k> Scales<'k> {
    /// `row += d * (sum over sets of scale * product) - dmin * (sum over sets of min * sum)`.
    fn apply(&self, rows: &mut RowSums<'k>, sets: &[Set<'k>; 2]) {
        let products = sets.each_ref().map(Set::scaled);
        for (r, row) in rows.iter_mut().enumerate() {
            let [[a, m], [b, n]] = self.numbers.map(|numbers| [numbers[2 * r], numbers[2 * r + 1]]);
            row.fma(self.d[r], a.fma(products[0][r], b * products[1][r]));
            row.fma(-self.dmin[r], m.fma(sets[0].sum, n * sets[1].sum));
        }
    }
}

/// Converts a byte of a word to a float: in the low bits of 2^23 it adds its value.
fn number<'k>(word: U32<'k>, byte: u32) -> F32<'k> {
    const TWO_23: f32 = 8_388_608.0;
    word.prmt(TWO_23.to_bits(), 0x7650 | byte).bits::<f32>() - TWO_23
}

/// `(a & b) | c`, as `lop3` counts.
const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;

/// Combines the sums of a row's high and low bytes, which are sums `r` and `r + 1` of a lane.
fn both<'k>(sums: &[Sums<'k, i32>], r: usize) -> I32<'k> {
    let sum = |r: usize| sums[1..].iter().fold(sums[0].0[r].get(), |sum, s| sum + &s.0[r]);
    sum(r).mad(256, sum(r + 1))
}

/// The two `f16` of a word.
fn halves(word: U32<'_>) -> [F32<'_>; 2] {
    word.bits::<f16x2>().unpack().map(|h| h.cvt::<f32>())
}

/// Four nibbles of a word, from bit `from` of each byte on, with bit `bit` of the bytes of `high` above them.
fn five_bits<'k>(word: U32<'k>, high: U32<'k>, bit: usize, from: u32) -> U32<'k> {
    let fifth = match bit as u32 {
        bit @ 0..=4 => high << (4 - bit),
        bit => high >> (bit - 4),
    };
    fifth.lop3(0x1010_1010, (word >> from) & 0x0f0f_0f0f, AND_OR)
}

/// Four words of bytes from three words: six bits of each byte, and the remaining bits of all three form the fourth
/// word.
fn six_bits<'k>(w: &[U32<'k>]) -> [U32<'k>; 4] {
    let first = w[0] & 0x3f3f_3f3f;
    let second = w[1] & 0xfcfc_fcfc;
    let third = w[2] & 0x3f3f_3f3f;
    let fourth = (w[2] >> 2).lop3(0x3030_3030, w[0] & 0xc0c0_c0c0, AND_OR);
    let fourth = (w[1] << 2).lop3(0x0c0c_0c0c, fourth, AND_OR);
    [first, second, third, fourth]
}

/// Bytes of a format's tile.
pub(crate) fn tile(format: Format) -> Tile {
    format.tile().expect("plans have tiled formats")
}
