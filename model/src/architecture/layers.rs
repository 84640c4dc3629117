//! The layers that a family makes of the numbers in a file.
//!
//! No other file reads the properties of a family that describe a layer. A new property needs a
//! field in [`Architecture`](crate::architecture::family::Architecture), a field or a kind in
//! [`layer`](crate::layer), and a line here.

use crate::config::forward::Config;
use crate::config::hyperparameters::Hyperparameters;
use crate::layer::attention::{Attention, HeadNorms, QkvBias};
use crate::layer::description::{FeedForward, Layer, Mixer, NormPositions};
use crate::layer::feed_forward::Dense;

impl Hyperparameters {
    /// Returns the configuration of the forward pass.
    pub fn config(&self) -> Config {
        let own = self.local.map(|local| local.rope);
        Config {
            architecture: self.architecture,
            layers: (0..self.layers).map(|index| layer(self, index)).collect(),
            embedding_scale: self.architecture.embedding_scale,
            ropes: [self.rope].into_iter().chain(own).collect(),
            hidden: self.hidden,
            epsilon: self.epsilon,
            context: self.context,
            vocab: self.vocab,
        }
    }
}

/// Returns the layer with this index.
fn layer(model: &Hyperparameters, index: u32) -> Layer {
    let family = model.architecture;
    Layer {
        norms: if family.norms_after {
            NormPositions::BeforeAndAfter
        } else {
            NormPositions::Before
        },
        mixer: Mixer::Attention(attention(model, index)),
        feed_forward: FeedForward::Dense(Dense {
            width: model.feed_forward,
            activation: family.activation,
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
        bias: if family.biases {
            QkvBias::Each
        } else {
            QkvBias::None
        },
        head_norms: if family.head_norms {
            HeadNorms::QueriesAndKeys
        } else {
            HeadNorms::None
        },
        pairing: family.pairing,
        // The rotary embedding of layers with a window is the second one.
        rope: is_local.into(),
        // A window as long as the context counts as none.
        window: model
            .window
            .filter(|window| has_window && *window < model.context),
        score_len: score_len(model),
    }
}

/// Returns the length by whose root attention scores are divided.
pub(crate) fn score_len(model: &Hyperparameters) -> u32 {
    if model.architecture.scores_by_hidden == Some(model.layers) {
        model.hidden / model.heads
    } else {
        model.head_dim
    }
}
