//! Adapters added to weights: which bytes change, and into what.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;
use warpwright_engine::{Decoder, Error, Launch, Options, Prefer};
use warpwright_model::merge::{Merge, MergeStats, SideFiles};
use warpwright_model::{Model, Weight};

use crate::adapter::{ALL, Made, Plan, make};
use crate::decode::{distance, emulator, logits};
use crate::synth::{BF16, F16, Q8_0, Synth, synth};
use crate::{hugging_face, oracle};

const F32: u32 = 0;

pub(crate) const LLAMA: Synth = Synth {
    arch: "llama",
    formats: &[F32, F16, BF16, F32, F16],
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    tied: true,
    scaled: false,
    vocab: 64,
};

/// Files, and their bytes.
type Written = Vec<(PathBuf, Vec<u8>)>;

/// The merged files, and what was done.
fn merge(model: &Model) -> Result<(Written, MergeStats), Error> {
    let merge = Merge::new(model)?;
    let mut change = MergeStats::default();
    let mut files = vec![];
    for file in merge.files() {
        let mut bytes = vec![];
        change += merge.write::<Error>(&file, |piece| {
            bytes.extend(piece);
            Ok(())
        })?;
        assert_eq!(bytes.len() as u64, file.bytes());
        files.push((file.path, bytes));
    }

    Ok((files, change))
}

/// Saves a merged GGUF file, and opens it.
fn merged(model: &Model, name: &str) -> (Model, MergeStats) {
    let (files, change) = merge(model).unwrap();
    let path = crate::scratch(&format!("merged-{name}.gguf"));
    fs::write(&path, &files[0].1).unwrap();
    (Model::open(&path).unwrap(), change)
}

/// A model of random numbers, an adapter of it, and the two together.
pub(crate) fn adapted(name: &str, case: Synth, plan: &Plan) -> (Model, Made, Model) {
    let base = Model::open(&synth(case).save(&format!("merge-{name}.gguf"))).unwrap();
    let made = make(&base, &format!("merge-{name}"), plan);
    let model = Model::open(base.files.path())
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap();
    (base, made, model)
}

const FEW: Plan = Plan {
    ranks: [3, 0, 16, 0, 0, 5, 8],
    first_layer: 1,
    dtype: Dtype::F16,
};

