//! `cargo xtask ptxas`: assembles every kernel for every target with NVIDIA's assembler.
//!
//! A spill, a stack frame or local memory is an error. The registers and instructions of each
//! kernel are kept in `kernels/ptxas.tsv`, so that a change is visible in review.

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
    /// Write the registers and instructions of each kernel to kernels/ptxas.tsv
    #[arg(long, conflicts_with = "kernels")]
    update: bool,
}

/// The file with the figures of each kernel, relative to the root.
const FIGURES: &str = "kernels/ptxas.tsv";
/// The target whose architecture-specific instructions our kernels use.
const SPECIFIC: &str = "sm_90a";
/// The command that assembles for all targets.
const REST: &str = "cargo xtask ptxas --update";

/// Assembles the kernels for all targets.
pub(crate) fn run(args: &Args) -> Result<()> {
    let figures = assemble_kernels(&ptx::named(&args.kernels)?, |_| Target::ALL.to_vec())?;
    if args.update {
        fs::write(paths::root().join(FIGURES), table(&figures))?;
        println!("wrote {FIGURES}");
    }
    Ok(())
}

/// Assembles every kernel and every row of the instruction table, and compares the figures with the
/// kept ones if this ptxas is the pinned release.
///
/// Kernels are assembled for their oldest target and for `sm_90a` only, because all targets take
/// four times as long.
pub(crate) fn check() -> Result<()> {
    assemble_rows()?;
    let checked = |program: &Program| {
        let oldest = ptx::oldest(program).name;
        let checked = |target: &Target| [oldest, SPECIFIC].contains(&target.name);
        Target::ALL.into_iter().filter(checked).collect()
    };
    let figures = assemble_kernels(&ptx::named(&[])?, checked)?;
    println!("Not run here: the other targets ({REST})");

    // Each release of ptxas allocates registers differently.
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
        let kept = kept.split('\t').collect::<Vec<_>>();
        let found = found.split('\t').collect::<Vec<_>>();
        let same =
            |(kept, found): (&&str, &&str)| found.trim().is_empty() || kept.trim() == found.trim();
        kept.len() == found.len() && kept.iter().zip(&found).all(same)
    };
    kept.lines().count() == found.lines().count() && kept.lines().zip(found.lines()).all(cells)
}

/// A program to assemble, and its target.
struct AssemblyJob<'a> {
    program: &'a Program,
    target: Target,
    text: String,
    /// Whether local memory is an error.
    strict: bool,
}

/// The resources of an assembled kernel.
#[derive(Clone, Copy)]
struct PtxasFigures {
    registers: u32,
    shared: u32,
    instructions: usize,
}

/// The figures by kernel, then by the name of the target.
type AllFigures = BTreeMap<String, BTreeMap<&'static str, PtxasFigures>>;

/// Assembles kernels for their targets, and prints a table.
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

/// Assembles each row of the instruction table in a separate program, for the oldest and the newest
/// target that has it.
///
/// These programs may use local memory, because ptxas copies a tensor map there on sm_120 if its
/// address is taken.
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

/// Returns the oldest target of a program, and the newest of all targets.
fn ends(program: &Program) -> [Target; 2] {
    [ptx::oldest(program), Target::ALL[Target::ALL.len() - 1]]
}

/// Returns a job for each of the targets that the program supports.
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

/// Assembles all jobs, and returns the errors of all if any fails.
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

/// Runs `work` on each item, on one thread per core, and returns the results in the items' order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);

    // Threads take the next item when they are done, because some kernels take far longer than
    // others. The counter orders nothing else, so `Relaxed` suffices.
    let take = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else {
                return done;
            };
            done.push((i, work(i, item)));
        }
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

/// Assembles a job. The files have the path `stem` and other extensions.
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

/// Runs ptxas on a text.
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

/// Reads the figures of a kernel from the messages of ptxas and from the cubin.
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

/// Returns the errors of a failed job, each with its PTX line and its place in the Rust source.
///
/// ptxas ignores `.loc` and counts the lines of its input. The job is therefore assembled again
/// from a text with `.loc`, so that the reported lines are lines of that text.
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

/// Returns a message of ptxas with the PTX line and the Rust place that it refers to.
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

/// Returns the Rust file and line of a PTX line, from the last `.loc` above it.
fn place(text: &str, number: usize) -> Option<String> {
    let above: Vec<_> = text.lines().take(number).collect();
    let loc = above
        .iter()
        .rev()
        .find_map(|line| line.trim().strip_prefix(".loc"))?;
    let mut words = loc.split_whitespace();
    let file = words.next()?;
    let line = words.next()?;
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

/// Returns a row for each kernel. A cell holds registers and instructions, and shared memory is in
/// bytes.
fn table(figures: &AllFigures) -> String {
    tsv::table(&header(), &rows(figures))
}

/// Returns the figures as a table for the terminal.
fn terminal(figures: &AllFigures) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header())
        .add_rows(rows(figures));
    table
}

/// Returns the names of the columns.
fn header() -> Vec<&'static str> {
    ["kernel", "shared"]
        .into_iter()
        .chain(Target::ALL.iter().map(|target| target.name))
        .collect()
}

/// Returns a row for each kernel.
fn rows(figures: &AllFigures) -> Vec<Vec<String>> {
    figures
        .iter()
        .map(|(kernel, by_target)| row(kernel, by_target))
        .collect()
}

/// Returns the row of a kernel.
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

/// Returns the registers and instructions of a kernel as a cell.
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
