//! Models without a file: the shapes of known models and the number formats that quantizations give
//! their tensors.
//!
//! Their weights are random (`Decoder::random` of the engine), so they write nonsense,
//! at the speed and with the bytes of the real ones.

use crate::Error;
use crate::architecture::family::{Architecture, FamilyBiases, LocalRope, Windows};
use crate::architecture::outline::{Outline, TensorSource, Weight, layout};
use crate::config::hyperparameters::{ExpertLayers, Factors, Hyperparameters, Local, SoftCaps};
use crate::config::rope::{Rope, Scaling, Yarn, YarnBounds};
use crate::format::weight_format::WeightFormat;
use crate::format::weight_format::WeightFormat::*;
use crate::layer::attention::QkvBias;
use crate::layer::feed_forward::{ExpertWeighting, Experts, GateActivation};
use crate::problem::Problem;

/// The hyperparameters of a known model.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The name by the model's makers, in lower case.
    pub name: &'static str,
    /// The hyperparameters.
    pub hyperparameters: Hyperparameters,
    /// Whether the embedding is also the LM head.
    pub tied: bool,
}

const LLAMA: &Architecture = Architecture::LLAMA;
const QWEN2: &Architecture = Architecture::QWEN2;
const QWEN3: &Architecture = Architecture::QWEN3;
const GEMMA3: &Architecture = Architecture::GEMMA3;
const QWEN3_MOE: &Architecture = Architecture::QWEN3_MOE;
const GPT_OSS: &Architecture = Architecture::GPT_OSS;
/// The scaling of the rotary frequencies of gpt-oss.
const GPT_OSS_SCALING: Scaling = Scaling::Yarn(Yarn {
    factor: 32.0,
    original_context: 4096,
    beta_fast: 32.0,
    beta_slow: 1.0,
    bounds: YarnBounds::Exact,
});

/// The known models, from their `config.json` files.
#[rustfmt::skip] // one model a line
pub static SHAPES: [Shape; 15] = [
    // layers hidden ffn heads kv head vocab context rope base epsilon tied
    shape("llama3.1-8b",    LLAMA, [32,     4096, 14336,  32,  8, 128, 128256, 131072], 500_000.0,   1e-5, false),
    shape("llama3.2-1b",    LLAMA, [16,     2048,  8192,  32,  8,  64, 128256, 131072], 500_000.0,   1e-5, true),
    shape("llama3.2-3b",    LLAMA, [28,     3072,  8192,  24,  8, 128, 128256, 131072], 500_000.0,   1e-5, true),
    shape("tinyllama-1.1b", LLAMA, [22,     2048,  5632,  32,  4,  64,  32000,   2048], 10_000.0,    1e-5, false),
    shape("qwen2.5-0.5b",   QWEN2, [24,      896,  4864,  14,  2,  64, 151936,  32768], 1_000_000.0, 1e-6, true),
    shape("qwen2.5-1.5b",   QWEN2, [28,     1536,  8960,  12,  2, 128, 151936,  32768], 1_000_000.0, 1e-6, true),
    shape("qwen2.5-7b",     QWEN2, [28,     3584, 18944,  28,  4, 128, 152064,  32768], 1_000_000.0, 1e-6, false),
    shape("qwen3-0.6b",     QWEN3, [28,     1024,  3072,  16,  8, 128, 151936,  40960], 1_000_000.0, 1e-6, true),
    shape("qwen3-1.7b",     QWEN3, [28,     2048,  6144,  16,  8, 128, 151936,  40960], 1_000_000.0, 1e-6, true),
    shape("qwen3-4b",       QWEN3, [36,     2560,  9728,  32,  8, 128, 151936,  40960], 1_000_000.0, 1e-6, true),
    shape("qwen3-8b",       QWEN3, [36,     4096, 12288,  32,  8, 128, 151936,  40960], 1_000_000.0, 1e-6, false),
    with_experts(experts(128, 8, 768), "qwen3-30b-a3b", QWEN3_MOE, [48, 2048, 0, 32, 4, 128, 151936, 40960], 1_000_000.0, 1e-6, false),
    local(128, GPT_OSS_SCALING, with_experts(gpt_oss_experts(), "gpt-oss-20b", GPT_OSS, [24, 2880, 0, 64, 8, 64, 201088, 131072], 150_000.0, 1e-5, false)),
    local(512, Scaling::Linear(1.0), shape("gemma3-1b", GEMMA3, [26, 1152, 6912, 4, 1, 256, 262144, 32768], 1_000_000.0, 1e-6, true)),
    local(1024, Scaling::Linear(8.0), shape("gemma3-4b", GEMMA3, [34, 2560, 10240, 8, 4, 256, 262208, 131072], 1_000_000.0, 1e-6, true)),
];

