//! Renders the chat templates of a folder and prints where that differs from what transformers renders:
//! `templates FOLDER RENDERED`, the second written by `tests/data/templates/render.py --text FOLDER`.

use std::path::Path;

#[path = "../tests/it/templates/compare.rs"]
mod compare;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rendered] = &arguments[..] else {
        panic!("templates FOLDER RENDERED")
    };

    let found = compare::differences(
        Path::new(folder),
        &std::fs::read_to_string(rendered).unwrap(),
    );
    for (template, conversation, here, there) in &found.differences {
        println!("== {template}, {conversation}\n-- here\n{here:?}\n-- there\n{there:?}");
    }

    let (all, templates) = (found.compared, found.templates);
    println!(
        "{} of {all} texts of {templates} templates differ",
        found.differences.len()
    );
}
