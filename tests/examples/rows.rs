//! Runs every row of the instruction table and the forms in `forms` on a GPU and on the emulator,
//! with the same operands, and reports rows whose results differ by more than their accuracy.
//! `xtask gpu-round` runs this program.
//!
//! | arguments | effect |
//! |---|---|
//! | none | compares rows and forms |
//! | `forms` | compares only the forms |
//! | `forms only TEXT` | compares only forms whose name contains the text |
//! | `emulated`, `forms emulated` | uses the emulator in place of the GPU |
//! | `forms keep FOLDER` | keeps the first results of each form in a folder |
//! | `forms before FOLDER` | compares the emulator with kept results, without a GPU |
//! | `forms print FOLDER` | writes the kernels of the forms to a folder without running them |

#![allow(unsafe_code)]

mod forms;

use forms::Real;
use ptx_gen::isa::{Accuracy, Op, Slot};
use ptx_gen::{Kind, ParamKind, Sample, Target, f16, isa, print, samples};
use std::process::ExitCode;
use warpwright_driver::launch::{Geometry, HostArg, Launch};
use warpwright_driver::memory::Buffer;
use warpwright_driver::module::{Module, Parameter};
use warpwright_driver::stream::Stream;
use warpwright_driver::{Context, Driver};
use warpwright_kernels::Random;

type Failure = Box<dyn std::error::Error>;

/// Words of memory that a sample uses.
const WORDS: usize = Sample::MEMORY as usize / 4;
const ROUNDS: u64 = 4;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Gives the number of samples and forms that differ.
fn run() -> Result<usize, Failure> {
    let asked = |what: &str| std::env::args().skip(1).any(|arg| arg == what);
    let behind = |what: &str| std::env::args().skip_while(|arg| arg != what).nth(1);
    let only = behind("only").unwrap_or_default();
    if let Some(folder) = behind("print") {
        return forms::print(folder.as_ref(), &only);
    }

    let emulator = Driver::from_library(warpwright_cuda_emu::library())?;
    if let Some(folder) = behind("before") {
        let emulated = Context::new(&emulator.device(0)?)?;
        return Ok(forms::compare(
            &Real::Before(folder.as_ref()),
            &emulated,
            &only,
        ));
    }

    let real = if asked("emulated") {
        emulator.device(0)?
    } else {
        Driver::load()?.device(0)?
    };
    let (real, emulated) = (Context::new(&real)?, Context::new(&emulator.device(0)?)?);
    let rows = if asked("forms") {
        0
    } else {
        rows(&real, &emulated)?
    };
    let kept = behind("keep");
    let real = match &kept {
        Some(folder) => Real::Kept(&real, folder.as_ref()),
        None => Real::Device(&real),
    };
    Ok(rows + forms::compare(&real, &emulated, &only))
}

/// Gives the number of instances of rows that differ.
fn rows(real: &Context, emulated: &Context) -> Result<usize, Failure> {
    let all: Vec<Sample> = samples().into_iter().filter(comparable).collect();
    let mut differ = 0;
    for sample in &all {
        let found = all_rounds(sample, real)?;
        let wanted = all_rounds(sample, emulated)?;
        if let Some((i, f, w)) = first_difference(sample, &found, &wanted) {
            println!(
                "{}: word {i} is {f:#010x} on the GPU and {w:#010x} on the emulator",
                sample.program.name
            );
            differ += 1;
        }
    }

    println!("{} of {} instances differ", differ, all.len());
    Ok(differ)
}

/// Rows that do not give the same on every device, and why.
const INCOMPARABLE: [(&Op, &str); 10] = [
    (&isa::TRAP, "ends the context"),
    (&isa::NANOSLEEP, "has no result"),
    (
        &isa::POLICY_FIRST,
        "the bits of a policy are the chip's own",
    ),
    (&isa::POLICY_LAST, "the bits of a policy are the chip's own"),
    (
        &isa::SETMAXNREG_INC,
        "may wait for ever for registers that a lone warp has not given back",
    ),
    (
        &isa::SETMAXNREG_DEC,
        "gives back registers that a small kernel does not have",
    ),
    (
        &isa::MAPA,
        "where shared memory of a block is, is the chip's own",
    ),
    (
        &isa::PARAM_ADDRESS,
        "where parameters are, is the chip's own",
    ),
    (&isa::CVTA_PARAM, "where parameters are, is the chip's own"),
    (&isa::ELECT, "which lane is chosen is the chip's own"),
];

/// Returns true if the results of a row are equal on every device, and the row can be printed for
/// the target of this one.
fn comparable(sample: &Sample) -> bool {
    let named = |&(op, _): &(&Op, &str)| op == sample.op;
    !INCOMPARABLE.iter().any(named)
        && !sample.has_map()
        && sample.program.sm() <= 90
        && !sample.program.specific()
}

