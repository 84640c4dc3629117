//! Tensor maps: what is encoded is what the emulator reads.

use std::ptr::{null_mut, without_provenance_mut};

use ptx_emu::{ElementKind, TensorMap};
use warpwright_driver_sys::*;

use crate::harness::{code, emu, ok};

/// The bytes of a map.
fn bytes(map: &CUtensorMap) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(map.opaque)
        .for_each(|(to, word)| *to = word.to_le_bytes());
    bytes
}

#[test]
fn a_tiled_map_is_what_the_emulator_reads() {
    use {CUtensorMapDataType as T, CUtensorMapInterleave as I, CUtensorMapSwizzle as S};
    let emu = emu();
    let (fill, l2) = (
        CUtensorMapFloatOOBfill::NONE,
        CUtensorMapL2promotion::L2_256B,
    );
    let (dims, strides, ones) = ([100u64, 50], [208u64], [1u32; 2]);
    let [at, d, s, o] = [
        0x1000usize,
        dims.as_ptr() as usize,
        strides.as_ptr() as usize,
        ones.as_ptr() as usize,
    ];
    let encode = |map: &mut CUtensorMap, boxed: [u32; 2], interleave, swizzle, rank| {
        let place = without_provenance_mut(at);
        let (d, s, o) = (d as *const u64, s as *const u64, o as *const u32);
        let f = boxed.as_ptr();
        code!(
            emu,
            cuTensorMapEncodeTiled(
                map,
                T::FLOAT16,
                rank,
                place,
                d,
                s,
                f,
                o,
                interleave,
                swizzle,
                l2,
                fill
            )
        )
    };
    let mut map = CUtensorMap::zeroed();
    assert_eq!(
        encode(&mut map, [64, 32], I::NONE, S::_128B, 2),
        0,
        "{}",
        emu.last_log()
    );
    let wanted = TensorMap {
        address: 0x1000,
        element: 2,
        kind: ElementKind::Float,
        swizzle: 128,
        dims: dims.to_vec(),
        strides: strides.to_vec(),
        boxed: vec![64, 32],
    };
    assert_eq!(TensorMap::decode(&bytes(&map)), Some(wanted.clone()));
    ok!(
        emu,
        cuTensorMapReplaceAddress(&mut map, without_provenance_mut(0x2000))
    );
    assert_eq!(
        TensorMap::decode(&bytes(&map)),
        Some(TensorMap {
            address: 0x2000,
            ..wanted
        })
    );
    let invalid = CUresult::INVALID_VALUE.0;
    assert_eq!(
        encode(&mut map, [65, 32], I::NONE, S::_128B, 2),
        invalid,
        "rows of 130 bytes"
    );
    assert_eq!(
        encode(&mut map, [64, 257], I::NONE, S::_128B, 2),
        invalid,
        "a box of 257 rows"
    );
    assert_eq!(
        encode(&mut map, [64, 32], I::NONE, S::_128B, 6),
        invalid,
        "six dimensions"
    );
    assert_eq!(
        encode(&mut map, [64, 32], I::_16B, S::_128B, 2),
        CUresult::NOT_SUPPORTED.0
    );
    let mut other = CUtensorMap::zeroed();
    assert_eq!(
        code!(emu, cuTensorMapReplaceAddress(&mut other, null_mut())),
        invalid,
        "no map"
    );
}
