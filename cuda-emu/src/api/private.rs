//! `cuGetExportTable`, through which NVIDIA libraries reach functions of the driver that no header
//! declares.
//!
//! The CUDA runtime library requests these tables and does not start without them. The page
//! `docs/lab/cuda-runtime.md` describes the calls of `libcudart` 13.5. Three of them are a challenge
//! with a key, by which the library verifies that it talks to NVIDIA's driver. The emulator does
//! not impersonate that driver.

use std::ffi::c_void;

use warpwright_driver_sys::{CUresult, CUuuid};

use crate::api::export::exported;
use crate::error::{Result, refuse};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;

exported! {
    false 3000 cuGetExportTable cuGetExportTable(table: *mut *const c_void, which: *const CUuuid) => refuse_table;
}

/// The reason why other tables are not available.
const WHY: &str = "only NVIDIA's driver has its private tables, and the CUDA runtime library (libcudart, which CuPy and \
                   PyTorch use as well) verifies with a keyed challenge that it talks to that driver, so programs that \
                   use it do not start on the emulator; programs that call the driver API do";

/// The table that NVRTC requests. It continues without the table, so the program need not be
/// informed.
const OF_NVRTC: &str = "da9151d33ae6cc41a5c04f26d533e328";

fn refuse_table(_: &'static Machine, table: Out<*const c_void>, which: In<CUuuid>) -> Result {
    table.set_if(std::ptr::null());
    let name: String = which
        .get()?
        .bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let why = if name == OF_NVRTC {
        String::new()
    } else {
        format!("the table {name}: {WHY}")
    };
    refuse(CUresult::NOT_SUPPORTED, why)
}
