//! Files of text that are read whole, up to a length that no sensible one has.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;

/// Bytes of the largest.
const MOST: u64 = 1 << 26;

/// The text of a file; `what` it is, for errors.
pub(crate) fn read(what: &str, file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(MOST + 1).read_to_string(&mut text));
    let problem = match read {
        Ok(bytes) if bytes as u64 <= MOST => return Ok(text),
        Ok(_) => format!("it has more than {} MiB", MOST >> 20),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => "it is no UTF-8".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Failure::Input(format!(
        "cannot read the {what} {}: {problem}",
        file.display()
    )))
}
