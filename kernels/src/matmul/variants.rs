//! The shipped variants of the matmuls.

use super::bounds::RowBounds;
use super::definition::{Append, Epilogue, Matmul};
use super::dequantize::DequantizeTiles;
use super::norm::NormTokens;
use super::sync::MatmulSync;
use super::wgmma::pair::MatmulPair;
pub(super) use super::wgmma::sm_share::SmShare;
use crate::format::Format::{self, *};
use crate::format::dequantize::ColumnOrder;
use crate::format::tile::RowOrder;
use crate::harness::variants::Variants;
use crate::shared::Overlap;
use crate::simple::rope::Pairing;
use crate::simple::swiglu::Activation;

/// Returns the unpacking of tiles, and the matmuls.
pub(crate) fn matmuls() -> Variants {
    let mut list = Variants::default();
    list.add(Format::tiled().map(|format| DequantizeTiles { format }));
    list.add(Format::tiled().map(|format| RowBounds { format }));
    let of = |format, epilogue| Matmul::new(format, epilogue, RowOrder::PLAIN, 64);
    list.add(Format::tiled().map(|format| of(format, Epilogue::Add)));
    list.add([Matmul {
        tokens: 256,
        ..of(Q6_K, Epilogue::Add)
    }]);
    list.add([Matmul {
        rows: RowOrder::half_split(128),
        tokens: 256,
        ..of(Q4_K, Epilogue::Store)
    }]);
    let gated = |activation, group| Epilogue::Gated(activation, order(group));
    let gate_up = |format, epilogue| Matmul {
        rows: RowOrder::GATE_UP,
        tokens: 128,
        ..of(format, epilogue)
    };
    list.add([
        gate_up(Q4_K, gated(Activation::Silu, 16)),
        gate_up(Q8_0, gated(Activation::Silu, 32)),
        Matmul {
            tokens: 256,
            tail: 128,
            ..gate_up(Q4_K, gated(Activation::Silu, 16))
        },
        gate_up(BF16, gated(Activation::GeluTanh, 8)),
    ]);
    let narrow = |tokens, split, matmul| Matmul {
        tokens,
        split,
        overlap: Overlap::Early,
        ..matmul
    };
    let half = |matmul| Matmul {
        form: SmShare::Half,
        ..matmul
    };
    list.add([
        half(narrow(8, 1, gate_up(Q4_K, gated(Activation::Silu, 32)))),
        narrow(16, 2, gate_up(Q4_K, gated(Activation::Silu, 32))),
        narrow(8, 4, of(Q4_K, Epilogue::Store)),
        Matmul {
            overlap: Overlap::Late,
            ..narrow(16, 4, of(Q4_K, Epilogue::Add))
        },
        narrow(32, 3, of(Q6_K, Epilogue::Add)),
        half(narrow(16, 8, of(BF16, Epilogue::Add))),
        Matmul {
            overlap: Overlap::No,
            ..narrow(128, 2, of(Q4_K, Epilogue::Add))
        },
        Matmul {
            tail: 64,
            ..narrow(128, 1, of(Q4_K, Epilogue::Add))
        },
        Matmul {
            form: SmShare::Tall,
            ..narrow(64, 1, of(Q8_0, Epilogue::Store))
        },
        Matmul {
            rows: RowOrder::half_split(128),
            ..half(narrow(32, 1, of(Q6_K, Epilogue::Store)))
        },
    ]);
    let append = |head_dim, pairing, bias| Append {
        head_dim,
        pairing,
        bias,
    };
    let pairs = |format, append: Append| Matmul {
        rows: append.pairs(),
        ..of(format, Epilogue::Append(append))
    };
    list.add([
        pairs(Q4_K, append(128, Pairing::Interleaved, false)),
        Matmul {
            tokens: 256,
            ..pairs(Q4_K, append(128, Pairing::HalfSplit, true))
        },
        Matmul {
            tokens: 256,
            ..pairs(BF16, append(128, Pairing::Interleaved, false))
        },
        narrow(16, 3, pairs(Q4_K, append(64, Pairing::HalfSplit, true))),
        narrow(64, 4, pairs(Q6_K, append(128, Pairing::Interleaved, false))),
        Matmul {
            tokens: 128,
            ..of(
                Q6_K,
                Epilogue::Append(append(128, Pairing::HalfSplit, true)),
            )
        },
    ]);
    list.append(pairs_of_matrices());
    list.append(matmul_sync());
    list.append(super::experts::variants::all());
    list
}

