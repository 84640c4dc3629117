//! The identity of an adapter.

use sha2::{Digest, Sha256};
use warpwright_model::Adapter;

/// The identity of an adapter: a hash of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(u64);

impl AdapterId {
    /// Returns the identity of an adapter. Adapters with equal ranks, scales and values have the
    /// same identity. Names and paths do not count.
    pub fn new(adapter: &Adapter) -> AdapterId {
        let mut hash = Sha256::new();
        for (layer, factors) in (0u64..).zip(&adapter.layers) {
            for (projection, factors) in (0u64..).zip(factors) {
                let Some(factors) = factors else { continue };
                let lengths = [factors.a.len() as u64, factors.b.len() as u64];
                for word in [
                    layer,
                    projection,
                    factors.rank.into(),
                    lengths[0],
                    lengths[1],
                ] {
                    hash.update(word.to_le_bytes());
                }
                hash.update(factors.scale.to_le_bytes());
                for values in [&factors.a, &factors.b] {
                    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                    hash.update(bytes);
                }
            }
        }
        let hash = hash.finalize();
        let first = hash.first_chunk().expect("the hash has 32 bytes");
        // 0 is the scope of sequences without an adapter.
        AdapterId(u64::from_le_bytes(*first).max(1))
    }

    /// Returns the adapter of a [scope](AdapterId::scope), or `None` for 0.
    pub(crate) fn of_scope(scope: u64) -> Option<AdapterId> {
        (scope != 0).then_some(AdapterId(scope))
    }

    /// Returns the number for [`PrefixScope::adapter`](crate::PrefixScope::adapter). It is not 0.
    pub fn scope(self) -> u64 {
        self.0
    }
}
