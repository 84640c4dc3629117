//! The grid of a launch: what all of its blocks share, and the reasons to refuse a launch.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use crate::launch::{Launch, LaunchSite, Order, Schedule, Trace};
use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::device::device_memory::{Memory, Table};
use crate::machine::device::memory_error::MemoryError;
use crate::machine::seeded_choice::shuffled;
use crate::machine::state::standstill::Standstill;
use crate::module::code::KernelCode;
use crate::sanitize::observers::{InstructionEffects, Observers};
use crate::watch::{Faults, Watch};
use crate::watched::Found;
use crate::{Class, Fault};

/// The maximum number of threads per block.
const MOST_THREADS: u64 = 1024;
/// The maximum size of the shared memory of a block in bytes, for any device.
const MOST_SHARED: u64 = 227 << 10;
/// The maximum number of blocks per cluster, including non-portable cluster sizes.
const MOST_CLUSTER: u64 = 16;
/// The number of different faults after which a launch with several faults ends.
const MOST_FAULTS: usize = 100;
/// The maximum number of blocks of a grid in each dimension.
const MOST_BLOCKS: [u32; 3] = [0x7fff_ffff, 65535, 65535];

/// The maximum number of resident blocks or clusters, unless the launch is cooperative.
const MOST_RESIDENT: u64 = 1024;

/// The size of the workspace of a cooperative grid in bytes.
const WORKSPACE: u64 = 32;
/// The maximum size of the text that a launch may print, in bytes.
const MOST_PRINTED: usize = 64 << 20;

/// The state that all blocks of a launch share.
pub(crate) struct GridState<'a> {
    pub(crate) launch: &'a Launch<'a>,
    pub(crate) schedule: &'a Schedule,
    pub(crate) code: &'a KernelCode,
    pub(crate) table: Arc<Table>,
    /// The addresses of the variables of the module.
    pub(crate) variables: Arc<[u64]>,
    pub(crate) trace: Trace,
    pub(crate) watch: &'a Watch,
    /// Whether blocks may wait for each other.
    pub(crate) cooperative: bool,
    /// The shape of a cluster in blocks.
    pub(crate) cluster: [u32; 3],
    /// Whether several blocks run in turns although none waits, which holds for traced launches
    /// with a shuffled order.
    pub(crate) interleaves: bool,
    /// Set to stop all blocks when the launch ends early.
    pub(crate) stop: AtomicBool,
    next: AtomicU64,
    /// The number of resident clusters.
    resident: AtomicU64,
    pub(crate) standstill: Standstill<'a>,
    /// The number of clusters of the grid.
    pub(crate) clusters: u64,
    /// The faults, each with the position of its first block in the schedule.
    pub(crate) faults: Mutex<Vec<(u64, Found)>>,
    /// The tolerated races.
    pub(crate) notes: Mutex<Vec<Fault>>,
    /// The effects of instructions that the observers look at.
    pub(crate) effects: InstructionEffects,
    /// The findings that do not end a block.
    pub(crate) findings: Mutex<Vec<Fault>>,
    /// The merged profile and the followed thread of all workers.
    pub(crate) observed: Mutex<Option<Box<Observers>>>,
    /// The address of the workspace of a cooperative grid, which its barrier uses, or 0.
    pub(crate) workspace: u64,
    /// The device that runs the launch.
    pub(crate) device: u32,
    /// The printed text with the number of its block.
    printed: Mutex<Vec<(u64, String)>>,
    /// The calls of `cudaGraphSetConditional`: handle and value.
    pub(crate) conditions: Mutex<Vec<(u64, u32)>>,
}

pub(crate) fn refuse(launch: &Launch<'_>, schedule: &Schedule, what: String) -> Box<Fault> {
    Box::new(Fault {
        class: Class::BadLaunch,
        what,
        instead: "",
        kernel: launch.kernel.name.clone(),
        block: [0; 3],
        thread: [0; 3],
        lanes: 0,
        place: None,
        calls: Vec::new(),
        other: None,
        address: None,
        allocation: None,
        seed: schedule.seed,
    })
}

