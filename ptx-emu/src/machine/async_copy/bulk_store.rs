//! Bulk copies from shared to global memory (manual, "cp.async.bulk", "cp.async.bulk.tensor").
//!
//! A copy reads shared memory and writes global memory some time slices later, chosen by the seed,
//! or when the thread waits for its group. Until the thread has waited, the source must not be
//! written. The read counts as a read by the thread at the wait, and the source must then still
//! have the contents that it had when the copy was issued.

use crate::machine::async_copy::tensor_copy::{TensorBox, swizzled};
use crate::machine::lane_mask::lanes;
use crate::machine::memory::global::update;
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::module::code::InstructionSpace;
use crate::module::code::asynchronous::{BulkStore, Reduction, TensorCopy};
use crate::module::isa::tensor_reduction;
use crate::sanitize::race::launch_accesses::MemoryOperation;
use crate::sanitize::race::shared_shadow::{AccessProperties, LastAccess, Proxy};
use crate::{Class, Fault};

/// The destination of a copy.
#[derive(Debug)]
enum Target {
    Bytes(u64),
    /// Elements that are combined with the values at an address.
    Elements(u64, Reduction),
    /// A box of a tensor, whose elements are replaced or combined.
    Box(TensorBox, Option<Reduction>),
}

/// A pending copy out of shared memory.
#[derive(Debug)]
struct PendingStore {
    pc: u32,
    thread: u32,
    from: u32,
    bytes: u32,
    target: Target,
    /// The number of its group among the groups of the thread.
    group: u32,
    due: u64,
    done: bool,
    /// The version of the source when the copy was issued.
    version: u64,
}

/// The pending copies of a cluster out of shared memory.
#[derive(Debug, Default)]
pub(crate) struct BulkStores {
    pending: Vec<PendingStore>,
    /// The committed groups: thread and number.
    groups: Vec<(u32, u32)>,
}

impl BulkStores {
    /// Resets the state for new blocks.
    pub(crate) fn start(&mut self) {
        self.pending.clear();
        self.groups.clear();
    }

    fn committed(&self, thread: u32) -> u32 {
        self.groups
            .iter()
            .find(|(t, _)| *t == thread)
            .map_or(0, |(_, n)| *n)
    }

    /// Executes `cp.async.bulk.commit_group`.
    pub(crate) fn commit(&mut self, warp: u32, mask: u32) {
        for thread in lanes(mask).map(|l| warp * 32 + l as u32) {
            match self.groups.iter_mut().find(|(t, _)| *t == thread) {
                Some((_, n)) => *n += 1,
                None => self.groups.push((thread, 1)),
            }
        }
    }

    /// Returns true if no copy is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.iter().all(|store| store.done)
    }

    /// Returns a copy that no thread has waited for, of a thread for which `of` is true: the
    /// instruction and the thread.
    pub(crate) fn forgotten(&self, of: impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        self.pending
            .iter()
            .find(|s| of(s.thread))
            .map(|s| (s.pc, s.thread))
    }
}

impl Worker<'_, '_> {
    /// Executes `cp.async.bulk` from shared memory.
    pub(crate) fn store_bulk(&mut self, w: &mut Warp, mask: u32, b: &BulkStore) -> Checked<()> {
        let mut to = [0; 32];
        let mut from = [0; 32];
        self.addresses(w, mask, &b.to, &mut to)?;
        self.shared_addresses(w, mask, &b.from, InstructionSpace::Shared, &mut from)?;
        let bytes = self.words(w, mask, b.bytes)?;
        self.check_alignment(w, mask, &to, 16)?;
        self.check_alignment(w, mask, &from, 16)?;
        for l in lanes(mask) {
            self.check_size(w, l, bytes[l])?;
            let target = match b.reduction {
                None => {
                    self.check_written(w, l, to[l], bytes[l])?;
                    Target::Bytes(to[l])
                }
                Some(reduction) => {
                    self.check_reduced(w, l, to[l], bytes[l])?;
                    Target::Elements(to[l], reduction)
                }
            };
            self.issue_store(w, l, from[l], bytes[l], target)?;
        }
        Ok(())
    }

    /// Executes `cp.async.bulk.tensor` from shared memory.
    pub(crate) fn store_tensor(&mut self, w: &mut Warp, mask: u32, t: &TensorCopy) -> Checked<()> {
        let mut from = [0; 32];
        self.shared_addresses(w, mask, &t.shared, InstructionSpace::Shared, &mut from)?;
        self.check_alignment(w, mask, &from, 128)?;
        for l in lanes(mask) {
            let boxed = self.tensor_box(w, l, &t.at, true)?;
            let reduction = t
                .reduction
                .map(|op| self.tensor_reduction(w, l, op, &boxed))
                .transpose()?;
            for row in boxed.map.rows(&boxed.place).into_iter().flatten() {
                match reduction {
                    None => self.check_written(w, l, row.address, row.bytes)?,
                    Some(_) => self.check_reduced(w, l, row.address, row.bytes)?,
                }
            }
            let bytes = boxed.map.box_bytes();
            let swizzle = boxed.map.swizzle;
            self.issue_store(w, l, from[l], bytes, Target::Box(boxed, reduction))?;
            self.check_pattern(w, l, from[l], swizzle)?;
        }
        Ok(())
    }

