//! The arguments of a launch, lent to it: as the driver takes them and as the checks want them.

use std::ffi::c_void;

use ptx_gen::{Access, Elem, Field, Kind, Scalar, Shape, Side, Sink, Source};

use crate::argument::{HostValue, MapArg};
use crate::few::Few;
use crate::parameter::ParameterType;
use crate::{Error, Function, HostArg, LaunchConfig, LaunchProblem, Parameter, Region, View};

/// On the host, at launch: views of device memory, and numbers.
///
/// The arguments of a kernel, say `AddArgs`, are `AddArgs<Host<'_>>` then: see the [page of the crate](crate).
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
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// /// The arguments of a kernel that adds 10, written once.
/// fn ten<'a>(x: &'a View<f32>, y: &'a View<f32>) -> AddArgs<Host<'a>> {
///     AddArgs { x, y, n: x.len() as u32, add: 10.0 }
/// }
///
/// # // SAFETY: the program stays below `n`.
/// # let add = unsafe { Kernel::load(&context, Add) }?;
/// let (x, y) = (Buffer::from_slice(&context, &[1.0, 2.0])?, Buffer::zeroed(&context, 2)?);
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

/// The arguments that a launch takes without memory of its own.
const FEW: usize = 16;

/// The arguments of a launch, lent for as long as the launch takes. Collected where they lie.
#[derive(Default)]
pub(crate) struct Args<'a> {
    /// The values, each at the start of 64-bit words.
    pub(crate) words: Few<u64, FEW>,
    /// The buffers among them, in order, then the tensors of maps.
    pub(crate) buffers: Few<Lent<'a>, 8>,
    /// All of them, where there are others than buffers and numbers.
    pub(crate) values: Option<Values>,
    /// Tensor maps that [`finish`](Args::finish) has not put among the words yet: in place of each is a zero.
    maps: Vec<(usize, &'a MapArg, Access)>,
}

/// A buffer, lent.
#[derive(Clone, Copy)]
pub(crate) struct Lent<'a> {
    pub(crate) region: &'a Region,
    pub(crate) access: Access,
    /// Which argument it is.
    pub(crate) index: u32,
    /// Its elements.
    len: usize,
}

/// Arguments of which some take more than a word.
#[derive(Clone)]
pub(crate) struct Values {
    pub(crate) args: Vec<HostArg>,
    /// The word at which each begins.
    starts: Vec<usize>,
}

impl<'a> Args<'a> {
    /// How many.
    fn len(&self) -> usize {
        self.values
            .as_ref()
            .map_or(self.words.len(), |values| values.args.len())
    }

    #[inline(always)]
    fn lend(&mut self, region: &'a Region, access: Access, len: usize) {
        self.buffers.push(Lent {
            region,
            access,
            index: self.words.len() as u32,
            len,
        });
        self.words.push(region.address());
    }

    /// Adds arguments that have the types of these parameters.
    pub(crate) fn extend(&mut self, params: &[Parameter], args: &'a [HostArg]) {
        let mut starts = Vec::with_capacity(args.len());
        for (index, (param, arg)) in params.iter().zip(args).enumerate() {
            starts.push(self.words.len());
            match arg {
                HostArg::Buffer(region) => {
                    let (access, len) =
                        (param.access(), region.bytes() / region.elem().size().max(1));
                    self.buffers.push(Lent {
                        region,
                        access,
                        index: index as u32,
                        len,
                    });
                    self.words.push(region.address());
                }
                HostArg::Scalar(_, bits) => self.words.push(*bits),
                HostArg::Value(value) => value.words().for_each(|word| self.words.push(word)),
            }
        }
        for (index, arg) in args.iter().enumerate() {
            if let HostArg::Value(value) = arg {
                // What the kernel does to it nobody has said.
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

    /// Adds the tensor of a map, if it is known.
    fn lend_tensor(&mut self, value: &'a HostValue, access: Access, index: usize) {
        if let Some(region) = value.tensor() {
            let len = region.bytes() / region.elem().size().max(1);
            self.buffers.push(Lent {
                region,
                access,
                index: index as u32,
                len,
            });
        }
    }

    /// Puts the tensor maps among the words, if there are any.
    #[inline]
    pub(crate) fn finish(&mut self, params: &[Parameter]) {
        if !self.maps.is_empty() {
            self.place_maps(params);
        }
    }

    #[cold]
    fn place_maps(&mut self, params: &[Parameter]) {
        let words = std::mem::take(&mut self.words);
        let all = std::mem::take(&mut self.maps);
        let (mut maps, mut buffers) = (all.iter().peekable(), self.buffers.iter().peekable());
        let (mut args, mut starts) = (Vec::new(), Vec::new());
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
                    map.value().words().for_each(|word| self.words.push(word));
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

    /// What is done to which bytes.
    #[inline]
    pub(crate) fn uses(&self) -> impl Iterator<Item = (&'a Region, Access)> + Clone {
        self.buffers.iter().map(|lent| (lent.region, lent.access))
    }

    /// Hands the arguments to a call as the driver wants them.
    #[inline]
    pub(crate) fn with_pointers<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        with_pointers(&self.words, self.values.as_ref(), call)
    }

    /// What is checked of every launch.
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
        for writer in self.buffers.iter().filter(|lent| lent.access.writes()) {
            let meets = |other: &&Lent<'_>| {
                other.index != writer.index && writer.region.overlaps(other.region)
            };
            if let Some(other) = self.buffers.iter().find(meets) {
                return Err(overlap(function, writer, other));
            }
        }
        Ok(())
    }
}

impl Lent<'_> {
    fn name(&self, function: &Function) -> &'static str {
        function.params()[self.index as usize].name
    }
}

#[cold]
fn overlap(function: &Function, writer: &Lent<'_>, other: &Lent<'_>) -> Error {
    let (first, second) = if writer.index < other.index {
        (writer, other)
    } else {
        (other, writer)
    };
    let name = |lent: &Lent<'_>| lent.name(function).to_string();
    let (first, second, buffer) = (name(first), name(second), writer.region.name());
    function.refuse(LaunchProblem::Overlap {
        first,
        second,
        buffer,
        writer: name(writer),
    })
}

/// Hands arguments to a call as the driver wants them: an array of pointers to values.
#[inline]
pub(crate) fn with_pointers<R>(
    words: &[u64],
    values: Option<&Values>,
    call: impl FnOnce(*mut *mut c_void) -> R,
) -> R {
    if words.len() <= FEW && values.is_none() {
        return call(few_pointers(words).as_mut_ptr());
    }
    call(many_pointers(words, values).as_mut_ptr())
}

/// Pointers to the words of arguments, and more that are not read.
#[inline]
fn few_pointers(words: &[u64]) -> [*mut c_void; FEW] {
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

/// Numbers stand at the start of 64-bit words, which is right because every machine with CUDA is little-endian.
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

/// Gives the shapes of arguments collected from the same fields, so that every `next` is there.
pub(crate) struct Shapes<'l, 'a> {
    words: std::slice::Iter<'l, u64>,
    buffers: std::slice::Iter<'l, Lent<'a>>,
    maps: std::slice::Iter<'l, (usize, &'a MapArg, Access)>,
}

impl<'l, 'a> Shapes<'l, 'a> {
    #[inline(always)]
    pub(crate) fn of(args: &'l Args<'a>) -> Self {
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
