//! Matmuls of warpgroups (manual, "wgmma.mma_async").
//!
//! Each warp of a group multiplies its 16 rows of the left matrix separately. Whether all four
//! warps execute the same instructions on the same matrices is checked for each instruction. A
//! matmul is queued when it is executed, and computed when the warp waits for its group, or earlier
//! if the schedule allows. Until the wait, its sums must not be accessed and a left matrix in
//! registers must not change. Its reads of shared memory count as reads by lane 0 at the wait, and
//! the contents must not have changed by then.
//!
//! The metadata of a sparse left matrix is read when the matmul is queued. The right matrix then
//! has twice as many bytes in its inner dimension. The order of additions is in
//! [`warpgroup`](crate::machine::tensor_core::warpgroup).
//!
//! `wgmma.fence` orders matmuls after accesses of instructions to their registers. A matmul must
//! not use a register that an instruction has written since the fence, or a sum that an instruction
//! has read.

use crate::launch::Order;
use crate::machine::async_copy::bulk_store;
use crate::machine::predicates::pred;
use crate::machine::seeded_choice::mix;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::pending::pending_wgmma::{Matrix, PendingWgmma, ROWS, rows_above};
use crate::machine::state::warp::Warp;
use crate::machine::sync::warp_exchange;
use crate::machine::tensor_core::warpgroup;
use crate::machine::tensor_core::warpgroup::product;
use crate::module::code::Element;
use crate::module::code::asynchronous::{LeftMatrix, Wgmma};
use crate::{Class, Fault};

/// Executes `wgmma.mma_async`.
pub(crate) fn multiply(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    p: &Wgmma,
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    check_fenced(block, w, p)?;
    let uniform = |slot: u32| uniform_long(block, w, slot);
    let a = if let LeftMatrix::Shared(slot) = p.a {
        uniform(slot)?
    } else {
        0
    };
    let b = uniform(p.b)?;
    let holds = pred(&w.regs, p.add, mask).map_err(|u| block.undefined(w, u))?;
    if holds != 0 && holds != u32::MAX {
        return Err(misuse(
            block,
            w,
            "lanes of a warp disagree whether sums are added to".into(),
            "",
        ));
    }

    step_together(block, w, (a, b))?;
    let columns = warpgroup::columns_of_group(block, w, p)?;
    check_operands(block, w, w.now.pc, p, (a, b))?;
    let version = versions(block, w, p, (a, b));
    let own = &mut block.pending.products.warps[w.index as usize];
    let pc = w.now.pc;
    let group = own.groups;
    let add = holds != 0;
    own.pending.push(PendingWgmma {
        pc,
        a,
        b,
        add,
        columns,
        version,
        group,
        done: false,
    });
    let schedule = block.grid.schedule;
    let number = u64::from(own.groups) << 32 | block.pending.copies.turns();
    let early = schedule.order != Order::InOrder && mix(schedule.seed ^ number).is_multiple_of(2);
    if early {
        compute_pending(block, w, |_| true)?;
    }

    Ok(())
}

/// Executes `wgmma.fence`.
pub(crate) fn fence_products(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    step_together(block, w, (0, 0))?;
    let own = &mut block.pending.products.warps[w.index as usize];
    own.fenced = true;
    own.written.clear();
    own.read.clear();
    Ok(())
}

/// Executes `wgmma.commit_group`.
pub(crate) fn commit_products(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    step_together(block, w, (0, 0))?;
    block.pending.products.warps[w.index as usize].groups += 1;
    Ok(())
}

/// Executes `wgmma.wait_group`, which completes all but the last `keep` groups.
pub(crate) fn wait_products(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    keep: usize,
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    step_together(block, w, (0, 0))?;
    let groups = block.pending.products.warps[w.index as usize].groups as usize;
    let over = move |p: &PendingWgmma| p.group as usize + keep < groups;
    for p in block.pending.products.warps[w.index as usize]
        .pending
        .clone()
        .iter()
        .filter(|p| over(p))
    {
        let product = product(block, p.pc);
        if versions(block, w, product, (p.a, p.b)) != p.version {
            let place = block
                .shadow
                .place(Matrix::right(p.b, product).start, w.rank);
            return Err(bulk_store::written_meanwhile(block, w, 0, p.pc, place));
        }
        check_operands(block, w, p.pc, product, (p.a, p.b))?;
    }

    compute_pending(block, w, over)?;
    block.pending.products.warps[w.index as usize]
        .pending
        .retain(|p| !over(p));

    // All lanes are ordered after the reads of the matmuls.
    block
        .shadow
        .clocks
        .sync_lanes(w.index, u32::MAX, w.present());
    Ok(())
}

