//! Products of small matrices in the registers of a warp (PTX ISA, "Warp-Level Matrix
//! Multiply-Accumulate Instructions").

use crate::module::code::{Element, InstructionSpace, LoadMatrix, Mma, Op};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::isa::tensor_core::fragment_registers::registers;
use crate::syntax::Parsed;
use crate::syntax::types::Type;

pub(crate) const DECODERS: &[(&str, Decoder)] = &[
    ("mma", mma),
    ("ldmatrix", ldmatrix),
    ("stmatrix", stmatrix),
    ("movmatrix", movmatrix),
];

/// A supported product.
struct MmaForm {
    shape: &'static str,
    /// The types of d, a, b and c.
    types: [Type; 4],
    /// The inner dimension.
    depth: usize,
    left: Element,
    right: Element,
}

const fn form(
    shape: &'static str,
    types: [Type; 4],
    depth: usize,
    left: Element,
    right: Element,
) -> MmaForm {
    MmaForm {
        shape,
        types,
        depth,
        left,
        right,
    }
}

const FORMS: &[MmaForm] = {
    use Type::{Bf16, F16, F32, S8, S32, U8};
    &[
        form(
            ".m16n8k8",
            [F32, F16, F16, F32],
            8,
            Element::F16,
            Element::F16,
        ),
        form(
            ".m16n8k16",
            [F32, F16, F16, F32],
            16,
            Element::F16,
            Element::F16,
        ),
        form(
            ".m16n8k8",
            [F32, Bf16, Bf16, F32],
            8,
            Element::Bf16,
            Element::Bf16,
        ),
        form(
            ".m16n8k16",
            [F32, Bf16, Bf16, F32],
            16,
            Element::Bf16,
            Element::Bf16,
        ),
        form(
            ".m16n8k16",
            [S32, S8, S8, S32],
            16,
            Element::S8,
            Element::S8,
        ),
        form(
            ".m16n8k16",
            [S32, S8, U8, S32],
            16,
            Element::S8,
            Element::U8,
        ),
        form(
            ".m16n8k16",
            [S32, U8, S8, S32],
            16,
            Element::U8,
            Element::S8,
        ),
        form(
            ".m16n8k16",
            [S32, U8, U8, S32],
            16,
            Element::U8,
            Element::U8,
        ),
        form(
            ".m16n8k32",
            [S32, S8, S8, S32],
            32,
            Element::S8,
            Element::S8,
        ),
        form(
            ".m16n8k32",
            [S32, S8, U8, S32],
            32,
            Element::S8,
            Element::U8,
        ),
        form(
            ".m16n8k32",
            [S32, U8, S8, S32],
            32,
            Element::U8,
            Element::S8,
        ),
        form(
            ".m16n8k32",
            [S32, U8, U8, S32],
            32,
            Element::U8,
            Element::U8,
        ),
    ]
};

/// Decodes `mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype d, a, b, c`.
fn mma(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let name = d.name();
    let wanted = |form: &&MmaForm| {
        let types: String = form.types.iter().map(|t| t.name()).collect();
        format!("mma.sync.aligned{}.row.col{types}", form.shape) == name
    };
    let Some(form) = FORMS.iter().find(wanted) else {
        return crate::module::isa::tensor_core::wmma::mma(d);
    };

    d.skip();
    d.operands(4, 4)?;

    // Each of the 32 lanes contains an equal share of a, which has 16 rows, and of b, which has 8
    // columns.
    let of_b = form.depth * 8 / 32 / form.left.per_register();
    let packed = form.left.packed();
    Ok(Op::Mma(Box::new(Mma {
        left: form.left,
        right: form.right,
        depth: form.depth,
        d: registers(d, 0, form.types[0], 4)?,
        a: registers(d, 1, packed, 2 * of_b)?,
        b: registers(d, 2, packed, of_b)?,
        c: registers(d, 3, form.types[3], 4)?,
    })))
}

/// Decodes `ldmatrix.sync.aligned.m8n8.num{.trans}{.shared}.b16 r, [a]`.
fn ldmatrix(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".sync", ())])?;
    d.require(&[(".aligned", ())])?;
    if !d.eat(".m8n8") {
        return d.unsupported(d.name());
    }

    let count = d.require(&[(".x1", 1), (".x2", 2), (".x4", 4)])?;
    let transposed = d.eat(".trans");

    // Without a state space, the address is generic and must point into shared memory.
    let shared = d.choose(&[(".shared", ()), (".shared::cta", ())]).is_some();
    d.require(&[(".b16", ())])?;
    d.operands(2, 2)?;
    let space = if shared {
        InstructionSpace::Shared
    } else {
        InstructionSpace::Generic
    };
    let address = d.address(1, shared)?;
    Ok(Op::LoadMatrix(Box::new(LoadMatrix {
        space,
        address,
        transposed,
        d: registers(d, 0, Type::B32, count)?,
    })))
}

/// Decodes `stmatrix.sync.aligned.m8n8.num{.trans}{.shared}.b16 [a], r`.
fn stmatrix(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".sync", ())])?;
    d.require(&[(".aligned", ())])?;
    if !d.eat(".m8n8") {
        return d.unsupported(d.name());
    }

    let count = d.require(&[(".x1", 1), (".x2", 2), (".x4", 4)])?;
    let transposed = d.eat(".trans");
    let shared = d.choose(&[(".shared", ()), (".shared::cta", ())]).is_some();
    d.require(&[(".b16", ())])?;
    d.operands(2, 2)?;
    let space = if shared {
        InstructionSpace::Shared
    } else {
        InstructionSpace::Generic
    };
    let address = d.address(0, shared)?;

    // A store has the same fields as a load, so it uses the same structure. Its registers are the
    // sources.
    let d = registers(d, 1, Type::B32, count)?;
    Ok(Op::StoreMatrix(Box::new(LoadMatrix {
        space,
        address,
        transposed,
        d,
    })))
}

/// Decodes `movmatrix.sync.aligned.m8n8.trans.b16 d, a`.
fn movmatrix(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    if d.name() != "movmatrix.sync.aligned.m8n8.trans.b16" {
        return d.unsupported(d.name());
    }
    d.skip();
    d.operands(2, 2)?;
    Ok(Op::MoveMatrix {
        d: d.dst(0, Type::B32)?,
        a: d.src(1, Type::B32)?,
    })
}
