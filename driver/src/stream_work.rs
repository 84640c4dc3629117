//! What a stream takes besides work of the device: functions of the host, waits on memory, and shorter names.

use driver_sys::{CUstream, CUstream_flags, CUstreamWaitValue_flags, CUstreamWriteValue_flags};
use ptx_gen::{Access, KernelDef};

use crate::callback::{Registration, call};
use crate::element::Element;
use crate::memory::refuse_memory;
use crate::queue::Work;
use crate::{Context, Error, Host, Kernel, Stream, View};

/// What a stream waits for in a word of memory, compared with a value.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let flag = Buffer::<u32>::zeroed(&context, 1)?;
/// stream.write_value(&flag, 7)?;
/// stream.wait_value(&flag, WaitFor::AtLeast, 5)?; // goes on at once
/// assert_eq!(stream.read(&flag)?, [7]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// The word is at least the value, as the difference of the two is not negative: counters may wrap.
    AtLeast,
    /// The word is the value.
    Equal,
    /// The word and the value have a bit in common.
    AnyBit,
    /// A bit is missing in both.
    MissingBit,
}

impl Context {
    /// The lowest and the highest priority of a stream: the higher, the smaller the number.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn priorities(&self) -> Result<(i32, i32), Error> {
        let (mut least, mut greatest) = (0, 0);
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: both numbers are ours to write.
        unsafe {
            cu_if_there!(
                driver,
                cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
            )
        }?;
        Ok((least, greatest))
    }
}

impl Stream {
    /// A new stream whose work goes before that of streams of lower priority: see [`Context::priorities`]. The driver
    /// takes the nearest that there is.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn with_priority(context: &Context, priority: i32) -> Result<Self, Error> {
        let driver = context.driver();
        Self::add(context, false, || {
            let (mut raw, flags) = (CUstream::NULL, CUstream_flags::NON_BLOCKING);
            // SAFETY: `raw` is ours to write.
            unsafe {
                cu_if_there!(
                    driver,
                    cuStreamCreateWithPriority(&mut raw, flags, priority)
                )
            }?;
            Ok(raw)
        })
    }

    /// Launches a kernel. The same as [`Queue::launch`](crate::Queue::launch), for a stream that is shared.
    ///
    /// # Errors
    /// As [`Kernel::with`], and as [`run`](Self::run).
    #[inline]
    pub fn launch<K: KernelDef>(
        &self,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        kernel.enqueue(self, &args)
    }

    /// Copies elements.
    ///
    /// # Errors
    /// Views of different length or that overlap; else as [`run`](Self::run).
    pub fn copy<T: Element>(&self, from: &View<T>, to: &View<T>) -> Result<(), Error> {
        self.run(&Work::copy(from, to)?)
    }

    /// Sets every element.
    ///
    /// # Errors
    /// As [`Work::fill`] and [`run`](Self::run).
    pub fn fill<T: Element>(&self, to: &View<T>, value: T) -> Result<(), Error> {
        self.run(&Work::fill(to, value)?)
    }

    /// Runs `function` on the host in the order of this stream, on a thread of the driver.
    ///
    /// The function must not call the driver. A panic in it is caught, and reported with the feature `tracing`. After a
    /// fault of the device the driver does not start it any more. A call that is under way then still completes, and
    /// what the function owns lives until it has returned.
    ///
    /// The function and what it owns are dropped on that thread. Objects of this crate among them are released when
    /// another thread next drops such an object or waits for a stream. Until then the last share of a [`Context`] keeps
    /// the device in use.
    ///
    /// # Errors
    /// Returns [`Error::Capturing`] if the stream captures, or an error if the driver cannot queue the function. The
    /// function is dropped then.
    pub fn call(&self, function: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let function = Registration::once(function);
        let data = function.data();
        self.begin("a function of the host")?.enqueue(|driver| {
            // SAFETY: the data is a key, which `call` looks up.
            unsafe { cu_if_there!(driver, cuLaunchHostFunc(self.raw(), Some(call), data)) }
        })?;
        function.leave();
        Ok(())
    }

    /// Lets what comes after wait until a word of memory has a value that a kernel, another stream or the host writes.
    ///
    /// This crate does not know who writes it, and so not what the wait orders:
    /// [`assume_after`](Self::assume_after) tells it.
    ///
    /// # Errors
    /// A view that is not one word, [`Error::Capturing`], or what the driver refuses: not every device has such waits.
    pub fn wait_value(&self, word: &View<u32>, wait: WaitFor, value: u32) -> Result<(), Error> {
        word.expect_len("waiting for a value", 1)?;
        refuse_memory(word.region(), "waiting for a value")?;
        word.region().expect_in(self.context(), "a stream")?;
        let flags = match wait {
            WaitFor::AtLeast => CUstreamWaitValue_flags::GEQ,
            WaitFor::Equal => CUstreamWaitValue_flags::EQ,
            WaitFor::AnyBit => CUstreamWaitValue_flags::AND,
            WaitFor::MissingBit => CUstreamWaitValue_flags::NOR,
        };
        let (raw, address) = (self.raw(), word.address());
        self.begin("waiting for a value")?.enqueue(|driver| {
            // SAFETY: the word is alive, and whoever releases it waits for the stream.
            unsafe { cu_if_there!(driver, cuStreamWaitValue32_v2(raw, address, value, flags)) }
        })
    }

    /// Writes a word of memory once the work before it is done.
    ///
    /// # Errors
    /// As [`wait_value`](Self::wait_value), and [`Error::UnorderedStreams`].
    pub fn write_value(&self, word: &View<u32>, value: u32) -> Result<(), Error> {
        word.expect_len("writing a value", 1)?;
        word.region().expect_in(self.context(), "a stream")?;
        let (raw, address, flags) = (
            self.raw(),
            word.address(),
            CUstreamWriteValue_flags::empty(),
        );
        let turn = self.begin("writing a value")?;
        turn.admit(std::iter::once((word.region(), Access::Write)))?;
        turn.enqueue(|driver| {
            // SAFETY: as above.
            unsafe { cu_if_there!(driver, cuStreamWriteValue32_v2(raw, address, value, flags)) }
        })
    }
}
