//! The bytes that a launch read and wrote, and whether two launches conflict.

use crate::Memory;
use crate::fault::{AllocationInfo, SourcePlace};

/// The bytes a traced launch read and wrote, by instruction and allocation.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    pub(crate) kernel: String,
    pub(crate) sites: Vec<Site>,
    pub(crate) waited: bool,
    pub(crate) triggers: Vec<Trigger>,
}

/// A `griddepcontrol.launch_dependents` that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Where it stands.
    pub place: SourcePlace,
    /// Whether the thread had executed `griddepcontrol.wait` before. One that had not may start the dependents of
    /// this launch while the launches before it still run.
    pub waited: bool,
}

/// What one instruction did to one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) place: SourcePlace,
    pub(crate) pc: u32,
    pub(crate) operation: MemoryOperation,
    pub(crate) allocation: AllocationInfo,
    /// Whether `griddepcontrol.wait` came before.
    pub(crate) waited: bool,
    pub(crate) bytes: ByteSet,
}

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOperation {
    Read,
    /// A read that promises that nobody writes during the launch: `.nc`.
    ReadOnly,
    /// `.relaxed` or `.volatile`.
    StrongRead,
    /// `.acquire`.
    Acquire,
    Write,
    /// `.relaxed` or `.volatile`.
    StrongWrite,
    /// `.release`.
    Release,
    Atomic,
}

/// How two launches conflict: what the first did, then what the second did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// Both wrote.
    WriteWrite,
    /// The first wrote what the second read.
    WriteRead,
    /// The first read what the second wrote.
    ReadWrite,
}

/// Bytes that two launches touch, at least one of them writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The lowest address in conflict.
    pub address: u64,
    /// The allocation that holds it.
    pub allocation: AllocationInfo,
    /// Who did what.
    pub kind: ConflictKind,
    /// Kernel and instruction of the first launch.
    pub first: (String, SourcePlace),
    /// Kernel and instruction of the second launch.
    pub second: (String, SourcePlace),
}

impl MemoryOperation {
    pub(crate) fn writes(self) -> bool {
        matches!(
            self,
            MemoryOperation::Write
                | MemoryOperation::StrongWrite
                | MemoryOperation::Release
                | MemoryOperation::Atomic
        )
    }

    /// Whether kernels that overlap use it to communicate progress.
    fn is_progress(self) -> bool {
        matches!(self, MemoryOperation::Acquire | MemoryOperation::Release)
    }

    /// As other blocks see it when its scope is one block: a plain access.
    pub(crate) fn within_block(self) -> MemoryOperation {
        match self {
            MemoryOperation::ReadOnly => MemoryOperation::ReadOnly,
            _ if self.writes() => MemoryOperation::Write,
            _ => MemoryOperation::Read,
        }
    }

    /// Whether it may meet another strong access at the same address.
    pub(crate) fn is_strong(self) -> bool {
        !matches!(
            self,
            MemoryOperation::Read | MemoryOperation::ReadOnly | MemoryOperation::Write
        )
    }
}

impl Accesses {
    /// What a copy or a fill touches, as runs of (address, bytes). In a conflict it stands under `name`, at line 0.
    pub fn of_host(
        memory: &Memory,
        name: &str,
        reads: &[(u64, u64)],
        writes: &[(u64, u64)],
    ) -> Accesses {
        let operations = [
            (reads, MemoryOperation::Read),
            (writes, MemoryOperation::Write),
        ];
        let runs = operations
            .into_iter()
            .flat_map(|(runs, operation)| runs.iter().map(move |run| (*run, operation)));
        let sites = runs.filter_map(|((address, bytes), operation)| {
            let allocation = memory.find(address)?;
            let place = SourcePlace {
                line: 0,
                column: 0,
                text: name.into(),
                rust: None,
                callers: Vec::new(),
            };
            let bytes = ByteSet::run(address - allocation.base, bytes);
            Some(Site {
                place,
                pc: 0,
                operation,
                allocation,
                waited: true,
                bytes,
            })
        });
        Accesses {
            kernel: name.into(),
            sites: sites.collect(),
            waited: true,
            triggers: Vec::new(),
        }
    }

    /// The conflict at the lowest address with a launch that nothing orders after this one. At device scope, atomics do
    /// not conflict with atomics or with strong loads.
    pub fn conflict(&self, later: &Accesses) -> Option<Conflict> {
        let counter = |a: &Site, b: &Site| {
            let meets = |one: MemoryOperation, other: MemoryOperation| {
                one == MemoryOperation::Atomic
                    && matches!(
                        other,
                        MemoryOperation::Atomic
                            | MemoryOperation::StrongRead
                            | MemoryOperation::Acquire
                    )
            };
            meets(a.operation, b.operation) || meets(b.operation, a.operation)
        };
        self.conflict_where(later, |a, b| !counter(a, b))
    }

    /// The conflict of what this launch did before `griddepcontrol.wait` with anything `earlier` did, when only
    /// programmatic edges lead from there to here. The first of the conflict is `earlier`. Atomics and strong accesses
    /// conflict like others here. The exception is an acquire load and a release store at device scope, with which
    /// overlapping kernels communicate progress.
    ///
    /// An access counts as after the wait when its warp has waited, or is ordered after a warp that has: by a block
    /// barrier, an mbarrier or a fence. `griddepcontrol.wait` in one lane counts for its warp.
    pub fn before_wait_conflict(&self, earlier: &Accesses) -> Option<Conflict> {
        let progress = |a: &Site, b: &Site| a.operation.is_progress() && b.operation.is_progress();
        earlier.conflict_where(self, |a, b| !b.waited && !progress(a, b))
    }

