//! Division by a number that is known when the kernel is generated.

use ptx_gen::*;

/// Returns quotient and remainder of a division by a literal, for `v * by` below 2^32. The code
/// uses a multiplication because `ptxas` does not optimize divisions by literals.
pub(crate) fn divided(v: U32<'_>, by: u32) -> (U32<'_>, U32<'_>) {
    if by.is_power_of_two() {
        return (v >> by.ilog2(), v & (by - 1));
    }
    let quotient = v.mul_hi((u32::MAX / by) + 1);
    (quotient, v - quotient * by)
}
