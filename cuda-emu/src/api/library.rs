//! Libraries and their kernels: code that is independent of a context.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::context::check_cache;
use crate::api::device;
use crate::api::export::exports;
use crate::api::function::{attribute, change, tell_param};
use crate::api::module::{global_of, read_file};
use crate::compile::{compile, info_text};
use crate::error::{Result, refuse, require};
use crate::ffi::jit::{JitLogs, logs_of};
use crate::ffi::pointer::{In, Out, image_of};
use crate::handle::KernelId;
use crate::machine::Machine;
use crate::state::kernels::refuse_kernel;
use crate::state::objects::{Library, LibraryKernel};
use crate::state::{DriverState, capture};
use crate::work::function::FunctionSettings;

exports! {
    table {
        12000 cuLibraryLoadData cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, options: *mut CUjit_option, values: *mut *mut c_void, option_count: c_uint, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_option_count: c_uint) => load;
        12000 cuLibraryLoadFromFile cuLibraryLoadFromFile(library: *mut CUlibrary, path: *const c_char, options: *mut CUjit_option, values: *mut *mut c_void, option_count: c_uint, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_option_count: c_uint) => load_file;
        12000 cuLibraryUnload cuLibraryUnload(library: CUlibrary) => unload;
        12000 cuLibraryGetKernel cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) => get_kernel;
        12040 cuLibraryGetKernelCount cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) => kernel_count;
        12040 cuLibraryEnumerateKernels cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary) => enumerate;
        12000 cuLibraryGetModule cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) => get_module;
        12000 cuLibraryGetGlobal cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) => get_global;
        12000 cuLibraryGetManaged cuLibraryGetManaged(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) => get_managed;
        12000 cuKernelGetFunction cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) => get_function;
        12050 cuKernelGetLibrary cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) => get_library;
        12000 cuKernelGetAttribute cuKernelGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) => get_attribute;
        12000 cuKernelSetAttribute cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) => set_attribute;
        12000 cuKernelSetCacheConfig cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) => set_cache_config;
        12030 cuKernelGetName cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) => get_name;
        12040 cuKernelGetParamInfo cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) => param_info;
        13020 cuKernelGetParamCount cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) => param_count;
    }
    more {}
}

#[allow(clippy::too_many_arguments)]
fn load(
    m: &'static Machine,
    library: Out<CUlibrary>,
    code: In<c_void>,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
    count: c_uint,
    library_options: Out<CUlibraryOption>,
    _library_values: Out<*mut c_void>,
    library_count: c_uint,
) -> Result {
    check_options(library_options, library_count)?;
    let logs = logs_of(count as usize, options, values)?;
    load_image(m, library, image_of(code)?, &logs, values)
}

#[allow(clippy::too_many_arguments)]
fn load_file(
    m: &'static Machine,
    library: Out<CUlibrary>,
    path: In<c_char>,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
    count: c_uint,
    library_options: Out<CUlibraryOption>,
    _library_values: Out<*mut c_void>,
    library_count: c_uint,
) -> Result {
    check_options(library_options, library_count)?;
    let logs = logs_of(count as usize, options, values)?;
    load_image(m, library, &read_file(path)?, &logs, values)
}

/// Checks the options. The code is always copied, so BINARY_IS_PRESERVED has no effect.
fn check_options(options: Out<CUlibraryOption>, count: c_uint) -> Result {
    for option in options.slice(count as usize)? {
        if *option != CUlibraryOption::BINARY_IS_PRESERVED {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!("the library option {option:?} is not emulated"),
            );
        }
    }
    Ok(())
}

fn load_image(
    m: &'static Machine,
    library: Out<CUlibrary>,
    image: &[u8],
    logs: &JitLogs,
    values: Out<*mut c_void>,
) -> Result {
    require(!library.is_null(), || "the result pointer is NULL".into())?;
    capture::refuse_unsafe(&mut m.state())?;

    // Compiling may take a while and needs no lock, so other threads can make calls meanwhile.
    let compiled = compile(&m.device.config, image);
    logs.write(
        &compiled.as_ref().map(info_text).unwrap_or_default(),
        &compiled,
        values,
    );
    let parsed = compiled?;
    let kernels: Vec<_> = parsed.kernels().cloned().collect();
    let mut s = m.state();
    let made = Library {
        image: image.into(),
        parsed,
        kernels: Vec::new(),
        modules: Default::default(),
    };
    let id = s.libraries.insert(made);
    for kernel in kernels {
        let kernel = s.kernels.insert(LibraryKernel {
            library: id,
            name: CString::new(kernel.name.as_str()).unwrap_or_default(),
            settings: FunctionSettings::of(&kernel),
            kernel,
        });
        s.libraries[id].kernels.push(kernel);
    }

    library.set(id.handle())
}

fn unload(m: &'static Machine, library: CUlibrary) -> Result {
    let mut s = m.state();
    let id = s.libraries.find(library)?;
    capture::refuse_unsafe(&mut s)?;
    s.unload_library(id);
    Ok(())
}

