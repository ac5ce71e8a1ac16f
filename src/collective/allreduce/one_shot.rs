//! | card       | all-reduce, one shot                                                      |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1                                                                         |
//! | bytes sent | n - 1 buffers per rank, each a message                                    |
//! | scratch    | one buffer                                                                |
//! | restricted | no                                                                        |
//! | fold order | rank order: ((0 1) 2) 3                                                   |
//! | chosen     | a few bytes between a few ranks                                           |
//!
//! Each rank sends its buffer to every other and folds what it receives, in rank order. n = 4:
//!
//! ```text
//! 0 -> 1 2 3   1 -> 2 3 0   2 -> 3 0 1   3 -> 0 1 2
//! ```

use futures_util::future::try_join_all;
use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::collective::passes;
use crate::error::Result;
use crate::op::Reducer;

pub async fn one_shot(exchange: &Exchange<'_>, reducer: &Reducer, data: &mut [u8]) -> Result<()> {
    let me = exchange.me();
    let own = passes::copied(data).await?;
    let sending = try_join_all((1..me.size).map(|k| exchange.send(me.after(k), 0, &own)));
    let folding = exchange.recv_fold_all(reducer, &own, data);
    try_join!(sending, folding)?;
    Ok(())
}
