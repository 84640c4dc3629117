//! Lanes that rely on executing in lockstep: they exchange values by volatile accesses to shared
//! memory, and nothing orders the load of one lane after the store of another.
//!
//! In PTX such accesses are relaxed, so they do not race. The loaded value is still undefined,
//! because lanes are separate threads. Here lanes execute in lockstep, so the value looks right and
//! the bug would stay hidden. A load is not reported if an old value is acceptable:
//!
//! - a load in a loop without stores, which polls, or a similar load before that loop
//! - a load of one address by all lanes, for example of a flag that ends a search

pub(crate) use crate::module::address_space::SHARED_BASE;
use crate::module::code::{KernelCode, Op};
use crate::sanitize::race::last_access::{AccessProperties, LastAccess};
use crate::sanitize::race::shared::shared_shadow::SharedShadow;
use crate::sanitize::race::tolerated_races::{address, parts};

impl SharedShadow {
    /// Returns an unordered strong store to some of these bytes by another lane of the warp.
    pub(crate) fn stored_in_step(
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
pub(crate) fn polls(code: &KernelCode, load: u32) -> bool {
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
