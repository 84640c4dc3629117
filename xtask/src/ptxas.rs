//! `cargo xtask ptxas`: every kernel assembled for every target, by somebody who did not write it.
//!
//! A spill, a stack frame or local memory is a failure. What the assembler makes of each kernel is kept in
//! `kernels/ptxas.tsv`, so that a change of registers or size shows in review.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Table, presets};
use ptx_gen::{Program, Target};

use crate::{cubin, cuda_tools, forms, paths, ptx, tsv};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels to assemble; all of them by default
    kernels: Vec<String>,
    /// Write what ptxas makes of the kernels to kernels/ptxas.tsv
    #[arg(long, conflicts_with = "kernels")]
    update: bool,
}

const FIGURES: &str = "kernels/ptxas.tsv";
/// The target with the instructions of one architecture that kernels here have.
const SPECIFIC: &str = "sm_90a";
const REST: &str = "cargo xtask ptxas --update";

pub(crate) fn run(args: &Args) -> Result<()> {
    let figures = assemble_kernels(&ptx::named(&args.kernels)?, |_| Target::ALL.to_vec())?;
    if args.update {
        fs::write(paths::root().join(FIGURES), table(&figures))?;
        println!("wrote {FIGURES}");
    }
    Ok(())
}

/// Assembles every kernel and every row of the instruction table, and compares the kernels with the figures kept,
/// where this ptxas is the one they come from. For the oldest target of each and that of the specific instructions: for
/// all, it takes four times as long.
pub(crate) fn check() -> Result<()> {
    assemble_rows()?;
    let checked = |program: &Program| {
        let oldest = ptx::oldest(program).name;
        let checked = |target: &Target| [oldest, SPECIFIC].contains(&target.name);
        Target::ALL.into_iter().filter(checked).collect()
    };
    let figures = assemble_kernels(&ptx::named(&[])?, checked)?;
    println!("Not run here: the other targets ({REST})");
    let release = cuda_tools::release(&cuda_tools::ptxas()?)?;
    if !release.ends_with(cuda_tools::VERSION) {
        println!(
            "note: {FIGURES} comes from {}, this ptxas is {release}: not compared",
            cuda_tools::VERSION
        );
        return Ok(());
    }
    let kept = fs::read_to_string(paths::root().join(FIGURES)).unwrap_or_default();
    ensure!(
        agree(&kept, &table(&figures)),
        "{FIGURES} is out of date: {REST}"
    );
    forms::check()
}

/// Returns true if two tables have the same cells, except where a cell of `found` is empty.
fn agree(kept: &str, found: &str) -> bool {
    let cells = |(kept, found): (&str, &str)| {
        let (kept, found) = (
            kept.split('\t').collect::<Vec<_>>(),
            found.split('\t').collect::<Vec<_>>(),
        );
        let same =
            |(kept, found): (&&str, &&str)| found.trim().is_empty() || kept.trim() == found.trim();
        kept.len() == found.len() && kept.iter().zip(&found).all(same)
    };
    kept.lines().count() == found.lines().count() && kept.lines().zip(found.lines()).all(cells)
}

/// A program and a target: what to assemble.
struct AssemblyJob<'a> {
    program: &'a Program,
    target: Target,
    text: String,
    /// Whether local memory is an error.
    strict: bool,
}

/// What ptxas made of a kernel.
#[derive(Clone, Copy)]
struct PtxasFigures {
    registers: u32,
    shared: u32,
    instructions: usize,
}

/// By kernel, then by the target's name.
type AllFigures = BTreeMap<String, BTreeMap<&'static str, PtxasFigures>>;

fn assemble_kernels(
    kernels: &[Program],
    targets: impl Fn(&Program) -> Vec<Target>,
) -> Result<AllFigures> {
    let jobs: Vec<_> = kernels
        .iter()
        .flat_map(|kernel| jobs(kernel, &targets(kernel), true))
        .collect();
    let mut figures = AllFigures::new();
    for (job, found) in jobs.iter().zip(assemble_all(&jobs)?) {
        figures
            .entry(job.program.name.clone())
            .or_default()
            .insert(job.target.name, found);
    }
    println!("{}", terminal(&figures));
    println!(
        "{} kernels, {} assemblies: no spill, no stack, no local memory",
        kernels.len(),
        jobs.len()
    );
    Ok(figures)
}

