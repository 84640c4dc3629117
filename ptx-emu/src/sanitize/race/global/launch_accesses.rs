//! The bytes that a launch accessed, and conflicts between two launches.

use crate::fault::{AllocationInfo, SourcePlace};

/// The bytes that a traced launch read and wrote, by instruction and allocation.
///
/// # Example: two launches that nothing orders
/// ```
/// use ptx_emu::{Accesses, ConflictKind, Memory};
///
/// let memory = Memory::new(1 << 20);
/// let x = memory.alloc(16)?;
/// let copy = Accesses::from_host(&memory, "copy", &[], &[(x, 8)]);
/// let kernel = Accesses::from_host(&memory, "kernel", &[(x + 4, 8)], &[]);
///
/// let conflict = copy.conflict(&kernel).expect("both access bytes 4 to 7");
/// assert_eq!((conflict.address, conflict.kind), (x + 4, ConflictKind::WriteRead));
/// # Ok::<(), ptx_emu::MemoryError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    pub(crate) kernel: String,
    pub(crate) sites: Vec<Site>,
    pub(crate) waited: bool,
    pub(crate) triggers: Vec<Trigger>,
}

/// An executed `griddepcontrol.launch_dependents`, which lets the next launches of the stream start
/// before this one ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The instruction.
    pub place: SourcePlace,
    /// Whether the thread had executed `griddepcontrol.wait` before. If not, the dependents of this
    /// launch may start while the launches before it still run.
    pub waited: bool,
}

/// The accesses of one instruction to one allocation.
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

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOperation {
    Read,
    /// `.nc`: a read of memory that must not be written during the launch.
    ReadOnly,
    /// A `.relaxed` or `.volatile` read.
    StrongRead,
    /// An `.acquire` read.
    Acquire,
    Write,
    /// A `.relaxed` or `.volatile` write.
    StrongWrite,
    /// A `.release` write.
    Release,
    Atomic,
}

/// The kinds of the two accesses in a [`Conflict`]. The first word stands for the first launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// Both launches wrote.
    WriteWrite,
    /// The first launch wrote, and the second launch read.
    WriteRead,
    /// The first launch read, and the second launch wrote.
    ReadWrite,
}

/// Bytes that two launches accessed, and that at least one of them wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The lowest address in conflict.
    pub address: u64,
    /// The allocation that contains the address.
    pub allocation: AllocationInfo,
    /// The kinds of the two accesses.
    pub kind: ConflictKind,
    /// The kernel and the instruction of the first launch.
    pub first: (String, SourcePlace),
    /// The kernel and the instruction of the second launch.
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

    /// Returns true if overlapping kernels use such an access to communicate progress.
    fn is_progress(self) -> bool {
        matches!(self, MemoryOperation::Acquire | MemoryOperation::Release)
    }

    /// Returns the kind of an access of block scope as other blocks see it, which is an ordinary
    /// access.
    pub(crate) fn within_block(self) -> MemoryOperation {
        match self {
            MemoryOperation::ReadOnly => MemoryOperation::ReadOnly,
            _ if self.writes() => MemoryOperation::Write,
            _ => MemoryOperation::Read,
        }
    }

    /// Returns true if the access may meet another strong access at its address without a race.
    pub(crate) fn is_strong(self) -> bool {
        !matches!(
            self,
            MemoryOperation::Read | MemoryOperation::ReadOnly | MemoryOperation::Write
        )
    }
}

impl Accesses {
    /// Returns the conflict at the lowest address with a launch that is not ordered after this one.
    ///
    /// Atomics do not conflict with atomics or strong loads, if both have device scope.
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

    /// Returns the conflict of an access before `griddepcontrol.wait` in this launch with any
    /// access of `earlier`.
    ///
    /// Call it for two launches that only programmatic edges order. In the result, `first` belongs
    /// to `earlier`. Atomics and strong accesses conflict like ordinary ones. The exception is an
    /// acquire load and a release store of device scope, by which overlapping kernels communicate
    /// progress.
    ///
    /// An access is after the wait if its warp has waited, or if it is ordered after a warp that
    /// has waited, by a block barrier, an mbarrier or a fence. A `griddepcontrol.wait` in one lane
    /// counts for its warp.
    pub fn before_wait_conflict(&self, earlier: &Accesses) -> Option<Conflict> {
        let progress = |a: &Site, b: &Site| a.operation.is_progress() && b.operation.is_progress();
        earlier.conflict_where(self, |a, b| !b.waited && !progress(a, b))
    }

    /// Returns true if every block executed `griddepcontrol.wait`.
    ///
    /// If false, the end of the launch does not imply the end of the launches before it. Copies by
    /// the host count as having waited.
    pub fn waited(&self) -> bool {
        self.waited
    }

    /// Returns the executed `griddepcontrol.launch_dependents` in the order of the text.
    ///
    /// An instruction is listed twice if some warps executed it before their wait and others after
    /// it.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// Returns the conflict at the lowest address among the pairs of sites for which `counts` is
    /// true.
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

        // The lowest address is reported, so that the result does not depend on the order of the
        // sites.
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

    /// Returns an `.nc` load and a write of the same bytes, with their lowest common address.
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

/// Returns the lowest address that two sites share, if one of them writes it.
fn clash(a: &Site, b: &Site) -> Option<u64> {
    if !a.operation.writes() && !b.operation.writes() || a.allocation.base != b.allocation.base {
        return None;
    }
    Some(a.allocation.base + a.bytes.first_shared(&b.bytes)?)
}

/// The number of offsets that a page of a [`ByteSet`] covers.
const PAGE: u64 = 4096;
/// The size of such a page in bytes.
pub(crate) const BYTES_OF_PAGE: usize = (PAGE / 8) as usize;

/// A set of byte offsets, stored as a bitmap in pages. Empty pages are not allocated.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteSet {
    pages: Vec<Option<Box<[u64; 64]>>>,
    /// The number of allocated pages.
    used: usize,
}

impl ByteSet {
    /// Creates the set of `bytes` offsets starting at `offset`.
    pub(crate) fn run(offset: u64, bytes: u64) -> ByteSet {
        let mut set = ByteSet::default();
        set.insert_run(offset, bytes);
        set
    }

    /// Adds any number of offsets and returns the number of newly allocated pages.
    pub(crate) fn insert_run(&mut self, offset: u64, bytes: u64) -> usize {
        let before = self.used;
        let mut at = offset;
        let end = offset + bytes;
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

    /// Adds up to 64 offsets that do not cross a multiple of 64. Returns the number of newly
    /// allocated pages.
    #[inline]
    pub(crate) fn insert(&mut self, offset: u64, bytes: u32) -> usize {
        let before = self.used;
        self.page(offset)[(offset / 64 % 64) as usize] |= u64::MAX >> (64 - bytes) << (offset % 64);
        self.used - before
    }

    /// Returns the page of an offset and allocates it if necessary.
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

    /// Returns true if the set contains an offset.
    pub(crate) fn contains(&self, offset: u64) -> bool {
        let page = self
            .pages
            .get((offset / PAGE) as usize)
            .and_then(|p| p.as_ref());
        page.is_some_and(|words| words[(offset / 64 % 64) as usize] >> (offset % 64) & 1 != 0)
    }

    /// Returns the lowest offset in both sets.
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
