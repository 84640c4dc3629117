//! Logits that are not finite end a text with an error, whatever made them so and however steps are launched.

use warpwright_engine::{Decoder, Error, Launch, Options, Prefer};
use warpwright_model::Model;

use crate::decode::{emulator, generate};
use crate::synth::{Q8_0, Synth, synth};
use crate::write::{Entry, File};

const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[Q8_0],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: false,
    scaled: false,
    vocab: 304,
};
const PROMPT: [u32; 3] = [3, 300, 0];
/// Bytes of a row of 256 weights in Q8_0.
const ROW: usize = 8 * 34;
const NAN: u16 = 0x7e00;
const INFINITY: u16 = 0x7c00;

fn decoder(file: &File, name: &str, options: Options) -> (Model, Decoder) {
    let model = Model::open(&file.save(&format!("not-finite-{name}.gguf"))).unwrap();
    let decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
    (model, decoder)
}

/// The tokens before the error, and the error.
fn ending(decoder: &mut Decoder, what: &str) -> (Vec<u32>, Error) {
    let mut tokens = vec![];
    for token in decoder.generate(&PROMPT, 20).unwrap() {
        match token {
            Ok(token) => tokens.push(token),
            Err(error) => return (tokens, error),
        }
    }
    panic!("{what}: no error after {tokens:?}");
}

/// Sets the number at `index`.
fn number(index: usize, value: f32) -> impl Fn(&mut Entry) {
    move |tensor| tensor.data[4 * index..][..4].copy_from_slice(&value.to_le_bytes())
}

/// Sets the first scale of a row in Q8_0.
fn scale(row: u32, bits: u16) -> impl Fn(&mut Entry) {
    move |tensor| tensor.data[row as usize * ROW..][..2].copy_from_slice(&bits.to_le_bytes())
}

