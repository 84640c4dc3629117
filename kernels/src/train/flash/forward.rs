//! The forward: `o` and `lse`.

use super::block::{Block, Head, Sizes, TensorOp, WARPS};
use super::fragments::{self, Tile};
use super::softmax::{self, Softmax};
use super::steps::{self, Keys, Step};
use super::{check, check_lengths, check_op, heads, log2_scale, wide};
use crate::contract::Contract;
use crate::train::attention::{causal, forward};
use crate::train::narrow;
use ptx_gen::*;

args! {
    /// Arguments of [`FlashForward`].
    pub struct FlashForwardArgs {
        /// `[tokens, heads, head_dim]`, rotated
        q: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`, rotated
        k: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`
        v: In<bf16>,
        /// `[tokens]`: the first token of each token's document; it never decreases, and is at most the token's own number
        starts: In<u32>,
        /// `[tokens, heads, head_dim]`
        o: Out<bf16>,
        /// `[tokens, heads]`, natural
        lse: Out<f32>,
        /// Tokens of all documents.
        tokens: u32,
        /// Query heads.
        heads: u32,
        /// Heads of keys and values; a divisor of `heads`.
        kv_heads: u32,
    }
}

/// The kernel; the function is [`forward`]. A block takes 64 or 128 queries of a head, and 64 keys a step. Blocks come in
/// the order of their tokens from the last on, because the later ones of a document see more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashForward {
    /// Dimensions of a head: a multiple of 16, at most 128.
    pub head_dim: u32,
    /// Queries of a block: 64; or 128, which share what is read and make fewer blocks, if heads have at most 64 dimensions.
    /// Of longer heads, registers do not hold the sums of 128.
    pub queries: u32,
    /// How tensor cores multiply; `wgmma` with 64 queries a block.
    pub op: TensorOp,
}

impl FlashForward {
    /// With 64 queries a block.
    pub const fn new(head_dim: u32) -> FlashForward {
        FlashForward {
            head_dim,
            queries: 64,
            op: TensorOp::Mma,
        }
    }

    /// The same by this instruction.
    pub const fn with_op(self, op: TensorOp) -> FlashForward {
        FlashForward { op, ..self }
    }

    /// The same with other queries a block.
    pub const fn with_queries(self, queries: u32) -> FlashForward {
        FlashForward { queries, ..self }
    }

    const fn sizes(&self) -> Sizes {
        let FlashForward {
            head_dim,
            queries,
            op,
        } = *self;
        Sizes {
            head_dim,
            tensors: 1,
            owned: queries,
            step: 64,
            panels: op.panels(),
        }
    }
}

impl KernelDef for FlashForward {
    type Args<S: Side> = FlashForwardArgs<S>;

