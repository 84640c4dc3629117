//! Test cases of [`Matmul`] and [`MatmulSync`].

use super::activations;
use super::definition::{Append, Epilogue, Matmul};
use super::sync::definition::MatmulSync;
use super::wgmma::pair::MatmulPair;
use crate::format::Format;
use crate::format::dequantize::SET;
use crate::format::tile::{self, ROWS, RowOrder};
use crate::harness::{Case, Variant};
use crate::shared::Random;
use crate::shared::cache::PAGE;
use crate::shared::state::{LEN, StepState};
use ptx_gen::*;

/// A shape to run.
pub(super) struct Shape {
    pub(super) row_blocks: u32,
    pub(super) tiles: u32,
    /// The number of tokens.
    pub(super) tokens: u32,
    /// The capacity, in units of the kernel's tokens.
    pub(super) room: u32,
    pub(super) blocks: u32,
}

impl Variant for Matmul {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Fewer row blocks than a job has, and more than one job of rows. One block takes all jobs,
        // or each block one. Slices of unequal length, and blocks with slices of several jobs.
        let per = heads_or(self.epilogue, self.rows);
        let k = self.split;
        let row_blocks = more_than(self.row_blocks(), self.epilogue, per);
        let (tiles, blocks) = if k > 1 { (k + 1, 3) } else { (1, 1) };
        let shapes = [
            Shape {
                row_blocks: per,
                tiles: k.max(2),
                tokens: 3,
                room: 1,
                blocks: 4,
            },
            Shape {
                row_blocks,
                tiles,
                tokens: self.tokens + 1,
                room: 2,
                blocks,
            },
        ];
        let matmul = MatmulShape {
            format: self.format,
            epilogue: self.epilogue,
            rows: self.rows,
            tokens: self.tokens,
        };

        // A tail: two of three blocks have a wide job of the first rows, and the other rows form
        // three narrow jobs.
        let row_blocks = self.row_blocks() + per;
        let tail = Shape {
            row_blocks,
            tiles: 2,
            tokens: self.tokens + 1,
            room: 2,
            blocks: 3,
        };
        let shapes = shapes.into_iter().chain((self.tail > 0).then_some(tail));
        shapes
            .map(|shape| matmul.case(seed, &shape, |rows, tokens| self.scratch(rows, tokens)))
            .collect()
    }
}

impl Variant for MatmulPair {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Fewer blocks than items, so that some process both matrices. Then one block per item,
        // with two widths.
        let MatmulPair { first, second } = *self;
        let tiles = first.split.max(second.split).max(2);
        let shapes = [(3, 1, 3), (first.tokens + 1, 2, 64)];
        shapes
            .map(|(tokens, room, blocks)| self.case(seed, (tokens, room, blocks), tiles))
            .into()
    }
}

impl MatmulPair {
    /// Creates a case with two heads of queries, one of keys and one of values.
    fn case(&self, seed: u64, (tokens, room, blocks): (u32, u32, u32), tiles: u32) -> Case {
        let MatmulPair { first, second } = *self;
        let Epilogue::Append(append) = first.epilogue else {
            panic!("a pair appends")
        };

        let per = append.head_dim / ROWS;
        let shape = Shape {
            row_blocks: 3 * per,
            tiles,
            tokens,
            room,
            blocks,
        };
        let Matmul {
            format,
            epilogue,
            rows,
            tokens: width,
            ..
        } = first;
        let matmul = MatmulShape {
            format,
            epilogue,
            rows,
            tokens: width,
        };
        let mut case = matmul.case(seed, &shape, |rows, tokens| first.scratch(rows, tokens));
        case.args[Y_FIRST] = CpuArg::scalar(0u32);
        let columns = tile::of(second.format).columns;
        let n = tiles * columns;
        let rows = append.head_dim;
        let random = &mut Random(seed + 1);
        let [partials, tickets] = second.scratch(rows, tokens);
        let x = (0..room * width * n)
            .map(|_| f16::from_f32(random.unit() * 100.0))
            .collect();
        case.args.extend([
            CpuArg::U8(tile::random(
                second.format,
                (per * tiles) as usize,
                0.5,
                random,
            )),
            CpuArg::F32(powers_of_two(rows, random)),
            CpuArg::F16(x),
            CpuArg::scalar(rows),
            CpuArg::F32(vec![0.0; partials]),
            CpuArg::U32(vec![0; tickets]),
        ]);
        case
    }
}

/// The index of the argument `y_first` of [`Matmul`].
const Y_FIRST: usize = 12;

