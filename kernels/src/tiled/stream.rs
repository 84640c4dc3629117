//! The body that all products over tiles share: a producer warp loads tiles, the consumer warps multiply them.
//!
//! Each block has a range of row blocks and reads their tiles in order; the device reads each byte of the matrix
//! once. A producer warp copies the tiles into a ring of stages in shared memory, a few tiles per stage. It starts at
//! once, because weights never change. The activations are read after the previous kernels have completed. Memory
//! therefore stays busy across the boundary between two kernels; blocks of two kernels fit an SM.
//!
//! A prefetched ring delays the previous kernel's own loads. A plan may therefore limit the prefetch to a part of the
//! ring. The rest is loaded once the previous product has issued all its loads, when memory would otherwise be idle:
//! each block publishes a progress flag after its last load, and the same block of the next product polls it.
//!
//! The first pass over the ring is throttled too: only a few loads are in flight at a time. More would delay
//! everybody's requests, and the previous kernel is about to request its activations.
//!
//! All this is for sm_90 and newer. Older devices have neither bulk copies nor overlapping kernels. There all lanes
//! of the producer warp copy 16 bytes each at a time, and a block occupies its SM alone.
//!
//! The consumer warps form groups, which process stages round-robin; each warp of a group takes one tile of a stage.
//! So each warp computes a part of every row block's 16 sums. It stores its partial sums in shared memory, where they
//! are added in the order of the warps: the result is deterministic.

use super::activation::{Activations, Encoding, Gamma, Loaders};
use super::batch::BatchItem;
use super::block_float::BlockFloat;
use super::layout::*;
use super::plan::{Copies, Plan, Timestamp};
use super::product::{RowSums, TileProduct, tile};
use super::tile::ROWS;
use crate::format::Format;
use ptx_gen::*;
use std::array::from_fn;

/// The maximum number of bytes in flight during the first pass over the ring. They about saturate an SM's share of
/// the memory bandwidth; with more, requests only queue, and the previous kernel waits for its own.
const FIRST_PASS_BYTES: u32 = 36 << 10;
/// Polls of the previous product's progress flag: about a tenth of a millisecond.
const MAX_POLLS: u32 = 128;
/// Copies of 16 bytes that a lane issues per iteration.
const COPIES_PER_PASS: u32 = 4;

/// The weight-streaming product inside a kernel.
pub(crate) struct WeightStream<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) plan: Plan,
    /// The segments of row blocks, in the order of their tiles.
    pub(crate) segments: Vec<(Format, U32<'k>)>,
    pub(crate) tiles: Ptr<'k, u8, Read>,
    pub(crate) n: U32<'k>,
    pub(crate) blocks: U32<'k>,
    pub(crate) max_row_blocks: U32<'k>,
    pub(crate) stages: U32<'k>,
    /// `[blocks]`: progress flags. The sequence number of the latest product whose block has issued its last load.
    pub(crate) progress: Ptr<'k, u32, ReadWrite>,
    /// The sequence number of this product among the products of a token.
    pub(crate) sequence: U32<'k>,
    pub(crate) timestamps: Ptr<'k, u64, Write>,
}

/// A block's share of a segment.
struct BlockShare<'k> {
    format: Format,
    /// The first row block, relative to the segment.
    first: U32<'k>,
    count: U32<'k>,
    /// Where its tiles begin.
    tiles: Ptr<'k, u8, Read>,
    /// How many.
    len: U32<'k>,
    /// Row blocks of earlier segments in this block.
    before: U32<'k>,
}

/// The ring and the barriers in shared memory.
struct Ring<'k> {
    base: Ptr<'k, u8, Shared>,
    stages: Ptr<'k, u8, Shared>,
    /// Bytes of a stage.
    size: u32,
    count: U32<'k>,
}

