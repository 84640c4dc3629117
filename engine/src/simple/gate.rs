//! The activation of the gates of a feed-forward.

use std::sync::Arc;

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::simple::swiglu::{
    CLAMPED_ALPHA, CLAMPED_LIMIT, ClampedSwiGluArgs, SwiGluArgs,
};
use warpwright_kernels::{ClampedSwiGlu, SwiGlu};
use warpwright_model::layer::GateActivation;

use crate::distinct::SharedKernels;
use crate::kernel_terms::kernel_activation;

/// The kernel that multiplies the activation of the gates by the up projection.
pub(crate) enum GateKernel {
    /// A gated linear unit.
    Gated(Arc<Kernel<SwiGlu>>),
    /// The clamped SwiGLU of gpt-oss.
    Clamped(Arc<Kernel<ClampedSwiGlu>>),
}

/// The vectors of an activation, all of the same length.
pub(crate) struct GateVectors<'a> {
    pub(crate) gate: &'a View<f32>,
    pub(crate) up: &'a View<f32>,
    pub(crate) y: &'a View<f32>,
}

/// The kernels that were loaded so far.
pub(crate) struct GateLoader<'c> {
    gated: SharedKernels<'c, SwiGlu>,
    clamped: SharedKernels<'c, ClampedSwiGlu>,
}

/// The number of threads of a gated linear unit.
const THREADS: u32 = 256;

impl<'c> GateLoader<'c> {
    pub(crate) fn new(context: &'c Context) -> GateLoader<'c> {
        GateLoader {
            gated: SharedKernels::new(context),
            clamped: SharedKernels::new(context),
        }
    }

    /// Loads the kernel of an activation function.
    pub(crate) fn load(&mut self, activation: GateActivation) -> Result<GateKernel, Error> {
        Ok(match activation {
            GateActivation::Silu | GateActivation::GeluTanh => {
                GateKernel::Gated(self.gated.load(SwiGlu {
                    threads: THREADS,
                    activation: kernel_activation(activation),
                })?)
            }
            GateActivation::ClampedSwiglu => GateKernel::Clamped(self.clamped.load(ClampedSwiGlu)?),
        })
    }
}

impl GateKernel {
    /// Queues the activation.
    pub(crate) fn launch(
        &self,
        queue: &mut impl Queue,
        vectors: GateVectors<'_>,
    ) -> Result<(), Error> {
        let GateVectors { gate, up, y } = vectors;
        let n = y.len() as u32;
        match self {
            GateKernel::Gated(kernel) => {
                queue.launch(kernel, SwiGluArgs::<Host> { gate, up, y, n })
            }
            GateKernel::Clamped(kernel) => queue.launch(
                kernel,
                ClampedSwiGluArgs::<Host> {
                    gate,
                    up,
                    y,
                    n,
                    alpha: CLAMPED_ALPHA,
                    limit: CLAMPED_LIMIT,
                },
            ),
        }
    }
}
