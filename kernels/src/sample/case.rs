//! Test cases of the sampling kernels. The inputs of each kernel are the results of the references
//! of the kernels before it.

use super::allow::{AllowTokens, allowed_words};
use super::choose::SampleToken;
use super::limits::{BINS, MAX_BIASES, RECORD_HEAD};
use super::rows::blocks;
use super::weight::scale;
use super::{SampleAdjust, SampleGather, SampleParams, mask_words};
use crate::harness::Case;
pub(super) use crate::harness::case::Variant;
use crate::shared::Random;
use crate::shared::state::{DONE, LEN, LIMIT, POSITION, PROMPT_LEN, SEQUENCE};
use ptx_gen::*;

/// The cases of one batch of rows, one per kernel.
pub(super) struct Stage {
    pub(super) allow: Case,
    pub(super) adjust: Case,
    pub(super) gather: Case,
    pub(super) choose: Case,
}

/// The distribution of a row's logits.
#[derive(Clone, Copy)]
enum Logits {
    /// A few logits are far larger than the others, as in a model's output.
    Peaked,
    /// Even values from -1 to 1.
    Even,
    /// All logits are equal.
    Flat,
    NotANumber,
}

/// The state of a row's sequence.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Done,
    InPrompt,
    Full,
    NoState,
    NoPlace,
}

/// A row of a batch.
struct RowCase {
    logits: Logits,
    kind: Kind,
    params: SampleParams,
}

/// Returns a row of a batch.
fn row(logits: Logits, kind: Kind, params: SampleParams) -> RowCase {
    RowCase {
        logits,
        kind,
        params,
    }
}

/// The number of positions of a sequence.
const MAX_TOKENS: u32 = 9;
/// The stop tokens, of which the last is beyond the number that the kernel gets.
const STOPS: [u32; 3] = [11, 12, 13];
/// The number of log-probabilities of a record.
const BEST: u32 = 3;

const OFF: SampleParams = SampleParams {
    seed: 0x1234_5678_9abc_def0,
    ..SampleParams::OFF
};
/// The parameters of a usual chat request.
const USUAL: SampleParams = SampleParams {
    top_k: 40,
    top_p: 0xf000_0000,
    min_gap: -2.995_732_3,
    scale: scale(0.8),
    ..OFF
};
const PENALIZED: SampleParams = SampleParams {
    repeat: 1.1,
    presence: 0.25,
    frequency: 0.5,
    window: 4,
    biases: 3,
    ..USUAL
};
const TYPICAL: SampleParams = SampleParams {
    typical_p: 0x3000_0000,
    scale: scale(1.7),
    ..OFF
};
const TOP_P: SampleParams = SampleParams {
    top_p: 0x8000_0000,
    ..OFF
};

fn small() -> Vec<RowCase> {
    use Logits::*;
    vec![
        row(
            Peaked,
            Kind::Plain,
            SampleParams {
                best: 3,
                ..PENALIZED
            },
        ),
        row(Peaked, Kind::InPrompt, SampleParams::GREEDY),
        row(Peaked, Kind::Plain, SampleParams { best: 2, ..TYPICAL }),
        row(NotANumber, Kind::Plain, USUAL),
        row(Even, Kind::Done, USUAL),
        row(Even, Kind::NoState, USUAL),
        row(Even, Kind::NoPlace, USUAL),
        row(
            Even,
            Kind::Full,
            SampleParams {
                min_gap: -0.5,
                biases: 3,
                ..OFF
            },
        ),
        row(Flat, Kind::Plain, SampleParams { top_k: 7, ..TOP_P }),
    ]
}

fn large() -> Vec<RowCase> {
    use Logits::*;
    vec![
        row(Peaked, Kind::Plain, USUAL),
        row(Peaked, Kind::Plain, SampleParams { best: 1, ..TOP_P }),
        row(
            Flat,
            Kind::Plain,
            SampleParams {
                typical_p: 0x4000_0000,
                ..USUAL
            },
        ),
        row(Flat, Kind::Plain, TOP_P),
        row(
            Even,
            Kind::Plain,
            SampleParams {
                top_k: 2000,
                ..TYPICAL
            },
        ),
        row(
            Even,
            Kind::Plain,
            SampleParams {
                top_k: 200,
                ..USUAL
            },
        ),
        row(
            Peaked,
            Kind::Plain,
            SampleParams {
                top_k: 100,
                top_p: 0,
                min_gap: f32::NEG_INFINITY,
                ..USUAL
            },
        ),
        row(
            Even,
            Kind::Plain,
            SampleParams {
                best: 2,
                scale: scale(0.5),
                ..OFF
            },
        ),
    ]
}

