//! The names that tensors have in Hugging Face folders, and the tensors of a folder by their names
//! in GGUF files.

use std::collections::BTreeSet;

use safetensors::Dtype;

use crate::architecture::family::Architecture;
use crate::architecture::outline::{TensorSource, Weight, Weights};
use crate::folder::contents::Folder;
use crate::folder::experts::FusedHalf;
use crate::folder::tensor::FolderTensor;
use crate::format::weight_format::WeightFormat;
use crate::problem::Problem;

/// Names outside the layers: in GGUF files, and in folders.
const TOP: [(&str, &str); 3] = [
    ("token_embd.weight", "embed_tokens.weight"),
    (LAST_NORM, "norm.weight"),
    ("output_norm.bias", "norm.bias"),
];

/// The names of the head and of the last norm in GGUF files.
const HEAD: &str = "output.weight";
const LAST_NORM: &str = "output_norm.weight";

/// Names of modules in a layer: in GGUF files behind `blk.N.`, and in folders behind
/// `model.layers.N.`. Families may have others, see
/// [`folder_modules`](field@Architecture::folder_modules).
///
/// The star is the number of an expert: see [`experts`](crate::folder::experts).
const MODULES: [(&str, &str); 19] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    (ROUTER, "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
    ("ffn_up_exps", "mlp.experts.*.up_proj"),
    ("ffn_down_exps", "mlp.experts.*.down_proj"),
    (SHARED_ROUTER, "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// The names of the routers in GGUF files, behind `blk.N.`.
const ROUTER: &str = "ffn_gate_inp";
const SHARED_ROUTER: &str = "ffn_gate_inp_shexp";

/// The matrices that are read in F32, by their names in GGUF files behind `blk.N.`: routers, and the
/// biases of experts.
const IN_F32: [&str; 3] = [
    "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "ffn_down_exps.bias",
];

/// A tensor that older checkpoints have in each layer: the rotary frequencies, which follow from
/// the configuration.
const FREQUENCIES: &str = ".self_attn.rotary_emb.inv_freq";

/// The names of a model's text part: the prefix of all its tensors but the head, the name of the
/// head, and the prefixes of the parts for images, which are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextPart {
    prefix: &'static str,
    head: &'static str,
    others: &'static [&'static str],
}

/// A model of text.
const TEXT: TextPart = TextPart {
    prefix: "model.",
    head: "lm_head.weight",
    others: &[],
};

/// Models of text and images, as written by transformers up to 4.51 and from 4.52 on.
const WITH_IMAGES: [TextPart; 2] = [
    TextPart {
        prefix: "language_model.model.",
        head: "language_model.lm_head.weight",
        others: &["vision_tower.", "multi_modal_projector."],
    },
    TextPart {
        prefix: "model.language_model.",
        head: "lm_head.weight",
        others: &["model.vision_tower.", "model.multi_modal_projector."],
    },
];

impl TextPart {
    /// Returns the names of the text part in a folder.
    pub(crate) fn of(folder: &Folder) -> TextPart {
        let embed = |part: &TextPart| format!("{}embed_tokens.weight", part.prefix);
        let parts = WITH_IMAGES.into_iter();
        let mut parts = parts.filter(|part| folder.tensor(&embed(part)).is_some());
        parts.next().unwrap_or(TEXT)
    }
}

/// The names of the tensors of a family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FolderNames {
    pub(crate) architecture: &'static Architecture,
    pub(crate) part: TextPart,
}

/// A folder, of a model whose embedding may be its head.
pub(crate) struct NamedFolder<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) names: FolderNames,
    /// Whether the embedding serves as head.
    pub(crate) tied: bool,
}

impl FolderNames {
    /// Returns the name of a tensor in a folder, by its name in a GGUF file.
    fn name(&self, gguf: &str) -> Option<String> {
        let prefix = self.part.prefix;
        if gguf == HEAD {
            return Some(self.part.head.to_owned());
        }
        if let Some((_, name)) = TOP.iter().find(|(known, _)| *known == gguf) {
            return Some(format!("{prefix}{name}"));
        }
        let (layer, tensor) = gguf.strip_prefix("blk.")?.split_once('.')?;
        let mut own = self.architecture.folder_modules.iter();
        if let Some((_, name)) = own.find(|(known, _)| *known == tensor) {
            return Some(format!("{prefix}layers.{layer}.{name}"));
        }
        let (module, kind) = tensor.rsplit_once('.')?;
        let module = self.module(module)?;
        Some(format!("{prefix}layers.{layer}.{module}.{kind}"))
    }

