//! The draw: the filters of a row, and the token at a random share of the mass that they keep. A
//! whole block executes it.

use super::limits::{CHUNK, ID_BITS, LISTED, THREADS};
use super::rows::SampledRow;
use super::select::{End, Selection};
use super::token_args::SampleTokenArgs;
use super::{SampleParams, block, weight};
use ptx_gen::*;

/// The number of bits of a key: a number's and a token's.
const KEY_BITS: u32 = 32 + ID_BITS;

/// The tokens of a row that the choice reads.
pub(super) struct TokenItems<'k> {
    k: Builder<'k>,
    /// The logits, `[vocab]`.
    z: Ptr<'k, f32, ReadOnly>,
    /// 1 if the items are the list, or 0 if they are a range of tokens.
    listed: Var<'k, u32>,
    /// The first item.
    from: Var<'k, u32>,
    /// The end of the items.
    to: Var<'k, u32>,
    /// The tokens of the list.
    pub(super) ids: Ptr<'k, u32, Shared>,
    /// The logits of the list.
    pub(super) values: Ptr<'k, f32, Shared>,
}

/// A token and its logit.
#[derive(Clone, Copy)]
pub(super) struct TokenItem<'k> {
    pub(super) token: U32<'k>,
    pub(super) z: F32<'k>,
}

impl<'k> TokenItem<'k> {
    /// Returns the key in the order of logits: larger logits first, and the lower token of equals.
    ///
    /// A float's bits rise with the float if the sign bit of a positive one and all bits of a
    /// negative one are flipped.
    pub(super) fn order(self) -> U64<'k> {
        let bits = self.z.bits::<u32>();
        let flip = (self.z.bits::<i32>() >> 31).bits::<u32>() | (1 << 31);
        self.key(bits ^ flip)
    }

    /// Returns the key that puts lower numbers first, and the lower token of equals. The number
    /// must not be negative.
    fn rising(self, number: F32<'k>) -> U64<'k> {
        self.key(!number.bits::<u32>())
    }

    /// Returns the token's bits so that a lower token is larger.
    fn reversed(self) -> U32<'k> {
        self.token ^ ((1 << ID_BITS) - 1)
    }

    /// Returns the token of a key.
    pub(super) fn token_of(key: U64<'k>) -> U32<'k> {
        let [low, _] = weight::halves(key);
        (low & ((1 << ID_BITS) - 1)) ^ ((1 << ID_BITS) - 1)
    }

    fn key(self, number: U32<'k>) -> U64<'k> {
        (number.cvt::<u64>() << ID_BITS) + self.reversed().cvt::<u64>()
    }
}

impl<'k> TokenItems<'k> {
    /// Returns all tokens as items.
    fn all(k: Builder<'k>, z: Ptr<'k, f32, ReadOnly>, vocab: U32<'k>) -> Self {
        let listed = k.var(0);
        let from = k.var(0);
        let ids = k.shared("ids", LISTED);
        let values = k.shared("values", LISTED);
        TokenItems {
            k,
            z,
            listed,
            from,
            to: k.var(vocab),
            ids,
            values,
        }
    }

    /// Calls `body` for each item of this thread.
    pub(super) fn each(&self, body: impl FnOnce(TokenItem<'k>)) {
        let k = self.k;
        let listed = self.listed.get().eq(1);
        k.for_each(self.from.get() + k.tid(), self.to.get(), THREADS, |i| {
            let mut token = k.var(i);
            let mut z = k.var(0.0);
            k.when(listed, || {
                token.set(self.ids.at(i).ld());
                z.set(self.values.at(i).ld());
            })
            .otherwise(|| z.set(self.z.at(i).fresh().ld()));
            body(TokenItem {
                token: token.get(),
                z: z.get(),
            });
        });
    }

    /// Returns the sum of the items' masses, which `mass` adds. The whole block must call it.
    fn sum(&self, mass: impl FnOnce(TokenItem<'k>, &mut Var<'k, u64>)) -> U64<'k> {
        let mut sum = self.k.var(0u64);
        self.each(|item| mass(item, &mut sum));
        block::sum(self.k, sum.get())
    }

    /// Makes the mask's tokens the list, in any order.
    ///
    /// The whole block must call it, with zero at `count`. The order depends on the atomic
    /// additions, and no result depends on the order.
    pub(super) fn list(&mut self, mask: &Mask<'k>, count: Ptr<'k, u32, Shared>, listed: U32<'k>) {
        let k = self.k;
        let own = mask.len();
        k.when(own.gt(0), || {
            // One atomic addition reserves places for all tokens of a thread.
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

/// The words of a row's mask that a thread holds.
pub(super) struct Mask<'k> {
    /// Two vectors of four words. With 32 tokens per word, 1,024 threads hold `MAX_VOCAB` tokens.
    words: [[Var<'k, u32>; 4]; 2],
}

impl<'k> Mask<'k> {
    /// Loads a thread's words of a mask of `vectors` vectors of four words.
    pub(super) fn load(k: Builder<'k>, mask: Ptr<'k, u32, ReadOnly>, vectors: U32<'k>) -> Self {
        let words = [0, THREADS].map(|i| {
            let at = k.tid() + i;
            let mut words = [0; 4].map(|word| k.var(word));
            mask.row(at, 16).fresh().ld4_if(at.lt(vectors), &mut words);
            words
        });
        Mask { words }
    }

    /// Returns the number of tokens in the thread's words.
    fn len(&self) -> U32<'k> {
        let words = self.words.iter().flatten().map(|word| word.get().popc());
        words.reduce(|a, b| a + b).expect("there are eight")
    }

    /// Calls `body` for each token in the thread's words.
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
                        // The lowest set bit, which the next line clears.
                        body(first + left.brev().clz());
                        bits.set(left & (left - 1));
                    },
                );
            }
        }
    }
}

