//! The memory that a trainer takes, counted before any of it is allocated.

use std::cell::Cell;

use super::adapters::ALIGN;
use super::buffers::{Buffers, Layers};
use super::sizes::Sizes;
use super::trainer::Settings;
use crate::{Config, Error};

/// Bytes of device memory, by part. What a driver adds to each buffer is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Frozen weights.
    pub weights: u64,
    /// Adapters, both moments and gradients.
    pub adapters: u64,
    /// What the forward keeps of the layers for the backward.
    pub activations: u64,
    /// Logits, and what else the head takes.
    pub head: u64,
    /// What no kernel needs for long.
    pub workspace: u64,
}

impl Needs {
    /// Of a model with frozen weights of so many bytes.
    ///
    /// # Errors
    ///
    /// Sizes that are 0 or above 2^24.
    pub fn of(settings: &Settings, head_norms: bool, weights: u64) -> Result<Needs, Error> {
        let Settings { config, lora, tokens, head_chunk, .. } = settings;
        let sizes = Sizes::new(config, lora.rank, *tokens)?;
        let bytes = Cell::new(0);
        let count = |_: &str, len: usize| {
            bytes.set(bytes.get() + 4 * len as u64);
            Ok(())
        };
        let shape = Layers { config, lora, head_norms };
        let chunk = (*head_chunk).min(*tokens) as u32;
        Buffers::new(&sizes, &Layers { config: &without_layers(config), ..shape }, chunk, &count)?;
        let rest = bytes.take();
        Buffers::new(&sizes, &shape, chunk, &count)?;
        let activations = bytes.get() - rest;
        let row = 4 * u64::from(sizes.tokens);
        let head = 4 * u64::from(chunk) * u64::from(sizes.vocab) + row * (2 * u64::from(sizes.hidden) + 3);
        let workspace = rest - head;
        // Four buffers of 4 bytes a number; each tensor may be rounded up.
        let padding = 2 * lora.targets.len() * config.layers * (ALIGN - 1);
        let adapters = 16 * (lora.trainable(config) + padding as u64);
        Ok(Needs { weights, adapters, activations, head, workspace })
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.adapters + self.activations + self.head + self.workspace
    }
}

fn without_layers(config: &Config) -> Config {
    Config { layers: 0, ..config.clone() }
}