#[test]
fn what_is_not_finite_is_an_error_on_every_path() {
    type Edit = Box<dyn Fn(&mut Entry)>;
    let edit = |edit: Box<dyn Fn(&mut Entry)>| edit;
    let (qwen2, qwen3) = (
        Synth {
            arch: "qwen2",
            ..LLAMA
        },
        Synth {
            arch: "qwen3",
            ..LLAMA
        },
    );
    let cases: [(&str, Synth, &str, Edit, u32); 7] = [
        (
            "overflow",
            LLAMA,
            "blk.1.ffn_norm.weight",
            edit(Box::new(number(5, 1e30))),
            0,
        ),
        (
            "one-nan",
            LLAMA,
            "output.weight",
            edit(Box::new(scale(17, NAN))),
            17,
        ),
        (
            "one-infinity",
            LLAMA,
            "output.weight",
            edit(Box::new(scale(303, INFINITY))),
            303,
        ),
        (
            "key",
            qwen2,
            "blk.0.attn_k.bias",
            edit(Box::new(number(0, 1e5))),
            0,
        ),
        (
            "minus-key",
            qwen2,
            "blk.1.attn_k.bias",
            edit(Box::new(number(70, -1e5))),
            0,
        ),
        (
            "value",
            qwen2,
            "blk.0.attn_v.bias",
            edit(Box::new(number(1, 1e5))),
            0,
        ),
        (
            "normed-key",
            qwen3,
            "blk.1.attn_k_norm.weight",
            edit(Box::new(number(3, 1e9))),
            0,
        ),
    ];
    for (name, case, tensor, edit, token) in cases {
        let file = synth(case).edit(tensor, edit);
        for prefer in [Prefer::Fast, Prefer::Simple] {
            let options = Options {
                prefer,
                ..Options::new(32, Launch::Graph)
            };
            let (_, mut decoder) = decoder(&file, name, options);
            let (tokens, error) = ending(&mut decoder, &format!("{name} {prefer:?}"));
            assert!(tokens.is_empty(), "{name} {prefer:?}: {tokens:?}");
            let found = match error {
                Error::Logit {
                    position: 2,
                    token,
                    value,
                } if !value.is_finite() => token,
                error => panic!("{name} {prefer:?}: {error}"),
            };
            assert_eq!(found, token as usize, "{name} {prefer:?}");
            let scored = decoder.log_likelihoods(&[3, 300, 0, 1], 2).unwrap_err();
            assert!(
                matches!(scored, Error::Logit { value, .. } if !value.is_finite()),
                "{name}: {scored}"
            );
            let hidden = decoder
                .hidden_states(&PROMPT)
                .unwrap()
                .find_map(Result::err);
            match (tensor, hidden) {
                ("output.weight", None) => {}
                (_, Some(Error::HiddenState { value, .. })) if !value.is_finite() => {}
                (_, other) => panic!("{name} {prefer:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn norms_and_biases_are_checked_as_they_are_loaded() {
    let qwen2 = Synth {
        arch: "qwen2",
        ..LLAMA
    };
    let cases = [
        ("blk.1.ffn_norm.weight", 5, f32::NAN),
        ("blk.0.attn_v.bias", 127, f32::NEG_INFINITY),
    ];
    for (tensor, index, value) in cases {
        let path = synth(qwen2)
            .edit(tensor, number(index, value))
            .save("not-finite-vector.gguf");
        let model = Model::open(&path).unwrap();
        for prefer in [Prefer::Fast, Prefer::Simple] {
            let options = Options {
                prefer,
                ..Options::new(8, Launch::Graph)
            };
            let error = Decoder::new(&emulator(), &model, options, |_| ())
                .err()
                .unwrap();
            let wanted = format!(
                "{}: weight {index} of tensor \"{tensor}\" is {value}: the file is damaged, so download it again or use \
                 another one",
                path.display()
            );
            assert_eq!(error.to_string(), wanted);
        }
    }
}

/// The embedding of the third token is NaN: the two before it are right, and the error names the place.
#[test]
fn the_error_comes_where_it_happens_however_steps_are_launched() {
    let file = synth(LLAMA);
    let (_, mut healthy) = decoder(&file, "healthy", Options::new(32, Launch::Graph));
    let wanted = generate(&mut healthy, &PROMPT, 20);
    assert!(
        ![&PROMPT[..], &wanted[..2]].concat().contains(&wanted[2]),
        "{wanted:?}"
    );
    let file = file.edit("token_embd.weight", scale(wanted[2], NAN));
    for prefer in [Prefer::Fast, Prefer::Simple] {
        for (launch, tokens_per_launch) in [
            (Launch::Graph, 8),
            (Launch::Graph, 1),
            (Launch::Plain, 8),
            (Launch::Capture, 8),
            (Launch::Eager, 1),
        ] {
            let options = Options {
                prefer,
                tokens_per_launch,
                ..Options::new(32, launch)
            };
            let (_, mut decoder) = decoder(&file, "later", options);
            let (tokens, error) = ending(&mut decoder, "later");
            assert_eq!(tokens, wanted[..3], "{prefer:?} {launch:?}");
            assert_eq!(
                error.to_string(),
                "the logit of token 0 after position 5 is NaN: the file is damaged, or the model needs numbers beyond \
                 f32, or beyond f16 in its keys and values: download the file again or use another one",
                "{prefer:?} {launch:?}"
            );
        }
    }
}

#[test]
fn rounds_and_prompts_end_with_the_same_error() {
    let file = synth(LLAMA).edit("output.weight", scale(17, NAN));
    let (model, mut decoder) = decoder(&file, "round", Options::new(32, Launch::Graph));
    let is = |found: Result<(), Error>, at: u32| match found {
        Err(Error::Logit {
            position,
            token: 17,
            ..
        }) => assert_eq!(position, at),
        other => panic!("{other:?}"),
    };
    is(decoder.round(9, 4).map(|_| ()), 8);
    is(decoder.time_prefill(12).map(|_| ()), 11);
    is(
        decoder
            .logits(&PROMPT)
            .unwrap()
            .try_for_each(|row| row.map(|_| ())),
        0,
    );
    let profile = "shared=80000"
        .parse()
        .map(|tuning| warpwright_engine::Tuning {
            profile: true,
            ..tuning
        });
    let options = Options {
        tuning: profile.unwrap(),
        ..Options::new(32, Launch::Eager)
    };
    let mut decoder = decoder.with_options(&model.outline, options).unwrap();
    is(decoder.profile(9, 4).map(|_| ()), 8);
}
