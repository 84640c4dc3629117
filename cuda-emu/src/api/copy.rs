//! Copies and fills, both synchronous and on streams.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::graph::compare::compare_streams;
use crate::machine::Machine;
use crate::state::capture;
use crate::work::copy::{CopyEnd, CopyWork, FillWork, Location};
use crate::work::order::CALLS;
use crate::work::{StreamWork, WorkSite};

exports! {
    table {
        3020 cuMemcpyHtoD cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) => copy_to_device;
        3020 cuMemcpyDtoH cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) => copy_to_host;
        3020 cuMemcpyDtoD cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy_on_device;
        3020 cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) => copy_to_device_async;
        3020 cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy_to_host_async;
        3020 cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy_on_device_async;
        3020 cuMemsetD8 cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) => fill_8;
        3020 cuMemsetD16 cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) => fill_16;
        3020 cuMemsetD32 cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) => fill_32;
        3020 cuMemsetD8Async cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) => fill_8_async;
        3020 cuMemsetD16Async cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) => fill_16_async;
        3020 cuMemsetD32Async cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) => fill_32_async;
        4000 cuMemcpy cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy_unified;
        4000 cuMemcpyAsync cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy_unified_async;
        4000 cuMemcpyPeer cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize) => copy_peer;
        4000 cuMemcpyPeerAsync cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream) => copy_peer_async;
    }
    more {}
}

/// Runs a copy or a fill before the call returns, after the work of the legacy stream.
pub(crate) fn run_now(m: &'static Machine, work: StreamWork) -> Result {
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;
    check(m, &work)?;
    let waiting = s.before_synchronous(context)?;
    let sticky = s.contexts[context].sticky.clone();

    // Never wait while holding the lock, because the work may need calls of other threads.
    drop(s);
    for ticket in &waiting {
        ticket.wait();
    }

    sticky.check()?;
    perform(m, &work).or_else(|error| refuse(CUresult::INVALID_VALUE, error.text))
}

/// Runs the work of a call and compares it with unordered work of streams.
fn perform(m: &'static Machine, work: &StreamWork) -> Result {
    let order = &m.device.order;
    let moment = order.call();
    let site = WorkSite {
        traced: order.is_on().then_some("a synchronous call"),
        queue: CALLS,
        siblings: false,
    };
    let touched = work.run(m.device, site);
    m.device.activity.changed();
    if let Some(touched) = touched? {
        compare_streams(
            m.device,
            &moment,
            (work.name(), "a synchronous call"),
            Arc::new(touched),
        );
    }

    order.ended(&moment);
    order.learn(&moment);
    Ok(())
}

fn check(m: &'static Machine, work: &StreamWork) -> Result {
    match work {
        StreamWork::Copy(copy) => copy.check(m.device),
        StreamWork::Fill(fill) => fill.check(m.device),
        _ => Ok(()),
    }
}

/// Enqueues a copy or a fill in a stream.
///
/// A copy to memory that is not pinned has ended when the call returns.
pub(crate) fn run_async(m: &'static Machine, stream: CUstream, work: StreamWork) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    check(m, &work)?;
    let pageable = matches!(
        &work,
        StreamWork::Copy(CopyWork {
            to: CopyEnd {
                place: Location::Host(_),
                ..
            },
            ..
        })
    );
    let ticket = s.submit(stream, work)?;
    let sticky = s.contexts[s.streams[stream].context].sticky.clone();
    drop(s);
    if let Some(ticket) = ticket.filter(|_| pageable) {
        ticket.wait();
        sticky.check()?;
    }

    Ok(())
}

fn copy_to_device(m: &'static Machine, to: CUdeviceptr, from: In<c_void>, bytes: usize) -> Result {
    if bytes == 0 {
        return m.state().context().map(drop);
    }
    require(!from.is_null(), || "the source is NULL".into())?;
    let from = Location::of(m.device, from.address() as u64);
    run_now(
        m,
        StreamWork::Copy(CopyWork::plain(Location::Device(to), from, bytes)),
    )
}

fn copy_to_host(m: &'static Machine, to: Out<c_void>, from: CUdeviceptr, bytes: usize) -> Result {
    if bytes == 0 {
        return m.state().context().map(drop);
    }
    require(!to.is_null(), || "the destination is NULL".into())?;
    let to = Location::of(m.device, to.address() as u64);
    run_now(
        m,
        StreamWork::Copy(CopyWork::plain(to, Location::Device(from), bytes)),
    )
}

