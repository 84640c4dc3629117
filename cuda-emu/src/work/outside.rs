//! The environment of a kernel that waits: other streams, and the threads of the program.
//!
//! Only work of another stream or a call of the program can end the wait of a kernel that polls
//! device memory. If every other stream is idle or waits for the stream of the kernel, and every
//! thread of the program waits for a stream, then neither can happen and the wait is a deadlock. In
//! all other cases the wait may end, and only its time is limited.

use ptx_emu::Outside;

use crate::crew::program_threads;
use crate::device::EmulatedDevice;

/// The environment of a kernel that a stream runs.
pub(crate) struct AroundKernel<'a> {
    pub(crate) device: &'a EmulatedDevice,
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
        // If a scheduler runs one stream at a time, the kernel must let the stream run for which it
        // waits.
        self.device.turns.step_aside(self.queue);
        if self.siblings {
            return true;
        }
        let activity = &self.device.activity;
        activity.another_stream_may_run(self.queue)
            || program_threads() != Some(activity.waiting_threads())
    }
}
