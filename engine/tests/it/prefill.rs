//! Prompts that are taken in by one call or by several, watched, and stopped between chunks.

use std::ops::ControlFlow::{self, Break, Continue};

use ptx_gen::f16;
use warpwright_engine::{CachedTokens, Decoder, Error, Launch, Options, Prefer};
use warpwright_model::Model;

use crate::batch::{VOCAB, small};
use crate::decode::{bits, distance, emulator, generate, logits, numbers};
use crate::oracle::{self, Keep};
use crate::synth::{Q4_0, Synth, synth};
use crate::write::Entry;

fn model(test: &str) -> Model {
    small(&format!("prefill-{test}"))
}

fn decoder(model: &Model, options: Options) -> Decoder {
    Decoder::new(&emulator(), model, options, |_| ()).unwrap()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * 37 + 11 + i * i) % VOCAB).collect()
}

/// In chunks of 16 tokens, eight tokens a step, and one by one. Steps of one token and of eight have the same plan and
/// so the same bits.
fn ways(ctx: u32) -> [Options; 4] {
    let tuning = "2x4_first".parse().unwrap();
    let options = Options {
        tuning,
        ..Options::new(ctx, Launch::Graph)
    };
    let few = Options {
        chunk: 0,
        ..options
    };
    [
        Options {
            chunk: 16,
            ..options
        },
        few,
        Options {
            prefer: Prefer::Simple,
            ..few
        },
        Options {
            launch: Launch::Eager,
            ..few
        },
    ]
}

/// The logits after tokens that are taken in by calls of these lengths, and the tokens that follow.
fn after(decoder: &mut Decoder, tokens: &[u32], calls: &[usize]) -> (Vec<u32>, Vec<u32>) {
    decoder.reset();
    let mut rest = tokens;
    for &call in calls {
        let (now, later) = rest.split_at(call);
        decoder.prefill(now).unwrap();
        rest = later;
    }

    assert_eq!((rest.len(), decoder.position() as usize), (0, tokens.len()));
    let logits = decoder.last_logits().unwrap();
    let next: Result<Vec<u32>, Error> = decoder.decode(4).unwrap().collect();
    (bits(&[logits]), next.unwrap())
}

#[test]
fn several_calls_are_one() {
    let (model, ids) = (model("calls"), tokens(43));
    for (i, options) in ways(64).into_iter().enumerate() {
        let mut decoder = decoder(&model, options);
        let wanted = after(&mut decoder, &ids, &[43]);
        assert_eq!(generate(&mut decoder, &ids, 4), wanted.1, "{options:?}");

        // A chunk begins with a call, so chunks of 16 want calls of multiples of it.
        let calls = if i == 0 {
            &[16, 16, 1, 4, 6][..]
        } else {
            &[5, 33, 4, 1]
        };
        assert_eq!(
            after(&mut decoder, &ids, calls),
            wanted,
            "{options:?} {calls:?}"
        );
    }
}

/// A decoder that goes back, and one that has a conversation in common with a new one, are as if they had been given
/// just these tokens.
#[test]
fn what_stays_is_as_if_it_were_given_anew() {
    let (model, ids) = (model("cached"), tokens(43));
    // Chunks end elsewhere, so that their bits are others.
    for options in &ways(64)[1..] {
        let mut decoder = decoder(&model, *options);
        let wanted = [20, 43].map(|len| after(&mut decoder, &ids[..len], &[len]));
        let mut cached = CachedTokens::default();

        // What the decoder had before, how much of it stays, and which tokens there are then.
        let other = [&ids[..30], &[1, 2, 3, 4]].concat();
        decoder.reset();
        for (tokens, kept) in [
            (&other[..], 0),
            (&ids[..], 30),
            (&ids[..20], 20),
            (&ids[..20], 20),
            (&ids[..], 20),
        ] {
            assert_eq!(
                cached
                    .prefill(&mut decoder, tokens, |_| Continue(()))
                    .unwrap(),
                kept,
                "{options:?}"
            );
            assert_eq!(
                (cached.tokens(), decoder.position() as usize),
                (tokens, tokens.len())
            );
            let logits = bits(&[decoder.last_logits().unwrap()]);
            let mut next = vec![];
            for token in decoder.decode(4).unwrap() {
                next.push(token.unwrap());
                cached.push(next[next.len() - 1]);
            }

            let index = if tokens.len() == 20 { 0 } else { 1 };
            assert!(
                tokens == other || (logits, next) == wanted[index],
                "{options:?} {tokens:?}"
            );
        }
    }
}

