//! Tests of sampling: the reference, which is equal to the kernels bit for bit, against float64,
//! and its draws against chance.

use ptx_gen::{AnyKernel, CpuArg};
use warpwright_kernels::Random;
use warpwright_kernels::sample::reference::{Support, adjusted, choose, draw, support};
use warpwright_kernels::sample::weight::scale;
use warpwright_kernels::sample::{AllowTokens, SampleParams};
use warpwright_kernels::shared::philox::philox4x32;

/// The parameters as a user gives them.
#[derive(Clone, Copy, Debug)]
struct Given {
    top_k: u32,
    top_p: f64,
    typical_p: f64,
    min_p: f64,
    temperature: f64,
}

impl Given {
    fn random(random: &mut Random, vocab: u32) -> Given {
        let mut share = || {
            if random.below(2) == 0 {
                1.0
            } else {
                0.02 + 0.97 * f64::from(random.unit().abs())
            }
        };
        let top_p = share();
        let typical_p = share();
        Given {
            top_k: [0, 1, 1 + random.below(vocab), 40][random.below(4) as usize],
            top_p,
            typical_p,
            min_p: [0.0, 0.05, 0.5][random.below(3) as usize],
            temperature: [0.1, 0.7, 1.0, 2.5][random.below(4) as usize],
        }
    }

    fn params(&self, seed: u64) -> SampleParams {
        SampleParams {
            seed,
            top_k: self.top_k,
            top_p: SampleParams::share(self.top_p),
            typical_p: SampleParams::share(self.typical_p),
            min_gap: self.min_p.ln() as f32,
            scale: scale(self.temperature),
            ..SampleParams::OFF
        }
    }
}

/// The result of the filters in float64: tokens with their probabilities, and the distance of the
/// nearest border from another choice.
struct Exact {
    tokens: Vec<(u32, f64)>,
    margin: f64,
}

/// The filters in float64, written from their definitions.
fn exact(z: &[f32], given: &Given) -> Exact {
    let mut tokens: Vec<(u32, f64)> = (0..).zip(z.iter().map(|&z| f64::from(z))).collect();
    tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if given.top_k > 0 {
        tokens.truncate(given.top_k as usize);
    }

    let mut margin = f64::INFINITY;
    if given.typical_p < 1.0 {
        let p = softmax(&tokens, 1.0);
        let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
        let mut far: Vec<_> = tokens
            .iter()
            .zip(p)
            .map(|(t, p)| ((-p.ln() - entropy).abs(), *t, p))
            .collect();
        far.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.0.cmp(&b.1.0)));
        let count = first_share(far.iter().map(|far| far.2), given.typical_p, &mut margin);
        if let Some(next) = far.get(count) {
            // Equal logits are equally far in every arithmetic.
            let apart = next.0 - far[count - 1].0;
            margin = margin.min(if next.1.1 == far[count - 1].1.1 {
                1.0
            } else {
                apart
            });
        }

        tokens = far[..count].iter().map(|far| far.1).collect();
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    }

    if given.top_p < 1.0 {
        let count = first_share(softmax(&tokens, 1.0).into_iter(), given.top_p, &mut margin);
        tokens.truncate(count);
    }

    let least = tokens[0].1 + given.min_p.ln();
    margin = tokens
        .iter()
        .map(|t| (t.1 - least).abs())
        .fold(margin, f64::min);
    tokens.retain(|token| token.1 >= least);
    tokens.sort_by_key(|token| token.0);
    let p = softmax(&tokens, given.temperature);
    Exact {
        tokens: tokens
            .into_iter()
            .zip(p)
            .map(|(token, p)| (token.0, p))
            .collect(),
        margin,
    }
}

fn softmax(tokens: &[(u32, f64)], temperature: f64) -> Vec<f64> {
    let most = tokens
        .iter()
        .map(|token| token.1)
        .fold(f64::NEG_INFINITY, f64::max);
    let p: Vec<f64> = tokens
        .iter()
        .map(|token| ((token.1 - most) / temperature).exp())
        .collect();
    let sum: f64 = p.iter().sum();
    p.into_iter().map(|p| p / sum).collect()
}

/// Returns how many of the first tokens have this share. `margin` gets the distance of the sum from
/// another count.
fn first_share(p: impl Iterator<Item = f64>, share: f64, margin: &mut f64) -> usize {
    let mut sum = 0.0;
    let mut count = 0;
    for p in p {
        *margin = margin.min((share - sum).abs());
        sum += p;
        count += 1;
        if sum >= share {
            break;
        }
    }

    *margin = margin.min((share - sum).abs());
    count
}

/// The distance of a border within which `f32` may decide either way.
const NEAR: f64 = 1e-6;

