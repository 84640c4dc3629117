//! The steps that a text passes before it becomes tokens: normalization and division into pieces.
//!
//! They are the components of the library `tokenizers`, except for the regular expressions. Ours
//! are in `expression.rs`, because the expressions of the library end silently at a limit.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizer::Range;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{
    DecoderWrapper, NormalizedString, Normalizer, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior, TokenizerImpl,
};

use crate::tokenizer::expression::{Expression, GaveUp};

/// The library's tokenizer, with these steps.
pub(crate) type Library =
    TokenizerImpl<ModelWrapper, Changes, Cuts, PostProcessorWrapper, DecoderWrapper>;

/// The pattern of GPT-2's `encoder.py`.
pub(crate) const GPT_2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The steps that divide a text, in the order in which they run.
#[derive(Debug)]
pub(crate) struct Cuts(pub(crate) Vec<Cut>);

/// A step that divides a text.
#[derive(Debug)]
pub(crate) enum Cut {
    Split(Split),
    /// A space in front of each part that has none.
    Space,
    Library(PreTokenizerWrapper),
}

/// A step that divides a text by an expression.
#[derive(Debug)]
pub(crate) struct Split {
    expression: Expression,
    behavior: SplitDelimiterBehavior,
    /// Whether the pieces between the matches count as matches instead.
    invert: bool,
}

/// The steps that change a text, in the order in which they run.
#[derive(Debug)]
pub(crate) struct Changes(pub(crate) Vec<TextChange>);

/// A step that changes a text.
#[derive(Debug)]
pub(crate) enum TextChange {
    Replace(Expression, String),
    Library(NormalizerWrapper),
}

impl Cut {
    /// Each match by itself.
    pub(crate) fn isolated(expression: &str) -> tokenizers::Result<Cut> {
        let expression = Expression::new(expression)?;
        Ok(Cut::Split(Split {
            expression,
            behavior: SplitDelimiterBehavior::Isolated,
            invert: false,
        }))
    }

    /// Each byte as a character of GPT-2's alphabet.
    pub(crate) fn bytes() -> Cut {
        Cut::Library(ByteLevel::new(false, true, false).into())
    }
}

impl PreTokenizer for Cuts {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for cut in &self.0 {
            match cut {
                Cut::Split(split) => text.split(|_, part| split.parts(&part))?,
                Cut::Space => text.normalize(|part| {
                    if !part.get().starts_with(' ') {
                        part.prepend(" ");
                    }
                    Ok(())
                })?,
                Cut::Library(step) => step.pre_tokenize(text)?,
            }
        }
        Ok(())
    }
}

impl Split {
    /// Returns the place of a match among the parts.
    pub(crate) fn behavior(&self) -> SplitDelimiterBehavior {
        self.behavior
    }

    fn parts(&self, part: &NormalizedString) -> tokenizers::Result<Vec<NormalizedString>> {
        let expression = &self.expression;
        let parts = if self.invert {
            part.split(tokenizers::pattern::Invert(expression), self.behavior)
        } else {
            part.split(expression, self.behavior)
        };
        parts.map_err(|error| placed(part, error))
    }
}

impl Normalizer for Changes {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        for change in &self.0 {
            match change {
                TextChange::Replace(expression, content) => text
                    .replace(expression, content)
                    .map_err(|error| placed(text, error))?,
                TextChange::Library(step) => step.normalize(text)?,
            }
        }
        Ok(())
    }
}

/// The error with the place in the whole text, of one with the place in a part.
fn placed(part: &NormalizedString, error: tokenizers::Error) -> tokenizers::Error {
    let mut gave_up = match error.downcast::<GaveUp>() {
        Ok(gave_up) => gave_up,
        Err(other) => return other,
    };
    let original = part.convert_offsets(Range::Normalized(gave_up.at..part.len()));
    gave_up.at = part.offsets_original().0 + original.map_or(gave_up.at, |range| range.start);
    gave_up
}

/// Returns the steps of a sequence, or the component itself if it is not a sequence.
fn steps(component: Value, key: &str) -> Vec<Value> {
    match component {
        Value::Object(mut object) if object.get("type").is_some_and(|kind| kind == "Sequence") => {
            let inner = object.remove(key).unwrap_or_default();
            let inner = if let Value::Array(inner) = inner {
                inner
            } else {
                vec![inner]
            };
            inner
                .into_iter()
                .flat_map(|step| steps(step, key))
                .collect()
        }
        component => vec![component],
    }
}

/// A pattern as the file spells it.
fn expression(pattern: SplitPattern) -> tokenizers::Result<Expression> {
    Ok(match pattern {
        SplitPattern::String(text) => Expression::literal(&text)?,
        SplitPattern::Regex(text) => Expression::new(&text)?,
    })
}

