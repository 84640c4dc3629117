//! The choice of the rows of a group, and of the matmul that multiplies them.

use super::matmul::MatmulExperts;
use crate::format::Format;
use crate::format::tile::RowOrder;
use crate::matmul::definition::{Epilogue, Matmul};
use crate::matmul::wgmma::sm_share::SmShare;

/// The numbers of rows of a group.
const WIDTHS: [u32; 5] = [8, 16, 32, 64, 128];
/// The fixed cost of a job, in the cost of a row. [`plan`](crate::matmul::plan) has its source.
const FIXED: u32 = 36;

/// Returns the number of rows of a group for `tokens` tokens that choose `chosen` of `count` experts
/// each.
///
/// The host knows the mean number of rows of an expert only. Some experts are chosen much more often
/// than others, so the rule assumes that the number of rows is distributed exponentially. An expert
/// then has `1 / (1 - exp(-w / mean))` groups of `w` rows on average. A group costs as much as `w +
/// 36` rows, because its weights are also loaded and unpacked. The width with the least product is
/// used. For example, 128 rows per expert have groups of 64 rows, and 4 rows have groups of 8.
///
/// The width changes no bits of a result. Gate, up and down must have the same width, because they
/// share the sorted rows.
pub fn group_width(tokens: u32, chosen: u32, count: u32) -> u32 {
    let mean = f64::from(tokens.max(1)) * f64::from(chosen.max(1)) / f64::from(count.max(1));
    let cost = |width: u32| {
        let groups = 1.0 / (1.0 - (-f64::from(width) / mean).exp());
        groups * f64::from(width + FIXED)
    };
    WIDTHS
        .into_iter()
        .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
        .expect("there are widths")
}

impl MatmulExperts {
    /// Returns the matmul for groups of `width` rows, without overlap.
    ///
    /// There are many jobs, so two blocks per multiprocessor hide the beginnings and ends of jobs
    /// with few rows, and 64 rows have blocks of 256 rows of the matrix, as for other matmuls that
    /// fill the device.
    pub fn planned(
        format: Format,
        epilogue: Epilogue,
        rows: RowOrder,
        width: u32,
    ) -> MatmulExperts {
        let form = match width {
            0..=32 => SmShare::Half,
            33..=64 => SmShare::Tall,
            _ => SmShare::Whole,
        };
        MatmulExperts {
            matmul: Matmul {
                form,
                ..Matmul::new(format, epilogue, rows, width)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_suit_the_mean_number_of_rows() {
        for (tokens, chosen, count, width) in [
            (1, 8, 128, 8),
            (64, 8, 128, 8),
            (2048, 8, 128, 64),
            (256, 8, 128, 32),
            (512, 8, 128, 32),
            (1024, 8, 128, 64),
            (2048, 4, 32, 128),
        ] {
            assert_eq!(
                group_width(tokens, chosen, count),
                width,
                "{tokens} tokens, {chosen} of {count} experts"
            );
        }
    }
}
