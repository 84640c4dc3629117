//! `serve`, as a client and an operator see it. The replies are scripted, so no test needs a GPU.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::program::{SHORTER, command, run};
use crate::signals::signal;

/// The longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

const REPLY: &str = "one two three four five six seven eight nine ten";

/// A server with scripted replies on a free port.
struct Server {
    child: Child,
    port: u16,
    lines: mpsc::Receiver<String>,
    /// The lines before the one with its address.
    before: Vec<String>,
    /// Its file of replies.
    folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it is ready.
    fn start(options: &[&str]) -> Server {
        let server = Server::begin(options);
        server.wait_for("serving ");
        server
    }

    /// Starts a server and waits until it listens.
    fn begin(options: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = folder.path().join("replies.jsonl");
        fs::write(&script, format!("{{\"reply\": \"{REPLY}\"}}")).expect("it is written");
        let script = script.to_str().expect("UTF-8").to_owned();
        let base = ["serve", SHORTER, "--port", "0", "--scripted", &script];
        Server::spawn(command(&[&base[..], options].concat()), folder)
    }

    /// Runs a command that starts a server, and waits until it listens. The folder is kept as long
    /// as the server.
    fn spawn(mut command: Command, folder: TempDir) -> Server {
        let mut child = command.spawn().expect("the program starts");
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let line = line.expect("the program writes UTF-8");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server = Server {
            child,
            port: 0,
            lines,
            before: vec![],
            folder,
        };
        let line = loop {
            let line = server.lines.recv_timeout(PATIENCE).expect("it listens");
            if line.contains("listening on ") {
                break line;
            }
            server.before.push(line);
        };
        let port = line.rsplit("://").next().and_then(|rest| {
            let port = rest.split(':').nth(1)?;
            // In JSON, the rest of the object follows.
            let end = port.find(|c: char| !c.is_ascii_digit());
            port[..end.unwrap_or(port.len())].parse().ok()
        });
        server.port = port.unwrap_or_else(|| panic!("no port in {line:?}"));
        server
    }

    /// Waits for a line on stderr with this text.
    fn wait_for(&self, text: &str) -> String {
        let mut seen = vec![];
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {text:?} in {seen:#?}");
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is set");
        stream
    }

    /// Sends a request and returns the whole response.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = self.open(method, path, body);
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    }

    /// Sends a request and returns the bytes that come back, which may be no HTTP.
    fn ask_bytes(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let mut stream = self.open(method, path, body);
        let mut response = vec![];
        // The connection may be reset.
        let _ = stream.read_to_end(&mut response);
        response
    }

    /// Sends a request.
    fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        stream
    }

    /// Waits for the end and returns the exit code.
    fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "the program does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert!(self.folder.path().exists());
    }
}

const STREAM: &str = r#"{"prompt": "x", "stream": true, "n_predict": 40, "ignore_eos": true}"#;

