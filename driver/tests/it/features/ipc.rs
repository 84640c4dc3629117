//! Memory and events that are shared with other processes.
//!
//! The emulator runs in one process, so it refuses to share. A driver that counts its calls checks
//! the requests.

use warpwright_driver::memory::MemoryHandle;
use warpwright_driver::ordering::EventHandle;
use warpwright_driver::prelude::*;
use warpwright_driver::sys::{
    Api, CUdeviceptr, CUevent, CUipcEventHandle, CUipcMem_flags, CUipcMemHandle, CUresult,
};

use super::{context, text};
use crate::fake;

#[test]
fn the_emulator_shares_nothing() {
    let context = context();
    let buffer = Buffer::<u32>::zeroed(&context, 4).unwrap();
    let event = Event::shared(&context).unwrap();
    let (memory, place) = (
        MemoryHandle { bytes: [0; 64] },
        EventHandle { bytes: [0; 64] },
    );

    // SAFETY: the emulator opens nothing and exports nothing.
    let (exported, opened, known) = unsafe {
        (
            buffer.export(),
            Buffer::<u32>::open(&context, &memory, 4),
            Event::open(&context, &place),
        )
    };
    for (call, result) in [
        ("cuIpcGetMemHandle", exported.map(drop)),
        ("cuIpcOpenMemHandle_v2", opened.map(drop)),
        ("cuIpcGetEventHandle", event.export().map(drop)),
        ("cuIpcOpenEventHandle", known.map(drop)),
    ] {
        let text = text(result);
        assert!(
            text.starts_with(&format!("{call}: CUDA_ERROR_NOT_SUPPORTED")),
            "{text}"
        );
    }
}

#[test]
fn memory_of_a_pool_is_not_exported() {
    let stream = Stream::new(&context()).unwrap();
    let buffer = stream.alloc::<u32>(4).unwrap().labelled("scratch");
    // SAFETY: it is refused.
    let refused = unsafe { buffer.export() };
    let wanted =
        "exporting memory: scratch was not allocated by Buffer::uninit, zeroed or from_slice";
    assert_eq!(text(refused), wanted);
}

#[test]
fn a_wait_for_a_shared_event_orders_nothing_that_is_known() {
    let context = context();
    let streams = [(); 2].map(|()| Stream::new(&context).unwrap());
    let buffer = Buffer::<u32>::zeroed(&context, 4).unwrap();
    let event = Event::shared(&context).unwrap();
    streams[0].fill(&buffer, 1).unwrap();
    event.record(&streams[0]).unwrap();
    streams[1].wait(&event).unwrap();
    let refused = streams[1].fill(&buffer, 2);
    assert!(
        matches!(refused, Err(Error::UnorderedStreams { .. })),
        "another process may have recorded it"
    );

    // SAFETY: the event was recorded here last.
    unsafe { streams[1].assume_after(&streams[0]) };
    streams[1].fill(&buffer, 2).unwrap();
}

/// Where the memory of the other process is in this one.
const OPENED: u64 = 0x5000_0100;

unsafe extern "C" fn export(handle: *mut CUipcMemHandle, _: CUdeviceptr) -> CUresult {
    // SAFETY: the crate passes a place for the handle.
    unsafe { (*handle).reserved = [-1; 64] };
    CUresult::SUCCESS
}

unsafe extern "C" fn open(
    to: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: CUipcMem_flags,
) -> CUresult {
    assert_eq!((handle.reserved, flags.bits()), ([-1; 64], 1));
    // SAFETY: the crate passes a place for the address.
    unsafe { *to = OPENED };
    CUresult::SUCCESS
}

unsafe extern "C" fn range(
    base: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    assert_eq!(address, OPENED);
    // SAFETY: the crate passes places for both numbers.
    unsafe { (*base, *bytes) = (OPENED - 0x100, 0x200) };
    CUresult::SUCCESS
}

unsafe extern "C" fn close(address: CUdeviceptr) -> CUresult {
    assert_eq!(address, OPENED);
    fake::state(|s| s.calls.push("cuIpcCloseMemHandle"));
    CUresult::SUCCESS
}

unsafe extern "C" fn export_event(handle: *mut CUipcEventHandle, _: CUevent) -> CUresult {
    // SAFETY: the crate passes a place for the handle.
    unsafe { (*handle).reserved = [5; 64] };
    CUresult::SUCCESS
}

#[test]
fn memory_is_opened_within_its_size_and_closed() {
    let api = Api {
        cuIpcGetMemHandle: Some(export),
        cuIpcOpenMemHandle_v2: Some(open),
        cuIpcCloseMemHandle: Some(close),
        cuMemGetAddressRange_v2: Some(range),
        cuIpcGetEventHandle: Some(export_event),
        ..fake::api()
    };
    let context = Context::new(
        &Driver::from_library(fake::library(api))
            .unwrap()
            .device(0)
            .unwrap(),
    )
    .unwrap();
    let buffer = Buffer::<u32>::uninit(&context, 4).unwrap();

    // SAFETY: nothing is behind these addresses, and nothing uses them.
    let (handle, whole, more) = unsafe {
        let handle = buffer.export().unwrap();
        (
            handle,
            Buffer::<u32>::open(&context, &handle, 64).unwrap(),
            Buffer::<u32>::open(&context, &handle, 65),
        )
    };
    assert_eq!(handle.bytes, [255; 64]);
    assert_eq!(
        text(more),
        "opening memory: 65 elements are 260 bytes, and the memory has 256"
    );
    assert_eq!(
        (whole.address(), fake::count("cuIpcCloseMemHandle")),
        (OPENED, 1)
    );
    drop(whole);
    assert_eq!(fake::count("cuIpcCloseMemHandle"), 2);
    assert_eq!(
        Event::shared(&context).unwrap().export().unwrap().bytes,
        [5; 64]
    );
}
