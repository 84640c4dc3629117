//! The instruction table: one row is one line of the PTX manual, in its order and words.
//!
//! Printer, validator, the table of instructions in the book, the sample programs and the coverage tests read these rows; nothing outside
//! this module spells a mnemonic. Adding an instruction is adding a row, and a one-line method in `ops`.
//!
//! A row's template holds the type suffixes as placeholders: `$t` is the operation's type, `$s` the source type
//! of a conversion, or that of a right matrix, `$m` the type as loads and stores name it, `$b` its width alone, and `$n` a
//! number that follows from the operands: columns of a product, dimensions of a tensor.
//! Minimum targets and PTX versions are those that ptxas enforces, measured by assembling each form.

mod arithmetic;
mod asynchronous;
mod atomic;
mod compare;
mod control;
mod convert;
mod effect;
mod half;
mod logic;
mod matrix;
mod memory;
mod op;
mod sync;
mod warp;
mod wgmma;

pub use arithmetic::*;
pub use asynchronous::*;
pub use atomic::*;
pub use compare::*;
pub use control::*;
pub use convert::*;
pub use effect::*;
pub use half::*;
pub use logic::*;
pub use matrix::*;
pub use memory::*;
pub use op::*;
pub use sync::*;
pub use warp::*;
pub use wgmma::*;

/// Every chapter, in the manual's order.
pub static CHAPTERS: [&Chapter; 14] = [
    &INTEGER,
    &FLOATING,
    &HALF,
    &COMPARISON,
    &LOGIC,
    &MOVEMENT,
    &ASYNCHRONOUS,
    &CONVERSION,
    &CONTROL,
    &SYNCHRONIZATION,
    &WARP,
    &ATOMIC,
    &MATRIX,
    &WGMMA,
];

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Op> {
    CHAPTERS.iter().flat_map(|c| c.rows).copied()
}