#[test]
fn a_server_answers_and_ends_with_its_signal() {
    for name in ["INT", "TERM"] {
        let mut server = Server::start(&[]);
        let health = server.ask("GET", "/health?x=1", "");
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        assert!(health.contains("x-request-id: req_"), "{health}");
        let reply = server.ask("POST", "/completion", r#"{"prompt": "x"}"#);
        assert!(reply.contains(REPLY), "{reply}");
        signal(&server.child, name);
        assert_eq!(server.end(), Some(0), "{name}");
        server.wait_for("stopped");
    }
}

#[test]
fn a_stream_gets_its_last_event_after_the_signal() {
    let mut server = Server::start(&["--scripted-delay", "50"]);
    let mut stream = BufReader::new(server.open("POST", "/completion", STREAM));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert_ne!(stream.read_line(&mut line).expect("a line"), 0);
    }
    signal(&server.child, "TERM");
    server.wait_for("stopping after the running requests");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the rest");
    assert!(rest.contains("\"tokens_predicted\":40"), "{rest}");
    assert!(rest.contains("\"stop_type\":\"limit\""), "{rest}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn requests_that_take_too_long_are_ended_after_the_grace() {
    let mut server = Server::start(&["--scripted-delay", "200", "--grace", "0.5"]);
    let body = r#"{"prompt": "x", "stream": true, "n_predict": 1000, "ignore_eos": true}"#;
    let mut stream = BufReader::new(server.open("POST", "/completion", body));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert_ne!(stream.read_line(&mut line).expect("a line"), 0);
    }
    let start = Instant::now();
    signal(&server.child, "TERM");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the rest");
    // The reply has a proper end, and its connection was not cut.
    assert!(rest.contains("\"stop\":true"), "{rest}");
    assert!(rest.contains("\"stop_type\":\"none\""), "{rest}");
    assert_eq!(server.end(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = Server::start(&["--scripted-delay", "200"]);
    let body = r#"{"prompt": "x", "stream": true, "n_predict": 10000, "ignore_eos": true}"#;
    let _stream = server.open("POST", "/completion", body);
    thread::sleep(Duration::from_millis(300));
    signal(&server.child, "TERM");
    server.wait_for("stopping after the running requests");
    signal(&server.child, "TERM");
    assert_eq!(server.end(), Some(143));
}

#[test]
fn a_server_that_stops_accepts_no_connection() {
    let mut server = Server::start(&["--scripted-delay", "100"]);
    let stream = server.open("POST", "/completion", STREAM);
    thread::sleep(Duration::from_millis(300));
    signal(&server.child, "TERM");
    server.wait_for("stopping after");
    thread::sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err());
    drop(stream);
    // The only client is gone, so there is nothing to wait for.
    assert_eq!(server.end(), Some(0));
}

#[test]
fn two_servers_cannot_have_one_port() {
    let server = Server::start(&[]);
    let script = server.folder.path().join("replies.jsonl");
    let port = server.port.to_string();
    let script = script.to_str().expect("UTF-8");
    let second = run(&["serve", SHORTER, "--port", &port, "--scripted", script]);
    assert_eq!(second.code, Some(1));
    assert_eq!(
        second.err,
        format!(
            "error: port {port} is in use by another program: choose another one with --port, or 0 \
             for a free one\n"
        )
    );
}

#[test]
fn half_a_request_does_not_hold_a_connection() {
    let server = Server::start(&["--timeout", "1"]);
    let start = Instant::now();
    for half in [
        "",
        "GET /health HTTP/1.1\r\nhost: 127",
        "POST /completion HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{\"prompt\"",
        "POST /completion HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"pro",
    ] {
        let mut stream = server.connect();
        stream.write_all(half.as_bytes()).expect("it is sent");
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .expect("the connection is closed");
        if half.starts_with("POST") {
            assert!(response.starts_with("HTTP/1.1 408 "), "{half}: {response}");
        }
    }
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    assert!(
        server
            .ask("GET", "/health", "")
            .starts_with("HTTP/1.1 200 ")
    );
}

#[test]
fn what_is_not_http_is_refused() {
    let server = Server::start(&["--timeout", "2"]);
    let long = "a".repeat(200_000);
    for (request, status) in [
        ("hello\r\n\r\n".to_owned(), "HTTP/1.1 400 "),
        (
            format!("GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx: {long}\r\n\r\n"),
            "HTTP/1.1 431 ",
        ),
        ("\u{1}\u{2}\u{3}\r\n\r\n".to_owned(), "HTTP/1.1 400 "),
    ] {
        let mut stream = server.connect();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(request.as_bytes());
        let mut response = vec![];
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8_lossy(&response);
        assert!(
            response.is_empty() || response.starts_with(status),
            "{response}"
        );
    }
    assert!(
        server
            .ask("GET", "/health", "")
            .starts_with("HTTP/1.1 200 ")
    );
}

#[test]
fn limits_and_keys_come_from_the_options() {
    let keys = tempfile::NamedTempFile::new().expect("a file");
    fs::write(keys.path(), "# team\nsecret\n").expect("it is written");
    let file = keys.path().to_str().expect("UTF-8");
    let server = Server::start(&[
        "--api-key-file",
        file,
        "--body-limit",
        "100",
        "--alias",
        "tiny",
    ]);
    let without = server.ask("POST", "/v1/messages", "{}");
    assert!(without.starts_with("HTTP/1.1 401 "), "{without}");
    assert!(without.contains("authentication_error"), "{without}");
    let models = server.ask("GET", "/v1/models", "");
    assert!(models.contains("\"tiny\""), "{models}");

    let body = format!("{{\"prompt\": \"{}\"}}", "x".repeat(200));
    let mut stream = server.connect();
    let request = format!(
        "POST /completion HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer secret\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}

#[test]
fn connections_can_be_encrypted() {
    // A certificate for localhost that is only for this test.
    let cert = "cli/tests/data/localhost-cert.pem";
    let key = "cli/tests/data/localhost-key.pem";
    let server = Server::start(&["--tls-cert", cert, "--tls-key", key]);

    // Another provider that a test has installed is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = ureq::tls::TlsConfig::builder()
        .disable_verification(true)
        .build();
    let agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .build()
        .new_agent();
    let url = format!("https://127.0.0.1:{}/health", server.port);
    let mut response = agent.get(url).call().expect("a response");
    let text = response.body_mut().read_to_string().expect("a body");
    assert_eq!(text, "{\"status\":\"ok\"}");

    let plain = server.ask_bytes("GET", "/health", "");
    assert!(!plain.starts_with(b"HTTP/1.1 200"), "{plain:?}");
    let swapped = run(&[
        "serve",
        SHORTER,
        "--port",
        "0",
        "--tls-cert",
        key,
        "--tls-key",
        cert,
    ]);
    assert_eq!(swapped.code, Some(2), "{}", swapped.err);
    assert!(
        swapped.err.contains("localhost-key.pem with the key"),
        "{}",
        swapped.err
    );
}

#[test]
fn the_log_can_be_json() {
    let server = Server::begin(&["--log", "json"]);
    let ready = server.wait_for("serving ");
    assert!(ready.starts_with('{'), "{ready}");
    server.ask("GET", "/health", "");
    let line = server.wait_for("\"response\"");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["route"], "/health");
    assert_eq!(line["status"], 200);
    assert_eq!(line["method"], "GET");
    let id = line["span"]["id"].as_str().expect("an id");
    assert!(id.starts_with("req_"), "{line}");
}

#[test]
fn a_folder_of_models_loads_them_on_request() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(SHORTER);
    for name in ["a.gguf", "b.gguf"] {
        fs::copy(&model, folder.path().join(name)).expect("it is copied");
    }
    let models = folder.path().to_str().expect("UTF-8");
    let script = folder.path().join("replies.jsonl");
    fs::write(&script, "{\"reply\": \"yes\"}").expect("it is written");
    let mut child = command(&[
        "serve",
        models,
        "--port",
        "0",
        "--scripted",
        script.to_str().expect("UTF-8"),
        "--max-models",
        "1",
    ])
    .spawn()
    .expect("the program starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    let port = loop {
        line.clear();
        assert_ne!(
            stderr.read_line(&mut line).expect("a line"),
            0,
            "it has ended"
        );
        if let Some((_, port)) = line.trim_end().rsplit_once(':')
            && line.contains("listening on")
        {
            break port.parse().expect("a port");
        }
    };
    let (_, lines) = mpsc::channel();
    let server = Server {
        child,
        port,
        lines,
        before: vec![],
        folder: tempfile::tempdir().expect("a temporary folder"),
    };
    thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));

    let unknown = server.ask(
        "POST",
        "/completion",
        r#"{"prompt": "x", "model": "gpt-4o"}"#,
    );
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
    assert!(unknown.contains("use one of a, b"), "{unknown}");
    for name in ["a", "b", "a"] {
        let body = format!("{{\"prompt\": \"x\", \"model\": \"{name}\"}}");
        let start = Instant::now();
        loop {
            let reply = server.ask("POST", "/completion", &body);
            if reply.starts_with("HTTP/1.1 200 ") {
                assert!(reply.contains(&format!("\"model\":\"{name}\"")), "{reply}");
                break;
            }
            assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
            assert!(start.elapsed() < PATIENCE, "{name} is not loaded");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn wrong_options_are_named() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let folder = empty.path().to_str().expect("UTF-8");
    let file = empty.path().join("keys");
    fs::write(&file, "# nothing\n\n").expect("it is written");
    let file = file.to_str().expect("UTF-8");
    let cases: &[(&[&str], &str)] = &[
        (&["missing.gguf"], "missing.gguf: no such file or folder"),
        (&[folder], "contains no model: expected GGUF files"),
        (&[folder, "--alias", "x"], "--alias names one model"),
        (
            &[SHORTER, "--max-models", "2"],
            "--max-models is for a folder of models",
        ),
        (
            &[SHORTER, "--api-key-file", file],
            "there is none: expected one per line",
        ),
        (&[SHORTER, "--api-key", " "], "--api-key: the key is empty"),
        (
            &[SHORTER, "--host", "no.such.host.invalid"],
            "--host no.such.host.invalid: not an address",
        ),
        (&[SHORTER, "--tls-cert", "cert.pem"], "--tls-key"),
        (
            &[SHORTER, "--grace", "-1"],
            "expected a number of seconds above 0",
        ),
        (&[SHORTER, "--sequences", "257"], "257 is not in 1..=256"),
        (
            &[SHORTER, "--draft", SHORTER, "--lookup"],
            "cannot be used with",
        ),
        (&[SHORTER, "--draft-max", "3"], "--draft <MODEL>"),
        (
            &[SHORTER, "--draft", "nowhere.gguf"],
            "--draft nowhere.gguf: no such file or folder",
        ),
        (
            &[SHORTER, "--draft", SHORTER, "--scripted", file],
            "--scripted verifies no guesses: leave out --draft",
        ),
        (&[SHORTER, "--scripted", file], "line 1: "),
    ];
    for (options, message) in cases {
        let end = run(&[&["serve", "--port", "0"], *options].concat());
        assert_eq!(end.code, Some(2), "{options:?}: {}", end.err);
        assert!(end.err.contains(message), "{options:?}: {}", end.err);
    }
}

#[test]
fn a_model_that_cannot_be_loaded_ends_the_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let damaged = folder.path().join("damaged.gguf");
    fs::write(&damaged, "GGUF and then nothing").expect("it is written");
    let end = run(&[
        "serve",
        damaged.to_str().expect("UTF-8"),
        "--port",
        "0",
        "--device",
        "emu",
    ]);
    assert_eq!(end.code, Some(2), "{}", end.err);
    assert!(end.err.contains("damaged.gguf"), "{}", end.err);
}

