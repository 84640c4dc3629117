//! The reasons why a grammar is rejected.

/// The reason why a grammar is rejected.
#[derive(thiserror::Error)]
pub enum GrammarFault {
    /// The schema is not valid JSON.
    #[error("it is not valid JSON: {0}")]
    Json(String),
    /// The source is empty.
    #[error("it is empty")]
    Empty,
    /// The schema uses a keyword of JSON Schema that is not supported.
    #[error(
        "the keyword {keyword} at {place} is not supported; remove it, or express it with other keywords"
    )]
    Keyword {
        /// The keyword.
        keyword: String,
        /// The place of its first use, as a JSON pointer after `#`.
        place: String,
    },
    /// A number in the schema is too large to be exact.
    #[error(
        "the number {number} at {place} is beyond 2^53 (9007199254740992), where digits would be lost; write it as a string, or choose other bounds"
    )]
    Large {
        /// The number.
        number: String,
        /// Its place, as a JSON pointer after `#`.
        place: String,
    },
    /// The schema has a `minProperties` that a text could satisfy by repeating a key.
    #[error(
        "minProperties at {place} counts keys without a name, and a text could repeat one of them; list the keys under required, or remove minProperties"
    )]
    Keys {
        /// The place of the schema, as a JSON pointer after `#`.
        place: String,
    },
    /// A string that JSON can only write with a `\u` escape, in a schema where a key could have two spellings.
    #[error(
        "the string {string:?} at {place} has a control character that needs a \\u escape, which is not available where \
         objects with named keys allow other keys; add \"additionalProperties\": false to them, or leave the string out"
    )]
    ControlCharacter {
        /// The string.
        string: String,
        /// A JSON pointer with `#` in front.
        place: String,
    },
    /// A reference that cannot be followed.
    #[error("the $ref {reference:?} at {place} {problem}")]
    Reference {
        /// The value of `$ref`.
        reference: String,
        /// Its place, as a JSON pointer after `#`.
        place: String,
        /// The problem, as the rest of the sentence.
        problem: String,
    },
    /// An object allows keys by a pattern although no key is left that matches it.
    #[error(
        "an object within {part} allows keys by a pattern, but all of them are named or excluded; remove the pattern from patternProperties"
    )]
    Excluded {
        /// The name of the schema.
        part: String,
    },
    /// No text matches the grammar.
    #[error("no text matches it: {0}")]
    Unsatisfiable(String),
    /// A part of the grammar can never be completed.
    #[error(
        "no text can complete {part}, because it always leads back to itself; add an alternative, or remove it"
    )]
    Endless {
        /// The name of a rule, or the reference of a schema.
        part: String,
    },
    /// The source has a syntax error.
    #[error("line {line}, column {column}: {problem}")]
    At {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The problem.
        problem: String,
    },
    /// The source is in GBNF, the notation of llama.cpp.
    #[error(
        "line {line} is GBNF, the notation of llama.cpp; use Lark's notation: `start` instead of `root`, `name:` instead of \
         `name ::=`, /[a-z]/ instead of [a-z]"
    )]
    Gbnf {
        /// The line, from 1.
        line: usize,
    },
    /// A rule sets a temperature.
    #[error(
        "{rule} sets a temperature, which is supported only for the whole text; remove temperature="
    )]
    Tempered {
        /// The name of the rule.
        rule: String,
    },
    /// Another problem, as a sentence.
    #[error("{0}")]
    Other(String),
}

impl GrammarFault {
    /// Converts an error message of the library about a JSON schema. `place` returns the place of a
    /// keyword.
    pub(super) fn of_schema(
        said: &str,
        place: impl FnOnce(&str) -> Option<String>,
    ) -> GrammarFault {
        let said = said.replace("\n  while processing ", ", in ");
        let said = sentence(&said);
        if let Some(keyword) = said.strip_prefix("Unimplemented keys: ").and_then(quoted) {
            let place = place(keyword).unwrap_or_else(|| "a place".to_owned());
            return GrammarFault::Keyword {
                keyword: keyword.to_owned(),
                place,
            };
        }

        if said.starts_with("oneOf constraints are not supported") {
            let instead =
                "oneOf is supported only if no value can match two of its schemas; use anyOf";
            return GrammarFault::Other(instead.to_owned());
        }

        if said.contains(UNSATISFIABLE) {
            GrammarFault::Unsatisfiable(said.replace(UNSATISFIABLE, ""))
        } else {
            GrammarFault::Other(said)
        }
    }

