//! The seven projections of a layer.

use warpwright_engine::adapter::names::PROJECTIONS;

use crate::Config;

/// A projection; each may have an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // Named as in Llama.
pub enum Projection {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
}

impl Projection {
    /// All, in the order of a layer's forward.
    pub const ALL: [Projection; 7] = {
        use Projection::*;
        [Q, K, V, O, Gate, Up, Down]
    };

    /// The name in `target_modules` and in tensors: `q_proj`.
    pub fn name(self) -> &'static str {
        PROJECTIONS[self as usize]
    }

    /// Outputs and inputs.
    pub fn shape(self, config: &Config) -> [usize; 2] {
        let (hidden, feed_forward) = (config.hidden, config.feed_forward);
        let [queries, keys] = [config.heads, config.kv_heads].map(|heads| heads * config.head_dim);
        match self {
            Projection::Q => [queries, hidden],
            Projection::K | Projection::V => [keys, hidden],
            Projection::O => [hidden, queries],
            Projection::Gate | Projection::Up => [feed_forward, hidden],
            Projection::Down => [hidden, feed_forward],
        }
    }
}
