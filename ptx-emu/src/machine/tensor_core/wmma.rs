//! `wmma` and rare forms of `mma`: matrices as bits, by row and column.
//!
//! Floats are added as on [tensor cores](crate::machine::tensor_core::dot_product), in steps of 16
//! products or fewer. An `f16` sum is rounded once at the end, but a sum of 8-bit floats [after
//! each step](small_sum). `f64` products are added one after another, each with one rounding. The
//! manual leaves order and rounding open.

use half::{bf16, f16};

use crate::Class;
use crate::machine::memory::{lane_access, load_store};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::machine::sync::warp_exchange;
use crate::machine::tensor_core::dot_product::{DotFactors, HALVES, WIDE, add_products};
use crate::machine::tensor_core::sparse;
use crate::module::code::{
    AccessOrdering, Address, MatrixElement, MatrixFragment, MemoryScope, Product, ProductShape,
    RegisterOperand, Role, Transfer, Unwritten, WarpMatrix, Width, quad_place,
};
use crate::module::isa::arithmetic::float_number::{Half, Round, canon, narrow16, small_float};
use crate::module::lane_mask::lanes;

/// The maximum number of products that are added at the same time.
const STEP: usize = 16;

/// The bits of a matrix, row by row.
struct Matrix {
    columns: usize,
    bits: Vec<u64>,
}

impl Matrix {
    fn new((rows, columns): (usize, usize)) -> Matrix {
        Matrix {
            columns,
            bits: vec![0; rows * columns],
        }
    }

    fn at(&self, row: usize, column: usize) -> u64 {
        self.bits[row * self.columns + column]
    }
}

pub(crate) fn multiply_fragments(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    p: &Product,
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    if let Some(by_rows) = p.quads {
        return multiply_quads(block, w, p, by_rows);
    }

    let read = |f: &MatrixFragment| gathered(block, w, p.shape, f);
    let b = read(&p.b)?;
    let c = read(&p.c)?;
    let (a, columns) = match p.sparsity {
        None => (
            read(&p.a)?,
            vec![(0..p.shape.depth).collect(); p.shape.rows],
        ),
        Some(sparsity) => (
            gathered(block, w, p.shape.packed(), &p.a)?,
            sparse::stored_columns(block, w, (p.shape, p.a.item), sparsity, 0)?,
        ),
    };
    let mut d = Matrix::new(p.shape.extent(Role::Sum));
    for (row, columns) in columns.iter().enumerate() {
        for column in 0..p.shape.columns {
            let stored = columns.iter().enumerate();
            let factors: Vec<(u64, u64)> = stored
                .map(|(i, k)| (a.at(row, i), b.at(*k, column)))
                .collect();
            d.bits[row * d.columns + column] = sum(p, &factors, c.at(row, column));
        }
    }

    scatter(w, p.shape, &p.d, &d);
    Ok(())
}

/// Computes the four products of `mma.m8n8k4`, each in eight lanes.
fn multiply_quads(
    block: &Block<'_, '_>,
    w: &mut Warp,
    p: &Product,
    [left, right]: [bool; 2],
) -> Checked<()> {
    let read = |f: &MatrixFragment, by_rows| quads(block, w, p.shape, f, by_rows);
    let a = read(&p.a, left)?;
    let b = read(&p.b, right)?;
    let c = read(&p.c, true)?;
    let d: [Matrix; 4] = std::array::from_fn(|quad| {
        let mut d = Matrix::new(p.shape.extent(Role::Sum));
        for (i, to) in d.bits.iter_mut().enumerate() {
            let row = i / p.shape.columns;
            let column = i % p.shape.columns;
            let factor = |k| (a[quad].at(row, k), b[quad].at(k, column));
            let factors: Vec<_> = (0..p.shape.depth).map(factor).collect();
            *to = quad_sum([p.d.item, p.c.item], &factors, c[quad].at(row, column));
        }
        d
    });
    let each = p.d.item.each();
    let bits = p.d.item.bits();
    for (r, slot) in p.d.slots.iter().enumerate() {
        let values: [u64; 32] = std::array::from_fn(|lane| {
            let element = |i: usize| {
                let (row, column) = quad_place(&p.d, true, lane, r * each + i);
                d[lane / 4 % 4].at(row, column) << (bits * i)
            };
            (0..each).map(element).fold(0, |all, bits| all | bits)
        });
        lane_access::put(w, register(p.d.item, *slot), u32::MAX, &values);
    }

    Ok(())
}

