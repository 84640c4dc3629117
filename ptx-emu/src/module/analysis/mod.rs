//! Static analysis of decoded kernels.

pub(crate) mod parameter_use;
