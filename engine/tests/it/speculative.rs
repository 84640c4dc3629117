//! Speculative decoding on the emulator: whatever is guessed, tokens and their probabilities are those of plain decoding,
//! bit for bit.

use warpwright_engine::{
    Decoder, DraftCounts, DraftModel, Drafter, Error, Generation, GenerationEnd, Launch,
    LogProbabilities, Options, Prefer, PromptLookup, Sampling, Speculation, StepKind, TokenChoice,
    same_vocabulary,
};
use warpwright_model::{Model, Tokenizer};

use crate::batch::small;
use crate::decode::emulator;
use crate::synth::{BF16, Q4_K, Q6_K, Q8_0, Synth, synth};
use crate::{asset, models};

const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[Q6_K, Q4_K, Q4_K, Q6_K, Q8_0, Q4_K, Q4_K],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: false,
    scaled: false,
    vocab: 304,
};
const SAMPLED: TokenChoice = TokenChoice::Sampled { logprobs: 4 };

fn open(name: &str, case: Synth) -> Model {
    let mut model = Model::open(&synth(case).save(&format!("speculative-{name}.gguf"))).unwrap();
    model.outline.stop.clear();
    model
}

fn options(ctx: u32, choice: TokenChoice) -> Options {
    Options {
        drafts: 7,
        choice,
        ..Options::new(ctx, Launch::Graph)
    }
}

fn decoder(model: &Model, options: Options) -> Decoder {
    let mut decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
    if options.choice != TokenChoice::Greedy {
        decoder.set_sampling(&sampling()).unwrap();
    }
    decoder
}

/// Everything at once, with penalties that look back to guesses.
fn sampling() -> Sampling {
    Sampling {
        temperature: 0.9,
        top_k: 40,
        top_p: 0.95,
        repeat_penalty: 1.1,
        frequency_penalty: 0.1,
        penalty_window: 9,
        seed: 0x5eed,
        logprobs: 4,
        ..Sampling::off()
    }
}

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * i * 7 + 3 * i) % 23).collect()
}

/// Tokens, how likely they were, and why there are no more.
type Read = (
    Vec<u32>,
    Vec<Option<LogProbabilities>>,
    Option<GenerationEnd>,
);

fn read(mut tokens: Generation<'_>) -> Read {
    let (mut read, mut likely) = (vec![], vec![]);
    while let Some(token) = tokens.next() {
        read.push(token.unwrap());
        likely.push(tokens.log_probabilities());
    }
    (read, likely, Some(tokens.end()))
}

fn plain(decoder: &mut Decoder, prompt: &[u32], limit: u32) -> Read {
    read(decoder.generate(prompt, limit).unwrap())
}

fn speculative(decoder: &mut Decoder, prompt: &[u32], limit: u32, by: &mut Speculation) -> Read {
    decoder.reset();
    decoder.prefill(prompt).unwrap();
    read(decoder.decode_speculative(prompt, limit, by).unwrap())
}

/// Knows the text, and guesses another token at each multiple of `wrong`; more and fewer tokens in turn.
struct Scripted {
    text: Vec<u32>,
    wrong: usize,
    other: u32,
}

impl Drafter for Scripted {
    fn draft(&mut self, tokens: &[u32], most: u32) -> Result<Vec<u32>, Error> {
        assert_eq!(tokens, &self.text[..tokens.len()]);
        let guess = |at: usize| match at % self.wrong {
            0 if self.text[at] != self.other => self.other,
            0 => self.other + 1,
            _ => self.text[at],
        };
        let count = most.min(1 + tokens.len() as u32 * 5 % 8) as usize;
        Ok((tokens.len()..self.text.len())
            .take(count)
            .map(guess)
            .collect())
    }
}

fn scripted(prompt: &[u32], text: &[u32], wrong: usize) -> Speculation {
    Speculation::eager(Scripted {
        text: [prompt, text].concat(),
        wrong,
        other: 5,
    })
}

