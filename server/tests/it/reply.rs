//! Replies through their public interface, over an engine that answers from a script.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use warpwright_model::GrammarText;
use warpwright_model::chat::Tools;
use warpwright_server::engine::{Engine, ScriptedEngine};
use warpwright_server::error::{ErrorKind, RequestError};
use warpwright_server::models::{OpenedModel, ServedModel};
use warpwright_server::reply::{
    self, CallLimit, ChatMessage, ChatPrompt, FinishReason, MessageCall, ReasoningFields,
    ReplyCall, ReplyEnded, ReplyPart, ReplyPrompt, ReplyRequest, SamplingFields, ToolChoice,
};
use warpwright_server::scheduler::{AtEnd, Scheduler, SchedulerOptions};

use crate::harness::{asset, limits, replying, served};

const QWEN: &str = "templates/Qwen-Qwen3-0.6B.jinja";
const GPT_OSS: &str = "templates/openai-gpt-oss-120b.jinja";

fn template(path: &str) -> (PathBuf, String) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/data");
    let path = data.join(path);
    let text = std::fs::read_to_string(&path).expect("the template exists");
    (path, text)
}

fn served_as(engine: Box<dyn Engine>, path: &str) -> Arc<ServedModel> {
    let mut opened = OpenedModel::open(&asset()).expect("the small model opens");
    let (path, text) = template(path);
    opened.set_template(&path, &text).expect("it is a template");
    let scheduler = Scheduler::start(engine, SchedulerOptions::default());
    Arc::new(opened.serve("small".to_owned(), scheduler))
}

#[test]
fn a_template_that_shows_no_messages_is_a_warning() {
    let mut opened = OpenedModel::open(&asset()).expect("the small model opens");
    let before = opened.warnings.len();
    let path = Path::new("schema.json");
    for (text, more) in [("{{ messages[0].content }}", 0), ("{\"type\": 1}", 1)] {
        opened.set_template(path, text).expect("it is a template");
        assert_eq!(opened.warnings.len(), before + more, "{text}");
    }
    assert_eq!(
        opened.warnings[before],
        "schema.json: the chat template does not use `messages`, so every conversation has the same prompt"
    );
}

fn message(role: &str, content: &str) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content: content.to_owned(),
        ..ChatMessage::default()
    }
}

fn chat(messages: Vec<ChatMessage>) -> ChatPrompt {
    ChatPrompt {
        messages,
        ..ChatPrompt::default()
    }
}

fn tools() -> Tools {
    let tools = r#"[{"type": "function", "function": {"name": "ls", "description": "Lists", "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
        "additionalProperties": false}}},
        {"type": "function", "function": {"name": "now", "description": "Tells the time"}}]"#;
    Tools::new(tools).expect("these are tools")
}

fn request(prompt: ReplyPrompt) -> ReplyRequest {
    ReplyRequest {
        request_id: "test".to_owned(),
        prompt,
        count: 1,
        max_tokens: Some(400),
        sampling: SamplingFields::default(),
        stop: vec![],
        at_end: AtEnd::Stop,
        format: None,
        logprobs: None,
        prompt_logprobs: None,
        salt: 0,
    }
}

/// A reply, with its text and thoughts joined.
#[derive(Debug, Default)]
struct WholeReply {
    text: String,
    reasoning: String,
    calls: Vec<ReplyCall>,
    /// The bytes of the tokens with log-probabilities.
    tokens: Vec<u8>,
    cached: u32,
    ended: Option<ReplyEnded>,
}

impl WholeReply {
    fn reason(&self) -> &FinishReason {
        &self.ended.as_ref().expect("it has ended").reason
    }

    fn called(&self) -> Vec<(&str, Value)> {
        let calls = self.calls.iter().map(|call| {
            let arguments = serde_json::from_str(&call.arguments).expect("they are JSON");
            (call.name.as_str(), arguments)
        });
        calls.collect()
    }
}

