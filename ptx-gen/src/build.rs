//! The builder: typed values that append instructions to the program as you combine them.
//!
//! Instructions are emitted immediately and in program order. The PTX order is therefore Rust's
//! order of evaluation. Registers are numbered from 0 in each block of the program, which keeps the
//! text of one block independent of the others.
//!
//! A Rust `for` or `if` runs while the kernel is built. It unrolls or selects code. In contrast,
//! [`Builder::for_each`], [`Builder::repeat`] and [`Builder::when`] emit loops and branches that
//! run on the GPU.

use crate::check::{BuildError, ErrorKind};
use crate::inline_vec::InlineVec;
use crate::ir::*;
use crate::isa::{self, Op};
use crate::tile::{MapBox, Tile};
use crate::ty::{Kind, Lit, Num, Ty};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::Location;

#[derive(Default)]
pub(crate) struct BuilderState {
    pub(crate) params: Vec<Param>,
    pub(crate) shared: Vec<SharedArray>,
    /// The tile that each tensor map copies, by parameter name.
    pub(crate) tiles: Vec<(&'static str, Tile)>,
    /// The box that each tensor map copies, by parameter name.
    pub(crate) boxes: Vec<(&'static str, MapBox)>,
    /// The number of threads of a block along its three dimensions.
    pub(crate) shape: [u32; 3],
    /// The maximum number of registers that each thread has at launch.
    pub(crate) launched: u32,
    /// The warpgroups of each role and the registers of each of their threads.
    pub(crate) roles: Vec<(u32, u32)>,
    /// The number of registers of all blocks, by class.
    pub(crate) registers: [u32; 5],
    pub(crate) pinned: Vec<(Reg, Level)>,
    /// Errors that cannot be found later by looking at the program.
    pub(crate) errors: Vec<BuildError>,
    /// The open blocks, from the kernel's outermost block to the innermost.
    pub(crate) open: Vec<StmtBlock>,
}

/// The initial capacity of a block in statements. Most blocks have fewer.
const BLOCK_CAPACITY: usize = 32;

impl BuilderState {
    /// Returns the state of an empty kernel whose outermost block is open.
    pub(crate) fn new() -> RefCell<BuilderState> {
        RefCell::new(BuilderState {
            open: vec![StmtBlock::default()],
            ..BuilderState::default()
        })
    }

    fn innermost(&mut self) -> &mut StmtBlock {
        self.open
            .last_mut()
            .expect("the kernel's own block is open")
    }

    /// Allocates a register in the innermost block.
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
/// [`KernelDef::program`](crate::KernelDef::program) receives a `Builder`. It is `Copy`, so
/// closures and helper functions can take it by value. Every method that emits an instruction
/// records the Rust line of the call, which errors and `.loc` lines show.
///
/// The lifetime `'k` is unique to one build. The compiler therefore rejects an expression that
/// combines values of two kernels.
///
/// # Example
/// ```
/// # use ptx_gen::prelude::*;
/// # let ptx = ptx_gen::example(|k, a| {
/// let i = k.ctaid() * k.shape()[0] + k.tid();
/// k.when(i.lt(a.n), || a.x.at(i).st(0.0));
/// # })?;
/// assert!(ptx.contains("mad.lo.u32") || ptx.contains("mul.lo.u32"));
/// assert!(ptx.contains("st.global.f32"));
/// # Ok::<(), ptx_gen::Errors>(())
/// ```
#[derive(Clone, Copy)]
pub struct Builder<'k> {
    pub(crate) state: &'k RefCell<BuilderState>,
    brand: PhantomData<Cell<&'k ()>>,
}

/// A typed value in a register that is written exactly once.
///
/// `Val` is `Copy`. Its operators and methods emit one instruction each and return a new value.
/// Nothing converts implicitly: use [`cvt`](Val::cvt) to convert a number and [`bits`](Val::bits)
/// to reinterpret it. A value that must change is a [`Var`].
///
/// A value can be used in the block that defines it and in the blocks nested inside. Validation
/// rejects other uses, because PTX registers are declared per block.
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

/// A 32-bit float value.
pub type F32<'k> = Val<'k, f32>;
/// An unsigned 32-bit integer value.
pub type U32<'k> = Val<'k, u32>;
/// A signed 32-bit integer value.
pub type I32<'k> = Val<'k, i32>;
/// An unsigned 64-bit integer value.
pub type U64<'k> = Val<'k, u64>;
/// A predicate: one bit that comparisons return, and that branches and [`select`](Val::select)
/// take.
pub type Pred<'k> = Val<'k, bool>;

/// A mutable variable: a register that can be written many times.
///
/// [`Builder::var`] creates a variable. Compound assignment (`+=`), [`set`](Var::set),
/// [`fma`](Var::fma) and [`max_with`](Var::max_with) change it. `&var` can be used as an operand,
/// and [`get`](Var::get) copies the current value.
///
/// Every write needs `&mut`, so Rust's `mut` marks each register that a loop carries.
///
/// # Example
/// ```
/// # use ptx_gen::prelude::*;
/// # let ptx = ptx_gen::example(|k, a| {
/// let mut sum = k.var(0.0);
/// k.for_each(k.tid(), a.n, 32, |i| sum += a.x.at(i).ld());
/// a.x.at(k.tid()).st(&sum);
/// # })?;
/// assert!(ptx.contains("add.rn.f32 %f0, %f0, %f1_0;"));
/// # Ok::<(), ptx_gen::Errors>(())
/// ```
pub struct Var<'k, T>(pub(crate) Val<'k, T>);

/// An operand of type `T`: a value, a reference to a variable, or a literal.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a PTX operand of type `{T}`",
    note = "PTX never converts implicitly: write `.cvt::<{T}>()`, or convert the other operand if `{T}` would lose digits"
)]
pub trait Src<'k, T> {
    /// Returns the operand.
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

