//! Modules: loading and unloading them, and looking up functions and variables.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::memory::refuse_memory;
use crate::compile::{compile, info_text};
use crate::error::{Result, refuse, require};
use crate::ffi::jit::{JitLogs, logs_of};
use crate::ffi::pointer::{In, Out, image_of};
use crate::handle::ModuleId;
use crate::machine::Machine;
use crate::state::objects::Module;
use crate::state::{DriverState, capture};

exports! {
    table {
        2010 cuModuleLoadDataEx cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) => load_with_options;
        2000 cuModuleUnload cuModuleUnload(module: CUmodule) => unload;
        2000 cuModuleGetFunction cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) => get_function;
        3020 cuModuleGetGlobal cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) => get_global;
        2000 cuModuleLoad cuModuleLoad(module: *mut CUmodule, path: *const c_char) => load_file;
        2000 cuModuleLoadData cuModuleLoadData(module: *mut CUmodule, image: *const c_void) => load;
        2000 cuModuleLoadFatBinary cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) => load;
        12040 cuModuleGetFunctionCount cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) => function_count;
        12040 cuModuleEnumerateFunctions cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule) => enumerate;
        11070 cuModuleGetLoadingMode cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) => loading_mode;
    }
    more {}
}

fn load(m: &'static Machine, module: Out<CUmodule>, image: In<c_void>) -> Result {
    load_with_options(m, module, image, 0, Out::null(), Out::null())
}

/// Returns the contents of a file with code.
pub(crate) fn read_file(path: In<c_char>) -> Result<Vec<u8>> {
    let path = path.text()?;
    std::fs::read(path)
        .or_else(|error| refuse(CUresult::FILE_NOT_FOUND, format!("{path}: {error}")))
}

fn load_file(m: &'static Machine, module: Out<CUmodule>, path: In<c_char>) -> Result {
    load_image(
        m,
        module,
        &read_file(path)?,
        &JitLogs::default(),
        Out::null(),
    )
}

fn load_with_options(
    m: &'static Machine,
    module: Out<CUmodule>,
    image: In<c_void>,
    count: c_uint,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
) -> Result {
    let logs = logs_of(count as usize, options, values)?;
    load_image(m, module, image_of(image)?, &logs, values)
}

fn load_image(
    m: &'static Machine,
    module: Out<CUmodule>,
    image: &[u8],
    logs: &JitLogs,
    values: Out<*mut c_void>,
) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!module.is_null(), || "the result pointer is NULL".into())?;

    // Parsing may take a while and needs no lock, so other threads can make calls meanwhile.
    drop(s);
    let compiled = compile(&m.device.config, image);
    logs.write(
        &compiled.as_ref().map(info_text).unwrap_or_default(),
        &compiled,
        values,
    );
    let made = Module {
        context,
        parsed: compiled?,
        functions: Vec::new(),
        settings: BTreeMap::new(),
    };
    module.set(m.state().modules.insert(made).handle())
}

fn unload(m: &'static Machine, module: CUmodule) -> Result {
    let mut s = m.state();
    s.context()?;
    capture::refuse_unsafe(&mut s)?;
    let id = s.modules.find(module)?;
    s.unload(id);
    Ok(())
}

fn get_function(
    m: &'static Machine,
    function: Out<CUfunction>,
    module: CUmodule,
    name: In<c_char>,
) -> Result {
    let mut s = m.state();
    s.context()?;
    let id = s.modules.find(module)?;
    require(!function.is_null(), || "the result pointer is NULL".into())?;
    function.set(s.function_named(id, name.text()?)?.handle())
}

fn get_global(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    module: CUmodule,
    name: In<c_char>,
) -> Result {
    let s = m.state();
    s.context()?;
    let id = s.modules.find(module)?;
    global_of(&s, id, address, bytes, name)
}

/// Writes the address and the size of a variable of a module.
pub(crate) fn global_of(
    s: &DriverState,
    module: ModuleId,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    name: In<c_char>,
) -> Result {
    let module = &s.modules[module];
    let parsed = &module.parsed;
    let device = s.contexts[module.context].reach.device;
    let name = name.text()?;
    let Some(variable) = parsed.variables().find(|v| v.name == name) else {
        return refuse(
            CUresult::NOT_FOUND,
            format!("the module has no variable {name}"),
        );
    };

    let found = parsed
        .address_on(device, &s.device.memory, name)
        .or_else(refuse_memory)?;
    address.set_if(found.unwrap_or_default());
    bytes.set_if(variable.bytes as usize);
    Ok(())
}

fn function_count(m: &'static Machine, count: Out<c_uint>, module: CUmodule) -> Result {
    let s = m.state();
    count.set(s.modules[s.modules.find(module)?].parsed.kernels().count() as c_uint)
}

fn enumerate(
    m: &'static Machine,
    functions: Out<CUfunction>,
    count: c_uint,
    module: CUmodule,
) -> Result {
    let mut s = m.state();
    let id = s.modules.find(module)?;
    require(!functions.is_null(), || "the result pointer is NULL".into())?;
    let kernels = s.modules[id].parsed.kernels().take(count as usize);
    let names: Vec<String> = kernels.map(|kernel| kernel.name.clone()).collect();
    for (i, name) in names.iter().enumerate() {
        functions.set_at(i, s.function_named(id, name)?.handle());
    }
    Ok(())
}

fn loading_mode(_: &'static Machine, mode: Out<CUmoduleLoadingMode>) -> Result {
    mode.set(CUmoduleLoadingMode::EAGER_LOADING)
}
