//! Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions").

use crate::module::context::row::{ArithmeticRow, rows, seldom};
use crate::module::registers::{B32, B64, Two};

/// Returns a position or length, which the manual limits to 255. An H100 uses the low 8 bits of
/// larger values in 32-bit forms.
fn limited(x: u32, bits: u32) -> u32 {
    if bits == 32 { x & 0xff } else { x.min(0xff) }
}

/// Returns the field of `c` bits at position `b` of `a`, extended with zeros or with its sign.
fn bfe(a: i64, bits: u32, b: u32, c: u32, signed: bool) -> u64 {
    let pos = limited(b, bits);
    let len = limited(c, bits);
    let msb = bits - 1;
    let sign_at = (pos + len.max(1) - 1).min(msb);

    // The sign is the last bit of the field, or the top bit of `a` if the field reaches beyond it.
    // A field of length 0 is zero.
    let sign = if !signed || len == 0 {
        0
    } else {
        (a >> sign_at) & 1
    };
    let fill = if sign == 1 { u64::MAX } else { 0 };
    let field = if pos > msb {
        0
    } else {
        (a as u64 & u64::MAX >> (64 - bits)) >> pos
    };
    let have = len.min((msb + 1).saturating_sub(pos));

    // `a` provides `have` bits of the field. All bits above them are copies of the sign.
    let keep = if have >= 64 {
        u64::MAX
    } else {
        (1 << have) - 1
    };
    field & keep | fill & !keep
}

fn bfi(a: u64, b: u64, c: u32, d: u32, bits: u32) -> u64 {
    let pos = limited(c, bits);
    let len = limited(d, bits);
    let len = len.min(bits.saturating_sub(pos));
    if len == 0 {
        return b;
    }
    let keep = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    b & !(keep << pos) | (a & keep) << pos
}

fn find_high(x: u64, shift: bool, bits: u32) -> u32 {
    let width_high = 63 - x.leading_zeros().min(63);
    match x {
        0 => u32::MAX,
        _ if shift => bits - 1 - width_high,
        _ => width_high,
    }
}

/// Returns byte `i`, unsigned.
#[inline(always)]
fn byte(x: u32, i: u32) -> i32 {
    (x >> (8 * i) & 0xff) as i32
}

/// Returns byte `i`, signed.
#[inline(always)]
fn signed_byte(x: u32, i: u32) -> i32 {
    (x << (24 - 8 * i)) as i32 >> 24
}

/// Returns the dot product of the four bytes of each operand. It cannot overflow.
#[inline(always)]
fn dot(a: u32, b: u32, of_a: impl Fn(u32, u32) -> i32, of_b: impl Fn(u32, u32) -> i32) -> i32 {
    (0..4).fold(0i32, |sum, i| {
        sum.wrapping_add(of_a(a, i).wrapping_mul(of_b(b, i)))
    })
}

/// Returns the dot product of the halves of `a` with two bytes of `b`, starting at byte `from`.
fn dot2(a: [i32; 2], b: u32, of_b: fn(u32, u32) -> i32, from: u32) -> i32 {
    (0..2).fold(0i32, |sum, i| {
        sum.wrapping_add(a[i as usize].wrapping_mul(of_b(b, from + i)))
    })
}

fn halves(x: u32) -> [i32; 2] {
    [x as u16, (x >> 16) as u16].map(i32::from)
}

fn signed_halves(x: u32) -> [i32; 2] {
    [x as i16, (x >> 16) as i16].map(i32::from)
}

/// Returns the position of the `offset`-th set bit, counted from `base` up or down, or all ones if
/// there is none (PTX ISA, "fns"). The smallest offset has no magnitude, and an H100 returns 0 for
/// it.
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == i32::MIN {
        return 0;
    }

    let mut places: Box<dyn Iterator<Item = u32>> = match offset {
        0 => Box::new(base..=base.min(31)),
        1.. => Box::new(base..32),
        _ => Box::new((0..=base.min(31)).rev()),
    };
    let skip = offset.unsigned_abs().saturating_sub(1) as usize;
    places
        .by_ref()
        .filter(|place| mask >> (place & 31) & 1 != 0)
        .nth(skip)
        .unwrap_or(u32::MAX)
}

