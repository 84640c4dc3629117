//! Regular expressions that divide texts: one that gives up says so, with the place.
//!
//! `fancy-regex` steps back where an expression has look-around, with a stack and a number of steps that end; the
//! library `tokenizers` takes either end for that of the text. Nearly all vocabularies end in `\s+(?!\S)|\s+`, whose
//! stack a million of white space fills: it is read as `(\s+)`, which needs none, and its match gives the last
//! character back where another follows and it has two.

use tokenizers::tokenizer::pattern::Pattern;

/// How many steps back a search has before it gives up; they take seconds.
const STEPS_BACK: usize = 100_000_000;

/// What vocabularies end in: white space, of which the last before a word is the word's.
const RUNS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s"];

/// An expression.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    regex: fancy_regex::Regex,
    /// The group of what gives its last character back.
    run: Option<usize>,
}

/// A search that gave up.
#[derive(Debug, thiserror::Error)]
#[error("the search for {expression:?} gave up behind byte {at}, before {before:?}: {reason}")]
pub(crate) struct GaveUp {
    expression: String,
    /// The end of the match before, in bytes.
    pub(crate) at: usize,
    /// What stands there.
    pub(crate) before: String,
    pub(crate) reason: String,
}

impl Expression {
    /// Compiles an expression.
    pub(crate) fn new(text: &str) -> Result<Expression, Box<fancy_regex::Error>> {
        let compile = |text: &str| {
            fancy_regex::RegexBuilder::new(text).backtrack_limit(STEPS_BACK).build().map_err(Box::new)
        };
        let regex = compile(text)?;
        let run = RUNS.iter().find_map(|run| text.strip_suffix(run)).filter(|head| !is_verbose(head));
        let run = run.and_then(|head| Some((compile(head).ok()?, compile(&format!("{head}|(\\s+)")).ok()?)));
        // What also matches nothing is found by rules of its own.
        match run.filter(|(head, _)| matches!(head.is_match(""), Ok(false))) {
            Some((_, regex)) => {
                Ok(Expression { text: text.to_owned(), run: Some(regex.captures_len() - 1), regex })
            }
            None => Ok(Expression { text: text.to_owned(), regex, run: None }),
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
        let mut found: Vec<(usize, usize)> = vec![];
        let gave_up = |error: fancy_regex::Error, at| self.gave_up(text, at, &error);
        let Some(run) = self.run else {
            for place in self.regex.find_iter(text) {
                let at = found.last().map_or(0, |(_, end)| *end);
                let place = place.map_err(|error| gave_up(error, at))?;
                found.push((place.start(), place.end()));
            }
            return Ok(found);
        };
        let mut at = 0;
        while let Some(place) = self.regex.find_from_pos(text, at).map_err(|error| gave_up(error, at))? {
            let back = self.gives_back(text, at, place, run).map_err(|error| gave_up(error, at))?;
            at = place.end() - back;
            found.push((place.start(), at));
        }
        Ok(found)
    }

    /// The bytes that a match is too long by: those of the last character of white space before another character.
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
        Ok(groups.and_then(|groups| groups.get(run)).map_or(0, |_| last))
    }

    fn gave_up(&self, text: &str, at: usize, error: &fancy_regex::Error) -> GaveUp {
        let before = text[at..].chars().take(20).collect();
        GaveUp { expression: self.text.clone(), at, before, reason: error.to_string() }
    }
}

/// Whether a part of an expression may hold comments, in which the end of it means nothing.
fn is_verbose(text: &str) -> bool {
    let flags = text.split("(?").skip(1).map(|group| group.split([':', ')']).next().unwrap_or_default());
    flags
        .into_iter()
        .any(|flags| flags.chars().all(|c| c.is_ascii_alphabetic() || c == '-') && flags.contains('x'))
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

    const QWEN: &str =
        r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    /// What `fancy-regex` finds for the expression as it stands.
    fn plain(regex: &fancy_regex::Regex, text: &str) -> Vec<(usize, usize)> {
        regex.find_iter(text).map(|place| place.map(|place| (place.start(), place.end())).unwrap()).collect()
    }

    /// All texts of four of these, as the library finds them.
    #[test]
    fn a_run_of_white_space_gives_its_last_character_back() {
        let cut = [r"a|\s+(?!\S)|\s", r"\s*[\r\n]+|(a)|\s+(?!\S)|\s+", r"a|\s{3}|\s+(?!\S)|\s+", QWEN];
        let parts = ["a", " ", "\n", "\u{3000}", "!"];
        for expression in cut {
            let ours = Expression::new(expression).unwrap();
            assert!(ours.run.is_some(), "{expression}");
            let regex = fancy_regex::Regex::new(expression).unwrap();
            for number in 0..5usize.pow(4) {
                let text: String = (0..4).map(|at| parts[number / 5usize.pow(at) % 5]).collect();
                assert_eq!(ours.matches(&text).unwrap(), plain(&regex, &text), "{expression} {text:?}");
            }
        }
    }

    #[test]
    fn other_expressions_stay_as_they_are() {
        let others =
            [r"\s+(?!\S)", r"a*|\s+(?!\S)|\s+", "(?x)a #|\\s+(?!\\S)|\\s+", r"a|\s+(?!\S)|\s*", "b?"];
        for expression in others {
            let ours = Expression::new(expression).unwrap();
            assert!(ours.run.is_none(), "{expression}");
            let regex = fancy_regex::Regex::new(expression).unwrap();
            let text = "a  b \n\n a   c";
            assert_eq!(ours.matches(text).unwrap(), plain(&regex, text), "{expression}");
        }
    }

    /// The library's stack and its steps back end at a million: it then took the rest for one part.
    #[test]
    fn long_texts_are_divided_to_their_end() {
        for (part, before) in [(" ", 1), ("\n", 0), ("\u{3000}", 3), ("a", 0), ("A", 0), ("7", 0), ("!", 0)] {
            let text = part.repeat(1_100_000) + "7 b";
            let found = Expression::new(crate::model::cuts::GPT_2).unwrap().matches(&text).unwrap();
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
        assert!(fancy_regex::Regex::new(&expression.text).unwrap().find(&text).is_err());
        assert_eq!(expression.matches(&text).unwrap(), [(text.len() - 1, text.len())]);
    }
}
