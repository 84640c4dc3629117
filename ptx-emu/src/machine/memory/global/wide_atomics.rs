//! Atomics on 128 bits, whose operands are registers in two halves.

use std::sync::PoisonError;

use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::device::allocation_words::{read, write};
use crate::machine::memory::global::global_record;
use crate::machine::memory::lane_access::put;
use crate::machine::memory::{lane_access, tolerance};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::{Atomic, High, RegisterOperand};
use crate::sanitize::race::last_access::AccessProperties;

/// The 128-bit values of all lanes.
type Wide = [u128; 32];

fn join(low: u64, high: u64) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

/// Updates 16 bytes atomically and returns the old value, see
/// [`update`](crate::machine::memory::global::global_access::update).
fn update(a: &ShadowedAllocation, offset: u64, f: impl Fn(u128) -> u128) -> u128 {
    let _held = a.wide.lock().unwrap_or_else(PoisonError::into_inner);
    let old = join(read(a, offset, 8), read(a, offset + 8, 8));
    let new = f(old);
    write(a, offset, 8, new as u64);
    write(a, offset + 8, 8, (new >> 64) as u64);
    old
}

/// Writes the old values to the lanes of a mask.
fn give(w: &mut Warp, (a, high): (&Atomic, &High), mask: u32, old: &Wide) {
    if let Some(d) = a.d {
        put(w, d, mask, &old.map(|v| v as u64));
    }
    if let Some(d) = high.d {
        put(w, d, mask, &old.map(|v| (v >> 64) as u64));
    }
}

fn take_wide(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    low: RegisterOperand,
    high: RegisterOperand,
) -> Checked<Wide> {
    let low = lane_access::take(block, w, low, mask)?;
    let high = lane_access::take(block, w, high, mask)?;
    Ok(std::array::from_fn(|lane| join(low[lane], high[lane])))
}

/// Returns the operands `b` and `c`. Without `c`, both are `b`.
fn wide_operands(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    (a, high): (&Atomic, &High),
) -> Checked<(Wide, Wide)> {
    let b = take_wide(block, w, mask, a.b, high.b)?;
    match (a.c, high.c) {
        (Some(low), Some(high)) => Ok((b, take_wide(block, w, mask, low, high)?)),
        _ => Ok((b, b)),
    }
}

/// Executes a 128-bit atomic at aligned addresses of global memory.
pub(crate) fn wide_atomic_global(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    (a, high): (&Atomic, &High),
    addresses: &Addresses,
) -> Checked<()> {
    let (b, c) = wide_operands(block, w, mask, (a, high))?;
    let mut old = [0; 32];
    for lane in lane_access::lane_order(block, mask) {
        let memory = global_record::atomic_place(block, w, lane, a, addresses)?;
        let new = |m| (high.f)(m, b[lane], c[lane]);
        old[lane] = update(memory, addresses[lane] - memory.base, new);
        w.effects += u64::from(new(old[lane]) != old[lane]);
    }

    give(w, (a, high), mask, &old);
    Ok(())
}

/// Executes a 128-bit atomic at aligned addresses of shared memory.
pub(crate) fn wide_atomic_shared(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    (a, high): (&Atomic, &High),
    addresses: &Addresses,
    access: AccessProperties,
) -> Checked<()> {
    let (b, c) = wide_operands(block, w, mask, (a, high))?;
    let mut old = [0; 32];
    for lane in lane_access::lane_order(block, mask) {
        let offset = tolerance::touch_or_guess(block, w, lane, addresses[lane], a.bytes, access)?;
        old[lane] = join(
            block.shared.read(offset, 8),
            block.shared.read(offset + 8, 8),
        );
        let new = (high.f)(old[lane], b[lane], c[lane]);
        w.effects += u64::from(new != old[lane]);
        block.shared.write(offset, 8, new as u64);
        block.shared.write(offset + 8, 8, (new >> 64) as u64);
    }

    give(w, (a, high), mask, &old);
    Ok(())
}
