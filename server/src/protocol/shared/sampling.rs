//! The sampling parameters of a request, with the names of OpenAI, vLLM and llama.cpp.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

use super::ranges::{number_in, whole_in};
use super::refused::{Refused, Unless};
use super::texts::Texts;
use super::whole::Whole;
use crate::error::RequestError;
use crate::reply::SamplingFields;
use crate::scheduler::AtEnd;

/// The temperature below which sampling is greedy in practice. The engine's minimum is this one.
const MIN_TEMPERATURE: f64 = 0.01;

/// The smallest probability mass that the engine accepts. It keeps one token.
const MIN_MASS: f64 = 1e-6;

/// The bias of a token that must not be generated.
const BANNED: f64 = -1e4;

/// The sampling parameters of a request. Parameters that are absent are the model's defaults.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct SamplingRequest {
    /// The temperature: 0 for the most likely token, up to 100.
    #[schema(minimum = 0, maximum = 100)]
    pub temperature: Option<f64>,
    /// The probability mass of the most likely tokens to keep.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// The number of most likely tokens to keep. 0 and -1 keep all.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub top_k: Option<Whole>,
    /// The minimum probability of a token, relative to the most likely one.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f64>,
    /// The probability mass of the most typical tokens to keep.
    #[schema(minimum = 0, maximum = 1)]
    pub typical_p: Option<f64>,
    /// The divisor of the logits of the latest tokens (llama.cpp's name).
    #[schema(minimum = 0.01, maximum = 100)]
    pub repeat_penalty: Option<f64>,
    /// The divisor of the logits of the latest tokens (vLLM's name).
    #[schema(minimum = 0.01, maximum = 100)]
    pub repetition_penalty: Option<f64>,
    /// The value subtracted from the logits of the latest tokens.
    #[schema(minimum = -100, maximum = 100)]
    pub presence_penalty: Option<f64>,
    /// The value subtracted from the logits of the latest tokens for each occurrence.
    #[schema(minimum = -100, maximum = 100)]
    pub frequency_penalty: Option<f64>,
    /// The number of latest tokens that are penalized.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 1024)]
    pub repeat_last_n: Option<Whole>,
    /// The values added to logits, by token id.
    #[schema(schema_with = biases_schema)]
    pub logit_bias: Option<Value>,
    /// The random seed. -1 chooses one.
    #[schema(value_type = Option<i64>)]
    pub seed: Option<Whole>,
    /// The strings that end the text.
    pub stop: Option<Texts>,
    /// Whether the text goes on after a token that ends texts.
    pub ignore_eos: Option<bool>,
}

impl SamplingRequest {
    /// Returns the parameters that are set.
    ///
    /// # Errors
    /// Returns an error that names the first field that is out of range.
    pub fn fields(&self) -> Result<SamplingFields, RequestError> {
        let penalty = |field, value| number_in(field, value, -100.0..=100.0);
        let repeat = |field, value| number_in(field, value, 0.01..=100.0);
        let mass = |field, value| {
            let checked = number_in(field, value, 0.0..=1.0)?;
            Ok::<_, RequestError>(checked.map(|mass| mass.max(MIN_MASS)))
        };
        let temperature = number_in("temperature", self.temperature, 0.0..=100.0)?;
        let repeat_penalty = repeat("repeat_penalty", self.repeat_penalty)?;
        let repetition_penalty = repeat("repetition_penalty", self.repetition_penalty)?;
        let top_k = whole_in("top_k", self.top_k, -1..=i64::from(u32::MAX))?;

        Ok(SamplingFields {
            temperature: temperature.map(|value| if value < MIN_TEMPERATURE { 0.0 } else { value }),
            top_k: top_k.map(|value| u32::try_from(value).unwrap_or(0)),
            top_p: mass("top_p", self.top_p)?,
            min_p: number_in("min_p", self.min_p, 0.0..=1.0)?,
            typical_p: mass("typical_p", self.typical_p)?,
            repeat_penalty: repeat_penalty.or(repetition_penalty),
            presence_penalty: penalty("presence_penalty", self.presence_penalty)?,
            frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?,
            penalty_window: whole_in("repeat_last_n", self.repeat_last_n, 0..=1024_u32)?,
            logit_bias: match &self.logit_bias {
                Some(value) => biases(value)?,
                None => vec![],
            },
            seed: self.seed()?,
        })
    }

    fn seed(&self) -> Result<Option<u64>, RequestError> {
        let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
        let seed = whole_in("seed", self.seed, range)?;

        // The low 64 bits, so that each negative seed is a seed of its own.
        Ok(seed.filter(|seed| *seed != -1).map(|seed| seed as u64))
    }

