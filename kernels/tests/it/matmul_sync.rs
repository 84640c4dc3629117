//! Test that the matmuls with `wgmma` and with `mma.sync` give equal bits, for every shape of a
//! job.

use crate::machine::once;
use ptx_gen::{AnyKernel, CpuArg, Geometry, KernelDef, ShapeArg};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::format::tile::RowOrder;
use warpwright_kernels::matmul::{Append, Epilogue, Matmul, MatmulSync};
use warpwright_kernels::{Activation, Format, Pairing, Variant};

/// Returns the bits of an argument.
fn bits(args: &[CpuArg], kernel: &dyn Variant, name: &str) -> Vec<u32> {
    match &args[kernel
        .params()
        .iter()
        .position(|param| param.name == name)
        .expect(name)]
    {
        CpuArg::F32(values) => values.iter().map(|x| x.to_bits()).collect(),
        CpuArg::F16(values) => values.iter().map(|x| x.0.into()).collect(),
        other => panic!("{other:?}"),
    }
}

/// The kernels with jobs of other sizes that compute the same results on arguments with room for
/// 128 tokens.
fn alike(format: Format, epilogue: Epilogue, rows: RowOrder) -> (Matmul, [MatmulSync; 3]) {
    let sync = |(tokens, row_blocks)| MatmulSync {
        format,
        epilogue,
        rows,
        tokens,
        row_blocks,
    };
    (
        Matmul::new(format, epilogue, rows, 64),
        [(16, 1), (64, 1), (32, 2)].map(sync),
    )
}

#[test]
fn both_instructions_give_the_same_bits() {
    let gated = Epilogue::Gated(Activation::Silu, ColumnOrder { group: 32 });
    let append = Append {
        head_dim: 64,
        pairing: Pairing::HalfSplit,
        bias: true,
    };
    let kernels = [
        (Format::Q4_K, Epilogue::Add, RowOrder::PLAIN, "y"),
        (Format::Q8_0, Epilogue::Store, RowOrder::half_split(64), "y"),
        (Format::BF16, gated, RowOrder::GATE_UP, "gated"),
        (
            Format::Q4_K,
            Epilogue::Append(append),
            append.pairs(),
            "k_cache",
        ),
    ];
    for (format, epilogue, rows, name) in kernels {
        let (wgmma, syncs) = alike(format, epilogue, rows);
        for case in wgmma.cases(3) {
            let wanted = bits(&once(&wgmma, &case.args), &wgmma, name);
            for sync in syncs {
                assert_eq!(
                    bits(&once(&sync, &case.args), &sync, name),
                    wanted,
                    "{}",
                    KernelDef::name(&sync)
                );
            }
        }
    }
}

#[test]
fn a_tail_changes_no_bits() {
    let alike = Matmul::new(Format::Q4_K, Epilogue::Add, RowOrder::PLAIN, 128);
    let tail = Matmul { tail: 64, ..alike };
    for case in tail.cases(5) {
        let [wanted, found] =
            [alike, tail].map(|kernel| bits(&once(&kernel, &case.args), &kernel, "y"));
        assert!(found == wanted, "{}", case.label);
    }
}

#[test]
fn jobs_that_do_not_fit_are_refused() {
    let of = |format, tokens, row_blocks| MatmulSync {
        format,
        epilogue: Epilogue::Add,
        rows: RowOrder::PLAIN,
        tokens,
        row_blocks,
    };
    for format in Format::ALL
        .into_iter()
        .filter(|format| format.tile().is_some())
    {
        for (most, row_blocks, room) in [(128, 1, MatmulSync::SMALL), (96, 2, MatmulSync::LARGE)] {
            for tokens in (16..=most).step_by(16) {
                let kernel = of(format, tokens, row_blocks);
                match geometry(&kernel) {
                    Ok(geometry) => assert!(
                        kernel.fits() && geometry.shared <= room,
                        "{format:?} {tokens}"
                    ),
                    Err(e) => {
                        assert!(
                            e.ends_with(&format!("{tokens} tokens do not fit in shared memory")),
                            "{e}"
                        );
                        assert!(tokens > 96, "{format:?} {tokens}");
                    }
                }
            }
        }
    }
    assert!(!of(Format::Q8_0, 128, 1).fits() && of(Format::Q8_0, 96, 1).fits());
}

/// Returns the geometry for the kernel's first case.
fn geometry(kernel: &MatmulSync) -> Result<Geometry, String> {
    let shapes: Vec<ShapeArg> = kernel.cases(1)[0].args.iter().map(CpuArg::shape).collect();
    AnyKernel::geometry(kernel, &shapes).map_err(|e| e.to_string())
}
