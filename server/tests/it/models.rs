//! Tests of the registry: loading on request, progress, and unloading.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::json;
use warpwright_server::error::{ErrorKind, RequestError};
use warpwright_server::http::router::router;
use warpwright_server::http::state::{AppState, HttpLimits};
use warpwright_server::models::{
    LoadError, LoadProgress, ModelEntry, ModelLoader, ModelState, Models, OpenedModel,
    RegistryOptions, ServedModel,
};
use warpwright_server::protocol;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

use crate::harness::{asset, post, replying};

/// A loader that holds `room` models, each of which it loads when the test says so.
struct FakeLoader {
    room: usize,
    /// The names of the models that may be loaded now.
    released: Mutex<HashSet<String>>,
    changed: Condvar,
    /// The schedulers of the models that are loaded.
    loaded: Mutex<Vec<Scheduler>>,
    attempts: Mutex<Vec<String>>,
}

impl FakeLoader {
    fn new(room: usize) -> Arc<FakeLoader> {
        Arc::new(FakeLoader {
            room,
            released: Mutex::default(),
            changed: Condvar::new(),
            loaded: Mutex::default(),
            attempts: Mutex::default(),
        })
    }

    fn release(&self, name: &str) {
        self.released.lock().unwrap().insert(name.to_owned());
        self.changed.notify_all();
    }

    fn attempts(&self) -> Vec<String> {
        self.attempts.lock().unwrap().clone()
    }
}

impl ModelLoader for FakeLoader {
    fn load(&self, entry: &ModelEntry, progress: &LoadProgress) -> Result<ServedModel, LoadError> {
        progress.set(42, 100);
        self.attempts.lock().unwrap().push(entry.name.clone());
        let mut released = self.released.lock().unwrap();
        while !released.contains(&entry.name) {
            released = self.changed.wait(released).unwrap();
        }
        drop(released);
        match &*entry.name {
            "broken" => return Err(LoadError::Failed("the file is damaged".to_owned())),
            "panics" => panic!("a planned panic"),
            _ => {}
        }

        // A model that was shut down has freed its memory.
        let mut loaded = self.loaded.lock().unwrap();
        loaded.retain(|scheduler| {
            let request = warpwright_server::scheduler::GenerationRequest {
                request_id: "probe".to_owned(),
                prompt: vec![5],
                max_tokens: Some(0),
                sampling: warpwright_engine::Sampling::greedy(),
                at_end: Default::default(),
                grammar: None,
                adapter: None,
                salt: 0,
                prompt_logprobs: None,
            };
            let Ok(mut probe) = scheduler.submit(request) else {
                return false;
            };
            // A busy model is unloaded last, so the probe must have ended.
            while probe.events.blocking_recv().is_some() {}
            while !scheduler.status().sequences.is_empty() || scheduler.status().waiting > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            true
        });
        if loaded.len() >= self.room {
            return Err(LoadError::Memory("too little memory".to_owned()));
        }
        let opened = OpenedModel::open(&asset()).map_err(LoadError::Failed)?;
        let scheduler =
            Scheduler::start(Box::new(replying(&entry.name)), SchedulerOptions::default());
        loaded.push(scheduler.clone());
        Ok(opened.serve(entry.name.clone(), scheduler))
    }
}

fn entry(name: &str) -> ModelEntry {
    ModelEntry {
        name: name.to_owned(),
        path: PathBuf::from(name),
        bytes: 1,
    }
}

fn several(loader: &Arc<FakeLoader>, names: &[&str], loaded: Option<usize>) -> Models {
    let options = RegistryOptions {
        loaded,
        grace: Duration::from_secs(1),
    };
    let entries = names.iter().map(|name| entry(name)).collect();
    Models::several(entries, loader.clone(), options)
}

async fn find(models: &Models, name: &str) -> Result<String, RequestError> {
    models
        .find(Some(name))
        .await
        .map(|model| model.name.clone())
}

/// Asks for a model until it is loaded, or until the error is another one than that it is being
/// loaded.
async fn load(models: &Models, name: &str) -> Result<String, RequestError> {
    for _ in 0..200 {
        match find(models, name).await {
            Err(error) if error.kind == ErrorKind::Unavailable => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other,
        }
    }
    panic!("{name} was not loaded");
}

fn loaded(models: &Models) -> Vec<String> {
    let mut names: Vec<String> = models
        .loaded()
        .iter()
        .map(|model| model.name.clone())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_model_is_loaded_when_a_request_names_it() {
    let loader = FakeLoader::new(4);
    let models = several(&loader, &["a", "b"], None);
    assert_eq!(loaded(&models), Vec::<String>::new());
    assert!(models.health().is_ok());

    let error = find(&models, "a").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    // The thread of the loader may have begun by then, or begins soon after.
    assert!(
        matches!(
            &*error.message,
            "Loading model a: 0 %" | "Loading model a: 42 %"
        ),
        "{}",
        error.message
    );
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let error = find(&models, "a").await.unwrap_err();
        if error.message == "Loading model a: 42 %" {
            break;
        }
    }
    let state = &models.list()[0].state;
    assert!(matches!(state, ModelState::Loading { percent: 42 }));

    loader.release("a");
    assert_eq!(load(&models, "a").await, Ok("a".to_owned()));
    assert_eq!(loader.attempts(), ["a"]);
    assert_eq!(loaded(&models), ["a"]);
    // The only loaded model answers requests without a name.
    assert!(models.find(None).await.is_ok());
}

