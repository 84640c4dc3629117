//! A naive computation of levels that walks each loop until nothing changes.
//!
//! The test compares the optimized walk with it on random programs whose loops carry variables
//! through one another.

use super::per_register::PerRegister;
use super::walk;
use crate::build::{Builder, BuilderState, Var};
use crate::ir::*;
use crate::isa;
use crate::ty::Kind;

/// Levels in program order, and the number of barriers in divergent code.
struct Naive {
    levels: PerRegister<Level>,
    split: usize,
    changed: bool,
}

impl Naive {
    fn walk(&mut self, stmts: &[Stmt], around: Level) {
        for s in stmts {
            match s {
                Stmt::Note(..) => {}
                Stmt::Inst(i) => {
                    self.split += usize::from(around > i.op.together);
                    self.changed |= result(i, around, &mut self.levels);
                }
                Stmt::If {
                    cond, body, other, ..
                } => {
                    let around = around.max(*self.levels.at(cond));
                    self.walk(body, around);
                    self.walk(other, around);
                }
                Stmt::Loop {
                    cond, exit, body, ..
                } => self.cycle(cond, exit, body, around),
            }
        }
    }

    fn cycle(&mut self, cond: &[Stmt], exit: &Reg, body: &[Stmt], around: Level) {
        let split = self.split;
        let outer = std::mem::take(&mut self.changed);
        let inner = around.max(*self.levels.at(exit));
        self.walk(cond, inner);
        let inner = around.max(*self.levels.at(exit));
        self.walk(body, inner);
        if std::mem::replace(&mut self.changed, true) {
            self.split = split;
            self.cycle(cond, exit, body, around);
        } else {
            self.changed = outer;
        }
    }
}

fn result(i: &Inst, around: Level, levels: &mut PerRegister<Level>) -> bool {
    let operand = |o: &Operand| match o {
        Operand::Reg(r) => *levels.at(r),
        Operand::Special(_, level) => *level,
        _ => Level::Block,
    };
    let level = i.src.iter().map(operand).fold(around, Level::max);
    let Some(d) = i.dst.first().map(|d| levels.at(d)) else {
        return false;
    };

    let changed = level > *d;
    *d = level.max(*d);
    changed
}

/// A xorshift random number generator.
struct XorshiftRandom(u64);

impl XorshiftRandom {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

/// Emits a few random statements over these variables.
fn write(k: Builder<'_>, vars: &[Reg], pred: Reg, random: &mut XorshiftRandom, depth: usize) {
    for _ in 0..3 + random.below(4) {
        let [a, b, c] = [0; 3].map(|_| vars[random.below(vars.len())]);
        let before = random.below(8);
        let less = || {
            match before {
                0 => k.barrier(),
                1 => k.inst(&isa::MOV, Kind::U32, None, [c], [Operand::Reg(a)]),
                _ => {}
            }
            let less = k.of::<u32>(b).lt(k.of::<u32>(c));
            if before == 2 { k.of(pred) } else { less }
        };
        match random.below(13) {
            0 => k.inst(
                &isa::MOV,
                Kind::U32,
                None,
                [a],
                [Operand::Special("%tid.x", Level::Lane)],
            ),
            1 => k.inst(
                &isa::MOV,
                Kind::U32,
                None,
                [a],
                [Operand::Special("%ctaid.x", Level::Block)],
            ),
            2 => k.barrier(),
            3 | 4 if depth > 0 => drop(k.when(less(), || write(k, vars, pred, random, depth - 1))),
            5..8 if depth > 0 => k.repeat(less, || write(k, vars, pred, random, depth - 1)),
            9 => k.inst(
                &isa::SETP_LT,
                Kind::U32,
                None,
                [pred],
                [Operand::Reg(b), Operand::Reg(c)],
            ),
            8 => k.inst(
                &isa::ADD,
                Kind::U32,
                None,
                [a],
                [Operand::Reg(b), Operand::Reg(c)],
            ),
            _ => k.inst(&isa::MOV, Kind::U32, None, [a], [Operand::Reg(b)]),
        }
    }
}

fn program(seed: u64) -> Program {
    let state = BuilderState::new();
    let k = Builder::new(&state);
    let vars: [Var<'_, u32>; 6] = std::array::from_fn(|_| k.var(0u32));
    let pred = vars[0].0.lt(&vars[1]).reg;
    write(
        k,
        &vars.map(|v| v.0.reg),
        pred,
        &mut XorshiftRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        4,
    );
    let BuilderState {
        registers,
        pinned,
        mut open,
        ..
    } = state.take();
    Program {
        name: "random".into(),
        block: 64,
        shape: [64, 1, 1],
        blocks_per_sm: None,
        cluster: 1,
        params: vec![],
        tiles: vec![],
        boxes: vec![],
        shared: vec![],
        body: open.pop().unwrap_or_default(),
        registers,
        pinned,
        needs: Needs::LEAST,
    }
}

#[test]
fn the_walk_finds_the_levels_and_the_errors_of_the_naive_one() {
    let mut barriers = 0;
    for seed in 1..3000 {
        let p = program(seed);
        let mut naive = Naive {
            levels: PerRegister::new(&p, Level::Block),
            split: 0,
            changed: false,
        };
        naive.walk(&p.body, Level::Block);
        let (mut found, split) = walk::levels(&p);
        assert_eq!(split, naive.split, "barriers of program {seed}");
        for kind in [Kind::U32, Kind::Pred] {
            for n in 0..p.registers[kind.class() as usize] {
                let reg = Reg {
                    kind,
                    depth: 0,
                    index: 0,
                    n,
                };
                assert_eq!(
                    found.at(&reg).level,
                    *naive.levels.at(&reg),
                    "program {seed}, {kind:?} {n}"
                );
            }
        }

        barriers += split;
    }
    assert!(
        barriers > 1000,
        "only {barriers} barriers stand where threads are apart"
    );
}
