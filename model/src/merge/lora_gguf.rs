//! An adapter as a GGUF file, which llama.cpp reads next to a model (`--lora`).
//!
//! The keys and names are those that llama.cpp's `convert_lora_to_gguf.py` writes and
//! `src/llama-adapter.cpp` reads:
//! - `general.type` is `adapter`, `adapter.type` is `lora`, and `general.architecture` is the
//!   architecture of the model.
//! - The matrices of the tensor `NAME` are `NAME.lora_a`, `[rank, n]`, and `NAME.lora_b`, `[rows,
//!   rank]`, in F32. GGUF stores dimensions in the opposite order, so A is `[n, rank]` in the file.
//! - The rows of B are in the order of the model's GGUF file.
//!
//! `adapter.lora.alpha` applies to all projections, and llama.cpp divides it by the number of
//! columns of B (`get_scale` in `src/llama-adapter.h`). If PEFT has another scale, because of
//! `use_rslora` or `alpha_pattern`, A is multiplied by the ratio of the two.

use std::convert::Infallible;

use crate::Error;
use crate::adapter::data::{Adapter, LoraFactors};
use crate::adapter::names::{PROJECTIONS, in_pairs, is_permuted};
use crate::architecture::family::Architecture;
use crate::architecture::outline::Outline;
use crate::architecture::roles::Block;
use crate::format::tensor_type::{TENSOR_TYPES, TensorType};
use crate::gguf::writer::{Head, Scalar, padding};
use crate::layer::description::Mixer;
use crate::layer::rope_pairing::RopePairing;
use crate::merge::fault::MergeFault;

/// The format of all tensors.
const F32: &TensorType = &TENSOR_TYPES[0];

/// Passes the bytes of the GGUF file of a model's adapter to `sink`, in order. The file has no
/// tensors if the model has no adapter.
///
/// # Errors
/// Returns the errors of `sink`, and [`Error::Merge`] if a value of A is not finite in F32 when it
/// is multiplied by the ratio of the scales.
pub fn write_lora<E: From<Error>>(
    outline: &Outline,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let Some(adapter) = &outline.adapter else {
        return sink(&head(outline, 0.0, &[]).bytes());
    };

    let fault = |fault: MergeFault| Error::Merge {
        path: adapter.path.clone(),
        fault: Box::new(fault),
    };
    let alpha = adapter.alpha as f32;
    let tensors = tensors(outline, adapter);

    // Check everything before the first byte is written.
    for tensor in &tensors {
        tensor.check(alpha).map_err(fault)?;
    }

    sink(&head(outline, alpha, &tensors).bytes())?;
    for tensor in &tensors {
        write_tensor(tensor.factors.a_times(tensor.ratio(alpha)), &mut sink)?;
        write_tensor(tensor.b(outline), &mut sink)?;
    }

    Ok(())
}

/// Passes the bytes of a tensor and its padding to the sink.
fn write_tensor<E>(
    numbers: impl IntoIterator<Item = f32>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
    sink(&bytes)?;
    sink(padding(bytes.len() as u64))
}

/// A projection with an adapter.
struct LoraTensor<'a> {
    layer: usize,
    /// The index of the projection in [`PROJECTIONS`].
    projection: usize,
    /// The name of the projection's weight in GGUF files.
    tensor: String,
    factors: &'a LoraFactors,
}

/// Returns all projections with an adapter, in the order of the forward pass.
fn tensors<'a>(outline: &Outline, adapter: &'a Adapter) -> Vec<LoraTensor<'a>> {
    let mut found = vec![];
    let layers = adapter.layers.iter().zip(&outline.config.layers);
    for (layer, (all, described)) in layers.enumerate() {
        let Ok(names) = Block::of(described, |role| Ok::<_, Infallible>(role.tensor));
        let names = names.projections().map(|name| name.copied());
        for (projection, (factors, name)) in all.iter().zip(names).enumerate() {
            if let (Some(factors), Some(name)) = (factors, name) {
                found.push(LoraTensor {
                    layer,
                    projection,
                    tensor: format!("blk.{layer}.{name}"),
                    factors,
                });
            }
        }
    }

    found
}

/// Returns the head of the file, with the names and shapes of all tensors.
fn head(outline: &Outline, alpha: f32, tensors: &[LoraTensor<'_>]) -> Head {
    let mut head = Head::default()
        .pair(
            "general.architecture",
            Scalar::Text(outline.config.architecture.name),
        )
        .pair("general.type", Scalar::Text("adapter"))
        .pair("adapter.type", Scalar::Text("lora"))
        .pair("adapter.lora.alpha", Scalar::F32(alpha));
    for LoraTensor {
        tensor, factors, ..
    } in tensors
    {
        let rank = u64::from(factors.rank);
        let n = factors.a.len() as u64 / rank;
        let rows = factors.b.len() as u64 / rank;
        head = head
            .tensor(&format!("{tensor}.lora_a"), &[n, rank], F32)
            .tensor(&format!("{tensor}.lora_b"), &[rank, rows], F32);
    }
    head
}

impl LoraTensor<'_> {
    /// Returns the factor of A that makes llama.cpp's scale equal to PEFT's. It is 1 if the two are
    /// equal.
    fn ratio(&self, alpha: f32) -> f64 {
        self.factors.scale * f64::from(self.factors.rank) / f64::from(alpha)
    }

    /// Returns an error if a value of A times the ratio is not finite.
    fn check(&self, alpha: f32) -> Result<(), MergeFault> {
        let by = self.ratio(alpha);
        if self.factors.a_times(by).all(f32::is_finite) {
            return Ok(());
        }
        Err(MergeFault::Factor {
            layer: self.layer,
            projection: PROJECTIONS[self.projection],
            by,
        })
    }

    /// Returns B with its rows in the order of the family's GGUF files. In memory they are in the
    /// order of the model's own files.
    fn b(&self, outline: &Outline) -> Vec<f32> {
        let Mixer::Attention(here) = &outline.config.layers[self.layer].mixer;
        let there = Architecture::ALL
            .into_iter()
            .find(|family| family.name == outline.config.architecture.name);
        let permuted = |pairing: RopePairing| is_permuted(pairing, self.projection);
        let rank = self.factors.rank as usize;
        let dim = here.head_dim as usize;

        // A model folder keeps the original order, while GGUF files of the llama family permute it.
        if there.is_some_and(|there| permuted(there.pairing)) && !permuted(here.pairing) {
            in_pairs(&self.factors.b, rank, dim)
        } else {
            self.factors.b.clone()
        }
    }
}
