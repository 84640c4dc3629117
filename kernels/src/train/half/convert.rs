//! Conversions to `bf16`: of `f32`, of NF4, and of inputs and gradients with a dropout mask.

use super::buffers::{narrow, units, wide};
use super::rows::{load, load_f32, store};
use crate::harness::{Case, Variant};
use crate::shared::philox::on_device;
use crate::shared::{Contract, Random, check_lengths};
use crate::train::dropout::{Mask, threshold};
use crate::train::nf4::{BLOCK, code, dequantize, values};
use crate::train::optimizer::state::{COUNTERS, MICRO};
use crate::train::products::add_scaled;
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`Round`].
    pub struct RoundArgs {
        /// `[n]`: the input
        x: In<f32>,
        /// `[n]`: the rounded elements
        y: Out<bf16>,
        /// The number of elements, a multiple of 8.
        n: u32,
    }
}

/// Kernel that rounds to nearest, with eight elements per thread.
pub struct Round;

args! {
    /// Arguments of [`Nf4Dequantize`].
    pub struct Nf4DequantizeArgs {
        /// `[n / 2]`: two codes per byte, at an address that is a multiple of 4
        packed: In<u8>,
        /// `[ceil(n / 64)]`: the largest magnitude of each block
        absmax: In<f32>,
        /// `[n]`: the elements
        w: Out<bf16>,
        /// The number of elements, a multiple of 8.
        n: u32,
    }
}

/// Kernel that unpacks [NF4](crate::train::nf4). A thread loads four words of eight codes before it
/// stores any element.
pub struct Nf4Dequantize;

args! {
    /// Arguments of [`ApplyMask`].
    pub struct ApplyMaskArgs {
        /// `[n]`: an input `[tokens, k]`, or a gradient of its shape
        x: In<bf16>,
        /// `[n]` if the kernel adds a residual, and empty otherwise
        residual: In<bf16>,
        /// `[n]`: the kept elements of `x` or zeros, plus the residual
        y: Out<bf16>,
        /// `[4]`: the counters of [`state`](crate::train::optimizer::state)
        counters: In<u32>,
        /// `[2]`: the words of the key
        seed: In<u32>,
        /// The number of elements, a multiple of 8.
        n: u32,
        /// The number of the input, as in [`Mask::stream`].
        stream: u32,
        /// The threshold from [`threshold`].
        threshold: u32,
    }
}

/// Kernel for `y = x * m` with the mask of the current micro-batch, with eight elements per thread.
/// Its reference is [`Mask::apply`].
pub struct ApplyMask {
    /// True if a residual is added.
    pub add: bool,
}

pub(super) const THREADS: u32 = 256;
pub(super) const EIGHT: u32 = 8;
/// The number of words of eight codes per thread. One word is four bytes, which are too few in
/// flight to hide the latency of memory.
pub(super) const AT_ONCE: u32 = 4;

impl KernelDef for Round {
    type Args<S: Side> = RoundArgs<S>;

