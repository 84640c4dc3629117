//! Mbarriers whose counts cannot match, with the whole message; and what a program reads by `ld.global.nc`.

use ptx_gen::*;

args! {
    /// The arguments of every kernel here.
    pub struct TestArgs {
        /// `[n]`
        x: In<u8>,
        /// `[n]`
        y: In<f32>,
        /// `[n]`
        z: InOut<f32>,
        /// Elements.
        n: u32,
    }
}

type Written = for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>);

struct Try(Written);

impl KernelDef for Try {
    type Args<S: Side> = TestArgs<S>;
    fn name(&self) -> String {
        "t".into()
    }
    fn block(&self) -> u32 {
        64
    }
    fn grid(&self, _: &TestArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: TestArgs<Dev<'k>>) {
        (self.0)(k, a)
    }
    fn reference(&self, _: TestArgs<Cpu<'_>>) {}
}

/// A row that the table does not have, as somebody might add it: the checks know it by what it states.
static LD_NC_V8: isa::Op = isa::Op {
    id: "LD_NC_V8",
    template: "ld.global.nc.v8.$m",
    types: &[Kind::F32],
    from: &[],
    form: isa::Form {
        dst: &[isa::Slot::Vec(8)],
        src: &[isa::Slot::Global],
    },
    sm: 100,
    specific: false,
    version: Version(8, 8),
    together: Level::Lane,
    effect: isa::Effect::Load(isa::StateSpace::Global, isa::MemoryOrder::Noncoherent),
    accuracy: isa::Accuracy::Exact,
    doc: "load eight elements that no thread of the kernel writes",
};

/// The errors, without their places.
fn errors(program: Written) -> Vec<String> {
    let Err(Errors(errors)) = Try(program).build() else {
        return vec![];
    };
    let text = |e: &BuildError| {
        e.to_string()
            .split_once(": ")
            .expect("a place")
            .1
            .to_string()
    };
    errors.iter().map(text).collect()
}

/// The barrier at 8 times `i`.
fn at<'k>(k: Builder<'k>, i: impl Src<'k, u32>) -> Mbarrier<'k> {
    k.shared::<u64>("barriers", 8).row(i, 8).mbarrier()
}

/// A copy of `n` bytes that `landed` counts.
fn copy<'k>(k: Builder<'k>, a: &TestArgs<Dev<'k>>, landed: Mbarrier<'k>) {
    a.x.bulk_copy(k.shared::<u8>("stage", 256), a.n, landed, k.evict_first());
}

const NONE: [&str; 0] = [];

#[test]
fn a_barrier_is_made_in_the_kernel() {
    assert_eq!(
        errors(|k, _| {
            let (a, b) = (k.shared::<u64>("a", 2), k.shared::<u64>("b", 2));
            a.mbarrier().init(64);
            a.at(1).mbarrier().arrive();
            b.mbarrier().wait(0);
        }),
        [
            "`mbarrier.arrive.shared.b64 _, [%r1+8];`: this mbarrier is never initialized; call `init` in one thread, before a \
             barrier of the block",
            "`mbarrier.try_wait.parity.shared::cta.b64 %p1_0, [%r2], 0;`: this mbarrier is never initialized; call `init` in one \
             thread, before a barrier of the block",
        ]
    );
    for count in [0, 1 << 20] {
        let found = match count {
            0 => errors(|k, _| at(k, 0).init(0)),
            _ => errors(|k, _| at(k, 0).init(1 << 20)),
        };
        assert_eq!(
            found,
            [format!(
                "`mbarrier.init.shared.b64 [%r1], {count};`: invalid count {count}: an mbarrier counts 1 to 1048575 arrivals"
            )]
        );
    }
}

#[test]
fn somebody_arrives_where_somebody_waits() {
    let nobody = "`mbarrier.test_wait.parity.shared.b64 %p1_0, [%r1+8], 0;`: no thread arrives at this mbarrier, so its \
                  first phase never ends; call `arrive`";
    assert_eq!(
        errors(|k, _| {
            let barriers = k.shared::<u64>("barriers", 2);
            let [full, empty] = [0, 1].map(|i| barriers.at(i).mbarrier());
            full.init(64);
            empty.init(1);
            full.arrive();
            empty.wait_polling(0);
        }),
        [nobody]
    );
    // A new barrier has had the phase of parity 1.
    assert_eq!(
        errors(|k, _| {
            let barrier = at(k, 0);
            barrier.init(1);
            barrier.wait(1);
        }),
        NONE
    );
}

