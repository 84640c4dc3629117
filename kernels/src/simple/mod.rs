//! The simple kernels: one operation each. They read weights as a GGUF file stores them, run on
//! sm_75 and newer, and start when the previous kernel has completed.

pub mod add_bias;
pub mod argmax;
pub mod attention;
pub mod choose_experts;
pub mod embed;
pub mod experts;
pub mod gemv;
pub mod layer_norm;
pub mod log_likelihood;
pub mod rms_norm;
pub mod rope;
pub mod soft_cap;
pub mod swiglu;
pub(crate) mod variants;
