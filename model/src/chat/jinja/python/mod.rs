//! Python's objects, with their operators, methods and formatting.

pub(super) mod arguments;
pub(super) mod format;
pub(super) mod host;
pub(super) mod json;
pub(super) mod methods;
pub(super) mod operators;
pub(super) mod strftime;
pub(super) mod text;
pub(super) mod value;
