//! Listens for connections and serves the application on them.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use hyper_util::rt::TokioTimer;

use super::metrics;

/// The maximum size of the first line and the headers of a request, in bytes.
const HEADERS: usize = 64 << 10;

/// The interval at which recorded durations are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// The files of a certificate for TLS, in the format PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain of certificates, the server's own first.
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The options of [`serve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// The certificate, or `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The time in which the headers of a request must arrive. An idle connection is closed after
    /// this time as well.
    pub headers: Duration,
    /// The time that requests have to end after the shutdown began. Connections that are open then
    /// are closed.
    pub grace: Duration,
}

/// Binds a listener, before a model is loaded.
///
/// # Errors
/// Returns an error if the address is in use or is not one of this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The runtime requires it.
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the application until `shutdown` is ready. Then no connection is accepted any more, and
/// open ones are closed after their current response.
///
/// # Errors
/// Returns an error if a file of the certificate cannot be used, or if the listener fails.
pub async fn serve(
    listener: TcpListener,
    application: Router,
    options: &ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let handle = Handle::new();
    let server = limited(
        axum_server::from_tcp(listener)?.handle(handle.clone()),
        options,
    );
    let application = application.into_make_service();
    let serving = async {
        match &options.tls {
            None => server.acceptor(NoDelayAcceptor).serve(application).await,
            Some(files) => {
                let config = RustlsConfig::from_pem_file(&files.certificates, &files.key).await?;
                let acceptor = RustlsAcceptor::new(config).acceptor(NoDelayAcceptor);
                server.acceptor(acceptor).serve(application).await
            }
        }
    };

    // A future that is dropped with `serving` needs no end of its own.
    let control = async {
        shutdown.await;
        handle.graceful_shutdown(Some(options.grace));
        std::future::pending().await
    };
    let upkeep = async {
        let mut interval = tokio::time::interval(UPKEEP);
        loop {
            interval.tick().await;
            metrics::upkeep();
        }
    };
    tokio::select! {
        result = serving => result,
        () = control => Ok(()),
        () = upkeep => Ok(()),
    }
}

/// Sets the limits of connections.
fn limited<A>(mut server: Server<SocketAddr, A>, options: &ServeOptions) -> Server<SocketAddr, A> {
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.headers)
        .max_buf_size(HEADERS);
    server
        .http1_only()
        .first_request_timeout(options.headers)
        .accept_error_handler(|peer, error| {
            tracing::warn!(?peer, %error, "a connection was not accepted");
        })
}
