//! A program for every row of the table, so that tests can print, assemble and execute each. Few build on that, so it
//! is there with the feature `samples` only.

use crate::ir::*;
use crate::isa::{self, Completion, Effect, GridStep, MbarrierStep, Op, Slot};
use crate::tile::{Swizzle, Tile};
use crate::ty::Kind;
use std::panic::Location;

/// A row used once, in a program of its own.
pub struct Sample {
    /// The row.
    pub op: &'static Op,
    /// What its `$t` stands for.
    pub kind: Kind,
    /// The program: one warp, or a warpgroup. Parameter `p` points to [`MEMORY`](Sample::MEMORY) bytes that operands
    /// come from and results go to; `q` is a value for the row that loads parameters; `x`, if it is there, is the map
    /// of a matrix that is its [tile](Program::tile) and begins where `p` points.
    pub program: Program,
}

impl Sample {
    /// Bytes that parameter `p` points to: 16 for each thread of a warpgroup and operand, or result.
    pub const MEMORY: u32 = 128 * 16 * 4;

    /// Whether it needs a tensor map.
    pub fn has_map(&self) -> bool {
        !self.program.tiles.is_empty()
    }
}

/// A sample of every row for every pair of types it allows.
///
/// # Panics
/// If a row and the validator disagree, which the tests of this crate show.
pub fn samples() -> Vec<Sample> {
    isa::all()
        .flat_map(|op| {
            op.instances()
                .map(move |(kind, from)| sample(op, kind, from))
        })
        .collect()
}

/// Bytes of shared memory that a warp has.
const STAGED: u32 = 32 * 16;

/// The box that samples of tensor copies copy: within what the warp has of shared memory.
const TILE: Tile = Tile {
    elem: Kind::F16,
    rows: 8,
    columns: 16,
    swizzle: Swizzle::B32,
    box_rows: 8,
};

/// Threads of a warpgroup, bytes of shared memory of each, and of all: a left matrix of 64 rows of 128 bytes.
const GROUP: u32 = 128;
const OWN: u32 = 64;

/// Where a lane's copy of its shared memory goes, and its results: past the operands, which are at most six.
const SHARED: i32 = 512 * 6;
const RESULTS: i32 = 512 * 7;

/// Where a lane's mbarrier is, past what the lanes have of shared memory: as far apart as that.
const BARRIERS: i32 = 512;

fn sample(op: &'static Op, kind: Kind, from: Option<Kind>) -> Sample {
    let mut s = Writer {
        registers: [0; 5],
        body: vec![],
        next: 0,
    };
    match op.effect {
        _ if op.together == Level::Warpgroup => s.beside_warpgroup(op, kind, from),
        _ if op.form.src.contains(&Slot::Tensor) => s.tensor_copy(op),
        _ => s.plainly(op, kind, from),
    }
    let program = program(op, kind, from, s);
    let program = crate::check::checked(program, vec![])
        .unwrap_or_else(|e| panic!("the sample of {}: {e}", op.id));
    Sample { op, kind, program }
}