#[test]
fn supports_and_draws_are_those_of_float64() {
    let mut random = Random(11);
    let mut near = 0;
    const CASES: u32 = 4000;
    for case in 0..CASES {
        let vocab = 2 + random.below(600);
        let width = [1.0, 8.0, 30.0][random.below(3) as usize];
        let z: Vec<f32> = random
            .units(vocab as usize)
            .iter()
            .map(|z| z * z * z * width)
            .collect();
        let given = Given::random(&mut random, vocab);
        let params = given.params(random.bits());
        let found = support(&z, &params).unwrap();
        let exact = exact(&z, &given);
        if !exact
            .tokens
            .iter()
            .map(|token| token.0)
            .eq(found.tokens.iter().copied())
        {
            assert!(
                exact.margin < NEAR,
                "case {case}: {given:?}, margin {:e}",
                exact.margin
            );
            near += 1;
            continue;
        }

        let token = choose(&z, &params, case).unwrap();
        let word = philox4x32(
            [case, 0, 0, 0],
            [params.seed as u32, (params.seed >> 32) as u32],
        )[0];
        near += u32::from(!is_drawn(&exact, token, f64::from(word) / 2f64.powi(32)));
    }

    println!("{near} of {CASES} near a border");
    assert!(
        f64::from(near) < 1e-3 * f64::from(CASES),
        "{near} of {CASES} near a border"
    );
}

/// Returns true if float64 draws this token too. If not, the share is near a border.
fn is_drawn(exact: &Exact, token: u32, share: f64) -> bool {
    let mut sum = 0.0;
    let mut nearest = f64::INFINITY;
    let mut wanted = None;
    for (id, p) in &exact.tokens {
        sum += p;
        nearest = nearest.min((sum - share).abs());
        if sum > share && wanted.is_none() {
            wanted = Some(*id);
        }
    }

    let same = wanted == Some(token);
    assert!(
        same || nearest < NEAR,
        "token {token}, not {wanted:?}: the nearest border is {nearest:e} away"
    );
    same
}

const DRAWS: u32 = 100_000;

/// Returns the draws at consecutive positions, as indices of the kept tokens.
fn draws(support: &Support, seed: u64) -> Vec<usize> {
    let key = [seed as u32, (seed >> 32) as u32];
    let token = |position| draw(support, philox4x32([position, 0, 0, 0], key)[0]);
    (0..DRAWS)
        .map(|i| {
            support
                .tokens
                .binary_search(&token(i))
                .expect("a token of the support")
        })
        .collect()
}

fn peaked() -> Support {
    let mut random = Random(5);
    let z: Vec<f32> = (0..80).map(|_| random.unit() * 4.0).collect();
    support(
        &z,
        &SampleParams {
            top_k: 60,
            ..SampleParams::OFF
        },
    )
    .unwrap()
}

/// Returns by how many standard deviations a chi-squared statistic is above its mean (Wilson and
/// Hilferty 1931).
fn deviations(statistic: f64, freedom: f64) -> f64 {
    let variance = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - variance)) / variance.sqrt()
}

/// One normal number in a million is above it.
const ONE_IN_A_MILLION: f64 = 4.753;

#[test]
fn draws_have_their_probabilities() {
    let support = peaked();
    let total: u64 = support.masses.iter().sum();
    for seed in [0, 1, 1 << 32, u64::MAX] {
        let mut counts = vec![0u32; support.tokens.len()];
        for place in draws(&support, seed) {
            counts[place] += 1;
        }

        let mut statistic = 0.0;
        let mut bins = 0;
        let mut pool = [0.0; 2];
        for (mass, count) in support.masses.iter().zip(counts) {
            pool[0] += *mass as f64 / total as f64 * f64::from(DRAWS);
            pool[1] += f64::from(count);
            if pool[0] >= 10.0 {
                statistic += (pool[1] - pool[0]).powi(2) / pool[0];
                (bins, pool) = (bins + 1, [0.0; 2]);
            }
        }

        assert!(bins > 20, "{bins} bins");
        let found = deviations(statistic, f64::from(bins - 1));
        println!("seed {seed}: {statistic:.1} in {bins} bins, {found:.2} deviations");
        assert!(
            found.abs() < ONE_IN_A_MILLION,
            "seed {seed}: {found} deviations"
        );
    }
}

fn correlation(a: &[usize], b: &[usize]) -> f64 {
    let n = a.len() as f64;
    let mean = |x: &[usize]| x.iter().sum::<usize>() as f64 / n;
    let ma = mean(a);
    let mb = mean(b);
    let product = |x: &[usize], mx: f64, y: &[usize], my: f64| -> f64 {
        x.iter()
            .zip(y)
            .map(|(&x, &y)| (x as f64 - mx) * (y as f64 - my))
            .sum()
    };
    product(a, ma, b, mb) / (product(a, ma, a, ma) * product(b, mb, b, mb)).sqrt()
}

