//! The shipped variants of training.

use super::attention::{DocumentAttention, KeyGradients, QueryGradients, SumGroups};
use super::cross_entropy::{LogitGradients, TokenLosses};
use super::dropout::AddMasked;
use super::embed::EmbedTokens;
use super::linear::BroadcastRow;
use super::nested::NestedDequantize;
use super::nf4::Nf4Dequantize;
use super::optimizer::adamw::AdamWUpdate;
use super::optimizer::clip::SquareSums;
use super::optimizer::micro_batch::FetchMicroBatch;
use super::optimizer::schedule::Decay;
use super::optimizer::state::{EndMicroBatch, EndStep};
use super::products::{MatmulLayout, Product};
use super::rms_norm::{RmsNormBackward, RmsNormForward};
use super::rope::{Direction, RotateHeads};
use super::swiglu::SwiGluBackward;
use super::{flash, half};
use crate::harness::variants::Variants;
use crate::simple::rope::Pairing;

/// Returns the kernels of a training step.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    let threads = 256;
    list.add([Nf4Dequantize { threads }]);
    list.add([NestedDequantize { threads }]);
    list.add([RmsNormForward { threads }]);
    list.add([RmsNormBackward { threads }]);
    list.add([SwiGluBackward { threads }]);
    let dims = [16, 80, 128];
    list.add(dims.map(|head_dim| DocumentAttention { head_dim }));
    list.add(dims.map(|head_dim| QueryGradients { head_dim }));
    list.add(dims.map(|head_dim| KeyGradients { head_dim }));
    list.add([SumGroups]);
    list.append(flash::variants::all());
    list.add([TokenLosses { threads }]);
    list.add([LogitGradients { threads }]);
    list.add([AdamWUpdate { threads }]);
    list.add([FetchMicroBatch { threads, slots: 4 }]);
    list.add([EmbedTokens { threads }]);
    list.add([BroadcastRow]);
    list.add([AddMasked { threads }]);
    list.add([EndMicroBatch { threads }]);
    list.add([SquareSums { threads }]);
    list.add([Decay::Cosine, Decay::Linear, Decay::Constant].map(|decay| EndStep { decay }));
    let forms = [MatmulLayout::Nt, MatmulLayout::Nn, MatmulLayout::Tn];
    list.add(
        forms
            .into_iter()
            .flat_map(|form| [1, 4].map(|width| Product { form, width })),
    );
    let pairings = [Pairing::Interleaved, Pairing::HalfSplit];
    let directions = [Direction::Forward, Direction::Backward];
    let rotate = |pairing| directions.map(|direction| RotateHeads { pairing, direction });
    list.add(pairings.into_iter().flat_map(rotate));
    list.append(half::variants::all());
    list
}
