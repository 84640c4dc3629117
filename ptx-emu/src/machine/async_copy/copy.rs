//! Asynchronous copies (manual, "cp.async", "cp.async.bulk").
//!
//! A copy reserves its destination from issue to completion, and no thread may access it in
//! between. A bulk copy completes some time slices later, chosen by the seed, or when all warps
//! wait. Its source is read only then. Its bytes count as written by its mbarrier, so a thread must
//! wait for the phase before it reads them.
//!
//! Copies that a thread makes with `cp.async` complete when the thread waits for their group, and
//! count as written by the thread at that moment. With `cp.async.mbarrier.arrive` they complete
//! some time slices later, and count as written by the mbarrier.

use std::rc::Rc;

use crate::Class;
use crate::machine::async_copy::copy_source::{check_size, record_source, source};
use crate::machine::async_copy::{bulk_store, tensor_box};
use crate::machine::memory::global::global_checks;
use crate::machine::memory::lane_access;
use crate::machine::memory::shared::{cluster_window, landing, shared_checks};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::pending::pending_copies::{PendingArrival, PendingCopy};
use crate::machine::state::pending::tensor_layout::TensorBox;
use crate::machine::state::warp::Warp;
use crate::machine::sync::mbarrier;
use crate::module::code::asynchronous::{AsyncStore, Reduction};
use crate::module::code::{Address, BulkCopy, InstructionSpace, ThreadCopy};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::last_access::{AccessProperties, Proxy};
use crate::sanitize::race::order::vector_clocks::Clock;
use crate::sanitize::race::shared::shared_shadow::CopyWriter;

/// Executes `cp.async.bulk` to shared memory.
pub(crate) fn bulk(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    b: &BulkCopy,
) -> Checked<()> {
    if b.source == InstructionSpace::Shared {
        return bulk_between(block, w, mask, b);
    }

    let mut to = [0; 32];
    let mut from = [0; 32];
    let mut barrier = [0; 32];
    lane_access::lane_addresses(block, w, mask, &b.to, &mut to)?;
    lane_access::lane_addresses(block, w, mask, &b.from, &mut from)?;
    lane_access::lane_addresses(block, w, mask, &b.barrier, &mut barrier)?;
    let bytes = lane_access::words(block, w, mask, b.bytes)?;
    lane_access::check_alignment(block, w, mask, &to, 16)?;
    lane_access::check_alignment(block, w, mask, &from, 16)?;
    let blocks = b
        .blocks
        .map(|slot| lane_access::words(block, w, mask, slot))
        .transpose()?;
    for l in lanes(mask) {
        // At the same place in each block, and counted by the mbarrier at the same place.
        let all = match &blocks {
            Some(blocks) => tensor_box::named_blocks(block, w, l, blocks[l] & 0xffff)?,
            None => vec![None],
        };
        for rank in all {
            let to = tensor_box::in_block(block, w, to[l], rank)?;
            let barrier = tensor_box::in_block(block, w, barrier[l], rank)?;
            issue(block, w, l, (to, from[l], bytes[l]), barrier)?;
        }
    }

    Ok(())
}

