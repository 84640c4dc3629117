//! The printer: turns a program into PTX text, deterministically and in ASCII, one instruction per
//! line.
//!
//! A block becomes a PTX scope in braces that declares its registers and labels. Their names
//! contain the nesting depth and count from 0 in each block, so a change in one block does not
//! rename anything in another.

use crate::ir::*;
use crate::isa::Slot;
use crate::mnemonic::Mnemonics;
use crate::target::{Target, Version};
use crate::text::Text;
use crate::ty::{Class, Kind};
use std::fmt::{self, Write};

/// An error about a target that cannot run the program.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetError {
    /// The name of the kernel.
    pub kernel: String,
    /// The requested target.
    pub target: Target,
    /// The compute capability that the program needs, times ten.
    pub needs: u32,
    /// Whether the program needs the architecture-specific target of exactly this capability.
    pub specific: bool,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetError {
            kernel,
            target,
            needs,
            specific,
        } = self;
        if *specific {
            write!(f, "{kernel} needs sm_{needs}a, not {target}")
        } else {
            write!(f, "{kernel} needs sm_{needs} or newer, not {target}")
        }
    }
}
impl std::error::Error for TargetError {}

/// Prints a program as PTX, with the lowest `.version` that its instructions and the target need.
///
/// The same program and target always give the same text.
///
/// # Errors
/// Returns an error if an instruction of the program needs a newer target.
///
/// # Example
/// ```
/// use ptx_gen::prelude::*;
///
/// struct Nothing;
///
/// args! {
///     /// One buffer.
///     pub struct NothingArgs {
///         /// `[n]`
///         x: InOut<f32>,
///     }
/// }
///
/// impl KernelDef for Nothing {
///     type Args<S: Side> = NothingArgs<S>;
///
///     fn name(&self) -> String {
///         "nothing".into()
///     }
///     fn block(&self) -> u32 {
///         32
///     }
///     fn grid(&self, _: &NothingArgs<Shape>) -> Result<Grid, ShapeError> {
///         Ok(Grid::line(1))
///     }
///     fn program<'k>(&self, _: Builder<'k>, _: NothingArgs<Dev<'k>>) {}
///     fn reference(&self, _: NothingArgs<Cpu<'_>>) {}
/// }
///
/// let ptx = print(&Nothing.build().unwrap(), Target::named("sm_80").unwrap()).unwrap();
/// assert!(ptx.starts_with(".version 7.0\n.target sm_80\n.address_size 64\n"));
/// ```
pub fn print(p: &Program, target: Target) -> Result<String, TargetError> {
    PtxPrinter::new(p).program(p, target)
}

/// Prints a program with `.loc` lines, so that profilers and the emulator show the Rust source of
/// each instruction.
///
/// # Errors
/// Returns an error if an instruction of the program needs a newer target.
pub fn print_with_lines(p: &Program, target: Target) -> Result<String, TargetError> {
    PtxPrinter {
        lines: true,
        ..PtxPrinter::new(p)
    }
    .program(p, target)
}

/// Returns the `.version` that [`print()`] writes for this target.
pub fn version(p: &Program, target: Target) -> Version {
    p.needs().version.max(target.version)
}

struct PtxPrinter {
    out: Text,
    lines: bool,
    files: Vec<&'static str>,
    at: Option<(usize, u32)>,
    /// The number of labels so far in each enclosing block, the outermost first.
    labels: Vec<u32>,
    mnemonics: Mnemonics,
}

impl PtxPrinter {
    fn new(p: &Program) -> Self {
        // Most instructions define a register, and a line has about 48 bytes.
        let out = Text::with_capacity(p.registers.iter().sum::<u32>() as usize * 48);
        PtxPrinter {
            out,
            lines: false,
            files: vec![],
            at: None,
            labels: vec![],
            mnemonics: Mnemonics::new(),
        }
    }

