//! A rank of the crate nexar 0.2.0 for faults.py, which describes the output.
//!
//! ```text
//! faults CASE COUNT leave|stay
//! ```
//!
//! Uses the crate's default settings. Calls are made from a task of its runtime, its best case.

use std::time::Duration;

use nexar::{DataType, NexarClient, NexarConfig, ReduceOp};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [fault, count, ending] = &arguments[..] else {
        return Err("usage: faults case count leave|stay".into());
    };
    let (fault, count, stay) = (fault.clone(), count.parse()?, ending == "stay");
    let rank: u32 = std::env::var("NEXAR_RANK")?.parse()?;
    let size: u32 = std::env::var("NEXAR_NRANKS")?.parse()?;
    let seed = std::env::var("NEXAR_COMM_ID")?.parse()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(runtime.spawn(async move {
        let client = match peer_nexar::connect(rank, size, seed, NexarConfig::default()).await {
            Ok(client) => client,
            Err(error) => return end(2, &error.to_string(), stay),
        };
        match run(&client, rank, size, &fault, count).await {
            Ok(right) => end(0, if right { "right numbers" } else { "wrong numbers" }, stay),
            Err(error) => end(1, &error.to_string(), stay),
        }
    }))?;
    Ok(())
}

/// Makes one call in which the ranks disagree. Returns whether the result is right for this rank's
/// call. Without a fault it never returns.
async fn run(
    client: &NexarClient,
    rank: u32,
    size: u32,
    fault: &str,
    count: usize,
) -> Result<bool, Error> {
    let sum = size * (size + 1) / 2;
    let mut buffer = vec![0; 2 * count];
    let mut turn = 0;
    while turn == 0 || fault == "none" {
        buffer.fill(rank + 1);
        all_reduce(client, &mut buffer[..count], DataType::I32, ReduceOp::Sum).await?;
        if buffer[..count].iter().any(|&value| value != sum) {
            return Err("wrong numbers without a fault".into());
        }
        if turn == 0 {
            client.barrier().await?;
            println!("ready {}", now_ns());
        }
        turn += 1;
    }

    let odd = rank == 1;
    let count = match fault {
        "fewer" if odd => count - count / 10,
        "more" if odd => count + count / 10,
        _ => count,
    };
    let (data_type, bits): (_, fn(u32) -> u32) = match fault {
        "type" if odd => (DataType::F32, |value| (value as f32).to_bits()),
        _ => (DataType::I32, |value| value),
    };
    let (op, mut expected) = match fault {
        "operator" if odd => (ReduceOp::Max, size),
        _ => (ReduceOp::Sum, sum),
    };
    buffer.fill(bits(rank + 1));
    if fault == "root" {
        let root = if rank == 0 { 1 } else { 0 };
        expected = root + 1;
        let address = buffer.as_mut_ptr() as u64;
        // SAFETY: the buffer lives through the call and holds `count` elements.
        unsafe { client.broadcast(address, count, data_type, root) }.await?;
    } else {
        all_reduce(client, &mut buffer[..count], data_type, op).await?;
    }
    Ok(buffer[..count].iter().all(|&value| value == bits(expected)))
}

async fn all_reduce(
    client: &NexarClient,
    buffer: &mut [u32],
    data_type: DataType,
    op: ReduceOp,
) -> nexar::Result<()> {
    let (address, count) = (buffer.as_mut_ptr() as u64, buffer.len());
    // SAFETY: the buffer is borrowed for the whole call and holds `count` elements of four bytes.
    unsafe { client.all_reduce(address, count, data_type, op) }.await
}

fn end(code: i32, text: &str, stay: bool) {
    println!("{} {code} {}", now_ns(), text.replace('\n', " "));
    if stay {
        std::thread::sleep(Duration::from_secs(600));
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, which `std::time::Instant` does not expose.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
