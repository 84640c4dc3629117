//! The small model in other quantizations, made from its F16 file, so that the repository need not carry them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use warpwright_model::gguf::Gguf;

use crate::oracle::half;

/// The file `rustdoc-7m-Q8_0.gguf`, made once.
pub(crate) fn q8_0() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| make("rustdoc-7m-Q8_0.gguf", 8, block_q8_0))
        .clone()
}

/// The file `rustdoc-7m-Q4_0.gguf`, made once.
pub(crate) fn q4_0() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| make("rustdoc-7m-Q4_0.gguf", 2, block_q4_0))
        .clone()
}

/// The bytes of a block of 32 numbers.
type Quantize = fn(&[f32]) -> Vec<u8>;

fn make(name: &str, kind: u32, block: Quantize) -> PathBuf {
    let path = crate::scratch(name);
    let source = crate::repository("tests/data/rustdoc-7m-F16.gguf");
    std::fs::write(&path, requantized(&source, kind, block)).unwrap();
    path
}

/// A GGUF with its F16 tensors in another format, ggml's number `kind`. The directory keeps its length, so it is
/// patched in place.
fn requantized(path: &Path, kind: u32, block: Quantize) -> Vec<u8> {
    let source = Gguf::open(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let mut tensors: Vec<_> = source.directory.tensors.values().collect();
    tensors.sort_by_key(|t| t.range.start);
    let data = tensors[0].range.start;
    let mut out = bytes[..data].to_vec();
    for t in tensors {
        out.resize(out.len().next_multiple_of(32), 0);
        let offset = (out.len() - data) as u64;
        let name = [&(t.name.len() as u64).to_le_bytes()[..], t.name.as_bytes()].concat();
        let at = bytes.windows(name.len()).position(|w| w == name).unwrap()
            + name.len()
            + 4
            + 8 * t.dims.len();
        let kind = if t.kind.name == "F16" {
            kind
        } else {
            t.kind.id
        };
        out[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        out[at + 4..at + 12].copy_from_slice(&offset.to_le_bytes());
        match t.kind.name {
            "F16" => source
                .data(&t.range)
                .unwrap()
                .chunks_exact(64)
                .for_each(|f16s| out.extend(block(&numbers(f16s)))),
            _ => out.extend(source.data(&t.range).unwrap()),
        }
    }

    out
}

fn numbers(f16s: &[u8]) -> Vec<f32> {
    f16s.chunks_exact(2).map(|b| half(b) as f32).collect()
}

/// `quantize_row_q8_0_ref` of `ggml-quants.c`.
fn block_q8_0(x: &[f32]) -> Vec<u8> {
    let d = x.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
    let inverse = inverse(d);
    scale(d)
        .into_iter()
        .chain(x.iter().map(|x| (x * inverse).round() as i8 as u8))
        .collect()
}

/// `quantize_row_q4_0_ref` of `ggml-quants.c`: the number farthest from zero, the first of several, becomes -8.
fn block_q4_0(x: &[f32]) -> Vec<u8> {
    let d = x
        .iter()
        .fold(0f32, |max, x| if x.abs() > max.abs() { *x } else { max })
        / -8.0;
    let inverse = inverse(d);
    let code = |x: f32| ((x * inverse + 8.5) as u8).min(15);
    let (low, high) = x.split_at(16);
    scale(d)
        .into_iter()
        .chain(std::iter::zip(low, high).map(|(l, h)| code(*l) | code(*h) << 4))
        .collect()
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn scale(d: f32) -> [u8; 2] {
    ptx_gen::f16::from_f32(d).0.to_le_bytes()
}
