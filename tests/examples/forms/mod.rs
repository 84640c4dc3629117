//! Compares forms of instructions on a GPU and on the emulator. `ptx-gen` does not have most of
//! them. A small kernel applies each form to random operands and corner cases.

mod atomics;
mod bulk;
mod carries;
mod case;
mod comparisons;
mod conversions;
mod floats;
mod fragments;
mod images;
mod integers;
mod lanes;
mod operands;
mod scalar;
mod sparse;
mod surfaces;
mod textures;
mod video;
mod warpgroups;

use std::fs;
use std::path::{Path, PathBuf};

use case::{Case, Exact};
use warpwright_driver::Context;

type Failure = Box<dyn std::error::Error>;

/// All forms whose name has one of the texts, which `|` divides. One case at a time is in memory.
fn cases(only: &str) -> impl Iterator<Item = Case> {
    let all: [fn() -> case::Cases; 9] = [
        scalar::cases,
        lanes::cases,
        atomics::cases,
        bulk::cases,
        fragments::cases,
        sparse::cases,
        warpgroups::cases,
        textures::cases,
        surfaces::cases,
    ];
    all.into_iter()
        .flat_map(|of| of())
        .filter(move |case| only.split('|').any(|text| case.name.contains(text)))
}

/// Writes the kernels to a folder, a file each, for an assembler.
pub(crate) fn print(folder: &Path, only: &str) -> Result<usize, Failure> {
    fs::create_dir_all(folder)?;
    let mut count = 0;
    for case in cases(only) {
        fs::write(
            folder.join(format!("{count}.ptx")),
            format!("// {}\n{}", case.name, case.text),
        )?;
        count += 1;
    }

    println!("{count} kernels in {}", folder.display());
    Ok(count)
}

/// Failures in a row after which there is no use in going on.
const LOST: usize = 40;

/// The reference with which the emulator is compared.
pub(crate) enum Real<'a> {
    Device(&'a Context),
    /// A device whose results are kept in this folder.
    Kept(&'a Context, &'a Path),
    /// The earlier results of a device, which were kept in this folder.
    Before(&'a Path),
}

/// Words of a form's results that are kept.
const KEPT: usize = 4096;

impl Real<'_> {
    fn run(&self, case: &Case, inputs: &[u64]) -> Result<Vec<u64>, Failure> {
        match self {
            Real::Device(context) => case.run(context, inputs),
            Real::Kept(context, folder) => {
                let found = case.run(context, inputs)?;
                fs::create_dir_all(folder)?;
                let bytes: Vec<u8> = found
                    .iter()
                    .take(KEPT)
                    .flat_map(|word| word.to_le_bytes())
                    .collect();
                fs::write(file(folder, case), bytes)?;
                Ok(found)
            }
            Real::Before(folder) => {
                let bytes = fs::read(file(folder, case))?;
                Ok(bytes
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                    .collect())
            }
        }
    }
}

/// Returns the path of the kept results of a form.
fn file(folder: &Path, case: &Case) -> PathBuf {
    let name: String = case
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    folder.join(name)
}

/// Runs all forms on both and prints those that differ, last a count; gives the number of those
/// that differ, 1 if there are no forms.
pub(crate) fn compare(real: &Real<'_>, emulated: &Context, only: &str) -> usize {
    let (mut count, mut differing, mut any, mut failures) = (0, 0, false, 0);
    let known = |case: &Case| match real {
        Real::Before(folder) => file(folder, case).exists(),
        _ => true,
    };
    for case in cases(only).filter(known) {
        let o = outcome(&case, real, emulated);
        count += 1;
        failures = if o.results == 0 { failures + 1 } else { 0 };
        if failures == LOST {
            println!(
                "{LOST} forms in a row failed: the first of them may have ended the context, the rest is not run"
            );
            break;
        }

        if o.differing + o.nans == 0 {
            continue;
        }

        if !any {
            println!(
                "form | results | differing | NaN bits | farthest, relative | first difference"
            );
            any = true;
        }

        println!(
            "{} | {} | {} | {} | {:.3e} | {}",
            case.name, o.results, o.differing, o.nans, o.farthest, o.first
        );
        differing += usize::from(o.differing > 0);
    }

    println!("{differing} of {count} forms differ");

    // A name that no form has, or a folder without results, must not look like success.
    differing + usize::from(count == 0)
}

