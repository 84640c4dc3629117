//! What is wrong with a grammar, and with a text that follows one.

/// Why a grammar cannot be used.
#[derive(thiserror::Error)]
pub enum Fault {
    /// A schema that is no JSON.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// An empty one.
    #[error("it is empty")]
    Empty,
    /// A keyword of JSON Schema that is not followed, and where it stands first.
    #[error(
        "the keyword {keyword} at {place} is not supported; leave it out, or say the same with other keywords"
    )]
    Keyword {
        /// The keyword.
        keyword: String,
        /// A JSON pointer with `#` in front.
        place: String,
    },
    /// A number that is not followed exactly.
    #[error(
        "the number {number} at {place} is beyond 2^53 (9007199254740992), where digits would be lost; write it as a string, or choose other bounds"
    )]
    Large {
        /// The number.
        number: String,
        /// A JSON pointer with `#` in front.
        place: String,
    },
    /// A least number of keys that is not followed, as keys may come twice.
    #[error(
        "minProperties at {place} counts keys that are not named, and such a key may come twice, which makes it one; name the keys under required, or leave it out"
    )]
    Keys {
        /// A JSON pointer with `#` in front.
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
        /// A JSON pointer with `#` in front.
        place: String,
        /// The problem, as the rest of the sentence.
        problem: String,
    },
    /// An object that offers another key although no key is left.
    #[error(
        "an object within {part} allows keys by a pattern, but all of them are named or excluded; leave the pattern out of patternProperties"
    )]
    Excluded {
        /// The name of the schema.
        part: String,
    },
    /// No text is within it.
    #[error("no text is within it: {0}")]
    Unsatisfiable(String),
    /// A part of it never ends.
    #[error(
        "no text within {part} ever ends, as it leads back to itself each time; give it another way to go on, or leave it out"
    )]
    Endless {
        /// A rule, or a schema by its reference.
        part: String,
    },
    /// A mistake in its own language.
    #[error("line {line}, column {column}: {problem}")]
    At {
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// The mistake.
        problem: String,
    },
    /// A grammar of llama.cpp.
    #[error(
        "line {line} is GBNF, as llama.cpp has it; grammars are in Lark's form here: `start` in place of `root`, `name:` in \
         place of `name ::=`, /[a-z]/ in place of [a-z]"
    )]
    Gbnf {
        /// From 1.
        line: usize,
    },
    /// A rule with a temperature of its own.
    #[error(
        "{rule} asks for a temperature, which only the whole text can have: leave temperature= out"
    )]
    Tempered {
        /// What the library calls it.
        rule: String,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Fault {
    /// Of what the library says about a JSON schema: `place` finds a keyword in it.
    pub(super) fn of_schema(said: &str, place: impl FnOnce(&str) -> Option<String>) -> Fault {
        let said = said.replace("\n  while processing ", ", in ");
        let said = sentence(&said);
        if let Some(keyword) = said.strip_prefix("Unimplemented keys: ").and_then(quoted) {
            let place = place(keyword).unwrap_or_else(|| "a place".to_owned());
            return Fault::Keyword {
                keyword: keyword.to_owned(),
                place,
            };
        }
        if said.starts_with("oneOf constraints are not supported") {
            let instead =
                "oneOf is followed only where no value can be of two of its schemas; use anyOf";
            return Fault::Other(instead.to_owned());
        }
        match said.contains(UNSATISFIABLE) {
            true => Fault::Unsatisfiable(said.replace(UNSATISFIABLE, "")),
            false => Fault::Other(said),
        }
    }

    /// Of what the library says about a grammar: it begins with a line and a column in parentheses.
    pub(super) fn of_lark(said: &str) -> Fault {
        let said = sentence(said);
        let placed = said.strip_prefix("at ").unwrap_or(&said).split_once("): ");
        let at = placed.and_then(|(place, problem)| {
            let (line, column) = place.split_once('(')?;
            Some((line.parse().ok()?, column.parse().ok()?, problem))
        });
        match at {
            Some((line, column, problem)) => Fault::At {
                line,
                column,
                problem: problem.to_owned(),
            },
            None => Fault::Other(said),
        }
    }

    /// Of what the library says about a regular expression that is well formed.
    pub(super) fn of_regex(said: &str) -> Fault {
        match said.split_once("lookarounds not supported yet; ") {
            Some((_, which)) => {
                let which = which.split(' ').next().unwrap_or_default();
                Fault::Other(format!("an assertion ({which}) is not supported"))
            }
            None => Fault::of_lark(said),
        }
    }
}

/// How the library begins to say that no value is of a schema, or of one within it.
const UNSATISFIABLE: &str = "Unsatisfiable schema: ";

/// What is between the first two quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

/// What the library says in words that only its authors understand, and what it means.
const MEANT: [(&str, &str); 2] = [
    (
        "lexer error: too many expressions constructed",
        "it is too large: fewer repetitions, or shorter ones, may do",
    ),
    (
        "lexer error",
        "no string, expression or name begins here: one before may lack its closing quote or slash",
    ),
];

/// A sentence without the lines that show a place, a state or a trace.
pub(super) fn sentence(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default().trim_end();
    let first = first
        .split("; following special tokens")
        .next()
        .unwrap_or_default();
    // What is wrong with a regular expression stands below a picture of it.
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
        let schema = |said: &str| Fault::of_schema(said, |_| Some("#/items".into())).to_string();
        assert_eq!(
            schema("Unimplemented keys: [\"contains\", \"not\"]"),
            "the keyword contains at #/items is not supported; leave it out, or say the same with other keywords"
        );
        assert_eq!(
            schema("Unsatisfiable schema: schema is false"),
            "no text is within it: schema is false"
        );
        assert_eq!(
            schema("Invalid type: x\n  while processing #/$defs/a"),
            "Invalid type: x, in #/$defs/a"
        );
        let lark = |said: &str| Fault::of_lark(said).to_string();
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
