//! Ranks as threads of this process, ended when they make no progress.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nexar::{CpuAdapter, DeviceAdapter, SyncClient};

/// Ticks without a call after which a test hangs. A late tick counts as one: a busy machine costs
/// nothing.
const PATIENCE: u32 = 90;
const TICK: Duration = Duration::from_secs(1);

/// Buffers whose address was taken, which each call with data does.
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// What each of `size` ranks returns, in rank order.
pub fn run<T: Send + 'static>(
    size: u32,
    body: impl Fn(SyncClient) -> T + Send + Sync + 'static,
) -> Vec<T> {
    run_on(Arc::new(CpuAdapter::new()), size, body)
}

/// As `run`, with an adapter.
pub fn run_on<T: Send + 'static>(
    adapter: Arc<dyn DeviceAdapter>,
    size: u32,
    body: impl Fn(SyncClient) -> T + Send + Sync + 'static,
) -> Vec<T> {
    within_limit(move || {
        let clients = SyncClient::bootstrap_local(size, adapter).unwrap();
        let ranks: Vec<_> = clients.iter().map(SyncClient::rank).collect();
        assert_eq!(ranks, (0..size).collect::<Vec<_>>());
        thread::scope(|scope| {
            let body = &body;
            let ranks: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || body(client))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
        })
    })
}

/// What `body` returns, unless it hangs or panics.
pub fn within_limit<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, end) = channel();
    thread::spawn(move || ended.send(body()));
    let (mut seen, mut silent) = (PROGRESS.load(Relaxed), 0);
    loop {
        match end.recv_timeout(TICK) {
            Ok(returned) => return returned,
            Err(RecvTimeoutError::Disconnected) => panic!("it panicked"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = PROGRESS.load(Relaxed);
        silent = if now == seen { silent + 1 } else { 0 };
        seen = now;
        assert!(silent < PATIENCE, "it hangs");
    }
}

pub fn address<T>(data: &[T]) -> u64 {
    PROGRESS.fetch_add(1, Relaxed);
    data.as_ptr() as u64
}

pub fn address_mut<T>(data: &mut [T]) -> u64 {
    PROGRESS.fetch_add(1, Relaxed);
    data.as_mut_ptr() as u64
}
