//! Handles: opaque pointers that encode a kind, a generation and an index.
//!
//! Handles are looked up and never dereferenced. Bits 56 and above are the kind, bits 32 to 55 the
//! generation, and bits 0 to 31 the index plus one. The kind makes the pointer non-canonical on
//! every 64-bit machine, so a program that dereferences a handle crashes immediately.

use std::cmp::Ordering;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};

/// A kind of object that has handles.
///
/// The types are empty. They distinguish the ids of different kinds, so that objects can refer to
/// each other by id without knowing each other's type.
pub(crate) trait HandleKind {
    type Handle: Copy;

    const TAG: u64;
    const WORD: &'static str;
    /// The error code for a NULL handle.
    const NULL: CUresult;
    /// The error code for a handle of an object that does not exist.
    const STALE: CUresult;

    fn raw(handle: Self::Handle) -> *mut c_void;
    fn handle(raw: *mut c_void) -> Self::Handle;
}

/// Declares the kinds with one line each: id type, handle type, tag, word for messages, code for
/// NULL and code for a stale handle.
macro_rules! kinds {
    ($($kind:ident $id:ident: $handle:ident = $tag:literal $word:literal $null:ident $stale:ident;)*) => {
        /// The kinds of objects.
        pub(crate) mod kind {$(
            pub(crate) enum $kind {}
        )*}

        $(
            pub(crate) type $id = Id<kind::$kind>;

            impl HandleKind for kind::$kind {
                type Handle = $handle;

                const TAG: u64 = $tag;
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
        )*
    };
}

kinds! {
    Context ContextId: CUcontext = 0x61 "context" INVALID_CONTEXT INVALID_CONTEXT;
    Module ModuleId: CUmodule = 0x62 "module" INVALID_HANDLE INVALID_HANDLE;
    Function FunctionId: CUfunction = 0x63 "function" INVALID_HANDLE INVALID_HANDLE;
    Stream StreamId: CUstream = 0x64 "stream" INVALID_HANDLE INVALID_HANDLE;
    Event EventId: CUevent = 0x65 "event" INVALID_HANDLE INVALID_HANDLE;
    Graph GraphId: CUgraph = 0x66 "graph" INVALID_VALUE INVALID_HANDLE;
    Node NodeId: CUgraphNode = 0x67 "graph node" INVALID_VALUE INVALID_HANDLE;
    Exec ExecId: CUgraphExec = 0x68 "executable graph" INVALID_VALUE INVALID_HANDLE;
    Pool PoolId: CUmemoryPool = 0x69 "memory pool" INVALID_VALUE INVALID_VALUE;
    Library LibraryId: CUlibrary = 0x6a "library" INVALID_HANDLE INVALID_HANDLE;
    Kernel KernelId: CUkernel = 0x6b "kernel" INVALID_HANDLE INVALID_HANDLE;
    Link LinkId: CUlinkState = 0x6c "link" INVALID_HANDLE INVALID_HANDLE;
    Array ArrayId: CUarray = 0x6e "array" INVALID_HANDLE INVALID_HANDLE;
    UserObject UserObjectId: CUuserObject = 0x6d "user object" INVALID_VALUE INVALID_VALUE;
}

/// The id of an object whose handle was looked up.
pub(crate) struct Id<K>(u64, PhantomData<fn() -> K>);

impl<K: HandleKind> Id<K> {
    pub(crate) fn handle(self) -> K::Handle {
        K::handle(self.0 as usize as *mut c_void)
    }

    fn index(self) -> usize {
        (self.0 as u32 as usize).wrapping_sub(1)
    }
}

impl<K> Id<K> {
    /// Returns the number in the handle, which is unique in the process.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Id<K> {}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K> Eq for Id<K> {}

impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<K> std::fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// All live objects of one kind.
pub(crate) struct Table<K, T> {
    slots: Vec<Option<(u64, T)>>,
    free: Vec<usize>,
    kind: PhantomData<fn() -> K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            kind: PhantomData,
        }
    }
}

/// The next generation. It is shared by all machines of the process, so that a handle of an earlier
/// machine is stale in a later one.
static GENERATION: AtomicU32 = AtomicU32::new(1);

impl<K: HandleKind, T> Table<K, T> {
    pub(crate) fn insert(&mut self, object: T) -> Id<K> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let generation = u64::from(GENERATION.fetch_add(1, Relaxed) & 0xff_ffff);
        let id = Id(
            K::TAG << 56 | generation << 32 | (index as u64 + 1),
            PhantomData,
        );
        self.slots[index] = Some((id.0, object));
        id
    }

    /// Returns the id of the object with this handle.
    pub(crate) fn find(&self, handle: K::Handle) -> Result<Id<K>> {
        let raw = K::raw(handle);
        if raw.is_null() {
            return refuse(K::NULL, format!("the {} is NULL", K::WORD));
        }

        let id = Id(raw as usize as u64, PhantomData);
        if self.get(id).is_some() {
            return Ok(id);
        }

        let what = if id.0 >> 56 == K::TAG {
            "was destroyed"
        } else {
            "is not a handle of this kind"
        };
        refuse(K::STALE, format!("the {} {:#x} {what}", K::WORD, id.0))
    }

    pub(crate) fn get(&self, id: Id<K>) -> Option<&T> {
        let (number, object) = self.slots.get(id.index())?.as_ref()?;
        (*number == id.0).then_some(object)
    }

    pub(crate) fn get_mut(&mut self, id: Id<K>) -> Option<&mut T> {
        let (number, object) = self.slots.get_mut(id.index())?.as_mut()?;
        (*number == id.0).then_some(object)
    }

    pub(crate) fn remove(&mut self, id: Id<K>) -> Option<T> {
        self.get(id)?;
        self.free.push(id.index());
        self.slots[id.index()].take().map(|(_, object)| object)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<K>, &T)> {
        self.slots
            .iter()
            .flatten()
            .map(|(number, object)| (Id(*number, PhantomData), object))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Id<K>, &mut T)> {
        self.slots
            .iter_mut()
            .flatten()
            .map(|(number, object)| (Id(*number, PhantomData), object))
    }

    /// Returns the ids of the objects that `which` selects, in no particular order.
    pub(crate) fn ids(&self, which: impl Fn(&T) -> bool) -> Vec<Id<K>> {
        self.iter()
            .filter(|(_, object)| which(object))
            .map(|(id, _)| id)
            .collect()
    }
}

/// Panics if the object is gone. Ids come from the table and are used under the same lock, so that
/// would be a bug of the emulator.
impl<K: HandleKind, T> std::ops::Index<Id<K>> for Table<K, T> {
    type Output = T;

    fn index(&self, id: Id<K>) -> &T {
        self.get(id)
            .unwrap_or_else(|| panic!("the {} {id:?} is gone", K::WORD))
    }
}

impl<K: HandleKind, T> std::ops::IndexMut<Id<K>> for Table<K, T> {
    fn index_mut(&mut self, id: Id<K>) -> &mut T {
        self.get_mut(id)
            .unwrap_or_else(|| panic!("the {} {id:?} is gone", K::WORD))
    }
}
