//! `F32`: IEEE binary32. A block is a single value. No kernel reads tiles of this format.

use super::fields::bits::{Bits, Field, one};
use super::lanes::fragment::{Fragment, LaneSplit, Unquantized};
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;

/// The format `F32`.
pub(super) struct Binary32;

impl BlockFormat for Binary32 {
    fn block(&self) -> Block {
        Block {
            ggml_type: 0,
            len: 1,
            bytes: 4,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        Vec::new()
    }

    fn in_block(&self, _: Field) -> Bits {
        one(0, 0, 32)
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        f32::from_bits(number(Field::Code(k)))
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        block.copy_from_slice(&v.to_le_bytes());
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 4,
            bytes: 16,
            lanes: 1,
            float4s: &[0],
        }
    }

    fn fragment<'k>(&self, k: Builder<'k>, _: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        let load = |at: Ptr<'k, u8, ReadOnly>| at.stream().cast::<u32>().ld4().into();
        let unpack = |words: &[U32<'k>]| words.iter().map(|w| w.bits()).collect();
        Box::new(Unquantized {
            first: k.val(0),
            load,
            unpack,
        })
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        None
    }
}
