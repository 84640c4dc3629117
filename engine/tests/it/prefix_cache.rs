//! Prompts that start with cached pages: their logits are those of prompts that compute everything.

use std::path::PathBuf;

use warpwright_engine::{
    Batch, BatchOptions, Error, PageFolder, PrefixReuse, PrefixScope, SequenceId,
};
use warpwright_kernels::Random;
use warpwright_model::Model;

use crate::batch::{VOCAB, batch, small, tokens};
use crate::decode::distance;
use crate::scratch;

/// The positions per chunk.
const CHUNK: usize = 64;

/// Processes the rest of a prompt in chunks that start at multiples of 64, and returns the logits
/// after it.
fn process(batch: &mut Batch, id: SequenceId, prompt: &[u32]) -> Vec<f32> {
    loop {
        let first = batch.tokens(id).unwrap().len();
        let end = (first / CHUNK * CHUNK + CHUNK).min(prompt.len());
        batch.step(&[(id, &prompt[first..end])]).unwrap();
        if end == prompt.len() {
            return batch.logits(id).unwrap();
        }
    }
}

/// Returns the logits after a prompt without the cache.
fn cold(batch: &mut Batch, prompt: &[u32]) -> Vec<f32> {
    let id = batch.join().unwrap();
    let logits = process(batch, id, prompt);
    batch.leave(id).unwrap();
    logits
}

/// Returns the logits after a prompt with the cache, and the number of cached tokens.
fn warm(batch: &mut Batch, prompt: &[u32], scope: PrefixScope) -> (Vec<f32>, u32) {
    let (id, cached) = batch.join_prompt(prompt, scope).unwrap();
    assert_eq!(batch.tokens(id).unwrap(), &prompt[..cached as usize]);
    let logits = process(batch, id, prompt);
    batch.leave(id).unwrap();
    (logits, cached)
}

fn chunked(test: &str, sequences: u32, pages: u32) -> Batch {
    let options = BatchOptions {
        bucket: Some(8),
        positions: pages * 64,
        reuse: PrefixReuse::Chunks(CHUNK as u32),
        ..BatchOptions::new(sequences, 320)
    };
    batch(&small(test), options)
}

#[test]
fn a_cached_prefix_changes_no_bit() {
    let mut batch = chunked("prefix-bits", 3, 16);
    let scope = PrefixScope::salted(1);
    let prompt = tokens(3, 150);
    let wanted = cold(&mut batch, &prompt);
    assert_eq!(
        batch.page_counts().kept,
        0,
        "private sequences leave nothing"
    );
    assert_eq!(warm(&mut batch, &prompt, scope), (wanted.clone(), 0));
    assert_eq!(warm(&mut batch, &prompt, scope), (wanted.clone(), 128));
    let counts = batch.page_counts();
    assert_eq!((counts.used, counts.kept, counts.free), (0, 2, 14));

    // Another user's prompt is computed again, and has the same logits.
    assert_eq!(
        warm(&mut batch, &prompt, PrefixScope::salted(2)),
        (wanted.clone(), 0)
    );

    // Two requests with the same prompt share the pages of one that still runs.
    let (running, _) = batch.join_prompt(&prompt, scope).unwrap();
    process(&mut batch, running, &prompt);
    assert_eq!(warm(&mut batch, &prompt, scope), (wanted.clone(), 128));
    batch.leave(running).unwrap();
    batch.forget_kept();
    assert_eq!(batch.free_pages(), (16, 16));
    assert_eq!(batch.page_counts().free, 16);
    assert_eq!(warm(&mut batch, &prompt, scope), (wanted, 0));
}

/// A cache that is much too small for the prompts, and sequences that generate in between.
#[test]
fn evictions_change_no_bit() {
    let mut batch = chunked("prefix-evictions", 3, 10);
    let mut random = Random(5);
    let trunk = tokens(7, 192);
    let prompts: Vec<Vec<u32>> = (0..6)
        .map(|seed| {
            let common = random.below(4) as usize * CHUNK;
            [&trunk[..common], &tokens(20 + seed, 40 + 5 * seed)].concat()
        })
        .collect();
    let wanted: Vec<_> = prompts
        .iter()
        .map(|prompt| cold(&mut batch, prompt))
        .collect();
    let mut hits = 0;
    for _ in 0..14 {
        let index = random.below(6) as usize;
        let (logits, cached) = warm(&mut batch, &prompts[index], PrefixScope::default());
        assert_eq!(
            logits, wanted[index],
            "prompt {index} after {cached} cached tokens"
        );
        hits += cached;

        // A private sequence takes pages, so that kept ones are evicted.
        if random.below(3) == 0 {
            cold(&mut batch, &prompts[random.below(6) as usize]);
        }
    }
    assert!(hits > 300, "{hits}");
}

