//! Batches that decode few sequences with the kernels of the pipeline.

use warpwright_engine::{
    Batch, BatchOptions, Decoder, Error, Launch, Options, Sampling, SequenceId, TokenChoice,
};
use warpwright_model::Model;

use crate::batch::{VOCAB, small};
use crate::decode::{distance, emulator};
use crate::transformers::{ids, supported};

fn batch(model: &Model, options: BatchOptions) -> Batch {
    Batch::new(&emulator(), model, options, |_| ()).unwrap()
}

/// A decoder that takes in a prompt token by token.
fn decoder(model: &Model, ctx: u32, choice: TokenChoice) -> Decoder {
    let options = Options {
        prefill_batch: 1,
        chunk: 0,
        choice,
        ..Options::new(ctx, Launch::Graph)
    };
    Decoder::new(&emulator(), model, options, |_| ()).unwrap()
}

fn tokens(seed: u32, count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| (i * 31 + seed * 17 + i * i * seed) % VOCAB)
        .collect()
}

/// Appends a token to a sequence and returns the logits after it.
fn after(batch: &mut Batch, id: SequenceId, token: u32) -> Vec<f32> {
    batch.step(&[(id, &[token])]).unwrap();
    batch.logits(id).unwrap()
}

/// Every family, with biases, head norms, windows and two ropes, and pages in another order.
#[test]
fn a_lone_sequence_has_the_bits_of_a_decoder() {
    for (case, model, _) in supported("lone") {
        let ctx = case.room;
        let mut batch = match Batch::new(&emulator(), &model, BatchOptions::new(3, ctx), |_| ()) {
            Err(Error::NoBatch { .. }) => continue,
            batch => batch.unwrap(),
        };
        let ids = ids();
        let before = batch.join().unwrap();
        batch.step(&[(before, &ids[..3])]).unwrap();
        let id = batch.join().unwrap();
        batch.leave(before).unwrap();
        let mut decoder = decoder(&model, ctx, TokenChoice::Greedy);
        let wanted: Vec<Vec<f32>> = decoder
            .logits(&ids)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for (i, (&token, wanted)) in ids.iter().zip(&wanted).enumerate() {
            let found = after(&mut batch, id, token);
            assert!(found == *wanted, "{}: position {i}", case.name);
        }
    }
}

/// Over several pages, several steps a launch, and up to the last position.
#[test]
fn a_lone_sequence_decodes_the_tokens_of_a_decoder() {
    let model = small("lone-decodes");
    let ctx = 140;
    let mut decoder = decoder(&model, ctx, TokenChoice::Greedy);
    let wanted: Vec<u32> = decoder
        .generate(&[7], ctx - 1)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut batch = batch(&model, BatchOptions::new(2, ctx));

    // The pages of the two sequences alternate.
    let other = batch.join().unwrap();
    let id = batch.join().unwrap();
    let mut found = batch.decode(&[(id, 7)], 60).unwrap().remove(0);
    batch.step(&[(other, &tokens(3, 70))]).unwrap();
    let last = *found.last().unwrap();
    found.extend(batch.decode(&[(id, last)], 79).unwrap().remove(0));
    assert_eq!(found, wanted);
}

#[test]
fn sampled_tokens_and_their_probabilities_are_those_of_a_decoder() {
    let model = small("lone-sampled");
    let choice = TokenChoice::Sampled { logprobs: 3 };
    let sampling = Sampling {
        temperature: 0.9,
        top_k: 40,
        repeat_penalty: 1.2,
        seed: 5,
        logprobs: 3,
        ..Sampling::off()
    };
    let mut decoder = decoder(&model, 64, choice);
    decoder.set_sampling(&sampling).unwrap();
    let mut text = decoder.generate(&[9], 12).unwrap();
    let mut wanted = vec![];
    while let Some(token) = text.next() {
        wanted.push((token.unwrap(), text.log_probabilities()));
    }

    let options = BatchOptions {
        choice,
        ..BatchOptions::new(2, 64)
    };
    let mut batch = batch(&model, options);
    batch.join().unwrap();
    let id = batch.join().unwrap();
    batch.set_sampling(id, &sampling).unwrap();
    let made = batch.decode(&[(id, 9)], 12).unwrap().remove(0);
    let found = made.into_iter().zip(0..).map(|(token, position)| {
        let of_token = batch.log_probabilities(id, position).unwrap();
        assert!(of_token.is_some());
        (token, of_token)
    });
    assert_eq!(found.collect::<Vec<_>>(), wanted);
}

