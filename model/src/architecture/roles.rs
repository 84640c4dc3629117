//! The tensors of a transformer block as a table: one row a weight, with its name, its shape, and
//! when a block has it.
//!
//! [`Block`] has a field for each row. Reading a file, making random weights, uploading, `info` and
//! the check for tensors that nothing reads go through the table. The weights that share a buffer on
//! a device are a table of the engine.

use std::ops::Range;

use crate::config::forward::Config;
use crate::layer::attention::{Attention, HeadNorms, QkvBias};
use crate::layer::description::{FeedForward, Layer, Mixer};
use crate::layer::feed_forward::DenseForm;

/// A row of the table.
pub(crate) struct Role {
    /// The tensor's name in GGUF files, without `blk.N.`.
    pub(crate) tensor: &'static str,
    shape: fn(&Config, &Attention, &FeedForward) -> Shape,
}

/// The shape of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Rows of a length, in any number format.
    Matrix(u32, u32),
    /// Numbers in F32.
    Vector(u32),
    /// Rows of a length in F32: first the number of rows, then the length.
    Rows(u32, u32),
    /// The matrices of all experts, one after the other, in any number format: the number of
    /// experts, the rows of one matrix, and their length.
    Experts(u32, u32, u32),
}

impl Shape {
    /// Rows of a matrix.
    fn rows(self) -> u32 {
        match self {
            Shape::Matrix(rows, _) | Shape::Rows(rows, _) => rows,
            Shape::Vector(_) => 1,
            Shape::Experts(count, rows, _) => count * rows,
        }
    }
}

/// The tensor that a role's rows are part of.
pub(crate) struct Fused {
    /// Its name, without `blk.N.`.
    pub(crate) tensor: &'static str,
    /// Its rows.
    pub(crate) rows: u32,
    /// Which of them are the role's.
    pub(crate) range: Range<u32>,
}

impl Role {
    /// Returns the shape of the weight in a layer.
    pub(crate) fn shape(&self, c: &Config, layer: &Layer) -> Shape {
        // Every row of a mixer belongs to this kind.
        let Mixer::Attention(attention) = &layer.mixer;
        (self.shape)(c, attention, &layer.feed_forward)
    }

    /// Returns the position of the role's rows, in a family that stores them in one tensor with
    /// others.
    pub(crate) fn fused(&self, c: &Config, layer: &Layer) -> Option<Fused> {
        let (tensor, parts) = c
            .architecture
            .fused
            .iter()
            .find(|(_, parts)| parts.contains(&self.tensor))?;
        let role = |part: &&str| ROLES.iter().find(|role| role.tensor == *part);
        let rows = |parts: &[&str]| {
            parts
                .iter()
                .filter_map(role)
                .map(|role| role.shape(c, layer).rows())
                .sum()
        };
        let start: u32 = rows(&parts[..parts.iter().position(|part| *part == self.tensor)?]);
        Some(Fused {
            tensor,
            rows: rows(parts),
            range: start..start + self.shape(c, layer).rows(),
        })
    }
}

/// The conditions of the table's rows.
impl Layer {
    fn has_qkv_bias(&self) -> bool {
        match &self.mixer {
            Mixer::Attention(attention) => attention.bias == QkvBias::Each,
        }
    }

    fn has_sinks(&self) -> bool {
        match &self.mixer {
            Mixer::Attention(attention) => attention.sinks,
        }
    }

    fn has_output_bias(&self) -> bool {
        match &self.mixer {
            Mixer::Attention(attention) => attention.output_bias,
        }
    }

    fn has_expert_biases(&self) -> bool {
        self.feed_forward
            .experts()
            .is_some_and(|experts| experts.biases)
    }

    fn has_head_norms(&self) -> bool {
        match &self.mixer {
            Mixer::Attention(attention) => attention.head_norms != HeadNorms::None,
        }
    }

    fn is_dense(&self) -> bool {
        self.dense_form().is_some()
    }

    fn has_dense_gate(&self) -> bool {
        self.dense_form() == Some(DenseForm::Gated)
    }

    fn has_dense_biases(&self) -> bool {
        self.dense_form() == Some(DenseForm::PlainBiased)
    }

    /// Returns the form of a dense feed-forward, or `None` if the layer has experts.
    fn dense_form(&self) -> Option<DenseForm> {
        match &self.feed_forward {
            FeedForward::Dense(dense) => Some(dense.form),
            FeedForward::Experts(_) => None,
        }
    }

    fn has_experts(&self) -> bool {
        self.feed_forward.experts().is_some()
    }

    fn has_shared_expert(&self) -> bool {
        self.feed_forward.shared_expert().is_some()
    }

    fn has_shared_router(&self) -> bool {
        let shared = self.feed_forward.shared_expert();
        shared.is_some_and(|shared| shared.gated)
    }
}

/// The sizes of the table's rows.
impl FeedForward {
    /// Returns the number of experts, or 0 if the feed-forward is dense.
    fn expert_count(&self) -> u32 {
        self.experts().map_or(0, |experts| experts.count)
    }