async fn read_all(
    model: &Arc<ServedModel>,
    request: ReplyRequest,
) -> Result<Vec<WholeReply>, RequestError> {
    let count = request.count as usize;
    let mut replies = reply::start(model, request).await?;
    let mut whole: Vec<WholeReply> = (0..count).map(|_| WholeReply::default()).collect();
    while let Some(event) = replies.events.recv().await {
        let reply = &mut whole[event.index as usize];
        assert!(reply.ended.is_none(), "an event follows the end");
        match event.part {
            ReplyPart::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                assert_eq!(prompt_tokens, replies.prompt_tokens);
                reply.cached = cached_tokens;
            }
            ReplyPart::Prompt(_) => {}
            ReplyPart::Tokens(tokens) => {
                reply
                    .tokens
                    .extend(tokens.into_iter().flat_map(|token| token.bytes));
            }
            ReplyPart::Text(text) => {
                reply.text.push_str(&text);
                let reported = String::from_utf8_lossy(&reply.tokens);
                let is_first = reply.tokens.is_empty() || reported.contains(&*reply.text);
                assert!(is_first, "{text:?} is in front of its tokens");
            }
            ReplyPart::Reasoning(text) => reply.reasoning.push_str(&text),
            ReplyPart::Call(call) => reply.calls.push(call),
            ReplyPart::Ended(ended) => reply.ended = Some(ended),
            ReplyPart::Failed(error) => return Err(error),
        }
    }
    Ok(whole)
}

async fn read(model: &Arc<ServedModel>, request: ReplyRequest) -> WholeReply {
    let mut replies = read_all(model, request).await.expect("it is accepted");
    replies.remove(0)
}

async fn refused(model: &Arc<ServedModel>, request: ReplyRequest) -> (String, String) {
    let error = reply::start(model, request)
        .await
        .expect_err("it is refused");
    assert_eq!(error.kind, ErrorKind::Invalid, "{}", error.message);
    (error.param.unwrap_or_default(), error.message)
}

#[tokio::test]
async fn a_text_is_continued() {
    let model = served(Box::new(replying(" a vector of 🦀 values.")));
    let whole = read(&model, request(ReplyPrompt::Text("let v =".to_owned()))).await;
    assert_eq!(whole.text, " a vector of 🦀 values.");
    assert_eq!(whole.reason(), &FinishReason::Stop);
    let tokens = model.tokenizer.encode_rest(&whole.text).unwrap();
    assert_eq!(whole.ended.unwrap().tokens as usize, tokens.len() + 1);
}

#[tokio::test]
async fn stop_strings_and_limits_end_a_reply() {
    let model = served(Box::new(replying("one two\n\nthree four")));
    let prompt = || request(ReplyPrompt::Text("x".to_owned()));
    let stopped = read(
        &model,
        ReplyRequest {
            stop: vec!["\n\nth".to_owned(), "four".to_owned()],
            logprobs: Some(2),
            ..prompt()
        },
    )
    .await;
    assert_eq!(stopped.text, "one two");
    assert_eq!(stopped.tokens, b"one two", "the tokens of the stop string");
    let stop = FinishReason::StopString("\n\nth".to_owned());
    assert_eq!(stopped.reason(), &stop);

    let cut = read(
        &model,
        ReplyRequest {
            max_tokens: Some(2),
            ..prompt()
        },
    )
    .await;
    assert_eq!(cut.reason(), &FinishReason::Length);
    assert_eq!(cut.ended.unwrap().tokens, 2);

    let (param, _) = refused(
        &model,
        ReplyRequest {
            stop: vec![String::new()],
            ..prompt()
        },
    )
    .await;
    assert_eq!(param, "stop");
}

#[tokio::test]
async fn thoughts_text_and_calls_are_told_apart() {
    let reply = "<think>\nI look.\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"ls\", \"arguments\": \
                 {\"path\": \"/\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let model = served_as(Box::new(replying(reply)), QWEN);
    let prompt = ChatPrompt {
        tools: Some(tools()),
        ..chat(vec![message("user", "ls")])
    };
    let whole = read(
        &model,
        ReplyRequest {
            logprobs: Some(0),
            ..request(ReplyPrompt::Chat(prompt.clone()))
        },
    )
    .await;
    assert_eq!(whole.reasoning, "I look.");
    assert_eq!(whole.text, "One moment.");
    let calls = vec![("ls", json!({ "path": "/" })), ("now", json!({}))];
    assert_eq!(whole.called(), calls);
    assert_eq!(whole.reason(), &FinishReason::Calls);
    assert_eq!(String::from_utf8_lossy(&whole.tokens), reply);
    let [first, second] = &whole.calls[..] else {
        panic!("two calls")
    };
    assert_eq!([first.index, second.index], [0, 1]);
    assert!(first.id.starts_with("call_") && first.id != second.id);
    let ended = whole.ended.as_ref().unwrap();
    assert!(
        ended.reasoning_tokens > 3 && ended.reasoning_tokens < ended.tokens / 2,
        "{ended:?}"
    );

    // One call ends the reply.
    let one = ChatPrompt {
        call_limit: CallLimit::One,
        ..prompt.clone()
    };
    let whole = read(&model, request(ReplyPrompt::Chat(one))).await;
    assert_eq!(whole.called(), calls[..1]);
    assert_eq!(whole.reason(), &FinishReason::Calls);

    // Without calls, their text is text, and the template is not told of the tools.
    let none = ChatPrompt {
        tool_choice: ToolChoice::None,
        ..prompt
    };
    let text = reply::render(&model, none.clone()).await.unwrap();
    assert!(!text.contains("Lists"), "{text}");
    let whole = read(&model, request(ReplyPrompt::Chat(none))).await;
    assert_eq!(whole.calls, []);
    assert!(whole.text.contains("<tool_call>"), "{}", whole.text);
}