/// The program of what was written.
fn program(op: &Op, kind: Kind, from: Option<Kind>, s: Writer) -> Program {
    let suffix = from.map_or(String::new(), |f| format!("_{}", f.name()));
    let param = |name, kind| Param {
        name,
        doc: "",
        kind,
    };
    let q = ParamKind::Scalar(if op.form.src == [Slot::Param] {
        kind
    } else {
        Kind::U32
    });
    let mut params = vec![
        param("p", ParamKind::Buffer(Kind::U32, Access::ReadWrite)),
        param("q", q),
    ];
    let mut tiles = vec![];
    if op
        .form
        .src
        .iter()
        .any(|slot| matches!(slot, Slot::Tensor | Slot::TensorMap))
    {
        params.push(param(
            "x",
            ParamKind::TensorMap(Kind::F16, Access::ReadWrite),
        ));
        tiles.push(("x", TILE));
    }
    let group = op.together == Level::Warpgroup;
    let align = if tiles.is_empty() { 16 } else { 256 };
    let (block, bytes, align) = if group {
        (GROUP, GROUP * OWN, 1024)
    } else {
        (32, STAGED + BARRIERS as u32, align)
    };
    Program {
        name: format!("{}_{}{suffix}", op.id.to_lowercase(), kind.name()),
        block,
        shape: [block, 1, 1],
        // What a warpgroup may ask for depends on what others leave.
        blocks_per_sm: group.then_some(1),
        cluster: 1,
        params,
        boxes: tiles
            .iter()
            .map(|(name, tile): &(_, Tile)| (*name, (*tile).into()))
            .collect(),
        tiles,
        shared: vec![SharedArray {
            name: "s".into(),
            bytes: Some(bytes),
            align,
        }],
        body: StmtBlock {
            stmts: s.body,
            registers: s.registers,
        },
        registers: s.registers,
        pinned: vec![],
        needs: Needs::LEAST,
    }
}

/// Whether copies of the thread's own may be under way after it.
fn leaves_copies(effect: Effect) -> bool {
    matches!(
        effect,
        Effect::Copy(Completion::Group)
            | Effect::CopyGroup
            | Effect::Mbarrier(MbarrierStep::ArriveCopied)
    )
}

struct Writer {
    registers: [u32; 5],
    body: Vec<Stmt>,
    /// Operands made so far: each has its own 512 bytes of memory.
    next: i32,
}

impl Writer {
    /// The row's instruction between what makes its operands and what stores its results.
    fn plainly(&mut self, op: &'static Op, kind: Kind, from: Option<Kind>) {
        let [near, mine] = self.addresses();
        let made = op.effect != Effect::Mbarrier(MbarrierStep::Init);
        let barrier =
            (made && op.form.src.contains(&Slot::Barrier)).then(|| self.barrier(op, near));
        if op.effect == Effect::Copy(Completion::BulkGroup) {
            self.push(&isa::FENCE_ASYNC, Kind::U32, vec![], vec![]);
        }
        if *op == isa::CLUSTER_WAIT {
            self.push(&isa::CLUSTER_ARRIVE, Kind::U32, vec![], vec![]);
        }
        let results = self.instruction(op, kind, from, [near, mine]);
        self.store_all(results, mine, RESULTS);
        if let Some(barrier) = barrier {
            self.settle(op, barrier, mine, near);
        }
        self.finish(op);
        if op.form.src.contains(&Slot::Shared) {
            self.show_shared(near, mine);
        }
    }

