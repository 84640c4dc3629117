//! The sizes of a step, in the types that kernels take.
//!
//! Sizes are `usize` in settings and on the host, and `u32` in the arguments of kernels. They are
//! converted here only, where their range is checked.

use crate::{Config, Error, Projection};

/// The sizes of a model and its micro-batches, as `u32`.
///
/// [`new`](TrainingSizes::new) checks that each tensor has at most 2^31 elements, because kernels compute
/// indices in 32 bits.
#[derive(Clone, Copy)]
pub(super) struct TrainingSizes {
    pub(super) tokens: u32,
    pub(super) vocab: u32,
    pub(super) hidden: u32,
    pub(super) feed_forward: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) rank: u32,
}

/// The largest size that is accepted. It is far above the sizes of real models.
const MOST: usize = 1 << 24;

impl TrainingSizes {
    /// Converts the sizes and checks their range.
    pub(super) fn new(config: &Config, rank: usize, tokens: usize) -> Result<TrainingSizes, Error> {
        let size = |what, size: usize, wanted| {
            let right = size > 0 && size <= MOST;
            Error::unless(right, what, size, wanted).map(|()| size as u32)
        };
        let of = |what, found| size(what, found, "from 1 to 2^24");
        let sizes = TrainingSizes {
            tokens: of("the number of tokens of a micro-batch", tokens)?,
            vocab: of("vocab", config.vocab)?,
            hidden: of("hidden", config.hidden)?,
            feed_forward: of("feed_forward", config.feed_forward)?,
            heads: of("heads", config.heads)?,
            kv_heads: of("kv_heads", config.kv_heads)?,
            head_dim: of("head_dim", config.head_dim)?,
            rank: of("rank", rank)?,
        };
        sizes.check_products().map(|()| sizes)
    }

    /// Checks that no tensor has more than 2^31 elements.
    fn check_products(&self) -> Result<(), Error> {
        // The product of two sizes can exceed 32 bits.
        let wide = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let queries = wide(self.heads.max(self.kv_heads), self.head_dim);
        Error::unless(
            queries <= MOST as u64,
            "heads * head_dim",
            queries,
            "at most 2^24",
        )?;
        let longest = self
            .vocab
            .max(self.hidden)
            .max(self.feed_forward)
            .max(queries as u32);
        let products = [
            (
                "the tokens of a micro-batch times the longest row",
                wide(self.tokens, longest),
            ),
            ("the longest row times hidden", wide(longest, self.hidden)),
            ("the longest row times the rank", wide(longest, self.rank)),
        ];
        for (what, n) in products {
            Error::unless(n <= 1 << 31, what, n, "at most 2^31")?;
        }

        Ok(())
    }

    /// Returns the number of elements of a tensor that has a row of `len` elements for each token.
    pub(super) fn rows(&self, len: u32) -> usize {
        self.tokens as usize * len as usize
    }

    /// Returns the number of elements in a token's queries.
    pub(super) fn queries(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Returns the number of elements in a token's keys.
    pub(super) fn keys(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Returns the shape of a projection.
    pub(super) fn projection(&self, p: Projection) -> ProjectionShape {
        let (n, k) = match p {
            Projection::Q => (self.queries(), self.hidden),
            Projection::K | Projection::V => (self.keys(), self.hidden),
            Projection::O => (self.hidden, self.queries()),
            Projection::Gate | Projection::Up => (self.feed_forward, self.hidden),
            Projection::Down => (self.hidden, self.feed_forward),
        };
        ProjectionShape { n, k }
    }
}

/// The shape of a projection's matrix.
#[derive(Clone, Copy)]
pub(super) struct ProjectionShape {
    /// The number of outputs, which are the rows of the matrix.
    pub(super) n: u32,
    /// The number of inputs, which are the columns of the matrix.
    pub(super) k: u32,
}

impl ProjectionShape {
    /// Returns the number of weights.
    pub(super) fn weights(self) -> usize {
        self.n as usize * self.k as usize
    }
}