    /// Returns the rows of the shared expert's gate matrix, or 0 without one.
    fn shared_width(&self) -> u32 {
        self.shared_expert().map_or(0, |shared| shared.width)
    }
}

/// `f` of a weight that may be optional.
macro_rules! mapped {
    ($f:expr, $from:expr) => {
        $f($from)?
    };
    ($f:expr, $from:expr, $has:ident) => {
        $from.as_ref().map(&mut *$f).transpose()?
    };
}

/// `f` of a row, if the layer has the weight.
macro_rules! read {
    ($f:expr, $layer:expr, $role:expr) => {
        $f($role)?
    };
    ($f:expr, $layer:expr, $role:expr, $has:ident) => {
        if $layer.$has() {
            Some($f($role)?)
        } else {
            None
        }
    };
}

macro_rules! roles {
    ($($(#[doc = $doc:literal])* $role:ident: $type:ty = $tensor:literal, $shape:expr $(, if $has:ident)?;)*) => {
        /// A value per weight of a transformer block. Norms and biases are in F32.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Block<T> {
            $($(#[doc = $doc])* pub $role: $type,)*
        }

        /// The rows, in the order of the forward pass.
        pub(crate) const ROLES: &[Role] = &[$(Role { tensor: $tensor, shape: $shape },)*];

        impl<T> Block<T> {
            /// Converts each element, and keeps the structure.
            pub(crate) fn try_map<'a, U, E>(
                &'a self,
                f: &mut impl FnMut(&'a T) -> Result<U, E>,
            ) -> Result<Block<U>, E> {
                Ok(Block { $($role: mapped!(f, &self.$role $(, $has)?),)* })
            }

            /// The block of a layer: `f` of each row whose weight it has.
            pub(crate) fn of<E>(
                layer: &Layer,
                mut f: impl FnMut(&Role) -> Result<T, E>,
            ) -> Result<Block<T>, E> {
                Ok(Block {
                    $($role: read!(f, layer, &Role { tensor: $tensor, shape: $shape } $(, $has)?),)*
                })
            }
        }
    };
}

impl<T> Block<T> {
    /// Returns the seven projections that an adapter can have, in the order of the forward pass. A
    /// layer with experts has no dense gate, up and down, and some families have no gate.
    pub fn projections(&self) -> [Option<&T>; 7] {
        [
            Some(&self.q),
            Some(&self.k),
            Some(&self.v),
            Some(&self.o),
            self.gate.as_ref(),
            self.up.as_ref(),
            self.down.as_ref(),
        ]
    }

    /// Returns the gate, up and down matrices of a dense feed-forward, or `None` if the layer has
    /// experts or no gate.
    pub fn dense(&self) -> Option<[&T; 3]> {
        Some([self.gate.as_ref()?, self.up.as_ref()?, self.down.as_ref()?])
    }

    /// Returns the matrices of all experts and of the shared expert, in the order of the forward
    /// pass. The routers are not among them.
    pub fn expert_matrices(&self) -> impl Iterator<Item = &T> {
        [
            &self.gate_experts,
            &self.up_experts,
            &self.down_experts,
            &self.gate_shared,
            &self.up_shared,
            &self.down_shared,
        ]
        .into_iter()
        .flatten()
    }
}

use Shape::{Experts, Matrix, Rows, Vector};

roles! {
    /// `[hidden]`: before attention.
    attn_norm: Option<T> = "attn_norm.weight", |c, _, _| Vector(c.hidden), if has_mixer_norm;
    /// `[hidden]`: the bias of the norm before attention.
    attn_norm_bias: Option<T> = "attn_norm.bias", |c, _, _| Vector(c.hidden), if has_mixer_norm_bias;
    /// `[heads * head_dim, hidden]`
    q: T = "attn_q.weight", |c, a, _| Matrix(a.q_len(), c.hidden);
    /// `[kv_heads * head_dim, hidden]`
    k: T = "attn_k.weight", |c, a, _| Matrix(a.kv_len(), c.hidden);
    /// `[kv_heads * head_dim, hidden]`
    v: T = "attn_v.weight", |c, a, _| Matrix(a.kv_len(), c.hidden);
    /// `[heads * head_dim]`
    q_bias: Option<T> = "attn_q.bias", |_, a, _| Vector(a.q_len()), if has_qkv_bias;
    /// `[kv_heads * head_dim]`
    k_bias: Option<T> = "attn_k.bias", |_, a, _| Vector(a.kv_len()), if has_qkv_bias;
    /// `[kv_heads * head_dim]`
    v_bias: Option<T> = "attn_v.bias", |_, a, _| Vector(a.kv_len()), if has_qkv_bias;
    /// `[head_dim]`: of each head of q; or `[heads * head_dim]`: of q.
    q_norm: Option<T> = "attn_q_norm.weight", |_, a, _| Vector(a.normed_at_once(a.q_len())), if has_head_norms;
    /// `[head_dim]`: of each head of k; or `[kv_heads * head_dim]`: of k.
    k_norm: Option<T> = "attn_k_norm.weight", |_, a, _| Vector(a.normed_at_once(a.kv_len())), if has_head_norms;
    /// `[hidden, heads * head_dim]`
    o: T = "attn_output.weight", |c, a, _| Matrix(c.hidden, a.q_len());
    /// `[hidden]`
    o_bias: Option<T> = "attn_output.bias", |c, _, _| Vector(c.hidden), if has_output_bias;
    /// `[heads]`: the scores of the attention sinks.
    sinks: Option<T> = "attn_sinks.weight", |_, a, _| Vector(a.heads), if has_sinks;
    /// `[hidden]`: after attention.
    attn_post_norm: Option<T> = "post_attention_norm.weight", |c, _, _| Vector(c.hidden), if has_norms_after;
    /// `[hidden]`: before the feed-forward.
    ffn_norm: Option<T> = "ffn_norm.weight", |c, _, _| Vector(c.hidden), if has_feed_forward_norm;
    /// `[hidden]`: the bias of the norm before the feed-forward.
    ffn_norm_bias: Option<T> = "ffn_norm.bias", |c, _, _| Vector(c.hidden), if has_feed_forward_norm_bias;
    /// `[feed_forward, hidden]`, of a dense feed-forward with a gate.
    gate: Option<T> = "ffn_gate.weight", |c, _, f| Matrix(f.width(), c.hidden), if has_dense_gate;
    /// `[feed_forward, hidden]`, of a dense feed-forward.
    up: Option<T> = "ffn_up.weight", |c, _, f| Matrix(f.width(), c.hidden), if is_dense;
    /// `[feed_forward]`, of a dense feed-forward with biases.
    up_bias: Option<T> = "ffn_up.bias", |_, _, f| Vector(f.width()), if has_dense_biases;
    /// `[hidden, feed_forward]`, of a dense feed-forward.
    down: Option<T> = "ffn_down.weight", |c, _, f| Matrix(c.hidden, f.width()), if is_dense;
    /// `[hidden]`, of a dense feed-forward with biases.
    down_bias: Option<T> = "ffn_down.bias", |c, _, _| Vector(c.hidden), if has_dense_biases;
    /// `[experts, hidden]` in F32: the logit of each expert.
    router: Option<T> = "ffn_gate_inp.weight", |c, _, f| Rows(f.expert_count(), c.hidden), if has_experts;
    /// `[experts, width, hidden]`
    gate_experts: Option<T> = "ffn_gate_exps.weight", |c, _, f| Experts(f.expert_count(), f.width(), c.hidden), if has_experts;
    /// `[experts, width, hidden]`
    up_experts: Option<T> = "ffn_up_exps.weight", |c, _, f| Experts(f.expert_count(), f.width(), c.hidden), if has_experts;
    /// `[experts, hidden, width]`
    down_experts: Option<T> = "ffn_down_exps.weight", |c, _, f| Experts(f.expert_count(), c.hidden, f.width()), if has_experts;
    /// `[experts]`
    router_bias: Option<T> = "ffn_gate_inp.bias", |_, _, f| Vector(f.expert_count()), if has_expert_biases;
    /// `[experts, width]` in F32.
    gate_experts_bias: Option<T> = "ffn_gate_exps.bias", |_, _, f| Rows(f.expert_count(), f.width()), if has_expert_biases;
    /// `[experts, width]` in F32.
    up_experts_bias: Option<T> = "ffn_up_exps.bias", |_, _, f| Rows(f.expert_count(), f.width()), if has_expert_biases;
    /// `[experts, hidden]` in F32.
    down_experts_bias: Option<T> = "ffn_down_exps.bias", |c, _, f| Rows(f.expert_count(), c.hidden), if has_expert_biases;
    /// `[hidden]`: the gate of the shared expert's output.
    shared_router: Option<T> = "ffn_gate_inp_shexp.weight", |c, _, _| Vector(c.hidden), if has_shared_router;
    /// `[width, hidden]` of the shared expert.
    gate_shared: Option<T> = "ffn_gate_shexp.weight", |c, _, f| Matrix(f.shared_width(), c.hidden), if has_shared_expert;
    /// `[width, hidden]` of the shared expert.
    up_shared: Option<T> = "ffn_up_shexp.weight", |c, _, f| Matrix(f.shared_width(), c.hidden), if has_shared_expert;
    /// `[hidden, width]` of the shared expert.
    down_shared: Option<T> = "ffn_down_shexp.weight", |c, _, f| Matrix(c.hidden, f.shared_width()), if has_shared_expert;
    /// `[hidden]`: after the feed-forward.
    ffn_post_norm: Option<T> = "post_ffw_norm.weight", |c, _, _| Vector(c.hidden), if has_norms_after;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::family::Architecture;

    /// So that no part of a tensor is lost, and none is read twice.
    #[test]
    fn fused_tensors_are_of_known_roles() {
        for architecture in Architecture::ALL {
            for (tensor, parts) in architecture.fused {
                for (i, part) in parts.iter().enumerate() {
                    assert!(
                        ROLES.iter().any(|role| role.tensor == *part),
                        "{tensor}: {part}"
                    );
                    assert!(!parts[..i].contains(part), "{tensor}: {part} twice");
                }
            }
        }
    }
}
