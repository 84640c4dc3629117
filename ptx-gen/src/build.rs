//! The builder: typed values that append instructions as they are combined.
//!
//! Emission is immediate and in program order: Rust's order of evaluation is the PTX order, and register
//! numbers count up, in each block from 0. A Rust `for` or `if` runs while building; [`Builder::for_each`], [`Builder::repeat`] and
//! [`Builder::when`] run on the GPU.

use crate::check::{BuildError, ErrorKind};
use crate::few::Few;
use crate::ir::*;
use crate::isa::{self, Op};
use crate::tile::{MapBox, Tile};
use crate::ty::{Kind, Lit, Num, Ty};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::Location;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) params: Vec<Param>,
    pub(crate) shared: Vec<SharedArray>,
    /// The tiles that tensor maps copy, by parameter.
    pub(crate) tiles: Vec<(&'static str, Tile)>,
    /// The boxes that tensor maps copy, by parameter.
    pub(crate) boxes: Vec<(&'static str, MapBox)>,
    /// The threads of a block along its three dimensions.
    pub(crate) shape: [u32; 3],
    /// Registers that a thread is launched with at most.
    pub(crate) launched: u32,
    /// Warpgroups and registers of each of their threads, role by role.
    pub(crate) roles: Vec<(u32, u32)>,
    /// Registers of all blocks, by class.
    pub(crate) registers: [u32; 5],
    pub(crate) pinned: Vec<(Reg, Level)>,
    /// What is wrong and cannot be seen in the program.
    pub(crate) errors: Vec<BuildError>,
    /// The open blocks, innermost last; the kernel's own is first.
    pub(crate) open: Vec<StmtBlock>,
}

/// Statements that a block has room for at first: most have fewer.
const SOME: usize = 32;

impl State {
    /// A kernel's own block, open and empty.
    pub(crate) fn new() -> RefCell<State> {
        RefCell::new(State {
            open: vec![StmtBlock::default()],
            ..State::default()
        })
    }

    fn innermost(&mut self) -> &mut StmtBlock {
        self.open
            .last_mut()
            .expect("the kernel's own block is open")
    }

    /// A new register of the innermost block.
    fn reg(&mut self, kind: Kind) -> Reg {
        let class = kind.class() as usize;
        let next = |count: &mut u32| std::mem::replace(count, *count + 1);
        let depth = (self.open.len() - 1) as u16;
        let n = next(&mut self.registers[class]);
        Reg {
            kind,
            depth,
            index: next(&mut self.innermost().registers[class]),
            n,
        }
    }
}

/// The kernel under construction.
///
/// `'k` is unique to one build, so values of two kernels cannot meet in one expression.
#[derive(Clone, Copy)]
pub struct Builder<'k> {
    pub(crate) state: &'k RefCell<State>,
    brand: PhantomData<Cell<&'k ()>>,
}

/// A value: a register written once.
#[must_use = "this emits an instruction whose result is never used"]
pub struct Val<'k, T> {
    pub(crate) reg: Reg,
    pub(crate) k: Builder<'k>,
    ty: PhantomData<T>,
}

impl<T> Clone for Val<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Val<'_, T> {}

/// A 32-bit float.
pub type F32<'k> = Val<'k, f32>;
/// An unsigned 32-bit integer.
pub type U32<'k> = Val<'k, u32>;
/// A signed 32-bit integer.
pub type I32<'k> = Val<'k, i32>;
/// An unsigned 64-bit integer.
pub type U64<'k> = Val<'k, u64>;
/// A predicate.
pub type Pred<'k> = Val<'k, bool>;

/// A variable: a register written many times.
///
/// Every write goes through `&mut`, so Rust's own `mut` marks each register that a loop carries.
pub struct Var<'k, T>(pub(crate) Val<'k, T>);

