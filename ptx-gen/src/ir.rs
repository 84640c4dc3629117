//! The program as data: a tree of blocks of statements over numbered registers.

use crate::few::Few;
use crate::isa::{Effect, GridStep, Op, Slot};
use crate::target::Version;
use crate::tile::{MapBox, Tile};
use crate::ty::{Class, Kind};
use std::fmt;
use std::ops::Deref;
use std::panic::Location;

pub(crate) use crate::level::Level;
pub(crate) use crate::ty::Imm;

/// A place in the Rust source of a kernel.
pub type At = &'static Location<'static>;

/// A register: declared by the block that it is made in, whose instructions and inner blocks may use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg {
    /// The type it was made for; its class follows.
    pub kind: Kind,
    /// How many blocks stand around the one that declares it: 0 for those of the kernel's own block.
    pub depth: u16,
    /// Its number within the class and the block, which is in its name.
    pub index: u32,
    /// Its number within the class and the whole program.
    pub n: u32,
}

impl Reg {
    /// The class and number: the same register under any type of that class.
    pub fn id(self) -> (Class, u32) {
        (self.kind.class(), self.n)
    }
}

/// What an instruction reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A literal.
    Imm(Imm),
    /// A vector of registers, `{a, b}`.
    Group(Box<[Reg]>),
    /// An address: a base and a byte offset.
    Addr(Base, i32),
    /// A special register and how far it is the same.
    Special(&'static str, Level),
    /// The address of a shared array, or the name of a parameter.
    Symbol(Box<str>),
    /// A place in a tensor, `[map, {x, y}]`: the register that holds its map's address, then the coordinates.
    Tensor(Box<[Reg]>),
}

impl Operand {
    /// The registers it names.
    pub(crate) fn registers(&self) -> &[Reg] {
        match self {
            Operand::Reg(r) | Operand::Addr(Base::Reg(r), _) => std::slice::from_ref(r),
            Operand::Group(regs) | Operand::Tensor(regs) => regs,
            _ => &[],
        }
    }
}

/// The base of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// A register that holds an address.
    Reg(Reg),
    /// A parameter.
    Symbol(&'static str),
}

/// One instruction: a row of the table and its operands.
#[derive(Clone, Debug)]
pub struct Inst {
    /// The row.
    pub op: &'static Op,
    /// The type `$t` of the row's template stands for.
    pub kind: Kind,
    /// The type `$s` stands for, in conversions.
    pub from: Option<Kind>,
    /// The registers written.
    pub dst: Few<Reg>,
    /// What is read.
    pub src: Few<Operand>,
    /// The Rust place that asked for it.
    pub at: At,
}

impl Inst {
    /// What `$n` of the row's template stands for: the columns of a product, the dimensions of a tensor.
    pub(crate) fn number(&self) -> u32 {
        let dimensions = |o: &Operand| match o {
            Operand::Tensor(regs) => regs.len() as u32 - 1,
            _ => 0,
        };
        match self.op.form.dst {
            [Slot::Accumulators(_)] => 2 * self.dst.len() as u32,
            _ => self.src.iter().map(dimensions).max().unwrap_or(0),
        }
    }
}

/// A block: statements, and the registers that it declares for itself and the blocks in it.
#[derive(Clone, Default, Debug)]
pub struct StmtBlock {
    /// The statements. The block dereferences to them.
    pub stmts: Vec<Stmt>,
    /// Registers declared, by class in the order of [`Class::ALL`].
    pub registers: [u32; 5],
}

impl Deref for StmtBlock {
    type Target = [Stmt];
    fn deref(&self) -> &[Stmt] {
        &self.stmts
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// An instruction.
    Inst(Inst),
    /// A comment, and the Rust line that wrote it.
    Note(Note, At),
    /// `if cond { body } else { other }`
    If {
        /// The predicate.
        cond: Reg,
        /// Run by the threads where it holds.
        body: StmtBlock,
        /// Run by the others.
        other: StmtBlock,
        /// The Rust place.
        at: At,
    },
    /// `loop { cond; if exit { break }; body }`
    Loop {
        /// Evaluated before each round, in the block of the body.
        cond: Vec<Stmt>,
        /// Leaves the loop where it holds.
        exit: Reg,
        /// The round, and the registers of both.
        body: StmtBlock,
        /// The Rust place.
        at: At,
    },
}

/// A comment in the body of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// A stable identifier for tools, which is not printed. `None` for a plain comment.
    pub id: Option<String>,
    /// The text of the comment: one line of ASCII.
    pub text: String,
}

/// A `.shared` array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedArray {
    /// Its symbol.
    pub name: String,
    /// Size in bytes; `None` for the dynamic array, sized at launch.
    pub bytes: Option<u32>,
    /// Alignment in bytes: a power of two from 16 on.
    pub align: u32,
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it, and reads nothing of what was there.
    Write,
    /// Reads and writes it.
    ReadWrite,
}

impl Access {
    /// Whether earlier contents are read.
    pub fn reads(self) -> bool {
        self != Access::Write
    }
    /// Whether contents change.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["in", "out", "inout"][*self as usize])
    }
}

/// What a parameter is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// A pointer to elements of this type in global memory.
    Buffer(Kind, Access),
    /// A value.
    Scalar(Kind),
    /// A tensor map by value, of a tensor of elements of this type, and how the kernel uses that.
    TensorMap(Kind, Access),
}

impl ParamKind {
    /// The type of a value, or of the elements of a buffer or a tensor.
    pub fn elem(self) -> Kind {
        match self {
            ParamKind::Buffer(kind, _)
            | ParamKind::Scalar(kind)
            | ParamKind::TensorMap(kind, _) => kind,
        }
    }

