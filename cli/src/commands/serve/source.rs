//! The models that a server has, and the way in which they are loaded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use warpwright_server::models::{
    AdapterOptions, CacheFolder, DeviceLoader, DeviceOptions, DraftOptions, DraftOrigin,
    LoadedTemplate, ModelEntry, ModelLoader, Models, OpenContext, RegistryOptions, Repetition,
    RequestOverrides, ScriptedLoader, ScriptedSizes, ServedModel, is_model_folder, models_in,
};
use warpwright_server::scheduler::{DraftLengthRule, SpeculationOptions};

use super::args::{Args, SpeculationArgs};
use crate::device;
use crate::failure::Failure;
use crate::model::options::locate;
use crate::prompt::limited;
use crate::prompt::template::CHATML;

/// The number of positions of `--scripted`, which an agent's prompt needs.
const SCRIPTED_CTX: u32 = 131_072;

/// The number of sequences of `--scripted`.
const SCRIPTED_SEQUENCES: u32 = 8;

/// The models that a server has, and the way in which they are loaded.
pub(super) struct ModelSource {
    entries: Vec<ModelEntry>,
    kind: SourceKind,
    loader: Arc<dyn ModelLoader>,
    options: RegistryOptions,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Single,
    Folder,
}

impl ModelSource {
    /// Finds the models.
    ///
    /// # Errors
    /// Returns an error if there is no model, or if options contradict each other.
    pub(super) fn new(args: &Args) -> Result<ModelSource, Failure> {
        let path = args.model.path()?;
        let is_folder = path.is_dir() && !is_model_folder(path);
        let (entries, kind) = if is_folder {
            (folder(args, path)?, SourceKind::Folder)
        } else {
            (vec![single(args, path)?], SourceKind::Single)
        };
        let options = RegistryOptions {
            loaded: args.engine.max_models.map(|most| most as usize),
            grace: args.connections.grace,
        };
        if options.loaded.is_some() && kind == SourceKind::Single {
            return Err(Failure::Input(
                "--max-models is for a folder of models, and there is one model: leave it out"
                    .to_owned(),
            ));
        }
        check_adapters(args, &entries, kind)?;
        if args.speculation.draft.is_some() && kind == SourceKind::Folder {
            return Err(Failure::Input(
                "--draft guesses for one model, and this is a folder of models: name one of them"
                    .to_owned(),
            ));
        }
        Ok(ModelSource {
            entries,
            kind,
            loader: loader(args)?,
            options,
        })
    }

    /// Returns true if the server has one model, which is loaded at once.
    pub(super) fn is_single(&self) -> bool {
        self.kind == SourceKind::Single
    }

    /// Returns the names of the models.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// Returns the registry of the models. A single one is being loaded from now on.
    pub(super) fn open(self) -> Models {
        let ModelSource {
            mut entries,
            kind,
            loader,
            options,
        } = self;
        match kind {
            SourceKind::Single => Models::load_single(entries.remove(0), loader),
            SourceKind::Folder => Models::several(entries, loader, options),
        }
    }
}

