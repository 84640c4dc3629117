//! Arrays, textures and surfaces: what is copied into an array is what kernels read, and misuse is the right code.

use std::ptr::{null, without_provenance_mut};

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, ok};

/// A thread reads texel (tid.x, tid.y) of `t` and stores it to surface `s`.
const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry copied(.param .u64 t, .param .u64 s)
{
    .reg .b32 %r<5>; .reg .f32 %f<9>; .reg .b64 %t, %s;
    ld.param.u64 %t, [t];
    ld.param.u64 %s, [s];
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 2;
    and.b32 %r1, %r1, 3;
    cvt.rn.f32.u32 %f1, %r1;
    cvt.rn.f32.u32 %f2, %r2;
    add.f32 %f1, %f1, 0f3F000000;
    add.f32 %f2, %f2, 0f3F000000;
    tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%t, {%f1, %f2}];
    shl.b32 %r1, %r1, 2;
    sust.b.2d.b32.trap [%s, {%r1, %r2}], {%f3};
    ret;
}
.visible .entry fetched(.param .u64 t, .param .u64 out)
{
    .reg .b32 %r<9>; .reg .b64 %t, %out;
    ld.param.u64 %t, [t];
    ld.param.u64 %out, [out];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %out, %r1, 4, %out;
    tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%t, {%r1}];
    st.global.u32 [%out], %r2;
    ret;
}
";

const INVALID: u32 = CUresult::INVALID_VALUE.0;
const BAD_HANDLE: u32 = CUresult::INVALID_HANDLE.0;