/// Every row of the instruction table, in a program of its own, for the oldest and the newest target that has it. Such a
/// program may use local memory: on sm_120, ptxas copies a tensor map there whose address is taken.
fn assemble_rows() -> Result<()> {
    let programs: Vec<_> = ptx_gen::samples()
        .into_iter()
        .map(|sample| sample.program)
        .collect();
    let jobs: Vec<_> = programs
        .iter()
        .flat_map(|program| jobs(program, &ends(program), false))
        .collect();
    assemble_all(&jobs)?;
    println!("{} forms of instructions assembled", programs.len());
    Ok(())
}

/// The oldest target that a program can be printed for, and the newest of all.
fn ends(program: &Program) -> [Target; 2] {
    [ptx::oldest(program), Target::ALL[Target::ALL.len() - 1]]
}

/// The targets among these that the program can be printed for.
fn jobs<'a>(program: &'a Program, targets: &[Target], strict: bool) -> Vec<AssemblyJob<'a>> {
    let job = |&target| {
        Some(AssemblyJob {
            program,
            target,
            text: ptx_gen::print(program, target).ok()?,
            strict,
        })
    };
    targets.iter().filter_map(job).collect()
}

fn assemble_all(jobs: &[AssemblyJob]) -> Result<Vec<PtxasFigures>> {
    let ptxas = cuda_tools::ptxas()?;
    let work = tempfile::tempdir()?;
    let results = in_parallel(jobs, |i, job| {
        assemble(&ptxas, &work.path().join(i.to_string()), job)
    });
    let faults = jobs.iter().zip(&results).filter_map(|(job, result)| {
        Some(format!(
            "{} for {}: {:#}",
            job.program.name,
            job.target,
            result.as_ref().err()?
        ))
    });
    let faults: Vec<_> = faults.collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    results.into_iter().collect()
}

/// Runs `work` on each item, on as many threads as there are cores; results in the items' order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let Some((i, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
        {
            done.push((i, work(i, item)));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker only runs ptxas"))
            .collect()
    });
    results.sort_by_key(|&(i, _)| i);
    results.into_iter().map(|(_, result)| result).collect()
}

fn assemble(ptxas: &Path, stem: &Path, job: &AssemblyJob) -> Result<PtxasFigures> {
    let cubin = stem.with_extension("cubin");
    let output = call(ptxas, stem, job, &job.text, &cubin)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => figures(&said, &fs::read(&cubin)?, job.program),
        Some(_) => bail!(
            "{}",
            explain(ptxas, stem, job).unwrap_or_else(|_| said.into_owned())
        ),
        None => bail!("ptxas crashed ({})", output.status),
    }
}

fn call(ptxas: &Path, stem: &Path, job: &AssemblyJob, text: &str, cubin: &Path) -> Result<Output> {
    let source: PathBuf = stem.with_extension("ptx");
    fs::write(&source, text)?;
    let strict = [
        "-Werror",
        "--warn-on-spills",
        "--warn-on-local-memory-usage",
    ];
    let output = Command::new(ptxas)
        .args(strict.into_iter().filter(|_| job.strict))
        .args(["-v", "-arch", job.target.name, "-o"])
        .args([cubin, &source])
        .output()?;
    Ok(output)
}

fn figures(said: &str, cubin: &[u8], program: &Program) -> Result<PtxasFigures> {
    let used = said
        .lines()
        .find(|line| line.contains("Used "))
        .context("ptxas does not say what it used")?;
    let number = |unit: &str| {
        used.split([':', ',']).find_map(|part| {
            part.trim()
                .trim_start_matches("Used ")
                .strip_suffix(unit)?
                .trim()
                .parse()
                .ok()
        })
    };
    let code = cubin::instructions(cubin, &program.name);
    Ok(PtxasFigures {
        registers: number("registers").context("ptxas does not say how many registers")?,
        shared: number("bytes smem").unwrap_or(0),
        instructions: code.context("ptxas wrote no code for the kernel")?,
    })
}

