//! Argument lists: declared once with [`args!`](crate::args) and used on every side of a kernel.
//!
//! The struct that the macro declares is generic over the [`Side`]:
//!
//! - [`Dev`] in the program, where fields are pointers and registers.
//! - [`Shape`] in the launch contract, where fields are lengths and scalars.
//! - [`Cpu`] in the reference, where fields are slices and scalars.
//! - A side of the driver crate at a launch, where fields are device buffers.

use crate::build::{Builder, U64, Val};
use crate::elem::{CpuArg, Elem};
use crate::ir::{Access, Base, Operand, Param, ParamKind};
use crate::isa;
use crate::mem::{Ptr, ReadOnly, ReadWrite, WriteOnly};
use crate::tensor::TensorArg;
use crate::ty::{Kind, Lit, Scalar, Ty};
use std::marker::PhantomData;

/// A side on which an argument list is used. It decides the type of each field.
pub trait Side {
    /// The type of a buffer that the kernel reads.
    type In<T: Elem>;
    /// The type of a buffer that the kernel writes.
    type Out<T: Elem>;
    /// The type of a buffer that the kernel reads and writes.
    type InOut<T: Elem>;
    /// The type of a tensor that the kernel reads through a tensor map.
    type InMap<T: Elem>;
    /// The type of a tensor that the kernel writes through a tensor map.
    type OutMap<T: Elem>;
    /// The type of a value.
    type Scalar<T: Scalar>;
}

/// The device side: fields are pointers and registers of the program.
pub struct Dev<'k>(PhantomData<&'k ()>);
impl<'k> Side for Dev<'k> {
    type In<T: Elem> = Ptr<'k, T, ReadOnly>;
    type Out<T: Elem> = Ptr<'k, T, WriteOnly>;
    type InOut<T: Elem> = Ptr<'k, T, ReadWrite>;
    type InMap<T: Elem> = TensorArg<'k, T, ReadOnly>;
    type OutMap<T: Elem> = TensorArg<'k, T, WriteOnly>;
    type Scalar<T: Scalar> = Val<'k, T>;
}

/// The CPU side: fields are slices and scalars of the reference.
pub struct Cpu<'a>(PhantomData<&'a ()>);
impl<'a> Side for Cpu<'a> {
    type In<T: Elem> = &'a [T];
    type Out<T: Elem> = &'a mut [T];
    type InOut<T: Elem> = &'a mut [T];
    type InMap<T: Elem> = &'a [T];
    type OutMap<T: Elem> = &'a mut [T];
    type Scalar<T: Scalar> = T;
}

/// The side of the launch contract: fields are lengths in elements and scalars.
pub struct Shape;
impl Side for Shape {
    type In<T: Elem> = usize;
    type Out<T: Elem> = usize;
    type InOut<T: Elem> = usize;
    type InMap<T: Elem> = usize;
    type OutMap<T: Elem> = usize;
    type Scalar<T: Scalar> = T;
}

/// A source that produces the fields of an argument list in order.
pub trait Source<S: Side> {
    /// Returns the next field, a buffer that the kernel reads.
    fn input<T: Elem>(&mut self, field: Field) -> S::In<T>;
    /// Returns the next field, a buffer that the kernel writes.
    fn output<T: Elem>(&mut self, field: Field) -> S::Out<T>;
    /// Returns the next field, a buffer that the kernel reads and writes.
    fn inout<T: Elem>(&mut self, field: Field) -> S::InOut<T>;
    /// Returns the next field, a tensor that the kernel reads through its map.
    fn input_map<T: Elem>(&mut self, field: Field) -> S::InMap<T>;
    /// Returns the next field, a tensor that the kernel writes through its map.
    fn output_map<T: Elem>(&mut self, field: Field) -> S::OutMap<T>;
    /// Returns the next field, a value.
    fn scalar<T: Scalar>(&mut self, field: Field) -> S::Scalar<T>;
}

/// A visitor that receives the fields of an argument list in order.
pub trait Sink<S: Side> {
    /// Receives a buffer that the kernel reads.
    fn input<T: Elem>(&mut self, field: Field, v: &S::In<T>);
    /// Receives a buffer that the kernel writes.
    fn output<T: Elem>(&mut self, field: Field, v: &S::Out<T>);
    /// Receives a buffer that the kernel reads and writes.
    fn inout<T: Elem>(&mut self, field: Field, v: &S::InOut<T>);
    /// Receives a tensor that the kernel reads through its map.
    fn input_map<T: Elem>(&mut self, field: Field, v: &S::InMap<T>);
    /// Receives a tensor that the kernel writes through its map.
    fn output_map<T: Elem>(&mut self, field: Field, v: &S::OutMap<T>);
    /// Receives a value.
    fn scalar<T: Scalar>(&mut self, field: Field, v: &S::Scalar<T>);
}

/// The name and the documentation of a field of an argument list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name of the field, which is also the name of the kernel parameter.
    pub name: &'static str,
    /// The doc comment of the field.
    pub doc: &'static str,
}

/// An argument list on side `S`. The macro [`args!`](crate::args) implements it.
pub trait ArgList<S: Side>: Sized {
    /// Returns the list whose fields `from` produces.
    fn make(from: &mut impl Source<S>) -> Self;
    /// Passes each field to `to`, in order.
    fn each(&self, to: &mut impl Sink<S>);
}

