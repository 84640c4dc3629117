//! A request for embeddings.

use tokio::sync::oneshot;

use super::request::GenerationError;

/// The embeddings of texts, or the reason why there are none.
pub(super) type EmbeddingResult = Result<Vec<Vec<f32>>, GenerationError>;

/// Texts whose embeddings are wanted. Dropping the receiver cancels it.
pub(super) struct EmbeddingJob {
    texts: Vec<Vec<u32>>,
    /// The embeddings of the first texts.
    vectors: Vec<Vec<f32>>,
    result: oneshot::Sender<EmbeddingResult>,
}

impl EmbeddingJob {
    pub(super) fn new(
        texts: Vec<Vec<u32>>,
        result: oneshot::Sender<EmbeddingResult>,
    ) -> EmbeddingJob {
        EmbeddingJob {
            texts,
            vectors: vec![],
            result,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.result.is_closed()
    }

    /// Returns the next texts, at least one and at most `tokens` tokens if one is not longer.
    pub(super) fn next_texts(&self, tokens: usize) -> &[Vec<u32>] {
        let rest = &self.texts[self.vectors.len()..];
        let mut total = 0;
        let fitting = rest.iter().take_while(|text| {
            total += text.len();
            total <= tokens
        });
        let count = fitting.count().max(1).min(rest.len());
        &rest[..count]
    }

    /// Appends the embeddings of the next texts.
    pub(super) fn append(&mut self, vectors: Vec<Vec<f32>>) {
        assert!(!vectors.is_empty(), "an engine returns one vector per text");
        self.vectors.extend(vectors);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.vectors.len() >= self.texts.len()
    }

    /// Sends the embeddings of all texts.
    pub(super) fn finish_complete(mut self) {
        let vectors = std::mem::take(&mut self.vectors);
        self.finish(Ok(vectors));
    }

    /// Sends the result.
    pub(super) fn finish(self, result: EmbeddingResult) {
        // Nobody waits for a cancelled job.
        let _ = self.result.send(result);
    }
}
