//! The sampling options of `run` and `chat`.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Value, json};
use warpwright_engine::{LogProbabilities, Sampling, TokenChoice};

/// Options that decide how the next token is chosen.
///
/// An option that is not given is taken from the model's generation_config.json. If that file does
/// not have it either, llama.cpp's default applies, without penalties.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Temperature: 0 takes the most likely token each time, and 0.01 to 100 samples
    #[arg(
        long,
        visible_alias = "temp",
        value_name = "T",
        allow_negative_numbers = true
    )]
    temperature: Option<f64>,
    /// Sample only from the K most likely tokens (0 keeps all)
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<u32>,
    /// Sample only from the most likely tokens that together reach probability P
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// Sample only from tokens at least P times as likely as the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f64>,
    /// Sample only from the most typical tokens that together reach probability P
    ///
    /// A token is typical if its surprise (its negative log-probability) is close to the entropy of
    /// the distribution. 1 keeps all tokens.
    #[arg(
        long,
        alias = "typical",
        value_name = "P",
        allow_negative_numbers = true
    )]
    typical_p: Option<f64>,
    /// Divide positive logits of recent tokens by FACTOR, and multiply negative ones (1 is off)
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    repeat_penalty: Option<f64>,
    /// Subtract LOGIT from the logits of tokens that occurred recently (0 is off)
    #[arg(long, value_name = "LOGIT", allow_negative_numbers = true)]
    presence_penalty: Option<f64>,
    /// Subtract LOGIT from the logits of recent tokens for each occurrence (0 is off)
    #[arg(long, value_name = "LOGIT", allow_negative_numbers = true)]
    frequency_penalty: Option<f64>,
    /// Number of recent tokens that the penalties look at, prompt included [default: 64]
    #[arg(
        long,
        visible_alias = "repeat-last-n",
        value_name = "TOKENS",
        allow_negative_numbers = true
    )]
    penalty_window: Option<u32>,
    /// Add LOGIT to the logit of token ID, for example 13=-2.5; can be repeated
    #[arg(short = 'l', long, value_name = "ID=LOGIT", allow_hyphen_values = true, value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers: the same seed gives the same text [default: a new one each time]
    #[arg(short = 's', long, value_name = "N", allow_negative_numbers = true, value_parser = parse_seed)]
    seed: Option<Seed>,
    /// Print the log-probability of each token and of the N most likely ones (at most 32) to stderr
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    logprobs: Option<u32>,
}

/// The value of `--seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seed {
    Fixed(u64),
    /// A new seed in each run, as without the option.
    Fresh,
}

/// Parses a seed. Returns `None` for -1, which asks for a fresh seed as in llama.cpp.
pub(crate) fn seed_number(text: &str) -> Result<Option<u64>, String> {
    if text == "-1" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "it can be 0 to {}, or -1 for a new seed each time",
            u64::MAX
        )
    })
}

/// Parses the value of `--seed`.
fn parse_seed(text: &str) -> Result<Seed, String> {
    Ok(seed_number(text)?.map_or(Seed::Fresh, Seed::Fixed))
}

/// Returns a random seed below 2^32.
///
/// 32 bits are few enough to be typed, and every JSON reader can hold them in a number.
pub(crate) fn fresh_seed() -> u64 {
    // The keys of a new hasher are random numbers from the operating system.
    u64::from(RandomState::new().build_hasher().finish() as u32)
}

/// Parses `ID=LOGIT`, or `ID+LOGIT` and `ID-LOGIT` as llama.cpp writes them.
fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (id, bias) = text.split_at(end);
        let bias = match bias.strip_prefix('=') {
            Some(bias) => bias,
            // The sign is part of the number in `13-2.5`.
            None if bias.starts_with(['+', '-']) => bias,
            None => return None,
        };
        Some((id.parse().ok()?, bias.parse().ok()?))
    };
    parse().ok_or_else(|| "expected a token id and a number, such as 13=-2.5".into())
}

impl SamplingArgs {
    /// Returns `base` with the given options in place of its own values.
    pub(crate) fn over(&self, base: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(base.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            penalty_window: self.penalty_window.unwrap_or(base.penalty_window),
            logit_bias: [base.logit_bias, self.logit_bias.clone()].concat(),
            seed: match self.seed {
                Some(Seed::Fixed(seed)) => seed,
                Some(Seed::Fresh) | None => base.seed,
            },
            logprobs: self.logprobs.unwrap_or(base.logprobs),
        }
    }

