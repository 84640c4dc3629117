//! Handles: opaque pointers that hold a kind, a generation and an index. They are looked up, never dereferenced.
//!
//! Bits 56.. are the kind, 32..56 the generation, 0..32 the index plus one. The kind makes the pointer non-canonical
//! on every 64-bit machine, so a program that dereferences a handle stops at once.

use std::cmp::Ordering;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use warpwright_driver_sys::*;

use crate::ffi::{Result, refuse};

/// Something that has a handle.
pub(crate) trait Object {
    type Handle: Copy;

    const KIND: u64;
    const WORD: &'static str;
    /// The codes for NULL and for a handle of nothing that lives.
    const NULL: CUresult;
    const STALE: CUresult;

    fn raw(handle: Self::Handle) -> *mut c_void;
    fn handle(raw: *mut c_void) -> Self::Handle;
}

/// Declares which handle type names which object type: kind, word for messages, code for NULL, code for a stale one.
macro_rules! objects {
    ($($type:ty: $handle:ident = $kind:literal $word:literal $null:ident $stale:ident;)*) => {$(
        impl Object for $type {
            type Handle = $handle;

            const KIND: u64 = $kind;
            const WORD: &'static str = $word;
            const NULL: CUresult = CUresult::$null;
            const STALE: CUresult = CUresult::$stale;

            fn raw(handle: $handle) -> *mut c_void {
                handle.0
            }

            fn handle(raw: *mut c_void) -> $handle {
                $handle(raw)
            }
        }
    )*};
}

objects! {
    crate::context::Context: CUcontext = 0x61 "context" INVALID_CONTEXT INVALID_CONTEXT;
    crate::module::Module: CUmodule = 0x62 "module" INVALID_HANDLE INVALID_HANDLE;
    crate::module::LoadedFunction: CUfunction = 0x63 "function" INVALID_HANDLE INVALID_HANDLE;
    crate::stream::Stream: CUstream = 0x64 "stream" INVALID_HANDLE INVALID_HANDLE;
    crate::event::Event: CUevent = 0x65 "event" INVALID_HANDLE INVALID_HANDLE;
    crate::graph::Graph: CUgraph = 0x66 "graph" INVALID_VALUE INVALID_HANDLE;
    crate::graph::Node: CUgraphNode = 0x67 "graph node" INVALID_VALUE INVALID_HANDLE;
    crate::exec::Exec: CUgraphExec = 0x68 "executable graph" INVALID_VALUE INVALID_HANDLE;
}

/// A handle that was looked up once.
pub(crate) struct Id<T>(u64, PhantomData<fn() -> T>);

impl<T: Object> Id<T> {
    pub(crate) fn handle(self) -> T::Handle {
        T::handle(self.0 as usize as *mut c_void)
    }

    fn index(self) -> usize {
        (self.0 as u32 as usize).wrapping_sub(1)
    }
}

impl<T> Id<T> {
    /// The number in the handle, unique in the process.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> std::fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Every object of one kind that lives.
pub(crate) struct Table<T> {
    slots: Vec<Option<(u64, T)>>,
    free: Vec<usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

/// Generations are drawn for the whole process, so a handle of an earlier machine is stale in a later one.
static GENERATION: AtomicU32 = AtomicU32::new(1);

impl<T: Object> Table<T> {
    pub(crate) fn insert(&mut self, object: T) -> Id<T> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let generation = u64::from(GENERATION.fetch_add(1, Relaxed) & 0xff_ffff);
        let id = Id(T::KIND << 56 | generation << 32 | (index as u64 + 1), PhantomData);
        self.slots[index] = Some((id.0, object));
        id
    }

    /// The object of a handle.
    pub(crate) fn find(&self, handle: T::Handle) -> Result<Id<T>> {
        let raw = T::raw(handle);
        if raw.is_null() {
            return refuse(T::NULL, format!("the {} is NULL", T::WORD));
        }
        let id = Id(raw as usize as u64, PhantomData);
        if self.get(id).is_some() {
            return Ok(id);
        }
        let what = if id.0 >> 56 == T::KIND { "was destroyed" } else { "is no handle of this kind" };
        refuse(T::STALE, format!("the {} {:#x} {what}", T::WORD, id.0))
    }

    pub(crate) fn get(&self, id: Id<T>) -> Option<&T> {
        let (number, object) = self.slots.get(id.index())?.as_ref()?;
        (*number == id.0).then_some(object)
    }

    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let (number, object) = self.slots.get_mut(id.index())?.as_mut()?;
        (*number == id.0).then_some(object)
    }

    pub(crate) fn remove(&mut self, id: Id<T>) -> Option<T> {
        self.get(id)?;
        self.free.push(id.index());
        self.slots[id.index()].take().map(|(_, object)| object)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.slots.iter().flatten().map(|(number, object)| (Id(*number, PhantomData), object))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Id<T>, &mut T)> {
        self.slots.iter_mut().flatten().map(|(number, object)| (Id(*number, PhantomData), object))
    }

    /// The ids of the objects that `which` picks, in no particular order.
    pub(crate) fn ids(&self, which: impl Fn(&T) -> bool) -> Vec<Id<T>> {
        self.iter().filter(|(_, object)| which(object)).map(|(id, _)| id).collect()
    }
}

/// Ids come from the table and are used under the same lock, so one that is absent is a defect of the emulator.
impl<T: Object> std::ops::Index<Id<T>> for Table<T> {
    type Output = T;

    fn index(&self, id: Id<T>) -> &T {
        self.get(id).unwrap_or_else(|| panic!("the {} {id:?} is gone", T::WORD))
    }
}

impl<T: Object> std::ops::IndexMut<Id<T>> for Table<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| panic!("the {} {id:?} is gone", T::WORD))
    }
}