/// Returns a mixture of experts in every layer.
const fn experts(count: u32, chosen: u32, width: u32) -> Option<ExpertLayers> {
    Some(ExpertLayers {
        experts: Experts {
            count,
            chosen,
            width,
            activation: GateActivation::Silu,
            weighting: ExpertWeighting::SoftmaxOfChosen,
            weight_scale: 1.0,
            shared: None,
            biases: false,
        },
        dense: vec![],
    })
}

/// Returns the experts of gpt-oss-20b.
const fn gpt_oss_experts() -> Option<ExpertLayers> {
    Some(ExpertLayers {
        experts: Experts {
            count: 32,
            chosen: 4,
            width: 2880,
            activation: GateActivation::ClampedSwiglu,
            weighting: ExpertWeighting::SoftmaxOfChosen,
            weight_scale: 1.0,
            shared: None,
            biases: true,
        },
        dense: vec![],
    })
}

const fn shape(
    name: &'static str,
    architecture: &'static Architecture,
    sizes: [u32; 8],
    rope_base: f64,
    epsilon: f32,
    tied: bool,
) -> Shape {
    with_experts(None, name, architecture, sizes, rope_base, epsilon, tied)
}

const fn with_experts(
    experts: Option<ExpertLayers>,
    name: &'static str,
    architecture: &'static Architecture,
    [
        layers,
        hidden,
        feed_forward,
        heads,
        kv_heads,
        head_dim,
        vocab,
        context,
    ]: [u32; 8],
    rope_base: f64,
    epsilon: f32,
    tied: bool,
) -> Shape {
    let hyperparameters = Hyperparameters {
        architecture,
        layers,
        hidden,
        feed_forward,
        experts,
        heads,
        kv_heads,
        head_dim,
        bias: match architecture.biases {
            FamilyBiases::Always => QkvBias::Each,
            FamilyBiases::None | FamilyBiases::IfStored => QkvBias::None,
        },
        rope: Rope::plain(head_dim, rope_base),
        window: None,
        local: None,
        factors: Factors::NONE,
        caps: SoftCaps::NONE,
        epsilon,
        context,
        vocab,
    };
    Shape {
        name,
        hyperparameters,
        tied,
    }
}

/// The magnitude of YaRN with a factor of 32: `0.1 ln(32) + 1`. The function that computes it is not
/// constant.
const YARN_32: f64 = 1.346_573_590_279_972_7;

/// Returns the shape with a window in the layers that the family defines, and this scaling in the
/// others, or in all layers if they have the same rotation.
const fn local(window: u32, scaling: Scaling, mut shape: Shape) -> Shape {
    if let Windows::Local { period, rope, .. } = shape.hyperparameters.architecture.windows {
        shape.hyperparameters.rope.scaling = scaling;
        if let Scaling::Yarn(_) = scaling {
            shape.hyperparameters.rope.magnitude = YARN_32;
        }
        let rope = match rope {
            LocalRope::Base(base) => Rope::plain(shape.hyperparameters.head_dim, base),
            LocalRope::Same => shape.hyperparameters.rope,
            // No known model has these.
            LocalRope::Unscaled | LocalRope::Only => return shape,
        };
        shape.hyperparameters.window = Some(window);
        shape.hyperparameters.local = Some(Local { period, rope });
    }
    shape
}

/// A quantization: the number format of each matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantization {
    /// The name in llama.cpp, in lower case.
    pub name: &'static str,
    /// The format of most matrices.
    pub most: WeightFormat,
    /// The format of `attn_v` and the down matrices in the layers that need more bits.
    pub more: WeightFormat,
    /// The format of the LM head. Q8_0 is used if its rows are not whole blocks of this format.
    pub head: WeightFormat,
}

