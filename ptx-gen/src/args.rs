//! A kernel's argument list, declared once and used on every side.
//!
//! The struct that [`args!`](crate::args) makes is generic over the [`Side`] it lives on: pointers and registers
//! in the program ([`Dev`]), lengths and numbers for the launch contract ([`Shape`]), slices for the reference
//! ([`Cpu`]), and device buffers at launch, which the driver crate adds.

use crate::build::{Builder, U64, Val};
use crate::elem::{CpuArg, Elem};
use crate::ir::{Access, Base, Operand, Param, ParamKind};
use crate::isa;
use crate::mem::{Ptr, ReadOnly, ReadWrite, WriteOnly};
use crate::tensor::TensorArg;
use crate::ty::{Kind, Lit, Scalar, Ty};
use std::marker::PhantomData;

/// A place an argument list can live.
pub trait Side {
    /// A buffer that is read.
    type In<T: Elem>;
    /// A buffer that is written.
    type Out<T: Elem>;
    /// A buffer that is read and written.
    type InOut<T: Elem>;
    /// A tensor, by its map, that is read.
    type InMap<T: Elem>;
    /// A tensor, by its map, that is written.
    type OutMap<T: Elem>;
    /// A value.
    type Scalar<T: Scalar>;
}

/// In the program: pointers and registers.
pub struct Dev<'k>(PhantomData<&'k ()>);
impl<'k> Side for Dev<'k> {
    type In<T: Elem> = Ptr<'k, T, ReadOnly>;
    type Out<T: Elem> = Ptr<'k, T, WriteOnly>;
    type InOut<T: Elem> = Ptr<'k, T, ReadWrite>;
    type InMap<T: Elem> = TensorArg<'k, T, ReadOnly>;
    type OutMap<T: Elem> = TensorArg<'k, T, WriteOnly>;
    type Scalar<T: Scalar> = Val<'k, T>;
}

/// In the reference: slices and numbers.
pub struct Cpu<'a>(PhantomData<&'a ()>);
impl<'a> Side for Cpu<'a> {
    type In<T: Elem> = &'a [T];
    type Out<T: Elem> = &'a mut [T];
    type InOut<T: Elem> = &'a mut [T];
    type InMap<T: Elem> = &'a [T];
    type OutMap<T: Elem> = &'a mut [T];
    type Scalar<T: Scalar> = T;
}

/// In the launch contract: lengths in elements, and numbers.
pub struct Shape;
impl Side for Shape {
    type In<T: Elem> = usize;
    type Out<T: Elem> = usize;
    type InOut<T: Elem> = usize;
    type InMap<T: Elem> = usize;
    type OutMap<T: Elem> = usize;
    type Scalar<T: Scalar> = T;
}

/// Gives the fields of an argument list, in order.
pub trait Source<S: Side> {
    /// The next field, a buffer that is read.
    fn input<T: Elem>(&mut self, field: Field) -> S::In<T>;
    /// The next field, a buffer that is written.
    fn output<T: Elem>(&mut self, field: Field) -> S::Out<T>;
    /// The next field, a buffer that is read and written.
    fn inout<T: Elem>(&mut self, field: Field) -> S::InOut<T>;
    /// The next field, a tensor that is read by its map.
    fn input_map<T: Elem>(&mut self, field: Field) -> S::InMap<T>;
    /// The next field, a tensor that is written by its map.
    fn output_map<T: Elem>(&mut self, field: Field) -> S::OutMap<T>;
    /// The next field, a value.
    fn scalar<T: Scalar>(&mut self, field: Field) -> S::Scalar<T>;
}

/// Takes the fields of an argument list, in order.
pub trait Sink<S: Side> {
    /// A buffer that is read.
    fn input<T: Elem>(&mut self, field: Field, v: &S::In<T>);
    /// A buffer that is written.
    fn output<T: Elem>(&mut self, field: Field, v: &S::Out<T>);
    /// A buffer that is read and written.
    fn inout<T: Elem>(&mut self, field: Field, v: &S::InOut<T>);
    /// A tensor that is read by its map.
    fn input_map<T: Elem>(&mut self, field: Field, v: &S::InMap<T>);
    /// A tensor that is written by its map.
    fn output_map<T: Elem>(&mut self, field: Field, v: &S::OutMap<T>);
    /// A value.
    fn scalar<T: Scalar>(&mut self, field: Field, v: &S::Scalar<T>);
}

/// A field of an argument list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its doc comment.
    pub doc: &'static str,
}

