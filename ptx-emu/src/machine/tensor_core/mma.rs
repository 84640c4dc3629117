//! `mma.sync` and `ldmatrix`: matrices whose elements are spread over the registers of a warp.
//!
//! Let g = lane / 4 and t = lane % 4, and let e elements fill a register. Element i of register r
//! of a lane is
//!
//! - in a: row g + 8 (r mod 2), column e t + i + 4 e (r / 2);
//! - in b: row e t + i + 4 e r, column g;
//! - in c and d: row g + 8 (r / 2), column 2 t + r mod 2.
//!
//! Integer products wrap. Products of halves are added to `c` all at once, as [tensor
//! cores](crate::machine::tensor_core::dot_product) do; the manual leaves order and rounding open.

use half::{bf16, f16};

use crate::machine::memory::shared::{cluster_window, shared_checks};
use crate::machine::memory::{lane_access, tolerance};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::machine::sync::warp_exchange;
use crate::machine::tensor_core::dot_product::{DotFactors, WIDE, add_products};
use crate::module::code::{Element, LoadMatrix, Mma};
use crate::module::isa::arithmetic::float_number::Half;
use crate::sanitize::race::last_access::AccessProperties;

/// The number of rows of a, c and d.
const ROWS: usize = 16;
/// The number of columns of b, c and d.
const COLUMNS: usize = 8;
/// The maximum number of columns of a.
const DEPTH: usize = 32;

type Registers = [[u32; 32]; 4];

pub(crate) fn mma(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, m: &Mma) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    let a = fragment(block, w, &m.a)?;
    let b = fragment(block, w, &m.b)?;
    let c = fragment(block, w, &m.c)?;
    let d = match m.left {
        Element::F16 => halves(m, &a, &b, &c, |h| f16::from_bits(h).wide()),
        Element::Bf16 => halves(m, &a, &b, &c, |h| bf16::from_bits(h).wide()),
        _ => bytes(m, &a, &b, &c),
    };
    m.d.iter()
        .zip(&d)
        .for_each(|(slot, values)| w.regs.set(*slot, mask, values));
    Ok(())
}

/// Executes `ldmatrix`.
///
/// Lane `8 j + r` provides the address of row `r` of matrix `j`. Register `j` of a lane
/// receives elements `2 t` and `2 t + 1` of row `g`, or of column `g` if transposed.
pub(crate) fn load_matrix(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    m: &LoadMatrix,
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    let named = u32::MAX >> (32 - 8 * m.d.len());
    let mut addresses = [0; 32];
    cluster_window::shared_addresses(block, w, named, &m.address, m.space, &mut addresses)?;
    lane_access::check_alignment(block, w, named, &addresses, 16)?;
    let access = AccessProperties {
        pc: w.now.pc,
        reads: true,
        ..AccessProperties::default()
    };
    for (j, slot) in m.d.iter().enumerate() {
        let mut rows = [[0u16; 8]; 8];
        for (r, row) in rows.iter_mut().enumerate() {
            for half in 0..2 {
                let offset = shared_checks::touch(
                    block,
                    w,
                    8 * j + r,
                    addresses[8 * j + r] + 8 * half,
                    8,
                    access,
                )?;
                let bits = block.shared.read(offset, 8);
                (0..4).for_each(|i| row[4 * half as usize + i] = (bits >> (16 * i)) as u16);
            }
        }

        let element =
            |a: usize, b: usize| u32::from(if m.transposed { rows[b][a] } else { rows[a][b] });
        let out: [u32; 32] = std::array::from_fn(|lane| {
            let g = lane / 4;
            let t = lane % 4;
            element(g, 2 * t) | element(g, 2 * t + 1) << 16
        });
        w.regs.set(*slot, mask, &out);
    }

    Ok(())
}

/// Executes `stmatrix`, which stores the layout that [`load_matrix`]
/// loads.
pub(crate) fn store_matrix(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    m: &LoadMatrix,
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    let named = u32::MAX >> (32 - 8 * m.d.len());
    let mut addresses = [0; 32];
    cluster_window::shared_addresses(block, w, named, &m.address, m.space, &mut addresses)?;
    lane_access::check_alignment(block, w, named, &addresses, 16)?;
    let access = AccessProperties {
        pc: w.now.pc,
        writes: true,
        ..AccessProperties::default()
    };
    for (j, slot) in m.d.iter().enumerate() {
        let rows = spread(&lane_access::words(block, w, mask, *slot)?, m.transposed);
        for (r, row) in rows.iter().enumerate() {
            for (half, part) in row.as_chunks::<4>().0.iter().enumerate() {
                let at = addresses[8 * j + r] + 8 * half as u64;
                let bits = part
                    .iter()
                    .rev()
                    .fold(0, |bits, v| bits << 16 | u64::from(*v));
                let offset = match shared_checks::touch(block, w, 8 * j + r, at, 8, access) {
                    Ok(offset) => offset,
                    Err(fault) => {
                        tolerance::excuse_store(block, w, fault, (at, 8), bits)?;
                        tolerance::touch_tolerated(block, w, 8 * j + r, at, 8, access)
                    }
                };
                block.shared.write(offset, 8, bits);
            }
        }
    }

    Ok(())
}

