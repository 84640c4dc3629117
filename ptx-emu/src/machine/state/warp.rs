//! One warp: its registers, the position of its lanes, and the lanes that wait to reconverge.

use crate::machine::state::warp_parts::{LostRegister, Polling, Strand, WaitingCaller, WarpFrame};
use crate::module::code::{Compare, Constant, KernelCode, Routine, Special};
use crate::module::control_flow::NEVER;
use crate::module::registers::{Bank, Raw, RegisterFile, Regs};

/// The number of warps per multiprocessor.
const WARPS: u32 = 64;

/// A warp of a block.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// The number of the warp in its cluster.
    pub(crate) index: u32,
    /// The number of the warp in its block, and the rank of the block in the cluster.
    pub(crate) number: u32,
    pub(crate) rank: u32,
    pub(crate) regs: Regs,
    /// The running lanes.
    pub(crate) now: WarpFrame,
    /// The waiting lanes. The next reconvergence point is last.
    pub(crate) stack: Vec<WarpFrame>,
    /// The lanes that exist.
    pub(crate) live: u32,
    /// The lanes that have exited.
    pub(crate) exited: u32,
    /// Local memory as words of each lane, and its initialization with one bit per byte.
    pub(crate) local: Vec<[u32; 32]>,
    pub(crate) local_init: Vec<[u8; 32]>,
    pub(crate) executed: u64,
    pub(crate) lane_count: u64,
    /// The running routine, and the start of its local memory.
    pub(crate) routine: u32,
    pub(crate) frame: u32,
    /// The end of the used local memory.
    pub(crate) top: u32,
    /// The lanes that have returned from the running call.
    pub(crate) returned: u32,
    /// The number of frames on the stack that belong to callers.
    pub(crate) floor: usize,
    /// The callers, outermost first.
    pub(crate) calls: Vec<WaitingCaller>,
    /// Registers of earlier calls for reuse, by routine.
    pub(crate) spare: Vec<Vec<Regs>>,
    /// The uninitialized lanes of registers that a shuffle wrote.
    pub(crate) lost: Vec<LostRegister>,
    /// The strands that run apart from `now` and `stack`.
    pub(crate) apart: Vec<Strand>,
    /// The lanes that passed a reconvergence point at which other lanes wait for them.
    pub(crate) forced: u32,
    /// The number of effects that other threads can see.
    pub(crate) effects: u64,
    pub(crate) polling: Polling,
}

/// The values from which the special registers of a warp are computed.
pub(crate) struct Identity {
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) total_shared: u32,
    pub(crate) sm: u32,
    pub(crate) sms: u32,
    /// The address of the workspace of a cooperative grid, which `%envreg1` (upper half) and
    /// `%envreg2` (lower half) contain.
    pub(crate) workspace: u64,
}

fn resize<R: Raw>(file: &mut RegisterFile<R>, slots: u32) {
    file.lanes.resize(slots as usize, [R::default(); 32]);
    file.defined.resize(slots as usize, 0);
}

impl Regs {
    /// Resizes the register files: 32 bits, 64 bits, and predicates.
    pub(crate) fn fit(&mut self, [w32, w64, pred]: [u32; 3]) {
        resize(&mut self.w32, w32);
        resize(&mut self.w64, w64);
        self.pred.resize(pred as usize, 0);
        self.pred_defined.resize(pred as usize, 0);
    }
}

/// Resizes the register files for a routine, and sets its constants.
pub(crate) fn fit_registers(regs: &mut Regs, routine: &Routine, variables: &[u64]) {
    regs.fit(routine.slots);
    for (bank, slot, value) in &routine.constants {
        let value = match *value {
            Constant::Bits(bits) => bits,
            Constant::Variable(index, offset) => {
                variables[index as usize].wrapping_add_signed(offset)
            }
            Constant::Local(offset) => offset.into(),
        };
        write(regs, *bank, *slot as usize, value);
    }
}

fn write(regs: &mut Regs, bank: Bank, slot: usize, value: u64) {
    match bank {
        Bank::W64 => regs.w64.lanes[slot] = [value; 32],
        _ => regs.w32.lanes[slot] = [value as u32; 32],
    }
}

