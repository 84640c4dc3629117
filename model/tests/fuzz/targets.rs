//! The functions that the fuzzers of replies call, for `cargo fuzz`, for random inputs and for the
//! replay of seeds. They check that a reply is read in the same way however it is divided, in every
//! format of calls and thoughts.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use warpwright_model::chat::{
    CallStream, ChatTemplate, Conversation, ReplyEnd, ReplyPart, Tools, today,
};

#[path = "../it/templates/hostile.rs"]
mod hostile;
#[path = "../it/templates/round_trip.rs"]
mod round_trip;

use hostile::fragments;
use round_trip::{joined, templates};

/// A template, and fragments of replies in its format.
pub(crate) struct Format {
    pub(crate) name: String,
    pub(crate) template: ChatTemplate,
    /// Fragments of replies, first those that every format is tried with.
    pub(crate) fragments: Vec<String>,
}

/// The functions that the model may call.
static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
    Tools::new(&std::fs::read_to_string(data("calls/tools.json")).unwrap()).unwrap()
});

/// All formats, those of the published templates first.
pub(crate) static FORMATS: LazyLock<Vec<Format>> = LazyLock::new(formats);

/// Reads a reply with calls, where thoughts are text. The bytes choose the format, the division and
/// the fragments of the reply.
pub(crate) fn calls(data: &[u8]) {
    reply(data, &[ThoughtsAre::Text]);
}

/// Reads a reply with separate thoughts, with tools and without.
pub(crate) fn thoughts(data: &[u8]) {
    reply(
        data,
        &[ThoughtsAre::Separate, ThoughtsAre::SeparateWithoutTools],
    );
}

/// Reads the reply that the bytes choose, and checks its divisions.
fn reply(data: &[u8], thoughts: &[ThoughtsAre]) {
    let [format, one, two, fragments @ ..] = data else {
        return;
    };
    let format = &FORMATS[usize::from(*format) % FORMATS.len()];
    let lengths = [usize::from(*one) % 64, usize::from(*two) % 8];
    let reply = assembled(format, fragments);
    // A long reply takes long to read letter by letter, and has no other states than a short one.
    let end = (0..=reply.len().min(3000)).rev();
    let end = end.into_iter().find(|at| reply.is_char_boundary(*at));
    let reply = &reply[..end.unwrap_or_default()];
    if let Err(error) = check(&format.template, reply, &lengths, thoughts) {
        panic!("{}: {error}", format.name);
    }
}

/// Returns the text that bytes choose: an ASCII character is itself, and each other byte is a
/// fragment. Most bytes are fragments of the format, because others seldom form a call.
pub(crate) fn assembled(format: &Format, bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii() {
            text.push(char::from(*byte));
        } else {
            let next = bytes.next().copied().unwrap_or_default();
            let number = usize::from(byte & 0x7f) << 8 | usize::from(next);
            text.push_str(&format.fragments[number % format.fragments.len()]);
        }
    }
    text
}

/// Formats that no published template in `tests/data` has: a name, a template that tells of the
/// format, and a reply in it.
const UNPUBLISHED: [(&str, &str, &str); 6] = [
    (
        "python_start",
        "{# <|header_start|> #}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}[\
         {{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson }}\
         {% if not loop.last %}, {% endif %}{% endfor %})]{% endfor %}{% endfor %}",
        "<|python_start|>[run(command=\"AAA\"), get_weather(city='b', days=3)]<|python_end|>",
    ),
    (
        "gigachat",
        "<|function_call|>{% for m in messages %}{{ m.content }}{% endfor %}",
        "<|function_call|>{\"name\": \"run\", \"arguments\": {\"command\": \"AAA\"}}",
    ),
    (
        "dsml 4",
        "<｜DSML｜tool_calls>{% for m in messages %}{{ m.content }}{% endfor %}",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" \
         string=\"true\">AAA</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3\
         </｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    (
        "cohere",
        "<|START_ACTION|>{% for m in messages %}{{ m.content }}{% endfor %}",
        "<|START_THINKING|>b<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \
         \"run\", \"parameters\": {\"command\": \"AAA\"}}]<|END_ACTION|>",
    ),
    (
        "solar",
        "<|tool_calls|>{% for m in messages %}{{ m.content }}{% endfor %}",
        "<|tool_calls|><|tool_call:begin|>i<|tool_call:name|>run<|tool_call:args|>{\"command\": \
         \"AAA\"}<|tool_call:end|><|calls|>",
    ),
    (
        "functiongemma",
        "<start_function_call>{% for m in messages %}{{ m.content }}{% endfor %}",
        "<start_function_call>call:run{command:<escape>AAA<escape>}<end_function_call>",
    ),
];

