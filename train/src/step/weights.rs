//! Frozen weights, and their copies in device memory.

use ptx_gen::KernelDef;
use warpwright_driver::{Buffer, Context, Kernel};
use warpwright_kernels::train::nested::{self, Nested};
use warpwright_kernels::train::nf4::{BLOCK, Nf4};

use crate::signed::load;
use crate::weights::{Weights, length};
use crate::{Config, Error};

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
    fn check(&self, (tensor, shape): (String, [usize; 2])) -> Result<(), Error> {
        let weights = shape[0] * shape[1];
        let blocks = weights.div_ceil(BLOCK);
        let part =
            |what: &str, wanted, found| length((format!("{what} {tensor}"), [1, wanted]), found);
        match self {
            Matrix::F32(w) => length((tensor, shape), w.len()),
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
pub(super) enum DeviceMatrix {
    F32(Buffer<f32>),
    Nf4 {
        packed: Buffer<u8>,
        absmax: Buffer<f32>,
    },
    Nested(DeviceNested),
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

/// The frozen weights of a model in device memory.
pub(super) type DeviceWeights = Weights<Buffer<f32>, DeviceMatrix>;

/// Checks the shapes of all tensors.
pub(super) fn check(config: &Config, weights: &Weights<Vec<f32>, Matrix>) -> Result<(), Error> {
    weights.try_map(
        config,
        &mut |named, v| length(named, v.len()),
        &mut |named, m| m.check(named),
    )?;
    Ok(())
}

/// Checks the shapes of all tensors and copies them to the device.
pub(super) fn upload(
    context: &Context,
    config: &Config,
    weights: &Weights<Vec<f32>, Matrix>,
) -> Result<DeviceWeights, Error> {
    check(config, weights)?;
    let vector = &mut |(name, _): (String, _), v: &Vec<f32>| {
        Ok(Buffer::from_slice(context, v)?.labelled(&name))
    };
    let matrix = &mut |(name, _): (String, _), matrix: &Matrix| {
        Ok(match matrix {
            Matrix::F32(w) => DeviceMatrix::F32(Buffer::from_slice(context, w)?.labelled(&name)),
            Matrix::Nf4(Nf4 { packed, absmax }) => DeviceMatrix::Nf4 {
                packed: Buffer::from_slice(context, packed)?.labelled(&name),
                absmax: Buffer::from_slice(context, absmax)?
                    .labelled(&format!("the absmax of {name}")),
            },
            Matrix::Nested(of) => DeviceMatrix::Nested(DeviceNested::new(context, &name, of)?),
        })
    };
    weights.try_map(config, vector, matrix)
}
