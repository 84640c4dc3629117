//! Types for arrays, textures and surfaces.

use std::ffi::{c_float, c_int, c_uint};

use crate::codes::codes;
use crate::structs::structs;

codes! {
    /// The format of a channel of a texel.
    CUarray_format(c_uint) {
        UNSIGNED_INT8 = 0x01,
        UNSIGNED_INT16 = 0x02,
        UNSIGNED_INT32 = 0x03,
        SIGNED_INT8 = 0x08,
        SIGNED_INT16 = 0x09,
        SIGNED_INT32 = 0x0a,
        HALF = 0x10,
        FLOAT = 0x20,
    }

    /// The kind of resource behind a texture or a surface.
    CUresourcetype(c_uint) {
        ARRAY = 0,
        MIPMAPPED_ARRAY = 1,
        LINEAR = 2,
        PITCH2D = 3,
    }

    /// The handling of coordinates outside a texture.
    CUaddress_mode(c_uint) {
        WRAP = 0,
        CLAMP = 1,
        MIRROR = 2,
        BORDER = 3,
    }

    /// The interpolation between texels.
    CUfilter_mode(c_uint) {
        POINT = 0,
        LINEAR = 1,
    }
}

/// An array of layers. The depth is the number of layers.
pub const CUDA_ARRAY3D_LAYERED: c_uint = 0x01;
/// An array that can be bound to surfaces.
pub const CUDA_ARRAY3D_SURFACE_LDST: c_uint = 0x02;
/// An array of the six faces of a cube. With layers, it contains several cubes.
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 0x04;
/// An array that supports fetching four texels at the same time.
pub const CUDA_ARRAY3D_TEXTURE_GATHER: c_uint = 0x08;

/// A texture that returns integers as integers, and not as floats from 0 or -1 to 1.
pub const CU_TRSF_READ_AS_INTEGER: c_uint = 0x01;
/// A texture whose coordinates range from 0 to 1.
pub const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 0x02;
/// A texture whose 8-bit integers are sRGB values.
pub const CU_TRSF_SRGB: c_uint = 0x10;

/// A texture object, which kernels take as an opaque 64-bit value.
pub type CUtexObject = u64;

/// A surface object, which kernels take as an opaque 64-bit value.
pub type CUsurfObject = u64;

structs! {
    /// A one- or two-dimensional array in texels. `Height` is 0 for one dimension.
    struct CUDA_ARRAY_DESCRIPTOR_v2: 24 {
        0 Width: usize,
        8 Height: usize,
        16 Format: CUarray_format,
        20 NumChannels: c_uint,
    }

    /// An array of any kind in texels. Dimensions that it does not have are 0.
    struct CUDA_ARRAY3D_DESCRIPTOR_v2: 40 {
        0 Width: usize,
        8 Height: usize,
        16 Depth: usize,
        24 Format: CUarray_format,
        28 NumChannels: c_uint,
        32 Flags: c_uint,
    }

    /// The union within [`CUDA_RESOURCE_DESC`], whose members overlap.
    struct CUDA_RESOURCE_DESC_res: 128 {
        0 pointer: u64,
        8 format: CUarray_format,
        12 numChannels: c_uint,
        16 width: usize,
        24 height: usize,
        32 pitchInBytes: usize,
        40 reserved: [u64; 11],
    }

    /// The resource behind a texture or a surface. `res.pointer` is the array or the address. For
    /// linear memory, `res.width` is the size in bytes.
    struct CUDA_RESOURCE_DESC: 144 {
        0 resType: CUresourcetype,
        8 res: CUDA_RESOURCE_DESC_res,
        136 flags: c_uint,
    }

    /// The sampling mode of a texture.
    struct CUDA_TEXTURE_DESC: 104 {
        0 addressMode: [CUaddress_mode; 3],
        12 filterMode: CUfilter_mode,
        16 flags: c_uint,
        20 maxAnisotropy: c_uint,
        24 mipmapFilterMode: CUfilter_mode,
        28 mipmapLevelBias: c_float,
        32 minMipmapLevelClamp: c_float,
        36 maxMipmapLevelClamp: c_float,
        40 borderColor: [c_float; 4],
        56 reserved: [c_int; 12],
    }

    /// A view of a part of an array, or with another format, that a texture samples.
    struct CUDA_RESOURCE_VIEW_DESC: 112 {
        0 format: c_uint,
        8 width: usize,
        16 height: usize,
        24 depth: usize,
        32 firstMipmapLevel: c_uint,
        36 lastMipmapLevel: c_uint,
        40 firstLayer: c_uint,
        44 lastLayer: c_uint,
        48 reserved: [c_uint; 16],
    }
}