pub(super) fn stages(seed: u64) -> Vec<Stage> {
    // The vocabularies are: one token, few equal tokens, part of a chunk, and three chunks, of
    // which the last has one token.
    let one = vec![
        row(Logits::Even, Kind::Plain, USUAL),
        row(Logits::Even, Kind::Plain, OFF),
    ];
    let alike =
        [7, 1, 127].map(|top_k| row(Logits::Flat, Kind::Plain, SampleParams { top_k, ..TOP_P }));
    vec![
        stage(seed, 1, &one),
        stage(seed, 127, &alike),
        stage(seed, 300, &small()),
        stage(seed, 4097, &large()),
    ]
}

fn stage(seed: u64, vocab: u32, rows: &[RowCase]) -> Stage {
    let mut random = Random(seed);
    let count = rows.len() as u32;
    let capacity = count + 1;
    let states = count + 1;
    let sequences = count + 1;
    let label = format!("vocab={vocab} count={count}");
    let case = |args: Vec<CpuArg>| Case {
        label: label.clone(),
        args,
        bound: 0.0,
    };

    // There is one more sequence than rows, whose parameters no row uses.
    let params = (0..sequences as usize).map(|i| rows.get(i).map_or(OFF, |row| row.params));
    let params = CpuArg::U32(params.flat_map(|params| params.words()).collect());

    // The rows have the states in falling order. A row without a state names one past the last.
    let mut given: Vec<u32> = (0..count).map(|i| states - 1 - i).collect();
    for (i, row) in rows.iter().enumerate() {
        if row.kind == Kind::NoState {
            given[i] = states;
        }
    }

    given.push(u32::MAX);
    let state = CpuArg::U32(states_of(&mut random, rows, states, sequences));
    let of: Vec<CpuArg> = vec![CpuArg::U32(given), params]
        .into_iter()
        .chain([vocab, count, capacity, states, sequences, MAX_TOKENS].map(CpuArg::scalar))
        .collect();

    let tokens = (0..sequences * MAX_TOKENS)
        .map(|_| random.below(vocab.min(6)))
        .collect();
    let mut logits: Vec<f32> = rows
        .iter()
        .flat_map(|row| logits(&mut random, row.logits, vocab))
        .collect();
    logits.resize((capacity * vocab) as usize, 7.0);

    // Each kernel gets what the kernels before it compute. Buffers that may be longer than needed
    // are.
    let floats = |len: u32| CpuArg::F32(vec![0.0; len as usize]);
    let ints = |len: u32| CpuArg::U32(vec![0; len as usize]);
    let chunks = count * blocks(vocab);
    let mut adjust = vec![
        CpuArg::F32(logits),
        state.clone(),
        CpuArg::U32(tokens),
        CpuArg::U32(biases(sequences, vocab)),
        floats(capacity * vocab),
        floats(chunks + 1),
        ints(count * BINS + 1),
    ];
    adjust.extend(of.clone());
    let allow = allow(seed, sequences * allowed_words(vocab), &adjust);
    let [_, _, tokens, _, z, largest, histogram] = after(&SampleAdjust { overlap: true }, &adjust);

    let mut gather = vec![z.clone(), state.clone(), largest.clone(), histogram.clone()];
    gather.extend([
        ints(count * mask_words(vocab) + 4),
        ints(count + 1),
        CpuArg::U64(vec![0; 2 * chunks as usize]),
    ]);
    gather.extend(of.clone());
    let [_, _, _, _, mask, listed, mass] = after(&SampleGather { overlap: true }, &gather);

    let record = RECORD_HEAD + 2 * BEST;
    let places = sequences * MAX_TOKENS;
    let mut choose = vec![
        z,
        largest,
        mask,
        listed,
        mass,
        histogram,
        state,
        tokens,
        CpuArg::U32(STOPS.into()),
    ];
    choose.extend([
        ints(places),
        ints(places * record),
        CpuArg::scalar(2u32),
        CpuArg::scalar(record),
    ]);
    choose.extend(of);
    Stage {
        allow: case(allow),
        adjust: case(adjust),
        gather: case(gather),
        choose: case(choose),
    }
}

