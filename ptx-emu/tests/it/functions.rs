//! Device functions: what calls pass, where lanes meet again, and what goes wrong.

use std::sync::Mutex;

use ptx_emu::{
    Class, Fault, KernelError, Launch, LaunchSite, Memory, Module, Order, Print, Schedule, Trace,
    run_at,
};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// What a launch of `k(out)` in one block of 32 threads leaves in 32 words, and prints.
fn launch(text: &str, order: Order, cooperative: u32) -> Result<(Vec<u32>, String), Box<Fault>> {
    let module = Module::parse(&format!("{HEAD}{text}")).and_then(Module::complete);
    let module = module.unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 26);
    let out = memory.alloc(128).expect("there is room");
    memory.fill(out, &[0], 128).expect("it was just allocated");
    let params = out.to_le_bytes();
    let kernel = module.kernel("k").unwrap_or_else(|e| panic!("{e}"));
    let (grid, block) = ([cooperative.max(1), 1, 1], [32, 1, 1]);
    let launch = Launch {
        kernel,
        grid,
        block,
        dynamic_shared: 0,
        params: &params,
    };
    let schedule = Schedule {
        seed: 1,
        order,
        threads: 1,
        fuel: 1 << 20,
    };
    let printed = Mutex::new(String::new());
    let print = |text: &str| printed.lock().expect("nobody panics").push_str(text);
    let site = LaunchSite {
        cooperative: cooperative > 0,
        print: Some(Print(&print)),
        ..LaunchSite::default()
    };
    run_at(&memory, &launch, &schedule, Trace::On, &site)?;
    let mut bytes = [0; 128];
    memory.read(out, &mut bytes).expect("it was allocated");
    let words = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_le_bytes(*w))
        .collect();
    let printed = printed.lock().expect("nobody panics").clone();
    Ok((words, printed))
}

fn words(text: &str) -> Vec<u32> {
    launch(text, Order::Shuffled, 0)
        .unwrap_or_else(|fault| panic!("{fault}"))
        .0
}

/// A kernel that computes `%r` of `%t` with the functions of a text, and stores it.
fn kernel(functions: &str, body: &str) -> String {
    format!(
        "{functions}\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b64 %out, %d<9>;\n.reg .b32 %t, %r, %s<9>;\n.reg .pred %p<4>;\n\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n{body}\n\
         mad.wide.u32 %out, %t, 4, %out;\nst.global.u32 [%out], %r;\nret;\n}}\n"
    )
}

/// `twice(a) = 2 a`, `less(a) = a - 1`, in registers as old compilers call and in memory as new ones do.
const SMALL: &str = "
.func (.param .b32 back) twice(.param .b32 a)
{ .reg .b32 %a; ld.param.u32 %a, [a]; add.u32 %a, %a, %a; st.param.b32 [back], %a; ret; }
.func (.reg .u32 back) less(.reg .u32 a)
{ sub.u32 back, a, 1; ret; }
.func (.param .b32 back) other(.param .b32 a)
{ .reg .b32 %a; ld.param.u32 %a, [a]; add.u32 %a, %a, 100; st.param.b32 [back], %a; ret; }
";

/// Calls `name` with `%t`, and puts what it gives into `%r`.
fn call(name: &str, list: &str) -> String {
    format!(
        "{{\n.param .b32 a0;\nst.param.b32 [a0], %t;\n.param .b32 r0;\n\
         call (r0), {name}, (a0){list};\nld.param.b32 %r, [r0];\n}}\n"
    )
}

