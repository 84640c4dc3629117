//! Regular expressions that divide texts. An expression that reaches a limit returns an error with
//! the position.
//!
//! `fancy-regex` backtracks where an expression has look-around. Its stack and its number of steps
//! are limited, and the library `tokenizers` mistakes reaching a limit for the end of the text.
//!
//! Two common forms are rewritten so that they do not backtrack:
//!
//! - Nearly all vocabularies end in `\s+(?!\S)|\s+`, for which a million characters of white space
//!   fill the stack. It is read as `(\s+)`. A match of two or more characters gives up its last one
//!   if another character follows.
//! - Expressions that group digits from the right look ahead to the end of the run from each group.
//!   They are read as the whole run, whose digits are then counted.

use tokenizers::tokenizer::pattern::Pattern;

/// The number of steps back after which a search gives up. That many steps take seconds.
const STEPS_BACK: usize = 100_000_000;

/// The endings that most vocabularies use for white space. The last space before a word belongs to
/// the word.
const RUNS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s"];

/// Expressions that group digits from the right, with the run of digits and the part of it that
/// matches.
const GROUPS: [(&str, &str, DigitRun); 5] = [
    (
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        r"\p{N}+",
        DigitRun::Group,
    ),
    (r"\d{1,3}(?=(?:\d{3})*(?!\d))", r"\d+", DigitRun::Group),
    (r"\d{1,3}(?=(?:\d{3})*\b)", r"\d+\b", DigitRun::Group),
    (r"(?=(\d{3})+(?!\d))", r"\d+", DigitRun::Before),
    (r"(?=(?:\d{3})+(?!\d))", r"\d+", DigitRun::Before),
];

/// The part of a run of digits that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DigitRun {
    /// Groups of three digits from the right, and the remaining digits on the left.
    Group,
    /// The place before each three.
    Before,
}

/// An expression.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    /// As it is searched for.
    regex: fancy_regex::Regex,
    how: MatchKind,
}

/// The way in which matches are derived from the matches of the regular expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchKind {
    Plain,
    /// If this group matches, its last character does not belong to the match.
    GivesBack(usize),
    Digits(DigitRun),
}

/// A search that gave up.
#[derive(Debug, thiserror::Error)]
#[error("the search for {expression:?} gave up behind byte {at}, before {before:?}: {reason}")]
pub(crate) struct GaveUp {
    expression: String,
    /// The end of the match before, in bytes.
    pub(crate) at: usize,
    /// The text before the position.
    pub(crate) before: String,
    pub(crate) reason: String,
}

impl Expression {
    /// Compiles an expression.
    pub(crate) fn new(text: &str) -> Result<Expression, Box<fancy_regex::Error>> {
        let compile = |text: &str| {
            fancy_regex::RegexBuilder::new(text)
                .backtrack_limit(STEPS_BACK)
                .build()
                .map_err(Box::new)
        };
        let text = text.to_owned();
        if let Some((_, run, part)) = GROUPS.iter().find(|(groups, ..)| *groups == text) {
            return Ok(Expression {
                text,
                regex: compile(run)?,
                how: MatchKind::Digits(*part),
            });
        }

        let regex = compile(&text)?;
        let run = RUNS
            .iter()
            .find_map(|run| text.strip_suffix(run))
            .filter(|head| !is_verbose(head));
        let run = run.and_then(|head| {
            Some((
                compile(head).ok()?,
                compile(&format!("{head}|(\\s+)")).ok()?,
            ))
        });

        // An expression that can match an empty text follows other rules, so it is not rewritten.
        match run.filter(|(head, _)| matches!(head.is_match(""), Ok(false))) {
            Some((_, regex)) => Ok(Expression {
                text,
                how: MatchKind::GivesBack(regex.captures_len() - 1),
                regex,
            }),
            None => Ok(Expression {
                text,
                regex,
                how: MatchKind::Plain,
            }),
        }
    }

    /// One that matches these characters.
    pub(crate) fn literal(text: &str) -> Result<Expression, Box<fancy_regex::Error>> {
        Expression::new(&fancy_regex::escape(text))
    }

    /// Whether it also matches where there is nothing.
    pub(crate) fn matches_nothing(&self) -> bool {
        self.regex.find("").is_ok_and(|found| found.is_some())
    }

