//! The work of the idle warps of a matmul: they unpack the NF4 matrix of the next matmul.
//!
//! A matmul on tensor cores leaves most of the device's issue slots and memory bandwidth unused,
//! and three warps of each block have no other work. The matrix is then in `bf16` when the next
//! matmul begins, without a kernel between the two.

use std::array::from_fn;

use crate::shared::tiled::{IDLE, ProductTile};
use crate::shared::{Contract, Random};
use crate::train::nf4::{BLOCK, VALUES, dequantize};
use ptx_gen::*;

args! {
    /// The matrix that idle warps unpack. Without a matrix, all buffers are empty.
    pub struct AheadArgs {
        /// `[n / 2]`: two codes per byte, at an address that is a multiple of 4
        packed: In<u8>,
        /// `[n / 64]`: the largest magnitude of each block
        absmax: In<f32>,
        /// `[n]`: the bits that [`Nf4Dequantize`](crate::train::half::convert::Nf4Dequantize)
        /// gives, at an address that is a multiple of 16
        unpacked: Out<bf16>,
        /// The number of elements, a multiple of 64.
        n: u32,
    }
}

/// The number of elements of a word of codes.
const EIGHT: u32 = 8;
/// The barrier of the idle threads. `Leaving::store` uses the others.
const BARRIER: u32 = 3;
/// The number of words that a thread loads while it unpacks as many others.
const AT_ONCE: usize = 8;

/// Checks the arguments of the idle warps and returns the grid of the matmul. If there is a matrix,
/// the grid has all blocks, even blocks without a tile.
pub(super) fn grid(
    kernel: &impl Contract,
    ahead: &AheadArgs<Shape>,
    tile: ProductTile,
    [rows, columns]: [u32; 2],
    blocks: u32,
    beside: u32,
) -> Result<Grid, ShapeError> {
    let AheadArgs {
        packed,
        absmax,
        unpacked,
        n,
    } = *ahead;
    let block = BLOCK as u32;
    kernel.require(n.is_multiple_of(block), || {
        format!("n is {n}, must be a multiple of {block}")
    })?;
    kernel.length("packed", packed, "n / 2", &[n / 2])?;
    kernel.length("absmax", absmax, "n / 64", &[n / block])?;
    kernel.length("unpacked", unpacked, "n", &[n])?;
    Ok(if n == 0 {
        tile.grid([rows, columns], blocks, beside)
    } else {
        tile.grid_of(blocks, beside)
    })
}

/// Words of codes with the `absmax` of each.
struct Fetched<'k>([(Var<'k, u32>, Var<'k, f32>); AT_ONCE]);

/// The idle threads of a grid and their matrix.
pub(super) struct Ahead<'k> {
    k: Builder<'k>,
    of: AheadArgs<Dev<'k>>,
    /// The values of NF4 in shared memory.
    values: Ptr<'k, f32, Shared>,
}

impl<'k> Ahead<'k> {
    pub(super) fn new(k: Builder<'k>, of: AheadArgs<Dev<'k>>) -> Self {
        Ahead {
            k,
            of,
            values: k.shared("values", VALUES.len() as u32),
        }
    }

    /// Generates the work of a thread, which is one of the [`IDLE`] threads of a block.
    pub(super) fn run(&self, thread: U32<'k>) {
        let k = self.k;
        let values = self.values;
        k.when(self.of.n.ne(0), || {
            k.section("train/nf4/tile_values", "the values of codes");
            k.when(thread.eq(0), || {
                for i in 0..4 {
                    values
                        .at(4 * i)
                        .st4(from_fn(|j| k.val(VALUES[4 * i as usize + j])));
                }
            });
            k.barrier_part(BARRIER, IDLE);
            self.unpack_words(thread);
        });
    }

