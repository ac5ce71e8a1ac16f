//! NCCL's parameters. All functions are refused: nexar does not have them, and its own settings are
//! environment variables.

use crate::boundary::{boundary, wrong_usage};
use crate::types::ncclResult_t;

fn refuse(function: &'static str) -> ncclResult_t {
    boundary(function, || {
        Err(wrong_usage("nexar has no parameters of NCCL; set variables NEXAR_* instead"))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamBind() -> ncclResult_t {
    refuse("ncclParamBind")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGet() -> ncclResult_t {
    refuse("ncclParamGet")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetAllParameterKeys() -> ncclResult_t {
    refuse("ncclParamGetAllParameterKeys")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetI16() -> ncclResult_t {
    refuse("ncclParamGetI16")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetI32() -> ncclResult_t {
    refuse("ncclParamGetI32")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetI64() -> ncclResult_t {
    refuse("ncclParamGetI64")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetI8() -> ncclResult_t {
    refuse("ncclParamGetI8")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetParameter() -> ncclResult_t {
    refuse("ncclParamGetParameter")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetStr() -> ncclResult_t {
    refuse("ncclParamGetStr")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetU16() -> ncclResult_t {
    refuse("ncclParamGetU16")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetU32() -> ncclResult_t {
    refuse("ncclParamGetU32")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetU64() -> ncclResult_t {
    refuse("ncclParamGetU64")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamGetU8() -> ncclResult_t {
    refuse("ncclParamGetU8")
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamDumpAll() {}
