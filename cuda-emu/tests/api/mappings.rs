//! Virtual memory management.

use std::ffi::c_void;

use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu_with, make, ok};

/// What sizes are a multiple of.
const PIECE: usize = 2 << 20;

fn emu() -> Emu {
    emu_with(EmulatorConfig {
        memory: 4 * PIECE as u64,
        devices: 2,
        ..EmulatorConfig::default()
    })
}

fn location(device: i32) -> CUmemLocation {
    CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: device,
    }
}

fn properties() -> CUmemAllocationProp {
    CUmemAllocationProp {
        r#type: CUmemAllocationType::PINNED,
        location: location(0),
        ..CUmemAllocationProp::zeroed()
    }
}

fn access(device: i32, flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location(device),
        flags,
    }
}

/// A piece of memory at an address, for its device to use.
fn map(emu: &Emu, at: u64) -> u64 {
    let handle = make!(emu, cuMemCreate(PIECE, &properties(), 0));
    ok!(emu, cuMemMap(at, PIECE, 0, handle, 0));
    ok!(
        emu,
        cuMemSetAccess(at, PIECE, &access(0, CUmemAccess_flags::PROT_READWRITE), 1)
    );
    handle
}

#[test]
fn memory_grows_under_one_address() {
    let emu = emu();
    let least: usize = make!(
        emu,
        cuMemGetAllocationGranularity(&properties(), CUmemAllocationGranularity_flags::MINIMUM)
    );
    assert_eq!(least, PIECE);
    let at: u64 = make!(emu, cuMemAddressReserve(1000 * PIECE, 0, 0, 0));
    assert!(at.is_multiple_of(PIECE as u64));
    assert_eq!(code!(emu, cuMemsetD8_v2(at, 0, 1)), 1, "nothing is there");
    map(&emu, at);
    assert_eq!(
        code!(emu, cuMemsetD32_v2(at, 7, PIECE / 2)),
        1,
        "half of it is there"
    );
    map(&emu, at + PIECE as u64);
    ok!(emu, cuMemsetD32_v2(at, 7, PIECE / 2));
    let word = at + PIECE as u64;
    assert_eq!(
        emu.launch(emu.kernel("add"), 1, CUstream::NULL, &[word, 5]),
        0
    );
    ok!(emu, cuCtxSynchronize());
    assert_eq!(emu.download(word - 4, 3), [7, 12, 7]);
    assert_eq!(emu.findings(), "");
}

#[test]
fn memory_keeps_what_it_holds_when_it_moves() {
    let emu = emu();
    let at: u64 = make!(emu, cuMemAddressReserve(4 * PIECE, 0, 0, 0));
    let handle = map(&emu, at);
    ok!(emu, cuMemsetD32_v2(at, 7, 4));
    let mut again = 0;
    ok!(
        emu,
        cuMemRetainAllocationHandle(&mut again, at as *mut c_void)
    );
    assert_eq!(again, handle);
    ok!(emu, cuMemRelease(again));
    assert_eq!(
        code!(emu, cuMemMap(at + PIECE as u64, PIECE, 0, handle, 0)),
        801,
        "it is mapped elsewhere"
    );
    ok!(emu, cuMemUnmap(at, PIECE));
    assert_eq!(code!(emu, cuMemsetD8_v2(at, 0, 1)), 1);
    let other = at + 3 * PIECE as u64;
    ok!(emu, cuMemMap(other, PIECE, 0, handle, 0));
    assert_eq!(
        code!(emu, cuMemsetD8_v2(other, 0, 1)),
        1,
        "nobody may touch it yet"
    );
    let mut flags = 7;
    ok!(emu, cuMemGetAccess(&mut flags, &location(0), other));
    assert_eq!(flags, 0);
    ok!(
        emu,
        cuMemSetAccess(
            other,
            PIECE,
            &access(0, CUmemAccess_flags::PROT_READWRITE),
            1
        )
    );
    ok!(emu, cuMemGetAccess(&mut flags, &location(0), other));
    assert_eq!((flags, emu.download(other, 4)), (3, vec![7; 4]));
    let mut found = CUmemAllocationProp::zeroed();
    ok!(
        emu,
        cuMemGetAllocationPropertiesFromHandle(&mut found, handle)
    );
    assert_eq!(found.location.r#type, CUmemLocationType::DEVICE);
}

#[test]
fn memory_is_counted_until_it_is_released_and_unmapped() {
    let emu = emu();
    let free = || {
        let (mut free, mut total) = (0, 0);
        ok!(emu, cuMemGetInfo_v2(&mut free, &mut total));
        free / PIECE
    };
    let at: u64 = make!(emu, cuMemAddressReserve(8 * PIECE, 0, 0, 0));
    let handle = map(&emu, at);
    assert_eq!(
        (
            free(),
            code!(emu, cuMemCreate(&mut 0, 4 * PIECE, &properties(), 0))
        ),
        (3, 2)
    );
    ok!(emu, cuMemRelease(handle));
    assert_eq!((free(), code!(emu, cuMemRelease(handle))), (3, 1));
    assert_eq!(
        code!(emu, cuMemAddressFree(at, 8 * PIECE)),
        1,
        "something is mapped"
    );
    ok!(emu, cuMemUnmap(at, PIECE));
    assert_eq!((free(), code!(emu, cuMemUnmap(at, PIECE))), (4, 1));
    ok!(emu, cuMemAddressFree(at, 8 * PIECE));
    assert_eq!(code!(emu, cuMemAddressFree(at, 8 * PIECE)), 1);
}

#[test]
fn what_does_not_fit_is_refused() {
    let emu = emu();
    let at: u64 = make!(emu, cuMemAddressReserve(2 * PIECE, 0, 0, 0));
    let handle = make!(emu, cuMemCreate(PIECE, &properties(), 0));
    let shared = CUmemAllocationProp {
        requestedHandleTypes: CUmemAllocationHandleType(1),
        ..properties()
    };
    let set = |device, flags| code!(emu, cuMemSetAccess(at, PIECE, &access(device, flags), 1));
    ok!(emu, cuMemMap(at, PIECE, 0, handle, 0));
    for (what, code, wanted) in [
        (
            "a part of a page",
            code!(emu, cuMemAddressReserve(&mut 0, 4096, 0, 0, 0)),
            1,
        ),
        (
            "memory of a part of a page",
            code!(emu, cuMemCreate(&mut 0, 4096, &properties(), 0)),
            1,
        ),
        (
            "memory for others",
            code!(emu, cuMemCreate(&mut 0, PIECE, &shared, 0)),
            801,
        ),
        (
            "addresses of nobody",
            code!(emu, cuMemMap(at + 2 * PIECE as u64, PIECE, 0, handle, 0)),
            801,
        ),
        (
            "no handle",
            code!(emu, cuMemMap(at + PIECE as u64, PIECE, 0, 5, 0)),
            1,
        ),
        ("half a mapping", code!(emu, cuMemUnmap(at, PIECE / 2)), 1),
        (
            "what is not mapped",
            code!(emu, cuMemUnmap(at + PIECE as u64, PIECE)),
            1,
        ),
        (
            "another device",
            set(1, CUmemAccess_flags::PROT_READWRITE),
            801,
        ),
        ("reading only", set(0, CUmemAccess_flags::PROT_READ), 801),
    ] {
        assert_eq!(code, wanted, "{what}");
    }
}
