//! Matrices in the 4-bit format NF4 of bitsandbytes, read as the 16-bit or 32-bit matrices that
//! they represent.
//!
//! A file has more tensors for each `NAME.weight`, whose bytes have two codes each
//! (`QuantState.as_dict` of bitsandbytes):
//!
//! - `.quant_state.bitsandbytes__nf4` is JSON with the shape and the type.
//! - `.quant_map` has the value of each code.
//! - `.absmax` has a scale for 64 weights in row-major order. It is F32 or nested. If nested, it
//!   has 8-bit codes, whose values are in `.nested_quant_map`. `.nested_absmax` then has a scale
//!   for 256 codes, and the JSON has an offset.
//!
//! The weights are `w = round(map[code] * absmax)` with `absmax = nested_map[code] * scale +
//! offset`. All of it is computed in F32, and rounded once to the type.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use half::{bf16, f16};
use safetensors::Dtype;
use serde_json::{Map, Value};

use crate::Error;
use crate::architecture::outline;
use crate::architecture::outline::floats;
use crate::folder::folder_fault::Fault;
use crate::folder::json::shown;
use crate::folder::tensor::FolderTensor;
use crate::format::nf4;
use crate::format::nf4::{NESTED_BLOCK, Nf4Absmax, Nf4Matrix};

/// The suffix in the name of a matrix's settings, before its type.
const STATE: &str = ".quant_state.bitsandbytes__";

/// Reads a range of the files.
pub(crate) type Bytes<'a> = &'a dyn Fn(&Range<usize>) -> Result<Vec<u8>, Error>;

/// A matrix in NF4.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FourBit {
    shape: [usize; 2],
    /// The type of the matrix that the codes represent.
    dtype: Dtype,
    /// Two codes a byte.
    codes: Range<usize>,
    absmax: Absmax,
}

#[derive(Debug, Clone, PartialEq)]
enum Absmax {
    F32(Range<usize>),
    Nested {
        codes: Range<usize>,
        map: Vec<f32>,
        scales: Vec<f32>,
        offset: f32,
    },
}

/// The tensors of a folder, from which the tensors of an NF4 matrix are removed.
struct Nf4Tensors<'a> {
    tensors: &'a mut BTreeMap<String, FolderTensor>,
    path: &'a Path,
    /// The name of the matrix.
    name: &'a str,
}

/// Removes the tensors of all NF4 matrices from the tensors of a folder, and returns the matrices.
pub(crate) fn take(
    tensors: &mut BTreeMap<String, FolderTensor>,
    path: &Path,
    bytes: Bytes<'_>,
) -> Result<Vec<(String, FourBit)>, Error> {
    let states = tensors.keys().filter_map(|name| name.split_once(STATE));
    let states: Vec<_> = states
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let of = |(name, kind): (String, String)| {
        let matrix = Nf4Tensors {
            tensors,
            path,
            name: &name,
        }
        .matrix(&kind, bytes)?;
        Ok((name, matrix))
    };
    states.into_iter().map(of).collect()
}

