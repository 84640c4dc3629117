//! The list of models, and their removal.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::slice::from_ref;

use serde_json::{Value, json};

use super::server::{COMMIT, File};
use super::{Hub, content, files_below, usual};

/// Another commit than the server's.
const OLD: &str = "fedcba9876543210fedcba9876543210fedcba98";

fn names(hub: &Hub) -> Vec<String> {
    let files = files_below(&hub.folder()).into_iter();
    files
        .map(|path| {
            path.strip_prefix(hub.folder())
                .expect("inside")
                .display()
                .to_string()
        })
        .collect()
}

#[test]
fn models_are_listed() {
    let (file, other) = (usual(), File::lfs("sub/m-UD-Q8_0.gguf", &content(3000)));
    let hub = Hub::new(&[file.clone(), other.clone(), File::git("README.md", b"text")]);
    let end = hub.run(&["models"]);
    let cache = hub.home.path().join("hub");
    let message = format!(
        "no models in {}; `warpwright pull hf:ORG/REPO` downloads one\n",
        cache.display()
    );
    assert_eq!(
        (end.code, end.out.as_str(), end.err),
        (Some(0), "", message)
    );
    let end = hub.run(&["models", "--json"]);
    assert_eq!(
        (end.code, end.out.as_str(), end.err.as_str()),
        (Some(0), "[]\n", "")
    );
    for name in ["hf:org/repo", "hf:org/repo:Q8_0", "hf:org/repo:README.md"] {
        assert_eq!(hub.run(&["pull", name]).code, Some(0));
    }

    // Other kinds of repositories, and what is not one, are not listed.
    for folder in [
        "datasets--org--data/snapshots/x",
        "models--a--b",
        "version.txt",
        ".locks/x",
    ] {
        fs::create_dir_all(cache.join(folder)).expect("a folder for a test");
    }

    let path = |file: &File| hub.snapshot(&file.name).display().to_string();
    let end = hub.run(&["models", "--json"]);
    let row = |file: &File, quant: &str| {
        let size = file.content.len();
        json!({ "repo": "org/repo", "file": file.name, "size": size, "quant": quant, "commit": COMMIT, "path": path(file) })
    };
    let listed: Value = serde_json::from_str(&end.out).expect("JSON");
    assert_eq!(
        (end.code, listed),
        (
            Some(0),
            json!([row(&file, "Q4_K_M"), row(&other, "UD-Q8_0")])
        )
    );
    let end = hub.run(&["models"]);
    let lines: Vec<Vec<&str>> = end
        .out
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(lines[0], ["repo", "file", "size", "quant", "path"]);
    assert_eq!(
        lines[2],
        [
            "org/repo",
            "model-Q4_K_M.gguf",
            "97.66 KiB",
            "Q4_K_M",
            path(&file).as_str()
        ]
    );
    assert_eq!(
        lines[3],
        [
            "org/repo",
            "sub/m-UD-Q8_0.gguf",
            "2.93 KiB",
            "UD-Q8_0",
            path(&other).as_str()
        ]
    );
    assert_eq!(lines.len(), 4);
}

