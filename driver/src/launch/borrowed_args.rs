//! The borrowed arguments of a launch, in the form that the driver takes and that the checks need.

use std::ffi::c_void;

use ptx_gen::{Access, Elem, Field, Kind, Scalar, Shape, Side, Sink, Source};

use crate::error::{Error, LaunchProblem};
use crate::launch::{HostArg, HostValue, MapArg};
use crate::memory::{Region, View};
use crate::module::launch_config::LaunchConfig;
use crate::module::{Function, Parameter, ParameterType};
use crate::small_vec::SmallVec;

/// The host side of an argument list: views of device memory and scalars.
///
/// For a kernel whose arguments are `AddArgs`, the host passes `AddArgs<Host<'_>>`. See [the crate
/// page](crate#kernels-written-in-rust).
///
/// ```
/// # use ptx_gen::{args, Builder, Cpu, Dev, Grid, In, KernelDef, Out, Shape, ShapeError, Side};
/// # args! { pub struct AddArgs { x: In<f32>, y: Out<f32>, n: u32, add: f32 } }
/// # struct Add;
/// # impl KernelDef for Add {
/// #     type Args<S: Side> = AddArgs<S>;
/// #     fn name(&self) -> String { "add".into() }
/// #     fn block(&self) -> u32 { 128 }
/// #     fn grid(&self, a: &AddArgs<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(a.n.div_ceil(128))) }
/// #     fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
/// #         let i = k.ctaid() * 128 + k.tid();
/// #         k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld() + a.add));
/// #     }
/// #     fn reference(&self, a: AddArgs<Cpu<'_>>) {
/// #         a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = x + a.add);
/// #     }
/// # }
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// /// The arguments of a kernel that adds 10, written once.
/// fn ten<'a>(x: &'a View<f32>, y: &'a View<f32>) -> AddArgs<Host<'a>> {
///     AddArgs { x, y, n: x.len() as u32, add: 10.0 }
/// }
///
/// # // SAFETY: the program stays below `n`.
/// # let add = unsafe { Kernel::load(&context, Add) }?;
/// let x = Buffer::from_slice(&context, &[1.0, 2.0])?;
/// let y = Buffer::zeroed(&context, 2)?;
/// stream.launch(&add, ten(&x, &y))?;
/// assert_eq!(stream.read(&y)?, [11.0, 12.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Host<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Side for Host<'a> {
    type In<T: Elem> = &'a View<T>;
    type Out<T: Elem> = &'a View<T>;
    type InOut<T: Elem> = &'a View<T>;
    type InMap<T: Elem> = &'a MapArg;
    type OutMap<T: Elem> = &'a MapArg;
    type Scalar<T: Scalar> = T;
}

/// The number of arguments that a launch stores without an allocation.
const INLINE_ARGS: usize = 16;

/// The arguments of a launch, borrowed while it is queued.
///
/// They are collected in place, because moving them costs more than filling them (see
/// [`small_vec`](crate::small_vec)).
#[derive(Default)]
pub(crate) struct Args<'a> {
    /// The values, each of which starts at a 64-bit word.
    pub(crate) words: SmallVec<u64, INLINE_ARGS>,
    /// The buffers in the order of the arguments, then the tensors of maps.
    pub(crate) buffers: SmallVec<LentBuffer<'a>, 8>,
    /// All arguments, if some are neither buffers nor scalars.
    pub(crate) values: Option<Values>,
    /// The tensor maps that [`finish`](Args::finish) has not yet inserted. Each has a zero word in
    /// its place.
    maps: Vec<(usize, &'a MapArg, Access)>,
}

/// A borrowed buffer argument.
#[derive(Clone, Copy)]
pub(crate) struct LentBuffer<'a> {
    pub(crate) region: &'a Region,
    pub(crate) access: Access,
    /// The index of the argument.
    pub(crate) index: u32,
    /// The number of elements.
    len: usize,
}

/// Arguments of which some need more than one word.
#[derive(Clone)]
pub(crate) struct Values {
    pub(crate) args: Vec<HostArg>,
    /// The index of the first word of each argument.
    starts: Vec<usize>,
}

impl<'a> Args<'a> {
    /// Returns the number of arguments.
    fn len(&self) -> usize {
        self.values
            .as_ref()
            .map_or(self.words.len(), |values| values.args.len())
    }

    #[inline(always)]
    fn lend(&mut self, region: &'a Region, access: Access, len: usize) {
        self.buffers.push(LentBuffer {
            region,
            access,
            index: self.words.len() as u32,
            len,
        });
        self.words.push(region.address());
    }

