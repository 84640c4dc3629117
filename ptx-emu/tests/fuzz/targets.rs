//! What the fuzzers call, for `cargo fuzz` and for the replay of its seeds: a text that is parsed, one that is decoded and
//! run, and a program that the bytes choose from a table of instructions, which always decodes far enough to run.

use ptx_emu::{Launch, Memory, Module, Order, Schedule, Trace, run};

/// The parser: the listing of a listing is the listing.
pub(crate) fn parse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(errors) = Module::listing(&text) {
        assert!(!errors.0.is_empty() && !errors.to_string().is_empty());
    }
}

/// The decoder, and whatever it lets pass.
pub(crate) fn decode(data: &[u8]) {
    execute(&String::from_utf8_lossy(data));
}

/// The executor: a program of the table's instructions.
pub(crate) fn program(data: &[u8]) {
    execute(&assembled(data));
}

/// Parses, and runs what parses on pointers that are right, wrong and misaligned.
pub(crate) fn execute(text: &str) {
    let module = match Module::parse(text) {
        Ok(module) => module,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let memory = Memory::new(1 << 16);
    let address = memory.alloc(1 << 14).expect("there is room");
    memory
        .fill(address, &[1], 1 << 14)
        .expect("it was just allocated");
    for kernel in module.kernels().take(4) {
        let mut params = vec![
            0;
            kernel
                .params
                .last()
                .map_or(0, |p| (p.offset + p.size) as usize)
        ];
        for (i, word) in params.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(address + 64 * i as u64).to_le_bytes());
        }

        let block = kernel.reqntid.unwrap_or([64, 1, 1]);
        let launch = Launch {
            kernel,
            grid: [2, 1, 1],
            block,
            dynamic_shared: 64,
            params: &params,
        };
        for (seed, trace) in [(0, Trace::Off), (1, Trace::On)] {
            let order = if seed == 0 {
                Order::InOrder
            } else {
                Order::Shuffled
            };
            let schedule = Schedule {
                threads: 1,
                fuel: 2000,
                order,
                seed,
            };
            if let Err(fault) = run(&memory, &launch, &schedule, trace) {
                assert!(!fault.to_string().is_empty());
            }
        }
    }
}

const HEAD: &str = ".version 8.6\n.target sm_90a\n.address_size 64\n.global .align 16 .b8 table[64] = {1, 2, 3};\n\
    .func (.reg .b32 %o) twice(.reg .b32 %i) { .reg .pred %q; setp.gt.u32 %q, %i, 1000; @%q ret; add.u32 %o, %i, %i; ret; }\n";
const DECLARED: &str = ".reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %l<4>, %g, %z; .reg .pred %p<4>; .reg .b32 %s, %b;\n\
    .shared .align 16 .b8 sh[256]; .shared .align 8 .b64 bar; .local .align 8 .b8 lo[32];\n\
    ld.param.u64 %g, [x]; mov.u32 %s, sh; mov.u32 %b, bar; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.b64 %l0, %g;\n\
    mul.wide.u32 %l1, %r0, 4; add.s64 %l2, %g, %l1; setp.lt.u32 %p0, %r0, 17; setp.eq.u32 %p1, %r0, 0; mov.u32 %r2, 7;\n\
    setp.ne.u32 %p2, %r1, 0; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %s; mov.b64 %z, lo;\n";

