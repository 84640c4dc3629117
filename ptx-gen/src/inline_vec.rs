//! Inline vectors for operands: most instructions write one register and read two or three
//! operands.

use std::ops::Deref;

/// A list that stores up to three elements inline and allocates only beyond that.
///
/// Most instructions fit inline, so building a kernel needs few allocations. The list dereferences
/// to a slice. It can be made from an array, a vector or an iterator.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is named after its length")]
pub enum InlineVec<T> {
    None,
    One([T; 1]),
    Two([T; 2]),
    Three([T; 3]),
    More(Box<[T]>),
}

impl<T> Deref for InlineVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            InlineVec::None => &[],
            InlineVec::One(all) => all,
            InlineVec::Two(all) => all,
            InlineVec::Three(all) => all,
            InlineVec::More(all) => all,
        }
    }
}

impl<T> FromIterator<T> for InlineVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all = all.into_iter();
        let Some(a) = all.next() else {
            return InlineVec::None;
        };
        let Some(b) = all.next() else {
            return InlineVec::One([a]);
        };
        let Some(c) = all.next() else {
            return InlineVec::Two([a, b]);
        };

        match all.next() {
            None => InlineVec::Three([a, b, c]),
            Some(d) => InlineVec::More([a, b, c, d].into_iter().chain(all).collect()),
        }
    }
}

impl<T, const N: usize> From<[T; N]> for InlineVec<T> {
    #[inline]
    fn from(all: [T; N]) -> Self {
        if N > 3 {
            return InlineVec::More(Box::new(all));
        }
        // `N` is a constant, so the compiler reduces this match to a plain move.
        let mut all = all.into_iter();
        match (all.next(), all.next(), all.next()) {
            (Some(a), Some(b), Some(c)) => InlineVec::Three([a, b, c]),
            (Some(a), Some(b), None) => InlineVec::Two([a, b]),
            (Some(a), ..) => InlineVec::One([a]),
            _ => InlineVec::None,
        }
    }
}

impl<T> From<Vec<T>> for InlineVec<T> {
    fn from(all: Vec<T>) -> Self {
        all.into_iter().collect()
    }
}

impl<'a, T> IntoIterator for &'a InlineVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::InlineVec;

    #[test]
    fn every_length_is_the_same_list() {
        for n in 0..9 {
            let all: Vec<u32> = (0..n).collect();
            let list: InlineVec<u32> = all.iter().copied().collect();
            assert_eq!(*list, *all);
            assert_eq!(InlineVec::from(all.clone()), list);
            assert!((&list).into_iter().eq(&all));
        }
        assert_eq!(*InlineVec::from([1, 2, 3, 4, 5]), [1, 2, 3, 4, 5]);
        assert!(InlineVec::<u32>::from([]).is_empty());
    }
}
