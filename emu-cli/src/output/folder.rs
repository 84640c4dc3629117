//! Output folders. A folder is either there with all of its files or absent, and never replaces
//! anything.

use std::fs;
use std::io;
use std::path::Path;

use super::sink::{OutputSink, fault, target, through};
use super::temporary::Temporary;
use crate::failure::Failure;

/// An output folder that an option names.
pub struct OutputFolder<'a> {
    /// The option, as the user writes it.
    pub option: &'static str,
    /// The folder, which must be empty or absent.
    pub path: &'a Path,
}

impl OutputFolder<'_> {
    /// Checks that the folder is empty or absent.
    ///
    /// # Errors
    /// Returns an error if it is not, or if it cannot be read.
    pub fn check(&self) -> Result<(), Failure> {
        let option = self.option;
        if is_used(option, self.path)? {
            return Err(Failure::Input(format!(
                "{option} {} is not empty; name an empty or a new folder",
                self.path.display()
            )));
        }
        Ok(())
    }

    /// Writes the folder: `fill` receives a value that adds files to it.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written, or if `fill` fails. Then there is no new
    /// folder.
    pub fn write<R, E: From<Failure>>(
        &self,
        fill: impl FnOnce(&FilesOf<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.check()?;
        let target = target(self.path).map_err(|error| fault(self.path, error))?;
        let temporary = Temporary::folder(&target).map_err(|error| fault(self.path, error))?;
        let filled = fill(&FilesOf {
            temporary: &temporary,
            path: self.path,
        })?;
        temporary
            .persist()
            .map_err(|error| fault(self.path, error))?;
        Ok(filled)
    }
}

/// A folder that is being written.
pub struct FilesOf<'a> {
    temporary: &'a Temporary,
    path: &'a Path,
}

impl FilesOf<'_> {
    /// Adds a file: `fill` receives a sink for its content.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or if `fill` fails.
    pub fn write<R, E: From<Failure>>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut OutputSink<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let path = self.path.join(name);
        let file = self
            .temporary
            .inside(name)
            .map_err(|error| fault(&path, error))?;
        through(&path, file, fill)
    }
}

/// Returns true if a folder exists and is not empty. `option` names it in messages.
///
/// # Errors
/// Returns an error if the path is not a folder or cannot be read.
pub fn is_used(option: &str, path: &Path) -> Result<bool, Failure> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::Input(format!(
            "{option} {} cannot be used: {error}; name a new or an empty folder",
            path.display()
        ))),
    }
}
