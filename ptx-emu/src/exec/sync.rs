//! Instructions in which lanes of a warp meet: `shfl`, `vote`, `match`, `redux`, `elect`.
//!
//! The lanes that execute a `.sync` instruction must be exactly those its mask names, save those that have
//! exited: lanes elsewhere would wait for ever on this machine, or give a wrong value on others.

use super::block::{Checked, Worker, show_lanes};
use super::step::pred;
use super::warp::Warp;
use super::{lanes, set_bit};
use crate::code::{PredSource, Shuffle, ShuffleMode, Vote};
use crate::{Class, Fault};

/// What `match.sync` is decoded to: all, destination, predicate, source, 64 bits, mask.
type MatchParts = (bool, u32, Option<u32>, u32, bool, u32);

impl Worker<'_, '_> {
    /// Checks the mask of a `.sync` instruction that `mask` lanes execute; gives the lanes that take part.
    pub(crate) fn check_mask(&self, w: &Warp, mask: u32, named: u32) -> Checked<u32> {
        let masks = w.regs.get::<u32>(named, mask).map_err(|u| self.undefined(w, u))?;
        let first = masks[mask.trailing_zeros() as usize];
        if let Some(lane) = lanes(mask).find(|l| masks[*l] != first) {
            let what = format!("lanes name different masks, 0x{first:08x} and 0x{:08x}", masks[lane]);
            return Err(self.bad_mask(w, 1 << lane, what));
        }
        if mask & !first != 0 {
            let what = format!(
                "{} executes this, but the mask 0x{first:08x} does not name it",
                show_lanes(mask & !first)
            );
            return Err(self.bad_mask(w, mask & !first, what));
        }
        let missing = first & w.present() & !mask;
        if missing != 0 {
            let what = format!(
                "the mask 0x{first:08x} names {}, not among those that execute this",
                show_lanes(missing)
            );
            return Err(self.bad_mask(w, missing, what));
        }
        Ok(mask)
    }

    fn bad_mask(&self, w: &Warp, lanes: u32, what: String) -> Box<Fault> {
        let mut fault = self.fault(w, lanes, Class::InactiveLane, what);
        fault.instead = "all lanes that the mask names must execute it together, and no others";
        fault
    }

    /// Checks that all 32 lanes execute an `.aligned` instruction of the warp.
    pub(crate) fn check_whole(&self, w: &Warp, mask: u32) -> Checked<()> {
        if mask == u32::MAX {
            return Ok(());
        }
        let what = format!("an .aligned instruction is executed by {} alone", show_lanes(mask));
        let mut fault = self.fault(w, !mask, Class::InactiveLane, what);
        fault.instead = "all 32 lanes of the warp must execute it together";
        Err(fault)
    }

    pub(crate) fn shuffle(&mut self, w: &mut Warp, mask: u32, s: &Shuffle) -> Checked<()> {
        self.check_mask(w, mask, s.mask)?;
        let read = |slot| w.regs.get::<u32>(slot, mask).copied().map_err(|u| self.undefined(w, u));
        let (a, b, c) = (read(s.a)?, read(s.b)?, read(s.c)?);
        let (mut out, mut valid) = (a, 0);
        for lane in lanes(mask) {
            let (from, within) = source(s.mode, lane as u32, b[lane], c[lane]);
            if mask >> from & 1 == 0 {
                let what = format!("lane {lane} reads from lane {from}, which does not execute this");
                return Err(self.bad_mask(w, 1 << lane, what));
            }
            out[lane] = a[from as usize];
            valid |= u32::from(within) << lane;
        }
        if let Some(d) = s.d {
            w.regs.set(d, mask, &out);
        }
        if let Some(p) = s.p {
            w.regs.set_pred(p, mask, valid);
        }
        Ok(())
    }

    pub(crate) fn vote(
        &mut self,
        w: &mut Warp,
        mask: u32,
        mode: Vote,
        d: u32,
        source: PredSource,
        named: u32,
    ) -> Checked<()> {
        self.check_mask(w, mask, named)?;
        let holds = pred(&w.regs, source, mask).map_err(|u| self.undefined(w, u))?;
        let all = |b: bool| if b { u32::MAX } else { 0 };
        match mode {
            Vote::Ballot => w.regs.set(d, mask, &[holds; 32]),
            Vote::All => w.regs.set_pred(d, mask, all(holds == mask)),
            Vote::Any => w.regs.set_pred(d, mask, all(holds != 0)),
            Vote::Uni => w.regs.set_pred(d, mask, all(holds == 0 || holds == mask)),
        }
        Ok(())
    }

    pub(crate) fn matches(&mut self, w: &mut Warp, mask: u32, parts: MatchParts) -> Checked<()> {
        let (all, d, p, a, wide, named) = parts;
        self.check_mask(w, mask, named)?;
        let values: [u64; 32] = match wide {
            true => *w.regs.get::<u64>(a, mask).map_err(|u| self.undefined(w, u))?,
            false => w.regs.get::<u32>(a, mask).map_err(|u| self.undefined(w, u))?.map(u64::from),
        };
        let equal = |lane: usize| lanes(mask).filter(|l| values[*l] == values[lane]).fold(0, set_bit);
        let out: [u32; 32] = std::array::from_fn(|lane| match (equal(lane), all) {
            (same, false) => same,
            (same, true) if same == mask => mask,
            _ => 0,
        });
        w.regs.set(d, mask, &out);
        if let Some(p) = p {
            let whole = lanes(mask).filter(|l| out[*l] == mask).fold(0, set_bit);
            w.regs.set_pred(p, mask, whole);
        }
        Ok(())
    }

    pub(crate) fn redux(
        &mut self,
        w: &mut Warp,
        mask: u32,
        f: fn(u32, u32) -> u32,
        d: u32,
        a: u32,
        named: u32,
    ) -> Checked<()> {
        self.check_mask(w, mask, named)?;
        let values = w.regs.get::<u32>(a, mask).map_err(|u| self.undefined(w, u))?;
        let total = lanes(mask).map(|l| values[l]).reduce(f).unwrap_or(0);
        w.regs.set(d, mask, &[total; 32]);
        Ok(())
    }

    /// The leader follows from the mask and the seed: the same for the same mask, and not always lane 0.
    pub(crate) fn elect(
        &mut self,
        w: &mut Warp,
        mask: u32,
        d: Option<u32>,
        p: u32,
        named: u32,
    ) -> Checked<()> {
        self.check_mask(w, mask, named)?;
        let choice =
            super::grid::mix(self.grid.schedule.seed ^ u64::from(mask)) % u64::from(mask.count_ones());
        let leader = lanes(mask).nth(choice as usize).unwrap_or(0);
        if let Some(d) = d {
            w.regs.set(d, mask, &[leader as u32; 32]);
        }
        w.regs.set_pred(p, mask, 1 << leader);
        Ok(())
    }
}

/// The lane a shuffle reads, and whether it lies within the segment (manual, "shfl.sync").
fn source(mode: ShuffleMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let most = lane & segment | clamp & !segment;
    let least = lane & segment;
    let (from, within) = match mode {
        ShuffleMode::Up => (lane.wrapping_sub(b), lane.wrapping_sub(b) as i32 >= most as i32),
        ShuffleMode::Down => (lane + b, lane + b <= most),
        ShuffleMode::Bfly => (lane ^ b, (lane ^ b) <= most),
        ShuffleMode::Idx => (least | b & !segment, (least | b & !segment) <= most),
    };
    if within { (from, true) } else { (lane, false) }
}
