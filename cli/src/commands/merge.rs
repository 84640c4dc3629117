//! `warpwright merge`: an adapter added to the weights of its model, or as a file for llama.cpp.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use warpwright_engine::Model;
use warpwright_engine::merge::{Merge, MergeStats, SideFiles, WeightFile, write_lora};

use crate::adapter;
use crate::failure::Failure;
use crate::options::ModelArg;
use crate::output::{Content, FilesOf, Output, OutputFolder, Sink};
use crate::progress::Bar;
use crate::terminal::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// LoRA adapter of the model: a folder as PEFT and `finetune` write it
    adapter: PathBuf,
    /// Output: a .gguf file, or a folder if the model is a folder and not --as lora-gguf
    #[arg(long, value_name = "MERGED")]
    out: PathBuf,
    /// Form of the result: a merged model, or the adapter as a file for llama.cpp
    #[arg(long = "as", value_enum, default_value_t = Kind::Model)]
    kind: Kind,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Added to the weights: the model, which needs no adapter any more
    Model,
    /// A file of its own, as llama.cpp reads it beside the model (--lora)
    LoraGguf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    check(args)?;
    match (args.kind, args.model.path()?.is_dir()) {
        (Kind::LoraGguf, _) => write_adapter(args),
        (Kind::Model, false) => merge_file(args),
        (Kind::Model, true) => merge_folder(args),
    }
}

/// Refuses another kind of output than follows from the input, by its name.
fn check(args: &Args) -> Result<(), Failure> {
    let gguf = args
        .out
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    let model = args.model.path()?;
    let (right, wanted) = match (args.kind, model.is_dir()) {
        (Kind::LoraGguf, _) => (
            gguf,
            "a GGUF file, as llama.cpp reads adapters; name one that ends in .gguf",
        ),
        (Kind::Model, false) => (
            gguf,
            "a GGUF file, as the model is one; name one that ends in .gguf",
        ),
        (Kind::Model, true) => (
            !gguf,
            "a folder, as the model is one; name one that does not end in .gguf, and convert it with llama.cpp's \
             convert_hf_to_gguf.py",
        ),
    };
    // Opening a model that is not there says so.
    match right || !model.exists() {
        true => Ok(()),
        false => Err(Failure::Input(format!(
            "--out {} is to be {wanted}",
            args.out.display()
        ))),
    }
}

impl Args {
    /// Returns the output, or an error if it must not be written.
    fn file(&self) -> Result<Output<'_>, Failure> {
        let inputs = vec![("model", self.model.path()?), ("adapter", &self.adapter)];
        let out = Output {
            option: "--out",
            path: &self.out,
            inputs,
            content: Content::Bytes,
        };
        out.check()?;
        // A merged model may be the only copy of long work, so it is never replaced. Devices and pipes are no such copy.
        if self.out.is_file() {
            return Err(Failure::Input(format!(
                "--out {} exists; name another file, or remove it first",
                self.out.display()
            )));
        }
        Ok(out)
    }

    fn open(&self) -> Result<Model, Failure> {
        Ok(Model::open(self.model.path()?)?.with_adapter(&self.adapter)?)
    }
}

fn write_adapter(args: &Args) -> Result<(), Failure> {
    let out = args.file()?;
    let model = args.open()?;
    adapter::warn(&model);
    out.write(|sink| write_lora(&model.outline, |bytes| sink.write(bytes)))?;
    say(format!("the adapter is in {}", args.out.display()));
    Ok(())
}

fn merge_file(args: &Args) -> Result<(), Failure> {
    let out = args.file()?;
    let model = args.open()?;
    let merging = Merging::new(&model)?;
    adapter::warn(&model);
    let change = out.write(|sink| {
        let mut change = MergeStats::default();
        for file in merging.merge.files() {
            change += merging.write(&file, sink)?;
        }
        model.files.check()?;
        Ok(change)
    })?;
    drop(merging);
    tell(args, &model, change);
    Ok(())
}

fn merge_folder(args: &Args) -> Result<(), Failure> {
    let out = OutputFolder {
        option: "--out",
        path: &args.out,
    };
    out.check()?;
    let model = args.open()?;
    let merging = Merging::new(&model)?;
    let others = SideFiles::list(&model.files)?;
    adapter::warn(&model);
    let change = out.write(|folder| fill(folder, &model, &merging, &others))?;
    drop(merging);
    if !others.left.is_empty() {
        say(format!(
            "note: not copied, as no part of the merged model: {}",
            others.left.join(", ")
        ));
    }
    tell(args, &model, change);
    Ok(())
}

/// Writes all files of a merged folder.
fn fill(
    folder: &FilesOf<'_>,
    model: &Model,
    merging: &Merging<'_>,
    others: &SideFiles,
) -> Result<MergeStats, Failure> {
    let mut change = MergeStats::default();
    for file in merging.merge.files() {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        change += folder.write(&name, |sink| merging.write(&file, sink))?;
    }
    for name in &others.copied {
        folder.write(name, |sink| copy(&model.files.path().join(name), sink))?;
    }
    model.files.check()?;
    Ok(change)
}

/// A merge with a bar.
struct Merging<'a> {
    merge: Merge<'a>,
    bar: Bar,
    /// Bytes so far.
    done: Cell<u64>,
}

impl<'a> Merging<'a> {
    fn new(model: &'a Model) -> Result<Merging<'a>, Failure> {
        let merge = Merge::new(model)?;
        let bytes = merge.files().iter().map(WeightFile::bytes).sum();
        let bar = Bar::new("merging {bytes}/{total_bytes} {wide_bar}", bytes);
        Ok(Merging {
            merge,
            bar,
            done: Cell::new(0),
        })
    }

    fn write(&self, file: &WeightFile, sink: &mut Sink<'_>) -> Result<MergeStats, Failure> {
        self.merge.write(file, |bytes| {
            self.done.set(self.done.get() + bytes.len() as u64);
            self.bar.set_position(self.done.get());
            sink.write(bytes)
        })
    }
}

fn copy(path: &Path, sink: &mut Sink<'_>) -> Result<(), Failure> {
    let fault = |error| Failure::Input(format!("cannot read {}: {error}", path.display()));
    let mut file = File::open(path).map_err(fault)?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes).map_err(fault)? {
            0 => return Ok(()),
            read => sink.write(&bytes[..read])?,
        }
    }
}

/// Says what was done, and how much of it the format of the weights has kept.
fn tell(args: &Args, model: &Model, change: MergeStats) {
    let scale = model
        .outline
        .adapter
        .as_deref()
        .map(adapter::scale)
        .unwrap_or_default();
    let kept = match change.added > 0.0 {
        true => format!(
            "rounding took {:.2} % of what they add",
            100.0 * change.lost()
        ),
        false => "they add nothing".to_owned(),
    };
    say(format!(
        "{} projections with adapters of {scale}; {kept}",
        change.projections
    ));
    say(format!("the merged model is in {}", args.out.display()));
}