/// The bounds of the items that the filters keep.
#[derive(Clone, Copy)]
struct KeptBounds<'k> {
    /// The border in the order of logits.
    order: U64<'k>,
    /// The border of typical-p in the order of distances.
    typical: U64<'k>,
    /// The mean surprise, from which distances are measured.
    mean: F32<'k>,
    /// The largest logit.
    most: F32<'k>,
}

impl<'k> KeptBounds<'k> {
    /// Returns true if the item is behind neither border.
    fn has(self, item: TokenItem<'k>) -> Pred<'k> {
        item.order().ge(self.order) & self.distance(item).ge(self.typical)
    }

    /// Returns the key that puts typical tokens first: tokens whose surprise is near the mean.
    fn distance(self, item: TokenItem<'k>) -> U64<'k> {
        item.rising(((self.most - item.z) - self.mean).abs())
    }
}

/// The draw of a row's token.
pub(super) struct Draw<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) a: &'a SampleTokenArgs<Dev<'k>>,
    pub(super) row: &'a SampledRow<'k>,
    /// The largest logit.
    pub(super) most: F32<'k>,
    pub(super) items: TokenItems<'k>,
    /// The number of chunks of the row.
    blocks: U32<'k>,
    selection: Selection<'k>,
    /// The mass of all tokens at temperature 1, if [`SampleParams::needs_masses`].
    pub(super) total: Ptr<'k, u64, Shared>,
    /// The random word. It is in shared memory because registers are short.
    pub(super) word: Ptr<'k, u32, Shared>,
}

/// The values with which a draw begins.
pub(super) struct DrawStart<'k> {
    /// The largest logit.
    pub(super) most: F32<'k>,
    /// The number of chunks of the row.
    pub(super) blocks: U32<'k>,
    /// The random word.
    pub(super) word: Ptr<'k, u32, Shared>,
}

