//! | card       | barrier, dissemination                                                    |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | log2 n, rounded up                                                        |
//! | bytes sent | none but headers                                                          |
//! | scratch    | none                                                                      |
//! | restricted | no                                                                        |
//! | fold order | nothing is folded                                                         |
//! | chosen     | always                                                                    |
//!
//! In step k each rank sends to the rank 2^k after it round the ring and receives from the one 2^k
//! before it, so after step k it knows that 2^(k+1) ranks have entered. n = 4:
//!
//! ```text
//! 0 -> 1 -> 2 -> 3 -> 0
//! 0 -> 2   1 -> 3   2 -> 0   3 -> 1
//! ```

use tokio::try_join;

use crate::collective::exchange::Exchange;
use crate::error::Result;

pub async fn dissemination(exchange: &Exchange<'_>) -> Result<()> {
    let me = exchange.me();
    let steps = me.size.next_power_of_two().ilog2() as usize;
    for (step, distance) in (0..steps).map(|step| (step, 1 << step)) {
        try_join!(
            exchange.send(me.after(distance), step, &[]),
            exchange.recv(me.before(distance), step, &mut [])
        )?;
    }
    Ok(())
}
