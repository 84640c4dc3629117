//! Hugging Face folders: what they are read as, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;
use warpwright_model::chat::{Conversation, Then};
use warpwright_model::rope::RopeFactors;
use warpwright_model::{Model, Tokenizer};

use crate::hugging_face;

fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    hugging_face::write(folder.path());
    folder
}

/// The model that is published has these bytes.
#[test]
fn the_small_model_is_the_published_one() {
    let folder = small();
    let bytes = fs::read(folder.path().join("model.safetensors")).unwrap();
    assert_eq!((bytes.len(), fnv(&bytes)), (14_696_720, PUBLISHED));
}

const PUBLISHED: u64 = 0x633f_4938_2515_9f2c;

/// Fowler, Noll and Vo's hash 1a.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

const TEXTS: [&str; 14] = [
    "",
    "The borrow checker",
    " leading and  double  spaces \n\n\ttabs\r\n",
    "fn main() { println!(\"{:?}\", x_1 + 0xff_u8); }",
    "I'll we're they'd it's",
    "übung 你好 \u{1f980} e\u{301}",
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|>",
    "12345 3.14159 1_000_000",
    "\u{0}\u{7f}\u{fffd}\u{feff}",
    "#[derive(Debug)]\n/// ```rust\n",
    "αβγ ДЖЗ العربية हिन्दी",
    "    indented\n        more",
    "https://doc.rust-lang.org/std/?search=vec#x",
];

#[test]
fn texts_have_the_tokens_of_the_gguf_file() {
    let folder = small();
    let of = |path: &Path| Model::open(path).unwrap().tokenizer().unwrap();
    let (ours, theirs): (Tokenizer, Tokenizer) = (
        of(&crate::repository("tests/data/rustdoc-7m-F16.gguf")),
        of(folder.path()),
    );

    // The converter of llama.cpp lets texts begin with BOS; the folder, which has no post-processor, does not.
    assert_eq!((ours.bos(), theirs.bos()), (Some(0), None));
    for text in TEXTS {
        assert_eq!(
            theirs.encode(text).unwrap(),
            ours.encode_rest(text).unwrap(),
            "{text:?}"
        );
        let ids = theirs.encode_rest(text).unwrap();
        assert_eq!(theirs.decode(&ids), ours.decode(&ids), "{text:?}");
        let places = theirs.encode_places(text).unwrap();
        assert_eq!(places, ours.encode_places(text).unwrap(), "{text:?}");
        assert!(places.iter().map(|(id, _)| *id).eq(ids));

        // No byte is of no token: white space neither.
        assert_eq!(places.first().map_or(0, |(_, at)| at.start), 0);
        assert!(
            places
                .windows(2)
                .all(|pair| pair[1].1.start <= pair[0].1.end),
            "{text:?}"
        );
        assert_eq!(
            places.last().map_or(0, |(_, at)| at.end),
            text.len(),
            "{text:?}"
        );
    }

    assert_eq!(ours.eos(), theirs.eos());
    for id in 0..4096 {
        assert_eq!(ours.piece(id), theirs.piece(id), "{id}");
    }
}

#[test]
fn the_folder_is_the_model_of_the_gguf_file() {
    let folder = small();
    let [gguf, model] = [
        &crate::repository("tests/data/rustdoc-7m-F16.gguf"),
        folder.path(),
    ]
    .map(|path: &Path| Model::open(path).unwrap());
    let [a, b] = [&gguf.outline, &model.outline];
    assert_eq!((a.config.hidden, &a.stop), (b.config.hidden, &b.stop));
    assert_eq!(a.config.ropes, b.config.ropes);
    let permuted = |name: &str| name.contains("q_proj") || name.contains("k_proj");
    for (a, b) in a.weights.iter().zip(b.weights.iter()) {
        assert_eq!((&a.dims, a.format), (&b.dims, b.format), "{}", b.name);
        let [x, y] = [
            gguf.files.data(&a.range).unwrap(),
            model.files.data(&b.range).unwrap(),
        ];
        assert_eq!(x == y, !permuted(&b.name), "{}", b.name);
    }

    // A part of a vector, which is converted as it is read.
    let norm = &b.weights.norm.range;
    let whole = model.files.data(norm).unwrap();
    assert_eq!(
        model.files.data(&(norm.start + 7..norm.end - 5)).unwrap(),
        whole[7..whole.len() - 5]
    );
}

