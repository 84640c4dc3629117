//! Tests of the pipeline's kernels over a paged cache: equal bits to those over a cache of one
//! sequence, and every entry of the page table matters.

use crate::machine::once;
use ptx_gen::{CpuArg, f16};
use warpwright_kernels::pipeline::{
    AngleSet, CacheKernel, HeadNorm, Paged, PipelinedAttention, Plan, Qkv,
};
use warpwright_kernels::shared::cache::{self, PAGE};
use warpwright_kernels::shared::state::{LEN, POSITION, SEQUENCE};
use warpwright_kernels::{Format, Pairing, Variant};

/// The number of arguments of the page table, which are the last ones.
const TABLE: usize = 4;

/// A case of a kernel over a paged cache, and the indices of some of its arguments.
struct PagedRun {
    args: Vec<CpuArg>,
    names: Vec<&'static str>,
}

impl PagedRun {
    fn index(&self, name: &str) -> usize {
        let at = self.names.iter().position(|found| *found == name);
        at.unwrap_or_else(|| panic!("there is no {name}"))
    }

    fn words(&self, name: &str) -> &[u32] {
        match &self.args[self.index(name)] {
            CpuArg::U32(words) => words,
            other => panic!("{name} is {other:?}"),
        }
    }

    fn size(&self, name: &str) -> usize {
        match &self.args[self.index(name)] {
            CpuArg::Scalar(bits) => *bits as usize,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Returns the pages of the only token's sequence that hold positions.
    fn pages(&self) -> Vec<u32> {
        let sequence = self.words("state")[SEQUENCE as usize] as usize;
        let all = self.words("pages").chunks(self.size("max_pages"));
        let mut of_sequences = all.skip(sequence);
        let of_sequence = of_sequences.next().expect("the sequence is in the table");
        of_sequence[..cache::pages(self.size("ctx") as u32) as usize].to_vec()
    }

    /// Returns the arguments of the kernel over the cache of the token's sequence alone.
    fn of_sequence(&self) -> Vec<CpuArg> {
        let mut args = self.args[..self.args.len() - TABLE].to_vec();
        for name in ["k_cache", "v_cache"] {
            let at = self.index(name);
            args[at] = CpuArg::F16(self.gathered(&self.args[at]));
        }
        args
    }

    /// Returns the pages of the token's sequence, in the order of positions.
    fn gathered(&self, cache: &CpuArg) -> Vec<f16> {
        let CpuArg::F16(cache) = cache else {
            panic!("a cache is {cache:?}")
        };
        let len = cache.len() / self.size("cache_pages");
        let page = |page: u32| cache[page as usize * len..][..len].to_vec();
        self.pages().into_iter().flat_map(page).collect()
    }
}

/// Returns the cases in which the only token has a place.
fn placed(kernel: &dyn Variant) -> Vec<PagedRun> {
    let names: Vec<_> = kernel.params().iter().map(|param| param.name).collect();
    let cases = kernel.cases(5).into_iter();
    cases
        .filter(|case| case.label.ends_with("Placed"))
        .map(|case| PagedRun {
            args: case.args,
            names: names.clone(),
        })
        .collect()
}

fn halves(arg: &CpuArg) -> Option<Vec<u16>> {
    match arg {
        CpuArg::F16(values) => Some(values.iter().map(|value| value.0).collect()),
        _ => None,
    }
}

/// Compares all results with those over the cache of the sequence alone.
fn check_bits<K: CacheKernel + Variant>(kernel: K)
where
    Paged<K>: Variant,
{
    for run in placed(&Paged(kernel)) {
        let found = once(&Paged(kernel), &run.args);
        let wanted = once(&kernel, &run.of_sequence());
        for (i, wanted) in wanted.iter().enumerate() {
            let name = run.names[i];
            match name {
                "k_cache" | "v_cache" => {
                    let found = CpuArg::F16(run.gathered(&found[i]));
                    assert!(halves(&found) == halves(wanted), "{name}");
                }
                _ => assert!(found[i] == *wanted, "{name}"),
            }
        }

        // The pages of all other sequences stay as they were.
        let own = run.pages();
        for name in ["k_cache", "v_cache"] {
            let at = run.index(name);
            let [before, after] = [&run.args[at], &found[at]].map(|arg| halves(arg).unwrap());
            let len = before.len() / run.size("cache_pages");
            let pages = before.chunks(len).zip(after.chunks(len)).zip(0..);
            for ((before, after), page) in pages {
                assert!(own.contains(&page) || before == after, "{name} {page}");
            }
        }
    }
}

/// The access of a kernel to the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// It reads all positions up to the token's.
    Reads,
    /// It stores the token's position.
    Appends,
}

/// Checks that the result changes if any entry of the page table up to the token's position is
/// another page, or if the token is in another sequence.
fn check_entries<K: CacheKernel + Variant>(kernel: K, output: &str, access: Access)
where
    Paged<K>: Variant,
{
    let paged = Paged(kernel);
    for run in placed(&paged) {
        let given = run.words("state")[POSITION as usize];
        if access == Access::Appends && given >= run.size("ctx") as u32 {
            continue;
        }

        let right = once(&paged, &run.args);
        let at = run.index(output);
        let position = given.min(run.size("ctx") as u32 - 1);
        let last = (position / PAGE) as usize;
        let sequence = run.words("state")[SEQUENCE as usize] as usize;
        let first = match access {
            Access::Reads => 0,
            Access::Appends => last,
        };
        for entry in first..=last {
            let mut args = run.args.clone();
            let CpuArg::U32(pages) = &mut args[run.index("pages")] else {
                panic!("a page table has words")
            };
            // Swap it with the same page of the next sequence.
            let max_pages = run.size("max_pages");
            let place = sequence * max_pages + entry;
            let other = (sequence + 1) % run.size("sequences") * max_pages + entry;
            pages.swap(place, other);
            assert!(once(&paged, &args)[at] != right[at], "entry {entry}");
        }

        let mut args = run.args.clone();
        let CpuArg::U32(state) = &mut args[run.index("state")] else {
            panic!("a state has words")
        };
        assert_eq!(state.len(), LEN);
        state[SEQUENCE as usize] -= 1;
        assert!(once(&paged, &args)[at] != right[at], "another sequence");
    }
}

fn qkv() -> Qkv {
    let formats = [Format::Q4_K, Format::Q4_K, Format::Q6_K];
    Qkv::with_default_plan(formats, Pairing::HalfSplit, true)
}

fn head_norm() -> HeadNorm {
    HeadNorm {
        overlap: true,
        batch: 1,
        angles: AngleSet::ONLY,
    }
}

#[test]
fn paged_kernels_have_the_bits_of_a_sequence_alone() {
    check_bits(qkv());
    check_bits(Qkv {
        plan: Plan::DEFAULT_ASYNC,
        ..Qkv::with_default_plan([Format::Q4_K; 3], Pairing::Interleaved, false)
    });
    check_bits(head_norm());
    check_bits(PipelinedAttention::new(128, 4));
    check_bits(PipelinedAttention::new(64, 9));
    check_bits(PipelinedAttention::new(64, 4).with_window(40));
}

#[test]
fn every_entry_of_the_page_table_matters() {
    check_entries(PipelinedAttention::new(64, 4), "y", Access::Reads);
    for cache in ["k_cache", "v_cache"] {
        check_entries(qkv(), cache, Access::Appends);
        check_entries(head_norm(), cache, Access::Appends);
    }
}
