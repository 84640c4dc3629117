//! The world around a kernel that waits: other streams, and the threads of the program.
//!
//! A kernel that polls memory of a device can only be ended by work of another stream or by a call of the program. Neither
//! can come if every other stream is idle or waits for the stream of the kernel, and every thread of the program waits for
//! a stream. Then the wait is a deadlock. In all other cases the wait may end, and only its time is limited.

use ptx_emu::Outside;

use crate::crew::program_threads;
use crate::device::Device;

/// The world around a kernel that a stream runs.
pub(crate) struct AroundKernel<'a> {
    pub(crate) device: &'a Device,
    /// The stream that runs the kernel.
    pub(crate) queue: u32,
    /// Whether the kernel is a node of a graph with nodes that may run at the same time.
    pub(crate) siblings: bool,
}

impl std::fmt::Debug for AroundKernel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AroundKernel(stream {})", self.queue)
    }
}

impl Outside for AroundKernel<'_> {
    fn changes(&self) -> u64 {
        self.device.activity.changes()
    }

    fn may_change(&self) -> bool {
        // Where streams take turns, the kernel would otherwise keep its turn from the stream that it waits for.
        self.device.turns.step_aside(self.queue);
        if self.siblings {
            return true;
        }
        let activity = &self.device.activity;
        activity.another_stream_may_run(self.queue)
            || program_threads() != Some(activity.waiting_threads())
    }
}
