//! The draw: what the filters keep of a row, and the token at a random share of its mass. One block.

use super::block;
use super::choose::SampleTokenArgs;
use super::few::{self, FEW};
use super::rows::Row;
use super::select::{End, Selection};
use super::weight;
use super::{CHUNK, ID_BITS, LISTED, SampleParams, THREADS};
use ptx_gen::*;

/// Bits of the key of an order: a number's, and a token's.
const KEY_BITS: u32 = 32 + ID_BITS;

/// The tokens that a row's choice looks at.
pub(super) struct Items<'k> {
    k: Builder<'k>,
    /// `[vocab]`
    z: Ptr<'k, f32, ReadOnly>,
    /// Whether they are those of the list, or all of a range.
    listed: Var<'k, u32>,
    from: Var<'k, u32>,
    to: Var<'k, u32>,
    /// The list.
    pub(super) ids: Ptr<'k, u32, Shared>,
    pub(super) values: Ptr<'k, f32, Shared>,
}

/// A token and its logit.
#[derive(Clone, Copy)]
pub(super) struct Item<'k> {
    pub(super) token: U32<'k>,
    pub(super) z: F32<'k>,
}

impl<'k> Item<'k> {
    /// Larger logits first; of equals, the lowest token.
    pub(super) fn order(self) -> U64<'k> {
        let bits = self.z.bits::<u32>();
        let flip = (self.z.bits::<i32>() >> 31).bits::<u32>() | (1 << 31);
        self.key(bits ^ flip)
    }

    /// Lower numbers first; of equals, the lowest token. The number is not negative.
    fn rising(self, number: F32<'k>) -> U64<'k> {
        self.key(!number.bits::<u32>())
    }

    /// Lower tokens first.
    fn reversed(self) -> U32<'k> {
        self.token ^ ((1 << ID_BITS) - 1)
    }

    /// The token of an item's place in an order.
    pub(super) fn token_of(key: U64<'k>) -> U32<'k> {
        let [low, _] = weight::halves(key);
        (low & ((1 << ID_BITS) - 1)) ^ ((1 << ID_BITS) - 1)
    }

    fn key(self, number: U32<'k>) -> U64<'k> {
        (number.cvt::<u64>() << ID_BITS) + self.reversed().cvt::<u64>()
    }
}

impl<'k> Items<'k> {
    /// All tokens.
    fn all(k: Builder<'k>, z: Ptr<'k, f32, ReadOnly>, vocab: U32<'k>) -> Self {
        let [listed, from] = [0, 0].map(|v| k.var(v));
        let (ids, values) = (k.shared("ids", LISTED), k.shared("values", LISTED));
        Items {
            k,
            z,
            listed,
            from,
            to: k.var(vocab),
            ids,
            values,
        }
    }

    /// `body` for each item of this thread.
    pub(super) fn each(&self, body: impl FnOnce(Item<'k>)) {
        let (k, listed) = (self.k, self.listed.get().eq(1));
        k.for_each(self.from.get() + k.tid(), self.to.get(), THREADS, |i| {
            let (mut token, mut z) = (k.var(i), k.var(0.0));
            k.when(listed, || {
                token.set(self.ids.at(i).ld());
                z.set(self.values.at(i).ld());
            })
            .otherwise(|| z.set(self.z.at(i).fresh().ld()));
            body(Item {
                token: token.get(),
                z: z.get(),
            });
        });
    }

    /// The sum of a mass of each. Whole block.
    fn sum(&self, mass: impl FnOnce(Item<'k>, &mut Var<'k, u64>)) -> U64<'k> {
        let mut sum = self.k.var(0u64);
        self.each(|item| mass(item, &mut sum));
        block::sum(self.k, sum.get())
    }

    /// Makes the list of a mask's tokens, in any order. Whole block; `count` is zero.
    fn list(&mut self, mask: &Mask<'k>, count: Ptr<'k, u32, Shared>, listed: U32<'k>) {
        let k = self.k;
        let own = mask.len();
        k.when(own.gt(0), || {
            let mut at = k.var(count.atom_add(own));
            mask.each(k, |token| {
                self.ids.at(at.get()).st(token);
                at += 1;
            });
        });
        k.barrier();
        k.when(k.tid().lt(listed), || {
            self.values
                .at(k.tid())
                .st(self.z.at(self.ids.at(k.tid()).ld()).fresh().ld());
        });
        k.barrier();
        self.listed.set(1);
        self.to.set(listed);
    }
}

/// A thread's words of a row's mask.
pub(super) struct Mask<'k> {
    /// Four words a thread, twice.
    words: [[Var<'k, u32>; 4]; 2],
}

impl<'k> Mask<'k> {
    pub(super) fn load(k: Builder<'k>, mask: Ptr<'k, u32, ReadOnly>, vectors: U32<'k>) -> Self {
        let words = [0, THREADS].map(|i| {
            let (at, mut words) = (k.tid() + i, [0; 4].map(|word| k.var(word)));
            mask.row(at, 16).fresh().ld4_if(at.lt(vectors), &mut words);
            words
        });
        Mask { words }
    }

    /// Its tokens.
    fn len(&self) -> U32<'k> {
        let words = self.words.iter().flatten().map(|word| word.get().popc());
        words.reduce(|a, b| a + b).expect("there are eight")
    }

    /// `body` for each token.
    fn each(&self, k: Builder<'k>, mut body: impl FnMut(U32<'k>)) {
        for (half, words) in (0..).zip(&self.words) {
            for (i, word) in (0..).zip(words) {
                let first = (k.tid() + half * THREADS) * 128 + i * 32;
                let mut bits = k.var(word.get());
                k.repeat_with(
                    &mut bits,
                    |bits| bits.get().eq(0),
                    |bits| {
                        let left = bits.get();
                        body(first + left.brev().clz());
                        bits.set(left & (left - 1));
                    },
                );
            }
        }
    }
}

