//! Matrices in MXFP4, as gpt-oss stores the matrices of experts
//! (<https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf>).
//!
//! A folder has two tensors for the matrices of all experts of a layer:
//!
//! - `NAME_blocks`, `[experts, rows, n / 32, 16]`, has two codes a byte. The lower half of a byte is
//!   the earlier code.
//! - `NAME_scales`, `[experts, rows, n / 32]`, has the exponent of each block of 32 values.
//!
//! They are read as the blocks of GGUF files: the exponent, and then 16 bytes. There, byte `i` has
//! the codes `i` and `i + 16` of the block. The values stay the same.
//!
//! The rows of gates and of up projections alternate in `gate_up_proj`, so that tensor is read as
//! two.

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::Dtype;

use crate::Error;
use crate::folder::experts::FusedHalf;
use crate::folder::folder_fault::Fault;
use crate::folder::tensor::FolderTensor;

/// The suffix in the name of the codes.
const BLOCKS: &str = "_blocks";
/// The suffix in the name of the exponents.
const SCALES: &str = "_scales";
/// The number of values of a block.
const BLOCK: usize = 32;
/// The bytes of a block's codes.
const CODES: usize = BLOCK / 2;
/// The bytes of a block in GGUF files.
const BLOCK_BYTES: usize = CODES + 1;

/// Rows of matrices in MXFP4: all rows of two tensors, or every other one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mxfp4Rows {
    /// The bytes of the codes in the files.
    codes: Range<usize>,
    /// The bytes of the exponents in the files.
    scales: Range<usize>,
    /// The number of blocks of a row.
    blocks: usize,
    /// The first row.
    first: usize,
    /// The distance of two rows, 1 or 2.
    step: usize,
    /// The number of rows.
    rows: usize,
}

/// Removes the tensors of all MXFP4 matrices from the tensors of a folder. Returns the matrices with
/// their names, and with their tensors without a range.
pub(crate) fn take(
    tensors: &mut BTreeMap<String, FolderTensor>,
) -> Result<Vec<(String, FolderTensor, Mxfp4Rows)>, Fault> {
    let is_codes = |name: &&String| {
        let named = name.strip_suffix(BLOCKS);
        named.is_some_and(|name| name.contains(".experts."))
    };
    let names: Vec<String> = tensors.keys().filter(is_codes).cloned().collect();
    let mut found = vec![];
    for name in names {
        found.extend(of(tensors, name)?);
    }
    Ok(found)
}

/// Removes the two tensors of matrices, whose codes have this name.
fn of(
    tensors: &mut BTreeMap<String, FolderTensor>,
    name: String,
) -> Result<Vec<(String, FolderTensor, Mxfp4Rows)>, Fault> {
    let wrong = |problem: String| Fault::FourBit {
        tensor: name.clone(),
        problem,
    };
    let module = name.strip_suffix(BLOCKS).unwrap_or(&name);
    let scales = format!("{module}{SCALES}");
    let Some(scales_tensor) = tensors.remove(&scales) else {
        return Err(wrong(format!("comes without {scales:?}")));
    };
    let tensor = tensors.remove(&name).expect("the name of a tensor");
    let [count, rows, blocks, CODES] = tensor.shape[..] else {
        return Err(wrong(format!(
            "has shape {:?}; expected [experts, rows, blocks, {CODES}] of MXFP4",
            tensor.shape
        )));
    };
    if tensor.dtype != Dtype::U8 || tensor.range.is_empty() {
        return Err(wrong(format!(
            "is {:?} of shape {:?}; expected U8 with at least one value",
            tensor.dtype, tensor.shape
        )));
    }
    if scales_tensor.dtype != Dtype::U8 || scales_tensor.shape != [count, rows, blocks] {
        return Err(wrong(format!(
            "has {scales:?} of {:?} and shape {:?}; expected U8 and {:?}",
            scales_tensor.dtype,
            scales_tensor.shape,
            [count, rows, blocks]
        )));
    }

    let read = |first: usize, step: usize| {
        let matrices = FolderTensor {
            shape: vec![count, rows / step, blocks * BLOCK],
            mxfp4: true,
            ..tensor.clone()
        };
        let rows = Mxfp4Rows {
            codes: tensor.range.clone(),
            scales: scales_tensor.range.clone(),
            blocks,
            first,
            step,
            rows: count * rows / step,
        };
        (matrices, rows)
    };
    if !module.ends_with(".gate_up_proj") {
        let (matrices, rows) = read(0, 1);
        return Ok(vec![(name, matrices, rows)]);
    }
    if rows % 2 != 0 {
        return Err(wrong(format!(
            "has {rows} rows per expert; expected an even number, of which every other is a gate"
        )));
    }

    let halves = [(FusedHalf::Gate, 0), (FusedHalf::Up, 1)];
    let halves = halves.map(|(half, first)| {
        let (matrices, rows) = read(first, 2);
        (half.name(&name), matrices, rows)
    });
    Ok(halves.into())
}

