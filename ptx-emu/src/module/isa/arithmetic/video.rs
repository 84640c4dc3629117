//! Video instructions, scalar and SIMD (PTX ISA, "Video Instructions").
//!
//! An element is a bit field of `b:a`. The parts `.b0` to `.h1` of scalar instructions and the
//! selectors `.h10` and `.b3210` of SIMD instructions are therefore one case.

use crate::module::code::{Op, Second, Video, VideoElement, VideoOp};
use crate::module::context::operands::{Decode, Decoder};
use crate::syntax::ast::{OperandKind, ParsedOperand};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("vadd", scalar),
    ("vsub", scalar),
    ("vabsdiff", scalar),
    ("vmin", scalar),
    ("vmax", scalar),
    ("vshl", scalar),
    ("vshr", scalar),
    ("vset", scalar),
    ("vmad", scalar),
    ("vadd2", simd),
    ("vsub2", simd),
    ("vavrg2", simd),
    ("vabsdiff2", simd),
    ("vmin2", simd),
    ("vmax2", simd),
    ("vset2", simd),
    ("vadd4", simd),
    ("vsub4", simd),
    ("vavrg4", simd),
    ("vabsdiff4", simd),
    ("vmin4", simd),
    ("vmax4", simd),
    ("vset4", simd),
];

/// The operation of each opcode, without the number of its elements.
const OPERATIONS: &[(&str, VideoOp)] = &[
    ("vadd", |a, b| a + b),
    ("vsub", |a, b| a - b),
    ("vabsdiff", |a, b| (a - b).abs()),
    ("vavrg", |a, b| {
        if a + b >= 0 {
            (a + b + 1) >> 1
        } else {
            (a + b) >> 1
        }
    }),
    ("vmin", |a, b| a.min(b)),
    ("vmax", |a, b| a.max(b)),
    ("vshl", |a, b| a << b),
    ("vshr", |a, b| a >> b),
    ("vmad", |a, b| a * b),
];

const COMPARISONS: &[(&str, VideoOp)] = &[
    (".eq", |a, b| (a == b).into()),
    (".ne", |a, b| (a != b).into()),
    (".lt", |a, b| (a < b).into()),
    (".le", |a, b| (a <= b).into()),
    (".gt", |a, b| (a > b).into()),
    (".ge", |a, b| (a >= b).into()),
];

const SIGNS: &[(&str, bool)] = &[(".u32", false), (".s32", true)];

/// Decodes the types and returns whether d, a and b are signed. The result of a comparison is
/// unsigned.
fn signs(d: &mut Decode<'_, '_>) -> Parsed<[bool; 3]> {
    let of_d = if d.inst.opcode.starts_with("vset") {
        false
    } else {
        d.require(SIGNS)?
    };
    Ok([of_d, d.require(SIGNS)?, d.require(SIGNS)?])
}

fn operation(d: &mut Decode<'_, '_>) -> Parsed<VideoOp> {
    let opcode = d.inst.opcode.trim_end_matches(['2', '4']);
    match OPERATIONS.iter().find(|(name, _)| *name == opcode) {
        Some((_, f)) => Ok(*f),
        None => d.require(COMPARISONS),
    }
}

/// Decodes `vop.dtype.atype.btype{.po}{.sat}{.mode}{.scale}{.op2} d{.sel}, a{.sel}, b{.sel}{, c}`.
fn scalar(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let opcode = d.inst.opcode;
    let signed = signs(d)?;
    if opcode.starts_with("vsh") && signed[2] {
        return d.error(format!(
            "`{}`: the type of a shift's distance is .u32",
            d.name()
        ));
    }

    let plus_one = opcode == "vmad" && d.eat(".po");
    let saturate = opcode != "vset" && d.eat(".sat");
    let f = operation(d)?;
    let wrap = match opcode {
        "vshl" | "vshr" => Some(d.require(&[(".clamp", false), (".wrap", true)])?),
        _ => None,
    };
    let shift = if opcode == "vmad" {
        d.choose(&[(".shr7", 7), (".shr15", 15)]).unwrap_or(0)
    } else {
        0
    };
    let second = match opcode {
        "vmad" => Second::Product { plus_one, shift },
        _ => d
            .choose(&[
                (".add", Second::Add),
                (".min", Second::Min),
                (".max", Second::Max),
            ])
            .unwrap_or(Second::Nothing),
    };
    let n = d.operands(3, 4)?;
    let (to, of_d) = part(d, 0)?;

    // With a part of d, the result is merged into `c`. With a second operation, `c` is its operand.
    // Both cannot be combined.
    let merges = of_d.bits != 32;
    if n != 3 + usize::from(merges || second != Second::Nothing)
        || merges && second != Second::Nothing
    {
        return d.error(format!(
            "`{}`: a third source goes with .add, .min or .max, or with a part of d",
            d.name()
        ));
    }

    let ((a, of_a), (b, mut of_b)) = (part(d, 1)?, part(d, 2)?);

    // Elements are numbered in `b:a`, so those of b begin after the 32 bits of a.
    of_b.place += 32;
    let c = if n == 4 {
        Some(d.src(3, Type::B32)?)
    } else {
        None
    };
    let second = if merges { Second::Merge } else { second };
    let narrow = matches!(d.inst.opcode, "vadd" | "vsub") || wrap.is_some() && saturate;
    Ok(Op::Video(Box::new(Video {
        f,
        signed,
        saturate,
        wrap,
        second,
        narrow,
        d: to,
        a,
        b,
        c,
        elements: vec![[of_d, of_a, of_b]],
    })))
}

