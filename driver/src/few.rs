//! Short lists without memory of their own.
//!
//! Such a list is filled where it lies: one that moves right after it was filled is read in wider pieces than it was
//! written in, which stalls the processor for longer than filling it takes.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// A list that takes memory of its own only for more than `N` items.
pub(crate) struct Few<T, const N: usize>(Items<T, N>);

enum Items<T, const N: usize> {
    /// So many of the places hold an item.
    Few(usize, [MaybeUninit<T>; N]),
    Many(Vec<T>),
}

impl<T, const N: usize> Few<T, N> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(Items::Few(0, [const { MaybeUninit::uninit() }; N]))
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        // One place for both cases, and nothing to drop on the way to it: else the item would be put together
        // elsewhere first, and moved.
        let item = ManuallyDrop::new(item);
        let place = match &mut self.0 {
            Items::Few(len, places) if *len < N => {
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
        if let Items::Few(len, places) = &mut self.0 {
            let mut many = Vec::with_capacity(2 * N);
            let places = &places[..std::mem::take(len)];
            // SAFETY: so many places held an item, and none counts any more.
            many.extend(places.iter().map(|place| unsafe { place.assume_init_read() }));
            self.0 = Items::Many(many);
        }
        let Items::Many(many) = &mut self.0 else { unreachable!("the items were moved") };
        let len = many.len();
        many.reserve(1);
        // SAFETY: there is room for one more, and the caller fills it before anybody looks.
        unsafe { many.set_len(len + 1) };
        // SAFETY: a place that is to hold an item is one.
        unsafe { &mut *many.as_mut_ptr().add(len).cast() }
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        match &self.0 {
            // SAFETY: so many places hold an item.
            Items::Few(len, places) => unsafe { std::slice::from_raw_parts(places.as_ptr().cast(), *len) },
            Items::Many(many) => many,
        }
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Items::Few(len, places) => {
                // SAFETY: so many places hold an item.
                unsafe { std::slice::from_raw_parts_mut(places.as_mut_ptr().cast(), *len) }
            }
            Items::Many(many) => many,
        }
    }
}

impl<T, const N: usize> Drop for Items<T, N> {
    #[inline]
    fn drop(&mut self) {
        if let Self::Few(len, places) = self {
            // SAFETY: so many places hold an item, and nobody looks at them after this.
            places[..*len].iter_mut().for_each(|place| unsafe { place.assume_init_drop() });
        }
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
