//! Contexts: the primary one, those a program creates, and which is current on a thread.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::device;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::Out;
use crate::handle::ContextId;
use crate::machine::Machine;
use crate::queue::Ticket;
use crate::state::objects::Context;
use crate::state::{CURRENT, State, capture};

exports! {
    table {
        7000 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) => primary_retain;
        11000 cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2(device: CUdevice) => primary_release;
        4000 cuCtxSetCurrent cuCtxSetCurrent(context: CUcontext) => set_current;
        4000 cuCtxGetCurrent cuCtxGetCurrent(context: *mut CUcontext) => get_current;
        4000 cuCtxPushCurrent cuCtxPushCurrent_v2(context: CUcontext) => push_current;
        4000 cuCtxPopCurrent cuCtxPopCurrent_v2(context: *mut CUcontext) => pop_current;
        2000 cuCtxGetDevice cuCtxGetDevice(device: *mut CUdevice) => get_device;
        2000 cuCtxSynchronize cuCtxSynchronize() => synchronize;
        11000 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2(device: CUdevice) => primary_reset;
        11000 cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: CUctx_flags) => primary_set_flags;
        7000 cuDevicePrimaryCtxGetState cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut CUctx_flags, active: *mut c_int) => primary_state;
        3020 cuCtxCreate cuCtxCreate_v2(context: *mut CUcontext, flags: CUctx_flags, device: CUdevice) => create;
        4000 cuCtxDestroy cuCtxDestroy_v2(context: CUcontext) => destroy;
        3020 cuCtxGetApiVersion cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) => api_version;
        7000 cuCtxGetFlags cuCtxGetFlags(flags: *mut CUctx_flags) => get_flags;
        5050 cuCtxGetStreamPriorityRange cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) => priority_range;
        3010 cuCtxGetLimit cuCtxGetLimit(value: *mut usize, limit: CUlimit) => get_limit;
        3010 cuCtxSetLimit cuCtxSetLimit(limit: CUlimit, value: usize) => set_limit;
    }
    more {
        7000 cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease(device: CUdevice) => primary_release;
    }
}

fn new_context(s: &mut State, flags: CUctx_flags) -> ContextId {
    let (sticky, per_thread) = (Arc::default(), HashMap::new());
    s.contexts.insert(Context { flags, sticky, legacy: None, per_thread })
}

fn primary_retain(m: &'static Machine, context: Out<CUcontext>, dev: CUdevice) -> Result {
    device::check(dev)?;
    require(!context.is_null(), || "the result pointer is NULL".into())?;
    let mut s = m.state();
    let id = match s.primary.id {
        Some(id) => id,
        None => {
            let flags = s.primary.flags;
            new_context(&mut s, flags)
        }
    };
    s.primary.id = Some(id);
    s.primary.retained += 1;
    context.set(id.handle())
}

fn primary_release(m: &'static Machine, dev: CUdevice) -> Result {
    device::check(dev)?;
    let mut s = m.state();
    let Some(id) = s.primary.id.filter(|_| s.primary.retained > 0) else {
        return refuse(CUresult::INVALID_CONTEXT, "the primary context is not retained");
    };
    s.primary.retained -= 1;
    if s.primary.retained == 0 {
        s.primary.id = None;
        drop(s);
        close(m, id);
    }
    Ok(())
}

fn primary_reset(m: &'static Machine, dev: CUdevice) -> Result {
    device::check(dev)?;
    let mut s = m.state();
    s.primary.retained = 0;
    let id = s.primary.id.take();
    drop(s);
    if let Some(id) = id {
        close(m, id);
    }
    Ok(())
}

fn primary_set_flags(m: &'static Machine, dev: CUdevice, flags: CUctx_flags) -> Result {
    device::check(dev)?;
    let mut s = m.state();
    s.primary.flags = flags;
    if let Some(id) = s.primary.id {
        s.contexts[id].flags = flags;
    }
    Ok(())
}

fn primary_state(m: &'static Machine, dev: CUdevice, flags: Out<CUctx_flags>, active: Out<c_int>) -> Result {
    device::check(dev)?;
    let s = m.state();
    flags.set(s.primary.flags)?;
    active.set(s.primary.id.is_some().into())
}

fn create(m: &'static Machine, context: Out<CUcontext>, flags: CUctx_flags, dev: CUdevice) -> Result {
    device::check(dev)?;
    require(!context.is_null(), || "the result pointer is NULL".into())?;
    let id = new_context(&mut m.state(), flags);
    CURRENT.with_borrow_mut(|stack| stack.push(id));
    context.set(id.handle())
}

fn destroy(m: &'static Machine, context: CUcontext) -> Result {
    let s = m.state();
    let id = s.contexts.find(context)?;
    require(s.primary.id != Some(id), || "the primary context is released, not destroyed".into())?;
    drop(s);
    close(m, id);
    CURRENT.with_borrow_mut(|stack| {
        if stack.last() == Some(&id) {
            stack.pop();
        }
    });
    Ok(())
}

/// Ends a context: its work first, then everything it owns.
fn close(m: &'static Machine, id: ContextId) {
    let waiting = m.state().outstanding(id);
    waiting.iter().for_each(Ticket::wait);
    let mut s = m.state();
    s.contexts.remove(id);
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
    let addresses: Vec<u64> =
        s.allocations.iter().filter(|(_, a)| a.context == id).map(|(&at, _)| at).collect();
    for address in addresses {
        s.allocations.remove(&address);
        // The base of an allocation on record is the base of an allocation of the memory.
        let _ = m.device.memory.free(address);
    }
}

fn find_or_none(m: &'static Machine, context: CUcontext) -> Result<Option<ContextId>> {
    if context.is_null() { Ok(None) } else { m.state().contexts.find(context).map(Some) }
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
        None => refuse(CUresult::INVALID_CONTEXT, "no context is current on this thread"),
    }
}

fn get_device(m: &'static Machine, dev: Out<CUdevice>) -> Result {
    m.state().current()?;
    dev.set(0)
}

fn synchronize(m: &'static Machine) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_in_context(&mut s, context)?;
    let waiting = s.outstanding(context);
    let sticky = s.contexts[context].sticky.clone();
    drop(s);
    waiting.iter().for_each(Ticket::wait);
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
    greatest.set_if(-5);
    Ok(())
}

/// Limits are accepted, and read as the driver's defaults: stack, printf buffer and heap of a GPU do not exist.
fn get_limit(m: &'static Machine, value: Out<usize>, limit: CUlimit) -> Result {
    m.state().context()?;
    match limit {
        CUlimit::STACK_SIZE => value.set(1024),
        CUlimit::PRINTF_FIFO_SIZE => value.set(1 << 20),
        CUlimit::MALLOC_HEAP_SIZE => value.set(8 << 20),
        _ => refuse(CUresult::UNSUPPORTED_LIMIT, format!("limit {limit:?} is not emulated")),
    }
}

fn set_limit(m: &'static Machine, limit: CUlimit, _value: usize) -> Result {
    m.state().context()?;
    if (0..=2).contains(&limit.0) { Ok(()) } else { Err(CUresult::UNSUPPORTED_LIMIT.into()) }
}
