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
use crate::op::{Counts, Op, Reducer};
use crate::rank::{Place, Rank};
use crate::transport::{Brief, FEW};

/// Most bytes that a rank lays out in such a call. What is longer is not always made by a flat algorithm.
const MOST: usize = 4 << 10;
/// Most bytes of all ranks together, unless they lie in lines: who reads them holds locks.
const MOST_OF_ALL: usize = 16 << 10;

/// How many bytes each rank lays out in a call that can be made here. `None` if it cannot.
#[inline(always)]
pub fn bytes(op: &Op<'_>, size: usize) -> Option<usize> {
    let bytes = match op {
        Op::Barrier => return Some(0),
        // Nobody knows how long a function of the program takes.
        Op::AllReduce { reducer: Reducer::User { .. }, .. }
        | Op::Reduce { reducer: Reducer::User { .. }, .. }
        | Op::Scan { reducer: Reducer::User { .. }, .. }
        | Op::ReduceScatter { reducer: Reducer::User { .. }, .. } => return None,
        // In another environment the general path folds.
        Op::AllReduce { reducer, .. }
        | Op::Reduce { reducer, .. }
        | Op::Scan { reducer, .. }
        | Op::ReduceScatter { reducer, .. }
            if !reducer.can_fold_few() =>
        {
            return None;
        }
        Op::AllReduce { count, reducer, .. }
        | Op::Reduce { count, reducer, .. }
        | Op::Scan { count, reducer, .. } => count * reducer.dtype().size(),
        Op::Broadcast { count, dtype, .. } => count * dtype.size(),
        Op::AllGather { counts: Counts::Each(count), dtype, .. } => count * dtype.size(),
        Op::AllToAll { counts: Counts::Each(_), sent: blocks, .. }
        | Op::ReduceScatter { counts: Counts::Each(_), blocks, .. } => {
            let block = blocks.longest();
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
    use super::super::select::{FLAT_SCAN, Ground, Selection};
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
                Call::AllReduce { count, reduction },
                Call::Reduce { count, reduction, root },
                Call::Broadcast { count, dtype, root },
                Call::AllGather { counts, dtype },
                Call::ReduceScatter { counts, reduction },
                Call::AllToAll { counts, dtype },
                Call::Barrier,
            ];
            for call in calls {
                assert_eq!(
                    selection.choose(&call, ranks, ground).name,
                    "flat",
                    "{call} of {ranks}"
                );
            }
            let scan = selection.choose(&Call::Scan { count, reduction }, ranks, ground).name;
            assert_eq!(scan, if ranks <= FLAT_SCAN { "flat" } else { "chain" }, "of {ranks}");
        }
    }
}
