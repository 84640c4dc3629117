//! The shipped variants of the kernels for experts of many tokens.

use super::choose::ChooseTokenExperts;
use super::combine::CombineTokens;
use super::gather::GatherTokens;
use super::matmul::{MatmulExperts, MatmulSyncExperts};
use super::router::{RouterLogits, RouterTile};
use super::sort::SortTokens;
use crate::format::Format::{self, *};
use crate::format::dequantize::ColumnOrder;
use crate::format::tile::RowOrder;
use crate::harness::variants::Variants;
use crate::matmul::definition::{Epilogue, Matmul};
use crate::matmul::sync::definition::MatmulSync;
use crate::shared::Overlap;
use crate::simple::choose_experts::Weighting;
use crate::simple::swiglu::Activation;

/// Returns all variants, in the order of a layer.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    let overlaps = [Overlap::No, Overlap::Early];
    list.add([
        RouterLogits {
            tile: RouterTile::Small,
            overlap: Overlap::Early,
        },
        RouterLogits {
            tile: RouterTile::Large,
            overlap: Overlap::No,
        },
    ]);
    let choose = |count, weighting| ChooseTokenExperts::new(count, weighting);
    list.add([
        choose(32, Weighting::Chosen),
        choose(128, Weighting::All),
        ChooseTokenExperts {
            overlap: Overlap::Early,
            ..choose(128, Weighting::Chosen)
        },
    ]);
    list.add(overlaps.map(|overlap| SortTokens { overlap }));
    list.add(overlaps.map(|overlap| GatherTokens { overlap }));
    list.append(matmuls());
    list.add(overlaps.map(|overlap| CombineTokens { overlap }));
    list
}

/// Returns the matmuls: every format that files with experts have, in narrow groups, and each width
/// and form.
fn matmuls() -> Variants {
    let mut list = Variants::default();
    let store =
        |format, width| MatmulExperts::planned(format, Epilogue::Store, RowOrder::PLAIN, width);
    let gated = |format, group, width| {
        let order = ColumnOrder { group };
        let epilogue = Epilogue::Gated(Activation::Silu, order);
        MatmulExperts::planned(format, epilogue, RowOrder::GATE_UP, width)
    };
    let early = |kernel: MatmulExperts| MatmulExperts {
        matmul: Matmul {
            overlap: Overlap::Early,
            ..kernel.matmul
        },
    };
    list.add([Q4_K, Q5_K, Q6_K, Q8_0, F16, BF16, MXFP4].map(|format| store(format, 8)));
    list.add([
        early(store(Q6_K, 16)),
        early(gated(Q4_K, 32, 8)),
        gated(Q8_0, 32, 64),
        gated(Q4_K, 16, 128),
    ]);

    let sync = |format: Format, epilogue, rows, tokens, row_blocks| MatmulSyncExperts {
        matmul: MatmulSync {
            format,
            epilogue,
            rows,
            tokens,
            row_blocks,
        },
    };
    let silu = Epilogue::Gated(Activation::Silu, ColumnOrder { group: 16 });
    list.add([
        sync(Q6_K, Epilogue::Store, RowOrder::PLAIN, 16, 1),
        sync(Q4_K, silu, RowOrder::GATE_UP, 64, 1),
    ]);
    list
}
