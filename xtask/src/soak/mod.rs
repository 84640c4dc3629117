//! `cargo xtask soak`: abuses a running server for some minutes and checks that it stays whole.
//!
//! Many clients send complete requests of every protocol, streamed and not. They also leave in the
//! middle of a stream, read slowly, and send prompts of 1 MB, broken JSON and half requests. Every
//! text is compared with a reference that the same server computed alone before. At the end, the
//! server must have no running request, no used page, no more open files than before, and memory
//! that does not grow. Its log must have no panic and no error.
//!
//! All traffic goes to 127.0.0.1. The clients choose their requests from the seed, so a run can be
//! repeated, but not the order in which the requests of different clients arrive.

mod actions;
mod client;
mod http;
mod protocol;
mod question;
mod questions;
mod random;
mod server;
mod tally;
mod usage;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, paths};
use client::Client;
use questions::References;
use server::{ServerOptions, ServerProcess};
use tally::Tally;
use usage::{ProcessUsage, UsageLog};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Minutes for which the clients send requests
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// Number of clients at a time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    clients: u64,
    /// Seed of the clients' requests [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The program to test [default: target/release/warpwright, which is built first]
    #[arg(long, value_name = "FILE")]
    warpwright: Option<PathBuf>,
    /// The model to serve [default: the small model of the repository]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The device, as warpwright names it; auto takes a GPU if there is one
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Largest number of sequences of the server at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=256))]
    sequences: u32,
}

/// The time in which the last requests must end after the clients have left.
const DRAIN: Duration = Duration::from_secs(120);

/// The interval at which the memory and the files of the server are counted.
const SAMPLE: Duration = Duration::from_secs(2);

/// Runs the soak. Returns an error if anything was wrong.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        args.minutes > 0.0 && args.minutes <= 24.0 * 60.0,
        "invalid --minutes {}: expected a number above 0 and up to 1440",
        args.minutes
    );
    let seed = args.seed.unwrap_or_else(new_seed);
    println!("seed {seed}");
    let program = match &args.warpwright {
        Some(program) => program.clone(),
        None => build()?,
    };
    let model = args.model.clone();
    let model = model.unwrap_or_else(|| paths::root().join("assets/rustdoc-7m-Q4_K_M.gguf"));
    let server = ServerProcess::start(&ServerOptions {
        program: &program,
        model: &model,
        device: &args.device,
        sequences: args.sequences,
    })?;
    println!("{}", server.serving());

    let start = Instant::now();
    let references = References::compute(server.port())?;
    println!(
        "computed {} references alone in {:.0} s",
        references.len(),
        start.elapsed().as_secs_f64()
    );
    let before = server.usage();
    let total = server.pages().context("the server has no pages")?.total();

    let tally = Mutex::new(Tally::default());
    let usage = abuse(args, seed, &server, &references, &tally)?;
    let mut tally = tally
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    match server.has_ended() {
        Some(ended) => tally.problem(format!("the server has ended: {ended}")),
        None => {
            for problem in after_the_clients(&server, &references, before, total)? {
                tally.problem(problem);
            }
        }
    }
    for problem in usage.problems() {
        tally.problem(problem);
    }
    for kind in tally.missing_kinds() {
        tally.problem(format!(
            "no client got to the end of {kind:?}: run more minutes"
        ));
    }

    println!("\n{}\n", tally.table().trim_fmt());
    println!("{usage}");
    let problems = tally.problems();
    for problem in problems.iter().take(20) {
        println!("problem: {problem}");
    }
    if problems.is_empty() {
        println!("no problem in {} requests, seed {seed}", tally.requests());
        return Ok(());
    }
    bail!(
        "the server failed the soak: {} problems in {} requests; repeat with --seed {seed}",
        problems.len(),
        tally.requests()
    )
}

/// Checks the server after all clients have left, and stops it. Returns the problems.
fn after_the_clients(
    server: &ServerProcess,
    references: &References,
    before: Option<ProcessUsage>,
    total: u64,
) -> Result<Vec<String>> {
    let mut problems = server.drain(DRAIN, total);
    match (before, server.usage()) {
        (Some(before), Some(after)) => {
            // Connections that are being closed may have a file for a moment, so a few are allowed.
            if after.files > before.files + 3 {
                problems.push(format!(
                    "the server has {} open files after all clients left, and had {} before",
                    after.files, before.files
                ));
            }
        }
        _ => println!("not run: memory and open files, because this system has no /proc"),
    }
    let differences = references.differences(server.port()).into_iter();
    problems.extend(differences.map(|problem| format!("after the clients left: {problem}")));
    problems.extend(server.stop()?);
    Ok(problems)
}

/// Runs all clients, and counts the memory and the files of the server meanwhile.
fn abuse(
    args: &Args,
    seed: u64,
    server: &ServerProcess,
    references: &References,
    tally: &Mutex<Tally>,
) -> Result<UsageLog> {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(args.minutes * 60.0);
    let mut usage = UsageLog::new();
    let stop = AtomicBool::new(false);
    let stop = &stop;
    thread::scope(|scope| {
        for number in 0..args.clients {
            let mut client = Client::new(seed, number, server.port(), references, tally);
            let builder = thread::Builder::new().stack_size(1 << 20);
            builder
                .spawn_scoped(scope, move || client.run(end, stop))
                .context("cannot start a thread for a client")?;
        }
        let mut shown = start;
        while Instant::now() < end {
            thread::sleep(SAMPLE.min(end.saturating_duration_since(Instant::now())));
            if let Some(sample) = server.usage() {
                usage.add(start.elapsed(), sample);
            }
            if server.has_ended().is_some() {
                stop.store(true, Ordering::Relaxed);
                break;
            }
            if shown.elapsed() >= Duration::from_secs(60) {
                shown = Instant::now();
                let tally = tally.lock().unwrap_or_else(|poison| poison.into_inner());
                println!(
                    "{:.0} min: {} requests, {} problems",
                    start.elapsed().as_secs_f64() / 60.0,
                    tally.requests(),
                    tally.problems().len()
                );
            }
        }
        anyhow::Ok(())
    })?;
    Ok(usage)
}

/// Builds the program and returns its path.
fn build() -> Result<PathBuf> {
    let mut cargo = cargo::command();
    cargo.args(["build", "--release", "-p", "warpwright"]);
    ensure!(
        cargo.status()?.success(),
        "cannot build the program: cargo build --release -p warpwright"
    );
    let name = format!("warpwright{}", std::env::consts::EXE_SUFFIX);
    Ok(paths::target().join("release").join(name))
}

/// Returns a seed that differs from run to run.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64 % 1_000_000_000)
}
