//! Operators: create, destroy.

use std::ffi::{c_int, c_void};

use crate::dtype::ElementType;
use crate::error::{Code, Error};
use crate::op::{Fold, RedOp};

use super::arguments::{Out, only_functions};
use super::boundary::on_communicator;
use super::datatypes;
use super::operators::{self, Definition, Pointer, read_scalar};
use super::types::{DataTypeCode, RedOpCode, ResidenceCode, ScalarResidence, nexarComm_t};

/// Creates an operator for comm and one datatype, and writes it to op: each rank's elements are
/// multiplied by the one element at scalar, then summed. Ranks may pass different scalars.
/// residence says when scalar is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nexarRedOpCreatePreMulSum(
    op: *mut RedOpCode,
    scalar: *mut c_void,
    datatype: DataTypeCode,
    residence: ResidenceCode,
    comm: nexarComm_t,
) -> Code {
    on_communicator("nexarRedOpCreatePreMulSum", comm, |_| {
        // SAFETY: the caller passes NULL or a pointer to the operator.
        let op = unsafe { Out::new("op", op) }?;
        let sum = match datatypes::find(datatype, comm)? {
            ElementType::Known(dtype) => Fold::new(dtype, RedOp::Sum)?,
            ElementType::Opaque(size) => return Err(only_functions("a scaled sum", size)),
        };
        if scalar.is_null() {
            return Err(Error::Argument("scalar is NULL".to_owned()));
        }
        const DEVICE: ResidenceCode = ScalarResidence::ScalarDevice as ResidenceCode;
        const IMMEDIATE: ResidenceCode = ScalarResidence::ScalarHostImmediate as ResidenceCode;
        let how = match residence {
            DEVICE => Definition::Resident(sum, Pointer(scalar)),
            // SAFETY: the caller passes one element of the type.
            IMMEDIATE => Definition::Immediate(sum, unsafe { read_scalar(scalar, sum.dtype()) }),
            other => {
                let what = format!("residence {other} is not a nexarScalarResidence_t");
                return Err(Error::Argument(what));
            }
        };
        op.set(operators::create(comm, how)?);
        Ok(())
    })
}

/// Creates an operator for comm from a function of the program, for any datatype, and writes it to
/// op.
///
/// fold reduces count whole elements: inout[i] = in[i] op inout[i]. in and inout are aligned to 8
/// bytes, to 16 if that divides the size of an element of nexarDataTypeCreate; datatype is that of
/// the call. fold must be associative. If commutative is 0, operands are reduced in rank order: in
/// comes from lower ranks than inout; if it is 1, in any order. All ranks pass the same
/// commutative. user is passed to fold unchanged.
///
/// fold runs in the thread of the call, or in a thread nexar-stream (on a stream, and in a group
/// that mixes device and host memory), in that thread's floating-point environment. It must not
/// call nexar, and must not throw.
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
        // SAFETY: the caller passes NULL or a pointer to the operator.
        let op = unsafe { Out::new("op", op) }?;
        let fold = fold.ok_or_else(|| Error::Argument("fold is NULL".to_owned()))?;
        let commutative = match commutative {
            0 | 1 => commutative == 1,
            other => {
                return Err(Error::Argument(format!("commutative {other} is neither 0 nor 1")));
            }
        };
        op.set(operators::create(
            comm,
            Definition::User { fold, user: Pointer(user), commutative },
        )?);
        Ok(())
    })
}

/// Destroys an operator of comm. nexarCommDestroy destroys all that are left. Operations that were
/// called before still use it: fold, user and a scalar that is not immediate must stay valid until
/// they have completed.
#[unsafe(no_mangle)]
pub extern "C" fn nexarRedOpDestroy(op: RedOpCode, comm: nexarComm_t) -> Code {
    on_communicator("nexarRedOpDestroy", comm, |_| operators::destroy(op, comm))
}
