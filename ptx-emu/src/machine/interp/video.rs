//! Video instructions: an operation on elements of two registers, in integers that are wide enough
//! for all of them.

use crate::module::code::{Second, Video, VideoElement};
use crate::module::registers::{Regs, Undefined};

pub(crate) fn run(regs: &mut Regs, mask: u32, v: &Video) -> Result<(), Undefined> {
    let a = regs.get::<u32>(v.a, mask)?;
    let b = regs.get::<u32>(v.b, mask)?;
    let c = v.c.map_or(Ok(a), |c| regs.get::<u32>(c, mask))?;
    let out = std::array::from_fn(|i| lane(v, a[i], b[i], c[i]));
    regs.set(v.d, mask, &out);
    Ok(())
}

fn extended(value: u64, bits: u32, signed: bool) -> i128 {
    let shift = 64 - bits;
    if signed {
        ((value << shift) as i64 >> shift).into()
    } else {
        (value << shift >> shift).into()
    }
}

fn clamped(value: i128, bits: u32, signed: bool) -> i128 {
    if signed {
        value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

/// Applies `.sat` as an H200 does. It sees 34 bits of the result, and does not clamp an unsigned
/// 32-bit result from above, except after a shift.
fn saturated(value: i128, bits: u32, signed: bool, shifts: bool) -> i128 {
    let value = value << (128 - 34) >> (128 - 34);
    if bits == 32 && !signed && !shifts {
        value.max(0)
    } else {
        clamped(value, bits, signed)
    }
}

/// Applies `.sat` to the scaled sum of `vmad`. As on an H100, a negative unsigned sum counts as too
/// large if it was shifted.
fn saturated_product(value: i128, signed: bool, shifted: bool) -> i128 {
    if !signed && shifted && value < 0 {
        u32::MAX.into()
    } else {
        clamped(value, 32, signed)
    }
}

/// Applies `.min` or `.max` as an H100 does. A result is compared with 64 bits, or with 32 bits and
/// its sign. For unsigned types, negative results are larger than all others.
fn second(v: &Video, result: i128, c: u32, least: bool) -> u32 {
    let result = if v.narrow {
        i128::from(result as i32)
    } else {
        result
    };
    let c = extended(c.into(), 32, v.signed[0]);
    let order = |x: i128| {
        if v.signed[0] {
            i128::from(x as i64)
        } else {
            i128::from(x as u64)
        }
    };
    let takes_c = if least {
        order(c) < order(result)
    } else {
        order(c) > order(result)
    };
    (if takes_c { c } else { result }) as u32
}

/// Returns the result of one operation. `vmad` uses whole registers as signed, as an H200 does.
fn result(v: &Video, both: u64, [to, a, b]: [VideoElement; 3]) -> i128 {
    let late = matches!(v.second, Second::Product { .. });
    let of =
        |e: VideoElement, signed| extended(both >> e.place, e.bits, signed || late && e.bits == 32);
    let a = of(a, v.signed[1]);
    let b = of(b, v.signed[2]);
    let b = match v.wrap {
        Some(true) => b & 31,
        Some(false) => b.min(32),
        None => b,
    };
    let result = (v.f)(a, b);
    if v.saturate && !late {
        saturated(result, to.bits, v.signed[0], v.wrap.is_some())
    } else {
        result
    }
}

fn lane(v: &Video, a: u32, b: u32, c: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    let results = v.elements.iter().map(|e| (e[0], result(v, both, *e)));
    let first = |results: &mut dyn Iterator<Item = (VideoElement, i128)>| {
        results.next().map_or(0, |(_, r)| r)
    };
    let mut results = results;
    match v.second {
        Second::Nothing => first(&mut results) as u32,
        Second::Merge => results.fold(c, |d, (to, r)| {
            let bits = (((1u64 << to.bits) - 1) as u32) << to.place;
            d & !bits | (r as u32) << to.place & bits
        }),
        Second::Add => results.fold(c, |d, (_, r)| d.wrapping_add(r as u32)),
        Second::Min => second(v, first(&mut results), c, true),
        Second::Max => second(v, first(&mut results), c, false),
        Second::Product { plus_one, shift } => {
            let signed = v.signed[1] || v.signed[2];
            let sum = first(&mut results) + extended(c.into(), 32, true) + i128::from(plus_one);
            let scaled = sum >> shift;
            (if v.saturate {
                saturated_product(scaled, signed, shift > 0)
            } else {
                scaled
            }) as u32
        }
    }
}