    /// Returns the strings that end the text.
    ///
    /// # Errors
    /// Returns an error if a string is empty, because it would end every text at once.
    pub fn stop(&self) -> Result<Vec<String>, RequestError> {
        let texts = self.stop.clone().unwrap_or_default().0;
        match texts.iter().position(String::is_empty) {
            Some(position) => {
                let path = format!("stop[{position}]");
                let message = format!("`{path}` is empty: a stop string needs a character");
                Err(RequestError::invalid(path, message))
            }
            None => Ok(texts),
        }
    }

    /// Returns the behavior at a token that ends texts.
    pub fn at_end(&self) -> AtEnd {
        match self.ignore_eos {
            Some(true) => AtEnd::Ignore,
            Some(false) | None => AtEnd::Stop,
        }
    }
}

/// Returns the schema of biases: an object or a list of pairs.
fn biases_schema() -> RefOr<Schema> {
    let pair = ArrayBuilder::new().min_items(Some(2)).max_items(Some(2));
    OneOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Object))
        .item(ArrayBuilder::new().items(pair))
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .into()
}

/// Reads biases: an object `{"id": bias}` as in OpenAI's protocol, or a list of pairs `[id, bias]`
/// as in llama.cpp's, where a bias of `false` bans the token.
fn biases(value: &Value) -> Result<Vec<(u32, f32)>, RequestError> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(id, bias)| {
                let path = format!("logit_bias.{id}");
                read_bias(&path, id.parse().ok(), bias)
            })
            .collect(),
        Value::Array(pairs) => pairs
            .iter()
            .enumerate()
            .map(|(position, pair)| {
                let path = format!("logit_bias[{position}]");
                let id = pair.get(0).and_then(Value::as_u64);
                let bias = pair.get(1).unwrap_or(&Value::Null);
                read_bias(&path, id.and_then(|id| u32::try_from(id).ok()), bias)
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(RequestError::invalid(
                "logit_bias",
                "`logit_bias` is not an object of token ids and biases",
            ))
        }
    }
}

fn read_bias(path: &str, id: Option<u32>, bias: &Value) -> Result<(u32, f32), RequestError> {
    let Some(id) = id else {
        let message = format!("`{path}` does not name a token: expected its id");
        return Err(RequestError::invalid(path, message));
    };
    let bias = match bias {
        Value::Bool(false) => Some(BANNED),
        other => other.as_f64(),
    };
    let checked = number_in(path, bias, -1e4..=1e4)?;
    match checked {
        Some(bias) => Ok((id, bias as f32)),
        None => Err(RequestError::invalid(
            path,
            format!("`{path}` has no bias: expected a number"),
        )),
    }
}

/// Sampling parameters of other servers that this one does not have.
pub const REFUSED_SAMPLING: &[Refused] = &[
    refused("mirostat", Unless::Empty, USE_OTHERS),
    refused("dynatemp_range", Unless::Empty, USE_OTHERS),
    refused("xtc_probability", Unless::Empty, USE_OTHERS),
    refused("dry_multiplier", Unless::Empty, USE_OTHERS),
    refused("top_n_sigma", Unless::Json("-1"), USE_OTHERS),
    refused("top_a", Unless::Empty, USE_OTHERS),
    refused("tfs_z", Unless::Json("1"), USE_OTHERS),
    refused("samplers", Unless::Empty, "the order of samplers is fixed"),
    refused(
        "min_tokens",
        Unless::Empty,
        "use `ignore_eos` and `max_tokens`",
    ),
    refused("stop_token_ids", Unless::Empty, "use `stop`"),
    refused("bad_words", Unless::Empty, "use `logit_bias`"),
    refused(
        "allowed_token_ids",
        Unless::Empty,
        "use `logit_bias` or `grammar`",
    ),
    refused(
        "logits_processors",
        Unless::Empty,
        "use `logit_bias` or `grammar`",
    ),
    refused("use_beam_search", Unless::Empty, "use `n`"),
    refused(
        "length_penalty",
        Unless::Json("1"),
        "there is no beam search",
    ),
    refused("t_max_predict_ms", Unless::Json("-1"), "use `max_tokens`"),
    refused("lora", Unless::Empty, "name the adapter in `model`"),
];

const USE_OTHERS: &str = "use `temperature`, `top_k`, `top_p`, `min_p` or `typical_p`";

