//! Thoughts are separated from text and calls, however a reply is divided.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use warpwright_model::chat::{
    ChatTemplate, Conversation, ReplyEnd, ReplyPart, Serde, Then, ToolCall, Tools, today,
};

use super::round_trip::joined;

fn template(path: &str) -> ChatTemplate {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path);
    let source = std::fs::read_to_string(path).unwrap();
    let mut template = ChatTemplate::new(&source, vec![]).unwrap();
    template.set_date(today());
    template
}

fn tools() -> Tools {
    let tools = r#"[{"type": "function", "function": {"name": "ls", "parameters": {
        "properties": {"path": {"type": "string"}}}}}]"#;
    Tools::new(tools).unwrap()
}

fn read<'a>(
    template: &ChatTemplate,
    tools: Option<&Tools>,
    prompt: &str,
    pieces: impl IntoIterator<Item = &'a str>,
    end: ReplyEnd,
) -> Vec<ReplyPart> {
    let mut stream = template.reply(tools, &Conversation::default(), prompt);
    let mut parts: Vec<ReplyPart> = vec![];
    let mut arrived = 0;
    for piece in pieces {
        arrived += piece.len();
        parts.extend(stream.push(piece));
        assert!(stream.held() <= arrived);
    }
    parts.extend(stream.finish(end));
    joined_all(&parts)
}

/// Joins neighboring texts, and neighboring thoughts.
fn joined_all(parts: &[ReplyPart]) -> Vec<ReplyPart> {
    let mut all: Vec<ReplyPart> = vec![];
    for part in joined(parts) {
        if let (Some(ReplyPart::Reasoning(last)), ReplyPart::Reasoning(next)) =
            (all.last_mut(), &part)
        {
            last.push_str(next);
        } else {
            all.push(part);
        }
    }
    all
}

/// Reads a reply whole and letter by letter.
fn parts(
    template: &ChatTemplate,
    tools: Option<&Tools>,
    prompt: &str,
    reply: &str,
) -> Vec<ReplyPart> {
    let whole = read(template, tools, prompt, [reply], ReplyEnd::Complete);
    let letters = reply
        .char_indices()
        .map(|(at, c)| &reply[at..at + c.len_utf8()]);
    let split = read(template, tools, prompt, letters, ReplyEnd::Complete);
    assert_eq!(whole, split, "{reply}");
    whole
}

fn text(text: &str) -> ReplyPart {
    ReplyPart::Text(text.to_owned())
}

fn thought(text: &str) -> ReplyPart {
    ReplyPart::Reasoning(text.to_owned())
}

fn call(path: &str) -> ReplyPart {
    let serde_json::Value::Object(arguments) = json!({ "path": path }) else {
        unreachable!()
    };
    ReplyPart::Call(ToolCall {
        id: None,
        name: "ls".to_owned(),
        arguments,
    })
}

