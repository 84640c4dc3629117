//! The frozen weights of a model.

use crate::{Config, Error, Projection};

/// All weights, unpacked.
#[derive(Clone, Debug)]
pub struct Weights {
    /// `[vocab, hidden]`
    pub embed: Vec<f64>,
    /// `[vocab, hidden]`; a model without one uses `embed` (tied embeddings).
    pub head: Option<Vec<f64>>,
    /// `[hidden]`: gains of the last norm.
    pub norm: Vec<f64>,
    /// The layers.
    pub layers: Vec<LayerWeights>,
}

/// The weights of a layer.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// `[hidden]`: gains of the norm before attention.
    pub attention_norm: Vec<f64>,
    /// `[hidden]`: gains of the norm before the feed-forward block.
    pub feed_forward_norm: Vec<f64>,
    /// `[head_dim]`: gains of the queries' head norm.
    pub q_norm: Option<Vec<f64>>,
    /// `[head_dim]`: gains of the keys' head norm.
    pub k_norm: Option<Vec<f64>>,
    /// `[n, k]` each, in the order of [`Projection::ALL`]
    pub projections: [Vec<f64>; 7],
    /// `[n]` each, in the order of [`Projection::ALL`]
    pub biases: [Option<Vec<f64>>; 7],
}

impl Weights {
    /// The head's matrix.
    pub fn head(&self) -> &[f64] {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    pub(super) fn check(&self, config: &Config) -> Result<(), Error> {
        let table = [config.vocab, config.hidden];
        length("the embedding".into(), &self.embed, table)?;
        length("the head".into(), self.head(), table)?;
        length("the last norm".into(), &self.norm, [1, config.hidden])?;
        if self.layers.len() != config.layers {
            return Err(Error::Layers { found: self.layers.len(), wanted: config.layers });
        }
        self.layers.iter().enumerate().try_for_each(|(l, layer)| layer.check(l, config))
    }

    /// Every tensor.
    pub(super) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        let layers = self.layers.iter_mut().flat_map(LayerWeights::tensors_mut);
        [&mut self.embed, &mut self.norm].into_iter().chain(&mut self.head).chain(layers)
    }
}

impl LayerWeights {
    fn check(&self, l: usize, config: &Config) -> Result<(), Error> {
        let norms = [
            ("attention norm", Some(&self.attention_norm), config.hidden),
            ("feed-forward norm", Some(&self.feed_forward_norm), config.hidden),
            ("q norm", self.q_norm.as_ref(), config.head_dim),
            ("k norm", self.k_norm.as_ref(), config.head_dim),
        ];
        for (name, norm, len) in norms {
            norm.map_or(Ok(()), |norm| length(format!("{name} of layer {l}"), norm, [1, len]))?;
        }
        for p in Projection::ALL {
            let [n, k] = p.shape(config);
            length(format!("{} of layer {l}", p.name()), &self.projections[p as usize], [n, k])?;
            let bias = |bias: &Vec<f64>| length(format!("bias of {} of layer {l}", p.name()), bias, [1, n]);
            self.biases[p as usize].as_ref().map_or(Ok(()), bias)?;
        }
        Ok(())
    }

    fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        let norms = [&mut self.attention_norm, &mut self.feed_forward_norm].into_iter();
        let head_norms = self.q_norm.iter_mut().chain(&mut self.k_norm);
        norms.chain(head_norms).chain(&mut self.projections).chain(self.biases.iter_mut().flatten())
    }
}

pub(super) fn length(tensor: String, found: &[f64], shape: [usize; 2]) -> Result<(), Error> {
    let found = found.len();
    if found == shape[0] * shape[1] { Ok(()) } else { Err(Error::Length { tensor, found, shape }) }
}