/// Decodes `vop2.dtype.atype.btype{.sat}{.add} d{.mask}, a{.sel}, b{.sel}, c`, and `vop4`.
fn simd(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let count = if d.inst.opcode.ends_with('2') { 2 } else { 4 };
    let signed = signs(d)?;
    let f = operation(d)?;
    let adds_first = d.eat(".add");
    let saturate = !adds_first && d.eat(".sat");
    let second = if adds_first {
        Second::Add
    } else {
        Second::Merge
    };
    d.operands(4, 4)?;
    let (to, mask) = selected(d, 0, count)?;
    let (a, of_a) = selected(d, 1, count)?;
    let (b, of_b) = selected(d, 2, count)?;
    let c = Some(d.src(3, Type::B32)?);
    let element = |i: usize| VideoElement {
        place: (i * 32 / count) as u32,
        bits: (32 / count) as u32,
    };

    // The selectors number the elements of `a` and `b` together. An element of `d` outside of the
    // mask is not computed.
    let elements = mask
        .iter()
        .map(|i| [element(*i), element(of_a[*i]), element(of_b[*i])])
        .collect();
    let video = Video {
        f,
        signed,
        saturate,
        wrap: None,
        second,
        narrow: false,
        d: to,
        a,
        b,
        c,
        elements,
    };
    Ok(Op::Video(Box::new(video)))
}

/// Returns a register and its suffix after a dot.
fn register<'a>(d: &mut Decode<'_, 'a>, i: usize) -> Parsed<(u32, Option<&'a str>)> {
    let o: &'a ParsedOperand<'a> = d.operand(i);
    match o.kind {
        // A dot selects a part of a register, except in `%tid.x`, which is the name of a special
        // register.
        OperandKind::Name(name) if !name.starts_with("%tid") => match name.split_once('.') {
            Some((name, part)) => Ok((d.named(name, o.at, Type::B32)?, Some(part))),
            None => Ok((d.named(name, o.at, Type::B32)?, None)),
        },
        OperandKind::Number(_) if i > 0 => Ok((d.src(i, Type::B32)?, None)),
        _ => error(o.at, "a register was expected"),
    }
}

/// Returns a register and its selected part.
fn part(d: &mut Decode<'_, '_>, i: usize) -> Parsed<(u32, VideoElement)> {
    const PARTS: &[(&str, u32, u32)] = &[
        ("b0", 0, 8),
        ("b1", 8, 8),
        ("b2", 16, 8),
        ("b3", 24, 8),
        ("h0", 0, 16),
        ("h1", 16, 16),
    ];
    let (slot, part) = register(d, i)?;
    let Some(part) = part else {
        return Ok((slot, VideoElement { place: 0, bits: 32 }));
    };

    match PARTS.iter().find(|(name, ..)| *name == part) {
        Some((_, place, bits)) => Ok((
            slot,
            VideoElement {
                place: *place,
                bits: *bits,
            },
        )),
        None => error(
            d.operand(i).at,
            format!("`.{part}` is not a part of a register: .b0 to .b3, .h0 or .h1"),
        ),
    }
}

/// Returns a register and its selected elements, lowest first. For `d` these are the written
/// elements, and for `a` and `b` one element of `b:a` each.
fn selected(d: &mut Decode<'_, '_>, i: usize, count: usize) -> Parsed<(u32, Vec<usize>)> {
    let (slot, digits) = register(d, i)?;
    let Some(digits) = digits else {
        // Without a selector, each source provides its own elements in order.
        let first = if i == 2 { count } else { 0 };
        return Ok((slot, (first..first + count).collect()));
    };

    let letter = if count == 2 { 'h' } else { 'b' };
    let digit = |b: u8| b.is_ascii_digit().then(|| usize::from(b - b'0'));
    let places: Vec<usize> = digits.bytes().skip(1).rev().filter_map(digit).collect();

    // A mask names each written element once, and a selector may repeat elements of both sources.
    let written = places.is_sorted_by(|a, b| a < b)
        && places.iter().all(|n| *n < count)
        && !places.is_empty();
    let read = places.len() == count && places.iter().all(|n| *n < 2 * count);
    if !digits.starts_with(letter)
        || places.len() + 1 != digits.len()
        || !(if i == 0 { written } else { read })
    {
        return error(
            d.operand(i).at,
            format!("`.{digits}` does not select elements of this instruction"),
        );
    }

    Ok((slot, places))
}
