//! Declarations: attributes, functions without a size of their last parameter, and errors that concern only their users.

use ptx_emu::{ErrorKind, Launch, Memory, Module, Order, Schedule, Trace, run};

const HEAD: &str = ".version 8.3\n.target sm_90\n.address_size 64\n";

/// A kernel `k(out)` that stores the value of an expression of instructions, left in `%r`.
fn storing(name: &str, body: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 out) {{ .reg .b32 %r; .reg .b64 %o, %a; ld.param.u64 %o, [out]; {body} \
         st.global.u32 [%o], %r; ret; }}\n"
    )
}

/// Runs kernel `name` and returns the word that it stores.
fn stored(module: &Module, name: &str) -> u32 {
    let kernel = module.kernel(name).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 20);
    let out = memory.alloc(4).expect("there is room");
    let params = out.to_le_bytes();
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 0,
        params: &params,
    };
    let schedule = Schedule {
        threads: 1,
        fuel: 1 << 16,
        order: Order::InOrder,
        seed: 0,
    };
    run(&memory, &launch, &schedule, Trace::Off).unwrap_or_else(|fault| panic!("{fault}"));
    let mut bytes = [0; 4];
    memory.read(out, &mut bytes).expect("it was just allocated");
    u32::from_le_bytes(bytes)
}

#[test]
fn managed_variables_are_global_variables() {
    let rows = [
        (".global .attribute(.managed) .u32 g = 5;", 5),
        (
            ".global .attribute(.managed) .align 16 .b32 g[4] = {5, 6};",
            5,
        ),
        (".global .align 16 .attribute(.managed) .u32 g = 6;", 6),
        (".attribute(.managed) .global .u32 g = 7;", 7),
        (
            ".visible .global .attribute(.managed, .unified(19, 95)) .u32 g = 8;",
            8,
        ),
        (".global .attribute(.unified(0x10, 2)) .u32 g = 9;", 9),
        (
            ".weak .global .attribute(.managed) .attribute(.unified(1, 2)) .u32 g = 10;",
            10,
        ),
        (".global .attribute(.managed) .v2 .u32 g = {11, 12};", 11),
        (".global .attribute(.managed) .f32 g = 1.0;", 0x3f80_0000),
        (".global .attribute(.managed) .u32 f, g = 12;", 12),
        (
            ".global .attribute(.managed) .u32 g[2][2] = {{13}, {14}};",
            13,
        ),
        (".common .global .attribute(.managed) .u32 g;", 0),
    ];
    for (declaration, wanted) in rows {
        let text = format!(
            "{HEAD}{declaration}\n{}",
            storing("k", "ld.global.u32 %r, [g];")
        );
        let module = Module::parse(&text)
            .and_then(Module::complete)
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(stored(&module, "k"), wanted, "{declaration}");
    }
}

/// Declarations with an error, the line of which is the fourth: kernels that do not use them run, and others say why not.
#[test]
fn errors_of_declarations_concern_their_users() {
    let rows = [
        ".global .attribute(.other) .u32 g;",
        ".global .attribute(.managed .u32 g;",
        ".global .attribute() .u32 g;",
        ".global .u32 g = {1, 2};",
        ".global .u32 g[2] = {1, 2, 3};",
        ".global .u32 g = 1.0;",
        ".global .f32 g = 1;",
        ".global .u32 g = nothing;",
        ".global .b33 g;",
        ".global .u32 g[99999999999];",
        ".global .u32 g<4>;",
        ".extern .global .u32 g;",
        ".global .u32 g = 99999999999999999999;",
        ".global .u32 g[2] = {1, 2;",
        ".global .u32 g[2;",
        ".tex .u32 g;",
        ".strange .u32 g;",
        ".global .u32 g; .global .u32 g;",
        ".func g(.param .b99 a) { ret; }",
        ".func g(.param .u32 a { ret; }",
        ".func .inline g() { ret; }",
        ".func g() { ret; } .func g() { ret; }",
    ];
    for declaration in rows {
        let user = if declaration.contains(".func") {
            "call g, ();"
        } else {
            "ld.global.u32 %r, [g];"
        };
        let text = format!(
            "{HEAD}{declaration}\n{}{}",
            storing("free", "mov.u32 %r, 1;"),
            storing("user", user)
        );
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{declaration}: {e}"));
        assert_eq!(stored(&module, "free"), 1, "{declaration}");
        assert!(module.kernel("user").is_err(), "{declaration}");
        assert_eq!(module.errors()[0].line, 4, "{declaration}");

        // One error for the declaration, and one for its user.
        assert!(
            module.errors().len() <= 2,
            "{declaration}: {:?}",
            module.errors()
        );
    }
}

