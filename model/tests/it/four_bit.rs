//! Folders in NF4 of bitsandbytes.

use safetensors::Dtype;
use serde_json::{Value, json};
use warpwright_model::Model;
use warpwright_model::Weight;
use warpwright_model::info::layer_formats;
use warpwright_model::nf4::VALUES;

use crate::folder::{Tiny, fnv};

#[path = "../../../tests/support/four_bit.rs"]
mod support;

use support::{Absmax, Packed};

/// The generator of `tests/data/four_bit.py`.
struct Numbers(u32);

impl Numbers {
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 24) as u8
        };
        (0..n).map(|_| next()).collect()
    }

    fn units(&mut self, n: usize) -> Vec<f32> {
        self.bytes(n)
            .into_iter()
            .map(|byte| f32::from(byte) / 256.0)
            .collect()
    }

    fn packed(&mut self, shape: [usize; 2], dtype: &'static str, nested: bool) -> Packed {
        let weights = shape[0] * shape[1];
        let blocks = weights.div_ceil(64);
        let codes = self.bytes(weights.div_ceil(2));
        let absmax = if nested {
            Absmax::Nested {
                codes: self.bytes(blocks),
                scales: self.units(blocks.div_ceil(256)),
                map: self.units(256),
                offset: 0.125,
            }
        } else {
            Absmax::F32(self.units(blocks))
        };
        Packed {
            shape,
            dtype,
            codes,
            absmax,
        }
    }
}

const LONG: usize = 1100;

/// The modules of a layer, their shapes and types.
const MODULES: [(&str, [usize; 2], &str); 3] = [
    ("gate_proj", [LONG, 16], "bfloat16"),
    ("up_proj", [LONG, 16], "float16"),
    ("down_proj", [16, LONG], "float32"),
];

/// Two layers whose feed-forward is in NF4, the second layer's nested, and the codes of all.
fn folder(change: impl Fn(&mut support::Tensor)) -> (Tiny, Vec<Vec<u8>>) {
    let mut tiny = Tiny::new("llama")
        .with("intermediate_size", json!(LONG))
        .with("quantization_config", support::quantization_config());
    tiny.tensors.retain(|(name, ..)| !name.contains("mlp"));
    tiny.save();
    let mut tensors = support::read(&tiny.path("model.safetensors"));
    let (mut numbers, mut codes) = (Numbers(1), vec![]);
    for layer in 0..2 {
        for (module, shape, dtype) in MODULES {
            let packed = numbers.packed(shape, dtype, layer == 1);
            codes.push(packed.codes.clone());
            tensors.extend(packed.tensors(&format!("model.layers.{layer}.mlp.{module}"), &VALUES));
        }
    }

    tensors.iter_mut().for_each(change);
    tensors.retain(|tensor| !tensor.name.is_empty());
    support::write(&tiny.path("model.safetensors"), &tensors);
    (tiny, codes)
}

fn matrices(model: &Model) -> Vec<&Weight> {
    model
        .outline
        .weights
        .blocks
        .iter()
        .flat_map(|block| block.dense().unwrap())
        .collect()
}

#[test]
fn weights_are_those_that_numpy_unpacks() {
    let (tiny, codes) = folder(|_| {});
    let model = tiny.open().unwrap();
    let wanted: Vec<String> = serde_json::from_str(include_str!("../data/four_bit.json")).unwrap();
    let matrices = matrices(&model);
    assert_eq!(wanted.len(), matrices.len());
    for ((weight, wanted), codes) in matrices.iter().zip(wanted).zip(codes) {
        let bytes = model.files.data(&weight.range).unwrap();
        assert_eq!(format!("{:016x}", fnv(&bytes)), wanted, "{}", weight.name);

        // Parts that begin and end within a number, a block and a row.
        for (first, last) in [
            (0, 1),
            (7, 300),
            (127, 129),
            (8190, 24_577),
            (bytes.len() - 3, bytes.len()),
        ] {
            let part = model
                .files
                .data(&(weight.range.start + first..weight.range.start + last))
                .unwrap();
            assert_eq!(part, bytes[first..last], "{} from {first}", weight.name);
        }

        assert_eq!(
            model.files.nf4(&weight.range).unwrap().unwrap().packed,
            codes,
            "{}",
            weight.name
        );
    }

    let formats = layer_formats(&model.outline)
        .into_iter()
        .collect::<Vec<_>>();
    assert_eq!(formats, [("BF16".to_owned(), 8), ("NF4".to_owned(), 6)]);
    assert!(
        model
            .files
            .nf4(&model.outline.weights.embed.range)
            .unwrap()
            .is_none()
    );
}

/// The folder with one change of a tensor, whose name ends so.
fn changed(end: &'static str, change: impl Fn(&mut support::Tensor)) -> String {
    let name = format!("model.layers.1.mlp.up_proj.weight{end}");
    let (tiny, _) = folder(|tensor| {
        if tensor.name == name {
            change(tensor);
        }
    });
    tiny.open().map(|_| "nothing").unwrap_err()
}

