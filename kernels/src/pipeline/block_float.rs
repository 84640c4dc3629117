//! Block floating point activations, the input of a projection. Eight adjacent elements are 16-bit
//! integers with a common scale, which maps the largest magnitude to 32,256.
//!
//! Every block of the projection reads all activations, at the same time as the others and while
//! memory is busy with the next weights. The size of the activations therefore costs time, and this
//! encoding takes 2.5 bytes per element instead of the 4 of `f32`. It loses no accuracy, because
//! the GEMV encodes `f32` activations with the same number of bits (see
//! `gemv/load_activations.rs`).

use crate::shared::reduce::lanes_max_u32;
use ptx_gen::*;
use std::array::from_fn;

/// The number of elements that share a scale.
pub const BFP_BLOCK: u32 = 8;

/// The largest integer: 126 * 256, so that its two signed bytes are both below 127.
pub(crate) const MAX_CODE: f32 = 32256.0;
/// The constant that rounds a value below 2^22 to the nearest integer when it is added. The integer
/// is then in the low bits.
pub(crate) const ROUNDING: f32 = 12_582_912.0;
/// The lower bound of a block's largest magnitude, so that the reciprocal of the scale is finite.
pub(crate) const MIN_LARGEST: f32 = f32::MIN_POSITIVE * 65536.0;
/// The bias of the integers: they are stored as offset binary, so that none is negative.
const ZERO: u32 = 1 << 15;

/// Encodes values as integers with one scale for each block of eight.
///
/// # Panics
/// Panics if the length of `x` is not a multiple of 8.
pub fn encode(x: &[f64]) -> (Vec<u16>, Vec<f32>) {
    assert!(
        x.len().is_multiple_of(BFP_BLOCK as usize),
        "{} numbers are not whole blocks of 8",
        x.len()
    );
    let block = |x: &[f64]| {
        // A lower bound on the largest magnitude avoids a division by zero.
        let largest = x.iter().fold(f64::from(MIN_LARGEST), |m, x| m.max(x.abs()));
        let scale = largest / f64::from(MAX_CODE);
        let whole = |x: &f64| ((x / scale).round_ties_even() as i32 + ZERO as i32) as u16;
        (x.iter().map(whole).collect::<Vec<_>>(), scale as f32)
    };
    let (values, scales): (Vec<_>, Vec<_>) = x.chunks(BFP_BLOCK as usize).map(block).unzip();
    (values.concat(), scales)
}

/// Decodes integers with their block scales.
pub fn decode(values: &[u16], scales: &[f32]) -> Vec<f32> {
    let blocks = values.chunks(BFP_BLOCK as usize).zip(scales);
    let number = |v: u16| (i32::from(v) - ZERO as i32) as f32;
    blocks
        .flat_map(|(values, scale)| values.iter().map(move |&v| number(v) * scale))
        .collect()
}

/// The address of values in block floating point: the integers and the block scales.
#[derive(Clone, Copy)]
pub(crate) struct BlockFloat<'k, A> {
    pub(crate) k: Builder<'k>,
    pub(crate) values: Ptr<'k, u16, A>,
    pub(crate) scales: Ptr<'k, f32, A>,
}

impl<'k> BlockFloat<'k, WriteOnly> {
    /// Stores element `i` if it is `inside`. The whole warp must call it. The lanes hold
    /// consecutive elements, starting at a multiple of eight.
    pub(crate) fn store(self, i: U32<'k>, inside: Pred<'k>, v: F32<'k>) {
        let k = self.k;
        let most = lanes_max_u32(7, v.abs().bits());
        let scale = scale(most);
        let whole = whole(v, scale.rcp());

        // An even lane stores its integer together with the next lane's.
        let next = whole.shfl_bfly(1);
        let pair = whole.prmt(next, 0x5410);
        k.when(inside & (i & 1).eq(0), || {
            self.values.cast::<u32>().at(i >> 1).st(pair)
        });
        k.when(inside & (i & 7).eq(0), || self.scales.at(i >> 3).st(scale));
    }

    /// Stores elements `i` to `i + 3` if they are `inside`. The whole warp must call it. An odd
    /// lane holds the second half of the block whose first half the previous lane holds.
    pub(crate) fn store4(self, i: U32<'k>, inside: Pred<'k>, v: [F32<'k>; 4]) {
        let k = self.k;
        let bits = v.map(|v| v.abs().bits::<u32>());

        // The bits of magnitudes have the order of the magnitudes, and a NaN has the largest bits.
        // The maximum of floats would drop the NaN.
        let first_two = bits[0].max(bits[1]);
        let last_two = bits[2].max(bits[3]);
        let most = lanes_max_u32(1, first_two.max(last_two));
        let scale = scale(most);
        let inverse = scale.rcp();
        let whole = v.map(|v| whole(v, inverse));
        let pairs = [0, 2].map(|i| whole[i].prmt(whole[i + 1], 0x5410));
        k.when(inside, || self.values.cast::<u32>().at(i >> 1).st2(pairs));
        k.when(inside & (i & 7).eq(0), || self.scales.at(i >> 3).st(scale));
    }
}

/// Returns the scale of a block, given the bits of its largest magnitude. The scale and its
/// reciprocal are normal numbers for every block. The reciprocal of the largest magnitude itself
/// would be flushed to zero above 2^126.
fn scale(largest: U32<'_>) -> F32<'_> {
    largest.max(MIN_LARGEST.to_bits()).bits::<f32>() * (1.0 / MAX_CODE)
}

/// Returns the integer of `v` in the low 16 bits. `inverse` is the reciprocal of its block's scale.
fn whole<'k>(v: F32<'k>, inverse: F32<'k>) -> U32<'k> {
    v.fma(inverse, ROUNDING).bits::<u32>() + ZERO
}

/// A block that is being loaded.
pub(crate) struct LoadedBlock<'k> {
    values: [Var<'k, u32>; 4],
    scale: Var<'k, f32>,
}

impl<'k> BlockFloat<'k, Fresh> {
    /// Loads block `index` if it is `inside`, else zeros.
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

    /// Loads block `index` if it is `inside`, else keeps the old values.
    pub(crate) fn load_into(self, to: &mut LoadedBlock<'k>, index: U32<'k>, inside: Pred<'k>) {
        self.values
            .row(index, 2 * BFP_BLOCK)
            .cast::<u32>()
            .ld4_if(inside, &mut to.values);
        self.scales.at(index).ld_if(inside, &mut to.scale);
    }
}

impl<'k> LoadedBlock<'k> {
    /// Returns the integers as floats, and their scale.
    pub(crate) fn get(&self) -> ([F32<'k>; 8], F32<'k>) {
        /// 2^23. If the low 16 bits of this float are replaced by an integer, its value grows by
        /// that integer.
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