/// The known quantizations.
///
/// `q2_k` and `q3_k` have a single format for everything but the head. llama.cpp mixes more formats
/// into its files with these names.
pub const QUANTIZATIONS: [Quantization; 16] = [
    Quantization {
        name: "q2_k",
        most: Q2_K,
        more: Q2_K,
        head: Q6_K,
    },
    Quantization {
        name: "q3_k",
        most: Q3_K,
        more: Q3_K,
        head: Q6_K,
    },
    Quantization {
        name: "iq4_xs",
        most: IQ4_XS,
        more: IQ4_XS,
        head: Q6_K,
    },
    Quantization {
        name: "iq4_nl",
        most: IQ4_NL,
        more: IQ4_NL,
        head: Q6_K,
    },
    Quantization {
        name: "mxfp4",
        most: MXFP4,
        more: MXFP4,
        head: Q8_0,
    },
    Quantization {
        name: "q4_1",
        most: Q4_1,
        more: Q4_1,
        head: Q6_K,
    },
    Quantization {
        name: "q5_0",
        most: Q5_0,
        more: Q5_0,
        head: Q6_K,
    },
    Quantization {
        name: "q5_1",
        most: Q5_1,
        more: Q5_1,
        head: Q6_K,
    },
    Quantization {
        name: "q4_0",
        most: Q4_0,
        more: Q4_0,
        head: Q6_K,
    },
    Quantization {
        name: "q4_k_m",
        most: Q4_K,
        more: Q6_K,
        head: Q6_K,
    },
    Quantization {
        name: "q5_k_m",
        most: Q5_K,
        more: Q6_K,
        head: Q6_K,
    },
    Quantization {
        name: "q6_k",
        most: Q6_K,
        more: Q6_K,
        head: Q6_K,
    },
    Quantization {
        name: "q8_0",
        most: Q8_0,
        more: Q8_0,
        head: Q8_0,
    },
    Quantization {
        name: "bf16",
        most: BF16,
        more: BF16,
        head: BF16,
    },
    Quantization {
        name: "f16",
        most: F16,
        more: F16,
        head: F16,
    },
    Quantization {
        name: "f32",
        most: F32,
        more: F32,
        head: F32,
    },
];

impl Outline {
    /// Returns the outline of a model with this shape. Its list of tokens that end texts is empty.
    ///
    /// # Errors
    /// Returns an error if the rows of a matrix are not whole blocks of its format.
    pub fn of(shape: &Shape, quantization: Quantization) -> Result<Outline, Error> {
        let config = shape.hyperparameters.config();
        let layout = |quantization| {
            shape.hyperparameters.check()?;
            layout(
                &ModelPlan {
                    shape,
                    quantization,
                },
                &config,
            )
        };
        let weights = layout(quantization).map_err(|problem| {
            let others = QUANTIZATIONS
                .into_iter()
                .filter(|&other| layout(other).is_ok());
            let others = others
                .map(|other| other.name)
                .collect::<Vec<_>>()
                .join(", ");
            Error::Shape {
                shape: shape.name,
                quantization: quantization.name,
                problem: Box::new(problem),
                others,
            }
        })?;
        Ok(Outline {
            config,
            weights,
            stop: vec![],
            rope_factors: None,
            adapter: None,
        })
    }
}

/// A model to be made.
struct ModelPlan<'a> {
    shape: &'a Shape,
    quantization: Quantization,
}

impl TensorSource for ModelPlan<'_> {
    fn has(&self, name: &str) -> bool {
        name == "output.weight" && !self.shape.tied
    }

    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        weight(name, vec![n.into(), rows.into()], self.format(name))
    }

    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem> {
        weight(name, vec![n.into()], F32)
    }

    fn rows(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        weight(name, vec![n.into(), rows.into()], F32)
    }

    fn experts(&self, name: &str, count: u32, rows: u32, n: u32) -> Result<Weight, Problem> {
        let dims = vec![n.into(), rows.into(), count.into()];
        weight(name, dims, self.format(name))
    }
}

impl ModelPlan<'_> {
    /// `llama_tensor_get_type` of llama.cpp, for the quantizations above.
    fn format(&self, name: &str) -> WeightFormat {
        // Of a mixture, llama.cpp stores only the experts in MXFP4, and everything else in Q8_0.
        let mixture = self.shape.hyperparameters.experts.is_some();
        if self.quantization.most == MXFP4 && mixture && !name.ends_with("_exps.weight") {
            return Q8_0;
        }

        let head = if self.shape.tied {
            "token_embd.weight"
        } else {
            "output.weight"
        };
        match block(name) {
            None if name == head => self.head(),
            Some((
                index,
                "attn_v.weight"
                | "ffn_down.weight"
                | "ffn_down_exps.weight"
                | "ffn_down_shexp.weight",
            )) if use_more_bits(index, self.shape.hyperparameters.layers) => self.quantization.more,
            _ => self.quantization.most,
        }
    }

    fn head(&self) -> WeightFormat {
        let head = self.quantization.head;
        if self
            .shape
            .hyperparameters
            .hidden
            .is_multiple_of(head.block_len())
        {
            head
        } else {
            Q8_0
        }
    }
}

/// Block and role of `blk.3.attn_v.weight`.
fn block(name: &str) -> Option<(u32, &str)> {
    let (index, role) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((index.parse().ok()?, role))
}

/// `use_more_bits` of llama.cpp: the first and the last eighth of the layers, and each third
/// between.
fn use_more_bits(layer: u32, layers: u32) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

