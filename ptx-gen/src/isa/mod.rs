//! The instruction table: one row for each instruction form, in the order and the words of the PTX
//! manual.
//!
//! The printer, validation, the instruction table of the book, the sample programs and the coverage
//! tests read these rows. Mnemonics are spelled nowhere else. To add an instruction, add a row here
//! and a method of one line to the language.
//!
//! The template of a row contains placeholders:
//!
//! - `$t` is the type of the operation.
//! - `$s` is the source type of a conversion, or the type of a right matrix.
//! - `$m` is the type as loads and stores name it.
//! - `$b` is the width of the type, such as `b32`.
//! - `$n` is a number that follows from the operands: the columns of a matmul or the dimensions of
//!   a tensor.
//!
//! The minimum targets and PTX versions are those that `ptxas` enforces. They were measured by
//! assembling each form.

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

pub use crate::level::Level;

/// All chapters in the order of the manual.
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

/// Returns all rows in the order of the manual.
pub fn all() -> impl Iterator<Item = &'static Op> {
    CHAPTERS.iter().flat_map(|c| c.rows).copied()
}
