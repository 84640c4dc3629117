//! The rotations of models with two kinds of layers, from the numbers of a file.

use crate::architecture::family::LocalRope;
use crate::config::hyperparameters::Local;
use crate::config::rope::Rope;

/// The layers of a model in which each `period`-th layer differs from the others.
pub(crate) struct LayerPeriod {
    /// The distance between the layers that differ.
    pub(crate) period: u32,
    /// The rotary embedding that the file has for all layers.
    pub(crate) rope: Rope,
    /// The base of the layers with a window, if the file has one.
    pub(crate) base: Option<f64>,
}

impl LayerPeriod {
    /// Returns the rotary embedding of each `period`-th layer, and that of the layers between.
    pub(crate) fn with_rope(self, local: LocalRope) -> (Rope, Local) {
        let rope = self.rope;
        let [full, between] = match local {
            LocalRope::Base(base) => [rope, Rope::plain(rope.dim, self.base.unwrap_or(base))],
            LocalRope::Unscaled => [rope, Rope::plain(rope.dim, self.base.unwrap_or(rope.base))],
            LocalRope::Same => [rope, rope],
            LocalRope::Only => [rope.still(), rope],
        };
        let local = Local {
            period: self.period,
            rope: between,
        };
        (full, local)
    }
}
