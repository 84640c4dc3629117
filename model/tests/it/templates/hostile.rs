//! Random values that imitate the calls of a template.
//!
//! A value is made of fragments of calls that the template itself has written: single tags, the
//! text in front of a value, the text after it, and the text between two calls. This makes texts
//! with several readings likely.

use serde_json::{Value, json};
use warpwright_model::chat::{ChatTemplate, ReplyPart, Tools};

use super::round_trip::{self, Wanted};

/// The text of the user's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The values of the calls, which the model copies.
    Values,
    /// An unrelated question. The model invents the values.
    Nothing,
}

/// The results of the conversations of a template.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The calls came back.
    pub(crate) same: usize,
    /// No call came back, and a problem was reported.
    pub(crate) reported: usize,
    /// Other calls came back, and the template writes the same text for them. Only the user's
    /// message can reveal this.
    pub(crate) identical: usize,
    /// Other calls came back, or none without a problem. Each entry has the reply, the wanted calls
    /// and the found parts.
    pub(crate) wrong: Vec<String>,
}

/// A generator of random numbers (xorshift by Marsaglia, <https://doi.org/10.18637/jss.v008.i14>).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % limit
    }
}

/// Writes `count` conversations with the template and reads them back. Returns `None` if the
/// template writes no calls.
pub(crate) fn hostile(
    template: &ChatTemplate,
    tools: &Tools,
    asked: Asked,
    seed: u64,
    count: usize,
) -> Option<Tally> {
    let mut random = Random(seed);
    let fragments = fragments(template, tools)?;
    let mut tally = Tally::default();
    for _ in 0..count {
        let calls: Vec<Wanted> = (0..1 + random.below(2))
            .map(|_| call(&mut random, &fragments))
            .collect();
        let Ok(reply) = round_trip::written(template, tools, &calls) else {
            continue;
        };

        let message = match asked {
            Asked::Values => round_trip::asked(&calls),
            Asked::Nothing => "Is it warm?".to_owned(),
        };
        let parts = round_trip::parts(template, tools, &message, [reply.as_str()]);
        let found: Vec<Wanted> = round_trip::calls(&parts)
            .into_iter()
            .map(|call| (call.name.clone(), Value::from(call.arguments.clone())))
            .collect();
        let is_problem = parts
            .iter()
            .any(|part| matches!(part, ReplyPart::NoCall { .. }));
        if found == calls {
            tally.same += 1;
        } else if found.is_empty() && is_problem {
            tally.reported += 1;
        } else if round_trip::written(template, tools, &found).is_ok_and(|again| again == reply) {
            tally.identical += 1;
        } else {
            let wrong = format!("{reply:?}\n  wanted {calls:?}\n  found {parts:?}");
            tally.wrong.push(wrong);
        }
    }

    Some(tally)
}

fn call(random: &mut Random, fragments: &[String]) -> Wanted {
    let value: String = (0..random.below(6))
        .map(|_| fragments[random.below(fragments.len())].as_str())
        .collect();
    let (name, arguments) = match random.below(4) {
        0 => (
            "get_weather",
            json!({ "city": value, "days": 3, "tags": ["x"] }),
        ),
        1 => ("get_weather", json!({ "city": value })),
        _ => ("run", json!({ "command": value })),
    };
    (name.to_owned(), arguments)
}

/// Cuts calls that the template writes into fragments. Returns `None` if it writes none.
pub(crate) fn fragments(template: &ChatTemplate, tools: &Tools) -> Option<Vec<String>> {
    let run = ("run".to_owned(), json!({ "command": "AAA" }));
    let weather = (
        "get_weather".to_owned(),
        json!({ "city": "AAA", "days": 3 }),
    );
    let other = ("run".to_owned(), json!({ "command": "BBB" }));
    let written = |calls: &[Wanted]| round_trip::written(template, tools, calls).ok();
    let mut fragments: Vec<String> = ["a", "\n", " ", "\"", "\\", "'", "}", "{", "12"]
        .map(str::to_owned)
        .to_vec();
    let two = written(&[weather.clone(), other]).unwrap_or_default();
    if let (Some(start), Some(end)) = (two.find("AAA"), two.find("BBB")) {
        fragments.push(two[start + "AAA".len()..end].to_owned());
    }

    for one in [written(&[run])?, written(&[weather])?] {
        let mut fragment = String::new();
        for c in one.chars() {
            if matches!(c, '<' | '[' | '\n') && !fragment.is_empty() {
                fragments.push(std::mem::take(&mut fragment));
            }
            fragment.push(c);
            if matches!(c, '>' | ']' | '\n') {
                fragments.push(std::mem::take(&mut fragment));
            }
        }

        fragments.push(fragment);
        let (before, after) = one.split_once("AAA")?;
        fragments.extend([before.to_owned(), after.to_owned(), one.clone()]);
    }

    Some(fragments)
}
