//! The embedding: `h[t,:] = E[id[t],:]`. The table is frozen, so there is no backward.

/// The rows of `table` `[vocab, hidden]` at `ids` `[tokens]`: `[tokens, hidden]`.
pub fn forward(ids: &[u32], table: &[f64], hidden: usize) -> Vec<f64> {
    let rows = ids.iter().map(|&id| &table[id as usize * hidden..][..hidden]);
    rows.flatten().copied().collect()
}
