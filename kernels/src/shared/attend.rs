//! Attention of one query in double precision, which the references of all attention kernels share.

use ptx_gen::f16;

/// The result of attention over some positions, before the division by the sum of the weights.
/// Scores are in log2 units.
pub(crate) struct AttendedPart {
    /// The largest score.
    pub(crate) max: f64,
    /// The sum of the weights `2^(score - max)`.
    pub(crate) sum: f64,
    /// The sum of the values, each times its weight.
    pub(crate) values: Vec<f64>,
}

impl AttendedPart {
    /// Adds a score in log2 units that has a weight but no value.
    pub(crate) fn with_sink(mut self, sink: f64) -> AttendedPart {
        let max = self.max.max(sink);
        let shrink = (self.max - max).exp2();
        for value in &mut self.values {
            *value *= shrink;
        }
        self.sum = self.sum * shrink + (sink - max).exp2();
        self.max = max;
        self
    }

    /// Returns the weighted mean of the values.
    pub(crate) fn mean(self) -> Vec<f64> {
        let sum = self.sum;
        self.values.into_iter().map(|value| value / sum).collect()
    }
}

/// Computes attention of a query to these rows of keys and values. `to_log2` makes a score in log2
/// units of the product of the query and a key.
pub(crate) fn attend<'a>(
    q: &[f64],
    rows: impl Iterator<Item = [&'a [f16]; 2]>,
    to_log2: impl Fn(f64) -> f64,
) -> AttendedPart {
    let score = |key: &[f16]| {
        let dot: f64 = wide(key).zip(q).map(|(k, q)| q * k).sum();
        to_log2(dot)
    };
    let scored: Vec<(f64, &[f16])> = rows.map(|[key, value]| (score(key), value)).collect();
    let max = scored
        .iter()
        .fold(f64::NEG_INFINITY, |max, (score, _)| max.max(*score));
    let mut part = AttendedPart {
        max,
        sum: 0.0,
        values: vec![0.0; q.len()],
    };
    for (score, value) in scored {
        let weight = (score - max).exp2();
        part.sum += weight;
        for (sum, v) in part.values.iter_mut().zip(wide(value)) {
            *sum += weight * v;
        }
    }

    part
}

/// Returns the elements of a row in double precision.
pub(crate) fn wide(row: &[f16]) -> impl Iterator<Item = f64> + '_ {
    row.iter().map(|x| f64::from(x.to_f32()))
}
