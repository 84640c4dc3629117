//! Drafts that a batch verifies: the accepted tokens and their log-probabilities have the same bits
//! as in steps of one token, and rejected drafts leave nothing.

use warpwright_engine::{
    Batch, BatchItem, BatchOptions, BatchRounding, BatchWanted, Error, LogProbabilities,
    PrefixScope, RowClass, Sampling, SequenceId, TokenChoice,
};

use crate::batch::{VOCAB, batch, edited, file, small, tokens};
use crate::grammar::random;

const BEST: u32 = 2;

/// The number of tokens after each prompt. They cross the end of a page.
const REPLY: usize = 10;

fn options(rounding: BatchRounding) -> BatchOptions {
    BatchOptions {
        rounding,
        // Steps with and without drafts are in the same bucket, so their bits can be compared.
        bucket: Some(16),
        choice: TokenChoice::Constrained { logprobs: BEST },
        tokens: 96,
        positions: 12 * 64,
        ..BatchOptions::new(4, 128)
    }
}

/// Greedy choices, and choices that depend on the seed, the position and the latest tokens.
fn samplings() -> [Sampling; 2] {
    let greedy = Sampling {
        logprobs: BEST,
        ..Sampling::greedy()
    };
    let sampled = Sampling {
        seed: 5,
        logprobs: BEST,
        repeat_penalty: 1.3,
        penalty_window: 6,
        presence_penalty: 0.5,
        logit_bias: vec![(7, 2.0)],
        ..Sampling::default()
    };
    [greedy, sampled]
}

/// A chosen token with the bits of its log-probabilities.
type Chosen = (u32, Vec<(u32, u64)>, u64);

fn chosen(batch: &Batch, id: SequenceId, token: u32, position: u32) -> Chosen {
    let found = batch.log_probabilities(id, position).unwrap();
    let LogProbabilities { chosen, best } = found.expect("they were requested");
    let best = best.into_iter().map(|(id, value)| (id, value.to_bits()));
    (token, best.collect(), chosen.to_bits())
}

fn item<'a>(sequence: SequenceId, tokens: &'a [u32], wanted: BatchWanted) -> BatchItem<'a> {
    BatchItem {
        class: RowClass::Decode,
        wanted,
        ..BatchItem::next(sequence, tokens)
    }
}

fn joined(batch: &mut Batch, sampling: &Sampling, prompt: &[u32]) -> (SequenceId, Chosen) {
    let (id, cached) = batch.join_prompt(prompt, PrefixScope::salted(1)).unwrap();
    batch.set_sampling(id, sampling).unwrap();
    let rest = &prompt[cached as usize..];
    let next = BatchItem {
        class: RowClass::Prompt,
        ..BatchItem::next(id, rest)
    };
    let first = batch.step_items(&mut [next]).unwrap()[0].next.unwrap();
    let first = chosen(batch, id, first, prompt.len() as u32 - 1);
    (id, first)
}

/// Returns the reply in steps of one token.
fn singly(batch: &mut Batch, sampling: &Sampling, prompt: &[u32]) -> Vec<Chosen> {
    let (id, first) = joined(batch, sampling, prompt);
    let mut reply = vec![first];
    while reply.len() < REPLY {
        let given = [reply.last().unwrap().0];
        let position = batch.tokens(id).unwrap().len() as u32;
        let stepped = batch.step_items(&mut [item(id, &given, BatchWanted::Next)]);
        let token = stepped.unwrap()[0].next.unwrap();
        reply.push(chosen(batch, id, token, position));
    }
    batch.leave(id).unwrap();
    reply
}

/// Returns the drafts of a round: right ones, followed by `wrong` other ones.
fn drafts(reply: &[Chosen], made: usize, right: usize, wrong: usize) -> Vec<u32> {
    let mut drafts: Vec<u32> = reply[made..].iter().map(|chosen| chosen.0).collect();
    drafts.truncate(right);
    let next = reply.get(made + drafts.len()).map_or(0, |chosen| chosen.0);
    drafts.extend((1..=wrong as u32).map(|by| (next + by) % VOCAB));
    drafts
}

