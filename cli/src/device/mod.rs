//! The device that a command runs on.

mod access;
pub(crate) mod emulation;
pub(crate) mod kernel_check;

pub(crate) use access::{DeviceChoice, emulator, find, gpus, is_emulator, open, quiet};
