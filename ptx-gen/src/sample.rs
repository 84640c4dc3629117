//! A program for every row of the instruction table, so that tests can print, assemble and run each
//! one.
//!
//! Only the feature `samples` compiles this module, because few users need it.

use crate::ir::*;
use crate::isa::{self, Completion, Effect, GridStep, MbarrierStep, Op, Slot};
use crate::tile::{Swizzle, Tile};
use crate::ty::Kind;
use std::panic::Location;

/// A program that uses one row of the instruction table.
pub struct Sample {
    /// The row.
    pub op: &'static Op,
    /// The type for the placeholder `$t`.
    pub kind: Kind,
    /// The program, which runs in one warp or one warpgroup.
    ///
    /// Parameter `p` points to [`MEMORY`](Sample::MEMORY) bytes for operands and results. Parameter
    /// `q` is a scalar for the row that loads parameters. Parameter `x`, if present, is a tensor
    /// map for the [tile](Program::tile) of a matrix that begins at `p`.
    pub program: Program,
}

impl Sample {
    /// The size of the buffer `p` in bytes: 16 for each thread of a warpgroup and each operand or
    /// result.
    pub const MEMORY: u32 = 128 * 16 * 4;

    /// Returns true if the program has a tensor map.
    pub fn has_map(&self) -> bool {
        !self.program.tiles.is_empty()
    }
}

/// Returns a sample of every row for every pair of types that it allows.
///
/// # Panics
/// Panics if validation rejects the sample of a row. The tests of this crate show that it accepts
/// all.
pub fn samples() -> Vec<Sample> {
    isa::all()
        .flat_map(|op| {
            op.instances()
                .map(move |(kind, from)| sample(op, kind, from))
        })
        .collect()
}

/// The size of a warp's shared memory in bytes.
const STAGED: u32 = 32 * 16;

/// The box that samples of tensor copies use. It fits into the shared memory of a warp.
const TILE: Tile = Tile {
    elem: Kind::F16,
    rows: 8,
    columns: 16,
    swizzle: Swizzle::B32,
    box_rows: 8,
};

/// The number of threads in a warpgroup.
const GROUP: u32 = 128;
/// The bytes of shared memory of each thread of a warpgroup. Together they hold a left matrix of 64
/// rows of 128 bytes.
const OWN: u32 = 64;

/// The offset at which a lane writes a copy of its shared memory, after at most six operands.
const SHARED: i32 = 512 * 6;
/// The offset at which a lane writes its results.
const RESULTS: i32 = 512 * 7;

/// The offset of a lane's mbarrier from its shared memory, which is beyond the memory of all lanes.
const BARRIERS: i32 = 512;

