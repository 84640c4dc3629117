//! The printer: a program as PTX text. Same program, same bytes; ASCII; one instruction a line.

use crate::ir::*;
use crate::target::{Target, Version};
use crate::ty::Class;
use std::fmt::{self, Write};

/// A program that a target cannot run.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetError {
    /// The kernel.
    pub kernel: String,
    /// The target asked for.
    pub target: Target,
    /// The compute capability, times ten, that the program needs.
    pub needs: u32,
    /// Whether it needs exactly that architecture's own target.
    pub specific: bool,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetError { kernel, target, needs, specific } = self;
        match specific {
            true => write!(f, "{kernel} needs sm_{needs}a, not {target}"),
            false => write!(f, "{kernel} needs sm_{needs} or newer, not {target}"),
        }
    }
}
impl std::error::Error for TargetError {}

/// The program as PTX text, with the lowest `.version` that its rows and the target need.
///
/// # Errors
/// If the target is older than a row the program uses.
pub fn print(p: &Program, target: Target) -> Result<String, TargetError> {
    Printer::default().program(p, target)
}

/// [`print()`] with `.loc` lines, so that profilers and the emulator show the Rust source of each instruction.
///
/// # Errors
/// As [`print()`].
pub fn print_with_lines(p: &Program, target: Target) -> Result<String, TargetError> {
    Printer { lines: true, ..Printer::default() }.program(p, target)
}

/// The `.version` that [`print()`] writes for this target.
pub fn version(p: &Program, target: Target) -> Version {
    p.version().max(target.version)
}

#[derive(Default)]
struct Printer {
    out: String,
    depth: usize,
    labels: u32,
    lines: bool,
    files: Vec<&'static str>,
    at: Option<(usize, u32)>,
}

impl Printer {
    fn program(mut self, p: &Program, target: Target) -> Result<String, TargetError> {
        let needs = p.sm();
        if target.sm < needs || p.specific() && (!target.specific || target.sm != needs) {
            return Err(TargetError { kernel: p.name.clone(), target, needs, specific: p.specific() });
        }
        self.line(&format!(".version {}", version(p, target)));
        self.line(&format!(".target {target}"));
        self.line(".address_size 64\n");
        for s in p.shared.iter().filter(|s| s.bytes.is_none()) {
            self.line(&format!(".extern .shared .align 16 .b8 {}[];\n", s.name));
        }
        self.line(&format!(".visible .entry {}(", p.name));
        let params: Vec<String> = p
            .params
            .iter()
            .map(|q| format!("    .param .{} {}", q.kind.kind().memory_name(), q.name))
            .collect();
        self.line(&params.join(",\n"));
        self.line(&format!(")\n.reqntid {}, 1, 1", p.block));
        if let Some(blocks) = p.blocks_per_sm {
            self.line(&format!(".minnctapersm {blocks}"));
        }
        self.line("{");
        self.depth = 1;
        for (class, n) in Class::ALL.iter().zip(p.registers).filter(|(_, n)| *n > 0) {
            self.line(&format!(".reg .{} %{}<{n}>;", class.declared(), class.prefix()));
        }
        for s in &p.shared {
            if let Some(bytes) = s.bytes {
                self.line(&format!(".shared .align 16 .b8 {}[{bytes}];", s.name));
            }
        }
        self.block(&p.body);
        self.line("ret;");
        self.depth = 0;
        self.line("}");
        for (i, file) in std::mem::take(&mut self.files).iter().enumerate() {
            self.line(&format!(".file {} \"{file}\"", i + 1));
        }
        Ok(self.out)
    }

    fn line(&mut self, s: &str) {
        let indent = 4 * self.depth;
        writeln!(self.out, "{:indent$}{s}", "").expect("writing to a String cannot fail")
    }

    fn label(&mut self, label: &str) {
        writeln!(self.out, "{label}:").expect("writing to a String cannot fail")
    }

