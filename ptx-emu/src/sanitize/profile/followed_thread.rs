//! Records the instructions of one thread, with the values of their registers.

use crate::module::registers::{Bank, Regs};
use crate::profile::{Followed, FollowedStep, RegisterStep};
use crate::sanitize::execution_context::ExecutionContext;
use crate::sanitize::observer::Observer;

/// The record of the followed thread.
#[derive(Debug)]
pub(crate) struct FollowedThread {
    followed: Followed,
    pub(crate) steps: Vec<FollowedStep>,
    pending: Option<FollowedInstruction>,
}

/// The next instruction of the followed thread.
#[derive(Debug)]
struct FollowedInstruction {
    pc: u32,
    lane: u32,
    executed: bool,
    /// The routine and the call depth before the instruction. A call or return changes the
    /// registers.
    routine: u32,
    depth: usize,
    values: Vec<Option<u64>>,
}

/// Returns the value of a register in a lane if it is initialized.
fn value(regs: &Regs, bank: Bank, slot: u32, lane: u32) -> Option<u64> {
    let slot = slot as usize;
    let written = |mask: u32| mask >> lane & 1 != 0;
    match bank {
        Bank::Pred => {
            written(regs.pred_defined[slot]).then(|| u64::from(regs.pred[slot] >> lane & 1))
        }
        Bank::W32 => {
            written(regs.w32.defined[slot]).then(|| regs.w32.lanes[slot][lane as usize].into())
        }
        Bank::W64 => written(regs.w64.defined[slot]).then(|| regs.w64.lanes[slot][lane as usize]),
    }
}

impl FollowedThread {
    /// Creates an empty record.
    pub(crate) fn new(followed: Followed) -> FollowedThread {
        FollowedThread {
            followed,
            steps: Vec::new(),
            pending: None,
        }
    }

    /// Returns the state of the thread before an instruction of its warp, if it runs and its record
    /// is not full.
    fn state_before(
        &self,
        context: &impl ExecutionContext,
        mask: u32,
    ) -> Option<FollowedInstruction> {
        let position = context.position();
        if self.steps.len() >= self.followed.most || position.block != self.followed.block {
            return None;
        }

        let [x, y, _] = position.threads;
        let [tx, ty, tz] = self.followed.thread;
        let lane = (tx + x * (ty + y * tz))
            .checked_sub(32 * position.number)
            .filter(|lane| *lane < 32)?;
        if position.running >> lane & 1 == 0 {
            return None;
        }

        let pc = context.pc();
        let values = context
            .code()
            .mentioned(pc)
            .iter()
            .map(|(bank, slot)| value(context.regs(), *bank, *slot, lane));
        Some(FollowedInstruction {
            pc,
            lane,
            executed: mask >> lane & 1 != 0,
            routine: position.routine,
            depth: position.depth,
            values: values.collect(),
        })
    }
}

impl Observer for FollowedThread {
    fn before(&mut self, context: &impl ExecutionContext, mask: u32) {
        self.pending = self.state_before(context, mask);
    }

    fn after(&mut self, context: &mut impl ExecutionContext) {
        let Some(before) = self.pending.take() else {
            return;
        };

        let code = context.code();
        let position = context.position();

        // A call or a return has changed the registers, so their values cannot be compared.
        let same = (position.routine, position.depth) == (before.routine, before.depth);
        let registers = code.mentioned(before.pc).iter().zip(before.values);
        let registers = registers.map(|((bank, slot), value_before)| RegisterStep {
            name: code
                .name_of(before.routine, *bank, *slot)
                .unwrap_or("a temporary")
                .to_owned(),
            bits: match bank {
                Bank::Pred => 1,
                Bank::W32 => 32,
                Bank::W64 => 64,
            },
            before: value_before,
            after: if same {
                value(context.regs(), *bank, *slot, before.lane)
            } else {
                value_before
            },
        });
        self.steps.push(FollowedStep {
            place: code.places[before.pc as usize].clone(),
            executed: before.executed,
            registers: registers.collect(),
        });
    }
}
