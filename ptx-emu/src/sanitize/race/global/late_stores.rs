//! Strong stores of a traced launch that other blocks may not see yet.

use rustc_hash::FxHashMap;

/// The value at an address before a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplacedValue {
    pub(crate) value: u128,
    /// Whether the value was initialized.
    pub(crate) known: bool,
    /// The storing instruction.
    pub(crate) pc: u32,
}

/// A store that other blocks may not see yet.
#[derive(Debug)]
pub(crate) struct LateStore {
    pub(crate) bytes: u32,
    pub(crate) before: ReplacedValue,
    pub(crate) block: u32,
    pub(crate) thread: u16,
    pub(crate) count: u32,
    /// The blocks that have read the earlier value.
    pub(crate) told: Vec<u32>,
}

/// The pending stores of a launch, by address.
#[derive(Debug, Default)]
pub(crate) struct LateStores(pub(crate) FxHashMap<u64, LateStore>);

impl LateStores {
    /// Publishes the pending stores of a block for which `ordered` is true, given a thread and its
    /// count.
    pub(crate) fn arrive(&mut self, block: u32, ordered: impl Fn(u16, u32) -> bool) {
        self.0
            .retain(|_, late| late.block != block || !ordered(late.thread, late.count));
    }

    /// Removes pending stores to bytes that are written, or whose value is known.
    pub(crate) fn forget(&mut self, address: u64, bytes: u32) {
        if !self.0.is_empty() {
            (address..address + u64::from(bytes)).for_each(|at| _ = self.0.remove(&at));
        }
    }

    /// Returns the earlier value that a block reads at an address, if a store has not reached the
    /// block.
    pub(crate) fn read(&mut self, address: u64, bytes: u32, block: u32) -> Option<ReplacedValue> {
        let late = self
            .0
            .get_mut(&address)
            .filter(|late| late.block != block)?;
        if late.bytes != bytes || late.told.contains(&block) {
            self.0.remove(&address);
            return None;
        }

        late.told.push(block);
        Some(late.before)
    }
}
