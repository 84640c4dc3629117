//! Models of the hub as MODEL: from the cache without the network, or downloaded.

use std::fs;
use std::path::Path;
use std::slice::from_ref;

use super::server::{COMMIT, File};
use super::{Hub, content, files_below, usual};
use crate::folder::hugging_face;
use crate::program::{End, MODEL};

fn model() -> File {
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(MODEL))
        .expect("the model is there");
    File::lfs("rustdoc-7m-Q4_K_M.gguf", &bytes)
}

/// The files of a small model in safetensors.
fn folder() -> Vec<File> {
    let folder = tempfile::tempdir().expect("a folder for a test");
    hugging_face::write(folder.path());
    let file = |path: &std::path::PathBuf| {
        let name = path
            .strip_prefix(folder.path())
            .expect("inside")
            .to_str()
            .expect("UTF-8");
        let content = fs::read(path).expect("it is there");
        if name.ends_with(".safetensors") {
            File::lfs(name, &content)
        } else {
            File::git(name, &content)
        }
    };
    files_below(folder.path()).iter().map(file).collect()
}

#[test]
fn a_model_is_downloaded_once_and_then_used_without_the_network() {
    let file = model();
    let hub = Hub::new(from_ref(&file));
    let arguments = [
        "run",
        "hf:org/repo",
        "-p",
        "The borrow checker",
        "-n",
        "4",
        "--quiet",
        "--device",
        "emu",
    ];
    let local = hub.run(&[
        "run",
        MODEL,
        "-p",
        "The borrow checker",
        "-n",
        "4",
        "--quiet",
        "--device",
        "emu",
    ]);
    assert_eq!((local.code, local.err.as_str()), (Some(0), ""));
    let first = hub.run(&arguments);
    let said = format!(
        "downloading hf:org/repo:{} (4.56 MiB) to {}\n",
        file.name,
        hub.folder().display()
    );
    assert_eq!(
        (first.code, first.out.as_str(), first.err.as_str()),
        (Some(0), local.out.as_str(), said.as_str())
    );
    assert_eq!(hub.server.requests().len(), 2);
    assert_eq!(hub.run(&arguments), local);

    // Other names of the same file, as other arguments, and in the closing words of other commands.
    let path = hub.snapshot(&file.name);
    for name in [
        "hf:org/repo:Q4_K_M",
        "hf:org/repo:q4_k_m",
        "hf:org/repo:rustdoc-7m-Q4_K_M.gguf",
    ] {
        for arguments in [
            &["info", name][..],
            &["tokenize", "-m", name, "a"],
            &["detokenize", name, "5"],
        ] {
            let end = hub.run(arguments);
            let path = path.to_str().expect("UTF-8");
            let local: Vec<&str> = arguments
                .iter()
                .map(|word| if *word == name { path } else { word })
                .collect();
            assert_eq!(end, hub.run(&local), "{arguments:?}");
            assert_eq!(end.code, Some(0), "{end:?}");
        }
    }

    // A draft model is a model too. The name of the repository alone means the same file.
    let speculative = [&arguments[..], &["--draft", "hf:org/repo"]].concat();
    assert_eq!(hub.run(&speculative), local);
    assert_eq!(hub.server.requests().len(), 0);
}

#[test]
fn the_network_is_not_used_offline() {
    let (file, other) = (usual(), File::lfs("model-Q8_0.gguf", b"other"));
    let hub = Hub::new(&[file.clone(), other]);
    let offline = |arguments: &[&str], variable: &str| {
        End::from(
            hub.command(arguments)
                .env(variable, "1")
                .output()
                .expect("it starts"),
        )
    };
    let message = format!(
        "hf:org/repo is not in the cache, and HF_HUB_OFFLINE forbids to download it: unset it, or copy the model to {}",
        hub.home.path().join("hub").display()
    );
    hub.assert_failed(
        &offline(&["pull", "hf:org/repo"], "HF_HUB_OFFLINE"),
        2,
        &message,
    );
    hub.assert_failed(
        &offline(&["info", "hf:org/repo"], "TRANSFORMERS_OFFLINE"),
        2,
        &message,
    );
    assert_eq!(hub.server.requests().len(), 0);
    hub.run(&["pull", "hf:org/repo"]);
    assert_eq!(hub.server.requests().len(), 2);
    hub.assert_pulled(&offline(&["pull", "hf:org/repo"], "HF_HUB_OFFLINE"), &file);
    for name in [
        "hf:org/repo:Q8_0",
        "hf:org/repo:model-Q8_0.gguf",
        "hf:org/other",
    ] {
        let end = offline(&["pull", name], "HF_HUB_OFFLINE");
        assert!(
            end.code == Some(2)
                && end
                    .err
                    .contains(&format!("error: {name} is not in the cache, ")),
            "{end:?}"
        );
    }

    assert_eq!(hub.server.requests().len(), 0);
}

