//! A launch: a function, its geometry and its arguments, checked before anybody queues it.

use std::ffi::c_void;

use ptx_gen::{Access, Elem, Field, Geometry, Kind, Param, ParamKind, Scalar, Side, Sink, Source, Ty};
use ptx_gen::{Shape, ShapeArg};

use crate::error::LaunchProblem;
use crate::{Context, Error, Function, Region, View};

/// On the host, at launch: views of device memory, and numbers.
pub struct Host;

impl Side for Host {
    type In<T: Elem> = View<T>;
    type Out<T: Elem> = View<T>;
    type InOut<T: Elem> = View<T>;
    type Scalar<T: Scalar> = T;
}

/// An argument at launch, untyped.
#[derive(Clone, Debug)]
pub enum HostArg {
    /// A buffer.
    Buffer(Region),
    /// A value: its type, and its bits, zero-extended.
    Scalar(Kind, u64),
}

impl HostArg {
    /// A value.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Self::Scalar(<T as Ty>::KIND, value.to_bits64())
    }

    /// What the launch contract sees of it.
    pub fn shape(&self) -> ShapeArg {
        match self {
            Self::Buffer(region) => ShapeArg::Len(region.bytes() / region.elem().bytes() as usize),
            Self::Scalar(_, bits) => ShapeArg::Scalar(*bits),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Buffer(region) => format!("a buffer of {} ({region})", region.elem().name()),
            Self::Scalar(kind, _) => format!("a {} value", kind.name()),
        }
    }
}

impl<T: Elem> From<&View<T>> for HostArg {
    fn from(view: &View<T>) -> Self {
        Self::Buffer(view.region().clone())
    }
}

impl<T: Elem> From<View<T>> for HostArg {
    fn from(view: View<T>) -> Self {
        Self::from(&view)
    }
}

/// Collects a typed argument list.
#[derive(Default)]
pub(crate) struct Collect(pub(crate) Vec<HostArg>);

impl Sink<Host> for Collect {
    fn input<T: Elem>(&mut self, _: Field, v: &View<T>) {
        self.0.push(v.into());
    }
    fn output<T: Elem>(&mut self, _: Field, v: &View<T>) {
        self.0.push(v.into());
    }
    fn inout<T: Elem>(&mut self, _: Field, v: &View<T>) {
        self.0.push(v.into());
    }
    fn scalar<T: Scalar>(&mut self, _: Field, v: &T) {
        self.0.push(HostArg::scalar(*v));
    }
}

/// Gives the shapes of a collected list of the same type, so that every `next` is there and of the right sort.
pub(crate) struct Shapes<'a>(pub(crate) std::slice::Iter<'a, HostArg>);

impl Shapes<'_> {
    fn len(&mut self) -> usize {
        match self.0.next().map(HostArg::shape) {
            Some(ShapeArg::Len(len)) => len,
            _ => unreachable!("the list was collected from the same fields"),
        }
    }
}

impl Source<Shape> for Shapes<'_> {
    fn input<T: Elem>(&mut self, _: Field) -> usize {
        self.len()
    }
    fn output<T: Elem>(&mut self, _: Field) -> usize {
        self.len()
    }
    fn inout<T: Elem>(&mut self, _: Field) -> usize {
        self.len()
    }
    fn scalar<T: Scalar>(&mut self, _: Field) -> T {
        match self.0.next() {
            Some(HostArg::Scalar(_, bits)) => T::from_bits64(*bits),
            _ => unreachable!("the list was collected from the same fields"),
        }
    }
}

/// A checked launch. Clones name the same work.
#[derive(Clone)]
pub struct Launch {
    function: Function,
    geometry: Geometry,
    args: Vec<HostArg>,
}

