//! Golden tests of chat completions: events of replies to JSON, with the types of `async-openai` as
//! an oracle.

use std::time::Duration;

use async_openai::types::chat::{
    ChatCompletionMessageToolCalls, CreateChatCompletionResponse,
    CreateChatCompletionStreamResponse, FinishReason as OracleReason, Role,
};
use serde_json::{Value, json};
use warpwright_server::error::{ErrorKind, RequestError};
use warpwright_server::protocol::openai::{
    ChatCollector, ChatStream, LogprobsWanted, ResponseForm, ResponseHead,
};
use warpwright_server::protocol::shared::StreamWriter;
use warpwright_server::reply::{
    FinishReason, ReplyCall, ReplyEnded, ReplyEvent, ReplyPart, ReplyTimes, TokenText,
};

fn head() -> ResponseHead {
    ResponseHead {
        id: "chatcmpl-1".to_owned(),
        created: 1_800_000_000,
        model: "m".to_owned(),
    }
}

fn started(prompt_tokens: u32, cached_tokens: u32) -> ReplyPart {
    ReplyPart::Started {
        prompt_tokens,
        cached_tokens,
    }
}

fn text(text: &str) -> ReplyPart {
    ReplyPart::Text(text.to_owned())
}

fn call(index: u32, name: &str) -> ReplyPart {
    ReplyPart::Call(ReplyCall {
        index,
        id: format!("call_{index}"),
        name: name.to_owned(),
        arguments: "{\"a\":1}".to_owned(),
    })
}

fn token(token: u32, text: &str) -> TokenText {
    TokenText {
        token,
        bytes: text.as_bytes().to_vec(),
        logprob: Some(-0.5),
        best: vec![
            (token, text.as_bytes().to_vec(), -0.5),
            (9, vec![0xc3], f64::NEG_INFINITY),
        ],
    }
}

fn ended(reason: FinishReason, tokens: u32) -> ReplyPart {
    ReplyPart::Ended(ReplyEnded {
        reason,
        tokens,
        reasoning_tokens: 1,
        problems: vec![],
        times: ReplyTimes {
            queued: Duration::ZERO,
            prompt: Duration::from_millis(10),
            decode: Duration::from_millis(20),
            drafted: 8,
            accepted: 5,
        },
    })
}

/// Returns the events of one reply.
fn events(parts: Vec<ReplyPart>) -> Vec<ReplyEvent> {
    let events = parts.into_iter().map(|part| ReplyEvent { index: 0, part });
    events.collect()
}

fn whole(count: u32, events: Vec<ReplyEvent>, logprobs: LogprobsWanted) -> Value {
    let mut collector = ChatCollector::new(count);
    for event in events {
        collector.add(event).expect("no reply has failed");
    }
    let response = collector.finish(head(), logprobs).expect("all have ended");
    serde_json::to_value(response).expect("the response is JSON")
}

fn oracle(response: &Value) -> CreateChatCompletionResponse {
    serde_json::from_value(response.clone()).expect("the oracle reads the response")
}

/// Returns the data of a stream's events. The last one, `[DONE]`, is a string.
fn streamed(count: u32, form: ResponseForm, events: Vec<ReplyEvent>) -> Vec<Value> {
    let mut stream = ChatStream::new(head(), form, count);
    let mut written = vec![];
    for event in events {
        written.extend(stream.write(event));
    }
    assert!(stream.is_closed());
    written.extend(stream.close());
    let data = written.into_iter().map(|event| {
        assert_eq!(event.name, None);
        serde_json::from_str(&event.data).unwrap_or(Value::String(event.data))
    });
    data.collect()
}

/// Returns the chunks as the oracle reads them.
fn oracle_chunks(data: &[Value]) -> Vec<CreateChatCompletionStreamResponse> {
    let (done, chunks) = data.split_last().expect("a stream is not empty");
    assert_eq!(done, "[DONE]");
    let chunks = chunks
        .iter()
        .map(|chunk| serde_json::from_value(chunk.clone()).expect("the oracle reads the chunk"));
    chunks.collect()
}

/// Returns the choices of chunks, without the fields that all chunks share.
fn choices(data: &[Value]) -> Vec<Value> {
    let choices = data.iter().filter_map(|chunk| chunk.get("choices")?.get(0));
    choices.cloned().collect()
}