    fn loc(&mut self, at: At) {
        let file = self.files.iter().position(|f| *f == at.file()).unwrap_or_else(|| {
            self.files.push(at.file());
            self.files.len() - 1
        });
        if self.at != Some((file, at.line())) {
            self.at = Some((file, at.line()));
            self.line(&format!(".loc {} {} {}", file + 1, at.line(), at.column()));
        }
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            self.stmt(s)
        }
    }

    fn nested(&mut self, stmts: &[Stmt]) {
        self.depth += 1;
        self.block(stmts);
        self.depth -= 1;
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Note(text, _) => {
                self.out.push('\n');
                self.line(&format!("// {text}"));
            }
            Stmt::Inst(i) => {
                if self.lines {
                    self.loc(i.at);
                }
                self.line(&inst(i));
            }
            Stmt::If { cond, body, other, .. } => self.choice(*cond, body, other),
            Stmt::Loop { cond, exit, body, .. } => self.cycle(cond, *exit, body),
        }
    }

    fn choice(&mut self, cond: Reg, body: &[Stmt], other: &[Stmt]) {
        if let ([Stmt::Inst(only)], []) = (body, other) {
            return self.guarded(cond, only);
        }
        let n = self.number();
        if other.is_empty() {
            self.line(&format!("@!{cond} bra $end{n};"));
            self.nested(body);
        } else {
            self.line(&format!("@!{cond} bra $else{n};"));
            self.nested(body);
            self.line(&format!("bra $end{n};"));
            self.label(&format!("$else{n}"));
            self.nested(other);
        }
        self.label(&format!("$end{n}"));
    }

    /// A branch around one instruction is a guard on it.
    fn guarded(&mut self, cond: Reg, i: &Inst) {
        if self.lines {
            self.loc(i.at);
        }
        self.line(&format!("@{cond} {}", inst(i)));
    }

    fn cycle(&mut self, cond: &[Stmt], exit: Reg, body: &[Stmt]) {
        let n = self.number();
        self.label(&format!("$loop{n}"));
        self.nested(cond);
        self.line(&format!("    @{exit} bra $done{n};"));
        self.nested(body);
        self.line(&format!("    bra $loop{n};"));
        self.label(&format!("$done{n}"));
    }

    fn number(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }
}

/// An instruction's text, with its semicolon.
pub fn inst(i: &Inst) -> String {
    let mut text = i.op.mnemonic(i.kind, i.from);
    let mut separator = " ";
    let mut next = |text: &mut String| text.push_str(std::mem::replace(&mut separator, ", "));
    match i.dst.as_slice() {
        [] => {}
        [one] => {
            next(&mut text);
            put(&mut text, one);
        }
        several => {
            next(&mut text);
            group(&mut text, several);
        }
    }
    for o in &i.src {
        next(&mut text);
        operand(&mut text, o);
    }
    text.push(';');
    text
}

fn put(text: &mut String, v: impl fmt::Display) {
    write!(text, "{v}").expect("writing to a String cannot fail")
}

fn group(text: &mut String, regs: &[Reg]) {
    for (i, r) in regs.iter().enumerate() {
        text.push_str(if i == 0 { "{" } else { ", " });
        put(text, r);
    }
    text.push('}');
}

fn operand(text: &mut String, o: &Operand) {
    match o {
        Operand::Reg(r) => put(text, r),
        Operand::Imm(i) => put(text, i),
        Operand::Group(regs) => group(text, regs),
        Operand::Special(name, _) => text.push_str(name),
        Operand::Symbol(name) => text.push_str(name),
        Operand::Addr(base, offset) => {
            text.push('[');
            match base {
                Base::Reg(r) => put(text, r),
                Base::Symbol(name) => text.push_str(name),
            }
            if *offset != 0 {
                put(text, format_args!("{offset:+}"));
            }
            text.push(']');
        }
    }
}