impl Mxfp4Rows {
    /// Returns the bytes of the rows in the blocks of GGUF files.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.blocks * BLOCK_BYTES
    }

    /// Fills `into` with bytes of the rows from offset `at`. `read` fills a buffer with bytes of the
    /// files.
    pub(crate) fn read(
        &self,
        at: usize,
        into: &mut [u8],
        read: impl Fn(usize, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }

        // Whole rows of the file, from the first to the last that the bytes belong to.
        let row_bytes = self.blocks * BLOCK_BYTES;
        let rows = at / row_bytes..(at + into.len()).div_ceil(row_bytes);
        let start = self.first + self.step * rows.start;
        let count = self.step * (rows.len() - 1) + 1;
        let part = |all: &Range<usize>, row: usize| {
            let mut bytes = vec![0; count * row];
            read(all.start + start * row, &mut bytes).map(|()| bytes)
        };
        let codes = part(&self.codes, self.blocks * CODES)?;
        let scales = part(&self.scales, self.blocks)?;

        let skipped = at - rows.start * row_bytes;
        let wanted = skipped..skipped + into.len();
        let stored = (0..rows.len()).flat_map(|row| {
            let first = self.step * row * self.blocks;
            first..first + self.blocks
        });
        for (index, block) in stored.enumerate() {
            let codes = &codes[block * CODES..][..CODES];
            let blocked = in_gguf(scales[block], codes);
            let start = index * BLOCK_BYTES;
            let from = wanted.start.max(start);
            let to = wanted.end.min(start + BLOCK_BYTES);
            if from < to {
                into[from - skipped..to - skipped]
                    .copy_from_slice(&blocked[from - start..to - start]);
            }
        }
        Ok(())
    }
}