/// Executes `cp.async.bulk` from the shared memory of the block to shared memory of the
/// cluster.
fn bulk_between(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, b: &BulkCopy) -> Checked<()> {
    let mut to = [0; 32];
    let mut from = [0; 32];
    let mut barrier = [0; 32];
    cluster_window::shared_addresses(block, w, mask, &b.to, InstructionSpace::Cluster, &mut to)?;
    cluster_window::shared_addresses(block, w, mask, &b.from, InstructionSpace::Shared, &mut from)?;
    cluster_window::shared_addresses(
        block,
        w,
        mask,
        &b.barrier,
        InstructionSpace::Cluster,
        &mut barrier,
    )?;
    let bytes = lane_access::words(block, w, mask, b.bytes)?;
    lane_access::check_alignment(block, w, mask, &to, 16)?;
    lane_access::check_alignment(block, w, mask, &from, 16)?;
    for l in lanes(mask) {
        check_size(block, w, l, bytes[l])?;
        mbarrier::check_target(block, w, l, barrier[l])?;
        check_beside(block, w, l, (to[l], barrier[l]), "cp.async.bulk")?;
        bulk_store::read_beside(block, w, l, w.now.pc, from[l], bytes[l])?;
        claim(block, w, l, to[l], bytes[l], Proxy::Async)?;
        if bytes[l] == 0 {
            continue;
        }

        let offset = |at: u64| {
            (from[l] + at - u64::from(crate::module::address_space::SHARED_BASE)) as usize
        };
        let words = (0..u64::from(bytes[l]))
            .step_by(4)
            .map(|at| block.shared.read(offset(at), 4) as u32);
        let words = words.collect();
        let shared = Some((from[l], bulk_store::version(block, from[l], bytes[l])));
        let to = to[l] as u32;
        let barrier = barrier[l] as u32;
        let bytes = bytes[l];
        let arrival = PendingArrival {
            to,
            bytes,
            barrier,
            words,
            shared,
            ..PendingArrival::default()
        };
        pend(block, w, l, arrival);
    }

    Ok(())
}

/// Checks that a store to another block completes on an mbarrier in the same block.
fn check_beside(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (to, barrier): (u64, u64),
    name: &str,
) -> Checked<()> {
    if block.shadow.rank(to) == block.shadow.rank(barrier) {
        return Ok(());
    }
    let what = format!("{name} to another block than that of its mbarrier");
    let mut fault = block.fault(w, 1 << lane, Class::Mbarrier, what);
    fault.instead = "name an mbarrier of the block that is stored to";
    Err(fault)
}

/// Executes `st.async` and `red.async`. They land like a copy, with the current values.
pub(crate) fn store_async(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    s: &AsyncStore,
) -> Checked<()> {
    let mut to = [0; 32];
    let mut barrier = [0; 32];
    cluster_window::shared_addresses(block, w, mask, &s.to, s.space, &mut to)?;
    cluster_window::shared_addresses(block, w, mask, &s.barrier, s.space, &mut barrier)?;
    let bytes = s.values.iter().map(|value| value.bits / 8).sum();
    lane_access::check_alignment(block, w, mask, &to, bytes)?;
    lane_access::check_alignment(block, w, mask, &barrier, 8)?;
    let mut words = vec![Vec::new(); 32];
    for value in &s.values {
        let values = lane_access::take(block, w, *value, mask)?;
        for l in lanes(mask) {
            let halves = [values[l] as u32, (values[l] >> 32) as u32];
            words[l].extend(&halves[..value.bits as usize / 32]);
        }
    }

    lanes(mask).try_for_each(|l| {
        let words = std::mem::take(&mut words[l]);
        issue_words(block, w, l, (to[l], barrier[l]), words, s.reduction)
    })
}

/// Issues a store of words, whose mbarrier must be in the same block.
fn issue_words(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (to, barrier): (u64, u64),
    words: Vec<u32>,
    reduction: Option<Reduction>,
) -> Checked<()> {
    mbarrier::object(block, w, lane, barrier)?;
    let bytes = 4 * words.len() as u32;
    if reduction.is_none() {
        claim(block, w, lane, to, bytes, Proxy::Generic)?;
    }

    let name = if reduction.is_some() {
        "red.async"
    } else {
        "st.async"
    };
    check_beside(block, w, lane, (to, barrier), name)?;
    if reduction.is_some() {
        claim_reduction(block, w, lane, (to, barrier as u32), bytes)?;
    }

    let to = to as u32;
    let barrier = barrier as u32;
    let arrival = PendingArrival {
        to,
        bytes,
        barrier,
        words,
        reduction,
        ..PendingArrival::default()
    };
    pend(block, w, lane, arrival);
    Ok(())
}

