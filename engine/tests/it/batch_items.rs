//! Steps of a batch with different wishes: nothing, a token, log-probabilities, grammars.

use warpwright_engine::{
    Batch, BatchItem, BatchOptions, BatchStepped, BatchWanted, Error, LogProbabilities, RowClass,
    Sampling, SequenceId, TokenChoice,
};
use warpwright_model::Model;

use crate::batch::{VOCAB, edited, file, small, tokens};
use crate::decode::emulator;
use crate::oracle::{self, Keep};

const BEST: u32 = 3;

fn batch(model: &Model, choice: TokenChoice) -> Batch {
    let options = BatchOptions {
        choice,
        bucket: Some(64),
        tokens: 96,
        ..BatchOptions::new(4, 256)
    };
    Batch::new(&emulator(), model, options, |_| ()).unwrap()
}

fn sampled(model: &Model) -> Batch {
    batch(model, TokenChoice::Sampled { logprobs: BEST })
}

/// Part of a prompt.
fn part<'a>(sequence: SequenceId, tokens: &'a [u32], wanted: BatchWanted) -> BatchItem<'a> {
    BatchItem {
        class: RowClass::Prompt,
        wanted,
        ..BatchItem::next(sequence, tokens)
    }
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

fn one(batch: &mut Batch, item: BatchItem<'_>) -> BatchStepped {
    batch.step_items(&mut [item]).unwrap().remove(0)
}

#[test]
fn parts_that_want_nothing_give_nothing_and_change_no_bit() {
    let model = small("items-nothing");
    let prompt = tokens(5, 90);
    let mut batch = batch(&model, TokenChoice::Greedy);
    let plain = batch.join().unwrap();
    for piece in [&prompt[..40], &prompt[40..41]] {
        batch.step(&[(plain, piece)]).unwrap();
    }
    let wanted = batch.step(&[(plain, &prompt[41..])]).unwrap()[0];
    let logits = batch.logits(plain).unwrap();

    // The same pieces next to another sequence, with a token for each of the last ones only.
    let a = batch.join().unwrap();
    let b = batch.join().unwrap();
    let stepped = batch
        .step_items(&mut [
            part(a, &prompt[..40], BatchWanted::Nothing),
            part(b, &prompt[..7], BatchWanted::Nothing),
        ])
        .unwrap();
    assert_eq!(stepped, [BatchStepped::default(), BatchStepped::default()]);
    assert!(matches!(batch.logits(a), Err(Error::NoLogits)));
    let stepped = batch
        .step_items(&mut [
            part(a, &prompt[40..41], BatchWanted::Nothing),
            BatchItem::next(b, &prompt[7..8]),
        ])
        .unwrap();
    assert_eq!(stepped[0], BatchStepped::default());
    assert!(stepped[1].next.is_some());
    assert!(matches!(batch.logits(a), Err(Error::NoLogits)));
    assert_eq!(batch.logits(b).unwrap().len(), VOCAB as usize);
    let stepped = one(&mut batch, BatchItem::next(a, &prompt[41..]));
    assert_eq!(stepped.next, Some(wanted));
    assert_eq!(bits(&batch.logits(a).unwrap()), bits(&logits));
    assert_eq!(batch.tokens(a).unwrap(), prompt);
}

/// Natural logarithms of the probabilities after each token, by float64.
fn exact(model: &Model, ids: &[u32]) -> Vec<Vec<f64>> {
    let rows = oracle::logits(model, ids, Keep::Exact);
    let normal = |row: Vec<f64>| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row.iter().map(|logit| logit - sum.ln()).collect()
    };
    rows.into_iter().map(normal).collect()
}

/// Compares the scores of `ids[1..]`.
fn check_scores(scores: &[LogProbabilities], ids: &[u32], exact: &[Vec<f64>], best: u32) {
    assert_eq!(scores.len(), ids.len() - 1);
    for ((score, row), token) in scores.iter().zip(exact).zip(&ids[1..]) {
        let error = (score.chosen - row[*token as usize]).abs();
        assert!(
            error < 1e-2,
            "{} for {}",
            score.chosen,
            row[*token as usize]
        );
        assert_eq!(score.best.len(), best as usize);
        let mut sorted = row.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for ((id, value), wanted) in score.best.iter().zip(sorted) {
            assert!((value - wanted).abs() < 1e-2, "{value} for {wanted}");
            assert!((value - row[*id as usize]).abs() < 1e-2);
            if id == token {
                assert_eq!(*value, score.chosen);
            }
        }
    }
}

#[test]
fn known_tokens_are_scored_in_any_parts_and_next_to_others() {
    let model = small("items-scored");
    let ids = tokens(3, 100);
    let exact = exact(&model, &ids);
    let mut batch = sampled(&model);
    let other = batch.join().unwrap();
    let mut first_bits: Option<Vec<u64>> = None;
    for (best, parts) in [
        (BEST, vec![80, 20]),
        (0, vec![1, 70, 29]),
        (1, vec![80, 20]),
    ] {
        let id = batch.join().unwrap();

        // Biases and penalties must not reach the scores, but the choice of the next token.
        let sampling = Sampling {
            logit_bias: vec![(7, 100.0)],
            repeat_penalty: 3.0,
            logprobs: 2,
            ..Sampling::off()
        };
        batch.set_sampling(id, &sampling).unwrap();
        let mut from = 0;
        let mut scores = vec![];
        for part in parts {
            let end = from + part;
            let following = ids.get(end).copied();
            let item = BatchItem {
                wanted: BatchWanted::Scored { best, following },
                ..BatchItem::next(id, &ids[from..end])
            };
            let mut work = [item, BatchItem::next(other, &[9])];
            let stepped = batch.step_items(&mut work).unwrap();
            let [first, second] = &stepped[..] else {
                panic!("{stepped:?}")
            };
            assert_eq!(first.next, following.is_none().then_some(7));
            assert!(second.next.is_some() && second.scored.is_empty());
            scores.extend(first.scored.clone());
            from = end;
        }

        check_scores(&scores, &ids, &exact, best);
        let last = ids.len() as u32 - 1;
        let chosen = batch.log_probabilities(id, last).unwrap().unwrap();
        assert_eq!(chosen.best.len(), 2);
        assert_eq!(
            chosen.best[0].0, 7,
            "the bias makes it the most likely token"
        );

        // Other numbers of best tokens change no bit.
        if best != 0 {
            let found = scores
                .iter()
                .map(|score| score.best[0].1.to_bits())
                .collect();
            assert_eq!(first_bits.get_or_insert_with(|| Vec::clone(&found)), &found);
        }
        batch.leave(id).unwrap();
    }
}