fn copy_on_device(m: &'static Machine, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result {
    run_now(
        m,
        StreamWork::Copy(CopyWork::plain(
            Location::Device(to),
            Location::Device(from),
            bytes,
        )),
    )
}

fn copy_unified(m: &'static Machine, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result {
    run_now(
        m,
        StreamWork::Copy(CopyWork::plain(
            Location::of(m.device, to),
            Location::of(m.device, from),
            bytes,
        )),
    )
}

/// Returns the source of an asynchronous copy.
///
/// Pageable memory is read immediately, and pinned memory when the copy runs. A captured copy runs
/// later, so it is never read immediately.
fn staged(m: &'static Machine, from: u64, bytes: usize, stream: CUstream) -> Result<Location> {
    let place = Location::of(m.device, from);
    let mut s = m.state();
    let stream = s.stream(stream)?;
    Ok(match place {
        Location::Host(span) if s.streams[stream].capture.is_none() => {
            Location::Staged(Arc::from(span.bytes(bytes)))
        }
        place => place,
    })
}

fn copy_to_device_async(
    m: &'static Machine,
    to: CUdeviceptr,
    from: In<c_void>,
    bytes: usize,
    stream: CUstream,
) -> Result {
    require(!from.is_null() || bytes == 0, || {
        "the source is NULL".into()
    })?;
    let from = staged(m, from.address() as u64, bytes, stream)?;
    run_async(
        m,
        stream,
        StreamWork::Copy(CopyWork::plain(Location::Device(to), from, bytes)),
    )
}

fn copy_to_host_async(
    m: &'static Machine,
    to: Out<c_void>,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    require(!to.is_null() || bytes == 0, || {
        "the destination is NULL".into()
    })?;
    let to = Location::of(m.device, to.address() as u64);
    run_async(
        m,
        stream,
        StreamWork::Copy(CopyWork::plain(to, Location::Device(from), bytes)),
    )
}

fn copy_on_device_async(
    m: &'static Machine,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    run_async(
        m,
        stream,
        StreamWork::Copy(CopyWork::plain(
            Location::Device(to),
            Location::Device(from),
            bytes,
        )),
    )
}

fn copy_unified_async(
    m: &'static Machine,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    let from = staged(m, from, bytes, stream)?;
    run_async(
        m,
        stream,
        StreamWork::Copy(CopyWork::plain(Location::of(m.device, to), from, bytes)),
    )
}

fn fill(to: u64, value: u32, size: usize, count: usize) -> StreamWork {
    StreamWork::Fill(FillWork {
        to,
        pitch: 0,
        value,
        size,
        width: count,
        height: 1,
    })
}

fn fill_8(m: &'static Machine, to: CUdeviceptr, value: u8, count: usize) -> Result {
    run_now(m, fill(to, value.into(), 1, count))
}

fn fill_16(m: &'static Machine, to: CUdeviceptr, value: u16, count: usize) -> Result {
    run_now(m, fill(to, value.into(), 2, count))
}

fn fill_32(m: &'static Machine, to: CUdeviceptr, value: c_uint, count: usize) -> Result {
    run_now(m, fill(to, value, 4, count))
}

fn fill_8_async(
    m: &'static Machine,
    to: CUdeviceptr,
    value: u8,
    count: usize,
    stream: CUstream,
) -> Result {
    run_async(m, stream, fill(to, value.into(), 1, count))
}

fn fill_16_async(
    m: &'static Machine,
    to: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> Result {
    run_async(m, stream, fill(to, value.into(), 2, count))
}

fn fill_32_async(
    m: &'static Machine,
    to: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> Result {
    run_async(m, stream, fill(to, value, 4, count))
}

/// Returns an error if a context of a peer copy does not exist. The addresses identify the devices.
fn check_peers(m: &'static Machine, to: CUcontext, from: CUcontext) -> Result {
    let s = m.state();
    s.contexts.find(to)?;
    s.contexts.find(from).map(drop)
}

fn copy_peer(
    m: &'static Machine,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Result {
    check_peers(m, to_context, from_context)?;
    copy_on_device(m, to, from, bytes)
}

fn copy_peer_async(
    m: &'static Machine,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Result {
    check_peers(m, to_context, from_context)?;
    copy_on_device_async(m, to, from, bytes, stream)
}