impl Nf4Tensors<'_> {
    fn matrix(&mut self, kind: &str, bytes: Bytes<'_>) -> Result<FourBit, Error> {
        if kind != "nf4" {
            return self.refuse(format!("is in {kind}; of 4-bit formats NF4 is supported"));
        }

        let state = self.take(&format!("{STATE}{kind}"), Dtype::U8, None)?;
        let state = serde_json::from_slice(&bytes(&state)?);
        let state: Map<String, Value> = state.or_else(|error| {
            self.refuse(format!("has settings that are no JSON object: {error}"))
        })?;
        let shape = self.shape(&state)?;
        let dtype = self.dtype(&state)?;
        self.is(&state, "quant_type", &Value::from("nf4"))?;
        self.is(&state, "blocksize", &Value::from(nf4::BLOCK))?;
        let map = self.take(".quant_map", Dtype::F32, Some(16))?;
        if floats(&bytes(&map)?) != nf4::VALUES {
            return self.refuse("has another .quant_map than NF4".into());
        }

        let weights = shape[0] * shape[1];
        let codes = self.take("", Dtype::U8, Some(weights.div_ceil(2)))?;
        let absmax = self.absmax(&state, weights.div_ceil(nf4::BLOCK), bytes)?;
        Ok(FourBit {
            shape,
            dtype,
            codes,
            absmax,
        })
    }

    fn absmax(
        &mut self,
        state: &Map<String, Value>,
        blocks: usize,
        bytes: Bytes<'_>,
    ) -> Result<Absmax, Error> {
        if state.get("nested_blocksize").is_none_or(Value::is_null) {
            return Ok(Absmax::F32(self.take(
                ".absmax",
                Dtype::F32,
                Some(blocks),
            )?));
        }

        self.is(state, "nested_blocksize", &Value::from(NESTED_BLOCK))?;
        let offset = state
            .get("nested_offset")
            .and_then(Value::as_f64)
            .map(|offset| offset as f32);
        let Some(offset) = offset.filter(|offset| offset.is_finite()) else {
            return self.refuse("has no finite \"nested_offset\" in its settings".into());
        };

        let codes = self.take(".absmax", Dtype::U8, Some(blocks))?;
        let map = self.take(".nested_quant_map", Dtype::F32, Some(256))?;
        let scales = self.take(
            ".nested_absmax",
            Dtype::F32,
            Some(blocks.div_ceil(NESTED_BLOCK)),
        )?;
        Ok(Absmax::Nested {
            codes,
            map: floats(&bytes(&map)?),
            scales: floats(&bytes(&scales)?),
            offset,
        })
    }

    /// Removes the tensor whose name has the suffix `end`, and returns its range. Checks its type
    /// and its length.
    fn take(&mut self, end: &str, dtype: Dtype, len: Option<usize>) -> Result<Range<usize>, Error> {
        let name = format!("{}{end}", self.name);
        let Some(tensor) = self.tensors.remove(&name) else {
            return self.refuse(format!("comes without {name:?}"));
        };

        let found: usize = tensor.shape.iter().product();
        if tensor.dtype != dtype || len.is_some_and(|len| len != found) {
            let wanted = len.map_or(String::new(), |len| format!(" and {len} numbers"));
            return self.refuse(format!(
                "has {name:?} of {:?} and shape {:?}; expected {dtype:?}{wanted}",
                tensor.dtype, tensor.shape
            ));
        }

        Ok(tensor.range)
    }

    fn shape(&self, state: &Map<String, Value>) -> Result<[usize; 2], Error> {
        let shape = state
            .get("shape")
            .and_then(Value::as_array)
            .map(Vec::as_slice);
        let size = |n: &Value| {
            n.as_u64()
                .filter(|n| (1..=1 << 24).contains(n))
                .map(|n| n as usize)
        };
        match shape.unwrap_or_default() {
            [rows, n] => size(rows).zip(size(n)).map(|(rows, n)| [rows, n]),
            _ => None,
        }
        .map_or_else(
            || self.refuse("has no \"shape\" of rows and columns in its settings".into()),
            Ok,
        )
    }

    fn dtype(&self, state: &Map<String, Value>) -> Result<Dtype, Error> {
        match state.get("dtype").and_then(Value::as_str) {
            Some("bfloat16") => Ok(Dtype::BF16),
            Some("float16") => Ok(Dtype::F16),
            Some("float32") => Ok(Dtype::F32),
            _ => self
                .refuse("has no \"dtype\" of bfloat16, float16 or float32 in its settings".into()),
        }
    }

    fn is(&self, state: &Map<String, Value>, key: &str, wanted: &Value) -> Result<(), Error> {
        let found = state.get(key).unwrap_or(&Value::Null);
        if found == wanted {
            return Ok(());
        }
        self.refuse(format!(
            "has a {key:?} of {} in its settings; {} is supported",
            shown(found),
            shown(wanted)
        ))
    }

    fn refuse<T>(&self, problem: String) -> Result<T, Error> {
        let fault = Fault::FourBit {
            tensor: self.name.to_owned(),
            problem,
        };
        Err(Error::Folder {
            path: self.path.to_owned(),
            fault: Box::new(fault),
        })
    }
}

