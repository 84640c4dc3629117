//! The set of kernels that decodes a model on a device: the pipeline over packed weights, or the
//! simple kernels, which support every model.

use std::fmt;

use crate::pipeline::Unsupported;

/// The set of kernels that decodes a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelPath {
    /// The pipeline with overlapped kernels, over packed weights.
    Overlapped,
    /// The pipeline without overlap: each kernel starts after its predecessor has ended.
    Sequential {
        /// The reason why the kernels do not overlap.
        reason: Unsupported,
    },
    /// The simple kernels, one per operation, over weights as the file stores them.
    Simple {
        /// The reason why the pipeline does not support the model.
        reason: Unsupported,
    },
}

impl fmt::Display for KernelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelPath::Overlapped => write!(f, "overlapping pipeline"),
            KernelPath::Sequential { reason } => write!(f, "pipeline without overlap: {reason}"),
            KernelPath::Simple { reason } => write!(f, "simple kernels: {reason}"),
        }
    }
}
