//! The forward and backward pass of a micro-batch.

use super::adapters::Adapters;
use super::backward::LayerGradients;
use super::batch::MicroBatch;
use super::forward::Activations;
use super::head::HeadResult;
use super::model::Model;
use super::run::MicroBatchRun;
use crate::Error;

/// The results of a micro-batch.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// The sum of its losses, divided by `n`.
    pub loss: f64,
    /// The gradients of the adapters.
    pub adapters: Adapters,
    /// The activations of the forward pass.
    pub activations: Activations,
    /// The results of the LM head.
    pub head: HeadResult,
    /// The gradients inside the layers.
    pub layers: Vec<LayerGradients>,
}

impl Model<'_> {
    /// Computes the forward and backward pass of a micro-batch.
    ///
    /// # Errors
    /// Returns an error if a tensor or a list has the wrong length, or if a token is not in the
    /// vocabulary.
    pub fn gradients(&self, adapters: &Adapters, micro: &MicroBatch) -> Result<Gradients, Error> {
        adapters.check(&self.config, &self.lora)?;
        micro.check(self.config.vocab)?;
        let mut stored = adapters.clone();
        for x in stored.tensors_mut().flatten() {
            *x = self.storage.round(*x);
        }

        let run = MicroBatchRun::new(self, &stored, micro);
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
