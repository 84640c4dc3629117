//! Writes a GGUF file of a known model's shapes and formats with random weights, to measure loading without a download:
//!
//! ```sh
//! cargo run --release -p warpwright-tests --example synthetic -- OUT.gguf llama3.1-8b q4_k_m
//! ```
//!
//! The layout is that of the GGUF specification, version 3 (ggml, docs/gguf.md). The file has no tokenizer: `bench` and
//! `logits` take it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use warpwright_engine::model::Weight;
use warpwright_engine::shape::{QUANTIZATIONS, SHAPES};
use warpwright_engine::{Model, Outline};
use warpwright_kernels::{Format, Random};

type Failure = Box<dyn std::error::Error>;

/// GGUF's alignment of tensors, unless a key says otherwise.
const ALIGNMENT: usize = 32;

/// Bytes of random blocks that are written again and again.
const POOL: usize = 1 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, shape, quantization] = &arguments[..] else {
        return Err("arguments: OUT.gguf SHAPE QUANTIZATION".into());
    };
    let shape = SHAPES.iter().find(|known| known.name == shape).ok_or_else(|| {
        format!("no shape {shape:?}; there are {}", SHAPES.map(|known| known.name).join(", "))
    })?;
    let quantization =
        QUANTIZATIONS.into_iter().find(|known| known.name == quantization).ok_or_else(|| {
            format!(
                "no quantization {quantization:?}; there are {}",
                QUANTIZATIONS.map(|known| known.name).join(", ")
            )
        })?;
    let outline = Outline::of(shape, quantization)?;
    write(Path::new(path), &outline)?;
    check(Path::new(path), &outline)?;
    println!("wrote {path}, {:.2} GB", std::fs::metadata(path)?.len() as f64 / 1e9);
    Ok(())
}

/// That the engine reads the file as this model.
fn check(path: &Path, outline: &Outline) -> Result<(), Failure> {
    let read = Model::open(path)?.outline;
    let same = |(a, b): (&Weight, &Weight)| (&a.name, &a.dims, a.format) == (&b.name, &b.dims, b.format);
    let weights = read.weights.iter().count() == outline.weights.iter().count()
        && read.weights.iter().zip(outline.weights.iter()).all(same);
    if read.config == outline.config && weights {
        Ok(())
    } else {
        Err("the file is read as another model".into())
    }
}

fn write(path: &Path, outline: &Outline) -> Result<(), Failure> {
    let mut out = BufWriter::new(File::create(path)?);
    let head = head(outline);
    out.write_all(&head)?;
    let mut at = head.len();
    let mut pools = BTreeMap::new();
    for weight in outline.weights.iter() {
        out.write_all(&vec![0; at.next_multiple_of(ALIGNMENT) - at])?;
        let pool = pools.entry(weight.format.name()).or_insert_with(|| pool(weight.format, outline));
        let bytes = bytes(weight);
        for start in (0..bytes).step_by(pool.len()) {
            out.write_all(&pool[..pool.len().min(bytes - start)])?;
        }
        at = at.next_multiple_of(ALIGNMENT) + bytes;
    }
    Ok(out.flush()?)
}

/// Random blocks, as large as the engine makes them where it has no file.
fn pool(format: Format, outline: &Outline) -> Vec<u8> {
    let size = 2.0 / (outline.config.hidden as f32).sqrt();
    format.random(POOL / format.block_bytes() as usize, size, &mut Random(1))
}

fn bytes(weight: &Weight) -> usize {
    weight.format.row_bytes(weight.row_len() as usize) * weight.rows() as usize
}

/// Header, metadata and the directory of tensors, padded to the first tensor.
fn head(outline: &Outline) -> Vec<u8> {
    let pairs = pairs(outline);
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((outline.weights.iter().count() as u64).to_le_bytes());
    out.extend((pairs.len() as u64).to_le_bytes());
    out.extend(pairs.concat());
    let mut offset = 0;
    for weight in outline.weights.iter() {
        text(&mut out, &weight.name);
        out.extend((weight.dims.len() as u32).to_le_bytes());
        weight.dims.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(weight.format.ggml_type().to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset = (offset + bytes(weight)).next_multiple_of(ALIGNMENT);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out
}

/// The metadata, each key with its value.
fn pairs(outline: &Outline) -> Vec<Vec<u8>> {
    let config = &outline.config;
    let architecture = config.architecture.name;
    let pair = |key: &str, kind: u32, value: &[u8]| {
        let mut out = vec![];
        text(&mut out, key);
        out.extend(kind.to_le_bytes());
        out.extend(value);
        out
    };
    let number = |key: &str, n: u32| pair(&format!("{architecture}.{key}"), 4, &n.to_le_bytes());
    let real = |key: &str, x: f32| pair(&format!("{architecture}.{key}"), 6, &x.to_le_bytes());
    let mut name = vec![];
    text(&mut name, architecture);
    vec![
        pair("general.architecture", 8, &name),
        number("block_count", config.layers),
        number("context_length", config.context),
        number("embedding_length", config.hidden),
        number("feed_forward_length", config.feed_forward),
        number("attention.head_count", config.heads),
        number("attention.head_count_kv", config.kv_heads),
        number("attention.key_length", config.head_dim),
        number("attention.value_length", config.head_dim),
        number("rope.dimension_count", config.head_dim),
        real("rope.freq_base", config.rope.base as f32),
        real("attention.layer_norm_rms_epsilon", config.epsilon),
        number("vocab_size", config.vocab),
    ]
}

/// A string of GGUF: its length and its bytes.
fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