fn sample(op: &'static Op, kind: Kind, from: Option<Kind>) -> Sample {
    let mut s = SampleWriter {
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

/// Returns the program with the body of `s`.
fn program(op: &Op, kind: Kind, from: Option<Kind>, s: SampleWriter) -> Program {
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
        // `setmaxnreg` needs to know the registers at launch, which depend on the blocks per
        // multiprocessor.
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

/// Returns true if copies of the thread may be in flight after an instruction with this effect.
fn leaves_copies(effect: Effect) -> bool {
    matches!(
        effect,
        Effect::Copy(Completion::Group)
            | Effect::CopyGroup
            | Effect::Mbarrier(MbarrierStep::ArriveCopied)
    )
}

struct SampleWriter {
    registers: [u32; 5],
    body: Vec<Stmt>,
    /// The number of operands so far, each of which has 512 bytes of memory.
    next: i32,
}

/// Returns a literal operand of type `u32`.
fn imm(bits: impl Into<u64>) -> Operand {
    Operand::Imm(Imm {
        kind: Kind::U32,
        bits: bits.into(),
    })
}

impl SampleWriter {
    /// Writes the instruction of a row between loads of its operands and stores of its results.
    fn plainly(&mut self, op: &'static Op, kind: Kind, from: Option<Kind>) {
        let [near, mine] = self.addresses();

        // `mbarrier.init` itself must not find an initialized barrier.
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

    /// Waits for everything that the row has started.
    fn finish(&mut self, op: &'static Op) {
        let zero = || vec![imm(0u32)];
        if op.effect == Effect::Grid(GridStep::Trigger) {
            self.push(&isa::GRID_WAIT, Kind::U32, vec![], vec![]);
        }

        // Every arrival at the barrier of the cluster needs a wait before the thread exits.
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

    /// Writes a matmul of a warpgroup on 64 rows of 128 bytes of shared memory. The first eight
    /// rows are also the right matrix.
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
        self.push(&isa::BAR_SYNC, Kind::U32, vec![], vec![imm(0u32)]);
        let at = Location::caller();
        let dst = op.form.dst.iter();
        let sums: Vec<Reg> = dst.flat_map(|slot| self.results(*slot, kind)).collect();

        // The matmul reads its accumulators, so they need a value.
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
            self.push(&isa::WGMMA_WAIT, Kind::U32, vec![], vec![imm(0u32)]);
        }

        self.store_all(sums, mine, Sample::MEMORY as i32 / 2);
    }

    /// Writes a copy of a tile by the first lane, after which each lane stores its share of shared
    /// memory.
    fn tensor_copy(&mut self, op: &'static Op) {
        let [near, mine] = self.addresses();
        self.push(&isa::FENCE_ASYNC, Kind::U32, vec![], vec![]);
        self.push(
            &isa::BAR_WARP_SYNC,
            Kind::U32,
            vec![],
            vec![crate::build::full_mask()],
        );
        let lane = self.reg(Kind::U32);
        let first = self.reg(Kind::Pred);

        // The copy is issued once, so its instructions go into a branch of the first lane.
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![lane],
            vec![Operand::Special("%laneid", Level::Lane)],
        );
        let zero = imm(0u32);
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
        self.body.push(Stmt::If {
            cond: first,
            body: StmtBlock {
                stmts,
                registers: [0; 5],
            },
            other: StmtBlock::default(),
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

    /// Arrives, expects `bytes` bytes, and waits until they have arrived.
    fn expect_and_wait(&mut self, barrier: Operand, bytes: u32) {
        let bytes = imm(bytes);
        self.push(
            &isa::MBAR_EXPECT,
            Kind::U32,
            vec![],
            vec![barrier.clone(), bytes],
        );
        self.wait(barrier);
    }

    fn wait(&mut self, barrier: Operand) {
        let at = Location::caller();
        let landed = self.reg(Kind::Pred);
        let src = [barrier, imm(0u32)].into();
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

    /// Returns the descriptor of the rows in shared memory.
    fn descriptor(&mut self) -> Operand {
        let symbol = self.reg(Kind::U32);
        let long = self.reg(Kind::U64);
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![symbol],
            vec![Operand::Symbol("s".into())],
        );
        let four = imm(4u32);
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

        // A swizzle of 128 bytes, a stride of 1024 bytes between groups of eight rows, and the
        // leading offset that the swizzle fixes.
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

    /// Returns the generic address of the tensor map.
    fn map(&mut self) -> Reg {
        let address = self.reg(Kind::U64);
        let generic = self.reg(Kind::U64);
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

    /// Returns a register that holds `bits`.
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

    /// Returns the addresses of this lane's shared memory and of the global memory with its
    /// operands.
    fn addresses(&mut self) -> [Reg; 2] {
        let lane = self.reg(Kind::U32);
        let place = Operand::Special("%laneid", Level::Lane);
        self.push(&isa::MOV, Kind::U32, vec![lane], vec![place]);
        let mine = self.memory(lane);
        [self.shared(lane, 16), mine]
    }

    /// Returns the address of this thread's 16 bytes of global memory.
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
        let stride = imm(16u32);
        self.push(
            &isa::MAD_WIDE,
            Kind::U32,
            vec![mine],
            vec![Operand::Reg(thread), stride, Operand::Reg(base)],
        );
        mine
    }

    /// Writes the instruction of the row on operands from memory. Returns its results.
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
        let results = dst.clone().into();
        let at = Location::caller();
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

    /// Initializes this lane's `bytes` bytes of shared memory and returns their address.
    fn shared(&mut self, lane: Reg, bytes: u32) -> Reg {
        let symbol = self.reg(Kind::U32);
        self.push(
            &isa::MOV,
            Kind::U32,
            vec![symbol],
            vec![Operand::Symbol("s".into())],
        );
        let address = self.reg(Kind::U32);
        let stride = imm(bytes);
        self.push(
            &isa::MAD_LO,
            Kind::U32,
            vec![address],
            vec![Operand::Reg(lane), stride, Operand::Reg(symbol)],
        );
        let one = self.reg(Kind::U32);
        self.push(&isa::MOV, Kind::U32, vec![one], vec![imm(1u32)]);

        // Rows that load shared memory must not read uninitialized bytes.
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

    /// Initializes this lane's mbarrier with a count of 1 and returns its address.
    fn barrier(&mut self, op: &'static Op, near: Reg) -> Operand {
        let address = Operand::Addr(Base::Reg(near), BARRIERS);
        let one = imm(1u32);
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

    /// Completes everything that the row has left pending, so that the kernel can exit.
    ///
    /// Expected bytes are copied, copied bytes are expected, and both are waited for.
    fn settle(&mut self, op: &'static Op, barrier: Operand, mine: Reg, near: Reg) {
        let bytes = imm(16u32);
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

    /// Returns the registers of a fragment, loaded from four words of memory each.
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

    /// Returns a register of this type, loaded from memory.
    fn value(&mut self, kind: Kind, mine: Reg) -> Reg {
        let address = Operand::Addr(Base::Reg(mine), 512 * self.next);
        self.next += 1;
        if kind == Kind::Pred {
            let word = self.reg(Kind::U32);
            self.push(&isa::LD_GLOBAL, Kind::U32, vec![word], vec![address]);
            let p = self.reg(Kind::Pred);
            let zero = imm(0u32);
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
            // The rank of a block: without clusters there is only rank 0.
            Slot::Is(Kind::U32) if *op == isa::MAPA => Operand::Reg(self.literal(0)),
            Slot::Cluster | Slot::Blocks | Slot::Tensor | Slot::TensorMap | Slot::Descriptor => {
                self.beyond_block(slot, near)
            }
            Slot::ParamName => Operand::Symbol("p".into()),
            Slot::Accumulators(_) => unreachable!("accumulators are only written"),
            // A member mask or a distance, which must be the same in every lane.
            Slot::Is(Kind::U32) if mask => imm(u32::MAX),
            // The number of arrivals is limited, so it is not loaded from memory.
            Slot::Is(Kind::U32) if op.effect == Effect::Mbarrier(MbarrierStep::Init) => imm(1u32),
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
            Slot::Parity => imm(1u32),
            Slot::Threads => imm(32u32),
            Slot::Bytes => imm(16u32),
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

    /// Returns an operand for memory of the cluster, a tensor, or a matmul of a warpgroup.
    fn beyond_block(&mut self, slot: Slot, near: Reg) -> Operand {
        match slot {
            Slot::Cluster => {
                let there = self.reg(Kind::U32);
                let rank = self.literal(0);
                let src = vec![Operand::Reg(near), Operand::Reg(rank)];
                self.push(&isa::MAPA, Kind::U32, vec![there], src);
                Operand::Addr(Base::Reg(there), 0)
            }
            Slot::Blocks => {
                let blocks = self.reg(Kind::F16);
                let one = self.literal(1);
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
            // Four registers per lane are eight columns.
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
        let src = vec![imm(1u32), imm(0u32), Operand::Reg(d)];
        self.push(&isa::SELP, Kind::U32, vec![word], src);
        self.push(
            &isa::ST_GLOBAL,
            Kind::U32,
            vec![],
            vec![address, Operand::Reg(word)],
        );
    }

    /// Copies this lane's 16 bytes of shared memory to global memory, where a test can read them.
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
