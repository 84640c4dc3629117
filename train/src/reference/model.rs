//! A model: frozen weights, and how it computes with them.

use super::ops::Ops;
use crate::weights::Weights;
use crate::{Config, Error, Lora};
use warpwright_kernels::Pairing;
use warpwright_kernels::train::Storage;

/// Frozen weights and the settings of their adapters.
pub struct Model<'a> {
    pub(super) config: Config,
    pub(super) lora: Lora,
    pub(super) weights: Weights,
    pub(super) storage: Storage,
    pub(super) ops: &'a dyn Ops,
    /// Which dimensions of a head RoPE rotates together: half split in safetensors files, interleaved in GGUF files of
    /// the llama family.
    pub pairing: Pairing,
    /// Tokens whose logits are in memory at once.
    pub head_chunk: usize,
}

impl<'a> Model<'a> {
    /// A model whose tensors in memory have this type, the weights among them.
    ///
    /// # Errors
    ///
    /// Sizes or settings that make no model, and tensors of other shapes.
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
        weights
            .tensors_mut()
            .for_each(|tensor| *tensor = storage.store(std::mem::take(tensor)));
        let (pairing, head_chunk) = (Pairing::HalfSplit, 1024);
        Ok(Model {
            config,
            lora,
            weights,
            storage,
            ops,
            pairing,
            head_chunk,
        })
    }
}
