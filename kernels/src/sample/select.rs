//! The border of an order: the first item at which the sum of the masses exceeds a number.
//!
//! Items are ordered by a key, the largest first. The key is read ten bits at a time. In each round, the block adds up
//! the masses of the items whose upper bits are the border's, by the next ten bits; the first bin up to whose end the
//! sum exceeds the number is that of the border. A round with one item left is the last.
//!
//! A mass has 64 bits and an atomic of shared memory has 32, so a bin is two words, and the carry of the lower word's
//! addition goes to the upper one. Sums of integers do not depend on their order.

use super::THREADS;
use super::block::{self, join};
use super::weight::halves;
use ptx_gen::*;

/// Bits of a key that a round reads: a bin for each thread.
const DIGIT: u32 = THREADS.trailing_zeros();

/// When rounds end.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    /// When the border is known apart from other items: lower bits of the key may be missing.
    Apart,
    /// When the whole key is known.
    Whole,
}

/// Shared memory of all selections of a kernel, one after another.
pub(super) struct Selection<'k> {
    k: Builder<'k>,
    low: Ptr<'k, u32, Shared>,
    high: Ptr<'k, u32, Shared>,
    count: Ptr<'k, u32, Shared>,
    totals: Ptr<'k, u64, Shared>,
    /// The bin of the border, and how many items it has.
    found: Ptr<'k, u32, Shared>,
    /// The sum before it.
    before: Ptr<'k, u64, Shared>,
}

/// What rounds know.
struct Border<'k> {
    /// Bits of the key that are not known.
    shift: Var<'k, u32>,
    key: Var<'k, u64>,
    /// The number less the sum of what is before the border's bins.
    left: Var<'k, u64>,
}

impl<'k> Selection<'k> {
    pub(super) fn new(k: Builder<'k>) -> Self {
        let bins = |name| k.shared::<u32>(name, THREADS);
        Selection {
            k,
            low: bins("low"),
            high: bins("high"),
            count: bins("items"),
            totals: block::totals(k),
            found: k.shared("found", 2),
            before: k.shared("before", 1),
        }
    }

    /// The key of the border: the first item, in the order of falling keys of `bits` bits, with which the sum of the
    /// masses exceeds `number`. It is less than the sum of all. `each` calls what it is given for each item of a thread,
    /// with its key and its mass. Whole block.
    pub(super) fn border(
        &self,
        bits: u32,
        end: End,
        number: U64<'k>,
        each: impl FnOnce(&dyn Fn(U64<'k>, U64<'k>)),
    ) -> U64<'k> {
        let k = self.k;
        let rounds = bits.div_ceil(DIGIT);
        let mut border = Border {
            shift: k.var(rounds * DIGIT),
            key: k.var(0u64),
            left: k.var(number),
        };
        k.repeat_with(
            &mut border,
            |border| border.shift.get().eq(0),
            |border| self.round(border, end, each),
        );
        border.key.get()
    }

    fn round(
        &self,
        border: &mut Border<'k>,
        end: End,
        each: impl FnOnce(&dyn Fn(U64<'k>, U64<'k>)),
    ) {
        let k = self.k;
        k.section(
            "sample/select/clear_bins",
            "a round of a selection: empty bins",
        );
        for bins in [self.low, self.high, self.count] {
            bins.at(k.tid()).st(0);
        }
        k.barrier();
        let (upper, key) = (border.shift.get(), border.key.get());
        let shift = upper - DIGIT;
        k.section("sample/select/items", "the items of the border's bins");
        each(&|item, mass| {
            k.section("sample/select/item", "an item");
            k.when((item >> upper).eq(key >> upper) & mass.gt(0), || {
                self.add(item >> shift, mass)
            });
        });
        k.section("sample/select/bin", "the bin of the border");
        k.barrier();
        self.find(border.left.get());
        k.barrier();
        let [bin, count] = [0, 1].map(|i| self.found.at(i).ld());
        let digit = bin ^ (THREADS - 1);
        border.key.set(key + (digit.cvt::<u64>() << shift));
        border.left.set(border.left.get() - self.before.ld());
        match end {
            End::Apart => border.shift.set(count.eq(1).select(0, shift)),
            End::Whole => border.shift.set(shift),
        }
    }

    /// Adds an item to its bin: the largest digit is in the first.
    fn add(&self, digits: U64<'k>, mass: U64<'k>) {
        let bin = (digits.cvt::<u32>() & (THREADS - 1)) ^ (THREADS - 1);
        let [low, high] = halves(mass);
        let old = self.low.at(bin).atom_add(low);
        let carry = (old + low).lt(old).select(1, 0);
        _ = self.high.at(bin).atom_add(high + carry);
        _ = self.count.at(bin).atom_add(1);
    }

    /// The thread of the border's bin says so.
    fn find(&self, left: U64<'k>) {
        let k = self.k;
        let bin = k.tid();
        let mass = join(self.low.at(bin).ld(), self.high.at(bin).ld());
        let end = block::scan(k, self.totals, mass);
        let start = end - mass;
        k.when(start.le(left) & end.gt(left), || {
            self.found.st(bin);
            self.found.at(1).st(self.count.at(bin).ld());
            self.before.st(start);
        });
    }
}
