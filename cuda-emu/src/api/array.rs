//! Arrays: texels that kernels access only through textures and surfaces.
//!
//! The memory of an array is an ordinary allocation, so uninitialized reads and uses after free are
//! found as for any other memory. A copy of a part of an array becomes a copy of rows.

use std::ffi::c_void;

use ptx_emu::{ChannelType, Image, ImageShape, TexelFormat};
use warpwright_driver_sys::*;

use crate::api::boxes::{copy_async, copy_now};
use crate::api::export::exports;
use crate::api::memory::refuse_memory;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::handle::ArrayId;
use crate::machine::Machine;
use crate::queue::Ticket;
use crate::state::images::ImageArray;
use crate::state::objects::{AllocationKind, AllocationRecord};
use crate::state::{DriverState, capture};

exports! {
    table {
        3020 cuArrayCreate cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v2) => create;
        3020 cuArray3DCreate cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v2) => create_3d;
        3020 cuArrayGetDescriptor cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v2, array: CUarray) => get_descriptor;
        3020 cuArray3DGetDescriptor cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v2, array: CUarray) => get_descriptor_3d;
        2000 cuArrayDestroy cuArrayDestroy(array: CUarray) => destroy;
        7000 cuMemcpyHtoA cuMemcpyHtoA_v2(to: CUarray, offset: usize, from: *const c_void, bytes: usize) => copy_from_host;
        7000 cuMemcpyAtoH cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) => copy_to_host;
        7000 cuMemcpyDtoA cuMemcpyDtoA_v2(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) => copy_from_device;
        7000 cuMemcpyAtoD cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) => copy_to_device;
        7000 cuMemcpyAtoA cuMemcpyAtoA_v2(to: CUarray, offset: usize, from: CUarray, from_offset: usize, bytes: usize) => copy_between;
        7000 cuMemcpyHtoAAsync cuMemcpyHtoAAsync_v2(to: CUarray, offset: usize, from: *const c_void, bytes: usize, stream: CUstream) => copy_from_host_async;
        7000 cuMemcpyAtoHAsync cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream) => copy_to_host_async;
    }
    more {}
}

/// The flags of arrays that are emulated.
const FLAGS: u32 = CUDA_ARRAY3D_LAYERED
    | CUDA_ARRAY3D_SURFACE_LDST
    | CUDA_ARRAY3D_CUBEMAP
    | CUDA_ARRAY3D_TEXTURE_GATHER;

/// The alignment of rows in bytes, which is the widest access of a surface.
const PITCH: u64 = 16;

/// Returns the format of a texel.
pub(crate) fn texel(format: CUarray_format, channels: u32) -> Result<TexelFormat> {
    let channel = match format {
        CUarray_format::UNSIGNED_INT8 => ChannelType::U8,
        CUarray_format::UNSIGNED_INT16 => ChannelType::U16,
        CUarray_format::UNSIGNED_INT32 => ChannelType::U32,
        CUarray_format::SIGNED_INT8 => ChannelType::S8,
        CUarray_format::SIGNED_INT16 => ChannelType::S16,
        CUarray_format::SIGNED_INT32 => ChannelType::S32,
        CUarray_format::HALF => ChannelType::F16,
        CUarray_format::FLOAT => ChannelType::F32,
        other => {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!("texels of format {other:?} are not emulated"),
            );
        }
    };
    require(matches!(channels, 1 | 2 | 4), || {
        format!("texels of {channels} channels: expected 1, 2 or 4")
    })?;
    Ok(TexelFormat { channel, channels })
}

