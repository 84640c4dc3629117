//! A launch: a function, its shape and its arguments, checked before anybody queues it.

use std::ffi::c_void;
use std::sync::Arc;

use driver_sys::CUlaunchConfig;

use crate::args::{Args, Values, with_pointers};
use crate::argument::HostArg;
use crate::error::LaunchProblem;
use crate::few::Few;
use crate::parameter::ParameterType;
use crate::uses::{Held, Touches};
use crate::{Context, Driver, DriverError, Error, Function, LaunchConfig, Stream};

/// A checked launch, ready to be given to a stream any number of times. Clones are the same launch.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n`, and these are its parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let y = Buffer::from_slice(&context, &[1.0f32, 2.0])?;
/// let args = vec![HostArg::scalar(2u32), HostArg::scalar(3.0f32), HostArg::from(&*y)];
/// let launch = Launch::new(&scale, LaunchConfig::line(1, 32), args)?;
/// stream.run_launch(&launch)?;
/// stream.run_launch(&launch)?;
/// assert_eq!(stream.read(&y)?, [9.0, 18.0]);
/// // What does not fit the parameters is refused before the driver is asked.
/// let refused = Launch::new(&scale, LaunchConfig::line(1, 32), vec![]).unwrap_err();
/// assert!(matches!(refused, Error::Launch { problem: LaunchProblem::Count { got: 0, wanted: 3 }, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Launch(Arc<Inner>);

struct Inner {
    function: Function,
    config: LaunchConfig,
    /// The buffers, in the order of the parameters, then the tensors of maps.
    buffers: Few<Held, 3>,
    /// The values of the arguments, each at the start of 64-bit words.
    words: Few<u64, 8>,
    /// All arguments, where there are others than buffers and numbers.
    values: Option<Box<Values>>,
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
        check_types(function, &args)?;
        let mut lent = Args::default();
        lent.extend(function.params(), &args);
        Self::typed(function, config.into(), &lent)
    }

    /// A launch of arguments that have the types of the parameters.
    pub(crate) fn typed(
        function: &Function,
        config: LaunchConfig,
        args: &Args<'_>,
    ) -> Result<Self, Error> {
        args.check(function, &config)?;
        let values = args.values.clone().map(Box::new);
        let function = function.clone();
        // Filled where it lies: see `few`.
        let inner = Arc::<Inner>::new_uninit();
        let place = Arc::as_ptr(&inner).cast_mut().cast::<Inner>();
        // SAFETY: nobody else has the place yet.
        unsafe {
            place.write(Inner {
                function,
                config,
                buffers: Few::new(),
                words: Few::new(),
                values,
            })
        };
        // SAFETY: it was written.
        let inner = unsafe { inner.assume_init() };
        // SAFETY: nobody else has it yet.
        let Inner { buffers, words, .. } = unsafe { &mut *place };
        for lent in args.buffers.iter() {
            buffers.push(Held {
                region: lent.region.clone(),
                access: lent.access,
                index: lent.index,
            });
        }
        args.words.iter().for_each(|word| words.push(*word));
        Ok(Self(inner))
    }

    /// Makes the launch one of the same kernel and buffers with other numbers and another shape, if nobody else has it
    /// and it differs in no more. Then `call` is given its arguments first, and nothing changes where that fails.
    pub(crate) fn refit(
        &mut self,
        function: &Function,
        config: &LaunchConfig,
        args: &Args<'_>,
        call: impl FnOnce(*mut *mut c_void) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let inner = Arc::get_mut(&mut self.0)?;
        let (same_length, mut pairs) = (
            inner.words.len() == args.words.len() && inner.buffers.len() == args.buffers.len(),
            inner.buffers.iter().zip(args.buffers.iter()),
        );
        let fits =
            inner.function.same(function) && inner.config.same_attributes(config) && same_length;
        let plain = inner.values.is_none() && args.values.is_none();
        if !fits || !plain || !pairs.all(|(held, lent)| held.region.same(lent.region)) {
            return None;
        }
        let set = function
            .admit(config)
            .and_then(|()| args.with_pointers(call));
        if set.is_ok() {
            inner.words.copy_from_slice(&args.words);
            inner.config = *config;
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
            return values.args.clone();
        }
        let mut buffers = self.0.buffers.iter();
        let params = self.0.function.params().iter().zip(self.0.words.iter());
        let args = params.filter_map(|(param, word)| match param.ty {
            ParameterType::Buffer(..) => buffers
                .next()
                .map(|held| HostArg::Buffer(held.region.clone())),
            ParameterType::Value(ty) => ty.kind().map(|kind| HostArg::Scalar(kind, *word)),
        });
        args.collect()
    }

    /// The buffers, each with its parameter's name and what is done to it.
    #[inline]
    pub(crate) fn buffers(&self) -> Touches<'_> {
        Touches {
            params: self.0.function.params(),
            held: self.0.buffers.iter(),
            ..Touches::default()
        }
    }

    /// Hands the arguments to a call as the driver wants them: an array of pointers to values.
    #[inline]
    pub(crate) fn with_params<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        with_pointers(&self.0.words, self.0.values.as_deref(), call)
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
        turn.admit(
            self.0
                .buffers
                .iter()
                .map(|held| (&held.region, held.access)),
        )?;
        turn.enqueue(|driver| self.call(driver, stream))
    }

    /// Makes the call that gives the launch to a stream, which may capture.
    #[inline]
    pub(crate) fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let Inner {
            function, config, ..
        } = &*self.0;
        // SAFETY: the launch was checked, and it holds its function and its memory.
        self.with_params(|params| unsafe { call(driver, function, config, stream, params) })
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
    config: &LaunchConfig,
    args: &Args<'_>,
) -> Result<(), Error> {
    args.check(function, config)?;
    function.expect_in(stream.context())?;
    let turn = stream.begin(function.name())?;
    turn.admit(args.uses())?;
    turn.enqueue(|driver| {
        // SAFETY: the launch was checked, and the caller lends its memory until it is queued.
        args.with_pointers(|params| unsafe { call(driver, function, config, stream, params) })
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
    let LaunchConfig {
        grid: [gx, gy, gz],
        block: [bx, by, bz],
        shared,
        ..
    } = *config;
    if config.has_attributes() {
        // SAFETY: the caller vouches for the same.
        return unsafe { call_with_attributes(driver, function, config, stream, params) };
    }
    let (function, raw, extra) = (function.raw(), stream.raw(), std::ptr::null_mut());
    // SAFETY: function and stream are alive and of one context; the caller vouches for the arguments.
    unsafe {
        cu!(
            driver,
            cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, raw, params, extra)
        )
    }
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

fn check_types(function: &Function, args: &[HostArg]) -> Result<(), Error> {
    let params = function.params();
    if args.len() != params.len() {
        return Err(function.refuse(LaunchProblem::Count {
            got: args.len(),
            wanted: params.len(),
        }));
    }
    for (index, (param, arg)) in params.iter().zip(args).enumerate() {
        if !arg.fits(param.ty) {
            let (name, got, wanted) = (param.name.to_string(), arg.describe(), param.ty.describe());
            return Err(function.refuse(LaunchProblem::Argument {
                index,
                name,
                got,
                wanted,
            }));
        }
    }
    Ok(())
}
