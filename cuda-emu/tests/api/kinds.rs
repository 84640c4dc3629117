//! Kinds of memory: managed, pools, registered, pitched; copies of boxes; questions about addresses.

use std::ffi::c_void;
use std::ptr::{from_mut, null_mut};

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, ok};

#[test]
fn managed_memory_is_one_for_host_and_kernels() {
    let emu = emu();
    let p: u64 = make!(emu, cuMemAllocManaged(16, CUmemAttach_flags::GLOBAL));
    let host = p as *mut u32;

    // SAFETY: managed memory may be touched by the host while no kernel runs.
    unsafe { host.write_volatile(1) };
    assert_eq!(emu.launch(emu.kernel("add"), 1, CUstream::NULL, &[p, 5]), 0);
    ok!(emu, cuCtxSynchronize());

    // SAFETY: as above.
    assert_eq!(unsafe { host.read_volatile() }, 6);
    let here = CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: 0,
    };
    ok!(emu, cuMemPrefetchAsync_v2(p, 16, here, 0, CUstream::NULL));
    ok!(emu, cuMemPrefetchAsync(p, 16, -1, CUstream::NULL));
    ok!(
        emu,
        cuMemAdvise_v2(p, 16, CUmem_advise::SET_READ_MOSTLY, here)
    );
    ok!(
        emu,
        cuMemAdvise(p, 16, CUmem_advise::SET_PREFERRED_LOCATION, 0)
    );
    let ask = |attribute| {
        let mut value = 7i32;
        ok!(
            emu,
            cuMemRangeGetAttribute(from_mut(&mut value).cast(), 4, attribute, p, 16)
        );
        value
    };
    assert_eq!(ask(CUmem_range_attribute::READ_MOSTLY), 1);
    assert_eq!(ask(CUmem_range_attribute::PREFERRED_LOCATION), 0);
    assert_eq!(ask(CUmem_range_attribute::LAST_PREFETCH_LOCATION), -1);
    ok!(
        emu,
        cuStreamAttachMemAsync(CUstream::NULL, p, 0, CUmemAttach_flags::GLOBAL)
    );
    assert_eq!(
        code!(
            emu,
            cuMemPrefetchAsync(emu.alloc(16), 16, 0, CUstream::NULL)
        ),
        1,
        "not managed"
    );
    assert_eq!(
        code!(
            emu,
            cuMemAllocManaged(&mut 0, 16, CUmemAttach_flags::SINGLE)
        ),
        1
    );
    ok!(emu, cuMemFree_v2(p));
}

fn used(emu: &Emu, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 {
    let mut value = 7u64;
    ok!(
        emu,
        cuMemPoolGetAttribute(pool, attribute, from_mut(&mut value).cast())
    );
    value
}

#[test]
fn a_pool_counts_what_it_gives_and_keeps() {
    use CUmemPool_attribute as A;
    let emu = emu();
    let location = CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: 0,
    };
    let properties = CUmemPoolProps {
        allocType: CUmemAllocationType::PINNED,
        location,
        maxSize: 4096,
        ..CUmemPoolProps::zeroed()
    };
    let pool: CUmemoryPool = make!(emu, cuMemPoolCreate(&properties));
    let stream = emu.stream();
    let p: u64 = make!(emu, cuMemAllocFromPoolAsync(4000, pool, stream));
    assert_eq!(
        code!(emu, cuMemAllocFromPoolAsync(&mut 0, 400, pool, stream)),
        2,
        "the pool may not grow"
    );
    assert_eq!(
        (
            used(&emu, pool, A::USED_MEM_CURRENT),
            used(&emu, pool, A::RESERVED_MEM_CURRENT)
        ),
        (4000, 4000)
    );
    ok!(emu, cuMemFreeAsync(p, stream));
    assert_eq!(
        (
            used(&emu, pool, A::USED_MEM_CURRENT),
            used(&emu, pool, A::RESERVED_MEM_CURRENT)
        ),
        (0, 4000)
    );
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(
        used(&emu, pool, A::RESERVED_MEM_CURRENT),
        0,
        "its threshold is 0"
    );
    let mut keep = 1u64 << 20;
    ok!(
        emu,
        cuMemPoolSetAttribute(pool, A::RELEASE_THRESHOLD, from_mut(&mut keep).cast())
    );
    let p: u64 = make!(emu, cuMemAllocFromPoolAsync(100, pool, stream));
    ok!(emu, cuMemFreeAsync(p, stream));
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(used(&emu, pool, A::RESERVED_MEM_CURRENT), 100);
    ok!(emu, cuMemPoolTrimTo(pool, 0));
    assert_eq!(used(&emu, pool, A::RESERVED_MEM_CURRENT), 0);
    assert_eq!(used(&emu, pool, A::USED_MEM_HIGH), 4000);

    let default: CUmemoryPool = make!(emu, cuDeviceGetDefaultMemPool(0));
    ok!(emu, cuDeviceSetMemPool(0, pool));
    let p: u64 = make!(emu, cuMemAllocAsync(8, stream));
    assert_eq!(used(&emu, pool, A::USED_MEM_CURRENT), 8);
    let mut of = CUmemoryPool::NULL;
    ok!(
        emu,
        cuPointerGetAttribute(
            from_mut(&mut of).cast(),
            CUpointer_attribute::MEMPOOL_HANDLE,
            p
        )
    );
    assert_eq!(of, pool);
    assert_eq!(code!(emu, cuMemPoolDestroy(default)), 1);
    ok!(emu, cuMemPoolDestroy(pool));
    let now: CUmemoryPool = make!(emu, cuDeviceGetMemPool(0));
    assert_eq!(now, default);
    ok!(emu, cuMemFree_v2(p));
}

