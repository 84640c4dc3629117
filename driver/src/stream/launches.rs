//! Launches of kernels in a stream.

use std::ffi::c_void;

use driver_sys::CUlaunchConfig;
use ptx_gen::KernelDef;

use crate::device::Driver;
use crate::error::{DriverError, Error};
use crate::launch::borrowed_args::Args;
use crate::launch::prepared::PreparedLaunch;
use crate::launch::{Host, Kernel, Launch, LaunchConfig};
use crate::module::Function;
use crate::stream::Stream;

impl Launch {
    /// Queues the launch in a stream.
    #[inline]
    pub(crate) fn enqueue(&self, stream: &Stream) -> Result<(), Error> {
        let submission = stream.begin(self.0.function.name())?;
        submission.admit(
            self.0
                .buffers
                .iter()
                .map(|held| (&held.region, held.access)),
        )?;
        submission.enqueue(|driver| self.call(driver, stream))
    }

    /// Makes the driver call that queues the launch in a stream, which may capture.
    #[inline]
    pub(crate) fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let PreparedLaunch {
            function, config, ..
        } = &*self.0;
        // SAFETY: the arguments were checked when the launch was created, and it keeps its function
        // and its memory alive.
        self.with_params(|params| unsafe { call(driver, function, config, stream, params) })
    }
}

impl<K: KernelDef> Kernel<K> {
    /// Launches the kernel in a stream.
    #[inline]
    pub(crate) fn enqueue(&self, stream: &Stream, args: &K::Args<Host<'_>>) -> Result<(), Error> {
        self.collect(args, |config, args| {
            enqueue_typed(stream, self.function(), &config, args)
        })
    }
}

/// Checks a typed launch and queues it in a stream without creating a [`Launch`].
#[inline]
fn enqueue_typed(
    stream: &Stream,
    function: &Function,
    config: &LaunchConfig,
    args: &Args<'_>,
) -> Result<(), Error> {
    args.check(function, config)?;
    function.expect_in(stream.context())?;
    let submission = stream.begin(function.name())?;
    submission.admit(args.uses())?;
    submission.enqueue(|driver| {
        // SAFETY: the arguments were checked above, and the caller lends their memory until the
        // launch is queued.
        args.with_pointers(|params| unsafe { call(driver, function, config, stream, params) })
    })
}

/// Queues a launch.
///
/// # Safety
/// - The arguments must be those of the function.
/// - Their memory must live until the launch is queued. Destructors that run later wait for the
///   stream.
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
        // SAFETY: the caller fulfills the same obligations.
        return unsafe { call_with_attributes(driver, function, config, stream, params) };
    }

    let function = function.raw();
    let raw = stream.raw();
    let extra = std::ptr::null_mut();

    // SAFETY: the references keep function and stream alive, which were checked to be of one
    // context. The caller guarantees the arguments.
    unsafe {
        cu!(
            driver,
            cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, raw, params, extra)
        )
    }
}

/// Queues a launch with launch attributes.
///
/// # Safety
/// The caller must fulfill the obligations of [`call`].
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
    let raw = function.raw();
    let extra = std::ptr::null_mut();

    // SAFETY: the references keep function and stream alive, which were checked to be of one
    // context. The attributes live until the call returns. The caller guarantees the arguments.
    unsafe { cu_optional!(driver, cuLaunchKernelEx(&launch, raw, params, extra)) }
}
