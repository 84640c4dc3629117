//! Test cases of [`PromptAttention`].

use super::definition::PromptAttention;
use crate::harness::{Case, Variant};
use crate::matmul::activations::PANEL;
use crate::prompt::Item;
use crate::shared::Random;
use crate::shared::cache::{self, PAGE};
use ptx_gen::*;

/// A shape to run.
#[derive(Clone, Debug)]
struct PromptCase {
    items: Vec<Item>,
    capacity: u32,
    /// The number of pages of a sequence.
    max_pages: u32,
    sequences: u32,
    /// The factor of some elements of the keys. The corresponding elements of the queries are
    /// divided by it.
    outlier: f32,
}

impl PromptCase {
    /// Returns a shape with tokens of one sequence, starting at row 0. The first token is at
    /// `position`.
    fn chunk(kernel: &PromptAttention, position: u32, tokens: u32) -> Self {
        let chunk = Item {
            row: 0,
            rows: tokens,
            position,
            sequence: 0,
        };
        PromptCase {
            items: chunk.split(kernel.queries).collect(),
            capacity: (tokens + 1).next_multiple_of(8),
            max_pages: cache::pages(position + tokens),
            sequences: 1,
            outlier: 1.0,
        }
    }

    /// Returns a shape with several sequences of one or more tokens at the ends of pages, and an
    /// idle block between them.
    fn batch(kernel: &PromptAttention) -> Self {
        let item = |row, rows, position, sequence| Item {
            row,
            rows,
            position,
            sequence,
        };
        let items = vec![
            item(8, kernel.queries, 130, 2),
            item(3, 1, 64, 1),
            Item {
                rows: 0,
                position: u32::MAX,
                ..item(1, 0, 0, 0)
            },
            item(0, 1, 63, 0),
            item(1, 2, 63, 3),
            item(4, 1, 0, 1),
            item(5, 1, 65, 0),
        ];
        let capacity = kernel.queries + 16;
        PromptCase {
            items,
            capacity,
            max_pages: 5,
            sequences: 4,
            outlier: 1.0,
        }
    }
}

impl Variant for PromptAttention {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let chunk = |position, tokens| PromptCase::chunk(self, position, tokens);

        // One position. Two items, the second with few tokens. Few tokens after many, and after
        // more than a ring of tiles.
        let cases = [
            chunk(0, 1),
            chunk(37, self.queries + 5),
            PromptCase {
                outlier: 50.0,
                ..chunk(200, 9)
            },
            chunk(950, 30),
            PromptCase::batch(self),
        ];

        // A window that begins in the chunk, and one that begins before it.
        let windows = self.window.map(|window| chunk(window - window.min(20), 50));
        cases
            .into_iter()
            .chain(windows)
            .map(|case| case.filled(self, seed))
            .collect()
    }
}

/// Returns a page table in no particular order, and the number of pages of the cache. Two sequences
/// share their first page, and some pages belong to no sequence.
fn table(sequences: u32, max_pages: u32, random: &mut Random) -> (Vec<u32>, u32) {
    let used = sequences * max_pages;
    let mut pages: Vec<u32> = (0..used + 2).collect();
    for i in (1..used).rev() {
        pages.swap(i as usize, random.below(i + 1) as usize);
    }

    let first = pages[0];
    if let Some(shared) = pages.get_mut(max_pages as usize) {
        *shared = if sequences > 1 { first } else { *shared };
    }

    pages.truncate(used as usize);
    (pages, used + 2)
}

/// Returns rows of random elements, with outliers in every row.
fn rows(random: &mut Random, rows: u32, dim: usize, factor: f32) -> Vec<f16> {
    let mut numbers = random.units(rows as usize * dim);
    for row in numbers.chunks_mut(dim) {
        for x in row.iter_mut().step_by(37) {
            *x *= factor;
        }
    }
    numbers.into_iter().map(f16::from_f32).collect()
}

impl PromptCase {
    fn filled(&self, kernel: &PromptAttention, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let unit = PANEL.max(4 * kernel.order.group);
        let fits = |heads: &u32| (heads * kernel.head_dim).is_multiple_of(unit);
        let heads = (2..)
            .step_by(2)
            .find(fits)
            .expect("as many as a chunk has columns");
        let kv_heads = heads / 2;
        let (pages, cache_pages) = table(self.sequences, self.max_pages, &mut random);

        // The weights differ by powers of ten.
        let mut q = rows(&mut random, self.capacity * heads, dim, 1.0 / self.outlier);
        for x in &mut q {
            *x = f16::from_f32(x.to_f32() * 16.0 / (dim as f32).sqrt());
        }

        for (row, q) in (0..).zip(q.chunks_mut(heads as usize * dim)) {
            if !self.items.iter().any(|item| item.has(row)) {
                q.fill(f16::from_f32(f32::NAN));
            }
        }

        let cached = self.cached_rows(&pages, [kv_heads, cache_pages]);
        let mut cache = |factor: f32| {
            let mut cache = rows(&mut random, cache_pages * kv_heads * PAGE, dim, factor);
            for (row, cached) in cache.chunks_mut(dim).zip(&cached) {
                if !cached {
                    row.fill(f16::from_f32(f32::NAN));
                }
            }
            CpuArg::F16(cache)
        };
        let mut args = vec![
            CpuArg::F16(q),
            cache(self.outlier),
            cache(1.0),
            CpuArg::U32(pages),
            CpuArg::U32(self.items.iter().flat_map(|item| item.words()).collect()),
            CpuArg::F16(vec![f16(0); (self.capacity * heads) as usize * dim]),
            CpuArg::F32(vec![0.0; self.capacity as usize]),
        ];
        let count = self.items.len() as u32;
        let sizes = [
            heads,
            kv_heads,
            cache_pages,
            self.sequences,
            self.max_pages,
            count,
            self.capacity,
        ];
        args.extend(sizes.map(CpuArg::scalar));

        // The bound allows for weights that are rounded to `f16`. The largest weight is exact.
        Case {
            label: format!("{self:?} heads={heads}"),
            args,
            bound: 1e-3,
        }
    }

    /// Returns the rows of the caches that have keys and values: all positions up to an item's
    /// last.
    fn cached_rows(&self, pages: &[u32], [kv_heads, cache_pages]: [u32; 2]) -> Vec<bool> {
        let mut cached = vec![false; (cache_pages * kv_heads * PAGE) as usize];
        for item in self.items.iter().filter(|item| item.rows > 0) {
            for i in 0..(item.position + item.rows) * kv_heads {
                let table = [self.sequences, self.max_pages, cache_pages];
                let of = [kv_heads, i % kv_heads].map(|n| n as usize);
                let row =
                    cache::paged_row(pages, table, item.sequence, of, (i / kv_heads) as usize);
                cached[row.expect("the case has pages for all positions")] = true;
            }
        }
        cached
    }
}
