//! Stream operations other than kernels and copies: host functions, waits on memory, and
//! shorthands.

use driver_sys::{CUstream, CUstream_flags, CUstreamWaitValue_flags, CUstreamWriteValue_flags};
use ptx_gen::{Access, KernelDef};

use crate::device::Context;
use crate::error::Error;
use crate::launch::{Host, Kernel};
use crate::lifetime::host_functions::{Registration, call};
use crate::lifetime::stream_progress::StreamOrigin;
use crate::memory::region::refuse_graph_memory;
use crate::memory::{Element, View};
use crate::stream::{Stream, Work};

/// The condition under which a stream that waits for a word of memory continues.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let flag = Buffer::<u32>::zeroed(&context, 1)?;
/// stream.write_value(&flag, 7)?;
/// stream.wait_value(&flag, WaitFor::AtLeast, 5)?; // continues immediately
/// assert_eq!(stream.read(&flag)?, [7]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// The word is at least the value. The comparison is cyclic, so counters may wrap around.
    AtLeast,
    /// The word equals the value.
    Equal,
    /// The word and the value have a set bit in common.
    AnyBit,
    /// A bit is clear in both the word and the value.
    MissingBit,
}

impl Context {
    /// Returns the lowest and the highest stream priority. A smaller number is a higher priority.
    ///
    /// # Errors
    /// Returns an error if the driver does not report the range.
    pub fn priorities(&self) -> Result<(i32, i32), Error> {
        let mut least = 0;
        let mut greatest = 0;
        let _current = self.enter()?;
        let driver = self.driver();

        // SAFETY: both numbers are local variables that the driver may write.
        unsafe {
            cu_optional!(
                driver,
                cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
            )
        }?;
        Ok((least, greatest))
    }
}

impl Stream {
    /// Creates a stream with a priority. Its work runs before queued work of streams with lower
    /// priority.
    ///
    /// A priority outside the range of [`Context::priorities`] is clamped to it.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the stream.
    pub fn with_priority(context: &Context, priority: i32) -> Result<Self, Error> {
        let driver = context.driver();
        Self::add(context, StreamOrigin::Here, || {
            let mut raw = CUstream::NULL;
            let flags = CUstream_flags::NON_BLOCKING;

            // SAFETY: `raw` is a local variable that the driver may write.
            unsafe {
                cu_optional!(
                    driver,
                    cuStreamCreateWithPriority(&mut raw, flags, priority)
                )
            }?;
            Ok(raw)
        })
    }

    /// Launches a kernel, like [`Queue::launch`](crate::stream::Queue::launch), but on a shared
    /// reference.
    ///
    /// # Errors
    /// Returns the errors of [`Kernel::with`] and [`run`](Self::run).
    #[inline]
    pub fn launch<K: KernelDef>(
        &self,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        kernel.enqueue(self, &args)
    }

    /// Queues a copy of elements.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the views differ in length or overlap, and the errors of
    /// [`run`](Self::run).
    pub fn copy<T: Element>(&self, from: &View<T>, to: &View<T>) -> Result<(), Error> {
        self.run(&Work::copy(from, to)?)
    }

    /// Queues a fill that sets every element to `value`.
    ///
    /// # Errors
    /// Returns the errors of [`Work::fill`] and [`run`](Self::run).
    pub fn fill<T: Element>(&self, to: &View<T>, value: T) -> Result<(), Error> {
        self.run(&Work::fill(to, value)?)
    }

    /// Runs `function` on the host in the order of this stream, on a thread of the driver.
    ///
    /// The function must not call the driver. A panic in it is caught, and logged if the feature
    /// `tracing` is enabled. After a device fault the driver starts no more functions. A call in
    /// progress still completes, and the captured values live until it has returned.
    ///
    /// The function is dropped on that thread. Objects of this crate among its captured values are
    /// released when another thread next drops such an object or waits for a stream. Until then, a
    /// last share of a [`Context`] keeps the device in use.
    ///
    /// # Errors
    /// Returns [`Error::Capturing`] if the stream captures, or an error if the driver cannot queue
    /// the function. In both cases the function is dropped without a call.
    pub fn call(&self, function: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let function = Registration::once(function);
        let data = function.data();
        self.begin("a function of the host")?.enqueue(|driver| {
            // SAFETY: `call` looks `data` up as a key and does not use it as an address.
            unsafe { cu_optional!(driver, cuLaunchHostFunc(self.raw(), Some(call), data)) }
        })?;
        // Only now: if queueing has failed, the registration drops the function.
        function.leave();
        Ok(())
    }

    /// Makes work queued from now on wait until a word of memory satisfies a condition.
    ///
    /// A kernel, another stream or the host can write the word. This crate does not know which one
    /// does, and therefore not which work the wait orders. Use [`assume_after`](Self::assume_after)
    /// to declare the order.
    ///
    /// # Errors
    /// - [`Error::Transfer`] if the view is not a single word.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the driver cannot queue the wait. Not every device supports such
    ///   waits.
    pub fn wait_value(&self, word: &View<u32>, wait: WaitFor, value: u32) -> Result<(), Error> {
        word.expect_len("waiting for a value", 1)?;
        refuse_graph_memory(word.region(), "waiting for a value")?;
        word.region().expect_in(self.context(), "a stream")?;
        let flags = match wait {
            WaitFor::AtLeast => CUstreamWaitValue_flags::GEQ,
            WaitFor::Equal => CUstreamWaitValue_flags::EQ,
            WaitFor::AnyBit => CUstreamWaitValue_flags::AND,
            WaitFor::MissingBit => CUstreamWaitValue_flags::NOR,
        };
        let raw = self.raw();
        let address = word.address();
        self.begin("waiting for a value")?.enqueue(|driver| {
            // SAFETY: the view keeps the word alive, and its destructor frees it only after the
            // stream has completed this operation.
            unsafe { cu_optional!(driver, cuStreamWaitValue32_v2(raw, address, value, flags)) }
        })
    }

    /// Queues a write of a word of memory after all work queued before.
    ///
    /// # Errors
    /// Returns the errors of [`wait_value`](Self::wait_value), and [`Error::UnorderedStreams`] if
    /// work of another stream uses the word without an order.
    pub fn write_value(&self, word: &View<u32>, value: u32) -> Result<(), Error> {
        word.expect_len("writing a value", 1)?;
        word.region().expect_in(self.context(), "a stream")?;
        let raw = self.raw();
        let address = word.address();
        let flags = CUstreamWriteValue_flags::empty();
        let submission = self.begin("writing a value")?;
        submission.admit(std::iter::once((word.region(), Access::Write)))?;
        submission.enqueue(|driver| {
            // SAFETY: the view keeps the word alive, and its destructor frees it only after the
            // stream has completed this operation.
            unsafe { cu_optional!(driver, cuStreamWriteValue32_v2(raw, address, value, flags)) }
        })
    }
}
