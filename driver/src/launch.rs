//! A launch: a function, its shape and its arguments, checked before anybody queues it.

use std::ffi::c_void;
use std::sync::Arc;

use driver_sys::CUlaunchConfig;
use ptx_gen::{Access, Elem, Field, Kind, Scalar, Side, Sink, Source, Ty};
use ptx_gen::{Shape, ShapeArg};
use smallvec::SmallVec;

use crate::element::{Element, ElementType, as_bytes};
use crate::error::LaunchProblem;
use crate::parameter::{Parameter, ParameterType};
use crate::{Context, Driver, DriverError, Error, Function, LaunchConfig, Region, Stream, View};

/// On the host, at launch: views of device memory, and numbers.
#[derive(Debug)]
pub struct Host<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Side for Host<'a> {
    type In<T: Elem> = &'a View<T>;
    type Out<T: Elem> = &'a View<T>;
    type InOut<T: Elem> = &'a View<T>;
    type Scalar<T: Scalar> = T;
}

/// An argument at launch, untyped.
#[derive(Clone, Debug)]
pub enum HostArg {
    /// A buffer.
    Buffer(Region),
    /// A number: its type, and its bits, zero-extended.
    Scalar(Kind, u64),
    /// Anything else by value.
    Value(HostValue),
}

/// A value of any type: its type and its bytes.
#[derive(Clone, Debug)]
pub struct HostValue {
    ty: ElementType,
    bytes: Box<[u8]>,
}

/// An argument at launch, lent for as long as the launch takes.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Buffer(&'a Region),
    Scalar(Kind, u64),
    Value(&'a HostValue),
}

/// The arguments of a launch.
pub(crate) type Args<'a> = SmallVec<[Arg<'a>; 16]>;

impl HostArg {
    /// A number that kernels of `ptx-gen` take.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Self::Scalar(<T as Ty>::KIND, value.to_bits64())
    }

    /// Anything by value.
    pub fn value<T: Element>(value: T) -> Self {
        Self::Value(HostValue { ty: T::TYPE, bytes: as_bytes(&[value]).into() })
    }

    /// What the launch contract sees of it.
    pub fn shape(&self) -> ShapeArg {
        self.lend().shape()
    }

    pub(crate) fn lend(&self) -> Arg<'_> {
        match self {
            Self::Buffer(region) => Arg::Buffer(region),
            Self::Scalar(kind, bits) => Arg::Scalar(*kind, *bits),
            Self::Value(value) => Arg::Value(value),
        }
    }
}

impl Arg<'_> {
    fn shape(self) -> ShapeArg {
        match self {
            Self::Buffer(region) => ShapeArg::Len(region.bytes() / region.elem().size().max(1)),
            Self::Scalar(_, bits) => ShapeArg::Scalar(bits),
            // Contracts see buffers and numbers; nothing of `ptx-gen` takes other values.
            Self::Value(_) => ShapeArg::Scalar(0),
        }
    }

    fn own(self) -> HostArg {
        match self {
            Self::Buffer(region) => HostArg::Buffer(region.clone()),
            Self::Scalar(kind, bits) => HostArg::Scalar(kind, bits),
            Self::Value(value) => HostArg::Value(value.clone()),
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Buffer(region) => format!("a buffer of {} ({region})", region.elem().name()),
            Self::Scalar(kind, _) => format!("a {} value", kind.name()),
            Self::Value(HostValue { ty, .. }) => format!("a {} value of {} bytes", ty.name(), ty.size()),
        }
    }

    fn fits(self, wanted: ParameterType) -> bool {
        match (wanted, self) {
            (ParameterType::Buffer(elem, _), Self::Buffer(region)) => region.elem() == elem,
            (ParameterType::Value(ty), Self::Scalar(kind, _)) => ty.kind() == Some(kind),
            (ParameterType::Value(wanted), Self::Value(value)) => value.ty == wanted,
            _ => false,
        }
    }
}

