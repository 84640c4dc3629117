//! Loads, stores and atomics of shared memory.

use crate::fault::Class;
use crate::machine::memory::global::wide_atomics;
use crate::machine::memory::lane_access::{check_alignment, extend, lane_order, put, take};
use crate::machine::memory::shared::shared_checks::touch;
use crate::machine::memory::shared::{lockstep_loads, shared_warp_access};
use crate::machine::memory::{same_address, tolerance};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::atomic::Atomic;
use crate::module::code::operand::{InstructionSpace, Transfer};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::last_access::AccessProperties;

pub(crate) fn load_shared(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    let access = AccessProperties {
        pc: w.now.pc,
        reads: true,
        strong: t.order.is_strong(),
        ..AccessProperties::default()
    };
    let whole = bytes * t.regs.len() as u32;
    check_alignment(block, w, mask, addresses, whole)?;
    if access.strong {
        lockstep_loads::check_step(block, w, mask, addresses, whole, access)?;
    }
    if shared_warp_access::load_together(block, w, mask, t, addresses, access) {
        return Ok(());
    }

    let mut offsets = [0; 32];
    let checked = whole.is_multiple_of(4)
        && (t.space == InstructionSpace::Shared || block.blocks.len() == 1)
        && lanes(mask).all(|lane| {
            let access = AccessProperties {
                thread: w.index * 32 + lane as u32,
                ..access
            };
            let offset = block.shadow.read_words(addresses[lane], whole, access);
            offsets[lane] = offset.unwrap_or(0);
            offset.is_some()
        });
    for (i, to) in t.regs.iter().enumerate() {
        let mut out = [0; 32];
        let mut nothing = (0, None);
        for lane in lanes(mask) {
            let step = bytes as usize * i;
            let offset = if checked {
                Ok(offsets[lane] + step)
            } else {
                tolerance::touch_or_guess(
                    block,
                    w,
                    lane,
                    addresses[lane] + step as u64,
                    bytes,
                    access,
                )
            };
            match offset {
                Ok(offset) => out[lane] = block.shared.read(offset, bytes),
                // Algorithms look one element too far, and do not use it.
                Err(fault) if fault.class == Class::UninitialisedShared && to.is_some() => {
                    nothing = (nothing.0 | 1 << lane, nothing.1.or(Some(fault)));
                }
                Err(fault) => return Err(fault),
            }
        }

        if let Some(to) = to {
            put(
                w,
                *to,
                mask,
                &out.map(|v| extend(v, bytes, t.width.signed, to.bits)),
            );
            let (lanes, fault) = nothing;
            if let Some(fault) = fault {
                w.regs.put_off(to.bits, to.slot, lanes, fault);
            }
        }
    }

    Ok(())
}

pub(crate) fn store_shared(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    let access = AccessProperties {
        pc: w.now.pc,
        writes: true,
        strong: t.order.is_strong(),
        ..AccessProperties::default()
    };
    check_alignment(block, w, mask, addresses, bytes * t.regs.len() as u32)?;
    if shared_warp_access::store_together(block, w, mask, t, addresses, access) {
        w.effects += 1;
        return Ok(());
    }

    for (i, from) in t.regs.iter().flatten().enumerate() {
        let values = take(block, w, *from, mask)?;
        let at: Addresses = addresses.map(|a| a.wrapping_add(u64::from(bytes) * i as u64));
        same_address::check_same(block, w, mask, &at, &values, bytes)?;
        for lane in lanes(mask) {
            let offset = match touch(block, w, lane, at[lane], bytes, access) {
                Ok(offset) => offset,
                Err(fault) => {
                    tolerance::excuse_store(block, w, fault, (at[lane], bytes), values[lane])?;
                    tolerance::touch_tolerated(block, w, lane, at[lane], bytes, access)
                }
            };
            block.shared.write(offset, bytes, values[lane]);
        }
    }

    w.effects += 1;
    Ok(())
}

pub(crate) fn atomic_shared(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    a: &Atomic,
    addresses: &Addresses,
) -> Checked<()> {
    let access = AccessProperties {
        pc: w.now.pc,
        reads: true,
        writes: true,
        strong: true,
        ..AccessProperties::default()
    };
    check_alignment(block, w, mask, addresses, a.bytes)?;
    if let Some(high) = &a.high {
        return wide_atomics::wide_atomic_shared(block, w, mask, (a, high), addresses, access);
    }

    let b = take(block, w, a.b, mask)?;
    let c = match a.c {
        Some(c) => take(block, w, c, mask)?,
        None => b,
    };
    let mut old = [0; 32];
    for lane in lane_order(block, mask) {
        let offset = tolerance::touch_or_guess(block, w, lane, addresses[lane], a.bytes, access)?;
        old[lane] = block.shared.read(offset, a.bytes);
        let new = (a.f)(old[lane], b[lane], c[lane]);
        w.effects += u64::from(new != old[lane]);
        block.shared.write(offset, a.bytes, new);
    }

    if let Some(d) = a.d {
        put(w, d, mask, &old);
    }

    Ok(())
}
