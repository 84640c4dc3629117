//! Typed pointers to global memory, to shared memory and to shared memory of other blocks.
//!
//! A [`Ptr`] knows its element type and its space. The space decides which instruction a load or a
//! store becomes, and whether the pointer has these methods at all. For example, a pointer to an
//! `In` argument cannot be stored to.

use crate::build::{Builder, Pred, Src, U32, Val, Var};
use crate::elem::Elem;
use crate::fold::literal;
use crate::inline_vec::InlineVec;
use crate::ir::{Base, Operand, Reg, SharedArray};
use crate::isa::{self, Op};
use crate::ops::Ordered;
use crate::ty::{Kind, Num, Ty};
use std::array::from_fn;
use std::marker::PhantomData;

/// Global memory that no thread writes while the kernel runs. Loads use `ld.global.nc`.
///
/// It is the space of [`In`](crate::In) arguments. The cache for these loads is not kept coherent,
/// so no other kernel may write the buffer at the same time.
/// [`Program::noncoherent`](crate::Program::noncoherent) lists the buffers that a program reads
/// this way.
#[derive(Clone, Copy)]
pub struct ReadOnly;
/// Global memory that the kernel reads once. Loads use `ld.global.nc.L1::no_allocate`.
///
/// [`Ptr::stream`] returns such a pointer.
#[derive(Clone, Copy)]
pub struct ReadOnce;
/// Global memory that another kernel may have written while this kernel was starting.
///
/// Loads use `ld.relaxed.gpu.global`, which does not read a stale line of the L1 cache.
/// [`Ptr::fresh`] returns such a pointer.
#[derive(Clone, Copy)]
pub struct Fresh;
/// Global memory that the kernel only writes: the space of [`Out`](crate::Out) arguments.
#[derive(Clone, Copy)]
pub struct WriteOnly;
/// Global memory that the kernel reads and writes: the space of [`InOut`](crate::InOut) arguments.
///
/// Only pointers to this space and to [`Shared`] have atomics.
#[derive(Clone, Copy)]
pub struct ReadWrite;
/// Shared memory of the block. [`Builder::shared`] and [`Builder::dynamic_shared`] allocate it.
#[derive(Clone, Copy)]
pub struct Shared;

/// Shared memory of another block of the cluster. [`Ptr::in_block`] returns such a pointer. Needs
/// sm_90.
#[derive(Clone, Copy)]
pub struct Peer;

/// The alignment of shared arrays in bytes, unless a larger one is requested.
const LEAST_ALIGN: u32 = 16;

