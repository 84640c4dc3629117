//! The end of a step: the next token becomes the state's, and the host can read it.
//!
//! While the prompt lasts, the next token is the prompt's. It ends with a stop token or with the context.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::state::{DONE, LEN, POSITION, PROMPT_LEN, TOKEN};
use ptx_gen::*;

args! {
    /// Arguments of [`Advance`].
    pub struct AdvanceArgs {
        /// `[1]`: what the model chose
        token: In<u32>,
        /// `[ctx]`, of which the state's `PROMPT_LEN` count
        prompt: In<u32>,
        /// `[stops]`: tokens that end decoding; may be longer
        stop: In<u32>,
        /// `[8]`: see [`state`](crate::state)
        state: InOut<u32>,
        /// `[ctx]`: the token after each position; the host reads it
        out: Out<u32>,
        /// Number of stop tokens.
        stops: u32,
        /// Positions of the cache.
        ctx: u32,
    }
}

/// The kernel. One thread works.
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
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.exactly("token", a.token, 1)?;
        self.length("prompt", a.prompt, "ctx", &[a.ctx])?;
        self.require(a.stop >= a.stops as usize, || {
            format!("stop has {} elements, must have at least stops = {}", a.stop, a.stops)
        })?;
        self.exactly("state", a.state, LEN)?;
        self.length("out", a.out, "ctx", &[a.ctx])?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AdvanceArgs<Dev<'k>>) {
        k.when(k.tid().eq(0), || {
            let (position, done) = (a.state.at(POSITION).ld(), a.state.at(DONE).ld());
            k.when(done.eq(0) & position.lt(a.ctx), || self.step(k, &a, position));
        });
    }

    fn reference(&self, a: AdvanceArgs<Cpu<'_>>) {
        let [token, position, done, prompt_len] = [TOKEN, POSITION, DONE, PROMPT_LEN].map(|i| i as usize);
        let (now, next) = (a.state[position], a.state[position] + 1);
        if a.state[done] != 0 || now >= a.ctx {
            return;
        }
        let prompted = next < a.state[prompt_len].min(a.ctx);
        let chosen = if prompted { a.prompt[next as usize] } else { a.token[0] };
        a.out[now as usize] = chosen;
        if !prompted && a.stop[..a.stops as usize].contains(&chosen) || next == a.ctx {
            a.state[done] = 1;
        }
        if next < a.ctx {
            a.state[token] = chosen;
            a.state[position] = next;
        }
    }
}

impl Advance {
    fn step<'k>(&self, k: Builder<'k>, a: &AdvanceArgs<Dev<'k>>, position: U32<'k>) {
        let next = position + 1;
        let prompted = next.lt(a.state.at(PROMPT_LEN).ld().min(a.ctx));
        let mut token = k.var(0);
        k.when(prompted, || token.set(a.prompt.at(next).ld()));
        k.when(!prompted, || {
            token.set(a.token.ld());
            k.for_each(0, a.stops, 1, |i| {
                k.when(a.stop.at(i).ld().eq(&token), || a.state.at(DONE).st(1));
            });
        });
        a.out.at(position).st(&token);
        k.when(next.lt(a.ctx), || {
            a.state.at(TOKEN).st(&token);
            a.state.at(POSITION).st(next);
        })
        .otherwise(|| a.state.at(DONE).st(1));
    }
}

/// Positions in the cases.
const CTX: u32 = 6;

impl Variant for Advance {
    fn cases(&self, seed: u64) -> Vec<Case> {
        [
            AdvanceCase { name: "in the prompt", position: 1, prompt_len: 4, done: 0, stops: 3, token: 7 },
            AdvanceCase {
                name: "a stop token in the prompt",
                position: 1,
                prompt_len: 3,
                done: 0,
                stops: 3,
                token: 7,
            },
            AdvanceCase { name: "past the prompt", position: 3, prompt_len: 4, done: 0, stops: 3, token: 7 },
            AdvanceCase { name: "a stop token", position: 3, prompt_len: 4, done: 0, stops: 3, token: 12 },
            AdvanceCase {
                name: "not yet a stop token",
                position: 3,
                prompt_len: 4,
                done: 0,
                stops: 2,
                token: 12,
            },
            AdvanceCase { name: "no stop tokens", position: 3, prompt_len: 4, done: 0, stops: 0, token: 12 },
            AdvanceCase {
                name: "the last position",
                position: 5,
                prompt_len: 1,
                done: 0,
                stops: 3,
                token: 7,
            },
            AdvanceCase {
                name: "a prompt to the end",
                position: 5,
                prompt_len: 9,
                done: 0,
                stops: 3,
                token: 7,
            },
            AdvanceCase { name: "done", position: 3, prompt_len: 4, done: 1, stops: 3, token: 7 },
            AdvanceCase { name: "past the end", position: 6, prompt_len: 4, done: 0, stops: 3, token: 7 },
        ]
        .map(|case| case.filled(seed))
        .into()
    }
}

struct AdvanceCase {
    name: &'static str,
    position: u32,
    prompt_len: u32,
    done: u32,
    stops: u32,
    token: u32,
}

impl AdvanceCase {
    /// The prompt holds a stop token at position 2.
    fn filled(&self, seed: u64) -> Case {
        let mut random = Random(seed);
        let mut state = vec![0; LEN];
        for (i, v) in [(POSITION, self.position), (PROMPT_LEN, self.prompt_len), (DONE, self.done)] {
            state[i as usize] = v;
        }
        let mut prompt: Vec<u32> = (0..CTX).map(|_| 100 + random.below(100)).collect();
        prompt[2] = 11;
        Case {
            label: self.name.into(),
            args: vec![
                CpuArg::U32(vec![self.token]),
                CpuArg::U32(prompt),
                CpuArg::U32(vec![10, 11, 12]),
                CpuArg::U32(state),
                CpuArg::U32(vec![0; CTX as usize]),
                CpuArg::scalar(self.stops),
                CpuArg::scalar(CTX),
            ],
            bound: 0.0,
        }
    }
}
