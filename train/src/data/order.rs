//! The order of an epoch: samples shuffled, then packed into rows.

use warpwright_kernels::train::philox::philox4x32;

/// Samples that are packed together: enough for rows with little room left, few enough for the order to stay random.
const WINDOW: usize = 1024;

/// Tells the random numbers of orders from those of dropout, whose second word is 0.
const ORDER: u32 = 1;

/// Tells the random numbers by which samples are held out.
const HELD_OUT: u32 = 2;

/// Samples by the random number of each, which depends on seed, epoch and sample alone.
pub(super) fn shuffled(samples: usize, seed: u64, epoch: u32) -> Vec<usize> {
    by_random(samples, seed, [ORDER, epoch])
}

/// Which samples are held out of training: so many that the seed chooses, in order.
pub(super) fn held_out(samples: usize, seed: u64, chosen: usize) -> Vec<usize> {
    let mut order = by_random(samples, seed, [HELD_OUT, 0]);
    order.truncate(chosen);
    order.sort_unstable();
    order
}

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

/// Rows of samples, by first fit: each goes into the first row of its window that has room for it. No sample is longer
/// than a row.
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
