//! Barriers in shared memory that count arrivals and bytes (manual, "mbarrier").
//!
//! A phase completes when all expected arrivals and bytes have come. Then the next phase begins. A
//! thread that has waited for a phase is ordered after all earlier actions of the arriving threads.
//!
//! A wait names only the parity of its phase. Its result is independent of timing only if it meets
//! two conditions:
//!
//! - The warp knows that the previous phase was complete. Otherwise an older phase of equal parity
//!   could have satisfied the wait.
//! - The next phase ends only after the wait. Otherwise the wait could have come too late.
//!
//! An arrival must know that the previous phase is complete. Otherwise it could have been one
//! arrival too many for that phase. Vector clocks decide all three conditions, so the result does
//! not depend on the order in which the warps ran.

use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::words;
use crate::machine::memory::shared::{cluster_window, shared_checks};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::mbarrier_state::{FailedWait, MbarrierState, Mbarriers, Waiter};
use crate::machine::state::warp::Warp;
use crate::module::code::{MbarrierInstruction, MbarrierOperation, MbarrierWait, Phase};
use crate::module::isa::async_copy::copy::MOST_COUNT;
use crate::module::lane_mask::lanes;
use crate::sanitize::race::last_access::{AccessProperties, LastAccess};
use crate::sanitize::race::order::vector_clocks::{Clock, join};
use crate::sanitize::race::shared::shared_shadow::MOST_AGENTS;
use crate::{Class, Fault};

/// The maximum number of bytes that a phase may expect or be ahead.
const MOST_BYTES: i64 = (1 << 20) - 1;

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The phase is complete.
    Answered,
    /// The phase is not complete, and the wait returns false. The other warps run next.
    NotYet,
    /// The warp sleeps, and executes the wait again when it is woken.
    Suspended,
}

/// Executes `mbarrier.init`, `mbarrier.inval`, `mbarrier.expect_tx` and `mbarrier.arrive`.
pub(crate) fn mbarrier(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    b: &MbarrierInstruction,
) -> Checked<()> {
    let mut addresses = [0; 32];
    cluster_window::shared_addresses(block, w, mask, &b.address, b.space, &mut addresses)?;
    lane_access::check_alignment(block, w, mask, &addresses, 8)?;
    match b.operation {
        MbarrierOperation::Init { count } => {
            let counts = words(block, w, mask, count)?;
            lanes(mask).try_for_each(|l| init(block, w, l, addresses[l], counts[l]))
        }
        MbarrierOperation::Inval => lanes(mask).try_for_each(|l| inval(block, w, l, addresses[l])),
        MbarrierOperation::ExpectTx { bytes } => {
            let bytes = words(block, w, mask, bytes)?;
            lanes(mask).try_for_each(|l| {
                let i = object(block, w, l, addresses[l])?;
                expect_bytes(block, w, l, i, bytes[l].into())
            })
        }
        MbarrierOperation::Arrive {
            state,
            expect,
            count,
            drops,
            completes,
        } => {
            let expect = expect.map(|slot| words(block, w, mask, slot)).transpose()?;
            let counts = count.map_or(Ok([1; 32]), |slot| words(block, w, mask, slot))?;
            let mut states = [0; 32];
            for l in lanes(mask) {
                let i = object(block, w, l, addresses[l])?;
                states[l] = u64::from(block.mbarriers.objects[i].done);
                if let Some(bytes) = &expect {
                    expect_bytes(block, w, l, i, bytes[l].into())?;
                }
                if !completes {
                    check_incomplete(block, w, l, i, counts[l])?;
                }
                if drops {
                    expect_less(block, w, l, i, counts[l])?;
                }

                arrive_at(block, w, l, i, counts[l])?;
            }

            block.shadow.clocks.bump(w.index as usize);
            if let Some(slot) = state {
                w.regs.set(slot, mask, &states);
            }

            Ok(())
        }
    }
}