impl<T> From<&View<T>> for HostArg {
    fn from(view: &View<T>) -> Self {
        Self::Buffer(view.region().clone())
    }
}

impl<T> From<View<T>> for HostArg {
    fn from(view: View<T>) -> Self {
        Self::from(&view)
    }
}

/// Collects a typed argument list.
#[derive(Default)]
pub(crate) struct Collect<'a>(pub(crate) Args<'a>);

impl<'a> Sink<Host<'a>> for Collect<'a> {
    #[inline(always)]
    fn input<T: Elem>(&mut self, _: Field, v: &&'a View<T>) {
        self.0.push(Arg::Buffer(v.region()));
    }
    #[inline(always)]
    fn output<T: Elem>(&mut self, _: Field, v: &&'a View<T>) {
        self.0.push(Arg::Buffer(v.region()));
    }
    #[inline(always)]
    fn inout<T: Elem>(&mut self, _: Field, v: &&'a View<T>) {
        self.0.push(Arg::Buffer(v.region()));
    }
    #[inline(always)]
    fn scalar<T: Scalar>(&mut self, _: Field, v: &T) {
        self.0.push(Arg::Scalar(<T as Ty>::KIND, v.to_bits64()));
    }
}

/// Gives the shapes of a collected list of the same type, so that every `next` is there and of the right sort.
pub(crate) struct Shapes<'a, 'r>(pub(crate) std::slice::Iter<'a, Arg<'r>>);

impl Shapes<'_, '_> {
    fn len(&mut self) -> usize {
        match self.0.next().map(|arg| arg.shape()) {
            Some(ShapeArg::Len(len)) => len,
            _ => unreachable!("the list was collected from the same fields"),
        }
    }
}

impl Source<Shape> for Shapes<'_, '_> {
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
            Some(Arg::Scalar(_, bits)) => T::from_bits64(*bits),
            _ => unreachable!("the list was collected from the same fields"),
        }
    }
}

/// A checked launch, ready to be given to a stream any number of times. Clones are the same launch.
#[derive(Clone)]
pub struct Launch(Arc<Inner>);

struct Inner {
    function: Function,
    config: LaunchConfig,
    /// The buffers, in the order of the parameters; a few of them without memory of their own.
    buffers: SmallVec<[Region; 3]>,
    slots: Slots,
    /// All arguments, where there are others than buffers and numbers.
    values: Option<Box<[HostArg]>>,
}

/// The arguments that a launch takes without memory of its own.
const FEW: usize = 16;

/// The values of arguments, each at the start of 64-bit words, and where each begins.
struct Slots {
    words: SmallVec<[u64; 8]>,
    /// None where each takes one word.
    starts: Option<Box<[u16]>>,
}

