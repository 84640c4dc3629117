//! Functions of modules: their attributes, and the attributes that a program can set.

use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;

use ptx_emu::Kernel;
use warpwright_driver_sys::*;

use crate::api::context::check_cache;
use crate::api::export::exports;
use crate::device::EmulatedDevice;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::Out;
use crate::machine::Machine;
use crate::work::function::{FunctionSettings, max_threads};

exports! {
    table {
        2020 cuFuncGetAttribute cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) => get_attribute;
        9000 cuFuncSetAttribute cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) => set_attribute;
        3000 cuFuncSetCacheConfig cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) => set_cache_config;
        11000 cuFuncGetModule cuFuncGetModule(module: *mut CUmodule, function: CUfunction) => get_module;
        12030 cuFuncGetName cuFuncGetName(name: *mut *const c_char, function: CUfunction) => get_name;
        12040 cuFuncGetParamInfo cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) => param_info;
        13020 cuFuncGetParamCount cuFuncGetParamCount(function: CUfunction, count: *mut usize) => param_count;
        12040 cuFuncIsLoaded cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) => is_loaded;
        12040 cuFuncLoad cuFuncLoad(function: CUfunction) => load;
    }
    more {
        4020 cuFuncSetSharedMemConfig cuFuncSetSharedMemConfig(function: CUfunction, config: c_int) => set_banks;
    }
}

/// Returns the value of an attribute of a kernel. `version` is the PTX version of its module, 10 *
/// major + minor.
pub(crate) fn attribute(
    device: &EmulatedDevice,
    kernel: &Kernel,
    settings: &FunctionSettings,
    version: c_int,
    attribute: CUfunction_attribute,
) -> Result<c_int> {
    use CUfunction_attribute as A;
    let (major, minor) = device.config.compute_capability;
    Ok(match attribute {
        A::MAX_THREADS_PER_BLOCK => max_threads(kernel) as c_int,
        A::SHARED_SIZE_BYTES => kernel.static_shared as c_int,
        A::NUM_REGS => kernel.registers as c_int,
        A::PTX_VERSION => version,
        A::BINARY_VERSION => (major * 10 + minor) as c_int,
        A::MAX_DYNAMIC_SHARED_SIZE_BYTES => settings.dynamic_shared.load(Relaxed),
        A::PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout.load(Relaxed),
        A::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => settings.large_clusters.load(Relaxed),
        A::REQUIRED_CLUSTER_WIDTH => kernel.cluster.map_or(0, |[x, _, _]| x as c_int),
        A::REQUIRED_CLUSTER_HEIGHT => kernel.cluster.map_or(0, |[_, y, _]| y as c_int),
        A::REQUIRED_CLUSTER_DEPTH => kernel.cluster.map_or(0, |[_, _, z]| z as c_int),
        // The other known attributes describe resources that the emulator does not have, for
        // example local memory.
        CUfunction_attribute(0..=17) => 0,
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown function attribute {}", other.0),
            );
        }
    })
}

/// Sets an attribute, or returns an error if it cannot be set.
pub(crate) fn change(
    device: &EmulatedDevice,
    kernel: &Kernel,
    settings: &FunctionSettings,
    attribute: CUfunction_attribute,
    value: c_int,
) -> Result {
    match attribute {
        CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            // The limit of the device includes static shared memory, but the attribute does not.
            let room = device.shared_optin().saturating_sub(kernel.static_shared);
            let fits = u32::try_from(value).is_ok_and(|value| value <= room);
            require(fits, || {
                format!("{value} bytes of dynamic shared memory: expected at most {room}")
            })?;
            settings.dynamic_shared.store(value, Relaxed);
        }
        CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => {
            require((-1..=100).contains(&value), || {
                format!("a carveout of {value} percent: expected -1 to 100")
            })?;
            settings.carveout.store(value, Relaxed);
        }
        CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
            settings.large_clusters.store((value != 0).into(), Relaxed);
        }
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("function attribute {} cannot be set", other.0),
            );
        }
    }
    Ok(())
}

fn get_attribute(
    m: &'static Machine,
    value: Out<c_int>,
    which: CUfunction_attribute,
    function: CUfunction,
) -> Result {
    let f = m.state().function(function)?;
    value.set(attribute(
        m.device,
        &f.kernel,
        &f.settings,
        f.version,
        which,
    )?)
}

fn set_attribute(
    m: &'static Machine,
    function: CUfunction,
    which: CUfunction_attribute,
    value: c_int,
) -> Result {
    let f = m.state().function(function)?;
    change(m.device, &f.kernel, &f.settings, which, value)
}

fn get_name(m: &'static Machine, name: Out<*const c_char>, function: CUfunction) -> Result {
    // The text lives as long as the function, as the API requires.
    name.set(m.state().function(function)?.name.as_ptr())
}

/// Writes the offset and the size of a parameter.
pub(crate) fn tell_param(
    params: &[(usize, usize)],
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Result {
    match params.get(index) {
        Some(&(at, bytes)) => {
            size.set_if(bytes);
            offset.set(at)
        }
        None => refuse(
            CUresult::INVALID_VALUE,
            format!("the kernel has no parameter {index}"),
        ),
    }
}

fn param_info(
    m: &'static Machine,
    function: CUfunction,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Result {
    tell_param(&m.state().function(function)?.params, index, offset, size)
}

fn param_count(m: &'static Machine, function: CUfunction, count: Out<usize>) -> Result {
    count.set(m.state().function(function)?.params.len())
}

fn load(m: &'static Machine, function: CUfunction) -> Result {
    m.state().function(function).map(drop)
}

fn is_loaded(
    m: &'static Machine,
    state: Out<CUfunctionLoadingState>,
    function: CUfunction,
) -> Result {
    m.state().function(function)?;
    state.set(CUfunctionLoadingState::LOADED)
}

fn set_cache_config(m: &'static Machine, function: CUfunction, config: CUfunc_cache) -> Result {
    check_cache(config)?;
    m.state().function(function).map(drop)
}

/// Accepts a bank width. It has no effect here, as for a context.
fn set_banks(m: &'static Machine, function: CUfunction, config: c_int) -> Result {
    require((0..=2).contains(&config), || {
        format!("unknown bank width {config}: expected 0 to 2")
    })?;
    m.state().function(function).map(drop)
}

fn get_module(m: &'static Machine, module: Out<CUmodule>, function: CUfunction) -> Result {
    module.set(m.state().function(function)?.module.handle())
}
