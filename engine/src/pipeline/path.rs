//! Which kernels decode a model on a device: the pipeline over packed weights, or the simple kernels, which support
//! every model.

use std::fmt;

use crate::pipeline::Unsupported;

/// Which kernels decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// A pipeline of overlapped kernels over packed weights.
    Overlapped,
    /// The pipeline without overlap: each kernel starts after its predecessor has ended.
    Sequential {
        /// Why they do not overlap.
        reason: Unsupported,
    },
    /// The simple kernels, one per operation, over the file's rows.
    Simple {
        /// Why the pipeline does not support the model.
        reason: Unsupported,
    },
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Overlapped => write!(f, "overlapping pipeline"),
            Path::Sequential { reason } => write!(f, "pipeline without overlap: {reason}"),
            Path::Simple { reason } => write!(f, "simple kernels: {reason}"),
        }
    }
}
