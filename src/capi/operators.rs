//! The table of operators that programs have created: numbers from 0x10000, each of one
//! communicator.
//!
//! Leaves to `redop` the functions that create and destroy them. Invariant: a number is never used
//! again.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::comm::{MemoryKind, memory_kind};
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::op::{Fold, Reducer, Scalar};

use super::process;
use super::types::{DataTypeCode, RedOpCode, nexarComm_t};

/// Folds count elements: inout[i] = in[i] op inout[i], where in comes from the lower ranks.
type UserFold = unsafe extern "C" fn(*const c_void, *mut c_void, usize, DataTypeCode, *mut c_void);

const FIRST: RedOpCode = 0x10000;

struct Created {
    comm: usize,
    definition: Definition,
}

#[derive(Clone, Copy)]
pub(super) enum Definition {
    /// A sum with this scalar.
    Immediate(Fold, [u8; 8]),
    /// A sum with the scalar at this address, which is read at every use.
    Resident(Fold, Pointer),
    /// A function of the program.
    User { fold: UserFold, user: Pointer, commutative: bool },
}

/// An address of the program that is passed back to it or read, and not shared otherwise.
#[derive(Clone, Copy)]
pub(super) struct Pointer(pub *mut c_void);

// SAFETY: the program promises that its function and its scalar may be used by any thread that
// uses the operator.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

#[derive(Default)]
struct Operators {
    made: usize,
    operators: BTreeMap<RedOpCode, Created>,
}

static TABLE: Mutex<Operators> = Mutex::new(Operators { made: 0, operators: BTreeMap::new() });

fn table() -> MutexGuard<'static, Operators> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives an operator the next number.
pub(super) fn create(comm: nexarComm_t, definition: Definition) -> Result<RedOpCode> {
    let mut table = table();
    let number = RedOpCode::try_from(table.made).ok().and_then(|made| made.checked_add(FIRST));
    let Some(number) = number.filter(|number| *number < RedOpCode::MAX) else {
        return Err(Error::System("no number is left for another operator".to_owned()));
    };
    table.made += 1;
    table.operators.insert(number, Created { comm: comm.addr(), definition });
    Ok(number)
}

/// The reducer of an operator, for elements of a type.
pub(super) fn find(op: RedOpCode, dtype: DataType, comm: nexarComm_t) -> Result<Reducer> {
    let wrong = |what: String| Err(Error::Argument(format!("op {op:#x} {what}")));
    let definition = match table().operators.get(&op) {
        Some(created) if created.comm == comm.addr() => created.definition,
        Some(_) => return wrong("was created for another communicator".to_owned()),
        None if op < FIRST => {
            return Err(Error::Argument(format!("op {op} is not a nexarRedOp_t")));
        }
        None => {
            return wrong("is not a live operator: it was destroyed, or never was one".to_owned());
        }
    };
    match definition {
        Definition::Immediate(sum, _) | Definition::Resident(sum, _) if sum.dtype() != dtype => {
            wrong(format!("was created for {}, not for {dtype}", sum.dtype()))
        }
        Definition::Immediate(sum, scalar) => {
            Ok(Reducer::PreMulSum { sum, scalar: Scalar::Here(scalar) })
        }
        Definition::Resident(sum, scalar) => {
            let address = scalar.0.addr();
            let range = address..address + dtype.size();
            let scalar = match memory_kind("the scalar", &range, None)? {
                // SAFETY: the program keeps its scalar alive until the operator is destroyed.
                MemoryKind::Plain => Scalar::Here(unsafe { read_scalar(scalar.0, dtype) }),
                MemoryKind::Pinned => Scalar::Pinned {
                    address: address as u64,
                    // SAFETY: as above.
                    now: unsafe { read_scalar(scalar.0, dtype) },
                },
                MemoryKind::Device { .. } | MemoryKind::Managed { .. } => {
                    Scalar::OnDevice(address as u64)
                }
            };
            Ok(Reducer::PreMulSum { sum, scalar })
        }
        Definition::User { fold, user, commutative } => {
            let function = move |left: &[u8], right: &mut [u8]| {
                let count = right.len() / dtype.size();
                let user = user; // the whole of it, which is Send and Sync
                // SAFETY: the program's function reads `count` elements of the one and writes those
                // of the other, which are as many; `reduce` has aligned them.
                process::outside_again(|| unsafe {
                    fold(
                        left.as_ptr().cast(),
                        right.as_mut_ptr().cast(),
                        count,
                        dtype as c_int,
                        user.0,
                    )
                });
            };
            Ok(Reducer::User { dtype, commutative, function: Arc::new(function) })
        }
    }
}

/// Destroys the operators of a communicator that has ended.
pub(super) fn forget(comm: nexarComm_t) {
    table().operators.retain(|_, created| created.comm != comm.addr());
}

/// Destroys an operator. Fails if it was not created for `comm`.
pub(super) fn destroy(op: RedOpCode, comm: nexarComm_t) -> Result<()> {
    let mut table = table();
    match table.operators.get(&op) {
        Some(created) if created.comm == comm.addr() => drop(table.operators.remove(&op)),
        _ => {
            let what = format!("op {op:#x} is not an operator that was created for comm");
            return Err(Error::Argument(what));
        }
    }
    Ok(())
}

/// # Safety
/// `scalar` points to one element of the type.
pub(super) unsafe fn read_scalar(scalar: *const c_void, dtype: DataType) -> [u8; 8] {
    let mut bytes = [0; 8];
    // SAFETY: the caller vouches for one element; eight bytes hold every type.
    unsafe { std::ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), dtype.size()) };
    bytes
}
