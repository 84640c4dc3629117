//! Sequences that are stepped together.

use std::collections::BTreeMap;

use warpwright_engine::{Batch, BatchOptions, Error, Launch, SequenceId, TimedNode};
use warpwright_kernels::Random;
use warpwright_model::{Model, info};

use crate::decode::{decoder, distance, emulator, generate};
use crate::operations;
use crate::oracle::{self, Keep};
use crate::synth::{Q8_0, Synth, sized};
use crate::transformers::{ids, supported};
use crate::write::File;

pub(crate) fn batch(model: &Model, options: BatchOptions) -> Batch {
    Batch::new(&emulator(), model, options, |_| ()).unwrap()
}

pub(crate) const VOCAB: u32 = 160;

/// A model of two layers with room for several pages. Its file is named after the test, because tests run at the same
/// time.
pub(crate) fn small(test: &str) -> Model {
    edited(test, &file())
}

pub(crate) fn file() -> File {
    // Small, because the emulator takes most of the time of these tests for the matrices.
    let model = Synth {
        arch: "llama",
        formats: &[Q8_0],
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        tied: false,
        scaled: false,
        vocab: VOCAB,
    };
    sized(model, 256, 256)
}

pub(crate) fn edited(test: &str, file: &File) -> Model {
    let mut model = Model::open(&file.save(&format!("batch-{test}.gguf"))).unwrap();
    model.outline.config.context = 512;
    model.outline.stop.clear();
    model
}

/// Tokens that no other seed gives.
pub(crate) fn tokens(seed: u32, count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| (i * 37 + seed * 11 + i * i * seed) % VOCAB)
        .collect()
}

/// Logits after each of these pieces of `ids`, which a sequence takes in. It leaves the batch.
pub(crate) fn pieces(batch: &mut Batch, ids: &[u32], pieces: &[usize]) -> Vec<Vec<f32>> {
    let (sequence, mut from, mut rows) = (batch.join().unwrap(), 0, vec![]);
    for piece in pieces {
        batch.step(&[(sequence, &ids[from..from + piece])]).unwrap();
        rows.push(batch.logits(sequence).unwrap());
        from += piece;
    }
    batch.leave(sequence).unwrap();
    rows
}

/// Every family, in pieces of one token and of several.
#[test]
fn a_sequence_in_pieces_agrees_with_transformers() {
    for (case, model, wanted) in supported("batch") {
        let options = BatchOptions {
            sequences: 2,
            ..BatchOptions::new(2, case.room)
        };
        let mut batch = match Batch::new(&emulator(), &model, options, |_| ()) {
            Err(error @ Error::NoBatch { .. }) if case.name == "phi3-partial" => {
                assert!(
                    error.to_string().contains("cannot be stepped together"),
                    "{error}"
                );
                continue;
            }
            batch => batch.unwrap(),
        };
        let (ids, vocab) = (ids(), model.outline.config.vocab as usize);
        let parts = &[7, 1, 9, 1][..];
        let rows = pieces(&mut batch, &ids, parts);
        let ends = parts.iter().scan(0, |end, part| {
            *end += part;
            Some(*end - 1)
        });
        for (end, row) in ends.zip(rows) {
            let found: Vec<f64> = row.into_iter().map(f64::from).collect();
            let found = distance(&found, &wanted[end * vocab..][..vocab]);
            assert!(
                found < 2e-3,
                "{}, after {end} in {parts:?}: the relative error is {found:e}",
                case.name
            );
        }
    }
}

/// Pieces of any size, against float64.
#[test]
fn any_pieces_agree_with_float64() {
    let model = small("pieces");
    let ids = tokens(9, 110);
    let wanted = oracle::logits(&model, &ids, Keep::Exact);
    let mut batch = batch(
        &model,
        BatchOptions {
            tokens: 96,
            ..BatchOptions::new(1, 192)
        },
    );
    let mut random = Random(17);
    for (most, mut left) in [(1, 12), (3, 20), (10, 60), (40, 110), (96, 110)] {
        let mut parts = vec![];
        while left > 0 {
            parts.push((1 + random.below(most) as usize).min(left));
            left -= parts[parts.len() - 1];
        }

        let (mut end, mut found, mut exact) = (0, vec![], vec![]);
        for (part, row) in parts.iter().zip(pieces(&mut batch, &ids, &parts)) {
            end += part;
            found.extend(row.into_iter().map(f64::from));
            exact.extend(&wanted[end - 1]);
        }

        let found = distance(&found, &exact);
        assert!(found < 2e-3, "{parts:?}: the relative error is {found:e}");
    }
}

/// What a sequence gets does not depend on its neighbours, nor on where its pages are.
#[test]
fn neighbours_change_no_bit() {
    let options = BatchOptions {
        bucket: Some(16),
        ..BatchOptions::new(5, 192)
    };
    compare_neighbours(&small("neighbours"), options);
}

