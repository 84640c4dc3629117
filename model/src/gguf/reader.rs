//! Reads the little-endian numbers and strings at the beginning of a file.

use crate::gguf::fault::Fault;

/// A position in the file. Each read takes a description of the item, for the error.
#[derive(Clone)]
pub(crate) struct ByteReader<'a> {
    /// The first bytes of the file.
    pub(crate) file: &'a [u8],
    /// Bytes of the file.
    pub(crate) len: usize,
    pub(crate) at: usize,
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(file: &'a [u8]) -> ByteReader<'a> {
        ByteReader {
            file,
            len: file.len(),
            at: 0,
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.len - self.at
    }

    pub(crate) fn bytes(
        &mut self,
        need: u64,
        what: impl Fn() -> String,
    ) -> Result<&'a [u8], Fault> {
        let left = self.left();
        if need > left as u64 {
            return Err(Fault::Truncated {
                what: what(),
                at: self.at,
                need,
                left,
            });
        }

        let start = self.at;
        self.at += need as usize;
        self.file
            .get(start..self.at)
            .ok_or(Fault::Beyond(self.file.len()))
    }

    pub(crate) fn array_of<const N: usize>(
        &mut self,
        what: impl Fn() -> String,
    ) -> Result<[u8; N], Fault> {
        let bytes = self.bytes(N as u64, what)?;
        Ok(bytes.try_into().expect("bytes() gives as many as asked"))
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        self.array_of(|| what.to_owned())
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Fault> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(crate) fn u32_of(&mut self, what: impl Fn() -> String) -> Result<u32, Fault> {
        self.array_of(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64_of(&mut self, what: impl Fn() -> String) -> Result<u64, Fault> {
        self.array_of(what).map(u64::from_le_bytes)
    }

    /// Refuses a count of things that cannot all be in the rest of the file.
    pub(crate) fn room(&self, what: &'static str, count: u64, least: u64) -> Result<(), Fault> {
        let left = self.left();
        let most = left as u64 / least;
        if count > most {
            return Err(Fault::Count {
                what,
                count,
                left,
                most,
            });
        }

        Ok(())
    }

    pub(crate) fn string(&mut self, what: impl Fn() -> String) -> Result<&'a str, Fault> {
        let length = self.u64_of(&what)?;
        let bytes = self.bytes(length, &what)?;
        std::str::from_utf8(bytes).map_err(|_| Fault::NotUtf8 { what: what() })
    }
}
