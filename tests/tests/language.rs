//! Random programs: ptx-emu must parse the PTX that ptx-gen prints as the same instructions, and
//! compute the same results as Rust.

use proptest::prelude::*;
use ptx_emu::{Launch, Memory, Module, Order, Schedule, Trace, run};
use ptx_gen::*;

/// An operation on the variable of a program, which starts as the index of the thread.
#[derive(Clone, Debug)]
enum Action {
    Add(u32),
    Mul(u32),
    Xor(u32),
    ShiftLeft(u32),
    ShiftRight(u32),
    Min(u32),
    Float(f32),
    Bytes(u32),
    Sum,
    When(u32, Vec<Action>, Vec<Action>),
    Repeat(u32, Vec<Action>),
    Exchange(u32),
}

use Action::*;

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let leaf = prop_oneof![
        any::<u32>().prop_map(Add),
        any::<u32>().prop_map(Mul),
        any::<u32>().prop_map(Xor),
        (0..40u32).prop_map(ShiftLeft),
        (0..40u32).prop_map(ShiftRight),
        any::<u32>().prop_map(Min),
        (-1e6f32..1e6).prop_map(Float),
        (0..=0xffffu32).prop_map(Bytes),
        Just(Sum),
        (1..32u32).prop_map(Exchange),
    ];
    let tree = leaf.prop_recursive(3, 24, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            (0..8u32, several(), several()).prop_map(|(bit, a, b)| When(bit, a, b)),
            (0..4u32, several()).prop_map(|(n, a)| Repeat(n, a)),
        ]
    });
    prop::collection::vec(tree, 0..6)
}

args! {
    /// The result of each thread.
    pub struct ResultArgs {
        /// `[threads]`
        y: Out<u32>,
    }
}

struct Random(Vec<Action>);

const THREADS: usize = 64;

impl KernelDef for Random {
    type Args<S: Side> = ResultArgs<S>;
    fn name(&self) -> String {
        "random".into()
    }
    fn block(&self) -> u32 {
        THREADS as u32
    }
    fn grid(&self, _: &ResultArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: ResultArgs<Dev<'k>>) {
        let tid = k.tid();
        let mut v = k.var(tid);
        emit(k, &mut v, &self.0, true);
        a.y.at(tid).st(&v);
    }
    fn reference(&self, a: ResultArgs<Cpu<'_>>) {
        let mut values: Vec<u32> = (0..THREADS as u32).collect();
        perform(&mut values, &[true; THREADS], &self.0, true);
        a.y.copy_from_slice(&values);
    }
}

/// Emits the actions. Lanes exchange values only where the whole warp is `together`.
fn emit<'k>(k: Builder<'k>, v: &mut Var<'k, u32>, actions: &[Action], together: bool) {
    for action in actions {
        match action {
            Add(c) => *v += *c,
            Mul(c) => *v *= *c,
            Xor(c) => *v ^= *c,
            ShiftLeft(n) => v.set(v.get() << *n),
            ShiftRight(n) => v.set(v.get() >> *n),
            Min(c) => v.set(v.get().min(*c)),
            Float(c) => v.set(v.get().cvt::<f32>().fma(*c, 0.5).bits::<u32>()),
            Bytes(selector) => v.set(v.get().prmt(0x1234_5678, *selector)),
            Sum => v.set(v.get().dp4a(0x0102_0304, 7)),
            Exchange(lanes) if together => v.set(v.get().shfl_bfly(*lanes)),
            Exchange(_) => {}
            When(bit, a, b) => {
                let condition = ((v.get() >> *bit) & 1).eq(1);
                let otherwise = k.when(condition, || emit(k, v, a, false));
                otherwise.otherwise(|| emit(k, v, b, false));
            }
            Repeat(n, a) => k.for_each(0, *n, 1, |_| emit(k, v, a, together)),
        }
    }
}

/// Performs the actions in Rust, on the threads for which `active` is true.
fn perform(values: &mut [u32], active: &[bool], actions: &[Action], together: bool) {
    for action in actions {
        let before = values.to_vec();
        let each = |values: &mut [u32], f: &dyn Fn(usize, u32) -> u32| {
            for (i, v) in values.iter_mut().enumerate().filter(|(i, _)| active[*i]) {
                *v = f(i, *v);
            }
        };
        match action {
            Add(c) => each(values, &|_, v| v.wrapping_add(*c)),
            Mul(c) => each(values, &|_, v| v.wrapping_mul(*c)),
            Xor(c) => each(values, &|_, v| v ^ c),
            ShiftLeft(n) => each(values, &|_, v| v.checked_shl(*n).unwrap_or(0)),
            ShiftRight(n) => each(values, &|_, v| v.checked_shr(*n).unwrap_or(0)),
            Min(c) => each(values, &|_, v| v.min(*c)),
            Float(c) => each(values, &|_, v| (v as f32).mul_add(*c, 0.5).to_bits()),
            Bytes(selector) => each(values, &|_, v| {
                let bytes = [v.to_le_bytes(), 0x1234_5678u32.to_le_bytes()].concat();
                u32::from_le_bytes(std::array::from_fn(|i| {
                    let nibble = selector >> (4 * i) & 15;
                    let byte = bytes[nibble as usize & 7];
                    // The high bit of a nibble asks for the byte's sign eight times over.
                    if nibble & 8 == 0 {
                        byte
                    } else {
                        (byte as i8 >> 7) as u8
                    }
                }))
            }),
            Sum => each(values, &|_, v| {
                v.to_le_bytes()
                    .iter()
                    .zip([4u32, 3, 2, 1])
                    .map(|(b, c)| u32::from(*b) * c)
                    .sum::<u32>()
                    + 7
            }),
            Exchange(lanes) if together => each(values, &|i, _| before[i ^ *lanes as usize]),
            Exchange(_) => {}
            When(bit, a, b) => {
                let takes: Vec<bool> = before.iter().map(|v| v >> bit & 1 == 1).collect();
                let side = |of: bool| -> Vec<bool> {
                    active
                        .iter()
                        .zip(&takes)
                        .map(|(a, t)| *a && *t == of)
                        .collect()
                };
                perform(values, &side(true), a, false);
                perform(values, &side(false), b, false);
            }
            Repeat(n, a) => (0..*n).for_each(|_| perform(values, active, a, together)),
        }
    }
}

