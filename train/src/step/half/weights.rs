//! Frozen weights on the device: matrices in `bf16` or NF4, vectors in `f32`.

use warpwright_driver::{Buffer, Context, bf16};
use warpwright_kernels::train::nf4::Nf4;

use crate::step::weights::{DeviceNested, Matrix, check};
use crate::{Config, Error, LayerWeights, Weights};

/// A frozen matrix in device memory.
pub(super) enum DeviceMatrix {
    Bf16(Buffer<bf16>),
    Nf4 { packed: Buffer<u8>, absmax: Buffer<f32> },
    Nested(DeviceNested),
}

pub(super) struct DeviceWeights {
    /// `[vocab, hidden]`
    pub(super) embed: Buffer<bf16>,
    /// `[vocab, hidden]`; a model without one uses `embed`.
    head: Option<Buffer<bf16>>,
    pub(super) norm: Buffer<f32>,
    pub(super) layers: Vec<LayerWeights<Buffer<f32>, DeviceMatrix>>,
}

impl DeviceWeights {
    pub(super) fn head(&self) -> &Buffer<bf16> {
        self.head.as_ref().unwrap_or(&self.embed)
    }
}

/// Checks the shapes of all tensors, and copies them.
pub(super) fn upload(
    context: &Context,
    config: &Config,
    weights: &Weights<Vec<f32>, Matrix>,
) -> Result<DeviceWeights, Error> {
    check(config, weights)?;
    let rounded = |name: &str, w: &[f32]| {
        let halves: Vec<bf16> = w.iter().map(|&w| bf16::from_f32(w)).collect();
        Ok::<_, Error>(Buffer::from_slice(context, &halves)?.labelled(name))
    };
    let vector =
        &mut |(name, _): (String, _), v: &Vec<f32>| Ok(Buffer::from_slice(context, v)?.labelled(&name));
    let matrix = &mut |(name, _): (String, _), matrix: &Matrix| {
        Ok(match matrix {
            Matrix::F32(w) => DeviceMatrix::Bf16(rounded(&name, w)?),
            Matrix::Nf4(Nf4 { packed, absmax }) => DeviceMatrix::Nf4 {
                packed: Buffer::from_slice(context, packed)?.labelled(&name),
                absmax: Buffer::from_slice(context, absmax)?.labelled(&format!("the absmax of {name}")),
            },
            Matrix::Nested(of) => DeviceMatrix::Nested(DeviceNested::new(context, &name, of)?),
        })
    };
    let layers = weights.layers.iter().enumerate();
    Ok(DeviceWeights {
        embed: rounded("the embedding", &weights.embed)?,
        head: weights.head.as_ref().map(|head| rounded("the head", head)).transpose()?,
        norm: Buffer::from_slice(context, &weights.norm)?.labelled("the last norm"),
        layers: layers
            .map(|(l, layer)| layer.try_map(l, config, vector, matrix))
            .collect::<Result<_, _>>()?,
    })
}
