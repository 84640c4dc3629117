//! Forward and backward of a micro-batch.

use super::adapters::Adapters;
use super::backward::LayerGradients;
use super::batch::MicroBatch;
use super::forward::Activations;
use super::head::HeadResult;
use super::model::Model;
use super::run::Run;
use crate::Error;

/// What a micro-batch gives.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// The sum of its losses over `n`.
    pub loss: f64,
    /// Gradients of the adapters.
    pub adapters: Adapters,
    /// What the forward kept.
    pub activations: Activations,
    /// What the head gave.
    pub head: HeadResult,
    /// Gradients inside of the layers.
    pub layers: Vec<LayerGradients>,
}

impl Model<'_> {
    /// Forward and backward of a micro-batch.
    ///
    /// # Errors
    ///
    /// Tensors or lists of other lengths, tokens that are not in the vocabulary.
    pub fn gradients(&self, adapters: &Adapters, micro: &MicroBatch) -> Result<Gradients, Error> {
        adapters.check(&self.config, &self.lora)?;
        micro.check(self.config.vocab)?;
        let mut stored = adapters.clone();
        stored
            .tensors_mut()
            .flatten()
            .for_each(|x| *x = self.storage.round(*x));
        let run = Run::new(self, &stored, micro);
        let activations = run.forward();
        let head = run.head(&activations.h);
        let (layers, gradients) = run.backward(&activations, &head.dh);
        let loss = head.loss / micro.n as f64;
        Ok(Gradients {
            loss,
            adapters: Adapters { layers: gradients },
            activations,
            head,
            layers,
        })
    }
}
