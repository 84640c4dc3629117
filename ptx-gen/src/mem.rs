//! Pointers that know their element and their access, in global and in shared memory.

use crate::build::{Builder, Pred, Src, U32, Val, Var};
use crate::elem::Elem;
use crate::few::Few;
use crate::fold::literal;
use crate::ir::{Base, Operand, Reg, SharedArray};
use crate::isa::{self, Op};
use crate::ops::Ordered;
use crate::ty::{Kind, Num, Ty};
use std::array::from_fn;
use std::marker::PhantomData;

/// Marks global memory that the kernel only reads.
#[derive(Clone, Copy)]
pub struct ReadOnly;
/// Marks global memory that the kernel reads only once, past the L1 cache.
#[derive(Clone, Copy)]
pub struct ReadOnce;
/// Marks global memory that another kernel may have written while this one was starting. It is read past the L1 cache.
#[derive(Clone, Copy)]
pub struct Fresh;
/// Marks global memory that the kernel only writes.
#[derive(Clone, Copy)]
pub struct WriteOnly;
/// Marks global memory that the kernel reads and writes.
#[derive(Clone, Copy)]
pub struct ReadWrite;
/// Shared memory.
#[derive(Clone, Copy)]
pub struct Shared;

/// Shared memory of a block of the cluster.
#[derive(Clone, Copy)]
pub struct Peer;

/// Alignment of shared arrays in bytes, where nothing else is asked for.
const LEAST_ALIGN: u32 = 16;

/// The rows of an access, for one, two and four elements.
pub struct Rows([&'static Op; 3]);

/// What kind of memory a pointer leads to.
pub trait Space: Copy {
    /// The type of an address.
    const ADDRESS: Kind;
}
/// Memory that can be loaded from.
pub trait Loads: Space {
    /// The rows.
    const LD: Rows;
}
/// Memory that can be stored to.
pub trait Stores: Space {
    /// The rows.
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

/// A pointer to `T`s.
pub struct Ptr<'k, T, A> {
    pub(crate) k: Builder<'k>,
    base: Reg,
    /// Bytes.
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

    /// The address of element `i`: no instruction for a literal, else one.
    #[track_caller]
    pub fn at(self, i: impl Src<'k, u32>) -> Self {
        self.row(i, T::MEM.bytes())
    }

    /// The address `i` times `bytes` bytes on, computed in the width of an address.
    #[track_caller]
    pub fn row(self, i: impl Src<'k, u32>, bytes: impl Src<'k, u32>) -> Self {
        let (i, bytes) = (i.operand(), bytes.operand());
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

    /// The same address, as one of `U`s.
    pub fn cast<U: Elem>(self) -> Ptr<'k, U, A> {
        Ptr {
            k: self.k,
            base: self.base,
            offset: self.offset,
            access: PhantomData,
        }
    }

    /// The address, in a register.
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
    /// The same memory, read past the L1 cache: for what is read once.
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
    /// The same memory, read past the L1 cache: for what another kernel wrote while this one was starting.
    pub fn fresh(self) -> Ptr<'k, T, Fresh> {
        Ptr {
            k: self.k,
            base: self.base,
            offset: self.offset,
            access: PhantomData,
        }
    }
}

/// The distance, if the factors tell it and it fits an instruction's offset.
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
    /// The element here.
    #[track_caller]
    pub fn ld(self) -> Val<'k, T::Reg> {
        let [d] = self.load(A::LD.0[0]);
        d
    }
    /// Two elements from here on; the address is a multiple of their size.
    #[track_caller]
    pub fn ld2(self) -> [Val<'k, T::Reg>; 2] {
        self.load(A::LD.0[1])
    }
    #[track_caller]
    fn load_if(self, op: &'static Op, cond: Pred<'k>, to: &mut [Var<'k, T::Reg>]) {
        let dst: Few<_> = to.iter().map(|v| v.0.reg).collect();
        self.k
            .when(cond, || self.k.inst(op, T::MEM, None, dst, [self.addr()]));
    }
    /// Loads an element into a variable where `cond` holds; elsewhere it keeps what it had.
    #[track_caller]
    pub fn ld_if(self, cond: Pred<'k>, to: &mut Var<'k, T::Reg>) {
        self.load_if(A::LD.0[0], cond, std::slice::from_mut(to))
    }
    /// The same with two elements.
    #[track_caller]
    pub fn ld2_if(self, cond: Pred<'k>, to: &mut [Var<'k, T::Reg>; 2]) {
        self.load_if(A::LD.0[1], cond, to)
    }
    /// The same with four elements.
    #[track_caller]
    pub fn ld4_if(self, cond: Pred<'k>, to: &mut [Var<'k, T::Reg>; 4]) {
        self.load_if(A::LD.0[2], cond, to)
    }
    /// Four elements from here on; the address is a multiple of their size.
    #[track_caller]
    pub fn ld4(self) -> [Val<'k, T::Reg>; 4] {
        self.load(A::LD.0[2])
    }
}

