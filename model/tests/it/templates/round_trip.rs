//! Renders calls by a template and reads them back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwright_model::chat::{
    ChatTemplate, Conversation, ReplyEnd, ReplyPart, Serde, Then, ToolCall, Tools, today,
};

/// The text after the end of a message in a rendered conversation. A model ends its reply with a
/// token instead.
const ENDS: [&str; 22] = [
    "</s>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|assistant|>",
    "<|end|>",
    "<seed:eos>",
    "<｜end▁of▁sentence｜>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    "<SPECIAL_12>",
    "<|message_sep|>",
    "<|eos|>",
    "<|role_end|>",
    "</assistant>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_sentence>",
];

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "run", "description": "Runs a command", "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command"}},
        "required": ["command"]}}},
    {"type": "function", "function": {"name": "weather", "description": "Returns the weather", "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "note": {"type": "string", "description": "A note"},
            "days": {"type": "integer", "description": "Days"},
            "lon": {"type": "number", "description": "Longitude"},
            "exact": {"type": "boolean", "description": "Precision"},
            "unit": {"type": ["string", "null"], "description": "Unit"},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags"},
            "more": {"type": "object", "description": "More"}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "ping", "description": "Pings", "parameters": {
        "type": "object", "properties": {}}}}
]"#;

/// The marks and closing tags of all formats.
const MARKS: [&str; 26] = [
    "<tool_call>",
    "</tool_call>",
    "<function=run>",
    "</function>",
    "<parameter=command>",
    "</parameter>",
    "</arg_value>",
    "<arg_key>city</arg_key>",
    "</seed:tool_call>",
    "</minimax:tool_call>",
    "</invoke>",
    "</｜DSML｜parameter>",
    "<|tool_call_end|>",
    "<tool_call|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_end|>",
    "<|call|>",
    "<|channel|>commentary to=functions.run<|message|>{}",
    "[TOOL_CALLS]",
    "[ARGS]{\"a\": 1}",
    "</TOOLCALL>",
    "</function_calls>",
    "<|python_tag|>",
    "<｜tool▁calls▁end｜>",
    "<|action_end|>",
    "<|/tool_call|>",
];

/// A function and its arguments.
pub(crate) type Wanted = (String, Value);

/// The result of a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The calls came back.
    Same,
    /// No call was found, and a problem was reported.
    Reported,
    /// No call was found, and none was written.
    LeftOut,
    /// No call was found and no problem reported.
    Missed,
    /// Other calls were found.
    Other,
}

/// A template and the results of its cases.
pub(crate) struct Report {
    pub(crate) name: String,
    /// The formats that the template uses, or why there are none.
    pub(crate) formats: Vec<&'static str>,
    pub(crate) results: BTreeMap<Outcome, Vec<(String, String, Vec<ReplyPart>)>>,
}

impl Report {
    /// Returns a row of a table in Markdown.
    pub(crate) fn row(&self) -> String {
        let format = if self.formats.is_empty() {
            "unknown".to_owned()
        } else {
            self.formats.join(", ")
        };
        let counts = [
            Outcome::Same,
            Outcome::Reported,
            Outcome::LeftOut,
            Outcome::Missed,
            Outcome::Other,
        ];
        let counts =
            counts.map(|outcome| self.results.get(&outcome).map_or(0, Vec::len).to_string());
        format!("| {} | {format} | {} |\n", self.name, counts.join(" | "))
    }
}

/// Returns the templates of a folder, in order.
pub(crate) fn templates(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "jinja"));
    files.sort();
    files
}

/// Makes the round trip of all cases by a template, unless it ignores tools.
pub(crate) fn report(file: &Path) -> Option<Report> {
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let source = std::fs::read_to_string(file).unwrap();
    let special = vec![
        ("eos_token", "</s>".to_owned()),
        ("bos_token", "<s>".to_owned()),
    ];
    let mut template = ChatTemplate::new(&source, special).unwrap();
    template.set_date(today());
    let tools = Tools::new(TOOLS).unwrap();
    let asked = conversation(&tools, &[json!({ "role": "user", "content": "x" })]);
    if !template.tells_tools(&asked).unwrap_or(false) {
        return None;
    }

    let mut report = Report {
        name,
        formats: template.call_formats(),
        results: BTreeMap::new(),
    };
    for (case, calls) in cases(&template, &tools) {
        let Ok(reply) = written(&template, &tools, &calls) else {
            continue;
        };

        // The user's message contains the values, because a model that writes tags in a value
        // copies them.
        let asked = self::asked(&calls);
        let parts = parts(&template, &tools, &asked, [reply.as_str()]);
        let letters = reply
            .char_indices()
            .map(|(at, c)| &reply[at..at + c.len_utf8()]);
        let split = self::parts(&template, &tools, &asked, letters);
        assert_eq!(
            joined(&parts),
            joined(&split),
            "{}: {case}: {reply}",
            report.name
        );
        let outcome = outcome(&parts, &calls, &reply);
        report
            .results
            .entry(outcome)
            .or_default()
            .push((case, reply, parts));
    }

    Some(report)
}

