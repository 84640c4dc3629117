//! Mnemonics: the templates of the instruction table with type names filled in.

use crate::isa::Op;
use crate::text::Text;
use crate::ty::Kind;

impl Op {
    /// Returns the text of the instruction without operands.
    ///
    /// The placeholders `$t`, `$s` and `$n` become `kind`, `from` and `number`.
    pub fn mnemonic(&self, kind: Kind, from: Option<Kind>, number: u32) -> String {
        let mut text = Text::default();
        self.write_mnemonic(&mut text, kind, from, number);
        text.finish()
    }

    pub(crate) fn write_mnemonic(
        &self,
        to: &mut Text,
        kind: Kind,
        from: Option<Kind>,
        number: u32,
    ) {
        let mut rest = self.template;
        while let Some(at) = rest.bytes().position(|b| b == b'$') {
            to.put(&rest[..at]);
            match rest.as_bytes().get(at + 1) {
                Some(b't') => to.put(kind.name()),
                Some(b'm') => to.put(kind.memory_name()),
                Some(b'b') => to.put(kind.bits_name()),
                Some(b'n') => to.decimal(number.into()),
                _ => to.put(from.map_or("", Kind::name)),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        to.put(rest);
    }
}

/// A cache of mnemonics. A kernel has a few dozen, and most of its lines begin with one.
pub(crate) struct Mnemonics([Option<Mnemonic>; SLOTS]);

const SLOTS: usize = 256;

/// The key of a mnemonic: the row and the values of `$t`, `$s` and `$n`.
pub(crate) type MnemonicKey = (&'static Op, Kind, Option<Kind>, u32);

#[derive(Clone, Copy)]
struct Mnemonic {
    key: MnemonicKey,
    bytes: [u8; 32],
    len: u8,
}

impl Mnemonics {
    pub(crate) fn new() -> Self {
        Mnemonics([None; SLOTS])
    }

    #[inline]
    pub(crate) fn write(&mut self, to: &mut Text, key: MnemonicKey) {
        let slot = slot(key.0, key.1);
        match &self.0[slot] {
            Some(known) if known.key == key => to.put_start(known.bytes, known.len.into()),
            _ => self.0[slot] = write_new(to, key),
        }
    }
}

/// Returns the slot of a row in the cache: its address, spread by Fibonacci hashing.
fn slot(op: &'static Op, kind: Kind) -> usize {
    let row = std::ptr::from_ref(op) as u64 ^ kind as u64;
    (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS
}

/// Writes a mnemonic and returns it for the cache, unless it is too long.
#[inline(never)]
fn write_new(to: &mut Text, key: MnemonicKey) -> Option<Mnemonic> {
    let (op, kind, from, number) = key;
    let start = to.len();
    op.write_mnemonic(to, kind, from, number);
    let text = to.since(start);
    let mut bytes = [0; 32];
    bytes.get_mut(..text.len())?.copy_from_slice(text);
    Some(Mnemonic {
        key,
        bytes,
        len: text.len() as u8,
    })
}