/// Generates the reply with drafts, next to another sequence, and checks it.
fn check_drafted(batch: &mut Batch, sampling: &Sampling, prompt: &[u32], reply: &[Chosen]) {
    let other = batch.join().unwrap();
    let (id, first) = joined(batch, sampling, prompt);
    assert_eq!(first, reply[0]);
    let mut made = 1;
    for (round, (right, wrong)) in [(2, 2), (0, 3), (3, 0), (1, 2)]
        .into_iter()
        .cycle()
        .enumerate()
    {
        if made == reply.len() {
            break;
        }
        let right = right.min(reply.len() - made - 1);
        let mut given = vec![reply[made - 1].0];
        given.extend(drafts(reply, made, right, wrong));
        let position = batch.tokens(id).unwrap().len() as u32;
        assert_eq!(position as usize, prompt.len() + made - 1);

        // The other sequence has a prompt or a single token in the same step, or nothing.
        let others = [&[3, 4, 5][..], &[6], &[]][round % 3];
        let mut work = vec![item(id, &given, BatchWanted::Verified)];
        if !others.is_empty() {
            work.insert(0, BatchItem::next(other, others));
        }
        let stepped = batch.step_items(&mut work).unwrap();
        let verified = &stepped.last().unwrap().verified;
        assert_eq!(stepped.last().unwrap().next, None);
        assert_eq!(verified.len(), right + 1, "round {round}");
        for (at, token) in (0..).zip(verified) {
            let chosen = chosen(batch, id, *token, position + at);
            assert_eq!(chosen, reply[made + at as usize], "round {round}");
        }
        made += right + 1;
        let tokens = batch.tokens(id).unwrap();
        assert_eq!(tokens[..prompt.len()], *prompt);
        let kept: Vec<u32> = reply[..made - 1].iter().map(|chosen| chosen.0).collect();
        assert_eq!(tokens[prompt.len()..], kept);
    }
    batch.leave(id).unwrap();
    batch.leave(other).unwrap();
    assert_eq!(batch.page_counts().used, 0);
}

fn prompt(len: u32) -> Vec<u32> {
    // Token 50 is not among them: see below.
    tokens(4, len).into_iter().map(|id| id % 50).collect()
}

/// The length of a prompt whose reply crosses the end of a page.
const LONG: u32 = 60;

fn check(rounding: BatchRounding, test: &str, sampling: &Sampling) {
    let model = small(test);
    let mut single = batch(&model, options(rounding));
    let mut drafted = batch(&model, options(rounding));
    let prompt = prompt(LONG);
    let reply = singly(&mut single, sampling, &prompt);
    check_drafted(&mut drafted, sampling, &prompt, &reply);
}

#[test]
fn accepted_drafts_have_the_bits_of_single_steps() {
    let [_, sampled] = samplings();
    check(BatchRounding::Same, "drafts-same", &sampled);
}

#[test]
fn accepted_drafts_have_the_bits_of_single_steps_in_a_bucket() {
    let [_, sampled] = samplings();
    check(BatchRounding::Fastest, "drafts-fastest", &sampled);
}

/// Pages with rejected drafts enter the prefix cache without them.
#[test]
fn a_cached_prefix_has_no_rejected_drafts() {
    let model = small("drafts-cached");
    let [greedy, _] = samplings();
    let mut single = batch(&model, options(BatchRounding::Fastest));
    let mut drafted = batch(&model, options(BatchRounding::Fastest));
    let prompt = prompt(LONG);
    let reply = singly(&mut single, &greedy, &prompt);
    check_drafted(&mut drafted, &greedy, &prompt, &reply);

    // The text, and the text with a rejected draft at its end or in its first page.
    let text: Vec<u32> = reply.iter().map(|chosen| chosen.0).collect();
    let text = [&prompt[..], &text].concat();
    for wrong in [LONG as usize + 3, 63, 66] {
        let mut other = text.clone();
        other[wrong] = (other[wrong] + 1) % VOCAB;
        for text in [&text, &other] {
            single.forget_kept();
            let (id, cold) = joined(&mut single, &greedy, text);
            single.leave(id).unwrap();
            let (id, warm) = joined(&mut drafted, &greedy, text);
            assert_eq!(warm.0, cold.0);
            let difference = f64::from_bits(warm.2) - f64::from_bits(cold.2);
            assert!(difference.abs() < 1e-3, "{difference}");
            drafted.leave(id).unwrap();
        }
    }
    let (id, cached) = drafted.join_prompt(&text, PrefixScope::salted(1)).unwrap();
    assert!(cached >= 64, "{cached} tokens are cached");
    drafted.leave(id).unwrap();
}

