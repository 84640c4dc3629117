//! Adapters in files.

use std::path::Path;
use std::process::Command;

use safetensors::SafeTensors;
use warpwright_model::RopePairing;
use warpwright_model::adapter::names;
use warpwright_train::Projection;
use warpwright_train::peft::{self, AdapterShapes};

use crate::setup::{Setup, read};

fn shapes(setup: &Setup, pairing: RopePairing) -> AdapterShapes<'_> {
    AdapterShapes {
        config: &setup.config,
        lora: &setup.lora,
        pairing,
    }
}

/// Names, shapes and types are PEFT's.
#[test]
fn an_adapter_has_the_names_that_peft_reads() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let folder = tempfile::tempdir().unwrap();
    peft::write(
        folder.path(),
        &shapes(&setup, RopePairing::HalfSplit),
        &setup.moved(),
        "some/model",
    )
    .unwrap();
    let bytes = std::fs::read(folder.path().join("adapter_model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut lines: Vec<String> = tensors
        .iter()
        .map(|(name, view)| format!("{name} {:?} {:?}", view.dtype(), view.shape()))
        .collect();
    lines.sort();
    let config = std::fs::read_to_string(folder.path().join("adapter_config.json")).unwrap();
    insta::assert_snapshot!("adapter", format!("{}\n\n{config}", lines.join("\n")));
}

/// What has no code of ours reads the same from the files.
#[test]
fn numpy_reads_the_adapter() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let folder = tempfile::tempdir().unwrap();
    let moved = setup.moved();
    peft::write(
        folder.path(),
        &shapes(&setup, RopePairing::HalfSplit),
        &moved,
        "some/model",
    )
    .unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/read_adapter.py");

    // `cargo xtask ci outside` makes a Python that has NumPy.
    let own = Path::new(concat!(
        env!("CARGO_TARGET_TMPDIR"),
        "/../outside/python/bin/python3"
    ));
    let python = if own.exists() {
        own
    } else {
        Path::new("python3")
    };
    let read = Command::new(python)
        .arg("-B")
        .arg(script)
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let found = String::from_utf8(read.stdout).unwrap();
    if found.trim() == "no numpy" {
        println!("not run: numpy_reads_the_adapter, as python3 has no numpy");
        return;
    }

    let mut wanted = vec!["LORA r 4 alpha 8 of q_proj, v_proj".to_owned()];
    for (l, layer) in moved.layers.iter().enumerate() {
        for (p, factors) in layer.iter().enumerate() {
            let Some(factors) = factors else { continue };
            let [n, k] = Projection::ALL[p].shape(&setup.config);
            for (factor, shape, numbers) in [("A", [4, k], &factors.a), ("B", [n, 4], &factors.b)] {
                let name = names::tensor(l, p, factor);
                // The sum of the bits tells numbers apart, and their order by their places.
                let sum = (1..).zip(numbers).fold(0u64, |sum, (i, x)| {
                    sum.wrapping_add(i * u64::from((*x as f32).to_bits()))
                });
                wanted.push(format!("{name} float32 {shape:?} {sum}"));
            }
        }
    }

    let mut found: Vec<&str> = found.lines().collect();
    found[1..].sort_unstable();
    wanted[1..].sort_unstable();
    assert_eq!(found, wanted);
}

/// Rows that a GGUF file has permuted go back to where the original model has them.
#[test]
fn rows_go_to_the_order_of_the_original_model() {
    let setup = Setup::new(&read("llama-r4")["config"]);
    let moved = setup.moved();
    let shapes = |pairing| shapes(&setup, pairing);
    let folder = tempfile::tempdir().unwrap();
    peft::write(
        folder.path(),
        &shapes(RopePairing::Interleaved),
        &moved,
        "some/model",
    )
    .unwrap();
    assert_eq!(
        peft::read(folder.path(), &shapes(RopePairing::Interleaved)).unwrap(),
        moved
    );

    let original = peft::read(folder.path(), &shapes(RopePairing::HalfSplit)).unwrap();
    let (rank, dim) = (setup.lora.rank, setup.config.head_dim);
    let [found, ours] = [&original, &moved].map(|all| &all.layers[1][0].as_ref().unwrap().b);

    // Pair i of head 2 is rows 2 i and 2 i + 1 of a GGUF file, and rows i and i + dim / 2 of the original.
    for i in 0..dim / 2 {
        for half in 0..2 {
            let (from, to) = (2 * dim + 2 * i + half, 2 * dim + half * (dim / 2) + i);
            assert_eq!(found[to * rank..][..rank], ours[from * rank..][..rank]);
        }
    }

    let [found, ours] = [&original, &moved].map(|all| &all.layers[1][2].as_ref().unwrap().b);
    assert_eq!(found, ours, "values are not permuted");
}

#[test]
fn refuses_tensors_of_other_shapes() {
    let (four, eight) = (
        Setup::new(&read("llama-r4")["config"]),
        Setup::new(&read("qwen2-r8")["config"]),
    );
    let folder = tempfile::tempdir().unwrap();
    peft::write(
        folder.path(),
        &shapes(&four, RopePairing::HalfSplit),
        &four.moved(),
        "some/model",
    )
    .unwrap();
    let error = peft::read(folder.path(), &shapes(&eight, RopePairing::HalfSplit))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("lora_A.weight is F32 [4, 64], but must be F32 [8, 96]"),
        "{error}"
    );
}