/// Guesses that are all right, that are wrong here and there, and all of them.
const RIGHT: usize = usize::MAX;
const MIXED: usize = 3;
const WRONG: usize = 1;

/// Plain text, and the same with these guesses.
fn check(name: &str, decoder: &mut Decoder, prompt: &[u32], limit: u32, wrong: usize) {
    let wanted = plain(decoder, prompt, limit);
    let mut by = scripted(prompt, &wanted.0, wrong);
    assert_eq!(
        speculative(decoder, prompt, limit, &mut by),
        wanted,
        "{name}, {wrong}"
    );
    let DraftCounts {
        drafted,
        accepted,
        tokens,
        ..
    } = by.counts();
    let (all, none) = (accepted == drafted, accepted == 0);
    assert_eq!(
        (all, none),
        (wrong == RIGHT, wrong == WRONG),
        "{name}, {wrong}: {:?}",
        by.counts()
    );
    assert!(
        drafted > 2 && tokens as usize + 1 >= wanted.0.len(),
        "{name}, {wrong}: {:?}",
        by.counts()
    );
}

#[test]
fn every_family_verifies_with_the_bits_of_decoding() {
    let qwen3 = Synth {
        arch: "qwen3",
        heads: 6,
        kv_heads: 3,
        head_dim: 128,
        ..LLAMA
    };
    let cases = [
        ("llama", LLAMA, SAMPLED, RIGHT),
        (
            "greedy",
            Synth {
                tied: true,
                ..LLAMA
            },
            TokenChoice::Greedy,
            WRONG,
        ),
        (
            "qwen3",
            Synth {
                formats: &[BF16],
                ..qwen3
            },
            SAMPLED,
            MIXED,
        ),
        (
            "gemma3",
            Synth {
                arch: "gemma3",
                ..LLAMA
            },
            SAMPLED,
            MIXED,
        ),
    ];
    for (name, case, choice, guesses) in cases {
        let few = Options {
            prefill_batch: 1,
            chunk: 0,
            ..options(32, choice)
        };
        check(
            name,
            &mut decoder(&open(name, case), few),
            &prompt(4),
            7,
            guesses,
        );
    }
}

/// Where attention splits positions, and after a chunk.
#[test]
fn long_texts_are_verified_too() {
    let mut model = open(
        "long",
        Synth {
            formats: &[Q8_0],
            heads: 1,
            kv_heads: 1,
            head_dim: 256,
            ..LLAMA
        },
    );
    model.outline.config.context = 320;
    let mut decoder = decoder(
        &model,
        Options {
            drafts: 3,
            ..options(320, SAMPLED)
        },
    );
    let mut tokens = prompt(300);
    decoder.prefill(&tokens).unwrap();
    let first = decoder.decode(1).unwrap().next().unwrap().unwrap();
    tokens.push(first);
    let wanted = read(decoder.decode(5).unwrap());
    decoder.rewind(301, first).unwrap();
    let mut by = scripted(&tokens, &wanted.0, 2);
    assert_eq!(
        read(decoder.decode_speculative(&tokens, 5, &mut by).unwrap()),
        wanted
    );
    assert!(
        by.counts().accepted > 0 && by.counts().drafted > by.counts().accepted,
        "{:?}",
        by.counts()
    );
    check("a chunk", &mut decoder, &prompt(16), 6, RIGHT);
}

#[test]
fn every_launch_verifies() {
    let model = small("speculative-launches");
    let of = |launch| Options {
        launch,
        prefill_batch: 1,
        chunk: 0,
        ..options(40, SAMPLED)
    };
    for launch in [Launch::Plain, Launch::Capture, Launch::Eager] {
        let mut decoder = decoder(&model, of(launch));
        check(&format!("{launch:?}"), &mut decoder, &prompt(5), 5, MIXED);
        let launches = [2, 4, 8].map(|tokens| decoder.launches(StepKind::Verify(tokens)));
        assert!(
            launches.into_iter().max() > Some(10),
            "{launch:?}: {launches:?}"
        );
    }

    // A decoder that verifies nothing makes the same text.
    let [wanted, found] = [(Launch::Eager, 1), (Launch::Graph, 0)].map(|(launch, drafts)| {
        plain(
            &mut decoder(
                &model,
                Options {
                    drafts,
                    ..of(launch)
                },
            ),
            &prompt(5),
            3,
        )
    });
    assert_eq!(found, wanted);
}

