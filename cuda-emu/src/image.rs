//! Images that a program loads: PTX text, or a fat binary that contains PTX.
//!
//! Machine code is an error that explains how to get PTX instead. A fat binary, as `nvcc` embeds
//! it, is a sequence of containers. A container has a header (magic, version, size of the header,
//! size of the rest) and entries. An entry has a header and contents that are plain or compressed,
//! with LZ4 up to CUDA 12 and with Zstandard since. NVIDIA documents neither format. The layout was
//! derived from files that `nvcc` 13 writes in each of its compression modes.

use std::borrow::Cow;
use std::io::Read;

use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::error::{Error, Result, refuse};

/// The first bytes of a container.
pub(crate) const FAT_BINARY: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

/// The first bytes of the descriptor that a program registers. A version and the address of a fat
/// binary follow.
pub(crate) const DESCRIPTOR: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// The first bytes of a 64-bit object file.
pub(crate) const ELF: [u8; 5] = *b"\x7fELF\x02";

/// The size of the header of a container in bytes.
pub(crate) const HEADER: usize = 16;
/// The size of the header of an object file in bytes.
pub(crate) const ELF_HEADER: usize = 64;

/// The machine type of an object file for a GPU.
const CUDA: u16 = 190;

/// The minimum size of the header of an entry in bytes.
const ENTRY: usize = 64;
/// The maximum size of the contents of an entry in bytes. More indicates a broken file.
const MOST: usize = 1 << 30;

/// The kind of contents that are PTX.
const PTX: u16 = 1;
/// The kind of contents that are machine code.
const MACHINE_CODE: u16 = 2;
/// The flag of contents that are compressed with LZ4.
const LZ4: u64 = 0x2000;
/// The flag of contents that are compressed with Zstandard.
const ZSTANDARD: u64 = 0x8000;

/// Instructions for getting PTX instead of machine code.
const INSTEAD: &str = "the emulator runs only PTX: build with `-gencode arch=compute_80,code=compute_80` (nvcc), set \
                       CUPY_COMPILE_WITH_PTX=1 (CuPy), or let TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH name a \
                       program that copies its PTX (Triton)";

/// Returns the size of a container with this header in bytes.
pub(crate) fn length(header: &[u8]) -> usize {
    let own = number(header, 6, 2);
    let rest = number(header, 8, 8);
    own.saturating_add(rest) as usize
}

/// Returns the PTX text in an image: the image itself, or the best matching PTX of a fat binary.
pub(crate) fn text<'a>(config: &EmulatorConfig, image: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    if image.starts_with(&FAT_BINARY) {
        return of_fat_binary(config, image).map(Cow::Owned);
    }
    if image.starts_with(&ELF) && number(image, 18, 2) == CUDA.into() {
        // The architecture is in the low byte of the flags or, since ABI 8, in the one above.
        let flags = number(image, 48, 4);
        let architecture = if number(image, 8, 1) < 8 {
            flags & 0xff
        } else {
            flags >> 8 & 0xff
        };
        return refuse(
            CUresult::NO_BINARY_FOR_GPU,
            format!("the image is machine code for sm_{architecture}; {INSTEAD}\n"),
        );
    }
    Ok(Cow::Borrowed(image))
}

/// An entry of a fat binary.
struct FatBinaryEntry<'a> {
    kind: u16,
    architecture: u64,
    flags: u64,
    /// The size of the contents after decompression in bytes, or 0 if they are not compressed.
    bytes: usize,
    contents: &'a [u8],
}

fn of_fat_binary(config: &EmulatorConfig, image: &[u8]) -> Result<Vec<u8>> {
    let (major, minor) = config.compute_capability;
    let device = u64::from(major * 10 + minor);
    let entries = entries(image).ok_or_else(|| broken("it ends within an entry"))?;
    let fitting = entries
        .iter()
        .filter(|entry| entry.kind == PTX && entry.architecture <= device);
    match fitting.max_by_key(|entry| entry.architecture) {
        Some(entry) => entry.text(),
        None => refuse(CUresult::NO_BINARY_FOR_GPU, unfit(&entries, device)),
    }
}

