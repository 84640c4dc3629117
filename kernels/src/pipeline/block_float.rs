//! Block floating point activations: the input of a projection, 16 bits each. Eight neighbours are integers with a
//! common scale, which maps the largest of them to 32,256.
//!
//! Every block of the projection reads all activations, all at the same time and through a memory system that is busy
//! with the next weights, so their size costs time: 2.5 bytes instead of the 4 of `f32`. The product encodes `f32`
//! activations with no more bits, see `load_activations.rs`.

use crate::reduce::lanes_max_u32;
use ptx_gen::*;
use std::array::from_fn;

/// Numbers that share a scale.
pub const BFP_BLOCK: u32 = 8;

/// The largest integer: 126 * 256, so that both its signed bytes are below 127.
pub(crate) const MAX_CODE: f32 = 32256.0;
/// Added to a number below 2^22, it rounds it to the nearest integer, which is in the low bits.
pub(crate) const ROUNDING: f32 = 12_582_912.0;
/// The lower bound of a block's largest magnitude: its reciprocal is finite.
pub(crate) const MIN_LARGEST: f32 = f32::MIN_POSITIVE * 65536.0;
/// Added to the integers, so that none is negative (offset binary).
const ZERO: u32 = 1 << 15;

/// Encodes: the integers, and one scale for each block of eight.
///
/// # Panics
/// If the length of `x` is not a multiple of 8.
pub fn encode(x: &[f64]) -> (Vec<u16>, Vec<f32>) {
    assert!(
        x.len().is_multiple_of(BFP_BLOCK as usize),
        "{} numbers are not whole blocks of 8",
        x.len()
    );
    let block = |x: &[f64]| {
        let largest = x.iter().fold(f64::from(MIN_LARGEST), |m, x| m.max(x.abs()));
        let scale = largest / f64::from(MAX_CODE);
        let whole = |x: &f64| ((x / scale).round_ties_even() as i32 + ZERO as i32) as u16;
        (x.iter().map(whole).collect::<Vec<_>>(), scale as f32)
    };
    let (values, scales): (Vec<_>, Vec<_>) = x.chunks(BFP_BLOCK as usize).map(block).unzip();
    (values.concat(), scales)
}

/// Decodes the integers with their scales.
pub fn decode(values: &[u16], scales: &[f32]) -> Vec<f32> {
    let blocks = values.chunks(BFP_BLOCK as usize).zip(scales);
    let number = |v: u16| (i32::from(v) - ZERO as i32) as f32;
    blocks
        .flat_map(|(values, scale)| values.iter().map(move |&v| number(v) * scale))
        .collect()
}

/// Block floating point numbers in memory.
#[derive(Clone, Copy)]
pub(crate) struct BlockFloat<'k, A> {
    pub(crate) k: Builder<'k>,
    pub(crate) values: Ptr<'k, u16, A>,
    pub(crate) scales: Ptr<'k, f32, A>,
}

impl<'k> BlockFloat<'k, WriteOnly> {
    /// Stores number `i` where it is `inside`. Whole warp: the lanes hold consecutive numbers, starting at a multiple
    /// of eight.
    pub(crate) fn store(self, i: U32<'k>, inside: Pred<'k>, v: F32<'k>) {
        let k = self.k;
        let scale = scale(lanes_max_u32(7, v.abs().bits()));
        let whole = whole(v, scale.rcp());
        let pair = whole.prmt(whole.shfl_bfly(1), 0x5410);
        k.when(inside & (i & 1).eq(0), || {
            self.values.cast::<u32>().at(i >> 1).st(pair)
        });
        k.when(inside & (i & 7).eq(0), || self.scales.at(i >> 3).st(scale));
    }

