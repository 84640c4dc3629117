//! Wrong values of every field that `/openapi.json` documents: each one is refused with an error
//! that names the field.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use warpwright_server::models::OpenedModel;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

use crate::harness::{NAME, app, asset, get, post, replying};

/// An endpoint with a body that it accepts.
struct Endpoint {
    path: &'static str,
    body: Value,
    /// The fields that accept every value of [`values`], because the server only repeats or ignores
    /// them.
    free: &'static [&'static str],
}

/// The older names of `response_format`. A grammar that does not compile is an error of that field.
const GRAMMARS: [&str; 3] = ["guided_grammar", "guided_json", "json_schema"];

fn endpoints() -> [Endpoint; 4] {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    [
        Endpoint {
            path: "/v1/chat/completions",
            body: json!({"messages": messages, "max_tokens": 2}),
            free: &[],
        },
        Endpoint {
            path: "/v1/completions",
            body: json!({"prompt": "Hi", "max_tokens": 2}),
            free: &[],
        },
        Endpoint {
            path: "/v1/responses",
            body: json!({"input": "Hi", "max_output_tokens": 2}),
            free: &[],
        },
        Endpoint {
            path: "/v1/messages",
            body: json!({"messages": messages, "max_tokens": 2}),
            free: &[],
        },
    ]
}

/// Values of every type. No field but a free one accepts all of them.
fn values() -> [Value; 7] {
    [
        json!(5.5),
        json!(-7),
        json!("zz"),
        json!(true),
        json!([5]),
        json!([{"zz": 5}]),
        json!({"zz": 5}),
    ]
}

/// Adds the names of the fields of a schema.
fn add_fields(document: &Value, schema: &Value, fields: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').expect("it is in the document");
        let found = document.pointer(pointer).expect("the schema is defined");
        add_fields(document, found, fields);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            add_fields(document, part, fields);
        }
    }
    let properties = schema["properties"].as_object();
    fields.extend(properties.into_iter().flat_map(|of| of.keys().cloned()));
}

#[tokio::test]
async fn wrong_values_of_all_fields_are_refused_by_name() {
    let mut opened = OpenedModel::open(&asset()).expect("the small model opens");
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}";
    opened
        .set_template(Path::new("test"), template)
        .expect("the template compiles");
    let engine = Box::new(replying("yes"));
    let scheduler = Scheduler::start(engine, SchedulerOptions::default());
    let app = app(Arc::new(opened.serve(NAME.to_owned(), scheduler)));
    let document = get(&app, "/openapi.json").await.json();

    let mut problems = vec![];
    for Endpoint { path, body, free } in endpoints() {
        let whole = post(&app, path, &body).await;
        assert_eq!(whole.status, 200, "{path}: {}", whole.body);
        let operation = &document["paths"][path]["post"];
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let mut fields = BTreeSet::new();
        add_fields(&document, schema, &mut fields);
        assert!(fields.len() > 10, "{path}: {fields:?}");

        for field in &fields {
            let mut refused = 0;
            for value in values() {
                let mut body = body.clone();
                body[field] = value;
                let answer = post(&app, path, &body).await;
                if answer.status == 200 {
                    continue;
                }
                refused += 1;
                let error = answer.json()["error"].clone();
                let message = error["message"].as_str().unwrap_or_default();
                let param = error["param"].as_str().unwrap_or_default();
                let is_named = param.starts_with(field.as_str())
                    || message.contains(field.as_str())
                    || (GRAMMARS.contains(&field.as_str()) && param == "response_format");
                if answer.status != 400 || !is_named {
                    problems.push(format!("{path}, {body}: {}, {error}", answer.status));
                }
            }
            if (refused == 0) != free.contains(&field.as_str()) {
                problems.push(format!("{path}: {refused} values of `{field}` are refused"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
