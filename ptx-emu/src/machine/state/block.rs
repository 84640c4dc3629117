//! A block that runs, or the blocks of a cluster, which run together.
//!
//! The functions of the other folders change it. Its methods begin and end a block, and describe
//! places and faults in it.

use std::cell::RefCell;
use std::sync::PoisonError;

use crate::fault::{AllocationInfo, OtherPlace, SourcePlace};
use crate::launch::{Stats, Trace};
use crate::machine::state::barrier_state::Barriers;
use crate::machine::state::cluster_state::Cluster;
use crate::machine::state::grid::GridState;
use crate::machine::state::mbarrier_state::Mbarriers;
use crate::machine::state::pending::pending_work::PendingWork;
use crate::machine::state::shared_words::SharedWords;
use crate::machine::state::turn_state::TurnState;
use crate::machine::state::warp::{Identity, Warp};
use crate::module::address_space::{RESERVED, SHARED_BASE};
use crate::module::code::{KernelCode, Op};
use crate::module::lane_mask::lanes;
use crate::module::registers::{Bank, Undefined};
use crate::sanitize::observers::Observers;
use crate::sanitize::race::global::launch_recorder::LaunchRecorder;
use crate::sanitize::race::shared::shared_shadow::SharedShadow;
use crate::{Class, Fault};

/// The value of `%nsmid`.
const SMS: u32 = 4;

thread_local! {
    /// Warps of finished launches. Allocating the registers of a large kernel takes longer than
    /// using them.
    static SPARE: RefCell<Vec<Warp>> = const { RefCell::new(Vec::new()) };
}

