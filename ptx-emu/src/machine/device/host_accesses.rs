//! The accesses of copies and fills by the host, for the comparison with launches.

use crate::fault::SourcePlace;
use crate::machine::device::device_memory::Memory;
use crate::sanitize::race::global::launch_accesses::{Accesses, ByteSet, MemoryOperation, Site};

impl Accesses {
    /// Creates the accesses of a copy or a fill by the host.
    ///
    /// `reads` and `writes` are ranges as (address, bytes). A conflict reports the copy under
    /// `name`, in line 0.
    pub fn from_host(
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
            // A run outside of every allocation was refused by the copy itself, so there is nothing
            // to compare.
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
}
