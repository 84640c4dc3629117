//! `wmma`, and rare forms of `mma` (PTX ISA, "Warp-Level Matrix Multiply-Accumulate Instructions").

use MatrixElement::{B1, Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};

use crate::module::code::{
    Address, InstructionSpace, MatrixElement, MatrixFragment, Op, Product, ProductShape, Role,
    Sparsity, WarpMatrix,
};
use crate::module::context::operands::{Decode, Decoder};
use crate::module::isa::tensor_core::fragment_registers::registers;
use crate::module::registers::Bank;
use crate::syntax::types::Type;
use crate::syntax::{Parsed, error};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("wmma", wmma)];

const ITEMS: &[(&str, MatrixElement)] = &[
    (".f16", F16),
    (".bf16", Bf16),
    (".tf32", Tf32),
    (".e4m3", E4m3),
    (".e5m2", E5m2),
    (".s8", S8),
    (".u8", U8),
    (".s4", S4),
    (".u4", U4),
    (".b1", B1),
    (".f64", F64),
    (".f32", F32),
    (".s32", S32),
];

const fn shape(rows: usize, columns: usize, depth: usize) -> ProductShape {
    ProductShape {
        rows,
        columns,
        depth,
    }
}

const SHAPES: &[(&str, ProductShape)] = &[
    (".m16n16k16", shape(16, 16, 16)),
    (".m32n8k16", shape(32, 8, 16)),
    (".m8n32k16", shape(8, 32, 16)),
    (".m16n16k8", shape(16, 16, 8)),
    (".m8n8k4", shape(8, 8, 4)),
    (".m8n8k16", shape(8, 8, 16)),
    (".m8n8k32", shape(8, 8, 32)),
    (".m8n8k128", shape(8, 8, 128)),
    (".m16n8k4", shape(16, 8, 4)),
    (".m16n8k8", shape(16, 8, 8)),
    (".m16n8k16", shape(16, 8, 16)),
    (".m16n8k32", shape(16, 8, 32)),
    (".m16n8k64", shape(16, 8, 64)),
    (".m16n8k128", shape(16, 8, 128)),
    (".m16n8k256", shape(16, 8, 256)),
];

/// The factors that may be combined, the accumulators that they may have, and the shapes.
type Family = (
    &'static [MatrixElement],
    &'static [MatrixElement],
    &'static [&'static str],
);

const SQUARES: &[&str] = &[".m16n16k16", ".m32n8k16", ".m8n32k16"];

const WMMA: &[Family] = &[
    (&[F16], &[F16, F32], SQUARES),
    (&[Bf16], &[F32], SQUARES),
    (&[S8], &[S32], SQUARES),
    (&[U8], &[S32], SQUARES),
    (&[Tf32], &[F32], &[".m16n16k8"]),
    (&[F64], &[F64], &[".m8n8k4"]),
    (&[S4], &[S32], &[".m8n8k32"]),
    (&[U4], &[S32], &[".m8n8k32"]),
    (&[B1], &[S32], &[".m8n8k128"]),
];

const MMA: &[Family] = &[
    (&[F16], &[F16, F32], &[".m16n8k8", ".m16n8k16"]),
    (&[Bf16], &[F32], &[".m16n8k8", ".m16n8k16"]),
    (&[Tf32], &[F32], &[".m16n8k4", ".m16n8k8"]),
    (&[E4m3, E5m2], &[F16, F32], &[".m16n8k16", ".m16n8k32"]),
    (
        &[F64],
        &[F64],
        &[".m8n8k4", ".m16n8k4", ".m16n8k8", ".m16n8k16"],
    ),
    (&[S8, U8], &[S32], &[".m8n8k16", ".m16n8k16", ".m16n8k32"]),
    (&[S4, U4], &[S32], &[".m8n8k32", ".m16n8k32", ".m16n8k64"]),
    (&[B1], &[S32], &[".m8n8k128", ".m16n8k128", ".m16n8k256"]),
];

const SPARSE: &[Family] = &[
    (&[F16], &[F16, F32], &[".m16n8k16", ".m16n8k32"]),
    (&[Bf16], &[F32], &[".m16n8k16", ".m16n8k32"]),
    (&[Tf32], &[F32], &[".m16n8k8", ".m16n8k16"]),
    (&[E4m3, E5m2], &[F32], &[".m16n8k64"]),
    (&[S8, U8], &[S32], &[".m16n8k32", ".m16n8k64"]),
    (&[S4, U4], &[S32], &[".m16n8k64", ".m16n8k128"]),
];

