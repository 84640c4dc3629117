//! Which kernels decode a model on a device: the pipeline over packed weights, or the simple kernels, which support
//! every model.

use std::fmt;

use warpwright_driver::{Device, Properties};
use warpwright_kernels::tiled::activation::Encoding;
use warpwright_kernels::tiled::{
    Copies, Finish, GateUp, HeadNorm, Layout, LmHead, PipelinedAttention, Project, Qkv, Trigger,
};
use warpwright_kernels::{Format, tiled};

use crate::config::Config;
use crate::decoder::Prefer;
use crate::kernels::pairing;
use crate::model::{Block, Outline, Weight};
use crate::tuning::{Tuning, default_plan, throttled_after};

/// Which kernels decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// A pipeline of overlapped kernels over packed weights.
    Overlapped,
    /// The pipeline without overlap: each kernel starts after its predecessor has ended.
    Sequential {
        /// Why they do not overlap.
        reason: String,
    },
    /// The simple kernels, one per operation, over the file's rows.
    Simple {
        /// Why the pipeline does not support the model.
        reason: String,
    },
}

impl Path {
    /// The path of a model on a device.
    pub fn of(outline: &Outline, device: &Device, tuning: Tuning) -> Path {
        Path::from(&ResolvedPlan::of(outline, device, tuning, Prefer::Fast))
    }

    pub(crate) fn from(plan: &Result<ResolvedPlan, String>) -> Path {
        match plan {
            Ok(ResolvedPlan { copies: Copies::Bulk, .. }) => Path::Overlapped,
            Ok(ResolvedPlan { capability, .. }) => Path::Sequential { reason: below(*capability, 9) },
            Err(reason) => Path::Simple { reason: reason.clone() },
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Overlapped => write!(f, "overlapping pipeline"),
            Path::Sequential { reason } => write!(f, "pipeline without overlap: {reason}"),
            Path::Simple { reason } => write!(f, "simple kernels: {reason}"),
        }
    }
}

/// A model that the pipeline supports, with the plan of each launch resolved for the device.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedPlan {
    pub(crate) config: Config,
    pub(crate) tuning: Tuning,
    /// The device's compute capability.
    capability: (u32, u32),
    /// How tiles are copied to shared memory, and so whether kernels overlap.
    copies: Copies,
    /// Batch: tokens per step. A product whose activations do not fit is launched several times.
    pub(crate) batch: u32,
    /// SMs.
    pub(crate) blocks: u32,
    /// Shared memory of a product's block, in bytes.
    pub(crate) shared: u32,
    /// The same for a block that occupies its SM alone.
    whole: u32,
    /// The same for attention, independent of the tuning.
    pub(crate) attention_shared: u32,
}

/// Query heads of one attention block, at most.
const ATTENTION_QUERIES: u32 = 8;
/// The maximum number of waves of a product's blocks on an SM; 1 if blocks record timestamps.
const MAX_ROUNDS: u32 = 16;
/// The maximum number of splits of attention.
const MAX_SPLITS: u32 = 64;

/// A kernel and its layout, or why there is none.
type Resolved<K> = Result<(K, Layout), String>;

impl ResolvedPlan {
    /// Resolves the plan of every product; the error says why the pipeline does not support the model.
    pub(crate) fn of(
        outline: &Outline,
        device: &Device,
        tuning: Tuning,
        prefer: Prefer,
    ) -> Result<ResolvedPlan, String> {
        if prefer == Prefer::Simple {
            return Err("requested".into());
        }
        let capability @ (major, _) = device.compute_capability();
        if major < 8 {
            return Err(below(capability, 8));
        }
        let [half, whole] = shared(&device.properties());
        let copies = if major < 9 { Copies::Async } else { Copies::Bulk };
        let plan = |shared| {
            let plan = ResolvedPlan {
                config: outline.config.clone(),
                tuning,
                capability,
                copies,
                batch: 1,
                blocks: device.properties().multiprocessors,
                shared: tuning.shared.unwrap_or(shared),
                whole,
                attention_shared: if copies == Copies::Bulk { half } else { whole },
            };
            plan.check_config()?;
            plan.check_weights(outline)?;
            Ok(plan)
        };
        match copies {
            // Blocks of two kernels share an SM if they fit.
            Copies::Bulk => plan(half).or_else(|_| plan(whole)),
            Copies::Async => plan(whole),
        }
    }

    /// The same model with a batch. The plans are those of a batch of one, so sums are equal too; timestamps are not
    /// recorded.
    pub(crate) fn with_batch(&self, batch: u32) -> ResolvedPlan {
        let tuning = Tuning { profile: false, ..self.tuning };
        ResolvedPlan { batch, tuning, shared: self.whole.max(self.shared), ..self.clone() }
    }

    /// Whether a kernel may start before its predecessor has ended.
    pub(crate) fn overlaps(&self) -> bool {
        self.copies == Copies::Bulk
    }

