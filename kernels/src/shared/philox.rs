//! Philox4x32-10, a random number generator that is a pure function of a counter and a key.
//!
//! It is by Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011). The multipliers
//! and the key increments are those of the authors' implementation, Random123.

use ptx_gen::U32;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const INCREMENTS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: u32 = 10;

/// Returns four random words for a counter and a key.
///
/// # Example
///
/// The first of the known answers of Random123:
///
/// ```
/// use warpwright_kernels::shared::philox::philox4x32;
///
/// let words = philox4x32([0; 4], [0; 2]);
/// assert_eq!(words, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
/// ```
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        counter = round(counter, key);
        key = [
            key[0].wrapping_add(INCREMENTS[0]),
            key[1].wrapping_add(INCREMENTS[1]),
        ];
    }
    counter
}

fn round(c: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [p, q] =
        [(c[0], MULTIPLIERS[0]), (c[2], MULTIPLIERS[1])].map(|(x, m)| u64::from(x) * u64::from(m));
    [
        (q >> 32) as u32 ^ c[1] ^ key[0],
        q as u32,
        (p >> 32) as u32 ^ c[3] ^ key[1],
        p as u32,
    ]
}

/// Returns [`philox4x32`] on the device.
pub fn on_device<'k>(mut counter: [U32<'k>; 4], key: [U32<'k>; 2]) -> [U32<'k>; 4] {
    for i in 0..ROUNDS {
        let [c0, c1, c2, c3] = counter;
        let key = [0, 1].map(|j| key[j] + i.wrapping_mul(INCREMENTS[j]));
        let [p, q] =
            [(c0, MULTIPLIERS[0]), (c2, MULTIPLIERS[1])].map(|(x, m)| (x.mul_hi(m), x * m));
        counter = [q.0 ^ c1 ^ key[0], q.1, p.0 ^ c3 ^ key[1], p.1];
    }
    counter
}
