//! The unpacked weights in `f64`.

use crate::weights::{LayerWeights, NamedShape, Weights};
use crate::{Config, Error};

impl Weights {
    /// Returns an error if a tensor does not have the shape that the configuration requires.
    pub(super) fn check(&self, config: &Config) -> Result<(), Error> {
        let check = |named: NamedShape, tensor: &Vec<f64>| named.check(tensor.len());
        self.try_map(config, &mut { check }, &mut { check })
            .map(drop)
    }

    /// Returns every tensor.
    pub(super) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        let layers = self.layers.iter_mut().flat_map(LayerWeights::tensors_mut);
        [&mut self.embed, &mut self.norm]
            .into_iter()
            .chain(&mut self.head)
            .chain(layers)
    }
}

impl LayerWeights {
    fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        let norms = [&mut self.attention_norm, &mut self.feed_forward_norm].into_iter();
        let of_heads = self.q_norm.iter_mut().chain(&mut self.k_norm);
        norms
            .chain(of_heads)
            .chain(&mut self.projections)
            .chain(self.biases.iter_mut().flatten())
    }
}