    fn check_config(&self) -> Result<(), String> {
        let c = &self.config;
        let multiple = |name: &str, n: u32, of: u32| match n % of {
            0 => Ok(()),
            _ => Err(format!("{name} {n} is not a multiple of {of}")),
        };
        multiple("head_dim", c.head_dim, 16)?;
        multiple("the hidden size", c.hidden, 16)?;
        multiple("the feed-forward size", c.feed_forward, 8)?;
        multiple("the vocabulary size", c.vocab, 16)?;
        if c.head_dim > 256 {
            return Err(format!("head_dim {} is above 256", c.head_dim));
        }
        let queries = c.heads / c.kv_heads;
        if queries > 2 * ATTENTION_QUERIES {
            return Err(format!("{queries} query heads share a KV head, at most 16 are supported"));
        }
        if c.rope_dim != c.head_dim {
            let (rope_dim, head_dim) = (c.rope_dim, c.head_dim);
            return Err(format!(
                "partial rotary embedding (rope_dim {rope_dim} of head_dim {head_dim}) is not supported"
            ));
        }
        Ok(())
    }

    fn check_weights(&self, outline: &Outline) -> Result<(), String> {
        let w = &outline.weights;
        check_tensor(w.head())?;
        self.head(w.head().format)?;
        w.blocks.iter().try_for_each(|b| {
            [&b.q, &b.k, &b.v, &b.o, &b.gate, &b.up, &b.down].into_iter().try_for_each(check_tensor)?;
            self.check_block(b)
        })
    }

    fn check_block(&self, b: &Block<Weight>) -> Result<(), String> {
        let same = |what: &str, a: &Weight, b: &Weight, same: bool| match same {
            true => Ok(()),
            false => Err(format!(
                "{} is {} and {} is {}: {what}",
                a.name,
                a.format.name(),
                b.name,
                b.format.name()
            )),
        };
        let encoding = |t: &Weight| Encoding::of(t.format);
        for other in [&b.k, &b.v] {
            same(
                "their activations are encoded differently",
                &b.q,
                other,
                encoding(&b.q) == encoding(other),
            )?;
        }
        same("the two must have the same format", &b.gate, &b.up, b.gate.format == b.up.format)?;
        self.qkv([&b.q, &b.k, &b.v].map(|w| w.format))?;
        self.o(b.o.format)?;
        self.gate_up(b.gate.format)?;
        self.down(b.gate.format, b.down.format).map(drop)
    }

    /// Adapts a plan to this device.
    fn plan(&self, plan: tiled::Plan) -> tiled::Plan {
        let plan = match plan {
            // Twelve warps leave too few registers each for the sums of a batch.
            tiled::Plan::TWELVE_WARPS | tiled::Plan::TWELVE_WARPS_THROTTLED if self.batch > 1 => {
                tiled::Plan::DEFAULT
            }
            plan => plan,
        };
        let prefetch_limit = plan.prefetch_limit.filter(|_| self.overlaps());
        tiled::Plan { copies: self.copies, prefetch_limit, profile: self.tuning.profile, ..plan }
    }

    pub(crate) fn qkv(&self, formats: [Format; 3]) -> Resolved<Qkv> {
        let c = &self.config;
        let requested =
            self.tuning.qkv.unwrap_or_else(|| default_plan(formats[0], c.q_len() + 2 * c.kv_len(), c.hidden));
        let plan = self.plan(requested);
        let (pairing, bias) = (pairing(c.architecture), c.architecture.biased());
        let finish = if c.architecture.normed_heads() { Finish::Raw } else { Finish::Append };
        let kernel = Qkv { formats, pairing, bias, finish, plan };
        let segments = kernel.segments(c.heads, c.kv_heads, c.head_dim);
        let (plan, layout) = self.resolve("Q, K and V", &segments, plan, c.hidden)?;
        Ok((Qkv { plan, ..kernel }, layout))
    }

    /// The output projection. The preceding QKV product usually has its format.
    pub(crate) fn o(&self, format: Format) -> Resolved<Project> {
        let n = self.config.q_len();
        let plan = self
            .tuning
            .o
            .unwrap_or_else(|| throttled_after(format, default_plan(format, self.config.hidden, n)));
        self.project("the output", format, self.plan(plan), n)
    }

    /// The down projection, after gate and up in the format `before`.
    pub(crate) fn down(&self, before: Format, format: Format) -> Resolved<Project> {
        let n = self.config.feed_forward;
        let plan = self
            .tuning
            .down
            .unwrap_or_else(|| throttled_after(before, default_plan(format, self.config.hidden, n)));
        self.project("the down projection", format, self.plan(plan), n)
    }

    fn project(&self, what: &str, format: Format, plan: tiled::Plan, n: u32) -> Resolved<Project> {
        let kernel = Project { format, plan };
        let (plan, layout) = self.resolve(what, &kernel.segments(self.config.hidden), plan, n)?;
        Ok((Project { plan, ..kernel }, layout))
    }

