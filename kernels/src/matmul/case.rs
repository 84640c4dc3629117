//! Cases of [`Matmul`] and [`MatmulSync`].

use super::activations;
use super::epilogue::Epilogue;
use super::product::Matmul;
use super::sync::MatmulSync;
use crate::case::{Case, Random, Variant};
use crate::format::Format;
use crate::format::dequantize::SET;
use crate::format::tile::{self, ROWS};
use ptx_gen::*;

/// A shape to run.
struct Shape {
    row_blocks: u32,
    tiles: u32,
    /// Tokens given, and tokens that there is room for, in units of the kernel's.
    tokens: u32,
    room: u32,
    blocks: u32,
}

impl Variant for Matmul {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Fewer row blocks than a job has, more than one job of rows; one block takes all jobs, or each its own. Parts
        // that are not equally long, and blocks with parts of several jobs.
        let (per, k) = (self.rows.per, self.split);
        let row_blocks = (self.row_blocks() + 1).next_multiple_of(per);
        let (tiles, blocks) = if k > 1 { (k + 1, 3) } else { (1, 1) };
        let shapes = [
            Shape { row_blocks: per, tiles: k.max(2), tokens: 3, room: 1, blocks: 4 },
            Shape { row_blocks, tiles, tokens: self.tokens + 1, room: 2, blocks },
        ];
        let product = Product { format: self.format, epilogue: self.epilogue, tokens: self.tokens };
        shapes.map(|shape| product.case(seed, &shape, |rows, tokens| self.scratch(rows, tokens))).into()
    }
}

impl Variant for MatmulSync {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One warp's last row block is past the end; the rings turn more than once. Then the same as above.
        let per = self.rows.per;
        let more = (self.job_blocks() + 1).next_multiple_of(per);
        let shapes = [
            Shape { row_blocks: per, tiles: 3, tokens: 3, room: 1, blocks: 4 },
            Shape { row_blocks: more, tiles: 1, tokens: self.tokens + 1, room: 2, blocks: 1 },
        ];
        let product = Product { format: self.format, epilogue: self.epilogue, tokens: self.tokens };
        shapes.map(|shape| product.case(seed, &shape, |_, _| [0, 0])).into()
    }
}

/// What cases depend on.
struct Product {
    format: Format,
    epilogue: Epilogue,
    /// Tokens of a job.
    tokens: u32,
}

impl Product {
    /// `scratch` says how many partial sums and tickets so many rows and tokens need.
    fn case(&self, seed: u64, shape: &Shape, scratch: impl Fn(u32, u32) -> [usize; 2]) -> Case {
        let mut random = Random(seed);
        let columns = tile::of(self.format).columns.max(SET);
        let gated = matches!(self.epilogue, Epilogue::Gated(..));
        let (rows, n) = (shape.row_blocks * ROWS, shape.tiles * columns);
        let capacity = shape.room * self.tokens;
        // Eight rows of each matrix to a row block; the panels of gated activations are whole chunks.
        let y_rows = if gated { (rows / 2).next_multiple_of(128) } else { rows + 3 };
        let tiles = shape.row_blocks * n / tile::of(self.format).columns;
        let w = tile::random(self.format, tiles as usize, 0.5, &mut random);
        let x: Vec<f16> = (0..capacity * n).map(|_| f16::from_f32(random.unit() * 100.0)).collect();
        let x_scale: Vec<f32> = (0..capacity).map(|_| 1.0 / f32::from(1u16 << random.below(12))).collect();
        let squares = |token: usize| {
            let x =
                (0..n as usize).map(|slot| x[activations::index(capacity as usize, token, slot)].to_f32());
            x.map(|x| (x * x_scale[token]).powi(2)).sum::<f32>()
        };
        let squares = if gated { (0..capacity as usize).map(squares).collect() } else { vec![] };
        let zeros = |len: u32, needed: bool| if needed { vec![0.0; len as usize] } else { vec![] };
        let [partials, tickets] = scratch(rows, shape.tokens);
        let y = if gated { vec![] } else { random.units((capacity * y_rows) as usize) };
        let args = vec![
            CpuArg::U8(w),
            CpuArg::F32((0..rows).map(|_| f32::from(1u16 << random.below(7))).collect()),
            CpuArg::F16(x.clone()),
            CpuArg::F32(x_scale),
            CpuArg::F32(squares),
            CpuArg::F32(y),
            CpuArg::F16(vec![f16(0); if gated { (capacity * y_rows) as usize } else { 0 }]),
            CpuArg::F32(zeros(capacity, gated)),
            // No weight exceeds a half.
            CpuArg::scalar(n as f32 / 4.0),
            CpuArg::scalar(rows),
            CpuArg::scalar(n),
            CpuArg::scalar(y_rows),
            CpuArg::scalar(if gated { 0 } else { 2u32 }),
            CpuArg::scalar(shape.tokens),
            CpuArg::scalar(capacity),
            CpuArg::scalar(shape.blocks),
            CpuArg::F32(vec![0.0; partials]),
            CpuArg::U32(vec![0; tickets]),
        ];
        let label =
            format!("rows={rows} n={n} tokens={} of {capacity} blocks={}", shape.tokens, shape.blocks);
        // Weights are rounded to binary16.
        Case { label, args, bound: 2e-3 }
    }
}
