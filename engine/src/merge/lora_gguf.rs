//! An adapter as a GGUF file, as llama.cpp reads it beside a model (`--lora`).
//!
//! Keys and names are those that llama.cpp's `convert_lora_to_gguf.py` writes and `src/llama-adapter.cpp` reads:
//! `general.type` is `adapter`, `adapter.type` is `lora`, `general.architecture` is that of the model, and the matrices of
//! `NAME` are `NAME.lora_a`, `[rank, n]`, and `NAME.lora_b`, `[rows, rank]`, in F32; a file's dimensions are in the
//! opposite order, so that A is `[n, rank]` there. The rows of B are those of the GGUF file of the model.
//!
//! `adapter.lora.alpha` is one for all projections, and llama.cpp divides it by the columns of B (`get_scale` of
//! `src/llama-adapter.h`). Where PEFT has another scale, by `use_rslora` or `alpha_pattern`, A is multiplied by the ratio
//! of the two.

use std::convert::Infallible;

use warpwright_kernels::Pairing;

use crate::Error;
use crate::adapter::data::{Adapter, Factors};
use crate::adapter::names::{PROJECTIONS, in_pairs, is_permuted};
use crate::merge::fault::Fault;
use crate::model::architecture::Architecture;
use crate::model::gguf::{TENSOR_TYPES, TensorType};
use crate::model::gguf_writer::{Head, Scalar, padding};
use crate::model::outline::Outline;
use crate::model::roles::Block;

/// The format of all tensors.
const F32: &TensorType = &TENSOR_TYPES[0];

/// Gives the bytes of the file to `sink`, in order. It has no tensors if the model has no adapter.
///
/// # Errors
///
/// Those of `sink`; a scale with which a number is beyond F32.
pub fn write_lora<E: From<Error>>(
    outline: &Outline,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let Some(adapter) = &outline.adapter else {
        return sink(&head(outline, 0.0, &[]).bytes());
    };
    let fault = |fault: Fault| Error::Merge {
        path: adapter.path.clone(),
        fault: Box::new(fault),
    };
    let alpha = adapter.alpha as f32;
    let places = places(outline, adapter);
    places
        .iter()
        .try_for_each(|place| place.check(alpha))
        .map_err(fault)?;
    sink(&head(outline, alpha, &places).bytes())?;
    for place in &places {
        give(place.factors.a_times(place.ratio(alpha)), &mut sink)?;
        give(place.b(outline), &mut sink)?;
    }
    Ok(())
}

/// Gives the bytes of a tensor, and those behind it.
fn give<E>(
    numbers: impl IntoIterator<Item = f32>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
    sink(&bytes)?;
    sink(padding(bytes.len() as u64))
}

/// A projection with an adapter.
struct Place<'a> {
    layer: usize,
    /// In the order of [`PROJECTIONS`].
    projection: usize,
    /// In GGUF files.
    tensor: String,
    factors: &'a Factors,
}

/// All of them, in the order of the forward pass.
fn places<'a>(outline: &Outline, adapter: &'a Adapter) -> Vec<Place<'a>> {
    let Ok(names) = Block::of(outline.config.architecture, |role| {
        Ok::<_, Infallible>(role.tensor)
    });
    let names = names.projections().map(|name| *name);
    let of_layer = |(layer, all): (usize, &'a [Option<Factors>; 7])| {
        all.iter()
            .zip(names)
            .enumerate()
            .filter_map(move |(projection, (factors, name))| {
                let tensor = format!("blk.{layer}.{name}");
                factors.as_ref().map(|factors| Place {
                    layer,
                    projection,
                    tensor,
                    factors,
                })
            })
    };
    adapter
        .layers
        .iter()
        .enumerate()
        .flat_map(of_layer)
        .collect()
}

fn head(outline: &Outline, alpha: f32, places: &[Place<'_>]) -> Head {
    let head = Head::default()
        .pair(
            "general.architecture",
            Scalar::Text(outline.config.architecture.name),
        )
        .pair("general.type", Scalar::Text("adapter"))
        .pair("adapter.type", Scalar::Text("lora"))
        .pair("adapter.lora.alpha", Scalar::F32(alpha));
    places.iter().fold(
        head,
        |head,
         Place {
             tensor, factors, ..
         }| {
            let rank = u64::from(factors.rank);
            let [n, rows] = [&factors.a, &factors.b].map(|factor| factor.len() as u64 / rank);
            let head = head.tensor(&format!("{tensor}.lora_a"), &[n, rank], F32);
            head.tensor(&format!("{tensor}.lora_b"), &[rank, rows], F32)
        },
    )
}

impl Place<'_> {
    /// What A is multiplied by, so that the scale is PEFT's: 1 where llama.cpp has the same.
    fn ratio(&self, alpha: f32) -> f64 {
        self.factors.scale * f64::from(self.factors.rank) / f64::from(alpha)
    }

    fn check(&self, alpha: f32) -> Result<(), Fault> {
        let by = self.ratio(alpha);
        match self.factors.a_times(by).all(f32::is_finite) {
            true => Ok(()),
            false => Err(Fault::Factor {
                layer: self.layer,
                projection: PROJECTIONS[self.projection],
                by,
            }),
        }
    }

    /// B with the rows in the order of the family's GGUF files. It has them in that of the model's own files.
    fn b(&self, outline: &Outline) -> Vec<f32> {
        let here = outline.config.architecture;
        let there = Architecture::ALL
            .into_iter()
            .find(|family| family.name == here.name);
        let permuted = |pairing: Pairing| is_permuted(pairing, self.projection);
        let (rank, dim) = (self.factors.rank as usize, outline.config.head_dim as usize);
        match there.is_some_and(|there| permuted(there.pairing)) && !permuted(here.pairing) {
            true => in_pairs(&self.factors.b, rank, dim),
            false => self.factors.b.clone(),
        }
    }
}
