//! Sampling on the emulator: what is drawn is what the reference draws from the same logits, in every way to get there.

use warpwright_engine::{
    Batch, BatchOptions, Decoder, Launch, LogProbabilities, Options, Prefer, Sampling, SequenceId,
    TokenChoice,
};
use warpwright_kernels::sample::reference;
use warpwright_model::Model;

use crate::batch::{VOCAB, small};
use crate::decode::{emulator, generate};

/// Everything at once.
fn all() -> Sampling {
    Sampling {
        temperature: 1.3,
        top_k: 60,
        top_p: 0.93,
        min_p: 0.02,
        typical_p: 0.95,
        repeat_penalty: 1.2,
        presence_penalty: 0.1,
        frequency_penalty: -0.2,
        penalty_window: 7,
        logit_bias: vec![(3, 0.5), (17, -100.0)],
        seed: 0xfeed_5eed_0123,
        logprobs: 4,
    }
}

const SAMPLED: TokenChoice = TokenChoice::Sampled { logprobs: 4 };

fn sampled(model: &Model, options: Options, sampling: &Sampling) -> Decoder {
    let options = Options {
        choice: SAMPLED,
        ..options
    };
    let mut decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
    decoder.set_sampling(sampling).unwrap();
    decoder
}

/// Biased and penalized logits after these tokens.
pub(crate) fn adjusted(logits: &[f32], sampling: &Sampling, tokens: &[u32]) -> Vec<f32> {
    let latest = &tokens[tokens
        .len()
        .saturating_sub(sampling.penalty_window as usize)..];
    let biases: Vec<_> = sampling
        .logit_bias
        .iter()
        .map(|(token, bias)| [*token, bias.to_bits()])
        .collect();
    reference::adjusted(logits, &sampling.params(), latest, &biases)
}

/// What the reference draws after these tokens.
fn drawn(logits: &[f32], sampling: &Sampling, tokens: &[u32]) -> u32 {
    let position = tokens.len() as u32 - 1;
    reference::choose(
        &adjusted(logits, sampling, tokens),
        &sampling.params(),
        position,
    )
    .unwrap()
}

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * i * 7 + 3 * i) % 11).collect()
}

/// Several turns; after each the logits are read, and what is drawn from them compared.
fn check(name: &str, model: &Model, options: Options, lens: &[u32]) {
    let (sampling, mut tokens) = (all(), vec![]);
    let mut decoder = sampled(model, options, &sampling);
    for &len in lens {
        let given = prompt(len);
        decoder.prefill(&given).unwrap();
        tokens.extend(given);
        for _ in 0..2 {
            let logits = decoder.last_logits().unwrap();
            let token = decoder.decode(1).unwrap().next().unwrap().unwrap();
            assert_eq!(
                token,
                drawn(&logits, &sampling, &tokens),
                "{name}, after {} tokens",
                tokens.len()
            );
            tokens.push(token);
        }
    }
}

#[test]
fn every_path_draws_what_the_reference_draws() {
    let model = small("sampled-paths");
    let options = Options::new(128, Launch::Graph);
    let simple = Options {
        prefer: Prefer::Simple,
        ..options
    };
    check(
        "chunks",
        &model,
        Options {
            chunk: 16,
            ..options
        },
        &[20, 1],
    );
    check(
        "steps",
        &model,
        Options {
            chunk: 0,
            prefill_batch: 4,
            ..options
        },
        &[5, 2],
    );
    check(
        "token by token",
        &model,
        Options {
            chunk: 0,
            prefill_batch: 1,
            ..options
        },
        &[3],
    );
    check("simple kernels", &model, simple, &[4]);
}

#[test]
fn every_launch_gives_the_same_text() {
    let model = small("sampled-launches");
    let of = |launch, tokens_per_launch| {
        let options = Options {
            tokens_per_launch,
            prefill_batch: 1,
            chunk: 0,
            ..Options::new(40, launch)
        };
        generate(&mut sampled(&model, options, &all()), &prompt(5), 9)
    };
    let wanted = of(Launch::Eager, 1);
    assert_eq!(wanted.len(), 9);
    for (launch, tokens) in [
        (Launch::Graph, 8),
        (Launch::Graph, 1),
        (Launch::Plain, 5),
        (Launch::Capture, 8),
    ] {
        assert_eq!(of(launch, tokens), wanted, "{launch:?} {tokens}");
    }
}