#[test]
fn a_decoder_goes_back_to_tokens_that_it_has() {
    let (model, ids) = (model("rewind"), tokens(9));
    let mut decoder = decoder(&model, Options::new(16, Launch::Graph));
    let sentence = |done: Result<(), Error>| done.unwrap_err().to_string();
    assert_eq!(
        sentence(decoder.rewind(1, 0)),
        "cannot keep the first 1 tokens: the sequence has only 0"
    );
    decoder.prefill(&ids).unwrap();
    let wanted = format!("token 3 of the prompt is {VOCAB}, but the vocabulary has {VOCAB} tokens");
    assert_eq!(sentence(decoder.rewind(4, VOCAB)), wanted);
    assert_eq!(decoder.position(), 9);
    decoder.rewind(0, 0).unwrap();
    assert_eq!(decoder.position(), 0);

    // Tokens that do not fit change nothing but what had to go.
    let mut cached = CachedTokens::default();
    cached
        .prefill(&mut decoder, &ids, |_| Continue(()))
        .unwrap();
    let long = [&ids[..5], &[1; 12]].concat();
    let error = cached
        .prefill(&mut decoder, &long, |_| Continue(()))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the prompt has 12 tokens after 5, but the context holds 16"
    );
    assert_eq!((cached.tokens(), decoder.position()), (&ids[..5], 5));

    // A break leaves what was taken in.
    assert_eq!(
        cached.prefill(&mut decoder, &ids, |_| Break(())).unwrap(),
        5
    );
    assert_eq!(cached.tokens().len() as u32, decoder.position());
}

/// Chunks begin at a call's first token, also where the call before left its last token to the next step.
#[test]
fn chunks_begin_with_a_call() {
    let (model, ids) = (model("borders"), tokens(53));
    let mut decoder = decoder(
        &model,
        Options {
            chunk: 24,
            ..Options::new(64, Launch::Graph)
        },
    );
    assert_eq!(
        [15, 16, 23, 24, 64].map(|tokens| decoder.at_once(tokens)),
        [8, 16, 23, 24, 24]
    );
    let wanted = after(&mut decoder, &ids, &[5, 48]);
    assert_eq!(after(&mut decoder, &ids, &[2, 3, 24, 24]), wanted);
    assert_eq!(after(&mut decoder, &ids, &[1, 4, 24, 24]), wanted);
}

/// Short chunks against steps of few tokens.
#[test]
fn chunks_of_every_length_agree() {
    let (model, ids) = (model("lengths"), tokens(75));
    let of = |chunk| {
        let mut decoder = decoder(
            &model,
            Options {
                chunk,
                ..Options::new(80, Launch::Graph)
            },
        );
        decoder.prefill(&ids).unwrap();
        decoder
            .last_logits()
            .unwrap()
            .into_iter()
            .map(f64::from)
            .collect::<Vec<_>>()
    };
    let wanted = of(0);
    for chunk in [16, 37, u32::MAX] {
        let found = distance(&of(chunk), &wanted);
        assert!(found > 0.0 && found < 2e-3, "{chunk}: {found:e}");
    }
}

/// Products with a trained model's Q4_K and Q6_K, whose groups are rounded to binary16 while they are unpacked.
#[test]
fn a_chunk_of_a_trained_model_agrees_with_float64() {
    let model = Model::open(&crate::asset()).unwrap();
    let run = &crate::reference()["Q4_K_M"][0];
    let ids = [
        crate::ids(&run["prompt_ids"]),
        crate::ids(&run["greedy_ids"]),
    ]
    .concat();
    let ids = &ids[..16];
    let mut decoder = decoder(&model, Options::new(16, Launch::Eager));
    let found = numbers(&logits(&mut decoder, ids)).concat();
    let off = distance(&found, &oracle::logits(&model, ids, Keep::Exact).concat());
    assert!(off < 1.6e-3, "{off:e}");
}