const fn refused(field: &'static str, unless: Unless, advice: &'static str) -> Refused {
    Refused {
        field,
        unless,
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::shared::body::Body;

    fn read(json: &str) -> Result<SamplingRequest, RequestError> {
        let body = Body::parse(json.as_bytes())?;
        body.refuse(REFUSED_SAMPLING)?;
        body.read()
    }

    fn fields(json: &str) -> Result<SamplingFields, RequestError> {
        read(json)?.fields()
    }

    #[test]
    fn all_parameters_are_read() {
        let json = r#"{"temperature": 0.5, "top_p": 0.9, "top_k": 40.0, "min_p": 0.1,
            "typical_p": 0.8, "repetition_penalty": 1.1, "presence_penalty": 0.5,
            "frequency_penalty": -0.5, "repeat_last_n": 32, "logit_bias": {"5": -100, "7": 1.5},
            "seed": 42}"#;
        let expected = SamplingFields {
            temperature: Some(0.5),
            top_k: Some(40),
            top_p: Some(0.9),
            min_p: Some(0.1),
            typical_p: Some(0.8),
            repeat_penalty: Some(1.1),
            presence_penalty: Some(0.5),
            frequency_penalty: Some(-0.5),
            penalty_window: Some(32),
            logit_bias: vec![(5, -100.0), (7, 1.5)],
            seed: Some(42),
        };
        assert_eq!(fields(json), Ok(expected));
        assert_eq!(fields("{}"), Ok(SamplingFields::default()));
    }

    #[test]
    fn values_at_the_edge_become_those_of_the_engine() {
        let json = r#"{"temperature": 1e-8, "top_p": 0, "top_k": -1, "seed": -1,
            "logit_bias": [[3, false], [4, 2]]}"#;
        let expected = SamplingFields {
            temperature: Some(0.0),
            top_k: Some(0),
            top_p: Some(1e-6),
            logit_bias: vec![(3, -1e4), (4, 2.0)],
            ..SamplingFields::default()
        };
        assert_eq!(fields(json), Ok(expected));
        assert_eq!(fields(r#"{"seed": -2}"#).unwrap().seed, Some(u64::MAX - 1));
        let seed = fields(r#"{"seed": 18446744073709551615}"#).unwrap().seed;
        assert_eq!(seed, Some(u64::MAX));
    }

    #[test]
    fn errors_name_the_field_and_its_range() {
        for (json, param, message) in [
            (
                r#"{"temperature": -1}"#,
                "temperature",
                "`temperature` is -1: expected a number from 0 to 100",
            ),
            (
                r#"{"top_p": 1.5}"#,
                "top_p",
                "`top_p` is 1.5: expected a number from 0 to 1",
            ),
            (
                r#"{"top_k": -2}"#,
                "top_k",
                "`top_k` is -2: expected an integer from -1 to 4294967295",
            ),
            (
                r#"{"logit_bias": {"the": 1}}"#,
                "logit_bias.the",
                "`logit_bias.the` does not name a token: expected its id",
            ),
            (
                r#"{"logit_bias": {"5": "x"}}"#,
                "logit_bias.5",
                "`logit_bias.5` has no bias: expected a number",
            ),
            (
                r#"{"logit_bias": {"5": 1e5}}"#,
                "logit_bias.5",
                "`logit_bias.5` is 100000: expected a number from -10000 to 10000",
            ),
            (
                r#"{"logit_bias": [[5]]}"#,
                "logit_bias[0]",
                "`logit_bias[0]` has no bias: expected a number",
            ),
            (
                r#"{"mirostat": 2}"#,
                "mirostat",
                "`mirostat` is not supported: use `temperature`, `top_k`, `top_p`, `min_p` or `typical_p`",
            ),
        ] {
            assert_eq!(
                fields(json).unwrap_err(),
                RequestError::invalid(param, message)
            );
        }
    }

    #[test]
    fn stop_is_a_string_or_a_list() {
        let stop = |json: &str| read(json)?.stop();
        assert_eq!(stop("{}"), Ok(vec![]));
        assert_eq!(stop(r#"{"stop": null}"#), Ok(vec![]));
        assert_eq!(stop(r#"{"stop": "\n"}"#), Ok(vec!["\n".to_owned()]));
        let two = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(stop(r#"{"stop": ["a", "b"]}"#), Ok(two));

        let error = stop(r#"{"stop": ["a", ""]}"#).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("stop[1]"));
        let error = stop(r#"{"stop": ["a", 5]}"#).unwrap_err();
        assert_eq!(
            error.message,
            "`stop[1]`: invalid type: integer `5`, expected a string"
        );
    }
}