/// Returns a matrix of each of the four products.
fn quads(
    block: &Block<'_, '_>,
    w: &Warp,
    shape: ProductShape,
    f: &MatrixFragment,
    by_rows: bool,
) -> Checked<[Matrix; 4]> {
    let mut out: [Matrix; 4] = std::array::from_fn(|_| Matrix::new(shape.extent(f.role)));
    let each = f.item.each();
    let bits = f.item.bits();
    for (r, slot) in f.slots.iter().enumerate() {
        let register = lane_access::take(block, w, register(f.item, *slot), u32::MAX)?;
        for (lane, value) in register.iter().enumerate() {
            for i in 0..each {
                let (row, column) = quad_place(f, by_rows, lane, r * each + i);
                let to = &mut out[lane / 4 % 4];
                to.bits[row * to.columns + column] = value >> (bits * i) & u64::MAX >> (64 - bits);
            }
        }
    }

    Ok(out)
}

/// Returns the matrix in registers.
fn gathered(
    block: &Block<'_, '_>,
    w: &Warp,
    shape: ProductShape,
    f: &MatrixFragment,
) -> Checked<Matrix> {
    let mut out = Matrix::new(shape.extent(f.role));
    let bits = f.item.bits();
    for (r, slot) in f.slots.iter().enumerate() {
        let register = lane_access::take(block, w, register(f.item, *slot), u32::MAX)?;
        for (lane, value) in register.iter().enumerate() {
            for i in 0..f.item.each() {
                let (row, column) = shape.place(f.role, f.item, (r, lane, i));
                out.bits[row * out.columns + column] =
                    value >> (bits * i) & u64::MAX >> (64 - bits);
            }
        }
    }

    Ok(out)
}

/// Executes `wmma.load`, with one load per element.
pub(crate) fn load_fragment(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    m: &WarpMatrix,
) -> Checked<()> {
    let (base, stride) = origin(block, w, mask, m)?;
    let f = &m.fragment;
    let once = m.shape.registers(f.role, f.item);
    let transfer = transfer(m);
    let bits = 8 * transfer.width.bytes as usize;
    for r in 0..once {
        let mut register = [0u64; 32];
        for i in 0..(32 / bits).max(1) {
            w.regs.set(m.place, mask, &addresses(m, base, stride, r, i));
            load_store::load(block, w, mask, &transfer)?;
            let values = lane_access::take(
                block,
                w,
                RegisterOperand {
                    slot: m.value,
                    bits: register_bits(f.item),
                },
                mask,
            )?;
            register
                .iter_mut()
                .zip(values)
                .for_each(|(all, v)| *all |= v << (bits * i % 64));
        }
        for slot in f.slots.iter().skip(r).step_by(once) {
            lane_access::put(w, self::register(f.item, *slot), mask, &register);
        }
    }

    Ok(())
}

/// Executes `wmma.store`.
pub(crate) fn store_fragment(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    m: &WarpMatrix,
) -> Checked<()> {
    let (base, stride) = origin(block, w, mask, m)?;
    let f = &m.fragment;
    let transfer = transfer(m);
    let bits = 8 * transfer.width.bytes as usize;
    for (r, slot) in f.slots.iter().enumerate() {
        let register = lane_access::take(block, w, register(f.item, *slot), mask)?;
        for i in 0..(32 / bits).max(1) {
            w.regs.set(m.place, mask, &addresses(m, base, stride, r, i));
            let to = RegisterOperand {
                slot: m.value,
                bits: register_bits(f.item),
            };
            lane_access::put(
                w,
                to,
                mask,
                &register.map(|v| v >> (bits * i % 64) & u64::MAX >> (64 - bits)),
            );
            load_store::store(block, w, mask, &transfer)?;
        }
    }

    Ok(())
}

/// Returns the address of the first element and the stride in elements, which must be the same
/// in all lanes.
fn origin(block: &Block<'_, '_>, w: &Warp, mask: u32, m: &WarpMatrix) -> Checked<(u64, u64)> {
    warp_exchange::check_whole(block, w, mask)?;
    let mut bases = [0; 32];
    lane_access::lane_addresses(block, w, mask, &m.address, &mut bases)?;
    let strides = lane_access::words(block, w, mask, m.stride)?;
    let odd = lanes(mask).find(|l| bases[*l] != bases[0] || strides[*l] != strides[0]);
    if let Some(lane) = odd {
        let what = format!("lane {lane} names another address or stride of a matrix than lane 0");
        let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
        fault.instead = "all lanes of the warp must name the same matrix";
        return Err(fault);
    }

    let (rows, columns) = m.shape.extent(m.fragment.role);
    let least = if m.by_rows { columns } else { rows };
    if (strides[0] as usize) < least {
        let what = format!(
            "a matrix with {least} elements in a row or column, and a stride of {}",
            strides[0]
        );
        return Err(block.fault(w, mask, Class::Descriptor, what));
    }

    let fragment = m.shape.registers(m.fragment.role, m.fragment.item)
        * register_bits(m.fragment.item) as usize
        / 8;
    lane_access::check_alignment(block, w, mask, &bases, fragment.min(16) as u32)?;
    Ok((bases[0], strides[0].into()))
}

