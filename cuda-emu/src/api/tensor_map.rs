//! Tensor maps in the format of the emulator, for tiled copies.

use std::ffi::c_void;

use ptx_emu::{ElementKind, TensorMap};
use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;

exports! {
    table {
        12000 cuTensorMapEncodeTiled cuTensorMapEncodeTiled(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: *mut c_void, dim: *const u64, strides: *const u64, box_dim: *const u32, element_strides: *const u32, interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill) => encode_tiled;
        12000 cuTensorMapReplaceAddress cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void) => replace_address;
    }
    more {}
}

/// Returns the size of an element in bytes and its kind.
fn element(data_type: CUtensorMapDataType) -> Result<(u32, ElementKind)> {
    use CUtensorMapDataType as T;
    use ElementKind::{BFloat, Float, Signed, Unsigned};
    Ok(match data_type {
        T::UINT8 => (1, Unsigned),
        T::UINT16 => (2, Unsigned),
        T::UINT32 => (4, Unsigned),
        T::UINT64 => (8, Unsigned),
        T::INT32 => (4, Signed),
        T::INT64 => (8, Signed),
        T::FLOAT16 => (2, Float),
        T::FLOAT32 | T::FLOAT32_FTZ | T::TFLOAT32 | T::TFLOAT32_FTZ => (4, Float),
        T::FLOAT64 => (8, Float),
        T::BFLOAT16 => (2, BFloat),
        other => {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!("tensors of {other:?} are not emulated"),
            );
        }
    })
}

fn swizzle(swizzle: CUtensorMapSwizzle) -> Result<u32> {
    use CUtensorMapSwizzle as S;
    Ok(match swizzle {
        S::NONE => 0,
        S::_32B => 32,
        S::_64B => 64,
        S::_128B => 128,
        other => {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!("the swizzle {other:?} is not emulated"),
            );
        }
    })
}

fn encode(map: &TensorMap) -> Result<CUtensorMap> {
    match map.encode() {
        Ok(bytes) => {
            let words = bytes.as_chunks::<8>().0;
            Ok(CUtensorMap {
                opaque: std::array::from_fn(|i| u64::from_le_bytes(words[i])),
            })
        }
        Err(problem) => refuse(CUresult::INVALID_VALUE, problem),
    }
}

#[allow(clippy::too_many_arguments)]
fn encode_tiled(
    _: &'static Machine,
    map: Out<CUtensorMap>,
    data_type: CUtensorMapDataType,
    rank: u32,
    address: Out<c_void>,
    dim: In<u64>,
    strides: In<u64>,
    box_dim: In<u32>,
    element_strides: In<u32>,
    interleave: CUtensorMapInterleave,
    pattern: CUtensorMapSwizzle,
    _: CUtensorMapL2promotion,
    oob_fill: CUtensorMapFloatOOBfill,
) -> Result {
    require((1..=5).contains(&rank), || {
        format!("a tensor of {rank} dimensions: expected 1 to 5")
    })?;
    let rank = rank as usize;
    let plain =
        interleave == CUtensorMapInterleave::NONE && oob_fill == CUtensorMapFloatOOBfill::NONE;
    if !plain || element_strides.slice(rank)?.iter().any(|step| *step != 1) {
        let why = "tensor maps that interleave, fill with NaN or skip elements are not emulated";
        return refuse(CUresult::NOT_SUPPORTED, why);
    }

    let (element, kind) = element(data_type)?;

    // The stride of the innermost dimension is the element size, so the array has one stride less.
    map.set(encode(&TensorMap {
        address: address.address() as u64,
        element,
        kind,
        swizzle: swizzle(pattern)?,
        dims: dim.slice(rank)?.to_vec(),
        strides: strides.slice(rank - 1)?.to_vec(),
        boxed: box_dim.slice(rank)?.to_vec(),
    })?)
}

fn replace_address(_: &'static Machine, map: Out<CUtensorMap>, address: Out<c_void>) -> Result {
    let mut bytes = [0; 128];
    let words = map.get()?.opaque;
    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }

    match TensorMap::decode(&bytes) {
        Some(old) => map.set(encode(&TensorMap {
            address: address.address() as u64,
            ..old
        })?),
        None => refuse(
            CUresult::INVALID_VALUE,
            "the map is not a tensor map of this driver",
        ),
    }
}
