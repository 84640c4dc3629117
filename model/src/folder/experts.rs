//! The matrices of experts in a folder.
//!
//! Most folders have one tensor per expert and matrix, such as `mlp.experts.7.up_proj.weight`. Those
//! of one matrix are read as one tensor, `mlp.experts.*.up_proj.weight`, whose first dimension is the
//! expert. Other folders store the gate and up matrices of all experts in one tensor of three
//! dimensions, each expert's gate rows before its up rows. Such a tensor is read as two. Either way
//! the matrices of a weight are the same number of bytes in several places of the files.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Error;
use crate::folder::folder_fault::Fault;
use crate::folder::tensor::FolderTensor;
use crate::format::stored_vector::{StoredVector, VectorChange};
use crate::format::wide::WideFormat;

/// The matrices of all experts, which are in several places of the files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StackedExperts {
    /// The bytes of each expert's matrix. All have the same length, which is not 0.
    parts: Vec<Range<usize>>,
}

/// A tensor that is read as the matrices of experts, by its name and without its range.
pub(crate) struct ExpertTensor {
    pub(crate) name: String,
    pub(crate) tensor: FolderTensor,
    pub(crate) stacked: StackedExperts,
}

/// The half of a tensor that has the gate and up matrices of all experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FusedHalf {
    Gate,
    Up,
}

impl FusedHalf {
    /// Returns the name under which the half of a tensor is read.
    pub(crate) fn name(self, tensor: &str) -> String {
        match self {
            FusedHalf::Gate => format!("{tensor} (gate)"),
            FusedHalf::Up => format!("{tensor} (up)"),
        }
    }
}

/// The ending of tensors in which the biases of gates and of up projections alternate.
const BIASES: &str = ".experts.gate_up_proj_bias";

/// Removes the tensors in which the biases of gates and of up projections alternate, and returns each
/// as two: the name, the tensor without its range, and the values. A tensor of another form stays, so
/// that reading it reports its shape or type.
pub(crate) fn take_biases(
    tensors: &mut BTreeMap<String, FolderTensor>,
) -> Vec<(String, FolderTensor, StoredVector)> {
    let fits = |(name, tensor): &(&String, &FolderTensor)| {
        let even = matches!(tensor.shape[..], [_, rows] if rows % 2 == 0);
        name.ends_with(BIASES) && even && !tensor.range.is_empty()
    };
    let names = tensors.iter().filter(fits);
    let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    let mut found = vec![];
    for name in names {
        let Some(format) = WideFormat::for_dtype(tensors[&name].dtype) else {
            continue;
        };
        let tensor = tensors.remove(&name).expect("the name of a tensor");
        for half in [FusedHalf::Gate, FusedHalf::Up] {
            let vector = StoredVector {
                from: tensor.range.start + half as usize * format.bytes()..tensor.range.end,
                step: 2,
                format,
                change: VectorChange::NONE,
            };
            let own = FolderTensor {
                shape: vec![tensor.shape[0], tensor.shape[1] / 2],
                ..tensor.clone()
            };
            found.push((half.name(&name), own, vector));
        }
    }
    found
}

/// The endings of tensors that have the gate and up matrices of all experts.
const FUSED: [&str; 2] = [
    ".experts.gate_up_proj",
    ".block_sparse_moe.input_linear.weight",
];

impl StackedExperts {
    /// Returns the bytes of all matrices.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Range::len).sum()
    }

    /// Fills `bytes` with bytes of the matrices from offset `at`. `read` fills a buffer with bytes
    /// of the files.
    pub(crate) fn read(
        &self,
        mut at: usize,
        mut bytes: &mut [u8],
        read: impl Fn(usize, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let len = self.parts[0].len();
        while !bytes.is_empty() {
            let part = &self.parts[at / len];
            let within = at % len;
            let count = bytes.len().min(len - within);
            let (now, rest) = bytes.split_at_mut(count);
            read(part.start + within, now)?;
            bytes = rest;
            at += count;
        }
        Ok(())
    }
}

/// Removes the tensors of experts from the tensors of a folder, and returns the tensors as which
/// they are read.
pub(crate) fn take(
    tensors: &mut BTreeMap<String, FolderTensor>,
) -> Result<Vec<ExpertTensor>, Fault> {
    let mut found = separate(tensors)?;
    found.extend(fused(tensors));
    Ok(found)
}

/// Takes tensors with one matrix each.
fn separate(tensors: &mut BTreeMap<String, FolderTensor>) -> Result<Vec<ExpertTensor>, Fault> {
    // The matrices by the name of the stack, and by expert.
    let mut stacks = BTreeMap::<String, BTreeMap<usize, String>>::new();
    for (name, tensor) in &*tensors {
        let Some((stack, expert)) = numbered(name) else {
            continue;
        };
        if tensor.shape.len() == 2 && !tensor.range.is_empty() {
            let stack = stacks.entry(stack).or_default();
            stack.insert(expert, name.clone());
        }
    }

    let stack = |(name, matrices): (String, BTreeMap<usize, String>)| {
        // The last number is the count less one only if no number is missing.
        let missing = (0..).zip(matrices.keys()).find(|(i, expert)| i != *expert);
        if let Some((expert, _)) = missing {
            return Err(Fault::NoExpert { name, expert });
        }

        let mut all = vec![];
        for matrix in matrices.values() {
            let tensor = tensors.remove(matrix);
            all.push(tensor.expect("the name of a tensor"));
        }
        let first = all[0].clone();
        for (tensor, matrix) in all.iter().zip(matrices.values()) {
            let alike = tensor.shape == first.shape
                && tensor.dtype == first.dtype
                && tensor.nf4 == first.nf4;
            if !alike {
                return Err(Fault::UnlikeExperts {
                    first: matrices[&0].clone(),
                    second: matrix.clone(),
                });
            }
        }

        let shape = [&[all.len()][..], &first.shape[..]].concat();
        Ok(ExpertTensor {
            name,
            tensor: FolderTensor { shape, ..first },
            stacked: StackedExperts {
                parts: all.into_iter().map(|tensor| tensor.range).collect(),
            },
        })
    };
    stacks.into_iter().map(stack).collect()
}