/// Returns the address of element `i` of register `r` in each lane.
fn addresses(m: &WarpMatrix, base: u64, stride: u64, r: usize, i: usize) -> [u64; 32] {
    std::array::from_fn(|lane| {
        let (row, column) = m
            .shape
            .place(m.fragment.role, m.fragment.item, (r, lane, i));
        let (outer, inner) = if m.by_rows {
            (row, column)
        } else {
            (column, row)
        };
        base.wrapping_add(
            (outer as u64 * stride + inner as u64) * m.fragment.item.bits() as u64 / 8,
        )
    })
}

/// Returns the load or store of one element, or of one register if elements are narrower than a
/// byte.
fn transfer(m: &WarpMatrix) -> Transfer {
    let bits = m.fragment.item.bits();
    let bytes = if bits < 8 { 4 } else { bits as u32 / 8 };
    Transfer {
        space: m.space,
        address: Address {
            slot: m.place,
            wide: true,
            offset: 0,
        },
        width: Width {
            bytes,
            signed: false,
        },
        regs: vec![Some(RegisterOperand {
            slot: m.value,
            bits: register_bits(m.fragment.item),
        })],
        read_only: false,
        unwritten: Unwritten::Fault,
        order: AccessOrdering::Weak,
        scope: MemoryScope::Device,
        site: m.site,
    }
}

fn register_bits(item: MatrixElement) -> u32 {
    if item.bits() == 64 { 64 } else { 32 }
}

fn register(item: MatrixElement, slot: u32) -> RegisterOperand {
    RegisterOperand {
        slot,
        bits: register_bits(item),
    }
}

fn scatter(w: &mut Warp, shape: ProductShape, f: &MatrixFragment, d: &Matrix) {
    let bits = f.item.bits();
    for (r, slot) in f.slots.iter().enumerate() {
        let values: [u64; 32] = std::array::from_fn(|lane| {
            let element = |i: usize| {
                let (row, column) = shape.place(f.role, f.item, (r, lane, i));
                d.at(row, column) << (bits * i)
            };
            (0..f.item.each())
                .map(element)
                .fold(0, |all, bits| all | bits)
        });
        lane_access::put(w, register(f.item, *slot), u32::MAX, &values);
    }
}

/// Returns a sum of `mma.m8n8k4` on 16-bit floats, in the order of the code that ptxas 13.5 emits
/// for sm_90.
///
/// With an `f32` accumulator, it adds the products one after another and then `c`. With an `f16`
/// accumulator, it starts with `c` and adds two products at a time.
fn quad_sum([of_d, of_c]: [MatrixElement; 2], factors: &[(u64, u64)], c: u64) -> u64 {
    let factors: Vec<[f32; 2]> = factors
        .iter()
        .map(|&(a, b)| [a, b].map(|x| float(MatrixElement::F16, x)))
        .collect();
    let chain = |of: &[[f32; 2]]| of.iter().fold(0f32, |sum, [a, b]| a.mul_add(*b, sum));
    let c = float(of_c, c);
    match of_d {
        MatrixElement::F16 => {
            let sum = factors.chunks(2).fold(c, |sum, two| sum + chain(two));
            narrow16(sum.into(), Round::Nearest).into()
        }
        _ => canon(c + chain(&factors)).to_bits().into(),
    }
}

/// Returns one sum as bits.
fn sum(p: &Product, factors: &[(u64, u64)], c: u64) -> u64 {
    match p.a.item {
        MatrixElement::F64 => {
            let double = |bits: u64| f64::from_bits(bits);
            factors
                .iter()
                .fold(double(c), |sum, (a, b)| double(*a).mul_add(double(*b), sum))
                .to_bits()
        }
        MatrixElement::B1 => {
            let counted = |(a, b): &(u64, u64)| if p.exclusive { a ^ b } else { a & b };
            let count: u64 = factors.iter().map(counted).sum();
            total(i64::from(c as i32) + count as i64, p.saturate)
        }
        MatrixElement::S8 | MatrixElement::U8 | MatrixElement::S4 | MatrixElement::U4 => {
            let product = |(a, b): &(u64, u64)| integer(p.a.item, *a) * integer(p.b.item, *b);
            let products: i64 = factors.iter().map(product).sum();
            total(i64::from(c as i32) + products, p.saturate)
        }
        _ => float_sum(p, factors, c),
    }
}

