//! Tests of llama.cpp's endpoints.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use warpwright_server::engine::scripted::PrefixReuse;
use warpwright_server::models::OpenedModel;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

use crate::harness::{NAME, app, asset, get, limits, post, replying, served};

fn scripted(reply: &str) -> Router {
    app(served(Box::new(replying(reply))))
}

async fn ok(app: &Router, path: &str, body: Value) -> Value {
    let answer = post(app, path, &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()
}

/// Returns the message of an error.
async fn refused(app: &Router, path: &str, body: Value) -> String {
    let answer = post(app, path, &body).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{answer:?}");
    let message = answer.json()["error"]["message"].clone();
    message.as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn tokens_become_the_same_text() {
    let app = scripted("yes");
    for text in [
        "The borrow checker",
        "",
        " two  spaces",
        "naïve 媽 🤗",
        "a\nb",
    ] {
        let tokens = ok(&app, "/tokenize", json!({"content": text})).await["tokens"].clone();
        let back = ok(&app, "/detokenize", json!({"tokens": tokens})).await;
        assert_eq!(back["content"], text);
    }
}

#[tokio::test]
async fn special_tokens_are_added_and_parsed_on_request() {
    let app = scripted("yes");
    let tokens = |body: Value| async {
        let json = ok(&app, "/tokenize", body).await;
        let tokens = json["tokens"].as_array().expect("a list").clone();
        tokens
            .into_iter()
            .map(|token| token.as_u64().expect("an id"))
            .collect::<Vec<u64>>()
    };
    let plain = tokens(json!({"content": "a b"})).await;
    let special = tokens(json!({"content": "a b", "add_special": true})).await;
    assert_eq!(special[0], 0);
    assert_eq!(special[1..], plain);

    let parsed = tokens(json!({"content": "<|endoftext|>"})).await;
    assert!(parsed.contains(&0), "{parsed:?}");
    let text = tokens(json!({"content": "<|endoftext|>", "parse_special": false})).await;
    assert!(!text.contains(&0), "{text:?}");

    // Texts and ids in one list.
    let mixed = tokens(json!({"content": [5, "a", 6]})).await;
    assert_eq!((mixed[0], mixed.last()), (5, Some(&6)));
    assert_eq!(tokens(json!({})).await, Vec::<u64>::new());

    // Fields of vLLM would otherwise be an empty list, too.
    let messages = json!([{"role": "user", "content": "a"}]);
    for (body, field) in [
        (json!({"prompt": "a b"}), "`prompt`"),
        (json!({"messages": messages}), "`messages`"),
    ] {
        let message = refused(&app, "/tokenize", body).await;
        assert!(
            message.starts_with(&format!("{field} is not supported: use ")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn pieces_are_texts_or_bytes() {
    let app = scripted("yes");
    let body = json!({"content": "a 媽", "with_pieces": true});
    let json = ok(&app, "/tokenize", body).await;
    let mut bytes: Vec<u8> = vec![];
    for token in json["tokens"].as_array().expect("a list") {
        match &token["piece"] {
            Value::String(text) => bytes.extend(text.as_bytes()),
            Value::Array(list) => {
                bytes.extend(list.iter().map(|byte| byte.as_u64().expect("a byte") as u8));
            }
            other => panic!("{other}"),
        }
        assert!(token["id"].as_u64().expect("an id") > 0);
    }
    assert_eq!(String::from_utf8(bytes).expect("UTF-8"), "a 媽");
}

#[tokio::test]
async fn wrong_tokens_are_named() {
    let app = scripted("yes");
    assert_eq!(
        refused(&app, "/detokenize", json!({"tokens": [1, 4096]})).await,
        "`tokens[1]` is 4096: the vocabulary has 4096 tokens"
    );
    let message = refused(&app, "/detokenize", json!({"tokens": [-1]})).await;
    assert!(message.starts_with("`tokens[0]`"), "{message}");
    assert_eq!(
        refused(&app, "/completion", json!({"prompt": [1, 4096]})).await,
        "`prompt[1]` is 4096: the vocabulary has 4096 tokens"
    );
}

#[tokio::test]
async fn a_completion_has_text_settings_and_times() {
    let app = scripted(" one\ntwo");
    let body = json!({
        "prompt": "The borrow checker", "n_predict": 50, "seed": 42, "temperature": 0.5,
        "stop": ["zzz"], "unknown_field": {"a": 1},
    });
    let json = ok(&app, "/completion", body).await;
    assert_eq!(json["content"], " one\ntwo");
    assert_eq!(json["tokens"], json!([]));
    assert_eq!(json["stop"], true);
    assert_eq!(json["stop_type"], "eos");
    assert_eq!(json["stopping_word"], "");
    assert_eq!(json["has_new_line"], true);
    assert_eq!(json["truncated"], false);
    assert_eq!(json["model"], NAME);
    assert_eq!(json["prompt"], "<|endoftext|>The borrow checker");
    let settings = &json["generation_settings"];
    assert_eq!(settings["n_predict"], 50);
    assert_eq!(settings["seed"], 42);
    assert_eq!(settings["temperature"], 0.5);
    assert_eq!(settings["stop"], json!(["zzz"]));
    assert_eq!(settings["n_ctx"], limits().ctx);
    let timings = &json["timings"];
    assert_eq!(timings["prompt_n"], json["tokens_evaluated"]);
    assert_eq!(timings["predicted_n"], json["tokens_predicted"]);
    assert_eq!(timings["cache_n"], 0);
    assert!(json.get("completion_probabilities").is_none());
}

#[tokio::test]
async fn a_completion_ends_for_each_reason() {
    let app = scripted("one two three four");
    let limit = ok(&app, "/completion", json!({"prompt": "a", "n_predict": 2})).await;
    assert_eq!(
        (&limit["stop_type"], &limit["truncated"]),
        (&json!("limit"), &json!(false))
    );
    assert_eq!(limit["tokens_predicted"], 2);

    let word = ok(
        &app,
        "/completion",
        json!({"prompt": "a", "stop": [" three"]}),
    )
    .await;
    assert_eq!(word["stop_type"], "word");
    assert_eq!(word["stopping_word"], " three");
    assert_eq!(word["content"], "one two");

    let endless = json!({"prompt": vec![5; 500], "ignore_eos": true});
    let full = ok(&app, "/completion", endless).await;
    assert_eq!(
        (&full["stop_type"], &full["truncated"]),
        (&json!("limit"), &json!(true))
    );
    assert_eq!(full["tokens_predicted"], limits().ctx - 500);

    let nothing = ok(&app, "/completion", json!({"prompt": "a", "n_predict": 0})).await;
    assert_eq!(nothing["content"], "");
    assert_eq!(nothing["tokens_predicted"], 0);
}

#[tokio::test]
async fn prompts_may_be_lists() {
    let app = scripted("yes");
    let two = ok(&app, "/completion", json!({"prompt": ["a", [1, 5, "b"]]})).await;
    let two = two.as_array().expect("a list").clone();
    assert_eq!(two.len(), 2);
    assert_eq!((&two[0]["index"], &two[1]["index"]), (&json!(0), &json!(1)));
    assert!(two.iter().all(|reply| reply["content"] == "yes"));

    let mixed = ok(&app, "/completion", json!({"prompt": [1, 5, "b"]})).await;
    assert_eq!(mixed["content"], "yes");
    let one = ok(&app, "/completion", json!({"prompt": ["a"]})).await;
    assert_eq!(one.as_array().map(Vec::len), Some(1));

    let several = ok(&app, "/completion", json!({"prompt": "a", "n_cmpl": 3})).await;
    let indices: Vec<&Value> = several
        .as_array()
        .expect("a list")
        .iter()
        .map(|reply| &reply["index"])
        .collect();
    assert_eq!(indices, [&json!(0), &json!(1), &json!(2)]);
}

#[tokio::test]
async fn fields_of_the_response_can_be_selected() {
    let app = scripted("yes");
    let body = json!({
        "prompt": "a", "n_predict": 5, "response_fields": ["content", "generation_settings/n_predict"],
    });
    assert_eq!(
        ok(&app, "/completion", body).await,
        json!({"content": "yes", "generation_settings/n_predict": 5})
    );
}

#[tokio::test]
async fn tokens_and_probabilities_are_returned_on_request() {
    let app = scripted("one two");
    let body = json!({"prompt": "a", "return_tokens": true, "n_probs": 3, "n_predict": 2});
    let json = ok(&app, "/completion", body).await;
    let tokens = json["tokens"].as_array().expect("a list");
    assert_eq!(tokens.len(), 2);
    let probabilities = json["completion_probabilities"].as_array().expect("a list");
    assert_eq!(probabilities.len(), 2);
    for (token, probability) in tokens.iter().zip(probabilities) {
        assert_eq!(&probability["id"], token);
        assert!(probability["logprob"].as_f64().expect("a number") <= 0.0);
        assert!(probability["bytes"].is_array());
        assert_eq!(
            probability["top_logprobs"].as_array().map(Vec::len),
            Some(3)
        );
    }
}

#[tokio::test]
async fn a_stream_has_the_text_of_the_whole_reply() {
    let app = scripted("one two\nthree 媽 four");
    let body = json!({"prompt": "a", "stream": true, "n_probs": 2});
    let answer = post(&app, "/completion", &body).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let events: Vec<Value> = answer
        .events()
        .into_iter()
        .map(|(name, data)| {
            assert_eq!(name, "");
            serde_json::from_str(&data).expect("JSON")
        })
        .collect();
    let (last, chunks) = events.split_last().expect("events");
    let mut text = String::new();
    let mut tokens = 0;
    for chunk in chunks {
        assert_eq!(chunk["stop"], false);
        let ids = chunk["tokens"].as_array().expect("a list");
        assert!(!ids.is_empty(), "{chunk}");
        let probabilities = chunk["completion_probabilities"].as_array();
        assert_eq!(probabilities.map(Vec::len), Some(ids.len()));
        tokens += ids.len();
        text += chunk["content"].as_str().expect("a text");
    }
    assert_eq!(text, "one two\nthree 媽 four");
    assert_eq!(last["stop"], true);
    assert_eq!(last["stop_type"], "eos");
    assert_eq!(last["content"], "");
    assert_eq!(last["has_new_line"], true);
    // The token that ends the text has no text.
    assert_eq!(last["tokens_predicted"], tokens + 1);
    assert!(last["generation_settings"].is_object());
}

#[tokio::test]
async fn a_stream_of_several_prompts_numbers_its_events() {
    let app = scripted("one two");
    let body = json!({"prompt": ["a", "b"], "n_cmpl": 2, "stream": true});
    let answer = post(&app, "/completion", &body).await;
    let mut texts = vec![String::new(); 4];
    let mut ends = 0;
    for (_, data) in answer.events() {
        let event: Value = serde_json::from_str(&data).expect("JSON");
        let index = event["index"].as_u64().expect("an index") as usize;
        texts[index] += event["content"].as_str().expect("a text");
        ends += usize::from(event["stop"] == true);
    }
    assert_eq!(texts, ["one two"; 4]);
    assert_eq!(ends, 4);
}

#[tokio::test]
async fn a_prompt_is_cached_unless_the_request_forbids_it() {
    let engine = replying("yes").with_prefix_reuse(PrefixReuse::Pages);
    let app = app(served(Box::new(engine)));
    let cached = |cache: bool| {
        let body = json!({"prompt": vec![5; 100], "cache_prompt": cache});
        let app = app.clone();
        async move { ok(&app, "/completion", body).await["timings"]["cache_n"].clone() }
    };
    assert_eq!(cached(true).await, 0);
    assert_eq!(cached(false).await, 0);
    assert_ne!(cached(true).await, 0);
}

#[tokio::test]
async fn biases_may_name_texts() {
    let app = scripted("yes");
    for bias in [
        json!([[5, -1.0], [" the", -100], [5, false]]),
        json!({"5": -1, " the": -100}),
    ] {
        let body = json!({"prompt": "a", "logit_bias": bias});
        let json = ok(&app, "/completion", body).await;
        let biases = json["generation_settings"]["logit_bias"].as_array();
        assert!(biases.is_some_and(|biases| biases.len() >= 2), "{json}");
    }
    let body = json!({"prompt": "a", "ignore_eos": true, "n_predict": 3});
    let json = ok(&app, "/completion", body).await;
    assert_eq!(
        json["generation_settings"]["logit_bias"],
        json!([{"token": 0, "bias": null}])
    );
}

#[tokio::test]
async fn fields_without_support_are_refused_by_name() {
    let app = scripted("yes");
    for (field, value) in [
        ("post_sampling_probs", json!(true)),
        ("n_indent", json!(4)),
        ("mirostat", json!(2)),
        ("return_progress", json!(true)),
        ("image_data", json!([{"id": 1}])),
        ("lora", json!([{"id": 0, "scale": 1.0}])),
        ("n_probs", json!(33)),
        ("n_predict", json!(-2)),
        ("n_cmpl", json!(0)),
        ("temperature", json!(-1)),
        ("stop", json!([""])),
        ("prompt", json!(null)),
    ] {
        let mut body = json!({"prompt": "a"});
        body[field] = value;
        let message = refused(&app, "/completion", body).await;
        assert!(message.contains(&format!("`{field}")), "{field}: {message}");
    }
}

#[tokio::test]
async fn properties_and_slots_show_the_state() {
    let engine =
        replying(&"word ".repeat(100)).with_delays(Duration::from_millis(20), Duration::ZERO);
    let app = app(served(Box::new(engine)));
    let props = get(&app, "/props").await.json();
    assert_eq!(props["total_slots"], limits().sequences);
    assert_eq!(props["default_generation_settings"]["n_ctx"], limits().ctx);
    assert!(
        props["model_path"]
            .as_str()
            .expect("a path")
            .ends_with(".gguf")
    );
    assert_eq!(props["bos_token"], "<|endoftext|>");

    let slots = get(&app, "/slots").await.json();
    let busy = |slots: &Value| {
        let slots = slots.as_array().expect("a list");
        assert_eq!(slots.len(), limits().sequences as usize);
        slots
            .iter()
            .filter(|slot| slot["is_processing"] == true)
            .count()
    };
    assert_eq!(busy(&slots), 0);

    let running = (0..4).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { post(&app, "/completion", &json!({"prompt": "a"})).await })
    });
    let running: Vec<_> = running.collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(busy(&get(&app, "/slots").await.json()), 4);
    let full = get(&app, "/slots?fail_on_no_slot=0").await;
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);

    // Clients that are gone leave their slots.
    for task in running {
        task.abort();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(busy(&get(&app, "/slots").await.json()), 0);
}

#[tokio::test]
async fn vectors_have_llama_cpps_shape() {
    let app = scripted("yes");
    let vectors = ok(&app, "/embedding", json!({"content": ["a", [1, 5]]})).await;
    let vectors = vectors.as_array().expect("a list");
    assert_eq!(vectors.len(), 2);
    assert_eq!(vectors[1]["index"], 1);
    assert!(vectors[0]["embedding"][0][0].is_number());
    let message = refused(
        &app,
        "/embedding",
        json!({"content": "a", "embd_normalize": -1}),
    )
    .await;
    assert_eq!(
        message,
        "`embd_normalize` is -1: only 2, the Euclidean norm, is supported"
    );
    refused(&app, "/embedding", json!({})).await;
    refused(&app, "/embedding", json!({"content": [[]]})).await;
}

#[tokio::test]
async fn missing_endpoints_are_refused_by_name() {
    let app = scripted("yes");
    for path in [
        "/infill",
        "/rerank",
        "/slots/0?action=save",
        "/props",
        "/lora-adapters",
    ] {
        let answer = post(&app, path, &json!({})).await;
        assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED, "{path}");
        assert_eq!(answer.json()["error"]["type"], "not_supported_error");
    }
    assert_eq!(get(&app, "/lora-adapters").await.json(), json!([]));
}

#[tokio::test]
async fn the_status_page_can_read_the_state() {
    let app = scripted("yes");
    let status = get(&app, "/status.json").await.json();
    assert_eq!(status["models"][0]["name"], NAME);
    assert_eq!(status["models"][0]["slots"], limits().sequences);
}

#[tokio::test]
async fn a_template_renders_a_conversation_without_a_reply() {
    let mut opened = OpenedModel::open(&asset()).expect("the small model opens");
    let text = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";
    opened
        .set_template("test.jinja".as_ref(), text)
        .expect("it is valid");
    let scheduler = Scheduler::start(Box::new(replying("yes")), SchedulerOptions::default());
    let with_template = app(Arc::new(opened.serve(NAME.to_owned(), scheduler)));
    let body = json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    ]});
    assert_eq!(
        ok(&with_template, "/apply-template", body.clone()).await,
        json!({"prompt": "[system]Be brief.[user]Hello[assistant]"})
    );
    refused(&with_template, "/apply-template", json!({"messages": 5})).await;
    let without = scripted("yes");
    let message = refused(&without, "/apply-template", body).await;
    assert!(message.contains("template"), "{message}");
}
