//! Keys and values that outlive their sequence: in kept pages, in host memory and in files.

mod folder;
mod joining;
mod loading;
mod parallel;
mod saving;
mod swap;
mod transfer;

pub use folder::PageFolder;
pub use joining::BatchPages;
pub use loading::LoadablePages;
pub use saving::SavedPages;
pub use swap::SwappedSequence;
