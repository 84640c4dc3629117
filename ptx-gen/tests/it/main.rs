//! Tests of the language, the validator and the printed PTX.

mod barriers;
mod errors;
mod fold;
mod half;
mod nested;
mod products;
mod scopes;
mod table;
