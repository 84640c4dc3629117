//! gpt-oss on the simple kernels, against what Hugging Face transformers computed in float64.
//!
//! The models are random and tiny. The test writes them as GGUF files into its folder under
//! `target/tmp`, `engine/tests/data/gpt_oss.py` reads those and lets transformers run them, and
//! `engine/tests/data/gpt_oss.json` keeps the logits with the checksum of each file.
//!
//! The test also writes the models as folders, with experts in MXFP4. transformers reads and unpacks
//! those itself.

use std::path::PathBuf;

use half::bf16;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use warpwright_engine::{Batch, BatchOptions, Decoder, Error, KernelPath, Launch, Options, Prefer};
use warpwright_kernels::{Format, Random};
use warpwright_model::layer::{FeedForward, GateActivation, Mixer};
use warpwright_model::rope::{Scaling, YarnBounds};
use warpwright_model::{Model, Outline};

use crate::decode::{bits, distance, emulator, generate, logits};
use crate::families::crc32;
use crate::measured::Measured;
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

/// The name of the folder of a model, and of its entry in the results.
fn folder_name(model: &GptOss) -> String {
    format!("{}-folder", model.name)
}

/// The number format of the vectors of a folder.
fn vector_dtype(model: &GptOss) -> Dtype {
    // The first folder has the weights of the GGUF file, whose vectors are in F32.
    if model.name == MODELS[0].name {
        Dtype::F32
    } else {
        Dtype::BF16
    }
}

impl GptOss {
    /// The model with the number formats that its folder has.
    fn in_folder(&self) -> GptOss {
        GptOss {
            formats: [BF16, MXFP4],
            ..*self
        }
    }

    fn config(&self) -> Value {
        let kinds = ["sliding_attention", "full_attention"];
        let kinds: Vec<&str> = (0..self.layers).map(|i| kinds[i as usize % 2]).collect();
        json!({
            "model_type": "gpt_oss",
            "architectures": ["GptOssForCausalLM"],
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "intermediate_size": self.width,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "num_local_experts": self.count,
            "num_experts_per_tok": self.chosen,
            "experts_per_token": self.chosen,
            "initial_context_length": self.yarn.1,
            "max_position_embeddings": CONTEXT,
            "vocab_size": VOCAB,
            "sliding_window": self.window,
            "layer_types": kinds,
            "attention_bias": true,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 150_000.0,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": self.yarn.0,
                "original_max_position_embeddings": self.yarn.1,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": false,
            },
            "swiglu_limit": 7.0,
            "router_aux_loss_coef": 0.9,
            "tie_word_embeddings": false,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
                ],
            },
        })
    }

    /// Writes the folder, and returns its path and the checksum of its weights.
    fn write_folder(&self) -> (PathBuf, u32) {
        let mut tensors = FolderTensors {
            dtype: vector_dtype(self),
            all: vec![],
        };
        let entries = self.in_folder().file().tensors;
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
        for (name, gguf) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
        ] {
            tensors.add(name, find(gguf));
        }
        for layer in 0..self.layers {
            let of = |name: &str| find(&format!("blk.{layer}.{name}"));
            let name = |name: &str| format!("model.layers.{layer}.{name}");
            for (module, gguf) in [
                ("input_layernorm.weight", "attn_norm.weight"),
                (
                    "post_attention_layernorm.weight",
                    "post_attention_norm.weight",
                ),
                ("self_attn.sinks", "attn_sinks.weight"),
                ("self_attn.q_proj.weight", "attn_q.weight"),
                ("self_attn.q_proj.bias", "attn_q.bias"),
                ("self_attn.k_proj.weight", "attn_k.weight"),
                ("self_attn.k_proj.bias", "attn_k.bias"),
                ("self_attn.v_proj.weight", "attn_v.weight"),
                ("self_attn.v_proj.bias", "attn_v.bias"),
                ("self_attn.o_proj.weight", "attn_output.weight"),
                ("self_attn.o_proj.bias", "attn_output.bias"),
                ("mlp.router.weight", "ffn_gate_inp.weight"),
                ("mlp.router.bias", "ffn_gate_inp.bias"),
                ("mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
            ] {
                tensors.add(&name(module), of(gguf));
            }
            let gates = [of("ffn_gate_exps.bias"), of("ffn_up_exps.bias")];
            tensors.add_alternating(&name("mlp.experts.gate_up_proj_bias"), gates);
            let gates = [of("ffn_gate_exps.weight"), of("ffn_up_exps.weight")];
            tensors.add_mxfp4(&name("mlp.experts.gate_up_proj"), &gates);
            let down = [of("ffn_down_exps.weight")];
            tensors.add_mxfp4(&name("mlp.experts.down_proj"), &down);
        }

        let path = crate::scratch(&folder_name(self));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("config.json"), self.config().to_string()).unwrap();
        let views = tensors.all.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
            (name.as_str(), view)
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(path.join("model.safetensors"), &bytes).unwrap();
        (path, crc32(&bytes))
    }
}

