//! Work of requests that takes long, on threads for that.

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::error::{ErrorKind, RequestError};

/// The number of bytes of the texts that are tokenized at a time, in KiB. The tokenizer takes about
/// 60 times as much memory.
const TOKENIZED_KIB: u32 = 8 << 10;

/// Texts of up to this size are not counted.
const SMALL_KIB: usize = 32;

static TOKENIZING: Semaphore = Semaphore::const_new(TOKENIZED_KIB as usize);

/// Runs work that takes long on a thread for that.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RequestError::new(ErrorKind::Internal, error.to_string())))
}

/// Runs work that tokenizes texts of `bytes` bytes. It waits while other requests tokenize long
/// texts, so that they do not fill the memory together.
pub(crate) async fn tokenizing<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let kib = bytes >> 10;
    if kib <= SMALL_KIB {
        return blocking(work).await;
    }

    // A text that is longer than all that is allowed is tokenized alone.
    let kib = u32::try_from(kib).unwrap_or(u32::MAX).min(TOKENIZED_KIB);
    let permit = TOKENIZING
        .acquire_many(kib)
        .await
        .expect("the semaphore is never closed");
    // A client that disconnects meanwhile stops no thread, so the thread keeps the permit.
    blocking(move || {
        let _permit = permit;
        work()
    })
    .await
}
