//! The memory and the open files of the server over time.

use std::fmt;
use std::fs;
use std::time::Duration;

/// The memory and the open files of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// The resident memory in bytes.
    pub(super) memory: u64,
    /// The number of open files and connections.
    pub(super) files: usize,
}

impl ProcessUsage {
    /// Reads the usage of a process from /proc, or returns `None` where there is none.
    pub(super) fn of(process: u32) -> Option<ProcessUsage> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count();
        Some(ProcessUsage {
            memory: kib << 10,
            files,
        })
    }
}

/// The usage at many moments.
pub(super) struct UsageLog {
    samples: Vec<(Duration, ProcessUsage)>,
}

/// The growth of memory that is not a problem: caches fill up, and the allocator keeps free memory
/// in several pools.
const GROWTH: u64 = 32 << 20;

/// The share of the time in which the server warms up.
const WARM_UP: f64 = 0.4;

impl UsageLog {
    pub(super) fn new() -> UsageLog {
        UsageLog { samples: vec![] }
    }

    pub(super) fn add(&mut self, time: Duration, usage: ProcessUsage) {
        self.samples.push((time, usage));
    }

    /// Returns the samples after the server has warmed up.
    fn warm(&self) -> &[(Duration, ProcessUsage)] {
        let first = (self.samples.len() as f64 * WARM_UP) as usize;
        &self.samples[first..]
    }

    /// Returns the bytes by which memory has grown since the server was warm, from a line through
    /// all samples (least squares), so that a single peak counts little.
    fn growth(&self) -> f64 {
        let samples = self.warm();
        let count = samples.len() as f64;
        if samples.len() < 2 {
            return 0.0;
        }
        let points = samples
            .iter()
            .map(|(time, usage)| (time.as_secs_f64(), usage.memory as f64));
        let sums = points
            .clone()
            .fold((0.0, 0.0), |(x, y), (time, memory)| (x + time, y + memory));
        let x = sums.0 / count;
        let y = sums.1 / count;
        let mut covariance = 0.0;
        let mut variance = 0.0;
        for (time, memory) in points {
            covariance += (time - x) * (memory - y);
            variance += (time - x) * (time - x);
        }
        let span = samples[samples.len() - 1].0 - samples[0].0;
        if variance > 0.0 {
            covariance / variance * span.as_secs_f64()
        } else {
            0.0
        }
    }

    /// Returns the problems that the samples show.
    pub(super) fn problems(&self) -> Vec<String> {
        let Some((_, first)) = self.warm().first() else {
            return vec![];
        };
        let allowed = GROWTH.max(first.memory / 10);
        let growth = self.growth();
        if growth > allowed as f64 {
            let problem = format!(
                "the memory of the server grew by {:.0} MiB after it was warm, and {} MiB are allowed",
                growth / f64::from(1 << 20),
                allowed >> 20
            );
            vec![problem]
        } else {
            vec![]
        }
    }
}

impl fmt::Display for UsageLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warm = self.warm();
        let (Some((_, first)), Some((_, last))) = (warm.first(), warm.last()) else {
            return write!(f, "memory and files: not measured");
        };
        let memories = self.samples.iter().map(|(_, usage)| usage.memory);
        let files = self.samples.iter().map(|(_, usage)| usage.files);
        write!(
            f,
            "memory: {} MiB warm, {} MiB at the end, {} MiB at most, growth {:.1} MiB; \
             files: {} at most",
            first.memory >> 20,
            last.memory >> 20,
            memories.max().unwrap_or_default() >> 20,
            self.growth() / f64::from(1 << 20),
            files.max().unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(memory: impl Fn(u64) -> u64) -> UsageLog {
        let mut log = UsageLog::new();
        for second in 0..600 {
            let memory = memory(second);
            let usage = ProcessUsage { memory, files: 10 };
            log.add(Duration::from_secs(second), usage);
        }
        log
    }

    #[test]
    fn memory_that_grows_steadily_is_a_problem() {
        // 0.1 MB per second are 36 MB in the 360 s after the warm-up.
        let grows = log(|second| (100 << 20) + second * 100_000);
        assert_eq!(grows.problems().len(), 1, "{grows}");
        assert!((grows.growth() - 359.0 * 100_000.0).abs() < 1.0, "{grows}");
    }

    #[test]
    fn memory_that_becomes_constant_or_has_peaks_is_not() {
        let warms_up = log(|second| (100 << 20) + second.min(200) * 1_000_000);
        assert_eq!(warms_up.problems(), Vec::<String>::new(), "{warms_up}");
        let peaks = log(|second| (100 << 20) + (second % 50) * 1_000_000);
        assert_eq!(peaks.problems(), Vec::<String>::new(), "{peaks}");
        assert_eq!(log(|_| 5).growth(), 0.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_usage_of_this_process_can_be_read() {
        let usage = ProcessUsage::of(std::process::id()).expect("/proc has this process");
        assert!(usage.memory > 1 << 20 && usage.files >= 1, "{usage:?}");
    }
}