fn broken(why: &str) -> Error {
    Error::new(
        CUresult::INVALID_IMAGE,
        format!("the fat binary is broken: {why}"),
    )
}

/// Returns the message for a fat binary that has nothing for the device.
fn unfit(entries: &[FatBinaryEntry], device: u64) -> String {
    let name = |entry: &FatBinaryEntry| match entry.kind {
        PTX => format!("PTX for sm_{}", entry.architecture),
        MACHINE_CODE => format!("machine code for sm_{}", entry.architecture),
        kind => format!("contents of kind {kind} for sm_{}", entry.architecture),
    };
    let has: Vec<String> = entries.iter().map(name).collect();
    let has = if has.is_empty() {
        "nothing".into()
    } else {
        has.join(", ")
    };
    format!(
        "the fat binary has {has}, but no PTX for the device, which is sm_{device}; {INSTEAD}\n"
    )
}

/// Returns the entries of all containers, or `None` if the data ends inside one of them.
fn entries(image: &[u8]) -> Option<Vec<FatBinaryEntry<'_>>> {
    let mut entries = Vec::new();
    let mut rest = image;
    while rest.starts_with(&FAT_BINARY) && rest.len() >= HEADER {
        let (container, after) = rest.split_at_checked(length(rest))?;
        let mut left = container.get(number(container, 6, 2) as usize..)?;
        while !left.is_empty() {
            let header = number(left, 4, 4) as usize;
            let bytes = number(left, 8, 8) as usize;

            // The size of the header also ensures that the loop makes progress.
            if header < ENTRY {
                return None;
            }

            let (entry, next) = left.split_at_checked(header.checked_add(bytes)?)?;
            let (header, contents) = entry.split_at(header);
            entries.push(FatBinaryEntry::new(header, contents));
            left = next;
        }

        rest = after;
    }

    Some(entries)
}

impl<'a> FatBinaryEntry<'a> {
    fn new(header: &[u8], contents: &'a [u8]) -> Self {
        // Compressed contents are padded, and this is their size without padding.
        let compressed = number(header, 16, 4) as usize;
        let used = if compressed == 0 {
            contents.len()
        } else {
            compressed.min(contents.len())
        };
        Self {
            kind: number(header, 0, 2) as u16,
            architecture: number(header, 28, 4),
            flags: number(header, 40, 8),
            bytes: number(header, 56, 8) as usize,
            contents: &contents[..used],
        }
    }

    /// Returns the contents as text, without the NUL that pads it.
    fn text(&self) -> Result<Vec<u8>> {
        if self.bytes > MOST {
            return Err(broken(&format!("an entry has {} bytes", self.bytes)));
        }

        let mut text = if self.flags & ZSTANDARD != 0 {
            self.unpack_zstandard()?
        } else if self.flags & LZ4 != 0 {
            lz4_flex::block::decompress(self.contents, self.bytes)
                .map_err(|error| broken(&error.to_string()))?
        } else {
            self.contents.to_vec()
        };
        text.truncate(
            text.iter()
                .position(|byte| *byte == 0)
                .unwrap_or(text.len()),
        );
        Ok(text)
    }

    fn unpack_zstandard(&self) -> Result<Vec<u8>> {
        let decoder = ruzstd::decoding::StreamingDecoder::new(self.contents);
        let mut text = Vec::new();
        let read = decoder
            .map_err(|error| broken(&error.to_string()))?
            .take(MOST as u64)
            .read_to_end(&mut text);
        read.map_err(|error| broken(&error.to_string()))?;
        if text.len() == self.bytes {
            Ok(text)
        } else {
            Err(broken("the size of an entry differs from its header"))
        }
    }
}

/// Returns a little-endian number. Missing bytes count as 0.
fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    (0..count).fold(0, |number, i| {
        number | u64::from(bytes.get(at + i).copied().unwrap_or(0)) << (8 * i)
    })
}
