//! The last kernel of a decode step: stores the next token in the device state and in the output
//! buffer that the host reads.
//!
//! While the next position is inside the prompt, the next token comes from the prompt. Decoding
//! ends at a stop token, at the end of the context, or if the model chose no token ([`NO_TOKEN`]).

use crate::harness::{Case, Variant};
use crate::shared::state::{DONE, LEN, NO_TOKEN, POSITION, PROMPT_LEN, StepState, TOKEN};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`Advance`].
    pub struct AdvanceArgs {
        /// `[1]`: the token that the model chose
        token: In<u32>,
        /// `[ctx]`: the prompt, of which the first `PROMPT_LEN` tokens are used
        prompt: In<u32>,
        /// `[stops]`: tokens that end decoding. The buffer may be longer.
        stop: In<u32>,
        /// `[8]`: the decode state, see [`state`](crate::shared::state)
        state: InOut<u32>,
        /// `[ctx]`: the token that follows each position, for the host
        out: Out<u32>,
        /// The number of stop tokens.
        stops: u32,
        /// The number of positions of the cache.
        ctx: u32,
    }
}

/// Kernel that updates the decode state after a step. Only one thread works.
pub struct Advance;

impl KernelDef for Advance {
    type Args<S: Side> = AdvanceArgs<S>;

    fn name(&self) -> String {
        "advance".into()
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &AdvanceArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AdvanceArgs { ctx, .. } = a;
        self.range("ctx", ctx, 1, 1 << 24)?;
        self.exactly("token", a.token, 1)?;
        check_lengths! { self, a:
            prompt == ctx,
        }
        self.require(a.stop >= a.stops as usize, || {
            format!(
                "stop has {} elements, must have at least stops = {}",
                a.stop, a.stops
            )
        })?;
        self.exactly("state", a.state, LEN)?;
        check_lengths! { self, a:
            out == ctx,
        }
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AdvanceArgs<Dev<'k>>) {
        let AdvanceArgs {
            token,
            prompt,
            stop,
            state,
            out,
            stops,
            ctx,
        } = a;
        let step = DecodeStep {
            prompt,
            stop,
            state,
            out,
            stops,
            ctx,
        };
        k.when(k.tid().eq(0), || step.run(k, token.ld()));
    }

    fn reference(&self, a: AdvanceArgs<Cpu<'_>>) {
        let AdvanceArgs {
            token,
            prompt,
            stop,
            state,
            out,
            stops,
            ctx,
        } = a;
        DecodeStep {
            prompt,
            stop,
            state,
            out,
            stops,
            ctx,
        }
        .run_on_cpu(token[0]);
    }
}

/// The update of the decode state, with the buffers that it reads and writes besides the chosen
/// token. The type parameters are pointers on the device and slices on the CPU.
pub(crate) struct DecodeStep<P, S, O, N> {
    pub(crate) prompt: P,
    pub(crate) stop: P,
    pub(crate) state: S,
    pub(crate) out: O,
    pub(crate) stops: N,
    pub(crate) ctx: N,
}

impl<'k>
    DecodeStep<Ptr<'k, u32, ReadOnly>, Ptr<'k, u32, ReadWrite>, Ptr<'k, u32, WriteOnly>, U32<'k>>
{
    /// Emits the update for the calling thread. Only one thread may run it.
    pub(crate) fn run(&self, k: Builder<'k>, chosen: U32<'k>) {
        let state = self.state.fresh();
        let position = state.at(POSITION).ld();
        let done = state.at(DONE).ld();
        k.when(done.eq(0) & position.lt(self.ctx), || {
            self.advance(k, chosen, position)
        });
    }

    fn advance(&self, k: Builder<'k>, chosen: U32<'k>, position: U32<'k>) {
        let next = position + 1;
        let prompt_len = self.state.fresh().at(PROMPT_LEN).ld();
        let prompted = next.lt(prompt_len.min(self.ctx));
        let mut token = k.var(chosen);
        k.when(prompted, || token.set(self.prompt.at(next).ld()));

        // A prompt may contain stop tokens, so only a chosen token is compared with them.
        k.when(!prompted, || {
            k.for_each(0, self.stops, 1, |i| {
                k.when(self.stop.at(i).ld().eq(&token), || {
                    self.state.at(DONE).st(1)
                });
            });
        });
        self.out.at(position).st(&token);
        k.when(next.lt(self.ctx) & token.get().ne(NO_TOKEN), || {
            self.state.at(TOKEN).st(&token);
            self.state.at(POSITION).st(next);
        })
        .otherwise(|| self.state.at(DONE).st(1));
    }
}

