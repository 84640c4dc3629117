//! Reports loads of shared memory that rely on lanes in lockstep.

use crate::fault::Class;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::lane_mask::lanes;
use crate::sanitize::race::last_access::AccessProperties;
use crate::sanitize::race::shared::lockstep::polls;
use crate::sanitize::race::tolerated_races::is_atomic;

/// Returns a fault if a strong load of shared memory relies on lanes that run in lockstep.
#[cold]
pub(crate) fn check_step(
    block: &Block<'_, '_>,
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
        let Some(store) = block.shadow.stored_in_step(at[lane], bytes, access) else {
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