#[test]
fn a_file_is_removed_with_its_content() {
    let (file, other) = (usual(), File::lfs("m-Q8_0.gguf", &content(3000)));
    let hub = Hub::new(&[file.clone(), other.clone()]);
    for name in ["hf:org/repo", "hf:org/repo:Q8_0"] {
        assert_eq!(hub.run(&["pull", name]).code, Some(0));
    }

    let end = hub.run(&["models", "remove", "hf:org/repo:q8_0"]);
    assert_eq!(
        (end.code, end.out.as_str()),
        (
            Some(0),
            "removed 1 file of hf:org/repo:q8_0, 2.93 KiB are free again\n"
        )
    );
    let left = [
        format!("blobs/{}", file.etag()),
        "refs/main".to_owned(),
        format!("snapshots/{COMMIT}/{}", file.name),
    ];
    assert_eq!(names(&hub), left);

    // The last file takes the repository's folder along.
    let end = hub.run(&["models", "remove", &format!("hf:org/repo:{}", file.name)]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{end:?}");
    assert!(!hub.folder().exists());
    for name in ["hf:org/repo", "hf:org/repo:Q8_0", "hf:org/other"] {
        let end = hub.run(&["models", "remove", name]);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(
            end.err
                .starts_with(&format!("error: {name} is not in the cache (")),
            "{end:?}"
        );
    }
}

#[test]
fn a_content_stays_while_something_refers_to_it() {
    let file = usual();
    let hub = Hub::new(&[
        file.clone(),
        File {
            name: "copy-Q5_0.gguf".to_owned(),
            ..file.clone()
        },
    ]);
    for name in ["hf:org/repo", "hf:org/repo:Q5_0"] {
        assert_eq!(hub.run(&["pull", name]).code, Some(0));
    }

    // A commit before has the file under the first name.
    let old = hub.folder().join("snapshots").join(OLD);
    fs::create_dir_all(&old).expect("a folder for a test");
    symlink(format!("../../blobs/{}", file.etag()), old.join(&file.name))
        .expect("a link for a test");
    fs::write(hub.folder().join("refs/old"), OLD).expect("a file for a test");
    let end = hub.run(&["models", "remove", "hf:org/repo:Q4_K_M"]);
    assert_eq!(
        (end.code, end.out.as_str()),
        (
            Some(0),
            "removed 2 files of hf:org/repo:Q4_K_M, 0 B are free again\n"
        )
    );
    let left = [
        format!("blobs/{}", file.etag()),
        "refs/main".to_owned(),
        format!("snapshots/{COMMIT}/copy-Q5_0.gguf"),
    ];
    assert_eq!(names(&hub), left);
    let end = hub.run(&["models", "remove", "hf:org/repo"]);
    assert_eq!(
        (end.code, end.out.as_str()),
        (
            Some(0),
            "removed 1 file of hf:org/repo, 97.66 KiB are free again\n"
        )
    );
    assert!(!hub.folder().exists());
}

#[test]
fn an_unfinished_download_is_removed_with_the_repository() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    assert_eq!(hub.run(&["pull", "hf:org/repo"]).code, Some(0));
    let blobs = hub.folder().join("blobs");
    fs::write(
        blobs.join(format!("{}.incomplete", "b".repeat(64))),
        content(2048),
    )
    .expect("a file for a test");
    fs::write(
        blobs.join(format!("{}.01234567.incomplete", "c".repeat(64))),
        content(2048),
    )
    .expect("a file for a test");
    fs::create_dir_all(hub.folder().join(".no_exist").join(COMMIT)).expect("a folder for a test");
    let end = hub.run(&["models"]);
    assert_eq!(
        end.err,
        "hf:org/repo has 4.00 KiB of an unfinished download: pull it again, or remove it\n"
    );
    let end = hub.run(&["models", "remove", "hf:org/repo"]);
    assert_eq!(
        (end.code, end.out.as_str()),
        (
            Some(0),
            "removed 3 files of hf:org/repo, 101.66 KiB are free again\n"
        )
    );
    assert!(!hub.folder().exists());
}

/// Changes the cache of a test.
type Change<'a> = &'a dyn Fn(&Hub);

