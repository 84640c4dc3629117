//! Golden tests of completions: events of replies to JSON, with the types of `async-openai` as an
//! oracle.

use async_openai::types::completions::CreateCompletionResponse;
use serde_json::{Value, json};
use warpwright_server::error::{ErrorKind, RequestError};
use warpwright_server::protocol::openai::{
    CompletionCollector, CompletionStream, CompletionTexts, Echo, ResponseForm, ResponseHead,
};
use warpwright_server::protocol::shared::StreamWriter;
use warpwright_server::reply::{
    FinishReason, ReplyCall, ReplyEnded, ReplyEvent, ReplyPart, ReplyTimes, TokenText,
};

fn head() -> ResponseHead {
    ResponseHead {
        id: "cmpl-1".to_owned(),
        created: 1_800_000_000,
        model: "m".to_owned(),
    }
}

fn texts(prompts: &[&str], count: u32) -> CompletionTexts {
    CompletionTexts {
        prompts: prompts.iter().map(|prompt| (*prompt).to_owned()).collect(),
        count,
        echo: Echo::Generated,
        logprobs: false,
    }
}

fn started() -> ReplyPart {
    ReplyPart::Started {
        prompt_tokens: 2,
        cached_tokens: 1,
    }
}

fn text(text: &str) -> ReplyPart {
    ReplyPart::Text(text.to_owned())
}

fn ended(reason: FinishReason, tokens: u32) -> ReplyPart {
    ReplyPart::Ended(ReplyEnded {
        reason,
        tokens,
        reasoning_tokens: 0,
        problems: vec![],
        times: ReplyTimes::default(),
    })
}

/// Returns a token whose most likely alternative is `!`.
fn token(text: &str, logprob: Option<f64>) -> TokenText {
    let best = logprob.map(|_| (7, b"!".to_vec(), -0.1));
    TokenText {
        token: 5,
        bytes: text.as_bytes().to_vec(),
        logprob,
        best: best.into_iter().collect(),
    }
}

fn events(index: u32, parts: Vec<ReplyPart>) -> Vec<ReplyEvent> {
    let events = parts.into_iter().map(|part| ReplyEvent { index, part });
    events.collect()
}

fn whole(texts: CompletionTexts, events: Vec<ReplyEvent>) -> Value {
    let mut collector = CompletionCollector::new(texts);
    for event in events {
        collector.add(event).expect("no text has failed");
    }
    let response = collector.finish(&head()).expect("all have ended");
    let value = serde_json::to_value(response).expect("the response is JSON");
    let read: CreateCompletionResponse =
        serde_json::from_value(value.clone()).expect("the oracle reads the response");
    assert_eq!(
        read.choices.len(),
        value["choices"].as_array().map_or(0, Vec::len)
    );
    value
}

/// Returns the data of a stream's events up to `[DONE]`.
fn streamed(texts: CompletionTexts, form: ResponseForm, events: Vec<ReplyEvent>) -> Vec<Value> {
    let mut stream = CompletionStream::new(head(), form, texts);
    let mut written = vec![];
    for event in events {
        written.extend(stream.write(event));
    }
    assert!(stream.is_closed());
    let done = written.pop().expect("a stream is not empty");
    assert_eq!(done.data, "[DONE]");
    let data = written.into_iter().map(|event| {
        let value: Value = serde_json::from_str(&event.data).expect("the data is JSON");
        let oracle: Result<CreateCompletionResponse, _> = serde_json::from_value(value.clone());
        oracle.expect("the oracle reads the data");
        value
    });
    data.collect()
}

#[test]
fn a_text_is_one_response() {
    let parts = vec![
        started(),
        text("Hello"),
        text("!"),
        ended(FinishReason::Stop, 3),
    ];
    let response = whole(texts(&["p"], 1), events(0, parts));
    let choice = json!({"text": "Hello!", "index": 0, "logprobs": null, "finish_reason": "stop"});
    assert_eq!(response["object"], "text_completion");
    assert_eq!(response["id"], "cmpl-1");
    assert_eq!(response["choices"], json!([choice]));
    assert_eq!(response["usage"]["total_tokens"], 5);
    assert_eq!(response["timings"]["cache_n"], 1);
}

#[test]
fn several_prompts_have_their_texts_in_order() {
    let mut all = vec![];
    for index in [3, 0, 2, 1] {
        let parts = vec![
            started(),
            text(&format!("text {index}")),
            ended(FinishReason::Length, 2),
        ];
        all.extend(events(index, parts));
    }
    let mut echoed = texts(&["a ", "b "], 2);
    echoed.echo = Echo::Prompt;
    let response = whole(echoed, all);
    let texts: Vec<&Value> = (0..4)
        .map(|index| &response["choices"][index]["text"])
        .collect();
    assert_eq!(texts, ["a text 0", "a text 1", "b text 2", "b text 3"]);
    // Each of the two prompts counts once.
    assert_eq!(response["usage"]["prompt_tokens"], 4);
    assert_eq!(response["usage"]["completion_tokens"], 8);
}