/// The instruction of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatmulInstruction {
    Wmma,
    Mma,
    /// `mma.sp` and `mma.sp::ordered_metadata`.
    Sparse,
    Ordered,
}

impl MatmulInstruction {
    fn table(self) -> &'static [Family] {
        match self {
            MatmulInstruction::Wmma => WMMA,
            MatmulInstruction::Mma => MMA,
            MatmulInstruction::Sparse | MatmulInstruction::Ordered => SPARSE,
        }
    }

    fn is_sparse(self) -> bool {
        matches!(self, MatmulInstruction::Sparse | MatmulInstruction::Ordered)
    }
}

fn unsupported<T>(d: &Decode<'_, '_>) -> Parsed<T> {
    d.unsupported(d.name())
}

/// Returns true if a table contains a product of these factors and accumulators.
fn exists(table: &[Family], name: &str, factors: &[MatrixElement], sums: &[MatrixElement]) -> bool {
    table.iter().any(|(of, to, shapes)| {
        shapes.contains(&name)
            && factors.iter().all(|f| of.contains(f))
            && sums.iter().all(|s| to.contains(s))
    })
}

/// Consumes the next suffix if it is a shape. Returns its name and the shape.
fn shaped<'a>(d: &mut Decode<'_, 'a>) -> Option<(&'a str, ProductShape)> {
    let name = d.peek()?;
    d.choose(SHAPES).map(|shape| (name, shape))
}

fn sync(d: &mut Decode<'_, '_>) -> Parsed<()> {
    d.require(&[(".sync", ())])?;
    d.require(&[(".aligned", ())])
}

fn wmma(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    match d.require(&[(".load", 0), (".store", 1), (".mma", 2)])? {
        0 => load(d),
        1 => store(d),
        _ => multiply(d),
    }
}

/// The layouts, with true for row-major.
const LAYOUTS: &[(&str, bool)] = &[(".row", true), (".col", false)];

/// Decodes `{.row, .col}.shape` in either order: whether it is row-major, the name and the shape.
fn layout<'a>(d: &mut Decode<'_, 'a>) -> Parsed<(bool, &'a str, ProductShape)> {
    if let Some((name, shape)) = shaped(d) {
        return Ok((d.require(LAYOUTS)?, name, shape));
    }
    let by_rows = d.require(LAYOUTS)?;
    match shaped(d) {
        Some((name, shape)) => Ok((by_rows, name, shape)),
        None => unsupported(d),
    }
}

/// Decodes `wmma.load.role.sync.aligned.layout.shape{.space}.type r, [p]{, stride}`.
fn load(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let role = d.require(&[(".a", Role::Left), (".b", Role::Right), (".c", Role::Sum)])?;
    memory(d, role, 1).map(|m| Op::LoadFragment(Box::new(m)))
}

/// Decodes `wmma.store.d.sync.aligned.layout.shape{.space}.type [p], r{, stride}`.
fn store(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".d", ())])?;
    memory(d, Role::Sum, 0).map(|m| Op::StoreFragment(Box::new(m)))
}

fn memory(d: &mut Decode<'_, '_>, role: Role, at: usize) -> Parsed<WarpMatrix> {
    sync(d)?;
    let (by_rows, name, shape) = layout(d)?;
    let spaces = [
        (".global", InstructionSpace::Global),
        (".shared", InstructionSpace::Shared),
        (".shared::cta", InstructionSpace::Shared),
    ];
    let space = d.choose(&spaces).unwrap_or(InstructionSpace::Generic);
    let item = d.require(ITEMS)?;
    let known = WMMA.iter().any(|(of, to, shapes)| {
        shapes.contains(&name)
            && if role == Role::Sum {
                to.contains(&item)
            } else {
                of.contains(&item)
            }
    });

    // Elements of less than a byte must be contiguous along the inner dimension.
    let along = item.bits() >= 8 || by_rows == (role == Role::Left);
    if !known || !along {
        return unsupported(d);
    }

    let n = d.operands(2, 3)?;
    let stride = match n {
        3 => d.src(2, Type::U32)?,
        _ => d.literal(Bank::W32, default_stride(shape, role, by_rows) as u64),
    };
    let fragment = fragment(d, 1 - at, shape, role, item, true)?;
    let address: Address = d.address(at, space == InstructionSpace::Shared)?;
    let bank = if item.bits() == 64 {
        Bank::W64
    } else {
        Bank::W32
    };
    let place = d.temporary(Bank::W64);
    let value = d.temporary(bank);
    let site = d.site();
    Ok(WarpMatrix {
        shape,
        fragment,
        by_rows,
        space,
        address,
        stride,
        place,
        value,
        site,
    })
}

