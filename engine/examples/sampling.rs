//! The kernels of sampling on the first GPU, each token compared with the reference on the CPU, and 100,000 draws with
//! chance: `sampling [--emulator]`. It prints how many tokens differ, which must be none, and a chi-squared statistic.

use std::error::Error;

use ptx_gen::CpuArg;
use warpwright_driver::launch::{Elem, HostArg};
use warpwright_driver::memory::{Buffer, Element};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::{Context, Driver};
use warpwright_engine::load_listed;
use warpwright_kernels::sample::weight::scale;
use warpwright_kernels::sample::{BINS, MAX_BIASES, SampleParams, blocks, reference};
use warpwright_kernels::shared::state::StepState;
use warpwright_kernels::{ALL, Random};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let emulator = std::env::args()
        .nth(1)
        .is_some_and(|arg| arg == "--emulator");
    let driver = if emulator {
        Driver::from_library(warpwright_cuda_emu::library())?
    } else {
        Driver::load()?
    };
    let context = Context::new(&driver.device(0)?)?;

    // The emulator takes part of it, to see that the program works.
    let (vocab, rounds, launches) = if emulator {
        (5_000, 2, 4)
    } else {
        (151_936, 40, 400)
    };
    let mut random = Random(1);
    for round in 0..rounds {
        let rows: Vec<_> = (0..8)
            .map(|i| (logits(&mut random, vocab), params(&mut random, i, vocab)))
            .collect();
        compare(&rows, &sample(&context, &rows, round)?, round);
    }

    println!("{rounds} rounds of 8 rows, {vocab} tokens: all as the reference");
    chance(&context, launches)
}

/// Draws of one distribution: 250 sequences with seeds of their own, at consecutive positions.
fn chance(context: &Context, launches: u32) -> Outcome<()> {
    let mut random = Random(2);
    let z: Vec<f32> = (0..200).map(|_| random.unit() * 4.0).collect();
    let all = SampleParams {
        top_k: 150,
        scale: scale(0.9),
        ..SampleParams::OFF
    };
    let rows: Vec<_> = (0..250)
        .map(|seed| (z.clone(), SampleParams { seed, ..all }))
        .collect();
    let support = reference::support(&z, &all).ok_or("the logits are finite")?;
    let mut counts = vec![0u32; z.len()];
    for launch in 0..launches {
        let tokens = sample(context, &rows, launch)?;
        compare(&rows, &tokens, launch);
        for token in tokens {
            counts[token as usize] += 1;
        }
    }

    let (draws, total) = (
        f64::from(launches) * 250.0,
        support.masses.iter().sum::<u64>() as f64,
    );
    let (mut statistic, mut bins, mut pool) = (0.0, 0, [0.0; 2]);
    for (token, mass) in support.tokens.iter().zip(&support.masses) {
        pool[0] += *mass as f64 / total * draws;
        pool[1] += f64::from(counts[*token as usize]);
        if pool[0] >= 10.0 {
            statistic += (pool[1] - pool[0]).powi(2) / pool[0];
            (bins, pool) = (bins + 1, [0.0; 2]);
        }
    }

    println!(
        "{draws} draws: chi-squared {statistic:.1} with {} degrees of freedom",
        bins - 1
    );
    Ok(())
}

fn logits(random: &mut Random, vocab: u32) -> Vec<f32> {
    let width = [4.0, 30.0, 1.0][random.below(3) as usize];
    (0..vocab)
        .map(|_| random.unit() * random.unit() * random.unit() * width)
        .collect()
}

/// Every way through the kernels: few tokens, all, only top-p, only min-p.
fn params(random: &mut Random, i: u32, vocab: u32) -> SampleParams {
    let share = SampleParams::share(0.5 + f64::from(random.unit().abs()) / 2.0);
    let off = SampleParams {
        seed: random.bits(),
        ..SampleParams::OFF
    };
    let usual = SampleParams {
        top_k: 40,
        top_p: share,
        min_gap: -3.0,
        scale: scale(0.8),
        ..off
    };
    let all = [
        SampleParams::GREEDY,
        usual,
        SampleParams {
            repeat: 1.1,
            presence: 0.2,
            window: 64,
            ..usual
        },
        SampleParams {
            top_p: share,
            ..off
        },
        SampleParams {
            typical_p: share,
            ..off
        },
        SampleParams {
            top_k: vocab / 2,
            scale: scale(1.5),
            ..off
        },
        SampleParams {
            min_gap: -4.0,
            ..off
        },
        off,
    ];
    all[i as usize % all.len()]
}

const MAX_TOKENS: u32 = 1024;
/// The token at each position before.
const BEFORE: u32 = 3;

