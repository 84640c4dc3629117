//! Grammars of whole replies accept the calls that templates write, and thoughts in front of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use warpwright_model::chat::{
    AnswerForm, ArgumentsForm, CallCount, CallForms, ChatTemplate, ReplyForms, ReplyFrame, Tools,
    today,
};
use warpwright_model::{GrammarCompiler, GrammarText, Model};

use super::round_trip;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn template(file: &Path) -> ChatTemplate {
    let source = std::fs::read_to_string(file).unwrap();
    let mut template = ChatTemplate::new(&source, vec![]).unwrap();
    template.set_date(today());
    template
}

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "ls", "description": "Lists", "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}},
        "required": ["path"]}}},
    {"type": "function", "function": {"name": "now", "description": "Returns the time", "parameters": {
        "type": "object", "properties": {}}}}]"#;

/// The templates whose calls can be forced, and the number of calls in a row that they can have.
const FORCED: [(&str, usize); 22] = [
    ("Apertus-8B-Instruct", 2),
    ("Apriel-1.6-15b-Thinker-fixed", 2),
    ("Bielik-11B-v3.0-Instruct", 2),
    ("MiMo-VL", 2),
    ("MiniMax-M1", 2),
    ("Qwen-QwQ-32B", 2),
    ("Qwen-Qwen2.5-7B-Instruct", 2),
    ("Qwen-Qwen3-0.6B", 2),
    ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", 2),
    ("deepseek-ai-DeepSeek-V3.1", 2),
    ("ibm-granite-granite-4.0", 2),
    ("mistralai-Ministral-3-14B-Reasoning-2512", 2),
    ("openai-gpt-oss-120b", 1),
    ("unsloth-mistral-Devstral-Small-2507", 2),
    ("vllm-tool_chat_template_granite", 2),
    ("vllm-tool_chat_template_granite_20b_fc", 2),
    ("vllm-tool_chat_template_hermes", 2),
    ("vllm-tool_chat_template_internlm2_tool", 2),
    ("vllm-tool_chat_template_phi4_mini", 2),
    ("vllm-tool_chat_template_xlam_qwen", 2),
    ("kimi", 1),
    ("nemotron", 2),
];

#[test]
fn forced_calls_are_those_that_the_template_writes() {
    let model = Model::open(&root("../assets/rustdoc-7m-Q4_K_M.gguf")).unwrap();
    let tokenizer = Arc::new(model.tokenizer().unwrap());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &model.outline).unwrap();
    let tools = Tools::new(TOOLS).unwrap();
    let ls = ("ls".to_owned(), json!({ "path": "/ü", "depth": 3 }));
    let now = ("now".to_owned(), json!({}));
    let mut forced = vec![];
    let files = ["tests/data/templates", "tests/data/calls"]
        .iter()
        .flat_map(|folder| round_trip::templates(&root(folder)));
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let template = template(&file);
        let mut most = 0;
        for (count, calls) in [
            (CallCount::One, vec![ls.clone()]),
            (CallCount::One, vec![now.clone()]),
            (CallCount::Many, vec![ls.clone(), now.clone()]),
        ] {
            let forms = ReplyForms {
                answer: AnswerForm::None,
                calls: Some(CallForms {
                    tools: &tools,
                    function: None,
                    count,
                }),
            };
            let Some(ReplyFrame::Lark(frame)) = template.frame("", &forms, &tokenizer) else {
                continue;
            };

            let grammar = compiler
                .compile_framed(&frame, None)
                .unwrap_or_else(|error| panic!("{name}: {error}\n{frame}"));
            let mut matcher = grammar.matcher();
            let given = |arguments: &Value| match template.arguments_form() {
                ArgumentsForm::Object => arguments.clone(),
                ArgumentsForm::Text => arguments.to_string().into(),
            };
            let reply = round_trip::rendered(&template, &tools, &calls, given).unwrap();

            // The template may write a closed thought in front of the call, and ends the message.
            let at = frame.find("calls: \"").map_or(0, |at| at + 8);
            let head: String = frame[at..]
                .chars()
                .take_while(|c| !"\"\\".contains(*c))
                .collect();
            let start = reply
                .find(&head)
                .unwrap_or_else(|| panic!("{name}: {head:?} {reply}"));
            let mut is_complete = false;
            for token in tokenizer.encode_rest(&reply[start..]).unwrap() {
                if matcher.take(token).is_err() {
                    break;
                }
                is_complete = matcher.is_complete();
            }
            if is_complete {
                // Some templates leave all calls but the first out.
                let written = |(name, _): &&(String, Value)| reply[start..].contains(name);
                most = most.max(calls.iter().filter(written).count());
            } else {
                assert_eq!(calls.len(), 2, "{name}: {reply}\n{frame}");
            }
        }
        if most > 0 {
            forced.push((name, most));
        }
    }
    let forced: Vec<(&str, usize)> = forced
        .iter()
        .map(|(name, most)| (name.as_str(), *most))
        .collect();
    assert_eq!(forced, FORCED, "{forced:#?}");
}