    /// Returns the name of a module of a layer in a folder, by its name in a GGUF file.
    fn module(&self, gguf: &str) -> Option<&'static str> {
        let own = self.architecture.folder_modules.iter();
        let (_, module) = own.chain(&MODULES).find(|(known, _)| *known == gguf)?;
        Some(module)
    }

    /// Returns true if a tensor is a matrix that is read in F32, such as the weights of a router.
    pub(crate) fn is_in_f32(&self, tensor: &str) -> bool {
        let layers = tensor.strip_prefix(self.part.prefix);
        let layers = layers.and_then(|name| name.strip_prefix("layers."));
        let Some((layer, _)) = layers.and_then(|name| name.split_once('.')) else {
            return false;
        };
        let is = |gguf: &str| self.name(&format!("blk.{layer}.{gguf}")).as_deref() == Some(tensor);
        IN_F32.iter().any(|gguf| is(gguf))
    }

    /// Returns the names that the matrices of experts may have in a folder, by their name in a GGUF
    /// file: as one tensor per expert, and in one tensor of all experts.
    fn expert_names(&self, gguf: &str) -> Option<[String; 2]> {
        let name = self.name(gguf)?;
        let tensor = gguf.strip_prefix("blk.")?.split_once('.')?.1;
        let half = match tensor {
            "ffn_gate_exps.weight" => Some(FusedHalf::Gate),
            "ffn_up_exps.weight" => Some(FusedHalf::Up),
            _ => None,
        };
        let fused = match (name.split_once(".*."), half) {
            (Some((experts, _)), Some(half)) => half.name(&format!("{experts}.gate_up_proj")),
            (Some((experts, _)), None) => format!("{experts}.down_proj"),
            (None, Some(half)) => half.name(&name),
            (None, None) => name.clone(),
        };
        Some([name, fused])
    }

    /// Returns true if a tensor is the weights of the last norm.
    pub(crate) fn is_last_norm(&self, tensor: &str) -> bool {
        self.name(LAST_NORM).as_deref() == Some(tensor)
    }

    /// Returns true if a tensor is the weights of a norm of the text part.
    pub(crate) fn is_norm(&self, tensor: &str) -> bool {
        let text = tensor.strip_prefix(self.part.prefix);
        text.is_some_and(|name| name.ends_with("norm.weight"))
    }
}

impl NamedFolder<'_> {
    /// A tensor by name and shape, the contiguous dimension last.
    fn find(&self, gguf: &str, expected: Vec<u64>) -> Result<(String, &FolderTensor), Problem> {
        let name = self.names.name(gguf).unwrap_or_else(|| gguf.to_owned());
        self.find_named(name, expected)
    }

    /// A tensor by its name in the folder and by shape, the contiguous dimension last.
    fn find_named(
        &self,
        name: String,
        expected: Vec<u64>,
    ) -> Result<(String, &FolderTensor), Problem> {
        let Some(tensor) = self.folder.tensor(&name) else {
            return Err(Problem::MissingTensor { name, expected });
        };

        let found: Vec<u64> = tensor.shape.iter().map(|&n| n as u64).collect();
        // A gate of one row is stored as a matrix.
        let is_row = matches!((&found[..], &expected[..]), ([1, a], [b]) if a == b);
        if found != expected && !is_row {
            return Err(Problem::Shape {
                name,
                found,
                expected,
            });
        }

        Ok((name, tensor))
    }

    fn refuse(name: String, dtype: Dtype) -> Problem {
        Problem::Dtype {
            name,
            found: format!("{dtype:?}"),
        }
    }

    /// Refuses a tensor that the forward pass does not read: it is a feature that it does not have.
    pub(crate) fn check_strays(&self, weights: &Weights<Weight>) -> Result<(), Problem> {
        let part = self.names.part;
        let known: BTreeSet<&str> = weights.iter().map(|weight| weight.name.as_str()).collect();
        let of_images = |name: &str| part.others.iter().any(|other| name.starts_with(other));
        let stray =
            |name: &&str| !known.contains(name) && !name.ends_with(FREQUENCIES) && !of_images(name);
        match self.folder.names().find(stray) {
            Some(name) if name == part.head && self.tied => Err(Problem::TiedHead),
            Some(name) => Err(Problem::StrayTensor {
                name: name.to_owned(),
                architecture: self.names.architecture.name,
            }),
            None => Ok(()),
        }
    }
}