fn size(w: usize, h: usize, d: usize, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR_v2 {
    let (format, channels) = (CUarray_format::FLOAT, 1);
    CUDA_ARRAY3D_DESCRIPTOR_v2 {
        Width: w,
        Height: h,
        Depth: d,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn array(emu: &Emu, w: usize, h: usize, d: usize, flags: u32) -> CUarray {
    make!(emu, cuArray3DCreate_v2(&size(w, h, d, flags)))
}

fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.res.pointer = array.0 as u64;
    resource
}

fn texture(emu: &Emu, resource: &CUDA_RESOURCE_DESC, how: &CUDA_TEXTURE_DESC) -> CUtexObject {
    make!(emu, cuTexObjectCreate(resource, how, null()))
}

/// A copy of a rectangle of words between memory of the host without gaps and an array.
fn rectangle(
    array: CUarray,
    at: [usize; 2],
    words: *const u32,
    [w, h]: [usize; 2],
) -> CUDA_MEMCPY2D_v2 {
    CUDA_MEMCPY2D_v2 {
        srcMemoryType: CUmemorytype::HOST,
        srcHost: words.cast(),
        dstMemoryType: CUmemorytype::ARRAY,
        dstArray: array,
        dstXInBytes: 4 * at[0],
        dstY: at[1],
        WidthInBytes: 4 * w,
        Height: h,
        ..CUDA_MEMCPY2D_v2::zeroed()
    }
}

/// The words of a 2D array, read back through a copy on a stream.
fn words(emu: &Emu, array: CUarray, [w, h]: [usize; 2]) -> Vec<u32> {
    let mut words = vec![0u32; w * h];
    let copy = CUDA_MEMCPY2D_v2 {
        srcMemoryType: CUmemorytype::ARRAY,
        srcArray: array,
        dstMemoryType: CUmemorytype::HOST,
        dstHost: words.as_mut_ptr().cast(),
        WidthInBytes: 4 * w,
        Height: h,
        ..CUDA_MEMCPY2D_v2::zeroed()
    };
    let stream = emu.stream();
    ok!(emu, cuMemcpy2DAsync_v2(&copy, stream));
    ok!(emu, cuStreamSynchronize(stream));
    words
}

#[test]
fn kernels_read_and_write_arrays() {
    let emu = emu();
    let (from, to) = (
        array(&emu, 4, 3, 0, 0),
        array(&emu, 4, 3, 0, CUDA_ARRAY3D_SURFACE_LDST),
    );
    let floats: Vec<u32> = (0..12).map(|i| (i as f32 + 0.5).to_bits()).collect();
    ok!(
        emu,
        cuMemcpy2D_v2(&rectangle(from, [0, 0], floats.as_ptr(), [4, 3]))
    );
    let (t, s) = (
        texture(&emu, &of_array(from), &CUDA_TEXTURE_DESC::zeroed()),
        make!(emu, cuSurfObjectCreate(&of_array(to))),
    );
    let module = emu
        .try_load(PTX)
        .unwrap_or_else(|code| panic!("{code}: {}", emu.last_log()));
    let copied = emu.function(module, "copied");
    assert_eq!(
        emu.launch(copied, 12, CUstream::NULL, &[t, s]),
        0,
        "{}",
        emu.last_log()
    );
    ok!(emu, cuCtxSynchronize());
    assert_eq!(words(&emu, to, [4, 3]), floats);
    let part = [7u32, 8];
    ok!(
        emu,
        cuMemcpy2D_v2(&rectangle(to, [1, 1], part.as_ptr(), [1, 2]))
    );
    let changed = words(&emu, to, [4, 3]);
    assert_eq!(
        (changed[5], changed[9], changed[4], changed[10]),
        (7, 8, floats[4], floats[10])
    );
    ok!(emu, cuTexObjectDestroy(t));
    ok!(emu, cuSurfObjectDestroy(s));
    assert_eq!(code!(emu, cuTexObjectDestroy(t)), INVALID);
    assert_eq!(emu.launch(copied, 12, CUstream::NULL, &[t, s]), 0);
    assert_ne!(code!(emu, cuCtxSynchronize()), 0);
    assert!(
        emu.last_log().contains("is used after it was destroyed"),
        "{}",
        emu.last_log()
    );
}

#[test]
fn boxes_of_arrays_are_copied() {
    let emu = emu();
    let three = array(&emu, 2, 2, 2, 0);
    let floats: Vec<u32> = (1..9).collect();
    let copy = CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::HOST,
        srcHost: floats.as_ptr().cast(),
        srcPitch: 8,
        srcHeight: 2,
        dstMemoryType: CUmemorytype::ARRAY,
        dstArray: three,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    ok!(emu, cuMemcpy3D_v2(&copy));
    let mut out = [0u32; 2];
    let back = CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::ARRAY,
        srcArray: three,
        srcY: 1,
        srcZ: 1,
        dstMemoryType: CUmemorytype::HOST,
        dstHost: out.as_mut_ptr().cast(),
        dstPitch: 8,
        dstHeight: 1,
        WidthInBytes: 8,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    ok!(emu, cuMemcpy3D_v2(&back));
    assert_eq!(out, [7, 8]);
}

#[test]
fn rows_of_arrays_are_copied() {
    let (emu, floats) = (emu(), [1u32, 2, 3, 4, 5, 6, 7, 8]);
    let (a, b) = (array(&emu, 4, 0, 0, 0), array(&emu, 4, 0, 0, 0));
    let device = emu.upload(&[10, 11, 12, 13]);
    ok!(emu, cuMemcpyDtoA_v2(a, 0, device, 16));
    ok!(emu, cuMemcpyHtoA_v2(a, 4, floats.as_ptr().cast(), 4));
    ok!(emu, cuMemcpyAtoA_v2(b, 0, a, 4, 12));
    ok!(
        emu,
        cuMemcpyHtoAAsync_v2(b, 12, floats[4..].as_ptr().cast(), 4, CUstream::NULL)
    );
    ok!(emu, cuMemcpyAtoD_v2(device, b, 0, 16));
    assert_eq!(emu.download(device, 4), [1, 12, 13, 5]);
    let mut row = [0u32; 2];
    ok!(emu, cuMemcpyAtoH_v2(row.as_mut_ptr().cast(), b, 4, 8));
    assert_eq!(row, [12, 13]);
    assert_eq!(
        code!(emu, cuMemcpyHtoA_v2(a, 8, floats.as_ptr().cast(), 12)),
        INVALID
    );
    assert_eq!(
        code!(emu, cuMemcpyHtoA_v2(a, 2, floats.as_ptr().cast(), 4)),
        INVALID
    );
    assert_eq!(
        code!(
            emu,
            cuMemcpyHtoA_v2(a, usize::MAX, floats.as_ptr().cast(), 4)
        ),
        INVALID
    );
    let three = array(&emu, 2, 2, 2, 0);
    assert_eq!(
        code!(emu, cuMemcpyHtoA_v2(three, 0, floats.as_ptr().cast(), 4)),
        INVALID
    );
    assert_eq!(
        code!(
            emu,
            cuMemcpy2D_v2(&rectangle(a, [0, 1], floats.as_ptr(), [4, 1]))
        ),
        INVALID
    );
}

#[test]
fn linear_memory_is_a_texture() {
    let emu = emu();
    let memory = emu.upload(&[5, 6, 7, 8]);
    let mut resource = CUDA_RESOURCE_DESC {
        resType: CUresourcetype::LINEAR,
        ..CUDA_RESOURCE_DESC::zeroed()
    };
    (resource.res.pointer, resource.res.width) = (memory, 16);
    (resource.res.format, resource.res.numChannels) = (CUarray_format::UNSIGNED_INT32, 1);
    let t = texture(&emu, &resource, &CUDA_TEXTURE_DESC::zeroed());
    let (module, out) = (emu.try_load(PTX).expect("it is PTX"), emu.upload(&[9; 6]));
    assert_eq!(
        emu.launch(
            emu.function(module, "fetched"),
            6,
            CUstream::NULL,
            &[t, out]
        ),
        0
    );
    assert_eq!(emu.download(out, 6), [5, 6, 7, 8, 0, 0]);
    let mut shown = CUDA_RESOURCE_DESC::zeroed();
    ok!(emu, cuTexObjectGetResourceDesc(&mut shown, t));
    assert_eq!(
        (shown.resType, shown.res.pointer, shown.res.width),
        (CUresourcetype::LINEAR, memory, 16)
    );
    let mut how = CUDA_TEXTURE_DESC::zeroed();
    ok!(emu, cuTexObjectGetTextureDesc(&mut how, t));
    assert_eq!(
        code!(
            emu,
            cuTexObjectGetResourceViewDesc(&mut CUDA_RESOURCE_VIEW_DESC::zeroed(), t)
        ),
        INVALID
    );
    let refused = |change: &dyn Fn(&mut CUDA_RESOURCE_DESC)| {
        let (mut resource, mut made) = (resource, 0);
        change(&mut resource);
        code!(emu, cuTexObjectCreate(&mut made, &resource, &how, null()))
    };
    assert_eq!(refused(&|r| r.res.pointer += 4), INVALID);
    assert_eq!(refused(&|r| r.res.width = 20), INVALID);
    assert_eq!(refused(&|r| r.res.width = 3), INVALID);
    assert_eq!(refused(&|r| r.res.width = usize::MAX), INVALID);
    assert_eq!(refused(&|r| r.res.numChannels = 3), INVALID);
    assert_eq!(refused(&|r| r.flags = 1), INVALID);
    assert_eq!(refused(&|r| r.resType = CUresourcetype(9)), INVALID);
    assert_eq!(
        refused(&|r| r.resType = CUresourcetype::MIPMAPPED_ARRAY),
        CUresult::NOT_SUPPORTED.0
    );
    let pitched = |pitch: usize| {
        refused(&|r| {
            r.resType = CUresourcetype::PITCH2D;
            (r.res.width, r.res.height, r.res.pitchInBytes) = (2, 1, pitch);
        })
    };
    assert_eq!(
        [pitched(32), pitched(8), pitched(16)],
        [0, INVALID, INVALID]
    );
}

#[test]
fn what_is_no_array_texture_or_surface_is_refused() {
    let emu = emu();
    let mut made = CUarray::NULL;
    let layers = CUDA_ARRAY3D_LAYERED;
    let cases = [
        (size(0, 4, 0, 0), INVALID),
        (size(4, 0, 4, 0), INVALID),
        (size(1 << 40, 0, 0, 0), INVALID),
        (size(4, 4, 0, layers), INVALID),
        (size(4, 5, 6, CUDA_ARRAY3D_CUBEMAP), INVALID),
        (size(4, 4, 7, CUDA_ARRAY3D_CUBEMAP | layers), INVALID),
        (size(4, 4, 4, CUDA_ARRAY3D_TEXTURE_GATHER), INVALID),
        (size(4, 4, 0, 0x40), CUresult::NOT_SUPPORTED.0),
        (size(4, 4, 12, CUDA_ARRAY3D_CUBEMAP | layers), 0),
        (size(4, 0, 3, layers), 0),
    ];
    for (size, wanted) in cases {
        assert_eq!(
            code!(emu, cuArray3DCreate_v2(&mut made, &size)),
            wanted,
            "{size:?}: {}",
            emu.last_log()
        );
    }

    let mut shown = CUDA_ARRAY3D_DESCRIPTOR_v2::zeroed();
    ok!(emu, cuArray3DGetDescriptor_v2(&mut shown, made));
    assert_eq!(
        (shown.Width, shown.Height, shown.Depth, shown.Flags),
        (4, 0, 3, layers)
    );
    let bad = CUarray(without_provenance_mut(8));
    assert_eq!(code!(emu, cuArrayDestroy(bad)), BAD_HANDLE);
    assert_eq!(code!(emu, cuArrayDestroy(CUarray::NULL)), BAD_HANDLE);
    let mut object = 0;
    assert_eq!(
        code!(emu, cuSurfObjectCreate(&mut object, &of_array(made))),
        INVALID
    );
    assert!(
        emu.last_log()
            .contains("created without CUDA_ARRAY3D_SURFACE_LDST"),
        "{}",
        emu.last_log()
    );
    assert_eq!(
        code!(emu, cuSurfObjectCreate(&mut object, &of_array(bad))),
        BAD_HANDLE
    );
    let how = CUDA_TEXTURE_DESC {
        filterMode: CUfilter_mode(7),
        ..CUDA_TEXTURE_DESC::zeroed()
    };
    assert_eq!(
        code!(
            emu,
            cuTexObjectCreate(&mut object, &of_array(made), &how, null())
        ),
        INVALID
    );
    let texture = texture(&emu, &of_array(made), &CUDA_TEXTURE_DESC::zeroed());
    assert_eq!(code!(emu, cuSurfObjectDestroy(texture)), INVALID);
    ok!(emu, cuArrayDestroy(made));
    assert_eq!(code!(emu, cuArrayDestroy(made)), BAD_HANDLE);
    let flat = CUDA_ARRAY_DESCRIPTOR_v2 {
        Width: 5,
        Height: 2,
        Format: CUarray_format::HALF,
        NumChannels: 2,
    };
    let plain: CUarray = make!(emu, cuArrayCreate_v2(&flat));
    let mut seen = CUDA_ARRAY_DESCRIPTOR_v2::zeroed();
    ok!(emu, cuArrayGetDescriptor_v2(&mut seen, plain));
    assert_eq!(
        (seen.Width, seen.Height, seen.Format, seen.NumChannels),
        (5, 2, CUarray_format::HALF, 2)
    );
}

/// A texture may be made and destroyed by one thread while kernels of another read others.
#[test]
fn textures_come_and_go_beside_launches() {
    let emu = emu();
    let memory = emu.upload(&[5, 6, 7, 8]);
    let mut resource = CUDA_RESOURCE_DESC {
        resType: CUresourcetype::LINEAR,
        ..CUDA_RESOURCE_DESC::zeroed()
    };
    (resource.res.pointer, resource.res.width) = (memory, 16);
    (resource.res.format, resource.res.numChannels) = (CUarray_format::UNSIGNED_INT32, 1);
    let how = CUDA_TEXTURE_DESC::zeroed();
    let (t, out) = (texture(&emu, &resource, &how), emu.upload(&[9; 4]));
    let fetched = emu.function(emu.try_load(PTX).expect("it is PTX"), "fetched");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let context: CUcontext = make!(emu, cuDevicePrimaryCtxRetain(0));
            ok!(emu, cuCtxSetCurrent(context));
            for _ in 0..50 {
                let other = texture(&emu, &resource, &how);
                ok!(emu, cuTexObjectDestroy(other));
            }
            ok!(emu, cuDevicePrimaryCtxRelease_v2(0));
        });
        for _ in 0..20 {
            assert_eq!(
                emu.launch(fetched, 4, CUstream::NULL, &[t, out]),
                0,
                "{}",
                emu.last_log()
            );
        }
    });
    ok!(emu, cuTexObjectDestroy(t));
    assert_eq!(emu.download(out, 4), [5, 6, 7, 8]);
}

