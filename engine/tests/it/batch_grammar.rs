//! Sequences of a batch, each within a grammar of its own or none.

use warpwright_engine::{
    Batch, BatchOptions, ConstrainedSequence, Sampling, SequenceId, TokenChoice,
};
use warpwright_model::Matcher;

use crate::batch::small;
use crate::decode::emulator;
use crate::grammar::{Words, drawn, random, wild};

/// Kernels of one bucket, so that no bit depends on neighbours.
fn options() -> BatchOptions {
    let choice = TokenChoice::Constrained { logprobs: 4 };
    BatchOptions {
        bucket: Some(8),
        choice,
        ..BatchOptions::new(4, 128)
    }
}

fn batch(words: &Words) -> Batch {
    Batch::new(&emulator(), &words.model, options(), |_| ()).unwrap()
}

fn joined(batch: &mut Batch, seed: u64) -> SequenceId {
    let sequence = batch.join().unwrap();
    batch
        .set_sampling(sequence, &Sampling { seed, ..wild() })
        .unwrap();
    sequence
}

/// Prompts, and what follows: a pattern, a text that is forced for the most part, and anything.
const TEXTS: [(&str, Option<&str>); 3] = [
    ("The", Some("start: / [a-z]{3,9}, [0-9]{2}\\./\n")),
    (
        "A long text of the borrow checker",
        Some("start: \" uses a low-level limit\" /[a-z]{2,5}/ \"!\"\n"),
    ),
    ("fn", None),
];

/// What becomes of some of them, together.
fn write(words: &Words, texts: &[usize]) -> Vec<Vec<u32>> {
    let mut batch = batch(words);
    let mut matchers: Vec<Option<Matcher>> = texts
        .iter()
        .map(|text| TEXTS[*text].1.map(|grammar| words.lark(grammar).matcher()))
        .collect();
    let prompts: Vec<Vec<u32>> = texts
        .iter()
        .map(|text| words.encode(TEXTS[*text].0))
        .collect();
    let parts = texts.iter().zip(&prompts).zip(&mut matchers);
    let mut work: Vec<ConstrainedSequence<'_>> = parts
        .map(|((text, prompt), matcher)| ConstrainedSequence {
            sequence: joined(&mut batch, *text as u64),
            tokens: prompt,
            matcher: matcher.as_mut(),
        })
        .collect();
    let made = batch.decode_constrained(&mut work, 16).unwrap();
    assert!(
        matchers.iter_mut().flatten().all(Matcher::is_complete),
        "{made:?}"
    );
    made
}

#[test]
fn each_sequence_follows_its_own_grammar_and_changes_no_other() {
    let words = random("batch");
    let made = write(&words, &[2, 0, 1]);
    let [free, pattern, forced] = [0, 1, 2].map(|i| words.tokenizer.decode(&made[i]));
    assert!(
        pattern.ends_with('.') && pattern.contains(", "),
        "{pattern}"
    );
    assert!(
        forced.starts_with(" uses a low-level limit") && forced.ends_with('!'),
        "{forced}"
    );
    assert_eq!(made[0].len(), 16, "{free}");
    for (at, text) in [(1, 0), (2, 1)] {
        assert_eq!(
            write(&words, &[text]),
            [made[at].clone()],
            "{}",
            TEXTS[text].0
        );
    }

    // The one without is that of a batch that knows no grammars.
    let choice = TokenChoice::Sampled { logprobs: 4 };
    let mut plain = Batch::new(
        &emulator(),
        &words.model,
        BatchOptions {
            choice,
            ..options()
        },
        |_| (),
    )
    .unwrap();
    let sequence = joined(&mut plain, 2);
    let first = plain.step(&[(sequence, &words.encode("fn"))]).unwrap()[0];
    let rest = plain.decode(&[(sequence, first)], 15).unwrap().remove(0);
    assert_eq!(made[0], [vec![first], rest].concat());
}