/// Checks that a reduction may change its destination, and records it as a strong write of the
/// mbarrier.
///
/// It follows the rules of an atomic by the thread. Other reductions and atomics may access the
/// destination concurrently, and a thread that waits may read the result.
fn claim_reduction(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (to, barrier): (u64, u32),
    bytes: u32,
) -> Checked<()> {
    if block.shadow.rank(to) == w.rank {
        let what = "red.async to shared memory of the thread's own block".to_string();
        let mut fault = block.fault(w, 1 << lane, Class::Mbarrier, what);
        fault.instead = "use red.shared::cta, or name another block of the cluster by mapa";
        return Err(fault);
    }

    let access = AccessProperties {
        pc: w.now.pc,
        reads: true,
        writes: true,
        strong: true,
        ..AccessProperties::default()
    };
    let offset = shared_checks::touch(block, w, lane, to, bytes, access)?;
    if let Some((_, agent)) = mbarrier::agent(block, barrier) {
        let value = block.shared.read(offset, bytes);
        landing::land_strong(block, to as u32, value, bytes, agent, w.now.pc);
    }

    Ok(())
}

/// Queues a copy of a lane and marks its destination as covered.
fn pend(block: &mut Block<'_, '_>, w: &Warp, lane: usize, arrival: PendingArrival) {
    let due = block
        .pending
        .copies
        .later(block.grid.schedule.seed ^ u64::from(block.blocks[0][0]));
    let pc = w.now.pc;
    let thread = w.index * 32 + lane as u32;
    let mut phases = Clock::new();
    block.shadow.clocks.release_phases(w.index, &mut phases);
    if arrival.reduction.is_none() {
        block.shadow.cover(arrival.to, arrival.bytes, true);
    }

    block.pending.copies.arrivals.push(PendingArrival {
        pc,
        thread,
        due,
        phases,
        ..arrival
    });
}

fn issue(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (to, from, bytes): (u64, u64, u32),
    barrier: u64,
) -> Checked<()> {
    check_size(block, w, lane, bytes)?;
    mbarrier::check_target(block, w, lane, barrier)?;
    claim(block, w, lane, to, bytes, Proxy::Async)?;
    let a = source(block, w, lane, from, bytes)?;
    record_source(block, w, lane, a, from, bytes)?;
    if bytes > 0 {
        let to = to as u32;
        let barrier = barrier as u32;
        pend(
            block,
            w,
            lane,
            PendingArrival {
                to,
                from,
                bytes,
                barrier,
                ..PendingArrival::default()
            },
        );
    }

    Ok(())
}

/// Issues the copy of a box to the arena. Its source was checked.
pub(crate) fn issue_box(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    (to, barrier): (u64, u64),
    boxed: Rc<TensorBox>,
) -> Checked<()> {
    let bytes = boxed.map.box_bytes();
    mbarrier::check_target(block, w, lane, barrier)?;
    claim(block, w, lane, to, bytes, Proxy::Async)?;
    let to = to as u32;
    let barrier = barrier as u32;
    let arrival = PendingArrival {
        to,
        bytes,
        barrier,
        boxed: Some(boxed),
        ..PendingArrival::default()
    };
    pend(block, w, lane, arrival);
    Ok(())
}

/// Executes `cp.async`.
pub(crate) fn copy(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    c: &ThreadCopy,
) -> Checked<()> {
    let mut to = [0; 32];
    let mut from = [0; 32];
    cluster_window::shared_addresses(block, w, mask, &c.to, InstructionSpace::Shared, &mut to)?;
    lane_access::lane_addresses(block, w, mask, &c.from, &mut from)?;
    lane_access::check_alignment(block, w, mask, &to, c.bytes)?;
    lane_access::check_alignment(block, w, mask, &from, c.bytes)?;
    let sizes = c.source_bytes.map_or(Ok([c.bytes; 32]), |slot| {
        lane_access::words(block, w, mask, slot)
    })?;
    for l in lanes(mask) {
        let source_bytes = sizes[l];
        if source_bytes > c.bytes {
            let what = format!(
                "cp.async reads {source_bytes} bytes where it copies {}",
                c.bytes
            );
            return Err(block.fault(w, 1 << l, Class::OutOfBounds, what));
        }

        claim(block, w, l, to[l], c.bytes, Proxy::Generic)?;
        if source_bytes > 0 {
            let a = source(block, w, l, from[l], source_bytes)?;
            record_source(block, w, l, a, from[l], source_bytes)?;
        }

        block.pending.copies.issued += 1;
        let own = PendingCopy {
            pc: w.now.pc,
            thread: w.index * 32 + l as u32,
            to: to[l] as u32,
            from: from[l],
            bytes: c.bytes,
            source_bytes,
            group: block.pending.copies.groups[w.index as usize][l],
            number: block.pending.copies.issued,
        };
        block.pending.copies.own[w.index as usize].push(own);
        block.shadow.cover(own.to, own.bytes, true);
    }

    Ok(())
}

