//! `wgmma` (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").

use crate::module::code::asynchronous::{LeftMatrix, Wgmma};
use crate::module::code::{Element, MatrixElement, Op, ProductShape, Sparsity};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::isa::tensor_core::fragment_registers::registers;
use crate::syntax::ast::{Number, OperandKind};
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("wgmma", wgmma)];

/// A group of products, whose factors may have any of the listed types.
struct WgmmaForm {
    /// The inner dimension and the type of the accumulators, as in the name of the instruction.
    shape: &'static str,
    sum: MatrixElement,
    left: &'static [(&'static str, Element)],
    right: &'static [(&'static str, Element)],
}

const fn forms(
    shape: &'static str,
    sum: MatrixElement,
    left: &'static [(&'static str, Element)],
    right: &'static [(&'static str, Element)],
) -> WgmmaForm {
    WgmmaForm {
        shape,
        sum,
        left,
        right,
    }
}

const BYTES: &[(&str, Element)] = &[(".s8", Element::S8), (".u8", Element::U8)];
const FLOATS: &[(&str, Element)] = &[(".e4m3", Element::E4m3), (".e5m2", Element::E5m2)];
const HALVES: &[(&str, Element)] = &[(".f16", Element::F16)];
const BRAINS: &[(&str, Element)] = &[(".bf16", Element::Bf16)];
const SINGLES: &[(&str, Element)] = &[(".tf32", Element::Tf32)];
const FORMS: &[WgmmaForm] = &[
    forms("k16.f32", MatrixElement::F32, HALVES, HALVES),
    forms("k16.f16", MatrixElement::F16, HALVES, HALVES),
    forms("k16.f32", MatrixElement::F32, BRAINS, BRAINS),
    forms("k8.f32", MatrixElement::F32, SINGLES, SINGLES),
    forms("k32.f32", MatrixElement::F32, FLOATS, FLOATS),
    forms("k32.f16", MatrixElement::F16, FLOATS, FLOATS),
    forms("k32.s32", MatrixElement::S32, BYTES, BYTES),
];
/// The sparse products, which have the same elements and twice the inner dimension.
const SPARSE: &[WgmmaForm] = &[
    forms("k32.f32", MatrixElement::F32, HALVES, HALVES),
    forms("k32.f16", MatrixElement::F16, HALVES, HALVES),
    forms("k32.f32", MatrixElement::F32, BRAINS, BRAINS),
    forms("k16.f32", MatrixElement::F32, SINGLES, SINGLES),
    forms("k64.f32", MatrixElement::F32, FLOATS, FLOATS),
    forms("k64.f16", MatrixElement::F16, FLOATS, FLOATS),
    forms("k64.s32", MatrixElement::S32, BYTES, BYTES),
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
            Ok(Op::WgmmaWait {
                keep: d.immediate(0, 1 << 20)? as usize,
            })
        }
        name => product(d, name),
    }
}

/// Decodes `wgmma.mma_async{.sp}.sync.aligned.shape{.satfinite}.dtype.atype.btype d, a, b{,
/// metadata, selector}, add{, scales}{, transpositions}`.
fn product(d: &mut Decode<'_, '_>, name: &str) -> Parsed<Op> {
    let Some(form) = form(name) else {
        return d.unsupported(name);
    };

    let ValidWgmma {
        sparse,
        saturate,
        columns,
        sum,
        left,
        right,
    } = form;
    d.skip();
    let in_registers = matches!(d.operand(1).kind, OperandKind::Vector(_));
    let scales = if sum == MatrixElement::S32 { 0 } else { 2 };
    let halves = matches!(left, Element::F16 | Element::Bf16);
    let turns = if !halves {
        0
    } else {
        2 - usize::from(in_registers)
    };

    // The index of the predicate operand.
    let at = if sparse { 5 } else { 3 };
    d.operands(at + 1 + scales + turns, at + 1 + scales + turns)?;
    let a = if in_registers {
        LeftMatrix::Registers(registers(d, 1, Type::B32, 4)?)
    } else {
        LeftMatrix::Shared(d.src(1, Type::B64)?)
    };
    let b = d.src(2, Type::B64)?;
    let depth = if sparse { 64 } else { 32 } / left.bytes();
    let sparsity = if sparse {
        Some(sparsity(d, columns, depth, left)?)
    } else {
        None
    };
    let add = d.pred(at)?;
    let mut negated = [false; 2];
    for (i, negated) in negated.iter_mut().enumerate().take(scales) {
        *negated = scale(d, at + 1 + i)?;
    }

    let transposed = transposed(d, at + 1 + scales, turns)?;
    let (ty, each) = match sum {
        MatrixElement::F32 => (Type::F32, 1),
        MatrixElement::F16 => (Type::F16x2, 2),
        _ => (Type::S32, 1),
    };
    let sums = registers(d, 0, ty, columns / 2 / each)?;
    Ok(Op::Wgmma(Box::new(Wgmma {
        left,
        right,
        sum,
        saturate,
        sparsity,
        columns,
        d: sums,
        a,
        b,
        add,
        transposed,
        negated,
        depth,
    })))
}

