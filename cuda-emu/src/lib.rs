//! A CUDA driver library whose device is the PTX emulator.
//!
//! Built as `libwarpwright_cuda_emu.so` it exports the driver API under its real, versioned names with the real ABI.
//! A program that loads the driver at run time runs on it unchanged: hand it the file in place of `libcuda.so.1`, or
//! put it in front of the search path under that name. Linked into a program it gives the same functions as a
//! library, [`library`], or as a table, [`api`].
//!
//! The device is "Warpwright CPU emulator", compute capability 9.0; there may be several, see
//! [`EmulatorConfig::devices`]. It runs kernels as `ptx-emu` does, so what a GPU lets pass is an error here: a load out
//! of bounds, bytes read that nobody wrote, a race in a block. Allocations lie 64 GiB apart, so that no 32-bit index
//! leads from one into another. The first launch of an executable graph is traced, and two nodes that touch the same
//! bytes without a path of edges between them are reported as the missing edge they are. Kernels that programmatic edges
//! join run one after the other, and a kernel that touches what another may still use before its
//! `griddepcontrol.wait`, or that ends without one, is reported with both names. The code that a call returns is the
//! driver's; the whole story is in [`findings`], in `cuLogsDumpToMemory`, and in `warpwright_emu_last_finding` for C.
//!
//! Streams are asynchronous: each has a thread. With another [order](EmulatorConfig::order) than the first, one piece of
//! work runs at a time, when the program waits, and the seed chooses among streams that nothing orders. Handles are looked up, never dereferenced, so a stale one is an
//! error.
//!
//! A program that links the emulator configures it by [`configure`], and makes calls, kernels or the device fail by
//! [`inject`], [`inject_kernel`] and [`inject_device_loss`]; its environment is never read. For a program that loads the
//! shared library there are `warpwright_emu_configure` and `warpwright_emu_inject`, and `cuInit` reads failures from
//! `WARPWRIGHT_EMU_FAIL`: rules that `;` ends, each `call NAME NTH CODE` (the NTH call of NAME fails, once), `kernel NAME
//! CODE` (every launch of that kernel fails) or `lost AFTER CODE` (after AFTER more calls every call fails), where CODE
//! is a number or a name such as `CUDA_ERROR_OUT_OF_MEMORY`. `cuInit` refuses a malformed value and says why.
//!
//! `WARPWRIGHT_EMU_TIME_LIMIT` and `WARPWRIGHT_EMU_WAIT_LIMIT` set the [limits](Limits) of launches for the shared library: a
//! number of seconds, or `none`. A limit ends a launch with LAUNCH_TIMEOUT and changes no result.
//!
//! `WARPWRIGHT_EMU_CHECKS` asks the shared library for [checks](Checks) besides: `arithmetic`, `provenance`, or both with a
//! comma between.
//!
//! # The report
//!
//! With `WARPWRIGHT_EMU_REPORT=FILE` in its environment the shared library traces all work: races within a launch are
//! found, and two launches, copies, fills or frees of different streams that touch the same bytes are a `StreamRace` if
//! no event, no wait of the program and no rule of the default stream orders them, however they happened to run. Each
//! launch, finding and object that was not released when the process ended is appended to FILE as a line of JSON. A race
//! between streams fails no call.
//!
//! Streams are ordered as the calls of the program say. All threads of the program count as one: what one of them waited
//! for, the work that another gives later comes after. Work that a stream does after it waited for a word of memory is
//! not compared until the program has waited for that stream. Kernels of two streams that hand data over by flags and
//! atomics are reported. Of more than 1,024 pieces of work that run side by side the oldest are forgotten, and the last line says so.
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
//! These calls exist, return NOT_SUPPORTED, and say why in the findings:
//!
//! - sharing with other processes (`cuIpc*`, export and import of pools and of memory);
//! - tensor maps of images, clusters that a node prefers, nodes that a kernel changes;
//! - launches of graphs from kernels, events of a whole context, library functions as addresses, managed variables;
//! - contexts kept to some of the multiprocessors (UNSUPPORTED_EXEC_AFFINITY).
//!
//! - mipmapped and sparse arrays, views of resources, texture references, nodes of graphs that copy arrays, external memory and semaphores, graphics, green contexts, multicast, batched copies,
//!   checkpoints and core dumps: every entry point that CUDA 13.5 declares can be found and refuses;
//! - the private tables of `cuGetExportTable`, without which the CUDA runtime library (`libcudart`) does not start.
//!
//! Modules, libraries and links take PTX, as text or in fat binaries, compressed or not. Machine code is refused with
//! NO_BINARY_FOR_GPU, and the log says how to get PTX. Several texts are linked as one; objects and archives are not.
//!
//! Where the model is coarser than a device:
//!
//! - Peer access of a context reaches all memory of the peer's device; attributes of a kernel hold for every device.
//! - A pool's reserved bytes are counted, but no device memory is held for them, and addresses are never reused.
//! - Physical memory is mapped at one place at a time, for its own device, and a bulk copy of a kernel stays within one
//!   mapping.
//! - Managed memory has one copy, so that advice and prefetches are kept and change nothing.
//! - The event of a launch's completion or trigger is recorded when the launch has ended.
//! - Nodes in different bodies of conditional nodes, or inside and outside of a body, are not compared for missing
//!   edges. Work of different streams is compared for a report only.
//! - The texels of an array lie row by row; textures and surfaces are what `ptx-emu` makes of them. Linear memory behind a
//!   texture is a multiple of 256 bytes, as allocations are.
//! - A per-thread default stream is one by its handle only: `cuGetProcAddress` gives no `_ptsz` twins.
//! - Limits, cache preferences and attributes of streams are kept and change nothing.

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

/// The driver as a table. Functions that the configured driver version does not have are absent.
pub fn api() -> Api {
    machine::link();
    api::symbols::table(machine::current().device.config.driver_version)
}

/// The driver as a library, to hand to what is safe over any driver: one for the process, until [`configure`] makes a
/// new machine, which has its own.
pub fn library() -> &'static Library {
    machine::link();
    static LIBRARIES: Mutex<Vec<(&'static Machine, &'static Library)>> = Mutex::new(Vec::new());
    let machine = machine::current();
    let mut known = LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = known.iter().find(|(of, _)| std::ptr::eq(*of, machine)) {
        return library;
    }
    // SAFETY: the functions of the table are this crate's, written to do what `cuda.h` says of their names.
    #[allow(unsafe_code)]
    let library = unsafe { Library::from_api(api(), "emulator") };
    known.push((machine, library));
    library
}

/// The exported names that are fields of the table, and those that are not.
pub fn symbols() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = api::symbols::chapters().flatten();
    let (tabled, more): (Vec<_>, Vec<_>) = all.partition(|export| export.tabled);
    let names =
        |exports: Vec<&api::export::Export>| exports.iter().map(|export| export.symbol).collect();
    (names(tabled), names(more))
}