impl<'k, T: Elem, A: Stores> Ptr<'k, T, A> {
    /// Stores `v` here.
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
    /// Stores two elements from here on; the address is a multiple of their size.
    #[track_caller]
    pub fn st2(self, v: [Val<'k, T::Reg>; 2]) {
        self.store(A::ST.0[1], &v)
    }
    /// Stores four elements from here on; the address is a multiple of their size.
    #[track_caller]
    pub fn st4(self, v: [Val<'k, T::Reg>; 4]) {
        self.store(A::ST.0[2], &v)
    }
}

impl<'k, T: Elem + Ordered + Num> Ptr<'k, T, WriteOnly> {
    /// Stores for kernels that load with [`fresh`](Ptr::fresh) while this one runs. 32 bits.
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
    /// Brings the line here into the L2 cache.
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
        let src: Few<_> = std::iter::once(self.addr()).chain(src).collect();
        self.k.inst(op, T::KIND, None, [d.reg], src);
        d
    }
    /// Adds `v` in one step; gives the old value.
    #[track_caller]
    pub fn atom_add(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_ADD, [v.operand()])
    }
    /// Keeps the larger of memory and `v` in one step; gives the old value.
    #[track_caller]
    pub fn atom_max(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_MAX, [v.operand()])
    }
    /// Keeps the smaller of memory and `v` in one step; gives the old value.
    #[track_caller]
    pub fn atom_min(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_MIN, [v.operand()])
    }
    /// Stores `v` in one step; gives the old value.
    #[track_caller]
    pub fn atom_exch(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_EXCH, [v.operand()])
    }
    /// Stores `v` if memory holds `expected`, in one step; gives the old value.
    #[track_caller]
    pub fn atom_cas(self, expected: impl Src<'k, T>, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch(&isa::ATOM_CAS, [expected.operand(), v.operand()])
    }
    /// Adds `v` in one step.
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
    /// Stores, and publishes to the device and the host all that this thread wrote before. 32 bits.
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
    /// Loads, and sees all that a thread of the device wrote before the store it reads released it. 32 bits.
    #[track_caller]
    pub fn ld_acquire(self) -> Val<'k, T> {
        self.fetch(&isa::LD_ACQUIRE, [])
    }
    /// Stores, and publishes to the device all that this thread wrote before. 32 bits.
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
    /// Draws a number from 0 to `last`, each in turn, over and over: one step, which publishes what this thread
    /// wrote before and sees what those who drew earlier published.
    #[track_caller]
    pub fn ticket(self, last: impl Src<'k, u32>) -> Val<'k, u32> {
        self.fetch(&isa::ATOM_TICKET, [last.operand()])
    }
    /// Adds `v` in one step, and publishes what this thread wrote before.
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
        let src: Few<_> = std::iter::once(self.addr())
            .chain(src.iter().cloned())
            .collect();
        self.k.inst(op, T::KIND, None, [d.reg], src);
        d
    }
    /// Adds `v` atomically and returns the old value.
    #[track_caller]
    pub fn atom_add(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_ADD, &[v.operand()])
    }
    /// Stores the maximum of the memory and `v` atomically and returns the old value. Integers of 32 bits.
    #[track_caller]
    pub fn atom_max(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_MAX, &[v.operand()])
    }
    /// Stores the minimum of the memory and `v` atomically and returns the old value. Integers of 32 bits.
    #[track_caller]
    pub fn atom_min(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_MIN, &[v.operand()])
    }
    /// Stores `v` atomically and returns the old value. Integers of 32 bits.
    #[track_caller]
    pub fn atom_exch(self, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_EXCH, &[v.operand()])
    }
    /// Stores `v` if the memory holds `expected`, atomically, and returns the old value. Integers of 32 bits.
    #[track_caller]
    pub fn atom_cas(self, expected: impl Src<'k, T>, v: impl Src<'k, T>) -> Val<'k, T> {
        self.fetch_shared(&isa::ATOM_SHARED_CAS, &[expected.operand(), v.operand()])
    }
    /// Adds `v` atomically, without a result.
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
    /// A `.shared` array of `len` elements, aligned to 16 bytes.
    #[track_caller]
    pub fn shared<T: Elem>(self, name: &str, len: u32) -> Ptr<'k, T, Shared> {
        self.shared_array(name, Some(len.saturating_mul(T::MEM.bytes())), LEAST_ALIGN)
    }

    /// The `.shared` array whose size the launch gives (`Grid::shared`), aligned to 16 bytes.
    ///
    /// All dynamic arrays of a kernel are the same memory.
    #[track_caller]
    pub fn dynamic_shared<T: Elem>(self, name: &str) -> Ptr<'k, T, Shared> {
        self.shared_array(name, None, LEAST_ALIGN)
    }

    /// The same, aligned to 1024 bytes, as [tiles](crate::Tile) are.
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
        let address: U32 = self.emit(&isa::MOV, Kind::U32, [Operand::Symbol(name.into())]);
        Ptr::new(self, address.reg)
    }
}

fn base_name(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((base, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}
