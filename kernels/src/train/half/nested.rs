//! Unpacking of NF4 with [nested](crate::train::nested) `absmax` to bf16.

use super::convert::{AT_ONCE, EIGHT, THREADS};
use super::rows::store;
use crate::harness::{Case, Variant};
use crate::shared::{Contract, check_lengths};
use crate::train::nested::{BLOCK, NestedArgs, case, check_lengths, numbers};
use crate::train::nf4::{self, code, values};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`NestedDequantize`].
    pub struct NestedDequantizeArgs {
        /// The weight.
        from: NestedArgs,
        /// `[n]`: the elements
        w: Out<bf16>,
        /// The number of elements, a multiple of 8.
        n: u32,
        /// The offset, which is added to each `absmax`.
        offset: f32,
    }
}

/// Kernel that unpacks a weight with nested `absmax`, like
/// [`Nf4Dequantize`](super::convert::Nf4Dequantize).
pub struct NestedDequantize;

/// Eight codes, with the code and the scale of their `absmax`.
struct Fetched<'k> {
    /// The index of the first element.
    first: U32<'k>,
    /// The codes of the elements.
    word: U32<'k>,
    /// The code of the `absmax`.
    nested: U32<'k>,
    /// The scale of the `absmax`.
    scale: F32<'k>,
}

impl KernelDef for NestedDequantize {
    type Args<S: Side> = NestedDequantizeArgs<S>;

    fn name(&self) -> String {
        "train_bf16_nested_dequantize".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &NestedDequantizeArgs<Shape>) -> Result<Grid, ShapeError> {
        let &NestedDequantizeArgs { n, .. } = a;
        self.multiple("n", n, EIGHT)?;
        check_lengths(self, n, a.from)?;
        check_lengths! { self, a:
            w == n,
        }
        Ok(Grid::line(n.div_ceil(AT_ONCE * EIGHT * THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: NestedDequantizeArgs<Dev<'k>>) {
        let NestedArgs {
            packed,
            codes,
            scales,
            map,
        } = a.from;

        k.section(
            "train/nested/half_codes",
            "load codes with relaxed loads, which ptxas leaves ahead of the barrier",
        );
        let first = (k.ctaid() * (AT_ONCE * THREADS) + k.tid()) * EIGHT;
        let eights: [_; AT_ONCE as usize] = from_fn(|eight| {
            let i = first + eight as u32 * (EIGHT * THREADS);
            let mut word = k.var(0u32);
            let mut nested = k.var(0u32);
            let mut scale = k.var(0.0);
            packed
                .cast::<u32>()
                .at(i / EIGHT)
                .fresh()
                .ld_if(i.lt(a.n), &mut word);
            let block = i / nf4::BLOCK as u32;
            codes.at(block).fresh().ld_if(i.lt(a.n), &mut nested);
            scales
                .at(block / BLOCK as u32)
                .fresh()
                .ld_if(i.lt(a.n), &mut scale);
            Fetched {
                first: i,
                word: word.get(),
                nested: nested.get(),
                scale: scale.get(),
            }
        });

        // The barrier inside is reached with all loads in flight.
        let values = values(k);

        k.section(
            "train/nested/half_absmax",
            "absmax = value * scale + offset, rounded twice; past the end, of code 0",
        );
        let coded = eights.each_ref().map(|eight| map.at(eight.nested).ld());
        let absmax: [F32; AT_ONCE as usize] = from_fn(|i| coded[i] * eights[i].scale + a.offset);

        k.section(
            "train/nested/half_weights",
            "w = value * absmax; the first of two codes is in the high nibble",
        );
        for (eight, absmax) in eights.into_iter().zip(absmax) {
            let Fetched { first, word, .. } = eight;
            k.when(first.lt(a.n), || {
                store(
                    a.w.at(first),
                    from_fn(|j| values.at(code(word, j as u32)).ld() * absmax),
                )
            });
        }
    }

    fn reference(&self, a: NestedDequantizeArgs<Cpu<'_>>) {
        for (to, w) in a.w.iter_mut().zip(numbers(&a.from, a.offset)) {
            *to = bf16::from_f32(w);
        }
    }
}

impl Variant for NestedDequantize {
    fn cases(&self, seed: u64) -> Vec<Case> {
        [8, 72, 2248, 18_440]
            .map(|n| case(seed, n, CpuArg::Bf16(vec![bf16(0); n as usize])))
            .into()
    }
}
