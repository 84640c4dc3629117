//! The body that all products over tiles share: one warp brings tiles, the others multiply them.
//!
//! Each block has a range of row blocks, and reads their tiles in order, each byte of the matrix once in the device.
//! A producer warp copies them into a ring of stages in shared memory, a few tiles each. It starts at once, as
//! weights never change; the activations come when the kernels before this one are complete. So memory stays busy
//! across the boundary between two kernels, of which two fit a multiprocessor.
//!
//! What a ring takes early, the kernel before has to wait for. So a plan may let only a part of the ring fill at once,
//! and the rest when the product before has asked for all of its tiles, while memory would be idle otherwise: each
//! block says in memory when it has asked for its last tile, and the same block of the next product looks there.
//!
//! Nor does it ask for all of its first turn at once: who asks for much makes everybody wait, and the kernel before is
//! about to ask for its activations.
//!
//! That is the way of sm_90. Older devices have neither bulk copies nor kernels that overlap: there all lanes of the
//! producer warp copy, 16 bytes each at a time, and the block has its multiprocessor for itself.
//!
//! The consumer warps are a few groups, which take turns with the stages; a warp takes one tile of a stage. Of a row
//! block's tiles each warp thus has some, and leaves its part of the 16 sums in shared memory, from where they are
//! added in the order of the warps: the same bits every time.

use super::activation::{Activations, Encoding, Gamma, Loaders};
use super::column::Column;
use super::eights::Eights;
use super::layout::*;
use super::plan::{Copies, Plan, Stamp, Trigger};
use super::product::{Product, Rows, tile};
use super::tile::ROWS;
use crate::format::Format;
use ptx_gen::*;
use std::array::from_fn;

/// Bytes of a ring's first turn that are under way at most. A multiprocessor's share of the memory's rate needs about
/// as many; of more, each request waits behind others, and the kernel before waits for its own.
const UNDER_WAY: u32 = 36 << 10;
/// Looks at what the product before has asked for: about a tenth of a millisecond.
const HOLD: u32 = 128;
/// Copies of 16 bytes that a lane asks for between two looks at how many are left.
const COPIES: u32 = 4;

/// A product in a kernel.
pub(crate) struct Stream<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) plan: Plan,
    /// The runs of row blocks, in the order of their tiles.
    pub(crate) runs: Vec<(Format, U32<'k>)>,
    pub(crate) tiles: Ptr<'k, u8, Read>,
    pub(crate) n: U32<'k>,
    pub(crate) blocks: U32<'k>,
    pub(crate) parts: U32<'k>,
    pub(crate) stages: U32<'k>,
    /// `[blocks]`: the turn of the latest product whose block has asked for its last tile.
    pub(crate) asked: Ptr<'k, u32, ReadWrite>,
    /// The turn of this product: which of a token's products it is.
    pub(crate) turn: U32<'k>,
    pub(crate) stamps: Ptr<'k, u64, Write>,
}

/// A block's row blocks of a run.
struct Share<'k> {
    format: Format,
    /// The first, counted in the run.
    first: U32<'k>,
    count: U32<'k>,
    /// Where its tiles begin.
    tiles: Ptr<'k, u8, Read>,
    /// How many.
    len: U32<'k>,
    /// Row blocks of earlier runs in this block.
    before: U32<'k>,
}

/// The ring, and what is beside it in shared memory.
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
    /// What a kernel before has left for it.
    Eights(Eights<'k, Fresh>),
    /// The residual stream, the weights of the norm between, and its epsilon.
    Normed { x: Ptr<'k, f32, Fresh>, gamma: G, epsilon: F32<'k> },
}

impl<'k> Input<'k> {
    /// The same, with the norm's first weights in registers.
    fn begun(self, load: impl FnOnce(Ptr<'k, f32, Read>) -> Gamma<'k>) -> Input<'k, Gamma<'k>> {
        match self {
            Input::Eights(x) => Input::Eights(x),
            Input::Normed { x, gamma, epsilon } => Input::Normed { x, gamma: load(gamma), epsilon },
        }
    }
}

/// What an epilogue finds: sums of rows in shared memory.
pub(crate) struct Results<'k> {
    pub(crate) k: Builder<'k>,
    /// The consumer thread.
    pub(crate) thread: U32<'k>,
    /// How many there are.
    pub(crate) threads: u32,
    /// For each run: the first of this block's row blocks, and how many.
    pub(crate) shares: Vec<(U32<'k>, U32<'k>)>,
    /// Row blocks of earlier runs.
    before: Vec<U32<'k>>,
    plan: Plan,
    parts: Ptr<'k, u8, Shared>,
    factor: Factor<'k>,
    /// Shared memory for the epilogue's own use.
    pub(crate) scratch: Ptr<'k, u8, Shared>,
}

