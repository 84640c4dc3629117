//! Prints the syntax tree as text, so that tests can compare it with the original text.

use crate::syntax::ast::{
    Module, Number, OperandKind, ParsedInstruction, ParsedOperand, Statement,
};

/// Returns the labels and instructions of all functions and kernels, one per string.
///
/// Functions come before kernels. Labels end in a colon and instructions in a semicolon. Integers
/// are decimal, and floats are printed as their bits.
pub(crate) fn listing(module: &Module<'_>) -> Vec<String> {
    module
        .functions
        .iter()
        .chain(&module.entries)
        .flat_map(|entry| &entry.body.statements)
        .filter_map(statement)
        .collect()
}

fn statement(s: &Statement<'_>) -> Option<String> {
    match s {
        Statement::Label(name, _) => Some(format!("{name}:")),
        Statement::Inst(i) => Some(inst(i)),
        _ => None,
    }
}

fn inst(i: &ParsedInstruction<'_>) -> String {
    let guard = i.guard.map_or(String::new(), |g| {
        format!("@{}{} ", if g.negated { "!" } else { "" }, g.name)
    });
    let mods: String = i.mods.iter().map(|(name, _)| *name).collect();
    let operands = list(&i.operands);
    let space = if operands.is_empty() { "" } else { " " };
    format!("{guard}{}{mods}{space}{operands};", i.opcode)
}

fn list(operands: &[ParsedOperand<'_>]) -> String {
    operands.iter().map(operand).collect::<Vec<_>>().join(", ")
}

fn operand(o: &ParsedOperand<'_>) -> String {
    match &o.kind {
        OperandKind::Name(name) => name.to_string(),
        OperandKind::Not(name) => format!("!{name}"),
        OperandKind::Negative(name) => format!("-{name}"),
        OperandKind::Sum(name, offset) => format!("{name}{offset:+}"),
        OperandKind::Number(n) => number(*n),
        OperandKind::Vector(parts) => format!("{{{}}}", list(parts)),
        OperandKind::Resident(parts, p) => format!("{{{}}}|{p}", list(parts)),
        OperandKind::List(parts) => format!("({})", list(parts)),
        // An offset of 0 is left out, so that equal addresses are written equally.
        OperandKind::Address(Some(base), 0) => format!("[{base}]"),
        OperandKind::Address(Some(base), offset) => format!("[{base}{offset:+}]"),
        OperandKind::Tensor(map, coordinates) => format!("[{map}, {{{}}}]", list(coordinates)),
        OperandKind::Address(None, offset) => format!("[{offset}]"),
        OperandKind::Pair(p, q) => format!("{p}|{q}"),
        OperandKind::Sink => "_".into(),
    }
}

fn number(n: Number) -> String {
    match n {
        Number::Int(v) => v.to_string(),
        Number::F32(bits) => format!("0f{bits:08X}"),
        Number::F64(bits) => format!("0d{bits:016X}"),
    }
}
