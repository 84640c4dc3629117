//! The registers of a warp, with a value for each of 32 lanes, and the typed values that
//! instructions see in them.
//!
//! 32-bit and 64-bit registers have a file each. Narrower values occupy a 32-bit register. A
//! predicate is one bit per lane. `defined` has a bit for each lane that has written the register.

pub(crate) mod value_marks;

use half::{bf16, f16};

use crate::Fault;
use crate::module::registers::value_marks::Marks;
use crate::syntax::types::Type;

/// The registers of one width.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegisterFile<T> {
    pub(crate) lanes: Vec<[T; 32]>,
    pub(crate) defined: Vec<u32>,
}

impl<T: Copy> RegisterFile<T> {
    fn take_lanes(&mut self, other: &RegisterFile<T>, lanes: u32) {
        for (to, from) in self.lanes.iter_mut().zip(&other.lanes) {
            let taken = to
                .iter_mut()
                .zip(from)
                .enumerate()
                .filter(|(lane, _)| lanes >> lane & 1 != 0);
            taken.for_each(|(_, (to, from))| *to = *from);
        }
        for (to, from) in self.defined.iter_mut().zip(&other.defined) {
            *to = *to & !lanes | from & lanes;
        }
    }
}

/// All registers of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regs {
    pub(crate) w32: RegisterFile<u32>,
    pub(crate) w64: RegisterFile<u64>,
    pub(crate) pred: Vec<u32>,
    pub(crate) pred_defined: Vec<u32>,
    /// The marks of NaN and infinite values, if arithmetic is checked.
    pub(crate) spoilt: Marks,
    /// The marks of pointers by their origin, if provenance is checked.
    pub(crate) pointers: Marks,
    /// Faults of loads from uninitialized memory, which are reported when the register is used.
    pub(crate) put_off: Vec<PutOff>,
}

/// A fault of a load that is reported when the loaded value is used.
#[derive(Clone, Debug)]
pub(crate) struct PutOff {
    /// The width of the register file: 64, 32, or 1 for predicates.
    file: u32,
    slot: u32,
    lanes: u32,
    fault: Box<Fault>,
}

/// Returns the width of the register file for registers of a width.
fn file_of(bits: u32) -> u32 {
    if matches!(bits, 1 | 64) { bits } else { 32 }
}

/// A register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Bank {
    W32,
    W64,
    Pred,
}

impl Bank {
    /// Returns the width of its registers.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Bank::W32 => 32,
            Bank::W64 => 64,
            Bank::Pred => 1,
        }
    }
}

/// A register that is read by lanes that have not written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undefined {
    pub(crate) bank: Bank,
    pub(crate) slot: u32,
    pub(crate) lanes: u32,
}

/// The bits of a register.
pub(crate) trait Raw: Copy + Default + PartialEq + 'static {
    const BANK: Bank;
    fn file(regs: &Regs) -> &RegisterFile<Self>;
    fn file_mut(regs: &mut Regs) -> &mut RegisterFile<Self>;
}

impl Raw for u32 {
    const BANK: Bank = Bank::W32;
    fn file(regs: &Regs) -> &RegisterFile<u32> {
        &regs.w32
    }
    fn file_mut(regs: &mut Regs) -> &mut RegisterFile<u32> {
        &mut regs.w32
    }
}

impl Raw for u64 {
    const BANK: Bank = Bank::W64;
    fn file(regs: &Regs) -> &RegisterFile<u64> {
        &regs.w64
    }
    fn file_mut(regs: &mut Regs) -> &mut RegisterFile<u64> {
        &mut regs.w64
    }
}

impl Regs {
    /// Returns the bits of a 32-bit or 64-bit register in a lane, initialized or not.
    pub(crate) fn bits(&self, (bank, slot): (Bank, u32), lane: usize) -> u64 {
        match bank {
            Bank::W64 => self.w64.lanes[slot as usize][lane],
            _ => self.w32.lanes[slot as usize][lane].into(),
        }
    }

    /// Returns the values of a register, which must be initialized in the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn get<R: Raw>(&self, slot: u32, mask: u32) -> Result<&[R; 32], Undefined> {
        let file = R::file(self);
        let missing = mask & !file.defined[slot as usize];
        if missing != 0 {
            return Err(Undefined {
                bank: R::BANK,
                slot,
                lanes: missing,
            });
        }