#[test]
fn arguments_and_results() {
    let twice = kernel(SMALL, &call("twice", ""));
    assert_eq!(words(&twice), (0..32).map(|t| 2 * t).collect::<Vec<_>>());
    let registers = kernel(SMALL, "call (%r), less, (%t);\ncall (%r), less, (%r);");
    assert_eq!(
        words(&registers),
        (0..32u32).map(|t| t.wrapping_sub(2)).collect::<Vec<_>>()
    );
    let literal = kernel(SMALL, "call (%r), twice, (21);");
    assert_eq!(words(&literal), [42; 32]);
    let aggregate = kernel(
        ".func (.param .align 8 .b8 back[12]) swap(.param .align 8 .b8 a[12])
        { .reg .b32 %a<3>; ld.param.v2.u32 {%a0, %a1}, [a]; ld.param.u32 %a2, [a+8];
          st.param.v2.b32 [back], {%a2, %a1}; st.param.b32 [back+8], %a0; ret; }",
        "{ .param .align 8 .b8 a0[12]; st.param.v2.b32 [a0], {%t, 7}; st.param.b8 [a0+8], 5;
           st.param.b8 [a0+9], 1; st.param.b16 [a0+10], 0;
           .param .align 8 .b8 r0[12]; call (r0), swap, (a0);
           ld.param.v2.b32 {%s0, %s1}, [r0]; ld.param.b32 %s2, [r0+8]; }
         mad.lo.u32 %r, %s0, 1000, %s2; mad.lo.u32 %r, %s1, 1000000, %r;",
    );
    assert_eq!(
        words(&aggregate),
        (0..32).map(|t| 7_000_000 + 261_000 + t).collect::<Vec<_>>()
    );
}

/// Lanes call different functions, one of them from a branch; all meet behind the call, at a barrier.
#[test]
fn lanes_that_call_different_functions_meet_again() {
    let table = format!("{SMALL}\n.global .u64 table[3] = {{twice, other, generic(table)+8}};");
    let body = format!(
        "rem.u32 %s0, %t, 2;\nmov.u64 %d0, table;\nmad.wide.u32 %d0, %s0, 8, %d0;\nld.global.u64 %d1, [%d0];\n\
         setp.lt.u32 %p0, %t, 20;\nmov.u32 %r, 9;\nproto: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
         @!%p0 bra OVER;\n{}OVER:\nbar.sync 0;\nshfl.sync.idx.b32 %s1, %r, 19, 31, -1;\nadd.u32 %r, %r, %s1;",
        call("%d1", ", proto")
    );
    let wanted = |t: u32| match (t < 20, t % 2) {
        (true, 0) => 2 * t,
        (true, _) => t + 100,
        _ => 9,
    };
    let wanted: Vec<u32> = (0..32).map(|t| wanted(t) + 119).collect();
    assert_eq!(words(&kernel(&table, &body)), wanted);
}

/// Lanes return at different places; those that stay run on together, and a predicate guards the call itself.
#[test]
fn lanes_that_return_early_wait_in_the_caller() {
    let early = "
        .func (.param .b32 back) early(.param .b32 a)
        { .reg .b32 %a, %v; .reg .pred %p, %q;
          ld.param.u32 %a, [a];
          setp.lt.u32 %p, %a, 8; setp.lt.u32 %q, %a, 16;
          @%p st.param.b32 [back], 1;
          @%p ret;
          @%q bra SOME;
          mov.u32 %v, 3; bra.uni ALL;
        SOME: mov.u32 %v, 2;
        ALL: activemask.b32 %a; popc.b32 %a, %a; mad.lo.u32 %v, %a, 10, %v;
          st.param.b32 [back], %v; ret; }";
    let body = "setp.ne.u32 %p1, %t, 31; mov.u32 %r, 5;
        { .param .b32 a0; st.param.b32 [a0], %t; .param .b32 r0; st.param.b32 [r0], 77;
          @%p1 call (r0), early, (a0);
          ld.param.b32 %r, [r0]; }
        vote.ballot.sync.b32 %s0, %p1, -1; popc.b32 %s0, %s0; mad.lo.u32 %r, %s0, 1000, %r;";
    let wanted = |t: u32| match t {
        0..8 => 1,
        8..16 => 232,
        16..31 => 233,
        _ => 77,
    };
    assert_eq!(
        words(&kernel(early, body)),
        (0..32).map(|t| 31000 + wanted(t)).collect::<Vec<_>>()
    );
}

