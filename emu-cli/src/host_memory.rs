//! The memory of this machine, which holds the buffers of the emulated device.

use std::fs;

/// Returns the reason why this machine has too little memory for `bytes` bytes of buffers, or
/// `None` if it has enough.
pub fn shortage(bytes: u64) -> Option<String> {
    memory(bytes, available())
}

/// Returns a reason if `needed` bytes are more than the available ones.
fn memory(needed: u64, available: Option<u64>) -> Option<String> {
    let available = available.filter(|&available| available < needed)?;
    let [needed, available] = [needed, available].map(|bytes| bytes as f64 / f64::from(1 << 30));
    Some(format!(
        "the emulator would need {needed:.1} GiB of this machine's memory, of which {available:.1} GiB are available"
    ))
}

/// Returns the bytes of memory that are available on this machine, if the system reports them
/// (Linux only).
fn available() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_refused() {
        assert_eq!(memory(3 << 30, None), None);
        assert_eq!(memory(3 << 30, Some(3 << 30)), None);
        assert_eq!(
            memory(3 << 30, Some(1 << 30)).unwrap(),
            "the emulator would need 3.0 GiB of this machine's memory, of which 1.0 GiB are available"
        );
    }
}
