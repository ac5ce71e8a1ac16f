//! | card       | scan and exclusive scan, pipeline                                         |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1, a segment behind each other                                        |
//! | bytes sent | one buffer per rank, none by the last, a message per segment              |
//! | scratch    | none; the exclusive scan a few segments, on rank 0 one buffer             |
//! | restricted | no                                                                        |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | large buffers                                                             |
//!
//! The ranks form a chain. Each folds its share into a segment and forwards it, so the call takes
//! little longer than one buffer on one link. n = 4:
//!
//! ```text
//! 0 -> 1 -> 2 -> 3
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::collective::segments::{SEGMENT, SLOTS, Segments, Slots, segments};
use crate::error::Result;
use crate::op::Reducer;
use crate::reduce::Side;

/// `data` holds this rank's share and becomes the fold of all ranks up to this one.
pub async fn pipeline(exchange: &Exchange<'_>, reducer: &Reducer, data: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let (is_first, is_last) = (me.rank.0 == 0, me.rank.0 == me.size - 1);
    let segments = Segments::whole(data, reducer.dtype().whole(SEGMENT));

    let folding = async {
        for segment in segments.of(0).filter(|_| !is_first) {
            let mut up_to = segments.hold(segment, 0).await;
            exchange.recv_fold(me.before(1), 0, reducer, Side::Left, &mut up_to).await?;
        }
        Ok(())
    };
    let sending = async {
        for segment in segments.of(0).filter(|_| !is_last) {
            let up_to = segments.hold(segment, usize::from(!is_first)).await;
            exchange.send(me.after(1), 0, &up_to).await?;
        }
        Ok(())
    };
    try_join!(folding, sending)?;
    Ok(())
}

/// `data` holds this rank's share and becomes the fold of all ranks before this one. Not for rank
/// 0, which sends as in a scan.
pub async fn exclusive(exchange: &Exchange<'_>, reducer: &Reducer, data: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let is_last = me.rank.0 == me.size - 1;
    let (bytes, width) = (data.len(), reducer.dtype().whole(SEGMENT));
    let mut scratch = passes::zeroed(bytes.min(SLOTS * width)).await?;
    let slots = Slots::new(&mut scratch, width);

    let folding = async {
        for (number, part) in segments(0..bytes, width).enumerate() {
            let data = &mut data[part];
            let mut up_to = slots.fill(number).await;
            let up_to = &mut up_to[..data.len()];
            up_to.copy_from_slice(data);
            exchange.recv(me.before(1), 0, data).await?;
            reducer.fold(up_to, data, Side::Left);
        }
        Ok(())
    };
    let sending = async {
        for (number, part) in segments(0..bytes, width).enumerate() {
            let up_to = slots.empty(number).await;
            if !is_last {
                exchange.send(me.after(1), 0, &up_to[..part.len()]).await?;
            }
        }
        Ok(())
    };
    try_join!(folding, sending)?;
    Ok(())
}
