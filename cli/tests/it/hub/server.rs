//! A server on this machine that speaks the hub's protocol, with faults on request.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The commit that the server's repositories are at.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of a repository.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    pub(crate) storage: Storage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    Lfs,
    Git,
}

impl File {
    pub(crate) fn lfs(name: &str, content: &[u8]) -> File {
        File {
            name: name.to_owned(),
            content: content.to_owned(),
            storage: Storage::Lfs,
        }
    }

    pub(crate) fn git(name: &str, content: &[u8]) -> File {
        File {
            storage: Storage::Git,
            ..File::lfs(name, content)
        }
    }

    /// The name of the content in the cache.
    pub(crate) fn etag(&self) -> String {
        match self.storage {
            Storage::Lfs => format!("{:x}", Sha256::digest(&self.content)),
            Storage::Git => {
                let header = format!("blob {}\0", self.content.len());
                format!(
                    "{:x}",
                    Sha1::new_with_prefix(header)
                        .chain_update(&self.content)
                        .finalize()
                )
            }
        }
    }

    fn listed(&self) -> Value {
        let size = self.content.len();
        match self.storage {
            Storage::Lfs => json!({
                "rfilename": self.name, "size": size, "blobId": "0".repeat(40),
                "lfs": { "sha256": self.etag(), "size": size, "pointerSize": 130 },
            }),
            Storage::Git => json!({ "rfilename": self.name, "size": size, "blobId": self.etag() }),
        }
    }
}

/// How the server answers one request, where it does not answer as it should.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A status with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// The right headers, and only so many bytes of the body.
    Cut(usize),
    /// The connection closes without an answer.
    Close,
    /// The right headers, some bytes, and then nothing for some seconds.
    Stall(usize),
    /// All bytes, where a range was requested.
    IgnoreRange,
    /// Another range than the requested one.
    OtherRange,
    /// Another length in the header than the body has.
    Length(u64),
    /// A byte is wrong.
    Corrupt,
    /// No length in the header, and this many bytes less or more.
    Unknown(i64),
    /// A page of HTML with status 200.
    Page,
    /// A body that is announced as compressed.
    Compressed,
    /// A text with status 200.
    Text(String),
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// What a server has, and how it answers.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) files: Vec<File>,
    /// The listing, if it is not that of the files.
    pub(crate) listing: Option<String>,
    /// The address that files are redirected to. `{path}` stands for the path.
    pub(crate) redirect: Option<String>,
    /// The token without which everything is refused.
    pub(crate) token: Option<String>,
    /// Faults of the next requests for the listing.
    pub(crate) listing_faults: VecDeque<Fault>,
    /// Faults of the next requests for a file.
    pub(crate) file_faults: VecDeque<Fault>,
    /// The time before each file's body is sent.
    pub(crate) delay: Duration,
    pub(crate) requests: Vec<Request>,
}

/// A server. Its thread ends with the test process.
pub(crate) struct Server {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// Starts a server for the repository `org/repo`.
    pub(crate) fn new(files: &[File]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State {
            files: files.to_vec(),
            ..State::default()
        }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                // A client that closes the connection is not an error of the test.
                thread::spawn(move || drop(answer(stream, &state)));
            }
        });
        Server { endpoint, state }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no test fails with the lock"));
    }

    /// Has the next requests for files fail.
    pub(crate) fn fail(&self, faults: &[Fault]) {
        self.set(|state| state.file_faults = faults.iter().cloned().collect());
    }

    /// Has the next requests for the listing fail.
    pub(crate) fn fail_listing(&self, faults: &[Fault]) {
        self.set(|state| state.listing_faults = faults.iter().cloned().collect());
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(
            &mut self
                .state
                .lock()
                .expect("no test fails with the lock")
                .requests,
        )
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut words = first.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let mut request = Request {
        method: word(),
        path: word(),
        headers: vec![],
    };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        request
            .headers
            .push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }

    let mut state = state.lock().expect("no test fails with the lock");
    state.requests.push(request.clone());
    let reply = if request.path.starts_with("/api/") {
        let fault = state.listing_faults.pop_front();
        listing(&state, &request, fault)
    } else {
        let fault = if request.method == "GET" {
            state.file_faults.pop_front()
        } else {
            None
        };
        file(&state, &request, fault)
    };
    let delay = state.delay;
    drop(state);
    let Some(reply) = reply else { return Ok(()) };
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }

    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if request.method == "HEAD" {
        return Ok(());
    }

    thread::sleep(delay);
    stream.write_all(&reply.body)?;
    stream.flush()?;
    thread::sleep(reply.stall);
    Ok(())
}

struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    stall: Duration,
}

impl Reply {
    fn new(status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8>) -> Reply {
        Reply {
            status,
            headers,
            body,
            stall: Duration::ZERO,
        }
    }

    fn error(status: u16, code: &str) -> Reply {
        let headers = vec![
            ("X-Error-Code", code.to_owned()),
            ("Content-Length", "0".to_owned()),
        ];
        Reply::new(status, headers, vec![])
    }

    fn whole(status: u16, body: Vec<u8>) -> Reply {
        Reply::new(
            status,
            vec![("Content-Length", body.len().to_string())],
            body,
        )
    }
}

