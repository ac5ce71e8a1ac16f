//! A sum over all processes of a job: `nexar-run -n 4 target/debug/examples/processes`.
#![expect(unsafe_code, reason = "buffers of the API are addresses")]

use nexar::{DataType, ReduceOp, Result, SyncClient};

fn main() -> Result<()> {
    let client = SyncClient::from_env()?;
    let (rank, size) = (client.rank(), client.world_size());
    let mut data = vec![f64::from(rank); 1000];
    let ptr = data.as_mut_ptr() as u64;
    // SAFETY: `data` has that many elements.
    unsafe { client.all_reduce(ptr, data.len(), DataType::F64, ReduceOp::Sum) }?;
    println!("rank {rank} of {size}: the sum of all ranks is {}", data[0]);
    client.barrier()
}