const FIBONACCI: &str = "
.func (.param .b32 back) fib(.param .b32 n)
{
    .reg .b32 %n, %a, %b; .reg .pred %p;
    ld.param.u32 %n, [n];
    setp.lt.u32 %p, %n, 2;
    @%p bra SMALL;
    sub.u32 %a, %n, 1;
    { .param .b32 a0; st.param.b32 [a0], %a; .param .b32 r0; call (r0), fib, (a0); ld.param.b32 %b, [r0]; }
    sub.u32 %a, %n, 2;
    { .param .b32 a0; st.param.b32 [a0], %a; .param .b32 r0; call (r0), fib, (a0); ld.param.b32 %a, [r0]; }
    add.u32 %n, %a, %b;
SMALL:
    st.param.b32 [back], %n;
    ret;
}";

#[test]
fn recursion() {
    let text = kernel(
        FIBONACCI,
        &call("fib", "")
            .replace("%t;", "%s0;")
            .replacen('{', "rem.u32 %s0, %t, 9;\n{", 1),
    );
    let fib = |n: usize| [0, 1, 1, 2, 3, 5, 8, 13, 21][n];
    assert_eq!(
        words(&text),
        (0..32).map(|t| fib(t % 9)).collect::<Vec<_>>()
    );
}

/// The first line of a fault, and the calls that led to it.
fn fault(text: &str) -> (Class, String, usize) {
    let fault = launch(text, Order::InOrder, 0).expect_err("it goes wrong");
    (fault.class, fault.what.clone(), fault.calls.len())
}

#[test]
fn what_goes_wrong_in_calls_has_a_name() {
    let endless = kernel(&FIBONACCI.replace("@%p bra SMALL;", ""), &call("fib", ""));
    let (class, what, calls) = fault(&endless);
    assert_eq!(
        (class, what.as_str(), calls),
        (
            Class::StackOverflow,
            "calls are nested deeper than 1024",
            1024
        )
    );
    let null = kernel(
        SMALL,
        &format!(
            "mov.u64 %d1, 0;\nq: .callprototype (.param .b32 _) _ (.param .b32 _);\n{}",
            call("%d1", ", q")
        ),
    );
    let wanted = "a call of 0x0, which is not the address of a function in this module";
    assert_eq!(fault(&null), (Class::BadCall, wanted.into(), 0));
    let listed = kernel(
        SMALL,
        &format!(
            "mov.u64 %d1, other;\nq: .calltargets twice;\n{}",
            call("%d1", ", q")
        ),
    );
    assert_eq!(fault(&listed).0, Class::BadCall);
    let wide = "mov.u64 %d1, twice;\nq: .callprototype _ (.param .b64 _);\n{ .param .b64 a0; st.param.b64 [a0], 1; call %d1, (a0), q; }\nmov.u32 %r, 0;";
    let wanted = "a call of `twice`, whose parameters are others than those that it passes";
    assert_eq!(
        fault(&kernel(SMALL, wide)),
        (Class::BadCall, wanted.into(), 0)
    );
    let silent = SMALL.replace("st.param.b32 [back], %a;", "");
    assert_eq!(
        fault(&kernel(&silent, &call("twice", ""))).0,
        Class::UninitialisedLocal
    );
}

const SYSTEM: &str = "
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);
.global .align 1 .b8 format[24] = {91, 37, 53, 100, 124, 37, 45, 54, 46, 50, 102, 124, 37, 115, 124, 37, 48, 52, 120, 93, 10};
.global .align 1 .b8 word[3] = {104, 105};
";

