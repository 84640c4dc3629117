//! Training data: a file of samples, and the batches that are made of them.

mod batches;
mod chat;
mod marks;
mod order;
mod preprocess;
mod row;
mod sample;

pub use batches::{Batches, Length, Shape};
pub use preprocess::Preprocess;
pub use sample::{Data, Sample};
