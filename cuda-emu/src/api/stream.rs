//! Streams.

use std::ffi::{c_int, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::host::Callback;
use crate::ffi::pointer::Out;
use crate::machine::Machine;
use crate::queue::Ticket;
use crate::state::capture;
use crate::state::objects::StreamKind;
use crate::work::Work;

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
        12000 cuStreamGetId cuStreamGetId(stream: CUstream, number: *mut u64) => get_number;
        10000 cuLaunchHostFunc cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) => launch_host_function;
    }
    more {}
}

fn create(m: &'static Machine, stream: Out<CUstream>, flags: CUstream_flags) -> Result {
    create_with_priority(m, stream, flags, 0)
}

fn create_with_priority(
    m: &'static Machine,
    stream: Out<CUstream>,
    flags: CUstream_flags,
    priority: c_int,
) -> Result {
    require(CUstream_flags::all().contains(flags), || format!("the flags {:#x} are unknown", flags.bits()))?;
    let mut s = m.state();
    let context = s.context()?;
    require(!stream.is_null(), || "the result pointer is NULL".into())?;
    let kind = if flags.contains(CUstream_flags::NON_BLOCKING) {
        StreamKind::NonBlocking
    } else {
        StreamKind::Blocking
    };
    stream.set(s.new_stream(context, kind, priority.clamp(-5, 0)).handle())
}

/// Destroying returns at once; work that is queued still runs.
fn destroy(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    require(stream.0 as usize > 2, || "a default stream cannot be destroyed".into())?;
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
    drop(s);
    waiting.iter().for_each(Ticket::wait);
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
        return Ok(s.contexts[s.streams[id].context].sticky.check()?);
    }
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
    flags.set(if non_blocking { CUstream_flags::NON_BLOCKING } else { CUstream_flags::empty() })
}

fn get_context(m: &'static Machine, stream: CUstream, context: Out<CUcontext>) -> Result {
    let mut s = m.state();
    let id = s.stream(stream)?;
    context.set(s.streams[id].context.handle())
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
    s.submit(id, Work::Host(callback)).map(drop)
}

/// Refuses flags that an entry point does not know.
pub(crate) fn no_flags(flags: c_uint) -> Result {
    if flags == 0 {
        Ok(())
    } else {
        refuse(CUresult::INVALID_VALUE, format!("the flags {flags:#x} are unknown"))
    }
}
