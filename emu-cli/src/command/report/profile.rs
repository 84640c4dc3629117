//! Output of `--trace`, the instructions of a thread, and of `--stats`, the counts of a launch.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::{Table, presets};
use ptx_emu::{FollowedStep, MemorySpace, Profile, RegisterStep, SiteProfile};

use super::words::place;
use crate::terminal::printable;

/// The largest number of instructions that are shown.
pub(crate) const MOST_STEPS: usize = 10_000;

/// The value of `--trace`: a block and a thread in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TracedThread {
    block: ProfileIndex,
    thread: ProfileIndex,
}

/// An index on the command line: a linear one, or three coordinates.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ProfileIndex {
    Linear(u32),
    Place([u32; 3]),
}

impl std::str::FromStr for TracedThread {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected BLOCK,THREAD, each a number or x.y.z, such as 3,17 or 1.2.0,0.5.0".to_owned()
        };
        let (block, thread) = text.split_once(',').ok_or_else(wrong)?;
        let index = |text: &str| {
            let numbers = text
                .split('.')
                .map(|n| n.parse().ok())
                .collect::<Option<Vec<u32>>>()?;
            match numbers[..] {
                [n] => Some(ProfileIndex::Linear(n)),
                [x, y, z] => Some(ProfileIndex::Place([x, y, z])),
                _ => None,
            }
        };
        Ok(TracedThread {
            block: index(block).ok_or_else(wrong)?,
            thread: index(thread).ok_or_else(wrong)?,
        })
    }
}

impl TracedThread {
    /// Returns the coordinates of the block and the thread in a launch with this grid and block
    /// size.
    ///
    /// # Errors
    /// Returns a message if the launch has no such block or thread.
    pub(crate) fn within(self, grid: [u32; 3], block: [u32; 3]) -> Result<[[u32; 3]; 2], String> {
        let find = |what: &str, index: ProfileIndex, size: [u32; 3]| {
            let [x, y, z] = size;
            let place = match index {
                ProfileIndex::Linear(n) => [n % x, n / x % y, n / x / y],
                ProfileIndex::Place(place) => place,
            };
            let inside = place.iter().zip(size).all(|(at, size)| *at < size);
            if inside {
                Ok(place)
            } else {
                Err(format!(
                    "--trace: there is no such {what}; there are {x}x{y}x{z}"
                ))
            }
        };
        Ok([
            find("block", self.block, grid)?,
            find("thread", self.thread, block)?,
        ])
    }
}

/// Prints the instructions of a thread with their registers. A register that changed has its old
/// and its new value.
pub(crate) fn steps(out: &mut impl Write, steps: &[FollowedStep]) -> io::Result<()> {
    let mut source = None;
    for step in steps {
        // The source location is printed only when it changes, because many instructions come from
        // one line.
        if step.place.rust != source {
            source = step.place.rust.clone();
            if let Some(source) = &source {
                writeln!(
                    out,
                    "{}",
                    printable(&format!(
                        "{}:{}:{}",
                        source.file, source.line, source.column
                    ))
                )?;
            }
        }

        let skipped = if step.executed {
            ""
        } else {
            "  (not executed)"
        };
        let text = format!("{:5}  {}{skipped}", step.place.line, step.place.text);
        let registers: Vec<String> = step.registers.iter().map(|r| register(step, r)).collect();
        writeln!(
            out,
            "{:60}  {}",
            printable(&text),
            printable(&registers.join(", "))
        )?;
    }
    match steps.len() {
        0 => writeln!(out, "the thread executed nothing"),
        MOST_STEPS => writeln!(out, ".. more instructions are not shown"),
        _ => Ok(()),
    }
}

/// Returns a register with its value. An uninitialized value is shown as `?`.
fn register(step: &FollowedStep, register: &RegisterStep) -> String {
    let show = |value: Option<u64>| {
        value.map_or("?".to_owned(), |value| number(step, register.bits, value))
    };
    let name = &register.name;
    let after = show(register.after);
    if register.before == register.after {
        format!("{name}={after}")
    } else {
        format!("{name}={}->{after}", show(register.before))
    }
}

/// Formats the value of a register. The types of the instruction decide between integer and float,
/// and large integers are in hexadecimal, because they are probably addresses.
fn number(step: &FollowedStep, bits: u32, value: u64) -> String {
    let of = |suffix: &str| {
        step.place
            .text
            .split([' ', ';'])
            .any(|word| word.contains(suffix))
    };
    match bits {
        1 => (value != 0).to_string(),
        32 if of(".f32") => f32::from_bits(value as u32).to_string(),
        64 if of(".f64") => f64::from_bits(value).to_string(),
        32 if of(".s32") => (value as u32 as i32).to_string(),
        64 if of(".s64") && (value as i64).unsigned_abs() < 1 << 32 => (value as i64).to_string(),
        _ if value >= 1 << 32 => format!("0x{value:x}"),
        _ => value.to_string(),
    }
}