/// What the norm multiplies a column's sums by.
#[derive(Clone, Copy)]
enum Factor<'k> {
    /// Without a norm.
    None,
    /// Of the only column.
    One(F32<'k>),
    /// Of each column, in shared memory.
    Each(Ptr<'k, f32, Shared>),
}

impl<'k> Results<'k> {
    /// The sum of row `r` of row block `i` of this block's share of a run, of a column.
    pub(crate) fn row(&self, run: usize, i: U32<'k>, r: impl Src<'k, u32>, column: Column<'k>) -> F32<'k> {
        let warps = self.plan.warps();
        let block = self.parts.row(i + self.before[run], part_bytes(self.plan));
        let row = column.of(block, column_bytes(warps)).row(r, 4).cast::<f32>();
        let parts: Vec<F32> = (0..warps).map(|w| row.at(ROWS * w).ld()).collect();
        let sum = parts[1..].iter().fold(parts[0], |sum, &p| sum + p);
        match self.factor {
            Factor::None => sum,
            Factor::One(factor) => sum * factor,
            Factor::Each(factors) => sum * column.of(factors, 1).ld(),
        }
    }

    /// Each of `count` numbers of each column, one to a thread. `unit` of them, which divides `count`, stay together.
    pub(crate) fn each(&self, count: U32<'k>, unit: u32, body: impl FnOnce(U32<'k>, Column<'k>)) {
        let (k, columns) = (self.k, self.plan.columns);
        if columns == 1 {
            return k.for_each(self.thread, count, self.threads, |i| body(i, Column::ONLY));
        }
        k.for_each(self.thread, count * columns, self.threads, |i| {
            let (i, column) = self.of_column(i, unit);
            body(i, column);
        });
    }

    /// Which number of which column number `i` of several columns is.
    fn of_column(&self, i: U32<'k>, unit: u32) -> (U32<'k>, Column<'k>) {
        let (place, r) = (i / unit, i % unit);
        ((place / self.plan.columns).mad(unit, r), Column::new(place % self.plan.columns))
    }

    /// The same in whole warps: `body` is told which numbers are `inside`; the others stand for the last one.
    pub(crate) fn each_in_warps(
        &self,
        count: U32<'k>,
        unit: u32,
        body: impl FnOnce(U32<'k>, Pred<'k>, Column<'k>),
    ) {
        let (k, columns) = (self.k, self.plan.columns);
        let all = if columns == 1 { count } else { count * columns };
        k.for_each(k.warp() * 32, all, self.threads, |first| {
            let i = first + k.lane();
            let (inside, i) = (i.lt(all), i.min(all - 1));
            if columns == 1 {
                return body(i, inside, Column::ONLY);
            }
            let (i, column) = self.of_column(i, unit);
            body(i, inside, column);
        });
    }

    /// Each column.
    pub(crate) fn each_column(&self, body: impl FnOnce(Column<'k>)) {
        match self.plan.columns {
            1 => body(Column::ONLY),
            columns => self.k.for_each(0, columns, 1, |column| body(Column::new(column))),
        }
    }

    /// Whether there is only one column.
    pub(crate) fn is_alone(&self) -> bool {
        self.plan.columns == 1
    }

    /// Waits for all consumer threads.
    pub(crate) fn barrier(&self) {
        self.k.barrier_part(CONSUMERS, 32 * self.plan.warps())
    }
}

/// Barriers of the block: the ring and the activations are ready; the consumers are together.
const READY: u32 = 1;
const CONSUMERS: u32 = 2;
/// The ring's barriers are made: only where times are taken.
const MADE: u32 = 3;

impl<'k> Stream<'k> {
    /// The whole kernel. In the consumers, `places` computes addresses before earlier kernels are complete, `early`
    /// loads what `last` needs behind the activations, and `last` makes something of the sums.
    pub(crate) fn run<P, T>(
        self,
        input: Input<'k>,
        places: impl FnOnce(&Results<'k>) -> P,
        early: impl FnOnce(&P) -> T,
        last: impl FnOnce(&Results<'k>, P, T),
    ) {
        let k = self.k;
        let base = k.dynamic_shared::<u8>("memory");
        let encoding = Encoding::of(self.runs[0].0).expect("plans have tiled formats");
        let parts = base.at(parts_offset(self.plan));
        let x = parts.row(self.parts, part_bytes(self.plan));
        let x = Activations::new(k, encoding, x, self.n, self.plan.columns);
        let ring = self.ring(base, &x);
        let shares = self.shares();
        if self.plan.triggers(Trigger::First) {
            k.grid_trigger();
        }
        let first = k.tid().eq(0);
        self.stamp(first, Stamp::Begun);
        self.stamp(first, Stamp::Place);
        k.when(k.warp().eq(self.plan.warps()), || self.produce(&ring, &shares))
            .otherwise(|| self.consume(&ring, &shares, x, parts, input, places, early, last));
    }

    fn ring(&self, base: Ptr<'k, u8, Shared>, x: &Activations<'k>) -> Ring<'k> {
        let bytes = self.runs.iter().map(|&(format, _)| tile(format).bytes).max().expect("a run");
        Ring { base, stages: x.end(), size: self.plan.width * bytes, count: self.stages }
    }

    /// Leaves a time, where `who` holds and the plan says so.
    fn stamp(&self, who: Pred<'k>, stamp: Stamp) {
        if self.plan.profile {
            stamp.leave(self.k, who, self.stamps);
        }
    }

    /// What [`Runs::cuts`] says, for this block.
    fn shares(&self) -> Vec<Share<'k>> {
        let k = self.k;
        let columns = tile(self.runs[0].0).columns;
        let row_tiles = self.n / columns;
        let cost = |format| Runs::cost(tile(format).bytes);
        let total = self.runs.iter().map(|&(format, count)| count * cost(format)).reduce(|a, b| a + b);
        let total = total.expect("a run");
        let places = [k.ctaid(), k.ctaid() + 1].map(|i| i * total / self.blocks);
        let (mut from, mut tiles, mut before) = (k.val(0), self.tiles, k.val(0));
        let mut shares = vec![];
        for &(format, count) in &self.runs {
            let [first, end] = places.map(|place| ((place.max(from) - from) / cost(format)).min(count));
            let bytes = tile(format).bytes;
            let mine = tiles.row(first * row_tiles, bytes);
            let share = end - first;
            shares.push(Share { format, first, count: share, tiles: mine, len: share * row_tiles, before });
            tiles = tiles.row(count * row_tiles, bytes);
            from = from + count * cost(format);
            before = before + share;
        }
        shares
    }

    /// The producer warp: makes the ring's barriers, tells that they are there, and fills stage after stage.
    fn produce(&self, ring: &Ring<'k>, shares: &[Share<'k>]) {
        let k = self.k;
        let lane = k.lane();
        k.when(lane.eq(0), || {
            k.for_each(0, ring.count, 1, |slot| {
                ring.full(slot).init(self.plan.arrivals());
                // Each lane arrives for its own reads: one for all, behind a barrier of the warp, is no faster.
                ring.empty(slot).init(32 * self.plan.width);
            });
            if self.plan.overlaps() {
                k.fence_mbarriers();
            }
        });
        k.warp_barrier();
        k.barrier_arrive(READY, self.plan.threads());
        if self.plan.profile {
            k.barrier_arrive(MADE, self.plan.threads());
        }
        match self.plan.copies {
            Copies::Bulk => _ = k.when(lane.eq(0), || self.fill(ring, shares)),
            Copies::Async => self.fill(ring, shares),
        }
    }

    /// Fills stage after stage, as they become empty: the lanes that copy.
    fn fill(&self, ring: &Ring<'k>, shares: &[Share<'k>]) {
        let k = self.k;
        let mut cursor = Cursor::new(k);
        let mut held = k.var(self.plan.early.unwrap_or(0));
        let mut first_turn = k.var(0);
        let under_way = (UNDER_WAY / ring.size).max(1);
        let policy = self.plan.overlaps().then(|| k.evict_first());
        for share in shares {
            k.note(format!("{} tiles", share.format.name()));
            let bytes = tile(share.format).bytes;
            k.for_each(0, share.len, self.plan.width, |first| {
                // The first turn finds each stage empty: the phase before the first counts as ended.
                self.wait(ring.empty(&cursor.slot), cursor.phase.get() ^ 1);
                if self.plan.early.is_some() {
                    k.when(held.get().eq(0), || self.hold());
                    held -= 1;
                }
                if self.plan.overlaps() {
                    k.when(first_turn.get().lt(ring.count), || {
                        k.when(first_turn.get().ge(under_way), || {
                            self.wait(ring.full(first_turn.get() - under_way), 0);
                        });
                        first_turn += 1;
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
        if self.plan.overlaps() {
            // Turns are left in their order. Below zero: the loop has waited.
            k.when(held.get().bits::<i32>().ge(0), || self.hold());
            self.asked.at(k.ctaid()).st_release(self.turn);
        }
        if self.plan.triggers(Trigger::Drained) {
            k.grid_trigger();
        }
        self.stamp(k.lane().eq(0), Stamp::Drained);
        if !self.plan.overlaps() {
            // No lane leaves with copies under way: what has been read had landed.
            k.for_each(0, ring.count, 1, |_| {
                self.wait(ring.empty(&cursor.slot), cursor.phase.get() ^ 1);
                cursor.step(k, 1, ring.count);
            });
        }
    }

    /// Waits until the product before has asked for its last tile; not in a token's first, nor for ever, as what is
    /// launched before is not this kernel's to know, and it would only be slower.
    fn hold(&self) {
        let k = self.k;
        let mut left = k.var(self.turn.min(1) * HOLD);
        let before = self.turn - 1;
        let asked = self.asked.at(k.ctaid());
        k.repeat_with(&mut left, |left| asked.ld_acquire().eq(before) | left.get().eq(0), |left| *left -= 1);
    }

    /// Copies `len` bytes, 16 a lane; each lane arrives when its own have landed. Whole warp.
    ///
    /// These arrivals publish nothing else, not even that the stage was empty: so one lane arrives itself too.
    fn copy(&self, from: Ptr<'k, u8, Read>, to: Ptr<'k, u8, Shared>, len: U32<'k>, full: Mbarrier<'k>) {
        const WARP: u32 = 32 * 16;
        let k = self.k;
        k.for_each(k.lane() << 4, len, COPIES * WARP, |first| {
            for i in 0..COPIES {
                let at = first + i * WARP;
                k.when(at.lt(len), || from.at(at).copy16(to.at(at)));
            }
        });
        full.arrive_copied();
        k.when(k.lane().eq(0), || full.arrive());
    }

    /// Waits until the phase of this parity has ended.
    fn wait(&self, barrier: Mbarrier<'k>, parity: impl Src<'k, u32>) {
        match self.plan.copies {
            Copies::Bulk => barrier.wait(parity),
            Copies::Async => barrier.wait_polling(parity),
        }
    }

    #[allow(clippy::too_many_arguments)] // one call; they are the kernel's parts
    fn consume<P, T>(
        &self,
        ring: &Ring<'k>,
        shares: &[Share<'k>],
        x: Activations<'k>,
        parts: Ptr<'k, u8, Shared>,
        input: Input<'k>,
        places: impl FnOnce(&Results<'k>) -> P,
        early: impl FnOnce(&P) -> T,
        last: impl FnOnce(&Results<'k>, P, T),
    ) {
        let k = self.k;
        let warps = self.plan.warps();
        let (thread, threads) = (k.tid(), 32 * warps);
        let loaders = Loaders { thread, threads };
        let input = input.begun(|gamma| loaders.gamma(k, gamma, self.n));
        let numbers = self.parts * (part_bytes(self.plan) / 4);
        k.for_each(thread, numbers, threads, |i| parts.row(i, 4).cast::<f32>().st(0.0));

        let mut results = Results {
            k,
            thread,
            threads,
            shares: shares.iter().map(|s| (s.first, s.count)).collect(),
            before: shares.iter().map(|s| s.before).collect(),
            plan: self.plan,
            parts,
            factor: Factor::None,
            scratch: ring.base.at(SCRATCH),
        };
        let places = places(&results);
        let turns = self.turns(shares, x);
        if self.plan.profile {
            k.barrier_part(MADE, self.plan.threads());
            let tiles = shares.iter().map(|s| s.len).reduce(|a, b| a + b).expect("a run");
            // The warp as a whole: a lane that went on to wait for earlier kernels would hold the others up.
            k.when(k.warp().eq(0) & tiles.gt(0), || self.wait(ring.full(0), 0));
            k.warp_barrier();
        }
        self.stamp(thread.eq(0), Stamp::Landed);
        if self.plan.overlaps() {
            k.grid_wait();
        }
        self.stamp(thread.eq(0), Stamp::Waited);
        if self.plan.triggers(Trigger::Waited) {
            k.grid_trigger();
        }
        let squares = ring.base.at(if results.is_alone() { SQUARES } else { PARTS }).cast::<f32>();
        let epsilon = match input {
            Input::Normed { x: from, gamma, epsilon } if results.is_alone() => {
                let sum = x.load_normed(loaders, from, gamma);
                k.when(k.lane().eq(0), || squares.at(k.warp()).st(sum));
                Some(epsilon)
            }
            Input::Normed { x: from, gamma, epsilon } => {
                x.load_columns(loaders, from, gamma, (squares, SQUARES_BYTES));
                Some(epsilon)
            }
            Input::Eights(from) => {
                x.load(loaders, from);
                None
            }
        };
        let loaded = early(&places);
        k.barrier_part(READY, self.plan.threads());
        let factor = |squares: Ptr<'k, f32, Shared>, epsilon| {
            let parts: Vec<F32> = (0..warps).map(|w| squares.at(w).ld()).collect();
            let sum = parts[1..].iter().fold(parts[0], |sum, &p| sum + p);
            (sum * self.n.cvt::<f32>().rcp() + epsilon).rsqrt()
        };
        results.factor = match epsilon {
            None => Factor::None,
            Some(epsilon) if results.is_alone() => Factor::One(factor(squares, epsilon)),
            Some(epsilon) => {
                // The barrier behind the products publishes them.
                let factors = ring.base.at(SQUARES).cast::<f32>();
                k.when(thread.lt(self.plan.columns), || {
                    factors.at(thread).st(factor(squares.row(thread, SQUARES_BYTES), epsilon));
                });
                Factor::Each(factors)
            }
        };
        self.stamp(thread.eq(0), Stamp::Ready);
        self.multiply(ring, turns, parts);
        self.stamp(thread.eq(0), Stamp::Multiplied);
        k.barrier_part(CONSUMERS, threads);
        last(&results, places, loaded);
        self.stamp(thread.eq(0), Stamp::Stored);
    }

    /// What a consumer warp has to do, computed ahead.
    fn turns(&self, shares: &[Share<'k>], x: Activations<'k>) -> Vec<Turn<'k>> {
        let k = self.k;
        let Plan { width, groups, .. } = self.plan;
        let warp = k.warp();
        let (group, member) = (warp / width, warp % width);
        let row_tiles = self.n / tile(self.runs[0].0).columns;
        // Stages of earlier runs: a group's turn goes on across runs.
        let mut base = k.val(0);
        let turn = |share: &Share<'k>| {
            let stages = (share.len + (width - 1)) / width;
            let first = (group + groups - base % groups) % groups;
            base = base + stages;
            let last = (stages + groups - 1 - first) % groups;
            let short = share.len % width;
            let idle = short.gt(0) & member.ge(short) & last.eq(0);
            let place = Place::new(k, first * width + member, row_tiles, width * groups);
            let product = Product::new(k, share.format, x);
            Turn { format: share.format, product, rows: share.count, before: share.before, place, idle }
        };
        shares.iter().map(turn).collect()
    }

    /// A consumer warp's tiles, run by run, row block by row block.
    fn multiply(&self, ring: &Ring<'k>, turns: Vec<Turn<'k>>, parts: Ptr<'k, u8, Shared>) {
        let k = self.k;
        let Plan { width, groups, .. } = self.plan;
        let member = k.warp() % width;
        let mut cursor = Cursor::at(k, k.warp() / width);
        for mut turn in turns {
            k.note(format!("{} tiles", turn.format.name()));
            let mut sums: Vec<_> = (0..self.plan.columns).map(|_| from_fn(|_| k.var(0.0))).collect();
            let (rows, row_tiles, bytes) = (turn.rows, turn.place.len, tile(turn.format).bytes);
            k.repeat_with(
                &mut turn,
                |turn| turn.place.row.get().ge(rows),
                |turn| {
                    k.repeat_with(
                        &mut turn.place,
                        |place| place.kt.get().ge(row_tiles),
                        |place| {
                            self.wait(ring.full(&cursor.slot), &cursor.phase);
                            let at = ring.stages.row(&cursor.slot, ring.size).row(member, bytes);
                            turn.product.add(at, place.kt.get(), &mut sums);
                            ring.empty(&cursor.slot).arrive();
                            cursor.step(k, groups, ring.count);
                            place.kt += width * groups;
                        },
                    );
                    self.leave(turn, &mut sums, parts);
                    turn.place.next_row(k);
                },
            );
            if width > 1 {
                k.when(turn.idle, || {
                    self.wait(ring.full(&cursor.slot), &cursor.phase);
                    ring.empty(&cursor.slot).arrive();
                    cursor.step(k, groups, ring.count);
                });
            }
        }
    }

    /// Leaves the warp's part of a row block's sums, and begins new ones.
    fn leave(&self, turn: &Turn<'k>, sums: &mut [Rows<'k>], parts: Ptr<'k, u8, Shared>) {
        let k = self.k;
        let (g, owner) = turn.product.owner();
        let block = parts.row(turn.place.row.get() + turn.before, part_bytes(self.plan));
        let at = block.row(k.warp(), 4 * ROWS).row(g, 4).cast::<f32>();
        for (column, sums) in (0..).zip(sums) {
            let at = at.at(column * column_bytes(self.plan.warps()) / 4);
            let totals = sums.each_ref().map(|v| turn.product.total(v.get()));
            k.when(owner, || {
                at.st(totals[0]);
                at.at(8).st(totals[1]);
            });
            sums.iter_mut().for_each(|v| v.set(0.0));
        }
    }
}

/// A consumer warp's part of a share.
struct Turn<'k> {
    format: Format,
    product: Product<'k>,
    /// Row blocks of the share.
    rows: U32<'k>,
    /// Row blocks of earlier runs in this block.
    before: U32<'k>,
    place: Place<'k>,
    /// Whether the share's last stage is one of the warp's group, but has no tile for it.
    idle: Pred<'k>,
}

/// A tile's place in a matrix whose rows have `len` tiles, on a warp's way over every so many tiles.
struct Place<'k> {
    row: Var<'k, u32>,
    /// Past the row's end when the warp is done with the row.
    kt: Var<'k, u32>,
    len: U32<'k>,
    /// Rows that a step goes on by at least, and their tiles.
    step: [U32<'k>; 2],
}

impl<'k> Place<'k> {
    /// The place of tile `i`, and steps of `by` tiles.
    fn new(k: Builder<'k>, i: U32<'k>, len: U32<'k>, by: u32) -> Self {
        let rows = (k.val(by) / len).max(1);
        Place { row: k.var(i / len), kt: k.var(i % len), len, step: [rows, rows * len] }
    }

    /// From past a row's end to the row of the next tile: a row may have none for the warp.
    fn next_row(&mut self, k: Builder<'k>) {
        self.row += self.step[0];
        self.kt -= self.step[1];
        k.when(self.kt.get().ge(self.len), || {
            self.row += 1;
            self.kt -= self.len;
        });
    }
}

/// A place in the ring: a stage, and the parity of its phase.
struct Cursor<'k> {
    slot: Var<'k, u32>,
    phase: Var<'k, u32>,
}

impl<'k> Cursor<'k> {
    fn new(k: Builder<'k>) -> Self {
        Cursor { slot: k.var(0), phase: k.var(0) }
    }

    fn at(k: Builder<'k>, slot: U32<'k>) -> Self {
        Cursor { slot: k.var(slot), phase: k.var(0) }
    }

    /// Goes `by` stages on, in a ring of a multiple of that.
    fn step(&mut self, k: Builder<'k>, by: u32, count: U32<'k>) {
        self.slot += by;
        k.when(self.slot.get().ge(count), || {
            self.slot -= count;
            self.phase ^= 1;
        });
    }
}