        Ok(&file.lanes[slot as usize])
    }

    /// Writes a register in the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set<R: Raw>(&mut self, slot: u32, mask: u32, values: &[R; 32]) {
        let file = R::file_mut(self);
        file.defined[slot as usize] |= mask;
        let to = &mut file.lanes[slot as usize];
        if mask == u32::MAX {
            *to = *values;
        } else {
            for (lane, (to, value)) in to.iter_mut().zip(values).enumerate() {
                if mask >> lane & 1 != 0 {
                    *to = *value;
                }
            }
        }
    }

    /// Returns the lanes in which a register is initialized.
    pub(crate) fn defined(&self, bits: u32, slot: u32) -> u32 {
        match file_of(bits) {
            64 => self.w64.defined[slot as usize],
            1 => self.pred_defined[slot as usize],
            _ => self.w32.defined[slot as usize],
        }
    }

    /// Marks a register as uninitialized in some lanes.
    pub(crate) fn forget(&mut self, bits: u32, slot: u32, lanes: u32) {
        let defined = match file_of(bits) {
            64 => &mut self.w64.defined,
            1 => &mut self.pred_defined,
            _ => &mut self.w32.defined,
        };
        defined[slot as usize] &= !lanes;
        let same = self
            .put_off
            .iter_mut()
            .filter(|p| (p.file, p.slot) == (file_of(bits), slot));
        same.for_each(|p| p.lanes &= !lanes);
        self.put_off.retain(|p| p.lanes != 0);
    }

    /// Copies several registers at the same time: all are read before any is written.
    pub(crate) fn copy_all(&mut self, mask: u32, copies: &[RegisterCopy]) -> Result<(), Undefined> {
        let mut values = Vec::new();
        for copy in copies {
            values.push(match copy.bank {
                Bank::W64 => *self.get::<u64>(copy.from, mask)?,
                _ => self.get::<u32>(copy.from, mask)?.map(u64::from),
            });
        }

        for (copy, values) in copies.iter().zip(values) {
            match copy.bank {
                Bank::W64 => self.set(copy.to, mask, &values),
                _ => self.set(copy.to, mask, &values.map(|v| v as u32)),
            }
        }

        Ok(())
    }

    /// Replaces the registers of some lanes by the registers of another context of the same call.
    pub(crate) fn take_lanes(&mut self, other: &Regs, lanes: u32) {
        self.w32.take_lanes(&other.w32, lanes);
        self.w64.take_lanes(&other.w64, lanes);
        let masks = self.pred.iter_mut().chain(&mut self.pred_defined);
        let others = other.pred.iter().chain(&other.pred_defined);
        masks
            .zip(others)
            .for_each(|(to, from)| *to = *to & !lanes | from & lanes);
        self.spoilt.take_lanes(&other.spoilt, lanes);
        self.pointers.take_lanes(&other.pointers, lanes);
        for p in &mut self.put_off {
            p.lanes &= !lanes;
        }

        let taken = other.put_off.iter().map(|p| PutOff {
            lanes: p.lanes & lanes,
            ..p.clone()
        });
        self.put_off.extend(taken);
        self.put_off.retain(|p| p.lanes != 0);
    }

    /// Records the fault of a load from uninitialized memory for some lanes of a register.
    pub(crate) fn put_off(&mut self, bits: u32, slot: u32, lanes: u32, fault: Box<Fault>) {
        self.forget(bits, slot, lanes);
        self.put_off.push(PutOff {
            file: file_of(bits),
            slot,
            lanes,
            fault,
        });
    }

    /// Returns the recorded fault of a register that was loaded from uninitialized memory.
    pub(crate) fn found_nothing(&self, bits: u32, slot: u32, lanes: u32) -> Option<&Fault> {
        let mut of = self
            .put_off
            .iter()
            .filter(|p| (p.file, p.slot) == (file_of(bits), slot));
        of.find(|p| p.lanes & lanes & !self.defined(bits, slot) != 0)
            .map(|p| &*p.fault)
    }

    /// Returns the recorded faults of a 32-bit register, with the lanes that they do not concern.
    pub(crate) fn put_off_of(&self, slot: u32) -> Vec<(u32, Box<Fault>)> {
        let of = self
            .put_off
            .iter()
            .filter(|p| (p.file, p.slot) == (32, slot));
        let lanes = |p: &PutOff| p.lanes & !self.w32.defined[slot as usize];
        of.map(|p| (lanes(p), p.fault.clone()))
            .filter(|(lanes, _)| *lanes != 0)
            .collect()
    }

    /// Returns the lanes in which a predicate is true. It must be initialized in the lanes of
    /// `mask`.
    #[inline(always)]
    pub(crate) fn pred(&self, slot: u32, mask: u32) -> Result<u32, Undefined> {
        let missing = mask & !self.pred_defined[slot as usize];
        if missing != 0 {
            return Err(Undefined {
                bank: Bank::Pred,
                slot,
                lanes: missing,
            });
        }
        Ok(self.pred[slot as usize])
    }

    /// Writes a predicate in the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set_pred(&mut self, slot: u32, mask: u32, value: u32) {
        let to = &mut self.pred[slot as usize];
        *to = *to & !mask | value & mask;
        self.pred_defined[slot as usize] |= mask;
    }
}