/// Returns a message that contains all strings in the arguments of calls.
pub(crate) fn asked(calls: &[Wanted]) -> String {
    let mut asked = String::from("Call with:");
    for (_, arguments) in calls {
        for value in arguments
            .as_object()
            .into_iter()
            .flat_map(|map| map.values())
        {
            asked.push(' ');
            asked.push_str(value.as_str().unwrap_or_default());
        }
    }
    asked
}

fn outcome(parts: &[ReplyPart], wanted: &[Wanted], reply: &str) -> Outcome {
    let calls = calls(parts);
    let found: Vec<Wanted> = calls
        .iter()
        .map(|call| (call.name.clone(), Value::from(call.arguments.clone())))
        .collect();
    let problems = parts
        .iter()
        .any(|part| matches!(part, ReplyPart::NoCall { .. }));
    match (found.is_empty(), problems) {
        _ if found == wanted => Outcome::Same,
        (false, _) => Outcome::Other,
        (true, true) => Outcome::Reported,
        (true, false) if reply.contains(&wanted[0].0) => Outcome::Missed,
        (true, false) => Outcome::LeftOut,
    }
}

pub(crate) fn calls(parts: &[ReplyPart]) -> Vec<&ToolCall> {
    parts
        .iter()
        .filter_map(|part| {
            if let ReplyPart::Call(call) = part {
                Some(call)
            } else {
                None
            }
        })
        .collect()
}

/// Joins neighboring texts, which depend on how a reply is cut.
pub(crate) fn joined(parts: &[ReplyPart]) -> Vec<ReplyPart> {
    let mut joined: Vec<ReplyPart> = vec![];
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(ReplyPart::Text(text)), ReplyPart::Text(more)) => text.push_str(more),
            _ => joined.push(part.clone()),
        }
    }
    joined
}

/// Reads a reply that arrives in pieces. `asked` is the last message of the user.
pub(crate) fn parts<'t>(
    template: &ChatTemplate,
    tools: &Tools,
    asked: &str,
    pieces: impl IntoIterator<Item = &'t str>,
) -> Vec<ReplyPart> {
    let asked = conversation(tools, &[json!({ "role": "user", "content": asked })]);
    let mut stream = template.calls(tools, &asked, "");
    let mut parts: Vec<ReplyPart> = pieces
        .into_iter()
        .flat_map(|piece| stream.push(piece))
        .collect();
    parts.extend(stream.finish(ReplyEnd::Complete));
    parts
}

fn conversation(tools: &Tools, messages: &[Value]) -> Conversation {
    let messages = messages
        .iter()
        .map(|message| Serde(message).into())
        .collect();
    Conversation {
        messages,
        tools: Some(tools.value()),
        more: vec![],
    }
}

/// Renders calls and returns the text after the prompt and before the end of the message.
pub(crate) fn written(
    template: &ChatTemplate,
    tools: &Tools,
    calls: &[Wanted],
) -> Result<String, String> {
    let as_object = rendered(template, tools, calls, Value::clone);
    as_object.or_else(|_| {
        rendered(template, tools, calls, |arguments| {
            arguments.to_string().into()
        })
    })
}

