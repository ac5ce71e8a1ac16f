//! Made on purpose, for tests: delays and a kill at a chosen moment, the same in every run.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::rank::Rank;

#[derive(Debug, Default)]
pub struct Trouble {
    /// Parcels are held back for a varying number of looks, drawn from this seed.
    pub delay_seed: Option<u64>,
    /// This rank dies when it begins its send or receive of this number, 0-based.
    pub kill: Option<(Rank, u64)>,
    drawn: AtomicU64,
    begun: AtomicU64,
}

impl Trouble {
    pub fn delays(seed: u64) -> Self {
        Self { delay_seed: Some(seed), ..Self::default() }
    }

    pub fn kill(rank: Rank, at: u64) -> Self {
        Self { kill: Some((rank, at)), ..Self::default() }
    }

    /// How long to hold back the next parcel.
    pub(super) fn next_delay(&self) -> u32 {
        let Some(seed) = self.delay_seed else { return 0 };
        let n = self.drawn.fetch_add(1, Ordering::Relaxed);
        // Multiplying by a large odd constant spreads the counter over the upper bits.
        let mixed = (seed ^ n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 62) as u32
    }

    /// Whether `rank`, which begins a send or receive, dies now.
    pub(super) fn dies_now(&self, rank: Rank) -> bool {
        match self.kill {
            Some((victim, at)) if victim == rank => {
                self.begun.fetch_add(1, Ordering::Relaxed) == at
            }
            _ => false,
        }
    }
}
