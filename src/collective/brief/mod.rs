//! The fast path of calls of up to 4 KiB between ranks of one host: the only epoch of their flat
//! algorithms, without a future.
//!
//! If the peers arrive within the spin limit, such a call completes before a future could be set
//! up.
//! Invariants: a rank publishes, reads and reduces the same bytes in the same order as the flat
//! algorithm, so ranks on the fast path and on the general path can meet in one call. A call that
//! does not complete here can continue on the general path, because no byte is overwritten that is
//! not published.

mod few;
mod slot;

use super::rounds::Columns;
use crate::op::{Collective, Counts, Op, Reducer};
use crate::rank::{Place, Rank};
use crate::transport::{Brief, FEW};

/// Limit of the bytes that a rank publishes. A longer call may have another algorithm than flat.
const MOST: usize = 4 << 10;
/// Limit of the bytes of all ranks together, unless they travel inline: a reader holds locks.
const MOST_OF_ALL: usize = 16 << 10;

/// How many bytes each rank publishes. `None` if the call is not eligible for the fast path.
#[inline(always)]
pub fn bytes(op: &Op<'_>, size: usize) -> Option<usize> {
    let call = op.call();
    match op.reducer() {
        // A function of the program may take any time.
        Some(Reducer::User { .. }) => return None,
        // In another floating-point environment the general path reduces.
        Some(reducer) if !reducer.can_fold_few() => return None,
        _ => {}
    }
    let bytes = match (call.collective(), call.counts()) {
        (Collective::Barrier, _) => return Some(0),
        (Collective::AllReduce | Collective::Reduce | Collective::Scan, _) => call.bytes(),
        (Collective::Broadcast, _) => call.bytes(),
        (Collective::AllGather, Counts::Each(_)) => call.bytes(),
        (Collective::AllToAll | Collective::ReduceScatter, Counts::Each(_)) => {
            let block = op.memory.sent.longest();
            Columns::new(size, block).used(Rank(0), |_| block)
        }
        _ => return None,
    };
    let is_brief = (1..=MOST).contains(&bytes) && (bytes <= FEW || bytes * size <= MOST_OF_ALL);
    is_brief.then_some(bytes)
}

/// Executes the call. `None` if a peer does not arrive within the spin limit; then nothing is
/// overwritten that the general path still reads.
#[inline(always)]
pub fn make(op: &mut Op<'_>, place: Place, brief: &Brief<'_>) -> Option<()> {
    if brief.bytes() <= FEW {
        few::make(op, place, brief)?
    } else {
        slot::make(op, place, brief)?
    }
    brief.pass();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::scan::shares::FLAT_SCAN;
    use super::super::select::{Ground, Selection};
    use super::super::table;
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Call, Fold, RedOp};

    #[test]
    fn what_is_brief_is_flat_in_the_long_way_too() {
        let (dtype, selection) = (DataType::Int8, Selection::default());
        let reduction = Fold::new(dtype, RedOp::Sum).unwrap().into();
        for (ranks, ground) in
            (2..70).flat_map(|ranks| [(ranks, Ground::OneHost), (ranks, Ground::OpenHost)])
        {
            let (count, counts, root) = (MOST, Counts::Each(MOST), Rank(0));
            let calls = [
                Call::all_reduce(count, reduction),
                Call::reduce(count, reduction, root),
                Call::broadcast(count, dtype, root),
                Call::all_gather(counts, dtype),
                Call::reduce_scatter(counts, reduction),
                Call::all_to_all(counts, dtype),
                Call::barrier(),
            ];
            for call in calls {
                let name = table::choose(&selection, &call, ranks, ground);
                assert_eq!(name, "flat", "{call} of {ranks}");
            }
            let scan = table::choose(&selection, &Call::scan(count, reduction), ranks, ground);
            assert_eq!(scan, if ranks <= FLAT_SCAN { "flat" } else { "chain" }, "of {ranks}");
        }
    }
}