/// Returns a 32-bit sum, which wraps unless it saturates.
pub(crate) fn total(sum: i64, saturate: bool) -> u64 {
    let sum = if saturate {
        sum.clamp(i32::MIN.into(), i32::MAX.into())
    } else {
        sum
    };
    u64::from(sum as u32)
}

fn integer(item: MatrixElement, bits: u64) -> i64 {
    match item {
        MatrixElement::S8 => i64::from(bits as i8),
        MatrixElement::S4 => (bits << 60) as i64 >> 60,
        _ => bits as i64,
    }
}

fn float(item: MatrixElement, bits: u64) -> f32 {
    match item {
        MatrixElement::F16 => f16::from_bits(bits as u16).wide(),
        MatrixElement::Bf16 => bf16::from_bits(bits as u16).wide(),
        MatrixElement::Tf32 => f32::from_bits(bits as u32 & !0x1fff),
        MatrixElement::E4m3 => small_float(bits as u32, 4),
        MatrixElement::E5m2 => small_float(bits as u32, 5),
        _ => f32::from_bits(bits as u32),
    }
}

/// Returns the number of products per step. As on an H200, `wmma` on `.tf32` adds four products at
/// a time, and `mma` adds all eight.
fn step(p: &Product) -> usize {
    if p.a.item == MatrixElement::Tf32 && p.shape.columns == 16 {
        4
    } else {
        STEP
    }
}

fn float_sum(p: &Product, factors: &[(u64, u64)], c: u64) -> u64 {
    let c = float(p.c.item, c);
    if matches!(p.a.item, MatrixElement::E4m3 | MatrixElement::E5m2) {
        return small_sum(p, factors, c);
    }

    let least = if p.a.item == MatrixElement::F16 {
        -14
    } else {
        -126
    };
    let kept = if p.d.item == MatrixElement::F16 {
        HALVES
    } else {
        WIDE
    };
    let steps = factors
        .chunks(step(p))
        .map(|step| of_step(p, step.iter(), least));
    let sum = steps.fold(c, |sum, (left, right)| {
        add_products(sum, &left, &right, kept)
    });
    match p.d.item {
        MatrixElement::F16 => narrow16(sum.into(), Round::Nearest).into(),
        _ => sum.to_bits().into(),
    }
}

/// Returns a sum of products of 8-bit floats.
///
/// For sm_90, ptxas converts the factors to `f16` and multiplies in two steps. The first step uses
/// the lower two of each four factors in a register, and the second step the upper two. The sum
/// after each step is an `f16` or an `f32`. It is added to `c` at the end, as by `add`.
fn small_sum(p: &Product, factors: &[(u64, u64)], c: f32) -> u64 {
    let halves = p.d.item == MatrixElement::F16;
    let rounded = |sum: f64| f16::from_bits(narrow16(sum, Round::Nearest)).wide();
    let mut sum = 0.0;
    for upper in [false, true] {
        let of_half = factors
            .iter()
            .enumerate()
            .filter(|(i, _)| (i % 4 >= 2) == upper);
        // `f16` has this least exponent, even if the least exponent of the 8-bit floats is larger.
        let (left, right) = of_step(p, of_half.map(|(_, factors)| factors), -14);
        let next = add_products(sum, &left, &right, if halves { HALVES } else { WIDE });
        sum = if halves { rounded(next.into()) } else { next };
    }

    if halves {
        narrow16(f64::from(sum) + f64::from(c), Round::Nearest).into()
    } else {
        canon(sum + c).to_bits().into()
    }
}

/// Returns the left and the right factors of a step.
fn of_step<'a>(
    p: &Product,
    factors: impl Iterator<Item = &'a (u64, u64)> + Clone,
    least: i32,
) -> (DotFactors, DotFactors) {
    let left = factors.clone().map(|(a, _)| float(p.a.item, *a));
    (
        DotFactors::new(left, least),
        DotFactors::new(factors.map(|(_, b)| float(p.b.item, *b)), least),
    )
}
