//! Collectives between threads. Each result is compared with the definition of the collective.
#![expect(unsafe_code, reason = "buffers of the API are addresses")]

mod ranks;

use nexar::DataType::{BF16, F16, F32, F64, I8, I32, I64, U8, U32, U64};
use nexar::ReduceOp::{Max, Min, Prod, Sum};
use nexar::{DataType, ReduceOp};

use ranks::{address, address_mut, run};

const OPERATORS: [ReduceOp; 4] = [Sum, Prod, Min, Max];

/// The reduction of the values 1, 2 and 3.
fn reduced(op: ReduceOp) -> u8 {
    match op {
        Sum | Prod => 6,
        Min => 1,
        Max => 3,
    }
}

/// `all_reduce` of the value `rank + 1` on three ranks, with every operator. `encode` gives the
/// bytes of a number as an element.
fn reduces<const SIZE: usize>(dtype: DataType, encode: fn(u8) -> [u8; SIZE]) {
    const COUNT: usize = 37;
    run(3, move |client| {
        for op in OPERATORS {
            let mut data = vec![encode(client.rank() as u8 + 1); COUNT];
            // SAFETY: there are COUNT elements.
            unsafe { client.all_reduce(address_mut(&mut data), COUNT, dtype, op) }.unwrap();
            assert_eq!(data, vec![encode(reduced(op)); COUNT], "{op} of {dtype}");
        }
    });
}

#[test]
fn every_type_is_reduced_with_every_operator() {
    reduces(F32, |n| f32::from(n).to_le_bytes());
    reduces(F64, |n| f64::from(n).to_le_bytes());
    // The four numbers that occur, as IEEE 754 binary16.
    reduces(F16, |n| match n {
        1 => 0x3c00u16.to_le_bytes(),
        2 => 0x4000u16.to_le_bytes(),
        3 => 0x4200u16.to_le_bytes(),
        _ => 0x4600u16.to_le_bytes(),
    });
    reduces(BF16, |n| ((f32::from(n).to_bits() >> 16) as u16).to_le_bytes());
    reduces(I8, |n| [n]);
    reduces(I32, |n| i32::from(n).to_le_bytes());
    reduces(I64, |n| i64::from(n).to_le_bytes());
    reduces(U8, |n| [n]);
    reduces(U32, |n| u32::from(n).to_le_bytes());
    reduces(U64, |n| u64::from(n).to_le_bytes());
}

#[test]
fn signed_and_unsigned_types_are_compared_differently() {
    run(2, |client| {
        let of_rank = |one: [u8; 1], other: [u8; 1]| if client.rank() == 0 { one } else { other };
        for (dtype, smaller) in [(I8, 0xff), (U8, 1)] {
            let mut data = of_rank([0xff], [1]);
            // SAFETY: there is one element.
            unsafe { client.all_reduce(address_mut(&mut data), 1, dtype, Min) }.unwrap();
            assert_eq!(data, [smaller], "{dtype}");
        }
    });
}

/// Sizes at which nexar 0.1 and 0.2 lose elements or time out, because segments are cut in bytes.
#[test]
fn no_element_of_a_large_all_reduce_is_lost() {
    for (size, count) in [(3, 4 << 20), (4, (2 << 20) + 1)] {
        run(size, move |client| {
            let mut data = vec![1f32; count];
            // SAFETY: there are `count` elements.
            unsafe { client.all_reduce(address_mut(&mut data), count, F32, Sum) }.unwrap();
            let wrong = data.iter().position(|value| *value != size as f32);
            assert_eq!(wrong, None, "{count} elements on {size} ranks");
        });
    }
}