/// Returns the name of a stack and the expert, for the name of an expert's matrix.
fn numbered(name: &str) -> Option<(String, usize)> {
    let (module, rest) = name.split_once(".experts.")?;
    let (number, matrix) = rest.split_once('.')?;
    let expert: usize = number.parse().ok()?;
    // Other spellings of a number would be a second tensor of the same expert.
    (expert.to_string() == number).then(|| (format!("{module}.experts.*.{matrix}"), expert))
}

/// Takes tensors with the gate and up matrices of all experts.
fn fused(tensors: &mut BTreeMap<String, FolderTensor>) -> Vec<ExpertTensor> {
    let names = tensors.iter().filter(|(name, tensor)| {
        let fused = FUSED.iter().any(|end| name.ends_with(end));
        let even = matches!(tensor.shape[..], [_, rows, _] if rows % 2 == 0);
        fused && even && !tensor.range.is_empty()
    });
    let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    let halves = |name: String| {
        let tensor = tensors.remove(&name).expect("the name of a tensor");
        let [count, rows, n] = tensor.shape[..] else {
            unreachable!("the tensors were chosen by their dimensions")
        };
        let len = tensor.range.len() / count / 2;
        [FusedHalf::Gate, FusedHalf::Up].map(|half| {
            let part = |expert: usize| {
                let start = tensor.range.start + (2 * expert + half as usize) * len;
                start..start + len
            };
            ExpertTensor {
                name: half.name(&name),
                tensor: FolderTensor {
                    shape: vec![count, rows / 2, n],
                    ..tensor.clone()
                },
                stacked: StackedExperts {
                    parts: (0..count).map(part).collect(),
                },
            }
        })
    };
    names.into_iter().flat_map(halves).collect()
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;

    use super::*;

    fn tensor(shape: &[usize], start: usize) -> FolderTensor {
        let bytes = 2 * shape.iter().product::<usize>();
        FolderTensor {
            dtype: Dtype::BF16,
            shape: shape.to_vec(),
            range: start..start + bytes,
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

    /// The files are the numbers from 0 to 255.
    fn bytes(stacked: &StackedExperts, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        let read = |start: usize, bytes: &mut [u8]| {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = (start + i) as u8;
            }
            Ok(())
        };
        stacked.read(range.start, &mut bytes, read).unwrap();
        bytes
    }

    #[test]
    fn separate_matrices_are_read_in_the_order_of_experts() {
        // In the order of names, expert 10 comes before expert 2.
        let names: Vec<String> = (0..11)
            .map(|i| format!("model.layers.0.mlp.experts.{i}.up_proj.weight"))
            .collect();
        let all: Vec<(&str, &[usize], usize)> = (0..)
            .zip(&names)
            .map(|(i, name)| (name.as_str(), &[1usize, 2][..], 200 - 4 * i))
            .collect();
        let mut tensors = folder(&all);
        let found = take(&mut tensors).unwrap();
        assert!(tensors.is_empty());
        let [only] = &found[..] else {
            panic!("one stack")
        };
        assert_eq!(only.name, "model.layers.0.mlp.experts.*.up_proj.weight");
        assert_eq!(only.tensor.shape, [11, 1, 2]);
        assert_eq!(only.stacked.len(), 44);
        // A range that begins and ends within experts.
        assert_eq!(
            bytes(&only.stacked, 2..9),
            [202, 203, 196, 197, 198, 199, 192]
        );
        assert_eq!(bytes(&only.stacked, 40..44), [160, 161, 162, 163]);
    }

    #[test]
    fn fused_matrices_are_read_as_two() {
        let name = "model.layers.0.mlp.experts.gate_up_proj";
        let mut tensors = folder(&[(name, &[2, 4, 1], 100)]);
        let found = take(&mut tensors).unwrap();
        let [gate, up] = &found[..] else {
            panic!("two halves")
        };
        assert_eq!(gate.name, format!("{name} (gate)"));
        assert_eq!(gate.tensor.shape, [2, 2, 1]);
        assert_eq!(
            bytes(&gate.stacked, 0..8),
            [100, 101, 102, 103, 108, 109, 110, 111]
        );
        assert_eq!(
            bytes(&up.stacked, 0..8),
            [104, 105, 106, 107, 112, 113, 114, 115]
        );
    }

    #[test]
    fn missing_and_unlike_experts_are_named() {
        let mut tensors = folder(&[
            ("m.experts.0.up_proj.weight", &[2, 2], 0),
            ("m.experts.2.up_proj.weight", &[2, 2], 8),
        ]);
        let fault = take(&mut tensors).err().unwrap().to_string();
        assert_eq!(
            fault,
            "expert 1 of \"m.experts.*.up_proj.weight\" is missing, but later experts are there"
        );
        let mut tensors = folder(&[
            ("m.experts.0.up_proj.weight", &[2, 2], 0),
            ("m.experts.1.up_proj.weight", &[4, 1], 8),
        ]);
        let fault = take(&mut tensors).err().unwrap().to_string();
        assert_eq!(
            fault,
            "tensors \"m.experts.0.up_proj.weight\" and \"m.experts.1.up_proj.weight\" differ in shape or number \
             format, but the matrices of all experts of a layer must be alike"
        );
    }
}
