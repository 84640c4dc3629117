//! Static analysis of decoded kernels.

pub(crate) mod element_type;
pub(crate) mod float_access;
pub(crate) mod instruction_text;
pub(crate) mod parameter_use;