/// The instructions of an access for one, two and four elements.
pub struct Rows([&'static Op; 3]);

/// The memory that a pointer refers to.
pub trait Space: Copy {
    /// The type of an address in this memory.
    const ADDRESS: Kind;
}
/// Memory that a kernel can load from.
pub trait Loads: Space {
    /// The load instructions.
    const LD: Rows;
}
/// Memory that a kernel can store to.
pub trait Stores: Space {
    /// The store instructions.
    const ST: Rows;
}

macro_rules! spaces {
    ($($space:ty: $kind:ident;)*) => { $(impl Space for $space { const ADDRESS: Kind = Kind::$kind; })* };
}
spaces! { ReadOnly: U64; ReadOnce: U64; Fresh: U64; WriteOnly: U64; ReadWrite: U64; Shared: U32; Peer: U32; }

macro_rules! rows {
    ($($trait:ident $name:ident for $space:ty = $one:ident $two:ident $four:ident;)*) => {
        $(impl $trait for $space { const $name: Rows = Rows([&isa::$one, &isa::$two, &isa::$four]); })*
    };
}
rows! {
    Loads LD for ReadOnly = LD_NC LD_NC_V2 LD_NC_V4;
    Loads LD for ReadOnce = LD_STREAM LD_STREAM_V2 LD_STREAM_V4;
    Loads LD for Fresh = LD_RELAXED LD_RELAXED_V2 LD_RELAXED_V4;
    Loads LD for ReadWrite = LD_GLOBAL LD_GLOBAL_V2 LD_GLOBAL_V4;
    Loads LD for Shared = LD_SHARED LD_SHARED_V2 LD_SHARED_V4;
    Loads LD for Peer = LD_CLUSTER LD_CLUSTER_V2 LD_CLUSTER_V4;
    Stores ST for Peer = ST_CLUSTER ST_CLUSTER_V2 ST_CLUSTER_V4;
    Stores ST for WriteOnly = ST_GLOBAL ST_GLOBAL_V2 ST_GLOBAL_V4;
    Stores ST for ReadWrite = ST_GLOBAL ST_GLOBAL_V2 ST_GLOBAL_V4;
    Stores ST for Shared = ST_SHARED ST_SHARED_V2 ST_SHARED_V4;
}

/// A pointer to elements of type `T` in the memory space `A`.
///
/// Arguments of a kernel and shared arrays are pointers. [`at`](Ptr::at) selects an element, and
/// the loads and stores access it. A pointer is a register and a constant byte offset, so an access
/// at a literal index needs no address arithmetic.
///
/// No method checks bounds. Guard accesses with [`Builder::when`], and run the kernel on the
/// emulator to find the accesses that miss a guard.
///
/// # Example
/// ```
/// # use ptx_gen::prelude::*;
/// # let ptx = ptx_gen::example(|k, a| {
/// let row = a.x.at(k.ctaid() * 4);
/// let [x, y, z, w] = row.ld4();
/// row.st4([y, z, w, x]);
/// a.i.at(7).st(0u32);
/// # })?;
/// assert!(ptx.contains("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd8];"));
/// assert!(ptx.contains("+28], 0;"));
/// # Ok::<(), ptx_gen::Errors>(())
/// ```
pub struct Ptr<'k, T, A> {
    pub(crate) k: Builder<'k>,
    base: Reg,
    /// A constant offset in bytes, which the address of an instruction includes.
    offset: i32,
    access: PhantomData<(T, A)>,
}
impl<T, A> Clone for Ptr<'_, T, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, A> Copy for Ptr<'_, T, A> {}

impl<'k, T: Elem, A: Space> Ptr<'k, T, A> {
    pub(crate) fn new(k: Builder<'k>, base: Reg) -> Self {
        Ptr {
            k,
            base,
            offset: 0,
            access: PhantomData,
        }
    }

    /// Returns the address of element `i`.
    ///
    /// A literal index emits no instruction. Otherwise this is one `mad`: 64-bit for global memory
    /// and 32-bit for shared memory.
    #[track_caller]
    pub fn at(self, i: impl Src<'k, u32>) -> Self {
        self.row(i, T::MEM.bytes())
    }

    /// Returns the address `i * bytes` bytes further on, without changing the element type.
    ///
    /// The product is computed in the width of an address, so it cannot overflow in global memory.
    /// If both factors are literals, no instruction is emitted.
    #[track_caller]
    pub fn row(self, i: impl Src<'k, u32>, bytes: impl Src<'k, u32>) -> Self {
        let i = i.operand();
        let bytes = bytes.operand();

        // A constant distance becomes part of the instruction that uses the address.
        if let Some(offset) = fixed(&i, &bytes).and_then(|by| self.offset.checked_add(by)) {
            return Ptr { offset, ..self };
        }

        let base = Operand::Reg(self.base);
        let base = match A::ADDRESS {
            Kind::U64 => {
                self.k
                    .emit::<u64, 3>(&isa::MAD_WIDE, Kind::U32, [i, bytes, base])
                    .reg
            }
            _ if literal(Kind::U32, &bytes) == Some(1) => {
                self.k.emit::<u32, 2>(&isa::ADD, Kind::U32, [base, i]).reg
            }
            _ => {
                self.k
                    .emit::<u32, 3>(&isa::MAD_LO, Kind::U32, [i, bytes, base])
                    .reg
            }
        };
        Ptr { base, ..self }
    }

    /// Returns the same address as a pointer to elements of type `U`. No instruction is emitted.
    pub fn cast<U: Elem>(self) -> Ptr<'k, U, A> {
        Ptr {
            k: self.k,
            base: self.base,
            offset: self.offset,
            access: PhantomData,
        }
    }

    /// Returns the address in a 32-bit register.
    #[track_caller]
    pub(crate) fn address(self) -> U32<'k> {
        let base = self.k.of::<u32>(self.base);
        if self.offset == 0 {
            base
        } else {
            base + self.offset as u32
        }
    }

    pub(crate) fn addr(self) -> Operand {
        Operand::Addr(Base::Reg(self.base), self.offset)
    }
}