/// Fragments that every format is tried with.
const FRAGMENTS: [&str; 75] = [
    "a",
    "b c",
    " ",
    "\n",
    "ü",
    "🙂",
    "<",
    "</",
    "<|",
    "|>",
    ">",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "\"",
    "'",
    "'''",
    "\\",
    "\\u12",
    "\\ud83d",
    "\\x4",
    ",",
    ";",
    ":",
    "=",
    ".",
    "-1",
    "1e999",
    "0",
    "True",
    "null",
    "run",
    "run(",
    "run()",
    "run(command='a')",
    "\"run\"",
    "get_weather(city=",
    "[run(",
    "{\"name\": \"run\", \"arguments\": {}}",
    "{\"run\": {}}",
    "\"name\":",
    "\"arguments\"",
    "<think>",
    "</think>",
    "<thi",
    "nk>",
    "<response>",
    "</response>",
    "<answer>",
    "</answer>",
    "[THINK]",
    "[/THINK]",
    "<|channel>",
    "<channel|>",
    "thought",
    "<|python_tag|>",
    "brave_search.call(query=\"a\")",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "functools",
    "<|start|>",
    "assistant",
    "<|channel|>",
    "analysis",
    " to=functions.run",
    "<|message|>",
    "<|constrain|>json",
    "<|end|>",
    "<|call|>",
];

/// Returns a path under `tests/data`, also for the fuzzers, whose package is in a folder of this one.
fn data(path: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parent = package.parent().filter(|_| package.ends_with("fuzz"));
    parent.unwrap_or(package).join("tests/data").join(path)
}

fn template(source: &str) -> ChatTemplate {
    let mut template = ChatTemplate::new(source, vec![("eos_token", "</s>".to_owned())]).unwrap();
    template.set_date(today());
    template
}

fn formats() -> Vec<Format> {
    let mut formats = vec![];
    let files = ["templates", "calls"].map(|folder| templates(&data(folder)));
    for file in files.iter().flatten() {
        let template = template(&std::fs::read_to_string(file).unwrap());
        formats.push(Format {
            name: file.file_stem().unwrap().to_string_lossy().into_owned(),
            fragments: with_common(fragments(&template, &TOOLS).unwrap_or_default()),
            template,
        });
    }

    for (name, source, reply) in UNPUBLISHED {
        let template = template(source);
        assert!(
            template.call_formats().contains(&name),
            "{name}: {:?}",
            template.call_formats()
        );
        let mut fragments = vec![reply.to_owned()];
        fragments.extend(cut(reply));
        fragments.extend(reply.split("AAA").map(str::to_owned));
        formats.push(Format {
            name: name.to_owned(),
            template,
            fragments: with_common(fragments),
        });
    }

    formats
}

/// Returns the fragments that every format is tried with, and about as many of the format itself.
fn with_common(own: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = FRAGMENTS.map(str::to_owned).to_vec();
    // A text that is longer than the longest header of a message.
    all.push("12345678 ".repeat(50));
    while all.len() < 2 * FRAGMENTS.len() && !own.is_empty() {
        all.extend(own.iter().cloned());
    }
    all
}

/// Cuts a text in front of and after its marks.
fn cut(text: &str) -> Vec<String> {
    let mut fragments = vec![String::new()];
    for c in text.chars() {
        if matches!(c, '<' | '[') {
            fragments.push(String::new());
        }
        if let Some(fragment) = fragments.last_mut() {
            fragment.push(c);
        }
        if matches!(c, '>' | ']') {
            fragments.push(String::new());
        }
    }
    fragments.retain(|fragment| !fragment.is_empty());
    fragments
}

