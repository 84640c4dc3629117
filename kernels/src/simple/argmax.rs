//! Greedy sampling (argmax over the logits), in two launches.
//!
//! [`ArgmaxBlocks`] stores the maximum of each block, and [`ArgmaxFinal`] reduces them. Ties go to
//! the lowest index. A logit that is not finite counts as infinity and therefore wins. The token is
//! then [`NO_TOKEN`].

use crate::harness::{Case, Variant};
use crate::shared::state::NO_TOKEN;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`ArgmaxBlocks`].
    pub struct ArgmaxBlocksArgs {
        /// `[n]`: the logits
        x: In<f32>,
        /// `[blocks]`: the largest element of each block's share, or infinity if one of its
        /// elements is not finite
        value: Out<f32>,
        /// `[blocks]`: the index of the largest element of each share, or `u32::MAX` for an empty
        /// share
        index: Out<u32>,
        /// The number of logits.
        n: u32,
    }
}

args! {
    /// Arguments of [`ArgmaxFinal`].
    pub struct ArgmaxFinalArgs {
        /// `[blocks]`: the largest element of each share
        value: In<f32>,
        /// `[blocks]`: the index of the largest element of each share
        index: In<u32>,
        /// `[1]`: the chosen token
        token: Out<u32>,
        /// The number of candidates.
        blocks: u32,
    }
}

/// Kernel that computes the argmax per block. The lengths of `value` and `index` determine the
/// number of blocks.
pub struct ArgmaxBlocks {
    /// The number of threads of a block.
    pub threads: u32,
}

/// Kernel that reduces the per-block results, with one warp.
pub struct ArgmaxFinal;

/// The number of lanes of a warp.
const WARP: u32 = 32;
/// The index that stands for no element. It loses against every other index.
pub(crate) const NONE: u32 = u32::MAX;

impl KernelDef for ArgmaxBlocks {
    type Args<S: Side> = ArgmaxBlocksArgs<S>;

    fn name(&self) -> String {
        format!("argmax_blocks_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &ArgmaxBlocksArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ArgmaxBlocksArgs { n, .. } = a;
        let blocks = a.value.try_into().unwrap_or(u32::MAX);
        check_lengths! { self, a:
            x == n,
        }
        self.range("the length of value", blocks, 1, 1 << 16)?;
        self.length("index", a.index, "the length of value", &[blocks])?;
        Ok(Grid::line(blocks))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ArgmaxBlocksArgs<Dev<'k>>) {
        let block = k.ctaid();
        let warps = self.threads / WARP;
        let first = block * self.threads + k.tid();
        let best = best_of(k, first, a.n, k.nctaid() * self.threads, |i| Best {
            value: key(a.x.at(i).ld()),
            index: i,
        });
        let best = best.of_warp();

        k.section("simple/argmax/warps", "maximum over the warps");
        let values = k.shared::<f32>("values", warps);
        let indices = k.shared::<u32>("indices", warps);
        let warp = k.warp();
        k.when(k.lane().eq(0), || {
            values.at(warp).st(best.value);
            indices.at(warp).st(best.index);
        });
        k.barrier();
        k.when(warp.eq(0), || {
            let of = |i| Best {
                value: values.at(i).ld(),
                index: indices.at(i).ld(),
            };
            let best = best_of(k, k.lane(), warps, WARP, of).of_warp();
            k.when(k.lane().eq(0), || {
                a.value.at(block).st(best.value);
                a.index.at(block).st(best.index);
            });
        });
    }

    fn reference(&self, a: ArgmaxBlocksArgs<Cpu<'_>>) {
        let threads = self.threads as usize;
        let blocks = a.value.len();
        for block in 0..blocks {
            let share =
                a.x.iter()
                    .enumerate()
                    .filter(|(i, _)| i / threads % blocks == block);
            let (value, index) = first_largest(share.map(|(i, &x)| (key_on_cpu(x), i as u32)));
            (a.value[block], a.index[block]) = (value, index);
        }
    }
}

impl KernelDef for ArgmaxFinal {
    type Args<S: Side> = ArgmaxFinalArgs<S>;

    fn name(&self) -> String {
        "argmax_final".into()
    }

    fn block(&self) -> u32 {
        WARP
    }

    fn grid(&self, a: &ArgmaxFinalArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ArgmaxFinalArgs { blocks, .. } = a;
        self.range("blocks", blocks, 1, 1 << 16)?;
        check_lengths! { self, a:
            value == blocks,
            index == blocks,
        }
        self.exactly("token", a.token, 1)?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ArgmaxFinalArgs<Dev<'k>>) {
        let of = |i| Best {
            value: a.value.at(i).ld(),
            index: a.index.at(i).ld(),
        };
        let best = best_of(k, k.lane(), a.blocks, WARP, of).of_warp();
        let token = best.value.lt(f32::INFINITY).select(best.index, NO_TOKEN);
        k.when(k.lane().eq(0), || a.token.st(token));
    }

