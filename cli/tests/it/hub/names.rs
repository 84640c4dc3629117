//! Names: those that the user writes, and those that come from the hub.

use std::fs;
use std::os::unix::fs::symlink;
use std::slice::from_ref;

use super::server::{COMMIT, File};
use super::{Hub, content, files_below, usual};
use crate::program::run;

#[test]
fn wrong_names_are_refused() {
    for (name, problem) in [
        ("org/repo", "it does not begin with hf:"),
        ("hf:repo", "the repository is not ORG/REPO"),
        ("hf:org/repo/file.gguf", "the repository is not ORG/REPO"),
        (
            "hf:../repo",
            "the names of repositories neither begin nor end with '.' or '-'",
        ),
        (
            "hf:org/re po",
            "the names of repositories consist of letters, digits, '.', '_' and '-'",
        ),
        (
            "hf:org/a--b",
            "the names of repositories contain neither '..' nor '--', and do not end with .git",
        ),
        (
            "hf:org/repo:",
            "there is no file or quantization after the second colon",
        ),
        (
            "hf:org/repo:../../x",
            "the file's name has a part that is empty, '.' or '..'",
        ),
        (
            "hf:org/repo:/etc/passwd",
            "the file's name is an absolute path",
        ),
        ("hf:org/repo:C:\\x", "the file's name contains a backslash"),
    ] {
        let message = format!(
            "invalid model name {name:?}: {problem}; expected hf:ORG/REPO, hf:ORG/REPO:FILE or hf:ORG/REPO:QUANT"
        );
        for command in [&["pull", name][..], &["models", "remove", name]] {
            let end = run(command);
            assert_eq!((end.code, end.out.as_str()), (Some(2), ""), "{end:?}");
            assert!(end.err.contains(&message), "{end:?}");
        }
        if name.starts_with("hf:") {
            let end = run(&["info", name]);
            assert_eq!(
                (end.code, end.err),
                (Some(2), format!("error: {message}\n"))
            );
        }
    }
}

/// Names from the hub that would be written outside of the cache, or that a terminal would obey.
#[test]
fn hostile_names_are_not_stored() {
    let cases = [
        ("../x-Q4_K_M.gguf", "has a part that is empty, '.' or '..'"),
        (
            "../../../../../../x-Q4_K_M.gguf",
            "has a part that is empty, '.' or '..'",
        ),
        (
            "a/../../x-Q4_K_M.gguf",
            "has a part that is empty, '.' or '..'",
        ),
        ("a/./x-Q4_K_M.gguf", "has a part that is empty, '.' or '..'"),
        ("a//x-Q4_K_M.gguf", "has a part that is empty, '.' or '..'"),
        ("/models/x-Q4_K_M.gguf", "is an absolute path"),
        ("//host/x-Q4_K_M.gguf", "is an absolute path"),
        ("C:/x-Q4_K_M.gguf", "contains a colon"),
        ("c:x-Q4_K_M.gguf", "contains a colon"),
        ("x:stream-Q4_K_M.gguf", "contains a colon"),
        ("..\\x-Q4_K_M.gguf", "contains a backslash"),
        ("\\\\host\\x-Q4_K_M.gguf", "contains a backslash"),
        ("x\0-Q4_K_M.gguf", "contains a control character"),
        ("\u{1b}[2Jx-Q4_K_M.gguf", "contains a control character"),
        ("x\n-Q4_K_M.gguf", "contains a control character"),
    ];
    for (name, problem) in cases {
        let hub = Hub::new(&[File::lfs(name, &content(10))]);
        let end = hub.run(&["pull", "hf:org/repo"]);
        hub.assert_failed(
            &end,
            2,
            &format!(
                "org/repo has a file {name:?}, which is not stored: the file's name {problem}"
            ),
        );
        assert_eq!(hub.server.requests().len(), 1, "{name:?}");
        assert_eq!(
            files_below(hub.home.path()),
            [] as [std::path::PathBuf; 0],
            "{name:?}"
        );
    }

    // One that is not chosen does no harm, and is not offered.
    let file = usual();
    let hub = Hub::new(&[File::lfs("../x-Q8_0.gguf", b"x"), file.clone()]);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    let end = hub.run(&["pull", "hf:org/repo:Q5_0"]);
    assert!(
        end.err
            .ends_with("choose one of:\n  hf:org/repo:model-Q4_K_M.gguf  (97.66 KiB)\n"),
        "{end:?}"
    );
}

/// A folder of the cache that is a link would lead the file elsewhere.
#[test]
fn links_in_the_cache_are_not_followed() {
    let outside = tempfile::tempdir().expect("a folder for a test");
    let file = File::lfs("sub/x-Q4_K_M.gguf", &content(10));
    for linked in [
        format!("snapshots/{COMMIT}"),
        format!("snapshots/{COMMIT}/sub"),
    ] {
        let hub = Hub::new(from_ref(&file));
        let link = hub.folder().join(linked);
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder for a test");
        symlink(outside.path(), &link).expect("a link for a test");
        let end = hub.run(&["pull", "hf:org/repo"]);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(
            end.err
                .contains("its folder in the cache is a link or a file"),
            "{end:?}"
        );
    }

    let hub = Hub::new(from_ref(&file));
    fs::create_dir_all(hub.folder().join("blobs")).expect("a folder for a test");
    symlink(outside.path().join("x"), hub.part(&file)).expect("a link for a test");
    let end = hub.run(&["pull", "hf:org/repo"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(
        end.err.contains(&format!(
            "cannot write {}: it is not a file",
            hub.part(&file).display()
        )),
        "{end:?}"
    );
    assert_eq!(files_below(outside.path()), [] as [std::path::PathBuf; 0]);

    // A link without content is replaced, not followed.
    fs::remove_file(hub.part(&file)).expect("it is there");
    let pointer = hub.snapshot(&file.name);
    fs::create_dir_all(pointer.parent().expect("a folder")).expect("a folder for a test");
    symlink(outside.path().join("x"), &pointer).expect("a link for a test");
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    assert_eq!(files_below(outside.path()), [] as [std::path::PathBuf; 0]);
}

#[test]
fn choices_are_listed_with_their_sizes() {
    let file = |name| File::lfs(name, &content(2048));
    let hub = Hub::new(&[
        file("m-Q8_0.gguf"),
        file("m-Q4_0.gguf"),
        file("mmproj-F16.gguf"),
    ]);
    let list = "choose one of:\n  hf:org/repo:m-Q4_0.gguf  (2.00 KiB)\n  hf:org/repo:m-Q8_0.gguf  (2.00 KiB)\n";
    for (name, message) in [
        ("hf:org/repo", "org/repo has no Q4_K_M file; "),
        ("hf:org/repo:Q4_K", "org/repo has no Q4_K file; "),
        ("hf:org/repo:F16", "org/repo has no F16 file; "),
        ("hf:org/repo:x.gguf", "org/repo has no file \"x.gguf\"; "),
    ] {
        for command in ["pull", "info"] {
            let end = hub.run(&[command, name]);
            assert_eq!((end.code, end.out.as_str()), (Some(2), ""), "{end:?}");
            assert!(
                end.err.starts_with(&format!("error: {message}")) && end.err.ends_with(list),
                "{end:?}"
            );
        }
    }
}