fn weight(name: &str, dims: Vec<u64>, format: WeightFormat) -> Result<Weight, Problem> {
    let name = name.to_owned();
    let len = dims[0];
    let block = format.block_len().into();
    if !len.is_multiple_of(block) {
        return Err(Problem::RowLength {
            name,
            len,
            format: format.name(),
            block,
        });
    }

    let bytes = dims.iter().product::<u64>() / block * u64::from(format.block_bytes());
    Ok(Weight {
        name,
        dims,
        format,
        range: 0..bytes as usize,
        fused: None,
        nf4: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(shape: &str, quantization: &str) -> Result<Outline, Error> {
        let shape = SHAPES.iter().find(|s| s.name == shape).unwrap();
        Outline::of(
            shape,
            *QUANTIZATIONS
                .iter()
                .find(|q| q.name == quantization)
                .unwrap(),
        )
    }

    #[test]
    fn every_shape_has_every_quantization_whose_blocks_fill_its_rows() {
        for shape in &SHAPES {
            for quantization in QUANTIZATIONS {
                let whole = shape
                    .hyperparameters
                    .hidden
                    .is_multiple_of(quantization.most.block_len());
                let made = Outline::of(shape, quantization);
                assert_eq!(made.is_ok(), whole, "{} {}", shape.name, quantization.name);
            }
        }
        assert_eq!(
            outline("qwen2.5-0.5b", "q4_k_m").unwrap_err().to_string(),
            "qwen2.5-0.5b cannot be quantized as q4_k_m: tensor \"blk.0.attn_q.weight\" has rows of 896 weights, \
             Q4_K needs a multiple of 256 (possible are iq4_nl, mxfp4, q4_1, q5_0, q5_1, q4_0, q8_0, bf16, f16, f32)"
        );
    }

    /// 30.5 billion parameters, of which a token uses 3.3 billion with the embedding and the head, as
    /// the model's makers write.
    #[test]
    fn qwen3_30b_a3b_has_the_sizes_of_its_name() {
        let outline = outline("qwen3-30b-a3b", "q4_k_m").unwrap();
        let all = crate::info::format_totals(&outline);
        let all: u64 = all.values().map(|total| total.numbers).sum();
        assert_eq!(all, 30_532_122_624);
        let used = crate::info::token_numbers(&outline);
        assert_eq!(used, 3_353_032_704);

        // A router in F32, and the down matrices of half of the layers in more bits.
        let block = &outline.weights.blocks[4];
        let router = block.router.as_ref().unwrap();
        assert_eq!((router.format, &router.dims[..]), (F32, &[2048, 128][..]));
        let down = |layer: usize| outline.weights.blocks[layer].down_experts.as_ref().unwrap();
        assert_eq!(down(5).dims, [768, 2048, 128]);
        assert_eq!([down(5).format, down(6).format], [Q6_K, Q4_K]);
        assert_eq!(down(6).range.len(), 128 * 2048 * 768 / 256 * 144);
        assert_eq!(block.gate_experts.as_ref().unwrap().format, Q4_K);
        assert!(block.dense().is_none());
    }

    /// 20.9 billion parameters, of which a token uses 3.6 billion with the embedding and the head, as
    /// the model's makers write. In MXFP4, only experts have that format.
    #[test]
    fn gpt_oss_20b_has_the_sizes_of_its_name() {
        let outline = outline("gpt-oss-20b", "mxfp4").unwrap();
        let all = crate::info::format_totals(&outline);
        let all: u64 = all.values().map(|total| total.numbers).sum();
        assert_eq!(all / 10_000_000, 2_091);
        let block = &outline.weights.blocks[7];
        assert_eq!(block.gate_experts.as_ref().unwrap().format, MXFP4);
        assert_eq!(block.down_experts.as_ref().unwrap().format, MXFP4);
        assert_eq!([block.q.format, block.v.format, block.o.format], [Q8_0; 3]);
        assert_eq!(outline.weights.head().format, Q8_0);
        assert_eq!(block.sinks.as_ref().unwrap().dims, [64]);

        // Every second layer has a window, and all have the same rotation.
        let windows = [0, 1, 2].map(|layer: usize| match &outline.config.layers[layer].mixer {
            crate::layer::Mixer::Attention(attention) => attention.window,
        });
        assert_eq!(windows, [Some(128), None, Some(128)]);
        assert_eq!(outline.config.ropes.len(), 1);
        let rope = &outline.config.ropes[0];
        assert!((rope.magnitude - rope.scaling.magnitude()).abs() < 1e-15);
    }

    #[test]
    fn half_of_the_layers_need_more_bits() {
        for (layers, first) in [
            (32, [0, 1, 2, 3, 6, 9, 12, 15]),
            (28, [0, 1, 2, 5, 8, 11, 14, 17]),
            (36, [0, 1, 2, 3, 6, 9, 12, 15]),
        ] {
            let chosen: Vec<u32> = (0..layers).filter(|&i| use_more_bits(i, layers)).collect();
            assert_eq!(
                (chosen.len() as u32, &chosen[..8]),
                (layers / 2, &first[..])
            );
        }
    }
}