impl<'k, T: Elem> Ptr<'k, T, ReadOnly> {
    /// Returns the same pointer with loads that do not allocate in the L1 cache
    /// (`ld.global.nc.L1::no_allocate`).
    ///
    /// Use it for data that the kernel reads once, such as the weights of a matrix-vector product.
    /// It leaves the L1 cache to data that is read again.
    pub fn stream(self) -> Ptr<'k, T, ReadOnce> {
        Ptr {
            k: self.k,
            base: self.base,
            offset: self.offset,
            access: PhantomData,
        }
    }
}

impl<'k, T: Elem, A: Loads> Ptr<'k, T, A> {
    /// Returns the same pointer with relaxed loads (`ld.relaxed.gpu.global`).
    ///
    /// Use it for data that another kernel wrote while this one was starting, for example after
    /// [`grid_wait`](Builder::grid_wait). A plain load could read an old line of the L1 cache.
    pub fn fresh(self) -> Ptr<'k, T, Fresh> {
        Ptr {
            k: self.k,
            base: self.base,
            offset: self.offset,
            access: PhantomData,
        }
    }
}

/// Returns the product of two literal factors if it fits into the offset of an instruction.
fn fixed(i: &Operand, bytes: &Operand) -> Option<i32> {
    match [i, bytes].map(|factor| literal(Kind::U32, factor)) {
        [Some(0), _] | [_, Some(0)] => Some(0),
        [Some(i), Some(bytes)] => i.checked_mul(bytes)?.try_into().ok(),
        _ => None,
    }
}

impl<'k, T: Elem, A: Loads> Ptr<'k, T, A> {
    #[track_caller]
    fn load<const N: usize>(self, op: &'static Op) -> [Val<'k, T::Reg>; N] {
        let d: [Val<T::Reg>; N] = from_fn(|_| self.k.fresh());
        self.k
            .inst(op, T::MEM, None, d.map(|v| v.reg), [self.addr()]);
        d
    }
    /// Loads the element at this address (`ld`).
    ///
    /// Bytes and 16-bit integers are widened to 32 bits.
    #[track_caller]
    pub fn ld(self) -> Val<'k, T::Reg> {
        let [d] = self.load(A::LD.0[0]);
        d
    }
    /// Loads two consecutive elements (`ld.v2`). The address must be a multiple of their total
    /// size.
    #[track_caller]
    pub fn ld2(self) -> [Val<'k, T::Reg>; 2] {
        self.load(A::LD.0[1])
    }
    #[track_caller]
    fn load_if(self, op: &'static Op, cond: Pred<'k>, to: &mut [Var<'k, T::Reg>]) {
        let dst: InlineVec<_> = to.iter().map(|v| v.0.reg).collect();
        self.k
            .when(cond, || self.k.inst(op, T::MEM, None, dst, [self.addr()]));
    }
    /// Loads an element into `to` in the threads where `cond` holds. Elsewhere `to` keeps its
    /// value.
    ///
    /// The load is predicated, so the address may be invalid in threads where `cond` does not hold.
    /// Loads that are emitted one after another this way can be in flight together, which a branch
    /// would prevent.
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let i = k.tid();
    /// let mut w = k.var(0.0);
    /// a.w.at(i).ld_if(i.lt(a.n), &mut w);
    /// a.x.at(i).st(&w);
    /// # })?;
    /// assert!(ptx.contains("@%p0 ld.global.nc.f32 %f0,"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn ld_if(self, cond: Pred<'k>, to: &mut Var<'k, T::Reg>) {
        self.load_if(A::LD.0[0], cond, std::slice::from_mut(to))
    }
    /// Loads two consecutive elements into `to` in the threads where `cond` holds (`ld.v2`,
    /// predicated).
    ///
    /// The address must be a multiple of their total size.
    #[track_caller]
    pub fn ld2_if(self, cond: Pred<'k>, to: &mut [Var<'k, T::Reg>; 2]) {
        self.load_if(A::LD.0[1], cond, to)
    }
    /// Loads four consecutive elements into `to` in the threads where `cond` holds (`ld.v4`,
    /// predicated).
    ///
    /// The address must be a multiple of their total size.
    #[track_caller]
    pub fn ld4_if(self, cond: Pred<'k>, to: &mut [Var<'k, T::Reg>; 4]) {
        self.load_if(A::LD.0[2], cond, to)
    }
    /// Loads four consecutive elements (`ld.v4`). The address must be a multiple of their total
    /// size.
    ///
    /// Elements may have at most 32 bits.
    #[track_caller]
    pub fn ld4(self) -> [Val<'k, T::Reg>; 4] {
        self.load(A::LD.0[2])
    }
}