#[test]
fn printf_prints_lane_by_lane() {
    let body = "
        .local .align 8 .b8 list[32]; .reg .f64 %f;
        mov.u64 %d0, list; cvta.local.u64 %d1, %d0;
        neg.s32 %s0, %t; st.local.u32 [%d0], %s0;
        cvt.rn.f64.u32 %f, %t; div.rn.f64 %f, %f, 0d4010000000000000; st.local.f64 [%d0+8], %f;
        mov.u64 %d2, word; cvta.global.u64 %d2, %d2; st.local.u64 [%d0+16], %d2;
        mov.u32 %s1, 255; st.local.u32 [%d0+24], %s1;
        mov.u64 %d3, format; cvta.global.u64 %d3, %d3; mov.u32 %r, 0;
        setp.gt.u32 %p0, %t, 1; @%p0 bra OVER;
        { .param .b64 a0; st.param.b64 [a0], %d3; .param .b64 a1; st.param.b64 [a1], %d1;
          .param .b32 r0; call.uni (r0), vprintf, (a0, a1); ld.param.b32 %r, [r0]; }
        OVER:";
    let (words, printed) =
        launch(&kernel(SYSTEM, body), Order::InOrder, 0).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(printed, "[    0|0.00  |hi|00ff]\n[   -1|0.25  |hi|00ff]\n");
    assert_eq!(words[..3], [4, 4, 0]);
}

#[test]
fn a_failed_assertion_says_what_it_was() {
    let body =
        "mov.u64 %d0, word; cvta.global.u64 %d0, %d0; setp.ne.u32 %p0, %t, 5; mov.u32 %r, 0; @%p0 bra OVER;
        { .param .b64 a0; st.param.b64 [a0], %d0; .param .b64 a1; st.param.b64 [a1], %d0;
          .param .b32 a2; st.param.b32 [a2], 12; .param .b64 a3; st.param.b64 [a3], %d0;
          .param .b64 a4; st.param.b64 [a4], 1; call.uni __assertfail, (a0, a1, a2, a3, a4); }
        OVER:";
    let fault = launch(&kernel(SYSTEM, body), Order::InOrder, 0).expect_err("it fails");
    assert_eq!((fault.class, fault.thread), (Class::Assertion, [5, 0, 0]));
    assert_eq!(fault.what, "hi:12: hi: assertion `hi` failed");
}

/// `malloc` of 8 bytes to `%d0`.
const MALLOC: &str = "{ .param .b64 a0; st.param.b64 [a0], 8; .param .b64 r0; call.uni (r0), malloc, (a0); ld.param.b64 %d0, [r0]; }\n";
const FREE: &str = "{ .param .b64 a0; st.param.b64 [a0], %d0; call.uni free, (a0); }\n";

#[test]
fn the_heap_is_checked_block_by_block() {
    let right = kernel(
        SYSTEM,
        &format!("{MALLOC}st.u32 [%d0+4], %t;\nld.u32 %r, [%d0+4];\n{FREE}"),
    );
    assert_eq!(words(&right), (0..32).collect::<Vec<_>>());
    for (body, class) in [
        (
            format!("{MALLOC}st.u32 [%d0+8], %t;\nmov.u32 %r, 0;"),
            Class::OutOfBounds,
        ),
        (
            format!("{MALLOC}ld.u32 %r, [%d0];"),
            Class::UninitialisedGlobal,
        ),
        (
            format!("{MALLOC}st.u32 [%d0], %t;\n{FREE}ld.u32 %r, [%d0];"),
            Class::AfterFree,
        ),
        (
            format!("{MALLOC}{FREE}{FREE}mov.u32 %r, 0;"),
            Class::BadFree,
        ),
        (
            format!("mov.u64 %d0, %out;\n{FREE}mov.u32 %r, 0;"),
            Class::BadFree,
        ),
    ] {
        assert_eq!(fault(&kernel(SYSTEM, &body)).0, class, "{body}");
    }
}

