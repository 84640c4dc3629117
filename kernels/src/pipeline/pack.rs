//! Packs GGUF rows into tiles: one warp per tile, each lane its own words (`tile.rs`).
//!
//! A lane reads its groups of rows `g` and `g + 8` as words. If blocks are an odd number of halfwords, words are
//! loaded from the last multiple of four bytes on, and `Shift` realigns them.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::format::Format;
use crate::format::fragment::{Bytes, SELECT, halfword, join};
use crate::format::tile::{RowOrder, pack};
use ptx_gen::*;
use std::array::from_fn;

/// Warps of a block.
const WARPS: u32 = 4;
/// The maximum number of tiles: rows times tiles of a row are counted in 32 bits.
const MAX_TILES: u32 = 1 << 27;

args! {
    /// Arguments of [`Pack`].
    pub struct PackArgs {
        /// `[row_blocks / per * stride, row_bytes]`, from an address that is a multiple of 16: see [`RowOrder`]
        lo: In<u8>,
        /// `[row_blocks / per * stride, row_bytes]`, from an address that is a multiple of 16; it may be `lo`
        hi: In<u8>,
        /// `[row_blocks, n / columns, bytes]`, as [`Tile`](crate::pipeline::Tile) has them, from a multiple of 16
        y: Out<u8>,
        /// Row length in weights, a multiple of the tile's columns.
        n: u32,
        /// Row blocks, a multiple of `per`.
        row_blocks: u32,
        /// [`RowOrder::per`]
        per: u32,
        /// [`RowOrder::stride`]
        stride: u32,
        /// [`RowOrder::step`]
        step: u32,
        /// [`RowOrder::delta`]
        delta: u32,
    }
}

/// The kernel. The format has a tile.
#[derive(Clone, Copy, Debug)]
pub struct Pack {
    /// The format of the rows.
    pub format: Format,
}

impl KernelDef for Pack {
    type Args<S: Side> = PackArgs<S>;

    fn name(&self) -> String {
        format!("pack_{}", self.format.suffix())
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(4)
    }

    fn grid(&self, a: &PackArgs<Shape>) -> Result<Grid, ShapeError> {
        let columns = self.format.tile().map_or(0, |tile| tile.columns);
        self.multiple("n", a.n, columns)?;
        self.groups(a)?;
        let most = MAX_TILES / (a.n / columns);
        self.require(a.row_blocks <= most, || {
            format!("row_blocks is {}, must be at most {most} for n = {}", a.row_blocks, a.n)
        })?;
        self.sizes(a)?;
        Ok(Grid::line((a.row_blocks * (a.n / columns)).div_ceil(WARPS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: PackArgs<Dev<'k>>) {
        let tile = self.format.tile().expect("the format has a tile");
        let (lane, index) = (k.lane(), k.ctaid() * WARPS + k.warp());
        let row_tiles = a.n >> tile.columns.ilog2();
        k.when(index.lt(a.row_blocks * row_tiles), || {
            let (row_block, column) = (index / row_tiles, index % row_tiles);
            let row = (((row_block % a.per) << 3) + (lane >> 2)) * a.step;
            let row = row_block / a.per * a.stride + row;
            let row_of = |matrix, row: U32<'k>| TileRow { matrix, index: row * row_tiles + column };
            let rows = [row_of(a.lo, row), row_of(a.hi, row + a.delta)];
            PackLane { k, lane, t: lane & 3, rows, tile: a.y.row(index, tile.bytes) }.pack(self.format);
        });
    }

    fn reference(&self, a: PackArgs<Cpu<'_>>) {
        let rows = RowOrder { per: a.per, stride: a.stride, step: a.step, delta: a.delta };
        a.y.copy_from_slice(&pack(self.format, rows, a.lo, a.hi, a.n as usize));
    }
}

impl Pack {
    /// Checks that row blocks form whole groups, and that the rows of a group stay inside it.
    fn groups(&self, a: &PackArgs<Shape>) -> Result<(), ShapeError> {
        self.range("per", a.per, 1, 1 << 16)?;
        self.multiple("row_blocks", a.row_blocks, a.per)?;
        let last = u64::from(8 * a.per - 1) * u64::from(a.step) + u64::from(a.delta);
        self.require(last < u64::from(a.stride), || {
            format!("stride is {}, must be above (8 * per - 1) * step + delta = {last}", a.stride)
        })
    }

    /// Checks the buffers' sizes.
    fn sizes(&self, a: &PackArgs<Shape>) -> Result<(), ShapeError> {
        let rows = (a.row_blocks / a.per) as usize * a.stride as usize;
        let row = self.format.row_bytes(a.n as usize);
        for (name, found) in [("lo", a.lo), ("hi", a.hi)] {
            self.require(found == rows * row, || {
                format!("{name} has {found} bytes, must have {rows} rows of {row} bytes each")
            })?;
        }
        let wanted = a.row_blocks as usize * 16 * row;
        self.require(a.y == wanted, || {
            format!("y has {} bytes, must have {} row blocks of {} bytes each", a.y, a.row_blocks, 16 * row)
        })
    }
}

/// The part of a row that belongs to one tile.
struct TileRow<'k> {
    matrix: Bytes<'k>,
    /// The index of this part in the matrix, in units of a tile's columns.
    index: U32<'k>,
}

impl<'k> TileRow<'k> {
    /// Its bytes.
    fn bytes(&self, format: Format) -> Bytes<'k> {
        let columns = format.tile().map_or(0, |tile| tile.columns);
        self.matrix.row(self.index, format.row_bytes(columns as usize) as u32)
    }
}

/// A lane, with the two rows that it packs.
struct PackLane<'k> {
    k: Builder<'k>,
    lane: U32<'k>,
    /// Its index among the four lanes of its rows.
    t: U32<'k>,
    rows: [TileRow<'k>; 2],
    tile: Ptr<'k, u8, Write>,
}

impl<'k> PackLane<'k> {
    fn pack(&self, format: Format) {
        self.k.note(format!("pack both rows of {}", format.name()));
        let rows = self.rows.each_ref().map(|row| row.bytes(format));
        match format {
            Format::F16 | Format::BF16 => self.halves(rows),
            Format::Q8_0 => self.q8_0(rows),
            Format::Q4_0 => self.q4_0(rows),
            Format::Q4_K => self.q4_k(rows),
            Format::Q5_K => self.q5_k(rows),
            Format::Q6_K => self.q6_k(rows),
            _ => unreachable!("{} has no tile", format.name()),
        }
    }