impl Launch {
    /// Checks a launch: the arguments against the parameters, the geometry against device and kernel, and that no
    /// argument shares bytes with one that is written.
    ///
    /// # Errors
    /// [`Error::Launch`] names the kernel, the argument, what it takes and what it was given; [`Error::WrongContext`]
    /// names a buffer that the kernel cannot reach.
    pub fn new(function: &Function, geometry: Geometry, args: Vec<HostArg>) -> Result<Self, Error> {
        check_types(function, &args)?;
        check_contexts(function, &args)?;
        check_overlaps(function, &args)?;
        function.admit(&geometry)?;
        Ok(Self { function: function.clone(), geometry, args })
    }

    /// The kernel.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Blocks, threads and dynamic shared memory.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The arguments, in order.
    pub fn args(&self) -> &[HostArg] {
        &self.args
    }

    pub(crate) fn context(&self) -> &Context {
        self.function.context()
    }

    /// The buffers, each with its parameter's name and what is done to it.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = (&'static str, &Region, Access)> {
        buffers(self.function.params(), &self.args)
    }

    /// Hands the arguments to a call as the driver wants them: an array of pointers to values.
    pub(crate) fn with_params<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        // Values stand at the start of 64-bit slots, which is right because every machine with CUDA is little-endian.
        let mut values: Vec<u64> = self.args.iter().map(value).collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        call(pointers.as_mut_ptr())
    }
}

fn value(arg: &HostArg) -> u64 {
    match arg {
        HostArg::Buffer(region) => region.address(),
        HostArg::Scalar(_, bits) => *bits,
    }
}

fn buffers<'a>(
    params: &'a [Param],
    args: &'a [HostArg],
) -> impl Iterator<Item = (&'static str, &'a Region, Access)> {
    params.iter().zip(args).filter_map(|(param, arg)| match (param.kind, arg) {
        (ParamKind::Buffer(_, access), HostArg::Buffer(region)) => Some((param.name, region, access)),
        _ => None,
    })
}

fn check_types(function: &Function, args: &[HostArg]) -> Result<(), Error> {
    let params = function.params();
    if args.len() != params.len() {
        return Err(function.refuse(LaunchProblem::Count { got: args.len(), wanted: params.len() }));
    }
    for (index, (param, arg)) in params.iter().zip(args).enumerate() {
        let fits = match (param.kind, arg) {
            (ParamKind::Buffer(elem, _), HostArg::Buffer(region)) => region.elem() == elem,
            (ParamKind::Scalar(kind), HostArg::Scalar(given, _)) => *given == kind,
            _ => false,
        };
        if !fits {
            let (name, got, wanted) = (param.name.to_string(), arg.describe(), wanted(param.kind));
            return Err(function.refuse(LaunchProblem::Argument { index, name, got, wanted }));
        }
    }
    Ok(())
}

fn wanted(kind: ParamKind) -> String {
    match kind {
        ParamKind::Buffer(elem, _) => format!("a buffer of {}", elem.name()),
        ParamKind::Scalar(kind) => format!("a {} value", kind.name()),
    }
}

fn check_contexts(function: &Function, args: &[HostArg]) -> Result<(), Error> {
    for (name, region, _) in buffers(function.params(), args) {
        if !region.context().same(function.context()) {
            region.expect_in(function.context(), &format!("kernel {}, argument {name}", function.name()))?;
        }
    }
    Ok(())
}

fn check_overlaps(function: &Function, args: &[HostArg]) -> Result<(), Error> {
    let written = buffers(function.params(), args).enumerate().filter(|(_, (_, _, access))| access.writes());
    for (i, (writer, region, _)) in written {
        for (j, (name, other, _)) in buffers(function.params(), args).enumerate() {
            if i != j && region.overlaps(other) {
                let (first, second) = if i < j { (writer, name) } else { (name, writer) };
                return Err(function.refuse(LaunchProblem::Overlap {
                    first: first.to_string(),
                    second: second.to_string(),
                    buffer: region.name(),
                    writer: writer.to_string(),
                }));
            }
        }
    }
    Ok(())
}