    /// Whether every block executed `griddepcontrol.wait`; a launch that did not says nothing, by ending, of the
    /// launches before it. Host copies count as having waited.
    pub fn waited(&self) -> bool {
        self.waited
    }

    /// Every `griddepcontrol.launch_dependents` executed, in order of the text; one that some warps executed before
    /// their wait and others after it stands twice.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// The conflict at the lowest address among the pairs of sites that `counts` holds for.
    fn conflict_where(
        &self,
        later: &Accesses,
        counts: impl Fn(&Site, &Site) -> bool,
    ) -> Option<Conflict> {
        let pairs = self
            .sites
            .iter()
            .flat_map(|a| later.sites.iter().map(move |b| (a, b)));
        let conflicts = pairs
            .filter(|(a, b)| counts(a, b))
            .filter_map(|(a, b)| Some((a, b, clash(a, b)?)));
        let (a, b, address) = conflicts.min_by_key(|(.., address)| *address)?;
        let kind = match (a.operation.writes(), b.operation.writes()) {
            (true, true) => ConflictKind::WriteWrite,
            (true, false) => ConflictKind::WriteRead,
            _ => ConflictKind::ReadWrite,
        };
        Some(Conflict {
            address,
            allocation: a.allocation.clone(),
            kind,
            first: (self.kernel.clone(), a.place.clone()),
            second: (later.kernel.clone(), b.place.clone()),
        })
    }

    /// A `.nc` load and a write of the same bytes, and their lowest address.
    pub(crate) fn read_only_written(&self) -> Option<(&Site, &Site, u64)> {
        let read_only = self
            .sites
            .iter()
            .filter(|s| s.operation == MemoryOperation::ReadOnly);
        let pairs = read_only.flat_map(|a| self.sites.iter().map(move |b| (a, b)));
        pairs
            .filter_map(|(a, b)| Some((a, b, clash(a, b)?)))
            .min_by_key(|(.., address)| *address)
    }
}

/// The lowest address two sites share, when one of them writes it.
fn clash(a: &Site, b: &Site) -> Option<u64> {
    if !a.operation.writes() && !b.operation.writes() || a.allocation.base != b.allocation.base {
        return None;
    }
    Some(a.allocation.base + a.bytes.first_shared(&b.bytes)?)
}

/// Bytes a page of a [`ByteSet`] covers.
const PAGE: u64 = 4096;
/// Bytes that such a page takes.
pub(crate) const BYTES_OF_PAGE: usize = (PAGE / 8) as usize;

/// A set of byte offsets, in pages that exist where needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteSet {
    pages: Vec<Option<Box<[u64; 64]>>>,
    /// Pages that exist.
    used: usize,
}

impl ByteSet {
    /// The set of `bytes` offsets from `offset` on.
    fn run(offset: u64, bytes: u64) -> ByteSet {
        let mut set = ByteSet::default();
        set.insert_run(offset, bytes);
        set
    }

    /// Adds any number of bytes; gives the pages that are new.
    pub(crate) fn insert_run(&mut self, offset: u64, bytes: u64) -> usize {
        let before = self.used;
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            let words = self.page(at);
            while at < stop {
                let count = (64 - at % 64).min(stop - at);
                words[(at / 64 % 64) as usize] |= u64::MAX >> (64 - count) << (at % 64);
                at += count;
            }
        }
        self.used - before
    }

    /// Adds up to 64 bytes that do not cross a multiple of 64; gives the pages that are new.
    #[inline]
    pub(crate) fn insert(&mut self, offset: u64, bytes: u32) -> usize {
        let before = self.used;
        self.page(offset)[(offset / 64 % 64) as usize] |= u64::MAX >> (64 - bytes) << (offset % 64);
        self.used - before
    }

    /// The page of an offset, which is made where there is none.
    fn page(&mut self, offset: u64) -> &mut [u64; 64] {
        let page = (offset / PAGE) as usize;
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        let used = &mut self.used;
        self.pages[page].get_or_insert_with(|| {
            *used += 1;
            Box::new([0; 64])
        })
    }

    /// Whether an offset is in the set.
    pub(crate) fn contains(&self, offset: u64) -> bool {
        let page = self
            .pages
            .get((offset / PAGE) as usize)
            .and_then(|p| p.as_ref());
        page.is_some_and(|words| words[(offset / 64 % 64) as usize] >> (offset % 64) & 1 != 0)
    }

    /// The lowest offset in both sets.
    fn first_shared(&self, other: &ByteSet) -> Option<u64> {
        let pages = self.pages.iter().zip(&other.pages).enumerate();
        pages
            .filter_map(|(i, (a, b))| Some((i, a.as_ref()?, b.as_ref()?)))
            .find_map(|(i, a, b)| {
                let word = a.iter().zip(&b[..]).position(|(a, b)| a & b != 0)?;
                let bit = (a[word] & b[word]).trailing_zeros();
                Some(i as u64 * PAGE + word as u64 * 64 + u64::from(bit))
            })
    }
}