impl<'k, T: Elem, A: Stores> Ptr<'k, T, A> {
    /// Stores `v` at this address (`st`). For bytes and 16-bit integers, the low bits are stored.
    #[track_caller]
    pub fn st(self, v: impl Src<'k, T::Reg>) {
        self.k
            .inst(A::ST.0[0], T::MEM, None, [], [self.addr(), v.operand()])
    }
    #[track_caller]
    fn store(self, op: &'static Op, v: &[Val<'k, T::Reg>]) {
        let group = Operand::Group(v.iter().map(|v| v.reg).collect());
        self.k.inst(op, T::MEM, None, [], [self.addr(), group])
    }
    /// Stores two consecutive elements (`st.v2`). The address must be a multiple of their total
    /// size.
    #[track_caller]
    pub fn st2(self, v: [Val<'k, T::Reg>; 2]) {
        self.store(A::ST.0[1], &v)
    }
    /// Stores four consecutive elements (`st.v4`). The address must be a multiple of their total
    /// size.
    ///
    /// Elements may have at most 32 bits.
    #[track_caller]
    pub fn st4(self, v: [Val<'k, T::Reg>; 4]) {
        self.store(A::ST.0[2], &v)
    }
}

impl<'k, T: Elem + Ordered + Num> Ptr<'k, T, WriteOnly> {
    /// Stores a 32-bit value that running kernels may load with [`fresh`](Ptr::fresh)
    /// (`st.relaxed.gpu.global`).
    #[track_caller]
    pub fn st_relaxed(self, v: impl Src<'k, T>) {
        self.k.inst(
            &isa::ST_RELAXED,
            <T as Ty>::KIND,
            None,
            [],
            [self.addr(), v.operand()],
        )
    }
}

impl<'k, T: Elem> Ptr<'k, T, ReadOnly> {
    /// Prefetches the cache line at this address into the L2 cache (`prefetch.global.L2`).
    #[track_caller]
    pub fn prefetch_l2(self) {
        self.k
            .inst(&isa::PREFETCH_L2, Kind::U32, None, [], [self.addr()])
    }
}

impl<'k, T: Elem + Ordered + Num> Ptr<'k, T, ReadWrite> {
    #[track_caller]
    fn fetch<const N: usize>(self, op: &'static Op, src: [Operand; N]) -> Val<'k, T> {
        let d = self.k.fresh::<T>();
        let src: InlineVec<_> = std::iter::once(self.addr()).chain(src).collect();
        self.k.inst(op, T::KIND, None, [d.reg], src);
        d
    }
    /// Adds `v` atomically and returns the old value (`atom.global.add`).
    ///
    /// `T` is `u32`, `i32`, `u64` or `f32`. The access is relaxed: it does not order other memory
    /// accesses. If the result is not needed, [`red_add`](Ptr::red_add) is cheaper.
    ///
    /// # Example: a counter for the whole grid
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// k.when(k.tid().eq(0), || a.i.at(0).red_add(1u32));
    /// let slot = a.i.at(1).atom_add(1u32);
    /// a.x.at(slot).st(1.0);
    /// # })?;
    /// assert!(ptx.contains("red.global.add.u32"));
    /// assert!(ptx.contains("atom.global.add.u32"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn atom_add(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_ADD, [v.operand()])
    }
    /// Stores the larger of the memory and `v` atomically and returns the old value
    /// (`atom.global.max`).
    ///
    /// `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_max(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_MAX, [v.operand()])
    }
    /// Stores the smaller of the memory and `v` atomically and returns the old value
    /// (`atom.global.min`).
    ///
    /// `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_min(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_MIN, [v.operand()])
    }
    /// Stores `v` atomically and returns the old value (`atom.global.exch.b32`).
    ///
    /// `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_exch(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_EXCH, [v.operand()])
    }
    /// Compares and swaps atomically: stores `v` if the memory holds `expected`
    /// (`atom.global.cas.b32`).
    ///
    /// Returns the old value, which is `expected` if `v` was stored. `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_cas(self, expected: impl Src<'k, T>, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_CAS, [expected.operand(), v.operand()])
    }
    /// Adds `v` atomically without returning the old value (`red.global.add`).
    ///
    /// `T` is `u32`, `i32`, `u64` or `f32`. An `f32` sum flushes denormals.
    #[track_caller]
    pub fn red_add(self, v: impl Src<'k, T>) {
        self.k.inst(
            &isa::RED_ADD,
            <T as Ty>::KIND,
            None,
            [],
            [self.addr(), v.operand()],
        )
    }
    /// Stores a 32-bit value and publishes all earlier writes of this thread to the device and the
    /// host (`st.release.sys.global`).
    ///
    /// Use it to signal the host through mapped memory.
    #[track_caller]
    pub fn st_release_sys(self, v: impl Src<'k, T>) {
        self.k.inst(
            &isa::ST_RELEASE_SYS,
            <T as Ty>::KIND,
            None,
            [],
            [self.addr(), v.operand()],
        )
    }
    /// Loads a 32-bit value and acquires (`ld.acquire.gpu.global`).
    ///
    /// If the value was stored by [`st_release`](Ptr::st_release), this thread also sees everything
    /// that the storing thread wrote before.
    #[track_caller]
    pub fn ld_acquire(self) -> Val<'k, T> {
        self.fetch(&isa::LD_ACQUIRE, [])
    }
    /// Stores a 32-bit value and publishes all earlier writes of this thread to the device
    /// (`st.release.gpu.global`).
    ///
    /// A thread that reads the value with [`ld_acquire`](Ptr::ld_acquire) sees these writes.
    #[track_caller]
    pub fn st_release(self, v: impl Src<'k, T>) {
        self.k.inst(
            &isa::ST_RELEASE,
            <T as Ty>::KIND,
            None,
            [],
            [self.addr(), v.operand()],
        )
    }
}