#[test]
fn a_text_is_one_response() {
    let parts = vec![
        started(12, 4),
        text("Hello"),
        text(", you"),
        ended(FinishReason::Stop, 5),
    ];
    let response = whole(1, events(parts), LogprobsWanted::No);
    let expected = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_800_000_000_u64,
        "model": "m",
        "system_fingerprint": format!("b-warpwright-{}", env!("CARGO_PKG_VERSION")),
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hello, you"},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
        "timings": {
            "cache_n": 4, "prompt_n": 8, "prompt_ms": 10.0, "prompt_per_token_ms": 1.25,
            "prompt_per_second": 800.0, "predicted_n": 5, "predicted_ms": 20.0,
            "predicted_per_token_ms": 4.0, "predicted_per_second": 250.0,
            "draft_n": 8, "draft_n_accepted": 5,
        },
    });
    assert_eq!(response, expected);

    let read = oracle(&response);
    let choice = &read.choices[0];
    assert_eq!(choice.message.role, Role::Assistant);
    assert_eq!(choice.message.content.as_deref(), Some("Hello, you"));
    assert_eq!(choice.finish_reason, Some(OracleReason::Stop));
    assert_eq!(read.usage.expect("usage").total_tokens, 17);
}

#[test]
fn calls_and_reasoning_are_fields_of_the_message() {
    let parts = vec![
        started(3, 0),
        ReplyPart::Reasoning("Let me ".to_owned()),
        ReplyPart::Reasoning("see".to_owned()),
        call(0, "read"),
        call(1, "write"),
        ended(FinishReason::Calls, 9),
    ];
    let response = whole(1, events(parts), LogprobsWanted::No);
    let choice = &response["choices"][0];
    let expected = json!({
        "role": "assistant",
        "content": null,
        "reasoning_content": "Let me see",
        "reasoning": "Let me see",
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "read", "arguments": "{\"a\":1}"}},
            {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": "{\"a\":1}"}},
        ],
    });
    assert_eq!(choice["message"], expected);
    assert_eq!(choice["finish_reason"], "tool_calls");

    let read = oracle(&response);
    assert_eq!(read.choices[0].finish_reason, Some(OracleReason::ToolCalls));
    let calls = read.choices[0].message.tool_calls.as_ref().expect("calls");
    match &calls[1] {
        ChatCompletionMessageToolCalls::Function(call) => {
            assert_eq!((&*call.id, &*call.function.name), ("call_1", "write"));
        }
        other @ ChatCompletionMessageToolCalls::Custom(_) => panic!("{other:?}"),
    }
}

#[test]
fn reasons_and_problems_are_reported() {
    for (reason, finish, stop) in [
        (FinishReason::Stop, "stop", Value::Null),
        (FinishReason::StopString("x".to_owned()), "stop", json!("x")),
        (FinishReason::Length, "length", Value::Null),
        (FinishReason::Calls, "tool_calls", Value::Null),
        (FinishReason::Shutdown, "length", json!("shutdown")),
    ] {
        let parts = vec![started(1, 0), ended(reason, 1)];
        let response = whole(1, events(parts), LogprobsWanted::No);
        let choice = &response["choices"][0];
        assert_eq!(choice["finish_reason"], finish);
        assert_eq!(choice.get("stop_reason").unwrap_or(&Value::Null), &stop);
        assert_eq!(choice["message"]["content"], "");
        oracle(&response);
    }

    let end = ReplyEnded {
        reason: FinishReason::Stop,
        tokens: 1,
        reasoning_tokens: 0,
        problems: vec!["a call has no name".to_owned()],
        times: ReplyTimes::default(),
    };
    let parts = vec![started(1, 0), ReplyPart::Ended(end)];
    let response = whole(1, events(parts), LogprobsWanted::No);
    assert_eq!(
        response["choices"][0]["problems"],
        json!(["a call has no name"])
    );
    // Without any time, a rate is 0 and not infinite.
    assert_eq!(response["timings"]["predicted_per_second"], 0.0);
    assert!(response["timings"].get("draft_n").is_none());
}

#[test]
fn log_probabilities_have_texts_and_bytes() {
    let parts = vec![
        started(1, 0),
        ReplyPart::Tokens(vec![token(1, "a"), token(2, "ä")]),
        text("aä"),
        ended(FinishReason::Stop, 2),
    ];
    let response = whole(1, events(parts), LogprobsWanted::Yes);
    let content = &response["choices"][0]["logprobs"]["content"];
    let expected = json!({
        "token": "ä",
        "logprob": -0.5,
        "bytes": [195, 164],
        "top_logprobs": [
            {"token": "ä", "logprob": -0.5, "bytes": [195, 164]},
            {"token": "\u{fffd}", "logprob": -9999.0, "bytes": [195]},
        ],
    });
    assert_eq!(content[1], expected);
    let read = oracle(&response);
    let logprobs = read.choices[0].logprobs.as_ref().expect("logprobs");
    assert_eq!(logprobs.content.as_ref().expect("content").len(), 2);
}

