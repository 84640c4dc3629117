//! Writes the random models of the tests in `tests/support/folders.rs` as Hugging Face folders into a folder.

use std::path::PathBuf;

#[path = "../../tests/support/folders.rs"]
#[allow(dead_code)] // The tests use the rest.
mod folders;
#[path = "../../tests/support/splitmix.rs"]
#[allow(dead_code)] // The tests use the rest.
mod splitmix;
#[path = "../../tests/support/write.rs"]
#[allow(dead_code)] // The tests use the rest.
mod write;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let Some(folder) = folder else {
        eprintln!("usage: folders DIR");
        std::process::exit(2);
    };

    folders::MODELS
        .iter()
        .try_for_each(|model| model.write(&folder.join(model.name)))
}
