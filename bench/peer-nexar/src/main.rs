//! Measures the collectives of the crate nexar 0.2.0 as `collectives.h` describes: the same
//! operations, sizes, checks and batches.
//!
//! ```text
//! peer-nexar OPERATION SECONDS BYTES...
//! ```
//!
//! Rank, size and address come from NEXAR_RANK, NEXAR_NRANKS and NEXAR_COMM_ID, which nexar-run
//! sets. Everything else is the crate's default. Calls are made from a task of its runtime, its
//! best case.
//!
//! The crate's all-reduce, reduce, broadcast and scan work in place only, on the buffer of the
//! results. Its reduce-scatter gives a rank the block of the next one, and that is checked.

use std::time::Instant;

use nexar::{DataType, NexarClient, NexarConfig, ReduceOp};

type Error = Box<dyn std::error::Error + Send + Sync>;

const MOST_BATCHES: usize = 9;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, seconds, sizes @ ..] = &arguments[..] else {
        return Err("usage: peer-nexar operation seconds bytes...".into());
    };
    let (operation, budget) = (operation.clone(), seconds.parse()?);
    let sizes: Vec<usize> = sizes.iter().map(|bytes| bytes.parse()).collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(runtime.spawn(measure(operation, budget, sizes)))?
}

async fn measure(operation: String, budget: f64, sizes: Vec<usize>) -> Result<(), Error> {
    let rank: u32 = std::env::var("NEXAR_RANK")?.parse()?;
    let ranks: u32 = std::env::var("NEXAR_NRANKS")?.parse()?;
    let seed = std::env::var("NEXAR_COMM_ID")?.parse()?;
    let client = peer_nexar::connect(rank, ranks, seed, NexarConfig::default()).await?;
    let mut benchmark = Benchmark { client, rank: rank as usize, ranks: ranks as usize };
    for bytes in sizes {
        let count = bytes / size_of::<f32>();
        let (mut sent, mut results) = (vec![0_f32; count], vec![0_f32; count]);
        benchmark.check(&operation, &mut sent, &mut results).await?;
        let took = benchmark.time(&operation, &mut sent, &mut results, budget).await?;
        if rank == 0 {
            println!("{operation},{bytes},{:.3}", took * 1e6);
        }
    }
    benchmark.client.shutdown().await?;
    Ok(())
}

/// An element of a rank's input: a small integer, so that no sum is rounded.
fn sent_by(rank: usize, index: usize) -> f32 {
    (index % 97 + rank) as f32
}

/// The sum of an element over the first `ranks` ranks.
fn sum_of(ranks: usize, index: usize) -> f32 {
    (0..ranks).map(|rank| sent_by(rank, index)).sum()
}

struct Benchmark {
    client: NexarClient,
    rank: usize,
    ranks: usize,
}

impl Benchmark {
    async fn call(&self, operation: &str, sent: &[f32], results: &mut [f32]) -> Result<(), Error> {
        let (from, to) = (sent.as_ptr() as u64, results.as_mut_ptr() as u64);
        let (count, block) = (results.len(), results.len() / self.ranks);
        let (of, op, client) = (DataType::F32, ReduceOp::Sum, &self.client);
        // SAFETY: both buffers are borrowed for the whole call and hold `count` f32.
        unsafe {
            match operation {
                "allreduce" => client.all_reduce(to, count, of, op).await,
                "reduce" => client.reduce(to, count, of, op, 0).await,
                "broadcast" => client.broadcast(to, count, of, 0).await,
                "allgather" => client.all_gather(from, to, block, of).await,
                "reducescatter" => client.reduce_scatter(from, to, block, of, op).await,
                "alltoall" => client.all_to_all(from, to, block, of).await,
                "scan" => client.scan(to, count, of, op).await,
                "barrier" => client.barrier().await,
                other => return Err(format!("unknown operation: {other}").into()),
            }
        }?;
        Ok(())
    }

    fn expected(&self, operation: &str, index: usize, block: usize) -> f32 {
        match operation {
            "broadcast" => sent_by(0, index),
            "allgather" => sent_by(index / block, index % block),
            "reducescatter" => sum_of(self.ranks, (self.rank + 1) % self.ranks * block + index),
            "alltoall" => sent_by(index / block, self.rank * block + index % block),
            "scan" => sum_of(self.rank + 1, index),
            _ => sum_of(self.ranks, index),
        }
    }

    async fn check(
        &mut self,
        operation: &str,
        sent: &mut [f32],
        results: &mut [f32],
    ) -> Result<(), Error> {
        for (index, value) in sent.iter_mut().enumerate() {
            *value = sent_by(self.rank, index);
        }
        let in_place = matches!(operation, "allreduce" | "reduce" | "broadcast" | "scan");
        if in_place && !(operation == "broadcast" && self.rank != 0) {
            results.copy_from_slice(sent);
        } else {
            results.fill(-1.0);
        }
        self.call(operation, sent, results).await?;
        let block = results.len() / self.ranks;
        let count = match operation {
            "barrier" => 0,
            "reduce" if self.rank != 0 => 0,
            "reducescatter" => block,
            _ => results.len(),
        };
        for (index, &value) in results[..count].iter().enumerate() {
            if value != self.expected(operation, index, block) {
                return Err("a result is wrong".into());
            }
        }
        // Sums of zeros in place stay zero in any number of calls.
        results.fill(0.0);
        Ok(())
    }

    /// Returns the seconds per call of the slowest rank, on every rank.
    async fn batch(
        &mut self,
        operation: &str,
        sent: &[f32],
        results: &mut [f32],
        calls: usize,
    ) -> Result<f64, Error> {
        self.client.barrier().await?;
        let begin = Instant::now();
        for _ in 0..calls {
            self.call(operation, sent, results).await?;
        }
        let mut mean = begin.elapsed().as_secs_f64() / calls as f64;
        let address = &raw mut mean as u64;
        // SAFETY: the value lives through the call.
        unsafe { self.client.all_reduce(address, 1, DataType::F64, ReduceOp::Max) }.await?;
        Ok(mean)
    }

    async fn time(
        &mut self,
        operation: &str,
        sent: &mut [f32],
        results: &mut [f32],
        budget: f64,
    ) -> Result<f64, Error> {
        let mut calls = 1;
        let mut once = self.batch(operation, sent, results, calls).await?;
        while once * (calls as f64) < budget / 5.0 {
            calls *= 2;
            once = self.batch(operation, sent, results, calls).await?;
        }
        let fit = (budget / once) as usize;
        let batches = fit.min(MOST_BATCHES) | 1;
        let mut means = Vec::new();
        for _ in 0..batches {
            let calls = (fit / batches).max(1);
            means.push(self.batch(operation, sent, results, calls).await?);
        }
        means.sort_by(f64::total_cmp);
        Ok(means[batches / 2])
    }
}
