//! `cvta` and `isspacep`: windows of the generic address space.

use crate::machine::memory::shared::cluster_window::PEER;
use crate::machine::state::block::Block;
use crate::machine::state::warp::Warp;
use crate::module::address_space::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::module::code::operand::{InstructionSpace, Window};
use crate::module::lane_mask::{lanes, set_bit};
use crate::module::registers::{Regs, Undefined};

/// Adds or subtracts the base of a window of the generic address space.
pub(crate) fn window(
    regs: &mut Regs,
    mask: u32,
    d: u32,
    a: u32,
    base: u64,
) -> Result<(), Undefined> {
    let out = regs.get::<u64>(a, mask)?.map(|a| a.wrapping_add(base));
    regs.set(d, mask, &out);
    Ok(())
}

/// Returns the value that is added to an address in a window, or, with `to`, to a generic address.
pub(crate) fn window_base(window: Window, to: bool) -> u64 {
    let base = if window == InstructionSpace::Shared {
        SHARED_WINDOW
    } else {
        PARAM_WINDOW
    };
    if to { base.wrapping_neg() } else { base }
}

/// Executes `isspacep`.
pub(crate) fn is_space(
    block: &Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    d: u32,
    a: u32,
    space: InstructionSpace,
) -> Result<(), Undefined> {
    let constant = |a: u64| block.grid.table.find(a).is_some_and(|a| a.constant);
    let a = w.regs.get::<u64>(a, mask)?;
    let within = |a: u64, base: u64| (base..base + WINDOW).contains(&a);
    let test = |a: u64| match space {
        InstructionSpace::Shared => within(a, SHARED_WINDOW) && a - SHARED_WINDOW < PEER,
        InstructionSpace::Cluster => within(a, SHARED_WINDOW),
        InstructionSpace::Local => within(a, LOCAL_WINDOW),
        InstructionSpace::Param => within(a, PARAM_WINDOW),
        InstructionSpace::Const => constant(a),
        InstructionSpace::Global | InstructionSpace::Generic => {
            ![SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW]
                .iter()
                .any(|window| within(a, *window))
                && !constant(a)
        }
    };
    let value = lanes(mask).filter(|i| test(a[*i])).fold(0, set_bit);
    w.regs.set_pred(d, mask, value);
    Ok(())
}