/// A thought may come where the template shows one, and must where the prompt begins it.
#[test]
fn thoughts_are_allowed_in_front_of_answers() {
    let model = Model::open(&root("../assets/rustdoc-7m-Q4_K_M.gguf")).unwrap();
    let tokenizer = Arc::new(model.tokenizer().unwrap());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer), &model.outline).unwrap();
    let answer = GrammarText::Regex("[0-9]{3}".to_owned());
    let forms = ReplyForms {
        answer: AnswerForm::Grammar,
        calls: None,
    };
    let qwen = "tests/data/templates/Qwen-Qwen3-0.6B.jinja";
    let gpt_oss = "tests/data/templates/openai-gpt-oss-120b.jinja";
    let accepted = |path: &str, prompt: &str, reply: &str| {
        let frame = template(&root(path)).frame(prompt, &forms, &tokenizer);
        let grammar = match frame.unwrap() {
            ReplyFrame::Answer => compiler.compile(&answer),
            ReplyFrame::Lark(frame) => compiler.compile_framed(&frame, Some(&answer)),
        };
        let mut matcher = grammar.unwrap().matcher();
        let tokens = tokenizer.encode_rest(reply).unwrap();
        tokens.iter().all(|token| matcher.take(*token).is_ok()) && matcher.is_complete()
    };
    let cases = [
        (qwen, "", "123", true),
        (qwen, "", "12", false),
        (qwen, "", "x", false),
        (qwen, "", "<think>\na 1 <b> ü\n</think>\n\n123", true),
        (qwen, "", "<think>\na\n</think>\n\n12x", false),
        (qwen, "", "<think>a", false),
        (qwen, "", "<think>a</think>1<think>", false),
        (qwen, "..<think>\n", "a</think>123", true),
        (qwen, "..<think>\n", "123", false),
        (qwen, "..<think>\n\n</think>\n\n", "123", true),
        (
            qwen,
            "..<think>\n\n</think>\n\n",
            "<think>a</think>123",
            false,
        ),
        (
            gpt_oss,
            "<|start|>assistant",
            "<|channel|>final<|message|>123",
            true,
        ),
        (
            gpt_oss,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>123",
            true,
        ),
        (gpt_oss, "<|start|>assistant", "123", false),
        (
            "tests/data/templates/Qwen-Qwen2.5-7B-Instruct.jinja",
            "",
            "<think>a</think>123",
            false,
        ),
        (
            "tests/data/templates/mistralai-Ministral-3-14B-Reasoning-2512.jinja",
            "",
            "[THINK]a[/THINK]123",
            true,
        ),
    ];
    for (path, prompt, reply, wanted) in cases {
        assert_eq!(
            accepted(path, prompt, reply),
            wanted,
            "{path}: {prompt} {reply}"
        );
    }
}
