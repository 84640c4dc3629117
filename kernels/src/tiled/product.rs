//! A warp multiplies a tile with the activations of its columns.
//!
//! Of the eight columns of a matrix instruction a token needs one. Quantized weights have a scale for each group of
//! columns, so a product over several groups must keep their sums apart: lane `4 g + t` holds, of the inner dimension,
//! columns of the tile that belong to group `t` of four, and the activations of group `t` stand only in columns `2 t`
//! (high digits) and `2 t + 1` (low digits) of the right matrix, zeros elsewhere. After a few instructions lane
//! `4 g + t` has the sums of group `t` for rows `g` and `g + 8`, and applies the scales to them.
//! (The diagonal form is in NVIDIA's terms an m16n8k32 with a block-diagonal B.)
//!
//! Several columns of activations, which are tokens, take as many instructions each: a tile's weights are unpacked
//! once, stay in registers, and meet one column after the other. So each column's sums are bit for bit what it would
//! have alone.
//!
//! Where a lane's weights are in a tile is in `tile.rs`.

use super::activation::{Activations, Encoding};
use super::tile::Tile;
use crate::format::Format;
use ptx_gen::*;
use std::array::from_fn;
use std::cell::LazyCell;

/// A lane's part in the products of one format.
pub(crate) struct Product<'k> {
    k: Builder<'k>,
    format: Format,
    lane: U32<'k>,
    g: U32<'k>,
    t: U32<'k>,
    /// Whether the lane holds activations: the others hold zeros.
    active: Pred<'k>,
    /// Where they are in the first tile's columns.
    x: Ptr<'k, u8, Shared>,
    /// The scales of the lane's groups.
    side: Ptr<'k, u8, Shared>,
    /// Bytes of both from one column of activations to the next, where there are several.
    next: Option<[U32<'k>; 2]>,
}

/// What a lane has of the sums of rows `g` and `g + 8`.
pub(crate) type Rows<'k> = [Var<'k, f32>; 2];

type Quad<'k> = [Var<'k, u32>; 4];

/// What the first column needs is made where it needs it, and kept for the others.
type Once<'a, T> = LazyCell<T, Box<dyn FnOnce() -> T + 'a>>;

fn once<'a, T>(make: impl FnOnce() -> T + 'a) -> Once<'a, T> {
    LazyCell::new(Box::new(make))
}

/// What a lane has of the sums of two sets of four groups of 32: `scale * sum of (w x)` by set and row, and the scaled
/// sum of `x` of the set's group.
type Sets<'k> = [([F32<'k>; 2], F32<'k>); 2];

