//! Facts about a model, in the form of the JSON output.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use warpwright_driver::device::Device;
use warpwright_engine::info::token_bytes;
use warpwright_engine::{GenerationConfig, KernelPath, Tuning};
use warpwright_model::info::{self, WeightClass, kv_bytes};
use warpwright_model::rope::{Rope, Scaling};
use warpwright_model::{Config, Model, gguf};

use crate::failure::sentence;

/// The facts about a model. Lengths are in elements, and sizes in bytes.
#[derive(Serialize)]
pub(super) struct ModelFacts {
    pub(super) file: String,
    pub(super) name: Option<String>,
    pub(super) license: Option<String>,
    pub(super) architecture: &'static str,
    pub(super) parameters: u64,
    /// The parameters that one token uses, which are fewer in a mixture of experts.
    pub(super) parameters_per_token: u64,
    pub(super) formats: BTreeMap<&'static str, FormatMix>,
    pub(super) layers: u32,
    pub(super) hidden: u32,
    pub(super) feed_forward: u32,
    /// The mixture of experts, in models that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) experts: Option<ExpertFacts>,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) vocabulary: u32,
    pub(super) context: u32,
    pub(super) window: Option<AttentionWindow>,
    /// The rotary embedding. If layers with a window have another one, it is the second element.
    pub(super) rope: Vec<RopeFacts>,
    /// Whether the LM head is a separate matrix, and not the embedding.
    pub(super) own_head: bool,
    pub(super) tokenizer: ModelFact<TokenizerFacts>,
    pub(super) chat_template: ModelFact<TemplateFacts>,
    pub(super) sampling: ModelFact<SamplingFacts>,
    pub(super) weight_bytes_per_token: u64,
    pub(super) kv_bytes_per_position: u64,
    pub(super) path: String,
    pub(super) device: String,
    pub(super) tensors: Vec<TensorRole>,
}

/// A part of a model that may be absent or unusable. In JSON it is the value, null, or an object
/// with the error.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModelFact<T> {
    Error(String),
    #[serde(untagged)]
    None,
    #[serde(untagged)]
    Some(T),
}

#[derive(Serialize)]
pub(super) struct FormatMix {
    pub(super) tensors: usize,
    pub(super) numbers: u64,
    pub(super) bytes: u64,
}

/// The mixture of experts.
#[derive(Serialize)]
pub(super) struct ExpertFacts {
    pub(super) count: u32,
    pub(super) per_token: u32,
    pub(super) feed_forward: u32,
    /// The width of the expert that every token passes.
    pub(super) shared_feed_forward: Option<u32>,
    /// The layers with experts. The others have a dense feed-forward.
    pub(super) layers: usize,
}

/// The sliding window of attention.
#[derive(Serialize)]
pub(super) struct AttentionWindow {
    pub(super) positions: u32,
    pub(super) layers: usize,
}

#[derive(Serialize)]
pub(super) struct RopeFacts {
    pub(super) dim: u32,
    pub(super) base: f64,
    pub(super) scaling: &'static str,
    pub(super) factor: f64,
    /// The context of the original model, for YaRN.
    pub(super) original_context: Option<u32>,
    /// Whether the file has factors that frequencies are divided by.
    pub(super) own_factors: bool,
}

