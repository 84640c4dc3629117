//! Programmatic edges: which accesses may come before the wait, and which are found.

use std::fmt::Write;

use warpwright_driver_sys::*;

use crate::harness::{Emu, emu, make, node_params, ok, pointers};

/// The parts of a kernel `(to, from, other)`, by a letter each.
const PARTS: &[(char, &str)] = &[
    ('w', "griddepcontrol.wait;"),
    ('t', "griddepcontrol.launch_dependents;"),
    ('m', "ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd1], %r2;"),
    ('r', "ld.global.u32 %r2, [%rd3];"),
    ('s', "st.global.u32 [%rd3], %r1;"),
    ('W', "@%p1 griddepcontrol.wait;"),
    ('A', "ld.acquire.gpu.global.u32 %r2, [%rd3];"),
    ('R', "st.release.gpu.global.u32 [%rd3], %r1;"),
    ('L', "ld.relaxed.gpu.global.u32 %r2, [%rd3];"),
];

/// The kernels of the tests. Each is called by its parts in order: `w` waits, `W` waits in the first block alone, `t`
/// triggers, `m` moves a word from `from` to `to`, `r` reads and `s` sets one of `other`; `A` reads it to acquire, `L`
/// relaxed, and `R` sets it to release.
const KERNELS: &[&str] = &[
    "m", "wm", "wtm", "twm", "mw", "rwm", "swm", "wrm", "Wm", "Aw", "Rw", "Lw", "sw",
];

fn module() -> String {
    let mut text = ".version 7.8\n.target sm_90\n.address_size 64\n".to_string();
    for name in KERNELS {
        writeln!(
            text,
            ".visible .entry {name}(.param .u64 to, .param .u64 from, .param .u64 other)\n{{"
        )
        .unwrap();
        text += "    .reg .pred %p<2>;\n    .reg .b32 %r<4>;\n    .reg .b64 %rd<5>;\n";
        for (register, parameter) in [(1, "to"), (2, "from"), (3, "other")] {
            writeln!(text, "    ld.param.u64 %rd{register}, [{parameter}];").unwrap();
        }

        text +=
            "    mov.u32 %r1, %tid.x;\n    mov.u32 %r3, %ctaid.x;\n    setp.eq.u32 %p1, %r3, 0;\n";

        // Each block has words of its own.
        text += "    mad.lo.u32 %r1, %r3, 32, %r1;\n    mul.wide.u32 %rd4, %r1, 4;\n";
        for register in 1..=3 {
            writeln!(text, "    add.s64 %rd{register}, %rd{register}, %rd4;").unwrap();
        }

        for part in name.chars() {
            let code = PARTS.iter().find(|(letter, _)| *letter == part).unwrap().1;
            writeln!(text, "    {code}").unwrap();
        }

        text += "    ret;\n}\n";
    }
    text
}