fn get_kernel(
    m: &'static Machine,
    kernel: Out<CUkernel>,
    library: CUlibrary,
    name: In<c_char>,
) -> Result {
    let s = m.state();
    let library = &s.libraries[s.libraries.find(library)?];
    let name = name.text()?;
    let found = library
        .kernels
        .iter()
        .find(|&&id| s.kernels[id].kernel.name == name);
    match found {
        Some(found) => kernel.set(found.handle()),
        None => library.parsed.kernel(name).map(drop).or_else(refuse_kernel),
    }
}

fn kernel_count(m: &'static Machine, count: Out<c_uint>, library: CUlibrary) -> Result {
    let s = m.state();
    count.set(s.libraries[s.libraries.find(library)?].kernels.len() as c_uint)
}

fn enumerate(
    m: &'static Machine,
    kernels: Out<CUkernel>,
    count: c_uint,
    library: CUlibrary,
) -> Result {
    let s = m.state();
    let found = &s.libraries[s.libraries.find(library)?].kernels;
    require(!kernels.is_null(), || "the result pointer is NULL".into())?;
    kernels.set_all(
        found
            .iter()
            .take(count as usize)
            .map(|kernel| kernel.handle()),
    );
    Ok(())
}

fn get_module(m: &'static Machine, module: Out<CUmodule>, library: CUlibrary) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    let id = s.libraries.find(library)?;
    module.set(s.module_of(id, context)?.handle())
}

fn get_global(
    m: &'static Machine,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: In<c_char>,
) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    let id = s.libraries.find(library)?;
    let module = s.module_of(id, context)?;
    global_of(&s, module, address, bytes, name)
}

/// Returns an error, because the emulator's PTX has no managed variables.
fn get_managed(
    m: &'static Machine,
    _address: Out<CUdeviceptr>,
    _bytes: Out<usize>,
    library: CUlibrary,
    name: In<c_char>,
) -> Result {
    m.state().libraries.find(library)?;
    refuse(
        CUresult::NOT_FOUND,
        format!("the library has no managed variable {}", name.text()?),
    )
}

fn get_function(m: &'static Machine, function: Out<CUfunction>, kernel: CUkernel) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    let id = s.kernels.find(kernel)?;
    function.set(s.function_of(id, context)?.handle())
}

fn get_library(m: &'static Machine, library: Out<CUlibrary>, kernel: CUkernel) -> Result {
    let s = m.state();
    library.set(s.kernels[s.kernels.find(kernel)?].library.handle())
}

/// Returns a kernel and the PTX version of its library.
fn versioned(s: &DriverState, kernel: CUkernel) -> Result<(KernelId, c_int)> {
    let id = s.kernels.find(kernel)?;
    let (major, minor) = s.libraries[s.kernels[id].library].parsed.version();
    Ok((id, (major * 10 + minor) as c_int))
}

fn get_attribute(
    m: &'static Machine,
    value: Out<c_int>,
    which: CUfunction_attribute,
    kernel: CUkernel,
    dev: CUdevice,
) -> Result {
    device::find(m, dev)?;
    let s = m.state();
    let (id, version) = versioned(&s, kernel)?;
    let kernel = &s.kernels[id];
    value.set(attribute(
        m.device,
        &kernel.kernel,
        &kernel.settings,
        version,
        which,
    )?)
}

/// Sets an attribute for all devices, because they are alike.
fn set_attribute(
    m: &'static Machine,
    which: CUfunction_attribute,
    value: c_int,
    kernel: CUkernel,
    dev: CUdevice,
) -> Result {
    device::find(m, dev)?;
    let s = m.state();
    let kernel = &s.kernels[s.kernels.find(kernel)?];
    change(m.device, &kernel.kernel, &kernel.settings, which, value)
}

fn set_cache_config(
    m: &'static Machine,
    kernel: CUkernel,
    config: CUfunc_cache,
    dev: CUdevice,
) -> Result {
    device::find(m, dev)?;
    check_cache(config)?;
    m.state().kernels.find(kernel).map(drop)
}

fn get_name(m: &'static Machine, name: Out<*const c_char>, kernel: CUkernel) -> Result {
    let s = m.state();
    // The text lives as long as the library, as the API requires.
    name.set(s.kernels[s.kernels.find(kernel)?].name.as_ptr())
}

/// Returns the offset and the size of each parameter of a kernel.
fn params(s: &DriverState, kernel: CUkernel) -> Result<Vec<(usize, usize)>> {
    let kernel = &s.kernels[s.kernels.find(kernel)?].kernel;
    Ok(kernel
        .params
        .iter()
        .map(|p| (p.offset as usize, p.size as usize))
        .collect())
}

fn param_info(
    m: &'static Machine,
    kernel: CUkernel,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Result {
    let state = m.state();
    // NVIDIA's driver requires a current context here, although the result does not depend on it.
    state.current()?;
    tell_param(&params(&state, kernel)?, index, offset, size)
}

fn param_count(m: &'static Machine, kernel: CUkernel, count: Out<usize>) -> Result {
    count.set(params(&m.state(), kernel)?.len())
}
