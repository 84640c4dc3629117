//! Test cases of [`BatchAttention`](super::BatchAttention).

use super::*;
use crate::harness::{Case, Variant};
use crate::shared::Random;

/// Rows to run.
struct BatchCase {
    /// The position of each row, or `None` for a row that is done.
    positions: Vec<Option<u32>>,
    kv_heads: u32,
    splits: u32,
    /// The number of pages that all sequences share with the first one.
    common: u32,
    /// The factor of some elements of the keys. The corresponding elements of the queries are
    /// divided by it.
    outlier: f32,
}

impl Variant for BatchAttention {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let plain = |positions| BatchCase {
            positions,
            kv_heads: 1,
            splits: 1,
            common: 0,
            outlier: 1.0,
        };
        let at = |positions: &[u32]| {
            positions
                .iter()
                .map(|&position| Some(position))
                .collect::<Vec<_>>()
        };

        // One position more than a split has.
        let split = self.share(1, 1, 1);
        let mut cases = vec![
            plain(at(&[0])),
            BatchCase {
                positions: vec![Some(63), None, Some(64), Some(15), Some(split)],
                kv_heads: 2,
                splits: 3,
                common: 1,
                ..plain(vec![])
            },
            BatchCase {
                outlier: 50.0,
                splits: 2,
                ..plain(at(&[190, 16, 127, 128, 65, 62, 1, 31]))
            },
        ];
        if self.has_long_cases() {
            let row = |i: u32| (i % 5 != 3).then_some(if i == 16 { 270 } else { i * 11 });
            cases.extend([
                // More positions than the lanes hold page numbers for. Partial results in several
                // iterations.
                BatchCase {
                    splits: 12,
                    ..plain(at(&[2100, 9 * split]))
                },
                // So many units that splits are longer.
                BatchCase {
                    kv_heads: 2,
                    splits: 2,
                    common: 2,
                    ..plain((0..17).map(row).collect())
                },
            ]);
        }

        if let Some(window) = self.window {
            // A window that positions just fill, that they exceed by one, and that begins inside of
            // a tile or a page.
            let positions = at(&[window - 1, window, window + 21, 2 * window + 40]);
            cases.extend([1, 3].map(|splits| BatchCase {
                splits,
                ..plain(positions.clone())
            }));
        }

        cases.iter().map(|case| case.filled(self, seed)).collect()
    }
}

impl BatchAttention {
    /// Returns true if the cases have many positions: once for each layout of tiles.
    fn has_long_cases(&self) -> bool {
        self.queries == 1
    }
}

impl BatchCase {
    fn label(&self) -> String {
        let BatchCase {
            positions,
            kv_heads,
            splits,
            common,
            outlier,
        } = self;
        let positions: Vec<String> = positions
            .iter()
            .map(|p| p.map_or("done".into(), |p| p.to_string()))
            .collect();
        let positions = positions.join(",");
        format!(
            "positions={positions} kv_heads={kv_heads} splits={splits} common={common} \
             outlier={outlier}"
        )
    }

