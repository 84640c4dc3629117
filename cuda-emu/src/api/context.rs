//! Contexts: the primary context, contexts that a program creates, and the current context of a
//! thread.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::stream::GREATEST_PRIORITY;
use crate::api::{device, peer};
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::Out;
use crate::handle::ContextId;
use crate::machine::Machine;
use crate::queue::Ticket;
use crate::state::objects::ContextState;
use crate::state::{CURRENT, DriverState, capture};
use crate::work::reach::MemoryReach;

exports! {
    table {
        7000 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) => primary_retain;
        11000 cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2(device: CUdevice) => primary_release;
        4000 cuCtxSetCurrent cuCtxSetCurrent(context: CUcontext) => set_current;
        4000 cuCtxGetCurrent cuCtxGetCurrent(context: *mut CUcontext) => get_current;
        4000 cuCtxPushCurrent cuCtxPushCurrent_v2(context: CUcontext) => push_current;
        4000 cuCtxPopCurrent cuCtxPopCurrent_v2(context: *mut CUcontext) => pop_current;
        2000 cuCtxGetDevice cuCtxGetDevice(device: *mut CUdevice) => get_device;
        13000 cuCtxGetDevice cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext) => get_device_of;
        2000 cuCtxSynchronize cuCtxSynchronize() => synchronize;
        13000 cuCtxSynchronize cuCtxSynchronize_v2(context: CUcontext) => synchronize_one;
        11000 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2(device: CUdevice) => primary_reset;
        11000 cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: CUctx_flags) => primary_set_flags;
        7000 cuDevicePrimaryCtxGetState cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut CUctx_flags, active: *mut c_int) => primary_state;
        3020 cuCtxCreate cuCtxCreate_v2(context: *mut CUcontext, flags: CUctx_flags, device: CUdevice) => create;
        11040 cuCtxCreate cuCtxCreate_v3(context: *mut CUcontext, params: *mut CUexecAffinityParam, count: c_int, flags: CUctx_flags, device: CUdevice) => create_with_affinity;
        12050 cuCtxCreate cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: CUctx_flags, device: CUdevice) => create_with_params;
        4000 cuCtxDestroy cuCtxDestroy_v2(context: CUcontext) => destroy;
        3020 cuCtxGetApiVersion cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) => api_version;
        12000 cuCtxGetId cuCtxGetId(context: CUcontext, id: *mut u64) => get_id;
        7000 cuCtxGetFlags cuCtxGetFlags(flags: *mut CUctx_flags) => get_flags;
        12010 cuCtxSetFlags cuCtxSetFlags(flags: CUctx_flags) => set_flags;
        5050 cuCtxGetStreamPriorityRange cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) => priority_range;
        3010 cuCtxGetLimit cuCtxGetLimit(value: *mut usize, limit: CUlimit) => get_limit;
        3010 cuCtxSetLimit cuCtxSetLimit(limit: CUlimit, value: usize) => set_limit;
        3020 cuCtxGetCacheConfig cuCtxGetCacheConfig(config: *mut CUfunc_cache) => get_cache;
        3020 cuCtxSetCacheConfig cuCtxSetCacheConfig(config: CUfunc_cache) => set_cache;
        11000 cuCtxResetPersistingL2Cache cuCtxResetPersistingL2Cache() => reset_cache;
        11040 cuCtxGetExecAffinity cuCtxGetExecAffinity(affinity: *mut CUexecAffinityParam, kind: CUexecAffinityType) => get_affinity;
        4000 cuProfilerStart cuProfilerStart() => profiler;
        4000 cuProfilerStop cuProfilerStop() => profiler;
    }
    more {
        2000 cuCtxDestroy cuCtxDestroy(context: CUcontext) => destroy;
        2000 cuCtxPushCurrent cuCtxPushCurrent(context: CUcontext) => push_current;
        2000 cuCtxPopCurrent cuCtxPopCurrent(context: *mut CUcontext) => pop_current;
        7000 cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease(device: CUdevice) => primary_release;
        7000 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset(device: CUdevice) => primary_reset;
        7000 cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: CUctx_flags) => primary_set_flags;
        4020 cuCtxGetSharedMemConfig cuCtxGetSharedMemConfig(config: *mut c_int) => get_banks;
        4020 cuCtxSetSharedMemConfig cuCtxSetSharedMemConfig(config: c_int) => set_banks;
    }
}

