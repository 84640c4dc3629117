//! GEMVs with a LoRA adapter: `W x + B u`. A kernel before the GEMV has computed `u = s A x`
//! ([`LoraA`](crate::pipeline::LoraA), [`LoraANormed`](crate::pipeline::LoraANormed)). LoRA: Hu et
//! al., 2021, arXiv:2106.09685.
//!
//! `B u` is added to the sum of a row before the epilogue sees it. Bias, rotation, gate and
//! residual stream are therefore computed as without an adapter. The rows of B are in the order of
//! the tiles. The adapter is not added to the weights, because rounding could lose a change of its
//! size.
//!
//! B is never written, so its cache lines are requested before the wait, and the multiplication
//! hides their latency. `u` is read after the wait.

use super::plan::Plan;
use crate::format::tile::ROWS;
use crate::harness::{Case, Variant};
use crate::pipeline::batch::BatchItem;
use crate::shared::{Contract, Random};
use ptx_gen::*;

args! {
    /// The adapter of a GEMV.
    pub struct LoraArgs {
        /// `[rows, rank]`: B, with its rows in the order of the tiles, and zeros where a projection
        /// has a smaller rank
        lora_b: In<f32>,
        /// `[batch, parts, rank]`: `s A x` of each projection that the GEMV joins
        lora_u: In<f32>,
        /// The number of columns of B, a multiple of 4.
        rank: u32,
    }
}

/// The unit of the rank, which is the number of elements that a thread loads at once. Smaller ranks
/// are padded with columns of zeros. With a unit of eight, ptxas spills registers on sm_120.
pub const RANK_STEP: u32 = 4;
/// The largest rank.
pub const MAX_RANK: u32 = 256;

/// The number of `f32` elements of a line of the L2 cache.
const LINE: u32 = 32;

/// A GEMV kernel with an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WithLora<K>(pub K);

/// Arguments of [`WithLora`]: the GEMV's own, then the adapter.
pub struct WithLoraArgs<K: KernelDef, S: Side> {
    /// The arguments of the GEMV.
    pub product: K::Args<S>,
    /// The adapter.
    pub lora: LoraArgs<S>,
}

impl<K: KernelDef, S: Side> ArgList<S> for WithLoraArgs<K, S> {
    fn make(from: &mut impl Source<S>) -> Self {
        WithLoraArgs {
            product: ArgList::make(from),
            lora: ArgList::make(from),
        }
    }

    fn each(&self, to: &mut impl Sink<S>) {
        self.product.each(to);
        self.lora.each(to);
    }
}

/// A GEMV kernel that can have an adapter.
pub trait LoraProduct: KernelDef + Copy {
    /// The number of projections that the GEMV joins. Each has its own A.
    const PARTS: u32;

    /// Returns the division of a block among its warps.
    fn plan(&self) -> Plan;

    /// Returns the number of rows of all matrices.
    fn rows(a: &Self::Args<Shape>) -> u32;

    /// Emits [`KernelDef::program`], with an adapter or without one.
    fn program_with<'k>(
        &self,
        k: Builder<'k>,
        a: Self::Args<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
    );

    /// Computes [`KernelDef::reference`], with an adapter or without one.
    fn reference_with(&self, a: Self::Args<Cpu<'_>>, lora: Option<LoraArgs<Cpu<'_>>>);
}

impl<K: LoraProduct> KernelDef for WithLora<K> {
    type Args<S: Side> = WithLoraArgs<K, S>;

    fn name(&self) -> String {
        format!("{}_lora", self.0.name())
    }

    fn block(&self) -> u32 {
        self.0.block()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.0.blocks_per_sm()
    }

    fn grid(&self, a: &Self::Args<Shape>) -> Result<Grid, ShapeError> {
        // The error of the inner contract must name this kernel.
        let named = |e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            ..e
        };
        let grid = self.0.grid(&a.product).map_err(named)?;
        let lora = &a.lora;
        let rows = K::rows(&a.product);
        self.multiple("rank", lora.rank, RANK_STEP)?;
        self.range("rank", lora.rank, RANK_STEP, MAX_RANK)?;
        self.length("lora_b", lora.lora_b, "rows * rank", &[rows, lora.rank])?;
        let u = [self.0.plan().batch, K::PARTS, lora.rank];
        self.length("lora_u", lora.lora_u, "batch * parts * rank", &u)?;
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: Self::Args<Dev<'k>>) {
        self.0.program_with(k, a.product, Some(a.lora));
    }

    fn reference(&self, a: Self::Args<Cpu<'_>>) {
        self.0.reference_with(a.product, Some(a.lora));
    }
}

