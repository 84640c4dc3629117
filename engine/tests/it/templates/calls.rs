//! Calls of tools are found in what published templates write of them, however the text comes.

use std::path::Path;

use serde_json::{Value, json};
use warpwright_engine::chat::{ChatTemplate, Conversation, Part, Serde, Then, ToolCall, Tools};

/// Templates that tell of tools, and whose calls are not found, with the reason.
const NOT_FOUND: [(&str, &str); 2] = [
    ("vllm-tool_chat_template_glm4", "leaves calls out of a message without text"),
    ("vllm-tool_chat_template_phi4_mini", "writes arguments as a Python dictionary"),
];

/// What ends a message; a model ends it with a token.
const ENDS: [&str; 8] = [
    "</s>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|assistant|>",
    "<|end|>",
    "<seed:eos>",
    "<｜end▁of▁sentence｜>",
];

const TOOLS: &str = r#"[{"type": "function", "function": {"name": "weather", "description": "Says the weather",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}}}}]"#;

/// What is called: a string that looks like a number, and one with what ends calls.
fn arguments() -> Value {
    json!({ "place": "12", "days": 2, "near": true, "name": "</tool_call> {\"a é" })
}

fn conversation(tools: &Tools, messages: &[Value]) -> Conversation {
    let messages = messages.iter().map(|message| Serde(message).into()).collect();
    Conversation { messages, tools: Some(tools.value()), more: vec![] }
}

/// What a template makes of a call, behind what it makes of the question.
fn written(template: &ChatTemplate, tools: &Tools) -> Result<String, String> {
    let asked = json!({ "role": "user", "content": "Is it warm?" });
    let function = json!({ "name": "weather", "arguments": arguments() });
    let call = json!({ "id": "call00001", "type": "function", "function": function });
    let called = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
    let render = |messages: &[Value], then| {
        let rendered = template.render(&conversation(tools, messages), then);
        rendered.map(|rendered| rendered.text).map_err(|error| error.to_string())
    };
    let (prompt, whole) =
        (render(std::slice::from_ref(&asked), Then::Reply)?, render(&[asked, called], Then::End)?);
    let same = std::iter::zip(prompt.chars(), whole.chars()).take_while(|(a, b)| a == b);
    let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
    // Both may begin a mark there.
    let mark = whole[..same].rfind('<').filter(|at| !whole[*at..same].contains('>'));
    let mut reply = whole[mark.unwrap_or(same)..].trim_end();
    while let Some(rest) = ENDS.iter().find_map(|end| reply.strip_suffix(end)) {
        reply = rest.trim_end();
    }
    Ok(reply.to_owned())
}

fn parts(template: &ChatTemplate, tools: &Tools, prompt: &str, pieces: &[&str]) -> (String, Vec<ToolCall>) {
    let mut stream = template.calls(tools, prompt);
    let mut parts: Vec<Part> = pieces.iter().flat_map(|piece| stream.push(piece)).collect();
    parts.extend(stream.finish());
    let (mut text, mut calls) = (String::new(), vec![]);
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::Call(call) => calls.push(call),
            Part::NoCall { .. } => (),
        }
    }
    (text, calls)
}

#[test]
fn what_templates_write_is_found() {
    let (tools, folder) =
        (Tools::new(TOOLS).unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/templates"));
    let (mut found, mut not_found) = (0, vec![]);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "jinja")) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        let template = ChatTemplate::new(&text, vec![("eos_token", "</s>".to_owned())]).unwrap();
        let asked = conversation(&tools, &[json!({ "role": "user", "content": "x" })]);
        if !template.tells_tools(&asked).unwrap_or(false) {
            continue;
        }
        let reply = written(&template, &tools).unwrap_or_else(|error| panic!("{name}: {error}"));
        let letters: Vec<String> = reply.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let (whole, split) =
            (parts(&template, &tools, "", &[&reply]), parts(&template, &tools, "", &letters));
        assert_eq!(whole, split, "{name}");
        let calls = whole.1.iter().map(|call| (call.name.as_str(), Value::from(call.arguments.clone())));
        if calls.collect::<Vec<_>>() == [("weather", arguments())] {
            found += 1;
        } else {
            println!("{name}: {reply:?} {whole:?}");
            not_found.push(name.to_owned());
        }
    }
    println!("{found} {not_found:?}");
    assert_eq!(not_found, NOT_FOUND.map(|(name, _)| name));
    assert!(found >= 20, "{found}");
}