/// The conditions under which a reply is read.
#[derive(Debug, Clone, Copy)]
struct Reading {
    thoughts: ThoughtsAre,
    prompt: &'static str,
    end: ReplyEnd,
}

/// The treatment of thoughts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ThoughtsAre {
    Text,
    Separate,
    /// Separate, in a conversation without tools.
    SeparateWithoutTools,
}

/// All treatments of thoughts.
pub(crate) const THOUGHTS: [ThoughtsAre; 3] = [
    ThoughtsAre::Text,
    ThoughtsAre::Separate,
    ThoughtsAre::SeparateWithoutTools,
];

/// Returns all conditions with these treatments of thoughts.
fn readings(thoughts: &[ThoughtsAre]) -> Vec<Reading> {
    let mut readings = vec![];
    for thoughts in thoughts.iter().copied() {
        for prompt in ["", "a<think>\n", "<|message|>"] {
            for end in [ReplyEnd::Complete, ReplyEnd::Cut] {
                readings.push(Reading {
                    thoughts,
                    prompt,
                    end,
                });
            }
        }
    }
    readings
}

/// Reads a reply that arrives in pieces.
fn read<'p>(
    template: &ChatTemplate,
    reading: Reading,
    pieces: impl IntoIterator<Item = &'p str>,
) -> Vec<ReplyPart> {
    let conversation = Conversation::default();
    let prompt = reading.prompt;
    let mut stream: CallStream<'_> = match reading.thoughts {
        ThoughtsAre::Text => template.calls(&TOOLS, &conversation, prompt),
        ThoughtsAre::Separate => template.reply(Some(&TOOLS), &conversation, prompt),
        ThoughtsAre::SeparateWithoutTools => template.reply(None, &conversation, prompt),
    };
    let mut parts: Vec<ReplyPart> = vec![];
    for piece in pieces {
        parts.extend(stream.push(piece));
    }
    parts.extend(stream.finish(reading.end));

    // Neighboring texts and thoughts depend on the division, and empty ones mean nothing.
    let mut all: Vec<ReplyPart> = vec![];
    for part in joined(&parts) {
        match (all.last_mut(), part) {
            (_, ReplyPart::Reasoning(text) | ReplyPart::Text(text)) if text.is_empty() => {}
            (Some(ReplyPart::Reasoning(last)), ReplyPart::Reasoning(next)) => last.push_str(&next),
            (_, part) => all.push(part),
        }
    }
    joined(&all)
}

/// Divides a text into pieces of these numbers of characters, over and over.
fn divided<'t>(text: &'t str, lengths: &[usize]) -> Vec<&'t str> {
    let mut lengths = lengths.iter().cycle();
    let mut pieces = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let length = lengths.next().copied().unwrap_or(1).max(1);
        let end = rest.char_indices().nth(length);
        let (piece, next) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        pieces.push(piece);
        rest = next;
    }
    pieces
}

/// Returns an error if a division of the reply changes its parts under any of the conditions.
pub(crate) fn check(
    template: &ChatTemplate,
    reply: &str,
    lengths: &[usize],
    thoughts: &[ThoughtsAre],
) -> Result<(), String> {
    for reading in readings(thoughts) {
        // Letter by letter is the division that decides the most often.
        let letters = read(template, reading, divided(reply, &[1]));
        let divisions = [
            ("whole", vec![reply]),
            ("in pieces", divided(reply, lengths)),
            ("in pairs", divided(reply, &[2])),
            // An empty piece carries no text, so it changes nothing.
            ("with empty pieces", vec!["", reply, ""]),
        ];
        for (division, pieces) in divisions {
            let parts = read(template, reading, pieces);
            if parts != letters {
                return Err(format!(
                    "{reading:?} of {reply:?} {division} {lengths:?}: {parts:?}, but letter by \
                     letter: {letters:?}"
                ));
            }
        }
    }
    Ok(())
}
