//! A list that holds a few elements without memory of its own.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// A list of which the first `N` elements take no allocation.
pub(crate) struct Few<T, const N: usize> {
    len: usize,
    /// The first `len` are there, if they are no more than `N`.
    inline: [MaybeUninit<T>; N],
    /// All elements, once there are more than `N`.
    spilled: Vec<MaybeUninit<T>>,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// An empty list.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { len: 0, inline: [MaybeUninit::uninit(); N], spilled: Vec::new() }
    }

    /// Adds an element.
    #[inline(always)]
    pub(crate) fn push(&mut self, element: T) {
        // The element is not handed to the rare case: it would go through memory for it every time.
        let place = if self.len < N { &mut self.inline[self.len] } else { self.spill() };
        place.write(element);
        self.len += 1;
    }

    /// The place for the next element, where it does not fit inline.
    #[cold]
    fn spill(&mut self) -> &mut MaybeUninit<T> {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline);
        }
        self.spilled.push(MaybeUninit::uninit());
        &mut self.spilled[self.len]
    }

    /// Adds elements of that value until there are `len`.
    pub(crate) fn grow(&mut self, len: usize, element: T) {
        while self.len < len {
            self.push(element);
        }
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        let places = if self.len > N { self.spilled.as_ptr() } else { self.inline.as_ptr() };
        // SAFETY: the first `len` places hold elements.
        unsafe { std::slice::from_raw_parts(places.cast(), self.len) }
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        let places = if self.len > N { self.spilled.as_mut_ptr() } else { self.inline.as_mut_ptr() };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(places.cast(), self.len) }
    }
}

impl<T: Copy, const N: usize> Clone for Few<T, N> {
    fn clone(&self) -> Self {
        Self { len: self.len, inline: self.inline, spilled: self.spilled.clone() }
    }
}

impl<T: Copy, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy, const N: usize> Extend<T> for Few<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

impl<T: Copy, const N: usize> FromIterator<T> for Few<T, N> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut few = Self::new();
        few.extend(elements);
        few
    }
}

impl<T: std::fmt::Debug, const N: usize> std::fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_one_whether_it_fits_or_not() {
        let mut few = Few::<u32, 3>::new();
        for n in 0..10u32 {
            assert_eq!(*few, (0..n).collect::<Vec<_>>());
            few.push(n);
        }
        few[9] = 7;
        few.grow(12, 1);
        assert_eq!(few[8..], [8, 7, 1, 1]);
    }
}
