//! Functions that the shared library exports for C in addition to the driver API.

#![allow(unsafe_code)]

use std::ffi::c_char;

use ptx_emu::Order;
use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::ffi::pointer::CArgument;
use crate::machine;

/// The configuration of the emulator for C. A field that is 0 keeps its default.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct EmulatorSettings {
    /// The memory of each device in bytes.
    pub memory: u64,
    /// The version that `cuDriverGetVersion` returns, 1000 * major + 10 * minor.
    pub driver_version: u32,
    /// The compute capability, times ten. 90 is 9.0.
    pub compute_capability: u32,
    /// The number of multiprocessors that a device reports.
    pub multiprocessors: u32,
    /// Any value other than 0 shuffles blocks, warps, streams and graph nodes that nothing orders.
    pub shuffled: u32,
    /// The seed of the shuffle.
    pub seed: u64,
    /// The number of devices.
    pub devices: u32,
}

impl EmulatorSettings {
    fn config(self) -> EmulatorConfig {
        let default = EmulatorConfig::default();
        let or = |given: u32, default: u32| if given == 0 { default } else { given };
        let (major, minor) = default.compute_capability;
        let capability = or(self.compute_capability, 10 * major + minor);
        EmulatorConfig {
            devices: or(self.devices, default.devices),
            memory: if self.memory == 0 {
                default.memory
            } else {
                self.memory
            },
            driver_version: or(self.driver_version, default.driver_version),
            compute_capability: (capability / 10, capability % 10),
            multiprocessors: or(self.multiprocessors, default.multiprocessors),
            order: if self.shuffled == 0 {
                default.order
            } else {
                Order::Shuffled
            },
            seed: self.seed,
            ..default
        }
    }
}

/// Starts a new machine with these settings. Call it before `cuInit`.
///
/// It is [`configure`](crate::configure) for C. NULL means the default settings.
///
/// # Safety
/// - The caller must ensure that `settings` is NULL or valid for one read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpwright_emu_configure(settings: *const EmulatorSettings) {
    // SAFETY: the caller guarantees that the pointer is NULL or valid for one read.
    let settings = unsafe { settings.convert() };
    let settings = if settings.is_null() {
        None
    } else {
        settings.get().ok()
    };
    machine::start_over(settings.unwrap_or_default().config());
}

/// Makes the `nth` call of the function `call` fail once with `code`.
///
/// It is [`inject`](crate::inject) for C. Returns INVALID_VALUE if `call` is NULL or not UTF-8.
///
/// # Safety
/// - The caller must ensure that `call` is NULL or a string that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpwright_emu_inject(
    call: *const c_char,
    nth: u64,
    code: CUresult,
) -> CUresult {
    // SAFETY: the caller guarantees that the pointer is NULL or a string that ends with NUL.
    match unsafe { call.convert() }.text() {
        Ok(call) => {
            machine::inject(call, nth, code);
            CUresult::SUCCESS
        }
        Err(error) => error.code,
    }
}

/// Copies the newest entry of the log to `buffer`, truncated to `capacity` bytes including a NUL.
///
/// Returns the number of bytes that the whole entry needs.
///
/// # Safety
/// - The caller must ensure that `buffer` is NULL or valid for writes of `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpwright_emu_last_finding(
    buffer: *mut c_char,
    capacity: usize,
) -> usize {
    let log = &machine::current().device.log;
    let end = log.entries(u32::MAX).1;
    let text = log
        .entries(end.saturating_sub(1))
        .0
        .pop()
        .unwrap_or_default();

    // SAFETY: the caller guarantees that the buffer is NULL or valid for `capacity` bytes.
    unsafe { buffer.convert() }.set_text(&text, capacity);
    text.len() + 1
}
