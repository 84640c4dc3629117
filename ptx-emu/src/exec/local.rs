//! Loads and stores of local memory, of which each thread has its own.

use super::block::{Checked, Worker};
use super::memory::{Addresses, put};
use super::step::extend;
use super::warp::Warp;
use super::{lanes, set_bit};
use crate::Class;
use crate::code::{Transfer, Unwritten};

impl Worker<'_, '_> {
    pub(super) fn load_local(
        &mut self,
        w: &mut Warp,
        mask: u32,
        t: &Transfer,
        addresses: &Addresses,
    ) -> Checked<()> {
        let bytes = t.width.bytes;
        self.check_local(w, mask, t, addresses)?;
        for (i, to) in t.regs.iter().enumerate() {
            let (mut out, mut unknown) = ([0; 32], 0);
            for lane in lanes(mask) {
                match self.local_value(w, lane, addresses[lane] as usize + bytes as usize * i, t)? {
                    Some(value) => out[lane] = value,
                    None => unknown |= 1 << lane,
                }
            }
            if let Some(to) = to {
                put(w, *to, mask, &out.map(|v| extend(v, bytes, t.width.signed, to.bits)));
                w.regs.forget(to.bits, to.slot, unknown);
            }
        }
        Ok(())
    }

    /// A number of a lane; none if it is copied and nobody has written it.
    fn local_value(&self, w: &Warp, lane: usize, at: usize, t: &Transfer) -> Checked<Option<u64>> {
        let bytes = t.width.bytes as usize;
        let byte =
            |k: usize| u64::from(w.local[(at + k) / 4][lane] >> (8 * ((at + k) % 4)) & 0xff) << (8 * k);
        let missing = |k: &usize| w.local_init[(at + k) / 4][lane] >> ((at + k) % 4) & 1 == 0;
        if let Some(k) = (0..bytes).find(missing).filter(|_| t.unwritten == Unwritten::Fault) {
            let what = "local memory is read that the thread has not written";
            let mut fault = self.fault(w, 1 << lane, Class::UninitialisedLocal, what);
            fault.address = Some((at + k) as u64);
            return Err(fault);
        }
        let unknown = t.unwritten == Unwritten::Copied && (0..bytes).all(|k| missing(&k));
        Ok((!unknown).then(|| (0..bytes).map(byte).sum()))
    }

    pub(super) fn store_local(
        &mut self,
        w: &mut Warp,
        mask: u32,
        t: &Transfer,
        addresses: &Addresses,
    ) -> Checked<()> {
        let bytes = t.width.bytes;
        self.check_local(w, mask, t, addresses)?;
        for (i, from) in t.regs.iter().flatten().enumerate() {
            // What has no value is passed on: whoever reads it is the mistake.
            let known = mask & w.regs.defined(from.bits, from.slot);
            let values = self.take(w, *from, known)?;
            for lane in lanes(mask) {
                for k in 0..bytes as usize {
                    let at = addresses[lane] as usize + bytes as usize * i + k;
                    let shift = 8 * (at % 4);
                    let word = &mut w.local[at / 4][lane];
                    *word = *word & !(0xff << shift) | ((values[lane] >> (8 * k)) as u32 & 0xff) << shift;
                    let init = &mut w.local_init[at / 4][lane];
                    *init = *init & !(1 << (at % 4)) | ((known >> lane & 1) as u8) << (at % 4);
                }
            }
        }
        Ok(())
    }

    /// Bounds and alignment of an access to local memory.
    fn check_local(&self, w: &Warp, mask: u32, t: &Transfer, addresses: &Addresses) -> Checked<()> {
        let bytes = t.width.bytes * t.regs.len() as u32;
        self.check_alignment(w, mask, addresses, bytes)?;
        let end = u64::from(w.top);
        let bad =
            lanes(mask).filter(|l| addresses[*l] == 0 || addresses[*l].saturating_add(bytes.into()) > end);
        let bad = bad.fold(0, set_bit);
        if bad == 0 {
            return Ok(());
        }
        let address = addresses[bad.trailing_zeros() as usize];
        let what = format!("local memory is accessed at 0x{address:x}; the thread has {end} bytes");
        let mut fault = self.fault(w, bad, Class::OutOfBounds, what);
        fault.address = Some(address);
        Err(fault)
    }
}