/// An argument list on side `S`.
pub trait ArgList<S: Side>: Sized {
    /// The list whose fields `from` gives.
    fn make(from: &mut impl Source<S>) -> Self;
    /// Shows each field to `to`.
    fn each(&self, to: &mut impl Sink<S>);
}

/// The type of one argument, on any side.
pub trait ArgTy {
    /// What it is on side `S`.
    type On<S: Side>;
    /// Takes it from a source.
    fn take<S: Side>(from: &mut impl Source<S>, field: Field) -> Self::On<S>;
    /// Shows it to a sink.
    fn show<S: Side>(v: &Self::On<S>, to: &mut impl Sink<S>, field: Field);
}

/// A buffer that the kernel reads.
pub struct In<T>(PhantomData<T>);
/// A buffer that the kernel writes.
pub struct Out<T>(PhantomData<T>);
/// A buffer that the kernel reads and writes.
pub struct InOut<T>(PhantomData<T>);
/// A tensor that the kernel reads, passed as a tensor map by value.
pub struct InMap<T>(PhantomData<T>);
/// A tensor that the kernel writes, passed as a tensor map by value.
pub struct OutMap<T>(PhantomData<T>);

macro_rules! arg_types {
    ($($ty:ty: $on:ident $method:ident $($t:ident)?;)*) => {$(
        impl$(<$t: Elem>)? ArgTy for $ty {
            type On<S: Side> = arg_types!(@on S $on $ty $(, $t)?);
            fn take<S: Side>(from: &mut impl Source<S>, field: Field) -> Self::On<S> {
                from.$method(field)
            }
            fn show<S: Side>(v: &Self::On<S>, to: &mut impl Sink<S>, field: Field) {
                to.$method::<arg_types!(@elem $ty $(, $t)?)>(field, v)
            }
        }
    )*};
    (@on $s:ident $on:ident $ty:ty, $t:ident) => { $s::$on<$t> };
    (@on $s:ident $on:ident $ty:ty) => { $s::$on<$ty> };
    (@elem $ty:ty, $t:ident) => { $t };
    (@elem $ty:ty) => { $ty };
}
arg_types! {
    In<T>: In input T;
    Out<T>: Out output T;
    InOut<T>: InOut inout T;
    InMap<T>: InMap input_map T;
    OutMap<T>: OutMap output_map T;
    u32: Scalar scalar;
    i32: Scalar scalar;
    u64: Scalar scalar;
    f32: Scalar scalar;
}

/// No side: an argument list declared with [`args!`](crate::args) as the type of a field of another one.
///
/// It is the default side, so that a field names the list without one: `grid: GridArgs`.
pub enum Declared {}
impl Side for Declared {
    type In<T: Elem> = ();
    type Out<T: Elem> = ();
    type InOut<T: Elem> = ();
    type InMap<T: Elem> = ();
    type OutMap<T: Elem> = ();
    type Scalar<T: Scalar> = ();
}