#[test]
fn the_other_forms_of_all_reduce_give_the_same_result() {
    run(3, |client| {
        let rank = i64::from(client.rank());
        let mut data: Vec<_> = (0..100).map(|index| index * rank).collect();
        // SAFETY: there are 100 elements.
        unsafe { client.all_reduce_rs_ag(address_mut(&mut data), 100, I64, Sum) }.unwrap();
        assert!(data.iter().zip(0..).all(|(value, index)| *value == index * 3), "{data:?}");

        let mut buckets = [vec![rank; 5], vec![], vec![rank + 1; 3]];
        let entries = buckets.each_mut().map(|bucket| (address_mut(bucket), bucket.len()));
        // SAFETY: each bucket has the number of elements of its entry.
        unsafe { client.all_reduce_bucketed(&entries, I64, Max) }.unwrap();
        assert_eq!(buckets, [vec![2; 5], vec![], vec![3; 3]]);
        // SAFETY: there is no bucket.
        unsafe { client.all_reduce_bucketed(&[], I64, Max) }.unwrap();
    });
}

#[test]
fn a_broadcast_copies_the_elements_of_each_root() {
    run(4, |client| {
        for root in 0..4 {
            let mut data = vec![client.rank() * 10; 1000];
            // SAFETY: there are 1000 elements.
            unsafe { client.broadcast(address_mut(&mut data), 1000, U32, root) }.unwrap();
            assert_eq!(data, vec![root * 10; 1000]);
        }
    });
}

#[test]
fn a_reduction_to_a_root_does_not_change_the_other_ranks_elements() {
    run(3, |client| {
        for root in 0..3 {
            let mut data = [client.rank(); 7];
            // SAFETY: there are 7 elements.
            unsafe { client.reduce(address_mut(&mut data), 7, U32, Sum, root) }.unwrap();
            let expected = if client.rank() == root { 3 } else { client.rank() };
            assert_eq!(data, [expected; 7]);
        }
    });
}

/// nexar 0.1 and 0.2 give rank r block r + 1.
#[test]
fn rank_r_gets_block_r_of_a_reduce_scatter() {
    run(3, |client| {
        let rank = client.rank();
        let send: Vec<_> = (0..3u32).flat_map(|block| [block * 100 + rank; 2]).collect();
        let mut recv = [0u32; 2];
        let (from, to) = (address(&send), address_mut(&mut recv));
        // SAFETY: there are two elements for each rank, and two.
        unsafe { client.reduce_scatter(from, to, 2, U32, Sum) }.unwrap();
        assert_eq!(recv, [rank * 300 + 3; 2]);
    });
}

#[test]
fn blocks_are_gathered_scattered_and_exchanged_in_rank_order() {
    run(3, |client| {
        let rank = client.rank();
        let own = [rank * 10, rank * 10 + 1];
        let of_all = [0, 1, 10, 11, 20, 21];
        let mut all = [0u32; 6];
        // SAFETY: there are two elements, and two for each rank.
        unsafe { client.all_gather(address(&own), address_mut(&mut all), 2, U32) }.unwrap();
        assert_eq!(all, of_all);

        for root in 0..3 {
            let mut all = [0u32; 6];
            let to = if rank == root { address_mut(&mut all) } else { 0 };
            // SAFETY: as above, at the root.
            unsafe { client.gather(address(&own), to, 2, U32, root) }.unwrap();
            assert_eq!(all, if rank == root { of_all } else { [0; 6] });

            let mut block = [0u32; 2];
            let from = if rank == root { address(&of_all) } else { 0 };
            // SAFETY: as above, at the root.
            unsafe { client.scatter(from, address_mut(&mut block), 2, U32, root) }.unwrap();
            assert_eq!(block, own);
        }

        let send: Vec<_> = (0..3).map(|to| rank * 10 + to).collect();
        let mut recv = [0u32; 3];
        // SAFETY: there is an element for each rank.
        unsafe { client.all_to_all(address(&send), address_mut(&mut recv), 1, U32) }.unwrap();
        assert_eq!(recv, [rank, 10 + rank, 20 + rank]);
    });
}