/// Token by token, one sequence beside another that is free; then it is free, too.
#[test]
fn what_is_chosen_is_what_the_reference_chooses_of_what_is_allowed() {
    let words = random("batch-reference");
    let mut batch = batch(&words);
    let (guided, free) = (joined(&mut batch, 7), joined(&mut batch, 8));
    let mut matcher = words.lark("start: / [a-z]{2,9}, [0-9]{2}/\n").matcher();
    let (mut tokens, mut others) = (words.encode("The borrow checker"), words.encode("fn"));
    let (mut from, mut other_from) = (0, 0);
    for _ in 0..3 {
        let bits = matcher.allowed().unwrap().to_vec();
        let work = [
            ConstrainedSequence {
                sequence: guided,
                tokens: &tokens[from..],
                matcher: Some(&mut matcher),
            },
            ConstrainedSequence {
                sequence: free,
                tokens: &others[other_from..],
                matcher: None,
            },
        ];
        let next = batch.step_constrained(&mut { work }).unwrap();
        let logits = batch.logits(guided).unwrap();
        assert_eq!(
            next[0],
            drawn(&logits, &bits, &Sampling { seed: 7, ..wild() }, &tokens)
        );
        let all = vec![u32::MAX; bits.len()];
        let logits = batch.logits(free).unwrap();
        assert_eq!(
            next[1],
            drawn(&logits, &all, &Sampling { seed: 8, ..wild() }, &others)
        );
        let best = batch
            .log_probabilities(guided, tokens.len() as u32 - 1)
            .unwrap()
            .unwrap()
            .best;
        let allowed: u32 = bits.iter().map(|word| word.count_ones()).sum();
        assert_eq!(best.len() as u32, allowed.min(4), "{best:?}");
        assert!(
            best.iter()
                .all(|(token, _)| bits[*token as usize / 32] >> (token % 32) & 1 == 1),
            "{best:?}"
        );
        (from, other_from) = (tokens.len(), others.len());
        tokens.push(next[0]);
        others.push(next[1]);
    }

    let next = batch.step(&[(guided, &tokens[from..])]).unwrap()[0];
    let logits = batch.logits(guided).unwrap();
    let all = vec![u32::MAX; words.model.outline.config.vocab.div_ceil(32) as usize];
    assert_eq!(
        next,
        drawn(&logits, &all, &Sampling { seed: 7, ..wild() }, &tokens)
    );
}

#[test]
fn what_cannot_be_followed_is_refused_and_nothing_has_happened() {
    let words = random("batch-refused");
    let grammar = words.lark("start: \"a\"\n");
    let refusal = |batch: &mut Batch, matcher: &mut Matcher| {
        let sequence = batch.join().unwrap();
        let mut work = [ConstrainedSequence {
            sequence,
            tokens: &[1],
            matcher: Some(matcher),
        }];
        let error = batch.step_constrained(&mut work).unwrap_err().to_string();
        assert_eq!(batch.tokens(sequence).unwrap(), [0; 0]);
        error
    };
    let greedy = BatchOptions {
        choice: TokenChoice::Greedy,
        ..options()
    };
    let mut batch = Batch::new(&emulator(), &words.model, greedy, |_| ()).unwrap();
    assert_eq!(
        refusal(&mut batch, &mut grammar.matcher()),
        "cannot apply a grammar: create the decoder or the batch with TokenChoice::Constrained"
    );
    let other = small("batch-grammar");
    let mut batch = Batch::new(&emulator(), &other, options(), |_| ()).unwrap();
    assert_eq!(
        refusal(&mut batch, &mut grammar.matcher()),
        "the grammar was compiled for a vocabulary of 4096 tokens, but the model has 160: compile it with the model's tokenizer"
    );
    let mut batch = self::batch(&words);
    let mut over = grammar.matcher();
    over.take(words.tokenizer.encode_rest("a").unwrap()[0])
        .unwrap();
    let error = refusal(&mut batch, &mut over);
    assert!(
        error.starts_with("the grammar failed after 1 tokens: "),
        "{error}"
    );

    // A sequence beside it goes on as before.
    let sequence = batch.join().unwrap();
    batch.step(&[(sequence, &[1, 2])]).unwrap();
}
