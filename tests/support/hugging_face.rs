//! The small test model as the Hugging Face folder from which its GGUF files were converted.
//!
//! The weights come from `rustdoc-7m-F16.gguf`. The converter permuted the rows of Q and K and
//! widened the norms. Both are undone here, independently of the engine's code. The result is equal
//! to the published file, byte for byte.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use warpwright_model::{Block, Model, Weight};

/// The length of a head.
const HEAD: usize = 64;

struct Tensor {
    name: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Writes the model into an existing folder.
pub(crate) fn write(folder: &Path) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    write_of(folder, &data.join("rustdoc-7m-F16.gguf"));
}

/// Makes the tokenizer begin texts with BOS, as the GGUF file does. The published folder has no
/// such step.
pub(crate) fn begin_with_bos(folder: &Path) {
    let path = folder.join("tokenizer.json");
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let bos = "<|endoftext|>";
    file["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [0], "tokens": [bos]}},
    });
    fs::write(&path, file.to_string()).unwrap();
}

/// Writes the model with the weights of another GGUF file into an existing folder.
pub(crate) fn write_of(folder: &Path, gguf: &Path) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    for name in ["config.json", "generation_config.json", "tokenizer.json"] {
        fs::write(
            folder.join(name),
            fs::read(data.join("rustdoc-7m").join(name)).unwrap(),
        )
        .unwrap();
    }

    let model = Model::open(gguf).unwrap();
    let tensors = tensors(&model);
    let views = tensors.iter().map(|t| {
        (
            t.name.as_str(),
            TensorView::new(Dtype::F16, t.shape.clone(), &t.bytes).unwrap(),
        )
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(metadata)).unwrap();
    fs::write(folder.join("model.safetensors"), bytes).unwrap();
}

fn tensors(model: &Model) -> Vec<Tensor> {
    let weights = &model.outline.weights;
    let mut tensors = vec![
        tensor(
            model,
            "model.embed_tokens.weight".to_owned(),
            &weights.embed,
        ),
        tensor(model, "model.norm.weight".to_owned(), &weights.norm),
    ];
    for (
        l,
        Block {
            attn_norm,
            ffn_norm,
            q,
            k,
            v,
            o,
            gate,
            up,
            down,
            ..
        },
    ) in weights.blocks.iter().enumerate()
    {
        let named = [
            ("input_layernorm", attn_norm.as_ref().unwrap()),
            ("post_attention_layernorm", ffn_norm.as_ref().unwrap()),
            ("self_attn.q_proj", q),
            ("self_attn.k_proj", k),
            ("self_attn.v_proj", v),
            ("self_attn.o_proj", o),
            ("mlp.gate_proj", gate.as_ref().unwrap()),
            ("mlp.up_proj", up.as_ref().unwrap()),
            ("mlp.down_proj", down.as_ref().unwrap()),
        ];
        let of = |(name, weight)| tensor(model, format!("model.layers.{l}.{name}.weight"), weight);
        tensors.extend(named.map(of));
    }

    tensors
}

fn tensor(model: &Model, name: String, weight: &Weight) -> Tensor {
    let mut bytes = model.files.data(&weight.range).unwrap();
    let shape: Vec<usize> = weight.dims.iter().rev().map(|&n| n as usize).collect();
    if shape.len() == 1 {
        let number = |b: &[u8]| half(f32::from_le_bytes(b.try_into().unwrap())).to_le_bytes();
        bytes = bytes.chunks_exact(4).flat_map(number).collect();
    }

    if name.contains("q_proj") || name.contains("k_proj") {
        bytes = halves(&bytes, 2 * shape[1]);
    }

    Tensor { name, shape, bytes }
}

/// Returns the rows of heads in the order of Hugging Face: the first elements of all rotary pairs,
/// then the second elements. In `rows`, the elements of a pair are neighbors.
fn halves(rows: &[u8], row: usize) -> Vec<u8> {
    let heads = rows.chunks_exact(HEAD * row);
    let of = |head: &[u8], i: usize| head[i * row..][..row].to_vec();
    heads
        .flat_map(|head| {
            (0..HEAD)
                .step_by(2)
                .chain((1..HEAD).step_by(2))
                .flat_map(move |i| of(head, i))
        })
        .collect()
}

/// Returns the bits of a binary16 number that was widened to `f32`. It must be normal or zero.
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    match bits & 0x7fff_ffff {
        0 => sign,
        rest => {
            assert_eq!(rest & 0x1fff, 0, "{x} was no binary16 number");
            let exponent = (rest >> 23) as i32 - 127 + 15;
            assert!(
                (1..31).contains(&exponent),
                "{x} was no normal binary16 number"
            );
            sign | (exponent as u16) << 10 | (rest >> 13 & 0x3ff) as u16
        }
    }
}