/// The tensors of a folder: their names, types, shapes and bytes.
struct FolderTensors {
    /// The type of vectors, routers and biases.
    dtype: Dtype,
    all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl FolderTensors {
    /// Adds a tensor in BF16 as it is, and one in F32 in the type of vectors.
    fn add(&mut self, name: &str, entry: &Entry) {
        let shape = entry.dims.iter().rev().map(|n| *n as usize).collect();
        let (dtype, bytes) = match entry.kind {
            F32 => (self.dtype, self.converted(&numbers(entry))),
            BF16 => (Dtype::BF16, entry.data.clone()),
            other => panic!("{name} has type {other}"),
        };
        self.all.push((name.to_owned(), dtype, shape, bytes));
    }

    fn converted(&self, numbers: &[f32]) -> Vec<u8> {
        match self.dtype {
            Dtype::F32 => f32s(numbers.iter().copied()),
            _ => {
                let bytes = |x: &f32| bf16::from_f32(*x).to_le_bytes();
                numbers.iter().flat_map(bytes).collect()
            }
        }
    }

    /// Adds biases of gates and of up projections, which alternate.
    fn add_alternating(&mut self, name: &str, biases: [&Entry; 2]) {
        let [gate, up] = biases.map(numbers);
        let both: Vec<f32> = gate.into_iter().zip(up).flat_map(|(g, u)| [g, u]).collect();
        let dims = &biases[0].dims;
        let shape = vec![dims[1] as usize, 2 * dims[0] as usize];
        self.all
            .push((name.to_owned(), self.dtype, shape, self.converted(&both)));
    }

    /// Adds the codes and the exponents of matrices, whose rows alternate.
    fn add_mxfp4(&mut self, name: &str, matrices: &[&Entry]) {
        let dims = &matrices[0].dims;
        let [n, rows, count] = [dims[0] as usize, dims[1] as usize, dims[2] as usize];
        let row_bytes = n / 32 * 17;
        let mut codes = vec![];
        let mut scales = vec![];
        for row in 0..rows * count {
            for matrix in matrices {
                for block in matrix.data[row * row_bytes..][..row_bytes].chunks_exact(17) {
                    scales.push(block[0]);
                    // In GGUF files, a byte has the codes i and i + 16. Here, it has neighbors.
                    let low = block[1..].iter().map(|byte| byte & 15);
                    let high = block[1..].iter().map(|byte| byte >> 4);
                    let all: Vec<u8> = low.chain(high).collect();
                    codes.extend(all.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4));
                }
            }
        }
        let shape = vec![count, rows * matrices.len(), n / 32];
        let mut blocks = shape.clone();
        blocks.push(16);
        self.all
            .push((format!("{name}_blocks"), Dtype::U8, blocks, codes));
        self.all
            .push((format!("{name}_scales"), Dtype::U8, shape, scales));
    }
}

