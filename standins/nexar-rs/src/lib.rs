#![doc = include_str!("../README.md")]
#![expect(
    unsafe_code,
    reason = "buffers of the API are addresses, and the functions of libnexar are C functions"
)]

mod client;
mod device;
mod error;
mod outbox;
mod types;

pub use client::SyncClient;
pub use device::{CpuAdapter, DeviceAdapter};
pub use error::{NexarError, Result};
pub use types::{DataType, IoVec, Rank, ReduceOp};
