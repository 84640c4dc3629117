//! The products of the pipeline: its kernels that multiply by weights.

/// A product of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// Queries, keys and values.
    Qkv,
    /// The output projection of attention.
    O,
    /// Gate and up, the first half of the feed-forward block.
    GateUp,
    /// Down, its second half.
    Down,
    /// The LM head.
    Head,
}

impl Product {
    /// Those of each layer.
    pub const OF_LAYER: [Product; 4] = [Product::Qkv, Product::O, Product::GateUp, Product::Down];

    /// The name in a [`Tuning`](crate::Tuning).
    pub fn name(self) -> &'static str {
        match self {
            Product::Qkv => "qkv",
            Product::O => "o",
            Product::GateUp => "gate_up",
            Product::Down => "down",
            Product::Head => "head",
        }
    }
}
