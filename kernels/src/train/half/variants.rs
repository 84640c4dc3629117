//! The shipped variants of the kernels in `bf16`.

use super::convert::{self, Round};
use super::cross_entropy::LogitGradients;
use super::embed::EmbedTokens;
use super::linear::{Logits, LoraLinear, LoraSum, LoraSwiGlu, LoraSwiGluBackward};
use super::lora::{LoraDown, LoraGradients};
use super::nested::NestedDequantize;
use super::norm::{RmsNormBackward, RmsNormForward};
use super::rotate::{HeadsBackward, RotateForward};
use super::swiglu::{SwiGluBackward, SwiGluForward};
use crate::harness::variants::Variants;
use crate::shared::ProductTile;
use crate::simple::rope::Pairing;
use crate::train::products::MatmulLayout;

/// Returns the kernels of a training step in `bf16`.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    let [a, b, ..] = ProductTile::ALL.map(ProductTile::in_pairs);
    for tile in ProductTile::ALL.into_iter().chain([a, b]) {
        let linear = |form| LoraLinear {
            form,
            tile,
            bias: false,
            residual: false,
        };
        let [nt, nn] = [MatmulLayout::Nt, MatmulLayout::Nn].map(linear);
        list.add([
            nt,
            LoraLinear { bias: true, ..nt },
            LoraLinear {
                residual: true,
                ..nt
            },
        ]);
        list.add([
            nn,
            LoraLinear {
                residual: true,
                ..nn
            },
        ]);
        list.add([LoraSwiGlu { tile }]);
        list.add([LoraSum { tile }]);
        list.add([LoraSwiGluBackward { tile }]);
    }

    list.add([Logits]);
    list.add([16, 48, 128].map(|rank| LoraDown { rank }));
    list.add([16, 48, 64, 128].map(|rank| LoraGradients { rank }));
    let threads = 256;
    list.add([EmbedTokens { threads }]);
    list.add([RmsNormForward { threads }]);
    list.add([RmsNormBackward { threads }]);
    list.add([SwiGluForward { threads }]);
    list.add([SwiGluBackward { threads }]);
    list.add([LogitGradients { threads }]);
    list.add([Round]);
    list.add([convert::Nf4Dequantize]);
    list.add([NestedDequantize]);
    list.add([false, true].map(|add| convert::ApplyMask { add }));
    let rotate = |head_dim, pairing, norm| RotateForward {
        head_dim,
        pairing,
        norm,
    };
    let back = |head_dim, pairing, norm| HeadsBackward {
        head_dim,
        pairing,
        norm,
    };
    use Pairing::*;
    list.add([
        rotate(64, HalfSplit, false),
        rotate(128, Interleaved, false),
        rotate(128, HalfSplit, true),
    ]);
    list.add([
        back(64, Some(HalfSplit), false),
        back(128, Some(Interleaved), false),
    ]);
    list.add([back(128, Some(HalfSplit), true), back(80, None, false)]);
    list
}
