//! Operands: corner cases of each type, random bits, and numbers close to each other.

use super::scalar::{OPERANDS, THREADS};
use warpwright_kernels::Random;

/// The operands of all threads of a form, of the types behind ` = `.
pub(crate) fn scalars(types: &str) -> Vec<u64> {
    let types: Vec<&str> = types
        .split_once(" = ")
        .map_or("", |(_, from)| from)
        .split(' ')
        .collect();
    let mut random = Random(17);
    let mut words = vec![0; OPERANDS * THREADS];
    for thread in words.chunks_mut(OPERANDS) {
        thread
            .iter_mut()
            .zip(&types)
            .for_each(|(word, ty)| *word = operand(ty, &mut random));
    }

    words
}

/// Bits of an element of a type.
pub(crate) fn bits(ty: &str) -> usize {
    match ty {
        "b1" => 1,
        "s4" | "u4" => 4,
        "s8" | "u8" | "e4m3" | "e5m2" => 8,
        "f16" | "bf16" | "f16x2" | "bf16x2" => 16,
        "f64" => 64,
        _ => 32,
    }
}

/// One operand: a corner, any bits, or one that is near others.
pub(crate) fn operand(ty: &str, random: &mut Random) -> u64 {
    let any = random.bits();
    let pick = |of: &[u64]| of[(any >> 40) as usize % of.len()];
    let kind = random.below(4);
    match ty {
        "f64" => match kind {
            0 => pick(&F64),
            1 => any,
            _ => any & 0x800f_ffff_0000_000f | u64::from(1018 + random.below(10)) << 52,
        },
        "f32" => u64::from(single(kind, any, random)),
        "f16" | "bf16" => u64::from(half(ty, kind, any, random)),
        "f16x2" | "bf16x2" => {
            let (low, other) = (half(ty, kind, any, random), random.bits());
            let kind = random.below(4);
            u64::from(low) | u64::from(half(ty, kind, other, random)) << 16
        }
        "b5" => any & 31,
        "b16" if kind == 0 => pick(&[0, 1, 2, 15, 16, 17, 0x7fff, 0x8000, 0xfffe, 0xffff]),
        "b16" => any & 0xffff,
        // Divisors.
        "n16" | "n32" | "n64" => operand(&ty.replace('n', "b"), random).max(1),
        "shift" if kind > 0 => any & 127,
        // A limit and a mask of segments, as shuffles take them.
        "segment" => any & 0x1f1f,
        // A direction within a turn, and a number whose exponent leaves room for results.
        "angle" => u64::from((random.unit() * std::f32::consts::TAU).to_bits()),
        "mid" => any & 0x807f_ffff | u64::from(64 + random.below(127)) << 23,
        "b64" if kind == 0 => pick(&[
            0,
            1,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            (1 << 53) + 1,
            (1 << 24) + 1,
        ]),
        "b64" => any >> random.below(64),
        _ if kind == 0 => pick(&[
            0,
            1,
            2,
            31,
            32,
            33,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x8000_8000,
            0x7fff_7fff,
        ]),
        _ if kind == 1 => (any >> random.below(32)) & 0xffff_ffff,
        _ => any & 0xffff_ffff,
    }
}

/// Zeros, ones, limits, subnormals, infinities and NaN.
const F64: [u64; 14] = [
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x000f_ffff_ffff_ffff,
    1,
    0x8000_0000_0000_0001,
    0x3ff0_0000_0000_0001,
    0x43e0_0000_0000_0000,
];

fn single(kind: u32, any: u64, random: &mut Random) -> u32 {
    const CORNERS: [u32; 14] = [
        0,
        0x8000_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f7f_ffff,
        0x0080_0000,
        0x007f_ffff,
        1,
        0x8000_0001,
        0x3f80_0001,
        0x477f_f000,
    ];
    match kind {
        0 => CORNERS[(any >> 40) as usize % CORNERS.len()],
        1 => any as u32,
        _ => any as u32 & 0x807f_f00f | (122 + random.below(10)) << 23,
    }
}

