//! Recorded accesses to words of memory.

/// A recorded access to some bytes of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastAccess {
    /// The clock of the warp at the access, or 0 if there was none.
    pub(crate) clock: u32,
    pub(crate) pc: u32,
    pub(crate) thread: u16,
    /// The accessed bytes of the word, one bit each.
    pub(crate) bytes: u8,
    /// Whether it is atomic, volatile or otherwise ordered at its address.
    pub(crate) strong: bool,
}

impl LastAccess {
    /// Returns true if both accesses are by the same warp.
    pub(crate) fn is_of_warp(&self, other: &LastAccess) -> bool {
        self.thread / 32 == other.thread / 32
    }

    /// Returns this read, combined with the reads of its warp since its last synchronization.
    pub(crate) fn with(self, last: &LastAccess) -> LastAccess {
        let same = last.clock == self.clock;
        let (bytes, strong) = if same {
            (last.bytes, last.strong)
        } else {
            (0, true)
        };
        LastAccess {
            bytes: self.bytes | bytes,
            strong: self.strong && strong,
            ..self
        }
    }

    /// Returns this write, combined with the writes of its thread since its last synchronization.
    pub(crate) fn after(self, last: &LastAccess) -> LastAccess {
        let same = last.thread == self.thread && last.clock == self.clock;
        LastAccess {
            bytes: self.bytes | if same { last.bytes } else { 0 },
            ..self
        }
    }
}

/// Returns true if two writes are by lanes of the same store. They do not race, and their values
/// are compared separately.
pub(crate) fn same_store(earlier: &LastAccess, new: &LastAccess) -> bool {
    earlier.pc == new.pc && earlier.thread / 32 == new.thread / 32
}

/// The proxy of an access (PTX ISA, "Proxies").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// Threads and `cp.async`.
    #[default]
    Generic,
    /// Bulk copies and `wgmma`.
    Async,
}

/// The properties of an access.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccessProperties {
    pub(crate) pc: u32,
    pub(crate) thread: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// Whether it is atomic, volatile or otherwise ordered at its address.
    pub(crate) strong: bool,
    pub(crate) proxy: Proxy,
}

/// Records a read. It replaces one that is over, one of the same thread, or the second one.
pub(crate) fn remember(reads: &mut [LastAccess; 2], new: LastAccess, seen: &[u32]) {
    let over = |t: &LastAccess| t.clock <= seen[usize::from(t.thread) / 32];
    let own = |t: &LastAccess| t.thread == new.thread && t.clock == new.clock;
    let (at, keep) = match reads {
        [a, _] if own(a) => (0, a.bytes),
        [_, b] if own(b) => (1, b.bytes),
        [a, _] if over(a) || a.thread == new.thread => (0, 0),
        _ => (1, 0),
    };
    reads[at] = LastAccess {
        bytes: new.bytes | keep,
        ..new
    };
}