/// A function's shared variables belong to the block, and its barrier is that of all threads.
#[test]
fn barriers_and_shared_memory_in_functions() {
    let turn = "
        .func (.param .b32 back) turn(.param .b32 a)
        { .shared .b32 s[32]; .reg .b32 %a, %t, %at;
          ld.param.u32 %a, [a]; mov.u32 %t, %tid.x; shl.b32 %at, %t, 2; mov.u32 %t, s; add.u32 %t, %t, %at;
          st.shared.u32 [%t], %a; bar.sync 0;
          sub.u32 %at, 124, %at; mov.u32 %t, s; add.u32 %t, %t, %at; ld.shared.u32 %a, [%t];
          st.param.b32 [back], %a; ret; }";
    assert_eq!(
        words(&kernel(turn, &call("turn", ""))),
        (0..32).rev().collect::<Vec<_>>()
    );
    let part = kernel(
        turn,
        &format!(
            "mov.u32 %r, 0;\nsetp.lt.u32 %p0, %t, 9;\n@%p0 bra OVER;\n{}OVER:",
            call("turn", "")
        ),
    );
    assert_eq!(fault(&part).0, Class::DivergentBarrier);
}

#[test]
fn memory_of_the_stack() {
    let body = "cvt.u64.u32 %d0, %t; add.u64 %d0, %d0, 1; mul.lo.u64 %d1, %d0, 4;
        stacksave.u64 %d3; alloca.u64 %d2, %d1, 16;
        mad.wide.u32 %d4, %t, 4, %d2; st.local.u32 [%d4], %t; ld.local.u32 %r, [%d4];
        stackrestore.u64 %d3;";
    assert_eq!(words(&kernel("", body)), (0..32).collect::<Vec<_>>());
    let stale = format!("{body}\nld.local.u32 %r, [%d4];");
    assert!(matches!(
        fault(&kernel("", &stale)).0,
        Class::OutOfBounds | Class::UninitialisedLocal
    ));
}

#[test]
fn parameters_are_memory() {
    let body = "mov.b64 %d0, out; ld.param.u64 %d1, [%d0]; cvta.param.u64 %d2, %d0; ld.u32 %s0, [%d2];
        isspacep.param %p0, %d2; isspacep.global %p1, %d2; cvt.u32.u64 %s1, %d1;
        setp.eq.and.u32 %p0, %s0, %s1, %p0; not.pred %p1, %p1; and.pred %p0, %p0, %p1; selp.u32 %r, 1, 0, %p0;
        mov.pred %p2, 1; @!%p2 mov.u32 %r, 9;";
    assert_eq!(words(&kernel("", body)), [1; 32]);
    let short =
        "mov.b32 %s0, out; ld.param.u32 %s1, [%s0]; cvt.u64.u32 %d0, %s0; cvta.param.u64 %d2, %d0;
        ld.u32 %s2, [%d2]; setp.eq.u32 %p0, %s1, %s2; selp.u32 %r, 1, 0, %p0;";
    assert_eq!(words(&kernel("", short)), [1; 32]);
    let written = "mov.b64 %d0, out; cvta.param.u64 %d2, %d0; st.u32 [%d2], %t; mov.u32 %r, 0;";
    assert_eq!(fault(&kernel("", written)).0, Class::ReadOnlySpace);
    let beyond = "mov.b64 %d0, out; ld.param.u32 %r, [%d0+8];";
    assert_eq!(fault(&kernel("", beyond)).0, Class::OutOfBounds);
}

/// The barrier of a cooperative grid, as cooperative groups do it: a counter in memory that the driver gives.
#[test]
fn a_grid_meets_at_the_workspace_of_the_driver() {
    let body = "mov.u32 %s0, %envreg2; mov.u32 %s1, %envreg1; mov.b64 %d0, {%s0, %s1};
        setp.ne.u64 %p0, %d0, 0; @%p0 bra HAS; trap;
        HAS: setp.ne.u32 %p1, %t, 0; @%p1 bra MEET;
        atom.add.acq_rel.gpu.u32 %s2, [%d0+4], 1;
        WAIT: ld.acquire.gpu.u32 %s3, [%d0+4]; setp.lt.u32 %p2, %s3, 3; @%p2 bra WAIT;
        MEET: bar.sync 0; mov.u32 %r, 3;";
    let text = kernel("", body);
    assert_eq!(
        launch(&text, Order::InOrder, 3)
            .unwrap_or_else(|f| panic!("{f}"))
            .0,
        [3; 32]
    );
    assert_eq!(fault(&text).0, Class::Trap);
}

