//! `cargo xtask ptxas`: assembles every kernel for every target with NVIDIA's assembler.
//!
//! A spill, a stack frame or local memory is an error. The registers and instructions of each
//! kernel are kept in `kernels/ptxas.tsv`, so that a change is visible in review. The file also has
//! a digest of each kernel's PTX, so a kernel is assembled again only if its PTX has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Table, presets};
use ptx_gen::{Program, Target};
use sha2::{Digest, Sha256};

use crate::{cubin, cuda_tools, forms, paths, ptx, tsv};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels to assemble; all of them by default
    kernels: Vec<String>,
    /// Assemble the kernels that have changed, and write kernels/ptxas.tsv
    #[arg(long, conflicts_with = "kernels")]
    update: bool,
}

/// The file with the figures of each kernel, relative to the root.
const FIGURES: &str = "kernels/ptxas.tsv";
/// The target whose architecture-specific instructions our kernels use.
const SPECIFIC: &str = "sm_90a";
/// The command that assembles for all targets.
const REST: &str = "cargo xtask ptxas --update";

/// Assembles kernels for all targets: the named ones, those that have changed for an update, or
/// all.
pub(crate) fn run(args: &Args) -> Result<()> {
    let kernels = ptx::named(&args.kernels)?;
    if args.update {
        return update(kernels);
    }
    assemble_kernels(&kernels, |_| Target::ALL.to_vec())?;
    Ok(())
}

/// Assembles the kernels that have changed, and writes the table of all.
fn update(kernels: Vec<Program>) -> Result<()> {
    let digests = digests(&kernels);
    let mut rows = kept_rows();
    rows.retain(|name, _| digests.contains_key(name));
    let changed = changed(kernels, &digests, &rows);
    let figures = assemble_kernels(&changed, |_| Target::ALL.to_vec())?;
    for (name, by_target) in &figures {
        let mut row = row(name, by_target);
        row.push(digests[name].clone());
        rows.insert(name.clone(), row);
    }

    let header = [&header()[..], &["ptx"]].concat();
    let rows: Vec<_> = rows.into_values().collect();
    fs::write(paths::root().join(FIGURES), tsv::table(&header, &rows))?;
    println!("wrote {FIGURES}");
    Ok(())
}

/// Assembles every row of the instruction table, and every kernel whose PTX is not the one that the
/// table of figures was made from.
///
/// These kernels are assembled for their oldest target and for `sm_90a` only, because all targets
/// take four times as long.
pub(crate) fn check() -> Result<()> {
    assemble_rows()?;
    let kernels = ptx::named(&[])?;
    let count = kernels.len();
    let digests = digests(&kernels);
    let kept = kept_rows();
    let removed = kept.keys().filter(|name| !digests.contains_key(*name));
    let mut differ: Vec<_> = removed.cloned().collect();

    let changed = changed(kernels, &digests, &kept);
    println!(
        "{} of {count} kernels have changed since they were assembled for all targets",
        changed.len()
    );
    if !changed.is_empty() {
        assemble_kernels(&changed, |program| {
            let oldest = ptx::oldest(program).name;
            let checked = |target: &Target| [oldest, SPECIFIC].contains(&target.name);
            Target::ALL.into_iter().filter(checked).collect()
        })?;
    }
    differ.extend(changed.into_iter().map(|program| program.name));
    ensure!(
        differ.is_empty(),
        "{FIGURES} is out of date for {}: {REST}",
        differ.join(", ")
    );

    // The rows of the instruction table are compared with the kept ones of the pinned release.
    let release = cuda_tools::release(&cuda_tools::ptxas()?)?;
    if !release.ends_with(cuda_tools::VERSION) {
        println!(
            "note: the forms of instructions come from {}, this ptxas is {release}: not compared",
            cuda_tools::VERSION
        );
        return Ok(());
    }
    forms::check()
}

/// Returns the rows of the table of figures by kernel. The last cell of a row is the digest.
fn kept_rows() -> BTreeMap<String, Vec<String>> {
    let table = fs::read_to_string(paths::root().join(FIGURES)).unwrap_or_default();
    let rows = table.lines().skip(1).map(|line| {
        let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        (cells[0].clone(), cells)
    });
    rows.collect()
}

/// Returns the kernels that have no row with their digest.
fn changed(
    kernels: Vec<Program>,
    digests: &BTreeMap<String, String>,
    rows: &BTreeMap<String, Vec<String>>,
) -> Vec<Program> {
    let is_kept = |program: &Program| {
        let row = rows.get(&program.name);
        row.and_then(|cells| cells.last()) == digests.get(&program.name)
    };
    let mut kernels = kernels;
    kernels.retain(|program| !is_kept(program));
    kernels
}

/// Returns a digest of each kernel's PTX for all its targets, and of the release of ptxas that the
/// figures come from.
fn digests(kernels: &[Program]) -> BTreeMap<String, String> {
    let digest = |_, program: &Program| {
        let mut hash = Sha256::new();
        hash.update(cuda_tools::VERSION);
        for job in jobs(program, &Target::ALL, true) {
            hash.update(job.target.name);
            hash.update(job.text);
        }
        // 64 bits: an accident, and not an adversary, must not have the same digest.
        let bytes = hash.finalize();
        let digits = bytes[..8].iter().map(|byte| format!("{byte:02x}"));
        (program.name.clone(), digits.collect())
    };
    in_parallel(kernels, digest).into_iter().collect()
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

/// Returns the row of a kernel. A cell holds registers and instructions, and shared memory is in
/// bytes.
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
    use super::{changed, digests, explain_line, place};
    use std::collections::BTreeMap;

    #[test]
    fn a_kernel_with_another_digest_has_changed() {
        let programs = crate::ptx::named(&["add_bias".to_owned()]).expect("a kernel");
        let digests = digests(&programs);
        let digest = digests["add_bias"].clone();
        assert_eq!(digest.len(), 16);
        let rows = |digest: String| {
            let cells = vec!["add_bias".to_owned(), "0".to_owned(), digest];
            BTreeMap::from([("add_bias".to_owned(), cells)])
        };
        for (rows, count) in [
            (rows(digest), 0),
            (rows("0".repeat(16)), 1),
            (BTreeMap::new(), 1),
        ] {
            assert_eq!(changed(programs.clone(), &digests, &rows).len(), count);
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