impl Launch {
    /// Checks a launch: the arguments against the parameters, the shape against device and kernel, and that no
    /// argument shares bytes with one that is written.
    ///
    /// # Errors
    /// [`Error::Launch`] names the kernel, the argument, what it takes and what it was given; [`Error::WrongContext`]
    /// names a buffer that the kernel cannot reach.
    pub fn new(
        function: &Function,
        config: impl Into<LaunchConfig>,
        args: Vec<HostArg>,
    ) -> Result<Self, Error> {
        let (config, lent) = (config.into(), args.iter().map(HostArg::lend).collect::<Args<'_>>());
        check_types(function, &lent)?;
        check(function, &config, &lent)?;
        Ok(Self::unchecked(function, config, &lent))
    }

    /// A launch of arguments that have the types of the parameters.
    pub(crate) fn typed(function: &Function, config: LaunchConfig, args: &[Arg<'_>]) -> Result<Self, Error> {
        check(function, &config, args)?;
        Ok(Self::unchecked(function, config, args))
    }

    fn unchecked(function: &Function, config: LaunchConfig, args: &[Arg<'_>]) -> Self {
        let mut buffers = SmallVec::new();
        let mut plain = true;
        for arg in args {
            match *arg {
                Arg::Buffer(region) => buffers.push(region.clone()),
                Arg::Scalar(..) => {}
                Arg::Value(_) => plain = false,
            }
        }
        let values = if plain { None } else { Some(args.iter().map(|arg| arg.own()).collect()) };
        let slots = if plain { Slots::plain(args) } else { Slots::of(args) };
        Self(Arc::new(Inner { function: function.clone(), config, buffers, slots, values }))
    }

    /// Makes the launch one of the same kernel and buffers with other numbers and another shape, if nobody else has it
    /// and it differs in no more. Then `call` is given its arguments first, and nothing changes where that fails.
    pub(crate) fn refit(
        &mut self,
        function: &Function,
        config: &LaunchConfig,
        args: &[Arg<'_>],
        call: impl FnOnce(*mut *mut c_void) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let inner = Arc::get_mut(&mut self.0)?;
        let mut buffers = inner.buffers.iter();
        let same = |arg: &Arg<'_>| match *arg {
            Arg::Buffer(region) => buffers.next().is_some_and(|known| known.same(region)),
            Arg::Scalar(..) => true,
            Arg::Value(_) => false,
        };
        let fits = inner.function.same(function) && inner.config.same_attributes(config);
        if !fits || inner.values.is_some() || !args.iter().all(same) {
            return None;
        }
        let slots = Slots::plain(args);
        let set = function.admit(config).and_then(|()| slots.with_pointers(call));
        if set.is_ok() {
            (inner.slots, inner.config) = (slots, *config);
        }
        Some(set)
    }

    /// The kernel.
    pub fn function(&self) -> &Function {
        &self.0.function
    }

    /// Blocks, threads and dynamic shared memory.
    pub fn config(&self) -> LaunchConfig {
        self.0.config
    }

    /// The arguments, in order.
    pub fn args(&self) -> Vec<HostArg> {
        if let Some(values) = &self.0.values {
            return values.to_vec();
        }
        let mut buffers = self.0.buffers.iter();
        let of = |(param, word): (&Parameter, &u64)| match param.ty {
            ParameterType::Buffer(..) => buffers.next().cloned().map(HostArg::Buffer),
            ParameterType::Value(ty) => ty.kind().map(|kind| HostArg::Scalar(kind, *word)),
        };
        self.0.function.params().iter().zip(self.0.slots.words.iter()).filter_map(of).collect()
    }

    /// The buffers, each with its parameter's name and what is done to it.
    #[inline]
    pub(crate) fn buffers(&self) -> impl Iterator<Item = (&'static str, &Region, Access)> + Clone {
        let params = self.0.function.params().iter();
        let buffers = params.filter_map(|param| match param.ty {
            ParameterType::Buffer(_, access) => Some((param.name, access)),
            ParameterType::Value(_) => None,
        });
        buffers.zip(&self.0.buffers).map(|((name, access), region)| (name, region, access))
    }

    /// Hands the arguments to a call as the driver wants them: an array of pointers to values.
    #[inline]
    pub(crate) fn with_params<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        self.0.slots.with_pointers(call)
    }

    /// Refuses a queue of another context. The buffers were compared with the kernel's when the launch was made.
    #[inline]
    pub(crate) fn expect_in(&self, context: &Context) -> Result<(), Error> {
        self.0.function.expect_in(context)
    }

    /// Queues the launch in a stream.
    #[inline]
    pub(crate) fn enqueue(&self, stream: &Stream) -> Result<(), Error> {
        let turn = stream.begin(self.0.function.name())?;
        turn.admit(self.buffers().map(|(_, region, access)| (region, access)))?;
        turn.enqueue(|driver| self.call(driver, stream))
    }

    /// Makes the call that gives the launch to a stream, which may capture.
    #[inline]
    pub(crate) fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let Inner { function, config, slots, .. } = &*self.0;
        // SAFETY: the launch was checked, and it holds its function and its memory.
        slots.with_pointers(|params| unsafe { call(driver, function, config, stream, params) })
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch({}, {:?})", self.0.function.name(), self.0.config)
    }
}

/// Checks a typed launch and queues it in a stream, without making a [`Launch`] of it.
#[inline]
pub(crate) fn enqueue_typed(
    stream: &Stream,
    function: &Function,
    config: LaunchConfig,
    args: &[Arg<'_>],
) -> Result<(), Error> {
    check(function, &config, args)?;
    function.expect_in(stream.context())?;
    let turn = stream.begin(function.name())?;
    turn.admit(buffers(function.params(), args).map(|(_, region, access)| (region, access)))?;
    turn.enqueue(|driver| {
        // SAFETY: the launch was checked, and the caller lends its memory until it is queued.
        Slots::with(args, |params| unsafe { call(driver, function, &config, stream, params) })
    })
}

/// # Safety
/// The arguments are those of the function, and the memory they name is there until the launch is queued: whoever
/// releases it later waits for the stream.
#[inline]
unsafe fn call(
    driver: &Driver,
    function: &Function,
    config: &LaunchConfig,
    stream: &Stream,
    params: *mut *mut c_void,
) -> Result<(), DriverError> {
    let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared, .. } = *config;
    if config.has_attributes() {
        // SAFETY: the caller vouches for the same.
        return unsafe { call_with_attributes(driver, function, config, stream, params) };
    }
    let (function, raw, extra) = (function.raw(), stream.raw(), std::ptr::null_mut());
    // SAFETY: function and stream are alive and of one context; the caller vouches for the arguments.
    unsafe { cu!(driver, cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, raw, params, extra)) }
}

