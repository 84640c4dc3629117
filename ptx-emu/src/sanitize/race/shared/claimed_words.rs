//! Pending writes of copies to shared memory: checks whether a copy may write its words, and
//! records it.

use crate::module::address_space::SHARED_BASE;
use crate::sanitize::race::last_access::{AccessProperties, LastAccess, Proxy};
use crate::sanitize::race::order::vector_clocks::Clocks;
use crate::sanitize::race::shared::shared_shadow::SharedShadow;

impl SharedShadow {
    /// Returns true if a copy may write whole words. Otherwise, [`SharedShadow::unfenced`] and
    /// [`SharedShadow::touch`] describe the conflict.
    pub(crate) fn may_claim(&mut self, address: u64, bytes: u32, access: AccessProperties) -> bool {
        self.settle();
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let first = offset / 4;
        let count = u64::from(bytes / 4);
        if first.saturating_add(count) > self.valid.len() as u64 {
            return false;
        }

        let warps = self.clocks.warps();
        let claim = Claim::new(&self.clocks, self.stamp(access, 15), access.proxy);
        (first as usize..(first + count) as usize).all(|word| {
            let cell = &self.cells[word];
            let row = word * warps..(word + 1) * warps;
            let copied = usize::from(cell.write.thread) / 32 >= warps;
            let read_beside = self.async_readers.get(row.clone()).unwrap_or_default();
            self.valid[word] == 15
                && claim.is_over(&cell.write)
                && cell.reads.iter().all(|read| claim.is_over(read))
                && (!copied || claim.follows(&self.readers[row]))
                && read_beside.iter().all(|read| claim.is_ordered(read))
        })
    }

    /// Records that a copy writes whole words, which [`SharedShadow::may_claim`] allowed. An access
    /// that is ordered after the copy is also ordered after earlier reads.
    pub(crate) fn claim(&mut self, address: u32, bytes: u32, access: AccessProperties) {
        self.settle();
        let write = self.stamp(access, 15);
        self.last_write = self.last_write.max(write.clock);
        let first = ((address - SHARED_BASE) / 4) as usize;
        let count = bytes as usize / 4;
        self.cells[first..first + count]
            .iter_mut()
            .for_each(|cell| cell.write = write);
        self.init[first..first + count].fill(15);
        let rows = first * self.clocks.warps()..(first + count) * self.clocks.warps();
        if let Some(reads) = self.readers.get_mut(rows.clone()) {
            reads.fill((0, 0));
        }
        if let Some(reads) = self.async_readers.get_mut(rows) {
            reads.fill(LastAccess::default());
        }
    }

    /// Returns an access to a word that a bulk copy of a warp may overtake, and whether it was a
    /// write.
    pub(crate) fn unfenced(&mut self, address: u64, warp: u32) -> Option<(LastAccess, bool)> {
        self.settle();
        let word = (address.wrapping_sub(SHARED_BASE.into()) / 4) as usize;
        let cell = self.cells.get(word)?;
        let reads = cell
            .reads
            .into_iter()
            .chain(self.copied_reads(word, 15))
            .map(|read| (read, false));
        let mut all = std::iter::once((cell.write, true)).chain(reads);
        all.find(|(t, _)| !self.clocks.proxied(warp, t.thread, t.clock))
    }
}

/// A write by a copy, and the accesses that are ordered before it.
struct Claim<'a> {
    new: LastAccess,
    past: u32,
    warps: usize,
    /// The clock of each warp and agent up to which accesses are ordered before the copy.
    seen: &'a [u32],
    /// The clock of each warp up to which accesses are also known to the proxy of the copy.
    known: &'a [u32],
    /// The issuing warp, if its own reads need no fence.
    own: Option<usize>,
}

impl<'a> Claim<'a> {
    fn new(clocks: &'a Clocks, new: LastAccess, proxy: Proxy) -> Claim<'a> {
        let warp = usize::from(new.thread) / 32;
        let warps = clocks.warps();
        let seen = &clocks.seen(warp)[..];
        let (known, own) = match proxy {
            Proxy::Generic => (seen, Some(warp)),
            Proxy::Async => (&seen[warps..], None),
        };
        Claim {
            new,
            past: clocks.past(),
            warps,
            seen,
            known,
            own,
        }
    }

    /// Returns true if an access is ordered before the copy.
    #[inline]
    fn is_ordered(&self, t: &LastAccess) -> bool {
        t.clock <= self.past
            || t.thread == self.new.thread
            || t.clock <= self.seen[usize::from(t.thread) / 32]
    }

    /// Returns true if an access is ordered before the copy and, for a thread, known to its proxy.
    #[inline]
    fn is_over(&self, t: &LastAccess) -> bool {
        let v = usize::from(t.thread) / 32;
        let free = v >= self.warps || self.own.is_some();
        t.clock <= self.past || self.is_ordered(t) && (free || t.clock <= self.known[v])
    }

    /// Returns true if the last reads of all warps are ordered before the copy and known to its
    /// proxy.
    #[inline]
    fn follows(&self, readers: &[(u32, u32)]) -> bool {
        let mut all = readers.iter().zip(self.known).enumerate();
        all.all(|(v, (read, known))| read.0 <= *known || Some(v) == self.own)
    }
}