/// Instructions: `R` is a register of 32 bits, `H` of 16, `L` of 64, `P` a predicate, `#` a small number, `T` a label.
const TABLE: &[&str] = &[
    "add.u32 R, R, R",
    "mad.lo.s32 R, R, R, #",
    "mul.wide.u32 L, R, #",
    "sub.s64 L, L, L",
    "shl.b32 R, R, R",
    "shf.l.wrap.b32 R, R, R, R",
    "div.u32 R, R, R",
    "rem.s64 L, L, L",
    "add.cc.u32 R, R, R",
    "addc.u32 R, R, R",
    "mov.b64 {R, R}, L",
    "mov.b64 L, {R, R}",
    "mov.b32 {H, H}, R",
    "cvt.rn.f32.u32 R, R",
    "cvt.rzi.s64.f64 L, L",
    "cvt.sat.u8.s32 H, R",
    "fma.rn.f32 R, R, R, R",
    "sin.approx.f32 R, R",
    "sqrt.rn.f64 L, L",
    "fma.rn.f16x2 R, R, R, R",
    "prmt.b32 R, R, R, R",
    "bfe.s32 R, R, R, R",
    "popc.b64 R, L",
    "vadd.u32.u32.u32.sat R, R.b0, R.h1",
    "dp4a.u32.s32 R, R, R, R",
    "lop3.b32 R, R, R, R, #",
    "testp.number.f32 P, R",
    "selp.b32 R, R, R, P",
    "setp.lt.and.u32 P|P, R, R, P",
    "setp.leu.f64 P, L, L",
    "set.eq.u32.s32 R, R, R",
    "and.pred P, P, P",
    "not.pred P, P",
    "ld.global.u32 R, [L+#]",
    "ld.global.v2.u32 {R, R}, [%g+#]",
    "ld.u8 H, [L]",
    "ld.shared.u32 R, [R+#]",
    "ld.shared.v4.u32 {R, R, R, R}, [%s+#]",
    "ld.local.u32 R, [lo+#]",
    "st.local.u64 [%z+#], L",
    "ld.const.u32 R, [L]",
    "ld.param.u32 R, [x+4]",
    "st.global.u32 [L], R",
    "st.global.u16 [%g+#], H",
    "st.shared.u32 [R], R",
    "st.shared.u32 [%s+#], R",
    "st.u32 [L+#], R",
    "ld.volatile.shared.u32 R, [%s+#]",
    "ld.acquire.gpu.u32 R, [%g+#]",
    "st.release.sys.u32 [%g+#], R",
    "ld.global.nc.u32 R, [%g+#]",
    "cvta.shared.u64 L, L",
    "cvta.to.shared.u64 L, L",
    "isspacep.local P, L",
    "atom.global.add.u32 R, [%g+#], R",
    "atom.shared.cas.b32 R, [%s+#], R, R",
    "red.global.max.s64 [%g+#], L",
    "atom.exch.b64 L, [L], L",
    "atom.global.add.f32 R, [L], R",
    "atom.inc.u32 R, [%g], R",
    "membar.gl",
    "fence.acq_rel.cta",
    "fence.sc.gpu",
    "bra T",
    "bra.uni T",
    "brx.idx R, ALL",
    "bar.sync 0",
    "bar.sync R, 64",
    "bar.arrive #, 64",
    "bar.red.popc.u32 R, 0, P",
    "bar.warp.sync R",
    "bar.warp.sync -1",
    "shfl.sync.bfly.b32 R|P, R, #, 31, -1",
    "shfl.sync.idx.b32 R, R, R, R, R",
    "vote.sync.ballot.b32 R, P, R",
    "vote.sync.any.pred P, P, -1",
    "match.any.sync.b32 R, R, -1",
    "redux.sync.add.u32 R, R, R",
    "activemask.b32 R",
    "elect.sync R|P, -1",
    "nanosleep.u32 #",
    "mov.u32 R, %clock",
    "mov.u32 R, %laneid",
    "mbarrier.init.shared.b64 [%b], #",
    "mbarrier.inval.shared.b64 [%b]",
    "mbarrier.arrive.shared.b64 L, [%b]",
    "mbarrier.arrive.expect_tx.shared.b64 _, [%b], #",
    "mbarrier.try_wait.parity.shared.b64 P, [%b], R",
    "mbarrier.test_wait.shared.b64 P, [%b], L",
    "mbarrier.arrive.noComplete.shared.b64 L, [%b], R",
    "mbarrier.arrive_drop.shared.b64 _, [%b], R",
    "fence.proxy.async",
    "fence.mbarrier_init.release.cluster",
    "cp.async.ca.shared.global [%s+#], [L], 4",
    "cp.async.cg.shared.global [%s], [%g], 16, R",
    "cp.async.commit_group",
    "cp.async.wait_group #",
    "cp.async.wait_all",
    "cp.async.mbarrier.arrive.noinc.shared.b64 [%b]",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%g], #, [%b]",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%s], [%g], 32, [%b], H",
    "cp.async.bulk.global.shared::cta.bulk_group [%g], [%s], R",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%g], [%s], 32",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group.read #",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [R], R, [%b]",
    "mapa.shared::cluster.u32 R, R, R",
    "ld.shared::cluster.u32 R, [R]",
    "barrier.cluster.arrive.aligned",
    "barrier.cluster.wait.aligned",
    "barrier.cluster.arrive.relaxed.aligned",
    "griddepcontrol.wait",
    "griddepcontrol.launch_dependents",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {R, R}, [R]",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [R], {R}",
    "movmatrix.sync.aligned.m8n8.trans.b16 R, R",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {R, R, R, R}, {R, R, R, R}, {R, R}, {R, R, R, R}",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {L, L}, {L}, {L}, {L, L}",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {R, R, R, R, R, R, R, R}, [%s], R",
    "wgmma.fence.sync.aligned",
    "wgmma.commit_group.sync.aligned",
    "wgmma.wait_group.sync.aligned #",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {R, R, R, R}, L, L, P, 1, 1, 0, 1",
    "call.uni (R), twice, (R)",
    "alloca.u64 L, L",
    "stacksave.u64 L",
    "stackrestore.u64 L",
    "setmaxnreg.inc.sync.aligned.u32 40",
    "prefetch.global.L2 [L]",
    "trap",
    "exit",
    "ret",
];

