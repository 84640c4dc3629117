//! `/set` and `/show`: parameters that can change during a conversation.

use warpwright_engine::Sampling;

/// A change requested by `/set`.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(super) enum Setting {
    System(String),
    Statistics(Statistics),
    Parameter(ChatParameter, String),
}

/// Whether statistics follow each answer.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Statistics {
    Shown,
    Hidden,
}

/// A parameter of text generation.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum ChatParameter {
    Temperature,
    TopK,
    TopP,
    MinP,
    TypicalP,
    RepeatPenalty,
    PresencePenalty,
    FrequencyPenalty,
    PenaltyWindow,
    Seed,
    Tokens,
}

use ChatParameter::*;

impl ChatParameter {
    /// Returns true if the parameter has no effect at temperature 0.
    pub(super) fn needs_sampling(self) -> bool {
        match self {
            TopK | TopP | MinP | TypicalP | Seed => true,
            Temperature | RepeatPenalty | PresencePenalty | FrequencyPenalty | PenaltyWindow
            | Tokens => false,
        }
    }
}

/// The parameters with their names. The first name is shown, and the others are llama.cpp's and
/// Ollama's.
const PARAMETERS: [(ChatParameter, &[&str]); 11] = [
    (Temperature, &["temperature", "temp"]),
    (TopK, &["top_k"]),
    (TopP, &["top_p"]),
    (MinP, &["min_p"]),
    (TypicalP, &["typical_p"]),
    (RepeatPenalty, &["repeat_penalty"]),
    (PresencePenalty, &["presence_penalty"]),
    (FrequencyPenalty, &["frequency_penalty"]),
    (PenaltyWindow, &["penalty_window", "repeat_last_n"]),
    (Seed, &["seed"]),
    (Tokens, &["n", "n_predict", "num_predict"]),
];

/// Returns the words that may follow `/set`.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let others = ["system", "verbose", "quiet"];
    PARAMETERS
        .into_iter()
        .map(|(_, names)| names[0])
        .chain(others)
}

/// Parses the arguments of `/set`. As in Ollama, the word `parameter` may come first.
pub(super) fn parse(text: &str) -> Result<Setting, String> {
    let (name, value) = first_word(text);
    let (name, value) = if name == "parameter" {
        // `/set parameter temperature 0.5`
        first_word(value)
    } else {
        (name, value)
    };
    let known = name.to_lowercase().replace('-', "_");
    match known.as_str() {
        "system" if value.is_empty() => return Err("/set system takes a text".to_owned()),
        "system" => return Ok(Setting::System(value.to_owned())),
        "verbose" if value.is_empty() => return Ok(Setting::Statistics(Statistics::Shown)),
        "quiet" if value.is_empty() => return Ok(Setting::Statistics(Statistics::Hidden)),
        "verbose" | "quiet" => return Err(format!("/set {known} takes no value")),
        _ => {}
    }

    let Some((parameter, names)) = PARAMETERS
        .into_iter()
        .find(|(_, names)| names.contains(&known.as_str()))
    else {
        let all = self::names().collect::<Vec<_>>().join(", ");
        return Err(match name {
            "" => format!("/set takes a name and a value; there are {all}"),
            name => format!("there is no parameter {name:?}; there are {all}"),
        });
    };

    if value.is_empty() {
        return Err(format!("/set {} takes a value", names[0]));
    }

    Ok(Setting::Parameter(parameter, value.to_owned()))
}

/// Splits a text into its first word and the rest.
fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text
        .trim()
        .split_once(char::is_whitespace)
        .unwrap_or((text.trim(), ""));
    (word, rest.trim())
}

/// The parameters of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChatParameters {
    pub(super) sampling: Sampling,
    /// The largest number of tokens in an answer; `None` means without a limit.
    pub(super) tokens: Option<u32>,
}

