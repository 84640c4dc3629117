//! Downloads that succeed.

use std::fs;
use std::process::Stdio;
use std::slice::from_ref;
use std::thread;
use std::time::Duration;

use super::server::{COMMIT, Fault, File, Server};
use super::{Hub, content, files_below, usual};
use crate::program::End;
use crate::signals::signal;

#[test]
fn a_file_is_pulled_and_its_path_printed() {
    let file = usual();
    let others = [
        File::lfs("model-Q8_0.gguf", b"other"),
        File::git("README.md", b"text"),
    ];
    let hub = Hub::new(&[&others[..], from_ref(&file)].concat());
    let end = hub.run(&["pull", "hf:org/repo"]);
    hub.assert_pulled(&end, &file);
    let folder = hub.folder();
    let said = format!(
        "downloading hf:org/repo:model-Q4_K_M.gguf (97.66 KiB) to {}\n",
        folder.display()
    );
    assert_eq!(end.err, said);

    // The layout of the hub's other clients, with a relative link.
    let link = fs::read_link(hub.snapshot(&file.name)).expect("a link");
    assert_eq!(
        link.to_str(),
        Some(format!("../../blobs/{}", file.etag()).as_str())
    );
    assert_eq!(files_below(&folder.join("blobs")), [hub.blob(&file)]);
    let requests: Vec<String> = hub
        .server
        .requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    let resolve = format!("/org/repo/resolve/{COMMIT}/model-Q4_K_M.gguf");
    assert_eq!(
        requests,
        [
            "/api/models/org/repo/revision/main?blobs=true".to_owned(),
            resolve
        ]
    );

    // The second one loads nothing.
    let end = hub.run(&["pull", "hf:org/repo:q4_k_m"]);
    hub.assert_pulled(&end, &file);
    assert_eq!((end.err.as_str(), hub.server.requests().len()), ("", 1));

    // A changed content is loaded, and the name leads to it.
    let changed = File {
        content: b"changed".to_vec(),
        ..file.clone()
    };
    hub.server.set(|state| state.files = vec![changed.clone()]);
    fs::remove_file(hub.snapshot(&file.name)).expect("it is there");
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &changed);
}

#[test]
fn files_in_folders_and_of_git_are_pulled() {
    let files = [
        File::lfs("sub folder/BF16/x.gguf", &content(10)),
        File::git("config.json", b"{}"),
        File::lfs("empty.gguf", b""),
        File::git("empty.txt", b""),
    ];
    let hub = Hub::new(&files);
    for (file, name) in files
        .iter()
        .zip(["bf16", "config.json", "empty.gguf", "empty.txt"])
    {
        hub.assert_pulled(&hub.run(&["pull", &format!("hf:org/repo:{name}")]), file);
    }
}

/// The hub redirects downloads to other hosts, which must not see the token.
#[test]
fn redirects_are_followed_without_the_token() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    let storage = Server::new(from_ref(&file));
    hub.server
        .set(|state| state.token = Some("secret".to_owned()));
    for redirect in [
        format!("{}/cdn{{path}}?signature=x", storage.endpoint),
        "/cdn{path}".to_owned(),
        "../../../../cdn{path}".to_owned(),
    ] {
        let _ = fs::remove_dir_all(hub.folder());
        hub.server
            .set(|state| state.redirect = Some(redirect.clone()));
        let mut command = hub.command(&["pull", "hf:org/repo"]);
        let end = End::from(
            command
                .env("HF_TOKEN", " secret\n")
                .output()
                .expect("it starts"),
        );
        hub.assert_pulled(&end, &file);
        assert!(
            !end.err.contains("signature") && !end.err.contains("secret"),
            "{end:?}"
        );
    }

    let outside = storage.requests();
    assert_eq!(outside.len(), 1);
    assert!(
        outside
            .iter()
            .all(|request| request.header("authorization").is_none()),
        "{outside:?}"
    );
    let inside = hub.server.requests();
    assert!(
        inside
            .iter()
            .all(|request| request.header("authorization") == Some("Bearer secret")),
        "{inside:?}"
    );
}

