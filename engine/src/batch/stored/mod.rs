//! Files with pages: their format, and the folder that they are in.

pub(crate) mod fingerprint;
pub(crate) mod known_pages;
pub(crate) mod page_file;
pub(crate) mod page_folder;
pub(crate) mod page_format;