#[test]
fn input_and_output_may_overlap() {
    run(3, |client| {
        let rank = client.rank();
        for offset in 0..3 {
            let mut all = [99u32; 3];
            all[offset] = rank;
            let to = address_mut(&mut all);
            // SAFETY: the element that is sent is one of the three that are written.
            unsafe { client.all_gather(to + 4 * offset as u64, to, 1, U32) }.unwrap();
            assert_eq!(all, [0, 1, 2]);
        }
        let mut all = [rank, 10 + rank, 20 + rank];
        let both = address_mut(&mut all);
        // SAFETY: there is an element for each rank.
        unsafe { client.reduce_scatter(both, both, 1, U32, Sum) }.unwrap();
        assert_eq!(all[0], rank * 30 + 3);
        let mut all = [rank * 10, rank * 10 + 1, rank * 10 + 2];
        let both = address_mut(&mut all);
        // SAFETY: as above.
        unsafe { client.all_to_all(both, both, 1, U32) }.unwrap();
        assert_eq!(all, [rank, 10 + rank, 20 + rank]);
    });
}

#[test]
fn prefixes_are_reduced_in_rank_order_from_the_identity() {
    run(4, |client| {
        let rank = i32::try_from(client.rank()).unwrap();
        let mut data = [rank + 1; 5];
        // SAFETY: there are 5 elements, here and below.
        unsafe { client.scan(address_mut(&mut data), 5, I32, Sum) }.unwrap();
        assert_eq!(data, [(rank + 1) * (rank + 2) / 2; 5]);
        for (op, identity) in [(Sum, 0), (Prod, 1), (Min, i32::MAX), (Max, i32::MIN)] {
            let mut data = [5; 5];
            // SAFETY: as above.
            unsafe { client.exclusive_scan(address_mut(&mut data), 5, I32, op) }.unwrap();
            let expected = match (rank, op) {
                (0, _) => identity,
                (_, Sum) => 5 * rank,
                (_, Prod) => 5i32.pow(rank.unsigned_abs()),
                (_, Min | Max) => 5,
            };
            assert_eq!(data, [expected; 5], "{op} on rank {rank}");
        }
    });
}

#[test]
fn a_communicator_of_one_rank_works() {
    run(1, |client| {
        assert_eq!((client.rank(), client.world_size()), (0, 1));
        let mut data = [2.5f64; 3];
        let ptr = address_mut(&mut data);
        client.barrier().unwrap();
        // SAFETY: there are 3 elements.
        unsafe { client.all_reduce(ptr, 3, F64, Prod) }.unwrap();
        // SAFETY: as above.
        unsafe { client.broadcast(ptr, 3, F64, 0) }.unwrap();
        assert_eq!(data, [2.5; 3]);
        let alone = client.split(u32::MAX, 0).unwrap();
        assert_eq!((alone.rank(), alone.world_size()), (0, 1));
    });
}

/// Colors and keys use all 32 bits; those of libnexar have 31.
#[test]
fn a_split_creates_a_communicator_for_each_color_ordered_by_key() {
    run(4, |client| {
        let rank = client.rank();
        let (color, key) = (u32::MAX - rank % 2, u32::MAX - rank);
        let half = client.split(color, key).unwrap();
        assert_eq!((half.rank(), half.world_size()), (1 - rank / 2, 2));
        let mut members = [0u32; 2];
        // SAFETY: there is one element, and one for each rank.
        unsafe { half.all_gather(address(&[rank]), address_mut(&mut members), 1, U32) }.unwrap();
        assert_eq!(members, [2 + rank % 2, rank % 2]);
        // The new communicator works after the old one was dropped.
        drop(client);
        let same = half.split(7, 7).unwrap();
        drop(half);
        let mut sum = [rank];
        // SAFETY: there is one element.
        unsafe { same.all_reduce(address_mut(&mut sum), 1, U32, Sum) }.unwrap();
        assert_eq!(sum, [2 + 2 * (rank % 2)]);
    });
}
