//! What is planted in a device's step is caught, and the page that says so is what is found.

use ptx_gen::AnyKernel;
use warpwright_kernels::train::attention::{KeyGradients, SumGroups};
use warpwright_train::step::Launch;

use crate::device::hooked_context;
use crate::device_faults::Caught;
use crate::hooked::{self, Argument, Changes};
use crate::{gates, page};

#[test]
fn every_fault_in_what_the_device_runs_is_caught_and_the_page_says_so() {
    let (text, all) = page::text(&hooked_context()).unwrap();
    for Caught {
        fault,
        value,
        without,
        meant,
        ..
    } in all.iter().filter(|caught| !caught.caught())
    {
        println!(
            "{fault}: {value:e}, without it {without:e}, from the reference with it {meant:e}"
        );
    }

    assert!(
        all.iter().all(Caught::caught),
        "the gate does not tell, or something else was planted; see above"
    );
    let page = std::fs::read_to_string(page::path()).unwrap_or_default();
    let command = "cargo run --release -p warpwright-train --example gates -- --update";
    assert!(
        page == text,
        "train/GATES.md is not what is found now; `{command}` writes it, then read the diff"
    );
}

/// Nothing is added to the number of an input, in all launches of a mask.
const MASK: Argument = Argument {
    kernel: "train_add_masked",
    count: 7,
    index: 5,
    add: 0,
    between: ["train_", "none"],
};

#[test]
fn what_is_planted_nowhere_is_told() {
    let context = hooked_context();
    let planted = |kernels: Vec<Box<dyn AnyKernel>>, argument| {
        hooked::plant(&context, &Changes { kernels, argument });
        let setup = gates::setup("llama-r4-qv");
        drop(gates::trainer(&context, &setup, &setup.adapters(), Launch::Graph).unwrap());
        hooked::seen().planted
    };
    let attention = Argument {
        kernel: "train_attention_16",
        count: 8,
        index: 6,
        ..MASK
    };
    assert!(planted(vec![], None) && planted(vec![Box::new(SumGroups)], Some(attention)));

    // Without dropout there are no masks, and heads have another length.
    assert!(!planted(vec![], Some(MASK)));
    assert!(!planted(vec![Box::new(KeyGradients { head_dim: 8 })], None));
}