    /// Converts an error message of the library about a grammar. It starts with `line(column): `.
    pub(super) fn of_lark(said: &str) -> GrammarFault {
        let said = sentence(said);
        let placed = said.strip_prefix("at ").unwrap_or(&said).split_once("): ");
        let at = placed.and_then(|(place, problem)| {
            let (line, column) = place.split_once('(')?;
            Some((line.parse().ok()?, column.parse().ok()?, problem))
        });
        match at {
            Some((line, column, problem)) => GrammarFault::At {
                line,
                column,
                problem: problem.to_owned(),
            },
            None => GrammarFault::Other(said),
        }
    }

    /// Converts an error message of the library about a regular expression with valid syntax.
    pub(super) fn of_regex(said: &str) -> GrammarFault {
        match said.split_once("lookarounds not supported yet; ") {
            Some((_, which)) => {
                let which = which.split(' ').next().unwrap_or_default();
                GrammarFault::Other(format!("an assertion ({which}) is not supported"))
            }
            None => GrammarFault::of_lark(said),
        }
    }
}

/// The start of the library's messages about a schema that no value matches.
const UNSATISFIABLE: &str = "Unsatisfiable schema: ";

/// Returns the text between the first two quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

/// Messages of the library that need knowledge of its internals, and replacements.
const MEANT: [(&str, &str); 2] = [
    (
        "lexer error: too many expressions constructed",
        "it is too large; use fewer or shorter repetitions",
    ),
    (
        "lexer error",
        "no string, expression or name begins here; an earlier one may lack its closing quote or slash",
    ),
];

/// Returns the sentence of an error message, without the lines that show a place, a state or a
/// trace.
pub(super) fn sentence(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default().trim_end();
    let first = first
        .split("; following special tokens")
        .next()
        .unwrap_or_default();
    // For a regular expression, the problem is below a drawing that marks the place.
    match text.lines().find_map(|line| line.strip_prefix("error: ")) {
        Some(problem) if first.ends_with(':') => format!("{first} {problem}"),
        _ => match MEANT.iter().find(|(said, _)| first.ends_with(said)) {
            Some((said, meant)) => first.replace(said, meant),
            None => first.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_becomes_a_sentence() {
        let schema =
            |said: &str| GrammarFault::of_schema(said, |_| Some("#/items".into())).to_string();
        assert_eq!(
            schema("Unimplemented keys: [\"contains\", \"not\"]"),
            "the keyword contains at #/items is not supported; remove it, or express it with other keywords"
        );
        assert_eq!(
            schema("Unsatisfiable schema: schema is false"),
            "no text matches it: schema is false"
        );
        assert_eq!(
            schema("Invalid type: x\n  while processing #/$defs/a"),
            "Invalid type: x, in #/$defs/a"
        );
        let lark = |said: &str| GrammarFault::of_lark(said).to_string();
        assert_eq!(
            lark("3(5): Expected ':'\n  3 | x\n"),
            "line 3, column 5: Expected ':'"
        );
        assert_eq!(
            lark("at 1(2): unknown name: \"A\"\n"),
            "line 1, column 2: unknown name: \"A\""
        );
        assert_eq!(lark("no start rule found"), "no start rule found");
        let picture = "1(8): invalid regex \"[a\" (in regex): regex parse error:\n    [a\n    ^\nerror: unclosed class";
        let said =
            "line 1, column 8: invalid regex \"[a\" (in regex): regex parse error: unclosed class";
        assert_eq!(lark(picture), said);
    }
}