/// Limits, the end of the context and tokens that end a text, all of them within what is accepted at once.
#[test]
fn texts_end_where_they_would() {
    let mut model = small("speculative-ends");
    let few = Options {
        prefill_batch: 1,
        chunk: 0,
        ..options(14, TokenChoice::Greedy)
    };
    let mut verifying = decoder(&model, few);
    let text = plain(&mut verifying, &prompt(5), 40);
    assert_eq!(
        (text.0.len(), text.2),
        (10, Some(GenerationEnd::ContextFull))
    );
    let by = || scripted(&prompt(5), &[&text.0[..], &[1; 9]].concat(), RIGHT);
    for (limit, why) in [
        (1, GenerationEnd::Limit),
        (6, GenerationEnd::Limit),
        (10, GenerationEnd::Limit),
        (11, GenerationEnd::ContextFull),
    ] {
        let found = speculative(&mut verifying, &prompt(5), limit, &mut by());
        assert_eq!(found.0, text.0[..10.min(limit as usize)], "{limit}");
        assert_eq!(found.2, Some(why), "{limit}");
    }

    let end = (3..10)
        .find(|at| !text.0[..*at].contains(&text.0[*at]))
        .unwrap();
    model.outline.stop = vec![text.0[end]];
    let mut stopping = decoder(&model, few);
    let found = speculative(&mut stopping, &prompt(5), 40, &mut by());
    assert_eq!(
        (&found.0[..], found.2),
        (&text.0[..=end], Some(GenerationEnd::Text))
    );
    assert_eq!(plain(&mut stopping, &prompt(5), 40), found);
}

/// Of a text that is read in part, what was read counts, whatever was verified beyond; another prompt goes on from there.
#[test]
fn a_text_goes_on_however_it_was_made() {
    let model = small("speculative-turns");
    let few = Options {
        prefill_batch: 1,
        chunk: 0,
        ..options(40, SAMPLED)
    };
    let mut decoder = decoder(&model, few);
    let (wanted, ..) = plain(&mut decoder, &prompt(5), 14);
    let more = [9, 8, 7];
    let all = [&prompt(5), &wanted[..8], &more[..]].concat();
    let (after, ..) = plain(&mut decoder, &all, 3);
    let mut tokens = prompt(5);
    let mut by = Speculation::eager(Scripted {
        text: [&prompt(5)[..], &wanted].concat(),
        wrong: RIGHT,
        other: 5,
    });
    decoder.reset();
    decoder.prefill(&tokens).unwrap();

    // Some are read, with guesses and without.
    for count in [3, 1] {
        let generation = decoder.decode_speculative(&tokens, 24, &mut by).unwrap();
        tokens.extend(generation.take(count).map(Result::unwrap));
        drop(decoder.decode_speculative(&tokens, 24, &mut by).unwrap());
        tokens.extend(decoder.decode(1).unwrap().map(Result::unwrap));
    }

    let generation = decoder.decode_speculative(&tokens, 24, &mut by).unwrap();
    tokens.extend(generation.take(2).map(Result::unwrap));
    assert_eq!(tokens, [&prompt(5), &wanted[..8]].concat());
    decoder.prefill(&more).unwrap();
    tokens.extend(more);
    assert_eq!(tokens, all);
    let mut lookup = Speculation::new(PromptLookup::default());
    assert_eq!(
        read(decoder.decode_speculative(&tokens, 3, &mut lookup).unwrap()).0,
        after
    );
}