/// A variable whose initial value names a broken one is broken too, without another error of its own.
#[test]
fn broken_variables_are_broken_for_others() {
    let text = format!(
        "{HEAD}.global .b99 a;\n.global .u64 b = a;\n.global .u64 c = b;\n{}{}",
        storing("user", "ld.global.u32 %r, [c];"),
        storing("free", "mov.u32 %r, 1;")
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<_> = module
        .errors()
        .iter()
        .map(|e| (e.line, e.what.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (4, "`.b99` is not a type of a variable"),
            (7, "unsupported in ptx-emu: the declaration of `c`"),
        ]
    );
}

#[test]
fn functions_that_no_kernel_calls_are_reported_by_name() {
    let rows = [
        (
            ".func f(.param .b32 a) { .reg .b32 %q<2>; mov.b32 %q1, 1; foo.b32 %q1; ret; }",
            "`foo` is not an instruction",
        ),
        (
            ".func f() { .reg .b32 %q; add.u32 %q, %q; ret; }",
            "`add.u32` takes 3 operands, not 2",
        ),
        (
            ".func f() { bra NOWHERE; }",
            "there is no label `NOWHERE` in this scope",
        ),
        (
            ".func f() { call h, (); ret; }",
            "`h` is not declared as a function",
        ),
        (
            ".func f() { .reg .b32 %q; mov.u32 %q, ; ret; }",
            "`;` where an operand was expected",
        ),
        (
            ".func f() { .shared .b8 s[99999]; st.shared.u8 [s], 1; ret; }",
            "99999 bytes of static shared memory, at most 49152",
        ),
        (
            ".func f() { .reg .b32 %q, %q; ret; }",
            "`%q` is declared twice in this scope",
        ),
    ];
    for (function, wanted) in rows {
        let text = format!("{HEAD}{function}\n{}", storing("k", "mov.u32 %r, 1;"));
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{function}: {e}"));
        assert_eq!(stored(&module, "k"), 1);
        let refused: Vec<_> = module.refused_functions().collect();
        assert_eq!(
            (refused.len(), refused[0].name.as_str()),
            (1, "f"),
            "{function}"
        );
        let error = &refused[0].errors.0[0];
        assert_eq!((error.line, error.what.as_str()), (4, wanted), "{function}");
        assert!(module.declaration_errors().is_empty());
    }
}

/// A function with any number of arguments is valid, but a call of it is unsupported.
#[test]
fn variadic_functions_are_unsupported_where_they_are_called() {
    for last in [
        ".param .b8 v[]",
        ".param .align 8 .b8 v[]",
        ".param .b32 v[]",
        ".param .u64 v[]",
    ] {
        let call =
            "{ .param .b32 a; .param .align 8 .b8 v[8]; st.param.b32 [a], 1; call f, (a, v); }";
        let text = format!(
            "{HEAD}.func f (.param .b32 a, {last}) {{ ret; }}\n{}{}",
            storing("k", "mov.u32 %r, 1;"),
            storing("calls", call)
        );
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(stored(&module, "k"), 1);
        let unsupported = |e: &ptx_emu::ParseError| matches!(e.kind, ErrorKind::Unsupported(_));
        assert!(
            module.errors().iter().all(unsupported),
            "{last}: {:?}",
            module.errors()
        );
        assert!(module.kernel("calls").is_err());
    }
}

/// Errors of the header, and text that is no declaration, concern all kernels.
#[test]
fn a_text_that_means_nothing_is_refused() {
    let rows = [
        ".version 8.0\n.target sm_90\n.address_size 32\n.entry k() { ret; }",
        ".version 8.0\n.target sm_90\nadd.u32 %r0, %r1, %r2;\n.entry k() { ret; }",
        ".version 8.0\n.target sm_90\n.entry k() { ret; } }\n",
        ".version x\n.target sm_90\n.entry k() { ret; }",
        ".target sm_90\n.entry k() { ret; }",
    ];
    for text in rows {
        assert!(Module::parse(text).is_err(), "{text}");
    }
}

/// A kernel that is defined twice cannot run, and the others do.
#[test]
fn kernels_of_one_name_are_refused() {
    let text = format!(
        "{HEAD}{}{}{}",
        storing("k", "mov.u32 %r, 1;"),
        storing("k", "mov.u32 %r, 2;"),
        storing("other", "mov.u32 %r, 3;")
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    assert!(module.kernel("k").is_err());
    assert_eq!(stored(&module, "other"), 3);
}

/// Uses of registers that are not declared are one error for each family.
#[test]
fn one_missing_declaration_is_one_error() {
    let body = "reg .u32 %x<9>; mov.u32 %x1, 1; add.u32 %x2, %x1, %x1; add.u32 %x3, %x2, %x2; mov.u32 %r, %x3;";
    let text = format!("{HEAD}{}", storing("k", body));
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<_> = module.errors().iter().map(|e| e.what.as_str()).collect();
    assert_eq!(
        found,
        [
            "`<` where `;` was expected",
            "`%x1` is not declared as a register, nor are 3 more uses of registers `%x..`",
        ]
    );
}

/// Random declarations: nothing panics, and a kernel that uses none of them runs, or the whole text is refused.
#[test]
fn random_declarations_are_refused_or_laid_out() {
    const PARTS: &[&str] = &[
        ".global",
        ".const",
        ".shared",
        ".attribute(.managed)",
        ".attribute(",
        ".unified(1,2)",
        ".align 8",
        ".u32",
        ".v2",
        ".b8",
        ".f64",
        " g",
        " h",
        "[2]",
        "[]",
        "[4][4]",
        "=",
        "{",
        "}",
        "{1,2}",
        "{{1},{2,3}}",
        ",",
        "1",
        "-1.0",
        "g+4",
        "generic(g)",
        "0xff(g)",
        ";",
        ".extern",
        ".func",
        ".entry",
        "(",
        ")",
        ".param .b8 v[]",
        "WARP_SZ",
        "<4>",
        "{ ret; }",
        ".texref",
        ".alias g, h;",
        "[99999999999]",
    ];
    let mut state = 5u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for _ in 0..4000 {
        let mut declaration = String::new();
        for _ in 0..=below(14) {
            declaration += PARTS[below(PARTS.len())];
            declaration.push(' ');
        }

        let text = format!("{HEAD}{declaration}\n{}", storing("k", "mov.u32 %r, 1;"));
        match Module::parse(&text) {
            Ok(module) if module.kernel("k").is_ok() => {
                assert_eq!(stored(&module, "k"), 1, "{declaration}")
            }
            Ok(module) => assert!(!module.errors().is_empty(), "{declaration}"),
            Err(errors) => assert!(!errors.to_string().is_empty()),
        }
    }
}
