//! Small files of a folder, read whole.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Map, Value};

use crate::Error;
use crate::file::StableFile;
use crate::folder::folder_fault::Fault;
use crate::unique_keys::unique_keys;

/// The longest file that is read whole. The largest known tokenizer.json has 33 MB.
const MOST: u64 = 1 << 28;

/// The bytes of a file of the folder, if there is one.
pub(crate) fn bytes(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(name);

    // Opening a pipe would wait for a writer.
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Open { path, source }),
        Ok(found) if !found.is_file() => {
            return Err(Error::NoFile {
                path,
                what: "no file",
            });
        }
        Ok(_) => {}
    }

    let file = StableFile::open(&path)?;
    if file.len() > MOST {
        let fault = Fault::Long {
            found: file.len(),
            most: MOST,
        };
        return Err(Error::Folder {
            path,
            fault: Box::new(fault),
        });
    }

    let mut bytes = vec![0; file.len() as usize];
    file.read(0, &mut bytes)?;
    file.check()?;
    Ok(Some(bytes))
}

/// The text of a file of the folder, if there is one.
pub(crate) fn text(folder: &Path, name: &str) -> Result<Option<String>, Error> {
    let Some(bytes) = bytes(folder, name)? else {
        return Ok(None);
    };
    let fault = |_| Error::Folder {
        path: folder.join(name),
        fault: Box::new(Fault::Json("it is not UTF-8".to_owned())),
    };
    String::from_utf8(bytes).map(Some).map_err(fault)
}

/// The JSON object in a file of the folder, if there is one.
pub(crate) fn object(folder: &Path, name: &str) -> Result<Option<Map<String, Value>>, Error> {
    let Some(bytes) = bytes(folder, name)? else {
        return Ok(None);
    };
    let fault = |fault| Error::Folder {
        path: folder.join(name),
        fault: Box::new(fault),
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => {
            unique_keys(&bytes).map_err(|problem| fault(Fault::Keys(problem)))?;
            Ok(Some(object))
        }
        Ok(_) => Err(fault(Fault::NotObject)),
        Err(error) => Err(fault(Fault::Json(error.to_string()))),
    }
}
