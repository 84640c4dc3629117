//! `warpwright serve`: serves models over HTTP.

mod args;
mod clients;
mod notice;
mod source;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use warpwright_server::http::serve::{ServeOptions, bind, serve};
use warpwright_server::http::state::{AppState, HttpLimits};
use warpwright_server::http::{log, router};
use warpwright_server::models::Models;
use warpwright_server::protocol;

pub(crate) use args::Args;
use clients::bind_failure;
use notice::Notices;
use source::ModelSource;

use crate::failure::{Failure, sentence};
use warpwright_emu::interrupt;
use warpwright_emu::interrupt::PendingInterrupt;

/// The interval at which the server looks for a signal.
const POLL: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    log::install(args.connections.log.into());
    let notices = Notices::new(args.connections.log);
    let address = args.connections.address()?;
    let limits = args.connections.limits(address)?;
    let source = ModelSource::new(args)?;
    let runtime = Runtime::new()
        .map_err(|error| Failure::Runtime(format!("cannot start the threads: {error}")))?;
    let options = runtime.block_on(args.connections.options())?;

    // The port is taken before the model is loaded, because loading can take minutes.
    let listener = bind(address).map_err(|error| bind_failure(address, &error))?;
    let bound = listener
        .local_addr()
        .map_err(|error| bind_failure(address, &error))?;
    if !address.ip().is_loopback() && limits.keys.is_empty() {
        notices.warn(
            "the server is open to other machines and has no keys: anyone who can reach it can use \
             it; add --api-key-file",
        );
    }
    notices.say(&format!("listening on {}", args.connections.url(bound)));

    let is_single = source.is_single();
    if !is_single {
        let names: Vec<&str> = source.names().collect();
        notices.say(&format!("models: {}", names.join(", ")));
    }
    let server = Server {
        args,
        notices,
        models: source.open(),
        is_single,
    };
    let result = runtime.block_on(server.run(listener, limits, &options));
    // A thread that loads a model may be in the driver for minutes.
    runtime.shutdown_background();
    result
}

/// A server whose port is taken.
struct Server<'a> {
    args: &'a Args,
    notices: Notices,
    models: Models,
    is_single: bool,
}

impl Server<'_> {
    /// Serves until a signal arrives, or until the only model cannot be loaded.
    async fn run(
        self,
        listener: TcpListener,
        limits: HttpLimits,
        options: &ServeOptions,
    ) -> Result<(), Failure> {
        let state = AppState {
            models: Arc::new(self.models.clone()),
            limits: Arc::new(limits),
        };
        let application = router::router(&state, protocol::surfaces());
        let mut ended = None;
        let served = serve(listener, application, options, async {
            ended = Some(self.until_signal().await);
        })
        .await;
        served.map_err(|error| Failure::Runtime(format!("cannot serve: {}", sentence(&error))))?;
        let Some(ending) = ended.transpose()? else {
            return Err(Failure::Runtime("the listener has ended".to_owned()));
        };

        // The last connection may be closed before the caches are saved.
        ending
            .await
            .map_err(|error| Failure::Runtime(format!("a model did not end: {error}")))?;
        self.notices.say("stopped");
        Ok(())
    }

    /// Waits for the model and then for a signal. Returns the task that ends the running requests.
    async fn until_signal(&self) -> Result<JoinHandle<()>, Failure> {
        // Until the model is ready, a signal ends the program at once.
        if self.is_single {
            let model = self.models.ready().await.map_err(Failure::Input)?;
            self.notices.say(&source::serving(&model));
        }
        let _pending = PendingInterrupt::begin("the running requests");
        while interrupt::check().is_ok() {
            tokio::time::sleep(POLL).await;
        }
        let models = self.models.clone();
        let grace = self.args.connections.grace;
        Ok(tokio::spawn(async move { models.shut_down(grace).await }))
    }
}
