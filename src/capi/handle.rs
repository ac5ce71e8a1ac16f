//! Handle tables: handles are keys of a table, passed to C as pointers.
//!
//! ```text
//! 63 ............ 32   31 .. 30   29 ............. 0
//! generation (odd)     kind       slot, from 1
//! ```
//!
//! A handle is never an address. The generation of a slot is incremented when it is freed, so a
//! destroyed handle finds no value; neither does NULL, a handle of another kind, a foreign pointer
//! or a random number.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::error::{Error, Result};

/// The first bit of the kind in a handle. A table has fewer slots than `1 << KIND_SHIFT`.
const KIND_SHIFT: u32 = 30;

#[derive(Clone, Copy)]
pub(super) enum HandleKind {
    Communicator = 0,
    Stream = 1,
    Registration = 2,
    Request = 3,
}

pub(super) struct HandleTable<T> {
    kind: HandleKind,
    slots: RwLock<Option<SlotMap<DefaultKey, T>>>,
}

impl<T: Clone> HandleTable<T> {
    pub const fn new(kind: HandleKind) -> Self {
        Self { kind, slots: RwLock::new(None) }
    }

    pub fn insert<P>(&self, value: T) -> *mut P {
        let key = self.write().get_or_insert_with(SlotMap::new).insert(value);
        let number = key.data().as_ffi() | (self.kind as u64) << KIND_SHIFT;
        std::ptr::without_provenance_mut(number as usize)
    }

    pub fn find<P>(&self, handle: *mut P) -> Result<T> {
        let key = self.key(handle.addr())?;
        self.read().as_ref().and_then(|slots| slots.get(key)).cloned().ok_or_else(|| self.dead())
    }

    /// Calls `body` with a value under the lock of the table, so that no thread can remove it
    /// meanwhile. `body` must not use the table.
    #[inline]
    pub fn peek<P, R>(&self, handle: *mut P, body: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let key = self.key(handle.addr())?;
        match self.read().as_ref().and_then(|slots| slots.get(key)) {
            Some(value) => body(value),
            None => Err(self.dead()),
        }
    }

    /// Whether it is a handle of this table or may have been one.
    pub fn may_be_ours<P>(&self, handle: *mut P) -> bool {
        let slot = handle.addr() & ((1 << KIND_SHIFT) - 1);
        let slots = self.read().as_ref().map_or(0, SlotMap::capacity);
        self.key(handle.addr()).is_ok() && slot <= slots
    }

    /// Removes the value. Its handle is invalid from here on.
    pub fn remove<P>(&self, handle: *mut P) -> Result<T> {
        let key = self.key(handle.addr())?;
        self.write().as_mut().and_then(|slots| slots.remove(key)).ok_or_else(|| self.dead())
    }

    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        if let Some(slots) = self.write().as_mut() {
            slots.retain(|_, value| keep(value));
        }
    }

    fn key(&self, handle: usize) -> Result<DefaultKey> {
        if handle == 0 {
            return Err(Error::Argument(format!("{} is NULL", self.words().0)));
        }
        let number = handle as u64 ^ (self.kind as u64) << KIND_SHIFT;
        let key = KeyData::from_ffi(number);
        let is_of_kind = number & 3 << KIND_SHIFT == 0;
        // from_ffi changes a number that is not a key into a key, which must not be accepted.
        if is_of_kind && key.as_ffi() == number { Ok(key.into()) } else { Err(self.dead()) }
    }

    fn dead(&self) -> Error {
        let (what, kind) = self.words();
        Error::Handle { what, kind }
    }

    /// The name of the parameter, and the kind of the handle.
    fn words(&self) -> (&'static str, &'static str) {
        match self.kind {
            HandleKind::Communicator => ("comm", "communicator"),
            HandleKind::Stream => ("stream", "stream"),
            HandleKind::Registration => ("handle", "registration"),
            HandleKind::Request => ("request", "request"),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<SlotMap<DefaultKey, T>>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<SlotMap<DefaultKey, T>>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}