#[test]
fn parameters_change_between_launches() {
    let model = small("sampled-changes");
    let options = Options {
        prefill_batch: 1,
        chunk: 0,
        ..Options::new(40, Launch::Graph)
    };
    let greedy = generate(
        &mut Decoder::new(&emulator(), &model, options, |_| ()).unwrap(),
        &prompt(5),
        6,
    );
    let mut decoder = Decoder::new(
        &emulator(),
        &model,
        Options {
            choice: SAMPLED,
            ..options
        },
        |_| (),
    )
    .unwrap();
    let mut texts = vec![];
    let seeded = |seed| Sampling { seed, ..all() };
    for sampling in [
        None,
        Some(seeded(1)),
        Some(seeded(2)),
        Some(seeded(1)),
        Some(Sampling::greedy()),
    ] {
        if let Some(sampling) = &sampling {
            decoder.set_sampling(sampling).unwrap();
        }
        texts.push(generate(&mut decoder, &prompt(5), 6));
    }

    assert_eq!([&texts[0], &texts[4]], [&greedy; 2]);
    assert_eq!(texts[1], texts[3]);
    assert!(texts[1] != texts[2] && texts[1] != greedy, "{texts:?}");
}

/// Natural logarithms of probabilities.
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|&z| (f64::from(z) - f64::from(most)).exp())
        .sum();
    logits
        .iter()
        .map(|&z| f64::from(z) - f64::from(most) - sum.ln())
        .collect()
}

fn check_probabilities(found: &LogProbabilities, adjusted: &[f32], chosen: u32) {
    let wanted = log_softmax(adjusted);
    let near =
        |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-6, "{found} is not {wanted}");
    near(found.chosen, wanted[chosen as usize]);
    let mut order: Vec<usize> = (0..adjusted.len()).collect();
    order.sort_by(|&a, &b| adjusted[b].total_cmp(&adjusted[a]).then(a.cmp(&b)));
    assert_eq!(found.best.len(), 4);
    for ((token, found), wanted_token) in found.best.iter().zip(order) {
        assert_eq!(*token as usize, wanted_token);
        near(*found, wanted[wanted_token]);
    }
}

#[test]
fn log_probabilities_are_those_of_float64() {
    let model = small("sampled-probabilities");
    let off = Sampling {
        logprobs: 4,
        seed: 3,
        ..Sampling::off()
    };
    for sampling in [all(), off] {
        let mut decoder = sampled(&model, Options::new(40, Launch::Graph), &sampling);
        let mut tokens = prompt(6);
        decoder.prefill(&tokens).unwrap();
        for _ in 0..2 {
            let logits = decoder.last_logits().unwrap();
            let mut generation = decoder.decode(1).unwrap();
            let token = generation.next().unwrap().unwrap();
            let found = generation.log_probabilities().unwrap();
            check_probabilities(&found, &adjusted(&logits, &sampling, &tokens), token);
            tokens.push(token);
        }
    }
}

/// Three sequences with parameters of their own: greedy, with everything, with the whole distribution.
fn parameters() -> [Sampling; 3] {
    [
        Sampling::greedy(),
        all(),
        Sampling {
            seed: 9,
            ..Sampling::off()
        },
    ]
}

/// The texts of these sequences of a batch: a prompt, then decode steps.
fn texts(batch: &mut Batch, which: &[usize], tokens: u32) -> Vec<Vec<u32>> {
    let joined: Vec<(SequenceId, Vec<u32>)> = which
        .iter()
        .map(|&i| {
            let id = batch.join().unwrap();
            batch.set_sampling(id, &parameters()[i]).unwrap();
            (id, prompt(3 + 4 * i as u32))
        })
        .collect();
    let firsts: Vec<u32> = joined
        .iter()
        .map(|(id, prompt)| batch.step(&[(*id, prompt)]).unwrap()[0])
        .collect();
    let work: Vec<_> = joined
        .iter()
        .zip(&firsts)
        .map(|((id, _), &first)| (*id, first))
        .collect();
    let made = batch.decode(&work, tokens).unwrap();
    for (id, _) in &joined {
        batch.leave(*id).unwrap();
    }

    firsts
        .into_iter()
        .zip(made)
        .map(|(first, rest)| [vec![first], rest].concat())
        .collect()
}

