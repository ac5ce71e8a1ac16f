//! A collective on host memory: whole, or in the pieces that ranks with a device cut it into.
//!
//! Leaves to `cut` where a call is cut, and to `collective` which bytes are sent. Invariant: every
//! rank of a communicator executes the same pieces, wherever its buffers are.

use crate::collective::{self, Exchange};
use crate::comm::Communicator;
use crate::cut::Cut;
use crate::error::Result;
use crate::op::Op;

/// Executes a collective, in pieces if some rank may have its buffers on a device.
pub async fn perform_in_pieces(
    communicator: &Communicator,
    exchange: &Exchange<'_>,
    op: &mut Op<'_>,
) -> Result<()> {
    let selection = &communicator.selection;
    let cut = if communicator.cuts { Cut::of(op, exchange.me()) } else { None };
    let Some(cut) = cut else { return collective::perform(exchange, selection, op).await };
    for index in 0..cut.pieces {
        collective::perform(exchange, selection, &mut cut.piece(op, index)).await?;
    }
    Ok(())
}
