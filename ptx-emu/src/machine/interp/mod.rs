//! The interpreter loop, calls, lanes that diverge and meet, and the functions of the device
//! runtime.

pub(crate) mod address_windows;
pub(crate) mod call_arguments;
pub(crate) mod calls;
pub(crate) mod device_functions;
pub(crate) mod diverged_lanes;
pub(crate) mod interpreter;
pub(crate) mod lane_meetings;
pub(crate) mod printf;
pub(crate) mod undefined_operands;
pub(crate) mod video;
