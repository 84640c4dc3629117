//! Calls of device functions.
//!
//! Each call has separate registers and local memory. Lanes that call together execute the function
//! together until each has returned or exited. Then all lanes of the caller continue after the
//! call. Lanes that call different functions execute one function after another. Lanes that wait
//! for each other in different calls run as [strands](crate::machine::interp::diverged_lanes).

use crate::machine::interp::call_arguments::{copy_local, known, passed, read_local, write_local};
use crate::machine::interp::device_functions;
use crate::machine::memory::lane_access::{extend, lanes_of, put};
use crate::machine::memory::{lane_access, local};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::{Warp, fit_registers};
use crate::machine::state::warp_parts::{WaitingCaller, WarpFrame};
use crate::module::code::{ABSENT, Call, CallTarget, Formal, Op, Passed, RegisterOperand};
use crate::module::control_flow::NEVER;
use crate::module::lane_mask::{lanes, set_bit};
use crate::module::registers::Regs;
use crate::{Class, Fault};

/// The maximum depth of nested calls in a thread.
const MOST_CALLS: usize = 1024;
/// The maximum size of the local memory of a thread in bytes.
const MOST_STACK: u32 = 512 << 10;
/// The minimum alignment of the local memory of a call.
const ALIGN: u32 = 16;

/// Executes a call. Afterwards the warp is in the function, or after the call.
pub(crate) fn call(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, call: &Call) -> Checked<()> {
    match &call.target {
        CallTarget::System(function) => {
            device_functions::system_call(block, w, mask, *function, call)?;
            w.now.pc += 1;
            Ok(())
        }
        CallTarget::Function(number) => {
            let routine = block.grid.code.routine_of[*number as usize];
            enter(block, w, call, vec![(routine, mask)])
        }
        CallTarget::Register { slot, list } => {
            let groups = callees(block, w, mask, *slot, list.as_deref())?;
            groups
                .iter()
                .try_for_each(|(routine, lanes)| check_call(block, w, call, *routine, *lanes))?;
            enter(block, w, call, groups)
        }
    }
}

/// Returns the routines whose addresses a register contains, with their lanes. The last entry
/// runs first.
fn callees(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    slot: u32,
    list: Option<&[u32]>,
) -> Checked<Vec<(u32, u32)>> {
    let addresses = w
        .regs
        .get::<u64>(slot, mask)
        .map_err(|u| block.undefined(w, u))?;
    let code = block.grid.code;
    let listed = |routine: usize| {
        list.is_none_or(|list| {
            list.iter()
                .any(|n| code.routine_of[*n as usize] == routine as u32)
        })
    };
    let mut groups: Vec<(u32, u32)> = Vec::new();
    for lane in lanes(mask) {
        let found = (1..code.routines.len()).find(|i| code.routines[*i].address == addresses[lane]);
        let Some(routine) = found.filter(|routine| listed(*routine)) else {
            return Err(no_function(
                block,
                w,
                lane,
                addresses[lane],
                found.is_some(),
            ));
        };
        match groups
            .iter_mut()
            .find(|(known, _)| *known == routine as u32)
        {
            Some((_, lanes)) => *lanes = set_bit(*lanes, lane),
            None => groups.push((routine as u32, 1 << lane)),
        }
    }

    groups.reverse();
    Ok(groups)
}

#[cold]
fn no_function(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    known: bool,
) -> Box<Fault> {
    let what = if known {
        format!("a call of the function at 0x{address:x}, which the list of targets does not name")
    } else {
        format!("a call of 0x{address:x}, which is not the address of a function in this module")
    };
    let mut fault = block.fault(w, 1 << lane, Class::BadCall, what);
    fault.instead = "check where the pointer comes from: a table that was never filled, or an object of the host";
    fault
}

/// Checks that a function has the parameters that an indirect call passes.
fn check_call(
    block: &Block<'_, '_>,
    w: &Warp,
    call: &Call,
    routine: u32,
    lanes: u32,
) -> Checked<()> {
    let callee = &block.grid.code.routines[routine as usize];
    if let Some(refused) = &callee.refused {
        let what = format!(
            "a call of `{}`, which cannot run here: {refused}",
            callee.name
        );
        return Err(block.fault(w, lanes, Class::BadCall, what));
    }

    let fits = |passed: &[Passed], formals: &[Formal]| {
        let same = |(p, f): (&Passed, &Formal)| p.bytes().is_none_or(|bytes| bytes == f.bytes());
        passed.len() == formals.len() && passed.iter().zip(formals).all(same)
    };
    if fits(&call.arguments, &callee.params) && fits(&call.returns, &callee.returns) {
        return Ok(());
    }

    let what = format!(
        "a call of `{}`, whose parameters are others than those that it passes",
        callee.name
    );
    let mut fault = block.fault(w, lanes, Class::BadCall, what);
    fault.instead = "call it through a pointer with its type";
    Err(fault)
}

