//! What the validator refuses, with the whole message.

use ptx_gen::*;

args! {
    /// The arguments of every kernel here.
    pub struct TestArgs {
        /// `[n]`
        x: In<f32>,
        /// `[n]`
        y: Out<f32>,
        /// Elements.
        n: u32,
    }
}

struct Try {
    name: &'static str,
    block: u32,
    blocks_per_sm: Option<u32>,
    program: for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>),
}

impl KernelDef for Try {
    type Args<S: Side> = TestArgs<S>;
    fn name(&self) -> String {
        self.name.into()
    }
    fn block(&self) -> u32 {
        self.block
    }
    fn blocks_per_sm(&self) -> Option<u32> {
        self.blocks_per_sm
    }
    fn grid(&self, a: &TestArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(a.x == a.y, || {
            format!("x has {} elements, y {}; they must have the same", a.x, a.y)
        })?;
        Ok(Grid::line(a.n))
    }
    fn program<'k>(&self, k: Builder<'k>, a: TestArgs<Dev<'k>>) {
        (self.program)(k, a)
    }
    fn reference(&self, a: TestArgs<Cpu<'_>>) {
        a.y.copy_from_slice(a.x);
    }
}

/// The errors, without the path before the file's name and the line.
fn errors(program: for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>)) -> Vec<String> {
    errors_of(Try {
        name: "t",
        block: 64,
        blocks_per_sm: None,
        program,
    })
}

fn errors_of(t: Try) -> Vec<String> {
    match t.build() {
        Ok(_) => vec![],
        Err(Errors(errors)) => errors
            .iter()
            .map(|e| match e.at {
                Some(_) => e
                    .to_string()
                    .split_once(": ")
                    .expect("a place")
                    .1
                    .to_string(),
                None => e.to_string(),
            })
            .map(|e| without_numbers(&e))
            .collect(),
    }
}

/// `(line 12)` and `of line 12` as `line _`: the tests do not depend on where they stand in the file.
fn without_numbers(e: &str) -> String {
    match e.split_once("line ") {
        Some((before, after)) => {
            format!(
                "{before}line _{}",
                after.trim_start_matches(|c: char| c.is_ascii_digit())
            )
        }
        None => e.to_string(),
    }
}

#[test]
fn a_value_stays_in_its_block() {
    let found = errors(|k, a| {
        let mut inner = None;
        k.when(k.tid().lt(3), || inner = Some(a.x.ld()));
        a.y.st(inner.expect("the closure ran"));
    });
    assert_eq!(
        found,
        ["%f1_0 is used outside the block that defines it (line _): carry it out in a `var`"]
    );
}

#[test]
fn a_loop_does_not_leak_either() {
    let found = errors(|k, a| {
        let mut inner = None;
        k.for_each(0, a.n, 1, |i| inner = Some(a.x.at(i).ld()));
        a.y.st(inner.expect("the closure ran"));
    });
    assert_eq!(found.len(), 1);
}

#[test]
fn a_barrier_is_for_the_whole_block() {
    let split = "`bar.sync` needs the whole block, but the branch of line _ splits it; move it out, or branch on a \
                 value that is the same in the whole block";
    assert_eq!(
        errors(|k, _| {
            k.when(k.tid().lt(3), || k.barrier());
        }),
        [split]
    );
    assert_eq!(
        errors(|k, _| {
            k.when(k.warp().lt(1), || k.barrier());
        }),
        [split]
    );
    assert_eq!(
        errors(|k, a| {
            k.when(a.n.lt(3), || k.barrier());
        }),
        [] as [&str; 0]
    );
    assert_eq!(
        errors(|k, a| k.for_each(k.tid(), a.n, 64, |_| k.barrier())),
        [split]
    );
    assert_eq!(
        errors(|k, a| k.for_each(0, a.n, 64, |_| k.barrier())),
        [] as [&str; 0]
    );
}