/// Compares sequences alone and among each other.
pub(crate) fn compare_neighbours(model: &Model, options: BatchOptions) {
    let prompts: Vec<Vec<u32>> = [3, 70, 1, 20].iter().map(|&n| tokens(n, n)).collect();
    let mut alone = vec![];
    for prompt in &prompts {
        let mut batch = batch(model, options);
        let sequence = batch.join().unwrap();
        let next = batch.step(&[(sequence, prompt)]).unwrap()[0];
        let logits = batch.logits(sequence).unwrap();
        alone.push((
            logits,
            batch.decode(&[(sequence, next)], 3).unwrap().remove(0),
            batch.logits(sequence).unwrap(),
        ));
    }

    let mut batch = batch(model, options);

    // Another order, and pages that others have had.
    let before = batch.join().unwrap();
    batch.step(&[(before, &[5; 70])]).unwrap();
    let joined: Vec<SequenceId> = prompts.iter().map(|_| batch.join().unwrap()).collect();
    batch.leave(before).unwrap();
    let mut next = BTreeMap::new();
    for half in [&[2, 0][..], &[3, 1]] {
        let work: Vec<_> = half
            .iter()
            .map(|&i| (joined[i], prompts[i].as_slice()))
            .collect();
        for (&i, token) in half.iter().zip(batch.step(&work).unwrap()) {
            next.insert(i, token);
            assert_eq!(
                batch.logits(joined[i]).unwrap(),
                alone[i].0,
                "the prompt of sequence {i}"
            );
        }
    }

    let work: Vec<_> = next.iter().map(|(&i, &token)| (joined[i], token)).collect();
    let found = batch.decode(&work, 3).unwrap();
    for (i, found) in found.into_iter().enumerate() {
        assert_eq!(found, alone[i].1, "the tokens of sequence {i}");
        assert_eq!(
            batch.logits(joined[i]).unwrap(),
            alone[i].2,
            "the last logits of sequence {i}"
        );
    }
}

/// Decoding as one graph, several steps a launch, gives the tokens of single steps and those of the decoder.
#[test]
fn graphs_decode_what_steps_decode() {
    compare_graphs(&small("graphs"));
}

/// Compares the tokens of graphs, of single steps and of a decoder.
pub(crate) fn compare_graphs(model: &Model) {
    let prompt = tokens(1, 30);
    let options = BatchOptions {
        steps_per_launch: 2,
        ..BatchOptions::new(3, 128)
    };
    let mut batch = batch(model, options);
    let (a, b) = (batch.join().unwrap(), batch.join().unwrap());
    let first = batch.step(&[(a, &prompt), (b, &prompt)]).unwrap();
    let decoded = batch.decode(&[(a, first[0]), (b, first[1])], 5).unwrap();
    assert_eq!(decoded[0], decoded[1]);
    assert_eq!(batch.tokens(a).unwrap().len(), 35);

    // The same by single steps, from a fork.
    let fork = batch.fork(a, 30).unwrap();
    let (mut token, mut stepped) = (first[0], vec![]);
    for _ in 0..5 {
        token = batch.step(&[(fork, &[token])]).unwrap()[0];
        stepped.push(token);
    }

    assert_eq!(stepped, decoded[0]);
    let mut decoder = decoder(model, 128, Launch::Graph);
    let tokens = generate(&mut decoder, &prompt, 6);
    assert_eq!(tokens, [&first[..1], &decoded[0]].concat());
}