/// Checks an instruction that uses registers of a pending `wgmma`.
#[cold]
pub(crate) fn check_products(block: &mut Block<'_, '_>, w: &Warp) -> Checked<()> {
    let [read, written] = &block.grid.code.uses[w.now.pc as usize];
    let own = &block.pending.products.warps[w.index as usize];
    for (pc, product) in own.pending.iter().map(|p| (p.pc, product(block, p.pc))) {
        let used = |slots: &[u32]| slots.iter().find(|s| product.d.contains(s)).copied();
        if let Some(slot) = used(read).or(used(written)) {
            let name = register_name(block, slot);
            let what = format!("{name} is a sum of a product that the warp has not waited for");
            let instead =
                "execute wgmma.wait_group first, so that the group of the product is over";
            let mut fault = misuse(block, w, what, instead);
            fault.other = Some(block.earlier(pc, w.index * 32, "issued it"));
            return Err(fault);
        }

        let LeftMatrix::Registers(left) = &product.a else {
            continue;
        };

        if let Some(slot) = written.iter().find(|s| left.contains(s)) {
            let name = register_name(block, *slot);
            let what = format!(
                "{name} is written, which a product reads that the warp has not waited for"
            );
            let mut fault = misuse(
                block,
                w,
                what,
                "wait for the product, or use another register",
            );
            fault.other = Some(block.earlier(pc, w.index * 32, "issued it"));
            return Err(fault);
        }
    }

    let own = &mut block.pending.products.warps[w.index as usize];
    own.written
        .extend(written.iter().map(|slot| (*slot, w.now.pc)));
    own.read.extend(read.iter().map(|slot| (*slot, w.now.pc)));
    Ok(())
}

fn register_name(block: &Block<'_, '_>, slot: u32) -> String {
    let bank = crate::module::registers::Bank::W32;
    let names = &block.grid.code.routines[0].names;
    let found = names.iter().find(|(b, s, _)| (*b, *s) == (bank, slot));
    found.map_or("a register".into(), |(.., name)| name.clone())
}

/// Checks that a fence orders a `wgmma` after earlier uses of its registers.
fn check_fenced(block: &Block<'_, '_>, w: &Warp, p: &Wgmma) -> Checked<()> {
    let own = &block.pending.products.warps[w.index as usize];
    let instead = "execute wgmma.fence before the first product, and after other instructions have used its registers";
    if !own.fenced {
        return Err(misuse(
            block,
            w,
            "no wgmma.fence comes before this product".into(),
            instead,
        ));
    }

    let other_sums = |q: &&PendingWgmma| {
        let q = product(block, q.pc);
        q.d != p.d && q.d.iter().any(|slot| p.d.contains(slot))
    };
    if let Some(q) = own.pending.iter().find(other_sums) {
        let what =
            "a product shares some sums, and not all, with one that the warp has not waited for"
                .into();
        let mut fault = misuse(block, w, what, "wait for the other product first");
        fault.other = Some(block.earlier(q.pc, w.index * 32, "issued them"));
        return Err(fault);
    }

    let left: &[u32] = if let LeftMatrix::Registers(left) = &p.a {
        left
    } else {
        &[]
    };
    let of = |used: &[(u32, u32)], slots: &[u32]| {
        used.iter().find(|(slot, _)| slots.contains(slot)).copied()
    };
    let used = of(&own.written, &p.d)
        .or(of(&own.read, &p.d))
        .or(of(&own.written, left));
    let Some((slot, pc)) = used else {
        return Ok(());
    };

    let what = format!(
        "{} was used since the last wgmma.fence, and a product uses it",
        register_name(block, slot)
    );
    let mut fault = misuse(block, w, what, instead);
    fault.other = Some(block.earlier(pc, w.index * 32, "used it"));
    Err(fault)
}

fn misuse(block: &Block<'_, '_>, w: &Warp, what: String, instead: &'static str) -> Box<Fault> {
    let mut fault = block.fault(w, w.now.mask, Class::Wgmma, what);
    fault.instead = instead;
    fault
}

