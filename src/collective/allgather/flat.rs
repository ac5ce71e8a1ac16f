//! | card       | all-gather, flat                                                          |
//! |------------|---------------------------------------------------------------------------|
//! | steps      | 1, in rounds                                                              |
//! | bytes sent | none; each rank lays out its block                                        |
//! | scratch    | none                                                                      |
//! | restricted | ranks of one host                                                         |
//! | fold order | nothing is folded                                                         |
//! | chosen     | on one host                                                               |
//!
//! Every rank looks at the blocks of all others. n = 4, blocks each rank copies:
//!
//! ```text
//! rank 0:     1 2 3
//! rank 1:  0    2 3
//! rank 2:  0 1    3
//! rank 3:  0 1 2
//! ```

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{AHEAD, Turn, count, part, stores, turns};
use crate::error::Result;
use crate::reduce::copy;
use crate::transport::{Mesh, SLOT};

pub async fn flat<M: Mesh>(
    exchange: &Exchange<'_, M>,
    blocks: &Blocks,
    mut buffers: Buffers<'_>,
) -> Result<()> {
    let place = exchange.place();
    let own = blocks.get(place.rank.0);
    let (parts, stores) = (count(blocks.longest(), SLOT), stores(blocks.extent()));
    let mut rounds = exchange.rounds(0, parts);
    for turn in turns(parts, AHEAD) {
        match turn {
            Turn::Lay(number) => {
                let here = part(&own, SLOT, number);
                let block = match &buffers {
                    Buffers::Apart { input, .. } => &input[here.start - own.start..][..here.len()],
                    Buffers::Shared { both } => &both[here.clone()],
                };
                rounds.show(number, block).await?;
                if let Buffers::Apart { input, output } = &mut buffers {
                    let block = &input[here.start - own.start..][..here.len()];
                    copy(&mut output[here], block, stores);
                }
            }
            Turn::Look(number) => {
                for peer in (1..place.size).map(|distance| place.after(distance)) {
                    let there = part(&blocks.get(peer.0), SLOT, number);
                    let block = rounds.look(number, peer, there.len()).await?;
                    copy(&mut buffers.output_mut()[there], &block, stores);
                }
                rounds.pass(number);
            }
        }
    }
    rounds.passed().await
}
