//! Meters of how the repository reads: sizes of the code in tokens, and patterns of its prose.

pub(crate) mod prose;
pub(crate) mod sizes;

use std::path::Path;

/// Folders whose files are tests, examples or data rather than code that users run.
const TEST_FOLDERS: [&str; 5] = ["tests", "benches", "examples", "fuzz", "testdata"];

/// Returns true for a Rust file that is not a test, an example or test data.
fn is_program_code(file: &Path) -> bool {
    let in_test_folder = file.components().any(|part| {
        TEST_FOLDERS
            .iter()
            .any(|folder| part.as_os_str() == *folder)
    });
    let is_test_file = file
        .file_name()
        .is_some_and(|name| name == "test.rs" || name == "tests.rs");
    file.extension().is_some_and(|ending| ending == "rs") && !in_test_folder && !is_test_file
}
