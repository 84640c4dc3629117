//! The draw among few tokens that top-k kept: each token is compared with each other one.
//!
//! ```text
//! rank(i)   = number of tokens before i in the order of logits
//! before(i) = mass of the tokens before i             at temperature 1
//! kept(i)   : rank < k, before < top-p's share of the first k tokens, and z >= min-p's bound
//! start(i)  = mass of the kept tokens with lower ids  at the sequence's temperature
//! chosen    : start <= random share of all < start + mass
//! ```
//!
//! Each of [`LANES`] neighboring lanes compares the token that they share with every eighth token.
//! Two rounds of comparisons and a few barriers replace the rounds of the general selection.

use super::draw::{Draw, TokenItem};
use super::limits::THREADS;
use super::weight;
use ptx_gen::*;

/// The largest number of tokens.
pub(super) const FEW: u32 = THREADS / LANES;
/// The number of lanes that share a token.
const LANES: u32 = 8;

/// The comparison of few tokens, from the view of a thread.
struct FewTokens<'a, 'k> {
    k: Builder<'k>,
    draw: &'a Draw<'a, 'k>,
    /// The number of tokens.
    len: U32<'k>,
    /// The token of this thread: the last one if there is none.
    own: U32<'k>,
    /// True in the one lane that stores results for the token.
    stands: Pred<'k>,
    /// The keys of the tokens in the order of logits, `[FEW]`.
    orders: Ptr<'k, u64, Shared>,
    /// The masses of the tokens at temperature 1, `[FEW]`.
    masses: Ptr<'k, u64, Shared>,
}

/// Returns the token drawn among the first `len` listed tokens, at most [`FEW`]. The whole block
/// must call it.
pub(super) fn choose<'k>(draw: &Draw<'_, 'k>, len: U32<'k>) -> U32<'k> {
    let k = draw.k;

    k.section("sample/few/pairs", "few tokens: each is compared with each");
    let own = k.tid() / LANES;
    let lane = k.tid() & (LANES - 1);
    let stands = lane.eq(0) & own.lt(len);
    let orders = k.shared("orders", FEW);
    let masses = k.shared("masses", FEW);
    let few = FewTokens {
        k,
        draw,
        len,
        own: own.min(len - 1),
        stands,
        orders,
        masses,
    };
    few.share_masses();
    let kept = few.filter();
    few.draw(kept)
}

impl<'k> FewTokens<'_, 'k> {
    fn item(&self, i: U32<'k>) -> TokenItem<'k> {
        let items = &self.draw.items;
        TokenItem {
            token: items.ids.at(i).ld(),
            z: items.values.at(i).ld(),
        }
    }

    /// Stores the keys and the masses, one token per thread.
    fn share_masses(&self) {
        let k = self.k;
        k.when(k.tid().lt(self.len), || {
            let item = self.item(k.tid());
            self.orders.at(k.tid()).st(item.order());
            self.masses.at(k.tid()).st(self.draw.plain_mass(item));
        });
        k.barrier();
    }

    /// Returns true if top-k, top-p and min-p keep this token.
    fn filter(&self) -> Pred<'k> {
        let k = self.k;
        let params = &self.draw.row.params;

        k.section("sample/few/rank", "rank, and mass before it");
        let order = self.orders.at(self.own).ld();
        let mut rank = k.var(0);
        let mut before = k.var(0u64);
        self.each(|i| {
            k.when(self.orders.at(i).ld().gt(order), || {
                rank += 1;
                before += self.masses.at(i).ld();
            });
        });
        let rank = lanes_sum(rank.get().cvt()).cvt::<u32>();
        let before = lanes_sum(before.get());
        let all = k.shared::<u64>("kept", 1);
        let last = params.top_k.min(self.len) - 1;

        // Keys differ, so one token has the last rank. The mass up to it is the whole of top-p.
        k.when(self.stands & rank.eq(last), || {
            let own = self.masses.at(self.own).ld();
            all.st(before + own)
        });
        k.barrier();
        let border = weight::border(all.ld(), params.top_p);
        let own = self.item(self.own);
        let in_min_p = (own.z - self.draw.most).ge(params.min_gap);
        let in_top_k = rank.le(last);
        let in_top_p = params.top_p.eq(0) | before.le(border);
        in_top_k & in_top_p & in_min_p
    }

    /// Returns the token at the random share of the kept mass.
    fn draw(&self, kept: Pred<'k>) -> U32<'k> {
        let k = self.k;
        let item = self.item(self.own);
        let drawn = k.shared::<u64>("drawn", FEW);
        k.when(self.stands, || {
            let mass = self.draw.drawn_mass(item, self.draw.most);
            drawn.at(self.own).st(kept.select(mass, 0u64));
        });
        k.barrier();

        k.section("sample/few/lower_mass", "mass of lower tokens, and of all");
        let mut start = k.var(0u64);
        let mut all = k.var(0u64);
        self.each(|i| {
            let mass = drawn.at(i).ld();
            all += mass;
            k.when(self.draw.items.ids.at(i).ld().lt(item.token), || {
                start += mass
            });
        });
        let start = lanes_sum(start.get());
        let all = lanes_sum(all.get());
        let number = weight::times(all, self.draw.word.ld());
        let chosen = k.shared::<u32>("chosen", 1);
        let end = start + drawn.at(self.own).ld();

        // The intervals of the kept tokens are disjoint and cover the number, so one token matches.
        k.when(self.stands & start.le(number) & end.gt(number), || {
            chosen.st(item.token)
        });
        k.barrier();
        chosen.ld()
    }

    /// Calls `body` for the tokens with which this lane compares its token.
    fn each(&self, body: impl FnOnce(U32<'k>)) {
        let k = self.k;
        k.for_each(k.tid() & (LANES - 1), self.len, LANES, body);
    }
}

/// Returns the sum over the lanes of a token, in each of them. The whole warp must call it.
fn lanes_sum(v: U64<'_>) -> U64<'_> {
    super::block::lanes_sum(LANES - 1, v)
}
