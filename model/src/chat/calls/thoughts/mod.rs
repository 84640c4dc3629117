//! Thoughts in front of a reply: their marks, and the white space around them.

mod marks;
mod spacing;

pub(crate) use marks::ThoughtMarks;
pub(super) use marks::marks;
pub(super) use spacing::Spacing;