/// Returns the shape of an array, which follows from its flags and the dimensions that are not 0.
fn shape(d: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result<ImageShape> {
    let has = |flag: u32| d.Flags & flag != 0;
    Ok(
        match (
            has(CUDA_ARRAY3D_CUBEMAP),
            has(CUDA_ARRAY3D_LAYERED),
            d.Height,
            d.Depth,
        ) {
            (true, false, ..) => ImageShape::Cube,
            (true, true, ..) => ImageShape::Cubes,
            (false, true, 0, _) => ImageShape::Layers1,
            (false, true, ..) => ImageShape::Layers2,
            (false, false, 0, 0) => ImageShape::D1,
            (false, false, _, 0) => ImageShape::D2,
            (false, false, 0, _) => {
                return refuse(
                    CUresult::INVALID_VALUE,
                    "an array with a depth needs a height",
                );
            }
            (false, false, ..) => ImageShape::D3,
        },
    )
}

/// Returns the image of an array, without its address.
fn image(d: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result<Image> {
    if d.Flags & !FLAGS != 0 {
        return refuse(
            CUresult::NOT_SUPPORTED,
            format!("arrays with the flags {:#x} are not emulated", d.Flags),
        );
    }

    let shape = shape(d)?;
    let gathers = d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER != 0;
    require(!gathers || shape == ImageShape::D2, || {
        "TEXTURE_GATHER needs a 2D array".into()
    })?;
    require(
        d.Depth > 0 || !matches!(shape, ImageShape::Layers1 | ImageShape::Layers2),
        || "a layered array needs at least one layer".into(),
    )?;

    // A dimension of 0 is absent, which the shape records. In the extent it counts as 1.
    let n = |n: usize| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
    require(d.Width > 0, || "an array needs a width".into())?;
    let extent = [n(d.Width), n(d.Height), n(d.Depth)];
    let mut image = Image::new(texel(d.Format, d.NumChannels)?, shape, extent);
    image.pitch = image.pitch.next_multiple_of(PITCH);
    image
        .check()
        .or_else(|error| refuse(CUresult::INVALID_VALUE, error.to_string()))?;
    Ok(image)
}

fn create(
    m: &'static Machine,
    array: Out<CUarray>,
    descriptor: In<CUDA_ARRAY_DESCRIPTOR_v2>,
) -> Result {
    let d = descriptor.get()?;
    let same = CUDA_ARRAY3D_DESCRIPTOR_v2 {
        Width: d.Width,
        Height: d.Height,
        Format: d.Format,
        NumChannels: d.NumChannels,
        ..CUDA_ARRAY3D_DESCRIPTOR_v2::zeroed()
    };
    make(m, array, same)
}

fn create_3d(
    m: &'static Machine,
    array: Out<CUarray>,
    descriptor: In<CUDA_ARRAY3D_DESCRIPTOR_v2>,
) -> Result {
    make(m, array, descriptor.get()?)
}

fn make(
    m: &'static Machine,
    array: Out<CUarray>,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR_v2,
) -> Result {
    require(!array.is_null(), || "the result pointer is NULL".into())?;
    let mut s = m.state();
    let context = s.context()?;
    capture::refuse_unsafe(&mut s)?;

    // The layout determines the bytes to allocate, so the address is filled in afterwards.
    let mut image = image(&descriptor)?;
    let device = s.contexts[context].reach.device;
    let bytes = image.bytes();
    image.address = m
        .device
        .memory
        .alloc_on(device, bytes)
        .or_else(refuse_memory)?;
    m.device
        .memory
        .set_label(image.address, &format!("array 0x{:x}", image.address));
    let allocation = AllocationRecord {
        context,
        kind: AllocationKind::Array,
        bytes,
    };
    s.allocations.insert(image.address, allocation);
    let id = s.arrays.insert(ImageArray {
        context,
        image,
        descriptor,
    });
    array.set(id.handle())
}

fn get_descriptor(
    m: &'static Machine,
    descriptor: Out<CUDA_ARRAY_DESCRIPTOR_v2>,
    array: CUarray,
) -> Result {
    let s = m.state();
    s.context()?;
    let d = s.array(array)?.1.descriptor;
    descriptor.set(CUDA_ARRAY_DESCRIPTOR_v2 {
        Width: d.Width,
        Height: d.Height,
        Format: d.Format,
        NumChannels: d.NumChannels,
    })
}

fn get_descriptor_3d(
    m: &'static Machine,
    descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR_v2>,
    array: CUarray,
) -> Result {
    let s = m.state();
    s.context()?;
    descriptor.set(s.array(array)?.1.descriptor)
}

/// Destroys an array after all work of its context, as freeing memory does.
fn destroy(m: &'static Machine, array: CUarray) -> Result {
    let mut s = m.state();
    s.no_fault()?;
    capture::refuse_unsafe(&mut s)?;
    let (id, found) = s.array(array)?;
    let context = found.context;
    let address = found.image.address;
    s.arrays.remove(id);
    s.allocations.remove(&address);
    let waiting = s.outstanding(context);
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    m.device.free(address).or_else(refuse_memory)
}

/// Returns a copy of bytes of a 1D array. The caller sets the other end.
fn row(m: &'static Machine, array: CUarray, bytes: usize) -> Result<CUDA_MEMCPY3D_v2> {
    let rows = m.state().array(array)?.1.image.extent;
    require(rows[1] * rows[2] == 1, || {
        "this function copies 1D arrays: use cuMemcpy2D or cuMemcpy3D for others".into()
    })?;
    Ok(CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::ARRAY,
        dstMemoryType: CUmemorytype::ARRAY,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    })
}

fn from_host(
    m: &'static Machine,
    to: CUarray,
    offset: usize,
    from: In<c_void>,
    bytes: usize,
) -> Result<CUDA_MEMCPY3D_v2> {
    Ok(CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::HOST,
        srcHost: from.address() as *const c_void,
        dstArray: to,
        dstXInBytes: offset,
        ..row(m, to, bytes)?
    })
}