/// The memory after each round: random bits, numbers from -3 to 3, small integers, halves.
fn all_rounds(sample: &Sample, context: &Context) -> Result<Vec<u32>, Failure> {
    let text = print(&sample.program, Target::named("sm_90").ok_or("no sm_90")?)?;
    let module = Module::load(context, &text)?;
    let params: Vec<Parameter> = sample.program.params.iter().map(Parameter::from).collect();

    // SAFETY: the parameters are the program's own, and a sample stays inside its memory.
    let function = unsafe { module.function(&sample.program.name, &params) }?;
    let geometry = Geometry {
        grid: [1; 3],
        block: [32, 1, 1],
        shared: 0,
    };
    let stream = Stream::new(context)?;
    let mut all = vec![];
    for round in 0..ROUNDS {
        let memory = Buffer::from_slice(context, &operands(round))?;
        let args = sample.program.params.iter().map(|p| match p.kind {
            ParamKind::Buffer(..) => HostArg::from(memory.view()),
            ParamKind::Scalar(kind) => HostArg::Scalar(kind, 5),
            ParamKind::TensorMap(..) => unreachable!("samples with maps are left out"),
        });
        let launch = Launch::new(&function, geometry, args.collect())?;
        warpwright_driver::stream::Queue::push(&mut &stream, launch.into())?;
        all.extend(stream.read(&memory)?);
    }

    Ok(all)
}

fn operands(round: u64) -> Vec<u32> {
    let mut random = Random(round);
    let word = |_| match round {
        0 => random.bits() as u32 | 1,
        1 => (3.0 * random.unit()).to_bits(),
        2 => 1 + random.below(100),
        // Two halves from -3 to 3.
        _ => (0..2)
            .map(|i| u32::from(f16::from_f32(3.0 * random.unit()).0) << (16 * i))
            .sum(),
    };
    (0..WORDS).map(word).collect()
}

/// Returns the index of the first word that differs, and its values on the GPU and on the emulator.
fn first_difference(sample: &Sample, found: &[u32], wanted: &[u32]) -> Option<(usize, u32, u32)> {
    let kind = match sample.op.form.dst.first() {
        Some(Slot::Is(kind) | Slot::Regs(kind, _)) => *kind,
        _ => sample.kind,
    };
    let pairs = found
        .iter()
        .copied()
        .zip(wanted.iter().copied())
        .enumerate();
    let mut pairs = pairs.map(|(i, (f, w))| (i, f, w));
    pairs.find(|&(i, f, w)| f != w && !same(sample, kind, i / WORDS, f, w))
}

/// Returns true if two words are the same result. NaN equals NaN with other bits, and an
/// approximation must be as close as its row requires.
fn same(sample: &Sample, kind: Kind, round: usize, f: u32, w: u32) -> bool {
    let halves = |v: u32| [f16(v as u16), f16((v >> 16) as u16)].map(f16::to_f32);
    match kind {
        Kind::F32 => near(sample, round, f32::from_bits(f), f32::from_bits(w)),
        Kind::F16 | Kind::F16x2 | Kind::Bf16 => halves(f)
            .into_iter()
            .zip(halves(w))
            .all(|(f, w)| f == w || f.is_nan() && w.is_nan()),
        _ => false,
    }
}

fn near(sample: &Sample, round: usize, f: f32, w: f32) -> bool {
    if f.is_nan() && w.is_nan() {
        return true;
    }
    let ulp = (f32::from_bits(w.to_bits() + 1) - w).abs();
    match sample.op.accuracy {
        Accuracy::Exact => f == w,
        Accuracy::Ulp(n) => (f - w).abs() <= ulp * n as f32,
        Accuracy::Bound(_) => {
            let (of, bound) = bound(sample, w);
            round != of || (f - w).abs() <= bound + ulp
        }
    }
}

/// Returns the round whose operands the accuracy of the row covers, and that accuracy as a number.
fn bound(sample: &Sample, w: f32) -> (usize, f32) {
    match sample.op.id {
        "SIN" | "COS" => (1, 2f32.powf(-20.9)),
        "LG2" => (1, 2f32.powi(-22).max(w.abs() * f32::EPSILON * 2.0)),
        "TANH" => (1, w.abs() * 2f32.powi(-11)),
        "MMA_HALF" => (3, 4.0 * 2f32.powi(-22) * largest_term(sample.kind)),
        id => panic!("{id} has a bound that this test does not know"),
    }
}

/// Returns the largest term of a sum in the last round. The results of two devices may differ by up
/// to two such sums.
///
/// Its words are two `f16` values below 3 in magnitude. Read as `bf16` or `f32`, they are below 33,
/// and so are the terms.
fn largest_term(kind: Kind) -> f32 {
    match kind {
        Kind::F16 => 33.0,
        _ => 33.0 * 33.0,
    }
}