impl DecodeStep<&[u32], &mut [u32], &mut [u32], u32> {
    /// Runs the update on the CPU.
    pub(crate) fn run_on_cpu(self, chosen: u32) {
        let [token, position, done, prompt_len] =
            [TOKEN, POSITION, DONE, PROMPT_LEN].map(|i| i as usize);
        let now = self.state[position];
        let next = now + 1;
        if self.state[done] != 0 || now >= self.ctx {
            return;
        }

        let prompted = next < self.state[prompt_len].min(self.ctx);
        let chosen = if prompted {
            self.prompt[next as usize]
        } else {
            chosen
        };
        self.out[now as usize] = chosen;
        if !prompted && self.stop[..self.stops as usize].contains(&chosen)
            || next == self.ctx
            || chosen == NO_TOKEN
        {
            self.state[done] = 1;
        }

        if next < self.ctx && chosen != NO_TOKEN {
            self.state[token] = chosen;
            self.state[position] = next;
        }
    }
}

/// The number of positions in the test cases.
const CTX: u32 = 6;

impl Variant for Advance {
    fn cases(&self, seed: u64) -> Vec<Case> {
        [
            AdvanceCase {
                name: "in the prompt",
                position: 1,
                prompt_len: 4,
                done: false,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "a stop token in the prompt",
                position: 1,
                prompt_len: 3,
                done: false,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "past the prompt",
                position: 3,
                prompt_len: 4,
                done: false,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "a stop token",
                position: 3,
                prompt_len: 4,
                done: false,
                stops: 3,
                token: 12,
            },
            AdvanceCase {
                name: "not yet a stop token",
                position: 3,
                prompt_len: 4,
                done: false,
                stops: 2,
                token: 12,
            },
            AdvanceCase {
                name: "no stop tokens",
                position: 3,
                prompt_len: 4,
                done: false,
                stops: 0,
                token: 12,
            },
            AdvanceCase {
                name: "the last position",
                position: 5,
                prompt_len: 1,
                done: false,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "a prompt to the end",
                position: 5,
                prompt_len: 9,
                done: false,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "no token",
                position: 3,
                prompt_len: 4,
                done: false,
                stops: 3,
                token: NO_TOKEN,
            },
            AdvanceCase {
                name: "done",
                position: 3,
                prompt_len: 4,
                done: true,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "past the end",
                position: 6,
                prompt_len: 4,
                done: false,
                stops: 3,
                token: 7,
            },
        ]
        .map(|case| case.filled(seed))
        .into()
    }
}

struct AdvanceCase {
    name: &'static str,
    position: u32,
    prompt_len: u32,
    done: bool,
    stops: u32,
    token: u32,
}

impl AdvanceCase {
    /// Returns the filled arguments. The prompt has a stop token at position 2.
    fn filled(&self, seed: u64) -> Case {
        let mut random = Random(seed);
        let state = StepState {
            position: self.position,
            prompt_len: self.prompt_len,
            done: self.done,
            ..StepState::default()
        };
        let mut prompt: Vec<u32> = (0..CTX).map(|_| 100 + random.below(100)).collect();
        prompt[2] = 11;
        Case {
            label: self.name.into(),
            args: vec![
                CpuArg::U32(vec![self.token]),
                CpuArg::U32(prompt),
                CpuArg::U32(vec![10, 11, 12]),
                CpuArg::U32(state.words().into()),
                CpuArg::U32(vec![0; CTX as usize]),
                CpuArg::scalar(self.stops),
                CpuArg::scalar(CTX),
            ],
            bound: 0.0,
        }
    }
}