    /// Returns the reduction of the elements of a tensor, whose map states their type.
    fn tensor_reduction(
        &self,
        w: &Warp,
        lane: usize,
        op: &str,
        boxed: &TensorBox,
    ) -> Checked<Reduction> {
        let map = &boxed.map;
        map.element_type()
            .and_then(|ty| tensor_reduction(op, ty))
            .ok_or_else(|| {
                let what = format!(
                    "`{op}` of a tensor of {:?} elements of {} bytes",
                    map.kind, map.element
                );
                let mut fault = self.fault(w, 1 << lane, Class::Descriptor, what);
                fault.instead = "encode the map with a type that the reduction takes";
                fault
            })
    }

    /// Checks and records the bytes that a copy writes.
    fn check_written(&mut self, w: &Warp, lane: usize, to: u64, bytes: u32) -> Checked<()> {
        let a = self.lane_allocation(w, lane, to, bytes)?;
        if a.constant {
            return Err(self.fault(
                w,
                1 << lane,
                Class::ReadOnlySpace,
                "a .const variable is written",
            ));
        }
        self.record_range(w, lane, MemoryOperation::Write, to, bytes)
    }

    /// Checks and records the bytes that a reduction changes.
    fn check_reduced(&mut self, w: &Warp, lane: usize, to: u64, bytes: u32) -> Checked<()> {
        let a = self.lane_allocation(w, lane, to, bytes)?;
        self.check_lane(w, lane, a, to, bytes)?;
        if a.constant {
            return Err(self.fault(
                w,
                1 << lane,
                Class::ReadOnlySpace,
                "a .const variable is written",
            ));
        }
        self.record_range(w, lane, MemoryOperation::Atomic, to, bytes)
    }

    /// Checks that memory written by a tensor copy has the same swizzle.
    pub(crate) fn check_pattern(
        &mut self,
        w: &Warp,
        lane: usize,
        place: u64,
        swizzle: u32,
    ) -> Checked<()> {
        let offset = (place - u64::from(crate::module::decode::SHARED_BASE)) as usize;
        let name = |bytes: u32| match bytes {
            0 | 16 => "none".to_string(),
            n => format!("{n} bytes"),
        };
        match self
            .shared
            .pattern(offset)
            .filter(|known| *known != swizzle.max(16))
        {
            None => Ok(()),
            Some(known) => {
                let what = format!(
                    "a tile is read with a swizzle of {}, and a tensor map brought it here with one of {}",
                    name(swizzle),
                    name(known)
                );
                let mut fault = self.fault(w, 1 << lane, Class::Descriptor, what);
                fault.instead = "make the descriptor and the tensor map of one tile";
                self.locate_shared(&mut fault, place);
                Err(fault)
            }
        }
    }

    /// Returns a number that changes when any of these bytes of shared memory is written.
    pub(crate) fn version(&self, place: u64, bytes: u32) -> u64 {
        self.shared.version(
            (place - u64::from(crate::module::decode::SHARED_BASE)) as usize,
            bytes,
        )
    }

