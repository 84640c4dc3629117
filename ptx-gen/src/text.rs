//! A text buffer that is fast for short fragments, of which PTX lines consist.
//!
//! A line has about a dozen fragments of a few bytes each. A copy whose length is known at compile
//! time is one or two moves, but a copy of unknown length is a function call. A short fragment of
//! unknown length is therefore copied as eight bytes, and the buffer is truncated afterwards.

use crate::ir::Reg;
use crate::ty::Class;
use std::array::from_fn;
use std::fmt;
use std::sync::LazyLock;

/// A text that grows.
pub(crate) struct Text {
    bytes: Vec<u8>,
    common: &'static CommonFragment,
}

/// A text of up to eight bytes, the first one in the lowest byte.
#[derive(Clone, Copy)]
struct Short {
    bytes: u64,
    len: usize,
}

/// The fragments that most names consist of. One of each fits into eight bytes together.
struct CommonFragment {
    /// The prefixes of register names, by depth of the block and by class.
    prefixes: [[Short; 5]; 10],
    decimals: [Short; 1000],
}

static COMMON: LazyLock<CommonFragment> = LazyLock::new(|| CommonFragment {
    prefixes: from_fn(|depth| Class::ALL.map(|class| Short::new(&prefix(class, depth)))),
    decimals: from_fn(|n| Short::new(&n.to_string())),
});

/// Returns `%r`, or `%r2_` for a block at nesting depth 2.
fn prefix(class: Class, depth: usize) -> String {
    match depth {
        0 => format!("%{}", class.prefix()),
        _ => format!("%{}{depth}_", class.prefix()),
    }
}

impl Short {
    fn new(text: &str) -> Short {
        let bytes = text
            .bytes()
            .rev()
            .fold(0, |bytes, byte| bytes << 8 | u64::from(byte));
        Short {
            bytes,
            len: text.len(),
        }
    }

    fn then(self, other: Short) -> Short {
        Short {
            bytes: self.bytes | other.bytes << (8 * self.len),
            len: self.len + other.len,
        }
    }
}

impl Text {
    /// Returns an empty text with capacity for `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Text {
        Text {
            bytes: Vec::with_capacity(bytes),
            common: &COMMON,
        }
    }

    /// Returns the text.
    pub(crate) fn finish(self) -> String {
        String::from_utf8(self.bytes).expect("all pieces are text")
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes after the first `len` bytes.
    pub(crate) fn since(&self, len: usize) -> &[u8] {
        &self.bytes[len..]
    }

    #[inline(always)] // most texts are constants, and copying one is a single move
    pub(crate) fn put(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends the first `len` of these bytes.
    #[inline(always)]
    pub(crate) fn put_start<const N: usize>(&mut self, bytes: [u8; N], len: usize) {
        let end = self.bytes.len() + len;
        self.bytes.extend_from_slice(&bytes);
        self.bytes.truncate(end);
    }

    #[inline(always)]
    fn put_short(&mut self, text: Short) {
        self.put_start(text.bytes.to_le_bytes(), text.len);
    }

    /// Appends four spaces for each enclosing block.
    #[inline]
    pub(crate) fn indent(&mut self, depth: usize) {
        for _ in 0..depth / 8 {
            self.bytes.extend_from_slice(&[b' '; 32]);
        }
        self.put_start([b' '; 32], depth % 8 * 4);
    }

    /// Appends a decimal number.
    #[inline]
    pub(crate) fn decimal(&mut self, n: u64) {
        match self.common.decimals.get(n as usize) {
            Some(digits) => self.put_short(*digits),
            None => self.long_decimal(n),
        }
    }

    fn long_decimal(&mut self, n: u64) {
        self.decimal(n / 1000);
        let last = n % 1000;
        self.bytes.extend_from_slice(
            &[last / 100, last / 10 % 10, last % 10].map(|digit| b'0' + digit as u8),
        );
    }

    /// Appends a hexadecimal number with at least `least` digits.
    pub(crate) fn hexadecimal(&mut self, n: u64, least: u32) {
        let digits = least.max(16 - n.leading_zeros() / 4);
        for place in (0..digits).rev() {
            self.bytes
                .push(b"0123456789ABCDEF"[(n >> (4 * place) & 15) as usize]);
        }
    }

    /// Appends the prefix of register names of a class at nesting depth `depth`.
    pub(crate) fn prefix(&mut self, class: Class, depth: usize) {
        match self.common.prefixes.get(depth) {
            Some(prefixes) => self.put_short(prefixes[class as usize]),
            None => self.put(&prefix(class, depth)),
        }
    }

    /// Appends the name of a register: `%r12`, or `%r2_12` at nesting depth 2.
    #[inline(always)] // half of all text is names of registers
    pub(crate) fn reg(&mut self, r: &Reg) {
        let class = r.kind.class();
        let depth = usize::from(r.depth);
        match (
            self.common.prefixes.get(depth),
            self.common.decimals.get(r.index as usize),
        ) {
            (Some(prefixes), Some(number)) => {
                self.put_short(prefixes[class as usize].then(*number))
            }
            _ => self.long_reg(r),
        }
    }

    #[cold]
    fn long_reg(&mut self, r: &Reg) {
        self.prefix(r.kind.class(), r.depth.into());
        self.decimal(r.index.into());
    }
}

impl Default for Text {
    fn default() -> Text {
        Text::with_capacity(0)
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Text)) -> String {
        let mut text = Text::default();
        write(&mut text);
        text.finish()
    }

    #[test]
    fn numbers_are_what_the_standard_library_writes() {
        for n in (0..2000).chain([9_999, 1_000_007, u32::MAX.into(), u64::MAX]) {
            assert_eq!(text(|t| t.decimal(n)), n.to_string());
            assert_eq!(text(|t| t.hexadecimal(n, 8)), format!("{n:08X}"));
        }
    }

    #[test]
    fn names_of_every_length_are_whole() {
        for (depth, index) in [
            (0, 0),
            (1, 99),
            (9, 999),
            (9, 1000),
            (10, 7),
            (65_535, u32::MAX),
        ] {
            for class in Class::ALL {
                let kind = crate::Kind::ALL
                    .into_iter()
                    .find(|kind| kind.class() == class)
                    .unwrap();
                let scope = if depth == 0 {
                    String::new()
                } else {
                    format!("{depth}_")
                };
                let expected = format!("%{}{scope}{index}", class.prefix());
                assert_eq!(
                    text(|t| t.reg(&Reg {
                        kind,
                        depth,
                        index,
                        n: 0
                    })),
                    expected
                );
            }
        }
    }

    #[test]
    fn every_depth_is_indented() {
        for depth in 0..30 {
            assert_eq!(text(|t| t.indent(depth)), " ".repeat(4 * depth));
        }
    }
}
