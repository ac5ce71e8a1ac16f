//! Things that programs create for a communicator and name by a number: operators and data types.
//!
//! Leaves to `operators` and `datatypes` what a number stands for. Invariants: numbers begin at
//! 0x10000 and are never reused; each belongs to one communicator.

use std::collections::BTreeMap;
use std::ffi::c_int;

use crate::error::{Error, Result};

use super::types::nexarComm_t;

/// The first number.
pub(super) const FIRST: c_int = 0x10000;

/// The live ones of one kind, by number.
pub(super) struct CreatedTable<T> {
    /// The name of the parameter, and what a number of it stands for.
    names: [&'static str; 2],
    /// How many were created so far.
    created: usize,
    live: BTreeMap<c_int, Owned<T>>,
}

struct Owned<T> {
    comm: usize,
    definition: T,
}

impl<T: Copy> CreatedTable<T> {
    pub const fn new(names: [&'static str; 2]) -> Self {
        Self { names, created: 0, live: BTreeMap::new() }
    }

    /// Adds a definition for a communicator, and returns its number.
    pub fn create(&mut self, comm: nexarComm_t, definition: T) -> Result<c_int> {
        let number = c_int::try_from(self.created).ok().and_then(|n| n.checked_add(FIRST));
        // The greatest number marks the end of the enum.
        let Some(number) = number.filter(|number| *number < c_int::MAX) else {
            let [_, kind] = self.names;
            let what = format!("this process has used all {kind} numbers: reuse {kind}s");
            return Err(Error::System(what));
        };
        self.created += 1;
        self.live.insert(number, Owned { comm: comm.addr(), definition });
        Ok(number)
    }

    /// What a number that is at least `FIRST` stands for. Fails if it was created for another
    /// communicator or is not live.
    pub fn find(&self, number: c_int, comm: nexarComm_t) -> Result<T> {
        let [name, kind] = self.names;
        let why = match self.live.get(&number) {
            Some(owned) if owned.comm == comm.addr() => return Ok(owned.definition),
            Some(_) => "was created for another communicator".to_owned(),
            None => format!("is not a live {kind}: it was destroyed, or never was created"),
        };
        Err(Error::Argument(format!("{name} {number:#x} {why}")))
    }

    /// The first live number of a communicator whose definition is this.
    pub fn number_of(&self, definition: T, comm: nexarComm_t) -> Option<c_int>
    where
        T: PartialEq,
    {
        let is_meant =
            |owned: &Owned<T>| (owned.comm, owned.definition) == (comm.addr(), definition);
        self.live.iter().find(|(_, owned)| is_meant(owned)).map(|(number, _)| *number)
    }

    /// Destroys one. Fails if it was not created for this communicator.
    pub fn destroy(&mut self, number: c_int, comm: nexarComm_t) -> Result<()> {
        match self.live.get(&number) {
            Some(owned) if owned.comm == comm.addr() => drop(self.live.remove(&number)),
            _ => {
                let [name, kind] = self.names;
                let why = format!("is not one of this communicator's {kind}s");
                return Err(Error::Argument(format!("{name} {number:#x} {why}")));
            }
        }
        Ok(())
    }

    /// Destroys those of a destroyed communicator.
    pub fn forget(&mut self, comm: nexarComm_t) {
        self.live.retain(|_, owned| owned.comm != comm.addr());
    }
}
