//! | card       | broadcast, pipeline                                                       |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | n - 1, a segment behind each other                                        |
//! | bytes sent | one buffer per rank, none by the last, a message per segment              |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | large buffers                                                             |
//!
//! The ranks form a chain that begins at the root. Each forwards a segment as soon as it has
//! arrived, so the call takes little longer than one buffer on one link. n = 4, root 0:
//!
//! ```text
//! 0 -> 1 -> 2 -> 3
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::segments::{SEGMENT, Segments};
use crate::error::Result;
use crate::rank::Rank;

pub async fn pipeline(exchange: &Exchange<'_>, root: Rank, data: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let (left, right) = (me.before(1), me.after(1));
    let (is_first, is_last) = (me.rank == root, right == root);
    let segments = Segments::whole(data, SEGMENT);

    let receiving = async {
        for segment in segments.of(0).filter(|_| !is_first) {
            let mut next = segments.hold(segment, 0).await;
            exchange.recv(left, 0, &mut next).await?;
        }
        Ok(())
    };
    let sending = async {
        for segment in segments.of(0).filter(|_| !is_last) {
            let known = segments.hold(segment, usize::from(!is_first)).await;
            exchange.send(right, 0, &known).await?;
        }
        Ok(())
    };
    try_join!(receiving, sending)?;
    Ok(())
}
