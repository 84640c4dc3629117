//! The sampling parameters of a request: those of the client over the model's defaults.

use std::hash::{BuildHasher, Hasher, RandomState};

use warpwright_engine::Sampling;

use super::request::SamplingFields;

/// Returns the parameters of a request. Without a seed, the seed is random.
pub(super) fn over(base: &Sampling, fields: &SamplingFields, logprobs: Option<u32>) -> Sampling {
    Sampling {
        temperature: fields.temperature.unwrap_or(base.temperature),
        top_k: fields.top_k.unwrap_or(base.top_k),
        top_p: fields.top_p.unwrap_or(base.top_p),
        min_p: fields.min_p.unwrap_or(base.min_p),
        typical_p: fields.typical_p.unwrap_or(base.typical_p),
        repeat_penalty: fields.repeat_penalty.unwrap_or(base.repeat_penalty),
        presence_penalty: fields.presence_penalty.unwrap_or(base.presence_penalty),
        frequency_penalty: fields.frequency_penalty.unwrap_or(base.frequency_penalty),
        penalty_window: fields.penalty_window.unwrap_or(base.penalty_window),
        logit_bias: [base.logit_bias.clone(), fields.logit_bias.clone()].concat(),
        seed: fields.seed.unwrap_or_else(fresh_seed),
        // The engine reports the log-probability of the chosen token only along with those of the
        // best tokens.
        logprobs: logprobs.map_or(0, |best| best.max(1)),
    }
}

/// Returns a random seed below 2^32, which every JSON reader can hold in a number.
fn fresh_seed() -> u64 {
    // The keys of a new hasher are random numbers from the operating system.
    u64::from(RandomState::new().build_hasher().finish() as u32)
}
