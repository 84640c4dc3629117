//! Selection of the border of an order: the first item at which the sum of the masses exceeds a
//! number. It is a radix select, with masses in place of counts.
//!
//! Items are ordered by a key, the largest first. Rounds read ten bits of the key at a time. In
//! each round, the block adds up masses in one bin for each value of the next ten bits. Only items
//! whose upper bits are equal to the border's count. The first bin at whose end the sum exceeds the
//! number has the border. If that bin has one item, the search may end early.
//!
//! A mass has 64 bits, and an atomic addition in shared memory has 32. A bin is therefore two
//! words, and the carry of the lower word's addition is added to the upper word. Sums of integers
//! do not depend on the order of the additions.

use super::block::{self, join};
use super::limits::THREADS;
use super::weight::halves;
use ptx_gen::*;

/// The number of bits of a key that a round reads: there is one bin per thread.
const DIGIT: u32 = THREADS.trailing_zeros();

/// The condition at which rounds end.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    /// They end when one item is left. The lower bits of the key may be missing.
    Apart,
    /// They end when all bits of the key are known.
    Whole,
}

/// The shared memory of the selections of a kernel, which use it one after another.
pub(super) struct Selection<'k> {
    k: Builder<'k>,
    /// The lower words of the bins' masses.
    low: Ptr<'k, u32, Shared>,
    /// The upper words of the bins' masses.
    high: Ptr<'k, u32, Shared>,
    /// The numbers of the bins' items.
    count: Ptr<'k, u32, Shared>,
    totals: Ptr<'k, u64, Shared>,
    /// The bin of the border, and the number of its items.
    found: Ptr<'k, u32, Shared>,
    /// The sum of the masses before that bin.
    before: Ptr<'k, u64, Shared>,
}

/// The knowledge about a border after some rounds.
struct BorderSearch<'k> {
    /// The number of lower bits of the key that are unknown.
    shift: Var<'k, u32>,
    /// The known upper bits of the key, with zeros below.
    key: Var<'k, u64>,
    /// The number minus the sum of the masses before the border's bins.
    left: Var<'k, u64>,
}

impl<'k> Selection<'k> {
    /// Declares the shared memory.
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

    /// Returns the key of the border: the first item, in the order of falling keys of `bits` bits,
    /// at which the sum of the masses exceeds `number`.
    ///
    /// `number` must be less than the sum of all masses. `each` must call its argument with the key
    /// and the mass of each item of the thread. The whole block must call this function.
    pub(super) fn border(
        &self,
        bits: u32,
        end: End,
        number: U64<'k>,
        each: impl FnOnce(&dyn Fn(U64<'k>, U64<'k>)),
    ) -> U64<'k> {
        let k = self.k;
        let rounds = bits.div_ceil(DIGIT);
        let mut border = BorderSearch {
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
        border: &mut BorderSearch<'k>,
        end: End,
        each: impl FnOnce(&dyn Fn(U64<'k>, U64<'k>)),
    ) {
        let k = self.k;

        // Each thread clears the bin that only it reads in `find`, so no barrier precedes.
        k.section(
            "sample/select/clear_bins",
            "a round of a selection: empty bins",
        );
        for bins in [self.low, self.high, self.count] {
            bins.at(k.tid()).st(0);
        }

        k.barrier();
        let upper = border.shift.get();
        let key = border.key.get();
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

        // Bins are in falling order of digits, so that the prefix sum starts at the largest key.
        let [bin, count] = [0, 1].map(|i| self.found.at(i).ld());
        let digit = bin ^ (THREADS - 1);
        border.key.set(key + (digit.cvt::<u64>() << shift));
        border.left.set(border.left.get() - self.before.ld());
        match end {
            End::Apart => border.shift.set(count.eq(1).select(0, shift)),
            End::Whole => border.shift.set(shift),
        }
    }

    /// Adds an item to its bin. The largest digit has the first bin.
    fn add(&self, digits: U64<'k>, mass: U64<'k>) {
        let bin = (digits.cvt::<u32>() & (THREADS - 1)) ^ (THREADS - 1);
        let [low, high] = halves(mass);
        let old = self.low.at(bin).atom_add(low);
        let carry = (old + low).lt(old).select(1, 0);
        _ = self.high.at(bin).atom_add(high + carry);
        _ = self.count.at(bin).atom_add(1);
    }

    /// Finds the bin of the border. The thread of that bin stores the result.
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
