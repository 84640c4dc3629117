//! Model folders whose projections are in NF4, in the format of bitsandbytes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

/// A tensor of a file.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A matrix in NF4.
pub(crate) struct Packed {
    pub(crate) shape: [usize; 2],
    /// The name of the type before quantization, for example `bfloat16`.
    pub(crate) dtype: &'static str,
    pub(crate) codes: Vec<u8>,
    pub(crate) absmax: Absmax,
}

// Some crates that include this file construct only one variant.
#[allow(dead_code)]
pub(crate) enum Absmax {
    F32(Vec<f32>),
    Nested {
        codes: Vec<u8>,
        scales: Vec<f32>,
        map: Vec<f32>,
        offset: f32,
    },
}

impl Packed {
    /// Returns the tensors that store the matrix `name.weight`.
    pub(crate) fn tensors(self, name: &str, values: &[f32]) -> Vec<Tensor> {
        let mut state =
            json!({"quant_type": "nf4", "blocksize": 64, "dtype": self.dtype, "shape": self.shape});
        let tensor = |end: &str, dtype, shape, bytes| {
            let name = format!("{name}.weight{end}");
            Tensor {
                name,
                dtype,
                shape,
                bytes,
            }
        };
        let f32s = |end, of: &[f32]| tensor(end, Dtype::F32, vec![of.len()], bytes(of));
        let mut tensors = vec![f32s(".quant_map", values)];
        match self.absmax {
            Absmax::F32(absmax) => tensors.push(f32s(".absmax", &absmax)),
            Absmax::Nested {
                codes,
                scales,
                map,
                offset,
            } => {
                tensors.push(tensor(".absmax", Dtype::U8, vec![codes.len()], codes));
                tensors.push(f32s(".nested_absmax", &scales));
                tensors.push(f32s(".nested_quant_map", &map));
                state["nested_blocksize"] = json!(256);
                state["nested_dtype"] = json!("float32");
                state["nested_offset"] = json!(offset);
            }
        }

        let state = state.to_string().into_bytes();
        tensors.push(tensor(
            ".quant_state.bitsandbytes__nf4",
            Dtype::U8,
            vec![state.len()],
            state,
        ));
        tensors.push(tensor("", Dtype::U8, vec![self.codes.len(), 1], self.codes));
        tensors
    }
}

pub(crate) fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Returns the tensors of a file.
pub(crate) fn read(path: &Path) -> Vec<Tensor> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, view): (String, TensorView<'_>)| {
        let dtype = view.dtype();
        let shape = view.shape().to_vec();
        let bytes = view.data().to_vec();
        Tensor {
            name,
            dtype,
            shape,
            bytes,
        }
    };
    tensors.tensors().into_iter().map(tensor).collect()
}

/// Writes a file of tensors.
pub(crate) fn write(path: &Path, tensors: &[Tensor]) {
    let views = tensors.iter().map(|t| {
        (
            t.name.as_str(),
            TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap(),
        )
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    fs::write(path, safetensors::serialize(views, Some(metadata)).unwrap()).unwrap();
}

/// Returns the `quantization_config` that transformers writes into `config.json`.
pub(crate) fn quantization_config() -> Value {
    json!({
        "_load_in_4bit": true, "_load_in_8bit": false, "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
        "llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false,
        "llm_int8_skip_modules": null, "llm_int8_threshold": 6.0, "load_in_4bit": true, "load_in_8bit": false,
        "quant_method": "bitsandbytes",
    })
}