fn cases() -> [(&'static str, Synth, Plan); 4] {
    let wide = Plan {
        ranks: [40, 0, 0, 1, 7, 0, 256],
        first_layer: 0,
        dtype: Dtype::BF16,
    };
    [
        ("llama", LLAMA, ALL),
        (
            "few",
            Synth {
                tied: false,
                ..LLAMA
            },
            FEW,
        ),
        (
            "qwen2",
            Synth {
                arch: "qwen2",
                formats: &[BF16],
                heads: 6,
                kv_heads: 3,
                ..LLAMA
            },
            wide,
        ),
        (
            "qwen3",
            Synth {
                arch: "qwen3",
                formats: &[F16],
                ..LLAMA
            },
            ALL,
        ),
    ]
}

/// Half the distance of two neighbours around a number, as far as they are normal.
fn half_step(format: &str, x: f64) -> f64 {
    let digits = [("F32", 24), ("F16", 11), ("BF16", 8)]
        .into_iter()
        .find(|(name, _)| *name == format);
    2f64.powi(-digits.unwrap().1) * 2f64.powi(x.abs().log2().floor() as i32)
}

#[test]
fn weights_are_the_sums_rounded_once() {
    for (name, case, plan) in cases() {
        let (base, made, model) = adapted(name, case, &plan);
        let (file, change) = merged(&model, name);
        let (wanted, found) = (made.fold(&base), oracle::weights(&file));
        let weights = base
            .outline
            .weights
            .iter()
            .zip(wanted.iter().zip(found.iter()));
        let mut apart = 0.0;
        for (Weight { name, format, .. }, (wanted, found)) in weights {
            for (i, (w, f)) in wanted.iter().zip(found).enumerate() {
                let most = half_step(format.name(), *w).max(2f64.powi(-25)) * (1.0 + 1e-9);
                assert!((w - f).abs() <= most, "{name} {i}: {f} where {w} is wanted");
                apart += (w - f).powi(2);
            }
        }

        let projections = made.layers.iter().flatten().flatten().count();
        assert_eq!(change.projections, projections, "{name}");
        assert!(
            (change.rounded / apart - 1.0).abs() < 1e-6,
            "{name}: {} {apart}",
            change.rounded
        );
        assert!(
            (1e-6..0.02).contains(&change.lost()),
            "{name}: {}",
            change.lost()
        );
    }
}

#[test]
fn merged_logits_are_those_of_the_base_with_its_adapter() {
    let exact = (
        "f32",
        Synth {
            formats: &[F32],
            ..LLAMA
        },
        ALL,
        3e-6,
    );
    let cases = cases().map(|(name, case, plan)| (name, case, plan, 4e-3));
    let ids = [3, 30, 0, 17];
    for (name, case, plan, bound) in cases.into_iter().chain([exact]) {
        // Another test has files of the cases' own names.
        let name = &format!("logits-{name}");
        let (base, _, model) = adapted(name, case, &plan);
        let (merged, _) = merged(&model, name);
        let [base, wanted, found] = [base, model, merged].map(|model| simple_logits(&model, &ids));
        let (near, far) = (distance(&found, &wanted), distance(&base, &wanted));
        assert!(
            near <= bound && far > 0.05,
            "{name}: {near:e} from the sum, and the base {far:e}"
        );
    }
}

fn simple_logits(model: &Model, ids: &[u32]) -> Vec<f64> {
    let options = Options {
        prefer: Prefer::Simple,
        ..Options::new(8, Launch::Eager)
    };
    let mut decoder = Decoder::new(&emulator(), model, options, |_| ()).unwrap();
    logits(&mut decoder, ids)
        .concat()
        .into_iter()
        .map(f64::from)
        .collect()
}

#[test]
fn all_other_bytes_are_those_of_the_base() {
    let (base, made, model) = adapted(
        "bytes",
        Synth {
            tied: false,
            ..LLAMA
        },
        &FEW,
    );
    let before = fs::read(base.files.path()).unwrap();
    let (files, _) = merge(&model).unwrap();
    let mut changed = vec![false; before.len()];
    for (block, layer) in base.outline.weights.blocks.iter().zip(&made.layers) {
        for (weight, factors) in block.projections().into_iter().flatten().zip(layer) {
            changed[weight.range.clone()].fill(factors.is_some());
        }
    }

    let after = &files[0].1;
    let mut at = (0..before.len()).filter(|&i| !changed[i] && before[i] != after[i]);
    assert_eq!((after.len(), at.next()), (before.len(), None));
    let moved = changed
        .iter()
        .zip(before.iter().zip(after))
        .filter(|(may, (a, b))| **may && a != b)
        .count();
    assert!(
        moved * 3 > changed.iter().filter(|may| **may).count(),
        "{moved} bytes are others"
    );

    // Without an adapter, and with one that is zero, which leaves -0 as it is: the base.
    assert!(merge(&base).unwrap().0[0].1 == before);
    let tensors = fs::read(made.folder.join("adapter_model.safetensors")).unwrap();
    let data = 8 + u64::from_le_bytes(tensors[..8].try_into().unwrap()) as usize;
    let zero = [&tensors[..data], &vec![0; tensors.len() - data]].concat();
    fs::write(made.folder.join("adapter_model.safetensors"), zero).unwrap();
    let zeros = synth(LLAMA).edit("blk.1.attn_q.weight", |t| {
        t.data[..4].copy_from_slice(&[0, 0, 0, 0x80])
    });
    let model = Model::open(&zeros.save("merge-zero.gguf"))
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap();
    let (files, change) = merge(&model).unwrap();
    assert!(files[0].1 == zeros.bytes());
    assert_eq!(
        (change.projections, change.added, change.lost()),
        (4, 0.0, 0.0)
    );
}

/// The small model as a folder, with an adapter; and what its merged GGUF file is as a folder, by other code.
fn small() -> (TempDir, Model, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    hugging_face::write(folder.path());
    let gguf = Model::open(&crate::repository("tests/data/rustdoc-7m-F16.gguf")).unwrap();
    let made = make(
        &gguf,
        "merge-small",
        &Plan {
            ranks: [2, 2, 1, 0, 0, 0, 3],
            ..ALL
        },
    );
    let (merged, _) = merged(&gguf.with_adapter(&made.folder).unwrap(), "small");
    let wanted = tempfile::tempdir().unwrap();
    hugging_face::write_of(wanted.path(), merged.files.path());
    let wanted = fs::read(wanted.path().join("model.safetensors")).unwrap();
    fs::copy(
        made.folder.join("adapter_config.json"),
        folder.path().join("adapter_config.json"),
    )
    .unwrap();
    let model = Model::open(folder.path())
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap();
    (folder, model, wanted)
}

#[test]
fn a_folder_is_merged_as_its_gguf_file() {
    let (folder, model, wanted) = small();
    let (files, _) = merge(&model).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].0, folder.path().join("model.safetensors"));
    assert!(files[0].1 == wanted);
    assert_eq!(
        SideFiles::list(&model.files).unwrap(),
        others(
            &["config.json", "generation_config.json", "tokenizer.json"],
            &["adapter_config.json"]
        )
    );
}

