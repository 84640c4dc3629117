//! Arrays, textures and surfaces: what describes them.

use std::ffi::{c_float, c_int, c_uint};

use crate::codes::codes;
use crate::structs::structs;

codes! {
    /// What a channel of a texel holds.
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

    /// What a texture or surface is made of.
    CUresourcetype(c_uint) {
        ARRAY = 0,
        MIPMAPPED_ARRAY = 1,
        LINEAR = 2,
        PITCH2D = 3,
    }

    /// What a coordinate outside of a texture stands for.
    CUaddress_mode(c_uint) {
        WRAP = 0,
        CLAMP = 1,
        MIRROR = 2,
        BORDER = 3,
    }

    /// What lies between the texels of a texture.
    CUfilter_mode(c_uint) {
        POINT = 0,
        LINEAR = 1,
    }
}

/// An array of layers, whose number is its depth.
pub const CUDA_ARRAY3D_LAYERED: c_uint = 0x01;
/// An array that surfaces may be made of.
pub const CUDA_ARRAY3D_SURFACE_LDST: c_uint = 0x02;
/// An array of the six faces of a cube, or with layers of several.
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 0x04;
/// An array that four texels at once are fetched from.
pub const CUDA_ARRAY3D_TEXTURE_GATHER: c_uint = 0x08;

/// A texture that reads integers as integers, not as floats from 0 or -1 to 1.
pub const CU_TRSF_READ_AS_INTEGER: c_uint = 0x01;
/// A texture whose coordinates reach from 0 to 1.
pub const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 0x02;
/// A texture whose 8-bit integers are sRGB.
pub const CU_TRSF_SRGB: c_uint = 0x10;

/// A texture as kernels take it: 64 bits that mean something to the driver.
pub type CUtexObject = u64;

/// A surface as kernels take it: 64 bits that mean something to the driver.
pub type CUsurfObject = u64;

structs! {
    /// A 1D array, whose `Height` is 0, or a 2D one, in texels.
    struct CUDA_ARRAY_DESCRIPTOR_v2: 24 {
        0 Width: usize,
        8 Height: usize,
        16 Format: CUarray_format,
        20 NumChannels: c_uint,
    }

    /// An array of any kind, in texels. What it does not have is 0.
    struct CUDA_ARRAY3D_DESCRIPTOR_v2: 40 {
        0 Width: usize,
        8 Height: usize,
        16 Depth: usize,
        24 Format: CUarray_format,
        28 NumChannels: c_uint,
        32 Flags: c_uint,
    }

    /// The union within [`CUDA_RESOURCE_DESC`], whose members lie on each other.
    struct CUDA_RESOURCE_DESC_res: 128 {
        0 pointer: u64,
        8 format: CUarray_format,
        12 numChannels: c_uint,
        16 width: usize,
        24 height: usize,
        32 pitchInBytes: usize,
        40 reserved: [u64; 11],
    }

    /// What a texture or surface is made of. `res.pointer` is the array, or the address; of linear memory `res.width` is
    /// its bytes.
    struct CUDA_RESOURCE_DESC: 144 {
        0 resType: CUresourcetype,
        8 res: CUDA_RESOURCE_DESC_res,
        136 flags: c_uint,
    }

    /// How a texture is read.
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

    /// A part of an array, or another format of it, that a texture reads.
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
