//! The consumer warps: load the activations, multiply the tiles, and run the epilogue.
//!
//! Everything before [`Consumer::wait`] runs while the previous kernel is still running. It reads
//! nothing that the previous kernel writes.

use super::epilogue::{Epilogue, Factor, Results};
use super::layout::*;
use super::load_activations::{Gamma, Loaders};
use super::lora::Tail;
use super::plan::{Plan, Timestamp};
use super::ring::{Ring, RingCursor};
use super::stream::{BARRIERS_READY, BlockShare, CONSUMERS, Input, READY, WeightStream};
use crate::format::Format;
use crate::format::activations::Activations;
use crate::format::lanes::multiply::{RowSums, TileMultiplier};
use crate::format::tile::{self, ROWS};
use ptx_gen::*;
use std::array::from_fn;

/// The consumers' view of the kernel.
pub(super) struct Consumer<'a, 'k> {
    pub(super) stream: &'a WeightStream<'k>,
    pub(super) ring: &'a Ring<'k>,
    pub(super) shares: &'a [BlockShare<'k>],
    /// The activations in shared memory.
    pub(super) x: Activations<'k>,
    /// The partial sums in shared memory.
    pub(super) partials: Ptr<'k, u8, Shared>,
}

/// The state that is computed before the wait.
struct BeforeWait<'k, A> {
    input: Input<'k, Gamma<'k>>,
    results: Results<'k>,
    addresses: A,
    work: Vec<WarpWork<'k>>,
}