    /// The matches, each with where it begins and ends.
    fn matches(&self, text: &str) -> Result<Vec<(usize, usize)>, GaveUp> {
        match self.how {
            MatchKind::Plain => self.plain(text),
            MatchKind::GivesBack(run) => self.giving_back(text, run),
            MatchKind::Digits(part) => {
                let runs = self.plain(text)?.into_iter();
                Ok(runs
                    .flat_map(|(start, end)| parts_of_run(&text[start..end], start, part))
                    .collect())
            }
        }
    }

    /// Returns the matches of the expression without changes.
    fn plain(&self, text: &str) -> Result<Vec<(usize, usize)>, GaveUp> {
        let mut found: Vec<(usize, usize)> = vec![];
        for place in self.regex.find_iter(text) {
            let at = found.last().map_or(0, |(_, end)| *end);
            let place = place.map_err(|error| self.gave_up(text, at, &error))?;
            found.push((place.start(), place.end()));
        }
        Ok(found)
    }

    /// Returns the matches, without the last character of the group `run` where it must be given
    /// back.
    fn giving_back(&self, text: &str, run: usize) -> Result<Vec<(usize, usize)>, GaveUp> {
        let mut found = vec![];
        let gave_up = |error: fancy_regex::Error, at| self.gave_up(text, at, &error);
        let mut at = 0;
        while let Some(place) = self
            .regex
            .find_from_pos(text, at)
            .map_err(|error| gave_up(error, at))?
        {
            let back = self
                .gives_back(text, at, place, run)
                .map_err(|error| gave_up(error, at))?;
            at = place.end() - back;
            found.push((place.start(), at));
        }

        Ok(found)
    }

    /// Returns the number of bytes by which a match is too long: the length of its last white space
    /// character if another character follows.
    fn gives_back(
        &self,
        text: &str,
        at: usize,
        place: fancy_regex::Match<'_>,
        run: usize,
    ) -> Result<usize, fancy_regex::Error> {
        let last = place.as_str().chars().next_back().map_or(0, char::len_utf8);
        let may = place.end() < text.len() && last < place.as_str().len();

        // Most matches are words, which need no second search for the group.
        if !may || !place.as_str().chars().all(char::is_whitespace) {
            return Ok(0);
        }

        let groups = self.regex.captures_from_pos(text, at)?;
        Ok(groups
            .and_then(|groups| groups.get(run))
            .map_or(0, |_| last))
    }

    fn gave_up(&self, text: &str, at: usize, error: &fancy_regex::Error) -> GaveUp {
        let before = text[at..].chars().take(20).collect();
        GaveUp {
            expression: self.text.clone(),
            at,
            before,
            reason: error.to_string(),
        }
    }
}

/// Returns the matches within a run of digits that begins at `start`.
fn parts_of_run(run: &str, start: usize, part: DigitRun) -> Vec<(usize, usize)> {
    let digits: Vec<usize> = run.char_indices().map(|(at, _)| start + at).collect();
    let first = digits.len() % 3;
    let threes = digits[first..].iter().step_by(3).copied();
    match part {
        DigitRun::Before => threes.map(|at| (at, at)).collect(),
        DigitRun::Group => {
            let starts: Vec<usize> = digits
                .first()
                .filter(|_| first > 0)
                .copied()
                .into_iter()
                .chain(threes)
                .collect();
            let ends = starts.iter().skip(1).copied().chain([start + run.len()]);
            std::iter::zip(starts.iter().copied(), ends).collect()
        }
    }
}

/// Whether a part of an expression may hold comments, in which the end of it means nothing.
fn is_verbose(text: &str) -> bool {
    let flags = text
        .split("(?")
        .skip(1)
        .map(|group| group.split([':', ')']).next().unwrap_or_default());
    flags.into_iter().any(|flags| {
        flags.chars().all(|c| c.is_ascii_alphabetic() || c == '-') && flags.contains('x')
    })
}

