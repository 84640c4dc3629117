//! Random numbers in place of weights and activations.

use warpwright_driver::memory::f16;

/// Returns `n` random values from -1 to 1, with a quarter of a million different ones.
///
/// Real data toggles as many wires, and the clock of a GPU depends on that.
pub fn halves(n: usize, seed: u64) -> Vec<f16> {
    let mut state = seed;
    let mut next = || {
        // A linear congruence of Knuth's; its upper bits are good.
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        f16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    let some: Vec<f16> = (0..n.min((1 << 18) + 1)).map(|_| next()).collect();
    some.iter().copied().cycle().take(n).collect()
}