/// A page that fits only in part is copied. The copy was computed in other chunks, so that the
/// logits have other bits.
#[test]
fn a_part_of_a_page_is_reused() {
    let model = small("prefix-part");
    let mut batch = batch(&model, BatchOptions::new(2, 320));
    let scope = PrefixScope::default();
    let prompt = tokens(3, 100);
    let other = [&prompt[..90], &tokens(5, 30)].concat();
    let wanted = cold(&mut batch, &other);
    warm(&mut batch, &prompt, scope);
    let (logits, cached) = warm(&mut batch, &other, scope);
    assert_eq!(cached, 90);
    let found = distance(
        &logits.iter().copied().map(f64::from).collect::<Vec<_>>(),
        &wanted.iter().copied().map(f64::from).collect::<Vec<_>>(),
    );
    assert!(found < 2e-3, "the relative error is {found:e}");

    // The first prompt's page is as it was.
    let (again, cached) = warm(&mut batch, &prompt, scope);
    assert_eq!(cached, 99);
    let wanted = cold(&mut batch, &prompt);
    let found = distance(
        &again.iter().copied().map(f64::from).collect::<Vec<_>>(),
        &wanted.iter().copied().map(f64::from).collect::<Vec<_>>(),
    );
    assert!(found < 2e-3, "the relative error is {found:e}");
}

/// A conversation: its next turn finds the tokens that were generated in the one before.
#[test]
fn generated_tokens_are_reused() {
    let mut batch = batch(&small("prefix-turns"), BatchOptions::new(2, 320));
    let scope = PrefixScope::default();
    let prompt = tokens(4, 60);
    let (id, _) = batch.join_prompt(&prompt, scope).unwrap();
    let first = batch.step(&[(id, &prompt)]).unwrap()[0];
    let made = batch.decode(&[(id, first)], 40).unwrap().remove(0);
    let history = batch.tokens(id).unwrap().to_vec();
    assert_eq!(history.len(), 100);
    batch.leave(id).unwrap();
    let turn = [&history, &made[39..], &tokens(6, 20)[..]].concat();
    let (id, cached) = batch.join_prompt(&turn, scope).unwrap();
    assert_eq!(cached, 100);
    batch.step(&[(id, &turn[100..])]).unwrap();
}

#[test]
fn refuses_chunks_that_are_not_whole_pages() {
    let model = small("prefix-refusals");
    for chunk in [0, 100] {
        let options = BatchOptions {
            reuse: PrefixReuse::Chunks(chunk),
            ..BatchOptions::new(1, 64)
        };
        let refused = Batch::new(&crate::decode::emulator(), &model, options, |_| ());
        assert!(matches!(refused, Err(Error::BatchReuse { chunk: found }) if found == chunk));
    }
    let mut batch = batch(&model, BatchOptions::new(1, 64));
    let (id, cached) = batch.join_prompt(&[], PrefixScope::default()).unwrap();
    assert_eq!(cached, 0);
    let full = batch.join_prompt(&[1; 60], PrefixScope::default());
    assert!(matches!(full, Err(Error::BatchFull { most: 1 })));
    batch.leave(id).unwrap();

    // A prompt that is longer than the context finds no more than the context.
    let (id, _) = batch.join_prompt(&[1; 64], PrefixScope::default()).unwrap();
    batch.step(&[(id, &[1; 64])]).unwrap();
    batch.leave(id).unwrap();
    let long = vec![1; 100];
    assert_eq!(
        batch.join_prompt(&long, PrefixScope::default()).unwrap().1,
        64
    );
    assert!(long.iter().all(|token| *token < VOCAB));
}

