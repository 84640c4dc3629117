//! Which tokens end a text.

use warpwright_model::Model;

use crate::config::model;
use crate::write::{File, Val};

/// A vocabulary of five tokens, each with its type.
fn file(tokens: [(&str, i32); 5]) -> File {
    model("llama")
        .without("tokenizer.ggml.eos_token_id")
        .pair(
            "tokenizer.ggml.tokens",
            Val::Strs(tokens.map(|(text, _)| text.into()).into()),
        )
        .pair(
            "tokenizer.ggml.token_type",
            Val::I32s(tokens.map(|(_, kind)| kind).into()),
        )
}

fn stop(file: &File) -> Vec<u32> {
    // Tests run beside each other, and a file must not change while it is mapped.
    let name = std::thread::current().name().unwrap().replace("::", "-");
    Model::open(&file.save(&format!("{name}.gguf")))
        .unwrap()
        .outline
        .stop
}

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER: i32 = 4;

#[test]
fn every_token_for_it_ends_a_text() {
    let qwen = [
        ("a", NORMAL),
        ("<|endoftext|>", CONTROL),
        ("<|im_start|>", CONTROL),
        ("<|im_end|>", CONTROL),
        ("b", NORMAL),
    ];
    assert_eq!(stop(&file(qwen)), [1, 3]);
    assert_eq!(
        stop(&file(qwen).pair("tokenizer.ggml.eos_token_id", Val::U32(3))),
        [1, 3]
    );
    assert_eq!(
        stop(&file(qwen).pair("tokenizer.ggml.eos_token_id", Val::U32(4))),
        [1, 3, 4]
    );
    let llama = [
        ("<|end_of_text|>", CONTROL),
        ("<|eot_id|>", CONTROL),
        ("<|eom_id|>", CONTROL),
        ("<|begin_of_text|>", CONTROL),
        ("a", NORMAL),
    ];
    assert_eq!(
        stop(&file(llama).pair("tokenizer.ggml.eos_token_id", Val::U32(0))),
        [0, 1, 2]
    );
    let code = [
        ("<|fim_pad|>", USER),
        ("<|repo_name|>", USER),
        ("<|file_sep|>", USER),
        ("<|fim_prefix|>", USER),
        ("a", NORMAL),
    ];
    assert_eq!(stop(&file(code)), [0, 1, 2]);
    let more = [
        ("<end_of_turn>", CONTROL),
        ("<EOT>", CONTROL),
        ("</s>", CONTROL),
        ("<|end|>", CONTROL),
        ("a", NORMAL),
    ];
    assert_eq!(stop(&file(more)), [0, 1, 2, 3]);
}

#[test]
fn keys_name_tokens_too() {
    let tokens = ["a", "b", "c", "d", "e"].map(|text| (text, NORMAL));
    for name in ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"] {
        assert_eq!(
            stop(&file(tokens).pair(&format!("tokenizer.ggml.{name}_token_id"), Val::U32(2))),
            [2],
            "{name}"
        );
    }
    assert_eq!(
        stop(&file(tokens).pair("tokenizer.ggml.fim_mid_token_id", Val::U32(2))),
        [0; 0]
    );
}

#[test]
fn text_that_looks_like_it_does_not_end_one() {
    // What HTML writes is text where the vocabulary says so; a marker of chats never is.
    let tags = [
        ("</s>", NORMAL),
        ("[EOS]", NORMAL),
        ("<|im_end|>", NORMAL),
        ("a", NORMAL),
        ("b", NORMAL),
    ];
    assert_eq!(stop(&file(tags)), [2]);
    assert_eq!(
        stop(&file(tags).without("tokenizer.ggml.token_type")),
        [0, 1, 2]
    );

    // Channels of one reply end with <|end|>, the reply with another token.
    let harmony = [
        ("<|end|>", CONTROL),
        ("<|return|>", CONTROL),
        ("<|call|>", CONTROL),
        ("a", NORMAL),
        ("b", NORMAL),
    ];
    assert_eq!(stop(&file(harmony)), [1, 2]);
    let gemma = [
        ("</s>", CONTROL),
        ("<|tool_response>", CONTROL),
        ("<turn|>", CONTROL),
        ("a", NORMAL),
        ("b", NORMAL),
    ];
    assert_eq!(stop(&file(gemma)), [1, 2]);
}