/// Replies to a template of the first text, from prompts that end with the second: what is said and called.
#[test]
fn calls_are_told_from_text() {
    let tools = Tools::new(TOOLS).unwrap();
    let hermes = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    let cases = [
        ("<tool_call>", "", format!("Yes.\n{hermes} \n{hermes}"), "Yes.\n \n", 2),
        ("<tool_call>", "", format!("<think>{hermes}</think>{hermes}"), "<think>{}</think>", 1),
        ("<tool_call>", "<think>\n", format!("{hermes}</think>{hermes}"), "{}</think>", 1),
        // What is no call is text, and does not hide one behind it.
        (
            "<tool_call>",
            "",
            format!("<tool_call>{{\"name\"}}</tool_call>{hermes}"),
            "<tool_call>{\"name\"}</tool_call>",
            1,
        ),
        ("<tool_call>", "", "<tool_call>{\"name\": \"wea".to_owned(), "<tool_call>{\"name\": \"wea", 0),
        ("<tool_call>", "", "a <tool_".to_owned(), "a <tool_", 0),
        ("a", "", hermes.to_owned(), "{}", 0),
        ("<|start_header_id|>ipython", "", " {\"name\": \"weather\", \"parameters\": {}}".to_owned(), " ", 1),
        (
            "<|start_header_id|>ipython",
            "",
            "{\"name\": \"Ada\", \"age\": 36}".to_owned(),
            "{\"name\": \"Ada\", \"age\": 36}",
            0,
        ),
        (
            "<|start_header_id|>ipython",
            "",
            "So: {\"name\": \"weather\"}".to_owned(),
            "So: {\"name\": \"weather\"}",
            0,
        ),
        ("<|python_tag|>", "", "<|python_tag|>brave_search.call(query=\"a\\\"b\")".to_owned(), "", 1),
        (
            "[TOOL_CALLS]",
            "",
            "[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]time{\"a\": 1}".to_owned(),
            "",
            2,
        ),
        ("<|tool_call|>", "", "<|tool_call|>[]".to_owned(), "<|tool_call|>[]", 0),
    ];
    for (template, prompt, reply, said, calls) in cases {
        let template = ChatTemplate::new(template, vec![]).unwrap();
        let found = parts(&template, &tools, prompt, &[&reply]);
        assert_eq!((found.0, found.1.len()), (said.replace("{}", hermes), calls), "{reply}");
    }
}

/// Without its closing mark, a call is one if it tells that it is whole.
#[test]
fn what_ends_with_the_reply_is_a_call_if_it_is_whole() {
    let tools = Tools::new(TOOLS).unwrap();
    let cases = [
        ("<tool_call>", "<tool_call>{\"name\": \"weather\"}", 1),
        ("<tool_call>", "<tool_call>wea", 0),
        ("<function=", "<function=weather>{\"days\": 1}", 1),
        ("<function=", "<function=weather><parameter=days>1</parameter>", 0),
    ];
    for (template, reply, calls) in cases {
        let template = ChatTemplate::new(template, vec![]).unwrap();
        let found = parts(&template, &tools, "", &[reply]);
        assert_eq!(
            (found.0.as_str(), found.1.len()),
            (if calls == 0 { reply } else { "" }, calls),
            "{reply}"
        );
    }
}

/// What these two tell a model to write, although they write calls otherwise, or not at all.
#[test]
fn what_a_template_tells_to_write_is_found() {
    let tools = Tools::new(TOOLS).unwrap();
    let cases = [
        (
            "vllm-tool_chat_template_glm4",
            "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>12</arg_value>\n<arg_key>days</arg_key>\n\
             <arg_value>2</arg_value>\n</tool_call>",
        ),
        (
            "vllm-tool_chat_template_phi4_mini",
            "functools[{\"name\": \"weather\", \"arguments\": {\"place\": \"12\", \"days\": 2}}]",
        ),
    ];
    for (name, reply) in cases {
        let file = format!("{}/tests/data/templates/{name}.jinja", env!("CARGO_MANIFEST_DIR"));
        let template = ChatTemplate::new(&std::fs::read_to_string(file).unwrap(), vec![]).unwrap();
        let (said, calls) = parts(&template, &tools, "", &[reply]);
        let arguments = Value::from(calls[0].arguments.clone());
        assert_eq!(
            (said.as_str(), calls.len(), arguments),
            ("", 1, json!({ "place": "12", "days": 2 })),
            "{name}"
        );
    }
}

