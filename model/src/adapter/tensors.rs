//! The file `adapter_model.safetensors`: the matrices A and B of each projection.

use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use crate::adapter::config::LoraConfig;
use crate::adapter::data::LoraFactors;
use crate::adapter::fault::AdapterFault;
use crate::adapter::names::{PROJECTIONS, in_pairs, is_permuted, module, tensor};
use crate::layer::rope_pairing::RopePairing;

/// The sizes that the tensors must fit.
pub(crate) struct LoraSizes {
    pub(crate) pairing: RopePairing,
    pub(crate) head_dim: usize,
    /// The number of rows and the row length of each layer's projections, in the order of
    /// [`PROJECTIONS`]. Layers with experts lack the last three.
    pub(crate) layers: Vec<[Option<[usize; 2]>; 7]>,
}

/// Reads the factors of each layer.
pub(crate) fn read(
    bytes: &[u8],
    config: &LoraConfig,
    sizes: &LoraSizes,
) -> Result<Vec<[Option<LoraFactors>; 7]>, AdapterFault> {
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| AdapterFault::Safetensors(error.to_string()))?;
    let mut names = tensors.names();

    // The library lists the names in a random order. Sorting makes the first error reproducible.
    names.sort_unstable();
    if names.is_empty() {
        return Err(AdapterFault::Empty);
    }
    for name in &names {
        check_name(name, config, sizes)?;
    }

    if let Some(target) = config
        .targets
        .iter()
        .flatten()
        .find(|target| !has(&names, target))
    {
        return Err(AdapterFault::NoTensors {
            target: target.clone(),
        });
    }

    let layer = |layer: usize| {
        let mut factors = [const { None }; 7];
        for (projection, slot) in factors.iter_mut().enumerate() {
            let tensors = ProjectionTensors {
                tensors: &tensors,
                config,
                sizes,
                layer,
                projection,
            };
            *slot = tensors.factors()?;
        }
        Ok(factors)
    };
    (0..sizes.layers.len()).map(layer).collect()
}

/// Returns true if a tensor belongs to the target.
fn has(names: &[&str], target: &str) -> bool {
    names.iter().any(|name| {
        let Some((layer, projection)) = layer_and_projection(name) else {
            return false;
        };
        crate::adapter::patterns::names(target, &module(layer, projection))
    })
}

/// Checks that a name is the name of A or B of a projection in the model.
fn check_name(name: &str, config: &LoraConfig, sizes: &LoraSizes) -> Result<(), AdapterFault> {
    let Some((layer, projection)) = layer_and_projection(name) else {
        return Err(AdapterFault::Stray { name: name.into() });
    };

    let last = sizes.layers.len() - 1;
    if layer > last {
        return Err(AdapterFault::Layer {
            name: name.into(),
            layer,
            last,
        });
    }

    if sizes.layers[layer][projection].is_none() {
        return Err(AdapterFault::Experts {
            name: name.into(),
            layer,
        });
    }

    let module = module(layer, projection);
    if !config.is_target(&module) {
        return Err(AdapterFault::Untargeted { name: name.into() });
    }
    if config.named.leaves_out(layer, &module) {
        return Err(AdapterFault::LeftOut { name: name.into() });
    }

    Ok(())
}

/// Returns the layer and the projection of a tensor, or `None` if the name is not in PEFT's form.
fn layer_and_projection(name: &str) -> Option<(usize, usize)> {
    let layer = name
        .strip_prefix("base_model.model.model.layers.")?
        .split('.')
        .next()?
        .parse()
        .ok()?;
    let is = |p: &usize| {
        ["A", "B"]
            .iter()
            .any(|factor| tensor(layer, *p, factor) == name)
    };
    Some((layer, (0..PROJECTIONS.len()).find(is)?))
}

/// The tensors of one projection's adapter.
struct ProjectionTensors<'a> {
    tensors: &'a SafeTensors<'a>,
    config: &'a LoraConfig,
    sizes: &'a LoraSizes,
    layer: usize,
    projection: usize,
}

impl ProjectionTensors<'_> {
    /// Returns the factors, or `None` if the file has neither.
    fn factors(&self) -> Result<Option<LoraFactors>, AdapterFault> {
        // The names of tensors were checked, so an absent projection has none.
        let Some([rows, n]) = self.sizes.layers[self.layer][self.projection] else {
            return Ok(None);
        };
        let [a, b] = ["A", "B"].map(|factor| tensor(self.layer, self.projection, factor));
        match [&a, &b].map(|name| self.tensors.tensor(name).is_ok()) {
            [false, false] => return Ok(None),
            [true, false] => {
                return Err(AdapterFault::Half {
                    there: a,
                    missing: b,
                });
            }
            [false, true] => {
                return Err(AdapterFault::Half {
                    there: b,
                    missing: a,
                });
            }
            [true, true] => {}
        }

        let module = module(self.layer, self.projection);
        let rank = self.config.rank(&module)?;
        let scale = self.config.scale(&module)?;

        // A is multiplied by the scale before it is uploaded, so it must be finite after that.
        let a = self.numbers(&a, [rank as usize, n], scale)?;
        let b = self.numbers(&b, [rows, rank as usize], 1.0)?;
        Ok(Some(LoraFactors {
            rank,
            scale,
            a,
            b: self.in_file_order(b, rank as usize),
        }))
    }

    /// Returns the values of a tensor, which must have this shape and be finite when multiplied by
    /// `scale`.
    fn numbers(&self, name: &str, shape: [usize; 2], scale: f64) -> Result<Vec<f32>, AdapterFault> {
        let view = self
            .tensors
            .tensor(name)
            .map_err(|error| AdapterFault::Safetensors(error.to_string()))?;
        if view.shape() != shape {
            return Err(AdapterFault::Shape {
                name: name.into(),
                found: view.shape().into(),
                wanted: shape,
            });
        }

        let pairs = || {
            view.data()
                .chunks_exact(2)
                .map(|b| u16::from_le_bytes([b[0], b[1]]))
        };
        let numbers: Vec<f32> = match view.dtype() {
            Dtype::F32 => {
                let four = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                view.data().chunks_exact(4).map(four).collect()
            }
            Dtype::F16 => pairs().map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Dtype::BF16 => pairs().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            other => {
                return Err(AdapterFault::Type {
                    name: name.into(),
                    found: format!("{other:?}"),
                });
            }
        };
        match numbers
            .iter()
            .position(|&x| !((f64::from(x) * scale) as f32).is_finite())
        {
            Some(index) => Err(AdapterFault::NotFinite {
                name: name.into(),
                index,
                value: numbers[index],
                scale,
            }),
            None => Ok(numbers),
        }
    }

    /// Returns the rows of B in the order of the model file.
    fn in_file_order(&self, b: Vec<f32>, rank: usize) -> Vec<f32> {
        if is_permuted(self.sizes.pairing, self.projection) {
            in_pairs(&b, rank, self.sizes.head_dim)
        } else {
            b
        }
    }
}