    /// Appends arguments that were checked against these parameters.
    pub(crate) fn extend(&mut self, params: &[Parameter], args: &'a [HostArg]) {
        let mut starts = Vec::with_capacity(args.len());
        for (index, (param, arg)) in params.iter().zip(args).enumerate() {
            starts.push(self.words.len());
            match arg {
                HostArg::Buffer(region) => {
                    let access = param.access();
                    let len = region.bytes() / region.elem().size().max(1);
                    self.buffers.push(LentBuffer {
                        region,
                        access,
                        index: index as u32,
                        len,
                    });
                    self.words.push(region.address());
                }
                HostArg::Scalar(_, bits) => self.words.push(*bits),
                HostArg::Value(value) => {
                    for word in value.words() {
                        self.words.push(word);
                    }
                }
            }
        }

        for (index, arg) in args.iter().enumerate() {
            if let HostArg::Value(value) = arg {
                // An untyped argument does not declare its access, so the kernel may read and write
                // the tensor.
                self.lend_tensor(value, Access::ReadWrite, index);
            }
        }

        if args.iter().any(|arg| matches!(arg, HostArg::Value(_))) {
            self.values = Some(Values {
                args: args.to_vec(),
                starts,
            });
        }
    }

    /// Appends the tensor of a map, if it is known.
    fn lend_tensor(&mut self, value: &'a HostValue, access: Access, index: usize) {
        if let Some(region) = value.tensor() {
            let len = region.bytes() / region.elem().size().max(1);
            self.buffers.push(LentBuffer {
                region,
                access,
                index: index as u32,
                len,
            });
        }
    }

    /// Inserts the words of tensor maps, if there are any.
    #[inline]
    pub(crate) fn finish(&mut self, params: &[Parameter]) {
        if !self.maps.is_empty() {
            self.place_maps(params);
        }
    }

    #[cold]
    fn place_maps(&mut self, params: &[Parameter]) {
        // The map's words replace its zero word, so everything behind it moves. The words are
        // rebuilt in one pass, with the start of each argument.
        let words = std::mem::take(&mut self.words);
        let all = std::mem::take(&mut self.maps);
        let mut maps = all.iter().peekable();
        let mut buffers = self.buffers.iter().peekable();
        let mut args = Vec::new();
        let mut starts = Vec::new();
        for (index, (word, param)) in words.iter().zip(params).enumerate() {
            starts.push(self.words.len());
            let kind = match param.ty {
                ParameterType::Value(ty) => ty.kind(),
                ParameterType::Buffer(..) => None,
            };
            let map = maps.next_if(|(at, ..)| *at == index);
            let buffer = buffers.next_if(|lent| lent.index as usize == index);
            match (map, buffer) {
                (Some((_, map, _)), _) => {
                    for word in map.value().words() {
                        self.words.push(word);
                    }
                    args.push(HostArg::Value(map.value().clone()));
                }
                (_, Some(lent)) => {
                    self.words.push(*word);
                    args.push(HostArg::Buffer(lent.region.clone()));
                }
                _ => {
                    self.words.push(*word);
                    args.push(HostArg::Scalar(kind.unwrap_or(Kind::U64), *word));
                }
            }
        }

        self.values = Some(Values { args, starts });
        for (index, map, access) in all {
            self.lend_tensor(map.value(), access, index);
        }
    }

    /// Returns the memory accesses.
    #[inline]
    pub(crate) fn uses(&self) -> impl Iterator<Item = (&'a Region, Access)> + Clone {
        self.buffers.iter().map(|lent| (lent.region, lent.access))
    }

    /// Passes the arguments to `call` as an array of pointers to values.
    #[inline]
    pub(crate) fn with_pointers<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        with_pointers(&self.words, self.values.as_ref(), call)
    }

    /// Checks the number of arguments, their contexts, their overlaps and the launch configuration.
    #[inline]
    pub(crate) fn check(&self, function: &Function, config: &LaunchConfig) -> Result<(), Error> {
        let wanted = function.params().len();
        if self.len() != wanted {
            return Err(function.refuse(LaunchProblem::Count {
                got: self.len(),
                wanted,
            }));
        }

        self.check_contexts(function)?;
        self.check_overlaps(function)?;
        function.admit(config)
    }

    #[inline]
    fn check_contexts(&self, function: &Function) -> Result<(), Error> {
        let context = function.context();
        match self
            .buffers
            .iter()
            .find(|lent| !lent.region.context().same(context))
        {
            None => Ok(()),
            Some(lent) => {
                let name = lent.name(function);
                lent.region.expect_in(
                    context,
                    &format!("kernel {}, argument {name}", function.name()),
                )
            }
        }
    }

    #[inline]
    fn check_overlaps(&self, function: &Function) -> Result<(), Error> {
        // Kernels assume that distinct arguments do not alias. Two reads of the same bytes are
        // fine.
        for writer in self.buffers.iter().filter(|lent| lent.access.writes()) {
            let meets = |other: &&LentBuffer<'_>| {
                other.index != writer.index && writer.region.overlaps(other.region)
            };
            if let Some(other) = self.buffers.iter().find(meets) {
                return Err(overlap(function, writer, other));
            }
        }
        Ok(())
    }
}

impl LentBuffer<'_> {
    fn name(&self, function: &Function) -> &'static str {
        function.params()[self.index as usize].name
    }
}

