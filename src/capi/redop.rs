//! Operators that programs create: numbers from 0x10000, each of one communicator.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::comm::{MemoryKind, memory_kind};
use crate::dtype::DataType;
use crate::error::{Code, Error, Result};
use crate::op::{Fold, RedOp, Reducer, Scalar};

use super::arguments::{self, Out};
use super::boundary::on_communicator;
use super::process;
use super::types::{DataTypeCode, RedOpCode, ResidenceCode, ScalarResidence, nexarComm_t};

/// Folds count elements: inout[i] = in[i] op inout[i], where in comes from the lower ranks.
type UserFold = unsafe extern "C" fn(*const c_void, *mut c_void, usize, DataTypeCode, *mut c_void);

const FIRST: RedOpCode = 0x10000;

struct Created {
    comm: usize,
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    /// The scalar itself.
    Immediate(Fold, [u8; 8]),
    /// Where it is, to be read at every use.
    Resident(Fold, Pointer),
    User {
        fold: UserFold,
        user: Pointer,
        commutative: bool,
    },
}

/// An address of the program's that we hand back or read, and never share otherwise.
#[derive(Clone, Copy)]
struct Pointer(*mut c_void);

// SAFETY: the program promises that its function and its scalar may be used by any thread that
// uses the operator.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

#[derive(Default)]
struct Table {
    made: usize,
    operators: BTreeMap<RedOpCode, Created>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { made: 0, operators: BTreeMap::new() });

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create(comm: nexarComm_t, how: How) -> Result<RedOpCode> {
    let mut table = table();
    let number = RedOpCode::try_from(table.made).ok().and_then(|made| made.checked_add(FIRST));
    let Some(number) = number.filter(|number| *number < RedOpCode::MAX) else {
        return Err(Error::System("no number is left for another operator".to_owned()));
    };
    table.made += 1;
    table.operators.insert(number, Created { comm: comm.addr(), how });
    Ok(number)
}

/// The operator's way to fold elements of a type.
pub(super) fn find(op: RedOpCode, dtype: DataType, comm: nexarComm_t) -> Result<Reducer> {
    let wrong = |what: String| Err(Error::Argument(format!("op {op:#x} {what}")));
    let how = match table().operators.get(&op) {
        Some(created) if created.comm == comm.addr() => created.how,
        Some(_) => return wrong("was created for another communicator".to_owned()),
        None if op < FIRST => {
            return Err(Error::Argument(format!("op {op} is not a nexarRedOp_t")));
        }
        None => {
            return wrong("is not a live operator: it was destroyed, or never was one".to_owned());
        }
    };
    match how {
        How::Immediate(sum, _) | How::Resident(sum, _) if sum.dtype() != dtype => {
            wrong(format!("was created for {}, not for {dtype}", sum.dtype()))
        }
        How::Immediate(sum, scalar) => Ok(Reducer::PreMulSum { sum, scalar: Scalar::Here(scalar) }),
        How::Resident(sum, scalar) => {
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
        How::User { fold, user, commutative } => {
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

/// The operators of a communicator that is no more.
pub(super) fn forget(comm: nexarComm_t) {
    table().operators.retain(|_, created| created.comm != comm.addr());
}

/// # Safety
/// `scalar` points to one element of the type.
unsafe fn read_scalar(scalar: *const c_void, dtype: DataType) -> [u8; 8] {
    let mut bytes = [0; 8];
    // SAFETY: the caller vouches for one element; eight bytes hold every type.
    unsafe { std::ptr::copy_nonoverlapping(scalar.cast(), bytes.as_mut_ptr(), dtype.size()) };
    bytes
}

/// Creates an operator for elements of one datatype: a sum of what each rank has multiplied by the
/// scalar it gave here, one element. Ranks may give different scalars. It can be used with comm
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRedOpCreatePreMulSum(
    op: *mut RedOpCode,
    scalar: *mut c_void,
    datatype: DataTypeCode,
    residence: ResidenceCode,
    comm: nexarComm_t,
) -> Code {
    on_communicator("nexarRedOpCreatePreMulSum", comm, |_| {
        // SAFETY: the caller passes NULL or a place for the operator.
        let op = unsafe { Out::new("op", op) }?;
        let dtype = arguments::dtype(datatype)?;
        let sum = Fold::new(dtype, RedOp::Sum)?;
        if scalar.is_null() {
            return Err(Error::Argument("scalar is NULL".to_owned()));
        }
        const DEVICE: ResidenceCode = ScalarResidence::ScalarDevice as ResidenceCode;
        const IMMEDIATE: ResidenceCode = ScalarResidence::ScalarHostImmediate as ResidenceCode;
        let how = match residence {
            DEVICE => How::Resident(sum, Pointer(scalar)),
            // SAFETY: the caller passes one element of the type.
            IMMEDIATE => How::Immediate(sum, unsafe { read_scalar(scalar, dtype) }),
            other => {
                let what = format!("residence {other} is not a nexarScalarResidence_t");
                return Err(Error::Argument(what));
            }
        };
        op.set(create(comm, how)?);
        Ok(())
    })
}

/// Creates an operator from a function of the program, for any datatype. The function folds count
/// elements, inout[i] = in[i] op inout[i], and must be associative. commutative is 1 or 0; if it is 0,
/// operands are folded in the order of ranks: in comes from lower ranks than inout. user is passed on
/// to it. It runs in the thread of the call that uses it, or of its stream, in the floating-point
/// environment of that thread, and must neither call nexar nor throw. It can be used with comm alone,
/// whose other ranks must use an operator created with the same value of commutative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRedOpCreate(
    op: *mut RedOpCode,
    fold: Option<
        unsafe extern "C" fn(
            r#in: *const c_void,
            inout: *mut c_void,
            count: usize,
            datatype: DataTypeCode,
            user: *mut c_void,
        ),
    >,
    user: *mut c_void,
    commutative: c_int,
    comm: nexarComm_t,
) -> Code {
    on_communicator("nexarRedOpCreate", comm, |_| {
        // SAFETY: the caller passes NULL or a place for the operator.
        let op = unsafe { Out::new("op", op) }?;
        let fold = fold.ok_or_else(|| Error::Argument("fold is NULL".to_owned()))?;
        let commutative = match commutative {
            0 | 1 => commutative == 1,
            other => {
                return Err(Error::Argument(format!("commutative {other} is neither 0 nor 1")));
            }
        };
        op.set(create(comm, How::User { fold, user: Pointer(user), commutative })?);
        Ok(())
    })
}

/// Destroys an operator that was created for comm, as nexarCommDestroy does with all of them. Calls
/// that use it already are not disturbed: the function, user and a scalar that is not immediate must
/// outlive them.
#[unsafe(no_mangle)]
pub extern "C" fn nexarRedOpDestroy(op: RedOpCode, comm: nexarComm_t) -> Code {
    on_communicator("nexarRedOpDestroy", comm, |_| {
        let mut table = table();
        match table.operators.get(&op) {
            Some(created) if created.comm == comm.addr() => drop(table.operators.remove(&op)),
            _ => {
                let what = format!("op {op:#x} is not an operator that was created for comm");
                return Err(Error::Argument(what));
            }
        }
        Ok(())
    })
}
