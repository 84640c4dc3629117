//! Short lists without memory of their own.
//!
//! Such a list is filled where it lies: one that moves right after it was filled is read in wider pieces than it was
//! written in, which stalls the processor for longer than filling it takes.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// A list that takes memory of its own only for more than `N` items.
pub(crate) struct Few<T, const N: usize>(Places<T, N>);

/// Places, of which these hold an item:
enum Places<T, const N: usize> {
    /// So many, the first ones.
    Few(usize, [MaybeUninit<T>; N]),
    /// All.
    Many(Vec<MaybeUninit<T>>),
}

impl<T, const N: usize> Few<T, N> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(Places::Few(0, [const { MaybeUninit::uninit() }; N]))
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        // One place for both cases, and nothing to drop on the way to it: else the item would be put together
        // elsewhere first, and moved.
        let item = ManuallyDrop::new(item);
        let place = match &mut self.0 {
            Places::Few(len, places) if *len < N => {
                *len += 1;
                &mut places[*len - 1]
            }
            _ => self.place_in_many(),
        };
        place.write(ManuallyDrop::into_inner(item));
    }

    /// A place that counts as filled, for the caller to fill at once.
    #[cold]
    fn place_in_many(&mut self) -> &mut MaybeUninit<T> {
        if let Places::Few(len, places) = &mut self.0 {
            let mut many = Vec::with_capacity(2 * N);
            for place in &mut places[..std::mem::take(len)] {
                many.push(std::mem::replace(place, MaybeUninit::uninit()));
            }
            self.0 = Places::Many(many);
        }
        let Places::Many(many) = &mut self.0 else {
            unreachable!("the items were moved")
        };
        let place = many.len();
        many.push(MaybeUninit::uninit());
        &mut many[place]
    }
}

impl<T, const N: usize> Places<T, N> {
    #[inline(always)]
    fn filled(&self) -> &[MaybeUninit<T>] {
        match self {
            Self::Few(len, places) => &places[..*len],
            Self::Many(many) => many,
        }
    }

    #[inline(always)]
    fn filled_mut(&mut self) -> &mut [MaybeUninit<T>] {
        match self {
            Self::Few(len, places) => &mut places[..*len],
            Self::Many(many) => many,
        }
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        let filled: *const [MaybeUninit<T>] = self.0.filled();
        // SAFETY: the places hold items.
        unsafe { &*(filled as *const [T]) }
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        let filled: *mut [MaybeUninit<T>] = self.0.filled_mut();
        // SAFETY: the places hold items.
        unsafe { &mut *(filled as *mut [T]) }
    }
}

impl<T, const N: usize> Drop for Places<T, N> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the places hold items, and nobody looks at them after this.
        self.filled_mut()
            .iter_mut()
            .for_each(|place| unsafe { place.assume_init_drop() });
    }
}

impl<T, const N: usize> Default for Few<T, N> {
    #[inline(always)]
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, const N: usize> Clone for Few<T, N> {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        self.iter().cloned().for_each(|item| copy.push(item));
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn items_are_kept_and_dropped_once_however_many_they_are() {
        let item = Rc::new(());
        for count in 0..10 {
            let mut list = Few::<_, 3>::new();
            (0..count).for_each(|n| list.push((n, item.clone())));
            assert!(list.iter().map(|(n, _)| *n).eq(0..count));
            let mut copy = list.clone();
            copy.iter_mut().for_each(|(n, _)| *n += 1);
            assert!(copy.iter().map(|(n, _)| *n).eq(1..=count));
            assert_eq!(Rc::strong_count(&item), 1 + 2 * count);
            drop(list);
            assert_eq!(Rc::strong_count(&item), 1 + count);
        }
        assert_eq!(Rc::strong_count(&item), 1);
    }
}