#[cold]
fn overlap(function: &Function, writer: &LentBuffer<'_>, other: &LentBuffer<'_>) -> Error {
    let (first, second) = if writer.index < other.index {
        (writer, other)
    } else {
        (other, writer)
    };
    let name = |lent: &LentBuffer<'_>| lent.name(function).to_string();
    let first = name(first);
    let second = name(second);
    let buffer = writer.region.name();
    function.refuse(LaunchProblem::Overlap {
        first,
        second,
        buffer,
        writer: name(writer),
    })
}

/// Passes arguments to `call` as the driver takes them: an array of pointers to values.
#[inline]
pub(crate) fn with_pointers<R>(
    words: &[u64],
    values: Option<&Values>,
    call: impl FnOnce(*mut *mut c_void) -> R,
) -> R {
    // An array on the stack for the common case. It always has `INLINE_ARGS` pointers, because a
    // fixed loop is cheaper than one that depends on the number of arguments.
    if words.len() <= INLINE_ARGS && values.is_none() {
        return call(few_pointers(words).as_mut_ptr());
    }
    call(many_pointers(words, values).as_mut_ptr())
}

/// Returns pointers to the words. Pointers beyond the last word are not read.
#[inline]
fn few_pointers(words: &[u64]) -> [*mut c_void; INLINE_ARGS] {
    std::array::from_fn(|word| pointer(words, word))
}

fn many_pointers(words: &[u64], values: Option<&Values>) -> Vec<*mut c_void> {
    match values {
        None => (0..words.len()).map(|word| pointer(words, word)).collect(),
        Some(values) => values
            .starts
            .iter()
            .map(|word| pointer(words, *word))
            .collect(),
    }
}

/// Returns the address of a word.
///
/// A scalar of fewer than 64 bits starts at the same address as its word, because every host that
/// runs CUDA is little-endian.
#[inline]
fn pointer(words: &[u64], word: usize) -> *mut c_void {
    words.as_ptr().wrapping_add(word).cast_mut().cast()
}

impl<'a> Sink<Host<'a>> for Args<'a> {
    #[inline(always)]
    fn input<T: Elem>(&mut self, _: Field, v: &&'a View<T>) {
        self.lend(v.region(), Access::Read, v.len());
    }
    #[inline(always)]
    fn output<T: Elem>(&mut self, _: Field, v: &&'a View<T>) {
        self.lend(v.region(), Access::Write, v.len());
    }
    #[inline(always)]
    fn inout<T: Elem>(&mut self, _: Field, v: &&'a View<T>) {
        self.lend(v.region(), Access::ReadWrite, v.len());
    }
    fn input_map<T: Elem>(&mut self, _: Field, v: &&'a MapArg) {
        self.maps.push((self.words.len(), v, Access::Read));
        self.words.push(0);
    }
    fn output_map<T: Elem>(&mut self, _: Field, v: &&'a MapArg) {
        self.maps.push((self.words.len(), v, Access::Write));
        self.words.push(0);
    }
    #[inline(always)]
    fn scalar<T: Scalar>(&mut self, _: Field, v: &T) {
        self.words.push(v.to_bits64());
    }
}

/// Reads the shapes of collected arguments.
///
/// It visits the same fields in the same order as the collection, so every `next` returns an
/// element.
pub(crate) struct Shapes<'l, 'a> {
    words: std::slice::Iter<'l, u64>,
    buffers: std::slice::Iter<'l, LentBuffer<'a>>,
    maps: std::slice::Iter<'l, (usize, &'a MapArg, Access)>,
}

impl<'l, 'a> Shapes<'l, 'a> {
    #[inline(always)]
    pub(crate) fn new(args: &'l Args<'a>) -> Self {
        Self {
            words: args.words.iter(),
            buffers: args.buffers.iter(),
            maps: args.maps.iter(),
        }
    }

    #[inline(always)]
    fn word(&mut self) -> u64 {
        *self
            .words
            .next()
            .expect("the list was collected from the same fields")
    }

    #[inline(always)]
    fn len(&mut self) -> usize {
        self.word();
        self.buffers
            .next()
            .expect("the list was collected from the same fields")
            .len
    }

    fn map_len(&mut self) -> usize {
        self.word();
        self.maps
            .next()
            .expect("the list was collected from the same fields")
            .1
            .elements()
    }
}

impl Source<Shape> for Shapes<'_, '_> {
    #[inline(always)]
    fn input<T: Elem>(&mut self, _: Field) -> usize {
        self.len()
    }
    #[inline(always)]
    fn output<T: Elem>(&mut self, _: Field) -> usize {
        self.len()
    }
    #[inline(always)]
    fn inout<T: Elem>(&mut self, _: Field) -> usize {
        self.len()
    }
    fn input_map<T: Elem>(&mut self, _: Field) -> usize {
        self.map_len()
    }
    fn output_map<T: Elem>(&mut self, _: Field) -> usize {
        self.map_len()
    }
    #[inline(always)]
    fn scalar<T: Scalar>(&mut self, _: Field) -> T {
        T::from_bits64(self.word())
    }
}
