//! Misspelled names of commands and options.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

/// Replaces clap's suggestion for an unknown option, which is the most similar name even if it
/// means something else, by an option that differs by a typing error.
pub fn correct(mut error: Error, command: &mut Command) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }

    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    let tip = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => similar_option(word, command),
        _ => None,
    };

    // clap's usage contains the option that it would have suggested.
    let usage = command.render_usage();
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    if let Some(tip) = tip {
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tips);
    }

    error
}

/// Returns a tip for a word that is probably a misspelled option of the command.
pub fn similar_option(word: &str, command: &Command) -> Option<String> {
    let name = word.strip_prefix("--")?.split('=').next()?;
    // Programs in Python often spell options with underscores.
    let name = name.to_lowercase().replace('_', "-");
    let mut longs = command.get_arguments().filter_map(Arg::get_long);
    let long = longs.find(|long| is_typo(&name, long))?;
    Some(format!("a similar option exists: '--{long}'"))
}

/// Returns true if two names differ by a typing error: a missing, additional or wrong letter, or
/// two swapped letters.
///
/// Names of eight or more letters may differ by two such errors, and names of one or two letters
/// must be equal.
pub fn is_typo(typed: &str, name: &str) -> bool {
    let allowed = match name.chars().count() {
        0..=2 => 0,
        3..=7 => 1,
        _ => 2,
    };
    distance(typed, name) <= allowed
}

/// Returns the optimal string alignment distance of two texts: the number of letters that are
/// inserted, deleted, replaced or swapped with their neighbor.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();

    // `rows[i][j]` is the distance between the first `i` letters of `a` and the first `j` letters
    // of `b`.
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped {
                        best.min(rows[i - 2][j - 2] + 1)
                    } else {
                        best
                    }
                }
            };
        }
    }

    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, wanted) in [
            ("", "", 0),
            ("abc", "", 3),
            ("temprature", "temperature", 1),
            ("devcie", "device", 1),
            ("lora", "logprobs", 5),
            ("serve", "merge", 2),
            ("list", "logits", 3),
        ] {
            assert_eq!(distance(a, b), wanted, "{a} {b}");
        }
    }
}
