//! Reconvergence: the immediate post-dominator of each branch.
//!
//! Post-dominators are computed on the reversed control-flow graph of basic blocks, by the
//! iteration of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001).
//!
//! A kernel may have several `exit` instructions. Lanes that exit early are not waited for, so only
//! the last `exit` is the exit of the graph. In a function it is the last `ret`, because lanes that
//! return early wait in the caller. Blocks from which no path leads there use the last exit that
//! they can reach. A branch that reaches no exit has no post-dominator, and its lanes never
//! reconverge.

use crate::module::code::{Instruction, Op};

/// The reconvergence point of a branch without a post-dominator.
pub(crate) const NEVER: u32 = u32::MAX;

/// Sets the reconvergence point of every branch.
pub(crate) fn join(ops: &mut [Instruction]) {
    let graph = FlowGraph::new(ops);
    let joins = graph.post_dominators();
    for (index, step) in ops.iter_mut().enumerate() {
        if let Op::Branch { join, .. } | Op::BranchIndexed { join, .. } = &mut step.op {
            *join =
                joins[graph.block_of[index] as usize].map_or(NEVER, |b| graph.starts[b as usize]);
        }
    }
}

/// Returns true if control flow leads from one instruction of a routine to another.
pub(crate) fn reaches(ops: &[Instruction], from: u32, to: u32) -> bool {
    let mut seen = vec![false; ops.len()];
    let mut left = vec![from];
    while let Some(pc) = left.pop() {
        if pc == to {
            return true;
        }
        let Some(step) = ops.get(pc as usize) else {
            continue;
        };
        if std::mem::replace(&mut seen[pc as usize], true) {
            continue;
        }

        left.extend(jumps(step));
        if falls(step) {
            left.push(pc + 1);
        }
    }

    false
}

struct FlowGraph {
    /// The first instruction of each block.
    starts: Vec<u32>,
    block_of: Vec<u32>,
    /// The successors of each block.
    successors: Vec<Vec<u32>>,
    /// The blocks at whose end every lane exits or returns.
    exits: Vec<u32>,
}

/// Returns the targets of a branch, without the next instruction.
fn jumps(step: &Instruction) -> &[u32] {
    match &step.op {
        Op::Branch { target, .. } => std::slice::from_ref(target),
        Op::BranchIndexed { targets, .. } => targets,
        _ => &[],
    }
}

/// Returns true if control may continue with the next instruction.
fn falls(step: &Instruction) -> bool {
    !ends_block(step) || step.guard.is_some()
}

fn ends_block(step: &Instruction) -> bool {
    matches!(
        step.op,
        Op::Branch { .. } | Op::BranchIndexed { .. } | Op::Exit | Op::Return | Op::Trap
    )
}

impl FlowGraph {
    fn new(ops: &[Instruction]) -> FlowGraph {
        let mut leader = vec![false; ops.len() + 1];
        leader[0] = true;
        for (i, step) in ops.iter().enumerate() {
            // A block begins at each target, and after each instruction that may leave its block.
            for target in jumps(step) {
                leader[*target as usize] = true;
            }
            leader[i + 1] |= ends_block(step);
        }

        let starts: Vec<u32> = (0..ops.len())
            .filter(|i| leader[*i])
            .map(|i| i as u32)
            .collect();
        let mut block_of = vec![0; ops.len() + 1];
        let mut block = 0;
        for i in 0..ops.len() {
            block += u32::from(leader[i] && i > 0);
            block_of[i] = block;
        }

        block_of[ops.len()] = starts.len() as u32;

        // A guarded exit does not end its block for all lanes, so it is not an exit of the graph.
        let leaves =
            |step: &Instruction| matches!(step.op, Op::Exit | Op::Return) && step.guard.is_none();
        let last = |b: usize| starts.get(b + 1).map_or(ops.len(), |next| *next as usize) - 1;
        let exits = (0..starts.len())
            .filter(|b| leaves(&ops[last(*b)]))
            .map(|b| b as u32)
            .collect();
        let successors = (0..starts.len())
            .map(|b| follow(ops, last(b), &block_of))
            .collect();
        FlowGraph {
            starts,
            block_of,
            successors,
            exits,
        }
    }

    /// Returns the immediate post-dominator of each block, or `None` if it is the exit or does not
    /// exist.
    fn post_dominators(&self) -> Vec<Option<u32>> {
        let exit = self.starts.len();
        let mut predecessors = vec![Vec::new(); exit + 1];
        for (b, next) in self.successors.iter().enumerate() {
            for s in next {
                predecessors[*s as usize].push(b as u32);
            }
        }

        // The index after the last block represents the exit.
        let mut above: Vec<Option<u32>> = vec![None; exit + 1];
        above[exit] = Some(exit as u32);
        for last in self.exits.iter().rev() {
            if above[*last as usize].is_none() {
                above[*last as usize] = Some(exit as u32);
                self.settle(*last, &predecessors, &mut above);
            }
        }

        above.truncate(exit);
        above
            .into_iter()
            .map(|b| b.filter(|b| *b != exit as u32))
            .collect()
    }

    /// Computes the post-dominators of the blocks that reach `last` but no later exit.
    fn settle(&self, last: u32, predecessors: &[Vec<u32>], above: &mut [Option<u32>]) {
        let mut order = postorder(last, predecessors);

        // Blocks with a path to a later exit are settled already, and keep that exit.
        order.retain(|b| above[*b as usize].is_none());
        let mut rank = vec![0u32; above.len()];
        for (i, b) in order.iter().enumerate() {
            rank[*b as usize] = i as u32 + 1;
        }

        // The exits rank above all other blocks, so that `meet` walks towards them.
        (rank[last as usize], rank[above.len() - 1]) = (above.len() as u32, above.len() as u32 + 1);
        let mut changed = true;
        while changed {
            changed = false;
            for &b in order.iter().rev() {
                let known = self.successors[b as usize]
                    .iter()
                    .copied()
                    .filter(|s| above[*s as usize].is_some());
                let new = known.reduce(|a, b| meet(a, b, above, &rank));
                changed |= new != above[b as usize];
                above[b as usize] = new;
            }
        }
    }
}

/// Returns the successors of the block that ends with instruction `index`.
fn follow(ops: &[Instruction], index: usize, block_of: &[u32]) -> Vec<u32> {
    let step = &ops[index];
    let mut next: Vec<u32> = jumps(step).iter().map(|t| block_of[*t as usize]).collect();
    if falls(step) {
        next.push(block_of[index + 1]);
    }
    next
}

/// Returns the blocks that reach `root`, in postorder of the reversed edges.
fn postorder(root: u32, edges: &[Vec<u32>]) -> Vec<u32> {
    let mut seen = vec![false; edges.len()];
    let mut order = Vec::new();
    let mut stack = vec![(root, 0)];
    seen[root as usize] = true;
    while let Some((block, next)) = stack.last_mut() {
        match edges[*block as usize].get(*next) {
            Some(&to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[to as usize], true) {
                    stack.push((to, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }

    order
}

/// Returns the nearest block that post-dominates both blocks.
fn meet(mut a: u32, mut b: u32, above: &[Option<u32>], rank: &[u32]) -> u32 {
    while a != b {
        let lower = if rank[a as usize] < rank[b as usize] {
            &mut a
        } else {
            &mut b
        };
        *lower = above[*lower as usize].unwrap_or(*lower);
    }
    a
}