/// What an instruction can read as a `T`: a value, a variable, a literal.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PTX operand of type `{T}`",
    note = "PTX never converts implicitly: write `.cvt::<{T}>()`"
)]
pub trait Src<'k, T> {
    /// The operand.
    fn operand(self) -> Operand;
}
impl<'k, T> Src<'k, T> for Val<'k, T> {
    fn operand(self) -> Operand {
        Operand::Reg(self.reg)
    }
}
impl<'k, T> Src<'k, T> for &Var<'k, T> {
    fn operand(self) -> Operand {
        Operand::Reg(self.0.reg)
    }
}
impl<'k, T: Lit> Src<'k, T> for T {
    fn operand(self) -> Operand {
        Operand::Imm(self.imm())
    }
}

/// A literal operand of type `u32`.
pub(crate) fn lit(v: u32) -> Operand {
    Operand::Imm(v.imm())
}

/// Every lane of a warp.
pub(crate) fn full_mask() -> Operand {
    lit(u32::MAX)
}

impl<'k> Builder<'k> {
    pub(crate) fn new(state: &'k RefCell<State>) -> Self {
        Builder {
            state,
            brand: PhantomData,
        }
    }

    pub(crate) fn push(self, s: Stmt) {
        self.state.borrow_mut().innermost().stmts.push(s)
    }

    #[track_caller]
    pub(crate) fn inst(
        self,
        op: &'static Op,
        kind: Kind,
        from: Option<Kind>,
        dst: impl Into<Few<Reg>>,
        src: impl Into<Few<Operand>>,
    ) {
        let at = Location::caller();
        self.push(Stmt::Inst(Inst {
            op,
            kind,
            from,
            dst: dst.into(),
            src: src.into(),
            at,
        }))
    }

