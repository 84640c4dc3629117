//! The interpreter loop, calls, and the functions of the device runtime.

pub(crate) mod address_windows;
pub(crate) mod call_arguments;
pub(crate) mod calls;
pub(crate) mod device_functions;
pub(crate) mod interpreter;
pub(crate) mod parameter_space;
pub(crate) mod predicates;
pub(crate) mod printf;
pub(crate) mod undefined_operands;
pub(crate) mod video;
