//! The context in which an instruction is decoded: the names of its kernel, its operands, and the
//! rows of arithmetic instructions.
pub(crate) mod functions;
pub(crate) mod names;
pub(crate) mod operands;
pub(crate) mod row;
pub(crate) mod symbols;
pub(crate) mod unit;