/// What is kept: items not behind either border, and not too far below the largest.
#[derive(Clone, Copy)]
struct Kept<'k> {
    /// The border in the order of the logits.
    order: U64<'k>,
    /// The border of typical-p, and the mean that distances are from.
    typical: U64<'k>,
    mean: F32<'k>,
    most: F32<'k>,
}

impl<'k> Kept<'k> {
    fn has(self, item: Item<'k>) -> Pred<'k> {
        item.order().ge(self.order) & self.distance(item).ge(self.typical)
    }

    /// Typical tokens first: those whose surprise is near the mean of all.
    fn distance(self, item: Item<'k>) -> U64<'k> {
        item.rising(((self.most - item.z) - self.mean).abs())
    }
}

/// A row's draw.
pub(super) struct Draw<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) a: &'a SampleTokenArgs<Dev<'k>>,
    pub(super) row: &'a Row<'k>,
    /// The largest logit.
    pub(super) most: F32<'k>,
    pub(super) items: Items<'k>,
    blocks: U32<'k>,
    selection: Selection<'k>,
    /// The mass of all tokens at temperature 1, where it is needed: [`SampleParams::needs_masses`].
    pub(super) total: Ptr<'k, u64, Shared>,
    /// A random word. In shared memory, as registers are short.
    pub(super) word: Ptr<'k, u32, Shared>,
}

/// What a choice begins with.
pub(super) struct Start<'k> {
    /// The largest logit.
    pub(super) most: F32<'k>,
    /// Chunks of the row.
    pub(super) blocks: U32<'k>,
    /// A random word.
    pub(super) word: Ptr<'k, u32, Shared>,
}

impl<'a, 'k> Draw<'a, 'k> {
    pub(super) fn new(
        k: Builder<'k>,
        a: &'a SampleTokenArgs<Dev<'k>>,
        row: &'a Row<'k>,
        Start { most, blocks, word }: Start<'k>,
    ) -> Self {
        let z = a.z.row(row.index, a.of.vocab * 4);
        let (items, selection) = (Items::all(k, z, a.of.vocab), Selection::new(k));
        let total = k.shared("total", 1);
        k.when(row.params.needs_masses(), || {
            k.section("sample/draw/mass", "the mass of all tokens");
            block::sum_to(k, mass_of_chunk(k, a, row, blocks, 0), total);
        });
        Draw {
            k,
            a,
            row,
            most,
            items,
            blocks,
            selection,
            total,
            word,
        }
    }

    /// A token's logit.
    pub(super) fn z(&self, token: U32<'k>) -> F32<'k> {
        self.items.z.at(token).fresh().ld()
    }

    /// Looks at all tokens, unless a list has the first `count`.
    pub(super) fn look_at_enough(&mut self, count: U32<'k>) {
        let k = self.k;
        let few = self.items.listed.get().eq(0) | self.items.to.get().lt(count);
        k.when(few, || {
            self.items.listed.set(0);
            self.items.from.set(0);
            self.items.to.set(self.a.of.vocab);
        });
    }

    /// The token, where a mask has so many of the first ones. Whole block; `count` is zero.
    pub(super) fn token(
        &mut self,
        mask: &Mask<'k>,
        count: Ptr<'k, u32, Shared>,
        listed: U32<'k>,
    ) -> U32<'k> {
        let (k, params) = (self.k, &self.row.params);
        let mut token = k.var(0);
        k.when(listed.gt(0), || {
            k.section("sample/draw/listed", "the listed tokens");
            self.items.list(mask, count, listed);
        });
        let few = (listed - 1).lt(FEW) & params.top_k.gt(0) & params.typical_p.eq(0);
        k.when(few, || token.set(few::choose(self, listed)))
            .otherwise(|| token.set(self.select(listed)));
        token.get()
    }

