//! Sampling.

use warpwright_kernels::Variant;
use warpwright_kernels::sample::{SampleAdjust, SampleGather, SampleToken};

use crate::failures;

#[test]
fn dev_cases() {
    let kernels: [&dyn Variant; 6] = [
        &SampleAdjust { overlap: true },
        &SampleGather { overlap: true },
        &SampleToken { overlap: true },
        &SampleAdjust { overlap: false },
        &SampleGather { overlap: false },
        &SampleToken { overlap: false },
    ];
    for kernel in kernels {
        let start = std::time::Instant::now();
        let failures = failures(kernel);
        println!("{} {:?} {failures:#?}", kernel.name(), start.elapsed());
    }
}
