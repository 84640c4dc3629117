//! Chat templates: what transformers renders of the same templates and messages (`tests/data/chat/chat.py`).

use std::path::PathBuf;

use jiff::civil::date;
use serde_json::Value as Json;
use warpwright_model::Model;
use warpwright_model::chat::{ChatTemplate, Conversation, Then, Value};

use crate::config::model;
use crate::write::{File, Val};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chat"))
}

fn template(text: &str) -> ChatTemplate {
    let special = vec![
        ("bos_token", "<s>".to_owned()),
        ("eos_token", "</s>".to_owned()),
    ];
    let mut template = ChatTemplate::new(text, special).unwrap();
    template.set_date(date(2026, 2, 3));
    template
}

fn messages(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap()
}

/// Variables of a case that are not its messages.
fn more(case: &Value) -> Vec<(String, Value)> {
    let given = |name: &str| Some((name.to_owned(), case.get(name)?.clone()));
    ["date_string", "enable_thinking"]
        .into_iter()
        .filter_map(given)
        .collect()
}

/// transformers: "kwargs overwrite special tokens if both are present".
#[test]
fn a_variable_takes_the_place_of_a_token_of_the_model() {
    let more = vec![("bos_token".to_owned(), Value::from("<x>"))];
    let conversation = Conversation {
        messages: messages("[]"),
        tools: None,
        more,
    };
    let rendered = template("{{ bos_token }}{{ eos_token }}")
        .render(&conversation, Then::End)
        .unwrap();
    assert_eq!(rendered.text, "<x></s>");
}

#[test]
fn renders_what_transformers_renders() {
    let path = folder().join("rendered.json");
    let text = std::fs::read_to_string(path).unwrap();

    // Once with the order of keys in the file, and once for everything else.
    let ordered: Vec<Value> = serde_json::from_str(&text).unwrap();
    let cases: Vec<Json> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 20);
    for (ordered, case) in ordered.iter().zip(&cases) {
        let name = case["template"].as_str().unwrap();
        let template =
            template(&std::fs::read_to_string(folder().join(format!("{name}.jinja"))).unwrap());
        let conversation = Conversation {
            messages: ordered
                .get("messages")
                .unwrap()
                .as_array()
                .unwrap()
                .to_vec(),
            tools: ordered.get("tools").cloned(),
            more: more(ordered),
        };
        let then = if case["then"] == true {
            Then::Reply
        } else {
            Then::End
        };
        match (template.render(&conversation, then), case["error"].as_str()) {
            (Ok(rendered), None) => {
                assert_eq!(rendered.text, case["text"].as_str().unwrap(), "{name}");
                let replies: Vec<&str> = rendered
                    .replies
                    .iter()
                    .map(|at| &rendered.text[at.clone()])
                    .collect();
                let wanted: Vec<&str> = case["replies"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Json::as_str)
                    .collect();
                assert_eq!(replies, wanted, "{name}");
            }
            (Err(error), Some(wanted)) => {
                let error = error.to_string();
                let raised = error.split_once(": ").filter(|(place, _)| {
                    place.starts_with("the chat template refuses the conversation in line ")
                });
                let undefined =
                    wanted.contains("Undefined") && error.contains("tojson of undefined");
                assert!(
                    raised.is_some_and(|(_, raised)| raised == wanted) || undefined,
                    "{name}: {error}, not {wanted}"
                );
            }
            (found, wanted) => panic!("{name}: {found:?}, not {wanted:?}"),
        }
    }
}

/// What Python's Jinja makes of these.
#[test]
fn numbers_and_none_are_those_of_python() {
    let cases = [
        (
            "{{ 1.5e-7 }} {{ 1e16 }} {{ 2.0 }} {{ 3 }}",
            "1.5e-07 1e+16 2.0 3",
        ),
        (
            "{{ 1.5e-7 | string }} {{ 7 | string }} {{ none | string }}",
            "1.5e-07 7 None",
        ),
        (
            "{{ none is iterable }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }}",
            "False True True False",
        ),
        (
            "{{ tools is iterable }} {{ nothing is iterable }}",
            "False True",
        ),
    ];
    for (text, wanted) in cases {
        let rendered = template(text)
            .render(&Conversation::default(), Then::End)
            .unwrap();
        assert_eq!(rendered.text, wanted, "{text}");
    }
}

#[test]
fn says_what_a_template_does() {
    let of = |text: &str| {
        let template = ChatTemplate::new(text, vec![]).unwrap();
        (template.marks_replies(), template.asks_date())
    };
    assert_eq!(of("{{ messages }}"), (false, false));
    assert_eq!(of("{% generation %}a{% endgeneration %}"), (true, false));
    assert_eq!(of("{{ strftime_now('%Y') }}"), (false, true));
}

