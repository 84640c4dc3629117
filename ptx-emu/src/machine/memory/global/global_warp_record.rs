//! Accesses of a whole warp to global memory in a traced launch, recorded at once.
//!
//! The lanes of a warp mostly access words side by side, in one run or a few, or all load the same.
//! If such an access races with nothing, it is recorded run by run; otherwise the lanes are
//! recorded [one by one](crate::machine::memory::global::global_access), which names the race.

use std::ops::Range;

use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::memory::global::address_pattern::compare;
use crate::machine::state::block::Block;
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::MemoryScope;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::sanitize::race::global::word_accesses::LaneSpread;
use crate::sanitize::race::last_access::AccessProperties;

/// The maximum number of word runs that are recorded at the same time.
const MOST_RUNS: usize = 8;

/// Returns the words that the lanes access as runs, or `None` if there are too many runs.
fn runs_of(
    mask: u32,
    addresses: &Addresses,
    words: u32,
    runs: &mut [(Range<u64>, LaneSpread); MOST_RUNS],
) -> Option<usize> {
    let each = u64::from(words);
    let shift = words.trailing_zeros();
    let first = addresses[0] / 4;
    let (uneven, apart) = compare(addresses, 4 * each);
    if apart == 0 {
        runs[0] = (first..first + each, LaneSpread::Same(mask));
        return Some(1);
    }

    if mask == u32::MAX && uneven == 0 {
        runs[0] = (
            first..first + 32 * each,
            LaneSpread::Beside {
                first,
                lane: 0,
                shift,
            },
        );
        return Some(1);
    }

    let mut count = 0;
    let mut next = u64::MAX;
    for (lane, address) in addresses.iter().enumerate().filter(|_| mask == u32::MAX) {
        let first = address / 4;
        if first != next {
            *runs.get_mut(count)? = (
                first..first,
                LaneSpread::Beside {
                    first,
                    lane: lane as u32,
                    shift,
                },
            );
            count += 1;
        }

        next = first + each;
        runs[count - 1].0.end = next;
    }

    Some(count).filter(|count| *count > 0)
}

/// Records an access by all lanes at the same time. They must access adjacent words, or load
/// the same ones, without a race.
pub(crate) fn record_together(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    (operation, scope): (MemoryOperation, MemoryScope),
    a: &ShadowedAllocation,
    addresses: &Addresses,
    bytes: u32,
) -> bool {
    let writes = operation.writes();
    let whole = bytes.is_multiple_of(4) && (bytes / 4).is_power_of_two();
    let Some(recorder) = block.recorder.as_mut().filter(|_| whole) else {
        return false;
    };

    let seen = if scope == MemoryScope::Device {
        operation
    } else {
        operation.within_block()
    };
    if operation.is_strong() {
        return false;
    }

    let access = AccessProperties {
        pc: w.now.pc,
        thread: w.index * 32,
        reads: true,
        writes,
        ..AccessProperties::default()
    };
    let mut runs = [const { (0..0, LaneSpread::Same(0)) }; MOST_RUNS];
    match runs_of(mask, addresses, bytes / 4, &mut runs) {
        None => false,
        Some(_)
            if writes
                && matches!(runs[0].1, LaneSpread::Same(lanes) if !lanes.is_power_of_two()) =>
        {
            false
        }
        Some(n) => recorder.record_together(&block.shadow, access, seen, a.base, &runs[..n]),
    }
}
