//! Loads and stores of elements of rows, eight or two at a time.

use ptx_gen::*;
use std::array::from_fn;

/// Returns the two bf16 elements of a word.
pub(super) fn unpack(word: U32<'_>) -> [F32<'_>; 2] {
    [word << 16, word & 0xffff_0000].map(|bits| bits.bits::<f32>())
}

/// Loads eight elements. The address must be a multiple of 16.
pub(super) fn load<'k, A: Loads>(from: Ptr<'k, bf16, A>) -> [F32<'k>; 8] {
    let words = from.cast::<u32>().ld4().map(unpack);
    from_fn(|i| words[i / 2][i % 2])
}

/// Rounds and stores eight elements. The address must be a multiple of 16.
pub(super) fn store<'k, A: Stores>(to: Ptr<'k, bf16, A>, v: [F32<'k>; 8]) {
    to.cast::<u32>()
        .st4(from_fn(|i| v[2 * i].pack_bf16(v[2 * i + 1])));
}

/// Loads eight `f32`. The address must be a multiple of 16.
pub(super) fn load_f32<'k, A: Loads>(from: Ptr<'k, f32, A>) -> [F32<'k>; 8] {
    let halves = [0u32, 4].map(|i| from.at(i).ld4());
    from_fn(|i| halves[i / 4][i % 4])
}