impl<'k> Ptr<'k, u32, ReadWrite> {
    /// Takes the next ticket: returns the old value and adds 1, or wraps to 0 after `last`
    /// (`atom.acq_rel.gpu.global.inc.u32`).
    ///
    /// The ticket orders memory in both directions. It publishes the earlier writes of this thread,
    /// and the thread sees the writes of threads that took earlier tickets. The block that takes
    /// the last ticket can therefore combine the results of all blocks, and the counter is 0 again
    /// for the next launch.
    ///
    /// # Example: the last block of a grid finishes the work
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// k.when(k.tid().eq(0), || {
    ///     let last = k.nctaid() - 1;
    ///     let ticket = a.i.at(0).ticket(last);
    ///     k.when(ticket.eq(last), || a.x.at(0).st(1.0));
    /// });
    /// # })?;
    /// assert!(ptx.contains("atom.acq_rel.gpu.global.inc.u32"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn ticket(self, last: impl Src<'k, u32>) -> Val<'k, u32> {
        self.fetch(&isa::ATOM_TICKET, [last.operand()])
    }
    /// Adds `v` atomically and publishes all earlier writes of this thread to the device
    /// (`red.release.gpu.global.add.u32`).
    #[track_caller]
    pub fn red_release(self, v: impl Src<'k, u32>) {
        self.k.inst(
            &isa::RED_RELEASE,
            Kind::U32,
            None,
            [],
            [self.addr(), v.operand()],
        )
    }
}

