//! Adds the weighted results of each token's experts to the residual stream: `x[t] += sum over s of
//! weight[t, s] * y[place[t, s]]`.
//!
//! The slots of a token are added in their order, so the result depends on the token's own experts
//! only. A NaN weight makes the token's sums NaN.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Overlap, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`CombineTokens`].
    pub struct CombineTokensArgs {
        /// `[capacity, n]`: the results of the sorted rows
        y: In<f32>,
        /// `[tokens, chosen]`: the sorted row of each token and slot
        place: In<u32>,
        /// `[tokens, chosen]`: the weights
        weight: In<f32>,
        /// `[tokens, n]`: the residual stream. The buffer may be longer
        x: InOut<f32>,
        /// The number of tokens.
        tokens: u32,
        /// The number of experts of a token.
        chosen: u32,
        /// The row length, a multiple of 4.
        n: u32,
        /// The number of rows of `y`.
        capacity: u32,
    }
}

/// Kernel that adds the results of the experts, four values per thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CombineTokens {
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

/// The number of threads of a block.
const THREADS: u32 = 256;
/// The number of values of a thread.
const WIDTH: u32 = 4;
/// The number of slots whose loads are in flight together.
const AT_ONCE: u32 = 4;

impl KernelDef for CombineTokens {
    type Args<S: Side> = CombineTokensArgs<S>;

    fn name(&self) -> String {
        format!("combine_tokens{}", self.overlap.suffix())
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &CombineTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &CombineTokensArgs {
            tokens,
            chosen,
            n,
            capacity,
            ..
        } = a;
        self.multiple("n", n, WIDTH)?;
        self.range("tokens", tokens, 1, u16::MAX.into())?;
        self.range("chosen", chosen, 1, 1 << 10)?;
        self.range("capacity", capacity, 1, 1 << 28)?;
        check_lengths! { self, a:
            y == capacity * n,
            place == tokens * chosen,
            weight == tokens * chosen,
            x >= tokens * n,
        }
        Ok(Grid::plane(n.div_ceil(WIDTH * THREADS), tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: CombineTokensArgs<Dev<'k>>) {
        if self.overlap.waits() {
            self.overlap.start(k);
            k.grid_wait();
        }

        let token = k.ctaid_y();
        let column = (k.ctaid() * THREADS + k.tid()) * WIDTH;
        k.when(column.lt(a.n), || {
            let first = token * a.chosen;
            let x = a.x.row(token, a.n * 4).at(column);
            let old = x.fresh().ld4();
            let y = a.y.fresh().at(column);
            let mut sums = [0.0; WIDTH as usize].map(|zero| k.var(zero));
            k.for_each(0, a.chosen, AT_ONCE, |slot| {
                k.section(
                    "matmul/experts/combine_slots",
                    "several slots: all loads precede the sums, which keep the order of the slots",
                );
                let slots: Vec<_> = (0..AT_ONCE)
                    .map(|i| {
                        let exists = (slot + i).lt(a.chosen);
                        let mut place = k.var(0u32);
                        let mut weight = k.var(0.0);
                        a.place
                            .fresh()
                            .at(first + slot + i)
                            .ld_if(exists, &mut place);
                        a.weight
                            .fresh()
                            .at(first + slot + i)
                            .ld_if(exists, &mut weight);
                        (exists, place.get().min(a.capacity - 1), weight)
                    })
                    .collect();
                let values: Vec<_> = slots
                    .iter()
                    .map(|&(exists, place, _)| {
                        let mut four = [0.0; WIDTH as usize].map(|zero| k.var(zero));
                        y.row(place, a.n * 4).ld4_if(exists, &mut four);
                        four
                    })
                    .collect();

                // A slot past the last one adds the product of two zeros.
                for ((_, _, weight), four) in slots.iter().zip(values) {
                    for (sum, value) in sums.iter_mut().zip(four) {
                        sum.fma(weight, &value);
                    }
                }
            });
            let mut sums = sums.iter();
            x.st4(old.map(|old| old + sums.next().expect("four sums").get()));
        });
        self.overlap.end(k);
    }

    fn reference(&self, a: CombineTokensArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let chosen = a.chosen as usize;
        for token in 0..a.tokens as usize {
            let slots = token * chosen..(token + 1) * chosen;
            for i in 0..n {
                let terms = slots.clone().map(|slot| {
                    let y = a.y[a.place[slot] as usize * n + i];
                    f64::from(a.weight[slot]) * f64::from(y)
                });
                let x = &mut a.x[token * n + i];
                *x = (f64::from(*x) + terms.sum::<f64>()) as f32;
            }
        }
    }
}

impl Variant for CombineTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Slots that do not fill the loads in flight, several blocks of columns, and a token whose
        // weights are NaN.
        let case = |tokens: u32, chosen: u32, n: u32, nan: bool| {
            let mut random = Random(seed);
            let capacity = tokens * chosen + 3;
            let slots = tokens * chosen;
            let place = (0..slots).map(|_| random.below(capacity)).collect();
            let mut weight = random.units(slots as usize);
            if nan {
                weight[..chosen as usize].fill(f32::NAN);
            }
            let mut args = vec![
                CpuArg::F32(random.units((capacity * n) as usize)),
                CpuArg::U32(place),
                CpuArg::F32(weight),
                CpuArg::F32(random.units(((tokens + 1) * n) as usize)),
            ];
            args.extend([tokens, chosen, n, capacity].map(CpuArg::scalar));
            Case {
                label: format!("tokens={tokens} chosen={chosen} n={n} nan={nan}"),
                args,
                bound: 2e-6,
            }
        };
        vec![
            case(3, 8, 64, false),
            case(2, 6, 1032, true),
            case(1, 1, 4, false),
        ]
    }
}
