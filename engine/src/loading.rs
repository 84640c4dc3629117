//! How long it takes to get a decoder ready.

use std::time::Duration;

/// What a decoder was made of, and when. Weights come to the device while kernels are compiled and graphs made, so
/// that the decoder is ready after the longer of the two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loading {
    /// Bytes of weights.
    pub bytes: u64,
    /// From the beginning until the last of them was in its place on the device.
    pub weights: Duration,
    /// From the beginning until the kernels were compiled, and all that they need had its memory.
    pub kernels: Duration,
    /// From the beginning until the graphs were made too.
    pub graphs: Duration,
}

impl Loading {
    /// From the beginning until the decoder could take a prompt.
    pub fn ready(&self) -> Duration {
        self.weights.max(self.graphs)
    }

    /// Bytes a second, from the beginning until the weights were there.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.weights.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_is_ready_when_all_parts_are() {
        let [one, two, four] = [1, 2, 4].map(Duration::from_secs);
        let loading = Loading { bytes: 8, weights: four, kernels: one, graphs: two };
        assert_eq!((loading.ready(), loading.rate()), (four, 2.0));
        assert_eq!(Loading { weights: one, ..loading }.ready(), two);
    }
}
