//! Reading of small text files, with a limit on their size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;

/// The largest file that is read, in bytes.
const MOST: u64 = 1 << 26;

/// Returns the text of a file. `what` names the kind of file in error messages.
///
/// # Errors
/// Returns an error if the file cannot be read, is larger than 64 MiB, or is not valid UTF-8.
pub(crate) fn read(what: &str, file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(MOST + 1).read_to_string(&mut text));
    let problem = match read {
        Ok(bytes) if bytes as u64 <= MOST => return Ok(text),
        Ok(_) => format!("it has more than {} MiB", MOST >> 20),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            "it is not valid UTF-8".to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(Failure::Input(format!(
        "cannot read the {what} {}: {problem}",
        file.display()
    )))
}