#[test]
fn an_echoed_prompt_has_its_log_probabilities() {
    let mut echoed = texts(&["Hi ä"], 1);
    echoed.echo = Echo::Prompt;
    echoed.logprobs = true;
    let parts = || {
        vec![
            started(),
            ReplyPart::Prompt(vec![token("Hi", None), token(" ä", Some(-2.0))]),
            ReplyPart::Tokens(vec![token("!", Some(-0.1))]),
            text("!"),
            ended(FinishReason::Length, 1),
        ]
    };
    let response = whole(echoed.clone(), events(0, parts()));
    let expected = json!({
        "tokens": ["Hi", " ä", "!"],
        "token_logprobs": [null, -2.0, -0.1],
        "top_logprobs": [null, {"!": -0.1, " ä": -2.0}, {"!": -0.1}],
        "text_offset": [0, 2, 4],
    });
    assert_eq!(response["choices"][0]["text"], "Hi ä!");
    assert_eq!(response["choices"][0]["logprobs"], expected);

    let data = streamed(echoed, ResponseForm::default(), events(0, parts()));
    assert_eq!(data.len(), 3);
    assert_eq!(data[0]["choices"][0]["text"], "Hi ä");
    assert_eq!(
        data[0]["choices"][0]["logprobs"]["text_offset"],
        json!([0, 2])
    );
    assert_eq!(data[1]["choices"][0]["text"], "!");
    assert_eq!(data[1]["choices"][0]["logprobs"]["text_offset"], json!([4]));
    assert_eq!(data[2]["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_prompt_is_scored_without_a_generated_token() {
    let mut echoed = texts(&["Hi"], 1);
    echoed.echo = Echo::Prompt;
    echoed.logprobs = true;
    let parts = vec![
        started(),
        ReplyPart::Prompt(vec![token("H", None), token("i", Some(-1.0))]),
        ended(FinishReason::Length, 0),
    ];
    let response = whole(echoed, events(0, parts));
    assert_eq!(response["choices"][0]["text"], "Hi");
    assert_eq!(
        response["choices"][0]["logprobs"]["token_logprobs"],
        json!([null, -1.0])
    );
    assert_eq!(response["usage"]["completion_tokens"], 0);
}

#[test]
fn offsets_without_an_echo_start_after_the_prompt() {
    let mut wanted = texts(&["abc"], 1);
    wanted.logprobs = true;
    let parts = vec![
        started(),
        ReplyPart::Tokens(vec![
            token("x", Some(-1.0)),
            token("y", Some(f64::NEG_INFINITY)),
        ]),
        text("xy"),
        ended(FinishReason::Stop, 2),
    ];
    let response = whole(wanted, events(0, parts));
    let logprobs = &response["choices"][0]["logprobs"];
    assert_eq!(logprobs["text_offset"], json!([3, 4]));
    assert_eq!(logprobs["token_logprobs"], json!([-1.0, -9999.0]));
}

#[test]
fn a_streamed_text_ends_with_its_reason_and_usage() {
    let parts = vec![
        started(),
        text("a"),
        text("b"),
        ended(FinishReason::StopString("x".to_owned()), 3),
    ];
    let form = ResponseForm {
        usage_event: true,
        ..ResponseForm::default()
    };
    let data = streamed(texts(&["p"], 1), form, events(0, parts));
    let part =
        |text: &str| json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": null}]);
    assert_eq!(data[0]["choices"], part("a"));
    assert_eq!(data[1]["choices"], part("b"));
    let last = json!([{"text": "", "index": 0, "logprobs": null, "finish_reason": "stop", "stop_reason": "x"}]);
    assert_eq!(data[2]["choices"], last);
    assert_eq!(data[3]["choices"], json!([]));
    assert_eq!(data[3]["usage"]["total_tokens"], 5);
    assert_eq!(data.len(), 4);
}

#[test]
fn a_streamed_echo_comes_first() {
    let mut echoed = texts(&["p", "q"], 1);
    echoed.echo = Echo::Prompt;
    let mut all = events(1, vec![started(), text("2"), ended(FinishReason::Stop, 1)]);
    all.extend(events(
        0,
        vec![started(), text("1"), ended(FinishReason::Stop, 1)],
    ));
    let data = streamed(echoed, ResponseForm::default(), all);
    let texts: Vec<&Value> = data
        .iter()
        .map(|chunk| &chunk["choices"][0]["text"])
        .collect();
    assert_eq!(texts, ["q", "2", "", "p", "1", ""]);
    assert!(data[5].get("timings").is_some() && data[2].get("timings").is_none());
}

#[test]
fn failures_end_a_stream_with_an_error() {
    let call = ReplyPart::Call(ReplyCall {
        index: 0,
        id: "c".to_owned(),
        name: "f".to_owned(),
        arguments: "{}".to_owned(),
    });
    let failed = ReplyPart::Failed(RequestError::new(ErrorKind::Internal, "lost"));
    for part in [call, failed] {
        let mut stream = CompletionStream::new(head(), ResponseForm::default(), texts(&["p"], 1));
        stream.write(ReplyEvent {
            index: 0,
            part: started(),
        });
        let written = stream.write(ReplyEvent { index: 0, part });
        let data: Value = serde_json::from_str(&written[0].data).expect("the error is JSON");
        assert_eq!(data["error"]["type"], "server_error");
        assert!(stream.is_closed());
        assert!(stream.close().is_empty());
    }

    let mut stream = CompletionStream::new(head(), ResponseForm::default(), texts(&["p"], 1));
    assert!(stream.close()[0].data.contains("interrupted"));
    let mut collector = CompletionCollector::new(texts(&["p"], 1));
    let unknown = ReplyEvent {
        index: 1,
        part: started(),
    };
    assert!(collector.add(unknown).is_err());
    assert!(collector.finish(&head()).is_err());
}
