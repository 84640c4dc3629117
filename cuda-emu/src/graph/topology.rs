//! The edges between the steps of an executable graph, and the orders that they permit.

use std::sync::OnceLock;

/// The edges between steps.
#[derive(Default)]
pub(crate) struct Topology {
    /// For each step, the steps that depend on it.
    pub(crate) next: Vec<Vec<usize>>,
    /// For each step, the number of steps on which it depends.
    pub(crate) waits: Vec<usize>,
    /// The edges whose second step may start before the first ends.
    pub(crate) programmatic: Vec<(usize, usize)>,
    /// For each step, the set of steps before it as bits. It is computed when needed.
    before: OnceLock<Vec<Box<[u64]>>>,
}

impl Topology {
    /// Visits the steps in an order that the edges permit (Kahn's algorithm). `pick` selects among
    /// the steps that are ready.
    ///
    /// Returns the number of visited steps, which is less than the total if the edges form a cycle.
    pub(crate) fn walk<E>(
        &self,
        mut pick: impl FnMut(&[usize]) -> usize,
        mut visit: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut waits = self.waits.clone();
        let mut ready: Vec<usize> = (0..waits.len()).filter(|&i| waits[i] == 0).collect();
        let mut visited = 0;
        while !ready.is_empty() {
            let step = ready.swap_remove(pick(&ready));
            visit(step)?;
            visited += 1;
            for &next in &self.next[step] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(next);
                }
            }
        }

        Ok(visited)
    }

    /// Returns, for each step, the set of steps before it as bits.
    pub(crate) fn before(&self) -> &[Box<[u64]>] {
        self.before.get_or_init(|| {
            let words = self.waits.len().div_ceil(64);
            let mut before = vec![vec![0u64; words].into_boxed_slice(); self.waits.len()];
            let visit = |step: usize| {
                let mut own = before[step].clone();
                own[step / 64] |= 1 << (step % 64);
                for &next in &self.next[step] {
                    for (bits, own) in before[next].iter_mut().zip(&own) {
                        *bits |= own;
                    }
                }
                Ok::<(), ()>(())
            };
            let _ = self.walk(|_| 0, visit);
            before
        })
    }

    /// Returns true if a path of edges orders two steps.
    pub(crate) fn ordered(&self, a: usize, b: usize) -> bool {
        let before = self.before();
        has(&before[a], b) || has(&before[b], a)
    }

    /// Returns, for each step, the set of steps that have ended when it starts, as bits.
    ///
    /// Programmatic edges make this set smaller than the set of steps before it. A step may start
    /// when its predecessor on such an edge triggers. `late` returns true if that predecessor has
    /// by then waited for everything before it.
    pub(crate) fn ended(&self, late: impl Fn(usize) -> bool) -> Vec<Box<[u64]>> {
        let before = self.before();
        let mut ended: Vec<Box<[u64]>> = before
            .iter()
            .map(|bits| vec![0; bits.len()].into_boxed_slice())
            .collect();
        let visit = |step: usize| {
            for &next in &self.next[step] {
                // A programmatic edge does not guarantee that `step` itself has ended. It only
                // guarantees the steps for which `step` waits before it triggers.
                let early = self.programmatic.contains(&(step, next));
                let mut known = if early && !late(step) {
                    ended[step].clone()
                } else {
                    before[step].clone()
                };
                known[step / 64] |= u64::from(!early) << (step % 64);
                for (bits, known) in ended[next].iter_mut().zip(&known) {
                    *bits |= known;
                }
            }
            Ok::<(), ()>(())
        };
        let _ = self.walk(|_| 0, visit);
        ended
    }

    /// Returns true if every step depends on the one before it, so that no two can run at the same
    /// time.
    pub(crate) fn is_chain(&self) -> bool {
        let edges: usize = self.next.iter().map(Vec::len).sum();
        let single = self.next.iter().all(|next| next.len() <= 1)
            && self.waits.iter().all(|waits| *waits <= 1);
        single && edges + 1 >= self.waits.len()
    }

    /// Returns a step on a cycle, or one that depends on a cycle.
    pub(crate) fn stuck(&self) -> Option<usize> {
        let mut seen = vec![false; self.waits.len()];
        let visit = |step: usize| {
            seen[step] = true;
            Ok::<(), ()>(())
        };
        let _ = self.walk(|_| 0, visit);
        seen.iter().position(|seen| !seen)
    }
}

/// Returns true if a step is in a set of steps.
pub(crate) fn has(bits: &[u64], step: usize) -> bool {
    bits[step / 64] >> (step % 64) & 1 == 1
}