impl<'k> Consumer<'_, 'k> {
    /// Emits all phases in order.
    pub(super) fn run<E: Epilogue<'k>>(&self, input: Input<'k>, epilogue: E) {
        let k = self.stream.k;
        let loaders = Loaders {
            thread: k.tid(),
            threads: 32 * self.stream.plan.warps(),
        };
        let BeforeWait {
            input,
            mut results,
            addresses,
            work,
        } = self.prepare(loaders, input, &epilogue);
        self.wait(loaders);
        let epsilon = self.load_activations(loaders, input);

        k.section(
            "pipeline/consumer/epilogue_loads",
            "epilogue: loads that do not depend on the sums",
        );

        // These loads are issued behind the loads of the activations, and their latency is hidden
        // by the multiplication.
        let operands = epilogue.prefetch(k, &addresses);
        k.barrier_part(READY, self.stream.plan.threads());
        results.factor = epsilon.map_or(Factor::None, |epsilon| self.norm_factor(loaders, epsilon));
        self.timestamp(loaders, Timestamp::Ready);
        self.multiply(work);
        self.timestamp(loaders, Timestamp::Multiplied);

        k.section(
            "pipeline/consumer/sums_complete",
            "all partial sums are in shared memory",
        );
        k.barrier_part(CONSUMERS, loaders.threads);
        epilogue.store(&results, addresses, operands);
        self.timestamp(loaders, Timestamp::Stored);
    }

    /// Records a timestamp in the first consumer thread.
    fn timestamp(&self, loaders: Loaders<'k>, timestamp: Timestamp) {
        self.stream.timestamp(loaders.thread.eq(0), timestamp);
    }

    /// Prepares the work before the wait: loads the norm's weights, clears the partial sums, and
    /// computes addresses.
    fn prepare<E: Epilogue<'k>>(
        &self,
        loaders: Loaders<'k>,
        input: Input<'k>,
        epilogue: &E,
    ) -> BeforeWait<'k, E::Addresses> {
        let stream = self.stream;
        let k = stream.k;
        let Loaders { thread, threads } = loaders;
        let input = input.with_gamma(|gamma| loaders.gamma(k, gamma, self.unpadded()));

        k.section(
            "pipeline/consumer/clear_sums",
            "consumer warps: clear the partial sums",
        );

        // A warp may have no tile in some row blocks and then stores no partial sums there.
        let numbers = stream.args.max_row_blocks * (partials_bytes(stream.plan) / 4);
        k.for_each(thread, numbers, threads, |i| {
            self.partials.row(i, 4).cast::<f32>().st(0.0)
        });
        let results = Results {
            k,
            thread,
            threads,
            shares: self.shares.iter().map(|s| (s.first, s.count)).collect(),
            before: self.shares.iter().map(|s| s.before).collect(),
            plan: stream.plan,
            partials: self.partials,
            factor: Factor::None,
            tail: self.tail(loaders),
            scratch: self.ring.base.at(SCRATCH),
        };

        k.section(
            "pipeline/consumer/addresses",
            "consumer warps: addresses of the results and tiles of the warp",
        );
        let addresses = epilogue.addresses(&results);
        BeforeWait {
            input,
            results,
            addresses,
            work: self.warp_work(),
        }
    }

    /// Returns the adapter's contribution, and requests the adapter's rows.
    fn tail(&self, Loaders { thread, threads }: Loaders<'k>) -> Option<(Tail<'k>, Vec<U32<'k>>)> {
        let tail = self.stream.tail?;
        let segments = &self.stream.segments;
        for (i, share) in self.shares.iter().enumerate() {
            let first = segments[..i]
                .iter()
                .fold(share.first, |first, &(_, count)| first + count);
            tail.request(first, share.count, thread, threads);
        }
        Some((tail, segments.iter().map(|&(_, count)| count).collect()))
    }

    /// Waits for the earlier kernels. Their results may be read afterwards.
    fn wait(&self, loaders: Loaders<'k>) {
        let stream = self.stream;
        let k = stream.k;
        if stream.plan.profile {
            self.wait_for_first_tiles();
        }

        self.timestamp(loaders, Timestamp::Landed);
        if stream.plan.overlaps() {
            k.section(
                "pipeline/overlap/wait",
                "nothing before this wait reads results of earlier kernels",
            );
            k.grid_wait();
        }

        self.timestamp(loaders, Timestamp::Waited);
    }

    /// Waits for the first tiles, only to record the time at which they arrived.
    fn wait_for_first_tiles(&self) {
        let stream = self.stream;
        let k = stream.k;
        k.barrier_part(BARRIERS_READY, stream.plan.threads());
        let tiles = self
            .shares
            .iter()
            .map(|s| s.len)
            .reduce(|a, b| a + b)
            .expect("a segment");

        // The whole warp waits. A single waiting lane would delay the other lanes' wait for earlier
        // kernels.
        k.when(k.warp().eq(0) & tiles.gt(0), || {
            stream.wait(self.ring.full(0), 0)
        });
        k.warp_barrier();
    }

    /// Returns true if the batch is one token.
    fn is_single(&self) -> bool {
        self.stream.plan.batch == 1
    }

    /// Returns the address of the sums of squares: one per warp in a batch of one, else one per
    /// token and warp.
    fn squares(&self) -> Ptr<'k, f32, Shared> {
        self.ring
            .base
            .at(if self.is_single() { SQUARES } else { PARTIALS })
            .cast::<f32>()
    }

    /// Loads and encodes the activations. Returns the norm's epsilon if there is a norm.
    fn load_activations(
        &self,
        loaders: Loaders<'k>,
        input: Input<'k, Gamma<'k>>,
    ) -> Option<F32<'k>> {
        let k = self.stream.k;
        let squares = self.squares();
        match input {
            Input::Normed { x, gamma, epsilon } if self.is_single() => {
                let sum = self
                    .x
                    .load_normed(loaders, x, gamma, self.stream.plan.row_len);
                k.when(k.lane().eq(0), || squares.at(k.warp()).st(sum));
                Some(epsilon)
            }
            Input::Normed { x, gamma, epsilon } => {
                self.x
                    .load_batch(loaders, x, gamma, (squares, SQUARES_BYTES));
                Some(epsilon)
            }
            Input::BlockFloat(x) => {
                self.x.load(loaders, x);
                None
            }
        }
    }

    /// Returns `1 / rms`. It multiplies the sums instead of the activations, because the sum of
    /// squares is known only after all activations are encoded.
    fn norm_factor(&self, loaders: Loaders<'k>, epsilon: F32<'k>) -> Factor<'k> {
        if self.is_single() {
            return Factor::One(self.factor(self.squares(), epsilon));
        }

        // The barrier after the multiplication publishes the factors.
        let factors = self.ring.base.at(SQUARES).cast::<f32>();
        let thread = loaders.thread;
        let squares = self.squares();
        self.stream.k.when(thread.lt(self.stream.plan.batch), || {
            factors
                .at(thread)
                .st(self.factor(squares.row(thread, SQUARES_BYTES), epsilon));
        });
        Factor::Each(factors)
    }

    /// Returns `1 / rms` from the warps' sums of squares, added in the order of the warps.
    fn factor(&self, squares: Ptr<'k, f32, Shared>, epsilon: F32<'k>) -> F32<'k> {
        let parts: Vec<F32> = (0..self.stream.plan.warps())
            .map(|w| squares.at(w).ld())
            .collect();
        let sum = parts[1..].iter().fold(parts[0], |sum, &p| sum + p);
        (sum * self.unpadded().cvt::<f32>().rcp() + epsilon).rsqrt()
    }

    /// Returns the number of activations of a row without the padding.
    fn unpadded(&self) -> U32<'k> {
        match self.stream.plan.row_len {
            None => self.stream.n,
            Some(len) => self.stream.k.val(len),
        }
    }

    /// Computes the work of a consumer warp, before the wait.
    fn warp_work(&self) -> Vec<WarpWork<'k>> {
        let k = self.stream.k;
        let Plan { width, groups, .. } = self.stream.plan;
        let warp = k.warp();
        let group = warp / width;
        let member = warp % width;
        let row_tiles = self.stream.row_tiles();

        // The number of stages of earlier segments. The round-robin order continues across
        // segments.
        let mut base = k.val(0);
        let work = |share: &BlockShare<'k>| {
            let stages = (share.len + (width - 1)) / width;
            let first = (group + groups - base % groups) % groups;
            base = base + stages;
            let last = (stages + groups - 1 - first) % groups;

            // The last stage may have fewer tiles than the group has warps. Its surplus warps must
            // still release it.
            let short = share.len % width;
            let idle = short.gt(0) & member.ge(short) & last.eq(0);
            let cursor = TileCursor::new(k, first * width + member, row_tiles, width * groups);
            let group = share.format.tiles().group();
            let multiplier = TileMultiplier::new(k, share.format.section_name(), group, self.x);
            WarpWork {
                format: share.format,
                multiplier,
                rows: share.count,
                before: share.before,
                cursor,
                idle,
            }
        };
        self.shares.iter().map(work).collect()
    }

    /// Multiplies a consumer warp's tiles, one segment and one row block after another.
    fn multiply(&self, work: Vec<WarpWork<'k>>) {
        let k = self.stream.k;
        let Plan {
            width,
            groups,
            batch,
            ..
        } = self.stream.plan;
        let mut cursor = StageCursor {
            member: k.warp() % width,
            at: RingCursor::at(k, k.warp() / width),
        };
        for mut work in work {
            k.section(
                "pipeline/consumer/multiply",
                "consumer warps: multiply the tiles of a matrix",
            );
            let mut sums: Vec<_> = (0..batch).map(|_| from_fn(|_| k.var(0.0))).collect();
            let rows = work.rows;
            k.repeat_with(
                &mut work,
                |work| work.cursor.row.get().ge(rows),
                |work| {
                    self.multiply_row_block(work, &mut cursor, &mut sums);
                    self.store_partials(work, &mut sums);

                    k.section("pipeline/consumer/next_row_block", "next row block");
                    work.cursor.next_row(k);
                },
            );
            if width > 1 {
                k.section(
                    "pipeline/consumer/last_stage",
                    "the last stage has no tile for this warp",
                );
                k.when(work.idle, || {
                    // The ring counts arrivals of all warps of a group, so this warp must release
                    // the stage as well.
                    self.stream
                        .wait(self.ring.full(&cursor.at.slot), &cursor.at.phase);
                    self.ring.empty(&cursor.at.slot).arrive();
                    cursor.at.step(k, groups, self.ring.count);
                });
            }
        }
    }

    /// Multiplies the warp's tiles of a row block and adds the results to `sums`.
    fn multiply_row_block(
        &self,
        work: &mut WarpWork<'k>,
        cursor: &mut StageCursor<'k>,
        sums: &mut [RowSums<'k>],
    ) {
        let k = self.stream.k;
        let ring = self.ring;
        let Plan { width, groups, .. } = self.stream.plan;
        let row_tiles = work.cursor.len;
        let bytes = tile::of(work.format).bytes;
        k.repeat_with(
            &mut work.cursor,
            |tile| tile.kt.get().ge(row_tiles),
            |tile| {
                self.stream
                    .wait(ring.full(&cursor.at.slot), &cursor.at.phase);
                let at = ring
                    .stages
                    .row(&cursor.at.slot, ring.size)
                    .row(cursor.member, bytes);
                work.format
                    .multiply_tile(&work.multiplier, at, tile.kt.get(), sums);

                k.section(
                    "pipeline/consumer/release_stage",
                    "release the stage and go to the next tile",
                );
                if self.stream.plan.overlaps() {
                    // The arrival orders earlier loads only within their own proxy. Without this
                    // fence, the next bulk copy, which uses the async proxy, may overtake loads
                    // whose results are used later (`docs/internals/performance.md`).
                    k.fence_async();
                }

                ring.empty(&cursor.at.slot).arrive();
                cursor.at.step(k, groups, ring.count);
                tile.kt += width * groups;
            },
        );
    }

    /// Stores the warp's partial sums of a row block and resets them.
    fn store_partials(&self, work: &WarpWork<'k>, sums: &mut [RowSums<'k>]) {
        let k = self.stream.k;
        let plan = self.stream.plan;

        k.section(
            "pipeline/consumer/store_sums",
            "store the warp's partial sums of a row block",
        );
        let (g, owner) = work.multiplier.owner();
        let block = self
            .partials
            .row(work.cursor.row.get() + work.before, partials_bytes(plan));
        let at = block.row(k.warp(), 4 * ROWS).row(g, 4).cast::<f32>();
        for (item, sums) in (0..).zip(sums) {
            let at = at.at(item * token_bytes(plan.warps()) / 4);
            let totals = sums.each_ref().map(|v| work.multiplier.total(v.get()));
            k.when(owner, || {
                at.st(totals[0]);
                at.at(8).st(totals[1]);
            });
            for sum in sums.iter_mut() {
                sum.set(0.0);
            }
        }
    }
}

