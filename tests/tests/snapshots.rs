//! The PTX of every shipped kernel, read in review: a changed snapshot is a changed product.
//!
//! `cargo xtask bless` accepts changes.

use ptx_gen::{Target, print};

#[test]
fn every_kernel() {
    let target = Target::named("sm_75").expect("a target");
    for kernel in warpwright_kernels::ALL {
        let program = kernel.build().unwrap_or_else(|e| panic!("{e}"));
        let text = print(&program, target).unwrap_or_else(|e| panic!("{e}"));
        insta::assert_snapshot!(kernel.name(), text);
    }
}

#[test]
fn no_snapshot_is_left_of_a_kernel_that_is_gone() {
    let names: Vec<String> =
        warpwright_kernels::ALL.iter().map(|k| format!("snapshots__{}.snap", k.name())).collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    for file in std::fs::read_dir(folder).expect("the folder of snapshots") {
        let file = file.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(names.contains(&file), "{file} belongs to no kernel: delete it");
    }
}