/// Copies of arrays are captured, and run as often as the graph does.
#[test]
fn copies_of_arrays_are_captured() {
    let (emu, words) = (emu(), [1u32, 2, 3, 4]);
    let (a, stream, out) = (array(&emu, 4, 0, 0, 0), emu.stream(), emu.pinned(4));
    ok!(
        emu,
        cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::GLOBAL)
    );
    ok!(
        emu,
        cuMemcpyHtoAAsync_v2(a, 0, words.as_ptr().cast(), 16, stream)
    );
    ok!(emu, cuMemcpyAtoHAsync_v2(out.cast(), a, 0, 16, stream));
    assert_eq!(
        code!(emu, cuArrayDestroy(a)),
        CUresult::STREAM_CAPTURE_UNSUPPORTED.0
    );
    let mut graph = CUgraph::NULL;
    assert_ne!(code!(emu, cuStreamEndCapture(stream, &mut graph)), 0);
    ok!(
        emu,
        cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::GLOBAL)
    );
    ok!(
        emu,
        cuMemcpyHtoAAsync_v2(a, 0, words.as_ptr().cast(), 16, stream)
    );
    ok!(emu, cuMemcpyAtoHAsync_v2(out.cast(), a, 0, 16, stream));
    ok!(emu, cuStreamEndCapture(stream, &mut graph));
    let exec: CUgraphExec = make!(
        emu,
        cuGraphInstantiateWithFlags(graph, CUgraphInstantiate_flags::empty())
    );
    ok!(emu, cuGraphLaunch(exec, stream));
    ok!(emu, cuStreamSynchronize(stream));

    // SAFETY: the memory has four words, and nothing writes them now.
    assert_eq!(unsafe { std::slice::from_raw_parts(out, 4) }, words);
}