#[test]
fn repeated_texts_are_looked_up() {
    let model = small("speculative-lookup");
    let mut decoder = decoder(&model, options(40, TokenChoice::Greedy));
    let wanted = plain(&mut decoder, &prompt(15), 14);
    let mut by = Speculation::new(PromptLookup::default());
    assert_eq!(speculative(&mut decoder, &prompt(15), 14, &mut by), wanted);
    let counts = by.counts();
    // A model of random numbers hardly repeats itself.
    assert!(counts.tokens == 14 && counts.drafted > 0, "{counts:?}");
    assert_eq!(counts.all_steps() + counts.accepted, 14, "{counts:?}");
}

/// A model that guesses for itself is right each time, also by chance; another one is not, and changes nothing.
#[test]
fn a_model_guesses() {
    let (model, other) = (
        open("verifies", LLAMA),
        open(
            "guesses",
            Synth {
                tied: true,
                ..LLAMA
            },
        ),
    );
    let few = |ctx| Options {
        prefill_batch: 1,
        chunk: 0,
        ..options(ctx, SAMPLED)
    };
    let mut verifying = decoder(&model, few(24));
    let wanted = plain(&mut verifying, &prompt(5), 10);
    let guessing = |draft: &Model, ctx| {
        let options = Options {
            drafts: 0,
            tokens_per_launch: 1,
            ..few(ctx)
        };
        Speculation::eager(DraftModel::new(
            decoder(draft, options),
            &draft.outline,
            &model.outline,
        ))
    };
    let mut itself = guessing(&model, 24);
    assert_eq!(
        speculative(&mut verifying, &prompt(5), 10, &mut itself),
        wanted
    );
    let counts = itself.counts();
    assert!(
        counts.accepted == counts.drafted && counts.all_steps() < 3,
        "{counts:?}"
    );

    // The same drafter goes on with another text, and back.
    let wanted_then = plain(&mut verifying, &prompt(9), 2);
    assert_eq!(
        speculative(&mut verifying, &prompt(9), 2, &mut itself),
        wanted_then
    );
    assert_eq!(
        speculative(&mut verifying, &prompt(5), 4, &mut itself).0,
        wanted.0[..4]
    );
    let mut another = guessing(&other, 8);
    assert_eq!(
        speculative(&mut verifying, &prompt(5), 10, &mut another),
        wanted
    );
    let counts = another.counts();
    assert!(counts.accepted < counts.drafted, "{counts:?}");

    // Where its context ends, it guesses nothing.
    assert!(counts.steps[0] >= 3, "{counts:?}");
}

/// Guesses whose logits are no numbers harm nobody; a choice that fails is the error that it would be.
#[test]
fn what_is_not_finite_matters_only_where_it_is_chosen() {
    let file = synth(Synth {
        formats: &[BF16],
        ..LLAMA
    })
    .edit("token_embd.weight", |embedding| {
        let row = embedding.data.len() / 304;
        embedding.data[5 * row..6 * row]
            .as_chunks_mut::<2>()
            .0
            .fill(0x7fc0u16.to_le_bytes());
    });
    let mut model = Model::open(&file.save("speculative-nan.gguf")).unwrap();
    model.outline.stop.clear();
    let given: Vec<u32> = [3, 17, 40, 2].into();
    let few = Options {
        prefill_batch: 1,
        chunk: 0,
        ..options(16, TokenChoice::Greedy)
    };
    let mut decoder = decoder(&model, few);
    let wanted = plain(&mut decoder, &given, 5);
    assert!(!wanted.0.contains(&5), "{wanted:?}");
    for wrong in [1, 2] {
        let mut by = scripted(&given, &wanted.0, wrong);
        assert_eq!(speculative(&mut decoder, &given, 5, &mut by), wanted);
    }

    // The last token of the prompt has no embedding.
    let given: Vec<u32> = [3, 17, 5].into();
    let sentence = |error: Error| error.to_string();
    let plain = decoder
        .generate(&given, 4)
        .unwrap()
        .next()
        .unwrap()
        .map_err(sentence)
        .unwrap_err();
    let mut by = Speculation::eager(Scripted {
        text: vec![3, 17, 5, 9, 9, 9],
        wrong: 100,
        other: 0,
    });
    decoder.reset();
    decoder.prefill(&given).unwrap();
    let tokens: Vec<_> = decoder
        .decode_speculative(&given, 4, &mut by)
        .unwrap()
        .collect();
    assert_eq!(
        tokens
            .into_iter()
            .next()
            .unwrap()
            .map_err(sentence)
            .unwrap_err(),
        plain
    );
    assert!(plain.starts_with("the logit of token "), "{plain}");
}

