//! Adapters, and tensors with the same shapes: gradients and moments.

use crate::weights::NamedShape;
use crate::{Config, Error, Lora, Projection};
use warpwright_kernels::shared::philox::philox4x32;

/// A counter word that separates these random numbers from the ones of dropout and of orders,
/// which use 0 and 1.
const FIRST_ADAPTERS: u32 = 2;

/// The two factors of a projection's adapter.
#[derive(Clone, PartialEq, Debug)]
pub struct Adapter {
    /// The matrix A, `[rank, k]`.
    pub a: Vec<f64>,
    /// The matrix B, `[n, rank]`.
    pub b: Vec<f64>,
}

/// The adapters of a model, one for each target projection of each layer, in the order of
/// [`Projection::ALL`].
#[derive(Clone, PartialEq, Debug)]
pub struct Adapters {
    /// The layers, in order.
    pub layers: Vec<[Option<Adapter>; 7]>,
}

impl Adapters {
    /// Returns adapters of zeros.
    pub fn zeros(config: &Config, lora: &Lora) -> Adapters {
        let zeros = |p: Projection| {
            if !lora.targets.contains(&p) {
                return None;
            }
            let [n, k] = p.shape(config);
            Some(Adapter {
                a: vec![0.0; lora.rank * k],
                b: vec![0.0; n * lora.rank],
            })
        };
        Adapters {
            layers: vec![Projection::ALL.map(zeros); config.layers],
        }
    }

    /// Returns adapters before the first step: A is uniform within `1 / sqrt(k)`, as PEFT
    /// initializes it, and B is zero.
    ///
    /// Each value is a function of the seed and its position, so it does not depend on the other
    /// targets.
    pub fn random(config: &Config, lora: &Lora, seed: u64) -> Adapters {
        let mut adapters = Adapters::zeros(config, lora);
        let key = [seed as u32, (seed >> 32) as u32];
        for (l, layer) in adapters.layers.iter_mut().enumerate() {
            for p in Projection::ALL {
                let Some(adapter) = layer[p as usize].as_mut() else {
                    continue;
                };
                let [_, k] = p.shape(config);
                let bound = (k as f64).sqrt().recip();
                let index = (7 * l) as u32 + p as u32;
                fill_uniform(&mut adapter.a, bound, index, key);
            }
        }

        adapters
    }

    /// Returns every tensor: layer by layer, projection by projection, A before B.
    pub fn tensors(&self) -> impl Iterator<Item = &[f64]> {
        let adapters = self.layers.iter().flatten().flatten();
        adapters.flat_map(|adapter| [adapter.a.as_slice(), adapter.b.as_slice()])
    }

    /// Returns every tensor, in the order of [`Adapters::tensors`].
    pub fn tensors_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let adapters = self.layers.iter_mut().flatten().flatten();
        adapters.flat_map(|adapter| [adapter.a.as_mut_slice(), adapter.b.as_mut_slice()])
    }

    /// Returns the adapter of a projection, or `None` if it is not a target.
    pub fn of(&self, layer: usize, p: Projection) -> Option<&Adapter> {
        self.layers[layer][p as usize].as_ref()
    }

    /// Adds `other`, element by element.
    pub(super) fn add(&mut self, other: &Adapters) {
        for (sum, x) in self.tensors_mut().flatten().zip(other.tensors().flatten()) {
            *sum += x;
        }
    }

    /// Returns an error if the adapters do not have the shapes of this model and these settings.
    pub(crate) fn check(&self, config: &Config, lora: &Lora) -> Result<(), Error> {
        if self.layers.len() != config.layers {
            return Err(Error::Layers {
                found: self.layers.len(),
                wanted: config.layers,
            });
        }
        for l in 0..config.layers {
            for p in Projection::ALL {
                self.check_one(l, p, p.shape(config), lora)?;
            }
        }
        Ok(())
    }

    fn check_one(
        &self,
        l: usize,
        p: Projection,
        [n, k]: [usize; 2],
        lora: &Lora,
    ) -> Result<(), Error> {
        // A projection that is not a target must have no adapter, that is, tensors of rank 0.
        let rank = if lora.targets.contains(&p) {
            lora.rank
        } else {
            0
        };
        let (a, b) = self
            .of(l, p)
            .map_or((&[][..], &[][..]), |adapter| (&adapter.a, &adapter.b));
        let name = |factor| format!("{factor} of {} of layer {l}", p.name());
        NamedShape::new(name("A"), [rank, k]).check(a.len())?;
        NamedShape::new(name("B"), [n, rank]).check(b.len())
    }
}

/// Fills the factor A of an adapter with values that are uniform in `-bound..bound`. `index` is the
/// adapter's index in the model.
///
/// Philox makes four words for each counter. The 24 high bits of a word make a value, so that every
/// value is exact in f32 before it is scaled.
fn fill_uniform(a: &mut [f64], bound: f64, index: u32, key: [u32; 2]) {
    for (i, values) in (0..).zip(a.chunks_mut(4)) {
        let words = philox4x32([i, FIRST_ADAPTERS, index, 0], key);
        for (value, word) in values.iter_mut().zip(words) {
            let unit = f64::from(word >> 8) / f64::from(1 << 23) - 1.0;
            *value = f64::from((unit * bound) as f32);
        }
    }
}
