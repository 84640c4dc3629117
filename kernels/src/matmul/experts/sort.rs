//! The order of the tokens by expert: a stable counting sort of the chosen experts.
//!
//! The rows of each expert begin at a multiple of the matmul's token width, so that a group of
//! `width` rows has a single expert. Rows that fill the last group of an expert are padding.
//!
//! Each block computes the rows of one expert. It counts the choices of every expert to find the
//! first row of this expert. It then numbers the choices of this expert in the order of tokens and
//! slots. Blocks do not communicate, so no result depends on their order.

use crate::harness::{Case, Variant};
use crate::matmul::expert_table::{EXPERT_BITS, entry};
use crate::pipeline::gemv::choose_experts::MAX_EXPERTS;
use crate::shared::{Contract, Overlap, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`SortTokens`].
    pub struct SortTokensArgs {
        /// `[tokens, chosen]`: the experts of each token. No token has an expert twice
        expert: In<u32>,
        /// `[tokens, chosen]`: the sorted row of each token and slot
        place: Out<u32>,
        /// `[capacity]`: the token of each sorted row, or `u32::MAX` for padding
        source: Out<u32>,
        /// `[capacity / width]`: the expert of each group of `width` sorted rows in the low 16 bits,
        /// and the number of its rows that are not padding in the high ones. `u32::MAX` for groups
        /// without rows
        group_expert: Out<u32>,
        /// `[1]`: the number of sorted rows including padding, a multiple of `width`. Groups from
        /// there on have no rows
        used: Out<u32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of experts of a token.
        chosen: u32,
        /// The number of experts, at most 512.
        count: u32,
        /// The number of rows of a group, a multiple of 8: the tokens of a job of the matmul.
        width: u32,
        /// The capacity of the sorted buffers in rows, a multiple of `width` and at least
        /// [`SortTokens::capacity`].
        capacity: u32,
    }
}

/// Kernel that sorts tokens by expert, with one block per expert.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SortTokens {
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The number of warps of a block.
const WARPS: u32 = 16;
/// The number of threads of a block.
const THREADS: u32 = 32 * WARPS;
/// The token of a padding row, and the expert of a group without rows.
pub(crate) const NONE: u32 = u32::MAX;

impl SortTokens {
    /// Returns the capacity that the sorted rows of `tokens` tokens need in the worst case, a
    /// multiple of `width`.
    ///
    /// # Panics
    /// Panics if the capacity exceeds 32 bits.
    pub const fn capacity(tokens: u32, chosen: u32, count: u32, width: u32) -> u32 {
        // No more experts than choices have rows.
        let choices = tokens * chosen;
        let experts = if choices < count { choices } else { count };
        (choices + experts * (width - 1)).next_multiple_of(width)
    }
}

impl KernelDef for SortTokens {
    type Args<S: Side> = SortTokensArgs<S>;