    fn filled(&self, kernel: &BatchAttention, seed: u64) -> Case {
        let mut random = Random(seed);
        let unit = PANEL.max(4 * kernel.order.group);
        let fits = |heads: &u32| (heads * kernel.queries * kernel.head_dim).is_multiple_of(unit);
        let kv_heads = (self.kv_heads..)
            .find(fits)
            .expect("as many as a panel has columns");
        let heads = kv_heads * kernel.queries;
        let rows = self.positions.len() as u32;
        let capacity = (rows + 1).next_multiple_of(TOKENS);
        let table = Table::of(self, &mut random);
        let dim = kernel.head_dim as usize;
        let factor = 16.0 / (dim as f32).sqrt();
        let mut q = numbers(
            &mut random,
            (capacity * heads) as usize * dim,
            factor,
            1.0 / self.outlier,
        );
        q[(rows * heads) as usize * dim..].fill(f16::from_f32(f32::NAN));
        let mut cache = |outlier| {
            let len = (table.cache_pages * kv_heads * PAGE) as usize * dim;
            let mut cache = numbers(&mut random, len, 1.0, outlier);
            table.spoil(&mut cache, kv_heads as usize, dim);
            CpuArg::F16(cache)
        };
        let mut args = vec![
            CpuArg::U32(table.states(self)),
            CpuArg::U32(table.pages.clone()),
            CpuArg::F16(q),
            cache(self.outlier),
            cache(1.0),
            CpuArg::F16(vec![f16(0); (capacity * heads) as usize * dim]),
            CpuArg::F32(vec![0.0; capacity as usize]),
            CpuArg::F32(vec![0.0; kernel.partials_len(rows, heads, self.splits) + 1]),
            CpuArg::U32(vec![0; (rows * kv_heads * kernel.groups()) as usize + 1]),
        ];
        let sizes = [
            heads,
            kv_heads,
            table.cache_pages,
            rows,
            table.max_pages,
            rows,
            capacity,
            self.splits,
        ];
        args.extend(
            sizes
                .into_iter()
                .chain([kernel.units(rows, kv_heads)])
                .map(CpuArg::scalar),
        );

        // The bound allows for weights that are rounded to `f16`. The largest weight is exact.
        Case {
            label: self.label(),
            args,
            bound: 1e-3,
        }
    }
}

/// Returns random elements, with every 37th element of a row multiplied by `outlier`.
fn numbers(random: &mut Random, n: usize, factor: f32, outlier: f32) -> Vec<f16> {
    let scaled = |i: usize, x: f32| x * factor * if i.is_multiple_of(37) { outlier } else { 1.0 };
    (0..n)
        .map(|i| f16::from_f32(scaled(i % 128, random.unit())))
        .collect()
}

/// The page table of a case.
struct Table {
    pages: Vec<u32>,
    max_pages: u32,
    cache_pages: u32,
    /// The number of positions of each page that some row attends to, or may attend to.
    filled: Vec<u32>,
}

impl Table {
    /// Creates a table with pages in a random order, two of which belong to no sequence. The
    /// sequences are assigned to rows in reverse.
    fn of(case: &BatchCase, random: &mut Random) -> Table {
        let rows = case.positions.len() as u32;
        let most = case
            .positions
            .iter()
            .flatten()
            .max()
            .expect("some row counts");
        let max_pages = most / PAGE + 1;
        let cache_pages = rows * max_pages + 2;
        let mut order: Vec<u32> = (0..cache_pages).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u32 + 1) as usize);
        }

        let mut pages = vec![];
        for sequence in 0..rows {
            let own = |page: u32| {
                if page < case.common {
                    page
                } else {
                    sequence * max_pages + page
                }
            };
            pages.extend((0..max_pages).map(|page| order[own(page) as usize]));
        }

        let mut filled = vec![0; cache_pages as usize];
        for (row, position) in (0..).zip(&case.positions) {
            let Some(position) = position else { continue };
            for page in 0..=position / PAGE {
                let at =
                    &mut filled[pages[((rows - 1 - row) * max_pages + page) as usize] as usize];
                *at = (*at).max((position + 1 - page * PAGE).min(PAGE));
            }
        }

        Table {
            pages,
            max_pages,
            cache_pages,
            filled,
        }
    }

    /// Fills all positions that no row attends to with NaN.
    fn spoil(&self, cache: &mut [f16], kv_heads: usize, dim: usize) {
        let page_len = PAGE as usize * dim;
        for (i, head) in cache.chunks_mut(page_len).enumerate() {
            head[self.filled[i / kv_heads] as usize * dim..].fill(f16::from_f32(f32::NAN));
        }
    }

    fn states(&self, case: &BatchCase) -> Vec<u32> {
        let rows = case.positions.len() as u32;
        let state = |(row, position): (u32, &Option<u32>)| {
            let mut state = [0; LEN];
            state[SEQUENCE as usize] = rows - 1 - row;
            match position {
                Some(position) => state[POSITION as usize] = *position,
                // A row that is done attends to nothing, even if its position is out of range.
                None => (state[DONE as usize], state[POSITION as usize]) = (1, u32::MAX),
            }
            state
        };
        (0..).zip(&case.positions).flat_map(state).collect()
    }
}