/// Prints the counts of all threads: instructions by name, bytes by memory space, and each access
/// of memory.
pub(crate) fn profile(out: &mut impl Write, profile: &Profile) -> io::Result<()> {
    let sum = |count: fn(&SiteProfile) -> u64| profile.sites.iter().map(count).sum::<u64>();
    let warps = sum(|site| site.warps);
    let lanes = sum(|site| site.lanes);
    let diverged = sum(|site| site.diverged);

    // A kernel may execute nothing, for example if all threads are past the end of the data.
    let per_warp = |count: u64| {
        if warps == 0 {
            0.0
        } else {
            count as f64 / warps as f64
        }
    };
    writeln!(
        out,
        "{warps} warp instructions, {lanes} lane instructions: {:.1} of 32 lanes on average; {:.1} % by diverged warps\n",
        per_warp(lanes),
        100.0 * per_warp(diverged)
    )?;
    writeln!(out, "{}\n", opcodes(&profile.sites).trim_fmt())?;
    writeln!(out, "{}\n", spaces(&profile.sites).trim_fmt())?;
    let accesses = accesses(&profile.sites);
    if accesses.row_count() > 0 {
        writeln!(out, "{}", accesses.trim_fmt())?;
    }

    Ok(())
}

/// Returns an empty table with this header.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}

/// Returns the table of instructions by name, most frequent first.
fn opcodes(sites: &[SiteProfile]) -> Table {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for site in sites {
        let (warps, lanes) = counts.entry(site.opcode()).or_default();
        *warps += site.warps;
        *lanes += site.lanes;
    }

    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by_key(|(name, (warps, _))| (std::cmp::Reverse(*warps), *name));
    let mut table = table(&["instruction", "warps", "lanes"]);
    table.add_rows(
        rows.into_iter()
            .map(|(name, (warps, lanes))| [name.to_owned(), warps.to_string(), lanes.to_string()]),
    );
    table
}

/// Returns the name of a memory space.
fn space(space: MemorySpace) -> &'static str {
    match space {
        MemorySpace::Global => "global",
        MemorySpace::Shared => "shared",
        MemorySpace::Local => "local",
    }
}

/// Returns the table of bytes by memory space.
fn spaces(sites: &[SiteProfile]) -> Table {
    let mut table = table(&["space", "bytes read", "bytes written", "bytes by atomics"]);
    for kind in [MemorySpace::Global, MemorySpace::Shared, MemorySpace::Local] {
        let bytes = |names: &[&str]| -> u64 {
            let of = sites
                .iter()
                .filter(|site| names.contains(&site.opcode().split('.').next().unwrap_or("")));
            of.flat_map(|site| &site.memory)
                .filter(|m| m.space == kind)
                .map(|m| m.bytes)
                .sum()
        };
        let row = [
            bytes(&["ld", "ldu"]),
            bytes(&["st"]),
            bytes(&["atom", "red"]),
        ];
        if row.iter().any(|bytes| *bytes > 0) {
            table.add_row(
                [space(kind).to_owned()]
                    .into_iter()
                    .chain(row.map(|bytes| bytes.to_string())),
            );
        }
    }
    table
}

/// Returns the table of instructions that access memory.
///
/// Global memory has sectors per request. Shared memory has passes per request, and the passes that
/// bank conflicts add.
fn accesses(sites: &[SiteProfile]) -> Table {
    let mut table = table(&[
        "access",
        "space",
        "requests",
        "bytes",
        "sectors/request",
        "passes/request",
        "conflicts",
    ]);
    for site in sites {
        for m in &site.memory {
            let per = |n: u64| format!("{:.1}", n as f64 / m.requests as f64);
            let (sectors, passes, conflicts) = match m.space {
                MemorySpace::Global => (per(m.sectors), String::new(), String::new()),
                MemorySpace::Shared => (
                    String::new(),
                    per(m.passes),
                    (m.passes - m.least_passes).to_string(),
                ),
                MemorySpace::Local => Default::default(),
            };
            let requests = m.requests.to_string();
            let bytes = m.bytes.to_string();
            let at = printable(&place(&site.place)).into_owned();
            table.add_row([
                at,
                space(m.space).into(),
                requests,
                bytes,
                sectors,
                passes,
                conflicts,
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_two_numbers_or_six() {
        let within = |text: &str| text.parse::<TracedThread>()?.within([2, 3, 1], [32, 2, 1]);
        assert_eq!(within("3,33"), Ok([[1, 1, 0], [1, 1, 0]]));
        assert_eq!(within("1.2.0,31.1.0"), Ok([[1, 2, 0], [31, 1, 0]]));
        for (text, message) in [
            ("3", "BLOCK,THREAD"),
            ("a,1", "BLOCK,THREAD"),
            ("1.2,1", "BLOCK,THREAD"),
            ("6,0", "there is no such block; there are 2x3x1"),
            ("0,64", "there is no such thread; there are 32x2x1"),
            ("0.3.0,0", "there is no such block"),
        ] {
            let error = within(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
