//! Instructions in which lanes of a warp exchange values or meet: `shfl`, `vote`, `match`, `redux`,
//! `elect`, `bar.warp.sync`.
//!
//! Lanes of one `.sync` instruction may name different masks. The lanes that name the same mask
//! form a group, and each group executes the instruction separately. A group must consist of
//! exactly the lanes that its mask names, except those that have exited. The masks of two groups
//! have no lane in common. From sm_70 on, lanes of a group may be at different instructions: [they
//! wait for each other](crate::machine::interp::lane_meetings), and come here together.

use crate::machine::predicates::pred;
use crate::machine::seeded_choice;
use crate::machine::state::block::{Block, Checked, show_lanes};
use crate::machine::state::warp::Warp;
use crate::module::code::{EXECUTING, Exchange, PredSource, Shuffle, ShuffleMode, Vote};
use crate::module::lane_mask::{lanes, set_bit};
use crate::{Class, Fault};

/// The operands of `match.sync`. `wide` selects 64-bit values.
pub(crate) struct Match {
    pub(crate) all: bool,
    pub(crate) d: u32,
    pub(crate) p: Option<u32>,
    pub(crate) a: u32,
    pub(crate) wide: bool,
}

/// The groups of lanes that name the same mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaskGroups {
    masks: [u32; 32],
    left: u32,
}

impl Iterator for MaskGroups {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let first = lanes(self.left).next()?;
        let group = same_mask(&self.masks, self.left, self.masks[first]);
        self.left &= !group;
        Some(group)
    }
}

/// Returns the lanes of `among` that name a mask.
fn same_mask(masks: &[u32; 32], among: u32, mask: u32) -> u32 {
    lanes(among).filter(|l| masks[*l] == mask).fold(0, set_bit)
}

/// Returns the groups of a `.sync` instruction whose masks are in register `named`.
pub(crate) fn groups(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    named: u32,
) -> Checked<MaskGroups> {
    if named == EXECUTING {
        return Ok(MaskGroups {
            masks: [mask; 32],
            left: mask,
        });
    }

    let masks = *w
        .regs
        .get::<u32>(named, mask)
        .map_err(|u| block.undefined(w, u))?;
    let groups = MaskGroups { masks, left: mask };
    for group in groups {
        check_group(block, w, mask, group, &masks)?;
    }

    Ok(groups)
}

fn check_group(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    group: u32,
    masks: &[u32; 32],
) -> Checked<()> {
    let named = masks[group.trailing_zeros() as usize];
    if group & !named != 0 {
        let who = show_lanes(group & !named);
        let what = format!("{who} executes this, but the mask 0x{named:08x} does not name it");
        return Err(bad_mask(block, w, group & !named, what));
    }

    if let Some(other) = lanes(mask & !group)
        .map(|l| masks[l])
        .find(|other| other & named != 0)
    {
        let others = same_mask(masks, mask, other);
        let what = format!(
            "{} name the mask 0x{named:08x} and {} the mask 0x{other:08x}, which overlap",
            show_lanes(group),
            show_lanes(others)
        );
        return Err(bad_mask(block, w, group | others, what));
    }

    let missing = named & w.present() & !group;
    if missing != 0 {
        let who = show_lanes(missing);
        let what = format!("the mask 0x{named:08x} names {who}, not among those that execute this");
        return Err(bad_mask(block, w, missing, what));
    }

    Ok(())
}

fn bad_mask(block: &Block<'_, '_>, w: &Warp, lanes: u32, what: String) -> Box<Fault> {
    let mut fault = block.fault(w, lanes, Class::InactiveLane, what);
    fault.instead = "all lanes that the mask names must execute it together, and no others";
    fault
}

/// Checks that all lanes of the warp execute an `.aligned` instruction.
pub(crate) fn check_whole(block: &Block<'_, '_>, w: &Warp, mask: u32) -> Checked<()> {
    if mask == u32::MAX {
        return Ok(());
    }

    let what = format!(
        "an .aligned instruction is executed by {} alone",
        show_lanes(mask)
    );
    let mut fault = block.fault(w, !mask, Class::InactiveLane, what);
    fault.instead = "all 32 lanes of the warp must execute it together";
    Err(fault)
}

/// Executes an exchange for the lanes of `mask`, which have met.
pub(crate) fn exchange(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    exchange: &Exchange,
) -> Checked<()> {
    match exchange {
        Exchange::WarpBarrier { mask: named } => warp_barrier(block, w, mask, *named),
        Exchange::Shuffle(s) => shuffle(block, w, mask, s),
        Exchange::Vote {
            mode,
            d,
            pred,
            mask: named,
        } => vote(block, w, mask, *mode, *d, *pred, *named),
        Exchange::Match {
            all,
            d,
            p,
            a,
            wide,
            mask: named,
        } => {
            let m = Match {
                all: *all,
                d: *d,
                p: *p,
                a: *a,
                wide: *wide,
            };
            matches(block, w, mask, &m, *named)
        }
        Exchange::Redux {
            f,
            d,
            a,
            mask: named,
        } => redux(block, w, mask, *f, *d, *a, *named),
        Exchange::Elect { d, p, mask: named } => elect(block, w, mask, *d, *p, *named),
    }
}

/// Executes `bar.warp.sync`.
fn warp_barrier(block: &mut Block<'_, '_>, w: &Warp, mask: u32, named: u32) -> Checked<()> {
    for group in groups(block, w, mask, named)? {
        block.shadow.clocks.sync_lanes(w.index, group, w.present());
    }
    Ok(())
}