impl Variant for MatmulSync {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One warp's last row block is past the end, and the rings wrap around. Then the shapes
        // above.
        let per = heads_or(self.epilogue, self.rows);
        let more = more_than(self.job_blocks(), self.epilogue, per);
        let shapes = [
            Shape {
                row_blocks: per,
                tiles: 3,
                tokens: 3,
                room: 1,
                blocks: 4,
            },
            Shape {
                row_blocks: more,
                tiles: 1,
                tokens: self.tokens + 1,
                room: 2,
                blocks: 1,
            },
        ];
        let matmul = MatmulShape {
            format: self.format,
            epilogue: self.epilogue,
            rows: self.rows,
            tokens: self.tokens,
        };
        shapes
            .map(|shape| matmul.case(seed, &shape, |_, _| [0, 0]))
            .into()
    }
}

/// Returns the number of row blocks that belong together. A matmul has all row blocks of a head.
fn heads_or(epilogue: Epilogue, rows: RowOrder) -> u32 {
    match epilogue {
        Epilogue::Append(append) => append.pairs().per,
        _ => rows.per,
    }
}

/// Returns more row blocks than a job has. With heads, there are at least three: of queries, keys
/// and values.
fn more_than(job: u32, epilogue: Epilogue, per: u32) -> u32 {
    let heads = if matches!(epilogue, Epilogue::Append(_)) {
        3
    } else {
        1
    };
    (job + 1).next_multiple_of(per).max(heads * per)
}

/// The properties of a matmul that its cases depend on.
pub(super) struct MatmulShape {
    pub(super) format: Format,
    pub(super) epilogue: Epilogue,
    pub(super) rows: RowOrder,
    /// The number of tokens of a job.
    pub(super) tokens: u32,
}

/// Returns random powers of two, as the units of `rows` rows.
pub(super) fn powers_of_two(rows: u32, random: &mut Random) -> Vec<f32> {
    (0..rows)
        .map(|_| f32::from(1u16 << random.below(7)))
        .collect()
}

impl MatmulShape {
    /// Creates a case. `scratch` returns the number of partial sums and tickets for rows and
    /// tokens.
    pub(super) fn case(
        &self,
        seed: u64,
        shape: &Shape,
        scratch: impl Fn(u32, u32) -> [usize; 2],
    ) -> Case {
        let mut random = Random(seed);
        let columns = tile::of(self.format).columns.max(SET);
        let gated = matches!(self.epilogue, Epilogue::Gated(..));
        let rows = shape.row_blocks * ROWS;
        let n = shape.tiles * columns;
        let capacity = shape.room * self.tokens;
        let heads = self.heads(rows);
        let [y_rows, y_first] = self.rows_of_result(rows);
        let tiles = shape.row_blocks * n / tile::of(self.format).columns;
        let w = tile::random(self.format, tiles as usize, 0.5, &mut random);
        let x: Vec<f16> = (0..capacity * n)
            .map(|_| f16::from_f32(random.unit() * 100.0))
            .collect();
        let x_scale: Vec<f32> = (0..capacity)
            .map(|_| 1.0 / f32::from(1u16 << random.below(12)))
            .collect();
        let squares = if gated {
            squares(&x, &x_scale, n as usize)
        } else {
            vec![]
        };
        let zeros = |len: u32, needed: bool| {
            if needed {
                vec![0.0; len as usize]
            } else {
                vec![]
            }
        };
        let [partials, tickets] = scratch(rows, shape.tokens);
        let stored = !gated && heads.is_none();
        let y = if stored {
            random.units((capacity * y_rows) as usize)
        } else {
            vec![]
        };
        let mut args = vec![
            CpuArg::U8(w),
            CpuArg::F32(powers_of_two(rows, &mut random)),
            CpuArg::F16(x.clone()),
            CpuArg::F32(x_scale),
            CpuArg::F32(squares),
            CpuArg::F32(y),
            CpuArg::F16(vec![
                f16(0);
                if gated {
                    (capacity * y_rows) as usize
                } else {
                    0
                }
            ]),
            CpuArg::F32(zeros(capacity, gated)),
            // No weight is larger than 1/2.
            CpuArg::scalar(n as f32 / 4.0),
            CpuArg::scalar(rows),
            CpuArg::scalar(n),
            CpuArg::scalar(y_rows),
            CpuArg::scalar(y_first),
            CpuArg::scalar(shape.tokens),
            CpuArg::scalar(capacity),
            CpuArg::scalar(shape.blocks),
            CpuArg::F32(vec![0.0; partials]),
            CpuArg::U32(vec![0; tickets]),
        ];
        args.extend(heads.map_or_else(nothing, |heads| {
            heads.args(shape.tokens, capacity, &mut random)
        }));
        let label = format!(
            "rows={rows} n={n} tokens={} of {capacity} blocks={}",
            shape.tokens, shape.blocks
        );

        // The bound allows for weights that are rounded to `f16`.
        Case {
            label,
            args,
            bound: 2e-3,
        }
    }

