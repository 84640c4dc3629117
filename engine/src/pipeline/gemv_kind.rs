//! The kinds of GEMV in the pipeline: its kernels that multiply a weight matrix by a vector.

/// A GEMV of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GemvKind {
    /// The projections of queries, keys and values.
    Qkv,
    /// The output projection of attention.
    O,
    /// The gate and up projections, the first half of the feed-forward block.
    GateUp,
    /// The down projection, the second half of the feed-forward block.
    Down,
    /// The LM head.
    Head,
}

impl GemvKind {
    /// The GEMVs of each layer, in the order of their launches.
    pub const OF_LAYER: [GemvKind; 4] =
        [GemvKind::Qkv, GemvKind::O, GemvKind::GateUp, GemvKind::Down];

    /// Returns the name that a [`Tuning`](crate::Tuning) uses.
    pub fn name(self) -> &'static str {
        match self {
            GemvKind::Qkv => "qkv",
            GemvKind::O => "o",
            GemvKind::GateUp => "gate_up",
            GemvKind::Down => "down",
            GemvKind::Head => "head",
        }
    }
}