#[test]
fn pools_give_host_and_managed_memory_too() {
    let emu = emu();
    for (kind, place) in [
        (CUmemAllocationType::PINNED, CUmemLocationType::HOST),
        (CUmemAllocationType::MANAGED, CUmemLocationType::INVALID),
    ] {
        let mut location = CUmemLocation {
            r#type: place,
            id: 0,
        };
        let mut pool = CUmemoryPool::NULL;
        ok!(emu, cuMemGetDefaultMemPool(&mut pool, &mut location, kind));
        let p: u64 = make!(emu, cuMemAllocFromPoolAsync(4, pool, CUstream::NULL));

        // SAFETY: the host reaches this memory, and nothing else does now.
        unsafe { (p as *mut u32).write_volatile(3) };
        assert_eq!(emu.launch(emu.kernel("add"), 1, CUstream::NULL, &[p, 1]), 0);
        assert_eq!(emu.download(p, 1), [4]);
        ok!(emu, cuMemFreeAsync(p, CUstream::NULL));
    }
}

#[test]
fn a_kernel_reads_and_writes_registered_memory() {
    let emu = emu();
    let mut words = vec![1u32; 64];
    let (start, address) = (words.as_mut_ptr().cast::<c_void>(), words.as_ptr() as u64);
    assert_eq!(
        emu.launch(emu.kernel("add"), 1, CUstream::NULL, &[address, 1]),
        0
    );
    let lost = code!(emu, cuCtxSynchronize());
    assert_eq!(lost, 700, "memory of the program is not the device's");
    let _: CUcontext = make!(emu, cuCtxCreate_v2(CUctx_flags::empty(), 0));
    ok!(
        emu,
        cuMemHostRegister_v2(start, 256, CUmemhostregister_flags::DEVICEMAP)
    );
    assert_eq!(
        emu.launch(emu.kernel("add"), 64, CUstream::NULL, &[address, 1]),
        0
    );
    ok!(emu, cuCtxSynchronize());
    ok!(emu, cuMemHostUnregister(start));
    assert_eq!(words, [2; 64]);
}

#[test]
fn rectangles_are_copied_and_filled() {
    let emu = emu();
    let mut pitch = 0;
    let mut p = 0;
    ok!(emu, cuMemAllocPitch_v2(&mut p, &mut pitch, 12, 3, 4));
    assert_eq!(pitch, 512);
    ok!(emu, cuMemsetD2D32_v2(p, pitch, 7, 3, 3));
    ok!(
        emu,
        cuMemsetD2D8Async(p + 512, pitch, 1, 4, 2, CUstream::NULL)
    );
    let mut out = [0u32; 9];
    let copy = CUDA_MEMCPY2D_v2 {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: p,
        srcPitch: pitch,
        dstMemoryType: CUmemorytype::HOST,
        dstHost: out.as_mut_ptr().cast(),
        dstPitch: 12,
        WidthInBytes: 12,
        Height: 3,
        ..CUDA_MEMCPY2D_v2::zeroed()
    };
    ok!(emu, cuMemcpy2D_v2(&copy));
    let ones = 0x0101_0101;
    assert_eq!(out, [7, 7, 7, ones, 7, 7, ones, 7, 7]);
    let shifted = CUDA_MEMCPY2D_v2 {
        srcXInBytes: 4,
        srcY: 1,
        WidthInBytes: 8,
        Height: 2,
        ..copy
    };
    ok!(emu, cuMemcpy2DAsync_v2(&shifted, CUstream::NULL));
    ok!(emu, cuCtxSynchronize());
    assert_eq!(out, [7, 7, 7, 7, 7, 7, ones, 7, 7]);
    assert_eq!(
        code!(emu, cuMemsetD2D32_v2(p, 8, 7, 3, 3)),
        1,
        "the rows overlap"
    );
    assert_eq!(
        code!(emu, cuMemcpy2D_v2(&CUDA_MEMCPY2D_v2 { Height: 99, ..copy })),
        1,
        "past the end"
    );
}

