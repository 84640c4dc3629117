//! Listens for connections and serves the application on them.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
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

/// A certificate with its key, ready for connections.
#[derive(Clone, Debug)]
pub struct TlsCertificate {
    config: RustlsConfig,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if they do not contain a certificate and its
    /// key.
    pub async fn read(&self) -> io::Result<TlsCertificate> {
        // Another provider that the process has installed is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = RustlsConfig::from_pem_file(&self.certificates, &self.key).await?;
        let mut only_http1 = (*config.get_inner()).clone();
        only_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.reload_from_config(Arc::new(only_http1));
        Ok(TlsCertificate { config })
    }
}

/// The options of [`serve`].
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The certificate, or `None` for plain HTTP.
    pub tls: Option<TlsCertificate>,
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
/// Returns an error if the listener fails.
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
            Some(TlsCertificate { config }) => {
                let acceptor = RustlsAcceptor::new(config.clone()).acceptor(NoDelayAcceptor);
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
