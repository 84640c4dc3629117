//! Output files: there whole, or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::failure::Failure;

/// Writes a file through `fill`. Until all of it is written the file is a temporary one beside `path`, made before
/// `fill` is called: a path that cannot be written costs no work.
pub(crate) fn write_file<R>(
    path: &Path,
    fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let fault = |error: io::Error| Failure::Runtime(format!("cannot write {}: {error}", path.display()));
    // A device or a pipe cannot be replaced by a rename.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let mut file = BufWriter::new(File::create(path).map_err(fault)?);
        let filled = fill(&mut Sink { to: &mut file, path })?;
        file.flush().map_err(fault)?;
        return Ok(filled);
    }
    let mut file = BufWriter::new(beside(path).map_err(fault)?);
    let filled = fill(&mut Sink { to: &mut file, path })?;
    let file = file.into_inner().map_err(|error| fault(error.into_error()))?;
    file.persist(path).map_err(|error| fault(error.error))?;
    Ok(filled)
}

/// The same where the user may have named no file.
pub(crate) fn write_file_if<R>(
    path: Option<&Path>,
    fill: impl FnOnce(Option<&mut Sink<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match path {
        None => fill(None),
        Some(path) => write_file(path, |file| fill(Some(file))),
    }
}

/// A temporary file in `path`'s folder, readable by whom the user's mask lets.
fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".warpwright-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    // Asked for first, because the error of the temporary file names a path that nobody gave.
    fs::metadata(folder)?;
    builder.tempfile_in(folder)
}

/// A file that is being written.
pub(crate) struct Sink<'a> {
    to: &'a mut dyn Write,
    path: &'a Path,
}

impl Sink<'_> {
    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let fault = |error| Failure::Runtime(format!("cannot write {}: {error}", self.path.display()));
        self.to.write_all(bytes).map_err(fault)
    }
}
