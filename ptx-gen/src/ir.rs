//! The intermediate representation: a tree of blocks with statements over numbered registers.

use crate::inline_vec::InlineVec;
use crate::isa::{Effect, GridStep, Op, Slot};
use crate::target::Version;
use crate::tile::{MapBox, Tile};
use crate::ty::{Class, Kind};
use std::fmt;
use std::ops::Deref;
use std::panic::Location;

pub(crate) use crate::level::Level;
pub(crate) use crate::ty::Imm;

/// A location in the Rust source of a kernel.
pub type At = &'static Location<'static>;

/// A register. The block that declares it and the blocks inside may use it.
///
/// `Display` prints its name, such as `%r12`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg {
    /// The type that it was created for, which determines its class.
    pub kind: Kind,
    /// The nesting depth of the block that declares it. It is 0 for the outermost block.
    pub depth: u16,
    /// The index within the class and the block, which is part of the name.
    pub index: u32,
    /// The index within the class and the whole program.
    pub n: u32,
}

impl Reg {
    /// Returns the class and the index, which identify the register under any type of the class.
    pub fn id(self) -> (Class, u32) {
        (self.kind.class(), self.n)
    }
}

/// An operand that an instruction reads.
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
    /// A special register and the group of threads in which it is uniform.
    Special(&'static str, Level),
    /// The address of a shared array, or the name of a parameter.
    Symbol(Box<str>),
    /// A position in a tensor, `[map, {x, y}]`: the register with the address of the map, then the
    /// coordinates.
    Tensor(Box<[Reg]>),
}

impl Operand {
    /// Returns the registers that the operand names.
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

/// An instruction: a row of the instruction table and its operands.
#[derive(Clone, Debug)]
pub struct Inst {
    /// The row.
    pub op: &'static Op,
    /// The type for the placeholder `$t`.
    pub kind: Kind,
    /// The type for the placeholder `$s` of conversions.
    pub from: Option<Kind>,
    /// The registers that it writes.
    pub dst: InlineVec<Reg>,
    /// The operands that it reads.
    pub src: InlineVec<Operand>,
    /// The call in the Rust source that emitted it.
    pub at: At,
}

impl Inst {
    /// Returns the number for the placeholder `$n`: the columns of a matmul or the dimensions of a
    /// tensor.
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

/// A block: statements, and the registers that it declares for itself and the blocks inside.
#[derive(Clone, Default, Debug)]
pub struct StmtBlock {
    /// The statements. The block dereferences to them.
    pub stmts: Vec<Stmt>,
    /// The number of registers, by class in the order of [`Class::ALL`].
    pub registers: [u32; 5],
}

impl Deref for StmtBlock {
    type Target = [Stmt];
    fn deref(&self) -> &[Stmt] {
        &self.stmts
    }
}

/// A statement of a block.
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
        /// The statements for threads where the predicate holds.
        body: StmtBlock,
        /// The statements for the other threads.
        other: StmtBlock,
        /// The call in the Rust source.
        at: At,
    },
    /// `loop { cond; if exit { break }; body }`
    Loop {
        /// The statements before each round, in the block of the body.
        cond: Vec<Stmt>,
        /// The predicate that ends the loop.
        exit: Reg,
        /// The statements of a round. The block declares the registers of the condition, too.
        body: StmtBlock,
        /// The call in the Rust source.
        at: At,
    },
}

/// A comment in the body of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The identifier given to [`Builder::section`](crate::Builder::section), which is not printed.
    pub id: Option<String>,
    /// The text, which is one line of ASCII.
    pub text: String,
}

/// A `.shared` array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedArray {
    /// The symbol.
    pub name: String,
    /// The size in bytes, or `None` for the dynamic array that is sized at launch.
    pub bytes: Option<u32>,
    /// The alignment in bytes, a power of two of at least 16.
    pub align: u32,
}

/// The access of a kernel to a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// The kernel reads the buffer.
    Read,
    /// The kernel writes the buffer and does not read its previous contents.
    Write,
    /// The kernel reads and writes the buffer.
    ReadWrite,
}

impl Access {
    /// Returns true if the kernel reads previous contents.
    pub fn reads(self) -> bool {
        self != Access::Write
    }
    /// Returns true if the kernel changes the contents.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["in", "out", "inout"][*self as usize])
    }
}

/// The kind of a kernel parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// A pointer to elements of this type in global memory.
    Buffer(Kind, Access),
    /// A scalar of this type.
    Scalar(Kind),
    /// A tensor map by value, for a tensor with elements of this type.
    TensorMap(Kind, Access),
}