impl<'k> Ring<'k> {
    fn full(&self, slot: impl Src<'k, u32>) -> Mbarrier<'k> {
        self.base.at(FULL).row(slot, 8).cast::<u64>().mbarrier()
    }
    fn empty(&self, slot: impl Src<'k, u32>) -> Mbarrier<'k> {
        self.base.at(EMPTY).row(slot, 8).cast::<u64>().mbarrier()
    }
}

/// The input of a product.
pub(crate) enum Input<'k, G = Ptr<'k, f32, Read>> {
    /// The block floating point output of a previous kernel.
    BlockFloat(BlockFloat<'k, Fresh>),
    /// The residual stream, the norm's weights, and its epsilon.
    Normed { x: Ptr<'k, f32, Fresh>, gamma: G, epsilon: F32<'k> },
}

impl<'k> Input<'k> {
    /// Loads the norm's first weights into registers.
    fn with_gamma(self, load: impl FnOnce(Ptr<'k, f32, Read>) -> Gamma<'k>) -> Input<'k, Gamma<'k>> {
        match self {
            Input::BlockFloat(x) => Input::BlockFloat(x),
            Input::Normed { x, gamma, epsilon } => Input::Normed { x, gamma: load(gamma), epsilon },
        }
    }
}

/// The input of an epilogue: row sums in shared memory.
pub(crate) struct Results<'k> {
    pub(crate) k: Builder<'k>,
    /// The thread's index among the consumers.
    pub(crate) thread: U32<'k>,
    /// How many there are.
    pub(crate) threads: u32,
    /// For each segment: this block's first row block, and their number.
    pub(crate) shares: Vec<(U32<'k>, U32<'k>)>,
    /// Row blocks of earlier segments.
    before: Vec<U32<'k>>,
    plan: Plan,
    partials: Ptr<'k, u8, Shared>,
    factor: Factor<'k>,
    /// The epilogue's scratch space in shared memory.
    pub(crate) scratch: Ptr<'k, u8, Shared>,
}

/// The factor that the norm applies to a token's sums.
#[derive(Clone, Copy)]
enum Factor<'k> {
    /// Without a norm.
    None,
    /// For a batch of one.
    One(F32<'k>),
    /// For each token, in shared memory.
    Each(Ptr<'k, f32, Shared>),
}

impl<'k> Results<'k> {
    /// The sum of row `r` of row block `i` of this block's share of a segment, for one token.
    pub(crate) fn row(&self, run: usize, i: U32<'k>, r: impl Src<'k, u32>, item: BatchItem<'k>) -> F32<'k> {
        let warps = self.plan.warps();
        let block = self.partials.row(i + self.before[run], partials_bytes(self.plan));
        let row = item.of(block, token_bytes(warps)).row(r, 4).cast::<f32>();
        let parts: Vec<F32> = (0..warps).map(|w| row.at(ROWS * w).ld()).collect();
        let sum = parts[1..].iter().fold(parts[0], |sum, &p| sum + p);
        match self.factor {
            Factor::None => sum,
            Factor::One(factor) => sum * factor,
            Factor::Each(factors) => sum * item.of(factors, 1).ld(),
        }
    }

    /// Calls `body` for `count` numbers of each token, one per thread. `unit` consecutive numbers, which divide
    /// `count`, stay together.
    pub(crate) fn each(&self, count: U32<'k>, unit: u32, body: impl FnOnce(U32<'k>, BatchItem<'k>)) {
        let (k, batch) = (self.k, self.plan.batch);
        if batch == 1 {
            return k.for_each(self.thread, count, self.threads, |i| body(i, BatchItem::ONLY));
        }
        k.for_each(self.thread, count * batch, self.threads, |i| {
            let (i, item) = self.of_item(i, unit);
            body(i, item);
        });
    }

    /// Maps index `i` over the whole batch to a number and its token.
    fn of_item(&self, i: U32<'k>, unit: u32) -> (U32<'k>, BatchItem<'k>) {
        let (place, r) = (i / unit, i % unit);
        ((place / self.plan.batch).mad(unit, r), BatchItem::new(place % self.plan.batch))
    }

    /// The same in whole warps: `body` gets a predicate `inside`; lanes outside repeat the last number.
    pub(crate) fn each_in_warps(
        &self,
        count: U32<'k>,
        unit: u32,
        body: impl FnOnce(U32<'k>, Pred<'k>, BatchItem<'k>),
    ) {
        let (k, batch) = (self.k, self.plan.batch);
        let all = if batch == 1 { count } else { count * batch };
        k.for_each(k.warp() * 32, all, self.threads, |first| {
            let i = first + k.lane();
            let (inside, i) = (i.lt(all), i.min(all - 1));
            if batch == 1 {
                return body(i, inside, BatchItem::ONLY);
            }
            let (i, item) = self.of_item(i, unit);
            body(i, inside, item);
        });
    }

    /// Each item.
    pub(crate) fn each_item(&self, body: impl FnOnce(BatchItem<'k>)) {
        match self.plan.batch {
            1 => body(BatchItem::ONLY),
            batch => self.k.for_each(0, batch, 1, |item| body(BatchItem::new(item))),
        }
    }

    /// Whether the batch is 1.
    pub(crate) fn is_single(&self) -> bool {
        self.plan.batch == 1
    }

    /// A barrier of all consumer threads.
    pub(crate) fn barrier(&self) {
        self.k.barrier_part(CONSUMERS, 32 * self.plan.warps())
    }
}

/// Named barriers: the ring and the activations are ready; the consumers meet.
const READY: u32 = 1;
const CONSUMERS: u32 = 2;
/// The ring's mbarriers are initialized; used only if timestamps are recorded.
const BARRIERS_READY: u32 = 3;

impl<'k> WeightStream<'k> {
    /// The whole kernel. In the consumers, `addresses` computes addresses before `griddepcontrol.wait`, `prefetch` loads
    /// the epilogue's operands after the wait, behind the activations, and `epilogue` runs last.
    pub(crate) fn run<P, T>(
        self,
        input: Input<'k>,
        addresses: impl FnOnce(&Results<'k>) -> P,
        prefetch: impl FnOnce(&P) -> T,
        epilogue: impl FnOnce(&Results<'k>, P, T),
    ) {
        let k = self.k;
        k.note("shared memory, and the block's range of the tiles");
        let base = k.dynamic_shared::<u8>("memory");
        let encoding = Encoding::of(self.segments[0].0).expect("plans have tiled formats");
        let partials = base.at(partials_offset(self.plan));
        let x = partials.row(self.max_row_blocks, partials_bytes(self.plan));
        let x = Activations::new(k, encoding, x, self.n, self.plan.batch);
        let ring = self.ring(base, &x);
        let shares = self.shares();
        if self.plan.overlaps() {
            k.grid_trigger();
        }
        let first = k.tid().eq(0);
        self.timestamp(first, Timestamp::Begun);
        self.timestamp(first, Timestamp::SmId);
        k.when(k.warp().eq(self.plan.warps()), || self.produce(&ring, &shares))
            .otherwise(|| self.consume(&ring, &shares, x, partials, input, addresses, prefetch, epilogue));
    }

    fn ring(&self, base: Ptr<'k, u8, Shared>, x: &Activations<'k>) -> Ring<'k> {
        let bytes = self.segments.iter().map(|&(format, _)| tile(format).bytes).max().expect("a segment");
        Ring { base, stages: x.end(), size: self.plan.width * bytes, count: self.stages }
    }

    /// Records a timestamp where `who` holds, if the plan says so.
    fn timestamp(&self, who: Pred<'k>, timestamp: Timestamp) {
        if self.plan.profile {
            timestamp.record(self.k, who, self.timestamps);
        }
    }

    /// [`Segments::partition`] for this block.
    fn shares(&self) -> Vec<BlockShare<'k>> {
        let k = self.k;
        let row_tiles = self.n / tile(self.segments[0].0).columns;
        let cost = |format| Segments::cost(tile(format).bytes);
        let total = self.segments.iter().map(|&(format, count)| count * cost(format)).reduce(|a, b| a + b);
        let total = total.expect("a segment");
        let bounds = [k.ctaid(), k.ctaid() + 1].map(|i| i * total / self.blocks);
        let (mut from, mut tiles, mut before) = (k.val(0), self.tiles, k.val(0));
        let mut shares = vec![];
        for &(format, count) in &self.segments {
            let [first, end] = bounds.map(|bound| ((bound.max(from) - from) / cost(format)).min(count));
            let bytes = tile(format).bytes;
            let mine = tiles.row(first * row_tiles, bytes);
            let share = end - first;
            shares.push(BlockShare {
                format,
                first,
                count: share,
                tiles: mine,
                len: share * row_tiles,
                before,
            });
            tiles = tiles.row(count * row_tiles, bytes);
            from = from + count * cost(format);
            before = before + share;
        }
        shares
    }

    /// The producer warp: initializes the ring's mbarriers, signals that they are ready, and fills the stages.
    fn produce(&self, ring: &Ring<'k>, shares: &[BlockShare<'k>]) {
        let k = self.k;
        let lane = k.lane();
        k.note("producer warp: initialize the barriers of the ring");
        k.when(lane.eq(0), || {
            k.for_each(0, ring.count, 1, |slot| {
                ring.full(slot).init(self.plan.arrivals());
                // Each lane arrives for its own reads: one arrival per warp, after a warp barrier, is not faster.
                ring.empty(slot).init(32 * self.plan.width);
            });
            if self.plan.overlaps() {
                k.fence_mbarriers();
            }
        });
        k.warp_barrier();
        k.barrier_arrive(READY, self.plan.threads());
        if self.plan.profile {
            k.barrier_arrive(BARRIERS_READY, self.plan.threads());
        }
        match self.plan.copies {
            Copies::Bulk => _ = k.when(lane.eq(0), || self.fill(ring, shares)),
            Copies::Async => self.fill(ring, shares),
        }
    }

    /// Fills the stages as they become empty. Runs in the copying lanes.
    fn fill(&self, ring: &Ring<'k>, shares: &[BlockShare<'k>]) {
        let k = self.k;
        let mut cursor = RingCursor::new(k);
        let mut unthrottled = k.var(self.plan.prefetch_limit.unwrap_or(0));
        let mut first_pass = k.var(0);
        let in_flight = (FIRST_PASS_BYTES / ring.size).max(1);
        let policy = self.plan.overlaps().then(|| k.evict_first());
        for share in shares {
            k.note("producer warp: copy the tiles of a matrix into the ring");
            let bytes = tile(share.format).bytes;
            k.for_each(0, share.len, self.plan.width, |first| {
                // The first pass finds each stage empty: the phase before the first counts as complete.
                self.wait(ring.empty(&cursor.slot), cursor.phase.get() ^ 1);
                if self.plan.prefetch_limit.is_some() {
                    k.when(unthrottled.get().eq(0), || self.wait_for_previous());
                    unthrottled -= 1;
                }
                if self.plan.overlaps() {
                    k.when(first_pass.get().lt(ring.count), || {
                        k.when(first_pass.get().ge(in_flight), || {
                            self.wait(ring.full(first_pass.get() - in_flight), 0);
                        });
                        first_pass += 1;
                    });
                }
                let len = (share.len - first).min(self.plan.width) * bytes;
                let full = ring.full(&cursor.slot);
                if self.plan.overlaps() {
                    full.arrive_expect(len);
                }
                let to = ring.stages.row(&cursor.slot, ring.size);
                let from = share.tiles.row(first, bytes);
                match policy {
                    Some(policy) => from.bulk_copy(to, len, full, policy),
                    None => self.copy(from, to, len, full),
                }
                cursor.step(k, 1, ring.count);
            });
        }
        k.note("producer warp: all tiles are requested");
        if self.plan.overlaps() {
            // Sequence numbers are published in order. A negative counter means that the loop has already waited.
            k.when(unthrottled.get().bits::<i32>().ge(0), || self.wait_for_previous());
            self.progress.at(k.ctaid()).st_release(self.sequence);
        }
        self.timestamp(k.lane().eq(0), Timestamp::Drained);
        if !self.plan.overlaps() {
            // No lane exits with copies in flight: stages that have been read had landed.
            k.for_each(0, ring.count, 1, |_| {
                self.wait(ring.empty(&cursor.slot), cursor.phase.get() ^ 1);
                cursor.step(k, 1, ring.count);
            });
        }
    }

    /// Waits until the previous product has issued its last load. The first product of a token does not wait, because
    /// it does not know its predecessor. The wait is bounded: without it the kernel is only slower.
    fn wait_for_previous(&self) {
        let k = self.k;
        k.note("wait until the product before has requested its last tile");
        let mut left = k.var(self.sequence.min(1) * MAX_POLLS);
        let before = self.sequence - 1;
        let progress = self.progress.at(k.ctaid());
        k.repeat_with(
            &mut left,
            |left| progress.ld_acquire().eq(before) | left.get().eq(0),
            |left| *left -= 1,
        );
    }

    /// Copies `len` bytes, 16 per lane; each lane arrives when its own copies have landed. Whole warp.
    ///
    /// These arrivals do not order other accesses, not even the observation that the stage was empty. One lane
    /// therefore also arrives itself.
    fn copy(&self, from: Ptr<'k, u8, Read>, to: Ptr<'k, u8, Shared>, len: U32<'k>, full: Mbarrier<'k>) {
        const WARP: u32 = 32 * 16;
        let k = self.k;
        k.for_each(k.lane() << 4, len, COPIES_PER_PASS * WARP, |first| {
            for i in 0..COPIES_PER_PASS {
                let at = first + i * WARP;
                k.when(at.lt(len), || from.at(at).copy16(to.at(at)));
            }
        });
        full.arrive_copied();
        k.when(k.lane().eq(0), || full.arrive());
    }

    /// Waits until the phase of this parity is complete.
    fn wait(&self, barrier: Mbarrier<'k>, parity: impl Src<'k, u32>) {
        match self.plan.copies {
            Copies::Bulk => barrier.wait(parity),
            Copies::Async => barrier.wait_polling(parity),
        }
    }

    #[allow(clippy::too_many_arguments)] // one call; they are the kernel's components
    fn consume<P, T>(
        &self,
        ring: &Ring<'k>,
        shares: &[BlockShare<'k>],
        x: Activations<'k>,
        partials: Ptr<'k, u8, Shared>,
        input: Input<'k>,
        addresses: impl FnOnce(&Results<'k>) -> P,
        prefetch: impl FnOnce(&P) -> T,
        epilogue: impl FnOnce(&Results<'k>, P, T),
    ) {
        let k = self.k;
        let warps = self.plan.warps();
        let (thread, threads) = (k.tid(), 32 * warps);
        let loaders = Loaders { thread, threads };
        let input = input.with_gamma(|gamma| loaders.gamma(k, gamma, self.n));
        k.note("consumer warps: clear the partial sums");
        let numbers = self.max_row_blocks * (partials_bytes(self.plan) / 4);
        k.for_each(thread, numbers, threads, |i| partials.row(i, 4).cast::<f32>().st(0.0));

        let mut results = Results {
            k,
            thread,
            threads,
            shares: shares.iter().map(|s| (s.first, s.count)).collect(),
            before: shares.iter().map(|s| s.before).collect(),
            plan: self.plan,
            partials,
            factor: Factor::None,
            scratch: ring.base.at(SCRATCH),
        };
        k.note("consumer warps: addresses of the results, and the warp's tiles");
        let addresses = addresses(&results);
        let work = self.warp_work(shares, x);
        if self.plan.profile {
            k.barrier_part(BARRIERS_READY, self.plan.threads());
            let tiles = shares.iter().map(|s| s.len).reduce(|a, b| a + b).expect("a segment");
            // The whole warp: a lane that waited alone for earlier kernels would delay the others.
            k.when(k.warp().eq(0) & tiles.gt(0), || self.wait(ring.full(0), 0));
            k.warp_barrier();
        }
        self.timestamp(thread.eq(0), Timestamp::Landed);
        if self.plan.overlaps() {
            k.note("nothing above reads what earlier kernels write");
            k.grid_wait();
        }
        self.timestamp(thread.eq(0), Timestamp::Waited);
        let squares = ring.base.at(if results.is_single() { SQUARES } else { PARTIALS }).cast::<f32>();
        let epsilon = match input {
            Input::Normed { x: from, gamma, epsilon } if results.is_single() => {
                let sum = x.load_normed(loaders, from, gamma);
                k.when(k.lane().eq(0), || squares.at(k.warp()).st(sum));
                Some(epsilon)
            }
            Input::Normed { x: from, gamma, epsilon } => {
                x.load_batch(loaders, from, gamma, (squares, SQUARES_BYTES));
                Some(epsilon)
            }
            Input::BlockFloat(from) => {
                x.load(loaders, from);
                None
            }
        };
        k.note("epilogue: loads that need no sums");
        let loaded = prefetch(&addresses);
        k.barrier_part(READY, self.plan.threads());
        let factor = |squares: Ptr<'k, f32, Shared>, epsilon| {
            let parts: Vec<F32> = (0..warps).map(|w| squares.at(w).ld()).collect();
            let sum = parts[1..].iter().fold(parts[0], |sum, &p| sum + p);
            (sum * self.n.cvt::<f32>().rcp() + epsilon).rsqrt()
        };
        results.factor = match epsilon {
            None => Factor::None,
            Some(epsilon) if results.is_single() => Factor::One(factor(squares, epsilon)),
            Some(epsilon) => {
                // The barrier after the products publishes them.
                let factors = ring.base.at(SQUARES).cast::<f32>();
                k.when(thread.lt(self.plan.batch), || {
                    factors.at(thread).st(factor(squares.row(thread, SQUARES_BYTES), epsilon));
                });
                Factor::Each(factors)
            }
        };
        self.timestamp(thread.eq(0), Timestamp::Ready);
        self.multiply(ring, work, partials);
        self.timestamp(thread.eq(0), Timestamp::Multiplied);
        k.note("all partial sums are there");
        k.barrier_part(CONSUMERS, threads);
        epilogue(&results, addresses, loaded);
        self.timestamp(thread.eq(0), Timestamp::Stored);
    }

    /// The work of a consumer warp, computed before the wait.
    fn warp_work(&self, shares: &[BlockShare<'k>], x: Activations<'k>) -> Vec<WarpWork<'k>> {
        let k = self.k;
        let Plan { width, groups, .. } = self.plan;
        let warp = k.warp();
        let (group, member) = (warp / width, warp % width);
        let row_tiles = self.n / tile(self.segments[0].0).columns;
        // Stages of earlier segments: the round-robin order continues across segments.
        let mut base = k.val(0);
        let work = |share: &BlockShare<'k>| {
            let stages = (share.len + (width - 1)) / width;
            let first = (group + groups - base % groups) % groups;
            base = base + stages;
            let last = (stages + groups - 1 - first) % groups;
            let short = share.len % width;
            let idle = short.gt(0) & member.ge(short) & last.eq(0);
            let cursor = TileCursor::new(k, first * width + member, row_tiles, width * groups);
            let product = TileProduct::new(k, share.format, x);
            WarpWork { format: share.format, product, rows: share.count, before: share.before, cursor, idle }
        };
        shares.iter().map(work).collect()
    }

    /// Multiplies a consumer warp's tiles, one segment and one row block after the other.
    fn multiply(&self, ring: &Ring<'k>, work: Vec<WarpWork<'k>>, partials: Ptr<'k, u8, Shared>) {
        let k = self.k;
        let Plan { width, groups, .. } = self.plan;
        let member = k.warp() % width;
        let mut cursor = RingCursor::at(k, k.warp() / width);
        for mut work in work {
            k.note("consumer warps: multiply the tiles of a matrix");
            let mut sums: Vec<_> = (0..self.plan.batch).map(|_| from_fn(|_| k.var(0.0))).collect();
            let (rows, row_tiles, bytes) = (work.rows, work.cursor.len, tile(work.format).bytes);
            k.repeat_with(
                &mut work,
                |work| work.cursor.row.get().ge(rows),
                |work| {
                    k.repeat_with(
                        &mut work.cursor,
                        |tile| tile.kt.get().ge(row_tiles),
                        |tile| {
                            self.wait(ring.full(&cursor.slot), &cursor.phase);
                            let at = ring.stages.row(&cursor.slot, ring.size).row(member, bytes);
                            work.product.add(at, tile.kt.get(), &mut sums);
                            k.note("free the stage, and go to the next tile");
                            ring.empty(&cursor.slot).arrive();
                            cursor.step(k, groups, ring.count);
                            tile.kt += width * groups;
                        },
                    );
                    self.store_partials(work, &mut sums, partials);
                    k.note("next row block");
                    work.cursor.next_row(k);
                },
            );
            if width > 1 {
                k.note("a last stage without a tile for the warp");
                k.when(work.idle, || {
                    self.wait(ring.full(&cursor.slot), &cursor.phase);
                    ring.empty(&cursor.slot).arrive();
                    cursor.step(k, groups, ring.count);
                });
            }
        }
    }

    /// Stores the warp's partial sums of a row block and resets them.
    fn store_partials(&self, work: &WarpWork<'k>, sums: &mut [RowSums<'k>], partials: Ptr<'k, u8, Shared>) {
        let k = self.k;
        k.note("the warp's partial sums of a row block");
        let (g, owner) = work.product.owner();
        let block = partials.row(work.cursor.row.get() + work.before, partials_bytes(self.plan));
        let at = block.row(k.warp(), 4 * ROWS).row(g, 4).cast::<f32>();
        for (item, sums) in (0..).zip(sums) {
            let at = at.at(item * token_bytes(self.plan.warps()) / 4);
            let totals = sums.each_ref().map(|v| work.product.total(v.get()));
            k.when(owner, || {
                at.st(totals[0]);
                at.at(8).st(totals[1]);
            });
            sums.iter_mut().for_each(|v| v.set(0.0));
        }
    }
}

/// A consumer warp's part of a block's share.
struct WarpWork<'k> {
    format: Format,
    product: TileProduct<'k>,
    /// Row blocks of the share.
    rows: U32<'k>,
    /// Row blocks of earlier segments in this block.
    before: U32<'k>,
    cursor: TileCursor<'k>,
    /// Whether the share's last stage belongs to the warp's group but has no tile for this warp.
    idle: Pred<'k>,
}

/// The position of a tile in a matrix whose rows have `len` tiles, advanced by a fixed number of tiles.
struct TileCursor<'k> {
    row: Var<'k, u32>,
    /// The tile in the row; past its end when the warp is done with the row.
    kt: Var<'k, u32>,
    len: U32<'k>,
    /// The minimum number of rows that a step advances, and their tiles.
    step: [U32<'k>; 2],
}

impl<'k> TileCursor<'k> {
    /// Starts at tile `i`, with steps of `by` tiles.
    fn new(k: Builder<'k>, i: U32<'k>, len: U32<'k>, by: u32) -> Self {
        let rows = (k.val(by) / len).max(1);
        TileCursor { row: k.var(i / len), kt: k.var(i % len), len, step: [rows, rows * len] }
    }

    /// Moves from past a row's end to the row of the next tile. The warp may have no tile in some rows.
    fn next_row(&mut self, k: Builder<'k>) {
        self.row += self.step[0];
        self.kt -= self.step[1];
        k.when(self.kt.get().ge(self.len), || {
            self.row += 1;
            self.kt -= self.len;
        });
    }
}

/// A position in the ring: a stage, and the parity of its phase.
struct RingCursor<'k> {
    slot: Var<'k, u32>,
    phase: Var<'k, u32>,
}

impl<'k> RingCursor<'k> {
    fn new(k: Builder<'k>) -> Self {
        RingCursor { slot: k.var(0), phase: k.var(0) }
    }

    fn at(k: Builder<'k>, slot: U32<'k>) -> Self {
        RingCursor { slot: k.var(slot), phase: k.var(0) }
    }

    /// Advances by `by` stages; the number of stages is a multiple of `by`.
    fn step(&mut self, k: Builder<'k>, by: u32, count: U32<'k>) {
        self.slot += by;
        k.when(self.slot.get().ge(count), || {
            self.slot -= count;
            self.phase ^= 1;
        });
    }
}
