//! The names of Jinja's filters and tests.

const FILTERS: [&str; 48] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
];

/// Filters that Jinja has and this crate has not.
pub(super) const UNSUPPORTED_FILTERS: [&str; 6] =
    ["pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"];

/// Returns true if Jinja has a filter with this name.
pub(super) fn is_filter(name: &str) -> bool {
    FILTERS.contains(&name) || UNSUPPORTED_FILTERS.contains(&name)
}

const TESTS: [&str; 39] = [
    "odd",
    "even",
    "divisibleby",
    "defined",
    "undefined",
    "filter",
    "test",
    "none",
    "boolean",
    "false",
    "true",
    "integer",
    "float",
    "lower",
    "upper",
    "string",
    "mapping",
    "number",
    "sequence",
    "iterable",
    "callable",
    "sameas",
    "escaped",
    "in",
    "==",
    "eq",
    "equalto",
    "!=",
    "ne",
    ">",
    "gt",
    "greaterthan",
    "ge",
    ">=",
    "<",
    "lt",
    "lessthan",
    "<=",
    "le",
];

/// Returns true if Jinja has a test with this name.
pub(super) fn is_test(name: &str) -> bool {
    TESTS.contains(&name)
}
