//! Brief calls, of up to 4 KiB between ranks of one host: the only round of their flat algorithms, without a
//! future.
//!
//! A rank whose peers are about to come has ended such a call before a future would have been made ready.
//! Invariants: what is laid out, looked at and folded, and in which order, is what the flat algorithm does,
//! so that ranks that make a call in this way and in that one meet; a call that is not ended here can be gone
//! on with there, because nothing is written over that is not laid out.

mod few;
mod slot;

use super::rounds::Columns;
use crate::op::{Collective, Counts, Op, Reducer};
use crate::rank::{Place, Rank};
use crate::transport::{Brief, FEW};

/// Most bytes that a rank lays out in such a call. What is longer is not always made by a flat algorithm.
const MOST: usize = 4 << 10;
/// Most bytes of all ranks together, unless they lie in lines: who reads them holds locks.
const MOST_OF_ALL: usize = 16 << 10;

/// How many bytes each rank lays out in a call that can be made here. `None` if it cannot.
#[inline(always)]
pub fn bytes(op: &Op<'_>, size: usize) -> Option<usize> {
    let call = op.call();
    match op.reducer() {
        // Nobody knows how long a function of the program takes.
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

/// Makes the call. `None` if somebody has not come yet; then nothing that is read later is written over.
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
