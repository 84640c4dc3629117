//! Reads the number of instructions of a kernel from the cubin that ptxas writes, which is a 64-bit
//! little-endian ELF file.

/// The number of bytes in an instruction, since Volta.
const INSTRUCTION: usize = 16;
/// The opcode (low 12 bits) of NOP, with which ptxas pads the section.
const NOP: u16 = 0x918;

/// Returns the number of instructions in the code of `kernel`, without the padding at its end, or
/// `None` if the file is not a cubin with this kernel.
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
    /// The offset of the table in the file.
    table: usize,
    /// The number of sections.
    count: usize,
    /// The index of the section with the names.
    names: usize,
}

impl<'a> Sections<'a> {
    /// Reads the header of a 64-bit little-endian ELF file.
    fn of(file: &'a [u8]) -> Option<Self> {
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let table = word::<8>(file, 0x28)?;
        Some(Self {
            file,
            table,
            count: word::<2>(file, 0x3c)?,
            names: word::<2>(file, 0x3e)?,
        })
    }

    /// Returns a field of a section header of 64 bytes.
    fn field<const N: usize>(&self, section: usize, at: usize) -> Option<usize> {
        word::<N>(self.file, self.table.checked_add(section * 64 + at)?)
    }

    /// Returns the contents of a section.
    fn bytes(&self, section: usize) -> Option<&'a [u8]> {
        let start = self.field::<8>(section, 0x18)?;
        self.file
            .get(start..start.checked_add(self.field::<8>(section, 0x20)?)?)
    }

    /// Returns the name of a section.
    fn name(&self, section: usize) -> Option<&'a [u8]> {
        let name = self
            .bytes(self.names)?
            .get(self.field::<4>(section, 0)?..)?;
        name.split(|&byte| byte == 0).next()
    }
}

/// Returns the little-endian integer of `N` bytes at an offset.
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
