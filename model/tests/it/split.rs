//! Models in several GGUF files.

use std::fs;
use std::path::{Path, PathBuf};

use warpwright_model::Model;
use warpwright_model::merge::Merge;

use crate::folders::{FolderModel, MODELS};
use crate::write::{File, Val};

const COUNT: usize = 3;

fn whole() -> File {
    let is = |model: &&FolderModel| model.name == "qwen3moe";
    MODELS.iter().find(is).unwrap().gguf().unwrap()
}

/// The file with this number from 0: the metadata is in the first, and each has every third tensor.
fn part(no: usize) -> File {
    let File { pairs, tensors } = whole();
    let all = tensors.len() as u32;
    let own = tensors.into_iter().skip(no).step_by(COUNT);
    let file = File {
        pairs: if no == 0 { pairs } else { vec![] },
        tensors: own.collect(),
    };
    file.pair("split.no", Val::U32(no as u32))
        .pair("split.count", Val::U32(COUNT as u32))
        .pair("split.tensors.count", Val::U32(all))
}

fn name(no: usize) -> String {
    format!("m-{:05}-of-00003.gguf", no + 1)
}

/// Writes the files to an empty directory, after a change to the file with this number.
fn write(test: &str, changed: usize, change: impl Fn(File) -> File) -> PathBuf {
    let folder = crate::scratch(&format!("split-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for no in 0..COUNT {
        let file = part(no);
        let file = if no == changed { change(file) } else { file };
        fs::write(folder.join(name(no)), file.bytes()).unwrap();
    }
    folder
}

fn message(path: &Path) -> String {
    let error = Model::open(path).unwrap_err().to_string();
    error.split_once(".gguf: ").unwrap().1.to_owned()
}

#[test]
fn the_files_are_one_model() {
    let folder = write("whole", 0, |file| file);
    let first = folder.join(name(0));
    let split = Model::open(&first).unwrap();
    let one = Model::open(&whole().save("split-one.gguf")).unwrap();
    assert_eq!(split.outline.config, one.outline.config);
    for (a, b) in split.outline.weights.iter().zip(one.outline.weights.iter()) {
        assert_eq!((&a.name, &a.dims, a.format), (&b.name, &b.dims, b.format));
        let [a, b] = [(&split, a), (&one, b)].map(|(model, w)| model.files.data(&w.range).unwrap());
        assert!(a == b);
    }

    let names: Vec<PathBuf> = (0..COUNT).map(|no| folder.join(name(no))).collect();
    assert_eq!(split.files.paths(), names);
    split.files.check().unwrap();
    // Its files would be written one after the other into one.
    let error = Merge::new(&split).err().unwrap().to_string();
    assert!(
        error.contains("the model is split into 3 files: merge these first"),
        "{error}"
    );

    // A change to any of the files is seen.
    let mut bytes = fs::read(folder.join(name(2))).unwrap();
    bytes.push(0);
    fs::write(folder.join(name(2)), bytes).unwrap();
    let error = split.files.check().unwrap_err().to_string();
    assert!(error.contains(&name(2)), "{error}");
}

#[test]
fn unfit_parts_are_named() {
    let folder = write("later", 0, |file| file);
    assert_eq!(
        message(&folder.join(name(1))),
        "this is part 2 of 3 of a split model: open its first part, \"m-00001-of-00003.gguf\", and the others are read \
         with it"
    );
    fs::copy(folder.join(name(0)), folder.join("renamed.gguf")).unwrap();
    assert_eq!(
        message(&folder.join("renamed.gguf")),
        "this is the first of 3 parts of a split model, but its name does not end in \"-00001-of-00003.gguf\", so the \
         others cannot be found: restore the names, or merge the parts with llama.cpp's `llama-gguf-split --merge \
         FIRST-PART OUT.gguf`"
    );
    fs::remove_file(folder.join(name(2))).unwrap();
    assert_eq!(
        message(&folder.join(name(0))),
        "\"m-00003-of-00003.gguf\", one of the 3 parts of this split model, is missing in the same directory"
    );

    let other = write("other", 1, |file| file.pair("split.no", Val::U32(2)));
    let all = whole().tensors.len();
    assert_eq!(
        message(&other.join(name(0))),
        format!(
            "this is part 3 of 3 with {all} tensors in all, but the first part needs part 2 of 3 with {all} tensors in \
             all: the two belong to different models"
        )
    );
    let plain = write("plain", 1, |file| file.without("split.count"));
    assert!(
        message(&plain.join(name(0)))
            .starts_with("this is a whole model, but the first part needs part 2 of 3")
    );
    let text = write("text", 0, |file| {
        file.pair("split.count", Val::Str("3".into()))
    });
    assert_eq!(
        message(&text.join(name(0))),
        "key \"split.count\" is \"3\", in a file that is one part of a split model; expected a whole number up to 65535"
    );
    let few = write("few", 2, |mut file| {
        file.tensors.pop();
        file
    });
    let found = all - 1;
    assert_eq!(
        message(&few.join(name(0))),
        format!(
            "the 3 parts of this split model have {found} tensors, but split.tensors.count is {all}"
        )
    );
    let twice = write("twice", 1, |mut file| {
        file.tensors[0].name = "output_norm.weight".into();
        file
    });
    assert!(
        message(&twice.join(name(0))).starts_with("tensor \"output_norm.weight\" appears twice")
    );
}
