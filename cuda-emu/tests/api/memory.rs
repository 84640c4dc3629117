//! Allocation, copies and fills.

use std::ffi::c_void;

use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::CUmemhostregister_flags;

use crate::harness::{code, emu, emu_with, make, ok};
use crate::streams::Gate;

#[test]
fn bytes_come_back() {
    let emu = emu();
    let words: Vec<u32> = (0..1000).collect();
    let (a, b) = (emu.upload(&words), emu.alloc(4000));
    assert!(a.is_multiple_of(256));
    ok!(emu, cuMemcpyDtoD_v2(b, a, 4000));
    assert_eq!(emu.download(b, 1000), words);
    ok!(emu, cuMemsetD32_v2(b + 4, 0x01020304, 2));
    ok!(emu, cuMemsetD8_v2(b + 8, 0xff, 1));
    ok!(emu, cuMemsetD16_v2(b + 10, 0x5566, 1));
    assert_eq!(emu.download(b, 4), [0, 0x01020304, 0x556603ff, 3]);
    assert_eq!(emu.findings(), "");
}

#[test]
fn memory_runs_out_and_comes_back() {
    let emu = emu_with(EmulatorConfig {
        memory: 1 << 20,
        ..EmulatorConfig::default()
    });
    let mut address = 0;
    let first = emu.alloc(1 << 19);
    assert_eq!(code!(emu, cuMemAlloc_v2(&mut address, (1 << 19) + 1)), 2);
    let (mut free, mut total) = (0, 0);
    ok!(emu, cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!((free, total), (1 << 19, 1 << 20));
    ok!(emu, cuMemFree_v2(first));
    ok!(emu, cuMemAlloc_v2(&mut address, 1 << 20));
}

#[test]
fn wrong_addresses_are_refused() {
    let emu = emu();
    let a = emu.upload(&[1, 2, 3, 4]);
    let mut out = [0u32; 8];
    let cases = [
        (
            "past the end",
            code!(emu, cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), a, 20)),
        ),
        ("inside out", code!(emu, cuMemcpyDtoD_v2(a + 8, a, 16))),
        ("no allocation", code!(emu, cuMemsetD8_v2(64, 0, 1))),
        ("misaligned fill", code!(emu, cuMemsetD32_v2(a + 2, 0, 1))),
        ("free inside", code!(emu, cuMemFree_v2(a + 4))),
        ("free of nothing", code!(emu, cuMemFree_v2(0))),
        (
            "pinned free of device memory",
            code!(emu, cuMemFreeHost(a as *mut _)),
        ),
        ("no bytes", code!(emu, cuMemAlloc_v2(&mut 0, 0))),
    ];
    for (what, code) in cases {
        assert_eq!(code, 1, "{what}");
    }

    ok!(emu, cuMemFree_v2(a));
    assert_eq!(code!(emu, cuMemFree_v2(a)), 1, "freed twice");
    assert_eq!(
        code!(emu, cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), a, 4)),
        1,
        "read after free"
    );
}

#[test]
fn bytes_that_nobody_wrote_are_a_finding() {
    let emu = emu();
    let a = emu.alloc(16);
    ok!(emu, cuMemsetD8_v2(a, 7, 6));
    emu.download(a, 1);
    assert_eq!(emu.findings(), "");
    emu.download(a, 2);
    let found = emu.findings();
    assert!(
        found.starts_with(&format!(
            "UninitialisedCopy: a copy to the host reads 0x{:x}",
            a + 6
        )),
        "{found}"
    );
}

#[test]
fn pinned_memory_has_one_address_for_both_sides() {
    let emu = emu();
    let pinned = emu.pinned(4);
    let address: u64 = make!(emu, cuMemHostGetDevicePointer_v2(pinned.cast(), 0));
    assert_eq!(address, pinned as u64);
    ok!(emu, cuMemsetD32_v2(address, 9, 4));
    // SAFETY: four words were allocated and nothing runs.
    assert_eq!(unsafe { std::slice::from_raw_parts(pinned, 4) }, [9; 4]);
    ok!(emu, cuMemFreeHost(pinned.cast()));
    assert_eq!(code!(emu, cuMemFreeHost(pinned.cast())), 1);
}

#[test]
fn memory_is_freed_in_stream_order() {
    let emu = emu();
    let stream = emu.stream();
    let a: u64 = make!(emu, cuMemAllocAsync(16, stream));
    ok!(emu, cuMemsetD32Async(a, 5, 4, stream));
    let b = emu.alloc(16);
    ok!(emu, cuMemcpyDtoDAsync_v2(b, a, 16, stream));
    ok!(emu, cuMemFreeAsync(a, stream));
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(emu.download(b, 4), [5; 4]);
    assert_eq!(code!(emu, cuMemFreeAsync(a, stream)), 1);
}

#[test]
fn memory_of_the_program_is_pinned_and_read_when_the_copy_runs() {
    let emu = emu();
    let mut words = vec![1u32; 1024];
    let (start, bytes) = (words.as_mut_ptr().cast::<c_void>(), 4096);
    let read_only = CUmemhostregister_flags::READ_ONLY;
    let register = |start, bytes, flags| code!(emu, cuMemHostRegister_v2(start, bytes, flags));
    assert_eq!(register(start, 0, read_only), 1);
    assert_eq!(register(std::ptr::null_mut(), 16, read_only), 1);
    assert_eq!(
        register(start, bytes, CUmemhostregister_flags::IOMEMORY),
        801
    );
    assert_eq!(
        register(start, bytes, CUmemhostregister_flags::from_bits_retain(64)),
        1
    );
    assert_eq!(register(start, bytes, read_only), 0);
    assert_eq!(
        register(start.wrapping_byte_add(4000), bytes, read_only),
        712,
        "some of it is pinned already"
    );
    assert_eq!(
        register(emu.pinned(4).cast(), 16, read_only),
        712,
        "it was allocated pinned"
    );
    let address: u64 = make!(emu, cuMemHostGetDevicePointer_v2(start, 0));
    assert_eq!(address, start as u64);

    let (stream, gate) = (emu.stream(), Gate::new());
    ok!(emu, cuGraphLaunch(gate.exec(&emu), stream));
    let (a, b) = (emu.alloc(bytes), emu.alloc(bytes));
    ok!(emu, cuMemcpyHtoDAsync_v2(a, start, bytes, stream));
    let pageable = [1u32; 1024];
    ok!(
        emu,
        cuMemcpyHtoDAsync_v2(b, pageable.as_ptr().cast(), bytes, stream)
    );

    // SAFETY: the words are there, and the copy of them has not begun.
    unsafe { start.cast::<u32>().write_volatile(7) };
    gate.open();
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(
        (emu.download(a, 2), emu.download(b, 2)),
        (vec![7, 1], vec![1, 1])
    );

    assert_eq!(
        code!(emu, cuMemHostUnregister(start.wrapping_byte_add(4))),
        713
    );
    ok!(emu, cuMemHostUnregister(start));
    assert_eq!(code!(emu, cuMemHostUnregister(start)), 713);
    drop(words);
}
