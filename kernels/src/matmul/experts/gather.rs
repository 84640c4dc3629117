//! Copies the activations of tokens into the order of the experts.

use super::sort::NONE;
use crate::harness::{Case, Variant};
use crate::matmul::activations::{self, PANEL, TOKENS};
use crate::shared::{Contract, Overlap, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`GatherTokens`].
    pub struct GatherTokensArgs {
        /// `[capacity]`: the token of each sorted row. A value from `tokens` on is padding
        source: In<u32>,
        /// `[1]`: the number of sorted rows. Rows from there on are not written
        used: In<u32>,
        /// `[n / 64, x_capacity, 64]`: the activations, see
        /// [`activations`](crate::matmul::activations)
        x: In<f16>,
        /// `[tokens]`: the factor of each token's sums. The buffer may be longer
        x_scale: In<f32>,
        /// `[tokens]`: the sum of the squares of each token's activations. The buffer may be longer
        squares: In<f32>,
        /// `[n / 64, capacity, 64]`: the sorted activations, zeros for padding
        y: Out<f16>,
        /// `[capacity]`: the factors of the sorted rows, 1 for padding
        y_scale: Out<f32>,
        /// `[capacity]`: the squares of the sorted rows, 0 for padding
        y_squares: Out<f32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of columns, a multiple of 64.
        n: u32,
        /// The capacity of `x` in tokens, a multiple of 8.
        x_capacity: u32,
        /// The capacity of `y` in rows, a multiple of 8.
        capacity: u32,
    }
}

/// Kernel that copies the activations of eight sorted rows per block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GatherTokens {
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The number of panels that a block copies at once. Eight threads copy the 128 bytes of a row.
const PANELS: u32 = THREADS / (8 * TOKENS);
/// The number of copies that a thread has in flight.
const AT_ONCE: u32 = 4;

impl KernelDef for GatherTokens {
    type Args<S: Side> = GatherTokensArgs<S>;

    fn name(&self) -> String {
        format!("gather_tokens{}", self.overlap.suffix())
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &GatherTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &GatherTokensArgs {
            tokens,
            n,
            x_capacity,
            capacity,
            ..
        } = a;
        self.multiple("n", n, PANEL)?;
        self.multiple("x_capacity", x_capacity, TOKENS)?;
        self.multiple("capacity", capacity, TOKENS)?;
        self.range("tokens", tokens, 1, x_capacity)?;
        check_lengths! { self, a:
            source == capacity,
            used == 1,
            x == x_capacity * n,
            x_scale >= tokens,
            squares >= tokens,
            y == capacity * n,
            y_scale == capacity,
            y_squares == capacity,
        }
        Ok(Grid::line(capacity / TOKENS))
    }

    fn program<'k>(&self, k: Builder<'k>, a: GatherTokensArgs<Dev<'k>>) {
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }

        let tid = k.tid();
        let row = k.ctaid() * TOKENS + (tid >> 3) % TOKENS;
        k.when(row.lt(a.used.fresh().ld()), || {
            let token = a.source.fresh().at(row).ld();
            let exists = token.lt(a.tokens);

            k.section("matmul/experts/gather_scales", "the scales of the row");
            k.when(tid.lt(8 * TOKENS) & (tid & 7).eq(0), || {
                let mut scale = k.var(1.0);
                let mut squares = k.var(0.0);
                a.x_scale.fresh().at(token).ld_if(exists, &mut scale);
                a.squares.fresh().at(token).ld_if(exists, &mut squares);
                a.y_scale.at(row).st(&scale);
                a.y_squares.at(row).st(&squares);
            });

            // Both rows are swizzled by their own index, so a unit of 16 bytes moves within the 128
            // bytes of a row.
            let to_unit = tid & 7;
            let from_unit = to_unit ^ (row & 7) ^ (token & 7);
            let from = a.x.fresh().cast::<u32>().row(from_unit, 16);
            let to = a.y.cast::<u32>().row(to_unit, 16);
            let panels = a.n / PANEL;
            k.for_each(tid / (8 * TOKENS), panels, PANELS * AT_ONCE, |first| {
                k.section(
                    "matmul/experts/gather_panels",
                    "several panels of the row, zeros for padding",
                );
                let copies = (0..AT_ONCE).map(|i| {
                    let panel = first + PANELS * i;
                    let inside = panel.lt(panels);
                    let mut unit = [0u32; 4].map(|zero| k.var(zero));
                    from.row(panel.mad(a.x_capacity, token), 2 * PANEL)
                        .ld4_if(exists & inside, &mut unit);
                    (panel, inside, unit.map(|v| v.get()))
                });

                // All loads precede the stores, so that their latencies overlap.
                for (panel, inside, unit) in copies.collect::<Vec<_>>() {
                    let to = to.row(panel.mad(a.capacity, row), 2 * PANEL);
                    k.when(inside, || to.st4(unit));
                }
            });
        });
        self.overlap.end(k);
    }

    fn reference(&self, a: GatherTokensArgs<Cpu<'_>>) {
        let x_capacity = a.x_capacity as usize;
        let capacity = a.capacity as usize;
        for row in 0..a.used[0] as usize {
            let token = a.source[row] as usize;
            let exists = token < a.tokens as usize;
            a.y_scale[row] = if exists { a.x_scale[token] } else { 1.0 };
            a.y_squares[row] = if exists { a.squares[token] } else { 0.0 };
            for slot in 0..a.n as usize {
                a.y[activations::index(capacity, row, slot)] = if exists {
                    a.x[activations::index(x_capacity, token, slot)]
                } else {
                    f16(0)
                };
            }
        }
    }
}

impl Variant for GatherTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Rows past the used ones, padding, tokens in any order, a panel count that does not divide
        // among the threads, and more panels than a thread has in flight.
        let case = |tokens: u32, x_capacity: u32, n: u32, used: u32, capacity: u32| {
            let mut random = Random(seed);
            let source = (0..capacity)
                .map(|row| {
                    if row % 5 == 4 || row >= used {
                        NONE
                    } else {
                        random.below(tokens)
                    }
                })
                .collect();
            let mut args = vec![
                CpuArg::U32(source),
                CpuArg::U32(vec![used]),
                CpuArg::F16(random.halves((x_capacity * n) as usize)),
                CpuArg::F32(random.units(tokens as usize)),
                CpuArg::F32(random.units(tokens as usize + 1)),
                CpuArg::F16(vec![f16(0); (capacity * n) as usize]),
                CpuArg::F32(vec![0.0; capacity as usize]),
                CpuArg::F32(vec![0.0; capacity as usize]),
            ];
            args.extend([tokens, n, x_capacity, capacity].map(CpuArg::scalar));
            Case {
                label: format!("tokens={tokens} n={n} used={used} of {capacity}"),
                args,
                bound: 0.0,
            }
        };
        vec![
            case(5, 8, 64, 16, 32),
            case(11, 16, 1216, 24, 24),
            case(1, 8, 128, 8, 16),
        ]
    }
}
