//! The server that is tested: its process, its log and its counters.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::http;
use super::usage::ProcessUsage;

/// The time in which the server must be ready, and in which it must stop.
const PATIENCE: Duration = Duration::from_secs(600);

/// The number of the last lines of the log that are kept.
const KEPT_LINES: usize = 40;

/// The options of a server.
pub(super) struct ServerOptions<'a> {
    pub(super) program: &'a Path,
    pub(super) model: &'a Path,
    pub(super) device: &'a str,
    pub(super) sequences: u32,
}

/// A running server. Dropping it ends the process.
pub(super) struct ServerProcess {
    child: Mutex<Child>,
    process: u32,
    port: u16,
    serving: String,
    log: Arc<Mutex<ServerLog>>,
}

/// The log of a server.
#[derive(Default)]
struct ServerLog {
    /// The lines about panics and errors.
    bad: Vec<String>,
    last: VecDeque<String>,
}

/// The numbers of pages of the cache by their state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pages {
    used: u64,
    kept: u64,
    free: u64,
}

impl Pages {
    pub(super) fn total(self) -> u64 {
        self.used + self.kept + self.free
    }
}

impl ServerProcess {
    /// Starts a server on a free port and waits until it is ready.
    pub(super) fn start(options: &ServerOptions<'_>) -> Result<ServerProcess> {
        let mut command = Command::new(options.program);
        command.arg("serve").arg(options.model);
        command.args(["--port", "0", "--device", options.device, "--deterministic"]);
        command.args([
            "--sequences",
            &options.sequences.to_string(),
            "--ctx",
            "512",
        ]);
        // A short queue is full from time to time, and a fixed seed makes sampled texts repeat.
        command.args(["--queue", "24", "--seed", "7", "--timeout", "10"]);
        command.args(["--chat-template", "chatml", "--alias", "soak"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", options.program.display()))?;
        let stderr = child.stderr.take().context("stderr is piped")?;
        let log = Arc::new(Mutex::new(ServerLog::default()));
        let (sender, lines) = mpsc::channel();
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                lock(&shared).add(line.clone());
                // Nobody reads the lines after the server is ready.
                let _ = sender.send(line);
            }
        });
        let mut server = ServerProcess {
            process: child.id(),
            child: Mutex::new(child),
            port: 0,
            serving: String::new(),
            log,
        };
        server.wait_until_ready(&lines)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, lines: &mpsc::Receiver<String>) -> Result<()> {
        let start = Instant::now();
        while self.serving.is_empty() {
            let rest = PATIENCE.saturating_sub(start.elapsed());
            let Ok(line) = lines.recv_timeout(rest) else {
                bail!("the server is not ready:\n{}", self.last_lines());
            };
            if let Some((_, address)) = line.split_once("listening on ") {
                let port = address.rsplit(':').next().unwrap_or_default();
                self.port = port
                    .trim()
                    .parse()
                    .with_context(|| format!("no port in {line:?}"))?;
            } else if line.contains("serving ") && self.port != 0 {
                self.serving = line;
            }
        }
        Ok(())
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the line in which the server names its model and device.
    pub(super) fn serving(&self) -> &str {
        &self.serving
    }

    fn last_lines(&self) -> String {
        let log = lock(&self.log);
        log.last.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Returns the memory and the open files of the server, if the system shows them.
    pub(super) fn usage(&self) -> Option<ProcessUsage> {
        ProcessUsage::of(self.process)
    }

    /// Returns the end of the server with its last lines, if it has ended.
    pub(super) fn has_ended(&self) -> Option<String> {
        let status = lock(&self.child).try_wait().ok()??;
        Some(format!("{status}\n{}", self.last_lines()))
    }

    /// Returns the metrics.
    fn metrics(&self) -> Result<String> {
        let mut response = http::request(self.port, "GET", "/metrics", "")?;
        ensure!(response.status == 200, "/metrics: {}", response.status);
        response.text()
    }

    /// Returns the numbers of pages.
    pub(super) fn pages(&self) -> Result<Pages> {
        pages(&self.metrics()?)
    }

    /// Waits until no request runs and no page is used. Returns the problems.
    pub(super) fn drain(&self, patience: Duration, total: u64) -> Vec<String> {
        let start = Instant::now();
        let mut state = String::new();
        while start.elapsed() < patience {
            let counts = self.metrics().and_then(|text| {
                let sequences = metric(&text, "warpwright_sequences", "")?;
                let waiting = metric(&text, "warpwright_waiting_requests", "")?;
                Ok((sequences, waiting, pages(&text)?))
            });
            match counts {
                Ok((0, 0, pages)) if pages.used == 0 => {
                    let problem = format!("there are {pages:?}, and there were {total} pages");
                    let is_lost = pages.total() != total;
                    return is_lost.then_some(problem).into_iter().collect();
                }
                Ok((sequences, waiting, pages)) => {
                    state =
                        format!("{sequences} sequences run, {waiting} requests wait, {pages:?}");
                }
                Err(error) => state = format!("{error:#}"),
            }
            thread::sleep(Duration::from_millis(200));
        }
        vec![format!(
            "{} s after all clients left: {state}",
            patience.as_secs()
        )]
    }

    /// Checks the counters, stops the server with SIGTERM, and returns the problems.
    pub(super) fn stop(&self) -> Result<Vec<String>> {
        let mut problems = vec![];
        let panics = metric(&self.metrics()?, "warpwright_http_panics_total", "");
        // The counter exists from the first panic on.
        if let Ok(panics) = panics {
            problems.push(format!("{panics} handlers panicked"));
        }
        let signal = Command::new("kill")
            .args(["-TERM", &self.process.to_string()])
            .status()
            .context("cannot run kill")?;
        ensure!(signal.success(), "kill failed: {signal}");
        let start = Instant::now();
        let status: ExitStatus = loop {
            if let Some(status) = lock(&self.child).try_wait()? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                problems.push("the server does not stop after SIGTERM".to_owned());
                return Ok(problems);
            }
            thread::sleep(Duration::from_millis(50));
        };
        if !status.success() {
            problems.push(format!("the server stopped with {status}"));
        }
        let log = lock(&self.log);
        problems.extend(log.bad.iter().map(|line| format!("in the log: {line}")));
        Ok(problems)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let child = self
            .child
            .get_mut()
            .unwrap_or_else(|poison| poison.into_inner());
        // The process may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl ServerLog {
    fn add(&mut self, line: String) {
        let is_bad = ["panicked", " ERROR "]
            .iter()
            .any(|word| line.contains(word));
        if is_bad {
            self.bad.push(line.clone());
        }
        if self.last.len() == KEPT_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Returns the numbers of pages in metrics.
fn pages(metrics: &str) -> Result<Pages> {
    let count = |state: &str| {
        let label = format!("state=\"{state}\"");
        metric(metrics, "warpwright_pages", &label)
    };
    Ok(Pages {
        used: count("used")?,
        kept: count("kept")?,
        free: count("free")?,
    })
}

/// Returns the value of a metric of which the labels contain this text.
fn metric(metrics: &str, name: &str, label: &str) -> Result<u64> {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let is_name = labels.is_empty() || labels.starts_with('{');
        (is_name && labels.contains(label)).then_some(value)
    });
    let values: Vec<&str> = values.collect();
    let [value] = values[..] else {
        bail!("{} metrics are named {name} {label}", values.len());
    };
    let value: f64 = value
        .parse()
        .with_context(|| format!("{name} is {value}"))?;
    Ok(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# TYPE warpwright_pages gauge\n\
        warpwright_pages{model=\"soak\",state=\"used\"} 3\n\
        warpwright_pages{model=\"soak\",state=\"kept\"} 4\n\
        warpwright_pages{model=\"soak\",state=\"free\"} 57\n\
        warpwright_sequences{model=\"soak\"} 2\n\
        warpwright_sequences_total 9\n";

    #[test]
    fn metrics_are_found_by_name_and_label() {
        let found = pages(METRICS).expect("there are pages");
        assert_eq!((found.used, found.total()), (3, 64));
        assert_eq!(metric(METRICS, "warpwright_sequences", "").ok(), Some(2));
        assert!(metric(METRICS, "warpwright_pages", "").is_err());
        assert!(metric(METRICS, "warpwright_http_panics_total", "").is_err());
    }

    #[test]
    fn panics_and_errors_of_the_log_are_kept() {
        let mut log = ServerLog::default();
        for line in [
            "2026-01-01T00:00:00Z  INFO response status=200",
            "thread 'scheduler' panicked at server/src/x.rs:1:1:",
            "2026-01-01T00:00:00Z ERROR the engine has failed",
        ] {
            log.add(line.to_owned());
        }
        assert_eq!((log.bad.len(), log.last.len()), (2, 3));
    }
}