/// The errors with the PTX line and the Rust place of each.
///
/// ptxas counts lines of the text it gets and ignores `.loc`, so it gets the text with `.loc` a second time.
fn explain(ptxas: &Path, stem: &Path, job: &AssemblyJob) -> Result<String> {
    let text = ptx_gen::print_with_lines(job.program, job.target)?;
    let output = call(ptxas, stem, job, &text, &stem.with_extension("cubin"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let faults: Vec<_> = said
        .lines()
        .filter(|line| line.contains("error"))
        .map(|line| explain_line(line, &text))
        .collect();
    ensure!(!faults.is_empty(), "ptxas named no error");
    Ok(faults.join("\n"))
}

fn explain_line(said: &str, text: &str) -> String {
    let message = said
        .split_once("error")
        .map_or(said, |(_, message)| message.trim_start_matches([' ', ':']));
    let number = said
        .split_once(", line ")
        .and_then(|(_, rest)| rest.split(';').next()?.trim().parse::<usize>().ok());
    let Some(number) = number else {
        return format!("  {message}");
    };
    let line = text
        .lines()
        .nth(number.saturating_sub(1))
        .unwrap_or_default()
        .trim();
    let place = place(text, number).map_or_else(String::new, |place| format!(" (from {place})"));
    format!("  {message}\n    in: {line}{place}")
}

/// The Rust file and line of a PTX line: the last `.loc` above it.
fn place(text: &str, number: usize) -> Option<String> {
    let above: Vec<_> = text.lines().take(number).collect();
    let loc = above
        .iter()
        .rev()
        .find_map(|line| line.trim().strip_prefix(".loc"))?;
    let mut words = loc.split_whitespace();
    let (file, line) = (words.next()?, words.next()?);
    let name = text.lines().find_map(|line| {
        line.trim()
            .strip_prefix(".file")?
            .trim()
            .strip_prefix(file)?
            .trim()
            .strip_prefix('"')?
            .split('"')
            .next()
    })?;
    Some(format!("{name}:{line}"))
}

/// Returns a row for each kernel. A cell holds registers and instructions, and shared memory is in bytes.
fn table(figures: &AllFigures) -> String {
    tsv::table(&header(), &rows(figures))
}

fn terminal(figures: &AllFigures) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header())
        .add_rows(rows(figures));
    table
}

fn header() -> Vec<&'static str> {
    ["kernel", "shared"]
        .into_iter()
        .chain(Target::ALL.iter().map(|target| target.name))
        .collect()
}

fn rows(figures: &AllFigures) -> Vec<Vec<String>> {
    figures
        .iter()
        .map(|(kernel, by_target)| row(kernel, by_target))
        .collect()
}

fn row(kernel: &str, by_target: &BTreeMap<&'static str, PtxasFigures>) -> Vec<String> {
    let shared = by_target
        .values()
        .map(|found| found.shared)
        .max()
        .unwrap_or(0);
    let cells = Target::ALL
        .iter()
        .map(|target| by_target.get(target.name).map_or_else(String::new, cell));
    [kernel.to_owned(), shared.to_string()]
        .into_iter()
        .chain(cells)
        .collect()
}

fn cell(figures: &PtxasFigures) -> String {
    format!("{} / {}", figures.registers, figures.instructions)
}

#[cfg(test)]
mod tests {
    use super::{agree, explain_line, place};

    #[test]
    fn a_table_agrees_with_the_cells_that_were_assembled() {
        let kept = "kernel\tshared\na\t0\t8 / 9\t10 / 11\n";
        assert!(agree(kept, kept) && agree(kept, "kernel\tshared\na\t0\t\t10 / 11\n"));
        for other in [
            "kernel\tshared\na\t0\t8 / 8\t\n",
            "kernel\tshared\nb\t0\t\t\n",
            "kernel\tshared\n",
        ] {
            assert!(!agree(kept, other), "{other}");
        }
    }

    const TEXT: &str = "\
.file 1 \"kernels/src/gemv.rs\"
.loc 1 40 9
mov.u32 %r1, %tid.x;
.loc 1 41 9
foo %r2;
";

    #[test]
    fn an_error_is_named_by_its_rust_line() {
        assert_eq!(place(TEXT, 3).as_deref(), Some("kernels/src/gemv.rs:40"));
        assert_eq!(
            explain_line(
                "ptxas k.ptx, line 5; error   : Not a name of any known instruction: 'foo'",
                TEXT
            ),
            "  Not a name of any known instruction: 'foo'\n    in: foo %r2; (from kernels/src/gemv.rs:41)"
        );
        assert_eq!(
            explain_line("ptxas error   : out of things", TEXT),
            "  out of things"
        );
    }
}