#[test]
fn several_replies_count_their_prompt_once() {
    let mut all = vec![];
    for index in [1, 0] {
        for part in [started(10, 6), text("x"), ended(FinishReason::Length, 3)] {
            all.push(ReplyEvent { index, part });
        }
    }
    let response = whole(2, all, LogprobsWanted::No);
    assert_eq!(response["choices"][1]["index"], 1);
    assert_eq!(response["usage"]["prompt_tokens"], 10);
    assert_eq!(response["usage"]["completion_tokens"], 6);
    assert_eq!(response["usage"]["total_tokens"], 16);
    oracle(&response);
}

#[test]
fn failures_and_missing_ends_are_errors() {
    let mut collector = ChatCollector::new(1);
    let failure = RequestError::new(ErrorKind::Internal, "the device has failed: x");
    let event = ReplyEvent {
        index: 0,
        part: ReplyPart::Failed(failure.clone()),
    };
    assert_eq!(collector.add(event), Err(failure));

    let unknown = ReplyEvent {
        index: 1,
        part: text("x"),
    };
    assert!(collector.add(unknown).is_err());
    let interrupted = collector.finish(head(), LogprobsWanted::No).unwrap_err();
    assert_eq!(interrupted.kind, ErrorKind::Internal);
}

#[test]
fn a_streamed_text_has_role_text_and_reason_in_order() {
    let parts = vec![
        started(12, 4),
        text("Hello"),
        text(", you"),
        ended(FinishReason::Length, 5),
    ];
    let form = ResponseForm {
        usage_event: true,
        ..ResponseForm::default()
    };
    let data = streamed(1, form, events(parts));
    let choice = |delta: Value, reason: Value| json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason});
    let expected = [
        choice(json!({"role": "assistant", "content": null}), Value::Null),
        choice(json!({"content": "Hello"}), Value::Null),
        choice(json!({"content": ", you"}), Value::Null),
        choice(json!({}), json!("length")),
    ];
    assert_eq!(choices(&data), expected);
    for chunk in &data[..data.len() - 1] {
        assert_eq!(chunk["id"], "chatcmpl-1");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["created"], 1_800_000_000_u64);
        assert_eq!(chunk["model"], "m");
        assert!(
            chunk["system_fingerprint"]
                .as_str()
                .is_some_and(|text| text.starts_with('b'))
        );
    }
    assert!(data[0].get("timings").is_none() && data[0].get("usage").is_none());

    let last = &data[4];
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 17);
    assert_eq!(last["timings"]["predicted_n"], 5);
    assert_eq!(data[5], "[DONE]");
    assert_eq!(data.len(), 6);

    let chunks = oracle_chunks(&data);
    let content = chunks.iter().flat_map(|chunk| &chunk.choices);
    let content: String = content
        .filter_map(|choice| choice.delta.content.clone())
        .collect();
    assert_eq!(content, "Hello, you");
}