#[test]
fn draws_are_independent() {
    let support = peaked();
    let [one, other] = [7, 8].map(|seed| draws(&support, seed));
    let lags = [1, 2, 3, 64].map(|lag| correlation(&one[lag..], &one[..one.len() - lag]));
    for correlation in lags.into_iter().chain([correlation(&one, &other)]) {
        let deviations = correlation * f64::from(DRAWS).sqrt();
        assert!(deviations.abs() < ONE_IN_A_MILLION, "{correlation:e}");
    }
    assert_ne!(one, other);
}

#[test]
fn penalties_are_in_llama_cpps_order() {
    let params = SampleParams {
        repeat: 2.0,
        presence: 0.25,
        frequency: 0.5,
        ..SampleParams::OFF
    };
    let biases = [[1, (-4f32).to_bits()], [4, 1f32.to_bits()]];
    let found = adjusted(&[3.0, 3.0, -3.0, 0.0, 5.0], &params, &[0, 1, 0, 2], &biases);

    // 3 / 2 - 1.25, (3 - 4) * 2 - 0.75, -3 * 2 - 0.75, untouched, biased.
    assert_eq!(found, [0.25, -2.75, -6.75, 0.0, 6.0]);
}

#[test]
fn logits_that_are_not_finite_give_no_token() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(choose(&[0.0, bad, 1.0], &SampleParams::OFF, 0), None);
    }
    assert_eq!(
        choose(&[0.5, 2.0, 2.0, -1.0], &SampleParams::GREEDY, 9),
        Some(1)
    );
}

/// Returns these logits if only some tokens are allowed, with a bit for each token.
fn allowed(logits: &[f32], bits: Vec<u32>) -> Vec<f32> {
    let vocab = logits.len() as u32;
    let mut args = vec![
        CpuArg::F32(logits.to_vec()),
        CpuArg::U32(vec![0; 8]),
        CpuArg::U32(bits),
        CpuArg::U32(vec![0]),
        CpuArg::U32(SampleParams::OFF.words().to_vec()),
    ];
    args.extend([vocab, 1, 1, 1, 1, 1].map(CpuArg::scalar));
    AllowTokens { overlap: false }
        .reference_on(&mut args)
        .unwrap();
    let CpuArg::F32(logits) = args.swap_remove(0) else {
        panic!("logits are numbers")
    };

    logits
}

#[test]
fn no_other_token_is_chosen_than_those_that_are_allowed() {
    let mut random = Random(11);
    for trial in 0..400 {
        let scale_of = [1.0, 1e4, 1e20, 3e35][trial % 4];
        let logits: Vec<f32> = (0..70).map(|_| random.unit() * scale_of).collect();
        let sure = random.below(70);
        let mut bits: Vec<u32> = (0..3)
            .map(|_| (random.bits() & random.bits()) as u32)
            .collect();
        bits[sure as usize / 32] |= 1 << (sure % 32);
        let extreme =
            |random: &mut Random, [a, b]: [f32; 2]| if random.below(2) == 0 { a } else { b };
        let params = SampleParams {
            repeat: extreme(&mut random, [0.01, 100.0]),
            presence: extreme(&mut random, [-100.0, 100.0]),
            frequency: extreme(&mut random, [-100.0, 100.0]),
            scale: scale(f64::from(extreme(&mut random, [0.01, 100.0]))),
            ..Given::random(&mut random, 70).params(trial as u64)
        };
        let latest: Vec<u32> = (0..64).map(|_| random.below(70)).collect();
        let biases: Vec<[u32; 2]> = (0..70)
            .map(|token| [token, extreme(&mut random, [-1e4, 1e4]).to_bits()])
            .collect();
        let z = adjusted(&allowed(&logits, bits.clone()), &params, &latest, &biases);
        let token = choose(&z, &params, trial as u32).unwrap();
        assert_eq!(
            bits[token as usize / 32] >> (token % 32) & 1,
            1,
            "trial {trial}: token {token}"
        );
    }
}

#[test]
fn a_mask_of_all_tokens_changes_nothing() {
    let logits = [0.5, -3e9, 7e30, f32::MAX, -0.0];
    assert_eq!(allowed(&logits, vec![0x1f]), logits);
    let found = allowed(&[f32::NAN, f32::NEG_INFINITY, 2.0], vec![0]);
    assert!(
        found[0].is_nan() && found[1] == f32::NEG_INFINITY && found[2] < -1e30,
        "{found:?}"
    );
}
