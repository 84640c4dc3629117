//! Modules and their functions.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::memory::refuse_memory;
use crate::compile::{compile, info_text};
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out, as_text, image_text};
use crate::handle::FunctionId;
use crate::machine::Machine;
use crate::state::capture;
use crate::state::objects::Module;
use crate::work::function::Function;

exports! {
    table {
        2010 cuModuleLoadDataEx cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) => load_with_options;
        2000 cuModuleUnload cuModuleUnload(module: CUmodule) => unload;
        2000 cuModuleGetFunction cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) => get_function;
        3020 cuModuleGetGlobal cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) => get_global;
        2020 cuFuncGetAttribute cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) => get_attribute;
        9000 cuFuncSetAttribute cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) => set_attribute;
        6050 cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize) => occupancy;
        12030 cuFuncGetName cuFuncGetName(name: *mut *const c_char, function: CUfunction) => get_name;
        12040 cuFuncGetParamInfo cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) => param_info;
        12040 cuFuncLoad cuFuncLoad(function: CUfunction) => load_function;
        2000 cuModuleLoad cuModuleLoad(module: *mut CUmodule, path: *const c_char) => load_file;
        2000 cuModuleLoadData cuModuleLoadData(module: *mut CUmodule, image: *const c_void) => load;
        12040 cuModuleGetFunctionCount cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) => function_count;
        11070 cuModuleGetLoadingMode cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) => loading_mode;
        3000 cuFuncSetCacheConfig cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) => set_cache_config;
        11000 cuFuncGetModule cuFuncGetModule(module: *mut CUmodule, function: CUfunction) => get_module;
        12040 cuFuncIsLoaded cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) => is_loaded;
        13020 cuFuncGetParamCount cuFuncGetParamCount(function: CUfunction, count: *mut usize) => param_count;
    }
    more {}
}

/// The log buffers of a load: where the text goes and where its size is written back.
#[derive(Default)]
struct LogBuffer {
    buffer: usize,
    capacity: usize,
    size: Option<usize>,
}

/// Info and error log among the options.
#[derive(Default)]
struct Logs {
    info: LogBuffer,
    error: LogBuffer,
}

impl LogBuffer {
    /// Writes the text and stores the bytes filled in the slot of the size option, as the driver does.
    fn write(&self, text: &str, values: Out<'_, *mut c_void>) {
        let written = as_text(self.buffer).set_text(text, self.capacity);
        if let Some(slot) = self.size {
            values.set_at(slot, written as *mut c_void);
        }
    }
}

/// Finds the log buffers. Every other option is accepted and changes nothing.
fn logs_of(count: usize, options: Out<'_, CUjit_option>, values: Out<'_, *mut c_void>) -> Result<Logs> {
    let mut logs = Logs::default();
    let slots = options.slice(count)?.iter().zip(values.slice(count)?);
    for (slot, (&option, &value)) in slots.enumerate() {
        match option {
            CUjit_option::INFO_LOG_BUFFER => logs.info.buffer = value as usize,
            CUjit_option::ERROR_LOG_BUFFER => logs.error.buffer = value as usize,
            // The size is an unsigned int in a pointer-sized slot: its upper half means nothing.
            CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES => {
                (logs.info.capacity, logs.info.size) = (value as usize as u32 as usize, Some(slot));
            }
            CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES => {
                (logs.error.capacity, logs.error.size) = (value as usize as u32 as usize, Some(slot));
            }
            CUjit_option(0..=40) => {}
            CUjit_option(other) => {
                return refuse(CUresult::INVALID_VALUE, format!("JIT option {other} is unknown"));
            }
        }
    }
    Ok(logs)
}

fn load(m: &'static Machine, module: Out<CUmodule>, image: In<c_void>) -> Result {
    load_with_options(m, module, image, 0, Out::null(), Out::null())
}

fn load_file(m: &'static Machine, module: Out<CUmodule>, path: In<c_char>) -> Result {
    let path = path.text()?;
    let image = std::fs::read(path);
    let image = image.or_else(|error| refuse(CUresult::FILE_NOT_FOUND, format!("{path}: {error}")))?;
    load_image(m, module, &image, &Logs::default(), Out::null())
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
    load_image(m, module, image_text(image)?, &logs, values)
}

fn load_image(
    m: &'static Machine,
    module: Out<CUmodule>,
    image: &[u8],
    logs: &Logs,
    values: Out<*mut c_void>,
) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    require(!module.is_null(), || "the result pointer is NULL".into())?;
    // Parsing needs no lock and may take a while.
    drop(s);
    match compile(&m.device.config, image) {
        Ok(parsed) => {
            logs.info.write(&info_text(&parsed), values);
            logs.error.write("", values);
            let parsed = Module { context, parsed, functions: Vec::new() };
            module.set(m.state().modules.insert(parsed).handle())
        }
        Err(error) => {
            logs.info.write("", values);
            logs.error.write(&error.text, values);
            Err(error)
        }
    }
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
    let name = name.text()?;
    let of_name = |at: &&FunctionId| s.functions[**at].kernel.name == name;
    if let Some(&known) = s.modules[id].functions.iter().find(of_name) {
        return function.set(known.handle());
    }
    let Some(kernel) = s.modules[id].parsed.kernel(name).cloned() else {
        let names: Vec<_> = s.modules[id].parsed.kernels().map(|k| k.name.as_str()).collect();
        return refuse(
            CUresult::NOT_FOUND,
            format!("there is no kernel {name}; the module has {}", names.join(", ")),
        );
    };
    let made = Arc::new({
        let of = &s.modules[id];
        Function::new(of.context, id, of.parsed.version(), kernel)
    });
    let made = s.functions.insert(made);
    s.modules[id].functions.push(made);
    s.functions[made].handle.get_or_init(|| made.handle());
    function.set(made.handle())
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
    let parsed = &s.modules[s.modules.find(module)?].parsed;
    let name = name.text()?;
    let Some(variable) = parsed.variables().find(|v| v.name == name) else {
        return refuse(CUresult::NOT_FOUND, format!("there is no variable {name}"));
    };
    address.set_if(parsed.address(&m.device.memory, name).or_else(refuse_memory)?.unwrap_or_default());
    bytes.set_if(variable.bytes as usize);
    Ok(())
}

