//! An inline vector that is filled in place.
//!
//! The crate `smallvec` is not used, because its `push` takes the item by value. An item that is
//! assembled elsewhere and moved right after it was written is read back in wider loads than it was
//! written in. The processor cannot forward such stores to the loads, and the stall costs more than
//! a prepared launch may take. [`SmallVec::push`] therefore writes into the final place.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// A vector that stores up to `N` items inline and allocates only beyond that.
pub(crate) struct SmallVec<T, const N: usize>(Storage<T, N>);

/// The slots of a vector. In both variants a prefix of them is initialized.
enum Storage<T, const N: usize> {
    /// Inline slots, and the number of items in them.
    Inline(usize, [MaybeUninit<T>; N]),
    /// Heap slots, all of them initialized.
    Heap(Vec<MaybeUninit<T>>),
}

impl<T, const N: usize> SmallVec<T, N> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(Storage::Inline(0, [const { MaybeUninit::uninit() }; N]))
    }

    /// Appends an item.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        // One destination for both cases and nothing to drop on the way. Otherwise the compiler
        // assembles the item on the stack and moves it, see the module's documentation.
        let item = ManuallyDrop::new(item);
        let slot = match &mut self.0 {
            Storage::Inline(len, slots) if *len < N => {
                *len += 1;
                &mut slots[*len - 1]
            }
            _ => self.heap_slot(),
        };
        slot.write(ManuallyDrop::into_inner(item));
    }

    /// Returns a heap slot that counts as initialized. The caller must fill it immediately.
    #[cold]
    fn heap_slot(&mut self) -> &mut MaybeUninit<T> {
        if let Storage::Inline(len, slots) = &mut self.0 {
            let mut heap = Vec::with_capacity(2 * N);
            // The length is zeroed first, so that a panic while moving leaks items and drops none
            // of them twice.
            for slot in &mut slots[..std::mem::take(len)] {
                heap.push(std::mem::replace(slot, MaybeUninit::uninit()));
            }
            self.0 = Storage::Heap(heap);
        }

        let Storage::Heap(heap) = &mut self.0 else {
            unreachable!("the items were moved")
        };

        let index = heap.len();
        heap.push(MaybeUninit::uninit());
        &mut heap[index]
    }
}

impl<T, const N: usize> Storage<T, N> {
    #[inline(always)]
    fn initialized(&self) -> &[MaybeUninit<T>] {
        match self {
            Self::Inline(len, slots) => &slots[..*len],
            Self::Heap(heap) => heap,
        }
    }

    #[inline(always)]
    fn initialized_mut(&mut self) -> &mut [MaybeUninit<T>] {
        match self {
            Self::Inline(len, slots) => &mut slots[..*len],
            Self::Heap(heap) => heap,
        }
    }
}

impl<T, const N: usize> Deref for SmallVec<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        let slots: *const [MaybeUninit<T>] = self.0.initialized();
        // SAFETY: `initialized` returns only slots that `push` has filled, and `MaybeUninit<T>` has
        // the layout of `T`.
        unsafe { &*(slots as *const [T]) }
    }
}

impl<T, const N: usize> DerefMut for SmallVec<T, N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        let slots: *mut [MaybeUninit<T>] = self.0.initialized_mut();
        // SAFETY: as in `deref`, and `&mut self` makes the borrow exclusive.
        unsafe { &mut *(slots as *mut [T]) }
    }
}

impl<T, const N: usize> Drop for Storage<T, N> {
    #[inline]
    fn drop(&mut self) {
        for slot in self.initialized_mut() {
            // SAFETY: `push` has filled the slot, and a destructor is the last to access it.
            unsafe { slot.assume_init_drop() };
        }
    }
}

impl<T, const N: usize> Default for SmallVec<T, N> {
    #[inline(always)]
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, const N: usize> Clone for SmallVec<T, N> {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        for item in self.iter() {
            copy.push(item.clone());
        }
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
            let mut list = SmallVec::<_, 3>::new();
            for n in 0..count {
                list.push((n, item.clone()));
            }

            assert!(list.iter().map(|(n, _)| *n).eq(0..count));
            let mut copy = list.clone();
            for (n, _) in copy.iter_mut() {
                *n += 1;
            }

            assert!(copy.iter().map(|(n, _)| *n).eq(1..=count));
            assert_eq!(Rc::strong_count(&item), 1 + 2 * count);
            drop(list);
            assert_eq!(Rc::strong_count(&item), 1 + count);
        }
        assert_eq!(Rc::strong_count(&item), 1);
    }
}