impl ParamKind {
    /// Returns the type of a scalar, or the element type of a buffer or tensor.
    pub fn elem(self) -> Kind {
        match self {
            ParamKind::Buffer(kind, _)
            | ParamKind::Scalar(kind)
            | ParamKind::TensorMap(kind, _) => kind,
        }
    }

    /// Returns the size and the alignment in the parameter list, in bytes.
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
    /// The name, as declared with `args!`.
    pub name: &'static str,
    /// The doc comment, which begins with the shape.
    pub doc: &'static str,
    /// The kind of the parameter.
    pub kind: ParamKind,
}

/// The minimum target that the instructions of a program need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Needs {
    /// The minimum compute capability, times ten.
    pub sm: u32,
    /// Whether the program needs an architecture-specific target, such as `sm_90a`.
    pub specific: bool,
    /// The minimum PTX version of the instructions, without the version of the target.
    pub version: Version,
}

impl Needs {
    /// The needs of a program without instructions.
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

/// A kernel that has passed validation.
///
/// [`AnyKernel::build`](crate::AnyKernel::build) returns it, and [`print()`](crate::print()) turns
/// it into text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Program {
    /// The name of the entry.
    pub name: String,
    /// The number of threads in a block.
    pub block: u32,
    /// The number of threads of a block along its three dimensions.
    pub shape: [u32; 3],
    /// The number of blocks that a multiprocessor must be able to hold, if the kernel specifies it.
    pub blocks_per_sm: Option<u32>,
    /// The number of blocks of a cluster along the first dimension, which is 1 without clusters.
    pub cluster: u32,
    /// The parameters in order.
    pub params: Vec<Param>,
    /// The tile that each tensor map copies, by parameter. The host encodes the map for its box and
    /// swizzle.
    pub tiles: Vec<(&'static str, Tile)>,
    /// The box that each tensor map copies, by parameter.
    pub boxes: Vec<(&'static str, MapBox)>,
    /// The shared arrays.
    pub shared: Vec<SharedArray>,
    /// The outermost block.
    pub body: StmtBlock,
    /// The number of registers of all blocks, by class in the order of [`Class::ALL`].
    pub registers: [u32; 5],
    /// Registers whose level the builder asserts, because their operands do not imply it.
    pub(crate) pinned: Vec<(Reg, Level)>,
    /// The needs, which validation computes.
    pub(crate) needs: Needs,
}

impl Program {
    /// Calls `visit` for every instruction in program order.
    pub fn each_inst<'a>(&'a self, visit: &mut impl FnMut(&'a Inst)) {
        walk(&self.body, visit)
    }

    /// Returns the notes in the order in which the printer writes them.
    pub fn notes(&self) -> Vec<&Note> {
        let mut notes = vec![];
        collect_notes(&self.body, &mut notes);
        notes
    }

    /// Returns the minimum target that the program needs.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Returns the minimum compute capability, times ten.
    pub fn sm(&self) -> u32 {
        self.needs().sm
    }

    /// Returns true if the program needs an architecture-specific target, such as `sm_90a`.
    pub fn specific(&self) -> bool {
        self.needs().specific
    }

    /// Returns true if the program waits for the kernels before it (`griddepcontrol.wait`).
    ///
    /// Only such a program may be launched before they end.
    pub fn waits(&self) -> bool {
        self.has_effect(Effect::Grid(GridStep::Wait))
    }

    /// Returns true if the program lets the next kernel start early
    /// (`griddepcontrol.launch_dependents`).
    pub fn triggers(&self) -> bool {
        self.has_effect(Effect::Grid(GridStep::Trigger))
    }

    /// Returns the size of static shared memory in bytes, including the alignment of each array.
    pub fn static_shared(&self) -> u32 {
        let sized = self.shared.iter().filter_map(|s| Some((s.bytes?, s.align)));
        sized.fold(0, |sum, (bytes, align)| sum.next_multiple_of(align) + bytes)
    }

    /// Returns the tile that the tensor map of this parameter copies, if the program uses it.
    pub fn tile(&self, param: &str) -> Option<Tile> {
        self.tiles
            .iter()
            .find(|(name, _)| *name == param)
            .map(|(_, tile)| *tile)
    }

    /// Returns the box that the tensor map of this parameter copies, if the program uses it.
    ///
    /// The host encodes the map for this box.
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
