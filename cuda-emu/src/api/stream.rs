//! Streams: creation, waits, queries, attributes and host functions.

use std::ffi::{c_int, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::host::{Callback, StreamCallback};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::queue::{Task, Ticket};
use crate::state::capture;
use crate::state::objects::StreamKind;
use crate::work::StreamWork;

exports! {
    table {
        2000 cuStreamCreate cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags) => create;
        4000 cuStreamDestroy cuStreamDestroy_v2(stream: CUstream) => destroy;
        2000 cuStreamSynchronize cuStreamSynchronize(stream: CUstream) => synchronize;
        2000 cuStreamQuery cuStreamQuery(stream: CUstream) => query;
        5050 cuStreamCreateWithPriority cuStreamCreateWithPriority(stream: *mut CUstream, flags: CUstream_flags, priority: c_int) => create_with_priority;
        5050 cuStreamGetPriority cuStreamGetPriority(stream: CUstream, priority: *mut c_int) => get_priority;
        5050 cuStreamGetFlags cuStreamGetFlags(stream: CUstream, flags: *mut CUstream_flags) => get_flags;
        9020 cuStreamGetCtx cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) => get_context;
        12000 cuStreamGetId cuStreamGetId(stream: CUstream, id: *mut u64) => get_number;
        12080 cuStreamGetDevice cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) => get_device;
        11000 cuStreamGetAttribute cuStreamGetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue) => get_attribute;
        11000 cuStreamSetAttribute cuStreamSetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue) => set_attribute;
        11000 cuStreamCopyAttributes cuStreamCopyAttributes(to: CUstream, from: CUstream) => copy_attributes;
        5000 cuStreamAddCallback cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) => add_callback;
        10000 cuLaunchHostFunc cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) => launch_host_function;
    }
    more {
        2000 cuStreamDestroy cuStreamDestroy(stream: CUstream) => destroy;
        12050 cuStreamGetCtx cuStreamGetCtx_v2(stream: CUstream, context: *mut CUcontext, green: *mut *mut c_void) => get_contexts;
        13010 cuLaunchHostFunc cuLaunchHostFunc_v2(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint) => launch_host_function_in_mode;
    }
}

/// The highest priority of a stream. The lowest is 0.
pub(crate) const GREATEST_PRIORITY: c_int = -5;

fn create(m: &'static Machine, stream: Out<CUstream>, flags: CUstream_flags) -> Result {
    create_with_priority(m, stream, flags, 0)
}

fn create_with_priority(
    m: &'static Machine,
    stream: Out<CUstream>,
    flags: CUstream_flags,
    priority: c_int,
) -> Result {
    require(CUstream_flags::all().contains(flags), || {
        format!("the flags {:#x} are unknown", flags.bits())
    })?;
    let mut s = m.state();
    let context = s.context()?;
    require(!stream.is_null(), || "the result pointer is NULL".into())?;
    let kind = if flags.contains(CUstream_flags::NON_BLOCKING) {
        StreamKind::NonBlocking
    } else {
        StreamKind::Blocking
    };
    stream.set(
        s.new_stream(context, kind, priority.clamp(GREATEST_PRIORITY, 0))
            .handle(),
    )
}

/// Destroys a stream immediately. Work that is queued still runs.
fn destroy(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    require(stream.0 as usize > 2, || {
        "a default stream cannot be destroyed".into()
    })?;
    let id = s.streams.find(stream)?;
    capture::leave(&mut s, id);
    s.streams.remove(id);
    Ok(())
}

fn synchronize(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, id)?;
    capture::refuse_implicit(&mut s, id)?;
    let mut waiting = s.prerequisites_of_wait(id);
    waiting.push(s.streams[id].queue.last());
    let sticky = s.contexts[s.streams[id].context].sticky.clone();
    let device = s.contexts[s.streams[id].context].reach.device;
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.state().release_pools(device);
    Ok(sticky.check()?)
}

fn query(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, id)?;
    capture::refuse_implicit(&mut s, id)?;
    let mut waiting = s.prerequisites_of_wait(id);
    waiting.push(s.streams[id].queue.last());
    if waiting.iter().all(Ticket::is_done) {
        waiting.iter().for_each(Ticket::wait);
        return Ok(s.contexts[s.streams[id].context].sticky.check()?);
    }

    m.device.turns.program_looks();
    Err(CUresult::NOT_READY.into())
}

fn get_priority(m: &'static Machine, stream: CUstream, priority: Out<c_int>) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    priority.set(s.streams[id].priority)
}