#[test]
fn a_token_is_read_as_by_other_clients() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    hub.server
        .set(|state| state.token = Some("secret".to_owned()));
    hub.assert_failed(
        &hub.run(&["pull", "hf:org/repo"]),
        2,
        "the hub has no repository org/repo, or it is private",
    );
    fs::write(hub.home.path().join("token"), "secret\n").expect("a file for a test");
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    fs::remove_dir_all(hub.folder()).expect("it is there");
    let refused = |variable: &str, value: &str, message: &str| {
        let mut command = hub.command(&["pull", "hf:org/repo"]);
        let end = End::from(command.env(variable, value).output().expect("it starts"));
        hub.assert_failed(&end, 2, message);
        assert!(!end.err.contains("s€cret"), "{end:?}");
    };

    // The variable comes before the file.
    refused(
        "HF_TOKEN",
        "other",
        "check the name, and that the token in use may read it",
    );
    refused(
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
        "1",
        "for a private repository, set HF_TOKEN",
    );
    refused(
        "HF_TOKEN",
        "s€cret",
        "invalid HF_TOKEN: the token contains a character that a header cannot contain",
    );
    refused("HF_TOKEN", "a\nb", "invalid HF_TOKEN");
}

#[test]
fn a_broken_transfer_is_continued() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    hub.server.fail(&[Fault::Cut(40_000), Fault::Stall(10_000)]);
    let end = hub.run(&["pull", "hf:org/repo"]);
    hub.assert_pulled(&end, &file);
    let ranges: Vec<Option<String>> = hub
        .server
        .requests()
        .iter()
        .skip(1)
        .map(|request| request.header("range").map(str::to_owned))
        .collect();
    assert_eq!(
        ranges,
        [
            None,
            Some("bytes=40000-".to_owned()),
            Some("bytes=50000-".to_owned())
        ],
        "{end:?}"
    );
}

#[test]
fn a_part_is_continued_by_the_next_run() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    let part = |bytes: &[u8]| {
        let _ = fs::remove_dir_all(hub.folder());
        fs::create_dir_all(hub.folder().join("blobs")).expect("a folder for a test");
        fs::write(hub.part(&file), bytes).expect("a file for a test");
    };
    let range = || {
        let requests = hub.server.requests();
        requests[1..]
            .iter()
            .map(|request| request.header("range").map(str::to_owned))
            .collect::<Vec<_>>()
    };
    part(&file.content[..30_000]);
    let end = hub.run(&["pull", "hf:org/repo"]);
    hub.assert_pulled(&end, &file);
    assert_eq!(range(), [Some("bytes=30000-".to_owned())]);
    assert!(end.err.contains("(68.36 KiB of 97.66 KiB)"), "{end:?}");
    assert!(
        end.err
            .contains("continuing model-Q4_K_M.gguf at 29.30 KiB"),
        "{end:?}"
    );

    // A whole part is only checked.
    part(&file.content);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    assert_eq!(range(), [] as [Option<String>; 0]);

    // One that is too long is of another content.
    part(&content(200_000));
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    assert_eq!(range(), [None]);

    // A server that ignores ranges sends everything again.
    part(&file.content[..30_000]);
    hub.server.fail(&[Fault::IgnoreRange]);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    assert_eq!(range(), [Some("bytes=30000-".to_owned())]);

    // So does a server with another range, at the second attempt.
    part(&file.content[..30_000]);
    hub.server.fail(&[Fault::OtherRange]);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    assert_eq!(range(), [Some("bytes=30000-".to_owned()), None]);

    // A page of the network's login leaves the part alone.
    part(&file.content[..30_000]);
    hub.server.fail(&[Fault::Page]);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    assert_eq!(
        range(),
        [
            Some("bytes=30000-".to_owned()),
            Some("bytes=30000-".to_owned())
        ]
    );

    // A part with other bytes is found by the checksum, and deleted.
    part(&content(90_000)[60_000..]);
    hub.assert_failed(
        &hub.run(&["pull", "hf:org/repo"]),
        1,
        "model-Q4_K_M.gguf: the checksum is ",
    );
    assert!(!hub.part(&file).exists());
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
}