/// Each of these could be someone's only copy, or in use.
#[test]
fn nothing_is_removed_when_it_is_not_certain() {
    let file = usual();
    let outside = tempfile::tempdir().expect("a folder for a test");
    fs::write(outside.path().join("x"), "precious").expect("a file for a test");
    let at = |hub: &Hub, path: &str| -> PathBuf {
        let path = hub.folder().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for a test");
        path
    };
    let write = |hub: &Hub, path: &str| fs::write(at(hub, path), "x").expect("a file for a test");
    let link = |hub: &Hub, target: &str, path: &str| {
        symlink(target, at(hub, path)).expect("a link for a test")
    };
    let x = outside.path().join("x").display().to_string();
    let root = outside.path().display().to_string();
    let blob = format!("../../../models--org--repo/blobs/{}", file.etag());
    let cases: [(Change, &str); 12] = [
        (
            &|hub| write(hub, "notes.txt"),
            "the hub's clients do not create it",
        ),
        (
            &|hub| write(hub, "mine/notes.txt"),
            "the hub's clients do not create it",
        ),
        (
            &|hub| link(hub, &root, "trees"),
            "the hub's clients do not create it",
        ),
        (
            &|hub| link(hub, &x, &format!("snapshots/{COMMIT}/x.gguf")),
            "it links to another place",
        ),
        (
            &|hub| link(hub, &root, &format!("snapshots/{COMMIT}/x")),
            "it links to another place",
        ),
        (
            &|hub| link(hub, &root, "snapshots/0123"),
            "it is not the folder of a commit",
        ),
        (
            &|hub| write(hub, "snapshots/x.gguf"),
            "it is not the folder of a commit",
        ),
        (
            &|hub| link(hub, "../../../x", &format!("snapshots/{COMMIT}/x.gguf")),
            "it links to another place",
        ),
        (
            &|hub| write(hub, "blobs/mine/x"),
            "a folder is not a content",
        ),
        (
            &|hub| link(hub, &blob, "../models--a--b/snapshots/1/x.gguf"),
            "it links to a content that would be removed",
        ),
        (
            &|hub| link(hub, &blob, "../datasets--a--b/snapshots/1/x"),
            "it links to a content that would be removed",
        ),
        (
            &|hub| {
                link(
                    hub,
                    &format!("../{blob}"),
                    "../spaces--a--b/snapshots/1/d/x",
                )
            },
            "it links to a content",
        ),
    ];
    for (change, message) in cases {
        let hub = Hub::new(from_ref(&file));
        assert_eq!(hub.run(&["pull", "hf:org/repo"]).code, Some(0));
        change(&hub);
        let before = files_below(hub.home.path());
        let end = hub.run(&["models", "remove", "hf:org/repo"]);
        assert_eq!(
            (end.code, end.out.as_str()),
            (Some(2), ""),
            "{message}: {end:?}"
        );
        assert!(
            end.err.contains(&format!("({message}")) && end.err.contains("; nothing was removed"),
            "{message}: {end:?}"
        );
        assert_eq!(files_below(hub.home.path()), before, "{message}");
    }

    assert_eq!(
        fs::read_to_string(outside.path().join("x")).expect("it is there"),
        "precious"
    );

    // The whole folder is a link.
    let hub = Hub::new(&[]);
    fs::create_dir_all(hub.home.path().join("hub")).expect("a folder for a test");
    symlink(outside.path(), hub.folder()).expect("a link for a test");
    assert_eq!(hub.run(&["models", "remove", "hf:org/repo"]).code, Some(2));
    assert!(outside.path().join("x").exists());
}

#[test]
fn a_download_under_way_keeps_its_repository() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    assert_eq!(hub.run(&["pull", "hf:org/repo"]).code, Some(0));
    let lock = hub
        .home
        .path()
        .join(format!("hub/.locks/models--org--repo/{}.lock", file.etag()));
    assert!(lock.exists());
    let mut python = std::process::Command::new("python3");
    let script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()";
    python
        .args(["-c", script])
        .arg(&lock)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut python = python.spawn().expect("Python runs");
    std::io::Read::read_exact(python.stdout.as_mut().expect("piped"), &mut [0])
        .expect("it has the lock");
    let end = hub.run(&["models", "remove", "hf:org/repo"]);
    assert_eq!(
        (end.code, end.err.as_str()),
        (
            Some(1),
            "error: another process is loading a file of org/repo; nothing was removed\n"
        )
    );
    drop(python.stdin.take());
    python.wait().expect("it ends");
    assert_eq!(hub.run(&["models", "remove", "hf:org/repo"]).code, Some(0));
}

/// Python's client keeps contents that repositories share in one place, and links to them.
#[test]
fn shared_contents_stay() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    assert_eq!(hub.run(&["pull", "hf:org/repo"]).code, Some(0));
    let shared = hub.home.path().join("hub/blobs/ab");
    fs::create_dir_all(&shared).expect("a folder for a test");
    fs::rename(hub.blob(&file), shared.join("abcd")).expect("it is there");
    symlink("../../blobs/ab/abcd", hub.blob(&file)).expect("a link for a test");
    assert_eq!(hub.run(&["pull", "hf:org/repo"]).err, "");
    let end = hub.run(&["models", "remove", "hf:org/repo"]);
    assert_eq!(
        (end.code, end.out.as_str()),
        (
            Some(0),
            "removed 1 file of hf:org/repo, 0 B are free again\n"
        )
    );
    assert!(end.err.contains("1 content stay in the store"), "{end:?}");
    assert!(shared.join("abcd").exists() && !hub.folder().exists());
}