/// Executes `shfl.sync`. A lane that reads from a lane with an uninitialized source has an
/// uninitialized destination. A postponed fault of the source stays postponed.
fn shuffle(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, s: &Shuffle) -> Checked<()> {
    let groups = groups(block, w, mask, s.mask)?;
    let read = |slot| {
        w.regs
            .get::<u32>(slot, mask)
            .copied()
            .map_err(|u| block.undefined(w, u))
    };
    let b = read(s.b)?;
    let c = read(s.c)?;
    let put_off = w.regs.put_off_of(s.a);
    let mut sources = [None; 32];
    let a = w.regs.w32.lanes[s.a as usize];
    let written = w.regs.w32.defined[s.a as usize];
    let mut out = a;
    let mut valid = 0;
    let mut lost = 0;
    for group in groups {
        for lane in lanes(group) {
            let (from, within) = source(s.mode, lane as u32, b[lane], c[lane]);
            valid |= u32::from(within) << lane;
            if group >> from & 1 == 0 && s.mask == EXECUTING {
                // The value from a lane that does not participate is undefined.
                lost |= 1 << lane;
                continue;
            }

            if group >> from & 1 == 0 {
                let what = format!("lane {lane} reads from lane {from}, which does not take part");
                return Err(bad_mask(block, w, 1 << lane, what));
            }

            out[lane] = a[from as usize];
            sources[lane] = Some(from);
            lost |= (!written >> from & 1) << lane;
        }
    }

    if let Some(d) = s.d {
        w.regs.set(d, mask, &out);
        for (from, fault) in put_off {
            let reads = |lane: &usize| sources[*lane].is_some_and(|source| from >> source & 1 != 0);
            let to = lanes(mask).filter(reads).fold(0, set_bit);
            lost &= !to;
            if to != 0 {
                w.regs.put_off(32, d, to, fault);
            }
        }
        w.lose(d, mask, lost);
    }

    if let Some(p) = s.p {
        w.regs.set_pred(p, mask, valid);
    }

    Ok(())
}

fn vote(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    mode: Vote,
    d: u32,
    source: PredSource,
    named: u32,
) -> Checked<()> {
    let groups = groups(block, w, mask, named)?;
    let holds = pred(&w.regs, source, mask).map_err(|u| block.undefined(w, u))?;
    let all = |b: bool| if b { u32::MAX } else { 0 };
    for group in groups {
        let holds = holds & group;
        match mode {
            Vote::Ballot => w.regs.set(d, group, &[holds; 32]),
            Vote::All => w.regs.set_pred(d, group, all(holds == group)),
            Vote::Any => w.regs.set_pred(d, group, all(holds != 0)),
            Vote::Uni => w.regs.set_pred(d, group, all(holds == 0 || holds == group)),
        }
    }

    Ok(())
}

fn matches(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    m: &Match,
    named: u32,
) -> Checked<()> {
    let groups = groups(block, w, mask, named)?;
    let values: [u64; 32] = if m.wide {
        *w.regs
            .get::<u64>(m.a, mask)
            .map_err(|u| block.undefined(w, u))?
    } else {
        w.regs
            .get::<u32>(m.a, mask)
            .map_err(|u| block.undefined(w, u))?
            .map(u64::from)
    };
    for group in groups {
        let equal = |lane: usize| {
            lanes(group)
                .filter(|l| values[*l] == values[lane])
                .fold(0, set_bit)
        };
        let out: [u32; 32] = std::array::from_fn(|lane| match (equal(lane), m.all) {
            (same, false) => same,
            (same, true) if same == group => group,
            _ => 0,
        });
        w.regs.set(m.d, group, &out);
        if let Some(p) = m.p {
            let whole = lanes(group).filter(|l| out[*l] == group).fold(0, set_bit);
            w.regs.set_pred(p, group, whole);
        }
    }

    Ok(())
}

fn redux(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    f: fn(u32, u32) -> u32,
    d: u32,
    a: u32,
    named: u32,
) -> Checked<()> {
    let groups = groups(block, w, mask, named)?;
    let values = *w
        .regs
        .get::<u32>(a, mask)
        .map_err(|u| block.undefined(w, u))?;
    for group in groups {
        let total = lanes(group).map(|l| values[l]).reduce(f).unwrap_or(0);
        w.regs.set(d, group, &[total; 32]);
    }

    Ok(())
}

/// Executes `elect.sync`. The leader depends on the group and the seed, so that it is the same
/// for the same mask but not always lane 0.
fn elect(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    d: Option<u32>,
    p: u32,
    named: u32,
) -> Checked<()> {
    for group in groups(block, w, mask, named)? {
        let seed = block.grid.schedule.seed ^ u64::from(group);
        let choice = seeded_choice::mix(seed) % u64::from(group.count_ones());
        let leader = lanes(group).nth(choice as usize).unwrap_or(0);
        if let Some(d) = d {
            w.regs.set(d, group, &[leader as u32; 32]);
        }
        w.regs.set_pred(p, group, 1 << leader);
    }
    Ok(())
}

/// Returns the source lane of a shuffle, and whether it is within the segment (PTX ISA,
/// "shfl.sync").
fn source(mode: ShuffleMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let b = b & 31;
    let clamp = c & 31;
    let segment = c >> 8 & 31;
    let most = lane & segment | clamp & !segment;
    let least = lane & segment;
    let (from, within) = match mode {
        ShuffleMode::Up => (
            lane.wrapping_sub(b),
            lane.wrapping_sub(b) as i32 >= most as i32,
        ),
        ShuffleMode::Down => (lane + b, lane + b <= most),
        ShuffleMode::Bfly => (lane ^ b, (lane ^ b) <= most),
        ShuffleMode::Idx => (least | b & !segment, (least | b & !segment) <= most),
    };
    if within { (from, true) } else { (lane, false) }
}