    fn program(mut self, p: &Program, target: Target) -> Result<String, TargetError> {
        let Needs {
            sm,
            specific,
            version,
        } = p.needs();

        // Architecture-specific instructions exist on no other architecture, not even on a newer
        // one.
        if target.sm < sm || specific && (!target.specific || target.sm != sm) {
            return Err(TargetError {
                kernel: p.name.clone(),
                target,
                needs: sm,
                specific,
            });
        }

        self.header(p, target, version.max(target.version));
        self.plain("{");
        self.labels.push(0);
        self.declare(&p.body.registers);
        for s in &p.shared {
            if let Some(bytes) = s.bytes {
                self.line(format_args!(
                    ".shared .align {} .b8 {}[{bytes}];",
                    s.align, s.name
                ));
            }
        }

        self.stmts(&p.body);
        self.plain("ret;");
        self.labels.pop();
        self.plain("}");
        for (i, file) in std::mem::take(&mut self.files).iter().enumerate() {
            self.line(format_args!(".file {} \"{file}\"", i + 1));
        }

        Ok(self.out.finish())
    }

    fn header(&mut self, p: &Program, target: Target, version: Version) {
        self.line(format_args!(".version {version}"));
        self.line(format_args!(".target {target}"));
        self.line(format_args!(".address_size 64\n"));

        // PTX declares dynamic shared memory outside of the entry. Static arrays are declared
        // inside.
        for s in p.shared.iter().filter(|s| s.bytes.is_none()) {
            self.line(format_args!(
                ".extern .shared .align {} .b8 {}[];\n",
                s.align, s.name
            ));
        }

        self.line(format_args!(".visible .entry {}(", p.name));
        for (i, q) in p.params.iter().enumerate() {
            let comma = if i + 1 < p.params.len() { "," } else { "" };
            let declared = match q.kind {
                ParamKind::Scalar(kind) => format!(".{} {}", kind.memory_name(), q.name),
                ParamKind::Buffer(..) => format!(".u64 {}", q.name),
                ParamKind::TensorMap(..) => format!(".align 64 .b8 {}[128]", q.name),
            };
            self.line(format_args!("    .param {declared}{comma}"));
        }

        self.plain(")");
        if p.cluster > 1 {
            self.plain(".explicitcluster");
            self.line(format_args!(".reqnctapercluster {}, 1, 1", p.cluster));
        }

        let [x, y, z] = p.shape;
        self.line(format_args!(".reqntid {x}, {y}, {z}"));
        if let Some(blocks) = p.blocks_per_sm {
            self.line(format_args!(".minnctapersm {blocks}"));
        }
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        self.out.indent(self.labels.len());
        put(&mut self.out, text);
        self.out.put("\n");
    }

    fn plain(&mut self, text: &str) {
        self.out.indent(self.labels.len());
        self.out.put(text);
        self.out.put("\n");
    }

    fn loc(&mut self, at: At) {
        let file = self
            .files
            .iter()
            .position(|f| *f == at.file())
            .unwrap_or_else(|| {
                self.files.push(at.file());
                self.files.len() - 1
            });
        if self.at != Some((file, at.line())) {
            self.at = Some((file, at.line()));
            self.line(format_args!(
                ".loc {} {} {}",
                file + 1,
                at.line(),
                at.column()
            ));
        }
    }

    /// Writes a block in braces. The names that it declares end with it.
    fn block(&mut self, registers: &[u32; 5], inside: impl FnOnce(&mut Self)) {
        self.plain("{");
        self.labels.push(0);
        self.declare(registers);
        inside(self);
        self.labels.pop();
        self.plain("}");
    }