    /// Stores numbers `i` to `i + 3` where they are `inside`. Whole warp: an odd lane holds the second half of the
    /// block whose first half the lane before it holds.
    pub(crate) fn store4(self, i: U32<'k>, inside: Pred<'k>, v: [F32<'k>; 4]) {
        let k = self.k;
        let bits = v.map(|v| v.abs().bits::<u32>());
        let most = lanes_max_u32(1, bits[0].max(bits[1]).max(bits[2].max(bits[3])));
        let scale = scale(most);
        let inverse = scale.rcp();
        let whole = v.map(|v| whole(v, inverse));
        let pairs = [0, 2].map(|i| whole[i].prmt(whole[i + 1], 0x5410));
        k.when(inside, || self.values.cast::<u32>().at(i >> 1).st2(pairs));
        k.when(inside & (i & 7).eq(0), || self.scales.at(i >> 3).st(scale));
    }
}

/// The scale of a block whose largest magnitude has these bits. It and its reciprocal are normal numbers, whatever the
/// block: a reciprocal of the largest magnitude itself would be flushed to zero above 2^126.
fn scale(largest: U32<'_>) -> F32<'_> {
    largest.max(MIN_LARGEST.to_bits()).bits::<f32>() * (1.0 / MAX_CODE)
}

/// The integer of `v` in the low 16 bits, where `inverse` is the reciprocal of its block's scale.
fn whole<'k>(v: F32<'k>, inverse: F32<'k>) -> U32<'k> {
    v.fma(inverse, ROUNDING).bits::<u32>() + ZERO
}

/// A block that is being loaded.
pub(crate) struct LoadedBlock<'k> {
    values: [Var<'k, u32>; 4],
    scale: Var<'k, f32>,
}

impl<'k> BlockFloat<'k, Fresh> {
    /// Loads block `index` where it is `inside`, else zeros.
    pub(crate) fn load(self, index: U32<'k>, inside: Pred<'k>) -> LoadedBlock<'k> {
        let k = self.k;
        let zero = ZERO << 16 | ZERO;
        let mut loaded = LoadedBlock {
            values: from_fn(|_| k.var(zero)),
            scale: k.var(MIN_LARGEST),
        };
        self.load_into(&mut loaded, index, inside);
        loaded
    }

    /// Loads block `index` where it is `inside`, else keeps the old values.
    pub(crate) fn load_into(self, to: &mut LoadedBlock<'k>, index: U32<'k>, inside: Pred<'k>) {
        self.values
            .row(index, 2 * BFP_BLOCK)
            .cast::<u32>()
            .ld4_if(inside, &mut to.values);
        self.scales.at(index).ld_if(inside, &mut to.scale);
    }
}

impl<'k> LoadedBlock<'k> {
    /// The integers, and their scale.
    pub(crate) fn get(&self) -> ([F32<'k>; 8], F32<'k>) {
        /// Bit pattern trick: with an integer below 2^16 in its low bits, this float is larger by that integer.
        const BASE: f32 = 8_388_608.0;
        let number = |i: usize| {
            let half = if i.is_multiple_of(2) { 0x7610 } else { 0x7632 };
            self.values[i / 2]
                .get()
                .prmt(BASE.to_bits(), half)
                .bits::<f32>()
                - (BASE + ZERO as f32)
        };
        (from_fn(number), self.scale.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_but_for_a_part_of_their_eights_largest() {
        let x: Vec<f64> = (0..64)
            .map(|i| f64::from(i * i * i - 9000) * 10f64.powi(i / 8))
            .collect();
        let (values, scales) = encode(&x);
        let back = decode(&values, &scales);
        for (x, back) in x.chunks(8).zip(back.chunks(8)) {
            let largest = x.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            for (x, back) in x.iter().zip(back) {
                assert!(
                    (x - f64::from(*back)).abs() <= 0.51 * largest / f64::from(MAX_CODE),
                    "{x} {back}"
                );
            }
        }
    }

    #[test]
    fn zeros_are_zeros() {
        let (values, scales) = encode(&[0.0; 8]);
        assert_eq!(
            (values, decode(&[ZERO as u16; 8], &scales)),
            (vec![ZERO as u16; 8], vec![0.0; 8])
        );
    }
}
