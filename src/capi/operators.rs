//! The operators that programs have created, and the reducers of them.
//!
//! Leaves to `redop` the functions that create and destroy them, and to `created` the numbers.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::comm::{MemoryKind, memory_kind};
use crate::dtype::{DataType, ElementType};
use crate::error::{Error, Result};
use crate::op::{Fold, Reducer, Scalar};

use super::created::{CreatedTable, FIRST};
use super::process;
use super::types::{DataTypeCode, RedOpCode, nexarComm_t};

/// Reduces count elements: inout[i] = in[i] op inout[i], where in is from the lower ranks.
type UserFold = unsafe extern "C" fn(*const c_void, *mut c_void, usize, DataTypeCode, *mut c_void);

#[derive(Clone, Copy)]
pub(super) enum Definition {
    /// A pre-multiplied sum with this scalar.
    Immediate(Fold, [u8; 8]),
    /// A pre-multiplied sum with the scalar at this address, which is read at every use.
    Resident(Fold, Pointer),
    /// A function of the program.
    User { fold: UserFold, user: Pointer, commutative: bool },
}

/// An address of the program, which is only read or passed back to the program.
#[derive(Clone, Copy)]
pub(super) struct Pointer(pub *mut c_void);

// SAFETY: nexar.h requires that the function and the scalar may be used by every thread that uses
// the operator.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

static TABLE: Mutex<CreatedTable<Definition>> = Mutex::new(CreatedTable::new(["op", "operator"]));

fn table() -> MutexGuard<'static, CreatedTable<Definition>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an operator, and returns its number.
pub(super) fn create(comm: nexarComm_t, definition: Definition) -> Result<RedOpCode> {
    table().create(comm, definition)
}

/// The reducer of an operator, for elements of a type, which the program names `datatype`.
pub(super) fn find(
    op: RedOpCode,
    datatype: DataTypeCode,
    dtype: ElementType,
    comm: nexarComm_t,
) -> Result<Reducer> {
    if op < FIRST {
        return Err(Error::Argument(format!("op {op} is not a nexarRedOp_t")));
    }
    let definition = table().find(op, comm)?;
    match definition {
        Definition::Immediate(sum, _) | Definition::Resident(sum, _)
            if dtype != sum.dtype().into() =>
        {
            let what = format!("op {op:#x} was created for {}, not for {dtype}", sum.dtype());
            Err(Error::Argument(what))
        }
        Definition::Immediate(sum, scalar) => {
            Ok(Reducer::PreMulSum { sum, scalar: Scalar::Here(scalar) })
        }
        Definition::Resident(sum, scalar) => {
            let dtype = sum.dtype();
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
                let user = user; // captures the whole `Pointer`, which is Send and Sync
                // SAFETY: the program's function reads `count` elements of `left` and writes
                // `count` elements of `right`. Both have that length, and `reduce` has aligned
                // them.
                process::in_callback(|| unsafe {
                    fold(left.as_ptr().cast(), right.as_mut_ptr().cast(), count, datatype, user.0)
                });
            };
            Ok(Reducer::User { dtype, commutative, function: Arc::new(function) })
        }
    }
}

/// Destroys the operators of a destroyed communicator.
pub(super) fn forget(comm: nexarComm_t) {
    table().forget(comm);
}

/// Destroys an operator. Fails if it was not created for `comm`.
pub(super) fn destroy(op: RedOpCode, comm: nexarComm_t) -> Result<()> {
    table().destroy(op, comm)
}

/// # Safety
/// `scalar` points to one element of the type.
pub(super) unsafe fn read_scalar(scalar: *const c_void, dtype: DataType) -> [u8; 8] {
    let mut bytes = [0; 8];
    // SAFETY: the caller vouches for one element, which has at most 8 bytes.
    unsafe { std::ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), dtype.size()) };
    bytes
}