fn uniform_long(block: &Block<'_, '_>, w: &Warp, slot: u32) -> Checked<u64> {
    let values = w
        .regs
        .get::<u64>(slot, u32::MAX)
        .map_err(|u| block.undefined(w, u))?;
    if values.iter().all(|v| *v == values[0]) {
        Ok(values[0])
    } else {
        Err(misuse(
            block,
            w,
            "lanes of a warp give different descriptors".into(),
            "",
        ))
    }
}

/// Checks that the warps of a warpgroup execute the same instructions with the same matrices.
fn step_together(block: &mut Block<'_, '_>, w: &Warp, (a, b): (u64, u64)) -> Checked<()> {
    let per_block = block.warps.len() / block.blocks.len();
    if w.number as usize / 4 * 4 + 4 > per_block {
        let what = format!(
            "warp {} is of no whole warpgroup: the block has {per_block} warps",
            w.number
        );
        return Err(misuse(
            block,
            w,
            what,
            "launch whole warpgroups, four warps each",
        ));
    }

    // Warpgroups of a block do not begin at multiples of four where its warps do not.
    let group = (w.rank as usize * per_block + w.number as usize / 4 * 4) / 4;
    let own = &mut block.pending.products.warps[w.index as usize];
    let n = own.steps;
    own.steps += 1;
    let steps = &mut block.pending.products.steps[group];
    let Some(&(pc, first_a, first_b, other)) = steps.get(n) else {
        steps.push((w.now.pc, a, b, w.index));
        return Ok(());
    };

    if (pc, first_a, first_b) == (w.now.pc, a, b) {
        return Ok(());
    }

    let what = "warps of a warpgroup execute different products, or on different matrices".into();
    let mut fault = misuse(
        block,
        w,
        what,
        "all four warps must execute the same instructions on the same matrices",
    );
    fault.other = Some(block.earlier(pc, other * 32, "executed this"));
    Err(fault)
}

/// Returns the matrices in shared memory that a warp reads, with their elements and units.
fn operands(
    block: &Block<'_, '_>,
    w: &Warp,
    p: &Wgmma,
    (a, b): (u64, u64),
) -> Vec<(u64, Matrix, Element, Vec<u64>)> {
    let first = rows_above(w);
    let one = |bits, matrix: Matrix, element, first, outer| {
        let places = matrix.units(first, outer, element).into_iter();
        (
            bits,
            matrix,
            element,
            places
                .map(|unit| block.shadow.place(unit, w.rank))
                .collect(),
        )
    };
    let right = one(b, Matrix::right(b, p), p.right, 0, p.columns);
    match p.a {
        LeftMatrix::Shared(_) => vec![one(a, Matrix::left(a, p), p.left, first, ROWS), right],
        LeftMatrix::Registers(_) => vec![right],
    }
}

/// Returns a number that changes when the matrices are written.
fn versions(block: &Block<'_, '_>, w: &Warp, p: &Wgmma, bits: (u64, u64)) -> u64 {
    let operands = operands(block, w, p, bits);
    let places = operands.iter().flat_map(|(.., places)| places);
    places.fold(0u64, |version, place| {
        version.rotate_left(5) ^ bulk_store::version(block, *place, 16)
    })
}

/// Checks that the matrices in shared memory may be read now.
fn check_operands(
    block: &mut Block<'_, '_>,
    w: &Warp,
    pc: u32,
    p: &Wgmma,
    bits: (u64, u64),
) -> Checked<()> {
    for (bits, matrix, element, places) in operands(block, w, p, bits) {
        if let Some(what) = matrix.problem(bits, element) {
            let mut fault = block.fault(w, w.now.mask, Class::Descriptor, what);
            fault.place = Some(block.place(pc));
            return Err(fault);
        }
        for place in places {
            bulk_store::read_beside(block, w, 0, pc, place, 16)?;
            bulk_store::check_pattern(block, w, 0, place, matrix.swizzle)?;
        }
    }
    Ok(())
}

/// Computes the pending `wgmma` for which `which` is true, in order.
fn compute_pending(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    which: impl Fn(&PendingWgmma) -> bool,
) -> Checked<()> {
    let mut pending = std::mem::take(&mut block.pending.products.warps[w.index as usize].pending);
    for p in pending.iter_mut().filter(|p| !p.done && which(p)) {
        p.done = true;
        warpgroup::compute(block, w, p)?;
    }
    block.pending.products.warps[w.index as usize].pending = pending;
    Ok(())
}
