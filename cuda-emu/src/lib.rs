//! A CUDA driver library whose device is the PTX emulator.
//!
//! Built as `libwarpwright_cuda_emu.so` it exports the driver API under its real, versioned names with the real ABI.
//! A program that loads the driver at run time runs on it unchanged: hand it the file in place of `libcuda.so.1`, or
//! put it in front of the search path under that name. Linked into a program it gives the same functions as a
//! library, [`library`], or as a table, [`api`].
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
//! No environment variable is read: the program configures the emulator, by [`configure`] and [`inject`], or by
//! `warpwright_emu_configure` and `warpwright_emu_inject` of the shared library.
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

mod api;
mod compile;
mod config;
mod device;
mod environment;
mod error;
mod exported;
mod failures;
mod ffi;
mod graph;
mod handle;
mod log;
mod machine;
mod queue;
mod state;
mod work;

use std::sync::{Mutex, PoisonError};

use warpwright_driver_sys::{Api, Library};

pub use config::EmulatorConfig;
pub use exported::{
    EmulatorSettings, warpwright_emu_configure, warpwright_emu_inject, warpwright_emu_last_finding,
};
pub use machine::{configure, findings, inject, inject_device_loss, inject_kernel};

/// The driver as a table. Functions that the configured driver version does not have are absent.
pub fn api() -> Api {
    machine::link();
    api::symbols::table(machine::current().device.config.driver_version)
}

/// The driver as a library, to hand to what is safe over any driver: one for the process and each driver version that
/// is configured.
pub fn library() -> &'static Library {
    machine::link();
    static LIBRARIES: Mutex<Vec<(u32, &'static Library)>> = Mutex::new(Vec::new());
    let version = machine::current().device.config.driver_version;
    let mut known = LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = known.iter().find(|(of, _)| *of == version) {
        return library;
    }
    // SAFETY: the functions of the table are this crate's, written to do what `cuda.h` says of their names.
    #[allow(unsafe_code)]
    let library = unsafe { Library::of(api(), "warpwright-cuda-emu") };
    known.push((version, library));
    library
}

/// The exported names that are fields of the table, and those that are not.
pub fn symbols() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = api::symbols::chapters().flatten();
    let (tabled, more): (Vec<_>, Vec<_>) = all.partition(|export| export.tabled);
    let names = |exports: Vec<&api::export::Export>| exports.iter().map(|export| export.symbol).collect();
    (names(tabled), names(more))
}