fn to_host(
    m: &'static Machine,
    to: Out<c_void>,
    from: CUarray,
    offset: usize,
    bytes: usize,
) -> Result<CUDA_MEMCPY3D_v2> {
    Ok(CUDA_MEMCPY3D_v2 {
        dstMemoryType: CUmemorytype::HOST,
        dstHost: to.address() as *mut c_void,
        srcArray: from,
        srcXInBytes: offset,
        ..row(m, from, bytes)?
    })
}

fn copy_from_host(
    m: &'static Machine,
    to: CUarray,
    offset: usize,
    from: In<c_void>,
    bytes: usize,
) -> Result {
    copy_now(m, &from_host(m, to, offset, from, bytes)?)
}

fn copy_to_host(
    m: &'static Machine,
    to: Out<c_void>,
    from: CUarray,
    offset: usize,
    bytes: usize,
) -> Result {
    copy_now(m, &to_host(m, to, from, offset, bytes)?)
}

fn copy_from_host_async(
    m: &'static Machine,
    to: CUarray,
    offset: usize,
    from: In<c_void>,
    bytes: usize,
    stream: CUstream,
) -> Result {
    copy_async(m, &from_host(m, to, offset, from, bytes)?, stream)
}

fn copy_to_host_async(
    m: &'static Machine,
    to: Out<c_void>,
    from: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Result {
    copy_async(m, &to_host(m, to, from, offset, bytes)?, stream)
}

fn copy_from_device(
    m: &'static Machine,
    to: CUarray,
    offset: usize,
    from: CUdeviceptr,
    bytes: usize,
) -> Result {
    let row = row(m, to, bytes)?;
    copy_now(
        m,
        &CUDA_MEMCPY3D_v2 {
            srcMemoryType: CUmemorytype::DEVICE,
            srcDevice: from,
            dstArray: to,
            dstXInBytes: offset,
            ..row
        },
    )
}

fn copy_to_device(
    m: &'static Machine,
    to: CUdeviceptr,
    from: CUarray,
    offset: usize,
    bytes: usize,
) -> Result {
    let row = row(m, from, bytes)?;
    copy_now(
        m,
        &CUDA_MEMCPY3D_v2 {
            dstMemoryType: CUmemorytype::DEVICE,
            dstDevice: to,
            srcArray: from,
            srcXInBytes: offset,
            ..row
        },
    )
}

fn copy_between(
    m: &'static Machine,
    to: CUarray,
    offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> Result {
    row(m, to, bytes)?;
    let ends = CUDA_MEMCPY3D_v2 {
        srcArray: from,
        srcXInBytes: from_offset,
        ..row(m, from, bytes)?
    };
    copy_now(
        m,
        &CUDA_MEMCPY3D_v2 {
            dstArray: to,
            dstXInBytes: offset,
            ..ends
        },
    )
}

impl DriverState {
    /// Returns the array with this handle.
    pub(crate) fn array(&self, array: CUarray) -> Result<(ArrayId, &ImageArray)> {
        let id = self.arrays.find(array)?;
        Ok((id, &self.arrays[id]))
    }
}