/// Returns the reason why a launch is impossible, if it is.
fn impossible(launch: &Launch<'_>, cluster: [u32; 3]) -> Option<String> {
    if let Some(what) = impossible_cluster(launch, cluster) {
        return Some(what);
    }

    let threads = launch
        .block
        .iter()
        .fold(1, |all: u64, n| all.saturating_mul(u64::from(*n)));
    let kernel = launch.kernel;
    let shared = u64::from(kernel.static_shared) + u64::from(launch.dynamic_shared);
    let bytes = kernel
        .params
        .last()
        .map_or(0, |p| (p.offset + p.size) as usize);
    let too_many = launch
        .grid
        .iter()
        .zip(MOST_BLOCKS)
        .any(|(n, most)| *n == 0 || *n > most);
    let named = kernel
        .maxntid
        .map(|[x, y, z]| u64::from(x) * u64::from(y) * u64::from(z));
    if threads == 0 || threads > MOST_THREADS || launch.block[2] > 64 {
        return Some(format!(
            "a block of {:?} threads: at most {MOST_THREADS}, none of a size 0",
            launch.block
        ));
    }

    if too_many {
        return Some(format!(
            "a grid of {:?} blocks: 1 to {MOST_BLOCKS:?}",
            launch.grid
        ));
    }

    if let Some(size) = kernel.reqntid.filter(|size| *size != launch.block) {
        return Some(format!(
            "a block of {:?} threads: .reqntid says {size:?}",
            launch.block
        ));
    }

    if let Some(most) = named.filter(|most| threads > *most) {
        return Some(format!(
            "a block of {threads} threads: .maxntid says at most {most}"
        ));
    }

    if shared > MOST_SHARED {
        return Some(format!(
            "{shared} bytes of shared memory: at most {MOST_SHARED}"
        ));
    }

    if launch.params.len() < bytes {
        return Some(format!(
            "{} bytes of parameters: the kernel takes {bytes}",
            launch.params.len()
        ));
    }

    None
}

/// Returns the reason why a launch in clusters is impossible, if it is.
fn impossible_cluster(launch: &Launch<'_>, cluster: [u32; 3]) -> Option<String> {
    let size = cluster
        .iter()
        .fold(1, |all: u64, n| all.saturating_mul(u64::from(*n)));
    if size == 0 || size > MOST_CLUSTER {
        return Some(format!(
            "clusters of {cluster:?} blocks: 1 to {MOST_CLUSTER} in all"
        ));
    }

    if let Some(named) = launch.kernel.cluster.filter(|named| *named != cluster) {
        return Some(format!(
            "clusters of {cluster:?} blocks: .reqnctapercluster says {named:?}"
        ));
    }

    let whole = launch.grid.iter().zip(cluster).all(|(n, c)| n % c == 0);
    (!whole).then(|| {
        format!(
            "a grid of {:?} blocks, which is not divisible into clusters of {cluster:?}",
            launch.grid
        )
    })
}

impl<'a> GridState<'a> {
    pub(crate) fn new(
        memory: &Memory,
        launch: &'a Launch<'a>,
        schedule: &'a Schedule,
        trace: Trace,
        place: &LaunchSite<'a>,
        watch: &'a Watch,
    ) -> Result<GridState<'a>, Box<Fault>> {
        let cluster = place.cluster.or(launch.kernel.cluster).unwrap_or([1; 3]);
        if let Some(what) = impossible(launch, cluster) {
            return Err(refuse(launch, schedule, what));
        }

        let statics = &launch.kernel.statics;
        let variables = memory.statics(place.device, statics.id, &statics.variables);
        let refused = |e: MemoryError| refuse(launch, schedule, e.to_string());
        let variables = variables.map_err(refused)?;
        let code = &launch.kernel.code;
        if code.uses_heap() {
            memory.need_heap(place.device).map_err(refused)?;
        }

        let workspace = if place.cooperative && code.uses_workspace() {
            workspace(memory, place.device).map_err(refused)?
        } else {
            0
        };
        Ok(GridState {
            launch,
            schedule,
            code,
            table: memory.table_of(place),
            variables,
            trace,
            watch,
            cooperative: place.cooperative,
            cluster,
            interleaves: trace == Trace::On && schedule.order == Order::Shuffled,
            stop: AtomicBool::new(false),
            next: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            standstill: Standstill::new(place.outside, watch.wait_limit),
            clusters: launch
                .grid
                .iter()
                .zip(cluster)
                .map(|(n, c)| u64::from(n / c))
                .product(),
            faults: Mutex::default(),
            notes: Mutex::default(),
            effects: InstructionEffects::new(watch, code),
            findings: Mutex::default(),
            observed: Mutex::default(),
            workspace,
            device: place.device,
            printed: Mutex::default(),
            conditions: Mutex::default(),
        })
    }
}

/// Allocates the workspace of a cooperative grid, which contains its size and the counter of its
/// barrier.
fn workspace(memory: &Memory, device: u32) -> Result<u64, MemoryError> {
    let address = memory.alloc_on(device, WORKSPACE)?;
    memory.set_label(address, "the workspace of the grid");
    memory.fill(address, &[0], WORKSPACE)?;
    memory.write(address, &(WORKSPACE as u32).to_le_bytes())?;
    Ok(address)
}

