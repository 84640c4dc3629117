//! The facts about a conversation that decide how a value without quotes is read.

use super::foreign::ForeignText;
use super::tools::Tools;

/// The facts that a reader needs in addition to the text of a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadContext<'a> {
    pub(super) tools: &'a Tools,
    /// The texts that the template writes between two values. See `Reading::separators`.
    pub(super) separators: &'a [String],
    pub(super) foreign: &'a ForeignText,
}

/// The problem of a text that can be read in several ways.
pub(super) const SEVERAL_READINGS: &str =
    "a value in it contains closing tags, so that it can be read in several ways";

/// The problem of a text between two values that the conversation contains.
pub(super) const FOREIGN_SEPARATOR: &str = "the conversation contains the text between two of its values, so that it can \
                                            be read in several ways";

/// The problem of calls that do not agree with the schemas, if longer values do.
pub(super) const DISAGREES: &str = "its calls do not agree with the parameters of their functions, and a longer value in it \
                                    would";

/// The problem of a call in which a value may contain what looks like the next parameter.
pub(super) fn undeclared(parameter: &str, function: &str) -> String {
    format!(
        "{function} has no parameter {parameter}, so this may belong to the value in front of it"
    )
}