fn get_flags(m: &'static Machine, stream: CUstream, flags: Out<CUstream_flags>) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    let non_blocking = s.streams[id].kind == StreamKind::NonBlocking;
    flags.set(if non_blocking {
        CUstream_flags::NON_BLOCKING
    } else {
        CUstream_flags::empty()
    })
}

fn get_context(m: &'static Machine, stream: CUstream, context: Out<CUcontext>) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    context.set(s.streams[id].context.handle())
}

/// Writes the context of a stream and NULL for the green context, because there are none.
fn get_contexts(
    m: &'static Machine,
    stream: CUstream,
    context: Out<CUcontext>,
    green: Out<*mut c_void>,
) -> Result {
    green.set_if(std::ptr::null_mut());
    get_context(m, stream, context)
}

fn get_device(m: &'static Machine, stream: CUstream, device: Out<CUdevice>) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    device.set(s.contexts[s.streams[id].context].reach.device as CUdevice)
}

/// Returns an error for an unknown attribute. Known attributes are stored and have no effect.
fn check_attribute(attribute: CUlaunchAttributeID) -> Result {
    require(matches!(attribute.0, 1 | 3 | 8 | 9 | 10), || {
        format!("a stream has no attribute {attribute:?}")
    })
}

fn get_attribute(
    m: &'static Machine,
    stream: CUstream,
    attribute: CUlaunchAttributeID,
    value: Out<CUlaunchAttributeValue>,
) -> Result {
    check_attribute(attribute)?;
    let mut s = m.state();
    let id = s.stream(stream)?;
    let stream = &s.streams[id];
    let mut found = stream
        .attributes
        .get(&attribute.0)
        .copied()
        .unwrap_or(CUlaunchAttributeValue::zeroed());
    match attribute {
        CUlaunchAttributeID::PRIORITY => found.words[0] = u64::from(stream.priority as u32),
        CUlaunchAttributeID::SYNCHRONIZATION_POLICY if found.words[0] == 0 => {
            found.words[0] = CUsynchronizationPolicy::AUTO.0 as u64;
        }
        _ => {}
    }

    value.set(found)
}

fn set_attribute(
    m: &'static Machine,
    stream: CUstream,
    attribute: CUlaunchAttributeID,
    value: In<CUlaunchAttributeValue>,
) -> Result {
    check_attribute(attribute)?;
    let value = value.get()?;
    let mut s = m.state();
    let id = s.stream(stream)?;
    if attribute == CUlaunchAttributeID::PRIORITY {
        s.streams[id].priority = (value.words[0] as i32).clamp(GREATEST_PRIORITY, 0);
    }
    s.streams[id].attributes.insert(attribute.0, value);
    Ok(())
}

fn copy_attributes(m: &'static Machine, to: CUstream, from: CUstream) -> Result {
    let mut s = m.state();
    let to = s.stream(to)?;
    let from = s.stream(from)?;
    s.streams[to].attributes = s.streams[from].attributes.clone();
    s.streams[to].priority = s.streams[from].priority;
    Ok(())
}

fn get_number(m: &'static Machine, stream: CUstream, number: Out<u64>) -> Result {
    let mut s = m.state();
    number.set(s.stream(stream)?.number())
}

fn launch_host_function(
    m: &'static Machine,
    stream: CUstream,
    function: CUhostFn,
    data: Out<c_void>,
) -> Result {
    let callback = Callback::new(function, data)?;
    let mut s = m.state();
    let id = s.stream(stream)?;
    s.submit(id, StreamWork::Host(callback)).map(drop)
}

/// Enqueues a host function. The synchronization mode has no effect here.
fn launch_host_function_in_mode(
    m: &'static Machine,
    stream: CUstream,
    function: CUhostFn,
    data: Out<c_void>,
    mode: c_uint,
) -> Result {
    require(mode <= 1, || format!("unknown mode {mode}"))?;
    launch_host_function(m, stream, function, data)
}

/// Enqueues a callback, which receives the error of the context if there is one by then.
fn add_callback(
    m: &'static Machine,
    stream: CUstream,
    callback: CUstreamCallback,
    data: Out<c_void>,
    flags: c_uint,
) -> Result {
    no_flags(flags)?;
    let callback = StreamCallback::new(callback, stream, data)?;
    let mut s = m.state();
    let id = s.stream(stream)?;
    capture::refuse_in_stream(&mut s, id)?;
    s.enqueue(id, Task::Callback(callback)).map(drop)
}

/// Returns an error for flags that a function does not know.
pub(crate) fn no_flags(flags: c_uint) -> Result {
    if flags == 0 {
        Ok(())
    } else {
        refuse(
            CUresult::INVALID_VALUE,
            format!("the flags {flags:#x} are unknown"),
        )
    }
}