/// Files that are not complete are not used.
#[test]
fn damaged_caches_are_repaired() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    let damages: [&dyn Fn(); 6] = [
        &|| fs::remove_file(hub.blob(&file)).expect("it is there"),
        &|| fs::write(hub.blob(&file), b"short").expect("a file for a test"),
        &|| fs::remove_file(hub.snapshot(&file.name)).expect("it is there"),
        &|| fs::remove_file(hub.folder().join("refs/main")).expect("it is there"),
        &|| {
            fs::write(hub.folder().join("refs/main"), "../../elsewhere").expect("a file for a test")
        },
        &|| fs::write(hub.folder().join("refs/main"), "").expect("a file for a test"),
    ];
    for damage in damages {
        damage();
        hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    }
}

#[test]
fn a_repository_without_gguf_is_pulled_as_a_folder() {
    let files = folder();
    let hub = Hub::new(
        &[
            &files[..],
            &[
                File::git("README.md", b"text"),
                File::lfs("other.bin", b"x"),
            ],
        ]
        .concat(),
    );
    let end = hub.run(&["pull", "hf:org/repo"]);
    let path = hub.folder().join("snapshots").join(COMMIT);
    assert_eq!(
        (end.code, end.out.as_str()),
        (Some(0), format!("{}\n", path.display()).as_str()),
        "{end:?}"
    );
    assert!(end.err.starts_with("downloading hf:org/repo ("), "{end:?}");
    for file in &files {
        assert!(
            fs::read(path.join(&file.name)).expect("it is there") == file.content,
            "{}",
            file.name
        );
    }

    assert_eq!(files_below(&path).len(), files.len());
    hub.server.requests();
    let end = hub.run(&["info", "hf:org/repo"]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert_eq!(hub.run(&["info", path.to_str().expect("UTF-8")]), end);
    assert_eq!(hub.server.requests().len(), 0);
}

#[test]
fn a_folder_in_several_files_is_used_when_it_is_complete() {
    let mut files = folder();
    let weights = files
        .iter()
        .position(|file| file.name == "model.safetensors")
        .expect("one file of weights");
    let weights = files.remove(weights);
    let tensors = safetensors::SafeTensors::deserialize(&weights.content).expect("safetensors");
    let map: serde_json::Map<String, serde_json::Value> = tensors
        .names()
        .into_iter()
        .map(|name| (name.to_owned(), "shard-1.safetensors".into()))
        .collect();
    let index = serde_json::json!({ "weight_map": map }).to_string();
    files.push(File::git("model.safetensors.index.json", index.as_bytes()));
    let shard = File::lfs("shard-1.safetensors", &weights.content);
    let hub = Hub::new(&files);

    // The hub lacks a file that the index names.
    let end = hub.run(&["pull", "hf:org/repo"]);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(
        end.err
            .contains("org/repo cannot be used as a model: it has no shard-1.safetensors"),
        "{end:?}"
    );
    hub.server.set(|state| state.files.push(shard.clone()));
    hub.server
        .fail(&vec![super::server::Fault::Status(400, vec![]); 20]);
    let end = hub.run(&["info", "hf:org/repo"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    hub.server.fail(&[]);
    let end = hub.run(&["info", "hf:org/repo"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    hub.server.requests();
    assert_eq!(hub.run(&["info", "hf:org/repo"]).code, Some(0));
    assert_eq!(hub.server.requests().len(), 0);

    // Without a file that the index names, the folder is not complete.
    fs::remove_file(hub.blob(&shard)).expect("it is there");
    assert_eq!(hub.run(&["info", "hf:org/repo"]).code, Some(0));
    assert_eq!(
        hub.server
            .requests()
            .last()
            .map(|request| request.path.contains("shard-1")),
        Some(true)
    );
}

#[test]
fn folders_that_cannot_be_used_are_refused_before_their_weights() {
    let weights = File::lfs("model.safetensors", &content(1000));
    let tokenizer = File::git("tokenizer.json", b"{}");
    let config = |text: &str| File::git("config.json", text.as_bytes());
    let index = |text: &str| File::git("model.safetensors.index.json", text.as_bytes());
    let llama = folder()
        .into_iter()
        .find(|file| file.name == "config.json")
        .expect("a configuration");
    let mut other: serde_json::Value = serde_json::from_slice(&llama.content).expect("JSON");
    other["model_type"] = "mamba".into();
    other["architectures"] = serde_json::json!(["MambaForCausalLM"]);
    let cases: Vec<(Vec<File>, &str)> = vec![
        (
            vec![],
            "it has neither GGUF files nor config.json with model.safetensors or its index",
        ),
        (
            vec![config("{}")],
            "it has neither GGUF files nor config.json",
        ),
        (
            vec![
                config("{}"),
                File::lfs("pytorch_model.bin", b"x"),
                tokenizer.clone(),
            ],
            "it has neither GGUF files",
        ),
        (
            vec![weights.clone(), tokenizer.clone()],
            "it has neither GGUF files nor config.json",
        ),
        (
            vec![llama.clone(), weights.clone()],
            "it has no tokenizer.json",
        ),
        (
            vec![config("{}"), weights.clone(), tokenizer.clone()],
            "org/repo cannot be used as a model: config.json",
        ),
        (
            vec![config("x"), weights.clone(), tokenizer.clone()],
            "org/repo cannot be used as a model: config.json",
        ),
        (
            vec![
                config(&other.to_string()),
                weights.clone(),
                tokenizer.clone(),
            ],
            "org/repo cannot be used as a model: config.json",
        ),
        (
            vec![llama.clone(), tokenizer.clone(), index("x")],
            "model.safetensors.index.json is not JSON",
        ),
        (
            vec![llama.clone(), tokenizer.clone(), index("{}")],
            "model.safetensors.index.json has no \"weight_map\"",
        ),
        (
            vec![
                llama.clone(),
                tokenizer.clone(),
                index(r#"{"weight_map": {}}"#),
            ],
            "has no \"weight_map\"",
        ),
        (
            vec![
                llama.clone(),
                tokenizer.clone(),
                index(r#"{"weight_map": {"a": 1}}"#),
            ],
            "has a tensor without a file",
        ),
        (
            vec![
                llama.clone(),
                tokenizer.clone(),
                index(r#"{"weight_map": {"a": "../x"}}"#),
            ],
            "names the file \"../x\" in another folder",
        ),
        (
            vec![
                llama.clone(),
                tokenizer.clone(),
                index(r#"{"weight_map": {"a": "/etc/passwd"}}"#),
            ],
            "in another folder",
        ),
        (
            vec![
                llama.clone(),
                tokenizer.clone(),
                index(r#"{"weight_map": {"a": ".."}}"#),
            ],
            "it has no ..",
        ),
    ];
    for (files, message) in cases {
        let hub = Hub::new(&files);
        let end = hub.run(&["pull", "hf:org/repo"]);
        assert_eq!((end.code, end.out.as_str()), (Some(2), ""), "{end:?}");
        assert!(
            end.err.contains(message) && !end.err.contains("/config.json"),
            "{message}: {end:?}"
        );
        let loaded = hub
            .server
            .requests()
            .iter()
            .any(|request| request.path.ends_with("model.safetensors"));
        assert!(!loaded, "{message}");
        assert!(!hub.folder().join("refs").exists());
    }
}