/// The numbers of a tensor in F32.
fn numbers(entry: &Entry) -> Vec<f32> {
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    entry.data.chunks_exact(4).map(number).collect()
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

/// The models as files, and then as folders, with their names and checksums. All are written before the first is
/// compared, so that the script finds them.
pub(crate) fn models() -> Vec<(String, u32, Model)> {
    let files = MODELS.iter().map(|model| {
        let file = model.file();
        let crc = crc32(&file.bytes());
        (model.name.to_owned(), crc, open(&file, model.name))
    });
    let folders = MODELS.iter().map(|model| {
        let (path, crc) = model.write_folder();
        (folder_name(model), crc, Model::open(&path).unwrap())
    });
    files.chain(folders).collect()
}

#[test]
fn gpt_oss_agrees_with_transformers() {
    let models = models();
    let wanted = Wanted::read();
    let measured = Measured::read();
    for (name, crc, model) in models {
        let name = name.as_str();
        assert_eq!(model.outline.config.architecture.name, "gpt-oss");
        assert_eq!(
            wanted.0["models"][name]["crc32"], crc,
            "{name} has changed: make engine/tests/data/gpt_oss.json again, as \
             engine/tests/data/gpt_oss.py says"
        );
        for (prefer, pass) in [(Prefer::Simple, "simple"), (Prefer::Fast, "pipeline")] {
            let is_simple = decoder(&model, prefer)
                .path()
                .to_string()
                .starts_with("simple");
            if is_simple == (prefer == Prefer::Simple) {
                let found = error(&model, prefer, &wanted.ids(), &wanted.logits(name));
                measured.error(name, pass, found);
                assert!(
                    found < 1e-3,
                    "{name}, {pass}: the relative error is {found:e}"
                );
            }
        }
    }
    measured.finish();

    // The first folder has the same weights as the first GGUF file, so transformers gets the same
    // logits from the two layouts.
    let [file, folder] =
        [MODELS[0].name.to_owned(), folder_name(&MODELS[0])].map(|name| wanted.logits(&name));
    let found = distance(&folder, &file);
    assert!(found < 1e-6, "the folder and the file differ by {found:e}");
}

/// A change to what was read of a file, or to the file.
enum Change {
    Outline(fn(&mut Outline)),
    /// These tensors of all layers have this number everywhere.
    Fill(&'static str, f32),
    /// In these tensors of all layers, the parts of the experts move on by one expert.
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

    let (path, _) = MODELS[0].write_folder();
    let name = folder_name(&MODELS[0]);
    let model = Model::open(&path).unwrap();
    let measured = Measured::read();
    let path = decoder(&model, Prefer::Fast).path().to_string();
    measured.fact(&name, "path", path.into());
    let batch = Batch::new(&emulator(), &model, BatchOptions::new(2, CONTEXT), |_| ());
    let Some(Error::NoBatch { why }) = batch.err() else {
        panic!("batches are refused");
    };
    assert!(
        why.contains("attention sinks are not supported for several tokens"),
        "{why}"
    );
    measured.fact(&name, "no batches", why.into());
    measured.finish();
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

/// A value of the gates that is not a number is not lost in their bounds.
#[test]
fn gates_that_are_not_finite_are_errors() {
    for tensor in [
        "ffn_gate_exps.weight",
        "ffn_up_exps.weight",
        "ffn_gate_inp.weight",
        "ffn_gate_exps.bias",
        "ffn_up_exps.bias",
        "ffn_down_exps.bias",
    ] {
        let nan = |entry: &mut Entry| {
            let len = entry.data.len() / 4;
            entry.data = f32s(std::iter::repeat_n(f32::NAN, len));
        };
        let file = MODELS[1].file().edit(&format!("blk.1.{tensor}"), nan);
        let model = open(&file, "model");
        if tensor.contains("inp") || tensor.contains("bias") {
            // Routers and biases are checked when they are loaded.
            let options = Options::new(CONTEXT, Launch::Graph);
            let error = Decoder::new(&emulator(), &model, options, |_| ()).err();
            let message = error.expect("an error").to_string();
            let wanted = format!("weight 0 of tensor \"blk.1.{tensor}\" is NaN");
            assert!(message.contains(&wanted), "{message}");
            continue;
        }
        let mut decoder = decoder(&model, Prefer::Fast);
        let mut tokens = decoder.generate(&[3, 90, 0], 2).unwrap();
        let error = tokens.find_map(Result::err).expect("an error");
        assert!(
            matches!(error, Error::Logit { value, .. } if !value.is_finite()),
            "{tensor}: {error}"
        );
    }
}