fn others(copied: &[&str], left: &[&str]) -> SideFiles {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    SideFiles {
        copied: owned(copied),
        left: owned(left),
    }
}

/// Splits a folder's one file into two, and writes their index. A projection of each layer is in the second.
pub(crate) fn split(folder: &Path) {
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for (file, second) in [
        ("model-1.safetensors", false),
        ("model-2.safetensors", true),
    ] {
        let chosen: Vec<_> = all
            .iter()
            .filter(|(name, _)| name.contains(".k_proj") == second)
            .collect();
        map.extend(
            chosen
                .iter()
                .map(|(name, _)| ((*name).to_owned(), json!(file))),
        );
        fs::write(
            folder.join(file),
            safetensors::serialize(chosen, None).unwrap(),
        )
        .unwrap();
    }

    fs::write(
        folder.join("model.safetensors.index.json"),
        json!({"weight_map": map}).to_string(),
    )
    .unwrap();
    fs::remove_file(folder.join("model.safetensors")).unwrap();
}

#[test]
fn a_sharded_folder_keeps_its_shards() {
    let (folder, whole, wanted) = small();
    split(folder.path());
    let adapter = &whole.outline.adapter.as_ref().unwrap().path;
    let model = Model::open(folder.path())
        .unwrap()
        .with_adapter(adapter)
        .unwrap();
    let (files, change) = merge(&model).unwrap();
    assert_eq!((files.len(), change.projections), (2, 32));
    let wanted = SafeTensors::deserialize(&wanted).unwrap();
    let mut tensors = 0;
    for (path, bytes) in &files {
        let (before, after) = (
            fs::read(path).unwrap(),
            SafeTensors::deserialize(bytes).unwrap(),
        );
        let header = 8 + u64::from_le_bytes(before[..8].try_into().unwrap()) as usize;
        assert!(
            before[..header] == bytes[..header] && before != *bytes,
            "{}",
            path.display()
        );
        for (name, tensor) in after.iter() {
            assert!(tensor == wanted.tensor(name).unwrap(), "{name}");
            tensors += 1;
        }
    }

    assert_eq!(tensors, wanted.len());
}

