//! The epilogue of a GEMV: the steps that use the row sums, and the data that they get.

use super::layout::{partials_bytes, token_bytes};
use super::lora::Tail;
use super::plan::Plan;
use super::stream::CONSUMERS;
use crate::format::tile::ROWS;
use crate::pipeline::batch::BatchItem;
use ptx_gen::*;

/// The part of a GEMV kernel that uses the sums of the block's rows.
///
/// The kernels overlap because the three steps run at three different times:
///
/// | step | runs | may read |
/// |---|---|---|
/// | [`addresses`](Epilogue::addresses) | before `griddepcontrol.wait`, while the previous kernel runs | arguments and special registers |
/// | [`prefetch`](Epilogue::prefetch) | after the wait, behind the loads of the activations | anything |
/// | [`store`](Epilogue::store) | after the multiplication and a barrier of the consumers | anything, and the sums |
pub(crate) trait Epilogue<'k> {
    /// The values computed before the wait.
    type Addresses;
    /// The operands whose loads overlap with the multiplication.
    type Operands;

    /// Computes addresses. Integer divisions are slow, so they belong before the wait.
    fn addresses(&self, r: &Results<'k>) -> Self::Addresses;
    /// Starts to load operands.
    fn prefetch(&self, k: Builder<'k>, addresses: &Self::Addresses) -> Self::Operands;
    /// Stores the results.
    fn store(&self, r: &Results<'k>, addresses: Self::Addresses, operands: Self::Operands);
}

/// An epilogue that has only the last step.
pub(crate) struct Store<F>(pub(crate) F);

impl<'k, F: Fn(&Results<'k>)> Epilogue<'k> for Store<F> {
    type Addresses = ();
    type Operands = ();

    fn addresses(&self, _: &Results<'k>) {}
    fn prefetch(&self, _: Builder<'k>, (): &()) {}
    fn store(&self, r: &Results<'k>, (): (), (): ()) {
        (self.0)(r)
    }
}

/// The input of an epilogue: row sums in shared memory.
pub(crate) struct Results<'k> {
    pub(crate) k: Builder<'k>,
    /// The thread's index among the consumers.
    pub(crate) thread: U32<'k>,
    /// The number of consumer threads.
    pub(crate) threads: u32,
    /// The first row block of this block in each segment, and the number of its row blocks.
    pub(crate) shares: Vec<(U32<'k>, U32<'k>)>,
    /// The number of row blocks of earlier segments in this block, for each segment.
    pub(super) before: Vec<U32<'k>>,
    pub(super) plan: Plan,
    pub(super) partials: Ptr<'k, u8, Shared>,
    pub(super) factor: Factor<'k>,
    /// The adapter's contribution, and the number of row blocks of each segment.
    pub(super) tail: Option<(Tail<'k>, Vec<U32<'k>>)>,
    /// The epilogue's scratch space in shared memory.
    pub(crate) scratch: Ptr<'k, u8, Shared>,
}

/// The factor that the norm applies to a token's sums.
#[derive(Clone, Copy)]
pub(super) enum Factor<'k> {
    /// There is no norm.
    None,
    /// The factor of a batch of one.
    One(F32<'k>),
    /// The factors of the tokens, in shared memory.
    Each(Ptr<'k, f32, Shared>),
}

impl<'k> Results<'k> {
    /// Returns the sum of row `r` of row block `i` of this block's share of a segment, for one
    /// token.
    pub(crate) fn row(&self, run: usize, i: U32<'k>, r: U32<'k>, item: BatchItem<'k>) -> F32<'k> {
        let warps = self.plan.warps();
        let block = self
            .partials
            .row(i + self.before[run], partials_bytes(self.plan));
        let row = item.of(block, token_bytes(warps)).row(r, 4).cast::<f32>();

        // The partial sums are added in the order of the warps, so the result is deterministic.
        let parts: Vec<F32> = (0..warps).map(|w| row.at(ROWS * w).ld()).collect();
        let sum = parts[1..].iter().fold(parts[0], |sum, &p| sum + p);
        let sum = match self.factor {
            Factor::None => sum,
            Factor::One(factor) => sum * factor,
            Factor::Each(factors) => sum * item.of(factors, 1).ld(),
        };
        match &self.tail {
            None => sum,
            Some((tail, counts)) => {
                let first = counts[..run]
                    .iter()
                    .fold(self.shares[run].0, |first, &count| first + count);
                tail.add(sum, first + i, r, item)
            }
        }
    }

    /// Calls `body` for `count` elements of each token, one per thread. Groups of `unit`
    /// consecutive elements, which divide `count`, stay together.
    pub(crate) fn each(
        &self,
        count: U32<'k>,
        unit: u32,
        body: impl FnOnce(U32<'k>, BatchItem<'k>),
    ) {
        let k = self.k;
        let batch = self.plan.batch;
        if batch == 1 {
            return k.for_each(self.thread, count, self.threads, |i| {
                body(i, BatchItem::ONLY)
            });
        }

        k.for_each(self.thread, count * batch, self.threads, |i| {
            let (i, item) = self.of_item(i, unit);
            body(i, item);
        });
    }

    /// Maps index `i` over the whole batch to an element and its token.
    fn of_item(&self, i: U32<'k>, unit: u32) -> (U32<'k>, BatchItem<'k>) {
        let place = i / unit;
        let r = i % unit;
        (
            (place / self.plan.batch).mad(unit, r),
            BatchItem::new(place % self.plan.batch),
        )
    }

    /// Calls `body` for `count` elements of each token, in whole warps. `body` gets a predicate
    /// `inside`. Lanes outside repeat the last element.
    pub(crate) fn each_in_warps(
        &self,
        count: U32<'k>,
        unit: u32,
        body: impl FnOnce(U32<'k>, Pred<'k>, BatchItem<'k>),
    ) {
        let k = self.k;
        let batch = self.plan.batch;
        let all = if batch == 1 { count } else { count * batch };
        k.for_each(k.warp() * 32, all, self.threads, |first| {
            let i = first + k.lane();
            let inside = i.lt(all);
            let i = i.min(all - 1);
            if batch == 1 {
                return body(i, inside, BatchItem::ONLY);
            }
            let (i, item) = self.of_item(i, unit);
            body(i, inside, item);
        });
    }

    /// Calls `body` for each token of the batch.
    pub(crate) fn each_item(&self, body: impl FnOnce(BatchItem<'k>)) {
        match self.plan.batch {
            1 => body(BatchItem::ONLY),
            batch => self
                .k
                .for_each(0, batch, 1, |item| body(BatchItem::new(item))),
        }
    }

    /// Returns true if the batch is one token.
    pub(crate) fn is_single(&self) -> bool {
        self.plan.batch == 1
    }

    /// Waits at a barrier of all consumer threads.
    pub(crate) fn barrier(&self) {
        self.k.barrier_part(CONSUMERS, 32 * self.plan.warps())
    }
}