#[test]
fn lanes_get_their_own_parts_of_a_matrix() {
    let found = errors(|k, _| {
        let [part, _] = k.shared::<f16>("matrices", 128).ldmatrix2();
        k.when(part.lt(3), || k.barrier());
    });
    assert_eq!(
        found.len(),
        1,
        "the address is the same in every lane, the result is not: {found:?}"
    );
}

#[test]
fn a_shuffle_is_for_the_whole_warp() {
    let found = errors(|k, a| {
        let v = a.x.ld();
        k.when(k.lane().lt(3), || a.y.st(v.shfl_bfly(1)));
    });
    assert_eq!(
        found,
        [
            "`shfl.sync.bfly.b32` needs the whole warp, but the branch of line _ splits it; move it out, or branch on \
          a value that is the same in the whole warp"
        ]
    );
    let warp_wide = errors(|k, a| {
        let v = a.x.ld();
        k.when(k.warp().lt(1), || a.y.st(v.shfl_bfly(1)));
    });
    assert_eq!(warp_wide, [] as [&str; 0]);
}

#[test]
fn a_variable_that_a_loop_narrows_is_seen_narrow_from_the_start() {
    let found = errors(|k, a| {
        let mut bound = k.var::<u32>(4);
        k.for_each(0, a.n, 1, |_| {
            k.when(bound.get().lt(2), || k.barrier());
            bound.set(k.tid());
        });
    });
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn ptx_is_ascii() {
    let found = errors(|k, _| k.note("\u{3a3} x"));
    assert_eq!(
        found,
        ["the note is not ASCII, which PTX requires for comments: rewrite it in ASCII"]
    );
    assert_eq!(errors(|k, _| k.note("two\nlines")).len(), 1);
}

#[test]
fn names_and_limits() {
    let nothing: for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>) = |_, _| {};
    assert_eq!(
        errors_of(Try {
            name: "two words",
            block: 64,
            blocks_per_sm: None,
            program: nothing
        }),
        [
            "`two words` is not a PTX name: use a letter or underscore, then letters, digits, underscores and dollar \
          signs, at most 255 characters"
        ]
    );
    assert_eq!(
        errors_of(Try {
            name: "t",
            block: 48,
            blocks_per_sm: None,
            program: nothing
        }),
        ["t: 48 threads in a block: expected a multiple of 32 from 32 to 1024"]
    );
    assert_eq!(
        errors_of(Try {
            name: "t",
            block: 64,
            blocks_per_sm: Some(17),
            program: nothing
        }),
        ["t: 1088 threads requested per multiprocessor: expected 1 to 1024"]
    );
    assert_eq!(
        errors(|k, _| {
            let _ = k.shared::<f32>("big", 12289);
        }),
        [
            "t: 49156 bytes of static shared memory: expected at most 49152, use dynamic shared memory for more"
        ]
    );
}

#[test]
fn all_errors_come_at_once() {
    let found = errors(|k, _| {
        k.note("\u{e9}");
        k.when(k.tid().lt(3), || {
            k.barrier();
            k.barrier();
        });
    });
    assert_eq!(found.len(), 3);
}

#[test]
fn arguments_are_checked_before_the_contract() {
    let t = Try {
        name: "t",
        block: 64,
        blocks_per_sm: None,
        program: |_, _| {},
    };
    let shape = |args: &[ShapeArg]| t.geometry(args).map_err(|e| e.to_string());
    use ShapeArg::{Len, Scalar};
    assert_eq!(
        shape(&[Len(3), Len(3), Scalar(3)]),
        Ok(Geometry {
            grid: [3, 1, 1],
            block: [64, 1, 1],
            shared: 0
        })
    );
    assert_eq!(shape(&[Len(3)]), Err("t: takes 3 arguments, not 1".into()));
    assert_eq!(
        shape(&[Len(3), Scalar(3), Scalar(3)]),
        Err("t: argument y is a buffer of f32".into())
    );
    assert_eq!(
        shape(&[Len(3), Len(3), Len(3)]),
        Err("t: argument n is a u32 value, not a buffer".into())
    );
    assert_eq!(
        shape(&[Len(3), Len(4), Scalar(3)]),
        Err("t: x has 3 elements, y 4; they must have the same".into())
    );
    assert_eq!(
        shape(&[Len(3), Len(3), Scalar(0)]),
        Err("t: the grid 0 x 1 x 1 is empty".into())
    );
    let mut args = [
        CpuArg::F32(vec![1.0]),
        CpuArg::U32(vec![0]),
        CpuArg::scalar(1u32),
    ];
    assert_eq!(
        t.reference_on(&mut args).map_err(|e| e.to_string()),
        Err("t: argument y is a buffer of f32".into())
    );
}

