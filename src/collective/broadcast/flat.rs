//! | card       | broadcast, flat                                                           |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; the root lays out its buffer                                        |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! All others look at what the root has laid out. n = 4, root 0:
//!
//! ```text
//! 0 -> 1 2 3
//! ```

use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{count, part, stores};
use crate::error::Result;
use crate::rank::Rank;
use crate::reduce::copy;
use crate::transport::SLOT;

pub async fn flat(
    exchange: &Exchange<'_>,
    root: Rank,
    bytes: usize,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let (parts, stores) = (count(bytes, SLOT), stores(bytes));
    let mut rounds = exchange.rounds(0, parts);
    let part_of = |number| part(&(0..bytes), SLOT, number);
    if exchange.place().rank == root {
        let (data, mut output): (&[u8], _) = match buffers {
            Buffers::Apart { input, output } => (input, Some(output)),
            Buffers::Shared { both } => (both, None),
        };
        for number in 0..parts {
            let part = part_of(number);
            rounds.show(number, &data[part.clone()]).await?;
            if let Some(output) = &mut output {
                copy(&mut output[part.clone()], &data[part], stores);
            }
            rounds.pass(number);
        }
    } else {
        for number in 0..parts {
            let into = &mut buffers.output_mut()[part_of(number)];
            let data = rounds.look(number, root, into.len()).await?;
            copy(into, &data, stores);
            drop(data);
            rounds.pass(number);
        }
    }
    rounds.passed().await
}
