//! Frozen weights, and their copies in device memory.

use ptx_gen::KernelDef;
use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::{Buffer, View};
use warpwright_kernels::train::nested::{self, Nested};
use warpwright_kernels::train::nf4::{BLOCK, Nf4};

use super::element::StepElement;
use crate::projection::LayerProjection;
use crate::signed::load;
use crate::weights::{LayerWeights, NamedShape, Weights};
use crate::{Config, Error, Projection};

/// A frozen matrix, in the format of its file.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// F32 values, `[n, k]`.
    F32(Vec<f32>),
    /// NF4 codes, `[n, k]`. Blocks may cross rows.
    Nf4(Nf4),
    /// NF4 codes with a nested `absmax`, `[n, k]`.
    Nested(Nf4<Nested>),
}

impl Matrix {
    /// Checks that the parts of the matrix have the lengths that its shape requires.
    fn check(&self, named: NamedShape) -> Result<(), Error> {
        let weights = named.shape[0] * named.shape[1];
        let blocks = weights.div_ceil(BLOCK);
        let part = |what: &str, wanted, found| {
            NamedShape::new(format!("{what} {}", named.name), [1, wanted]).check(found)
        };
        match self {
            Matrix::F32(w) => named.clone().check(w.len()),
            Matrix::Nf4(w) => {
                part("the packed", weights.div_ceil(2), w.packed.len())?;
                part("the absmax of", blocks, w.absmax.len())
            }
            Matrix::Nested(Nf4 { packed, absmax }) => {
                part("the packed", weights.div_ceil(2), packed.len())?;
                part("the codes of the absmax of", blocks, absmax.codes.len())?;
                part(
                    "the scales of the absmax of",
                    blocks.div_ceil(nested::BLOCK),
                    absmax.scales.len(),
                )
            }
        }
    }
}

/// A frozen matrix in device memory.
pub(super) enum DeviceMatrix<E> {
    /// Values of the type that matmuls read.
    Unpacked(Buffer<E>),
    Nf4(PackedMatrix),
    Nested(DeviceNested),
}

/// An NF4 matrix with an `f32` `absmax` in device memory.
pub(super) struct PackedMatrix {
    pub(super) packed: View<u8>,
    pub(super) absmax: View<f32>,
}

/// An NF4 matrix with a nested `absmax` in device memory.
pub(super) struct DeviceNested {
    pub(super) packed: Buffer<u8>,
    pub(super) codes: Buffer<u8>,
    pub(super) scales: Buffer<f32>,
    pub(super) offset: f32,
}

impl DeviceNested {
    /// Copies a matrix to the device.
    pub(super) fn new(
        context: &Context,
        name: &str,
        of: &Nf4<Nested>,
    ) -> Result<DeviceNested, Error> {
        let Nf4 {
            packed,
            absmax:
                Nested {
                    codes,
                    scales,
                    offset,
                },
        } = of;
        let label = |part: &str| format!("the {part} of the absmax of {name}");
        Ok(DeviceNested {
            packed: Buffer::from_slice(context, packed)?.labelled(name),
            codes: Buffer::from_slice(context, codes)?.labelled(&label("codes")),
            scales: Buffer::from_slice(context, scales)?.labelled(&label("scales")),
            offset: *offset,
        })
    }
}

/// The kernel and table that unpack matrices with a nested `absmax`.
pub(super) struct Unnesting<K> {
    pub(super) kernel: Kernel<K>,
    /// `[256]`: the value of each `absmax` code.
    pub(super) map: Buffer<f32>,
}

impl<K: KernelDef> Unnesting<K> {
    /// Loads the kernel if any matrix has a nested `absmax`, and returns `None` otherwise.
    pub(super) fn new(
        context: &Context,
        kernel: K,
        weights: &Weights<Vec<f32>, Matrix>,
    ) -> Result<Option<Unnesting<K>>, Error> {
        let mut matrices = weights.layers.iter().flat_map(|layer| &layer.projections);
        if !matrices.any(|matrix| matches!(matrix, Matrix::Nested(_))) {
            return Ok(None);
        }

        let map = Buffer::from_slice(context, &nested::dynamic_map())?
            .labelled("the map of nested absmax");
        Ok(Some(Unnesting {
            kernel: load(context, kernel)?,
            map,
        }))
    }
}