/// A sequence whose pages others have used in the meantime continues with the same bits.
#[test]
fn swapping_changes_no_bit() {
    let mut batch = chunked("prefix-swap", 2, 6);
    let scope = PrefixScope::default();
    let prompt = tokens(3, 150);
    let next = [7, 8, 9];
    let (id, _) = batch.join_prompt(&prompt, scope).unwrap();
    process(&mut batch, id, &prompt);
    let fork = batch.fork(id, 150).unwrap();
    batch.step(&[(fork, &next)]).unwrap();
    let wanted = batch.logits(fork).unwrap();
    batch.leave(fork).unwrap();

    // Its pages are still there, except the last one, which is private.
    let swapped = batch.swap_out(id).unwrap();
    assert_eq!(swapped.tokens(), prompt);
    assert_eq!(swapped.bytes(), 3 * 64 * 2 * 2 * 2 * 64 * 2);
    assert!(matches!(batch.step(&[(id, &next)]), Err(Error::NoSequence)));
    let id = batch.swap_in(&swapped).unwrap();
    batch.step(&[(id, &next)]).unwrap();
    assert_eq!(batch.logits(id).unwrap(), wanted);
    batch.roll_back(id, 150).unwrap();

    // Nothing of it is left.
    let swapped = batch.swap_out(id).unwrap();
    let other = batch.join().unwrap();
    process(&mut batch, other, &tokens(9, 310));
    assert_eq!(batch.page_counts().used, 5);
    let refused = batch.swap_in(&swapped);
    assert!(
        matches!(refused, Err(Error::NoPages { needed: 2 | 3, .. })),
        "{refused:?}"
    );
    batch.leave(other).unwrap();
    let id = batch.swap_in(&swapped).unwrap();
    assert_eq!(batch.tokens(id).unwrap(), prompt);
    batch.step(&[(id, &next)]).unwrap();
    assert_eq!(batch.logits(id).unwrap(), wanted);

    // An empty sequence has nothing to copy, and another batch refuses what it does not know.
    let empty = batch.join().unwrap();
    let swapped = batch.swap_out(empty).unwrap();
    assert_eq!(swapped.bytes(), 0);
    let mut other = chunked("prefix-swap-other", 2, 6);
    assert!(matches!(other.swap_in(&swapped), Err(Error::NoSequence)));
    batch.swap_in(&swapped).unwrap();
}

/// The folder, the names of its pages, and a batch that knows them.
fn saved(folder: &PageFolder) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.path()).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut pages: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "page"))
        .collect();
    pages.sort();
    pages
}

/// The bytes of a page: two layers, keys and values, two heads of 64 numbers.
const PAGE_BYTES: u64 = 64 * 2 * 2 * 2 * 64 * 2;

