//! Numbers from integer hashes, so that fixtures need no files of weights: SplitMix64, and sums of four of its numbers.

/// The 64 bits for `x`, with the constants of SplitMix64.
pub(crate) fn splitmix64(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Number `i` of `seed`, from 0 to below 1.
pub(crate) fn unit(seed: u64, i: u64) -> f64 {
    let bits = splitmix64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i));
    (bits >> 40) as f64 / f64::from(1 << 24)
}

/// Numbers with mean 0 and this standard deviation: Irwin-Hall's distribution of four.
pub(crate) fn gauss(seed: u64, len: usize, std: f64) -> Vec<f32> {
    let sum = |i: u64| unit(seed, i) + unit(seed, i + 1) + unit(seed, i + 2) + unit(seed, i + 3);
    (0..len as u64)
        .map(|i| ((sum(4 * i) - 2.0) * 3f64.sqrt() * std) as f32)
        .collect()
}

/// FNV-1a of bytes, as fixtures spell it.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> String {
    let hash = bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    format!("{hash:016x}")
}

/// FNV-1a of little-endian `f32`.
pub(crate) fn fnv1a_f32(numbers: &[f32]) -> String {
    fnv1a(numbers.iter().flat_map(|x| x.to_le_bytes()))
}
