//! Downloads that fail: the message names the cause, and no file has a final name.

use std::fs;
use std::slice::from_ref;

use super::server::{Fault, File, Server, silent};
use super::{Hub, content, usual};
use crate::program::End;

/// Enough of a fault for all attempts.
fn always(fault: Fault) -> Vec<Fault> {
    vec![fault; 5]
}

fn status(status: u16) -> Fault {
    Fault::Status(status, vec![])
}

fn status_with(status: u16, name: &'static str, value: &str) -> Fault {
    Fault::Status(status, vec![(name, value.to_owned())])
}

#[test]
fn answers_that_stay_wrong_are_reported_at_once() {
    let hub = Hub::new(&[usual()]);
    let cases = [
        (
            status_with(401, "X-Error-Code", "RepoNotFound"),
            2,
            "the hub has no repository org/repo, or it is private: check the name; for a private repository, set HF_TOKEN",
        ),
        (
            status_with(403, "X-Error-Code", "GatedRepo"),
            2,
            "the repository org/repo is gated: accept its terms on its page on the hub, then set HF_TOKEN to a token of your account",
        ),
        (
            status(401),
            2,
            "the hub denies access to org/repo (status 401 Unauthorized): set HF_TOKEN to a token that may read it",
        ),
        (
            status(403),
            2,
            "the hub denies access to org/repo (status 403 Forbidden)",
        ),
        (
            status_with(404, "X-Error-Code", "RepoNotFound"),
            2,
            "the hub has no repository org/repo",
        ),
        (status(404), 2, "the hub has no repository org/repo"),
        (
            status_with(429, "Retry-After", "3600"),
            1,
            "status 429 Too Many Requests; the server asks to wait for 3600 s, try again then",
        ),
        (
            status_with(503, "Retry-After", "61"),
            1,
            "the server asks to wait for 61 s",
        ),
        (
            status_with(400, "X-Error-Message", "no more"),
            1,
            "status 400 Bad Request: no more",
        ),
        (
            status(501),
            1,
            "cannot load {endpoint}/api/models/org/repo/revision/main: the server answers with status 501 Not Implemented",
        ),
        (status(302), 1, "status 302 Found"),
        (status(204), 1, "status 204 No Content"),
        (
            status_with(302, "Location", "ftp://host/x"),
            1,
            "it leads to \"ftp://host/x\": it does not begin with https:// or http://",
        ),
        (
            status_with(302, "Location", "http://user:word@host/x"),
            1,
            "it contains a user name",
        ),
        (
            status_with(302, "Location", "file:///etc/passwd"),
            1,
            "it does not begin with https:// or http://",
        ),
        (
            Fault::Text("<html>".to_owned()),
            1,
            "cannot use the answer of {endpoint}/api/models/org/repo/revision/main: it is not a list of files",
        ),
        (Fault::Text("{}".to_owned()), 1, "it is not a list of files"),
        (
            Fault::Text(r#"{"sha": "../../x", "siblings": []}"#.to_owned()),
            1,
            "\"../../x\" is not a commit",
        ),
        (
            Fault::Text(r#"{"sha": "", "siblings": []}"#.to_owned()),
            1,
            "\"\" is not a commit",
        ),
        (
            Fault::Text(
                r#"{"sha": "a", "siblings": [{"rfilename": "x"}, {"rfilename": "x"}]}"#.to_owned(),
            ),
            1,
            "it lists \"x\" twice",
        ),
        (
            Fault::Text(
                r#"{"sha": "a", "siblings": [{"rfilename": "x", "lfs": {"sha256": "../x"}}]}"#
                    .to_owned(),
            ),
            1,
            "\"../x\" is not a SHA-256",
        ),
    ];
    for (fault, code, message) in cases {
        hub.server.fail_listing(&[fault]);
        let end = hub.run(&["pull", "hf:org/repo"]);
        hub.assert_failed(&end, code, message);
        assert_eq!(hub.server.requests().len(), 1, "{message}");
        assert!(!end.err.contains('\u{1b}'), "{end:?}");
    }

    hub.assert_failed(
        &hub.run(&["pull", "hf:org/other"]),
        2,
        "the hub has no repository org/other",
    );
}

#[test]
fn redirects_in_a_circle_end() {
    let hub = Hub::new(&[usual()]);
    hub.server
        .set(|state| state.redirect = Some("{path}".to_owned()));
    hub.assert_failed(
        &hub.run(&["pull", "hf:org/repo"]),
        1,
        "more than 10 redirects follow each other",
    );
    let requests = hub.server.requests().len();
    assert_eq!(requests, 12);
}

/// A server that recovers costs some seconds, and no word of the user.
#[test]
fn answers_that_may_change_are_requested_again() {
    let file = usual();
    let hub = Hub::new(from_ref(&file));
    hub.server.fail_listing(&[status(503), Fault::Close]);
    hub.server
        .fail(&[status_with(429, "Retry-After", "1"), Fault::Compressed]);
    let end = hub.run(&["pull", "hf:org/repo"]);
    hub.assert_pulled(&end, &file);
    assert!(
        end.err.contains(
            "the server answers with status 503 Service Unavailable; trying again in 0.3 s"
        ),
        "{end:?}"
    );
    assert!(
        end.err
            .contains("status 429 Too Many Requests; trying again in 1.0 s"),
        "{end:?}"
    );
}

#[test]
fn attempts_end() {
    let cases: &[(Fault, &str)] = &[
        (
            status(500),
            "the server answers with status 500 Internal Server Error",
        ),
        (
            status_with(429, "RateLimit", "\"api\";r=0;t=1"),
            "status 429 Too Many Requests",
        ),
        (Fault::Close, "cannot load {endpoint}/org/repo/resolve/"),
        (Fault::Cut(0), "cannot load {endpoint}/org/repo/resolve/"),
        (
            Fault::Length(50),
            "it has 50 bytes, but 100000 are expected",
        ),
        (
            Fault::Length(1 << 40),
            "it has 1099511627776 bytes, but 100000 are expected",
        ),
        (Fault::Page, "it has 34 bytes, but 100000 are expected"),
        (
            Fault::Compressed,
            "it is compressed, which was not requested",
        ),
        (
            status(206),
            "its status is 206 Partial Content, which does not fit the request",
        ),
        (Fault::Stall(0), "nothing came before the timeout"),
    ];
    std::thread::scope(|scope| {
        for (fault, message) in cases {
            scope.spawn(move || {
                let hub = Hub::new(&[usual()]);
                hub.server.fail(&always(fault.clone()));
                hub.assert_failed(&hub.run(&["pull", "hf:org/repo"]), 1, message);
                let requests = hub.server.requests().len();
                assert_eq!(requests, 5, "{fault:?}");
            });
        }
    });
}

#[test]
fn wrong_bytes_are_deleted() {
    let file = usual();
    for (fault, message) in [
        (Fault::Corrupt, "model-Q4_K_M.gguf: the checksum is "),
        (
            Fault::Unknown(1),
            "model-Q4_K_M.gguf: the hub announces 100000 bytes, but more came; what was loaded is deleted",
        ),
        (Fault::Unknown(1_000_000), "but more came"),
    ] {
        let hub = Hub::new(from_ref(&file));
        hub.server.fail(&[fault]);
        hub.assert_failed(&hub.run(&["pull", "hf:org/repo"]), 1, message);
        assert!(!hub.part(&file).exists());
        hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
    }

    // A small file of git has a checksum as well.
    let config = File::git("config.json", b"{\"a\": 1}");
    let hub = Hub::new(from_ref(&config));
    hub.server.fail(&[Fault::Corrupt]);
    hub.assert_failed(
        &hub.run(&["pull", "hf:org/repo:config.json"]),
        1,
        "config.json: the checksum is ",
    );
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo:config.json"]), &config);

    // Without a length the end is where the connection ends, so too few bytes are not an end.
    let hub = Hub::new(from_ref(&file));
    hub.server.fail(&[Fault::Unknown(-10)]);
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
}

#[test]
fn a_file_that_vanishes_is_named() {
    let hub = Hub::new(&[usual()]);
    for (fault, code, message) in [
        (
            status_with(404, "X-Error-Code", "EntryNotFound"),
            2,
            "org/repo has no file \"model-Q4_K_M.gguf\"",
        ),
        (
            status_with(403, "X-Error-Code", "GatedRepo"),
            2,
            "the repository org/repo is gated",
        ),
        (status(410), 1, "status 410 Gone"),
    ] {
        hub.server.fail(&[fault]);
        hub.assert_failed(&hub.run(&["pull", "hf:org/repo"]), code, message);
    }
}

#[test]
fn servers_that_do_not_answer_are_named() {
    let hub = Hub::new(&[]);
    let cases = [
        (
            "http://127.0.0.1:1".to_owned(),
            1,
            "cannot load http://127.0.0.1:1/api/models/org/repo/revision/main: ",
        ),
        (
            "http://name.invalid".to_owned(),
            1,
            "cannot load http://name.invalid/api/",
        ),
        (silent(), 1, "nothing came before the timeout"),
        (
            "127.0.0.1:1".to_owned(),
            2,
            "invalid HF_ENDPOINT: it does not begin with https:// or http://",
        ),
        ("ftp://host".to_owned(), 2, "invalid HF_ENDPOINT"),
        (
            "http://".to_owned(),
            2,
            "invalid HF_ENDPOINT: it has no valid host",
        ),
        (
            "http://user:word@host".to_owned(),
            2,
            "invalid HF_ENDPOINT: it contains a user name",
        ),
        (
            "http://a b".to_owned(),
            2,
            "invalid HF_ENDPOINT: it has no valid host",
        ),
        // This is plain HTTP where TLS is expected.
        (
            Server::new(&[]).endpoint.replace("http:", "https:"),
            1,
            "/api/models/org/repo/revision/main: ",
        ),
    ];
    std::thread::scope(|scope| {
        for (endpoint, code, message) in &cases {
            let hub = &hub;
            scope.spawn(move || {
                let mut command = hub.command(&["pull", "hf:org/repo"]);
                let end = End::from(
                    command
                        .env("HF_ENDPOINT", endpoint)
                        .output()
                        .expect("it starts"),
                );
                hub.assert_failed(&end, *code, message);
                assert!(!end.err.contains("word"), "{end:?}");
            });
        }
    });
}

#[test]
fn a_disk_without_space_is_found_before_the_download() {
    let hub = Hub::new(&[]);
    let listing = format!(
        r#"{{"sha": "a", "siblings": [{{"rfilename": "m-Q4_K_M.gguf", "lfs": {{"sha256": "{}", "size": {}}}}}]}}"#,
        "a".repeat(64),
        1_u64 << 62
    );
    hub.server.set(|state| state.listing = Some(listing));
    let end = hub.run(&["pull", "hf:org/repo"]);
    hub.assert_failed(&end, 1, "4.00 EiB more are needed, but ");
    assert!(
        end.err
            .contains("free; free some space, or set HF_HUB_CACHE to a folder on another disk"),
        "{end:?}"
    );
    assert_eq!(hub.server.requests().len(), 1);
}

/// The limit of a file's size stands for a full disk, which a test cannot have.
#[test]
#[cfg(target_os = "linux")]
fn a_write_that_fails_leaves_the_part() {
    let file = File::lfs("m-Q4_K_M.gguf", &content(1_000_000));
    let hub = Hub::new(from_ref(&file));
    let mut bash = std::process::Command::new("bash");
    let line = "trap '' XFSZ; ulimit -f 300; exec \"$0\" pull hf:org/repo";
    bash.args(["-c", line, env!("CARGO_BIN_EXE_warpwright")]);
    hub.environment(&mut bash);
    let end = End::from(bash.output().expect("bash runs"));
    hub.assert_failed(&end, 1, "File too large");
    assert!(
        end.err.contains(&format!(
            "error: cannot write {}",
            hub.part(&file).display()
        )),
        "{end:?}"
    );
    let part = fs::read(hub.part(&file)).expect("it is there");
    assert!(!part.is_empty() && part.len() < 1_000_000 && file.content.starts_with(&part));
    hub.assert_pulled(&hub.run(&["pull", "hf:org/repo"]), &file);
}

#[test]
fn folders_that_cannot_be_written_are_named() {
    let hub = Hub::new(&[usual()]);
    fs::write(hub.home.path().join("file"), "").expect("a file for a test");
    let cases = [
        (
            "HF_HUB_CACHE",
            hub.home.path().join("file"),
            1,
            "cannot create ",
        ),
        (
            "HF_HOME",
            hub.home.path().join("file/x"),
            1,
            "cannot create ",
        ),
        (
            "HF_HUB_CACHE",
            "/proc/cache".into(),
            1,
            "cannot create /proc/cache",
        ),
        (
            "HF_HOME",
            "$HOME/x".into(),
            2,
            "invalid HF_HOME: $HOME/x contains a '$'",
        ),
        (
            "HF_HUB_DOWNLOAD_TIMEOUT",
            "soon".into(),
            2,
            "invalid HF_HUB_DOWNLOAD_TIMEOUT: \"soon\" is not a number of seconds",
        ),
        (
            "HF_HUB_DOWNLOAD_TIMEOUT",
            "0".into(),
            2,
            "invalid HF_HUB_DOWNLOAD_TIMEOUT",
        ),
        (
            "HF_HUB_DOWNLOAD_TIMEOUT",
            "-1".into(),
            2,
            "invalid HF_HUB_DOWNLOAD_TIMEOUT",
        ),
    ];
    for (variable, value, code, message) in cases {
        let mut command = hub.command(&["pull", "hf:org/repo"]);
        let end = End::from(command.env(variable, value).output().expect("it starts"));
        hub.assert_failed(&end, code, message);
    }
}