/// The same through the functions of CUDA's device runtime, which a text declares: numba calls them.
#[test]
fn a_grid_meets_in_functions_of_the_device_runtime() {
    let declared = ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 a);
        .extern .func (.param .b32 r) cudaCGSynchronize (.param .b64 a, .param .b32 b);";
    let meet = "call.uni (%s2), cudaCGSynchronize, (%d0, 0);";
    let body = format!(
        "call.uni (%d0), cudaCGGetIntrinsicHandle, (1);
        setp.eq.u32 %p0, %t, 0; @%p0 red.global.add.u32 [%out+64], 1;
        {meet} ld.global.u32 %s0, [%out+64]; {meet}
        @%p0 red.global.add.u32 [%out+64], 1;
        {meet} ld.global.u32 %r, [%out+64]; mad.lo.u32 %r, %s0, 10, %r; {meet}"
    );
    let text = kernel(declared, &body);
    for order in [Order::InOrder, Order::Reversed, Order::Shuffled] {
        assert_eq!(
            launch(&text, order, 3).unwrap_or_else(|f| panic!("{f}")).0,
            [36; 32]
        );
    }

    let alone = kernel(
        declared,
        &format!("call.uni (%d0), cudaCGGetIntrinsicHandle, (1); {meet} mov.u32 %r, %s2;"),
    );
    assert_eq!(words(&alone), [1; 32], "cudaErrorInvalidValue");
    let defined = ".func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 a) { st.param.u64 [r], 7; ret; }";
    let own = kernel(
        defined,
        "call.uni (%d0), cudaCGGetIntrinsicHandle, (1); cvt.u32.u64 %r, %d0;",
    );
    assert_eq!(words(&own), [7; 32]);
}

/// A kernel lacks what the functions that it uses lack, and no more.
#[test]
fn what_functions_lack_is_what_their_callers_lack() {
    let text = format!(
        "{HEAD}.func lacks() {{ tcgen05.fence::before_thread_sync; ret; }}\n\
         .func between() {{ call lacks; ret; }}\n.extern .func elsewhere();\n\
         .entry uses() {{ call between; ret; }}\n.entry free() {{ ret; }}\n.entry asks() {{ call elsewhere; ret; }}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    assert!(module.kernel("free").is_ok());
    let lacks = |name: &str| match module.kernel(name) {
        Err(KernelError::Refused { errors, .. }) => {
            errors.0.iter().map(|e| e.what.clone()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        lacks("uses"),
        ["unsupported in ptx-emu: tcgen05.fence::before_thread_sync"]
    );
    let wanted =
        "unsupported in ptx-emu: call of `elsewhere`, which this text declares and does not define";
    assert_eq!(lacks("asks"), [wanted]);
    assert_eq!(module.errors().len(), 2);
}

/// The place of a fault has the whole chain of calls that were inlined, also before a label.
#[test]
fn the_chain_of_inlined_calls_is_kept() {
    let text = kernel(
        ".file 1 \"a.cu\"\n.file 2 \"b.h\"",
        ".loc 1 10 3\n.loc 2 20 5, function_name $info0, inlined_at 1 10 3\n\
         .loc 2 30 7, function_name $info1+4, inlined_at 2 20 5\n$L_HERE:\ntrap;\nmov.u32 %r, 0;",
    );
    let fault = launch(&text, Order::InOrder, 0).expect_err("it traps");
    let place = fault.place.expect("it has one").to_string();
    assert!(
        place.ends_with("`trap` (b.h:30:7, inlined at b.h:20:5, inlined at a.cu:10:3)"),
        "{place}"
    );
}