fn is_allowed(state: &State, request: &Request) -> bool {
    let wanted = state.token.as_ref().map(|token| format!("Bearer {token}"));
    wanted.is_none_or(|wanted| request.header("authorization") == Some(wanted.as_str()))
}

fn listing(state: &State, request: &Request, fault: Option<Fault>) -> Option<Reply> {
    if let Some(fault) = fault {
        return faulty(fault, Reply::whole(200, vec![]));
    }
    if !is_allowed(state, request) {
        return Some(Reply::error(401, "RepoNotFound"));
    }

    if !request
        .path
        .starts_with("/api/models/org/repo/revision/main")
    {
        return Some(Reply::error(404, "RepoNotFound"));
    }

    let files = || {
        let files: Vec<Value> = state.files.iter().map(File::listed).collect();
        json!({ "id": "org/repo", "sha": COMMIT, "siblings": files }).to_string()
    };
    Some(Reply::whole(
        200,
        state.listing.clone().unwrap_or_else(files).into_bytes(),
    ))
}

fn file(state: &State, request: &Request, fault: Option<Fault>) -> Option<Reply> {
    if !is_allowed(state, request) {
        return Some(Reply::error(401, "GatedRepo"));
    }

    let path = request.path.split('?').next().unwrap_or_default();
    let name = ["/org/repo/resolve/main/", "/cdn/org/repo/resolve/main/"]
        .iter()
        .map(|prefix| prefix.replace("main", COMMIT))
        .find_map(|prefix| path.strip_prefix(&prefix).map(str::to_owned))
        // The Python client asks for the branch first.
        .or_else(|| {
            path.strip_prefix("/org/repo/resolve/main/")
                .map(str::to_owned)
        });
    let Some(file) = name.and_then(|name| {
        state
            .files
            .iter()
            .find(|file| file.name == name.replace("%20", " "))
    }) else {
        return Some(Reply::error(404, "EntryNotFound"));
    };

    let size = file.content.len();
    let mut headers = vec![
        ("ETag", format!("\"{}\"", file.etag())),
        ("X-Repo-Commit", COMMIT.to_owned()),
        ("Accept-Ranges", "bytes".to_owned()),
    ];
    if let Some(redirect) = state
        .redirect
        .as_ref()
        .filter(|_| !path.starts_with("/cdn/"))
    {
        headers.extend([
            ("Location", redirect.replace("{path}", path)),
            ("X-Linked-ETag", format!("\"{}\"", file.etag())),
            ("X-Linked-Size", size.to_string()),
            ("Content-Length", "0".to_owned()),
        ]);
        return Some(Reply::new(302, headers, vec![]));
    }

    let from: Option<usize> = request.header("range").and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .split('-')
            .next()?
            .parse()
            .ok()
    });
    let reply = match from {
        Some(from) if matches!(fault, Some(Fault::IgnoreRange)) => {
            assert!(from > 0, "a range is requested for the rest of a file");
            headers.push(("Content-Length", size.to_string()));
            Reply::new(200, headers, file.content.clone())
        }
        Some(from) if from >= size => Reply::error(416, ""),
        Some(from) => {
            let first = if matches!(fault, Some(Fault::OtherRange)) {
                from - 1
            } else {
                from
            };
            headers.push((
                "Content-Range",
                format!("bytes {first}-{}/{size}", size - 1),
            ));
            headers.push(("Content-Length", (size - first).to_string()));
            Reply::new(206, headers, file.content[first..].to_vec())
        }
        None => {
            headers.push(("Content-Length", size.to_string()));
            Reply::new(200, headers, file.content.clone())
        }
    };
    match fault {
        Some(fault) => faulty(fault, reply),
        None => Some(reply),
    }
}

/// Returns the right reply with a fault.
fn faulty(fault: Fault, mut right: Reply) -> Option<Reply> {
    let without_length =
        |reply: &mut Reply| reply.headers.retain(|(name, _)| *name != "Content-Length");
    match fault {
        Fault::Status(status, mut headers) => {
            headers.push(("Content-Length", "0".to_owned()));
            Some(Reply::new(status, headers, vec![]))
        }
        Fault::Cut(bytes) => {
            right.body.truncate(bytes);
            Some(right)
        }
        Fault::Close => None,
        Fault::Stall(bytes) => {
            right.body.truncate(bytes);
            right.stall = Duration::from_secs(4);
            Some(right)
        }
        Fault::IgnoreRange | Fault::OtherRange => Some(right),
        Fault::Length(length) => {
            without_length(&mut right);
            right.headers.push(("Content-Length", length.to_string()));
            Some(right)
        }
        Fault::Corrupt => {
            let last = right.body.len() - 1;
            right.body[last] ^= 1;
            Some(right)
        }
        Fault::Unknown(more) => {
            without_length(&mut right);
            let length = right.body.len().saturating_add_signed(more as isize);
            right.body.resize(length, b'x');
            Some(right)
        }
        Fault::Page => Some(Reply::whole(
            200,
            b"<html>log in to the network</html>".to_vec(),
        )),
        Fault::Compressed => {
            right.headers.push(("Content-Encoding", "gzip".to_owned()));
            Some(right)
        }
        Fault::Text(text) => Some(Reply::whole(200, text.into_bytes())),
    }
}

/// Accepts a connection and keeps it without an answer.
pub(crate) fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || drop(stream.read_to_end(&mut Vec::<u8>::new())));
        }
    });
    endpoint
}