/// # Safety
/// As [`call`].
#[cold]
unsafe fn call_with_attributes(
    driver: &Driver,
    function: &Function,
    config: &LaunchConfig,
    stream: &Stream,
    params: *mut *mut c_void,
) -> Result<(), DriverError> {
    let mut attributes = config.attributes();
    let launch = CUlaunchConfig {
        gridDimX: config.grid[0],
        gridDimY: config.grid[1],
        gridDimZ: config.grid[2],
        blockDimX: config.block[0],
        blockDimY: config.block[1],
        blockDimZ: config.block[2],
        sharedMemBytes: config.shared,
        hStream: stream.raw(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    };
    let (raw, extra) = (function.raw(), std::ptr::null_mut());
    // SAFETY: function and stream are alive and of one context; the attributes are lent; the caller vouches for the
    // arguments.
    unsafe { cu_if_there!(driver, cuLaunchKernelEx(&launch, raw, params, extra)) }
}

impl Slots {
    /// Of buffers and numbers only.
    #[inline]
    fn plain(args: &[Arg<'_>]) -> Self {
        let word = |arg: &Arg<'_>| match *arg {
            Arg::Buffer(region) => region.address(),
            Arg::Scalar(_, bits) => bits,
            Arg::Value(_) => 0,
        };
        Self { words: args.iter().map(word).collect(), starts: None }
    }

    fn of(args: &[Arg<'_>]) -> Self {
        let mut words = SmallVec::new();
        let add = |arg: &Arg<'_>| {
            let start = words.len() as u16;
            match *arg {
                Arg::Buffer(region) => words.push(region.address()),
                Arg::Scalar(_, bits) => words.push(bits),
                Arg::Value(value) => words.extend(value.bytes.chunks(8).map(word)),
            }
            start
        };
        let starts = Some(args.iter().map(add).collect());
        Self { words, starts }
    }

    /// Hands arguments to a call, without making slots of few numbers and buffers.
    #[inline]
    fn with<R>(args: &[Arg<'_>], call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        let mut words = [0; FEW];
        if args.len() > FEW || args.iter().any(|arg| matches!(arg, Arg::Value(_))) {
            return Self::of(args).with_pointers(call);
        }
        for (word, arg) in words.iter_mut().zip(args) {
            *word = match *arg {
                Arg::Buffer(region) => region.address(),
                Arg::Scalar(_, bits) => bits,
                Arg::Value(_) => 0,
            };
        }
        let mut pointers: [*mut c_void; FEW] = [std::ptr::null_mut(); FEW];
        let to = words.as_mut_ptr();
        pointers.iter_mut().enumerate().for_each(|(i, pointer)| *pointer = to.wrapping_add(i).cast());
        call(pointers.as_mut_ptr())
    }

    #[inline]
    fn with_pointers<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        // Numbers stand at the start of 64-bit words, which is right because every machine with CUDA is little-endian.
        let words = self.words.as_ptr();
        let pointer = |start: usize| -> *mut c_void { words.wrapping_add(start).cast_mut().cast() };
        match &self.starts {
            None if self.words.len() <= FEW => {
                let mut pointers: [*mut c_void; FEW] = std::array::from_fn(pointer);
                call(pointers.as_mut_ptr())
            }
            None => call((0..self.words.len()).map(pointer).collect::<Vec<_>>().as_mut_ptr()),
            Some(starts) => {
                let starts = starts.iter().map(|start| pointer((*start).into()));
                call(starts.collect::<Vec<_>>().as_mut_ptr())
            }
        }
    }
}

/// Up to eight bytes as the low ones of a word.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn buffers<'a>(
    params: &'a [Parameter],
    args: &'a [Arg<'a>],
) -> impl Iterator<Item = (&'static str, &'a Region, Access)> + Clone {
    params.iter().zip(args).filter_map(|(param, arg)| match (param.ty, *arg) {
        (ParameterType::Buffer(_, access), Arg::Buffer(region)) => Some((param.name, region, access)),
        _ => None,
    })
}