/// The outcome of one form.
#[derive(Default)]
struct Outcome {
    results: usize,
    differing: usize,
    /// Results that are no number on both, with different bits.
    nans: usize,
    /// The largest difference of floats, relative to the emulated value.
    farthest: f64,
    first: String,
}

fn outcome(case: &Case, real: &Real<'_>, emulated: &Context) -> Outcome {
    let failed = |what: &str, e: Failure| {
        let text = e.to_string().replace('\n', " ");
        let first = format!("{what}: {}", text.chars().take(240).collect::<String>());
        Outcome {
            differing: 1,
            first,
            ..Outcome::default()
        }
    };
    let inputs = (case.inputs)();
    match (real.run(case, &inputs), case.run(emulated, &inputs)) {
        (Ok(found), Ok(mut wanted)) => {
            if matches!(real, Real::Before(_)) {
                wanted.truncate(KEPT);
            }
            compared(case, &inputs, [&found, &wanted])
        }
        (Err(e), _) => failed("on the GPU", e),
        (_, Err(e)) => failed("on the emulator", e),
    }
}

fn compared(case: &Case, inputs: &[u64], [found, wanted]: [&[u64]; 2]) -> Outcome {
    let mut o = Outcome {
        results: found.len(),
        ..Outcome::default()
    };
    if found.len() != wanted.len() {
        (o.differing, o.first) = (
            1,
            format!("{} results, emulated {}", found.len(), wanted.len()),
        );
    }

    for (i, (f, w)) in found
        .iter()
        .zip(wanted)
        .enumerate()
        .filter(|(_, (f, w))| f != w)
    {
        match judge(case, *f, *w) {
            Verdict::Near => {}
            Verdict::NanBits if o.differing + o.nans == 0 => {
                (o.nans, o.first) = (1, format!("NaN is {f:#x}, emulated {w:#x}"));
            }
            Verdict::NanBits => o.nans += 1,
            Verdict::Differs(distance) => {
                if o.differing == 0 {
                    o.first = case.describe(inputs, i, [*f, *w]);
                }
                o.differing += 1;
                o.farthest = o.farthest.max(distance);
            }
        }
    }

    o
}

/// The comparison of two words that are not equal.
enum Verdict {
    Near,
    NanBits,
    /// The words differ by this much, relative to the emulated value, or by 0 if they are not
    /// floats.
    Differs(f64),
}

fn judge(case: &Case, f: u64, w: u64) -> Verdict {
    let Some((found, wanted)) = numbers(case.result, f).zip(numbers(case.result, w)) else {
        return Verdict::Differs(0.0);
    };

    let (mut near, mut farthest) = (false, None);
    let width = operands::bits(case.result);
    for (p, (x, y)) in found.into_iter().zip(wanted).enumerate() {
        let part = |word: u64| word >> (p * width) & u64::MAX >> (64 - width);
        if part(f) == part(w) || x.is_nan() && y.is_nan() {
            continue;
        }

        let within = matches!(case.exact, Exact::Near(relative, bound) if (x - y).abs() <= relative * y.abs() + bound);
        if within {
            near = true;
        } else {
            let distance = ((x - y) / y).abs();
            farthest = Some(f64::max(farthest.unwrap_or(0.0), distance));
        }
    }

    match (farthest, near) {
        (Some(distance), _) => Verdict::Differs(distance),
        (None, true) => Verdict::Near,
        (None, false) => Verdict::NanBits,
    }
}

/// The floats in a word, none of other types.
fn numbers(ty: &str, word: u64) -> Option<Vec<f64>> {
    let parts = |bits: usize| (0..64 / bits).map(move |p| word >> (p * bits));
    Some(match ty {
        "f64" => vec![f64::from_bits(word)],
        "f32" => parts(32)
            .map(|v| f64::from(f32::from_bits(v as u32)))
            .collect(),
        "bf16" => parts(16)
            .map(|v| f64::from(f32::from_bits((v as u32 & 0xffff) << 16)))
            .collect(),
        "f16" => parts(16)
            .map(|v| f64::from(ptx_gen::f16(v as u16).to_f32()))
            .collect(),
        _ => return None,
    })
}