/// A program of at most this many instructions.
const MOST: usize = 64;

/// The program that bytes choose: the first byte is whether there are clusters, then there is one for each choice.
pub(crate) fn assembled(data: &[u8]) -> String {
    let mut bytes = data.iter().copied();
    let cluster = if bytes.next().is_some_and(|b| b & 1 != 0) {
        "\n.reqnctapercluster 2, 1, 1"
    } else {
        ""
    };
    let mut text = format!(
        "{HEAD}.visible .entry k(.param .u64 x){cluster}\n{{\n{DECLARED}ALL: .branchtargets T0, T1, T2, T3;\n"
    );
    let mut labels = 0;
    for _ in 0..MOST {
        let Some(choice) = bytes.next() else { break };
        match choice {
            240.. if labels < 4 => {
                text += &format!("T{labels}:\n");
                labels += 1;
            }
            _ => text += &instruction(TABLE[choice as usize % TABLE.len()], &mut bytes),
        }
    }

    (labels..4).for_each(|label| text += &format!("T{label}:\n"));
    text + "ret;\n}\n"
}

/// An instruction whose guard and operands the next bytes choose.
fn instruction(template: &str, bytes: &mut impl Iterator<Item = u8>) -> String {
    let mut next = || bytes.next().unwrap_or(0);
    let guard = match next() {
        b @ 0..64 => format!("@{}%p{} ", if b & 4 != 0 { "!" } else { "" }, b % 4),
        _ => String::new(),
    };
    let mut out = guard;
    let mut before = ' ';
    let (opcode, operands) = template.split_once(' ').unwrap_or((template, ""));
    out += opcode;
    out.push(' ');
    for (i, c) in operands.char_indices() {
        let alone = !before.is_alphanumeric()
            && !operands[i + 1..].starts_with(|c: char| c.is_alphanumeric());
        match c {
            'R' if alone => out += &format!("%r{}", next() % 8),
            'H' if alone => out += &format!("%h{}", next() % 4),
            'L' if alone => out += &format!("%l{}", next() % 4),
            'P' if alone => out += &format!("%p{}", next() % 4),
            'T' if alone => out += &format!("T{}", next() % 4),
            '#' => out += &(next() % 65).to_string(),
            other => out.push(other),
        }
        before = c;
    }

    out + ";\n"
}
