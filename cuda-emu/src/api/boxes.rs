//! Copies of rectangles and boxes of bytes, and fills of rectangles.

use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::copy::{run_async, run_now};
use crate::api::export::exports;
use crate::api::node_content::copy_of;
use crate::error::{Result, require};
use crate::ffi::pointer::In;
use crate::machine::Machine;
use crate::state::images::ArrayBox;
use crate::work::StreamWork;
use crate::work::copy::{CopyWork, FillWork, Location};

exports! {
    table {
        3020 cuMemcpy2D cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D_v2) => copy_2d;
        3020 cuMemcpy2DUnaligned cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D_v2) => copy_2d;
        3020 cuMemcpy2DAsync cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D_v2, stream: CUstream) => copy_2d_async;
        3020 cuMemcpy3D cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D_v2) => copy_3d;
        3020 cuMemcpy3DAsync cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D_v2, stream: CUstream) => copy_3d_async;
        4000 cuMemcpy3DPeer cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) => copy_peer;
        4000 cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) => copy_peer_async;
        3020 cuMemsetD2D8 cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) => fill_8;
        3020 cuMemsetD2D16 cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) => fill_16;
        3020 cuMemsetD2D32 cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) => fill_32;
        3020 cuMemsetD2D8Async cuMemsetD2D8Async(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) => fill_8_async;
        3020 cuMemsetD2D16Async cuMemsetD2D16Async(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) => fill_16_async;
        3020 cuMemsetD2D32Async cuMemsetD2D32Async(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream) => fill_32_async;
    }
    more {}
}

/// Returns a rectangle as a box with one slice.
fn of_rectangle(p: &CUDA_MEMCPY2D_v2) -> CUDA_MEMCPY3D_v2 {
    CUDA_MEMCPY3D_v2 {
        srcXInBytes: p.srcXInBytes,
        srcY: p.srcY,
        srcMemoryType: p.srcMemoryType,
        srcHost: p.srcHost,
        srcDevice: p.srcDevice,
        srcArray: p.srcArray,
        srcPitch: pitch_or(p.srcPitch, p),
        dstXInBytes: p.dstXInBytes,
        dstY: p.dstY,
        dstMemoryType: p.dstMemoryType,
        dstHost: p.dstHost,
        dstDevice: p.dstDevice,
        dstArray: p.dstArray,
        dstPitch: pitch_or(p.dstPitch, p),
        WidthInBytes: p.WidthInBytes,
        Height: p.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    }
}

/// Returns the pitch, where 0 means rows without gaps.
fn pitch_or(pitch: usize, p: &CUDA_MEMCPY2D_v2) -> usize {
    if pitch == 0 { p.WidthInBytes } else { pitch }
}

/// Returns a copy between peers as a copy within one context, because addresses identify the
/// devices.
fn of_peers(m: &'static Machine, p: &CUDA_MEMCPY3D_PEER) -> Result<CUDA_MEMCPY3D_v2> {
    let s = m.state();
    s.contexts.find(p.srcContext)?;
    s.contexts.find(p.dstContext)?;
    Ok(CUDA_MEMCPY3D_v2 {
        srcXInBytes: p.srcXInBytes,
        srcY: p.srcY,
        srcZ: p.srcZ,
        srcLOD: p.srcLOD,
        srcMemoryType: p.srcMemoryType,
        srcHost: p.srcHost,
        srcDevice: p.srcDevice,
        srcArray: p.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: p.srcPitch,
        srcHeight: p.srcHeight,
        dstXInBytes: p.dstXInBytes,
        dstY: p.dstY,
        dstZ: p.dstZ,
        dstLOD: p.dstLOD,
        dstMemoryType: p.dstMemoryType,
        dstHost: p.dstHost,
        dstDevice: p.dstDevice,
        dstArray: p.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: p.dstPitch,
        dstHeight: p.dstHeight,
        WidthInBytes: p.WidthInBytes,
        Height: p.Height,
        Depth: p.Depth,
    })
}

/// Returns the copy with addresses in place of arrays.
fn of_arrays(m: &'static Machine, p: &CUDA_MEMCPY3D_v2) -> Result<CUDA_MEMCPY3D_v2> {
    let mut p = *p;
    let s = m.state();
    require(p.srcLOD == 0 && p.dstLOD == 0, || {
        "the level of detail of a copy must be 0".into()
    })?;

    // The address of the box already includes its position, so the offsets are reset.
    let size = [p.WidthInBytes, p.Height, p.Depth];
    if p.srcMemoryType == CUmemorytype::ARRAY {
        let array = s.array(p.srcArray)?.1;
        p.srcDevice = array.place(&ArrayBox {
            at: [p.srcXInBytes, p.srcY, p.srcZ],
            size,
        })?;
        (p.srcPitch, p.srcHeight) = (array.image.pitch as usize, array.image.extent[1] as usize);
        (p.srcMemoryType, p.srcXInBytes, p.srcY, p.srcZ) = (CUmemorytype::DEVICE, 0, 0, 0);
    }

    if p.dstMemoryType == CUmemorytype::ARRAY {
        let array = s.array(p.dstArray)?.1;
        p.dstDevice = array.place(&ArrayBox {
            at: [p.dstXInBytes, p.dstY, p.dstZ],
            size,
        })?;
        (p.dstPitch, p.dstHeight) = (array.image.pitch as usize, array.image.extent[1] as usize);
        (p.dstMemoryType, p.dstXInBytes, p.dstY, p.dstZ) = (CUmemorytype::DEVICE, 0, 0, 0);
    }

    Ok(p)
}

