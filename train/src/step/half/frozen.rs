//! Frozen matrices as products take them.

use std::sync::Arc;

use ptx_gen::{TileOf, bf16};
use warpwright_driver::{Error, Host, MapArg, Queue, View};
use warpwright_kernels::train::half::convert::Nf4DequantizeArgs;
use warpwright_kernels::train::half::linear::Frozen;
use warpwright_kernels::train::half::nested::NestedDequantizeArgs;
use warpwright_kernels::train::nested::NestedArgs;
use warpwright_kernels::train::nf4::BLOCK;
use warpwright_kernels::train::products::Form;

use super::buffers::unpacked;
use super::pass::Step;
use super::weights::DeviceMatrix;
use crate::step::common::Place;
use crate::step::weights::{DeviceNested, Unnesting};

/// A matrix that a product takes.
#[derive(Clone)]
pub(super) enum Operand {
    Bf16(View<bf16>),
    Nf4 { packed: View<u8>, absmax: View<f32> },
}

impl Operand {
    pub(super) fn frozen(&self) -> Frozen {
        match self {
            Operand::Bf16(_) => Frozen::Bf16,
            Operand::Nf4 { .. } => Frozen::Nf4,
        }
    }
}

/// The arguments of a kernel for a matrix, of which it reads some.
#[derive(Clone)]
pub(super) struct FrozenArgs {
    pub(super) w: Arc<MapArg>,
    pub(super) packed: View<u8>,
    pub(super) absmax: View<f32>,
}

impl FrozenArgs {
    /// The same of a matrix without elements.
    pub(super) fn none(&self) -> FrozenArgs {
        let FrozenArgs { w, packed, absmax } = self;
        FrozenArgs { w: w.clone(), packed: packed.view_range(0..0), absmax: absmax.view_range(0..0) }
    }
}

impl Step {
    /// Matrices of projections for one product: in NF4 if all are and the product unpacks them, else unpacked.
    pub(super) fn operands(&self, queue: &mut impl Queue, places: &[Place]) -> Result<Vec<Operand>, Error> {
        let packed: Option<Vec<_>> = places.iter().map(|place| self.packed(*place)).collect();
        match packed {
            Some(packed) => Ok(packed),
            None => places.iter().map(|place| Ok(Operand::Bf16(self.matrix(queue, *place)?))).collect(),
        }
    }

    /// The matrix of a projection: see [`operands`](Step::operands).
    pub(super) fn operand(&self, queue: &mut impl Queue, place: Place) -> Result<Operand, Error> {
        Ok(match self.packed(place) {
            Some(packed) => packed,
            None => Operand::Bf16(self.matrix(queue, place)?),
        })
    }

    /// The matrix in NF4, where a product can unpack it.
    fn packed(&self, (l, p): Place) -> Option<Operand> {
        let whole_blocks = (self.sizes.of(p)[1] as usize).is_multiple_of(BLOCK);
        match &self.weights.layers[l].projections[p as usize] {
            DeviceMatrix::Nf4 { packed, absmax } if self.kernels.unpacks && whole_blocks => {
                Some(Operand::Nf4 { packed: packed.view(), absmax: absmax.view() })
            }
            _ => None,
        }
    }

    /// What a kernel takes of a matrix, beside a left operand of `x`.
    pub(super) fn frozen_args(
        &self,
        operand: &Operand,
        x: &View<bf16>,
        (form, [columns, depth]): (Form, [u32; 2]),
        tile: TileOf<bf16>,
    ) -> Result<FrozenArgs, Error> {
        let shape = if form == Form::Nt { [columns, depth] } else { [depth, columns] };
        Ok(match operand {
            Operand::Bf16(w) => FrozenArgs {
                w: self.maps.of(w, shape, tile)?,
                packed: self.no_bytes.view_range(0..0),
                absmax: self.constants.one.view_range(0..0),
            },
            // Not read; a map of what is there.
            Operand::Nf4 { packed, absmax } => FrozenArgs {
                w: self.maps.of(x, [1, 8], tile)?,
                packed: packed.clone(),
                absmax: absmax.clone(),
            },
        })
    }

    /// A frozen matrix, unpacked if it is packed.
    fn matrix(&self, queue: &mut impl Queue, (l, p): Place) -> Result<View<bf16>, Error> {
        let [n, k] = self.sizes.of(p);
        match &self.weights.layers[l].projections[p as usize] {
            DeviceMatrix::Bf16(w) => Ok(w.view()),
            DeviceMatrix::Nf4 { packed, absmax } => {
                let (buffer, range) = unpacked(&self.sizes, p);
                let w = self.buffers.work.w[buffer].view_range(range);
                let args = Nf4DequantizeArgs::<Host> { packed, absmax, w: &w, n: n * k };
                queue.launch(&self.kernels.dequantize, args)?;
                Ok(w)
            }
            DeviceMatrix::Nested(DeviceNested { packed, codes, scales, offset }) => {
                let (buffer, range) = unpacked(&self.sizes, p);
                let w = self.buffers.work.w[buffer].view_range(range);
                // Loaded with the weights.
                let Unnesting { kernel, map } = self.unnesting.as_ref().expect("some matrix is nested");
                let (n, offset) = (n * k, *offset);
                let from = NestedArgs::<Host> { packed, codes, scales, map };
                let args = NestedDequantizeArgs::<Host> { from, w: &w, n, offset };
                queue.launch(kernel, args)?;
                Ok(w)
            }
        }
    }
}
