//! Frozen weights on the device.

use warpwright_driver::{Buffer, Context};
use warpwright_kernels::train::nf4::{BLOCK, Nf4};

use crate::weights::{Weights, length};
use crate::{Config, Error};

/// A frozen matrix, as a file has it.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// `[n, k]`
    F32(Vec<f32>),
    /// `[n, k]` in NF4. Blocks may cross rows.
    Nf4(Nf4),
}

impl Matrix {
    fn check(&self, (tensor, shape): (String, [usize; 2])) -> Result<(), Error> {
        let weights = shape[0] * shape[1];
        match self {
            Matrix::F32(w) => length((tensor, shape), w.len()),
            Matrix::Nf4(w) => {
                length((format!("the packed {tensor}"), [1, weights.div_ceil(2)]), w.packed.len())?;
                length((format!("the absmax of {tensor}"), [1, weights.div_ceil(BLOCK)]), w.absmax.len())
            }
        }
    }
}

/// A frozen matrix in device memory.
pub(super) enum DeviceMatrix {
    F32(Buffer<f32>),
    Nf4 { packed: Buffer<u8>, absmax: Buffer<f32> },
}

pub(super) type DeviceWeights = Weights<Buffer<f32>, DeviceMatrix>;

/// Checks the shapes of all tensors.
pub(super) fn check(config: &Config, weights: &Weights<Vec<f32>, Matrix>) -> Result<(), Error> {
    weights.try_map(config, &mut |named, v| length(named, v.len()), &mut |named, m| m.check(named))?;
    Ok(())
}

/// Checks the shapes of all tensors, and copies them.
pub(super) fn upload(
    context: &Context,
    config: &Config,
    weights: &Weights<Vec<f32>, Matrix>,
) -> Result<DeviceWeights, Error> {
    check(config, weights)?;
    let vector =
        &mut |(name, _): (String, _), v: &Vec<f32>| Ok(Buffer::from_slice(context, v)?.labelled(&name));
    let matrix = &mut |(name, _): (String, _), matrix: &Matrix| {
        Ok(match matrix {
            Matrix::F32(w) => DeviceMatrix::F32(Buffer::from_slice(context, w)?.labelled(&name)),
            Matrix::Nf4(Nf4 { packed, absmax }) => DeviceMatrix::Nf4 {
                packed: Buffer::from_slice(context, packed)?.labelled(&name),
                absmax: Buffer::from_slice(context, absmax)?.labelled(&format!("the absmax of {name}")),
            },
        })
    };
    weights.try_map(config, vector, matrix)
}
