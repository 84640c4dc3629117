//! Runs the blocks of one cluster, mostly one block: their warps take turns until all have exited.
//!
//! A turn ends when the warp reaches a barrier, exits, or has executed its share of instructions. The schedule chooses
//! which warp runs next. It may choose any, because nothing orders warps between barriers.

use std::cell::RefCell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::barrier::Barriers;
use super::cluster::Cluster;
use super::copy::Copies;
use super::grid::{Grid, mix};
use super::lanes;
use super::mbarrier::Mbarriers;
use super::observer::Observer;
use super::regs::{Bank, Undefined};
use super::shared::Shared;
use super::store::BulkStores;
use super::trace::Recorder;
use super::warp::{Identity, Warp};
use super::wgmma::Products;
use crate::fault::{AllocationInfo, OtherPlace, SourcePlace};
use crate::launch::{Order, Stats, Trace};
use crate::{Class, Fault};

/// Instructions a warp may execute before another gets its turn, so that a warp may wait for another.
const TURN: u64 = 10_000;

/// Turns in a row that end in a failed wait, after which the block is considered stuck.
const MOST_FAILED_WAITS: u32 = 1 << 16;

/// Blocks of one thread that may sleep at a time; each has a part of its stack.
const MOST_ASLEEP: u32 = 256;

/// Rounds of turns between looks at the clock.
const LOOKS: u64 = 8;

/// How long a host thread backs off while its block waits for blocks of other threads.
const BACK_OFF: std::time::Duration = std::time::Duration::from_micros(20);

/// Number of multiprocessors in `%nsmid`.
const SMS: u32 = 4;

thread_local! {
    /// Warps of finished launches: the registers of a large kernel take longer to allocate than to use.
    static SPARE: RefCell<Vec<Warp>> = const { RefCell::new(Vec::new()) };
}

/// A warp to fit to a kernel.
fn spare() -> Warp {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// What a result is when the launch must end.
pub(crate) type Checked<T> = Result<T, Box<Fault>>;

/// A host thread and the cluster of blocks that it runs.
///
/// Its blocks share the clocks and one arena of shared memory, in which each has its part.
pub(crate) struct Worker<'g, 'a> {
    pub(crate) grid: &'g Grid<'a>,
    /// The blocks of the cluster, by rank.
    pub(crate) blocks: Vec<[u32; 3]>,
    pub(crate) cluster: Cluster,
    pub(crate) products: Products,
    pub(crate) stores: BulkStores,
    pub(crate) warps: Vec<Warp>,
    pub(crate) shared: Shared,
    pub(crate) barriers: Barriers,
    pub(crate) mbarriers: Mbarriers,
    pub(crate) copies: Copies,
    /// For each memory instruction, the number of the allocation it last used.
    pub(crate) cache: Vec<u32>,
    pub(crate) stats: Stats,
    /// The record of a traced launch.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// What is counted and followed, if anything is.
    pub(crate) observer: Option<Box<Observer>>,
    /// Blocks that sleep while this one runs on their thread.
    depth: u32,
    fuel: u64,
}

/// Why a warp's turn is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It has executed its share of instructions.
    Turn,
    /// It waits at a barrier.
    Waits,
    /// Its wait failed. It tries again after the others had their turn.
    Yields,
    /// It executed `nanosleep`, as a warp does that polls for another block.
    Sleeps,
    /// All its lanes have exited.
    Ended,
}

impl<'g, 'a> Worker<'g, 'a> {
    pub(crate) fn new(grid: &'g Grid<'a>) -> Self {
        let threads: u32 = grid.launch.block.iter().product();
        let blocks = grid.cluster.iter().product::<u32>();
        let count = threads.div_ceil(32) * blocks;
        let id = identity(grid, [0; 3]);
        Worker {
            grid,
            blocks: vec![[0; 3]; blocks as usize],
            cluster: Cluster::default(),
            products: Products::default(),
            stores: BulkStores::default(),
            warps: (0..count).map(|i| spare().fit(i, grid.code, &grid.variables, &id)).collect(),
            shared: Shared::new(&grid.code.shared, grid.launch.dynamic_shared, count, blocks),
            barriers: Barriers::new(threads, blocks),
            mbarriers: Mbarriers::default(),
            copies: Copies::default(),
            cache: vec![0; grid.code.sites as usize],
            stats: Stats::default(),
            recorder: (grid.trace == Trace::On).then(Box::default),
            observer: Observer::of(grid),
            depth: 0,
            fuel: 0,
        }
    }

