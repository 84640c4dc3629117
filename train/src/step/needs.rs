//! The device memory that a trainer needs, counted before any of it is allocated.

use super::buffers::BufferShapes;
use super::sizes::TrainingSizes;
use crate::settings::{Precision, Settings};
use crate::{Config, Error};

/// The device memory of a training run in bytes, by purpose. The driver's overhead per buffer is
/// not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainingNeeds {
    /// The bytes of the frozen weights.
    pub weights: u64,
    /// The bytes of adapters, both moments and gradients.
    pub adapters: u64,
    /// The bytes of the activations that the forward pass keeps for the backward pass.
    pub activations: u64,
    /// The bytes of the logits and of the other buffers of the LM head.
    pub head: u64,
    /// The bytes of scratch memory.
    pub workspace: u64,
}

impl TrainingNeeds {
    /// Returns the memory of a training run whose frozen weights have `weights` bytes.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] if a size is 0 or above 2^24.
    pub fn for_settings(settings: &Settings, weights: u64) -> Result<TrainingNeeds, Error> {
        let Settings {
            config,
            lora,
            tokens,
            ..
        } = settings;
        let sizes = TrainingSizes::new(config, lora.rank, *tokens)?;
        let precision = settings.precision;
        let shapes = BufferShapes::new(settings, &sizes, precision.stored_rank(lora.rank));
        let adapters = precision.adapter_layout(settings).len();

        // A model without layers needs only the head and the workspace, so the difference is what
        // the layers keep.
        let config = without_layers(config);
        let without_layers = BufferShapes {
            config: &config,
            ..shapes
        };
        let rest = precision.buffer_bytes(&without_layers, adapters)?;
        let activations = precision.buffer_bytes(&shapes, adapters)? - rest;
        let chunk = u64::from(settings.chunk());
        let hidden = u64::from(sizes.hidden);
        let vocab = u64::from(sizes.vocab);

        // The head has the logits, its input and the gradient of its input. Each token adds `inv`,
        // `lse` and the loss in `f32`. In `bf16` the gradients of the logits have a buffer of 2
        // bytes per element, while in `f32` they overwrite the logits.
        let [logit, number] = match precision {
            Precision::F32 => [4, 4],
            Precision::Bf16 => [6, 2],
        };
        let head = logit * chunk * vocab + u64::from(sizes.tokens) * (2 * number * hidden + 12);

        // Adapters, two moments and gradients: four buffers of `f32`.
        let adapters = 16 * adapters as u64;
        Ok(TrainingNeeds {
            weights,
            adapters,
            activations,
            head,
            workspace: rest - head,
        })
    }

    /// Returns the sum of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.adapters + self.activations + self.head + self.workspace
    }
}

/// Returns the configuration of the model with all layers removed.
fn without_layers(config: &Config) -> Config {
    Config {
        layers: 0,
        ..config.clone()
    }
}
