//! The settings of a generation, as responses repeat them.

use serde_json::{Value, json};
use warpwright_engine::Sampling;

use crate::models::ServedModel;
use crate::reply::SamplingFields;
use crate::scheduler::AtEnd;

/// The settings of a generation.
pub(super) struct Settings {
    pub(super) sampling: Sampling,
    /// The seed, or `None` if each request has a new one.
    pub(super) seed: Option<u64>,
    /// The maximum number of tokens, or `None` up to the end of the context.
    pub(super) max_tokens: Option<u32>,
    pub(super) stop: Vec<String>,
    pub(super) at_end: AtEnd,
    pub(super) probabilities: u32,
    pub(super) stream: bool,
}

/// The seed in JSON that stands for a new one in each request (`LLAMA_DEFAULT_SEED`).
const FRESH_SEED: u64 = 0xffff_ffff;

impl Settings {
    /// Returns the settings of requests that set nothing.
    pub(super) fn defaults(model: &ServedModel) -> Settings {
        Settings {
            sampling: model.defaults.clone(),
            seed: model.seed,
            max_tokens: model.max_tokens,
            stop: vec![],
            at_end: AtEnd::Stop,
            probabilities: 0,
            stream: false,
        }
    }

    /// Returns the sampling parameters of a model with those of a request.
    pub(super) fn sampling(base: &Sampling, fields: &SamplingFields) -> Sampling {
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
            logit_bias: fields.logit_bias.clone(),
            ..base.clone()
        }
    }

    /// Returns the settings with llama.cpp's names.
    pub(super) fn json(&self, model: &ServedModel) -> Value {
        let sampling = &self.sampling;
        let limit = self.max_tokens.map_or(-1, i64::from);
        let mut biases: Vec<Value> = sampling
            .logit_bias
            .iter()
            .map(|(token, bias)| json!({ "token": token, "bias": bias }))
            .collect();
        if self.at_end == AtEnd::Ignore {
            // llama.cpp writes the end tokens with a bias of minus infinity, which JSON does not
            // have.
            let ends = model.stop.iter();
            biases.extend(ends.map(|token| json!({ "token": token, "bias": null })));
        }
        json!({
            "n_predict": limit,
            "max_tokens": limit,
            "seed": self.seed.unwrap_or(FRESH_SEED),
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "typical_p": sampling.typical_p,
            "repeat_last_n": sampling.penalty_window,
            "repeat_penalty": sampling.repeat_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "logit_bias": biases,
            "stop": self.stop,
            "ignore_eos": self.at_end == AtEnd::Ignore,
            "n_probs": self.probabilities,
            "stream": self.stream,
            "lora": [],
        })
    }
}
