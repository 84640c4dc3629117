//! The blocks of 32 weights of 4 or 5 bits: a scale, perhaps a minimum, perhaps the fifth bits of all weights in
//! order, and 16 bytes. Low nibbles are the first 16 weights, high nibbles the others.

use super::bits::{BitRange, Bits, Field, one, two};
use super::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lookup::Table;
use super::unpack::{Code, SELECT, bytes, halfword, halves, join, split};
use super::{Block, Loads};
use ptx_gen::*;

/// The layout of a block.
#[derive(Clone, Copy)]
pub(super) struct Legacy {
    /// The type's number in a GGUF file.
    pub(super) ggml_type: u32,
    /// Whether there is a minimum after the scale.
    pub(super) min: bool,
    /// Whether there are fifth bits.
    pub(super) fifth: bool,
}

impl Legacy {
    /// The byte of the fifth bits.
    fn fifth_bits(self) -> usize {
        2 + 2 * usize::from(self.min)
    }

    /// The first byte of nibbles.
    fn nibbles(self) -> usize {
        self.fifth_bits() + 4 * usize::from(self.fifth)
    }

    pub(super) fn block(self) -> Block {
        Block { ggml_type: self.ggml_type, len: 32, bytes: self.nibbles() as u32 + 16 }
    }

    pub(super) fn numbers(self) -> Vec<Field> {
        if self.min { vec![Field::D, Field::Dmin] } else { vec![Field::D] }
    }

    pub(super) fn in_block(self, field: Field) -> Bits {
        match field {
            Field::Dmin => one(2, 0, 16),
            Field::Code(k) => {
                let low = BitRange::new(self.nibbles() + k % 16, 4 * (k / 16), 4);
                let high = BitRange::new(self.fifth_bits() + k / 8, k % 8, 1);
                two(low, if self.fifth { high } else { BitRange::NONE })
            }
            _ => one(0, 0, 16),
        }
    }

    pub(super) fn split(self) -> LaneSplit {
        LaneSplit { len: 32, bytes: self.block().bytes, lanes: 4, float4s: &[0, 16] }
    }

    pub(super) fn loads(self) -> Loads {
        Loads { depth: 4, blocks: 5 }
    }

    /// The fragment of `thread`: codes are numbers, or indices into a table.
    pub(super) fn fragment<'k>(self, thread: U32<'k>, values: Values<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(LegacyFragment { lane: thread & 3, layout: self, values })
    }
}

/// What codes stand for.
#[derive(Clone, Copy)]
pub(super) enum Values<'k> {
    Numbers(Code),
    Table(Table<'k>),
}

/// Four bytes of 16. Blocks are halfwords.
struct LegacyFragment<'k> {
    lane: U32<'k>,
    layout: Legacy,
    values: Values<'k>,
}

impl<'k> LegacyFragment<'k> {
    /// The lane's four of 16 fifth bits, each at bit 4 of a byte.
    fn fifth(&self, bits: U32<'k>) -> U32<'k> {
        // The multiplication moves bit i of the four to bit 8 i; the mask drops the other copies.
        let four = (bits >> (self.lane << 2)) & 15;
        ((four * 0x0020_4081) & 0x0101_0101) << 4
    }

    /// The codes of a half, a byte each: the low nibbles of `nibbles`, with their fifth bits.
    fn half(&self, nibbles: U32<'k>, fifth: Option<&U32<'k>>) -> Vec<F32<'k>> {
        let codes = match fifth {
            Some(&bits) => nibbles.lop3(self.fifth(bits), 0x0f0f_0f0f, SELECT),
            None => nibbles,
        };
        match self.values {
            Values::Numbers(code) => bytes(code, split(codes), 0).into(),
            Values::Table(table) => table.numbers(codes).into(),
        }
    }
}

impl<'k> Fragment<'k> for LegacyFragment<'k> {
    fn first(&self) -> U32<'k> {
        self.lane << 2
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 4)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = self.layout.nibbles() as u32 / 2;
        let words = (0..header).map(|i| halfword(addresses[0], bytes + 2 * i));
        let codes = (0..2).map(|i| halfword(addresses[1], bytes + 2 * (header + i)));
        words.chain(codes).collect()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let (header, codes) = words.split_at(words.len() - 2);
        let (scales, fifth) = header.split_at(1 + usize::from(self.layout.min));
        let nibbles = join(codes[0], codes[1]);
        let scale = halves(scales[0])[0];
        let offset = scales.get(1).map(|&m| halves(m)[0]);
        let group = |half: usize| {
            let q = self.half(nibbles >> (4 * half as u32), fifth.get(half));
            Group { q, scale: Some(scale), offset }
        };
        vec![group(0), group(1)]
    }
}