/// What is checked of every launch, typed or not.
#[inline]
fn check(function: &Function, config: &LaunchConfig, args: &[Arg<'_>]) -> Result<(), Error> {
    check_contexts(function, args)?;
    check_overlaps(function, args)?;
    function.admit(config)
}

fn check_types(function: &Function, args: &[Arg<'_>]) -> Result<(), Error> {
    let params = function.params();
    if args.len() != params.len() {
        return Err(function.refuse(LaunchProblem::Count { got: args.len(), wanted: params.len() }));
    }
    for (index, (param, arg)) in params.iter().zip(args).enumerate() {
        if !arg.fits(param.ty) {
            let (name, got, wanted) = (param.name.to_string(), arg.describe(), param.ty.describe());
            return Err(function.refuse(LaunchProblem::Argument { index, name, got, wanted }));
        }
    }
    Ok(())
}

#[inline]
fn check_contexts(function: &Function, args: &[Arg<'_>]) -> Result<(), Error> {
    for (name, region, _) in buffers(function.params(), args) {
        if !region.context().same(function.context()) {
            region.expect_in(function.context(), &format!("kernel {}, argument {name}", function.name()))?;
        }
    }
    Ok(())
}

#[inline]
fn check_overlaps(function: &Function, args: &[Arg<'_>]) -> Result<(), Error> {
    for (i, writer) in
        buffers(function.params(), args).enumerate().filter(|(_, (.., access))| access.writes())
    {
        for (j, other) in buffers(function.params(), args).enumerate() {
            if i != j && writer.1.overlaps(other.1) {
                let (first, second) = if i < j { (writer, other) } else { (other, writer) };
                return Err(overlap(function, [first.0, second.0], (writer.0, writer.1)));
            }
        }
    }
    Ok(())
}

#[cold]
fn overlap(function: &Function, [first, second]: [&str; 2], (writer, region): (&str, &Region)) -> Error {
    let [first, second, writer] = [first, second, writer].map(str::to_string);
    function.refuse(LaunchProblem::Overlap { first, second, buffer: region.name(), writer })
}
