//! Products with an adapter: `W x + B u`, where `u = s A x` has come from a kernel in front of the product
//! ([`LoraA`](super::LoraA), [`LoraANormed`](super::LoraANormed)). LoRA: Hu et al., 2021, arXiv:2106.09685.
//!
//! The sum of a row gets its part of `B u` before the epilogue sees it, so bias, rotation, gate and residual stream
//! are as without an adapter. B's rows are in the order of the tiles. The weights stay as they are: a change of the
//! adapter's size could be rounded away in them.
//!
//! B is never written, so its lines are requested before the wait, and the products hide how long they take. `u` is
//! read after it.

use super::batch::BatchItem;
use super::plan::Plan;
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::format::tile::ROWS;
use ptx_gen::*;

args! {
    /// The adapter of a product.
    pub struct LoraArgs {
        /// `[rows, rank]`: B, its rows in the order of the product's tiles; zeros where a projection has a smaller rank
        lora_b: In<f32>,
        /// `[batch, parts, rank]`: `s A x` of each projection that the product joins
        lora_u: In<f32>,
        /// Columns of B, a multiple of 4.
        rank: u32,
    }
}

/// A rank is a multiple of it, if need be by columns of zeros: what a thread loads at once. With eight, ptxas spills on
/// sm_120.
pub const RANK_STEP: u32 = 4;
/// The largest rank.
pub const MAX_RANK: u32 = 256;

/// Numbers of a line of the L2 cache.
const LINE: u32 = 32;

/// A product with an adapter: the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WithLora<K>(pub K);

/// Arguments of [`WithLora`]: those of the product, then the adapter.
pub struct WithLoraArgs<K: KernelDef, S: Side> {
    /// Of the product.
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

/// A product that an adapter can be added to.
pub trait LoraProduct: KernelDef + Copy {
    /// Projections that it joins, each with an A of its own.
    const PARTS: u32;

    /// How a block is divided among its warps.
    fn plan(&self) -> Plan;

    /// Rows of all its matrices.
    fn rows(a: &Self::Args<Shape>) -> u32;

    /// [`KernelDef::program`], with an adapter or without.
    fn program_with<'k>(
        &self,
        k: Builder<'k>,
        a: Self::Args<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
    );

    /// [`KernelDef::reference`], with an adapter or without.
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
        let named = |e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            ..e
        };
        let grid = self.0.grid(&a.product).map_err(named)?;
        let (lora, rows) = (&a.lora, K::rows(&a.product));
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

/// Which projection a row of a product belongs to.
#[derive(Clone, Copy)]
pub(crate) enum Parts<'k> {
    /// There is one.
    One,
    /// The second and the third begin at these row blocks.
    Three([U32<'k>; 2]),
    /// Each row block has eight rows of both.
    Halves,
}

/// The adapter inside a product.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'k> {
    k: Builder<'k>,
    args: LoraArgs<Dev<'k>>,
    parts: Parts<'k>,
}

impl<'k> Tail<'k> {
    pub(crate) fn new(k: Builder<'k>, args: LoraArgs<Dev<'k>>, parts: Parts<'k>) -> Self {
        Tail { k, args, parts }
    }

    /// Requests the rows of B of so many row blocks, by a thread of `threads`.
    pub(super) fn request(
        &self,
        first: U32<'k>,
        count: U32<'k>,
        (thread, threads): (U32<'k>, u32),
    ) {
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

    /// `sum` and the part of `B u` of row `r` of a row block, of all row blocks of the product, for one token.
    pub(super) fn add(
        &self,
        sum: F32<'k>,
        block: U32<'k>,
        r: U32<'k>,
        item: BatchItem<'k>,
    ) -> F32<'k> {
        let (
            k,
            LoraArgs {
                lora_b,
                lora_u,
                rank,
            },
        ) = (self.k, self.args);
        let b = lora_b.row(block.mad(ROWS, r), rank * 4);
        let u = match self.parts {
            Parts::One => item.of(lora_u, rank),
            Parts::Three([second, third]) => {
                let part = block.ge(second).select(1, 0) + block.ge(third).select(1, 0);
                item.of_with(lora_u, || rank * 3).row(part, rank * 4)
            }
            Parts::Halves => item
                .of_with(lora_u, || rank * 2)
                .row(r / (ROWS / 2), rank * 4),
        };
        let mut sum = k.var(sum);
        k.for_each(0, rank, RANK_STEP, |i| {
            let (b, u) = (b.at(i).ld4(), u.at(i).fresh().ld4());
            b.into_iter().zip(u).for_each(|(b, u)| sum.fma(b, u));
        });
        sum.get()
    }
}

/// The same for a reference: `B u` of a row of the tiles' order, for one token.
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

/// Ranks of the cases.
const RANKS: [u32; 2] = [20, 256];

/// Two of the product's cases, or one of a batch, which takes the emulator long, each with an adapter; `rows` gives the rows of a case's matrices from its arguments.
pub(super) fn cases<K: LoraProduct + Variant>(
    kernel: &K,
    seed: u64,
    rows: impl Fn(&[CpuArg]) -> u32,
) -> Vec<Case> {
    let mut random = Random(seed ^ 0x10a);
    let with = |(case, rank): (Case, u32)| {
        let mut args = case.args;
        let u = kernel.plan().batch * K::PARTS * rank;
        let b = random.units((rows(&args) * rank) as usize);
        // As large as what the weights give, or it would not be seen.
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

/// A size among a case's arguments.
pub(super) fn size(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => unreachable!("the case has a size there"),
    }
}