#[derive(Serialize)]
pub(super) struct TokenizerFacts {
    pub(super) begins_with: Option<SpecialToken>,
    /// The tokens that end a text.
    pub(super) ends_with: Vec<SpecialToken>,
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct SpecialToken {
    pub(super) id: u32,
    pub(super) spelling: Option<String>,
}

#[derive(Serialize)]
pub(super) struct TemplateFacts {
    pub(super) asks_date: bool,
    pub(super) marks_replies: bool,
}

/// The supported settings of `generation_config.json`.
#[derive(Serialize)]
pub(super) struct SamplingFacts {
    /// The settings by their names in the file.
    pub(super) says: BTreeMap<&'static str, Value>,
    pub(super) warning: Option<String>,
}

/// The tensors with the same role in all layers.
#[derive(Serialize)]
pub(super) struct TensorRole {
    pub(super) name: String,
    /// The dimensions, rows first. A GGUF file has them in the reverse order.
    pub(super) shape: Vec<u64>,
    pub(super) formats: BTreeMap<&'static str, usize>,
    pub(super) bytes: u64,
}

impl ModelFacts {
    /// Collects the facts about a model on a device.
    pub(super) fn new(model: &Model, device: &Device) -> ModelFacts {
        let outline = &model.outline;
        let c = &outline.config;
        let formats = info::format_totals(outline);
        ModelFacts {
            file: model.files.path().display().to_string(),
            name: general(model, "general.name"),
            license: general(model, "general.license"),
            architecture: c.architecture.name,
            parameters: formats.values().map(|mix| mix.numbers).sum(),
            parameters_per_token: info::token_numbers(outline),
            formats: formats
                .into_iter()
                .map(|(name, mix)| (name, mix.into()))
                .collect(),
            layers: c.layer_count(),
            hidden: c.hidden,
            feed_forward: c.feed_forward(),
            experts: experts(c),
            heads: c.heads(),
            kv_heads: c.kv_heads(),
            head_dim: c.head_dim(),
            vocabulary: c.vocab,
            context: c.context,
            window: window(c),
            rope: c
                .ropes
                .iter()
                .map(|rope| RopeFacts::of(rope, outline.rope_factors.is_some()))
                .collect(),
            own_head: outline.weights.head.is_some(),
            tokenizer: tokenizer(model),
            chat_template: template(model),
            sampling: sampling(model),
            weight_bytes_per_token: token_bytes(outline),
            kv_bytes_per_position: kv_bytes(outline),
            path: KernelPath::for_model(outline, device, Tuning::default()).to_string(),
            device: device.name().to_owned(),
            tensors: info::classes(outline)
                .into_iter()
                .map(TensorRole::from)
                .collect(),
        }
    }
}

/// Returns a text from the metadata of a GGUF file.
fn general(model: &Model, key: &str) -> Option<String> {
    match model.files.gguf()?.directory.metadata.get(key)? {
        gguf::Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the mixture of experts, if some layers have one. All of them have the same.
fn experts(c: &Config) -> Option<ExpertFacts> {
    let first = c.experts().next()?;
    Some(ExpertFacts {
        count: first.count,
        per_token: first.chosen,
        feed_forward: first.width,
        shared_feed_forward: first.shared.map(|shared| shared.width),
        layers: c.experts().count(),
    })
}

/// Returns the sliding window, if some layers have one.
fn window(c: &Config) -> Option<AttentionWindow> {
    let windows: Vec<u32> = c
        .attentions()
        .filter_map(|attention| attention.window)
        .collect();
    Some(AttentionWindow {
        positions: *windows.first()?,
        layers: windows.len(),
    })
}

/// Returns the facts about the tokenizer.
fn tokenizer(model: &Model) -> ModelFact<TokenizerFacts> {
    let words = match model.tokenizer() {
        Ok(words) => words,
        Err(error) => return ModelFact::Error(sentence(&error)),
    };
    let token = |id: u32| SpecialToken {
        id,
        spelling: words.control(id).map(str::to_owned),
    };
    ModelFact::Some(TokenizerFacts {
        begins_with: words.bos().map(token),
        ends_with: model.outline.stop.iter().map(|id| token(*id)).collect(),
        warnings: words.warnings().to_vec(),
    })
}

/// Returns the facts about the chat template.
fn template(model: &Model) -> ModelFact<TemplateFacts> {
    match model.chat_template() {
        Ok(None) => ModelFact::None,
        Ok(Some(template)) => ModelFact::Some(TemplateFacts {
            asks_date: template.asks_date(),
            marks_replies: template.marks_replies(),
        }),
        Err(error) => ModelFact::Error(sentence(&error)),
    }
}

/// Returns the facts about `generation_config.json`.
fn sampling(model: &Model) -> ModelFact<SamplingFacts> {
    let config = match GenerationConfig::for_model(model) {
        Ok(config) => config,
        Err(error) => return ModelFact::Error(sentence(&error)),
    };

    // Only settings that the sampler follows are listed, so the output shows what a text depends
    // on.
    let says = [
        ("do_sample", config.do_sample.map(Value::from)),
        ("temperature", config.temperature.map(Value::from)),
        ("top_k", config.top_k.map(Value::from)),
        ("top_p", config.top_p.map(Value::from)),
        ("min_p", config.min_p.map(Value::from)),
        ("typical_p", config.typical_p.map(Value::from)),
        (
            "repetition_penalty",
            config.repetition_penalty.map(Value::from),
        ),
    ];
    let says: BTreeMap<_, _> = says
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect();
    let warning = config.warning();
    if says.is_empty() && warning.is_none() {
        return ModelFact::None;
    }

    ModelFact::Some(SamplingFacts { says, warning })
}

impl RopeFacts {
    fn of(rope: &Rope, own_factors: bool) -> RopeFacts {
        let (scaling, factor, original_context) = match rope.scaling {
            Scaling::Linear(1.0) => ("none", 1.0, None),
            Scaling::Linear(factor) => ("linear", factor, None),
            Scaling::Yarn(yarn) => ("yarn", yarn.factor, Some(yarn.original_context)),
            Scaling::Still => ("no rotation", 1.0, None),
        };
        RopeFacts {
            dim: rope.rotated,
            base: rope.base,
            scaling,
            factor,
            original_context,
            own_factors,
        }
    }
}

impl From<info::FormatTotal> for FormatMix {
    fn from(
        info::FormatTotal {
            tensors,
            numbers,
            bytes,
        }: info::FormatTotal,
    ) -> FormatMix {
        FormatMix {
            tensors,
            numbers,
            bytes,
        }
    }
}

impl From<WeightClass> for TensorRole {
    fn from(
        WeightClass {
            name,
            dims,
            formats,
            bytes,
        }: WeightClass,
    ) -> TensorRole {
        TensorRole {
            name,
            shape: dims.into_iter().rev().collect(),
            formats,
            bytes,
        }
    }
}
