//! Planted faults in the kernels of the pipeline that only gpt-oss needs.

use crate::machine::{FEW, check};
use ptx_emu::Module;
use ptx_gen::{Target, print};
use warpwright_kernels::format::Format;
use warpwright_kernels::pipeline::{
    ExpertActivation, ExpertDown, ExpertGateUp, ExpertLogits, PipelinedAttention, Plan, WithBias,
    WithExpertBiases, WithSinks,
};
use warpwright_kernels::{Activation, Variant, Weighting};

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
    let down = ExpertDown {
        format: Format::MXFP4,
        plan: Plan::DEFAULT,
    };
    replaced(&WithBias(down), &down);
    let logits = ExpertLogits { overlap: true };
    replaced(&WithBias(logits), &logits);
}