/// A sequence is decoded alone, then with another one, then alone again. A batch without the pipeline agrees with it.
#[test]
fn a_sequence_changes_kernels_in_the_middle_of_a_text() {
    let model = small("lone-changes");
    let run = |lone_rows: u32| {
        let options = BatchOptions {
            lone_rows,
            ..BatchOptions::new(4, 256)
        };
        let mut batch = batch(&model, options);
        let (a, b) = (batch.join().unwrap(), batch.join().unwrap());
        let mut logits = vec![];
        batch.step(&[(a, &tokens(1, 60))]).unwrap();
        for token in tokens(2, 10) {
            logits.push(after(&mut batch, a, token));
        }

        batch.step(&[(b, &tokens(4, 63))]).unwrap();
        for (x, y) in tokens(5, 4).into_iter().zip(tokens(6, 4)) {
            batch.step(&[(a, &[x]), (b, &[y])]).unwrap();
            logits.extend([a, b].map(|id| batch.logits(id).unwrap()));
        }

        // A fork inside of a page, which copies it, and one whose origin has left.
        let c = batch.fork(a, 70).unwrap();
        for token in tokens(7, 3) {
            logits.push(after(&mut batch, c, token));
        }

        for token in tokens(8, 3) {
            logits.push(after(&mut batch, a, token));
        }

        batch.leave(a).unwrap();
        for token in tokens(9, 60) {
            logits.push(after(&mut batch, c, token));
        }

        batch.roll_back(b, 30).unwrap();
        for token in tokens(10, 3) {
            logits.push(after(&mut batch, b, token));
        }

        logits
    };
    let wide = |row: &[f32]| row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let wanted = run(0);
    for lone_rows in [1, 2] {
        let mut equal = 0;
        for (i, (found, wanted)) in run(lone_rows).iter().zip(&wanted).enumerate() {
            let error = distance(&wide(found), &wide(wanted));
            assert!(
                error < 2e-3,
                "{lone_rows}, row {i}: the relative error is {error:e}"
            );
            equal += u32::from(found == wanted);
        }

        // Other kernels round differently.
        assert!(equal < 10, "{equal} rows are equal");
    }
}

/// Two sequences take turns. Each has the bits that it has in a batch of its own.
#[test]
fn sequences_that_take_turns_change_no_bit() {
    let model = small("lone-turns");
    let texts = [1, 2].map(|seed| tokens(seed, 70));
    let alone = texts.clone().map(|text| {
        let mut batch = batch(&model, BatchOptions::new(1, 128));
        let id = batch.join().unwrap();
        text.iter()
            .map(|&token| after(&mut batch, id, token))
            .collect::<Vec<_>>()
    });
    let mut batch = batch(&model, BatchOptions::new(2, 128));
    let both = texts.clone().map(|_| batch.join().unwrap());
    for (i, (x, y)) in texts[0].iter().zip(&texts[1]).enumerate() {
        for (row, token) in [*x, *y].into_iter().enumerate() {
            let found = after(&mut batch, both[row], token);
            assert!(found == alone[row][i], "sequence {row}, token {i}");
        }
    }
}

/// Three rows are a step of four. Each row agrees with the kernels of a batch, and does not depend on the others.
#[test]
fn a_few_sequences_are_decoded_together() {
    let model = small("lone-few");
    let prompts = [(1, 5), (2, 64), (3, 17)].map(|(seed, len)| tokens(seed, len));
    let run = |lone_rows: u32, order: &[usize]| {
        let options = BatchOptions {
            lone_rows,
            ..BatchOptions::new(4, 128)
        };
        let mut batch = batch(&model, options);
        let joined = prompts.clone().map(|_| batch.join().unwrap());
        for (id, prompt) in joined.iter().zip(&prompts) {
            batch.step(&[(*id, prompt)]).unwrap();
        }

        let mut logits = vec![vec![]; 3];
        for token in tokens(11, 5) {
            let given = [token, token + 1, 3].map(|token| [token]);
            let work: Vec<_> = order.iter().map(|&i| (joined[i], &given[i][..])).collect();
            batch.step(&work).unwrap();
            for (id, rows) in joined.iter().zip(&mut logits) {
                rows.push(batch.logits(*id).unwrap());
            }
        }

        // Several steps a launch, of which the first sequence needs a further page.
        let work: Vec<_> = order.iter().map(|&i| (joined[i], 8)).collect();
        let made = batch.decode(&work, 11).unwrap();
        let mut of_each = vec![vec![]; 3];
        for (&i, made) in order.iter().zip(made) {
            of_each[i] = made;
        }

        (logits, of_each)
    };
    let (logits, made) = run(4, &[0, 1, 2]);
    assert_eq!(run(4, &[2, 0, 1]), (logits.clone(), made));
    let (wanted, _) = run(0, &[0, 1, 2]);
    let wide = |row: &[f32]| row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    for (found, wanted) in logits.concat().iter().zip(wanted.concat()) {
        let error = distance(&wide(found), &wide(&wanted));
        assert!(error < 2e-3, "the relative error is {error:e}");
    }
}

/// A fixed bucket promises equal bits for any number of sequences.
#[test]
fn a_fixed_bucket_has_no_lone_steps() {
    let model = small("lone-bucket");
    let run = |lone_rows: u32, bucket: Option<u32>| {
        let options = BatchOptions {
            lone_rows,
            bucket,
            ..BatchOptions::new(2, 64)
        };
        let mut batch = batch(&model, options);
        let id = batch.join().unwrap();
        tokens(1, 5)
            .into_iter()
            .map(|token| after(&mut batch, id, token))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1, Some(8)), run(0, None));
    assert_ne!(run(1, None), run(0, None));
}