    fn name(&self) -> String {
        "train_bf16_round".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &RoundArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RoundArgs { n, .. } = a;
        self.multiple("n", n, EIGHT)?;
        check_lengths! { self, a:
            x == n,
            y == n,
        }
        Ok(Grid::line(n.div_ceil(EIGHT * THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RoundArgs<Dev<'k>>) {
        let i = (k.ctaid() * THREADS + k.tid()) * EIGHT;
        k.when(i.lt(a.n), || {
            let to = a.y.at(i);
            let x = load_f32(a.x.at(i));
            store(to, x)
        });
    }

    fn reference(&self, a: RoundArgs<Cpu<'_>>) {
        for (y, &x) in a.y.iter_mut().zip(a.x) {
            *y = bf16::from_f32(x);
        }
    }
}

impl KernelDef for Nf4Dequantize {
    type Args<S: Side> = Nf4DequantizeArgs<S>;

    fn name(&self) -> String {
        "train_bf16_nf4_dequantize".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &Nf4DequantizeArgs<Shape>) -> Result<Grid, ShapeError> {
        let &Nf4DequantizeArgs { n, .. } = a;
        self.multiple("n", n, EIGHT)?;
        self.length("packed", a.packed, "n / 2", &[n / 2])?;
        self.length(
            "absmax",
            a.absmax,
            "ceil(n / 64)",
            &[n.div_ceil(BLOCK as u32)],
        )?;
        check_lengths! { self, a:
            w == n,
        }
        Ok(Grid::line(n.div_ceil(AT_ONCE * EIGHT * THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: Nf4DequantizeArgs<Dev<'k>>) {
        k.section(
            "train/nf4/half_codes",
            "load codes with relaxed loads, which ptxas leaves ahead of the barrier",
        );
        let first = (k.ctaid() * (AT_ONCE * THREADS) + k.tid()) * EIGHT;
        let eights: [_; AT_ONCE as usize] = from_fn(|eight| {
            let i = first + eight as u32 * (EIGHT * THREADS);
            let mut word = k.var(0u32);
            let mut absmax = k.var(0.0);
            let codes = a.packed.cast::<u32>().at(i / EIGHT).fresh();
            codes.ld_if(i.lt(a.n), &mut word);
            let scale = a.absmax.at(i / BLOCK as u32).fresh();
            scale.ld_if(i.lt(a.n), &mut absmax);
            (i, word.get(), absmax.get())
        });

        // The barrier inside is reached with all loads in flight.
        let values = values(k);

        k.section(
            "train/nf4/half_weights",
            "w = value * absmax; the first of two codes is in the high nibble",
        );
        for (i, word, absmax) in eights {
            k.when(i.lt(a.n), || {
                let to = a.w.at(i);
                let weight = |j: usize| values.at(code(word, j as u32)).ld() * absmax;
                store(to, from_fn(weight))
            });
        }
    }

    fn reference(&self, a: Nf4DequantizeArgs<Cpu<'_>>) {
        let w = dequantize(a.packed, a.absmax);
        for (to, w) in a.w.iter_mut().zip(w) {
            *to = bf16::from_f32(w);
        }
    }
}

impl KernelDef for ApplyMask {
    type Args<S: Side> = ApplyMaskArgs<S>;

    fn name(&self) -> String {
        if self.add {
            "train_bf16_mask_residual".into()
        } else {
            "train_bf16_mask".into()
        }
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ApplyMaskArgs<Shape>) -> Result<Grid, ShapeError> {
        let &ApplyMaskArgs { n, .. } = a;
        self.multiple("n", n, EIGHT)?;
        check_lengths! { self, a:
            x == n,
        }
        self.length("residual", a.residual, "n", &[if self.add { n } else { 0 }])?;
        check_lengths! { self, a:
            y == n,
        }
        self.exactly("counters", a.counters, COUNTERS)?;
        self.exactly("seed", a.seed, 2)?;
        Ok(Grid::line(n.div_ceil(EIGHT * THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ApplyMaskArgs<Dev<'k>>) {
        let i = (k.ctaid() * THREADS + k.tid()) * EIGHT;
        k.when(i.lt(a.n), || {
            let micro = a.counters.at(MICRO).ld();
            let key = [0, 1].map(|word| a.seed.at(word).ld());
            let x = load(a.x.at(i));
            let words = [0u32, 1].map(|half| {
                k.section(
                    "train/dropout/half_random",
                    "four words for four elements, by their place",
                );
                on_device([i / 4 + half, k.val(0u32), a.stream, micro], key)
            });

            // The threshold has 24 bits, so the upper 24 bits of a word are compared with it.
            let kept: [F32; 8] = from_fn(|j| {
                let random = words[j / 4][j % 4] >> 8;
                random.ge(a.threshold).select(x[j], 0.0)
            });
            if self.add {
                let residual = load(a.residual.at(i));
                let to = a.y.at(i);
                let sum = from_fn(|j| kept[j] + residual[j]);
                store(to, sum);
            } else {
                store(a.y.at(i), kept);
            }
        });
    }

    fn reference(&self, a: ApplyMaskArgs<Cpu<'_>>) {
        let seed = u64::from(a.seed[0]) | u64::from(a.seed[1]) << 32;
        let mask = Mask {
            threshold: a.threshold,
            seed,
            stream: a.stream,
            micro: a.counters[MICRO as usize],
        };
        let mut y = mask.apply(&wide(a.x));
        add_scaled(1.0, &wide(a.residual), &mut y);
        narrow(&y, a.y);
    }
}

impl Variant for Round {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |n: usize| {
            let args = vec![
                CpuArg::F32(Random(seed).units(n)),
                CpuArg::Bf16(vec![bf16(0); n]),
                CpuArg::scalar(n as u32),
            ];
            Case {
                label: format!("n={n}"),
                args,
                bound: 0.0,
            }
        };
        [8, 2056].map(case).into()
    }
}

impl Variant for Nf4Dequantize {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |n: u32| {
            let mut random = Random(seed);
            let packed = (0..n / 2).map(|_| random.bits() as u8).collect();
            let mut absmax = random.units(n.div_ceil(BLOCK as u32) as usize);
            absmax[0] = 0.0;
            let args = vec![
                CpuArg::U8(packed),
                CpuArg::F32(absmax),
                CpuArg::Bf16(vec![bf16(0); n as usize]),
                CpuArg::scalar(n),
            ];
            Case {
                label: format!("n={n}"),
                args,
                bound: 0.0,
            }
        };
        [8, 72, 2248, 18_440].map(case).into()
    }
}

impl Variant for ApplyMask {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(n, p, stream, micro): (usize, f64, u32, u32)| {
            let mut random = Random(seed);
            let args = vec![
                CpuArg::Bf16(units(&mut random, n)),
                CpuArg::Bf16(units(&mut random, if self.add { n } else { 0 })),
                CpuArg::Bf16(vec![bf16(0); n]),
                CpuArg::U32(vec![17, micro, 3, 0]),
                CpuArg::U32(vec![random.bits() as u32, random.bits() as u32]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(stream),
                CpuArg::scalar(threshold(p)),
            ];
            Case {
                label: format!("n={n} p={p} stream={stream} micro={micro}"),
                args,
                bound: 0.0,
            }
        };
        [(8, 0.0, 0, 0), (2048, 0.1, 6, 1), (2088, 0.5, 200, 70_000)]
            .map(case)
            .into()
    }
}