/// A row and a block whose weights are all zero, though their scales are not.
#[test]
fn zeros_with_large_scales_are_zeros() {
    let zeros = |matrix: &mut Entry| {
        for block in matrix.data.chunks_exact_mut(18).take(9) {
            block[..2].copy_from_slice(&f16::from_f32(6e4).0.to_le_bytes());
            block[2..].fill(0x88);
        }
    };
    let file = synth(Synth {
        arch: "llama",
        formats: &[Q4_0],
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        tied: false,
        scaled: false,
        vocab: VOCAB,
    });
    let file = file.edit("blk.0.ffn_up.weight", zeros);
    let model = Model::open(&file.save("prefill-zeros.gguf")).unwrap();
    let ids = &tokens(16);
    let mut decoder = decoder(&model, Options::new(16, Launch::Eager));
    let found = numbers(&logits(&mut decoder, ids)).concat();
    let off = distance(&found, &oracle::logits(&model, ids, Keep::Exact).concat());
    assert!(off < 2e-3, "{off:e}");
}

/// Of a text that is read in part, what was read counts, whatever steps were launched beyond.
#[test]
fn a_prompt_goes_on_after_a_text() {
    let (model, ids) = (model("turns"), tokens(30));
    for options in &ways(64)[1..] {
        let mut decoder = decoder(&model, *options);
        decoder.prefill(&ids[..9]).unwrap();
        let read: Vec<u32> = decoder
            .decode(20)
            .unwrap()
            .take(3)
            .map(Result::unwrap)
            .collect();
        assert_eq!(decoder.position(), 12);
        let _ = decoder.decode(20).unwrap();
        let more: Vec<u32> = decoder.decode(2).unwrap().map(Result::unwrap).collect();
        decoder.prefill(&ids[9..]).unwrap();
        let found = (bits(&[decoder.last_logits().unwrap()]), decoder.position());
        let all = [&ids[..9], &read, &more, &ids[9..]].concat();
        let (wanted, _) = after(&mut decoder, &all, &[all.len()]);
        assert_eq!(found, (wanted, 35), "{options:?}");
        assert_eq!(
            generate(&mut decoder, &ids[..9], 5),
            [read, more].concat(),
            "{options:?}"
        );
    }
}

/// As a caller does that chooses tokens itself: each goes through the model once.
#[test]
fn tokens_may_be_chosen_from_the_logits() {
    let (model, ids) = (model("chosen"), tokens(20));
    for options in ways(32) {
        let mut decoder = decoder(&model, options);
        let wanted = generate(&mut decoder, &ids, 6);
        decoder.reset();
        decoder.prefill(&ids).unwrap();
        for token in wanted {
            let logits = decoder.last_logits().unwrap();
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(
                logits.iter().position(|logit| *logit == most),
                Some(token as usize),
                "{options:?}"
            );
            decoder.prefill(&[token]).unwrap();
        }
    }
}

/// The token after a chunk is made as often as it is asked for.
#[test]
fn a_chunk_is_continued_again() {
    let (model, ids) = (model("again"), tokens(32));
    let mut decoder = decoder(
        &model,
        Options {
            chunk: 16,
            ..Options::new(64, Launch::Graph)
        },
    );
    let wanted = generate(&mut decoder, &ids, 12);
    decoder.reset();
    decoder.prefill(&ids).unwrap();
    let _ = decoder.decode(12).unwrap();
    decoder.last_logits().unwrap();
    let found: Vec<u32> = decoder.decode(12).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, wanted);
}

/// What is heard of a prompt whose progress breaks after `most` calls, and how many tokens were taken in.
fn watched(decoder: &mut Decoder, tokens: &[u32], most: usize) -> (Vec<u32>, u32) {
    let mut heard = vec![];
    let progress = |taken| -> ControlFlow<()> {
        heard.push(taken);
        if heard.len() == most {
            Break(())
        } else {
            Continue(())
        }
    };
    let taken = decoder.prefill_with(tokens, progress).unwrap();
    (heard, taken)
}