/// The type of one argument, independent of the side.
pub trait ArgTy {
    /// The type of the argument on side `S`.
    type On<S: Side>;
    /// Returns the argument that `from` produces.
    fn take<S: Side>(from: &mut impl Source<S>, field: Field) -> Self::On<S>;
    /// Passes the argument to `to`.
    fn show<S: Side>(v: &Self::On<S>, to: &mut impl Sink<S>, field: Field);
}

/// A buffer that the kernel reads. In the program it is a [`Ptr`] to [`ReadOnly`] memory.
pub struct In<T>(PhantomData<T>);
/// A buffer that the kernel writes and does not read. In the program it is a [`Ptr`] to
/// [`WriteOnly`] memory.
pub struct Out<T>(PhantomData<T>);
/// A buffer that the kernel reads and writes. In the program it is a [`Ptr`] to [`ReadWrite`]
/// memory.
pub struct InOut<T>(PhantomData<T>);
/// A tensor that the kernel reads, passed by value as a tensor map. In the program it is a
/// [`TensorArg`].
pub struct InMap<T>(PhantomData<T>);
/// A tensor that the kernel writes, passed by value as a tensor map. In the program it is a
/// [`TensorArg`].
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

/// The default side of a list: the side of an [`args!`](crate::args) list that is a field of
/// another list.
///
/// With it, a field can name the list without a side, for example `grid: GridArgs`.
pub enum Declared {}
impl Side for Declared {
    type In<T: Elem> = ();
    type Out<T: Elem> = ();
    type InOut<T: Elem> = ();
    type InMap<T: Elem> = ();
    type OutMap<T: Elem> = ();
    type Scalar<T: Scalar> = ();
}

/// Declares the argument list of a kernel once, for every side.
///
/// Fields have the types [`In`](crate::In), [`Out`](crate::Out), [`InOut`](crate::InOut),
/// [`InMap`](crate::InMap) and [`OutMap`](crate::OutMap), or are scalars of type `u32`, `i32`,
/// `u64` or `f32`. The doc comment of a field should begin with the shape, such as `[rows, n]`,
/// because it is printed in the list of kernels.
///
/// A field can also be another argument list, for arguments that several kernels share. Its fields
/// become parameters at this position under their own names, so the parameters of a kernel are one
/// flat list. [`build`](crate::AnyKernel::build) returns an error if two parameters have the same
/// name.
///
/// # Example: a shared list of arguments
/// ```
/// use ptx_gen::*;
///
/// args! {
///     /// A matrix and its shape.
///     pub struct MatrixArgs {
///         /// `[rows, n]`
///         w: In<f32>,
///         /// The number of rows.
///         rows: u32,
///         /// The length of a row.
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
/// // The parameters are `w`, `rows`, `n`, `x` and `y`. In the launch contract:
/// fn fits(a: &MatvecArgs<Shape>) -> bool {
///     a.matrix.fits() && a.x == a.matrix.n as usize && a.y == a.matrix.rows as usize
/// }
/// impl MatrixArgs<Shape> {
///     /// Checks the condition of every kernel that takes a matrix.
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
        // A list that is a field of another list contributes its own fields as parameters. The
        // name and the doc comment of that field exist only in Rust.
        impl $crate::ArgTy for $name {
            type On<S: $crate::Side> = $name<S>;
            fn take<S: $crate::Side>(from: &mut impl $crate::Source<S>, _: $crate::Field) -> $name<S> {
                $crate::ArgList::make(from)
            }
            fn show<S: $crate::Side>(v: &$name<S>, to: &mut impl $crate::Sink<S>, _: $crate::Field) {
                $crate::ArgList::each(v, to)
            }
        }
        // On these two sides every field is `Copy`, so the list can be `Copy` as well.
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

/// An untyped argument of the launch contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShapeArg {
    /// The length of a buffer in elements.
    Len(usize),
    /// The bits of a scalar, zero-extended to 64 bits.
    Scalar(u64),
}

pub(crate) struct Shapes<'a>(pub(crate) std::slice::Iter<'a, ShapeArg>);

impl Shapes<'_> {
    fn len(&mut self, field: Field) -> usize {
        match self.0.next() {
            Some(ShapeArg::Len(n)) => *n,
            _ => panic!(
                "argument {} is not a buffer: `check_args` must run first",
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
                "argument {} is not a value: `check_args` must run first",
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
    /// Returns the argument for the scalar `v`.
    pub fn scalar<T: Scalar>(v: T) -> CpuArg {
        CpuArg::Scalar(v.to_bits64())
    }

    /// Returns the argument as the launch contract sees it.
    pub fn shape(&self) -> ShapeArg {
        each_buffer!(self, v => ShapeArg::Len(v.len()), bits => ShapeArg::Scalar(*bits))
    }

    /// Returns the element type of a buffer, or `None` for a scalar.
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
                "argument {} is missing: `check_args` must run first",
                field.name
            )
        })
    }
    fn buffer<T: Elem>(&mut self, field: Field) -> &'a mut [T] {
        T::of_mut(self.next(field)).unwrap_or_else(|| {
            panic!(
                "argument {} has another type: `check_args` must run first",
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
                "argument {} is not a value: `check_args` must run first",
                field.name
            ),
        }
    }
}
