//! The choice among few tokens that top-k left: each is compared with each.
//!
//! ```text
//! rank(i)   = number of tokens before i in the order of logits
//! before(i) = mass of the tokens before i            at temperature 1
//! kept(i)   : rank < k, before less than top-p's share of the first k, not too far below the largest
//! start(i)  = mass of the kept tokens with lower ids  at the sequence's temperature
//! chosen    : start <= random share of all < start + mass
//! ```
//!
//! [`PARTS`] neighbouring lanes share a token: each compares it with every eighth.

use super::THREADS;
use super::draw::{Draw, Item};
use super::weight;
use ptx_gen::*;

/// Tokens, at most.
pub(super) const FEW: u32 = THREADS / PARTS;
/// Lanes of a token.
const PARTS: u32 = 8;

/// The token of this thread, as its lanes share it, and memory of all.
struct Few<'a, 'k> {
    k: Builder<'k>,
    draw: &'a Draw<'a, 'k>,
    /// Tokens that there are.
    len: U32<'k>,
    /// This one, the last one in threads that have none, and whether this thread stands for it.
    own: U32<'k>,
    stands: Pred<'k>,
    /// `[FEW]`: their places in the order of logits, and their masses.
    orders: Ptr<'k, u64, Shared>,
    masses: Ptr<'k, u64, Shared>,
}

/// Chooses among the first `len` listed tokens, at most [`FEW`]. Whole block.
pub(super) fn choose<'k>(draw: &Draw<'_, 'k>, len: U32<'k>) -> U32<'k> {
    let k = draw.k;
    k.section("sample/few/pairs", "few tokens: each is compared with each");
    let (own, part) = (k.tid() / PARTS, k.tid() & (PARTS - 1));
    let stands = part.eq(0) & own.lt(len);
    let (orders, masses) = (k.shared("orders", FEW), k.shared("masses", FEW));
    let few = Few {
        k,
        draw,
        len,
        own: own.min(len - 1),
        stands,
        orders,
        masses,
    };
    few.note_masses();
    let kept = few.filter();
    few.draw(kept)
}

impl<'k> Few<'_, 'k> {
    fn item(&self, i: U32<'k>) -> Item<'k> {
        let items = &self.draw.items;
        Item {
            token: items.ids.at(i).ld(),
            z: items.values.at(i).ld(),
        }
    }

    /// A token a thread.
    fn note_masses(&self) {
        let k = self.k;
        k.when(k.tid().lt(self.len), || {
            let item = self.item(k.tid());
            self.orders.at(k.tid()).st(item.order());
            self.masses.at(k.tid()).st(self.draw.plain_mass(item));
        });
        k.barrier();
    }

    /// Whether top-k, top-p and min-p keep this token.
    fn filter(&self) -> Pred<'k> {
        let (k, params) = (self.k, &self.draw.row.params);
        k.section("sample/few/rank", "rank, and mass before it");
        let (order, mut rank, mut before) = (self.orders.at(self.own).ld(), k.var(0), k.var(0u64));
        self.each(|i| {
            k.when(self.orders.at(i).ld().gt(order), || {
                rank += 1;
                before += self.masses.at(i).ld();
            });
        });
        let (rank, before) = (
            lanes_sum(rank.get().cvt()).cvt::<u32>(),
            lanes_sum(before.get()),
        );
        let all = k.shared::<u64>("kept", 1);
        let last = params.top_k.min(self.len) - 1;
        k.when(self.stands & rank.eq(last), || {
            all.st(before + self.masses.at(self.own).ld())
        });
        k.barrier();
        let border = weight::border(all.ld(), params.top_p);
        let near = (self.item(self.own).z - self.draw.most).ge(params.min_gap);
        rank.le(last) & (params.top_p.eq(0) | before.le(border)) & near
    }

    /// The token at the random share of what is kept.
    fn draw(&self, kept: Pred<'k>) -> U32<'k> {
        let (k, item, drawn) = (
            self.k,
            self.item(self.own),
            self.k.shared::<u64>("drawn", FEW),
        );
        k.when(self.stands, || {
            let mass = self.draw.drawn_mass(item, self.draw.most);
            drawn.at(self.own).st(kept.select(mass, 0u64));
        });
        k.barrier();
        k.section("sample/few/lower_mass", "mass of lower tokens, and of all");
        let (mut start, mut all) = (k.var(0u64), k.var(0u64));
        self.each(|i| {
            let mass = drawn.at(i).ld();
            all += mass;
            k.when(self.draw.items.ids.at(i).ld().lt(item.token), || {
                start += mass
            });
        });
        let (start, all) = (lanes_sum(start.get()), lanes_sum(all.get()));
        let (number, chosen) = (
            weight::times(all, self.draw.word.ld()),
            k.shared::<u32>("chosen", 1),
        );
        let end = start + drawn.at(self.own).ld();
        k.when(self.stands & start.le(number) & end.gt(number), || {
            chosen.st(item.token)
        });
        k.barrier();
        chosen.ld()
    }

    /// `body` for the tokens that this thread compares its own with.
    fn each(&self, body: impl FnOnce(U32<'k>)) {
        let k = self.k;
        k.for_each(k.tid() & (PARTS - 1), self.len, PARTS, body);
    }
}

/// The sum over the lanes of a token, in each of them. Whole warp.
fn lanes_sum(v: U64<'_>) -> U64<'_> {
    super::block::lanes_sum(PARTS - 1, v)
}
