//! Events: positions in streams for which others wait and at which times are read.

use std::ffi::{c_float, c_uint};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::stream::no_flags;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::Out;
use crate::machine::Machine;
use crate::queue::Task;
use crate::state::objects::EventState;
use crate::state::{DriverState, capture};
use crate::work::StreamWork;
use crate::work::mark::EventMark;

/// The flag of a wait that becomes a node instead of an edge in a capture.
const EXTERNAL: c_uint = 1;

exports! {
    table {
        2000 cuEventCreate cuEventCreate(event: *mut CUevent, flags: CUevent_flags) => create;
        4000 cuEventDestroy cuEventDestroy_v2(event: CUevent) => destroy;
        2000 cuEventRecord cuEventRecord(event: CUevent, stream: CUstream) => record;
        2000 cuEventSynchronize cuEventSynchronize(event: CUevent) => synchronize;
        2000 cuEventQuery cuEventQuery(event: CUevent) => query;
        2000 cuEventElapsedTime cuEventElapsedTime(milliseconds: *mut c_float, start: CUevent, end: CUevent) => elapsed;
        3020 cuStreamWaitEvent cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) => wait;
        11010 cuEventRecordWithFlags cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: CUevent_record_flags) => record_with_flags;
        12080 cuEventElapsedTime cuEventElapsedTime_v2(milliseconds: *mut c_float, start: CUevent, end: CUevent) => elapsed;
    }
    more {
        2000 cuEventDestroy cuEventDestroy(event: CUevent) => destroy;
    }
}

fn create(m: &'static Machine, event: Out<CUevent>, flags: CUevent_flags) -> Result {
    require(CUevent_flags::all().contains(flags), || {
        format!("the flags {:#x} are unknown", flags.bits())
    })?;
    let alone = !flags.contains(CUevent_flags::INTERPROCESS)
        || flags.contains(CUevent_flags::DISABLE_TIMING);
    require(alone, || {
        "an interprocess event needs DISABLE_TIMING".into()
    })?;
    let mut s = m.state();
    let context = s.context()?;
    require(!event.is_null(), || "the result pointer is NULL".into())?;
    event.set(
        s.events
            .insert(EventState {
                context,
                flags,
                cell: Arc::default(),
                captured: None,
            })
            .handle(),
    )
}

/// Destroys an event immediately. Work that waits for the event still does.
fn destroy(m: &'static Machine, event: CUevent) -> Result {
    let mut s = m.state();
    let id = s.events.find(event)?;
    s.events.remove(id);
    Ok(())
}

fn record(m: &'static Machine, event: CUevent, stream: CUstream) -> Result {
    record_with_flags(m, event, stream, CUevent_record_flags::empty())
}

fn record_with_flags(
    m: &'static Machine,
    event: CUevent,
    stream: CUstream,
    flags: CUevent_record_flags,
) -> Result {
    let external = flags.contains(CUevent_record_flags::EXTERNAL);
    no_flags((flags - CUevent_record_flags::EXTERNAL).bits())?;
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let id = s.events.find(event)?;
    if s.events[id].context != s.streams[stream].context {
        return refuse(
            CUresult::INVALID_HANDLE,
            "event and stream belong to different contexts",
        );
    }

    if s.streams[stream].capture.is_some() {
        if external {
            let cell = s.events[id].cell.clone();
            return s.submit(stream, StreamWork::Record(cell)).map(drop);
        }
        return capture::record_event(&mut s, stream, id);
    }

    require(!external, || "EXTERNAL needs a stream that captures".into())?;
    capture::refuse_implicit(&mut s, stream)?;
    let reach = s.events[id].cell.record();

    // This record replaces a former one in a capture.
    s.events[id].captured = None;
    s.enqueue(stream, Task::Mark(reach)).map(drop)
}

fn wait(m: &'static Machine, stream: CUstream, event: CUevent, flags: c_uint) -> Result {
    no_flags(flags & !EXTERNAL)?;
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let id = s.events.find(event)?;
    if flags & EXTERNAL != 0 && s.streams[stream].capture.is_some() {
        let cell = s.events[id].cell.clone();
        return s.submit(stream, StreamWork::Wait(cell)).map(drop);
    }

    if s.events[id].captured.is_some() || s.streams[stream].capture.is_some() {
        return capture::wait_event(&mut s, stream, id);
    }

    // An event that is already reached needs no task, unless the order of work is recorded.
    match s.events[id].cell.last() {
        Some(mark) if mark.at().is_none() || m.device.order.is_on() => {
            s.enqueue(stream, Task::AfterMark(mark)).map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns the last record of an event that is not part of a capture.
fn last(s: &mut DriverState, event: CUevent) -> Result<Option<Arc<EventMark>>> {
    let id = s.events.find(event)?;
    capture::refuse_captured_event(s, id)?;
    Ok(s.events[id].cell.last())
}

/// Records that the program knows that an event is reached.
fn learn(m: &'static Machine, mark: &EventMark) {
    if let Some(moment) = mark.moment() {
        m.device.order.learn(moment);
    }
}

fn synchronize(m: &'static Machine, event: CUevent) -> Result {
    let mut s = m.state();
    let mark = last(&mut s, event)?;
    let context = s.events[s.events.find(event)?].context;
    let sticky = s.contexts[context].sticky.clone();
    drop(s);
    if let Some(mark) = mark {
        let waits = m.device.turns.program_waits();
        let thread = m.device.activity.program_waits(mark.ready());
        mark.wait();
        drop(thread);
        drop(waits);
        learn(m, &mark);
    }

    Ok(sticky.check()?)
}

fn query(m: &'static Machine, event: CUevent) -> Result {
    let mut s = m.state();
    let mark = last(&mut s, event)?;
    let context = s.events[s.events.find(event)?].context;

    // The mark must be read before the error, because a fault reaches all marks. In the other order
    // a fault in between would look like success.
    let reached = mark.as_ref().is_none_or(|mark| mark.at().is_some());
    s.contexts[context].sticky.check()?;
    if let Some(mark) = mark.filter(|_| reached) {
        learn(m, &mark);
    }

    if !reached {
        m.device.turns.program_looks();
        return Err(CUresult::NOT_READY.into());
    }

    Ok(())
}

fn elapsed(
    m: &'static Machine,
    milliseconds: Out<c_float>,
    start: CUevent,
    end: CUevent,
) -> Result {
    let mut s = m.state();
    let mut moment = |event| {
        let mark = last(&mut s, event)?;
        let flags = s.events[s.events.find(event)?].flags;
        if flags.contains(CUevent_flags::DISABLE_TIMING) {
            return refuse(
                CUresult::INVALID_HANDLE,
                "the event was created with DISABLE_TIMING",
            );
        }

        match mark {
            None => refuse(CUresult::INVALID_HANDLE, "the event was never recorded"),
            Some(mark) => mark.at().ok_or_else(|| CUresult::NOT_READY.into()),
        }
    };
    let start = moment(start)?;
    let end = moment(end)?;

    // The events may be in either order, and a `Duration` cannot be negative.
    let forward = end.saturating_duration_since(start).as_secs_f64();
    let backward = start.saturating_duration_since(end).as_secs_f64();
    milliseconds.set(((forward - backward) * 1e3) as f32)
}