fn new_context(s: &mut DriverState, dev: usize, flags: CUctx_flags) -> ContextId {
    s.contexts.insert(ContextState {
        flags,
        reach: Arc::new(MemoryReach::of(dev as u32)),
        peers: Vec::new(),
        cache: CUfunc_cache::PREFER_NONE,
        limits: BTreeMap::new(),
        sticky: Arc::default(),
        legacy: None,
        per_thread: HashMap::new(),
    })
}

/// Writes the bank width, which is 4 bytes on every device since compute capability 5.0.
fn get_banks(m: &'static Machine, config: Out<c_int>) -> Result {
    m.state().context()?;
    config.set(1)
}

/// Accepts a bank width. It has no effect here.
fn set_banks(m: &'static Machine, config: c_int) -> Result {
    m.state().context()?;
    require((0..=2).contains(&config), || {
        format!("unknown bank width {config}: expected 0 to 2")
    })
}

fn check_flags(flags: CUctx_flags) -> Result {
    require(CUctx_flags::all().contains(flags), || {
        format!("the flags {:#x} are unknown", flags.bits())
    })
}

fn primary_retain(m: &'static Machine, context: Out<CUcontext>, dev: CUdevice) -> Result {
    let dev = device::find(m, dev)?;
    require(!context.is_null(), || "the result pointer is NULL".into())?;
    let mut s = m.state();
    let id = match s.primary[dev].id {
        Some(id) => id,
        None => {
            let flags = s.primary[dev].flags;
            new_context(&mut s, dev, flags)
        }
    };
    s.primary[dev].id = Some(id);
    s.primary[dev].retained += 1;
    context.set(id.handle())
}

fn primary_release(m: &'static Machine, dev: CUdevice) -> Result {
    let dev = device::find(m, dev)?;
    let mut s = m.state();
    let primary = &mut s.primary[dev];
    let Some(id) = primary.id.filter(|_| primary.retained > 0) else {
        return refuse(
            CUresult::INVALID_CONTEXT,
            "the primary context is not retained",
        );
    };

    primary.retained -= 1;
    if primary.retained == 0 {
        primary.id = None;
        drop(s);
        close(m, id);
    }

    Ok(())
}

fn primary_reset(m: &'static Machine, dev: CUdevice) -> Result {
    let dev = device::find(m, dev)?;
    let mut s = m.state();
    s.primary[dev].retained = 0;
    let id = s.primary[dev].id.take();
    drop(s);
    if let Some(id) = id {
        close(m, id);
    }
    Ok(())
}

fn primary_set_flags(m: &'static Machine, dev: CUdevice, flags: CUctx_flags) -> Result {
    let dev = device::find(m, dev)?;
    check_flags(flags)?;
    let mut s = m.state();
    s.primary[dev].flags = flags;
    if let Some(id) = s.primary[dev].id {
        s.contexts[id].flags = flags;
    }
    Ok(())
}

fn primary_state(
    m: &'static Machine,
    dev: CUdevice,
    flags: Out<CUctx_flags>,
    active: Out<c_int>,
) -> Result {
    let dev = device::find(m, dev)?;
    let s = m.state();
    flags.set(s.primary[dev].flags)?;
    active.set(s.primary[dev].id.is_some().into())
}

fn create(
    m: &'static Machine,
    context: Out<CUcontext>,
    flags: CUctx_flags,
    dev: CUdevice,
) -> Result {
    let dev = device::find(m, dev)?;
    check_flags(flags)?;
    require(!context.is_null(), || "the result pointer is NULL".into())?;
    let id = new_context(&mut m.state(), dev, flags);
    CURRENT.with_borrow_mut(|stack| stack.push(id));
    context.set(id.handle())
}

fn create_with_affinity(
    m: &'static Machine,
    context: Out<CUcontext>,
    _params: Out<CUexecAffinityParam>,
    count: c_int,
    flags: CUctx_flags,
    dev: CUdevice,
) -> Result {
    if count != 0 {
        return refuse(
            CUresult::UNSUPPORTED_EXEC_AFFINITY,
            "restricting a context to some of the multiprocessors is not emulated",
        );
    }
    create(m, context, flags, dev)
}

