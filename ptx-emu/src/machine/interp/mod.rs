//! The interpreter loop, calls, and the functions of the device runtime.

pub(crate) mod calls;
pub(crate) mod device_functions;
pub(crate) mod interpreter;
pub(crate) mod parameter_space;
pub(crate) mod printf;
pub(crate) mod video;
