//! A program for every row of the table, so that tests can print, assemble and execute each.

use crate::ir::*;
use crate::isa::{self, Completion, Effect, GridStep, MbarrierStep, Op, Slot};
use crate::ty::Kind;
use std::panic::Location;

/// A row used once, in a program of its own.
pub struct Sample {
    /// The row.
    pub op: &'static Op,
    /// What its `$t` stands for.
    pub kind: Kind,
    /// The program: one warp. Parameter `p` points to 4 KiB that operands come from and results go to; `q` is a
    /// value for the row that loads parameters.
    pub program: Program,
}

/// A sample of every row for every pair of types it allows.
///
/// # Panics
/// If a row and the validator disagree, which the tests of this crate show.
pub fn samples() -> Vec<Sample> {
    isa::all().flat_map(|op| op.instances().map(move |(kind, from)| sample(op, kind, from))).collect()
}

/// Bytes of memory that parameter `p` of a sample points to: 16 for each of the warp's lanes and operands.
const MEMORY: u32 = 32 * 16 * 8;

/// Where a lane's copy of its shared memory goes, and its results: past the operands, which are at most six.
const SHARED: i32 = 512 * 6;
const RESULTS: i32 = 512 * 7;

/// Where a lane's mbarrier is, past what the lanes have of shared memory: as far apart as that.
const BARRIERS: i32 = 512;

fn sample(op: &'static Op, kind: Kind, from: Option<Kind>) -> Sample {
    let mut s = Writer { registers: [0; 5], body: vec![], next: 0 };
    let [near, mine] = s.addresses();
    let made = op.effect != Effect::Mbarrier(MbarrierStep::Init);
    let barrier = (made && op.form.src.contains(&Slot::Barrier)).then(|| s.barrier(op, near));
    let results = s.instruction(op, kind, from, [near, mine]);
    s.store_all(results, mine);
    if let Some(barrier) = barrier {
        s.settle(op, barrier, mine, near);
    }
    if op.effect == Effect::Grid(GridStep::Trigger) {
        s.push(&isa::GRID_WAIT, Kind::U32, vec![], vec![]);
    }
    if leaves_copies(op.effect) {
        s.push(&isa::CP_ASYNC_WAIT_ALL, Kind::U32, vec![], vec![]);
    }
    if op.form.src.contains(&Slot::Shared) {
        s.show_shared(near, mine);
    }
    let program = program(op, kind, from, s);
    let program =
        crate::check::checked(program, vec![]).unwrap_or_else(|e| panic!("the sample of {}: {e}", op.id));
    Sample { op, kind, program }
}

/// The program of what was written.
fn program(op: &Op, kind: Kind, from: Option<Kind>, s: Writer) -> Program {
    let suffix = from.map_or(String::new(), |f| format!("_{}", f.name()));
    let param = |name, kind| Param { name, doc: "", kind };
    let q = ParamKind::Scalar(if op.form.src == [Slot::Param] { kind } else { Kind::U32 });
    Program {
        name: format!("{}_{}{suffix}", op.id.to_lowercase(), kind.name()),
        block: 32,
        blocks_per_sm: None,
        params: vec![param("p", ParamKind::Buffer(Kind::U32, Access::ReadWrite)), param("q", q)],
        shared: vec![SharedArray { name: "s".into(), bytes: Some(MEMORY / 8 + BARRIERS as u32) }],
        body: Block { stmts: s.body, registers: s.registers },
        registers: s.registers,
        pinned: vec![],
        needs: Needs::LEAST,
    }
}

/// Whether copies of the thread's own may be under way after it.
fn leaves_copies(effect: Effect) -> bool {
    matches!(
        effect,
        Effect::Copy(Completion::Group) | Effect::CopyGroup | Effect::Mbarrier(MbarrierStep::ArriveCopied)
    )
}

struct Writer {
    registers: [u32; 5],
    body: Vec<Stmt>,
    /// Operands made so far: each has its own 512 bytes of memory.
    next: i32,
}

impl Writer {
    fn reg(&mut self, kind: Kind) -> Reg {
        let count = &mut self.registers[kind.class() as usize];
        *count += 1;
        Reg { kind, depth: 0, index: *count - 1, n: *count - 1 }
    }

    #[track_caller]
    fn push(&mut self, op: &'static Op, kind: Kind, dst: Vec<Reg>, src: Vec<Operand>) {
        self.body.push(Stmt::Inst(Inst {
            op,
            kind,
            from: None,
            dst: dst.into(),
            src: src.into(),
            at: Location::caller(),
        }))
    }

    /// The addresses of this lane's memory: shared, and global from which operands are loaded.
    fn addresses(&mut self) -> [Reg; 2] {
        let p = self.reg(Kind::U64);
        self.push(&isa::LD_PARAM, Kind::U64, vec![p], vec![Operand::Addr(Base::Symbol("p"), 0)]);
        let base = self.reg(Kind::U64);
        self.push(&isa::CVTA_TO_GLOBAL, Kind::U64, vec![base], vec![Operand::Reg(p)]);
        let lane = self.reg(Kind::U32);
        self.push(&isa::MOV, Kind::U32, vec![lane], vec![Operand::Special("%laneid", Level::Lane)]);
        let mine = self.reg(Kind::U64);
        let stride = Operand::Imm(Imm { kind: Kind::U32, bits: 16 });
        self.push(
            &isa::MAD_WIDE,
            Kind::U32,
            vec![mine],
            vec![Operand::Reg(lane), stride, Operand::Reg(base)],
        );
        [self.shared(lane), mine]
    }

