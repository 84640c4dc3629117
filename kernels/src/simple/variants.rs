//! The shipped variants of the simple kernels.

use super::add_bias::AddBias;
use super::argmax::{ArgmaxBlocks, ArgmaxFinal};
use super::attention::{Attention, AttentionCombine, AttentionCombineSinks};
use super::choose_experts::{ChooseExperts, Weighting};
use super::embed::{Embed, EmbeddingScale};
use super::experts::{AddExpertBias, AddExperts, AddGated, CombineExperts, ExpertGemv};
use super::gemv::{Gemv, GemvAdd, GemvBias, Team};
use super::layer_norm::LayerNorm;
use super::log_likelihood::LogLikelihood;
use super::rms_norm::RmsNorm;
use super::rope::{Pairing, Rope};
use super::soft_cap::SoftCap;
use super::swiglu::{Activation, ClampedSwiGlu, SwiGlu};
use crate::format::Format;
use crate::harness::sizes::{HEADS, heads};
use crate::harness::variants::Variants;
use crate::shared::constant::Constant;

/// Returns the embeddings of all formats.
pub(crate) fn embeddings() -> Variants {
    let mut list = Variants::default();
    list.add(Format::ALL.map(|format| Embed {
        format,
        scale: EmbeddingScale::One,
    }));
    list
}

/// Returns the embeddings that scale.
pub(crate) fn scaled_embeddings() -> Variants {
    let mut list = Variants::default();
    list.add([Embed {
        format: Format::Q8_0,
        scale: EmbeddingScale::RootOfLength,
    }]);
    list
}

/// Returns the kernels of a layer up to attention, and the log-likelihoods.
pub(crate) fn layer() -> Variants {
    let mut list = Variants::default();
    let teams = || {
        Format::ALL
            .into_iter()
            .flat_map(|format| [Team::Warp, Team::Block].map(|t| (format, t)))
    };
    list.add([RmsNorm { threads: 256 }, RmsNorm { threads: 1024 }]);
    list.add(teams().map(|(format, team)| Gemv { format, team }));
    list.add(teams().map(|(format, team)| GemvBias { format, team }));
    list.add(teams().map(|(format, team)| GemvAdd { format, team }));
    let rope = |pairing, magnitude| Rope { pairing, magnitude };
    list.add([
        rope(Pairing::Interleaved, 1.0),
        rope(Pairing::HalfSplit, 1.0),
    ]);
    list.add([rope(Pairing::HalfSplit, 1.190_238_1)]);
    let attention = |(head_dim, queries), window| Attention {
        head_dim,
        queries,
        window,
        soft_cap: None,
    };
    list.add(heads().map(|heads| attention(heads, None)));
    let windows = [(96, 1, 2047), (128, 2, 1024), (256, 2, 1024), (256, 4, 512)];
    list.add(
        windows.map(|(head_dim, queries, window)| attention((head_dim, queries), Some(window))),
    );
    list.add(HEADS.map(|(head_dim, _)| AttentionCombine { head_dim }));
    list.add([
        LogLikelihood { threads: 256 },
        LogLikelihood { threads: 1024 },
    ]);
    list
}

/// Returns the activations of a feed-forward network, and the choice of a token.
pub(crate) fn activation_and_argmax() -> Variants {
    let mut list = Variants::default();
    let activations = [Activation::Silu, Activation::GeluTanh];
    list.add(activations.map(|activation| SwiGlu {
        threads: 256,
        activation,
    }));
    list.add([ArgmaxBlocks { threads: 256 }]);
    list.add([ArgmaxFinal]);
    list
}

/// Returns the kernels of families with LayerNorm, soft caps or a factor of embeddings.
pub(crate) fn norms_and_caps() -> Variants {
    let mut list = Variants::default();
    list.add([LayerNorm { threads: 256 }, LayerNorm { threads: 1024 }]);
    list.add([SoftCap]);
    let cap = Some(Constant::new(50.0));
    list.add(
        [(256, 2, None), (256, 2, Some(4096))].map(|(head_dim, queries, window)| Attention {
            head_dim,
            queries,
            window,
            soft_cap: cap,
        }),
    );
    list.add([Embed {
        format: Format::Q8_0,
        scale: EmbeddingScale::Factor(Constant::new(54.5)),
    }]);
    list
}

/// Returns the kernels of a mixture of experts.
pub(crate) fn experts() -> Variants {
    let mut list = Variants::default();
    list.add([Weighting::All, Weighting::Chosen].map(|weighting| ChooseExperts { weighting }));
    list.add(
        Format::ALL
            .into_iter()
            .flat_map(|format| [Team::Warp, Team::Block].map(|team| ExpertGemv { format, team })),
    );
    list.add([AddExpertBias]);
    list.add([CombineExperts]);
    list.add([AddExperts]);
    list.add([AddGated]);
    list.add([AddBias]);
    list.add([ClampedSwiGlu]);
    list.add([AttentionCombineSinks { head_dim: 64 }]);
    list
}