/// The instructions of a block in order, as the printer lays out its tree. Labels count from 0 in
/// each block, and name how deep it stands.
fn flat(stmts: &[Stmt], depth: usize, labels: &mut u32, out: &mut Vec<String>) {
    for s in stmts {
        match s {
            Stmt::Note(..) => {}
            Stmt::Inst(i) => out.push(inst(i)),
            Stmt::If {
                cond, body, other, ..
            } if other.is_empty() && is_one(body) => {
                let mut guarded = vec![];
                flat(body, depth + 1, &mut 0, &mut guarded);
                out.push(format!("@{cond} {}", guarded.concat()));
            }
            Stmt::If {
                cond, body, other, ..
            } => {
                let n = next(depth, labels);
                let to = if other.is_empty() { "end" } else { "else" };
                out.push(format!("@!{cond} bra ${to}{n};"));
                flat(body, depth + 1, &mut 0, out);
                if !other.is_empty() {
                    out.push(format!("bra $end{n};"));
                    out.push(format!("$else{n}:"));
                    flat(other, depth + 1, &mut 0, out);
                }

                out.push(format!("$end{n}:"));
            }
            Stmt::Loop {
                cond, exit, body, ..
            } => {
                let (n, mut inner) = (next(depth, labels), 0);
                out.push(format!("$loop{n}:"));
                flat(cond, depth + 1, &mut inner, out);
                out.push(format!("@{exit} bra $done{n};"));
                flat(body, depth + 1, &mut inner, out);
                out.push(format!("bra $loop{n};"));
                out.push(format!("$done{n}:"));
            }
        }
    }
}

/// Whether a branch needs no label: it goes around one instruction, which a guard does as well.
fn is_one(body: &[Stmt]) -> bool {
    matches!(body, [Stmt::Inst(_)])
}

fn next(depth: usize, labels: &mut u32) -> String {
    *labels += 1;
    let n = *labels - 1;
    if depth == 0 {
        n.to_string()
    } else {
        format!("{depth}_{n}")
    }
}

fn stream(program: &Program) -> Vec<String> {
    let mut out = vec![];
    flat(&program.body, 0, &mut 0, &mut out);
    out.push("ret;".into());
    out
}

#[test]
fn shipped_kernels_are_read_as_they_were_meant() {
    for kernel in warpwright_kernels::ALL.iter() {
        let program = kernel.build().unwrap_or_else(|e| panic!("{e}"));
        let oldest = Target::ALL
            .into_iter()
            .find_map(|target| print_with_lines(&program, target).ok());
        let text = oldest.unwrap_or_else(|| panic!("no target has every row of {}", kernel.name()));
        assert_eq!(
            Module::listing(&text).unwrap_or_else(|e| panic!("{e}")),
            stream(&program),
            "{}",
            kernel.name()
        );
    }
}

fn on_emulator(text: &str, seed: u64, order: Order) -> Result<Vec<u32>, String> {
    let module = Module::parse(text)
        .and_then(Module::complete)
        .map_err(|e| e.to_string())?;
    let kernel = module.kernels().next().ok_or("no kernel")?;
    let memory = Memory::new(1 << 20);
    let y = memory
        .alloc(4 * THREADS as u64)
        .map_err(|e| e.to_string())?;
    let params = y.to_le_bytes();
    let block = [THREADS as u32, 1, 1];
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block,
        dynamic_shared: 0,
        params: &params,
    };
    let schedule = Schedule {
        seed,
        order,
        ..Schedule::default()
    };
    run(&memory, &launch, &schedule, Trace::Off).map_err(|e| e.to_string())?;
    let mut bytes = [0; 4 * THREADS];
    memory.read(y, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes
        .as_chunks()
        .0
        .iter()
        .map(|c| u32::from_le_bytes(*c))
        .collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_are_read_and_run_as_they_were_meant(actions in actions(), seed: u64) {
        let kernel = Random(actions);
        let program = kernel.build().map_err(|e| TestCaseError::fail(e.to_string()))?;
        let text = print(&program, Target::ALL[0]).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(Module::listing(&text).map_err(|e| TestCaseError::fail(e.to_string()))?, stream(&program));

        let mut args = [CpuArg::U32(vec![0; THREADS])];
        kernel.reference_on(&mut args).map_err(|e| TestCaseError::fail(e.to_string()))?;
        for order in [Order::InOrder, Order::Reversed, Order::Shuffled] {
            let found = on_emulator(&text, seed, order).map_err(TestCaseError::fail)?;
            prop_assert_eq!(CpuArg::U32(found), args[0].clone(), "{}", text);
        }
    }
}