#[test]
fn thoughts_are_separate_from_text_and_calls() {
    let ls = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    let called = || call("a");
    let qwen = "templates/Qwen-Qwen3-0.6B.jinja";
    let mistral = "templates/mistralai-Ministral-3-14B-Reasoning-2512.jinja";
    let granite = "templates/ibm-granite-granite-3.3-2B-Instruct.jinja";
    let apriel = "templates/Apriel-1.6-15b-Thinker-fixed.jinja";
    let gpt_oss = "templates/openai-gpt-oss-120b.jinja";
    let gemma = "calls/gemma4.jinja";
    let cases: Vec<(&str, &str, String, Vec<ReplyPart>)> = vec![
        (qwen, "", "Hello".into(), vec![text("Hello")]),
        (qwen, "", " Hello\n".into(), vec![text(" Hello\n")]),
        (qwen, "", String::new(), vec![]),
        (qwen, "", "\n".into(), vec![text("\n")]),
        (
            qwen,
            "",
            "<think>\na\n\nb\n</think>\n\nHello\n".into(),
            vec![thought("a\n\nb"), text("Hello\n")],
        ),
        // The prompt begins the thought, and some models repeat its mark.
        (
            qwen,
            "x<think>\n",
            "a</think>b".into(),
            vec![thought("a"), text("b")],
        ),
        (
            qwen,
            "x<think>\n",
            "\n<think>a</think>b".into(),
            vec![thought("a"), text("b")],
        ),
        (qwen, "x<think>\n", "a < b".into(), vec![thought("a < b")]),
        (qwen, "x<think>", "a</thin".into(), vec![thought("a</thin")]),
        // An empty thought is none.
        (
            qwen,
            "",
            "<think>\n\n</think>\n\nHi".into(),
            vec![text("Hi")],
        ),
        // A closed thought in the prompt is over.
        (
            qwen,
            "<think>\n\n</think>\n\n",
            "a</think>".into(),
            vec![text("a</think>")],
        ),
        // Marks in the middle of a text are a part of it.
        (
            qwen,
            "",
            "Write <think>x</think> first.".into(),
            vec![text("Write <think>x</think> first.")],
        ),
        (
            qwen,
            "",
            format!("<think>a</think>\n\nI look.\n\n{ls}\n{ls}\n"),
            vec![thought("a"), text("I look."), called(), called()],
        ),
        (
            qwen,
            "",
            format!("\n\n{ls}\n\nDone"),
            vec![called(), text("Done")],
        ),
        // Calls in a thought are only considered.
        (
            qwen,
            "<think>",
            format!("{ls}</think>b"),
            vec![thought(ls), text("b")],
        ),
        (
            mistral,
            "",
            "[THINK]a[/THINK]b".into(),
            vec![thought("a"), text("b")],
        ),
        (
            qwen,
            "",
            "[THINK]a[/THINK]b".into(),
            vec![text("[THINK]a[/THINK]b")],
        ),
        (
            "templates/ByteDance-Seed-OSS.jinja",
            "",
            "<seed:think>a</seed:think>b".into(),
            vec![thought("a"), text("b")],
        ),
        (
            "templates/Apertus-8B-Instruct.jinja",
            "",
            "<|inner_prefix|>a<|inner_suffix|>b".into(),
            vec![thought("a"), text("b")],
        ),
        (
            gemma,
            "",
            "<|channel>thought\na\n<channel|>b".into(),
            vec![thought("a"), text("b")],
        ),
        (
            granite,
            "",
            "<think>a</think><response> b</response>\n".into(),
            vec![thought("a"), text("b\n")],
        ),
        (
            granite,
            "",
            "<think>a</think> <resp>".into(),
            vec![thought("a"), text("<resp>")],
        ),
        (
            granite,
            "",
            "<response>b</response>".into(),
            vec![text("<response>b</response>")],
        ),
        (
            apriel,
            "<|begin_assistant|>\nHere are my reasoning steps:\n",
            "a\n[BEGIN FINAL RESPONSE]\nb".into(),
            vec![thought("a"), text("b")],
        ),
        (
            gpt_oss,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b".into(),
            vec![thought("a"), text("b")],
        ),
        (
            gpt_oss,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.ls \
             <|constrain|>json<|message|>{\"path\": \"a\"}<|call|>"
                .into(),
            vec![thought("a"), called()],
        ),
    ];
    let tools = tools();
    for (path, prompt, reply, wanted) in cases {
        let template = template(path);
        let found = parts(&template, Some(&tools), prompt, &reply);
        assert_eq!(found, wanted, "{path}: {reply}");
        if !wanted.iter().any(|part| matches!(part, ReplyPart::Call(_))) {
            let found = parts(&template, None, prompt, &reply);
            assert_eq!(found, wanted, "{path} without tools: {reply}");
        }
    }
}

/// Without tools, the marks of calls are text.
#[test]
fn without_tools_there_are_no_calls() {
    let ls = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}\n</tool_call>";
    let qwen = template("templates/Qwen-Qwen3-0.6B.jinja");
    assert_eq!(parts(&qwen, None, "", ls), [text(ls)]);
    let messages = template("templates/openai-gpt-oss-120b.jinja");
    let ls = "<|channel|>commentary to=functions.ls<|message|>{}";
    let found = parts(&messages, None, "", ls);
    let problem = ReplyPart::NoCall {
        mark: "<|channel|>",
        problem: "there are no functions".to_owned(),
    };
    assert_eq!(found, [problem, text(ls)]);
}

/// The tokens that must be visible in the text of a reply.
#[test]
fn control_tokens_of_thoughts_are_shown() {
    let cases = [
        (
            "templates/mistralai-Ministral-3-14B-Reasoning-2512.jinja",
            "[THINK]",
            "[TOOL_CALLS]",
        ),
        ("templates/Qwen-Qwen3-0.6B.jinja", "</think>", "<tool_call>"),
        ("calls/gemma4.jinja", "<|channel>", "<|tool_call>"),
    ];
    let tools = tools();
    for (path, thought, call) in cases {
        let template = template(path);
        assert!(template.shows_in_reply(None, thought), "{path}");
        assert!(!template.shows_in_reply(None, call), "{path}");
        assert!(template.shows_in_reply(Some(&tools), call), "{path}");
        assert!(
            !template.shows_in_reply(Some(&tools), "<|im_start|>"),
            "{path}"
        );
    }
    let messages = template("templates/openai-gpt-oss-120b.jinja");
    assert!(messages.shows_in_reply(None, "<|channel|>"));
}

