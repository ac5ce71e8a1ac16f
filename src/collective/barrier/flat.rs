//! | card       | barrier, flat                                                             |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in one round                                                           |
//! | bytes sent | none                                                                      |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank shows that it has come and looks for all others. n = 4, whom each rank looks for:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use crate::collective::exchange::Exchange;
use crate::error::Result;

pub async fn flat(exchange: &Exchange<'_>) -> Result<()> {
    let place = exchange.place();
    let mut rounds = exchange.rounds(0, 1);
    rounds.lay(0, 0, |_, _| ()).await?;
    for peer in (1..place.size).map(|distance| place.after(distance)) {
        rounds.look(0, peer, 0).await?;
    }
    rounds.pass(0);
    Ok(())
}
