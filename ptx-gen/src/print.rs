//! The printer: a program as PTX text. Same program, same bytes; ASCII; one instruction a line.
//!
//! A block is a scope of PTX, in braces: its registers and labels are declared in it and end with it. Their names
//! hold how deep the block stands and count from 0 in each, so that a change in one block changes no other.

use crate::ir::*;
use crate::target::{Target, Version};
use crate::ty::{Class, Kind};
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
    p.needs().version.max(target.version)
}

#[derive(Default)]
struct Printer {
    out: String,
    lines: bool,
    files: Vec<&'static str>,
    at: Option<(usize, u32)>,
    /// Labels so far in each block around, outermost first: labels are names of their block, as registers are.
    labels: Vec<u32>,
}

impl Printer {
    fn program(mut self, p: &Program, target: Target) -> Result<String, TargetError> {
        let Needs { sm, specific, version } = p.needs();
        if target.sm < sm || specific && (!target.specific || target.sm != sm) {
            return Err(TargetError { kernel: p.name.clone(), target, needs: sm, specific });
        }
        // Most instructions make a register, and take a line.
        self.out.reserve(p.registers.iter().sum::<u32>() as usize * 48);
        self.header(p, target, version.max(target.version));
        self.line(format_args!("{{"));
        self.labels.push(0);
        self.declare(&p.body.registers);
        for s in &p.shared {
            if let Some(bytes) = s.bytes {
                self.line(format_args!(".shared .align 16 .b8 {}[{bytes}];", s.name));
            }
        }
        self.stmts(&p.body);
        self.line(format_args!("ret;"));
        self.labels.pop();
        self.line(format_args!("}}"));
        for (i, file) in std::mem::take(&mut self.files).iter().enumerate() {
            self.line(format_args!(".file {} \"{file}\"", i + 1));
        }
        Ok(self.out)
    }

    fn header(&mut self, p: &Program, target: Target, version: Version) {
        self.line(format_args!(".version {version}"));
        self.line(format_args!(".target {target}"));
        self.line(format_args!(".address_size 64\n"));
        for s in p.shared.iter().filter(|s| s.bytes.is_none()) {
            self.line(format_args!(".extern .shared .align 16 .b8 {}[];\n", s.name));
        }
        self.line(format_args!(".visible .entry {}(", p.name));
        for (i, q) in p.params.iter().enumerate() {
            let comma = if i + 1 < p.params.len() { "," } else { "" };
            self.line(format_args!("    .param .{} {}{comma}", q.kind.kind().memory_name(), q.name));
        }
        self.line(format_args!(")"));
        self.line(format_args!(".reqntid {}, 1, 1", p.block));
        if let Some(blocks) = p.blocks_per_sm {
            self.line(format_args!(".minnctapersm {blocks}"));
        }
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        self.indent();
        put(&mut self.out, text);
        self.out.push('\n');
    }

    fn indent(&mut self) {
        match self.labels.len() {
            depth @ 0..=8 => self.out.push_str(&"                                "[..4 * depth]),
            depth => self.out.extend(std::iter::repeat_n("    ", depth)),
        }
    }

    fn loc(&mut self, at: At) {
        let file = self.files.iter().position(|f| *f == at.file()).unwrap_or_else(|| {
            self.files.push(at.file());
            self.files.len() - 1
        });
        if self.at != Some((file, at.line())) {
            self.at = Some((file, at.line()));
            self.line(format_args!(".loc {} {} {}", file + 1, at.line(), at.column()));
        }
    }

    /// A block of its own: the names that it declares end with it.
    fn block(&mut self, registers: &[u32; 5], inside: impl FnOnce(&mut Self)) {
        self.line(format_args!("{{"));
        self.labels.push(0);
        self.declare(registers);
        inside(self);
        self.labels.pop();
        self.line(format_args!("}}"));
    }

    /// The registers of the innermost block, on one line.
    fn declare(&mut self, registers: &[u32; 5]) {
        let depth = self.labels.len() - 1;
        let declared: Vec<String> = Class::ALL
            .into_iter()
            .zip(registers)
            .filter(|(_, n)| **n > 0)
            .map(|(class, n)| format!(".reg .{} %{}<{n}>;", class.declared(), Scoped(class.prefix(), depth)))
            .collect();
        if !declared.is_empty() {
            self.line(format_args!("{}", declared.join(" ")));
        }
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Note(text, _) => {
                    self.out.push('\n');
                    self.line(format_args!("// {text}"));
                }
                Stmt::Inst(i) => self.inst(None, i),
                Stmt::If { cond, body, other, .. } => self.choice(*cond, body, other),
                Stmt::Loop { cond, exit, body, .. } => self.cycle(cond, *exit, body),
            }
        }
    }

    fn inst(&mut self, guard: Option<Reg>, i: &Inst) {
        if self.lines {
            self.loc(i.at);
        }
        self.indent();
        if let Some(guard) = guard {
            put(&mut self.out, format_args!("@{guard} "));
        }
        written(write_inst(&mut self.out, i));
        self.out.push('\n');
    }

    fn choice(&mut self, cond: Reg, body: &Block, other: &Block) {
        match (&**body, &**other) {
            // A branch around one instruction is a guard on it.
            ([Stmt::Inst(only)], []) if body.registers == [0; 5] => self.inst(Some(cond), only),
            ([Stmt::Inst(only)], []) => self.block(&body.registers, |s| s.inst(Some(cond), only)),
            (_, []) => {
                let end = self.label("end");
                self.line(format_args!("@!{cond} bra {end};"));
                self.block(&body.registers, |s| s.stmts(body));
                self.place(end);
            }
            _ => {
                let (end, otherwise) = (self.label("end"), self.same("else"));
                self.line(format_args!("@!{cond} bra {otherwise};"));
                self.block(&body.registers, |s| s.stmts(body));
                self.line(format_args!("bra {end};"));
                self.place(otherwise);
                self.block(&other.registers, |s| s.stmts(other));
                self.place(end);
            }
        }
    }

    fn cycle(&mut self, cond: &[Stmt], exit: Reg, body: &Block) {
        let (start, done) = (self.label("loop"), self.same("done"));
        self.place(start);
        self.block(&body.registers, |s| {
            s.stmts(cond);
            s.line(format_args!("@{exit} bra {done};"));
            s.stmts(body);
            s.line(format_args!("bra {start};"));
        });
        self.place(done);
    }

    /// A new label of the innermost block.
    fn label(&mut self, kind: &'static str) -> Label {
        if let Some(count) = self.labels.last_mut() {
            *count += 1;
        }
        self.same(kind)
    }

    /// One more label of the statement that the last one is for.
    fn same(&self, kind: &'static str) -> Label {
        let n = self.labels.last().map_or(0, |count| count - 1);
        Label(Scoped(kind, self.labels.len() - 1), n)
    }

    fn place(&mut self, label: Label) {
        put(&mut self.out, format_args!("{label}:\n"))
    }
}