/// Returns an error if the server cannot have adapters, or if two names are equal.
fn check_adapters(args: &Args, entries: &[ModelEntry], kind: SourceKind) -> Result<(), Failure> {
    let option = match (args.engine.lora.is_empty(), &args.engine.lora_dir) {
        (false, _) => "--lora",
        (true, Some(_)) => "--lora-dir",
        (true, None) => return Ok(()),
    };
    if kind == SourceKind::Folder {
        return Err(Failure::Input(format!(
            "{option} needs one model, and this is a folder of models: name the base model"
        )));
    }
    if args.scripted.is_some() {
        return Err(Failure::Input(format!(
            "{option} needs the model's weights: leave out --scripted"
        )));
    }

    let mut names: Vec<&str> = entries.iter().map(|entry| &*entry.name).collect();
    for adapter in &args.engine.lora {
        if names.contains(&&*adapter.name) {
            return Err(Failure::Input(format!(
                "two models have the name {}: give the adapter another one",
                adapter.name
            )));
        }
        names.push(&adapter.name);
    }
    match &args.engine.lora_dir {
        Some(folder) if !folder.is_dir() => Err(Failure::Input(format!(
            "{}: --lora-dir must be a folder",
            folder.display()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Returns the line about a loaded model.
pub(super) fn serving(model: &ServedModel) -> String {
    let limits = model.scheduler.limits();
    let capacity = match limits.sequences {
        1 => format!("one sequence with {} positions", limits.ctx),
        several => format!(
            "up to {several} sequences with {} positions each",
            limits.ctx
        ),
    };
    format!(
        "serving {}: {capacity}, by {}",
        model.name, model.description.engine
    )
}

/// Returns the only model.
fn single(args: &Args, path: &Path) -> Result<ModelEntry, Failure> {
    if !path.exists() {
        return Err(Failure::Input(format!(
            "{}: no such file or folder",
            path.display()
        )));
    }
    // The name of a file without `.gguf`, and the whole name of a folder.
    let name = path.canonicalize().ok();
    let name = name.as_deref().unwrap_or(path).file_name();
    let name = name.map_or_else(|| "model".into(), |name| name.to_string_lossy());
    let name = name.strip_suffix(".gguf").unwrap_or(&name);
    Ok(ModelEntry {
        name: args
            .connections
            .alias
            .clone()
            .unwrap_or_else(|| name.to_owned()),
        path: path.to_owned(),
        bytes: path.metadata().map_or(0, |metadata| metadata.len()),
    })
}

/// Returns the models in a folder.
fn folder(args: &Args, path: &Path) -> Result<Vec<ModelEntry>, Failure> {
    let place = path.display();
    if args.connections.alias.is_some() {
        return Err(Failure::Input(format!(
            "--alias names one model, and {place} is a folder of models: leave it out"
        )));
    }
    let entries = models_in(path)
        .map_err(|error| Failure::Input(format!("cannot read the folder {place}: {error}")))?;
    if entries.is_empty() {
        return Err(Failure::Input(format!(
            "{place} contains no model: expected GGUF files, or folders with a config.json"
        )));
    }
    Ok(entries)
}

/// Returns the loader that the options select.
fn loader(args: &Args) -> Result<Arc<dyn ModelLoader>, Failure> {
    let defaults = RequestOverrides {
        temperature: args.defaults.temperature,
        top_k: args.defaults.top_k,
        top_p: args.defaults.top_p,
        min_p: args.defaults.min_p,
        seed: args.defaults.seed.and_then(|seed| seed.number),
        max_tokens: args.defaults.n.limit(),
        template: template(args)?,
        template_variables: args.chat_template_kwargs.clone().unwrap_or_default(),
    };
    if let Some(file) = &args.scripted {
        if let Some(option) = args.speculation.source_option() {
            return Err(Failure::Input(format!(
                "--scripted verifies no guesses: leave out {option}"
            )));
        }
        let script = limited::read("replies", file)?;
        let sizes = ScriptedSizes {
            ctx: args.engine.ctx.unwrap_or(SCRIPTED_CTX),
            sequences: args.engine.sequences.unwrap_or(SCRIPTED_SEQUENCES),
            token: Duration::from_millis(args.scripted_delay),
            queue: args.engine.queue,
        };
        let loader = ScriptedLoader::new(&script, sizes, defaults)
            .map_err(|problem| Failure::Input(format!("{}: {problem}", file.display())))?;
        return Ok(Arc::new(loader));
    }

    let choice = args.engine.device;
    let open: OpenContext = Arc::new(move || {
        device::open(choice).map_err(|failure| failure.sentence().unwrap_or("no device").to_owned())
    });
    let options = DeviceOptions {
        ctx: args.engine.ctx,
        sequences: args.engine.sequences,
        queue: args.engine.queue,
        repetition: if args.engine.deterministic {
            Repetition::Exact
        } else {
            Repetition::Fastest
        },
        cache: args.engine.cache_dir.clone().map(|path| CacheFolder {
            path,
            bytes: args.engine.cache_size << 30,
        }),
        adapters: AdapterOptions {
            loaded: args.engine.lora.clone(),
            folder: args.engine.lora_dir.clone(),
        },
        drafts: drafts(&args.speculation)?,
    };
    Ok(Arc::new(DeviceLoader::new(open, options, defaults)))
}

/// Returns the drafts of texts, if there are any. A draft model on the hub is downloaded.
fn drafts(args: &SpeculationArgs) -> Result<Option<DraftOptions>, Failure> {
    let source = match (args.lookup, &args.draft) {
        (Some(longest), _) => DraftOrigin::Lookup { longest },
        (None, Some(model)) => {
            let path = locate(model)?;
            if !path.exists() {
                return Err(Failure::Input(format!(
                    "--draft {}: no such file or folder",
                    path.display()
                )));
            }
            DraftOrigin::Model(path)
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(DraftOptions {
        source,
        speculation: SpeculationOptions {
            sequences: args.draft_sequences,
            drafts: args.draft_max,
            length: if args.draft_always {
                DraftLengthRule::Always
            } else {
                DraftLengthRule::Adaptive
            },
        },
    }))
}

/// Reads the template of `--chat-template`.
fn template(args: &Args) -> Result<Option<LoadedTemplate>, Failure> {
    let Some(path) = &args.chat_template else {
        return Ok(None);
    };
    let text = if path == Path::new("chatml") {
        CHATML.to_owned()
    } else {
        limited::read("chat template", path)?
    };
    Ok(Some(LoadedTemplate {
        path: path.clone(),
        text,
    }))
}
