//! Checks that errors print as sentences wherever Rust prints them: `fn main() -> Result<(), E>`,
//! `unwrap` and `Box<dyn Error>`.
//!
//! All of these print `Debug`, so our error types implement it as their `Display`. Every public
//! type that implements `std::error::Error` has a sample here. The test searches the sources for
//! types without one.

#![allow(unsafe_code)] // loading a kernel is unsafe

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use ptx_emu::Memory;
use ptx_gen::{
    Builder, Cpu, Dev, ErrorKind, Grid, In, KernelDef, Out, Shape, ShapeError, Side, Target, args,
};
use warpwright_driver::error::{
    DriverError, LaunchProblem, LoadError, ModuleError, ModuleReason, Races, Stale,
};
use warpwright_driver::graph::{EdgeKind, Graph};
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::Buffer;
use warpwright_driver::module::Module;
use warpwright_driver::sys::{self, CUgraphExecUpdateResult, CUgraphInstantiateResult, CUresult};
use warpwright_driver::{Context, Driver};
use warpwright_engine::Unsupported;
use warpwright_model::adapter::AdapterFault;
use warpwright_model::grammar::GrammarFault;
use warpwright_model::merge::MergeFault;
use warpwright_model::{config, folder, gguf, tokenizer};

/// The crates that return errors to a program.
const LIBRARIES: &[&str] = &[
    "ptx-gen",
    "ptx-emu",
    "driver-sys",
    "driver",
    "cuda-emu",
    "kernels",
    "model",
    "engine",
    "train",
];

/// Every error type as `crate::Type` and an error of it.
fn samples() -> Vec<(&'static str, Box<dyn Error>)> {
    [
        ptx_gen_samples(),
        ptx_emu_samples(),
        driver_sys_samples(),
        driver_samples(),
        model_samples(),
        engine_samples(),
        train_samples(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ptx_gen_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    let error = ptx_gen::BuildError {
        at: None,
        kind: ErrorKind::NotAscii,
    };
    let target = ptx_gen::TargetError {
        kernel: "k".into(),
        target: Target::named("sm_80").unwrap(),
        needs: 90,
        specific: true,
    };
    vec![
        ("ptx-gen::BuildError", error.clone().into()),
        (
            "ptx-gen::Errors",
            ptx_gen::Errors(vec![error.clone(), error]).into(),
        ),
        (
            "ptx-gen::ShapeError",
            ptx_gen::ShapeError {
                kernel: "k".into(),
                what: "n is 0".into(),
            }
            .into(),
        ),
        ("ptx-gen::TargetError", target.into()),
    ]
}

fn ptx_emu_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    let errors = ptx_emu::Module::parse("no PTX").unwrap_err();
    vec![
        (
            "ptx-emu::CheckError",
            ptx_emu::check::CheckError::Count {
                given: 1,
                wanted: 2,
            }
            .into(),
        ),
        ("ptx-emu::Fault", fault().into()),
        (
            "ptx-emu::KernelError",
            ptx_emu::KernelError::NotFound {
                name: "k".into(),
                known: vec![],
            }
            .into(),
        ),
        (
            "ptx-emu::ImageError",
            Memory::new(16).remove_object(1).unwrap_err().into(),
        ),
        (
            "ptx-emu::MemoryError",
            Memory::new(16).alloc(32).unwrap_err().into(),
        ),
        ("ptx-emu::ParseError", errors.0[0].clone().into()),
        ("ptx-emu::ParseErrors", errors.into()),
    ]
}

/// Returns the fault of a kernel that writes to an invalid address.
fn fault() -> ptx_emu::Fault {
    let text = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .b64 %a;\n.reg .b32 %v;\n\
                mov.u64 %a, 64;\nmov.u32 %v, 1;\nst.global.u32 [%a], %v;\nret;\n}\n";
    let module = ptx_emu::Module::parse(text).unwrap();
    let kernel = module.kernels().next().unwrap();
    let launch = ptx_emu::Launch {
        kernel,
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 0,
        params: &[],
    };
    let schedule = ptx_emu::Schedule::default();
    *ptx_emu::run(&Memory::new(1024), &launch, &schedule, ptx_emu::Trace::Off).unwrap_err()
}

fn driver_sys_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    let missing = sys::MissingSymbol {
        name: "cuInit",
        since: 2000,
    };
    vec![
        ("driver-sys::CUresult", CUresult::OUT_OF_MEMORY.into()),
        ("driver-sys::LoadError", no_library().into()),
        ("driver-sys::MissingSymbol", missing.into()),
        (
            "driver-sys::Problem",
            sys::Problem::TooOld(11080, missing).into(),
        ),
    ]
}

