//! From the syntax tree to decoded instructions: resolves names and checks operand types.
//!
//! Each instruction of the text becomes exactly one decoded instruction, so a label is the number
//! of instructions before it. Every operand is a register. Literals, special registers and
//! addresses of variables are placed in registers before the kernel starts.
//!
//! [`declarations`] reads the declarations of a kernel, and [`names`] resolves names. [`operands`]
//! gives the decoding functions of [`isa`](crate::module::isa) access to suffixes and operands.

pub(crate) mod declarations;
pub(crate) mod functions;
pub(crate) mod link;
pub(crate) mod names;
pub(crate) mod operands;
pub(crate) mod statements;
pub(crate) mod symbols;
pub(crate) mod uninitialized_loads;
pub(crate) mod unit;

pub(crate) use crate::module::address_space::SHARED_BASE;
pub(crate) use crate::module::decode::functions::Functions;
pub(crate) use crate::module::decode::link::{Decoded, decode};
pub(crate) use crate::module::decode::names::bank;
pub(crate) use crate::module::decode::operands::Decode;
pub(crate) use crate::module::decode::symbols::layout;
