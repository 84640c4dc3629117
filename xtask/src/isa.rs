//! `docs/reference/instructions.tsv`: the instruction table of `ptx-gen`.
//! `docs/reference/instructions.md` explains the columns.

use ptx_gen::isa::{
    Accuracy, CHAPTERS, Completion, Effect, GridStep, MbarrierStep, MemoryOrder, Op, Slot,
    StateSpace, Uniformity, WgmmaStep,
};
use ptx_gen::{Kind, Level};

use crate::tsv;

const HEADER: [&str; 10] = [
    "chapter",
    "instruction",
    "operands",
    "types",
    "sm",
    "PTX",
    "together",
    "effect",
    "accuracy",
    "meaning",
];

/// Returns the table, chapter by chapter in the order of the PTX manual.
pub(crate) fn table() -> String {
    let mut rows = vec![];
    for chapter in CHAPTERS {
        rows.extend(chapter.rows.iter().map(|op| row(chapter.title, op)));
    }
    tsv::table(&HEADER, &rows)
}

fn row(chapter: &str, op: &Op) -> Vec<String> {
    vec![
        chapter.to_owned(),
        op.template.to_owned(),
        operands(op),
        types(op),
        format!("{}{}", op.sm, if op.specific { "a" } else { "" }),
        op.version.to_string(),
        together(op.together).to_owned(),
        effect(op),
        accuracy(op.accuracy),
        op.doc.to_owned(),
    ]
}

fn operands(op: &Op) -> String {
    let written = op.form.dst.iter().zip(["d", "p"]);
    let read = op.form.src.iter().zip(["a", "b", "c", "e", "f", "g", "h"]);
    written
        .chain(read)
        .map(|(&slot, name)| operand(slot, name))
        .collect::<Vec<_>>()
        .join(", ")
}

fn operand(slot: Slot, name: &str) -> String {
    match slot {
        Slot::T => name.to_owned(),
        Slot::S => format!("{name}: $s"),
        Slot::Is(kind) => format!("{name}: {}", kind.name()),
        Slot::Wide => format!("{name}: twice as wide"),
        Slot::Lit(low, high) => format!("{name}: literal {low} to {high}"),
        Slot::Any => format!("{name}: value, special register or shared address"),
        Slot::Vec(n) => format!("{{{name} x {n}}}"),
        Slot::Regs(kind, n) => format!("{{{name}: {} x {n}}}", kind.name()),
        Slot::Halves => format!("{{{name} x 2}}"),
        Slot::Barrier => "[mbarrier]".to_owned(),
        Slot::Parity => format!("{name}: 0 or 1"),
        Slot::Bytes => format!("{name}: multiple of 16"),
        Slot::Threads => format!("{name}: multiple of 32"),
        Slot::Accumulators(kind) => format!("{{{name}: {} x $n / 2}}, read as well", kind.name()),
        Slot::Descriptor => format!("{name}: matrix in shared memory"),
        Slot::Tensor => "[map, {1 to 5 coordinates}]".to_owned(),
        Slot::TensorMap => "[map]".to_owned(),
        Slot::Blocks => format!("{name}: blocks"),
        Slot::Cluster => "[shared of the cluster]".to_owned(),
        Slot::ParamName => "param".to_owned(),
        Slot::Policy => format!("{name}: cache policy"),
        Slot::Global => "[global]".to_owned(),
        Slot::Shared => "[shared]".to_owned(),
        Slot::Param => "[param]".to_owned(),
    }
}

fn types(op: &Op) -> String {
    let names = |kinds: &[Kind]| {
        kinds
            .iter()
            .map(|kind| kind.name())
            .collect::<Vec<_>>()
            .join(" ")
    };
    if op.from.is_empty() {
        names(op.types)
    } else {
        format!("{} from {}", names(op.types), names(op.from))
    }
}

fn together(level: Level) -> &'static str {
    match level {
        Level::Lane => "",
        Level::Warp => "warp",
        Level::Warpgroup => "warpgroup",
        Level::Block => "block",
    }
}

fn effect(op: &Op) -> String {
    let what = match op.effect {
        Effect::Pure => String::new(),
        Effect::Load(space, order) => format!("load {}{}", of_space(space), of_order(order)),
        Effect::LoadMatrix => "load shared".to_owned(),
        Effect::StoreMatrix => "store shared".to_owned(),
        Effect::Store(space, order) => format!("store {}{}", of_space(space), of_order(order)),
        Effect::Atomic(space, order) => format!("atomic {}{}", of_space(space), of_order(order)),
        Effect::Copy(Completion::Group) => "copy, in a group".to_owned(),
        Effect::Copy(Completion::Mbarrier) => "copy, to an mbarrier".to_owned(),
        Effect::Copy(Completion::BulkGroup) => "copy, in a bulk group".to_owned(),
        Effect::Wgmma(WgmmaStep::Multiply) => "product".to_owned(),
        Effect::Wgmma(_) => "orders products".to_owned(),
        Effect::CopyGroup => "groups of copies".to_owned(),
        Effect::Prefetch => "prefetch".to_owned(),
        Effect::Fence => "fence".to_owned(),
        Effect::Barrier => "barrier".to_owned(),
        Effect::Mbarrier(step) => format!("mbarrier {}", of_step(step)),
        Effect::Exchange(_) => "exchange".to_owned(),
        Effect::Grid(GridStep::Trigger) => "starts the next kernel".to_owned(),
        Effect::Grid(GridStep::Wait) => "waits for the kernels before".to_owned(),
        Effect::Control => "control".to_owned(),
    };
    let has_result = !op.form.dst.is_empty();
    let differs = if has_result && op.uniformity() == Uniformity::Differs {
        "; differs"
    } else {
        ""
    };
    what + differs
}

fn of_space(space: StateSpace) -> &'static str {
    match space {
        StateSpace::Global => "global",
        StateSpace::Shared => "shared",
        StateSpace::Cluster => "shared of the cluster",
        StateSpace::Param => "param",
    }
}

fn of_order(order: MemoryOrder) -> &'static str {
    match order {
        MemoryOrder::Weak => "",
        MemoryOrder::Noncoherent => ", noncoherent",
        MemoryOrder::Relaxed => ", relaxed",
        MemoryOrder::Acquire => ", acquire",
        MemoryOrder::Release => ", release",
        MemoryOrder::AcquireRelease => ", acquire and release",
    }
}

fn of_step(step: MbarrierStep) -> &'static str {
    match step {
        MbarrierStep::Init => "init",
        MbarrierStep::Invalidate => "inval",
        MbarrierStep::Arrive => "arrive",
        MbarrierStep::ArriveExpect => "arrive, expect bytes",
        MbarrierStep::ArriveCopied => "arrive after copies",
        MbarrierStep::Wait => "wait",
    }
}

fn accuracy(accuracy: Accuracy) -> String {
    match accuracy {
        Accuracy::Exact => "exact".to_owned(),
        Accuracy::Ulp(n) => format!("{n} ulp"),
        Accuracy::Bound(text) => text.to_owned(),
    }
}