/// Extends the low `b` bits of `a` (PTX ISA, "szext").
fn extend(a: u32, b: u32, wrap: bool, signed: bool) -> u32 {
    let bits = if wrap { b & 31 } else { b.min(32) };
    match bits {
        0 => 0,
        _ if signed => ((a << (32 - bits)) as i32 >> (32 - bits)) as u32,
        _ => a & u32::MAX >> (32 - bits),
    }
}

fn low24(x: u32) -> u32 {
    x & 0xff_ffff
}

fn low24s(x: i32) -> i32 {
    x << 8 >> 8
}

/// The rows of integer arithmetic. A division by zero returns all ones, as NVIDIA's division
/// routine does. The manual leaves it open.
pub(crate) const ROWS: &[ArithmeticRow] = rows! {
    "add.{u16,s16}" => |a: u16, b: u16| -> u16 { a.wrapping_add(b) }
    "add.{u32,s32}" => |a: u32, b: u32| -> u32 { a.wrapping_add(b) }
    "add.{u64,s64}" => |a: u64, b: u64| -> u64 { a.wrapping_add(b) }
    "add.sat.s32" => |a: i32, b: i32| -> i32 { a.saturating_add(b) }
    "sub.{u16,s16}" => |a: u16, b: u16| -> u16 { a.wrapping_sub(b) }
    "sub.{u32,s32}" => |a: u32, b: u32| -> u32 { a.wrapping_sub(b) }
    "sub.{u64,s64}" => |a: u64, b: u64| -> u64 { a.wrapping_sub(b) }
    "sub.sat.s32" => |a: i32, b: i32| -> i32 { a.saturating_sub(b) }

    "mul.lo.{u16,s16}" => |a: u16, b: u16| -> u16 { a.wrapping_mul(b) }
    "mul.lo.{u32,s32}" => |a: u32, b: u32| -> u32 { a.wrapping_mul(b) }
    "mul.lo.{u64,s64}" => |a: u64, b: u64| -> u64 { a.wrapping_mul(b) }
    "mul.hi.u16" => |a: u16, b: u16| -> u16 { (u32::from(a) * u32::from(b) >> 16) as u16 }
    "mul.hi.s16" => |a: i16, b: i16| -> i16 { (i32::from(a) * i32::from(b) >> 16) as i16 }
    "mul.hi.u32" => |a: u32, b: u32| -> u32 { (u64::from(a) * u64::from(b) >> 32) as u32 }
    "mul.hi.s32" => |a: i32, b: i32| -> i32 { (i64::from(a) * i64::from(b) >> 32) as i32 }
    "mul.hi.u64" => |a: u64, b: u64| -> u64 { (u128::from(a) * u128::from(b) >> 64) as u64 }
    "mul.hi.s64" => |a: i64, b: i64| -> i64 { (i128::from(a) * i128::from(b) >> 64) as i64 }
    "mul.wide.u16" => |a: u16, b: u16| -> u32 { u32::from(a) * u32::from(b) }
    "mul.wide.s16" => |a: i16, b: i16| -> i32 { i32::from(a) * i32::from(b) }
    "mul.wide.u32" => |a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) }
    "mul.wide.s32" => |a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) }

    "mad.lo.{u16,s16}" => |a: u16, b: u16, c: u16| -> u16 { a.wrapping_mul(b).wrapping_add(c) }
    "mad.lo.{u32,s32}" => |a: u32, b: u32, c: u32| -> u32 { a.wrapping_mul(b).wrapping_add(c) }
    "mad.lo.{u64,s64}" => |a: u64, b: u64, c: u64| -> u64 { a.wrapping_mul(b).wrapping_add(c) }
    "mad.hi.u16" => |a: u16, b: u16, c: u16| -> u16 { ((u32::from(a) * u32::from(b) >> 16) as u16).wrapping_add(c) }
    "mad.hi.s16" => |a: i16, b: i16, c: i16| -> i16 { ((i32::from(a) * i32::from(b) >> 16) as i16).wrapping_add(c) }
    "mad.hi.u32" => |a: u32, b: u32, c: u32| -> u32 { ((u64::from(a) * u64::from(b) >> 32) as u32).wrapping_add(c) }
    "mad.hi.s32" => |a: i32, b: i32, c: i32| -> i32 { ((i64::from(a) * i64::from(b) >> 32) as i32).wrapping_add(c) }
    "mad.hi.sat.s32" => |a: i32, b: i32, c: i32| -> i32 { ((i64::from(a) * i64::from(b) >> 32) as i32).saturating_add(c) }
    "mad.hi.u64" => |a: u64, b: u64, c: u64| -> u64 { ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c) }
    "mad.hi.s64" => |a: i64, b: i64, c: i64| -> i64 { ((i128::from(a) * i128::from(b) >> 64) as i64).wrapping_add(c) }
    "mad.wide.u16" => |a: u16, b: u16, c: u32| -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) }
    "mad.wide.s16" => |a: i16, b: i16, c: i32| -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) }
    "mad.wide.u32" => |a: u32, b: u32, c: u64| -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) }
    "mad.wide.s32" => |a: i32, b: i32, c: i64| -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) }

    "mul24.lo.u32" => |a: u32, b: u32| -> u32 { low24(a).wrapping_mul(low24(b)) }
    "mul24.lo.s32" => |a: i32, b: i32| -> i32 { low24s(a).wrapping_mul(low24s(b)) }
    "mul24.hi.u32" => |a: u32, b: u32| -> u32 { (u64::from(low24(a)) * u64::from(low24(b)) >> 16) as u32 }
    "mul24.hi.s32" => |a: i32, b: i32| -> i32 { (i64::from(low24s(a)) * i64::from(low24s(b)) >> 16) as i32 }
    "mad24.lo.u32" => |a: u32, b: u32, c: u32| -> u32 { low24(a).wrapping_mul(low24(b)).wrapping_add(c) }
    "mad24.lo.s32" => |a: i32, b: i32, c: i32| -> i32 { low24s(a).wrapping_mul(low24s(b)).wrapping_add(c) }

    "sad.u16" => |a: u16, b: u16, c: u16| -> u16 { c.wrapping_add(a.abs_diff(b)) }
    "sad.s16" => |a: i16, b: i16, c: i16| -> i16 { c.wrapping_add(a.abs_diff(b) as i16) }
    "sad.u32" => |a: u32, b: u32, c: u32| -> u32 { c.wrapping_add(a.abs_diff(b)) }
    "sad.s32" => |a: i32, b: i32, c: i32| -> i32 { c.wrapping_add(a.abs_diff(b) as i32) }
    "sad.u64" => |a: u64, b: u64, c: u64| -> u64 { c.wrapping_add(a.abs_diff(b)) }
    "sad.s64" => |a: i64, b: i64, c: i64| -> i64 { c.wrapping_add(a.abs_diff(b) as i64) }

    "div.u16" => |a: u16, b: u16| -> u16 { a.checked_div(b).unwrap_or(u16::MAX) }
    "div.s16" => |a: i16, b: i16| -> i16 { if b == 0 { -1 } else { a.wrapping_div(b) } }
    "div.u32" => |a: u32, b: u32| -> u32 { a.checked_div(b).unwrap_or(u32::MAX) }
    "div.s32" => |a: i32, b: i32| -> i32 { if b == 0 { -1 } else { a.wrapping_div(b) } }
    "div.u64" => |a: u64, b: u64| -> u64 { a.checked_div(b).unwrap_or(u64::MAX) }
    "div.s64" => |a: i64, b: i64| -> i64 { if b == 0 { -1 } else { a.wrapping_div(b) } }
    "rem.u16" => |a: u16, b: u16| -> u16 { a.checked_rem(b).unwrap_or(u16::MAX) }
    "rem.s16" => |a: i16, b: i16| -> i16 { if b == 0 { -1 } else { a.wrapping_rem(b) } }
    "rem.u32" => |a: u32, b: u32| -> u32 { a.checked_rem(b).unwrap_or(u32::MAX) }
    "rem.s32" => |a: i32, b: i32| -> i32 { if b == 0 { -1 } else { a.wrapping_rem(b) } }
    "rem.u64" => |a: u64, b: u64| -> u64 { a.checked_rem(b).unwrap_or(u64::MAX) }
    "rem.s64" => |a: i64, b: i64| -> i64 { if b == 0 { -1 } else { a.wrapping_rem(b) } }

    "abs.s16" => |a: i16| -> i16 { a.wrapping_abs() }
    "abs.s32" => |a: i32| -> i32 { a.wrapping_abs() }
    "abs.s64" => |a: i64| -> i64 { a.wrapping_abs() }
    "neg.s16" => |a: i16| -> i16 { a.wrapping_neg() }
    "neg.s32" => |a: i32| -> i32 { a.wrapping_neg() }
    "neg.s64" => |a: i64| -> i64 { a.wrapping_neg() }
    "min.u16" => |a: u16, b: u16| -> u16 { a.min(b) }
    "min.s16" => |a: i16, b: i16| -> i16 { a.min(b) }
    "min.u32" => |a: u32, b: u32| -> u32 { a.min(b) }
    "min.s32" => |a: i32, b: i32| -> i32 { a.min(b) }
    "min.relu.s32" => |a: i32, b: i32| -> i32 { a.min(b).max(0) }
    "min.u64" => |a: u64, b: u64| -> u64 { a.min(b) }
    "min.s64" => |a: i64, b: i64| -> i64 { a.min(b) }
    "max.u16" => |a: u16, b: u16| -> u16 { a.max(b) }
    "max.s16" => |a: i16, b: i16| -> i16 { a.max(b) }
    "max.u32" => |a: u32, b: u32| -> u32 { a.max(b) }
    "max.s32" => |a: i32, b: i32| -> i32 { a.max(b) }
    "max.relu.s32" => |a: i32, b: i32| -> i32 { a.max(b).max(0) }
    "max.u64" => |a: u64, b: u64| -> u64 { a.max(b) }
    "max.s64" => |a: i64, b: i64| -> i64 { a.max(b) }

    "popc.b32" => |a: B32| -> u32 { a.0.count_ones() }
    "popc.b64" => |a: B64| -> u32 { a.0.count_ones() }
    "clz.b32" => |a: B32| -> u32 { a.0.leading_zeros() }
    "clz.b64" => |a: B64| -> u32 { a.0.leading_zeros() }
    "brev.b32" => |a: B32| -> B32 { B32(a.0.reverse_bits()) }
    "brev.b64" => |a: B64| -> B64 { B64(a.0.reverse_bits()) }
    "bfind.u32" => |a: u32| -> u32 { find_high(a.into(), false, 32) }
    "bfind.s32" => |a: i32| -> u32 { find_high(((a ^ a >> 31) as u32).into(), false, 32) }
    "bfind.u64" => |a: u64| -> u32 { find_high(a, false, 64) }
    "bfind.s64" => |a: i64| -> u32 { find_high((a ^ a >> 63) as u64, false, 64) }
    "bfind.shiftamt.u32" => |a: u32| -> u32 { find_high(a.into(), true, 32) }
    "bfind.shiftamt.s32" => |a: i32| -> u32 { find_high(((a ^ a >> 31) as u32).into(), true, 32) }
    "bfind.shiftamt.u64" => |a: u64| -> u32 { find_high(a, true, 64) }
    "bfind.shiftamt.s64" => |a: i64| -> u32 { find_high((a ^ a >> 63) as u64, true, 64) }
    "bfe.u32" => |a: u32, b: u32, c: u32| -> u32 { bfe(a.into(), 32, b, c, false) as u32 }
    "bfe.s32" => |a: i32, b: u32, c: u32| -> u32 { bfe(a.into(), 32, b, c, true) as u32 }
    "bfe.u64" => |a: u64, b: u32, c: u32| -> u64 { bfe(a as i64, 64, b, c, false) }
    "bfe.s64" => |a: i64, b: u32, c: u32| -> u64 { bfe(a, 64, b, c, true) }

    "dp4a.u32.u32" => |a: u32, b: u32, c: u32| -> u32 { (dot(a, b, byte, byte) as u32).wrapping_add(c) }
    "dp4a.s32.s32" => |a: u32, b: u32, c: i32| -> i32 { dot(a, b, signed_byte, signed_byte).wrapping_add(c) }
    "dp4a.u32.s32" => |a: u32, b: u32, c: i32| -> i32 { dot(a, b, byte, signed_byte).wrapping_add(c) }
    "dp4a.s32.u32" => |a: u32, b: u32, c: i32| -> i32 { dot(a, b, signed_byte, byte).wrapping_add(c) }
};

