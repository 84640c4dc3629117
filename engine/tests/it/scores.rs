//! Log-likelihoods and hidden states, however tokens go in, held to float64.

use warpwright_engine::{Decoder, Error, Launch, Options, Prefer};
use warpwright_model::Model;

use crate::batch::{VOCAB, small};
use crate::decode::{bits, distance, emulator, generate};
use crate::oracle::{self, Keep, Place};

const LEN: u32 = 27;

fn tokens() -> Vec<u32> {
    (0..LEN).map(|i| (i * 37 + 11 + i * i) % VOCAB).collect()
}

/// In a chunk of 16 tokens and what is left by eight; by eight; without a batch, where logits need steps of one token, and
/// hidden states do not; by the simple kernels. With how far a log-likelihood and a hidden state may be off.
fn ways() -> [(Options, [f64; 2]); 4] {
    let options = Options::new(64, Launch::Graph);
    let few = Options {
        chunk: 0,
        ..options
    };
    let (near, chunked) = ([1e-3; 2], [1e-2, 4e-3]);
    [
        (
            Options {
                chunk: 16,
                ..options
            },
            chunked,
        ),
        (few, near),
        (
            Options {
                prefill_batch: 1,
                ..options
            },
            [near[0], chunked[1]],
        ),
        (
            Options {
                prefer: Prefer::Simple,
                ..options
            },
            near,
        ),
    ]
}

fn decoder(model: &Model, options: Options) -> Decoder {
    Decoder::new(&emulator(), model, options, |_| ()).unwrap()
}

/// Of each token but the first.
fn likelihoods(model: &Model, ids: &[u32]) -> Vec<f64> {
    let of = |(row, id): (Vec<f64>, &u32)| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row[*id as usize] - sum.ln()
    };
    oracle::logits(model, ids, Keep::Half)
        .into_iter()
        .zip(&ids[1..])
        .map(of)
        .collect()
}

/// The residual stream after the last layer, normed.
fn hidden(model: &Model, ids: &[u32]) -> Vec<Vec<f64>> {
    let c = &model.outline.config;
    let (mut seen, norm) = (vec![], oracle::weights(model).norm);
    let keep = |place, x: &[f64]| {
        if place == Place::Stream {
            seen.push(x.to_vec());
        }
    };
    oracle::watched(model, ids, Keep::Half, keep);
    let of = |x: &Vec<f64>| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = (mean + f64::from(c.epsilon)).sqrt().recip();
        x.iter().zip(&norm).map(|(x, w)| x * scale * w).collect()
    };

    // Two norms a layer look at the stream, and then the last one.
    seen.iter()
        .skip(2 * c.layer_count() as usize)
        .step_by(2 * c.layer_count() as usize + 1)
        .map(of)
        .collect()
}

#[test]
fn log_likelihoods_are_the_oracles() {
    let (model, ids) = (small("likelihoods"), tokens());
    let wanted = likelihoods(&model, &ids);
    for (options, [bound, _]) in ways() {
        let mut decoder = decoder(&model, options);
        let found = decoder.log_likelihoods(&ids, 1).unwrap();
        let off = found
            .iter()
            .zip(&wanted)
            .map(|(f, w)| (f64::from(*f) - w).abs())
            .fold(0.0, f64::max);
        assert!(
            found.len() == wanted.len() && off < bound,
            "{options:?}: {off}"
        );
        if options.prefer == Prefer::Simple {
            continue;
        }

        // Within a batch and behind the chunk; elsewhere within the first batch, and the last token alone.
        for first in if options.chunk > 0 { [13, 20] } else { [5, 26] } {
            let fewer = decoder.log_likelihoods(&ids, first).unwrap();
            assert_eq!(
                bits(&[fewer]),
                bits(&[found[first - 1..].to_vec()]),
                "{options:?} {first}"
            );
        }
    }
}

/// They leave nothing behind.
#[test]
fn a_decoder_goes_on_after_scores() {
    let (model, ids) = (small("after-scores"), tokens());
    let mut decoder = decoder(&model, Options::new(64, Launch::Graph));
    let wanted = generate(&mut decoder, &ids, 2);
    decoder.log_likelihoods(&ids, 20).unwrap();
    assert_eq!(
        (decoder.position(), generate(&mut decoder, &ids, 2)),
        (0, wanted.clone())
    );
    assert!(decoder.hidden_states(&ids).unwrap().next().unwrap().is_ok());
    assert_eq!(
        (decoder.position(), generate(&mut decoder, &ids, 2)),
        (0, wanted)
    );
}

#[test]
fn hidden_states_are_the_oracles() {
    let (model, ids) = (small("hidden"), tokens());
    let wanted = hidden(&model, &ids);
    for (options, [_, bound]) in ways() {
        let mut decoder = decoder(&model, options);
        let rows = decoder
            .hidden_states(&ids)
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        assert_eq!(rows.len(), wanted.len());
        for (position, (row, wanted)) in rows.iter().zip(&wanted).enumerate() {
            let row: Vec<f64> = row.iter().copied().map(f64::from).collect();
            let off = distance(&row, wanted);
            assert!(off < bound, "{options:?} {position}: {off}");
        }
    }
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let model = small("scored");
    let mut decoder = decoder(&model, Options::new(8, Launch::Graph));
    let mut refused =
        |ids: &[u32], first| decoder.log_likelihoods(ids, first).unwrap_err().to_string();
    let sentence = |tokens, first| {
        format!(
            "cannot score {tokens} tokens from token {first} on: at least one token must precede the first scored one, and at least one must be scored"
        )
    };
    assert_eq!(refused(&[1, 2], 0), sentence(2, 0));
    assert_eq!(refused(&[1, 2], 2), sentence(2, 2));
    assert_eq!(refused(&[], 1), sentence(0, 1));

    // The last token is not taken in, and still must be one.
    let outside = "token 1 of the prompt is 160, but the vocabulary has 160 tokens";
    assert_eq!(refused(&[1, VOCAB], 1), outside);
    assert_eq!(
        refused(&[1; 10], 1),
        "the prompt has 9 tokens, but the context holds 8"
    );
    assert_eq!(decoder.log_likelihoods(&[1; 9], 1).unwrap().len(), 8);
    assert!(matches!(decoder.hidden_states(&[]), Err(Error::NoPrompt)));
}