#[test]
fn boxes_are_copied() {
    let emu = emu();
    let from: Vec<u32> = (0..24).collect();
    let to = emu.upload(&[0; 8]);
    let copy = CUDA_MEMCPY3D_v2 {
        srcXInBytes: 4,
        srcY: 1,
        srcZ: 1,
        srcMemoryType: CUmemorytype::HOST,
        srcHost: from.as_ptr().cast(),
        srcPitch: 16,
        srcHeight: 3,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        dstPitch: 8,
        dstHeight: 2,
        WidthInBytes: 8,
        Height: 2,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    ok!(emu, cuMemcpy3D_v2(&copy));
    assert_eq!(emu.download(to, 4), [17, 18, 21, 22]);
    ok!(
        emu,
        cuMemcpy3DAsync_v2(
            &CUDA_MEMCPY3D_v2 {
                srcZ: 0,
                dstZ: 1,
                ..copy
            },
            CUstream::NULL
        )
    );
    assert_eq!(emu.download(to, 8)[4..], [5, 6, 9, 10]);
    ok!(emu, cuMemcpy3D_v2(&CUDA_MEMCPY3D_v2 { Depth: 0, ..copy }));
}

#[test]
fn addresses_tell_what_they_are() {
    let emu = emu();
    let p = emu.alloc(64);
    let pinned = emu.pinned(4) as u64;
    let ask = |attribute, address| {
        let mut value = 7u32;
        ok!(
            emu,
            cuPointerGetAttribute(from_mut(&mut value).cast(), attribute, address)
        );
        value
    };
    assert_eq!(
        ask(CUpointer_attribute::MEMORY_TYPE, p + 8),
        CUmemorytype::DEVICE.0
    );
    assert_eq!(
        ask(CUpointer_attribute::MEMORY_TYPE, pinned),
        CUmemorytype::HOST.0
    );
    assert_eq!(ask(CUpointer_attribute::DEVICE_ORDINAL, p), 0);
    assert_eq!(ask(CUpointer_attribute::IS_MANAGED, p), 0);
    let mut value = 0u64;
    let data: *mut c_void = from_mut(&mut value).cast();
    assert_eq!(
        code!(
            emu,
            cuPointerGetAttribute(data, CUpointer_attribute::HOST_POINTER, p)
        ),
        1
    );
    assert_eq!(
        code!(
            emu,
            cuPointerGetAttribute(data, CUpointer_attribute::CONTEXT, 12345)
        ),
        1
    );
    let (mut kind, mut start, mut size) = (7u32, 7u64, 7usize);
    let mut wanted = [
        CUpointer_attribute::MEMORY_TYPE,
        CUpointer_attribute::RANGE_START_ADDR,
        CUpointer_attribute::RANGE_SIZE,
    ];
    let mut places: [*mut c_void; 3] = [
        from_mut(&mut kind).cast(),
        from_mut(&mut start).cast(),
        from_mut(&mut size).cast(),
    ];
    ok!(
        emu,
        cuPointerGetAttributes(3, wanted.as_mut_ptr(), places.as_mut_ptr(), p + 4)
    );
    assert_eq!((kind, start, size), (CUmemorytype::DEVICE.0, p, 64));
    ok!(
        emu,
        cuPointerGetAttributes(3, wanted.as_mut_ptr(), places.as_mut_ptr(), 12345)
    );
    assert_eq!(
        (kind, start, size),
        (0, 0, 0),
        "an address in no allocation is no error here"
    );
    ok!(emu, cuMemFree_v2(p));
    ok!(emu, cuCtxSetCurrent(CUcontext(null_mut())));
    ok!(emu, cuMemFreeHost(pinned as *mut c_void));
}