/// A decoder that was stopped is one that was given just the tokens that it took in.
#[test]
fn a_prompt_can_be_stopped_between_chunks() {
    let (model, ids) = (model("stopped"), tokens(150));
    let [chunks, few, simple, _] = ways(160);
    let cases: [(Options, usize, &[u32]); 3] = [
        (chunks, 40, &[16, 32, 40]),
        (few, 100, &[64, 100]),
        (simple, 20, &[8, 16, 20]),
    ];
    for (options, len, pieces) in cases {
        let (mut decoder, ids) = (decoder(&model, options), &ids[..len]);
        assert_eq!(
            watched(&mut decoder, ids, usize::MAX),
            (pieces.to_vec(), len as u32)
        );
        let whole = after(&mut decoder, ids, &[len]);
        for most in 1..pieces.len() {
            decoder.reset();
            let taken = pieces[most];
            assert_eq!(
                watched(&mut decoder, ids, most),
                (pieces[..most].to_vec(), taken),
                "{options:?}"
            );
            assert_eq!(decoder.position(), taken, "{options:?}");
            let found = bits(&[decoder.last_logits().unwrap()]);
            if (taken as usize) < len {
                decoder.prefill(&ids[taken as usize..]).unwrap();
            }

            assert_eq!(
                bits(&[decoder.last_logits().unwrap()]),
                whole.0,
                "{options:?} {most}"
            );
            assert_eq!(
                generate(&mut decoder, ids, 4),
                whole.1,
                "{options:?} {most}"
            );
            let (wanted, _) = after(&mut decoder, &ids[..taken as usize], &[taken as usize]);
            assert_eq!(found, wanted, "{options:?} {most}");
        }
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let (model, ids) = (model("refused"), tokens(40));
    let mut decoder = decoder(
        &model,
        Options {
            chunk: 16,
            ..Options::new(40, Launch::Graph)
        },
    );
    let none = "the prompt is empty: a model needs at least one token to continue from";
    assert_eq!(decoder.decode(4).err().unwrap().to_string(), none);
    assert_eq!(decoder.last_logits().unwrap_err().to_string(), none);
    decoder.prefill(&ids[..21]).unwrap();
    let wanted = decoder.last_logits().unwrap();
    let refused: [(&[u32], &str); 3] = [
        (&[], none),
        (
            &ids[20..],
            "the prompt has 20 tokens after 21, but the context holds 40",
        ),
        (
            &[1, VOCAB],
            "token 1 of the prompt is 160, but the vocabulary has 160 tokens",
        ),
    ];
    for (tokens, sentence) in refused {
        assert_eq!(decoder.prefill(tokens).unwrap_err().to_string(), sentence);
        let watched = decoder.prefill_with(tokens, |_| panic!("nothing is taken in"));
        assert_eq!(watched.unwrap_err().to_string(), sentence);
        assert_eq!(
            (decoder.position(), decoder.last_logits().unwrap()),
            (21, wanted.clone())
        );
    }

    decoder.prefill(&ids[21..]).unwrap();
    assert_eq!(decoder.position(), 40);

    // The last position makes one more token, for which there is none.
    assert_eq!(decoder.decode(9).unwrap().count(), 1);
    let full = "the prompt has 2 tokens after 41, but the context holds 40";
    assert_eq!(decoder.prefill(&[1, 2]).unwrap_err().to_string(), full);
    assert_eq!(decoder.decode(9).unwrap().count(), 0);
    let full = "the context of 40 positions is full: the last token has no position";
    assert_eq!(decoder.last_logits().unwrap_err().to_string(), full);
    assert_eq!(generate(&mut decoder, &ids[..21], 2).len(), 2);
}

/// Rows of logits start anew, and leave no tokens.
#[test]
fn rows_of_logits_leave_no_tokens() {
    let (model, ids) = (model("rows"), tokens(20));
    let mut decoder = decoder(
        &model,
        Options {
            chunk: 16,
            ..Options::new(40, Launch::Graph)
        },
    );
    decoder.prefill(&ids).unwrap();
    let last = decoder.last_logits().unwrap();
    let rows: Vec<Vec<f32>> = decoder.logits(&ids).unwrap().map(Result::unwrap).collect();
    assert_eq!(bits(&rows[19..]), bits(&[last]));
    assert_eq!(decoder.position(), 0);
    assert!(matches!(decoder.decode(1), Err(Error::NoPrompt)));
}
