//! Connections, keys, limits, logs and metrics. This layer knows nothing of any protocol's JSON.
//!
//! [`router`](router::router()) builds the application from the endpoints of the protocols. A request
//! passes these steps, from the outside in:
//! 1. [`identity`]: its id, which is in the response and in every line of the log.
//! 2. [`log`]: the line about its response, and its metrics.
//! 3. `cors`: the headers for web pages of other origins.
//! 4. [`guard`]: its host, origin and key, the size of its body and the time in which it must
//!    arrive. An error has the shape of the protocol that the path belongs to.
//! 5. The handler of the protocol.

mod cors;
pub mod guard;
pub mod identity;
pub mod keys;
pub mod log;
pub mod metrics;
pub mod origin;
pub mod router;
pub mod serve;
pub mod state;
pub mod surface;
