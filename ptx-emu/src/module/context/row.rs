//! Rows of arithmetic instructions: a name and a function of one lane.

/// An arithmetic instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArithmeticRow {
    /// The full names, with alternatives in braces: `add{,.rn}.f32`.
    pub(crate) names: &'static str,
    pub(crate) dst: Type,
    pub(crate) src: &'static [Type],
    pub(crate) run: Alu,
}

/// Returns all names that a pattern with alternatives in braces stands for.
pub(crate) fn expand(pattern: &str) -> Vec<String> {
    let Some((head, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_string()];
    };

    let (choices, tail) = rest.split_once('}').unwrap_or((rest, ""));
    let tails = expand(tail);
    choices
        .split(',')
        .flat_map(|choice| {
            tails
                .iter()
                .map(move |tail| format!("{head}{choice}{tail}"))
        })
        .collect()
}

/// Returns an opcode with its suffixes in canonical order.
pub(crate) fn sorted(opcode: &str, mut suffixes: Vec<&str>) -> String {
    suffixes.sort_unstable();
    format!("{opcode} {}", suffixes.join(" "))
}

/// Defines rows: names, and a closure for one lane whose parameters have the types of the operands.
macro_rules! rows {
    ($($names:literal => |$($arg:ident : $ty:ty),+| -> $dst:ty { $($body:tt)* })*) => {
        &[$(crate::module::context::row::ArithmeticRow {
            names: $names,
            dst: <$dst as crate::module::registers::RegisterValue>::TYPE,
            src: &[$(<$ty as crate::module::registers::RegisterValue>::TYPE),+],
            run: {
                fn run(
                    regs: &mut crate::module::registers::Regs,
                    mask: u32,
                    slots: &crate::module::registers::OperandSlots,
                ) -> Result<(), crate::module::registers::Undefined> {
                    crate::module::context::row::rows!(@map $($arg),+)(regs, mask, slots, |$($arg: $ty),+| -> $dst { $($body)* })
                }
                run
            },
        }),*]
    };
    (@map $a:ident) => { crate::module::registers::map1 };
    (@map $a:ident, $b:ident) => { crate::module::registers::map2 };
    (@map $a:ident, $b:ident, $c:ident) => { crate::module::registers::map3 };
}

/// Defines rows for instructions that are rare in inner loops. A function is called for each lane,
/// which needs less code. A name may be any constant expression.
macro_rules! seldom {
    ($($names:expr => |$($arg:ident : $ty:ty),+| -> $dst:ty { $($body:tt)* })*) => {
        &[$(crate::module::context::row::ArithmeticRow {
            names: $names,
            dst: <$dst as crate::module::registers::RegisterValue>::TYPE,
            src: &[$(<$ty as crate::module::registers::RegisterValue>::TYPE),+],
            run: {
                fn run(
                    regs: &mut crate::module::registers::Regs,
                    mask: u32,
                    slots: &crate::module::registers::OperandSlots,
                ) -> Result<(), crate::module::registers::Undefined> {
                    crate::module::context::row::seldom!(@each $($arg),+)(regs, mask, slots, |$($arg: $ty),+| -> $dst { $($body)* })
                }
                run
            },
        }),*]
    };
    (@each $a:ident) => { crate::module::registers::each1 };
    (@each $a:ident, $b:ident) => { crate::module::registers::each2 };
    (@each $a:ident, $b:ident, $c:ident) => { crate::module::registers::each3 };
}

use crate::module::registers::Alu;
use crate::syntax::types::Type;

pub(crate) use rows;
pub(crate) use seldom;