    /// The same among any number of tokens.
    fn select(&mut self, listed: U32<'k>) -> U32<'k> {
        let k = self.k;
        k.section("sample/draw/unbounded", "any number of tokens");
        let zero = k.val(0u64);
        let all = Kept {
            order: zero,
            typical: zero,
            mean: k.val(0.0),
            most: self.most,
        };
        let (mut order, mut typical) = (k.var(0u64), k.var(0u64));
        let (mut mean, mut most, mut number) = (k.var(0.0), k.var(self.most), k.var(0u64));
        k.when(self.row.params.is_unordered(), || {
            number.set(self.find_chunk())
        })
        .otherwise(|| {
            self.widen(listed);
            let kept = self.filter(all);
            k.section("sample/draw/kept_mass", "the mass of what is kept");
            order.set(kept.order);
            typical.set(kept.typical);
            mean.set(kept.mean);
            most.set(self.most_of(kept));
            let mass = self
                .items
                .sum(|item, sum| self.when_drawn(kept, most.get(), item, |mass| *sum += mass));
            number.set(weight::times(mass, self.word.ld()));
        });
        let kept = Kept {
            order: order.get(),
            typical: typical.get(),
            mean: mean.get(),
            ..all
        };
        let most = most.get();
        k.section(
            "sample/draw/token",
            "the token at the random share of the mass, in the order of tokens",
        );
        let key = self
            .selection
            .border(ID_BITS, End::Whole, number.get(), |add| {
                self.items.each(|item| {
                    self.when_drawn(kept, most, item, |mass| add(item.reversed().cvt(), mass));
                });
            });
        key.cvt::<u32>() ^ ((1 << ID_BITS) - 1)
    }

    /// Calls `body` with the mass at the sequence's temperature, if the item is kept.
    fn when_drawn(
        &self,
        kept: Kept<'k>,
        most: F32<'k>,
        item: Item<'k>,
        body: impl FnOnce(U64<'k>),
    ) {
        let near = (item.z - most).ge(self.row.params.min_gap);
        self.k
            .when(kept.has(item) & near, || body(self.drawn_mass(item, most)));
    }

    /// A token's mass at the sequence's temperature.
    pub(super) fn drawn_mass(&self, item: Item<'k>, most: F32<'k>) -> U64<'k> {
        weight::on_device(item.z, most, self.row.params.scale)
    }

    /// Calls `body` with the mass at temperature 1, if the item is kept.
    fn when_kept(&self, kept: Kept<'k>, item: Item<'k>, body: impl FnOnce(U64<'k>)) {
        self.k.when(kept.has(item), || body(self.plain_mass(item)));
    }

    /// A token's mass at temperature 1.
    pub(super) fn plain_mass(&self, item: Item<'k>) -> U64<'k> {
        let one = SampleParams::OFF.scale.map(|scale| self.k.val(scale));
        weight::on_device(item.z, self.most, one)
    }

    /// Looks at the chunk alone that has the random share of the mass; gives what is left of the share there.
    fn find_chunk(&mut self) -> U64<'k> {
        let k = self.k;
        k.section(
            "sample/draw/min_p",
            "only min-p: the chunk at the random share of the mass",
        );
        let (found, rest) = (k.shared::<u32>("chunk", 1), k.shared::<u64>("rest", 2));
        let mass = mass_of_chunk(k, self.a, self.row, self.blocks, 1);
        let end = block::scan(k, block::totals(k), mass);
        k.when(k.tid().eq(THREADS - 1), || rest.at(1).st(end));
        k.barrier();
        let number = weight::times(rest.at(1).ld(), self.word.ld());
        let start = end - mass;
        k.when(start.le(number) & end.gt(number), || {
            found.st(k.tid());
            rest.st(number - start);
        });
        k.barrier();
        let first = found.ld() * CHUNK;
        self.items.from.set(first);
        self.items.to.set((first + CHUNK).min(self.a.of.vocab));
        rest.ld()
    }

    /// Looks at all tokens if those listed do not decide: if they have less than the share of top-p.
    fn widen(&mut self, listed: U32<'k>) {
        let (k, params) = (self.k, &self.row.params);
        k.when(listed.gt(0) & params.top_k.eq(0), || {
            k.section(
                "sample/draw/list_reaches_top_p",
                "whether those listed have the share of top-p",
            );
            let mass = self.items.sum(|item, sum| *sum += self.plain_mass(item));
            let enough = mass.gt(weight::border(self.total.ld(), params.top_p));
            k.when(!enough, || {
                self.items.listed.set(0);
                self.items.to.set(self.a.of.vocab);
            });
        });
    }

    /// Top-k, typical-p and top-p.
    fn filter(&self, all: Kept<'k>) -> Kept<'k> {
        let (k, params) = (self.k, &self.row.params);
        let mut order = k.var(0u64);
        k.when(
            params.top_k.gt(0) & params.top_k.lt(self.items.to.get()),
            || {
                k.section("sample/draw/top_k", "top-k");
                order.set(self.selection.border(
                    KEY_BITS,
                    End::Apart,
                    (params.top_k - 1).cvt(),
                    |add| {
                        self.items.each(|item| add(item.order(), k.val(1u64)));
                    },
                ));
            },
        );
        let kept = Kept {
            order: order.get(),
            ..all
        };
        let kept = self.typical(kept);
        k.when(params.top_p.gt(0), || {
            k.section("sample/draw/top_p", "top-p");
            let mut mass = k.var(0u64);
            k.when((params.top_k | params.typical_p).gt(0), || {
                mass.set(
                    self.items
                        .sum(|item, sum| self.when_kept(kept, item, |mass| *sum += mass)),
                );
            })
            .otherwise(|| mass.set(self.total.ld()));
            let number = weight::border(mass.get(), params.top_p);
            let border = self.selection.border(KEY_BITS, End::Apart, number, |add| {
                self.items
                    .each(|item| self.when_kept(kept, item, |mass| add(item.order(), mass)));
            });
            order.set(kept.order.max(border));
        });
        Kept {
            order: order.get(),
            ..kept
        }
    }

    /// Typical-p: the border in the order of how far a token's surprise is from the mean.
    fn typical(&self, kept: Kept<'k>) -> Kept<'k> {
        let (k, params) = (self.k, &self.row.params);
        let (mut border, mut mean) = (k.var(0u64), k.var(0.0));
        k.when(params.typical_p.gt(0), || {
            k.section(
                "sample/draw/typical_p_mass",
                "typical-p: the mass of what is kept",
            );
            let mass = self
                .items
                .sum(|item, sum| self.when_kept(kept, item, |mass| *sum += mass));
            k.section("sample/draw/typical_p_mean", "typical-p: the mean surprise");
            let surprise = self.items.sum(|item, sum| {
                self.when_kept(kept, item, |mass| *sum += moment(mass, self.most - item.z));
            });
            mean.set(surprise.cvt::<f32>() / mass.cvt::<f32>());
            let kept = Kept {
                mean: mean.get(),
                ..kept
            };
            let number = weight::border(mass, params.typical_p);
            border.set(self.selection.border(KEY_BITS, End::Apart, number, |add| {
                self.items
                    .each(|item| self.when_kept(kept, item, |mass| add(kept.distance(item), mass)));
            }));
        });
        Kept {
            typical: border.get(),
            mean: mean.get(),
            ..kept
        }
    }

    /// The largest logit that is kept: typical-p may drop the first.
    fn most_of(&self, kept: Kept<'k>) -> F32<'k> {
        let k = self.k;
        let mut most = k.var(self.most);
        k.when(self.row.params.typical_p.gt(0), || {
            k.section("sample/draw/maximum", "the largest that is kept");
            let mut own = k.var(f32::NEG_INFINITY);
            self.items.each(|item| {
                k.when(kept.has(item), || own.max_with(item.z));
            });
            most.set(block::max(k, own.get()));
        });
        most.get()
    }
}

/// A mass of a chunk of each of the first threads.
fn mass_of_chunk<'k>(
    k: Builder<'k>,
    a: &SampleTokenArgs<Dev<'k>>,
    row: &Row<'k>,
    blocks: U32<'k>,
    which: u32,
) -> U64<'k> {
    let masses = a.mass.row(row.index, blocks * 16);
    let mut mass = k.var(0u64);
    masses
        .at(k.tid() + blocks * which)
        .fresh()
        .ld_if(k.tid().lt(blocks), &mut mass);
    mass.get()
}

/// Fraction bits of a gap in [`moment`].
const GAP_BITS: u32 = 20;

/// A mass times how far its logit is below the largest. `exp(-x) x` is below 1, so it fits.
fn moment<'k>(mass: U64<'k>, gap: F32<'k>) -> U64<'k> {
    let gap = (gap * (1 << GAP_BITS) as f32)
        .cvt::<u32>()
        .min(63 << GAP_BITS);
    let [low, high] = weight::halves(mass);
    (high.mul_wide(gap) << (32 - GAP_BITS)) + (low.mul_wide(gap) >> GAP_BITS)
}

/// [`moment`] on the CPU.
pub(super) fn moment_on_cpu(mass: u64, gap: f32) -> u64 {
    let gap = ((gap * (1 << GAP_BITS) as f32) as u32).min(63 << GAP_BITS);
    ((u128::from(mass) * u128::from(gap)) >> GAP_BITS) as u64
}
