//! The handle table of communicators, both created ones and those in creation.
//!
//! Leaves to `comm` the functions that create and end them. Invariant: a communicator that is not
//! created yet cannot be used.

use std::ffi::c_int;
use std::sync::Arc;

use crate::comm::{BackgroundCreation, Communicator};
use crate::error::{Error, Result};

use super::handle::{HandleKind, HandleTable};
use super::types::nexarComm_t;

static TABLE: HandleTable<CommEntry> = HandleTable::new(HandleKind::Communicator);

#[derive(Clone)]
struct CommEntry {
    handled: Handled,
    /// The CUDA device that the program named for this rank.
    device: Option<c_int>,
}

/// What a handle refers to.
#[derive(Clone)]
pub(super) enum Handled {
    Created(Arc<Communicator>),
    InCreation(Arc<BackgroundCreation>),
}

pub(super) fn insert(communicator: Arc<Communicator>, device: Option<c_int>) -> nexarComm_t {
    TABLE.insert(CommEntry { handled: Handled::Created(communicator), device })
}

pub(super) fn insert_in_creation(creation: Arc<BackgroundCreation>) -> nexarComm_t {
    TABLE.insert(CommEntry { handled: Handled::InCreation(creation), device: None })
}

/// The CUDA device that the program named for the rank of a handle.
pub(super) fn device(comm: nexarComm_t) -> Result<Option<c_int>> {
    TABLE.find(comm).map(|entry| entry.device)
}

pub(super) fn handled(comm: nexarComm_t) -> Result<Handled> {
    TABLE.find(comm).map(|entry| entry.handled)
}

/// Removes it from the table. Its handle is invalid from here on.
pub(super) fn remove(comm: nexarComm_t) -> Result<Handled> {
    TABLE.remove(comm).map(|entry| entry.handled)
}

/// The communicator of a handle. Fails if it is still in creation or could not be created.
pub(super) fn find(comm: nexarComm_t) -> Result<Arc<Communicator>> {
    match handled(comm)? {
        Handled::Created(communicator) => Ok(communicator),
        Handled::InCreation(creation) => created(&creation),
    }
}

fn created(creation: &BackgroundCreation) -> Result<Arc<Communicator>> {
    creation.result().unwrap_or_else(|| {
        let what = "comm is still being created: use it when nexarCommGetAsyncError gives \
                    nexarSuccess, or after the end of its group";
        Err(Error::Argument(what.to_owned()))
    })
}

/// Calls `body` with the communicator of a handle, under the lock of the table. `body` must not use
/// the table.
#[inline]
pub(super) fn peek<R>(
    comm: nexarComm_t,
    body: impl FnOnce(&Arc<Communicator>) -> Result<R>,
) -> Result<R> {
    TABLE.peek(comm, |entry| match &entry.handled {
        Handled::Created(communicator) => body(communicator),
        Handled::InCreation(creation) => body(&created(creation)?),
    })
}