/// The prompts of templates that can begin a thought are recognized.
#[test]
fn the_prompt_decides_whether_the_reply_is_in_a_thought() {
    let cases = [
        (
            "templates/Qwen-Qwen3-0.6B.jinja",
            "enable_thinking",
            [false, false],
        ),
        (
            "templates/Qwen3.5-4B.jinja",
            "enable_thinking",
            [false, true],
        ),
        (
            "templates/deepseek-ai-DeepSeek-V3.1.jinja",
            "thinking",
            [false, true],
        ),
        (
            "templates/Qwen-QwQ-32B.jinja",
            "enable_thinking",
            [false, true],
        ),
        (
            "templates/Apriel-1.6-15b-Thinker-fixed.jinja",
            "enable_thinking",
            [true, true],
        ),
    ];
    for (path, variable, wanted) in cases {
        let template = template(path);
        for (value, wanted) in std::iter::zip([false, true], wanted) {
            let conversation = Conversation {
                messages: vec![Serde(json!({ "role": "user", "content": "x" })).into()],
                tools: None,
                more: vec![(variable.to_owned(), value.into())],
            };
            let prompt = template.render(&conversation, Then::Reply).unwrap().text;
            let stream = template.reply(None, &conversation, &prompt);
            assert_eq!(stream.is_in_thought(), wanted, "{path} {value}: {prompt}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No text is lost or duplicated, and the division does not matter.
    #[test]
    fn the_parts_do_not_depend_on_the_division(
        words in prop::collection::vec(prop::sample::select(vec![
            "<think>", "</think>", "<thi", "nk>", "a", " ", "\n", "ü", "<", "</", "<response>", "</response>",
            "<tool_call>", "</tool_call>", "{\"name\": \"ls\", \"arguments\": {}}", "[THINK]", "[/THINK]",
            "<|channel|>", "analysis", "final", "<|message|>", "<|end|>", "<|start|>", "assistant", " to=functions.ls",
        ]), 0..14),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        which in 0..4_usize,
        is_opened in any::<bool>(),
        has_tools in any::<bool>(),
        is_cut in any::<bool>(),
    ) {
        let path = [
            "templates/Qwen-Qwen3-0.6B.jinja",
            "templates/ibm-granite-granite-3.3-2B-Instruct.jinja",
            "templates/mistralai-Ministral-3-14B-Reasoning-2512.jinja",
            "templates/openai-gpt-oss-120b.jinja",
        ][which];
        let template = template(path);
        let tools = tools();
        let tools = has_tools.then_some(&tools);
        let prompt = if is_opened { "<think>\n" } else { "" };
        let end = if is_cut { ReplyEnd::Cut } else { ReplyEnd::Complete };
        let reply = words.concat();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(reply.len() + 1)).collect();
        ends.retain(|end| reply.is_char_boundary(*end));
        ends.extend([0, reply.len()]);
        ends.sort_unstable();
        let pieces = ends.windows(2).map(|ends| &reply[ends[0]..ends[1]]);
        let whole = read(&template, tools, prompt, [reply.as_str()], end);
        let split = read(&template, tools, prompt, pieces, end);
        prop_assert_eq!(&whole, &split);

        // Only marks and white space may be missing, so the letters are in order.
        if !whole.iter().any(|part| matches!(part, ReplyPart::Call(_))) {
            let found: String = whole.iter().map(|part| match part {
                ReplyPart::Text(text) | ReplyPart::Reasoning(text) => text.as_str(),
                ReplyPart::Call(_) | ReplyPart::NoCall { .. } => "",
            }).collect();
            let letters = |text: &str| text.chars().filter(|c| *c == 'a' || *c == 'ü').count();
            if which != 3 {
                prop_assert_eq!(letters(&found), letters(&reply), "{}", found);
            }
            let mut rest = reply.as_str();
            for c in found.chars() {
                let at = rest.find(c);
                prop_assert!(at.is_some(), "{} is not in order in {}", found, reply);
                rest = &rest[at.unwrap_or_default() + c.len_utf8()..];
            }
        }
    }
}