    fn heads(&self, rows: u32) -> Option<Heads> {
        match self.epilogue {
            Epilogue::Append(append) => Some(Heads::of(append, self.rows, rows)),
            _ => None,
        }
    }

    /// Returns the number of rows of the result, and the first row of the matmul.
    fn rows_of_result(&self, rows: u32) -> [u32; 2] {
        match (self.heads(rows), self.epilogue) {
            (Some(heads), _) => [heads.all(), heads.all() - rows],
            // A row block has eight rows of each matrix. The panels of gated activations are whole
            // panels of 64.
            (None, Epilogue::Gated(..)) => [(rows / 2).next_multiple_of(128), 0],
            (None, _) => [rows + 3, 2],
        }
    }
}

/// Returns the sum of the squares of each token's activations.
fn squares(x: &[f16], scales: &[f32], n: usize) -> Vec<f32> {
    let of_token = |(token, scale): (usize, &f32)| {
        let x = (0..n).map(|slot| x[activations::index(scales.len(), token, slot)].to_f32());
        x.map(|x| (x * scale).powi(2)).sum::<f32>()
    };
    scales.iter().enumerate().map(of_token).collect()
}

/// The heads of a matmul.
struct Heads {
    append: Append,
    heads: u32,
    kv_heads: u32,
}

/// Pages of three sequences in no particular order, one of which the caches do not contain.
const TABLE: [[u32; 3]; 3] = [[4, 9, 2], [7, 0, 5], [3, 10, 1]];
const CACHE_PAGES: u32 = 9;

impl Heads {
    /// Assigns `rows` rows in this order to heads, as the last rows of all: only values, or all
    /// matrices except for a head of queries.
    fn of(append: Append, order: RowOrder, rows: u32) -> Heads {
        let count = rows / append.head_dim;
        let (heads, kv_heads) = if order == RowOrder::PLAIN {
            (2, count)
        } else {
            (count.max(2) - 1, 1)
        };
        Heads {
            append,
            heads,
            kv_heads,
        }
    }

    fn all(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.append.head_dim
    }

    /// Returns positions around the ends of pages, tokens that are done, and tokens whose sequence
    /// or page does not exist.
    fn args(&self, tokens: u32, capacity: u32, random: &mut Random) -> Vec<CpuArg> {
        let dim = self.append.head_dim;
        let state = (0..tokens).flat_map(|i| {
            StepState {
                position: 61 + 2 * (i / 4),
                done: i % 7 == 3,
                sequence: i % 4,
                ..StepState::default()
            }
            .words()
        });
        let state: Vec<u32> = state.collect();
        debug_assert_eq!(state.len(), tokens as usize * LEN);
        let cache = (CACHE_PAGES * self.kv_heads * PAGE * dim) as usize;
        let mut args = vec![
            CpuArg::F32(random.units(if self.append.bias {
                self.all() as usize
            } else {
                0
            })),
            CpuArg::F32(random.units((tokens * 2 * dim) as usize)),
            CpuArg::U32(state),
            CpuArg::U32(TABLE.concat()),
            CpuArg::F16(vec![f16(0); (capacity * self.heads * dim) as usize]),
            CpuArg::F16(random.halves(cache)),
            CpuArg::F16(random.halves(cache)),
        ];
        args.extend(
            [self.heads, self.kv_heads, CACHE_PAGES, 3, 3, 2 * dim, dim].map(CpuArg::scalar),
        );
        args.push(CpuArg::scalar(1.0 / (dim as f32).sqrt()));
        args
    }
}

/// Returns the arguments of an epilogue that appends nothing.
fn nothing() -> Vec<CpuArg> {
    let mut args = vec![
        CpuArg::F32(vec![]),
        CpuArg::F32(vec![]),
        CpuArg::U32(vec![]),
        CpuArg::U32(vec![]),
    ];
    args.extend([const { CpuArg::F16(vec![]) }; 3]);
    args.extend([0u32; 7].map(CpuArg::scalar));
    args.push(CpuArg::scalar(0.0f32));
    args
}