#[test]
fn neighbours_change_no_token() {
    let model = small("sampled-neighbours");
    let options = BatchOptions {
        bucket: Some(8),
        choice: SAMPLED,
        ..BatchOptions::new(4, 64)
    };
    let mut batch = Batch::new(&emulator(), &model, options, |_| ()).unwrap();
    let alone: Vec<Vec<u32>> = (0..3)
        .map(|i| texts(&mut batch, &[i], 5).remove(0))
        .collect();
    assert!(alone[0] != alone[1] && alone[1] != alone[2]);
    let together = texts(&mut batch, &[2, 0, 1], 5);
    assert_eq!(
        [&together[1], &together[2], &together[0]],
        [&alone[0], &alone[1], &alone[2]]
    );
}

#[test]
fn a_batch_draws_what_the_reference_draws() {
    let model = small("sampled-batch");
    let options = BatchOptions {
        choice: SAMPLED,
        ..BatchOptions::new(3, 64)
    };
    let mut batch = Batch::new(&emulator(), &model, options, |_| ()).unwrap();
    let sampling = all();
    let (greedy, id) = (batch.join().unwrap(), batch.join().unwrap());
    batch.set_sampling(id, &sampling).unwrap();
    let (mut tokens, other) = (prompt(9), prompt(4));
    let mut next = batch.step(&[(greedy, &other), (id, &tokens)]).unwrap();
    let drawn_now =
        |batch: &Batch, tokens: &[u32]| drawn(&batch.logits(id).unwrap(), &sampling, tokens);
    assert_eq!(next[1], drawn_now(&batch, &tokens));
    let found = batch.log_probabilities(id, 8).unwrap().unwrap();
    check_probabilities(
        &found,
        &adjusted(&batch.logits(id).unwrap(), &sampling, &tokens),
        next[1],
    );
    for _ in 0..2 {
        tokens.push(next[1]);
        let made = batch
            .decode(&[(id, next[1]), (greedy, next[0])], 1)
            .unwrap();
        next = vec![made[1][0], made[0][0]];
        assert_eq!(next[1], drawn_now(&batch, &tokens));
    }

    let forked = batch.fork(id, 5).unwrap();
    let next = batch.step(&[(forked, &tokens[5..])]).unwrap()[0];
    assert_eq!(
        next,
        drawn(&batch.logits(forked).unwrap(), &sampling, &tokens)
    );
}

#[test]
fn what_is_out_of_range_is_refused() {
    let refusal = |sampling: Sampling| sampling.check(VOCAB).unwrap_err().to_string();
    let off = Sampling::off();
    let says = |sampling: Sampling, sentence: &str| assert_eq!(refusal(sampling), sentence);
    says(
        Sampling {
            temperature: 0.001,
            ..off.clone()
        },
        "the temperature is 0.001, but must be 0 (greedy) or from 0.01 to 100",
    );
    says(
        Sampling {
            top_p: 0.0,
            ..off.clone()
        },
        "the sampling option top_p is 0, but must be from 0.000001 to 1",
    );
    says(
        Sampling {
            min_p: f64::NAN,
            ..off.clone()
        },
        "the sampling option min_p is NaN, but must be from 0 to 1",
    );
    says(
        Sampling {
            penalty_window: 2000,
            ..off.clone()
        },
        "the sampling option penalty_window is 2000, but must be from 0 to 1024",
    );
    says(
        Sampling {
            logit_bias: vec![(1, 1e5)],
            ..off.clone()
        },
        "the sampling option logit_bias is 100000, but must be from -10000 to 10000",
    );
    says(
        Sampling {
            logit_bias: vec![(160, 1.0)],
            ..off.clone()
        },
        "the logit bias of token 160 is invalid: the vocabulary has 160 tokens",
    );
    says(
        Sampling {
            logit_bias: vec![(7, 1.0), (7, 2.0)],
            ..off
        },
        "token 7 has two logit biases: pass one",
    );
    let model = small("sampled-refused");
    let mut greedy =
        Decoder::new(&emulator(), &model, Options::new(8, Launch::Eager), |_| ()).unwrap();
    assert_eq!(
        greedy.set_sampling(&all()).unwrap_err().to_string(),
        "cannot sample: tokens are chosen greedily unless the decoder or the batch is created with TokenChoice::Sampled"
    );
}
