//! Test cases of kernels over a paged cache, made of the cases of the kernels themselves.

use super::kernel::{CacheKernel, Paged};
use crate::harness::{Case, Variant};
use crate::shared::Random;
use crate::shared::cache::{self, PAGE};
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use ptx_gen::{CpuArg, KernelDef, f16};

/// What a case is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PagedCase {
    /// Each token is in a sequence of its own, whose pages are in a random order.
    Placed,
    /// The last token is done.
    Done,
    /// The sequence of the last token does not exist.
    NoSequence,
    /// The page of the last token does not exist.
    NoPage,
}

impl PagedCase {
    /// Every kind of case.
    pub(crate) const ALL: [PagedCase; 4] = [
        PagedCase::Placed,
        PagedCase::Done,
        PagedCase::NoSequence,
        PagedCase::NoPage,
    ];
}

/// The number of sequences without a token.
const OTHERS: usize = 2;
/// The number of pages of the cache without a sequence.
const UNUSED: usize = 2;

impl<K: CacheKernel + Variant> Paged<K> {
    /// Returns a case of the kernel over a paged cache, with the same tokens and positions.
    pub(crate) fn paged(&self, case: Case, kind: PagedCase, seed: u64) -> Case {
        let mut random = Random(seed ^ 0x9a6e);
        let names: Vec<&str> = self.0.params().iter().map(|param| param.name).collect();
        let place = |name: &str| {
            let at = names.iter().position(|found| *found == name);
            at.unwrap_or_else(|| panic!("{} has no {name}", KernelDef::name(self)))
        };
        let mut args = case.args;
        let [ctx, kv_heads] = ["ctx", "kv_heads"].map(|name| size(&args[place(name)]));
        let CpuArg::U32(states) = &mut args[place("state")] else {
            unreachable!("states are words")
        };
        let tokens = states.len() / LEN;
        let sequences = tokens + OTHERS;

        // One page more than the positions need, which no sequence uses.
        let of_sequence = cache::pages(ctx) as usize;
        let max_pages = of_sequence + 1;
        let cache_pages = sequences * of_sequence + UNUSED;
        let mut order: Vec<u32> = (0..cache_pages as u32).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u32 + 1) as usize);
        }
        let mut table = vec![u32::MAX; sequences * max_pages];
        for (sequence, entries) in table.chunks_mut(max_pages).enumerate() {
            entries[..of_sequence].copy_from_slice(&order[sequence * of_sequence..][..of_sequence]);
        }

        for (token, state) in states.chunks_mut(LEN).enumerate() {
            state[SEQUENCE as usize] = (tokens - token) as u32;
        }
        let last = &mut states[(tokens - 1) * LEN..];
        let position = last[POSITION as usize].min(ctx - 1);
        match kind {
            PagedCase::Placed => {}
            PagedCase::Done => last[DONE as usize] = 1,
            PagedCase::NoSequence => last[SEQUENCE as usize] = sequences as u32,
            PagedCase::NoPage => {
                let entry = last[SEQUENCE as usize] as usize * max_pages;
                table[entry + (position / PAGE) as usize] = cache_pages as u32;
            }
        }

        for name in ["k_cache", "v_cache"] {
            let CpuArg::F16(own) = &mut args[place(name)] else {
                unreachable!("caches are f16")
            };
            let page_len = own.len() / of_sequence;
            let row_len = page_len / (kv_heads * PAGE) as usize;
            *own = fill(own, &order, [of_sequence, page_len, row_len]);
        }

        args.push(CpuArg::U32(table));
        args.extend([cache_pages, sequences, max_pages].map(|n| CpuArg::scalar(n as u32)));
        Case {
            label: format!("{} {kind:?}", case.label),
            args,
            bound: case.bound,
        }
    }

    /// Returns the cases of a kernel that appends: all of its own, and each exception once.
    pub(crate) fn append_cases(&self, seed: u64) -> Vec<Case> {
        let cases = self.0.cases(seed);
        let exceptions = PagedCase::ALL
            .into_iter()
            .filter(|kind| *kind != PagedCase::Placed)
            .map(|kind| (cases[0].clone(), kind));
        cases
            .iter()
            .map(|case| (case.clone(), PagedCase::Placed))
            .chain(exceptions)
            .map(|(case, kind)| self.paged(case, kind, seed))
            .collect()
    }
}

/// Returns a paged cache in which every sequence has the rows of `own`, rotated by another number
/// of rows, so that no two pages are equal.
fn fill(own: &[f16], order: &[u32], [of_sequence, page_len, row_len]: [usize; 3]) -> Vec<f16> {
    let mut cache = vec![f16::from_f32(0.25); order.len() * page_len];
    for (i, &page) in order.iter().enumerate() {
        let sequence = i / of_sequence;
        let first = (i % of_sequence) * page_len + 7 * sequence * row_len;
        let page = &mut cache[page as usize * page_len..][..page_len];
        for (j, to) in page.iter_mut().enumerate() {
            *to = own[(first + j) % own.len()];
        }
    }
    cache
}

/// Returns the value of a size.
fn size(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => unreachable!("the case has a size there"),
    }
}