#[test]
fn enough_arrive_to_end_a_phase() {
    assert_eq!(
        errors(|k, _| {
            let barrier = at(k, 0);
            barrier.init(129);
            barrier.arrive();
            k.when(k.tid().eq(0), || barrier.arrive());
            barrier.wait(0);
        }),
        [
            "`mbarrier.try_wait.parity.shared::cta.b64 %p1_0, [%r1], 0;`: at most 128 threads arrive at this mbarrier, but \
             its first phase ends after 129; `init` it with the number that arrive"
        ]
    );
    let fine: [Written; 3] = [
        |k, _| {
            let barrier = at(k, 0);
            barrier.init(128);
            barrier.arrive();
            barrier.arrive();
            barrier.wait(0);
        },
        |k, a| {
            let barrier = at(k, 0);
            barrier.init(129);
            k.for_each(0, a.n, 1, |_| barrier.arrive());
            barrier.wait(0);
        },
        |k, a| {
            let barrier = at(k, 0);
            barrier.init(a.n);
            barrier.arrive();
            barrier.wait(0);
        },
    ];
    for program in fine {
        assert_eq!(errors(program), NONE);
    }
}

#[test]
fn a_warp_is_more_than_one() {
    assert_eq!(
        errors(|k, _| {
            let barrier = at(k, 0);
            barrier.init(1);
            k.when(k.warp().eq(1), || barrier.arrive());
            barrier.wait(0);
        }),
        [
            "`mbarrier.arrive.shared.b64 _, [%r1];`: 32 lanes arrive together at an mbarrier whose phase ends \
             after 1; let one lane arrive, or `init` it with 32 per warp"
        ]
    );
    let fine: [Written; 4] = [
        // One lane.
        |k, _| {
            let barrier = at(k, 0);
            barrier.init(1);
            k.when(k.tid().eq(0), || barrier.arrive());
            barrier.wait(0);
        },
        // A barrier for each lane.
        |k, _| {
            let barrier = k.shared::<u64>("barriers", 64).at(k.tid()).mbarrier();
            barrier.init(1);
            barrier.arrive();
            barrier.wait(0);
        },
        // Two warps, each counted.
        |k, _| {
            let barrier = at(k, 0);
            barrier.init(64);
            barrier.arrive();
            barrier.wait(0);
        },
        // One of two, of which one is for a warp.
        |k, a| {
            let base = k.shared::<u64>("barriers", 2);
            base.mbarrier().init(1);
            base.at(1).mbarrier().init(32);
            base.at(a.n).mbarrier().arrive();
            base.mbarrier().wait(0);
        },
    ];
    for program in fine {
        assert_eq!(errors(program), NONE);
    }
}

#[test]
fn bytes_are_expected_and_copied() {
    assert_eq!(
        errors(|k, a| {
            let barrier = at(k, 0);
            barrier.init(1);
            k.when(k.tid().eq(0), || barrier.arrive_expect(a.n));
            barrier.wait(0);
        }),
        [
            "`mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r0;`: no bulk copy brings bytes to this mbarrier, so \
             its phase never ends; call `arrive` instead"
        ]
    );
    assert_eq!(
        errors(|k, a| {
            let barrier = at(k, 0);
            barrier.init(1);
            k.when(k.tid().eq(0), || {
                barrier.arrive();
                copy(k, &a, barrier);
            });
            barrier.wait(0);
        }),
        [
            "`cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1_0], [%rd1], %r0, \
             [%r1], %rd1_0;`: the bytes of this copy are not expected, so the phase of its mbarrier does not \
             wait for them; call `arrive_expect`"
        ]
    );
    assert_eq!(
        errors(|k, a| {
            let barrier = at(k, 0);
            barrier.init(1);
            k.when(k.tid().eq(0), || {
                barrier.arrive_expect(a.n);
                copy(k, &a, barrier);
            });
            barrier.wait(0);
        }),
        NONE
    );
}

