//! A CUDA driver library whose devices are the PTX emulator `ptx-emu`, for running and testing CUDA
//! programs without a GPU.
//!
//! The library exports the driver API under its real, versioned names with the real ABI. There are
//! two ways to use it:
//!
//! - **Any program that loads the driver at run time.** Build `libwarpwright_cuda_emu.so` and load
//!   it in place of `libcuda.so.1`, or put it first on the library search path under that name. The
//!   program needs no change.
//! - **A Rust program.** Link this crate and call [`library`] for a handle or [`api`] for the
//!   function table.
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
//! # Errors that a GPU does not report
//!
//! Kernels run on `ptx-emu`, which checks every access. These bugs are errors here, even if a GPU
//! lets them pass:
//!
//! - An access out of bounds. Allocations are 64 GiB apart, so a 32-bit index cannot lead from one
//!   into another.
//! - A read of uninitialized memory.
//! - A race within a block.
//! - A missing edge of a graph. The first launch of an executable graph is traced. Two nodes that
//!   access the same bytes without a path of edges between them are reported.
//! - A missing `griddepcontrol.wait`. Kernels joined by programmatic edges run one after the other.
//!   A kernel that touches memory of its predecessor before the wait, or that ends without one, is
//!   reported with both names.
//! - A stale handle. Handles are looked up and never dereferenced.
//!
//! Calls return the error codes of the driver. The full report of an error is in [`findings`] and
//! in `cuLogsDumpToMemory`. C programs read it with `warpwright_emu_last_finding`.
//!
//! # Configuration
//!
//! A program that links the crate calls [`configure`] before `cuInit`. It can make calls, kernels
//! or devices fail with [`inject`], [`inject_kernel`] and [`inject_device_loss`]. Its environment
//! is never read.
//!
//! A program that loads the shared library calls `warpwright_emu_configure` and
//! `warpwright_emu_inject`. In addition, `cuInit` reads these environment variables. It returns an
//! error with the reason if a value is malformed.
//!
//! | variable | value |
//! |---|---|
//! | `WARPWRIGHT_EMU_FAIL` | Failures to inject, as rules that are separated by `;` (see below) |
//! | `WARPWRIGHT_EMU_CHECKS` | Additional [checks](Checks), separated by commas |
//! | `WARPWRIGHT_EMU_TIME_LIMIT` | The [time limit](Limits::time) in seconds, or `none` |
//! | `WARPWRIGHT_EMU_WAIT_LIMIT` | The [limit of waits](Limits::wait) in seconds, or `none` |
//! | `WARPWRIGHT_EMU_REPORT` | The file for a report in JSON lines |
//!
//! The rules of `WARPWRIGHT_EMU_FAIL` are:
//!
//! - `call NAME NTH CODE`: the NTH call of the function NAME fails once.
//! - `kernel NAME CODE`: every launch of the kernel NAME fails.
//! - `lost AFTER CODE`: after AFTER more calls, every call fails.
//!
//! CODE is a number or a name such as `CUDA_ERROR_OUT_OF_MEMORY`.
//!
//! # The report
//!
//! With `WARPWRIGHT_EMU_REPORT` set, the library traces all work. It then also finds races between
//! streams: two launches, copies, fills or frees of different streams that access the same bytes,
//! and that no event, no wait of the program and no rule of the default stream orders. Such a
//! `StreamRace` is reported for every schedule, and it does not make a call fail. Each launch, each
//! finding and each object that is not released at exit becomes one JSON line.
//!
//! Limits of this analysis:
//!
//! - All threads of the program count as one. Work that one thread enqueues is ordered after work
//!   that another thread has waited for.
//! - After a stream has waited for a value in memory, its work is not compared until the program
//!   waits for that stream.
//! - Kernels of two streams that exchange data through flags and atomics are reported.
//! - At most 1,024 pieces of concurrent work are remembered. The last line of the report says if
//!   some were dropped.
//!
//! # Order of work
//!
//! Each stream has a thread, so streams are asynchronous. With any [order](EmulatorConfig::order)
//! other than the default, one piece of work runs at a time, whenever the program waits. The seed
//! then chooses among the streams that nothing orders.
//!
//! # Unsupported functions
//!
//! Every entry point that CUDA 13.5 declares exists. The following return
//! `CUDA_ERROR_NOT_SUPPORTED`, and the findings give the reason:
//!
//! - Sharing with other processes: `cuIpc*`, and export and import of pools and of memory.
//! - Tensor maps of images, preferred cluster sizes of nodes, and nodes that a kernel updates.
//! - Launches of graphs from kernels, events of a whole context, library functions as addresses,
//!   and managed variables.
//! - Mipmapped and sparse arrays, resource views, texture references, and graph nodes that copy
//!   arrays.
//! - External memory and semaphores, graphics, green contexts, multicast, batched copies,
//!   checkpoints and core dumps.
//! - The private tables of `cuGetExportTable`. The CUDA runtime library (`libcudart`) therefore
//!   does not start.
//!
//! Contexts that are restricted to some multiprocessors fail with
//! `CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY`.
//!
//! Modules, libraries and links accept PTX, as text or in fat binaries, compressed or not. Machine
//! code fails with `CUDA_ERROR_NO_BINARY_FOR_GPU`, and the log explains how to get PTX. Several PTX
//! texts are linked into one. Object files and archives are not supported.
//!
//! # Differences from a device
//!
//! - Peer access of a context covers all memory of the peer device. Attributes of a kernel apply to
//!   every device.
//! - The reserved bytes of a pool are counted, but do not occupy device memory. Addresses are never
//!   reused.
//! - Physical memory can be mapped at one address at a time, for its own device. A bulk copy of a
//!   kernel must stay within one mapping.
//! - Managed memory has one copy. Advice and prefetches are stored and have no effect.
//! - An event for the completion or the trigger of a launch is recorded when the launch has ended.
//! - Nodes in different bodies of conditional nodes, or inside and outside of a body, are not
//!   compared for missing edges. Work of different streams is compared only for a report.
//! - Texels of an array are stored row by row. The size of linear memory behind a texture is a
//!   multiple of 256 bytes, like allocations.
//! - `cuGetProcAddress` does not return `_ptsz` variants. A per-thread default stream exists only
//!   through its handle.
//! - Limits, cache preferences and attributes of streams are stored and have no effect.