fn pair<T, D>(a: Two<T>, b: Two<T>, f: fn(T, T) -> D) -> Two<D> {
    Two(f(a.0, b.0), f(a.1, b.1))
}

fn relu(x: Two<i16>) -> Two<i16> {
    Two(x.0.max(0), x.1.max(0))
}

pub(crate) const SELDOM: &[ArithmeticRow] = seldom! {
    "mad24.hi.u32" => |a: u32, b: u32, c: u32| -> u32 { ((u64::from(low24(a)) * u64::from(low24(b)) >> 16) as u32).wrapping_add(c) }
    "mad24.hi.s32" => |a: i32, b: i32, c: i32| -> i32 { ((i64::from(low24s(a)) * i64::from(low24s(b)) >> 16) as i32).wrapping_add(c) }
    "mad24.hi.sat.s32" => |a: i32, b: i32, c: i32| -> i32 { ((i64::from(low24s(a)) * i64::from(low24s(b)) >> 16) as i32).saturating_add(c) }
    "fns.b32" => |a: u32, b: u32, c: i32| -> B32 { B32(find_nth(a, b, c)) }
    "szext.clamp.u32" => |a: u32, b: u32| -> u32 { extend(a, b, false, false) }
    "szext.clamp.s32" => |a: u32, b: u32| -> u32 { extend(a, b, false, true) }
    "szext.wrap.u32" => |a: u32, b: u32| -> u32 { extend(a, b, true, false) }
    "szext.wrap.s32" => |a: u32, b: u32| -> u32 { extend(a, b, true, true) }

    "dp2a.lo.u32.u32" => |a: u32, b: u32, c: u32| -> u32 { c.wrapping_add(dot2(halves(a), b, byte, 0) as u32) }
    "dp2a.lo.u32.s32" => |a: u32, b: u32, c: i32| -> i32 { c.wrapping_add(dot2(halves(a), b, signed_byte, 0)) }
    "dp2a.lo.s32.u32" => |a: u32, b: u32, c: i32| -> i32 { c.wrapping_add(dot2(signed_halves(a), b, byte, 0)) }
    "dp2a.lo.s32.s32" => |a: u32, b: u32, c: i32| -> i32 { c.wrapping_add(dot2(signed_halves(a), b, signed_byte, 0)) }
    "dp2a.hi.u32.u32" => |a: u32, b: u32, c: u32| -> u32 { c.wrapping_add(dot2(halves(a), b, byte, 2) as u32) }
    "dp2a.hi.u32.s32" => |a: u32, b: u32, c: i32| -> i32 { c.wrapping_add(dot2(halves(a), b, signed_byte, 2)) }
    "dp2a.hi.s32.u32" => |a: u32, b: u32, c: i32| -> i32 { c.wrapping_add(dot2(signed_halves(a), b, byte, 2)) }
    "dp2a.hi.s32.s32" => |a: u32, b: u32, c: i32| -> i32 { c.wrapping_add(dot2(signed_halves(a), b, signed_byte, 2)) }

    "add.{u16x2,s16x2}" => |a: Two<u16>, b: Two<u16>| -> Two<u16> { pair(a, b, u16::wrapping_add) }
    "min.u16x2" => |a: Two<u16>, b: Two<u16>| -> Two<u16> { pair(a, b, u16::min) }
    "max.u16x2" => |a: Two<u16>, b: Two<u16>| -> Two<u16> { pair(a, b, u16::max) }
    "min.s16x2" => |a: Two<i16>, b: Two<i16>| -> Two<i16> { pair(a, b, i16::min) }
    "max.s16x2" => |a: Two<i16>, b: Two<i16>| -> Two<i16> { pair(a, b, i16::max) }
    "min{.relu.s16x2,.s16x2.relu}" => |a: Two<i16>, b: Two<i16>| -> Two<i16> { relu(pair(a, b, i16::min)) }
    "max{.relu.s16x2,.s16x2.relu}" => |a: Two<i16>, b: Two<i16>| -> Two<i16> { relu(pair(a, b, i16::max)) }
    "min.s32.relu" => |a: i32, b: i32| -> i32 { a.min(b).max(0) }
    "max.s32.relu" => |a: i32, b: i32| -> i32 { a.max(b).max(0) }
};

/// Computes `bfi` on 32 bits. It has four sources, and the length is the fifth slot.
pub(crate) fn insert32(a: u32, b: u32, c: u32, d: u32) -> u32 {
    bfi(a.into(), b.into(), c, d, 32) as u32
}

/// Computes `bfi` on 64 bits.
pub(crate) fn insert64(a: u64, b: u64, c: u32, d: u32) -> u64 {
    bfi(a, b, c, d, 64)
}
