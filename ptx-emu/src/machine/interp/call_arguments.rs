//! The arguments of calls.

use crate::fault::Class;
use crate::machine::memory::{lane_access, local};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::call::Passed;
use crate::module::lane_mask::lanes;

/// Returns the lanes in which an argument in a register is initialized.
pub(crate) fn known(w: &Warp, lanes: u32, p: Passed) -> Checked<u32> {
    let Passed::Register(r) = p else {
        return Ok(u32::MAX);
    };
    local::check_found(w, r, lanes)?;
    Ok(w.regs.defined(r.bits, r.slot))
}

/// Returns the value of an argument of at most eight bytes.
pub(crate) fn passed(block: &Block<'_, '_>, w: &Warp, lanes: u32, p: Passed) -> Checked<[u64; 32]> {
    match p {
        Passed::Local { offset, bytes } => read_local(block, w, w.frame + offset, bytes, lanes),
        Passed::Register(r) => lane_access::take(block, w, r, lanes),
        Passed::Literal(value) => Ok([value; 32]),
    }
}

pub(crate) fn read_local(
    block: &Block<'_, '_>,
    w: &Warp,
    at: u32,
    bytes: u32,
    mask: u32,
) -> Checked<[u64; 32]> {
    let mut out = [0; 32];
    for lane in lanes(mask) {
        for k in 0..bytes.min(8) {
            let Some(byte) = local_byte(w, at + k, lane) else {
                let what = "an argument or result is used that the thread has not written";
                let mut fault = block.fault(w, 1 << lane, Class::UninitialisedLocal, what);
                fault.address = Some((at + k).into());
                return Err(fault);
            };
            out[lane] |= u64::from(byte) << (8 * k);
        }
    }
    Ok(out)
}

/// Copies local memory of lanes with its initialization.
pub(crate) fn copy_local(w: &mut Warp, from: u32, to: u32, bytes: u32, mask: u32) {
    let whole = if (from | to).is_multiple_of(4) {
        bytes / 4
    } else {
        0
    };
    for k in 0..whole {
        let from = (from / 4 + k) as usize;
        let to = (to / 4 + k) as usize;
        for lane in lanes(mask) {
            w.local[to][lane] = w.local[from][lane];
            w.local_init[to][lane] = w.local_init[from][lane];
        }
    }
    for k in 4 * whole..bytes {
        for lane in lanes(mask) {
            if let Some(byte) = local_byte(w, from + k, lane) {
                set_local_byte(w, to + k, lane, byte);
            }
        }
    }
}

pub(crate) fn write_local(w: &mut Warp, at: u32, bytes: u32, mask: u32, values: &[u64; 32]) {
    for lane in lanes(mask) {
        for k in 0..bytes.min(8) {
            set_local_byte(w, at + k, lane, (values[lane] >> (8 * k)) as u8);
        }
    }
}

/// Returns a byte of a lane's local memory if it is initialized.
pub(crate) fn local_byte(w: &Warp, at: u32, lane: usize) -> Option<u8> {
    let word = at as usize / 4;
    let shift = at % 4;
    let known = w.local_init.get(word)?[lane] >> shift & 1 != 0;
    known.then(|| (w.local[word][lane] >> (8 * shift)) as u8)
}

fn set_local_byte(w: &mut Warp, at: u32, lane: usize, byte: u8) {
    let shift = 8 * (at % 4);
    let word = &mut w.local[at as usize / 4][lane];
    *word = *word & !(0xff << shift) | u32::from(byte) << shift;
    w.local_init[at as usize / 4][lane] |= 1 << (at % 4);
}
