//! Small templates render as Jinja2 renders them (`tests/data/jinja/render.py`).

use std::collections::BTreeMap;
use std::path::Path;

use jiff::civil::date;
use serde::Deserialize;
use warpwright_model::chat::{ChatTemplate, Conversation, Then, Value};

/// What `render.py` prints.
#[derive(Deserialize)]
struct Rendered {
    variables: BTreeMap<String, Value>,
    cases: Vec<Case>,
    random: Vec<Case>,
}

/// A template, and its text in Jinja2. Without one, Jinja2 fails.
#[derive(Deserialize)]
struct Case {
    template: String,
    text: Option<String>,
}

fn read() -> Rendered {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/jinja/rendered.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn render(template: &str, variables: &BTreeMap<String, Value>) -> Result<String, String> {
    let mut template = ChatTemplate::new(template, vec![]).map_err(|error| error.to_string())?;
    template.set_date(date(2026, 2, 3));
    let mut conversation = Conversation::default();
    for (name, value) in variables {
        match (name.as_str(), value.as_array()) {
            ("messages", Some(messages)) => conversation.messages = messages.to_vec(),
            _ => conversation.more.push((name.clone(), value.clone())),
        }
    }

    template
        .render(&conversation, Then::End)
        .map(|rendered| rendered.text)
        .map_err(|error| error.to_string())
}

#[test]
fn templates_written_by_hand_render_as_in_jinja2() {
    let Rendered {
        variables, cases, ..
    } = read();
    assert!(cases.len() > 100);
    for case in cases {
        let found = render(&case.template, &variables);
        assert_eq!(
            found.clone().ok(),
            case.text,
            "{}: {found:?}",
            case.template
        );
    }
}

/// A feature that is not supported has to be an error. Another text never is.
#[test]
fn random_templates_never_render_differently() {
    let Rendered {
        variables, random, ..
    } = read();
    assert!(random.len() > 400);
    let mut rejected = 0;
    for case in &random {
        match (render(&case.template, &variables), &case.text) {
            (Ok(text), Some(wanted)) => assert_eq!(text, *wanted, "{}", case.template),
            (Ok(text), None) => panic!("{}: {text:?}, an error in Jinja2", case.template),
            (Err(_), Some(_)) => rejected += 1,
            (Err(_), None) => {}
        }
    }

    assert!(rejected * 20 < random.len(), "{rejected} are rejected");
}

/// Features that Python and Jinja have and this crate has not say so.
#[test]
fn unsupported_features_are_rejected_by_name() {
    let cases = [
        (
            "{{ 'a'.encode() }}",
            "the attribute `encode` of a str is not supported",
        ),
        (
            "{{ {}.fromkeys('a') }}",
            "the attribute `fromkeys` of a dict is not supported",
        ),
        ("{{ 'a' | pprint }}", "the filter `pprint` is not supported"),
        (
            "{{ 'a' | wordwrap }}",
            "the filter `wordwrap` is not supported",
        ),
        ("{{ [1] | random }}", "the filter `random` is not supported"),
        (
            "{{ lipsum() }}",
            "the function `lipsum` is not supported, because its text is random",
        ),
        (
            "{{ ('a' | e).upper() }}",
            "the attribute `upper` of a Markup is not supported",
        ),
        (
            "{{ (1.5).hex() }}",
            "the attribute `hex` of a float is not supported",
        ),
        (
            "{{ strftime_now('%s') }}",
            "%s depends on the time zone of the machine; use another directive",
        ),
        (
            "{% include 'a' %}",
            "{% include %} is not supported: there is no other template",
        ),
        (
            "{% autoescape true %}{% endautoescape %}",
            "autoescape is not supported, because the text is not HTML",
        ),
        (
            "{{ self.a() }}",
            "`self` is not supported: there are no blocks to call",
        ),
        (
            "{{ [1] | map('upper') }}",
            "a generator has no text of its own; if it is a generator, use the filter `list`",
        ),
        ("{{ 2 ** 200 }}", "a whole number is beyond 128 bits"),
    ];
    for (template, wanted) in cases {
        let error = render(template, &BTreeMap::new()).unwrap_err();
        assert!(error.ends_with(wanted), "{template}: {error}");
    }
}

/// Templates that never end, or that nest without end, are given up.
#[test]
fn hostile_templates_are_errors() {
    let deep = "(".repeat(5000);
    let cases = [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10 ** 12 }}",
        "{{ 'a'.center(10 ** 12) }}",
        "{{ '%999999999999d' % 1 }}",
        "{{ '{:999999999999}'.format(1) }}",
        "{{ 'aaaaaaaaaa'.replace('', 'b' * 10 ** 7) }}",
        "{{ strftime_now('%99999999d') }}",
        &format!("{{{{ {deep} }}}}"),
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    ];
    for template in cases {
        assert!(
            render(template, &BTreeMap::new()).is_err(),
            "{}",
            &template[..40.min(template.len())]
        );
    }
}
