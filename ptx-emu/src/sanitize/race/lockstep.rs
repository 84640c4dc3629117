//! Lanes that rely on executing in lockstep: they exchange values by volatile accesses to shared
//! memory, and nothing orders the load of one lane after the store of another.
//!
//! In PTX such accesses are relaxed, so they do not race. The loaded value is still undefined,
//! because lanes are separate threads. Here lanes execute in lockstep, so the value looks right and
//! the bug would stay hidden. A load is not reported if an old value is acceptable:
//!
//! - a load in a loop without stores, which polls, or a similar load before that loop
//! - a load of one address by all lanes, for example of a flag that ends a search

use crate::Class;
use crate::machine::lane_mask::lanes;
use crate::machine::memory::load_store::Addresses;
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::module::code::{KernelCode, Op};
pub(crate) use crate::module::decode::SHARED_BASE;
use crate::sanitize::race::shared_shadow::{AccessProperties, LastAccess, SharedMemory};
use crate::sanitize::race::tolerated_races::{address, is_atomic, parts};

/// Returns a fault if a strong load of shared memory relies on lanes that run in lockstep.
#[cold]
pub(crate) fn check_step(
    block: &Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    at: &Addresses,
    bytes: u32,
    access: AccessProperties,
) -> Checked<()> {
    let first = at[mask.trailing_zeros() as usize % 32];
    if lanes(mask).all(|lane| at[lane] == first) {
        return Ok(());
    }
    let code = block.grid.code;
    for lane in lanes(mask) {
        let access = AccessProperties {
            thread: w.index * 32 + lane as u32,
            ..access
        };
        let Some(store) = block.shared.stored_in_step(at[lane], bytes, access) else {
            continue;
        };
        if is_atomic(&code.places[store.pc as usize]) || polls(code, w.now.pc) {
            continue;
        }
        let what = "a lane loads what another lane of its warp stored, and nothing orders the two: lanes need not go in \
                    step, and volatile does not make them";
        let mut fault = block.fault(w, 1 << lane, Class::WarpSynchronous, what);
        fault.instead = "put __syncwarp() (bar.warp.sync) between the two";
        block.locate_shared(&mut fault, at[lane]);
        fault.other = Some(block.earlier(store.pc, store.thread.into(), "wrote"));
        return Err(fault);
    }
    Ok(())
}

impl SharedMemory {
    /// Returns an unordered strong store to some of these bytes by another lane of the warp.
    fn stored_in_step(
        &self,
        address: u64,
        bytes: u32,
        access: AccessProperties,
    ) -> Option<LastAccess> {
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let words = offset / 4..offset.checked_add(bytes.into())?.div_ceil(4);
        let mask = if bytes >= 4 {
            15
        } else {
            ((1 << bytes) - 1) << (offset % 4)
        };
        // Both as if they were plain: then they race.
        let load = LastAccess {
            strong: false,
            ..self.stamp(access, mask)
        };
        let mut stores = words.filter_map(|word| Some(self.cells.get(word as usize)?.write));
        stores.find(|store| store.strong && store.is_of_warp(&load) && self.races(store, &load))
    }
}

/// Returns true if a load, or another load of the same operand, is in a loop without stores and
/// barriers.
fn polls(code: &KernelCode, load: u32) -> bool {
    let place = |pc: u32| parts(&code.places[pc as usize]);
    let of = address(place(load).1);
    let acts = |pc| {
        let opcode = place(pc).0.split('.').next().unwrap_or_default();
        matches!(opcode, "st" | "atom" | "red" | "bar" | "barrier" | "call")
    };
    (0..).zip(&code.ops).any(|(pc, step)| match step.op {
        Op::Branch { target, .. } if target <= pc => {
            let again =
                |pc: u32| pc == load || place(pc).0.starts_with("ld") && address(place(pc).1) == of;
            (target..=pc).any(again) && !(target..=pc).any(acts)
        }
        _ => false,
    })
}
