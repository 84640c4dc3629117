//! What the command line says of sampling.

use std::hash::{BuildHasher, Hasher, RandomState};

use warpwright_engine::{LogProbabilities, Sampling, TokenChoice};

use crate::failure::Failure;

/// How the next token is chosen. What is not said here is as the model's generation_config.json says, or else as
/// llama.cpp does it, without penalties.
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
    /// Keep the K most likely tokens (0 keeps all)
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<u32>,
    /// Keep the most likely tokens that together reach this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// Keep tokens with at least this share of the highest probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f64>,
    /// Keep the tokens nearest to the mean surprise that together reach this probability
    #[arg(
        long,
        alias = "typical",
        value_name = "P",
        allow_negative_numbers = true
    )]
    typical_p: Option<f64>,
    /// Factor by which the logits of the latest tokens are reduced
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    repeat_penalty: Option<f64>,
    /// Number to subtract from the logits of the latest tokens
    #[arg(long, value_name = "LOGIT", allow_negative_numbers = true)]
    presence_penalty: Option<f64>,
    /// Number to subtract from the logits of the latest tokens for each occurrence
    #[arg(long, value_name = "LOGIT", allow_negative_numbers = true)]
    frequency_penalty: Option<f64>,
    /// Number of latest tokens to penalize, prompt included [default: 64]
    #[arg(
        long,
        visible_alias = "repeat-last-n",
        value_name = "TOKENS",
        allow_negative_numbers = true
    )]
    penalty_window: Option<u32>,
    /// Number to add to the logit of a token; can be repeated
    #[arg(short = 'l', long, value_name = "ID=LOGIT", allow_hyphen_values = true, value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers: the same seed gives the same text [default: a new one each time]
    #[arg(short = 's', long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<Seed>,
    /// Print the log-probability of each token and of the N best ones (at most 32) to stderr
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    logprobs: Option<u32>,
}

/// The value of `--seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seed {
    Fixed(u64),
    /// A new one each time, as without the option.
    Fresh,
}

/// Parses a seed. As in llama.cpp, -1 stands for a fresh one.
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

fn seed(text: &str) -> Result<Seed, String> {
    Ok(seed_number(text)?.map_or(Seed::Fresh, Seed::Fixed))
}

/// Returns a seed that no earlier run has had, by all likelihood. It has few enough digits to be typed, and JSON can
/// hold it as a number in every language.
pub(crate) fn fresh_seed() -> u64 {
    // The keys of a new hasher come from the operating system.
    u64::from(RandomState::new().build_hasher().finish() as u32)
}

/// Parses `ID=LOGIT`, or `ID+LOGIT` and `ID-LOGIT` as llama.cpp has them.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (id, bias) = text.split_at(end);
        let bias = bias
            .strip_prefix('=')
            .or_else(|| bias.starts_with(['+', '-']).then_some(bias))?;
        Some((id.parse().ok()?, bias.parse().ok()?))
    };
    parse().ok_or_else(|| "not a token and a number, such as 13=-2.5".into())
}

impl SamplingArgs {
    /// `base` with what the command line says instead.
    pub(crate) fn over(&self, base: Sampling) -> Result<Sampling, Failure> {
        let sampling = Sampling {
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
        };
        match self.drawn().filter(|_| sampling.temperature == 0.0) {
            Some(option) => Err(Failure::Input(format!(
                "{option} has no effect at temperature 0, which takes the most likely token; give --temp"
            ))),
            None => Ok(sampling),
        }
    }

    /// What is sampled by where nothing is drawn unless the command line gives a temperature: then `base`.
    pub(crate) fn greedy_or(&self, base: Sampling) -> Result<Sampling, Failure> {
        let greedy = || Sampling {
            temperature: 0.0,
            repeat_penalty: 1.0,
            ..base.clone()
        };
        self.over(if self.temperature.is_some() {
            base
        } else {
            greedy()
        })
    }

    /// An option that says how to draw.
    fn drawn(&self) -> Option<&'static str> {
        let given = [
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--min-p", self.min_p.is_some()),
            ("--typical-p", self.typical_p.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        given
            .into_iter()
            .find(|(_, given)| *given)
            .map(|(option, _)| option)
    }
}

/// The kernels that this takes: greedy ones, if they give the same tokens.
pub(crate) fn choice(sampling: &Sampling) -> TokenChoice {
    let plain = Sampling {
        temperature: sampling.temperature,
        repeat_penalty: sampling.repeat_penalty,
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        logit_bias: sampling.logit_bias.clone(),
        logprobs: sampling.logprobs,
        ..Sampling::greedy()
    };
    match plain == Sampling::greedy() {
        true => TokenChoice::Greedy,
        false => TokenChoice::Sampled {
            logprobs: sampling.logprobs,
        },
    }
}

/// Returns a line that says how to get the same text again, if tokens are sampled.
pub(crate) fn seed_line(sampling: &Sampling) -> Option<String> {
    let Sampling {
        temperature, seed, ..
    } = sampling;
    (*temperature > 0.0).then(|| {
        format!("sampled at temperature {temperature}; the same text again: --seed {seed}")
    })
}

/// A line about a token.
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

    use super::{SamplingArgs, choice};
    use crate::failure::Failure;

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

    fn sampling(options: &str) -> Result<Sampling, Failure> {
        args(options).greedy_or(Sampling::default())
    }

    #[test]
    fn options_are_over_the_defaults() {
        let drawn =
            sampling("--temp 0.5 --top-k 7 --logit-bias 3=-1.5 --presence-penalty -0.5 --seed 4")
                .unwrap();
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
            assert_eq!(
                args(options).over(said.clone()).unwrap(),
                wanted,
                "{options}"
            );
        }
        // What the model says of drawing counts in `run` where a temperature is given, and only there.
        assert_eq!(args("--temp 0.25").greedy_or(said.clone()).unwrap(), said);
        assert_eq!(
            choice(&args("").greedy_or(said).unwrap()),
            TokenChoice::Greedy
        );
        let greedy = GenerationConfig {
            do_sample: Some(false),
            ..says
        }
        .over(Sampling::default());
        assert_eq!(args("").over(greedy.clone()).unwrap().temperature, 0.0);
        assert_eq!(args("--temp 0.5").over(greedy).unwrap().temperature, 0.5);
    }

    #[test]
    fn without_a_temperature_tokens_are_the_most_likely() {
        assert_eq!(choice(&sampling("").unwrap()), TokenChoice::Greedy);
        assert_eq!(choice(&sampling("--temp 0").unwrap()), TokenChoice::Greedy);
        assert_eq!(
            choice(&sampling("--logprobs 3").unwrap()),
            TokenChoice::Sampled { logprobs: 3 }
        );
        assert_eq!(
            choice(&sampling("--repeat-penalty 1.1").unwrap()),
            TokenChoice::Sampled { logprobs: 0 }
        );
        let Err(Failure::Input(sentence)) = sampling("--top-p 0.9") else {
            panic!("it has no effect")
        };
        assert_eq!(
            sentence,
            "--top-p has no effect at temperature 0, which takes the most likely token; give --temp"
        );
    }
}