#[test]
fn without_a_usage_event_the_last_choice_has_the_times() {
    let parts = vec![started(2, 0), text("x"), ended(FinishReason::Stop, 1)];
    let data = streamed(1, ResponseForm::default(), events(parts));
    assert_eq!(data.len(), 4);
    assert_eq!(data[2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(data[2]["timings"]["prompt_n"], 2);
    assert!(data.iter().all(|chunk| chunk.get("usage").is_none()));
    oracle_chunks(&data);
}

#[test]
fn streamed_calls_have_an_index_and_their_name_only_once() {
    let parts = vec![
        started(2, 0),
        ReplyPart::Reasoning("hm".to_owned()),
        text("I look."),
        call(0, "read"),
        call(1, "write"),
        ended(FinishReason::Calls, 9),
    ];
    let data = streamed(1, ResponseForm::default(), events(parts));
    let deltas: Vec<Value> = choices(&data)
        .iter()
        .map(|choice| choice["delta"].clone())
        .collect();
    let named = |index: u32, name: &str| json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function", "function": {"name": name, "arguments": ""}}]});
    let arguments = |index: u32| json!({"tool_calls": [{"index": index, "function": {"arguments": "{\"a\":1}"}}]});
    let expected = [
        json!({"role": "assistant", "content": null}),
        json!({"reasoning_content": "hm", "reasoning": "hm"}),
        json!({"content": "I look."}),
        named(0, "read"),
        arguments(0),
        named(1, "write"),
        arguments(1),
        json!({}),
    ];
    assert_eq!(deltas, expected);
    let chunks = oracle_chunks(&data);
    let last = chunks.last().expect("a chunk");
    assert_eq!(last.choices[0].finish_reason, Some(OracleReason::ToolCalls));
}

#[test]
fn streamed_log_probabilities_come_with_their_text() {
    let parts = vec![
        started(1, 0),
        ReplyPart::Tokens(vec![token(1, "a")]),
        // The next token is held back, because a stop string could begin with it.
        text("a"),
        ReplyPart::Tokens(vec![token(2, "b")]),
        ReplyPart::Tokens(vec![token(3, "c")]),
        text("bc"),
        text("d"),
        ReplyPart::Tokens(vec![token(4, "STOP")]),
        ended(FinishReason::StopString("STOP".to_owned()), 4),
    ];
    let form = ResponseForm {
        logprobs: true,
        ..ResponseForm::default()
    };
    let data = streamed(1, form, events(parts));
    let tokens: Vec<Vec<String>> = choices(&data)
        .iter()
        .map(|choice| {
            let content = choice["logprobs"]["content"].as_array();
            let tokens = content.into_iter().flatten();
            tokens
                .map(|token| token["token"].as_str().unwrap_or_default().to_owned())
                .collect()
        })
        .collect();
    let expected: [&[&str]; 5] = [&[], &["a"], &["b", "c"], &[], &["STOP"]];
    assert_eq!(tokens, expected);
    assert_eq!(choices(&data)[0]["logprobs"], Value::Null);
    assert_eq!(choices(&data)[3]["logprobs"]["content"], json!([]));
    oracle_chunks(&data);
}

#[test]
fn a_stream_of_several_replies_ends_after_all_of_them() {
    let event = |index: u32, part: ReplyPart| ReplyEvent { index, part };
    let all = vec![
        event(0, started(4, 0)),
        event(1, started(4, 3)),
        event(1, text("b")),
        event(1, ended(FinishReason::Stop, 2)),
        event(0, text("a")),
        event(0, ended(FinishReason::Stop, 1)),
    ];
    let form = ResponseForm {
        usage_event: true,
        ..ResponseForm::default()
    };
    let data = streamed(2, form, all);
    let indices: Vec<Value> = choices(&data)
        .iter()
        .map(|choice| choice["index"].clone())
        .collect();
    assert_eq!(indices, [0, 1, 1, 1, 0, 0]);
    let usage = &data[data.len() - 2]["usage"];
    assert_eq!(usage["prompt_tokens"], 4);
    assert_eq!(usage["completion_tokens"], 3);
    oracle_chunks(&data);
}

#[test]
fn progress_is_reported_before_the_first_text() {
    let parts = vec![
        started(9, 4),
        text("a"),
        text("b"),
        ended(FinishReason::Stop, 2),
    ];
    let form = ResponseForm {
        progress: true,
        ..ResponseForm::default()
    };
    let data = streamed(1, form, events(parts));
    let progress: Vec<Value> = data
        .iter()
        .filter_map(|chunk| chunk.get("prompt_progress").cloned())
        .collect();
    let expected = [
        json!({"total": 9, "cache": 4, "processed": 4}),
        json!({"total": 9, "cache": 4, "processed": 9}),
    ];
    assert_eq!(progress, expected);
    assert_eq!(data[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(data[3]["choices"][0]["delta"]["content"].is_string());
}

#[test]
fn an_error_in_a_stream_is_its_last_event() {
    let error = RequestError::new(ErrorKind::Internal, "the device has failed: x");
    let mut stream = ChatStream::new(head(), ResponseForm::default(), 2);
    let parts = [
        started(2, 0),
        text("a"),
        ReplyPart::Failed(error),
        text("b"),
    ];
    let mut data: Vec<String> = vec![];
    for part in parts {
        let written = stream.write(ReplyEvent { index: 0, part });
        data.extend(written.into_iter().map(|event| event.data));
    }
    assert!(stream.close().is_empty());
    assert_eq!(data.len(), 3);
    let last: Value = serde_json::from_str(&data[2]).expect("the error is JSON");
    let expected = json!({"error": {"message": "the device has failed: x", "type": "server_error", "code": null, "param": null}});
    assert_eq!(last, expected);
}

#[test]
fn a_stream_that_is_cut_off_ends_with_an_error() {
    let mut stream = ChatStream::new(head(), ResponseForm::default(), 1);
    let part = started(2, 0);
    stream.write(ReplyEvent { index: 0, part });
    let written = stream.close();
    assert_eq!(written.len(), 1);
    assert!(written[0].data.contains("the reply has been interrupted"));
    assert!(stream.is_closed());
}
