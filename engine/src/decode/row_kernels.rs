//! The kernels that process rows of logits or of the residual stream. They are compiled on first
//! use.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};
use warpwright_kernels::LogLikelihood;
use warpwright_model::Config;

use crate::signed;
use crate::simple::norm::NormKernel;

/// The row kernels of a decoder.
#[derive(Default)]
pub(crate) struct RowKernels {
    log_likelihood: Option<Arc<Kernel<LogLikelihood>>>,
    norm: Option<Arc<NormKernel>>,
}

/// The smallest vocabulary for which a block of 1024 threads is worthwhile.
const LARGE: u32 = 1 << 14;

impl RowKernels {
    /// Returns the kernel that computes log-likelihoods of tokens from rows of logits.
    pub(crate) fn log_likelihood(
        &mut self,
        context: &Context,
        c: &Config,
    ) -> Result<Arc<Kernel<LogLikelihood>>, Error> {
        let threads = if c.vocab < LARGE { 256 } else { 1024 };
        loaded(&mut self.log_likelihood, context, LogLikelihood { threads })
    }

    /// Returns the kernel of the last norm, for rows of the residual stream.
    pub(crate) fn norm(&mut self, context: &Context, c: &Config) -> Result<Arc<NormKernel>, Error> {
        match &self.norm {
            Some(kernel) => Ok(kernel.clone()),
            None => {
                let kernel = Arc::new(NormKernel::load(context, c)?);
                Ok(self.norm.insert(kernel).clone())
            }
        }
    }
}

/// Returns the kernel in `slot`, and loads it first if the slot is empty.
fn loaded<K: KernelDef>(
    slot: &mut Option<Arc<Kernel<K>>>,
    context: &Context,
    kernel: K,
) -> Result<Arc<Kernel<K>>, Error> {
    match slot {
        Some(kernel) => Ok(kernel.clone()),
        None => Ok(slot
            .insert(Arc::new(signed::load(context, kernel)?))
            .clone()),
    }
}
