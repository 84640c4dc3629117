//! Mnemonics: the templates of rows with the names of types in them.

use crate::isa::Op;
use crate::text::Text;
use crate::ty::Kind;

impl Op {
    /// The instruction's text without operands, for `$t` = `kind`, `$s` = `from` and `$n` = `number`.
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

/// Mnemonics that were written before: a kernel has a few dozen, and most of its lines begin with one.
pub(crate) struct Mnemonics([Option<Mnemonic>; SLOTS]);

const SLOTS: usize = 256;

/// The row, `$t`, `$s` and `$n`.
pub(crate) type Of = (&'static Op, Kind, Option<Kind>, u32);

#[derive(Clone, Copy)]
struct Mnemonic {
    of: Of,
    bytes: [u8; 32],
    len: u8,
}

impl Mnemonics {
    pub(crate) fn new() -> Self {
        Mnemonics([None; SLOTS])
    }

    #[inline]
    pub(crate) fn write(&mut self, to: &mut Text, of: Of) {
        let slot = slot(of.0, of.1);
        match &self.0[slot] {
            Some(known) if known.of == of => to.put_start(known.bytes, known.len.into()),
            _ => self.0[slot] = write_new(to, of),
        }
    }
}

/// The place of a row: by its address, spread by multiplication (Fibonacci hashing).
fn slot(op: &'static Op, kind: Kind) -> usize {
    let row = std::ptr::from_ref(op) as u64 ^ kind as u64;
    (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS
}

/// The mnemonic, to write it again if it is not too long.
#[inline(never)]
fn write_new(to: &mut Text, of: Of) -> Option<Mnemonic> {
    let start = to.len();
    of.0.write_mnemonic(to, of.1, of.2, of.3);
    let text = to.since(start);
    let mut bytes = [0; 32];
    bytes.get_mut(..text.len())?.copy_from_slice(text);
    Some(Mnemonic {
        of,
        bytes,
        len: text.len() as u8,
    })
}