fn create_with_params(
    m: &'static Machine,
    context: Out<CUcontext>,
    params: Out<CUctxCreateParams>,
    flags: CUctx_flags,
    dev: CUdevice,
) -> Result {
    if params.is_null() {
        return create(m, context, flags, dev);
    }

    let p = params.get()?;
    if !p.cigParams.is_null() {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "contexts that share a device with graphics are not emulated",
        );
    }

    create_with_affinity(m, context, Out::null(), p.numExecAffinityParams, flags, dev)
}

fn destroy(m: &'static Machine, context: CUcontext) -> Result {
    let s = m.state();
    let id = s.contexts.find(context)?;
    let primary = s.primary.iter().any(|primary| primary.id == Some(id));
    require(!primary, || {
        "the primary context cannot be destroyed: release it".into()
    })?;
    drop(s);
    close(m, id);
    CURRENT.with_borrow_mut(|stack| {
        if stack.last() == Some(&id) {
            stack.pop();
        }
    });
    Ok(())
}

/// Ends a context: waits for its work, then removes everything that it owns.
fn close(m: &'static Machine, id: ContextId) {
    let waiting = m.state().outstanding(id);
    waiting.iter().for_each(Ticket::wait);
    let mut s = m.state();
    s.contexts.remove(id);
    peer::forget(&mut s, id);
    for stream in s.streams.ids(|stream| stream.context == id) {
        capture::leave(&mut s, stream);
        s.streams.remove(stream);
    }

    for event in s.events.ids(|event| event.context == id) {
        s.events.remove(event);
    }
    for module in s.modules.ids(|module| module.context == id) {
        s.unload(module);
    }
    for array in s.arrays.ids(|array| array.context == id) {
        s.arrays.remove(array);
    }

    let images: Vec<u64> = s
        .images
        .iter()
        .filter(|(_, i)| i.context == id)
        .map(|(&at, _)| at)
        .collect();
    for image in images {
        s.images.remove(&image);
        // The record and the memory agree on the handles, so this cannot fail.
        let _ = m.device.memory.remove_object(image);
    }

    let addresses: Vec<u64> = s
        .allocations
        .iter()
        .filter(|(_, a)| a.context == id)
        .map(|(&at, _)| at)
        .collect();
    for address in addresses {
        s.allocations.remove(&address);
        // The record and the memory agree on the allocations, so this cannot fail.
        let _ = m.device.free(address);
    }
}

fn find_or_none(m: &'static Machine, context: CUcontext) -> Result<Option<ContextId>> {
    if context.is_null() {
        Ok(None)
    } else {
        m.state().contexts.find(context).map(Some)
    }
}

fn set_current(m: &'static Machine, context: CUcontext) -> Result {
    let id = find_or_none(m, context)?;
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(id);
    });
    Ok(())
}

fn get_current(_: &'static Machine, context: Out<CUcontext>) -> Result {
    context.set(CURRENT.with_borrow(|stack| stack.last().map_or(CUcontext::NULL, |id| id.handle())))
}

fn push_current(m: &'static Machine, context: CUcontext) -> Result {
    let id = m.state().contexts.find(context)?;
    CURRENT.with_borrow_mut(|stack| stack.push(id));
    Ok(())
}

fn pop_current(_: &'static Machine, context: Out<CUcontext>) -> Result {
    match CURRENT.with_borrow_mut(Vec::pop) {
        Some(id) => {
            context.set_if(id.handle());
            Ok(())
        }
        None => refuse(
            CUresult::INVALID_CONTEXT,
            "no context is current on this thread",
        ),
    }
}

fn get_device(m: &'static Machine, dev: Out<CUdevice>) -> Result {
    get_device_of(m, dev, CUcontext::NULL)
}

/// Returns the context with this handle, or the current context for NULL.
fn context_or_current(s: &DriverState, context: CUcontext) -> Result<ContextId> {
    if context.is_null() {
        s.current()
    } else {
        s.contexts.find(context)
    }
}

fn get_device_of(m: &'static Machine, dev: Out<CUdevice>, context: CUcontext) -> Result {
    let s = m.state();
    let id = context_or_current(&s, context)?;
    dev.set(s.contexts[id].reach.device as CUdevice)
}

fn get_id(m: &'static Machine, context: CUcontext, number: Out<u64>) -> Result {
    let s = m.state();
    number.set(context_or_current(&s, context)?.number())
}