    /// Declares the registers of the innermost block on one line.
    fn declare(&mut self, registers: &[u32; 5]) {
        let depth = self.labels.len() - 1;
        let declared = Class::ALL
            .into_iter()
            .zip(registers)
            .filter(|(_, n)| **n > 0);
        for (i, (class, n)) in declared.enumerate() {
            match i {
                0 => self.out.indent(self.labels.len()),
                _ => self.out.put(" "),
            }

            self.out.put(".reg .");
            self.out.put(class.declared());
            self.out.put(" ");
            self.out.prefix(class, depth);
            self.out.put("<");
            self.out.decimal((*n).into());
            self.out.put(">;");
        }

        if *registers != [0; 5] {
            self.out.put("\n");
        }
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Note(note, _) => {
                    self.out.put("\n");
                    self.out.indent(self.labels.len());
                    self.out.put("// ");
                    self.out.put(&note.text);
                    self.out.put("\n");
                }
                Stmt::Inst(i) => self.inst(None, i),
                Stmt::If {
                    cond, body, other, ..
                } => self.choice(*cond, body, other),
                Stmt::Loop {
                    cond, exit, body, ..
                } => self.cycle(cond, *exit, body),
            }
        }
    }

    fn inst(&mut self, guard: Option<Reg>, i: &Inst) {
        if self.lines {
            self.loc(i.at);
        }

        self.out.indent(self.labels.len());
        if let Some(guard) = guard {
            self.guard("@", guard);
        }

        self.mnemonics
            .write(&mut self.out, (i.op, i.kind, i.from, i.number()));
        operands(&mut self.out, i);
        self.out.put("\n");
    }

    fn choice(&mut self, cond: Reg, body: &StmtBlock, other: &StmtBlock) {
        match (&**body, &**other) {
            // A branch around one instruction becomes a predicate on it, which saves two labels.
            ([Stmt::Inst(only)], []) if body.registers == [0; 5] => self.inst(Some(cond), only),
            ([Stmt::Inst(only)], []) => self.block(&body.registers, |s| s.inst(Some(cond), only)),
            (_, []) => {
                let end = self.label("end");
                self.branch(Some(("@!", cond)), end);
                self.block(&body.registers, |s| s.stmts(body));
                self.place(end);
            }
            _ => {
                let end = self.label("end");
                let otherwise = self.same("else");
                self.branch(Some(("@!", cond)), otherwise);
                self.block(&body.registers, |s| s.stmts(body));
                self.branch(None, end);
                self.place(otherwise);
                self.block(&other.registers, |s| s.stmts(other));
                self.place(end);
            }
        }
    }

    fn cycle(&mut self, cond: &[Stmt], exit: Reg, body: &StmtBlock) {
        let start = self.label("loop");
        let done = self.same("done");
        self.place(start);
        self.block(&body.registers, |s| {
            s.stmts(cond);
            s.branch(Some(("@", exit)), done);
            s.stmts(body);
            s.branch(None, start);
        });
        self.place(done);
    }

    /// Returns a new label of the innermost block.
    fn label(&mut self, kind: &'static str) -> Label {
        if let Some(count) = self.labels.last_mut() {
            *count += 1;
        }
        self.same(kind)
    }

    /// Returns another label for the statement of the last label.
    fn same(&self, kind: &'static str) -> Label {
        let n = self.labels.last().map_or(0, |count| count - 1);
        Label {
            kind,
            depth: self.labels.len() - 1,
            n,
        }
    }

    fn place(&mut self, label: Label) {
        label.write(&mut self.out);
        self.out.put(":\n");
    }

    /// Writes a branch, with a guard if only some threads take it.
    fn branch(&mut self, guard: Option<(&'static str, Reg)>, to: Label) {
        self.out.indent(self.labels.len());
        if let Some((mark, reg)) = guard {
            self.guard(mark, reg);
        }
        self.out.put("bra ");
        to.write(&mut self.out);
        self.out.put(";\n");
    }

    fn guard(&mut self, mark: &str, reg: Reg) {
        self.out.put(mark);
        self.out.reg(&reg);
        self.out.put(" ");
    }
}

/// A label: `$loop3`, or `$loop2_3` at nesting depth 2.
#[derive(Clone, Copy)]
struct Label {
    kind: &'static str,
    depth: usize,
    n: u32,
}