#[test]
fn wishes_that_cannot_be_met_are_refused_and_change_nothing() {
    let model = small("items-refused");
    let mut sampled = sampled(&model);
    let mut greedy = batch(&model, TokenChoice::Greedy);
    let id = sampled.join().unwrap();
    let other = greedy.join().unwrap();
    let scored = |best, following| BatchWanted::Scored { best, following };
    let mut message = |wanted| {
        let error = sampled.step_items(&mut [part(id, &[1, 2], wanted)]);
        error.unwrap_err().to_string()
    };
    assert_eq!(
        message(scored(4, None)),
        "cannot return 4 best log-probabilities per token: the batch was created for at most 3"
    );
    assert_eq!(
        message(scored(1, Some(VOCAB))),
        "token 2 of the prompt is 160, but the vocabulary has 160 tokens"
    );
    let error = greedy.step_items(&mut [part(other, &[1, 2], scored(1, None))]);
    assert!(matches!(error, Err(Error::BestTokens { best: 1, most: 0 })));
    assert!(sampled.tokens(id).unwrap().is_empty());

    // Without best tokens, a greedy batch scores too, and one token has nothing to score.
    let stepped = one(&mut greedy, part(other, &[1, 2], scored(0, None)));
    assert!(stepped.next.is_some() && stepped.scored.len() == 1);
    assert!(matches!(greedy.logits(other), Err(Error::NoLogits)));
    let stepped = one(&mut greedy, part(other, &[3], scored(0, None)));
    assert!(stepped.next.is_some() && stepped.scored.is_empty());
    greedy.logits(other).unwrap();
}

/// The embedding of token 50 is NaN.
#[test]
fn one_bad_sequence_is_named_and_the_others_go_on() {
    let bad_row = 50 * 8 * 34;
    let broken = file().edit("token_embd.weight", |table| {
        table.data[bad_row..][..2].copy_from_slice(&[0, 0x7e])
    });
    let model = edited("items-bad", &broken);
    let mut batch = sampled(&model);
    let a = batch.join().unwrap();
    let b = batch.join().unwrap();
    let c = batch.join().unwrap();
    let long: Vec<u32> = tokens(4, 70).into_iter().map(|id| id % 50).collect();
    let healthy = batch.step(&[(a, &long[..9]), (c, &long)]).unwrap();
    let logits = batch.logits(c).unwrap();
    batch.roll_back(a, 0).unwrap();
    batch.roll_back(c, 0).unwrap();

    let bad = |result: Result<Vec<u32>, Error>, at: u32| match result {
        Err(Error::InSequence { sequence, error }) => {
            assert_eq!(sequence, b);
            assert!(
                matches!(*error, Error::Logit { position, .. } if position == at),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    };
    let nan = [3, 50, 4];
    bad(batch.step(&[(a, &long[..9]), (b, &nan), (c, &long)]), 2);
    for id in [a, b, c] {
        assert!(batch.tokens(id).unwrap().is_empty());
    }

    // Where it is scored, the place is the first row that is not finite: values that are not finite
    // reach all tokens of a step of attention.
    let mut scored = [
        part(a, &long[..9], BatchWanted::Nothing),
        part(
            b,
            &nan,
            BatchWanted::Scored {
                best: 1,
                following: Some(2),
            },
        ),
    ];
    bad(batch.step_items(&mut scored).map(|_| vec![]), 0);

    // Without it, the others get what they got before.
    assert_eq!(batch.step(&[(a, &long[..9]), (c, &long)]).unwrap(), healthy);
    assert_eq!(bits(&batch.logits(c).unwrap()), bits(&logits));

    // In single tokens, alone and in several steps.
    bad(batch.step(&[(c, &[1]), (b, &[50])]), 0);
    bad(batch.decode(&[(c, 1), (b, 50)], 3).map(|_| vec![]), 0);
    assert_eq!(batch.tokens(c).unwrap(), long);
    batch.leave(b).unwrap();
    batch.decode(&[(c, 1)], 3).unwrap();
}

#[test]
fn the_host_works_while_the_device_does() {
    let model = small("items-meanwhile");
    let mut batch = batch(&model, TokenChoice::Greedy);
    let id = batch.join().unwrap();
    let mut calls = 0;
    let items = &mut [BatchItem::next(id, &[1, 2, 3])];
    batch.step_items_with(items, || calls += 1).unwrap();
    let items = &mut [BatchItem::next(id, &[VOCAB])];
    batch.step_items_with(items, || calls += 1).unwrap_err();
    assert_eq!(calls, 1);
}
