//! Which kernels decode a model on a device: the chain over packed weights, or the simple ones, which take anything.

use std::fmt;

use warpwright_driver::Device;
use warpwright_kernels::tiled::activation::Encoding;
use warpwright_kernels::tiled::{AttentionChained, Finish, GateUp, Head, HeadNorm, Layout, Project, Qkv};
use warpwright_kernels::{Format, tiled};

use crate::config::Config;
use crate::decoder::Prefer;
use crate::gguf::Tensor;
use crate::kernels::pairing;
use crate::model::{Block, Outline};
use crate::tuning::Tuning;
use crate::weights::format;

/// Which kernels decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// A chain of kernels that overlap, over weights packed into tiles.
    Chained,
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
            Ok(_) => Path::Chained,
            Err(reason) => Path::Simple { reason: reason.clone() },
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Chained => write!(f, "a chain of overlapping kernels"),
            Path::Simple { reason } => write!(f, "simple kernels: {reason}"),
        }
    }
}

/// A model for which the chain is made, and the device's part of each launch.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    pub(crate) config: Config,
    pub(crate) tuning: Tuning,
    /// Multiprocessors.
    pub(crate) blocks: u32,
    /// Shared memory of a block, of which two fit a multiprocessor.
    pub(crate) shared: u32,
    /// The same of the blocks of attention, whatever the tuning says.
    pub(crate) attention_shared: u32,
}

/// What attention asks for.
const ATTENTION_SHARED: u32 = 115_712;
/// Query heads of one of attention's blocks, at most.
const ATTENTION_QUERIES: u32 = 8;
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
        let (major, minor) = device.compute_capability();
        if major < 9 {
            return Err(format!("compute capability {major}.{minor} is below 9.0"));
        }
        let properties = device.properties();
        let half = properties.shared_per_multiprocessor / 2;
        let half = half.saturating_sub(properties.shared_reserved_per_block).min(properties.shared_per_block);
        let half = half / 128 * 128;
        let fit = Fit {
            config: outline.config.clone(),
            tuning,
            blocks: properties.multiprocessors,
            shared: tuning.shared.unwrap_or(half),
            attention_shared: half.min(ATTENTION_SHARED),
        };
        fit.check_config()?;
        fit.check_weights(outline)?;
        Ok(fit)
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
            (self.attention_shared < ATTENTION_SHARED, "the device has too little shared memory"),
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
        self.down(format(&b.down)).map(drop)
    }

    pub(crate) fn qkv(&self, formats: [Format; 3]) -> Laid<Qkv> {
        let (c, plan) = (&self.config, self.tuning.qkv);
        let (pairing, bias) = (pairing(c.architecture), c.architecture.biased());
        let finish = if c.architecture.normed_heads() { Finish::Raw } else { Finish::Append };
        let kernel = Qkv { formats, pairing, bias, finish, plan };
        let runs = kernel.runs(c.heads, c.kv_heads, c.head_dim);
        Ok((kernel, self.lay("Q, K and V", &runs, plan, c.hidden)?))
    }

    pub(crate) fn o(&self, format: Format) -> Laid<Project> {
        self.project("the output", format, self.tuning.o, self.config.q_len())
    }

    pub(crate) fn down(&self, format: Format) -> Laid<Project> {
        self.project("the down projection", format, self.tuning.down, self.config.feed_forward)
    }

    fn project(&self, what: &str, format: Format, plan: tiled::Plan, n: u32) -> Laid<Project> {
        let kernel = Project { format, plan };
        Ok((kernel, self.lay(what, &kernel.runs(self.config.hidden), plan, n)?))
    }

    pub(crate) fn gate_up(&self, format: Format) -> Laid<GateUp> {
        let (c, plan) = (&self.config, self.tuning.gate_up);
        let kernel = GateUp { format, plan };
        Ok((kernel, self.lay("gate and up", &kernel.runs(c.feed_forward), plan, c.hidden)?))
    }

    pub(crate) fn head(&self, format: Format) -> Laid<Head> {
        let (c, plan) = (&self.config, self.tuning.head);
        let kernel = Head { format, plan };
        Ok((kernel, self.lay("the LM head", &kernel.runs(c.vocab), plan, c.hidden)?))
    }

    fn lay(&self, what: &str, runs: &tiled::Runs, plan: tiled::Plan, n: u32) -> Result<Layout, String> {
        runs.layout(plan, n, self.blocks, self.shared).ok_or_else(|| {
            format!("{what} over {n} columns does not fit {} bytes of shared memory", self.shared)
        })
    }

    pub(crate) fn attention(&self) -> AttentionChained {
        let c = &self.config;
        let Tuning { attention: trigger, nap, .. } = self.tuning;
        AttentionChained { head_dim: c.head_dim, queries: c.heads / c.kv_heads, trigger, nap }
    }

    pub(crate) fn head_norm(&self) -> Option<HeadNorm> {
        self.config.architecture.normed_heads().then_some(HeadNorm { chained: true })
    }

    /// Heads of keys and values, each as often as its queries need blocks.
    pub(crate) fn attention_units(&self) -> u32 {
        self.config.kv_heads * (self.config.heads / self.config.kv_heads).div_ceil(ATTENTION_QUERIES)
    }

    /// Ranges into which attention splits the positions: as many as there are blocks for.
    pub(crate) fn splits(&self, ctx: u32) -> u32 {
        let useful = ctx.div_ceil(self.attention().positions());
        (self.blocks / self.attention_units()).min(useful).clamp(1, MOST_SPLITS)
    }
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