impl Pattern for &Expression {
    fn find_matches(&self, text: &str) -> tokenizers::Result<Vec<((usize, usize), bool)>> {
        let mut parts = vec![];
        let mut last = 0;
        for (start, end) in self.matches(text)? {
            if last != start {
                parts.push(((last, start), false));
            }
            parts.push(((start, end), true));
            last = end;
        }

        if last != text.len() || text.is_empty() {
            parts.push(((last, text.len()), false));
        }

        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN: &str = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    /// Returns the matches that `fancy-regex` finds for the original expression.
    fn plain(regex: &fancy_regex::Regex, text: &str) -> Vec<(usize, usize)> {
        regex
            .find_iter(text)
            .map(|place| place.map(|place| (place.start(), place.end())).unwrap())
            .collect()
    }

    /// All texts of four of these, as the library finds them.
    #[test]
    fn a_run_of_white_space_gives_its_last_character_back() {
        let cut = [
            r"a|\s+(?!\S)|\s",
            r"\s*[\r\n]+|(a)|\s+(?!\S)|\s+",
            r"a|\s{3}|\s+(?!\S)|\s+",
            QWEN,
        ];
        let parts = ["a", " ", "\n", "\u{3000}", "!"];
        for expression in cut {
            let ours = Expression::new(expression).unwrap();
            assert!(matches!(ours.how, MatchKind::GivesBack(_)), "{expression}");
            let regex = fancy_regex::Regex::new(expression).unwrap();
            for number in 0..5usize.pow(4) {
                let text: String = (0..4)
                    .map(|at| parts[number / 5usize.pow(at) % 5])
                    .collect();
                assert_eq!(
                    ours.matches(&text).unwrap(),
                    plain(&regex, &text),
                    "{expression} {text:?}"
                );
            }
        }
    }

    #[test]
    fn other_expressions_stay_as_they_are() {
        let others = [
            r"\s+(?!\S)",
            r"a*|\s+(?!\S)|\s+",
            "(?x)a #|\\s+(?!\\S)|\\s+",
            r"a|\s+(?!\S)|\s*",
            "b?",
        ];
        for expression in others {
            let ours = Expression::new(expression).unwrap();
            assert_eq!(ours.how, MatchKind::Plain, "{expression}");
            let regex = fancy_regex::Regex::new(expression).unwrap();
            let text = "a  b \n\n a   c";
            assert_eq!(
                ours.matches(text).unwrap(),
                plain(&regex, text),
                "{expression}"
            );
        }
    }

    /// All texts of six of these, as the library finds them; and a run that it would need hours
    /// for.
    #[test]
    fn digits_are_grouped_from_the_right() {
        let parts = ["1", "\u{0661}", "x", " "];
        for (expression, _, part) in GROUPS {
            let ours = Expression::new(expression).unwrap();
            let regex = fancy_regex::Regex::new(expression).unwrap();
            for number in 0..4usize.pow(6) {
                let text: String = (0..6)
                    .map(|at| parts[number / 4usize.pow(at) % 4])
                    .collect();
                assert_eq!(
                    ours.matches(&text).unwrap(),
                    plain(&regex, &text),
                    "{expression} {text:?}"
                );
            }

            let long = format!("x {}", "7".repeat(300_001));
            assert_eq!(
                ours.matches(&long).unwrap().len(),
                100_000 + usize::from(part == DigitRun::Group)
            );
        }
    }

    /// The library's stack and its steps back end at a million: it then took the rest for one part.
    #[test]
    fn long_texts_are_divided_to_their_end() {
        for (part, before) in [
            (" ", 1),
            ("\n", 0),
            ("\u{3000}", 3),
            ("a", 0),
            ("A", 0),
            ("7", 0),
            ("!", 0),
        ] {
            let text = part.repeat(1_100_000) + "7 b";
            let found = Expression::new(crate::tokenizer::cuts::GPT_2)
                .unwrap()
                .matches(&text)
                .unwrap();
            let end = text.len() - 3;
            let ends: Vec<usize> = found.iter().map(|(_, end)| *end).collect();
            match part {
                " " => assert_eq!(ends, [end - before, end + 1, end + 3]),
                "\n" | "\u{3000}" => assert_eq!(ends, [end - part.len(), end, end + 1, end + 3]),
                "7" => assert_eq!(ends, [end + 1, end + 3]),
                _ => assert_eq!(ends, [end, end + 1, end + 3]),
            }
        }
    }

    #[test]
    fn what_no_alternative_matches_is_stepped_over_to_the_end() {
        let text = "7".repeat(1_100_000) + "b";
        let expression = Expression::new(r"\s+(?!\S)|b(?!c)").unwrap();
        assert!(
            fancy_regex::Regex::new(&expression.text)
                .unwrap()
                .find(&text)
                .is_err()
        );
        assert_eq!(
            expression.matches(&text).unwrap(),
            [(text.len() - 1, text.len())]
        );
    }
}
