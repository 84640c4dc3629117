//! Rotary position embedding: the keys of a file, and the frequencies that follow from them.
//!
//! Pair `i` of a head of `dim` rotated elements is rotated by `position * base^(-2i/dim)`. A model
//! made for a longer context than it was trained on scales these frequencies. Linear scaling
//! divides all by one factor. YaRN (<https://arxiv.org/abs/2309.00071>) divides only frequencies
//! with a long period. `rope_freqs.weight` has a divisor for each frequency.

use crate::gguf::keys::MetadataKeys;
use crate::layer::rope_pairing::RopePairing;
use crate::problem::Problem;

/// The scaling of the rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// All frequencies are divided by this factor, which is 1 without scaling.
    Linear(f64),
    /// YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models",
    /// 2023, <https://arxiv.org/abs/2309.00071>).
    Yarn(Yarn),
    /// All frequencies are 0: a layer is not rotated (NoPE).
    Still,
}

/// The parameters of YaRN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// The ratio of the scaled context to the original one.
    pub factor: f64,
    /// The number of positions on which the model was trained originally.
    pub original_context: u32,
    /// The number of rotations over the original context above which a pair keeps its frequency.
    pub beta_fast: f64,
    /// The number of rotations over the original context below which a pair's frequency is divided
    /// by the whole factor.
    pub beta_slow: f64,
    /// The bounds between the pairs that are scaled and those that are not.
    pub bounds: YarnBounds,
}

/// The bounds of the pairs between which YaRN scales frequencies by a part of the factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YarnBounds {
    /// The bounds are rounded outwards to whole pairs.
    Whole,
    /// The bounds are not rounded.
    Exact,
}

/// The rotary position embedding of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// The number of leading elements of a head that are processed, an even number.
    pub dim: u32,
    /// The number of leading elements that are rotated, an even number up to `dim`. The frequencies of
    /// the rest are 0.
    pub rotated: u32,
    /// The base of the frequencies.
    pub base: f64,
    /// The scaling of the frequencies.
    pub scaling: Scaling,
    /// The factor of cosine and sine. It is 1 unless YaRN or `rope.scaling.attn_factor` sets
    /// another one.
    pub magnitude: f64,
}

/// The divisors of the rotary frequencies.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeFactors {
    /// Divisors that do not depend on the context length.
    Fixed(Vec<f32>),
    /// Divisors that depend on the context length of the decoder, as in llama.cpp
    /// (`llama_model::get_rope_factors`). The `transformers` library chooses by the length of the
    /// text so far. A text's keys then become inconsistent when it grows beyond the original
    /// context.
    ByContext {
        /// The longest context that counts as short.
        original: u32,
        /// Factors of short contexts.
        short: Vec<f32>,
        /// Factors of long contexts.
        long: Vec<f32>,
    },
}

impl RopeFactors {
    /// Returns the divisors for a decoder with `ctx` positions.
    pub fn of(&self, ctx: u32) -> &[f32] {
        match self {
            RopeFactors::Fixed(factors) => factors,
            RopeFactors::ByContext {
                original, short, ..
            } if ctx <= *original => short,
            RopeFactors::ByContext { long, .. } => long,
        }
    }
}

/// Parameters of YaRN that only other architectures use, and the value with which they change
/// nothing.
const YARN_EXTRAS: [(&str, f64); 3] = [
    ("rope.scaling.yarn_ext_factor", 1.0),
    ("rope.scaling.yarn_attn_factor", 1.0),
    ("rope.scaling.yarn_log_multiplier", 0.0),
];

impl Rope {
    /// Returns a rotation of whole heads without scaling.
    pub const fn plain(head_dim: u32, base: f64) -> Rope {
        Rope {
            dim: head_dim,
            rotated: head_dim,
            base,
            scaling: Scaling::Linear(1.0),
            magnitude: 1.0,
        }
    }

    /// Returns this embedding as one of whole heads, in which the rest of a head has the frequency 0.
    ///
    /// This is the same rotation if pairs are neighbors, because a pair is then rotated as a whole or
    /// not at all. Without a magnitude, a pair with the frequency 0 keeps its exact values.
    pub(crate) fn of_whole_heads(self, pairing: RopePairing, head_dim: u32) -> Rope {
        if pairing == RopePairing::Interleaved && self.magnitude == 1.0 {
            Rope {
                dim: head_dim,
                ..self
            }
        } else {
            self
        }
    }

    /// Returns the embedding of layers that are not rotated, in a model whose other layers have this
    /// one.
    pub(crate) fn still(self) -> Rope {
        Rope {
            scaling: Scaling::Still,
            magnitude: 1.0,
            ..self
        }
    }