/// Executes `movmatrix`, which transposes a matrix of 8 by 8 16-bit values.
pub(crate) fn move_matrix(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    d: u32,
    a: u32,
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    let rows = spread(&lane_access::words(block, w, mask, a)?, true);
    let out: [u32; 32] = std::array::from_fn(|lane| {
        let g = lane / 4;
        let t = lane % 4;
        u32::from(rows[g][2 * t]) | u32::from(rows[g][2 * t + 1]) << 16
    });
    w.regs.set(d, mask, &out);
    Ok(())
}

/// Returns the registers of a matrix.
fn fragment(block: &Block<'_, '_>, w: &Warp, slots: &[u32]) -> Checked<Registers> {
    let mut out = [[0; 32]; 4];
    for (out, slot) in out.iter_mut().zip(slots) {
        *out = *w
            .regs
            .get::<u32>(*slot, u32::MAX)
            .map_err(|u| block.undefined(w, u))?;
    }
    Ok(out)
}

/// Returns the rows of a matrix of 8 by 8 16-bit values, in which each lane has two values of a
/// row.
fn spread(register: &[u32; 32], transposed: bool) -> [[u16; 8]; 8] {
    let mut rows = [[0u16; 8]; 8];
    for (lane, value) in register.iter().enumerate() {
        for i in 0..2 {
            let row = lane / 4;
            let column = 2 * (lane % 4) + i;
            let (row, column) = if transposed {
                (column, row)
            } else {
                (row, column)
            };
            rows[row][column] = (value >> (16 * i)) as u16;
        }
    }
    rows
}

/// Unpacks a into rows of `DEPTH` elements. A register contains `EACH` elements.
fn left<const EACH: usize>(
    a: &[[u32; 32]],
    element: impl Fn(u32, usize) -> f32,
) -> [[f32; DEPTH]; ROWS] {
    let mut out = [[0.0; DEPTH]; ROWS];
    for (r, register) in a.iter().enumerate() {
        for (lane, value) in register.iter().enumerate() {
            let column = EACH * (lane % 4) + 4 * EACH * (r / 2);
            let row = &mut out[lane / 4 + 8 * (r % 2)][column..column + EACH];
            row.iter_mut()
                .enumerate()
                .for_each(|(i, row)| *row = element(*value, i));
        }
    }
    out
}

/// Unpacks b into rows of `COLUMNS` elements.
fn right<const EACH: usize>(
    b: &[[u32; 32]],
    element: impl Fn(u32, usize) -> f32,
) -> [[f32; COLUMNS]; DEPTH] {
    let mut out = [[0.0; COLUMNS]; DEPTH];
    for (r, register) in b.iter().enumerate() {
        for (lane, value) in register.iter().enumerate() {
            let row = EACH * (lane % 4) + 4 * EACH * r;
            let rows = &mut out[row..row + EACH];
            rows.iter_mut()
                .enumerate()
                .for_each(|(i, row)| row[lane / 4] = element(*value, i));
        }
    }
    out
}

/// Unpacks c.
fn sums<T: Copy + Default>(c: &Registers, element: impl Fn(u32) -> T) -> [[T; COLUMNS]; ROWS] {
    let mut out = [[T::default(); COLUMNS]; ROWS];
    for (r, register) in c.iter().enumerate() {
        for (lane, value) in register.iter().enumerate() {
            out[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2] = element(*value);
        }
    }
    out
}

/// Packs d into registers.
fn scatter<T: Copy>(d: &[[T; COLUMNS]; ROWS], bits: impl Fn(T) -> u32) -> Registers {
    std::array::from_fn(|r| {
        std::array::from_fn(|lane| bits(d[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2]))
    })
}

fn halves(
    m: &Mma,
    a: &Registers,
    b: &Registers,
    c: &Registers,
    wide: impl Fn(u16) -> f32,
) -> Registers {
    let element = |register: u32, i: usize| wide((register >> (16 * i)) as u16);
    let a = left::<2>(&a[..m.a.len()], element);
    let b = right::<2>(&b[..m.b.len()], element);
    let least = m.left.least_exponent();
    let columns: [DotFactors; COLUMNS] =
        std::array::from_fn(|n| DotFactors::new(b[..m.depth].iter().map(|row| row[n]), least));
    let mut d = sums(c, f32::from_bits);
    for (d, a) in d.iter_mut().zip(&a) {
        let a = DotFactors::new(a[..m.depth].iter().copied(), least);
        for (d, b) in d.iter_mut().zip(&columns) {
            *d = add_products(*d, &a, b, WIDE);
        }
    }

    scatter(&d, f32::to_bits)
}

/// Multiplies bytes as `f32`, which is exact because 32 products of at most 2^16 stay below 2^24.
fn bytes(m: &Mma, a: &Registers, b: &Registers, c: &Registers) -> Registers {
    let of = |kind: Element| {
        move |register: u32, i: usize| {
            let byte = (register >> (8 * i)) as u8;
            if kind == Element::S8 {
                f32::from(byte as i8)
            } else {
                f32::from(byte)
            }
        }
    };
    let a = left::<4>(&a[..m.a.len()], of(m.left));
    let b = right::<4>(&b[..m.b.len()], of(m.right));
    let mut d = sums(c, |bits| bits);
    for (d, a) in d.iter_mut().zip(&a) {
        let mut sum = [0f32; COLUMNS];
        for (a, b) in a[..m.depth].iter().zip(&b) {
            sum = std::array::from_fn(|n| sum[n] + a * b[n]);
        }
        d.iter_mut()
            .zip(sum)
            .for_each(|(d, sum)| *d = d.wrapping_add(sum as i32 as u32));
    }

    scatter(&d, |sum| sum)
}
