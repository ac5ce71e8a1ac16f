//! A program that uses numr's communicators between processes and compares each result with one
//! that it computes without them. `numr.sh` builds it against numr as published; nexar-run starts
//! it.

use std::ops::Range;
use std::sync::Arc;

use numr::prelude::*;
use numr::runtime::{Communicator, CommunicatorGroup, NexarNetCommunicator, ReduceOp};

type World = Arc<dyn Communicator>;
type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// The number of rows of training data on each rank, and their length.
const ROWS: usize = 16;
const COLUMNS: usize = 3;
/// More bytes than libnexar sends before the receive is posted.
const LARGE: usize = 1 << 20;

fn main() -> Outcome {
    let client = nexar::SyncClient::from_env()?;
    let world: World = Arc::new(NexarNetCommunicator::new(client));
    let (rank, size) = (world.rank(), world.world_size());
    assert_eq!(size, 4, "start this program with nexar-run -n 4");

    reduces(&world)?;
    moves_blocks(&world)?;
    passes_messages(&world)?;
    trains(&world)?;
    works_in_groups(world)?;
    println!("rank {rank} of {size}: all results are right");
    Ok(())
}

/// Every type and operator, with values that every type holds exactly.
fn reduces(world: &World) -> Outcome {
    fn all<T: Copy + PartialEq + std::fmt::Debug>(
        world: &World,
        dtype: DType,
        element: fn(u8) -> T,
    ) -> Outcome {
        let value = |index: usize, rank: usize| (index % 2 + rank % 3) as u8;
        for count in [1, 5, 4099] {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
                let own = |index| element(value(index, world.rank()));
                let mut data: Vec<T> = (0..count).map(own).collect();
                // SAFETY: there are `count` elements.
                unsafe { world.all_reduce(data.as_mut_ptr() as u64, count, dtype, op) }?;
                let expected = |index| {
                    let values = (0..world.world_size()).map(|rank| value(index, rank));
                    element(match op {
                        ReduceOp::Sum => values.sum(),
                        ReduceOp::Prod => values.product(),
                        ReduceOp::Min => values.min().unwrap_or_default(),
                        ReduceOp::Max => values.max().unwrap_or_default(),
                    })
                };
                let expected: Vec<T> = (0..count).map(expected).collect();
                assert_eq!(data, expected, "{op:?} of {dtype:?}");
            }
        }
        Ok(())
    }
    all(world, DType::F32, f32::from)?;
    all(world, DType::F64, f64::from)?;
    all(world, DType::I8, |value| value as i8)?;
    all(world, DType::I32, i32::from)?;
    all(world, DType::I64, i64::from)?;
    all(world, DType::U8, |value| value)?;
    all(world, DType::U32, u32::from)?;
    all(world, DType::U64, u64::from)?;
    // SAFETY: the type is refused before the address is used.
    let refused = unsafe { world.all_reduce(0, 1, DType::Bool, ReduceOp::Sum) };
    assert!(refused.is_err(), "numr has no reduction of Bool");
    Ok(())
}

fn moves_blocks(world: &World) -> Outcome {
    let (rank, size) = (world.rank(), world.world_size());
    for count in [1, 1000, 70_001] {
        let block = |rank: usize| (0..count).map(move |index| (rank * 7 + index) as i64);
        for root in 0..size {
            let mut data: Vec<i64> = block(rank).collect();
            // SAFETY: there are `count` elements.
            unsafe { world.broadcast(data.as_mut_ptr() as u64, count, DType::I64, root) }?;
            assert!(data.into_iter().eq(block(root)), "broadcast of {count} from {root}");
        }
        let send: Vec<i64> = block(rank).collect();
        let mut all = vec![0i64; count * size];
        let (from, to) = (send.as_ptr() as u64, all.as_mut_ptr() as u64);
        // SAFETY: there are `count` elements, and as many for each rank.
        unsafe { world.all_gather(from, to, count, DType::I64) }?;
        assert!(all.iter().copied().eq((0..size).flat_map(block)), "all_gather of {count}");

        // Block b of rank r has the values of block b, times r + 1.
        let factors: i64 = (1..=size as i64).sum();
        all.iter_mut().for_each(|value| *value *= rank as i64 + 1);
        let mut own = vec![0i64; count];
        let (from, to) = (all.as_ptr() as u64, own.as_mut_ptr() as u64);
        // SAFETY: there are `count` elements for each rank, and `count` of the result.
        unsafe { world.reduce_scatter(from, to, count, DType::I64, ReduceOp::Sum) }?;
        let expected = block(rank).map(|value| value * factors);
        assert!(own.into_iter().eq(expected), "reduce_scatter of {count}");
    }
    Ok(())
}

