//! A client of HTTP/1.1 that can also break the protocol: half requests, slow reading, and
//! connections that are closed in the middle.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// The longest time without a byte from the server.
const SILENCE: Duration = Duration::from_secs(300);

/// The maximum length of a line or a chunk of a response.
const MAX_LEN: u64 = 64 << 20;

/// Opens a connection to the server on this machine.
pub(super) fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    Ok(stream)
}

/// Returns the first line and the headers of a request with a body of this length.
pub(super) fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Sends a request and reads the head of the response.
pub(super) fn request(port: u16, method: &str, path: &str, body: &str) -> Result<Response> {
    let mut stream = connect(port)?;
    let mut bytes = head(method, path, body.len()).into_bytes();
    bytes.extend(body.as_bytes());
    stream.write_all(&bytes).context("cannot send")?;
    Response::read(stream)
}

/// A response whose body is read in pieces.
pub(super) struct Response {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
    rest: BodyRest,
}

/// The part of a body that has not been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyRest {
    Bytes(u64),
    /// Chunks with their lengths, the last of which is empty.
    Chunks,
    UntilClosed,
    Nothing,
}

impl Response {
    /// Reads the head of a response.
    pub(super) fn read(stream: TcpStream) -> Result<Response> {
        let mut stream = BufReader::new(stream);
        let first = line(&mut stream)?;
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let Some(status) = status else {
            bail!("the response begins with {first:?}");
        };
        let mut headers = vec![];
        loop {
            let line = line(&mut stream)?;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else {
                bail!("a header without a colon: {line:?}");
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response {
            status,
            headers,
            stream,
            rest: BodyRest::UntilClosed,
        };
        if response.header("transfer-encoding") == Some("chunked") {
            response.rest = BodyRest::Chunks;
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().context("the content length is no number")?;
            response.rest = BodyRest::Bytes(length);
        }
        Ok(response)
    }

    /// Returns the value of a header, whose name must be in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(found, _)| found == name)?;
        Some(value)
    }

    /// Returns the next piece of the body, or `None` at its end.
    pub(super) fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        let piece = match self.rest {
            BodyRest::Nothing => return Ok(None),
            BodyRest::Bytes(length) => {
                self.rest = BodyRest::Nothing;
                exactly(&mut self.stream, length)?
            }
            BodyRest::UntilClosed => {
                self.rest = BodyRest::Nothing;
                let mut bytes = vec![];
                self.stream.read_to_end(&mut bytes)?;
                bytes
            }
            BodyRest::Chunks => {
                let length = line(&mut self.stream)?;
                let length = u64::from_str_radix(&length, 16)
                    .with_context(|| format!("the length of a chunk is {length:?}"))?;
                let bytes = exactly(&mut self.stream, length)?;
                let end = line(&mut self.stream)?;
                ensure!(end.is_empty(), "a chunk ends with {end:?}");
                if length == 0 {
                    self.rest = BodyRest::Nothing;
                }
                bytes
            }
        };
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    /// Reads the rest of the body.
    pub(super) fn text(&mut self) -> Result<String> {
        let mut bytes = vec![];
        while let Some(piece) = self.piece()? {
            bytes.extend(piece);
        }
        String::from_utf8(bytes).context("the body is not UTF-8")
    }
}

/// Reads a line without its end. A connection that is closed before the end is an error.
fn line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    stream.take(MAX_LEN).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            .with_context(|| format!("the connection was closed after {line:?}")),
    }
}

fn exactly(stream: &mut BufReader<TcpStream>, length: u64) -> Result<Vec<u8>> {
    ensure!(
        length <= MAX_LEN,
        "{length} bytes are too many for one piece"
    );
    let mut bytes = vec![0; length as usize];
    stream
        .read_exact(&mut bytes)
        .context("the body ends too early")?;
    Ok(bytes)
}