/// A PTX type and its representation in a register.
pub(crate) trait RegisterValue: Copy {
    const TYPE: Type;
    type Raw: Raw;
    fn from_raw(raw: Self::Raw) -> Self;
    fn to_raw(self) -> Self::Raw;
}

/// Untyped 16 bits, for registers of any kind.
#[derive(Clone, Copy)]
pub(crate) struct B16(pub(crate) u16);
/// Untyped 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct B32(pub(crate) u32);
/// Untyped 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct B64(pub(crate) u64);
/// A packed pair with the low half first.
#[derive(Clone, Copy)]
pub(crate) struct Two<T>(pub(crate) T, pub(crate) T);

macro_rules! values {
    ($($value:ty, $ty:ident, $raw:ty, $from:expr, $to:expr;)*) => {$(
        impl RegisterValue for $value {
            const TYPE: Type = Type::$ty;
            type Raw = $raw;
            #[inline(always)]
            fn from_raw(raw: $raw) -> Self {
                let f: fn($raw) -> $value = $from;
                f(raw)
            }
            #[inline(always)]
            fn to_raw(self) -> $raw {
                let f: fn($value) -> $raw = $to;
                f(self)
            }
        }
    )*};
}

values! {
    u16, U16, u32, |r| r as u16, |v| v.into();
    i16, S16, u32, |r| r as i16, |v| (v as u16).into();
    u32, U32, u32, |r| r, |v| v;
    i32, S32, u32, |r| r as i32, |v| v as u32;
    u64, U64, u64, |r| r, |v| v;
    i64, S64, u64, |r| r as i64, |v| v as u64;
    f32, F32, u32, f32::from_bits, f32::to_bits;
    f64, F64, u64, f64::from_bits, f64::to_bits;
    f16, F16, u32, |r| f16::from_bits(r as u16), |v| v.to_bits().into();
    bf16, Bf16, u32, |r| bf16::from_bits(r as u16), |v| v.to_bits().into();
    B16, B16, u32, |r| B16(r as u16), |v| v.0.into();
    B32, B32, u32, B32, |v| v.0;
    B64, B64, u64, B64, |v| v.0;
    Two<u16>, U16x2, u32, |r| Two(r as u16, (r >> 16) as u16), |v| u32::from(v.0) | u32::from(v.1) << 16;
    Two<i16>, S16x2, u32, |r| Two(r as i16, (r >> 16) as i16),
        |v| u32::from(v.0 as u16) | u32::from(v.1 as u16) << 16;
    Two<f32>, F32x2, u64, |r| Two(f32::from_bits(r as u32), f32::from_bits((r >> 32) as u32)),
        |v| u64::from(v.0.to_bits()) | u64::from(v.1.to_bits()) << 32;
    Two<f16>, F16x2, u32, |r| Two(f16::from_bits(r as u16), f16::from_bits((r >> 16) as u16)),
        |v| u32::from(v.0.to_bits()) | u32::from(v.1.to_bits()) << 16;
    Two<bf16>, Bf16x2, u32, |r| Two(bf16::from_bits(r as u16), bf16::from_bits((r >> 16) as u16)),
        |v| u32::from(v.0.to_bits()) | u32::from(v.1.to_bits()) << 16;
}

/// The operands of an arithmetic instruction: destinations `d` and `e`, sources `a`, `b` and `c`,
/// and a constant `x` of the row. Each operand is a slot in the bank of its type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperandSlots {
    pub(crate) d: u32,
    pub(crate) e: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) x: u32,
}

/// A function that executes one arithmetic instruction for the lanes of a mask.
pub(crate) type Alu = fn(&mut Regs, u32, &OperandSlots) -> Result<(), Undefined>;

/// The number of lanes that are computed together. The compiler keeps this many in vector
/// registers.
const CHUNK: usize = 8;

/// Writes `f(lane)` to every lane of `mask`. A source may be the destination, because a chunk is
/// read before it is written.
#[inline(always)]
fn fill<R: Raw>(regs: &mut Regs, d: u32, mask: u32, mut f: impl FnMut(&Regs, usize) -> [R; CHUNK]) {
    for chunk in 0..32 / CHUNK {
        let out = f(regs, chunk);
        let to = &mut R::file_mut(regs).lanes[d as usize]
            .as_chunks_mut::<CHUNK>()
            .0[chunk];
        if mask == u32::MAX {
            *to = out;
        } else {
            for (i, (to, out)) in to.iter_mut().zip(out).enumerate() {
                *to = if mask >> (chunk * CHUNK + i) & 1 != 0 {
                    out
                } else {
                    *to
                };
            }
        }
    }
    R::file_mut(regs).defined[d as usize] |= mask;
}

