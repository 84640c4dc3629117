//! Families that have only simple kernels, served by a decoder on the emulator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use half::bf16;
use serde_json::json;
use warpwright_engine::{Decoder, Launch, Options};
use warpwright_model::Model;
use warpwright_model::gguf::{Gguf, Value};
use warpwright_server::models::{
    AdapterOptions, DeviceLoader, DeviceOptions, LoadError, LoadProgress, LoadedTemplate,
    ModelEntry, ModelLoader, Repetition, RequestOverrides, ServedModel,
};

use crate::folders::{CONTEXT, FolderModel, MODELS};
use crate::harness::{Answer, app, asset, emulator, get, post};
use crate::splitmix::Random;
use crate::write::{File, Val};

/// The models of the tests' support whose families have no kernels for batches. The other ones of
/// this kind run in the tests of the engine.
const SIMPLE: [&str; 1] = ["gemma2"];

/// Returns the random model as a GGUF file with the vocabulary of the small model.
fn with_tokenizer(model: &FolderModel) -> Option<File> {
    let family = model.gguf_family()?;
    let mut file = model.gguf()?;
    let small = Gguf::open(&asset()).expect("the small model opens");
    let mut vocab = 0;
    for (key, value) in &small.directory.metadata {
        if !key.starts_with("tokenizer.") {
            continue;
        }
        let value = match value {
            Value::Unsigned(n) => Val::U32(*n as u32),
            Value::Bool(value) => Val::Bool(*value),
            Value::String(text) => Val::Str(text.clone()),
            Value::Array(array) => match array.strings() {
                Some(texts) => Val::Strs(texts.map(str::to_owned).collect()),
                None => Val::I32s(array.values().map(|n| integer(&n)).collect()),
            },
            Value::Signed(_) | Value::Float(_) => panic!("{key} is {value:?}"),
        };
        if let Val::Strs(texts) = &value
            && key == "tokenizer.ggml.tokens"
        {
            vocab = texts.len() as u32;
        }
        file = file.pair(key, value);
    }

    let mut random = Random(5);
    for tensor in &mut file.tensors {
        if ["token_embd.weight", "output.weight"].contains(&&*tensor.name) {
            tensor.dims[1] = vocab.into();
            let count = tensor.dims[0] * tensor.dims[1];
            tensor.data = (0..count)
                .flat_map(|_| bf16::from_f32(random.unit() / 6.0).to_le_bytes())
                .collect();
        }
    }
    Some(file.pair(&format!("{family}.vocab_size"), Val::U32(vocab)))
}

fn integer(value: &Value) -> i32 {
    let value = value.integer().expect("an integer");
    i32::try_from(value).expect("it has 32 bits")
}

/// Returns the greedy continuation by a decoder alone.
fn reference(path: &Path, prompt: &[u32], count: u32) -> Vec<u32> {
    let model = Model::open(path).expect("the model opens");
    let options = Options::new(CONTEXT, Launch::Graph);
    let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).expect("it loads");
    let tokens = decoder.generate(prompt, count).expect("it starts");
    tokens.collect::<Result<_, _>>().expect("it generates")
}

fn load(path: PathBuf, sequences: Option<u32>) -> Result<ServedModel, LoadError> {
    let options = DeviceOptions {
        ctx: None,
        sequences,
        queue: 16,
        repetition: Repetition::Fastest,
        cache: None,
        drafts: None,
        adapters: AdapterOptions {
            loaded: vec![],
            folder: None,
        },
    };
    let overrides = RequestOverrides {
        template: Some(LoadedTemplate {
            path: "test.jinja".into(),
            text: "{% for message in messages %}{{ message.content }}{% endfor %}".to_owned(),
        }),
        ..RequestOverrides::default()
    };
    let loader = DeviceLoader::new(Arc::new(|| Ok(emulator())), options, overrides);
    let entry = ModelEntry {
        name: "tiny".to_owned(),
        path,
        bytes: 0,
    };
    loader.load(&entry, &LoadProgress::default())
}

async fn complete(app: &Router, prompt: &[u32], count: u32) -> Answer {
    let body = json!({
        "prompt": prompt,
        "n_predict": count,
        "temperature": 0,
        "return_tokens": true,
        "ignore_eos": true,
    });
    post(app, "/completion", &body).await
}

fn tokens(answer: &Answer) -> Vec<u32> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let tokens = answer.json()["tokens"].clone();
    serde_json::from_value(tokens).expect("tokens are numbers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_serves_one_request_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in SIMPLE {
        let model = MODELS.iter().find(|model| model.name == name);
        let file = model.and_then(with_tokenizer);
        let path = folder.path().join(format!("{name}.gguf"));
        std::fs::write(&path, file.expect("there is a file").bytes()).expect("it is written");

        let prompts: [&[u32]; 2] = [&[1, 500, 90, 7], &[300, 41, 77, 1203, 9]];
        let wanted = prompts.map(|prompt| reference(&path, prompt, 5));
        assert_ne!(wanted[0], wanted[1], "{name}");
        let served = Arc::new(load(path, None).expect("the model loads"));
        let app = app(served);

        // The second request waits for the first, and both get the text of a decoder alone.
        let both = tokio::join!(complete(&app, prompts[0], 5), complete(&app, prompts[1], 5));
        assert_eq!([&both.0, &both.1].map(tokens), wanted, "{name}");
        let slots = get(&app, "/slots").await.json();
        assert_eq!(slots.as_array().map(Vec::len), Some(1), "{name}: {slots}");

        let body = json!({
            "messages": [{"role": "user", "content": "A slice is a view"}],
            "max_tokens": 4,
            "temperature": 0,
        });
        let answer = post(&app, "/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        let usage = answer.json()["usage"].clone();
        assert!(
            usage["completion_tokens"].as_u64() > Some(0),
            "{name}: {usage}"
        );
    }
}

#[test]
fn options_that_need_a_batch_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = MODELS.iter().find(|model| model.name == "gemma2");
    let file = model.and_then(with_tokenizer).expect("there is a file");
    let path = folder.path().join("gemma2.gguf");
    std::fs::write(&path, file.bytes()).expect("it is written");
    let Err(error) = load(path, Some(2)) else {
        panic!("there are no kernels for two sequences");
    };
    let error = error.to_string();
    let begin = "--sequences needs the kernels for batches, and this model has none here: ";
    assert!(
        error.starts_with(begin) && error.len() > begin.len() + 10,
        "{error}"
    );
}