/// Returns a warp whose memory is reused, or a new one.
fn spare() -> Warp {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// A result whose error ends the block.
pub(crate) type Checked<T> = Result<T, Box<Fault>>;

/// A block that runs, or all blocks of a cluster, which run together.
///
/// The blocks of a cluster share the vector clocks and one arena of shared memory, in which each
/// block has a section.
pub(crate) struct Block<'g, 'a> {
    pub(crate) grid: &'g GridState<'a>,
    /// The indices of the blocks by rank in the cluster.
    pub(crate) blocks: Vec<[u32; 3]>,
    pub(crate) cluster: Cluster,
    pub(crate) warps: Vec<Warp>,
    pub(crate) shared: SharedWords,
    pub(crate) shadow: SharedShadow,
    /// Whether reads of shared memory may be [recorded
    /// lazily](crate::sanitize::race::shared::lazy_reads). This requires that no asynchronous
    /// accesses exist, because the threads might meet them at any barrier.
    pub(crate) notes_reads: bool,
    pub(crate) barriers: Barriers,
    pub(crate) mbarriers: Mbarriers,
    pub(crate) pending: PendingWork,
    /// The index of the last used allocation for each memory instruction.
    pub(crate) cache: Vec<u32>,
    pub(crate) stats: Stats,
    /// The record of a traced launch.
    pub(crate) recorder: Option<Box<LaunchRecorder>>,
    /// The profile and the followed thread, if one is requested.
    pub(crate) observers: Option<Box<Observers>>,
    pub(crate) turns: TurnState,
}

impl<'g, 'a> Block<'g, 'a> {
    pub(crate) fn new(grid: &'g GridState<'a>) -> Self {
        let threads: u32 = grid.launch.block.iter().product();
        let blocks = grid.cluster.iter().product::<u32>();
        let count = threads.div_ceil(32) * blocks;
        let id = identity(grid, [0; 3]);
        let shadow = SharedShadow::new(
            &grid.code.shared,
            grid.launch.dynamic_shared,
            [count, blocks],
            grid.trace == Trace::On,
        );
        Block {
            grid,
            blocks: vec![[0; 3]; blocks as usize],
            cluster: Cluster::default(),
            warps: (0..count)
                .map(|i| spare().fit(i, grid.code, &grid.variables, &id))
                .collect(),
            shared: SharedWords::new(shadow.words()),
            shadow,
            notes_reads: blocks == 1 && !has_async_proxy(grid.code),
            barriers: Barriers::new(threads, blocks),
            mbarriers: Mbarriers::default(),
            pending: PendingWork::default(),
            cache: vec![0; grid.code.sites as usize],
            stats: Stats::default(),
            recorder: None,
            observers: Observers::new(grid.watch, grid.code, &grid.effects),
            turns: TurnState::default(),
        }
    }

    /// Returns the statistics, and keeps the warps for later launches.
    pub(crate) fn finish(mut self) -> Stats {
        SPARE.with_borrow_mut(|spare| spare.append(&mut self.warps));
        if let Some(own) = self.observers.take() {
            let mut all = self
                .grid
                .observed
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match &mut *all {
                Some(all) => all.add(*own),
                None => *all = Some(own),
            }
        }
        self.stats
    }

    /// Places the warps at the start of the cluster whose first block is `first`.
    pub(crate) fn begin(&mut self, first: [u32; 3]) {
        let [x, y, _] = self.grid.cluster;
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            let r = rank as u32;
            *block = [
                first[0] + r % x,
                first[1] + r / x % y,
                first[2] + r / (x * y),
            ];
        }

        self.shadow.start();
        self.clear_reserved();
        self.barriers.start();
        self.mbarriers.start(self.warps.len());
        self.pending.start(self.warps.len());
        self.cluster.start(self.warps.len(), self.blocks.len());
        for w in &mut self.warps {
            w.start(
                self.grid.code,
                &identity(self.grid, self.blocks[w.rank as usize]),
            );
        }

        self.turns.start(self.warps.len(), self.grid.schedule.fuel);
    }

    /// Zeros the reserved shared memory.
    fn clear_reserved(&mut self) {
        for r in self.grid.code.shared.iter().filter(|r| r.name == RESERVED) {
            for rank in 0..self.blocks.len() as u32 {
                let place = self.shadow.place(r.address.into(), rank) as u32;
                self.shadow.initialise(place, r.bytes, 15);
                let first = (place - SHARED_BASE) as usize;
                (first..first + r.bytes as usize)
                    .step_by(8)
                    .for_each(|at| self.shared.write(at, 8, 0));
            }
        }
    }

    /// Returns a fault at the current instruction of a warp.
    pub(crate) fn fault(
        &self,
        warp: &Warp,
        lanes: u32,
        class: Class,
        what: impl Into<String>,
    ) -> Box<Fault> {
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
            calls: warp
                .calls
                .iter()
                .rev()
                .map(|call| self.place(call.now.pc))
                .collect(),
            other: None,
            address: None,
            allocation: None,
            seed: self.grid.schedule.seed,
        })
    }

    /// Returns the place of an instruction.
    pub(crate) fn place(&self, pc: u32) -> SourcePlace {
        self.grid.code.places[(pc as usize).min(self.grid.code.places.len() - 1)].clone()
    }

    /// Returns the fault that a register is read before it is written.
    #[cold]
    pub(crate) fn undefined(&self, warp: &Warp, u: Undefined) -> Box<Fault> {
        let name = self
            .grid
            .code
            .name_of(warp.routine, u.bank, u.slot)
            .unwrap_or("a temporary");
        if let Some((pc, lanes)) = warp
            .lost_at(u.slot, u.lanes)
            .filter(|_| u.bank == Bank::W32)
        {
            return self.lost_in_shuffle(warp, name, lanes, pc);
        }

        if let Some(fault) = warp.regs.found_nothing(u.bank.bits(), u.slot, u.lanes) {
            return Box::new(fault.clone());
        }

        let what = match u.bank {
            Bank::Pred => format!("predicate {name} is read before it is written"),
            _ => format!("register {name} is read before it is written"),
        };
        let mut fault = self.fault(warp, u.lanes, Class::UninitialisedRegister, what);
        fault.instead = if self.grid.code.fetches_to(u) {
            "a texture returns only the channels that it has: fetch no others, on every path that leads here"
        } else {
            "write it on every path that leads here"
        };
        fault
    }

    /// Returns the fault that a register is read which `shfl` filled from uninitialized lanes.
    #[cold]
    fn lost_in_shuffle(&self, w: &Warp, name: &str, lanes: u32, pc: u32) -> Box<Fault> {
        let what = format!(
            "register {name} is read, but shfl filled it from lanes that had not written the source"
        );
        let mut fault = self.fault(w, lanes, Class::UninitialisedRegister, what);
        fault.instead = "write the source in every lane from which another reads, or do not use what comes from there";
        fault.other = Some(OtherPlace {
            place: self.place(pc),
            did: "filled it",
            who: "shfl".into(),
        });
        fault
    }

    /// Returns the name of a warp in faults, with its block if the cluster has several.
    pub(crate) fn warp_name(&self, warp: u32) -> String {
        let per_block = self.warps.len() as u32 / self.blocks.len() as u32;
        let local = warp % per_block;
        let rank = warp / per_block;
        match self.blocks.len() {
            1 => format!("warp {local}"),
            _ => format!("warp {local} of block {rank} of the cluster"),
        }
    }

    /// Sets the address of a fault in shared memory, and the variable there.
    pub(crate) fn locate_shared(&self, fault: &mut Fault, address: u64) {
        fault.address = Some(self.shadow.local(address));
        fault.allocation = self.shared_variable(address);
    }

    /// Returns the shared variable that contains an address or is nearest to it.
    pub(crate) fn shared_variable(&self, address: u64) -> Option<AllocationInfo> {
        let address = self.shadow.local(address);
        let regions = self.grid.code.shared.iter().map(|r| AllocationInfo {
            base: r.address.into(),
            bytes: if r.dynamic {
                self.grid.launch.dynamic_shared
            } else {
                r.bytes
            }
            .into(),
            label: r.name.clone(),
        });
        let distance = |a: &AllocationInfo| match address {
            _ if address < a.base => a.base - address,
            _ => address.saturating_sub(a.base + a.bytes - 1),
        };
        regions.filter(|a| a.bytes > 0).min_by_key(distance)
    }

    /// Returns an earlier access as the second place of a fault.
    pub(crate) fn earlier(&self, pc: u32, thread: u32, did: &'static str) -> OtherPlace {
        let who = format!("{} lane {}", self.warp_name(thread / 32), thread % 32);
        OtherPlace {
            place: self.place(pc),
            did,
            who,
        }
    }

    /// Returns the values from which the special registers of a warp are computed.
    pub(crate) fn identity(&self, w: &Warp) -> Identity {
        identity(self.grid, self.blocks[w.rank as usize])
    }

    /// Returns a warp that is not running.
    pub(crate) fn warp(&mut self, index: u32) -> &mut Warp {
        &mut self.warps[index as usize]
    }
}

