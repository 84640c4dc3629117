//! Short lists: most instructions write one register and read two or three operands.

use std::ops::Deref;

/// A list that keeps up to three elements in place, so that most instructions need no memory of their own.
///
/// It dereferences to a slice, and is made from an array, a vector or an iterator.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the variants are the lengths
pub enum Few<T> {
    None,
    One([T; 1]),
    Two([T; 2]),
    Three([T; 3]),
    More(Box<[T]>),
}

impl<T> Deref for Few<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Few::None => &[],
            Few::One(all) => all,
            Few::Two(all) => all,
            Few::Three(all) => all,
            Few::More(all) => all,
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all = all.into_iter();
        let Some(a) = all.next() else {
            return Few::None;
        };
        let Some(b) = all.next() else {
            return Few::One([a]);
        };
        let Some(c) = all.next() else {
            return Few::Two([a, b]);
        };
        match all.next() {
            None => Few::Three([a, b, c]),
            Some(d) => Few::More([a, b, c, d].into_iter().chain(all).collect()),
        }
    }
}

impl<T, const N: usize> From<[T; N]> for Few<T> {
    #[inline]
    fn from(all: [T; N]) -> Self {
        if N > 3 {
            return Few::More(Box::new(all));
        }
        // `N` is known here: what is left of this is a move.
        let mut all = all.into_iter();
        match (all.next(), all.next(), all.next()) {
            (Some(a), Some(b), Some(c)) => Few::Three([a, b, c]),
            (Some(a), Some(b), None) => Few::Two([a, b]),
            (Some(a), ..) => Few::One([a]),
            _ => Few::None,
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(all: Vec<T>) -> Self {
        all.into_iter().collect()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::Few;

    #[test]
    fn every_length_is_the_same_list() {
        for n in 0..9 {
            let all: Vec<u32> = (0..n).collect();
            let few: Few<u32> = all.iter().copied().collect();
            assert_eq!(*few, *all);
            assert_eq!(Few::from(all.clone()), few);
            assert!((&few).into_iter().eq(&all));
        }
        assert_eq!(*Few::from([1, 2, 3, 4, 5]), [1, 2, 3, 4, 5]);
        assert!(Few::<u32>::from([]).is_empty());
    }
}
