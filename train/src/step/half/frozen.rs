//! Frozen matrices as products take them.

use std::sync::Arc;

use ptx_gen::{TileOf, bf16};
use warpwright_driver::{Error, Host, MapArg, Queue, View};
use warpwright_kernels::train::half::convert::Nf4DequantizeArgs;
use warpwright_kernels::train::half::linear::{Frozen, FrozenArgs};
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

/// What a kernel takes of a matrix, of which it reads some.
#[derive(Clone)]
pub(super) struct FrozenViews {
    pub(super) w: Arc<MapArg>,
    pub(super) packed: View<u8>,
    pub(super) absmax: View<f32>,
}

impl FrozenViews {
    pub(super) fn args(&self) -> FrozenArgs<Host<'_>> {
        let FrozenViews { w, packed, absmax } = self;
        FrozenArgs { w, packed, absmax }
    }

    /// The same of a matrix without elements.
    pub(super) fn none(&self) -> FrozenViews {
        let FrozenViews { w, packed, absmax } = self;
        FrozenViews { w: w.clone(), packed: packed.view_range(0..0), absmax: absmax.view_range(0..0) }
    }
}

impl Step {
    /// The matrix of a projection as it is, if the product unpacks it, else unpacked.
    pub(super) fn operand(&self, queue: &mut impl Queue, place: Place) -> Result<Operand, Error> {
        self.packed(place).map_or_else(|| self.unpacked(queue, place), Ok)
    }

    /// The matrix in NF4, where a product can unpack it.
    pub(super) fn packed(&self, (l, p): Place) -> Option<Operand> {
        let whole_blocks = (self.sizes.of(p)[1] as usize).is_multiple_of(BLOCK);
        match &self.weights.layers[l].projections[p as usize] {
            DeviceMatrix::Nf4 { packed, absmax } if self.kernels.unpacks && whole_blocks => {
                Some(Operand::Nf4 { packed: packed.view(), absmax: absmax.view() })
            }
            _ => None,
        }
    }

    /// What a kernel takes of a matrix, beside a left operand of `x`.
    pub(super) fn frozen_views(
        &self,
        operand: &Operand,
        x: &View<bf16>,
        (form, [columns, depth]): (Form, [u32; 2]),
        tile: TileOf<bf16>,
    ) -> Result<FrozenViews, Error> {
        let shape = if form == Form::Nt { [columns, depth] } else { [depth, columns] };
        Ok(match operand {
            Operand::Bf16(w) => FrozenViews {
                w: self.maps.of(w, shape, tile)?,
                packed: self.no_bytes.view_range(0..0),
                absmax: self.constants.one.view_range(0..0),
            },
            // Not read; a map of what is there.
            Operand::Nf4 { packed, absmax } => FrozenViews {
                w: self.maps.of(x, [1, 8], tile)?,
                packed: packed.clone(),
                absmax: absmax.clone(),
            },
        })
    }

    /// The matrix of a projection, unpacked if it is packed.
    pub(super) fn unpacked(&self, queue: &mut impl Queue, (l, p): Place) -> Result<Operand, Error> {
        let [n, k] = self.sizes.of(p);
        match &self.weights.layers[l].projections[p as usize] {
            DeviceMatrix::Bf16(w) => Ok(Operand::Bf16(w.view())),
            DeviceMatrix::Nf4 { packed, absmax } => {
                let (buffer, range) = unpacked(&self.sizes, p);
                let w = self.buffers.work.w[buffer].view_range(range);
                let args = Nf4DequantizeArgs::<Host> { packed, absmax, w: &w, n: n * k };
                queue.launch(&self.kernels.dequantize, args)?;
                Ok(Operand::Bf16(w))
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
                Ok(Operand::Bf16(w))
            }
        }
    }
}