/// The frozen weights of a model in device memory: matrices in `E` or NF4, and vectors in `f32`.
pub(super) struct DeviceWeights<E> {
    /// `[vocab, hidden]`
    pub(super) embed: Buffer<E>,
    /// `[vocab, hidden]`. `None` if the model shares it with `embed`.
    head: Option<Buffer<E>>,
    pub(super) norm: Buffer<f32>,
    pub(super) layers: Vec<LayerWeights<Buffer<f32>, DeviceMatrix<E>>>,
}

impl<E> DeviceWeights<E> {
    /// Returns the matrix of the LM head.
    pub(super) fn head(&self) -> &Buffer<E> {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Returns the matrix of a projection.
    pub(super) fn matrix(&self, of: LayerProjection) -> &DeviceMatrix<E> {
        &self.layers[of.layer].projections[of.projection as usize]
    }

    /// Returns the bias of a projection, or `None` if it has none.
    pub(super) fn bias(&self, of: LayerProjection) -> Option<&Buffer<f32>> {
        self.layers[of.layer].biases[of.projection as usize].as_ref()
    }

    /// Returns the gains of the norm of queries or keys, or `None` if the projection has none.
    pub(super) fn head_gains(&self, of: LayerProjection) -> Option<&Buffer<f32>> {
        let layer = &self.layers[of.layer];
        match of.projection {
            Projection::Q => layer.q_norm.as_ref(),
            Projection::K => layer.k_norm.as_ref(),
            Projection::V
            | Projection::O
            | Projection::Gate
            | Projection::Up
            | Projection::Down => None,
        }
    }
}

/// Checks the shapes of all tensors.
pub(super) fn check(config: &Config, weights: &Weights<Vec<f32>, Matrix>) -> Result<(), Error> {
    weights.try_map(
        config,
        &mut |named, v| named.check(v.len()),
        &mut |named, m| m.check(named),
    )?;
    Ok(())
}

/// Checks the shapes of all tensors and copies them to the device.
///
/// `placed` returns a projection's matrix if it is on the device already.
pub(super) fn upload<E: StepElement>(
    context: &Context,
    config: &Config,
    weights: &Weights<Vec<f32>, Matrix>,
    placed: impl Fn(LayerProjection) -> Option<PackedMatrix>,
) -> Result<DeviceWeights<E>, Error> {
    check(config, weights)?;
    let rounded = |name: &str, values: &[f32]| {
        Ok::<_, Error>(Buffer::from_slice(context, &E::round(values))?.labelled(name))
    };
    let vector = &mut |NamedShape { name, .. }: NamedShape, v: &Vec<f32>| {
        Ok(Buffer::from_slice(context, v)?.labelled(&name))
    };
    let layer = |(l, layer): (usize, &LayerWeights<Vec<f32>, Matrix>)| {
        // `try_map` visits the matrices in this order.
        let mut projections = Projection::ALL.iter();
        let matrix = &mut |NamedShape { name, .. }: NamedShape, matrix: &Matrix| {
            let placed = projections.next().and_then(|p| placed(p.of_layer(l)));
            Ok(match (matrix, placed) {
                (_, Some(placed)) => DeviceMatrix::Nf4(placed),
                (Matrix::F32(w), None) => DeviceMatrix::Unpacked(rounded(&name, w)?),
                (Matrix::Nf4(Nf4 { packed, absmax }), None) => DeviceMatrix::Nf4(PackedMatrix {
                    packed: Buffer::from_slice(context, packed)?.labelled(&name).view(),
                    absmax: Buffer::from_slice(context, absmax)?
                        .labelled(&format!("the absmax of {name}"))
                        .view(),
                }),
                (Matrix::Nested(of), None) => {
                    DeviceMatrix::Nested(DeviceNested::new(context, &name, of)?)
                }
            })
        };
        layer.try_map(l, config, vector, matrix)
    };
    Ok(DeviceWeights {
        embed: rounded("the embedding", &weights.embed)?,
        head: weights
            .head
            .as_ref()
            .map(|head| rounded("the head", head))
            .transpose()?,
        norm: Buffer::from_slice(context, &weights.norm)?.labelled("the last norm"),
        layers: weights
            .layers
            .iter()
            .enumerate()
            .map(layer)
            .collect::<Result<_, _>>()?,
    })
}