/// A call that is closed and none is text at once, and nothing behind it waits for the end of the reply.
#[test]
fn what_is_closed_and_no_call_holds_nothing_back() {
    let tools = Tools::new(TOOLS).unwrap();
    let broken = [
        ("<tool_call>", "<tool_call>{\"name\": weather\"}</tool_call>"),
        ("<tool_call>", "<tool_call>{\"name\": \"weather\", \"arguments\": {</tool_call>"),
        ("<tool_call>", "<tool_call>weather in Rome</tool_call>"),
        ("<tool_call>", "<tool_call><function=weather><parameter=place>12</parameter></tool_call>"),
        ("<function=", "<function=weather>{\"place\": }</function>"),
        ("｜DSML｜", "<｜DSML｜function_calls>weather()</｜DSML｜function_calls>"),
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>weather()<｜tool▁calls▁end｜>"),
    ];
    for (template, reply) in broken {
        let template = ChatTemplate::new(template, vec![]).unwrap();
        let mut stream = template.calls(&tools, "");
        let (mut said, mut told) = (String::new(), 0);
        for letter in format!("{reply} And so").chars() {
            for part in stream.push(&letter.to_string()) {
                match part {
                    Part::Text(text) => said.push_str(&text),
                    Part::NoCall { .. } => told += 1,
                    Part::Call(call) => panic!("{call:?}"),
                }
            }
        }
        assert_eq!((said, told), (format!("{reply} And so"), 1));
        assert_eq!(stream.finish(), []);
    }
    // An end in a string, or in a value, is waited for.
    let open = [
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"place\": \"</tool_call>\"}}</tool_call>",
        "<tool_call><function=weather><parameter=place></tool_call></parameter></function></tool_call>",
        "<tool_call>weather<arg_key>place</arg_key><arg_value></tool_call></arg_value></tool_call>",
    ];
    for reply in open {
        let template = ChatTemplate::new("<tool_call>", vec![]).unwrap();
        let letters: Vec<String> = reply.chars().map(String::from).collect();
        let (said, calls) =
            parts(&template, &tools, "", &letters.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(
            (said.as_str(), calls[0].arguments["place"].as_str()),
            ("", Some("</tool_call>")),
            "{reply}"
        );
    }
}

/// Where a value is not closed, text is held back no longer than it may be the value's, and why there is no call is said.
#[test]
fn a_value_that_is_not_closed_holds_back_little() {
    let tools = Tools::new(TOOLS).unwrap();
    let template = ChatTemplate::new("<tool_call>", vec![]).unwrap();
    let call = |value: &str| {
        format!("<tool_call>\n<function=weather>\n<parameter=place>\n{value}\n</function>\n</tool_call>")
    };
    let (long, short) =
        (" and so on".repeat(300), "<tool_call>weather<arg_key>place</arg_key><arg_value>Rome");
    let cases = [
        (format!("{} And so", call("Rome")), "a value in it is not closed", true),
        (call("Rome"), "a value in it is not closed", false),
        (format!("{short}</tool_call>{long}"), "a value in it is not closed", true),
        (format!("<tool_call>{{\"name\": \"weather</tool_call>{long}"), "a value in it is not closed", true),
        (format!("{short} {long}"), "it is not closed", false),
    ];
    for (reply, problem, early) in cases {
        let mut stream = template.calls(&tools, "");
        let mut parts: Vec<Part> = reply.chars().flat_map(|c| stream.push(&c.to_string())).collect();
        assert_eq!(!parts.is_empty(), early, "{reply}");
        parts.extend(stream.finish());
        assert_eq!(parts[0], Part::NoCall { mark: "<tool_call>", problem }, "{reply}");
        let text =
            parts[1..].iter().map(|part| if let Part::Text(text) = part { text } else { panic!("{part:?}") });
        assert_eq!(text.cloned().collect::<String>(), reply);
    }
    // A value that has all the marks in it goes on with its own end.
    let inner = "x</function></tool_call></parameter></function>";
    let reply = format!("<tool_call><function=weather><parameter=place>{inner}</tool_call>");
    let letters: Vec<String> = reply.chars().map(String::from).collect();
    let (said, calls) = parts(&template, &tools, "", &letters.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((said.as_str(), calls[0].arguments["place"].as_str()), ("", Some("x</function></tool_call>")));
}

#[test]
fn what_is_no_list_of_tools_is_refused() {
    let expected = "; expected [{\"type\": \"function\", \"function\": {\"name\": \"..\", \"description\": \"..\", \"parameters\": {..}}}]";
    let cases = [
        ("[", "is no JSON: EOF while parsing a list at line 1 column 1".to_owned()),
        ("{}", format!("is no list of tools{expected}")),
        ("[]", "is a list without a tool".to_owned()),
        ("[1]", format!("has a tool 1 that is no object{expected}")),
        (r#"[{"name": "a"}]"#, format!("has a tool 1 whose type is not \"function\"{expected}")),
        (
            r#"[{"type": "function", "name": "a"}]"#,
            format!("has a tool 1 without an object under \"function\"{expected}"),
        ),
        (
            r#"[{"type": "function", "function": {}}]"#,
            format!("has a tool 1 whose function has no name{expected}"),
        ),
        (
            r#"[{"type": "function", "function": {"name": "a", "parameters": 1}}]"#,
            format!("has a tool 1 whose parameters are no JSON schema{expected}"),
        ),
    ];
    for (text, problem) in cases {
        assert_eq!(Tools::new(text).unwrap_err(), problem, "{text}");
    }
    let twice = format!("[{0}, {0}]", TOOLS.trim_start_matches('[').trim_end_matches(']'));
    assert_eq!(Tools::new(&twice).unwrap_err(), "has two tools of the name \"weather\"");
}
