//! The kernels, weights and buffers of a step in `f32`.

use warpwright_driver::Context;
use warpwright_driver::memory::Buffer;
use warpwright_kernels::train::nested::NestedDequantize;

use super::kernels::{F32Kernels, THREADS};
use super::scratch::F32Scratch;
use crate::reference::Adapters;
use crate::settings::Settings;
use crate::step::adapters::Arrangement;
use crate::step::buffers::{BufferShapes, DeviceAllocator, StepBuffers};
use crate::step::state::StepState;
use crate::step::weights::{DeviceWeights, Matrix, Unnesting, upload};
use crate::{Error, Weights};

/// A step in `f32`: its kernels, weights and buffers.
pub(crate) struct F32Step {
    pub(super) state: StepState,
    pub(super) kernels: F32Kernels,
    pub(super) weights: DeviceWeights<f32>,
    pub(super) unnesting: Option<Unnesting<NestedDequantize>>,
    pub(super) buffers: StepBuffers<Buffer<f32>>,
    pub(super) scratch: F32Scratch,
}

impl F32Step {
    /// Allocates the buffers and loads the kernels.
    pub(crate) fn new(
        context: &Context,
        settings: &Settings,
        shapes: &BufferShapes<'_>,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
    ) -> Result<F32Step, Error> {
        let sizes = shapes.sizes;
        let allocator = DeviceAllocator::new(context);
        Ok(F32Step {
            state: StepState::new(context, settings, *sizes, Arrangement::Plain, adapters)?,
            kernels: F32Kernels::load(context, sizes.head_dim, settings.pairing)?,
            weights: upload(context, &settings.config, weights, |_| None)?,
            unnesting: Unnesting::new(context, NestedDequantize { threads: THREADS }, weights)?,
            buffers: StepBuffers::new(&allocator, shapes)?,
            scratch: F32Scratch::new(&allocator, sizes)?,
        })
    }
}