    /// Unpacks the words of a thread.
    ///
    /// They are a grid's threads apart, so that neighboring threads load and store neighboring
    /// words. Two sets of words alternate: one is loaded while the other is unpacked.
    fn unpack_words(&self, thread: U32<'k>) {
        let k = self.k;
        let words = self.of.n / EIGHT;
        let threads = k.nctaid() * IDLE;
        let set = || Fetched(from_fn(|_| (k.var(0u32), k.var(0.0))));
        let mut now = set();
        let mut then = set();
        let first = k.ctaid() * IDLE + thread;
        let after = |word: U32<'k>| word + threads * AT_ONCE as u32;
        self.fetch(&mut now, first, words);
        k.for_each(first, words, threads * (2 * AT_ONCE as u32), |word| {
            // The loads of one set overlap with the unpacking of the other.
            let next = after(word);
            self.fetch(&mut then, next, words);
            self.unpack(&now, word, words);
            self.fetch(&mut now, after(next), words);
            self.unpack(&then, next, words);
        });
    }

    /// Runs `body` for each word of a set, with a predicate that is true if the word exists, and
    /// the word's index in the set.
    fn each(&self, first: U32<'k>, words: U32<'k>, mut body: impl FnMut(U32<'k>, Pred<'k>, usize)) {
        let threads = self.k.nctaid() * IDLE;
        for i in 0..AT_ONCE {
            let word = first + threads * i as u32;
            body(word, word.lt(words), i);
        }
    }

    /// Loads a set, and prefetches a later one from memory into the L2 cache.
    fn fetch(&self, to: &mut Fetched<'k>, first: U32<'k>, words: U32<'k>) {
        let k = self.k;

        k.section(
            "train/nf4/tile_codes",
            "load codes and absmax; relaxed, so that ptxas leaves them where they are",
        );
        let codes = |word: U32<'k>| self.of.packed.cast::<u32>().at(word);
        let absmax = |word: U32<'k>| self.of.absmax.at(word / (BLOCK as u32 / EIGHT));
        self.each(first, words, |word, there, i| {
            let (of_word, of_block) = &mut to.0[i];
            codes(word).fresh().ld_if(there, of_word);
            absmax(word).fresh().ld_if(there, of_block);
        });

        // Two sets ahead, because the next set is being loaded already.
        let later = first + k.nctaid() * (IDLE * 2 * AT_ONCE as u32);
        self.each(later, words, |word, there, _| {
            k.when(there, || codes(word).prefetch_l2());
            k.when(there, || absmax(word).prefetch_l2());
        });
    }

    /// Unpacks and stores a set.
    fn unpack(&self, from: &Fetched<'k>, first: U32<'k>, words: U32<'k>) {
        self.k.section(
            "train/nf4/tile_weights",
            "w = value * absmax; the first of two codes is in the high nibble",
        );
        self.each(first, words, |word, there, i| {
            let words = self.four(from.0[i].0.get(), from.0[i].1.get());
            let to = self.of.unpacked.cast::<u32>().at(word * (EIGHT / 2));
            self.k.when(there, || to.st4(words));
        });
    }

    /// Returns the elements of a word in pairs. There is no branch around it, so that the loads of
    /// several words are in flight.
    fn four(&self, word: U32<'k>, absmax: F32<'k>) -> [U32<'k>; 4] {
        // The byte offsets of four values from the first value, for the high and the low nibbles.
        let [high, low] = [(word >> 2) & 0x3c3c_3c3c, (word << 2) & 0x3c3c_3c3c];
        let value = |offsets: U32<'k>, byte: u32| {
            self.values
                .row(offsets.prmt(0u32, 0x4440 + byte), 1u32)
                .ld()
                * absmax
        };
        from_fn(|byte| value(high, byte as u32).pack_bf16(value(low, byte as u32)))
    }
}

/// Unpacks the matrix on the CPU.
pub(super) fn reference(a: AheadArgs<Cpu<'_>>) {
    let w = dequantize(a.packed, a.absmax);
    for (to, w) in a.unpacked.iter_mut().zip(w) {
        *to = bf16::from_f32(w);
    }
}

/// Returns the arguments of a matrix with `n` elements.
pub(super) fn case(random: &mut Random, n: u32) -> [CpuArg; 4] {
    let packed = (0..n / 2).map(|_| random.bits() as u8).collect();
    let absmax = random.units((n / BLOCK as u32) as usize);
    [
        CpuArg::U8(packed),
        CpuArg::F32(absmax),
        CpuArg::Bf16(vec![bf16(0); n as usize]),
        CpuArg::scalar(n),
    ]
}
