//! When tokens came, and how fast that was.

use std::time::Duration;

use serde::Serialize;

use crate::grammar;

/// When tokens came, by the program's clock. Those of one launch come together.
pub(crate) struct Times {
    /// When the prompt was given to the decoder.
    begin: Duration,
    count: u32,
    /// The first token, and the first of the latest launch.
    first: Lap,
    last: Lap,
}

#[derive(Clone, Copy)]
struct Lap {
    at: Duration,
    /// Tokens of all launches up to then.
    made: u32,
}

impl Lap {
    /// Tokens a second from an earlier lap to this.
    fn rate(&self, from: Lap) -> f64 {
        f64::from(self.made - from.made) / (self.at - from.at).as_secs_f64()
    }
}

impl Times {
    /// The prompt is given to the decoder now.
    pub(crate) fn from(begin: Duration) -> Times {
        let lap = Lap { at: begin, made: 0 };
        Times {
            begin,
            count: 0,
            first: lap,
            last: lap,
        }
    }

    /// A token was printed, and the launches have made so many.
    pub(crate) fn token(&mut self, at: Duration, made: u32) {
        if made > self.last.made {
            self.last = Lap { at, made };
        }
        if self.count == 0 {
            self.first = self.last;
        }
        self.count += 1;
    }

    /// Tokens a second, and how many were made before the time that this is of. That leaves out the first launch, which
    /// waits for the prompt, unless there was no other. A launch counts whole, also where the text ends in it: all its
    /// steps take their time. Nothing without two tokens.
    fn rate(&self) -> Option<(f64, u32)> {
        let alone = self.first.made == self.last.made;
        let from = if alone {
            Lap {
                at: self.begin,
                made: 0,
            }
        } else {
            self.first
        };
        (self.count > 1).then(|| (self.last.rate(from), from.made))
    }

    /// In a sentence.
    pub(crate) fn summary(&self) -> String {
        let first = self.first.at.as_secs_f64();
        let rate = match self.rate() {
            None if self.count == 0 => return "0 tokens".to_owned(),
            None => return format!("1 token, {first:.2} s after the start"),
            Some((rate, 0)) => format!("{rate:.1} tokens/s with the time of the prompt"),
            Some((rate, 1)) => format!("{rate:.1} tokens/s after the first"),
            Some((rate, made)) => format!("{rate:.1} tokens/s after the first {made}"),
        };
        format!(
            "{} tokens, {rate}, first token {first:.2} s after the start",
            self.count
        )
    }

    /// As numbers, with those of a grammar.
    pub(crate) fn figures(&self, grammar: Option<grammar::Figures>) -> Figures {
        let rate = self.rate();
        Figures {
            prompt_given_s: self.begin.as_secs_f64(),
            first_token_s: (self.count > 0).then_some(self.first.at.as_secs_f64()),
            tokens_per_s: rate.map(|(rate, _)| rate),
            rate_is_after: rate.map(|(_, made)| made),
            grammar,
        }
    }
}

/// When tokens came, in seconds from the program's start.
#[derive(Serialize)]
pub(crate) struct Figures {
    prompt_given_s: f64,
    first_token_s: Option<f64>,
    tokens_per_s: Option<f64>,
    /// The rate is of the tokens after so many; after 0, the prompt is in it.
    rate_is_after: Option<u32>,
    #[serde(flatten)]
    grammar: Option<grammar::Figures>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Times;

    /// What is said of tokens at these milliseconds, each with what the launches have made by then; the prompt was
    /// given at 400.
    fn summary(tokens: &[(u64, u32)]) -> String {
        let mut times = Times::from(Duration::from_millis(400));
        tokens
            .iter()
            .for_each(|&(at, made)| times.token(Duration::from_millis(at), made));
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
