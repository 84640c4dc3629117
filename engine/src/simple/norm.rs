//! The norm of rows of the residual stream: RMSNorm or LayerNorm.

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::simple::layer_norm::LayerNormArgs;
use warpwright_kernels::simple::rms_norm::RmsNormArgs;
use warpwright_kernels::{LayerNorm, RmsNorm};
use warpwright_model::Config;
use warpwright_model::layer::NormKind;

use crate::signed;

/// The kernel of a norm.
pub(crate) enum NormKernel {
    /// RMSNorm.
    Rms(Kernel<RmsNorm>),
    /// LayerNorm. A bias is added by another kernel.
    Layer(Kernel<LayerNorm>),
}

/// The rows that a norm reads and writes.
pub(crate) struct NormedRows<'a> {
    /// The rows, `[rows, hidden]`.
    pub(crate) x: &'a View<f32>,
    /// The weights of the norm, `[hidden]`.
    pub(crate) w: &'a View<f32>,
    /// The normed rows, `[rows, hidden]`.
    pub(crate) y: &'a View<f32>,
}

/// The number of threads of a short row.
const THREADS: u32 = 256;
/// The number of threads of a long row.
const MANY_THREADS: u32 = 1024;
/// The row length from which a norm uses a block of many threads.
const LONG: u32 = 2048;

/// Returns the number of threads that norm a row of the residual stream.
pub(crate) fn threads(c: &Config) -> u32 {
    if c.hidden < LONG {
        THREADS
    } else {
        MANY_THREADS
    }
}

impl NormKernel {
    /// Loads the kernel of the norms of a model.
    pub(crate) fn load(context: &Context, c: &Config) -> Result<NormKernel, Error> {
        let threads = threads(c);
        Ok(match c.norm {
            NormKind::Rms => NormKernel::Rms(signed::load(context, RmsNorm { threads })?),
            NormKind::Layer | NormKind::LayerBiased => {
                NormKernel::Layer(signed::load(context, LayerNorm { threads })?)
            }
        })
    }

    /// Queues the norm of rows.
    pub(crate) fn launch(
        &self,
        queue: &mut impl Queue,
        c: &Config,
        rows: NormedRows<'_>,
    ) -> Result<(), Error> {
        let NormedRows { x, w, y } = rows;
        let n = c.hidden;
        let eps = c.epsilon;
        match self {
            NormKernel::Rms(kernel) => {
                queue.launch(kernel, RmsNormArgs::<Host> { x, w, y, n, eps })
            }
            NormKernel::Layer(kernel) => {
                queue.launch(kernel, LayerNormArgs::<Host> { x, w, y, n, eps })
            }
        }
    }
}