/// Executes `cp.async.wait_group`, after which each lane has at most `keep` pending groups, or
/// `cp.async.wait_all`.
pub(crate) fn copy_wait(block: &mut Block<'_, '_>, w: &Warp, mask: u32, keep: Option<u32>) {
    let groups = block.pending.copies.groups[w.index as usize];
    land_own(block, w.index, None, |c| {
        let lane = c.thread as usize % 32;
        mask >> lane & 1 != 0 && keep.is_none_or(|keep| c.group + keep < groups[lane])
    });
}

/// Completes the `cp.async` copies of a warp for which `which` is true. Returns true if there
/// were any.
fn land_own(
    block: &mut Block<'_, '_>,
    warp: u32,
    agent: Option<usize>,
    which: impl Fn(&PendingCopy) -> bool,
) -> bool {
    let mut own = std::mem::take(&mut block.pending.copies.own[warp as usize]);
    let before = own.len();
    own.retain(|c| {
        let arrives = which(c);
        if arrives {
            block.shadow.cover(c.to, c.bytes, false);
            let by = agent.map_or(CopyWriter::Thread(c.thread), CopyWriter::Agent);
            landing::land(
                block,
                c.to,
                block.grid.words(c.from, c.bytes, c.source_bytes),
                by,
                c.pc,
            );
        }
        !arrives
    });
    let landed = own.len() < before;
    block.pending.copies.own[warp as usize] = own;
    landed
}

/// Executes `cp.async.mbarrier.arrive`. `more` is set without `.noinc`.
pub(crate) fn copy_arrives(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    space: InstructionSpace,
    a: Address,
    more: bool,
) -> Checked<()> {
    let mut addresses = [0; 32];
    cluster_window::shared_addresses(block, w, mask, &a, space, &mut addresses)?;
    lane_access::check_alignment(block, w, mask, &addresses, 8)?;
    for l in lanes(mask) {
        let i = mbarrier::object(block, w, l, addresses[l])?;
        if more {
            mbarrier::expect_more(block, w, l, i)?;
        }

        let due = block
            .pending
            .copies
            .later(block.grid.schedule.seed ^ u64::from(block.blocks[0][0]));
        let due = due.max(block.pending.copies.last_arrival(w.index * 32 + l as u32));
        let pc = w.now.pc;
        let thread = w.index * 32 + l as u32;
        let barrier = addresses[l] as u32;
        let before = Some(block.pending.copies.issued);
        let arrival = PendingArrival {
            pc,
            thread,
            barrier,
            due,
            before,
            ..PendingArrival::default()
        };
        block.pending.copies.arrivals.push(arrival);
    }

    Ok(())
}

/// Checks that a copy issued by a thread may write its destination.
fn claim(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    to: u64,
    bytes: u32,
    proxy: Proxy,
) -> Checked<()> {
    let thread = w.index * 32 + lane as u32;
    let access = AccessProperties {
        pc: w.now.pc,
        thread,
        writes: true,
        proxy,
        ..AccessProperties::default()
    };
    if !block.shadow.may_claim(to, bytes, access) {
        let places = (0..bytes.into()).step_by(4).map(|at| to.wrapping_add(at));
        places
            .into_iter()
            .try_for_each(|place| claim_word(block, w, lane, place, access))?;
    }

    if bytes > 0 {
        block.shadow.claim(to as u32, bytes, access);
    }

    Ok(())
}

