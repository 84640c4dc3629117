//! Several devices, contexts of the program's own, peer access, and whose memory a kernel reaches.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, emu_with, make, ok};

fn two() -> Emu {
    emu_with(EmulatorConfig {
        devices: 2,
        memory: 1 << 20,
        ..EmulatorConfig::default()
    })
}

/// A context on a device, current.
fn context_on(emu: &Emu, device: i32) -> CUcontext {
    make!(
        emu,
        cuCtxCreate_v4(null_mut(), CUctx_flags::empty(), device)
    )
}

#[test]
fn each_device_has_its_place_and_its_memory() {
    let emu = two();
    let mut count = 0;
    ok!(emu, cuDeviceGetCount(&mut count));
    assert_eq!(count, 2);
    let mut id = [0 as c_char; 16];
    ok!(emu, cuDeviceGetPCIBusId(id.as_mut_ptr(), 16, 1));

    // SAFETY: the call wrote a string with its NUL.
    let text = unsafe { CStr::from_ptr(id.as_ptr()) };
    assert_eq!(text, c"0000:02:00.0");
    let device: i32 = make!(emu, cuDeviceGetByPCIBusId(text.as_ptr()));
    assert_eq!(device, 1);
    assert_eq!(code!(emu, cuDeviceGet(&mut 0, 2)), 101);
    let (one, two): (CUuuid, CUuuid) = (
        make!(emu, cuDeviceGetUuid_v2(0)),
        make!(emu, cuDeviceGetUuid_v2(1)),
    );
    assert_ne!(one.bytes, two.bytes);

    context_on(&emu, 1);
    let mut device = 7;
    ok!(emu, cuCtxGetDevice(&mut device));
    assert_eq!(device, 1);
    emu.alloc(1 << 20);
    assert_eq!(
        code!(emu, cuMemAlloc_v2(&mut 0, 4)),
        2,
        "the memory of device 1 is used up"
    );
    ok!(emu, cuCtxPopCurrent_v2(null_mut()));
    emu.alloc(1 << 20);
}

#[test]
fn a_kernel_reaches_a_peer_when_access_is_enabled() {
    let emu = two();
    let own: CUcontext = make!(emu, cuCtxGetCurrent());
    let theirs = context_on(&emu, 1);
    let p = emu.upload(&[1]);
    ok!(emu, cuCtxSetCurrent(own));
    let mut can = 0;
    ok!(emu, cuDeviceCanAccessPeer(&mut can, 0, 1));
    assert_eq!(can, 1);
    assert_eq!(code!(emu, cuCtxDisablePeerAccess(theirs)), 705);
    ok!(emu, cuCtxEnablePeerAccess(theirs, 0));
    assert_eq!(code!(emu, cuCtxEnablePeerAccess(theirs, 0)), 704);
    assert_eq!(code!(emu, cuCtxEnablePeerAccess(own, 0)), 101);
    let add = emu.kernel("add");
    assert_eq!(emu.launch(add, 1, CUstream::NULL, &[p, 4]), 0);
    assert_eq!(emu.download(p, 1), [5]);
    ok!(emu, cuCtxDisablePeerAccess(theirs));
    assert_eq!(emu.launch(add, 1, CUstream::NULL, &[p, 4]), 0);
    assert_eq!(code!(emu, cuCtxSynchronize()), 700);
    assert!(
        emu.findings()
            .contains("the address is memory of device 1, to which")
    );
}

#[test]
fn access_ends_with_the_peer() {
    let emu = two();
    let own: CUcontext = make!(emu, cuCtxGetCurrent());
    let theirs = context_on(&emu, 1);
    let _staying = context_on(&emu, 1);
    let p = emu.upload(&[1]);
    ok!(emu, cuCtxSetCurrent(own));
    ok!(emu, cuCtxEnablePeerAccess(theirs, 0));
    ok!(emu, cuCtxDestroy_v2(theirs));
    assert_eq!(emu.launch(emu.kernel("add"), 1, CUstream::NULL, &[p, 4]), 0);
    assert_eq!(code!(emu, cuCtxSynchronize()), 700);
}