#[test]
fn old_weights_do_not_go_along() {
    let (folder, model, _) = small();
    let write = |name: &str| fs::write(folder.path().join(name), "x").unwrap();
    for name in [
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "model.safetensors.index.json",
    ] {
        write(name);
    }

    for name in [
        "LICENSE",
        "README.md",
        "chat_template.jinja",
        "tokenizer.model",
        "merges.txt",
        ".hidden",
    ] {
        write(name);
    }

    for name in [
        "model-00001-of-00002.safetensors",
        "model.gguf",
        "adapter_model.safetensors",
    ] {
        write(name);
    }

    fs::create_dir(folder.path().join("original")).unwrap();
    fs::create_dir(folder.path().join("folder.json")).unwrap();
    let copied = [
        "LICENSE",
        "README.md",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
    ];
    let copied = [
        &copied[..],
        &["merges.txt", "tokenizer.json", "tokenizer.model"],
    ]
    .concat();
    let left = [
        "adapter_config.json",
        "adapter_model.safetensors",
        "folder.json",
        "model-00001-of-00002.safetensors",
        "model.gguf",
        "model.safetensors.index.json",
        "original",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ];
    assert_eq!(
        SideFiles::list(&model.files).unwrap(),
        others(&copied, &left)
    );
    split(folder.path());
    let model = Model::open(folder.path()).unwrap();
    assert!(
        SideFiles::list(&model.files)
            .unwrap()
            .copied
            .contains(&"model.safetensors.index.json".to_owned())
    );
    std::os::unix::fs::symlink("nowhere", folder.path().join("vocab.json")).unwrap();
    let error = SideFiles::list(&model.files).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot open ") && error.contains("vocab.json: No such file"),
        "{error}"
    );
}

/// What is said of a model with a file like this, without its path.
fn refusal(file: crate::write::File, made: &Made) -> String {
    let path = file.save("merge-refused.gguf");
    let model = Model::open(&path)
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap();
    merge(&model)
        .map(|_| ())
        .unwrap_err()
        .to_string()
        .replace(&path.display().to_string(), "M")
}

#[test]
fn says_why_an_adapter_is_not_merged() {
    let (_, made, _) = adapted(
        "refused",
        Synth {
            formats: &[F16],
            ..LLAMA
        },
        &FEW,
    );

    // The formats go around: of the embedding and of layer 1's queries, or of layer 0's last projection.
    let one = |formats| synth(Synth { formats, ..LLAMA });
    let quantized = one(&[Q8_0, F16, F16, F16, F16, F16, F16, F16]);
    let wanted = "M: tensor \"blk.1.attn_q.weight\" is Q8_0: the adapter could be lost when the sum is rounded \
                  to Q8_0. Decode with `run --adapter`, or merge into the model in F32, F16 or BF16";
    assert_eq!(refusal(quantized, &made), wanted);
    let beside = one(&[F16, F16, F16, F16, F16, F16, F16, Q8_0]).save("merge-beside.gguf");
    let model = Model::open(&beside)
        .unwrap()
        .with_adapter(&made.folder)
        .unwrap();
    assert_eq!(merge(&model).unwrap().1.projections, 4);
    let half = |bits: u16| {
        let file = synth(Synth {
            formats: &[F16],
            ..LLAMA
        });
        file.edit("blk.1.attn_v.weight", |t| {
            t.data[600..602].copy_from_slice(&bits.to_le_bytes())
        })
    };
    let wanted = "M: weight 300 of tensor \"blk.1.attn_v.weight\" is NaN: the file is damaged, so download it again or \
                  use another one";
    assert_eq!(refusal(half(0x7e00), &made), wanted);
    let config = made.folder.join("adapter_config.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    settings["lora_alpha"] = json!(1e9);
    fs::write(&config, settings.to_string()).unwrap();
    let said = refusal(
        synth(Synth {
            formats: &[F16],
            ..LLAMA
        }),
        &made,
    );
    let (start, end) = (
        "M: weight ",
        "which is out of range for F16. Decode with `run --adapter`, or merge into the \
                        model in a wider format",
    );
    assert!(
        said.starts_with(start) && said.ends_with(end) && said.contains("with the adapter is "),
        "{said}"
    );
}