#[inline(always)]
fn chunk<V: RegisterValue>(regs: &Regs, slot: u32, chunk: usize) -> [V; CHUNK] {
    V::Raw::file(regs).lanes[slot as usize]
        .as_chunks::<CHUNK>()
        .0[chunk]
        .map(V::from_raw)
}

/// Computes `d = f(a)` in every lane of `mask`.
#[inline(always)]
pub(crate) fn map1<A: RegisterValue, D: RegisterValue>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    f: impl Fn(A) -> D,
) -> Result<(), Undefined> {
    regs.get::<A::Raw>(s.a, mask)?;
    fill(regs, s.d, mask, |regs, k| {
        let a = chunk::<A>(regs, s.a, k);
        std::array::from_fn(|i| f(a[i]).to_raw())
    });
    Ok(())
}

/// Computes `d = f(a, b)` in every lane of `mask`.
#[inline(always)]
pub(crate) fn map2<A: RegisterValue, B: RegisterValue, D: RegisterValue>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    f: impl Fn(A, B) -> D,
) -> Result<(), Undefined> {
    regs.get::<A::Raw>(s.a, mask)?;
    regs.get::<B::Raw>(s.b, mask)?;
    fill(regs, s.d, mask, |regs, k| {
        let a = chunk::<A>(regs, s.a, k);
        let b = chunk::<B>(regs, s.b, k);
        std::array::from_fn(|i| f(a[i], b[i]).to_raw())
    });
    Ok(())
}

/// Computes `d = f(a, b, c)` in every lane of `mask`.
#[inline(always)]
pub(crate) fn map3<A: RegisterValue, B: RegisterValue, C: RegisterValue, D: RegisterValue>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    f: impl Fn(A, B, C) -> D,
) -> Result<(), Undefined> {
    regs.get::<A::Raw>(s.a, mask)?;
    regs.get::<B::Raw>(s.b, mask)?;
    regs.get::<C::Raw>(s.c, mask)?;
    fill(regs, s.d, mask, |regs, k| {
        let a = chunk::<A>(regs, s.a, k);
        let b = chunk::<B>(regs, s.b, k);
        let c = chunk::<C>(regs, s.c, k);
        std::array::from_fn(|i| f(a[i], b[i], c[i]).to_raw())
    });
    Ok(())
}

/// Computes `d = f(a)` like [`map1`], with a function call per lane. For instructions that are rare
/// in inner loops.
pub(crate) fn each1<A: RegisterValue, D: RegisterValue>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    f: fn(A) -> D,
) -> Result<(), Undefined> {
    let a = regs.get::<A::Raw>(s.a, mask)?;
    let out = each(mask, |i| f(A::from_raw(a[i])));
    regs.set(s.d, mask, &out);
    Ok(())
}

/// Computes `d = f(a, b)` like [`map2`], with a function call per lane.
pub(crate) fn each2<A: RegisterValue, B: RegisterValue, D: RegisterValue>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    f: fn(A, B) -> D,
) -> Result<(), Undefined> {
    let a = regs.get::<A::Raw>(s.a, mask)?;
    let b = regs.get::<B::Raw>(s.b, mask)?;
    let out = each(mask, |i| f(A::from_raw(a[i]), B::from_raw(b[i])));
    regs.set(s.d, mask, &out);
    Ok(())
}

/// Computes `d = f(a, b, c)` like [`map3`], with a function call per lane.
pub(crate) fn each3<A: RegisterValue, B: RegisterValue, C: RegisterValue, D: RegisterValue>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    f: fn(A, B, C) -> D,
) -> Result<(), Undefined> {
    let a = regs.get::<A::Raw>(s.a, mask)?;
    let b = regs.get::<B::Raw>(s.b, mask)?;
    let c = regs.get::<C::Raw>(s.c, mask)?;
    let out = each(mask, |i| {
        f(A::from_raw(a[i]), B::from_raw(b[i]), C::from_raw(c[i]))
    });
    regs.set(s.d, mask, &out);
    Ok(())
}

fn each<D: RegisterValue>(mask: u32, mut f: impl FnMut(usize) -> D) -> [D::Raw; 32] {
    std::array::from_fn(|lane| {
        if mask >> lane & 1 != 0 {
            f(lane).to_raw()
        } else {
            D::Raw::default()
        }
    })
}

/// A copy of a register to another register of its bank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterCopy {
    pub(crate) bank: Bank,
    pub(crate) to: u32,
    pub(crate) from: u32,
}
