//! The handle table: what a C pointer of ours means.
//!
//! ```text
//! nexarComm_t   63 ............ 32  31 ............. 0
//!               generation (odd)    slot, from 1
//! ```
//!
//! The pointer is a key, never an address. A slot's generation grows when it is freed, so a
//! destroyed handle finds nothing, and neither does NULL, a foreign pointer or a random number.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::comm::Communicator;
use crate::error::{Error, Result};

use super::types::{nexarComm, nexarComm_t};

type Table = SlotMap<DefaultKey, Arc<Communicator>>;

static TABLE: RwLock<Option<Table>> = RwLock::new(None);

pub(super) fn insert(communicator: Arc<Communicator>) -> nexarComm_t {
    let key = write().get_or_insert_with(Table::new).insert(communicator);
    std::ptr::without_provenance_mut::<nexarComm>(key.data().as_ffi() as usize)
}

pub(super) fn find(comm: nexarComm_t) -> Result<Arc<Communicator>> {
    let key = key(comm)?;
    read().as_ref().and_then(|table| table.get(key)).cloned().ok_or_else(dead)
}

/// Takes the communicator out: its handle is dead from here on.
pub(super) fn remove(comm: nexarComm_t) -> Result<Arc<Communicator>> {
    let key = key(comm)?;
    write().as_mut().and_then(|table| table.remove(key)).ok_or_else(dead)
}

fn key(comm: nexarComm_t) -> Result<DefaultKey> {
    if comm.is_null() {
        return Err(Error::Argument("comm is NULL".to_owned()));
    }
    let key = KeyData::from_ffi(comm.addr() as u64);
    // from_ffi repairs numbers that are no key; such a number must not become somebody's key.
    if key.as_ffi() != comm.addr() as u64 { Err(dead()) } else { Ok(key.into()) }
}

fn dead() -> Error {
    Error::Handle { what: "comm", kind: "communicator" }
}

fn read() -> RwLockReadGuard<'static, Option<Table>> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Option<Table>> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}