/// Returns `v` as a literal operand of type `u32`.
pub(crate) fn lit(v: u32) -> Operand {
    Operand::Imm(v.imm())
}

/// Returns the member mask of all 32 lanes of a warp.
pub(crate) fn full_mask() -> Operand {
    lit(u32::MAX)
}

impl<'k> Builder<'k> {
    pub(crate) fn new(state: &'k RefCell<BuilderState>) -> Self {
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
        dst: impl Into<InlineVec<Reg>>,
        src: impl Into<InlineVec<Operand>>,
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

    /// Emits `op` on operands of `kind` and returns its result in a new register of type `D`.
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
            stmts: Vec::with_capacity(BLOCK_CAPACITY),
            ..StmtBlock::default()
        });
        f();
        self.state.borrow_mut().open.pop().expect("pushed above")
    }

    pub(crate) fn pin(self, reg: Reg, level: Level) {
        self.state.borrow_mut().pinned.push((reg, level))
    }

    /// Records the warpgroups and registers of roles. Returns the number of registers per thread at
    /// launch.
    pub(crate) fn declare_roles(self, roles: Vec<(u32, u32)>) -> u32 {
        let mut state = self.state.borrow_mut();
        state.roles.extend(roles);
        state.launched
    }

    #[track_caller]
    pub(crate) fn special<D: Ty>(self, name: &'static str, level: Level) -> Val<'k, D> {
        self.emit(&isa::MOV, D::KIND, [Operand::Special(name, level)])
    }

    /// Returns the index of the thread along the first dimension of its block (`mov.u32` from
    /// `%tid.x`).
    #[track_caller]
    pub fn tid(self) -> U32<'k> {
        self.special("%tid.x", Level::Lane)
    }

    /// Returns the index of the thread along the second dimension of its block (`%tid.y`).
    ///
    /// The value is uniform in each warp if the first dimension is a multiple of 32.
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

    /// Returns the index of the thread along the third dimension of its block (`%tid.z`).
    ///
    /// The value is uniform in each warp if the first two dimensions have a multiple of 32 threads.
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

    /// Returns the linear index of the thread in its block.
    ///
    /// Threads are counted along the first dimension, then the second, then the third. In a
    /// one-dimensional block this is [`tid`](Builder::tid). Otherwise it costs one or two
    /// `mad.lo.u32`.
    #[track_caller]
    pub fn thread(self) -> U32<'k> {
        match self.shape() {
            [_, 1, 1] => self.tid(),
            [x, _, 1] => self.tid_y().mad(x, self.tid()),
            [x, y, _] => self.tid_z().mad(y, self.tid_y()).mad(x, self.tid()),
        }
    }

    /// Returns the number of threads of a block along its three dimensions.
    ///
    /// It is the value of [`KernelDef::block_shape`](crate::KernelDef::block_shape), known while
    /// the kernel is built. No instruction is emitted.
    pub fn shape(self) -> [u32; 3] {
        self.state.borrow().shape
    }

    /// Returns the index of the block along the first dimension of the grid (`%ctaid.x`).
    #[track_caller]
    pub fn ctaid(self) -> U32<'k> {
        self.special("%ctaid.x", Level::Block)
    }

    /// Returns the index of the block along the second dimension of the grid (`%ctaid.y`).
    #[track_caller]
    pub fn ctaid_y(self) -> U32<'k> {
        self.special("%ctaid.y", Level::Block)
    }

    /// Returns the index of the block along the third dimension of the grid (`%ctaid.z`).
    #[track_caller]
    pub fn ctaid_z(self) -> U32<'k> {
        self.special("%ctaid.z", Level::Block)
    }

    /// Returns the number of blocks along the first dimension of the grid (`%nctaid.x`).
    #[track_caller]
    pub fn nctaid(self) -> U32<'k> {
        self.special("%nctaid.x", Level::Block)
    }

    /// Returns the number of blocks along the second dimension of the grid (`%nctaid.y`).
    #[track_caller]
    pub fn nctaid_y(self) -> U32<'k> {
        self.special("%nctaid.y", Level::Block)
    }

    /// Returns the number of blocks along the third dimension of the grid (`%nctaid.z`).
    #[track_caller]
    pub fn nctaid_z(self) -> U32<'k> {
        self.special("%nctaid.z", Level::Block)
    }

    /// Returns the index of the thread in its warp, from 0 to 31 (`%laneid`).
    #[track_caller]
    pub fn lane(self) -> U32<'k> {
        self.special("%laneid", Level::Lane)
    }

    /// Returns the index of the warp in its block: [`thread`](Builder::thread) shifted right by 5.
    ///
    /// Validation knows that the value is uniform in each warp. You may therefore branch on it
    /// around instructions that a whole warp must execute.
    #[track_caller]
    pub fn warp(self) -> U32<'k> {
        let warp = self.thread() >> 5;
        self.pin(warp.reg, Level::Warp);
        warp
    }

    /// Returns the time of the device in nanoseconds (`%globaltimer`).
    ///
    /// The timer advances in coarse steps. For short intervals use [`clock`](Builder::clock).
    #[track_caller]
    pub fn globaltimer(self) -> U64<'k> {
        self.special("%globaltimer", Level::Lane)
    }

    /// Returns the cycle counter of the multiprocessor (`%clock64`).
    #[track_caller]
    pub fn clock(self) -> U64<'k> {
        self.special("%clock64", Level::Lane)
    }

    /// Returns the index of the multiprocessor that runs the block (`%smid`).
    #[track_caller]
    pub fn smid(self) -> U32<'k> {
        self.special("%smid", Level::Block)
    }

    /// Adds a comment to the PTX. The text must be ASCII and must not contain line breaks.
    ///
    /// Notes divide the printed kernel into readable sections. They do not change the code.
    #[track_caller]
    pub fn note(self, text: impl Into<String>) {
        let note = Note {
            id: None,
            text: text.into(),
        };
        self.push(Stmt::Note(note, Location::caller()))
    }

    /// Adds a comment to the PTX, like [`note`](Builder::note), and gives it a stable identifier.
    ///
    /// The identifier is not printed. Tools read it from
    /// [`Program::notes`](crate::Program::notes), for example to name a snapshot of the
    /// instructions that follow. The text can then change without renaming files.
    #[track_caller]
    pub fn section(self, id: impl Into<String>, text: impl Into<String>) {
        let note = Note {
            id: Some(id.into()),
            text: text.into(),
        };
        self.push(Stmt::Note(note, Location::caller()))
    }

    /// Returns a value that holds the literal `v` (`mov`).
    ///
    /// Methods and operators accept literals directly. Use this method where a `Val` is required,
    /// for example as the left operand of a method.
    #[track_caller]
    pub fn val<T: Lit>(self, v: T) -> Val<'k, T> {
        self.emit(&isa::MOV, T::KIND, [Operand::Imm(v.imm())])
    }

    /// Returns a new variable with the initial value `init`, a literal or a value (`mov`).
    ///
    /// See [`Var`] for an example.
    #[track_caller]
    pub fn var<T: Num>(self, init: impl Src<'k, T>) -> Var<'k, T> {
        Var(self.emit(&isa::MOV, T::KIND, [init.operand()]))
    }

    /// Waits until all threads of the block have arrived (`bar.sync 0`).
    ///
    /// Memory writes that a thread made before the barrier are visible to the block after it. Every
    /// thread of the block must reach the same barrier. Validation returns an error if the barrier
    /// is inside a branch whose condition differs between threads.
    ///
    /// # Example: a barrier between a store and a load of shared memory
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let staged = k.shared::<f32>("staged", 32);
    /// staged.at(k.tid()).st(a.x.at(k.tid()).ld());
    /// k.barrier();
    /// a.x.at(k.tid()).st(staged.at(31 - k.tid()).ld());
    /// # })?;
    /// assert!(ptx.contains(".shared .align 16 .b8 staged[128];"));
    /// assert!(ptx.contains("bar.sync 0;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn barrier(self) {
        self.inst(&isa::BAR_SYNC, Kind::U32, None, [], [lit(0)])
    }

    /// Waits until all lanes of the warp have arrived (`bar.warp.sync` with a full mask).
    ///
    /// Memory writes that a lane made before the barrier are visible to the warp after it.
    #[track_caller]
    pub fn warp_barrier(self) {
        self.inst(&isa::BAR_WARP_SYNC, Kind::U32, None, [], [full_mask()])
    }

    /// Orders the memory accesses of this thread before and after the fence, for all threads of the
    /// device (`fence.acq_rel.gpu`).
    ///
    /// A fence does not wait for other threads. It is used with a flag: write data, fence, set the
    /// flag. [`st_release`](crate::Ptr::st_release) combines the last two steps.
    #[track_caller]
    pub fn fence(self) {
        self.inst(&isa::FENCE_GPU, Kind::U32, None, [], [])
    }

    /// Stops the kernel with an error (`trap`). The driver reports the launch as failed.
    #[track_caller]
    pub fn trap(self) {
        self.inst(&isa::TRAP, Kind::U32, None, [], [])
    }

    /// Suspends the thread for about `ns` nanoseconds (`nanosleep.u32`). Use it in polling loops.
    #[track_caller]
    pub fn nanosleep(self, ns: impl Src<'k, u32>) {
        self.inst(&isa::NANOSLEEP, Kind::U32, None, [], [ns.operand()])
    }

    /// Runs `body` in the threads where `cond` holds: a GPU `if`.
    ///
    /// Call [`otherwise`](When::otherwise) on the result to add an `else`. A body of one
    /// instruction becomes a predicated instruction (`@%p0`), and a longer body becomes a branch.
    /// Variables declared before the branch carry values out of it.
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let x = a.x.at(k.tid());
    /// let v = x.ld();
    /// let mut result = k.var(0.0);
    /// k.when(v.gt(0.0), || result.set(v.sqrt_rn()));
    /// x.st(&result);
    /// # })?;
    /// assert!(ptx.contains("setp.gt.f32 %p0, %f0, 0f00000000;"));
    /// assert!(ptx.contains("@!%p0 bra $end0;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn when(self, cond: Pred<'k>, body: impl FnOnce()) -> When<'k> {
        let at = Location::caller();
        let body = self.block(body);
        let mut state = self.state.borrow_mut();
        let depth = state.open.len();
        let stmts = &mut state.innermost().stmts;
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

    /// Runs `body` for each index from `from` up to, but not including, `to`, in steps of `step`.
    ///
    /// This is a GPU loop: `body` is called once while the kernel is built and receives the index
    /// as a value. All three bounds may be values or literals, and they are unsigned. To unroll a
    /// loop with a known number of rounds, use a Rust `for`.
    ///
    /// The index must not overflow: the last index plus `step` must fit into 32 bits.
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// k.for_each(k.tid(), a.n, 128, |i| {
    ///     let x = a.x.at(i);
    ///     x.st(x.ld() * 2.0);
    /// });
    /// # })?;
    /// assert!(ptx.contains("setp.ge.u32"));
    /// assert!(ptx.contains("bra $loop0;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn for_each(
        self,
        from: impl Src<'k, u32>,
        to: impl Src<'k, u32>,
        step: impl Src<'k, u32>,
        body: impl FnOnce(U32<'k>),
    ) {
        let i: U32 = self.emit(&isa::MOV, Kind::U32, [from.operand()]);
        let to = to.operand();
        let step = step.operand();
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

    /// Runs `body` until the predicate that `until` returns holds.
    ///
    /// The predicate is evaluated before each round, so the body may run zero times. If both
    /// closures need the same variables, use [`repeat_with`](Builder::repeat_with), because Rust
    /// does not let two closures borrow them.
    #[track_caller]
    pub fn repeat(self, until: impl FnOnce() -> Pred<'k>, body: impl FnOnce()) {
        self.looped(until, body)
    }

    /// Runs `body` until the predicate that `until` returns holds, and passes `state` to both
    /// closures.
    ///
    /// `state` is usually a [`Var`] or a tuple of variables.
    ///
    /// # Example: Euclid's algorithm
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let at = a.i.at(k.tid());
    /// let mut pair = (k.var(at.ld()), k.var(a.n));
    /// k.repeat_with(
    ///     &mut pair,
    ///     |(_, small)| small.get().eq(0),
    ///     |(large, small)| {
    ///         let rest = large.get() % small.get();
    ///         large.set(&*small);
    ///         small.set(rest);
    ///     },
    /// );
    /// at.st(&pair.0);
    /// # })?;
    /// assert!(ptx.contains("rem.u32"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
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
        let mut cond = vec![];
        let mut exit = None;

        // The condition is built inside the block of the body, because both share its registers.
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

/// A branch that [`Builder::when`] has just emitted, to which you can add an `else`.
pub struct When<'k> {
    k: Builder<'k>,
    /// The number of open blocks around the branch.
    depth: usize,
    /// The position of the branch in its block.
    index: usize,
}

impl When<'_> {
    /// Runs `body` in the threads where the condition of the `when` does not hold.
    ///
    /// Call it directly after the `when`, in the same block. Otherwise validation returns an error.
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let x = a.x.at(k.tid());
    /// k.when(k.tid().lt(a.n), || x.st(x.ld() + 1.0))
    ///     .otherwise(|| x.st(0.0));
    /// # })?;
    /// assert!(ptx.contains("bra $else0;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
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