    /// Returns the sampling of `run`, which samples only if the command line has a temperature.
    pub(crate) fn greedy_or(&self, base: Sampling) -> Sampling {
        if self.temperature.is_some() {
            return self.over(base);
        }
        self.over(Sampling {
            temperature: 0.0,
            repeat_penalty: 1.0,
            ..base
        })
    }

    /// Returns the given options that have no effect with this sampling.
    ///
    /// Temperature 0 takes the most likely token. Options that drop unlikely tokens or choose the
    /// random numbers cannot change that.
    pub(crate) fn unused(&self, sampling: &Sampling) -> Vec<&'static str> {
        if sampling.temperature != 0.0 {
            return vec![];
        }

        let options = [
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--min-p", self.min_p.is_some()),
            ("--typical-p", self.typical_p.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        let given = options.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(option, _)| option).collect()
    }
}

/// Returns the note about options that have no effect at temperature 0, if there are any.
pub(crate) fn unused_note(unused: &[&str]) -> Option<String> {
    let verb = match unused.len() {
        0 => return None,
        1 => "has",
        _ => "have",
    };
    let options = unused.join(", ");
    Some(format!(
        "note: {options} {verb} no effect at temperature 0, which takes the most likely token; --temp 0.8 samples"
    ))
}

/// Returns the parameters that took part in the choice of tokens, for `--json`.
pub(crate) fn used(sampling: &Sampling) -> Value {
    let mut used = json!({
        "temperature": sampling.temperature,
        "repeat_penalty": sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "penalty_window": sampling.penalty_window,
    });
    if sampling.temperature > 0.0 {
        used["top_k"] = json!(sampling.top_k);
        used["top_p"] = json!(sampling.top_p);
        used["min_p"] = json!(sampling.min_p);
        used["typical_p"] = json!(sampling.typical_p);
        used["seed"] = json!(sampling.seed);
    }
    used
}

/// Returns the kernels that this sampling needs. Greedy kernels are chosen if they give the same
/// tokens.
pub(crate) fn choice(sampling: &Sampling) -> TokenChoice {
    // Parameters that only matter for sampling are reset, so that a greedy sampling with any of
    // them compares equal to the plain one.
    let without_sampling = Sampling {
        temperature: sampling.temperature,
        repeat_penalty: sampling.repeat_penalty,
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        logit_bias: sampling.logit_bias.clone(),
        logprobs: sampling.logprobs,
        ..Sampling::greedy()
    };
    if without_sampling == Sampling::greedy() {
        TokenChoice::Greedy
    } else {
        TokenChoice::Sampled {
            logprobs: sampling.logprobs,
        }
    }
}

/// Returns a line with the option that reproduces the text, if tokens are sampled.
pub(crate) fn seed_line(sampling: &Sampling) -> Option<String> {
    let temperature = sampling.temperature;
    if temperature == 0.0 {
        return None;
    }
    let seed = sampling.seed;
    Some(format!(
        "sampled at temperature {temperature}; the same text again: --seed {seed}"
    ))
}

