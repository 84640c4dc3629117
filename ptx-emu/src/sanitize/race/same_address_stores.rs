//! Lanes of one store that write to the same address, and sums that several warps store to one
//! address.
//!
//! The values must be equal, because it is undefined which one remains. Floats that differ only by
//! rounding cause a note instead of a fault. Compilers reduce over a warp by shuffles and let all
//! lanes store the sum, although the lanes fuse different products into it. The difference of such
//! sums depends on cancellation, so the tolerance is larger for values that come from a shuffle.

use crate::fault::SourcePlace;
use crate::sanitize::race::tolerated_races::parts;

pub(crate) const ROUNDED: &str =
    "lanes of one store write floats to one address that differ by rounding: one of them stays";

/// The largest relative difference of values that differ by rounding, as powers of two: of any
/// values, and of sums over lanes.
pub(crate) const NEAR: i32 = -13;
const NEAR_OF_SUMS: i32 = -4;
/// The maximum number of instructions between a value and its use.
const MOST_BETWEEN: usize = 256;
/// The maximum number of copies and sums of a value that are followed.
const MOST_STEPS: usize = 4;

/// Returns true if the values are floats whose relative difference is at most 2 to the power of
/// `near`.
pub(crate) fn are_rounded_apart(a: u64, b: u64, bytes: u32, near: i32) -> bool {
    let (a, b, least) = match bytes {
        4 => {
            let a = f32::from_bits(a as u32);
            let b = f32::from_bits(b as u32);
            (f64::from(a), f64::from(b), f64::from(f32::MIN_POSITIVE))
        }
        8 => (f64::from_bits(a), f64::from_bits(b), f64::MIN_POSITIVE),
        _ => return false,
    };
    let greater = a.abs().max(b.abs());

    // Small integers are no normal floats.
    let normal = a.is_finite() && b.is_finite() && a.abs() >= least && b.abs() >= least;
    normal && (a - b).abs() <= greater * 2f64.powi(near)
}

/// Returns true if a store writes a sum over lanes, so that an operand of its last addition came
/// from a shuffle.
fn is_summed(places: &[SourcePlace], store: usize) -> bool {
    let stored = parts(&places[store])
        .1
        .split_once(']')
        .map_or("", |(_, values)| values);
    registers(stored).any(|register| sums(places, store, register, MOST_STEPS))
}

/// Returns true if the value of a register before an instruction is a sum with an operand from a
/// shuffle.
fn sums(places: &[SourcePlace], before: usize, register: &str, steps: usize) -> bool {
    let Some((at, name, sources)) = definition(places, before, register).filter(|_| steps > 0)
    else {
        return false;
    };
    let shuffled = |source| {
        definition(places, at, source).is_some_and(|(_, name, _)| name.starts_with("shfl"))
    };
    match name.split('.').next() {
        Some("add" | "fma" | "mul") if registers(sources).any(shuffled) => true,
        Some("add" | "fma" | "mul" | "mov" | "cvt" | "selp") => {
            registers(sources).any(|source| sums(places, at, source, steps - 1))
        }
        _ => false,
    }
}

/// Returns the nearest earlier instruction that writes a register: its index, its name and its
/// sources.
fn definition<'c>(
    places: &'c [SourcePlace],
    before: usize,
    register: &str,
) -> Option<(usize, &'c str, &'c str)> {
    let near = before.saturating_sub(MOST_BETWEEN)..before;
    near.rev().find_map(|at| {
        let (name, operands) = parts(&places[at]);
        let (to, sources) = operands.split_once(',')?;
        let writes = !name.starts_with("st.") && registers(to).any(|written| written == register);
        writes.then_some((at, name, sources))
    })
}

fn registers(operands: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '$' | '_');
    operands
        .split(move |c| !part(c))
        .filter(|word| word.starts_with(|c: char| c == '%' || c.is_ascii_alphabetic()))
}

/// Returns true if a store at `pc` writes sums over lanes, and two of its values differ by
/// rounding.
#[cold]
pub(crate) fn sums_apart(places: &[SourcePlace], pc: u32, (a, b): (u64, u64), bytes: u32) -> bool {
    are_rounded_apart(a, b, bytes, NEAR_OF_SUMS) && is_summed(places, pc as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_explains() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert!(are_rounded_apart(bits(32.25), bits(32.250004), 4, NEAR));
        assert!(!are_rounded_apart(bits(32.25), bits(32.5), 4, NEAR));
        assert!(are_rounded_apart(bits(32.25), bits(32.5), 4, NEAR_OF_SUMS));
        assert!(!are_rounded_apart(bits(1.0), bits(f32::NAN), 4, NEAR));
        assert!(!are_rounded_apart(7, 8, 4, NEAR_OF_SUMS));
        assert!(are_rounded_apart(
            1f64.to_bits(),
            (1f64 + f64::EPSILON).to_bits(),
            8,
            NEAR
        ));
        assert!(!are_rounded_apart(1000, 1001, 8, NEAR));
    }

    #[test]
    fn sums_with_what_was_shuffled() {
        let rows = [
            (
                "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; add.f32 %r2, %r0, %r1; @%p st.shared.b32 [%a], %r2;",
                true,
            ),
            (
                "shfl.sync.bfly.b32 x, y, 1, 31, -1; fma.rn.f32 z, y, y, x; mov.b32 %r9, z; st.shared.b32 [%a], { %r9 };",
                true,
            ),
            (
                "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; add.f32 %r2, %r0, %r0; st.shared.b32 [%a], %r2;",
                false,
            ),
            ("add.f32 %r2, %r0, %r1; st.shared.b32 [%r2], %r0;", false),
        ];
        for (text, wanted) in rows {
            let place = |text: &str| SourcePlace {
                line: 1,
                column: 1,
                text: text.trim().into(),
                rust: None,
                callers: vec![],
            };
            let places: Vec<SourcePlace> = text.split_terminator(';').map(place).collect();
            assert_eq!(is_summed(&places, places.len() - 1), wanted, "{text}");
        }
    }
}