impl Warp {
    /// Prepares a new or reused warp for `code`: resizes its registers and sets the constants.
    ///
    /// Values of uninitialized registers may be left over, but nothing can read them.
    pub(crate) fn fit(
        mut self,
        index: u32,
        code: &KernelCode,
        variables: &[u64],
        id: &Identity,
    ) -> Warp {
        let per_block = id.threads.iter().product::<u32>().div_ceil(32);
        self.index = index;
        self.number = index % per_block;
        self.rank = index / per_block;
        self.calls.clear();
        self.spare.clear();
        self.spare.resize_with(code.routines.len(), Vec::new);
        let kernel = &code.routines[0];
        fit_registers(&mut self.regs, kernel, variables);
        let words = kernel.local.div_ceil(4) as usize;
        self.local.resize(words, [0; 32]);
        self.local_init.resize(words, [0; 32]);
        self
    }

    /// Places the warp at the start of a block.
    pub(crate) fn start(&mut self, code: &KernelCode, id: &Identity) {
        let threads = id.threads.iter().product::<u32>() - self.number * 32;
        self.live = u32::MAX >> (32 - threads.min(32));
        self.exited = 0;
        self.forced = 0;
        self.forget_strands();

        // A fault in another block may have ended the last one within a call.
        if let Some(outermost) = self.calls.drain(..).next() {
            self.regs = outermost.regs;
        }

        self.now = WarpFrame {
            pc: 0,
            join: NEVER,
            mask: self.live,
        };
        self.routine = 0;
        self.frame = 0;
        self.top = code.routines[0].local;
        self.returned = 0;
        self.floor = 0;
        self.stack.clear();
        self.lost.clear();
        self.polling = Polling::default();
        self.local_init.fill([0; 32]);
        let mut regs = std::mem::take(&mut self.regs);
        self.begin(&mut regs, &code.routines[0], 0, id);
        self.regs = regs;
    }

    /// Prepares registers for a call, after which only constants and special registers are
    /// initialized.
    pub(crate) fn begin(&self, regs: &mut Regs, routine: &Routine, frame: u32, id: &Identity) {
        regs.w32.defined.fill(0);
        regs.w64.defined.fill(0);
        regs.pred_defined.fill(0);
        regs.spoilt.clear();
        regs.pointers.clear();
        regs.put_off.clear();
        for (bank, slot, value) in &routine.constants {
            let slot = *slot as usize;
            if let Constant::Local(offset) = value {
                write(regs, *bank, slot, (frame + offset).into());
            }
            match bank {
                Bank::W64 => regs.w64.defined[slot] = u32::MAX,
                _ => regs.w32.defined[slot] = u32::MAX,
            }
        }

        for (slot, special) in &routine.specials {
            regs.w32.lanes[*slot as usize] =
                std::array::from_fn(|lane| self.special(*special, lane as u32, id));
            regs.w32.defined[*slot as usize] = u32::MAX;
        }
    }

    /// Records that a shuffle wrote a 32-bit register in the lanes of `mask`, except for the lanes
    /// in `lost`.
    pub(crate) fn lose(&mut self, slot: u32, mask: u32, lost: u32) {
        let of_slot = self.lost.iter_mut().filter(|l| l.slot == slot);
        of_slot.for_each(|l| l.lanes &= !mask);
        if lost == 0 {
            return;
        }

        self.regs.w32.defined[slot as usize] &= !lost;
        self.lost.retain(|l| l.lanes != 0);
        self.lost.push(LostRegister {
            slot,
            pc: self.now.pc,
            lanes: lost,
        });
    }

    /// Returns the shuffle that left lanes of a 32-bit register uninitialized, and these lanes.
    pub(crate) fn lost_at(&self, slot: u32, lanes: u32) -> Option<(u32, u32)> {
        let found = self
            .lost
            .iter()
            .find(|l| l.slot == slot && l.lanes & lanes != 0)?;
        Some((found.pc, found.lanes & lanes))
    }

