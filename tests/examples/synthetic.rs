//! Writes a GGUF file with the shapes and formats of a known model and random weights, to measure
//! loading without a download:
//!
//! ```sh
//! cargo run --release -p warpwright-tests --example synthetic -- OUT.gguf llama3.1-8b q4_k_m
//! ```
//!
//! The file has no tokenizer. `bench` and `logits` accept it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use warpwright_kernels::{Format, Random};
use warpwright_model::gguf::TENSOR_TYPES;
use warpwright_model::gguf::writer::{Head, Scalar, padding};
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Model, Outline, Weight};

type Failure = Box<dyn std::error::Error>;

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

    let shape = SHAPES
        .iter()
        .find(|known| known.name == shape)
        .ok_or_else(|| {
            format!(
                "no shape {shape:?}; there are {}",
                SHAPES.each_ref().map(|known| known.name).join(", ")
            )
        })?;
    let quantization = QUANTIZATIONS
        .into_iter()
        .find(|known| known.name == quantization)
        .ok_or_else(|| {
            format!(
                "no quantization {quantization:?}; there are {}",
                QUANTIZATIONS.map(|known| known.name).join(", ")
            )
        })?;
    let outline = Outline::of(shape, quantization)?;
    write(Path::new(path), &outline)?;
    check(Path::new(path), &outline)?;
    println!(
        "wrote {path}, {:.2} GB",
        std::fs::metadata(path)?.len() as f64 / 1e9
    );
    Ok(())
}

/// That the engine reads the file as this model.
fn check(path: &Path, outline: &Outline) -> Result<(), Failure> {
    let read = Model::open(path)?.outline;
    let same =
        |(a, b): (&Weight, &Weight)| (&a.name, &a.dims, a.format) == (&b.name, &b.dims, b.format);
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
    out.write_all(&head(outline)?.bytes())?;
    let mut pools = BTreeMap::new();
    for weight in outline.weights.iter() {
        let pool = pools
            .entry(weight.format.name())
            .or_insert_with(|| pool(kernel_format(weight), outline));
        let bytes = bytes(weight);
        for start in (0..bytes).step_by(pool.len()) {
            out.write_all(&pool[..pool.len().min(bytes - start)])?;
        }
        out.write_all(padding(bytes as u64))?;
    }

    Ok(out.flush()?)
}

/// The format of a weight in the terms of the kernels, whose table makes random blocks.
fn kernel_format(weight: &Weight) -> Format {
    Format::from_ggml_type(weight.format.ggml_type()).expect("kernels read every format of models")
}

/// Random blocks, as large as the engine makes them where it has no file.
fn pool(format: Format, outline: &Outline) -> Vec<u8> {
    let size = 2.0 / (outline.config.hidden as f32).sqrt();
    format.random(POOL / format.block_bytes() as usize, size, &mut Random(1))
}

fn bytes(weight: &Weight) -> usize {
    weight.format.row_bytes(weight.row_len() as usize) * weight.rows() as usize
}

/// Metadata and the directory of tensors.
fn head(outline: &Outline) -> Result<Head, Failure> {
    let mut head = metadata(outline);
    for weight in outline.weights.iter() {
        let id = weight.format.ggml_type();
        let kind = TENSOR_TYPES
            .iter()
            .find(|kind| kind.id == id)
            .ok_or("a format that ggml lacks")?;
        head = head.tensor(&weight.name, &weight.dims, kind);
    }
    Ok(head)
}

/// The metadata, each key with its value.
fn metadata(outline: &Outline) -> Head {
    let config = &outline.config;
    let architecture = config.architecture.name;
    let numbers = [
        ("block_count", Scalar::U32(config.layer_count())),
        ("context_length", Scalar::U32(config.context)),
        ("embedding_length", Scalar::U32(config.hidden)),
        ("feed_forward_length", Scalar::U32(config.feed_forward())),
        ("attention.head_count", Scalar::U32(config.heads())),
        ("attention.head_count_kv", Scalar::U32(config.kv_heads())),
        ("attention.key_length", Scalar::U32(config.head_dim())),
        ("attention.value_length", Scalar::U32(config.head_dim())),
        ("rope.dimension_count", Scalar::U32(config.head_dim())),
        ("rope.freq_base", Scalar::F32(config.ropes[0].base as f32)),
        (
            "attention.layer_norm_rms_epsilon",
            Scalar::F32(config.epsilon),
        ),
        ("vocab_size", Scalar::U32(config.vocab)),
    ];
    let head = Head::default().pair("general.architecture", Scalar::Text(architecture));
    numbers.into_iter().fold(head, |head, (key, value)| {
        head.pair(&format!("{architecture}.{key}"), value)
    })
}
