//! Work that is done by several threads while the caller waits.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::{ScopedJoinHandle, scope};

/// What a thread gave; its panic is the caller's.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What `f` gives for each item, in their order, each on a thread of its own; or the first error.
pub(crate) fn each<T: Send, R: Send, E: Send>(
    items: impl IntoIterator<Item = T>,
    f: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let f = &f;
    scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || f(item))).collect();
        threads.into_iter().map(join).collect()
    })
}

/// The same for each key that differs, by key.
pub(crate) fn by_key<K: Ord + Copy + Send, R: Send, E: Send>(
    keys: impl IntoIterator<Item = K>,
    f: impl Fn(K) -> Result<R, E> + Sync,
) -> Result<BTreeMap<K, R>, E> {
    let keys: BTreeSet<K> = keys.into_iter().collect();
    Ok(each(keys, |key| Ok((key, f(key)?)))?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_by_key() {
        let half = |n: u32| if n.is_multiple_of(2) { Ok(n / 2) } else { Err(n) };
        assert_eq!(each([8, 2, 4, 8], half), Ok(vec![4, 1, 2, 4]));
        assert_eq!(each([8, 5, 4, 3], half), Err(5));
        assert_eq!(by_key([8, 2, 8], half), Ok(BTreeMap::from([(2, 1), (8, 4)])));
        assert_eq!(by_key([8, 3, 3], half), Err(3));
    }
}