fn no_library() -> sys::LoadError {
    let attempt = sys::Attempt {
        name: "libcuda.so.1".into(),
        problem: sys::Problem::Stub,
    };
    sys::LoadError {
        attempts: vec![attempt],
        overridden: false,
    }
}

fn driver_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    let problem = LaunchProblem::Count { got: 1, wanted: 2 };
    let mut all: Vec<(&'static str, Box<dyn Error>)> = vec![
        ("driver::DriverError", refused().into()),
        ("driver::LaunchProblem", problem.into()),
        ("driver::LoadError", LoadError::Library(no_library()).into()),
        (
            "driver::LoadError",
            LoadError::Start {
                origin: "libcuda.so.1".into(),
                source: refused(),
            }
            .into(),
        ),
        ("driver::ModuleError", module_error().into()),
        (
            "driver::ModuleReason",
            ModuleReason::Driver(refused()).into(),
        ),
        ("driver::Stale", stale().into()),
        ("driver::Races", races().into()),
    ];
    all.extend(nested_driver_errors().map(|error| ("driver::Error", error.into())));
    all
}

/// The variants that carry another error.
fn nested_driver_errors() -> impl Iterator<Item = warpwright_driver::Error> {
    use warpwright_driver::Error;
    let result = CUgraphInstantiateResult::ERROR;
    let node = || Some("2 (gemv)".to_string());
    [
        Error::Load(LoadError::Library(no_library())),
        Error::Driver(refused()),
        Error::Module(Box::new(module_error())),
        Error::Launch {
            kernel: "k".into(),
            problem: LaunchProblem::Count { got: 1, wanted: 2 },
        },
        Error::Stale(Box::new(stale())),
        Error::Instantiate {
            source: refused(),
            result,
            node: node(),
        },
        Error::Update {
            source: refused().into(),
            result: CUgraphExecUpdateResult(1),
            node: node().map(Into::into),
            from: node().map(Into::into),
            changed: None,
        },
        Error::Capture {
            first: Box::new(Error::Driver(refused())),
            end: Some(refused()),
        },
    ]
    .into_iter()
}

fn refused() -> DriverError {
    let mut error = DriverError::new("cuMemAlloc_v2", CUresult::OUT_OF_MEMORY);
    error.log = "the log of the driver".into();
    error
}

fn module_error() -> ModuleError {
    match Module::load(&emulated(), ".version 8.0\n.target sm_70\nno PTX\n") {
        Err(warpwright_driver::Error::Module(error)) => *error,
        other => panic!("{other:?}"),
    }
}

fn races() -> Races {
    let context = emulated();
    let y = Buffer::<f32>::zeroed(&context, 1).unwrap().labelled("y");
    let mut graph = Graph::new(&context).unwrap();
    graph.fill(&[], &y, 1.0).unwrap();
    graph.fill(&[], &y, 2.0).unwrap();
    match graph.instantiate() {
        Err(warpwright_driver::Error::Races(races)) => *races,
        other => panic!("{other:?}"),
    }
}

fn stale() -> Stale {
    let context = emulated();

    // SAFETY: the program stays below `n`.
    let copy = unsafe { Kernel::load(&context, Copied) }.unwrap();
    let [x, y, z] = [(); 3].map(|()| Buffer::<f32>::zeroed(&context, 1).unwrap());
    let mut graph = Graph::new(&context).unwrap();
    let first = CopiedArgs::<Host<'_>> { x: &x, y: &y, n: 1 };
    let second = CopiedArgs::<Host<'_>> { x: &y, y: &z, n: 1 };
    let node = graph.launch(&[], &copy, first).unwrap();
    let second = copy.with(second).unwrap();
    match graph.add_by(EdgeKind::Programmatic, &[node], second) {
        Err(warpwright_driver::Error::Stale(stale)) => *stale,
        other => panic!("{other:?}"),
    }
}

fn emulated() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.device(0).unwrap()).unwrap()
}

args! {
    /// The arguments of [`Copied`].
    pub struct CopiedArgs {
        /// `[n]`
        x: In<f32>,
        /// `[n]`
        y: Out<f32>,
        /// The number of elements.
        n: u32,
    }
}

/// A copy that reads `x` with `ld.global.nc`.
struct Copied;

impl KernelDef for Copied {
    type Args<S: Side> = CopiedArgs<S>;

    fn name(&self) -> String {
        "copied".into()
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &CopiedArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(a.n.div_ceil(32)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: CopiedArgs<Dev<'k>>) {
        k.grid_wait();
        let i = k.ctaid() * 32 + k.tid();
        k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld()));
    }

    fn reference(&self, a: CopiedArgs<Cpu<'_>>) {
        a.y.copy_from_slice(a.x);
    }
}