fn compare(rows: &[(Vec<f32>, SampleParams)], tokens: &[u32], position: u32) {
    for ((logits, params), token) in rows.iter().zip(tokens) {
        let count = (position + 1).min(params.window) as usize;
        let z = reference::adjusted(logits, params, &vec![BEFORE; count], &[]);
        assert_eq!(
            Some(*token),
            reference::choose(&z, params, position),
            "{params:?}"
        );
    }
}

/// The tokens that the three kernels choose at a position.
fn sample(
    context: &Context,
    rows: &[(Vec<f32>, SampleParams)],
    position: u32,
) -> Outcome<Vec<u32>> {
    let (count, vocab) = (rows.len() as u32, rows[0].0.len() as u32);
    let ints = |len: u32| CpuArg::U32(vec![0; len as usize]);
    let floats = |len: u32| CpuArg::F32(vec![0.0; len as usize]);
    let states = (0..count)
        .flat_map(|row| {
            StepState {
                position,
                sequence: row,
                ..StepState::default()
            }
            .words()
        })
        .collect();
    let state = CpuArg::U32(states);
    let mut of = vec![CpuArg::U32((0..count).collect())];
    of.push(CpuArg::U32(
        rows.iter().flat_map(|row| row.1.words()).collect(),
    ));
    of.extend([vocab, count, count, count, count, MAX_TOKENS].map(CpuArg::scalar));
    let tokens = CpuArg::U32(vec![BEFORE; (count * MAX_TOKENS) as usize]);
    let logits = CpuArg::F32(rows.iter().flat_map(|row| row.0.clone()).collect());
    let chunks = count * blocks(vocab);
    let mut args = vec![
        logits,
        state.clone(),
        tokens,
        ints(count * 2 * MAX_BIASES),
        floats(count * vocab),
    ];
    args.extend(
        [floats(chunks), ints(count * BINS)]
            .into_iter()
            .chain(of.clone()),
    );
    let after = launch(context, "sample_adjust_plain", args)?;
    let [tokens, z, largest, histogram] = [2, 4, 5, 6].map(|i: usize| after[i].clone());
    let mut args = vec![z.clone(), state.clone(), largest.clone(), histogram.clone()];
    args.extend([
        ints(count * vocab.div_ceil(32)),
        ints(count),
        CpuArg::U64(vec![0; 2 * chunks as usize]),
    ]);
    args.extend(of.clone());
    let after = launch(context, "sample_gather_plain", args)?;
    let [mask, listed, mass] = [4, 5, 6].map(|i: usize| after[i].clone());
    let mut args = vec![
        z,
        largest,
        mask,
        listed,
        mass,
        histogram,
        state,
        tokens,
        CpuArg::U32(vec![u32::MAX]),
    ];
    args.extend([
        ints(count * MAX_TOKENS),
        ints(1),
        CpuArg::scalar(1u32),
        CpuArg::scalar(0u32),
    ]);
    args.extend(of);
    let after = launch(context, "sample_token_plain", args)?;
    let CpuArg::U32(out) = &after[9] else {
        return Err("the tokens are numbers".into());
    };

    Ok((0..count)
        .map(|row| out[(row * MAX_TOKENS + position) as usize])
        .collect())
}

/// The arguments after a kernel ran on them.
fn launch(context: &Context, name: &str, args: Vec<CpuArg>) -> Outcome<Vec<CpuArg>> {
    let kernel = ALL
        .iter()
        .find(|kernel| kernel.name() == name)
        .ok_or("no such kernel")?;
    let function = load_listed(context, name)?.ok_or("no such kernel")?;
    let params = kernel.params();
    let stream = Stream::new(context)?;
    let uploaded = args.into_iter().zip(&params).map(|(arg, param)| match arg {
        CpuArg::U32(v) => upload(context, &v, CpuArg::U32),
        CpuArg::U64(v) => upload(context, &v, CpuArg::U64),
        CpuArg::F32(v) => upload(context, &v, CpuArg::F32),
        CpuArg::Scalar(bits) => Ok((
            HostArg::Scalar(param.kind.elem(), bits),
            Box::new(move || Ok(CpuArg::Scalar(bits))) as Fetch,
        )),
        _ => Err("no kernel of sampling has such an argument".into()),
    });
    let (host, fetch): (Vec<_>, Vec<_>) =
        uploaded.collect::<Outcome<Vec<_>>>()?.into_iter().unzip();
    (&stream).launch_any(&function, &host)?;
    stream.synchronize()?;
    fetch.into_iter().map(|fetch| fetch()).collect()
}

/// Brings an argument back from the device.
type Fetch = Box<dyn Fn() -> Outcome<CpuArg>>;

fn upload<T: Elem + Element>(
    context: &Context,
    values: &[T],
    wrap: fn(Vec<T>) -> CpuArg,
) -> Outcome<(HostArg, Fetch)> {
    let view = Buffer::from_slice(context, values)?.view();
    Ok((
        HostArg::from(&view),
        Box::new(move || Ok(wrap(view.to_vec()?))),
    ))
}