    /// Checks that an asynchronous read of shared memory is allowed now, as a read by this lane.
    pub(crate) fn read_beside(
        &mut self,
        w: &Warp,
        lane: usize,
        pc: u32,
        place: u64,
        bytes: u32,
    ) -> Checked<()> {
        let access = AccessProperties {
            pc,
            reads: true,
            proxy: Proxy::Async,
            ..AccessProperties::default()
        };
        for at in (0..u64::from(bytes)).step_by(8) {
            let offset = self.touch(w, lane, place + at, 8, access)?;
            if let Some(write) = self.shared.unproxied(offset, 8, w.index) {
                let what = "an asynchronous read of shared memory that an ordinary store wrote, and no fence orders the two proxies";
                let mut fault = self.fault(w, 1 << lane, Class::ProxyFence, what);
                fault.instead = "execute fence.proxy.async after the store, and a barrier between that and this instruction";
                fault.other = Some(self.earlier(write.pc, write.thread.into(), "wrote it"));
                self.locate_shared(&mut fault, place + at);
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Returns the fault that a bulk copy may overtake an earlier access of a thread.
    #[cold]
    pub(crate) fn overtakes(
        &self,
        w: &Warp,
        lane: usize,
        place: u64,
        (earlier, wrote): (LastAccess, bool),
    ) -> Box<Fault> {
        let (used, did) = if wrote {
            ("store wrote", "wrote it")
        } else {
            ("load reads", "read it")
        };
        let what = format!(
            "a copy overwrites shared memory that an ordinary {used}, and no fence orders the two proxies: the copy may overtake it"
        );
        let mut fault = self.fault(w, 1 << lane, Class::ProxyFence, what);
        fault.instead = "execute fence.proxy.async after it, and before the arrival or barrier that lets the copy begin";
        fault.other = Some(self.earlier(earlier.pc, earlier.thread.into(), did));
        self.locate_shared(&mut fault, place);
        fault
    }

    fn issue_store(
        &mut self,
        w: &Warp,
        lane: usize,
        from: u64,
        bytes: u32,
        target: Target,
    ) -> Checked<()> {
        self.read_beside(w, lane, w.now.pc, from, bytes)?;
        let version = self.version(from, bytes);
        let pc = w.now.pc;
        let thread = w.index * 32 + lane as u32;
        let due = self
            .copies
            .later(self.grid.schedule.seed ^ u64::from(self.blocks[0][0]));
        let group = self.stores.committed(thread);
        let from = from as u32;
        let store = PendingStore {
            pc,
            thread,
            from,
            bytes,
            target,
            group,
            due,
            done: bytes == 0,
            version,
        };
        self.stores.pending.push(store);
        Ok(())
    }

    /// Writes the bytes of the copies that are due.
    pub(crate) fn store_due(&mut self) {
        let turns = self.copies.turns();
        let mut pending = std::mem::take(&mut self.stores.pending);
        for store in pending.iter_mut().filter(|s| !s.done && s.due <= turns) {
            self.effects += 1;
            self.perform(store);
        }
        self.stores.pending = pending;
    }

    /// Executes `cp.async.bulk.wait_group`. After `.read`, copies may still be pending to global
    /// memory.
    pub(crate) fn wait_stores(
        &mut self,
        w: &Warp,
        mask: u32,
        keep: u32,
        _read: bool,
    ) -> Checked<()> {
        let waited = |s: &PendingStore, stores: &BulkStores| {
            let own = s.thread / 32 == w.index && mask >> (s.thread % 32) & 1 != 0;
            own && s.group + keep < stores.committed(s.thread)
        };
        let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.stores.pending)
            .into_iter()
            .partition(|s| waited(s, &self.stores));
        self.stores.pending = left;
        for mut store in done {
            let lane = store.thread as usize % 32;
            let from = u64::from(store.from);
            if self.version(from, store.bytes) != store.version {
                return Err(self.written_meanwhile(w, lane, store.pc, from));
            }
            self.read_beside(w, lane, store.pc, from, store.bytes)?;
            if !store.done {
                self.perform(&mut store);
            }
        }
        Ok(())
    }

    /// Returns the fault that the source of an asynchronous read was written.
    pub(crate) fn written_meanwhile(
        &self,
        w: &Warp,
        lane: usize,
        pc: u32,
        place: u64,
    ) -> Box<Fault> {
        let what = "shared memory was written while this was reading it asynchronously";
        let mut fault = self.fault(w, 1 << lane, Class::AsyncCopy, what);
        fault.place = Some(self.place(pc));
        fault.instead = "wait for it before the memory is written again";
        self.locate_shared(&mut fault, place);
        fault
    }

    fn perform(&self, store: &mut PendingStore) {
        store.done = true;
        let offset = |place: u64| (place - u64::from(crate::module::decode::SHARED_BASE)) as usize;
        let unit = |at: u64| {
            let [low, high] =
                [0, 8].map(|half| self.shared.read(offset(at + half), 8).to_le_bytes());
            [low, high].concat()
        };
        let write = |address: u64, bytes: &[u8]| {
            if let Some(a) = self.grid.table.find(address) {
                a.write(address - a.base, bytes);
                a.initialise(address - a.base, bytes.len() as u64);
            }
        };
        let from = u64::from(store.from);
        let units = (0..u64::from(store.bytes)).step_by(16);
        match &store.target {
            Target::Bytes(to) => units.for_each(|at| write(to + at, &unit(from + at))),
            Target::Elements(to, reduction) => {
                let Some(a) = self.grid.table.find(*to) else {
                    return;
                };
                for at in (0..u64::from(store.bytes)).step_by(reduction.bytes as usize) {
                    let copied = self.shared.read(offset(from + at), reduction.bytes);
                    update(a, to + at - a.base, reduction.bytes, |old| {
                        (reduction.f)(old, copied, 0)
                    });
                }
            }
            Target::Box(boxed, reduction) => {
                let map = &boxed.map;
                let plain: Vec<u8> = units
                    .flat_map(|at| unit(swizzled(from + at, map.swizzle)))
                    .collect();
                for (i, row) in map.rows(&boxed.place).into_iter().enumerate() {
                    let Some(row) = row else {
                        continue;
                    };
                    let at = i * map.row_bytes() as usize + row.before as usize;
                    let part = &plain[at..at + row.bytes as usize];
                    match reduction {
                        None => write(row.address, part),
                        Some(reduction) => self.reduce_row(row.address, part, *reduction),
                    }
                }
            }
        }
    }

    /// Updates the elements of a row of a tensor.
    fn reduce_row(&self, address: u64, part: &[u8], reduction: Reduction) {
        let Some(a) = self.grid.table.find(address) else {
            return;
        };
        for (i, element) in part.chunks(reduction.bytes as usize).enumerate() {
            let copied = element
                .iter()
                .rev()
                .fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            let at = address - a.base + i as u64 * u64::from(reduction.bytes);
            update(a, at, reduction.bytes, |old| (reduction.f)(old, copied, 0));
        }
    }
}