/// A warp's position in the ring, and its tile in each stage.
struct StageCursor<'k> {
    member: U32<'k>,
    at: RingCursor<'k>,
}

/// A consumer warp's work in one segment of the block.
struct WarpWork<'k> {
    format: Format,
    multiplier: TileMultiplier<'k>,
    /// The number of row blocks of the share.
    rows: U32<'k>,
    /// The number of row blocks of earlier segments in this block.
    before: U32<'k>,
    cursor: TileCursor<'k>,
    /// Whether the share's last stage belongs to the warp's group but has no tile for this warp.
    idle: Pred<'k>,
}

/// The position of a tile in a matrix whose rows have `len` tiles. It advances by a fixed number of
/// tiles.
struct TileCursor<'k> {
    row: Var<'k, u32>,
    /// The tile in the row. It is past the row's end when the warp is done with the row.
    kt: Var<'k, u32>,
    len: U32<'k>,
    /// The minimum number of rows that a step advances, and their number of tiles.
    step: [U32<'k>; 2],
}

impl<'k> TileCursor<'k> {
    /// Starts at tile `i`, with steps of `by` tiles.
    fn new(k: Builder<'k>, i: U32<'k>, len: U32<'k>, by: u32) -> Self {
        let rows = (k.val(by) / len).max(1);
        TileCursor {
            row: k.var(i / len),
            kt: k.var(i % len),
            len,
            step: [rows, rows * len],
        }
    }

    /// Moves from past the end of a row to the row of the next tile. The warp may have no tile in
    /// some rows.
    fn next_row(&mut self, k: Builder<'k>) {
        self.row += self.step[0];
        self.kt -= self.step[1];
        k.when(self.kt.get().ge(self.len), || {
            self.row += 1;
            self.kt -= self.len;
        });
    }
}