    /// Returns the index of the thread of a lane in its block.
    pub(crate) fn thread(&self, lane: u32, threads: [u32; 3]) -> [u32; 3] {
        let t = self.number * 32 + lane;
        let [x, y, _] = threads;
        if t < x {
            [t, 0, 0]
        } else {
            [t % x, t / x % y, t / (x * y)]
        }
    }

    fn special(&self, special: Special, lane: u32, id: &Identity) -> u32 {
        let bit = 1u32 << lane;
        match special {
            Special::Tid(d) => self.thread(lane, id.threads)[d],
            Special::Ntid(d) => id.threads[d],
            Special::Ctaid(d) => id.block[d],
            Special::Nctaid(d) => id.grid[d],
            Special::LaneId => lane,
            // A place on the multiprocessor: not the number of the warp in its block.
            Special::WarpId => (self.number + 1) % WARPS,
            Special::NWarpId => WARPS,
            Special::SmId => id.sm,
            Special::NSmId => id.sms,
            Special::LaneMask(Compare::Eq) => bit,
            Special::LaneMask(Compare::Lt) => bit - 1,
            Special::LaneMask(Compare::Le) => bit - 1 | bit,
            Special::LaneMask(Compare::Gt) => !(bit - 1 | bit),
            Special::LaneMask(Compare::Ge) => !(bit - 1),
            Special::DynamicSmemSize => id.dynamic_shared,
            Special::TotalSmemSize => id.total_shared,
            Special::EnvReg(1) => (id.workspace >> 32) as u32,
            Special::EnvReg(2) => id.workspace as u32,
            Special::EnvReg(_) => 0,
            Special::ClusterCtaRank => self.rank,
            Special::ClusterNctaRank => id.cluster.iter().product(),
            Special::ClusterCtaid(d) => id.block[d] % id.cluster[d],
            Special::ClusterNctaid(d) => id.cluster[d],
            Special::ClusterId(d) => id.block[d] / id.cluster[d],
            Special::NclusterId(d) => id.grid[d] / id.cluster[d],
        }
    }

    /// Returns the lanes that exist and have not exited.
    pub(crate) fn present(&self) -> u32 {
        self.live & !self.exited
    }

    /// Sends the lanes `taken` to `target`. The others continue, and all reconverge at `join`.
    pub(crate) fn branch(&mut self, taken: u32, target: u32, join: u32) {
        let next = self.now.pc + 1;
        match taken {
            0 => self.now.pc = next,
            _ if taken == self.now.mask => self.now.pc = target,
            _ => self.diverge(&[(target, taken), (next, self.now.mask & !taken)], join),
        }
    }

    /// Splits the running lanes into groups with separate next instructions. The first group runs
    /// first.
    pub(crate) fn diverge(&mut self, groups: &[(u32, u32)], join: u32) {
        if join != self.now.join {
            self.stack.push(WarpFrame {
                pc: join,
                ..self.now
            });
        }
        for &(pc, mask) in groups.iter().rev() {
            self.stack.push(WarpFrame { pc, join, mask });
        }
        self.resume();
    }

    /// Ends the given lanes.
    pub(crate) fn exit(&mut self, lanes: u32) {
        self.exited |= lanes;
        self.now.mask &= !lanes;
        match self.now.mask {
            0 => self.resume(),
            _ => self.now.pc += 1,
        }
    }

    /// Ends the running call for the given lanes.
    pub(crate) fn give_back(&mut self, lanes: u32) {
        self.returned |= lanes;
        self.now.mask &= !lanes;
        match self.now.mask {
            0 => self.resume(),
            _ => self.now.pc += 1,
        }
    }

    /// Continues with waiting lanes. If there are none, the call or the warp has ended and the mask
    /// is empty.
    pub(crate) fn resume(&mut self) {
        self.now.mask = 0;
        let gone = self.exited | self.returned;
        while self.stack.len() > self.floor {
            let Some(mut frame) = self.stack.pop() else {
                return;
            };
            frame.mask &= !gone;
            if frame.mask != 0 && frame.pc != frame.join {
                self.now = frame;
                return;
            }
        }
    }
}
