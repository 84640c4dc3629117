//! Numbers that depend on the seed of a schedule.

/// Returns a permutation of 0..n without a table. It takes steps whose length is coprime to n.
pub(crate) fn shuffled(turn: u64, n: u64, seed: u64) -> u64 {
    let mut step = mix(seed) % n | 1;
    while gcd(step, n) != 1 {
        step += 1;
    }
    let start = mix(seed ^ 0x5bd1_e995) % n;
    ((u128::from(turn) * u128::from(step) + u128::from(start)) % u128::from(n)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns a well-mixed function of `x` (splitmix64).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
