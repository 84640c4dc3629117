//! Connections, keys, limits, logs and metrics. This layer knows nothing of any protocol's JSON.
//!
//! [`router`](router::router()) builds the application from the endpoints of the protocols. A request
//! passes these steps, from the outside in:
//! 1. [`identity`]: its id, which is in the response and in every line of the log.
//! 2. [`guard`]: its key, the size of its body and the time in which it must arrive. An error has
//!    the shape of the protocol that the path belongs to.
//! 3. The handler of the protocol.

pub mod guard;
pub mod identity;
pub mod keys;
pub mod router;
pub mod state;
pub mod surface;