#[tokio::test]
async fn messages_of_gpt_oss_are_told_apart() {
    let reply = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Hello";
    let model = served_as(Box::new(replying(reply)), GPT_OSS);
    let prompt = chat(vec![message("user", "x")]);
    let whole = read(&model, request(ReplyPrompt::Chat(prompt))).await;
    assert_eq!(
        (whole.reasoning.as_str(), whole.text.as_str()),
        ("I look.", "Hello")
    );
}

#[tokio::test]
async fn a_format_follows_the_thought() {
    let schema = r#"{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
        "additionalProperties": false}"#;
    let format = Some(GrammarText::JsonSchema(schema.to_owned()));
    let asked = || chat(vec![message("user", "x")]);
    let is_valid = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("the text is JSON");
        value == json!({ "a": 1 }) || value == json!({ "a": 2 })
    };

    // The model thinks, and its answer is the one that it wants.
    for (path, reply) in [
        (QWEN, "<think>\nIs it {\"a\": 3}?\n</think>\n\n{\"a\": 2}"),
        (QWEN, "{\"a\": 2}"),
        (
            GPT_OSS,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{\"a\": 2}",
        ),
    ] {
        let model = served_as(Box::new(replying(reply)), path);
        let whole = read(
            &model,
            ReplyRequest {
                format: format.clone(),
                ..request(ReplyPrompt::Chat(asked()))
            },
        )
        .await;
        assert_eq!(whole.text, "{\"a\": 2}", "{path} {reply} {whole:?}");
        assert_eq!(whole.reasoning.is_empty(), reply.starts_with('{'));
        assert_eq!(whole.reason(), &FinishReason::Stop);
    }

    // Where the prompt has closed the thought, none may come.
    // The model is led to the format.
    let off = ChatPrompt {
        reasoning: ReasoningFields {
            enabled: Some(false),
            effort: None,
        },
        ..asked()
    };
    for reply in ["Hello", "<think>\nhm</think>{\"a\": 1}"] {
        let model = served_as(Box::new(replying(reply)), QWEN);
        let whole = read(
            &model,
            ReplyRequest {
                format: format.clone(),
                ..request(ReplyPrompt::Chat(off.clone()))
            },
        )
        .await;
        assert!(
            is_valid(&whole.text) && whole.reasoning.is_empty(),
            "{whole:?}"
        );
    }

    // With tools, the model may call one instead.
    let call = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"/\"}}\n</tool_call>";
    for (reply, has_call) in [(call, true), ("{\"a\": 1}", false)] {
        let model = served_as(Box::new(replying(reply)), QWEN);
        let prompt = ChatPrompt {
            tools: Some(tools()),
            ..asked()
        };
        let whole = read(
            &model,
            ReplyRequest {
                format: format.clone(),
                ..request(ReplyPrompt::Chat(prompt))
            },
        )
        .await;
        assert_eq!(whole.calls.len(), usize::from(has_call), "{whole:?}");
        assert_eq!(whole.text.is_empty(), has_call);
    }

    let model = served_as(Box::new(replying("x")), QWEN);
    let wrong = Some(GrammarText::JsonSchema(r#"{"contains": {}}"#.to_owned()));
    let (param, message) = refused(
        &model,
        ReplyRequest {
            format: wrong,
            ..request(ReplyPrompt::Chat(asked()))
        },
    )
    .await;
    assert_eq!(param, "response_format");
    assert!(message.contains("contains at #"), "{message}");
}

#[tokio::test]
async fn calls_are_forced() {
    let wanted = |choice| ChatPrompt {
        tools: Some(tools()),
        tool_choice: choice,
        call_limit: CallLimit::One,
        ..chat(vec![message("user", "x")])
    };
    let templates = [
        QWEN,
        GPT_OSS,
        "templates/Qwen-Qwen2.5-7B-Instruct.jinja",
        "templates/ibm-granite-granite-4.0.jinja",
        "templates/MiniMax-M1.jinja",
        "templates/vllm-tool_chat_template_granite.jinja",
        "templates/vllm-tool_chat_template_xlam_qwen.jinja",
    ];
    for path in templates {
        let model = served_as(Box::new(replying("I do not want to.")), path);
        let choice = ToolChoice::Function("now".to_owned());
        let whole = read(&model, request(ReplyPrompt::Chat(wanted(choice)))).await;
        // The engine takes the first token that the grammar allows, so a string may not end.
        let is_cut = whole.reason() == &FinishReason::Length;
        assert!(
            is_cut
                || whole
                    .called()
                    .first()
                    .is_some_and(|(name, _)| *name == "now"),
            "{path}: {whole:?}"
        );
    }

    let call = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"/\"}}\n</tool_call>";
    for reply in [call.to_owned(), format!("<think>\nhm\n</think>\n\n{call}")] {
        for choice in [ToolChoice::Required, ToolChoice::Function("ls".to_owned())] {
            let model = served_as(Box::new(replying(&reply)), QWEN);
            let whole = read(&model, request(ReplyPrompt::Chat(wanted(choice)))).await;
            assert_eq!(whole.called(), [("ls", json!({ "path": "/" }))], "{reply}");
            assert_eq!(
                (whole.reason(), whole.text.as_str()),
                (&FinishReason::Calls, "")
            );
        }
    }

    let many = ChatPrompt {
        call_limit: CallLimit::Many,
        ..wanted(ToolChoice::Required)
    };
    let twice = format!("{call}\n{call}");
    let model = served_as(Box::new(replying(&twice)), QWEN);
    let whole = read(&model, request(ReplyPrompt::Chat(many))).await;
    assert_eq!(whole.calls.len(), 2, "{whole:?}");

    let model = served_as(Box::new(replying("x")), "templates/Qwen3-Coder.jinja");
    let (param, _) = refused(
        &model,
        request(ReplyPrompt::Chat(wanted(ToolChoice::Required))),
    )
    .await;
    assert_eq!(param, "tool_choice");
}

#[tokio::test]
async fn wrong_conversations_are_refused() {
    let engine = || Box::new(replying("x"));
    let qwen = served_as(engine(), QWEN);
    let asked = || chat(vec![message("user", "x")]);
    let mut kwargs = Map::new();
    kwargs.insert("messages".to_owned(), json!([]));
    let mut calling = message("assistant", "");
    calling.calls.push(MessageCall {
        id: "a".to_owned(),
        name: "ls".to_owned(),
        arguments: Map::new(),
    });
    let with_tools = |tool_choice| ChatPrompt {
        tools: Some(tools()),
        tool_choice,
        ..asked()
    };
    let cases = [
        (served(engine()), asked(), "messages", "no chat template"),
        (qwen.clone(), chat(vec![]), "messages", "no message"),
        (
            qwen.clone(),
            chat(vec![message("user", "x"), calling]),
            "messages[1]",
            "role tool",
        ),
        (
            qwen.clone(),
            ChatPrompt {
                variables: kwargs,
                ..asked()
            },
            "chat_template_kwargs.messages",
            "conversation itself",
        ),
        (
            qwen.clone(),
            with_tools(ToolChoice::Function("rm".to_owned())),
            "tool_choice",
            "ls, now",
        ),
        (
            qwen,
            ChatPrompt {
                tool_choice: ToolChoice::Required,
                ..asked()
            },
            "tool_choice",
            "no tools",
        ),
        (
            served_as(engine(), "templates/microsoft-Phi-3.5-mini-instruct.jinja"),
            with_tools(ToolChoice::Auto),
            "tools",
            "ignores tools",
        ),
        (
            served_as(
                engine(),
                "templates/mistralai-Mistral-Nemo-Instruct-2407.jinja",
            ),
            chat(vec![
                message("user", "x"),
                message("assistant", "y"),
                message("assistant", "z"),
                message("user", "x"),
            ]),
            "messages[2]",
            "alternate",
        ),
    ];
    for (model, prompt, wanted_param, part) in cases {
        let (param, message) = refused(&model, request(ReplyPrompt::Chat(prompt))).await;
        assert_eq!(param, wanted_param, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn prompts_have_the_form_that_the_template_knows() {
    let model = |path| served_as(Box::new(replying("x")), path);
    let qwen = model(QWEN);
    let render = async |model: &Arc<ServedModel>, prompt| {
        let text = reply::render(model, prompt).await;
        text.map_err(|error| error.message).expect("it is rendered")
    };

    let developer = chat(vec![
        message("developer", "Be brief."),
        message("user", "x"),
    ]);
    let text = render(&qwen, developer).await;
    assert!(
        text.starts_with("<|im_start|>system\nBe brief.<|im_end|>"),
        "{text}"
    );

    // A last message of the assistant goes on where it ends.
    for content in ["The answer is", "The answer is "] {
        let begun = chat(vec![message("user", "x"), message("assistant", content)]);
        let text = render(&qwen, begun.clone()).await;
        assert!(text.ends_with(content), "{text}");
        assert!(
            text.contains("<|im_start|>assistant\n<think>\n\n</think>\n\nThe"),
            "{text}"
        );
        let whole = read(&qwen, request(ReplyPrompt::Chat(begun))).await;
        assert_eq!(whole.text, "x");
    }

    let reasoning = |enabled, effort: Option<&str>| ChatPrompt {
        reasoning: ReasoningFields {
            enabled,
            effort: effort.map(str::to_owned),
        },
        ..chat(vec![message("user", "x")])
    };
    let closed = "<think>\n\n</think>\n\n";
    for (prompt, is_closed) in [
        (reasoning(None, None), false),
        (reasoning(Some(true), None), false),
        (reasoning(Some(false), None), true),
        (reasoning(None, Some("none")), true),
        (reasoning(None, Some("high")), false),
    ] {
        let text = render(&qwen, prompt).await;
        assert_eq!(text.ends_with(closed), is_closed, "{text}");
    }
    let mut variables = Map::new();
    variables.insert("enable_thinking".to_owned(), json!(false));
    let text = render(
        &qwen,
        ChatPrompt {
            variables,
            ..reasoning(Some(true), None)
        },
    )
    .await;
    assert!(text.ends_with(closed), "the client's own variable counts");

    let gpt_oss = model(GPT_OSS);
    for (effort, wanted) in [("high", "high"), ("minimal", "low"), ("none", "low")] {
        let text = render(&gpt_oss, reasoning(None, Some(effort))).await;
        assert!(text.contains(&format!("Reasoning: {wanted}\n")), "{text}");
    }
    let seek = model("templates/deepseek-ai-DeepSeek-V3.1.jinja");
    let text = render(&seek, reasoning(Some(true), None)).await;
    assert!(text.ends_with("<think>"), "{text}");

    // Mistral's templates demand roles that alternate, and short ids.
    let mistral = model("templates/mistralai-Mistral-Nemo-Instruct-2407.jinja");
    let mut calling = message("assistant", "");
    calling.calls.push(MessageCall {
        id: "call_0123456789".to_owned(),
        name: "ls".to_owned(),
        arguments: Map::new(),
    });
    let mut answer = message("tool", "a.rs");
    answer.call_id = Some("call_0123456789".to_owned());
    let prompt = ChatPrompt {
        tools: Some(tools()),
        ..chat(vec![
            message("user", "first"),
            message("user", "second"),
            calling,
            answer,
        ])
    };
    let text = render(&mistral, prompt).await;
    assert!(
        text.contains("first\n\nsecond") && text.contains("call00001"),
        "{text}"
    );
}

#[tokio::test]
async fn several_replies_share_their_prompt() {
    let engine = |reply: &str| {
        let reply = reply.to_owned();
        let opened = OpenedModel::open(&asset()).expect("the small model opens");
        let end = opened.model.outline.stop.clone();
        let mut tokens = opened.tokenizer.encode_rest(&reply).unwrap();
        tokens.extend(end.first());
        ScriptedEngine::new(limits(), end, Box::new(move |_| tokens.clone()))
            .with_delays(Duration::ZERO, Duration::from_millis(1))
            .with_prefix_reuse(warpwright_server::engine::scripted::PrefixReuse::Pages)
    };
    let model = served(Box::new(engine("one two three")));
    let text = "word ".repeat(60);
    let replies = read_all(
        &model,
        ReplyRequest {
            // More than there are slots.
            count: 6,
            ..request(ReplyPrompt::Text(text.clone()))
        },
    )
    .await
    .expect("they are accepted");
    for reply in &replies {
        assert_eq!(reply.text, "one two three");
        assert_eq!(reply.reason(), &FinishReason::Stop);
    }

    // Dropping the events frees all slots.
    let slow = engine("one two three four five six seven eight nine ten eleven")
        .with_delays(Duration::ZERO, Duration::from_millis(20));
    let model = served(Box::new(slow));
    let mut replies = reply::start(
        &model,
        ReplyRequest {
            count: 3,
            ..request(ReplyPrompt::Text(text))
        },
    )
    .await
    .expect("they are accepted");
    let event = replies.events.recv().await;
    assert!(event.is_some());
    drop(replies);
    for _ in 0..500 {
        let status = model.scheduler.status();
        if status.sequences.is_empty() && status.waiting == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{:?}", model.scheduler.status());
}
