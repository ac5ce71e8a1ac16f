//! The contexts of this process that have not left: its exit concerns all of them.
//!
//! Leaves to `context` how each leaves and fails.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::error::Error;
use crate::transport::HAS_LEFT;

use super::context::Context;
use super::mutex::lock;
use super::{beacon, drain};

/// Adds a new context.
pub(super) fn add(context: &Arc<Context>) {
    live().push(Arc::downgrade(context));
}

fn live() -> MutexGuard<'static, Vec<Weak<Context>>> {
    static LIVE: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());
    let mut live = lock(&LIVE);
    live.retain(|context| context.strong_count() > 0);
    live
}

fn all() -> Vec<Arc<Context>> {
    live().iter().filter_map(Weak::upgrade).collect()
}

/// Has every context of the process leave, and waits until all have: for a process that exits.
pub async fn leave_all() {
    drain::hurry();
    let leaving = all().into_iter().map(|context| {
        tokio::spawn(async move {
            Arc::clone(&context).leave().await;
            context.left().await;
        })
    });
    for one in leaving.collect::<Vec<_>>() {
        let _ = one.await;
    }
}

/// Whether a fault of this process is being delivered to peers. That is bounded by `delivery`.
pub fn is_delivering_faults() -> bool {
    all().iter().any(|context| context.is_delivering_fault())
}

/// For a program that exits inside a call or while no thread drives the network, so that it cannot
/// leave in good order: reports to the peers by beacons that this rank has left.
pub fn on_exit() {
    for context in all() {
        let peer = context.me.rank;
        context.learn(Error::PeerLost { peer, how: HAS_LEFT.to_owned() });
    }
    // No thread will repeat a lost beacon.
    beacon::send_all();
    beacon::send_all();
}
