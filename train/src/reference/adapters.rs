//! Adapters, and whatever has their shapes: gradients and moments.

use crate::weights::length;
use crate::{Config, Error, Lora, Projection};
use warpwright_kernels::train::philox::philox4x32;

/// Tells these random numbers from those of dropout and of orders, whose second words are 0 and 1.
const FIRST_ADAPTERS: u32 = 2;

/// The two factors of a projection's adapter.
#[derive(Clone, PartialEq, Debug)]
pub struct Adapter {
    /// `[rank, k]`
    pub a: Vec<f64>,
    /// `[n, rank]`
    pub b: Vec<f64>,
}

/// The adapters of a model: for each layer one for each projection that is a target, in the order of
/// [`Projection::ALL`].
#[derive(Clone, PartialEq, Debug)]
pub struct Adapters {
    /// The layers.
    pub layers: Vec<[Option<Adapter>; 7]>,
}

impl Adapters {
    /// Adapters of zeros.
    pub fn zeros(config: &Config, lora: &Lora) -> Adapters {
        let zeros = |p: Projection| {
            let [n, k] = p.shape(config);
            let adapter = Adapter {
                a: vec![0.0; lora.rank * k],
                b: vec![0.0; n * lora.rank],
            };
            lora.targets.contains(&p).then_some(adapter)
        };
        Adapters {
            layers: vec![Projection::ALL.map(zeros); config.layers],
        }
    }

    /// Adapters before the first step: A uniform within `1 / sqrt(k)`, as PEFT begins, and B zero. The numbers are a
    /// function of seed and place.
    pub fn random(config: &Config, lora: &Lora, seed: u64) -> Adapters {
        let mut adapters = Adapters::zeros(config, lora);
        let key = [seed as u32, (seed >> 32) as u32];
        for (l, p) in (0..config.layers).flat_map(|l| Projection::ALL.map(|p| (l, p))) {
            let Some(adapter) = adapters.layers[l][p as usize].as_mut() else {
                continue;
            };
            let (bound, place) = (
                (p.shape(config)[1] as f64).sqrt().recip(),
                (7 * l) as u32 + p as u32,
            );
            for (i, four) in (0..).zip(adapter.a.chunks_mut(4)) {
                let words = philox4x32([i, FIRST_ADAPTERS, place, 0], key);
                for (a, word) in four.iter_mut().zip(words) {
                    let unit = f64::from(word >> 8) / f64::from(1 << 23) - 1.0;
                    *a = f64::from((unit * bound) as f32);
                }
            }
        }
        adapters
    }

    /// Every tensor: layer by layer, projection by projection, A before B.
    pub fn tensors(&self) -> impl Iterator<Item = &[f64]> {
        let adapters = self.layers.iter().flatten().flatten();
        adapters.flat_map(|adapter| [adapter.a.as_slice(), adapter.b.as_slice()])
    }

    /// Every tensor, in the order of [`Adapters::tensors`].
    pub fn tensors_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        let adapters = self.layers.iter_mut().flatten().flatten();
        adapters.flat_map(|adapter| [adapter.a.as_mut_slice(), adapter.b.as_mut_slice()])
    }

    /// The adapter of a projection, if it is a target.
    pub fn of(&self, layer: usize, p: Projection) -> Option<&Adapter> {
        self.layers[layer][p as usize].as_ref()
    }

    /// `self += other`, tensor by tensor.
    pub(super) fn add(&mut self, other: &Adapters) {
        for (sum, x) in self.tensors_mut().flatten().zip(other.tensors().flatten()) {
            *sum += x;
        }
    }

    pub(crate) fn check(&self, config: &Config, lora: &Lora) -> Result<(), Error> {
        if self.layers.len() != config.layers {
            return Err(Error::Layers {
                found: self.layers.len(),
                wanted: config.layers,
            });
        }
        let mut places = (0..config.layers).flat_map(|l| Projection::ALL.map(|p| (l, p)));
        places.try_for_each(|(l, p)| self.check_one(l, p, p.shape(config), lora))
    }

    fn check_one(
        &self,
        l: usize,
        p: Projection,
        [n, k]: [usize; 2],
        lora: &Lora,
    ) -> Result<(), Error> {
        let rank = if lora.targets.contains(&p) {
            lora.rank
        } else {
            0
        };
        let (a, b) = self
            .of(l, p)
            .map_or((&[][..], &[][..]), |adapter| (&adapter.a, &adapter.b));
        let name = |factor| format!("{factor} of {} of layer {l}", p.name());
        length((name("A"), [rank, k]), a.len())?;
        length((name("B"), [n, rank]), b.len())
    }
}