    /// The statistics of this worker.
    pub(crate) fn finish(mut self) -> Stats {
        let place = |pc: u32| self.grid.code.places[pc as usize].clone();
        let find = |base| self.grid.table.reach(base).map(|a| a.info());
        let record = self.recorder.take().map(|r| r.finish(&self.grid.launch.kernel.name, place, find));
        SPARE.with_borrow_mut(|spare| spare.append(&mut self.warps));
        if let Some(own) = self.observer.take() {
            let mut all = self.grid.observed.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *all {
                Some(all) => all.add(*own),
                None => *all = Some(own),
            }
        }
        Stats { accesses: record, ..self.stats }
    }

    /// Runs the cluster that begins with a block to its end.
    pub(crate) fn run(&mut self, first: [u32; 3]) -> Checked<()> {
        let [x, y, _] = self.grid.cluster;
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            let r = rank as u32;
            *block = [first[0] + r % x, first[1] + r / x % y, first[2] + r / (x * y)];
        }
        self.fuel = self.grid.schedule.fuel;
        self.shared.start();
        self.barriers.start();
        self.mbarriers.start(self.warps.len());
        self.copies.start(self.warps.len());
        self.cluster.start(self.warps.len(), self.blocks.len());
        self.products.start(self.warps.len());
        self.stores.start();
        if let Some(recorder) = &mut self.recorder {
            recorder.start();
        }
        for w in &mut self.warps {
            w.start(self.grid.code, &identity(self.grid, self.blocks[w.rank as usize]));
        }
        self.run_warps()
    }

    /// Gives warps their turns until all have exited, or none can go on.
    fn run_warps(&mut self) -> Checked<()> {
        let mut ready: Vec<u32> = (0..self.warps.len() as u32).collect();
        let (mut round, mut failed_waits) = (0, 0);
        while !ready.is_empty() && failed_waits < MOST_FAILED_WAITS {
            if self.grid.stop.load(Relaxed) {
                // Another block has found a fault, which is the one to report.
                return Ok(());
            }
            if round % LOOKS == 0 {
                self.in_time()?;
            }
            self.order(&mut ready, round);
            round += 1;
            let mut asleep = true;
            for w in std::mem::take(&mut ready) {
                failed_waits = if self.land_due()? { 0 } else { failed_waits };
                let pause = self.turn(w as usize)?;
                asleep &= pause == Pause::Sleeps;
                match pause {
                    Pause::Yields => {
                        failed_waits += 1;
                        ready.push(w);
                    }
                    pause => {
                        if pause == Pause::Ended {
                            self.ended(w)?;
                        }
                        failed_waits = 0;
                        ready.extend(matches!(pause, Pause::Turn | Pause::Sleeps).then_some(w));
                    }
                }
            }
            self.give_way(asleep && !ready.is_empty());
            ready.extend(self.barriers.released());
            self.mbarriers.awake(&mut ready);
            self.cluster.awake(&mut ready);
            while ready.is_empty() && self.land_next()? {
                self.mbarriers.awake(&mut ready);
            }
        }
        self.stuck()
    }

    /// Lets other blocks run, for which this one may wait.
    fn give_way(&mut self, asleep: bool) {
        if self.grid.cooperative {
            std::thread::yield_now();
        }
        if asleep && !self.run_another_block() {
            // Another thread may run the block that it waits for.
            std::thread::sleep(BACK_OFF);
        }
    }

    /// Runs another block to its end while this one sleeps, if one is left; returns whether there was one.
    fn run_another_block(&mut self) -> bool {
        if self.depth >= MOST_ASLEEP {
            return false;
        }
        let Some(turn) = self.grid.take() else { return false };
        let mut other = Worker::new(self.grid);
        other.depth = self.depth + 1;
        let own = self.recorder.as_mut().map(|recorder| recorder.suspend());
        std::mem::swap(&mut self.recorder, &mut other.recorder);
        self.grid.run_block(&mut other, turn);
        std::mem::swap(&mut self.recorder, &mut other.recorder);
        if let (Some(recorder), Some(own)) = (&mut self.recorder, own) {
            recorder.resume(own);
        }
        other.recorder = None;
        self.stats.add(&other.finish());
        true
    }

    /// Orders the warps that are ready, as the schedule says.
    fn order(&self, ready: &mut [u32], round: u64) {
        ready.sort_unstable();
        match self.grid.schedule.order {
            Order::InOrder => {}
            Order::Reversed => ready.reverse(),
            Order::Shuffled => {
                let seed = mix(self.grid.schedule.seed ^ round << 32) ^ u64::from(self.blocks[0][0]);
                ready.sort_by_key(|w| mix(seed ^ u64::from(*w)));
            }
        }
    }

    fn turn(&mut self, index: usize) -> Checked<Pause> {
        let mut warp = std::mem::take(&mut self.warps[index]);
        let turn = TURN.min(self.fuel + 1);
        let before = warp.executed;
        let result = match self.observer.is_some() {
            true => self.execute::<true>(&mut warp, before + turn),
            false => self.execute::<false>(&mut warp, before + turn),
        };
        let used = warp.executed - before;
        let result = result.and_then(|pause| match self.fuel.checked_sub(used) {
            Some(left) => {
                self.fuel = left;
                Ok(pause)
            }
            None => Err(self.out_of_fuel(&warp)),
        });
        self.stats.warp_instructions += used;
        self.stats.lane_instructions += std::mem::take(&mut warp.lane_count);
        warp.executed = 0;
        self.warps[index] = warp;
        result
    }

    fn out_of_fuel(&self, warp: &Warp) -> Box<Fault> {
        let what =
            format!("the block has executed {} warp instructions and not ended", self.grid.schedule.fuel);
        let mut fault = self.fault(warp, warp.now.mask, Class::OutOfFuel, what);
        fault.instead = "look for a loop that never ends, or raise the schedule's fuel";
        fault
    }

    /// The fault of a launch that has not ended in its time.
    fn in_time(&self) -> Checked<()> {
        if self.grid.watch.deadline.is_none_or(|end| Instant::now() < end) {
            return Ok(());
        }
        let Some(warp) = self.warps.iter().find(|w| w.present() != 0) else { return Ok(()) };
        let what = "the launch has not ended within its time limit; this warp is still running";
        let mut fault = self.fault(warp, warp.present(), Class::OutOfFuel, what);
        fault.instead = "look for a loop that waits for what never comes, or raise the limit";
        Err(fault)
    }

    /// No warp is ready. This is fine if all have exited and nothing is left incomplete.
    fn stuck(&self) -> Checked<()> {
        let Some(first) = self.warps.iter().find(|w| w.present() != 0) else { return self.left_over() };
        let reasons: Vec<String> = self.warps.iter().map(|w| self.wait_reason(w)).collect();
        let what = format!("no warp can go on; {}", reasons.join("; "));
        let at_barrier = |w: &Warp| w.present() == 0 || self.barriers.waiting_at(w.index).is_some();
        let (class, instead) = match self.warps.iter().all(at_barrier) {
            true => {
                (Class::BarrierMismatch, "all warps must reach the same barriers with the same thread counts")
            }
            false => (
                Class::Deadlock,
                "every phase needs its arrivals, and copies of exactly the bytes it expects",
            ),
        };
        let mut fault = self.fault(first, first.now.mask, class, what);
        let barrier = self.barriers.waiting_at(first.index).map(|(_, pc, ..)| pc);
        fault.place = Some(self.place(barrier.unwrap_or(first.now.pc)));
        fault.instead = instead;
        Err(fault)
    }

    /// Why a warp cannot run.
    fn wait_reason(&self, w: &Warp) -> String {
        let warp = w.index;
        if let Some((pc, arrived, all)) = self.cluster.waiting_at(warp) {
            let (who, line) = (self.warp_name(warp), self.place(pc).line);
            return format!(
                "{who} waits at the cluster's barrier in line {line} ({arrived} of {all} warps have arrived)"
            );
        }
        if let Some((pc, wanted, free)) = self.cluster.short_of(warp) {
            let (who, line) = (self.warp_name(warp), self.place(pc).line);
            return format!("{who} waits in line {line} for {wanted} registers, of which {free} are free");
        }
        if let Some((id, pc, arrived, expected)) = self.barriers.waiting_at(warp) {
            let (who, line) = (self.warp_name(warp), self.place(pc).line);
            return format!(
                "{who} waits at barrier {id} in line {line} ({arrived} of {expected} threads have arrived)"
            );
        }
        if let Some((pc, address, arrivals, bytes)) = self.mbarriers.sleeping_at(warp) {
            let (who, line, address) =
                (self.warp_name(warp), self.place(pc).line, self.shared.local(address.into()));
            return format!(
                "{who} waits at the mbarrier at 0x{address:x} in line {line} ({arrivals} arrivals and {bytes} bytes are missing)"
            );
        }
        match w.present() {
            0 => format!("{} has exited", self.warp_name(warp)),
            _ => format!(
                "{} polls without success in line {}",
                self.warp_name(warp),
                self.place(w.now.pc).line
            ),
        }
    }

    /// All warps have exited; a barrier at which some only arrived must have been completed.
    fn left_over(&self) -> Checked<()> {
        self.unfinished(None)?;
        let Some((id, pc, warp, arrived, expected)) = self.barriers.left_over() else { return Ok(()) };
        let warp = &self.warps[warp as usize];
        let what =
            format!("the block has ended, and {arrived} of {expected} threads have arrived at barrier {id}");
        let mut fault = self.fault(warp, warp.live, Class::BarrierMismatch, what);
        fault.place = Some(self.place(pc));
        fault.instead = "all warps must reach the same barriers with the same thread counts";
        Err(fault)
    }

    /// A fault at the warp's current instruction.
    pub(crate) fn fault(&self, warp: &Warp, lanes: u32, class: Class, what: impl Into<String>) -> Box<Fault> {
        let first = lanes.trailing_zeros().min(31);
        Box::new(Fault {
            class,
            what: what.into(),
            instead: "",
            kernel: self.grid.launch.kernel.name.clone(),
            block: self.blocks[warp.rank as usize],
            thread: warp.thread(first, self.grid.launch.block),
            lanes,
            place: Some(self.place(warp.now.pc)),
            calls: warp.calls.iter().rev().map(|call| self.place(call.now.pc)).collect(),
            other: None,
            address: None,
            allocation: None,
            seed: self.grid.schedule.seed,
        })
    }

    /// The place of an instruction.
    pub(crate) fn place(&self, pc: u32) -> SourcePlace {
        self.grid.code.places[(pc as usize).min(self.grid.code.places.len() - 1)].clone()
    }

    /// The fault of reading a register before writing it.
    #[cold]
    pub(crate) fn undefined(&self, warp: &Warp, u: Undefined) -> Box<Fault> {
        let name = self.grid.code.name_of(warp.routine, u.bank, u.slot).unwrap_or("a temporary");
        if let Some((pc, lanes)) = warp.lost_at(u.slot, u.lanes).filter(|_| u.bank == Bank::W32) {
            return self.lost_in_shuffle(warp, name, lanes, pc);
        }
        let what = match u.bank {
            Bank::Pred => format!("predicate {name} is read before it is written"),
            _ => format!("register {name} is read before it is written"),
        };
        let mut fault = self.fault(warp, u.lanes, Class::UninitialisedRegister, what);
        fault.instead = "write it on every path that leads here";
        fault
    }

    /// A warp as faults name it: with its block where there are several.
    pub(crate) fn warp_name(&self, warp: u32) -> String {
        let per_block = self.warps.len() as u32 / self.blocks.len() as u32;
        let (local, rank) = (warp % per_block, warp / per_block);
        match self.blocks.len() {
            1 => format!("warp {local}"),
            _ => format!("warp {local} of block {rank} of the cluster"),
        }
    }

    /// Says which address of shared memory a fault is about, and the variable there.
    pub(crate) fn locate_shared(&self, fault: &mut Fault, address: u64) {
        fault.address = Some(self.shared.local(address));
        fault.allocation = self.shared_variable(address);
    }

    /// The shared or local variable at or nearest to an address of its space.
    pub(crate) fn shared_variable(&self, address: u64) -> Option<AllocationInfo> {
        let address = self.shared.local(address);
        let regions = self.grid.code.shared.iter().map(|r| AllocationInfo {
            base: r.address.into(),
            bytes: if r.dynamic { self.grid.launch.dynamic_shared } else { r.bytes }.into(),
            label: r.name.clone(),
        });
        let distance = |a: &AllocationInfo| match address {
            _ if address < a.base => a.base - address,
            _ => address.saturating_sub(a.base + a.bytes - 1),
        };
        regions.filter(|a| a.bytes > 0).min_by_key(distance)
    }

    /// An earlier access, as the second place of a fault.
    pub(crate) fn earlier(&self, pc: u32, thread: u32, did: &'static str) -> OtherPlace {
        let who = format!("{} lane {}", self.warp_name(thread / 32), thread % 32);
        OtherPlace { place: self.place(pc), did, who }
    }

    /// What the special registers of a warp derive from.
    pub(crate) fn identity(&self, w: &Warp) -> Identity {
        identity(self.grid, self.blocks[w.rank as usize])
    }

    /// A warp that is not the one running.
    pub(crate) fn warp(&mut self, index: u32) -> &mut Warp {
        &mut self.warps[index as usize]
    }
}

/// What special registers derive from, for one block.
fn identity(grid: &Grid<'_>, block: [u32; 3]) -> Identity {
    let launch = grid.launch;
    Identity {
        block,
        cluster: grid.cluster,
        grid: launch.grid,
        threads: launch.block,
        dynamic_shared: launch.dynamic_shared,
        total_shared: launch.dynamic_shared + launch.kernel.static_shared,
        sm: block[0] % SMS,
        sms: SMS,
        workspace: grid.workspace,
    }
}

/// The lanes of a mask in words: `lane 3`, `lanes 0-7, 9`.
pub(crate) fn show_lanes(mask: u32) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for lane in lanes(mask) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == lane => *last = lane,
            _ => runs.push((lane, lane)),
        }
    }
    let show = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let plural = if mask.count_ones() == 1 { "" } else { "s" };
    format!("lane{plural} {}", runs.iter().map(show).collect::<Vec<_>>().join(", "))
}
