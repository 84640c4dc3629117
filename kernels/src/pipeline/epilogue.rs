//! What a product does with its row sums: the epilogue, and what it finds.

use super::batch::BatchItem;
use super::layout::{partials_bytes, token_bytes};
use super::lora::Tail;
use super::plan::Plan;
use super::stream::CONSUMERS;
use crate::format::tile::ROWS;
use ptx_gen::*;

/// What the consumers do with the sums of the block's rows.
///
/// The three steps run on three sides of the kernel's waits, which is what makes the pipeline overlap:
///
/// | step | runs | may read |
/// |---|---|---|
/// | [`addresses`](Epilogue::addresses) | before `griddepcontrol.wait`, while the previous kernel runs | arguments and special registers |
/// | [`prefetch`](Epilogue::prefetch) | after the wait, behind the loads of the activations | anything |
/// | [`store`](Epilogue::store) | after the products and a barrier of the consumers | anything, and the sums |
pub(crate) trait Epilogue<'k> {
    /// What is computed before the wait.
    type Addresses;
    /// Operands whose loads overlap with the products.
    type Operands;

    /// Computes addresses, to keep integer divisions out of the time after the wait.
    fn addresses(&self, r: &Results<'k>) -> Self::Addresses;
    /// Starts to load operands.
    fn prefetch(&self, k: Builder<'k>, addresses: &Self::Addresses) -> Self::Operands;
    /// Stores the results.
    fn store(&self, r: &Results<'k>, addresses: Self::Addresses, operands: Self::Operands);
}

/// An epilogue that only stores.
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
    /// How many there are.
    pub(crate) threads: u32,
    /// For each segment: this block's first row block, and their number.
    pub(crate) shares: Vec<(U32<'k>, U32<'k>)>,
    /// Row blocks of earlier segments.
    pub(super) before: Vec<U32<'k>>,
    pub(super) plan: Plan,
    pub(super) partials: Ptr<'k, u8, Shared>,
    pub(super) factor: Factor<'k>,
    /// What an adapter adds, and the row blocks of the segments.
    pub(super) tail: Option<(Tail<'k>, Vec<U32<'k>>)>,
    /// The epilogue's scratch space in shared memory.
    pub(crate) scratch: Ptr<'k, u8, Shared>,
}

/// The factor that the norm applies to a token's sums.
#[derive(Clone, Copy)]
pub(super) enum Factor<'k> {
    /// Without a norm.
    None,
    /// For a batch of one.
    One(F32<'k>),
    /// For each token, in shared memory.
    Each(Ptr<'k, f32, Shared>),
}

impl<'k> Results<'k> {
    /// The sum of row `r` of row block `i` of this block's share of a segment, for one token.
    pub(crate) fn row(&self, run: usize, i: U32<'k>, r: U32<'k>, item: BatchItem<'k>) -> F32<'k> {
        let warps = self.plan.warps();
        let block = self
            .partials
            .row(i + self.before[run], partials_bytes(self.plan));
        let row = item.of(block, token_bytes(warps)).row(r, 4).cast::<f32>();
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

    /// Calls `body` for `count` numbers of each token, one per thread. `unit` consecutive numbers, which divide
    /// `count`, stay together.
    pub(crate) fn each(
        &self,
        count: U32<'k>,
        unit: u32,
        body: impl FnOnce(U32<'k>, BatchItem<'k>),
    ) {
        let (k, batch) = (self.k, self.plan.batch);
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

    /// Maps index `i` over the whole batch to a number and its token.
    fn of_item(&self, i: U32<'k>, unit: u32) -> (U32<'k>, BatchItem<'k>) {
        let (place, r) = (i / unit, i % unit);
        (
            (place / self.plan.batch).mad(unit, r),
            BatchItem::new(place % self.plan.batch),
        )
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
            batch => self
                .k
                .for_each(0, batch, 1, |item| body(BatchItem::new(item))),
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
