//! Prepared launches: a function, a configuration and arguments that were checked together.

use std::ffi::c_void;
use std::sync::Arc;

use crate::device::Context;
use crate::error::{Error, LaunchProblem};
use crate::launch::HostArg;
use crate::launch::borrowed_args::{Args, Values, with_pointers};
use crate::module::launch_config::LaunchConfig;
use crate::module::{Function, ParameterType};
use crate::ordering::memory_accesses::{AccessIter, KeptBuffer};
use crate::small_vec::SmallVec;

/// A checked launch that can be queued any number of times. Clones refer to the same launch.
///
/// ```
/// # use warpwright_driver::error::LaunchProblem;
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n` and has these parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let y = Buffer::from_slice(&context, &[1.0f32, 2.0])?;
/// let args = vec![HostArg::scalar(2u32), HostArg::scalar(3.0f32), HostArg::from(&*y)];
/// let launch = Launch::new(&scale, LaunchConfig::line(1, 32), args)?;
/// stream.run_launch(&launch)?;
/// stream.run_launch(&launch)?;
/// assert_eq!(stream.read(&y)?, [9.0, 18.0]);
/// // Arguments that do not match the parameters are an error before the driver is called.
/// let refused = Launch::new(&scale, LaunchConfig::line(1, 32), vec![]).unwrap_err();
/// assert!(matches!(refused, Error::Launch { problem: LaunchProblem::Count { got: 0, wanted: 3 }, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Launch(pub(crate) Arc<PreparedLaunch>);

/// The parts of a launch, which were checked together.
pub(crate) struct PreparedLaunch {
    pub(crate) function: Function,
    pub(crate) config: LaunchConfig,
    /// The buffers in the order of the parameters, then the tensors of maps.
    pub(crate) buffers: SmallVec<KeptBuffer, 3>,
    /// The values of the arguments, each of which starts at a 64-bit word.
    words: SmallVec<u64, 8>,
    /// All arguments, if some are neither buffers nor scalars.
    values: Option<Box<Values>>,
}

impl Launch {
    /// Checks a launch and prepares it.
    ///
    /// The arguments must match the parameters, and the configuration must fit the device and the
    /// kernel. An argument that is written must not share bytes with another one.
    ///
    /// # Errors
    /// - [`Error::Launch`] with the kernel, the argument, and the expected and actual type or
    ///   limit.
    /// - [`Error::WrongContext`] with the buffer that belongs to another context.
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

    /// Prepares a launch of arguments whose types were checked.
    pub(crate) fn typed(
        function: &Function,
        config: LaunchConfig,
        args: &Args<'_>,
    ) -> Result<Self, Error> {
        args.check(function, &config)?;
        let values = args.values.clone().map(Box::new);
        let function = function.clone();

        // The vectors are filled in their final place on the heap, for the reason that the module
        // `small_vec` explains.
        let inner = Arc::<PreparedLaunch>::new_uninit();
        let place = Arc::as_ptr(&inner).cast_mut().cast::<PreparedLaunch>();

        // SAFETY: the allocation is new, so nothing else refers to it.
        unsafe {
            place.write(PreparedLaunch {
                function,
                config,
                buffers: SmallVec::new(),
                words: SmallVec::new(),
                values,
            })
        };

        // SAFETY: the value was written just above.
        let inner = unsafe { inner.assume_init() };

        // SAFETY: `inner` has not been cloned and is not used below until the borrow ends.
        let PreparedLaunch { buffers, words, .. } = unsafe { &mut *place };
        for lent in args.buffers.iter() {
            buffers.push(KeptBuffer {
                region: lent.region.clone(),
                access: lent.access,
                index: lent.index,
            });
        }

        for word in args.words.iter() {
            words.push(*word);
        }

        Ok(Self(inner))
    }

    /// Changes the launch to other scalars and another shape without an allocation.
    ///
    /// Returns `None` if another clone exists, or if more than scalars and shape differ. Otherwise
    /// calls `call` with the new arguments, and changes the launch only if it succeeds.
    pub(crate) fn refit(
        &mut self,
        function: &Function,
        config: &LaunchConfig,
        args: &Args<'_>,
        call: impl FnOnce(*mut *mut c_void) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let inner = Arc::get_mut(&mut self.0)?;

        // The buffers must be the same, because their contexts, overlaps and order were checked
        // before.
        let same_length =
            inner.words.len() == args.words.len() && inner.buffers.len() == args.buffers.len();
        let mut pairs = inner.buffers.iter().zip(args.buffers.iter());
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

    /// Returns the kernel.
    pub fn function(&self) -> &Function {
        &self.0.function
    }

    /// Returns the launch configuration.
    pub fn config(&self) -> LaunchConfig {
        self.0.config
    }

    /// Returns the arguments in order.
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

    /// Returns the buffers with the names of their parameters and their accesses.
    #[inline]
    pub(crate) fn buffers(&self) -> AccessIter<'_> {
        AccessIter {
            params: self.0.function.params(),
            held: self.0.buffers.iter(),
            ..AccessIter::default()
        }
    }

    /// Passes the arguments to `call` as an array of pointers to values.
    #[inline]
    pub(crate) fn with_params<R>(&self, call: impl FnOnce(*mut *mut c_void) -> R) -> R {
        with_pointers(&self.0.words, self.0.values.as_deref(), call)
    }

    /// Checks that the launch belongs to the context of a queue. Its buffers were compared with its
    /// kernel when it was created.
    #[inline]
    pub(crate) fn expect_in(&self, context: &Context) -> Result<(), Error> {
        self.0.function.expect_in(context)
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch({}, {:?})", self.0.function.name(), self.0.config)
    }
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
            let name = param.name.to_string();
            let got = arg.describe();
            let wanted = param.ty.describe();
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
