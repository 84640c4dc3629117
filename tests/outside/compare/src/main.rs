//! Compares the cost of driver calls: raw, by this project and by cudarc, in one process, on a
//! driver that does nothing.
//!
//! Run it with `cargo run --release --manifest-path tests/outside/compare/Cargo.toml`. It prints a
//! table in nanoseconds. Each figure is the least of many rounds, in which the calls alternate.

mod calls;
#[path = "../../../../driver/benches/eight/mod.rs"]
mod eight;

use std::error::Error;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The variable with the search path of the loader, which is set when the program starts itself
/// again.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// Rounds, and calls in one.
const ROUNDS: usize = 60;
const CALLS: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let beside = program.parent().ok_or("no folder")?.join("stub");
    if std::env::var_os(LIBRARIES).as_deref() != Some(beside.as_os_str()) {
        name_as_driver(&beside)?;
        return Err(Command::new(program).env(LIBRARIES, &beside).exec().into());
    }

    let mut rows = calls::rows()?;
    let mut least: Vec<[f64; 3]> = rows.iter().map(|_| [f64::INFINITY; 3]).collect();
    for _ in 0..ROUNDS {
        for (row, least) in rows.iter_mut().zip(&mut least) {
            for (call, least) in row.calls.iter_mut().zip(least) {
                *least = call
                    .as_mut()
                    .map_or(*least, |call| least.min(nanoseconds(call)));
            }
        }
    }

    println!("| ns | raw calls | warpwright-driver | cudarc |\n|---|---|---|---|");
    for (row, least) in rows.iter().zip(least) {
        let cells = least.map(|ns| {
            if ns.is_finite() {
                format!("{ns:.0}")
            } else {
                "-".into()
            }
        });
        println!("| {} | {} |", row.what, cells.join(" | "));
    }

    Ok(())
}

/// Gives the library next to this program the names by which a driver is looked for.
fn name_as_driver(folder: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    for name in ["libcuda.so", "libcuda.so.1"] {
        let _ = std::fs::remove_file(folder.join(name));
        symlink("../libstub.so", folder.join(name))?;
    }
    Ok(())
}

/// The time of one call.
fn nanoseconds(calls: &mut calls::Calls) -> f64 {
    let start = Instant::now();
    calls(CALLS);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}