impl<'a, 'k> Draw<'a, 'k> {
    /// Declares the shared memory of a draw and sums the masses of the chunks if they are needed.
    pub(super) fn new(
        k: Builder<'k>,
        a: &'a SampleTokenArgs<Dev<'k>>,
        row: &'a SampledRow<'k>,
        DrawStart { most, blocks, word }: DrawStart<'k>,
    ) -> Self {
        let z = a.z.row(row.index, a.of.vocab * 4);
        let items = TokenItems::all(k, z, a.of.vocab);
        let selection = Selection::new(k);
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

    /// Returns a token's logit.
    pub(super) fn z(&self, token: U32<'k>) -> F32<'k> {
        self.items.z.at(token).fresh().ld()
    }

    /// Makes all tokens the items, unless a list has at least the first `count`.
    pub(super) fn look_at_enough(&mut self, count: U32<'k>) {
        let k = self.k;
        let few = self.items.listed.get().eq(0) | self.items.to.get().lt(count);
        k.when(few, || {
            self.items.listed.set(0);
            self.items.from.set(0);
            self.items.to.set(self.a.of.vocab);
        });
    }

    /// Returns the drawn token, for any number of tokens.
    pub(super) fn select(&mut self, listed: U32<'k>) -> U32<'k> {
        let k = self.k;

        k.section("sample/draw/unbounded", "any number of tokens");
        let zero = k.val(0u64);
        let all = KeptBounds {
            order: zero,
            typical: zero,
            mean: k.val(0.0),
            most: self.most,
        };
        let mut order = k.var(0u64);
        let mut typical = k.var(0u64);
        let mut mean = k.var(0.0);
        let mut most = k.var(self.most);
        let mut number = k.var(0u64);
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
        let kept = KeptBounds {
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

        // Only a whole key identifies the token, because the items are in the order of tokens.
        let key = self
            .selection
            .border(ID_BITS, End::Whole, number.get(), |add| {
                self.items.each(|item| {
                    self.when_drawn(kept, most, item, |mass| add(item.reversed().cvt(), mass));
                });
            });
        key.cvt::<u32>() ^ ((1 << ID_BITS) - 1)
    }

    /// Calls `body` with the mass at the sequence's temperature, if all filters keep the item.
    fn when_drawn(
        &self,
        kept: KeptBounds<'k>,
        most: F32<'k>,
        item: TokenItem<'k>,
        body: impl FnOnce(U64<'k>),
    ) {
        let near = (item.z - most).ge(self.row.params.min_gap);
        self.k
            .when(kept.has(item) & near, || body(self.drawn_mass(item, most)));
    }

    /// Returns a token's mass at the sequence's temperature.
    pub(super) fn drawn_mass(&self, item: TokenItem<'k>, most: F32<'k>) -> U64<'k> {
        weight::on_device(item.z, most, self.row.params.scale)
    }

    /// Calls `body` with the mass at temperature 1, if the item is in the bounds `kept`.
    fn when_kept(&self, kept: KeptBounds<'k>, item: TokenItem<'k>, body: impl FnOnce(U64<'k>)) {
        self.k.when(kept.has(item), || body(self.plain_mass(item)));
    }

    /// Returns a token's mass at temperature 1.
    pub(super) fn plain_mass(&self, item: TokenItem<'k>) -> U64<'k> {
        let one = SampleParams::OFF.scale.map(|scale| self.k.val(scale));
        weight::on_device(item.z, self.most, one)
    }

    /// Makes the chunk at the random share of the mass the items, and returns the rest of the share
    /// inside the chunk.
    ///
    /// Without an order of logits, tokens are drawn in their own order. The masses of chunks that
    /// the kernel before stored then suffice to find the chunk.
    fn find_chunk(&mut self) -> U64<'k> {
        let k = self.k;

        k.section(
            "sample/draw/min_p",
            "only min-p: the chunk at the random share of the mass",
        );
        let found = k.shared::<u32>("chunk", 1);
        let rest = k.shared::<u64>("rest", 2);
        let mass = mass_of_chunk(k, self.a, self.row, self.blocks, 1);
        let end = block::scan(k, block::totals(k), mass);
        k.when(k.tid().eq(THREADS - 1), || rest.at(1).st(end));
        k.barrier();
        let number = weight::times(rest.at(1).ld(), self.word.ld());
        let start = end - mass;

        // The intervals of the chunks are disjoint and cover the number, so one thread matches.
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

    /// Makes all tokens the items if the listed tokens do not reach the share of top-p.
    fn widen(&mut self, listed: U32<'k>) {
        let k = self.k;
        let params = &self.row.params;
        k.when(listed.gt(0) & params.top_k.eq(0), || {
            k.section(
                "sample/draw/list_reaches_top_p",
                "do the listed tokens reach the share of top-p?",
            );
            let mass = self.items.sum(|item, sum| *sum += self.plain_mass(item));
            let enough = mass.gt(weight::border(self.total.ld(), params.top_p));
            k.when(!enough, || {
                self.items.listed.set(0);
                self.items.to.set(self.a.of.vocab);
            });
        });
    }

    /// Returns the bounds after top-k, typical-p and top-p.
    fn filter(&self, all: KeptBounds<'k>) -> KeptBounds<'k> {
        let k = self.k;
        let params = &self.row.params;
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
        let kept = KeptBounds {
            order: order.get(),
            ..all
        };
        let kept = self.typical(kept);
        k.when(params.top_p.gt(0), || {
            k.section("sample/draw/top_p", "top-p");
            let mut mass = k.var(0u64);

            // Without the filters before, the mass of all tokens is known already.
            k.when((params.top_k | params.typical_p).gt(0), || {
                let kept_mass = self
                    .items
                    .sum(|item, sum| self.when_kept(kept, item, |mass| *sum += mass));
                mass.set(kept_mass);
            })
            .otherwise(|| mass.set(self.total.ld()));
            let number = weight::border(mass.get(), params.top_p);
            let border = self.selection.border(KEY_BITS, End::Apart, number, |add| {
                self.items
                    .each(|item| self.when_kept(kept, item, |mass| add(item.order(), mass)));
            });
            order.set(kept.order.max(border));
        });
        KeptBounds {
            order: order.get(),
            ..kept
        }
    }

    /// Returns the bounds after typical-p: a border in the order of the distance between a token's
    /// surprise and the mean surprise (Meister et al. 2022).
    ///
    /// The surprise is measured from the first token's. The constant cancels in the difference.
    fn typical(&self, kept: KeptBounds<'k>) -> KeptBounds<'k> {
        let k = self.k;
        let params = &self.row.params;
        let mut border = k.var(0u64);
        let mut mean = k.var(0.0);
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

            // The largest logit in place of the total's logarithm shifts all surprises by a
            // constant.
            mean.set(surprise.cvt::<f32>() / mass.cvt::<f32>());
            let kept = KeptBounds {
                mean: mean.get(),
                ..kept
            };
            let number = weight::border(mass, params.typical_p);
            let last = self.selection.border(KEY_BITS, End::Apart, number, |add| {
                self.items
                    .each(|item| self.when_kept(kept, item, |mass| add(kept.distance(item), mass)));
            });
            border.set(last);
        });
        KeptBounds {
            typical: border.get(),
            mean: mean.get(),
            ..kept
        }
    }

    /// Returns the largest logit that is kept, because typical-p may drop the first token.
    fn most_of(&self, kept: KeptBounds<'k>) -> F32<'k> {
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

/// Returns a mass of the chunk with this thread's number, or 0 if there is no such chunk.
///
/// `which` is 0 for the mass at temperature 1, and 1 for the mass at the sequence's temperature.
fn mass_of_chunk<'k>(
    k: Builder<'k>,
    a: &SampleTokenArgs<Dev<'k>>,
    row: &SampledRow<'k>,
    blocks: U32<'k>,
    which: u32,
) -> U64<'k> {
    let masses = a.mass.row(row.index, blocks * 16);
    let mut mass = k.var(0u64);
    let own = masses.at(k.tid() + blocks * which).fresh();
    own.ld_if(k.tid().lt(blocks), &mut mass);
    mass.get()
}

/// The number of fraction bits of a gap in [`moment`].
const GAP_BITS: u32 = 20;

/// Returns a mass times the gap between its logit and the largest one.
///
/// `exp(-x) x` is below 1, so a moment has no more bits than a mass.
fn moment<'k>(mass: U64<'k>, gap: F32<'k>) -> U64<'k> {
    // Beyond a gap of 63, no mass is left.
    let gap = (gap * (1 << GAP_BITS) as f32).cvt::<u32>();
    let gap = gap.min(63 << GAP_BITS);
    let [low, high] = weight::halves(mass);
    let of_high = high.mul_wide(gap) << (32 - GAP_BITS);
    let of_low = low.mul_wide(gap) >> GAP_BITS;
    of_high + of_low
}

/// Returns [`moment`] on the CPU.
pub(super) fn moment_on_cpu(mass: u64, gap: f32) -> u64 {
    let gap = ((gap * (1 << GAP_BITS) as f32) as u32).min(63 << GAP_BITS);
    ((u128::from(mass) * u128::from(gap)) >> GAP_BITS) as u64
}