#[test]
fn a_server_without_keys_on_all_addresses_warns() {
    let server = Server::begin(&["--host", "0.0.0.0"]);
    assert!(
        server.before[0].starts_with("warning: the server is open to other machines"),
        "{:?}",
        server.before
    );
    let server = Server::begin(&["--host", "0.0.0.0", "--api-key", "secret"]);
    assert_eq!(server.before, Vec::<String>::new());
}

/// A limit on the size of files has the effect of a full disk without one: a write fails after some
/// bytes. The signal that would end the program is ignored, so the write returns an error.
#[test]
fn a_full_disk_costs_the_saved_prompts_and_nothing_else() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let folder = cache.path().to_str().expect("UTF-8");
    let options = [
        "serve",
        SHORTER,
        "--port",
        "0",
        "--device",
        "emu",
        "--sequences",
        "2",
        "--ctx",
        "192",
        "--deterministic",
        "--cache-dir",
        folder,
    ];
    // One full page of 64 positions, and a part of the next one.
    let prompt: Vec<u32> = (0..80).map(|i| 300 + i * 7 % 90).collect();
    let body = format!(
        "{{\"prompt\": {prompt:?}, \"n_predict\": 2, \"temperature\": 0, \"ignore_eos\": true}}"
    );
    let content = |response: &str| {
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let (_, rest) = response.split_once("\"content\":").expect("a text");
        rest.split_once("\",\"").expect("its end").0.to_owned()
    };

    let limit = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    let program = command(&options);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", limit])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(program.get_current_dir().expect("it is set"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Server::spawn(limited, tempfile::tempdir().expect("a temporary folder"));
    server.wait_for("serving ");
    let first = content(&server.ask("POST", "/completion", &body));
    signal(&server.child, "TERM");
    let line = server.wait_for("could not save its state");
    assert!(line.contains("the pages are not saved"), "{line}");
    assert!(line.contains("File too large"), "{line}");
    server.wait_for("stopped");
    assert_eq!(server.end(), Some(0));

    // No half file is left, and the folder is as good as a new one.
    let mut pages = vec![];
    let mut folders = vec![cache.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::metadata(&path).expect("a file").len() > 0 {
                pages.push(path);
            }
        }
    }
    assert_eq!(pages, Vec::<PathBuf>::new());
    let mut server = Server::spawn(
        command(&options),
        tempfile::tempdir().expect("a temporary folder"),
    );
    server.wait_for("serving ");
    assert_eq!(content(&server.ask("POST", "/completion", &body)), first);
    signal(&server.child, "TERM");
    server.wait_for("saved the pages of prompts");
    assert_eq!(server.end(), Some(0));
}
