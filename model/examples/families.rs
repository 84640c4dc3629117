//! Writes the random models of the tests in `tests/support/families.rs` as GGUF files into a folder.

use std::path::PathBuf;

#[path = "../../tests/support/families.rs"]
#[allow(dead_code)] // The tests use the rest.
mod families;
#[path = "../../tests/support/splitmix.rs"]
mod splitmix;
#[path = "../../tests/support/write.rs"]
#[allow(dead_code)] // The tests use the rest.
mod write;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let Some(folder) = folder else {
        eprintln!("usage: families DIR");
        std::process::exit(2);
    };

    std::fs::create_dir_all(&folder)?;
    families::MODELS.iter().try_for_each(|model| {
        std::fs::write(
            folder.join(format!("{}.gguf", model.name)),
            model.file().bytes(),
        )
    })
}
