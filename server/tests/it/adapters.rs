//! Adapters next to their base model, on the emulator: requests of several adapters at a time, and
//! adapters that are loaded and unloaded while the server runs.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use warpwright_engine::{Decoder, Launch, Options};
use warpwright_model::Model;
use warpwright_model::adapter::names;
use warpwright_server::engine::{EngineError, PrepareAdapter};
use warpwright_server::models::{
    AdapterEntry, AdapterOptions, DeviceLoader, DeviceOptions, LoadProgress, LoadedTemplate,
    ModelEntry, ModelLoader, Repetition, RequestOverrides, ServedModel,
};

use crate::harness::{Answer, NAME, app, asset, emulator, get, post, replying, served};

/// Writes an adapter of the small model in PEFT's form.
fn write_adapter(folder: &Path, seed: u32) {
    let model = Model::open(&asset()).expect("the small model opens");
    let mut header = Map::new();
    let mut data: Vec<u8> = vec![];
    let mut state = seed;
    for (layer, block) in model.outline.weights.blocks.iter().enumerate() {
        let projections = block.projections();
        for projection in [0, 2, 5, 6] {
            let weight = projections[projection].expect("the small model is dense");
            let shapes = [("A", [4, weight.row_len()]), ("B", [weight.rows(), 4])];
            for (factor, shape) in shapes {
                let start = data.len();
                for _ in 0..shape[0] * shape[1] {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let unit = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                    data.extend((0.12 * unit).to_le_bytes());
                }
                let tensor = json!({
                    "dtype": "F32",
                    "shape": shape,
                    "data_offsets": [start, data.len()],
                });
                header.insert(names::tensor(layer, projection, factor), tensor);
            }
        }
    }

    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    let config = json!({
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"],
    });
    std::fs::create_dir_all(folder).expect("a folder is made");
    std::fs::write(folder.join(names::TENSORS), file).expect("the tensors are written");
    std::fs::write(folder.join(names::CONFIG), config.to_string()).expect("it is written");
}

/// The prompt, which is long enough that a cached prefix is used.
const PROMPT: [u32; 12] = [1, 500, 90, 7, 300, 41, 77, 1203, 9, 64, 310, 25];

/// Returns the tokens that a decoder generates with an adapter, or without one.
fn expected(adapter: Option<&Path>, count: u32) -> Vec<u32> {
    let model = Model::open(&asset()).expect("the small model opens");
    let model = match adapter {
        Some(folder) => model.with_adapter(folder).expect("the adapter fits"),
        None => model,
    };
    let options = Options::new(128, Launch::Graph);
    let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).expect("it loads");
    let tokens = decoder.generate(&PROMPT, count).expect("it starts");
    tokens.collect::<Result<_, _>>().expect("it generates")
}