fn half(ty: &str, kind: u32, any: u64, random: &mut Random) -> u16 {
    const F16: [u16; 12] = [
        0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0400, 0x03ff, 1, 0x8001,
    ];
    const BF16: [u16; 12] = [
        0, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0x0080, 0x007f, 1, 0x8001,
    ];
    let f16 = ty.starts_with('f');
    match kind {
        0 => (if f16 { F16 } else { BF16 })[(any >> 40) as usize % 12],
        1 => any as u16,
        _ if f16 => any as u16 & 0x83ff | (11 + random.below(9) as u16) << 10,
        _ => any as u16 & 0x807f | (123 + random.below(9) as u16) << 7,
    }
}

/// An element of a matrix: of floats with exponents near one another, of integers any bits.
fn element(ty: &str, random: &mut Random) -> u64 {
    let any = random.bits() >> 8;
    let near = u64::from(3 + random.below(7));
    match ty {
        "f16" => any & 0x83ff | (8 + near) << 10,
        "bf16" => any & 0x807f | (120 + near) << 7,
        "tf32" | "f32" => any & 0x807f_ffff | (120 + near) << 23,
        "e4m3" => any & 0x87 | (1 + near) << 3,
        "e5m2" => any & 0x83 | (8 + near) << 2,
        "f64" => random.bits() & 0x800f_ffff_ffff_ffff | (1016 + near) << 52,
        // Large enough that sums are clamped where that is asked for.
        "s32" if near == 3 => 0x7fff_ff00 + (any & 0xff),
        "s32" if near == 4 => 0x8000_0000 + (any & 0xff),
        _ => any & u64::MAX >> (64 - bits(ty)),
    }
}

/// An element of a matrix with exponents all over, tiny ones among them; now and then infinite or
/// no number.
fn wild_element(ty: &str, random: &mut Random) -> u64 {
    let any = random.bits() >> 8;
    let (exponent, fraction) = match ty {
        "f16" => (5, 10),
        "bf16" => (8, 7),
        "f32" | "tf32" => (8, 23),
        "f64" => (11, 52),
        "e4m3" => (4, 3),
        "e5m2" => (5, 2),
        _ => return any & u64::MAX >> (64 - bits(ty)),
    };
    let (all, bias) = ((1u64 << exponent) - 1, (1 << (exponent - 1)) - 1);
    let of = match random.below(512) {
        0 => all,
        1..64 => 0,
        // Where products would be too large for sums, exponents from -40 to 23.
        _ if exponent >= 8 => bias - 40 + u64::from(random.below(64)),
        _ => u64::from(random.below(all as u32)),
    };
    let sign = (random.bits() & 1) << (exponent + fraction);
    sign | of << fraction | any & ((1 << fraction) - 1)
}

/// Which elements a matrix has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Floats with exponents near one another.
    Near,
    /// Any.
    Wild,
}

/// Registers that hold elements, a word each.
pub(crate) fn registers(
    ty: &str,
    count: usize,
    elements: Elements,
    random: &mut Random,
) -> Vec<u64> {
    let (bits, width) = (bits(ty), bits(ty).max(32));
    let one = |random: &mut Random| match elements {
        Elements::Near => element(ty, random),
        Elements::Wild => wild_element(ty, random),
    };
    let mut register = || (0..width / bits).map(|i| one(random) << (i * bits)).sum();
    (0..count).map(|_| register()).collect()
}

/// A matrix in memory, in words of 64 bits.
pub(crate) fn memory(ty: &str, bytes: usize, elements: Elements, random: &mut Random) -> Vec<u64> {
    let bits = bits(ty).max(32);
    let all = registers(ty, bytes / 8 * (64 / bits), elements, random);
    all.chunks(64 / bits)
        .map(|parts| {
            parts
                .iter()
                .rev()
                .fold(0, |word, p| word << (bits % 64) | p)
        })
        .collect()
}

/// Bits of metadata that say which two of four elements are stored, or of two singles which one; in
/// ascending order, or in any.
pub(crate) fn metadata(ty: &str, ordered: bool, random: &mut Random) -> u64 {
    const ASCENDING: [u64; 6] = [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110];
    let mut chunk = || {
        let bits = ASCENDING[random.below(6) as usize];
        match ty {
            "tf32" => [0b0100, 0b1110][bits as usize % 2],
            _ if ordered || bits >> 2 & 1 == 0 => bits,
            _ => bits >> 2 | (bits & 3) << 2,
        }
    };
    (0..8).fold(0, |word, _| word << 4 | chunk())
}