#[tokio::test]
async fn an_unknown_name_lists_the_models() {
    let loader = FakeLoader::new(4);
    let models = several(&loader, &["a", "b"], None);
    let error = find(&models, "gpt-4o").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert_eq!(error.message, "no model \"gpt-4o\": use one of a, b");
    assert_eq!(error.param.as_deref(), Some("model"));
    let error = models.find(None).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(error.message, "the request names no model: use one of a, b");
}

#[tokio::test]
async fn the_least_recently_used_model_is_unloaded_when_memory_is_short() {
    let loader = FakeLoader::new(2);
    let models = several(&loader, &["a", "b", "c"], None);
    for name in ["a", "b", "c"] {
        loader.release(name);
    }
    load(&models, "a").await.unwrap();
    load(&models, "b").await.unwrap();
    find(&models, "a").await.unwrap();
    load(&models, "c").await.unwrap();
    assert_eq!(loaded(&models), ["a", "c"]);
    // It comes back when it is asked for.
    load(&models, "b").await.unwrap();
    assert_eq!(loaded(&models), ["b", "c"]);
}

#[tokio::test]
async fn no_more_than_the_maximum_is_loaded() {
    let loader = FakeLoader::new(9);
    let models = several(&loader, &["a", "b", "c"], Some(1));
    for name in ["a", "b", "c"] {
        loader.release(name);
        load(&models, name).await.unwrap();
        assert_eq!(loaded(&models), [name]);
    }
}

#[tokio::test]
async fn a_failure_is_reported_and_tried_again() {
    let loader = FakeLoader::new(4);
    let models = several(&loader, &["broken", "panics", "huge"], None);
    for name in ["broken", "panics"] {
        loader.release(name);
        assert_eq!(
            find(&models, name).await.unwrap_err().kind,
            ErrorKind::Unavailable
        );
    }
    for _ in 0..200 {
        let failed = models
            .list()
            .iter()
            .filter(|listed| matches!(listed.state, ModelState::Failed(_)))
            .count();
        if failed == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let list = models.list();
    let ModelState::Failed(reason) = &list[0].state else {
        panic!("it has failed");
    };
    assert_eq!(reason, "the file is damaged");
    let error = find(&models, "broken").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.message.contains("the file is damaged"), "{error:?}");
    assert!(models.health().is_ok());
}

#[tokio::test]
async fn a_single_model_answers_to_every_name_and_gates_health() {
    let loader = FakeLoader::new(1);
    let models = Models::load_single(entry("a"), loader.clone());
    let health = models.health().unwrap_err();
    assert_eq!(health.kind, ErrorKind::Unavailable);
    assert!(health.message.starts_with("Loading model"), "{health:?}");

    let state = AppState {
        models: Arc::new(models.clone()),
        limits: Arc::new(HttpLimits::default()),
    };
    let app = router(&state, protocol::surfaces());
    let early = post(&app, "/completion", &json!({"prompt": "x"})).await;
    assert_eq!(early.status, 503);
    assert_eq!(early.json()["error"]["type"], "unavailable_error");

    loader.release("a");
    assert_eq!(
        models.ready().await.map(|model| model.name.clone()),
        Ok("a".to_owned())
    );
    assert!(models.health().is_ok());
    for name in ["a", "claude-opus", "gpt-4o"] {
        assert_eq!(find(&models, name).await, Ok("a".to_owned()));
    }
}

#[tokio::test]
async fn a_single_model_that_cannot_be_loaded_is_an_error() {
    let loader = FakeLoader::new(1);
    let models = Models::load_single(entry("broken"), loader.clone());
    loader.release("broken");
    let reason = models.ready().await.err();
    assert_eq!(reason.as_deref(), Some("the file is damaged"));
    assert_eq!(models.health().unwrap_err().kind, ErrorKind::Internal);
}

#[tokio::test]
async fn a_registry_that_shuts_down_refuses_requests_and_loads_nothing() {
    let loader = FakeLoader::new(4);
    let models = several(&loader, &["a", "b"], None);
    loader.release("a");
    load(&models, "a").await.unwrap();
    models.shut_down(Duration::from_millis(100)).await;
    assert_eq!(models.health().unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(
        find(&models, "b").await.unwrap_err().kind,
        ErrorKind::Unavailable
    );
    assert_eq!(loader.attempts(), ["a"]);
}