#[test]
fn refuses_with_a_line() {
    let of = |text: &str| match ChatTemplate::new(text, vec![]) {
        Err(error) => error.to_string(),
        Ok(template) => {
            let conversation = Conversation {
                messages: messages("[{\"role\": \"user\"}]"),
                ..Default::default()
            };
            template
                .render(&conversation, Then::End)
                .unwrap_err()
                .to_string()
        }
    };
    let cases = [
        (
            "\n{% for a %}",
            "the chat template fails in line 2: syntax error: ",
        ),
        (
            "{% generation %}",
            "the chat template fails in line 1: syntax error: ",
        ),
        (
            "{{ a.b.c }}",
            "the chat template fails in line 1: undefined value",
        ),
        (
            "{{ messages[0].nothing() }}",
            "the chat template fails in line 1: ",
        ),
        (
            "{{ raise_exception('no tools') }}",
            "the chat template refuses the conversation in line 1: no tools",
        ),
        (
            "\n\n{{ strftime_now('%Y') }}",
            "the chat template fails in line 3: undefined value: `strftime_now` is undefined",
        ),
        (
            "{{ 1 | tojson(indent=-1, x=2) }}",
            "the chat template fails in line 1: tojson has no argument named `x`",
        ),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
            "the chat template fails in line 1: the template takes too many steps or too much memory",
        ),
        (
            "{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}",
            "the chat template nests {% generation %}",
        ),
        (
            "{% set n = namespace(a=1) %}{% for i in range(300) %}{% set n.a = [n.a] %}{% endfor %}\n{{ n.a }}",
            "the chat template fails in line 2: a value is nested more than 200 deep",
        ),
        (
            "{% set n = namespace(a=1) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}\n{{ n.a | tojson }}",
            "the chat template fails in line 2: the template takes too many steps or too much memory",
        ),
        (
            &format!("\n{{{{ 'x'{} }}}}", "|upper".repeat(2000)),
            "the chat template fails in line 2: syntax error: nested more than 1000 deep",
        ),
    ];
    for (text, wanted) in cases {
        let error = of(text);
        assert!(error.starts_with(wanted), "{text}: {error}");
    }

    let marked = messages("[{\"role\": \"user\", \"content\": \"\u{fdd1}\"}]");
    let conversation = Conversation {
        messages: marked,
        ..Default::default()
    };
    let error = template("{% generation %}{{ messages[0].content }}{% endgeneration %}")
        .render(&conversation, Then::End)
        .unwrap_err();
    assert!(error.to_string().contains("U+FDD0"), "{error}");
}

#[test]
fn expressions_of_the_most_operators_are_compiled() {
    let written = |tag: String| {
        let rendered =
            template(&format!("{{{{ {tag} }}}}")).render(&Conversation::default(), Then::End);
        rendered.unwrap().text
    };
    assert_eq!(written(format!("'a'{}", "|upper".repeat(900))), "A");
    assert_eq!(written(format!("{}1", "1+".repeat(900))), "901");
    assert_eq!(written(format!("{}true", "not ".repeat(900))), "True");
    assert_eq!(written(format!("{}1", "-".repeat(900))), "1");
    assert_eq!(written(format!("{}2", "1 if false else ".repeat(900))), "2");
}

#[test]
fn a_gguf_file_has_its_template_and_names_its_tokens() {
    let tokens = ["a", "<bos>", "<eos>", "b", "c"].map(String::from).to_vec();
    let file = model("llama")
        .pair("tokenizer.ggml.tokens", Val::Strs(tokens))
        .pair("tokenizer.ggml.bos_token_id", Val::U32(1))
        .pair("tokenizer.ggml.eos_token_id", Val::U32(2));
    let opened = |file: &File| Model::open(&file.save("chat-template.gguf")).unwrap();
    assert!(opened(&file).chat_template().unwrap().is_none());
    let text = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}";
    let file = file.pair("tokenizer.chat_template", Val::Str(text.into()));
    let template = opened(&file).chat_template().unwrap().unwrap();
    let conversation = Conversation {
        messages: messages("[{\"content\": \"x\"}]"),
        ..Default::default()
    };
    assert_eq!(
        template.render(&conversation, Then::End).unwrap().text,
        "<bos>x<eos>False"
    );
    let error = opened(&file.pair("tokenizer.chat_template", Val::U32(1)))
        .chat_template()
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("the chat template is not a string (tokenizer.chat_template)"),
        "{error}"
    );
}