    fn name(&self) -> String {
        format!("sort_tokens{}", self.overlap.suffix())
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &SortTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SortTokensArgs {
            tokens,
            chosen,
            count,
            width,
            capacity,
            ..
        } = a;
        self.range("count", count, 1, MAX_EXPERTS)?;
        self.range("chosen", chosen, 1, count)?;
        self.range("tokens", tokens, 1, (1 << 24) / chosen)?;
        self.multiple("width", width, 8)?;
        self.range("width", width, 8, 256)?;
        self.multiple("capacity", capacity, width)?;
        let least = SortTokens::capacity(tokens, chosen, count, width);
        self.range("capacity", capacity, least, 1 << 28)?;
        let groups = capacity / width;
        check_lengths! { self, a:
            expert == tokens * chosen,
            place == tokens * chosen,
            source == capacity,
            group_expert == groups,
            used == 1,
        }
        Ok(Grid::line(count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SortTokensArgs<Dev<'k>>) {
        let counts = k.shared::<u32>("counts", MAX_EXPERTS);
        let warp_counts = k.shared::<u32>("warp_counts", WARPS);
        k.for_each(k.tid(), a.count, THREADS, |expert| {
            counts.at(expert).st(0u32)
        });
        k.barrier();
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }

        let own = k.ctaid();
        let choices = Choices::new(k, &a);

        k.section(
            "matmul/experts/sort_count",
            "count the choices of every expert, and the own ones of each warp",
        );
        let mut found = k.var(0u32);
        choices.each(|_, expert, exists| {
            k.when(exists, || counts.at(expert).red_add(1u32));
            found += (exists & expert.eq(own)).ballot().popc();
        });
        k.when(k.lane().eq(0), || warp_counts.at(k.warp()).st(&found));
        k.barrier();

        k.section(
            "matmul/experts/sort_base",
            "the first row of the expert, and of the warp's choices",
        );
        let padded = |count: U32<'k>| (count + (a.width - 1)) / a.width * a.width;
        let mut sum = k.var(0u32);
        k.for_each(k.lane(), own, 32, |expert| {
            sum += padded(counts.at(expert).ld());
        });
        let base = sum.get().redux_add();
        let mut before = k.var(0u32);
        warp_counts
            .at(k.lane())
            .ld_if(k.lane().lt(k.warp()), &mut before);
        let first = base + before.get().redux_add();
        let rows = counts.at(own).ld();
        let end = base + padded(rows);

        k.section(
            "matmul/experts/sort_place",
            "number the choices of the expert in their order",
        );
        let mut next = k.var(first);
        let lower = (k.val(1u32) << k.lane()) - 1;
        choices.each(|choice, expert, exists| {
            let own = exists & expert.eq(own);
            let mask = own.ballot();
            let row = next.get() + (mask & lower).popc();
            k.when(own, || {
                a.place.at(choice).st(row);
                a.source.at(row).st(choice / a.chosen);
            });
            next += mask.popc();
        });

        k.section(
            "matmul/experts/sort_padding",
            "padding rows, and the groups of the expert",
        );
        k.for_each(base + rows + k.tid(), end, THREADS, |row| {
            a.source.at(row).st(NONE)
        });
        k.for_each(base / a.width + k.tid(), end / a.width, THREADS, |group| {
            let left = base + rows - group * a.width;
            a.group_expert
                .at(group)
                .st((left.min(a.width) << EXPERT_BITS) | own)
        });

        k.section(
            "matmul/experts/sort_unused",
            "the last expert's block also fills the rest",
        );
        k.when(own.eq(a.count - 1), || {
            k.when(k.tid().eq(0), || a.used.st(end));
            k.for_each(end + k.tid(), a.capacity, THREADS, |row| {
                a.source.at(row).st(NONE)
            });
            let groups = a.capacity / a.width;
            k.for_each(end / a.width + k.tid(), groups, THREADS, |group| {
                a.group_expert.at(group).st(NONE)
            });
        });
        self.overlap.end(k);
    }

    fn reference(&self, a: SortTokensArgs<Cpu<'_>>) {
        let width = a.width as usize;
        a.source.fill(NONE);
        a.group_expert.fill(NONE);
        let mut row = 0;
        for expert in 0..a.count {
            let choices = a.expert.iter().enumerate();
            for (choice, _) in choices.filter(|&(_, &chosen)| chosen == expert) {
                a.place[choice] = row as u32;
                a.source[row] = choice as u32 / a.chosen;
                a.group_expert[row / width] = entry(expert, (row % width) as u32 + 1);
                row += 1;
            }
            row = row.next_multiple_of(width);
        }
        a.used[0] = row as u32;
    }
}

/// The choices of all tokens, divided among the warps in their order.
struct Choices<'k> {
    k: Builder<'k>,
    expert: Ptr<'k, u32, Fresh>,
    /// The number of choices.
    all: U32<'k>,
    /// The number of experts.
    count: U32<'k>,
    /// The number of choices of a warp, a multiple of 32.
    per_warp: U32<'k>,
}

impl<'k> Choices<'k> {
    fn new(k: Builder<'k>, a: &SortTokensArgs<Dev<'k>>) -> Self {
        let all = a.tokens * a.chosen;
        Choices {
            k,
            expert: a.expert.fresh(),
            all,
            count: a.count,
            per_warp: (all + (THREADS - 1)) / THREADS * 32,
        }
    }

    /// Calls `body` with each choice of the warp, one per lane, its expert, and a predicate that is
    /// false past the last choice.
    fn each(&self, body: impl FnOnce(U32<'k>, U32<'k>, Pred<'k>)) {
        let k = self.k;
        let first = k.warp() * self.per_warp;
        k.for_each(first, first + self.per_warp, 32, |from| {
            let choice = from + k.lane();
            let exists = choice.lt(self.all);
            let mut expert = k.var(0u32);
            self.expert.at(choice).ld_if(exists, &mut expert);

            // The bound keeps every index inside of the shared counts.
            body(choice, expert.get().min(self.count - 1), exists);
        });
    }
}

impl Variant for SortTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // More choices than threads. Few tokens and many experts. One expert. All tokens with the
        // same experts, which fill whole groups. The last case has the largest capacity.
        let case = |tokens: u32, chosen: u32, count: u32, width: u32, spread: bool| {
            let mut random = Random(seed);
            let mut expert = vec![];
            for _ in 0..tokens {
                let mut order: Vec<u32> = (0..count).collect();
                for slot in 0..chosen {
                    let other = if spread {
                        slot + random.below(count - slot)
                    } else {
                        slot
                    };
                    order.swap(slot as usize, other as usize);
                }
                expert.extend(&order[..chosen as usize]);
            }
            let slots = expert.len();
            let least = SortTokens::capacity(tokens, chosen, count, width);
            let capacity = least + if spread { width } else { 0 };
            let mut args = vec![
                CpuArg::U32(expert),
                CpuArg::U32(vec![0; slots]),
                CpuArg::U32(vec![0; capacity as usize]),
                CpuArg::U32(vec![0; (capacity / width) as usize]),
                CpuArg::U32(vec![0]),
            ];
            args.extend([tokens, chosen, count, width, capacity].map(CpuArg::scalar));
            Case {
                label: format!("tokens={tokens} chosen={chosen} count={count} width={width}"),
                args,
                bound: 0.0,
            }
        };
        vec![
            case(181, 3, 5, 16, true),
            case(3, 2, 40, 8, true),
            case(9, 1, 1, 8, false),
            case(32, 2, 4, 16, false),
        ]
    }
}