/// A folder of a model with two layers, to be damaged.
pub(crate) struct Tiny {
    folder: TempDir,
    config: Value,
    pub(crate) tensors: Vec<(String, Dtype, Vec<usize>)>,
}

impl Tiny {
    pub(crate) fn new(family: &str) -> Tiny {
        let class = match family {
            "llama" => "LlamaForCausalLM",
            "qwen2" => "Qwen2ForCausalLM",
            _ => "Qwen3ForCausalLM",
        };
        let config = json!({
            "model_type": family, "architectures": [class], "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "vocab_size": 10, "hidden_act": "silu",
            "rope_theta": 10000.0, "eos_token_id": [7, 3], "torch_dtype": "bfloat16",
        });
        let mut tensors = vec![];
        let mut add =
            |name: String, shape: &[usize]| tensors.push((name, Dtype::BF16, shape.to_vec()));
        for name in ["model.embed_tokens", "lm_head"] {
            add(format!("{name}.weight"), &[10, 16]);
        }

        add("model.norm.weight".into(), &[16]);
        for l in 0..2 {
            let mut layer =
                |name: &str, shape: &[usize]| add(format!("model.layers.{l}.{name}"), shape);
            for (name, n, k) in [("q", 16, 16), ("k", 8, 16), ("v", 8, 16), ("o", 16, 16)] {
                layer(&format!("self_attn.{name}_proj.weight"), &[n, k]);
                if family == "qwen2" && name != "o" {
                    layer(&format!("self_attn.{name}_proj.bias"), &[n]);
                }
            }

            for (name, n, k) in [("gate", 24, 16), ("up", 24, 16), ("down", 16, 24)] {
                layer(&format!("mlp.{name}_proj.weight"), &[n, k]);
            }

            layer("input_layernorm.weight", &[16]);
            layer("post_attention_layernorm.weight", &[16]);
            if family == "qwen3" {
                layer("self_attn.q_norm.weight", &[8]);
                layer("self_attn.k_norm.weight", &[8]);
            }
        }

        Tiny {
            folder: tempfile::tempdir().unwrap(),
            config,
            tensors,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Tiny {
        self.config[key] = value;
        self
    }

    fn without(mut self, key: &str) -> Tiny {
        self.config.as_object_mut().unwrap().remove(key);
        self
    }

    /// One more tensor, or one of another shape or type.
    pub(crate) fn tensor(mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Tiny {
        self.tensors.retain(|(known, ..)| known != name);
        self.tensors.push((name.into(), dtype, shape.to_vec()));
        self
    }

    fn drop(mut self, name: &str) -> Tiny {
        self.tensors.retain(|(known, ..)| known != name);
        self
    }

    pub(crate) fn save(&self) -> &Self {
        fs::write(self.path("config.json"), self.config.to_string()).unwrap();
        self.shard("model.safetensors", |_| true);
        self
    }

    /// Writes the tensors that are chosen into one file.
    fn shard(&self, file: &str, chosen: impl Fn(&str) -> bool) {
        let zeros = vec![0; 8 * 1024];
        let tensors =
            self.tensors
                .iter()
                .filter(|(name, ..)| chosen(name))
                .map(|(name, dtype, shape)| {
                    let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
                    (
                        name,
                        TensorView::new(*dtype, shape.clone(), &zeros[..bytes]).unwrap(),
                    )
                });
        fs::write(
            self.path(file),
            safetensors::serialize(tensors, None).unwrap(),
        )
        .unwrap();
    }

    pub(crate) fn open(&self) -> Result<Model, String> {
        // The folder is another one each time.
        let folder = self.folder.path().display().to_string();
        Model::open(self.folder.path()).map_err(|error| error.to_string().replace(&folder, "M"))
    }
}

#[test]
fn families_are_opened() {
    for family in ["llama", "qwen2", "qwen3"] {
        let tiny = Tiny::new(family);
        let model = tiny.save().open().unwrap();
        let outline = &model.outline;
        assert_eq!(outline.config.architecture.name, family);
        assert_eq!(outline.stop, [3, 7]);
        assert!(outline.weights.head.is_some());
        assert_eq!(
            outline.weights.blocks[1].q_bias.is_some(),
            family == "qwen2"
        );
        assert_eq!(
            outline.weights.blocks[1].k_norm.is_some(),
            family == "qwen3"
        );
        let error = model.tokenizer().unwrap_err().to_string();
        assert!(
            error.ends_with("the folder has no tokenizer.json and no tekken.json, without one of which a text has no tokens"),
            "{error}"
        );
        assert!(model.chat_template().unwrap().is_none());
        let tied = Tiny::new(family)
            .with("tie_word_embeddings", json!(true))
            .drop("lm_head.weight");
        assert!(tied.save().open().unwrap().outline.weights.head.is_none());
    }
}

#[test]
fn several_files_are_one_model() {
    let tiny = Tiny::new("llama");
    tiny.save();
    let one = tiny.open().unwrap();
    fs::remove_file(tiny.path("model.safetensors")).unwrap();
    let second = |name: &str| name.contains("layers.1") || name.contains("norm");
    tiny.shard("a.safetensors", |name| !second(name));
    tiny.shard("b.safetensors", second);
    let map = |wrong: Option<(&str, &str)>| {
        let file = |name: &str| match wrong {
            Some((tensor, file)) if tensor == name => file.to_owned(),
            _ => if second(name) {
                "b.safetensors"
            } else {
                "a.safetensors"
            }
            .to_owned(),
        };
        let map: serde_json::Map<String, Value> = tiny
            .tensors
            .iter()
            .map(|(name, ..)| (name.clone(), file(name).into()))
            .collect();
        fs::write(
            tiny.path("model.safetensors.index.json"),
            json!({ "weight_map": map }).to_string(),
        )
        .unwrap();
        tiny.open().err()
    };
    assert_eq!(map(None), None);
    let several = tiny.open().unwrap();
    for (a, b) in one
        .outline
        .weights
        .iter()
        .zip(several.outline.weights.iter())
    {
        assert_eq!((&a.name, &a.dims), (&b.name, &b.dims));
        assert_eq!(
            one.files.data(&a.range).unwrap(),
            several.files.data(&b.range).unwrap()
        );
    }

    let norm = "model.norm.weight";
    let cases = [
        (
            "a.safetensors",
            "M/model.safetensors.index.json: tensor \"model.norm.weight\" is not in \"a.safetensors\", where model.safetensors.index.json has it",
        ),
        (
            "c.safetensors",
            "M: the file \"c.safetensors\" is missing, which model.safetensors.index.json names: download the rest of the folder",
        ),
        (
            "../x.safetensors",
            "M/model.safetensors.index.json: \"model.norm.weight\" is in \"../x.safetensors\"; a file of the same folder is expected",
        ),
        (
            "",
            "M/model.safetensors.index.json: \"model.norm.weight\" is in \"\"; a file of the same folder is expected",
        ),
    ];
    for (file, wanted) in cases {
        assert_eq!(map(Some((norm, file))).as_deref(), Some(wanted));
    }

    tiny.shard("b.safetensors", |name| {
        second(name) || name == "lm_head.weight"
    });
    let wanted = "M: tensor \"lm_head.weight\" is in \"a.safetensors\" and in \"b.safetensors\"";
    assert_eq!(map(None).as_deref(), Some(wanted));
}

#[test]
fn refuses_what_it_does_not_know() {
    let llama = || Tiny::new("llama");
    let cases = [
        (
            llama().with("model_type", json!("gemma")),
            "M/config.json: key \"model_type\" is \"gemma\"; supported as a folder: llama, qwen2, qwen3, mistral, ministral3, gemma3_text, gemma2, phi3, granite, granitemoehybrid, qwen2_moe, qwen3_moe, mixtral, olmoe, granitemoe, granitemoeshared, gpt_oss, starcoder2, smollm3, exaone4, olmo2, olmo3, glm4, cohere2",
        ),
        (
            llama().without("model_type"),
            "M/config.json: key \"model_type\" is missing",
        ),
        (
            llama().with("architectures", json!(["LlamaForSequenceClassification"])),
            "M/config.json: key \"architectures\" is [\"LlamaForSequenceClassification\"]; expected [\"LlamaForCausalLM\"], the class that writes text",
        ),
        (
            llama().with("new_idea", json!(1)),
            "M/config.json: key \"new_idea\" (1) is not known for architecture llama, so the model could run wrongly",
        ),
        (
            llama().with("attention_bias", json!(true)),
            "M/config.json: key \"attention_bias\" is true: biases of all projections of attention are not supported",
        ),
        (
            Tiny::new("qwen3").with("use_sliding_window", json!(true)),
            "M/config.json: key \"use_sliding_window\" is true: attention to a sliding window is not supported in this family",
        ),
        (
            llama().with("hidden_act", json!("gelu")),
            "M/config.json: key \"hidden_act\" is \"gelu\": another activation than SiLU is not supported",
        ),
        (
            llama().without("hidden_size"),
            "M/config.json: key \"hidden_size\" is missing",
        ),
        (
            llama().with("hidden_size", json!("16")),
            "M/config.json: key \"hidden_size\" is \"16\"; expected a whole number from 1 to 16777216",
        ),
        (
            llama().with("num_hidden_layers", json!(-1)),
            "M/config.json: key \"num_hidden_layers\" is -1; expected a whole number from 1 to 16777216",
        ),
        (
            llama().with("num_key_value_heads", json!(3)),
            "M/config.json: key \"num_attention_heads\" is 2; expected a multiple of num_key_value_heads (3)",
        ),
        (
            llama().with("head_dim", json!(7)),
            "M/config.json: key \"head_dim\" is 7; expected an even number, of whose elements pairs are rotated",
        ),
        (
            llama().with("eos_token_id", json!(10)),
            "M/config.json: key \"eos_token_id\" is 10; expected a token below vocab_size (10), or a list of such",
        ),
        (
            llama().with("rope_scaling", json!({"type": "dynamic", "factor": 2.0})),
            "M/config.json: key \"rope_scaling.rope_type\" is \"dynamic\"; supported: default, linear, llama3, yarn, longrope",
        ),
        (
            llama().with("rope_scaling", json!({"type": "linear"})),
            "M/config.json: key \"rope_scaling.factor\" is missing",
        ),
        (
            llama().with(
                "rope_scaling",
                json!({"type": "linear", "factor": 2.0, "mscale": 1}),
            ),
            "M/config.json: key \"rope_scaling.mscale\" is 1: it is not known for this kind of scaling, so the model could run wrongly",
        ),
        (
            llama().with("rope_parameters", json!({"partial_rotary_factor": 0.5})),
            "M/config.json: key \"rope_parameters.partial_rotary_factor\" is 0.5; expected 1: these families rotate whole heads",
        ),
        (
            llama().drop("model.norm.weight"),
            "M: tensor \"model.norm.weight\" of shape [16] is missing",
        ),
        (
            llama().with("num_hidden_layers", json!(3)),
            "M: tensor \"model.layers.2.input_layernorm.weight\" of shape [16] is missing",
        ),
        (
            llama().tensor("lm_head.weight", Dtype::BF16, &[11, 16]),
            "M: tensor \"lm_head.weight\" has shape [11, 16]; expected [10, 16]",
        ),
        (
            llama().tensor("lm_head.weight", Dtype::F8_E4M3, &[10, 16]),
            "M: tensor \"lm_head.weight\" is F8_E4M3; supported: F32, F16, BF16",
        ),
        (
            llama().tensor("model.norm.weight", Dtype::I32, &[16]),
            "M: tensor \"model.norm.weight\" is I32; supported: F32, F16, BF16",
        ),
        (
            llama().tensor("model.layers.0.self_attn.q_proj.bias", Dtype::BF16, &[16]),
            "M: tensor \"model.layers.0.self_attn.q_proj.bias\" is not part of architecture llama, so the model would run wrongly",
        ),
        (
            llama().with("tie_word_embeddings", json!(true)),
            "M: tensor \"lm_head.weight\" is there, and tie_word_embeddings of config.json says that the embedding serves as head; remove the tensor, or set tie_word_embeddings to false to use it",
        ),
    ];
    for (tiny, wanted) in cases {
        assert_eq!(tiny.save().open().err().as_deref(), Some(wanted));
    }

    let old = llama().tensor(
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        Dtype::F32,
        &[4],
    );
    assert!(old.save().open().is_ok());
}

#[test]
fn refuses_damaged_files() {
    let of = |name: &str, bytes: &[u8]| {
        let tiny = Tiny::new("llama");
        fs::write(tiny.save().path(name), bytes).unwrap();
        tiny.open().unwrap_err()
    };
    let long = [&200u64.to_le_bytes()[..], b"{}"].concat();
    let stray = [&2u64.to_le_bytes()[..], b"{}abc"].concat();
    let cases = [
        (of("config.json", b"{"), "M/config.json: it is no JSON: "),
        (
            of("config.json", b"[]"),
            "M/config.json: it is no JSON object",
        ),
        (
            of("generation_config.json", b"{\"eos_token_id\": \"a\"}"),
            "M/generation_config.json: key \"eos_token_id\" is \"a\"; ",
        ),
        (
            of("tokenizer.json", b"nothing"),
            "M/tokenizer.json: it is no JSON: ",
        ),
        (
            of(
                "tokenizer.json",
                b"{\"added_tokens\": [{\"id\": 10, \"content\": \"a\"}]}",
            ),
            "M/tokenizer.json: key \"token \\\"a\\\"\" is 10; ",
        ),
        (
            of("model.safetensors", b""),
            "M/model.safetensors: it is no safetensors file: it has 0 bytes",
        ),
        (
            of("model.safetensors", &long),
            "M/model.safetensors: it is no safetensors file: its header would take 200 bytes, and 2 follow",
        ),
        (
            of("model.safetensors", &stray),
            "M/model.safetensors: it has 3 bytes of data, and its header says 0: download it again",
        ),
        (
            of(
                "model.safetensors",
                b"version https://git-lfs.github.com/spec/v1\n",
            ),
            "M/model.safetensors: it is a Git LFS pointer",
        ),
    ];
    for (error, wanted) in cases {
        assert!(error.starts_with(wanted), "{error}, not {wanted}");
    }

    let empty = tempfile::tempdir().unwrap();
    let error = Model::open(empty.path()).unwrap_err().to_string();
    assert!(error.ends_with(
        "it has no config.json; a model is a .gguf file, or a folder with config.json and safetensors"
    ));
    let tiny = Tiny::new("llama");
    fs::remove_file(tiny.save().path("model.safetensors")).unwrap();
    fs::write(tiny.path("pytorch_model.bin"), b"").unwrap();
    assert!(
        tiny.open()
            .unwrap_err()
            .contains("convert them to safetensors")
    );
}

/// `chat_template.jinja` comes first, then `chat_template.json`, then `tokenizer_config.json`.
#[test]
fn a_folder_has_its_template_in_one_of_three_files() {
    let tiny = Tiny::new("llama");
    let model = tiny.save().open().unwrap();
    let text = || {
        let folder = tiny.folder.path().display().to_string();
        let template = model
            .chat_template()
            .map_err(|error| error.to_string().replace(&folder, "M"))?;
        let text = template
            .unwrap()
            .render(&Conversation::default(), Then::End)
            .unwrap()
            .text;
        Ok::<_, String>(text)
    };
    let settings = |template: Value| {
        let eos = json!({"content": "<eos>", "lstrip": false});
        let settings = json!({"bos_token": "<bos>", "eos_token": eos, "chat_template": template});
        fs::write(tiny.path("tokenizer_config.json"), settings.to_string()).unwrap();
    };
    settings(json!("{{ bos_token }}a{{ eos_token }}"));
    assert_eq!(text().unwrap(), "<bos>a<eos>");
    settings(json!([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "b"}]));
    assert_eq!(text().unwrap(), "b");
    settings(json!([{"name": "tool_use", "template": "x"}]));
    let wanted = "M/tokenizer_config.json: the chat template is a list (chat_template) without an entry named \"default\"";
    assert_eq!(text().unwrap_err(), wanted);
    fs::write(
        tiny.path("chat_template.json"),
        "{\"chat_template\": \"c{{ bos_token }}\"}",
    )
    .unwrap();
    assert_eq!(text().unwrap(), "c<bos>");
    fs::write(
        tiny.path("chat_template.jinja"),
        "d{{ unk_token is defined }}\n",
    )
    .unwrap();
    assert_eq!(text().unwrap(), "dFalse");
}

/// A template for tools is named `tool_use`: in a list, in a file of its own, or, of a GGUF file, under a key of its own.
#[test]
fn a_template_for_tools_comes_before_the_default_where_there_are_tools() {
    let texts = |model: &Model| {
        let [with, without] =
            [model.chat_template_with_tools(), model.chat_template()].map(|template| {
                template
                    .unwrap()
                    .unwrap()
                    .render(&Conversation::default(), Then::End)
            });
        [with.unwrap().text, without.unwrap().text]
    };
    let tiny = Tiny::new("llama");
    let model = tiny.save().open().unwrap();
    let named =
        json!([{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]);
    for file in ["tokenizer_config.json", "chat_template.json"] {
        fs::write(
            tiny.path(file),
            json!({ "chat_template": named }).to_string(),
        )
        .unwrap();
        assert_eq!(texts(&model), ["b", "a"], "{file}");
    }

    fs::write(tiny.path("chat_template.jinja"), "c").unwrap();
    assert_eq!(
        texts(&model),
        ["c", "c"],
        "a file without one of its name beside it"
    );
    fs::create_dir(tiny.path("additional_chat_templates")).unwrap();
    fs::write(tiny.path("additional_chat_templates/tool_use.jinja"), "d").unwrap();
    assert_eq!(texts(&model), ["d", "c"]);
    let template = |key: &str, text: &str| {
        (
            format!("tokenizer.chat_template{key}"),
            crate::write::Val::Str(text.into()),
        )
    };
    let file = [template("", "e"), template(".tool_use", "f")]
        .into_iter()
        .fold(crate::config::model("llama"), |file, (key, text)| {
            file.pair(&key, text)
        });
    assert_eq!(
        texts(&Model::open(&file.save("tool-use.gguf")).unwrap()),
        ["f", "e"]
    );
}

/// Which token begins a text: by the post-processor, whatever the class and `add_bos_token` are. transformers 5.23 gives
/// the same for these files, with a `model_type` of llama.
#[test]
fn texts_begin_as_the_post_processor_says() {
    let folder = small();
    let settings = folder.path().join("tokenizer_config.json");
    let begins = || {
        let tokenizer = Model::open(folder.path()).unwrap().tokenizer().unwrap();
        (tokenizer.bos(), tokenizer.warnings().len())
    };
    let bos = "<|endoftext|>";
    let classes = [
        "PreTrainedTokenizerFast",
        "LlamaTokenizerFast",
        "LlamaTokenizer",
        "GPT2Tokenizer",
    ];
    let check = |begins_with: Option<u32>| {
        for class in classes {
            for (wanted, warnings) in [
                (Value::Null, 0),
                (Value::Bool(begins_with.is_some()), 0),
                (Value::Bool(begins_with.is_none()), 1),
            ] {
                let text =
                    json!({"tokenizer_class": class, "bos_token": bos, "add_bos_token": wanted});
                fs::write(&settings, text.to_string()).unwrap();
                assert_eq!(
                    begins(),
                    (begins_with, warnings),
                    "{class}, add_bos_token {wanted}"
                );
            }
        }
        fs::remove_file(&settings).unwrap();
        assert_eq!(begins(), (begins_with, 0), "without tokenizer_config.json");
    };
    check(None);
    hugging_face::begin_with_bos(folder.path());
    check(Some(0));
    let unknown = json!({"eos_token": "<|nothing|>"});
    fs::write(&settings, unknown.to_string()).unwrap();
    let error = Model::open(folder.path())
        .unwrap()
        .tokenizer()
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("eos_token of tokenizer_config.json is \"<|nothing|>\", which is no token"),
        "{error}"
    );
}

/// The divisors of each kind of wave, from the formula in `_compute_llama3_parameters` of transformers, in Python.
#[test]
fn scaling_of_llama_3_is_read() {
    let scaling = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let tiny = Tiny::new("llama")
        .with("rope_scaling", scaling)
        .with("rope_theta", json!(500000.0));
    let outline = tiny.save().open().unwrap().outline;
    assert_eq!(outline.config.ropes[0].base, 500000.0);
    let Some(RopeFactors::Fixed(factors)) = outline.rope_factors else {
        panic!()
    };

    let wanted = LLAMA_3;
    assert!(
        factors
            .iter()
            .zip(wanted)
            .all(|(a, b)| (a / b - 1.0f32).abs() < 1e-6),
        "{factors:?}"
    );
    let linear = json!({"rope_theta": 20000.0, "rope_type": "linear", "factor": 4.0});
    let outline = Tiny::new("qwen3")
        .without("rope_theta")
        .with("rope_parameters", linear)
        .save()
        .open()
        .unwrap()
        .outline;
    assert_eq!(
        (outline.config.ropes[0].base, outline.rope_factors),
        (20000.0, None)
    );
    let turns = outline.config.ropes[0].revolutions(None);
    assert!((turns[0] * std::f64::consts::TAU - 0.25).abs() < 1e-12);
}

const LLAMA_3: [f32; 4] = [1.0, 1.0, 2.694_529_7, 8.0];
