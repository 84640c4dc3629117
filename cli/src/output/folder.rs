//! Output folders: there with all of their files, or not at all, and never in place of anything.

use std::fs;
use std::io;
use std::path::Path;

use super::temporary::Temporary;
use super::{Sink, fault, target, through};
use crate::failure::Failure;

/// Where an option says that a folder be written.
pub(crate) struct OutputFolder<'a> {
    /// The option, as the user writes it.
    pub(crate) option: &'static str,
    /// A folder that is empty or not there.
    pub(crate) path: &'a Path,
}

impl OutputFolder<'_> {
    /// Whether it may be written at all.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match is_used(self.option, self.path)? {
            true => {
                let (option, path) = (self.option, self.path.display());
                Err(Failure::Input(format!(
                    "{option} {path} is in use; name an empty or a new folder"
                )))
            }
            false => Ok(()),
        }
    }

    /// Fills it through `fill`.
    pub(crate) fn write<R>(
        &self,
        fill: impl FnOnce(&FilesOf<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
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

/// The files of a folder that is being written.
pub(crate) struct FilesOf<'a> {
    temporary: &'a Temporary,
    path: &'a Path,
}

impl FilesOf<'_> {
    /// Writes one through `fill`.
    pub(crate) fn write<R>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let path = self.path.join(name);
        let file = self
            .temporary
            .inside(name)
            .map_err(|error| fault(&path, error))?;
        through(&path, file, fill)
    }
}

/// Whether there is something in a folder, which an option names.
pub(crate) fn is_used(option: &str, path: &Path) -> Result<bool, Failure> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::Input(format!(
            "{option} {} cannot be used: {error}; name a new or an empty folder",
            path.display()
        ))),
    }
}