/// The kernels of a step, run one after the other, and the sequences as they were.
#[test]
fn a_profile_lists_the_kernels_of_a_step_and_changes_nothing() {
    let model = small("profile");
    let mut batch = batch(&model, BatchOptions::new(3, 128));

    // With the next token, the first sequence has a second page.
    let work: Vec<(SequenceId, u32)> = [64, 9].map(|len| (batch.join().unwrap(), len)).into();
    for &(id, len) in &work {
        batch.step(&[(id, &tokens(len, len))]).unwrap();
    }

    let wanted = batch.decode(&work, 3).unwrap();
    for &(id, len) in &work {
        batch.roll_back(id, len).unwrap();
    }

    let before = batch.free_pages();
    let nodes = batch.profile(&work, 2).unwrap();
    assert_eq!(batch.free_pages(), before);
    assert!(matches!(batch.logits(work[0].0), Err(Error::NoLogits)));
    let role = |role: &'static str| nodes.iter().filter(move |timed| timed.node.role == role);
    let roles = [
        "embed",
        "norm",
        "qkv",
        "attention",
        "o",
        "gate_up",
        "down",
        "head",
        "choose",
    ];
    let counts = roles.map(|name| role(name).count());

    // Q, K and V are one product or several, which rotate and append.
    assert!(counts[2] >= 2 && counts[2] <= 6, "{counts:?}");
    assert_eq!(
        [&counts[..2], &counts[3..]].concat(),
        [1, 5, 2, 2, 2, 2, 1, 1]
    );
    assert_eq!(nodes.len(), counts.iter().sum::<usize>());
    let attended = 65 + 10;
    for timed in role("attention") {
        // Keys and values of two heads; four heads multiply queries by keys and weights by values.
        assert_eq!(timed.node.bytes, attended * 2 * 64 * 2 * 2);
        assert_eq!(timed.node.operations, attended * 4 * 64 * 2 * 2);
    }

    let weights = |timed: &TimedNode| timed.node.operations / (2 * work.len() as u64);
    let head = role("head").next().unwrap();
    assert_eq!(weights(head), info::head_weights(&model.outline));
    let layers = ["qkv", "o", "gate_up", "down"].into_iter().flat_map(role);
    assert_eq!(
        layers.clone().map(weights).sum::<u64>(),
        info::layer_weights(&model.outline)
    );
    let bytes: u64 = layers.map(|timed| timed.node.bytes).sum();
    assert_eq!(bytes, info::layer_bytes(&model.outline, 2));
    assert_eq!(batch.decode(&work, 3).unwrap(), wanted);
}

/// Forks share pages, and what one writes the other does not see.
#[test]
fn forks_go_their_own_way() {
    let model = small("forks");
    let prompt = tokens(2, 100);
    let options = BatchOptions {
        bucket: Some(8),
        ..BatchOptions::new(3, 256)
    };
    let mut batch = batch(&model, options);
    let a = batch.join().unwrap();
    batch.step(&[(a, &prompt)]).unwrap();
    let (before, all) = batch.free_pages();
    let b = batch.fork(a, 90).unwrap();
    assert_eq!(batch.free_pages(), (before, all), "a fork takes no page");
    batch.step(&[(b, &[40, 41, 42])]).unwrap();
    assert_eq!(batch.free_pages(), (before - 1, all));
    batch.step(&[(a, &[50])]).unwrap();
    let found = batch.logits(a).unwrap();

    // The same without a fork.
    let c = batch.join().unwrap();
    batch.step(&[(c, &prompt)]).unwrap();
    batch.step(&[(c, &[50])]).unwrap();
    assert_eq!(batch.logits(c).unwrap(), found);

    // Rolled back, a sequence goes on as if the rest had never been.
    batch.step(&[(c, &[60, 61, 62, 63])]).unwrap();
    batch.roll_back(c, 100).unwrap();
    batch.step(&[(c, &[50])]).unwrap();
    assert_eq!(batch.logits(c).unwrap(), found);
    assert_eq!(batch.longest_prefix(&prompt), Some((a, 100)));
    for id in [a, b, c] {
        batch.leave(id).unwrap();
    }

    assert_eq!(batch.free_pages(), (all, all));
}

#[test]
fn refuses_what_cannot_be() {
    let model = small("refusals");
    let (context, limit) = (emulator(), model.outline.config.context);
    let refused = |options| match Batch::new(&context, &model, options, |_| ()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{options:?} was accepted"),
    };
    let good = BatchOptions::new(2, 64);
    assert!(
        refused(BatchOptions {
            sequences: 0,
            ..good
        })
        .contains("sequences is 0, but must be from 1 to 256")
    );
    assert!(
        refused(BatchOptions {
            ctx: limit + 1,
            ..good
        })
        .contains("ctx is")
    );
    assert!(
        refused(BatchOptions {
            bucket: Some(100),
            ..good
        })
        .contains("bucket is 100, but must be 8, 16")
    );
    assert!(
        refused(BatchOptions {
            tokens: 4096,
            ..good
        })
        .contains("tokens is 4096, but must be from 1 to 2048")
    );
    assert!(
        refused(BatchOptions {
            positions: 1 << 30,
            ..good
        })
        .contains("enough for")
    );
    let mut batch = Batch::new(
        &context,
        &model,
        BatchOptions {
            positions: 64,
            tokens: 40,
            ..good
        },
        |_| (),
    )
    .unwrap();
    let (a, b) = (batch.join().unwrap(), batch.join().unwrap());
    let mut message = |work: &[(SequenceId, &[u32])]| batch.step(work).unwrap_err().to_string();
    assert!(message(&[]).contains("invalid step of 0 tokens"));
    assert!(message(&[(a, &[])]).contains("the prompt is empty"));
    assert!(message(&[(a, &[1]), (a, &[2])]).contains("appears twice"));
    assert!(
        message(&[(a, &[1; 41])]).contains("invalid step of 41 tokens: this batch accepts 1 to 40")
    );
    assert!(message(&[(a, &[1, 1 << 20])]).contains("token 1 of the prompt is 1048576"));
    assert!(
        message(&[(a, &[1]), (b, &[1])])
            .contains("needs 2 more pages of the cache, but only 1 of 1 are free")
    );
    assert!(
        batch
            .decode(&[(a, 1)], 65)
            .unwrap_err()
            .to_string()
            .contains("cannot append 65 tokens")
    );
    assert!(matches!(batch.logits(a), Err(Error::NoLogits)));
    batch.leave(b).unwrap();
    assert!(matches!(batch.step(&[(b, &[1])]), Err(Error::NoSequence)));

    // Nothing of this has changed the batch.
    batch.step(&[(a, &[1; 40])]).unwrap();
    assert_eq!(batch.decode(&[(a, 7)], 24).unwrap()[0].len(), 24);
    assert!(batch.step(&[(a, &[1])]).is_err());
}