impl Label {
    fn write(self, to: &mut Text) {
        to.put("$");
        to.put(self.kind);
        if self.depth > 0 {
            to.decimal(self.depth as u64);
            to.put("_");
        }
        to.decimal(self.n.into());
    }
}

/// Prints `%r12`, or `%r2_12` for a register of a block at nesting depth 2.
///
/// The name does not depend on other blocks, so a change of one block does not rename the registers
/// of another.
impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = Text::default();
        name.reg(self);
        f.write_str(&name.finish())
    }
}

/// Returns the text of an instruction with its semicolon.
pub fn inst(i: &Inst) -> String {
    let mut text = Text::default();
    i.op.write_mnemonic(&mut text, i.kind, i.from, i.number());
    operands(&mut text, i);
    text.finish()
}

fn put(text: &mut Text, v: fmt::Arguments<'_>) {
    text.write_fmt(v).expect("writing to memory cannot fail")
}

// These functions write most of the text. They avoid `write!`, which takes ten times as long.

/// Writes the operands and the semicolon.
fn operands(to: &mut Text, i: &Inst) {
    match &*i.dst {
        [] => {}
        [one] if !matches!(i.op.form.dst, [Slot::Accumulators(_)]) => {
            to.put(" ");
            to.reg(one);
        }
        several => {
            to.put(" ");
            group(to, several);
        }
    }

    let mut src = i.src.iter();
    if i.dst.is_empty()
        && let Some(first) = src.next()
    {
        to.put(" ");
        operand(to, first);
    }

    for o in src {
        to.put(", ");
        match o {
            Operand::Reg(r) => to.reg(r),
            other => operand(to, other),
        }
    }

    to.put(";");
}

fn group(to: &mut Text, regs: &[Reg]) {
    for (i, r) in regs.iter().enumerate() {
        match i {
            0 => to.put("{"),
            _ => to.put(", "),
        }
        to.reg(r);
    }
    to.put("}");
}

fn operand(to: &mut Text, o: &Operand) {
    match o {
        Operand::Reg(r) => to.reg(r),
        Operand::Imm(imm) => literal(to, *imm),
        Operand::Group(regs) => group(to, regs),
        Operand::Special(name, _) => to.put(name),
        Operand::Symbol(name) => to.put(name),
        Operand::Tensor(regs) => tensor(to, regs),
        Operand::Addr(base, offset) => address(to, base, *offset),
    }
}

/// Writes `[map, {x, y}]`.
fn tensor(to: &mut Text, regs: &[Reg]) {
    let [map, coordinates @ ..] = regs else {
        return;
    };
    to.put("[");
    to.reg(map);
    to.put(", ");
    group(to, coordinates);
    to.put("]");
}

fn literal(to: &mut Text, imm: Imm) {
    match imm.kind {
        Kind::F32 => {
            to.put("0f");
            to.hexadecimal(imm.bits, 8);
        }
        Kind::S32 => signed(to, (imm.bits as u32 as i32).into()),
        Kind::S64 => signed(to, imm.bits as i64),
        Kind::F16 | Kind::Bf16 | Kind::F16x2 => {
            to.put("0x");
            to.hexadecimal(imm.bits, 2 * imm.kind.bytes());
        }
        _ => to.decimal(imm.bits),
    }
}

fn signed(to: &mut Text, n: i64) {
    if n < 0 {
        to.put("-");
    }
    to.decimal(n.unsigned_abs());
}

impl fmt::Display for Imm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        literal(&mut text, *self);
        f.write_str(&text.finish())
    }
}

fn address(to: &mut Text, base: &Base, offset: i32) {
    to.put("[");
    match base {
        Base::Reg(r) => to.reg(r),
        Base::Symbol(name) => to.put(name),
    }

    if offset > 0 {
        to.put("+");
    }
    if offset != 0 {
        signed(to, offset.into());
    }

    to.put("]")
}