/// Returns the number of elements of a row, or of a column.
fn default_stride(shape: ProductShape, role: Role, by_rows: bool) -> usize {
    let (rows, columns) = shape.extent(role);
    if by_rows { columns } else { rows }
}

/// Returns the registers of a matrix. Fragments of `wmma` contain 16-bit factors several times.
fn fragment(
    d: &mut Decode<'_, '_>,
    i: usize,
    shape: ProductShape,
    role: Role,
    item: MatrixElement,
    wide: bool,
) -> Parsed<MatrixFragment> {
    let needed = shape.registers(role, item);
    let count = if wide && item == F16 && role != Role::Sum {
        8
    } else {
        needed
    };
    let ty = match item {
        F16 => Type::F16x2,
        Bf16 => Type::Bf16x2,
        F32 => Type::F32,
        F64 => Type::F64,
        S32 => Type::S32,
        _ => Type::B32,
    };
    Ok(MatrixFragment {
        role,
        item,
        slots: registers(d, i, ty, count)?,
    })
}

/// Decodes `wmma.mma{.op.popc}.sync.aligned.layout.layout.shape{.rn}.types{.satfinite} d, a, b, c`.
fn multiply(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let bits = d.choose(&[(".and", false), (".xor", true)]);
    if bits.is_some() {
        d.require(&[(".popc", ())])?;
    }

    sync(d)?;
    for _ in 0..2 {
        d.require(&[(".row", ()), (".col", ())])?;
    }
    let Some((name, shape)) = shaped(d) else {
        return unsupported(d);
    };

    d.eat(".rn");
    let mut types = vec![];
    while let Some(item) = d.choose(ITEMS) {
        types.push(item);
    }

    let types = match types[..] {
        // For 16-bit floats, only the types of the accumulators are named.
        [of_d, of_c] => [of_d, F16, F16, of_c],
        [of_d, a, b, of_c] => [of_d, a, b, of_c],
        _ => return unsupported(d),
    };
    d.eat(".rn");
    finish(d, MatmulInstruction::Wmma, (name, shape), types, bits)
}

/// Decodes the rare forms of `mma`.
///
/// - `mma.sync.aligned.shape.row.col{.satfinite}.types{.op.popc} d, a, b, c`, with other layouts
///   only for [`quads`]
/// - `mma.sp{::ordered_metadata}.sync.aligned.shape.row.col{.satfinite}.types d, a, b, c, metadata,
///   selector`
pub(crate) fn mma(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let sparse = [
        (".sp", MatmulInstruction::Sparse),
        (".sp::ordered_metadata", MatmulInstruction::Ordered),
    ];
    let kind = d.choose(&sparse).unwrap_or(MatmulInstruction::Mma);
    sync(d)?;
    let Some((name, shape)) = shaped(d) else {
        return unsupported(d);
    };

    let layouts = [d.choose(LAYOUTS), d.choose(LAYOUTS)];
    let saturate = d.eat(".satfinite");
    let mut types = [F32; 4];
    for ty in &mut types {
        match d.choose(ITEMS) {
            Some(item) => *ty = item,
            None => return unsupported(d),
        }
    }

    if let (".m8n8k4", [of_d, F16, F16, of_c], [Some(a), Some(b)]) = (name, types, layouts) {
        return if kind == MatmulInstruction::Mma && !saturate {
            quads(d, shape, [of_d, of_c], [a, b])
        } else {
            unsupported(d)
        };
    }

    // Apart from `m8n8k4`, `mma` accepts rows of `a` with columns of `b` only. The products of
    // single bits end in `.popc`.
    let bits = d.choose(&[(".and", false), (".xor", true)]);
    let whole = layouts == [Some(true), Some(false)] && (bits.is_none() || d.eat(".popc"));
    if !whole || types[0] != types[3] {
        return unsupported(d);
    }

    let op = finish(d, kind, (name, shape), types, bits)?;
    match op {
        Op::Product(mut p) if saturate && p.d.item == S32 => {
            p.saturate = true;
            Ok(Op::Product(p))
        }
        _ if saturate => unsupported(d),
        op => Ok(op),
    }
}