    /// Emits `op` on `T` with a new register of type `D` for its result.
    #[track_caller]
    pub(crate) fn emit<D: Ty, const N: usize>(
        self,
        op: &'static Op,
        kind: Kind,
        src: [Operand; N],
    ) -> Val<'k, D> {
        let d = self.fresh::<D>();
        self.inst(op, kind, None, [d.reg], src);
        d
    }

    pub(crate) fn fresh<D: Ty>(self) -> Val<'k, D> {
        self.of(self.state.borrow_mut().reg(D::KIND))
    }

    pub(crate) fn of<D: Ty>(self, reg: Reg) -> Val<'k, D> {
        Val {
            reg,
            k: self,
            ty: PhantomData,
        }
    }

    pub(crate) fn block(self, f: impl FnOnce()) -> StmtBlock {
        self.state.borrow_mut().open.push(StmtBlock {
            stmts: Vec::with_capacity(SOME),
            ..StmtBlock::default()
        });
        f();
        self.state.borrow_mut().open.pop().expect("pushed above")
    }

    pub(crate) fn pin(self, reg: Reg, level: Level) {
        self.state.borrow_mut().pinned.push((reg, level))
    }

    /// Notes what roles take; gives the registers that a thread is launched with.
    pub(crate) fn declare_roles(self, roles: Vec<(u32, u32)>) -> u32 {
        let mut state = self.state.borrow_mut();
        state.roles.extend(roles);
        state.launched
    }

    #[track_caller]
    pub(crate) fn special<D: Ty>(self, name: &'static str, level: Level) -> Val<'k, D> {
        self.emit(&isa::MOV, D::KIND, [Operand::Special(name, level)])
    }

    /// The thread's index along the first dimension of its block.
    #[track_caller]
    pub fn tid(self) -> U32<'k> {
        self.special("%tid.x", Level::Lane)
    }

    /// The thread's index along the second dimension of its block.
    #[track_caller]
    pub fn tid_y(self) -> U32<'k> {
        let [x, _, _] = self.shape();
        self.special(
            "%tid.y",
            if x.is_multiple_of(32) {
                Level::Warp
            } else {
                Level::Lane
            },
        )
    }

    /// The thread's index along the third dimension of its block.
    #[track_caller]
    pub fn tid_z(self) -> U32<'k> {
        let [x, y, _] = self.shape();
        self.special(
            "%tid.z",
            if x.saturating_mul(y).is_multiple_of(32) {
                Level::Warp
            } else {
                Level::Lane
            },
        )
    }

    /// The thread's index in its block, counted along the first dimension, then the second, then the third. In a block
    /// of one dimension it is [`tid`](Builder::tid).
    #[track_caller]
    pub fn thread(self) -> U32<'k> {
        match self.shape() {
            [_, 1, 1] => self.tid(),
            [x, _, 1] => self.tid_y().mad(x, self.tid()),
            [x, y, _] => self.tid_z().mad(y, self.tid_y()).mad(x, self.tid()),
        }
    }

    /// The threads of a block along its three dimensions, which [`KernelDef::block_shape`](crate::KernelDef::block_shape)
    /// returns.
    pub fn shape(self) -> [u32; 3] {
        self.state.borrow().shape
    }

    /// The block's index along the grid's first dimension.
    #[track_caller]
    pub fn ctaid(self) -> U32<'k> {
        self.special("%ctaid.x", Level::Block)
    }

    /// The block's index along the grid's second dimension.
    #[track_caller]
    pub fn ctaid_y(self) -> U32<'k> {
        self.special("%ctaid.y", Level::Block)
    }

    /// The block's index along the grid's third dimension.
    #[track_caller]
    pub fn ctaid_z(self) -> U32<'k> {
        self.special("%ctaid.z", Level::Block)
    }

    /// The number of blocks along the grid's first dimension.
    #[track_caller]
    pub fn nctaid(self) -> U32<'k> {
        self.special("%nctaid.x", Level::Block)
    }

    /// The number of blocks along the grid's second dimension.
    #[track_caller]
    pub fn nctaid_y(self) -> U32<'k> {
        self.special("%nctaid.y", Level::Block)
    }

    /// The number of blocks along the grid's third dimension.
    #[track_caller]
    pub fn nctaid_z(self) -> U32<'k> {
        self.special("%nctaid.z", Level::Block)
    }

    /// The thread's index in its warp.
    #[track_caller]
    pub fn lane(self) -> U32<'k> {
        self.special("%laneid", Level::Lane)
    }

    /// The index of the thread's warp in its block: the same in all its lanes.
    #[track_caller]
    pub fn warp(self) -> U32<'k> {
        let warp = self.thread() >> 5;
        self.pin(warp.reg, Level::Warp);
        warp
    }

    /// The device's clock, in nanoseconds; it ticks coarsely.
    #[track_caller]
    pub fn globaltimer(self) -> U64<'k> {
        self.special("%globaltimer", Level::Lane)
    }

    /// The multiprocessor's clock, in cycles.
    #[track_caller]
    pub fn clock(self) -> U64<'k> {
        self.special("%clock64", Level::Lane)
    }

    /// The multiprocessor that runs the block.
    #[track_caller]
    pub fn smid(self) -> U32<'k> {
        self.special("%smid", Level::Block)
    }

    /// Writes a comment into the PTX. The text must be ASCII, without line breaks.
    #[track_caller]
    pub fn note(self, text: impl Into<String>) {
        let note = Note {
            id: None,
            text: text.into(),
        };
        self.push(Stmt::Note(note, Location::caller()))
    }

    /// Writes a comment into the PTX, as [`note`](Builder::note) does, and gives it a stable
    /// identifier.
    ///
    /// The identifier is not printed. Tools find it through [`Program::notes`](crate::Program::notes),
    /// for example to name the snapshot of the instructions that follow. You can therefore reword
    /// the text without renaming files.
    #[track_caller]
    pub fn section(self, id: impl Into<String>, text: impl Into<String>) {
        let note = Note {
            id: Some(id.into()),
            text: text.into(),
        };
        self.push(Stmt::Note(note, Location::caller()))
    }

    /// A value holding a literal.
    #[track_caller]
    pub fn val<T: Lit>(self, v: T) -> Val<'k, T> {
        self.emit(&isa::MOV, T::KIND, [Operand::Imm(v.imm())])
    }

    /// A variable, set to `init`: a literal or a value.
    #[track_caller]
    pub fn var<T: Num>(self, init: impl Src<'k, T>) -> Var<'k, T> {
        Var(self.emit(&isa::MOV, T::KIND, [init.operand()]))
    }

    /// Waits until every thread of the block is here; what they wrote before is visible after.
    #[track_caller]
    pub fn barrier(self) {
        self.inst(&isa::BAR_SYNC, Kind::U32, None, [], [lit(0)])
    }

    /// Waits until every lane of the warp is here; what they wrote before is visible after.
    #[track_caller]
    pub fn warp_barrier(self) {
        self.inst(&isa::BAR_WARP_SYNC, Kind::U32, None, [], [full_mask()])
    }

    /// Orders this thread's memory accesses for the whole device.
    #[track_caller]
    pub fn fence(self) {
        self.inst(&isa::FENCE_GPU, Kind::U32, None, [], [])
    }

    /// Stops the kernel with an error.
    #[track_caller]
    pub fn trap(self) {
        self.inst(&isa::TRAP, Kind::U32, None, [], [])
    }

    /// Sleeps for about `ns` nanoseconds.
    #[track_caller]
    pub fn nanosleep(self, ns: impl Src<'k, u32>) {
        self.inst(&isa::NANOSLEEP, Kind::U32, None, [], [ns.operand()])
    }

    /// `if cond { body }`; an `else` follows as [`When::otherwise`].
    #[track_caller]
    pub fn when(self, cond: Pred<'k>, body: impl FnOnce()) -> When<'k> {
        let at = Location::caller();
        let body = self.block(body);
        let mut state = self.state.borrow_mut();
        let (depth, stmts) = (state.open.len(), &mut state.innermost().stmts);
        stmts.push(Stmt::If {
            cond: cond.reg,
            body,
            other: StmtBlock::default(),
            at,
        });
        When {
            k: self,
            depth,
            index: stmts.len() - 1,
        }
    }

    /// `for i in (from..to).step_by(step) { body(i) }`.
    #[track_caller]
    pub fn for_each(
        self,
        from: impl Src<'k, u32>,
        to: impl Src<'k, u32>,
        step: impl Src<'k, u32>,
        body: impl FnOnce(U32<'k>),
    ) {
        let i: U32 = self.emit(&isa::MOV, Kind::U32, [from.operand()]);
        let (to, step) = (to.operand(), step.operand());
        self.looped(
            || self.emit(&isa::SETP_GE, Kind::U32, [Operand::Reg(i.reg), to]),
            || {
                body(i);
                self.inst(
                    &isa::ADD,
                    Kind::U32,
                    None,
                    [i.reg],
                    [Operand::Reg(i.reg), step],
                );
            },
        )
    }

    /// `while !until() { body() }`: `until` is evaluated before each round.
    #[track_caller]
    pub fn repeat(self, until: impl FnOnce() -> Pred<'k>, body: impl FnOnce()) {
        self.looped(until, body)
    }

    /// The same where both read, and the body changes, the same variables.
    #[track_caller]
    pub fn repeat_with<S>(
        self,
        state: &mut S,
        until: impl FnOnce(&S) -> Pred<'k>,
        body: impl FnOnce(&mut S),
    ) {
        let state = RefCell::new(state);
        self.looped(|| until(&state.borrow()), || body(&mut state.borrow_mut()))
    }

    #[track_caller]
    fn looped(self, until: impl FnOnce() -> Pred<'k>, body: impl FnOnce()) {
        let at = Location::caller();
        let (mut cond, mut exit) = (vec![], None);
        let body = self.block(|| {
            exit = Some(until().reg);
            cond = std::mem::take(&mut self.state.borrow_mut().innermost().stmts);
            body();
        });
        let exit = exit.expect("the closure ran");
        self.push(Stmt::Loop {
            cond,
            exit,
            body,
            at,
        })
    }
}

/// The `if` just closed, for an `else`.
pub struct When<'k> {
    k: Builder<'k>,
    /// How many blocks stood open around it.
    depth: usize,
    /// Its number in its block.
    index: usize,
}

impl When<'_> {
    /// `else { body }`, in the block of the `if`.
    #[track_caller]
    pub fn otherwise(self, body: impl FnOnce()) {
        let otherwise = self.k.block(body);
        let mut state = self.k.state.borrow_mut();
        let here = state.open.len() == self.depth;
        match state.innermost().stmts.get_mut(self.index) {
            Some(Stmt::If { other, .. }) if here => *other = otherwise,
            _ => state.errors.push(BuildError {
                at: Some(Location::caller()),
                kind: ErrorKind::Elsewhere,
            }),
        }
    }
}