/// The embedding of token 50 is NaN, so that the logits after it are not finite.
#[test]
fn rejected_drafts_may_be_broken_and_accepted_ones_not() {
    let bad_row = 50 * 8 * 34;
    let broken = file().edit("token_embd.weight", |table| {
        table.data[bad_row..][..2].copy_from_slice(&[0, 0x7e])
    });
    let model = edited("drafts-bad", &broken);
    let [greedy, _] = samplings();
    let mut batch = batch(&model, options(BatchRounding::Same));
    let prompt = prompt(9);
    let reply = singly(&mut batch, &greedy, &prompt);
    let (id, first) = joined(&mut batch, &greedy, &prompt);
    assert!(reply[..4].iter().all(|chosen| chosen.0 != 50));
    let given = [first.0, reply[1].0, 50, 50];
    let mut work = [item(id, &given, BatchWanted::Verified)];
    let verified = batch.step_items(&mut work).unwrap().remove(0).verified;
    assert_eq!(verified, [reply[1].0, reply[2].0]);
    let given = [reply[2].0, 50];
    let mut work = [item(id, &given, BatchWanted::Verified)];
    let verified = batch.step_items(&mut work).unwrap().remove(0).verified;
    assert_eq!(verified, [reply[3].0]);

    // The first token is not a draft, so its failure is the sequence's.
    let before = batch.tokens(id).unwrap().to_vec();
    let failed = batch.step_items(&mut [item(id, &[50, 1], BatchWanted::Verified)]);
    assert!(matches!(failed, Err(Error::InSequence { sequence, .. }) if sequence == id));
    assert_eq!(batch.tokens(id).unwrap(), before);
}

#[test]
fn drafts_that_cannot_be_verified_are_refused() {
    let model = small("drafts-refused");
    let mut batch = batch(&model, options(BatchRounding::Fastest));
    let id = batch.join().unwrap();
    assert_eq!(batch.verified_per_step(), 64);
    let many = [1; 65];
    let refused = batch.step_items(&mut [item(id, &many, BatchWanted::Verified)]);
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::DraftRows { rows: 65, most: 64 }));
    let refused = batch.step_items(&mut [item(id, &[1, VOCAB], BatchWanted::Verified)]);
    assert!(matches!(refused, Err(Error::PromptToken { .. })));

    // At the end of the context, no draft fits.
    let full = [2; 96];
    batch.step(&[(id, &full)]).unwrap();
    batch.step(&[(id, &full[..31])]).unwrap();
    let refused = batch.step_items(&mut [item(id, &[1, 2], BatchWanted::Verified)]);
    assert!(matches!(refused, Err(Error::SequenceLength { .. })));
    let last = batch.step_items(&mut [item(id, &[1], BatchWanted::Verified)]);
    assert_eq!(last.unwrap()[0].verified.len(), 1);
}

/// Drafts next to a sequence with a grammar, whose tokens are chosen by a second launch.
#[test]
fn drafts_are_verified_next_to_a_grammar() {
    let words = random("drafts-grammar");
    let mut batch = batch(&words.model, options(BatchRounding::Fastest));
    let [greedy, _] = samplings();
    let prompt = words.encode("The borrow checker");
    let reply = singly(&mut batch, &greedy, &prompt);

    let constrained = batch.join().unwrap();
    batch.step(&[(constrained, &prompt)]).unwrap();
    let mut matcher = words.lark("start: /[a-z]{3,9}/\n").matcher();
    let (id, first) = joined(&mut batch, &greedy, &prompt);
    let wrong = (reply[3].0 + 1) % words.model.outline.config.vocab;
    let given = [first.0, reply[1].0, reply[2].0, wrong, 5];
    let mut work = [
        item(id, &given, BatchWanted::Verified),
        BatchItem {
            matcher: Some(&mut matcher),
            ..item(constrained, &prompt[..1], BatchWanted::Next)
        },
    ];
    let stepped = batch.step_items(&mut work).unwrap();
    let expected: Vec<u32> = reply[1..4].iter().map(|chosen| chosen.0).collect();
    assert_eq!(stepped[0].verified, expected);
    assert!(stepped[1].next.is_some() && stepped[1].verified.is_empty());

    let mut work = [BatchItem {
        matcher: Some(&mut matcher),
        ..item(constrained, &[1, 2], BatchWanted::Verified)
    }];
    let refused = batch.step_items(&mut work);
    assert!(matches!(refused, Err(Error::DraftsConstrained)));
}
