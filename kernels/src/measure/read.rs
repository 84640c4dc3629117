//! Reads memory and keeps one sum per block. The bandwidth of this kernel is an upper bound for
//! every kernel that reads as much.
//!
//! Blocks process tiles in a grid-stride loop. Each thread issues all its 16-byte loads of a tile
//! before it adds the first, so `threads * unroll` loads per block are in flight. Each thread keeps
//! four sums, because a single one would make every addition wait for the one before. The number of
//! blocks and loads that saturates memory depends on the GPU. Measure all variants and take the
//! best.

use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`Read`].
    pub struct ReadArgs {
        /// `[n]`: the values to read
        x: In<f32>,
        /// `[blocks]`: the sum of each block's tiles
        y: Out<f32>,
        /// The number of elements, a multiple of [`Read::tile`].
        n: u32,
    }
}

/// Kernel that measures the read bandwidth of device memory. The length of `y` is the number of
/// blocks.
#[derive(Clone, Copy)]
pub struct Read {
    /// The number of threads of a block.
    pub threads: u32,
    /// The number of 16-byte loads that a thread has in flight.
    pub unroll: u32,
}

impl Read {
    /// Every shipped variant.
    pub const ALL: [Read; 3] = [
        Read {
            threads: 256,
            unroll: 4,
        },
        Read {
            threads: 512,
            unroll: 4,
        },
        Read {
            threads: 512,
            unroll: 8,
        },
    ];

    /// Returns the number of elements that a block reads at once.
    pub fn tile(&self) -> u32 {
        4 * self.threads * self.unroll
    }
}

impl KernelDef for Read {
    type Args<S: Side> = ReadArgs<S>;

    fn name(&self) -> String {
        format!("read_{}_{}", self.threads, self.unroll)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &ReadArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ReadArgs { n, .. } = a;
        let blocks = a.y.try_into().unwrap_or(u32::MAX);
        self.multiple("n", n, self.tile())?;
        check_lengths! { self, a:
            x == n,
        }
        self.range("the length of y", blocks, 1, 1 << 16)?;
        Ok(Grid::line(blocks))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ReadArgs<Dev<'k>>) {
        let mut sums: [Var<f32>; 4] = from_fn(|_| k.var(0.0));
        let first = k.tid() << 2;
        let tiles = a.n >> self.tile().ilog2();
        k.for_each(k.ctaid(), tiles, k.nctaid(), |tile| {
            let here = a.x.at(tile.mad(self.tile(), first)).stream();
            // All loads of a round are issued before the first is used, so that enough bytes are in
            // flight.
            let loads: Vec<_> = (0..self.unroll)
                .map(|i| here.at(4 * self.threads * i).ld4())
                .collect();
            for four in loads {
                for (sum, x) in sums.iter_mut().zip(four) {
                    *sum += x;
                }
            }
        });
        let [s0, s1, s2, s3] = sums.map(|sum| sum.get());
        let own = (s0 + s1) + (s2 + s3);
        let sum = block_sum(k, self.threads / 32, own);
        k.when(k.tid().eq(0), || a.y.at(k.ctaid()).st(sum));
    }

    fn reference(&self, a: ReadArgs<Cpu<'_>>) {
        let blocks = a.y.len();
        let tiles = || a.x.chunks(self.tile() as usize);
        for (block, y) in a.y.iter_mut().enumerate() {
            *y = tiles()
                .skip(block)
                .step_by(blocks)
                .flatten()
                .map(|&x| f64::from(x))
                .sum::<f64>() as f32;
        }
    }
}

impl Variant for Read {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Blocks with one tile, with one or two, and blocks without a tile.
        [(1, 1), (3, 2), (2, 5)]
            .map(|(tiles, blocks)| case(seed, tiles * self.tile() as usize, blocks))
            .into()
    }
}

fn case(seed: u64, n: usize, blocks: usize) -> Case {
    let mut random = Random(seed);
    Case {
        label: format!("n={n} blocks={blocks}"),
        args: vec![
            // All values are positive so that nothing cancels: each addition then adds at most one
            // rounding error, relative to the sum.
            CpuArg::F32((0..n).map(|_| random.unit().abs()).collect()),
            CpuArg::F32(vec![0.0; blocks]),
            CpuArg::scalar(n as u32),
        ],
        // A thread adds at most 16 times, joins its four sums in two additions, and the block
        // reduction takes ten.
        bound: 28.0 * crate::harness::comparison::NEIGHBOUR,
    }
}
