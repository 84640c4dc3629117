//! gpt-oss on the simple kernels and in the pipeline, against what Hugging Face transformers computed in float64.
//!
//! The models are random and tiny. The test writes them as GGUF files into its folder under
//! `target/tmp`, `engine/tests/data/gpt_oss.py` reads those and lets transformers run them, and
//! `engine/tests/data/gpt_oss.json` keeps the logits with the checksum of each file.

use serde_json::Value;
use warpwright_engine::{Batch, BatchOptions, Decoder, Error, KernelPath, Launch, Options, Prefer};
use warpwright_kernels::{Format, Random};
use warpwright_model::layer::{FeedForward, GateActivation, Mixer};
use warpwright_model::rope::{Scaling, YarnBounds};
use warpwright_model::{Model, Outline};

use crate::decode::{bits, distance, emulator, generate, logits};
use crate::families::crc32;
use crate::synth::{BF16, F16, MXFP4, Q8_0};
use crate::write::{Entry, File, Val, f32s};

const F32: u32 = 0;
const VOCAB: u32 = 96;
const CONTEXT: u32 = 64;

/// A random model.
struct GptOss {
    name: &'static str,
    layers: u32,
    hidden: u32,
    width: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    count: u32,
    chosen: u32,
    window: u32,
    /// The factor and the original context of YaRN.
    yarn: (f32, u32),
    /// ggml's type numbers of the matrices of attention and of the experts.
    formats: [u32; 2],
    /// The largest bias of gate and up. The bound of their activation is 7.
    gate_bias: f32,
}

const MODELS: [GptOss; 3] = [
    // The sizes of a head, the window's period and YaRN as in gpt-oss-20b, and its formats.
    GptOss {
        name: "mxfp4",
        layers: 2,
        hidden: 96,
        width: 96,
        heads: 8,
        kv_heads: 1,
        head_dim: 64,
        count: 8,
        chosen: 4,
        window: 5,
        yarn: (32.0, 4096),
        formats: [BF16, MXFP4],
        gate_bias: 12.0,
    },
    // A context so short that YaRN scales most pairs.
    GptOss {
        name: "short",
        layers: 4,
        hidden: 64,
        width: 32,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        count: 5,
        chosen: 1,
        window: 3,
        yarn: (4.0, 16),
        formats: [F32, F32],
        gate_bias: 1.0,
    },
    // An odd number of layers, and all experts chosen.
    GptOss {
        name: "all",
        layers: 3,
        hidden: 128,
        width: 64,
        heads: 4,
        kv_heads: 4,
        head_dim: 32,
        count: 3,
        chosen: 3,
        window: 8,
        yarn: (8.0, 32),
        formats: [Q8_0, F16],
        gate_bias: 20.0,
    },
];

impl GptOss {
    fn file(&self) -> File {
        let mut file = File::default().pair("general.architecture", Val::Str("gpt-oss".into()));
        for (name, value) in [
            ("block_count", self.layers),
            ("context_length", CONTEXT),
            ("vocab_size", VOCAB),
            ("embedding_length", self.hidden),
            ("feed_forward_length", self.width),
            ("expert_feed_forward_length", self.width),
            ("expert_count", self.count),
            ("expert_used_count", self.chosen),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("attention.sliding_window", self.window),
            ("rope.scaling.original_context_length", self.yarn.1),
        ] {
            file = file.pair(&format!("gpt-oss.{name}"), Val::U32(value));
        }
        for (name, value) in [
            ("attention.layer_norm_rms_epsilon", 1e-5),
            ("rope.freq_base", 150_000.0),
            ("rope.scaling.factor", self.yarn.0),
        ] {
            file = file.pair(&format!("gpt-oss.{name}"), Val::F32(value));
        }
        file = file.pair("gpt-oss.rope.scaling.type", Val::Str("yarn".into()));

        let [attention, experts] = self.formats;
        let q = self.heads * self.head_dim;
        let kv = self.kv_heads * self.head_dim;
        let GptOss {
            hidden,
            width,
            count,
            ..
        } = *self;
        let mut tensors = Tensors {
            file,
            random: Random(11),
        };
        tensors.matrix("token_embd.weight", attention, [VOCAB, hidden, 1]);
        for layer in 0..self.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}");
            tensors.vector(&name("attn_norm.weight"), &[hidden], 1.0, 0.25);
            for (projection, rows, n) in [
                ("attn_q", q, hidden),
                ("attn_k", kv, hidden),
                ("attn_v", kv, hidden),
                ("attn_output", hidden, q),
            ] {
                tensors.matrix(
                    &name(&format!("{projection}.weight")),
                    attention,
                    [rows, n, 1],
                );
                tensors.vector(&name(&format!("{projection}.bias")), &[rows], 0.0, 0.5);
            }
            tensors.vector(&name("attn_sinks.weight"), &[self.heads], 1.0, 2.0);
            tensors.vector(&name("post_attention_norm.weight"), &[hidden], 1.0, 0.25);
            let router = 3.0 / (hidden as f32).sqrt();
            tensors.vector(&name("ffn_gate_inp.weight"), &[hidden, count], 0.0, router);
            tensors.vector(&name("ffn_gate_inp.bias"), &[count], 0.0, 1.0);
            for (projection, rows, n, bias) in [
                ("ffn_gate_exps", width, hidden, self.gate_bias),
                ("ffn_up_exps", width, hidden, self.gate_bias),
                ("ffn_down_exps", hidden, width, 0.5),
            ] {
                let weight = name(&format!("{projection}.weight"));
                tensors.matrix(&weight, experts, [rows, n, count]);
                tensors.vector(
                    &name(&format!("{projection}.bias")),
                    &[rows, count],
                    0.0,
                    bias,
                );
            }
        }
        tensors.vector("output_norm.weight", &[hidden], 1.0, 0.25);
        tensors.matrix("output.weight", attention, [VOCAB, hidden, 1]);
        tensors.file
    }
}

