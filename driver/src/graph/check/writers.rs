//! The nodes of a graph that write each memory.

use crate::graph::check::by_memory::ByMemory;
use crate::memory::Region;
use crate::ordering::memory_accesses::MemoryAccess;

/// The nodes that write each memory. The map is only searched and never iterated.
#[derive(Clone, Default)]
pub(crate) struct Writers(ByMemory<Vec<usize>>);

impl Writers {
    pub(crate) fn add(&mut self, node: usize, touch: MemoryAccess<'_>) {
        if touch.access.writes() {
            self.0.entry(touch.region.memory()).or_default().push(node);
        }
    }

    /// Returns the nodes that write this memory.
    pub(crate) fn of_memory(&self, region: &Region) -> &[usize] {
        self.0.get(&region.memory()).map_or(&[], Vec::as_slice)
    }
}
