//! Input that cannot be used: one whole sentence, the right exit code, and no file left behind.

use std::fs;

use crate::program::{End, MODEL, run};

pub(crate) fn refused(code: i32, sentence: &str) -> End {
    End {
        code: Some(code),
        out: String::new(),
        err: format!("error: {sentence}\n"),
    }
}

#[test]
fn a_model_that_is_no_model_is_named() {
    let cases = [
        (
            "no-such.gguf",
            "cannot open no-such.gguf: No such file or directory (os error 2)",
        ),
        (
            "LICENSE-MIT",
            "LICENSE-MIT: not a GGUF file: it starts with [4d, 49, 54, 20], not with \"GGUF\"",
        ),
    ];
    for (file, sentence) in cases {
        let commands: [&[&str]; 4] = [
            &["info", file],
            &["run", file, "--prompt", "x"],
            &["logits", file, "--ids", "1", "--out", "no-such-output"],
            &["graph", file, "--dot", "no-such-output"],
        ];
        for arguments in commands {
            assert_eq!(run(arguments), refused(2, sentence), "{arguments:?}");
        }
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_refused() {
    // So many that the emulator would take days, if there were room for them.
    let long = "a".repeat(100_000);
    let cases: [(&[&str], &str); 4] = [
        (
            &["--prompt", &long],
            "the prompt has 50001 tokens, but the context holds 2048",
        ),
        (
            &["--prompt-ids", "5000"],
            "token 0 of the prompt is 5000, but the vocabulary has 4096 tokens",
        ),
        (
            &["--prompt-ids", "1,5,9", "--ctx", "2"],
            "the prompt has 3 tokens, but the context holds 2",
        ),
        (
            &["--prompt", "x", "--ctx", "4096"],
            "invalid context of 4096 positions: this model supports 1 to 2048",
        ),
    ];
    for (arguments, sentence) in cases {
        let arguments = [&["run", MODEL, "--device", "emu"], arguments].concat();
        assert_eq!(run(&arguments), refused(2, sentence), "{arguments:?}");
    }
}

#[test]
fn a_context_above_the_models_is_refused() {
    let commands: [&[&str]; 3] = [
        &["run", MODEL, "--prompt-ids", "1"],
        &["logits", MODEL, "--ids", "1", "--out", "no-such-output"],
        &["graph", MODEL, "--dot", "no-such-output"],
    ];
    for command in commands {
        let arguments = [command, &["--device", "emu", "--ctx", "2049"]].concat();
        let sentence = "invalid context of 2049 positions: this model supports 1 to 2048";
        assert_eq!(run(&arguments), refused(2, sentence), "{arguments:?}");
    }
}

#[test]
fn a_failed_logits_run_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("logits");
    let end = run(&[
        "logits",
        MODEL,
        "--device",
        "emu",
        "--ids",
        "1,4096",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    assert_eq!(
        end,
        refused(
            2,
            "token 1 of the prompt is 4096, but the vocabulary has 4096 tokens"
        )
    );
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let end = run(&[
        "logits",
        MODEL,
        "--device",
        "emu",
        "--ids",
        "1",
        "--out",
        "no-such-folder/logits",
    ]);
    assert_eq!(end.code, Some(1));
    assert!(
        end.err
            == "error: cannot write no-such-folder/logits: No such file or directory (os error 2)\n",
        "{}",
        end.err
    );
}

#[test]
fn a_bench_without_room_is_refused_before_it_starts() {
    let cases: [(&[&str], &str); 5] = [
        (
            &["--shape", "llama3.1-8b"],
            "--shape needs the format of its weights, such as --quant q4_k_m",
        ),
        (
            &[MODEL, "--ctx", "1,4096"],
            "256 tokens from context 4096 on need 4351 positions; this model has 2048",
        ),
        (
            &[MODEL, "--tokens", "2000"],
            "2000 tokens from context 128 on need 2127 positions; this model has 2048",
        ),
        (
            &["--shape", "qwen2.5-0.5b", "--quant", "q6_k"],
            "qwen2.5-0.5b cannot be quantized as q6_k: tensor \"blk.0.attn_q.weight\" has rows of 896 weights, \
             Q6_K needs a multiple of 256 (possible are iq4_nl, mxfp4, q4_1, q5_0, q5_1, q4_0, q8_0, bf16, f16, f32)",
        ),
        (
            &["--shape", "llama3.1-8b", "--quant", "f32"],
            "the model needs 30.5 GiB of device memory (weights 29.9 GiB, cache of 4351 positions 544.0 MiB, \
             work 9.7 MiB), but 16.0 GiB of 16.0 GiB are free, too few for any context: use a smaller model or \
             quantization",
        ),
    ];
    for (arguments, sentence) in cases {
        let arguments = [&["bench", "--device", "emu"], arguments].concat();
        assert_eq!(run(&arguments), refused(2, sentence), "{arguments:?}");
    }
}

/// Token ids go in and come out where no tokenizer can be made, and the refusal of a text says so.
#[test]
fn a_model_without_its_tokenizer_decodes_ids() {
    let mut bytes = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../assets/rustdoc-7m-Q4_K_M.gguf"
    ))
    .unwrap();
    let key = b"tokenizer.ggml.model";
    let at = bytes
        .windows(key.len())
        .position(|found| found == key)
        .expect("the key")
        + key.len();
    let value = at + 12..at + 16; // after the type and the length
    assert_eq!(&bytes[value.clone()], b"gpt2");
    bytes[value].copy_from_slice(b"bert");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("no-tokenizer.gguf");
    fs::write(&path, bytes).unwrap();
    let file = path.to_str().expect("UTF-8");
    let place = ["--device", "emu", "-n", "2", "--quiet"];
    let sentence = format!(
        "{file}: tokenizer.ggml.model is \"bert\"; supported: gpt2 (byte-level BPE), llama (SentencePiece BPE), \
         t5 (unigram), gemma4; token ids need no tokenizer: --prompt-ids 1,2 --print ids"
    );
    for prompt in [["--prompt", "x"], ["--prompt-ids", "5,9"]] {
        assert_eq!(
            run(&[&["run", file], &prompt[..], &place].concat()),
            refused(2, &sentence)
        );
    }

    let end = run(&[
        &["run", file, "--prompt-ids", "5,9", "--print", "ids"],
        &place[..],
    ]
    .concat());
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert_eq!(
        end.out
            .split_whitespace()
            .filter_map(|id| id.parse::<u32>().ok())
            .count(),
        2
    );
}
