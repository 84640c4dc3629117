//! The parameters of a kernel as memory: read through a register.

use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::{extend, put};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::Transfer;
use crate::module::lane_mask::{lanes, set_bit};
use crate::{Class, Fault};

pub(crate) fn load_parameters(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    let whole = u64::from(bytes) * t.regs.len() as u64;
    lane_access::check_alignment(block, w, mask, addresses, whole as u32)?;
    let params = block.grid.launch.params;
    let outside = |lane: &usize| addresses[*lane].saturating_add(whole) > params.len() as u64;
    let bad = lanes(mask).filter(outside).fold(0, set_bit);
    if bad != 0 {
        return Err(beyond_parameters(
            block,
            w,
            bad,
            addresses[bad.trailing_zeros() as usize],
            whole,
        ));
    }

    for (i, to) in t.regs.iter().enumerate() {
        let mut out = [0; 32];
        for lane in lanes(mask) {
            let at = addresses[lane] as usize + bytes as usize * i;
            let byte = |k: usize| u64::from(params[at + k]) << (8 * k);
            out[lane] = (0..bytes as usize).map(byte).sum();
        }
        if let Some(to) = to {
            put(
                w,
                *to,
                mask,
                &out.map(|v| extend(v, bytes, t.width.signed, to.bits)),
            );
        }
    }

    Ok(())
}

#[cold]
fn beyond_parameters(
    block: &Block<'_, '_>,
    w: &Warp,
    bad: u32,
    address: u64,
    bytes: u64,
) -> Box<Fault> {
    let all = block.grid.launch.params.len();
    let what = format!(
        "{bytes} bytes of the parameters are read at offset {address}; the kernel has {all} bytes of them"
    );
    let mut fault = block.fault(w, bad, Class::OutOfBounds, what);
    fault.instead = "check the index against the length of the array in the parameter";
    fault.address = Some(address);
    fault
}

#[cold]
pub(crate) fn parameters_written(block: &Block<'_, '_>, w: &Warp, mask: u32) -> Box<Fault> {
    let mut fault = block.fault(
        w,
        mask,
        Class::ReadOnlySpace,
        "a parameter of the kernel is written",
    );
    fault.instead = "copy it to a variable of the thread first";
    fault
}