impl GridState<'_> {
    /// Keeps the text that a block prints.
    pub(crate) fn keep_printed(&self, block: [u32; 3], text: String) {
        let [x, y, z] = block.map(u64::from);
        let [nx, ny, _] = self.launch.grid.map(u64::from);
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.iter().map(|(_, text)| text.len()).sum::<usize>() <= MOST_PRINTED {
            printed.push((x + nx * (y + ny * z), text));
        }
    }

    /// Passes the printed text to the host, block by block.
    pub(crate) fn print(&self, place: &LaunchSite<'_>) {
        let mut printed =
            std::mem::take(&mut *self.printed.lock().unwrap_or_else(PoisonError::into_inner));
        printed.sort_by_key(|(block, _)| *block);
        let text: String = printed.into_iter().map(|(_, text)| text).collect();
        match place.print {
            _ if text.is_empty() => {}
            Some(print) => (print.0)(&text),
            // An error of standard output, for example a closed pipe, cannot be reported anywhere.
            None => _ = std::io::stdout().write_all(text.as_bytes()),
        }
    }

    /// Returns the words of a copy from a checked address: the words of its source, followed by
    /// zeros.
    pub(crate) fn words(
        &self,
        from: u64,
        bytes: u32,
        source_bytes: u32,
    ) -> impl Iterator<Item = u32> {
        let a = self.table.find(from).filter(|_| source_bytes > 0);
        (0..bytes / 4).map(move |i| {
            let left = source_bytes.saturating_sub(4 * i);
            let keep = if left >= 4 {
                u32::MAX
            } else {
                (1 << (8 * left)) - 1
            };
            let word = |a: &Arc<ShadowedAllocation>| {
                a.words()[((from - a.base) / 4) as usize + i as usize].load(Relaxed) & keep
            };
            if left == 0 { 0 } else { a.map_or(0, word) }
        })
    }

    /// Returns the position of a block that has not begun, if one may begin.
    pub(crate) fn take(&self) -> Option<u64> {
        if self.left() == 0 || self.stop.load(Relaxed) {
            return None;
        }

        let resident = self.resident.fetch_add(1, Relaxed);
        let has_space = self.cooperative || resident < MOST_RESIDENT;
        let turn = has_space
            .then(|| self.next.fetch_add(1, Relaxed))
            .filter(|turn| *turn < self.clusters);
        if turn.is_none() {
            self.release();
        }

        turn
    }

    /// Records that a block has ended.
    pub(crate) fn release(&self) {
        self.resident.fetch_sub(1, Relaxed);
    }

    /// Returns true if a block has not begun and may begin.
    pub(crate) fn can_begin(&self) -> bool {
        self.left() > 0 && (self.cooperative || self.resident.load(Relaxed) < MOST_RESIDENT)
    }

    /// Returns the number of blocks that have not begun.
    pub(crate) fn left(&self) -> u64 {
        self.clusters.saturating_sub(self.next.load(Relaxed))
    }

    /// Records the fault of a block, and a fault that follows from it.
    pub(crate) fn record(&self, turn: u64, fault: Box<Fault>, consequence: Option<Box<Fault>>) {
        self.record_one(turn, fault);
        if let Some(consequence) = consequence {
            self.record_one(turn, consequence);
        }
    }

    fn record_one(&self, turn: u64, fault: Box<Fault>) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let known = faults
            .iter()
            .position(|(_, known)| known.fault.is_same(&fault));
        let one_is_enough = self.watch.faults == Faults::First || self.cooperative;
        let many = known.is_none() && faults.len() >= MOST_FAULTS;
        if one_is_enough
            || many
            || matches!(
                fault.class,
                Class::OutOfFuel | Class::TimeLimit | Class::TraceFull
            )
        {
            self.stop.store(true, Relaxed);
        }

        match known {
            Some(known) => {
                let (first, known) = &mut faults[known];
                known.blocks += 1;
                if turn < *first {
                    *first = turn;
                    known.fault = *fault;
                }
            }
            None if self.may_follow(&faults, &fault) => {}
            None => faults.push((
                turn,
                Found {
                    fault: *fault,
                    blocks: 1,
                    ended: true,
                },
            )),
        }
    }

    /// Records a tolerated race.
    pub(crate) fn note(&self, fault: Box<Fault>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_FAULTS && !notes.iter().any(|known| known.is_same(&fault)) {
            notes.push(*fault);
        }
    }

    /// Records a finding that does not end its block, once per class and place.
    pub(crate) fn record_finding(&self, fault: Fault) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &Fault| known.class == fault.class && known.place == fault.place;
        if findings.len() < MOST_FAULTS && !findings.iter().any(same) {
            findings.push(fault);
        }
    }

    /// Returns true if a fault may exist only because another block ended early.
    fn may_follow(&self, known: &[(u64, Found)], fault: &Fault) -> bool {
        self.watch.faults == Faults::EachBlock
            && !known.is_empty()
            && matches!(
                fault.class,
                Class::UninitialisedGlobal | Class::OutOfFuel | Class::TimeLimit
            )
    }

    /// Returns the index of the first block of the cluster at a position in the schedule.
    pub(crate) fn block(&self, turn: u64) -> [u32; 3] {
        let n = self.clusters;
        let linear = match self.schedule.order {
            Order::InOrder => turn,
            Order::Reversed => n - 1 - turn,
            Order::Shuffled => shuffled(turn, n, self.schedule.seed),
        };
        let clusters = |d: usize| u64::from(self.launch.grid[d] / self.cluster[d]);
        let x = clusters(0);
        let y = clusters(1);
        let at = [linear % x, linear / x % y, linear / (x * y)];
        [0, 1, 2].map(|d| at[d] as u32 * self.cluster[d])
    }
}
