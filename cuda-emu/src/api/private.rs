//! `cuGetExportTable`, by which libraries of NVIDIA reach functions of its driver that no header declares.
//!
//! The CUDA runtime library asks for these tables, and starts with no driver that lacks them. What `libcudart` 13.5 did
//! with a library that logged its calls stands in `docs/lab/cuda-runtime.md`. Three of its calls are a question with a key,
//! by whose answer it makes sure that it talks to NVIDIA's driver; this one does not pretend to be that.

use std::ffi::c_void;

use warpwright_driver_sys::{CUresult, CUuuid};

use crate::api::export::exported;
use crate::error::{Result, refuse};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;

exported! {
    false 3000 cuGetExportTable cuGetExportTable(table: *mut *const c_void, which: *const CUuuid) => refuse_table;
}

const WHY: &str = "only NVIDIA's driver has its private tables, and the CUDA runtime library (libcudart, which CuPy and \
                   PyTorch hold as well) makes sure by a keyed question that it talks to that driver, so programs that \
                   use it do not start on the emulator; those that call the driver API do";

/// The table that NVRTC asks for, and goes on without: nothing to tell a program.
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