/// Checks that a copy may write one word, and returns a fault that describes the conflict.
fn claim_word(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    place: u64,
    access: AccessProperties,
) -> Checked<()> {
    let unfenced = match access.proxy {
        Proxy::Async => block.shadow.unfenced(place, w.index),
        Proxy::Generic => None,
    };
    shared_checks::touch(block, w, lane, place, 4, access)?;
    unfenced.map_or(Ok(()), |earlier| {
        Err(bulk_store::overtakes(block, w, lane, place, earlier))
    })
}

/// Executes `cp.async.bulk.prefetch.L2`, which only checks that the bytes exist.
pub(crate) fn bulk_prefetch(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    from: Address,
    bytes: u32,
) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_access::lane_addresses(block, w, mask, &from, &mut addresses)?;
    lane_access::check_alignment(block, w, mask, &addresses, 16)?;
    let bytes = lane_access::words(block, w, mask, bytes)?;
    lanes(mask).try_for_each(|l| {
        check_size(block, w, l, bytes[l])?;
        global_checks::lane_allocation(block, w, l, addresses[l], bytes[l]).map(|_| ())
    })
}

/// Advances the time by a turn and completes the copies that are due. Returns true if there
/// were any.
pub(crate) fn land_due(block: &mut Block<'_, '_>) -> Checked<bool> {
    block.pending.copies.turns += 1;
    bulk_store::store_due(block);
    let mut landed = false;
    while let Some(i) = block
        .pending
        .copies
        .arrivals
        .iter()
        .position(|f| f.due <= block.pending.copies.turns)
    {
        land(block, i)?;
        landed = true;
    }

    Ok(landed)
}

/// Completes the next copy, because no warp can run without it. Returns true if there was one.
pub(crate) fn land_next(block: &mut Block<'_, '_>) -> Checked<bool> {
    let arrivals = block.pending.copies.arrivals.iter().enumerate();
    match arrivals.min_by_key(|(_, f)| f.due).map(|(i, _)| i) {
        Some(i) => land(block, i).map(|()| true),
        None => Ok(false),
    }
}

fn land(block: &mut Block<'_, '_>, i: usize) -> Checked<()> {
    let f = block.pending.copies.arrivals.remove(i);

    // It existed at the issue, and cannot be invalidated while a copy is pending.
    let Some((target, agent)) = mbarrier::agent(block, f.barrier) else {
        return Ok(());
    };

    if let Some(before) = f.before {
        let mine = |c: &PendingCopy| c.thread == f.thread && c.number < before;
        let landed = land_own(block, f.thread / 32, Some(agent), mine);
        return mbarrier::copy_arrived(block, target, f.pc, f.thread, landed);
    }

    if let Some(reduction) = f.reduction {
        landing::reduce(block, f.to, &f.words, reduction, agent, f.pc);
        mbarrier::copy_knew(block, target, &f.phases);
        return mbarrier::bytes_came(block, target, f.bytes, f.pc, f.thread);
    }

    if let Some((from, version)) = f.shared
        && bulk_store::version(block, from, f.bytes) != version
    {
        let warp = &block.warps[f.thread as usize / 32];
        return Err(bulk_store::written_meanwhile(
            block,
            warp,
            f.thread as usize % 32,
            f.pc,
            from,
        ));
    }

    block.shadow.cover(f.to, f.bytes, false);
    match &f.boxed {
        None if !f.words.is_empty() => {
            landing::land(
                block,
                f.to,
                f.words.iter().copied(),
                CopyWriter::Agent(agent),
                f.pc,
            );
        }
        None => landing::land(
            block,
            f.to,
            block.grid.words(f.from, f.bytes, f.bytes),
            CopyWriter::Agent(agent),
            f.pc,
        ),
        Some(boxed) => {
            let words = tensor_box::box_words(block, boxed, f.to.into());
            landing::land(
                block,
                f.to,
                words.into_iter(),
                CopyWriter::Agent(agent),
                f.pc,
            );
            block.shadow.set_pattern(f.to, f.bytes, boxed.map.swizzle);
        }
    }

    mbarrier::copy_knew(block, target, &f.phases);
    mbarrier::bytes_came(block, target, f.bytes, f.pc, f.thread)
}
