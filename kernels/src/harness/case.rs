//! Test cases of kernels: arguments to run a kernel on, and the error that its result may have.

use ptx_gen::{AnyKernel, CpuArg};

/// A kernel with test cases.
pub trait Variant: AnyKernel {
    /// Returns small arguments that reach every branch of the program, for example odd sizes, edges
    /// and several rows.
    ///
    /// Equal seeds give equal cases.
    fn cases(&self, seed: u64) -> Vec<Case>;

    /// Returns the rows and columns of the matrix that a tensor map describes, for a case with
    /// these arguments.
    fn map_dims(&self, _param: &str, _args: &[CpuArg]) -> Option<[u32; 2]> {
        None
    }
}

/// Arguments for one run of a kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// The shapes in readable form: `rows=3 n=1100`.
    pub label: String,
    /// The arguments in order. Inputs are filled and outputs have the right length.
    pub args: Vec<CpuArg>,
    /// The maximum error, as [`Comparison::error`](super::Comparison::error) measures it. If it is
    /// 0, the results must be equal.
    pub bound: f64,
}
