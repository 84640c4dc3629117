//! Copies some rows of a matrix, one after another: `y[i] = x[rows[i]]`. The LM head needs only the
//! last token of each sequence.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`GatherRows`].
    pub struct GatherRowsArgs {
        /// `[capacity, n]`: the matrix
        x: In<f32>,
        /// `[count]`: the rows to copy. A row outside of `x` is copied as zeros. The buffer may be
        /// longer.
        rows: In<u32>,
        /// `[count, n]`: the copies. The buffer may be longer.
        y: Out<f32>,
        /// The number of rows of `x`.
        capacity: u32,
        /// The number of rows of `y`.
        count: u32,
        /// The row length, a multiple of 4.
        n: u32,
    }
}

/// Kernel that copies selected rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatherRows;

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The number of elements that a thread copies at once.
const WIDTH: u32 = 4;

impl KernelDef for GatherRows {
    type Args<S: Side> = GatherRowsArgs<S>;

    fn name(&self) -> String {
        "gather_rows".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &GatherRowsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &GatherRowsArgs {
            capacity, count, n, ..
        } = a;
        self.multiple("n", n, WIDTH)?;
        self.range("capacity", capacity, 1, 1 << 24)?;
        self.range("count", count, 1, u16::MAX.into())?;
        check_lengths! { self, a:
            x == capacity * n,
            rows >= count,
            y >= count * n,
        }
        Ok(Grid::plane(n.div_ceil(WIDTH * THREADS), count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: GatherRowsArgs<Dev<'k>>) {
        let row = k.ctaid_y();
        let first = (k.ctaid() * THREADS + k.tid()) * WIDTH;
        k.when(first.lt(a.n), || {
            let from = a.rows.at(row).ld();
            let to = a.y.row(row, a.n * 4).at(first);
            k.when(from.lt(a.capacity), || {
                to.st4(a.x.row(from, a.n * 4).at(first).ld4())
            })
            .otherwise(|| to.st4([k.val(0.0); 4]));
        });
    }

    fn reference(&self, a: GatherRowsArgs<Cpu<'_>>) {
        let n = a.n as usize;
        for (y, &row) in a.y.chunks_mut(n).zip(a.rows).take(a.count as usize) {
            match a.x.chunks(n).nth(row as usize) {
                Some(x) => y.copy_from_slice(x),
                None => y.fill(0.0),
            }
        }
    }
}

impl Variant for GatherRows {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |capacity: u32, n: u32, rows: &[u32]| {
            let mut random = Random(seed);
            let count = rows.len() as u32;

            // One row more than requested.
            let mut longer = rows.to_vec();
            longer.push(0);
            let mut args = vec![
                CpuArg::F32(random.units((capacity * n) as usize)),
                CpuArg::U32(longer),
                CpuArg::F32(vec![0.0; ((count + 1) * n) as usize]),
            ];
            args.extend([capacity, count, n].map(CpuArg::scalar));
            Case {
                label: format!("capacity={capacity} n={n} rows={rows:?}"),
                args,
                bound: 0.0,
            }
        };
        vec![
            case(1, 4, &[0]),
            case(5, 1028, &[4, 0, 0, 2]),
            case(17, 2048, &[16, 3, 17, u32::MAX]),
            case(3, 64, &[2, 1, 0, 2, 1, 0, 2, 1]),
        ]
    }
}