/// What names of a block begin with, this many blocks deep: `r` or `r2_`.
#[derive(Clone, Copy)]
struct Scoped(&'static str, usize);

impl fmt::Display for Scoped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written_prefix(f, self.0, self.1 as u32)
    }
}

/// A label: `$loop3` or `$loop2_3`.
#[derive(Clone, Copy)]
struct Label(Scoped, u32);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}{}", self.0, self.1)
    }
}

fn written_prefix(to: &mut impl Write, prefix: &str, depth: u32) -> fmt::Result {
    to.write_str(prefix)?;
    if depth == 0 {
        return Ok(());
    }
    decimal(to, depth)?;
    to.write_char('_')
}

/// The numbers below 100, two digits each.
const PAIRS: &str = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
                     5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

fn decimal(to: &mut impl Write, n: u32) -> fmt::Result {
    let pair = &PAIRS[2 * (n % 100) as usize..][..2];
    match n {
        0..10 => to.write_str(&pair[1..]),
        10..100 => to.write_str(pair),
        _ => {
            decimal(to, n / 100)?;
            to.write_str(pair)
        }
    }
}

/// `%r12`, or `%r2_12` where two blocks stand around the one that declares it.
///
/// The name depends on no other block: a change of one block does not rename the registers of another.
impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        reg(f, *self)
    }
}

/// An instruction's text, with its semicolon.
pub fn inst(i: &Inst) -> String {
    let mut text = String::new();
    written(write_inst(&mut text, i));
    text
}

fn put(text: &mut String, v: fmt::Arguments<'_>) {
    written(text.write_fmt(v))
}

fn written(result: fmt::Result) {
    result.expect("writing to a String cannot fail")
}

// These few write most of the text. They do it piece by piece: `write!` takes three times as long.

fn write_inst(to: &mut impl Write, i: &Inst) -> fmt::Result {
    i.op.write_mnemonic(to, i.kind, i.from)?;
    let mut separator = " ";
    match &*i.dst {
        [] => {}
        [one] => {
            to.write_str(separator)?;
            reg(to, *one)?;
            separator = ", ";
        }
        several => {
            to.write_str(separator)?;
            group(to, several)?;
            separator = ", ";
        }
    }
    for o in i.src.iter() {
        to.write_str(separator)?;
        operand(to, o)?;
        separator = ", ";
    }
    to.write_char(';')
}

fn reg(to: &mut impl Write, r: Reg) -> fmt::Result {
    to.write_char('%')?;
    written_prefix(to, r.kind.class().prefix(), r.depth.into())?;
    decimal(to, r.index)
}

fn group(to: &mut impl Write, regs: &[Reg]) -> fmt::Result {
    for (i, r) in regs.iter().enumerate() {
        to.write_str(if i == 0 { "{" } else { ", " })?;
        reg(to, *r)?;
    }
    to.write_char('}')
}

fn operand(to: &mut impl Write, o: &Operand) -> fmt::Result {
    match o {
        Operand::Reg(r) => reg(to, *r),
        Operand::Imm(Imm { kind: Kind::U32, bits }) if *bits <= u32::MAX.into() => decimal(to, *bits as u32),
        Operand::Imm(i) => write!(to, "{i}"),
        Operand::Group(regs) => group(to, regs),
        Operand::Special(name, _) => to.write_str(name),
        Operand::Symbol(name) => to.write_str(name),
        Operand::Addr(base, offset) => address(to, base, *offset),
    }
}

fn address(to: &mut impl Write, base: &Base, offset: i32) -> fmt::Result {
    to.write_char('[')?;
    match base {
        Base::Reg(r) => reg(to, *r)?,
        Base::Symbol(name) => to.write_str(name)?,
    }
    if offset != 0 {
        to.write_char(if offset < 0 { '-' } else { '+' })?;
        decimal(to, offset.unsigned_abs())?;
    }
    to.write_char(']')
}