    /// Gate and up. The preceding output projection usually has their format.
    pub(crate) fn gate_up(&self, format: Format) -> Resolved<GateUp> {
        let c = &self.config;
        let plan = self
            .tuning
            .gate_up
            .unwrap_or_else(|| throttled_after(format, default_plan(format, 2 * c.feed_forward, c.hidden)));
        let plan = self.plan(plan);
        let kernel = GateUp { format, plan };
        let (plan, layout) = self.resolve("gate and up", &kernel.segments(c.feed_forward), plan, c.hidden)?;
        Ok((GateUp { plan, ..kernel }, layout))
    }

    pub(crate) fn head(&self, format: Format) -> Resolved<LmHead> {
        let c = &self.config;
        let requested = self.tuning.head.unwrap_or_else(|| default_plan(format, c.vocab, c.hidden));
        let plan = self.plan(requested);
        let kernel = LmHead { format, plan };
        let (plan, layout) = self.resolve("the LM head", &kernel.segments(c.vocab), plan, c.hidden)?;
        Ok((LmHead { plan, ..kernel }, layout))
    }

    /// Resolves the plan with the largest batch that fits, and its layout.
    fn resolve(
        &self,
        what: &str,
        segments: &tiled::Segments,
        plan: tiled::Plan,
        n: u32,
    ) -> Result<(tiled::Plan, Layout), String> {
        // If the partial sums do not fit with one block per SM, use several waves of blocks.
        let rounds = 1..=if self.tuning.profile { 1 } else { MAX_ROUNDS };
        let mut batch = (0..=self.batch.ilog2()).map(|halved| self.batch >> halved);
        let resolved = batch.find_map(|batch| {
            let plan = if batch == 1 { plan } else { plan.with_batch(batch) };
            let layout = |rounds| segments.layout(plan, n, rounds * self.blocks, self.shared);
            let layout = rounds.clone().find_map(layout)?;
            // A block polls the progress flag of the same block of the previous product.
            let prefetch_limit = plan.prefetch_limit.filter(|_| layout.blocks == self.blocks);
            Some((tiled::Plan { prefetch_limit, ..plan }, layout))
        });
        resolved.ok_or_else(|| {
            format!("{what} with rows of {n} does not fit {} bytes of shared memory", self.shared)
        })
    }

    pub(crate) fn attention(&self) -> PipelinedAttention {
        let c = &self.config;
        let Tuning { attention, profile, .. } = self.tuning;
        PipelinedAttention {
            head_dim: c.head_dim,
            queries: c.heads / c.kv_heads,
            trigger: attention.unwrap_or(Trigger::First),
            overlap: self.overlaps(),
            memory: self.attention_shared,
            batch: self.batch,
            profile,
        }
    }

    pub(crate) fn head_norm(&self) -> Option<HeadNorm> {
        self.config
            .architecture
            .normed_heads()
            .then_some(HeadNorm { overlap: self.overlaps(), batch: self.batch })
    }

    /// KV heads of the whole batch, times the blocks that each needs for its queries.
    pub(crate) fn attention_units(&self) -> u32 {
        let groups = (self.config.heads / self.config.kv_heads).div_ceil(ATTENTION_QUERIES);
        self.batch * self.config.kv_heads * groups
    }

    /// The maximum number of blocks of a product.
    pub(crate) fn max_blocks(&self) -> u32 {
        self.blocks * MAX_ROUNDS
    }

    /// Blocks of attention: as many as products have, if they suffice.
    pub(crate) fn attention_blocks(&self, splits: u32) -> u32 {
        self.blocks.max(self.attention_units() * splits)
    }

    /// Splits of attention: as many as there are blocks for.
    pub(crate) fn splits(&self, ctx: u32) -> u32 {
        let useful = ctx.div_ceil(self.attention().min_split_positions());
        (self.blocks / self.attention_units()).min(useful).clamp(1, MAX_SPLITS)
    }
}

fn below((major, minor): (u32, u32), needed: u32) -> String {
    format!("compute capability {major}.{minor} is below {needed}.0")
}

/// Shared memory of a block if two share an SM, and if one occupies it alone.
fn shared(properties: &Properties) -> [u32; 2] {
    let half = properties.shared_per_multiprocessor / 2;
    let half = half.saturating_sub(properties.shared_reserved_per_block);
    let whole = properties.shared_per_block;
    [half.min(whole), whole].map(|bytes| bytes / 128 * 128)
}

fn check_tensor(tensor: &Weight) -> Result<(), String> {
    let (name, format) = (&tensor.name, tensor.format.name());
    match tensor.format.tile() {
        Some(tile) => match tensor.dims[0] % u64::from(tile.columns) {
            0 => Ok(()),
            _ => Err(format!("{name} has rows of {}, not a multiple of {}", tensor.dims[0], tile.columns)),
        },
        None => Err(format!("{name} is {format}, which has no tiled layout")),
    }
}