#[test]
fn bytes_go_from_device_to_device() {
    let emu = two();
    let own: CUcontext = make!(emu, cuCtxGetCurrent());
    let here = emu.upload(&[0; 4]);
    let other = context_on(&emu, 1);
    let there = emu.upload(&[1, 2, 3, 4]);
    ok!(emu, cuMemcpyPeer(here, own, there, other, 16));
    assert_eq!(emu.download(here, 4), [1, 2, 3, 4]);
    ok!(
        emu,
        cuMemcpyPeerAsync(here + 8, own, there, other, 8, CUstream::NULL)
    );
    ok!(emu, cuCtxSynchronize());
    assert_eq!(emu.download(here, 4), [1, 2, 1, 2]);
    assert_eq!(
        code!(
            emu,
            cuMemcpyPeer(here, own, there, CUcontext(null_mut()), 16)
        ),
        201
    );
    let copy = CUDA_MEMCPY3D_PEER {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: there,
        srcContext: other,
        srcPitch: 8,
        srcHeight: 2,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: here,
        dstContext: own,
        dstPitch: 4,
        dstHeight: 2,
        WidthInBytes: 4,
        Height: 2,
        Depth: 1,
        ..CUDA_MEMCPY3D_PEER::zeroed()
    };
    ok!(emu, cuMemcpy3DPeer(&copy));
    assert_eq!(emu.download(here, 2), [1, 3]);
}

#[test]
fn contexts_keep_what_is_set() {
    let emu = emu();
    let context = context_on(&emu, 0);
    let (mut version, mut id, mut flags) = (0, 0, CUctx_flags::empty());
    ok!(emu, cuCtxGetApiVersion(context, &mut version));
    ok!(emu, cuCtxGetId(context, &mut id));
    ok!(emu, cuCtxSetFlags(CUctx_flags::SCHED_YIELD));
    ok!(emu, cuCtxGetFlags(&mut flags));
    assert!(version > 0 && id > 0 && flags == CUctx_flags::SCHED_YIELD);
    ok!(emu, cuCtxSetLimit(CUlimit::STACK_SIZE, 4096));
    let mut limit = 0;
    ok!(emu, cuCtxGetLimit(&mut limit, CUlimit::STACK_SIZE));
    assert_eq!(limit, 4096);
    assert_eq!(code!(emu, cuCtxGetLimit(&mut limit, CUlimit(77))), 215);
    ok!(emu, cuCtxSetCacheConfig(CUfunc_cache::PREFER_L1));
    let mut config = CUfunc_cache::PREFER_NONE;
    ok!(emu, cuCtxGetCacheConfig(&mut config));
    assert_eq!(config, CUfunc_cache::PREFER_L1);
    assert_eq!(code!(emu, cuCtxSetCacheConfig(CUfunc_cache(9))), 1);
    ok!(emu, cuProfilerStart());
    ok!(emu, cuProfilerStop());
    ok!(emu, cuCtxResetPersistingL2Cache());
    ok!(emu, cuCtxDestroy_v2(context));
    assert_eq!(code!(emu, cuCtxGetId(context, &mut id)), 201);
    let mut affinity = CUexecAffinityParam::zeroed();
    let made = code!(
        emu,
        cuCtxCreate_v3(
            &mut { CUcontext::NULL },
            &mut affinity,
            1,
            CUctx_flags::empty(),
            0
        )
    );
    assert_eq!(made, 224);
}

#[test]
fn a_store_past_the_end_is_a_fault_and_never_a_store_next_door() {
    let emu = emu();
    let (y, next) = (emu.upload(&[0; 64]), emu.upload(&[0; 64]));
    let add = emu.kernel("add");
    for elements in [64, 128, 1024, 1 << 20] {
        let emu = fresh_context(&emu);
        assert_eq!(
            emu.launch(add_of(emu), 1, CUstream::NULL, &[y + 4 * elements, 1]),
            0
        );
        assert_eq!(
            code!(emu, cuCtxSynchronize()),
            700,
            "{elements} elements past the end"
        );
        assert!(emu.findings().contains("OutOfBounds"));
        ok!(emu, cuCtxPopCurrent_v2(null_mut()));
    }

    assert_eq!(emu.launch(add, 64, CUstream::NULL, &[y, 1]), 0);
    assert_eq!(
        (emu.download(y, 64), emu.download(next, 64)),
        (vec![1; 64], vec![0; 64])
    );
}

/// The same emulator with a context of its own, which a fault may destroy.
fn fresh_context(emu: &Emu) -> &Emu {
    context_on(emu, 0);
    emu
}

fn add_of(emu: &Emu) -> CUfunction {
    emu.kernel("add")
}

#[test]
fn what_is_not_modelled_says_so() {
    let emu = emu();
    let mut handle = CUipcMemHandle::zeroed();
    let p = emu.alloc(16);
    assert_eq!(code!(emu, cuIpcGetMemHandle(&mut handle, p)), 801);
    assert_eq!(
        code!(
            emu,
            cuMemPoolExportPointer(&mut CUmemPoolPtrExportData::zeroed(), p)
        ),
        801
    );
    let findings = emu.findings();
    assert!(
        findings.contains("cuIpcGetMemHandle: sharing with other processes is not emulated"),
        "{findings}"
    );
    assert!(
        findings.contains("cuMemPoolExportPointer: sharing with other processes is not emulated")
    );
}