    /// Reads the keys under `rope.`, as `llama_model_base::load_hparams` and `llama_context` of
    /// llama.cpp do.
    pub(crate) fn read(
        keys: &MetadataKeys<'_>,
        head_dim: u32,
        context: u32,
        bounds: YarnBounds,
    ) -> Result<Rope, Problem> {
        let dim = keys.size_or("rope.dimension_count", Ok(head_dim))?;
        keys.expect(
            "rope.dimension_count",
            dim,
            dim % 2 == 0 && dim <= head_dim,
            || format!("an even number up to the head's length ({head_dim})"),
        )?;
        let base = keys.positive("rope.freq_base")?.unwrap_or(10_000.0);
        let scaling = scaling(keys, context, bounds)?;
        let attention = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let magnitude = attention * scaling.magnitude();
        Ok(Rope {
            dim,
            rotated: dim,
            base,
            scaling,
            magnitude,
        })
    }

    /// Returns the frequency of each pair in revolutions per position, divided by the pair's
    /// factor.
    pub fn revolutions(&self, factors: Option<&[f32]>) -> Vec<f64> {
        let frequency = |i: usize| {
            if i >= self.rotated as usize / 2 {
                return 0.0;
            }
            let factor = factors.map_or(1.0, |factors| f64::from(factors[i]));
            self.base.powf(-2.0 * i as f64 / f64::from(self.rotated)) / factor * self.share(i)
        };
        (0..self.dim as usize / 2)
            .map(|i| frequency(i) / std::f64::consts::TAU)
            .collect()
    }

    /// Returns the factor by which scaling multiplies the frequency of pair `i`.
    fn share(&self, i: usize) -> f64 {
        match self.scaling {
            Scaling::Linear(factor) => 1.0 / factor,
            Scaling::Yarn(yarn) => {
                let kept = yarn.kept(i, self.rotated, self.base);
                kept + (1.0 - kept) / yarn.factor
            }
            Scaling::Still => 0.0,
        }
    }
}

impl Scaling {
    /// Returns the factor by which YaRN multiplies cosine and sine, so that attention stays as
    /// sharp over more positions.
    pub(crate) fn magnitude(&self) -> f64 {
        match self {
            Scaling::Yarn(Yarn { factor, .. }) if *factor > 1.0 => 1.0 + 0.1 * factor.ln(),
            _ => 1.0,
        }
    }
}

impl Yarn {
    /// From 1 for a pair that keeps its frequency to 0 for one that has it divided:
    /// `rope_yarn_ramp` of ggml.
    fn kept(&self, i: usize, dim: u32, base: f64) -> f64 {
        let dim = f64::from(dim);
        let original = f64::from(self.original_context);
        // The pair that rotates this often over the original context.
        let pair = |times: f64| {
            dim * (original / (times * std::f64::consts::TAU)).ln() / (2.0 * base.ln())
        };
        let low = pair(self.beta_fast);
        let high = pair(self.beta_slow);
        let [low, high] = match self.bounds {
            YarnBounds::Whole => [low.floor(), high.ceil()],
            YarnBounds::Exact => [low, high],
        };
        let low = low.max(0.0);
        let high = high.min(dim - 1.0);
        1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }
}

fn scaling(keys: &MetadataKeys<'_>, context: u32, bounds: YarnBounds) -> Result<Scaling, Problem> {
    let factor = factor(keys)?;
    match keys.text("rope.scaling.type")? {
        // Without a type, a factor is linear: files older than the key have it so.
        None | Some("linear") => Ok(Scaling::Linear(factor)),
        Some("none") => Ok(Scaling::Linear(1.0)),
        Some("yarn") => yarn(keys, factor, context, bounds),
        Some(other) => Err(Problem::RopeScaling(other.to_owned())),
    }
}

/// `rope.scaling.factor`, or `rope.scale_linear` in files older than that; 0 is none.
fn factor(keys: &MetadataKeys<'_>) -> Result<f64, Problem> {
    let factor = match keys.nonnegative("rope.scaling.factor")? {
        None => keys.nonnegative("rope.scale_linear")?,
        factor => factor,
    };
    Ok(factor.filter(|factor| *factor != 0.0).unwrap_or(1.0))
}

fn yarn(
    keys: &MetadataKeys<'_>,
    factor: f64,
    context: u32,
    bounds: YarnBounds,
) -> Result<Scaling, Problem> {
    for (name, neutral) in YARN_EXTRAS {
        if let Some(found) = keys.number(name)?.filter(|found| *found != neutral) {
            return keys.wrong(
                name,
                found,
                format!("{neutral}: another value is not supported"),
            );
        }
    }
    Ok(Scaling::Yarn(Yarn {
        factor,
        original_context: keys.size_or("rope.scaling.original_context_length", Ok(context))?,
        beta_fast: keys
            .positive("rope.scaling.yarn_beta_fast")?
            .unwrap_or(32.0),
        beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        bounds,
    }))
}
