//! The computation of `wgmma`: multiplies the 16 rows of a warp in the left matrix by the right
//! matrix.
//!
//! Let g = lane / 4 and t = lane % 4. A left matrix in registers has the layout of
//! [`mma.sync`](crate::machine::tensor_core::mma). The metadata of a
//! [sparse](crate::machine::tensor_core::sparse) one, which holds half the columns, has its layout
//! there too. Sum `r` of a lane is in row g + 8 (r / 2 mod 2) and column 8 (r / 4) + 2 t + r mod 2.
//! Two `f16` sums share one register.
//!
//! All products of an instruction are one step of [tensor
//! cores](crate::machine::tensor_core::dot_product). `f16` sums are rounded once per step, and a
//! step of a sparse matrix adds only stored elements. The bits agree with an H100.

use half::{bf16, f16};

use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::pending::pending_wgmma::{
    DEPTH, Matrix, PendingWgmma, ROWS, rows_above,
};
use crate::machine::state::warp::Warp;
use crate::machine::tensor_core::dot_product::{
    DotFactors, HALVES, NARROW, NARROW_HALVES, StepPrecision, WIDE, add_products,
};
use crate::machine::tensor_core::sparse;
use crate::machine::tensor_core::wmma::total;
use crate::module::code::asynchronous::{LeftMatrix, Wgmma};
use crate::module::code::instruction::Op;
use crate::module::code::{Element, MatrixElement, ProductShape};
use crate::module::isa::arithmetic::float_number::{Half, Round, narrow16, small_float};

/// Returns the columns of the stored elements of the warp's rows for a sparse left matrix, or
/// nothing.
pub(crate) fn columns_of_group(
    block: &Block<'_, '_>,
    w: &Warp,
    p: &Wgmma,
) -> Checked<Vec<Vec<usize>>> {
    let shape = ProductShape {
        rows: ROWS,
        columns: p.columns,
        depth: p.depth,
    };
    let Some(sparsity) = p.sparsity else {
        return Ok(Vec::new());
    };
    sparse::stored_columns(block, w, (shape, p.left.item()), sparsity, rows_above(w))
}

/// Computes a product and writes the accumulators.
pub(crate) fn compute(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    pending: &PendingWgmma,
) -> Checked<()> {
    let p = product(block, pending.pc);
    let left = match &p.a {
        LeftMatrix::Shared(_) => matrix(
            block,
            w,
            Matrix::left(pending.a, p),
            p.left,
            rows_above(w),
            ROWS,
        ),
        LeftMatrix::Registers(slots) => left_registers(block, w, slots, p.left)?,
    };
    let right = matrix(block, w, Matrix::right(pending.b, p), p.right, 0, p.columns);
    let mut d = sums(block, w, p, pending.add)?;
    match p.sum {
        MatrixElement::S32 => add_integers(p, &pending.columns, (&left, &right), &mut d),
        _ => add_floats(p, &pending.columns, (&left, &right), &mut d),
    }

    put_sums(w, p, &d);
    Ok(())
}

/// Returns the rows of the left matrix, or the columns of the right one, as rows of the inner
/// dimension.
fn matrix(
    block: &Block<'_, '_>,
    w: &Warp,
    m: Matrix,
    element: Element,
    first: usize,
    outer: usize,
) -> Vec<Vec<f32>> {
    let units = m.units(first, outer, element).into_iter().flat_map(|unit| {
        let offset = (block.shadow.place(unit, w.rank)
            - u64::from(crate::module::address_space::SHARED_BASE)) as usize;
        [0, 8].map(|half| block.shared.read(offset + half, 8).to_le_bytes())
    });
    let bytes: Vec<u8> = units.flatten().collect();
    let size = element.bytes();
    let bits = |at: usize| {
        (0..size)
            .rev()
            .fold(0u32, |bits, i| bits << 8 | u32::from(bytes[at + i]))
    };
    let at = |o: usize, k: usize| {
        if m.transposed {
            (k * outer + o) * size
        } else {
            o * m.bytes + k * size
        }
    };
    let row = |o: usize| (0..m.bytes / size).map(move |k| float(element, bits(at(o, k))));
    (0..outer).map(|o| row(o).collect()).collect()
}

/// Returns the warp's rows of a left matrix in registers, in the layout of `mma.sync`.
fn left_registers(
    block: &Block<'_, '_>,
    w: &Warp,
    slots: &[u32],
    element: Element,
) -> Checked<Vec<Vec<f32>>> {
    let each = element.per_register();
    let mut rows = vec![vec![0.0; DEPTH / element.bytes()]; ROWS];
    for (r, slot) in slots.iter().enumerate() {
        let register = lane_access::words(block, w, u32::MAX, *slot)?;
        for (lane, value) in register.iter().enumerate() {
            for i in 0..each {
                let k = each * (lane % 4) + i + 4 * each * (r / 2);
                let bits = value >> (8 * element.bytes() * i);
                rows[lane / 4 + 8 * (r % 2)][k] = float(element, bits);
            }
        }
    }

    Ok(rows)
}