impl ChatParameters {
    /// Returns the parameters with one of them changed.
    ///
    /// The range of the value is not checked here, because [`Sampling::check`] does that.
    ///
    /// # Errors
    /// Returns an error if the value is not a number of the right kind.
    pub(super) fn with(
        &self,
        parameter: ChatParameter,
        value: &str,
    ) -> Result<ChatParameters, String> {
        let name = name(parameter);
        let real = || {
            value
                .parse::<f64>()
                .map_err(|_| format!("{name} takes a number, not {value:?}"))
        };
        let whole = || {
            value
                .parse::<u32>()
                .map_err(|_| format!("{name} takes a whole number, not {value:?}"))
        };
        let mut new = self.clone();
        let sampling = &mut new.sampling;
        match parameter {
            Temperature => sampling.temperature = real()?,
            TopK => sampling.top_k = whole()?,
            TopP => sampling.top_p = real()?,
            MinP => sampling.min_p = real()?,
            TypicalP => sampling.typical_p = real()?,
            RepeatPenalty => sampling.repeat_penalty = real()?,
            PresencePenalty => sampling.presence_penalty = real()?,
            FrequencyPenalty => sampling.frequency_penalty = real()?,
            PenaltyWindow => sampling.penalty_window = whole()?,
            Seed => {
                let seed = crate::generation::sampling::seed_number(value)
                    .map_err(|problem| format!("seed {value:?}: {problem}"))?;
                sampling.seed = seed.unwrap_or_else(crate::generation::sampling::fresh_seed);
            }
            // As in -n, -1 means no limit.
            Tokens => new.tokens = if value == "-1" { None } else { Some(whole()?) },
        }

        Ok(new)
    }

    /// Returns the lines of `/show`, one for each parameter.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let ChatParameters { sampling, tokens } = self.clone();
        PARAMETERS.into_iter().map(move |(parameter, names)| {
            let value = match parameter {
                Temperature => sampling.temperature.to_string(),
                TopK => sampling.top_k.to_string(),
                TopP => sampling.top_p.to_string(),
                MinP => sampling.min_p.to_string(),
                TypicalP => sampling.typical_p.to_string(),
                RepeatPenalty => sampling.repeat_penalty.to_string(),
                PresencePenalty => sampling.presence_penalty.to_string(),
                FrequencyPenalty => sampling.frequency_penalty.to_string(),
                PenaltyWindow => sampling.penalty_window.to_string(),
                Seed => sampling.seed.to_string(),
                Tokens => tokens.map_or("-1 (no limit)".to_owned(), |tokens| tokens.to_string()),
            };
            format!("{:18} {value}", names[0])
        })
    }
}

/// Returns the name of a parameter that is shown.
fn name(parameter: ChatParameter) -> &'static str {
    let named = PARAMETERS
        .into_iter()
        .find(|(other, _)| *other == parameter);
    named.expect("every parameter is in the table").1[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        let parameter =
            |parameter, value: &str| Ok(Setting::Parameter(parameter, value.to_owned()));
        let cases = [
            ("temperature 0.5", parameter(Temperature, "0.5")),
            ("parameter temp 1", parameter(Temperature, "1")),
            ("Top-P  0.9 ", parameter(TopP, "0.9")),
            ("num_predict -1", parameter(Tokens, "-1")),
            (
                "system  Be  brief. ",
                Ok(Setting::System("Be  brief.".to_owned())),
            ),
            ("verbose", Ok(Setting::Statistics(Statistics::Shown))),
            ("quiet", Ok(Setting::Statistics(Statistics::Hidden))),
            ("verbose on", Err("/set verbose takes no value".to_owned())),
            ("seed", Err("/set seed takes a value".to_owned())),
            ("system", Err("/set system takes a text".to_owned())),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse(text), wanted, "{text}");
        }

        for (text, start) in [
            ("", "/set takes a name and a value; there are temperature, "),
            ("mood x", "there is no parameter \"mood\"; "),
        ] {
            assert!(
                parse(text).is_err_and(|problem| problem.starts_with(start)),
                "{text}"
            );
        }
    }

    #[test]
    fn each_parameter_can_be_set_and_shown() {
        let before = ChatParameters {
            sampling: Sampling {
                seed: 3,
                ..Sampling::default()
            },
            tokens: None,
        };
        assert_eq!(before.lines().count(), PARAMETERS.len());
        for (parameter, names) in PARAMETERS {
            let after = before.with(parameter, "7").unwrap();
            let line = format!("{:18} 7", names[0]);
            assert!(after.lines().any(|shown| shown == line), "{names:?}");
            for wrong in ["x", "", "1e400x", "-"] {
                assert!(
                    before.with(parameter, wrong).is_err(),
                    "{names:?} {wrong:?}"
                );
            }
        }

        assert_eq!(before.with(Tokens, "-1").unwrap().tokens, None);
        let problem = before.with(TopK, "-2").unwrap_err();
        assert_eq!(problem, "top_k takes a whole number, not \"-2\"");
    }
}