    /// Waits for what the row has begun.
    fn finish(&mut self, op: &'static Op) {
        let zero = || {
            vec![Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 0,
            })]
        };
        if op.effect == Effect::Grid(GridStep::Trigger) {
            self.push(&isa::GRID_WAIT, Kind::U32, vec![], vec![]);
        }
        if *op == isa::CLUSTER_ARRIVE || *op == isa::CLUSTER_ARRIVE_RELAXED {
            self.push(&isa::CLUSTER_WAIT, Kind::U32, vec![], vec![]);
        }
        if op.effect == Effect::Copy(Completion::BulkGroup) {
            self.push(&isa::BULK_COMMIT, Kind::U32, vec![], vec![]);
            self.push(&isa::BULK_WAIT, Kind::U32, vec![], zero());
        } else if leaves_copies(op.effect) {
            self.push(&isa::CP_ASYNC_WAIT_ALL, Kind::U32, vec![], vec![]);
        }
    }

    /// A product of a warpgroup on 64 rows of 128 bytes of shared memory; its first eight rows are the right matrix.
    fn beside_warpgroup(&mut self, op: &'static Op, kind: Kind, from: Option<Kind>) {
        let thread = self.reg(Kind::U32);
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![thread],
            vec![Operand::Special("%tid.x", Level::Lane)],
        );
        let mine = self.memory(thread);
        let near = self.shared(thread, OWN);
        self.push(&isa::FENCE_ASYNC, Kind::U32, vec![], vec![]);
        self.push(
            &isa::BAR_SYNC,
            Kind::U32,
            vec![],
            vec![Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 0,
            })],
        );
        let (at, dst) = (Location::caller(), op.form.dst.iter());
        let sums: Vec<Reg> = dst.flat_map(|slot| self.results(*slot, kind)).collect();
        for sum in &sums {
            let zero = Operand::Imm(Imm {
                kind: sum.kind,
                bits: 0,
            });
            self.push(&isa::MOV, sum.kind, vec![*sum], vec![zero]);
        }
        let slots = op.form.src.iter();
        let src: Vec<_> = slots
            .map(|slot| self.operand(*slot, op, kind, from, mine, near))
            .collect();
        if !sums.is_empty() {
            self.push(&isa::WGMMA_FENCE, Kind::U32, vec![], vec![]);
        }
        let dst = sums.clone().into();
        self.body.push(Stmt::Inst(Inst {
            op,
            kind,
            from,
            dst,
            src: src.into(),
            at,
        }));
        if !sums.is_empty() {
            self.push(&isa::WGMMA_COMMIT, Kind::U32, vec![], vec![]);
            self.push(
                &isa::WGMMA_WAIT,
                Kind::U32,
                vec![],
                vec![Operand::Imm(Imm {
                    kind: Kind::U32,
                    bits: 0,
                })],
            );
        }
        self.store_all(sums, mine, Sample::MEMORY as i32 / 2);
    }

    /// A copy of a tile by the first lane, after which each lane shows its part of shared memory.
    fn tensor_copy(&mut self, op: &'static Op) {
        let [near, mine] = self.addresses();
        self.push(&isa::FENCE_ASYNC, Kind::U32, vec![], vec![]);
        self.push(
            &isa::BAR_WARP_SYNC,
            Kind::U32,
            vec![],
            vec![crate::build::full_mask()],
        );
        let (lane, first) = (self.reg(Kind::U32), self.reg(Kind::Pred));
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![lane],
            vec![Operand::Special("%laneid", Level::Lane)],
        );
        let zero = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: 0,
        });
        self.push(
            &isa::SETP_EQ,
            Kind::U32,
            vec![first],
            vec![Operand::Reg(lane), zero.clone()],
        );
        let outer = std::mem::take(&mut self.body);
        let loads = op.form.src.contains(&Slot::Barrier);
        let barrier = loads.then(|| self.barrier(op, near));
        let slots = op.form.src.iter();
        let src = slots
            .map(|slot| self.operand(*slot, op, Kind::U32, None, mine, near))
            .collect();
        self.push(op, Kind::U32, vec![], src);
        match barrier {
            Some(barrier) => self.expect_and_wait(barrier, TILE.bytes()),
            None => self.finish(op),
        }
        let stmts = std::mem::replace(&mut self.body, outer);
        let (body, other) = (
            StmtBlock {
                stmts,
                registers: [0; 5],
            },
            StmtBlock::default(),
        );
        self.body.push(Stmt::If {
            cond: first,
            body,
            other,
            at: Location::caller(),
        });
        self.push(
            &isa::BAR_WARP_SYNC,
            Kind::U32,
            vec![],
            vec![crate::build::full_mask()],
        );
        self.show_shared(near, mine);
    }

    /// Arrives for so many bytes, and waits until they have landed.
    fn expect_and_wait(&mut self, barrier: Operand, bytes: u32) {
        let bytes = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: bytes.into(),
        });
        self.push(
            &isa::MBAR_EXPECT,
            Kind::U32,
            vec![],
            vec![barrier.clone(), bytes],
        );
        self.wait(barrier);
    }

    fn wait(&mut self, barrier: Operand) {
        let (at, landed) = (Location::caller(), self.reg(Kind::Pred));
        let src = [
            barrier,
            Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 0,
            }),
        ]
        .into();
        let wait = Inst {
            op: &isa::MBAR_TRY,
            kind: Kind::U32,
            from: None,
            dst: [landed].into(),
            src,
            at,
        };
        self.body.push(Stmt::Loop {
            cond: vec![Stmt::Inst(wait)],
            exit: landed,
            body: StmtBlock::default(),
            at,
        });
    }

    /// The descriptor of the rows in shared memory that this thread's part is in.
    fn descriptor(&mut self) -> Operand {
        let (symbol, long) = (self.reg(Kind::U32), self.reg(Kind::U64));
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![symbol],
            vec![Operand::Symbol("s".into())],
        );
        let four = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: 4,
        });
        self.push(
            &isa::SHR,
            Kind::U32,
            vec![symbol],
            vec![Operand::Reg(symbol), four],
        );
        let to = Inst {
            op: &isa::CVT_U64,
            kind: Kind::U64,
            from: Some(Kind::U32),
            dst: [long].into(),
            src: [Operand::Reg(symbol)].into(),
            at: Location::caller(),
        };
        self.body.push(Stmt::Inst(to));
        let fixed = Imm {
            kind: Kind::U64,
            bits: 1 << 62 | 64 << 32 | 1 << 16,
        };
        self.push(
            &isa::OR,
            Kind::U64,
            vec![long],
            vec![Operand::Reg(long), Operand::Imm(fixed)],
        );
        Operand::Reg(long)
    }

    /// The generic address of the tensor map.
    fn map(&mut self) -> Reg {
        let (address, generic) = (self.reg(Kind::U64), self.reg(Kind::U64));
        self.push(
            &isa::PARAM_ADDRESS,
            Kind::U64,
            vec![address],
            vec![Operand::Symbol("x".into())],
        );
        self.push(
            &isa::CVTA_PARAM,
            Kind::U64,
            vec![generic],
            vec![Operand::Reg(address)],
        );
        generic
    }

    /// A register with this number.
    fn literal(&mut self, bits: u64) -> Reg {
        let v = self.reg(Kind::U32);
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![v],
            vec![Operand::Imm(Imm {
                kind: Kind::U32,
                bits,
            })],
        );
        v
    }

    fn reg(&mut self, kind: Kind) -> Reg {
        let count = &mut self.registers[kind.class() as usize];
        *count += 1;
        Reg {
            kind,
            depth: 0,
            index: *count - 1,
            n: *count - 1,
        }
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
        let lane = self.reg(Kind::U32);
        let place = Operand::Special("%laneid", Level::Lane);
        self.push(&isa::MOV, Kind::U32, vec![lane], vec![place]);
        let mine = self.memory(lane);
        [self.shared(lane, 16), mine]
    }

    /// The address of this thread's 16 bytes of global memory.
    fn memory(&mut self, thread: Reg) -> Reg {
        let p = self.reg(Kind::U64);
        self.push(
            &isa::LD_PARAM,
            Kind::U64,
            vec![p],
            vec![Operand::Addr(Base::Symbol("p"), 0)],
        );
        let base = self.reg(Kind::U64);
        self.push(
            &isa::CVTA_TO_GLOBAL,
            Kind::U64,
            vec![base],
            vec![Operand::Reg(p)],
        );
        let mine = self.reg(Kind::U64);
        let stride = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: 16,
        });
        self.push(
            &isa::MAD_WIDE,
            Kind::U32,
            vec![mine],
            vec![Operand::Reg(thread), stride, Operand::Reg(base)],
        );
        mine
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
        let src: Vec<Operand> = slots
            .map(|slot| self.operand(*slot, op, kind, from, mine, near))
            .collect();
        let dst: Vec<Reg> = op
            .form
            .dst
            .iter()
            .flat_map(|slot| self.results(*slot, kind))
            .collect();
        let (results, at) = (dst.clone().into(), Location::caller());
        self.body.push(Stmt::Inst(Inst {
            op,
            kind,
            from,
            dst: results,
            src: src.into(),
            at,
        }));
        dst
    }

    /// Stores results one after another.
    fn store_all(&mut self, results: Vec<Reg>, mine: Reg, mut at: i32) {
        for d in results {
            self.store(d, mine, at);
            at += d.kind.bytes().max(1) as i32;
        }
    }

    /// This lane's bytes of shared memory, so many, initialised.
    fn shared(&mut self, lane: Reg, bytes: u32) -> Reg {
        let symbol = self.reg(Kind::U32);
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![symbol],
            vec![Operand::Symbol("s".into())],
        );
        let address = self.reg(Kind::U32);
        let stride = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: bytes.into(),
        });
        self.push(
            &isa::MAD_LO,
            Kind::U32,
            vec![address],
            vec![Operand::Reg(lane), stride, Operand::Reg(symbol)],
        );
        let one = self.reg(Kind::U32);
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![one],
            vec![Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 1,
            })],
        );
        let values = Operand::Group([one; 4].into());
        for at in (0..bytes as i32).step_by(16) {
            let to = Operand::Addr(Base::Reg(address), at);
            self.push(
                &isa::ST_SHARED_V4,
                Kind::U32,
                vec![],
                vec![to, values.clone()],
            );
        }
        address
    }

    /// This lane's mbarrier, which one arrival ends a phase of.
    fn barrier(&mut self, op: &'static Op, near: Reg) -> Operand {
        let address = Operand::Addr(Base::Reg(near), BARRIERS);
        let one = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: 1,
        });
        self.push(
            &isa::MBAR_INIT,
            Kind::U32,
            vec![],
            vec![address.clone(), one],
        );
        if op.sm >= 90 {
            self.push(&isa::FENCE_MBAR_INIT, Kind::U32, vec![], vec![]);
            self.push(&isa::FENCE_ASYNC, Kind::U32, vec![], vec![]);
        }
        address
    }

    /// Ends what the row left under way, so that nothing is when the kernel exits: bytes expected are copied, bytes
    /// copied are expected, and both are waited for.
    fn settle(&mut self, op: &'static Op, barrier: Operand, mine: Reg, near: Reg) {
        let bytes = Operand::Imm(Imm {
            kind: Kind::U32,
            bits: 16,
        });
        let [from, to] = [mine, near].map(|reg| Operand::Addr(Base::Reg(reg), 0));
        if op.effect == Effect::Mbarrier(MbarrierStep::ArriveExpect) {
            self.push(
                &isa::BULK_COPY,
                Kind::U32,
                vec![],
                vec![to, from, bytes, barrier.clone()],
            );
        } else if op.form.src.contains(&Slot::Shared) {
            self.push(
                &isa::MBAR_EXPECT,
                Kind::U32,
                vec![],
                vec![barrier.clone(), bytes],
            );
        } else {
            return;
        }
        self.wait(barrier);
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
            let zero = Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 0,
            });
            self.push(
                &isa::SETP_NE,
                Kind::U32,
                vec![p],
                vec![Operand::Reg(word), zero],
            );
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
        let mask = op.together == Level::Warp && *op != isa::MOVMATRIX;
        match slot {
            // The rank of a block, of which there is one.
            Slot::Is(Kind::U32) if *op == isa::MAPA => Operand::Reg(self.literal(0)),
            Slot::Cluster | Slot::Blocks | Slot::Tensor | Slot::TensorMap | Slot::Descriptor => {
                self.beyond_block(slot, near)
            }
            Slot::ParamName => Operand::Symbol("p".into()),
            Slot::Accumulators(_) => unreachable!("sums are written"),
            // The member mask, or a distance: every lane must name the same.
            Slot::Is(Kind::U32) if mask => Operand::Imm(Imm {
                kind: Kind::U32,
                bits: u32::MAX.into(),
            }),
            // Arrivals of a phase, which have a bound.
            Slot::Is(Kind::U32) if op.effect == Effect::Mbarrier(MbarrierStep::Init) => {
                Operand::Imm(Imm {
                    kind: Kind::U32,
                    bits: 1,
                })
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
            Slot::Parity => Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 1,
            }),
            Slot::Threads => Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 32,
            }),
            Slot::Bytes => Operand::Imm(Imm {
                kind: Kind::U32,
                bits: 16,
            }),
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

    /// An operand of what blocks of a cluster share, of tensors, or of products of warpgroups.
    fn beyond_block(&mut self, slot: Slot, near: Reg) -> Operand {
        match slot {
            Slot::Cluster => {
                let (there, rank) = (self.reg(Kind::U32), self.literal(0));
                let src = vec![Operand::Reg(near), Operand::Reg(rank)];
                self.push(&isa::MAPA, Kind::U32, vec![there], src);
                Operand::Addr(Base::Reg(there), 0)
            }
            Slot::Blocks => {
                let (blocks, one) = (self.reg(Kind::F16), self.literal(1));
                self.push(
                    &isa::CVT_BLOCKS,
                    Kind::U32,
                    vec![blocks],
                    vec![Operand::Reg(one)],
                );
                Operand::Reg(blocks)
            }
            Slot::Tensor => Operand::Tensor([self.map(), self.literal(0), self.literal(0)].into()),
            Slot::TensorMap => Operand::Addr(Base::Reg(self.map()), 0),
            _ => self.descriptor(),
        }
    }

    fn results(&mut self, slot: Slot, kind: Kind) -> Vec<Reg> {
        match slot {
            Slot::Vec(n) => (0..n).map(|_| self.reg(kind)).collect(),
            Slot::Regs(kind, n) => (0..n).map(|_| self.reg(kind)).collect(),
            Slot::Policy => vec![self.reg(Kind::U64)],
            // Eight columns.
            Slot::Accumulators(kind) => (0..4).map(|_| self.reg(kind)).collect(),
            Slot::Blocks => vec![self.reg(Kind::F16)],
            Slot::Halves => (0..2).map(|_| self.reg(Kind::F16)).collect(),
            Slot::Is(kind) => vec![self.reg(kind)],
            Slot::Wide => vec![self.reg(Kind::U64)],
            _ => vec![self.reg(kind)],
        }
    }

    fn store(&mut self, d: Reg, mine: Reg, at: i32) {
        let address = Operand::Addr(Base::Reg(mine), at);
        if d.kind != Kind::Pred {
            return self.push(
                &isa::ST_GLOBAL,
                d.kind,
                vec![],
                vec![address, Operand::Reg(d)],
            );
        }
        let word = self.reg(Kind::U32);
        let (one, zero) = (
            Imm {
                kind: Kind::U32,
                bits: 1,
            },
            Imm {
                kind: Kind::U32,
                bits: 0,
            },
        );
        let src = vec![Operand::Imm(one), Operand::Imm(zero), Operand::Reg(d)];
        self.push(&isa::SELP, Kind::U32, vec![word], src);
        self.push(
            &isa::ST_GLOBAL,
            Kind::U32,
            vec![],
            vec![address, Operand::Reg(word)],
        );
    }

    /// Copies this lane's 16 bytes of shared memory to where a test sees them.
    fn show_shared(&mut self, near: Reg, mine: Reg) {
        let words: Vec<Reg> = (0..4).map(|_| self.reg(Kind::U32)).collect();
        self.push(
            &isa::LD_SHARED_V4,
            Kind::U32,
            words.clone(),
            vec![Operand::Addr(Base::Reg(near), 0)],
        );
        let to = Operand::Addr(Base::Reg(mine), SHARED);
        self.push(
            &isa::ST_GLOBAL_V4,
            Kind::U32,
            vec![],
            vec![to, Operand::Group(words.into())],
        );
    }
}
