//! The shipped variants of sampling.

use super::adjust::SampleAdjust;
use super::allow::AllowTokens;
use super::choose::SampleToken;
use super::gather::SampleGather;
use crate::harness::variants::Variants;

/// Returns the kernels, with and without overlap.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    list.add([true, false].map(|overlap| AllowTokens { overlap }));
    list.add([true, false].map(|overlap| SampleAdjust { overlap }));
    list.add([true, false].map(|overlap| SampleGather { overlap }));
    list.add([true, false].map(|overlap| SampleToken { overlap }));
    list
}