/// Enters the last of the routines and keeps the others for later.
fn enter(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    call: &Call,
    mut groups: Vec<(u32, u32)>,
) -> Checked<()> {
    let Some((number, lanes)) = groups.pop() else {
        return Ok(());
    };

    debug_assert_ne!(number, ABSENT, "every function that a call names is linked");
    let routine = &block.grid.code.routines[number as usize];
    let frame = w.top.next_multiple_of(routine.align.max(ALIGN));
    let top = frame + routine.local;
    check_depth(block, w, lanes, top)?;
    let mut regs = w.spare[number as usize].pop().unwrap_or_else(|| {
        let mut regs = Regs::default();
        fit_registers(&mut regs, routine, &block.grid.variables);
        regs
    });
    w.begin(&mut regs, routine, frame, &block.identity(w));
    grow(w, top);
    forget(w, frame, top, lanes);
    for (passed, formal) in call.arguments.iter().zip(&routine.params) {
        pass(block, w, &mut regs, lanes, *passed, *formal, frame)?;
    }

    let now = std::mem::replace(
        &mut w.now,
        WarpFrame {
            pc: routine.start,
            join: NEVER,
            mask: lanes,
        },
    );
    w.calls.push(WaitingCaller {
        regs: std::mem::replace(&mut w.regs, regs),
        now,
        floor: std::mem::replace(&mut w.floor, w.stack.len()),
        returned: std::mem::take(&mut w.returned),
        lost: std::mem::take(&mut w.lost),
        routine: std::mem::replace(&mut w.routine, number),
        frame: std::mem::replace(&mut w.frame, frame),
        top: std::mem::replace(&mut w.top, top),
        lanes,
        next: groups,
    });
    Ok(())
}

fn check_depth(block: &Block<'_, '_>, w: &Warp, lanes: u32, top: u32) -> Checked<()> {
    let what = match (w.calls.len() >= MOST_CALLS, top > MOST_STACK) {
        (true, _) => format!("calls are nested deeper than {MOST_CALLS}"),
        (_, true) => {
            format!("the calls need {top} bytes of local memory, at most {MOST_STACK}")
        }
        _ => return Ok(()),
    };
    let mut fault = block.fault(w, lanes, Class::StackOverflow, what);
    fault.instead = "look for a recursion that does not end; a device has 1024 bytes of stack unless cuCtxSetLimit says more";
    Err(fault)
}

/// Passes one argument to the function that is about to run.
fn pass(
    block: &Block<'_, '_>,
    w: &mut Warp,
    regs: &mut Regs,
    lanes: u32,
    p: Passed,
    f: Formal,
    frame: u32,
) -> Checked<()> {
    match (p, f) {
        (Passed::Local { offset, .. }, Formal::Local { offset: to, bytes }) => {
            copy_local(w, w.frame + offset, frame + to, bytes, lanes);
        }
        (p, Formal::Local { offset, bytes }) => {
            let known = lanes & known(w, lanes, p)?;
            let values = passed(block, w, known, p)?;
            write_local(w, frame + offset, bytes, known, &values);
        }
        (p, Formal::Register(r)) => {
            // An undefined value may be passed. Only its use is a fault.
            let known = lanes & known(w, lanes, p)?;
            let values = passed(block, w, known, p)?;
            set(regs, r, known, &values);
        }
    }
    Ok(())
}

/// Ends the running call and returns its results to the caller. The caller continues unless
/// other lanes call another function.
pub(crate) fn leave(block: &mut Block<'_, '_>, w: &mut Warp) -> Checked<()> {
    let code = block.grid.code;
    let Some(a) = w.calls.pop() else {
        return Ok(());
    };
    let Op::Call(call) = &code.ops[a.now.pc as usize].op else {
        return Ok(());
    };

    let callee = &code.routines[w.routine as usize];
    let mut results = Vec::new();
    for (passed, formal) in call.returns.iter().zip(&callee.returns) {
        results.push(result(block, w, *passed, *formal, a.frame)?);
    }

    let number = w.routine as usize;
    let back = w.returned;
    let regs = std::mem::replace(&mut w.regs, a.regs);
    w.spare[number].push(regs);
    w.now = a.now;
    w.floor = a.floor;
    w.returned = a.returned;
    w.lost = a.lost;
    w.routine = a.routine;
    w.frame = a.frame;
    w.top = a.top;
    for (passed, values) in call.returns.iter().zip(results) {
        match (passed, values) {
            (Passed::Register(r), Some((known, values))) => {
                put(w, *r, known, &values);
                w.regs.forget(r.bits, r.slot, back & !known);
            }
            (Passed::Local { offset, bytes }, Some((known, values))) => {
                write_local(w, w.frame + offset, *bytes, known, &values);
            }
            // The result was copied already, or it is discarded.
            (Passed::Literal(_), _) | (_, None) => {}
        }
    }

    go_on(block, w, call, a.next)
}