    fn reference(&self, a: ArgmaxFinalArgs<Cpu<'_>>) {
        let candidates = a.value.iter().copied().zip(a.index.iter().copied());
        let (value, index) = first_largest(candidates);
        a.token[0] = if value < f32::INFINITY {
            index
        } else {
            NO_TOKEN
        };
    }
}

/// Returns the value that logits are compared by: the logit, or infinity if it is not finite. A
/// logit that is not finite thus wins against all others.
pub(crate) fn key(logit: F32<'_>) -> F32<'_> {
    logit.abs().lt(f32::INFINITY).select(logit, f32::INFINITY)
}

/// Returns the value that logits are compared by, on the CPU.
pub(crate) fn key_on_cpu(logit: f32) -> f32 {
    if logit.is_finite() {
        logit
    } else {
        f32::INFINITY
    }
}

/// Returns the largest value and, among equal values, the lowest index. Without candidates, or if
/// all are NaN, the result is `(-inf, NONE)`.
pub(crate) fn first_largest(candidates: impl Iterator<Item = (f32, u32)>) -> (f32, u32) {
    candidates.fold((f32::NEG_INFINITY, NONE), |best, (value, index)| {
        if value > best.0 || value == best.0 && index < best.1 {
            (value, index)
        } else {
            best
        }
    })
}

/// A candidate and its index.
#[derive(Clone, Copy)]
pub(crate) struct Best<'k> {
    pub(crate) value: F32<'k>,
    pub(crate) index: U32<'k>,
}

impl<'k> Best<'k> {
    /// Returns whether `self` wins over `other`. NaN never wins.
    pub(crate) fn beats(self, other: Best<'k>) -> Pred<'k> {
        self.value.gt(other.value) | (self.value.eq(other.value) & self.index.lt(other.index))
    }

    /// Returns the best candidate of the warp, in every lane.
    pub(crate) fn of_warp(self) -> Best<'k> {
        [16, 8, 4, 2, 1].into_iter().fold(self, |best, lanes| {
            let other = Best {
                value: best.value.shfl_bfly(lanes),
                index: best.index.shfl_bfly(lanes),
            };
            let wins = other.beats(best);
            Best {
                value: wins.select(other.value, best.value),
                index: wins.select(other.index, best.index),
            }
        })
    }
}

/// Returns the best candidate of `(from..to).step_by(step)`, or `(-inf, NONE)` without candidates.
pub(crate) fn best_of<'k>(
    k: Builder<'k>,
    from: U32<'k>,
    to: impl Src<'k, u32>,
    step: impl Src<'k, u32>,
    candidate: impl FnOnce(U32<'k>) -> Best<'k>,
) -> Best<'k> {
    let mut value = k.var(f32::NEG_INFINITY);
    let mut index = k.var(NONE);
    k.for_each(from, to, step, |i| {
        let new = candidate(i);
        let wins = new.beats(Best {
            value: value.get(),
            index: index.get(),
        });
        value.set(wins.select(new.value, &value));
        index.set(wins.select(new.index, &index));
    });
    Best {
        value: value.get(),
        index: index.get(),
    }
}

/// Returns inputs with ties, NaN and infinities as `(name, elements)`.
fn rows(seed: u64, n: usize) -> Vec<(&'static str, Vec<f32>)> {
    let mut random = Random(seed);
    let mut row = |what, special: &[(usize, f32)]| {
        let mut row = random.units(n);
        for &(i, v) in special {
            row[i % n] = v;
        }
        (what, row)
    };
    let rows = vec![
        row("random", &[]),
        row("ties", &[(n - 1, 2.0), (n / 2, 2.0), (n / 3, 2.0)]),
        row("NaN first", &[(0, f32::NAN), (n / 2, 2.0)]),
        row("infinity", &[(n - 1, f32::INFINITY)]),
        row("-infinity", &[(n / 2, f32::NEG_INFINITY)]),
    ];
    let flat = [
        ("all NaN", f32::NAN),
        ("all -inf", f32::NEG_INFINITY),
        ("all -0", -0.0),
    ];
    rows.into_iter()
        .chain(flat.map(|(what, v)| (what, vec![v; n])))
        .collect()
}

impl Variant for ArgmaxBlocks {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // A share of one step, shares of several steps with a partial last one, and blocks without
        // elements.
        let shapes = [(1, 1), (1000, 3), (5000, 4), (300, 7)];
        let cases = shapes.into_iter().flat_map(|(n, blocks)| {
            rows(seed, n).into_iter().map(move |(what, x)| Case {
                label: format!("n={n} blocks={blocks} {what}"),
                args: vec![
                    CpuArg::F32(x),
                    CpuArg::F32(vec![0.0; blocks]),
                    CpuArg::U32(vec![0; blocks]),
                    CpuArg::scalar(n as u32),
                ],
                bound: 0.0,
            })
        });
        cases.collect()
    }
}

impl Variant for ArgmaxFinal {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let cases = [1, 31, 70].into_iter().flat_map(|blocks| {
            rows(seed, blocks).into_iter().map(move |(what, value)| {
                // Indices decrease, so that the lowest index does not come first. Where all values
                // are NaN, no index is valid.
                let index = (0..blocks as u32)
                    .rev()
                    .map(|i| if what == "all NaN" { NONE } else { 10 * i });
                Case {
                    label: format!("blocks={blocks} {what}"),
                    args: vec![
                        CpuArg::F32(value),
                        CpuArg::U32(index.collect()),
                        CpuArg::U32(vec![0]),
                        CpuArg::scalar(blocks as u32),
                    ],
                    bound: 0.0,
                }
            })
        });
        cases.collect()
    }
}