impl<'de> Deserialize<'de> for Cuts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cuts, D::Error> {
        let component = Value::deserialize(deserializer)?;
        let cuts = steps(component, "pretokenizers").into_iter().map(cuts_of);
        let cuts = cuts
            .collect::<tokenizers::Result<Vec<_>>>()
            .map_err(D::Error::custom)?;
        Ok(Cuts(cuts.into_iter().flatten().collect()))
    }
}

fn cuts_of(step: Value) -> tokenizers::Result<Vec<Cut>> {
    #[derive(Deserialize)]
    struct SplitKeys {
        pattern: SplitPattern,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    }
    if step["type"] == "Split" {
        let SplitKeys {
            pattern,
            behavior,
            invert,
        } = serde_json::from_value(step)?;
        return Ok(vec![Cut::Split(Split {
            expression: expression(pattern)?,
            behavior,
            invert,
        })]);
    }
    Ok(match serde_json::from_value(step)? {
        PreTokenizerWrapper::ByteLevel(level) if level.use_regex => {
            let space = level.add_prefix_space.then_some(Cut::Space);
            space
                .into_iter()
                .chain([Cut::isolated(GPT_2)?, Cut::bytes()])
                .collect()
        }
        other => vec![Cut::Library(other)],
    })
}

impl<'de> Deserialize<'de> for Changes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Changes, D::Error> {
        let component = Value::deserialize(deserializer)?;
        let changes = steps(component, "normalizers").into_iter().map(change_of);
        Ok(Changes(
            changes
                .collect::<tokenizers::Result<_>>()
                .map_err(D::Error::custom)?,
        ))
    }
}

fn change_of(step: Value) -> tokenizers::Result<TextChange> {
    #[derive(Deserialize)]
    struct ReplaceKeys {
        pattern: SplitPattern,
        content: String,
    }
    if step["type"] == "Replace" {
        let ReplaceKeys { pattern, content } = serde_json::from_value(step)?;
        return Ok(TextChange::Replace(expression(pattern)?, content));
    }
    Ok(TextChange::Library(serde_json::from_value(step)?))
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType};

    use super::*;

    /// The parts of a text, where they begin in it.
    fn parts(component: &str, text: &str) -> tokenizers::Result<Vec<(String, usize)>> {
        let cuts: Cuts = serde_json::from_str(component).unwrap();
        let mut string = PreTokenizedString::from(text);
        cuts.pre_tokenize(&mut string)?;
        let parts = string.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(parts
            .into_iter()
            .map(|(part, (start, _), _)| (part.to_owned(), start))
            .collect())
    }

    #[test]
    fn a_long_run_is_divided_in_every_component_that_has_an_expression() {
        let split = r#"{"type": "Split", "pattern": {"Regex": "\\S+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false}"#;
        let nested = format!(
            r#"{{"type": "Sequence", "pretokenizers": [{{"type": "Sequence", "pretokenizers": [{split}]}}]}}"#
        );
        let bytes = r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#;
        let text = "\t".repeat(1_100_000) + "b";
        for component in [split, &nested, bytes] {
            let parts = parts(component, &text).unwrap();
            let starts: Vec<usize> = parts.into_iter().map(|(_, start)| start).collect();
            assert_eq!(starts, [0, text.len() - 2, text.len() - 1], "{component}");
        }

        let spaced = parts(bytes, "a b").unwrap();
        assert_eq!(
            spaced,
            [("\u{120}a".to_owned(), 0), ("\u{120}b".to_owned(), 1)]
        );
    }

    #[test]
    fn what_gives_up_names_the_byte_of_the_text() {
        let cut = |text: &str| Cut::isolated(text).unwrap();
        let mut string = PreTokenizedString::from(format!("é-é{}", "a".repeat(1_100_000)));
        let error = Cuts(vec![cut("-"), Cut::Space, cut("é|a+(?!a)c")])
            .pre_tokenize(&mut string)
            .unwrap_err();
        let expected = "the search for \"é|a+(?!a)c\" gave up behind byte 5, before \"aaaaaaaaaaaaaaaaaaaa\": Error \
                        executing regex: Max stack size exceeded for backtracking";
        assert_eq!(error.to_string(), expected);

        let changes = Changes(vec![TextChange::Replace(
            Expression::new("a+(?!a)c").unwrap(),
            String::new(),
        )]);
        let error = changes
            .normalize(&mut NormalizedString::from("a".repeat(1_100_000)))
            .unwrap_err();
        assert!(
            error.to_string().contains("gave up behind byte 0"),
            "{error}"
        );
    }
}
