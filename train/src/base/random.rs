//! Models without a file, for measurements.

use std::path::Path;

use warpwright_kernels::Random;
use warpwright_kernels::train::nf4::{BLOCK, Nf4};
use warpwright_model::Outline;

use super::{Base, BaseFormat, Quantization, config_of};
use crate::step::Matrix;
use crate::{Config, Error, LayerWeights, Projection, Weights};

/// The largest value of a random matrix.
const LARGEST: f32 = 0.05;

impl Base {
    /// Returns random weights for a model with this outline, with all projections in NF4. `name`
    /// names the model in errors.
    ///
    /// # Errors
    /// Returns [`Error::Family`] if there is no backward pass for the model's family or its RoPE
    /// scaling.
    pub fn random(outline: &Outline, name: &str) -> Result<Base, Error> {
        let config = config_of(outline, Path::new(name))?;
        let mut random = Random(1);
        let table = config.vocab * config.hidden;
        let weights = Weights {
            embed: numbers(&mut random, table),
            head: outline
                .weights
                .head
                .as_ref()
                .map(|_| numbers(&mut random, table)),
            norm: vec![1.0; config.hidden],
            layers: outline
                .weights
                .blocks
                .iter()
                .map(|block| {
                    let gains = |_: &_| vec![1.0; config.head_dim];
                    let biases = [
                        block.q_bias.is_some(),
                        block.k_bias.is_some(),
                        block.v_bias.is_some(),
                    ];
                    layer(
                        &mut random,
                        &config,
                        [
                            block.q_norm.as_ref().map(gains),
                            block.k_norm.as_ref().map(gains),
                        ],
                        biases,
                    )
                })
                .collect(),
        };
        let pairing = outline.config.architecture.pairing;
        Ok(Base {
            config,
            pairing,
            formats: Quantization::from(BaseFormat::Nf4).of(&outline.weights.blocks),
            weights,
        })
    }
}

fn layer(
    random: &mut Random,
    config: &Config,
    [q_norm, k_norm]: [Option<Vec<f32>>; 2],
    biased: [bool; 3],
) -> LayerWeights<Vec<f32>, Matrix> {
    let mut biases = [const { None }; 7];
    for ((bias, there), p) in biases.iter_mut().zip(biased).zip(Projection::ALL) {
        if there {
            let [n, _] = p.shape(config);
            *bias = Some(numbers(random, n));
        }
    }
    LayerWeights {
        attention_norm: vec![1.0; config.hidden],
        feed_forward_norm: vec![1.0; config.hidden],
        q_norm,
        k_norm,
        projections: Projection::ALL.map(|p| matrix(random, p.shape(config))),
        biases,
    }
}

fn matrix(random: &mut Random, [n, k]: [usize; 2]) -> Matrix {
    let len = (n * k).div_ceil(2);
    let words = (0..len.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes());
    Matrix::Nf4(Nf4 {
        packed: words.take(len).collect(),
        absmax: vec![LARGEST; (n * k).div_ceil(BLOCK)],
    })
}

fn numbers(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| LARGEST * random.unit()).collect()
}
