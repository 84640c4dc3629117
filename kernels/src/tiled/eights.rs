//! Activations that a kernel leaves for a projection: 16 bits each. Eight neighbours are whole numbers that share a
//! scale, which makes the largest of them 32,256 (block floating point).
//!
//! Every block of the projection reads all of them, at the same time and through a memory that the next weights keep
//! busy, so what they take is time: 2.5 bytes instead of the 4 of `f32`. What a product makes of `f32` activations has
//! no more bits, see [`activation`](super::activation).

use crate::reduce::lanes_max_u32;
use ptx_gen::*;
use std::array::from_fn;

/// Neighbours that share a scale.
pub const EIGHT: u32 = 8;

/// The largest whole number: 126 * 256, so that its two bytes, both signed, are below 127.
pub(crate) const LARGEST: f32 = 32256.0;
/// Added to a number below 2^22, it leaves the nearest integer in the low bits.
pub(crate) const ROUNDER: f32 = 12_582_912.0;
/// The least that the largest of some numbers counts as: its reciprocal is finite.
pub(crate) const TINY: f32 = f32::MIN_POSITIVE * 65536.0;
/// Added to the whole numbers, so that none is below zero.
const MIDDLE: u32 = 1 << 15;

/// The whole numbers, and their scales, of which there is one for each eight.
///
/// # Panics
/// If the length of `x` is no multiple of 8.
pub fn encode(x: &[f64]) -> (Vec<u16>, Vec<f32>) {
    assert!(x.len().is_multiple_of(EIGHT as usize), "{} numbers are no eights", x.len());
    let eight = |x: &[f64]| {
        let largest = x.iter().fold(f64::from(TINY), |m, x| m.max(x.abs()));
        let scale = largest / f64::from(LARGEST);
        let whole = |x: &f64| ((x / scale).round_ties_even() as i32 + MIDDLE as i32) as u16;
        (x.iter().map(whole).collect::<Vec<_>>(), scale as f32)
    };
    let (values, scales): (Vec<_>, Vec<_>) = x.chunks(EIGHT as usize).map(eight).unzip();
    (values.concat(), scales)
}

/// The numbers that they stand for.
pub fn decode(values: &[u16], scales: &[f32]) -> Vec<f32> {
    let eights = values.chunks(EIGHT as usize).zip(scales);
    let number = |v: u16| (i32::from(v) - MIDDLE as i32) as f32;
    eights.flat_map(|(values, scale)| values.iter().map(move |&v| number(v) * scale)).collect()
}

/// Where they are in memory.
#[derive(Clone, Copy)]
pub(crate) struct Eights<'k, A> {
    pub(crate) k: Builder<'k>,
    pub(crate) values: Ptr<'k, u16, A>,
    pub(crate) scales: Ptr<'k, f32, A>,
}

impl<'k> Eights<'k, Write> {
    /// Stores number `i` where it is `inside`. Whole warp: lanes have numbers that follow each other, from a multiple
    /// of eight on.
    pub(crate) fn store(self, i: U32<'k>, inside: Pred<'k>, v: F32<'k>) {
        let k = self.k;
        let largest = lanes_max_u32(7, v.abs().bits()).max(TINY.to_bits()).bits::<f32>();
        let whole = whole(v, largest);
        let pair = whole.prmt(whole.shfl_bfly(1), 0x5410);
        k.when(inside & (i & 1).eq(0), || self.values.cast::<u32>().at(i >> 1).st(pair));
        self.store_scale(i, inside & (i & 7).eq(0), largest);
    }

    /// Stores numbers `i` to `i + 3` where they are `inside`. Whole warp: a lane with an odd number has the other half
    /// of the eight of which the lane before it has the first.
    pub(crate) fn store4(self, i: U32<'k>, inside: Pred<'k>, v: [F32<'k>; 4]) {
        let k = self.k;
        let bits = v.map(|v| v.abs().bits::<u32>());
        let most = lanes_max_u32(1, bits[0].max(bits[1]).max(bits[2].max(bits[3])));
        let largest = most.max(TINY.to_bits()).bits::<f32>();
        let whole = v.map(|v| whole(v, largest));
        let pairs = [0, 2].map(|i| whole[i].prmt(whole[i + 1], 0x5410));
        k.when(inside, || self.values.cast::<u32>().at(i >> 1).st2(pairs));
        self.store_scale(i, inside & (i & 7).eq(0), largest);
    }

    fn store_scale(self, i: U32<'k>, mine: Pred<'k>, largest: F32<'k>) {
        self.k.when(mine, || self.scales.at(i >> 3).st(largest * (1.0 / LARGEST)));
    }
}

/// In the low 16 bits, the whole number of `v` where the largest of its eight is `largest`.
fn whole<'k>(v: F32<'k>, largest: F32<'k>) -> U32<'k> {
    v.fma(largest.rcp() * LARGEST, ROUNDER).bits::<u32>() + MIDDLE
}

/// An eight on its way from memory.
pub(crate) struct Loaded<'k> {
    values: [Var<'k, u32>; 4],
    scale: Var<'k, f32>,
}

impl<'k> Eights<'k, Fresh> {
    /// Loads eight `index` where it is `inside`, else zeros.
    pub(crate) fn load(self, index: U32<'k>, inside: Pred<'k>) -> Loaded<'k> {
        let k = self.k;
        let zero = MIDDLE << 16 | MIDDLE;
        let mut loaded = Loaded { values: from_fn(|_| k.var(zero)), scale: k.var(TINY) };
        self.load_into(&mut loaded, index, inside);
        loaded
    }

    /// Loads eight `index` where it is `inside`, else leaves what is there.
    pub(crate) fn load_into(self, to: &mut Loaded<'k>, index: U32<'k>, inside: Pred<'k>) {
        self.values.row(index, 2 * EIGHT).cast::<u32>().ld4_if(inside, &mut to.values);
        self.scales.at(index).ld_if(inside, &mut to.scale);
    }
}

impl<'k> Loaded<'k> {
    /// The whole numbers, and their scale.
    pub(crate) fn get(&self) -> ([F32<'k>; 8], F32<'k>) {
        /// In its low bits, a number below 2^16 is that much more.
        const BASE: f32 = 8_388_608.0;
        let number = |i: usize| {
            let half = if i.is_multiple_of(2) { 0x7610 } else { 0x7632 };
            self.values[i / 2].get().prmt(BASE.to_bits(), half).bits::<f32>() - (BASE + MIDDLE as f32)
        };
        (from_fn(number), self.scale.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_but_for_a_part_of_their_eights_largest() {
        let x: Vec<f64> = (0..64).map(|i| f64::from(i * i * i - 9000) * 10f64.powi(i / 8)).collect();
        let (values, scales) = encode(&x);
        let back = decode(&values, &scales);
        for (x, back) in x.chunks(8).zip(back.chunks(8)) {
            let largest = x.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            for (x, back) in x.iter().zip(back) {
                assert!((x - f64::from(*back)).abs() <= 0.51 * largest / f64::from(LARGEST), "{x} {back}");
            }
        }
    }

    #[test]
    fn zeros_are_zeros() {
        let (values, scales) = encode(&[0.0; 8]);
        assert_eq!((values, decode(&[MIDDLE as u16; 8], &scales)), (vec![MIDDLE as u16; 8], vec![0.0; 8]));
    }
}