/// Decodes `mma.sync.aligned.m8n8k4.layout.layout.type.f16.f16.type d, a, b, c`, which is four
/// products as on sm_70.
fn quads(
    d: &mut Decode<'_, '_>,
    shape: ProductShape,
    [of_d, of_c]: [MatrixElement; 2],
    by_rows: [bool; 2],
) -> Parsed<Op> {
    let known = matches!([of_d, of_c], [F16 | F32, F16] | [F32, F32]);
    if !known || d.peek().is_some() {
        return unsupported(d);
    }

    d.operands(4, 4)?;
    let mut of = |i, role, item: MatrixElement| {
        // Each of the four products has 8 lanes. They share 8 by 8 sums and 8 by 4 factors.
        let elements = if role == Role::Sum { 8 } else { 4 };
        let ty = if item == F32 { Type::F32 } else { Type::F16x2 };
        Ok(MatrixFragment {
            role,
            item,
            slots: registers(d, i, ty, elements / item.each())?,
        })
    };
    Ok(Op::Product(Box::new(Product {
        shape,
        sparsity: None,
        quads: Some(by_rows),
        saturate: false,
        exclusive: false,
        d: of(0, Role::Sum, of_d)?,
        a: of(1, Role::Left, F16)?,
        b: of(2, Role::Right, F16)?,
        c: of(3, Role::Sum, of_c)?,
    })))
}

/// Decodes the operands of a product, after checking that it exists and has no further suffixes.
///
/// `bits` selects the operation on single bits: `false` for `.and` and `true` for `.xor`.
fn finish(
    d: &mut Decode<'_, '_>,
    kind: MatmulInstruction,
    (name, shape): (&str, ProductShape),
    [of_d, of_a, of_b, of_c]: [MatrixElement; 4],
    bits: Option<bool>,
) -> Parsed<Op> {
    let wide = kind == MatmulInstruction::Wmma;

    // In `wmma`, `.satfinite` follows the types. In `mma` it precedes them, so the caller has
    // consumed it.
    let saturate = wide && of_d == S32 && d.eat(".satfinite");
    let known =
        exists(kind.table(), name, &[of_a, of_b], &[of_d, of_c]) && bits.is_some() == (of_a == B1);
    if !known || d.peek().is_some() {
        return unsupported(d);
    }

    let sparsity = sparsity(d, kind, shape, of_a)?;

    // A sparse left matrix stores only the nonzero half of its columns.
    let of_left = if kind.is_sparse() {
        shape.packed()
    } else {
        shape
    };
    if of_a.bits() == 64 && wide && d.elements(1).len() != 1 {
        return error(d.operand(1).at, "one .f64 register was expected");
    }

    Ok(Op::Product(Box::new(Product {
        shape,
        sparsity,
        quads: None,
        saturate,
        exclusive: bits == Some(true),
        d: fragment(d, 0, shape, Role::Sum, of_d, wide)?,
        a: fragment(d, 1, of_left, Role::Left, of_a, wide)?,
        b: fragment(d, 2, shape, Role::Right, of_b, wide)?,
        c: fragment(d, 3, shape, Role::Sum, of_c, wide)?,
    })))
}

/// Decodes the operands after the matrices, and checks their number.
fn sparsity(
    d: &mut Decode<'_, '_>,
    kind: MatmulInstruction,
    shape: ProductShape,
    item: MatrixElement,
) -> Parsed<Option<Sparsity>> {
    let n = if kind.is_sparse() { 6 } else { 4 };
    d.operands(n, n)?;
    if n == 4 {
        return Ok(None);
    }

    // If all threads contain metadata, there is nothing to select, and the selector is checked when
    // it runs.
    let most = if Sparsity::threads(shape, item) == 4 {
        0
    } else {
        3
    };
    let metadata = d.src(4, Type::B32)?;
    let selector = d.immediate(5, most)? as usize;
    Ok(Some(Sparsity {
        metadata,
        selector,
        ordered: kind == MatmulInstruction::Ordered,
    }))
}
