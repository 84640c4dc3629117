//! A model file that somebody writes while it is read.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpwright_engine::{Decoder, Error, Launch, Options};
use warpwright_model::Model;

use crate::decode::{emulator, generate};

/// A copy of the small model, old enough that a change of it shows in its time.
fn copy(name: &str) -> PathBuf {
    let path = crate::scratch(&format!("changes-{name}.gguf"));
    fs::copy(crate::asset(), &path).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    path
}

fn load(model: &Model, progress: impl FnMut(u64) + Send) -> Result<Decoder, Error> {
    Decoder::new(&emulator(), model, Options::new(8, Launch::Graph), progress)
}

fn truncate(path: &Path) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
}

/// Other bytes in the middle of the weights, and the same length.
fn overwrite(path: &Path) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(3 << 20)).unwrap();
    file.write_all(&[0; 4096]).unwrap();
}

#[test]
fn a_file_that_is_written_while_it_is_read_is_named() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 2] = [("truncate", truncate), ("overwrite", overwrite)];
    for (name, change) in changes {
        let path = copy(name);
        let wanted = format!(
            "{} changed while it was read: wait until it is complete and try again",
            path.display()
        );
        let model = Model::open(&path).unwrap();
        change(&path);
        assert_eq!(
            load(&model, |_| ()).err().unwrap().to_string(),
            wanted,
            "{name} before"
        );

        let path = copy(name);
        let model = Model::open(&path).unwrap();
        let mut changed = false;
        let progress = |_| {
            if !std::mem::replace(&mut changed, true) {
                change(&path);
            }
        };
        assert_eq!(
            load(&model, progress).err().unwrap().to_string(),
            wanted,
            "{name} meanwhile"
        );
    }
}

#[test]
fn a_file_that_is_replaced_stays_what_it_was() {
    let path = copy("replace");
    let model = Model::open(&path).unwrap();
    let other = path.with_extension("other");
    fs::write(&other, "no model").unwrap();
    fs::rename(&other, &path).unwrap();
    let tokens = generate(
        &mut load(&model, |_| ()).unwrap(),
        &[0, 389, 1166, 882, 261],
        2,
    );
    assert_eq!(tokens, [1680, 260]);
    assert!(model.tokenizer().is_ok());
}

/// A directory that is longer than what is read of a file at first.
#[test]
fn a_long_directory_is_read_whole() {
    use crate::synth::{Q8_0, Synth, synth};
    use crate::write::Val;
    let small = Synth {
        arch: "llama",
        formats: &[Q8_0],
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        tied: true,
        scaled: false,
        vocab: 304,
    };
    let long: Vec<String> = (0..400_000).map(|i| format!("token {i}")).collect();
    let path = synth(small)
        .pair("general.tags", Val::Strs(long))
        .save("changes-long.gguf");
    let model = Model::open(&path).unwrap();
    assert!(model.outline.weights.embed.range.start > 6 << 20);
    load(&model, |_| ()).unwrap();
}