    fn name(&self) -> String {
        format!(
            "train_flash_{}_{}{}",
            self.head_dim,
            self.queries,
            self.op.suffix()
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(2)
    }

    fn grid(&self, a: &FlashForwardArgs<Shape>) -> Result<Grid, ShapeError> {
        check(self, self.head_dim, [a.tokens, a.heads, a.kv_heads])?;
        check_queries(self, self.queries)?;
        check_op(self, self.op, self.head_dim)?;
        self.require(self.op == TensorOp::Mma || self.queries == 64, || {
            format!(
                "the kernel's queries is {}, must be 64 for products of a warpgroup",
                self.queries
            )
        })?;
        self.require(self.queries == 64 || self.head_dim <= 64, || {
            format!(
                "the kernel's queries is 128, must be 64 for a head_dim of {}",
                self.head_dim
            )
        })?;
        let sizes = [a.tokens, a.heads, a.kv_heads, self.head_dim];
        check_lengths(
            self,
            sizes,
            &[("q", a.q), ("o", a.o)],
            &[("k", a.k), ("v", a.v)],
            &[("lse", a.lse)],
        )?;
        self.length("starts", a.starts, "tokens", &[a.tokens])?;
        let plane = Grid::plane(a.heads, a.tokens.div_ceil(self.queries));
        Ok(Grid {
            shared: self.sizes().shared() + steps::bytes(self.sizes()),
            ..plane
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: FlashForwardArgs<Dev<'k>>) {
        k.section(
            "train/flash/queries",
            "flash: the queries of the block, the last tokens first",
        );
        let block = Block::new(
            k,
            self.sizes(),
            first_query(k, a.tokens, self.queries),
            a.tokens,
        );
        let head = k.ctaid();
        let kv_head = head / (a.heads / a.kv_heads);
        block.copy_owned(
            0,
            Head {
                tensor: a.q,
                heads: a.heads,
                head,
            },
        );
        let kv = [a.k, a.v].map(|tensor| Head {
            tensor,
            heads: a.kv_heads,
            head: kv_head,
        });
        let keys = Keys::new(&block, kv, a.starts);
        let mut sums = fragments::zeros(k, self.sizes().tiles(), self.head_dim);
        let mut softmax: Vec<_> = sums.iter().map(|_| Softmax::new(k)).collect();
        keys.each_step(|step| match self.op {
            TensorOp::Mma => self.step(&block, &keys, step, &mut softmax, &mut sums),
            TensorOp::Wgmma => self.step_together(&block, &keys, step, &mut softmax, &mut sums),
        });
        k.section("train/flash/store_output", "flash: store o and lse");
        for ((sums, softmax), tokens) in sums.iter().zip(&softmax).zip(block.lane_tokens()) {
            for (r, token) in tokens.into_iter().enumerate() {
                let (factor, lse) = softmax.end(r);
                k.when(token.le(block.last), || {
                    let o = a.o.row(token * a.heads + head, 2 * self.head_dim);
                    store(sums, r, factor, o.cast().at(k.lane() & 3));
                    k.when((k.lane() & 3).eq(0), || {
                        a.lse.at(token * a.heads + head).st(lse)
                    });
                });
            }
        }
    }

    fn reference(&self, a: FlashForwardArgs<Cpu<'_>>) {
        let visible = causal(a.starts);
        let at = heads(self.head_dim, a.heads, a.kv_heads, &visible);
        let (o, lse) = forward(&at, &wide(a.q), &wide(a.k), &wide(a.v));
        a.o.iter_mut()
            .zip(&o)
            .for_each(|(to, &x)| *to = bf16::from_f32(x as f32));
        narrow(&lse, a.lse);
    }
}

impl FlashForward {
    fn step<'k>(
        &self,
        block: &Block<'k>,
        keys: &Keys<'_, 'k>,
        step: Step<'k>,
        softmax: &mut [Softmax<'k>],
        sums: &mut [Tile<'k>],
    ) {
        let k = block.k;
        k.section("train/flash/scores", "flash: scores, queries times keys");
        let mut scores = fragments::zeros(k, sums.len(), self.sizes().step);
        fragments::add_transposed(
            &mut scores,
            &block.left(0),
            &block.columns(step.odd)[0],
            self.head_dim,
        );
        keys.mask(&mut scores, step);
        let weights = softmax::weigh(k, softmax, &scores, log2_scale(self.head_dim), sums);
        k.section("train/flash/values", "flash: add the weighted values");
        fragments::add(sums, &weights, &block.right(step.odd, 1));
    }

    /// The same by the warpgroup.
    fn step_together<'k>(
        &self,
        block: &Block<'k>,
        keys: &Keys<'_, 'k>,
        step: Step<'k>,
        softmax: &mut [Softmax<'k>],
        sums: &mut Vec<Tile<'k>>,
    ) {
        let k = block.k;
        let [[key_columns, _], [_, value_rows]] = block.step_tiles(step.odd);
        let mut scores = Accumulators::zero(k, self.sizes().step);
        k.section(
            "train/flash/scores_wgmma",
            "flash: scores, queries times keys, by the warpgroup",
        );
        k.wgmma_fence();
        scores.multiply_tiles(block.owned_tile(0), key_columns, k.always());
        k.wgmma_commit();
        k.wgmma_wait(0);
        let mut scores = vec![fragments::of_warpgroup(scores)];
        keys.mask(&mut scores, step);
        let weights = softmax::weigh(k, softmax, &scores, log2_scale(self.head_dim), sums);
        k.section("train/flash/values_wgmma", "flash: add the weighted values");
        let mut values = fragments::to_warpgroup(sums.remove(0));
        weights
            .into_iter()
            .for_each(|weights| fragments::add_together(k, &mut values, weights, value_rows));
        k.wgmma_wait(0);
        sums.push(fragments::of_warpgroup(values));
    }
}

/// Stores two neighbouring columns of each eight of row `g + 8 r`, times `factor`, the first two at `to`.
fn store<'k>(sums: &Tile<'k>, r: usize, factor: F32<'k>, to: Ptr<'k, u32, WriteOnly>) {
    for (sums, eight) in sums.iter().zip(0..) {
        let [low, high] = [0, 1].map(|i| sums.0[2 * r + i].get() * factor);
        to.at(4 * eight).st(low.pack_bf16(high));
    }
}

/// Checks the number of queries of a block.
pub(super) fn check_queries<K: Contract>(kernel: &K, queries: u32) -> Result<(), ShapeError> {
    kernel.require([64, 128].contains(&queries), || {
        format!("the kernel's queries is {queries}, must be 64 or 128")
    })
}

/// The first query of the block, the last tokens first.
pub(super) fn first_query<'k>(k: Builder<'k>, tokens: U32<'k>, queries: u32) -> U32<'k> {
    ((tokens + (queries - 1)) / queries - 1 - k.ctaid_y()) * queries
}