impl GptOss {
    /// Returns the file with a change to a tensor of each layer.
    fn edited(&self, tensor: &str, edit: impl Fn(&mut Entry)) -> File {
        (0..self.layers).fold(self.file(), |file, layer| {
            file.edit(&format!("blk.{layer}.{tensor}"), &edit)
        })
    }
}

struct Tensors {
    file: File,
    random: Random,
}

impl Tensors {
    fn add(&mut self, name: &str, dims: &[u32], kind: u32, data: Vec<u8>) {
        let dims: Vec<u64> = dims.iter().map(|n| u64::from(*n)).collect();
        self.file = std::mem::take(&mut self.file).tensor(name, &dims, kind, data);
    }

    /// Numbers in F32 of up to `size` around `middle`.
    fn vector(&mut self, name: &str, dims: &[u32], middle: f32, size: f32) {
        let len: u32 = dims.iter().product();
        let data = f32s((0..len).map(|_| middle + self.random.unit() * size));
        self.add(name, dims, F32, data);
    }

    /// One matrix, or the matrices of `count` experts.
    fn matrix(&mut self, name: &str, kind: u32, [rows, n, count]: [u32; 3]) {
        let format = Format::from_ggml_type(kind).expect("a format");
        let blocks = (rows * n * count / format.block_len()) as usize;
        let data = format.random(blocks, 1.7 / (n as f32).sqrt(), &mut self.random);
        let dims: &[u32] = if count == 1 {
            &[n, rows]
        } else {
            &[n, rows, count]
        };
        self.add(name, dims, kind, data);
    }
}

/// The results of transformers.
struct Wanted(Value);

impl Wanted {
    fn read() -> Wanted {
        let text = std::fs::read_to_string(crate::repository("engine/tests/data/gpt_oss.json"));
        Wanted(serde_json::from_str(&text.unwrap()).unwrap())
    }

    fn ids(&self) -> Vec<u32> {
        crate::ids(&self.0["ids"])
    }

    /// The logits after each token, one row after the other.
    fn logits(&self, name: &str) -> Vec<f64> {
        let rows = self.0["models"][name]["logits"].as_array().unwrap().iter();
        let numbers = rows.flat_map(|row| row.as_array().unwrap());
        numbers.map(|x| x.as_f64().unwrap()).collect()
    }
}

fn open(file: &File, name: &str) -> Model {
    Model::open(&file.save(&format!("{name}.gguf"))).unwrap()
}

fn decoder(model: &Model, prefer: Prefer) -> Decoder {
    let options = Options {
        prefer,
        ..Options::new(CONTEXT, Launch::Graph)
    };
    Decoder::new(&emulator(), model, options, |_| ()).unwrap()
}

fn error(model: &Model, prefer: Prefer, ids: &[u32], wanted: &[f64]) -> f64 {
    let rows = logits(&mut decoder(model, prefer), ids).concat();
    distance(&rows.into_iter().map(f64::from).collect::<Vec<_>>(), wanted)
}