fn in_state(key: &'static str, value: Value) -> String {
    changed(".quant_state.bitsandbytes__nf4", |tensor| {
        let mut state: Value = serde_json::from_slice(&tensor.bytes).unwrap();
        state[key] = value.clone();
        tensor.bytes = state.to_string().into_bytes();
        tensor.shape = vec![tensor.bytes.len()];
    })
}

#[test]
fn damaged_folders_are_refused() {
    let shorter = |tensor: &mut support::Tensor| {
        tensor.shape = vec![tensor.shape[0] - 1];
        tensor
            .bytes
            .truncate(tensor.shape[0] * tensor.dtype.bitsize() / 8);
    };
    let removed = |tensor: &mut support::Tensor| tensor.name.clear();
    let cases = [
        (
            in_state("quant_type", json!("fp4")),
            "has a \"quant_type\" of \"fp4\" in its settings; \"nf4\" is supported",
        ),
        (
            in_state("blocksize", json!(128)),
            "has a \"blocksize\" of 128 in its settings; 64 is supported",
        ),
        (
            in_state("dtype", json!("int8")),
            "has no \"dtype\" of bfloat16, float16 or float32 in its settings",
        ),
        (
            in_state("shape", json!([0, 16])),
            "has no \"shape\" of rows and columns in its settings",
        ),
        (
            in_state("shape", json!([LONG, 32])),
            "has \"model.layers.1.mlp.up_proj.weight\" of U8 and shape [8800, 1]; expected U8 and 17600 numbers",
        ),
        (
            in_state("nested_offset", json!("x")),
            "has no finite \"nested_offset\" in its settings",
        ),
        (
            in_state("nested_blocksize", json!(512)),
            "has a \"nested_blocksize\" of 512 in its settings; 256 is supported",
        ),
        (
            in_state("nested_blocksize", Value::Null),
            "has \"model.layers.1.mlp.up_proj.weight.absmax\" of U8 and shape [275]; expected F32 and 275 numbers",
        ),
        (
            changed(".nested_absmax", shorter),
            "has \"model.layers.1.mlp.up_proj.weight.nested_absmax\" of F32 and shape [1]; expected F32 and 2 numbers",
        ),
        (
            changed(".quant_map", removed),
            "comes without \"model.layers.1.mlp.up_proj.weight.quant_map\"",
        ),
        (
            changed(".quant_map", |tensor| tensor.bytes[1] ^= 1),
            "has another .quant_map than NF4",
        ),
        (
            changed(".quant_state.bitsandbytes__nf4", |tensor| {
                tensor.name = tensor.name.replace("nf4", "fp4")
            }),
            "is in fp4; of 4-bit formats NF4 is supported",
        ),
    ];
    for (found, wanted) in cases {
        assert_eq!(
            found,
            format!("M: tensor \"model.layers.1.mlp.up_proj.weight\" {wanted}")
        );
    }

    // Without its settings it is bytes, which no kernel reads.
    let found = changed(".quant_state.bitsandbytes__nf4", removed);
    let wanted =
        "M: tensor \"model.layers.1.mlp.up_proj.weight\" has shape [8800, 1]; expected [1100, 16]";
    assert_eq!(found, wanted);
}

#[test]
fn other_quantizations_are_refused_by_name() {
    let instead = "; give the folder of the 16-bit model, or a GGUF file";
    let cases = [
        (
            "quant_method",
            json!("gptq"),
            "\"gptq\"; expected \"bitsandbytes\" or \"mxfp4\"",
        ),
        (
            "load_in_8bit",
            json!(true),
            "true; expected false, as of bitsandbytes its 4-bit format NF4 is read",
        ),
        (
            "bnb_4bit_quant_type",
            json!("fp4"),
            "\"fp4\"; expected \"nf4\"",
        ),
        (
            "bnb_4bit_quant_storage",
            json!("bfloat16"),
            "\"bfloat16\"; expected \"uint8\"",
        ),
    ];
    for (key, value, wanted) in cases {
        let mut config = support::quantization_config();
        config[key] = value;
        let tiny = Tiny::new("llama").with("quantization_config", config);
        let found = tiny.save().open().unwrap_err();
        let wanted =
            format!("M/config.json: key \"quantization_config.{key}\" is {wanted}{instead}");
        assert_eq!(found, wanted);
    }

    let int8 = Tiny::new("llama").tensor("model.layers.0.mlp.up_proj.weight", Dtype::I8, &[24, 16]);
    let wanted = "M: tensor \"model.layers.0.mlp.up_proj.weight\" is I8; supported: F32, F16, BF16";
    assert_eq!(int8.save().open().unwrap_err(), wanted);
}
