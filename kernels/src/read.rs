//! Reads memory and keeps one sum per block. Its bandwidth is the upper bound for every kernel that reads as much.
//!
//! Blocks process tiles in a grid-stride loop. Each thread issues all its 16-byte loads of a tile before it adds the
//! first, so `threads * unroll` loads per block are in flight. Four sums per thread keep the additions off the
//! critical path. How many blocks and loads saturate memory depends on the GPU: measure the variants and take the
//! best.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::reduce::block_sum;
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`Read`].
    pub struct ReadArgs {
        /// `[n]`
        x: In<f32>,
        /// `[blocks]`: the sum of each block's tiles
        y: Out<f32>,
        /// Length, a multiple of the tile: [`Read::tile`].
        n: u32,
    }
}

/// The kernel; the length of `y` says how many blocks there are.
#[derive(Clone, Copy)]
pub struct Read {
    /// Threads of a block.
    pub threads: u32,
    /// Loads of 16 bytes that a thread has in flight.
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

    /// Elements that a block reads at once.
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
        let blocks = a.y.try_into().unwrap_or(u32::MAX);
        self.multiple("n", a.n, self.tile())?;
        self.length("x", a.x, "n", &[a.n])?;
        self.range("the length of y", blocks, 1, 1 << 16)?;
        Ok(Grid::line(blocks))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ReadArgs<Dev<'k>>) {
        let mut sums: [Var<f32>; 4] = from_fn(|_| k.var(0.0));
        let first = k.tid() << 2;
        let tiles = a.n >> self.tile().ilog2();
        k.for_each(k.ctaid(), tiles, k.nctaid(), |tile| {
            let here = a.x.at(tile.mad(self.tile(), first)).stream();
            let loads: Vec<_> = (0..self.unroll)
                .map(|i| here.at(4 * self.threads * i).ld4())
                .collect();
            for four in loads {
                sums.iter_mut().zip(four).for_each(|(sum, x)| *sum += x);
            }
        });
        let [s0, s1, s2, s3] = sums.map(|sum| sum.get());
        let sum = block_sum(k, self.threads / 32, (s0 + s1) + (s2 + s3));
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
        // Shares of one tile and of two, and blocks with nothing to do.
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
            // Nothing cancels, so each addition adds at most one rounding of the sum.
            CpuArg::F32((0..n).map(|_| random.unit().abs()).collect()),
            CpuArg::F32(vec![0.0; blocks]),
            CpuArg::scalar(n as u32),
        ],
        // At most 16 additions in a row a thread, two to join its sums, ten across the block.
        bound: 28.0 * crate::case::NEIGHBOUR,
    }
}