/// Returns the accumulators by row and column as bits, or zeros if they are replaced.
fn sums(block: &Block<'_, '_>, w: &Warp, p: &Wgmma, add: bool) -> Checked<Vec<Vec<u32>>> {
    let mut d = vec![vec![0; p.columns]; ROWS];
    let each = p.sum.each();
    let bits = p.sum.bits();
    for (r, slot) in p.d.iter().enumerate().filter(|_| add) {
        let register = lane_access::words(block, w, u32::MAX, *slot)?;
        for (lane, value) in register.iter().enumerate() {
            for i in 0..each {
                let (row, column) = place_of_sum(each * r + i, lane);
                d[row][column] = value >> (bits * i) & u32::MAX >> (32 - bits);
            }
        }
    }

    Ok(d)
}

fn put_sums(w: &mut Warp, p: &Wgmma, d: &[Vec<u32>]) {
    let each = p.sum.each();
    let bits = p.sum.bits();
    for (r, slot) in p.d.iter().enumerate() {
        let out: [u32; 32] = std::array::from_fn(|lane| {
            let part = |i: usize| {
                let (row, column) = place_of_sum(each * r + i, lane);
                d[row][column] << (bits * i)
            };
            (0..each).map(part).fold(0, |all, bits| all | bits)
        });
        w.regs.set(*slot, u32::MAX, &out);
    }
}

/// Returns the row within the warp, and the column, of an accumulator.
fn place_of_sum(r: usize, lane: usize) -> (usize, usize) {
    (
        lane / 4 + 8 * (r / 2 % 2),
        8 * (r / 4) + 2 * (lane % 4) + r % 2,
    )
}

/// The stored rows of the left matrix, and the columns of the right one.
type Matrices<'a> = (&'a [Vec<f32>], &'a [Vec<f32>]);

fn add_integers(p: &Wgmma, stored: &[Vec<usize>], (left, right): Matrices<'_>, d: &mut [Vec<u32>]) {
    for (r, sums) in d.iter_mut().enumerate() {
        for (sum, right) in sums.iter_mut().zip(right) {
            let met = |i: usize| {
                if stored.is_empty() {
                    right[i]
                } else {
                    right[stored[r][i]]
                }
            };
            let products = left[r]
                .iter()
                .enumerate()
                .map(|(i, a)| *a as i64 * met(i) as i64);
            *sum = total(i64::from(*sum as i32) + products.sum::<i64>(), p.saturate) as u32;
        }
    }
}

fn add_floats(p: &Wgmma, stored: &[Vec<usize>], (left, right): Matrices<'_>, d: &mut [Vec<u32>]) {
    let sign = |negated: bool| if negated { -1.0 } else { 1.0 };
    let scale = sign(p.negated[0]) * sign(p.negated[1]);
    let of_right =
        |values: &mut dyn Iterator<Item = f32>| DotFactors::new(values, p.right.least_exponent());
    let whole: Vec<DotFactors> = match stored {
        [] => right
            .iter()
            .map(|column| of_right(&mut column.iter().copied()))
            .collect(),
        _ => Vec::new(),
    };
    for (r, sums) in d.iter_mut().enumerate() {
        let a = DotFactors::new(left[r].iter().map(|v| v * scale), p.left.least_exponent());
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = match whole.get(c) {
                Some(b) => add_step(p, *sum, &a, b),
                None => {
                    let met = of_right(&mut stored[r].iter().map(|k| right[c][*k]));
                    add_step(p, *sum, &a, &met)
                }
            };
        }
    }
}

/// Adds the products of one step to an accumulator, as bits.
fn add_step(p: &Wgmma, sum: u32, a: &DotFactors, b: &DotFactors) -> u32 {
    match p.sum {
        MatrixElement::F16 => {
            let sum = add_products(f16::from_bits(sum as u16).wide(), a, b, kept(p));
            u32::from(narrow16(sum.into(), Round::Nearest))
        }
        _ => add_products(f32::from_bits(sum), a, b, kept(p)).to_bits(),
    }
}

fn kept(p: &Wgmma) -> StepPrecision {
    match (p.left.bytes(), p.sum) {
        (1, MatrixElement::F16) => NARROW_HALVES,
        (1, _) => NARROW,
        (_, MatrixElement::F16) => HALVES,
        _ => WIDE,
    }
}

/// Returns the value of an element as a factor.
fn float(element: Element, bits: u32) -> f32 {
    match element {
        Element::F16 => f16::from_bits(bits as u16).to_f32(),
        Element::Bf16 => bf16::from_bits(bits as u16).to_f32(),
        Element::Tf32 => f32::from_bits(bits & !0x1fff),
        Element::E4m3 => small_float(bits, 4),
        Element::E5m2 => small_float(bits, 5),
        Element::S8 => f32::from(bits as u8 as i8),
        Element::U8 => f32::from(bits as u8),
    }
}

/// Returns the `wgmma` at an instruction.
pub(crate) fn product<'g>(block: &Block<'g, '_>, pc: u32) -> &'g Wgmma {
    match &block.grid.code.ops[pc as usize].op {
        Op::Wgmma(product) => product,
        _ => unreachable!("a pending product is of such an instruction"),
    }
}
