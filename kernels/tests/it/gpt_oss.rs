//! Planted faults in the kernels of mixtures of experts in the pipeline, and in those that only
//! gpt-oss needs.

use crate::machine::{FEW, check, once};
use ptx_emu::Module;
use ptx_gen::{CpuArg, Target, print};
use warpwright_kernels::format::Format;
use warpwright_kernels::pipeline::{
    ExpertActivation, ExpertDown, ExpertGateUp, ExpertLogits, PipelinedAttention, Plan, WithBias,
    WithExpertBiases, WithSinks,
};
use warpwright_kernels::{Activation, Variant, Weighting, compare};

/// Returns the text of a kernel for the newest target that all of them run on.
fn text(kernel: &dyn Variant) -> String {
    let name = kernel.name();
    let program = kernel.build().unwrap_or_else(|e| panic!("{name}: {e}"));
    let hopper = Target::named("sm_90a").expect("in the table");
    print(&program, hopper).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the first failure of a kernel's cases, if it has this text.
fn failure(kernel: &dyn Variant, text: &str) -> Option<String> {
    let name = kernel.name();
    let module = Module::parse(text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let code = module.kernel(&name).expect("the module holds the kernel");
    let cases = kernel.cases(1);
    cases.iter().find_map(|case| {
        let e = check(kernel, code, case, FEW).err()?;
        Some(format!("{name}, {}: {e}", case.label))
    })
}

/// Returns the first failure of a kernel if it is replaced by `other`, whose arguments are the first
/// of its own.
fn replaced(kernel: &dyn Variant, other: &dyn Variant) -> String {
    let text = text(other).replace(&other.name(), &kernel.name());
    let found = failure(kernel, &text);
    found.unwrap_or_else(|| panic!("{} passes as {}", other.name(), kernel.name()))
}

const GATE_UP: ExpertGateUp = ExpertGateUp {
    format: Format::MXFP4,
    activation: ExpertActivation::ClampedSwiglu,
    weighting: Weighting::Chosen,
    per_lane: 1,
    stride: Some(64),
    plan: Plan::DEFAULT.with_row_len(Some(480)),
};

/// Each kernel without a feature, in the place of the kernel that has it.
#[test]
fn a_missing_feature_is_found() {
    let attention = PipelinedAttention::new(64, 8);
    replaced(&WithSinks(attention), &attention);
    let windowed = attention.with_window(128);
    let wider = WithSinks(attention.with_window(129));
    replaced(&WithSinks(windowed), &wider);
    replaced(&WithExpertBiases(GATE_UP), &GATE_UP);
    let other = ExpertGateUp {
        activation: ExpertActivation::Gated(Activation::Silu),
        ..GATE_UP
    };
    replaced(&WithExpertBiases(GATE_UP), &WithExpertBiases(other));
    let longer = ExpertGateUp {
        plan: Plan::DEFAULT.with_row_len(Some(488)),
        ..GATE_UP
    };
    replaced(&WithExpertBiases(GATE_UP), &WithExpertBiases(longer));
    let closer = ExpertGateUp {
        stride: Some(56),
        ..GATE_UP
    };
    replaced(&WithExpertBiases(GATE_UP), &WithExpertBiases(closer));
    replaced(&WithBias(DOWN), &DOWN);
    let logits = ExpertLogits { overlap: true };
    replaced(&WithBias(logits), &logits);
}

const DOWN: ExpertDown = ExpertDown {
    format: Format::MXFP4,
    plan: Plan::DEFAULT,
};

/// The index of the chosen experts among the arguments of [`ExpertDown`].
const EXPERTS: usize = 3;

/// Experts in the order of other slots are multiplied by the activations of the wrong expert. The
/// bound of the cases must find that, even in a single block.
#[test]
fn experts_in_the_wrong_slots_are_found() {
    let kernel: &dyn Variant = &DOWN;
    let mut several = 0;
    for case in kernel.cases(1) {
        let CpuArg::U32(words) = &case.args[EXPERTS] else {
            panic!("the experts are indices");
        };
        let CpuArg::Scalar(chosen) = case.args[EXPERTS + 3] else {
            panic!("the number of chosen experts is a number");
        };
        if chosen < 2 {
            continue;
        }
        several += 1;
        let mut wanted = case.args.clone();
        kernel.reference_on(&mut wanted).unwrap();

        // The two first slots of the last block.
        let mut swapped = words.clone();
        let last = swapped.len() - chosen as usize;
        swapped.swap(last, last + 1);
        let mut args = case.args.clone();
        args[EXPERTS] = CpuArg::U32(swapped);
        let error = |args: &[CpuArg]| compare(&kernel.params(), &once(kernel, args), &wanted).error;
        assert!(error(&case.args) <= case.bound, "{}", case.label);
        assert!(error(&args) > 10.0 * case.bound, "{}", case.label);
    }
    assert!(several >= 3, "{several} cases");
}

/// Each block resets the words that it has read. Otherwise the next token would find them before its
/// own experts are published.
#[test]
fn experts_that_are_not_reset_are_found() {
    let text = text(&DOWN);
    let releases: Vec<&str> = text
        .lines()
        .filter(|line| line.trim_start().starts_with("st.release"))
        .collect();
    let reset = releases.last().expect("the experts are reset");
    let found = failure(&DOWN, &text.replace(reset, ""));
    let found = found.expect("experts that are not reset pass");
    assert!(found.contains("experts"), "{found}");
}
