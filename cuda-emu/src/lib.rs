//! A CUDA driver library whose device is the PTX emulator.
//!
//! Built as `libwarpwright_cuda_emu.so` it exports the driver API under its real, versioned names with the real ABI.
//! A program that loads the driver at run time runs on it unchanged: hand it the file in place of `libcuda.so.1`, or
//! put it in front of the search path under that name. Linked into a program it gives the same functions as a table,
//! [`api`].
//!
//! The device is "Warpwright CPU emulator", compute capability 9.0. It runs kernels as `ptx-emu` does, so what a GPU
//! lets pass is an error here: a load out of bounds, bytes read that nobody wrote, a race in a block. The first
//! launch of an executable graph is traced, and two nodes that touch the same bytes without a path of edges between
//! them are reported as the missing edge they are. Kernels that programmatic edges join run one after the other, and a
//! kernel that touches what another may still use before its `griddepcontrol.wait`, or that ends without one, is
//! reported with both names. The code that a call returns is the driver's; the whole story is
//! in [`findings`], in `cuLogsDumpToMemory`, and in `warpwright_emu_last_finding` for C.
//!
//! Streams are asynchronous: each has a thread. Handles are looked up, never dereferenced, so a stale one is an
//! error. Failures can be injected, see [`inject`].
//!
//! The environment configures the library where no program does: `WARPWRIGHT_EMU_MEMORY` (bytes),
//! `WARPWRIGHT_EMU_DRIVER_VERSION` (13000), `WARPWRIGHT_EMU_COMPUTE_CAPABILITY` (9.0),
//! `WARPWRIGHT_EMU_MULTIPROCESSORS` (8), `WARPWRIGHT_EMU_SEED` (also shuffles), `WARPWRIGHT_EMU_FAIL` (`cuMemAlloc_v2:3:2` fails the third allocation with code 2).
//!
//! ```
//! use warpwright_cuda_emu::{EmulatorConfig, api, configure};
//!
//! configure(EmulatorConfig { compute_capability: (8, 6), ..EmulatorConfig::default() });
//! let driver = api();
//! // SAFETY: the call takes no pointer.
//! assert_eq!(unsafe { (driver.cuInit)(0) }.0, 0);
//! ```
//!
//! # What is not modelled
//!
//! Textures and surfaces, linking, libraries (`cuLibrary*`), virtual memory management, memory pools beyond
//! `cuMemAllocAsync`, kernels that read registered host memory, cooperative launches, clusters, conditional nodes,
//! memory nodes of graphs, peer devices, and races between streams. Such calls are absent or return NOT_SUPPORTED.

#![allow(unsafe_code)]

mod capture;
mod config;
mod context;
mod device;
mod dot;
mod event;
mod exec;
mod ffi;
mod graph;
mod handle;
mod launch;
mod machine;
mod memory;
mod module;
mod queue;
mod state;
mod stream;
mod work;

use std::ffi::c_char;

use ffi::{CArgument, Export};
use warpwright_driver_sys::Api;

pub use config::EmulatorConfig;
pub use machine::{configure, findings, inject};

/// The functions by chapter, and what fills the table.
const CHAPTERS: &[&[Export]] = &[
    device::EXPORTS,
    context::EXPORTS,
    module::EXPORTS,
    memory::EXPORTS,
    launch::EXPORTS,
    stream::EXPORTS,
    event::EXPORTS,
    graph::EXPORTS,
    exec::EXPORTS,
    capture::EXPORTS,
];

/// The driver as a table. Functions that the configured driver version does not have are absent.
pub fn api() -> Api {
    let version = machine::current().config.driver_version;
    let mut api = Api::empty();
    device::fill_api(&mut api, version);
    context::fill_api(&mut api, version);
    module::fill_api(&mut api, version);
    memory::fill_api(&mut api, version);
    launch::fill_api(&mut api, version);
    stream::fill_api(&mut api, version);
    event::fill_api(&mut api, version);
    graph::fill_api(&mut api, version);
    exec::fill_api(&mut api, version);
    capture::fill_api(&mut api, version);
    api
}

/// The exported names that are fields of the table, and those that are not.
pub fn symbols() -> (Vec<&'static str>, Vec<&'static str>) {
    let (tabled, more): (Vec<_>, Vec<_>) = device::exports().partition(|export| export.tabled);
    let names = |exports: Vec<&'static Export>| exports.iter().map(|export| export.symbol).collect();
    (names(tabled), names(more))
}

/// Copies the newest entry of the log, cut to `capacity` bytes with its NUL; the bytes it needs.
///
/// # Safety
/// `buffer` is NULL or valid for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpwright_emu_last_finding(buffer: *mut c_char, capacity: usize) -> usize {
    let machine = machine::current();
    let end = machine.entries(u32::MAX).1;
    let text = machine.entries(end.saturating_sub(1)).0.pop().unwrap_or_default();
    // SAFETY: the caller vouches for the buffer.
    unsafe { buffer.convert() }.set_text(&text, capacity);
    text.len() + 1
}