    /// Size and alignment in the `.param` list, in bytes.
    pub fn layout(self) -> (u32, u32) {
        match self {
            ParamKind::Buffer(..) => (8, 8),
            ParamKind::Scalar(kind) => (kind.bytes(), kind.bytes()),
            ParamKind::TensorMap(..) => (128, 64),
        }
    }
}

/// A kernel parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name, as in `args!`.
    pub name: &'static str,
    /// Its doc comment: the shape first.
    pub doc: &'static str,
    /// What it is.
    pub kind: ParamKind,
}

/// What the rows of a program need of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// The least compute capability, times ten.
    pub sm: u32,
    /// Whether it must be a target of an architecture's own.
    pub specific: bool,
    /// The least PTX version, apart from the target's.
    pub version: Version,
}

impl Needs {
    /// What no row at all needs.
    pub(crate) const LEAST: Needs = Needs {
        sm: 0,
        specific: false,
        version: Version(6, 0),
    };

    pub(crate) fn add(&mut self, op: &Op) {
        self.sm = self.sm.max(op.sm);
        self.specific |= op.specific;
        self.version = self.version.max(op.version);
    }
}

/// A kernel that has passed the validator.
#[derive(Clone, Debug)]
pub struct Program {
    /// Entry name.
    pub name: String,
    /// The number of threads in a block.
    pub block: u32,
    /// The threads of a block along its three dimensions.
    pub shape: [u32; 3],
    /// Blocks that a multiprocessor must be able to hold, if the kernel says.
    pub blocks_per_sm: Option<u32>,
    /// Blocks of a cluster, along the first dimension; 1 without clusters.
    pub cluster: u32,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// What the tensor maps among them must copy, by parameter: the tile whose box and swizzle they are encoded with.
    pub tiles: Vec<(&'static str, Tile)>,
    /// What each tensor map that is used copies at a time, by parameter.
    pub boxes: Vec<(&'static str, MapBox)>,
    /// Shared arrays.
    pub shared: Vec<SharedArray>,
    /// The kernel's own block.
    pub body: StmtBlock,
    /// Registers of all blocks, by class in the order of [`Class::ALL`].
    pub registers: [u32; 5],
    /// Registers whose level the builder knows better than their operands tell.
    pub(crate) pinned: Vec<(Reg, Level)>,
    /// Found by the validator.
    pub(crate) needs: Needs,
}

impl Program {
    /// Visits every instruction in program order.
    pub fn each_inst<'a>(&'a self, visit: &mut impl FnMut(&'a Inst)) {
        walk(&self.body, visit)
    }

    /// Returns the notes in the order in which the printer writes them.
    pub fn notes(&self) -> Vec<&Note> {
        let mut notes = vec![];
        collect_notes(&self.body, &mut notes);
        notes
    }

    /// What its rows need of a target.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// The least compute capability (times ten) that its rows need.
    pub fn sm(&self) -> u32 {
        self.needs().sm
    }

    /// Whether a row needs a target of an architecture's own.
    pub fn specific(&self) -> bool {
        self.needs().specific
    }

    /// Whether it waits for the kernels before it (`griddepcontrol.wait`), so that it may start early.
    pub fn waits(&self) -> bool {
        self.has_effect(Effect::Grid(GridStep::Wait))
    }

    /// Whether it lets the next kernel start early (`griddepcontrol.launch_dependents`).
    pub fn triggers(&self) -> bool {
        self.has_effect(Effect::Grid(GridStep::Trigger))
    }

    /// Static shared memory, in bytes, each array aligned.
    pub fn static_shared(&self) -> u32 {
        let sized = self.shared.iter().filter_map(|s| Some((s.bytes?, s.align)));
        sized.fold(0, |sum, (bytes, align)| sum.next_multiple_of(align) + bytes)
    }

    /// The tile that the tensor map of this parameter copies, if the kernel uses it.
    pub fn tile(&self, param: &str) -> Option<Tile> {
        self.tiles
            .iter()
            .find(|(name, _)| *name == param)
            .map(|(_, tile)| *tile)
    }

    /// What the tensor map of this parameter copies at a time, if the kernel uses it: what the host encodes it for.
    pub fn map_box(&self, param: &str) -> Option<MapBox> {
        self.boxes
            .iter()
            .find(|(name, _)| *name == param)
            .map(|(_, copied)| *copied)
    }

    fn has_effect(&self, effect: Effect) -> bool {
        let mut found = false;
        self.each_inst(&mut |i| found |= i.op.effect == effect);
        found
    }
}

fn collect_notes<'a>(stmts: &'a [Stmt], notes: &mut Vec<&'a Note>) {
    for s in stmts {
        match s {
            Stmt::Inst(_) => {}
            Stmt::Note(note, _) => notes.push(note),
            Stmt::If { body, other, .. } => {
                collect_notes(body, notes);
                collect_notes(other, notes);
            }
            Stmt::Loop { cond, body, .. } => {
                collect_notes(cond, notes);
                collect_notes(body, notes);
            }
        }
    }
}

fn walk<'a>(stmts: &'a [Stmt], visit: &mut impl FnMut(&'a Inst)) {
    for s in stmts {
        match s {
            Stmt::Inst(i) => visit(i),
            Stmt::Note(..) => {}
            Stmt::If { body, other, .. } => {
                walk(body, visit);
                walk(other, visit);
            }
            Stmt::Loop { cond, body, .. } => {
                walk(cond, visit);
                walk(body, visit);
            }
        }
    }
}
