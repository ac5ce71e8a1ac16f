//! Measures the all-reduce of the crate nexar 0.2.0: f32, sum, in place.
//!
//! ```text
//! peer-nexar task|thread <rank> <ranks> <address of rank 0>
//!            <bytes>:<warm-up>:<batches>:<iterations> ...
//! ```
//!
//! `task` calls it from a task of its runtime, `thread` from the program's own thread, which then
//! pays for being woken, as every caller of a blocking API does.
//!
//! Rank 0 prints `bytes microseconds` for each size: the median over the batches of the mean of a
//! batch's iterations. `ours.c` measures the same way.

use std::net::SocketAddr;
use std::time::Instant;

use nexar::{DataType, NexarClient, ReduceOp};

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Plan {
    bytes: usize,
    warm_up: usize,
    batches: usize,
    iterations: usize,
}

impl Plan {
    fn parse(text: &str) -> Result<Self, Error> {
        let numbers: Result<Vec<usize>, _> = text.split(':').map(str::parse).collect();
        match numbers?[..] {
            [bytes, warm_up, batches, iterations] if batches > 0 && iterations > 0 => {
                Ok(Self { bytes, warm_up, batches, iterations })
            }
            _ => Err(format!("not bytes:warm-up:batches:iterations: {text}").into()),
        }
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [caller, rank, ranks, seed, plans @ ..] = &arguments[..] else {
        return Err("usage: peer-nexar task|thread rank ranks address plan...".into());
    };
    let (rank, ranks, seed) = (rank.parse()?, ranks.parse()?, seed.parse()?);
    let plans: Vec<Plan> = plans.iter().map(|text| Plan::parse(text)).collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let measure = measure(rank, ranks, seed, plans);
    match caller.as_str() {
        "task" => runtime.block_on(runtime.spawn(measure))?,
        "thread" => runtime.block_on(measure),
        other => Err(format!("neither task nor thread: {other}").into()),
    }
}

async fn measure(rank: u32, ranks: u32, seed: SocketAddr, plans: Vec<Plan>) -> Result<(), Error> {
    // Reads NEXAR_ENABLE_TCP_BULK_SIDECAR: compare.py sets it to 0.
    let client = peer_nexar::connect(rank, ranks, seed, nexar::NexarConfig::from_env()).await?;
    for plan in &plans {
        let mut buffer = vec![1_f32; plan.bytes / size_of::<f32>()];
        all_reduce(&client, &mut buffer).await?;
        if buffer.iter().any(|&sum| sum != ranks as f32) {
            return Err(format!("a sum of {} bytes is wrong", plan.bytes).into());
        }
        // Zeros stay zeros, however often they are added up.
        buffer.fill(0.0);
        for _ in 0..plan.warm_up {
            all_reduce(&client, &mut buffer).await?;
        }
        let mut batches = Vec::new();
        for _ in 0..plan.batches {
            let begin = Instant::now();
            for _ in 0..plan.iterations {
                all_reduce(&client, &mut buffer).await?;
            }
            batches.push(begin.elapsed().as_secs_f64() * 1e6 / plan.iterations as f64);
        }
        batches.sort_by(f64::total_cmp);
        if rank == 0 {
            println!("{} {:.2}", plan.bytes, batches[plan.batches / 2]);
        }
    }
    client.shutdown().await?;
    Ok(())
}

async fn all_reduce(client: &NexarClient, buffer: &mut [f32]) -> Result<(), Error> {
    let (address, count) = (buffer.as_mut_ptr() as u64, buffer.len());
    // SAFETY: the buffer is borrowed for the whole call and holds `count` f32.
    unsafe { client.all_reduce(address, count, DataType::F32, ReduceOp::Sum) }.await?;
    Ok(())
}
