//! | card       | scan and exclusive scan, Hillis and Steele's                              |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | in step k one buffer, a message, by each rank r with r + 2^k < n          |
//! | scratch    | one buffer; the exclusive scan two                                        |
//! | restricted | no                                                                        |
//! | fold order | rank r after step k: the 2^(k+1) ranks up to r, as two halves; the        |
//! |            | exclusive scan folds what each step brings to the left of what it has     |
//! | chosen     | small buffers                                                             |
//!
//! In step k each rank sends its fold of the last 2^k ranks to the one 2^k after it. n = 4:
//!
//! ```text
//! 0 -> 1   1 -> 2   2 -> 3
//! 0 -> 2   1 -> 3
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::Result;
use crate::op::Reducer;
use crate::rank::Rank;
use crate::reduce::Side;

/// `up_to` holds this rank's share and becomes the fold of all ranks up to this one. `before`, if
/// given, becomes the fold of all ranks before this one; on rank 0 it stays unchanged.
pub async fn hillis_steele(
    exchange: &Exchange<'_>,
    reducer: &Reducer,
    up_to: &mut [u8],
    mut before: Option<&mut [u8]>,
) -> Result<()> {
    let me = exchange.me();
    let own = me.rank.0;
    let mut theirs = passes::zeroed(up_to.len()).await?;
    for step in 0..me.size.next_power_of_two().ilog2() as usize {
        let distance = 1 << step;
        let sending = async {
            if own + distance < me.size {
                exchange.send(Rank(own + distance), step, up_to).await?;
            }
            Ok(())
        };
        let receiving = async {
            if own >= distance {
                exchange.recv(Rank(own - distance), step, &mut theirs).await?;
            }
            Ok(())
        };
        try_join!(sending, receiving)?;
        if own >= distance {
            passes::fold(reducer, up_to, &theirs, Side::Left).await;
            match &mut before {
                Some(before) if step == 0 => passes::copy(&theirs, before).await,
                Some(before) => passes::fold(reducer, before, &theirs, Side::Left).await,
                None => {}
            }
        }
    }
    Ok(())
}