/// The assignment of rows to the projections of a GEMV.
#[derive(Clone, Copy)]
pub(crate) enum AdapterSegments<'k> {
    /// There is one projection.
    One,
    /// There are three. The second and the third begin at these row blocks.
    Three([U32<'k>; 2]),
    /// There are two. Each row block has eight rows of both.
    Halves,
}

/// The adapter inside a GEMV.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'k> {
    k: Builder<'k>,
    args: LoraArgs<Dev<'k>>,
    parts: AdapterSegments<'k>,
}

impl<'k> Tail<'k> {
    /// Creates the adapter of a kernel.
    pub(crate) fn new(k: Builder<'k>, args: LoraArgs<Dev<'k>>, parts: AdapterSegments<'k>) -> Self {
        Tail { k, args, parts }
    }

    /// Requests the rows of B of `count` row blocks into the L2 cache. Each of the `threads`
    /// threads requests some lines.
    pub(super) fn request(&self, first: U32<'k>, count: U32<'k>, thread: U32<'k>, threads: u32) {
        let LoraArgs { lora_b, rank, .. } = self.args;

        self.k.section(
            "pipeline/lora/request_rows",
            "consumer warps: request the adapter's rows",
        );
        let rows = lora_b.row(first * ROWS, rank * 4);
        let lines = count * rank / (LINE / ROWS);
        self.k.for_each(thread, lines, threads, |line| {
            rows.row(line, 4 * LINE).prefetch_l2()
        });
    }

    /// Returns `sum` plus `B u` of row `r` of row block `block`, for one token. The block is
    /// counted over all segments.
    pub(super) fn add(
        &self,
        sum: F32<'k>,
        block: U32<'k>,
        r: U32<'k>,
        item: BatchItem<'k>,
    ) -> F32<'k> {
        let k = self.k;
        let LoraArgs {
            lora_b,
            lora_u,
            rank,
        } = self.args;
        let b = lora_b.row(block.mad(ROWS, r), rank * 4);
        let u = match self.parts {
            AdapterSegments::One => item.of(lora_u, rank),
            AdapterSegments::Three([second, third]) => {
                // Each of the three matrices has a separate adapter. Two comparisons find the
                // block's matrix without a branch.
                let part = block.ge(second).select(1, 0) + block.ge(third).select(1, 0);
                item.of_with(lora_u, || rank * 3).row(part, rank * 4)
            }
            AdapterSegments::Halves => item
                .of_with(lora_u, || rank * 2)
                .row(r / (ROWS / 2), rank * 4),
        };
        let mut sum = k.var(sum);
        k.for_each(0, rank, RANK_STEP, |i| {
            let b = b.at(i).ld4();
            let u = u.at(i).fresh().ld4();
            for (b, u) in b.into_iter().zip(u) {
                sum.fma(b, u);
            }
        });
        sum.get()
    }
}

/// Returns `B u` of one row in the order of the tiles, for one token, in double precision.
pub(crate) fn exact(
    lora: Option<&LoraArgs<Cpu<'_>>>,
    parts: u32,
    token: usize,
    part: u32,
    row: usize,
) -> f64 {
    let Some(lora) = lora else { return 0.0 };
    let rank = lora.rank as usize;
    let u = &lora.lora_u[(token * parts as usize + part as usize) * rank..][..rank];
    lora.lora_b[row * rank..][..rank]
        .iter()
        .zip(u)
        .map(|(&b, &u)| f64::from(b) * f64::from(u))
        .sum()
}

/// The ranks of the test cases.
const RANKS: [u32; 2] = [20, 256];

/// Returns some of the GEMV's cases, each with an adapter: two of a batch of one, or one of a
/// larger batch, because those take the emulator long. `rows` returns the number of rows of a
/// case's matrices from its arguments.
pub(crate) fn cases<K: LoraProduct + Variant>(
    kernel: &K,
    seed: u64,
    rows: impl Fn(&[CpuArg]) -> u32,
) -> Vec<Case> {
    let mut random = Random(seed ^ 0x10a);
    let with = |(case, rank): (Case, u32)| {
        let mut args = case.args;
        let u = kernel.plan().batch * K::PARTS * rank;
        let b = random.units((rows(&args) * rank) as usize);

        // The adapter's contribution must be as large as the weights', or an error in it would not
        // be seen.
        let u = random
            .units(u as usize)
            .into_iter()
            .map(|u| 8.0 * u)
            .collect();
        args.extend([CpuArg::F32(b), CpuArg::F32(u), CpuArg::scalar(rank)]);
        Case {
            label: format!("{} rank={rank}", case.label),
            args,
            ..case
        }
    };
    let count = if kernel.plan().batch == 1 { 2 } else { 1 };
    kernel
        .cases(seed)
        .into_iter()
        .skip(1)
        .zip(RANKS)
        .take(count)
        .map(with)
        .collect()
}

/// Returns a size from a case's arguments.
pub(crate) fn size(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => unreachable!("the case has a size there"),
    }
}
