//! The size of a kernel's machine code, read from the cubin (64-bit little-endian ELF) that ptxas writes.

/// Bytes of an instruction from Volta on.
const INSTRUCTION: usize = 16;
/// The opcode (low 12 bits) of NOP, with which ptxas pads the section.
const NOP: u16 = 0x918;

/// Instructions in `kernel`'s code, the padding at its end left out; `None` if the file is no such cubin.
pub(crate) fn instructions(cubin: &[u8], kernel: &str) -> Option<usize> {
    let wanted = format!(".text.{kernel}");
    let sections = Sections::of(cubin)?;
    let code = (0..sections.count)
        .find(|&i| sections.name(i) == Some(wanted.as_bytes()))
        .and_then(|i| sections.bytes(i))?;
    let padding = code
        .rchunks_exact(INSTRUCTION)
        .take_while(|word| u16::from_le_bytes([word[0], word[1]]) & 0xfff == NOP)
        .count();
    Some(code.len() / INSTRUCTION - padding)
}

/// The section table of an ELF file.
struct Sections<'a> {
    file: &'a [u8],
    table: usize,
    count: usize,
    names: usize,
}

impl<'a> Sections<'a> {
    fn of(file: &'a [u8]) -> Option<Self> {
        file.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let table = word::<8>(file, 0x28)?;
        Some(Self {
            file,
            table,
            count: word::<2>(file, 0x3c)?,
            names: word::<2>(file, 0x3e)?,
        })
    }

    fn field<const N: usize>(&self, section: usize, at: usize) -> Option<usize> {
        word::<N>(self.file, self.table.checked_add(section * 64 + at)?)
    }

    fn bytes(&self, section: usize) -> Option<&'a [u8]> {
        let start = self.field::<8>(section, 0x18)?;
        self.file
            .get(start..start.checked_add(self.field::<8>(section, 0x20)?)?)
    }

    fn name(&self, section: usize) -> Option<&'a [u8]> {
        let name = self
            .bytes(self.names)?
            .get(self.field::<4>(section, 0)?..)?;
        name.split(|&byte| byte == 0).next()
    }
}

/// A little-endian number of `N` bytes.
fn word<const N: usize>(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(N)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | usize::from(byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::instructions;

    #[test]
    fn what_is_no_cubin_has_no_instructions() {
        for file in [&b""[..], b"PTX", b"\x7fELF\x02\x01", &[0xff; 256]] {
            assert_eq!(instructions(file, "k"), None);
        }
        let mut lying = vec![0xff; 128];
        lying[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(instructions(&lying, "k"), None);
    }
}
