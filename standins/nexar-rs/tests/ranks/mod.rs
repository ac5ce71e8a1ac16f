//! Runs ranks as threads of this process. A test without progress fails.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nexar::{CpuAdapter, DeviceAdapter, SyncClient};

/// After this many ticks without a call, a test counts as hanging. A late tick counts as one, so a
/// busy machine does not fail a test.
const MAX_SILENT_TICKS: u32 = 90;
const TICK: Duration = Duration::from_secs(1);

/// The number of buffers whose address was taken, at least one for each call with data.
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Runs `body` on `size` ranks. Returns their results in rank order.
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

/// Runs `body` and returns its result. Panics if it hangs or panics.
pub fn within_limit<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, end) = channel();
    thread::spawn(move || ended.send(body()));
    let (mut seen, mut silent) = (PROGRESS.load(Relaxed), 0);
    loop {
        match end.recv_timeout(TICK) {
            Ok(returned) => return returned,
            Err(RecvTimeoutError::Disconnected) => panic!("the test's thread panicked"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = PROGRESS.load(Relaxed);
        silent = if now == seen { silent + 1 } else { 0 };
        seen = now;
        assert!(silent < MAX_SILENT_TICKS, "the test's thread hangs");
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