/// Serves the small model with an adapter, and a folder of others if there is one.
fn serve(loaded: Vec<AdapterEntry>, folder: Option<&Path>) -> Arc<ServedModel> {
    let options = DeviceOptions {
        ctx: Some(128),
        sequences: Some(3),
        queue: 16,
        repetition: Repetition::Fastest,
        cache: None,
        drafts: None,
        adapters: AdapterOptions {
            loaded,
            folder: folder.map(Path::to_owned),
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
        name: NAME.to_owned(),
        path: asset(),
        bytes: 0,
    };
    let loaded = loader.load(&entry, &LoadProgress::default());
    Arc::new(loaded.expect("the model and the adapters load"))
}

async fn complete(app: &Router, model: &str, count: u32) -> Answer {
    let body = json!({
        "model": model,
        "prompt": PROMPT,
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

async fn load(app: &Router, name: &str, path: &str) -> Answer {
    let body = json!({"lora_name": name, "lora_path": path});
    post(app, "/v1/load_lora_adapter", &body).await
}

async fn unload(app: &Router, name: &str) -> Answer {
    post(app, "/v1/unload_lora_adapter", &json!({"lora_name": name})).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes a minute on the emulator: the engine tests cover the numbers"]
async fn adapters_are_served_next_to_their_base_model() {
    let place = TempDir::new().expect("a folder");
    let folder = place.path().join("adapters");
    for (name, seed) in [("first", 1), ("second", 2)] {
        write_adapter(&folder.join(name), seed);
    }
    write_adapter(&place.path().join("outside"), 3);
    let [first, second] = ["first", "second"].map(|name| folder.join(name));
    let wanted =
        [None, Some(first.as_path()), Some(second.as_path())].map(|path| expected(path, 6));
    assert!(wanted[0] != wanted[1] && wanted[0] != wanted[2] && wanted[1] != wanted[2]);
    let entry = AdapterEntry {
        name: "one".to_owned(),
        path: first.clone(),
    };
    let app = app(serve(vec![entry], Some(&folder)));

    // Three requests at a time. The second time, they find their prefixes.
    assert_eq!(load(&app, "two", "second").await.status, 200);
    for _ in 0..2 {
        let answers = tokio::join!(
            complete(&app, NAME, 6),
            complete(&app, "one", 6),
            complete(&app, "two", 6),
        );
        let found = [&answers.0, &answers.1, &answers.2].map(tokens);
        assert_eq!(found, wanted);
        assert_eq!(answers.1.json()["model"], "one");
    }

    let models = get(&app, "/v1/models").await.json();
    let ids: Vec<_> = models["data"].as_array().expect("a list").iter().collect();
    let names = ids.iter().map(|model| (&model["id"], &model["parent"]));
    let null = Value::Null;
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            (&json!(NAME), &null),
            (&json!("one"), &json!(NAME)),
            (&json!("two"), &json!(NAME))
        ]
    );
    let one = get(&app, "/v1/models/one").await.json();
    assert_eq!(one["root"], first.display().to_string());
    let listed = get(&app, "/lora-adapters").await.json();
    assert_eq!(listed[1]["name"], "two");

    // Every protocol finds the adapter and names it in the response.
    let message = json!([{"role": "user", "content": "A vector is"}]);
    for (path, field, text) in [
        (
            "/v1/chat/completions",
            "messages",
            "/choices/0/message/content",
        ),
        ("/v1/messages", "messages", "/content/0/text"),
        ("/v1/responses", "input", "/output/0/content/0/text"),
    ] {
        let mut texts = vec![];
        for model in [NAME, "one", "two"] {
            let mut body = json!({"model": model, "max_tokens": 8, "temperature": 0});
            if path == "/v1/responses" {
                body = json!({"model": model, "max_output_tokens": 16, "temperature": 0});
            }
            body[field] = message.clone();
            let answer = post(&app, path, &body).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert_eq!(answer.json()["model"], model, "{path}");
            let json = answer.json();
            texts.push(json.pointer(text).expect(path).to_string());
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 3, "{path}: {texts:?}");
        let mut body = json!({"model": "three", "max_tokens": 8});
        body[field] = message.clone();
        let refused = post(&app, path, &body).await;
        assert_eq!(refused.status, 404, "{path}: {}", refused.body);
        assert!(
            refused.body.contains("use one of rustdoc-7m, one, two"),
            "{}",
            refused.body
        );
    }
    let vectors = json!({"model": "one", "input": "A vector"});
    let refused = post(&app, "/v1/embeddings", &vectors).await;
    assert_eq!(refused.status, 400, "{}", refused.body);

    // A running request ends with the adapter that it has begun with. Another adapter that takes its
    // name gets no pages of it.
    let long = expected(Some(&second), 24);
    let running = {
        let app = app.clone();
        tokio::spawn(async move { complete(&app, "two", 24).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(unload(&app, "two").await.status, 200);
    assert_eq!(complete(&app, "two", 1).await.status, 404);
    assert_eq!(unload(&app, "two").await.status, 404);
    assert_eq!(load(&app, "two", "first").await.status, 200);
    assert_eq!(tokens(&complete(&app, "two", 6).await), wanted[1]);
    assert_eq!(tokens(&running.await.expect("it ends")), long);

    // Refusals.
    for (name, path, status, reason) in [
        ("two", "second", 400, "is in use"),
        (NAME, "second", 400, "is in use"),
        ("", "second", 400, "is empty"),
        ("new", "", 400, "is empty"),
        ("new", "missing", 403, "is not in the folder of --lora-dir"),
        (
            "new",
            "../outside",
            403,
            "is not in the folder of --lora-dir",
        ),
        ("new", ".", 400, "contains no adapter_config.json"),
    ] {
        let refused = load(&app, name, path).await;
        assert_eq!(
            refused.status, status,
            "{name:?} {path:?}: {}",
            refused.body
        );
        assert!(refused.body.contains(reason), "{}", refused.body);
    }
    let outside = place.path().join("outside").display().to_string();
    assert_eq!(load(&app, "new", &outside).await.status, 403);
}

#[tokio::test]
async fn a_server_without_the_option_loads_no_adapters() {
    let engine = Box::new(crate::harness::replying("Yes"));
    let app = app(crate::harness::served(engine));
    for refused in [load(&app, "new", "x").await, unload(&app, "new").await] {
        assert_eq!(refused.status, 403, "{}", refused.body);
        assert!(refused.body.contains("--lora-dir"), "{}", refused.body);
    }
    assert_eq!(get(&app, "/lora-adapters").await.json(), json!([]));
    let body = json!({"lora_path": "x"});
    let refused = post(&app, "/v1/load_lora_adapter", &body).await;
    assert_eq!(
        (
            refused.status.as_u16(),
            refused.body.contains("`lora_name` is missing")
        ),
        (400, true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_go_on_while_an_adapter_is_prepared() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("poet");
    write_adapter(&path, 7);
    let model = Model::open(&asset()).expect("the small model opens");
    let adapter = model.outline.read_adapter(&path).expect("the adapter fits");

    let (release, released) = std::sync::mpsc::channel();
    let released = Mutex::new(released);
    let prepare: PrepareAdapter = Arc::new(move |_| {
        let released = released.lock().expect("no thread has panicked");
        released.recv().expect("the test releases it");
        Err(EngineError::Unsupported("it was prepared".to_owned()))
    });
    let engine = replying("yes").with_adapter_preparation(prepare);
    let served = served(Box::new(engine));
    let scheduler = served.scheduler.clone();
    let loading = tokio::spawn(async move { scheduler.load_adapter(adapter).await });
    let app = app(served);
    for _ in 0..3 {
        let answer = post(&app, "/completion", &json!({"prompt": "a"})).await;
        assert_eq!(answer.json()["content"], "yes");
    }
    assert!(!loading.is_finished());
    release.send(()).expect("it waits");
    let error = loading.await.expect("it ends").expect_err("none is loaded");
    assert_eq!(error.message, "it was prepared");
}