impl<'k, T: Elem + Ordered + Num> Ptr<'k, T, Shared> {
    #[track_caller]
    fn fetch_shared(self, op: &'static Op, src: &[Operand]) -> Val<'k, T> {
        let d = self.k.fresh::<T>();
        let src: InlineVec<_> = std::iter::once(self.addr())
            .chain(src.iter().cloned())
            .collect();
        self.k.inst(op, T::KIND, None, [d.reg], src);
        d
    }
    /// Adds `v` to shared memory atomically and returns the old value (`atom.shared.add`).
    ///
    /// `T` is `u32`, `i32`, `u64` or `f32`.
    #[track_caller]
    pub fn atom_add(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_ADD, &[v.operand()])
    }
    /// Stores the larger of the shared memory and `v` atomically and returns the old value
    /// (`atom.shared.max`).
    ///
    /// `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_max(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_MAX, &[v.operand()])
    }
    /// Stores the smaller of the shared memory and `v` atomically and returns the old value
    /// (`atom.shared.min`).
    ///
    /// `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_min(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_MIN, &[v.operand()])
    }
    /// Stores `v` in shared memory atomically and returns the old value (`atom.shared.exch.b32`).
    ///
    /// `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_exch(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_EXCH, &[v.operand()])
    }
    /// Compares and swaps in shared memory atomically: stores `v` if the memory holds `expected`
    /// (`atom.shared.cas.b32`).
    ///
    /// Returns the old value, which is `expected` if `v` was stored. `T` is `u32` or `i32`.
    #[track_caller]
    pub fn atom_cas(self, expected: impl Src<'k, T>, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_CAS, &[expected.operand(), v.operand()])
    }
    /// Adds `v` to shared memory atomically without returning the old value (`red.shared.add`).
    ///
    /// `T` is `u32`, `i32`, `u64` or `f32`.
    #[track_caller]
    pub fn red_add(self, v: impl Src<'k, T>) {
        self.k.inst(
            &isa::RED_SHARED_ADD,
            <T as Ty>::KIND,
            None,
            [],
            [self.addr(), v.operand()],
        )
    }
}

impl<'k> Builder<'k> {
    /// Allocates a static `.shared` array of `len` elements, aligned to 16 bytes, and returns its
    /// address.
    ///
    /// The array has no initial value. If two arrays have the same name, the second one gets a
    /// numeric suffix. Static and dynamic shared memory of a block together are limited by the
    /// device, usually to 48 KiB unless the launch opts in to more.
    ///
    /// # Example: a sum over the block
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let sums = k.shared::<f32>("sums", 4);
    /// let mut sum = k.var(a.x.at(k.tid()).ld());
    /// for lanes in [16u32, 8, 4, 2, 1] {
    ///     sum += sum.get().shfl_bfly(lanes);
    /// }
    /// k.when(k.lane().eq(0), || sums.at(k.warp()).st(&sum));
    /// k.barrier();
    /// let [s0, s1, s2, s3] = sums.ld4();
    /// a.x.at(k.tid()).st(s0 + s1 + (s2 + s3));
    /// # })?;
    /// assert!(ptx.contains(".shared .align 16 .b8 sums[16];"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn shared<T: Elem>(self, name: &str, len: u32) -> Ptr<'k, T, Shared> {
        self.shared_array(name, Some(len.saturating_mul(T::MEM.bytes())), LEAST_ALIGN)
    }

    /// Returns the address of the dynamic shared memory, whose size is chosen at launch
    /// ([`Grid::shared`](crate::Grid)).
    ///
    /// It is aligned to 16 bytes. All dynamic arrays of a kernel refer to the same memory.
    #[track_caller]
    pub fn dynamic_shared<T: Elem>(self, name: &str) -> Ptr<'k, T, Shared> {
        self.shared_array(name, None, LEAST_ALIGN)
    }

    /// Returns the address of the dynamic shared memory, aligned to 1024 bytes as
    /// [tiles](crate::Tile) require.
    #[track_caller]
    pub fn tile_memory(self, name: &str) -> Ptr<'k, u8, Shared> {
        self.shared_array(name, None, 1024)
    }

    #[track_caller]
    fn shared_array<T: Elem>(
        self,
        name: &str,
        bytes: Option<u32>,
        align: u32,
    ) -> Ptr<'k, T, Shared> {
        // Helper functions that allocate shared memory may run twice in one kernel, so a name that
        // is already used gets a suffix instead of an error.
        let taken = self
            .state
            .borrow()
            .shared
            .iter()
            .filter(|s| base_name(&s.name) == name)
            .count();
        let name = if taken == 0 {
            name.to_string()
        } else {
            format!("{name}_{taken}")
        };
        self.state.borrow_mut().shared.push(SharedArray {
            name: name.clone(),
            bytes,
            align,
        });

        // The address goes through a register because most uses add an index to it.
        let address: U32 = self.emit(&isa::MOV, Kind::U32, [Operand::Symbol(name.into())]);
        Ptr::new(self, address.reg)
    }
}

/// Returns `name` without the numeric suffix that a second array of the same name gets.
fn base_name(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((base, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}
