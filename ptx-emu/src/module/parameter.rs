//! Parameters of kernels.

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The name in the text.
    pub name: String,
    /// The type in the text, for example `.u64` or `.b8[24]`.
    pub ty: String,
    /// The offset in the parameter block, in bytes.
    pub offset: u32,
    /// The size in bytes.
    pub size: u32,
    /// The alignment in bytes.
    pub align: u32,
}
