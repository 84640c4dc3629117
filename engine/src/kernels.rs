//! The kernels that a model needs, compiled for the device.

use std::collections::{BTreeMap, BTreeSet};

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Kernel};
use warpwright_kernels::{
    ALL, Advance, ArgmaxBlocks, ArgmaxFinal, Attention, AttentionCombine, Embed, Format, Gemv, GemvAdd,
    GemvBias, RmsNorm, Rope, SwiGlu, Team,
};

use crate::Error;
use crate::config::Config;
use crate::model::{Outline, Weight, Weights};

/// One loaded kernel for each launch of a step.
pub(crate) struct Kernels {
    pub(crate) embed: Kernel<Embed>,
    pub(crate) norm: Kernel<RmsNorm>,
    /// The head norm of Q and K.
    pub(crate) head_norm: Kernel<RmsNorm>,
    pub(crate) rope: Kernel<Rope>,
    pub(crate) attention: Kernel<Attention>,
    pub(crate) combine: Kernel<AttentionCombine>,
    pub(crate) swiglu: Kernel<SwiGlu>,
    pub(crate) argmax: Kernel<ArgmaxBlocks>,
    pub(crate) argmax_final: Kernel<ArgmaxFinal>,
    pub(crate) advance: Kernel<Advance>,
    /// By the formats that the model has, and the teams for its shapes.
    pub(crate) gemv: BTreeMap<(Format, Team), Kernel<Gemv>>,
    pub(crate) gemv_bias: BTreeMap<(Format, Team), Kernel<GemvBias>>,
    pub(crate) gemv_add: BTreeMap<(Format, Team), Kernel<GemvAdd>>,
}

const THREADS: u32 = 256;
/// Lengths from here on are worth a block of 1024 to RMSNorm.
const LONG: u32 = 2048;

impl Kernels {
    pub(crate) fn load(context: &Context, outline: &Outline) -> Result<Kernels, Error> {
        let (c, w) = (&outline.config, &outline.weights);
        let head_dim = c.head_dim;
        let uses = Uses::of(w);
        Ok(Kernels {
            embed: Kernel::load(context, Embed { format: w.embed.format })?,
            norm: Kernel::load(context, RmsNorm { threads: if c.hidden < LONG { THREADS } else { 1024 } })?,
            head_norm: Kernel::load(context, RmsNorm { threads: THREADS })?,
            rope: Kernel::load(context, Rope { pairing: c.architecture.pairing() })?,
            attention: Kernel::load(context, attention(c)?)?,
            combine: Kernel::load(context, AttentionCombine { head_dim })?,
            swiglu: Kernel::load(context, SwiGlu { threads: THREADS })?,
            argmax: Kernel::load(context, ArgmaxBlocks { threads: THREADS })?,
            argmax_final: Kernel::load(context, ArgmaxFinal)?,
            advance: Kernel::load(context, Advance)?,
            gemv: by_format(context, &uses.plain, |format, team| Gemv { format, team })?,
            gemv_bias: by_format(context, &uses.biased, |format, team| GemvBias { format, team })?,
            gemv_add: by_format(context, &uses.added, |format, team| GemvAdd { format, team })?,
        })
    }
}

/// The matrices by the epilogue of their product.
struct Uses<'a> {
    plain: Vec<&'a Weight>,
    biased: Vec<&'a Weight>,
    added: Vec<&'a Weight>,
}

impl<'a> Uses<'a> {
    fn of(w: &'a Weights<Weight>) -> Uses<'a> {
        let mut uses = Uses { plain: vec![w.head()], biased: vec![], added: vec![] };
        for b in &w.blocks {
            uses.plain.extend([&b.gate, &b.up]);
            uses.added.extend([&b.o, &b.down]);
            let projections = if b.bias.is_some() { &mut uses.biased } else { &mut uses.plain };
            projections.extend([&b.q, &b.k, &b.v]);
        }
        uses
    }
}

fn by_format<K: KernelDef>(
    context: &Context,
    matrices: &[&Weight],
    kernel: impl Fn(Format, Team) -> K,
) -> Result<BTreeMap<(Format, Team), Kernel<K>>, Error> {
    Ok(by_key(context, matrices.iter().map(|matrix| choice(matrix)), |(format, team)| kernel(format, team))?)
}

/// One kernel for each distinct key. They are compiled one after the other, because drivers serialize compilation.
pub(crate) fn by_key<K: Ord + Copy, D: KernelDef>(
    context: &Context,
    keys: impl IntoIterator<Item = K>,
    kernel: impl Fn(K) -> D,
) -> Result<BTreeMap<K, Kernel<D>>, warpwright_driver::Error> {
    let keys: BTreeSet<K> = keys.into_iter().collect();
    keys.into_iter().map(|key| Ok((key, Kernel::load(context, kernel(key))?))).collect()
}

/// The kernel for a matrix: its format and the team for its shape.
fn choice(matrix: &Weight) -> (Format, Team) {
    let (format, length) = (matrix.format, |i: usize| matrix.dims[i] as u32);
    (format, Team::of(format, length(1), length(0)))
}

/// The shipped variant with the most query heads per block.
fn attention(c: &Config) -> Result<Attention, Error> {
    let group = c.heads / c.kv_heads;
    let variants = (1..=group).rev().filter(|queries| group.is_multiple_of(*queries));
    variants.map(|queries| Attention { head_dim: c.head_dim, queries }).find(shipped).ok_or_else(|| {
        let all = (1..=1024).filter(|&head_dim| shipped(&Attention { head_dim, queries: 1 }));
        let supported = all.map(|d| d.to_string()).collect::<Vec<_>>().join(", ");
        Error::HeadDim { head_dim: c.head_dim, supported }
    })
}

fn shipped(kernel: &Attention) -> bool {
    let name = KernelDef::name(kernel);
    ALL.iter().any(|variant| variant.name() == name)
}
