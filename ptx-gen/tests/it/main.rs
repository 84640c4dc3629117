//! Tests of the language, the validator and the printed PTX.

mod barriers;
mod errors;
mod fold;
mod half;
mod methods;
mod nested;
mod products;
mod scopes;
mod table;