impl TensorSource for NamedFolder<'_> {
    fn has(&self, name: &str) -> bool {
        name == HEAD && !self.tied
    }

    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        let (name, tensor) = self.find(name, vec![rows.into(), n.into()])?;
        matrix_weight(name, tensor, vec![n.into(), rows.into()])
    }

    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem> {
        let (name, tensor) = self.find(name, vec![n.into()])?;
        f32_weight(name, tensor, vec![n.into()])
    }

    fn rows(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        let (name, tensor) = self.find(name, vec![rows.into(), n.into()])?;
        f32_weight(name, tensor, vec![n.into(), rows.into()])
    }

    fn experts(&self, name: &str, count: u32, rows: u32, n: u32) -> Result<Weight, Problem> {
        let names = self.names.expert_names(name);
        let [separate, fused] = names.unwrap_or_else(|| [name.to_owned(), name.to_owned()]);
        let stored = if self.folder.tensor(&fused).is_some() {
            fused
        } else {
            separate
        };
        let expected = vec![count.into(), rows.into(), n.into()];
        let (name, tensor) = self.find_named(stored, expected)?;
        matrix_weight(name, tensor, vec![n.into(), rows.into(), count.into()])
    }
}

/// Returns a tensor as a weight of these dimensions, in the number format of the folder.
fn matrix_weight(name: String, tensor: &FolderTensor, dims: Vec<u64>) -> Result<Weight, Problem> {
    let format = match tensor.dtype {
        _ if tensor.mxfp4 => WeightFormat::MXFP4,
        Dtype::F32 => WeightFormat::F32,
        Dtype::F16 => WeightFormat::F16,
        Dtype::BF16 => WeightFormat::BF16,
        other => return Err(NamedFolder::refuse(name, other)),
    };
    Ok(Weight {
        name,
        dims,
        format,
        range: tensor.range.clone(),
        fused: None,
        nf4: tensor.nf4,
    })
}

