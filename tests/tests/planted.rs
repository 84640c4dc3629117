//! Checks that bugs planted in kernels are reported with the Rust line that contains them.
//!
//! A store out of bounds and a missing edge are planted in the tests of the driver crate.

use ptx_emu::{Class, Fault, Launch, Memory, Module, Order, Schedule, Trace, run};
use ptx_gen::*;

args! {
    /// The result of each thread.
    pub struct ReverseArgs {
        /// `[64]`
        y: Out<u32>,
    }
}

/// Reverses 64 numbers through shared memory, with or without the barrier that takes.
struct Reverse {
    barrier: bool,
}

/// The line below that reads a value which another warp wrote.
const READ: u32 = 38;

impl KernelDef for Reverse {
    type Args<S: Side> = ReverseArgs<S>;
    fn name(&self) -> String {
        "reverse".into()
    }
    fn block(&self) -> u32 {
        64
    }
    fn program<'k>(&self, k: Builder<'k>, a: ReverseArgs<Dev<'k>>) {
        let (tid, line) = (k.tid(), k.shared::<u32>("line", 64));
        line.at(tid).st(tid);
        if self.barrier {
            k.barrier();
        }
        let other = line.at(k.val(63) - tid).ld();
        a.y.at(tid).st(other);
    }
    fn grid(&self, _: &ReverseArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn reference(&self, a: ReverseArgs<Cpu<'_>>) {
        a.y.iter_mut().rev().zip(0..).for_each(|(y, i)| *y = i);
    }
}

fn reversed(kernel: &Reverse, order: Order) -> Result<Vec<u8>, Box<Fault>> {
    let text = print_with_lines(&kernel.build().expect("valid"), Target::ALL[0]).expect("sm_75");
    let module = Module::parse(&text).expect("PTX");
    let memory = Memory::new(1 << 20);
    let y = memory.alloc(256).expect("memory");
    let (kernel, params) = (
        module.kernel("reverse").expect("the kernel"),
        y.to_le_bytes(),
    );
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block: [64, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    run(
        &memory,
        &launch,
        &Schedule {
            order,
            ..Schedule::default()
        },
        Trace::Off,
    )?;
    let mut bytes = vec![0; 256];
    memory.read(y, &mut bytes).expect("read");
    Ok(bytes)
}

#[test]
fn a_forgotten_barrier_is_a_race_with_a_name_and_a_place() {
    for order in [Order::InOrder, Order::Reversed, Order::Shuffled] {
        let fault = reversed(&Reverse { barrier: false }, order).expect_err("a race");
        assert!(
            matches!(fault.class, Class::SharedRace | Class::UninitialisedShared),
            "{fault}"
        );
        assert_eq!(fault.kernel, "reverse");
        let rust = fault
            .place
            .as_ref()
            .and_then(|p| p.rust.clone())
            .expect("a Rust place");
        assert!(rust.file.ends_with("planted.rs"), "{fault}");
        assert_eq!(rust.line, READ, "{fault}");
    }
}

#[test]
fn with_the_barrier_there_is_none() {
    let expected: Vec<u8> = (0..64u32).rev().flat_map(u32::to_le_bytes).collect();
    for order in [Order::InOrder, Order::Reversed, Order::Shuffled] {
        assert_eq!(
            reversed(&Reverse { barrier: true }, order).expect("no fault"),
            expected
        );
    }
}
