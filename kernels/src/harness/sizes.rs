//! The sizes of existing models, for which attention has variants.

/// The head lengths of existing models, and for each the numbers of query heads per KV head.
pub(crate) const HEADS: [(u32, &[u32]); 5] = [
    (64, &[1, 2, 3, 4, 7, 8]),
    (80, &[1]),
    (96, &[1]),
    (128, &[1, 2, 3, 4, 5, 6, 7, 8]),
    (256, &[1, 2, 4, 8]),
];

/// Returns each head length with each number of query heads per KV head.
pub(crate) fn heads() -> impl Iterator<Item = (u32, u32)> {
    HEADS
        .into_iter()
        .flat_map(|(head_dim, queries)| queries.iter().map(move |&queries| (head_dim, queries)))
}
