//! A tensor of a folder, whichever file it is in.

use std::ops::Range;

use safetensors::Dtype;

use crate::architecture::outline::Absmax;

/// A tensor of the folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FolderTensor {
    pub(crate) dtype: Dtype,
    /// The contiguous dimension last.
    pub(crate) shape: Vec<usize>,
    /// Its bytes in the files.
    pub(crate) range: Range<usize>,
    /// The range of the values converted to F32, for a vector.
    pub(crate) in_f32: Option<Range<usize>>,
    /// If the files have it in NF4, how they have its `absmax`.
    pub(crate) nf4: Option<Absmax>,
    /// Whether it is read as blocks of MXFP4. `dtype` does not count then.
    pub(crate) mxfp4: bool,
}