#[test]
fn gpt_oss_agrees_with_transformers() {
    // All files are written before the first is compared, so that the script finds them.
    let files = MODELS.map(|model| {
        let file = model.file();
        (model.name, crc32(&file.bytes()), open(&file, model.name))
    });
    let wanted = Wanted::read();
    for (name, crc, model) in files {
        assert_eq!(model.outline.config.architecture.name, "gpt-oss");
        assert_eq!(
            wanted.0["models"][name]["crc32"], crc,
            "{name} has changed: make engine/tests/data/gpt_oss.json again, as \
             engine/tests/data/gpt_oss.py says"
        );
        for prefer in [Prefer::Simple, Prefer::Fast] {
            let found = error(&model, prefer, &wanted.ids(), &wanted.logits(name));
            println!("{name}, {prefer:?}: {found:e}");
            assert!(
                found < 1e-3,
                "{name}, {prefer:?}: the relative error is {found:e}"
            );
        }
    }
}

/// A change to what was read of a file, or to the file.
enum Change {
    Outline(fn(&mut Outline)),
    /// These tensors of all layers have this number everywhere.
    Fill(&'static str, f32),
    /// Of these tensors of all layers, each expert has the part of the next one.
    Rotate(&'static str),
}

/// Without any fact of the family, the logits are far from right. So the bound above holds each of
/// them.
#[test]
fn every_fact_of_gpt_oss_matters() {
    use Change::{Fill, Outline, Rotate};
    #[rustfmt::skip] // one fact a line
    let changes: &[(usize, &str, Change)] = &[
        (0, "no sinks", Fill("attn_sinks.weight", -1e30)),
        (0, "no bias of the output", Fill("attn_output.bias", 0.0)),
        (0, "no bias of the router", Fill("ffn_gate_inp.bias", 0.0)),
        (0, "no biases of gates", Fill("ffn_gate_exps.bias", 0.0)),
        (0, "no biases of up", Fill("ffn_up_exps.bias", 0.0)),
        (0, "no biases of down", Fill("ffn_down_exps.bias", 0.0)),
        (0, "biases of gates of other experts", Rotate("ffn_gate_exps.bias")),
        (0, "biases of down of other experts", Rotate("ffn_down_exps.bias")),
        (0, "another activation", Outline(|o| experts(o, |e| e.activation = GateActivation::Silu))),
        (0, "one expert less", Outline(|o| experts(o, |e| e.chosen -= 1))),
        (0, "a window one longer", Outline(|o| windows(o, |_, w| w.map(|w| w + 1)))),
        (1, "windows in the other layers", Outline(|o| windows(o, |i, _| (i % 2 == 1).then_some(3)))),
        (1, "rounded bounds of YaRN", Outline(whole_bounds)),
        (1, "no magnitude", Outline(|o| o.config.ropes[0].magnitude = 1.0)),
    ];
    let wanted = Wanted::read();
    let ids = wanted.ids();
    for (i, what, change) in changes {
        let of = &MODELS[*i];
        let model = match change {
            Change::Outline(change) => {
                let mut model = open(&of.file(), of.name);
                change(&mut model.outline);
                model
            }
            Change::Fill(tensor, value) => {
                let fill = |entry: &mut Entry| {
                    let len = entry.data.len() / 4;
                    entry.data = f32s(std::iter::repeat_n(*value, len));
                };
                open(&of.edited(tensor, fill), of.name)
            }
            Change::Rotate(tensor) => {
                let rotate = |entry: &mut Entry| {
                    let len = entry.data.len() / of.count as usize;
                    entry.data.rotate_left(len);
                };
                open(&of.edited(tensor, rotate), of.name)
            }
        };
        let found = error(&model, Prefer::Fast, &ids, &wanted.logits(of.name));
        println!("{}, {what}: {found:e}", of.name);
        assert!(
            found > 2e-3,
            "{}, {what}: the relative error is only {found:e}",
            of.name
        );
    }
}

fn experts(outline: &mut Outline, change: impl Fn(&mut warpwright_model::layer::Experts)) {
    for layer in &mut outline.config.layers {
        match &mut layer.feed_forward {
            FeedForward::Experts(experts) => change(experts),
            FeedForward::Dense(_) => panic!("a layer without experts"),
        }
    }
}

fn windows(outline: &mut Outline, change: impl Fn(usize, Option<u32>) -> Option<u32>) {
    for (index, layer) in outline.config.layers.iter_mut().enumerate() {
        let Mixer::Attention(attention) = &mut layer.mixer;
        attention.window = change(index, attention.window);
    }
}

fn whole_bounds(outline: &mut Outline) {
    match &mut outline.config.ropes[0].scaling {
        Scaling::Yarn(yarn) => yarn.bounds = YarnBounds::Whole,
        other => panic!("no YaRN: {other:?}"),
    }
}

/// The pipeline runs the models whose formats have tiles. Batches have no kernels for the family.
#[test]
fn gpt_oss_runs_in_the_pipeline() {
    for (i, prefer, reason) in [
        (0, Prefer::Fast, None),
        (2, Prefer::Fast, None),
        (1, Prefer::Fast, Some("has no tiled layout")),
        (0, Prefer::Simple, Some("requested")),
    ] {
        let of = &MODELS[i];
        let decoder = decoder(&open(&of.file(), of.name), prefer);
        let path = decoder.path();
        match reason {
            None => assert_eq!(*path, KernelPath::Overlapped, "{}", of.name),
            Some(reason) => {
                let path = path.to_string();
                assert!(
                    path.starts_with("simple") && path.contains(reason),
                    "{path}"
                );
            }
        }
    }
    let model = open(&MODELS[0].file(), "model");
    let batch = Batch::new(&emulator(), &model, BatchOptions::new(2, CONTEXT), |_| ());
    let message = batch.err().expect("a refusal").to_string();
    assert!(
        message.contains("attention sinks are not supported for several tokens"),
        "{message}"
    );
}

#[test]
fn gpt_oss_decodes_alike_however_it_is_launched() {
    let model = open(&MODELS[0].file(), "launches");
    let ids = Wanted::read().ids();
    let of = |launch, tokens_per_launch| {
        let options = Options {
            tokens_per_launch,
            ..Options::new(CONTEXT, launch)
        };
        let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
        let rows = bits(&logits(&mut decoder, &ids));
        (rows, generate(&mut decoder, &ids, 8))
    };
    let wanted = of(Launch::Eager, 1);
    for (launch, tokens) in [
        (Launch::Graph, 1),
        (Launch::Graph, 4),
        (Launch::Plain, 3),
        (Launch::Capture, 5),
    ] {
        assert_eq!(of(launch, tokens), wanted, "{launch:?}, {tokens} tokens");
    }
}

/// A bias of an expert that is not a number is not lost in the bounds of the activation or in the
/// encoding of activations.
#[test]
fn biases_of_experts_that_are_not_finite_are_errors() {
    for tensor in [
        "ffn_gate_exps.bias",
        "ffn_up_exps.bias",
        "ffn_down_exps.bias",
    ] {
        let nan = |entry: &mut Entry| {
            let len = entry.data.len() / 4;
            entry.data = f32s(std::iter::repeat_n(f32::NAN, len));
        };
        let file = MODELS[0].file().edit(&format!("blk.1.{tensor}"), nan);
        let mut decoder = decoder(&open(&file, "not-finite"), Prefer::Fast);
        let mut tokens = decoder.generate(&[3, 90, 0], 2).unwrap();
        let error = tokens.find_map(Result::err).expect("an error");
        assert!(
            matches!(error, Error::Logit { value, .. } if !value.is_finite()),
            "{tensor}: {error}"
        );
    }
}

/// A value of the gates that is not a number is not lost in their bounds.
#[test]
fn gates_that_are_not_finite_are_errors() {
    for tensor in [
        "ffn_gate_exps.weight",
        "ffn_up_exps.weight",
        "ffn_gate_inp.weight",
    ] {
        let nan = |entry: &mut Entry| {
            let len = entry.data.len() / 4;
            entry.data = f32s(std::iter::repeat_n(f32::NAN, len));
        };
        let file = MODELS[1].file().edit(&format!("blk.1.{tensor}"), nan);
        let model = open(&file, "model");
        let mut decoder = decoder(&model, Prefer::Fast);
        let mut tokens = decoder.generate(&[3, 90, 0], 2).unwrap();
        let error = tokens.find_map(Result::err).expect("an error");
        assert!(
            matches!(error, Error::Logit { value, .. } if !value.is_finite()),
            "{tensor}: {error}"
        );
    }
}