/// Returns the line of `--logprobs` about a token.
pub(crate) fn line(token: u32, probabilities: &LogProbabilities) -> String {
    let best = probabilities
        .best
        .iter()
        .map(|(token, p)| format!("{token} {p:.4}"));
    format!(
        "token {token} {:.4}; {}",
        probabilities.chosen,
        best.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use warpwright_engine::{GenerationConfig, Sampling, TokenChoice};

    use super::{SamplingArgs, choice, unused_note, used};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn args(options: &str) -> SamplingArgs {
        let words = ["x"].into_iter().chain(options.split_whitespace());
        Line::try_parse_from(words)
            .expect("the options exist")
            .sampling
    }

    fn sampling(options: &str) -> Sampling {
        args(options).greedy_or(Sampling::default())
    }

    #[test]
    fn options_are_over_the_defaults() {
        let drawn =
            sampling("--temp 0.5 --top-k 7 --logit-bias 3=-1.5 --presence-penalty -0.5 --seed 4");
        let wanted = Sampling {
            temperature: 0.5,
            top_k: 7,
            logit_bias: vec![(3, -1.5)],
            presence_penalty: -0.5,
            seed: 4,
            ..Sampling::default()
        };
        assert_eq!(drawn, wanted);
        assert_eq!(choice(&drawn), TokenChoice::Sampled { logprobs: 0 });
    }

    /// Each key of `generation_config.json`, with the option that overrides it.
    #[test]
    fn options_are_over_what_the_model_says() {
        let says = GenerationConfig {
            temperature: Some(0.25),
            top_k: Some(3),
            top_p: Some(0.5),
            min_p: Some(0.125),
            typical_p: Some(0.75),
            repetition_penalty: Some(1.25),
            ..GenerationConfig::default()
        };
        let said = says.over(Sampling::default());
        let cases = [
            (
                "--temp 0.5",
                Sampling {
                    temperature: 0.5,
                    ..said.clone()
                },
            ),
            (
                "--temperature 2",
                Sampling {
                    temperature: 2.0,
                    ..said.clone()
                },
            ),
            (
                "--top-k 0",
                Sampling {
                    top_k: 0,
                    ..said.clone()
                },
            ),
            (
                "--top-p 1",
                Sampling {
                    top_p: 1.0,
                    ..said.clone()
                },
            ),
            (
                "--min-p 0",
                Sampling {
                    min_p: 0.0,
                    ..said.clone()
                },
            ),
            (
                "--typical-p 1",
                Sampling {
                    typical_p: 1.0,
                    ..said.clone()
                },
            ),
            (
                "--repeat-penalty 1",
                Sampling {
                    repeat_penalty: 1.0,
                    ..said.clone()
                },
            ),
            ("", said.clone()),
        ];
        for (options, wanted) in cases {
            assert_eq!(args(options).over(said.clone()), wanted, "{options}");
        }

        // What the model says of drawing counts in `run` where a temperature is given, and only
        // there.
        assert_eq!(args("--temp 0.25").greedy_or(said.clone()), said);
        assert_eq!(choice(&args("").greedy_or(said)), TokenChoice::Greedy);
        let greedy = GenerationConfig {
            do_sample: Some(false),
            ..says
        }
        .over(Sampling::default());
        assert_eq!(args("").over(greedy.clone()).temperature, 0.0);
        assert_eq!(args("--temp 0.5").over(greedy).temperature, 0.5);
    }

    #[test]
    fn without_a_temperature_tokens_are_the_most_likely() {
        assert_eq!(choice(&sampling("")), TokenChoice::Greedy);
        assert_eq!(choice(&sampling("--temp 0")), TokenChoice::Greedy);
        assert_eq!(
            choice(&sampling("--logprobs 3")),
            TokenChoice::Sampled { logprobs: 3 }
        );
        assert_eq!(
            choice(&sampling("--repeat-penalty 1.1")),
            TokenChoice::Sampled { logprobs: 0 }
        );
    }

    #[test]
    fn options_without_effect_are_named() {
        let unused = |options| args(options).unused(&sampling(options));
        for (options, wanted) in [
            ("", vec![]),
            ("-s 1", vec!["--seed"]),
            ("--seed -1", vec!["--seed"]),
            ("--temp 0 --top-p 0.9", vec!["--top-p"]),
            (
                "--top-k 3 --min-p 0.1 --typical-p 0.5",
                vec!["--top-k", "--min-p", "--typical-p"],
            ),
            ("--temp 0.5 --top-k 3 -s 1", vec![]),
            ("--repeat-penalty 1.1 --logprobs 2", vec![]),
        ] {
            assert_eq!(unused(options), wanted, "{options}");
            // The choice of the kernels does not depend on them.
            if !wanted.is_empty() {
                assert_eq!(choice(&sampling(options)), TokenChoice::Greedy, "{options}");
            }
        }

        assert_eq!(unused_note(&[]), None);
        assert_eq!(
            unused_note(&["--top-k", "--seed"]).as_deref(),
            Some(
                "note: --top-k, --seed have no effect at temperature 0, which takes the most likely token; --temp 0.8 samples"
            )
        );
        assert_eq!(used(&sampling("-s 1")).get("seed"), None);
        assert_eq!(used(&sampling("-s 1 --temp 1"))["seed"], 1);
    }
}