/// Returns a tensor as a weight of these dimensions in F32.
fn f32_weight(name: String, tensor: &FolderTensor, dims: Vec<u64>) -> Result<Weight, Problem> {
    match &tensor.in_f32 {
        Some(range) => Ok(Weight {
            name,
            dims,
            format: WeightFormat::F32,
            range: range.clone(),
            fused: None,
            nf4: None,
        }),
        None => Err(NamedFolder::refuse(name, tensor.dtype)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::outline::Outline;
    use crate::architecture::roles::ROLES;
    use crate::architecture::shape::{QUANTIZATIONS, SHAPES, Shape};
    use crate::config::hyperparameters::{ExpertLayers, Hyperparameters};
    use crate::config::json::families::FAMILIES;
    use crate::layer::attention::QkvBias;
    use crate::layer::feed_forward::{ExpertWeighting, Experts, GateActivation, SharedExpert};

    #[test]
    fn tensors_have_the_names_of_transformers() {
        let cases = [
            ("token_embd.weight", Some("model.embed_tokens.weight")),
            ("output.weight", Some("lm_head.weight")),
            (
                "blk.3.attn_q.weight",
                Some("model.layers.3.self_attn.q_proj.weight"),
            ),
            (
                "blk.11.attn_v.bias",
                Some("model.layers.11.self_attn.v_proj.bias"),
            ),
            (
                "blk.0.ffn_norm.weight",
                Some("model.layers.0.post_attention_layernorm.weight"),
            ),
            (
                "blk.2.ffn_up_exps.weight",
                Some("model.layers.2.mlp.experts.*.up_proj.weight"),
            ),
            ("rope_freqs.weight", None),
        ];
        let names = FolderNames {
            architecture: Architecture::LLAMA_IN_HALVES,
            part: TEXT,
        };
        for (gguf, wanted) in cases {
            assert_eq!(names.name(gguf).as_deref(), wanted, "{gguf}");
        }
    }

    #[test]
    fn routers_and_fused_experts_have_their_names() {
        let names = |architecture| FolderNames {
            architecture,
            part: TEXT,
        };
        let qwen = names(Architecture::QWEN2_MOE);
        let mixtral = names(Architecture::MIXTRAL_IN_HALVES);
        let granite = names(Architecture::GRANITE_MOE_IN_HALVES);
        for (family, router) in [
            (&qwen, "model.layers.7.mlp.gate.weight"),
            (&qwen, "model.layers.7.mlp.shared_expert_gate.weight"),
            (&mixtral, "model.layers.7.block_sparse_moe.gate.weight"),
            (
                &granite,
                "model.layers.7.block_sparse_moe.router.layer.weight",
            ),
        ] {
            assert!(family.is_in_f32(router), "{router}");
        }
        assert!(!qwen.is_in_f32("model.layers.7.mlp.gate_proj.weight"));
        assert!(!mixtral.is_in_f32("model.layers.7.mlp.gate.weight"));
        let gpt_oss = names(Architecture::GPT_OSS);
        for name in ["router.weight", "experts.down_proj_bias"] {
            assert!(gpt_oss.is_in_f32(&format!("model.layers.7.mlp.{name}")));
        }

        let fused = |names: &FolderNames, gguf: &str| names.expert_names(gguf).unwrap()[1].clone();
        assert_eq!(
            fused(&qwen, "blk.7.ffn_up_exps.weight"),
            "model.layers.7.mlp.experts.gate_up_proj (up)"
        );
        assert_eq!(
            fused(&qwen, "blk.7.ffn_down_exps.weight"),
            "model.layers.7.mlp.experts.down_proj"
        );
        assert_eq!(
            fused(&granite, "blk.7.ffn_gate_exps.weight"),
            "model.layers.7.block_sparse_moe.input_linear.weight (gate)"
        );
        assert_eq!(
            fused(&granite, "blk.7.ffn_down_exps.weight"),
            "model.layers.7.block_sparse_moe.output_linear.weight"
        );
    }

    /// In folders, the tensors of a family have different names.
    #[test]
    fn every_tensor_of_a_family_has_a_name() {
        for family in FAMILIES {
            let names = FolderNames {
                architecture: family.architecture,
                part: TEXT,
            };
            let hidden = Shape {
                name: "small",
                hyperparameters: Hyperparameters {
                    architecture: family.architecture,
                    bias: QkvBias::Each,
                    experts: family.experts.map(|keys| ExpertLayers {
                        experts: Experts {
                            count: 3,
                            chosen: 2,
                            width: 8,
                            activation: GateActivation::Silu,
                            weighting: ExpertWeighting::Softmax,
                            weight_scale: 1.0,
                            shared: keys.shared.map(|shared| SharedExpert {
                                width: 8,
                                gated: shared.gated,
                            }),
                            biases: family.architecture.sinks_and_biases,
                        },
                        dense: vec![1],
                    }),
                    ..SHAPES[0].hyperparameters.clone()
                },
                tied: false,
            };
            let f32s = *QUANTIZATIONS.last().unwrap();
            let outline = Outline::of(&hidden, f32s).unwrap();
            let mut found = BTreeSet::new();
            for weight in outline.weights.iter() {
                // The gate and up matrices of experts may have one name, and each a half of it.
                let name = if weight.dims.len() == 3 {
                    names.expert_names(&weight.name).map(|[_, fused]| fused)
                } else {
                    names.name(&weight.name)
                };
                let name = name.unwrap_or_else(|| panic!("{}: {}", family.model_type, weight.name));
                // A fused tensor has its name once for each of its matrices.
                assert!(
                    found.insert(name) || weight.fused.is_some(),
                    "{}",
                    weight.name
                );
            }
        }
    }

    #[test]
    fn every_module_is_of_a_role() {
        let own = FAMILIES
            .iter()
            .flat_map(|family| family.architecture.folder_modules);
        for (module, _) in MODULES.iter().chain(own) {
            let fused = FAMILIES.iter().flat_map(|family| family.architecture.fused);
            let mut tensors = ROLES
                .iter()
                .map(|role| role.tensor)
                .chain(fused.map(|(tensor, _)| *tensor));
            assert!(tensors.any(|tensor| tensor.starts_with(module)), "{module}");
        }
    }
}
