//! Frozen weights in device memory: matrices in `bf16` or NF4, and vectors in `f32`.

use warpwright_driver::{Buffer, Context, View, bf16};
use warpwright_kernels::train::nf4::{BLOCK, Nf4};

use crate::step::weights::{DeviceNested, Matrix, check};
use crate::{Config, Error, LayerWeights, Projection, Weights};

/// A frozen matrix in device memory.
pub(super) enum Bf16DeviceMatrix {
    Bf16(Buffer<bf16>),
    Nf4 { packed: View<u8>, absmax: View<f32> },
    Nested(DeviceNested),
}

/// The frozen weights of a model in device memory.
pub(super) struct DeviceWeights {
    /// `[vocab, hidden]`
    pub(super) embed: Buffer<bf16>,
    /// `[vocab, hidden]`. `None` if the model shares it with `embed`.
    head: Option<Buffer<bf16>>,
    pub(super) norm: Buffer<f32>,
    pub(super) layers: Vec<LayerWeights<Buffer<f32>, Bf16DeviceMatrix>>,
    /// The matrices of each layer, if they can be unpacked together.
    packed: Vec<Option<PackedLayer>>,
}

/// The matrices of a layer in one buffer, so that several can be unpacked as one.
///
/// This requires that all are in NF4 with an `f32` `absmax`, and that each has whole blocks.
struct PackedLayer {
    packed: Buffer<u8>,
    absmax: Buffer<f32>,
    /// The first weight of each projection, and the end.
    starts: [usize; 8],
}

impl PackedLayer {
    /// Copies the matrices to the device, or returns `None` if they cannot be unpacked together.
    fn new(
        context: &Context,
        l: usize,
        matrices: &[Matrix; 7],
    ) -> Result<Option<PackedLayer>, Error> {
        let mut all = Nf4 {
            packed: vec![],
            absmax: vec![],
        };
        let mut starts = [0; 8];
        // A matrix that ends within a block would share that block's `absmax` with the next matrix.
        for (i, matrix) in matrices.iter().enumerate() {
            match matrix {
                Matrix::Nf4(Nf4 { packed, absmax }) if 2 * packed.len() == BLOCK * absmax.len() => {
                    all.packed.extend(packed);
                    all.absmax.extend(absmax);
                    starts[i + 1] = starts[i] + 2 * packed.len();
                }
                _ => return Ok(None),
            }
        }
        let what = format!("the matrices of layer {l}");
        Ok(Some(PackedLayer {
            packed: Buffer::from_slice(context, &all.packed)?.labelled(&what),
            absmax: Buffer::from_slice(context, &all.absmax)?
                .labelled(&format!("the absmax of {what}")),
            starts,
        }))
    }

    /// Returns the codes and `absmax` of projections that are adjacent in [`Projection::ALL`].
    fn of(&self, projections: &[Projection]) -> (View<u8>, View<f32>) {
        let start = projections.first().map_or(0, |p| self.starts[*p as usize]);
        let end = projections
            .last()
            .map_or(0, |p| self.starts[*p as usize + 1]);
        (
            self.packed.view_range(start / 2..end / 2),
            self.absmax.view_range(start / BLOCK..end / BLOCK),
        )
    }
}

impl DeviceWeights {
    /// Returns the matrix of the LM head.
    pub(super) fn head(&self) -> &Buffer<bf16> {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Returns the codes and `absmax` of projections that are adjacent in [`Projection::ALL`], or
    /// `None` if the matrices of layer `l` cannot be unpacked together.
    pub(super) fn packed(&self, l: usize, of: &[Projection]) -> Option<(View<u8>, View<f32>)> {
        Some(self.packed[l].as_ref()?.of(of))
    }
}

/// Checks the shapes of all tensors and copies them to the device.
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
    let vector = &mut |(name, _): (String, _), v: &Vec<f32>| {
        Ok(Buffer::from_slice(context, v)?.labelled(&name))
    };
    let of_layers = weights.layers.iter().enumerate();
    // Built first, because the matrices of such a layer are views of its one buffer.
    let packed: Vec<_> = of_layers
        .map(|(l, layer)| PackedLayer::new(context, l, &layer.projections))
        .collect::<Result<_, _>>()?;
    let layer = |(l, layer): (usize, &LayerWeights<Vec<f32>, Matrix>)| {
        let mut projections = Projection::ALL.iter();
        let matrix = &mut |(name, _): (String, _), matrix: &Matrix| {
            let p = projections.next();
            Ok(match (matrix, &packed[l]) {
                (Matrix::F32(w), _) => Bf16DeviceMatrix::Bf16(rounded(&name, w)?),
                (Matrix::Nf4(_), Some(all)) => {
                    let (packed, absmax) = all.of(p.map(std::slice::from_ref).unwrap_or_default());
                    Bf16DeviceMatrix::Nf4 { packed, absmax }
                }
                (Matrix::Nf4(Nf4 { packed, absmax }), None) => Bf16DeviceMatrix::Nf4 {
                    packed: Buffer::from_slice(context, packed)?.labelled(&name).view(),
                    absmax: Buffer::from_slice(context, absmax)?
                        .labelled(&format!("the absmax of {name}"))
                        .view(),
                },
                (Matrix::Nested(of), _) => {
                    Bf16DeviceMatrix::Nested(DeviceNested::new(context, &name, of)?)
                }
            })
        };
        layer.try_map(l, config, vector, matrix)
    };
    let layers = weights
        .layers
        .iter()
        .enumerate()
        .map(layer)
        .collect::<Result<_, _>>()?;
    Ok(DeviceWeights {
        embed: rounded("the embedding", &weights.embed)?,
        head: weights
            .head
            .as_ref()
            .map(|head| rounded("the head", head))
            .transpose()?,
        norm: Buffer::from_slice(context, &weights.norm)?.labelled("the last norm"),
        layers,
        packed,
    })
}
