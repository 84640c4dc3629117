//! The spread of a time over the rounds of a measurement.

use std::time::Duration;

use serde::Serialize;

/// The median and the range of a time over the rounds, in microseconds unless the field has another
/// unit.
#[derive(Serialize)]
pub(super) struct TimeSpread {
    pub(super) median: f64,
    min: f64,
    max: f64,
}

impl TimeSpread {
    pub(super) fn of(tokens: u32, times: impl Iterator<Item = Duration>) -> TimeSpread {
        let mut us: Vec<f64> = times
            .map(|time| time.as_secs_f64() * 1e6 / f64::from(tokens))
            .collect();
        us.sort_by(f64::total_cmp);
        let middle = us.len() / 2;
        let last = us.len() - 1;
        TimeSpread {
            median: (us[middle] + us[last - middle]) / 2.0,
            min: us[0],
            max: us[last],
        }
    }

    /// Returns the spread in another unit.
    pub(super) fn scaled(self, factor: f64) -> TimeSpread {
        TimeSpread {
            median: factor * self.median,
            min: factor * self.min,
            max: factor * self.max,
        }
    }
}

impl std::fmt::Display for TimeSpread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.median < 10.0 { 2 } else { 1 };
        write!(
            f,
            "{:.digits$} ({:.digits$} - {:.digits$})",
            self.median, self.min, self.max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_the_time_of_a_token() {
        let spread = |micros: &[u64]| {
            TimeSpread::of(10, micros.iter().map(|&us| Duration::from_micros(us))).to_string()
        };
        assert_eq!(spread(&[40]), "4.00 (4.00 - 4.00)");
        assert_eq!(spread(&[90, 10, 30]), "3.00 (1.00 - 9.00)");
        assert_eq!(spread(&[90, 10, 30, 20]), "2.50 (1.00 - 9.00)");
    }
}