    /// Stores the lane's words from `4 c` on.
    fn words(&self, c: u32, words: [U32<'k>; 4]) {
        self.tile.at(512 * c).row(self.lane, 16).cast::<u32>().st4(words);
    }

    /// Stores a word or two for each row `g`, at `at`, of `4 * N` bytes each.
    fn row_words<const N: usize>(&self, at: u32, words: [U32<'k>; N]) {
        let to = self.tile.at(at).row(self.lane >> 2, 4 * N as u32).cast::<u32>();
        let store = || words.iter().enumerate().for_each(|(i, &word)| to.at(i as u32).st(word));
        self.k.when(self.t.eq(0), store);
    }

    fn halves(&self, rows: [Bytes<'k>; 2]) {
        for c in 0..4 {
            let [a, b] = rows.map(|row| row.at(64 * c).row(self.t, 16).cast::<u32>().ld4());
            self.words(2 * c, [a[0], b[0], a[1], b[1]]);
            self.words(2 * c + 1, [a[2], b[2], a[3], b[3]]);
        }
    }

    fn q8_0(&self, rows: [Bytes<'k>; 2]) {
        for s in 0..2 {
            let ([a, b], d) = self.blocks::<8>(rows, 34, s);
            for (i, (a, b)) in (0..).zip(a.chunks(2).zip(b.chunks(2))) {
                self.words(4 * s + i, [a[0], b[0], a[1], b[1]]);
            }
            self.tile.at(4096 + 4 * s).row(self.lane, 8).cast::<u32>().st(d);
        }
    }

    fn q4_0(&self, rows: [Bytes<'k>; 2]) {
        for s in 0..2 {
            let (codes, d) = self.blocks::<4>(rows, 18, s);
            self.nibbles(s, codes.map(|w| from_fn(|i| if i < 4 { w[i] } else { w[i - 4] >> 4 })));
            self.tile.at(2048 + 4 * s).row(self.lane, 8).cast::<u32>().st(d);
        }
    }

    /// `N` words of codes of both rows, and their scales as one word, from block `4 s + t` of `bytes` bytes.
    fn blocks<const N: usize>(
        &self,
        rows: [Bytes<'k>; 2],
        bytes: u32,
        s: u32,
    ) -> ([[U32<'k>; N]; 2], U32<'k>) {
        let odd = self.t & 1;
        let at = (self.t >> 1).mad(2 * bytes, odd * (bytes - 2));
        let rows = rows.map(|row| row.at(4 * bytes * s).at(at).cast::<u32>());
        let words = rows.map(|row| (0..=N as u32).map(|i| row.at(i).ld()).collect::<Vec<_>>());
        // In even blocks the scale is the lower half of the first word, in odd blocks the upper half.
        let scales = words[0][0].prmt(words[1][0], Shift::halfword(odd, 0x5410).0);
        (words.map(|words| Shift::halfword(odd, 0x5432).of(&words)), scales)
    }

    /// Stores set `s` of nibbles: eight words of 32 codes of each row, in the low nibbles. The high nibbles are
    /// ignored.
    fn nibbles(&self, s: u32, [a, b]: [[U32<'k>; 8]; 2]) {
        for h in 0..2 {
            let word = |j: usize| a[4 * h + j].lop3(b[4 * h + j] << 4, 0x0f0f_0f0f, SELECT);
            self.words(2 * s + h as u32, from_fn(word));
        }
    }

    fn q4_k(&self, rows: [Bytes<'k>; 2]) {
        let header = rows.map(|row| row.cast::<u32>().ld4());
        (0..2).for_each(|s| self.nibbles_k(rows.map(|row| row.at(16)), s));
        self.scales_k(2048, header);
    }

    fn q5_k(&self, rows: [Bytes<'k>; 2]) {
        let header = rows.map(|row| row.cast::<u32>().ld4());
        let fifth = rows.map(|row| load8(row.at(16)).map(|word| word >> self.t));
        (0..2).for_each(|s| self.nibbles_k(rows.map(|row| row.at(48)), s));
        let one = |r: usize, c: u32, j: usize| {
            let word = fifth[r][4 * (c & 1) as usize + j];
            ((word >> (4 * (c >> 1))) & 0x0101_0101) << (2 * j + r) as u32
        };
        self.k.note("fifth bits");
        let word = |c| (1..8).fold(one(0, c, 0), |word, i| word | one(i % 2, c, i / 2));
        self.tile.at(2048).row(self.lane, 16).cast::<u32>().st4([0, 1, 2, 3].map(word));
        self.scales_k(2560, header);
    }

    /// The nibbles of group `4 s + t`: 32 bytes hold one group in the low nibbles and the next in the high nibbles.
    fn nibbles_k(&self, codes: [Bytes<'k>; 2], s: u32) {
        let pair = |codes: Bytes<'k>| load8(codes.at(64 * s).row(self.t >> 1, 32));
        let shift = (self.t & 1) << 2;
        self.nibbles(s, codes.map(|codes| pair(codes).map(|word| word >> shift)));
    }

    /// Stores scales and minima from `at` on: low bits, high bits, and what multiplies them.
    ///
    /// A header is `d, dmin` and pack_six_bits words. Byte `t` of the first two has the scale and the minimum of group `t`
    /// in its lower six bits and the upper two bits of group `4 + t`'s above; byte `t` of the third has their lower
    /// four bits. So bits 4 to 7 of the former are the upper bits of both groups, in the tile's order.
    fn scales_k(&self, at: u32, [a, b]: [[U32<'k>; 4]; 2]) {
        self.k.note("scales and minima of Q4_K and Q5_K");
        let pick = self.t.mad(0x11, 0x40);
        let [first, second] = [a, b].map(|h| (h[1].prmt(h[2], pick), h[3].prmt(h[3] >> 4, pick)));
        let (low, next) = (join(first.0, second.0), join(first.1, second.1));
        let word = low.lop3(next << 4, 0x0f0f_0f0f, SELECT);
        self.tile.at(at).row(self.lane, 4).cast::<u32>().st(word);
        let high = (low >> 4) & 0x0f0f_0f0f;
        let both = high | (high.shfl_bfly(1) << 4);
        let to = self.tile.at(at + 128).row(self.lane >> 1, 4).cast::<u32>();
        self.k.when((self.lane & 1).eq(0), || to.st(both));
        self.row_words(at + 192, [a[0], b[0]]);
    }

    fn q6_k(&self, rows: [Bytes<'k>; 2]) {
        let codes = self.rows.each_ref().map(|row| self.q6_k_codes(row));
        self.k.note("four words of six-bit codes into three");
        let words: Vec<_> =
            (0..8).flat_map(|m| pack_six_bits(codes.each_ref().map(|row| &row[2 * m..]))).collect();
        words.chunks(4).enumerate().for_each(|(c, w)| self.words(c as u32, [w[0], w[1], w[2], w[3]]));
        self.k.note("scales of Q6_K");
        let scale = |row: Bytes<'k>, s: u32| row.at(192 + 4 * s).at(self.t).ld();
        let set = |s| scale(rows[0], s) | (scale(rows[1], s) << 8);
        let scales = [join(set(0), set(1)), join(set(2), set(3))];
        self.tile.at(3072).row(self.lane, 8).cast::<u32>().st2(scales);
        let [a, b] = rows.map(|row| halfword(row, 208));
        self.row_words(3328, [join(a, b)]);
    }

    /// The codes of groups `t`, `4 + t`, `8 + t`, `12 + t` of 16, four words each.
    ///
    /// Blocks are 210 bytes, so every other one starts in the middle of a word.
    fn q6_k_codes(&self, row: &TileRow<'k>) -> Vec<U32<'k>> {
        let odd = row.index & 1;
        let shift = Shift::halfword(odd, 0x3210);
        let block = row.matrix.row(row.index >> 1, 420).row(odd, 208);
        let (low, high) = (block.row(self.t, 16), block.row(self.t & 1, 16));
        let four = |from: Bytes<'k>, at| {
            shift.of::<4>(&[0, 1, 2, 3, 4].map(|i| from.cast::<u32>().at(at / 4 + i).ld()))
        };
        let half = |half: u32| {
            let lows = four(low, 64 * half);
            let highs = four(high, 128 + 32 * half).map(|word| word >> ((self.t >> 1) << 1));
            let code = |low: U32<'k>, high: U32<'k>| low.lop3(high, 0x0f0f_0f0f, SELECT) & 0x3f3f_3f3f;
            let first: [_; 4] = from_fn(|i| code(lows[i], highs[i] << 4));
            let second: [_; 4] = from_fn(|i| code(lows[i] >> 4, highs[i]));
            [first, second].concat()
        };
        [half(0), half(1)].concat()
    }
}

/// Realigns words that start at an aligned address or a halfword after it: a `prmt` selector of four of eight bytes.
#[derive(Clone, Copy)]
struct Shift<'k>(U32<'k>);

impl<'k> Shift<'k> {
    /// `selector`, one halfword on where `odd` is 1.
    fn halfword(odd: U32<'k>, selector: u32) -> Self {
        Shift(odd.mad(0x2222, selector))
    }

    /// `N` words of `N + 1`.
    fn of<const N: usize>(self, words: &[U32<'k>]) -> [U32<'k>; N] {
        from_fn(|i| words[i].prmt(words[i + 1], self.0))
    }
}

/// Eight words from a multiple of 16 bytes on.
fn load8(from: Bytes<'_>) -> [U32<'_>; 8] {
    let from = from.cast::<u32>();
    let (low, high) = (from.ld4(), from.at(4).ld4());
    from_fn(|i| if i < 4 { low[i] } else { high[i - 4] })
}

/// Packs eight columns of two rows, two words of six-bit codes each, into three words: see `tile.rs`.
fn pack_six_bits<'k>([a, b]: [&[U32<'k>]; 2]) -> [U32<'k>; 3] {
    let last = b[1];
    [
        a[0] | ((last & 0x3030_3030) << 2),
        (b[0] << 2) | (last & 0x0303_0303),
        a[1] | ((last & 0x0c0c_0c0c) << 4),
    ]
}

impl Variant for Pack {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Each row order; fewer tiles than warps, and more; rows of an odd and of an even number of blocks.
        [
            (RowOrder::PLAIN, 1, 1),
            (RowOrder::PLAIN, 3, 3),
            (RowOrder::half_split(64), 2, 2),
            (RowOrder::interleaved(32), 3, 1),
            (RowOrder::GATE_UP, 2, 3),
        ]
        .map(|(rows, groups, tiles)| self.case(&mut Random(seed), rows, groups, tiles))
        .into()
    }
}

impl Pack {
    /// `groups` groups of rows, `tiles` tiles long.
    fn case(&self, random: &mut Random, rows: RowOrder, groups: u32, tiles: u32) -> Case {
        let n = tiles * self.format.tile().map_or(0, |tile| tile.columns);
        let row_blocks = groups * rows.per;
        let blocks = groups * rows.stride * n / self.format.block_len();
        let lo = self.format.random(blocks as usize, 1.0, random);
        let hi = if rows == RowOrder::GATE_UP {
            self.format.random(blocks as usize, 1.0, random)
        } else {
            lo.clone()
        };
        let y = vec![0; row_blocks as usize * 16 * self.format.row_bytes(n as usize)];
        let mut args = vec![CpuArg::U8(lo), CpuArg::U8(hi), CpuArg::U8(y)];
        let sizes = [n, row_blocks, rows.per, rows.stride, rows.step, rows.delta];
        args.extend(sizes.map(CpuArg::scalar));
        Case { label: format!("groups={groups} n={n} {rows:?}"), args, bound: 0.0 }
    }
}
