//! A model: frozen weights, and the way in which it computes with them.

use warpwright_kernels::train::Storage;
use warpwright_model::RopePairing;

use super::ops::Ops;
use crate::weights::Weights;
use crate::{Config, Error, Lora};

/// The frozen weights of a model, and the settings of their adapters.
pub struct Model<'a> {
    pub(super) config: Config,
    pub(super) lora: Lora,
    pub(super) weights: Weights,
    pub(super) storage: Storage,
    pub(super) ops: &'a dyn Ops,
    /// The dimensions of a head that RoPE rotates together. Safetensors files use NeoX (half-split)
    /// RoPE. GGUF files of the llama family use GPT-J (interleaved) RoPE.
    pub pairing: RopePairing,
    /// The number of tokens whose logits are in memory at the same time.
    pub head_chunk: usize,
}

impl<'a> Model<'a> {
    /// Creates a model whose tensors in memory, including the weights, have the type `storage`.
    ///
    /// # Errors
    /// Returns an error if a size or a setting is out of range, or if a tensor has another shape
    /// than the configuration requires.
    pub fn new(
        config: Config,
        lora: Lora,
        mut weights: Weights,
        storage: Storage,
        ops: &'a dyn Ops,
    ) -> Result<Model<'a>, Error> {
        config.check()?;
        lora.check()?;
        weights.check(&config)?;
        for tensor in weights.tensors_mut() {
            *tensor = storage.store(std::mem::take(tensor));
        }

        Ok(Model {
            config,
            lora,
            weights,
            storage,
            ops,
            pairing: RopePairing::HalfSplit,
            head_chunk: 1024,
        })
    }
}