/// Returns a result and the lanes in which it is initialized, or `None` if it was copied
/// already.
fn result(
    block: &Block<'_, '_>,
    w: &mut Warp,
    p: Passed,
    f: Formal,
    caller: u32,
) -> Checked<Option<(u32, [u64; 32])>> {
    let back = w.returned;
    match (p, f) {
        (
            Passed::Local { offset, .. },
            Formal::Local {
                offset: from,
                bytes,
            },
        ) => {
            copy_local(w, w.frame + from, caller + offset, bytes, back);
            Ok(None)
        }
        (_, Formal::Local { offset, bytes }) => {
            read_local(block, w, w.frame + offset, bytes, back).map(|values| Some((back, values)))
        }
        (_, Formal::Register(r)) => {
            let known = back & w.regs.defined(r.bits, r.slot);
            local::check_found(w, r, back)?;
            lane_access::take(block, w, r, known).map(|values| Some((known, values)))
        }
    }
}

fn go_on(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    call: &Call,
    mut next: Vec<(u32, u32)>,
) -> Checked<()> {
    for (_, lanes) in &mut next {
        *lanes &= !w.exited;
    }

    next.retain(|(_, lanes)| *lanes != 0);
    if !next.is_empty() {
        return enter(block, w, call, next);
    }

    w.now.pc += 1;
    w.now.mask &= !(w.exited | w.returned);
    if w.now.mask == 0 {
        w.resume();
    }

    Ok(())
}

/// Executes `alloca`. It allocates after all memory in use, as much as the lane with the
/// largest size.
pub(crate) fn alloca(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    d: RegisterOperand,
    size: RegisterOperand,
    align: u32,
) -> Checked<()> {
    let sizes = lane_access::take(block, w, size, mask)?;
    let most = lanes(mask).map(|lane| sizes[lane]).max().unwrap_or(0);
    let base = w.top.max(ALIGN).next_multiple_of(align.max(ALIGN));
    let top = u32::try_from(u64::from(base).saturating_add(most)).unwrap_or(u32::MAX);
    check_depth(block, w, mask, top)?;
    w.top = top;
    grow(w, top);
    forget(w, base, top, mask);
    put(w, d, mask, &[base.into(); 32]);
    Ok(())
}

/// Executes `stackrestore`. Memory is free again when all lanes of the call have restored the
/// stack.
pub(crate) fn stack_restore(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    a: RegisterOperand,
) -> Checked<()> {
    let to = lane_access::take(block, w, a, mask)?;
    let least = w.frame + block.grid.code.routines[w.routine as usize].local;
    let wrong = lanes(mask).find(|l| to[*l] < least.into() || to[*l] > w.top.into());
    if let Some(lane) = wrong {
        let what = format!(
            "stackrestore of 0x{:x}, which no stacksave of this call returned",
            to[lane]
        );
        return Err(block.fault(w, 1 << lane, Class::OutOfBounds, what));
    }

    for lane in lanes(mask) {
        forget(w, to[lane] as u32, w.top, 1 << lane);
    }

    let all = w.calls.last().map_or(w.live, |call| call.lanes) & !(w.exited | w.returned);
    if mask == all {
        w.top = lanes(mask)
            .map(|lane| to[lane] as u32)
            .max()
            .unwrap_or(w.top);
    }

    Ok(())
}

/// Writes a register in the lanes of a mask.
fn set(regs: &mut Regs, to: RegisterOperand, mask: u32, values: &[u64; 32]) {
    if to.bits == 1 {
        return regs.set_pred(to.slot, mask, lanes_of(values));
    }
    let values = values.map(|v| extend(v, to.bits / 8, false, to.bits));
    match to.bits {
        64 => regs.set(to.slot, mask, &values),
        _ => regs.set(to.slot, mask, &values.map(|v| v as u32)),
    }
}

/// Enlarges local memory up to an address.
fn grow(w: &mut Warp, top: u32) {
    let words = top.div_ceil(4) as usize;
    if w.local.len() < words {
        w.local.resize(words, [0; 32]);
        w.local_init.resize(words, [0; 32]);
    }
}

/// Marks a range of local memory as uninitialized in some lanes.
fn forget(w: &mut Warp, from: u32, to: u32, mask: u32) {
    let mut at = from;
    while at < to {
        let word = &mut w.local_init[at as usize / 4];
        let whole = at.is_multiple_of(4) && to - at >= 4;
        match (whole, mask) {
            (true, u32::MAX) => *word = [0; 32],
            (true, _) => lanes(mask).for_each(|lane| word[lane] = 0),
            (false, _) => lanes(mask).for_each(|lane| word[lane] &= !(1 << (at % 4))),
        }
        at += if whole { 4 } else { 1 };
    }
}
