//! Times at which tokens were generated, and the rate that follows from them.

use std::time::Duration;

use serde::Serialize;

use crate::generation::grammar::GrammarTimes;

/// The times of the tokens of a text, since the start of the program.
///
/// The tokens of one launch arrive together, so a rate is only meaningful between launches.
pub(crate) struct ArrivalTimes {
    /// The time at which the prompt was passed to the decoder.
    begin: Duration,
    /// The number of tokens that were printed.
    count: u32,
    /// The end of the first launch.
    first: Lap,
    /// The end of the latest launch.
    last: Lap,
}

/// The end of a launch.
#[derive(Clone, Copy)]
struct Lap {
    at: Duration,
    /// The number of tokens of this launch and all earlier ones.
    made: u32,
}

impl Lap {
    /// Returns the rate from an earlier lap to this one, in tokens per second.
    fn rate(&self, from: Lap) -> f64 {
        f64::from(self.made - from.made) / (self.at - from.at).as_secs_f64()
    }
}

impl ArrivalTimes {
    /// Starts the times of a text whose prompt is passed to the decoder at `begin`.
    pub(crate) fn from(begin: Duration) -> ArrivalTimes {
        let lap = Lap { at: begin, made: 0 };
        ArrivalTimes {
            begin,
            count: 0,
            first: lap,
            last: lap,
        }
    }

    /// Records that a token was printed at `at`, when the launches had made `made` tokens.
    pub(crate) fn token(&mut self, at: Duration, made: u32) {
        if made > self.last.made {
            self.last = Lap { at, made };
        }
        if self.count == 0 {
            self.first = self.last;
        }
        self.count += 1;
    }

    /// Returns the rate of the tokens, or `None` if there are fewer than two.
    ///
    /// A launch counts with all its tokens, even if the text ends within it, because all of its
    /// steps run.
    fn rate(&self) -> Option<TokenRate> {
        if self.count < 2 {
            return None;
        }

        // The first launch waits for the prompt. It counts only if there is no other.
        let is_single_launch = self.first.made == self.last.made;
        let from = if is_single_launch {
            Lap {
                at: self.begin,
                made: 0,
            }
        } else {
            self.first
        };
        Some(TokenRate {
            per_second: self.last.rate(from),
            after: from.made,
        })
    }

    /// Returns the line of statistics.
    pub(crate) fn summary(&self) -> String {
        let first = self.first.at.as_secs_f64();
        let Some(TokenRate { per_second, after }) = self.rate() else {
            return if self.count == 0 {
                "0 tokens".to_owned()
            } else {
                format!("1 token, {first:.2} s after the start")
            };
        };

        let scope = match after {
            0 => "with the time of the prompt".to_owned(),
            1 => "after the first".to_owned(),
            after => format!("after the first {after}"),
        };
        format!(
            "{} tokens, {per_second:.1} tokens/s {scope}, first token {first:.2} s after the start",
            self.count
        )
    }

    /// Returns the times for `--json`, together with the times of a grammar.
    pub(crate) fn json(&self, grammar: Option<GrammarTimes>) -> TimesJson {
        let rate = self.rate();
        let first_token_s = if self.count > 0 {
            Some(self.first.at.as_secs_f64())
        } else {
            None
        };
        TimesJson {
            prompt_given_s: self.begin.as_secs_f64(),
            first_token_s,
            tokens_per_s: rate.map(|rate| rate.per_second),
            rate_is_after: rate.map(|rate| rate.after),
            grammar,
        }
    }
}

/// A rate, and the part of the text that it covers.
#[derive(Clone, Copy)]
struct TokenRate {
    per_second: f64,
    /// The number of tokens before the measured time. It is 0 if the prompt is part of that time.
    after: u32,
}

/// The object `times` of `--json`. All times are seconds since the start of the program.
#[derive(Serialize)]
pub(crate) struct TimesJson {
    prompt_given_s: f64,
    first_token_s: Option<f64>,
    tokens_per_s: Option<f64>,
    /// The number of tokens before the measured time. It is 0 if the prompt is part of that time.
    rate_is_after: Option<u32>,
    #[serde(flatten)]
    grammar: Option<GrammarTimes>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ArrivalTimes;

    /// Returns the summary of tokens, given as pairs of milliseconds and the number of tokens that
    /// the launches had made by then. The prompt began at 400 ms.
    fn summary(tokens: &[(u64, u32)]) -> String {
        let mut times = ArrivalTimes::from(Duration::from_millis(400));
        for &(at, made) in tokens {
            times.token(Duration::from_millis(at), made);
        }
        times.summary()
    }

    #[test]
    fn the_rate_is_of_the_tokens_after_the_first_launch() {
        let say = |tokens: &[(u64, u32)], said: &str| assert_eq!(summary(tokens), said);
        say(&[], "0 tokens");
        say(&[(500, 1)], "1 token, 0.50 s after the start");
        let one_by_one = [(500, 1), (600, 2), (700, 3)];
        say(
            &one_by_one,
            "3 tokens, 10.0 tokens/s after the first, first token 0.50 s after the start",
        );
        let four_at_once = [500, 501, 502, 503].map(|at| (at, 4));
        say(
            &four_at_once,
            "4 tokens, 40.0 tokens/s with the time of the prompt, first token 0.50 s after the start",
        );
        let next_at_once = [900, 901, 902, 903].map(|at| (at, 8));
        let said = "10.0 tokens/s after the first 4, first token 0.50 s after the start";
        let all = [four_at_once, next_at_once].concat();
        say(&all, &format!("8 tokens, {said}"));
        say(&all[..6], &format!("6 tokens, {said}"));
        let rest = [&all[..], &[(950, 9), (1000, 10)]].concat();
        let said = "12.0 tokens/s after the first 4, first token 0.50 s after the start";
        say(&rest, &format!("10 tokens, {said}"));
    }
}