/// Returns the norms of many tokens.
pub(crate) fn norms() -> Variants {
    let mut list = Variants::default();
    let norm = |group, second: Option<u32>| NormTokens {
        order: order(group),
        second: second.map(order),
        overlap: Overlap::No,
    };
    list.add([
        norm(8, None),
        norm(16, None),
        norm(32, None),
        norm(32, Some(16)),
    ]);
    list.add([NormTokens {
        overlap: Overlap::Early,
        ..norm(32, Some(16))
    }]);
    list
}

/// Returns the matmuls of two matrices in one kernel.
fn pairs_of_matrices() -> Variants {
    let mut list = Variants::default();
    let of = |tokens, parts, format, append, rows| Matmul {
        tokens,
        split: parts,
        ..Matmul::new(format, Epilogue::Append(append), rows, 64)
    };
    let both = |append: Append, [first, second]: [(Format, u32, u32); 2], overlap| {
        let product = |(format, tokens, parts), rows| Matmul {
            overlap,
            ..of(tokens, parts, format, append, rows)
        };
        let first = product(first, append.pairs());
        let second = product(second, RowOrder::PLAIN);
        MatmulPair::of(first, second).expect("they go together")
    };
    let llama = Append {
        head_dim: 128,
        pairing: Pairing::Interleaved,
        bias: false,
    };
    let qwen = Append {
        head_dim: 64,
        pairing: Pairing::HalfSplit,
        bias: true,
    };
    list.add([
        both(llama, [(Q4_K, 64, 2), (Q6_K, 64, 3)], Overlap::No),
        both(qwen, [(Q4_K, 16, 3), (Q5_K, 16, 2)], Overlap::Early),
        both(llama, [(Q4_K, 128, 2), (Q6_K, 128, 2)], Overlap::No),
    ]);
    list
}

/// Returns the matmuls with `mma.sync`.
fn matmul_sync() -> Variants {
    let mut list = Variants::default();
    let of = |format, epilogue, tokens, row_blocks| MatmulSync {
        format,
        epilogue,
        rows: RowOrder::PLAIN,
        tokens,
        row_blocks,
    };
    list.add(Format::tiled().map(|format| of(format, Epilogue::Add, 96, 2)));
    let gated = |activation, group| Epilogue::Gated(activation, order(group));
    let gate_up = |kernel| MatmulSync {
        rows: RowOrder::GATE_UP,
        ..kernel
    };
    list.add([
        of(Q6_K, Epilogue::Add, 128, 1),
        of(Q8_0, Epilogue::Add, 16, 1),
        of(F16, Epilogue::Store, 128, 1),
        MatmulSync {
            rows: RowOrder::half_split(128),
            ..of(Q4_K, Epilogue::Store, 64, 2)
        },
        MatmulSync {
            rows: RowOrder::half_split(128),
            ..of(
                Q4_K,
                Epilogue::Append(Append {
                    head_dim: 128,
                    pairing: Pairing::HalfSplit,
                    bias: true,
                }),
                96,
                2,
            )
        },
        gate_up(of(Q4_K, gated(Activation::Silu, 16), 128, 1)),
        gate_up(of(BF16, gated(Activation::GeluTanh, 32), 48, 2)),
    ]);
    list
}

/// Returns the order of columns in groups of this length.
fn order(group: u32) -> ColumnOrder {
    ColumnOrder { group }
}
