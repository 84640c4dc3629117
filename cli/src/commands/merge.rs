//! `warpwright merge`: adds an adapter to the weights of its model, or converts it for llama.cpp.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use warpwright_model::Model;
use warpwright_model::merge::{Merge, MergeStats, SideFiles, WeightFile, write_lora};

use crate::failure::Failure;
use crate::model::adapter;
use crate::model::options::ModelArg;
use crate::terminal::progress::Bar;
use warpwright_emu::output::{FilesOf, Output, OutputContent, OutputFolder, OutputSink};
use warpwright_emu::terminal::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// LoRA adapter of the model: a folder written by PEFT or `warpwright finetune`
    adapter: PathBuf,
    /// New file or folder for the result, of the same kind as the model
    ///
    /// A merged GGUF file is a GGUF file, and a merged folder is a folder. With --as lora-gguf, the
    /// result is always a GGUF file. Nothing that exists is replaced.
    #[arg(long, value_name = "MERGED")]
    out: PathBuf,
    /// Form of the result: a merged model, or the adapter as a file for llama.cpp
    #[arg(long = "as", value_enum, default_value_t = MergeForm::Model)]
    form: MergeForm,
}

/// The form of the result.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum MergeForm {
    /// A model with the adapter in its weights
    Model,
    /// A GGUF file with the adapter only, for llama.cpp's --lora
    LoraGguf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    check(args)?;
    match args.form {
        MergeForm::LoraGguf => write_adapter(args),
        MergeForm::Model if args.model.path()?.is_dir() => merge_folder(args),
        MergeForm::Model => merge_file(args),
    }
}

/// Checks that the name of the output suits the form of the result.
fn check(args: &Args) -> Result<(), Failure> {
    let gguf = args
        .out
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    let model = args.model.path()?;
    let (is_right, wanted) = match (args.form, model.is_dir()) {
        (MergeForm::LoraGguf, _) => (
            gguf,
            "a GGUF file, because llama.cpp reads adapters from GGUF files: choose a name that ends in .gguf",
        ),
        (MergeForm::Model, false) => (
            gguf,
            "a GGUF file like the model: choose a name that ends in .gguf",
        ),
        (MergeForm::Model, true) => (
            !gguf,
            "a folder like the model: choose a name that does not end in .gguf, and convert the folder with llama.cpp's \
             convert_hf_to_gguf.py",
        ),
    };

    // A missing model is reported when it is opened.
    if is_right || !model.exists() {
        return Ok(());
    }

    Err(Failure::Input(format!(
        "--out {} must be {wanted}",
        args.out.display()
    )))
}

impl Args {
    /// Returns the output file, or an error if it must not be written.
    fn file(&self) -> Result<Output<'_>, Failure> {
        let inputs = vec![("model", self.model.path()?), ("adapter", &self.adapter)];
        let out = Output {
            option: "--out",
            path: &self.out,
            inputs,
            content: OutputContent::Bytes,
        };
        out.check()?;

        // A merged model may be the only copy of a long training run, so it is never replaced.
        // Devices and pipes can be written.
        if self.out.is_file() {
            return Err(Failure::Input(format!(
                "--out {} exists; name another file, or remove it first",
                self.out.display()
            )));
        }

        Ok(out)
    }

    /// Opens the model with the adapter.
    fn open(&self) -> Result<Model, Failure> {
        Ok(Model::open(self.model.path()?)?.with_adapter(&self.adapter)?)
    }
}

/// Writes the adapter as a GGUF file.
fn write_adapter(args: &Args) -> Result<(), Failure> {
    let out = args.file()?;
    let model = args.open()?;
    adapter::warn(&model);
    out.write(|sink| {
        write_lora(&model.outline, |bytes| -> Result<(), Failure> {
            Ok(sink.write(bytes)?)
        })
    })?;
    say(format!("the adapter is in {}", args.out.display()));
    Ok(())
}

/// Merges a GGUF file.
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
        // The model is mapped into memory. If another program has changed it meanwhile, the result
        // is worthless.
        model.files.check()?;
        Ok::<_, Failure>(change)
    })?;

    // Erases the bar.
    drop(merging);
    report(args, &model, change);
    Ok(())
}

/// Merges a folder.
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
            "note: not copied, because the merged model does not need them: {}",
            others.left.join(", ")
        ));
    }

    report(args, &model, change);
    Ok(())
}

/// Writes all files of a merged folder, and returns how much the adapter changed.
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

/// A merge with a progress bar.
struct Merging<'a> {
    merge: Merge<'a>,
    bar: Bar,
    /// The number of bytes written so far.
    done: Cell<u64>,
}

impl<'a> Merging<'a> {
    /// Prepares the merge of a model with its adapter.
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

    /// Writes a merged file of weights.
    fn write(&self, file: &WeightFile, sink: &mut OutputSink<'_>) -> Result<MergeStats, Failure> {
        self.merge.write(file, |bytes| {
            self.done.set(self.done.get() + bytes.len() as u64);
            self.bar.set_position(self.done.get());
            Ok(sink.write(bytes)?)
        })
    }
}

/// Copies a file. A read error names the file that was read, and a write error the file that was
/// written.
fn copy(path: &Path, sink: &mut OutputSink<'_>) -> Result<(), Failure> {
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

/// Prints the number of merged projections, and the share of the adapter that was lost to rounding.
fn report(args: &Args, model: &Model, change: MergeStats) {
    let scale = model
        .outline
        .adapter
        .as_deref()
        .map(adapter::scale)
        .unwrap_or_default();
    let lost = if change.added > 0.0 {
        format!(
            "{:.2} % of the change was lost to rounding",
            100.0 * change.lost()
        )
    } else {
        "the adapter changes nothing".to_owned()
    };
    say(format!(
        "merged {} projections, adapter of {scale}; {lost}",
        change.projections
    ));
    say(format!("the merged model is in {}", args.out.display()));
}
