//! `adapter_model.safetensors`: A and B of each projection.

use ptx_gen::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use warpwright_kernels::Pairing;

use crate::adapter::config::LoraConfig;
use crate::adapter::data::Factors;
use crate::adapter::fault::Fault;
use crate::adapter::names::{PROJECTIONS, in_pairs, is_permuted, module, tensor};

/// Sizes that the tensors must fit.
pub(crate) struct Sizes {
    pub(crate) pairing: Pairing,
    pub(crate) head_dim: usize,
    /// For each layer, rows and row length of the projections, in the order of [`PROJECTIONS`].
    pub(crate) layers: Vec<[[usize; 2]; 7]>,
}

/// The factors of each layer.
pub(crate) fn read(
    bytes: &[u8],
    config: &LoraConfig,
    sizes: &Sizes,
) -> Result<Vec<[Option<Factors>; 7]>, Fault> {
    let tensors =
        SafeTensors::deserialize(bytes).map_err(|error| Fault::Safetensors(error.to_string()))?;
    let mut names = tensors.names();
    names.sort_unstable();
    if names.is_empty() {
        return Err(Fault::Empty);
    }
    names
        .iter()
        .try_for_each(|name| check_name(name, config, sizes))?;
    if let Some(target) = config
        .targets
        .iter()
        .flatten()
        .find(|target| !has(&names, target))
    {
        return Err(Fault::NoTensors {
            target: target.clone(),
        });
    }
    let layer = |layer: usize| {
        let mut factors = [const { None }; 7];
        for (projection, place) in factors.iter_mut().enumerate() {
            *place = Source {
                tensors: &tensors,
                config,
                sizes,
                layer,
                projection,
            }
            .factors()?;
        }
        Ok(factors)
    };
    (0..sizes.layers.len()).map(layer).collect()
}

/// Whether some tensor is of a target.
fn has(names: &[&str], target: &str) -> bool {
    names.iter().any(|name| {
        let place = place(name);
        place.is_some_and(|(layer, p)| crate::adapter::patterns::names(target, &module(layer, p)))
    })
}

/// A name is that of A or B of a projection of the model.
fn check_name(name: &str, config: &LoraConfig, sizes: &Sizes) -> Result<(), Fault> {
    let Some((layer, projection)) = place(name) else {
        return Err(Fault::Stray { name: name.into() });
    };
    let last = sizes.layers.len() - 1;
    if layer > last {
        return Err(Fault::Layer {
            name: name.into(),
            layer,
            last,
        });
    }
    let module = module(layer, projection);
    match (
        config.is_target(&module),
        config.named.leaves_out(layer, &module),
    ) {
        (false, _) => Err(Fault::Untargeted { name: name.into() }),
        (true, true) => Err(Fault::LeftOut { name: name.into() }),
        (true, false) => Ok(()),
    }
}

/// Layer and projection of a tensor.
fn place(name: &str) -> Option<(usize, usize)> {
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

/// Where the factors of a projection come from.
struct Source<'a> {
    tensors: &'a SafeTensors<'a>,
    config: &'a LoraConfig,
    sizes: &'a Sizes,
    layer: usize,
    projection: usize,
}

impl Source<'_> {
    /// The factors, if the file has them.
    fn factors(&self) -> Result<Option<Factors>, Fault> {
        let [a, b] = ["A", "B"].map(|factor| tensor(self.layer, self.projection, factor));
        match [&a, &b].map(|name| self.tensors.tensor(name).is_ok()) {
            [false, false] => return Ok(None),
            [true, false] => {
                return Err(Fault::Half {
                    there: a,
                    missing: b,
                });
            }
            [false, true] => {
                return Err(Fault::Half {
                    there: b,
                    missing: a,
                });
            }
            [true, true] => {}
        }
        let module = module(self.layer, self.projection);
        let (rank, scale) = (self.config.rank(&module)?, self.config.scale(&module)?);
        let [rows, n] = self.sizes.layers[self.layer][self.projection];
        let a = self.numbers(&a, [rank as usize, n], scale)?;
        let b = self.numbers(&b, [rows, rank as usize], 1.0)?;
        Ok(Some(Factors {
            rank,
            scale,
            a,
            b: self.in_file_order(b, rank as usize),
        }))
    }

    /// The numbers of a tensor of this shape, which are finite times a scale.
    fn numbers(&self, name: &str, shape: [usize; 2], scale: f64) -> Result<Vec<f32>, Fault> {
        let view = self
            .tensors
            .tensor(name)
            .map_err(|error| Fault::Safetensors(error.to_string()))?;
        if view.shape() != shape {
            return Err(Fault::Shape {
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
            Dtype::F16 => pairs().map(|bits| f16(bits).to_f32()).collect(),
            Dtype::BF16 => pairs().map(|bits| bf16(bits).to_f32()).collect(),
            other => {
                return Err(Fault::Type {
                    name: name.into(),
                    found: format!("{other:?}"),
                });
            }
        };
        match numbers
            .iter()
            .position(|&x| !((f64::from(x) * scale) as f32).is_finite())
        {
            Some(index) => Err(Fault::NotFinite {
                name: name.into(),
                index,
                value: numbers[index],
                scale,
            }),
            None => Ok(numbers),
        }
    }

    /// B's rows in the order of the model file.
    fn in_file_order(&self, b: Vec<f32>, rank: usize) -> Vec<f32> {
        match is_permuted(self.sizes.pairing, self.projection) {
            true => in_pairs(&b, rank, self.sizes.head_dim),
            false => b,
        }
    }
}
