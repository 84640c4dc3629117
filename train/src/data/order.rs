//! The order of an epoch: samples are shuffled and then packed into rows.

use warpwright_kernels::shared::philox::philox4x32;

/// The number of samples that are packed together. It is large enough to leave little space in
/// rows, and small enough to keep the order random.
const WINDOW: usize = 1024;

/// A counter word that separates the random numbers of orders from the ones of dropout,
/// which use 0.
const ORDER: u32 = 1;

/// A counter word that separates the random numbers of held-out samples.
const HELD_OUT: u32 = 2;

/// Returns the samples, sorted by a random number for each. The number depends only on the seed,
/// the epoch and the sample.
pub(super) fn shuffled(samples: usize, seed: u64, epoch: u32) -> Vec<usize> {
    by_random(samples, seed, [ORDER, epoch])
}

/// Returns `chosen` samples to hold out from training, in ascending order. The seed decides which.
pub(super) fn held_out(samples: usize, seed: u64, chosen: usize) -> Vec<usize> {
    let mut order = by_random(samples, seed, [HELD_OUT, 0]);
    order.truncate(chosen);
    order.sort_unstable();
    order
}

/// Returns the samples, sorted by the Philox number of each.
fn by_random(samples: usize, seed: u64, [purpose, epoch]: [u32; 2]) -> Vec<usize> {
    let key = [seed as u32, (seed >> 32) as u32];
    let number = |sample: &usize| {
        let [high, low, ..] = philox4x32(
            [*sample as u32, purpose, (*sample >> 32) as u32, epoch],
            key,
        );
        (high, low, *sample)
    };
    let mut order: Vec<usize> = (0..samples).collect();
    order.sort_by_cached_key(number);
    order
}

/// Packs samples into rows by first fit: each sample goes into the first row of its window that has
/// space for it. No sample may be longer than a row.
pub(super) fn packed(order: &[usize], lens: &[usize], row: usize) -> Vec<Vec<usize>> {
    let mut rows = vec![];
    for window in order.chunks(WINDOW) {
        let mut open: Vec<(usize, Vec<usize>)> = vec![];
        for &sample in window {
            let len = lens[sample];
            match open.iter_mut().find(|(left, _)| *left >= len) {
                Some((left, samples)) => {
                    *left -= len;
                    samples.push(sample);
                }
                None => open.push((row - len, vec![sample])),
            }
        }
        rows.extend(open.into_iter().map(|(_, samples)| samples));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_every_sample_once() {
        let lens: Vec<usize> = (0..3000).map(|i| 1 + i * 7919 % 64).collect();
        let order = shuffled(lens.len(), 5, 2);
        assert_ne!(order, shuffled(lens.len(), 5, 3));
        assert_ne!(order, shuffled(lens.len(), 6, 2));
        assert_eq!(order, shuffled(lens.len(), 5, 2));
        let rows = packed(&order, &lens, 64);
        let mut all = rows.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..lens.len()));
        let len = |row: &Vec<usize>| row.iter().map(|&sample| lens[sample]).sum::<usize>();
        assert!(rows.iter().all(|row| len(row) <= 64));
        let fill = lens.iter().sum::<usize>() as f64 / (64 * rows.len()) as f64;
        assert!(fill > 0.9, "{fill}");
    }
}
