//! Which kernels decode a model on a device: the chain over packed weights, or the simple ones, which take anything.

use std::fmt;

use warpwright_driver::{Device, Properties};
use warpwright_kernels::tiled::activation::Encoding;
use warpwright_kernels::tiled::{
    AttentionChained, Copies, Finish, GateUp, Head, HeadNorm, Layout, Project, Qkv, Trigger,
};
use warpwright_kernels::{Format, tiled};

use crate::config::Config;
use crate::decoder::Prefer;
use crate::gguf::Tensor;
use crate::kernels::pairing;
use crate::model::{Block, Outline};
use crate::tuning::{Tuning, behind, plan_of};
use crate::weights::format;

/// Which kernels decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// A chain of kernels that overlap, over weights packed into tiles.
    Chained,
    /// The same kernels without what they need to overlap: each starts when the one before has ended.
    InTurn {
        /// Why they do not overlap.
        reason: String,
    },
    /// Kernel after kernel over the file's rows.
    Simple {
        /// Why not the chain.
        reason: String,
    },
}

impl Path {
    /// The path of a model on a device.
    pub fn of(outline: &Outline, device: &Device, tuning: Tuning) -> Path {
        Path::from(&Fit::of(outline, device, tuning, Prefer::Fast))
    }

    pub(crate) fn from(fit: &Result<Fit, String>) -> Path {
        match fit {
            Ok(Fit { copies: Copies::Bulk, .. }) => Path::Chained,
            Ok(Fit { capability, .. }) => Path::InTurn { reason: below(*capability, 9) },
            Err(reason) => Path::Simple { reason: reason.clone() },
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Chained => write!(f, "a chain of overlapping kernels"),
            Path::InTurn { reason } => write!(f, "a chain of kernels in turn: {reason}"),
            Path::Simple { reason } => write!(f, "simple kernels: {reason}"),
        }
    }
}

/// A model for which the chain is made, and the device's part of each launch.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    pub(crate) config: Config,
    pub(crate) tuning: Tuning,
    /// The device's compute capability.
    capability: (u32, u32),
    /// How tiles come to shared memory, and so whether kernels overlap.
    copies: Copies,
    /// Tokens at once. A product whose activations do not fit so often takes them in several launches.
    pub(crate) columns: u32,
    /// Multiprocessors.
    pub(crate) blocks: u32,
    /// Shared memory of a product's block.
    pub(crate) shared: u32,
    /// The same of one that has its multiprocessor for itself.
    whole: u32,
    /// The same of attention's, whatever the tuning says.
    pub(crate) attention_shared: u32,
}

/// Query heads of one of attention's blocks, at most.
const ATTENTION_QUERIES: u32 = 8;
/// The most blocks of a product that take turns on a multiprocessor; one where each leaves its times.
const MOST_ROUNDS: u32 = 16;
/// The most ranges into which attention splits the positions.
const MOST_SPLITS: u32 = 64;

/// A kernel and its layout, or why there is none.
type Laid<K> = Result<(K, Layout), String>;

impl Fit {
    /// Whether the chain decodes the model, and else why not.
    pub(crate) fn of(
        outline: &Outline,
        device: &Device,
        tuning: Tuning,
        prefer: Prefer,
    ) -> Result<Fit, String> {
        if prefer == Prefer::Simple {
            return Err("asked for".into());
        }
        let capability @ (major, _) = device.compute_capability();
        if major < 8 {
            return Err(below(capability, 8));
        }
        let [half, whole] = shared(&device.properties());
        let copies = if major < 9 { Copies::Async } else { Copies::Bulk };
        let fit = |shared| {
            let fit = Fit {
                config: outline.config.clone(),
                tuning,
                capability,
                copies,
                columns: 1,
                blocks: device.properties().multiprocessors,
                shared: tuning.shared.unwrap_or(shared),
                whole,
                attention_shared: if copies == Copies::Bulk { half } else { whole },
            };
            fit.check_config()?;
            fit.check_weights(outline)?;
            Ok(fit)
        };
        match copies {
            // Blocks of two kernels share a multiprocessor if they can.
            Copies::Bulk => fit(half).or_else(|_| fit(whole)),
            Copies::Async => fit(whole),
        }
    }

    /// The same model with so many tokens at once. The plans are those of one token, so that sums are too; times are
    /// not taken.
    pub(crate) fn by(&self, columns: u32) -> Fit {
        let tuning = Tuning { profile: false, ..self.tuning };
        Fit { columns, tuning, shared: self.whole.max(self.shared), ..self.clone() }
    }

    /// Whether a kernel may start before the one before it has ended.
    pub(crate) fn overlaps(&self) -> bool {
        self.copies == Copies::Bulk
    }