impl FourBit {
    /// As a tensor whose numbers begin at `start`.
    pub(crate) fn tensor(&self, start: usize) -> FolderTensor {
        let len = self.shape[0] * self.shape[1] * self.number();
        let absmax = if self.absmax.is_nested() {
            outline::Absmax::Nested
        } else {
            outline::Absmax::F32
        };
        FolderTensor {
            dtype: self.dtype,
            shape: self.shape.to_vec(),
            range: start..start + len,
            in_f32: None,
            nf4: Some(absmax),
            mxfp4: false,
        }
    }

    /// Bytes of a number that is read.
    fn number(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    /// Fills `into` with bytes of the matrix that it stands for, from `at` on.
    pub(crate) fn read(&self, at: usize, into: &mut [u8], bytes: Bytes<'_>) -> Result<(), Error> {
        // Whole blocks, so that codes and `absmax` fit.
        let weights = self.shape[0] * self.shape[1];
        let last = (at + into.len())
            .div_ceil(self.number())
            .div_ceil(nf4::BLOCK);
        let blocks = at / self.number() / nf4::BLOCK..last;
        let first = blocks.start * nf4::BLOCK;
        let codes = first / 2..(blocks.end * nf4::BLOCK).min(weights).div_ceil(2);
        let packed = bytes(&within(&self.codes, codes))?;
        let numbers = nf4::dequantize(&packed, &self.absmax.of(blocks, bytes)?);
        let numbers = numbers.into_iter().flat_map(|w| rounded(w, self.dtype));
        let skipped = at - first * self.number();
        for (to, byte) in into.iter_mut().zip(numbers.skip(skipped)) {
            *to = byte;
        }

        Ok(())
    }

    /// Returns the codes as in the file, and `absmax`. It stays nested if its map is the one of
    /// bitsandbytes.
    pub(crate) fn nf4(&self, bytes: Bytes<'_>) -> Result<Nf4Matrix, Error> {
        let blocks = (self.shape[0] * self.shape[1]).div_ceil(nf4::BLOCK);
        let absmax = match &self.absmax {
            Absmax::Nested {
                codes,
                scales,
                offset,
                ..
            } if self.absmax.is_nested() => Nf4Absmax::Nested {
                codes: bytes(codes)?,
                scales: scales.clone(),
                offset: *offset,
            },
            other => Nf4Absmax::F32(other.of(0..blocks, bytes)?),
        };
        Ok(Nf4Matrix {
            packed: bytes(&self.codes)?,
            absmax,
        })
    }
}

impl Absmax {
    /// Whether it is nested as kernels know it.
    fn is_nested(&self) -> bool {
        matches!(self, Absmax::Nested { map, .. } if *map == nf4::dynamic_map())
    }

    fn of(&self, blocks: Range<usize>, bytes: Bytes<'_>) -> Result<Vec<f32>, Error> {
        match self {
            Absmax::F32(range) => Ok(floats(&bytes(&within(
                range,
                4 * blocks.start..4 * blocks.end,
            ))?)),
            Absmax::Nested {
                codes,
                map,
                scales,
                offset,
            } => {
                let codes = bytes(&within(codes, blocks.clone()))?;
                let absmax =
                    |(block, code)| map[usize::from(code)] * scales[block / NESTED_BLOCK] + offset;
                Ok(blocks.zip(codes).map(absmax).collect())
            }
        }
    }
}

fn within(all: &Range<usize>, part: Range<usize>) -> Range<usize> {
    all.start + part.start..all.start + part.end
}

fn rounded(w: f32, dtype: Dtype) -> impl Iterator<Item = u8> {
    let (bytes, len) = match dtype {
        Dtype::F32 => (w.to_le_bytes(), 4),
        Dtype::F16 => (wide(f16::from_f32(w).to_le_bytes()), 2),
        _ => (wide(bf16::from_f32(w).to_le_bytes()), 2),
    };
    bytes.into_iter().take(len)
}

fn wide([a, b]: [u8; 2]) -> [u8; 4] {
    [a, b, 0, 0]
}