mod activity;
mod api;
mod compile;
mod config;
mod crew;
mod device;
mod environment;
mod error;
mod exit;
mod exported;
mod failures;
mod ffi;
mod graph;
mod handle;
mod image;
mod log;
mod machine;
mod queue;
mod report;
mod state;
mod turns;
mod work;

use std::sync::{Mutex, PoisonError};

use warpwright_driver_sys::{Api, Library};

use crate::machine::Machine;

pub use config::{Checks, EmulatorConfig, Limits};
pub use exported::{
    EmulatorSettings, warpwright_emu_configure, warpwright_emu_inject, warpwright_emu_last_finding,
};
pub use machine::{configure, findings, inject, inject_device_loss, inject_kernel};

/// Returns the driver as a table of functions.
///
/// Functions that the configured driver version does not have are absent.
pub fn api() -> Api {
    machine::link();
    api::symbols::table(machine::current().device.config.driver_version)
}

/// Returns the driver as a library, for code that is generic over the driver.
///
/// The process has one library, until [`configure`] starts a new machine with another one.
///
/// # Example
/// ```
/// // The crate `warpwright-driver` accepts the library: `Driver::from_library(library())`.
/// let library = warpwright_cuda_emu::library();
/// assert!(std::ptr::eq(library, warpwright_cuda_emu::library()));
/// ```
pub fn library() -> &'static Library {
    machine::link();
    static LIBRARIES: Mutex<Vec<(&'static Machine, &'static Library)>> = Mutex::new(Vec::new());
    let machine = machine::current();
    let mut known = LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = known.iter().find(|(of, _)| std::ptr::eq(*of, machine)) {
        return library;
    }

    #[expect(
        unsafe_code,
        reason = "a library can only be made from a trusted table"
    )]
    // SAFETY: the functions of the table are implemented by this crate with the signatures and the
    // behavior that `cuda.h` declares for their names.
    let library = unsafe { Library::from_api(api(), "emulator") };
    known.push((machine, library));
    library
}

/// Returns the exported names that are fields of [`api`]'s table, and the names that are not.
pub fn symbols() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = api::symbols::chapters().flatten();
    let (tabled, more): (Vec<_>, Vec<_>) = all.partition(|export| export.tabled);
    let names =
        |exports: Vec<&api::export::Export>| exports.iter().map(|export| export.symbol).collect();
    (names(tabled), names(more))
}
