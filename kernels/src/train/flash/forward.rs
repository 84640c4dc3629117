//! The forward pass: `o` and `lse`.

use super::block::{FlashBlock, Sizes, TensorHead, TensorOp, WARPS};
use super::common::{check, check_buffers, check_op, heads, log2_scale};
use super::fragments::{self, Tile};
use super::softmax::{self, Softmax};
use super::steps::{self, KeyStep, Keys};
use crate::shared::{Contract, check_lengths};
use crate::train::attention::{causal, forward};
use crate::train::buffers::narrow;
use crate::train::half::buffers::wide;
use ptx_gen::*;

args! {
    /// Arguments of [`FlashForward`].
    pub struct FlashForwardArgs {
        /// `[tokens, heads, head_dim]`: the rotated queries
        q: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`: the rotated keys
        k: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`: the values
        v: In<bf16>,
        /// `[tokens]`: the index of the first token of each token's document, at most the token's.
        /// It must not decrease.
        starts: In<u32>,
        /// `[tokens, heads, head_dim]`: the outputs
        o: Out<bf16>,
        /// `[tokens, heads]`: the natural logarithm of the sum of the exponentials of the scores
        lse: Out<f32>,
        /// The number of tokens of all documents.
        tokens: u32,
        /// The number of query heads.
        heads: u32,
        /// The number of key-value heads, a divisor of `heads`.
        kv_heads: u32,
    }
}

/// Kernel of the forward pass. Its reference is [`forward`].
///
/// A block has 64 or 128 queries of a head and takes 64 keys per step. The blocks with the last
/// tokens start first: they see the most keys, and the short ones fill the end of the launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashForward {
    /// The number of dimensions of a head: a multiple of 16, at most 128.
    pub head_dim: u32,
    /// The number of queries of a block: 64 or 128.
    ///
    /// 128 queries share the keys that are read, but make fewer blocks. They need heads of at most
    /// 64 dimensions, because the registers do not hold 128 longer sums.
    pub queries: u32,
    /// The instruction of the matmuls. `wgmma` needs 64 queries per block.
    pub op: TensorOp,
}

impl FlashForward {
    /// Returns the kernel with 64 queries per block.
    pub const fn new(head_dim: u32) -> FlashForward {
        FlashForward {
            head_dim,
            queries: 64,
            op: TensorOp::Mma,
        }
    }

    /// Returns the kernel with this instruction.
    pub const fn with_op(self, op: TensorOp) -> FlashForward {
        FlashForward { op, ..self }
    }

    /// Returns the kernel with this number of queries per block.
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
        let &FlashForwardArgs { tokens, .. } = a;
        check(self, self.head_dim, [tokens, a.heads, a.kv_heads])?;
        check_queries(self, self.queries)?;
        check_op(self, self.op, self.head_dim)?;
        self.require(self.op == TensorOp::Mma || self.queries == 64, || {
            format!(
                "the kernel's queries is {}, must be 64 for `wgmma`",
                self.queries
            )
        })?;
        self.require(self.queries == 64 || self.head_dim <= 64, || {
            format!(
                "the kernel's queries is 128, must be 64 for a head_dim of {}",
                self.head_dim
            )
        })?;
        let sizes = [tokens, a.heads, a.kv_heads, self.head_dim];
        check_buffers(
            self,
            sizes,
            &[("q", a.q), ("o", a.o)],
            &[("k", a.k), ("v", a.v)],
            &[("lse", a.lse)],
        )?;
        check_lengths! { self, a:
            starts == tokens,
        }
        let plane = Grid::plane(a.heads, tokens.div_ceil(self.queries));
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
        let block = FlashBlock::new(
            k,
            self.sizes(),
            first_query(k, a.tokens, self.queries),
            a.tokens,
        );
        let head = k.ctaid();
        let kv_head = head / (a.heads / a.kv_heads);
        block.copy_owned(
            0,
            TensorHead {
                tensor: a.q,
                heads: a.heads,
                head,
            },
        );
        let kv = [a.k, a.v].map(|tensor| TensorHead {
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
                // Rows past the last token repeat it and must not be stored.
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
        for (to, &x) in a.o.iter_mut().zip(&o) {
            *to = bf16::from_f32(x as f32);
        }
        narrow(&lse, a.lse);
    }
}

impl FlashForward {
    /// Adds the weighted values of a step of keys, with `mma`.
    fn step<'k>(
        &self,
        block: &FlashBlock<'k>,
        keys: &Keys<'_, 'k>,
        step: KeyStep<'k>,
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

        // The weights become left operands in registers, without a trip through shared memory.
        let weights = softmax::weigh(k, softmax, &scores, log2_scale(self.head_dim), sums);

        k.section("train/flash/values", "flash: add the weighted values");
        fragments::add(sums, &weights, &block.right(step.odd, 1));
    }

    /// Adds the weighted values of a step of keys, with `wgmma`.
    fn step_together<'k>(
        &self,
        block: &FlashBlock<'k>,
        keys: &Keys<'_, 'k>,
        step: KeyStep<'k>,
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

        // A warpgroup has one tile of 16 rows per warp, so `sums` and `softmax` have one element.
        keys.mask(&mut scores, step);
        let weights = softmax::weigh(k, softmax, &scores, log2_scale(self.head_dim), sums);

        k.section("train/flash/values_wgmma", "flash: add the weighted values");
        let mut values = fragments::to_warpgroup(sums.remove(0));
        for weights in weights {
            fragments::add_together(k, &mut values, weights, value_rows);
        }

        k.wgmma_wait(0);
        sums.push(fragments::of_warpgroup(values));
    }
}

/// Stores the sums of row `g + 8 r` times `factor`: two neighboring columns of each eight, the
/// first two at `to`.
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

/// Returns the first query of the block, with the last tokens in the first blocks.
pub(super) fn first_query<'k>(k: Builder<'k>, tokens: U32<'k>, queries: u32) -> U32<'k> {
    ((tokens + (queries - 1)) / queries - 1 - k.ctaid_y()) * queries
}
