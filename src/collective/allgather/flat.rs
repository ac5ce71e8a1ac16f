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

use std::ops::Range;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::collective::exchange::Exchange;
use crate::collective::rounds::{Turn, ahead, count, part, stores, turns};
use crate::error::Result;
use crate::reduce::copy;
use crate::transport::SLOT;

pub async fn flat(exchange: &Exchange<'_>, blocks: &Blocks, buffers: Buffers<'_>) -> Result<()> {
    let place = exchange.place();
    let own = blocks.get(place.rank.0);
    let (parts, stores) = (count(blocks.longest(), SLOT), stores(blocks.extent()));
    let is_apart = buffers.are_apart();
    let (block, mut output) = own_and_others(buffers, own.clone());
    let mut rounds = exchange.rounds(0, parts);
    for turn in turns(parts, ahead(place.size)) {
        match turn {
            Turn::Lay(number) => {
                let here = part(&own, SLOT, number);
                let block = &block[here.start - own.start..][..here.len()];
                rounds.show(number, block).await?;
                if is_apart {
                    copy(output.get(here), block, stores);
                }
            }
            Turn::Look(number) => {
                for peer in (1..place.size).map(|distance| place.after(distance)) {
                    let there = part(&blocks.get(peer.0), SLOT, number);
                    let block = rounds.look(number, peer, there.len()).await?;
                    copy(output.get(there), &block, stores);
                }
                rounds.pass(number);
            }
        }
    }
    rounds.passed().await
}

/// The output without what is read of it meanwhile: in place, all but this rank's own block.
struct Others<'a> {
    before: &'a mut [u8],
    behind: &'a mut [u8],
    /// Where the latter begins.
    start: usize,
}

impl Others<'_> {
    /// A part of it, which touches no other rank's block.
    fn get(&mut self, part: Range<usize>) -> &mut [u8] {
        match part.end <= self.before.len() {
            _ if part.is_empty() => &mut [],
            true => &mut self.before[part],
            false => &mut self.behind[part.start - self.start..part.end - self.start],
        }
    }
}

/// This rank's own block, and where the blocks of all go but those that are there already.
fn own_and_others(buffers: Buffers<'_>, own: Range<usize>) -> (&[u8], Others<'_>) {
    match buffers {
        Buffers::Apart { input, output } => {
            let start = output.len();
            (input, Others { before: output, behind: &mut [], start })
        }
        Buffers::Shared { both } => {
            let (before, rest) = both.split_at_mut(own.start);
            let (block, behind) = rest.split_at_mut(own.len());
            (block, Others { before, behind, start: own.end })
        }
    }
}