#[test]
fn saved_pages_change_no_bit() {
    let parent = scratch("pages");
    let model = small("prefix-saved");
    let options = BatchOptions {
        bucket: Some(8),
        reuse: PrefixReuse::Chunks(CHUNK as u32),
        ..BatchOptions::new(3, 320)
    };
    let folder = PageFolder::open(&parent, &model, 1 << 30).unwrap();
    for page in saved(&folder) {
        std::fs::remove_file(page).unwrap();
    }
    let scope = PrefixScope::salted(1);
    let first = tokens(3, 150);
    let second = [&first[..64], &tokens(5, 150)].concat();
    let mut batch_one = batch(&model, options);
    let wanted = warm(&mut batch_one, &first, scope).0;
    let wanted_second = cold(&mut batch_one, &second);
    warm(&mut batch_one, &second, scope);
    let result = batch_one.save_kept(&folder).unwrap();
    assert_eq!(
        (result.written, result.unchanged, result.left_out),
        (4, 0, 0)
    );
    assert!(result.bytes > 4 * PAGE_BYTES && result.bytes < 4 * (PAGE_BYTES + 4096));
    let result = batch_one.save_kept(&folder).unwrap();
    assert_eq!(
        (result.written, result.unchanged, result.removed),
        (0, 4, 0)
    );
    assert_eq!(saved(&folder).len(), 4);

    // As after a restart: pages are loaded when a prompt needs them, for its scope only.
    let restarted = || {
        let mut batch = batch(&model, options);
        let loadable = batch.load_kept(&folder).unwrap();
        (batch, loadable)
    };
    let (mut batch_two, loadable) = restarted();
    assert_eq!((loadable.pages, loadable.ignored), (4, vec![]));
    assert_eq!(batch_two.page_counts().kept, 0);
    assert_eq!(warm(&mut batch_two, &first, PrefixScope::salted(2)).1, 0);
    batch_two.forget_kept();
    assert_eq!(warm(&mut batch_two, &first, scope), (wanted.clone(), 128));
    assert_eq!(batch_two.page_counts().kept, 2);
    assert_eq!(
        warm(&mut batch_two, &second, scope),
        (wanted_second.clone(), 192)
    );
    assert_eq!(batch_two.page_counts().kept, 4);
    assert_eq!(batch_two.take_ignored_files(), []);

    // Before a prompt needs them.
    let (mut batch_three, _) = restarted();
    assert_eq!(batch_three.preload_kept(2).unwrap(), 2);
    assert_eq!(batch_three.preload_kept(10).unwrap(), 2);
    assert_eq!(batch_three.page_counts().kept, 4);
    assert_eq!(warm(&mut batch_three, &second, scope), (wanted_second, 192));

    // Damaged pages are found when they are needed, and written again.
    let (mut batch_four, _) = restarted();
    for page in saved(&folder) {
        let mut bytes = std::fs::read(&page).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&page, bytes).unwrap();
    }
    assert_eq!(warm(&mut batch_four, &first, scope), (wanted.clone(), 0));
    let ignored = batch_four.take_ignored_files();
    assert_eq!(ignored.len(), 2);
    assert!(ignored[0].reason.contains("checksum"), "{ignored:?}");
    let result = batch_four.save_kept(&folder).unwrap();
    assert_eq!((result.written, result.unchanged), (2, 0));
    std::fs::remove_file(&ignored[0].path).unwrap();
    assert_eq!(warm(&mut batch_four, &second, scope).1, 64);
    let wrong = warm(&mut restarted().0, &first, scope);
    assert_eq!(wrong, (wanted.clone(), 0));

    // A file that cannot be written: the others stay as they are, and nothing half is left.
    let blocked = &ignored[0].path;
    std::fs::create_dir_all(blocked.join("of another program")).unwrap();
    let names = saved(&folder);
    let error = batch_four.save_kept(&folder).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot write {}: ", blocked.display())),
        "{error}"
    );
    let partial = blocked.with_extension("partial");
    assert!(saved(&folder).len() >= names.len() && !partial.exists());
    let loadable = batch_four.load_kept(&folder).unwrap();
    assert!(
        loadable
            .ignored
            .iter()
            .any(|file| file.path == *blocked && file.reason == "it is no file")
    );
    std::fs::remove_dir_all(blocked).unwrap();
    batch_four.save_kept(&folder).unwrap();
    assert!(blocked.is_file());
    assert_eq!(
        warm(&mut restarted().0, &first, scope),
        (wanted.clone(), 128)
    );
    assert_eq!(saved(&folder).len(), 4);

    // Another model with the same sizes.
    let mut file = std::fs::read(scratch("batch-prefix-saved.gguf")).unwrap();
    let last = file.len() - 1;
    file[last] ^= 1;
    let path = scratch("changed.gguf");
    std::fs::write(&path, file).unwrap();
    let changed = Model::open(&path).unwrap();
    let other = PageFolder::open(&parent, &changed, 1 << 30).unwrap();
    let loadable = batch_four.load_kept(&other).unwrap();
    assert_eq!((loadable.pages, loadable.ignored.len()), (0, 4));
    assert!(
        loadable.ignored[0].reason.starts_with("model is "),
        "{loadable:?}"
    );
}

#[test]
fn a_folder_has_a_limit() {
    let model = small("prefix-limit");
    let parent = scratch("pages");
    let open = |pages: u64| PageFolder::open(&parent, &model, pages * (PAGE_BYTES + 2048)).unwrap();
    let folder = open(3);
    for page in saved(&folder) {
        std::fs::remove_file(page).unwrap();
    }
    let scope = PrefixScope::default();
    let mut batch = batch(&model, BatchOptions::new(2, 320));
    warm(&mut batch, &tokens(3, 130), scope);
    assert_eq!(batch.save_kept(&folder).unwrap().written, 2);
    let old = saved(&folder);
    batch.forget_kept();
    warm(&mut batch, &tokens(5, 130), scope);
    let result = batch.save_kept(&folder).unwrap();
    assert_eq!((result.written, result.removed, result.left_out), (2, 1, 0));

    // The first prompt's second page was removed, because it is useless without the first one.
    let left = saved(&folder);
    assert_eq!(
        (
            left.len(),
            old.iter().filter(|page| left.contains(page)).count()
        ),
        (3, 1)
    );
    assert_eq!(batch.load_kept(&folder).unwrap().pages, 3);
    assert_eq!(warm(&mut batch, &tokens(3, 130), scope).1, 64);

    // A smaller limit leaves the pages that were used last, from their beginning.
    let result = batch.save_kept(&open(1)).unwrap();
    assert_eq!(
        (
            result.written + result.unchanged,
            result.removed,
            result.left_out
        ),
        (1, 2, 3)
    );
    assert_eq!(saved(&folder).len(), 1);
    let result = batch.save_kept(&open(0)).unwrap();
    assert_eq!((result.removed, result.left_out), (1, 4));
    assert_eq!(saved(&folder).len(), 0);
}