/// A node of a chain: its kernel, and the number of its `other` buffer. Node i moves buffer i to buffer i + 1.
type Link = (&'static str, usize);

/// Builds a chain whose edges carry this data.
fn chain(emu: &Emu, links: &[Link], data: CUgraphEdgeData) -> CUgraph {
    let module = emu
        .try_load(&module())
        .unwrap_or_else(|code| panic!("{code}: {}", emu.last_log()));
    let buffers: Vec<u64> = (0..=links.len()).map(|_| emu.upload(&[5; 64])).collect();
    let graph = emu.graph();
    let mut last = None;
    for (i, (name, other)) in links.iter().enumerate() {
        let args = [buffers[i + 1], buffers[i], buffers[*other]];
        let mut arguments = pointers(&args);
        let mut params = node_params(emu.function(module, name), 32, &mut arguments);
        params.gridDimX = 2;
        let node: CUgraphNode = make!(
            emu,
            cuGraphAddKernelNode_v2(graph, std::ptr::null(), 0, &params)
        );
        if let Some(last) = last {
            ok!(
                emu,
                cuGraphAddDependencies_v2(graph, &last, &node, &data, 1)
            );
        }

        last = Some(node);
    }

    graph
}

/// The first line of what a launch of the chain finds, or nothing.
fn found(links: &[Link], data: CUgraphEdgeData) -> String {
    let emu = emu();
    let exec = emu.instantiate(chain(&emu, links, data));
    let stream = emu.stream();
    ok!(emu, cuGraphLaunch(exec, stream));
    let code = crate::harness::code!(emu, cuStreamSynchronize(stream));
    let findings = emu.findings();
    assert_eq!(
        code,
        if findings.is_empty() { 0 } else { 719 },
        "{findings}"
    );
    findings.lines().next().unwrap_or_default().to_string()
}

const PROGRAMMATIC: CUgraphEdgeData = CUgraphEdgeData {
    from_port: 1,
    r#type: 1,
    ..CUgraphEdgeData::zeroed()
};

#[test]
fn what_may_be_touched_before_the_wait() {
    let early = |b: &str, a: &str| {
        format!(
            "EarlyAccess: node {b} may start before node {a} ends, because of a programmatic edge"
        )
    };
    let missing = |b: &str, a: &str| {
        format!(
            "MissingWait: node {b} follows node {a} by a programmatic edge and ends without griddepcontrol.wait in some block"
        )
    };
    let cases: &[(&str, &[Link], String)] = &[
        (
            "every kernel waits first",
            &[("m", 0), ("wm", 0), ("wtm", 0), ("twm", 0), ("wm", 0)],
            String::new(),
        ),
        (
            "the trigger may come first",
            &[("twm", 0), ("twm", 0), ("twm", 0)],
            String::new(),
        ),
        (
            "the first kernel follows nobody",
            &[("m", 0), ("wm", 0)],
            String::new(),
        ),
        (
            "a kernel that does not wait",
            &[("wm", 0), ("m", 0)],
            missing("1 (m)", "0 (wm)"),
        ),
        (
            "a block that does not wait",
            &[("wm", 0), ("Wm", 0)],
            missing("1 (Wm)", "0 (wm)"),
        ),
        (
            "one in the middle",
            &[("wm", 0), ("m", 0), ("wm", 0)],
            missing("1 (m)", "0 (wm)"),
        ),
        (
            "a wait that comes too late",
            &[("wm", 0), ("mw", 0)],
            early("1 (mw)", "0 (wm)"),
        ),
        (
            "reads early what nobody writes",
            &[("wm", 0), ("rwm", 0), ("rwm", 0)],
            String::new(),
        ),
        (
            "reads early what the one before wrote",
            &[("wm", 0), ("rwm", 1)],
            early("1 (rwm)", "0 (wm)"),
        ),
        (
            "reads late what the one before wrote",
            &[("wm", 0), ("wrm", 1)],
            String::new(),
        ),
        (
            "writes early what the one before reads",
            &[("m", 0), ("swm", 0)],
            early("1 (swm)", "0 (m)"),
        ),
        (
            "the one before waited, then triggered",
            &[("m", 0), ("wtm", 0), ("rwm", 1)],
            String::new(),
        ),
        (
            "the one before never triggers",
            &[("m", 0), ("wm", 0), ("rwm", 1)],
            String::new(),
        ),
        (
            "the one before triggered, then waited",
            &[("m", 0), ("twm", 0), ("rwm", 1)],
            early("2 (rwm)", "0 (m)"),
        ),
        (
            "all before triggered first",
            &[("m", 0), ("twm", 0), ("twm", 0), ("twm", 0), ("rwm", 1)],
            early("4 (rwm)", "0 (m)"),
        ),
        (
            "acquires early what the one before released",
            &[("Rw", 0), ("Aw", 0)],
            String::new(),
        ),
        (
            "releases early what the one before released",
            &[("Rw", 0), ("Rw", 0)],
            String::new(),
        ),
        (
            "acquires early what the one before set",
            &[("sw", 0), ("Aw", 0)],
            early("1 (Aw)", "0 (sw)"),
        ),
        (
            "reads early what the one before released",
            &[("Rw", 0), ("Lw", 0)],
            early("1 (Lw)", "0 (Rw)"),
        ),
        (
            "one before them did not",
            &[("m", 0), ("wtm", 0), ("wtm", 0), ("twm", 0), ("rwm", 1)],
            String::new(),
        ),
    ];
    for (what, links, expected) in cases {
        assert_eq!(found(links, PROGRAMMATIC), *expected, "{what}");
        assert_eq!(
            found(links, CUgraphEdgeData::zeroed()),
            "",
            "{what}, with full edges"
        );
    }
}

#[test]
fn the_whole_story_names_both_kernels_and_lines() {
    let emu = emu();
    let exec = emu.instantiate(chain(&emu, &[("wm", 0), ("rwm", 1)], PROGRAMMATIC));
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(
        crate::harness::code!(emu, cuStreamSynchronize(CUstream::NULL)),
        719
    );
    let story = emu.findings();
    for part in [
        "\n  node 0 (wm) writes offset 0 of ",
        "\n  node 1 (rwm) reads it at line ",
        ", before its griddepcontrol.wait\n  execute griddepcontrol.wait before, or make the edge a full one",
    ] {
        assert!(story.contains(part), "no {part:?} in {story}");
    }
}

#[test]
fn a_chain_runs_and_a_change_is_looked_at_again() {
    let emu = emu();
    let graph = chain(&emu, &[("m", 0), ("twm", 0), ("wm", 0)], PROGRAMMATIC);
    let exec = emu.instantiate(graph);
    let stream = emu.stream();
    for _ in 0..2 {
        ok!(emu, cuGraphLaunch(exec, stream));
        ok!(emu, cuStreamSynchronize(stream));
    }

    let (mut nodes, mut count) = ([CUgraphNode::NULL; 3], 3);
    ok!(emu, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    let mut params = CUDA_KERNEL_NODE_PARAMS_v2::zeroed();
    ok!(emu, cuGraphKernelNodeGetParams_v2(nodes[2], &mut params));
    params.func = emu.function(emu.try_load(&module()).unwrap(), "mw");
    ok!(
        emu,
        cuGraphExecKernelNodeSetParams_v2(exec, nodes[2], &params)
    );
    ok!(emu, cuGraphLaunch(exec, stream));
    assert_eq!(crate::harness::code!(emu, cuStreamSynchronize(stream)), 719);
    assert!(
        emu.findings()
            .starts_with("EarlyAccess: node 2 (mw) may start before node 1 (twm) ends")
    );
}