struct Wild;

impl Drafter for Wild {
    fn draft(&mut self, _: &[u32], most: u32) -> Result<Vec<u32>, Error> {
        Ok(vec![304; most as usize])
    }
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let model = open("refused", LLAMA);
    let few = Options {
        prefill_batch: 1,
        chunk: 0,
        ..options(16, TokenChoice::Greedy)
    };
    let mut by = Speculation::new(Wild);
    let mut refusal = |decoder: &mut Decoder, tokens: &[u32], limit| {
        let found = decoder
            .decode_speculative(tokens, limit, &mut by)
            .and_then(|tokens| tokens.collect());
        found
            .map(|tokens: Vec<u32>| panic!("{tokens:?}"))
            .unwrap_err()
            .to_string()
    };
    let mut plain = decoder(&model, Options { drafts: 0, ..few });
    plain.prefill(&prompt(3)).unwrap();
    let none = "the decoder cannot verify drafts: create it with Options::drafts from 1 to 7";
    assert_eq!(refusal(&mut plain, &prompt(3), 4), none);
    let mut decoder = decoder(&model, few);
    let none = "the prompt is empty: a model needs at least one token to continue from";
    assert_eq!(refusal(&mut decoder, &[], 4), none);
    decoder.prefill(&prompt(3)).unwrap();
    let other = "the drafter received 2 tokens, but the decoder has 3: pass the whole sequence";
    assert_eq!(refusal(&mut decoder, &prompt(2), 4), other);
    let wild = "the drafter guessed token 304, but the vocabulary has 304 tokens";
    assert_eq!(refusal(&mut decoder, &prompt(3), 4), wild);
    let simple = Options {
        prefer: Prefer::Simple,
        ..few
    };
    let error = Decoder::new(&emulator(), &model, simple, |_| ())
        .err()
        .unwrap()
        .to_string();
    let start = "cannot verify drafts, because this model decodes with ";
    assert!(
        error.starts_with(start) && error.ends_with(": decode it without speculation"),
        "{error}"
    );
    let plain = Decoder::new(
        &emulator(),
        &model,
        Options {
            drafts: 0,
            ..simple
        },
        |_| (),
    )
    .unwrap();
    assert_eq!(
        plain
            .with_options(&model.outline, simple)
            .err()
            .unwrap()
            .to_string(),
        error
    );
}

/// The vocabulary of the small model, with these bytes of its file in place of others.
fn vocabulary(name: &str, from: &[u8], to: &[u8]) -> Tokenizer {
    let mut bytes = std::fs::read(asset()).unwrap();
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    let path = crate::scratch(name);
    std::fs::write(&path, bytes).unwrap();
    Model::open(&path).unwrap().tokenizer().unwrap()
}

#[test]
fn another_vocabulary_is_refused_with_its_first_difference() {
    let words = Model::open(&asset()).unwrap().tokenizer().unwrap();
    same_vocabulary(
        &words,
        &Model::open(&models()[0].1).unwrap().tokenizer().unwrap(),
    )
    .unwrap();
    let other = vocabulary("speculative-words.gguf", b"<|endoftext|>", b"<|endoftexu|>");
    let error = same_vocabulary(&words, &other).unwrap_err().to_string();
    let wanted = "the draft model has another vocabulary, in which token 0 is the control token \"<|endoftexu|>\" and not the control \
                  token \"<|endoftext|>\": use a draft model of the same family";
    assert_eq!(error, wanted);
}
