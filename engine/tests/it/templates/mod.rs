//! Chat templates of published models render as transformers renders them (`tests/data/templates/README.md`).

pub(crate) mod compare;