/// Returns the text of a reply with calls whose arguments have the form that `given` returns.
pub(crate) fn rendered(
    template: &ChatTemplate,
    tools: &Tools,
    calls: &[Wanted],
    given: impl Fn(&Value) -> Value,
) -> Result<String, String> {
    let asked = json!({ "role": "user", "content": "Is it warm?" });
    let call = |(number, (name, arguments)): (usize, &Wanted)| {
        json!({ "id": format!("call{number:05}"), "type": "function",
                "function": { "name": name, "arguments": given(arguments) } })
    };
    let tool_calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let called = json!({ "role": "assistant", "content": "", "tool_calls": tool_calls });
    let render = |messages: &[Value], then| {
        let rendered = template.render(&conversation(tools, messages), then);
        rendered
            .map(|rendered| rendered.text)
            .map_err(|error| error.to_string())
    };
    let prompt = render(std::slice::from_ref(&asked), Then::Reply)?;
    let whole = render(&[asked, called], Then::End)?;
    let same = std::iter::zip(prompt.chars(), whole.chars()).take_while(|(a, b)| a == b);
    let same: usize = same.map(|(c, _)| c.len_utf8()).sum();

    // Both may begin a mark at this point.
    let mark = whole[..same]
        .rfind('<')
        .filter(|at| !whole[*at..same].contains('>'));
    let mut reply = whole[mark.unwrap_or(same)..].trim_end();
    while let Some(rest) = ENDS.iter().find_map(|end| reply.strip_suffix(end)) {
        reply = rest.trim_end();
    }

    Ok(reply.to_owned())
}

/// Returns the calls to write, each with a name.
fn cases(template: &ChatTemplate, tools: &Tools) -> Vec<(String, Vec<Wanted>)> {
    let run = |command: &str| ("run".to_owned(), json!({ "command": command }));
    let weather = |arguments: Value| ("weather".to_owned(), arguments);
    let ping = || ("ping".to_owned(), json!({}));
    let mut cases: Vec<(String, Vec<Wanted>)> = vec![];
    let all = json!({ "city": "Malmö", "note": "12", "days": 3, "lon": -74.5, "exact": true,
                      "tags": ["a", "b"], "more": { "k": { "l": [1, 2.5, false] } } });
    cases.push(("all types".to_owned(), vec![weather(all)]));
    cases.push((
        "null".to_owned(),
        vec![weather(json!({ "city": "Oslo", "unit": null }))],
    ));
    cases.push((
        "empty containers".to_owned(),
        vec![weather(json!({ "city": "Oslo", "tags": [], "more": {} }))],
    ));
    cases.push(("no arguments".to_owned(), vec![ping()]));
    cases.push((
        "two calls".to_owned(),
        vec![run("ls"), weather(json!({ "city": "Oslo", "days": 2 }))],
    ));
    cases.push(("no arguments twice".to_owned(), vec![ping(), ping()]));
    let values = [
        "ls -l",
        "",
        "\n",
        "\na\n",
        " a ",
        "a\n\nb",
        "12",
        "-0.5",
        "true",
        "None",
        "null",
        "[1, 2]",
        "{\"a\": \"b\"}",
        "{}",
        "}",
        "]",
        "\"",
        "'",
        "it's \"so\"",
        "a, b=\"c\"",
        "C:\\new\\x41",
        "\\",
        "\\\"",
        "```json\n{\"name\": \"run\"}\n```",
        "Zoë 東京 🙂 \u{1f469}\u{200d}\u{1f4bb}",
        "\u{0}\u{7f}\u{2028}",
        "a\tb\r\nc",
        "<think>a</think>",
        "<b>&amp;</b>",
        "<|\"|>x",
        "cat <<E\n</parameter>\n</function>\nE",
        "echo \"<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\" > x",
    ];
    cases.extend(
        values
            .iter()
            .map(|value| (format!("value {value:?}"), vec![run(value)])),
    );
    for mark in MARKS {
        cases.push((format!("mark {mark}"), vec![run(&format!("a {mark} b"))]));
        cases.push((format!("line {mark}"), vec![run(&format!("a\n{mark}\nb"))]));
        cases.push((
            format!("first of two {mark}"),
            vec![weather(json!({ "city": format!("a {mark} b"), "days": 3 }))],
        ));
    }

    // Values that imitate the template's own calls.
    if let Ok(one) = written(template, tools, &[run("AAA")])
        && let Some((before, after)) = one.split_once("AAA")
    {
        let imitations = [
            one.clone(),
            format!("x{one}y"),
            format!("B{after}"),
            format!("B{after} and so on"),
            format!("B{after}{one}"),
            format!("{before}C"),
            format!("B{after}{before}C"),
            format!("B{after}\n{before}C\" > x"),
        ];
        for (number, value) in (1..).zip(imitations) {
            cases.push((format!("imitation {number}"), vec![run(&value)]));
        }
    }

    cases
}