/// Decodes the metadata and the selector of a sparse left matrix.
fn sparsity(
    d: &mut Decode<'_, '_>,
    columns: usize,
    depth: usize,
    left: Element,
) -> Parsed<Sparsity> {
    let shape = ProductShape {
        rows: 16,
        columns,
        depth,
    };
    let most = 4 / Sparsity::threads(shape, left.item()) - 1;
    let OperandKind::Name(_) = d.operand(3).kind else {
        return error(d.operand(3).at, "a register with metadata was expected");
    };

    let metadata = d.src(3, Type::B32)?;
    let selector = d.immediate(4, most as u64)? as usize;
    Ok(Sparsity {
        metadata,
        selector,
        ordered: true,
    })
}

/// Decodes whether each matrix is transposed. `turns` matrices have an operand for it.
fn transposed(d: &Decode<'_, '_>, at: usize, turns: usize) -> Parsed<[bool; 2]> {
    let turned = |i: usize| Ok::<_, crate::syntax::Error>(d.immediate(i, 1)? == 1);
    Ok(match turns {
        2 => [turned(at)?, turned(at + 1)?],
        1 => [false, turned(at)?],
        _ => [false; 2],
    })
}

/// Decodes a scale of 1 or -1. Returns true for -1.
fn scale(d: &Decode<'_, '_>, i: usize) -> Parsed<bool> {
    match d.operand(i).kind {
        OperandKind::Number(Number::Int(1)) => Ok(false),
        OperandKind::Number(Number::Int(-1)) => Ok(true),
        _ => error(d.operand(i).at, "1 or -1 was expected"),
    }
}

/// A valid product.
struct ValidWgmma {
    sparse: bool,
    saturate: bool,
    columns: usize,
    sum: MatrixElement,
    left: Element,
    right: Element,
}

fn form(name: &str) -> Option<ValidWgmma> {
    let name = name.strip_prefix("wgmma.mma_async")?;
    let (sparse, name) = name
        .strip_prefix(".sp")
        .map_or((false, name), |rest| (true, rest));
    let shape = name.strip_prefix(".sync.aligned.m64n")?;
    let digits = shape.bytes().take_while(u8::is_ascii_digit).count();
    let (columns, rest) = shape.split_at(digits);
    let columns: usize = columns
        .parse()
        .ok()
        .filter(|n: &usize| n.is_multiple_of(8) && (8..=256).contains(n))?;

    // ptxas accepts `.satfinite` after the shape and after the types.
    let plain = rest.replacen(".satfinite", "", 1);
    let saturate = plain.len() < rest.len();
    let known = if sparse { SPARSE } else { FORMS };
    let (sum, left, right) = known.iter().find_map(|form| {
        let types = plain.strip_prefix(form.shape)?;
        let mut pairs = form
            .left
            .iter()
            .flat_map(|l| form.right.iter().map(move |r| (l, r)));
        let (left, right) = pairs.find(|(l, r)| types.strip_prefix(l.0) == Some(r.0))?;
        Some((form.sum, left.1, right.1))
    })?;

    // Integer products do not support all numbers of columns, and only they saturate.
    let exists = if sum == MatrixElement::S32 {
        columns.is_multiple_of(16) || columns <= 24
    } else {
        !saturate
    };
    exists.then_some(ValidWgmma {
        sparse,
        saturate,
        columns,
        sum,
        left,
        right,
    })
}