/// Checks that an arrival with `.noComplete` is not the last of its phase.
fn check_incomplete(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    i: usize,
    count: u32,
) -> Checked<()> {
    let o = &block.mbarriers.objects[i];
    if count < o.pending || o.bytes != 0 {
        return Ok(());
    }

    let what = format!(
        "an arrival with .noComplete that completes phase {} of an mbarrier",
        o.done
    );
    Err(bad_mbarrier(
        block,
        w,
        lane,
        o.address.into(),
        what,
        "leave .noComplete out",
    ))
}

/// Executes the drop of `mbarrier.arrive_drop`: later phases expect `count` arrivals less.
fn expect_less(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    i: usize,
    count: u32,
) -> Checked<()> {
    let o = &mut block.mbarriers.objects[i];
    if count <= o.count {
        o.count -= count;
        return Ok(());
    }

    let address = o.address;
    let all = o.count;
    let what = format!("mbarrier.arrive_drop of {count} arrivals, of {all} that a phase expects");
    Err(bad_mbarrier(
        block,
        w,
        lane,
        address.into(),
        what,
        "a thread drops out once",
    ))
}

/// Executes the expectation of `cp.async.mbarrier.arrive`: this phase expects one more arrival.
pub(crate) fn expect_more(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    i: usize,
) -> Checked<()> {
    check_phase(block, w, lane, i)?;
    let o = &mut block.mbarriers.objects[i];
    o.pending += 1;
    if u64::from(o.pending) <= MOST_COUNT {
        return Ok(());
    }
    let address = o.address;
    let what = format!("an mbarrier expects more than {MOST_COUNT} arrivals");
    Err(bad_mbarrier(block, w, lane, address.into(), what, ""))
}

fn init(block: &mut Block<'_, '_>, w: &Warp, lane: usize, address: u64, count: u32) -> Checked<()> {
    if count == 0 || u64::from(count) > MOST_COUNT {
        let what = format!("mbarrier.init with a count of {count}: it is 1 to {MOST_COUNT}");
        return Err(bad_mbarrier(block, w, lane, address, what, ""));
    }

    if let Some(i) = block.mbarriers.find(address) {
        let first = block.mbarriers.objects[i].init;
        let what = "mbarrier.init of what is an mbarrier already".to_string();
        let mut fault = bad_mbarrier(
            block,
            w,
            lane,
            address,
            what,
            "initialise it once, or mbarrier.inval it first",
        );
        fault.other = Some(block.earlier(first.pc, first.thread.into(), "initialised it"));
        return Err(fault);
    }

    let access = AccessProperties {
        pc: w.now.pc,
        writes: true,
        ..AccessProperties::default()
    };
    shared_checks::touch(block, w, lane, address, 8, access)?;
    let address = address as u32;
    let known = block.mbarriers.agents.iter().find(|(a, _)| *a == address);
    let agent = match known {
        Some((_, agent)) => *agent,
        None if block.mbarriers.agents.len() == MOST_AGENTS => {
            let what =
                format!("unsupported in ptx-emu: more than {MOST_AGENTS} mbarriers in a block");
            return Err(bad_mbarrier(block, w, lane, address.into(), what, ""));
        }
        None => {
            let agent = block.shadow.clocks.agent();
            block.mbarriers.agents.push((address, agent));
            agent
        }
    };
    block.shadow.cover(address, 8, true);
    let access = AccessProperties {
        thread: w.index * 32 + lane as u32,
        ..access
    };
    block.mbarriers.objects.push(MbarrierState {
        address,
        count,
        pending: count,
        bytes: 0,
        done: 0,
        agent,
        base: block.shadow.clocks.count(agent) - block.shadow.clocks.count_at_start(),
        gathered: Clock::new(),
        last: Clock::new(),
        init: block.shadow.stamp(access, 15),
        uses: Vec::new(),
        fenced: false,
        waits: Vec::new(),
        arrived: (w.now.pc, access.thread),
        copied: Vec::new(),
    });
    Ok(())
}