    /// The row's instruction on operands from memory. Returns its results.
    fn instruction(
        &mut self,
        op: &'static Op,
        kind: Kind,
        from: Option<Kind>,
        [near, mine]: [Reg; 2],
    ) -> Vec<Reg> {
        let slots = op.form.src.iter();
        let src: Vec<Operand> = slots.map(|slot| self.operand(*slot, op, kind, from, mine, near)).collect();
        let dst: Vec<Reg> = op.form.dst.iter().flat_map(|slot| self.results(*slot, kind)).collect();
        let (results, at) = (dst.clone().into(), Location::caller());
        self.body.push(Stmt::Inst(Inst { op, kind, from, dst: results, src: src.into(), at }));
        dst
    }

    /// Stores results one after another.
    fn store_all(&mut self, results: Vec<Reg>, mine: Reg) {
        let mut at = RESULTS;
        for d in results {
            self.store(d, mine, at);
            at += d.kind.bytes().max(1) as i32;
        }
    }

    /// This lane's 16 bytes of shared memory, initialised.
    fn shared(&mut self, lane: Reg) -> Reg {
        let symbol = self.reg(Kind::U32);
        self.push(&isa::MOV, Kind::U32, vec![symbol], vec![Operand::Symbol("s".into())]);
        let address = self.reg(Kind::U32);
        let stride = Operand::Imm(Imm { kind: Kind::U32, bits: 16 });
        self.push(
            &isa::MAD_LO,
            Kind::U32,
            vec![address],
            vec![Operand::Reg(lane), stride, Operand::Reg(symbol)],
        );
        let one = self.reg(Kind::U32);
        self.push(&isa::MOV, Kind::U32, vec![one], vec![Operand::Imm(Imm { kind: Kind::U32, bits: 1 })]);
        let values = Operand::Group([one; 4].into());
        self.push(&isa::ST_SHARED_V4, Kind::U32, vec![], vec![Operand::Addr(Base::Reg(address), 0), values]);
        address
    }

    /// This lane's mbarrier, which one arrival ends a phase of.
    fn barrier(&mut self, op: &'static Op, near: Reg) -> Operand {
        let address = Operand::Addr(Base::Reg(near), BARRIERS);
        let one = Operand::Imm(Imm { kind: Kind::U32, bits: 1 });
        self.push(&isa::MBAR_INIT, Kind::U32, vec![], vec![address.clone(), one]);
        if op.sm >= 90 {
            self.push(&isa::FENCE_MBAR_INIT, Kind::U32, vec![], vec![]);
            self.push(&isa::FENCE_ASYNC, Kind::U32, vec![], vec![]);
        }
        address
    }

    /// Ends what the row left under way, so that nothing is when the kernel exits: bytes expected are copied, bytes
    /// copied are expected, and both are waited for.
    fn settle(&mut self, op: &'static Op, barrier: Operand, mine: Reg, near: Reg) {
        let bytes = Operand::Imm(Imm { kind: Kind::U32, bits: 16 });
        let [from, to] = [mine, near].map(|reg| Operand::Addr(Base::Reg(reg), 0));
        if op.effect == Effect::Mbarrier(MbarrierStep::ArriveExpect) {
            self.push(&isa::BULK_COPY, Kind::U32, vec![], vec![to, from, bytes, barrier.clone()]);
        } else if op.form.src.contains(&Slot::Shared) {
            self.push(&isa::MBAR_EXPECT, Kind::U32, vec![], vec![barrier.clone(), bytes]);
        } else {
            return;
        }
        let (at, landed) = (Location::caller(), self.reg(Kind::Pred));
        let src = [barrier, Operand::Imm(Imm { kind: Kind::U32, bits: 0 })].into();
        let wait = Inst { op: &isa::MBAR_TRY, kind: Kind::U32, from: None, dst: [landed].into(), src, at };
        self.body.push(Stmt::Loop { cond: vec![Stmt::Inst(wait)], exit: landed, body: Block::default(), at });
    }

    /// Registers of a fragment: four words of memory each, so that a fragment is one operand.
    fn registers(&mut self, kind: Kind, n: u32, mine: Reg) -> Operand {
        let at = 512 * self.next;
        self.next += 1;
        let word = |s: &mut Self, i: u32| {
            let v = s.reg(kind);
            let address = Operand::Addr(Base::Reg(mine), at + 4 * i as i32);
            s.push(&isa::LD_GLOBAL, kind, vec![v], vec![address]);
            v
        };
        Operand::Group((0..n).map(|i| word(self, i)).collect())
    }