#[test]
fn an_interrupted_download_leaves_a_part() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    hub.server.fail(&[Fault::Stall(50_000)]);
    let mut command = hub.command(&["pull", "hf:org/repo"]);
    let child = command
        .env("HF_HUB_DOWNLOAD_TIMEOUT", "30")
        .spawn()
        .expect("the program starts");
    while fs::metadata(hub.part(&file)).map_or(0, |part| part.len()) < 50_000 {
        thread::sleep(Duration::from_millis(10));
    }

    signal(&child, "INT");
    let end = End::from(child.wait_with_output().expect("it ends"));
    assert_eq!((end.code, end.out.as_str()), (Some(130), ""), "{end:?}");
    assert_eq!(
        fs::read(hub.part(&file)).expect("it is there"),
        file.content[..50_000]
    );
    assert!(!hub.blob(&file).exists() && !hub.snapshot(&file.name).exists());
    let end = hub.run(&["models"]);
    assert!(
        end.err.contains(
            "hf:org/repo has 48.83 KiB of an unfinished download: pull it again, or remove it"
        ),
        "{end:?}"
    );
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
}

#[test]
fn two_processes_load_a_file_once() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    hub.server
        .set(|state| state.delay = Duration::from_millis(700));
    let start = || {
        let mut command = hub.command(&["pull", "hf:org/repo"]);
        command.env("HF_HUB_DOWNLOAD_TIMEOUT", "10");
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    };
    let children = [start(), start(), start()];
    let ends = children.map(|child| End::from(child.wait_with_output().expect("it ends")));
    for end in &ends {
        hub.assert_pulled(end, &file);
    }

    let waited = ends.iter().filter(|end| {
        end.err
            .contains("waiting for another process that loads model-Q4_K_M.gguf")
    });
    assert_eq!(waited.count(), 2, "{ends:?}");
    let loads = hub
        .server
        .requests()
        .iter()
        .filter(|request| request.path.contains("/resolve/"))
        .count();
    assert_eq!(loads, 1);
}

#[test]
fn sizes_and_checksums_are_requested_where_the_list_has_none() {
    let files = [usual(), File::git("config.json", b"{}")];
    let hub = Hub::new(&files);
    let names: Vec<_> = files
        .iter()
        .map(|file| serde_json::json!({ "rfilename": file.name }))
        .collect();
    let listing = serde_json::json!({ "sha": COMMIT, "siblings": names }).to_string();
    hub.server.set(|state| state.listing = Some(listing));
    for redirect in [None, Some("http://127.0.0.1:1/elsewhere".to_owned())] {
        // The headers come with the redirect to another host.
        hub.server.set(|state| state.redirect = redirect.clone());
        let end = hub.run(&["pull", "hf:org/repo:config.json"]);
        hub.assert_pulled(&end, &files[1]);
        let last = hub.server.requests().pop().expect("a request");
        assert_eq!(last.method, if redirect.is_none() { "GET" } else { "HEAD" });
    }

    hub.server.set(|state| state.redirect = None);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &files[0]);
}

#[test]
fn all_parts_of_a_model_are_pulled_listed_and_removed() {
    let names = [1, 2].map(|part| format!("m-Q4_K_M-0000{part}-of-00002.gguf"));
    let parts = names.map(|name| File::lfs(&name, name.as_bytes()));
    let hub = Hub::new(&parts);
    let first = &parts[0];
    for name in ["hf:org/repo", "hf:org/repo:m-Q4_K_M-00001-of-00002.gguf"] {
        hub.assert_pulled(&hub.run(&["pull", name]), first);
        let second = fs::read(hub.snapshot(&parts[1].name)).expect("it is there");
        assert_eq!(second, parts[1].content, "{name}");
        // Without the second file, the model is not complete, and the file is loaded again.
        fs::remove_file(hub.snapshot(&parts[1].name)).expect("it is there");
    }
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), first);

    let end = hub.run(&["models", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&end.out).expect("JSON");
    let rows = listed.as_array().expect("a list");
    assert_eq!(rows.len(), 1, "{listed}");
    assert_eq!(rows[0]["file"], first.name);
    let size = first.content.len() + parts[1].content.len();
    assert_eq!(rows[0]["size"], size);

    let end = hub.run(&["models", "remove", "hf:org/repo:Q4_K_M"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(files_below(&hub.folder()), [] as [std::path::PathBuf; 0]);
}