    fn check_config(&self) -> Result<(), String> {
        let c = &self.config;
        let multiple = |name: &str, n: u32, of: u32| match n % of {
            0 => Ok(()),
            _ => Err(format!("{name} {n} is no multiple of {of}")),
        };
        multiple("the head's length", c.head_dim, 16)?;
        multiple("the hidden length", c.hidden, 16)?;
        multiple("the feed-forward length", c.feed_forward, 8)?;
        multiple("the vocabulary's size", c.vocab, 16)?;
        let wrong = [
            (c.head_dim > 256, "heads are longer than 256"),
            (c.heads / c.kv_heads > 2 * ATTENTION_QUERIES, "more than 16 heads share keys and values"),
            (c.rope_dim != c.head_dim, "heads turn in part"),
        ];
        wrong.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(()), |(_, reason)| Err(reason.into()))
    }

    fn check_weights(&self, outline: &Outline) -> Result<(), String> {
        let w = &outline.weights;
        check_tensor(w.head())?;
        self.head(format(w.head()))?;
        w.blocks.iter().try_for_each(|b| {
            [&b.q, &b.k, &b.v, &b.o, &b.gate, &b.up, &b.down].into_iter().try_for_each(check_tensor)?;
            self.check_block(b)
        })
    }

    fn check_block(&self, b: &Block<Tensor>) -> Result<(), String> {
        let same = |what: &str, a: &Tensor, b: &Tensor, same: bool| match same {
            true => Ok(()),
            false => Err(format!("{} is {} and {} is {}: {what}", a.name, a.kind.name, b.name, b.kind.name)),
        };
        let encoding = |t: &Tensor| Encoding::of(format(t));
        for other in [&b.k, &b.v] {
            same("they need different activations", &b.q, other, encoding(&b.q) == encoding(other))?;
        }
        same("they are not read together", &b.gate, &b.up, format(&b.gate) == format(&b.up))?;
        self.qkv([&b.q, &b.k, &b.v].map(format))?;
        self.o(format(&b.o))?;
        self.gate_up(format(&b.gate))?;
        self.down(format(&b.gate), format(&b.down)).map(drop)
    }

    /// The plan as it is on this device.
    fn plan(&self, plan: tiled::Plan) -> tiled::Plan {
        let plan = match plan {
            // Twelve warps have too few registers each for the sums of many columns.
            tiled::Plan::SHORT | tiled::Plan::SHORT_HELD if self.columns > 1 => tiled::Plan::SHIPPED,
            plan => plan,
        };
        let early = plan.early.filter(|_| self.overlaps());
        tiled::Plan { copies: self.copies, early, profile: self.tuning.profile, ..plan }
    }

    pub(crate) fn qkv(&self, formats: [Format; 3]) -> Laid<Qkv> {
        let c = &self.config;
        let asked =
            self.tuning.qkv.unwrap_or_else(|| plan_of(formats[0], c.q_len() + 2 * c.kv_len(), c.hidden));
        let plan = self.plan(asked);
        let (pairing, bias) = (pairing(c.architecture), c.architecture.biased());
        let finish = if c.architecture.normed_heads() { Finish::Raw } else { Finish::Append };
        let kernel = Qkv { formats, pairing, bias, finish, plan };
        let runs = kernel.runs(c.heads, c.kv_heads, c.head_dim);
        let (plan, layout) = self.lay("Q, K and V", &runs, plan, c.hidden)?;
        Ok((Qkv { plan, ..kernel }, layout))
    }

    /// The output projection. Queries before it have its format as a rule.
    pub(crate) fn o(&self, format: Format) -> Laid<Project> {
        let n = self.config.q_len();
        let plan = self.tuning.o.unwrap_or_else(|| behind(format, plan_of(format, self.config.hidden, n)));
        self.project("the output", format, self.plan(plan), n)
    }

    /// The down projection, behind gate and up in `before`.
    pub(crate) fn down(&self, before: Format, format: Format) -> Laid<Project> {
        let n = self.config.feed_forward;
        let plan = self.tuning.down.unwrap_or_else(|| behind(before, plan_of(format, self.config.hidden, n)));
        self.project("the down projection", format, self.plan(plan), n)
    }

    fn project(&self, what: &str, format: Format, plan: tiled::Plan, n: u32) -> Laid<Project> {
        let kernel = Project { format, plan };
        let (plan, layout) = self.lay(what, &kernel.runs(self.config.hidden), plan, n)?;
        Ok((Project { plan, ..kernel }, layout))
    }

    /// Gate and up. The output projection before them has their format as a rule.
    pub(crate) fn gate_up(&self, format: Format) -> Laid<GateUp> {
        let c = &self.config;
        let plan = self
            .tuning
            .gate_up
            .unwrap_or_else(|| behind(format, plan_of(format, 2 * c.feed_forward, c.hidden)));
        let plan = self.plan(plan);
        let kernel = GateUp { format, plan };
        let (plan, layout) = self.lay("gate and up", &kernel.runs(c.feed_forward), plan, c.hidden)?;
        Ok((GateUp { plan, ..kernel }, layout))
    }

    pub(crate) fn head(&self, format: Format) -> Laid<Head> {
        let c = &self.config;
        let asked = self.tuning.head.unwrap_or_else(|| plan_of(format, c.vocab, c.hidden));
        let plan = self.plan(asked);
        let kernel = Head { format, plan };
        let (plan, layout) = self.lay("the LM head", &kernel.runs(c.vocab), plan, c.hidden)?;
        Ok((Head { plan, ..kernel }, layout))
    }

    /// The plan with as many columns at once as fit, and its layout.
    fn lay(
        &self,
        what: &str,
        runs: &tiled::Runs,
        plan: tiled::Plan,
        n: u32,
    ) -> Result<(tiled::Plan, Layout), String> {
        // Sums of rows that do not fit as many blocks as there are multiprocessors fit several times as many.
        let rounds = 1..=if self.tuning.profile { 1 } else { MOST_ROUNDS };
        let mut columns = (0..=self.columns.ilog2()).map(|halved| self.columns >> halved);
        let laid = columns.find_map(|columns| {
            let plan = if columns == 1 { plan } else { plan.by(columns) };
            let layout = |rounds| runs.layout(plan, n, rounds * self.blocks, self.shared);
            let layout = rounds.clone().find_map(layout)?;
            // A block looks at what the same block of the product before has asked for.
            let early = plan.early.filter(|_| layout.blocks == self.blocks);
            Some((tiled::Plan { early, ..plan }, layout))
        });
        laid.ok_or_else(|| {
            format!("{what} over {n} columns does not fit {} bytes of shared memory", self.shared)
        })
    }

    pub(crate) fn attention(&self) -> AttentionChained {
        let c = &self.config;
        let Tuning { attention, profile, .. } = self.tuning;
        AttentionChained {
            head_dim: c.head_dim,
            queries: c.heads / c.kv_heads,
            trigger: attention.unwrap_or(Trigger::First),
            chained: self.overlaps(),
            memory: self.attention_shared,
            columns: self.columns,
            profile,
        }
    }

    pub(crate) fn head_norm(&self) -> Option<HeadNorm> {
        self.config
            .architecture
            .normed_heads()
            .then_some(HeadNorm { chained: self.overlaps(), columns: self.columns })
    }

    /// Heads of keys and values of every column, each as often as its queries need blocks.
    pub(crate) fn attention_units(&self) -> u32 {
        let groups = (self.config.heads / self.config.kv_heads).div_ceil(ATTENTION_QUERIES);
        self.columns * self.config.kv_heads * groups
    }

    /// The most blocks that a product has.
    pub(crate) fn most_blocks(&self) -> u32 {
        self.blocks * MOST_ROUNDS
    }

    /// Blocks of attention: as many as products have, where they are enough.
    pub(crate) fn attention_blocks(&self, splits: u32) -> u32 {
        self.blocks.max(self.attention_units() * splits)
    }

    /// Ranges into which attention splits the positions: as many as there are blocks for.
    pub(crate) fn splits(&self, ctx: u32) -> u32 {
        let useful = ctx.div_ceil(self.attention().positions());
        (self.blocks / self.attention_units()).min(useful).clamp(1, MOST_SPLITS)
    }
}

fn below((major, minor): (u32, u32), needed: u32) -> String {
    format!("compute capability {major}.{minor} is below {needed}.0")
}

/// Shared memory of a block of which two fit a multiprocessor, and of one that has it for itself.
fn shared(properties: &Properties) -> [u32; 2] {
    let half = properties.shared_per_multiprocessor / 2;
    let half = half.saturating_sub(properties.shared_reserved_per_block);
    let whole = properties.shared_per_block;
    [half.min(whole), whole].map(|bytes| bytes / 128 * 128)
}

fn check_tensor(tensor: &Tensor) -> Result<(), String> {
    let (name, kind) = (&tensor.name, tensor.kind.name);
    match format(tensor).tile() {
        Some(tile) => match tensor.dims[0] % u64::from(tile.columns) {
            0 => Ok(()),
            _ => Err(format!("{name} has rows of {}, no multiple of {}", tensor.dims[0], tile.columns)),
        },
        None => Err(format!("{name} is {kind}, which the chain does not read")),
    }
}