/// Sends around the ring: all ranks send before any receives, and the last tag is received first.
fn passes_messages(world: &World) -> Outcome {
    let (rank, size) = (world.rank(), world.world_size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let text = |rank: usize, tag: u32| vec![(rank as u32) << 8 | tag; LARGE / 4];
    const TAGS: Range<u32> = 0..3;
    for tag in TAGS {
        let data = text(rank, tag);
        // SAFETY: `data` has `data.len()` elements.
        unsafe { world.send(data.as_ptr() as u64, data.len(), DType::U32, next, tag) }?;
    }
    for tag in TAGS.rev() {
        let mut data = vec![0u32; LARGE / 4];
        let ptr = data.as_mut_ptr() as u64;
        // SAFETY: `data` has `data.len()` elements.
        unsafe { world.recv(ptr, data.len(), DType::U32, previous, tag) }?;
        assert!(data == text(previous, tag), "message with tag {tag} from rank {previous}");
    }
    world.sync()?;
    Ok(world.barrier()?)
}

/// Ten steps of a linear regression on tensors of numr, whose gradients its communicator sums. All
/// numbers are small integers, so every order of additions has the same result. The weights are
/// compared with those of the same regression on the data of all ranks.
fn trains(world: &World) -> Outcome {
    let device = CpuDevice::new();
    let client = CpuRuntime::default_client(&device);
    let input = |rank: usize, row: usize, column: usize| ((rank + 2 * row + column) % 3) as f64;
    let target = |rank: usize, row: usize| ((rank + row) % 5) as f64;
    let tensor =
        |data: &[f64], shape: &[usize]| Tensor::<CpuRuntime>::from_slice(data, shape, &device);
    let indices = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column)));
    let own: Vec<f64> = indices.map(|(row, column)| input(world.rank(), row, column)).collect();
    let targets: Vec<f64> = (0..ROWS).map(|row| target(world.rank(), row)).collect();
    let x = tensor(&own, &[ROWS, COLUMNS]);
    let y = tensor(&targets, &[ROWS, 1]);
    let mut weights = vec![0f64; COLUMNS];
    let mut expected = weights.clone();
    for step in 0..10 {
        let error = client.sub(&client.matmul(&x, &tensor(&weights, &[COLUMNS, 1]))?, &y)?;
        let gradient = client.matmul(&x.transpose(0, 1)?.contiguous(), &error)?;
        // SAFETY: the tensor has COLUMNS elements, and nothing else uses it.
        unsafe { world.all_reduce(gradient.ptr(), COLUMNS, DType::F64, ReduceOp::Sum) }?;

        let mut sums = [0f64; COLUMNS];
        for (rank, row) in
            (0..world.world_size()).flat_map(|rank| (0..ROWS).map(move |row| (rank, row)))
        {
            let inputs: [f64; COLUMNS] = std::array::from_fn(|column| input(rank, row, column));
            let guess: f64 =
                inputs.iter().zip(&expected).map(|(input, weight)| input * weight).sum();
            let error = guess - target(rank, row);
            sums.iter_mut().zip(inputs).for_each(|(sum, input)| *sum += input * error);
        }
        assert_eq!(gradient.to_vec::<f64>(), sums, "gradient of step {step}");
        // Each step is 1 in the direction of the gradient, so the weights stay integers.
        let learn = |weights: &mut [f64], gradient: &[f64]| {
            weights.iter_mut().zip(gradient).for_each(|(weight, slope)| *weight -= slope.signum());
        };
        learn(&mut weights, &gradient.to_vec::<f64>());
        learn(&mut expected, &sums);
    }
    assert_eq!(weights, expected);
    Ok(())
}

/// Uses the groups that numr creates: pairs of neighbours, and pairs across them.
fn works_in_groups(world: World) -> Outcome {
    let (rank, group) = (world.rank(), CommunicatorGroup::new(world, 2, 1, 2)?);
    assert!(group.pp().is_none());
    for (name, comm, members) in [
        ("tensor", group.tp(), [rank - rank % 2, rank - rank % 2 + 1]),
        ("data", group.dp(), [rank % 2, rank % 2 + 2]),
    ] {
        let comm = comm.ok_or(name)?;
        assert_eq!(members.get(comm.rank()), Some(&rank), "rank in the {name} group");
        let (own, mut all) = ([rank as u64], [0u64; 2]);
        let (from, to) = (own.as_ptr() as u64, all.as_mut_ptr() as u64);
        // SAFETY: there is one element, and one for each rank.
        unsafe { comm.all_gather(from, to, 1, DType::U64) }?;
        assert_eq!(all, members.map(|rank| rank as u64), "{name} group");
    }
    Ok(group.world().barrier()?)
}