fn get_attribute(
    m: &'static Machine,
    value: Out<c_int>,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> Result {
    use CUfunction_attribute as A;
    let s = m.state();
    let f = s.function(function)?;
    let (major, minor) = m.device.config.compute_capability;
    value.set(match attribute {
        A::MAX_THREADS_PER_BLOCK => f.max_threads() as c_int,
        A::SHARED_SIZE_BYTES => f.kernel.static_shared as c_int,
        A::NUM_REGS => f.kernel.registers as c_int,
        A::PTX_VERSION => f.version,
        A::BINARY_VERSION => (major * 10 + minor) as c_int,
        A::MAX_DYNAMIC_SHARED_SIZE_BYTES => f.dynamic_shared.load(Relaxed),
        A::PREFERRED_SHARED_MEMORY_CARVEOUT => f.carveout.load(Relaxed),
        CUfunction_attribute(0..=15) => 0,
        other => {
            return refuse(CUresult::INVALID_VALUE, format!("there is no function attribute {}", other.0));
        }
    })
}

fn set_attribute(
    m: &'static Machine,
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> Result {
    let s = m.state();
    let f = s.function(function)?;
    match attribute {
        CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let room = m.device.shared_optin().saturating_sub(f.kernel.static_shared);
            let fits = u32::try_from(value).is_ok_and(|value| value <= room);
            require(fits, || format!("{value} bytes of dynamic shared memory, but the device has {room}"))?;
            f.dynamic_shared.store(value, Relaxed);
        }
        CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => {
            require((-1..=100).contains(&value), || format!("a carveout of {value} percent"))?;
            f.carveout.store(value, Relaxed);
        }
        other => {
            return refuse(CUresult::INVALID_VALUE, format!("function attribute {} cannot be set", other.0));
        }
    }
    Ok(())
}

/// Blocks that fit one multiprocessor by threads, registers, shared memory and the limit of blocks. None does that
/// asks for more dynamic shared memory than the function may have.
///
/// A multiprocessor has four partitions of 16384 registers; a warp takes them from one, in units of 256.
fn occupancy(
    m: &'static Machine,
    blocks: Out<c_int>,
    function: CUfunction,
    block_size: c_int,
    dynamic: usize,
) -> Result {
    let s = m.state();
    let f = s.function(function)?;
    let threads = u32::try_from(block_size).unwrap_or(0);
    require((1..=f.max_threads()).contains(&threads), || format!("blocks of {block_size} threads"))?;
    if dynamic > f.dynamic_shared() as usize {
        return blocks.set(0);
    }
    let warps = threads.div_ceil(32);
    let by_threads = m.device.threads_per_multiprocessor() / (32 * warps);
    let of_warp = f.kernel.registers.clamp(16, 255).next_multiple_of(8) * 32;
    let by_registers = 4 * (16384 / of_warp) / warps;
    let shared = f.kernel.static_shared + dynamic as u32 + m.device.shared_reserved();
    let by_shared = m.device.shared_per_multiprocessor().checked_div(shared).unwrap_or(u32::MAX);
    let most = m.device.blocks_per_multiprocessor();
    blocks.set(by_threads.min(by_registers).min(by_shared).min(most) as c_int)
}

fn get_name(m: &'static Machine, name: Out<*const c_char>, function: CUfunction) -> Result {
    // The text lives as long as the function, as the API says.
    name.set(m.state().function(function)?.name.as_ptr())
}

fn param_info(
    m: &'static Machine,
    function: CUfunction,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Result {
    let s = m.state();
    match s.function(function)?.params.get(index) {
        Some(&(at, bytes)) => {
            size.set_if(bytes);
            offset.set(at)
        }
        None => refuse(CUresult::INVALID_VALUE, format!("there is no parameter {index}")),
    }
}

fn param_count(m: &'static Machine, function: CUfunction, count: Out<usize>) -> Result {
    count.set(m.state().function(function)?.params.len())
}

fn load_function(m: &'static Machine, function: CUfunction) -> Result {
    m.state().function(function).map(drop)
}

fn is_loaded(m: &'static Machine, state: Out<CUfunctionLoadingState>, function: CUfunction) -> Result {
    m.state().function(function)?;
    state.set(CUfunctionLoadingState::LOADED)
}

fn function_count(m: &'static Machine, count: Out<c_uint>, module: CUmodule) -> Result {
    let s = m.state();
    count.set(s.modules[s.modules.find(module)?].parsed.kernels().count() as c_uint)
}

fn loading_mode(_: &'static Machine, mode: Out<CUmoduleLoadingMode>) -> Result {
    mode.set(CUmoduleLoadingMode::EAGER_LOADING)
}

fn set_cache_config(m: &'static Machine, function: CUfunction, _config: CUfunc_cache) -> Result {
    m.state().function(function).map(drop)
}

fn get_module(m: &'static Machine, module: Out<CUmodule>, function: CUfunction) -> Result {
    module.set(m.state().function(function)?.module.handle())
}