    /// A register of this kind, loaded from memory.
    fn value(&mut self, kind: Kind, mine: Reg) -> Reg {
        let address = Operand::Addr(Base::Reg(mine), 512 * self.next);
        self.next += 1;
        if kind == Kind::Pred {
            let word = self.reg(Kind::U32);
            self.push(&isa::LD_GLOBAL, Kind::U32, vec![word], vec![address]);
            let p = self.reg(Kind::Pred);
            let zero = Operand::Imm(Imm { kind: Kind::U32, bits: 0 });
            self.push(&isa::SETP_NE, Kind::U32, vec![p], vec![Operand::Reg(word), zero]);
            return p;
        }
        let v = self.reg(kind);
        self.push(&isa::LD_GLOBAL, kind, vec![v], vec![address]);
        v
    }

    fn operand(
        &mut self,
        slot: Slot,
        op: &'static Op,
        kind: Kind,
        from: Option<Kind>,
        mine: Reg,
        near: Reg,
    ) -> Operand {
        let mask = op.together == Level::Warp;
        match slot {
            // The member mask, or a distance: every lane must name the same.
            Slot::Is(Kind::U32) if mask => Operand::Imm(Imm { kind: Kind::U32, bits: u32::MAX.into() }),
            // Arrivals of a phase, which have a bound.
            Slot::Is(Kind::U32) if op.effect == Effect::Mbarrier(MbarrierStep::Init) => {
                Operand::Imm(Imm { kind: Kind::U32, bits: 1 })
            }
            Slot::Is(kind) => Operand::Reg(self.value(kind, mine)),
            Slot::T | Slot::Any => Operand::Reg(self.value(kind, mine)),
            Slot::S => Operand::Reg(self.value(from.unwrap_or(kind), mine)),
            Slot::Wide => Operand::Reg(self.value(Kind::U64, mine)),
            Slot::Lit(low, high) => Operand::Imm(Imm {
                kind: Kind::U32,
                bits: u64::from(if low > 0 { low } else { high.min(31) }),
            }),
            Slot::Vec(n) => Operand::Group((0..n).map(|_| self.value(kind, mine)).collect()),
            Slot::Regs(kind, n) => self.registers(kind, n, mine),
            Slot::Barrier => Operand::Addr(Base::Reg(near), BARRIERS),
            Slot::Parity => Operand::Imm(Imm { kind: Kind::U32, bits: 1 }),
            Slot::Threads => Operand::Imm(Imm { kind: Kind::U32, bits: 32 }),
            Slot::Bytes => Operand::Imm(Imm { kind: Kind::U32, bits: 16 }),
            Slot::Policy => {
                let policy = self.reg(Kind::U64);
                self.push(&isa::POLICY_FIRST, Kind::U32, vec![policy], vec![]);
                Operand::Reg(policy)
            }
            Slot::Halves => Operand::Group((0..2).map(|_| self.value(Kind::F16, mine)).collect()),
            Slot::Global => Operand::Addr(Base::Reg(mine), 0),
            Slot::Shared => Operand::Addr(Base::Reg(near), 0),
            Slot::Param => Operand::Addr(Base::Symbol("q"), 0),
        }
    }

    fn results(&mut self, slot: Slot, kind: Kind) -> Vec<Reg> {
        match slot {
            Slot::Vec(n) => (0..n).map(|_| self.reg(kind)).collect(),
            Slot::Regs(kind, n) => (0..n).map(|_| self.reg(kind)).collect(),
            Slot::Policy => vec![self.reg(Kind::U64)],
            Slot::Halves => (0..2).map(|_| self.reg(Kind::F16)).collect(),
            Slot::Is(kind) => vec![self.reg(kind)],
            Slot::Wide => vec![self.reg(Kind::U64)],
            _ => vec![self.reg(kind)],
        }
    }

    fn store(&mut self, d: Reg, mine: Reg, at: i32) {
        let address = Operand::Addr(Base::Reg(mine), at);
        if d.kind != Kind::Pred {
            return self.push(&isa::ST_GLOBAL, d.kind, vec![], vec![address, Operand::Reg(d)]);
        }
        let word = self.reg(Kind::U32);
        let (one, zero) = (Imm { kind: Kind::U32, bits: 1 }, Imm { kind: Kind::U32, bits: 0 });
        let src = vec![Operand::Imm(one), Operand::Imm(zero), Operand::Reg(d)];
        self.push(&isa::SELP, Kind::U32, vec![word], src);
        self.push(&isa::ST_GLOBAL, Kind::U32, vec![], vec![address, Operand::Reg(word)]);
    }

    /// Copies this lane's 16 bytes of shared memory to where a test sees them.
    fn show_shared(&mut self, near: Reg, mine: Reg) {
        let words: Vec<Reg> = (0..4).map(|_| self.reg(Kind::U32)).collect();
        self.push(&isa::LD_SHARED_V4, Kind::U32, words.clone(), vec![Operand::Addr(Base::Reg(near), 0)]);
        let to = Operand::Addr(Base::Reg(mine), SHARED);
        self.push(&isa::ST_GLOBAL_V4, Kind::U32, vec![], vec![to, Operand::Group(words.into())]);
    }
}