/// Declares a kernel's argument list once, for every side.
///
/// The doc comment of each field gives its shape first; it goes into the index of kernels.
///
/// A field can be another argument list, for arguments that several kernels share. Its fields take their places
/// where the field stands, under their own names: the kernel's parameters are one flat list, in the order of
/// declaration. A name that occurs twice in that list is an error of `build()`.
///
/// ```
/// use ptx_gen::*;
///
/// args! {
///     /// Where a matrix is, and its shape.
///     pub struct MatrixArgs {
///         /// `[rows, n]`
///         w: In<f32>,
///         /// Rows.
///         rows: u32,
///         /// Row length.
///         n: u32,
///     }
/// }
/// args! {
///     /// `y = W x`
///     pub struct MatvecArgs {
///         /// The matrix.
///         matrix: MatrixArgs,
///         /// `[n]`
///         x: In<f32>,
///         /// `[rows]`
///         y: Out<f32>,
///     }
/// }
///
/// // The parameters are `w`, `rows`, `n`, `x`, `y`. In the launch contract:
/// fn fits(a: &MatvecArgs<Shape>) -> bool {
///     a.matrix.fits() && a.x == a.matrix.n as usize && a.y == a.matrix.rows as usize
/// }
/// impl MatrixArgs<Shape> {
///     /// The clause of every kernel with a matrix.
///     fn fits(&self) -> bool {
///         self.w == self.rows as usize * self.n as usize
///     }
/// }
/// assert!(fits(&MatvecArgs { matrix: MatrixArgs { w: 6, rows: 2, n: 3 }, x: 3, y: 2 }));
/// ```
#[macro_export]
macro_rules! args {
    ($(#[$m:meta])* pub struct $name:ident { $($(#[doc = $doc:literal])* $f:ident: $t:ty),* $(,)? }) => {
        $(#[$m])*
        pub struct $name<S: $crate::Side = $crate::Declared> {
            $($(#[doc = $doc])* pub $f: <$t as $crate::ArgTy>::On<S>),*
        }
        impl<S: $crate::Side> $crate::ArgList<S> for $name<S> {
            fn make(from: &mut impl $crate::Source<S>) -> Self {
                $name { $($f: <$t as $crate::ArgTy>::take(from, $crate::args!(@field $f $($doc)*))),* }
            }
            fn each(&self, to: &mut impl $crate::Sink<S>) {
                $(<$t as $crate::ArgTy>::show(&self.$f, to, $crate::args!(@field $f $($doc)*));)*
            }
        }
        // As a field of another list, it stands for its own fields. The field's name and doc comment stay in Rust.
        impl $crate::ArgTy for $name {
            type On<S: $crate::Side> = $name<S>;
            fn take<S: $crate::Side>(from: &mut impl $crate::Source<S>, _: $crate::Field) -> $name<S> {
                $crate::ArgList::make(from)
            }
            fn show<S: $crate::Side>(v: &$name<S>, to: &mut impl $crate::Sink<S>, _: $crate::Field) {
                $crate::ArgList::each(v, to)
            }
        }
        // On these two sides every field is `Copy`, so the list is, too.
        $crate::args!(@copy $name $crate::Dev<'_>);
        $crate::args!(@copy $name $crate::Shape);
    };
    (@field $f:ident $($doc:literal)*) => {
        const { $crate::Field { name: stringify!($f), doc: concat!($($doc, "\n"),*).trim_ascii() } }
    };
    (@copy $name:ident $side:ty) => {
        impl ::core::clone::Clone for $name<$side> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl ::core::marker::Copy for $name<$side> {}
    };
}

impl<'k> Builder<'k> {
    #[track_caller]
    fn declare<T: Lit>(self, field: Field, kind: ParamKind) -> Val<'k, T> {
        self.state.borrow_mut().params.push(Param {
            name: field.name,
            doc: field.doc,
            kind,
        });
        self.emit(
            &isa::LD_PARAM,
            T::KIND,
            [Operand::Addr(Base::Symbol(field.name), 0)],
        )
    }
    #[track_caller]
    fn pointer<T: Elem, A: crate::mem::Space>(self, field: Field, access: Access) -> Ptr<'k, T, A> {
        let generic: U64 = self.declare(field, ParamKind::Buffer(T::MEM, access));
        let global: U64 = self.emit(&isa::CVTA_TO_GLOBAL, Kind::U64, [Operand::Reg(generic.reg)]);
        Ptr::new(self, global.reg)
    }
    #[track_caller]
    fn tensor_map<T: Elem, A: Copy>(self, field: Field, access: Access) -> TensorArg<'k, T, A> {
        let kind = ParamKind::TensorMap(T::MEM, access);
        self.state.borrow_mut().params.push(Param {
            name: field.name,
            doc: field.doc,
            kind,
        });
        let address: U64 = self.emit(
            &isa::PARAM_ADDRESS,
            Kind::U64,
            [Operand::Symbol(field.name.into())],
        );
        let generic: U64 = self.emit(&isa::CVTA_PARAM, Kind::U64, [Operand::Reg(address.reg)]);
        TensorArg::new(self, generic.reg, field.name)
    }
}

impl<'k> Source<Dev<'k>> for Builder<'k> {
    fn input<T: Elem>(&mut self, field: Field) -> Ptr<'k, T, ReadOnly> {
        self.pointer(field, Access::Read)
    }
    fn output<T: Elem>(&mut self, field: Field) -> Ptr<'k, T, WriteOnly> {
        self.pointer(field, Access::Write)
    }
    fn inout<T: Elem>(&mut self, field: Field) -> Ptr<'k, T, ReadWrite> {
        self.pointer(field, Access::ReadWrite)
    }
    fn input_map<T: Elem>(&mut self, field: Field) -> TensorArg<'k, T, ReadOnly> {
        self.tensor_map(field, Access::Read)
    }
    fn output_map<T: Elem>(&mut self, field: Field) -> TensorArg<'k, T, WriteOnly> {
        self.tensor_map(field, Access::Write)
    }
    fn scalar<T: Scalar>(&mut self, field: Field) -> Val<'k, T> {
        self.declare(field, ParamKind::Scalar(<T as Ty>::KIND))
    }
}