/// Returns the arguments of [`AllowTokens`](super::AllowTokens) for the logits and rows of
/// `adjust`. A word of the mask allows some, none or all of its tokens. Some logits are extreme.
fn allow(seed: u64, words: u32, adjust: &[CpuArg]) -> Vec<CpuArg> {
    let mut random = Random(!seed);
    let word = |i: u32| [random.bits() as u32, 0, u32::MAX][i as usize % 3];
    let allowed = CpuArg::U32((0..words).map(word).collect());
    let mut logits = adjust[0].clone();
    if let CpuArg::F32(logits) = &mut logits {
        let edges = [-1e30, f32::MAX, f32::NEG_INFINITY, f32::MIN];
        for (logit, edge) in logits.iter_mut().step_by(41).zip(edges) {
            *logit = edge;
        }
    }

    [&[logits, adjust[1].clone(), allowed][..], &adjust[7..]].concat()
}

/// Returns the first `N` arguments after a kernel's reference has run.
fn after<const N: usize>(kernel: &dyn AnyKernel, args: &[CpuArg]) -> [CpuArg; N] {
    let mut args = args.to_vec();
    kernel
        .reference_on(&mut args)
        .expect("the cases fit the kernel");
    args.truncate(N);
    args.try_into().expect("there are more arguments")
}

/// Returns the words of the states. The first row has the last state but one, and so on backwards.
/// The sequence of a row is the row's index.
fn states_of(random: &mut Random, rows: &[RowCase], states: u32, sequences: u32) -> Vec<u32> {
    let mut words: Vec<u32> = (0..states * LEN as u32).map(|_| random.below(7)).collect();
    for (i, RowCase { kind, .. }) in (0..).zip(rows) {
        let mut write =
            |word: u32, to: u32| words[((states - 1 - i) * LEN as u32 + word) as usize] = to;
        let all = [
            (DONE, 0),
            (SEQUENCE, i),
            (LIMIT, 0),
            (POSITION, 5),
            (PROMPT_LEN, 2),
        ];
        for (word, to) in all {
            write(word, to);
        }

        match kind {
            Kind::Done => write(DONE, 1),
            Kind::InPrompt => write(PROMPT_LEN, 8),
            Kind::Full => write(LIMIT, 6),
            Kind::NoPlace => write(SEQUENCE, sequences),
            Kind::Plain | Kind::NoState => {}
        }
    }
    words
}

fn biases(sequences: u32, vocab: u32) -> Vec<u32> {
    let mut words = vec![0; (sequences * 2 * MAX_BIASES) as usize];
    for sequence in words.chunks_mut(2 * MAX_BIASES as usize) {
        for (i, bias) in (0..).zip([2.0f32, -1e4, 0.5]) {
            sequence[2 * i] = (1 + 100 * i as u32) % vocab.max(300);
            sequence[2 * i + 1] = bias.to_bits();
        }
    }
    words
}

fn logits(random: &mut Random, kind: Logits, vocab: u32) -> Vec<f32> {
    let mut logits: Vec<f32> = (0..vocab)
        .map(|_| match kind {
            // The product of four random numbers is mostly near zero.
            Logits::Peaked => (0..4).map(|_| random.unit()).product::<f32>() * 30.0,
            Logits::Even | Logits::NotANumber => random.unit(),
            Logits::Flat => -0.75,
        })
        .collect();
    if let Logits::NotANumber = kind {
        logits[vocab as usize / 2] = f32::NAN;
    }
    logits
}

impl Variant for SampleAdjust {
    fn cases(&self, seed: u64) -> Vec<Case> {
        super::case::stages(seed)
            .into_iter()
            .map(|stage| stage.adjust)
            .collect()
    }
}

impl Variant for AllowTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        super::case::stages(seed)
            .into_iter()
            .map(|stage| stage.allow)
            .collect()
    }
}

impl Variant for SampleGather {
    fn cases(&self, seed: u64) -> Vec<Case> {
        super::case::stages(seed)
            .into_iter()
            .map(|stage| stage.gather)
            .collect()
    }
}

impl Variant for SampleToken {
    fn cases(&self, seed: u64) -> Vec<Case> {
        super::case::stages(seed)
            .into_iter()
            .map(|stage| stage.choose)
            .collect()
    }
}