/// A ring as kernels have it: what is known of its addresses is the array they are in.
fn ring<'k>(k: Builder<'k>, a: &TestArgs<Dev<'k>>, freed: bool) {
    let base = k.dynamic_shared::<u64>("memory");
    let [full, empty] = [0, 4].map(|at| move |slot: U32<'k>| base.at(at).at(slot).mbarrier());
    k.when(k.tid().eq(0), || {
        k.for_each(0, 4, 1, |slot| {
            full(slot).init(1);
            empty(slot).init(32);
        });
        k.fence_mbarriers();
    });
    k.barrier();
    k.when(k.warp().eq(0), || {
        k.for_each(0, a.n, 1, |i| {
            empty(i & 3).wait(((i >> 2) & 1) ^ 1);
            k.when(k.elect(), || {
                full(i & 3).arrive_expect(a.n);
                copy(k, a, full(i & 3));
            });
        });
    })
    .otherwise(|| {
        k.for_each(0, a.n, 1, |i| {
            full(i & 3).wait((i >> 2) & 1);
            if freed {
                empty(i & 3).arrive();
            }
        });
    });
}

#[test]
fn a_ring_is_left_to_the_emulator() {
    assert_eq!(errors(|k, a| ring(k, &a, true)), NONE);
    // What is missing is at an address known only later: the array has other arrivals.
    assert_eq!(errors(|k, a| ring(k, &a, false)), NONE);
}

#[test]
fn dynamic_arrays_are_one_memory() {
    assert_eq!(
        errors(|k, _| {
            k.dynamic_shared::<u64>("a").mbarrier().init(64);
            let other = k.dynamic_shared::<u64>("b").mbarrier();
            other.arrive();
            other.wait(0);
        }),
        NONE
    );
}

#[test]
fn a_wait_is_found_where_it_was_written() {
    let line = line!() + 3;
    let program: Written = |k, _| {
        at(k, 0).init(1);
        at(k, 0).wait(0);
    };
    let Err(Errors(errors)) = Try(program).build() else {
        panic!("two barriers, one of them not made")
    };

    let places: Vec<u32> = errors
        .iter()
        .filter_map(|e| e.at)
        .map(|at| at.line())
        .collect();
    assert_eq!(places, [line]);
    assert!(
        errors[0]
            .at
            .is_some_and(|at| at.file().ends_with("barriers.rs"))
    );
}

fn noncoherent(program: Written) -> Vec<&'static str> {
    Try(program)
        .build()
        .expect("valid")
        .noncoherent()
        .into_iter()
        .collect()
}

#[test]
fn what_is_read_past_coherence_is_known_by_name() {
    assert_eq!(noncoherent(|_, a| a.z.st(a.y.ld())), ["y"]);
    assert_eq!(
        noncoherent(|k, a| a
            .z
            .at(k.tid())
            .st(a.x.cast::<f32>().row(a.n, 4).stream().ld())),
        ["x"]
    );
    let both: Written = |k, a| {
        let mut i = k.var(0);
        k.for_each(0, a.n, 1, |j| {
            let byte = a.x.at(&i).at(j).ld();
            i.set(byte);
        });
        let [low, high] = a.y.at(&i).ld2();
        a.z.st(low + high);
    };
    assert_eq!(noncoherent(both), ["x", "y"]);

    // Read for others to write meanwhile, read and written, copied past the cache, or only written.
    assert_eq!(noncoherent(|_, a| a.z.st(a.y.fresh().ld())), NONE);
    assert_eq!(noncoherent(|_, a| a.z.st(a.z.at(1).ld())), NONE);
    assert_eq!(noncoherent(|k, a| a.x.copy16(k.shared("stage", 16))), NONE);
    assert_eq!(noncoherent(|_, a| a.z.st(1.0)), NONE);
}

#[test]
fn a_row_that_is_added_is_seen_by_what_it_states() {
    let mut program = Try(|_, a| a.z.st(a.y.fresh().ld())).build().expect("valid");
    assert_eq!(program.noncoherent().into_iter().collect::<Vec<_>>(), NONE);
    for statement in &mut program.body.stmts {
        if let Stmt::Inst(inst) = statement
            && *inst.op == isa::LD_RELAXED
        {
            inst.op = &LD_NC_V8;
        }
    }

    assert_eq!(program.noncoherent().into_iter().collect::<Vec<_>>(), ["y"]);
}