/// An argument as the launch contract sees it, untyped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShapeArg {
    /// A buffer of this many elements.
    Len(usize),
    /// A value's bits, zero-extended.
    Scalar(u64),
}

pub(crate) struct Shapes<'a>(pub(crate) std::slice::Iter<'a, ShapeArg>);

impl Shapes<'_> {
    fn len(&mut self, field: Field) -> usize {
        match self.0.next() {
            Some(ShapeArg::Len(n)) => *n,
            _ => panic!(
                "argument {} is not a buffer; `check_args` refuses this first",
                field.name
            ),
        }
    }
}

impl Source<Shape> for Shapes<'_> {
    fn input<T: Elem>(&mut self, field: Field) -> usize {
        self.len(field)
    }
    fn output<T: Elem>(&mut self, field: Field) -> usize {
        self.len(field)
    }
    fn inout<T: Elem>(&mut self, field: Field) -> usize {
        self.len(field)
    }
    fn input_map<T: Elem>(&mut self, field: Field) -> usize {
        self.len(field)
    }
    fn output_map<T: Elem>(&mut self, field: Field) -> usize {
        self.len(field)
    }
    fn scalar<T: Scalar>(&mut self, field: Field) -> T {
        match self.0.next() {
            Some(ShapeArg::Scalar(bits)) => T::from_bits64(*bits),
            _ => panic!(
                "argument {} is not a value; `check_args` refuses this first",
                field.name
            ),
        }
    }
}

macro_rules! each_buffer {
    ($arg:expr, $v:ident => $buffer:expr, $bits:pat => $scalar:expr) => {
        match $arg {
            CpuArg::U8($v) => $buffer,
            CpuArg::S8($v) => $buffer,
            CpuArg::U16($v) => $buffer,
            CpuArg::U32($v) => $buffer,
            CpuArg::S32($v) => $buffer,
            CpuArg::U64($v) => $buffer,
            CpuArg::F32($v) => $buffer,
            CpuArg::F16($v) => $buffer,
            CpuArg::Bf16($v) => $buffer,
            CpuArg::Scalar($bits) => $scalar,
        }
    };
}

impl CpuArg {
    /// A value.
    pub fn scalar<T: Scalar>(v: T) -> CpuArg {
        CpuArg::Scalar(v.to_bits64())
    }

    /// What the launch contract sees of it.
    pub fn shape(&self) -> ShapeArg {
        each_buffer!(self, v => ShapeArg::Len(v.len()), bits => ShapeArg::Scalar(*bits))
    }

    /// Its type: of an element, or `None` for a value.
    pub fn elem(&self) -> Option<Kind> {
        fn kind<T: Elem>(_: &[T]) -> Option<Kind> {
            Some(T::MEM)
        }
        each_buffer!(self, v => kind(v), _ => None)
    }
}

pub(crate) struct CpuArgs<'a>(pub(crate) std::slice::IterMut<'a, CpuArg>);

impl<'a> CpuArgs<'a> {
    fn next(&mut self, field: Field) -> &'a mut CpuArg {
        self.0.next().unwrap_or_else(|| {
            panic!(
                "argument {} is missing; `check_args` refuses this first",
                field.name
            )
        })
    }
    fn buffer<T: Elem>(&mut self, field: Field) -> &'a mut [T] {
        T::of_mut(self.next(field)).unwrap_or_else(|| {
            panic!(
                "argument {} is of another type; `check_args` refuses this first",
                field.name
            )
        })
    }
}

impl<'a> Source<Cpu<'a>> for CpuArgs<'a> {
    fn input<T: Elem>(&mut self, field: Field) -> &'a [T] {
        self.buffer(field)
    }
    fn output<T: Elem>(&mut self, field: Field) -> &'a mut [T] {
        self.buffer(field)
    }
    fn inout<T: Elem>(&mut self, field: Field) -> &'a mut [T] {
        self.buffer(field)
    }
    fn input_map<T: Elem>(&mut self, field: Field) -> &'a [T] {
        self.buffer(field)
    }
    fn output_map<T: Elem>(&mut self, field: Field) -> &'a mut [T] {
        self.buffer(field)
    }
    fn scalar<T: Scalar>(&mut self, field: Field) -> T {
        match self.next(field) {
            CpuArg::Scalar(bits) => T::from_bits64(*bits),
            _ => panic!(
                "argument {} is not a value; `check_args` refuses this first",
                field.name
            ),
        }
    }
}
