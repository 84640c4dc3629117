//! What the shared library exports for C in addition to the driver API.

#![allow(unsafe_code)]

use std::ffi::c_char;

use ptx_emu::Order;
use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::ffi::pointer::CArgument;
use crate::machine;

/// The configuration of the emulator as C passes it. Zero keeps the default of a field.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct EmulatorSettings {
    /// Memory of each device in bytes.
    pub memory: u64,
    /// What `cuDriverGetVersion` returns, 1000 * major + 10 * minor.
    pub driver_version: u32,
    /// Compute capability, times ten: 90 is 9.0.
    pub compute_capability: u32,
    /// Multiprocessors that the device says it has.
    pub multiprocessors: u32,
    /// Not 0 shuffles blocks, warps and graph nodes that no edge orders.
    pub shuffled: u32,
    /// The seed of the shuffle.
    pub seed: u64,
    /// Devices.
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

/// [`crate::configure`] for C: starts over with a machine of these settings. Call it before `cuInit`.
///
/// # Safety
/// `settings` is NULL, which means the defaults, or valid for one read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpwright_emu_configure(settings: *const EmulatorSettings) {
    // SAFETY: the caller vouches for the pointer.
    let settings = unsafe { settings.convert() };
    let settings = if settings.is_null() {
        None
    } else {
        settings.get().ok()
    };
    machine::start_over(settings.unwrap_or_default().config());
}

/// [`crate::inject`] for C. A NULL `call` or one that is not UTF-8 returns INVALID_VALUE.
///
/// # Safety
/// `call` is NULL or a string that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpwright_emu_inject(
    call: *const c_char,
    nth: u64,
    code: CUresult,
) -> CUresult {
    // SAFETY: the caller vouches for the string.
    match unsafe { call.convert() }.text() {
        Ok(call) => {
            machine::inject(call, nth, code);
            CUresult::SUCCESS
        }
        Err(error) => error.code,
    }
}

/// Copies the newest entry of the log, cut to `capacity` bytes with its NUL. Returns the bytes it needs.
///
/// # Safety
/// `buffer` is NULL or valid for `capacity` bytes.
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
    // SAFETY: the caller vouches for the buffer.
    unsafe { buffer.convert() }.set_text(&text, capacity);
    text.len() + 1
}
