//! Products of warpgroups (manual, "Asynchronous Warpgroup Level Matrix Instructions").

use super::Decoder;
use crate::async_code::{LeftMatrix, Wgmma};
use crate::code::{Element, Op};
use crate::decode::Decode;
use crate::isa::matrix::registers;
use crate::parse::ast::{Number, OperandKind};
use crate::parse::types::Type;
use crate::parse::{Parsed, error};

pub(super) const DECODERS: &[(&str, Decoder)] = &[("wgmma", wgmma)];

/// Depth, the type of sums, and types of the left and the right matrix.
type Form =
    (&'static str, usize, Type, &'static [(&'static str, Element)], &'static [(&'static str, Element)]);

const BYTES: &[(&str, Element)] = &[(".s8", Element::S8), (".u8", Element::U8)];
const FLOATS: &[(&str, Element)] = &[(".e4m3", Element::E4m3), (".e5m2", Element::E5m2)];
const FORMS: &[Form] = &[
    ("k16.f32", 16, Type::F32, &[(".f16", Element::F16)], &[(".f16", Element::F16)]),
    ("k16.f32", 16, Type::F32, &[(".bf16", Element::Bf16)], &[(".bf16", Element::Bf16)]),
    ("k8.f32", 8, Type::F32, &[(".tf32", Element::Tf32)], &[(".tf32", Element::Tf32)]),
    ("k32.f32", 32, Type::F32, FLOATS, FLOATS),
    ("k32.s32", 32, Type::S32, BYTES, BYTES),
];

fn wgmma(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    match d.name().as_str() {
        "wgmma.fence.sync.aligned" => {
            d.skip();
            d.operands(0, 0)?;
            Ok(Op::WgmmaFence)
        }
        "wgmma.commit_group.sync.aligned" => {
            d.skip();
            d.operands(0, 0)?;
            Ok(Op::WgmmaCommit)
        }
        "wgmma.wait_group.sync.aligned" => {
            d.skip();
            d.operands(1, 1)?;
            Ok(Op::WgmmaWait { keep: d.immediate(0, 1 << 20)? as usize })
        }
        name => product(d, name),
    }
}

/// `wgmma.mma_async.sync.aligned.shape.dtype.atype.btype d, a, b, add{, scales}{, transpositions}`
fn product(d: &mut Decode<'_, '_>, name: &str) -> Parsed<Op> {
    let Some((columns, depth, sum, left, right)) = form(name) else {
        return d.error(format!("unsupported in ptx-emu: {name}"));
    };
    d.skip();
    let in_registers = matches!(d.operand(1).kind, OperandKind::Vector(_));
    let scales = if sum == Type::F32 { 2 } else { 0 };
    let halves = matches!(left, Element::F16 | Element::Bf16);
    let turns = if !halves { 0 } else { 2 - usize::from(in_registers) };
    d.operands(4 + scales + turns, 4 + scales + turns)?;
    let a = match in_registers {
        true => LeftMatrix::Registers(registers(d, 1, Type::B32, 4)?),
        false => LeftMatrix::Shared(d.src(1, Type::B64)?),
    };
    let mut negated = [false; 2];
    for (i, negated) in negated.iter_mut().enumerate().take(scales) {
        *negated = scale(d, 4 + i)?;
    }
    let turned = |d: &Decode<'_, '_>, i: usize| Ok::<_, crate::parse::Error>(d.immediate(i, 1)? == 1);
    let transposed = match (turns, 4 + scales) {
        (2, i) => [turned(d, i)?, turned(d, i + 1)?],
        (1, i) => [false, turned(d, i)?],
        _ => [false; 2],
    };
    let (b, add) = (d.src(2, Type::B64)?, d.pred(3)?);
    let sums = registers(d, 0, sum, columns / 2)?;
    Ok(Op::Wgmma(Box::new(Wgmma { left, right, depth, columns, d: sums, a, b, add, transposed, negated })))
}

/// 1 or -1; whether it is the latter.
fn scale(d: &Decode<'_, '_>, i: usize) -> Parsed<bool> {
    match d.operand(i).kind {
        OperandKind::Number(Number::Int(1)) => Ok(false),
        OperandKind::Number(Number::Int(-1)) => Ok(true),
        _ => error(d.operand(i).at, "1 or -1 was expected"),
    }
}

/// Columns, depth and types of a product that exists.
fn form(name: &str) -> Option<(usize, usize, Type, Element, Element)> {
    let shape = name.strip_prefix("wgmma.mma_async.sync.aligned.m64n")?;
    let digits = shape.bytes().take_while(u8::is_ascii_digit).count();
    let (columns, rest) = shape.split_at(digits);
    let columns: usize =
        columns.parse().ok().filter(|n: &usize| n.is_multiple_of(8) && (8..=256).contains(n))?;
    let found = FORMS.iter().find_map(|(shape, depth, sum, left, right)| {
        let types = rest.strip_prefix(shape)?;
        let (left, right) = left
            .iter()
            .flat_map(|l| right.iter().map(move |r| (l, r)))
            .find(|(l, r)| types.strip_prefix(l.0) == Some(r.0))?;
        Some((*depth, *sum, left.1, right.1))
    });
    let (depth, sum, left, right) = found?;
    // Of integers, there are not all numbers of columns.
    let exists = sum == Type::F32 || columns.is_multiple_of(16) || columns <= 24;
    exists.then_some((columns, depth, sum, left, right))
}
