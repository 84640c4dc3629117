//! The device memory that a trainer needs, counted before any of it is allocated.

use std::cell::Cell;

use super::adapters::{AdapterLayout, Arrangement};
use super::buffers::{F32Buffers, Layers};
use super::half;
use super::settings::{Precision, Settings};
use super::sizes::TrainingSizes;
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
    pub fn for_settings(
        settings: &Settings,
        head_norms: bool,
        weights: u64,
    ) -> Result<TrainingNeeds, Error> {
        let Settings {
            config,
            lora,
            tokens,
            recomputation,
            ..
        } = settings;
        let sizes = TrainingSizes::new(config, lora.rank, *tokens)?;
        let shape = Layers {
            config,
            lora,
            head_norms,
            recomputation: *recomputation,
        };
        // A model without layers needs only the head and the workspace, so the difference is what
        // the layers keep.
        let rest = buffers(
            settings,
            &sizes,
            &Layers {
                config: &without_layers(config),
                ..shape
            },
        )?;
        let activations = buffers(settings, &sizes, &shape)? - rest;
        let chunk = u64::from(settings.chunk());
        let hidden = u64::from(sizes.hidden);
        let vocab = u64::from(sizes.vocab);
        // The head has the logits, its input and the gradient of its input. Each token adds `inv`,
        // `lse` and the loss in `f32`. In `bf16` the gradients of the logits have a buffer of 2
        // bytes per element, while in `f32` they overwrite the logits.
        let [logit, number] = match settings.precision {
            Precision::F32 => [4, 4],
            Precision::Bf16 => [6, 2],
        };
        let head = logit * chunk * vocab + u64::from(sizes.tokens) * (2 * number * hidden + 12);
        // Adapters, two moments and gradients: four buffers of `f32`.
        let adapters = 16 * arrangement(settings, &sizes).len() as u64;
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

/// Returns the layout of the adapters in the precision of `settings`.
fn arrangement(settings: &Settings, sizes: &TrainingSizes) -> AdapterLayout {
    let arrangement = match settings.precision {
        Precision::F32 => Arrangement::Plain,
        Precision::Bf16 => Arrangement::Padded {
            rank: half::padded(sizes.rank),
        },
    };
    AdapterLayout::of(&settings.config, &settings.lora, arrangement)
}

/// Returns the bytes of the activations, the head and the workspace.
fn buffers(settings: &Settings, sizes: &TrainingSizes, shape: &Layers<'_>) -> Result<u64, Error> {
    // The allocators below only add up sizes, so the code that allocates also counts, and the two
    // cannot disagree.
    let bytes = Cell::new(0);
    let counting = |size: u64| {
        let bytes = &bytes;
        move |_: &str, len: usize| {
            bytes.set(bytes.get() + size * len as u64);
            Ok(())
        }
    };
    let chunk = settings.chunk();
    match settings.precision {
        Precision::F32 => _ = F32Buffers::new(sizes, shape, chunk, &counting(4))?,
        Precision::Bf16 => {
            let adapters = arrangement(settings, sizes).len();
            half::Bf16Buffers::new(
                sizes,
                shape,
                [chunk as usize, adapters],
                &counting(2),
                &counting(4),
            )?;
        }
    }
    Ok(bytes.get())
}