/// Scales and minima of Q4_K and Q5_K: by set, as numbers, scale and minimum of row `g` and of row `g + 8`; and the
/// `d` and `dmin` of both rows.
struct Scales<'k> {
    numbers: [[Once<'k, F32<'k>>; 4]; 2],
    d: [F32<'k>; 2],
    dmin: [F32<'k>; 2],
}

impl<'k> Product<'k> {
    pub(crate) fn new(k: Builder<'k>, format: Format, x: Activations<'k>) -> Self {
        let lane = k.lane();
        let (g, t) = (lane >> 2, lane & 3);
        let (active, offset) = match (x.encoding, format) {
            (Encoding::Digits, Format::Q6_K) => ((g >> 1).eq(t), (t >> 1) * 64 + (t & 1) * 16 + (g & 1) * 32),
            (Encoding::Digits, _) => ((g >> 1).eq(t), t * 64 + (g & 1) * 32),
            _ => (g.lt(2), g * 64 + t * 16),
        };
        let side = match (x.encoding, format) {
            (Encoding::Digits, Format::Q6_K) => x.side().at(t * 8),
            (Encoding::Digits, _) => x.side().at(t * 16),
            _ => x.side(),
        };
        let next = (x.columns > 1).then(|| x.column_bytes());
        Product { k, format, lane, g, t, active, x: x.memory.at(offset), side, next }
    }

    /// Adds the products of a tile with the activations of its columns, those of tile `kt` of the row: for each column
    /// of activations to its sums. Whole warp.
    pub(crate) fn add(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        match self.format {
            Format::Q4_0 => self.q4_0(tile, kt, columns),
            Format::Q8_0 => self.q8_0(tile, kt, columns),
            Format::Q4_K => self.q4_k(tile, kt, columns),
            Format::Q5_K => self.q5_k(tile, kt, columns),
            Format::Q6_K => self.q6_k(tile, kt, columns),
            Format::F16 | Format::BF16 => self.halves(tile, kt, columns),
            other => unreachable!("{} has no tile product", other.name()),
        }
    }

    /// Adds up what the lanes of a row have: in every lane, or in those with `t` = 0. Whole warp.
    pub(crate) fn total(&self, v: F32<'k>) -> F32<'k> {
        match Encoding::of(self.format) {
            Some(Encoding::Digits) => {
                let v = v + v.shfl_bfly(1);
                v + v.shfl_bfly(2)
            }
            _ => v,
        }
    }

    /// Row `g` of the lane, and whether it is the lane that has the total.
    pub(crate) fn owner(&self) -> (U32<'k>, Pred<'k>) {
        (self.g, self.t.eq(0))
    }

    /// Four words of the lane's own, the `c`-th such.
    fn words(&self, tile: Ptr<'k, u8, Shared>, c: u32) -> [U32<'k>; 4] {
        tile.at(self.lane * 16).at(512 * c).cast::<u32>().ld4()
    }

    /// Activations of the lane, or zeros.
    fn quad(&self, at: Ptr<'k, u8, Shared>) -> Quad<'k> {
        let mut quad = from_fn(|_| self.k.var(0));
        at.cast::<u32>().ld4_if(self.active, &mut quad);
        quad
    }

    /// The lane's activations of a column and of tile `kt` of the row.
    fn x(&self, kt: U32<'k>, column: u32) -> Ptr<'k, u8, Shared> {
        self.of_column(self.x.row(kt, 512), 0, column)
    }

    /// Their scales, of which a tile has so many bytes.
    fn side(&self, kt: U32<'k>, bytes: u32, column: u32) -> Ptr<'k, u8, Shared> {
        self.of_column(self.side.row(kt, bytes), 1, column)
    }

    fn of_column(&self, first: Ptr<'k, u8, Shared>, which: usize, column: u32) -> Ptr<'k, u8, Shared> {
        self.next.map_or(first, |next| if column == 0 { first } else { first.row(next[which], column) })
    }

    fn sets(
        &self,
        kt: U32<'k>,
        column: u32,
        multiply: impl Fn(&mut Sums<'k, i32>, usize, usize, B<&Var<'k, u32>>),
    ) -> Sets<'k> {
        let (x, side) = (self.x(kt, column), self.side(kt, 128, column));
        from_fn(|s| {
            let x = [0, 16].map(|i| self.quad(x.at(256 * s as u32 + i)));
            // Two chains of two, as each instruction waits for the sums of the one before.
            let mut sums: [Sums<i32>; 2] = from_fn(|_| Sums::zero(self.k));
            for i in 0..4 {
                let quad = &x[i / 2];
                multiply(&mut sums[i % 2], s, i, B([&quad[2 * (i % 2)], &quad[2 * (i % 2) + 1]]));
            }
            let [scale, low, _, high] = side.at(64 * s as u32).cast::<f32>().ld4();
            ([0, 2].map(|r| both(&sums, r) * scale), low + high)
        })
    }

    fn q8_0(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        let words: [_; 8] = from_fn(|c| self.words(tile, c as u32));
        let scales = tile.at(self.lane * 8).at(4096).cast::<u32>().ld2();
        let d = scales.map(|scales| once(move || halves(scales)));
        for (column, rows) in (0..).zip(columns) {
            let sets = self.sets(kt, column, |sums, s, i, b| sums.add_i8(A(words[4 * s + i]), b));
            for ((sums, _), d) in sets.into_iter().zip(&d) {
                rows.iter_mut().zip(sums).zip(**d).for_each(|((row, sum), d)| row.fma(sum, d));
            }
        }
    }

    /// Row `g` in the low nibbles, row `g + 8` in the high ones, whose products thus count 16 times.
    fn nibbles(&self, tile: Ptr<'k, u8, Shared>) -> Codes<'k> {
        let words: [_; 4] = from_fn(|c| self.words(tile, c as u32));
        Codes::new(move |s, i| {
            let pair = &words[2 * s + i / 2][2 * (i % 2)..];
            [pair[0] & 0x0f0f_0f0f, pair[0] & 0xf0f0_f0f0, pair[1] & 0x0f0f_0f0f, pair[1] & 0xf0f0_f0f0]
        })
    }

    fn q4_0(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        let codes = self.nibbles(tile);
        let scales = once(|| tile.at(self.lane * 8).at(2048).cast::<u32>().ld2());
        let d: [_; 2] = from_fn(|s| {
            let scales = &scales;
            once(move || halves(scales[s]))
        });
        for (column, rows) in (0..).zip(columns) {
            let sets = self.sets(kt, column, |sums, s, i, b| codes.multiply(sums, s, i, b));
            LazyCell::force(&scales);
            for (([first, second], sum), d) in sets.into_iter().zip(&d) {
                let (offset, d) = (sum * -8.0, **d);
                rows[0].fma(first + offset, d[0]);
                rows[1].fma(second.fma(0.0625, offset), d[1]);
            }
        }
    }

    fn q4_k(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        let codes = self.nibbles(tile);
        self.add_k(&codes, (tile, 2048), 0.0625, kt, columns)
    }

    /// Nibbles as in Q4_K, and the fifth bits of word `c` of them in word `c`: bit `2 j + r` is row `g + 8 r`'s.
    fn q5_k(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        let words: [_; 4] = from_fn(|c| self.words(tile, c as u32));
        let high = tile.at(self.lane * 16).at(2048).cast::<u32>().ld4();
        let codes = Codes::new(move |s, i| {
            let c = 2 * s + i / 2;
            let code = |j: usize, r: usize| five_bits(words[c][j], high[c], 2 * j + r, 4 * r as u32);
            let j = 2 * (i % 2);
            [code(j, 0), code(j, 1), code(j + 1, 0), code(j + 1, 1)]
        });
        self.add_k(&codes, (tile, 2560), 1.0, kt, columns)
    }

    /// With the scales from a byte of the tile on. `second` is what a product of row `g + 8` counts, against row `g`.
    fn add_k(
        &self,
        codes: &Codes<'k>,
        (tile, at): (Ptr<'k, u8, Shared>, u32),
        second: f32,
        kt: U32<'k>,
        columns: &mut [Rows<'k>],
    ) {
        let scales = once(|| self.scales_k(tile, at, second));
        for (column, rows) in (0..).zip(columns) {
            let sets = self.sets(kt, column, |sums, s, i, b| codes.multiply(sums, s, i, b));
            self.apply_k(rows, sets, &scales);
        }
    }

    /// `row += d * (sum over sets of scale * product) - dmin * (sum over sets of min * sum)`.
    fn apply_k(&self, rows: &mut Rows<'k>, sets: Sets<'k>, scales: &Scales<'k>) {
        for (r, row) in rows.iter_mut().enumerate() {
            let number = |s: usize, i: usize| *scales.numbers[s][2 * r + i];
            let term = |s: usize| (number(s, 0), sets[s].0[r], number(s, 1), sets[s].1);
            let ((a, x, m, sum), (b, y, n, other)) = (term(0), term(1));
            row.fma(scales.d[r], a.fma(x, b * y));
            row.fma(-scales.dmin[r], m.fma(sum, n * other));
        }
    }

    /// The six-bit scales and minima of Q4_K and Q5_K from byte `at` on, as bytes, `d` and `dmin`.
    fn scales_k(&self, tile: Ptr<'k, u8, Shared>, at: u32, second: f32) -> Scales<'k> {
        let low = tile.at(self.lane * 4).at(at).cast::<u32>().ld();
        let high = tile.at((self.lane >> 1) * 4).at(at + 128).cast::<u32>().ld() >> ((self.lane & 1) * 4);
        let [d, e] = tile.at(self.g * 8).at(at + 192).cast::<u32>().ld2();
        let words = [
            (high << 4).lop3(0x3030_3030, low & 0x0f0f_0f0f, AND_OR),
            (high << 2).lop3(0x3030_3030, (low >> 4) & 0x0f0f_0f0f, AND_OR),
        ];
        let ([a, b], [c, e]) = (halves(d), halves(e));
        let c = if second == 1.0 { c } else { c * second };
        let number = |word: U32<'k>, byte: u32| once(move || ((word >> (8 * byte)) & 0xff).cvt::<f32>());
        let numbers = words.map(|word| from_fn(|byte| number(word, byte as u32)));
        Scales { numbers, d: [a, c], dmin: [b, e] }
    }

    /// Row `g` counts 4 times less than row `g + 8`; see `tile.rs` for how 24 words hold 32.
    fn q6_k(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        let words: Vec<U32> = (0..6).flat_map(|c| self.words(tile, c)).collect();
        let scales = tile.at(self.lane * 8).at(3072).cast::<u32>().ld2();
        let d = halves(tile.at(self.g * 4).at(3328).cast::<u32>().ld());
        let codes: [[_; 2]; 4] = from_fn(|s| {
            let words = &words;
            from_fn(|i| once(move || six_bits(&words[6 * s + 3 * i..])))
        });
        let factors: [[_; 2]; 4] = from_fn(|s| {
            from_fn(|r| {
                let byte = (2 * s + r) as u32;
                once(move || scales[byte as usize / 4].bits::<i32>().bfe(8 * (byte % 4), 8).cvt::<f32>())
            })
        });
        for (column, rows) in (0..).zip(columns) {
            let (x, side) = (self.x(kt, column), self.side(kt, 128, column));
            let mut scaled: [Var<f32>; 2] = from_fn(|_| self.k.var(0.0));
            for s in 0..4 {
                let x = self.quad(x.at(128 * s as u32));
                let mut sums = [Sums::zero(self.k)];
                for i in 0..2 {
                    sums[0].add_u8(A(*codes[s][i]), B([&x[2 * i], &x[2 * i + 1]]));
                }
                let [scale, sum] = side.at(32 * s as u32).cast::<f32>().ld2();
                let offset = sum * -32.0;
                let products = [both(&sums, 0).fma(scale, offset), both(&sums, 2).fma(scale * 0.25, offset)];
                for (r, product) in products.into_iter().enumerate() {
                    scaled[r].fma(*factors[s][r], product);
                }
            }
            for r in 0..2 {
                rows[r].fma(d[r], &scaled[r]);
            }
        }
    }

    fn halves(&self, tile: Ptr<'k, u8, Shared>, kt: U32<'k>, columns: &mut [Rows<'k>]) {
        let words: [_; 8] = from_fn(|c| self.words(tile, c as u32));
        for (column, rows) in (0..).zip(columns) {
            let x = self.x(kt, column);
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
            let scale = (self.format == Format::F16).then(|| self.side(kt, 4, column).cast::<f32>().ld());
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

/// The weights of two sets of four groups of 32, as four unsigned right sides of matrix instructions each.
struct Codes<'k>([[Once<'k, [U32<'k>; 4]>; 4]; 2]);

impl<'k> Codes<'k> {
    fn new(code: impl Fn(usize, usize) -> [U32<'k>; 4] + Copy + 'k) -> Self {
        Codes(from_fn(|s| from_fn(|i| once(move || code(s, i)))))
    }

    fn multiply(&self, sums: &mut Sums<'k, i32>, s: usize, i: usize, b: B<&Var<'k, u32>>) {
        sums.add_u8(A(*self.0[s][i]), b)
    }
}

/// `(a & b) | c`, as `lop3` counts.
const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;

/// The sum of a row's high digits and low digits, the row being `r` and `r + 1` of a lane's sums.
fn both<'k>(sums: &[Sums<'k, i32>], r: usize) -> F32<'k> {
    let sum = |r: usize| sums[1..].iter().fold(sums[0].0[r].get(), |sum, s| sum + &s.0[r]);
    sum(r).mad(256, sum(r + 1)).cvt::<f32>()
}

/// The two `f16` of a word.
fn halves(word: U32<'_>) -> [F32<'_>; 2] {
    word.bits::<f16x2>().unpack().map(|h| h.cvt::<f32>())
}

/// Four nibbles of a word, from bit `from` of each byte on, and above them bit `bit` of the bytes of `high`.
fn five_bits<'k>(word: U32<'k>, high: U32<'k>, bit: usize, from: u32) -> U32<'k> {
    let fifth = match bit as u32 {
        bit @ 0..=4 => high << (4 - bit),
        bit => high >> (bit - 4),
    };
    fifth.lop3(0x1010_1010, (word >> from) & 0x0f0f_0f0f, AND_OR)
}

/// Four words of bytes from three words: each byte's six bits, and in the two others a part of the fourth word.
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
