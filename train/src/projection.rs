//! The seven projections of a layer.

use warpwright_model::adapter::names::PROJECTIONS;

use crate::Config;

/// A projection of a layer. Each can have an adapter.
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

/// A projection of one layer of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LayerProjection {
    pub(crate) layer: usize,
    pub(crate) projection: Projection,
}

impl LayerProjection {
    /// Returns the index of the projection among those of all layers. Dropout draws the random
    /// numbers of each projection from the stream with this number.
    pub(crate) fn dropout_stream(self) -> u32 {
        (Projection::ALL.len() * self.layer) as u32 + self.projection as u32
    }
}

impl Projection {
    /// All projections, in the order of the forward pass.
    pub const ALL: [Projection; 7] = {
        use Projection::*;
        [Q, K, V, O, Gate, Up, Down]
    };

    /// Returns the name in `target_modules` and in tensors, such as `q_proj`.
    pub fn name(self) -> &'static str {
        PROJECTIONS[self as usize]
    }

    /// Returns the number of outputs and of inputs.
    pub fn shape(self, config: &Config) -> [usize; 2] {
        let hidden = config.hidden;
        let feed_forward = config.feed_forward;
        let [queries, keys] = [config.heads, config.kv_heads].map(|heads| heads * config.head_dim);
        match self {
            Projection::Q => [queries, hidden],
            Projection::K | Projection::V => [keys, hidden],
            Projection::O => [hidden, queries],
            Projection::Gate | Projection::Up => [feed_forward, hidden],
            Projection::Down => [hidden, feed_forward],
        }
    }
    /// Returns this projection of a layer.
    pub(crate) fn of_layer(self, layer: usize) -> LayerProjection {
        LayerProjection {
            layer,
            projection: self,
        }
    }
}
