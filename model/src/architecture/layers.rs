//! The layers that a family makes of the numbers in a file.
//!
//! No other file reads the properties of a family that describe a layer. A new property needs a
//! field in [`Architecture`](crate::architecture::family::Architecture), a field or a kind in
//! [`layer`](crate::layer), and a line here.

use crate::architecture::family::EmbeddingScaling;
use crate::config::forward::Config;
use crate::config::hyperparameters::Hyperparameters;
use crate::layer::attention::{Attention, ScoreScale};
use crate::layer::description::{FeedForward, Layer, Mixer};
use crate::layer::feed_forward::Dense;

impl Hyperparameters {
    /// Returns the configuration of the forward pass.
    pub fn config(&self) -> Config {
        // Layers with the same rotation share its cosines and sines.
        let own = self.local.map(|local| local.rope);
        let own = own.filter(|own| *own != self.rope);
        let residual = self.factors.residual;
        Config {
            architecture: self.architecture,
            layers: (0..self.layers).map(|index| layer(self, index)).collect(),
            norm: self.architecture.norm,
            embedding_scale: embedding_scale(self),
            ropes: [self.rope]
                .into_iter()
                .chain(own)
                .map(|rope| rope.of_whole_heads(self.architecture.pairing, self.head_dim))
                .collect(),
            hidden: self.hidden,
            // The residual stream is stored divided by the factor of residuals, see
            // `embedding_scale`. A norm of it is the same with this constant: `r x / sqrt(mean((r
            // x)^2) + e) = x / sqrt(mean(x^2) + e / r^2)`.
            epsilon: (f64::from(self.epsilon) / (residual * residual)) as f32,
            logit_cap: self.caps.logits,
            logit_factor: self.factors.logits,
            context: self.context,
            vocab: self.vocab,
        }
    }
}

/// Returns the factor of the embeddings.
///
/// A model with a factor `r` of residuals computes `x += r f(norm(x))`. Everything that reads `x`
/// norms it first, so `x / r` can be stored instead, which needs no factor: `x / r += f(norm(x))`.
fn embedding_scale(model: &Hyperparameters) -> EmbeddingScaling {
    let factor = model.factors.embedding / model.factors.residual;
    match model.architecture.embedding_scale {
        EmbeddingScaling::One if factor != 1.0 => EmbeddingScaling::Factor(factor as f32),
        other => other,
    }
}

/// Returns the layer with this index.
fn layer(model: &Hyperparameters, index: u32) -> Layer {
    let family = model.architecture;
    Layer {
        norms: family.norms,
        norm: family.norm,
        mixer: Mixer::Attention(attention(model, index)),
        feed_forward: feed_forward(model, index),
    }
}

fn feed_forward(model: &Hyperparameters, index: u32) -> FeedForward {
    match &model.experts {
        Some(layers) if !layers.is_dense(index) => FeedForward::Experts(layers.experts),
        _ => FeedForward::Dense(Dense {
            width: model.feed_forward,
            activation: model.architecture.activation,
            form: model.architecture.dense,
        }),
    }
}

fn attention(model: &Hyperparameters, index: u32) -> Attention {
    let family = model.architecture;
    let is_local = model
        .local
        .is_some_and(|local| !(index + 1).is_multiple_of(local.period));
    let has_window = model.local.is_none() || is_local;
    Attention {
        heads: model.heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim,
        bias: model.bias,
        head_norms: family.head_norms,
        pairing: family.pairing,
        // The rotary embedding of the layers between is the second one.
        rope: (is_local && model.local.is_some_and(|local| local.rope != model.rope)).into(),
        // A window as long as the context counts as none.
        window: model
            .window
            .filter(|window| has_window && *window < model.context),
        score_scale: match model.factors.scores {
            Some(factor) => ScoreScale::Factor(factor as f32),
            None => ScoreScale::RootOf(score_len(model)),
        },
        score_cap: model.caps.scores,
        sinks: family.sinks_and_biases,
        output_bias: family.output_bias,
    }
}

/// Returns the length by whose root attention scores are divided, in files without a factor.
pub(crate) fn score_len(model: &Hyperparameters) -> u32 {
    if model.architecture.scores_by_hidden == Some(model.layers) {
        model.hidden / model.heads
    } else {
        model.head_dim
    }
}