/// Returns the work of a copy, or `None` for a copy of no bytes.
fn work_of(m: &'static Machine, p: &CUDA_MEMCPY3D_v2) -> Result<Option<CopyWork>> {
    if p.WidthInBytes == 0 || p.Height == 0 || p.Depth == 0 {
        return m.state().context().map(|_| None);
    }
    copy_of(m.device, &of_arrays(m, p)?).map(Some)
}

pub(crate) fn copy_now(m: &'static Machine, p: &CUDA_MEMCPY3D_v2) -> Result {
    work_of(m, p)?.map_or(Ok(()), |copy| run_now(m, StreamWork::Copy(copy)))
}

/// Enqueues a copy. Pageable memory is read immediately, unless the copy is captured.
pub(crate) fn copy_async(m: &'static Machine, p: &CUDA_MEMCPY3D_v2, stream: CUstream) -> Result {
    let Some(mut copy) = work_of(m, p)? else {
        return Ok(());
    };

    let mut s = m.state();
    let id = s.stream(stream)?;
    let capturing = s.streams[id].capture.is_some();
    drop(s);
    if let (Location::Host(span), false) = (&copy.from.place, capturing) {
        let last =
            (copy.depth - 1) * copy.from.slice + (copy.height - 1) * copy.from.pitch + copy.width;
        copy.from.place = Location::Staged(Arc::from(span.bytes(last)));
    }

    run_async(m, stream, StreamWork::Copy(copy))
}

fn copy_2d(m: &'static Machine, copy: In<CUDA_MEMCPY2D_v2>) -> Result {
    copy_now(m, &of_rectangle(&copy.get()?))
}

fn copy_2d_async(m: &'static Machine, copy: In<CUDA_MEMCPY2D_v2>, stream: CUstream) -> Result {
    copy_async(m, &of_rectangle(&copy.get()?), stream)
}

fn copy_3d(m: &'static Machine, copy: In<CUDA_MEMCPY3D_v2>) -> Result {
    copy_now(m, &copy.get()?)
}

fn copy_3d_async(m: &'static Machine, copy: In<CUDA_MEMCPY3D_v2>, stream: CUstream) -> Result {
    copy_async(m, &copy.get()?, stream)
}

fn copy_peer(m: &'static Machine, copy: In<CUDA_MEMCPY3D_PEER>) -> Result {
    copy_now(m, &of_peers(m, &copy.get()?)?)
}

fn copy_peer_async(m: &'static Machine, copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) -> Result {
    copy_async(m, &of_peers(m, &copy.get()?)?, stream)
}

/// A fill of a rectangle with elements of `size` bytes.
struct Rectangle {
    to: u64,
    pitch: usize,
    value: u32,
    size: usize,
    width: usize,
    height: usize,
}

impl Rectangle {
    /// Returns the work, or `None` for a fill of no bytes.
    fn work(self, m: &'static Machine) -> Result<Option<StreamWork>> {
        let Self {
            to,
            pitch,
            value,
            size,
            width,
            height,
        } = self;
        if width == 0 || height == 0 {
            return m.state().context().map(|_| None);
        }

        let rows = height == 1 || pitch >= width * size && pitch.is_multiple_of(size);
        require(rows, || {
            format!(
                "a pitch of {pitch} bytes for rows of {width} elements of {size} bytes: expected a multiple of {size}, \
                 at least the row"
            )
        })?;
        Ok(Some(StreamWork::Fill(FillWork {
            to,
            pitch,
            value,
            size,
            width,
            height,
        })))
    }

    fn now(self, m: &'static Machine) -> Result {
        self.work(m)?.map_or(Ok(()), |fill| run_now(m, fill))
    }

    fn on(self, m: &'static Machine, stream: CUstream) -> Result {
        self.work(m)?
            .map_or(Ok(()), |fill| run_async(m, stream, fill))
    }
}

fn fill_8(
    m: &'static Machine,
    to: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> Result {
    Rectangle {
        to,
        pitch,
        value: value.into(),
        size: 1,
        width,
        height,
    }
    .now(m)
}

fn fill_16(
    m: &'static Machine,
    to: u64,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> Result {
    Rectangle {
        to,
        pitch,
        value: value.into(),
        size: 2,
        width,
        height,
    }
    .now(m)
}

fn fill_32(
    m: &'static Machine,
    to: u64,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
) -> Result {
    Rectangle {
        to,
        pitch,
        value,
        size: 4,
        width,
        height,
    }
    .now(m)
}

fn fill_8_async(
    m: &'static Machine,
    to: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Result {
    Rectangle {
        to,
        pitch,
        value: value.into(),
        size: 1,
        width,
        height,
    }
    .on(m, stream)
}

fn fill_16_async(
    m: &'static Machine,
    to: u64,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Result {
    Rectangle {
        to,
        pitch,
        value: value.into(),
        size: 2,
        width,
        height,
    }
    .on(m, stream)
}

fn fill_32_async(
    m: &'static Machine,
    to: u64,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Result {
    Rectangle {
        to,
        pitch,
        value,
        size: 4,
        width,
        height,
    }
    .on(m, stream)
}
