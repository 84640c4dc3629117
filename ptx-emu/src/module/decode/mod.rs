//! From the syntax tree to decoded instructions: resolves names and checks operand types.
//!
//! Each instruction of the text becomes exactly one decoded instruction, so a label is the number
//! of instructions before it. Every operand is a register. Literals, special registers and
//! addresses of variables are placed in registers before the kernel starts.
//!
//! [`declarations`] reads the declarations of a kernel, [`statements`] decodes its instructions by
//! the functions of [`isa`](crate::module::isa), and [`link`] joins it with the functions that it
//! calls.

pub(crate) mod declarations;
pub(crate) mod link;
pub(crate) mod statements;
pub(crate) mod uninitialized_loads;

pub(crate) use crate::module::decode::link::{Decoded, decode};
