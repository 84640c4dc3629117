//! Measurements of the time to load a decoder.

use std::fmt;
use std::time::Duration;

/// The times that it took to load a decoder, measured from the start.
///
/// Weights are uploaded while kernels are compiled and graphs are built, so the decoder is ready
/// after the longer of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loading {
    /// The bytes of the weights.
    pub bytes: u64,
    /// The time until the last weight was on the device.
    pub weights: Duration,
    /// The time until the kernels were compiled and their memory was allocated.
    pub kernels: Duration,
    /// The time until the graphs were built.
    pub graphs: Duration,
}

impl Loading {
    /// Returns the time until the decoder was ready for a prompt.
    pub fn ready(&self) -> Duration {
        self.weights.max(self.graphs)
    }

    /// Returns the upload rate of the weights in bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.weights.as_secs_f64()
    }
}

impl fmt::Display for Loading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = amount(self.bytes as f64);
        let rate = amount(self.rate());
        let [weights, kernels, graphs] =
            [self.weights, self.kernels, self.graphs].map(|time| time.as_secs_f64());
        write!(f, "loaded {bytes} in {weights:.3} s ({rate}/s)")?;
        write!(
            f,
            ", kernels ready after {kernels:.3} s, graphs after {graphs:.3} s"
        )
    }
}

/// Bytes in a unit that suits them.
fn amount(bytes: f64) -> String {
    if bytes < 1e9 {
        format!("{:.1} MB", bytes / 1e6)
    } else {
        format!("{:.2} GB", bytes / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_is_ready_when_all_parts_are() {
        let [one, two, four] = [1, 2, 4].map(Duration::from_secs);
        let loading = Loading {
            bytes: 8,
            weights: four,
            kernels: one,
            graphs: two,
        };
        assert_eq!((loading.ready(), loading.rate()), (four, 2.0));
        assert_eq!(
            Loading {
                weights: one,
                ..loading
            }
            .ready(),
            two
        );
    }

    #[test]
    fn says_what_took_how_long() {
        let [weights, kernels, graphs] = [150, 90, 120].map(Duration::from_millis);
        let mut loading = Loading {
            bytes: 4_920_000_000,
            weights,
            kernels,
            graphs,
        };
        let ready = ", kernels ready after 0.090 s, graphs after 0.120 s";
        assert_eq!(
            loading.to_string(),
            format!("loaded 4.92 GB in 0.150 s (32.80 GB/s){ready}")
        );
        loading.bytes = 4_920_000;
        assert_eq!(
            loading.to_string(),
            format!("loaded 4.9 MB in 0.150 s (32.8 MB/s){ready}")
        );
    }
}