fn not_found() -> warpwright_model::Error {
    warpwright_model::Error::Open {
        path: "model.gguf".into(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    }
}

fn engine_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    let model = warpwright_engine::Error::from(not_found());
    let driver = warpwright_engine::Error::Driver(warpwright_driver::Error::Driver(refused()));
    vec![
        ("engine::Error", model.into()),
        ("engine::Error", driver.into()),
        (
            "engine::unsupported::Unsupported",
            Unsupported::Capability {
                found: (7, 5),
                needed: 8,
            }
            .into(),
        ),
    ]
}

fn model_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    vec![
        ("model::Error", not_found().into()),
        (
            "model::problem::Problem",
            config::Problem::MissingKey("general.architecture".into()).into(),
        ),
        ("model::fault::Fault", gguf::Fault::BigEndian.into()),
        ("model::fault::AdapterFault", AdapterFault::NoFolder.into()),
        ("model::fault::GrammarFault", GrammarFault::Empty.into()),
        (
            "model::fault::MergeFault",
            MergeFault::Nf4 {
                tensor: "blk.0.attn_q.weight".into(),
            }
            .into(),
        ),
        ("model::folder_fault::Fault", folder::Fault::NoConfig.into()),
        (
            "model::vocabulary_fault::Fault",
            tokenizer::Fault::NoMerges("tokenizer.ggml.merges").into(),
        ),
    ]
}

fn train_samples() -> Vec<(&'static str, Box<dyn Error>)> {
    let model = warpwright_train::Error::from(not_found());
    vec![
        ("train::Error", warpwright_train::Error::Unlabelled.into()),
        ("train::Error", model.into()),
    ]
}

#[test]
fn debug_is_the_sentence() {
    for (name, error) in samples() {
        let sentence = error.to_string();
        assert_eq!(format!("{error:?}"), sentence, "{name}");
        assert_eq!(format!("{error:#?}"), sentence, "{name}");
        assert!(sentence.contains(' '), "{name}: {sentence}");
    }
}

#[test]
fn a_sentence_holds_those_of_its_sources() {
    for (name, error) in samples() {
        let mut source = error.source();
        while let Some(inner) = source {
            assert!(
                error.to_string().contains(&inner.to_string()),
                "{name} leaves out: {inner}"
            );
            source = inner.source();
        }
    }
}

/// `Termination` of a main function that returns an error: it writes `Error: ` and `Debug`.
#[test]
fn a_result_of_main_is_the_sentence() {
    fn main_with<E: fmt::Debug>(end: Result<(), E>) -> String {
        end.map_or_else(|error| format!("Error: {error:?}"), |()| String::new())
    }
    let message = "Error: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): not enough memory or other resources\n\
                   the log of the driver";
    assert_eq!(
        main_with(Err(warpwright_driver::Error::from(refused()))),
        message
    );
    assert_eq!(main_with(Err(Box::<dyn Error>::from(refused()))), message);
}

#[test]
fn every_error_type_has_a_sample() {
    let sampled: BTreeSet<String> = samples()
        .iter()
        .map(|(name, _)| (*name).to_string())
        .collect();
    let declared: BTreeSet<String> = LIBRARIES
        .iter()
        .flat_map(|library| declared(library))
        .collect();
    assert_eq!(
        sampled, declared,
        "samples on the left, types in the sources on the right"
    );
}

/// Returns the error types of a crate, as `crate::Type`, or as `crate::module::Type` if the type
/// does not name the failed operation.
fn declared(library: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(library)
        .join("src");
    let mut types = Vec::new();
    for path in sources(&root) {
        let text = std::fs::read_to_string(&path).unwrap();
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        types.extend(error_types(&text).into_iter().map(|name| match library {
            "engine" | "model" if name != "Error" => format!("{library}::{module}::{name}"),
            _ => format!("{library}::{name}"),
        }));
    }

    types
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}

/// The types of a file that implement `Error`, by hand or by `thiserror`.
fn error_types(text: &str) -> Vec<String> {
    let by_hand = text.split("Error for ").skip(1).filter_map(first_word);
    let derived = text.split("thiserror::Error)]").skip(1).filter_map(|rest| {
        let line = rest.lines().find(|line| line.starts_with("pub "))?;
        first_word(line.split_once("enum ").or(line.split_once("struct "))?.1)
    });
    by_hand.chain(derived).collect()
}

fn first_word(text: &str) -> Option<String> {
    let word: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!word.is_empty()).then_some(word)
}