/// Returns true if a kernel accesses shared memory asynchronously or uses mbarriers.
fn has_async_proxy(code: &KernelCode) -> bool {
    let beside = |op: &Op| {
        matches!(
            op,
            Op::Mbarrier(_)
                | Op::MbarrierWait(_)
                | Op::Bulk(_)
                | Op::BulkStore(_)
                | Op::TensorLoad(_)
                | Op::TensorStore(_)
                | Op::AsyncStore(_)
                | Op::TensorMap(_)
                | Op::Wgmma(_)
        )
    };
    code.ops.iter().any(|step| beside(&step.op))
}

/// Returns the values from which the special registers of a block are computed.
fn identity(grid: &GridState<'_>, block: [u32; 3]) -> Identity {
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

/// Formats the lanes of a mask: `lane 3`, `lanes 0-7, 9`.
pub(crate) fn show_lanes(mask: u32) -> String {
    let numbers: Vec<u32> = lanes(mask).map(|lane| lane as u32).collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("lane{plural} {}", show_ranges(&numbers))
}

/// Formats ascending numbers with neighbors joined, such as `0-7, 9`.
pub(crate) fn show_ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }

    let show = |(first, last): &(u32, u32)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    runs.iter().map(show).collect::<Vec<_>>().join(", ")
}