fn inval(block: &mut Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Checked<()> {
    let i = object(block, w, lane, address)?;
    if block.pending.copies.aims_at(address) {
        let what = "mbarrier.inval while a copy is on its way that completes on it".to_string();
        return Err(bad_mbarrier(
            block,
            w,
            lane,
            address,
            what,
            "wait for the copy first",
        ));
    }

    check_unused(block, w, lane, i)?;
    let gone = block.mbarriers.objects.remove(i);
    block.shadow.cover(gone.address, 8, false);
    block.shadow.initialise(gone.address, 8, 0);
    Ok(())
}

/// Checks that the last use by each other warp is ordered before `mbarrier.inval`.
fn check_unused(block: &Block<'_, '_>, w: &Warp, lane: usize, i: usize) -> Checked<()> {
    let o = &block.mbarriers.objects[i];
    let pc = w.now.pc;
    let thread = w.index * 32 + lane as u32;
    let now = block.shadow.stamp(
        AccessProperties {
            pc,
            thread,
            writes: true,
            ..AccessProperties::default()
        },
        15,
    );
    let late = |last: &&LastAccess| !last.is_of_warp(&now) && block.shadow.races(last, &now);
    let Some(last) = o.uses.iter().find(late) else {
        return Ok(());
    };

    let what =
        "mbarrier.inval, and nothing orders the last use of another warp before it".to_string();
    let instead = "put a barrier between, or an atomic that releases and acquires";
    let mut fault = bad_mbarrier(block, w, lane, o.address.into(), what, instead);
    fault.other = Some(block.earlier(last.pc, last.thread.into(), "used it"));
    Err(fault)
}

/// Returns the index of the mbarrier at an address. Its initialization must be ordered before
/// the access.
pub(crate) fn object(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
) -> Checked<usize> {
    if block.blocks.len() > 1 {
        cluster_window::visit(block, w, lane, address)?;
    }

    let Some(i) = block.mbarriers.find(address) else {
        let address = block.shadow.local(address);
        let what =
            format!("there is no mbarrier at 0x{address:x}: mbarrier.init has not been executed");
        return Err(bad_mbarrier(
            block,
            w,
            lane,
            address,
            what,
            "initialise it, and put a barrier between",
        ));
    };

    let init = block.mbarriers.objects[i].init;
    let thread = w.index * 32 + lane as u32;
    let access = AccessProperties {
        pc: w.now.pc,
        thread,
        reads: true,
        writes: true,
        strong: true,
        ..AccessProperties::default()
    };
    let now = block.shadow.stamp(access, 15);
    if !block.shadow.races(&init, &now) {
        let uses = &mut block.mbarriers.objects[i].uses;
        match uses.iter_mut().find(|last| last.is_of_warp(&now)) {
            Some(last) => *last = now,
            None => uses.push(now),
        }
        return Ok(i);
    }

    let what = "an mbarrier is used, and nothing orders this after its mbarrier.init".to_string();
    let mut fault = bad_mbarrier(block, w, lane, address, what, "put a barrier between");
    fault.other = Some(block.earlier(init.pc, init.thread.into(), "initialised it"));
    Err(fault)
}

#[cold]
fn bad_mbarrier(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    what: String,
    instead: &'static str,
) -> Box<Fault> {
    let mut fault = block.fault(w, 1 << lane, Class::Mbarrier, what);
    fault.instead = instead;
    block.locate_shared(&mut fault, address);
    fault
}

fn expect_bytes(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    i: usize,
    bytes: i64,
) -> Checked<()> {
    check_phase(block, w, lane, i)?;
    let o = &mut block.mbarriers.objects[i];
    o.bytes += bytes;
    o.arrived = (w.now.pc, w.index * 32 + lane as u32);
    if o.bytes <= MOST_BYTES {
        return Ok(());
    }

    let address = o.address;
    let bytes = o.bytes;
    let what = format!("an mbarrier expects {bytes} bytes: at most {MOST_BYTES}");
    Err(bad_mbarrier(
        block,
        w,
        lane,
        address.into(),
        what,
        "split the copy over several phases",
    ))
}

/// Checks that the thread knows the current phase.
fn check_phase(block: &Block<'_, '_>, w: &Warp, lane: usize, i: usize) -> Checked<()> {
    let o = &block.mbarriers.objects[i];
    if known_phases(block, w, o) >= o.done {
        return Ok(());
    }

    let what = format!(
        "an arrival in phase {} of an mbarrier, while the thread cannot know that phase {} is complete",
        o.done,
        o.done.saturating_sub(1)
    );
    let instead = "the phase before may have had one arrival too many: count the arrivals, and wait before the next";
    let mut fault = bad_mbarrier(block, w, lane, o.address.into(), what, instead);
    let (pc, thread) = o.arrived;
    fault.other = Some(block.earlier(pc, thread, "arrived last"));
    Err(fault)
}

/// Returns the number of phases of an mbarrier that a warp knows to be complete.
fn known_phases(block: &Block<'_, '_>, w: &Warp, o: &MbarrierState) -> u32 {
    block
        .shadow
        .clocks
        .known(w.index, o.agent)
        .saturating_sub(o.base)
}

fn arrive_at(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    i: usize,
    count: u32,
) -> Checked<()> {
    check_phase(block, w, lane, i)?;
    let thread = w.index * 32 + lane as u32;
    let o = &mut block.mbarriers.objects[i];
    if count == 0 || count > o.pending {
        let address = o.address;
        let all = o.count;
        let left = o.pending;
        let bytes = o.bytes;
        let what = format!(
            "{count} arrivals at an mbarrier where {left} of {all} are left in phase {}, which lacks {bytes} bytes",
            o.done
        );
        return Err(bad_mbarrier(
            block,
            w,
            lane,
            address.into(),
            what,
            "initialise it with the number of arrivals",
        ));
    }

    o.pending -= count;
    o.arrived = (w.now.pc, thread);
    block.shadow.clocks.release(w.index, &mut o.gathered);
    end_phase(block, i).map_err(|late| too_late(block, w, thread, w.now.pc, i, late))
}

/// Executes an arrival by the copies of a thread. Only the copies are released, and no other
/// accesses of the thread.
pub(crate) fn copy_arrived(
    block: &mut Block<'_, '_>,
    i: usize,
    pc: u32,
    thread: u32,
    wrote: bool,
) -> Checked<()> {
    let o = &mut block.mbarriers.objects[i];
    if o.pending == 0 {
        let address = o.address;
        let done = o.done;
        let count = o.count;
        let what =
            format!("an arrival at an mbarrier where none of {count} is left in phase {done}");
        let warp = &block.warps[thread as usize / 32];
        let instead = "initialise it with the number of arrivals";
        let mut fault = bad_mbarrier(
            block,
            warp,
            thread as usize % 32,
            address.into(),
            what,
            instead,
        );
        fault.place = Some(block.place(pc));
        return Err(fault);
    }

    o.pending -= 1;
    o.arrived = (pc, thread);
    if wrote {
        o.copied.push((o.done, pc, thread));
    }

    end_phase(block, i).map_err(|late| {
        too_late(
            block,
            &block.warps[thread as usize / 32],
            thread,
            pc,
            i,
            late,
        )
    })
}

/// Adds the knowledge of a copying thread about phases to the current phase.
pub(crate) fn copy_knew(block: &mut Block<'_, '_>, i: usize, phases: &Clock) {
    join(&mut block.mbarriers.objects[i].gathered, phases);
}

/// Records bytes of a copy that have arrived.
pub(crate) fn bytes_came(
    block: &mut Block<'_, '_>,
    i: usize,
    bytes: u32,
    pc: u32,
    thread: u32,
) -> Checked<()> {
    let o = &mut block.mbarriers.objects[i];
    o.bytes -= i64::from(bytes);
    o.copied.push((o.done, pc, thread));
    end_phase(block, i).map_err(|late| {
        too_late(
            block,
            &block.warps[thread as usize / 32],
            thread,
            pc,
            i,
            late,
        )
    })
}

/// Ends the phase if it is complete. Returns a warp whose wait for the last phase may come too
/// late.
fn end_phase(block: &mut Block<'_, '_>, i: usize) -> Result<(), (u32, u32)> {
    let Mbarriers {
        objects,
        sleeps,
        awake,
        ..
    } = &mut block.mbarriers;
    let o = &mut objects[i];
    if o.pending > 0 || o.bytes != 0 {
        return Ok(());
    }

    let late = |(warp, count, _): &&(u32, u32, u32)| {
        o.gathered
            .get(*warp as usize)
            .is_none_or(|known| known < count)
    };
    if let Some((warp, _, pc)) = o.waits.iter().find(late) {
        return Err((*warp, *pc));
    }

    block.shadow.clocks.end_phase(o.agent, &mut o.gathered);
    o.last.clone_from(&o.gathered);
    o.done += 1;
    o.pending = o.count;
    o.waits.clear();
    for (warp, sleep) in sleeps.iter_mut().enumerate() {
        let Some(sleep) = sleep
            .as_mut()
            .filter(|s| s.address == o.address && s.woken.is_none())
        else {
            continue;
        };

        sleep.woken = Some(o.done);
        o.waits
            .push((warp as u32, block.shadow.clocks.count(warp), sleep.pc));
        awake.push(warp as u32);
    }

    Ok(())
}

#[cold]
fn too_late(
    block: &Block<'_, '_>,
    w: &Warp,
    thread: u32,
    pc: u32,
    i: usize,
    (waiter, wait): (u32, u32),
) -> Box<Fault> {
    let o = &block.mbarriers.objects[i];
    let what = format!(
        "phase {} of an mbarrier ends here, and nothing orders a wait for the phase before ahead of it: with another timing that wait would be for phase {}",
        o.done,
        o.done + 1
    );
    let mut fault = block.fault(w, 1 << (thread % 32), Class::PhaseAliased, what);
    fault.place = Some(block.place(pc));
    fault.instead = "who waits for a phase must arrive, or be waited for, before the next one ends";
    fault.other = Some(block.earlier(wait, waiter * 32, "waited"));
    block.locate_shared(&mut fault, o.address.into());
    fault
}

/// Executes `mbarrier.try_wait` or `.test_wait`.
///
/// The first failed wait returns false, so that a missing loop shows. A second `try_wait` for
/// the same phase sleeps until the phase is complete, or until nothing else can run in the
/// block.
pub(crate) fn wait(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    b: &MbarrierWait,
) -> Checked<WaitOutcome> {
    let mut addresses = [0; 32];
    cluster_window::shared_addresses(block, w, mask, &b.address, b.space, &mut addresses)?;
    lane_access::check_alignment(block, w, mask, &addresses, 8)?;
    let phases = match b.phase {
        Phase::Parity(slot) => words(block, w, mask, slot)?.map(u64::from),
        Phase::State(slot) => *w
            .regs
            .get::<u64>(slot, mask)
            .map_err(|u| block.undefined(w, u))?,
    };
    let first = mask.trailing_zeros() as usize;
    let key = (addresses[first], phases[first]);
    let same = lanes(mask).all(|l| (addresses[l], phases[l]) == key);
    let mut yes = 0;
    for l in lanes(if same { 1 << first } else { mask }) {
        yes |= u32::from(is_over(block, w, l, addresses[l], b.phase, phases[l])?) << l;
    }

    yes = if same && yes != 0 { mask } else { yes };
    let failed = &mut block.mbarriers.failed[w.index as usize];
    let again = failed.is_some_and(|wait| (wait.address, wait.phase) == key);
    *failed = (yes != mask).then_some(FailedWait {
        address: key.0,
        phase: key.1,
        pc: w.now.pc,
    });

    // Lanes that can run may be those that arrive, so the warp does not sleep with them.
    let may_sleep = !w.polling.is_impatient() && w.runnable().is_none();
    if yes != mask && again && same && b.suspends && may_sleep {
        let sleep = Waiter {
            address: key.0 as u32,
            pc: w.now.pc,
            woken: None,
        };
        block.mbarriers.sleeps[w.index as usize] = Some(sleep);
        return Ok(WaitOutcome::Suspended);
    }

    if let Some(p) = b.p {
        w.regs.set_pred(p, mask, yes);
    }

    Ok(if yes == mask {
        WaitOutcome::Answered
    } else {
        WaitOutcome::NotYet
    })
}

/// Returns true if a phase is complete. The warp is then ordered after it.
fn is_over(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    how: Phase,
    phase: u64,
) -> Checked<bool> {
    let i = object(block, w, lane, address)?;
    let sleep = block.mbarriers.sleeps[w.index as usize].take();
    let o = &block.mbarriers.objects[i];
    let done = sleep.and_then(|s| s.woken).unwrap_or(o.done);
    let parity = matches!(how, Phase::Parity(_));
    if parity && phase > 1 {
        return Err(bad_mbarrier(
            block,
            w,
            lane,
            address,
            format!("a wait for parity {phase}: it is 0 or 1"),
            "",
        ));
    }

    let over = if parity {
        u64::from(done & 1) != phase
    } else {
        u64::from(done) > phase
    };
    if !over {
        return Ok(false);
    }
    if parity && known_phases(block, w, o) + 2 <= done {
        return Err(aliased(block, w, lane, i, done));
    }

    let o = &mut block.mbarriers.objects[i];
    block.shadow.clocks.acquire(w.index, &o.last);
    o.copied.retain(|(of, ..)| *of >= done);
    if parity {
        o.waits.retain(|(warp, ..)| *warp != w.index);
        o.waits.push((
            w.index,
            block.shadow.clocks.count(w.index as usize),
            w.now.pc,
        ));
    }

    Ok(true)
}

#[cold]
fn aliased(block: &Block<'_, '_>, w: &Warp, lane: usize, i: usize, done: u32) -> Box<Fault> {
    let o = &block.mbarriers.objects[i];
    let what = format!(
        "a wait for phase {} of an mbarrier, while the thread cannot know that phase {} is complete: a moment ago an older phase of the same parity would have satisfied it",
        done - 1,
        done - 2
    );
    let mut fault = bad_mbarrier(block, w, lane, o.address.into(), what, "");
    fault.class = Class::PhaseAliased;
    fault.instead = "let each warp wait for every phase, or give it an mbarrier of which it does";
    let (pc, thread) = o.arrived;
    fault.other = Some(block.earlier(pc, thread, "arrived last"));
    fault
}

/// Executes `fence.proxy.async` or `fence.mbarrier_init`.
///
/// Both make the mbarriers that the warp has initialized visible to copies. The former also
/// covers all other accesses of the warp.
pub(crate) fn proxy_fence(block: &mut Block<'_, '_>, w: &Warp, mbarriers: bool) {
    if !mbarriers {
        block.shadow.clocks.proxy_fence(w.index);
    }
    let own = |o: &&mut MbarrierState| u32::from(o.init.thread) / 32 == w.index;
    block
        .mbarriers
        .objects
        .iter_mut()
        .filter(own)
        .for_each(|o| o.fenced = true);
}

/// Checks the mbarrier on which a copy completes. Blocks of a cluster need a fence, and in one
/// block an order is sufficient.
pub(crate) fn check_target(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
) -> Checked<()> {
    let i = object(block, w, lane, address)?;
    let o = &block.mbarriers.objects[i];
    if o.fenced || block.blocks.len() == 1 {
        return Ok(());
    }

    let what = "a copy completes on an mbarrier whose initialisation it may not see".to_string();
    let instead = "execute fence.mbarrier_init or fence.proxy.async between mbarrier.init and the barrier after it";
    let mut fault = bad_mbarrier(block, w, lane, address, what, instead);
    fault.other = Some(block.earlier(o.init.pc, o.init.thread.into(), "initialised it"));
    Err(fault)
}

/// Returns the index of the mbarrier at an address, and its agent.
pub(crate) fn agent(block: &Block<'_, '_>, address: u32) -> Option<(usize, usize)> {
    let i = block.mbarriers.find(address.into())?;
    Some((i, block.mbarriers.objects[i].agent))
}
