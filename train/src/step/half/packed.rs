//! The NF4 matrices of a layer in one buffer, so that several can be unpacked as one.

use warpwright_driver::Context;
use warpwright_driver::memory::Buffer;
use warpwright_kernels::train::nf4::{BLOCK, Nf4};

use crate::step::weights::{Matrix, PackedMatrix};
use crate::{Error, Projection};

/// The matrices of a layer in one buffer, so that several can be unpacked as one.
///
/// This requires that all are in NF4 with an `f32` `absmax`, and that each has whole blocks.
pub(super) struct PackedLayer {
    packed: Buffer<u8>,
    absmax: Buffer<f32>,
    /// The first weight of each projection, and the end.
    starts: [usize; 8],
}

impl PackedLayer {
    /// Copies the matrices to the device, or returns `None` if they cannot be unpacked together.
    pub(super) fn new(
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
    pub(super) fn of(&self, projections: &[Projection]) -> PackedMatrix {
        let start = projections.first().map_or(0, |p| self.starts[*p as usize]);
        let end = projections
            .last()
            .map_or(0, |p| self.starts[*p as usize + 1]);
        PackedMatrix {
            packed: self.packed.view_range(start / 2..end / 2),
            absmax: self.absmax.view_range(start / BLOCK..end / BLOCK),
        }
    }
}
