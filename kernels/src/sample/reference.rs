//! The reference of sampling on the CPU. It sorts the tokens, and each filter cuts the tokens
//! behind a border.
//!
//! It uses the same integer masses ([`weight`]) as the kernels, so the results are equal bit for
//! bit.

use super::SampleParams;
use super::draw::moment_on_cpu;
use super::limits::ID_BITS;
use super::weight::weight;
use crate::shared::philox::philox4x32;

/// A token and its logit.
type Token = (u32, f32);

/// The tokens from which a draw is made, with their masses.
#[derive(Clone, Debug, PartialEq)]
pub struct Support {
    /// The tokens that the filters keep, in rising order.
    pub tokens: Vec<u32>,
    /// The masses at the sequence's temperature. A token far below the largest has 0.
    pub masses: Vec<u64>,
}

/// Returns the biased and penalized logits.
///
/// `latest` is the window of the penalties. `biases` has tokens with the bits of their biases.
pub fn adjusted(logits: &[f32], p: &SampleParams, latest: &[u32], biases: &[[u32; 2]]) -> Vec<f32> {
    let adjust = |(id, &logit): (usize, &f32)| {
        let bias = biases
            .iter()
            .find(|[token, _]| *token as usize == id)
            .map_or(0.0, |b| f32::from_bits(b[1]));

        // The window is short, so a linear search per token is fast enough for tests.
        let times = latest.iter().filter(|token| **token as usize == id).count();
        let z = logit + bias;
        match times {
            0 => z,
            times => {
                (if z > 0.0 { z / p.repeat } else { z * p.repeat })
                    - (times as f32 * p.frequency + p.presence)
            }
        }
    };
    logits.iter().enumerate().map(adjust).collect()
}

/// Returns the next token for biased and penalized logits, or `None` if one of them is not finite.
///
/// # Example
///
/// Without randomness, for example with top-k of 1, the largest logit wins:
///
/// ```
/// use warpwright_kernels::sample::{SampleParams, reference::choose};
///
/// assert_eq!(choose(&[0.5, 2.0, 1.0], &SampleParams::GREEDY, 0), Some(1));
/// assert_eq!(choose(&[0.5, f32::NAN], &SampleParams::GREEDY, 0), None);
/// ```
pub fn choose(z: &[f32], params: &SampleParams, position: u32) -> Option<u32> {
    let support = support(z, params)?;
    let word = philox4x32(
        [position, 0, 0, 0],
        [params.seed as u32, (params.seed >> 32) as u32],
    )[0];
    Some(draw(&support, word))
}

/// Returns the token at the share `word / 2^32` of the mass, in the order of tokens.
///
/// # Panics
///
/// Panics if all masses are 0.
pub fn draw(support: &Support, word: u32) -> u32 {
    let total: u64 = support.masses.iter().sum();
    let number = ((u128::from(total) * u128::from(word)) >> 32) as u64;
    let mut sum = 0;
    let drawn = support
        .tokens
        .iter()
        .zip(&support.masses)
        .find(|(_, mass)| {
            sum += **mass;
            sum > number
        });
    *drawn.expect("the share is less than the whole").0
}

/// Returns the tokens that the filters keep, or `None` if a logit is not finite.
pub fn support(z: &[f32], params: &SampleParams) -> Option<Support> {
    if z.iter().any(|z| !z.is_finite()) {
        return None;
    }

    let mut kept: Vec<Token> = (0..).zip(z.iter().copied()).collect();
    kept.sort_by_key(|token| std::cmp::Reverse(order(*token)));
    let most = kept[0].1;
    if params.top_k > 0 {
        kept.truncate(params.top_k as usize);
    }
    if params.typical_p > 0 {
        kept = typical(kept, most, params.typical_p);
    }
    if params.top_p > 0 {
        kept = first_share(kept, most, params.top_p);
    }

    // Sorted by logits, also after typical-p.
    let most = kept[0].1;
    kept.retain(|(_, z)| z - most >= params.min_gap);
    kept.sort_unstable_by_key(|(id, _)| *id);
    let masses = kept
        .iter()
        .map(|(_, z)| weight(*z, most, params.scale))
        .collect();
    Some(Support {
        tokens: kept.into_iter().map(|(id, _)| id).collect(),
        masses,
    })
}

/// Returns the key of a token in the order of logits: larger logits first, and the lower token of
/// equals.
fn order((id, z): Token) -> u64 {
    let bits = z.to_bits();
    let flip = (bits.cast_signed() >> 31).cast_unsigned() | 1 << 31;
    u64::from(bits ^ flip) << ID_BITS | u64::from(id ^ ((1 << ID_BITS) - 1))
}

fn masses(tokens: &[Token], most: f32) -> Vec<u64> {
    tokens
        .iter()
        .map(|(_, z)| weight(*z, most, SampleParams::OFF.scale))
        .collect()
}

/// Returns the fewest first tokens that have at least this share of the mass, in units of 2^-32.
fn first_share(mut tokens: Vec<Token>, most: f32, share: u32) -> Vec<Token> {
    let masses = masses(&tokens, most);
    let total: u64 = masses.iter().sum();
    let wanted = (u128::from(total) * u128::from(share)).div_ceil(1 << 32) as u64;
    let mut sum = 0;
    let reached = masses.iter().position(|mass| {
        sum += mass;
        sum >= wanted
    });
    tokens.truncate(reached.expect("the share is less than the whole") + 1);
    tokens
}

/// Returns the tokens whose surprise is nearest to the mean surprise and that have at least this
/// share of the mass. They are sorted by logits again.
fn typical(mut tokens: Vec<Token>, most: f32, share: u32) -> Vec<Token> {
    let masses = masses(&tokens, most);
    let moments = tokens
        .iter()
        .zip(&masses)
        .map(|((_, z), mass)| moment_on_cpu(*mass, most - z));
    let surprise: u64 = moments.sum();
    let mass: u64 = masses.iter().sum();
    let mean = surprise as f32 / mass as f32;

    // The bits of non-negative floats have the order of the floats.
    let distance = |z: f32| ((most - z) - mean).abs().to_bits();
    tokens.sort_by_key(|&(id, z)| (distance(z), id));
    let mut kept = first_share(tokens, most, share);
    kept.sort_by_key(|token| std::cmp::Reverse(order(*token)));
    kept
}

/// Returns the words of a record, as in [`SampleTokenArgs`](super::SampleTokenArgs).
pub(super) fn record(z: &[f32], chosen: u32, best: u32) -> Vec<u32> {
    if best == 0 {
        return vec![];
    }

    let mut tokens: Vec<Token> = (0..).zip(z.iter().copied()).collect();
    tokens.sort_by_key(|token| std::cmp::Reverse(order(*token)));
    let total: u64 = masses(&tokens, tokens[0].1).iter().sum();
    let head = [
        tokens[0].1.to_bits(),
        total as u32,
        (total >> 32) as u32,
        z[chosen as usize].to_bits(),
    ];
    let best = tokens
        .iter()
        .take(best as usize)
        .flat_map(|(id, z)| [*id, z.to_bits()]);
    head.into_iter().chain(best).collect()
}