#[test]
fn an_old_target_is_refused() {
    let t = Try {
        name: "t",
        block: 64,
        blocks_per_sm: None,
        program: |_, a| a.y.cast::<u32>().st(a.n.redux_add()),
    };
    let program = t.build().expect("valid");
    let e = print(&program, Target::named("sm_75").expect("a target")).expect_err("redux is sm_80");
    assert_eq!(e.to_string(), "t needs sm_80 or newer, not sm_75");
}

#[test]
fn every_block_of_an_overlapping_kernel_waits() {
    let fine = [
        errors(|k, _| k.grid_wait()),
        errors(|k, _| {
            k.grid_trigger();
            k.when(k.warp().eq(0), || k.trap())
                .otherwise(|| k.grid_wait());
        }),
        errors(|k, _| {
            k.when(k.ctaid().eq(0), || k.grid_wait());
            k.grid_wait();
        }),
    ];
    assert!(fine.iter().all(Vec::is_empty), "{fine:?}");
    let never = errors(|k, _| k.grid_trigger());
    assert_eq!(
        never,
        [
            "t: lets the next kernel start early but never waits for the one before, so the next one cannot rely on it; \
          call `grid_wait` in every block"
        ]
    );
    let maybe = "a block may end without this `griddepcontrol.wait`, and the next kernel relies on every block for the \
                 kernels before; move it out of the branch or loop";
    let branch = errors(|k, _| {
        k.when(k.ctaid().eq(0), || k.grid_wait());
    });
    assert_eq!(branch, [maybe]);
    assert_eq!(
        errors(|k, a| k.for_each(0, a.n, 1, |_| k.grid_wait())),
        [maybe]
    );
}

#[test]
fn an_else_stands_beside_its_if() {
    let wanted =
        "this `otherwise` is in a different block than its `when`; write it right after the `when`";
    let deeper = errors(|k, a| {
        let first = k.when(k.tid().lt(3), || a.y.st(1.0));
        k.when(k.tid().lt(5), || first.otherwise(|| a.y.st(2.0)));
    });
    assert_eq!(deeper, [wanted]);
    let outside = errors(|k, a| {
        let mut inner = None;
        k.when(k.tid().lt(3), || {
            inner = Some(k.when(a.n.lt(3), || a.y.st(1.0)))
        });
        inner.unwrap().otherwise(|| a.y.st(2.0));
    });
    assert_eq!(outside, [wanted]);
}

#[test]
fn an_else_is_its_ifs_whatever_stands_between() {
    let program = Try {
        name: "t",
        block: 64,
        blocks_per_sm: None,
        program: |k, a| {
            let branch = k.when(a.n.lt(3), || a.y.st(1.0));
            k.when(a.n.gt(7), || a.y.st(3.0));
            k.note("between");
            branch.otherwise(|| a.y.st(2.0));
        },
    };
    let text = print(&program.build().unwrap(), Target::named("sm_75").unwrap()).unwrap();
    let at = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("{what} in {text}"))
    };
    let [one, two, three] = ["0f3F800000", "0f40000000", "0f40400000"].map(at);
    assert!(one < two && two < three, "{text}");
}