/// The tokens that a prompt goes on with, and the batch.
fn continued(
    model: &Model,
    prompt: &[u32],
    steps: u32,
) -> (Batch, SequenceId, Result<Vec<u32>, Error>) {
    let options = BatchOptions {
        steps_per_launch: 2,
        ..BatchOptions::new(2, 128)
    };
    let mut batch = batch(model, options);
    let sequence = batch.join().unwrap();
    let first = batch.step(&[(sequence, prompt)]).unwrap()[0];
    let tokens = batch
        .decode(&[(sequence, first)], steps)
        .map(|mut made| made.remove(0));
    (
        batch,
        sequence,
        tokens.map(|tokens| [&[first][..], &tokens].concat()),
    )
}

/// A prompt and its tokens, of which the third is not among the others.
fn told_apart(model: &Model) -> (Vec<u32>, Vec<u32>) {
    let found = (3..20).map(|seed| tokens(seed, 5)).find_map(|prompt| {
        let told = continued(model, &prompt, 4).2.unwrap();
        let others = [&prompt[..], &told[..2], &told[3..]].concat();
        (!others.contains(&told[2])).then_some((prompt, told))
    });
    found.expect("some prompt goes on so")
}

/// A text that ends early has no logits that later steps wrote, and keeps no pages that it does not need.
#[test]
fn a_sequence_that_ends_keeps_nothing_of_later_steps() {
    let mut model = small("ends");
    let (prompt, told) = told_apart(&model);
    model.outline.stop = vec![told[2]];
    let (mut batch, a, found) = continued(&model, &prompt, 70);
    assert_eq!(found.unwrap(), told[..3]);
    assert!(matches!(batch.logits(a), Err(Error::NoLogits)));
    assert_eq!(batch.tokens(a).unwrap(), [&prompt[..], &told[..2]].concat());
    let (free, all) = batch.free_pages();
    assert_eq!(all - free, 1);

    // It can go on.
    batch.step(&[(a, &told[2..3])]).unwrap();
    batch.logits(a).unwrap();
}

/// A number that is none is found and told where it was, though later steps of the launch have run.
#[test]
fn a_token_that_is_lost_in_a_launch_is_explained() {
    let (prompt, told) = told_apart(&small("lost-none"));

    // The first scale of the token's row of 256 weights.
    let row = told[2] as usize * 8 * 34;
    let file = file().edit("token_embd.weight", |table| {
        table.data[row..][..2].copy_from_slice(&[0, 0x7e])
    });
    let (mut batch, a, found) = continued(&edited("lost", &file), &prompt, 6);
    // After two tokens, or right after the prompt.
    let at = [prompt.len() as u32 + 2, prompt.len() as u32];
    let is_of_a = |error: &Error| match error {
        Error::InSequence { sequence, error } => {
            assert_eq!(*sequence, a);
            matches!(**error, Error::Logit { position, .. } if at.contains(&position))
        }
        _ => false,
    };
    assert!(found.as_ref().is_err_and(is_of_a), "{found:?}");
    assert_eq!(batch.tokens(a).unwrap(), prompt);
    let again = batch.step(&[(a, &told[2..3])]);
    assert!(again.as_ref().is_err_and(is_of_a), "{again:?}");

    // The sequence is as it was.
    assert_eq!(batch.step(&[(a, &told[..1])]).unwrap(), told[1..2]);
}

/// With these, sequences fork and leave.
const SEED: u64 = 1;

/// A few; `examples/batch_operations.rs` runs a thousand on a GPU.
#[test]
fn random_operations_change_no_bit() {
    let counts = operations::run(&emulator(), &small("operations"), [20, 8], SEED).unwrap();
    println!("{counts:?}");
    assert!(
        counts.compared >= 8 && counts.forked > 0 && counts.left > 0,
        "{counts:?}"
    );
}
