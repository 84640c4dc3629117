//! The small model in Q8_0, made from its F16 file, so that the repository need not carry both.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use warpwright_engine::gguf::Gguf;

use crate::oracle::half;

/// The file `rustdoc-7m-Q8_0.gguf`, made once.
pub(crate) fn q8_0() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(make).clone()
}

fn make() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rustdoc-7m-Q8_0.gguf");
    std::fs::write(&path, requantized(&crate::repository("tests/data/rustdoc-7m-F16.gguf"))).unwrap();
    path
}

/// A GGUF with its F16 tensors in Q8_0. The directory keeps its length, so it is patched in place.
fn requantized(path: &Path) -> Vec<u8> {
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
        let at =
            bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 8 * t.dims.len();
        let kind = if t.kind.name == "F16" { 8u32 } else { t.kind.id };
        out[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        out[at + 4..at + 12].copy_from_slice(&offset.to_le_bytes());
        match t.kind.name {
            "F16" => source.data(t).chunks_exact(64).for_each(|block| out.extend(block_q8_0(block))),
            _ => out.extend(source.data(t)),
        }
    }
    out
}

/// `quantize_row_q8_0_ref` of `ggml-quants.c`.
fn block_q8_0(f16s: &[u8]) -> Vec<u8> {
    let x: Vec<f32> = f16s.chunks_exact(2).map(|b| half(b) as f32).collect();
    let d = x.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let scale = ptx_gen::f16::from_f32(d).0.to_le_bytes();
    scale.into_iter().chain(x.iter().map(|x| (x * inverse).round() as i8 as u8)).collect()
}
