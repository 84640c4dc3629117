//! The prefix cache of an engine over a restart, on the emulator.

use std::path::Path;

use warpwright_engine::{BatchOptions, PageFolder, Sampling};
use warpwright_model::Model;
use warpwright_server::engine::{
    BatchEngine, Engine, EngineError, SequenceStart, StepWork, TokenOrigin, Wanted,
};

use crate::harness::{emulator, small_model};

/// Starts an engine whose pages are kept in a folder. Returns the number of pages that it found.
fn start(model: &Model, folder: &Path) -> (BatchEngine, u32) {
    let options = BatchOptions::new(2, 192);
    let mut engine = BatchEngine::load(&emulator(), model, options, |_| ()).expect("it loads");
    let folder = PageFolder::open(folder, model, 1 << 30).expect("the folder opens");
    let found = engine.keep_pages_in(folder).expect("the folder is listed");
    assert_eq!(found.ignored, []);
    (engine, found.pages)
}

/// Processes a prompt, and returns the number of cached tokens and the next token.
fn ask(engine: &mut BatchEngine, prompt: &[u32], salt: u64) -> Result<(u32, u32), EngineError> {
    let sampling = Sampling::greedy();
    let joined = engine.join(&SequenceStart {
        prompt,
        salt,
        sampling: &sampling,
        adapter: None,
    })?;
    let stepped = engine.step(&mut [StepWork {
        key: joined.key,
        tokens: &prompt[joined.cached as usize..],
        origin: TokenOrigin::Prompt,
        wanted: Wanted::Next,
        matcher: None,
    }])?;
    engine.leave(joined.key);
    let next = stepped[0].next.as_ref().expect("a token is chosen");
    Ok((joined.cached, next.token))
}

#[test]
fn a_prompt_finds_its_pages_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = small_model();
    let prompt: Vec<u32> = (0..150).map(|i| 5 + i * 7 % 300).collect();
    let (mut engine, found) = start(&model, folder.path());
    assert_eq!(found, 0);
    let (cached, next) = ask(&mut engine, &prompt, 1).expect("it answers");
    assert_eq!(cached, 0);
    engine.save().expect("the pages are saved");
    drop(engine);

    // Both pages are there before anybody asks.
    let (mut engine, found) = start(&model, folder.path());
    assert_eq!((found, engine.pages().kept), (2, 2));
    assert_eq!(ask(&mut engine, &prompt, 1), Ok((128, next)));
    assert_eq!(
        ask(&mut engine, &prompt[..100], 2).map(|(cached, _)| cached),
        Ok(0)
    );
    assert_eq!(engine.pages().used, 0);

    // A folder that cannot be written to is an error that says so, and the engine goes on.
    let pages = folder.path().join("warpwright-pages");
    std::fs::remove_dir_all(&pages).expect("it is there");
    std::fs::write(&pages, "a file").expect("it is written");
    let refused = engine.save().expect_err("there is no folder");
    assert!(
        refused.contains("the pages are not saved: cannot lock "),
        "{refused}"
    );
    assert_eq!(ask(&mut engine, &prompt, 1), Ok((149, next)));
}
