//! The kernel around a GEMV: its shared memory, and the roles of its warps.

use super::consumer::Consumer;
use super::epilogue::Epilogue;
use super::layout::{partials_bytes, partials_offset};
use super::plan::Timestamp;
use super::stream::{Input, WeightStream};
use crate::format::activations::Activations;

impl<'k> WeightStream<'k> {
    /// Emits the whole kernel.
    pub(crate) fn run(self, input: Input<'k>, epilogue: impl Epilogue<'k>) {
        let k = self.k;

        k.section(
            "pipeline/stream/shared",
            "shared memory and the block's range of tiles",
        );
        let base = k.dynamic_shared::<u8>("memory");
        let encoding = self
            .plan
            .encoding(self.segments[0].0)
            .expect("plans have tiled formats");
        let partials = base.at(partials_offset(self.plan));
        let x = partials.row(self.args.max_row_blocks, partials_bytes(self.plan));
        let x = Activations::new(k, encoding, x, self.n, self.plan.batch);
        let ring = self.ring(base, &x);
        let shares = self.shares();

        // The next kernel may start now, because nothing that it does before its own wait depends
        // on this kernel.
        if self.plan.overlaps() {
            k.grid_trigger();
        }

        let first = k.tid().eq(0);
        self.timestamp(first, Timestamp::Begun);
        self.timestamp(first, Timestamp::SmId);
        let consumer = Consumer {
            stream: &self,
            ring: &ring,
            shares: &shares,
            x,
            partials,
        };

        // The last warp produces. The others consume.
        k.when(k.warp().eq(self.plan.warps()), || {
            self.produce(&ring, &shares)
        })
        .otherwise(|| consumer.run(input, epilogue));
    }
}
