//! Training data: a file of samples, and the batches made of them.

mod batches;
mod chat;
mod marks;
mod order;
mod preprocess;
mod row;
mod sample;

pub use batches::{BatchShape, Batches, TrainingLength};
pub use preprocess::Preprocess;
pub use sample::{Dataset, Sample};