/// Returns a block as GGUF files have it.
fn in_gguf(scale: u8, codes: &[u8]) -> [u8; BLOCK_BYTES] {
    let code = |i: usize| (codes[i / 2] >> (4 * (i % 2))) & 15;
    let mut block = [scale; BLOCK_BYTES];
    for (i, byte) in block[1..].iter_mut().enumerate() {
        *byte = code(i) | code(i + CODES) << 4;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], start: usize) -> FolderTensor {
        FolderTensor {
            dtype: Dtype::U8,
            shape: shape.to_vec(),
            range: start..start + shape.iter().product::<usize>(),
            in_f32: None,
            nf4: None,
            mxfp4: false,
        }
    }

    fn folder(tensors: &[(&str, &[usize], usize)]) -> BTreeMap<String, FolderTensor> {
        let tensors = tensors.iter();
        tensors
            .map(|(name, shape, start)| ((*name).to_owned(), tensor(shape, *start)))
            .collect()
    }

    /// Two experts with four rows of two blocks. The exponent of a block is its index, and its codes
    /// are its index and the neighbors of the index.
    #[test]
    fn rows_alternate_and_codes_are_reordered() {
        let blocks = 2 * 4 * 2;
        let mut file: Vec<u8> = (0..blocks * CODES)
            .map(|i| (i % 16) as u8 | ((i / 16) as u8) << 4)
            .collect();
        let scales = file.len();
        file.extend(0..blocks as u8);
        let name = "model.layers.0.mlp.experts.gate_up_proj_blocks";
        let other = "model.layers.0.mlp.experts.gate_up_proj_scales";
        let mut tensors = folder(&[(name, &[2, 4, 2, 16], 0), (other, &[2, 4, 2], scales)]);
        let found = take(&mut tensors).unwrap();
        assert!(tensors.is_empty());
        let [(gate_name, gate, gates), (up_name, _, ups)] = &found[..] else {
            panic!("two halves")
        };
        assert_eq!(gate_name, &format!("{name} (gate)"));
        assert_eq!(up_name, &format!("{name} (up)"));
        assert_eq!((&gate.shape[..], gate.mxfp4), (&[2, 2, 64][..], true));

        let read = |rows: &Mxfp4Rows, range: Range<usize>| {
            let mut bytes = vec![0; range.len()];
            let of_file = |start: usize, bytes: &mut [u8]| {
                bytes.copy_from_slice(&file[start..start + bytes.len()]);
                Ok(())
            };
            rows.read(range.start, &mut bytes, of_file).unwrap();
            bytes
        };
        // In the file, byte i of block b has the codes i and b: the even codes of a block count up,
        // and the odd ones are its index.
        let block = |index: u8| {
            let low = |i: u8| if i.is_multiple_of(2) { i / 2 } else { index };
            let bytes = (0..16).map(|i| low(i) | low(i + 16) << 4);
            [index].into_iter().chain(bytes).collect::<Vec<u8>>()
        };
        let wanted = |indices: [u8; 8]| indices.map(block).concat();
        let [gate_bytes, up_bytes] = [
            wanted([0, 1, 4, 5, 8, 9, 12, 13]),
            wanted([2, 3, 6, 7, 10, 11, 14, 15]),
        ];
        assert_eq!((gates.len(), ups.len()), (8 * 17, 8 * 17));
        for range in [0..8 * 17, 0..1, 16..18, 33..100, 8 * 17 - 1..8 * 17, 5..5] {
            assert_eq!(read(gates, range.clone()), gate_bytes[range.clone()]);
            assert_eq!(read(ups, range.clone()), up_bytes[range]);
        }
    }

    #[test]
    fn damaged_tensors_are_named() {
        let name = "m.experts.down_proj_blocks";
        let scales = "m.experts.down_proj_scales";
        let message = |tensors: &[(&str, &[usize], usize)]| {
            let found = take(&mut folder(tensors));
            found.expect_err("an error").to_string()
        };
        assert_eq!(
            message(&[(name, &[2, 4, 2, 16], 0)]),
            format!("tensor {name:?} comes without {scales:?}")
        );
        assert_eq!(
            message(&[(name, &[2, 4, 32], 0), (scales, &[2, 4, 2], 0)]),
            format!(
                "tensor {name:?} has shape [2, 4, 32]; expected [experts, rows, blocks, 16] of MXFP4"
            )
        );
        assert_eq!(
            message(&[(name, &[2, 4, 2, 16], 0), (scales, &[2, 4, 3], 0)]),
            format!(
                "tensor {name:?} has {scales:?} of U8 and shape [2, 4, 3]; expected U8 and [2, 4, 2]"
            )
        );
        let both = "m.experts.gate_up_proj_blocks";
        assert_eq!(
            message(&[
                (both, &[2, 3, 2, 16], 0),
                ("m.experts.gate_up_proj_scales", &[2, 3, 2], 0)
            ]),
            format!(
                "tensor {both:?} has 3 rows per expert; expected an even number, of which every other \
                 is a gate"
            )
        );
    }
}