fn synchronize(m: &'static Machine) -> Result {
    synchronize_one(m, CUcontext::NULL)
}

fn synchronize_one(m: &'static Machine, context: CUcontext) -> Result {
    let mut s = m.state();
    let context = context_or_current(&s, context)?;
    s.contexts[context].sticky.check()?;
    capture::refuse_in_context(&mut s, context)?;
    let waiting = s.outstanding(context);
    let sticky = s.contexts[context].sticky.clone();
    let device = s.contexts[context].reach.device;

    // Never wait while holding the lock, because the work may need calls of other threads.
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.state().release_pools(device);
    Ok(sticky.check()?)
}

fn api_version(m: &'static Machine, context: CUcontext, version: Out<c_uint>) -> Result {
    find_or_none(m, context)?;
    version.set(3020)
}

fn get_flags(m: &'static Machine, flags: Out<CUctx_flags>) -> Result {
    let s = m.state();
    flags.set(s.contexts[s.current()?].flags)
}

fn priority_range(m: &'static Machine, least: Out<c_int>, greatest: Out<c_int>) -> Result {
    m.state().current()?;
    least.set_if(0);
    greatest.set_if(GREATEST_PRIORITY);
    Ok(())
}

fn set_flags(m: &'static Machine, flags: CUctx_flags) -> Result {
    check_flags(flags)?;
    let mut s = m.state();
    let id = s.current()?;
    s.contexts[id].flags = flags;
    Ok(())
}

/// Returns the driver's default of a limit, such as the stack size or the size of the printf
/// buffer.
fn default_limit(limit: CUlimit) -> Result<usize> {
    Ok(match limit {
        CUlimit::STACK_SIZE => 1024,
        CUlimit::PRINTF_FIFO_SIZE => 1 << 20,
        CUlimit::MALLOC_HEAP_SIZE => 8 << 20,
        CUlimit::DEV_RUNTIME_SYNC_DEPTH => 2,
        CUlimit::DEV_RUNTIME_PENDING_LAUNCH_COUNT => 2048,
        CUlimit::MAX_L2_FETCH_GRANULARITY => 64,
        CUlimit::PERSISTING_L2_CACHE_SIZE => 0,
        other => {
            return refuse(
                CUresult::UNSUPPORTED_LIMIT,
                format!("limit {other:?} is not emulated"),
            );
        }
    })
}

/// Writes a limit. Limits are stored and have no effect.
fn get_limit(m: &'static Machine, value: Out<usize>, limit: CUlimit) -> Result {
    let s = m.state();
    let id = s.context()?;
    let default = default_limit(limit)?;
    value.set(
        s.contexts[id]
            .limits
            .get(&limit)
            .copied()
            .unwrap_or(default),
    )
}

fn set_limit(m: &'static Machine, limit: CUlimit, value: usize) -> Result {
    let mut s = m.state();
    let id = s.context()?;
    default_limit(limit)?;
    s.contexts[id].limits.insert(limit, value);
    Ok(())
}

/// Writes the cache preference, which is stored and has no effect because shared memory and the
/// cache are separate here.
fn get_cache(m: &'static Machine, config: Out<CUfunc_cache>) -> Result {
    let s = m.state();
    config.set(s.contexts[s.context()?].cache)
}

fn set_cache(m: &'static Machine, config: CUfunc_cache) -> Result {
    check_cache(config)?;
    let mut s = m.state();
    let id = s.context()?;
    s.contexts[id].cache = config;
    Ok(())
}

/// Returns an error for an unknown cache preference.
pub(crate) fn check_cache(config: CUfunc_cache) -> Result {
    require(config.name().is_some(), || {
        format!("unknown cache preference {}", config.0)
    })
}

fn reset_cache(m: &'static Machine) -> Result {
    m.state().context().map(drop)
}

fn get_affinity(
    m: &'static Machine,
    affinity: Out<CUexecAffinityParam>,
    kind: CUexecAffinityType,
) -> Result {
    m.state().context()?;
    require(kind == CUexecAffinityType::SM_COUNT, || {
        format!("unknown affinity {}", kind.0)
    })?;
    affinity.set(CUexecAffinityParam {
        r#type: kind,
        smCount: m.device.config.multiprocessors,
    })
}

/// Does nothing, because no profiler can be attached.
fn profiler(m: &'static Machine) -> Result {
    m.state().context().map(drop)
}
