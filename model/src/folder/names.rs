//! The names that tensors have in Hugging Face folders, and the tensors of a folder by their names
//! in GGUF files.

use std::collections::BTreeSet;

use safetensors::Dtype;

use crate::architecture::outline::{TensorSource, Weight, Weights};
use crate::folder::contents::Folder;
use crate::folder::tensor::FolderTensor;
use crate::format::weight_format::WeightFormat;
use crate::problem::Problem;

/// Names outside the layers: in GGUF files, and in folders.
const TOP: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", HEAD),
];

const HEAD: &str = "lm_head.weight";

/// Names of modules in a layer: in GGUF files behind `blk.N.`, and in folders behind
/// `model.layers.N.`.
const MODULES: [(&str, &str); 11] = [
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
];

/// A tensor that older checkpoints have in each layer: the rotary frequencies, which follow from
/// the configuration.
const FREQUENCIES: &str = ".self_attn.rotary_emb.inv_freq";

/// A folder, of a model whose embedding may be its head.
pub(crate) struct NamedFolder<'a> {
    pub(crate) folder: &'a Folder,
    /// Whether the embedding serves as head.
    pub(crate) tied: bool,
}

/// The name of a tensor in a folder, by its name in a GGUF file.
fn name(gguf: &str) -> Option<String> {
    if let Some((_, name)) = TOP.iter().find(|(known, _)| *known == gguf) {
        return Some((*name).to_owned());
    }
    let (layer, tensor) = gguf.strip_prefix("blk.")?.split_once('.')?;
    let (module, kind) = tensor.rsplit_once('.')?;
    let (_, module) = MODULES.iter().find(|(known, _)| *known == module)?;
    Some(format!("model.layers.{layer}.{module}.{kind}"))
}

impl NamedFolder<'_> {
    /// A tensor by name and shape, the contiguous dimension last.
    fn find(&self, gguf: &str, expected: Vec<u64>) -> Result<(String, &FolderTensor), Problem> {
        let name = name(gguf).unwrap_or_else(|| gguf.to_owned());
        let Some(tensor) = self.folder.tensor(&name) else {
            return Err(Problem::MissingTensor { name, expected });
        };

        if !tensor
            .shape
            .iter()
            .map(|&n| n as u64)
            .eq(expected.iter().copied())
        {
            let found = tensor.shape.iter().map(|&n| n as u64).collect();
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
    pub(crate) fn check_strays(
        &self,
        weights: &Weights<Weight>,
        architecture: &'static str,
    ) -> Result<(), Problem> {
        let known: BTreeSet<&str> = weights.iter().map(|weight| weight.name.as_str()).collect();
        let stray = |name: &&str| !known.contains(name) && !name.ends_with(FREQUENCIES);
        match self.folder.names().find(stray) {
            Some(HEAD) if self.tied => Err(Problem::TiedHead),
            Some(name) => Err(Problem::StrayTensor {
                name: name.to_owned(),
                architecture,
            }),
            None => Ok(()),
        }
    }
}

impl TensorSource for NamedFolder<'_> {
    fn has(&self, name: &str) -> bool {
        name == "output.weight" && !self.tied
    }

    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        let (name, tensor) = self.find(name, vec![rows.into(), n.into()])?;
        let format = match tensor.dtype {
            Dtype::F32 => WeightFormat::F32,
            Dtype::F16 => WeightFormat::F16,
            Dtype::BF16 => WeightFormat::BF16,
            other => return Err(Self::refuse(name, other)),
        };
        let dims = vec![n.into(), rows.into()];
        let (range, nf4) = (tensor.range.clone(), tensor.nf4);
        Ok(Weight {
            name,
            dims,
            format,
            range,
            fused: None,
            nf4,
        })
    }

    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem> {
        let (name, tensor) = self.find(name, vec![n.into()])?;
        match &tensor.in_f32 {
            Some(range) => Ok(Weight {
                name,
                dims: vec![n.into()],
                format: WeightFormat::F32,
                range: range.clone(),
                fused: None,
                nf4: None,
            }),
            None => Err(Self::refuse(name, tensor.dtype)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::roles::ROLES;

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
            ("rope_freqs.weight", None),
        ];
        for (gguf, wanted) in cases {
            assert_eq!(name(gguf).as_deref(), wanted, "{gguf}");
        }
    }

    /// The norms after attention and the feed-forward are of families that no folder is read of.
    #[test]
    fn every_module_is_of_a_role() {
        let of = |role: &str| name(&format!("blk.0.{role}")).is_some();
        let unnamed: Vec<&str> = ROLES
            .iter()
            .map(|role| role.tensor)
            .filter(|role| !of(role))
            .collect();
        assert_eq!(
            unnamed,
            ["post_attention_norm.weight", "post_ffw_norm.weight"]
        );
        for (module, _) in MODULES {
            assert!(
                ROLES.iter().any(|role| role.tensor.starts_with(module)),
                "{module}"
            );
        }
    }
}
